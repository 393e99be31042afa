"""Resume a run from its journal, or begin a branch of it (docs/how-to/durability.md).

`Resumption` says where a run continues; `ResumeSteps` takes the steps before it does. `cli/run_resume.py` finds the run
and checks whether its text has changed, because only the command line knows the program file.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Raw, Struct

from prose_kernel.errors import StoreFailed, UsageError
from prose_kernel.language.structs import replace
from prose_kernel.runs.earlier_approvals import EarlierApprovals, Place, approved_in_process, earlier_approvals
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime.journal_records import (
    NOTHING,
    Answered,
    Asked,
    Completed,
    Ended,
    Head,
    Interrupted,
    Noted,
    Repeated,
    Step,
    StepEnded,
    Text,
    answers_of,
)
from prose_kernel.runtime.journal_replay import DirectoryMove, UnderWay
from prose_kernel.runtime.journal_requests import WORK
from prose_kernel.runtime.open_request import repeats_all_steps
from prose_kernel.runtime.ports import CommandResult
from prose_kernel.storage import file_history
from prose_kernel.storage.journal_file import changing
from prose_kernel.storage.journal_reading import NAME, JournalRead, read
from prose_kernel.storage.run_paths import STATE, VVM, new_run_id, runs_directories

if TYPE_CHECKING:
    from prose_kernel.runs.context import RunContext
    from prose_kernel.runs.settings import Settings
    from prose_kernel.runtime.ports import Clock
    from prose_kernel.storage.gates.deciding import Gatekeeper

_BRANCH: Final = re.compile(r"([bi])\d+(~\d+)?")
"""The step of a path into a branch. Branches of the same construct differ only in the first number."""
_AFTERWARDS: Final = [b'{"k":"%b"' % kind for kind in (b"asked", b"answered", b"completed", b"noted")]


class Resumption(Struct, frozen=True):
    """A run to be resumed. Made by `resumption`.

    - `under_way`: what happens to requests that had no answer when the run ended.
    - `rewind`: the number of the first record that is dropped: the first failure that ended the run, or its interrupt.
    - `cause`: the request of that failure.
    - `failed`: further failed requests, whose failures the program had not received or not handled.
    - `kept`: the results after `rewind` that the run keeps (`kept_after`).
    - `keeps_texts`: a text that differs from the recorded one is an error; otherwise it replaces the recorded one.
    - `cwd`: the directory in which the run continues, None if it is the original one.
    """

    journal: JournalRead
    under_way: UnderWay = "rerun"
    rewind: int | None = None
    cause: Asked | None = None
    failed: tuple[Asked, ...] = ()
    kept: Sequence[Completed] = ()
    keeps_texts: bool = False
    cwd: Path | None = None

    @property
    def head(self) -> Head:
        return self.journal.head

    @property
    def moved(self) -> DirectoryMove | None:
        """The original and the new directory of the run; None if it continues in the original one."""
        return DirectoryMove(self.head.directory, str(self.cwd)) if self.cwd is not None else None

    @property
    def directory(self) -> Path:
        """The directory of the run's files."""
        return self.journal.path.parent

    @property
    def state_dir(self) -> str | None:
        """The state directory of the run, relative to its working directory if it is inside; None for a run of VVM,
        whose files are elsewhere."""
        directory, base = self.directory.resolve().parent.parent, Path(self.cwd or self.head.directory).resolve()
        if directory.name == VVM:
            return None
        return str(directory.relative_to(base)) if directory.is_relative_to(base) else str(directory)

    @property
    def earlier_journal(self) -> Path | None:
        """The journal of the earlier run whose answers this one may use; None if there is none."""
        head = self.head
        if not head.changed or head.branch_at or not head.branch_of:
            return None
        return self.directory.with_name(head.branch_of[-1]) / NAME

    @property
    def again(self) -> frozenset[str]:
        """The keys of the failed requests that are made again."""
        return frozenset(asked.key for asked in (self.cause, *self.failed) if asked is not None)

    @property
    def answers(self) -> int:
        """The number of answers that the run keeps."""
        return self.journal.answers(self.rewind, self.again, [record.key for record in self.kept])

    @property
    def ended_texts(self) -> list[Text]:
        """The texts of the run that have ended, in order."""
        return [text.record for text in self.journal.texts if text.ended is not None]

    @property
    def interrupted_text(self) -> Text | None:
        """The text that was running when the run ended, if one was."""
        last = self.journal.texts[-1] if self.journal.texts else None
        return last.record if last is not None and last.ended is None else None

    @property
    def complete(self) -> bool:
        """Whether the run has ended, successfully or by an error of the program itself, with nothing left to do."""
        finished, last = self.journal.finished, self.journal.texts[-1].ended if self.journal.texts else None
        if finished is None and (last is None or self.head.notebook):
            return False
        if finished is not None and finished.status == "done":
            return True
        return last is not None and (last.status == "done" or (last.status == "failed" and self.rewind is None))

    @property
    def over(self) -> bool:
        """Whether the run is complete and can't continue. A notebook's run can: it may get further cells."""
        return self.complete and not self.head.interactive


