"""Python functions as tools: they run in a separate process, which can always be ended."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from prose_kernel.language.text import one_line
from prose_kernel.models.json_rpc import Requests
from prose_kernel.models.tools.tool import OfferedTools, ToolFailed
from prose_kernel.runtime.services import Guard

FILE: Final = "prose_tools.py"
START: Final = 30.0
_WORKER: Final = str(Path(__file__).with_name("function_worker.py"))


class Functions:
    """The functions of one `prose_tools.py` (None: only those of packages). Every method may raise `ToolFailed`.

    The file and the modules next to it are loaded only if they match `pins`, digests by file name. `env` are the
    variables that the process gets in addition to the common ones of our environment. A call that takes longer than
    `timeout` seconds, or is cancelled, ends the process as soon as no other call is waiting for it; later calls get a
    new process.
    """

    def __init__(
        self,
        file: str | None,
        guard: Guard,
        cwd: str,
        *,
        timeout: float,
        limit: int,
        pins: Mapping[str, str],
        env: Mapping[str, str],
    ) -> None:
        self._file = file
        self._pins = json.dumps(dict(pins))
        self._env = {**env, "PYTHONPATH": _search_path(env.get("PYTHONPATH", os.environ.get("PYTHONPATH", "")), cwd)}
        self._guard = guard
        self._cwd = cwd
        self._timeout = timeout
        self._limit = limit
        self._requests: Requests | None = None
        self._leaving: set[Requests] = set()
        self._starting = asyncio.Lock()

    async def list(self) -> OfferedTools:
        """Return the functions. Raises `ToolFailed` if the file cannot be loaded."""
        found = await self._ask("list", {}, START)
        if found["broken"]:
            raise ToolFailed(one_line(str(found["broken"]), 300))
        offer = OfferedTools()
        for each in found["tools"]:
            offer.add(each["name"], each["description"], each["parameters"])
        offer.unusable |= {name: one_line(str(why), 300) for name, why in found["problems"].items()}
        return offer

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        found = await self._ask("call", {"name": name, "arguments": arguments}, self._timeout)
        if "failed" in found:
            raise ToolFailed(str(found["failed"]))
        text, length = str(found["text"]), int(found["length"])
        return text if length <= len(text) else f"{text}\n\n[cut: {length:,} characters in all]"

    async def close(self) -> None:
        leaving, self._leaving = self._leaving, set()
        if self._requests is not None:
            leaving.add(self._requests)
            self._requests = None
        await asyncio.gather(*(requests.process.stop() for requests in leaving))

    async def _ask(self, method: str, params: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        requests = await self._running()
        try:
            async with asyncio.timeout(seconds):
                answer = await requests.ask(method, params)
        except TimeoutError:
            self._leave(requests)
            raise ToolFailed(f"no answer within {seconds:g} seconds; it was ended") from None
        except asyncio.CancelledError:
            self._leave(requests)
            raise
        finally:
            if requests in self._leaving and requests.idle:
                self._leaving.discard(requests)
                await requests.process.stop(0)
        found = answer.get("result")
        if not isinstance(found, dict):
            raise ToolFailed("the process of the functions sent no answer")
        return found

    async def _running(self) -> Requests:
        async with self._starting:
            if self._requests is not None and not self._requests.open:
                await self._requests.process.stop(0)
                self._requests = None
            if self._requests is None:
                made = Requests("prose_tools")
                command = (sys.executable, "-P", _WORKER, self._file or "-", str(self._limit), self._pins)
                await made.process.start(self._guard, command, self._env, self._cwd)
                self._requests = made
            return self._requests

    def _leave(self, requests: Requests) -> None:
        """Send the process no further calls; a hanging call may stay in it."""
        self._leaving.add(requests)
        if self._requests is requests:
            self._requests = None


def _search_path(stated: str, cwd: str) -> str:
    """Return the directories of a `PYTHONPATH` without the workspace: files written there must not be loaded
    unchecked."""
    root = os.path.realpath(cwd)
    kept = (
        place
        for place in stated.split(os.pathsep)
        if place and os.path.realpath(os.path.join(cwd, place)) != root  # noqa: PTH118
    )
    return os.pathsep.join(kept)
