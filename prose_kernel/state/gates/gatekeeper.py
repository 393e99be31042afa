"""Who decides a gate, and how they are asked: the `Gates` port (openprose.md 5.9, 5.10).

Decisions come from a person at the front end, from a decision that the person who started the run gave beforehand, or,
on a run that is kept on disk, from another process. Nothing of the running program has a way in here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from msgspec import structs

from prose_kernel.errors import NobodyToAsk, StateError, UsageError
from prose_kernel.runtime.ports import Clock, GateDecision, GateRequest
from prose_kernel.state.gates.decision_socket import DecisionServer
from prose_kernel.state.gates.records import SYSTEM, Record, Records, record_data

if TYPE_CHECKING:
    from prose_kernel.runtime.services import Asker

Mode = Literal["auto", "ask", "wait", "deny"]
_POLL_SECONDS: Final = 1.0
_WORDS: Final[Mapping[str, Literal["approved", "rejected"]]] = {
    "approve": "approved",
    "approved": "approved",
    "yes": "approved",
    "y": "approved",
    "reject": "rejected",
    "rejected": "rejected",
    "no": "rejected",
    "n": "rejected",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What somebody said to a gate, beforehand or when asked."""

    approved: bool
    principal: str = "user"
    comment: str = ""

    @property
    def status(self) -> Literal["approved", "rejected"]:
        return "approved" if self.approved else "rejected"


def read_answer(text: str) -> Answer | None:
    """The answer in a line a person typed: a word of 5.10, a comment after a colon. None for anything else."""
    word, _, comment = text.partition(":")
    status = _WORDS.get(word.strip().casefold())
    return None if status is None else Answer(status == "approved", comment=comment.strip())


class Prior:
    """Decisions that a person gave before the gate was reached.

    `every` holds for each instance of a gate name in the run (`--yes`, `--no`). `supplied` looks up the value given for
    an input of that name (`%input NAME=approve`), which counts when it is one of the accepted words.
    """

    def __init__(
        self, every: Mapping[str, bool] | None = None, supplied: Callable[[str], str | None] | None = None
    ) -> None:
        self._every = dict(every or {})
        self._supplied = supplied
        self._next: dict[str, deque[Answer]] = {}

    def give(self, name: str, answer: Answer) -> None:
        """A decision for the next instance of the gate `name` (`%gate approve|reject NAME`). Raises `UsageError` for a
        principal that nobody can be."""
        if why := _unclaimable(answer.principal):
            raise UsageError(why)
        self._next.setdefault(name, deque()).append(answer)

    def take(self, name: str) -> Answer | None:
        """The decision for an instance that opens now; one for the next instance is used up by it."""
        if waiting := self._next.get(name):
            return waiting.popleft()
        if name in self._every:
            return Answer(self._every[name])
        given = self._supplied(name) if self._supplied is not None else None
        return None if given is None else read_answer(given)


@dataclass(slots=True)
class _Open:
    """A gate that waits. `decision` is set once, in the event loop of the run, together with the look at the clock."""

    record: Record
    deadline: float
    decision: GateDecision | None = None
    decided: asyncio.Event = field(default_factory=asyncio.Event)

    async def outcome(self) -> GateDecision:
        await self.decided.wait()
        assert self.decision is not None
        return self.decision


