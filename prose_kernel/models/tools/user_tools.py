"""The tools that sessions name in `tools:`, each call checked by the rules: those of the MCP servers in prose.toml, and
the Python functions in prose_tools.py (docs/how-to/tools.md)."""

from __future__ import annotations

import asyncio
import fnmatch
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct, field

from prose_kernel.access.approvals import Approvals, Ask, AuditWriter, no_audit, session_name
from prose_kernel.access.code_files import pinned
from prose_kernel.access.created_code import require_agreed
from prose_kernel.access.session_permissions import Policy
from prose_kernel.errors import PermissionDenied, ProviderError, UsageError
from prose_kernel.language.nearest import nearest_hint
from prose_kernel.language.structs import replace
from prose_kernel.language.text import encodable, one_line
from prose_kernel.models.tools.permission_check import audit_record
from prose_kernel.models.tools.tool import OfferedTools, Tool, ToolFailed, ToolRefused, ToolSpec
from prose_kernel.models.tools.user_functions import FILE, Functions
from prose_kernel.runtime.ports import SessionRequest
from prose_kernel.runtime.services import Guard
from prose_kernel.runtime.session_options import SessionOptions, Surroundings

RESULT: Final = 100_000
"""The length limit of a result for a model, in characters; a longer result is cut, with a note."""

_INSTALL: Final = "pip install 'prose-kernel[mcp]'"


class ToolHost(Struct, frozen=True):
    """The surroundings of user-provided tools.

    `guard` starts and ends processes, `note` writes the audit log, `warn` shows a warning. `functions` is the directory
    of the started program; None if the program isn't the user's own file (an example of the package, or a fetched
    program). `pins` are the digests of its files at the start of the run; None: they are computed now.
    """

    guard: Guard | None = None
    functions: Path | None = None
    note: AuditWriter = no_audit
    warn: Callable[[str], object] = lambda text: None
    pins: Mapping[str, str] | None = None


class Source(Protocol):
    """A server of tools, or the functions."""

    async def list(self) -> OfferedTools: ...

    async def call(self, name: str, arguments: Mapping[str, object]) -> str: ...

    async def close(self) -> None: ...


class UserTool(Struct, frozen=True):
    """One tool for one session. `name` is its name in rules and programs; models see it without the dot."""

    name: str
    theirs: ToolSpec
    source: Source
    request: SessionRequest
    policy: Policy
    approvals: Approvals
    note: AuditWriter = no_audit

    @property
    def spec(self) -> ToolSpec:
        name = self.name.replace(".", "__")  # models accept no dots
        return ToolSpec(name, self.theirs.description, self.theirs.parameters)

    def summary(self, arguments: Mapping[str, object]) -> str:
        return json.dumps(dict(arguments), ensure_ascii=False, default=str) if arguments else ""

    async def call(self, arguments: Mapping[str, object]) -> str:
        record = audit_record(self.request, self.name, arguments)
        try:
            await self._allow(arguments)
        except ToolRefused as refused:
            refused.audited = True
            self.note("tool.call.denied", {**record, "message": str(refused)})
            raise
        self.note("tool.call.dispatched", record)
        try:
            answer = await self.source.call(self.theirs.name, arguments)
        except BaseException as problem:
            error = "tool_failed" if isinstance(problem, Exception) else "cancelled"
            self.note("tool.call.finished", {**record, "ok": False, "error": error})
            raise
        self.note("tool.call.finished", {**record, "ok": True, "characters": len(answer)})
        return encodable(answer)

    async def _allow(self, arguments: Mapping[str, object]) -> None:
        ruling = self.policy.decide("tools", self.name)
        if ruling.answer == "prompt":
            question = f"{self.name} {self.summary(arguments)}".rstrip()
            always = f"the tool {self.name} for {session_name(self.request)}"
            ruling = await self.approvals.ask(Ask.of(self.request, "tools", question, always))
        if ruling.answer != "allow":
            raise ToolRefused(f"the tool {self.name} is not allowed: {ruling.why}")


class _Listed(Struct):
    """A source whose tools are known."""

    source: Source
    offer: OfferedTools = field(default_factory=OfferedTools)
    warned: bool = False


