"""The entry point: help, unknown and retired commands, usage errors, start-up cost."""

from __future__ import annotations

import errno
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import forked
import pytest

from prose_kernel import __version__
from prose_kernel.cli.main import COMMANDS, main
from prose_kernel.programs import missing_files
from prose_kernel.runs import languages


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
    assert "Usage: prose run" in capsys.readouterr().out


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"prose {__version__}\n"


def test_an_unknown_command_prints_only_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["complie", "x.prose"]) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err == "Error: there is no command complie; did you mean `prose compile`?\n"


@pytest.mark.parametrize(
    ("name", "meant"), [("resume", "runs resume"), ("prune", "cassette prune"), ("version", "--version")]
)
def test_an_unknown_command_with_the_name_of_a_subcommand_or_option(
    name: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name]) == 2
    assert f"`prose {meant}`" in capsys.readouterr().err


def test_help_of_an_unknown_command_prints_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "complie"]) == 2
    assert "Error: there is no command complie; did you mean `prose compile`?\n" in capsys.readouterr().err


@pytest.mark.parametrize("group", ["", "runs", "gate", "cassette", "tasks", "judge", "programs"])
def test_lists_of_commands_hold_whole_sentences(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*group.split(), "--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:\n")[2]
    assert listed and "..." not in listed


def test_trust_says_that_no_file_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["trust"]) == 0
    assert capsys.readouterr().out == "no file waits for your agreement\n"


def test_a_program_instead_of_a_command_has_a_hint_with_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["my flow.prose"]) == 2
    message = "Error: there is no command my flow.prose; did you mean `prose run 'my flow.prose'`?\n"
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["run", "--ofline", "x.prose"], None),
        (["run", "--provder=human", "x.prose"], "--provider"),
        (["run", "--yess", "g", "x.prose"], "--yes"),
        (["run", "--halp"], "--help"),
        (["run", "-z"], None),
        (["runs", "show", "--outptu"], None),
        (["report", "--outptu", "a"], "--output"),
        (["compile", "--formta=json"], "--format"),
    ],
)
def test_an_unknown_option_prints_only_the_nearest_one(
    words: list[str], meant: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    wrong = next(word for word in words if word.startswith("-")).partition("=")[0]
    command = " ".join(["prose", *itertools.takewhile(lambda word: not word.startswith("-"), words)])
    hint = f"did you mean `{meant}`?" if meant else f"`{command} --help` lists them"
    message = f"Error: there is no option {wrong}\nhint: {hint}\n"
    assert capsys.readouterr().err.partition("\n")[2] == message


def test_a_file_that_looks_like_an_option_has_a_hint_with_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-n a.prose").write_text("output x = 1\n")
    assert main(["run", "-n a.prose"]) == 2
    assert capsys.readouterr().err.endswith(
        "Error: there is no option -n\nhint: the file of that name is './-n a.prose'\n"
    )
    assert main(["run", "./-n a.prose"]) == 0


@pytest.mark.parametrize("command", ["compile", "explain"])
def test_a_notebook_instead_of_a_program_has_a_hint_with_a_command(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a b.ipynb").write_text("{}")
    assert main([command, "a b.ipynb"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("Error: a b.ipynb is a notebook")
    assert " 'a b.ipynb'" in shown


def test_explain_reports_a_missing_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "missing.ipynb"]) == 2
    assert capsys.readouterr().err == "Error: there is no file missing.ipynb\n"


@pytest.mark.parametrize("command", ["run", "compile", "check", "fmt", "test", "graph", "plan", "upgrade", "notebook"])
def test_a_missing_file_is_named_with_the_nearest_one(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("review.prose").write_text("let a = 1\n")
    assert main([command, "reveiw.prose"]) in (1, 2)
    seen = capsys.readouterr()
    assert "reveiw.prose" in seen.err
    assert seen.err.endswith("\nhint: did you mean `review.prose`?\n")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("flows/reviw.prose", "flows/review.prose"),
        ("./flows/review.vvm", "./flows/review.prose"),
        ("flows/books.ipynb", "flows/book.ipynb"),
        ("flows/b.prose", None),  # a.prose is too different, although only one letter differs
        ("reviw", None),  # no similar file in this directory
        ("flows/other.prose", None),
        ("flows/nope.prose", None),  # o.prose shares only the suffix
        ("nowhere/review.prose", None),
        ("flows/notes.prose", None),  # notes.md is not a program
        ("flows/hiden.prose", None),  # .hidden.prose is hidden
        ("flows/foldr.prose", None),  # folder.prose is a directory
        ("flows/" + "x" * 300 + ".prose", None),
    ],
)
def test_the_nearest_file_of_a_mistyped_name(
    typed: str, meant: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flows/folder.prose").mkdir(parents=True)
    for name in ("review.prose", "a.prose", "o.prose", "book.ipynb", "notes.md", ".hidden.prose"):
        Path("flows", name).write_text("")
    assert missing_files.hint(typed, languages.runnable_suffixes()) == (meant and f"did you mean `{meant}`?")


def test_a_name_without_a_suffix_has_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tea.prose").write_text("let a = 1\n")
    assert main(["run", "tea"]) == 2
    assert capsys.readouterr().err == (
        "Error: there is no file and no bundled example tea\nhint: did you mean `tea.prose`?\n"
    )


@pytest.mark.parametrize("name", ["", " "])
@pytest.mark.parametrize("command", ["run", "compile", "fmt", "plan"])
def test_an_empty_name_of_a_program_is_an_error(name: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, name]) == 2
    assert capsys.readouterr().err == (
        "Error: the name of the program is empty\nhint: prose examples lists the bundled programs\n"
    )


@pytest.mark.parametrize("command", ["run", "compile", "graph"])
def test_a_name_with_a_line_feed_is_shown_on_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "no\nsuch.prose"]) == 2
    assert capsys.readouterr().err == "Error: cannot read no\\nsuch.prose: no such file or directory\n"


