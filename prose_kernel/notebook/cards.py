"""The bundles that cells show: one function a kind, one fixed set of MIME types for each kind.

Reports of the machine are `text/html` (only what survives a sanitiser: no scripts, styles, ids or theme variables) with
`text/plain`; text that a session wrote is `text/markdown` with `text/plain`. Plain text is complete by itself. Nothing
that differs from run to run is in the text: durations, models and run ids go into `Display.facts`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from prose_kernel.machine.events import CommandFinished
from prose_kernel.machine.ports import CommandResult, SessionResult
from prose_kernel.machine.values import ErrorValue, ExecText, Reference, Value, full_text, kind_of, plain
from prose_kernel.notebook.output import Display
from prose_kernel.notebook.safety import clip, html_text, markdown, preview, visible

ROWS = 30
"""Rows of a table that are shown; the rest is counted."""

_QUIET = 'style="opacity: 0.65"'
_CARD = 'style="border-left: 3px solid rgba(128, 128, 128, 0.5); padding: 2px 10px; margin: 2px 0"'
_BAD = 'style="border-left: 3px solid rgba(215, 60, 60, 0.8); padding: 2px 10px; margin: 2px 0"'
_PRE = 'style="margin: 2px 0; white-space: pre-wrap; max-height: 20em; overflow: auto"'


def _size(count: int) -> str:
    return f"{count:,} byte" if count == 1 else f"{count:,} bytes"


# ---------------------------------------------------------------- values


def readable(value: Value) -> str:
    """A value as people read it: text as it is, arrays and objects as indented JSON."""
    if isinstance(value, (list, dict)):
        return json.dumps(plain(value), ensure_ascii=False, indent=2)
    return full_text(value)


def value_display(value: Value) -> Display:
    """A cell's last value, shown as it is. Text of a session is Markdown."""
    if isinstance(value, Reference):
        return session_display(full_text(value), None)
    shown, rest = preview(readable(value), lines=200, characters=20_000)
    return Display({"text/plain": f"{shown}\n… ({rest})" if rest else shown})


@dataclass(frozen=True, slots=True)
class Card:
    """A bound value: its name, how it was declared, its kind in words, the beginning of its text, and remarks."""

    name: str
    declared: str
    kind: str
    text: str
    rest: str = ""
    remarks: tuple[str, ...] = ()
    bad: bool = False
    facts: dict[str, object] = field(default_factory=dict)


def card(name: str, declared: str, value: Value) -> Card:
    """The card of a binding. Reads at most the beginning of what is shown."""
    text, rest = preview(readable(value))
    remarks, facts, bad = _exec_remarks(value) if isinstance(value, ExecText) else ((), {}, False)
    return Card(name, declared, kind_of(value), text, rest, remarks, bad, facts)


def _exec_remarks(value: ExecText) -> tuple[tuple[str, ...], dict[str, object], bool]:
    if value.bare:
        return ("the command failed; its exit code was not kept",), command_facts(value.result), False
    remarks = outcome(value.result)
    bad = bool(remarks)
    remarks += cuts(value.result)
    if value.result.stderr.strip():
        shown, rest = preview(value.result.stderr, lines=3, characters=300)
        remarks.append(f"stderr: {shown}" + (" …" if rest else ""))
    return tuple(remarks), command_facts(value.result), bad


def card_display(cards: Sequence[Card]) -> Display:
    """One card, or a table of many; a name that was bound again and again has one row with its last value."""
    last: dict[str, Card] = {}
    counts: dict[str, int] = {}
    for one in cards:
        counts[one.name] = counts.get(one.name, 0) + 1
        last[one.name] = one
    if len(cards) == 1:
        return _single(cards[0])
    return _table([(one, counts[name]) for name, one in last.items()])


