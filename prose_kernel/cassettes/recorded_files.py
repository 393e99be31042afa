"""The files that a recorded session wrote: records them, and writes them again on replay (sessions.md 4.2).

A cassette may come from anywhere. Its files are written only inside the workspace, never through a link, only where the
session of *this* program may write, and never over content that was not recorded.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from prose_kernel.access import atomic, plain_files
from prose_kernel.access.session_permissions import Policy
from prose_kernel.cassettes.portable_redaction import Redaction
from prose_kernel.cassettes.records import Facts, Written, without_facts
from prose_kernel.errors import PermissionDenied, ProviderError, reason_of
from prose_kernel.language.structs import replace
from prose_kernel.language.text import one_line
from prose_kernel.runtime.ports import AnswerFile, FileRead, FileWrite, SessionRequest, SessionResult
from prose_kernel.runtime.secret_patterns import holds_private_key
from prose_kernel.runtime.structured_text import value_of

if TYPE_CHECKING:
    from prose_kernel.cassettes.cassette_store import CassetteStore

LONGEST: Final = 256 * 1024
"""The size limit, in bytes, of recorded file contents; of a larger file only the digest is recorded."""

MayWrite = Callable[[str], Awaitable[bool]]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# ---------------------------------------------------------------- recording


def _recorded_file(write: FileWrite, path: str, cwd: str, redaction: Redaction) -> Written | None:
    """Return the recorded facts of a file below the workspace; None if it was created and removed again."""
    before = _digest(redaction.text(write.before).encode("utf-8", "replace")) if write.before is not None else None
    if write.after is None:
        data = _bytes(Path(cwd, path))
        if data is None and write.before is None:
            return None
        return Written(path, _digest(data) if data is not None else None, None, before)
    text = redaction.text(write.after)
    data = text.encode("utf-8", "replace")
    return Written(path, _digest(data), text if len(data) <= LONGEST else None, before)


def _relative(path: str, cwd: str) -> str | None:
    """Return the path for a record, relative to the workspace and with slashes; None if it is outside."""
    absolute = os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))  # noqa: PTH118 - only text
    for workspace in (cwd, os.path.realpath(cwd)):
        if absolute.startswith(workspace.rstrip("/") + "/"):
            return absolute[len(workspace.rstrip("/")) + 1 :]
    return None


def _bytes(path: Path) -> bytes | None:
    try:
        return plain_files.read(path)
    except OSError:
        return None


def changed(reads: Iterable[FileRead], cwd: str, redaction: Redaction) -> list[str]:
    """Return the files that a session read and that have changed since, or are missing."""
    return [seen.path for seen in reads if seen.sha256 not in _digests_of(_bytes(Path(cwd, seen.path)), redaction)]


def _digests_of(here: bytes | None, redaction: Redaction) -> set[str | None]:
    """Return the digests that may be recorded for these contents: unchanged, and redacted."""
    if here is None:
        return {None}
    with contextlib.suppress(UnicodeDecodeError):
        return {_digest(here), _digest(redaction.text(here.decode()).encode())}
    return {_digest(here)}


_FileChange = tuple[Path, bytes | None]
"""One file to change: its new bytes, or None to remove it."""


class FileReplay(Struct, frozen=True):
    """Writes the files of a recorded session again, under the given rules."""

    policy: Policy
    cwd: str
    redaction: Redaction
    source: str
    """The place of the record in messages: `cassettes/demo.jsonl, line 4`."""

    async def apply(self, writes: Sequence[Written], may_write: MayWrite) -> None:
        """Write the files again, all or none. Raises `ProviderError` with the file and the reason.

        `may_write` asks the person if a rule says `prompt`.
        """
        asked: set[Path] = set()
        while True:  # files may change while the person is asked
            steps = [step for write in writes if (step := self._file_change(write)) is not None]
            left = [path for path, _ in steps if path not in asked]
            if not left:
                break
            for path in left:
                await self._permit(path, may_write)
            asked.update(left)
        for path, data in steps:
            self._change(path, data)

    def _file_change(self, write: Written) -> _FileChange | None:
        """Return the change to make to one file; None if it is already in its final state."""
        path = self._place(write.path)
        here = _bytes(path)
        states = _digests_of(here, self.redaction)
        if (write.sha256 in states) if write.sha256 is not None else here is None:
            return None
        if write.before not in states:
            raise self._refused(
                write.path,
                "what is there is neither what was there before nor what the session wrote",
                "put back what was there (`git checkout`, or remove the file), or record the session again",
            )
        if write.sha256 is None:
            return path, None
        if write.text is None:
            raise self._refused(
                write.path,
                "its content was too long to be recorded, or not text",
                "put the file there before the replay, or record the session again",
            )
        data = write.text.encode("utf-8", "replace")
        if _digest(data) != write.sha256:
            raise self._refused(write.path, "its recorded content is damaged", "record the session again")
        return path, data

    def _place(self, name: str) -> Path:
        """Return the path of a recorded file: inside the workspace, not through a link, a file or missing."""
        plain = PurePosixPath(name)
        if plain.is_absolute() or not plain.parts or ".." in plain.parts or "\x00" in name:
            raise self._refused(name, "a recorded file lies inside the workspace", None)
        if any(part.casefold() == ".git" for part in plain.parts):
            raise self._refused(name, "a recording writes nothing into `.git`", None)
        path = Path(self.cwd, plain)
        if os.path.realpath(path) != str(Path(os.path.realpath(self.cwd), plain)):
            raise self._refused(name, "a link is in its way", None)
        if any(os.path.lexists(above) and not above.is_dir() for above in path.parents):
            raise self._refused(name, "something else is in its place", None)
        try:
            path.lstat()
        except FileNotFoundError:
            return path
        except OSError:
            raise self._refused(name, "it cannot be looked at", None) from None
        if not path.is_file():
            raise self._refused(name, "something else is in its place", None)
        return path

    async def _permit(self, path: Path, may_write: MayWrite) -> None:
        ruling = self.policy.decide("write", os.path.realpath(path))  # noqa: ASYNC240
        name = path.relative_to(self.cwd).as_posix()
        if ruling.answer == "allow" or (ruling.answer == "prompt" and await may_write(name)):
            return
        why = ruling.why if ruling.answer == "deny" else f"{ruling.why}, and it was not allowed"
        raise PermissionDenied(
            f"the recorded session wrote {one_line(name)}, which this one may not: {why}",
            hint="allow it in `permissions:`, or record the session again",
        )

    def _change(self, path: Path, data: bytes | None) -> None:
        try:
            if data is None:
                path.unlink()
            else:
                atomic.write_whole(path, data, durable=True, in_place=True)
        except OSError as problem:
            name = path.relative_to(self.cwd).as_posix()
            raise self._refused(name, reason_of(problem, "it cannot be written"), None) from None

    def _refused(self, name: str, why: str, hint: str | None) -> ProviderError:
        return ProviderError(
            f"the files of {self.source} cannot be written again: {one_line(name)}: {why}", retryable=False, hint=hint
        )


# ---------------------------------------------------------------- an answer


def answer_of(
    result: SessionResult, request: SessionRequest, store: CassetteStore
) -> tuple[SessionResult, Facts] | None:
    """Return a session's answer for the record, and the facts about its files; None if it must not be recorded. Warns
    about effects that a replay will not have."""
    cwd = store.where.cwd
    text = result.text if result.text is not None else written_answer(request.target, cwd)
    writes = []
    for write in result.writes:
        path = _relative(write.path, cwd)
        if path is None:
            store.warn(
                f"session {request.at} wrote {write.path}, outside of the working directory: a replay will not write it"
            )
        elif (written := _recorded_file(write, path, cwd, store.redaction)) is not None:
            writes.append(written)
    kept = (text, result.reply, result.memory_after, result.segment, result.summary)
    texts = [*kept, *(write.after for write in result.writes), *(use.detail for use in result.trace)]
    if any(holds_private_key(text) for text in texts if text):
        store.warn(f"session {request.at} is not recorded: its answer holds a private key (PEM)")
        return None
    details = {"cut": True} if result.details.get("cut") is True else {}
    answer = replace(without_facts(result), text=text, provider="", origin="", details=details, replayed=False)
    return answer, Facts(result.reads, tuple(writes))


def written_answer(target: AnswerFile | None, cwd: str) -> str | None:
    """Return the answer that a session wrote to its binding, without the header; None if it cannot be read."""
    if target is None or not target.location:
        return None
    try:
        text = plain_files.read(Path(cwd, target.location)).decode()
    except (OSError, UnicodeDecodeError):
        return None
    return text[len(target.header) :] if text.startswith(target.header) else value_of(text)