def resumption(journal: JournalRead | Path, under_way: UnderWay = "rerun") -> Resumption:
    """Return the state from which to resume a run. A run that ended with an error of the program itself will end with
    that error again. Raises `UsageError` if the journal can't be used."""
    if not isinstance(journal, JournalRead):
        journal = read(journal)
    journal.require_whole()
    last, interactive = journal.texts[-1].ended if journal.texts else None, journal.head.interactive
    ends: dict[str, int] = {}
    if last is None or not (interactive or last.status == "done"):
        # A text that was killed while an interrupt or a store failure ended it resumes before that record.
        ends = _ends(journal, last)
    if not ends:
        return Resumption(journal, under_way, keeps_texts=not interactive)
    rewind, first = min((number, key) for key, number in ends.items())
    asked = _asked_before(journal, rewind, [key for key in ends if key])
    kept = kept_after(journal, ends)
    cause = asked.get(first)
    failed = {key: asked[key] for key in sorted(ends, key=ends.__getitem__) if key in asked}
    if cause is not None:
        failed |= {one.key: one for one in _failed_requests(journal, rewind)}
    again = tuple(one for key, one in failed.items() if key != first and all(key != done.key for done in kept))
    return Resumption(journal, under_way, rewind, cause, again, kept, keeps_texts=not interactive)


def _ends(journal: JournalRead, last: Ended | None) -> dict[str, int]:
    """Return the record numbers of the answers that made the text fail, by their requests' keys, or the number of its
    interrupt, with the key "".

    If the end of the text is not recorded (`last` is None), the text failed if its store failed, because a program
    can't catch that.
    """
    if not journal.texts:
        return {}
    found: dict[str, int] = {}
    causes = [last.cause, *(last.failed or ())] if last is not None and last.status == "failed" and last.cause else []

    def fails(key: str, error: Raw) -> bool:
        return not found and codec.is_store_failure(error) if last is None else key in causes

    for number, record in journal.records(journal.texts[-1].number, holding=_byte_patterns(last, causes)):
        match record:
            case Answered(key=key, error=error) | Noted(key=key, value=error) if fails(key, error):
                found[key] = number
            case Interrupted() if not found and (last is None or last.status == "interrupted"):
                found[""] = number
    return found


def _asked_before(journal: JournalRead, before: int, keys: Collection[str]) -> dict[str, Asked]:
    """Return those of these requests that were made before the record `before`, by key."""
    forms = [form for key in keys for form in _encoded_forms(key)]
    records = journal.records(1, before, forms) if forms else ()
    return {one.key: one for _, one in records if isinstance(one, Asked) and one.key in keys}


def kept_after(journal: JournalRead, ends: Mapping[str, int]) -> list[Completed]:
    """Return the results of commands, sessions and judgements that are kept when the records from the first of `ends`
    on are dropped: for requests made before it, and for later ones of other branches, which don't depend on `ends`.

    A failure is kept if the program had received and handled it: code that ran because of it is not repeated. The
    journal of a killed run, or of an earlier version, doesn't show that; then the requests that failed are made again.
    """
    rewind, ended = min(ends.values()), journal.texts[-1].ended
    shows_handled = ended is not None and ended.failed is not None
    failed, asked = [key for key, number in ends.items() if number == rewind], dict[str, Asked]()
    found = dict[str, Completed]()
    for _, record in journal.records(rewind + 1, holding=_AFTERWARDS):
        match record:
            case Asked(key=key) if all(_are_siblings(key, other) for other in failed):
                asked[key] = record
            case Noted(key=key, value=error) if codec.is_store_failure(error):
                failed.append(key)
            case Answered(cancelled=False) | Completed():
                key, done = record.key, Completed(record.key, record.value, record.error, record.aside, record.t)
                found.pop(key, None)
                has_failed, received = _has_failed(done), isinstance(record, Answered)
                if received and (key in ends or (has_failed and not shows_handled)):
                    failed.append(key)
                elif received or not has_failed:
                    found[key] = done
    before = _asked_before(journal, rewind, found.keys() - asked.keys())
    return [
        replace(done, digest=asked[key].digest) if key in asked else done
        for key, done in found.items()
        if (one := asked.get(key) or before.get(key)) is not None and one.kind in WORK
    ]


