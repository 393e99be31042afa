"""Scripts in the fences of a Markdown file: their lines and columns are those of the file (prose-md.md 1.1, 3.1)."""

from __future__ import annotations

from prose_kernel.language.openprose import compile_source
from prose_kernel.language.openprose.contracts import ScriptSource, script_source
from prose_kernel.language.source import Span

FILE = "# Title\n\n  ```prose\n  let x = 1\n    \n  ```\ntext\n\n~~~ prose\nlet y = zz\n~~~\n"


def source() -> ScriptSource:
    first, second = FILE.index("  let x"), FILE.index("let y")
    spans = [Span(first, FILE.index("  ```\ntext")), Span(second, FILE.index("~~~\n", second))]
    return script_source(FILE, [(spans[0], 2), (spans[1], 0)], name="f.prose.md")


def test_lines_and_columns_are_those_of_the_file() -> None:
    script = source()
    assert script.text.splitlines() == [
        " " * 7,
        "",
        " " * 10,
        "let x = 1",
        "  ",
        " " * 9,
        " " * 4,
        "",
        " " * 9,
        "let y = zz",
    ]
    assert script.text.index("let y") == FILE.index("let y")
    assert script.line_column(script.text.index("x")) == (4, 7)
    assert script.line_text(4) == "  let x = 1"
    assert script.line_column(script.text.index("y")) == (10, 5)


def test_findings_show_the_line_of_the_file() -> None:
    (found,) = compile_source(source()).diagnostics
    assert (found.code, found.line, found.column, found.source_line) == ("E131", 10, 9, "let y = zz")


def test_a_forgotten_indentation_is_found_in_a_shifted_fence() -> None:
    text = "   ```prose\n   if **it works**:\n   throw\n   ```\n"
    script = script_source(text, [(Span(12, text.rindex("   ```")), 3)], name="f.prose.md")
    first = compile_source(script).diagnostics[0]
    assert (first.code, first.line, first.column) == ("E147", 2, 4)
