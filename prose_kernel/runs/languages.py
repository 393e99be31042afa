"""The languages: a record for each, through which all other rooms use it.

The suffix of a file, the magic of a cell, or the kernel of a notebook decides the language of a text. The modules of a
language are imported when they are first used.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, cast

from msgspec import Struct, field

from prose_kernel.errors import CompileError, UsageError
from prose_kernel.language.contracts import PRIOR, is_contract
from prose_kernel.language.structs import replace

if TYPE_CHECKING:
    from prose_kernel.language import diagnostics
    from prose_kernel.language.diagnostics import Diagnostic, Profile
    from prose_kernel.language.fixes import Edit, Fix
    from prose_kernel.language.flow import FlowStep
    from prose_kernel.language.source import Source, Span
    from prose_kernel.language.symbols import SymbolIndex
    from prose_kernel.language.word_catalogue import Completion, WordEntry
    from prose_kernel.runs.settings import Settings
    from prose_kernel.runtime.budgets import Spending
    from prose_kernel.runtime.machine import Machine
    from prose_kernel.runtime.ports import JudgedText, LoadedProgram, LoadRequest
    from prose_kernel.runtime.values import Value

    Compiled = diagnostics.Compiled[Any]
    """A compiled text of any language."""


def without_errors(compiled: Compiled) -> Compiled:
    """Return the compiled text unchanged. Raises `CompileError` if it has errors."""
    if not compiled.ok:
        raise CompileError(compiled.diagnostics)
    return compiled


class Programs(Protocol):
    """Finds and reads the programs that a text imports; `load_contract` is for the language's compiler."""

    @property
    def load_contract(self) -> Callable[[str], Any]: ...

    async def load_program(self, request: LoadRequest) -> LoadedProgram: ...

    def file_of(self, path: str) -> Path | None:
        """Return the local file of an import path, which need not exist; None if the path isn't a local one."""
        ...


class RemotePrograms(Programs, Protocol):
    """Programs of a language that may also be fetched from a registry or a URL."""

    async def load_root(self) -> Source:
        """Return the text of the program at `origin`, when it may run."""
        ...


class CompileText(Protocol):
    def __call__(
        self,
        source: Source,
        *,
        profile: Profile = "default",
        known: Any = None,
        load: Callable[[str], Any] | None = None,
        cell: bool = False,
        pipefail: bool = False,
    ) -> Compiled:
        """Parse and check a text; never raises. `known` is the state of the machine at that point, `load` returns the
        contract of an import, `cell` applies the rules of a notebook. `pipefail`: commands run with it unless the text
        says otherwise; a language without commands ignores it."""
        ...


class OpenPrograms(Protocol):
    def __call__(
        self,
        base: Path,
        *,
        program: Path | None = None,
        profile: Profile = "default",
        resolver: Callable[[], Any] | None = None,
        origin: str = "",
        texts: Mapping[str, str] | None = None,
    ) -> Programs:
        """Return the programs that can be imported from a directory, a program file or the program at `origin`.
        `resolver` makes the source of fetched programs; a language without such programs never calls it. `texts` are
        read instead of files, by the name that `file_of` gives the file."""
        ...


class Words(NamedTuple):
    """The words of a language, for completion and inspection."""

    keywords: Mapping[str, WordEntry]
    properties: Mapping[str, WordEntry]


def _whole_text(program: Any, source: Source, offset: int, load: Callable[[str], Any]) -> tuple[str, Any] | None:
    return source.text[:offset], None


def _no_spending(program: object, source: Source) -> Spending:
    """The default for a language whose programs name no models and have no budgets."""
    from prose_kernel.runtime.budgets import Spending

    return Spending((), money=False)


def _refuse_upgrade(program: object, source: Source) -> tuple[str, str]:
    raise UsageError("programs of this language have one form only")


