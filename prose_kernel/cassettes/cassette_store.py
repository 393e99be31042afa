"""The open cassettes of a run: looks up records, adds records, collects warnings."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from prose_kernel._version import __version__
from prose_kernel.access import plain_files
from prose_kernel.cassettes import cassette_edits, differences, records
from prose_kernel.cassettes import cassette_files as files
from prose_kernel.cassettes.cassette_files import PATIENCE, CassetteFile, PlacedRecord, Writer
from prose_kernel.cassettes.cassette_index import CassetteIndex, scope
from prose_kernel.cassettes.keys import Identity
from prose_kernel.cassettes.portable_redaction import Redaction, without_surrogates
from prose_kernel.cassettes.recorded_requests import Found, Miss, RecordedRequest, RecordedSession
from prose_kernel.cassettes.records import Facts, Meta
from prose_kernel.errors import reason_of
from prose_kernel.language.text import one_line
from prose_kernel.runtime import open_request
from prose_kernel.runtime.ports import JudgeRequest, SessionRequest, Usage
from prose_kernel.runtime.redaction import mapped
from prose_kernel.runtime.session_options import Surroundings
from prose_kernel.runtime.value_text import quoted

if TYPE_CHECKING:
    from prose_kernel.cassettes.recordings import Cassettes

PLACES = ("«ws»", "«home»")
_JUDGED = {
    "decide": "the condition {}",
    "choose": "the choice {}",
    "extract": "what `{}` is in a text",
    "items": "which items a text holds",
    "phrase": "the words of {}",
}
"""The names of the questions to a judge, in messages."""
_BRANCH = re.compile(r"[bi]\d+(?:~\d+)?")
_NUMBER = re.compile(r"\d+")


class CassetteStore:
    """All cassettes that a run may replay, and the one that it writes; opened at the first session or judgement."""

    def __init__(self, run: Cassettes) -> None:
        options, where = run.options, run.where
        self.options, self.where, self.clock = options, where, run.clock
        self._on_use, self._warn = run.on_use, run.warnings.append
        self._workspace = Path(where.cwd)
        self.redaction = Redaction(where.environment, options.redact, _places(where))
        self.identity = Identity(self.redaction, where, run.tool_names, run.permissions)
        self.own = files.own_path(options, where)
        self.own_name = files.shown_name(self.own, self._workspace)
        self._writer = Writer(self.own, private=options.private)
        self._turn = asyncio.Lock()
        self._writing = threading.Lock()
        self._pending: deque[tuple[PlacedRecord, bytes]] = deque()
        self._files: dict[Path, CassetteFile] = {}
        self._index = CassetteIndex(options.repeats)
        self._warned: set[str] = set()
        self.races_with_requests: set[str] = set()
        """The races in which sessions or judgements were requested."""
        self._nearest: differences.Nearest | None = None
        self._has_old = False
        self._replaced = 0
        self.load()

    # ------------------------------------------------------------ reading

    def load(self) -> bool:
        """Read new data from disk; return whether there was any."""
        paths = [self.own] if self.options.alone else files.all_paths(self.own, self._workspace)
        signatures = {path: found for path in paths if (found := plain_files.stamp_of(path)) is not None}
        if signatures == {path: found.signature for path, found in self._files.items()}:
            return False
        used = {(e.file, e.raw) for e in self.entries() if e.used}
        former, self._files = self._files, {}
        for path, signature in signatures.items():
            known = former.get(path)
            if known is None or known.signature != signature:
                known = self._read(path)
            if known is not None:
                self._files[path] = known
        if self._pending:  # not on disk yet
            own = self._files.setdefault(self.own, CassetteFile(self.own, self.own_name))
            for entry, _ in tuple(self._pending):  # a thread may be writing them
                own.put(entry)
        for entry in self.entries():
            entry.used = (entry.file, entry.raw) in used
        self._rebuild_index()
        return True

    def _rebuild_index(self) -> None:
        """Rebuild the index after the records have changed."""
        self._index = self._index.renewed(self.cassettes)
        self._nearest = None

    def _read(self, path: Path) -> CassetteFile | None:
        name = files.shown_name(path, self._workspace)
        try:
            found = files.read_file(path, name)
        except OSError as problem:
            self.warn(f"{name} cannot be read: {reason_of(problem, 'no such file')}")
            return None
        for warning in found.warnings:
            self.warn(warning)
        if found.is_old and not self._has_old:
            self._has_old = True
            self.warn(f"{name} has records of an earlier format: `prose cassette upgrade` converts all recordings")
        self.redaction.learn(found.places)
        return found

    @property
    def cassettes(self) -> Iterable[CassetteFile]:
        return self._files.values()

    def warn(self, warning: str) -> None:
        """Show a warning to the person, each text once."""
        if warning not in self._warned:
            self._warned.add(warning)
            self._warn(warning)

    def entries(self) -> Iterable[PlacedRecord]:
        return (entry for found in self.cassettes for entry in found.entries)

    def session(self, request: SessionRequest) -> RecordedSession:
        req, title, number = self.identity.session(request), f"session {request.at}", request.attempt + 1
        return RecordedSession(self, req, request.at, title, request.program, number, request=request)

    def judgement(self, kind: str, asked: JudgeRequest, also: Sequence[str] = (), path: str = "") -> RecordedRequest:
        """Return a question to a judge; `also` and `path` as in `Identity.judgement`."""
        req = self.identity.judgement(kind, asked, also, path)
        title = _JUDGED[kind].format(one_line(path) if path else quoted(asked))
        return RecordedRequest(self, req, asked.at, title, asked.program)

    def race(self, text: str, at: str) -> RecordedRequest:
        return RecordedRequest(self, self.identity.race(text), at)

    def lookup(self, key: str, at: str, attempt: int = 1, *, failed: bool = True, again: bool = False) -> Found | None:
        """Return the unused record that answers an attempt at this path; without `failed`, none that ended in a
        failure. With `again`, a record that the cell has replayed answers again, unless a person wants new answers."""
        run = open_request.run.get(None)
        again = again and (run is None or not (run.asks or run.again))
        found = self._undamaged(key, at, attempt, again)
        if found is None and self.load():
            found = self._undamaged(key, at, attempt, again)
        return found if found is None or failed or found.take.last.record.t != "error" else None

    def _undamaged(self, key: str, at: str, attempt: int, again: bool) -> Found | None:
        """Return the record for `lookup`, skipping and reporting damaged records and records that do not match their
        key."""
        while (take := self._index.find(key, at, open_request.cell.get(), again=again)) is not None:
            if (entry := take.entry(attempt)) is None:
                return None
            if (damage := records.damage(entry.record)) is None:
                return Found(take, entry)
            self.warn(f"{entry.place} is left out: {damage}")
            entry.replaced = True
            del take.attempts[entry.record.tried]
            self._rebuild_index()
        return None

    def use(self, found: Found, at: str) -> None:
        self._index.use(found.take, at, open_request.cell.get())
        self._count(at, found.entry)

    def _count(self, at: str, entry: PlacedRecord) -> None:
        entry.used = True
        if self._on_use is not None:
            self._on_use(at, records.part(entry.record.meta, Meta))

    def note_used(self, lines: frozenset[tuple[str, bytes]]) -> None:
        for found in self.cassettes:
            for entry in found.entries:
                entry.used = entry.used or (str(found.path), entry.raw) in lines

    def use_as_before(self, at: str, key: str, recorded_at: str, attempt: int) -> None:
        """Count a record as used by the request at this path, as an earlier process of the run did."""
        take = self._index.exact.get((key, recorded_at))
        entry = take.entry(attempt) if take is not None else None
        if take is not None and entry is not None:
            self._index.use(take, at)
            self._count(at, entry)
        self.note_request(at)

    def unused(self) -> Iterable[PlacedRecord]:
        """Yield the records that a replay needs but this run has not used, in the cassettes that it has used."""
        touched = {entry.file for entry in self.entries() if entry.used}
        for entry in self.entries():
            counts = entry.record.t in records.DECIDES and not entry.replaced
            if counts and not entry.used and entry.file in touched:
                yield entry

    def miss(self, asked: RecordedRequest) -> Miss:
        """Return the explanation that nothing is recorded for a request."""
        key, at = asked.key, asked.at
        used_up = 0 if self._index.find(key, at, open_request.cell.get()) else self._index.count(key, scope(at))
        if self._nearest is None:
            self._nearest = differences.Nearest((e for e in self.entries() if not e.replaced), self.own_name)
        message = differences.message(asked.title, self._nearest, asked.req, at, used_up=used_up)
        return Miss(key, message, differences.command(asked.program))

    def note_request(self, at: str) -> None:
        """Note that a session or a judgement was requested at this path: the races around it must be recorded."""
        parts = at.split("/")
        for number, part in enumerate(parts):
            if _BRANCH.fullmatch(part):
                starred = _NUMBER.sub("*", part, count=1)
                self.races_with_requests.add("/".join((*parts[:number], starred)))

    # ------------------------------------------------------------ writing

    def place(self, key: str, at: str) -> str:
        return self._index.place(key, at, open_request.cell.get())

    def meta(self, begun: float | None = None, usage: Usage | None = None, **details: Any) -> Meta:
        """Return the metadata of a new record, for a request that was made at the clock time `begun`."""
        ms = max(0, round((self.clock.monotonic() - begun) * 1000)) if begun is not None else 0
        day, spent = f"{self.clock.now():%Y-%m-%d}", records.usage_facts(usage)
        return Meta(recorded=day, prose=__version__, usage=spent, ms=ms, **details)

    async def add(
        self, kind: str, asked: RecordedRequest, answer: object, meta: Meta, facts: Facts | None = None
    ) -> None:
        """Record the answer to a request. A failure causes a warning, and loses only that record."""
        self._queue(kind, asked.at, answer, meta, facts, asked)
        async with self._turn:
            while self._pending and not self._flush(0):
                if not await asyncio.to_thread(self._flush, PATIENCE):
                    self._give_up()

    def add_nowait(self, kind: str, at: str, answer: object, meta: Meta, asked: RecordedRequest | None = None) -> None:
        """Record an answer without waiting: while another kernel writes, the record is kept for the next write. A
        record without a request is only for people."""
        self._queue(kind, at, answer, meta, None, asked)
        self._flush(0)

    def _queue(
        self, kind: str, at: str, answer: object, meta: Meta, facts: Facts | None, asked: RecordedRequest | None
    ) -> None:
        texts: list[str] = []

        def noted(text: str) -> str:
            texts.append(text)
            return without_surrogates(text)

        plain = mapped((records.plain_answer(answer), to_builtins(facts)), noted)
        out, known = mapped(plain, self.redaction.text)
        if [out, known] != plain:
            self.warn(f"{kind} {at}: the record has a placeholder in the place of a secret; a replay gives that text")
        places = {word.strip("«»"): place for word, place in self.redaction.places_in(texts, PLACES).items()}
        fields = self.redaction.data(to_builtins(meta)) | places
        data: dict[str, Any] = {"t": kind, "v": records.VERSION, "at": at, "out": out, "meta": fields}
        if known:
            data["facts"] = known
        if asked is not None:
            key, cell = asked.key, open_request.cell.get()
            data |= {"key": key, "req": asked.req, "try": asked.number, "at": self.place(key, at)}
            data |= {"cell": cell} if cell else {}
        line = records.encoded(data)
        self._pending.append((self._index_record(line, at), line))

    def _index_record(self, line: bytes, at: str) -> PlacedRecord:
        """Add a new record to the index, so that this run uses it, too."""
        entry = PlacedRecord(self.own_name, 0, records.read(line[:-1]), line[:-1])
        if entry.record.t in records.ANSWERS:
            own = self._files.setdefault(self.own, CassetteFile(self.own, self.own_name))
            self._replaced += own.put(entry)
            self._index.record(own.takes[entry.record.key, entry.record.at], entry, at)
            self._nearest = None
        return entry

    def _flush(self, patience: float) -> bool:
        """Write pending records; return False while another process, or another thread of this one, is writing."""
        if not self._writing.acquire(timeout=patience):
            return False
        try:
            return self._write_pending(patience)
        finally:
            self._writing.release()

    def _write_pending(self, patience: float) -> bool:
        batch = list(self._pending)
        if not batch or not self.options.writes:
            self._pending.clear()
            return True
        own, before = self._files.get(self.own), plain_files.stamp_of(self.own)
        lines = b"".join(line for _, line in batch)
        try:
            first = self._writer.append(lines, patience=patience)
        except BlockingIOError:
            return False
        except OSError as problem:
            self._give_up(reason_of(problem, "it cannot be written"))
            return True
        for number, (entry, _) in enumerate(batch, first):
            entry.line = number
            self._pending.popleft()
        size, after = before.size + len(lines) if before is not None else 0, plain_files.stamp_of(self.own)
        if own is not None and own.signature == before and after is not None and after.size == size:
            own.signature = after  # otherwise another process has added records
        return True

    def _give_up(self, why: str = "another process keeps writing to it") -> None:
        count = len(self._pending)
        self._pending.clear()  # in this run, they still answer
        lost = "a record" if count == 1 else f"{count} records"
        self.warn(f"{self.own_name}: {lost} could not be written: {why}")

    def close(self) -> None:
        """Write pending records, and remove replaced ones."""
        if self._pending and not self._flush(PATIENCE):
            self._give_up()
        if not self._replaced or not self.options.writes:
            return
        self._replaced = 0
        try:
            self._writer.rewrite(lambda data: cassette_edits.without(data, lambda entry: entry.replaced)[0])
        except OSError as problem:
            self.warn(f"{self.own_name} could not be tidied: {reason_of(problem, 'it cannot be written')}")


def _places(where: Surroundings) -> dict[str, str]:
    """Return the directories that differ between machines and runs, with their placeholders."""
    workspace = Path(where.cwd)
    places: dict[str, str] = {}
    home = where.environment.get("HOME", "")
    if home.startswith("/"):
        places[home.rstrip("/")] = "«home»"
    for path in (workspace, workspace.resolve()):
        places[str(path)] = "«ws»"
    if where.run_directory:
        run = workspace / where.run_directory
        for place in (run, run.resolve()):
            places[str(place)] = "«run»"
            if place.is_relative_to(workspace):
                places[place.relative_to(workspace).as_posix()] = "«run»"
        places[run.name] = "«run»"
    return {place: word for place, word in places.items() if len(place) > 1}