class UserTools:
    """All servers and functions of one run; each is started by the first session that names one of its tools.

    Sessions of a remote program never get the functions of `prose_tools.py`. They get other tools with the person's
    consent, and the settings' rules for `tools` apply instead of the program's.
    """

    def __init__(self, options: SessionOptions, where: Surroundings, host: ToolHost) -> None:
        self._options = options
        self._where = where
        self._host = host
        self.pins = host.pins
        if self.pins is None:
            self.pins = pinned(host.functions, FILE) if host.functions is not None else {}
        self._listed: dict[str, _Listed] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._failed: dict[str, ToolFailed] = {}

    async def tools(self, request: SessionRequest, policy: Policy, approvals: Approvals) -> Sequence[Tool]:
        """Return the tools of a session, in the order of its names. Raises `ProviderError` for a tool that is
        unavailable."""
        foreign = request.elsewhere or self._host.functions is None
        if foreign and policy.may_allow("tools"):
            unstated = replace(request, permissions={})
            policy = Policy.of_session(unstated, self._options.permissions, self._where)
        if not policy.may_allow("tools"):
            return ()
        found: dict[str, UserTool] = {}
        for name in request.tools:
            server = name.partition(".")[0]
            source = server if server in self._options.mcp else _PACKAGED if foreign else _FUNCTIONS
            if foreign and source == _PACKAGED and request.kind == "call":
                continue
            if foreign:
                await self._consent(name, source, request, policy, approvals)
            listed, specs = await self._named(name, source)
            if not specs and request.kind == "call":  # `tools` isn't a key of VVM: it may mean something else there
                continue
            if not specs:
                hint = nearest_hint(name, self._known(source, listed), self._hint(name))
                raise ProviderError(f"there is no tool '{one_line(name)}'", retryable=False, hint=hint)
            for full, spec in specs.items():
                found[full] = UserTool(full, spec, listed.source, request, policy, approvals, self._host.note)
        return tuple(found.values())

    async def _consent(
        self, name: str, source: str, request: SessionRequest, policy: Policy, approvals: Approvals
    ) -> None:
        """Ask the person before a remote program starts one of the person's servers or functions."""
        known = source in self._options.mcp
        text = f"the tool server {source}" if known else f"the function {name} of an installed package"
        ruling = policy.decide("tools", source if known else name)
        if known and any(fnmatch.fnmatchcase(source, rule.partition(".")[0]) for rule in policy.patterns("tools")):
            return  # the rules allow some of its tools; each call is checked
        if ruling.answer == "prompt":
            ruling = await approvals.ask(Ask.of(request, "tools", text, f"{text} for programs from elsewhere"))
        if ruling.answer != "allow":
            raise PermissionDenied(
                f"a program from elsewhere may not use {text}: {ruling.why}",
                hint='[permissions] tools = ["NAME.*"] in prose.toml allows it',
            )

    async def _named(self, name: str, source: str) -> tuple[_Listed, dict[str, ToolSpec]]:
        """Return the tools that a name means, by their full names."""
        is_server = source in self._options.mcp
        wanted = name.partition(".")[2] if is_server else name
        try:
            listed = await self._list(source)
            every = is_server and wanted in ("", "*")
            chosen = [spec for spec in listed.offer.tools if every or spec.name == wanted]
            if not chosen and wanted in listed.offer.unusable:
                raise ToolFailed(listed.offer.unusable[wanted])
        except ToolFailed as problem:
            raise ProviderError(
                f"the tool '{one_line(name)}' is not available: {problem}", retryable=False, hint=self._hint(name)
            ) from None
        if every:
            self._warn_of(source, listed)
        return listed, {f"{source}.{spec.name}" if is_server else spec.name: spec for spec in chosen}

    def _warn_of(self, server: str, listed: _Listed) -> None:
        """Warn once about tools of a server that cannot be offered."""
        unusable = listed.offer.unusable
        if unusable and not listed.warned:
            listed.warned = True
            names = "; ".join(f"{one_line(name, 64)} ({why})" for name, why in list(unusable.items())[:3])
            more = f"; and {len(unusable) - 3:,} more" if len(unusable) > 3 else ""
            self._host.warn(f"the tool server {server} has tools that cannot be offered: {names}{more}")

    def _known(self, source: str, listed: _Listed) -> list[str]:
        """Return the names of a source's tools; for the file of functions, also the names of the servers."""
        if source in self._options.mcp:
            return [f"{source}.{spec.name}" for spec in listed.offer.tools]
        return [*(spec.name for spec in listed.offer.tools), *self._options.mcp]

    def _hint(self, name: str) -> str:
        server = name.partition(".")[0]
        if server in self._options.mcp:
            return f"see [mcp.{server}] in prose.toml"
        return f"a tool is a function in {FILE} next to the program, or [mcp.NAME] in prose.toml"

    async def close(self) -> None:
        """End all processes and connections. A second call does nothing."""
        listed, self._listed = self._listed, {}
        await asyncio.gather(*(each.source.close() for each in listed.values()))

    async def _list(self, name: str) -> _Listed:
        lock = self._locks.setdefault(name, asyncio.Lock())
        waited = lock.locked()
        async with lock:
            if waited and name in self._failed:  # a caller that waited for an attempt shares its failure
                raise ToolFailed(str(self._failed[name]))
            self._failed.pop(name, None)
            if name not in self._listed:
                source = self._source(name)
                try:
                    self._listed[name] = _Listed(source, await source.list())
                except BaseException as problem:
                    if isinstance(problem, ToolFailed):
                        self._failed[name] = problem
                    await source.close()
                    raise
            return self._listed[name]

    def _source(self, name: str) -> Source:
        guard, cwd = self._host.guard, self._where.cwd
        if name not in self._options.mcp:
            if guard is None:
                raise ToolFailed("no process engine would end its process")
            file = self._host.functions / FILE if self._host.functions is not None else None
            there = file is not None and (file.exists() or file.is_symlink())
            path = str(file) if name == _FUNCTIONS and there else None
            if path is not None:
                try:
                    require_agreed(Path(path).parent / each for each in (FILE, *(self.pins or ())))
                except UsageError as problem:
                    raise ToolFailed(f"{problem}; {problem.hint}") from None
            known = self._where.environment if name == _FUNCTIONS else {}
            return Functions(
                path,
                guard,
                cwd,
                timeout=self._options.function_seconds,
                limit=RESULT,
                pins=self.pins or {},
                env={name: known[name] for name in self._options.function_env if name in known},
            )
        try:
            from prose_kernel.models.tools.mcp_server import Mcp
        except ImportError:
            raise ToolFailed(f"the package mcp is not installed: {_INSTALL}") from None
        return Mcp(name, self._options.mcp[name], guard, cwd, self._where.environment, RESULT)


_FUNCTIONS: Final = " functions"  # not a valid name of a server
_PACKAGED: Final = " packaged"
