"""MIME bundles for values, command results, notes and branches; each kind has a fixed set of MIME types.

Reports of the machine are `text/html` that survives a sanitiser (no scripts, style sheets, ids or theme variables) with
`text/plain`; text of sessions is `text/markdown` with `text/plain`. Plain text is complete by itself. Values that
differ from run to run (durations, models, run ids) are not in the texts, but in `Display.facts`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from prose_kernel.errors import RunError
from prose_kernel.language.structs import replace
from prose_kernel.runs.languages import Language
from prose_kernel.runtime.command_data import parsed
from prose_kernel.runtime.events import BranchFinished, CommandFinished
from prose_kernel.runtime.images import picture
from prose_kernel.runtime.json_data import indented, json_text
from prose_kernel.runtime.ports import CommandResult
from prose_kernel.runtime.values import ErrorValue, ExecText, Reference, Value, full_text, plain
from prose_kernel.views.bundle import KEPT, QUIET, TABLE, card, coded, command_card, data_html, quiet, row, wide_row
from prose_kernel.views.display import Display
from prose_kernel.views.document import counted
from prose_kernel.views.escaping import LITERAL, Html, clip, html, preview, tag, visible
from prose_kernel.views.file_displays import image_display, image_html
from prose_kernel.views.session_cards import text_display
from prose_kernel.views.tables_of_values import table_of

ROWS = 30
"""The most rows of a table that are shown; the rest is counted."""
ENDS = 20
"""The number of branches shown at each end of a `parallel`; between the ends only failed branches are shown."""
FAILED = 200
"""The most failed branches that are shown between the ends."""
OFTEN = 3
"""The most times that the same note is shown; if it occurs more often, it is counted."""
_LINE = 80
"""The most characters in one line of a report."""

_SCROLLED = "max-height: 60em; overflow: auto"
_PRE = "margin: 2px 0; white-space: pre-wrap; max-height: 20em; overflow: auto"


# ---------------------------------------------------------------- values


def readable(value: Value, language: Language) -> str:
    """Return a value in readable form: text unchanged, arrays and objects as JSON, on one line if it fits."""
    if not isinstance(value, (list, dict)) or language.kind_of(value) == "ref":
        return language.text_of(value)
    short = json_text(plain(value))
    return short if len(short) <= _LINE else indented(short)


def one_line(value: Value, language: Language) -> str:
    """Return the beginning of a value, for a row of a table."""
    return clip(json_text(plain(value)) if isinstance(value, (list, dict)) else language.text_of(value), _LINE)


def value_display(value: Value, language: Language) -> Display:
    """Return the display of a cell's last value. Text of a session is Markdown."""
    if isinstance(value, Reference):
        return text_display(full_text(value))
    if isinstance(value, ExecText) and value.result.image:
        return image_display(value.result.image)
    table = table_of(value)
    if table is not None:
        return table.display()
    shown, rest = preview(readable(value, language), lines=200, characters=20_000)
    return Display({"text/plain": f"{shown}\n… ({rest})" if rest else shown})


class BoundName(Struct):
    """A bound name with its last value, its language, and the number of bindings (`times`)."""

    name: str
    value: Value
    language: Language
    times: int = 1


def _exec_remarks(value: ExecText) -> tuple[tuple[str, ...], dict[str, object], bool]:
    if value.bare:
        return ("the command failed; its exit code was not kept",), command_facts(value.result), False
    remarks = outcome(value.result)
    bad = bool(remarks)
    remarks += cuts(value.result)
    if value.result.kept_from is not None:
        remarks.append(KEPT)
    if value.result.stderr.strip():
        remarks.append(_stderr(value.result))
    return tuple(remarks), command_facts(value.result), bad


def _stderr(result: CommandResult) -> str:
    shown, rest = preview(result.stderr, lines=3, characters=300)
    return f"stderr: {shown or 'empty'}" + (" …" if rest else "")


def card_display(recent: Sequence[BoundName]) -> Display:
    """Return the card of a name, or a table of several; a name that was bound repeatedly has one row, with its last
    value."""
    if len(recent) == 1 and recent[0].times == 1:
        return _single(recent[0].name, recent[0].value, recent[0].language)
    return _table(recent)


def _kind(value: Value, language: Language) -> str:
    empty = isinstance(value, str | ExecText) and not full_text(value).strip("\n")
    return language.kind_of(value) + (", empty" if empty else "")


def _single(name: str, value: Value, language: Language) -> Display:
    table = table_of(value)
    shown, rest = preview(readable(value, language)) if table is None else (table.text, "")
    remarks, facts, bad = _exec_remarks(value) if isinstance(value, ExecText) else ((), {}, False)
    kind = _kind(value, language)
    lines = [line for line in (shown, f"… ({rest})" if rest else "") if line]
    head = f"{visible(name)}: {kind}"
    text = [f"{head} = {shown}"] if len(lines) == 1 and "\n" not in shown else [head, *lines]
    text += [f"[{r}]" for r in remarks]
    parts = [tag("code", name), html(" "), tag("span", kind, style=QUIET)]
    if isinstance(value, ExecText) and (drawn := picture(value.result.image)) is not None:
        if drawn.width and not drawn.broken:
            parts.append(tag("div", image_html(drawn.media, value.result.image, drawn.text)))
        parts.append(quiet(drawn.text))
    elif table is not None:
        parts.append(data_html(table.document))
        rest = table.rest
    elif shown:
        parts.append(tag("pre", shown, style=_PRE))
    parts += map(quiet, [*([rest] if rest else []), *remarks])
    return card(parts, text, facts, bad=bad or kind == "error value")