def _single(one: Card) -> Display:
    lines = [line for line in (one.text, f"… ({one.rest})" if one.rest else "") if line]
    head = f"{visible(one.name)}: {one.kind}"
    brief = head + (f" = {lines[0]}" if len(lines) == 1 and "\n" not in lines[0] and lines[0] else "")
    text = [brief if brief != head or not lines else "\n".join([head, *lines]), *(f"[{r}]" for r in one.remarks)]
    parts = [f"<code>{html_text(one.name)}</code> <span {_QUIET}>{html_text(one.kind)}</span>"]
    if one.text:
        parts.append(f"<pre {_PRE}>{html_text(one.text)}</pre>")
    parts += [f"<div {_QUIET}>{html_text(r)}</div>" for r in ([one.rest] if one.rest else []) + list(one.remarks)]
    frame = _BAD if one.bad else _CARD
    return Display({"text/html": f"<div {frame}>{''.join(parts)}</div>", "text/plain": "\n".join(text)}, one.facts)


def _table(rows: Sequence[tuple[Card, int]]) -> Display:
    shown = rows[:ROWS]
    cells = []
    for one, count in shown:
        times = f"{one.kind}, bound {count} times" if count > 1 else one.kind
        cells.append((visible(one.name), times, clip(one.text, 80) + (" …" if one.rest else ""), one.remarks))
    body = "".join(
        f"<tr><td><code>{html_text(name)}</code></td><td {_QUIET}>{html_text(kind)}</td><td>{html_text(text)}"
        + "".join(f"<div {_QUIET}>{html_text(clip(r))}</div>" for r in remarks)
        + "</td></tr>"
        for name, kind, text, remarks in cells
    )
    lines = [f"{name}: {kind}" + (f" = {text}" if text else "") for name, kind, text, _ in cells]
    if more := len(rows) - len(shown):
        body += f'<tr><td colspan="3" {_QUIET}>and {more:,} more; %bindings lists them</td></tr>'
        lines.append(f"and {more:,} more; %bindings lists them")
    return Display({"text/html": f"<table>{body}</table>", "text/plain": "\n".join(lines)})


# ---------------------------------------------------------------- commands


def outcome(result: CommandResult) -> list[str]:
    """How a command ended, in words; empty for success."""
    match result.kind:
        case None:
            return []
        case "timeout":
            return ["ended at its time limit"]
        case "signal":
            return [f"ended by signal {result.signal or 'unknown'}"]
        case "spawn" | "cwd":
            return ["could not be started"]
        case _:
            return [f"exit code {result.exit_code}"]


def cuts(result: CommandResult) -> list[str]:
    """What of a command's streams its value does not hold."""
    found = []
    for name in ("stdout", "stderr"):
        if getattr(result, f"{name}_truncated"):
            total = getattr(result, f"{name}_bytes")
            found.append(f"{name} was {_size(total)}; the value keeps its first 30,000 characters")
    if result.replaced_bytes:
        found.append(f"{_size(result.replaced_bytes)} were not UTF-8 and are shown as \N{REPLACEMENT CHARACTER}")
    if result.pipes_held:
        found.append("a process that it left behind held its output open")
    elif result.background_left:
        found.append(f"processes left running: {result.background_left}")
    return found


def command_facts(result: CommandResult) -> dict[str, object]:
    """The volatile side of a command's result, for metadata."""
    return {"duration": round(result.duration, 3), "max_rss": result.max_rss, "cpu_s": round(result.cpu_s, 3)}


def result_card(event: CommandFinished, not_shown: Iterable[str], directory: str | None) -> Display | None:
    """The compact card after a bare `exec`, or None when there is nothing to say.

    `not_shown` names the streams whose live display was stopped; `directory` is the new directory as it may be shown.
    """
    result = event.result
    remarks = [] if event.raised else outcome(result)
    bad = bool(remarks)
    remarks += cuts(result)
    remarks += [f"{name}: display stopped, the value was still collected" for name in not_shown]
    if directory is not None:
        remarks.append(f"directory: {directory}" if directory else "the working directory changed")
    if not remarks:
        return None
    if bad:
        remarks.append(_streams(result))
    if result.spawn_error:
        remarks.append(result.spawn_error)
    command = clip(event.command)
    parts = "".join(f"<div {_QUIET}>{html_text(r)}</div>" for r in remarks)
    markup = f"<div {_BAD if bad else _CARD}><code>$ {html_text(command)}</code>{parts}</div>"
    text = "\n".join([f"$ {command}", *(f"  {visible(r)}" for r in remarks)])
    return Display({"text/html": markup, "text/plain": text}, command_facts(result))


