"""The machines of one run, whether it is live or replayed from its journal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from prose_kernel.access import plain_files
from prose_kernel.errors import UsageError
from prose_kernel.language.structs import replace
from prose_kernel.runs import languages
from prose_kernel.runtime.events import Listener
from prose_kernel.runtime.host import Host
from prose_kernel.runtime.ports import Commands, FoundRun, Ports, Races
from prose_kernel.runtime.values import Value

if TYPE_CHECKING:
    from prose_kernel.runs.context import RunContext
    from prose_kernel.runs.languages import Language
    from prose_kernel.runtime.machine import BindingInfo, Definition, Machine

_COPIES = ("root.prose.md", "program.prose")
_WITHOUT_NEEDS: Final = ("replay", "scripted", "dry-run")
"""The providers for which the tools and variables that a contract file needs may be missing."""


class BoundName(Struct, frozen=True):
    """A name of the run, and the language of the text that bound it."""

    info: BindingInfo
    language: Language

    @property
    def kind(self) -> str:
        """The kind of the binding, if the language has a word for it, and of its value: `let, number`."""
        declared, kind = self.language.declared.get(self.info.kind), self.language.kind_of(self.info.value)
        return f"{declared}, {kind}" if declared else kind


class Defined(Struct, frozen=True):
    """An agent, block, function or program that a text of the run defines, and the language of that text."""

    definition: Definition
    language: Language


def _find_run(context: RunContext, wanted: str) -> FoundRun:
    """Return the run with this id or directory, which is an input of a contract file (docs/reference/prose-md.md 1.6).
    Raises `UsageError` if there is none, or it has not ended."""
    from prose_kernel.storage.runs import find, places

    cwd = context.start.cwd
    path = Path(cwd, os.path.expanduser(wanted))
    where = places(cwd, context.settings.state_dir)
    run = find(where, str(path) if "/" in wanted else wanted)
    if run.state not in ("done", "failed", "interrupted"):
        raise UsageError(f"run {run.id} has not ended: it is {run.state}", hint="prose runs lists them")
    shown = os.path.relpath(run.directory, cwd)
    status = "completed" if run.state == "done" else run.state
    value = {"run": run.id, "path": shown, "root": run.program, "status": status}
    notes = [f"run {run.id} has {run.state}"] if status != "completed" else []
    copy = next((run.directory / name for name in _COPIES if (run.directory / name).is_file()), None)
    if copy is not None and run.program and _text(copy) != _text(cwd / run.program.partition("#")[0]):
        notes.append(f"{run.program} has changed since run {run.id}")
    return FoundRun(value, tuple(notes))


def _text(path: Path) -> str:
    try:
        return plain_files.read_text(path, errors="replace").removeprefix("\ufeff").rstrip()
    except OSError:
        return ""


class Machines:
    """The machines of a run: one for each language, made when its first text runs.

    They share ports, working directory, supplied values, beginning and end; `first` represents all of them.
    """

    def __init__(self, context: RunContext, language: Language, ports: Ports, listeners: Sequence[Listener]) -> None:
        start, self._settings = context.start, context.settings
        host = Host(
            ports,
            listeners,
            concurrency=self._settings.concurrency,
            load=context.load,
            supplied=context.given.supplied,
            find_run=partial(_find_run, context),
            contracts=self._settings.contracts,
            needs_checked=self._settings.provider not in _WITHOUT_NEEDS,
            pipefail=self._settings.exec.pipefail,
        )
        self.first = language.machine()(host, cwd=str(start.cwd), program_file=start.program_file, at=start.at)
        self._by_language: dict[str, Machine] = {}
        self._add(language, self.first)

    def _add(self, language: Language, machine: Machine) -> Machine:
        self._by_language[language.name] = machine
        language.configure(machine, self._settings)
        return machine

    def of(self, language: Language) -> Machine:
        found = self._by_language.get(language.name)
        return found or self._add(language, language.machine().sharing(self.first))

    def __iter__(self) -> Iterator[tuple[Language, Machine]]:
        for name, machine in self._by_language.items():
            yield languages.LANGUAGES[name], machine

    def use(self, commands: Commands, races: Races | None) -> None:
        """Replace these ports, from the next text on."""
        host = self.first.host
        host.ports = replace(host.ports, commands=commands, races=races)

    def bindings(self) -> dict[str, BoundName]:
        """Return all names of the run with their values and languages."""
        found: dict[str, BoundName] = {}
        for language, machine in self:
            for name, info in machine.bindings().items():
                if name not in found or not info.adopted:
                    found[name] = BoundName(info, language)
        return found

    def outputs(self) -> dict[str, tuple[Value, Language]]:
        """Return the outputs of the run's programs with their present values, and the language of each."""
        return {name: (value, language) for language, machine in self for name, value in machine.outputs().items()}

    def definitions(self) -> tuple[Defined, ...]:
        """Return the definitions of all texts of the run."""
        return tuple(Defined(one, language) for language, machine in self for one in machine.definitions())