def data_display(result: CommandResult, form: str, language: Language) -> tuple[Display | None, str]:
    """Return the display of a bare command's output that is declared as data, or the reason to show it as text."""
    value = ExecText(result.stdout, result, format=form)
    if result.image or not result.stdout.strip():
        return None, ""
    if (table := table_of(value)) is not None:
        return table.display(), ""
    try:
        return value_display(parsed(value), language), ""
    except RunError as problem:
        return None, f"{problem.message}; {problem.hint}" if problem.hint else problem.message


def _table(recent: Sequence[BoundName]) -> Display:
    body: list[Html] = []
    lines: list[str] = []
    facts: dict[str, object] = {}
    for one in recent[:ROWS]:
        kind = _kind(one.value, one.language) + (f", bound {one.times} times" if one.times > 1 else "")
        name, text = visible(one.name), one_line(one.value, one.language)
        remarks: Sequence[str] = ()
        if isinstance(one.value, ExecText):
            remarks, facts[one.name], _ = _exec_remarks(one.value)
        body.append(row(tag("code", name), kind, html(text, *(quiet(clip(r)) for r in remarks)), quiet=1))
        lines.append(f"{name}: {kind}" + (f" = {text}" if text else ""))
        lines += [f"  [{clip(r)}]" for r in remarks]
    if len(recent) > ROWS:
        left = f"and {len(recent) - ROWS:,} more; %bindings lists them"
        body.append(wide_row(left, 3))
        lines.append(left)
    table = tag("table", *body, class_=LITERAL, style=TABLE)
    return Display({"text/html": table, "text/plain": "\n".join(lines)}, facts)


# ---------------------------------------------------------------- commands


def outcome(result: CommandResult) -> list[str]:
    """Describe the end of a command in words; empty for success."""
    match result.kind:
        case None:
            return []
        case "timeout":
            return ["ended at its time limit"]
        case "signal":
            return [f"ended by signal {result.signal or 'unknown'}"]
        case "spawn" | "cwd":
            return ["could not be started"]
        case "lost":
            return [f"lost with the {'worker' if result.worker else 'process'} that ran it"]
        case _:
            return [f"exit code {result.exit_code}"]


def cuts(result: CommandResult) -> list[str]:
    """Describe the parts of a command's output that its value does not contain."""
    found = []
    for name in ("stdout", "stderr"):
        if getattr(result, f"{name}_truncated"):
            total, kept = getattr(result, f"{name}_bytes"), len(getattr(result, name))
            found.append(f"{name} was {counted(total, 'byte')}; the value keeps its first {kept:,} characters")
    if result.replaced_bytes:
        was, are = ("was", "is") if result.replaced_bytes == 1 else ("were", "are")
        sign = "\N{REPLACEMENT CHARACTER}"
        found.append(f"{counted(result.replaced_bytes, 'byte')} {was} not UTF-8 and {are} shown as {sign}")
    if result.pipes_held:
        found.append("a process that it left behind held its output open")
    elif result.background_left:
        found.append(f"processes left running: {result.background_left}")
    return found


def command_facts(result: CommandResult) -> dict[str, object]:
    """Return the volatile facts of a command's result, for metadata."""
    facts: dict[str, object] = {
        "duration": round(result.duration, 3),
        "max_rss": result.max_rss,
        "cpu_s": round(result.cpu_s, 3),
    }
    if result.worker:
        facts["worker"] = result.worker
    if (kept := result.kept_from) is not None:
        facts |= {"kept": kept.run, "at": kept.at, "answered": kept.answered}
    return facts


def result_card(event: CommandFinished, directory: str = "") -> Display | None:
    """Return the compact card after an `exec` that binds no name, or None if there is nothing to report.

    `directory` is the displayed name of the new directory. Output that was shown already isn't repeated.
    """
    result = event.result
    remarks = [] if event.raised else outcome(result)
    bad = bool(remarks)
    remarks += cuts(result)
    if directory:
        remarks.append(f"directory: {directory}")
    if result.kept_from is not None:
        remarks.append(KEPT)
    if not remarks:
        return None
    if bad and event.consumed:
        remarks.append(_stderr(result))
    if result.spawn_error:
        remarks.append(result.spawn_error)
    return command_card(event.command, remarks, command_facts(result), bad=bad)


# ---------------------------------------------------------------- notes and branches


@dataclass(frozen=True, slots=True)
class Note:
    """A dimmed line: a condition, which is emphasised, if any; a text; and its reason. `facts` differ from run to
    run."""

    text: str
    condition: str = ""
    why: str = ""
    facts: Mapping[str, object] = field(default_factory=dict, compare=False)

    @property
    def rest(self) -> str:
        return f"{self.text} ({self.why})" if self.why else self.text