def test_boot_is_retired(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["boot"]) == 2
    assert "retired" in capsys.readouterr().err


def test_a_usage_error_has_a_message_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run"]) == 2
    assert "Missing argument" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--format", "json", "--nonsense", "x.prose"],
        ["run", "--format=json", "/no/such.prose"],
        ["run", "x.prose", "--format", "json", "--input", "novalue"],
        ["run", "/no/such.prose", "--format", "json", "--gates", "perhaps"],
    ],
)
def test_usage_errors_of_a_json_run_are_json_too(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["status"] == "failed"
    assert result["run_id"] is None
    assert result["error"]["message"]
    assert (result["outputs"], result["bindings"]) == ({}, {})


def test_help_is_one_page_and_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    page = capsys.readouterr().out
    assert len(page.splitlines()) < 50
    assert [name for name in ("run", "compile", "fmt", "gates", "doctor") if f"prose {name}" not in page] == []


def test_help_has_vvm_on_its_own_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "vvm"]) == 0
    page = capsys.readouterr().out
    assert len(page.splitlines()) < 50
    shown = page.partition("prose help)\n")[2].partition("\n\n")[0]
    (tmp_path / "shown.vvm").write_text("".join(f"{line[2:47].rstrip()}\n" for line in shown.splitlines()))
    (tmp_path / "team.vvm").write_text("def review(text):\n  return text\nexport review\n")
    assert main(["compile", str(tmp_path / "shown.vvm")]) == 0


