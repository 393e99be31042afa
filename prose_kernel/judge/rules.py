"""Conditions that need no judgement: a closed, three-valued grammar over named bindings (sessions.md 3.2).

`score >= 85`, `docs is empty`, `the build failed and not log contains "flaky"`. docs/judge-rules.md holds every form
with examples. A rule answers True or False only where the words leave no doubt; everything else is Unknown (None), and
somebody else is asked. Above all an unquoted word decides only when it is met: `status = "done"` does not make
`status is finished` false.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from prose_kernel.errors import ProseError
from prose_kernel.judge import facts
from prose_kernel.runtime.content import preview
from prose_kernel.runtime.text import NAME
from prose_kernel.runtime.values import Value

Test = Callable[[Value], bool | None]

WEAK = frozenset(("word", "true", "numbers"))
"""Rules for words that may be no rule at all (`it is nice`, `more than expected`): the values tell."""
LONGEST = 2000  # characters of a condition; a longer one is prose, not a rule
DEEPEST = 20  # nesting of `not` and parentheses


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the rules say: `answer` None is Unknown; `rule` names the form; `why` is one line for people."""

    answer: bool | None
    rule: str
    why: str


@dataclass(frozen=True, slots=True)
class Other:
    """The number of another binding, which a number is compared with."""

    subject: str
    sign: Callable[[float, float], bool]

    def compare(self, value: Value, bindings: Mapping[str, Value]) -> bool | None:
        found, other = facts.resolve(self.subject, bindings)
        return _compared(value, self.sign, facts.number(other)) if found else None


@dataclass(frozen=True, slots=True)
class Clause:
    """One condition of a known form about one binding."""

    subject: str
    rule: str
    test: Test
    negated: bool = False
    other: Other | None = None
    quoted_name: str = ""

    def decide(self, bindings: Mapping[str, Value]) -> Ruling:
        try:
            found, value = facts.resolve(self.subject, bindings)
            if self.quoted_name and facts.resolve(self.quoted_name, bindings)[0]:  # `a` is `b`: what b holds, or "b"?
                return Ruling(None, self.rule, f"`{self.quoted_name}` may be a name")
            answer = self.test(value) if found else None
            if found and self.other is not None and answer is None:
                answer = self.other.compare(value, bindings)
        except ProseError:  # a binding that cannot be read decides nothing
            return Ruling(None, self.rule, f"{self.subject} cannot be read")
        if self.rule in WEAK and (not found or (self.rule != "word" and answer is None)):
            return Ruling(None, "", "no rule reads it")  # "it is nice" is no rule about a binding `it`
        if not found:
            return Ruling(None, self.rule, f"there is no {self.subject} to go by")
        why = f"{self.subject} is {preview(value)}"
        if self.rule == "exit" and facts.code_hidden(value):
            why = f"{self.subject} ended with 0, but its command may hide a failure"
        if self.rule == "exit" and (code := facts.exit_code(value)) is not None:
            why = f"{self.subject} exit code is {code}"
        return Ruling(answer if answer is None else answer != self.negated, self.rule, why)


@dataclass(frozen=True, slots=True)
class Unparsed:
    """Words that have none of the forms."""

    text: str

    def decide(self, bindings: Mapping[str, Value]) -> Ruling:
        return Ruling(None, "", "no rule reads it")


@dataclass(frozen=True, slots=True)
class Negation:
    operand: Condition

    def decide(self, bindings: Mapping[str, Value]) -> Ruling:
        inner = self.operand.decide(bindings)
        return Ruling(None if inner.answer is None else not inner.answer, inner.rule, inner.why)


@dataclass(frozen=True, slots=True)
class Combination:
    """`and` or `or` of two or more conditions, by Kleene: Unknown only if it decides.

    Beside words that no rule reads, a negated condition does not count: in `log does not contain "a" or any warning`
    the `not` may reach further than its own half. What stands right behind such words does not count either: in `the
    sum of a and b is 5` it is the end of them.
    """

    word: str
    operands: tuple[Condition, ...]

    def decide(self, bindings: Mapping[str, Value]) -> Ruling:
        deciding = self.word == "or"
        guarded = any(unread(operand) for operand in self.operands)
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


@dataclass(frozen=True, slots=True)
class Readings:
    """`and` beside `or` without parentheses: `a or b and c`. It counts what both readings say."""

    readings: tuple[Condition, Condition]

    def decide(self, bindings: Mapping[str, Value]) -> Ruling:
        found = [reading.decide(bindings) for reading in self.readings]
        return (
            found[0] if agreed(one.answer for one in found) is not None else Ruling(None, found[0].rule, found[0].why)
        )


