"""The open cassettes of a run: look up records, add records, collect warnings."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prose_kernel._version import __version__
from prose_kernel.cassettes import cassette_files as files
from prose_kernel.cassettes import differences, records, tidying
from prose_kernel.cassettes.cassette_files import PATIENCE, Busy, CassetteFile, Entry, Writer
from prose_kernel.cassettes.keys import Identity, ToolNames, key_of
from prose_kernel.cassettes.matching import How, Index, Take, scope
from prose_kernel.cassettes.records import Meta
from prose_kernel.cassettes.redaction import Redaction, sound
from prose_kernel.runtime import asides
from prose_kernel.runtime.ports import Clock
from prose_kernel.runtime.secret_patterns import mapped
from prose_kernel.runtime.session_options import CassetteOptions, Rule, Surroundings

PLACES = ("«ws»", "«home»")
_BRANCH = re.compile(r"[bi]\d+(?:~\d+)?")
_NUMBER = re.compile(r"\d+")


class CassetteStore:
    """All cassettes that a run may replay, and the one that it writes; opened at the first session or judgement."""

    def __init__(
        self,
        options: CassetteOptions,
        where: Surroundings,
        clock: Clock,
        tool_names: ToolNames,
        permissions: Mapping[str, Rule],
        warn: Callable[[str], object],
    ) -> None:
        self.options = options
        self.where = where
        self.clock = clock
        self._warn = warn
        self._workspace = Path(where.cwd)
        self.redaction = Redaction(where.environment, options.redact, _places(where))
        self.identity = Identity(self.redaction, where, tool_names, permissions)
        self.own = files.own_path(options, where)
        self._writer = Writer(self.own, private=options.private)
        self._turn = asyncio.Lock()
        self._pending: deque[tuple[Entry, bytes]] = deque()
        self._files: dict[Path, CassetteFile] = {}
        self._index = Index(options.repeats)
        self._told: set[str] = set()
        self._touched: set[str] = set()
        self._asked_in: set[str] = set()
        self._nearest: differences.Nearest | None = None
        self._replaced = 0
        self._done = 0
        self.on_use: Callable[[str, Meta], None] | None = None
        self.load()

    @property
    def own_name(self) -> str:
        return files.shown_name(self.own, self._workspace)

    # ------------------------------------------------------------ reading

    def load(self) -> bool:
        """Read what is new on disk; whether there was anything."""
        paths = [self.own] if self.options.alone else files.all_paths(self.own, self._workspace)
        signatures = {path: files.signature_of(path) for path in paths}
        known = {path: found.signature for path, found in self._files.items()}
        if {path: s for path, s in signatures.items() if s is not None} == known:
            return False
        used = {(e.file, e.raw) for e in self.entries() if e.used}
        kept = self._files
        self._files = {}
        for path, signature in signatures.items():
            if signature is None:
                continue
            found = kept[path] if path in kept and kept[path].signature == signature else self._read(path)
            if found is not None:
                self._files[path] = found
        if self._pending:  # not on disk yet
            own = self._files.setdefault(self.own, CassetteFile(self.own, self.own_name))
            own.entries.extend(entry for entry, _ in self._pending)
        for entry in self.entries():
            entry.used = (entry.file, entry.raw) in used
        self._index = self._index.renewed(found.entries for found in self._files.values())
        self._nearest = None
        return True

    def _read(self, path: Path) -> CassetteFile | None:
        name = files.shown_name(path, self._workspace)
        try:
            found = files.read_file(path, name)
        except OSError as problem:
            self.warn(f"{name} cannot be read: {problem.strerror or 'no such file'}")
            return None
        for warning in found.warnings:
            self.warn(warning)
        self.redaction.learn(found.places)
        return found

    @property
    def cassettes(self) -> Iterable[CassetteFile]:
        return self._files.values()

    def warn(self, warning: str) -> None:
        """Tell the person, once."""
        if warning not in self._told:
            self._told.add(warning)
            self._warn(warning)

    def entries(self) -> Iterable[Entry]:
        for found in self._files.values():
            yield from found.entries

    def lookup(self, key: str, at: str, attempt: int = 1, *, failed: bool = True) -> tuple[Take, How, Entry] | None:
        """The record that answers an attempt at this path, not used up yet; without `failed` none that ended in a
        failure."""
        found = self._sound(key, at, attempt)
        if found is None and self.load():
            found = self._sound(key, at, attempt)
        return found if found is None or failed or found[0].last.record.t != "error" else None

    def _sound(self, key: str, at: str, attempt: int) -> tuple[Take, How, Entry] | None:
        """The same; a record that is damaged, or does not belong to its key, is named and left out."""
        while (found := self._found(key, at, attempt)) is not None:
            entry = found[2]
            if (damage := records.damage(entry.record)) is None:
                return found
            self.warn(f"{entry.file}, line {entry.line} is left out: {damage}")
            self._index.drop(found[0], entry)
            self._nearest = None
        return None

    def _found(self, key: str, at: str, attempt: int) -> tuple[Take, How, Entry] | None:
        found = self._index.find(key, at, asides.cell.get())
        if found is None or (entry := found[0].entry(attempt)) is None:
            return None
        return *found, entry

    def use(self, take: Take, how: How, at: str, entry: Entry) -> None:
        self._index.use(take, how, at, asides.cell.get())
        self._count(at, entry)

    def _count(self, at: str, entry: Entry) -> None:
        entry.used = True
        self._touched.add(entry.file)
        if self.on_use is not None:
            self.on_use(at, records.part(entry.record.meta, Meta))

    def note_used(self, lines: frozenset[tuple[str, bytes]]) -> None:
        for found in self.cassettes:
            for entry in found.entries:
                if (str(found.path), entry.raw) in lines:
                    entry.used = True
                    self._touched.add(entry.file)

    def again(self, at: str, key: str, recorded_at: str, attempt: int) -> None:
        """Count a record as used by the request at this path, as an earlier process of the run did."""
        take = self._index.take(key, recorded_at)
        entry = take.entry(attempt) if take is not None else None
        if take is not None and entry is not None:
            self._index.use(take, "path" if recorded_at == at else "key", at)
            self._count(at, entry)
        self.took_part(at)

    def unused(self) -> Iterable[Entry]:
        """Records that would decide something and have not, in the cassettes that this run has used."""
        for entry in self.entries():
            counts = entry.record.t in records.DECIDES and not entry.replaced
            if counts and not entry.used and entry.file in self._touched:
                yield entry

    def miss(self, what: str, req: Mapping[str, Any], keys: Sequence[str], at: str, program: str) -> tuple[str, str]:
        """Why nothing is found under any of these keys, and how to record it."""
        find, cell = self._index.find, asides.cell.get()
        used_up = sum(self._index.count(key, scope(at)) for key in keys if find(key, at, cell) is None)
        if self._nearest is None:
            counting = [entry for entry in self.entries() if not entry.replaced]
            self._nearest = differences.Nearest(counting, self.own_name)
        message = differences.message(what, self._nearest, req, at, used_up=used_up)
        return message, differences.command(program)

    # ------------------------------------------------------------ races

    def took_part(self, at: str) -> None:
        """A session or a judgement has been asked for at this path: what it was part of is worth recording."""
        parts = at.split("/")
        for number, part in enumerate(parts):
            if _BRANCH.fullmatch(part):
                starred = _NUMBER.sub("*", part, count=1)
                self._asked_in.add("/".join((*parts[:number], starred)))

    def asked_in(self, race: str) -> bool:
        return race in self._asked_in

    # ------------------------------------------------------------ writing

    def place(self, key: str, at: str) -> str:
        """The path under which the answer to a request at this path is recorded (`Index.place`)."""
        return self._index.place(key, at, asides.cell.get())

    def meta(self, **told: Any) -> Meta:
        """The facts about a record that is written now."""
        self._done += 1
        return Meta(done=self._done, recorded=f"{self.clock.now():%Y-%m-%d}", prose=__version__, **told)

    async def add(
        self, kind: str, at: str, req: Mapping[str, Any] | None, out: Any, meta: Meta, tried: int = 1
    ) -> None:
        """Write a record. A failure causes a warning, and loses only that record."""
        self._queue(kind, at, req, out, meta, tried)
        async with self._turn:
            while self._pending and not self._flush(0):
                if not await asyncio.to_thread(self._wait):
                    self._give_up()

    def add_at_once(
        self, kind: str, at: str, req: Mapping[str, Any] | None, out: Any, meta: Meta, tried: int = 1
    ) -> None:
        """The same for those who cannot wait: while another kernel writes, it stays with what is written next."""
        self._queue(kind, at, req, out, meta, tried)
        self._flush(0)

    def _queue(self, kind: str, at: str, req: Mapping[str, Any] | None, out: Any, meta: Meta, tried: int) -> None:
        plain = mapped(out, sound)
        body = mapped(plain, self.redaction.text)
        if body != plain:
            self.warn(f"{kind} {at}: the record has a placeholder in the place of a secret; a replay gives that text")
        data: dict[str, Any] = {
            "t": kind,
            "v": records.VERSION,
            "at": at,
            "out": body,
            "meta": self._told_of(meta, out),
        }
        if req is not None:
            key = key_of(req)
            data |= {"key": key, "req": req, "try": tried, "at": self.place(key, at)}
            if cell := asides.cell.get():
                data["cell"] = cell
        line = records.encoded(data)
        self._pending.append((self._enter(line, at), line))

    def _told_of(self, meta: Meta, out: Any) -> dict[str, Any]:
        places = self.redaction.places_in(_texts(out), PLACES)
        told: dict[str, Any] = self.redaction.data(records.builtins(meta))
        named = {word.strip("«»"): place for word, place in places.items()}
        return told | named

    def _enter(self, line: bytes, at: str) -> Entry:
        """What is recorded answers from now on, in this run too."""
        entry = Entry(self.own_name, 0, records.read(line[:-1]), line[:-1])
        if entry.record.t not in records.ANSWERS:
            return entry
        for former in self._index.record(entry, at):
            former.replaced = True
            self._replaced += 1
        found = self._files.setdefault(self.own, CassetteFile(self.own, self.own_name))
        found.entries.append(entry)
        self._nearest = None
        self._touched.add(self.own_name)
        return entry

    def _flush(self, patience: float) -> bool:
        """Write what is pending; False while another process is writing."""
        batch = list(self._pending)
        if not batch or not self.options.writes:
            self._pending.clear()
            return True
        unchanged = self._known_signature() == files.signature_of(self.own)
        try:
            first = self._writer.append(b"".join(line for _, line in batch), patience=patience)
        except Busy:
            return False
        except OSError as problem:
            self._give_up(problem.strerror or "it cannot be written")
            return True
        for number, (entry, _) in enumerate(batch, first):
            entry.line = number
            self._pending.popleft()
        if unchanged and self.own in self._files:
            self._files[self.own].signature = files.signature_of(self.own)
        return True

    def _known_signature(self) -> files.Signature | None:
        found = self._files.get(self.own)
        return found.signature if found is not None else None

    def _wait(self) -> bool:
        return self._flush(PATIENCE)

    def _give_up(self, why: str = "another process keeps writing to it") -> None:
        count = len(self._pending)
        self._pending.clear()  # they answer in this run all the same
        what = "a record" if count == 1 else f"{count} records"
        self.warn(f"{self.own_name}: {what} could not be written: {why}")

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Write what is pending, and take out what was replaced."""
        if self._pending and not self._flush(PATIENCE):
            self._give_up()
        if not self._replaced or not self.options.writes:
            return
        self._replaced = 0
        try:
            self._writer.rewrite(lambda data: tidying.without(data, lambda entry: entry.replaced)[0])
        except OSError as problem:
            self.warn(
                f"{self.own_name} could not be tidied: {problem.strerror or 'another process keeps writing to it'}"
            )


def _places(where: Surroundings) -> dict[str, str]:
    """The directories that differ from machine to machine and from run to run, with the words that replace them."""
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


def _texts(data: Any) -> Iterable[str]:
    match data:
        case str():
            yield data
        case Mapping():
            for value in data.values():
                yield from _texts(value)
        case list() | tuple():
            for value in data:
                yield from _texts(value)
