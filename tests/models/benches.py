"""What tests of tools share."""

from __future__ import annotations

from collections.abc import Mapping

from prose_kernel.models.tools.workbench import SessionWorkbench


async def answer_of(bench: SessionWorkbench, tool: str, arguments: Mapping[str, object]) -> str:
    """What the model is told of a call."""
    return (await bench.call(tool, arguments)).text
