"""`%restore`, `%history` and `%back`: a notebook whose kernel was restarted or killed continues where it was."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from notebook.kernels import Client, Ran, kernel, specification, vvm_specification
from waiting import gone, until

from prose_kernel.runs.workspace import Workspace

RUN = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")


def die(client: Client) -> None:
    """Kill the kernel and start another one in its place."""
    os.kill(client.pid, signal.SIGKILL)
    again(client)


def again(client: Client) -> None:
    client.manager.restart_kernel(now=True)
    client.channels.wait_for_ready(timeout=30)


def end_cell(client: Client, request: str, how: str) -> None:
    """End a running cell: its kernel is `killed`, or the cell `interrupted`. Another kernel takes the place of the old one."""
    if how == "killed":
        die(client)
    else:
        client.interrupt()
        assert client.finish(request).status == "error"
        again(client)


def interrupted(client: Client, request: str) -> Ran:
    """Interrupt a cell until it ends: an interrupt before its program has begun may do nothing."""
    for _ in range(10):
        client.interrupt()
        try:
            return client.finish(request, timeout=5)
        except AssertionError:
            continue
    raise AssertionError("the cell does not end")


def test_after_a_restart_everything_is_back(directory: Path) -> None:
    (directory / "sub").mkdir()
    with kernel(directory, forks=True) as client:
        client.run('%input word=tea\ninput word: "?"\nlet a = exec "echo a >> ran; echo {word}"')
        client.run('agent writer:\n  model: sonnet\nblock twice(x):\n  return "{x}{x}"')
        client.run('exec "cd sub"\nlet b = do twice(a)')
        client.run('let c = exec "echo c >> ../ran; exit 3"')
        client.manager.restart_kernel()
        client.channels.wait_for_ready(timeout=30)
        back = client.run("%restore")
        assert back.displays == [
            "4 cells of the run are back.\n  names: word, a, b\n  agents: writer\n  blocks: twice\n  directory: sub"
        ]
        assert (directory / "ran").read_text() == "a\nc\n"
        assert client.run('exec "pwd"').text() == f"{directory / 'sub'}\n"
        assert client.run("do twice(b)").displays == ["teateateatea"]
        refused = client.run("%restore").error
        assert refused["evalue"] == "%restore: a run has begun here already"
        runs = list((directory / ".prose" / "runs").iterdir())
        assert len(runs) == 1
        log = (runs[0] / "state.md").read_text()
        assert log.count("# run:") == 1
        assert log.count("→ a ✓") == 1
        program = (runs[0] / "program.prose").read_text()
        assert program.count("agent writer:") == 1


def test_branches_that_were_interrupted_are_not_shown_in_the_next_cell(directory: Path) -> None:
    with kernel(directory, forks=True) as client:
        request = client.send('parallel:\n  a = exec "touch there; sleep 60"\n  b = exec "sleep 60"')
        until((directory / "there").exists)
        client.interrupt()
        assert "2 cancelled" in "".join(client.finish(request).displays)
        client.run("let m = 1")
        die(client)
        assert client.run("%restore").displays == ["2 cells of the run are back.\n  names: m"]
        assert client.run("let n = 1").displays == ["n: number = 1"]


def test_cells_of_prosescript_are_read_as_such_again(directory: Path) -> None:
    """The condition is an expression only because an earlier cell has bound its name."""
    script = "%%prose --profile prosescript\n"
    with kernel(directory, forks=True) as client:
        client.run("let ready = true")
        client.run(script + 'if ready:\n  exec "echo a >> ran"\n  let x = {\n    a: 1\n    b: 2\n  }')
        client.manager.restart_kernel()
        client.channels.wait_for_ready(timeout=30)
        assert client.run("%restore").displays[0].startswith("2 cells of the run are back.\n  names: ready, x")
        assert (directory / "ran").read_text() == "a\n"
        assert client.run(script + "if ready:\n  return x.b").displays == ["2"]


def test_a_restored_cell_calls_the_contract_files_as_they_were(directory: Path) -> None:
    file = "---\nname: made\nkind: function\n---\n### Returns\n- `x`\n### Execution\n```prose\n{}\nreturn {}\n```\n"
    call = "%%prose --profile prosescript\nlet x = call made"
    with kernel(directory, forks=True) as client:
        (directory / "made.prose.md").write_text(file.format('exec "echo a >> ran"', 1))
        client.run(call)
        client.manager.restart_kernel()
        client.channels.wait_for_ready(timeout=30)
        (directory / "made.prose.md").write_text(file.format('exec "echo b >> ran"\nexec "echo c >> ran"', 2))
        assert client.run("%restore").displays[0].startswith("1 cell of the run is back.\n  names: x")
        assert (directory / "ran").read_text() == "a\n"
        assert client.run("output before = x").displays[0].endswith("1")
        client.run(call)
        assert (directory / "ran").read_text() == "a\nb\nc\n"


def test_an_unfinished_cell_continues_when_it_is_run_again(directory: Path) -> None:
    cell = 'let b = exec "echo b >> ran; echo two"\nlet c = exec "echo c >> ran; echo on > on; sleep 4811"'
    with kernel(directory, forks=True) as client:
        client.run('let a = exec "echo a >> ran; echo one"')
        client.send(cell)
        until((directory / "on").exists)
        die(client)
        assert gone("sleep 4811")
        back = client.run("%restore")
        assert back.displays == [
            "1 cell of the run is back.\n"
            "  names: a\n"
            "This cell had not ended. Run it again: it continues where it was.\n"
            '  let b = exec "echo b >> ran; echo two"\n'
            '  let c = exec "echo c >> ran; echo on > on; sleep 4811"\n'
            "Under way, and asked again then:\n"
            "  command c2/2/x0: echo c >> ran; echo on > on; sleep 4811"
        ]
        (directory / "on").unlink()
        request = client.send(cell)
        until((directory / "on").exists)
        assert (directory / "ran").read_text() == "a\nb\nc\nc\n"
        client.interrupt()
        assert client.finish(request).status == "error"
        assert client.run('exec "echo {b}"').text() == "two\n"
        assert [row.split()[0] for row in client.run("%history").displays[0].splitlines()[1:]] == [
            *("c1", "c1/1/x0", "c2", "c2/1/x0", "c2/2/x0", "c3", "c3/1/x0")
        ]


def test_a_cell_that_is_interrupted_before_it_continues_loses_nothing(directory: Path) -> None:
    cell = (
        'let b = exec "echo b >> ran"\nlet n = 0\nrepeat 15000:\n  n = n + 1\nexec "touch on; test -e go || sleep 4817"'
    )
    with kernel(directory, forks=True) as client:
        client.run('let a = exec "echo a >> ran; echo one"')
        request = client.send(cell)
        until((directory / "on").exists)
        client.interrupt()
        assert client.finish(request).status == "error"
        for _ in range(5):  # an interrupt that comes later ends the cell where it continues, and the run has begun
            (directory / "on").unlink()
            again(client)
            assert client.run("%restore").status == "ok"
            for _ in range(2):
                request = client.send(cell)
                client.until(request, lambda message: message["content"].get("execution_state") == "busy")
                assert interrupted(client, request).error["ename"] == "KeyboardInterrupt"
                if (directory / "on").exists():
                    break
            else:
                break
        assert not (directory / "on").exists()
        (journal,) = directory.glob(".prose/runs/*/journal.jsonl")
        whole = journal.read_bytes()
        journal.write_bytes(b"no journal")
        for _ in range(2):
            assert client.run("%bindings\nlet a = 1").error["ename"] == "UsageError"
        journal.write_bytes(whole)
        (directory / "go").touch()
        assert client.run(cell).status == "ok"
        assert client.run('exec "echo {a} {n}"').text() == "one 15000\n"
        assert (directory / "ran").read_text() == "a\nb\n"


def test_a56_restored_cells_import_what_the_journal_has_and_new_ones_the_files(directory: Path) -> None:
    module = directory / "m.prose"
    module.write_text('input word: "Which?"\noutput loud = "{word}!"\n')
    with kernel(directory, forks=True) as client:
        client.run('use "./m.prose" as m\nlet a = m(word: "tea")')
        module.unlink()
        die(client)
        assert "1 cell of the run is back." in client.run("%restore").displays[0]
        assert client.run('let b = m(word: "milk")\noutput c = "{a.loud}{b.loud}"').displays[-1].endswith("tea!milk!")
        assert "E215" in client.run('use "./m.prose" as again').error["evalue"]


def test_a29_cells_are_named_by_the_numbers_of_their_prompts(directory: Path) -> None:
    with kernel(directory, forks=True) as client:
        client.run("%bindings")
        client.run("const n = 1")
        client.run("%bindings")
        client.run('let m = exec "echo two"')
        assert "a const of cell 2" in client.run("%%vvm\nn = 2").error["evalue"]
        rows = [row.split()[:2] for row in client.run("%history").displays[0].splitlines()[1:]]
        assert [row for row in rows if "/" not in row[0]] == [["c1", "[2]"], ["c2", "[4]"], ["c3", "[5]"]]
        drawn = client.run("%graph all").displays[0].splitlines()
        assert [line for line in drawn if line.startswith("cell")] == ["cell 2", "cell 4", "cell 5"]
        assert "cell 4:1" in client.run("%profile all").displays[0]
        assert "no cell 3" in client.run("%back 3").error["evalue"]
        assert "after cell 4" in client.run("%back 4").displays[0]
    with kernel(directory, forks=True) as client:  # the numbers of the cells stay those of the kernel before
        client.run("%restore")
        rows = [row.split()[:2] for row in client.run("%history").displays[0].splitlines()[1:]]
        assert [row for row in rows if "/" not in row[0]] == [["c1", "[2]"], ["c2", "[4]"]]
        assert "after cell 2" in client.run("%back c1").displays[0]


def test_going_back_makes_a_branch(directory: Path) -> None:
    with kernel(directory, forks=True) as client:
        client.run('let n = exec "echo x >> ran; wc -l < ran"')
        client.run('exec "echo x >> ran"\nlet m = 1')
        client.run("let k = 2")
        history = client.run("%history").displays[0]
        assert [re.sub(r"\s{2,}", " | ", line) for line in history.splitlines()] == [
            "where | cell | asked | answered",
            'c1 | [1] | ✓ | let n = exec "echo x >> ran; wc -l < ran"',
            "c1/1/x0 | ✓ | command echo x >> ran; wc -l < ran | 1",
            'c2 | [2] | ✓ | exec "echo x >> ran"',
            "c2/1/x0 | ✓ | command echo x >> ran",
            "c3 | [3] | ✓ | let k = 2",
        ]
        back = client.run("%back 1")
        assert back.displays == [
            "The run is as it was after cell 1. Files, and what commands did outside, are not undone.\n  names: n"
        ]
        assert client.run('exec "echo {n}"').text() == "1\n"
        assert client.run("m").error["ename"] == "SyntaxError"
        assert (directory / "ran").read_text() == "x\nx\n"
        client.run("%reset")
        assert client.run("%restore").displays[0] == "2 cells of the run are back.\n  names: n"
        assert client.run("%back 9").error["evalue"] == "%back: the run has no cell 9"
        assert client.run("%back 6").error["evalue"] == "%back: cell 6 is the last one"
        assert len(list((directory / ".prose" / "runs").iterdir())) == 2
        into = client.run("%back c1/1").displays[0]
        assert into.startswith("The run is as it was before c1/1. ")
        assert "This cell had not ended. Run it again: it continues where it was." in into
        again = client.run('let n = exec "echo x >> ran; wc -l < ran"')
        assert again.status == "ok"
        assert (directory / "ran").read_text() == "x\nx\nx\n"
        assert "asked nothing at c1/7" in client.run("%back c1/7").error["evalue"]


def test_going_back_that_is_interrupted_loses_nothing(directory: Path) -> None:
    runs = directory / ".prose" / "runs"
    with kernel(directory, forks=True) as client:
        assert client.run("let n = 0\nrepeat 100000:\n  n = n + 1").status == "ok"
        assert client.run('let m = exec "echo two"').status == "ok"
        request = client.send("%back 1")
        until(lambda: len(list(runs.iterdir())) == 2)
        assert interrupted(client, request).error["ename"] == "KeyboardInterrupt"
        assert client.run('exec "echo {n} {m}"').text() == "100000 two\n"
        assert len(list(runs.iterdir())) == 1
        assert client.run("%back 1").status == "ok"
        assert client.run("m").status == "error" and client.run('exec "echo {n}"').text() == "100000\n"


SLOW_REPLAY = """
import asyncio
from pathlib import Path
from prose_kernel.runs.workspace import Workspace
run_again = Workspace._run_again
async def slow(*arguments):
    if not Path("replays").exists():
        Path("replays").touch()
        await asyncio.sleep(60)
    await run_again(*arguments)
