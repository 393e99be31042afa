"""Render the entries of a report, its main part (docs/how-to/reports.md).

An entry is one line that can be expanded: a command with its output, a session with its prompt and answer, a decision.
Untrusted texts are shortened, so that the size of the page is bounded.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from prose_kernel.language.source import Source
from prose_kernel.runs.languages import Language
from prose_kernel.runtime.events import Judged
from prose_kernel.runtime.images import picture
from prose_kernel.runtime.ports import CommandResult, GateDecision, SessionResult, ShownFile
from prose_kernel.runtime.values import full_text
from prose_kernel.views.cards import cuts, one_line, outcome, readable
from prose_kernel.views.document import Fields, Table, counted
from prose_kernel.views.escaping import Html, clip, html, tag
from prose_kernel.views.file_displays import file_text
from prose_kernel.views.page import as_html, markdown_text, terminal_text
from prose_kernel.views.run_pictures import seconds
from prose_kernel.views.run_story import RunStory, StoryEntry
from prose_kernel.views.session_cards import ORIGINS

LARGEST: Final = 3_000_000
"""The most bytes of untrusted texts in a report; the whole page stays below 10 MB."""
HEADS: Final = 1_500_000
"""The most bytes of the first lines of entries; after that, further first lines are short."""
ALL_TEXTS: Final = 2_000_000
LONGEST: Final = 20_000
SHORTEST: Final = 160
"""The most characters of one text are between `SHORTEST` and `LONGEST`: the more texts, the fewer characters."""
PICTURES: Final = 3_000_000
"""The most characters of all images; further images are only named."""
CHUNK: Final = 100
"""The number of entries that the browser lays out together when they become visible."""
FLAT: Final = 500
"""If there are more entries, the passes of loops are collapsed."""
_WORDS: Final[Mapping[str, str]] = {
    "command": "$",
    **dict.fromkeys(("value", "choice", "branch", "pass", "parallel", "loop"), ""),
}
"""The words before entries, if they differ from the entry's kind."""
_OPEN: Final = frozenset({"parallel", "loop", "call", "program", "branch", "pass"})
"""The kinds of entries that are expanded at first."""


class _Excerpt(Struct):
    """The beginning and the end of a text, and a note about the omitted part between them."""

    head: str
    tail: str = ""
    note: str = ""