def test_help_of_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "run"]) == 0
    assert "--state-dir" in capsys.readouterr().out
    assert main(["help", "nonsense"]) == 2


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "too many open files"),
        (OSError(errno.ENOSPC, "No space left on device", "somewhere"), "no space left on device"),
        (MemoryError(), "there is not enough memory"),
        (RuntimeError("can't start new thread"), "no further thread can be started"),
    ],
)
def test_an_exhausted_resource_is_not_an_internal_error(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("prose_kernel.cli.main.cli.main", fail)
    assert main(["update"]) == 1
    first, hint = capsys.readouterr().err.splitlines()
    assert first == f"Error: {message}" and hint.startswith("hint: ") and "report" not in hint


def test_an_internal_error_is_one_line_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("prose_kernel.cli.update.migrate", lambda _: 1 / 0)
    monkeypatch.setattr("pathlib.Path.is_dir", lambda _: True)
    assert main(["update"]) == 1
    first, hint = capsys.readouterr().err.splitlines()
    assert first == "Internal error: ZeroDivisionError: division by zero"
    assert hint.startswith("hint: ")


def test_an_interrupt_before_the_start_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("prose_kernel.cli.program_files.read_bytes", interrupted)
    assert main(["compile", "x.prose"]) == 130
    assert capsys.readouterr().out == ""


def test_a_closed_pipe_is_not_an_internal_error(tmp_path: Path) -> None:
    (tmp_path / "p.prose").write_text('output x = "y"\n')
    read, write = os.pipe()
    os.close(read)
    code = "import sys; from prose_kernel.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "compile", "p.prose"]
    seen = subprocess.run(command, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (seen.returncode, seen.stderr) == (1, "Error: standard output could not be written: broken pipe\n")


def test_compile_imports_little() -> None:
    """To be fast, it imports only the packages of the languages, click and msgspec."""
    code = (
        "import sys; before = set(sys.modules); from prose_kernel.cli.main import main; main(['compile', '-'])\n"
        "print(*{'.'.join(m.split('.')[: 2 if m.startswith('prose_kernel.') else 1]) for m in set(sys.modules) - before})"
    )
    seen = subprocess.run(
        [sys.executable, "-c", code], input='output x = "y"\n', capture_output=True, text=True, check=True
    )
    found = set(seen.stdout.splitlines()[-1].split())
    assert not {"asyncio", "socket", "sqlite3", "subprocess"} & found
    rooms = ("_version", "access", "cli", "errors", "language", "runs", "runtime", "views")
    ours = {"prose_kernel", *(f"prose_kernel.{room}" for room in rooms)}
    assert found - sys.stdlib_module_names - {"typing_extensions"} == {"click", "msgspec", *ours}


@pytest.mark.parametrize("command", ["run x.prose", "run hello", "gates", "tasks list", "doctor --no-start"])
def test_a19_a_removed_current_directory_is_an_error(tmp_path: Path, command: str) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = "import os, sys; os.rmdir(os.getcwd()); from prose_kernel.cli.main import main; sys.exit(main())"
    ran = forked.python(code, *command.split(), cwd=gone, env=os.environ, package=Path(__file__).parents[2])
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-2:] == [
        "Error: the directory that this command was started in is gone",
        "hint: cd to a directory that exists",
    ]


def test_an_interrupt_while_the_command_line_is_imported_leaves_no_traceback() -> None:
    code = """
import sys
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from prose_kernel.cli.entry import main
sys.exit(main())
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_the_entry_point_handles_interrupts_before_other_imports() -> None:
    code = """
import sys
before = set(sys.modules)
import prose_kernel.cli.entry
print(*sorted(set(sys.modules) - before))
"""
    ended = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    found = {name for name in ended.stdout.split() if name.partition(".")[0] != "prose_kernel"}
    assert found <= {"__future__"}


@pytest.mark.parametrize("command", ["exercises", "eval"])
def test_the_root_directory_has_a_name_in_an_error(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "/"]) == 2
    assert capsys.readouterr().err == "Error: / cannot be read: it is a directory\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("eval", "loop.eval.toml"),
        ("run", "loop.prose"),
        ("run", "--resume", "loop.prose"),
        ("run", "--resume", "20260101-000000-abcdef", "--cwd", "loop"),
        ("run", "loop.ipynb"),
        ("test", "loop.ipynb"),
    ],
)
def test_a_circular_link_is_an_unreadable_file(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("loop", "loop.prose", "loop.ipynb", "loop.eval.toml"):
        (tmp_path / name).symlink_to(name)
    monkeypatch.chdir(tmp_path)
    assert main(list(arguments)) in (1, 2)
    err = capsys.readouterr().err
    assert "Internal error" not in err and str(tmp_path) not in err and "Error: " in err, err


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "p.prose", "--state-dir", "LONG"),
        ("run", "p.prose", "--state-dir", "LONG", "--format", "json"),
        ("run", "--resume", "LONG/20260101-000000-abcdef"),
        ("run", "--resume", "--cwd", "LONG"),
        ("report", "LONG/20260101-000000-abcdef"),
        ("tasks", "list", "--run", "LONG"),
        ("exercises", "LONG"),
        ("examples", "--notebooks", "LONG"),
    ],
)
def test_a_name_that_is_too_long_is_an_error(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.prose").write_text('exec "true"\n')
    monkeypatch.chdir(tmp_path)
    status = main([word.replace("LONG", "x" * 300) for word in arguments])
    out, err = capsys.readouterr()
    if "run p.prose" in " ".join(arguments) and sys.version_info >= (3, 14):  # `Path.exists` raises nothing any more
        assert (status, err.count("cannot be written (file name too long)")) == (0, 1)
        return
    assert status in (1, 2)
    assert "Internal error" not in err and err.startswith("Error: "), err
    assert ("json" in arguments) == bool(out)
    if out:
        assert json.loads(out)["error"]["message"].endswith("cannot be used: file name too long")


@pytest.mark.parametrize(
    "arguments",
    [("lsp", "--vscode", "~nosuch/x"), ("report", "-o", "~nosuch/x"), ("notebook", "p.prose", "-o", "~nosuch/x.ipynb")],
)
def test_a_tilde_with_an_unknown_user_is_an_ordinary_name(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.prose").write_text('exec "true"\n')
    (tmp_path / "~nosuch").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["run", "p.prose"]) == 0
    assert main(list(arguments)) == 0, capsys.readouterr().err
    assert list((tmp_path / "~nosuch").iterdir())
