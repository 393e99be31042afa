"""Measures how often a judge is right: asks it a labelled set of conditions and counts its answers.

A set is JSON Lines: each line is one item with its values, the condition (or a criterion about one value), the right
answer, and a category. The shipped set is `labelled.jsonl` (docs/how-to/judge.md).
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from prose_kernel.access import plain_files
from prose_kernel.errors import ProviderError, Undecided, UsageError, reason_of
from prose_kernel.language.text import one_line
from prose_kernel.runtime.ports import Judge, JudgeRequest, Usage, Verdict, reported
from prose_kernel.runtime.values import Value, full_text

SHIPPED: Final = Path(__file__).with_name("labelled.jsonl")
AT_ONCE: Final = 8
LARGEST: Final = 50_000_000
"""The size limit, in bytes, of a file of items; a larger file isn't a labelled set."""

LABELS: Final[Mapping[object, bool | None]] = {"yes": True, "no": False, "uncertain": None, True: True, False: False}
WORDS: Final[Mapping[bool | None, str]] = {True: "yes", False: "no", None: "uncertain"}
NO_ANSWER: Final = "no answer"
_QUANTILE: Final = 1.959964
"""The quantile of the normal distribution for 95 %."""
_KEYS: Final = frozenset(("id", "category", "values", "value", "condition", "criterion", "label", "why"))


class CalibrationItem(Struct, frozen=True):
    """A condition about `values`, or a criterion about the one `subject`; `label` None is "uncertain"."""

    name: str
    category: str
    text: str
    label: bool | None
    values: Mapping[str, Value] = field(default_factory=dict)
    subject: str | None = None
    why: str = ""

    @property
    def request(self) -> JudgeRequest:
        return JudgeRequest(self.text, f"calibrate/{self.name}", bindings=self.values, subject=self.subject)


class JudgeAnswer(Struct, frozen=True):
    """The judge's answer to an item, or the reason why there is none (`problem`)."""

    item: CalibrationItem
    verdict: Verdict | None
    problem: str = ""

    @property
    def word(self) -> str:
        return WORDS[self.verdict.answer] if self.verdict is not None else NO_ANSWER

    @property
    def right(self) -> bool:
        return self.verdict is not None and self.verdict.answer == self.item.label

    @property
    def leads_right(self) -> bool:
        """Return whether an `if` would take the right branch; it treats "uncertain" as no."""
        return self.verdict is not None and (self.verdict.answer is True) == (self.item.label is True)

    @property
    def harm(self) -> int:
        """Return the rank of a wrong answer, worst first: a wrong yes, a wrong no, an answer instead of "uncertain",
        "uncertain" instead of an answer."""
        if self.verdict is None:
            return 4
        if self.item.label is None:
            return 2
        return {True: 0, False: 1, None: 3}[self.verdict.answer]


