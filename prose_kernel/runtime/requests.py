"""The requests that leave a program: their parts, their keys, and their form in a journal.

Requests with equal keys ask the same, anywhere in a program: a key is a digest of everything that the answer depends
on, and of nothing else. It is computed from the request's parts, with values and contexts by their contents. It
contains no position, time, run id, variable name or model option. So an answer can be used again after the program's
text has changed (`runtime/earlier_answers.py`).

A journal keeps digests of the parts next to the key, to name the part that differs (`prose plan --keep`, `--why`). A
recording keeps the parts themselves, without secrets and machine paths (`cassettes/keys.py`), so its key is the same on
every machine.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b, sha256
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from msgspec import Struct

from prose_kernel.errors import StateError
from prose_kernel.language.text import clipped
from prose_kernel.runtime.journal_codec import dumps, without_ids
from prose_kernel.runtime.ports import (
    DEFAULT_MAX_OUTPUT,
    Answers,
    CommandRequest,
    ContextItem,
    GateRequest,
    JudgeRequest,
    LoadRequest,
    MemoryRequest,
    Question,
    SessionRequest,
    ShowRequest,
    Wait,
)
from prose_kernel.runtime.value_text import images_in, material, readable

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


# ---------------------------------------------------------------- keys

_ANSWER: Final = re.compile(rb"\.vvm/runs/\*/bindings/(b\d{6})\.md")
_PART: Final = 6
_WHOLE: Final = 12


class ReusableAnswer(Protocol):
    """An earlier answer. `is_free` means that it may be used, and no request has used it yet."""

    @property
    def is_free(self) -> bool: ...


A = TypeVar("A", bound=ReusableAnswer)


class EqualAnswers(Generic[A]):
    """Earlier answers to requests with equal keys, in their order. Finding the next free one takes constant time on
    average."""

    __slots__ = ("_next", "answers")

    def __init__(self) -> None:
        self.answers: list[A] = []
        self._next = 0

    def free(self, here: A | None = None) -> A | None:
        """Return the answer at the same place, `here`, if it is free, else the next free one, or None."""
        if here is not None and here.is_free:
            return here
        while self._next < len(self.answers) and not self.answers[self._next].is_free:
            self._next += 1
        return self.answers[self._next] if self._next < len(self.answers) else None


class Key(Struct, frozen=True):
    """`digest` is "" for a request without a key; `parts` maps names of parts to shorter digests."""

    digest: str = ""
    parts: dict[str, str] = {}


def key_of(kind: str, encoded: Iterable[tuple[str, bytes]]) -> Key:
    """Return the key of a request of this kind from its encoded parts; an empty key if it has none."""
    whole, short = blake2b(kind.encode(), digest_size=_WHOLE), {}
    for name, data in encoded:
        digest = blake2b(data, digest_size=_WHOLE).digest()
        whole.update(b"\0%b\0" % name.encode())
        whole.update(digest)
        short[name] = digest[:_PART].hex()
    return Key(whole.hexdigest(), short) if short else Key()


class Keys(Struct, frozen=True):
    """Makes the keys of a run's requests.

    `shell`, the shell of its commands, is part of a key. The others serve to leave machine-specific text out of it:
    `directory` is the run's working directory, `project` the directory of its sessions, `run_ids` the ids of the run
    and of the runs that it continues. `answers` has the files of agents' answers.
    """

    directory: str = ""
    project: str = ""
    run_ids: tuple[bytes, ...] = ()
    shell: str = ""
    answers: Answers | None = None

    def of(self, request: Request, also: Sequence[str] = ()) -> Key:
        """Return the key. `also` has further parts of a question (labels, the text to read)."""
        return key_of(type(request).__name__, self._encoded(request, also))

    def _encoded(self, request: Request, also: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        for name, value in parts(request, also):
            if not value:
                continue
            if name == "context":
                for number, item in enumerate(cast("Iterable[ContextItem]", value), 1):
                    yield f"context {number}", self._data(_content(item))
            elif name not in _FORMS:
                yield name, self._data(value)
            elif form := _FORMS[name](self, value):
                yield name, self._data(form)

    def _data(self, value: object) -> bytes:
        data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else dumps(value)
        data = without_ids(data, self.run_ids)
        # The numbers of these files depend on the place in the program. (`in` would first make and drop a TypeError.)
        if data.find(b"/bindings/b") >= 0:
            data = _ANSWER.sub(self._content_of, data)
        return data

    def _relative(self, cwd: str) -> str:
        if cwd == self.directory:
            return ""
        return os.path.relpath(cwd, self.directory) if self.directory else cwd

    def _content_of(self, found: re.Match[bytes]) -> bytes:
        """Return the digest of an answer's text, which replaces the path of its file."""
        answers = self.answers
        try:
            text = answers.read(answers.target(int(found[1][1:]))) if answers is not None else None
        except StateError:
            text = None
        return found[0] if text is None else blake2b(text.encode("utf-8", "replace"), digest_size=_WHOLE).digest()


def _judged(request: JudgeRequest) -> list[object]:
    sent = material(request)
    return [*sent.whole.values(), *sent.previews.values()]


_FORMS: Final[Mapping[str, Callable[[Keys, Any], object]]] = {
    "kind": lambda keys, kind: kind if kind != "session" else None,
    "input": lambda keys, given: given.text or "empty",
    "settings": lambda keys, settings: None,  # options of a model
    "directory": Keys._relative,
    "shell": lambda keys, shell: keys.shell,
    "env": lambda keys, env: dict(sorted(env.items())),
    "permissions": lambda keys, rules: dict(sorted(rules.items())),
    "values": lambda keys, request: _judged(request),
}
"""How to convert some parts for a key; other parts are used unchanged."""


def _content(item: ContextItem) -> object:
    """Return everything that a session can learn from a context item."""
    if item.missing or (item.content is None and item.text is None):
        return (item.missing, item.location)
    if item.content is None:
        return f"={item.text}"
    images = [sha256(image).hexdigest() for image in images_in(item.content)]
    text = f"={readable(item.content)}"
    return (text, images) if images else text


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
        compared = without_ids(dumps((self.kind, self.text, self.compared)), without)
        return blake2b(compared, digest_size=8).hexdigest()

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
