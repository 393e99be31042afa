"""Previews of any language: list the requests of a text without making them.

A value that only the outside can provide is replaced by a visible placeholder (`unknown`). The text runs in a copy of
the run whose store keeps nothing (`ReadOnlyStore`), and whose judge and person have no answers.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final, NoReturn, TypeVar

from prose_kernel.errors import RunError, Undecided
from prose_kernel.language.structs import replace
from prose_kernel.runtime.compiled_code import Body
from prose_kernel.runtime.execution_context import ExecutionContext, Node
from prose_kernel.runtime.host import Host
from prose_kernel.runtime.machine import Preview, PreviewKind
from prose_kernel.runtime.ports import (
    AnswerFile,
    Binding,
    CommandRequest,
    Finding,
    GateRequest,
    JudgeRequest,
    Key,
    Question,
    SessionRequest,
    Store,
)
from prose_kernel.runtime.statement_hook import StatementHook
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import Value

R = TypeVar("R", SessionRequest, CommandRequest, GateRequest)

MOST_SESSIONS: Final = 200
"""The most sessions that a preview lists."""
MOST_COMMANDS: Final = 1000
"""The most commands and gates that a preview lists."""
MOST_PASSES: Final = 20
"""The most items of a known collection that a loop is run for."""
MOST_STEPS: Final = 20_000
"""The most statements that a preview runs, for programs that branch without end."""

_UNKNOWN: Final = re.compile(r"⟦([^⟦⟧\n]{1,200}): not known yet⟧")


class Full(Exception):
    """The preview has reached its limit."""


# ---------------------------------------------------------------- unknown values


def unknown(name: str) -> str:
    """Return a placeholder for a value that is unknown before the program runs."""
    return f"⟦{name}: not known yet⟧"


def is_unknown(text: str) -> bool:
    """Return whether a text depends on an unknown value."""
    return _UNKNOWN.search(text) is not None


class PreviewAnswers:
    """Answers the constructs of a machine instead of the outside. `found` has the requests so far, in source order."""

    def __init__(self) -> None:
        self.found: list[Preview] = []
        self._sessions = self._others = 0

    @property
    def full(self) -> bool:
        return self._sessions >= MOST_SESSIONS

    def _require_room(self, steps: int) -> None:
        if self.full or steps > MOST_STEPS:
            raise Full

    def add(self, preview: Preview) -> None:
        """Add a request, up to a limit."""
        if preview.kind == "session":
            kept = self._sessions < MOST_SESSIONS
            self._sessions += 1
        else:
            kept = self._others < MOST_COMMANDS
            self._others += 1
        if kept:
            self.found.append(preview)

    async def announce(
        self, s: ExecutionContext, node: Node, name: str | None, prepared: Awaitable[R], kind: PreviewKind = "session"
    ) -> R | None:
        """Add a request instead of making it, and return it. If it cannot be prepared, add its problem."""
        try:
            request = await prepared
        except RunError as problem:
            self.add(Preview(s.source, node.span, name, problem=problem, kind=kind))
            return None
        names = tuple(dict.fromkeys(unknown_in(request)))
        made: dict[str, Any] = {"request" if kind == "session" else kind: request}
        self.add(Preview(s.source, node.span, name, unknown=names, kind=kind, **made))
        return request

    async def run_each(self, s: ExecutionContext, bodies: Iterable[Body | None]) -> list[Any]:
        """Run alternative bodies, each as if it were the only one, and return their results."""
        before, most, found = dict(s.counts), dict(s.counts), []
        for body in bodies:
            if body is not None:
                s.counts = dict(before)
                found.append(await call(body.run(s)))
                most = {what: max(most.get(what, 0), s.counts.get(what, 0)) for what in {*most, *s.counts}}
        s.counts = most
        return found

    def make_host(self, real: Host) -> Host:
        nothing, store = UnknownAnswers(), ReadOnlyStore(real.ports.store)
        ports = replace(real.ports, judge=nothing, user=nothing, store=store, races=None)
        hook = StepLimit(self._require_room)
        host = Host(ports, (), load=real.load, supplied=real.supplied, hook=hook, pipefail=real.pipefail)
        host.preview, host.renderer = self, real.renderer
        return host


class StepLimit(StatementHook):
    """A hook that stops programs without end: `check` gets the number of statements, and raises an error."""

    def __init__(self, check: Callable[[int], None]) -> None:
        self._check = check
        self._steps = 0

    def before(self, s: ExecutionContext, node: Node) -> None:
        self._steps += 1
        self._check(self._steps)


def unknown_in(request: SessionRequest | CommandRequest | GateRequest) -> Iterator[str]:
    """Return the unknown names that a request depends on."""
    match request:
        case CommandRequest():
            return unknown_names([request.command, str(request.stdin or ""), *request.env.values(), request.cwd])
        case GateRequest():
            return unknown_names(request.prompt)
    rules: list[Value] = [list(rule) if isinstance(rule, tuple) else rule for rule in request.permissions.values()]
    given = request.given.text if request.given is not None else None
    context: list[Value] = [[item.text, item.content] for item in request.context or ()]
    return unknown_names([request.task, request.system, *rules, given, *context])


def unknown_names(value: Value) -> Iterator[str]:
    """Yield the unknown parts of a value. Results of commands, references and errors have none, because they exist."""
    match value:
        case str():
            yield from _UNKNOWN.findall(value)
        case list():
            for part in value:
                yield from unknown_names(part)
        case dict():
            for part in value.values():
                yield from unknown_names(part)


# ---------------------------------------------------------------- ports that do nothing


class ReadOnlyStore:
    """A store that knows the locations of another one, and keeps nothing.

    `within` are calls of imported programs below that store, which do not exist there yet.
    """

    def __init__(self, store: Store, within: tuple[str, ...] = ()) -> None:
        self._store = store
        self._within = within
        self.chain = (*store.chain, *within)
        self.by_value = store.by_value
        self.in_files = store.in_files
        self.lost: str | None = None

    def put(self, binding: Binding) -> None:
        return

    def read(self, key: Key) -> str:
        return self._store.read(key)

    def watch(self, key: Key) -> Callable[[], bool]:
        return lambda: False

    def location(self, key: Key, within: tuple[str, ...] = ()) -> str:
        return self._store.location(key, (*self._within, *within))

    def target(self, binding: Binding) -> AnswerFile | None:
        target = self._store.target(binding)
        return target and replace(target, location=self.location(binding.key))

    def memory(self, agent: str, persist: str) -> str:
        return self._store.memory(agent, persist)

    def has_memory(self, agent: str, persist: str) -> bool:
        return self._store.has_memory(agent, persist)

    def nested(self, handle: str, slug: str, source: str, number: int = 1) -> Store:
        name = f"{handle}--{slug}" if number == 1 else f"{handle}--{slug}--{number}"
        return ReadOnlyStore(self._store, (*self._within, name))

    async def flush(self) -> None:
        return


class UnknownAnswers:
    """The judge and the person of a preview: their answers are unknown."""

    async def ask(self, question: Question) -> str:
        return unknown(question.name)

    async def decide(self, request: JudgeRequest, labels: tuple[str, ...] = ()) -> NoReturn:
        raise Undecided("a preview judges nothing")

    choose = decide

    async def extract(self, request: JudgeRequest, value: str, path: str) -> Finding:
        whole = _UNKNOWN.fullmatch(value)
        return Finding(unknown(f"{whole[1]}.{path}" if whole else path), "")

    async def items(self, request: JudgeRequest, value: str) -> Finding:
        return Finding([value], "")
