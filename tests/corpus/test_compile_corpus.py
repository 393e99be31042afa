"""Programs, valid and broken, through the real `prose compile`: code, severity, line and column, in both profiles.

Each program carries its expectation in its first three lines: what it shows, the findings of `default` and the findings
of `strict`, each as CODE@LINE:COLUMN.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import forked
import pytest

CASES = Path(__file__).parent / "compile"
PROFILES = ("default", "strict")


def programs() -> list[Path]:
    return sorted(CASES.glob("*.prose"))


def prose(*arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.prose(*arguments, cwd=CASES)


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


def test_two_runs_say_the_same_byte_for_byte() -> None:
    files = programs()
    assert compile_all("strict", files).stdout == compile_all("strict", files).stdout


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


BYTES = {
    "bom": (b"\xef\xbb\xbflet a = b\n", ["E131@1:9"]),
    "crlf": (b"agent a:\r\n  model: sonnet\r\nsession: b\r\n", ["E007@3:10"]),
    "mixed line ends": (b'session "a"\nsession: b\r\nsession: c\n', ["E007@2:10", "E007@3:10"]),
    "not UTF-8": (b'session "ok"\nsession "\xff"\n', ["E109@2:10"]),
    "half a surrogate": (b'session "\xed\xa0\x80"\n', ["E109@1:10"]),
    "empty": (b"", []),
    "no newline at the end": (b"session: b", ["E007@1:10"]),
    "blank lines at the end": (b"session: b\n\n   \n\t\n", ["E007@1:10"]),
    "NUL": (b"\x00\nsession: b\n", ["E106@1:1", "E007@2:10"]),
    "no-break space": (b'session\xc2\xa0"a"\n', ["E106@1:8"]),
    "tabs only": (b"\tsession: b\n", ["E101@1:1", "E007@1:11"]),
    "empty bodies": (b"repeat 2:\n" * 3, ["E147@1:1", "E147@2:1", "W120@3:1"]),
}


def test_bytes_that_no_editor_shows(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.prose" for number in range(len(BYTES))]
    for file, (data, _) in zip(files, BYTES.values(), strict=True):
        file.write_bytes(data)
    lines = prose("compile", "--format", "json", *map(str, files)).stdout.splitlines()
    found = {
        name: [f"{d['code']}@{d['line']}:{d['column']}" for d in json.loads(line)["diagnostics"]]
        for name, line in zip(BYTES, lines, strict=True)
    }
    assert found == {name: wanted for name, (_, wanted) in BYTES.items()}


HELPER = """\
input topic: "T"
input depth: "D"
let x = session "work {topic} {depth}"
input later: "L"
output findings = x
if **something more is there**:
  output sources = session "s {later}"
"""

IMPORTING = """\
use "./helper.prose"
use "./missing.prose" as gone
use "./broken.prose" as bad
use "sub/inner.prose" as inner
let r = helper(topic: "a")
let s = helper(topic: "a", depth: "b", colour: "c")
let { findings, nothing } = helper(topic: "a", depth: "b", later: "c")
session "x {r.findings} {r.sources} {r.nope}"
  context: r.nope
let t = inner()
let u = gone(x: "1")
let v = r.nope
session "{t.o} {t.p}"
"""


def test_the_contracts_of_imported_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "helper.prose").write_text(HELPER)
    (tmp_path / "broken.prose").write_text("session: nobody\n")
    (tmp_path / "sub/inner.prose").write_text('use "../helper.prose" as h\noutput o = h(topic: "a", depth: "b")\n')
    (tmp_path / "main.prose").write_text(IMPORTING)
    (tmp_path / "one.prose").write_text('use "./two.prose"\nlet r = two()\n')
    (tmp_path / "two.prose").write_text('use "./one.prose"\nlet r = one()\n')
    (tmp_path / "self.prose").write_text('use "./self.prose"\nsession "x"\n')
    names = ("main", "one", "two", "self")
    done = prose("compile", "--format", "json", *(str(tmp_path / f"{name}.prose") for name in names))
    found = {
        name: " ".join(f"{d['code']}@{d['line']}:{d['column']}" for d in json.loads(line)["diagnostics"])
        for name, line in zip(names, done.stdout.splitlines(), strict=True)
    }
    assert found == {
        "main": "E215@2:5 E215@3:5 E026@5:9 E027@6:40 E028@7:17 E028@8:37 E028@9:14 E028@12:11 E028@13:16",
        "one": "E112@1:5",
        "two": "E112@1:5",
        "self": "E112@1:5",
    }
