"""Cards and tables of tasks. Volatile facts (ids, times) are only in the metadata."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict

from prose_kernel.processes.tasks.records import ending_of
from prose_kernel.runtime.services import CommandCompleted, TaskOutput, TaskSnapshot
from prose_kernel.views.bundle import card, command_card, small
from prose_kernel.views.display import Display
from prose_kernel.views.document import Block, Table, counted, group, paragraph
from prose_kernel.views.escaping import clip, tag, visible
from prose_kernel.views.live_text import elapsed

_LINES = 5
_WIDTH = 120
_PRE = "margin: 2px 0; white-space: pre-wrap"


def facts(task: TaskSnapshot) -> dict[str, object]:
    """Return the task's record for rich clients: metadata, which comparisons ignore."""
    return {"task": _projection(task)}


def _projection(task: TaskSnapshot) -> dict[str, object]:
    """Return the record without local paths, because notebooks are shared; `prose tasks show` has them."""
    return {name: value for name, value in asdict(task).items() if name not in ("workdir", "shell")}


def task_card(task: TaskSnapshot, preview: str = "", *, age: float | None = None) -> Display:
    """Return the card of a task. `age` is shown only while a person watches: saved outputs do not depend on time."""
    head = f"task {task.number}: {visible(task.summary)}"
    state = ending_of(task) + (f", {elapsed(age) or '0 s'}" if age is not None and not task.ended else "")
    hints = [] if task.ended else [f"%task {task.number} follow, %stop {task.number}"]
    clipped = (clip(line, _WIDTH) for line in preview.rstrip().replace("\r\n", "\n").split("\n"))
    lines = [line for line in clipped if line][-_LINES:]
    text = [head, f"  {state}", *(f"  | {line}" for line in lines), *(f"  [{hint}]" for hint in hints)]
    shown = [tag("pre", "\n".join(lines), style=_PRE)] if lines else []
    parts = [tag("code", head), tag("div", state), *shown, *map(small, hints)]
    return card(parts, text, facts(task), bad=task.status in ("failed", "interrupted"))


def completed_card(command: str, receipt: CommandCompleted) -> Display | None:
    """Return remarks about a command that ended within its wait, in addition to its output; None if there are none."""
    if receipt.exit_status == 0 and not receipt.background_ended:
        return None
    return command_card(command, [receipt.summary_text], {}, bad=receipt.exit_status != 0)


def task_table(tasks: Sequence[TaskSnapshot], *, everything: bool) -> Block:
    if not tasks:
        return paragraph("No tasks yet." if everything else "No active tasks.")
    rows = [(str(task.number), ending_of(task), task.session or "you", task.cmd_display) for task in tasks]
    table = Table(("task", "state", "of", "command"), rows, (3,))
    return group(table, facts={"tasks": [_projection(task) for task in tasks]})


def output_display(output: TaskOutput) -> Display:
    text = "\n".join(map(visible, output.preview.rstrip().split("\n")))
    notes = []
    if output.truncated and output.artifact:
        notes.append("the log of the task has more: prose tasks output")
    if output.log_error:
        notes.append(output.log_error)
    body = [text or "(no output yet)" if not output.task.ended else text or "(no output)"]
    return Display({"text/plain": "\n".join([*body, *(f"[{note}]" for note in notes)])}, facts(output.task))


def news_display(tasks: Sequence[TaskSnapshot], earlier: Sequence[TaskSnapshot], waiting: int) -> Display | None:
    """Return the dimmed lines about tasks at the start of a cell; None if there is no news."""
    lines = []
    if tasks:
        lines.append(f"{counted(len(tasks), 'task')} ended: {_listed(tasks)}")
    if earlier:
        lines.append(f"{counted(len(earlier), 'task')} of an earlier run ended: {_listed(earlier)}")
    if waiting:
        lines.append(f"{waiting} continuation{'s wait' if waiting != 1 else ' waits'}: %resume runs one")
    if not lines:
        return None
    return card([tag("small", *(tag("div", line) for line in lines))], lines)


def _listed(tasks: Sequence[TaskSnapshot]) -> str:
    shown = [f"{task.number} {ending_of(task)}: {clip(task.summary, 40)}" for task in tasks[:3]]
    return "; ".join(shown) + (f" and {len(tasks) - 3} more" if len(tasks) > 3 else "")
