"""Displayed content must not act."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scaling import assert_linear

from prose_kernel.views import escaping

LIVE_TAG = re.compile(r"<(?!/?(?:pre|code)>)(?=[A-Za-z/!?])")


@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("plain\ttext\r\nnext\n", "plain\ttext\r\nnext\n"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b[38;2;1;2;3mtrue colour\x1b[m", "\x1b[38;2;1;2;3mtrue colour\x1b[m"),
        ("\x1b]0;title\x07", "␛]0;title␇"),
        ("\x1b]52;c;ZWNobw==\x1b\\", "␛]52;c;ZWNobw==␛\\"),
        ("\x1b[2J\x1b[H", "␛[2J␛[H"),
        ("a\x00b\x08c\x7f", "a␀b␈c␡"),
        ("\x9b31m", "\\x9b31m"),
        ("ab\u202ecd", "ab\\u202ecd"),
        ("lone \ud83d", "lone \N{REPLACEMENT CHARACTER}"),
        ("progress 1\rprogress 2\n", "progress 1\rprogress 2\n"),
        ("😀 ünï", "😀 ünï"),
    ],
)
def test_a_stream_keeps_colours_and_shows_the_rest(given_text: str, shown: str) -> None:
    assert escaping.terminal(given_text) == shown


@given(st.text(), st.lists(st.integers(0, 40)))
def test_pieces_give_the_same_text_as_the_whole(text: str, cuts: list[int]) -> None:
    stream, at, got = escaping.TerminalText(), 0, ""
    for cut in cuts:
        got += stream.feed(text[at : at + cut])
        at += cut
    got += stream.feed(text[at:]) + stream.end()
    assert got == escaping.terminal(text)


def test_a_colour_cut_in_two_stays_a_colour() -> None:
    stream = escaping.TerminalText()
    assert stream.feed("a\x1b[3") == "a"
    assert stream.feed("1mb") == "\x1b[31mb"
    assert stream.feed("\x1b") == ""
    assert stream.end() == "␛"


def test_markup_inside_of_code_is_escaped_once() -> None:
    assert escaping.inline_code("ls '*.py' \"<b>\"") == "<code>ls '&#42;.py' \"&lt;b&gt;\"</code>"


@pytest.mark.parametrize(
    ("count", "rest"),
    [(5, ""), (400, "1,492 characters, 400 lines in all"), (401, "1,496 characters, 401 lines in all")],
)
def test_a_line_end_at_the_end_begins_no_line(count: int, rest: str) -> None:
    assert escaping.preview("".join(f"{i}\n" for i in range(1, count + 1)))[1] == rest


def test_a_megabyte_line_costs_little() -> None:
    def work(size: int) -> Callable[[], None]:
        text = "x" * size

        def show() -> None:
            assert escaping.terminal(text) == text
            assert escaping.clip(text) == "x" * 119 + "…"

        return show

    assert_linear(work, 5_000_000)


@given(st.text(alphabet=st.sampled_from("<>/!`~[](){}*_$\\ \n\tascriptjv:&#x61;\"'"), max_size=200))
def test_markdown_never_lets_a_tag_or_an_image_through(text: str) -> None:
    shown = escaping.markdown(text)
    outside_code = re.sub(r"^ {0,3}(`{3,}|~{3,}).*?(\1|\Z)", "", shown, flags=re.S | re.M)
    assert not LIVE_TAG.search(outside_code)
    assert "![" not in outside_code


@pytest.mark.parametrize(
    "target",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:x",
        "java&#115;cript:x",
        "\\javascript:x",
        "data:text/html,x",
        "vbscript:x",
        "\n javascript:x",
    ],
)
def test_links_keep_only_harmless_targets(target: str) -> None:
    assert "script" not in escaping.markdown(f"[click]({target})").lower().replace("[click]", "")
    assert escaping.markdown(f"[click]({target})").rstrip(")").endswith("#")


def test_ordinary_markdown_is_untouched() -> None:
    text = (
        "# Title\n\n- a *b* **c** `d`\n\n| x | y |\n| - | - |\n| 1 | 2 |\n\n```python\nprint(1 < 2)\n```\n\n"
        "[docs](https://example.org/a_b) and 3 < 4 > 2\n"
    )
    assert escaping.markdown(text) == text


def test_code_with_tags_is_shown_as_code() -> None:
    shown = escaping.markdown("see `List<String>` and\n```html\n<script>alert(1)</script>\n```\n")
    assert "<code>List&lt;String&gt;</code>" in shown
    assert "<pre><code>&lt;script&gt;alert(1)&lt;/script&gt;</code></pre>" in shown


def test_an_escaped_backtick_does_not_hide_a_link() -> None:
    assert "](javascript" not in escaping.markdown(r"\`[x](javascript:alert(1))\`")


def test_markdown_is_linear_on_unclosed_fences() -> None:
    def work(n: int) -> Callable[[], object]:
        text = "```a\n" * 5 * n + "``` b\n" * 5 * n + "[" * 5 * n + "](" * 5 * n + "](   \n" * n
        return lambda: escaping.markdown(text)

    assert_linear(work, 2_500)


@given(st.text())
def test_a_fence_cannot_be_closed_from_inside(text: str) -> None:
    shown = escaping.fenced(text)
    if shown.startswith("<pre>"):
        assert shown.count("<") == 4
        return
    fence = shown.partition("\n")[0]
    assert shown.endswith("\n" + fence)
    assert fence not in shown[len(fence) : -len(fence)]


@given(st.text())
def test_html_text_has_no_markup(text: str) -> None:
    shown = escaping.html_text(text)
    assert "<" not in shown and ">" not in shown and '"' not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [("one", ("one", "")), ("one\n", ("one", "")), ("\n".join("abc"), ("a\nb", "5 characters, 3 lines in all"))],
)
def test_preview_tells_what_is_missing(text: str, shown: tuple[str, str]) -> None:
    assert escaping.preview(text, lines=2) == shown


def test_clip_shows_one_line() -> None:
    assert escaping.clip("\n\nfirst\nsecond") == "first …"
    assert escaping.clip("only\n") == "only"


# ---------------------------------------------------------------- which code is loaded


def test_a35_a_kernel_imports_nothing_from_its_working_directory(tmp_path: Path) -> None:
    """Also one whose kernelspec was installed before kernels were started with `-P`."""
    for name in ("ipykernel", "traitlets", "tornado", "msgspec"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit(7)")
    shown = subprocess.run(
        [sys.executable, "-m", "prose_kernel", "--version"], cwd=tmp_path, capture_output=True, check=False
    )
    assert shown.returncode == 0 and shown.stdout
    assert not (tmp_path / "ran").exists()
