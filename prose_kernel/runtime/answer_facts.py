"""Facts about an answer: whether it is a failure, which files it depends on, and which files it has written
(docs/how-to/edit-and-continue.md).

The digests of the files that a command declares with `reads:` and `writes:` are a note on its answer in the journal;
the digests of files that a session's tools have read are part of its answer. An answer of an earlier run is used again
only if the same files have the same digests now.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Final, TypeVar, cast

from msgspec import MsgspecError, Struct, convert

from prose_kernel.language.structs import replace
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime import open_request
from prose_kernel.runtime.journal_records import NOTHING, Answered, Asked
from prose_kernel.runtime.ports import (
    CommandRequest,
    CommandResult,
    Files,
    Finding,
    KeptFrom,
    Pick,
    SessionResult,
    Verdict,
)
from prose_kernel.runtime.requests import Keys, Request

T = TypeVar("T")

NOTE: Final = "files"
"""The name of the note with a command's `CommandFiles`."""

KEPT_NOTES: Final = (NOTE, "record")
"""The notes that are copied to an answer that is used again; the other notes describe what the answer cost."""

_READ_ONLY: Final = frozenset({"read", "list", "search", "fetch"})
"""Tools of sessions that write nothing."""

_FREE_DECIDERS: Final = ("rules", "authored")
"""Deciders whose judgements cost nothing. Their answers are not marked as kept."""

NOT_COMPARED: Final = (
    "its files are not compared: more than 10,000 files or 1 GiB, or one changed meanwhile or cannot be read"
)

Digests = Mapping[str, str]
"""SHA-256 digests of files by their paths."""

WasLeft = Callable[[str, str, str], bool]
"""Called with a path and the file's digests then and now ("": no such file): has a later answer left it as it is
now?"""

LAST_WRITES: Final = 20
"""For each file, how many texts that wrote it are remembered, with the digests that they left: the latest ones."""

Globs = tuple[tuple[str, ...], tuple[str, ...]]
"""The globs of a command's `reads:` and `writes:`."""


class NotRecorded(LookupError):
    """The digests of the files of a command are not in the journal."""


class CommandFiles(Struct, frozen=True):
    """The digests of a command's files: `reads` before it ran, `writes` after it, both by the `globs` of its request.
    None: not known, because there were too many files, or one changed while it was read."""

    reads: dict[str, str] | None = None
    writes: dict[str, str] | None = None
    globs: Globs = ((), ())


async def with_files(files: Files, request: CommandRequest, directory: str, ask: Callable[[], Awaitable[T]]) -> T:
    """Run a command with `ask`, and note the digests of its files. Paths are relative to `directory`, the run's one.

    The note is written as early as possible, because a result may be recorded while its branch cannot run.
    """
    current, writes = open_request.current(), request.writes or ()
    if current is None:
        return await ask()
    notes, globs = current.notes, (request.reads or (), writes)
    reads = await asyncio.to_thread(files.matching, directory, request.reads or ())

    def look() -> None:
        notes[NOTE] = CommandFiles(reads, files.matching(directory, writes), globs)

    if not writes:
        look()
        return await ask()
    current.when_completed(look)
    answer = await ask()
    await asyncio.to_thread(current.look)
    return answer


class FilesOfAnswer(Struct, frozen=True):
    """The files of an earlier answer: their digests at that time (`then`), and how to find the same files now, by the
    globs of `reads:` and `writes:`, or else by these paths. Paths are relative to `directory`."""

    then: tuple[Digests, ...]
    directory: str
    globs: tuple[tuple[str, ...], ...] = ()

    @property
    def key(self) -> object:
        """Equal for two answers that depend on the same files."""
        return self.globs or tuple(map(tuple, self.then))

    def now(self, files: Files | None) -> tuple[Digests, ...]:
        """Return the digests of these files now. Call it in a thread. Raises `LookupError` if there are too many files,
        or if `files` is None."""
        if files is None:
            raise LookupError
        if not self.globs:
            return tuple(files.digests(self.directory, [*then]) for then in self.then)
        found = [files.matching(self.directory, globs) for globs in self.globs]
        if None in found:
            raise LookupError
        return tuple(one for one in found if one is not None)

    def changed(self, now: tuple[Digests, ...], left: WasLeft) -> str | None:
        """Return a file that differs both from its state when the answer was given and from the state in which a later
        answer has `left` it; None if there is none."""
        for then, is_now in zip(self.then, now, strict=True):
            if then == is_now:
                continue
            for path in sorted({*then, *is_now}):
                before, after = then.get(path, ""), is_now.get(path, "")
                if before != after and not left(path, before, after):
                    return path
        return None


