"""The `Gates` port: a gate is approved, rejected or times out here (openprose.md 5.9, 5.10).

Decisions come from a person at the front end, from the person who started the run, in advance, or, for a run on disk,
from another process. The running program cannot make a decision here.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from msgspec import Struct, field

from prose_kernel.errors import StateError, UsageError, reason_of
from prose_kernel.language.structs import replace
from prose_kernel.runtime.clock import timestamp
from prose_kernel.runtime.ports import Clock, GateDecision, GateRequest
from prose_kernel.storage.gates.answers import GateConversation, PriorDecisions, refusal
from prose_kernel.storage.gates.decision_socket import DecisionServer
from prose_kernel.storage.gates.file_records import MemoryRecords
from prose_kernel.storage.gates.records import (
    POLL_SECONDS,
    SYSTEM,
    Approval,
    AuditEvent,
    EarlierRecord,
    GateRecord,
    RecordIds,
    Records,
    RecordsUnavailable,
    Watcher,
    end_of,
    principal_problem,
    record_data,
)

if TYPE_CHECKING:
    from prose_kernel.runtime.services import Asker

_T = TypeVar("_T")
Mode = Literal["auto", "ask", "wait", "deny"]
_PATIENCE: Final = 15.0
"""Seconds of retries before an unreachable database of records is an error (E219)."""


class _Open(Struct):
    """A waiting gate. `decision` is set once, in the run's event loop, in the same step as the deadline's check."""

    record: GateRecord
    deadline: float
    decision: GateDecision | None = None
    resumed: bool = False
    decided: asyncio.Event = field(default_factory=asyncio.Event)

    async def outcome(self) -> GateDecision:
        await self.decided.wait()
        assert self.decision is not None
        return self.decision


class GatePolicy(Struct, frozen=True):
    """How the gates of a run are decided.

    - `notebook`: a cell waits for the gate, so a decision from outside is never the only way.
    - `files`: a decision file written by another process decides (`--gate-files`).
    - `trusts_records`: recorded approvals from before this process count (`[gates] resume = "replay"`).
    - `patience`: seconds of retries with an unreachable database (`[state] wait`).
    - `on_wait`: gets the reason for such a wait, and None at its end.
    """

    mode: Mode = "auto"
    notebook: bool = False
    files: bool = False
    trusts_records: bool = False
    patience: float = _PATIENCE
    on_wait: Callable[[str | None], None] = lambda reason: None


class Gatekeeper:
    """The `Gates` port of one run.

    `started` returns whether the run's engine started a session or process group; `inspect` replaces the inspection of
    processes that connect. Raises `UsageError` for mode `wait` if no other process can see a record.
    """

    def __init__(
        self,
        records: Records,
        asker: Asker,
        clock: Clock,
        policy: GatePolicy,
        prior: PriorDecisions | None = None,
        *,
        started: Callable[[int], bool] = lambda _: False,
        inspect: Callable[[int], None] | None = None,
    ) -> None:
        if policy.mode == "wait" and not records.outside and not policy.notebook:
            raise UsageError("gates cannot wait here: a run that lives in memory is out of reach for other processes")
        self.prior = prior or PriorDecisions()
        self._records = records
        self._asker = asker
        self._policy = policy
        self._clock = clock
        self._started = started
        self._inspect = inspect
        self._turn = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._open: dict[str, _Open] = {}
        self._ids = RecordIds()
        self._earlier: list[EarlierRecord] | None = None  # records whose places are not reached again yet
        self._server: DecisionServer | None = None
        self._watcher = Watcher(records.listen)
        self._closing = "cancelled"
        self._waiting = 0  # the number of calls that wait for the database, of which the person was notified
        self._unreachable = False  # whether the database of the records was unreachable at the last call

    def interrupt(self) -> None:
        """Record gates that close from now on as interrupted."""
        self._closing = "interrupted"

    @property
    def watching(self) -> bool:
        """Whether a gate is open that other processes may decide now."""
        return self._watches and any(gate.decision is None for gate in self._open.values())

    async def decide(self, request: GateRequest) -> GateDecision:
        """Write the record; ask, wait or deny, depending on the mode; return the decision that won.

        If an earlier process of this run has left a record at the same place, take it over: a decision made meanwhile
        counts, else its deadline continues. A cancelled call closes the record first. Raises `StateError` if the record
        cannot be kept.
        """
        self._closing = "cancelled"
        try:
            gate = await self._begin(request)
            if gate.decision is not None:
                return gate.decision
            self._open[gate.record.id] = gate
            return await self._settle(gate)
        finally:
            self._open = {name: gate for name, gate in self._open.items() if gate.decision is None}
            if not self._open:
                self._watcher.stop_waiting()
                self._records.stop_waiting()

    async def _begin(self, request: GateRequest) -> _Open:
        """Open the gate, or continue with the record that an earlier process left."""
        deadline = self._clock.monotonic() + request.timeout
        async with self._opening:
            if self._earlier is None:
                used, self._earlier = await self._call_or_use_memory(lambda: self._records.earlier())
                self._ids = RecordIds(used)
            earlier = self._earlier_record(request)
            if earlier is None:
                request = replace(request, id=self._ids.take(request, self._open))
                opened = await self._open_record(lambda: self._records.open(request, outside=self._watches), new=True)
                return _Open(opened, deadline)
            self._ids.note(request, earlier.record.id)
            if earlier.decision is not None and earlier.known:
                return _Open(earlier.record, deadline, earlier.decision)
            return await self._take_over(earlier.record)

    def replayed(self, request: GateRequest, decision: GateDecision) -> None:
        """Remove a decision in advance for the next instance of a gate, if this replayed decision has used it."""
        if decision.source == "option":
            self.prior.drop_next(request.name)

    async def log_confirmed_approvals(self, approvals: Sequence[Approval], how: str) -> None:
        """Log approvals of an earlier process that were confirmed, and so count again; `how` is the source of the
        confirmation. Raises `StateError`."""
        if not approvals:
            return
        now = self._clock.now()
        events = [
            AuditEvent(one.record, "approved", one.decision.by, now, one.decision.comment, _approval_metadata(one, how))
            for one in approvals
        ]
        try:
            await self._call_or_use_memory(lambda: self._records.log(events))
        finally:
            if not self._open:
                self._records.stop_waiting()

    async def _open_record(self, call: Callable[[], GateRecord], *, new: bool) -> GateRecord:
        """Return the record that `call` opens. If this call is cancelled, close the record."""
        opened: list[GateRecord] = []
        try:
            await (self._call_or_use_memory if new else self._call_records)(lambda: opened.append(call()))
        except asyncio.CancelledError:
            for record in opened:
                self._close(record)
            raise
        return opened[0]

    async def _take_over(self, record: GateRecord) -> _Open:
        seconds = 0.0

        def take_over() -> GateRecord:
            nonlocal seconds
            mine, seconds = self._records.take_over(record, outside=self._watches)
            return mine

        mine = await self._open_record(take_over, new=False)
        return _Open(mine, self._clock.monotonic() + seconds, resumed=True)

    def _earlier_record(self, request: GateRequest) -> EarlierRecord | None:
        """Return the record to continue with: the newest one of an earlier process at this place, for this question.

        A decision that the earlier process knew is in the run's journal. It is requested again only if the process was
        killed in between, or if the run resumes because of it; then the gate opens again. The gate also opens again
        after an approval that was given while no process ran the run, unless the policy trusts records.
        """
        place = request.at, request.attempt
        known = self._earlier or []
        here = [k for k in known if (k.record.request.at, k.record.request.attempt) == place and request.at]
        if not here:
            return None
        self._earlier = [earlier for earlier in known if earlier not in here]
        newest = here[-1]
        decision = newest.decision
        ended = decision is not None and not (self._policy.trusts_records and decision.status == "approved")
        return None if ended or not _is_same_question(newest.record.request, request) else newest

    async def _settle(self, gate: _Open) -> GateDecision:
        try:
            if gate.resumed and self._watches and (made := await self._look(gate)) is not None:
                return await self._decide_once(gate, made)
            decided = self._prior_decision(gate.record)
            if decided is not None:
                return await self._decide_once(gate, decided)
            if self._asks or self._waits:
                return await self._race(gate)
            return await self._decide_once(gate, GateDecision("rejected", SYSTEM, reason="nobody"))
        except BaseException:
            # On a cancellation, interrupt or error, the record must not stay pending without a waiting run.
            if gate.decision is None:
                gate.decision = self._close(gate.record)
                gate.decided.set()
            raise

    def _close(self, record: GateRecord) -> GateDecision:
        """Close the record of a gate for which the run no longer waits, in any state of the event loop."""
        decision = GateDecision("rejected", SYSTEM, reason=self._closing)
        if not self._unreachable:  # else each gate would block the loop for seconds, and none would be closed
            try:
                self._records.resolve(record, decision, watched=False)
            except RecordsUnavailable:
                self._unreachable = True
            except StateError:
                pass  # this error must not replace an interrupt
        return decision

    async def _call_or_use_memory(self, call: Callable[[], _T]) -> _T:
        """Return the result of a call that begins a record. If the run has no directory, use records in memory."""
        try:
            return await self._call_records(call)
        except StateError:
            if not self._records.lacks_directory:
                raise
            self._records = MemoryRecords(self._clock)
            return call()

    async def _call_records(self, call: Callable[[], _T], *, patience: float | None = None) -> _T:
        """Return the result of a call of the records. For a database, make it in a thread, and retry for `patience`
        seconds while the database is unreachable. A call in a thread is always awaited: cancellations take effect
        after it."""
        if not self._records.remote:
            return call()
        end = self._clock.monotonic() + (self._policy.patience if patience is None else patience)
        waiting = False
        try:
            while True:
                calling = asyncio.ensure_future(asyncio.to_thread(call))
                try:
                    found = await asyncio.shield(calling)
                    self._unreachable = False
                    return found
                except RecordsUnavailable as error:
                    self._unreachable = True
                    if self._clock.monotonic() >= end:
                        raise
                    if not waiting:
                        waiting = True
                        self._count_wait(error.message)
                except asyncio.CancelledError:
                    await end_of(calling)
                    self._unreachable = isinstance(calling.exception(), RecordsUnavailable)
                    raise
                await self._clock.sleep(POLL_SECONDS)
        finally:
            if waiting:
                self._count_wait(None)

    def _count_wait(self, reason: str | None) -> None:
        """Count a call that waits for the database, or (None) no longer waits; report only the first and the last."""
        self._waiting += 1 if reason is not None else -1
        if self._waiting == (1 if reason is not None else 0):
            self._policy.on_wait(reason)

    # ------------------------------------------------------------ the table of 5.10

    @property
    def _asks(self) -> bool:
        """Whether to ask the person at the front end."""
        mode = "auto" if self._policy.notebook and self._policy.mode == "wait" else self._policy.mode
        return mode in ("auto", "ask") and self._asker.available

    @property
    def _waits(self) -> bool:
        """Whether the gate stays open for decisions from outside, which must be possible, even if no person is asked.
        This is the default with a database."""
        wanted = self._policy.mode == "wait" or (self._policy.mode == "auto" and self._records.remote)
        return wanted and not self._policy.notebook and self._records.outside

    @property
    def _watches(self) -> bool:
        """Whether a decision from outside counts."""
        return self._records.outside and self._policy.mode in ("auto", "wait")

    def _name(self, record: GateRecord) -> str:
        """Return the gate's name in the program, with the record's id if other processes may use it to decide."""
        name = record.request.name
        return f"{name} ({record.spelled})" if self._watches and record.spelled != name else name

    # ------------------------------------------------------------ deciders

    async def _decide_once(self, gate: _Open, proposal: GateDecision) -> GateDecision:
        """Decide a gate unless it is decided, and return its decision; the only place where that happens. The deadline
        is checked in the same step, so that a decider who sees "approved" has approved: with files, nothing else runs
        between check and decision; in a database, the conditional update decides who was first. Raises `StateError` if
        the decision cannot be kept."""
        if gate.decision is None:
            late = proposal.source is not None and self._clock.monotonic() >= gate.deadline
            decision = GateDecision("timeout", SYSTEM) if late else proposal
            resolve = functools.partial(self._records.resolve, gate.record, decision, watched=self._watches)
            decision = await self._call_records(resolve)
            if gate.decision is None:
                gate.decision = decision
                gate.decided.set()
        return gate.decision

    def _prior_decision(self, record: GateRecord) -> GateDecision | None:
        answer = self.prior.take(record.request.name)
        if answer is None:
            return None
        if answer.approved and answer.principal not in record.request.allow:
            self._asker.show(refusal(self._name(record), record.request, answer.principal))
            return None
        return GateDecision(answer.status, answer.principal, answer.comment, source="option")

    async def _race(self, gate: _Open) -> GateDecision:
        """Return the first decision of deadline, person and other processes; cancel the other waits."""
        record = gate.record
        source = "cell" if self._policy.notebook else "terminal"
        name = self._name(record)
        conversation = GateConversation(
            record.request, name, self._asker, source, lambda: gate.deadline - self._clock.monotonic()
        )
        late = asyncio.create_task(self._deadline(gate.deadline))
        tasks: list[asyncio.Task[GateDecision]] = [late]
        if self._asks:
            tasks.append(asyncio.create_task(self._ask(conversation)))
        if self._watches:
            tasks.append(asyncio.create_task(self._outside(gate)))
            tasks.append(asyncio.create_task(self._watch(gate)))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            winner = late if late in done else next(task for task in tasks if task in done)
            decision = await self._decide_once(gate, winner.result())
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

    async def _ask(self, conversation: GateConversation) -> GateDecision:
        async with self._turn:  # in the order of arrival
            return await conversation.hold()

    async def _watch(self, gate: _Open) -> GateDecision:
        """Check for a decision from outside each second, and immediately if the database announces one."""
        away = False
        while gate.decision is None:
            seen = self._watcher.changes
            try:
                if (decision := await self._look(gate, patience=0)) is not None:
                    return decision
                away = False
            except RecordsUnavailable as error:
                if not away:
                    self._asker.show(f"{error.message}; gate {self._name(gate.record)} continues to wait")
                away = True
            await self._watcher.pause(self._clock, seen)
        return gate.decision

    async def _look(self, gate: _Open, *, patience: float | None = None) -> GateDecision | None:
        """Return a decision from outside, or None. A decision in a database's records counts immediately."""
        look = functools.partial(self._records.find_decision, gate.record, files=self._policy.files)
        decision = await self._call_records(look, patience=patience)
        if decision is not None and self._records.remote and gate.decision is None:
            gate.decision = decision
            gate.decided.set()
        return decision

    # ------------------------------------------------------------ from outside

    async def _outside(self, gate: _Open) -> GateDecision:
        """Keep the socket of the run open until the gate is decided."""
        assert self._records.directory is not None
        if self._server is None:
            self._server = DecisionServer(self._records.directory, self._answer, self._started, self._inspect)
        try:
            self._server.acquire()
        except OSError as error:
            if self._asks or self._policy.files or self._records.remote:
                self._announce(gate.record)
                return await gate.outcome()
            why = reason_of(error, type(error).__name__)
            raise StateError(f"gates cannot wait here: their socket could not be made: {why}") from None
        try:
            self._announce(gate.record)
            return await gate.outcome()
        finally:
            await self._server.release()

    def _announce(self, record: GateRecord) -> None:
        if not self._asks:
            self._asker.show(f"gate {record.spelled} of run {record.run} waits: {self._records.command(record)}")

    async def _answer(self, request: Mapping[str, object]) -> Mapping[str, object]:
        """Answer one request of another process."""
        if request.get("ask") == "list":
            return {"gates": [record_data(gate.record) for gate in self._open.values() if gate.decision is None]}
        gate = self._open.get(str(request.get("gate")))
        if gate is None or not _concerns(request, gate.record):
            return {"refused": None}
        status, by, comment = request.get("decision"), str(request.get("principal")), str(request.get("comment") or "")
        if status not in ("approved", "rejected"):
            return {"refused": "a decision is approved or rejected"}
        if why := principal_problem(by):
            return {"refused": why}
        if status == "approved" and by not in gate.record.request.allow:
            return {"refused": refusal(self._name(gate.record), gate.record.request, by)}
        proposal = GateDecision(status, by, comment, source="cli")
        try:
            decision = await self._decide_once(gate, proposal)
        except StateError as error:
            return {"refused": error.message}
        return {"ok": True} if decision is proposal else {"refused": None}


def _approval_metadata(one: Approval, how: str) -> dict[str, object]:
    first = {"first_approved": timestamp(one.at)} if one.at is not None else {}
    return {"source": how, "resumed": True, **first}


def _is_same_question(one: GateRequest, other: GateRequest) -> bool:
    """Return whether both would ask a person the same question."""
    return (one.name, one.prompt, one.allow, one.on_reject) == (other.name, other.prompt, other.allow, other.on_reject)


def _concerns(request: Mapping[str, object], record: GateRecord) -> bool:
    """Return whether a request means this record, and not its former state before `retry` opened it again."""
    asked = request.get("created_at"), request.get("attempt", 1)
    return asked == (record_data(record)["created_at"], record.request.attempt)
