"""Secrets of a process that runs programs of several directories."""

from __future__ import annotations

from pathlib import Path

from prose_kernel.runs import settings
from prose_kernel.runtime.redaction import hidden_of_process


def test_secrets_of_each_env_file_stay_hidden(tmp_path: Path) -> None:
    """A second directory has another value for the same variable."""
    secrets = [f"Zq{number}xW83kdPQ71mLv09sTt" for number in range(3)]
    for number, secret in enumerate(secrets):
        (tmp_path / str(number) / ".prose").mkdir(parents=True)
        (tmp_path / str(number) / ".prose" / ".env").write_text(f"BUILD_TOKEN={secret}\n")
        settings.load(tmp_path / str(number))
    assert hidden_of_process()(" ".join(secrets)) == " ".join(["«env:BUILD_TOKEN»"] * 3)
