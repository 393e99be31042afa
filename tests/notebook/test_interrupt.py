"""Interrupts: the kernel survives, its children do not, the next cell works."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from notebook.kernels import Client, kernel, specification
from waiting import command_line, gone, processes, until

from prose_kernel.storage.journal_reading import NAME, read

SLOW_DISK = """
import signal, threading
from prose_kernel.access import atomic, jsonl
urgent = threading.Event()
interrupts = signal.pthread_kill
add = jsonl.add
def pthread_kill(*arguments):
    interrupts(*arguments)
    urgent.set()
def slow(descriptor, data):
    add(descriptor, data)
    if b'"k":"asked"' in data and b"slow" in data:
        open("writes", "w").close()
        urgent.wait(20)
signal.pthread_kill, jsonl.add = pthread_kill, slow
"""
"""The record of a request is on the disk, and the kernel has not come to count it, when an interrupt becomes urgent."""

SLOW_STATEMENT = """
import signal, threading
from prose_kernel.machine.openprose import execs, expressions
urgent = threading.Event()
interrupts = signal.pthread_kill
def pthread_kill(*arguments):
    interrupts(*arguments)
    urgent.set()
def slow(made):
    def make(*arguments):
        if "slow" in str(arguments):
            open("computes", "w").close()
            urgent.wait(20)
        return made(*arguments)
    return make
signal.pthread_kill = pthread_kill
execs.ExecText, expressions._joined = slow(execs.ExecText), slow(expressions._joined)
"""
"""A statement computes, without a wait, until an interrupt becomes urgent."""

SLOW_END = """
import signal, threading
from prose_kernel.runs.provenance import Provenance
urgent = threading.Event()
interrupts = signal.pthread_kill
def pthread_kill(*arguments):
    interrupts(*arguments)
    urgent.set()
def slow(end):
    def ends(self, *, failed):
        if "slow" in self.calling.code:
            open("ends", "w").close()
            urgent.wait(20)
        end(self, failed=failed)
    return ends
signal.pthread_kill = pthread_kill
Provenance.end = slow(Provenance.end)
"""
"""A cell has shown its outputs, and its names are being recorded, when an interrupt becomes urgent."""

SLOW_IMPORT = """
import importlib, signal, sys, threading
assert not hasattr(sys, "loaded"), "the module was loaded before"
sys.loaded, urgent, interrupts = True, threading.Event(), signal.pthread_kill
def pthread_kill(*arguments):
    interrupts(*arguments)
    urgent.set()
