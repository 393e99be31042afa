"""`prose install` and `prose doctor`: kernelspecs that start, and findings with their fixes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from prose_kernel.cli import doctor
from prose_kernel.cli.main import main
from prose_kernel.processes import sandbox
from prose_kernel.processes.sandbox import Mechanisms


@pytest.fixture
def jupyter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let Jupyter look for kernelspecs only in a directory of this test."""
    for name in ("JUPYTER_DATA_DIR", "JUPYTER_PATH"):
        monkeypatch.setenv(name, str(tmp_path / "data"))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setattr("jupyter_core.paths.ENV_JUPYTER_PATH", [])
    monkeypatch.setattr("jupyter_core.paths.SYSTEM_JUPYTER_PATH", [])
    monkeypatch.setattr(
        "jupyter_client.kernelspec.jupyter_path", lambda *parts: [str(tmp_path.joinpath("data", *parts))]
    )
    return tmp_path / "data" / "kernels"


def test_the_installed_kernelspec_names_this_interpreter(jupyter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "--user", "--name", "prose-here", "--display-name", "Prose (here)"]) == 0
    spec = json.loads((jupyter / "prose-here" / "kernel.json").read_text())
    assert spec["argv"][:4] == [sys.executable, "-P", "-m", "prose_kernel"]
    assert (spec["display_name"], spec["language"], spec["interrupt_mode"]) == ("Prose (here)", "prose", "message")
    assert sys.executable in capsys.readouterr().out


def test_install_below_a_prefix(tmp_path: Path) -> None:
    assert main(["install", "--prefix", str(tmp_path / "p")]) == 0
    assert (tmp_path / "p/share/jupyter/kernels/prose/kernel.json").is_file()


def test_two_destinations_together_are_refused(tmp_path: Path) -> None:
    assert main(["install", "--user", "--prefix", str(tmp_path)]) == 2


def test_a_destination_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "share").write_text("a file")
    assert main(["install", "--prefix", str(tmp_path)]) == 2
    assert "cannot install" in capsys.readouterr().err


def test_an_unwritable_home_has_a_hint_with_another_destination(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (home := tmp_path / "home").write_text("no directory")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(home / "data"))
    monkeypatch.delenv("IPYTHONDIR", raising=False)
    assert main(["install"]) == 2
    shown = capfd.readouterr().err
    assert shown.startswith("Error: cannot install the kernelspec: ")
    assert shown.endswith("\nhint: prose install --sys-prefix\n")


def test_doctor_without_a_kernel_names_the_fix(jupyter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 1
    report = capsys.readouterr().out
    assert "Jupyter sees no Prose kernel\n       fix: prose install --user\n" in report
    assert report.endswith("1 broken\n")


def test_doctor_names_a_language_without_a_kernel(jupyter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["install", "--user", "--language", "prose"])
    assert main(["doctor", "--no-start"]) == 0
    wanted = "note   kernel: Jupyter sees no kernel of VVM\n       fix: prose install --user --language vvm\n"
    assert wanted in capsys.readouterr().out


def test_doctor_finds_an_interpreter_that_is_gone(jupyter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["install", "--user"])
    path = jupyter / "prose" / "kernel.json"
    path.write_text(path.read_text().replace(sys.executable, "/gone/python"))
    assert main(["doctor", "--no-start"]) == 1
    assert "/gone/python is gone" in capsys.readouterr().out


def test_doctor_reports_why_a_kernel_does_not_start(jupyter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["install", "--user"])
    path = jupyter / "prose" / "kernel.json"
    path.write_text(path.read_text().replace(sys.executable, "/bin/false"))
    assert main(["doctor"]) == 1
    report = capsys.readouterr().out
    assert "kernel prose: does not start" in report
    assert "fix: prose install --user --language prose --name prose" in report


def test_doctor_starts_a_good_kernel(jupyter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["install", "--user"])
    assert main(["doctor"]) == 0
    report = capsys.readouterr().out
    assert "kernel prose: starts" in report
    assert report.endswith("all is well\n")


@pytest.mark.parametrize(
    ("variable", "value", "subject"),
    [
        ("PROSE_SHELL", "/no/such/shell", "shell"),
        ("PROSE_SHELL", "/bin/false", "shell"),
        ("PROSE_PROVIDER", "scripted", "provider"),
        ("PROSE_GATES", "perhaps", "settings"),
        ("PROSE_STATE_DIR", "/etc/hostname/state", "state"),
    ],
)
def test_doctor_finds_settings_that_cannot_work(
    variable: str, value: str, subject: str, jupyter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    found = [f for f in doctor.examine(start=False) if f.state == "broken" and f.subject == subject]
    assert len(found) == 1
    assert found[0].fix


def test_doctor_finds_a_state_directory_that_is_a_link_to_nothing(
    jupyter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for target in ("nothing", ".prose"):
        (tmp_path / ".prose").symlink_to(target)
        (found,) = [f for f in doctor.examine(start=False) if f.subject == "state"]
        assert (found.state, found.text) == ("broken", f"{tmp_path}/.prose is not a writable directory")
        (tmp_path / ".prose").unlink()


# ---------------------------------------------------------------- confinement of agents' programs


def test_doctor_reports_whether_agents_may_run_programs(jupyter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def line() -> str:
        return next(f.text for f in doctor.examine(start=False) if f.subject == "Exec")

    assert line().startswith("disabled")
    monkeypatch.setenv("PROSE_EXEC_ENABLED", "true")
    assert line().startswith("enabled")


def test_missing_confinement_is_a_note_that_names_the_consequence() -> None:
    bare = {line.subject: line for line in sandbox.probe(Mechanisms("", 0, "no"))}
    assert {line.state for subject, line in bare.items() if subject != "monitor"} == {"note"}
    assert "refused where `read:` or `write:` is stated" in bare["landlock"].text
    assert "refused under `network: deny`" in bare["no network"].text
    old = {line.subject: line for line in sandbox.probe(Mechanisms("", 5, ""))}
    assert "too old" in old["landlock"].text and old["no network"].state == "ok"
    (alone,) = sandbox.probe(Mechanisms("this system cannot"))
    assert alone.subject == "monitor" and "Exec is refused" in alone.text
