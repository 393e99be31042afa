"""Programs whose sessions are answered by a CLI agent, from the settings file to the binding (sessions.md 5)."""

from __future__ import annotations

import json
import os
import signal
import sys
import uuid
from pathlib import Path

import forked
import pytest
from models.providers.agents import TESTS, marked
from waiting import until


@pytest.fixture
def mark(tmp_path: Path) -> str:
    """Write settings that name the stub agent, and return the mark of its processes."""
    mark = uuid.uuid4().hex
    command = [sys.executable, "-m", "stubs.acp_agent", "ignore=cancel,term"]
    (tmp_path / "prose.toml").write_text(
        f'provider = "acp:stub"\n\n[agents.stub]\ncommand = {json.dumps(command)}\n'
        f'env = {{ PYTHONPATH = "{TESTS}", ACP_MARK = "{mark}" }}\n\n[models."acp:stub"]\nopus = "large"\n'
    )
    return mark


PROGRAM = """\
agent ann:
  model: opus
  prompt: "Be brief."

let plan = session: ann
  prompt: "do: model"
parallel:
  x = session "do: say one"
  y = session "do: say two"
output both = session "do: say {plan} {x} {y}"
"""


def test_a_program_runs_with_an_agent_and_replays_without_it(tmp_path: Path, mark: str) -> None:
    outputs = []
    for options in (["--cassette-mode=auto"], ["--cassette-mode=replay"]):
        (tmp_path / "p.prose").write_text(PROGRAM)
        ran = forked.prose("run", *options, "p.prose", cwd=tmp_path, env={**os.environ, "CI": ""})
        assert ran.returncode == 0, ran.stderr
        outputs.append(ran.stdout + ran.stderr)
        assert marked(f"ACP_MARK={mark}") == []
        (tmp_path / "prose.toml").write_text("")  # the second run could not have asked the agent
    for text in outputs:
        assert "plan = large\nx = one\ny = two\n" in text
        assert "both: large  one  two \n" in text


def test_an_interrupt_ends_a_stubborn_agent_with_all_that_it_started(tmp_path: Path, mark: str) -> None:
    program = 'parallel:\n  x = session "do: hang"\n  y = session """\ndo: fork\ndo: hang\n"""\n'
    (tmp_path / "p.prose").write_text(program)
    options = ("--cassette-mode=off", "p.prose")
    with forked.Command("run", *options, cwd=tmp_path, env={**os.environ, "CI": ""}) as running:
        until(lambda: running.poll() is not None or len(marked(f"ACP_MARK={mark}")) >= 2)
        running.send_signal(signal.SIGINT)
        output = "".join(running.communicate(timeout=60))
    assert "interrupted" in output
    assert marked(f"ACP_MARK={mark}") == []
