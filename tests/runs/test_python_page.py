"""The examples of docs/reference/python.md run, in the order of the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("triage.prose").write_text('input report: "The report"\noutput line = session "Sort: {report}"\n')
    Path("prose.toml").write_text('provider = "scripted"\nscript = "replies.yaml"\n')
    Path("replies.yaml").write_text('sessions:\n  "crash": a bug\n  "hangs": [{error: no answer, retryable: no}]\n')
    names: dict[str, object] = {}
    examples = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    for example in examples:
        exec(compile(example, PAGE.name, "exec"), names)
    assert len(examples) >= 8

    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    app = names["app"]
    assert isinstance(app, FastAPI)
    with TestClient(app) as client:
        answer = client.post("/triage", params={"text": "It crashes: crash"})
        assert (answer.status_code, answer.json()) == (200, {"line": "a bug"})
        failed = client.post("/triage", params={"text": "It hangs"})
        assert failed.status_code == 500 and "no answer" in failed.json()["detail"]
        assert client.post("/triage").status_code == 422
