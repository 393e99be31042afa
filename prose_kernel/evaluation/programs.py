"""Prepare and check the programs of an evaluation's variants before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from prose_kernel.access import plain_files
from prose_kernel.errors import UsageError, reason_of, usage_errors
from prose_kernel.evaluation.dataset import EXPECTED, DatasetCase
from prose_kernel.evaluation.spec import Spec, Variant
from prose_kernel.language.diagnostics import Diagnostic
from prose_kernel.language.fixes import Edit, replaced
from prose_kernel.language.nearest import nearest_hint
from prose_kernel.language.source import Source
from prose_kernel.language.structs import replace
from prose_kernel.programs import missing_files
from prose_kernel.runs import languages, settings
from prose_kernel.runs.languages import Language
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.settings_reader import written
from prose_kernel.runs.toml_file import Key, TomlFile
from prose_kernel.runs.workspace import Workspace
from prose_kernel.runtime.json_data import json_text
from prose_kernel.runtime.session_options import ModelServer

if TYPE_CHECKING:
    from prose_kernel.runs.languages import Compiled

LARGEST: Final = 16 * 1024 * 1024


class ProgramText(Struct, frozen=True):
    """A text to run: a program, or a part of a notebook's cell."""

    text: str
    name: str
    language: Language


class Prepared(Struct, frozen=True, dict=True):
    """A variant that is ready to run: its texts and settings. `name` is the name of its program."""

    variant: Variant
    name: str
    language: Language
    source: tuple[ProgramText, ...]
    settings: Settings
    given: Mapping[str, Any]
    """Values of inputs and constants that are the same for all cases."""

    @property
    def is_notebook(self) -> bool:
        return self.name.endswith(".ipynb")

    @cached_property
    def _parsed(self) -> tuple[Compiled, ...]:
        return tuple(one.language.compile(Source.of(one.text, one.name), cell=True) for one in self.source)

    def _of_texts(self, names: Callable[[Language, Any], Iterable[str]]) -> tuple[str, ...]:
        """Return the results of `names` for all texts."""
        found = (names(one.language, p.program) for one, p in zip(self.source, self._parsed, strict=True))
        return tuple(chain.from_iterable(found))

    @cached_property
    def declared(self) -> tuple[str, ...]:
        """The inputs that the program asks for."""
        return self._of_texts(lambda language, program: language.inputs(program))

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The inputs that have no default."""
        return self._of_texts(lambda language, program: language.needed(program))

    @cached_property
    def constants(self) -> frozenset[str]:
        return frozenset(self._of_texts(lambda language, program: language.constants(program)))

    @cached_property
    def agents(self) -> tuple[str, ...]:
        return self._of_texts(lambda language, program: language.agents(program))

    def inputs(self, case: DatasetCase) -> dict[str, str]:
        values = {**self.given, **case.columns}
        return {name: _as_text(values[name]) for name in self.declared if name in values}

    def texts(self, case: DatasetCase) -> Sequence[ProgramText]:
        """Return the texts with the constants of a case."""
        wanted = {name: v for name, v in case.columns.items() if name in self._own_constants}
        return self._with(wanted) if wanted else self.source

    @cached_property
    def _own_constants(self) -> frozenset[str]:
        """The constants that columns may set: those in languages without inputs."""
        found: set[str] = set()
        for one, parsed in zip(self.source, self._parsed, strict=True):
            if not one.language.has_inputs:
                found.update(one.language.constants(parsed.program))
        return frozenset(found - {EXPECTED})

    def _with(self, values: Mapping[str, Any]) -> tuple[ProgramText, ...]:
        pairs = zip(self.source, self._parsed, strict=True)
        edits = ((one, tuple(_constant_edits(one.language, p.program, values))) for one, p in pairs)
        return tuple(replace(one, text=replaced(one.text, found)) if found else one for one, found in edits)

    def bind(self, workspace: Workspace, case: DatasetCase) -> None:
        """Bind the columns of a case, which a program in a language without inputs may use by name."""
        spoken = {one.language.name: one.language for one in self.source if not one.language.has_inputs}
        for language in spoken.values():
            for name, value in {**self.given, **case.columns}.items():
                if name not in self.constants and name != EXPECTED:
                    workspace.machine_of(language).adopt(name, value)

    def expression_error(self, workspace: Workspace, expression: str, names: Sequence[str]) -> Diagnostic | None:
        """Return the error of an expression that uses names of the program and `names`; None if it is correct."""
        language, text = self.language, "\n".join(one.text for one in self.source)
        if any(one.language is not language for one in self.source):
            return None  # errors are found when it is evaluated
        machine = workspace.machine_of(language)
        for name in names:
            machine.adopt(name, "")
        errors: list[Diagnostic] = []
        for before in language.expression_prefixes:
            probed = Source.of(f"{text}\n{before}{expression.strip()}\n", self.name)
            found = language.compile(probed, known=machine.known(), cell=True).diagnostics
            wrong = [one for one in found if one.severity == "error" and one.span.start > len(text)]
            if not wrong:
                return None
            errors = errors or wrong
        return errors[0] if errors else None

    def compiled(self, workspace: Workspace, text: ProgramText) -> Compiled:
        """Return a compiled text. Raises `CompileError`."""
        found = self._kept.get(text.text)
        if found is None:
            found = languages.without_errors(workspace.compile(text.text, text.name, text.language))
            if len(self.source) == 1 and text.language.has_inputs:  # compiling it again would give the same
                self._kept[text.text] = found
        return found

    @cached_property
    def _kept(self) -> dict[str, Compiled]:
        return {}


def _constant_edits(language: Language, program: Any, values: Mapping[str, Any]) -> Iterator[Edit]:
    places = language.constants(program)
    for name, value in values.items():
        if name in places:
            yield Edit(places[name], language.literal(value, name))


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json_text(value)


class VariantPreparer:
    """Prepares the variants of a specification. `overrides` are settings of the command line."""

    def __init__(self, spec: Spec, overrides: Mapping[str, Any]) -> None:
        self._spec = spec
        self._overrides = overrides
        self._directory = spec.path.parent

    def all(self) -> tuple[Prepared, ...]:
        """Return all variants. Raises `UsageError`."""
        return tuple(self._prepared(variant, n) for n, variant in enumerate(self._spec.variants))

    def _prepared(self, variant: Variant, number: int) -> Prepared:
        key: Key = ("variant", number)
        name = variant.program or self._spec.program
        at: Key = (*key, "program") if variant.program else ("program",)
        texts, language = self._read(name, at)
        chosen = self._settings(variant, key)
        given = {**self._spec.input, **variant.input}
        prepared = Prepared(variant, name, language, tuple(texts), chosen, given)
        prepared = self._with_agents(prepared, key)
        prepared = replace(prepared, source=prepared._with(given))
        for value in given:
            if value not in prepared.declared and value not in prepared.constants and language.has_inputs:
                where: Key = (*key, "input", value) if value in variant.input else ("input", value)
                known = (*prepared.declared, *prepared.constants)
                raise self._unknown(where, f"the program {name} has no input and no constant `{value}`", value, known)
        return prepared

    def _read(self, name: str, at: Key) -> tuple[Sequence[ProgramText], Language]:
        path = self._directory / name
        if not path.is_file():
            hint = missing_files.hint(name, languages.runnable_suffixes(), path=str(path))
            raise self._spec.mistake(at, f"there is no file {name}", hint)
        if name.endswith(".ipynb"):
            return _read_notebook(path, name)
        if not name.endswith(languages.suffixes()):
            kinds = ", ".join(languages.runnable_suffixes())
            raise self._spec.mistake(at, f"{name} is not a program", f"names end with {kinds}")
        language = languages.of_file(name)
        try:
            data = plain_files.read(path, LARGEST)
        except OSError as problem:
            raise self._spec.mistake(at, f"{name} cannot be read: {reason_of(problem)}") from None
        return [ProgramText(language.decode(data, name).text, name, language)], language

    def _with_agents(self, prepared: Prepared, key: Key) -> Prepared:
        for agent, properties in prepared.variant.agent.items():
            if agent not in prepared.agents:
                known = prepared.agents
                raise self._unknown((*key, "agent", agent), f"{prepared.name} has no agent `{agent}`", agent, known)
            pairs = zip(prepared.source, prepared._parsed, strict=True)
            try:
                texts = tuple(
                    replace(one, text=replaced(one.text, one.language.with_agent(p.program, agent, properties)))
                    for one, p in pairs
                )
            except UsageError as problem:
                raise self._spec.mistake((*key, "agent", agent), str(problem), problem.hint) from None
            prepared = replace(prepared, source=texts)
        return prepared

    def _unknown(self, key: Key, text: str, name: str, known: Sequence[str]) -> UsageError:
        hint = nearest_hint(name, known, f"there are {', '.join(known)}" if known else None)
        return self._spec.mistake(key, text, hint)

    def _settings(self, variant: Variant, key: Key) -> Settings:
        """Return the settings of a variant: those of prose.toml, overridden by the specification, the variant and the
        command line. Runs are kept in memory, without journal and telemetry. The recording of prose.toml is not used,
        because it belongs to ordinary runs."""
        chosen = settings.load(self._directory).changed(cassette=None)
        for table, at in ((self._spec.settings, ("settings",)), (variant.settings, (*key, "settings"))):
            chosen = self._changed(chosen, table, at)
        chosen = chosen.changed(**self._overrides)
        chosen = chosen.changed(state="in-context", vvm_state="in-context", journal="off", budget=None)
        chosen = chosen.changed(telemetry_otel=False, telemetry_log=None)
        return chosen.changed(cassette=chosen.cassette.name or self._spec.cassette or self._spec.path.stem)

    def _changed(self, chosen: Settings, table: Mapping[str, Any], at: Key) -> Settings:
        """Return settings with the changes of a table in the shape of prose.toml."""
        file = TomlFile("", "", table)
        values = settings.by_name(written(file, Settings))
        if file.problems:
            raise self._spec.mistake(at, str(file.problems[0]).partition(": ")[2], file.problems[0].hint)
        if "providers" in values:
            own, default = chosen.providers, ModelServer()
            stated = {name: server.over(own.get(name, default)) for name, server in values["providers"].items()}
            values["providers"] = {**own, **stated}
        return chosen.changed(**values)


def _read_notebook(path: Path, name: str) -> tuple[Sequence[ProgramText], Language]:
    """Return the texts of a notebook, cell by cell, and its language. Magics are left out: the specification replaces
    their settings. Raises `UsageError`."""
    from prose_kernel.notebook.cell_scan import draft_language, segments
    from prose_kernel.notebook.notebook_files import decoded, in_profile_of, language_of

    with usage_errors(f"cannot read {name}"):
        _, data = decoded(name, plain_files.read(path))
    metadata = data.get("metadata") or {}
    whole = language_of(metadata)
    default = whole or in_profile_of(languages.default(), metadata)
    found: list[ProgramText] = []
    codes = (cell for cell in data.get("cells", ()) if isinstance(cell, dict) and cell.get("cell_type") == "code")
    for number, cell in enumerate(codes, 1):
        source = cell.get("source", "")
        code = "".join(source) if isinstance(source, list) else str(source)
        language, text = draft_language(code, default)
        if whole is None and text is code:
            continue  # a Python cell
        found += [
            ProgramText(piece.text, f"cell {number}", language) for piece in segments(text, language) if not piece.magic
        ]
    if not found:
        raise UsageError(f"{name} has no cells for Prose")
    return found, default
