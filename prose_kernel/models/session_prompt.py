"""The message to a session, and the reply from it (openprose.md 4.2, 4.3, 4.6; docs/reference/vvm.md 6.5, 7.3).

This module only builds messages and parses replies. There are two protocols. By value (`in_message`, `split_reply`):
the contexts are in the message and the reply is the answer; for models and people. By files (`assemble`, `answered`):
the session reads the files that the message names and writes its binding; for CLI agents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from prose_kernel.language.structs import replace
from prose_kernel.language.text import clipped, one_line
from prose_kernel.runtime.images import picture
from prose_kernel.runtime.ports import (
    AgentMemory,
    AnswerFile,
    BlockScope,
    ContextItem,
    Given,
    SessionRequest,
    SessionResult,
)
from prose_kernel.runtime.typed_answers import answer_request
from prose_kernel.runtime.value_text import cut, fence_of, full_content
from prose_kernel.runtime.values import ExecText

Section = Literal[
    "orientation", "task", "system", "rules", "scope", "memory", "context", "input", "references", "answer", "output"
]

SUMMARY_LENGTH = 160
REPLY = "Reply with your answer. Your whole reply is kept as the result."
RULE = "No person answers questions: your whole reply is kept as the result."
REMEMBER = (
    "You have a memory. After your answer, write what to remember next time, all of it and briefly, between a line "
    "<memory> and a line </memory>."
)

LONGEST = 50_000
"""The maximum length of a context, in characters, that is sent whole to a session that can read files."""
EXCERPT = 10_000
"""The number of characters of a longer context that are sent: its beginning and its end."""


class PromptSection(Struct, frozen=True):
    """One section of an assembled message."""

    section: Section
    text: str


class Assembled(Struct, frozen=True):
    """A session's message in sections, in the order of 4.2, without those that do not apply. By value, each context is
    a part."""

    parts: tuple[PromptSection, ...]

    @property
    def text(self) -> str:
        """Return the whole message, its sections separated by one blank line."""
        return "\n\n".join(part.text for part in self.parts)

    @property
    def sizes(self) -> dict[str, int]:
        """Return the number of characters of each section, for display."""
        found: dict[str, int] = {}
        for part in self.parts:
            found[part.section] = found.get(part.section, 0) + len(part.text)
        return found

    def section(self, *names: Section) -> str | None:
        """Return the text of these sections, for example for a backend with a real system channel; None if they are
        absent."""
        return "\n\n".join(part.text for part in self.parts if part.section in names) or None

    def without(self, *names: Section) -> Assembled:
        return Assembled(tuple(part for part in self.parts if part.section not in names))


def assemble(request: SessionRequest) -> Assembled:
    """Return the message of a session that reads and writes files, in the order of 4.2; a missing memory is empty."""
    if request.kind == "call":
        return _call(request)
    sections: list[tuple[Section, str | None]] = [
        ("orientation", _orientation(request)),
        ("task", request.task.strip("\n")),
        ("system", f"System: {request.system}" if request.system else None),
        ("scope", _scope(request.scope)),
        ("memory", _memory(request.memory)),
        ("context", _context(request.context)),
        ("answer", _asked_for(request)),
        ("output", None if request.output is not None else _output(request.target, request.scope, request.memory)),
    ]
    return _assembled(sections)


def in_message(request: SessionRequest, *, reads: bool, files: Mapping[str, str] | None = None) -> Assembled:
    """Return the message of a session that gets its contexts by value, and answers with its reply.

    The parts that many requests share come first, for the caches of servers: the agent, the rules, the contexts from
    the most stable to the newest, then the memory and the task. With `reads` the session can read files: it gets an
    excerpt and the path of a context longer than `LONGEST`. `files` are the texts of the files that the input of a call
    refers to. Raises `StateError` for a context that has been deleted.
    """
    call = request.kind == "call"
    pieces = _input(request, files or {}) if call else _contexts(request.context or ())
    remembers = request.memory is not None and request.output is None
    sections: list[tuple[Section, str | None]] = [
        ("system", request.system),
        ("rules", f"{RULE} {REMEMBER}" if remembers else RULE),
        *(("context", _fenced(piece, reads=reads)) for piece in pieces),
        ("memory", request.prelude if call else _remembered(request.memory)),
        ("task", request.task.strip("\n")),
        ("answer", _asked_for(request)),
    ]
    return _assembled(sections)


def _assembled(sections: Iterable[tuple[Section, str | None]]) -> Assembled:
    return Assembled(tuple(PromptSection(name, text) for name, text in sections if text))


# ---------------------------------------------------------------- by value


class _Piece(Struct, frozen=True):
    """One context: its name, its text, and the path where a session can read all of it ("" if there is none)."""

    name: str
    text: str
    place: str = ""


def too_long(request: SessionRequest) -> bool:
    """Return whether a context is longer than the part that is sent to a session that can read files."""
    return any(piece.place and len(piece.text) > LONGEST for piece in _contexts(request.context or ()))


def _contexts(items: Iterable[ContextItem]) -> list[_Piece]:
    """Return the contexts from the most stable to the newest."""
    return [_piece(item) for item in sorted(items, key=lambda item: item.age)]


def _piece(item: ContextItem) -> _Piece:
    if item.missing:
        return _Piece(item.name, "(no result)")
    if drawn := _image_description(item):
        return _Piece(item.name, f"{drawn} (it goes with this message)")
    if item.content is None:
        return _Piece(item.name, "(not readable from here)" if item.location else item.text or "")
    text = full_content(item.content)
    if len(text) > LONGEST and not item.location and item.text is not None and len(item.text) <= LONGEST:
        text = item.text  # a list of references: the session reads those that it needs
    return _Piece(item.name, text, item.location or "")


def _input(request: SessionRequest, files: Mapping[str, str]) -> list[_Piece]:
    """Return the input of a call, and the texts of the files that it refers to."""
    if request.given is None:
        return []
    return [*(_Piece(place, text, place) for place, text in files.items()), _Piece("input", request.given.text)]


def _fenced(piece: _Piece, *, reads: bool) -> str:
    """Return a context between fences that it does not contain; for the caches, they do not depend on other
    contexts."""
    name, text = one_line(piece.name), piece.text
    fence = fence_of((text,))
    if reads and piece.place and len(text) > LONGEST:
        text = f"{cut(text, EXCERPT)}\n[an excerpt: read all {len(text):,} characters at {piece.place}]"
    return f"{fence} {name}\n{text}\n{fence} end of {name}"


def _remembered(memory: AgentMemory | None) -> str | None:
    text = _memory_text(memory) if memory is not None else ""
    return _fenced(_Piece("your memory", text), reads=False) if text else None


def _memory_text(memory: AgentMemory) -> str:
    return (memory.text or "").strip("\n") if memory.resume else ""


_OPENS, _CLOSES = "<memory>", "</memory>"


def split_reply(reply: str, request: SessionRequest) -> tuple[str, str | None]:
    """Return the answer in a reply, and the memory after it; None if there is none."""
    if request.memory is None or request.output is not None:
        return reply, None
    whole = reply.rstrip()
    begins = whole.rfind(_OPENS) if whole.endswith(_CLOSES) else -1
    if begins < 0 or (begins and whole[begins - 1] != "\n"):
        return reply, None
    memory = whole[begins + len(_OPENS) : -len(_CLOSES)].strip("\n")
    return whole[:begins].rstrip(), f"{memory}\n" if memory.strip() else None


class AnswerStream:
    """Passes on the pieces of a streamed reply, without the memory after the answer. Call `end` after the last one."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self.on_text = on_text
        self._held = "\n"  # the start of the reply is the start of a line
        self._first = True
        self._hidden = False

    def __call__(self, piece: str) -> None:
        text, mark = self._held + piece, f"\n{_OPENS}"
        if not self._hidden and (at := text.find(mark)) >= 0:
            self._show(text[:at])
            self._hidden = True
        if self._hidden:
            self._held = ""
            return
        kept = next((n for n in range(min(len(mark), len(text)), 0, -1) if text.endswith(mark[:n])), 0)
        self._held = text[len(text) - kept :]
        self._show(text[: len(text) - kept])

    def end(self) -> None:
        self._show(self._held)
        self._held = ""

    def _show(self, text: str) -> None:
        if self._first and text:
            text, self._first = text[1:], False
        if text:
            self.on_text(text)