def _are_siblings(key: str, other: str) -> bool:
    """Return whether two requests were made in different branches of the same construct."""
    for one, two in zip(key.split("/")[:-1], other.split("/")[:-1], strict=False):
        if one != two:
            first, second = _BRANCH.fullmatch(one), _BRANCH.fullmatch(two)
            return first is not None and second is not None and first.groups() == second.groups()
    return False


def attempts_after(how: Resumption) -> Iterator[Repeated]:
    """Yield a record for each time that a command or session was made after `rewind` and is not kept, because attempts
    are counted."""
    kept = {one.key for one in how.kept if one.digest}
    for _, one in how.journal.records(how.rewind or 0, holding=[b'{"k":"asked"', b'{"k":"repeated"']):
        match one:
            case Asked(key=key) if key in kept:
                continue
            case Asked(key=key, kind="command"):
                yield Repeated(key.partition("#")[0], one.t)  # its attempts share one path
            case Asked(key=key, kind="session") | Repeated(key=key, due=False):
                yield Repeated(key, one.t)


def _failed_requests(journal: JournalRead, before: int | None) -> Iterator[Asked]:
    """Yield the requests that had failed before the record `before`, while their branches waited for their turn."""
    for asked, last in journal.unanswered(before):
        if isinstance(last, Completed) and _has_failed(last):
            yield asked


def _has_failed(done: Completed) -> bool:
    result = codec.readable(done.value, CommandResult) if done.error == NOTHING else None
    return done.error != NOTHING or (result is not None and result.kind is not None)


def repetitions(how: Resumption, now: int) -> Iterator[Repeated]:
    """Yield a record for each failed request that is due to be made again."""
    steps: dict[str, list[Step | StepEnded]] = {key: [] for key in sorted(how.again)}
    for _, one in how.journal.records(1, how.rewind, [b'{"k":"step']) if steps else ():
        if isinstance(one, (Step, StepEnded)) and one.key in steps:
            steps[one.key].append(one)
    for key, made in steps.items():
        yield Repeated(key, now, afresh=repeats_all_steps(made), due=True)


def _byte_patterns(last: Ended | None, causes: Sequence[str]) -> list[bytes]:
    """Return byte strings, at least one of which is in each record that may have ended a text like `last`. Records
    without any of them need not be decoded."""
    if last is not None and last.status == "failed":
        return [form for key in causes for form in _encoded_forms(key)]
    return [b'{"k":"interrupted"', *([StoreFailed.__name__.encode()] if last is None else ())]


def _encoded_forms(key: str) -> list[bytes]:
    """Return the encoded forms that a key may have in a record (`journal_codec.dumps`)."""
    return [codec.dumps(key), json.dumps(key).encode()]


def refuse_dry_run(settings: Settings) -> None:
    """Raise `UsageError` if the provider is `dry-run`: it would overwrite kept values with placeholders."""
    if settings.provider == "dry-run":
        raise UsageError("a dry run resumes nothing", hint="choose another provider, or dry-run the program")


def interrupted_at(journal: JournalRead) -> int | None:
    """Return the number of the record with the last text's interrupt; None if there was none."""
    return _ends(journal, Ended(0, "interrupted")).get("")


def imported_texts(journal: JournalRead) -> dict[str, str]:
    """Return the texts of all programs that the run imported, directly or indirectly, by address.

    For a program that was imported twice, this is the later text. Raises `UsageError` if the journal's file can't be
    used.
    """
    found: dict[str, str] = {}
    for _, _, record in answers_of(journal.records(1), "import"):
        found.update(codec.readable(record.value, dict[str, str]) or {})  # the replay reports a damaged record
    return found


# ---------------------------------------------------------------- branches


def record_at(journal: JournalRead, at: str) -> int:
    """Return the number of the first record of a cell (`c3`) or of a statement's requests (`c1/4`).

    Raises `UsageError` if there is none.
    """
    near: list[str] = []
    for number, record in journal.records(1):
        match record:
            case Text() if at == f"c{record.number}":
                return number
            case Asked(key=key):
                if key == at or key.startswith((f"{at}/", f"{at}#")):
                    return number
                near.append(key)
    shown = ", ".join([*near[:3], "…", *near[-3:]] if len(near) > 6 else near) or "nothing"
    cells = "c1" if len(journal.texts) == 1 else f"c1 to c{len(journal.texts)}"
    hint = f"it has the cells {cells}; its requests: {shown}"
    raise UsageError(f"run {journal.head.run} asked nothing at {at}", hint=hint)


