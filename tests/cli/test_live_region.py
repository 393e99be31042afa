"""The lines below the output of a terminal."""

from __future__ import annotations

import pytest

from prose_kernel.cli.live_region import LiveRegion, region_lines
from prose_kernel.views.live_text import LiveLine

LINES = [
    LiveLine("parallel for city in cities", ("3 of 12", "1 failed", "about 40 s left"), time="14 s", done=(3, 12)),
    LiveLine("oslo", ("exit code 1",), mark="✗", depth=1),
    LiveLine("日本", depth=1, time="12 s", last="compiling foo.c"),
    LiveLine("2 more run, 6 wait", mark=" ", depth=1),
    LiveLine("1,234 tokens · $0.0125", mark=" "),
]


class Terminal:
    """A terminal that keeps the written text, and whose size can change."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.size = (columns, rows)
        self.written: list[str] = []
        self.region = LiveRegion(self.written.append, lambda: self.size, colour=False)


def test_names_and_times_are_in_columns() -> None:
    assert region_lines(LINES, 79, colour=False) == [
        "▸ ━━━╌╌╌╌╌╌╌╌╌ parallel for city… · 14 s · 3 of 12 · 1 failed · about 40 s left",
        "  ✗ oslo          exit code 1",
        "  ▸ 日本    12 s  compiling foo.c",
        "    2 more run, 6 wait",
        "  1,234 tokens · $0.0125",
    ]


@pytest.mark.parametrize("columns", [16, 20, 30, 40, 60, 100])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    from rich.cells import cell_len

    assert all(cell_len(line) <= columns for line in region_lines(LINES, columns, colour=False))


def test_the_name_of_a_heading_is_shortened_first() -> None:
    (line,) = region_lines([LiveLine("x" * 90, ("pass 3 of 9",), time="5 s")], 50, colour=False)
    assert line == "▸ " + "x" * 27 + "… · 5 s · pass 3 of 9"


def test_wrapped_rows_after_a_resize_are_erased() -> None:
    terminal = Terminal()
    terminal.region.draw([LiveLine("x" * 60), LiveLine("y")])
    terminal.size = (25, 24)
    terminal.region.erase()
    assert terminal.written[-1] == "\r\x1b[4A\x1b[J"  # 62 cells now take three rows of 25, and the other line takes one
    terminal.region.erase()
    assert len(terminal.written) == 2


def test_lines_that_are_left_while_they_are_drawn_are_not_erased() -> None:
    terminal = Terminal()

    def write(text: str) -> None:
        terminal.written.append(text)
        if len(terminal.written) == 2:
            terminal.region.leave()  # stopped and continued in the middle

    terminal.region = LiveRegion(write, lambda: terminal.size, colour=False)
    for name in ("a", "b", "c", "d"):
        terminal.region.draw([LiveLine(name)])
    again = "\r\x1b[1A\x1b[J"
    assert terminal.written == ["▸ a\n", f"{again}▸ b\n", "▸ c\n", f"{again}▸ d\n"]


def test_an_unfinished_output_line_is_above_the_live_lines() -> None:
    terminal = Terminal()
    terminal.region.draw([LiveLine("x")], "half a li")
    assert terminal.written == ["half a li\n▸ x\n"]
    terminal.region.above(lambda: terminal.written.append("half a line\n"), "")
    assert terminal.written[1:] == ["\r\x1b[2A\x1b[J", "half a line\n", "▸ x\n"]


@pytest.mark.parametrize("size", [(15, 24), (80, 3), (0, 0)])
def test_nothing_is_drawn_without_room(size: tuple[int, int]) -> None:
    terminal = Terminal(*size)
    terminal.region.draw(LINES)
    assert not "".join(terminal.written)


def test_more_lines_than_rows_are_counted() -> None:
    terminal = Terminal(80, 8)
    terminal.region.draw([LiveLine(f"line {number}") for number in range(20)])
    assert terminal.written[-1].splitlines() == [*(f"▸ line {number}" for number in range(5)), "  … and 15 more"]


def test_control_characters_are_escaped() -> None:
    shown = region_lines([LiveLine("a\x1b[2Jb", ("\x07",), last="\x1b]0;t\x07")], 80, colour=True)
    assert not any(code in "".join(shown) for code in ("\x1b[2J", "\x07", "\x1b]"))