class Gatekeeper:
    """The `Gates` port of one run.

    `notebook` tells that a cell is waiting: then no gate waits for a decision from outside alone. `files` lets a
    decision file that somebody else writes decide (`--gate-files`). `started` tells whether the run's engine started a
    session or process group; `inspect` replaces the look at the processes that connect. Raises `UsageError` for mode
    `wait` where nobody outside can see a record.
    """

    def __init__(
        self,
        records: Records,
        asker: Asker,
        mode: Mode,
        clock: Clock,
        prior: Prior | None = None,
        *,
        notebook: bool = False,
        files: bool = False,
        started: Callable[[int], bool] = lambda _: False,
        inspect: Callable[[int], None] | None = None,
    ) -> None:
        if mode == "wait" and not records.outside and not notebook:
            raise UsageError("gates cannot wait here: a run that lives in memory is out of reach for other processes")
        self.prior = prior or Prior()
        self._records = records
        self._asker = asker
        self._mode = mode
        self._clock = clock
        self._notebook = notebook
        self._files = files
        self._started = started
        self._inspect = inspect
        self._turn = asyncio.Lock()
        self._open: dict[str, _Open] = {}
        self._server: DecisionServer | None = None
        self._closing = "cancelled"

    def interrupt(self) -> None:
        """The run is about to be interrupted: gates that close now say so."""
        self._closing = "interrupted"

    async def decide(self, request: GateRequest) -> GateDecision:
        """Write the record, ask or wait or deny by mode, return the one decision that won.

        When the call is cancelled the record is closed first. Raises `StateError` when it cannot be kept.
        """
        self._closing = "cancelled"
        deadline = self._clock.monotonic() + request.timeout
        request = structs.replace(request, id=self._free(request.id))
        gate = _Open(self._records.open(request, outside=self._watches), deadline)
        self._open[request.id] = gate
        try:
            return await self._settle(gate)
        finally:
            self._open.pop(request.id, None)

    def _free(self, gate_id: str) -> str:
        """The id itself, unless a record of it is pending: a program and one it imports may name gates alike."""
        free, number = gate_id, 1
        while free in self._open:
            number += 1
            free = f"{gate_id}--{number}"
        return free

    async def _settle(self, gate: _Open) -> GateDecision:
        try:
            decided = self._beforehand(gate.record)
            if decided is not None:
                return self._keep(gate, decided)
            if self._asks or self._waits:
                return await self._race(gate)
            return self._keep(gate, GateDecision("rejected", SYSTEM, reason="nobody"))
        except BaseException:
            # Cancelled, interrupted or broken: the record must not stay pending without anybody who waits for it.
            if gate.decision is None:
                with contextlib.suppress(StateError):  # which must not take the place of an interrupt
                    self._keep(gate, GateDecision("rejected", SYSTEM, reason=self._closing))
            raise

    # ------------------------------------------------------------ the table of 5.10

    @property
    def _asks(self) -> bool:
        """Whether the person here is asked."""
        mode = "auto" if self._notebook and self._mode == "wait" else self._mode
        return mode in ("auto", "ask") and self._asker.available

    @property
    def _waits(self) -> bool:
        """Whether the gate stays open for the outside alone, which must be able to reach it."""
        return self._mode == "wait" and not self._notebook and self._records.outside

    @property
    def _watches(self) -> bool:
        """Whether a decision from outside counts."""
        return self._records.outside and self._mode in ("auto", "wait")

    def _name(self, record: Record) -> str:
        """The gate as its author wrote it; with the id of the instance where another process may decide by that."""
        name = record.request.name
        return f"{name} ({record.id})" if self._watches and record.id != name else name

    # ------------------------------------------------------------ deciders

    def _keep(self, gate: _Open, proposal: GateDecision) -> GateDecision:
        """Decide a gate, unless it is decided: the only place where that happens. The look at the clock is part of the
        step, so that whoever is told "approved" has approved. Raises `StateError` when it cannot be kept."""
        if gate.decision is None:
            late = proposal.source is not None and self._clock.monotonic() >= gate.deadline
            decision = GateDecision("timeout", SYSTEM) if late else proposal
            self._records.resolve(gate.record, decision)
            gate.decision = decision
            gate.decided.set()
        return gate.decision

    def _beforehand(self, record: Record) -> GateDecision | None:
        answer = self.prior.take(record.request.name)
        if answer is None:
            return None
        if answer.approved and answer.principal not in record.request.allow:
            self._asker.show(_refusal(self._name(record), record.request, answer.principal))
            return None
        return GateDecision(answer.status, answer.principal, answer.comment, source="option")

    async def _race(self, gate: _Open) -> GateDecision:
        """The first of deadline, person and outside. What the others were doing is withdrawn."""
        record = gate.record
        source = "cell" if self._notebook else "terminal"
        conversation = _Conversation(record.request, self._name(record), self._asker, source)
        late = asyncio.create_task(self._deadline(gate.deadline))
        tasks: list[asyncio.Task[GateDecision]] = [late]
        if self._asks:
            tasks.append(asyncio.create_task(self._ask(conversation)))
        if self._watches:
            tasks.append(asyncio.create_task(self._outside(gate)))
            tasks.append(asyncio.create_task(self._watch_files(gate)))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            winner = late if late in done else next(task for task in tasks if task in done)
            decision = self._keep(gate, winner.result())
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        conversation.withdraw(decision)
        return decision

    async def _deadline(self, deadline: float) -> GateDecision:
        while (left := deadline - self._clock.monotonic()) > 0:
            await self._clock.sleep(left)
        return GateDecision("timeout", SYSTEM)

    async def _ask(self, conversation: _Conversation) -> GateDecision:
        async with self._turn:  # first come, first asked
            return await conversation.hold()

    async def _watch_files(self, gate: _Open) -> GateDecision:
        """Look for decision files that this run did not write: with `files` a valid one decides, else it is ignored."""
        while gate.decision is None:
            decision = self._records.foreign(gate.record, counts=self._files)
            if decision is not None:
                return decision
            await self._clock.sleep(_POLL_SECONDS)
        return gate.decision

    # ------------------------------------------------------------ from outside

    async def _outside(self, gate: _Open) -> GateDecision:
        """Keep the socket of the run open until the gate is decided."""
        assert self._records.directory is not None
        if self._server is None:
            self._server = DecisionServer(self._records.directory, self._answer, self._started, self._inspect)
        try:
            await self._server.acquire()
        except OSError as error:
            if self._asks or self._files:
                return await gate.outcome()
            why = (error.strerror or type(error).__name__).lower()
            raise StateError(f"gates cannot wait here: their socket could not be made: {why}") from None
        try:
            if not self._asks:
                record = gate.record
                self._asker.show(f"gate {record.id} of run {record.run} waits: {self._records.command(record)}")
            return await gate.outcome()
        finally:
            await self._server.release()

    def _answer(self, request: Mapping[str, object]) -> Mapping[str, object]:
        """One request of another process, answered at once; called in the loop of the run."""
        if request.get("ask") == "list":
            return {"gates": [record_data(gate.record) for gate in self._open.values() if gate.decision is None]}
        gate = self._open.get(str(request.get("gate")))
        if gate is None or not _means(request, gate.record):
            return {"refused": None}
        status, by, comment = request.get("decision"), str(request.get("principal")), str(request.get("comment") or "")
        if status not in ("approved", "rejected"):
            return {"refused": "a decision is approved or rejected"}
        if why := _unclaimable(by):
            return {"refused": why}
        if status == "approved" and by not in gate.record.request.allow:
            return {"refused": _refusal(self._name(gate.record), gate.record.request, by)}
        proposal = GateDecision(status, by, comment, source="cli")
        try:
            decision = self._keep(gate, proposal)
        except StateError as error:
            return {"refused": error.message}
        return {"ok": True} if decision is proposal else {"refused": None}


