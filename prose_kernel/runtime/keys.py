"""The key of a request: a digest of everything that its answer depends on, and of nothing else.

Two requests with equal keys ask the same, wherever they are in a program: the key holds the rendered text, inputs and
contexts by their contents, the schema of a typed answer, tools and permissions; of a command the text, its directory,
`env:`, `stdin:` and the shell. It holds no position, time, run id, name of a variable or option of a model. So an
answer can be used again after the program's text has changed (`runtime/continuing.py`).

A journal keeps the digests of the parts next to the key, to name the part that differs.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import Final

from msgspec import Struct

from prose_kernel.errors import StateError
from prose_kernel.runtime.content import images_in, material, readable
from prose_kernel.runtime.journal_codec import Request, dumps
from prose_kernel.runtime.ports import (
    DEFAULT_MAX_OUTPUT,
    Answers,
    CommandRequest,
    ContextItem,
    GateRequest,
    JudgeRequest,
    Question,
    SessionRequest,
)

KINDS: Final = ("command", "session", "gate", "input", "judge")
"""The requests that have a key: those with effects or a cost, and those that a person answers."""

_ANSWER: Final = re.compile(rb"\.vvm/runs/\*/bindings/(b\d{6})\.md")
_PART: Final = 6
_WHOLE: Final = 12


class Key(Struct, frozen=True):
    """`digest` is "" for a request without a key; `parts` are shorter digests of its parts, by their names."""

    digest: str = ""
    parts: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Keys:
    """Makes the keys of a run's requests. `directory` is its working directory, `project` the directory of its
    sessions, `run_ids` its id and those of the runs that it comes from, `shell` the shell of its commands. Only the
    shell is part of a key. `answer` reads the file of an agent's answer, by its name."""

    directory: str = ""
    project: str = ""
    run_ids: tuple[bytes, ...] = ()
    shell: str = ""
    answer: Callable[[str], str | None] = lambda name: None

    def of(self, request: Request, also: Sequence[str] = ()) -> Key:
        """Return the key; `also` belongs to the question (labels, the text to read)."""
        parts: dict[str, str] = {}
        whole = blake2b(type(request).__name__.encode(), digest_size=_WHOLE)
        for name, value in self._parts(request, also):
            if not value:
                continue
            data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else dumps(value)
            for run_id in self.run_ids:
                data = data.replace(run_id, b"*")
            if b"/bindings/b" in data:  # the numbers of these files depend on the place in the program
                data = _ANSWER.sub(self._content_of, data)
            digest = blake2b(data, digest_size=_WHOLE).digest()
            whole.update(b"\0%b\0%b" % (name.encode(), digest))
            parts[name] = digest[:_PART].hex()
        return Key(whole.hexdigest(), parts) if parts else Key()

    def _content_of(self, found: re.Match[bytes]) -> bytes:
        text = self.answer(found[1].decode())
        return found[0] if text is None else blake2b(text.encode("utf-8", "replace"), digest_size=_WHOLE).digest()

    def _parts(self, request: Request, also: Sequence[str]) -> Iterator[tuple[str, object]]:
        match request:
            case CommandRequest():
                yield from self._command(request)
            case SessionRequest():
                yield from _session(request)
            case JudgeRequest():
                sent = material(request)
                yield "question", request.text
                yield "loop", request.loop
                yield "labels", tuple(also)
                yield "values", [*sent.whole.values(), *sent.previews.values()]
            case Question():
                yield "question", request.prompt or request.name
            case GateRequest():
                yield "gate", request.name
                yield "question", request.prompt
                yield "rules", (request.allow, request.on_reject)

    def _command(self, request: CommandRequest) -> Iterator[tuple[str, object]]:
        yield "text", request.command
        if request.cwd != self.directory:
            yield "directory", os.path.relpath(request.cwd, self.directory) if self.directory else request.cwd
        yield "stdin", request.stdin
        yield "env", dict(sorted(request.env.items()))
        yield "shell", self.shell
        yield "pipefail", request.pipefail
        yield "max-output", request.max_output if request.max_output != DEFAULT_MAX_OUTPUT else None


def reader(answers: Answers | None) -> Callable[[str], str | None]:
    """Return what reads the files of answers for `Keys.answer`."""

    def read(name: str) -> str | None:
        try:
            return answers.read(answers.target(int(name[1:]))) if answers is not None else None
        except StateError:
            return None

    return read


def _session(request: SessionRequest) -> Iterator[tuple[str, object]]:
    yield "kind", request.kind if request.kind != "session" else None
    yield "model", request.model
    yield "prompt", request.task
    yield "agent's prompt", request.system
    for number, item in enumerate(request.context or (), 1):
        yield f"context {number}", _content(item)
    if request.given is not None:
        yield "input", request.given.text or "empty"
    yield "output", request.output
    yield "correction", request.correction
    yield "memory", request.prelude
    yield "skills", request.skills
    yield "tools", (*request.tools, "none") if request.bare else request.tools
    yield "permissions", dict(sorted(request.permissions.items()))


def _content(item: ContextItem) -> object:
    """All that a session can learn from a context."""
    if item.missing or (item.content is None and item.text is None):
        return (item.missing, item.location)
    if item.content is None:
        return f"={item.text}"
    images = [sha256(image).hexdigest() for image in images_in(item.content)]
    text = f"={readable(item.content)}"
    return (text, images) if images else text
