"""Confirm the approvals of a run's earlier processes before it continues (docs/reference/openprose.md 5.9).

The journal and the records of gates are files that commands of the run can write. So a replayed approval opens its gate
only if a person has given or confirmed it in this process: `runtime/journal.py` looks its content up in
`approved_in_process` when the program reaches the gate.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct, field

from prose_kernel.errors import GateRejected, NoPerson, UsageError
from prose_kernel.language.text import escaped
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime.asker import Button, Form
from prose_kernel.runtime.journal import Approved, approved
from prose_kernel.runtime.journal_records import answers_of
from prose_kernel.runtime.ports import GateDecision
from prose_kernel.storage.gates.records import Approval

if TYPE_CHECKING:
    from prose_kernel.runs.resumption import Resumption
    from prose_kernel.runtime.services import Asker

_APPROVED: Final[dict[str, set[Approved]]] = {}

Place = Literal["terminal", "cell"]
How = Place | Literal["option", "journal"]
"""How an approval was confirmed: by the person who was asked, with `--yes`, or by the setting `[gates] resume`."""


def approved_in_process(run: str, *, branch_of: str | None = None) -> set[Approved]:
    """Return the approvals of a run that people have given in this process; a branch begins with its origin's."""
    if run not in _APPROVED:
        _APPROVED[run] = set(_APPROVED.get(branch_of, ())) if branch_of is not None else set()
    return _APPROVED[run]


class EarlierApprovals(Struct):
    """The approvals of a run's earlier processes: `found` in the journal, and `given` before the run began.
    `confirmed` says how they were confirmed, None before."""

    run: str
    found: list[tuple[Approval, Approved]] = field(default_factory=list)
    given: list[Approval] = field(default_factory=list)
    confirmed: How | None = None

    @property
    def all(self) -> list[Approval]:
        return [approval for approval, _ in self.found] + self.given

    @property
    def decisions(self) -> dict[str, bool]:
        """The confirmed approvals that were given before the run began. They decide later gates."""
        return {one.gate: True for one in self.given} if self.confirmed is not None else {}

    def take(self) -> list[Approval]:
        """Return the approvals from the journal; the next call returns none."""
        taken, self.found = [one for one, _ in self.found], []
        return taken

    async def confirm(self, asker: Asker, given: Mapping[str, bool], how: Place | None, *, believe: bool) -> None:
        """Have every approval confirmed by `given` (`--yes`, `--no`), by the setting (`believe`), or by the person in
        one question (`how` is the place of the question, None if no person can be asked).

        Raises `GateRejected` if they are not confirmed, and `UsageError` for a gate that `--no` names.
        """
        if self.confirmed is not None or not self.all:
            return
        if refused := next((one for one in self.all if given.get(one.gate) is False), None):
            hint = f"--from {refused.key} begins a branch of the run before it" if refused.key else None
            raise UsageError(f"--no {refused.gate}: run {self.run} has passed this gate", hint=hint)
        open_ones = [one for one in self.all if not given.get(one.gate)]
        if believe:
            asker.show(f"Approvals taken over from the journal of run {self.run}, unconfirmed:\n{_listed(self.all)}")
            self._set_confirmed("journal")
        elif not open_ones:
            self._set_confirmed("option")
        elif how is None:
            raise self._no_person(open_ones)
        elif await self._ask(asker, open_ones):
            self._set_confirmed(how)
        else:
            hint = "resume it once more to be asked again; --from PLACE begins a branch before a gate"
            raise GateRejected(f"the earlier approvals of run {self.run} were not confirmed; nothing ran", hint=hint)

    async def _ask(self, asker: Asker, left: list[Approval]) -> bool:
        from prose_kernel.storage.gates.answers import decided

        many = "these approvals" if len(left) > 1 else "this approval"
        text = f"Run {self.run} continues with {many} of an earlier process:\n{_listed(left)}"
        buttons = Button("Approve again", "approve"), Button("Reject", "reject")
        form = Form("gate", f"earlier approvals of run {self.run}", buttons, None, text)
        async with getattr(asker, "turn", contextlib.nullcontext)():
            try:
                return (await decided(asker, f"{text}\napprove or reject? ", form)).approved
            except EOFError:
                return False
            except NoPerson:
                raise self._no_person(left) from None

    def _no_person(self, left: list[Approval]) -> GateRejected:
        names = dict.fromkeys(one.gate for one in left)
        options = " ".join(f"--yes {shlex.quote(escaped(name))}" for name in names)
        return GateRejected(
            f"run {self.run} continues only when its earlier approvals are confirmed:\n{_listed(left)}",
            hint=f"confirm them with {options}, or resume the run where you can be asked",
            no_answer=True,
        )

    def _set_confirmed(self, how: How) -> None:
        self.confirmed = how
        approved_in_process(self.run).update(known for _, known in self.found)


def earlier_approvals(how: Resumption) -> EarlierApprovals:
    """Return the approvals of a run's earlier processes that are not confirmed in this one. Raises `UsageError` for an
    approval without the name of a gate."""
    head = how.head
    ids = tuple(run_id.encode() for run_id in (head.run, *head.branch_of))
    here = approved_in_process(head.run)
    found = EarlierApprovals(head.run)
    for one, known in _approvals(how, ids):
        if known not in here:
            found.found.append((one, known))
    began = datetime.fromisoformat(head.started).timestamp() * 1000 if head.started else 0
    names = {one.gate for one in found.all}
    for name, approves in head.decisions.items():
        if approves and not name.strip():
            raise how.journal.damaged(0)
        if approves and name not in names and ("", name, "", b"") not in here:
            found.given.append(Approval(name, name, "", GateDecision("approved", "user", source="option"), int(began)))
    return found


def _approvals(how: Resumption, ids: tuple[bytes, ...]) -> Iterator[tuple[Approval, Approved]]:
    for number, gate, record in answers_of(how.journal.records(1, how.rewind), "gate"):
        decision = codec.readable(record.value, GateDecision)
        if decision is not None and decision.status == "approved":
            if not gate.gate.strip():
                raise how.journal.damaged(number)
            one = Approval(gate.gate, gate.record or gate.gate, gate.text, decision, record.t, gate.key)
            yield one, approved(gate, record.value, ids)


def _listed(approvals: Sequence[Approval]) -> str:
    return "\n".join(f"  {one.line}" for one in approvals)