# ---------------------------------------------------------------- by files


def _call(request: SessionRequest) -> Assembled:
    """Return the message of an agent call (docs/reference/vvm.md 6.5): prelude, task and input unchanged, and
    instructions."""
    given = request.given
    sections: list[tuple[Section, str | None]] = [
        ("system", f"System: {request.system}" if request.system else None),
        ("memory", request.prelude),
        ("task", request.task),
        ("input", f"Input:\n---\n{given.text}\n---" if given is not None else None),
        ("references", _references(given)),
        ("output", None if request.target is None else _contract(request.target)),
    ]
    return _assembled(sections)


def _references(given: Given | None) -> str | None:
    """Return the instructions for references to files in an input (docs/reference/vvm.md 7.3)."""
    if given is None or not given.references:
        return None
    lines = [
        "## Ref Reading Protocol",
        "",
        "Your input holds ref values: objects whose `ref` is the path of a file with the full content.",
        "- `summary` is a bounded preview; it is often enough",
        "- Read the file at the path if you need the full content",
    ]
    if given.readable:
        lines.append(f"- You may read {given.readable}/**")
    lines.append("- Cite by file name when you refer to the content, for example: per b000001.md")
    return "\n".join(lines)


def _contract(target: AnswerFile) -> str:
    return (
        f"## Binding Contract\n\nWrite your complete output to:\n  {target.location}\n\n"
        "Then answer with only this confirmation:\n\n"
        f"  Binding written: {target.name}\n  Path: {target.location}\n"
        "  Summary: <1 to 3 sentences describing what you produced>\n\n"
        "All substantive output goes into the file. A vvm-memory block, if you give one, comes after the confirmation."
    )


