"""The check before every tool call: the session's own files, the rules, and the person if a rule says `prompt`."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from prose_kernel.access.approvals import Approvals, Ask, session_name
from prose_kernel.access.grants import RUNS, Reach
from prose_kernel.access.path_resolver import is_below
from prose_kernel.access.safe_files import ResolvedPath, opened, resolve
from prose_kernel.access.session_permissions import Kind, Policy, Ruling
from prose_kernel.language.text import one_line
from prose_kernel.models.session_prompt import memory_file, segment_file
from prose_kernel.models.tools.tool import ToolFailed, ToolRefused
from prose_kernel.runtime.ports import FileRead, SessionRequest
from prose_kernel.runtime.session_options import Surroundings
from prose_kernel.runtime.value_text import full_content

_RUN: Final = re.compile(r"(runs/|run_id=')\d{8}-\d{6}-[a-z0-9]{6}")
_TASK: Final = re.compile(r"\btask_[0-9a-f]{16}\b")
_TASK_TIMES: Final = re.compile(r"(?m)^(started |started \{time\}, ended )\d{4}-\d\d-\d\dT[\d:.]+\+00:00(?=$|,)")
_OPEN: Final[dict[Kind, str]] = {"read": "reading", "write": "writing"}


class Access:
    """The files that one session may read and write. Each path is resolved and checked at the moment of the call.

    Without a rule, a session may read the files of its context. A call whose input contains references may read the
    bindings of its run. A session that writes its answer itself (`by_files`: a CLI agent) may read and write its own
    files: its binding and, for a persistent agent, the memory and this invocation's segment.
    """

    def __init__(
        self,
        request: SessionRequest,
        policy: Policy,
        approvals: Approvals,
        where: Surroundings,
        *,
        by_files: bool = False,
    ) -> None:
        self.policy = policy
        self.cwd = where.cwd
        self.home = where.environment.get("HOME") or str(Path.home())
        self._request = request
        self._approvals = approvals
        self._own = frozenset(_own_files(request)) if by_files else frozenset()
        self._context = frozenset(item.location for item in request.context or () if item.location and not item.row)
        self._rows = {item.location: item.content for item in request.context or () if item.location and item.row}
        given = request.given
        self._readable = given.readable if given is not None and given.references else ""
        self._state = os.path.join(where.cwd, where.state_dir)  # noqa: PTH118
        self._seen: dict[str, FileRead] = {}
        self._changed: set[str] = set()

    # ------------------------------------------------------------ files

    async def file(self, kind: Kind, path: str, request: str) -> ResolvedPath:
        """Return the place of a path that may be read or written. `request` is shown to the person if a rule says
        `prompt`.

        Raises `ToolRefused`; a refusal does not reveal whether the path exists.
        """
        place = resolve(path, self.cwd, self.home)
        if not self.granted(kind, place):
            await self._ruled(kind, self.policy.decide(kind, place.path), path, request)
        return place

    async def directory(self, path: str, request: str) -> tuple[ResolvedPath, Reach]:
        """Return a directory to list, and its visible part: everything below it that the rules allow to read."""
        place = resolve(path, self.cwd, self.home)
        reach = self.policy.reach("read")
        reason = self.policy.protects("read", place.path)
        if reason is not None or not (reach.covers(place.path) or reach.covers_below(place.path)):
            raise ToolRefused(f"reading '{path}' is not allowed: {reason or self.policy.decide('read', '/').why}")
        if self.policy.rule("read") == "prompt":
            await self._ruled("read", Ruling("prompt"), path, request)
        return place, reach

    def row(self, location: str) -> str | None:
        """Return the text of a context binding that is a row of a database; None for any other location.

        So the session needs no connection to the database, which also decides gates (5.10).
        """
        content = self._rows.get(location.strip())
        return None if content is None else full_content(content)

    def granted(self, kind: Kind, place: ResolvedPath) -> bool:
        """Return whether no rule is needed: the path is one of the session's own files, or a file of its context to
        read."""
        if kind == "read" and self._readable:
            bindings = os.path.realpath(os.path.join(self.cwd, self._readable))  # noqa: PTH118
            if is_below(place.path, bindings):
                return True
        places = self._own if kind == "write" else self._own | self._context
        return any(os.path.realpath(os.path.join(self.cwd, own)) == place.path for own in places)  # noqa: PTH118

    def context(self, path: str) -> ResolvedPath | None:
        """Return the place of a path in the session's context; None for any other path. Raises `ToolRefused`."""
        place = resolve(path, self.cwd, self.home)
        return place if self.granted("read", place) else None

    # ------------------------------------------------------------ dependencies of the answer

    def saw(self, place: ResolvedPath) -> None:
        """Record the digest of a workspace file when the session first reads it. Reads the file: call it in a
        thread."""
        root = os.path.realpath(self.cwd)
        if place.path in self._seen or place.path in self._changed or self.granted("read", place):
            return
        if not is_below(place.path, root) or is_below(place.path, os.path.realpath(self._state)):
            return
        if is_below(place.path, os.path.join(root, RUNS)):  # noqa: PTH118
            return
        with contextlib.suppress(ToolFailed, ToolRefused), opened(place) as descriptor:
            digest = hashlib.file_digest(open(descriptor, "rb", closefd=False), "sha256").hexdigest()  # noqa: SIM115
            self._seen[place.path] = FileRead(place.path[len(root) :].lstrip("/"), digest)

    def changes(self, place: ResolvedPath) -> None:
        """Record that the session writes this file: later reads of it are not dependencies."""
        self._changed.add(place.path)

    def restore(self, reads: Iterable[FileRead]) -> None:
        """Add files that the session read in an earlier process of the run."""
        root = os.path.realpath(self.cwd)
        self._seen.update((os.path.join(root, one.path), one) for one in reads)  # noqa: PTH118

    @property
    def reads(self) -> tuple[FileRead, ...]:
        """Return the workspace files that the session read before it wrote them."""
        return tuple(self._seen.values())

    async def _ruled(self, kind: Kind, ruling: Ruling, path: str, request: str) -> None:
        if ruling.answer == "prompt":
            ruling = await self.ask(kind, request, f"{_OPEN[kind]} any file by {self.session_name}")
        if ruling.answer != "allow":
            raise ToolRefused(f"{_OPEN[kind]} '{path}' is not allowed: {ruling.why}")

    # ------------------------------------------------------------ everything else

    def refused(self, tool: str, arguments: Mapping[str, object], why: str, error: str = "permission_denied") -> None:
        """Write a refused call, or a call of an unknown tool, into the audit log of the run."""
        with contextlib.suppress(ToolRefused):
            record = audit_record(self._request, one_line(tool, 200), arguments)
            self._approvals.audit("tool.call.denied", {**record, "error": error, "message": why})

    async def ask(self, kind: Kind, question: str, always: str) -> Ruling:
        """Return the person's answer to the full request; `always` describes the calls that "always" would cover."""
        return await self._approvals.ask(Ask.of(self._request, kind, question, always))

    @property
    def session_name(self) -> str:
        return session_name(self._request)

    def shown(self, place: ResolvedPath) -> str:
        """Return the path for the trace: relative to the workspace if it is inside."""
        root = os.path.realpath(self.cwd)
        if is_below(place.path, root):
            return self.neutral(place.path[len(root) :].lstrip("/") or ".")
        return self.neutral(place.path)

    def neutral(self, text: str) -> str:
        """Return a text without parts that differ between runs and machines: the workspace's path, ids of runs and
        tasks, the times of tasks."""
        for root in {self.cwd, os.path.realpath(self.cwd)} - {"/"}:
            text = re.sub(rf"(?<![\w./-]){re.escape(root)}(?:/|(?![\w./-]))", _relative, text)
        text = _TASK.sub("{task}", _RUN.sub(r"\1{run}", text))
        return _TASK_TIMES.sub(r"\1{time}", _TASK_TIMES.sub(r"\1{time}", text)) if "{task}" in text else text


def _relative(match: re.Match[str]) -> str:
    return "" if match[0].endswith("/") else "."


def audit_record(request: SessionRequest, tool: str, arguments: Mapping[str, object]) -> dict[str, object]:
    """Return a call for the audit log: its arguments, which may contain secrets, only as a digest."""
    text = json.dumps(dict(arguments), ensure_ascii=False, default=str, sort_keys=True).encode("utf-8", "replace")
    agent = f"{request.at}#{request.attempt}"
    return {"tool": tool, "agent": agent, "args_sha256": hashlib.sha256(text).hexdigest(), "args_bytes": len(text)}


def _own_files(request: SessionRequest) -> Iterator[str]:
    """Yield the files that a session writes itself: binding, memory, segment."""
    if request.target is not None and request.target.location:
        yield request.target.location
    if request.memory is not None and request.memory.directory:
        yield memory_file(request.memory)
        yield segment_file(request.memory)
