"""Reads the file of a journal, `journal.jsonl` in the run's directory (docs/how-to/durability.md).

Each line is a record: a checksum, a space, the record as JSON. The checksum of a line covers all lines before it, which
reveals changed and missing lines. A process that is killed may leave a last line without a line end;
`journal_file.py`, which writes the file, cuts it off.

A damaged line affects no other line (amendments A19 and A36). A foreign line is skipped, and nothing is lost. If a
record was changed, all other records remain valid; `JournalRead.lost` has the number of its line.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, cast

import msgspec
from msgspec import Struct, field

from prose_kernel.access import plain_files
from prose_kernel.errors import UsageError, reason_of
from prose_kernel.runtime.journal_codec import loads
from prose_kernel.runtime.journal_records import (
    NOTHING,
    VERSION,
    Answered,
    Asked,
    Completed,
    Ended,
    Finished,
    Head,
    Record,
    Repeated,
    Rewound,
    Step,
    StepEnded,
    Text,
)

NAME: Final = "journal.jsonl"
_PREFIX: Final = 9
"""Bytes of a line before its record: eight digits of the checksum and a space."""

_END_BYTES: Final = 1 << 16
"""Bytes that a list of runs reads at each end of a journal."""
_ANSWER: Final = b'{"k":"answered"'
_COMPLETED: Final = b'{"k":"completed"'
_REPEATED: Final = b'{"k":"repeated"'
_STEP_RECORD: Final = b'{"k":"step'
_BEGIN: Final = re.compile(rb"[0-9a-f]{8} \{")
_MOST_OFFSETS: Final = 100
"""How many offsets of a strange line are checked for a record."""

_RECORDS: Final[msgspec.json.Decoder[Record]] = msgspec.json.Decoder(Record)
_MOST_CLAIMS: Final = 8
_LONGEST_READ: Final = 1 << 24
_PIECE: Final = 1 << 20
_SUMMARY_KINDS: Final = tuple(f'{{"k":"{kind}"'.encode() for kind in ("text", "ended", "finished", "rewound"))


class TextRead(Struct):
    """A file or cell of the run: its record, the record's number, and the record of its end (None: not ended)."""

    record: Text
    number: int
    ended: Ended | None = None
    end: int = 0
    """The number after its last record's."""


