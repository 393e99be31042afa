"""Conditions as a tree: clauses combined by `not`, `and` and `or`, in three-valued logic."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from msgspec import Struct

from prose_kernel.errors import ProseError
from prose_kernel.judging import facts
from prose_kernel.judging.value_tests import Test, agreed, compared
from prose_kernel.runtime.value_text import preview
from prose_kernel.runtime.values import Value

_MIN_WORDS = 3
"""The minimum number of words that can be a statement by themselves."""
WEAK = frozenset(("word", "true", "numbers", "sign"))
"""Forms that also match ordinary text (`it is nice`, `more than expected`): they apply only if the values fit."""


class Ruling(Struct, frozen=True):
    """The answer of the rules: `answer` None is Unknown; `rule` names the form; `why` is one readable line."""

    answer: bool | None
    rule: str
    why: str


class OtherBinding(Struct, frozen=True):
    """The number of another binding, to compare a number with."""

    subject: str
    sign: Callable[[float, float], bool]

    def compare(self, value: Value, bindings: Mapping[str, Value]) -> bool | None:
        found, other = facts.resolve(self.subject, bindings)
        return compared(value, self.sign, facts.number(other)) if found else None


class Clause(Struct, frozen=True):
    """One condition of a known form about one binding."""

    subject: str
    rule: str
    test: Test
    negated: bool = False
    other: OtherBinding | None = None
    quoted_name: str = ""
    predicate: str = ""

    def decide(self, bindings: Mapping[str, Value]) -> Ruling:
        try:
            found, value = facts.resolve(self.subject, bindings)
            name = _name_among(self.quoted_name, bindings)
            if name:  # `a is b`: the value of b, or the text "b"? Only numbers, or a field of the object a, decide
                answer = facts.field(value, self.quoted_name) if found and self.rule == "word" else None
                if answer is None and not (self.other is not None and facts.number(value)):
                    return Ruling(None, self.rule, f"`{name}` may be a name")
            else:
                answer = self.test(value) if found else None
            if found and self.other is not None and answer is None:
                answer = self.other.compare(value, bindings)
        except ProseError:  # a binding that cannot be read decides nothing
            return Ruling(None, self.rule, f"{self.subject} cannot be read")
        if self.rule in WEAK and (not found or (self.rule != "word" and answer is None)):
            return Ruling(None, "", "no rule reads it")  # "it is nice" isn't a rule about a binding `it`
        if not found:
            return Ruling(None, self.rule, f"there is no {self.subject} to go by")
        why = f"{self.subject} is {preview(value)}"
        if self.rule == "exit" and facts.code_hidden(value):
            why = f"{self.subject} ended with 0, but its command may hide a failure"
        if self.rule == "exit" and (code := facts.exit_code(value)) is not None:
            why = f"{self.subject} exit code is {code}"
        return Ruling(answer if answer is None else answer != self.negated, self.rule, why)


class Unparsed(Struct, frozen=True):
    """Words without a known form."""

    text: str

    def decide(self, bindings: Mapping[str, Value]) -> Ruling:
        return Ruling(None, "", "no rule reads it")


class Negation(Struct, frozen=True):
    operand: Condition

    def decide(self, bindings: Mapping[str, Value]) -> Ruling:
        inner = self.operand.decide(bindings)
        return Ruling(None if inner.answer is None else not inner.answer, inner.rule, inner.why)


class Combination(Struct, frozen=True):
    """Two or more conditions joined by `and` or `or`, in Kleene's logic: Unknown only if an Unknown operand decides.

    Next to words that no rule reads, a negated condition counts as Unknown: in `log does not contain "a" or any
    warning` the `not` may apply to both halves. So does a condition right after such words: in `the sum of a and b is
    5`, `b is 5` is only the end of the sentence.
    """

    word: str
    operands: tuple[Condition, ...]

    def decide(self, bindings: Mapping[str, Value]) -> Ruling:
        deciding = self.word == "or"
        if any(isinstance(operand, Unparsed) and len(operand.text.split()) < _MIN_WORDS for operand in self.operands):
            return Ruling(None, "", "no rule reads it")  # `is 87 or so`: the rest belongs to the words before it
        guarded = any(has_unparsed(operand) for operand in self.operands)
        unknown: Ruling | None = None
        seen: list[Ruling] = []
        after_words = False
        for operand in self.operands:
            ruling = operand.decide(bindings)
            shared, after_words = after_words, isinstance(operand, Unparsed)
            if ruling.answer is None or (guarded and negates(operand)) or shared:
                unknown = unknown or Ruling(None, ruling.rule, ruling.why)
            elif ruling.answer is deciding:
                return ruling
            else:
                seen.append(ruling)
        if unknown is not None:
            return unknown
        return Ruling(not deciding, self.word, ", ".join(dict.fromkeys(ruling.why for ruling in seen)))


class Readings(Struct, frozen=True):
    """The two readings of a mix of `and` and `or` without parentheses: `a or b and c`. It decides if both agree."""

    readings: tuple[Condition, Condition]

    def decide(self, bindings: Mapping[str, Value]) -> Ruling:
        found = [reading.decide(bindings) for reading in self.readings]
        return (
            found[0] if agreed(one.answer for one in found) is not None else Ruling(None, found[0].rule, found[0].why)
        )


Condition = Clause | Unparsed | Negation | Combination | Readings


def parts(condition: Condition) -> tuple[Condition, ...]:
    """Return the parts of a condition; none for a clause."""
    match condition:
        case Negation(operand=operand):
            return (operand,)
        case Combination(operands=operands):
            return operands
        case Readings(readings=(first, _)):
            return (first,)
        case _:
            return ()


def negates(condition: Condition) -> bool:
    negation = isinstance(condition, Negation) or (isinstance(condition, Clause) and condition.negated)
    return negation or any(map(negates, parts(condition)))


def has_unparsed(condition: Condition) -> bool:
    return isinstance(condition, Unparsed) or any(map(has_unparsed, parts(condition)))


def clauses(condition: Condition) -> list[Clause]:
    if isinstance(condition, Clause):
        return [condition]
    return [one for part in parts(condition) for one in clauses(part)]


def _name_among(words: str, bindings: Mapping[str, Value]) -> str:
    """Return the name of the binding that these words may mean; "" if there is none."""
    folded = re.sub(r"^the\s+", "", words.casefold())
    wanted = {folded, folded.replace(" ", "_"), folded.replace(" ", "-"), folded.partition(".")[0].partition("[")[0]}
    return next((name for name in bindings if name.casefold() in wanted), "") if words else ""
