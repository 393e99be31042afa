"""The audit log of agents' programs: events appended before a program starts and after it ends, never removed (3.9).

The file is private to its owner and contains arguments as given, except secrets; `display` returns them in the form
that may be shown elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from prose_kernel.access import jsonl
from prose_kernel.runtime.clock import timestamp
from prose_kernel.runtime.redaction import hidden_of_process, mapped

_HIDDEN = "***"
_NAMES = r"(?:token|secret|passw(?:or)?d|passphrase|pwd|api[-_]?key|access[-_]?key|private[-_]?key|credentials?|auth)"
_FLAG = re.compile(rf"--?[\w-]{{0,100}}{_NAMES}[\w-]{{0,100}}", re.IGNORECASE)
_PAIR = re.compile(rf"(-{{0,2}}[\w.-]{{0,100}}{_NAMES}[\w.-]{{0,100}}[=:])(.+)", re.IGNORECASE | re.DOTALL)
_URL = re.compile(r"((?<![a-z0-9])[a-z][a-z0-9+.-]{0,30}://)[^/@\s]+@", re.IGNORECASE)
_BEARER = re.compile(r"(authorization:\s*\S{1,100}\s+)\S+", re.IGNORECASE)


class AuditFailure(Exception):
    """An event could not be written, and the log is mandatory."""


class AuditLog:
    """An append-only log of JSON objects, each a line that is written in one call. Callable from any thread.

    Without a path, events are kept in memory. A failed write raises `AuditFailure` if the log is mandatory; otherwise
    `warn` is called, once.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        mandatory: bool = False,
        warn: Callable[[str], object] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._path = Path(path) if path is not None else None
        self._mandatory = mandatory
        self._warn = warn
        self._now = now
        self._kept: list[Mapping[str, object]] = []
        self._lock = threading.Lock()

    def append(self, event: str, **payload: object) -> None:
        """Append an event. Raises `AuditFailure`."""
        entry = {"event": event, "at": timestamp(self._now(), zone="+00:00"), **payload}
        with self._lock:
            if self._path is None:
                self._kept.append(entry)
                return
            try:
                line = json.dumps(mapped(entry, hidden_of_process()), ensure_ascii=False, default=repr)
                jsonl.append(self._path, line.encode("utf-8", "replace") + b"\n", private=True)
            except OSError as problem:
                self._failed(problem)

    def _failed(self, problem: OSError) -> None:
        if self._mandatory:
            raise AuditFailure(f"the audit log cannot be written: {os.strerror(problem.errno or 5).lower()}") from None
        if self._warn is not None:
            self._warn("the audit log of programs cannot be written; what agents run is not recorded")
            self._warn = None

    @property
    def events(self) -> tuple[Mapping[str, object], ...]:
        """All undamaged events of this log, in order."""
        if self._path is None:
            return tuple(self._kept)
        return tuple(event for _, event in jsonl.objects(self._path) if event)


def hidden_values(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of a call without the values of its environment."""
    shown = dict(arguments)
    env = shown.get("env")
    if isinstance(env, Mapping):
        shown["env"] = {str(name): _HIDDEN for name in env}
    return shown


def display(argv: Sequence[str]) -> list[str]:
    """Return arguments in the form for lists and traces, with apparent secrets replaced."""
    shown: list[str] = []
    for item in argv:
        if shown and _FLAG.fullmatch(shown[-1]) and not item.startswith("-"):
            shown.append(_HIDDEN)
            continue
        text = _URL.sub(rf"\1{_HIDDEN}@", hidden_of_process()(_BEARER.sub(rf"\1{_HIDDEN}", item)))
        shown.append(_PAIR.sub(rf"\1{_HIDDEN}", text) if _PAIR.fullmatch(text) else text)
    return shown
