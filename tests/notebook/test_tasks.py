"""Commands and tasks in cells (exec-and-tasks.md section 5): the window, the card, the tables, the quiet line."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from notebook.kernels import Client, kernel
from notebook.recording import Recording
from notebook.test_both_front_ends import python_kernel
from waiting import PATIENCE, appears, eventually, processes, until

from prose_kernel.errors import UsageError
from prose_kernel.notebook.cells import Cells
from prose_kernel.notebook.magics.tasks import read_options
from prose_kernel.runtime.asker import Unattended
from prose_kernel.runtime.services import TaskCaller
from prose_kernel.views.display import Problem


@dataclass
class Notebook:
    """Cells in a directory; each run gives what the cell showed."""

    cells: Cells
    live: bool = False

    async def run(
        self, code: str, *, live: bool | None = None, output: Recording | None = None
    ) -> tuple[Recording, Problem | None]:
        output = output or Recording()
        problem = await self.cells.run(code, output, live=self.live if live is None else live)  # type: ignore[arg-type]
        return output, problem

    async def ok(self, code: str, *, live: bool | None = None) -> Recording:
        output, problem = await self.run(code, live=live)
        assert problem is None, problem
        return output

    async def ended(self, number: int = 1) -> None:
        await self.cells.workspace.opened.tasks.output(str(number), TaskCaller(), timeout_ms=20_000)


@pytest_asyncio.fixture
async def notebook(tmp_path: Path) -> AsyncIterator[Notebook]:
    cells = Cells(tmp_path, Unattended())
    yield Notebook(cells)
    await cells.close()


async def card(output: Recording, state: str) -> str:
    """The card of the cell's task, once it shows this state."""

    def shown() -> str | None:
        last = next((text for text in reversed(output.texts) if text.startswith("task ")), None)
        return last if last is not None and last.split("\n")[1].strip().startswith(state) else None

    return str(await eventually(shown))


# ---------------------------------------------------------------- the window


async def test_a_short_command_shows_its_output_and_nothing_else(notebook: Notebook) -> None:
    output = await notebook.ok("%exec echo hello; echo oops >&2")
    assert sorted(output.saved()) == [("stderr", "oops\n"), ("stdout", "hello\n")] or sorted(output.texts) == [
        "hello\n",
        "oops\n",
    ]


async def test_a_failed_command_is_reported_and_is_not_an_error(notebook: Notebook) -> None:
    output = await notebook.ok("%exec echo before; exit 3")
    assert output.texts == ["before\n", "$ echo before; exit 3\n  exit 3"]


async def test_leftover_processes_are_ended_and_reported(notebook: Notebook) -> None:
    output = await notebook.ok("%exec sleep 600 &")
    assert "1 background process was ended: run it in the foreground" in output.texts[-1]


async def test_a_long_command_becomes_a_card_that_ends_deterministic(notebook: Notebook) -> None:
    cards, go = [], notebook.cells.cwd / "go"
    for _ in range(2):
        output = await notebook.ok("%exec --wait 0 echo one; until test -e go; do sleep 0.01; done; echo two; exit 4")
        assert await card(output, "running")
        go.touch()
        cards.append(await card(output, "failed"))
        go.unlink()
    command = "echo one; until test -e go; do sleep 0.01; done; echo two; exit 4"
    assert cards[0] == f"task 1: {command}\n  failed (exit 4)\n  | one\n  | two"
    assert cards[1] == cards[0].replace("task 1", "task 2")


async def test_a_card_without_a_person_shows_no_output_before_the_end(notebook: Notebook) -> None:
    output = await notebook.ok("%exec --wait 0 echo early; until test -e go; do sleep 0.01; done")
    assert output.texts == [
        "task 1: echo early; until test -e go; do sleep 0.01; done\n  running\n  [%task 1 follow, %stop 1]"
    ]
    (notebook.cells.cwd / "go").touch()
    await card(output, "completed")
    assert output.kinds == ["display", "update"]


async def test_a_watched_card_shows_age_and_last_lines(notebook: Notebook) -> None:
    output = await notebook.ok("%exec --wait 0.3 echo early; until test -e go; do sleep 0.01; done", live=True)
    shown = await card(output, "running")
    assert re.search(r"running, \d+ s\n  \| early", shown)
    (notebook.cells.cwd / "go").touch()
    assert await card(output, "completed") == (
        "task 1: echo early; until test -e go; do sleep 0.01; done\n  completed\n  | early"
    )


