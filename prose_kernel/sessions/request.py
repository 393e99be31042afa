"""The message a session gets, and the reply it gives (openprose.md 4.2, 4.3, 4.6; docs/reference/vvm.md 6.5, 7.3).

Nothing here asks or answers: a provider calls `assemble` for what to send and `answered` for what came back.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msgspec import structs

from prose_kernel.runtime.content import full_content
from prose_kernel.runtime.images import picture
from prose_kernel.runtime.ports import (
    AgentMemory,
    BlockScope,
    ContextItem,
    Given,
    SessionRequest,
    SessionResult,
    Target,
)
from prose_kernel.runtime.text import clipped
from prose_kernel.runtime.typed_answers import asked_for
from prose_kernel.runtime.values import ExecText

Section = Literal[
    "orientation", "task", "system", "scope", "memory", "context", "input", "references", "answer", "output"
]

SUMMARY_LENGTH = 160
REPLY = "Reply with your answer. Your whole reply is kept as the result."


@dataclass(frozen=True, slots=True)
class Part:
    """One section of an assembled message."""

    section: Section
    text: str


@dataclass(frozen=True, slots=True)
class Assembled:
    """A session's message in sections, in the order of 4.2; sections that do not apply are absent."""

    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The whole message, sections apart by one blank line."""
        return "\n\n".join(part.text for part in self.parts)

    @property
    def sizes(self) -> dict[str, int]:
        """Characters of each section, for display."""
        return {part.section: len(part.text) for part in self.parts}

    def section(self, name: Section) -> str | None:
        """The text of one section; None when it is absent. For a backend with a real system channel, for example."""
        return next((part.text for part in self.parts if part.section == name), None)


def assemble(request: SessionRequest, *, by_value: bool = False) -> Assembled:
    """The message of a session, in the order of 4.2; a memory directory that is not there is empty.

    `by_value` is for those who can neither read nor write files: context and memory stand in the message itself, and
    the reply is the answer. Raises `StateError` then, for a context that is not there any more; else nothing.
    """
    if request.kind == "call":
        return _call(request, by_value=by_value)
    context = _told(request.context) if by_value else request.context
    sections: list[tuple[Section, str | None]] = [
        ("orientation", _orientation(request)),
        ("task", request.task.strip("\n")),
        ("system", f"System: {request.system}" if request.system else None),
        ("scope", _scope(request.scope)),
        ("memory", _memory(request.memory, by_value=by_value)),
        ("context", _context(context)),
        ("answer", asked_for(request.output, request.correction) if request.output is not None else None),
        ("output", None if request.output is not None else _ending(request, by_value=by_value)),
    ]
    return Assembled(tuple(Part(name, text) for name, text in sections if text))


def _ending(request: SessionRequest, *, by_value: bool) -> str:
    return REPLY if by_value else _output(request.target, request.scope, request.memory)


def without_files(request: SessionRequest, tools: Collection[str]) -> bool:
    """Whether a session with these tools is to be told `by_value`: it could not read; of a call, not write its file."""
    needed = "write" if request.kind == "call" and request.target is not None else "read"
    return needed not in tools


def _call(request: SessionRequest, *, by_value: bool) -> Assembled:
    """The message of an agent call (docs/reference/vvm.md 6.5): prelude, task and input as they are, what they need."""
    given = request.given
    sections: list[tuple[Section, str | None]] = [
        ("system", f"System: {request.system}" if request.system else None),
        ("memory", request.prelude),
        ("task", request.task),
        ("input", f"Input:\n---\n{given.text}\n---" if given is not None else None),
        ("references", _references(given, by_value=by_value)),
        ("output", None if by_value or request.target is None else _contract(request.target)),
    ]
    return Assembled(tuple(Part(name, text) for name, text in sections if text))


def _references(given: Given | None, *, by_value: bool) -> str | None:
    """How to use references to files in an input (docs/reference/vvm.md 7.3)."""
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
    if by_value:
        lines.append("- If you cannot read files, work with the summaries")
    return "\n".join(lines)


def _contract(target: Target) -> str:
    return (
        f"## Binding Contract\n\nWrite your complete output to:\n  {target.location}\n\n"
        "Then answer with only this confirmation:\n\n"
        f"  Binding written: {target.name}\n  Path: {target.location}\n"
        "  Summary: <1 to 3 sentences describing what you produced>\n\n"
        "All substantive output goes into the file. A vvm-memory block, if you give one, comes after the confirmation."
    )


def _orientation(request: SessionRequest) -> str | None:
    if request.context == ():  # an explicit fresh start suppresses the header too
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
    """The segment this invocation writes: the highest existing number plus 1, three digits, four after 999 (4.4)."""
    return memory.segment or next_segment(memory.directory, memory.agent)


def next_segment(directory: str, agent: str, below: str = ".") -> str:
    """The next free segment file of an agent in a directory, which is relative to `below`."""
    numbered = re.compile(re.escape(agent) + r"-(\d{3,})\.md")
    try:
        entries = [entry.name for entry in Path(below, directory).iterdir()]
    except OSError:
        entries = []
    found = [int(match[1]) for name in entries if (match := numbered.fullmatch(name))]
    return f"{directory.rstrip('/')}/{agent}-{max(found, default=0) + 1:03d}.md"


def _memory(memory: AgentMemory | None, *, by_value: bool) -> str | None:
    """Where the memory is and what to do with it; or what is in it, for those who cannot go there (also when there is
    no such place: memory that lives with the run, which lives in memory)."""
    if memory is None:
        return None
    if by_value or not memory.directory:
        text = (memory.text or "").strip("\n")
        return f"Your memory, from what came before:\n\n{text}" if memory.resume and text else None
    lines = [f"Your memory is at: {memory_file(memory)}", f"Your segment file is: {segment_file(memory)}"]
    if memory.resume:
        lines.append("Read your memory first, to understand what came before.")
    lines.append("When you are done, write both: the memory with your compacted state, the segment with what you did.")
    return "\n".join(lines)


def rows_told(request: SessionRequest) -> SessionRequest:
    """The request for a program of somebody else, which can read files and no rows: their contents are told."""
    items = request.context
    if not any(item.row for item in items or ()):
        return request
    return structs.replace(request, context=tuple(_told_item(item) if item.row else item for item in items or ()))


def _told(items: tuple[ContextItem, ...] | None) -> tuple[ContextItem, ...] | None:
    """The items with their contents in the place of their locations."""
    return items if items is None else tuple(_told_item(item) for item in items)


def _told_item(item: ContextItem) -> ContextItem:
    if item.missing or not item.location or _drawn(item):
        return item
    text = "(not readable from here)" if item.content is None else full_content(item.content)
    return ContextItem(item.name, text=text)


def _context(items: tuple[ContextItem, ...] | None) -> str | None:
    if not items:
        return None
    referenced = any(item.location and not item.missing and not _drawn(item) for item in items)
    lines = ["Context (by reference):" if referenced else "Context:", *map(_context_line, items)]
    if referenced:
        lines += ["", "Read these yourself, as far as your task needs them; read large ones selectively."]
    if any(item.row for item in items):
        lines.append("A binding in a database is read with the tool `read`: give the whole location as the path.")
    return "\n".join(lines)


def _context_line(item: ContextItem) -> str:
    if item.missing:
        return f"- {item.name}: (no result)"
    if drawn := _drawn(item):
        return f"- {item.name}: {drawn} (it goes with this message)"
    if item.location:
        return f"- {item.name}: {item.location}"
    text = item.text or ""
    if "\n" not in text:
        return f"- {item.name}: {text}".rstrip()
    return f"- {item.name}:\n" + "\n".join(f"    {line}".rstrip() for line in text.strip("\n").split("\n"))


def _drawn(item: ContextItem) -> str:
    """An image in words, where the whole value is one; "" for everything else."""
    value = item.content
    if not isinstance(value, ExecText) or not value.result.image:
        return ""
    drawn = picture(value.result.image)
    return drawn.text if drawn is not None and value.text.strip() == f"[{drawn.text}]" else ""


def _output(target: Target | None, scope: BlockScope | None, memory: AgentMemory | None) -> str:
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


# ---------------------------------------------------------------- what people are shown


def headline(request: SessionRequest) -> str:
    """One line naming the session: path, kind, label, agent, model, retry."""
    facts = [f"{request.kind} {request.at}".rstrip()]
    if request.label:
        facts.append(f"label {request.label}")
    if request.agent:
        facts.append(f"agent {request.agent}")
    if request.model:
        facts.append(f"model {request.model}")
    if request.attempt:
        facts.append(f"retry {request.attempt}")
    return " · ".join(facts)


def asked(request: SessionRequest) -> str:
    """One line for the one who answers in its place: agent or label, else `session`; and the retry."""
    who = request.agent or request.label or "session"
    return f"{who} · retry {request.attempt}" if request.attempt else who


def permission_lines(permissions: Mapping[str, str | tuple[str, ...]]) -> list[str]:
    """One line a permission type; an empty list of patterns reads `nothing` (4.5)."""
    return [
        f"{kind}: {rule if isinstance(rule, str) else ', '.join(rule) or 'nothing'}"
        for kind, rule in permissions.items()
    ]


def shown(request: SessionRequest, *, to_answer: bool = False) -> str:
    """A session as a person is shown it: headline, permissions, skills, and the assembled message.

    For the one who is to answer (`to_answer`) the headline says who is asked, and the output instruction is left out:
    the answer is typed, not written to a file, and the provider says how it ends.
    """
    lines = [asked(request) if to_answer else headline(request)]
    if request.permissions:
        lines += ["Permissions:", *(f"  {line}" for line in permission_lines(request.permissions))]
    if request.skills:
        lines.append(f"Skills: {', '.join(request.skills)}")
    assembled = assemble(request)
    if to_answer:
        assembled = Assembled(tuple(part for part in assembled.parts if part.section != "output"))
    return "\n".join([*lines, "", assembled.text])


# ---------------------------------------------------------------- the reply


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The confirmation of 4.6. Fields the reply does not give are empty."""

    name: str
    location: str = ""
    execution_id: int | None = None
    summary: str = ""
    memory: str = ""