class Language(Struct, frozen=True, kw_only=True):
    """A language: the marks and words of its texts, and the functions that work with them.

    Texts: `title` is the language's name for people, `profile` the profile in which its texts are read (None: the one
    of the settings), `mode` the mode for editors that do not know the language. `delimiters` open and close its
    literals, in addition to quotes; `declared` are its words for the ways to bind a name; `sample` is a program of one
    line. `markers` are the symbols of its narration, by live mark or by `session`, `judge`, `loop`, `parallel`.

    Runs: `state` is the setting that decides what is kept in files: the names of a run that begins with this language
    (`state`), or the answers of its agents (`vvm_state`). `works_next_to_file`: sessions of a file work in the file's
    directory, not in the current one. `configure` applies the settings that only this language has to a new machine.
    `has_inputs`: programs ask for values by name; otherwise, values from outside replace constants, or are names that
    are bound when the program starts.

    Editors: `complete` lists the completions at the end of a text. Its arguments are the text, the kind of its end
    (`code`, a `string`, a `triple` quoted one or a `marker`), the start of that literal, the machine's names and their
    values; the front end filters by the typed prefix. `index` returns the names of a compiled program and their places,
    `fixes` the changes that apply the hint of a finding; callers check each with `language.fixes.is_improvement`.
    `script_at` returns the program text before an offset and the names that it may use; None outside the program.
    `targets` returns the possible targets of `call`, given the loader of imports and the machine's names, None in a
    language without calls; `with_call_targets` adds them to the names for `complete`, `describe_call` describes the
    target or input of a call at an offset, or returns "". `known_in` returns the names that a program defines for all
    of its text, given the loader of imports. `grammar` is a TextMate grammar.

    Structure: `flow` returns the steps of a program, for pictures; `stops` the places where a debugger can stop.
    `merged` returns the changes that turn the text of several cells into one program, for example where cells declare a
    name twice. `ends` are the statements that end a program early without an error; in a cell they end only the cell.
    `change_directory` returns the statement that works like `%cd`, "" if there is none.

    Values: `expression_prefixes` may turn an expression into a statement, in the order to try. `constants` are the
    names that a program binds to a value at its top level, with the value's place; `agents` are the names of its
    agents, `with_agent` returns the edits that change properties of one. `literal` writes a Python value as an
    expression, `bind` as a statement that binds it to a name; both raise a `UsageError` that begins with their last
    argument. `kind_of` and `text_of` return a value's kind and text for people, `inserted` its text inside another one.

    Checks: `upgrade` returns a program in the language's other form and the suffix of that form, or raises
    `UsageError`. `refused` returns the reason why a program without errors cannot run with the given inputs. `report`
    is printed by `prose compile` for a program without errors, `refusal` is the heading of errors. `contract` returns a
    data class with a program's inputs, outputs and names. `inputs` and `gates` are the names for which values and
    decisions can be given beforehand; `all_gates` adds the gates of imports, or returns None if not all are known.
    `may_run_commands` is true if a program can run its own commands.
    """

    name: str
    title: str
    profile: Profile | None = None
    suffixes: tuple[str, ...]
    magic: str
    mode: str
    sample: str
    delimiters: tuple[str, ...] = ()
    declared: Mapping[str, str] = field(default_factory=dict)
    markers: Mapping[str, str] = field(default_factory=dict)
    state: Literal["state", "vvm_state"] = "state"
    works_next_to_file: bool = False
    has_inputs: bool = False
    refusal: str = ""
    decode: Callable[[bytes, str], Source]
    compile: CompileText
    format_program: Callable[[Any], str]
    report: Callable[[Any, str, int], str]
    refused: Callable[[Any, Source, Collection[str]], Diagnostic | None] = lambda program, source, given: None
    upgrade: Callable[[Any, Source], tuple[str, str]] = _refuse_upgrade
    flow: Callable[[Any, Source], tuple[FlowStep, ...]]
    stops: Callable[[Any], list[Span]]
    contract: Callable[[Any], Any]
    index: Callable[[Any, Source], SymbolIndex]
    script_at: Callable[[Any, Source, int, Callable[[str], Any]], tuple[str, Any] | None] = _whole_text
    targets: Callable[[Callable[[str], Any], Profile, Any], Any] = lambda load, profile, known: None
    with_call_targets: Callable[[Any, Any], Any] = lambda known, targets: known
    describe_call: Callable[[str, int, Any], str] = lambda text, offset, targets: ""
    fixes: Callable[[Any, Diagnostic], Iterable[Fix]]
    known_in: Callable[[Any, Callable[[str], Any]], Any]
    merged: Callable[[Any], Iterable[Edit]] = lambda compiled: ()
    ends: Callable[[Any], Iterable[Span]] = lambda program: ()
    change_directory: Callable[[str], str] = lambda directory: ""
    expression_prefixes: tuple[str, ...] = ()
    constants: Callable[[Any], Mapping[str, Span]] = lambda program: {}
    agents: Callable[[Any], tuple[str, ...]] = lambda program: ()
    literal: Callable[[object, str], str]
    with_agent: Callable[[Any, str, Mapping[str, object]], Iterable[Edit]] = lambda program, name, properties: ()
    completeness: Callable[[str], tuple[Literal["complete", "incomplete", "invalid"], str]]
    words: Callable[[], Words]
    grammar: Callable[[], dict[str, Any]] = dict
    complete: Callable[[str, str, int, Any, Mapping[str, Any]], Completion]
    machine: Callable[[], type[Machine]]
    configure: Callable[[Any, Settings], None] = lambda machine, settings: None
    programs: OpenPrograms
    inputs: Callable[[Any], tuple[str, ...]]
    needed: Callable[[Any], tuple[str, ...]] = lambda program: ()
    gates: Callable[[Any], frozenset[str]]
    all_gates: Callable[[Any, Callable[[str], Any]], frozenset[str] | None] = lambda program, load: frozenset()
    may_run_commands: Callable[[Any], bool] = lambda program: True
    judged_texts: Callable[[Any], Iterable[JudgedText]]
    spending: Callable[[Any, Source], Spending] = _no_spending
    kind_of: Callable[[Value], str]
    text_of: Callable[[Value], str]
    inserted: Callable[[Value], str]
    bind: Callable[[str, object, str], str]

    @property
    def opening(self) -> str:
        """The line that begins a cell of it, `%%prose`."""
        return f"%%{self.magic}" + (f" --profile {self.profile}" if self.profile else "")