Condition = Clause | Unparsed | Negation | Combination | Readings


def parts(condition: Condition) -> tuple[Condition, ...]:
    """What a condition is made of; nothing for a clause."""
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


def unread(condition: Condition) -> bool:
    return isinstance(condition, Unparsed) or any(map(unread, parts(condition)))


def clauses(condition: Condition) -> list[Clause]:
    if isinstance(condition, Clause):
        return [condition]
    return [one for part in parts(condition) for one in clauses(part)]


def decide(
    text: str, bindings: Mapping[str, Value], written: str = "", inserted: Iterable[tuple[str, str]] = ()
) -> Ruling:
    """What the rules say about a condition. Never raises; reads only the bindings that the condition names.

    `inserted` are the values in it by their placeholders in the `written` text. One that could pass for words of the
    condition (`" or 3 > 2`) leaves it open: outside quotes it has to be a number, inside it must not end them.
    """
    for placeholder, value in inserted:
        quoted = placeholder in written and placeholder not in re.sub(_LITERAL, "", written)
        if not (re.fullmatch(r'[^"“”`\\\n]*', value) if quoted else facts.number(value)):
            return Ruling(None, "", "a value in it is no number")
    return parse(text).decide(bindings)


def decidable(text: str) -> bool:
    """Whether each part of the condition has a form that decides both ways, whatever its bindings hold."""
    condition = parse(text)
    return not unread(condition) and not any(clause.rule in WEAK for clause in clauses(condition))


def subjects(text: str) -> tuple[str, ...]:
    """The bindings that a condition is about, each once."""
    names = (NAME.match(clause.subject) for clause in clauses(parse(text)))
    return tuple(dict.fromkeys(name[0] for name in names if name is not None))


def named(text: str) -> tuple[str, ...]:
    """The forms that a condition is made of (`number`, `empty`, `word` ...), each once; empty when a part has none."""
    condition = parse(text)
    return () if unread(condition) else tuple(dict.fromkeys(clause.rule for clause in clauses(condition)))


# ---------------------------------------------------------------- not, and, or

_LITERAL = r'"(?:\\.|[^"\\])*"|“[^”]*”|`[^`]*`'
_TOKEN = re.compile(
    rf"{_LITERAL}|(?<=matches )\s*/(?:\\.|[^/\\\n])+/|(?<=match )\s*/(?:\\.|[^/\\\n])+/|[()]"
    r"|\band\b|\bor\b(?!\s+equal\s+to\b)"
)
_SCOPE_WORDS = re.compile(
    r"\b(?:unless|if|except|but|when|while|although|neither|nor|without|because|only|either|both)\b"
)
_NOT = re.compile(r"\s*not\s+|\s*not(?=\()")


@lru_cache(maxsize=1024)
def parse(text: str) -> Condition:
    """The condition in the grammar; `Unparsed` for everything that has none of its forms. Never raises."""
    if len(text) > LONGEST:
        return Unparsed(text)
    tokens = [(m.group(), m.start(), m.end()) for m in _TOKEN.finditer(text)]
    connected = any(token in ("and", "or", "(", ")") for token, _, _ in tokens)
    if connected and _SCOPE_WORDS.search(re.sub(_LITERAL, '""', text)):
        return Unparsed(text)
    try:
        return _Parser(text, tokens).whole()
    except _NoRule:
        return Unparsed(text)


class _NoRule(Exception):
    """The text as a whole has no reading: unbalanced parentheses, or nested too deep."""


class _Parser:
    """Recursive descent over the connecting tokens; what stands between them are clauses."""

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
        """Conditions with `and` or `or` between them, up to the end or a closing parenthesis."""
        operands, words = [self._unit(depth)], []
        while (word := self._peek()) in ("and", "or"):
            words.append(word)
            self._take()
            operands.append(self._unit(depth))
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
    """The reading in which the other word binds closer than `loose`."""
    groups = [[operands[0]]]
    for word, operand in zip(words, operands[1:], strict=True):
        if word == loose:
            groups.append([operand])
        else:
            groups[-1].append(operand)
    close = "and" if loose == "or" else "or"
    return Combination(loose, tuple(g[0] if len(g) == 1 else Combination(close, tuple(g)) for g in groups))


# ---------------------------------------------------------------- clauses

