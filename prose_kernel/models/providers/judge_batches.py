"""Asks a model several conditions about the same values in one request, and keeps the answers for later conditions.

The program still asks each condition in order, and each is decided, recorded and written into the journal separately;
only the request to the server is shared. Kept answers are used only if nothing has happened since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import structs

from prose_kernel.language.typed_answers import Schema
from prose_kernel.runtime.ports import JudgeRequest, Verdict
from prose_kernel.runtime.value_text import material

MOST_AT_ONCE: Final = 8
"""The maximum number of conditions in one request."""
MOST_KEPT: Final = 64
"""The maximum number of branches of a program whose answers are kept."""


def batch_of(request: JudgeRequest) -> tuple[JudgeRequest, ...]:
    """Return the request and those of its further questions that are about the same values and send nothing else."""
    if not request.further or request.loop is not None:
        return (request,)
    shown, inserted = material(request), dict(request.inserted)
    found = [request]
    for one in request.further[: MOST_AT_ONCE - 1]:
        sent = material(one)
        same = sent.whole == shown.whole and sent.previews == shown.previews
        if same and all(inserted.setdefault(name, value) == value for name, value in one.inserted):
            found.append(one)
    return tuple(found)


def with_all_values(requests: Sequence[JudgeRequest]) -> JudgeRequest:
    """Return the first request with the values that were inserted into any of the requests."""
    inserted = {name: value for one in requests for name, value in one.inserted}
    return structs.replace(requests[0], inserted=tuple(inserted.items()))


def numbered(statements: Sequence[str]) -> str:
    numbered = "\n\n".join(f"{number}. {statement}" for number, statement in enumerate(statements, 1))
    return f"Decide each of these {len(statements)} questions on its own, as if it stood alone.\n\n{numbered}"


def text_field(about: str) -> Schema:
    return {"type": "string", "description": about}


def list_field(about: str) -> Schema:
    return {"type": "array", "items": {"type": "string"}, "description": about}


def choice_field(about: str, options: Sequence[str]) -> Schema:
    """Return the schema of a field that is one of these texts."""
    return {"type": "string", "enum": [*options], "description": about}


def answer_fields(count: int, about: str, options: tuple[str, ...]) -> dict[str, Schema]:
    """Return the fields for a reason and an answer to each question, the reason first."""
    found: dict[str, Schema] = {}
    for number in range(1, count + 1):
        found[f"reason_{number}"] = text_field(f"To question {number}: why, in one short sentence.")
        found[f"answer_{number}"] = choice_field(f"The answer to question {number}. {about}", options)
    return found


def numbered_answers(reply: Mapping[str, object], count: int) -> list[tuple[str, str]]:
    """Return the reason and the answer to each question."""
    return [(str(reply[f"reason_{number}"]), str(reply[f"answer_{number}"])) for number in range(1, count + 1)]


class KeptAnswers:
    """Answers to questions that were asked ahead of time, by their place in the program."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[object, Verdict]] = {}

    def take(self, request: JudgeRequest) -> Verdict | None:
        """Return the kept answer to a request. A different request discards the answers kept for its place."""
        kept = self._kept.pop(_place(request), None)
        verdict = kept.pop(_identity(request), None) if kept is not None else None
        if verdict is not None and kept:
            self._kept[_place(request)] = kept
        return verdict

    def keep(self, requests: Sequence[JudgeRequest], given: Sequence[Verdict]) -> None:
        if len(self._kept) >= MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[_place(requests[0])] = {_identity(one): answer for one, answer in zip(requests, given, strict=True)}


def _place(request: JudgeRequest) -> str:
    return request.at.rpartition("/")[0]


def _identity(request: JudgeRequest) -> object:
    """Return everything that decides the answer, including the last event other than a judgement."""
    sent = material(request)
    since = next((event for event in reversed(request.recent) if not event.startswith("**")), None)
    shown = (tuple(sent.whole.items()), tuple(sent.previews.items()), request.inserted)
    return request.question, request.subject is None, request.loop, shown, since
