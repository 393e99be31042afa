"""What one run of an evaluation gave, and the file in which results are noted as they come.

The file is JSON Lines: each line is written at once, so that an evaluation which was interrupted, or killed, goes on
where it was. A result is known by what was asked (`key_of`): whatever has changed is run again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from prose_kernel.access import plain_files
from prose_kernel.errors import UsageError

Status = Literal["passed", "failed", "error"]
DIRECTORY: Final = "evaluations"
_ENDED: Final = b'{"ended":true}\n'


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one assertion said of a run. `error`: it could not be evaluated, and `reason` says why."""

    name: str
    passed: bool
    score: float
    reason: str = ""
    error: bool = False


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run: a case, a variant, a repetition. `error` is why it came to no result; `nobody`: because nothing was
    recorded and nobody could answer.

    `seconds` is how long its sessions and judgements took, `cost` what they cost in US dollars as far as that is known
    (`unpriced` of them have no known price). What was replayed counts as it did when it was recorded.
    """

    key: str
    case: str
    variant: str
    repetition: int
    status: Status
    score: float = 0.0
    checks: tuple[Check, ...] = ()
    error: str = ""
    nobody: bool = False
    seconds: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    unpriced: int = 0
    sessions: int = 0
    outputs: Mapping[str, str] = {}

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out


def key_of(parts: Sequence[Any]) -> str:
    """A short digest of all that decides a result."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:20]


class ResultsFile:
    """The results of one evaluation on disk. One that has ended begins anew."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def read(self) -> dict[str, Result]:
        """The results of an evaluation that has not ended, by their keys; a line that was not written to its end does
        not count."""
        try:
            data = plain_files.read(self.path)
        except OSError:
            return {}
        if data.endswith(_ENDED):
            return {}
        decode = msgspec.json.Decoder(Result).decode
        found = {}
        for line in data.split(b"\n"):
            with contextlib.suppress(msgspec.DecodeError):
                result = decode(line)
                found[result.key] = result
        return found

    def open(self, kept: Mapping[str, Result]) -> None:
        """Begin to write; `kept` are the results that count. Raises `UsageError`."""
        from prose_kernel.access import plain_files

        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            encode = msgspec.json.Encoder().encode
            plain_files.write_whole(self.path, *(encode(result).decode() + "\n" for result in kept.values()))
            self._descriptor = plain_files.descriptor(self.path, os.O_WRONLY | os.O_APPEND)
        except OSError as problem:
            reason = (problem.strerror or "unknown").lower()
            raise UsageError(f"results cannot be noted in {self.path.name}: {reason}") from None

    def add(self, result: Result) -> None:
        self._write(msgspec.json.encode(result) + b"\n")

    def end(self) -> None:
        """All runs have come to their end."""
        self._write(_ENDED)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self, line: bytes) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # a full disk: the evaluation goes on, and could not go on later
                os.write(self._descriptor, line)