class EarlierAnswer(Struct, eq=False):
    """A request of the earlier run with its answer. `order` is its position among the answers."""

    asked: Asked
    answered: Answered
    order: int
    failed: bool
    used: bool = False

    @property
    def is_free(self) -> bool:
        return not (self.used or self.failed)

    @property
    def notes(self) -> dict[str, object]:
        return codec.notes(self.answered.aside)

    @property
    def _declared(self) -> CommandFiles | None:
        """The `CommandFiles` noted for a command with declared files, else None."""
        try:
            return convert(self.notes[NOTE], CommandFiles)
        except (KeyError, MsgspecError):
            return None

    def _session(self) -> SessionResult | None:
        """Return the answer of a session; None for other requests, and if it cannot be read."""
        return codec.readable(self.answered.value, SessionResult) if self.asked.kind == "session" else None

    def files_of_answer(self, request: Request | None, keys: Keys) -> FilesOfAnswer | None:
        """Return the files that the answer depends on, or None. They are found by the declarations of `request`, the
        current one, or if it is None by those of the earlier request.

        Raises `LookupError` if the digests are not known: `NotRecorded` if the earlier request declared no files, or
        the run was killed before they were read.
        """
        if (session := self._session()) is not None:
            reads = {read.path: read.sha256 for read in session.reads}
            return FilesOfAnswer((reads,), keys.project) if reads else None
        files = self._declared
        if isinstance(request, CommandRequest):
            if not request.declares_files:
                return None
            if files is None:
                raise NotRecorded
            files = replace(files, globs=(request.reads or (), request.writes or ()))
        if files is None:
            return None
        if files.reads is None or files.writes is None:
            raise LookupError
        depends = any(files.globs) or files.reads or files.writes
        return FilesOfAnswer((files.reads, files.writes), keys.directory, files.globs) if depends else None

    def written(self) -> Iterator[tuple[str, str]]:
        """Yield the recorded files that it has written: path and digest, "" for a deleted file."""
        if self.asked.kind == "command" and (files := self._declared) is not None:
            yield from (files.writes or {}).items()
        session = self._session()
        for write in session.writes if session is not None else ():
            after = write.after.encode("utf-8", "replace") if write.after is not None else None
            yield write.path, hashlib.sha256(after).hexdigest() if after is not None else ""

    def value_for(self, key: str, kind: type[T], run: str, text_of: Callable[[tuple[str, str]], str | None]) -> T:
        """Return the answer for the request with this `key`, with the run `run` as its source and with the text of its
        file, which `text_of` reads. It consumes nothing. Raises `FileNotFoundError` if that file is missing or has
        changed, and `MsgspecError` if the answer cannot be read."""
        value: object = codec.decode(self.answered.value, kind)
        t = self.answered.t
        at = {"answered": f"{datetime.fromtimestamp(t / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"} if t else {}
        match value:
            case SessionResult():
                text = value.text if value.answer_file is None else text_of(value.answer_file)
                if text is None and value.answer_file is not None:
                    raise FileNotFoundError
                details = {**at, **value.details, "kept": run}
                value = replace(value, text=text, answer_file=None, usage=None, replayed=True, details=details)
            case CommandResult():
                then = value.kept_from.answered if value.kept_from is not None else at.get("answered", "")
                value = replace(value, kept_from=KeptFrom(run, key, then))
            case Verdict() | Pick() | Finding() if value.by not in _FREE_DECIDERS:
                value = replace(value, details={**at, **value.details, "kept": run, "at": key})
        return cast("T", value)


