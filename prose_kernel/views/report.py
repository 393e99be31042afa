"""Write the report of a run: one HTML page with all events of the run (docs/how-to/reports.md).

It is made only from the run's journal, which is replayed without requests or commands (`runs/replay.py`). So it works
for every backend, and for finished, failed, killed and running runs. Reports of two runs with the same answers differ
only in elements with the class `v` (times, tokens, cost, ids, places), in the title and in the timeline.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from prose_kernel.language.flow import FlowStep, Way
from prose_kernel.language.nodes import gc_paused
from prose_kernel.language.source import Source, Span
from prose_kernel.language.structs import replace
from prose_kernel.models.usage_and_prices import UsageTotals
from prose_kernel.runs import languages
from prose_kernel.runs.replay import Replay, ReplayListener, replay, times_of
from prose_kernel.runs.settings import surroundings
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime.open_request import folded
from prose_kernel.storage.journal_reading import JournalRead, TextRead
from prose_kernel.storage.run_history import actions_under_way, cells_of
from prose_kernel.views.cards import readable
from prose_kernel.views.diagram import NODES, DiagramText, Mark
from prose_kernel.views.document import Code, Fields, Table, counted
from prose_kernel.views.escaping import Html, clip, html, tag
from prose_kernel.views.flow_drawing import flow_svg
from prose_kernel.views.page import Filter, Section, as_html, page, terminal_text
from prose_kernel.views.problems import problem_of
from prose_kernel.views.report_entries import Entries, judged_by
from prose_kernel.views.run_pictures import figures_text, marks, merged, seconds, timeline_svg
from prose_kernel.views.run_record import Figures, Total
from prose_kernel.views.run_story import RunStory, Story, StoryEntry
from prose_kernel.views.usage import usage_table

if TYPE_CHECKING:
    from prose_kernel.runs.languages import Language
    from prose_kernel.runs.settings import Settings
    from prose_kernel.runtime.events import Event
    from prose_kernel.runtime.journal_records import Head

LISTED: Final = 1_500_000
"""The most bytes of all program listings."""
TIMELINE: Final = 200
CELLS: Final = 60
"""The most cells that are drawn; they are the last ones."""
ROWS: Final = 500
LINES: Final = 20_000
"""The most lines of a program that are shown."""
_COLOURED: Final = 100_000
"""The most characters of a program that is coloured."""

_KINDS: Final = (
    ("all", "All"),
    ("command", "Commands"),
    ("session", "Sessions"),
    ("judgement", "Judgements"),
    ("gate", "Gates"),
    ("failed", "Failed"),
)
_COUNTED: Final = ("commands", "sessions", "judgements", "gates", "failed")
_STATES: Final[Mapping[str, str]] = {
    "done": "done",
    "failed": "failed",
    "running": "running",
    "interrupted": "cancelled",
    "killed": "cancelled",
    "lost": "cancelled",
}


async def run_report(found: JournalRead, state: str, settings: Settings, redact: Callable[[str], str]) -> str:
    """Return the page for a journal. `state` is the state of the run (`storage/runs.py`), `redact` removes secrets.

    Raises `UsageError` if the journal's file is unusable.
    """
    usage, run = UsageTotals(), found.head.run

    def shown(whole: str) -> str:
        return redact(whole).replace(run, "RUN")  # so directories of the run have the same name in all reports

    waiting = found.waiting()
    story = RunStory(times_of(found), shown, waiting)
    replayed = await replay(found, settings, _StoryListener(story, usage))
    for one in waiting.values():
        usage.add_noted(codec.notes(one.aside).get("usage", ()))
    for steps in found.steps_under_way().values() if state not in ("done", "failed") else ():
        usage.add_noted([note for one in folded(steps) for note in one.notes()])
    with gc_paused():  # a page is built of texts, so garbage collection would only cost time
        return _Report(found, state, story, replayed, usage, shown).page()


class _StoryListener(ReplayListener):
    """Passes a replay to the story of the run, and counts its usage."""

    def __init__(self, story: RunStory, usage: UsageTotals) -> None:
        self._story, self._usage = story, usage

    def __call__(self, event: Event) -> None:
        self._story(event)

    def begins(self, text: TextRead, source: Source, language: Language) -> None:
        self._story.begin(source, language, text.record.t)

    def ends(self, text: TextRead, error: Any) -> None:
        ended = text.ended
        self._story.end(ended.status if ended is not None else None, error, ended.t if ended is not None else 0)

    def noted(self, notes: Mapping[str, Any]) -> None:
        self._usage.add_noted(notes.get("usage", ()))


class _Report:
    def __init__(
        self,
        found: JournalRead,
        state: str,
        story: RunStory,
        replayed: Replay,
        usage: UsageTotals,
        redact: Callable[[str], str],
    ) -> None:
        self.found, self.state, self.story, self.replayed, self.usage = found, state, story, replayed, usage
        self.redact = redact
        self.listed = LISTED
        self.language: Language = story.texts[0].language if story.texts else languages.LANGUAGES[found.head.language]
        self.entries = Entries(story, self.language, found.head.directory, redact)
        self.links: dict[tuple[int, Span], str] = {}
        for number, one in enumerate(story.texts):
            self.entries.sources[id(one.source)] = number + 1
        self.imported: list[Source] = []
        self.made: dict[str, StoryEntry] = {}
        self._number(entry for one in story.texts for entry in one.entries)

    def _number(self, entries: Iterator[StoryEntry]) -> None:
        """Number all programs with entries; index the first entry of each statement and the last entry of each name."""
        agenda = list(entries)[::-1]
        while agenda:
            entry = agenda.pop()
            key = id(entry.source)
            if key not in self.entries.sources:
                self.entries.sources[key] = len(self.entries.sources) + 1
                self.imported.append(entry.source)
            if entry.number:
                self.links.setdefault((key, entry.span), f"e{entry.number}")
                name = entry.words if entry.kind in ("value", "input", "output") else entry.bound
                self.made[name or ""] = entry
            agenda.extend(reversed(entry.inner))

    # ------------------------------------------------------------ the page

    def page(self) -> str:
        programs = self._programs()  # first, because links need to know which lines are on the page
        sections = [self._graph(), self._timeline(), self._spent(), self._happened(), self._decided()]
        sections += [self._rest(), self._bindings(), programs, self._used(), self._about()]
        head = self.found.head
        name = self.redact(Path(head.notebook_path).name or head.program)
        shown = [section for section in sections if section is not None]
        title = f"{name}, {_moment(head.started)}: {self.state}"
        return page(title, self._head(name), shown, Filter("show", "Show", "e", _KINDS))

    def _head(self, name: str) -> Html:
        head = self.found.head
        begun = tag("span", f"{_moment(head.started)} · run {head.run}", class_="v")
        parts = [
            tag("h1", name, " ", _badge(self.state)),
            tag("div", self.language.title, " ", begun, class_="quiet"),
            self._tiles(),
        ]
        if self.replayed.gap:
            parts.append(_note(f"This is not all of the run: {self.replayed.gap}. ", _REST))
        if self.state == "running":
            parts.append(_note("The run was not over when this report was written."))
        if self.state == "killed" and not head.notebook:
            parts.append(_note("The process of the run was killed; this is what it did until then."))
        waiting = self.found.under_way() if self.state not in ("done", "failed") else []
        if waiting:
            made = actions_under_way(self.found)
            texts = [f"{one.kind} {one.text}" + (f" ({made[one.key]})" if one.key in made else "") for one in waiting]
            requests = "; ".join(clip(self.redact(text), 100) for text in texts[:20])
            parts.append(_note(f"Under way then: {requests}"))
        for number, one in enumerate(self.story.texts, 1):
            if one.error is not None:
                where = f"{_cell(number, one)}: " if len(self.story.texts) > 1 else ""
                shown = terminal_text(self.redact("\n".join(problem_of(one.error).traceback)))
                parts.append(tag("div", where, tag("pre", shown), class_="problem failed"))
        return Html("\n".join(parts))

    def _tiles(self) -> Html:
        counts = self.story.counts
        tiles = [(len(self.story.texts), "cells")] if self.found.head.notebook else []
        tiles += [(counts.get(label.removesuffix("s"), 0), label) for label in _COUNTED]
        named = ((n, label.removesuffix("s") if n == 1 and label != "failed" else label) for n, label in tiles if n)
        found = [tag("li", tag("b", f"{count:,}"), tag("span", label)) for count, label in named]
        took = sum((cell.ended or cell.began) - cell.began for cell in self.story.record.cells)
        lines = self.usage.lines
        tokens, cost = sum(line.tokens_in + line.tokens_out for line in lines), sum(line.cost for line in lines)
        volatile = [(seconds(took), "time")] if self.story.timed else []
        volatile += [(f"{tokens:,}", "tokens")] if tokens else []
        volatile += [(f"${cost:.4f}", "cost")] if cost else []
        found += [tag("li", tag("b", value), tag("span", label), class_="v") for value, label in volatile]
        return tag("ul", *found, class_="tiles") if found else Html()

    # ------------------------------------------------------------ pictures

    def _graph(self) -> Section | None:
        parts, links = [], dict[Span, str]()
        many = len(self.story.texts) > 1
        cells = self.story.record.cells
        if (earlier := len(self.story.texts) - CELLS) > 0:
            parts.append(DiagramText(counted(earlier, "earlier cell"), ()))
        for number, one in list(enumerate(self.story.texts, 1))[-CELLS:]:
            program = one.language.compile(one.source, cell=self.found.head.notebook).program
            steps = one.language.flow(program, one.source)
            shown_steps = tuple(_redacted(step, self.redact) for step in steps[:NODES])  # further ones are only counted
            made = marks(list(cells), one.source)
            known = {span: Mark(mark.state, self.redact(mark.words)) for span, mark in made.items()}
            known.update((span, Mark("running", "under way")) for span in self.story.waiting(one.source))
            parts.append(DiagramText(_cell(number, one) if many else "", (*shown_steps, *steps[NODES:]), known))
            if not many:
                links = {span: link for (key, span), link in self.links.items() if key == id(one.source)}
        if not any(part.steps for part in parts):
            return None
        return Section("graph", "Graph", tag("div", flow_svg(parts, links), class_="frame"))

    def _timeline(self) -> Section | None:
        found = timeline_svg(list(self.story.record.cells), TIMELINE, timed=self.story.timed)
        return Section("timeline", "Timeline", tag("div", found, class_="frame v")) if found else None

    def _spent(self) -> Section | None:
        """Return the most expensive statements, if their consumption is known."""
        totals = merged(list(self.story.record.cells))
        if not self.story.timed or len(totals) < 2:
            return None
        spent = Figures()
        for total in totals:
            spent.add(total.figures)
        rows = []
        for total in sorted(totals, key=lambda total: -total.figures.seconds)[:20]:
            share = f"{total.figures.seconds / spent.seconds:.0%}" if spent.seconds else ""
            place = self.entries.place(total.source, total.source.line_column(total.span.start)[0])
            label = Code(clip(self.redact(total.label), 90))
            rows.append((place, label, f"{total.times:,}", share, figures_text(total.figures)))
        shown = as_html(Table(("line", "statement", "times", "share", "took"), rows, numbers=(2, 3, 4)))
        return Section("spent", "Where the time went", tag("div", shown, class_="v"))

    # ------------------------------------------------------------ entries

    def _happened(self) -> Section:
        parts, inner = [], []
        many = len(self.story.texts) > 1
        for number, one in enumerate(self.story.texts, 1):
            if many:
                inner.append((f"c{number}", _cell(number, one)))
                badge = _badge(one.status or "running", one.status or "not ended")
                parts.append(tag("h3", _cell(number, one), " ", badge, id=f"c{number}"))
            self.entries.language = one.language
            parts.append(self.entries.entries_html(one.entries))
            if not one.entries:
                parts.append(tag("p", "Nothing was asked or bound.", class_="quiet"))
        body = Html("\n".join(parts)) or tag("p", "Nothing has happened.", class_="quiet")
        return Section("happened", "What happened", body, inner[:100])

    # ------------------------------------------------------------ tables

    def _rest(self) -> Section | None:
        """Return the remaining raw records if the run could not be replayed to its end."""
        if not self.replayed.gap:
            return None
        rows = []
        for cell in list(cells_of(self.found))[len(self.replayed.errors) - 1 :]:
            for step in cell.steps:
                asked = Code(clip(self.redact(step.text[:2000]), 120))
                rows.append((step.at, step.kind, asked, step.mark, self.entries.pre("", step.answer)))
        shown = as_html(Table(("at", "", "asked", "", "answer"), rows, most=ROWS))
        return Section("rest", "What the journal holds", shown)

    def _decided(self) -> Section | None:
        entries = self.story.decisions
        if not entries:
            return None
        rows = []
        for entry in entries[:ROWS]:
            line = entry.source.line_column(entry.span.start)[0]
            shown = (entry.kind, clip(" ".join(entry.words[:500].split()), 120), *self._decision(entry))
            rows.append((_link(line, entry), *map(self.redact, shown)))
        head = ("line", "", "asked", "decision", "by", "why")
        return Section("decided", "Who decided", as_html(Table(head, rows, left_out=max(len(entries) - ROWS, 0))))

    def _decision(self, entry: StoryEntry) -> tuple[str, str, str]:
        """Return the decision, its author and its reason."""
        decision = entry.answered
        if entry.kind == "judgement":
            return self.entries.answer(entry), judged_by(decision.by), clip(decision.reason, 200)
        if decision is None:
            return "under way", "", ""
        return decision.status, decision.decided_by, clip(decision.comment or decision.reason or "", 200)

    def _bindings(self) -> Section | None:
        if not self.replayed.bound:
            return None
        rows = []
        for name, named in list(self.replayed.bound.items())[:ROWS]:
            info, kind, shown = named.info, named.kind, readable(named.info.value, named.language)
            value = self.entries.pre("", shown)
            if len(shown) > 300:
                value = tag("details", tag("summary", clip(self.redact(shown[:2000]), 100)), value)
            rows.append((Code(name), kind, _link(info.location.line, self.made.get(name)), value))
        left_out = max(len(self.replayed.bound) - ROWS, 0)
        table = Table(("name", "kind", "line", "value"), rows, numbers=(2,), left_out=left_out)
        return Section("bindings", "Bindings", as_html(table))

    def _used(self) -> Section | None:
        if not self.usage.lines:
            return None
        return Section("used", "Usage", tag("div", as_html(usage_table(self.usage.lines)), class_="v"))

    # ------------------------------------------------------------ the programs

    def _programs(self) -> Section:
        many = len(self.story.texts) > 1 or bool(self.imported)
        parts, inner, totals = [], [], merged(list(self.story.record.cells))
        for number, one in enumerate(self.story.texts, 1):
            title = _cell(number, one) if len(self.story.texts) > 1 else one.source.name
            parts.append(self._listing(totals, number, title, one.source, one.language, titled=many))
            inner.append((f"p{number}", title))
        for source in self.imported:
            number = self.entries.sources[id(source)]
            language = languages.of_file(source.name) if source.name.endswith(languages.suffixes()) else self.language
            parts.append(self._listing(totals, number, source.name, source, language, titled=many))
            inner.append((f"p{number}", source.name))
        return Section("program", "Program", html(*parts), inner[:100] if many else ())

    def _listing(
        self, totals: Sequence[Total], number: int, title: str, source: Source, language: Language, *, titled: bool
    ) -> Html:
        own = [total for total in totals if total.source is source]
        states = {source.line_column(one.span.start)[0]: "failed" if one.failed else "done" for one in own}
        lines = _coloured(self.redact(source.text), language)
        rows = []
        for at, line in enumerate(lines[:LINES], 1):
            row = html(tag("li", line, id=f"s{number}-{at}", class_=states.get(at)), "\n")
            self.listed -= len(row.encode())
            if self.listed < 0:
                break
            rows.append(row)
        left_out = len(lines) - len(rows)
        self.entries.kept[id(source)] = len(rows)
        more = tag("p", f"… {counted(left_out, 'more line')}", class_="cut") if left_out else ""
        head = tag("h3", self.redact(title), id=f"p{number}") if titled else ""
        long = " long" if len(lines) > 200 else ""  # the browser lays it out when it becomes visible
        return html(head, tag("ol", *rows, class_=f"src{long}"), more)

    # ------------------------------------------------------------ about

    def _about(self) -> Section:
        head = self.found.head
        facts = [
            ("run", head.run),
            ("begun", _moment(head.started)),
            ("directory", head.directory),
            ("kept in", str(self.found.path.parent)),
            ("written by", f"prose_kernel {head.package}"),
        ]
        if head.branch_of:
            facts.append(("answers kept from" if head.changed else "branch of", head.branch_of[-1]))
        fixed = [(f"setting {name}", str(value)) for name, value in head.settings.items() if value is not None]
        fixed += [(f"input {name}", clip(value)) for name, value in head.supplied.items()]
        words = {True: "approved beforehand", False: "rejected beforehand"}
        fixed += [(f"gate {name}", words[yes]) for name, yes in head.decisions.items()]
        shown = tag("code", f"prose runs show {head.run} --format json", class_="v")
        rest = tag("p", _REST, " Here: ", shown, id="all")
        whole = html(tag("div", as_html(Fields(facts)), class_="v"), self.entries.facts(fixed), rest)
        return Section("about", "About this run", whole)


_REST: Final = html(
    "All answers of the run, whole, are in its journal; ",
    tag("code", "prose runs show RUN --format json"),
    " prints them.",
)


# ---------------------------------------------------------------- parts of the page


def _badge(state: str, word: str = "") -> Html:
    return tag("span", word or state, class_=f"badge {_STATES.get(state, '')}")


def _note(*parts: str) -> Html:
    return tag("div", *parts, class_="note")


def _link(line: int, entry: StoryEntry | None) -> Html:
    """Return the line number of an entry, as a link to the line if it is on the page."""
    return tag("a", str(line), href=f"#e{entry.number}") if entry is not None and entry.number else html(str(line))


def _cell(number: int, story: Story) -> str:
    name, number = story.source.name, story.source.number(number)
    return f"Cell {number}" if name in ("cell", f"cell {number}") else f"{number}: {name}"


def file_name(head: Head) -> str:
    """Return the file name of a report: the program, the start of the run, and the end of its id, which distinguishes
    runs of the same second."""
    program = Path(head.notebook_path or head.program).name
    program = program.removesuffix(next(filter(program.endswith, (*languages.runnable_suffixes(), ".md")), ""))
    began = _moment(head.started)[:19].replace(":", "-")
    parts = (program or "run", began, head.run.rpartition("-")[2])
    named = (re.sub(r"[^\w.-]+", "-", part).strip("-.") for part in parts)
    return f"{'-'.join(filter(None, named))}.html"


def _moment(started: str) -> str:
    try:
        return f"{datetime.fromisoformat(started).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return started


def _redacted(step: FlowStep, redact: Callable[[str], str]) -> FlowStep:
    ways = tuple(Way(redact(way.label), tuple(_redacted(one, redact) for one in way.steps)) for way in step.ways)
    return replace(step, text=redact(step.text), ways=ways)


def _coloured(source: str, language: Language) -> list[Html]:
    """Return the lines of a program with syntax highlighting."""
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    if len(source) > _COLOURED:
        return list(map(html, source.split("\n")))
    from pygments import lex  # type: ignore[import-untyped]
    from pygments.token import Comment, Keyword, Name, Number, String  # type: ignore[import-untyped]

    from prose_kernel.language.pygments_lexer import lexer_of

    lexer = lexer_of(language.name)
    tokens = {"tc": (Comment,), "tk": (Keyword,), "ts": (String,), "tn": (Number, Name.Function, Name.Class)}
    lines: list[list[Html]] = [[]]
    for token, value in lex(source, lexer):
        kind = next((name for name, of in tokens.items() if any(token in one for one in of)), "")
        for number, piece in enumerate(value.split("\n")):
            if number:
                lines.append([])
            if piece:
                lines[-1].append(tag("span", piece, class_=kind) if kind else html(piece))
    return [html(*line) for line in (lines if lines[-1] else lines[:-1])]


def secrets_out(settings: Settings, cwd: Path) -> Callable[[str], str]:
    """Return a function that removes secrets from a text, as recordings do
    (docs/explanation/what-leaves-your-machine.md)."""
    from prose_kernel.cassettes.portable_redaction import Redaction

    environment = surroundings(cwd, None, settings.state_dir).environment
    return Redaction(environment, settings.cassette.redact).text
