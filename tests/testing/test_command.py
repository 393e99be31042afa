"""`prose test` as a command: discovery, options, processes, reports, and the pytest plugin."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from xml.etree import ElementTree

import pytest
import waiting
from stubs.model_server import StubServer
from testing.books import code, prose, stream, write

from prose_kernel.errors import UsageError
from prose_kernel.testing.snapshot_file import SUFFIX
from prose_kernel.testing.suite import name_matches, targets


def good(name: str) -> Path:
    return write(Path(name), code('exec "echo a"', stream("a\n")))


def bad(name: str) -> Path:
    return write(
        Path(name), code('exec "echo a"', stream("b\n")), code("exec \"echo '<a> & \x1b[31m'\"", stream("c\n"))
    )


def test_directories_and_patterns_find_tests() -> None:
    for name in (
        "a.ipynb",
        "sub/b.ipynb",
        "sub/.ipynb_checkpoints/b-checkpoint.ipynb",
        "node_modules/c.ipynb",
        "env/d.ipynb",
    ):
        good(name)
    Path("env/pyvenv.cfg").write_text("")
    write(Path("py.ipynb"), code("print(1)"), kernel="python3")
    write(Path("mixed.ipynb"), code("%%prose\nlet x = 1"), kernel="python3")
    for name in ("p.prose", "q.vvm", "r.prose"):
        Path(name).write_text("")
    Path("p.prose" + SUFFIX).write_text("# a\n")
    Path("sub/loop").symlink_to("..")
    here = Path.cwd()
    everything = ["a.ipynb", "p.prose", "sub/b.ipynb"]
    assert [one.name for one in targets((), here)] == everything
    assert [one.name for one in targets(["sub", "a.ipynb", "sub/b.ipynb"], here)] == ["sub/b.ipynb", "a.ipynb"]
    assert [one.name for one in targets(["**/*.ipynb"], here)] == ["a.ipynb", "sub/b.ipynb"]
    assert [one.name for one in targets(["q.vvm"], here)] == ["q.vvm"]
    assert [one.name for one in targets(["?.prose"], here, update=True)] == ["p.prose", "r.prose"]


@pytest.mark.parametrize(
    ("words", "fitting"),
    [("tour", True), ("TOUR", True), ("tour and not vvm", False), ("not tour", False), ("course or vvm", True)],
)
def test_k_accepts_expressions_like_pytest(words: str, fitting: bool) -> None:
    assert name_matches("notebooks/vvm_tour.ipynb", words) is fitting


@pytest.mark.parametrize("words", ["", "or", "a or", "and", "not", "a and", "or a", "a and or b", "a and not"])
def test_k_without_words_is_a_usage_error(words: str) -> None:
    with pytest.raises(UsageError, match="isn't an expression"):
        name_matches("a", words)


def test_options_determine_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert prose("test") == 5
    good("a.ipynb")
    bad("b.ipynb")
    bad("c.ipynb")
    capsys.readouterr()
    assert prose("test") == 1
    assert capsys.readouterr().out.endswith("\n\n4 failed, 1 passed in 3 files\n")
    assert prose("test", "-x") == 1
    assert capsys.readouterr().out.endswith("\n\n1 failed, 1 passed in 2 files\n")
    assert prose("test", "-k", "a.ipynb") == 0
    capsys.readouterr()
    assert prose("test", "-k", "nothing") == 5
    assert capsys.readouterr().err == "nothing to test: no file name matches -k 'nothing'\n"
    assert prose("test", "--timeout", "0") == 2
    assert prose("test", "--sanitize-with", "gone.cfg") == 2


def test_several_processes_report_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    good("a.ipynb")
    bad("b.ipynb")
    assert prose("test", "-n", "2") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["a.ipynb: 1 passed", "b.ipynb: 2 failed"]


def test_a_killed_process_fails_only_the_test_of_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    good("a.ipynb")
    write(Path("b.ipynb"), code('exec "kill -9 $PPID"'))
    good("c.ipynb")
    good("d.ipynb")
    assert prose("test", "-n", "2", "--junit-xml", "report.xml") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == ["a.ipynb: 1 passed", "b.ipynb: 1 failed", "c.ipynb: 1 passed", "d.ipynb: 1 passed"]
    assert lines[-1] == "1 failed, 3 passed in 4 files"
    assert [suite.get("failures") for suite in ElementTree.parse("report.xml").getroot()] == ["0", "1", "0", "0"]


def test_the_processes_end_when_the_command_is_killed() -> None:
    for name in ("a", "b"):
        write(Path(f"{name}.ipynb"), code(f'exec "echo $PPID > {name}.part; mv {name}.part {name}; sleep 600"'))
    command = [sys.executable, "-c", "import sys; from prose_kernel.cli.main import main; sys.exit(main())"]
    process = subprocess.Popen([*command, "test", "-n", "2"])
    waiting.until(lambda: Path("a").exists() and Path("b").exists())
    process.kill()
    process.wait()
    for name in ("a", "b"):
        worker = int(Path(name).read_text())
        try:
            waiting.until(lambda: not waiting.command_line(worker))  # noqa: B023
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)


@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["to the command", "to its processes, too"])
def test_ctrl_c_ends_the_processes(send: Callable[[int, int], None]) -> None:
    good("a.ipynb")
    write(Path("b.ipynb"), code('exec "echo > begun; sleep 600"'))
    command = [sys.executable, "-c", "import sys; from prose_kernel.cli.main import main; sys.exit(main())"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*command, "test", "-n", "2"], stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "a.ipynb: 1 passed\n"  # its process waits for another file
        waiting.until(Path("begun").exists)
        send(running.pid, signal.SIGINT)
        _, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (130, "interrupted\n")


def test_a_junit_xml_report_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    good("a.ipynb")
    book = bad("b.ipynb")
    write(book, code('exec "echo a"', stream("b\x00\n")), code("# NBVAL_SKIP\nlet x = 1"), code("let y = 1"))
    assert prose("test", "--junit-xml", "out/report.xml") == 1
    root = ElementTree.parse("out/report.xml").getroot()
    assert [root.get(name) for name in ("tests", "failures", "skipped")] == ["4", "2", "1"]
    assert [suite.get("name") for suite in root] == ["a.ipynb", "b.ipynb"]
    first, second, *_ = root[1]
    assert (first.get("classname"), first.get("name"), first.get("file")) == ("b.ipynb", "cell 1", "b.ipynb")
    assert "line 1: stdout differs" in (first[0].get("message") or "")
    assert "- b" in (first[0].text or "")
    assert second[0].tag == "skipped"
    assert prose("test", "--junit-xml", "a.ipynb/x.xml") == 2
    assert prose("test", "--junit-xml", "out/report.xml") == 1


@pytest.mark.parametrize("name", ["a.ipynb", "directory", "pipe"])
def test_a_report_replaces_only_a_report_or_an_empty_file(capsys: pytest.CaptureFixture[str], name: str) -> None:
    text = good("a.ipynb").read_text()
    good("b.ipynb")
    Path("directory").mkdir()
    os.mkfifo("pipe")
    assert prose("test", "--junit-xml", name, "b.ipynb") == 2
    out, err = capsys.readouterr()
    assert (out, name in err) == ("", True)
    assert Path("a.ipynb").read_text() == text
    Path("empty").touch()
    assert prose("test", "--junit-xml", "empty", "b.ipynb") == 0
    assert Path("empty").read_text().startswith("<?xml")


def test_a_snapshot_without_its_program_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    Path("p.prose" + SUFFIX).write_text("# p.prose\n")
    assert prose("test", "p.prose" + SUFFIX) == 2
    assert "there is no file p.prose\n" in capsys.readouterr().err


def test_a_name_with_a_line_feed_is_shown_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a\nb.prose").write_text("let a = 1\n")
    assert prose("test", "a\nb.prose") == 1
    assert "FAILED a\\nb.prose, program\n  there is no a\\nb.prose.expected.md " in capsys.readouterr().out
    assert prose("test", "c\nd.prose") == 2
    assert "Error: there is no file c\\nd.prose\n" in capsys.readouterr().err


def test_an_empty_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    good("a.ipynb")
    assert prose("test", "") == 2
    assert capsys.readouterr().err.startswith("Error: the name of a notebook or program is empty\n")


def test_an_interrupt_ends_the_whole_test_run() -> None:
    write(Path("a.ipynb"), code('exec "echo begun > begun; sleep 600"'))
    good("b.ipynb")
    command = [sys.executable, "-c", "import sys; from prose_kernel.cli.main import main; sys.exit(main())", "test"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    waiting.until(Path("begun").exists)
    process.send_signal(2)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (out, err)
    assert "interrupted" in err
    assert "b.ipynb" not in out


def test_live_records_answers_of_the_provider(capsys: pytest.CaptureFixture[str]) -> None:
    with StubServer() as server:
        Path("prose.toml").write_text(
            f'provider = "gateway"\n[providers.gateway]\nkind = "openai"\nbase_url = "{server.openai_url}"\n'
            'key = ""\nmodel = "ok-0"\n'
        )
        book = write(Path("a.ipynb"), code('let x = session "do: say hello"', count=None))
        Path("p.prose").write_text('output x = session "do: say goodbye"\n')
        assert prose("test", "--update", "a.ipynb", "p.prose") == 1
        assert capsys.readouterr().out.count("nothing is recorded for session c1/1/s0") == 2
        assert not Path("cassettes").exists()
        assert prose("test", "--update", "--live", "a.ipynb", "p.prose") == 0
    assert sorted(path.name for path in Path("cassettes").glob("*.jsonl")) == ["a.jsonl", "session.jsonl"]
    assert prose("test") == 0
    assert book.read_text().count("The answer is forty-two.") > 0


# ---------------------------------------------------------------- pytest


PLUGIN = "prose_kernel.testing.pytest_plugin"


def pytest_run(*arguments: str) -> tuple[int, str]:
    """Run pytest with only this plugin, because others take seconds to load."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", PLUGIN, "-q", *arguments]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    return ran.returncode, ran.stdout