def notes_display(notes: Sequence[Note]) -> Display:
    """Return dimmed lines about decisions of the machine: conditions, retries, gates, warnings."""
    found = _counted(notes)
    shown = found[:ROWS]
    if len(found) > ROWS:
        shown.append(Note(f"and {len(found) - ROWS:,} more of this kind"))
    rows = (
        tag("div", *((tag("em", note.condition), " ") if note.condition else ()), coded(note.rest)) for note in shown
    )
    lines = [visible(f"{note.condition} {note.rest}".lstrip()) for note in shown]
    facts = [dict(note.facts) for note in notes if note.facts][:ROWS]
    return card([tag("small", *rows)], lines, {"decisions": facts} if facts else {})


def _counted(notes: Sequence[Note]) -> list[Note]:
    """Merge equal notes that occur more than `OFTEN` times, such as in a loop, into one with their number and the last
    reason."""
    alike: dict[tuple[str, str], list[Note]] = {}
    for note in notes:
        alike.setdefault((note.condition, note.text), []).append(note)
    found: list[Note] = []
    for note in notes:
        same = alike[note.condition, note.text]
        if len(same) <= OFTEN:
            found.append(note)
        elif note is same[0]:
            last = same[-1].why
            why = last if all(one.why == last for one in same) else f"{last}, the last time"
            found.append(replace(note, text=f"{note.text}, {len(same):,} times", why=why))
    return found


class BranchRow(Struct):
    """The end of one branch of a `parallel`: its status, and a line of text."""

    status: str = "cancelled"
    text: str = ""


def branch_state(event: BranchFinished, language: Language) -> str:
    """Return how a branch ended, for people: it failed if its command failed, even if the program handles the
    failure."""
    failed = event.command is not None or language.kind_of(event.value) == "error value"
    return "failed" if failed and event.status == "done" else event.status


_MARKS = {"done": "✓", "failed": "✗", "cancelled": "–"}


def shown_branches(rows: Sequence[BranchRow]) -> list[int]:
    """Return the indexes of the shown branches: all of a few; the first, the failed and the last ones of many."""
    total = len(rows)
    if total <= 2 * ENDS:
        return list(range(total))
    failed = [at for at in range(ENDS, total - ENDS) if rows[at].status == "failed"][:FAILED]
    return [*range(ENDS), *failed, *range(total - ENDS, total)]


def left_out(rows: Sequence[BranchRow], kept: Sequence[int]) -> str:
    """Describe in a line the branches that are not shown; "" if all are."""
    shown = set(kept)
    statuses = _statuses([row for at, row in enumerate(rows) if at not in shown])
    return f"and {len(rows) - len(kept):,} more: {statuses}" if statuses else ""


def _statuses(rows: Sequence[BranchRow]) -> str:
    counts = Counter(row.status for row in rows)
    return ", ".join(f"{counts[status]:,} {status}" for status in _MARKS if counts[status])


def parallel_display(rows: Sequence[BranchRow], names: Sequence[str]) -> Display:
    """Return the display of the branches of a joined `parallel`, in source order; equal for all front ends."""
    head = f"parallel, {counted(len(rows), 'branch')}: {_statuses(rows) or 'starting'}"
    kept = shown_branches(rows)
    shown = [(rows[at], names[at]) for at in kept]
    lines = [head, *(f"  {_MARKS[r.status]} {visible(name)}" + (f": {r.text}" if r.text else "") for r, name in shown)]
    body = [row(_MARKS[r.status], tag("code", name), r.text) for r, name in shown]
    if rest := left_out(rows, kept):
        lines.append(f"  {rest}")
        body.append(wide_row(rest, 3))
    table = tag("table", *body, style=TABLE)
    if len(shown) > 2 * ENDS:
        table = tag("div", table, style=_SCROLLED)
    return card([tag("span", head, style=QUIET), table], lines)


def branch_text(event: BranchFinished, language: Language) -> str:
    """Return the line shown next to a finished branch of a cell in this language."""
    if event.error is not None:
        return clip(str(event.error), 80)
    ending = ", ".join(outcome(event.command)) if event.command is not None else ""
    text = _text_of_branch(event.value, language)
    return clip(": ".join(part for part in (ending, text) if part), 80)


def _text_of_branch(value: Value, language: Language) -> str:
    if value is None:
        return ""
    if isinstance(value, Reference):
        return clip(value.summary, 80)
    if isinstance(value, ErrorValue):
        return clip(value.message, 80)
    if isinstance(value, dict) and language.kind_of(value) == "ref" and isinstance(value.get("summary"), str):
        return clip(str(value["summary"]), 80)  # its path differs from run to run
    return clip(language.text_of(value), 80)


def verdict(answer: Value, width: int = 80) -> str:
    """Return a judge's answer as text of at most `width` characters."""
    if answer is None:
        return "uncertain"
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    return clip(full_text(answer), width)