def _streams(result: CommandResult) -> str:
    return ", ".join(
        f"{n}: {_size(getattr(result, f'{n}_bytes')) if getattr(result, n) else 'empty'}" for n in ("stdout", "stderr")
    )


# ---------------------------------------------------------------- sessions


def session_display(
    text: str, result: SessionResult | None, name: str | None = None, agent: str | None = None
) -> Display:
    """A session's answer as Markdown; who answered is a fact, except that a made-up answer is always called one."""
    facts: dict[str, object] = {}
    if result is not None:
        facts = {"provider": result.provider, "origin": result.origin, **result.details}
    head = f"`{name}`" if name else ""
    if agent:
        head += f" ({visible(agent)})" if head else visible(agent)
    body = markdown(text)
    plain_text = visible(text)
    if name or agent:
        label = " ".join(part for part in (name, f"({agent})" if name and agent else agent) if part)
        return Display(
            {"text/markdown": f"**{head}**\n\n{body}", "text/plain": f"{visible(label)}:\n{plain_text}"}, facts
        )
    return Display({"text/markdown": body, "text/plain": plain_text}, facts)


# ---------------------------------------------------------------- notes and branches


def notes_display(lines: Sequence[str]) -> Display:
    """Quiet lines about what the machine decided: conditions, retries, gates, warnings."""
    shown = [visible(line) for line in lines[:ROWS]]
    if len(lines) > ROWS:
        shown.append(f"and {len(lines) - ROWS:,} more of this kind")
    rows = "".join(f"<div>{html_text(line)}</div>" for line in shown)
    return Display({"text/html": f"<div {_CARD}><small>{rows}</small></div>", "text/plain": "\n".join(shown)})


@dataclass(slots=True)
class BranchRow:
    """One branch of a `parallel` as it is shown: its label, how it stands, and a line of text."""

    label: str
    status: str = "waiting"
    text: str = ""


_MARKS = {"waiting": "·", "running": "▸", "done": "✓", "failed": "✗", "cancelled": "–"}


def parallel_display(rows: Sequence[BranchRow], total: int, *, final: bool) -> Display:
    """The branches of a `parallel`. While it runs, a progress bar; at the end, exactly the same for every front end."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.status] = counts.get(row.status, 0) + 1
    order = ("done", "failed", "cancelled") if final else ("done", "failed", "cancelled", "running")
    summary = ", ".join(f"{counts[status]:,} {status}" for status in order if counts.get(status))
    head = f"parallel, {total:,} branch{'es' if total != 1 else ''}: {summary or 'starting'}"
    shown = rows[:ROWS]
    lines = [head, *(f"  {_MARKS[r.status]} {visible(r.label)}" + (f": {r.text}" if r.text else "") for r in shown)]
    body = "".join(
        f"<tr><td>{_MARKS[r.status]}</td><td><code>{html_text(r.label)}</code></td><td>{html_text(r.text)}</td></tr>"
        for r in shown
    )
    if more := len(rows) - len(shown):
        lines.append(f"  and {more:,} more")
        body += f'<tr><td colspan="3" {_QUIET}>and {more:,} more</td></tr>'
    ended = sum(counts.get(status, 0) for status in ("done", "failed", "cancelled"))
    bar = "" if final else f'<progress value="{ended}" max="{max(total, 1)}"></progress> '
    markup = f"<div {_CARD}>{bar}<span {_QUIET}>{html_text(head)}</span><table>{body}</table></div>"
    return Display({"text/html": markup, "text/plain": "\n".join(lines)})


def branch_text(value: Value, error: BaseException | None) -> str:
    """The line that stands beside a finished branch."""
    if error is not None:
        return clip(str(error), 80)
    if value is None:
        return ""
    if isinstance(value, Reference):
        return clip(value.summary, 80)
    return clip(full_text(value) if not isinstance(value, ErrorValue) else value.message, 80)
