"""Spans that real kernels send to a collector: the Prose kernel, and `%%prose` in a Python kernel."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from notebook.kernels import kernel, specification
from telemetry.collector import Collector

SETTINGS = """
provider = "scripted"
script = "script.yaml"

[cassette]
mode = "off"

[telemetry]
otel = true
"""
SCRIPT = """
sessions: {"*": ["the secret answer"]}
judge: {"*": [yes]}
"""
CELLS = (
    'let a = exec "echo secret; echo $TRACEPARENT > told"\nsession "a secret task"',
    'if **the secret is kept**:\n  let b = "a secret value"',
    'exec "exit 3 # secret"',
)
TREE = [
    " > invoke_workflow notebook",
    "cell 1 > let",
    "cell 1 > session",
    "cell 2 > if",
    "cell 3 > exec",
    "exec > command",
    "if > judgement",
    "invoke_agent > attempt",
    "invoke_workflow notebook > cell 1",
    "invoke_workflow notebook > cell 2",
    "invoke_workflow notebook > cell 3",
    "invoke_workflow notebook > cell 4",
    "let > command",
    "session > invoke_agent",
]


@pytest.mark.parametrize("front_end", ["prose_kernel", "ipykernel_launcher"])
def test_a_notebook_is_one_trace_without_its_content(tmp_path: Path, collector: Collector, front_end: str) -> None:
    (tmp_path / "prose.toml").write_text(SETTINGS)
    (tmp_path / "script.yaml").write_text(SCRIPT)
    python = front_end == "ipykernel_launcher"
    spec = specification(front_end, "signal" if python else "message")
    with kernel(tmp_path, spec=spec) as client:
        if python:
            assert client.run("%load_ext prose_kernel").status == "ok"
        magic = "%%prose\n" if python else ""
        results = [client.run(magic + cell) for cell in CELLS]
        assert [ran.status for ran in results] == ["ok", "ok", "error"]
        assert client.run("%%vvm\nx = 1").status == "ok"
        client.manager.shutdown_kernel()  # not immediately, so that the last spans are sent
    before = int(python)  # cells have the numbers of their prompts, and `%load_ext` has one
    named = [re.sub(r"(?<=cell )\d+", lambda number: str(int(number[0]) - before), line) for line in collector.tree()]
    assert [line for line in named if not line.startswith("cell 4 >")] == TREE
    assert len({span.trace_id for span in collector.spans}) == 1
    assert collector.services == {"prose"}
    assert b"secret" not in collector.received
    _, _, span_id, _ = (tmp_path / "told").read_text().split("-")
    assert span_id in {span.span_id.hex() for span in collector.spans if span.name == "command"}
