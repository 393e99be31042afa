"""The directory of tests of contract files."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.contract_world import ContractWorld


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> ContractWorld:
    monkeypatch.chdir(tmp_path)
    return ContractWorld(tmp_path, capsys)
