"""What happened, entry by entry: the middle of a report (docs/reports.md).

An entry is one line that opens: a command with its output, a session with its prompt and answer, a decision. Texts of
others are shortened, so that a page stays a page however much a run has said.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prose_kernel.language.source import Source
from prose_kernel.runtime.images import picture
from prose_kernel.runtime.ports import CommandResult, GateDecision, SessionResult, ShownFile
from prose_kernel.runtime.values import full_text
from prose_kernel.views.cards import cuts, one_line, outcome, readable
from prose_kernel.views.page import markdown_text, table, terminal_text, text
from prose_kernel.views.run_pictures import seconds
from prose_kernel.views.run_story import Entry, RunStory
from prose_kernel.views.safety import clip
from prose_kernel.views.session_cards import ORIGINS

if TYPE_CHECKING:
    from prose_kernel.run.languages import Language
    from prose_kernel.runtime.events import Judged

LARGEST: Final = 3_000_000
"""Bytes of texts of others that a report holds; with all around them it stays below 10 MB."""
HEADS: Final = 1_500_000
"""Bytes of what entries say in their first lines; when they are used up, those lines are short."""
ALL_TEXTS: Final = 2_000_000
LONGEST: Final = 20_000
SHORTEST: Final = 160
"""Characters of one such text: fewer, the more of them there are."""
PICTURES: Final = 3_000_000
"""Characters of all images; those that no longer fit are named."""
CHUNK: Final = 100
"""Entries that the browser lays out together, when they are looked at."""
FLAT: Final = 500
"""More entries than that have their passes folded."""
_WORDS: Final[Mapping[str, str]] = {
    "command": "$",
    **dict.fromkeys(("value", "choice", "branch", "pass", "parallel", "loop"), ""),
}
"""What stands before an entry, where that is not its kind."""


@dataclass(slots=True)
class _Cut:
    """The beginning and the end of a text, and what is left out between them in words."""

    head: str
    tail: str = ""
    note: str = ""


class Entries:
    """Draws the entries of a run. `language` is that of the text which is drawn, `directory` where the run was."""

    def __init__(self, story: RunStory, language: Language, directory: str, redact: Callable[[str], str]) -> None:
        self.language, self.directory, self.redact, self.shown = language, directory, redact, story.shown
        asked = sum(story.counts.get(kind, 0) for kind in ("command", "session", "judgement", "value", "output"))
        self.most = max(SHORTEST, min(LONGEST, ALL_TEXTS // max(asked, 1)))
        self.left, self.heads, self.room = LARGEST, HEADS, PICTURES
        self.sources: dict[int, int] = {}
        """The numbers of the programs, by the identity of their sources."""
        self.kept: dict[int, int] = {}
        """How many lines of each program are on the page."""

    def drawn(self, entries: Sequence[Entry]) -> str:
        """Entries in order; of many, the browser lays out those that are looked at."""
        drawn = [self._entry(entry) for entry in entries]
        if len(drawn) <= CHUNK:
            return "".join(drawn)
        chunks = (drawn[at : at + CHUNK] for at in range(0, len(drawn), CHUNK))
        return "".join(f'<div class="chunk">{"".join(chunk)}</div>' for chunk in chunks)

    def _entry(self, entry: Entry) -> str:
        body = self._body(entry)
        inner = self.drawn(entry.inner)
        more = f'<span class="cut">and {entry.more:,} more times</span>' if entry.more else ""
        line = entry.source.line_column(entry.span.start)[0]
        kind = entry.kind
        classes = " ".join(
            filter(None, ("e", kind, entry.state, "group" if entry.inner else "", "" if body or inner else "flat"))
        )
        name = f' id="e{entry.number}"' if entry.number else ""
        sign, figures = _WORDS.get(kind, kind), self._figures(entry)
        took = f' <span class="v">{text(figures)}</span>' if figures else ""
        head = (
            f"{self.place(entry.source, line)} "
            + (f'<span class="k">{text(sign)}</span>' if sign else "")
            + self._title(entry)
            + (f' <span class="to">→ {text(entry.bound)}</span>' if entry.bound else "")
            + self._ended(entry)
            + took
            + more
        )
        if not body and not inner:
            return f'<div class="{classes}"{name}>{head}</div>'
        is_open = (
            " open"
            if kind in ("parallel", "loop", "call", "program", "branch", "pass") or entry.state == "failed"
            else ""
        )
        if kind == "pass" and self.shown > FLAT:
            is_open = ""
        content = (f'<div class="body">{body}</div>' if body else "") + (
            f'<div class="body">{inner}</div>' if inner else ""
        )
        return f'<details class="{classes}"{name}{is_open}><summary>{head}</summary>{content}</details>'

    def place(self, source: Source, line: int) -> str:
        number = self.sources.get(id(source))
        if number is None or line > self.kept.get(id(source), 0):
            return f'<span class="ln">{line}</span>'
        return f'<a class="ln" href="#s{number}-{line}">{line}</a>'

    def _title(self, entry: Entry) -> str:
        """What the entry is on one line."""
        words = " ".join(self.redact(entry.words[:2000]).split())
        text, clip = self._headed, self._shortened
        match entry.kind:
            case "command":
                return f"<code>{text(clip(self.redact(entry.words[:2000]), 160))}</code>"
            case "session":
                who = entry.asked.agent or entry.asked.label
                return (f"<b>{text(who)}</b> " if who else "") + text(clip(words, 140))
            case "judgement":
                return f"{text(clip(words, 140))} <b>{text(self.answer(entry))}</b>"
            case "value" | "output" | "input":
                shown = clip(self.redact(one_line(entry.value, self.language)), 100)
                name = f"<b>{text(words)}</b> = " if words else ""
                return f"{name}<code>{text(shown)}</code>"
            case "call":
                given = ", ".join(clip(self.redact(full_text(value)[:400]), 40) for value in entry.asked or ())
                return f"<code>{text(words)}({text(given)})</code>"
            case "loop" | "parallel" | "choice":
                return f"<code>{text(_first_line(entry, self.redact))}</code> {text(words)}"
            case _:
                return text(clip(words, 200))

    def _headed(self, plain: str) -> str:
        made = text(plain)
        self.heads -= len(made.encode())
        return made

    def _shortened(self, plain: str, width: int) -> str:
        return clip(plain, width if self.heads > 0 else 20)

    def _ended(self, entry: Entry) -> str:
        """How it ended, where that has to be said."""
        said = ""
        match entry.answered:
            case CommandResult() as result if result.kind is not None:
                said = ", ".join(outcome(result))
            case CommandResult():
                said = ""
            case GateDecision() as decision:
                said = f"{decision.status} by {decision.decided_by}" if decision.status != "timeout" else "timed out"
            case SessionResult() as result:
                said = ORIGINS.get(result.origin, result.origin)
            case _ if entry.state == "running":
                said = "under way"
            case _ if entry.state in ("failed", "cancelled"):
                said = entry.state
        if entry.kind == "session" and entry.state == "failed":
            said = "no answer"
        if entry.attempts and entry.state == "done":
            said += f", attempt {len(entry.attempts) + 1}"
        return f' <span class="st">{text(self.redact(said))}</span>' if said else ""

    def _figures(self, entry: Entry) -> str:
        parts = [seconds(entry.took)] if entry.took is not None and entry.kind not in ("judgement",) else []
        usage = entry.answered.usage if isinstance(entry.answered, SessionResult) else None
        if usage is not None and not entry.answered.replayed:
            tokens = usage.tokens_in + usage.tokens_out
            parts += [f"{tokens:,} tokens"] if tokens else []
            parts += [f"${usage.cost:.4f}"] if usage.cost else []
        return ", ".join(parts)

    # ------------------------------------------------------------ all of an entry

    def _body(self, entry: Entry) -> str:
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
                shown = self._shown(entry)
                return self.pre("", shown) if len(shown) > 100 or "\n" in shown.strip("\n") else ""
            case "error" | "warning" | "catch":
                return self.pre("", entry.words) if len(entry.words) > 200 or "\n" in entry.words else ""
            case _:
                return "".join(f'<div class="part">{text(self.redact(note))}</div>' for note in entry.notes if note)

    def _command(self, entry: Entry) -> str:
        request, result = entry.asked, entry.answered
        parts = []
        if len(entry.words) > 160 or "\n" in entry.words.strip("\n"):
            parts.append(self.pre("command", entry.words))
        facts = [("environment", ", ".join(f"{name}={value}" for name, value in request.env.items()))]
        if request.cwd != self.directory:
            facts.append(("directory", _relative(request.cwd, self.directory)))
        if request.stdin is not None:
            parts.append(self.pre("standard input", request.stdin))
        if result is not None:
            if result.outcome == "exited" and result.kind != "spawn":
                parts.insert(0, f'<div class="part">exit code {result.exit_code}</div>')
            if result.worker:
                facts.append(("ran on", result.worker))
            streams = ("stderr",) if result.image else ("stdout", "stderr")
            parts += [self._stream(name, result) for name in streams if getattr(result, name)]
            facts += [("note", note) for note in cuts(result)]
            parts += [self._image(result.image)] if result.image else []
            if result.spawn_error:
                facts.append(("reason", result.spawn_error))
        facts += [("note", note) for note in entry.notes]
        if entry.file is not None:
            parts.append(self._file(entry.file))
        return self.facts(facts) + "".join(parts)

    def _image(self, data: bytes, name: str = "") -> str:
        """An image with a line about it; that line alone where it is broken, no image, or too large for the page."""
        drawn = picture(data)
        said = drawn.text if drawn is not None else "no image"
        line = f'<div class="part">{text(f"{name}: {said}" if name else said)}</div>'
        if drawn is None or drawn.broken or not drawn.media.startswith("image/"):
            return line
        return self._drawn(line, drawn.media, data, said)

    def _drawn(self, line: str, media: str, data: bytes, said: str) -> str:
        source = b64encode(data).decode("ascii")
        if len(source) > self.room:
            return line + '<span class="cut">too large for this page</span>'
        self.room -= len(source)
        return f'{line}<img src="data:{media};base64,{source}" alt="{text(said)}">'

    def _file(self, file: ShownFile) -> str:
        """What `display:` showed: an image, anything else as text."""
        if picture(file.data) is not None:
            return self._image(file.data, self.redact(file.name))
        from prose_kernel.views.files import file_text

        shown = file_text(file, 120)
        if file.media != "image/svg+xml":
            return self.pre("shown file", shown)
        from prose_kernel.views.svg import NotDrawn, drawing

        line = f'<div class="part">{text(self.redact(shown))}</div>'
        try:
            drawn = self.redact(drawing(file.data).text).encode("utf-8", "replace")
            return self._drawn(line, file.media, drawn, self.redact(file.name))
        except NotDrawn:
            return line

    def _stream(self, name: str, result: CommandResult) -> str:
        return self.pre(name, getattr(result, name), "err" if name == "stderr" else "", terminal=True)

    def _session(self, entry: Entry) -> str:
        request, result = entry.asked, entry.answered
        facts = [("agent", request.agent or ""), ("model", request.model or "")]
        if isinstance(result, SessionResult):
            facts.append(("answered by", ORIGINS.get(result.origin, result.origin)))
        facts += [("skills", ", ".join(request.skills))]
        facts += [(f"attempt {number}", f"failed: {why}") for number, why in enumerate(entry.attempts, 1)]
        parts = [self.facts(facts), self.pre("prompt", entry.words)]
        if request.given is not None:
            parts.append(self.pre("input", request.given.text))
        for item in request.context or ():
            if item.text is not None:
                parts.append(self._folded(f"context: {item.name}", item.text))
        named = [item.name for item in request.context or () if item.text is None]
        if named:
            parts.append(self.facts([("context", ", ".join(named))]))
        if request.system:
            parts.append(self._folded("system prompt", request.system))
        if request.prelude:
            parts.append(self._folded("memory", request.prelude))
        if isinstance(result, SessionResult):
            parts += self._reply(entry, result)
        return "".join(parts)

    def _reply(self, entry: Entry, result: SessionResult) -> Iterator[str]:
        if result.trace:
            yield self._tools(result)
        if result.writes:
            yield self.facts([("wrote", ", ".join(write.path for write in result.writes))])
        answer = result.text if result.text is not None else full_text(entry.value)
        cut = self._cut(answer)
        shown = markdown_text(cut.head) + cut.note + (markdown_text(cut.tail) if cut.tail else "")
        self.left -= len(shown.encode())
        yield f'<div class="part">answer</div>{shown if answer.strip() else "<p class=quiet>(empty)</p>"}'

    def _tools(self, result: SessionResult) -> str:
        rows = []
        for use in result.trace[:50]:
            note = f' <span class="failed st">{text(use.outcome)}</span>' if use.outcome != "ok" else ""
            detail = self.pre("", use.detail) if use.detail else ""
            asked = text(self.redact(use.summary[:400]))
            rows.append((f"<code>{text(use.tool)}</code>", f"{asked}{note}{detail}"))
        if (more := len(result.trace) - 50) > 0:
            rows.append(("", f"and {more:,} more"))
        count = len(result.trace)
        title = f"{count:,} tool call{'s' if count != 1 else ''}"
        return f'<details><summary class="part">{title}</summary>{table(("tool", "asked"), rows)}</details>'

    def _judgement(self, entry: Entry) -> str:
        judged: Judged = entry.answered
        facts = [
            ("decided by", judged_by(judged.by)),
            ("reason", judged.reason),
            ("about", clip(judged.about or "", 200)),
        ]
        if len(entry.words) <= 140 and "\n" not in entry.words and judged.by == "rules" and not judged.reason:
            return ""
        whole = self.pre("question", entry.words) if len(entry.words) > 140 or "\n" in entry.words else ""
        value = self._answer_text(entry)
        answer = self.pre("answer", value) if len(value) > 40 or "\n" in value else ""
        return whole + self.facts(facts) + answer

    def _gate(self, entry: Entry) -> str:
        request, decision = entry.asked, entry.answered
        facts = [
            ("gate", request.name),
            ("may decide", ", ".join(request.allow)),
            ("time limit", request.timeout_text),
        ]
        if decision is not None:
            facts += [
                ("decision", decision.status),
                ("decided by", decision.decided_by),
                ("comment", decision.comment),
                ("reason", decision.reason or ""),
            ]
        return self.facts(facts) + (self.pre("prompt", request.prompt) if len(request.prompt) > 140 else "")

    # ------------------------------------------------------------ texts of others

    def _shown(self, entry: Entry) -> str:
        return readable(entry.value, self.language)

    def answer(self, entry: Entry) -> str:
        return clip(self.redact(self._answer_text(entry)[:2000]), 40)

    def _answer_text(self, entry: Entry) -> str:
        match entry.value:
            case True:
                return "yes"
            case False:
                return "no"
            case None:
                return "uncertain"
            case value:
                return readable(value, self.language)

    def _cut(self, whole: str) -> _Cut:
        """As much of a text as there is room for, without secrets."""
        most = self.most if self.left > 0 else 0
        if len(whole) <= most:
            return _Cut(self.redact(whole))
        room = max(most - most // 4, 0)
        head, tail = self.redact(whole[: 2 * room + 500])[:room], ""
        if most > 4 * SHORTEST:
            tail = self.redact(whole[-most:])[-(most // 4) :]
        left_out = len(whole) - len(head) - len(tail)
        note = f'<a class="cut" href="#all">… {left_out:,} of {len(whole):,} characters are left out</a>'
        return _Cut(head, tail, note)

    def pre(self, title: str, whole: str, kind: str = "", *, terminal: bool = False) -> str:
        cut = self._cut(whole)
        show = terminal_text if terminal else text
        name = f' class="{kind}"' if kind else ""
        body = "".join(
            f"<pre{name}>{show(part)}</pre>{cut.note if not at else ''}"
            for at, part in enumerate((cut.head, cut.tail))
            if part or not at
        )
        self.left -= len(body.encode())
        return (f'<div class="part">{text(title)}</div>' if title else "") + body

    def _folded(self, title: str, whole: str) -> str:
        return f'<details><summary class="part">{text(title)}</summary>{self.pre("", whole)}</details>'

    def facts(self, facts: Sequence[tuple[str, str]]) -> str:
        return listed([(name, self.redact(value[:4000])) for name, value in facts])


def listed(facts: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in facts if value)
    return f"<dl>{rows}</dl>" if rows else ""


def judged_by(by: str) -> str:
    return "a rule" if by == "rules" else ORIGINS.get(by, by)


def _relative(directory: str, base: str) -> str:
    path = Path(directory)
    return str(path.relative_to(base)) if path.is_relative_to(base) else directory


def _first_line(entry: Entry, redact: Callable[[str], str]) -> str:
    return clip(redact(entry.source.text[entry.span.start : entry.span.start + 400].split("\n")[0]), 100)
