"""Reading contract files: front matter, nodes, sections, and what is wrong with them (prose-md.md 1.1 to 1.4)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scaling import assert_linear

from prose_kernel.language.contracts.compile import compile_source, format_file, report
from prose_kernel.language.contracts.reader import blocks, read
from prose_kernel.language.contracts.symbols import index
from prose_kernel.language.contracts.tree import ContractFile
from prose_kernel.language.diagnostics import Profile, decode
from prose_kernel.language.source import Source

HEAD = "---\nname: brief\nkind: function\n---\n"
RETURNS = "### Returns\n- `brief`: a page\n"
GATEWAY = "---\nname: g\nkind: gateway\n---\n### Continuity: external-driven\n"


def findings(text: str, profile: Profile = "default") -> list[tuple[str, int, int]]:
    _, found = read(Source(text, "brief.prose.md"), profile)
    return sorted((one.code, one.line, one.column) for one in found)


def file(text: str) -> ContractFile:
    return read(Source(text, "brief.prose.md"))[0]


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("", "E302", 1),
        ("# A title\n", "E302", 1),
        ("---\nname: x\nkind: function\n", "E302", 1),
        ("---\n- a\n- b\n---\n", "E302", 1),
        ("---\nname: x\n---\n### Returns\n- a: b\n", "E302", 1),
        ("---\nname: x\nkind: [a\n---\n", "E302", 4),
        ("---\nname: x\nkind: banana\n---\n", "E300", 3),
        ("---\nname: x\nkind:\n  a: b\n---\n", "E300", 3),
        ("---\nname: x\nkind: service\n---\n### Ensures\n- a: b\n", "E301", 3),
        ("---\nname: x\nkind: test\n---\n### Expects\n- it works\n", "E350", 3),
        ("---\nname: x\nkind: responsibility\nid: abc\n---\n### Maintains\n- a: b\n", "W300", 4),
        ("---\nkind: function\n---\n" + RETURNS, "W303", 2),
        (HEAD + RETURNS + "```prose\nlet x = 1\n", "E304", 7),
        (HEAD + RETURNS + "## a\n" + RETURNS + "## `a`\n" + RETURNS, "E305", 10),
        (HEAD + RETURNS + "## brief\n" + RETURNS, "E305", 7),
        (HEAD + RETURNS + RETURNS, "E306", 7),
        (HEAD + RETURNS + "### ensures\n- a\n", "E307", 7),
        ("---\nname: x\nkind: responsibility\nid: 01ARZ3NDEKTSV4RRFFQ69G5FAV\n---\n### Requires\n- a: b\n", "E308", 3),
        ("---\nname: x\nkind: pattern\n---\n### Slots\n- a: b\n", "E308", 3),
        (HEAD + RETURNS + "### Requires\n- a: b\n", "E309", 7),
        (GATEWAY + "### Requires\n- a: b\n", "E309", 6),
        (HEAD + RETURNS + "## a\n### Maintains\n- b: c\n### Returns\n- d: e\n", "E309", 10),
        (HEAD + RETURNS + "### Parameter\n- a: b\n", "W301", 7),
        (HEAD + RETURNS + "### Slots\n- a: b\n", "W302", 7),
        (HEAD + RETURNS + "## How it works\n", "W304", 7),
        (HEAD + RETURNS + "### Parameters\n\n### Notes\nnone\n", "W305", 7),
        (HEAD + RETURNS + "### Memory\n- a\n", "W306", 7),
        (HEAD, "W307", 3),
        ("---\nname: g\nkind: gateway\n---\n### Continuity\nat noon\n", "W308", 5),
    ],
)
def test_each_finding_has_its_place(text: str, code: str, line: int) -> None:
    assert findings(text) == [(code, line, 1)] or (code, line, 1) in findings(text)
    assert {found[0] for found in findings(text)} <= {code, "E307", "E308"}


def test_a_strict_responsibility_needs_its_id() -> None:
    text = "---\nname: x\nkind: responsibility\n---\n### Maintains\n- a: b\n"
    assert findings(text) == [("W300", 3, 1)]
    assert findings(text, "strict") == [("E303", 3, 1)]


def test_other_sections_are_documentation() -> None:
    assert findings(HEAD + RETURNS + "### Notes\nnone\n### Metadata\n- a: b\n#### Deeper\n") == []


def test_names_of_sections_are_compared_without_case_and_inner_spaces() -> None:
    read_file = file("---\nname: t\nkind: test\nsubject: s\n---\n### expects   NOT\n- it fails\n")
    assert [section.name for section in read_file.own.sections] == ["Expects Not"]


def test_what_follows_the_colon_is_text_of_the_section() -> None:
    section = file(GATEWAY + "and more\n").own.section("Continuity")
    assert section is not None
    assert section.text == "external-driven\nand more"


def test_kinds_of_inline_nodes_follow_from_their_sections() -> None:
    text = HEAD + RETURNS + "".join(f"## n{at}\n### {name}\n- a: b\n" for at, name in enumerate(
        ["Returns", "Slots", "Requires", "Maintains", "Continuity", "Notes"]))  # fmt: skip
    kinds = [node.kind for node in file(text).nodes[1:]]
    assert kinds == ["function", "pattern", "responsibility", "responsibility", "responsibility", "function"]


def test_headings_inside_fences_are_text() -> None:
    text = HEAD + RETURNS + "~~~~ markdown\n## no node\n### Slots\n~~~\n~~~~\n## node\n" + RETURNS
    assert [node.name for node in file(text).nodes] == ["brief", "node"]
    assert findings(text) == []


def test_headings_and_fences_in_a_comment_are_text() -> None:
    hidden = "<!--\n## hidden\n\n### Parameters\n- `p`: words\n```prose\n-->\n"
    assert [node.name for node in file(HEAD + hidden + RETURNS).nodes] == ["brief"]
    assert findings(HEAD + hidden + RETURNS) == []
    assert [node.name for node in file(HEAD + RETURNS + hidden.replace("```prose\n-->", "")).nodes] == [
        "brief",
        "hidden",
    ]
    assert [node.name for node in file(HEAD + RETURNS + "<!-- one --> ## no\n## yes\n").nodes] == ["brief", "yes"]


def test_html_is_text() -> None:
    text = HEAD + RETURNS + "<details>\n<summary>### not a heading</summary>\n</details>\n<!-- a\n  comment -->\n"
    assert findings(text) == []
    assert [section.name for section in file(text).own.sections] == ["Returns"]


def test_a_name_comes_from_the_title_or_the_file() -> None:
    assert file("---\nkind: function\n---\n# A Good  Title!\n").own.name == "a-good-title"
    assert file("---\nkind: function\n---\n").own.name == "brief"


def test_crlf_and_bom_change_nothing() -> None:
    text = HEAD + RETURNS + "### Parameters\n- `a`: b\n## n\n### Returns\n- c: d\n"
    other = decode(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(), "brief.prose.md")
    assert read(other)[0].nodes == file(text).nodes


def test_a_large_file_is_read_in_linear_time() -> None:
    def work(size: int) -> Callable[[], object]:
        text = HEAD + RETURNS + "### Notes\n" + "- a line of text, `code`: and more of it\n" * size
        return lambda: file(text)

    assert_linear(work, 10_000)


@pytest.mark.parametrize(
    ("head", "part"),
    [
        ("", "## n{0}\n\n### Execution\n\n```prose\nreturn call unknown{0}\n```\n\n"),
        ("### Parameters\n", "- `p{0}`: words (default {0})\n"),
        ("### Execution\n", "```prose\nlet x{0} = {0}\n```\ntext\n"),
    ],
    ids=["unknown calls", "parameters", "fences"],
)
def test_checks_and_names_take_linear_time(head: str, part: str) -> None:
    def work(size: int) -> Callable[[], object]:
        source = Source(HEAD + RETURNS + head + "".join(part.format(at) for at in range(size)), "f.prose.md")
        return lambda: index(compile_source(source).program, source)

    assert_linear(work, 300)


LINES = st.sampled_from(
    [
        "---", "---", "kind: function", "kind: test", "name: x", "# t", "## n", "## `n`", "### Returns", "### Parameters",
        "### Slots: x", "#### `facet`", "```prose", "```", "   ```", "~~~", "````", "- `a`: b (default 3)", "  more", "",
        "- a (optional): b", "- `a`, `b` / `c`", "* x", "text", "\t- tab", "### Execution", "- [", "- name: {", "-", "####",
        "- `a` (x (y) z)", "kind: [", "&a *a", "- (", "\r", "``` a`b",
    ]
)  # fmt: skip
ANY_TEXT = st.one_of(st.text(max_size=300), st.lists(LINES, max_size=40).map("\n".join))


@settings(deadline=None)
@given(ANY_TEXT, st.booleans())
def test_any_text_is_read_and_its_blocks_tile_it(text: str, begins: bool) -> None:
    source = Source.of(HEAD + text if begins else text, "any.prose.md")
    found, diagnostics = read(source)
    assert "".join(source.slice(block.span) for block in found.blocks) == source.text
    assert found.blocks == tuple(blocks(source.text))
    spans = [node.span for node in found.nodes]
    assert all(a.end <= b.start for a, b in pairwise(spans))
    for node in found.nodes:
        for section in node.sections:
            assert node.span.start <= section.heading.start <= section.body.start <= section.body.end <= node.span.end
            for item in (*section.items, *section.parts):
                assert section.heading.start <= item.span.start <= item.span.end <= section.body.end
    assert all(one.render() and 1 <= one.line <= source.text.count("\n") + 1 for one in diagnostics)


PIECES = st.sampled_from(
    [
        "### Execution", "```prose", "return { x: 1 }", "let a = call n", "  b: a", "```", "### Patterns", "```yaml", "- name: i", "  pattern: p",
        "  with: { w: n }", "## n", "## p", "### Slots", "- `w`", "### Delegation", "call w", "### Returns", "- `x`: number", "### Config",
        "- c (default: {'a': 1}): d", "### Shape", "- `delegates`:", "  - `h`: does", "call h", "### Tools", "- `cli:jq`", "if it rains:", "   ```prose",
        "### Requires", "### Maintains", "#### `f`", "  - deep", "use \"./x\"", "  config: [", "### Fixtures", "- x: |", "### Expects", "- `__error.md` exists",
    ]
)  # fmt: skip
FRONTS = st.sampled_from(["function", "responsibility", "gateway", "pattern", "test\nsubject: n", "service"])


@settings(deadline=None)
@given(FRONTS, st.lists(PIECES, max_size=30).map("\n".join))
def test_any_file_is_compiled_and_formatted(kind: str, text: str) -> None:
    source = Source.of(f"---\nname: any\nkind: {kind}\n---\n{text}", "any.prose.md")
    for profile in ("default", "strict"):
        compiled = compile_source(source, profile=profile)
        lines = source.text.count("\n") + 1
        assert all(1 <= one.line <= lines and one.render() for one in compiled.diagnostics)
    assert report(compiled.program) is not None
    if compiled.ok:
        formatted = format_file(compiled.program)
        again = compile_source(Source(formatted, source.name), profile=profile)
        assert format_file(again.program) == formatted
