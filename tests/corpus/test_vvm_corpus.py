"""VVM programs with the results that the language reference gives, written only from the reference.

`vvm/compile/NAME.vvm` says in its first two lines what it shows and which findings it has, each as CODE@LINE or
CODE@LINE:COLUMN. `vvm/run/NAME.vvm` begins with comments: `why`, `expect` (`outputs`, `exit`, fields of `error`, the
`codes` of warnings), and where they are needed `script` (answers of the scripted provider), `files` and `env`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from prose_kernel.cli.main import main
from prose_kernel.runs import languages

HERE = Path(__file__).parent / "vvm"
RUN = sorted((HERE / "run").glob("*.vvm"))
COMPILE = sorted((HERE / "compile").glob("*.vvm"))


def header(text: str) -> dict[str, Any]:
    """The expectation in the comments at the head of a program."""
    found: dict[str, Any] = {}
    for line in text.split("\n"):
        match = re.fullmatch(r"# (why|expect|script|files|env): (.*)", line)
        if match is None:
            break
        found[match[1]] = match[2] if match[1] == "why" else json.loads(match[2])
    return found


@pytest.mark.parametrize("path", RUN, ids=lambda path: path.stem)
def test_program(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    told = header(path.read_text(encoding="utf-8"))
    wanted = told["expect"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / path.name).write_bytes(path.read_bytes())
    for name, text in told.get("files", {}).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    if "script" in told:
        (tmp_path / "script.yaml").write_text(json.dumps(told["script"]), encoding="utf-8")
        monkeypatch.setenv("PROSE_PROVIDER", "scripted")
        monkeypatch.setenv("PROSE_SCRIPT", "script.yaml")
    for name, value in told.get("env", {}).items():
        monkeypatch.setenv(name, value)
    status = main(["run", path.name, "--format", "json"])
    out, err = capfd.readouterr()
    result = json.loads(out.splitlines()[-1])
    assert status == wanted.get("exit", 0), err
    if "outputs" in wanted:
        assert json.dumps(result["outputs"], ensure_ascii=False) == json.dumps(wanted["outputs"], ensure_ascii=False)
    for field, value in wanted.get("error", {}).items():
        assert (result["error"] or {}).get(field) == value, (told["why"], result["error"])
    if "codes" in wanted:
        assert re.findall(r"\b([VR]\d{3})\b", err) == wanted["codes"]
    assert "Traceback" not in err


@pytest.mark.parametrize("path", COMPILE, ids=lambda path: path.stem)
def test_findings(path: Path) -> None:
    language = languages.of_file(path.name)
    source = language.decode(path.read_bytes(), path.name)
    wanted = source.text.split("\n")[1].removeprefix("# findings: ").split()
    found = language.compile(source, load=language.programs(path.parent, program=path).load_contract).diagnostics
    seen = [f"{d.code}@{d.line}:{d.column}" for d in found]
    assert len(seen) == len(wanted if wanted != ["none"] else []), seen
    for one, expected in zip(seen, wanted, strict=False):
        assert one == expected or one.rpartition(":")[0] == expected