def _lazy_function(place: str) -> Any:
    """Return a function that imports `module:name` when it is first called, and calls it."""
    module, _, name = place.partition(":")
    imported = functools.cache(importlib.import_module)

    def call(*given: Any, **named: Any) -> Any:
        return getattr(imported(f"prose_kernel.{module}"), name)(*given, **named)

    return call


def _words(language: str) -> Words:
    from prose_kernel.language.word_catalogue import catalogue

    found = catalogue(language)
    return Words({**found.keywords, **found.functions}, found.properties)


_PLACES: Final = {
    "compile": "language.{}:compile_source",
    "format_program": "language.{}.formatter:format_program",
    "contract": "language.{}.program_interface:contract",
    "flow": "language.{}.flow:flow",
    "stops": "language.{}.flow:stops",
    "index": "language.{}.symbols:index",
    "fixes": "language.{}.fixes:fixes",
    "constants": "language.{}.python_literals:constants",
    "agents": "language.{}.python_literals:agents",
    "literal": "language.{}.python_literals:expression",
    "with_agent": "language.{}.python_literals:with_agent",
    "known_in": "language.{}.program_interface:known_in",
    "completeness": "language.{}.completion:completeness",
    "grammar": "language.textmate:{}",
    "complete": "language.{}.completion:complete",
    "judged_texts": "machine.{}.program_text:judged_texts",
    "spending": "machine.{}.program_text:spending",
    "bind": "language.{}.python_literals:binding",
}
"""The places of functions that both languages have; `{}` is the name of the language."""


def _shared_functions(name: str) -> dict[str, Any]:
    """Return the functions at `_PLACES` for a language of this package."""
    return {
        **{function: _lazy_function(place.format(name)) for function, place in _PLACES.items()},
        "words": partial(_words, name),
        "machine": lambda: importlib.import_module(f"prose_kernel.machine.{name}.machine").Machine,
    }


# ---------------------------------------------------------------- OpenProse


def _inputs(program: Any) -> tuple[str, ...]:
    from prose_kernel.language.openprose.program_interface import contract

    declared = contract(program)
    return (*declared.inputs, *(f"{PRIOR}{name}" for name in getattr(declared, "prior", None) or ()))


def _needed(program: Any) -> tuple[str, ...]:
    """Return the inputs that have no default."""
    from prose_kernel.language.openprose.program_interface import contract

    declared = contract(program)
    defaults = getattr(declared, "defaults", {})
    return tuple(name for name in declared.inputs if name not in defaults)


WITH_CALLS: Final = ("prosescript", "prosescript-strict")


