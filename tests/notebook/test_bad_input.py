"""Unintended input: odd characters in cells, many cells at the same time, front ends that vanish."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from queue import Empty

import pytest
from notebook.kernels import TIMEOUT, Client, kernel
from waiting import gone

from prose_kernel.cli.notebook_file import read_cells
from prose_kernel.errors import UsageError
from prose_kernel.language.diagnostics import caret
from prose_kernel.language.text import screen_width

FAMILY = "\N{MAN}\u200d\N{WOMAN}"


@pytest.mark.parametrize(
    ("code", "column", "cells"),
    [
        ("let a = 1\r\nlet b = bad\r\n", 9, 8),
        ('let x = "🙂🙂" + bad', 16, 17),
        ('let x = "漢字" + bad', 16, 17),
        ('let x = "e\u0301" + bad', 16, 14),
        (f'let x = "{FAMILY}" + bad', 17, 18),
        ('let x = "שלום" + bad', 18, 17),
        ('let x = "\u202eabc" + bad', 18, 17),
        ('let x = "a\u200bb" + bad', 17, 16),
        ("\ufefflet x = bad", 9, 8),
        ('let x = "a\0b" + bad', 17, 16),
        ('let x = "' + "x" * 100_000 + '" + bad', 100_014, 79),
    ],
)
def test_the_caret_is_below_the_place(client: Client, code: str, column: int, cells: int) -> None:
    traceback = "\n".join(client.run(code).error["traceback"])
    where, shown, pad = re.findall(r"column (\d+).*\n  (.*)\n  ([ \t]*)\^", traceback)[-1]
    assert (int(where), len(pad)) == (column, cells)
    before = next(end for end in range(len(shown) + 1) if shown[end:].startswith("bad"))
    assert screen_width(shown[:before]) == cells
    assert len(shown) <= 160 and "\0" not in traceback and "\u202e" not in traceback


def test_tabs_stay_above_the_caret() -> None:
    assert caret("\tlet y = 漢\tbad", 12, None) == "\n  \tlet y = 漢\tbad\n  \t          \t^"


@pytest.mark.parametrize("code", ['%%vvm\nx = "🙂é" + bad', '%%vvm\r\nx = "🙂é" + bad\r\n'])
def test_the_caret_of_a_run_time_error_is_below_the_place(client: Client, code: str) -> None:
    line, pad = client.run(code).error["traceback"][1].split("\n")[:2]
    assert pad.index("^") == screen_width(line[: line.index("bad")])


def test_a_command_cell_with_line_ends_of_windows(client: Client) -> None:
    assert client.run("%%task\nprintf 'a\\tb\\n'\r\n").text() == "a\tb\n"


def test_200_cells_that_are_interrupted_each_get_one_reply(client: Client) -> None:
    code = ['exec "echo {} >> ran.txt"'] * 200
    code[20] = 'exec "echo begun; sleep 4741"'
    requests = [client.send(one) for one in code]
    client.until_text(requests[20], "begun")
    client.interrupt()
    replies = [client.channels.get_shell_msg(timeout=TIMEOUT) for _ in requests]
    assert [reply["parent_header"]["msg_id"] for reply in replies] == requests
    assert Counter(reply["content"]["status"] for reply in replies) == {"ok": 20, "error": 1, "aborted": 179}
    assert client.run('exec "wc -l < ran.txt"').text().strip() == "20"
    with pytest.raises(Empty):
        client.channels.get_shell_msg(timeout=0)
    assert gone("sleep 4741")


def another_front_end(client: Client) -> None:
    """The front end closes without a word, and another one opens."""
    client.channels.stop_channels()
    client.channels = client.manager.client()
    client.channels.session.metadata = {"cellId": "b"}
    client.channels.start_channels()


def test_a_front_end_that_is_asked_and_vanishes(directory: Path) -> None:
    with kernel(directory, forks=True) as client:
        client.send('exec "sleep 4742 & echo begun"\ninput name: "Who?"', allow_stdin=True)
        client.channels.get_stdin_msg(timeout=TIMEOUT)
        another_front_end(client)
        client.interrupt()
        client.channels.wait_for_ready(timeout=TIMEOUT)
        assert client.run('exec "echo usable"').text() == "usable\n"

        client.send('let log = exec "sleep 4743 > wait.txt & echo begun"\ninput name: "Who?"', allow_stdin=True)
        client.channels.get_stdin_msg(timeout=TIMEOUT)
        client.manager.restart_kernel()
        another_front_end(client)
        client.channels.wait_for_ready(timeout=TIMEOUT)
        assert client.run('exec "echo usable"').text() == "usable\n"
        assert gone("sleep 4742") and gone("sleep 4743")


MINOR = "{} is not a notebook: its `nbformat_minor` isn't a whole number"
SOURCE = "{} is not a notebook: the `source` of its cell 1 is missing or wrong"
TEXTLESS = ("[1, null]", '["a", ["b"]]', "{}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"nbformat": 5, "cells": []}', "{} is a notebook of format 5; this version reads format 4"),
        ('{"nbformat": 4, "cells": [5]}', "{} is not a notebook: the `cell_type` of its cell 1 is missing or wrong"),
        ("[]", "{} is not a notebook: it has no `nbformat`"),
        *((f'{{"nbformat": 4, "nbformat_minor": {one}, "cells": []}}', MINOR) for one in ('"5"', "NaN", "null")),
        *((f'{{"nbformat": 4, "cells": [{{"cell_type": "code", "source": {one}}}]}}', SOURCE) for one in TEXTLESS),
    ],
)
def test_a_notebook_that_cannot_be_run_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "book.ipynb"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_cells(str(path))
    assert str(refused.value) == message.format(path)


@pytest.mark.parametrize(
    "book",
    [
        {"nbformat": 4, "cells": [{"cell_type": "code", "source": ["%%prose\r\n", "let x = 1"]}]},
        {"nbformat": 4, "nbformat_minor": 99, "cells": [{"cell_type": "code", "source": "%%prose\r\nlet x = 1"}]},
        {
            "nbformat": 3,
            "metadata": {},
            "worksheets": [
                {
                    "cells": [
                        {
                            "cell_type": "code",
                            "input": "%%prose\r\nlet x = 1",
                            "language": "python",
                            "outputs": [],
                            "metadata": {},
                        }
                    ]
                }
            ],
        },
    ],
)
def test_notebooks_of_other_versions_are_run(tmp_path: Path, book: object) -> None:
    path = tmp_path / "book.ipynb"
    path.write_text(json.dumps(book))
    (cell,), _ = read_cells(str(path))
    assert cell.text == "%%prose\r\nlet x = 1"
