"""HTML pages for reports: their policy, and conversion of hostile texts."""

from __future__ import annotations

import base64
import hashlib
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from report.pages import Page, checked

from prose_kernel.errors import UsageError
from prose_kernel.views import document as doc
from prose_kernel.views.escaping import Html, html, tag
from prose_kernel.views.page import Filter, Section, as_html, is_ours, markdown_text, page, terminal_text, write_page

HOSTILE = [
    "<script>alert(1)</script>",
    '<img src=x onerror="alert(1)">',
    "</style></pre></details></title><svg onload=alert(1)>",
    '"><a href="javascript:alert(1)">',
    "<meta http-equiv=refresh content='0;url=//example.invalid'>",
    "<!-- --><![CDATA[x]]><?php ?>",
    "\u202e\u061cabc\u2066 \x00\x1b]0;title\x07\x1b[2J\x9b31m \ud800",
]


def test_the_policy_of_a_page_allows_only_its_style() -> None:
    table = as_html(doc.Table(("a", "b"), [("1", "2")], numbers=(1,)))
    source = page("T <b>", tag("h1", "x"), [Section("one", "One & only", table)])
    found = checked(source)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', source)
    (style,) = re.findall(r"<style>(.*?)</style>", source, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert (
        policy == f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert "http" not in style and "url(" not in style and "@import" not in style
    assert "One & only" in found.texts and "#one" in found.links
    assert '<td class="n">2</td>' in source


def test_a_filter_needs_no_script() -> None:
    choice = Filter("show", "Show", "e", (("all", "All"), ("bad", "Bad")))
    source = page("T", Html(), [Section("s", "S", tag("div", "x", class_="e bad"))], choice)
    assert "body:has(#show-bad:checked) .e:not(.bad):not(.group)" in source
    assert "show-all:checked)" not in source
    assert checked(source).ids.count("show-bad") == 1


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("convert", [html, terminal_text, markdown_text])
def test_hostile_text_on_pages_is_inert(hostile: str, convert: object) -> None:
    assert callable(convert)
    made = convert(hostile) + convert(f"`{hostile}`") + convert(f"```{hostile}\n{hostile}\n```")
    found = Page(f"<main>{made}</main>")
    assert found.tags.keys() <= {"main", "div", "p", "pre", "code", "span", "em", "strong"}
    assert found.attributes <= {"class"}
    assert not set(made) & set("\u202e\u061c\u2066\x00\x1b\x07\x9b\ud800")


@example("a\\\nb")
@example("[x]() y")
@given(st.text(alphabet=st.sampled_from(list("<>&\"'`*_[]()!#|~-\\:;/= \n\tax1é\u202e\x1b\x00")), max_size=120))
def test_any_markdown_is_inert(source: str) -> None:
    found = Page(f"<main>{markdown_text(source)}</main>")
    assert not found.tags.keys() & {"script", "img", "style", "svg", "iframe", "form", "input", "meta", "a"}
    assert found.attributes <= {"class"}


def test_documents_are_escaped_on_pages() -> None:
    hostile = HOSTILE[1]
    table = doc.Table((hostile, ""), [(doc.Code(hostile), tag("a", hostile, href=f"#{hostile}"))], left_out=2)
    fields = doc.Fields([(hostile, hostile), ("empty", "")])
    made = as_html(doc.group(doc.line(hostile, doc.Strong(hostile)), doc.Items([[hostile]]), table, fields))
    found = Page(f"<main>{made}</main>")
    assert not found.tags.keys() & {"img", "script"} and found.attributes <= {"class", "href"}
    assert "<dt>empty" not in made and "… and 2 more" in made


def test_markdown_links_have_only_web_and_mail_addresses() -> None:
    made = markdown_text(
        "[a](https://example.org/?q=1&r=2) [b](javascript:alert(1)) [c](data:text/html,x) [d](#top) [e](//x) [f](x.html)\n"
        "<mailto:me@example.org> [g](JaVaScRiPt:x) [h](&#106;avascript:x) ![i](https://example.org/i.png) [j][k]\n\n"
        '[k]: https://example.org/k "title"\n'
    )
    links = ["https://example.org/?q=1&r=2", "mailto:me@example.org", "https://example.org/k"]
    assert Page(made).links == links
    assert made.count('rel="noreferrer noopener" target="_blank"') == 3
    assert "[image: i]" in made and "title" not in made


def test_markdown_has_tables_code_and_lowered_headings() -> None:
    made = markdown_text(
        "# One\n\n###### Six\n\n| a | b |\n|:-|-:|\n| 1 | **2** |\n\n```python onload=x\nprint('<b>')\n```\n~~old~~"
    )
    assert "<h4>One</h4>" in made and "<h6>Six</h6>" in made
    assert "<td>1</td>" in made and "<strong>2</strong>" in made and "style" not in made
    assert "<pre><code>print('&lt;b&gt;')\n</code></pre>" in made
    assert "<s>old</s>" in made


@pytest.mark.parametrize(
    ("shown", "made"),
    [
        ("plain\r\nend", "plain\nend"),
        ("10 %\r50 %\r100 %\nnext", "100 %\nnext"),
        ("\x1b[31mred\x1b[0m <b>", '<span class="f1">red</span> &lt;b&gt;'),
        (
            "\x1b[1;4;92mx\x1b[24my\x1b[39mz\x1b[22m.",
            '<span class="a1 a4 f2">x</span><span class="a1 f2">y</span><span class="a1">z</span>.',
        ),
        (
            "\x1b[38;5;196ma\x1b[48;2;0;0;255mb\x1b[38;5;12mc",
            '<span class="f1">a</span><span class="f1 b4">b</span><span class="f4 b4">c</span>',
        ),
        ("\x1b[38mx\x1b[;;m\x1b[999my", "xy"),
        ("\x1b[2Jgone\x1b]0;t\x07", "␛[2Jgone␛]0;t␇"),
    ],
)
def test_terminal_colours_become_classes(shown: str, made: str) -> None:
    assert terminal_text(shown) == made


def test_long_lines_take_linear_time() -> None:
    assert terminal_text("x" * 2_000_000 + "\r" + "y") == "y"
    assert len(terminal_text("\x1b[31mx\x1b[0m" * 50_000)) > 1_000_000


def test_a_page_replaces_only_pages(tmp_path: Path) -> None:
    file = tmp_path / "p.html"
    write_page(file, page("T", Html(), []), force=False)
    assert is_ours(file)
    write_page(file, page("U", Html(), []), force=False)
    file.write_text("<!doctype html>\n<title>mine</title>")
    with pytest.raises(UsageError, match="exists and isn't a report"):
        write_page(file, page("V", Html(), []), force=False)
    write_page(file, page("V", Html(), []), force=True)
    assert "<title>V</title>" in file.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["p.html"]


def test_reports_written_in_parallel_are_complete(tmp_path: Path) -> None:
    pages = [page(str(number) * 200_000, "", []) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda content: write_page(tmp_path / "p.html", content, force=False), pages * 10))
    assert (tmp_path / "p.html").read_text() in pages
    assert [path.name for path in tmp_path.iterdir()] == ["p.html"]


def test_ordered_lists_keep_their_first_number() -> None:
    assert '<ol start="2">' in markdown_text("1. first\n\n```\ncode\n```\n\n2. second")