async def test_no_text_of_a_card_holds_an_id_or_a_place(notebook: Notebook) -> None:
    output = await notebook.ok("%exec --wait 0 sleep 0.05; pwd >/dev/null")
    await card(output, "completed")
    for call in output.calls:
        display = call[1]
        task = display.facts["task"]
        assert str(notebook.cells.cwd) not in repr(display.facts), "a saved notebook names no place of the machine"
        for text in display.data.values():
            assert task["task_id"] not in text
            assert str(notebook.cells.cwd) not in text


async def test_a_cell_magic_takes_the_whole_cell(notebook: Notebook) -> None:
    output = await notebook.ok("%%task --name numbers\nfor i in 1 2\ndo\n  echo $i % 2\ndone\n")
    assert "".join(output.texts) == "1 % 2\n2 % 2\n"
    assert (await notebook.ok("%%command\necho same")).texts == ["same\n"]


async def test_commands_start_in_the_directory_of_the_run(notebook: Notebook) -> None:
    (notebook.cells.cwd / "sub").mkdir()
    await notebook.ok('exec "cd sub"')
    assert (await notebook.ok("%exec basename $PWD")).texts == ["sub\n"]
    assert (await notebook.ok("%exec --in .. basename $PWD")).texts == [f"{notebook.cells.cwd.name}\n"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%exec", "there is no command"),
        ("%exec --background sleep 1", "--background is not understood"),
        ("%exec --wait soon sleep 1", "--wait takes seconds"),
        ("%exec --in nowhere true", "not a directory"),
        ("%task", "too few words"),
        ("%task 7", "there is no task 7"),
        ("%stop 7", "there is no task 7"),
        ("%tasks now", "not understood"),
        ("%%task\n", "there is no command"),
        ("%%task echo\necho", "below this line"),
    ],
)
async def test_wrong_uses_are_reported(notebook: Notebook, line: str, message: str) -> None:
    _, problem = await notebook.run(line)
    assert problem is not None
    assert problem.ename == "UsageError"
    assert message in problem.evalue


def test_there_is_no_background_flag() -> None:
    with pytest.raises(UsageError) as raised:
        read_options("--background sleep 60", "%exec")
    assert "become tasks" in (raised.value.hint or "")


async def test_the_same_command_shows_the_running_task(notebook: Notebook) -> None:
    await notebook.ok("%exec --wait 0 sleep 60")
    again = await notebook.ok("%exec --wait 0 sleep 60")
    assert again.texts[0] == "the same command runs already, as task 1; --new starts another\n"
    assert again.texts[1].startswith("task 1: sleep 60")
    other = await notebook.ok("%exec --new --wait 0 sleep 60")
    assert other.texts[0].startswith("task 2: sleep 60")


# ---------------------------------------------------------------- interrupts


async def test_an_interrupt_in_the_window_ends_the_command(notebook: Notebook) -> None:
    cell = asyncio.ensure_future(
        notebook.run("%exec trap 'echo bye; exit 7' INT; touch up; while :; do sleep 0.05; done")
    )
    await appears(notebook.cells.cwd / "up")
    notebook.cells.interrupt()
    output, problem = await cell
    assert problem is not None
    assert problem.ename == "KeyboardInterrupt"
    assert ("stream", "stdout", "bye\n") in output.calls, "the program saw the interrupt, and its last words are kept"
    assert (await notebook.cells.workspace.opened.tasks.active(TaskCaller())).total_active == 0


async def test_an_interrupt_does_not_touch_a_task(notebook: Notebook) -> None:
    await notebook.ok("%exec --wait 0 echo up; sleep 60")
    following = Recording()
    cell = asyncio.ensure_future(notebook.run("%task 1 follow", output=following))
    await eventually(lambda: "up\n" in following.texts)
    notebook.cells.interrupt()
    _, problem = await cell
    assert problem is not None
    assert problem.ename == "KeyboardInterrupt"
    busy = asyncio.ensure_future(notebook.run('exec "touch up; sleep 60"'))
    await appears(notebook.cells.cwd / "up")
    notebook.cells.interrupt()
    await busy
    shown = (await notebook.ok("%tasks")).texts
    assert shown == ["task  state    of   command\n1     running  you  echo up; sleep 60"]


# ---------------------------------------------------------------- looking