class JournalRead(Struct):
    """The summary of a journal. `lines` and `size` cover all complete lines; `torn` is the number of bytes after them.
    `checksum` is the last line's; `file` is the device and inode."""

    path: Path
    head: Head
    texts: list[TextRead] = field(default_factory=list)
    finished: Finished | None = None
    lines: int = 0
    size: int = 0
    torn: int = 0
    checksum: int = 0
    file: tuple[int, int] = (0, 0)
    strange: dict[int, int] = field(default_factory=dict)
    """The numbers of changed and added lines, each with the offset of the record in the line, 0 if it has none."""
    lost: list[int] = field(default_factory=list)
    """The lines in `strange` whose record is lost."""
    _ranges: list[tuple[int, int]] = field(default_factory=list)
    """The ranges of valid lines (begin, end)."""

    def rewound(self, to: int, lines: int) -> None:
        """Drop the records from line `to` on. `lines` is the number of lines so far; later lines stay valid."""
        self.lines = lines
        self._ranges = [(begin, min(end, to)) for begin, end in self._valid_ranges() if begin < to]
        self._ranges.append((self.lines, self.lines))
        self.texts = [text for text in self.texts if text.number < to]
        for text in self.texts:
            if text.end > to:
                text.ended, text.end = None, 0
        self.finished = None

    def records(
        self, begin: int = 0, end: int | None = None, holding: Sequence[bytes] = ()
    ) -> Iterator[tuple[int, Record]]:
        """Yield the valid records from line `begin` up to `end`, with their line numbers. With `holding`, yield only
        records whose JSON contains one of these texts; the others are not decoded."""
        if holding and not self._holds(holding):
            return
        decode = _RECORDS.decode
        for number, line in self._bodies(begin, end):
            if holding and not any(text in line for text in holding):
                continue
            try:
                record = decode(line)
            except (msgspec.DecodeError, RecursionError):
                record = _record(self.path, line, number)
            yield number, record

    def _holds(self, texts: Sequence[bytes]) -> bool:
        """Return whether the file contains one of these texts, which is much faster than a check of each line."""
        overlap, before = max(map(len, texts)), b""
        with plain_files.reading(self.path, None) as file:
            while part := file.read(_PIECE):
                data = before + part
                if any(text in data for text in texts):
                    return True
                before = data[-overlap:]
        return False

    def first_lost(self, before: int | None = None) -> int | None:
        """Return the first valid line (before line `before`) whose record is lost, or None."""
        parts, end = self._valid_ranges(), self.lines if before is None else before
        return next((at for at in self.lost if at < end and any(begin <= at < stop for begin, stop in parts)), None)

    def require_whole(self, before: int | None = None) -> None:
        """Raise `UsageError` if a valid record before line `before` is lost."""
        lost = self.first_lost(before)
        if lost is not None:
            raise self.damaged(lost)

    def damaged(self, number: int) -> UsageError:
        """Return the error for a record that the run cannot have written, by its line number."""
        run = self.path.parent.name
        return UsageError(
            f"line {number + 1} of the journal of run {run} is damaged, or was changed",
            hint=f"prose runs repair {run} lets the run continue before it",
        )

    def answers(self, before: int | None = None, again: Collection[str] = (), completed: Collection[str] = ()) -> int:
        """Count the known answers, with `before` only before the record with that number. `again` are the keys of
        requests that are made again, `completed` the keys of further requests with a known result."""
        return _count_answers(self.path, self._bodies(0, before), again, completed)

    def waiting(self) -> dict[str, Completed]:
        """Return the results of requests whose branches waited for their turn when the run ended, by the requests'
        keys."""
        return {asked.key: last for asked, last in self.unanswered() if isinstance(last, Completed)}

    def under_way(self, before: int | None = None) -> list[Asked]:
        """Return the requests that were running when the run ended, with `before` at the record with that number."""
        return [one for one, last in self.unanswered(before) if not (isinstance(last, Completed) or _is_due(last))]

    def due(self) -> list[Asked]:
        """Return the failed requests that the last resumed run was to make again, and had not made when it ended."""
        return [one for one, last in self.unanswered() if _is_due(last)]

    def unanswered(self, before: int | None = None) -> Iterable[tuple[Asked, Completed | Repeated | None]]:
        """Return the requests whose answers the program had not received, with their last records after `Asked`. With
        `before`, return the requests at the record with that number."""
        found: dict[str, tuple[Asked, Completed | Repeated | None]] = {}
        for _, record in self.records(self.texts[-1].number if self.texts and before is None else 0, before):
            match record:
                case Asked(key=key) if record.kind != "wait":
                    found[key] = record, None
                case Repeated(key=key) | Completed(key=key) if key in found:
                    found[key] = found[key][0], record
                case Answered(key=key):
                    found.pop(key, None)
                case Ended():
                    found.clear()
        return found.values()

    def steps_under_way(self) -> dict[str, list[Step | StepEnded]]:
        """Return the step records of the requests that have no answer, by the requests' keys."""
        found: dict[str, list[Step | StepEnded]] = {asked.key: [] for asked in self.under_way()}
        for number, body in self._bodies(self.texts[-1].number) if found else ():
            if body.startswith(_STEP_RECORD):
                record = cast("Step | StepEnded", _record(self.path, body, number))
                if record.key in found:
                    found[record.key].append(record)
        return {key: steps for key, steps in found.items() if steps}

    def _bodies(self, begin: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes]]:
        stop, strange = self.lines if end is None else min(end, self.lines), self.strange
        parts = [(max(first, begin), min(last, stop)) for first, last in self._valid_ranges()]
        with plain_files.reading(self.path, None) as file:
            lines, following = _lines(file), 0
            for first, last in parts:
                if first >= last:
                    continue
                for number, line in enumerate(islice(lines, first - following, last - following), first):
                    at = strange.get(number, _PREFIX) if strange else _PREFIX
                    if at:
                        yield number, line[at:]
                following = last

    def _valid_ranges(self) -> list[tuple[int, int]]:
        return [*self._ranges[:-1], (self._ranges[-1][0], self.lines)]


class JournalFacts(Struct):
    """The facts about a journal for a list of runs. `texts` and `answers` are counted only in a small journal."""

    head: Head
    ended: Ended | None = None
    """The end of its last text; None if there is no text, or it hasn't ended."""
    finished: Finished | None = None
    texts: int | None = None
    answers: int | None = None


