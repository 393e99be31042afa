"""The requests that a run repeats because it does not use their answers: for `--changed` those that a replay of the
records with the new text does not reach (amendment A57), for `prose runs repair` those after the damage (A56)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from msgspec import structs

from prose_kernel.run.replay import Replaying, ReplayListener, look_through
from prose_kernel.run.settings import Settings
from prose_kernel.runtime.journal_records import Answered, Asked, Record
from prose_kernel.storage.journal_file import JournalRead, TextRead

_KINDS: Final = ("command", "session", "gate", "input", "judge")
"""Requests that have effects or a cost, or that a person has answered, in the order in which they are listed."""


async def repeated_requests(found: JournalRead, text: str, before: int, settings: Settings) -> list[Asked]:
    """Return the answered requests whose answers a run of the changed text does not use, commands first.

    `text` replaces the last file's text; the run knows the records before the one with the number `before`. Nothing
    is asked or run. If the replay can't be completed, all answers after its last record count as unused. Raises
    `UsageError` when the journal's file can't be used.
    """
    found.require_whole(before)
    replaying = _ChangedText(found, text, before, settings)
    await replaying.run()
    return answered_from(replaying.differs_at, found.records(1, before))


def answered_from(begin: int, records: Iterable[tuple[int, Record]]) -> list[Asked]:
    """Return the requests that were answered in line `begin` or later, commands first.

    `records` are all of the run, with the numbers of their lines. An answer whose request is lost is left out.
    """
    asked: dict[str, Asked] = {}
    found: dict[str, Asked] = {}
    for number, record in records:
        match record:
            case Asked():
                asked[record.key] = record
            case Answered(key=key, cancelled=False) if number >= begin and key in asked:
                found[key] = asked[key]
    return sorted((one for one in found.values() if one.kind in _KINDS), key=lambda one: _KINDS.index(one.kind))


class _ChangedText(Replaying):
    """`differs_at` is the number of the first record that the changed program does not follow."""

    def __init__(self, found: JournalRead, text: str, before: int, settings: Settings) -> None:
        last = found.texts[-1]
        self.differs_at = 0
        self._before = before
        self._last = TextRead(structs.replace(last.record, text=text), last.number)
        changed = structs.replace(found.head, changed=True, branch_at=before)
        now = replace(found, head=changed, texts=[*found.texts[:-1], self._last], finished=None)
        super().__init__(now, look_through(found), settings, ReplayListener(), None)

    def _records(self) -> Iterator[tuple[int, Record]]:
        for number, record in self._found.records(1, self._before):
            self.differs_at = number
            yield number, self._last.record if number == self._last.number else record
        self.differs_at = self._before
