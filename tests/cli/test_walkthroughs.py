"""Pages are followed from top to bottom: each file is written and each command is run, in their order.

A block below a line such as "`notes.prose`:" is that file, or a later version of it. A block `console` contains
commands and their output; a line `...` matches any number of lines.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import forked
import pytest
from cli.generated import page_path
from stubs.model_server import StubServer

MODEL = "claude-sonnet-5-5"
_BLOCK = re.compile(r"(?:^`([\w./-]+)`:\n\n)?^(`{3,})(\w+)[^\n]*\n(.*?)^\2$", re.MULTILINE | re.DOTALL)
_RUN = re.compile(r"^(?:run directory|to resume it): .*\n", re.MULTILINE)


def steps(page: str) -> Iterator[tuple[str, str]]:
    """Yield the name and text of each file, and "" with the text of each console."""
    for name, _, language, text in _BLOCK.findall(page_path(page).read_text(encoding="utf-8")):
        if name or language == "console":
            yield name, text


def fits(printed: str, shown: str) -> bool:
    """Return whether the output matches the page."""
    pattern = "".join("(?:.*\n)*" if line == "...\n" else re.escape(line) for line in shown.splitlines(keepends=True))
    return re.fullmatch(pattern, printed) is not None


def printed(command: str, directory: Path, *, remarks: bool) -> str:
    """Return a command and its output: both streams as at a terminal, or standard output only."""
    if not remarks:
        done = forked.prose(*shlex.split(command)[1:], cwd=directory, env=dict(os.environ))
        return f"$ {command}\n{done.stdout}{_status(done.returncode)}"
    ran = subprocess.run(
        ["bash", "-c", command], cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=60,
    )  # fmt: skip
    return f"$ {command}\n{_RUN.sub('', ran.stdout)}{_status(ran.returncode)}"


def _status(code: int) -> str:
    return f"[exit status {code}]\n" if code else ""


def worked_through(page: str, directory: Path, added: dict[str, str], *, remarks: bool = True) -> int:
    """Follow a page, compare the output, and return the number of commands. `added` is appended to files by name."""
    count = 0
    for name, text in steps(page):
        if name:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text + added.get(name, ""), encoding="utf-8")
            continue
        for shown in re.split(r"^(?=\$ )", text, flags=re.MULTILINE)[1:]:
            output = printed(shown.splitlines()[0].removeprefix("$ "), directory, remarks=remarks)
            output = re.sub(r"\bscript-\w+", MODEL, output)
            assert fits(output, shown), f"the page shows\n{shown}\nand this was printed\n{output}"
            count += 1
    return count


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Record answers, as at a terminal."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-real-key")
    monkeypatch.setenv("PROSE_CASSETTE_MODE", "auto")
    with forked.in_shells(tmp_path_factory.mktemp("shells")):
        yield


@pytest.mark.usefixtures("outside")
def test_the_first_workflow(tmp_path: Path) -> None:
    with StubServer() as stub:
        first = stub.script("first", "Discounts are rounded to whole cents, and dark mode is remembered.")
        read = {"calls": [{"name": "read", "arguments": {"path": "CHANGES.md"}}]}
        second = stub.script(
            "second", read, "Discounts are now exact to the cent, and dark mode remembers your choice."
        )
        price = "price = { input = 3.0, output = 15.0 }"
        server = (
            f'\n[providers.anthropic]\nbase_url = "{stub.url}"\n'
            f'[models.anthropic]\ndefault = {{ model = "{first}", {price} }}\nsonnet = {{ model = "{second}", {price} }}\n'
        )
        assert worked_through("first-workflow", tmp_path, {"prose.toml": server}) >= 10
        records = (tmp_path / "cassettes" / "session.jsonl").read_text(encoding="utf-8").splitlines()
        assert len(records) == 2, "a heading, and the one record that is still used"


def test_the_cookbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty-five programs print the output on the page, which omits remarks."""
    page = page_path("cookbook").read_text(encoding="utf-8")
    recipes = re.findall(r"^### (\d+)\. ", page, re.MULTILINE)
    assert recipes == [str(number) for number in range(1, 26)]
    assert scripted("cookbook", tmp_path, monkeypatch) == 25


def test_a_chat_as_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scripted("from-a-chat", tmp_path, monkeypatch) == 2
    assert (tmp_path / "TODO.md").read_text(encoding="utf-8").startswith('["Replace 1.19')


def scripted(page: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Follow a page with answers from a file."""
    monkeypatch.setenv("PROSE_PROVIDER", "scripted")
    monkeypatch.setenv("PROSE_SCRIPT", str(Path(__file__).parent / "data" / f"{page}.yaml"))
    return worked_through(page, directory, {}, remarks=False)