def read_facts(path: Path) -> JournalFacts | None:
    """Read the beginning and the end of a journal of any size; return None if the facts need the whole file."""
    try:
        with plain_files.reading(path, None) as file:
            first, status = file.read(_END_BYTES), os.fstat(file.fileno())
            whole = status.st_size <= len(first)
            if not whole:
                file.seek(status.st_size - _END_BYTES)
                last = file.read(_END_BYTES)
    except OSError:
        return None
    head, newline, rest = first.partition(b"\n")
    if status.st_uid != os.getuid() or not newline or head[:_PREFIX] != b"%08x " % zlib.crc32(head[_PREFIX:]):
        return None
    lines = (rest if whole else last).split(b"\n")[:-1]  # without a last line that was being written
    checksum = int(head[:8], 16) if whole else None
    try:
        found = JournalFacts(_head(path.parent.name, head[_PREFIX:]))
        return found if _read_last_lines(path, found, lines if whole else lines[1:], checksum) else None
    except (UsageError, msgspec.MsgspecError, ValueError):
        return None


def _is_due(last: Completed | Repeated | None) -> bool:
    return isinstance(last, Repeated) and last.due


def _count_answers(
    path: Path, bodies: Iterable[tuple[int, bytes]], again: Collection[str] = (), completed: Collection[str] = ()
) -> int:
    """Count the answers in these numbered records: received by the program, or waiting for that."""
    found, waiting = 0, set[str]()
    for number, body in bodies:
        if body.startswith(_COMPLETED):
            waiting.add(cast("Completed", _record(path, body, number)).key)
        elif body.startswith(_ANSWER):
            found += 1
            if waiting:
                waiting.discard(cast("Answered", _record(path, body, number)).key)
        elif waiting and body.startswith(_REPEATED):
            waiting.discard(cast("Repeated", _record(path, body, number)).key)
    return found + len(waiting.union(completed).difference(again))


def _read_last_lines(path: Path, found: JournalFacts, lines: list[bytes], checksum: int | None) -> bool:
    """Read the last lines of a journal, or all but the first, into `found`; return False if a line was changed."""
    texts = 0
    whole = checksum is not None
    for line in lines:
        body = line[_PREFIX:]
        written = int(line[:8], 16)
        if checksum is not None and written != zlib.crc32(body, checksum):
            return False
        if body.startswith(_SUMMARY_KINDS):
            match _decoded(body):
                case Text():
                    texts, found.ended, found.finished = texts + 1, None, None
                case Ended() as ended:
                    found.ended = ended
                case Finished() as finished:
                    found.finished = finished
                case _:
                    return False
        checksum = written
    if whole:
        found.texts = texts
        found.answers = _count_answers(path, ((n, line[_PREFIX:]) for n, line in enumerate(lines, 1)))
    return True