_NAME = r"[^\W\d]\w*(?:-\w+)*"
_PATH = rf"{_NAME}(?:\.{_NAME}|\[\d+\])*"
_EXIT = r"exit[ -](?:code|status)"
_SUBJECT = re.compile(
    rf"(?:(?P<all>[Aa]ll\s+(?:(?:of\s+)?the\s+)?)|(?:[Tt]he|[Tt]his|[Tt]hat)\s+)?"
    rf"(?:(?P<of>{_EXIT}\s+of\s+(?:the\s+)?|(?P<number_of>number\s+of\s+))?`?(?P<path>{_PATH})`?"
    rf"(?P<exit>(?:'s|’s)?\s+{_EXIT})?|(?P<number>[-+]?\d+(?:\.\d+)?))(?=[\s=<>!≥≤≠])\s*"
)
_NOTS = r"(?P<not>\s+not|n't|n’t)?\s+"
_DONTS = r"(?P<not>(?:does|do|did)(?:\s+not|n't|n’t)\s+)?"
_N = r"(?P<n>[-+]?\d+(?:,\d{3})*(?:\.\d+)?%?)"
_COMPARE = {
    "at least": operator.ge, "at most": operator.le, "less than": operator.lt, "fewer than": operator.lt,
    "more than": operator.gt, "greater than": operator.gt, "exactly": operator.eq,
    "greater than or equal to": operator.ge, "less than or equal to": operator.le,
    "equal to": operator.eq, "equal": operator.eq, "exceed": operator.gt,
    "longer than": operator.gt, "shorter than": operator.lt,
    ">=": operator.ge, "≥": operator.ge, "<=": operator.le, "≤": operator.le, ">": operator.gt, "<": operator.lt,
    "==": operator.eq, "=": operator.eq, "!=": operator.ne, "≠": operator.ne,
}  # fmt: skip
_LENGTHS = r"longer\s+than|shorter\s+than"
_WORDS = "|".join(
    word.replace(" ", r"\s+")
    for word in sorted(_COMPARE, key=len, reverse=True)
    if word[0].isalpha() and word not in ("equal", "exceed", "longer than", "shorter than")
)
_SIGNS = r"==|!=|>=|<=|≥|≤|≠|>|<|="

_VERSION = re.compile(r"(?:version|release)$", re.IGNORECASE)  # 3.12 is more than 3.9

_TRUE = re.compile(rf"(?:[Tt]he\s+)?`?(?P<path>{_NAME}(?:\.{_NAME}|\[\d+\])+)`?")

_FORMS = [
    ("empty", re.compile(rf"(?:is|are){_NOTS}empty")),
    ("empty", re.compile(r"(?P<not>(?:is|are)\s+non-?empty)")),
    ("given", re.compile(rf"(?:is|are|was|were){_NOTS}(?:specified|given|set|provided|supplied)")),
    ("exit", re.compile(rf"{_DONTS}(?P<word>succeed|pass|fail)")),
    ("exit", re.compile(r"(?:(?:has|have)(?P<not>\s+not|n't|n’t)?\s+)?(?P<word>succeed|pass|fail)(?:s|es|ed)?")),
    ("exit", re.compile(rf"(?:is|are){_NOTS}(?P<word>successful|passing|failing)")),
    ("exit", re.compile(rf"(?:was|were){_NOTS}(?P<word>successful)")),
    (
        "number",
        re.compile(rf"exit(?:ed|s)\s+with\s+(?:(?:code|status)\s+)?(?P<exited>)(?:{_N}|(?P<zero>zero|non-?zero))"),
    ),
    ("text", re.compile(rf"{_DONTS}(?:(?P<how>contain)s?|(?P<at>start|end)s?\s+with)\s+(?P<lit>{_LITERAL}|'[^']*')")),
    ("pattern", re.compile(rf"{_DONTS}match(?:es)?\s+/(?P<re>(?:\\.|[^/\\\n])+)/")),
    ("number", re.compile(rf"(?:is|are){_NOTS}(?P<op>{_WORDS}|{_SIGNS})\s*{_N}")),
    ("number", re.compile(rf"(?P<op>{_SIGNS})\s*{_N}")),
    ("number", re.compile(rf"(?:is|are){_NOTS}{_N}")),
    ("number", re.compile(rf"{_DONTS}(?P<op>equal|exceed)s?\s+{_N}")),
    ("numbers", re.compile(rf"(?:is|are){_NOTS}(?P<op>{_WORDS})\s+(?:the\s+)?`?(?P<right>{_PATH})`?")),
    ("numbers", re.compile(rf"{_DONTS}(?P<op>equal|exceed)s?\s+(?:the\s+)?`?(?P<right>{_PATH})`?")),
    ("numbers", re.compile(rf"(?P<op>>=|<=|≥|≤|>|<)\s*(?:the\s+)?`?(?P<right>{_PATH})`?")),
    ("number", re.compile(rf"(?:is|are){_NOTS}(?P<zero>zero|non-?zero)")),
    (
        "count",
        re.compile(
            rf"(?:has|have)(?P<not>\s+not|n't|n’t)?\s+(?P<op>{_WORDS})\s+{_N}\s+"
            r"(?P<unit>word|line|character|item)s?"
        ),
    ),
    (
        "count",
        re.compile(rf"(?:is|are){_NOTS}(?P<op>{_LENGTHS}|{_WORDS})\s+{_N}\s+(?P<unit>word|line|character)s?(?:\s+long)?"),
    ),
    ("items", re.compile(r"(?:has|have|contains?)\s+(?P<not>no)\s+(?:items|entries|elements)")),
    ("equal", re.compile(rf"(?:is|are){_NOTS}(?P<lit>{_LITERAL}|'[^']*')")),
    ("equal", re.compile(rf"(?P<op>==|!=|≠|=)\s*(?P<lit>{_LITERAL}|'[^']*')")),
    ("yes-no", re.compile(rf"(?:is|are){_NOTS}(?P<yes>yes|no|true|false)")),
    ("yes-no", re.compile(r"(?P<op>==|!=|≠|=)\s*(?P<yes>yes|no|true|false)")),
    ("word", re.compile(rf"(?:is|are){_NOTS}(?P<words>[^\W\d][\w -]{{0,60}})")),
    ("word", re.compile(rf"(?P<op>==|!=|≠|=)\s*(?P<words>(?P<right>{_PATH}))")),
]  # fmt: skip


