"""TextMate grammars of the languages, which VS Code and other editors use for colours.

A grammar is built from the token tables of its language. Patterns use only syntax that both Oniguruma and Python's `re`
understand, so that the tests can read a grammar as an editor does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from prose_kernel.language.openprose.keywords import CONSTANTS, KEYWORDS, NEVER_BEFORE, ONLY_BEFORE
from prose_kernel.language.vvm import names

Rule = dict[str, Any]


def _match(pattern: str, name: str = "", captures: Mapping[int, str] | None = None) -> Rule:
    """Return a rule for text within one line."""
    rule: Rule = {"match": pattern}
    if name:
        rule["name"] = name
    if captures:
        rule["captures"] = {str(number): {"name": scope} for number, scope in captures.items()}
    return rule


def _between(begin: str, end: str, name: str, patterns: Iterable[Rule] = ()) -> Rule:
    """Return a rule for text from one pattern to another, over any number of lines."""
    rule: Rule = {"begin": begin, "end": end, "patterns": list(patterns)}
    if name:
        rule["name"] = name
    return rule


def _include(name: str) -> Rule:
    """Return a reference to the rules of that name in the repository."""
    return {"include": f"#{name}"}


def _any_of(words: Iterable[str]) -> str:
    """Return a pattern for any of the words, longer ones first."""
    return "|".join(sorted(words, key=lambda word: (-len(word), word)))


def _grammar(name: str, title: str, repository: Mapping[str, Iterable[Rule]]) -> Rule:
    """Return a grammar whose rules are the rules `code` of its repository."""
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": title,
        "scopeName": f"source.{name}",
        "patterns": [_include("code")],
        "repository": {key: {"patterns": list(rules)} for key, rules in repository.items()},
    }


# ---------------------------------------------------------------- OpenProse

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


def _keyword(kind: str) -> Rule:
    """Return the pattern of a keyword, with a lookahead for the tokens that must or must not follow it."""
    word = kind.lower()
    if kind in ONLY_BEFORE:
        ahead = rf"(?=[ \t]*(?:{_following(ONLY_BEFORE[kind])}))"
    else:
        never = NEVER_BEFORE[kind]
        ahead = rf"(?![ \t]*(?:{_following(never)}))" if never else ""
    scope = "keyword.operator.word.prose" if kind in _OPERATORS else "keyword.control.prose"
    return _match(f"{_BEFORE}{word}{_NAME_END}{ahead}", scope)


def _headers() -> str:
    """Return a pattern for the keywords before a colon; at the beginning of a line they aren't names of properties."""
    return _any_of(
        word
        for word, kind in KEYWORDS.items()
        if "COLON" in (ONLY_BEFORE[kind] if kind in ONLY_BEFORE else {"COLON"} - NEVER_BEFORE[kind])
    )


def openprose() -> Rule:
    """Return the grammar of OpenProse.

    All keywords are soft: the next token decides whether a word is one, so each becomes a pattern with a lookahead.
    Cases that depend on the position in the grammar (a block named `session`) are left to the language server.
    """
    declared = {1: "keyword.control.prose", 2: "variable.other.definition.prose"}
    piped = {1: "keyword.operator.prose", 2: "keyword.control.prose"}
    named = {1: "keyword.control.prose", 2: "variable.other.prose"}
    property_ = {1: "variable.other.property.prose"}
    inner = [_include("escape"), _include("interpolation")]
    code = [
        _match(r"#.*$", "comment.line.number-sign.prose"),
        _include("triple"),
        _include("string"),
        _include("marker"),
        _match(rf"{_BEFORE}({_any_of(_DECLARES)})[ \t]+({_NAME})(?![ \t]*:[ \t]*{_NAME})", captures=declared),
        _match(rf"{_BEFORE}(do)[ \t]+({_NAME})", captures=named),
        _match(rf"{_BEFORE}(session|resume)[ \t]*:[ \t]*({_NAME})", captures=named),
        _match(rf"(\|)[ \t]*(map|pmap|filter|reduce){_NAME_END}", captures=piped),
        _match(rf"^[ \t]+(?!(?:{_headers()}){_NAME_END})({_NAME})[ \t]*(?=:)", captures=property_),
        *(_keyword(kind) for kind in KEYWORDS.values()),
        _match(rf"{_BEFORE}call(?=[ \t]+[A-Za-z_\"])", "keyword.control.prose"),
        _match(rf"{_BEFORE}as(?=[ \t]+[A-Za-z_])", "keyword.control.prose"),
        _match(rf"{_BEFORE}(?:from(?=[ \t]*\")|in(?=[ \t]+[^=:,|)]))", "keyword.control.prose"),
        _match(rf"(?<=loop)[ \t]+(until|while){_NAME_END}", captures={1: "keyword.control.prose"}),
        _match(rf"{_BEFORE}(?:{_any_of(CONSTANTS)}){_NAME_END}", "constant.language.prose"),
        _match(rf"(?<![A-Za-z0-9_-])[0-9]+(?:\.[0-9]+)?(?:{_UNITS})?", "constant.numeric.prose"),
        _match(_NAME, "variable.other.prose"),
        _match(r"==|!=|<=|>=|->|[=|<>+-]", "keyword.operator.prose"),
        _match(r"[\[\](){}:,.]", "punctuation.prose"),
    ]
    nested = _between(_NESTED, r'^[ \t]*"""(?=[ \t]*$)', "", [_include("nested"), *inner])
    return _grammar(
        "prose",
        "OpenProse",
        {
            "code": code,
            "nested": [nested],
            "triple": [
                _between(r'"""$', r'(?<!\\)"{3,}', "string.quoted.triple.prose", [_include("nested"), *inner]),
                _between(r'"""', r'"{3,}', "string.quoted.triple.prose", inner),
            ],
            "string": [
                _between(r'"(?=(?:[^"\\]|\\.)*")', r'"', "string.quoted.double.prose", inner),
                _between(r'"', r'"|^(?=\S)', "string.quoted.double.prose", inner),
            ],
            "marker": [
                _between(r"\*\*\*", r"\*\*\*", "string.other.discretion.prose", [_include("interpolation")]),
                _between(r"\*\*", r"\*\*", "string.other.discretion.prose", [_include("interpolation")]),
            ],
            "escape": [_match(r"\\.", "constant.character.escape.prose")],
            "interpolation": [_match(rf"(?<!\{{)\{{{_PATH}\}}(?!\}})", "variable.other.interpolation.prose")],
        },
    )