def branch(journal: JournalRead, before: int, clock: Clock, state_dir: str = STATE) -> JournalRead:
    """Begin a new run with the records of this one up to the record `before`.

    The new directory is next to the original one, and its id is later than the ids of all runs in `state_dir`. Large
    values and answers that the journal refers to are copied; the replay restores the rest. Failures that the program
    had not received are left out, and results of requests that it had not made by then: those requests are made again.
    Raises `UsageError` if the run can't be written.
    """
    journal.require_whole(before)
    head, directory = journal.head, journal.path.parent
    directories = [directory.parent, *runs_directories(Path(head.directory), state_dir)]
    run_id, started = new_run_id(clock, directories), clock.now()
    known = {one.key for _, one in journal.records(1, before, [b'{"k":"asked"']) if isinstance(one, Asked)}
    known -= {asked.key for asked in _failed_requests(journal, before)}
    numbered = [
        (number, record)
        for number, record in journal.records(1, before)
        if not isinstance(record, Completed) or record.key in known
    ]
    new = replace(
        head,
        run=run_id,
        started=f"{started:%Y-%m-%dT%H:%M:%S.%fZ}",
        branch_of=[*head.branch_of, head.run],
        branch_at=len(numbered) + 1,
        changed=False,
    )
    path = directory.with_name(run_id) / NAME
    of_vvm = directory.parent.parent.name == VVM
    answers = directory if of_vvm else Path(head.directory, VVM, "runs", head.run)
    failed_branch, why = contextlib.ExitStack(), f"no branch of run {head.run} can be begun"
    with failed_branch, changing(path, why) as file:
        for made in (path.parent, answers.with_name(run_id)):
            failed_branch.callback(shutil.rmtree, made, ignore_errors=True)
        for source in (directory / "attachments", answers / "bindings"):
            if source.is_dir():
                shutil.copytree(source, source.parent.with_name(run_id) / source.name, dirs_exist_ok=True)
        file_history.copy(directory, path.parent, [number for number, _ in numbered], before)
        file.copy([new, *(record for _, record in numbered)])
        failed_branch.pop_all()
    approved_in_process(run_id, branch_of=head.run)
    return read(path)


# ---------------------------------------------------------------- before the run continues


class ResumeSteps:
    """The steps before a run continues, each taken once. `keeps`: a new run begins, which uses the answers of `how`."""

    def __init__(self, how: Resumption, *, keeps: bool = False) -> None:
        self._how = how
        self._keeps = keeps
        self._approvals: EarlierApprovals | None = None
        self._orphans_gone = False

    async def sweep(self) -> None:
        """End the processes that a killed process had started and its watchdog has not ended yet."""
        from prose_kernel.processes.tasks.ledger import sweep

        await asyncio.to_thread(sweep)

    async def confirm_approvals(self, context: RunContext) -> None:
        """Have the approvals of earlier processes confirmed, in one question.

        Raises `GateRejected` if they are not confirmed, and `UsageError`. Nothing of the run is open then.
        """
        if (self._how.over and not self._keeps) or self._approvals is not None:
            return
        found = await asyncio.to_thread(earlier_approvals, self._how)
        settings, start = context.settings, context.start
        place: Place = "cell" if start.notebook else "terminal"
        asks = settings.gates.mode != "deny" and context.asker.available
        believe = settings.gates.resume == "replay"
        await found.confirm(context.asker, start.decisions, place if asks else None, believe=believe)
        self._approvals = found
        context.given.decisions.update({**found.decisions, **start.decisions})

    async def log_approvals(self, gates: Gatekeeper) -> None:
        """Record in the log of each gate that its approval was taken over."""
        found = self._approvals
        if self._keeps:
            return  # the gates have no records in the new run
        if found is not None and found.confirmed is not None and (taken := found.take()):
            await gates.log_confirmed_approvals(taken, found.confirmed)

    async def wait_for_orphans(self, context: RunContext) -> None:
        """Wait until the commands that the killed process left running have ended."""
        if self._orphans_gone:
            return
        from prose_kernel.processes.watchdog import wait_for_run

        stop = threading.Event()
        try:
            gone = await asyncio.to_thread(wait_for_run, self._how.head.run, stop)
        finally:
            stop.set()
        self._orphans_gone = True
        if not gone:
            context.warnings.append("commands that a killed process has started cannot be ended, and may still run")
