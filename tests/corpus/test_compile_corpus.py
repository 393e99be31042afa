"""Programs, valid and broken, through the real `prose compile`: code, severity, line and column, in both profiles.

Each program carries its expectation in its first three lines: what it shows, the findings of `default` and the findings
of `strict`, each as CODE@LINE:COLUMN.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

CASES = Path(__file__).parent / "compile"
PROFILES = ("default", "strict")


def programs() -> list[Path]:
    return sorted(CASES.glob("*.prose"))


def prose(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("prose")), *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", cwd=CASES, check=False)


def compile_all(profile: str, files: Sequence[Path]) -> subprocess.CompletedProcess[str]:
    strict = ["--strict"] if profile == "strict" else []
    return prose("compile", "--format", "json", *strict, *(file.name for file in files))


def expected(file: Path, profile: str) -> list[str]:
    header = file.read_text(encoding="utf-8").split("\n", 3)
    found = header[1 + PROFILES.index(profile)].removeprefix(f"# {profile}: ")
    return [] if found == "none" else found.split()


@pytest.mark.parametrize("profile", PROFILES)
def test_every_program_gets_the_findings_that_the_reference_asks_for(profile: str) -> None:
    files = programs()
    assert len(files) > 250
    done = compile_all(profile, files)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == len(files)
    wrong = []
    errors = False
    for file, line in zip(files, lines, strict=True):
        seen = json.loads(line)
        assert (seen["file"], seen["language"]) == (file.name, "openprose")
        found = [f"{d['code']}@{d['line']}:{d['column']}" for d in seen["diagnostics"]]
        if found != expected(file, profile):
            wrong.append(f"{file.name}: expected {' '.join(expected(file, profile))}, got {' '.join(found)}")
        for d in seen["diagnostics"]:
            assert d["severity"] == ("error" if d["code"][0] == "E" else "warning")
            assert d["message"].strip() == d["message"] != ""
        assert seen["ok"] == (not any(d["severity"] == "error" for d in seen["diagnostics"]))
        errors = errors or not seen["ok"]
    assert wrong == []
    assert done.returncode == (1 if errors else 0)


@pytest.mark.parametrize("profile", PROFILES)
def test_two_runs_say_the_same_byte_for_byte(profile: str) -> None:
    files = programs()
    assert compile_all(profile, files).stdout == compile_all(profile, files).stdout


def test_the_canonical_form_of_every_valid_program_is_stable_and_brings_no_new_findings(tmp_path: Path) -> None:
    valid = [file for file in programs() if not any(code[0] == "E" for code in expected(file, "default"))]
    assert len(valid) > 100
    first = []
    for file in valid:
        copy = tmp_path / file.name
        copy.write_bytes(file.read_bytes())
        first.append(copy)
    assert prose("fmt", "--write", "--drop-comments", *map(str, first)).returncode == 0
    once = [file.read_bytes() for file in first]
    assert prose("fmt", "--write", "--drop-comments", *map(str, first)).returncode == 0
    assert [file.read_bytes() for file in first] == once
    again = prose("compile", "--format", "json", *map(str, first)).stdout.splitlines()
    new = {}
    for file, line in zip(valid, again, strict=True):
        codes = Counter(d["code"] for d in json.loads(line)["diagnostics"])
        new[file.name] = codes - Counter(found.split("@")[0] for found in expected(file, "default"))
    assert {name: codes for name, codes in new.items() if codes} == {}
