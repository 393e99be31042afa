"""One document as Markdown and plain text: both have the same content, and hostile text is inert in them."""

from __future__ import annotations

import pytest

from prose_kernel.views import document as doc
from prose_kernel.views.bundle import bundle, markdown
from prose_kernel.views.document import plain_text
from prose_kernel.views.escaping import clip, preview

HOSTILE = "<img src=x> **b** | `c` ![i](http://x) \x1b[2J"
BLOCKS = (
    doc.line(HOSTILE),
    doc.line(doc.Code(HOSTILE)),
    doc.line(doc.Strong(HOSTILE)),
    doc.line(doc.Backticked(HOSTILE)),
    doc.Items([[HOSTILE]]),
    doc.Listing(HOSTILE, "prose"),
    doc.Untrusted(HOSTILE),
    doc.Table(("a", "b"), [(HOSTILE, HOSTILE)]),
    doc.Table((HOSTILE,), [(HOSTILE,)], (), (0,), data=True),
)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: type(block).__name__)
def test_hostile_text_in_documents_is_inert(block: doc.Block) -> None:
    rich, plain = markdown(block), plain_text(block)
    assert "<img" not in rich and "](http" not in rich.replace("[i](http", "", isinstance(block, doc.Untrusted))
    assert "\x1b" not in rich + plain and "<img" in plain


def test_a_group_merges_facts_and_keeps_its_gap() -> None:
    inner = doc.group(doc.paragraph("b"), facts={"inner": 1})
    shown = bundle(doc.group(doc.paragraph("*a*", "a"), inner, gap="\n\n", facts={"outer": 2}))
    assert shown.data == {"text/markdown": "*a*\n\nb", "text/plain": "a\n\nb"}
    assert shown.facts == {"inner": 1, "outer": 2}


def test_a_block_without_plain_text_leaves_no_gap() -> None:
    document = doc.group(doc.paragraph("a"), doc.Rich(doc.paragraph("---")), doc.paragraph("b"))
    assert (markdown(document), plain_text(document)) == ("a\n\n---\n\nb", "a\nb")


def test_a_table_aligns_columns_and_counts_omitted_rows() -> None:
    table = doc.Table(("n", "value"), [("a", "1"), ("日本", "22"), ("c", "3")], most=2)
    assert plain_text(table) == "n     value\na     1\n日本  22\n… and 1 more"
    assert markdown(table).endswith("\n\n… and 1 more")


def test_a_table_of_data_aligns_numbers_on_the_right() -> None:
    table = doc.Table(("n", "value"), [("a", "1"), ("b", "22")], (), (1,), data=True, rest="1 more row")
    assert plain_text(table) == "n  value\n-  -----\na      1\nb     22\n… (1 more row)"
    assert markdown(table).split("\n")[1] == "| --- | ---: |"


def test_tables_may_have_no_head_or_no_rows() -> None:
    assert plain_text(doc.Table((), [("a", "b"), ("cc", "d")], indent=2)) == "  a   b\n  cc  d"
    empty = doc.Table(("a",), [], empty="Nothing yet.")
    assert bundle(empty).data == {"text/markdown": "Nothing yet.", "text/plain": "Nothing yet."}


def test_counts_have_plurals() -> None:
    assert [doc.counted(n, "branch") for n in (0, 1, 2000)] == ["0 branches", "1 branch", "2,000 branches"]
    assert doc.counted(2, "pass") == "2 passes" and doc.counted(2, "cell") == "2 cells"


def test_line_ends_of_windows_are_not_shown() -> None:
    assert [clip("a\r\nb\r\n"), clip("a\r\n"), clip("a\rb\r\n")] == ["a …", "a", "a␍b"]
    assert preview("a\r\nb\r\n") == ("a\r\nb", "")
    assert preview("a\r\nb\r\nc", lines=2) == ("a\r\nb", "7 characters, 3 lines in all")