def read(path: Path) -> JournalRead:
    """Read the summary of a journal. Raises `UsageError`, with the reason, if the journal cannot be used."""
    try:
        with plain_files.reading(path, None) as file:
            return _read(path, _lines(file), os.fstat(file.fileno()))
    except FileNotFoundError:
        raise UsageError(f"run {path.parent.name} has no journal", hint="it was not kept on disk") from None
    except OSError as error:
        raise UsageError(f"the journal of run {path.parent.name} cannot be read: {reason_of(error)}") from None


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a journal. A line that is longer than any record is the last one, and has no line end."""
    while line := file.readline(_LONGEST_READ):
        if line.endswith(b"\n"):
            yield line
            continue
        if len(line) == _LONGEST_READ and _BEGIN.match(line):
            line = b"".join([line, file.readline(plain_files.HUGE)])
        yield line
        if not line.endswith(b"\n"):
            return


def is_answered(path: Path, key: str) -> bool:
    """Return whether the program received an answer to the last request with this key; False if the journal is missing
    or damaged."""
    named, answered = f'"key":{json.dumps(key, ensure_ascii=False)}'.encode("utf-8", "replace"), False
    try:
        if path.name != NAME:
            return False
        with plain_files.reading(path, None) as file:
            for line in _lines(file):
                if named in line and line.endswith(b"\n"):
                    with contextlib.suppress(msgspec.MsgspecError):
                        match _decoded(line[_PREFIX:]):
                            case Asked(key=found) | Repeated(key=found) if found == key:
                                answered = False
                            case Completed(key=found, error=error) if found == key:
                                answered = error == NOTHING
                            case Answered(key=found) as record if found == key:
                                answered = record.error == NOTHING and not record.cancelled
    except OSError:
        return answered
    return answered


def _read(path: Path, lines: Iterator[bytes], status: os.stat_result) -> JournalRead:
    run = path.parent.name
    if status.st_uid != os.getuid():
        raise UsageError(f"the journal of run {run} belongs to another user", hint="only its owner can resume the run")
    checksum, found, line = 0, None, b""
    claims: list[int] = []  # the checksums with which the chain may continue after strange lines
    for number, line in enumerate(lines):
        if not line.endswith(b"\n"):
            break
        body, before = line[_PREFIX:-1], checksum
        checksum = zlib.crc32(body, before)
        if line[:_PREFIX] != b"%08x " % checksum:
            if found is None:
                raise UsageError(f"the first line of the journal of run {run} is damaged, or was changed")
            at = _record_in(line, before)
            if not at and any(line[:_PREFIX] == b"%08x " % zlib.crc32(body, claim) for claim in claims):
                found.lost.append(number - 1)  # this line continues the original content of the line before
                at = _PREFIX
            if at != _PREFIX:
                found.strange[number] = at
            if at:
                checksum, body, claims = int(line[at - _PREFIX : at - 1], 16), line[at:-1], []
            else:
                claims = [*claims[-_MOST_CLAIMS:], checksum, *([int(line[:8], 16)] if _BEGIN.match(line) else [])]
                checksum, body = before, b""
        else:
            claims = []
        if found is None:
            found = JournalRead(path, _head(run, body))
            found._ranges = [(0, 0)]
        elif body.startswith(_SUMMARY_KINDS):
            _add_to_summary(found, _record(path, body, number), number)
        found.lines, found.size, found.checksum = number + 1, found.size + len(line), checksum
    if found is None:
        raise UsageError(
            f"the journal of run {run} is empty",
            hint="the run was killed before anything was asked, or its disk was full",
        )
    found.torn = 0 if line.endswith(b"\n") else max(len(line), status.st_size - found.size)
    found.file = status.st_dev, status.st_ino
    return found


def _record_in(line: bytes, before: int) -> int:
    """Return the offset of a record in a line with a foreign beginning, or 0; its checksum must continue `before`."""
    for found in islice(_BEGIN.finditer(line), _MOST_OFFSETS):
        body = line[found.start() + _PREFIX : -1]
        if int(line[found.start() : found.start() + 8], 16) == zlib.crc32(body, before):
            return found.start() + _PREFIX
    return 0


def _record(path: Path, body: bytes, number: int) -> Record:
    try:
        return _decoded(body)
    except msgspec.MsgspecError:
        raise UsageError(f"line {number + 1} of the journal of run {path.parent.name} is not a record") from None


def is_written(path: Path) -> bool:
    """Return whether a process, possibly this one, runs the run of this journal now."""
    try:
        return plain_files.is_locked(path)
    except OSError:
        return False


def head_of(run: str, data: bytes) -> Head:
    """Return the head in the first bytes of a journal. Raises `UsageError`."""
    return _head(run, data.partition(b"\n")[0][_PREFIX:])


def _head(run: str, body: bytes) -> Head:
    try:
        fields = loads(body, dict)
        version = fields.get("version", VERSION)
        if version != VERSION:
            began = f"prose_kernel {fields['package']}" if fields.get("package") else "the one that began it"
            hint = f"this version of prose_kernel reads version {VERSION}; resume the run with {began}"
            raise UsageError(f"the journal of run {run} has version {version}", hint=hint)
        return loads(body, Head)
    except msgspec.MsgspecError:
        raise UsageError(f"the journal of run {run} does not begin with a head: it is damaged") from None


def _decoded(body: bytes) -> Record:
    try:
        return _RECORDS.decode(body)
    except (msgspec.DecodeError, RecursionError):
        record: Record = loads(body, Record)  # type: ignore[arg-type]  # it is a union
        return record


def _add_to_summary(found: JournalRead, record: Record, number: int) -> None:
    match record:
        case Text():
            found.texts.append(TextRead(record, number))
            found.finished = None
        case Ended() if found.texts:
            found.texts[-1].ended, found.texts[-1].end = record, number + 1
        case Finished():
            found.finished = record
        case Rewound():
            found.rewound(record.to, number + 1)
