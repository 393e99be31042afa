"""The TextMate grammars agree with the lexers of the languages."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from labextension.test_highlighting import LINE_WITH, correct_programs, differences
from language.vvm.character_kinds import kinds, without_errors
from lsp.textmate import Interpreter

from prose_kernel.language.vvm.names import LIBRARY, RESERVED
from prose_kernel.runs import languages

PROSE = Interpreter(languages.OPENPROSE.grammar())
VVM = Interpreter(languages.VVM.grammar())

STYLES = {
    "comment": "comment",
    "string.other": "string.special emphasis",
    "string": "string",
    "constant.character": "string.special",
    "constant.numeric": "number",
    "constant.language": "bool",
    "variable.other.interpolation": "variableName.special",
    "variable.other.property": "propertyName",
    "variable": "variableName",
    "keyword.control": "keyword",
    "keyword.operator.word": "operatorKeyword",
    "keyword.operator": "operator",
    "punctuation": "punctuation",
}


def style(scope: str) -> str:
    return next((shown for prefix, shown in STYLES.items() if scope.startswith(prefix)), "")


def test_colours_of_openprose_programs_agree_with_the_lexer() -> None:
    wrong = {}
    number = 0
    for name, text in correct_programs():
        if len(text) > 8_000:
            continue
        number += 1
        found = list(differences(text, [style(scope) for scope in PROSE.scopes(text)]))
        if found:
            wrong[name] = found
    assert number > 300
    assert wrong == {}


def test_every_word_of_openprose_has_a_colour() -> None:
    plain = []
    for word, line in LINE_WITH.items():
        at = next(match for match in _words(line, word))
        if not {style(scope) for scope in PROSE.scopes(line)[at : at + len(word)]} <= {
            "keyword",
            "operatorKeyword",
            "bool",
        }:
            plain.append(word)
    assert plain == []


def _words(line: str, word: str) -> Iterator[int]:
    at = line.find(word)
    while at >= 0:
        if not line[at + len(word) : at + len(word) + 1].isalnum() and not line[max(0, at - 1) : at].isalnum():
            yield at
        at = line.find(word, at + 1)


SCOPES = {
    "comment": ("comment",),
    "string": ("string.quoted", "constant.character"),
    "template": ("string.interpolated", "constant.character", "variable.other.interpolation"),
    "number": ("constant.numeric",),
    "name": ("variable", "entity.name", "support.function"),
    "reserved": ("keyword.control", "keyword.operator.word", "constant.language"),
    "sign": ("keyword.operator", "punctuation", ""),
}


def test_colours_of_vvm_programs_agree_with_the_lexer() -> None:
    wrong = {}
    programs = [(name, text) for name, text in without_errors() if len(text) < 8_000]
    assert len(programs) > 40
    for name, text in programs:
        scopes = VVM.scopes(text)
        bad = [
            f"line {text.count(chr(10), 0, at) + 1}: {text[at]!r} is {scope or 'plain'}, not {kind}"
            for at, (kind, scope) in enumerate(zip(kinds(text), scopes, strict=True))
            if kind and text[at] not in " \n" and not scope.startswith(SCOPES[kind])
        ]
        if bad:
            wrong[name] = bad
    assert wrong == {}


def test_every_reserved_word_and_library_function_of_vvm_has_a_colour() -> None:
    words = sorted(RESERVED | set(LIBRARY))
    assert [word for word in words if VVM.scopes(word)[0].startswith("variable")] == []


def test_patterns_mean_the_same_in_editors_and_in_these_tests() -> None:
    """VS Code uses Oniguruma, where `[]` is an empty class; other editors support fewer patterns."""
    for interpreter in (PROSE, VVM):
        for rules in interpreter.grammar["repository"].values():
            for rule in rules["patterns"]:
                for pattern in (rule[key] for key in ("match", "begin", "end") if key in rule):
                    assert not re.search(r"(?<!\\)\[\^?\]|\(\?P|[*+?]\+|\\[AZ]", pattern), pattern


@pytest.mark.parametrize(
    ("text", "at", "scope"),
    [
        ('let x = "a {b.c[0]} {{d}} \\{e}"', 12, "variable.other.interpolation.prose"),
        ('let x = "a {b.c[0]} {{d}} \\{e}"', 21, "string.quoted.double.prose"),
        ('let x = "a {b.c[0]} {{d}} \\{e}"', 26, "constant.character.escape.prose"),
        ("agent writer:", 6, "variable.other.definition.prose"),
        ('exec "a"\n  timeout: "3s"', 11, "variable.other.property.prose"),
        ("let exec = 1", 4, "variable.other.definition.prose"),
        ("exec = 1", 0, "variable.other.prose"),
        ('session "never closed\nlet x = 1', 22, "keyword.control.prose"),
    ],
)
def test_characters_of_openprose_have_their_scopes(text: str, at: int, scope: str) -> None:
    assert PROSE.scopes(text)[at] == scope