class AnsweredFiles:
    """The files that the answers of a run depend on, and the files that they have written. `keys` belong to the run."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._then: dict[str, dict[int, tuple[int, FilesOfAnswer | None]]] = defaultdict(dict)
        """For each text the files of its answers, each with the position of the last answer that found them like
        that."""
        self._latest: dict[object, FilesOfAnswer] = {}
        """By globs or paths. A loop whose files do not change keeps their digests only once."""
        self._written: dict[str, list[_Write]] = defaultdict(list)
        self._orders = count()

    def __bool__(self) -> bool:
        return bool(self._then)

    def add(self, asked: Asked, answered: Answered) -> None:
        """Add an answer of the run; most answers have nothing to do with files."""
        if not _names_files(asked, answered):
            return
        one = EarlierAnswer(asked, answered, next(self._orders), failed=False)
        text, then = asked.key.partition("/")[0], None
        base = self._keys.project if asked.kind == "session" else self._keys.directory
        for path, digest in one.written():
            writes = self._written[_joined(base, path)]
            writes[:] = [*(w for w in writes[-LAST_WRITES:] if w.text != text), _Write(one.order, digest, text)]
        try:
            if (then := one.files_of_answer(None, self._keys)) is None:
                return
            if (latest := self._latest.setdefault(then.key, then)) == then:
                then = latest
            self._latest[then.key] = then
        except LookupError:
            pass  # the digests are not known
        self._then[text][id(then)] = one.order, then

    def changes(self, cells: Sequence[Collection[str]], places: Mapping[str, int], files: Files) -> list[str | None]:
        """Return for each cell a file that differs both from its state when a request was answered there and from the
        state in which a later answer of this cell or one below has left it; "" if files cannot be compared, None if
        none has changed. A cell is given as its texts (`c1`); `places` has the position of each text's cell in the
        notebook. Call it in a thread."""
        looked: dict[object, tuple[Digests, ...] | None] = {}

        def now(then: FilesOfAnswer) -> tuple[Digests, ...] | None:
            if then.key not in looked:
                try:
                    looked[then.key] = then.now(files)
                except LookupError:
                    looked[then.key] = None
            return looked[then.key]

        def first(texts: Collection[str]) -> str | None:
            for text in texts:
                for order, then in [*self._then.get(text, {}).values()]:
                    is_now = now(then) if then is not None else None
                    if then is None or is_now is None:
                        return ""
                    left = partial(self._was_left, then.directory, order, places.get(text, 0), places)
                    if (path := then.changed(is_now, left)) is not None:
                        return path
            return None

        return [first(texts) for texts in cells]

    def _was_left(
        self, directory: str, order: int, place: int, places: Mapping[str, int], path: str, then: str, now: str
    ) -> bool:
        """Return whether the file is `now` as answers since `order` have left it, and was `then` as the cells above
        left it: in the notebook's order, these run first."""
        since = [write for write in self._written.get(_joined(directory, path), ()) if write.order >= order]
        above = [write for write in since if places.get(write.text, place) < place]
        return (
            bool(since) and since[-1].digest == now and since[-1] not in above and all(w.digest == then for w in above)
        )


class _Write(Struct, frozen=True):
    """The digest of a file after a text wrote it; "" if the file is missing. `order` is the position of the answer."""

    order: int
    digest: str
    text: str


def _joined(directory: str, path: str) -> str:
    return os.path.join(directory, path)  # noqa: PTH118 (for each file of each answer)


def _names_files(asked: Asked, answered: Answered) -> bool:
    """Return whether an answer may contain digests of files, without decoding it."""
    if answered.cancelled or answered.error != NOTHING:
        return False
    if asked.kind == "command":
        return bytes(answered.aside).find(b'"files"') >= 0
    value = bytes(answered.value) if asked.kind == "session" else b""  # `in` would first make and drop a TypeError
    return value.find(b'"reads"') >= 0 or value.find(b'"writes"') >= 0


def has_failed(asked: Asked, answered: Answered) -> bool:
    """Return whether an answer is a failure. An exit code other than 0 isn't, a command that could not run is."""
    if answered.error != NOTHING or asked.kind != "command":
        return answered.error != NOTHING
    result = codec.readable(answered.value, CommandResult)
    return result is None or result.kind not in (None, "exit")


def has_written(answered: Answered) -> bool:
    """Return whether a session may have written files, with a tool or as a CLI agent."""
    result = codec.readable(answered.value, SessionResult)
    if result is None:
        return answered.value != NOTHING
    tools = {use.tool for use in result.trace if use.outcome != "refused"}
    return bool(result.writes) or result.origin == "agent" or not tools <= _READ_ONLY
