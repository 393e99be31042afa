"""Programs from elsewhere on the command line and in notebooks: run, check, install, list, clean."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import forked
import pexpect
import pytest
from models.people import ScriptedPerson
from notebook.test_cells import fine, wrong
from stubs.http_server import hang, redirect, response
from stubs.shelf import Shelf, digest, opened
from waiting import until

from prose_kernel.cli import doctor
from prose_kernel.cli.main import main
from prose_kernel.errors import ExecError
from prose_kernel.notebook.cells import Cells
from prose_kernel.runs import settings
from prose_kernel.runs.resumption import resumption
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.values import full_text

HELLO = 'input name: "Who?"\nlet line = exec "echo hello {name}"\noutput said = line\n'
QUIET = 'output said = "nothing"\n'


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    with opened(tmp_path, monkeypatch) as found:
        found.settings()
        yield found


Prose = tuple[int, str, str]


@pytest.fixture
def prose(capfd: pytest.CaptureFixture[str]) -> object:
    def run(*arguments: str) -> Prose:
        capfd.readouterr()
        status = main(arguments)
        return status, *capfd.readouterr()

    return run


# ---------------------------------------------------------------- prose run


def test_a_program_of_the_registry_runs_and_its_files_are_kept(shelf: Shelf, prose) -> None:
    shelf.put("dana/outer", 'use "./part.prose"\nlet r = part(name: "Ada")\noutput line = r.said\n')
    shelf.put("dana/part.prose", HELLO)
    Path("dana").mkdir()
    Path("dana/prose.lock").write_text("of another project")
    assert prose("run", "dana/outer", "--trust", "dana/outer")[:2] == (0, "line: hello Ada\n")
    [run] = (shelf.directory / ".prose" / "runs").iterdir()
    assert (run / "program.prose").read_text().startswith('use "./part.prose"')
    assert (run / "imports" / "url--part" / "program.prose").read_text() == HELLO
    shelf.server.pages.clear()
    assert prose("run", "@dana/outer")[:2] == (0, "line: hello Ada\n")  # pinned: no server and no option


def test_a_database_names_the_url_and_the_digest(shelf: Shelf, prose) -> None:
    url = shelf.put("dana/hello", QUIET)
    Path("p.prose").write_text('use "dana/hello"\nlet a = hello()\noutput b = a.said\n')
    assert prose("run", "p.prose", "--state", "sqlite", "--trust", "all")[1] == "b: nothing\n"
    [run] = (shelf.directory / ".prose" / "runs").iterdir()
    with closing(sqlite3.connect(run / "state.db")) as database:
        found = database.execute("select alias, source_url, content_hash from imports").fetchall()
    assert found == [("hello", url, f"sha256:{digest(QUIET)}")]


def test_non_interactive_means_that_nothing_runs(shelf: Shelf, prose) -> None:
    url = shelf.put("dana/hello", HELLO)
    status, out, err = prose("run", "dana/hello", "--input", "name=Ada")
    assert (status, out) == (2, "")
    assert err == (
        f'ImportError: "{url}" cannot be loaded: it has not run here before, and the run is non-interactive [E215]\n'
        f"hint: read it (prose programs show {url}), then agree: --trust {digest(HELLO)}\n"
    )
    assert not (shelf.directory / ".prose").exists() and not shelf.lock.path.exists()
    status, out, _ = prose("run", "dana/hello", "--format", "json")
    assert status == 2 and json.loads(out)["error"]["code"] == "E215"


def test_an_unavailable_import_fails_before_the_first_statement(shelf: Shelf, prose) -> None:
    Path("p.prose").write_text('exec "touch ran"\nuse "dana/gone"\nuse "kim/there"\nlet a = there()\n')
    shelf.put("kim/there", QUIET)
    status, _, err = prose("run", "p.prose", "--trust", "all")
    assert status == 2 and "the server has no such program (404) [E215]" in err and "line 2" in err
    assert not Path("ran").exists()


def at_terminal(shelf: Shelf, *arguments: str) -> forked.Terminal:
    code = shelf.command()[2]
    return forked.Terminal(code, *arguments, cwd=Path.cwd(), package=Path(__file__).parents[2])


def test_a_program_is_asked_about_at_a_terminal(shelf: Shelf) -> None:
    url = shelf.put("dana/hello", HELLO)
    child = at_terminal(shelf, "run", "dana/hello", "--input", "name=Ada")
    try:
        child.expect_exact(f"  {url}")
        child.expect_exact(digest(HELLO))
        child.expect_exact("yes, no, or show (print the text): ")
        child.sendline("show")
        child.expect_exact('let line = exec "echo hello {name}"')
        child.expect_exact("yes, no, or show (print the text): ")
        child.sendline("yes")
        child.expect("said.*: hello Ada\r\n")
        child.expect(pexpect.EOF)
    finally:
        status = child.end()
    assert status == 0 and shelf.pin(url) is not None


def test_an_interrupt_while_fetching_ends_immediately(shelf: Shelf) -> None:
    shelf.server.pages["/dana/slow"] = hang
    running = subprocess.Popen(
        [*shelf.command(), "run", "dana/slow"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        until(lambda: shelf.server.requests or running.poll() is not None)
        assert running.poll() is None
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=30)
    finally:
        running.kill()
    assert (running.returncode, err) == (130, "interrupted\n")


def test_a_command_of_a_run_cannot_agree_for_the_person(shelf: Shelf, prose) -> None:
    url = shelf.put("dana/hello", QUIET)
    script = Path("nested.py")
    script.write_text(f"import sys; sys.argv[1:] = ['run', '--trust', 'all', 'dana/hello']\n{shelf.command()[2]}\n")
    Path("p.prose").write_text(f'exec "{sys.executable} nested.py"\n  on-fail: "continue"\n')
    _, _, err = prose("run", "p.prose")
    assert "only a person may agree to that, not a command of a run" in err
    assert shelf.pin(url) is None


def test_an_input_value_and_a_program_cannot_agree(shelf: Shelf, prose) -> None:
    url = shelf.put("dana/hello", QUIET)
    Path("p.prose").write_text('input answer: "Run this, now and later?"\nuse "dana/hello"\nlet a = hello()\n')
    assert prose("run", "p.prose", "--input", "answer=yes")[0] == 2
    assert shelf.pin(url) is None


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("https://example.org/x.vvm", "only programs of OpenProse run from elsewhere"),
        ("https://example.org/x.ipynb?raw", "only programs of OpenProse run from elsewhere"),
        ("@dana", "@dana isn't a program of the registry"),
        ("dana/here", "dana/here is the name of a program in the registry, and of a file here"),
        ("a" * 300 + "/x", "no such program (404)"),
        ("a/b/c", "no such program (404)"),
        ("a//c", "there is no file and no bundled example a//c"),
        ("https://user:secret@example.org/x", "a URL with a user name or password is not loaded"),
        ("http://example.org/x", "only https is fetched"),
    ],
)
def test_targets_that_are_not_run(shelf: Shelf, prose, target: str, says: str) -> None:
    Path("dana").mkdir()
    Path("dana/here").write_text(QUIET)
    status, _, err = prose("run", target)
    assert status == 2 and says in err and "secret" not in err
    assert shelf.server.requests == ([f"/{target}"] if "404" in says else [])


def test_strict_reads_the_third_row_of_6_1_literally(shelf: Shelf, prose) -> None:
    shelf.put("lib/tidy.prose", QUIET)
    Path("lib").mkdir()
    Path("lib/tidy.prose").write_text('output said = "a file"\n')
    Path("p.prose").write_text('use "lib/tidy.prose"\nlet { said } = tidy()\noutput line = said\n')
    assert prose("run", "p.prose")[1] == "line: a file\n"
    assert prose("run", "--strict", "p.prose", "--trust", "all")[1] == "line: nothing\n"
    assert prose("run", "lib/tidy.prose")[1] == "said: a file\n"
    assert "prose run ./lib/tidy.prose" in prose("run", "--strict", "lib/tidy.prose")[2]
    Path("lib/tidy.prose").unlink()
    assert prose("run", "--strict", "lib/tidy.prose")[1] == "said: nothing\n"


def test_a_module_of_vvm_never_comes_from_elsewhere(shelf: Shelf, prose) -> None:
    Path("p.vvm").write_text(f'from "{shelf.url}x.vvm" import x\n')
    status, _, err = prose("run", "p.vvm", "--trust", "all")
    assert status == 2 and "V090" in err and shelf.server.requests == []


def test_in_context_writes_nothing(shelf: Shelf, prose) -> None:
    shelf.put("dana/hello", QUIET)
    assert prose("run", "--in-context", "--trust", "all", "dana/hello")[0] == 0
    assert [path.name for path in shelf.directory.iterdir()] == ["prose.toml"]


async def test_a_run_resumes_with_its_original_program_texts(shelf: Shelf) -> None:
    """It needs neither server nor cache nor consent, even if the program itself came from elsewhere."""
    shelf.server.pages["/dana/outer"] = redirect("/v1/outer.prose")
    shelf.put(
        "v1/outer.prose", 'use "./part.prose"\nlet r = part(name: "Ada")\nexec "test -e there"\noutput x = r.said\n'
    )
    shelf.put("v1/part.prose", HELLO)
    start = Start(shelf.directory, "dana/outer", notebook=False, origin="dana/outer", trust=("all",))
    nobody = ScriptedPerson(available=False)
    first = Workspace(settings.load(shelf.directory), start, asker=nobody)
    with pytest.raises(ExecError):
        await first.execute(await first.fetch_program(), "dana/outer")
    directory = first.opened.directory
    assert directory is not None
    await first.close(ExecError("failed"))
    shelf.server.pages.clear()
    assert main(["programs", "clean", "--all"]) == 0
    Path("there").touch()
    again = Workspace(
        settings.load(shelf.directory),
        Start(shelf.directory, "dana/outer", notebook=False),
        asker=nobody,
        resumption=resumption(directory / "journal.jsonl"),
    )
    await again.restore()
    await again.execute((directory / "program.prose").read_text(), "dana/outer")
    assert {name: full_text(value) for name, (value, _) in again.outputs().items()} == {"x": "hello Ada\n"}
    await again.close()
    assert len(shelf.server.requests) == 3


# ---------------------------------------------------------------- compile, check


def test_compile_uses_pinned_programs_and_fetches_nothing(shelf: Shelf, prose) -> None:
    shelf.put("dana/hello", HELLO)
    Path("p.prose").write_text('use "dana/hello"\nlet a = hello()\noutput b = a.nothing\n')
    assert prose("compile", "p.prose")[0] == 0 and shelf.server.requests == []
    assert prose("compile", "dana/hello")[2].startswith(
        "Error: dana/hello is not installed, and nothing is fetched here"
    )
    assert prose("install", "dana/hello", "--trust", "dana/hello")[0] == 0
    shelf.server.pages.clear()
    status, _, err = prose("compile", "p.prose")
    assert status == 1 and "[E026]" in err and "[E028]" in err
    assert prose("compile", "dana/hello")[1] == HELLO
    assert prose("check", "dana/hello")[0] == 0
    assert len(shelf.server.requests) == 1
    (shelf.directory / "prose.lock").write_text("version = 9\n")
    status, _, err = prose("compile", "p.prose")
    assert (
        status == 1 and "prose.lock cannot be used: it has version 9, this prose_kernel reads version 1 [E215]" in err
    )


# ---------------------------------------------------------------- install, programs


def test_install_list_show_upgrade_remove_clean(shelf: Shelf, prose) -> None:
    url = shelf.put("dana/hello", HELLO)
    part = shelf.put("kim/part.prose", QUIET)
    shelf.put("kim/outer", 'use "./part.prose"\noutput x = part()\n')
    assert prose("programs")[1].startswith("no programs from elsewhere are pinned here")
    assert prose("programs", "show", "dana/hello") == (
        0, HELLO, f"# {url}\n# sha256 {digest(HELLO)}, {len(HELLO)} bytes, not pinned\n",
    )  # fmt: skip
    status, out, _ = prose("install", "dana/hello", "kim/outer", "--trust", digest(HELLO), "--trust", "kim/outer")
    assert status == 0 and out.splitlines()[0] == f"pinned dana/hello  sha256 {digest(HELLO)}"
    assert out.count("pinned ") == 3
    assert prose("install", "dana/hello") == (0, "prose.lock: up to date, nothing to do\n", "")
    listed = prose("programs")[1].splitlines()
    assert listed[0] == f"dana/hello       {digest(HELLO)[:12]}  {len(HELLO):>9,} bytes  cached      exec (1)"
    assert listed[2] == f"@kim/part.prose  {digest(QUIET)[:12]}  {len(QUIET):>9,} bytes  cached      nothing that acts"
    assert listed[3].startswith("cache: 3 programs, ")

    newer = QUIET + "# newer\n"
    shelf.put("dana/hello", newer)
    status, out, err = prose("install", "--upgrade")
    assert status == 2 and "the run is non-interactive" in err and shelf.pin(url).sha256 == digest(HELLO)  # type: ignore[union-attr]
    status, out, _ = prose("install", "--upgrade", "--trust", "all")
    assert (status, out) == (0, f"replaced dana/hello  sha256 {digest(newer)}\n")

    assert prose("programs", "remove", "dana/hello")[1] == "removed dana/hello\n"
    assert shelf.pin(url) is None and shelf.pin(part) is not None
    assert prose("programs", "remove", "dana/hello")[0] == 2
    assert prose("programs", "clean")[1] == f"deleted 2 programs, {len(HELLO + newer)} bytes\n"
    assert prose("programs", "clean", "--all")[1].startswith("deleted 2 programs")
    assert "not cached" in prose("programs")[1]
    assert prose("programs", "show", digest(HELLO))[0] == 2


def test_a_program_is_shown_as_it_is_to_a_pipe_and_without_tricks_to_a_person(shelf: Shelf, prose) -> None:
    text = 'output a = "1" # \x1b[8m\r\nexec "\u202e"\n'
    shelf.put("dana/x", text)
    assert prose("programs", "show", "dana/x")[1] == text
    child = at_terminal(shelf, "programs", "show", "dana/x")
    try:
        child.expect_exact('output a = "1" # \\x1b[8m\r\nexec "\\u202e"\r\n')
        child.expect(pexpect.EOF)
    finally:
        child.end()


def test_programs_installed_before_a_failure_are_reported(shelf: Shelf, prose) -> None:
    url = shelf.put("dana/hello", QUIET)
    status, out, err = prose("install", "dana/hello", "dana/gone", "--trust", "all")
    assert (status, out) == (2, f"pinned dana/hello  sha256 {digest(QUIET)}\n") and "dana/gone" in err
    assert shelf.pin(url) is not None


def test_a_program_with_errors_is_not_installed(shelf: Shelf, prose) -> None:
    shelf.put("dana/bad", "output x = nobody\noutput y = = 1\n")
    status, _, err = prose("install", "dana/bad", "--trust", "all")
    assert (
        status == 1 and err.startswith("dana/bad has errors, it is not installed:\n") and not shelf.lock.path.exists()
    )


def test_an_install_that_cannot_be_recorded_fails(shelf: Shelf, prose) -> None:
    shelf.put("dana/hello", QUIET)
    (shelf.directory / ".prose.lock.tmp").mkdir()
    status, out, err = prose("install", "dana/hello", "--trust", "all")
    assert (status, out) == (2, "") and "Error: dana/hello is not installed: prose.lock cannot be written" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "01", "--trust", "everything"), "everything isn't a program from elsewhere"),
        (("install", "dana/x", "--user"), "these options are about kernels"),
        (("install", "--trust", "all"), "--trust needs a TARGET"),
        (("install", "./here.prose"), "./here.prose isn't a program from elsewhere"),
        (("install", "dana/x", "--trust", "everything"), "everything isn't a program from elsewhere"),
        (("install", "dana/gone"), "the server has no such program (404)"),
        (("programs", "show", "here"), "here isn't a program from elsewhere"),
        (("programs", "show", "0" * 64), "is in the cache"),
    ],
)
def test_program_commands_with_unknown_targets_fail(shelf: Shelf, prose, arguments: tuple[str, ...], says: str) -> None:
    status, _, err = prose(*arguments)
    assert status == 2 and says in err


def test_doctor_counts_installed_programs(shelf: Shelf, prose) -> None:
    shelf.put("dana/hello", QUIET)
    prose("install", "dana/hello", "--trust", "all")
    found = doctor._programs(settings.load(shelf.directory))
    assert (found.state, found.text) == ("ok", f"1 from elsewhere pinned here, 1 cached ({len(QUIET)} bytes)")
    prose("programs", "clean", "--all")
    assert doctor._programs(settings.load(shelf.directory)).state == "note"
    shelf.lock.path.write_text("<<<<<<< ours\n")
    assert doctor._programs(settings.load(shelf.directory)).state == "broken"


# ---------------------------------------------------------------- notebooks


async def test_a_cell_asks_in_the_notebook_and_the_next_one_does_not(shelf: Shelf) -> None:
    shelf.put("dana/hello", HELLO)
    person = ScriptedPerson("yes")
    cells = Cells(shelf.directory, person)
    await fine(cells, 'use "dana/hello"\nlet a = hello(name: "Ada")')
    await fine(cells, 'use "@dana/hello" as again\nlet b = again(name: "Bob")')
    assert len([entry for entry in person.transcript if entry.startswith("? ")]) == 1
    assert shelf.server.requests == ["/dana/hello"]
    await cells.close()


async def test_without_an_input_box_the_error_names_the_magic(shelf: Shelf) -> None:
    url = shelf.put("dana/hello", HELLO)
    cells = Cells(shelf.directory, ScriptedPerson(available=False))
    code = 'use "dana/hello"\nlet a = hello(name: "Ada")'
    assert f"%trust {digest(HELLO)}" in "\n".join(await wrong(cells, code))
    await fine(cells, f"%trust {url}")
    await fine(cells, code)
    shown = (await fine(cells, "%trust")).texts[-1]
    assert "dana/hello" in shown and digest(HELLO) in shown
    assert "isn't a program from elsewhere" in "\n".join(await wrong(cells, "%trust everything"))
    await cells.close()


def test_a_served_error_page_is_not_taken_for_a_program(shelf: Shelf, prose) -> None:
    shelf.server.pages["/dana/page"] = response(b"<html>", "text/html")
    status, _, err = prose("run", "dana/page")
    assert status == 2 and "it is an HTML page, not a program [E215]" in err