signal.pthread_kill = pthread_kill
open("imports", "w").close()
urgent.wait(20)
sys.path = [path for path in sys.path if not path.endswith("/packages")]
del sys.modules["yaml"]
importlib.import_module("yaml")
"""
"""A module that can be loaded only once is being loaded when an interrupt becomes urgent."""


def interrupted(client: Client, request: str) -> None:
    ran = client.finish(request)
    assert ran.kinds[-1] == "error"
    assert ran.error["ename"] == "KeyboardInterrupt"
    assert ran.status == "error" and ran.content["ename"] == "KeyboardInterrupt"
    assert client.run("let after = 1").status == "ok"


@pytest.fixture
def slow(directory: Path) -> Path:
    """The file that makes statements slow in kernels that start now."""
    file = directory / "packages/sitecustomize.py"
    file.parent.mkdir()
    file.write_text(SLOW_STATEMENT)
    return file


def stopped(client: Client, cell: str) -> None:
    """Interrupt a cell whose statement computes."""
    request, computes = client.send(cell), client.directory / "computes"
    until(computes.exists)
    computes.unlink()
    client.interrupt()
    assert client.finish(request).error["ename"] == "KeyboardInterrupt"


def test_a_waiting_cell(client: Client) -> None:
    request = client.send('exec "echo started; sleep 4711.1"')
    client.until_text(request, "started")
    client.interrupt()
    interrupted(client, request)
    assert gone("sleep 4711.1")


def test_a_busy_cell(client: Client) -> None:
    request = client.send('exec "echo started"\nlet n = 0\nloop (max: 100000000):\n  n = n + 1')
    client.until_text(request, "started")
    client.interrupt()
    interrupted(client, request)


def test_a_busy_compilation(client: Client) -> None:
    request = client.send("let x = 1\n" * 400_000)
    client.until(request, lambda m: m["msg_type"] == "execute_input")
    client.interrupt()
    ran = client.finish(request)
    assert ran.status == "error"  # interrupted, or all 400,000 lines checked
    assert client.run("let after = 1").status == "ok"


def test_a_write_to_the_journal_is_finished_first(directory: Path) -> None:
    (directory / "packages").mkdir()
    (directory / "packages/sitecustomize.py").write_text(SLOW_DISK)
    with kernel(directory) as client:
        request = client.send('exec "echo slow"')
        until((directory / "writes").exists)
        client.interrupt()
        interrupted(client, request)
    (journal,) = directory.glob(f".prose/runs/*/{NAME}")
    read(journal).require_whole()


def test_an_import_is_finished_first(directory: Path) -> None:
    (directory / "packages").mkdir()
    (directory / "packages/yaml.py").write_text(SLOW_IMPORT)
    (directory / "script.yaml").write_text("ask: answered\n")
    (directory / "prose.toml").write_text('provider = "scripted"\nscript = "script.yaml"\n')
    with kernel(directory) as client:
        request = client.send('session "ask"\nexec "sleep 60"')
        until((directory / "imports").exists)
        client.interrupt()
        interrupted(client, request)
        assert client.run('session "ask"').displays == ["session · scripted\nanswered"]


@pytest.mark.parametrize(("cell", "status"), [("let slow = 1", "ok"), ('throw "slow"', "error")])
def test_a_cell_that_has_ended_gets_its_reply(directory: Path, cell: str, status: str) -> None:
    (directory / "packages").mkdir()
    (directory / "packages/sitecustomize.py").write_text(SLOW_END)
    with kernel(directory) as client:
        request = client.send(cell)
        until((directory / "ends").exists)
        client.interrupt()
        assert client.finish(request).status == status
        assert client.run("let after = 1").status == "ok"


def test_a_branch_that_never_waits_ends_its_text_when_the_run_is_restored(directory: Path, slow: Path) -> None:
    cell = """parallel:
  do:
    try:
      let b = exec "echo a >> ran"
      let long = "slow {b}"
      exec "echo c >> ran"
    finally:
      exec "echo d >> ran"
  exec "true"
