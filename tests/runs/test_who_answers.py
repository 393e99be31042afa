"""Runs with nothing configured (sessions.md 3.3): each cell of its table is a case, on the real front ends.

Columns: `jupyter` is a kernel whose client allows questions, `nbval` one whose client does not; `tty` is the command
line on a pseudo-terminal, `pipe` without one, `ci` on a terminal with `CI=true`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forked
import pexpect
import pytest
from notebook.kernels import kernel
from stubs.model_server import ANSWER, StubServer

COLUMNS = ("jupyter", "nbval", "tty", "pipe", "ci")
INTERACTIVE = {"jupyter": True, "nbval": False, "tty": True, "pipe": False, "ci": False}
CANNOT_CONTINUE = 3

SESSION = 'let said = session "Say something"\noutput whole = "<{said}>"\n'
CONDITION = (
    'let draft = "a frog"\nif **the draft sings**:\n  output yes = "it sings"\nelse:\n  output no = "it does not"\n'
)
ALLOWED = 'session "Write it down"\n  permissions:\n    write: prompt\n'

Dialogue = Sequence[tuple[str, str]]
TYPED_ANSWER: Dialogue = (("> ", "typed by hand"),)
NOTICE = "No model is configured, so you answer this program's sessions yourself."


@dataclass
class Outcome:
    """The displayed text, the metadata of outputs, and the exit status (1 for a failed cell)."""

    text: str
    status: int
    metadata: str = ""
    records: list[dict[str, Any]] = field(default_factory=list)

    def origins(self) -> list[str]:
        return [record["meta"]["origin"] for record in self.records if record["t"] in ("session", "judge")]


@pytest.fixture
def directory(tmp_path: Path, stub: StubServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CI", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "JPY_SESSION_NAME"):
        monkeypatch.delenv(name, raising=False)
    stub.reset()
    return tmp_path


def run(column: str, directory: Path, program: str, dialogue: Dialogue = ()) -> Outcome:
    """Run one program in one column. A person gives the answers of the dialogue if the column is interactive."""
    if column in ("jupyter", "nbval"):
        outcome = _in_a_kernel(directory, program, [answer for _, answer in dialogue], INTERACTIVE[column])
    else:
        (directory / "p.prose").write_text(program)
        outcome = _piped(directory) if column == "pipe" else _at_a_terminal(directory, dialogue, ci=column == "ci")
    for cassette in sorted((directory / "cassettes").glob("*.jsonl")):
        outcome.records += [json.loads(line) for line in cassette.read_text().splitlines()]
    return outcome


def _in_a_kernel(directory: Path, program: str, answers: list[str], interactive: bool) -> Outcome:
    with kernel(directory, forks=True) as client:
        ran = client.run(program, answers if interactive else (), allow_stdin=interactive)
    texts = [ran.text(), ran.text("stderr"), *ran.displays]
    texts += [content["data"].get("text/plain", "") for content in ran.of("update_display_data")]
    texts += ["\n".join(error["traceback"]) for error in ran.of("error")]
    metadata = json.dumps([message["content"].get("metadata", {}) for message in ran.outputs])
    return Outcome("\n".join(texts), 0 if ran.status == "ok" else 1, metadata)


def _piped(directory: Path) -> Outcome:
    ran = forked.prose("run", "p.prose", cwd=directory)
    return Outcome(ran.stdout + ran.stderr, ran.returncode)


def _at_a_terminal(directory: Path, dialogue: Dialogue, *, ci: bool) -> Outcome:
    child = forked.Terminal("run", "p.prose", cwd=directory, env={**os.environ, **({"CI": "true"} if ci else {})})
    seen, status = "", None
    try:
        for prompt, answer in () if ci else dialogue:
            child.expect_exact(prompt)
            seen += child.before + child.after
            child.sendline(answer)
        child.expect(pexpect.EOF)
        seen += child.before
    finally:
        status = child.end()
    return Outcome(seen.replace("\r\n", "\n"), status if status is not None else 128)


def failed(outcome: Outcome, column: str) -> bool:
    """Whether the run failed: an error output in a cell, exit status 3 on the command line."""
    return outcome.status == (1 if column in ("jupyter", "nbval") else CANNOT_CONTINUE)


def configure(directory: Path, text: str) -> None:
    (directory / "prose.toml").write_text(text)


def server(stub: StubServer, model: str = "ok-1") -> str:
    return f'provider = "stub"\n[providers.stub]\nkind = "openai"\nbase_url = "{stub.openai_url}"\nmodel = "{model}"\n'


# ---------------------------------------------------------------- the rows


@pytest.mark.parametrize("column", COLUMNS)
def test_the_default_cassette_mode_depends_on_the_front_end(
    column: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dry run prints the mode without using it."""
    monkeypatch.setenv("PROSE_PROVIDER", "dry-run")
    outcome = run(column, directory, SESSION)
    assert f"mode {'auto' if INTERACTIVE[column] else 'replay'}" in outcome.text
    assert outcome.records == []


