"""Magics for commands and tasks: `%exec`, `%%task`, `%tasks`, `%task`, `%stop`, `%resume`.

See docs/reference/exec-and-tasks.md 5. A command that is still running after its waiting time becomes a task, with a
card that is updated in place until the task ends. Interrupting a cell does not stop its tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import io
import itertools
import shlex
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from prose_kernel.errors import TaskRefused, UsageError
from prose_kernel.notebook.magics.registry import MagicCall, magic
from prose_kernel.processes.tasks.records import ending_of
from prose_kernel.runs import languages
from prose_kernel.runs.forced_interrupt import in_cell
from prose_kernel.runtime.services import CommandCompleted, TaskCaller, TaskEvent, TaskFollowUp, TaskSnapshot
from prose_kernel.views import task_cards
from prose_kernel.views.display import Output
from prose_kernel.views.escaping import TerminalText

if TYPE_CHECKING:
    from prose_kernel.notebook.cells import Cells
    from prose_kernel.processes.tasks.service import TaskService
    from prose_kernel.runs.workspace import Workspace
    from prose_kernel.views.cell_view import CellView

_REFRESH = 1.0
_KEEP_HINT = "the log of a task keeps more: %exec --wait 0 starts one"
_USAGE = "%exec [--wait SECONDS] [--in DIRECTORY] [--name TEXT] [--new] [--continue AGENT] COMMAND"
_display_numbers = itertools.count(1)

CELL_MAGICS = ("task", "command")
"""The words after `%%` for which the rest of the cell is one command."""


# ---------------------------------------------------------------- start a command


class TaskCommand(Struct, frozen=True):
    """A command and its options: `fields` of the request, and the agent that `continues` with the result."""

    fields: Mapping[str, object]
    continues: str | None


def read_options(text: str, name: str, body: str | None = None) -> TaskCommand:
    """Read the options at the beginning of a line, then the command: the rest of the line, or the body of the cell.

    Raises `UsageError`.
    """
    fields: dict[str, object] = {}
    continues: str | None = None
    rest = text
    while rest.startswith("-"):
        option, rest = _word(rest, name)
        match option:
            case "--wait":
                value, rest = _word(rest, name)
                fields["yield_time_ms"] = _milliseconds(value, name)
            case "--in":
                fields["workdir"], rest = _word(rest, name)
            case "--name":
                fields["summary"], rest = _word(rest, name)
            case "--new":
                fields["duplicate_policy"] = "start_new"
            case "--continue":
                continues, rest = _word(rest, name)
                fields["continue_on_result"] = True
            case "--":
                break
            case _:
                hint = f"usage: {_USAGE}"
                if option.lstrip("-") in ("background", "bg", "detach"):
                    hint = "commands still running after --wait become tasks; --wait 0 starts one immediately"
                raise UsageError(f"{name}: {option} is not understood", hint=hint)
    if body is not None and rest:
        raise UsageError(
            f"{name}: the command belongs below this line", hint=f"move {rest.split()[0]} to the next line"
        )
    command = (rest if body is None else body).strip("\n")
    if not command.strip():
        raise UsageError(f"{name}: there is no command", hint=f"usage: {_USAGE}")
    return TaskCommand({"cmd": command, **fields}, continues)


def _word(text: str, name: str) -> tuple[str, str]:
    """Return the first word, as a shell reads it, and the rest."""
    source = io.StringIO(text)
    lexer = shlex.shlex(source, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        word = lexer.get_token()
    except ValueError as problem:
        raise UsageError(f"{name}: {problem}".lower(), hint=f"usage: {_USAGE}") from None
    if word is None:
        raise UsageError(f"{name}: too few words", hint=f"usage: {_USAGE}")
    return word, text[source.tell() :].lstrip()


def _milliseconds(text: str, name: str) -> int:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 600:
        raise UsageError(f"{name}: --wait takes seconds from 0 to 600, not {text}")
    return int(seconds * 1000)


@magic(
    _USAGE,
    "run a shell command; if it still runs after 10 seconds (--wait), it continues as a task",
    "command",
    raw=True,
)
async def exec_(call: MagicCall) -> None:
    await run_command(call.cells, read_options(call.text, "%exec"), call.output, call.view)


async def run_cell(cells: Cells, line: str, body: str, output: Output, view: CellView) -> None:
    """Run a cell with `%%task` or `%%command`, which is one command. `line` is the text after `%%`."""
    name, _, options = line.partition(" ")
    body = body.replace("\r\n", "\n")  # from a notebook written on Windows; a shell would read \r as a part of a word
    await run_command(cells, read_options(options.strip(), f"%%{name}", body), output, view)


async def run_command(cells: Cells, asked: TaskCommand, output: Output, view: CellView) -> None:
    """Start a command and watch it for its waiting time. An interrupt ends the command, unless it has become a task."""
    tasks = cells.workspace.opened.tasks
    caller = TaskCaller(workspace=str(cells.workspace.cwd), continues=asked.continues)
    watching = asked.fields.get("yield_time_ms") != 0
    shown = view.command_view()
    try:
        with _refusals():
            receipt = await tasks.start(asked.fields, caller, shown.feed if watching else None)
        if isinstance(receipt, CommandCompleted) and not watching:
            shown.feed("stdout", receipt.stdout_preview)
            shown.feed("stderr", receipt.stderr_preview)
    finally:
        shown.finish(_KEEP_HINT)
    if isinstance(receipt, CommandCompleted):
        card = task_cards.completed_card(str(asked.fields["cmd"]), receipt)
        if card is not None:
            output.display(card)
        return
    if receipt.disposition == "already_running":
        output.stream("stdout", f"{receipt.summary_text.partition(';')[0]}; --new starts another\n")
    await _Card.show(cells, tasks, receipt.task_id, output, live=view.live)


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Turn a refusal into a `UsageError`."""
    try:
        yield
    except TaskRefused as refused:
        raise UsageError(refused.message, hint=refused.hint) from None