"""
    with kernel(directory) as client:
        assert client.run("let kept = 1").status == "ok"
        stopped(client, cell)
        assert client.run("let later = 1").status == "ok"
        names = client.run("%bindings").displays
        ran = (directory / "ran").read_text()
    slow.unlink()
    with kernel(directory, forks=True) as client:
        assert client.run("%restore").status == "ok"
        assert client.run("%bindings").displays == names
    assert (directory / "ran").read_text() == ran


@pytest.mark.parametrize(
    "statement", ['let long = exec "echo a >> ran; echo slow"', 'let b = exec "echo a >> ran"\n  let long = "slow {b}"']
)
def test_a_statement_that_never_waits_is_ended_again_when_the_run_is_restored(
    directory: Path, slow: Path, statement: str
) -> None:
    cell = f'let a = 1\ntry:\n  {statement}\nfinally:\n  exec "echo b >> ran"\nlet after = 1'
    with kernel(directory) as client:
        assert client.run("let kept = 1").status == "ok"
        stopped(client, cell)
        assert client.run('let later = exec "echo later"').status == "ok"
        names = client.run("%bindings").displays
        assert "long" not in names[0] and "later" in names[0]
    slow.unlink()
    with kernel(directory, forks=True) as client:
        assert client.run("%restore").status == "ok"
        assert client.run("%bindings").displays == names
    assert (directory / "ran").read_text().split() == ["a", "b"]


def test_a_cell_that_continues_is_stopped_again(directory: Path, slow: Path) -> None:
    cell = 'let long = exec "echo a >> ran; echo slow"'
    for continues in (False, True):
        with kernel(directory) as client:
            if continues:
                assert client.run("%restore").status == "ok"
            stopped(client, cell)
            if continues:
                assert client.run("let later = 1").status == "ok"
    slow.unlink()
    with kernel(directory, forks=True) as client:
        assert client.run("%restore").status == "ok"
        names = client.run("%bindings").displays[0]
        assert "later" in names and "long" not in names
    assert (directory / "ran").read_text().split() == ["a"]


def test_a_cell_that_asks(client: Client) -> None:
    request = client.send('input name: "Who?"', allow_stdin=True)
    assert client.channels.get_stdin_msg(timeout=30)["content"]["prompt"].startswith("Who?")
    client.interrupt()
    interrupted(client, request)
    assert client.run('input name: "Who?"', answers=["me"], allow_stdin=True).status == "ok"


def test_ten_in_a_row(client: Client) -> None:
    for i in range(10):
        request = client.send(f'exec "echo started; sleep 4712.{i}"')
        client.until_text(request, "started")
        client.interrupt()
        assert client.finish(request).error["ename"] == "KeyboardInterrupt"
    assert client.run('exec "echo fine"').text() == "fine\n"
    assert gone("sleep 4712.")


def test_an_idle_kernel_does_not_mind(client: Client) -> None:
    client.run("let a = 1")
    for _ in range(3):
        client.interrupt()
        os.kill(client.pid, signal.SIGINT)
    assert client.run("let b = a + 1").displays == ["b: number = 2"]


def test_a_signal_is_an_interrupt_too(client: Client) -> None:
    request = client.send('exec "echo started; sleep 4713"')
    client.until_text(request, "started")
    os.kill(client.pid, signal.SIGINT)
    interrupted(client, request)
    assert gone("sleep 4713")


def test_queued_cells_do_not_run(client: Client) -> None:
    request = client.send('exec "echo started; sleep 4714"')
    queued = [client.send(f'exec "echo {i} >> queued.txt"') for i in range(5)]
    client.until_text(request, "started")
    client.interrupt()
    assert client.finish(request).status == "error"
    assert [client.finish(q).status for q in queued] == ["aborted"] * 5
    assert client.run('exec "ls queued.txt"\n  on-fail: "continue"').text() == ""


def test_children_that_ignore_signals_are_killed(client: Client) -> None:
    command = "trap '' INT TERM; echo started; while :; do sleep 4715; done"
    request = client.send(f'exec "{command}"')
    client.until_text(request, "started")
    client.interrupt()
    interrupted(client, request)
    assert gone("sleep 4715")


def test_all_branches_end_at_the_same_time(client: Client) -> None:
    request = client.send('parallel for i in [1, 2, 3]:\n  exec "sleep 4716.{i}"')
    # each branch has a shell, whose command line holds the text, too
    until(lambda: sum(command_line(pid).startswith("sleep") for pid in processes("sleep 4716.")) == 3)
    client.interrupt()
    interrupted(client, request)
    assert gone("sleep 4716.")


def test_finally_runs_and_what_was_bound_stays(client: Client) -> None:
    code = 'let kept = "yes"\ntry:\n  exec "echo started; sleep 4717"\nfinally:\n  exec "echo cleaned"'
    request = client.send(code)
    client.until_text(request, "started")
    client.interrupt()
    ran = client.finish(request)
    assert ran.error["ename"] == "KeyboardInterrupt"
    assert "cleaned" in ran.text()
    assert client.run('exec "echo {kept}"').text() == "yes\n"


def test_a_second_interrupt_ends_finally_too(client: Client) -> None:
    code = 'try:\n  exec "echo started; sleep 4718"\nfinally:\n  exec "echo cleaning; sleep 4719"'
    request = client.send(code)
    client.until_text(request, "started")
    client.interrupt()
    client.until_text(request, "cleaning")
    client.interrupt()
    interrupted(client, request)
    assert gone("sleep 4718") and gone("sleep 4719")


@pytest.mark.parametrize("mode", ["signal"])
def test_signal_mode_works_as_well(directory: Path, mode: str) -> None:
    with kernel(directory, spec=specification(interrupt_mode=mode)) as client:
        for mark in ("4720.1", "4720.2"):
            request = client.send(f'exec "echo started; sleep {mark}"')
            client.until_text(request, "started")
            client.interrupt()
            interrupted(client, request)
        assert gone("sleep 4720.")
