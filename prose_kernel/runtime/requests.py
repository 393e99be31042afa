"""The requests that leave a program, and the one list of their parts.

The parts determine the key of a request (`runtime/keys.py`), its form in a recording (`cassettes/keys.py`), and the
names of the parts that differ from an earlier request (`prose plan --keep`, `--why`, a missing recording).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from prose_kernel.language.shortening import clipped
from prose_kernel.runtime.journal_codec import dumps
from prose_kernel.runtime.ports import (
    DEFAULT_MAX_OUTPUT,
    CommandRequest,
    GateRequest,
    JudgeRequest,
    LoadRequest,
    MemoryRequest,
    Question,
    SessionRequest,
    ShowRequest,
    Wait,
)

Request = (
    CommandRequest
    | SessionRequest
    | JudgeRequest
    | Question
    | GateRequest
    | LoadRequest
    | MemoryRequest
    | ShowRequest
    | Wait
)

KINDS: Final = ("command", "session", "gate", "input", "judge")
"""The requests with a key: those that have effects or costs, and those that a person answers."""

COMMON: Final = frozenset({"kind", "shell", "pipefail", "directory", "model", "env", "permissions", "tools", "rules"})
"""Parts that are equal in many requests, and so do not help to find the most similar earlier request."""

_SHOWN: Final = 500


def parts(request: Request, also: Sequence[str] = ()) -> Iterator[tuple[str, object]]:
    """Yield the parts of a request that determine its answer anywhere in the program, with readable names. `also` has
    further parts of a question (labels, the text to read)."""
    match request:
        case CommandRequest():
            yield "text", request.command
            yield "directory", request.cwd
            yield "stdin", request.stdin
            yield "env", request.env
            yield "shell", "that of the run"
            yield "pipefail", request.pipefail
            yield "max-output", request.max_output if request.max_output != DEFAULT_MAX_OUTPUT else None
        case SessionRequest():
            yield "kind", request.kind
            yield "model", request.model
            yield "prompt", request.task
            yield "agent's prompt", request.system
            yield "context", request.context
            yield "input", request.given
            yield "settings", request.settings
            yield "output", request.output
            yield "correction", request.correction
            yield "memory", memory_of(request)
            yield "skills", request.skills
            yield "tools", (*request.tools, "none") if request.bare else request.tools
            yield "permissions", request.permissions
        case JudgeRequest():
            yield "question", request.text
            yield "loop", request.loop
            yield "labels", tuple(also)
            yield "values", request
        case Question():
            yield "question", request.prompt or request.name
        case GateRequest():
            yield "gate", request.name
            yield "question", request.prompt
            yield "rules", (request.allow, request.on_reject)


def memory_of(request: SessionRequest) -> str:
    """Return the text of an agent's memory that a session gets."""
    return request.prelude or (request.memory.text if request.memory is not None else None) or ""


# ---------------------------------------------------------------- a request and its path


class Described(Struct, frozen=True):
    """A request as recorded in a journal: its key, its kind, its text for people, and the values that a replay compares
    at this place; for a gate also its name and the id of its record. `brief` replaces a text that must not be
    written."""

    key: str
    kind: str
    text: str
    compared: tuple[object, ...] = ()
    gate: str = ""
    record: str = ""
    brief: str = ""

    def digest(self, without: Sequence[bytes]) -> str:
        """Return a digest of the compared values, without the ids of the run and of the runs that it branched from."""
        data = dumps((self.kind, self.text, self.compared))
        for run_id in without:
            data = data.replace(run_id, b"*")
        return hashlib.blake2b(data, digest_size=8).hexdigest()

    @property
    def shown(self) -> str:
        return self.brief or shown(self.text)


def shown(text: str) -> str:
    """Return the beginning of a text without secrets, for people."""
    from prose_kernel.runtime.redaction import hidden_of_process  # the digest covers the whole text

    return clipped(hidden_of_process()(text[: 8 * _SHOWN]), _SHOWN)


def describe(request: Request, also: Sequence[str] = ()) -> Described:
    """Return the recorded form of a request. A replay also compares limits and labels, which aren't part of the
    question, but no contents: at the same place they follow from earlier answers."""
    match request:
        case CommandRequest():
            limits = (request.cwd, request.timeout, request.max_output, request.track)
            piped = ("pipefail",) if request.pipefail else ()  # absent from journals of earlier versions
            compared = (*limits, request.stdin, dict(request.env), *piped)
            return Described(_numbered(request.at, request.attempt), "command", request.command, compared)
        case SessionRequest():
            context = None if request.context is None else [(c.name, c.text, c.missing) for c in request.context]
            given = request.given.text if request.given is not None else None
            memory = (request.memory.scope, request.memory.resume) if request.memory is not None else None
            who = (request.kind, request.system, request.agent, request.label, request.model)
            rest = (context, request.skills, dict(request.permissions), memory, request.timeout, given, request.prelude)
            key, brief = _numbered(request.at, request.attempt), f"@{request.agent}" if request.filed else ""
            return Described(key, "session", request.task, (*who, *rest), brief=brief)
        case JudgeRequest():
            return Described(request.at, "judge", request.text, (request.loop, request.subject, *also))
        case GateRequest():
            gate = (request.id, request.allow, request.timeout, request.on_reject)
            key, text = _numbered(request.at, request.attempt - 1), request.prompt or request.name
            return Described(key, "gate", text, gate, request.name, request.id)
        case Question():
            return Described(request.at, "input", request.prompt, (request.name,))
        case LoadRequest():
            return Described(request.at, "import", request.path)
        case MemoryRequest():
            return Described(request.at, "memory", request.key, (request.what, *also))
        case ShowRequest():
            return Described(request.at, "file", request.path, (request.directory,))
        case Wait():
            return Described(request.at, "wait", request.why, (request.seconds,))


def _numbered(at: str, attempt: int) -> str:
    return f"{at}#{attempt}" if attempt else at
