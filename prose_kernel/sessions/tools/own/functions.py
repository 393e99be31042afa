"""Python functions as tools: they run in a process of their own, which can be ended whatever they do."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from prose_kernel.runtime.services import Guard
from prose_kernel.runtime.text import one_line
from prose_kernel.sessions.tools.own.wire import Requests
from prose_kernel.sessions.tools.tool import ToolFailed, ToolSpec

FILE: Final = "prose_tools.py"
START: Final = 30.0
_WORKER: Final = str(Path(__file__).with_name("function_worker.py"))


class Functions:
    """The functions of one `prose_tools.py` (None: only those of packages). Raises `ToolFailed` everywhere.

    A call that takes longer than `timeout` ends the process; the next call starts it again.
    """

    def __init__(self, file: str | None, guard: Guard, cwd: str, *, timeout: float, limit: int) -> None:
        self._file = file
        self._guard = guard
        self._cwd = cwd
        self._timeout = timeout
        self._limit = limit
        self._requests: Requests | None = None
        self._starting = asyncio.Lock()

    async def list(self) -> list[ToolSpec]:
        """What there is. Raises `ToolFailed` naming what is wrong with the file."""
        found = await self._ask("list", {}, START)
        if found["problems"]:
            raise ToolFailed("; ".join(one_line(str(problem), 300) for problem in found["problems"]))
        return [ToolSpec(each["name"], each["description"], each["parameters"]) for each in found["tools"]]

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        found = await self._ask("call", {"name": name, "arguments": arguments}, self._timeout)
        if "failed" in found:
            raise ToolFailed(str(found["failed"]))
        text, length = str(found["text"]), int(found["length"])
        return text if length <= len(text) else f"{text}\n\n[cut: {length:,} characters in all]"

    async def close(self) -> None:
        requests, self._requests = self._requests, None
        if requests is not None:
            await requests.process.stop()

    async def _ask(self, method: str, params: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        try:
            async with asyncio.timeout(seconds):
                requests = await self._running()
                answer = await requests.ask(method, params)
        except TimeoutError:
            await self._end()
            raise ToolFailed(f"no answer within {seconds:g} seconds; it was ended") from None
        except asyncio.CancelledError:
            await self._end()
            raise
        found = answer.get("result")
        if not isinstance(found, dict):
            raise ToolFailed("the process of the functions sent no answer")
        return found

    async def _running(self) -> Requests:
        async with self._starting:
            if self._requests is None or not self._requests.open:
                await self._end()
                made = Requests("prose_tools")
                command = (sys.executable, "-P", _WORKER, self._file or "-", str(self._limit))
                await made.process.start(self._guard, command, {}, self._cwd)
                self._requests = made
            return self._requests

    async def _end(self) -> None:
        requests, self._requests = self._requests, None
        if requests is not None:
            await requests.process.stop(0)
