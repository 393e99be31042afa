"""Memory of agents as a digest and a ledger: the files, the lock, the patch in an answer (docs/reference/vvm.md 6.6).

A directory holds `digest.md` (always sent to the model), `ledger.jsonl` (facts, appended), `meta.json` (about the last
use) and `lock`. The runtime writes them from a patch that the session puts at the end of its reply; an invalid patch is
discarded as a whole. Files may be edited by hand, so they are not trusted: they are read up to a limit, never through a
link, and lines that cannot be parsed are skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from prose_kernel.access import atomic, jsonl
from prose_kernel.access import safe_files as places
from prose_kernel.access.safe_files import ToolFailed, ToolRefused
from prose_kernel.errors import MemoryLocked, ProviderError
from prose_kernel.language.text import one_line
from prose_kernel.models import memory_directory
from prose_kernel.models.tools.tool import in_thread
from prose_kernel.runtime.clock import timestamp
from prose_kernel.runtime.ports import Clock, MemoryBinding, MemoryMode, OpenMemory
from prose_kernel.runtime.secret_patterns import secret_in
from prose_kernel.runtime.session_options import MemoryLimits, Surroundings

DIGEST: Final = "digest.md"
LEDGER: Final = "ledger.jsonl"
META: Final = "meta.json"
LOCK: Final = memory_directory.LOCKS[1]
_TAIL: Final = 256 * 1024
"""The number of bytes at the end of a ledger that are searched for facts."""
_META_LIMIT: Final = 64 * 1024
_PROTOCOL: Final = (
    "You may end your reply with ONE fenced block tagged vvm-memory holding a JSON object:\n"
    '"digest" (string, replaces the whole digest) and/or "retain" (list of short factual strings).\n'
    "Never include credentials or secrets."
)


class DigestMemories:
    """The `Memories` port. `queues` serializes the calls of this run that use the same memory; with `idle` nothing is
    written, because no provider answers (a dry run)."""

    def __init__(
        self,
        where: Surroundings,
        clock: Clock,
        queues: memory_directory.Memories | None = None,
        limits: MemoryLimits | None = None,
        *,
        idle: bool = False,
    ) -> None:
        self._where = where
        self._clock = clock
        self._queues = queues or memory_directory.Memories()
        self._limits = limits or MemoryLimits()
        self._idle = idle

    async def open(self, binding: MemoryBinding, mode: MemoryMode) -> OpenMemory:
        """Open a memory for one call. Calls of this run queue for the same memory without a time limit; if another
        process uses it, they wait as long as the limits allow."""
        directory = self._directory(binding)
        writes = mode == "continue" and not self._idle
        turn = self._queues.turns[directory]
        await turn.acquire()
        with contextlib.ExitStack() as held:
            held.callback(turn.release)
            if writes:
                await in_thread(lambda _stop: self._make(binding, directory))
            if os.path.isdir(directory):  # noqa: PTH112, ASYNC240 - one call of the system
                await self._lock(binding, directory, held)
                own, is_answered = (DIGEST, LEDGER).__contains__, self._queues.is_answered
                await in_thread(lambda _stop: memory_directory.recover(directory, own, is_answered))
                self._queues.compare(directory, _state(directory), f"the memory '{one_line(binding.key)}'")
            text = await in_thread(lambda _stop: self._text(binding, directory, mode))
            memory = _OpenDigestMemory(self, directory, text, held.pop_all())
        if not writes:
            memory.close()
        return memory

    def prelude(self, binding: MemoryBinding, mode: MemoryMode) -> str:
        return self._text(binding, self._directory(binding), mode)

    # ------------------------------------------------------------ where

    def _directory(self, binding: MemoryBinding) -> str:
        """Return the absolute directory of a memory. Raises `ProviderError` if it is reached through a link, or cannot
        exist."""
        try:
            directory = self._named(binding)
            link = os.path.realpath(directory) != directory
        except ValueError:
            raise _unusable(binding, "its path holds a NUL character", "name another directory") from None
        if link:
            raise _unusable(binding, "its directory is a link", f"make {_place(binding)} a directory")
        return directory

    def _named(self, binding: MemoryBinding) -> str:
        name = binding.name
        project = os.path.realpath(self._where.cwd)
        home = self._where.environment.get("HOME") or str(Path.home())
        match binding.scope:
            case "project":
                if not os.path.isdir(project):  # noqa: PTH112
                    raise _unusable(binding, "the project directory does not exist", "start the program from there")
                base, below = project, ".vvm/memory"
            case "user":
                base, below = os.path.realpath(home), ".vvm/memory"
            case "path":
                path = binding.path or ""
                named = home + path[1:] if path == "~" or path.startswith("~/") else path
                base, below = os.path.realpath(os.path.join(project, named)), ""  # noqa: PTH118
        return os.path.join(base, below, name)  # noqa: PTH118

    def _make(self, binding: MemoryBinding, directory: str) -> None:
        try:
            if binding.scope == "project":
                atomic.keep_out_of_git(os.path.join(os.path.realpath(self._where.cwd), ".vvm"))  # noqa: PTH118
            os.makedirs(directory, exist_ok=True)  # noqa: PTH103
        except (OSError, RecursionError) as error:
            why = places.reason(error) if isinstance(error, OSError) else "its path is too deep"
            raise _unusable(binding, why, f"it belongs into {one_line(_place(binding))}") from None

    # ------------------------------------------------------------ one at a time

    async def _lock(self, binding: MemoryBinding, directory: str, held: contextlib.ExitStack) -> None:
        """Hold the lock file against other processes. Raises `MemoryLocked` if one of them keeps it."""
        path = f"{directory}/{LOCK}"
        if os.path.islink(path):  # noqa: PTH114, ASYNC240 - one call of the system
            raise _unusable(binding, "lock is a link", f"remove it from {_place(binding)}")
        try:
            if await memory_directory.locked(path, self._clock, self._limits.patience, held):
                return
        except (OSError, NotImplementedError) as error:
            why = places.reason(error) if isinstance(error, OSError) else str(error)
            raise _unusable(binding, f"it cannot be locked: {why}", f"it belongs into {_place(binding)}") from None
        raise MemoryLocked(
            f"the memory '{one_line(binding.key)}' is in use by another process",
            hint=f"it was waited for {self._limits.patience:g} seconds: let one program at a time use it",
        )

    # ------------------------------------------------------------ reading

    def _text(self, binding: MemoryBinding, directory: str, mode: MemoryMode) -> str:
        """Return the text that precedes the task. Raises `ProviderError` for files that cannot be read as a memory."""
        try:
            digest = _digest(Path(directory, DIGEST), self._limits.digest)
            facts = _facts(Path(directory, LEDGER), self._limits)
        except ValueError as problem:
            hint = f"repair or remove it in {_place(binding)}; nothing in it was changed"
            raise _unusable(binding, str(problem), hint) from None
        ignored = " Updates are ignored for this call." if mode == "dry_run" else ""
        retained = "\n".join(f"- {fact}" for fact in facts) or "(none)"
        return (
            f"## Memory Context\nscope: {binding.scope}   key: {one_line(binding.key, 480)}\n"
            f"### Digest\n{digest or '(empty)'}\n### Retained facts\n{retained}\n"
            f"### Memory Update Protocol\n{_PROTOCOL}{ignored}\n---"
        )

    # ------------------------------------------------------------ writing

    def _keep(self, directory: str, patches: Sequence[str]) -> str | None:
        """Apply a patch that can be undone until the journal has the answer. Return a warning, or None."""
        now = timestamp(self._clock.now(), "seconds")
        why: str | None = None
        try:
            patch = _patch(patches, self._limits)
            if patch.digest is not None or patch.retain is not None:
                memory_directory.remember(directory, (DIGEST,), growing=(LEDGER,))
                _apply(directory, patch, now)
            why = "unknown keys" if patch.unknown else None
        except _Discarded as discarded:
            why = str(discarded)
        except (OSError, ValueError, ToolFailed, ToolRefused) as error:
            memory_directory.put_back(directory)
            why = f"not written: {places.reason(error) if isinstance(error, OSError) else error}"
        with contextlib.suppress(OSError, ValueError, ToolFailed, ToolRefused):
            _write_meta(Path(directory, META), now, why)
        return why


class _OpenDigestMemory:
    """A memory while one call holds it."""

    def __init__(self, memories: DigestMemories, directory: str, prelude: str, held: contextlib.ExitStack) -> None:
        self.prelude = prelude
        self._memories = memories
        self._directory = directory
        self._held: contextlib.ExitStack | None = held

    async def keep(self, patches: Sequence[str]) -> str | None:
        if self._held is None:
            return None
        directory = self._directory
        try:
            why = await in_thread(lambda _stop: self._memories._keep(directory, patches))
        except BaseException:
            memory_directory.put_back(directory)
            raise
        memory_directory.settle(directory, {"outside": directory, "digest": _state(directory)})
        return why

    def close(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.close()


def _unusable(binding: MemoryBinding, why: str, hint: str) -> ProviderError:
    return ProviderError(f"the memory '{one_line(binding.key)}' cannot be used: {why}", retryable=False, hint=hint)


def _place(binding: MemoryBinding) -> str:
    """Return the path of a memory for messages."""
    directory = {"project": ".vvm/memory", "user": "~/.vvm/memory"}.get(binding.scope, binding.path or ".")
    return f"{directory.rstrip('/')}/{binding.name}"


# ---------------------------------------------------------------- reading


def _state(directory: str) -> str | None:
    """Return a hash that differs between two states of a memory; None for an empty one."""
    try:
        digest, _ = memory_directory.contents(f"{directory}/{DIGEST}", _TAIL)  # called for every session
        _, size = memory_directory.contents(f"{directory}/{LEDGER}", 0)
    except ValueError:
        return None
    return memory_directory.digest_of(b"%d %b" % (size, digest or b"")) if digest or size else None


def _digest(path: Path, limit: int) -> str:
    """Return the text of the digest; if it is too long, its beginning with a mark."""
    data, size = memory_directory.contents(path, limit)
    text = memory_directory.decoded(path.name, data or b"", "ignore" if size > limit else "strict")
    if size > limit:
        return f"{text}\n[digest truncated: {size:,} bytes, the first {limit:,} are shown]"
    return text.removesuffix("\n")


def _facts(path: Path, limits: MemoryLimits) -> list[str]:
    """Return the newest facts that fit, oldest first."""
    data, size = memory_directory.contents(path, _TAIL, tail=True)
    lines = (data or b"").split(b"\n")[1 if size > _TAIL else 0 :]  # the first line of a tail may be incomplete
    found: list[str] = []
    left = limits.facts_size
    for fact in _newest(lines):
        left -= len(fact.encode("utf-8", "replace"))
        if len(found) >= limits.facts or (left < 0 and found):
            break
        whole = fact.encode("utf-8", "replace")
        found.append(fact if left >= 0 else whole[: limits.facts_size].decode("utf-8", "ignore"))
    return found[::-1]


def _newest(lines: Sequence[bytes]) -> Iterator[str]:
    """Yield the facts of a ledger, newest first; lines that cannot be parsed are skipped."""
    for line in reversed(lines):
        retained = jsonl.json_object(line).get("retain")
        for fact in reversed(retained) if isinstance(retained, list) else ():
            if isinstance(fact, str) and (text := " ".join(fact.split())):
                yield text


# ---------------------------------------------------------------- the patch


class _Discarded(ValueError):
    """Raised if a patch is not kept; the message is the reason in a word or two."""


class _Patch(Struct, frozen=True):
    digest: str | None = None
    retain: list[str] | None = None
    unknown: bool = False


def _patch(patches: Sequence[str], limits: MemoryLimits) -> _Patch:
    """Return the only patch of a reply, checked. Raises `_Discarded`."""
    if not patches:
        return _Patch()
    if len(patches) > 1:
        raise _Discarded("several blocks")
    try:
        data = json.loads(patches[0])
    except (ValueError, RecursionError):
        raise _Discarded("not JSON") from None
    if not isinstance(data, dict):
        raise _Discarded("not an object")
    digest, retain = data.get("digest"), data.get("retain")
    if not isinstance(digest, str) and "digest" in data:
        raise _Discarded("digest is not a string")
    if "retain" in data and not (isinstance(retain, list) and all(isinstance(fact, str) for fact in retain)):
        raise _Discarded("retain is not a list of strings")
    _check(digest, retain or [], limits)
    return _Patch(digest, retain or None, bool(data.keys() - {"digest", "retain"}))


def _check(digest: str | None, retain: Sequence[str], limits: MemoryLimits) -> None:
    if digest is not None and _size(digest) > limits.digest:
        raise _Discarded("digest too long")
    if len(retain) > limits.items or any(_size(fact) > limits.item for fact in retain):
        raise _Discarded("retain too long")
    for text in (digest or "", *retain):
        if "\0" in text:  # the next call would treat the file as binary
            raise _Discarded("not text")
        if (kind := secret_in(text)) is not None:
            raise _Discarded(f"secret: {kind}")


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _apply(directory: str, patch: _Patch, now: str) -> None:
    """Write the patch to both files, or to neither. Raises `OSError`, `ToolFailed` and `ToolRefused`."""
    ledger = Path(directory, LEDGER)
    if ledger.is_symlink():
        raise ToolRefused(f"{LEDGER} is a link")
    stated = {"digest": patch.digest, "retain": patch.retain}
    entry = {"ts": now, **{name: value for name, value in stated.items() if value is not None}}
    with jsonl.added(ledger, f"{json.dumps(entry, ensure_ascii=False)}\n".encode("utf-8", "replace")):
        if patch.digest is not None:
            path = Path(directory, DIGEST)
            if path.is_symlink():
                raise ToolRefused(f"{DIGEST} is a link")
            memory_directory.write(path, patch.digest)


def _write_meta(path: Path, now: str, warning: str | None) -> None:
    """Write `meta.json` about the last use; it never contains text of the patch."""
    data, _ = memory_directory.contents(path, _META_LIMIT)
    meta = {"schema_version": 1, "created_at": now, **jsonl.json_object(data or b"{}")}
    meta |= {"last_used_at": now, "last_mode": "continue"}
    if warning is not None:
        meta["last_warning"] = {"code": warning, "at": now}
    memory_directory.write(path, json.dumps(meta, ensure_ascii=False, indent=2) + "\n")
