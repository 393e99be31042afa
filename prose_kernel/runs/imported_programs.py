"""Find the programs that the texts of a workspace import, and fetch programs from a registry or a URL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from prose_kernel.language.contracts import SUFFIX
from prose_kernel.language.structs import replace
from prose_kernel.runs import languages
from prose_kernel.runs.lazy_objects import Once

if TYPE_CHECKING:
    from prose_kernel.programs.remote_programs import RemotePrograms
    from prose_kernel.runs.context import RunContext
    from prose_kernel.runs.languages import Language, Programs
    from prose_kernel.runs.settings import Settings
    from prose_kernel.runtime.ports import LoadedProgram, LoadRequest
    from prose_kernel.runtime.services import Asker


class Imports:
    """Finds imported programs. `context` is the initial context of the workspace.

    While a resumed run replays its records, texts come from the journal instead of files (amendment A56).
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._replayed = context.resumption is None
        self._recorded: dict[str, str] = {}
        self._lost: dict[str, str] = {}  # imports, with missing files, of the run whose answers are kept
        self._by_language: dict[str, Programs] = {}
        self.from_elsewhere: Once[RemotePrograms] = Once(self._resolver)
        """Returns the loader of fetched programs. Raises `UsageError` if the start trusts an invalid address, and
        `ImportProgramError` for an invalid registry."""
        self.on_load: Callable[[LoadedProgram], None] = lambda loaded: None
        """Called with each program that is loaded."""

    async def load(self, request: LoadRequest, language: Language) -> LoadedProgram:
        """Load an import of a running text in `language`."""
        programs = self.of(language)
        if self._lost and request.texts is None:
            request = replace(request, texts=self._lost)
        loaded = await programs.load_program(request)
        self.on_load(loaded)
        return loaded

    def of(self, language: Language) -> Programs:
        found = self._by_language.get(language.name)
        if found is None:
            found = self._by_language[language.name] = self._open(language)
        return found

    def end_replay(self) -> None:
        """Import the present files from now on: the run has replayed its records."""
        self._replayed = True
        self._recorded.clear()

    async def root(self) -> str:
        """Return the text of the program at the start's `origin`, when it may run. Raises `ImportProgramError` (E215),
        and `CompileError` if it has errors."""
        programs = cast("languages.RemotePrograms", self.of(self._context.language))
        return (await programs.load_root()).text

    def _open(self, language: Language) -> Programs:
        start = self._context.start
        file = None if start.origin else self._context.file
        if not self._replayed and not self._recorded and self._context.resumption is not None:
            from prose_kernel.runs.resumption import imported_texts

            self._recorded.update(imported_texts(self._context.resumption.journal))
        elif start.keep is not None:
            self._lost = start.keep.lost_imports()
        notebook = Path(start.cwd, start.notebook_path) if start.notebook_path else None
        return language.programs(
            start.cwd if file is None else file.parent,
            program=contract_of(file or notebook) or file,
            profile=self._context.settings.profile,
            resolver=self.from_elsewhere,
            origin=start.origin,
            texts=self._recorded or self._lost,
        )

    def _resolver(self) -> RemotePrograms:
        settings, start = self._context.settings, self._context.start
        writes = not self._context.state_setting_applies or settings.state.kind != "in-context"
        file = "" if start.origin else start.program_file
        found = remote_programs(settings, start.cwd, file, asker=self._context.asker, writes=writes)
        found.trust.add(start.trust, found.registry)
        return found


def remote_programs(
    settings: Settings,
    cwd: Path,
    program_file: str = "",
    *,
    asker: Asker | None = None,
    writes: bool = True,
    upgrade: bool = False,
) -> RemotePrograms:
    """Return the source of fetched programs: the project's pins, the user's cache, the servers. `asker` asks a person
    to consent to new programs; `writes`: consent is recorded in `prose.lock`."""
    from prose_kernel.programs.lock_file import LockFile, place_of
    from prose_kernel.programs.remote_programs import ProgramCache, RemotePrograms
    from prose_kernel.runtime.asker import serial

    cache = ProgramCache()
    return RemotePrograms(
        settings.programs,
        LockFile(place_of(cwd, program_file), cache.directory / "locks"),
        cache,
        asker=serial(asker) if asker is not None else None,
        writes=writes,
        upgrade=upgrade,
    )


def contract_of(notebook: Path | None) -> Path | None:
    """Return the contract file that a notebook shows: itself, or the file of the same name that it was made from."""
    if notebook is None or not notebook.name.endswith((SUFFIX, ".ipynb")):
        return None
    file = notebook.with_name(notebook.name.removesuffix(".ipynb").removesuffix(SUFFIX) + SUFFIX)
    return file if file.is_file() else None