class Entries:
    """The renderer of a run's entries. `language` is the language of the current text, `directory` the directory of the
    run."""

    def __init__(self, story: RunStory, language: Language, directory: str, redact: Callable[[str], str]) -> None:
        self.language, self.directory, self.redact, self.shown = language, directory, redact, story.shown
        asked = sum(story.counts.get(kind, 0) for kind in ("command", "session", "judgement", "value", "output"))
        self.limit = max(SHORTEST, min(LONGEST, ALL_TEXTS // max(asked, 1)))
        self.left, self.heads, self.room = LARGEST, HEADS, PICTURES
        self.sources: dict[int, int] = {}
        """The numbers of the programs, by the identity of their sources."""
        self.kept: dict[int, int] = {}
        """The number of lines of each program that are on the page."""

    def entries_html(self, entries: Sequence[StoryEntry]) -> Html:
        """Return the entries in order; if there are many, the browser lays out only visible ones."""
        found = [self._entry(entry) for entry in entries]
        if len(found) <= CHUNK:
            return html(*found)
        return html(*(tag("div", *found[at : at + CHUNK], class_="chunk") for at in range(0, len(found), CHUNK)))

    def _entry(self, entry: StoryEntry) -> Html:
        body, inner, kind = self._body(entry), self.entries_html(entry.inner), entry.kind
        sign, figures, ended = _WORDS.get(kind, kind), self._figures(entry), self._ended(entry)
        head = html(
            self.place(entry.source, entry.source.line_column(entry.span.start)[0]),
            " ",
            tag("span", sign, class_="k") if sign else "",
            self._title(entry),
            html(" ", tag("span", f"→ {entry.bound}", class_="to")) if entry.bound else "",
            html(" ", tag("span", self.redact(ended), class_="st")) if ended else "",
            html(" ", tag("span", figures, class_="v")) if figures else "",
            tag("span", f"and {entry.more:,} more times", class_="cut") if entry.more else "",
        )
        name = f"e{entry.number}" if entry.number else None
        parts = [tag("div", part, class_="body") for part in (body, inner) if part]
        classes = ("e", kind, entry.state, "group" if entry.inner else "", "" if parts else "flat")
        class_ = " ".join(filter(None, classes))
        if not parts:
            return tag("div", head, class_=class_, id=name)
        is_open = (kind in _OPEN or entry.state == "failed") and not (kind == "pass" and self.shown > FLAT)
        return tag("details", tag("summary", head), *parts, class_=class_, id=name, open=is_open)

    def place(self, source: Source, line: int) -> Html:
        number = self.sources.get(id(source))
        if number is None or line > self.kept.get(id(source), 0):
            return tag("span", str(line), class_="ln")
        return tag("a", str(line), class_="ln", href=f"#s{number}-{line}")

    def _title(self, entry: StoryEntry) -> Html:
        words = " ".join(self.redact(entry.words[:2000]).split())
        text, clip = self._counted_html, self._shortened
        match entry.kind:
            case "command":
                return tag("code", text(clip(self.redact(entry.words[:2000]), 160)))
            case "session":
                agent = entry.asked.agent or entry.asked.label
                return html(html(tag("b", text(agent)), " ") if agent else "", text(clip(words, 140)))
            case "judgement":
                return html(text(clip(words, 140)), " ", tag("b", text(self.answer(entry))))
            case "value" | "output" | "input":
                shown = text(clip(self.redact(one_line(entry.value, self.language)), 100))
                return html(html(tag("b", text(words)), " = ") if words else "", tag("code", shown))
            case "call":
                given = ", ".join(clip(self.redact(full_text(value)[:400]), 40) for value in entry.asked or ())
                return tag("code", text(words), "(", text(given), ")")
            case "loop" | "parallel" | "choice":
                code = entry.source.text[entry.span.start : entry.span.start + 400].split("\n")[0]
                return html(tag("code", text(clip(self.redact(code), 100))), " ", text(words))
            case _:
                return text(clip(words, 200))

    def _counted_html(self, plain: str) -> Html:
        made = html(plain)
        self.heads -= len(made.encode())
        return made

    def _shortened(self, plain: str, width: int) -> str:
        return clip(plain, width if self.heads > 0 else 20)

    def _ended(self, entry: StoryEntry) -> str:
        """Return how the entry ended; "" if that is obvious."""
        ending = ""
        match entry.answered:
            case CommandResult() as result:
                ending = ", ".join(outcome(result))
            case GateDecision() as decision:
                ending = f"{decision.status} by {decision.decided_by}" if decision.status != "timeout" else "timed out"
            case SessionResult() as result:
                ending = ORIGINS.get(result.origin, result.origin)
            case _ if entry.state == "running":
                ending = "under way"
            case _ if entry.state in ("failed", "cancelled"):
                ending = entry.state
        if entry.kind == "session" and entry.state == "failed":
            ending = "no answer"
        if entry.attempts and entry.state == "done":
            ending += f", attempt {len(entry.attempts) + 1}"
        return ending

    def _figures(self, entry: StoryEntry) -> str:
        parts = [seconds(entry.took)] if entry.took is not None and entry.kind != "judgement" else []
        usage = entry.answered.usage if isinstance(entry.answered, SessionResult) else None
        if usage is not None and not entry.answered.replayed:
            tokens = usage.tokens_in + usage.tokens_out
            parts += [f"{tokens:,} tokens"] if tokens else []
            parts += [f"${usage.cost:.4f}"] if usage.cost else []
        return ", ".join(parts)

    # ------------------------------------------------------------ the content of entries

    def _body(self, entry: StoryEntry) -> Html:
        match entry.kind:
            case "command":
                return self._command(entry)
            case "session":
                return self._session(entry)
            case "judgement":
                return self._judgement(entry)
            case "gate":
                return self._gate(entry)
            case "value" | "output" | "input":
                shown = readable(entry.value, self.language)
                return self.pre("", shown) if len(shown) > 100 or "\n" in shown.strip("\n") else Html()
            case "error" | "warning" | "catch":
                return self.pre("", entry.words) if len(entry.words) > 200 or "\n" in entry.words else Html()
            case _:
                return html(*(_caption(self.redact(note)) for note in entry.notes if note))

    def _command(self, entry: StoryEntry) -> Html:
        request, result = entry.asked, entry.answered
        parts = []
        if len(entry.words) > 160 or "\n" in entry.words.strip("\n"):
            parts.append(self.pre("command", entry.words))
        facts = [("environment", ", ".join(f"{name}={value}" for name, value in request.env.items()))]
        if request.cwd != self.directory:
            path = Path(request.cwd)
            inside = path.is_relative_to(self.directory)
            facts.append(("directory", str(path.relative_to(self.directory)) if inside else request.cwd))
        facts += _failed_attempts(entry)
        if request.stdin is not None:
            parts.append(self.pre("standard input", request.stdin))
        if result is not None:
            if result.outcome == "exited" and result.kind != "spawn":
                parts.insert(0, _caption(f"exit code {result.exit_code}"))
            if result.worker:
                facts.append(("ran on", result.worker))
            if result.stdout and not result.image:
                parts.append(self.pre("stdout", result.stdout, show=terminal_text))
            if result.stderr:
                parts.append(self.pre("stderr", result.stderr, "err", show=terminal_text))
            facts += [("note", note) for note in cuts(result)]
            parts += [self._image(result.image)] if result.image else []
            if result.spawn_error:
                facts.append(("reason", result.spawn_error))
        facts += [("note", note) for note in entry.notes]
        if entry.file is not None:
            parts.append(self._file(entry.file))
        return html(self.facts(facts), *parts)

    def _image(self, data: bytes, name: str = "") -> Html:
        """Return an image with a caption; only the caption if it is broken, not an image, or too large for the page."""
        found = picture(data)
        alternative = found.text if found is not None else "no image"
        line = _caption(f"{name}: {alternative}" if name else alternative)
        if found is None or found.broken or not found.media.startswith("image/"):
            return line
        return self._drawn(line, found.media, data, alternative)

    def _drawn(self, line: Html, media: str, data: bytes, alternative: str) -> Html:
        source = b64encode(data).decode("ascii")
        if len(source) > self.room:
            return html(line, tag("span", "too large for this page", class_="cut"))
        self.room -= len(source)
        return html(line, tag("img", src=f"data:{media};base64,{source}", alt=alternative))

    def _file(self, file: ShownFile) -> Html:
        """Return the file that `display:` showed: an image, or anything else as text."""
        if picture(file.data) is not None:
            return self._image(file.data, self.redact(file.name))
        shown = file_text(file, 120)
        if file.media != "image/svg+xml":
            return self.pre("shown file", shown)
        from prose_kernel.views.svg import NotDrawn, drawing

        line = _caption(self.redact(shown))
        try:
            found = self.redact(drawing(file.data).text).encode("utf-8", "replace")
            return self._drawn(line, file.media, found, self.redact(file.name))
        except NotDrawn:
            return line

    def _session(self, entry: StoryEntry) -> Html:
        request, result = entry.asked, entry.answered
        facts = [("agent", request.agent or ""), ("model", request.model or "")]
        if isinstance(result, SessionResult):
            facts.append(("answered by", ORIGINS.get(result.origin, result.origin)))
        facts += [("skills", ", ".join(request.skills)), *_failed_attempts(entry)]
        parts = [self.facts(facts), self.pre("prompt", entry.words)]
        if request.given is not None:
            parts.append(self.pre("input", request.given.text))
        for item in request.context or ():
            if item.text is not None:
                parts.append(self._folded(f"context: {item.name}", item.text))
        named = [item.name for item in request.context or () if item.text is None]
        parts.append(self.facts([("context", ", ".join(named))]))
        if request.system:
            parts.append(self._folded("system prompt", request.system))
        if request.prelude:
            parts.append(self._folded("memory", request.prelude))
        if isinstance(result, SessionResult):
            parts += self._reply(entry, result)
        return html(*parts)

    def _reply(self, entry: StoryEntry, result: SessionResult) -> Iterator[Html]:
        if result.trace:
            yield self._tools(result)
        yield self.facts([("wrote", ", ".join(write.path for write in result.writes))])
        answer = result.text if result.text is not None else full_text(entry.value)
        cut = self._excerpt(answer)
        shown = html(markdown_text(cut.head), cut.note, markdown_text(cut.tail) if cut.tail else "")
        self.left -= len(shown.encode())
        yield html(_caption("answer"), shown if answer.strip() else tag("p", "(empty)", class_="quiet"))

    def _tools(self, result: SessionResult) -> Html:
        rows = []
        for use in result.trace[:50]:
            note = html(" ", tag("span", use.outcome, class_="failed st")) if use.outcome != "ok" else ""
            asked = html(self.redact(use.summary[:400]), note, self.pre("", use.detail) if use.detail else "")
            rows.append((tag("code", use.tool), asked))
        if (more := len(result.trace) - 50) > 0:
            rows.append((Html(), html(f"and {more:,} more")))
        title = tag("summary", counted(len(result.trace), "tool call"), class_="part")
        return tag("details", title, as_html(Table(("tool", "asked"), rows)))

    def _judgement(self, entry: StoryEntry) -> Html:
        judged: Judged = entry.answered
        about = clip(judged.about or "", 200)
        facts = [("decided by", judged_by(judged.by)), ("reason", judged.reason), ("about", about)]
        is_long = len(entry.words) > 140 or "\n" in entry.words
        if not is_long and judged.by == "rules" and not judged.reason:
            return Html()
        whole = self.pre("question", entry.words) if is_long else ""
        value = self._answer_text(entry)
        answer = self.pre("answer", value) if len(value) > 40 or "\n" in value else ""
        return html(whole, self.facts(facts), answer)

    def _gate(self, entry: StoryEntry) -> Html:
        request, decision = entry.asked, entry.answered
        facts = [("gate", request.name), ("may decide", ", ".join(request.allow)), ("time limit", request.timeout_text)]
        if decision is not None:
            facts += [("decision", decision.status), ("decided by", decision.decided_by)]
            facts += [("comment", decision.comment), ("reason", decision.reason or "")]
        return html(self.facts(facts), self.pre("prompt", request.prompt) if len(request.prompt) > 140 else "")

    # ------------------------------------------------------------ untrusted texts

    def answer(self, entry: StoryEntry) -> str:
        return clip(self.redact(self._answer_text(entry)[:2000]), 40)

    def _answer_text(self, entry: StoryEntry) -> str:
        match entry.value:
            case True:
                return "yes"
            case False:
                return "no"
            case None:
                return "uncertain"
            case value:
                return readable(value, self.language)

    def _excerpt(self, whole: str) -> _Excerpt:
        """Return as much of a text as fits, without secrets."""
        limit = self.limit if self.left > 0 else 0
        if len(whole) <= limit:
            return _Excerpt(self.redact(whole))
        room = max(limit - limit // 4, 0)
        head, tail = self.redact(whole[: 2 * room + 500])[:room], ""
        if limit > 4 * SHORTEST:
            tail = self.redact(whole[-limit:])[-(limit // 4) :]
        left_out = len(whole) - len(head) - len(tail)
        note = f"… {left_out:,} of {len(whole):,} characters are left out"
        return _Excerpt(head, tail, tag("a", note, class_="cut", href="#all"))

    def pre(self, title: str, whole: str, kind: str | None = None, show: Callable[[str], Html] = html) -> Html:
        cut = self._excerpt(whole)
        tail = tag("pre", show(cut.tail), class_=kind) if cut.tail else ""
        body = html(tag("pre", show(cut.head), class_=kind), cut.note, tail)
        self.left -= len(body.encode())
        return html(_caption(title) if title else "", body)

    def _folded(self, title: str, whole: str) -> Html:
        return tag("details", tag("summary", title, class_="part"), self.pre("", whole))

    def facts(self, facts: Sequence[tuple[str, str]]) -> Html:
        return as_html(Fields([(name, self.redact(value[:4000])) for name, value in facts]))


def _caption(text: str) -> Html:
    """Return the title of a part of an entry, or a line about it."""
    return tag("div", text, class_="part")


def _failed_attempts(entry: StoryEntry) -> list[tuple[str, str]]:
    return [(f"attempt {number}", f"failed: {why}") for number, why in enumerate(entry.attempts, 1)]


def judged_by(by: str) -> str:
    return "a rule" if by == "rules" else ORIGINS.get(by, by)