def _orientation(request: SessionRequest) -> str | None:
    if request.context == ():  # an explicitly empty context suppresses the header, too
        return None
    lines = [f"Program: {request.program}"] if request.program else []
    if request.position:
        lines.append(f"Position: statement {request.position}")
    if request.finished:
        lines.append(f"Finished: {', '.join(request.finished)}")
    return "\n".join(lines) or None


def _scope(scope: BlockScope | None) -> str | None:
    if scope is None:
        return None
    return (
        "Execution scope:\n"
        f"execution_id: {scope.execution_id}\n"
        f"block: {scope.block}\n"
        f"depth: {scope.depth}\n"
        f"parent_execution_id: {scope.parent_execution_id}"
    )


def memory_file(memory: AgentMemory) -> str:
    return f"{memory.directory.rstrip('/')}/memory.md"


def segment_file(memory: AgentMemory) -> str:
    """Return the segment file of this invocation: the highest existing number plus 1, three digits, four after 999
    (4.4)."""
    return memory.segment or next_segment(memory.directory, memory.agent)


def next_segment(directory: str, agent: str) -> str:
    """Return the next free segment file of an agent in a directory."""
    numbered = re.compile(re.escape(agent) + r"-(\d{3,})\.md")
    try:
        entries = [entry.name for entry in Path(directory).iterdir()]
    except OSError:
        entries = []
    found = [int(match[1]) for name in entries if (match := numbered.fullmatch(name))]
    return f"{directory.rstrip('/')}/{agent}-{max(found, default=0) + 1:03d}.md"


def _memory(memory: AgentMemory | None) -> str | None:
    """Return the location of the memory and how to use it; its text if it has no file."""
    if memory is None:
        return None
    if not memory.directory:
        text = _memory_text(memory)
        return f"Your memory, from what came before:\n\n{text}" if text else None
    lines = [f"Your memory is at: {memory_file(memory)}", f"Your segment file is: {segment_file(memory)}"]
    if memory.resume:
        lines.append("Read your memory first, to understand what came before.")
    lines.append("When you are done, write both: the memory with your compacted state, the segment with what you did.")
    return "\n".join(lines)


def with_row_texts(request: SessionRequest) -> SessionRequest:
    """Return the request for an external program, which can read files but no database rows: rows are replaced by their
    text."""
    items = request.context
    if not any(item.row for item in items or ()):
        return request
    return replace(request, context=tuple(_with_text(item) if item.row else item for item in items or ()))


def with_texts(request: SessionRequest) -> SessionRequest:
    """Return the request for a person, who does not read files to answer: context and memory are replaced by their
    text."""
    items, memory = request.context, request.memory
    return replace(
        request,
        context=None if items is None else tuple(map(_with_text, items)),
        memory=None if memory is None else replace(memory, directory=""),
    )


def _with_text(item: ContextItem) -> ContextItem:
    if item.missing or not item.location or _image_description(item):
        return item
    text = "(not readable from here)" if item.content is None else full_content(item.content)
    return ContextItem(item.name, text=text)


def _context(items: tuple[ContextItem, ...] | None) -> str | None:
    if not items:
        return None
    referenced = any(item.location and not item.missing and not _image_description(item) for item in items)
    lines = ["Context (by reference):" if referenced else "Context:", *map(_context_line, items)]
    if referenced:
        lines += ["", "Read these yourself, as far as your task needs them; read large ones selectively."]
    return "\n".join(lines)


def _context_line(item: ContextItem) -> str:
    if item.missing:
        return f"- {item.name}: (no result)"
    if drawn := _image_description(item):
        return f"- {item.name}: {drawn} (it goes with this message)"
    if item.location:
        return f"- {item.name}: {item.location}"
    text = item.text or ""
    if "\n" not in text:
        return f"- {item.name}: {text}".rstrip()
    return f"- {item.name}:\n" + "\n".join(f"    {line}".rstrip() for line in text.strip("\n").split("\n"))