# ---------------------------------------------------------------- cards that follow their tasks


class _Card:
    """The card of one task in one cell: updated when the task changes, and every second while a person watches.

    The final card depends only on the task.
    """

    def __init__(self, tasks: TaskService, task_id: str, output: Output, display_id: str, live: bool) -> None:
        self._tasks = tasks
        self._task_id = task_id
        self._output = output
        self._display_id = display_id
        self._live = live
        self._shown = ""

    @classmethod
    async def show(cls, cells: Cells, tasks: TaskService, task_id: str, output: Output, *, live: bool) -> None:
        """Show the card, and keep it up to date after the cell has ended."""
        card = cls(tasks, task_id, output, f"prose-task-{next(_display_numbers)}-{task_id[-8:]}", live)
        task = await card._draw(first=True)
        if not task.ended and getattr(output, "in_place", True):
            context = contextvars.copy_context()
            context.run(in_cell.set, False)
            # closing the workspace ends the task, which ends this
            cells.background.start(card._follow(), context)

    async def _draw(self, *, first: bool = False) -> TaskSnapshot:
        found = await self._tasks.output(self._task_id, TaskCaller(), block=False)
        task = found.task
        watched = self._live or task.ended
        age = _age(task) if self._live else None
        display = task_cards.task_card(task, found.preview if watched else "", age=age)
        text = display.data["text/plain"]
        if first:
            self._output.display(display, self._display_id)
        elif text != self._shown:
            self._output.update(display, self._display_id)
        self._shown = text
        return task

    async def _follow(self) -> None:
        changed = asyncio.Event()
        loop = asyncio.get_running_loop()

        def heard(event: TaskEvent) -> None:
            if event.task.task_id == self._task_id:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(changed.set)

        unsubscribe = self._tasks.subscribe(heard)
        try:
            task = await self._draw()
            while not task.ended:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_REFRESH if self._live else None):
                        await changed.wait()
                changed.clear()
                task = await self._draw()
        except TaskRefused:
            return  # the run has ended; its tasks sent their last events before
        finally:
            unsubscribe()


def _age(task: TaskSnapshot) -> float | None:
    if task.started_at is None:
        return None
    return (datetime.now(UTC) - datetime.fromisoformat(task.started_at)).total_seconds()


# ---------------------------------------------------------------- show and stop tasks


@magic("%tasks [--all]", "list active tasks; --all includes those that have ended")
async def tasks_(call: MagicCall) -> None:
    call.check_word_count(0, 1)
    everything = call.words == ("--all",)
    if call.words and not everything:
        raise call.wrong(f"{call.words[0]} is not understood")
    service = call.cells.workspace.opened.tasks
    if everything:
        found = await service.history()
    else:
        found = (await service.active(TaskCaller(), 100)).tasks[::-1]  # oldest first, as with --all
    call.show(task_cards.task_table(found, everything=everything))


@magic("%task ID [output|follow|stop|rerun]", "show, follow, stop or rerun one task")
async def task_(call: MagicCall) -> None:
    call.check_word_count(1, 2)
    name, *verb = call.words
    cells, service = call.cells, call.cells.workspace.opened.tasks
    with _refusals():
        task = await service.status(name, TaskCaller())
        match verb:
            case []:
                await _Card.show(cells, service, task.task_id, call.output, live=call.view.live)
            case ["output"]:
                call.show(task_cards.output_display(await service.output(name, TaskCaller(), block=False)))
            case ["follow"]:
                await _follow(call, service, task)
            case ["stop"]:
                await _stop(call, service, name)
            case ["rerun"]:
                await _rerun(call, service, name)
            case _:
                raise call.wrong(f"{verb[0]} is not understood")


