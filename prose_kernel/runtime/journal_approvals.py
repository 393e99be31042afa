"""Approvals of gates in a journal. An approval counts only if a person has given or confirmed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Raw

from prose_kernel.errors import ResumeMismatch
from prose_kernel.runtime.journal_records import Answered, Asked
from prose_kernel.runtime.requests import Described

Approved = tuple[str, str, str, bytes]
"""An approval in a journal: the key of its request, the name of the gate ("" in journals of earlier versions), the text
of the question, and the decision as it is written there. Ids of the run are left out."""

_HINT: Final = "resume the run once more: it lists the approvals, and asks"


class Approvals:
    """The approvals that count in a replay, because a person gave or confirmed them in this process. Later ones are
    added to `confirmed`. If it is None all recorded approvals count, for records that were never in a file. A
    `complete` run has ended: if one of its approvals isn't confirmed, no live request is made."""

    def __init__(self, confirmed: set[Approved] | None, run_ids: Sequence[bytes], *, complete: bool) -> None:
        self._confirmed = confirmed
        self._run_ids = run_ids
        self._complete = complete
        self._unconfirmed = False

    def add(self, described: Described, value: Raw) -> None:
        """Add an approval that a person gave in this process."""
        if self._confirmed is not None:
            self._confirmed.add(approved(described, value, self._run_ids))

    def passes(self, described: Described, answered: Answered) -> None:
        """Check a replayed approval before it opens its gate. Raises `ResumeMismatch` unless a person has given or
        confirmed exactly this one: commands can write the journal's file."""
        if self._confirmed is None or approved(described, answered.value, self._run_ids) in self._confirmed:
            return
        if not self._complete:
            raise _unconfirmed(described.gate)
        self._unconfirmed = True

    def require_confirmed(self, described: Described) -> None:
        """Raise `ResumeMismatch` before a live request if an unconfirmed approval was passed."""
        if self._unconfirmed:
            raise _unconfirmed(described.shown)


def approved(asked: Described | Asked, value: Raw, run_ids: Sequence[bytes]) -> Approved:
    """Return the approval `value` of a request in the form in which approvals are compared."""
    content = (asked.shown if isinstance(asked, Described) else asked.text).encode("utf-8", "surrogatepass")
    for run_id in run_ids:
        content = content.replace(run_id, b"*")
    return asked.key, asked.gate, content.decode("utf-8", "surrogatepass"), bytes(value)


def _unconfirmed(now: str) -> ResumeMismatch:
    message = "the journal holds an approval that no person has confirmed"
    return ResumeMismatch(message, details={"now": now}, hint=_HINT)
