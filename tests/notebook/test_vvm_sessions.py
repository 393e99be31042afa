"""Agent calls of VVM in a real kernel: what `%prompt` shows, answers of a person, memory, failures, the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from notebook.kernels import Client, kernel, vvm_specification

AGENT = 'agent scribe(prompt="Be brief.", memory={scope: "project", key: "k"})'


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sessions")


@pytest.fixture(scope="module")
def running(here: Path) -> Iterator[Client]:
    (here / "s.yaml").write_text(
        'sessions:\n  "Note": "Noted.\\n```vvm-memory\\n{\\"digest\\": \\"tea\\"}\\n```"\n  "Bad": {error: "busy"}\n'
    )
    (here / "prose.toml").write_text('provider = "scripted"\nscript = "s.yaml"\n')
    with kernel(here, spec=vvm_specification(), forks=True) as client:
        yield client


@pytest.fixture
def client(running: Client) -> Client:
    assert running.run("%reset").status == "ok"
    return running


def plain(client: Client, code: str) -> str:
    ran = client.run(code)
    assert ran.status == "ok", ran.outputs
    return "\n".join(ran.displays)


def test_a_call_its_memory_and_the_notes_for_the_next_one(client: Client, here: Path) -> None:
    shown = plain(client, f'{AGENT}\nx = @scribe `Note {{}}`("this")\nx')
    assert "Noted." in shown and "vvm-memory" not in shown
    assert (here / ".vvm/memory/k/digest.md").read_text() == "tea"
    prompt = plain(client, "%prompt\n@scribe `Note {}`({n: 1})")
    for piece in ("### Digest", "tea", 'Note {"n": 1}', "===== input", "Be brief."):
        assert piece in prompt
    assert client.run("x").status == "ok"


def test_a_failed_call_is_shown_and_is_a_value(client: Client) -> None:
    shown = plain(client, "agent b()\ny = @b `Bad`(())\ny.error.kind")
    assert "busy" in shown and "spawn_failed" in shown


def test_the_log_of_a_run_in_memory(client: Client) -> None:
    client.run(f"{AGENT}\nx = @scribe `Note`(())")
    log = plain(client, "%state")
    assert "⏳ @scribe" in log and "✅ x bound" in log