def clause(text: str) -> Condition:
    """One condition without `and`, `or` and a leading `not`."""
    words = text.strip(" \t\n.,;!?")
    if match := _TRUE.fullmatch(words):
        return Clause(match["path"], "true", _true)
    subject = _SUBJECT.match(words)
    if subject is None:
        return Unparsed(text.strip())
    name = subject["path"] or subject["number"]
    if subject["number_of"]:
        name += ".count"
    elif subject["of"] or subject["exit"]:
        name += facts.EXIT_CODE
    rest = words[subject.end() :]
    for rule, form in _FORMS:
        if match := form.fullmatch(rest):
            found = match.groupdict()
            sign = found.get("op") in ("!=", "≠")
            test = _TESTS[rule](found)
            if (
                test is None
                or (rule in ("number", "numbers") and _VERSION.search(name))
                or (subject["number"] and rule != "number")
                or (subject["all"] and not _of_all(rule, found))
            ):
                break
            if "exited" in found:
                name += facts.EXIT_CODE
            other = Other(found["right"], _comparison(_equal_or(found["op"]))) if found.get("right") else None
            lit = found.get("lit") or ""
            name_of = lit[1:-1] if lit[:1] == "`" and re.fullmatch(_PATH, lit[1:-1]) else ""
            return Clause(name, rule, test, (found.get("not") is not None) != sign, other, name_of)
    return Unparsed(text.strip())


def _of_all(rule: str, found: Mapping[str, str | None]) -> bool:
    """Whether `all tests ...` says what the command `tests` says: that it passed. One that failed may not have failed
    in all it does."""
    return rule == "exit" and found["not"] is None and not (found["word"] or "").startswith("fail")


def _exit(found: Mapping[str, str | None]) -> Test:
    wanted = found["word"] not in ("fail", "failing")

    def test(value: Value) -> bool | None:
        code = facts.exit_code(value)
        return None if code is None else (code == 0) == wanted

    return test


def _text(found: Mapping[str, str | None]) -> Test | None:
    literal, how = _unquoted(found["lit"]), found["how"] or found["at"]
    if literal is None:
        return None

    def test(value: Value) -> bool | None:
        if not isinstance(text := facts.text(value), str):
            return None
        if how == "contain":
            answer = literal in text
        elif literal != literal.strip():  # the outer spaces of a value may be nobody's
            return None
        else:
            answer = text.strip().startswith(literal) if how == "start" else text.strip().endswith(literal)
        return answer if facts.whole(value) or (answer and how == "contain") else None

    return test


def _pattern(found: Mapping[str, str | None]) -> Test | None:
    try:
        pattern = re.compile(found["re"] or "")
    except (re.error, OverflowError, RecursionError):
        return None

    def test(value: Value) -> bool | None:
        text = facts.text(value)
        if text is None or not facts.whole(value) or not facts.affordable(pattern.pattern, len(text)):
            return None
        return pattern.search(text) is not None

    return test