Workspace._run_again = slow
"""


def test_going_back_with_files_that_is_interrupted_changes_no_file(directory: Path) -> None:
    (directory / "packages").mkdir()
    (directory / "packages/sitecustomize.py").write_text(SLOW_REPLAY)
    (directory / ".jupyter").mkdir()  # the kernel writes its history there while commands run
    (directory / ".jupyter" / "CACHEDIR.TAG").touch()
    (directory / "prose.toml").write_text("[run]\nkeep_files = true\n")
    with kernel(directory) as client:
        assert client.run('exec "echo 1 > notes"').status == "ok"
        assert client.run('let a = exec "echo 2 > notes; echo kept"').status == "ok"
        request = client.send("%back 1 --files")
        until((directory / "replays").exists)
        assert interrupted(client, request).error["ename"] == "KeyboardInterrupt"
        assert (directory / "notes").read_text() == "2\n"
        assert client.run('exec "echo {a}"').text() == "kept\n"
        assert client.run("%back 1 --files").status == "ok"
        assert (directory / "notes").read_text() == "1\n"


def test_going_back_with_files(directory: Path) -> None:
    (directory / "prose.toml").write_text("[run]\nkeep_files = true\n")
    (directory / "notes").write_bytes(b"\xff0")
    (directory / ".jupyter").mkdir()  # the kernel writes its history there while commands run
    (directory / ".jupyter" / "CACHEDIR.TAG").touch()
    with kernel(directory, forks=True) as client:
        client.run('exec "echo 1 >> notes; touch one"')
        client.run('exec "echo 2 >> notes"\nexec "rm one; mkdir two; mv notes two"')
        back = client.run("%back c2/2 --files")
        assert back.displays[0].startswith("The run is as it was before c2/2. Effects of commands outside")
        assert back.displays[1] == "Files and directories: 2 removed, 2 put back."
        assert {one.name for one in directory.iterdir()} >= {"prose.toml", "notes", "one"}
        assert not (directory / "two").exists()
        assert (directory / "notes").read_bytes() == b"\xff01\n2\n"
        assert client.run('exec "echo 2 >> notes"\nexec "rm one; mkdir two; mv notes two"').status == "ok"
        (directory / "one").write_text("person")
        assert client.run("%back 1 --yes").error["ename"] == "UsageError"
        refused = client.run("%back 1 --files").error["evalue"]
        assert "\n  one" in refused
        assert "notes" not in refused
        assert (directory / "two" / "notes").exists()
        assert "after cell 1" in client.run("%back 1 --files --yes").displays[0]
        assert ((directory / "notes").read_bytes(), (directory / "one").read_bytes()) == (b"\xff01\n", b"")
        assert not (directory / "two").exists()


def test_a52_a_dry_run_restores_nothing_and_going_back_loses_nothing(directory: Path) -> None:
    with kernel(directory, forks=True) as client:
        client.run('let a = exec "echo one"')
        client.run('let b = exec "echo two"')
        client.run("%provider dry-run")
        assert "names: a" in client.run("%back 1").displays[0]
        again(client)
        client.run("%provider dry-run")
        assert client.run("%restore").error["ename"] == "UsageError"
        client.run("%provider human")
        assert "names: a" in client.run("%restore").displays[0]
        assert client.run("output o = a").displays == ["o: text from exec = one"]


@pytest.mark.parametrize("vvm", [False, True])
def test_a33_an_approval_before_the_restart_is_asked_again(directory: Path, vvm: bool) -> None:
    """Also where the run belongs to VVM, whose journal lies elsewhere."""
    cell = 'gate go:\n  prompt: "Publish?"\nlet a = exec "echo a >> ran; echo one"'
    with kernel(directory, spec=vvm_specification() if vvm else None, forks=True) as client:
        first = "%%prose\n" if vvm else ""
        if vvm:
            assert client.run('n = "one"').status == "ok"
        assert client.run(first + cell, ["approve"], allow_stdin=True).status == "ok"
        if not vvm:  # in the same process the person's own choice is kept
            client.run("let b = 1")
            assert client.run("%back 1").status == "ok"
        again(client)
        nobody = client.run("%restore").error
        assert "continues only when its earlier approvals are confirmed" in nobody["evalue"]
        assert client.run("%restore", ["reject"], allow_stdin=True).error["ename"] == "GateRejected"
        assert 'gate go "Publish?": approved by user' in nobody["evalue"]
        assert client.run("%restore", ["approve"], allow_stdin=True).status == "ok"
        assert client.run("%reset").status == "ok"
        assert client.run("%restore").status == "ok"
        again(client)
        assert client.run("%restore --yes other").status == "error"
        assert client.run("%restore --yes ''").error["ename"] == "UsageError"
        assert client.run("%restore --yes go").status == "ok"
        assert (directory / "ran").read_text() == "a\n"


@pytest.mark.parametrize("given", ["--yes last", "%gate approve last"])
def test_a_decision_after_the_restart_holds_until_the_interrupted_cell_has_continued(
    directory: Path, given: str
) -> None:
    cell = (
        'gate go:\n  prompt: "Go?"\nexec "touch on; test -e done || sleep 4823"\n'
        'gate last:\n  prompt: "Last?"\nexec "echo a >> ran"'
    )
    with kernel(directory, forks=True) as client:
        client.run("%gate approve go")
        request = client.send(cell)
        until((directory / "on").exists)
        client.interrupt()
        assert client.finish(request).status == "error"
        again(client)
        option, magic = ("", given) if given.startswith("%") else (given, "")
        assert client.run(f"%restore --yes go {option}\n{magic}").status == "ok"
        (journal,) = (directory / ".prose" / "runs").glob("*/journal.jsonl")
        journal.rename(journal.with_name("away"))  # the restore before the cell fails; the next cell tries again
        assert client.run(cell).status == "error"
        journal.with_name("away").rename(journal)
        (directory / "done").touch()
        assert client.run(cell).status == "ok"
        assert (directory / "ran").read_text() == "a\n"


@pytest.mark.parametrize("end", ["killed", "interrupted"])
def test_an_input_that_is_set_after_the_restore_answers_the_cell_that_continues(directory: Path, end: str) -> None:
    cell = (
        'exec "echo a >> ran"\nexec "touch on; test -e done || sleep 4829"\n'
        'input word: "?"\ngate go:\n  prompt: "Go?"\nexec "echo {word} {first} >> ran"'
    )
    with kernel(directory, forks=True) as client:
        client.run('%input first=one\ninput first: "?"')
        request = client.send(cell)
        until((directory / "on").exists)
        end_cell(client, request, end)
        assert client.run("%restore").status == "ok"
        (directory / "done").touch()
        assert client.run("%input first=one\n%input word=tea\n%input go=approve").status == "ok"
        assert client.run(cell).status == "ok"
        assert (directory / "ran").read_text() == "a\ntea one\n"
        assert client.run('input first: "?"\noutput both = "{word} {first}"').displays[-1].endswith("tea one")
        again(client)  # the journal has the answer, and later cells have the value
        assert client.run("%restore --yes go").status == "ok"
        assert client.run('input word: "?"\noutput both = "{word} {first}"').displays[-1].endswith("tea one")
        assert (directory / "ran").read_text() == "a\ntea one\n"


@pytest.mark.parametrize("end", ["killed", "interrupted"])
@pytest.mark.parametrize("first", ['%input first=one\ninput first: "?"', "%input first=one"])
def test_an_earlier_input_that_changes_after_the_restore_repeats_no_command(
    directory: Path, end: str, first: str
) -> None:
    cell = 'exec "echo a >> ran"\nexec "touch on; test -e done || sleep 4833"\nexec "echo b >> ran"'
    with kernel(directory, forks=True) as client:
        assert client.run(first).status == "ok"
        request = client.send(cell)
        until((directory / "on").exists)
        end_cell(client, request, end)
        assert client.run("%restore").status == "ok"
        (directory / "done").touch()
        assert client.run("%input first=two").status == "ok"
        assert client.run(cell).status == "ok"
        assert (directory / "ran").read_text() == "a\nb\n"
        assert client.run('input first: "?"\noutput o = first').displays[-1].endswith("two")
        again(client)
        assert client.run("%restore").status == "ok"
        assert client.run("output p = first").displays[-1].endswith("two")
        assert (directory / "ran").read_text() == "a\nb\n"


@pytest.mark.parametrize("above", ["", '%input word=tea\nlet a = "tea"'])
def test_an_input_that_a_killed_cell_began_with_may_change(directory: Path, above: str) -> None:
    """It is another cell then, and runs from its start."""
    cell = '%input word={}\ninput word: "?"\nexec "echo {{word}} >> ran; touch on; test -e done || sleep 4831"'
    with kernel(directory, forks=True) as client:
        client.run(above)
        client.send(cell.format("tea"))
        until((directory / "on").exists)
        die(client)
        assert client.run("%restore").status == "ok"
        (directory / "done").touch()
        assert client.run(cell.format("milk")).status == "ok"
        assert (directory / "ran").read_text() == "tea\nmilk\n"


def test_a_restored_run_that_cannot_be_kept_fails_once_and_keeps_its_names(directory: Path) -> None:
    with kernel(directory, forks=True) as client:
        client.run('let a = exec "echo one"')
        die(client)
        (state,) = directory.glob(".prose/runs/*/state.md")
        state.unlink()
        state.mkdir()
        failed = client.run("%restore")
        assert failed.error["evalue"] == "'state.md' could not be stored: it is a directory"
        assert failed.displays == ["1 cell of the run is back.\n  names: a"]
        assert client.run('exec "echo {a}"').text() == "one\n"


def test_which_run_a_notebook_restores(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "one.ipynb")
    with kernel(directory, forks=True) as client:
        assert client.run("%restore").displays == ["There is nothing to restore: no run of this notebook is kept."]
        client.run('let a = exec "echo one"')
        assert client.run("%history").status == "ok"
        with _other(directory, monkeypatch) as other:
            assert other.run("%restore").displays == ["There is nothing to restore: no run of this notebook is kept."]
            (run,) = (directory / ".prose" / "runs").iterdir()
            held = other.run(f"%restore {run.name}").error
            assert RUN.sub("RUN", held["evalue"]) == "run RUN is being run by another process"
            client.manager.shutdown_kernel()
            assert other.run(f"%restore {run.name[:10]}").displays == ["1 cell of the run is back.\n  names: a"]
            offered = other.ask("complete_request", {"code": "%back ", "cursor_pos": 6})["content"]
            assert offered["matches"] == []
            other.run("%reset")
            listed = other.ask("complete_request", {"code": "%restore ", "cursor_pos": 9})["content"]
            assert listed["matches"] == [run.name]
            assert "E222" in other.run("%explain E222").displays[0]


def test_an_unfinished_cell_of_the_other_language_is_shown_with_its_first_line(directory: Path) -> None:
    with kernel(directory, spec=vvm_specification(), forks=True) as client:
        client.send('%%prose --profile prosescript\n\nexec "touch there; sleep 4812"')
        until((directory / "there").exists)
        die(client)
        shown = client.run("%restore").displays[0].splitlines()
        assert shown[2:4] == ["  %%prose --profile prosescript", '  exec "touch there; sleep 4812"']


def test_a_run_of_vvm_that_asked_nothing_restores(directory: Path) -> None:
    with kernel(directory, spec=vvm_specification(), forks=True) as client:
        client.run("def double(x):\n  return x + x\nn = double(2)")
        assert client.run("%history").displays[0].splitlines()[1].split()[:3] == ["c1", "[1]", "✓"]
        die(client)
        assert client.run("%restore").displays == ["1 cell of the run is back.\n  names: n\n  functions: double"]
        assert client.run("double(n)").displays == ["8"]


def test_a_damaged_journal_is_named(directory: Path) -> None:
    with kernel(directory, forks=True) as client:
        client.run('let a = exec "echo one"')
        again(client)
        (run,) = (directory / ".prose" / "runs").iterdir()
        damaged, of_file = run.with_name("20991231-000000-abcdef"), run.with_name("20991231-000001-abcdef")
        for place in (damaged, of_file):
            place.mkdir()
            (place / "journal.jsonl").write_bytes(b"x" + (run / "journal.jsonl").read_bytes()[1:])
        (of_file / "state.md").write_text(f"# run:{of_file.name} p.prose\n\n")
        refused = client.run("%restore").error
        assert refused["evalue"] == f"the first line of the journal of run {damaged.name} is damaged, or was changed"
        assert f"hint: %restore {run.name} brings back the one before" in refused["traceback"][-1]
        assert client.run(f"%restore {run.name}").displays == ["1 cell of the run is back.\n  names: a"]
        client.run("%reset")
        shutil.rmtree(run)
        again(client)
        refused = client.run("%restore").error
        assert f"hint: prose runs rm {damaged.name} removes it" in refused["traceback"][-1]


def test_a_damaged_journal_is_not_in_the_way_of_a_notebook_that_is_known(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "one.ipynb")
    with kernel(directory, forks=True) as client:
        client.run('let a = exec "echo one"')
        again(client)
        (run,) = (directory / ".prose" / "runs").iterdir()
        damaged = run.with_name("20991231-000000-abcdef")
        damaged.mkdir()
        (damaged / "journal.jsonl").write_bytes(b"x" + (run / "journal.jsonl").read_bytes()[1:])
        restored = client.run("%restore")
        assert restored.displays == ["1 cell of the run is back.\n  names: a"]
        assert f"the journal of run {damaged.name} is damaged, or was changed. If " in restored.text()


@contextmanager
def _other(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("JPY_SESSION_NAME", "two.ipynb")
    with kernel(directory, forks=True) as client:
        yield client


def test_a_run_of_another_kernel_in_the_directory_is_not_in_the_way(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If Jupyter does not tell which notebook a kernel belongs to."""
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    with kernel(directory, forks=True) as mine, kernel(directory, forks=True) as other:
        mine.run('let x = "mine"')
        other.run('let x = "other"')
        die(mine)
        mine.run("%restore")
        assert mine.run("let y = x").displays == ["y: text = mine"]