def test_the_pytest_plugin_has_an_entry_point() -> None:
    (found,) = [one for one in entry_points(group="pytest11") if one.name == "prose"]
    assert found.value == PLUGIN


def test_the_pytest_plugin_tests_notebooks_and_programs_with_its_option() -> None:
    good("a.ipynb")
    bad("b.ipynb")
    Path("p.prose").write_text("output x = 1\n")
    Path("p.prose" + SUFFIX).write_text("# one\n\nExit status: 0\n\n## Output x\n\n```text\n1\n```\n")
    Path("gone.prose" + SUFFIX).write_text("# two\n")
    status, output = pytest_run("--prose", "-rA", "a.ipynb", "b.ipynb", "p.prose::one", "gone.prose" + SUFFIX)
    assert status == 1
    assert "gone.prose is missing" in output
    assert "b.ipynb, cell 1\nline 1: stdout differs\n" in output
    assert "FAILED b.ipynb::cell 1" in output
    assert "PASSED p.prose::one" in output
    assert "Traceback" not in output
    assert "3 failed, 6 passed" in output


def test_the_pytest_plugin_without_its_option_loads_nothing_of_the_package() -> None:
    bad("b.ipynb")
    test = (
        "import sys\ndef test_x():\n  assert {n for n in sys.modules if n.startswith('prose_kernel')} == {EXPECTED}\n"
    )
    loaded = {"prose_kernel", "prose_kernel._version", "prose_kernel.testing", PLUGIN}
    Path("test_x.py").write_text(test.replace("{EXPECTED}", repr(loaded)))
    status, output = pytest_run()
    assert (status, "1 passed" in output) == (0, True)
