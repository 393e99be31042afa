"""Records the tool calls that a CLI agent reports: a trace, and the edits among them as file writes.

An agent decides which calls it reports, and other effects are not included: `effects: partial`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct, field

from prose_kernel.access.safe_files import ResolvedPath, resolve
from prose_kernel.language.structs import replace
from prose_kernel.language.text import clipped, one_line, printable
from prose_kernel.models.providers.acp_policy import AgentToolCall, address_of, command_of, paths_of
from prose_kernel.models.tools import files
from prose_kernel.models.tools.permission_check import Access
from prose_kernel.models.tools.tool import ToolFailed, ToolRefused
from prose_kernel.runtime.ports import FileRead, FileWrite, ToolUse

_DETAIL: Final = 600
_NAMES: Final[Mapping[str, str]] = {"execute": "bash", "switch_mode": "mode", "other": "tool"}
_OUTPUTS: Final = ("output", "stdout", "content", "text", "error", "stderr")


class Reported(Struct):
    """One tool call, updated with each report of the agent about it."""

    call: AgentToolCall
    status: str = "pending"
    edits: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    output: str = ""
    asked: bool = False
    refused: str | None = None
    violated: str | None = None
    by_client: bool = False
    began: float = field(default_factory=time.monotonic)

    @property
    def done(self) -> bool:
        return self.status in ("completed", "failed")


class Calls:
    """The tool calls of one session, in the order of their first reports."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._reported: dict[str, Reported] = {}
        self._before: dict[str, tuple[ResolvedPath, str | None]] = {}
        self._number = 0

    def get_or_add(self, id: str, *, starts: bool = False) -> Reported:
        """Return the call with this id, known or new. With `starts`, the agent starts a call, so a known call that has
        ended is replaced (ids are not always unique)."""
        if starts and id in self._reported and self._reported[id].done:
            self._number += 1
            self._reported[f"{id}\0{self._number}"] = self._reported.pop(id)
        return self._reported.setdefault(id, Reported(AgentToolCall(None, "", None)))

    def add_own(self, call: AgentToolCall, *, refused: str | None = None, failed: str | None = None) -> ToolUse:
        """Record an action that the agent requested from the client: on a file, in a terminal."""
        self._number += 1
        status = "completed" if refused is None and failed is None else "failed"
        reported = Reported(call, status, output=failed or "", refused=refused, by_client=True)
        self._reported[f"\0{self._number}"] = reported
        return self.use(reported)

    def done_by_client(self, reported: Reported) -> bool:
        """Return whether the client did everything that the call touched, so that it was checked."""
        by_client = {path for each in self._reported.values() if each.by_client for path in self._resolved(each.call)}
        touched = self._resolved(reported.call)
        return bool(touched) and by_client.issuperset(touched)

    def use(self, reported: Reported) -> ToolUse:
        """Return a call as the trace shows it."""
        call = reported.call
        if reported.refused is not None:
            return ToolUse(_name(call), self._summary(call), "refused", self._detail(reported.refused))
        if reported.violated is not None:
            return ToolUse(_name(call), self._summary(call), "ok", f"done without asking: {reported.violated}")
        outcome: Literal["failed", "ok"] = "failed" if reported.status == "failed" else "ok"
        return ToolUse(_name(call), self._summary(call), outcome, self._detail(reported.output))

    @property
    def trace(self) -> tuple[ToolUse, ...]:
        """Return all calls. An action that the client did for the agent and that the agent also reports appears
        once."""
        paths = {path for each in self._reported.values() if not each.by_client for path in self._resolved(each.call)}
        return tuple(
            self.use(each)
            for each in self._reported.values()
            if not (each.by_client and each.refused is None and set(self._resolved(each.call)) & paths)
        )

    def _summary(self, call: AgentToolCall) -> str:
        named = command_of(call) if call.kind == "execute" else address_of(call) if call.kind == "fetch" else ""
        if call.kind in ("read", "edit", "delete", "move") and not named:
            places = ((path, self._place(path)) for path in paths_of(call))
            named = ", ".join(dict.fromkeys(self._access.shown(place) if place else path for path, place in places))
        return one_line(self._access.neutral(named or call.title or call.kind or "tool"), 160)

    def _detail(self, output: str) -> str:
        return clipped(printable(self._access.neutral(output)).strip(), _DETAIL, tidy=True)

    def _place(self, path: str) -> ResolvedPath | None:
        try:
            return resolve(path, self._access.cwd, self._access.home)
        except (ToolRefused, ToolFailed):
            return None

    def _resolved(self, call: AgentToolCall) -> list[str]:
        return [place.path for path in paths_of(call) if (place := self._place(path)) is not None]

    # ------------------------------------------------------------ files

    def save_contents(self, reported: Reported) -> None:
        """Remember the former contents of the files of a change. Reads files: call it in a thread."""
        if reported.call.kind not in ("edit", "delete", "move"):
            return
        for path in paths_of(reported.call):
            place = self._place(path)
            if place is not None and place.path not in self._before:
                self._before[place.path] = place, _without(self._text(place), reported.edits.get(path))

    def wrote(self, place: ResolvedPath, before: str | None) -> None:
        """Record that the client wrote a file for the agent."""
        self._before.setdefault(place.path, (place, before))

    def writes(self) -> tuple[FileWrite, ...]:
        """Return the files that have changed, except the session's own. Reads files: call it in a thread."""
        found = []
        for place, before in self._before.values():
            after = self._text(place)
            if after != before and not self._access.granted("write", place):
                found.append(FileWrite(self._access.shown(place), before, after))
        return tuple(found)

    def reads(self) -> tuple[FileRead, ...]:
        """Return the files that the agent reported as read. Reads files: call it in a thread."""
        for reported in self._reported.values():
            if reported.call.kind == "read" and reported.status == "completed":
                for path in paths_of(reported.call):
                    place = self._place(path)
                    if place is not None and place.path not in self._before:
                        self._access.saw(place)
        return self._access.reads

    def _text(self, place: ResolvedPath) -> str | None:
        try:
            return files.read_text(place)
        except (ToolRefused, ToolFailed):
            return None


def _name(call: AgentToolCall) -> str:
    kind = call.kind or "other"
    return _NAMES.get(kind, kind)


def _without(now: str | None, edit: tuple[str | None, str] | None) -> str | None:
    """Return the text before an edit that may have been done already: the edit is undone if the text shows it."""
    if now is None or edit is None:
        return now
    old, new = edit
    if old is None:
        return None if now == new else now
    if new and old not in now and now.count(new) == 1:
        return now.replace(new, old)
    return now


def updated(
    call: AgentToolCall, kind: str | None, title: str | None, raw: object, paths: tuple[str, ...]
) -> AgentToolCall:
    """Return a call with the values of an update; values that the update omits stay."""
    return replace(
        call,
        kind=kind or call.kind,
        title=title or call.title,
        raw=raw if raw is not None and raw != {} else call.raw,
        paths=tuple(dict.fromkeys((*call.paths, *paths))),
    )


def output_of(raw: object) -> str:
    """Return the text in a tool's raw output, whatever its shape."""
    if isinstance(raw, str):
        return raw
    if isinstance(raw, list):
        return "\n".join(text for each in raw if (text := output_of(each)))
    if isinstance(raw, Mapping):
        for name in _OUTPUTS:
            if (value := raw.get(name)) and (text := output_of(value)):
                return text
    return ""
