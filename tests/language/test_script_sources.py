"""Scripts in the fences of a Markdown file: positions refer to the file (prose-md.md 1.1, 3.1)."""

from __future__ import annotations

from functools import partial

from scaling import assert_linear

from prose_kernel.language.contracts import compile as contracts
from prose_kernel.language.nodes import walk
from prose_kernel.language.openprose import compile_source, tree
from prose_kernel.language.openprose.call_targets import ScriptSource
from prose_kernel.language.openprose.parser import parse
from prose_kernel.language.source import Source, Span

FILE = "# Title\n\n  ```prose\n  let x = 1\n    \n  ```\ntext\n\n~~~ prose\nlet y = zz\n~~~\n"


def script(text: str, *fences: tuple[int, int, int]) -> ScriptSource:
    parts = tuple((Span(start, end), margin) for start, end, margin in fences)
    return ScriptSource(text, "f.prose.md", fences=parts, file=Source(text))


def source() -> ScriptSource:
    first, second = FILE.index("  let x"), FILE.index("let y")
    return script(FILE, (first, FILE.index("  ```\ntext"), 2), (second, FILE.index("~~~\n", second), 0))


def test_every_part_of_the_tree_is_where_it_is_in_the_file() -> None:
    program = parse(source(), "prosescript").program
    names = [FILE[one.span.start : one.span.end] for one in walk(program) if isinstance(one, tree.Name)]
    assert sorted(names) == ["x", "y", "zz"]
    statements = [FILE[one.span.start : one.span.end] for one in program.items]
    assert statements == ["let x = 1", "let y = zz"]


def test_findings_show_the_line_of_the_file() -> None:
    (found,) = compile_source(source()).diagnostics
    assert (found.code, found.line, found.column, found.source_line) == ("E131", 10, 9, "let y = zz")
    assert FILE[found.span.start : found.span.end] == "zz"


def test_findings_of_the_parser_are_placed_in_the_file() -> None:
    text = "é\n    ```prose\n    let a = [1\n    ```\n"
    (found,) = compile_source(script(text, (text.index("    let"), text.rindex("    ```"), 4))).diagnostics
    assert (found.code, found.line, found.column) == ("E105", 3, 13)
    assert text[found.span.start : found.span.end] == "["


def test_a_forgotten_indentation_is_found_in_a_shifted_fence() -> None:
    text = "   ```prose\n   if **it works**:\n   throw\n   ```\n"
    first = compile_source(script(text, (12, text.rindex("   ```"), 3))).diagnostics[0]
    assert (first.code, first.line, first.column) == ("E147", 2, 4)
    assert first.hint is not None
    assert "line 3" in first.hint


def _many(scripts: int) -> Source:
    node = (
        "## n{}\n\n### Returns\n\n- `b`: text\n\n### Execution\n\n  ```prose\n  let b = call n{}\n  return b\n  ```\n\n"
    )
    text = "---\nname: many\nkind: function\n---\n\n### Returns\n\n- `x`: text\n\n"
    return Source(text + "".join(node.format(at, (at + 1) % scripts) for at in range(scripts)), "many.prose.md")


def test_many_scripts_of_one_file_cost_linear_time() -> None:
    assert contracts.compile_source(_many(3)).ok
    assert_linear(lambda size: partial(contracts.compile_source, _many(size)), 300)
