"""Helpers for tests of tools."""

from __future__ import annotations

from collections.abc import Mapping

from prose_kernel.models.tools.session_tools import SessionTools


async def answer_of(bench: SessionTools, tool: str, arguments: Mapping[str, object]) -> str:
    """Return the result of a call as the model sees it."""
    return (await bench.call(tool, arguments)).text