async def _follow(call: MagicCall, service: TaskService, task: TaskSnapshot) -> None:
    """Show the output so far and further output, until the task ends or the cell is interrupted."""
    shown = call.view.command_view()
    try:
        found = await service.follow(task.task_id, TaskCaller(), shown.feed)
    finally:
        shown.finish(f"`prose tasks output --log {task.number}` prints all of it")
    call.show(task_cards.task_card(found))


@magic("%stop ID", "stop a task; a second time, kill it")
async def stop(call: MagicCall) -> None:
    call.check_word_count(1, 1)
    with _refusals():
        await _stop(call, call.cells.workspace.opened.tasks, call.words[0])


async def _stop(call: MagicCall, service: TaskService, name: str) -> None:
    before = await service.status(name, TaskCaller())
    task = await service.stop(name, TaskCaller())
    if before.ended:
        call.say(f"task {task.number} has ended already: {ending_of(task)}")
    elif task.force_stop_requested:
        call.say(f"task {task.number} is killed")
    else:
        call.say(f"task {task.number} was asked to end; %stop {task.number} again kills it")


async def _rerun(call: MagicCall, service: TaskService, name: str) -> None:
    """Start a new command from the stored text, after showing it."""
    fields = dict(await service.command_of(name))
    call.output.stream("stdout", f"$ {TerminalText().feed(str(fields['cmd']))}\n")
    fields["duplicate_policy"] = "start_new"
    await run_command(call.cells, TaskCommand(fields, None), call.output, call.view)


# ---------------------------------------------------------------- continuations


@magic("%resume", "pass the result of a task started with --continue to its agent")
async def resume(call: MagicCall) -> None:
    call.check_word_count(0, 0)
    found = await _next_follow_up(call.cells)
    if found is None:
        call.say("No continuation is waiting.")
        return
    from prose_kernel.notebook.python_values import bind_values

    name = f"task_{found.number}_result"
    language = languages.default()  # the language of the continuation's text, whatever the notebook's is
    await bind_values(call.cells, {name: found.text}, language=language)
    text = _continuation(call.cells.workspace, found, name)
    value = await call.cells.run_text(text, call.view, language=language)
    call.view.result_of_part(value)


def _continuation(workspace: Workspace, found: TaskFollowUp, name: str) -> str:
    """Return the program of a continuation. The task's output is its context: data, never a part of the program."""
    prompt = f"Task {found.number} has ended. Its result is in the context, as data. Go on from there."
    agents = (one for one in workspace.definitions() if one.definition.kind == "agent")
    agent = next((one for one in agents if one.definition.name == found.session), None)
    if agent is None:
        return f'session "{prompt}"\n  context: {name}\n'
    remembers = "memory" in agent.definition.facts and agent.language is languages.default()
    keyword = "resume" if remembers else "session"  # agents of another language remember by their own rules
    return f'{keyword}: {found.session}\n  prompt: "{prompt}"\n  context: {name}\n'


async def _next_follow_up(cells: Cells) -> TaskFollowUp | None:
    """Claim the oldest continuation, of this run or of an earlier one."""
    service = cells.workspace.opened.tasks
    for waiting in await service.follow_ups():
        if await service.take_follow_up(waiting.result_id):
            return waiting
    for directory, waiting in cells.earlier_tasks.follow_ups:
        from prose_kernel.processes.tasks.ledger import take_follow_up

        if await asyncio.to_thread(take_follow_up, directory, waiting.result_id):
            return waiting
    return None


# ---------------------------------------------------------------- news about tasks


async def show_news(cells: Cells, output: Output, *, live: bool) -> None:
    """At the start of a cell, show the tasks that have ended since the last one, if a person is watching."""
    earlier = await cells.earlier_tasks.look(live=live)
    service = cells.current.task_service.made if cells.current is not None else None
    if not live:
        return
    tasks: tuple[TaskSnapshot, ...] = ()
    waiting = len(cells.earlier_tasks.follow_ups) if earlier else 0
    if service is not None and service.used:
        with contextlib.suppress(TaskRefused):
            tasks = await service.news()
            waiting += len(await service.follow_ups()) if tasks else 0
    display = task_cards.news_display(tasks, earlier, waiting)
    if display is not None:
        output.display(display)