def wilson(count: float, of: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share (Wilson score interval); (0, 1) if nothing was counted."""
    if not of:
        return 0.0, 1.0
    share, square = count / of, _QUANTILE * _QUANTILE
    middle = share + square / (2 * of)
    reach = _QUANTILE * math.sqrt(share * (1 - share) / of + square / (4 * of * of))
    low, high = ((middle + sign * reach) / (1 + square / of) for sign in (-1, 1))
    return max(0.0, low) if count else 0.0, min(1.0, high) if count < of else 1.0


class Share(Struct, frozen=True):
    """A count out of a total, and the interval that contains the true share with 95 % confidence (Wilson)."""

    count: int
    of: int

    @property
    def share(self) -> float:
        return self.count / self.of if self.of else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.count, self.of)


class Calibration(Struct, frozen=True):
    """The answers of one judge to a set, in the order of the set."""

    judge: str
    answers: tuple[JudgeAnswer, ...]

    @property
    def accuracy(self) -> Share:
        return Share(sum(answer.right for answer in self.answers), len(self.answers))

    @property
    def leads_right(self) -> Share:
        return Share(sum(answer.leads_right for answer in self.answers), len(self.answers))

    @property
    def categories(self) -> dict[str, Share]:
        names = sorted({answer.item.category for answer in self.answers})
        of = {name: [answer.right for answer in self.answers if answer.item.category == name] for name in names}
        return {name: Share(sum(right), len(right)) for name, right in of.items()}

    @property
    def confusion(self) -> dict[str, dict[str, int]]:
        """Return the number of each answer, by right answer."""
        found = {label: dict.fromkeys((*WORDS.values(), NO_ANSWER), 0) for label in WORDS.values()}
        for answer in self.answers:
            found[WORDS[answer.item.label]][answer.word] += 1
        return found

    @property
    def misses(self) -> list[JudgeAnswer]:
        """Return the wrong answers, the worst first."""
        return sorted((answer for answer in self.answers if not answer.right), key=lambda answer: answer.harm)

    @property
    def usage(self) -> Usage:
        """Return the usage of newly requested answers; recorded answers use nothing."""
        found = Usage(cost=0.0)
        for answer in self.answers:
            used = reported(answer.verdict.details.get("usage")) if answer.verdict is not None else None
            if used is not None:
                cost = None if used.cost is None or found.cost is None else found.cost + used.cost
                tokens = found.tokens_in + used.tokens_in, found.tokens_out + used.tokens_out
                found = Usage(found.requests + used.requests, *tokens, cost)
        return found

    @property
    def models(self) -> Counter[str]:
        """Return the number of answers of each model: a chain of fallbacks may have more than one."""
        names = (str(a.verdict.details.get("model", "")) for a in self.answers if a.verdict is not None)
        return Counter(name for name in names if name)

    @property
    def replayed(self) -> int:
        return sum(bool(a.verdict.details.get("replayed")) for a in self.answers if a.verdict is not None)


async def calibrate(
    items: Sequence[CalibrationItem],
    judge: Judge,
    name: str,
    *,
    at_once: int = AT_ONCE,
    on_answer: Callable[[JudgeAnswer], object] = lambda answer: None,
) -> Calibration:
    """Ask the judge about every item, `at_once` at a time.

    Raises `Undecided` if items are not recorded and no judge may be asked, or if the first answers all fail; also
    raises the errors of a budget. Cancelling it ends running requests.
    """
    places = asyncio.Semaphore(at_once)
    answers: dict[int, JudgeAnswer] = {}
    unrecorded: list[Undecided] = []

    async def ask(number: int, item: CalibrationItem) -> None:
        async with places:
            try:
                answer = JudgeAnswer(item, await judge.decide(item.request))
            except (Undecided, ProviderError) as problem:
                if isinstance(problem, Undecided) and problem.missed:
                    unrecorded.append(problem)
                    return
                answer = JudgeAnswer(item, None, one_line(str(problem), 300))
                failed = [*answers.values(), answer]
                if len(failed) >= min(at_once, len(items)) and all(one.verdict is None for one in failed):
                    raise
            answers[number] = answer
            on_answer(answer)

    tasks = [asyncio.ensure_future(ask(number, item)) for number, item in enumerate(items)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if unrecorded:
        raise Undecided(
            f"{len(unrecorded)} of {len(items)} items are not recorded for {name}",
            hint="ask for them: with the cassette mode auto, where the judge can be reached",
            missed=True,
        )
    return Calibration(name, tuple(answers[number] for number in range(len(items))))


# ---------------------------------------------------------------- the file


def load(path: Path, shown: str = "") -> tuple[CalibrationItem, ...]:
    """Return the items of a file. Raises `UsageError` with the line of an invalid item."""
    shown = shown or str(path)
    try:
        text = plain_files.read(path, LARGEST).decode("utf-8-sig")
    except (OSError, ValueError) as problem:
        reason = "it isn't UTF-8 text" if isinstance(problem, ValueError) else reason_of(problem)
        raise UsageError(f"{shown} cannot be read: {reason}") from None
    items: dict[str, CalibrationItem] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line, parse_constant=_refuse_constant)
            _check_encodable(fields)
            item = _item(fields, number)
        except (ValueError, RecursionError) as problem:
            raise UsageError(
                f"{shown}, line {number}: {_reason(problem)}",
                hint='an item is {"values": {"NAME": VALUE}, "condition": TEXT, "label": "yes", "no" or "uncertain"}',
            ) from None
        if item.name in items:
            raise UsageError(f"{shown}, line {number}: there is an item {item.name!r} already")
        items[item.name] = item
    if not items:
        raise UsageError(f"{shown} holds no items")
    return tuple(items.values())


def of_category(items: Sequence[CalibrationItem], category: str | None) -> tuple[CalibrationItem, ...]:
    """Return the items of one category; all for None. Raises `UsageError` for an unknown category."""
    found = tuple(item for item in items if category is None or item.category == category)
    if not found:
        names = ", ".join(sorted({item.category for item in items}))
        raise UsageError(f"there is no category {category!r} in the set", hint=f"it has {names}")
    return found


def _reason(problem: Exception) -> str:
    if isinstance(problem, json.JSONDecodeError):
        return f"no JSON: {problem.msg.lower()} in column {problem.colno}"
    return "nested too deeply" if isinstance(problem, RecursionError) else str(problem)


def _refuse_constant(word: str) -> object:
    raise ValueError(f"{word} isn't a JSON number")


def _check_encodable(item: object) -> None:
    """Raise `ValueError` for values that JSON can hold but a request cannot."""
    try:
        json.dumps(item, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a text holds half of a character") from None
    except ValueError:
        raise ValueError("a number is too large") from None


def _item(item: Any, number: int) -> CalibrationItem:
    """Return the item in a JSON value. Raises `ValueError` that says what is wrong."""
    if not isinstance(item, dict):
        raise ValueError("an item is a JSON object")
    if unknown := sorted(item.keys() - _KEYS):
        raise ValueError(f"an item has no key {unknown[0]!r}")
    label = item.get("label", "")
    if not isinstance(label, str | bool) or label not in LABELS:
        raise ValueError("`label` is yes, no or uncertain")
    criterion = "criterion" in item
    if criterion == ("condition" in item) or criterion != ("value" in item) or (criterion and "values" in item):
        raise ValueError("an item has a `condition` about `values`, or a `criterion` about one `value`")
    text, values = item["criterion" if criterion else "condition"], item.get("values", {})
    if not isinstance(text, str) or not text.strip():
        raise ValueError("the condition isn't a text")
    if not isinstance(values, dict):
        raise ValueError("`values` is an object of names and values")
    texts = {
        key: item.get(key, default) for key, default in (("id", f"line-{number}"), ("category", "all"), ("why", ""))
    }
    if wrong := next((key for key, value in texts.items() if not isinstance(value, str)), None):
        raise ValueError(f"`{wrong}` isn't a text")
    subject = full_text(item["value"]) if criterion else None
    given = values if subject is None else {"it": item["value"]}
    return CalibrationItem(texts["id"], texts["category"], text.strip(), LABELS[label], given, subject, texts["why"])
