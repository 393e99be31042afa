"""The tests of the forms of `rules` on one value: yes, no, or Unknown (None).

Examples: docs/reference/judge-rules.md.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping

from prose_kernel.judging import facts
from prose_kernel.runtime.values import Value

Test = Callable[[Value], bool | None]
LITERAL = r'"(?:\\.|[^"\\])*"|“[^”]*”|`[^`]*`'
LITERALS = rf"(?:{LITERAL})(?:\s*,\s*(?:(?:or|and)\s+)?(?:{LITERAL})|\s+(?:or|and)\s+(?:{LITERAL}))+"
DIGITS = r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:%|\s+percent\b)?"
NUMERAL = rf"(?:{DIGITS}|(?:{'|'.join(facts.WORDS)})\b)"
MORE = r"higher|more|above|greater|larger|over|bigger"
FEWER = r"lower|less|below|fewer|smaller|under"
_SPELLED = {
    operator.ge: (
        ">=", "≥", "at least", "greater than or equal to", "more than or equal to", "higher than or equal to",
        "equal to or greater than", "equal to or more than", "equal to or higher than", "no less than", "no fewer than",
        "no lower than", "no smaller than", "at or above", "at or over", "a minimum of",
    ),
    operator.le: (
        "<=", "≤", "at most", "less than or equal to", "lower than or equal to", "equal to or less than",
        "equal to or lower than", "no more than", "no greater than", "no higher than", "no larger than", "at or below",
        "at or under", "a maximum of", "up to",
    ),
    operator.gt: (
        ">", "more than", "greater than", "higher than", "larger than", "bigger than", "strictly greater than", "above",
        "over", "longer than", "exceed",
    ),
    operator.lt: (
        "<", "less than", "fewer than", "lower than", "smaller than", "strictly less than", "below", "under",
        "shorter than",
    ),
    operator.eq: ("==", "=", "exactly", "equal to", "equal"),
    operator.ne: ("!=", "≠"),
}  # fmt: skip
COMPARE = {word: compare for compare, words in _SPELLED.items() for word in words}
"""The words and signs of comparisons."""


def _exit(found: Mapping[str, str | None]) -> Test:
    wanted = found["word"] not in ("fail", "failing", "indicate")

    def test(value: Value) -> bool | None:
        code = facts.exit_code(value)
        return None if code is None else (code == 0) == wanted

    return test


def _text(found: Mapping[str, str | None]) -> Test | None:
    if found.get("lits"):
        return _joined(found, _text)
    unquoted, how = _unquoted(found["lit"]), found.get("how") or found.get("at") or ""
    if unquoted is None:
        return None
    literal = facts.plain(unquoted)

    def holds(text: str, wanted: str) -> bool:
        if how in ("start", "begin", "end"):
            text = text.strip()
            return text.startswith(wanted) if how != "end" else text.endswith(wanted)
        return wanted in text

    def test(value: Value) -> bool | None:
        if isinstance(value, list) and how in ("contain", "include"):
            return _among(value, literal)
        if not isinstance(text := facts.text(value), str) or (
            how in ("start", "begin", "end") and literal != literal.strip()
        ):
            return None  # the outer spaces of a value may mean nothing
        answer = holds(facts.plain(text), literal)
        if answer != holds(facts.looser(text), facts.looser(literal)):
            return None  # the text only looks as if it matched, or did not
        if how == "mention" or found.get("word"):
            answer_in_words = _in_words(facts.plain(text), literal)
            return answer_in_words if facts.is_complete(value) or answer_in_words else None
        return answer if facts.is_complete(value) or (answer and how in ("contain", "include")) else None

    return test


def _in_words(text: str, literal: str) -> bool | None:
    """Return whether a text has a word; False only if no form of the word occurs, in any case; else None."""
    if re.search(rf"(?<!\w){re.escape(literal)}(?!\w)", text):
        return True
    stem = re.sub(r"(?<=\w{3})(?:ies|ing|ed|es|er|s|y|e)$", "", literal.casefold())
    return None if stem in text.casefold() else False


def _among(values: list[Value], literal: str) -> bool | None:
    """Return whether a list has this text as an item; None if an item may mean the same."""
    items = [facts.short(value) for value in values]
    plain = [facts.plain(item) for item in items if item is not None]
    if literal in plain:
        return True
    near = any(facts.looser(literal).casefold() in facts.looser(item).casefold() for item in plain)
    return None if near or None in items else False


def _joined(found: Mapping[str, str | None], single: Callable[[Mapping[str, str | None]], Test | None]) -> Test | None:
    """Return the test for several texts joined by `or` or `and`: `contains either "a" or "b"`, `is one of "a", "b"`."""
    written, which = found["lits"] or "", (found.get("which") or "").strip()
    between = set(re.findall(r"\b(?:or|and)\b", re.sub(LITERAL, "", written)))
    tests = [single({**found, "lits": None, "lit": one}) for one in re.findall(LITERAL, written)]
    if len(between) > 1 or None in tests:
        return None
    every = which in ("both", "all of") or (not which and between == {"and"})
    if (which == "both" and between != {"and"}) or (which == "either" and between != {"or"}) or not (which or between):
        return None
    negated = found.get("not") is not None

    def test(value: Value) -> bool | None:
        answers = [one(value) for one in tests if one is not None]
        either = True if True in answers else None if None in answers else False
        both = False if False in answers else None if None in answers else True
        if which == "either" and answers.count(False) < len(answers) - 1:
            return None  # may `either` include both?
        if negated:
            return agreed((either, both)) if every else either
        return both if every else either

    return test


def _pattern(found: Mapping[str, str | None]) -> Test | None:
    try:
        pattern = re.compile(found["re"] or "")
    except (re.error, OverflowError, RecursionError):
        return None

    def test(value: Value) -> bool | None:
        text = facts.text(value)
        if text is None or not facts.is_complete(value) or not facts.is_fast(pattern.pattern, len(text)):
            return None
        return pattern.search(text) is not None

    return test


def _number(found: Mapping[str, str | None]) -> Test:
    sign = found.get("op") or "=="
    compare = comparison("==" if sign in ("!=", "≠") else sign)  # the clause is negated instead
    if zero := found.get("zero"):
        return lambda value: compared(value, operator.eq if zero == "zero" else operator.ne, facts.number("0"))
    right = _numeral(found["n"])
    if found.get("high"):
        return _between(right, _numeral(found["high"]))
    if word := found.get("or"):
        compare = operator.ge if re.fullmatch(MORE, word) else operator.le
    elif found.get("reach") is not None:
        compare = operator.ge
    return lambda value: compared(value, compare, right)


def _numeral(text: str | None) -> tuple[float, bool] | None:
    """Return the number in a condition: digits, or a word up to twelve."""
    words = re.sub(r"\s+percent$", "%", (text or "").casefold())
    return (facts.WORDS.index(words), False) if words in facts.WORDS else facts.number(words)


def _between(low: tuple[float, bool] | None, high: tuple[float, bool] | None) -> Test:
    """Return the test for a number between two others; whether the ends are included is ambiguous."""

    def test(value: Value) -> bool | None:
        number = facts.number(value)
        if number is None or low is None or high is None or low[0] >= high[0] or len({number[1], low[1], high[1]}) > 1:
            return None
        return None if number[0] in (low[0], high[0]) else low[0] < number[0] < high[0]

    return test


def _version(found: Mapping[str, str | None]) -> Test:
    """Return the test that compares two versions with several dots each."""
    sign = found.get("op") or found.get("sign") or "=="
    compare, wanted = comparison(sign), facts.version(found["version"] or "")

    def test(value: Value) -> bool | None:
        shown = facts.version(facts.short(value) or "")
        if shown is None or wanted is None or len(shown) != len(wanted):
            return None
        return compare(shown, wanted)  # type: ignore[arg-type]  # tuples compare as numbers do

    return test


def _sign(found: Mapping[str, str | None]) -> Test:
    """Return the test for `is negative` of a number, or of a text that is this word."""
    word = found["word"] or ""

    def test(value: Value) -> bool | None:
        number = facts.number(value)
        if number is None or number[0] == 0:
            return True if (facts.short(value) or "").casefold() == word else None
        return (number[0] < 0) == (word == "negative")

    return test


def _null(value: Value) -> bool | None:
    if value is None:
        return True
    text = facts.text(value)
    return False if text is None or facts.given(text) else None


def _error(value: Value) -> bool | None:
    """Return whether a command had an error; Unknown for an exit code 0, which does not exclude errors."""
    return True if facts.exit_code(value) not in (None, 0) else None


def comparison(sign: str) -> Callable[[float, float], bool]:
    return COMPARE[" ".join(sign.split())]


def compared(value: Value, compare: Callable[[float, float], bool], right: tuple[float, bool] | None) -> bool | None:
    left = facts.number(value)
    if left is None or right is None or left[1] != right[1]:  # a percentage compares with a percentage only
        return None
    return compare(left[0], right[0])


def agreed(answers: Iterable[bool | None]) -> bool | None:
    """Return the answer that all readings share; None if they differ."""
    found = set(answers)
    return found.pop() if len(found) == 1 else None


def _count(found: Mapping[str, str | None]) -> Test:
    compare, right = comparison(found.get("op") or "exactly"), _numeral(found["n"])
    unit = {"entr": "item", "element": "item"}.get(re.sub(r"(?:y|ie)$", "", found["unit"] or ""), found["unit"] or "")

    def test(value: Value) -> bool | None:
        count = facts.count(value, unit)
        if count is None or right is None or right[1]:
            return None
        least, most = count
        between = [right[0]] if least < right[0] < most else []
        return agreed(compare(one, right[0]) for one in (least, most, *between))

    return test


def _equal(found: Mapping[str, str | None]) -> Test | None:
    if found.get("lits"):
        return _joined(found, _equal)
    quoted = _unquoted(found["lit"])
    if quoted is None:
        return None
    literal = facts.plain(quoted).strip()
    folds = found.get("op") is None  # `is` folds case, `==` does not (openprose.md 3.11)

    def test(value: Value) -> bool | None:
        text = facts.plain(facts.short(value) or "") if facts.short(value) is not None else None
        if text is None or (value is None and not literal):
            return None
        if (text == literal) != (facts.looser(text) == facts.looser(literal)):
            return None
        shown, wanted = (text.casefold(), literal.casefold()) if folds else (text, literal)
        if shown == wanted:
            return True
        if _bare_version(text) == _bare_version(literal) and text != literal:
            return None  # v1.2.3, 1.2.3 and 1.2.3.0
        left, right = facts.number(text), facts.number(literal)
        if re.fullmatch(r"[\d.,%\s]+", text + literal) and (text.lstrip("0") or "0") == (literal.lstrip("0") or "0"):
            return None  # 7 is 007 if it is a number
        if left is not None and right is not None and left[0] == right[0]:
            return None  # 1.10 is 1.1 if it is a number, but not if it is a version; 50 % may be meant by 50
        if not folds:
            return False
        if {shown, wanted} <= facts.YES or {shown, wanted} <= facts.NO:
            return None
        if isinstance(value, bool) and wanted not in facts.YES | facts.NO:
            return None
        # "I choose query." may be meant by "query"
        return None if wanted and re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", shown) else False

    return test


def _bare_version(text: str) -> str:
    """Return a version without its optional parts; any other text unchanged."""
    match = re.fullmatch(r"[vV]?(\d+(?:\.\d+)*?)(?:\.0+)*", text)
    return match[1] if match is not None and re.search(r"[.vV]", text) else text


def _unless_field(test: Test) -> Test:
    """Return the test, but Unknown for an object that has a field of that name: {"empty": true}."""

    def careful(value: Value) -> bool | None:
        data = value if isinstance(value, dict) else facts.structure(facts.text(value) or "")
        return None if isinstance(data, dict) and _STATES & data.keys() else test(value)

    return careful


_STATES = frozenset(("empty", "specified", "given", "set", "provided", "supplied"))


def _yes_no(found: Mapping[str, str | None]) -> Test:
    wanted = found["yes"] in ("yes", "true")

    def test(value: Value) -> bool | None:
        shown = facts.yes_no(value)
        return None if shown is None else shown == wanted

    return test


def _word(found: Mapping[str, str | None]) -> Test:
    words = " ".join((found["words"] or "").split()).casefold()

    def test(value: Value) -> bool | None:
        if (shown := facts.field(value, words)) is not None:
            return shown  # an object with this field: {"approved": false}
        # no match is Unknown, because another word may mean the same
        return True if facts.plain(facts.short(value) or "").casefold() == facts.plain(words) else None

    return test


def is_true(value: Value) -> bool | None:
    """Return a boolean value itself, for a condition that is only a path. Texts are left to other judges."""
    return value if isinstance(value, bool) else None


def equal_or(sign: str | None) -> str:
    return "==" if sign in ("!=", "≠", "=", None) else sign


TESTS: dict[str, Callable[[Mapping[str, str | None]], Test | None]] = {
    "empty": lambda found: _unless_field(facts.empty),
    "given": lambda found: _unless_field(facts.given),
    "exit": _exit,
    "text": _text,
    "pattern": _pattern,
    "number": _number,
    "count": _count,
    "equal": _equal,
    "yes-no": _yes_no,
    "word": _word,
    "numbers": lambda found: lambda value: None,
    "null": lambda found: _null,
    "error": lambda found: _error,
    "sign": _sign,
    "version": _version,
    "items": lambda found: lambda value: None if (count := facts.count(value, "item")) is None else count[0] > 0,
}


def _unquoted(literal: str | None) -> str | None:
    """Return the text inside the quotes; None if `\\n` or `\\t` may be meant literally, or as one character."""
    literal = literal or '""'
    if literal[0] != '"':
        return literal[1:-1]
    return re.sub(r"\\(.)", r"\1", literal[1:-1]) if not re.search(r"(?<!\\)(?:\\\\)*\\\w", literal) else None
