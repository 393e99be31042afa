"""The run of one notebook: its workspace and settings, and how it is restored, ended and interrupted.

`cells.Cells` runs the cells in it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from prose_kernel.errors import ResumeMismatch, RunError, UsageError
from prose_kernel.notebook.notebook_files import in_notebook
from prose_kernel.runs import languages
from prose_kernel.runs.provenance import Provenance

if TYPE_CHECKING:
    from prose_kernel.runs.context import SuppliedValues
    from prose_kernel.runs.languages import Language, Programs
    from prose_kernel.runs.resumption import Resumption
    from prose_kernel.runs.run import Run
    from prose_kernel.runs.run_machines import BoundName, Defined
    from prose_kernel.runs.settings import Settings
    from prose_kernel.runs.workspace import Workspace
    from prose_kernel.runtime.services import Asker
    from prose_kernel.runtime.statement_hook import StatementHook
    from prose_kernel.runtime.values import Value
    from prose_kernel.storage.journal_reading import JournalRead
    from prose_kernel.views.run_record import RunRecord


class LastRun(Struct):
    """A cell of the current run. `text` is its text when it last finished (None: never), `tried` its text when it last
    ran, `given` the Python variables that were passed to it."""

    language: Language
    text: str | None = None
    tried: str = ""
    given: tuple[str, ...] = ()


class NotebookRun:
    """The run of a notebook. All calls except `interrupt` belong to one event loop.

    `cwd` is the notebook's directory, `language` the language of cells that name none. `overrides` are settings that
    magics have changed.
    """

    def __init__(self, cwd: Path, asker: Asker, language: Language | None = None) -> None:
        self.cwd = cwd
        self.asker = asker
        self._kernel_language = language or languages.default()
        self.overrides: dict[str, Any] = {}
        self.started_workspace: Workspace | None = None  # the workspace, once it exists
        self._stopped: Resumption | None = None  # a restored run whose last text was interrupted
        self.unrestored: Path | None = None  # the journal of a run to restore before the next cell
        self._given: SuppliedValues | None = None  # inputs and decisions given to that run in this process
        self._task: asyncio.Task[object] | None = None  # the running cell
        self._loop: asyncio.AbstractEventLoop | None = None
        self._in_program = False
        self._record: RunRecord | None = None
        self.ran: dict[object, LastRun] = {}  # by cell, in the order in which they first ran
        self.provenance = Provenance()
        self.last_journal: Path | None = None  # of the run that ended last
        self._hooks: list[StatementHook] = []

    @cached_property
    def language(self) -> Language:
        """The language of cells that name none, in the profile that the notebook's metadata names at first use."""
        path = self.notebook_path
        return in_notebook(self._kernel_language, Path(self.cwd, path)) if path else self._kernel_language

    @property
    def settings(self) -> Settings:
        """The settings in force. Raises `UsageError` if one is invalid."""
        from prose_kernel.runs import settings

        return settings.load(self.cwd, None, **self.overrides)

    @property
    def workspace(self) -> Workspace:
        """The workspace, made at first use. Raises `UsageError` if a setting is invalid."""
        if self.started_workspace is None:
            self.started_workspace = self._new_workspace()
            self._hook(self.started_workspace)
            self.provenance.listen(self.started_workspace)
        return self.started_workspace

    def _new_workspace(self) -> Workspace:
        from prose_kernel.runs.workspace import Start, Workspace

        start = Start(self.cwd, notebook_path=self.notebook_path, language=self.language)
        return Workspace(self.settings, start, asker=self.asker)

    def _hook(self, workspace: Workspace) -> None:
        for hook in self._hooks:
            workspace.add_hook(hook)

    def add_hook(self, hook: StatementHook) -> None:
        """Call a hook before each statement, in this and later runs."""
        self._hooks.append(hook)
        if self.started_workspace is not None:
            self.started_workspace.add_hook(hook)

    def remove_hook(self, hook: StatementHook) -> None:
        self._hooks.remove(hook)
        if self.started_workspace is not None:
            self.started_workspace.remove_hook(hook)

    @property
    def current(self) -> Run | None:
        """The run, once it has started."""
        return self.started_workspace.current if self.started_workspace is not None else None

    def choose(self, **overrides: object) -> None:
        """Set the providers of sessions and conditions, and the recording mode (`settings.ANSWER_SOURCES`), for this
        and later runs.

        Raises `UsageError` for invalid values; then nothing has changed.
        """
        before, workspace = dict(self.overrides), self.workspace
        former = workspace.settings.answer_sources
        self.overrides.update(overrides)
        try:
            workspace.choose(**self.settings.answer_sources)
            _ = workspace.opened.services  # making the services checks the values before the first cell
        except UsageError:
            self.overrides = before
            if workspace.settings.answer_sources != former:
                workspace.choose(**former)
            raise

    async def connect(self, address: str) -> None:
        """Run commands on the machines at `address` (`off`: on this machine), in this and later runs. If it raises
        `UsageError`, nothing has changed."""
        await self.workspace.connect(address)
        self.overrides["remote"] = address

    @property
    def notebook_path(self) -> str:
        """The notebook's path, as Jupyter reports it; "" if it does not."""
        return os.environ.get("JPY_SESSION_NAME", "")

    @property
    def directory(self) -> Path:
        """The directory in which commands run."""
        return self.started_workspace.cwd if self.started_workspace is not None else self.cwd

    def programs(self, language: Language) -> Programs:
        """Return the imports of texts in a language; works before the run begins, too."""
        if self.started_workspace is not None:
            return self.started_workspace.imports.of(language)
        from prose_kernel.runs.imported_programs import contract_of

        notebook = Path(self.cwd, self.notebook_path) if self.notebook_path else None
        return language.programs(self.cwd, program=contract_of(notebook), profile=self.settings.profile)

    def targets(self, language: Language) -> Any:
        """Return the possible targets of `call` in a cell of a language; None for a language without calls."""
        profile = language.profile or self.settings.profile
        if profile not in languages.WITH_CALLS:
            return None
        known = self.started_workspace.machine_of(language).known() if self.started_workspace is not None else None
        return language.targets(self.programs(language).load_contract, profile, known)

    @property
    def record(self) -> RunRecord:
        """A short summary of the cells of the run."""
        if self._record is None:
            from prose_kernel.views.run_record import RunRecord

            self._record = RunRecord()
        return self._record

    def names(self) -> Mapping[str, BoundName]:
        """Return the bound names of the run, in both languages; none before the first cell."""
        return self.started_workspace.bindings() if self.started_workspace is not None else {}

    def definitions(self) -> Sequence[Defined]:
        """Return the definitions of the run's texts, in both languages."""
        return self.started_workspace.definitions() if self.started_workspace is not None else ()

    def values(self) -> Mapping[str, Value]:
        """Return the values of these names."""
        return self.started_workspace.values() if self.started_workspace is not None else {}

    # ------------------------------------------------------------ restoring and ending it

    def check_restorable(self) -> None:
        """Raise `UsageError` if no run can be restored."""

    async def restore(self, resumption: Resumption, decisions: Mapping[str, bool] | None = None) -> None:
        """End the current run and restore another one, which the next cell continues. `decisions` confirm its
        approvals beforehand. Call `workspace.flush` afterwards to write its state.

        Raises `UsageError` if another process runs it, `GateRejected` if its approvals are not confirmed, and
        `ResumeMismatch`; then there is no run.
        """
        from prose_kernel.runs.settings import original_settings
        from prose_kernel.runs.workspace import Start, Workspace

        await self.end()
        head = resumption.head
        start = Start(
            Path(head.directory),
            supplied=head.supplied,
            decisions=decisions or {},
            notebook_path=head.notebook_path,
            language=languages.LANGUAGES[head.language],
        )
        state_dir = resumption.state_dir or self.settings.state_dir
        settings = self.settings.changed(**original_settings(head.settings), state_dir=state_dir)
        workspace = self.started_workspace = Workspace(settings, start, asker=self.asker, resumption=resumption)
        self._hook(workspace)
        self.provenance = Provenance(self.provenance)
        self.provenance.listen(workspace)
        self._in_program = True
        last = resumption.journal.texts[-1].ended if resumption.journal.texts else None
        self._stopped = resumption if last is not None and last.status == "interrupted" else None
        self.ran = {
            text.record.number: LastRun(languages.of_text(text.record.language, text.record.profile), text.record.text)
            for text in resumption.journal.texts
            if text.ended is not None and text.ended.status == "done"
        }
        try:
            await workspace.replay()
            self.provenance.end_outer_text()
        except BaseException:
            await self.end()
            raise
        finally:
            self._in_program = False

    async def end(self) -> None:
        """End the run and all its processes; the next cell starts a new run."""
        workspace, self.started_workspace, self._stopped = self.started_workspace, None, None
        self.unrestored = None
        self._record, self.provenance, self.ran = None, Provenance(self.provenance), {}
        if workspace is not None:
            self._remember_journal(workspace)
            await workspace.close()

    def _remember_journal(self, workspace: Workspace) -> None:
        if workspace.current is not None:
            self.last_journal = workspace.current.journal_file or self.last_journal

    async def reset(self) -> None:
        """End the run and forget every name; the next cell starts a new run in the notebook's directory."""
        self._record, self.ran, former = None, {}, self.provenance
        self.unrestored = None
        if self.started_workspace is not None:
            self._remember_journal(self.started_workspace)
            self.started_workspace.remove_listener(former)
            self.provenance = Provenance(former)
            self.provenance.listen(self.started_workspace)
            await self.started_workspace.reset()

    async def _continue_with(self, text: str, language: Language) -> None:
        """Continue at the point of interruption if the restored run ended with an interrupt of this text: its finished
        statements are not run again."""
        run = self.current
        if run is not None and run.journal is not None and run.journal.abandoned:
            # The run was interrupted while its records were replayed, so it can make no more requests.
            await self._restored_from(run.journal.path)
        resumption, self._stopped = self._stopped, None
        if resumption is None:
            return
        from prose_kernel.runs.resumption import interrupted_at

        last = resumption.journal.texts[-1].record
        if (last.text, last.language, last.profile) == (text, language.name, language.profile or ""):
            try:
                await self._restored_from(resumption.journal.path, interrupted_at)
            finally:
                self._stopped = None

    async def restore_former(self) -> None:
        """Restore the run whose restoring failed or was interrupted, if any. Raises the errors of `_restored_from`."""
        if self.unrestored is None:
            return
        before, self._task, self._loop = self._task, asyncio.current_task(), asyncio.get_running_loop()
        try:
            await self._restored_from(self.unrestored)
        finally:
            self._task = before

    async def _restored_from(self, path: Path, rewind: Callable[[JournalRead], int | None] = lambda _: None) -> None:
        """Restore this notebook's run again, up to the record that `rewind` returns (None: to its end). Inputs and
        decisions given in this process remain valid. Raises `StateError` if the restored run cannot be written, and the
        errors of `restore_instead`."""
        from prose_kernel.runs.resumption import Resumption
        from prose_kernel.storage.journal_reading import read

        opening = self.provenance.calling
        if self.started_workspace is not None:
            latest = self.started_workspace.context.given
            if self.unrestored is None or self._given is None:
                self._given = latest
            else:  # this workspace was made after the run could not be restored
                self._given.take_over(latest)
        given = self._given

        def how() -> Resumption:
            journal = read(path)
            return Resumption(journal, rewind=rewind(journal))

        await self.restore_instead(path, how)
        if given is not None:
            self.workspace.context.given.take_over(given)
        if opening is not None:
            self.provenance.begin(opening)
        await self.workspace.flush()

    async def restore_instead(self, former: Path, how: Callable[[], Resumption]) -> None:
        """End the current run, whose journal is `former`, and restore another one. If this is interrupted or fails, the
        next cell restores the former run to its end. Raises the errors of `restore`."""
        ending = asyncio.ensure_future(self.end())
        try:
            await asyncio.shield(ending)
            await self.restore(how())
        except ResumeMismatch:  # another attempt would fail in the same way; the next cell begins a new run
            raise
        except (asyncio.CancelledError, RunError, UsageError) as error:
            # The run could not be recorded, so that it can make no more requests, or another process uses it.
            try:
                await asyncio.shield(ending)
            finally:
                self.unrestored = former
            if isinstance(error, UsageError) and error.hint is None:
                error.hint = "%reset begins a new run"
            raise

    # ------------------------------------------------------------ interrupt

    @property
    def running(self) -> bool:
        return self._task is not None

    def interrupt(self) -> None:
        """End the running cell, if any; may be called from any thread. A second call also ends its `finally` bodies."""
        workspace, task, loop = self.started_workspace, self._task, self._loop
        if task is None or loop is None:
            return

        def cancel() -> None:
            if self._task is not task:
                return  # the cell has ended: the task must finish what follows it
            if self._in_program and self.started_workspace is not None:
                self.interrupt()  # the program has begun meanwhile
            else:
                task.cancel()

        if self._in_program and workspace is not None:
            workspace.interrupt()
        else:
            loop.call_soon_threadsafe(cancel)
