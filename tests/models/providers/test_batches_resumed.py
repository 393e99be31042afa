"""A program that is killed while its batch is under way, and resumed: it waits for the same batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from models.providers.test_acp_run import prose
from stubs.model_server import ANSWER, StubServer
from waiting import until

PROGRAM = 'let all = ["a", "b"] | pmap:\n  session "Look at {item}"\noutput said = all\n'


@pytest.mark.parametrize("wire", ["anthropic", "responses"])
def test_a_killed_program_waits_for_its_batch_when_it_is_resumed(stub: StubServer, tmp_path: Path, wire: str) -> None:
    name, kind = ("gateway", 'kind = "anthropic"') if wire == "anthropic" else ("openai", "")
    url = stub.url if wire == "anthropic" else stub.openai_url
    (tmp_path / "prose.toml").write_text(
        f'provider = "{name}"\n[providers.{name}]\n{kind}\nkey = ""\nbase_url = "{url}"\nbatch_wait = 1\n'
        f'batch_poll = 0.05\n[models.{name}.default]\nmodel = "ok-0"\nbatch = true\n'
    )
    kept = tmp_path / ".prose" / "runs"
    stub.batches.held = True
    with prose(tmp_path, PROGRAM, "--cassette-mode=off") as running:
        until(lambda: any(len(file.read_text().splitlines()) == 2 for file in kept.glob("*/batches.jsonl")))
        running.kill()
        running.wait(30)
    stub.batches.held = False
    code = "import sys; from prose_kernel.cli.main import main; sys.exit(main())"
    argv = [sys.executable, "-c", code, "run", "--resume", "--cassette-mode=off"]
    environment = {**os.environ, "CI": ""}
    said = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert said.returncode == 0, said.stderr
    assert said.stdout.count(ANSWER) >= 2
    assert [len(batch.requests) for batch in stub.batches.batches] == [2]