def test_a_python_notebook_restores_too(directory: Path) -> None:
    with kernel(directory, spec=specification("ipykernel_launcher"), forks=True) as client:
        client.run("%load_ext prose_kernel")
        client.run('x = 3\nprose["n"] = x')
        client.run('%%prose\nlet a = exec "echo a >> ran; echo one"')
        die(client)
        client.run("%load_ext prose_kernel")
        assert client.run("%prose restore").displays == ["2 cells of the run are back.\n  names: n, a"]
        assert client.run('print(prose["n"], prose["a"])').text() == "3 one\n\n"
        assert (directory / "ran").read_text() == "a\n"


def test_python_has_the_names_after_an_interrupted_step_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from IPython.core.interactiveshell import InteractiveShell

    replay = Workspace.replay

    async def interrupted(workspace: Workspace) -> None:
        monkeypatch.setattr(Workspace, "replay", replay)
        raise asyncio.CancelledError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    shell = InteractiveShell()
    shell.run_line_magic("load_ext", "prose_kernel")
    prose = shell.user_ns["prose"]
    for change in ('prose["b"] = 2', "%%prose --in two\nlet b = two", "assert prose['a'] == 1"):
        shell.run_cell("two = 2\nprose['a'] = 1\nprose['b'] = 1").raise_error()
        monkeypatch.setattr(Workspace, "replay", interrupted)
        assert type(shell.run_cell("%prose back c1").error_in_exec).__name__ == "KeyboardInterrupt"
        shell.run_cell(change).raise_error()
        assert prose["a"] == 1
    shell.run_line_magic("unload_ext", "prose_kernel")


