"""Mistakes of newcomers from a shell, Python or another language: one finding, and the correct form.

The programs and the findings are the cases `typed` of the catalogues, `messages_openprose.txt` and `messages_vvm.txt`.
"""

from __future__ import annotations

import re

import pytest
from language.messages import cases, found

from prose_kernel.language.openprose import compile_source, hints
from prose_kernel.language.source import Source

TYPED = [case.program.removesuffix("\n") for case in cases("openprose", "typed")]


@pytest.mark.parametrize("typed", TYPED)
def test_one_finding(typed: str) -> None:
    assert len(compile_source(Source.of(typed + "\n")).diagnostics) == 1


@pytest.mark.parametrize("program", [case.program for case in cases("vvm", "typed")])
def test_one_finding_in_vvm_with_a_hint(program: str) -> None:
    (one,) = found("vvm", program)
    assert one.hint


def advised(typed: str) -> str | None:
    """Return the program with the line that the hint suggests, if it suggests a whole line."""
    found = compile_source(Source.of(typed + "\n")).diagnostics[0]
    written = re.fullmatch(
        r"(?:[a-z -]+, |[a-z ]+: )?(?:write )?`([^`]+)`(?:, and indent the lines below it.*)?", found.hint or ""
    )
    if written is None or not re.match(r"(?!gate )[a-z]+ (?!\.\.\.)", written[1]) or "..." in written[1]:
        return None  # a part of a line, or an example
    rows = typed.split("\n")
    rows[found.line - 1] = written[1]
    rows = [row for row in rows if row != "}" and (written[1].endswith(":") or not row.startswith(" "))]
    if rows[-1].endswith(":"):
        rows.append('  exec "true"')
    return "\n".join(rows)


ADVISED = {typed: text for typed in TYPED if (text := advised(typed)) is not None}


@pytest.mark.parametrize("typed", ADVISED)
def test_what_the_hint_says_to_type_can_be_typed(typed: str) -> None:
    found = compile_source(Source.of(ADVISED[typed] + "\n")).diagnostics
    undeclared = ("E131", "W135") if "let " not in typed else ()
    assert [d.render() for d in found if d.severity == "error" and d.code not in undeclared] == []


def test_patterns_are_tried_on_the_beginning_of_a_long_statement_only(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    monkeypatch.setattr(hints, "line", tried.append)
    listed = "a = [i for i in range(3)]\n" * 800
    assert [d.code for d in compile_source(Source(f'let x = 1\n"""{listed}""" + x\n')).diagnostics] == ["E005"]
    assert [len(text) for text in tried] == [hints.MAX_QUOTED + len("...")]


def test_most_hints_write_a_whole_line() -> None:
    assert len(ADVISED) > len(TYPED) / 2


@pytest.mark.parametrize(
    "text",
    [
        "let x 5\noutput y = x\noutput z = x",
        "var x = 5\noutput y = x",
        'let x = "unclosed\noutput y = x',
        "use lib.prose\nlet r = lib(a: 1)",
        'def greet(who):\n  exec "echo hello"\ndo greet("you")',
    ],
)
def test_what_could_not_be_read_is_declared_all_the_same(text: str) -> None:
    assert len(compile_source(Source.of(text + "\n")).diagnostics) == 1
