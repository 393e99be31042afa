"""Shared parts of tests of tools."""

from __future__ import annotations

from collections.abc import Mapping

from prose_kernel.models.tools.session_tools import SessionTools


async def answer_of(bench: SessionTools, tool: str, arguments: Mapping[str, object]) -> str:
    """The result of a call for the model."""
    return (await bench.call(tool, arguments)).text
