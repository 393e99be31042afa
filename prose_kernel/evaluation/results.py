"""The result of one run of an evaluation, and the file to which results are added as they come.

The file is JSON Lines: each result is added when it is known, so an evaluation that was interrupted or killed resumes
after the last one. A result is identified by its request (`key_of`): a changed one is run again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from prose_kernel.access import atomic, jsonl, plain_files
from prose_kernel.errors import usage_errors

Status = Literal["passed", "failed", "error"]
DIRECTORY: Final = "evaluations"
_ENDED: Final = b'{"ended":true}\n'


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one assertion about a run. `error`: it could not be evaluated, and `reason` says why."""

    name: str
    passed: bool
    score: float
    reason: str = ""
    error: bool = False


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run: a case, a variant, a repetition. `error` is the reason if it has no result; `no_answer`: because nothing
    was recorded and no provider could answer.

    `seconds` is how long its sessions and judgements took, `cost` what they cost in US dollars as far as that is known
    (`unpriced` of them have no known price). Replayed answers count as they did when they were recorded.
    """

    key: str
    case: str
    variant: str
    repetition: int
    status: Status
    score: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    checks: tuple[Check, ...] = ()
    error: str = ""
    no_answer: bool = msgspec.field(default=False, name="nobody")
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
    """The results of one evaluation on disk. An evaluation that has ended starts again."""

    def __init__(self, path: Path) -> None:
        self.path = path

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
        for _, line, _ in jsonl.lines(data):
            with contextlib.suppress(msgspec.DecodeError):
                result = decode(line)
                found[result.key] = result
        return found

    def begin(self, kept: Mapping[str, Result]) -> None:
        """Write the file again with the results that count, `kept`. Raises `UsageError`."""
        with usage_errors(f"results cannot be noted in {self.path.name}"):
            atomic.write_whole(self.path, msgspec.json.Encoder().encode_lines(kept.values()))

    def add(self, result: Result) -> None:
        self._write(msgspec.json.encode(result) + b"\n")

    def end(self) -> None:
        """All runs have ended."""
        self._write(_ENDED)

    def _write(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # on a full disk the evaluation continues; it cannot be resumed later
            jsonl.append(self.path, line)
