"""Makes the TextMate grammar of OpenProse from the tables of keywords.

All keywords are soft: the next token decides whether a word is one, so each becomes a pattern with a lookahead. Cases
that depend on the position in the grammar (a block named `session`) are left to the language server.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from prose_kernel.language.openprose.keywords import CONSTANTS, KEYWORDS, NEVER_BEFORE, ONLY_BEFORE
from prose_kernel.language.textmate import any_of, between, include, match
from prose_kernel.language.textmate import grammar as grammar_of

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*"
_PATH: Final = rf"{_NAME}(?:\.{_NAME}|\[(?:[0-9]+|{_NAME})\])*"
_BEFORE: Final = r"(?<![A-Za-z0-9_.-])"
_NAME_END: Final = r"(?![A-Za-z0-9_]|-[A-Za-z0-9_])"
_SIGNS: Final = {
    "NAME": "[A-Za-z_]", "STRING": '"', "DISCRETION": r"\*\*", "COLON": ":", "LPAR": r"\(", "NUMBER": "[0-9]",
    "_NL": "(?:#|$)", "EQUALS": "=(?!=)", "DOT": r"\.", "COMMA": ",", "PIPE": r"\|", "MINUS": "-", "PLUS": r"\+",
}  # fmt: skip
_UNITS: Final = r"(?:ms|[smhd])(?:[0-9]+(?:ms|[smhd]))*(?![A-Za-z0-9_])"
_NESTED: Final = r'(?::[ \t]*|=[ \t]*|\b(?:session|exec|throw)[ \t]+)"""$'
"""Matches the beginning of a triple-quoted string inside another one (docs/reference/openprose.md 1.5)."""
_OPERATORS: Final = frozenset({"AND", "OR", "NOT", "IS"})
_DECLARES: Final = ("let", "const", "agent", "block", "gate", "input", "output")


def _following(kinds: Iterable[str]) -> str:
    return "|".join(sorted(_SIGNS.get(kind, rf"{kind}{_NAME_END}") for kind in kinds))


def _keyword(kind: str) -> dict[str, Any]:
    """Return the pattern of a keyword, with a lookahead for the tokens that must or must not follow it."""
    word = kind.lower()
    if kind in ONLY_BEFORE:
        ahead = rf"(?=[ \t]*(?:{_following(ONLY_BEFORE[kind])}))"
    else:
        never = NEVER_BEFORE[kind]
        ahead = rf"(?![ \t]*(?:{_following(never)}))" if never else ""
    scope = "keyword.operator.word.prose" if kind in _OPERATORS else "keyword.control.prose"
    return match(f"{_BEFORE}{word}{_NAME_END}{ahead}", scope)


def _headers() -> str:
    """Return a pattern for the keywords before a colon; at the beginning of a line they aren't names of properties."""
    return any_of(
        word
        for word, kind in KEYWORDS.items()
        if "COLON" in (ONLY_BEFORE[kind] if kind in ONLY_BEFORE else {"COLON"} - NEVER_BEFORE[kind])
    )


def grammar() -> dict[str, Any]:
    declared = {1: "keyword.control.prose", 2: "variable.other.definition.prose"}
    piped = {1: "keyword.operator.prose", 2: "keyword.control.prose"}
    named = {1: "keyword.control.prose", 2: "variable.other.prose"}
    property_ = {1: "variable.other.property.prose"}
    inner = [include("escape"), include("interpolation")]
    code = [
        match(r"#.*$", "comment.line.number-sign.prose"),
        include("triple"),
        include("string"),
        include("marker"),
        match(rf"{_BEFORE}({any_of(_DECLARES)})[ \t]+({_NAME})(?![ \t]*:[ \t]*{_NAME})", captures=declared),
        match(rf"{_BEFORE}(do)[ \t]+({_NAME})", captures=named),
        match(rf"{_BEFORE}(session|resume)[ \t]*:[ \t]*({_NAME})", captures=named),
        match(rf"(\|)[ \t]*(map|pmap|filter|reduce){_NAME_END}", captures=piped),
        match(rf"^[ \t]+(?!(?:{_headers()}){_NAME_END})({_NAME})[ \t]*(?=:)", captures=property_),
        *(_keyword(kind) for kind in KEYWORDS.values()),
        match(rf"{_BEFORE}call(?=[ \t]+[A-Za-z_\"])", "keyword.control.prose"),
        match(rf"{_BEFORE}as(?=[ \t]+[A-Za-z_])", "keyword.control.prose"),
        match(rf"{_BEFORE}(?:from(?=[ \t]*\")|in(?=[ \t]+[^=:,|)]))", "keyword.control.prose"),
        match(rf"(?<=loop)[ \t]+(until|while){_NAME_END}", captures={1: "keyword.control.prose"}),
        match(rf"{_BEFORE}(?:{any_of(CONSTANTS)}){_NAME_END}", "constant.language.prose"),
        match(rf"(?<![A-Za-z0-9_-])[0-9]+(?:\.[0-9]+)?(?:{_UNITS})?", "constant.numeric.prose"),
        match(_NAME, "variable.other.prose"),
        match(r"==|!=|<=|>=|->|[=|<>+-]", "keyword.operator.prose"),
        match(r"[\[\](){}:,.]", "punctuation.prose"),
    ]
    nested = between(_NESTED, r'^[ \t]*"""(?=[ \t]*$)', "", [include("nested"), *inner])
    return grammar_of(
        "prose",
        "OpenProse",
        {
            "code": code,
            "nested": [nested],
            "triple": [
                between(r'"""$', r'(?<!\\)"{3,}', "string.quoted.triple.prose", [include("nested"), *inner]),
                between(r'"""', r'"{3,}', "string.quoted.triple.prose", inner),
            ],
            "string": [
                between(r'"(?=(?:[^"\\]|\\.)*")', r'"', "string.quoted.double.prose", inner),
                between(r'"', r'"|^(?=\S)', "string.quoted.double.prose", inner),
            ],
            "marker": [
                between(r"\*\*\*", r"\*\*\*", "string.other.discretion.prose", [include("interpolation")]),
                between(r"\*\*", r"\*\*", "string.other.discretion.prose", [include("interpolation")]),
            ],
            "escape": [match(r"\\.", "constant.character.escape.prose")],
            "interpolation": [match(rf"(?<!\{{)\{{{_PATH}\}}(?!\}})", "variable.other.interpolation.prose")],
        },
    )
