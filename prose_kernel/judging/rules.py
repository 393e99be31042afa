"""Conditions that need no judgement: a closed, three-valued grammar over named bindings (sessions.md 3.2).

`score >= 85`, `docs is empty`, `the build failed and not log contains "flaky"`. Every form, with examples:
docs/reference/judge-rules.md. A rule answers True or False only if the words leave no doubt; anything else is Unknown
(None), and the next judge is asked. Above all, an unquoted word decides only if it matches: `status = "done"` does not
make `status is finished` false.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from prose_kernel.judging import facts
from prose_kernel.judging.clause_forms import PATH, clause
from prose_kernel.judging.condition_tree import (
    WEAK,
    Clause,
    Combination,
    Condition,
    Negation,
    Readings,
    Ruling,
    Unparsed,
    clauses,
    has_unparsed,
)
from prose_kernel.judging.value_tests import FEWER, LITERAL, LITERALS, MORE, NUMERAL
from prose_kernel.runtime.value_text import NAME
from prose_kernel.runtime.values import Value

__all__ = ["Ruling", "decidable", "decide", "named", "parse", "subjects"]

LONGEST = 2000  # characters of a condition; a longer one is prose, not a rule
DEEPEST = 20  # nesting of `not` and parentheses


def decide(
    text: str, bindings: Mapping[str, Value], written: str = "", inserted: Iterable[tuple[str, str]] = ()
) -> Ruling:
    """Return the answer of the rules to a condition. Never raises; reads only the bindings that the condition names.

    `inserted` are pairs of a placeholder in the `written` text and the value inserted for it. A value that could pass
    for words of the condition (`" or 3 > 2`) leaves it Unknown: outside quotes it has to be a number, inside quotes it
    must not end them.
    """
    for placeholder, value in inserted:
        quoted = placeholder in written and placeholder not in re.sub(LITERAL, "", written)
        if not (re.fullmatch(r'[^"“”`\\\n]*', value) if quoted else facts.number(value)):
            return Ruling(None, "", "a value in it isn't a number")
    return parse(text).decide(bindings)


def decidable(text: str) -> bool:
    """Return whether each part of the condition has a form that decides both ways, whatever its bindings hold."""
    condition = parse(text)
    return not has_unparsed(condition) and not any(clause.rule in WEAK for clause in clauses(condition))


def subjects(text: str) -> tuple[str, ...]:
    """Return the bindings that a condition is about, each once."""
    names = (NAME.match(clause.subject) for clause in clauses(parse(text)))
    return tuple(dict.fromkeys(name[0] for name in names if name is not None))


def named(text: str) -> tuple[str, ...]:
    """Return the forms of a condition (`number`, `empty`, `word` ...), each once; empty if a part has none."""
    condition = parse(text)
    return () if has_unparsed(condition) else tuple(dict.fromkeys(clause.rule for clause in clauses(condition)))


_TOKEN = re.compile(
    rf"\b(?:one of|any of|all of|either|both)\s+{LITERALS}"
    rf"|\b(?:is|are|==|contains?|includes?)\s+{LITERALS}"
    rf"|\bbetween\s+{NUMERAL}\s+and\b|{NUMERAL}\s+or\s+(?:{MORE}|{FEWER})\b(?!\s+than)"
    rf"|\bat or (?:{MORE}|{FEWER})\b|\bequal to or (?:{MORE}|{FEWER})\b|\b(?:{MORE}|{FEWER}) than or equal to\b"
    rf"|{LITERAL}|(?<=matches )\s*/(?:\\.|[^/\\\n])+/|(?<=match )\s*/(?:\\.|[^/\\\n])+/|[()]"
    r"|\band\b|\bor\b(?!\s+equal\s+to\b)"
)
_SCOPE_WORDS = re.compile(
    r"\b(?:unless|if|except|but|when|while|although|neither|nor|without|because|only|either|both)\b"
)
_EITHER = re.compile(rf"\s*[Ee]ither\s+(?!{LITERAL})")
_SHARED = re.compile(rf"\b(?:either|both)\s+{LITERALS}")
_NEGATED = re.compile(r"\s*not\s*\(([^()]*)\)[\s.!?]*")
_NOT = re.compile(r"\s*not\s+|\s*not(?=\()")


@lru_cache(maxsize=1024)
def parse(text: str) -> Condition:
    """Parse a condition; return `Unparsed` for a text without a known form. Never raises."""
    if len(text) > LONGEST:
        return Unparsed(text)
    if match := _NEGATED.fullmatch(text):
        return Negation(parse(match[1]))
    tokens = [(m.group(), m.start(), m.end()) for m in _TOKEN.finditer(text)]
    connected = any(token in ("and", "or", "(", ")") for token, _, _ in tokens)
    if (match := _EITHER.match(text)) and [t[0] for t in tokens if t[0] in ("and", "or", "(", ")")] == ["or"]:
        return _either(parse(text[match.end() :]))
    both = _BOTH.match(text)
    bare = _SHARED.sub('""', text[both.end() if both else 0 :])
    if connected and _SCOPE_WORDS.search(re.sub(LITERAL, '""', bare)):
        return Unparsed(text)
    if both:
        text = text[both.end() :]
        tokens = [(m.group(), m.start(), m.end()) for m in _TOKEN.finditer(text)]
    try:
        return _Parser(text, tokens).whole()
    except _NoRule:
        return Unparsed(text)


class _NoRule(Exception):
    """The text cannot be parsed: unbalanced parentheses, or nested too deeply."""


class _Parser:
    """Recursive descent over the connecting tokens; the text between them consists of clauses."""

    def __init__(self, text: str, tokens: list[tuple[str, int, int]]) -> None:
        self._text = text
        self._tokens = [t for t in tokens if t[0] in ("and", "or", "(", ")")]
        self._next = 0
        self._at = 0

    def whole(self) -> Condition:
        condition = self._joined(0)
        if self._next < len(self._tokens) or self._text[self._at :].strip(" \t\n.,;!?"):
            raise _NoRule
        return condition

    def _peek(self) -> str:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else ""

    def _take(self) -> None:
        self._at = self._tokens[self._next][2]
        self._next += 1

    def _joined(self, depth: int) -> Condition:
        """Parse conditions joined by `and` or `or`, up to the end or a closing parenthesis."""
        operands, words = [self._unit(depth)], []
        while (word := self._peek()) in ("and", "or"):
            words.append(word)
            self._take()
            operands.append(self._unit(depth))
        if len(set(words)) == 1 and (shared := _distributed(operands, words[0])) is not None:
            return shared
        if len(set(words)) < 2:
            return Combination(words[0], tuple(operands)) if words else operands[0]
        return Readings((_grouped(operands, words, "or"), _grouped(operands, words, "and")))

    def _unit(self, depth: int) -> Condition:
        if depth > DEEPEST:
            raise _NoRule
        if match := _NOT.match(self._text, self._at):
            self._at = match.end()
            return Negation(self._unit(depth + 1))
        if self._peek() == "(" and not self._text[self._at : self._tokens[self._next][1]].strip():
            self._take()
            condition = self._joined(depth + 1)
            if self._peek() != ")":
                raise _NoRule
            self._take()
            return condition
        start = self._at
        if self._peek() == "(":  # a parenthesis inside a clause is a remark, which no rule reads
            raise _NoRule
        end = self._tokens[self._next][1] if self._next < len(self._tokens) else len(self._text)
        self._at = end
        return clause(self._text[start:end])


def _grouped(operands: list[Condition], words: list[str], loose: str) -> Condition:
    """Return the reading in which the other word binds more tightly than `loose`."""
    groups = [[operands[0]]]
    for word, operand in zip(words, operands[1:], strict=True):
        if word == loose:
            groups.append([operand])
        else:
            groups[-1].append(operand)
    close = "and" if loose == "or" else "or"
    return Combination(loose, tuple(g[0] if len(g) == 1 else Combination(close, tuple(g)) for g in groups))


def _either(condition: Condition) -> Condition:
    """Return the condition for `either a failed or b failed`, Unknown if both have failed."""
    if not isinstance(condition, Combination):
        return Unparsed("")
    return Readings((condition, Combination("and", (condition, Negation(Combination("and", condition.operands))))))


def _distributed(operands: list[Condition], word: str) -> Condition | None:
    """Return the condition for several names with one predicate, `a and b failed`; None for anything else.

    `a and b are not empty` may mean that neither is empty, or that not both are: it decides only if both readings
    agree.
    """
    last = operands[-1]
    if not isinstance(last, Clause) or last.rule not in _EACH or not _PLURAL.match(last.predicate):
        return None
    names: list[str] = []
    for operand in operands[:-1]:
        if isinstance(operand, Unparsed) and _NAMES.fullmatch(operand.text):
            names += [name.strip(" `") for name in re.sub(r"\b[Tt]he\s+", "", operand.text).split(",") if name.strip()]
        else:
            return None
    each = [clause(f"{name} {last.predicate}") for name in names] + [last]
    if not all(isinstance(one, Clause) for one in each):
        return None
    shared = Combination(word, tuple(each))
    return Readings((shared, Combination("or" if word == "and" else "and", tuple(each)))) if last.negated else shared


_BOTH = re.compile(
    rf"\s*[Bb]oth\s+(?=(?:the\s+)?{PATH}\s+and\s+(?:the\s+)?{PATH}\s+(?:are|were|have|had|fail|pass|succeed)\w*\b[^()]*$)"
)
_NAMES = re.compile(rf"\s*(?:(?:[Tt]he\s+)?`?{PATH}`?\s*(?:,\s*|$))+")
_PLURAL = re.compile(
    r"(?:are|were|have|had|failed|passed|succeeded|fail|pass|succeed|did|do|indicate|exited|exceed)\b"
    r"(?!\s+(?:equal|the same))"
)
_EACH = frozenset(("empty", "given", "exit", "number", "count", "text", "null"))