def _compile_openprose(source: Source, **options: Any) -> Compiled:
    """Compile a program, or a contract file (recognized by its name). A program may call contract files around it."""
    if "call" in source.text and options.get("profile") in WITH_CALLS and options.get("load") is not None:
        pipefail = options.get("pipefail", False)
        place = "language.contracts.compile:with_targets"
        if not is_contract(source.name):
            known = options.get("known")
            source = _lazy_function(place)(source, options["load"], options["profile"], known, pipefail=pipefail)
    room = "contracts.compile" if is_contract(source.name) else "openprose"
    compiled: Compiled = _lazy_function(f"language.{room}:compile_source")(source, **options)
    return compiled


def _by_form(of_program: str, of_file: str) -> Callable[..., Any]:
    """Return a function that calls the first function for a program, the second one for a contract file."""

    def chosen(program: Any, *given: Any) -> Any:
        return _lazy_function(of_program if program.declared is None else of_file)(program, *given)

    return chosen


def _known_in(program: Any, load: Callable[[str], Any]) -> Any:
    known = _lazy_function("language.openprose.program_interface:known_in")(program, load)
    if not program.script or program.declared is not None:
        return known
    return replace(known, targets=_lazy_function("language.contracts.compile:targets_around")(load, "prosescript"))


def _script_at(program: Any, source: Source, offset: int, load: Callable[[str], Any]) -> tuple[str, Any] | None:
    if program.declared is None:
        return _whole_text(program, source, offset, load)
    found: tuple[str, Any] | None = _lazy_function("language.contracts.symbols:script_at")(program, offset, load)
    return found


def _refused(program: Any, source: Source, given: Collection[str]) -> Diagnostic | None:
    if program.declared is None:
        return None
    why: Diagnostic | None = _lazy_function("language.contracts.compile:refusal")(program, source, given)
    return why


_reported: Final = _by_form("language.openprose.formatter:format_program", "language.contracts.compile:report")


OPENPROSE: Final = Language(
    name="openprose",
    title="OpenProse",
    suffixes=(".prose", ".prose.md"),
    magic="prose",
    mode="text/x-yaml",
    sample='exec "true"\n',
    delimiters=("***", "**"),
    expression_prefixes=("let computed_value = ", "assert "),
    has_inputs=True,
    decode=_lazy_function("language.diagnostics:decode"),
    declared={"let": "let", "const": "const", "output": "output", "input": "input"},
    report=lambda program, name, warnings: _reported(program),
    upgrade=_by_form("language.contracts.upgrade:upgraded", "language.contracts.upgrade:downgraded"),
    refused=_refused,
    script_at=_script_at,
    targets=_lazy_function("language.contracts.compile:targets_around"),
    with_call_targets=_lazy_function("language.openprose.completion:with_call_targets"),
    describe_call=_lazy_function("language.openprose.completion:describe_call"),
    merged=_lazy_function("language.openprose.fixes:merged"),
    ends=_lazy_function("language.openprose.flow:ends"),
    change_directory=_lazy_function("language.openprose.python_literals:change_directory"),
    programs=_lazy_function("programs.openprose_imports:LocalPrograms"),
    inputs=_inputs,
    needed=_needed,
    gates=_lazy_function("machine.openprose.program_text:gate_names"),
    all_gates=_lazy_function("language.openprose.program_interface:all_gates"),
    may_run_commands=_lazy_function("machine.openprose.program_text:may_run_commands"),
    kind_of=_lazy_function("runtime.values:kind_of"),
    text_of=_lazy_function("runtime.values:full_text"),
    inserted=_lazy_function("runtime.values:inserted_text"),
    **{
        **_shared_functions("openprose"),
        "compile": _compile_openprose,
        "format_program": _by_form(
            "language.openprose.formatter:format_program", "language.contracts.compile:format_file"
        ),
        "index": _by_form("language.openprose.symbols:index", "language.contracts.symbols:index"),
        "known_in": _known_in,
    },
)


# ---------------------------------------------------------------- VVM


def _modules(base: Path, *, program: Path | None = None, texts: Mapping[str, str] | None = None, **_: Any) -> Programs:
    from prose_kernel.programs.vvm_imports import LocalModules

    return LocalModules(base, program=program, texts=texts)  # VVM has one profile, and modules only in files