_FIELD = re.compile(r"[\s>*_`-]*(Binding written|Location|Execution ID|Summary|Memory updated)[*_`]*:[*_`]*\s*(.*)")


def confirmation(reply: str) -> Confirmation | None:
    """The confirmation in a reply, wherever it begins; None when there is no `Binding written:` line.

    What stands before and after is ignored, and light markdown around a line (`- **Summary:** x`) does no harm.
    """
    fields: dict[str, str] = {}
    for name, text in _fields(reply.splitlines()):
        if name == "Binding written" or fields:
            fields.setdefault(name, text.strip().strip("*_` "))
    if "Binding written" not in fields:
        return None
    execution_id = fields.get("Execution ID", "")
    return Confirmation(
        name=fields["Binding written"],
        location=fields.get("Location", ""),
        execution_id=int(execution_id) if execution_id.isascii() and execution_id.isdecimal() else None,
        summary=fields.get("Summary", ""),
        memory=fields.get("Memory updated", ""),
    )


def _fields(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    return ((match[1], match[2]) for line in lines if (match := _FIELD.match(line)))


def summarise(text: str) -> str:
    """The first line of an answer that says something, cut to 160 characters: the summary of a plain answer."""
    return clipped(next((stripped for line in text.splitlines() if (stripped := line.strip())), ""), SUMMARY_LENGTH)


def answered(
    reply: str,
    *,
    provider: str,
    origin: str,
    details: Mapping[str, object] | None = None,
    request: SessionRequest | None = None,
    writes: bool = False,
) -> SessionResult:
    """The result that a reply stands for: its confirmation, or the reply itself as the value (4.6).

    The reply to a call is the answer as it is; but not where a file is to be written and whoever replies could write it
    (`writes`), or says so: then the reply only confirms (docs/reference/vvm.md 7.3).
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