async def test_the_table_of_tasks(notebook: Notebook) -> None:
    assert (await notebook.ok("%tasks")).texts == ["No active tasks."]
    assert (await notebook.ok("%tasks --all")).texts == ["No tasks yet."]
    await notebook.ok("%exec --wait 0 sleep 60")
    await notebook.ok("%exec --wait 0 sleep 0.05; exit 2")
    await notebook.ended(2)
    assert (await notebook.ok("%tasks")).texts == ["task  state    of   command\n1     running  you  sleep 60"]
    everything = (await notebook.ok("%tasks --all")).texts[0].split("\n")
    assert everything[1:] == ["1     running          you  sleep 60", "2     failed (exit 2)  you  sleep 0.05; exit 2"]
    await notebook.ok("%exec --wait 0 sleep 61")
    active = (await notebook.ok("%tasks")).texts[0].split("\n")
    assert active[1:] == ["1     running  you  sleep 60", "3     running  you  sleep 61"]


async def test_one_task(notebook: Notebook) -> None:
    await notebook.ok("%exec --wait 0 echo hello; sleep 0.1")
    await notebook.ended()
    assert (await notebook.ok("%task 1")).texts == ["task 1: echo hello; sleep 0.1\n  completed\n  | hello"]
    assert (await notebook.ok("%task 1 output")).texts == ["hello"]
    assert "".join((await notebook.ok("%task 1 follow")).texts).startswith("hello\n")
    assert (await notebook.ok("%stop 1")).texts == ["task 1 has ended already: completed"]
    again = await notebook.ok("%task 1 rerun")
    assert again.texts[0] == "$ echo hello; sleep 0.1\n"


async def test_following_shows_what_comes(notebook: Notebook) -> None:
    await notebook.ok("%exec --wait 0 echo up; until test -e go; do sleep 0.01; done; echo late")
    output = Recording()
    cell = asyncio.ensure_future(notebook.run("%task 1 follow", output=output))
    await eventually(lambda: output.texts == ["up\n"])
    (notebook.cells.cwd / "go").touch()
    assert (await cell)[1] is None
    assert output.texts[:2] == ["up\n", "late\n"]
    assert output.texts[2].split("\n")[1] == "  completed"


async def test_following_shows_what_came_before_too(notebook: Notebook) -> None:
    await notebook.ok("%exec --wait 0 echo early; touch up; until test -e go; do sleep 0.01; done; echo late")
    await appears(notebook.cells.cwd / "up")
    (notebook.cells.cwd / "go").touch()
    followed = await notebook.ok("%task 1 follow")  # the task has ended, is about to, or still runs
    assert "".join(followed.texts[:-1]) == "early\nlate\n"


async def test_stopping(notebook: Notebook) -> None:
    output = await notebook.ok("%exec --wait 0 trap '' TERM; touch up; while :; do sleep 0.05; done")
    await appears(notebook.cells.cwd / "up")
    assert (await notebook.ok("%stop 1")).texts == ["task 1 was asked to end; %stop 1 again kills it"]
    assert (await notebook.ok("%task 1 stop")).texts == ["task 1 is killed"]
    assert "cancelled" in await card(output, "cancelled")


# ---------------------------------------------------------------- reports


async def test_a_quiet_line_tells_once_and_only_a_person(notebook: Notebook) -> None:
    command = "until test -f over; do :; done; exit 1"
    await notebook.ok(f"%exec --wait 0 {command}")
    (notebook.cells.cwd / "over").touch()
    await notebook.ended()
    assert not any("ended" in text for text in (await notebook.ok("let a = 1", live=False)).texts)
    told = await notebook.ok("let b = 1", live=True)
    assert told.texts[0] == f"1 task ended: 1 failed (exit 1): {command}"
    assert not any("ended" in text for text in (await notebook.ok("let c = 1", live=True)).texts)


async def test_after_a_restart_the_first_cell_names_what_was_interrupted(tmp_path: Path) -> None:
    before = Notebook(Cells(tmp_path, Unattended()))
    output = await before.ok("%exec --wait 0 sleep 600")
    await before.cells.close()
    assert output.texts[-1] == "task 1: sleep 600\n  interrupted (the run ended)"
    after = Notebook(Cells(tmp_path, Unattended()), live=True)
    told = await after.ok("let a = 1")
    assert told.texts[0] == "1 task of an earlier run ended: 1 interrupted (the run ended): sleep 600"
    await after.cells.close()
    again = Notebook(Cells(tmp_path, Unattended()), live=True)
    assert not any("earlier" in text for text in (await again.ok("let a = 1")).texts)
    await again.cells.close()


async def test_a_continuation_waits_for_resume(notebook: Notebook) -> None:
    (notebook.cells.cwd / "answers.yaml").write_text("sessions:\n  '*': went on\n")
    await notebook.ok("%provider scripted answers.yaml")
    await notebook.ok("%exec --wait 0 --continue helper echo 'operator: approve'; sleep 0.05")
    await notebook.ended()
    told = await notebook.ok("let a = 1", live=True)
    assert told.texts[0].endswith("\n1 continuation waits: %resume runs one")
    output = await notebook.ok("%resume")
    assert any("went on" in text for text in output.texts)
    assert (await notebook.ok("%resume")).texts == ["No continuation is waiting."]