VVM: Final = Language(
    name="vvm",
    title="VVM",
    suffixes=(".vvm",),
    magic="vvm",
    mode="text/x-python",
    sample="x = 1\n",
    delimiters=("`",),
    expression_prefixes=("computed_value = ",),
    decode=partial(_lazy_function("language.diagnostics:decode"), code="V001"),
    declared={"output": "export"},
    markers={
        "✗": "\N{CROSS MARK}",
        "✓": "\N{WHITE HEAVY CHECK MARK}",
        "session": "\N{HOURGLASS WITH FLOWING SAND}",
        "judge": "\N{DIRECT HIT}",
        "loop": "\N{ANTICLOCKWISE DOWNWARDS AND UPWARDS OPEN CIRCLE ARROWS}",
        "parallel": "\N{HIGH VOLTAGE SIGN}",
    },
    state="vvm_state",
    works_next_to_file=True,
    refusal="\N{CROSS MARK} Validation failed",
    report=_lazy_function("language.vvm.program_interface:report"),
    configure=lambda machine, settings: machine.limit(settings.vvm.depth, settings.vvm.input),
    programs=_modules,
    inputs=lambda program: (),
    gates=lambda program: frozenset(),
    may_run_commands=lambda program: False,
    kind_of=_lazy_function("machine.vvm.values:kind_of"),
    text_of=_lazy_function("machine.vvm.values:text_of"),
    inserted=_lazy_function("machine.vvm.values:text_of"),
    **_shared_functions("vvm"),
)


LANGUAGES: Final = {language.name: language for language in (OPENPROSE, VVM)}
"""All languages by name. The first one is the default."""


def _prosescript_words() -> Words:
    from prose_kernel.language.word_catalogue import catalogue

    found = catalogue("openprose")
    return Words({**found.keywords, **found.script_keywords}, {**found.properties, **found.script_properties})


PROFILES: Final[tuple[Profile, ...]] = ("default", "strict", "prosescript")
"""The values of `--profile`."""


def in_profile(language: Language, profile: Profile) -> Language:
    """Return the language with a fixed profile that overrides the settings. In a run it counts as the same language,
    with the same machine and names. Raises `UsageError` for a language without profiles, and for an unknown profile."""
    if language.name != OPENPROSE.name or profile not in PROFILES:
        known = f"one of {', '.join(PROFILES)}" if language.name == OPENPROSE.name else "leave it out"
        raise UsageError(f"{language.title} has no profile `{profile}`", hint=known)
    return _with_profile(profile)


@cache
def _with_profile(profile: Profile) -> Language:
    def compile_(source: Source, **options: Any) -> Compiled:
        return OPENPROSE.compile(source, **{**options, "profile": profile})

    if profile != "prosescript":
        return replace(OPENPROSE, profile=profile, compile=compile_)
    return replace(
        OPENPROSE,
        title="ProseScript",
        profile=profile,
        compile=compile_,
        completeness=partial(_lazy_function("language.openprose.completion:completeness"), profile=profile),
        complete=partial(_lazy_function("language.openprose.completion:complete"), profile=profile),
        words=_prosescript_words,
    )


def of_scripts(language: Language, name: str) -> Language:
    """Return the language of the scripts in a file: ProseScript for a contract file, else `language`."""
    return in_profile(language, "prosescript") if is_contract(name) else language


def of_text(name: str, profile: str) -> Language:
    """Return the language of a recorded text; `profile` is "" if the settings decided it."""
    language = LANGUAGES[name]
    return in_profile(language, cast("Profile", profile)) if profile else language


def compile_with_settings(language: Language, source: Source, pipefail: Callable[[], bool], **options: Any) -> Compiled:
    """Compile a text. `pipefail` reads that setting; it is called only if it could remove a warning (W052)."""
    compiled = language.compile(source, **options)
    if all(one.code != "W052" for one in compiled.diagnostics):
        return compiled
    return language.compile(source, **options, pipefail=pipefail())


def default() -> Language:
    return next(iter(LANGUAGES.values()))


def of_file(name: str) -> Language:
    """Return the language of a file by its suffix, else the default."""
    return next((one for one in LANGUAGES.values() if name.endswith(one.suffixes)), default())


def of_magic(magic: str) -> Language | None:
    """Return the language of cells that begin with `%%magic`, and of the kernel of that name; None if there is none."""
    return next((one for one in LANGUAGES.values() if one.magic == magic), None)


def suffixes() -> tuple[str, ...]:
    """Return the suffixes of program files."""
    return tuple(suffix for one in LANGUAGES.values() for suffix in one.suffixes)


def runnable_suffixes() -> tuple[str, ...]:
    """Return the suffixes of program files and notebooks."""
    return (*suffixes(), ".ipynb")
