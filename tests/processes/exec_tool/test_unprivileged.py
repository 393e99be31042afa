"""`Exec` for a user without privileges, the normal case. As root, the tests use the number of another user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from needs import lacking, needs
from waiting import PATIENCE, processes

import prose_kernel

ROOT = Path(prose_kernel.__file__).resolve().parents[1]
SCRIPT = Path(__file__).with_name("unprivileged.py")
NOBODY = 65534
LIBRARIES = str(Path(msgspec.__file__).parents[1])


def interpreter() -> list[str]:
    """Return a command that runs Python as a user without privileges, or skip the tests."""
    if os.geteuid() != 0:
        return [sys.executable]
    become = [needs("setpriv"), f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        # it must be able to start itself; root's rights still find it here
        check = (
            "import sys, pathlib, subprocess; subprocess.run([sys.executable, '-c', ''], check=True);"
            f"sys.path.append({LIBRARIES!r}); import msgspec;"  # an extension for one version of Python
            f"sys.exit(sys.version_info < (3, 11) or not pathlib.Path({str(SCRIPT)!r}).exists())"
        )
        if subprocess.run([*become, python, "-c", check], capture_output=True, cwd="/").returncode == 0:
            return [*become, python]
    return lacking("`Exec` without root's rights: no Python or no source that another user may read is there")


@pytest.fixture(scope="module")
def answers() -> Mapping[str, Any]:
    environment = {"PATH": os.environ["PATH"], "SECRET_KEY": "sk-very-secret", "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(
        [*interpreter(), str(SCRIPT), str(ROOT), LIBRARIES],
        capture_output=True,
        text=True,
        cwd="/",
        env=environment,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    found: Mapping[str, Any] = json.loads(ended.stdout)
    return found


def test_the_calls_do_not_run_as_root(answers: Mapping[str, Any]) -> None:
    assert answers["uid"] != 0


def test_nothing_of_the_kernel_can_be_seen_or_reached(answers: Mapping[str, Any]) -> None:
    if not answers["landlock"]:
        pytest.skip("Landlock is not offered here")
    out, error = answers["look"]["stdout"], answers["look"]["stderr"]
    fields = dict(line.split(":\t") for line in out.splitlines() if ":\t" in line)
    assert (int(fields["CapEff"], 16), int(fields["CapPrm"], 16), fields["NoNewPrivs"]) == (0, 0, "1")
    assert "sk-very-secret" not in out and out.endswith("256\nend\n")
    # four signals, two environments, a limit, the shadow file
    assert error.count("not permitted") >= 5 and error.count("denied") >= 3


def test_the_tree_is_ended(answers: Mapping[str, Any]) -> None:
    assert answers["limit"]["timed_out"] and answers["seconds"] < PATIENCE
    assert processes("sleep 81.1") == []


def test_lists_are_enforced(answers: Mapping[str, Any]) -> None:
    bound = answers["bound"]
    if not answers["landlock"] or answers["network"]:
        assert bound[0] == "tool_failed"  # unenforceable lists are refused
        return
    assert bound["stdout"] == "in"
    assert answers["written"] == [".prose/.gitignore", "in/file", "out/new", "secret"]