class _Conversation:
    """Asking one person about one gate."""

    def __init__(self, request: GateRequest, name: str, asker: Asker, source: str) -> None:
        self._request = request
        self._name = name
        self._asker = asker
        self._source = source
        self._asking = False

    async def hold(self) -> GateDecision:
        """Ask until there is an answer that counts."""
        turn = getattr(self._asker, "turn", contextlib.nullcontext)
        async with turn():
            self._asking = True
            prompt = question(self._name, self._request)
            while True:
                try:
                    answer = read_answer(await self._asker.ask(prompt))
                except EOFError:
                    return self._answered(GateDecision("rejected", "user", source=self._source))
                except NobodyToAsk:
                    return self._answered(GateDecision("rejected", SYSTEM, reason="nobody"))
                if answer is None:
                    prompt = "please answer approve or reject, with a comment after a colon if you like: "
                elif answer.approved and answer.principal not in self._request.allow:
                    prompt = f"{_refusal(self._name, self._request, answer.principal)}\napprove or reject? "
                else:
                    return self._answered(
                        GateDecision(answer.status, answer.principal, answer.comment, source=self._source)
                    )

    def _answered(self, decision: GateDecision) -> GateDecision:
        self._asking = False
        return decision

    def withdraw(self, decision: GateDecision) -> None:
        """Tell the person that their answer is not needed any more."""
        if not self._asking:
            return
        if decision.status == "timeout":
            self._asker.show(f"gate {self._name} timed out after {self._request.timeout_text}")
        else:
            self._asker.show(f"gate {self._name}: already {decision.status} by {decision.decided_by}")


def question(name: str, request: GateRequest) -> str:
    """What a person is shown: the prompt verbatim, below it the gate, who may decide (unless anybody), the timeout."""
    allow = "" if request.allow == ("user",) else f", allow {', '.join(request.allow) or 'nobody'}"
    return f"{request.prompt}\ngate {name}{allow}, timeout {request.timeout_text}\napprove or reject? "


def _means(request: Mapping[str, object], record: Record) -> bool:
    """Whether a request means this very record, and not the one before it that `retry` opened again."""
    asked = request.get("created_at"), request.get("attempt", 1)
    return asked == (record_data(record)["created_at"], record.request.attempt)


def _unclaimable(principal: str) -> str | None:
    """Why no person can decide under this name; None if one can."""
    if not principal:
        return "a decision needs a principal"
    return "system is the run itself, no principal who decides" if principal == SYSTEM else None


def _refusal(name: str, request: GateRequest, principal: str) -> str:
    allowed = ", ".join(request.allow) or "nobody"
    return f"gate {name}: {principal} may not approve, allowed: {allowed}"
