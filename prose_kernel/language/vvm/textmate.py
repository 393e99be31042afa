"""Builds the TextMate grammar of VVM from the reserved words and the names of the standard library."""

from __future__ import annotations

from typing import Any, Final

from prose_kernel.language.textmate import any_of, between, include, match
from prose_kernel.language.textmate import grammar as grammar_of
from prose_kernel.language.vvm.names import CONSTANTS, LIBRARY, OPERATORS, RESERVED

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"


def grammar() -> dict[str, Any]:
    """Return the grammar in the form that editors read."""
    keywords = RESERVED - OPERATORS - CONSTANTS
    defined = {1: "keyword.control.vvm", 2: "entity.name.function.vvm"}
    agent = {1: "keyword.control.vvm", 2: "entity.name.type.vvm"}
    key = match(rf"{_NAME}(?=[ \t]*(?:=(?!=)|:))", "variable.parameter.vvm")
    code = [
        match(r"#.*$", "comment.line.number-sign.vvm"),
        include("triple"),
        include("string"),
        include("template"),
        match(rf"\b(def)[ \t]+({_NAME})", captures=defined),
        match(rf"\b(agent)[ \t]+({_NAME})", captures=agent),
        match(rf"(\.)[ \t]*({_NAME})", captures={1: "punctuation.accessor.vvm", 2: "variable.other.member.vvm"}),
        match(rf"(@)[ \t]*({_NAME})", captures={1: "keyword.operator.vvm", 2: "entity.name.type.vvm"}),
        match(rf"\b(?:{any_of(OPERATORS)})\b", "keyword.operator.word.vvm"),
        match(rf"\b(?:{any_of(CONSTANTS)})\b", "constant.language.vvm"),
        match(rf"\b(?:{any_of(keywords)})\b", "keyword.control.vvm"),
        match(rf"\b(?:{any_of(LIBRARY)})\b", "support.function.vvm"),
        match(_NAME, "variable.other.vvm"),
        match(r"[0-9]+(?:\.[0-9]+)?", "constant.numeric.vvm"),
        match(r"==|!=|<=|>=|[=<>+?@-]", "keyword.operator.vvm"),
        include("bracket"),
        match(r"[:,.)\]}]", "punctuation.vvm"),
    ]
    return grammar_of(
        "vvm",
        "VVM",
        {
            "code": code,
            "bracket": [between(r"[(\[{]", r"[)\]}]", "", [key, include("code")])],
            "triple": [between(r'"""', r'"""', "string.quoted.triple.vvm", [include("escape")])],
            "string": [between(r'"', r'"|$', "string.quoted.double.vvm", [include("escape")])],
            "escape": [match(r"\\(?:u[0-9A-Fa-f]{4}|.)", "constant.character.escape.vvm")],
            "template": [
                between(
                    "`",
                    "`",
                    "string.interpolated.vvm",
                    [
                        match(r"\\`|\{\{|\}\}", "constant.character.escape.vvm"),
                        match(rf"\{{(?:{_NAME}(?:\.{_NAME})*)?\}}", "variable.other.interpolation.vvm"),
                    ],
                )
            ],
        },
    )