@pytest.fixture(scope="module")
def recorded(stub: StubServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cassette with the answer to SESSION."""
    directory = tmp_path_factory.mktemp("recorded")
    configure(directory, server(stub) + '[cassette]\nmode = "auto"\n')
    (directory / "p.prose").write_text(SESSION)
    assert _piped(directory).status == 0
    (cassette,) = (directory / "cassettes").glob("*.jsonl")
    return cassette.read_text()


@pytest.mark.parametrize("column", COLUMNS)
def test_a_session_with_a_recorded_answer_is_replayed(
    column: str, directory: Path, recorded: str, stub: StubServer
) -> None:
    (directory / "cassettes").mkdir()
    (directory / "cassettes" / "other.jsonl").write_text(recorded)
    stub.reset()
    outcome = run(column, directory, SESSION)
    assert outcome.status == 0
    assert f"<{ANSWER}>" in outcome.text
    assert NOTICE not in outcome.text
    assert stub.stats.requests == 0
    if column in ("jupyter", "nbval"):
        assert '"replayed": true' in outcome.metadata
    else:
        assert "replayed: 1 of 1 answers came from recordings" in outcome.text
    assert (directory / "cassettes" / "other.jsonl").read_text() == recorded


@pytest.mark.parametrize("column", COLUMNS)
def test_a_session_without_a_recorded_answer_with_a_provider(column: str, directory: Path, stub: StubServer) -> None:
    configure(directory, server(stub))
    outcome = run(column, directory, SESSION)
    if INTERACTIVE[column]:
        assert outcome.status == 0
        assert f"<{ANSWER}>" in outcome.text
        assert (stub.stats.requests, outcome.origins()) == (1, ["model"])
    else:
        assert failed(outcome, column)
        assert "nothing is recorded for session c1/1/s0" in outcome.text
        assert "record it: " in outcome.text
        assert (stub.stats.requests, outcome.records) == (0, [])


@pytest.mark.parametrize("column", COLUMNS)
def test_a_session_without_a_recorded_answer_without_a_provider(column: str, directory: Path) -> None:
    outcome = run(column, directory, SESSION, TYPED_ANSWER)
    if INTERACTIVE[column]:
        assert outcome.status == 0
        assert "<typed by hand>" in outcome.text
        assert outcome.text.count(NOTICE) == 1
        command = "`%provider anthropic`" if column == "jupyter" else "`prose run --provider anthropic FILE`"
        assert f"To use a model: {command}" in outcome.text
        assert outcome.origins() == ["human"]
    else:
        assert failed(outcome, column)
        assert "no model is configured, and no person can answer this session" in outcome.text
        assert "PROSE_PROVIDER=" in outcome.text
        assert NOTICE not in outcome.text
        assert outcome.records == []


@pytest.mark.parametrize("column", COLUMNS)
def test_a_condition_that_only_a_person_can_decide(column: str, directory: Path) -> None:
    outcome = run(column, directory, CONDITION, [("or why? ", "y")])
    if INTERACTIVE[column]:
        assert outcome.status == 0
        assert "it sings" in outcome.text
        assert outcome.origins() == ["human"]
    else:
        assert failed(outcome, column)
        assert "E211" in outcome.text or "JudgeError" in outcome.text
        assert "**the draft sings**" in outcome.text
        assert "write it as a rule" in outcome.text
        assert outcome.records == []


@pytest.mark.parametrize("column", COLUMNS)
def test_the_permission_rule_prompt(column: str, directory: Path, stub: StubServer) -> None:
    """With recordings off, the session runs in all columns; only a person can allow the write."""
    call = {"calls": [{"name": "write", "arguments": {"path": "note.txt", "content": "written"}}]}
    configure(directory, server(stub, stub.script("writer", call, "Done: {results}")) + '[cassette]\nmode = "off"\n')
    outcome = run(column, directory, ALLOWED, [("(y / n / always) ", "y")])
    assert outcome.status == 0
    note = directory / "note.txt"
    if INTERACTIVE[column]:
        assert note.read_text() == "written"
    else:
        assert not note.exists()
        assert "no person can be asked" in outcome.text
    assert outcome.records == []


@pytest.mark.parametrize("off", [False, True], ids=["on", "PROSE_AUTODETECT=0"])
@pytest.mark.parametrize("column", COLUMNS)
def test_a_key_in_the_environment(
    column: str, off: bool, directory: Path, stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-not-a-real-one")
    if off:
        monkeypatch.setenv("PROSE_AUTODETECT", "0")
    configure(directory, f'[providers.anthropic]\nbase_url = "{stub.url}"\nmodel = "ok-1"\n')
    outcome = run(column, directory, SESSION, TYPED_ANSWER if off else ())
    assert "sk-not-a-real-one" not in outcome.text + json.dumps(outcome.records)
    if not INTERACTIVE[column]:
        assert failed(outcome, column)
        assert "no model is configured, and no person can answer" in outcome.text
        assert stub.stats.requests == 0
    elif off:
        assert outcome.text.count("ANTHROPIC_API_KEY is set, but autodetect is off, so you answer") == 1
        assert stub.stats.requests == 0
        assert outcome.origins() == ["human"]
    else:
        assert "ANTHROPIC_API_KEY is set and no provider is chosen, so anthropic answers sessions." in outcome.text
        assert "Model: ok-1; answers are recorded" in outcome.text
        assert "(cassette mode auto)" in outcome.text
        assert f"<{ANSWER}>" in outcome.text
        assert outcome.origins() == ["model"]
