"""Keeps agents' answers in files: `.vvm/runs/{run}` with its bindings and its log (docs/reference/vvm.md 7).

The log, `state.md`, is an index of the answers with one line per call, without prompts and answers. Each answer
rewrites it atomically; a long log is rewritten only once a second, or when it has grown by a sixteenth, so that the
time of a run stays proportional to its calls. At the end of each text the log is complete. The log of an interrupted
run still shows `running`.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from prose_kernel.access import plain_files
from prose_kernel.access.atomic import keep_out_of_git, sync_names, write_whole
from prose_kernel.errors import RunError, StateError, reason_of
from prose_kernel.language.text import clipped
from prose_kernel.runtime import events as ev
from prose_kernel.runtime.clock import timestamp
from prose_kernel.runtime.ports import AnswerFile, Clock
from prose_kernel.runtime.secret_patterns import secret_in
from prose_kernel.storage import run_paths
from prose_kernel.storage.pending_writes import append
from prose_kernel.storage.state_log import one_line

ROOT: Final = run_paths.VVM
LARGEST: Final = 256 * 1024 * 1024
"""The most bytes of a binding."""

_LONGEST_MESSAGE: Final = 160
_SHORT: Final = 32 * 1024
"""The most characters of a log that is rewritten with every line."""
_GROWTH: Final = 16
_BINDING: Final = re.compile(r"b\d{6,}\.md")
_LINE: Final = re.compile(r"(?m)^- \[([0-9TZ:-]+)\] (.*)$")
_WITHHELD: Final = "(withheld: it looks like a secret)"

Status = Literal["running", "completed", "failed"]


class AnswerFiles:
    """The `Answers` port of a run, and the listener that writes its log. Paths in references are relative to `project`.
    No file is created before the first text whose answers are kept here (`start`, `record_source`). `durable`: an
    answer is on the disk before the journal refers to it.
    """

    def __init__(self, project: Path, run_id: str, clock: Clock, program: str = "", *, durable: bool = False) -> None:
        self._durable = durable
        self.run_id = run_id
        self.readable = f"{ROOT}/runs/{run_id}/bindings"
        self.directory = project / ROOT / "runs" / run_id
        self._bindings = str(self.directory / "bindings")
        self._project = project
        self._clock = clock
        self._program = program
        self._started = self._updated = ""
        self._status: Status = "running"
        self._index: list[str] = []
        self._trace: list[str] = []
        self._anonymous = 0
        self._sources = 0
        self._size = self._unwritten = 0  # characters
        self._written_at = 0.0
        self._made = self._run_started = False
        self._problem: str | None = None
        self._known: set[str] = set()
        self._earlier: deque[tuple[str, str]] = deque()

    # ------------------------------------------------------------ the run

    def start(self, program: str) -> None:
        """Make the directory and keep a copy of the program. Never raises: the first call reports the problem."""
        self._make(lambda: write_whole(self.directory / "program.vvm", program))

    def record_source(self, text: str) -> None:
        """Add a cell to the copy of the program; the first cell replaces the copy. Never raises."""
        self._sources += 1
        program, text = self.directory / "program.vvm", f"{text.rstrip()}\n"
        if self._sources == 1:
            self._make(lambda: write_whole(program, text))
        else:
            self._make(lambda: append(program, f"\n{text}".encode("utf-8", "replace")))

    def __call__(self, event: ev.Event) -> None:
        """Log the start and the end of the run."""
        match event:
            case ev.RunStarted():
                self._program = self._program or event.program_file
                self._run_started = True
                self._begin()
            case ev.RunEnded() if self._started:
                self._end(event.error, event.outputs)

    def _make(self, keep: Callable[[], object]) -> None:
        try:
            keep_out_of_git(str(self._project / ROOT))
            (self.directory / "bindings").mkdir(parents=True, exist_ok=True)
            keep()
        except OSError as error:
            self._problem = reason_of(error, "it cannot be written")
        else:
            self._made = True
            self._begin()

    def _begin(self) -> None:
        if self._made and self._run_started and not self._started:
            self._earlier.extend(_earlier_lines(self.directory / "state.md"))
            self._line("Started")
            self._started = self._updated

    def _end(self, error: RunError | None, outputs: int) -> None:
        if error is None:
            self._status = "completed"
            self._line(f"Completed with {outputs} export{'' if outputs == 1 else 's'}")
        else:
            self._status = "failed"
            message = clipped(one_line(error.message), _LONGEST_MESSAGE, tidy=True)
            self._line(f"Failed: {_without_secret(message) or 'no message'}")
        self.flush()

    # ------------------------------------------------------------ bindings

    def target(self, number: int) -> AnswerFile:
        name = f"b{number:06d}"
        self._known.add(f"{name}.md")
        return AnswerFile(name, f"{self.readable}/{name}.md", "")

    def forget_others(self) -> None:
        """Remove the answers of calls that this run has not made so far, after it went back to an earlier point. Never
        raises."""
        with contextlib.suppress(OSError):
            for path in (self.directory / "bindings").iterdir():
                if _BINDING.fullmatch(path.name) and path.name not in self._known:
                    path.unlink()

    def clear(self, target: AnswerFile) -> None:
        self._check()
        try:
            Path(self._path(target)).unlink(missing_ok=True)
        except OSError as error:
            raise self._write_error(target, error) from None

    def read(self, target: AnswerFile) -> str | None:
        try:
            with plain_files.reading_if_there(self._path(target)) as file:
                if file is None:
                    return None
                size = os.fstat(file.fileno()).st_size
                data = file.read(LARGEST + 1)
        except (OSError, ValueError):  # a link, a directory, a pipe: not the agreed file
            return None
        if len(data) > LARGEST:
            raise StateError(
                f"'{target.name}' holds {size:,} bytes; a binding may have {LARGEST:,}",
                hint="have the agent keep large results elsewhere, and name the place in its answer",
            )
        return data.decode("utf-8", "replace")

    def write(self, target: AnswerFile, text: str) -> None:
        self._check()
        path = self._path(target)
        try:
            if self._durable:  # the session may have written it without waiting for the disk
                write_whole(path, text, durable=True)
                sync_names(Path(path))
            elif self.read(target) != text:
                write_whole(path, text)
        except OSError as error:
            raise self._write_error(target, error) from None

    def _path(self, target: AnswerFile) -> str:
        return f"{self._bindings}/{target.name}.md"

    def _check(self) -> None:
        if self._problem is not None:
            raise StateError(f"the run directory '{ROOT}/runs' cannot be written ({self._problem})")

    def _write_error(self, target: AnswerFile, error: OSError) -> StateError:
        message = f"'{target.name}' could not be kept: {reason_of(error)}"
        return StateError(message, details={"binding": target.name})

    # ------------------------------------------------------------ the log

    def answered(self, name: str | None, agent: str, target: AnswerFile, summary: str) -> str:
        name = name or self._next_anonymous()
        self._index.append(f"| {_cell(name)} | {_cell(target.location)} | {_cell(_without_secret(summary))} |\n")
        self._count_new(len(self._index[-1]))
        self._line(f"{name} = @{one_line(agent)} ({target.name})")
        return name

    def failed(self, name: str | None, agent: str, target: AnswerFile, kind: str) -> str:
        name = name or self._next_anonymous()
        self._line(f"{name} = @{one_line(agent)} ({target.name}) failed: {one_line(kind)}")
        return name

    def _next_anonymous(self) -> str:
        self._anonymous += 1
        return f"_anon_{self._anonymous:03d}"

    def _line(self, text: str) -> None:
        self._updated = self._recorded_time(text) or timestamp(self._clock.now(), "seconds")
        self._trace.append(f"- [{self._updated}] {text}\n")
        self._count_new(len(self._trace[-1]))
        second_over = self._clock.monotonic() >= self._written_at + 1
        if self._size <= _SHORT or self._unwritten * _GROWTH >= self._size or second_over:
            self.flush()

    def _recorded_time(self, text: str) -> str | None:
        """Return when this line was written before the run was resumed. The first different line makes the rest of the
        earlier log void."""
        if self._earlier and self._earlier[0][1] == text:
            return self._earlier.popleft()[0]
        self._earlier.clear()
        return None

    def _count_new(self, characters: int) -> None:
        self._size += characters
        self._unwritten += characters

    def trace_text(self) -> str:
        """Return the log's content."""
        try:
            return plain_files.read_text(self.directory / "state.md", errors="replace")
        except OSError:
            return ""

    def flush(self) -> None:
        """Write the pending part of the log. Never raises."""
        if not self._unwritten:
            return
        now = self._updated
        head = (
            f"# VVM Run: {self.run_id}\n\nProgram: {one_line(self._program)}\nStarted: {self._started or now}\n"
            f"Updated: {now}\nStatus: {self._status}\n\n"
            "## Binding Index\n\n| Name | Ref Path | Summary |\n|------|----------|---------|\n"
        )
        try:
            write_whole(self.directory / "state.md", head, *self._index, "\n## Execution Trace\n\n", *self._trace)
        except OSError as error:
            self._problem = reason_of(error, "it cannot be written")
        self._unwritten, self._written_at = 0, self._clock.monotonic()


def _earlier_lines(log: Path) -> list[tuple[str, str]]:
    """Return time and text of each trace line in a log; nothing for a missing or damaged log."""
    try:
        text = plain_files.read_text(log, errors="replace")
    except OSError:
        return []
    return _LINE.findall(text.partition("\n## Execution Trace\n")[2])


def _without_secret(text: str) -> str:
    return _WITHHELD if secret_in(text) else text


def _cell(text: str) -> str:
    """Return a text as a table cell: on one line, with escaped bars."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
