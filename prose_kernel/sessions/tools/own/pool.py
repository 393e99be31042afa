"""The tools that sessions name in `tools:`: found among the servers and functions of the run, each call asked about."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from prose_kernel.errors import ProviderError
from prose_kernel.permissions.policy import Ask, PermissionDesk, Policy, who
from prose_kernel.runtime.ports import SessionRequest
from prose_kernel.runtime.services import Guard
from prose_kernel.runtime.session_options import SessionOptions, Surroundings
from prose_kernel.runtime.text import one_line
from prose_kernel.sessions.tools.own.functions import FILE, Functions
from prose_kernel.sessions.tools.tool import Tool, ToolFailed, ToolRefused, ToolSpec

RESULT: Final = 100_000
"""Characters of a result that a model gets; the rest is cut, and it is said."""

_INSTALL: Final = "pip install 'prose-kernel[mcp]'"


class Source(Protocol):
    """A server of tools, or the functions."""

    async def list(self) -> list[ToolSpec]: ...

    async def call(self, name: str, arguments: Mapping[str, object]) -> str: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class OwnTool:
    """One tool for one session. `name` is how rules and programs write it; models get it without the dot."""

    name: str
    theirs: ToolSpec
    source: Source
    request: SessionRequest
    policy: Policy
    desk: PermissionDesk

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(offered_name(self.name), self.theirs.description, self.theirs.parameters)

    def summary(self, arguments: Mapping[str, object]) -> str:
        """All arguments on one line."""
        return json.dumps(dict(arguments), ensure_ascii=False, default=str) if arguments else ""

    async def call(self, arguments: Mapping[str, object]) -> str:
        ruling = self.policy.rule("tools", self.name)
        if ruling.answer == "prompt":
            question = f"{self.name} {self.summary(arguments)}".rstrip()
            always = f"the tool {self.name} for {who(self.request)}"
            ruling = await self.desk.ask(Ask.of(self.request, "tools", question, always))
        if ruling.answer != "allow":
            raise ToolRefused(f"the tool {self.name} is not allowed: {ruling.why}")
        return await self.source.call(self.theirs.name, arguments)


def offered_name(name: str) -> str:
    """`weather.forecast` as models can call it: `weather__forecast`."""
    return name.replace(".", "__")


class OwnTools:
    """All servers and functions of one run; each is started by the first session that names one of its tools.

    `own_program` tells whether the program of that name is the person's own: only those get functions of the file
    `prose_tools.py` in the directory `where.cwd`.
    """

    def __init__(
        self, options: SessionOptions, where: Surroundings, guard: Guard | None, own_program: Callable[[str], bool]
    ) -> None:
        self._options = options
        self._where = where
        self._guard = guard
        self._own_program = own_program
        self._sources: dict[str, Source] = {}
        self._specs: dict[str, list[ToolSpec]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def tools(self, request: SessionRequest, policy: Policy, desk: PermissionDesk) -> Sequence[Tool]:
        """The tools of a session, in the order of its names. Raises `ProviderError` for what cannot be had."""
        found: dict[str, OwnTool] = {}
        if not policy.could("tools"):
            return ()
        for name in request.tools:
            server, _, wanted = name.partition(".")
            try:
                if server in self._options.mcp:
                    specs = await self._listed(server)
                    chosen = [spec for spec in specs if wanted in ("", "*", spec.name)]
                    full = {f"{server}.{spec.name}": spec for spec in chosen}
                else:
                    server = "functions" if self._own_program(request.program) else "packaged"
                    full = {spec.name: spec for spec in await self._listed(server) if spec.name == name}
            except ToolFailed as problem:
                raise ProviderError(
                    f"the tool '{one_line(name)}' cannot be had: {problem}", retryable=False, hint=self._hint(name)
                ) from None
            if not full and request.kind == "call":  # `tools` is none of VVM's keys: it may mean something else there
                continue
            if not full:
                raise ProviderError(f"there is no tool '{one_line(name)}'", retryable=False, hint=self._hint(name))
            for each, spec in full.items():
                found[each] = OwnTool(each, spec, self._sources[server], request, policy, desk)
        return tuple(found.values())

    def _hint(self, name: str) -> str:
        server = name.partition(".")[0]
        if server in self._options.mcp:
            return f"see [mcp.{server}] in prose.toml"
        return f"a tool is a function in {FILE} beside the program, or [mcp.NAME] in prose.toml"

    async def close(self) -> None:
        """End all processes and connections. A second call does nothing."""
        sources, self._sources, self._specs = self._sources, {}, {}
        await asyncio.gather(*(source.close() for source in sources.values()))

    async def _listed(self, name: str) -> list[ToolSpec]:
        async with self._locks.setdefault(name, asyncio.Lock()):
            if name not in self._specs:
                source = self._sources.get(name)
                if source is None:
                    source = self._sources[name] = self._source(name)
                self._specs[name] = await source.list()
            return self._specs[name]

    def _source(self, name: str) -> Source:
        if name not in self._options.mcp:
            if self._guard is None:
                raise ToolFailed("no process engine would end its process")
            file = Path(self._where.cwd, FILE)
            path = str(file) if name == "functions" and file.is_file() else None
            seconds = self._options.function_seconds
            return Functions(path, self._guard, self._where.cwd, timeout=seconds, limit=RESULT)
        try:
            from prose_kernel.sessions.tools.own.mcp_server import Mcp
        except ImportError:
            raise ToolFailed(f"the package mcp is not installed: {_INSTALL}") from None
        server = self._options.mcp[name]
        return Mcp(name, server, self._guard, self._where.cwd, self._where.environment, RESULT)
