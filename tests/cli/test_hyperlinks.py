"""Links in terminals: which terminals get them, their targets, and escaped control characters."""

from __future__ import annotations

from pathlib import Path

import pytest

from prose_kernel.cli import hyperlinks
from prose_kernel.cli.main import main

KITTY = {"TERM": "xterm-kitty"}


@pytest.mark.parametrize(
    ("environment", "shown"),
    [
        ({}, False),
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "dumb", "TERM_PROGRAM": "vscode"}, False),
        (KITTY, True),
        (KITTY | {"CI": "true"}, False),
        (KITTY | {"CI": "false"}, True),
        (KITTY | {"TMUX": "/tmp/tmux"}, False),
        (KITTY | {"FORCE_HYPERLINK": "0"}, False),
        ({"FORCE_HYPERLINK": "1"}, True),
        ({"TERM": "xterm-256color", "VTE_VERSION": "6800"}, True),
        ({"TERM": "xterm-256color", "VTE_VERSION": "4600"}, False),
        ({"TERM": "xterm-256color", "VTE_VERSION": "x"}, False),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "vscode"}, True),
        ({"TERM": "xterm-256color", "WT_SESSION": "1"}, True),
    ],
)
def test_only_terminals_that_are_known_to_show_links_get_them(environment: dict[str, str], shown: bool) -> None:
    assert hyperlinks.understood(environment) is shown


def test_an_address_cannot_control_the_terminal() -> None:
    text = hyperlinks.linked("E004", "https://x.test/\x1b\\\x1b]0;t\x07 é")
    assert text == "\x1b]8;;https://x.test/%1B%5C%1B]0;t%07%20%C3%A9\x1b\\E004\x1b]8;;\x1b\\"


def test_a_code_links_to_the_site_or_to_the_installed_page() -> None:
    assert hyperlinks.documentation("V001", "https://x.test").startswith(
        "https://x.test/docs/reference/vvm/errors.html#v001-"
    )
    address, _, anchor = hyperlinks.documentation("E004", None).partition("#")
    assert Path(address.removeprefix("file://")).name == "errors.md" and anchor == "e004-unexpected-token"
    assert hyperlinks.documentation("E999", "https://x.test") == ""


def test_words_and_programs_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.vvm").write_text("x = len([1])\n")
    assert main(["explain", "a.vvm"]) == 0
    assert capsys.readouterr().out == "- line 1: computes `x = len([1])`.\n"
    assert main(["explain", "retry"]) == 0
    out = capsys.readouterr().out
    assert "Reference: openprose 3.13, Retry and backoff" in out and out.count("**retry**") == 2
    assert main(["explain", "vvm", "retry"]) == 0
    assert capsys.readouterr().out.count("**retry**") == 1
    assert main(["explain", "lopo"]) == 2
    assert capsys.readouterr().err == "Error: there is nothing to explain about lopo\nhint: did you mean `loop`?\n"
    Path("bad.prose").write_text("exec ls\n")
    assert main(["explain", "bad.prose"]) == 1
    assert "E004" in capsys.readouterr().err