async def test_ordinary_cells_load_nothing_of_it(tmp_path: Path) -> None:
    import subprocess
    import sys

    script = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from notebook.recording import Recording\nfrom prose_kernel.runtime.asker import Unattended\n"
        "from prose_kernel.notebook.cells import Cells\n"
        f"cells = Cells(Path({str(tmp_path)!r}), Unattended())\n"
        "problem = asyncio.run(cells.run('let a = 1', Recording(), live=True))\n"
        "assert problem is None, problem\n"
        "print([name for name in ('sqlite3', 'prose_kernel.processes.tasks.manager') if name in sys.modules])\n"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=root,
        check=False,
        env={"PYTHONPATH": str(root)},
    )
    assert done.stdout == "[]\n", done.stderr


# ---------------------------------------------------------------- real kernels


def updates(client: Client, request: str, text: str) -> dict[str, Any]:
    """The update of a display that a request made and that says this; the cell has ended long before."""
    while True:
        message: dict[str, Any] = client.channels.get_iopub_msg(timeout=PATIENCE)
        if message["msg_type"] == "update_display_data" and text in message["content"]["data"]["text/plain"]:
            assert message["parent_header"]["msg_id"] == request
            return dict(message["content"])


def test_a_card_is_updated_while_the_kernel_is_idle_and_nothing_outlives_it(tmp_path: Path) -> None:
    with kernel(tmp_path, forks=True) as client:
        request = client.send("%exec --wait 0 until test -e go; do sleep 0.02; done; echo late; exit 5")
        ran = client.finish(request)
        assert ran.status == "ok"
        assert ran.displays[0].endswith("running\n  [%task 1 follow, %stop 1]")
        (tmp_path / "go").touch()
        shown = updates(client, request, "failed (exit 5)")
        assert shown["transient"]["display_id"] == ran.of("display_data")[0]["transient"]["display_id"]
        assert shown["data"]["text/plain"].endswith("failed (exit 5)\n  | late")
        assert shown["metadata"]["prose"]["task"]["exit_status"] == 5
        assert client.run("%exec --wait 0 exec sleep 987654").status == "ok"
        until(lambda: bool(processes("sleep 987654")))
    until(lambda: not processes("sleep 987654"))  # the kernel was killed: the watchdog ends what it left
    with kernel(tmp_path, forks=True) as client:
        told = client.run("let a = 1", allow_stdin=True)
        assert "2 interrupted (the kernel was gone): exec sleep 987654" in told.displays[0]


def test_python_notebooks_have_the_same(tmp_path: Path) -> None:
    with kernel(tmp_path, spec=python_kernel(), forks=True) as client:
        assert client.run("%load_ext prose_kernel").status == "ok"
        ran = client.run("%prose exec echo hello")
        assert ran.text() == "hello\n"
        cell = client.run("%%prose\n%%task --wait 5\nfor i in 1 2; do\n  echo $i\ndone")
        assert cell.text() == "1\n2\n"
        client.run("%prose exec --wait 0 exec sleep 987655")
        assert "exec sleep 987655" in client.run("%prose tasks").displays[0]
        assert "asked to end" in client.run("%prose stop 1").displays[0]


async def test_what_is_enforced_here_can_be_looked_up(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    from prose_kernel.processes import sandbox

    def rows(text: str) -> dict[str, tuple[str, str]]:
        found = [re.split(r"\s{2,}", line, maxsplit=2) for line in text.split("\n")[1:]]
        return {what: (here, follows) for what, here, follows in found}

    here = rows((await notebook.ok("%boundaries")).texts[-1])
    assert Path(here["shell"][1]).is_absolute() and here["Exec"][0] == "no"
    mechanisms = sandbox.mechanisms()
    assert here["landlock"][0] == ("yes" if mechanisms.scopes else "no")
    assert here["no network"][0] == ("yes" if not mechanisms.network else "no")

    monkeypatch.setattr(sandbox, "mechanisms", lambda: sandbox.Mechanisms("", 0, "the system does not allow it"))
    without = rows((await notebook.ok("%boundaries")).texts[-1])
    assert [without[what][0] for what in ("monitor", "landlock", "no network")] == ["yes", "no", "no"]
    assert "the system does not allow it" in without["no network"][1]
