"""Writes spans as lines of JSON to a file, for people without a collector.

Each span has a line for its begin and a line for its end; a statement only the latter. Warnings and errors have their
own lines. A run ends with a line of metrics, the sums of its spans' measures. Only the owner can read the file. Several
processes may write to one file, because each line is one write at its end. A file that reaches `LARGEST` bytes is
renamed to `FILE.1`, which replaces the former one, and a new file begins.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from prose_kernel.access import plain_files
from prose_kernel.errors import reason_of
from prose_kernel.runtime.redaction import hidden_of_process, mapped
from prose_kernel.telemetry.spans import Attribute, Note, Span, SpanDestination, measures_of, trace_and_span

LARGEST: Final = 20 * 1024 * 1024
_PATIENCE: Final = 1.0
_BEGINNING: Final = b'{"time"'
WITHOUT_BEGIN: Final = ("statement",)


class LogFile(SpanDestination):
    """The first failed write is reported through `warn`, and nothing more is written."""

    def __init__(self, path: Path, warn: Callable[[str], None], *, largest: int = LARGEST) -> None:
        self._path = path
        self._warn = warn
        self._largest = largest
        self._file: int | None = None
        self._given_up = False
        self._measured: dict[tuple[str, tuple[tuple[str, Attribute], ...]], list[float]] = {}

    def begun(self, span: Span) -> None:
        if span.kind not in WITHOUT_BEGIN:
            self._write(self._line("begin", span, span.begin))

    def noted(self, span: Span, note: Note) -> None:
        line = self._line("note", span, note.at)
        line |= {"name": note.name, "attributes": note.attributes}
        self._write(line)

    def ended(self, span: Span) -> None:
        assert span.end is not None
        line = self._line("end", span, span.end)
        line["seconds"] = round((span.end - span.begin) / 1e9, 6)
        line["status"] = span.status
        if span.error:
            line["error"] = span.error
        if span.message:
            line["message"] = span.message
        self._write(line)
        for measure in measures_of(span):
            self._measured.setdefault((measure.name, tuple(measure.attributes.items())), []).append(measure.value)
        if span.kind == "run":
            metrics = [
                {"name": name, "attributes": dict(attributes), "count": len(values), "sum": round(sum(values), 6)}
                for (name, attributes), values in sorted(self._measured.items(), key=str)
            ]
            self._write(self._line("metrics", span, span.end) | {"metrics": metrics})
            self._measured.clear()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _line(self, event: str, span: Span, at: int) -> dict[str, Any]:
        seconds, rest = divmod(at, 10**9)
        line: dict[str, Any] = {
            "time": f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1000:06}Z",
            "event": event,
            "kind": span.kind,
            "name": span.name,
            "trace_id": span.trace_id,
            "span_id": span.span_id,
        }
        if parent := span.parent.span_id if span.parent is not None else span.remote:
            line["parent_id"] = parent
        if (earlier := trace_and_span(span.link)) is not None:
            line["link"] = {"trace_id": earlier[0], "span_id": earlier[1]}
        if span.attributes:
            line["attributes"] = dict(span.attributes)
        return line

    def _write(self, line: dict[str, Any]) -> None:
        if self._given_up:
            return
        text = json.dumps(mapped(line, hidden_of_process()), ensure_ascii=False)
        data = f"{text}\n".encode("utf-8", "backslashreplace")
        try:
            os.write(self._current(len(data)), data)
        except OSError as problem:
            self._given_up = True
            self.close()
            self._warn(f"the log {self._path.name} cannot be written ({reason_of(problem)}); nothing more is logged")

    def _current(self, size: int) -> int:
        """Return the descriptor of the current file; another process may have started a new one, or removed it."""
        if self._file is not None:
            mine = os.fstat(self._file)
            try:
                there: os.stat_result | None = self._path.lstat()
            except FileNotFoundError:
                there = None
            if there is not None and os.path.samestat(mine, there):
                if mine.st_size + size <= self._largest or not mine.st_size:
                    return self._file
                plain_files.lock(self._file, _PATIENCE)  # until it is closed: another process may rename it now
                if (found := plain_files.stamp_of(self._path)) is not None and found.inode == mine.st_ino:
                    self._path.replace(f"{self._path}.1")
            self.close()
        self._file = self._open()
        return self._file

    def _open(self) -> int:
        file = plain_files.descriptor(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        if os.pread(file, len(_BEGINNING), 0) not in (b"", _BEGINNING):
            os.close(file)
            raise FileExistsError(errno.EEXIST, "it isn't a log")
        return file