def test_a_run_of_vvm_restores(directory: Path) -> None:
    with kernel(directory, spec=vvm_specification(), forks=True) as client:
        client.run("%provider scripted s.yaml")
        (directory / "s.yaml").write_text('sessions:\n  "Plan*": a plan\n')
        client.run("%provider scripted s.yaml")
        client.run('agent writer(model="sonnet", prompt="Write.")\nplan = @writer `Plan` ()')
        die(client)
        shown = client.run("%restore").displays
        assert shown == ["1 cell of the run is back.\n  names: plan\n  agents: writer"]
        assert client.run("plan").displays == ["a plan"]


def test_an_earlier_run_comes_back_though_another_has_begun(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "one.ipynb")
    with kernel(directory, forks=True) as client:
        client.run('let a = exec "mkdir sub && cd sub && echo one"')
        (first,) = (directory / ".prose" / "runs").iterdir()
        die(client)
        client.run("let b = 2")
        assert (
            f"%reset ends it; then %restore {first.name} brings back the one before"
            in client.run("%restore").error["traceback"][-1]
        )
        client.run("%reset")
        (directory / "sub").rmdir()
        back = client.run(f"%restore {first.name}").displays
        assert back == ["1 cell of the run is back.\n  names: a\n  directory: sub (it is gone: make it again)"]
        client.manager.shutdown_kernel()
    with _other(directory, monkeypatch) as renamed:
        (last,) = renamed.run("%restore").displays
        assert RUN.sub("RUN", last) == (
            "There is nothing to restore: no run of this notebook is kept. "
            "The last run of another notebook in this directory: %restore RUN brings it back."
        )


@pytest.mark.parametrize("now", [False, True])
def test_a26_a_restart_in_the_middle_of_a_command_is_like_any_other_end(directory: Path, now: bool) -> None:
    cell = (
        'let b = exec "echo b >> ran; echo two"\nlet c = exec "echo c >> ran; echo on > on; test -e go || sleep 4812"'
    )
    with kernel(directory, forks=True) as client:
        client.run('let a = exec "echo a >> ran; echo one"')
        for _ in range(2):  # and once more, in the continuation
            client.send(cell)
            until((directory / "on").exists)
            (directory / "on").unlink()
            client.manager.restart_kernel(now=now)
            client.channels.wait_for_ready(timeout=30)
            back = client.run("%restore").displays[0]
            assert "names: a" in back
            assert "This cell had not ended. Run it again: it continues where it was." in back
            assert "Under way, and asked again then:\n  command c2/2/x0: echo c >> ran" in back
        (directory / "go").touch()
        assert client.run(cell).status == "ok"
        assert client.run('exec "echo {a}{b}"').text() == "onetwo\n"
        assert (directory / "ran").read_text().split() == ["a", "b", "c", "c", "c"]