def _number(found: Mapping[str, str | None]) -> Test:
    sign = found.get("op") or "=="
    compare = _comparison("==" if sign in ("!=", "≠") else sign)  # the clause is negated instead
    if zero := found.get("zero"):
        return lambda value: _compared(value, operator.eq if zero == "zero" else operator.ne, facts.number("0"))
    return lambda value: _compared(value, compare, facts.number(found["n"]))


def _comparison(sign: str) -> Callable[[float, float], bool]:
    return _COMPARE[" ".join(sign.split())]


def _compared(value: Value, compare: Callable[[float, float], bool], right: tuple[float, bool] | None) -> bool | None:
    left = facts.number(value)
    if left is None or right is None or left[1] != right[1]:  # a percentage compares with a percentage only
        return None
    return compare(left[0], right[0])


def agreed(answers: Iterable[bool | None]) -> bool | None:
    """What all readings say; None where they differ."""
    found = set(answers)
    return found.pop() if len(found) == 1 else None


def _count(found: Mapping[str, str | None]) -> Test:
    compare, right, unit = _comparison(found["op"] or ""), facts.number(found["n"]), found["unit"] or ""

    def test(value: Value) -> bool | None:
        count = facts.count(value, unit)
        if count is None or right is None or right[1]:
            return None
        least, most = count
        between = [right[0]] if least < right[0] < most else []
        return agreed(compare(one, right[0]) for one in (least, most, *between))

    return test


def _equal(found: Mapping[str, str | None]) -> Test | None:
    quoted = _unquoted(found["lit"])
    if quoted is None:
        return None
    literal = quoted.strip()
    folds = found.get("op") is None  # `is` folds case, `==` does not (openprose.md 3.11)

    def test(value: Value) -> bool | None:
        text = facts.short(value)
        if text is None or (value is None and not literal):
            return None
        said, wanted = (text.casefold(), literal.casefold()) if folds else (text, literal)
        if said == wanted:
            return True
        left, right = facts.number(text), facts.number(literal)
        if left is not None and right is not None and left[0] == right[0]:
            return None  # 1.10 is 1.1 if it is a number, but not if it is a version; 50 % may be meant by 50
        if not folds:
            return False
        if {said, wanted} <= facts.YES or {said, wanted} <= facts.NO:
            return None
        if isinstance(value, bool) and wanted not in facts.YES | facts.NO:
            return None
        # "I choose query." may be meant by "query"
        return None if wanted and re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", said) else False

    return test


def _unless_told(test: Test) -> Test:
    """Not of an object that has a field of that name: {"empty": true}."""

    def careful(value: Value) -> bool | None:
        data = value if isinstance(value, dict) else facts.structure(facts.text(value) or "")
        return None if isinstance(data, dict) and _STATES & data.keys() else test(value)

    return careful


_STATES = frozenset(("empty", "specified", "given", "set", "provided", "supplied"))


def _yes_no(found: Mapping[str, str | None]) -> Test:
    wanted = found["yes"] in ("yes", "true")

    def test(value: Value) -> bool | None:
        said = facts.yes_no(value)
        return None if said is None else said == wanted

    return test


def _word(found: Mapping[str, str | None]) -> Test:
    words = " ".join((found["words"] or "").split()).casefold()

    def test(value: Value) -> bool | None:
        if (said := facts.field(value, words)) is not None:
            return said  # an object that says so itself: {"approved": false}
        # met: True; not met: nobody knows, another word may mean the same
        return True if (facts.short(value) or "").casefold() == words else None

    return test


def _true(value: Value) -> bool | None:
    """A path alone: the value is a boolean. What a text means is for others to say."""
    return value if isinstance(value, bool) else None


def _equal_or(sign: str | None) -> str:
    return "==" if sign in ("!=", "≠", "=", None) else sign


_TESTS: dict[str, Callable[[Mapping[str, str | None]], Test | None]] = {
    "empty": lambda found: _unless_told(facts.empty),
    "given": lambda found: _unless_told(facts.given),
    "exit": _exit,
    "text": _text,
    "pattern": _pattern,
    "number": _number,
    "count": _count,
    "equal": _equal,
    "yes-no": _yes_no,
    "word": _word,
    "numbers": lambda found: lambda value: None,
    "items": lambda found: lambda value: None if (count := facts.count(value, "item")) is None else count[0] > 0,
}


def _unquoted(literal: str | None) -> str | None:
    """What a quoted text stands for; None where `\\n` or `\\t` may be meant as it stands, or as one character."""
    literal = literal or '""'
    if literal[0] != '"':
        return literal[1:-1]
    return re.sub(r"\\(.)", r"\1", literal[1:-1]) if not re.search(r"(?<!\\)(?:\\\\)*\\\w", literal) else None