def _image_description(item: ContextItem) -> str:
    """Return a description if the whole value is an image; "" otherwise."""
    value = item.content
    if not isinstance(value, ExecText) or not value.result.image:
        return ""
    drawn = picture(value.result.image)
    return drawn.text if drawn is not None and value.text.strip() == f"[{drawn.text}]" else ""


def _asked_for(request: SessionRequest) -> str | None:
    """Return the text that asks for a typed answer, with the last answer that did not fit."""
    if request.output is None:
        return None
    return answer_request(request.output, request.correction, request.wrong[-1][0] if request.wrong else "")


def _output(target: AnswerFile | None, scope: BlockScope | None, memory: AgentMemory | None) -> str:
    if target is None or not target.location:
        return REPLY
    reply = [f"Binding written: {target.name}", f"Location: {target.location}"]
    if scope is not None:
        reply.append(f"Execution ID: {scope.execution_id}")
    reply.append("Summary: <one or two sentences>")
    if memory is not None and memory.directory and memory.resume:
        reply += [f"Memory updated: {memory.agent}", f"Location: {memory_file(memory)}"]
        reply.append(f"Segment: {segment_file(memory)}")
    return (
        f"When you have done this task, write your answer to:\n{target.location}\n\n"
        f"The file must read:\n{target.header.rstrip()}\n\n[your answer]\n\n"
        "Then reply with this confirmation only:\n" + "\n".join(reply) + "\n\n"
        "If you cannot write files, reply with your answer instead."
    )


# ---------------------------------------------------------------- for display


def headline(request: SessionRequest) -> str:
    """Return one line naming the session: path, kind, label, agent, model, retry."""
    named = {"label": request.label, "agent": request.agent, "model": request.model, "retry": request.attempt}
    facts = (f"{name} {value}" for name, value in named.items() if value)
    return " · ".join([f"{request.kind} {request.at}".rstrip(), *facts])


def asked(request: SessionRequest) -> str:
    """Return one line for the person who answers: agent or label, else `session`; and the retry."""
    who = request.agent or request.label or "session"
    return f"{who} · retry {request.attempt}" if request.attempt else who


def permission_lines(permissions: Mapping[str, str | tuple[str, ...]]) -> list[str]:
    """Return one line per permission type; an empty list of patterns reads `nothing` (4.5)."""
    return [
        f"{kind}: {rule if isinstance(rule, str) else ', '.join(rule) or 'nothing'}"
        for kind, rule in permissions.items()
    ]


# ---------------------------------------------------------------- the reply


class Confirmation(Struct, frozen=True):
    """The parts of a confirmation (4.6) that are used; a missing part is empty."""

    name: str
    location: str = ""
    summary: str = ""


_FIELD = re.compile(r"[\s>*_`-]*(Binding written|Location|Summary)[*_`]*:[*_`]*\s*(.*)")


def confirmation(reply: str) -> Confirmation | None:
    """Return the confirmation in a reply, wherever it begins; None if there is no `Binding written:` line.

    Text before and after is ignored, and light markdown around a line (`- **Summary:** x`) is allowed.
    """
    fields: dict[str, str] = {}
    for match in filter(None, map(_FIELD.match, reply.splitlines())):
        if match[1] == "Binding written" or fields:
            fields.setdefault(match[1], match[2].strip().strip("*_` "))
    if "Binding written" not in fields:
        return None
    return Confirmation(fields["Binding written"], fields.get("Location", ""), fields.get("Summary", ""))


def summarise(text: str) -> str:
    """Return the first non-blank line of an answer, cut to 160 characters: the summary of a plain answer."""
    first = next((stripped for line in text.splitlines() if (stripped := line.strip())), "")
    return clipped(first, SUMMARY_LENGTH, tidy=True)


def answered(
    reply: str,
    *,
    provider: str,
    origin: str,
    details: Mapping[str, object] | None = None,
    request: SessionRequest | None = None,
    writes: bool = False,
) -> SessionResult:
    """Return the result of a reply: its confirmation, or the reply itself as the value (4.6).

    The reply to a call is the answer itself. But if a file should be written and the session could write it (`writes`),
    or confirms that it did, the reply is only the confirmation (docs/reference/vvm.md 7.3).
    """
    confirmed = confirmation(reply)
    if request is not None and request.kind == "call":
        if request.target is not None and (writes or confirmed is not None):
            return SessionResult(None, "", provider, origin, details or {}, reply=reply)
        return SessionResult(reply, summarise(reply), provider, origin, details or {})
    if confirmed is None:
        return SessionResult(reply, summarise(reply), provider, origin, details or {})
    where = {"name": confirmed.name, "location": confirmed.location}
    return SessionResult(None, confirmed.summary, provider, origin, {**where, **(details or {})})
