"""Cards and tables of tasks. Volatile facts (ids, times) are in the metadata only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from prose_kernel.runtime.services import CommandCompleted, TaskOutput, TaskSnapshot
from prose_kernel.views.display import Display, paragraph, table
from prose_kernel.views.safety import LITERAL, clip, html_text, visible

_LINES = 5
_WIDTH = 120
_QUIET = 'style="opacity: 0.65"'
_PRE = 'style="margin: 2px 0; white-space: pre-wrap"'
_GREY, _RED = "rgba(128, 128, 128, 0.5)", "rgba(215, 60, 60, 0.8)"


def _frame(bad: bool) -> str:
    colour = _RED if bad else _GREY
    return f'{LITERAL} style="border-left: 3px solid {colour}; padding: 2px 10px; margin: 2px 0"'


def standing(task: TaskSnapshot) -> str:
    """The state of a task in words: `completed`, `failed (exit 1)`, `interrupted (the kernel was gone)`."""
    why = ""
    if task.status == "failed":
        why = task.error["message"] if task.error else f"exit {task.exit_status}"
    elif task.status == "interrupted":
        why = "the kernel was gone" if task.interrupted_reason == "runtime_restarted" else "the run ended"
    return f"{task.status} ({why})" if why else task.status


def facts(task: TaskSnapshot) -> dict[str, object]:
    """The record's projection for rich clients: metadata, which takes no part in comparisons."""
    return {"task": _projection(task)}


def _projection(task: TaskSnapshot) -> dict[str, object]:
    """Without the places of this machine, because notebooks are passed on; `prose tasks show` has them."""
    return {name: value for name, value in asdict(task).items() if name not in ("workdir", "shell")}


def last_lines(preview: str) -> list[str]:
    """The end of an output, as lines that fit a card."""
    lines = [clip(line, _WIDTH) for line in preview.rstrip().replace("\r\n", "\n").split("\n")]
    return [line for line in lines if line][-_LINES:]


def task_card(task: TaskSnapshot, preview: str = "", *, age: float | None = None) -> Display:
    """The card of a task. `age` is shown only while a person watches: what is saved does not depend on time."""
    head = f"task {task.number}: {visible(task.summary)}"
    state = standing(task) + (f", {_duration(age)}" if age is not None and not task.ended else "")
    hints = [] if task.ended else [f"%task {task.number} follow, %stop {task.number}"]
    lines = last_lines(preview)
    text = [head, f"  {state}", *(f"  | {line}" for line in lines), *(f"  [{hint}]" for hint in hints)]
    parts = f"<code>{html_text(head)}</code><div>{html_text(state)}</div>"
    if lines:
        shown = html_text("\n".join(lines))
        parts += f"<pre {_PRE}>{shown}</pre>"
    parts += "".join(f"<div {_QUIET}><small>{html_text(hint)}</small></div>" for hint in hints)
    bad = task.status in ("failed", "interrupted")
    return Display({"text/html": f"<div {_frame(bad)}>{parts}</div>", "text/plain": "\n".join(text)}, facts(task))


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def completed_card(command: str, receipt: CommandCompleted) -> Display | None:
    """What there is to say of a command that ended in its window, beside its output; None for nothing."""
    if receipt.exit_status == 0 and not receipt.background_ended:
        return None
    text = f"$ {clip(command, _WIDTH)}\n  {visible(receipt.summary_text)}"
    markup = (
        f"<div {_frame(receipt.exit_status != 0)}><code>$ {html_text(clip(command, _WIDTH))}</code>"
        f"<div {_QUIET}>{html_text(receipt.summary_text)}</div></div>"
    )
    return Display({"text/html": markup, "text/plain": text})


def task_table(tasks: Sequence[TaskSnapshot], *, everything: bool) -> Display:
    """The table of `%tasks`."""
    if not tasks:
        return paragraph("No tasks yet." if everything else "No active tasks.")
    rows = [(str(task.number), standing(task), task.session or "you", task.cmd_display) for task in tasks]
    shown = table(("task", "state", "of", "command"), rows, code=(3,))
    return Display(shown.data, {"tasks": [_projection(task) for task in tasks]})


def output_display(output: TaskOutput) -> Display:
    """The preview of `%task ID output`."""
    text = visible(output.preview.rstrip()) if "\n" not in output.preview else _visible_lines(output.preview)
    notes = []
    if output.truncated and output.artifact:
        notes.append("the log of the task has more: prose tasks output")
    if output.log_error:
        notes.append(output.log_error)
    body = [text or "(no output yet)" if not output.task.ended else text or "(no output)"]
    return Display({"text/plain": "\n".join([*body, *(f"[{note}]" for note in notes)])}, facts(output.task))


def _visible_lines(text: str) -> str:
    return "\n".join(visible(line) for line in text.rstrip().split("\n"))


def news_display(tasks: Sequence[TaskSnapshot], earlier: Sequence[TaskSnapshot], waiting: int) -> Display | None:
    """The quiet line at the start of a cell; None when there is nothing to tell."""
    lines = []
    if tasks:
        lines.append(f"{_count(tasks)} ended: {_listed(tasks)}")
    if earlier:
        lines.append(f"{_count(earlier)} of an earlier run ended: {_listed(earlier)}")
    if waiting:
        lines.append(f"{waiting} continuation{'s wait' if waiting != 1 else ' waits'}: %resume runs one")
    if not lines:
        return None
    rows = "".join(f"<div>{html_text(line)}</div>" for line in lines)
    markup = f"<div {_frame(False)}><small>{rows}</small></div>"
    return Display({"text/html": markup, "text/plain": "\n".join(lines)})


def _count(tasks: Sequence[TaskSnapshot]) -> str:
    return f"{len(tasks)} task{'s' if len(tasks) != 1 else ''}"


def _listed(tasks: Sequence[TaskSnapshot]) -> str:
    shown = [f"{task.number} {standing(task)}: {clip(task.summary, 40)}" for task in tasks[:3]]
    return "; ".join(shown) + (f" and {len(tasks) - 3} more" if len(tasks) > 3 else "")