# ---------------------------------------------------------------- VVM

_VVM_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"


def vvm() -> Rule:
    """Return the grammar of VVM."""
    keywords = names.RESERVED - names.OPERATORS - names.CONSTANTS
    defined = {1: "keyword.control.vvm", 2: "entity.name.function.vvm"}
    agent = {1: "keyword.control.vvm", 2: "entity.name.type.vvm"}
    key = _match(rf"{_VVM_NAME}(?=[ \t]*(?:=(?!=)|:))", "variable.parameter.vvm")
    code = [
        _match(r"#.*$", "comment.line.number-sign.vvm"),
        _include("triple"),
        _include("string"),
        _include("template"),
        _match(rf"\b(def)[ \t]+({_VVM_NAME})", captures=defined),
        _match(rf"\b(agent)[ \t]+({_VVM_NAME})", captures=agent),
        _match(rf"(\.)[ \t]*({_VVM_NAME})", captures={1: "punctuation.accessor.vvm", 2: "variable.other.member.vvm"}),
        _match(rf"(@)[ \t]*({_VVM_NAME})", captures={1: "keyword.operator.vvm", 2: "entity.name.type.vvm"}),
        _match(rf"\b(?:{_any_of(names.OPERATORS)})\b", "keyword.operator.word.vvm"),
        _match(rf"\b(?:{_any_of(names.CONSTANTS)})\b", "constant.language.vvm"),
        _match(rf"\b(?:{_any_of(keywords)})\b", "keyword.control.vvm"),
        _match(rf"\b(?:{_any_of(names.LIBRARY)})\b", "support.function.vvm"),
        _match(_VVM_NAME, "variable.other.vvm"),
        _match(r"[0-9]+(?:\.[0-9]+)?", "constant.numeric.vvm"),
        _match(r"==|!=|<=|>=|[=<>+?@-]", "keyword.operator.vvm"),
        _include("bracket"),
        _match(r"[:,.)\]}]", "punctuation.vvm"),
    ]
    return _grammar(
        "vvm",
        "VVM",
        {
            "code": code,
            "bracket": [_between(r"[(\[{]", r"[)\]}]", "", [key, _include("code")])],
            "triple": [_between(r'"""', r'"""', "string.quoted.triple.vvm", [_include("escape")])],
            "string": [_between(r'"', r'"|$', "string.quoted.double.vvm", [_include("escape")])],
            "escape": [_match(r"\\(?:u[0-9A-Fa-f]{4}|.)", "constant.character.escape.vvm")],
            "template": [
                _between(
                    "`",
                    "`",
                    "string.interpolated.vvm",
                    [
                        _match(r"\\`|\{\{|\}\}", "constant.character.escape.vvm"),
                        _match(rf"\{{(?:{_VVM_NAME}(?:\.{_VVM_NAME})*)?\}}", "variable.other.interpolation.vvm"),
                    ],
                )
            ],
        },
    )
