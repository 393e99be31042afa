"""The statement text that a binding keeps (openprose.md 7.4)."""

from __future__ import annotations

import pytest
from machine.fakes import World, lines

from prose_kernel.language.source import Source, Span
from prose_kernel.machine.openprose.program_text import statement_text


def text_of(statement: str, indent: int) -> str:
    margin = " " * indent
    source = Source(f"do:\n{margin}{statement}\n")
    return statement_text(source, Span(4 + indent, len(source.text) - 1))


@pytest.mark.parametrize(
    ("statement", "kept"),
    [
        ("let x = 1", "let x = 1"),
        ('let x = session "a"\n    model: opus', 'let x = session "a"\n  model: opus'),
        ("let x = [\n    1,\n\n  2\n  ]", "let x = [\n  1,\n\n2\n]"),
        (
            'let x = exec """\n  cd a\nmake\n  """\n    timeout: "5s"',
            'let x = exec """\n  cd a\nmake\n  """\n  timeout: "5s"',
        ),
        ("let x = ***\n  a\n  ***", "let x = ***\n  a\n  ***"),
        (
            'let x = session "a"\n    # said """ here\n    model: opus',
            'let x = session "a"\n  # said """ here\n  model: opus',
        ),
    ],
)
def test_further_lines_lose_the_indentation_of_the_statement(statement: str, kept: str) -> None:
    assert text_of(statement, 2) == kept


def test_a_statement_in_the_first_column_keeps_its_indentation() -> None:
    text = 'let x = exec """\n  a\n"""\n    timeout: "5s"'
    assert statement_text(Source(text), Span(0, len(text))) == text


async def test_bindings_and_sessions_keep_the_statement() -> None:
    w = World()
    await w.run(
        lines("do:", "  do:", '    let x = session "a"', "      model: opus", "    let y = [", "      1", "    ]")
    )
    assert w.store.kept["x"].source == 'let x = session "a"\n  model: opus'
    assert w.store.kept["y"].source == "let y = [\n  1\n]"
