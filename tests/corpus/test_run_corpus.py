"""Programs put through `prose run FILE --format json`, each with what the language reference says about it.

`run/NAME.prose` is a program, `run/NAME.json` beside it what must come out. All keys are optional:

- `why`: the section of the reference, in words. `args`, `env`, `script` (answers of the scripted provider), `files`
  (text files that are put next to the program before it runs), `strict`.
- `exit` (default 0), `outputs` (exactly), `bindings` (these at least), `unbound` (names that must not be there),
  `error` (these fields at least), `codes` (the warnings and errors on stderr, in order), `stderr`, `stderr_lacks`.
- `trace`: the lines of `state.md` after its head, the time of the last one as `TIME`.
- `kept`: files of the run directory with their whole text (null: absent). `listing`: a directory of it with its names.
- `left`: files of the working directory with their text. `nothing`: no run directory at all.

All programs run in this process; every sixtieth one again as a separate command, several in parallel.
"""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forked
import pytest

from prose_kernel.cli.main import main

CASES = sorted((Path(__file__).parent / "run").glob("*.json"))
SAMPLE = CASES[::60]
KEYS = {
    *("why", "args", "env", "script", "files", "exit", "outputs", "bindings", "unbound", "error", "codes", "stderr"),
    *("stderr_lacks", "trace", "kept", "listing", "left", "nothing"),
}
STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
RUN_ID = r"\d{8}-\d{6}-[a-z0-9]{6}"


@dataclass(frozen=True)
class Case:
    """A program with its expectation, in its own directory."""

    path: Path
    expected: dict[str, Any]
    place: Path

    @property
    def arguments(self) -> list[str]:
        return ["run", f"{self.path.stem}.prose", "--format", "json", *self.expected.get("args", [])]

    @property
    def environment(self) -> dict[str, str]:
        scripted = {"PROSE_PROVIDER": "scripted", "PROSE_SCRIPT": "script.yaml"} if "script" in self.expected else {}
        return {**scripted, **self.expected.get("env", {})}


def lay_out(path: Path, place: Path) -> Case:
    expected = json.loads(path.read_text())
    assert expected.keys() <= KEYS, expected.keys() - KEYS
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{path.stem}.prose").write_bytes(path.with_suffix(".prose").read_bytes())
    for name, text in expected.get("files", {}).items():
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    if "script" in expected:
        (place / "script.yaml").write_text(json.dumps(expected["script"]))
    return Case(path, expected, place)


def judge(case: Case, status: int, out: str, err: str) -> None:
    """Compare all facts of the expectation; the report shows all differences together."""
    assert out.endswith("}\n"), err
    result = json.loads(out.splitlines()[-1])
    assert result.keys() == {"status", "run_id", "outputs", "bindings", "error"}
    wanted = case.expected
    seen: dict[str, Any] = {"exit": status, "status": result["status"]}
    right: dict[str, Any] = {"exit": wanted.get("exit", 0)}
    right["status"] = "completed" if right["exit"] == 0 else "failed"
    if "outputs" in wanted:
        seen["outputs"], right["outputs"] = json.dumps(result["outputs"]), json.dumps(wanted["outputs"])
    for name, value in wanted.get("bindings", {}).items():
        seen[f"binding {name}"], right[f"binding {name}"] = result["bindings"].get(name, "(unbound)"), value
    for name in wanted.get("unbound", []):
        seen[f"binding {name}"], right[f"binding {name}"] = result["bindings"].get(name, "(unbound)"), "(unbound)"
    fields = wanted.get("error", {})
    if not fields:
        seen["error"], right["error"] = result["error"], None if right["exit"] == 0 else result["error"]
    for name, value in fields.items():
        seen[f"error.{name}"], right[f"error.{name}"] = (result["error"] or {}).get(name, "(absent)"), value
    if "codes" in wanted:
        seen["codes"], right["codes"] = re.findall(r"\[([EW]\d{3})\]$", err, re.M), wanted["codes"]
    for text in wanted.get("stderr", []):
        seen[f"stderr has {text!r}"], right[f"stderr has {text!r}"] = text in err or err, True
    for text in wanted.get("stderr_lacks", []):
        seen[f"stderr has {text!r}"], right[f"stderr has {text!r}"] = text in err, False
    state = case.place / (
        case.expected["args"][case.expected["args"].index("--state-dir") + 1]
        if "--state-dir" in case.expected.get("args", [])
        else ".prose"
    )
    run = state / "runs" / str(result["run_id"])
    compare_kept(wanted, run, seen, right)
    for name, text in wanted.get("left", {}).items():
        seen[f"left {name}"], right[f"left {name}"] = read(case.place / name), text
    if wanted.get("nothing"):
        seen["runs"], right["runs"] = (state / "runs").exists(), False
        seen["run_id"], right["run_id"] = result["run_id"], None
    wrong = {key: seen[key] for key in right if seen[key] != right[key]}
    assert not wrong, "\n".join(
        [wanted.get("why", ""), *(f"{k}:\n  seen  {seen[k]!r}\n  right {right[k]!r}" for k in wrong), err[-3000:]]
    )


def read(file: Path) -> str | None:
    return file.read_bytes().decode() if file.is_file() else None


def compare_kept(wanted: dict[str, Any], run: Path, seen: dict[str, Any], right: dict[str, Any]) -> None:
    """Return the content of the run directory: the trace, files with their text, directories with their names."""
    if "trace" in wanted:
        head, blank, *lines = (run / "state.md").read_text().splitlines()
        seen["head"], right["head"] = bool(re.fullmatch(rf"# run:{RUN_ID} \S+\.prose", head)) and blank == "", True
        seen["trace"] = [re.sub(STAMP, "TIME", line) for line in lines]
        right["trace"] = wanted["trace"]
    for name, text in wanted.get("kept", {}).items():
        seen[f"kept {name}"], right[f"kept {name}"] = read(run / name), text
    for name, names in wanted.get("listing", {}).items():
        there = sorted(p.name for p in (run / name).iterdir()) if (run / name).is_dir() else []
        seen[f"listing {name}"], right[f"listing {name}"] = there, names


@pytest.mark.timeout(60)
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_program(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    case = lay_out(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, value in case.environment.items():
        monkeypatch.setenv(name, value)
    status = main(case.arguments)
    judge(case, status, *capfd.readouterr())


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Future[tuple[Case, int, str, str]]]:
    """Every sixtieth program as a separate command, four in parallel."""
    place = tmp_path_factory.mktemp("commands")
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PROSE_")}

    def start(path: Path) -> tuple[Case, int, str, str]:
        case = lay_out(path, place / path.stem)
        environment = {**clean, **case.environment, "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
        done = forked.prose(*case.arguments, cwd=case.place, env=environment)
        return case, done.returncode, done.stdout, done.stderr

    with ThreadPoolExecutor(4) as pool:
        return {path.stem: pool.submit(start, path) for path in SAMPLE}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", [path.stem for path in SAMPLE])
def test_command(name: str, commands: dict[str, Future[tuple[Case, int, str, str]]]) -> None:
    judge(*commands[name].result())
