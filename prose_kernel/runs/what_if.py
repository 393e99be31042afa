"""A run with an answer or a model of an earlier run replaced: the rest is kept, as far as it does not depend on that
(docs/how-to/edit-and-continue.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from msgspec import MsgspecError, Raw, json, structs

from prose_kernel.errors import UsageError
from prose_kernel.runs.keeping import EarlierRun
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime.journal_records import Answered, Asked, answers_of
from prose_kernel.runtime.ports import CommandResult, SessionProgress, SessionRequest, SessionResult, Sessions

_DECISIONS = {"yes": True, "true": True, "no": False, "false": False}


class OtherModels:
    """The `Sessions` port for a run in which the sessions at these places ask another model."""

    def __init__(self, inner: Sessions, models: Mapping[str, str]) -> None:
        self._inner = inner
        self._models = models

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        model = self._models.get(request.at)
        if model is not None:
            request = structs.replace(request, model=model)
        return await self._inner.run(request, on_progress)


def with_answers(earlier: EarlierRun, answers: Mapping[str, str], models: Mapping[str, str]) -> EarlierRun:
    """The earlier run with other `answers` and `models`, by the places of the requests. Raises `UsageError` for a place
    at which the run asked nothing that can be replaced."""
    records = list(earlier.journal.records(1))
    asked = {record.key: record for _, record in records if isinstance(record, Asked)}
    given = {one.key: answered for _, one, answered in answers_of(records)}
    for at in (*answers, *models):
        if at not in asked:
            raise UsageError(
                f"run {earlier.head.run} asked nothing at {at}", hint=f"prose runs show {earlier.head.run}"
            )
    for at in models:
        if asked[at].kind != "session":
            raise UsageError(f"{at} is a {asked[at].kind}, which has no model", hint="AT=TEXT replaces its answer")
    instead = {at: _answer(asked[at], given.get(at), text) for at, text in answers.items()}
    return replace(earlier, instead=instead, models=models)


def _answer(asked: Asked, given: Answered | None, text: str) -> Raw:
    """The answer `text` as the journal of a run holds one to this request. Raises `UsageError`."""
    match asked.kind:
        case "session":
            return codec.encode(SessionResult(text, origin="human"))
        case "command":
            return codec.encode(CommandResult("exited", 0, text, stdout_bytes=len(text.encode("utf-8", "replace"))))
        case "input":
            return codec.encode(text.removesuffix("\n"))
        case "judge":
            return codec.encode(_decision(asked, given, text.strip()))
    raise UsageError(f"{asked.key} is a {asked.kind}, whose answer can't be replaced")


def _decision(asked: Asked, given: Answered | None, text: str) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.decode(given.value) if given is not None else {}
    except MsgspecError:
        data = {}
    if "label" in data:
        return {"label": text, "by": "human"}
    if "value" in data:
        return {"value": codec.loads(text.encode(), object) if text[:1] in "[{" else text, "by": "human"}
    if text.lower() not in _DECISIONS:
        raise UsageError(f"{asked.key} is a condition: its answer is yes or no", hint=f"{asked.key}=yes")
    return {"answer": _DECISIONS[text.lower()], "by": "human"}
