"""The results of the runs of an evaluation, and the file that stores them.

Each result is added to the file, in JSON Lines, as soon as it is known, so an interrupted or killed evaluation can
resume after the last one. The key of a result (`key_of`) depends on its request: a changed request is run again.
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
    """The result of an assertion about a run. `error` is true if it could not be evaluated, with the `reason`."""

    name: str
    passed: bool
    score: float
    reason: str = ""
    error: bool = False


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one run: a case, a variant, a repetition.

    `error` is the reason if the run has no result; `no_answer`: no answer was recorded and no provider could answer.
    `seconds` is the duration of its sessions and judgements, `cost` their known cost in US dollars; `unpriced` of them
    have no known price. Replayed answers count with the values of their recording.
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
    """Return a short digest of the parts that decide a result."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:20]


class ResultsFile:
    """The file with the results of an evaluation. A complete evaluation starts again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Result]:
        """Return the results of an incomplete evaluation by key, none for a complete one; ignore incomplete lines."""
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
        """Begin a new file with the results `kept`. Raises `UsageError`."""
        with usage_errors(f"results cannot be noted in {self.path.name}"):
            atomic.write_whole(self.path, msgspec.json.Encoder().encode_lines(kept.values()))

    def add(self, result: Result) -> None:
        self._write(msgspec.json.encode(result) + b"\n")

    def end(self) -> None:
        """Mark the evaluation as complete."""
        self._write(_ENDED)

    def _write(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # on a full disk, the evaluation continues, but cannot be resumed later
            jsonl.append(self.path, line)
