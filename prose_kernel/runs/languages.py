"""The languages: one record each, which is all that the other rooms know of it.

A text belongs to the language of its file's suffix, of its cell's magic, or of the kernel it is typed into. Nothing of
a language is imported before it is used.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, cast

from prose_kernel.errors import CompileError, UsageError
from prose_kernel.language.contracts import PRIOR, is_contract

if TYPE_CHECKING:
    from prose_kernel.language import diagnostics
    from prose_kernel.language.diagnostics import Diagnostic, Profile
    from prose_kernel.language.fixes import Edit, Fix
    from prose_kernel.language.flow import Step
    from prose_kernel.language.source import Source, Span
    from prose_kernel.language.symbols import Index
    from prose_kernel.language.words import Completion, Entry
    from prose_kernel.runs.settings import Settings
    from prose_kernel.runtime.budgets import Spending
    from prose_kernel.runtime.machine import Machine
    from prose_kernel.runtime.ports import JudgedText, LoadedProgram, LoadRequest
    from prose_kernel.runtime.values import Value

    Compiled = diagnostics.Compiled[Any]
    """A text of any language."""


def without_errors(compiled: Compiled) -> Compiled:
    """Return the text. Raises `CompileError` if it has errors."""
    if not compiled.ok:
        raise CompileError(compiled.diagnostics)
    return compiled


class Programs(Protocol):
    """Finds and reads the programs that a text imports; `load_contract` is for the language's compiler."""

    @property
    def load_contract(self) -> Callable[[str], Any]: ...

    async def load_program(self, request: LoadRequest) -> LoadedProgram: ...

    def file_of(self, path: str) -> Path | None:
        """The local file that an import path leads to, whether there is one or not; None for any other path."""
        ...


class RemotePrograms(Programs, Protocol):
    """Those of a language whose programs may come from elsewhere."""

    async def load_root(self) -> Source:
        """The text of the program at `origin`, when it may run."""
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
        """Read and check a text; never raises. `known` is the state of the machine at that point, `load` gives the
        names of an import, `cell` applies the rules of a notebook. `pipefail`: commands run with it unless the text
        says otherwise; a language without commands takes no notice."""
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
        """The programs around a directory, or around a program file, or around the program at the address `origin`.
        `resolver` makes what provides programs from elsewhere; a language without such programs never calls it.
        `texts` are read in the place of files; a text is found by the name that `file_of` gives the file."""
        ...


class Words(NamedTuple):
    """The words of a language, for completion and inspection."""

    keywords: Mapping[str, Entry]
    properties: Mapping[str, Entry]


def _whole_text(program: Any, source: Source, offset: int, load: Callable[[str], Any]) -> tuple[str, Any] | None:
    return source.text[:offset], None


def _spends_nothing(program: object, source: Source) -> Spending:
    """Of a language whose programs name no models and have no budgets."""
    from prose_kernel.runtime.budgets import Spending

    return Spending((), money=False)


def _no_other_form(program: object, source: Source) -> tuple[str, str]:
    raise UsageError("programs of this language have one form only")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Language:
    """A language: how its texts are known, and what can be done with them.

    `title` is its name for people. `profile` is the one that its texts are read in; None: that of the settings. `mode`
    is the mode of an editor that does not know it; `delimiters` are the marks that open and close its literals besides
    quotes, `declared` the words for how a name was bound; `sample` is a program of one line. `markers` are those of its
    narration, by the live mark or by `session`, `judge`, `loop`, `parallel`. `state` is the setting that says what of
    it is kept in files: the names of a run that begins with it (`state`), or answers of its agents (`vvm_state`).
    `in_its_directory`: sessions of a file work in its directory, not in that in which it was started. `configure`
    gives a new machine the settings that only its language has.

    `complete` lists the completions at the end of a text: its arguments are the text, whether it ends in `code`, a
    `string`, a `triple` quoted one or a `marker`, the start of that literal, the machine's names and their values. The
    front end filters by what is typed.

    `index` gives the names of a compiled program and their places, `fixes` the changes that apply the hint of a finding
    of it; the caller checks each one before it offers it (`language.fixes.holds`). `script_at` gives the context of a
    completion in an editor: the program text before an offset and the names that it may refer to, None in text outside
    the program. `targets` finds what a text may `call`, given what loads its imports and what the machine knows, None
    in a language without calls; `knowing` adds them to the names that `complete` gets, `called_at` describes the target
    or input of a call at an offset, "" elsewhere. `known_in` is what a program defines for all of its text, given what
    imports lead to. `grammar` is a TextMate grammar for editors that colour by one.

    `elsewhere`: programs may come from a registry or URL. `has_inputs`: programs ask for values by name; where they do
    not, values from outside are set as constants, or are names that the program finds bound.

    `flow` is what a program is made of, for pictures of it; `stops` is where it can be held, statement by statement.
    `merged` gives the changes that make a text, which was several cells, one program: what only cells may do, such as
    declare a name again, is written as programs do it. `ends` are the statements that end a program before its last
    line without an error: in a cell they end only the cell. `change_directory` is the statement that does what `%cd`
    does, "" where there is none.

    `computing` are the possible prefixes that make a statement of an expression, in order.
    `constants` are the names that a program binds at its top to a value, with the value's place, `agents` the
    names of its agents; `with_agent` are the edits that give one other properties. `literal` writes a Python value as
    an expression, or raises a `UsageError` which begins with the last argument.

    `upgrade` is a program in the language's other form, and the suffix of that; it raises `UsageError` where there is
    none. `refused` gives the reason why a program without errors cannot be run, given the names of the inputs that are
    supplied.

    `report` is what `prose compile` prints for a program without errors, `refusal` the heading of the errors of another
    one; `contract` is a dataclass of a program's contract: its inputs, outputs and names. `inputs` are the names that a
    program asks values for, `gates` those of its gates: what can be given beforehand. `all_gates` adds those of its
    imports; it returns None if they are not all known. `may_run_commands` is true if a program can run its own
    commands. `kind_of` and `text_of` are how a value is called and written for people, `inserted` how it is written
    inside a text; `bind` is the statement that binds a Python value to a name, or a `UsageError` which begins with the
    last argument.
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
    in_its_directory: bool = False
    elsewhere: bool = False
    has_inputs: bool = False
    refusal: str = ""
    decode: Callable[[bytes, str], Source]
    compile: CompileText
    format_program: Callable[[Any], str]
    report: Callable[[Any, str, int], str]
    refused: Callable[[Any, Source, Collection[str]], Diagnostic | None] = lambda program, source, given: None
    upgrade: Callable[[Any, Source], tuple[str, str]] = _no_other_form
    flow: Callable[[Any, Source], tuple[Step, ...]]
    stops: Callable[[Any], list[Span]]
    contract: Callable[[Any], Any]
    index: Callable[[Any, Source], Index]
    script_at: Callable[[Any, Source, int, Callable[[str], Any]], tuple[str, Any] | None] = _whole_text
    targets: Callable[[Callable[[str], Any], Profile, Any], Any] = lambda load, profile, known: None
    knowing: Callable[[Any, Any], Any] = lambda known, targets: known
    called_at: Callable[[str, int, Any], str] = lambda text, offset, targets: ""
    fixes: Callable[[Any, Diagnostic], Iterable[Fix]]
    known_in: Callable[[Any, Callable[[str], Any]], Any]
    merged: Callable[[Any], Iterable[Edit]] = lambda compiled: ()
    ends: Callable[[Any], Iterable[Span]] = lambda program: ()
    change_directory: Callable[[str], str] = lambda directory: ""
    computing: tuple[str, ...] = ()
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
    spending: Callable[[Any, Source], Spending] = _spends_nothing
    kind_of: Callable[[Value], str]
    text_of: Callable[[Value], str]
    inserted: Callable[[Value], str]
    bind: Callable[[str, object, str], str]

    @property
    def opening(self) -> str:
        """The line that begins a cell of it, `%%prose`."""
        return f"%%{self.magic}" + (f" --profile {self.profile}" if self.profile else "")


def _later(place: str) -> Any:
    """The function at `module:name`, which is imported when it is first called."""
    module, _, name = place.partition(":")
    imported = functools.cache(importlib.import_module)

    def call(*given: Any, **named: Any) -> Any:
        return getattr(imported(f"prose_kernel.{module}"), name)(*given, **named)

    return call


def _class_later(place: str) -> Any:
    """A function that gives the class at `module:name`."""
    module, _, name = place.partition(":")
    return lambda: getattr(importlib.import_module(f"prose_kernel.{module}"), name)


def _words(language: str) -> Words:
    from prose_kernel.language.words import catalogue

    found = catalogue(language)
    return Words({**found.keywords, **found.functions}, found.properties)


_PLACES: Final = {
    "compile": "language.{}:compile_source",
    "format_program": "language.{}.formatter:format_program",
    "contract": "language.{}.contract:contract",
    "flow": "language.{}.flow:flow",
    "stops": "language.{}.flow:stops",
    "index": "language.{}.symbols:index",
    "fixes": "language.{}.fixes:fixes",
    "constants": "language.{}.literals:constants",
    "agents": "language.{}.literals:agents",
    "literal": "language.{}.literals:expression",
    "with_agent": "language.{}.literals:with_agent",
    "known_in": "language.{}.contract:known_in",
    "completeness": "language.{}.completion:completeness",
    "grammar": "language.{}.textmate:grammar",
    "complete": "language.{}.completion:complete",
    "judged_texts": "machine.{}.program_text:judged_texts",
    "spending": "machine.{}.program_text:spending",
    "bind": "language.{}.literals:binding",
}
"""The modules with these functions for each language of this package, with `{}` for its name."""


def _own(name: str) -> dict[str, Any]:
    """The functions that every language of this package has in the same modules."""
    return {
        **{function: _later(place.format(name)) for function, place in _PLACES.items()},
        "words": partial(_words, name),
        "machine": _class_later(f"machine.{name}.machine:Machine"),
    }


# ---------------------------------------------------------------- OpenProse


def _inputs(program: Any) -> tuple[str, ...]:
    from prose_kernel.language.openprose.contract import contract

    declared = contract(program)
    return (*declared.inputs, *(f"{PRIOR}{name}" for name in getattr(declared, "prior", None) or ()))


def _needed(program: Any) -> tuple[str, ...]:
    """The inputs that have no default."""
    from prose_kernel.language.openprose.contract import contract

    declared = contract(program)
    defaults = getattr(declared, "defaults", {})
    return tuple(name for name in declared.inputs if name not in defaults)


WITH_CALLS: Final = ("prosescript", "prosescript-strict")


def _compile_openprose(source: Source, **options: Any) -> Compiled:
    """A program, or a contract file by its name. Calls of a program lead to contract files around it."""
    if "call" in source.text and options.get("profile") in WITH_CALLS and options.get("load") is not None:
        pipefail = options.get("pipefail", False)
        place = "language.contracts.compile:with_targets"
        if not is_contract(source.name):
            known = options.get("known")
            source = _later(place)(source, options["load"], options["profile"], known, pipefail=pipefail)
    room = "contracts.compile" if is_contract(source.name) else "openprose"
    compiled: Compiled = _later(f"language.{room}:compile_source")(source, **options)
    return compiled


def _by_form(of_program: str, of_file: str) -> Callable[..., Any]:
    """One of two functions: that for a program, or that for a contract file."""

    def chosen(program: Any, *given: Any) -> Any:
        return _later(of_program if program.declared is None else of_file)(program, *given)

    return chosen


def _known_in(program: Any, load: Callable[[str], Any]) -> Any:
    known = _later("language.openprose.contract:known_in")(program, load)
    if not program.script or program.declared is not None:
        return known
    return replace(known, targets=_later("language.contracts.compile:targets_around")(load, "prosescript"))


def _script_at(program: Any, source: Source, offset: int, load: Callable[[str], Any]) -> tuple[str, Any] | None:
    if program.declared is None:
        return _whole_text(program, source, offset, load)
    found: tuple[str, Any] | None = _later("language.contracts.symbols:script_at")(program, offset, load)
    return found


def _refused(program: Any, source: Source, given: Collection[str]) -> Diagnostic | None:
    if program.declared is None:
        return None
    why: Diagnostic | None = _later("language.contracts.compile:refused")(program, source, given)
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
    computing=("let computed_value = ", "assert "),
    elsewhere=True,
    has_inputs=True,
    decode=_later("language.diagnostics:decode"),
    declared={"let": "let", "const": "const", "output": "output", "input": "input"},
    report=lambda program, name, warnings: _reported(program),
    upgrade=_by_form("language.contracts.upgrade:upgraded", "language.contracts.upgrade:downgraded"),
    refused=_refused,
    script_at=_script_at,
    targets=_later("language.contracts.compile:targets_around"),
    knowing=_later("language.openprose.completion:knowing"),
    called_at=_later("language.openprose.completion:called_at"),
    merged=_later("language.openprose.fixes:merged"),
    ends=_later("language.openprose.flow:ends"),
    change_directory=_later("language.openprose.literals:change_directory"),
    programs=_later("programs.openprose_imports:LocalPrograms"),
    inputs=_inputs,
    needed=_needed,
    gates=_later("machine.openprose.program_text:gate_names"),
    all_gates=_later("language.openprose.contract:all_gates"),
    may_run_commands=_later("machine.openprose.program_text:may_run_commands"),
    kind_of=_later("runtime.values:kind_of"),
    text_of=_later("runtime.values:full_text"),
    inserted=_later("runtime.values:inserted_text"),
    **{
        **_own("openprose"),
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


def _configure(machine: Any, settings: Settings) -> None:
    machine.limit(settings.vvm.depth, settings.vvm.input)


VVM: Final = Language(
    name="vvm",
    title="VVM",
    suffixes=(".vvm",),
    magic="vvm",
    mode="text/x-python",
    sample="x = 1\n",
    delimiters=("`",),
    computing=("computed_value = ",),
    decode=partial(_later("language.diagnostics:decode"), code="V001"),
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
    in_its_directory=True,
    refusal="\N{CROSS MARK} Validation failed",
    report=_later("language.vvm.contract:report"),
    configure=_configure,
    programs=_modules,
    inputs=lambda program: (),
    gates=lambda program: frozenset(),
    may_run_commands=lambda program: False,
    kind_of=_later("machine.vvm.rendering:kind_of"),
    text_of=_later("machine.vvm.rendering:text_of"),
    inserted=_later("machine.vvm.rendering:text_of"),
    **_own("vvm"),
)


LANGUAGES: Final = {language.name: language for language in (OPENPROSE, VVM)}
"""Every language by name; the first one is that of a text which says nothing else."""


def _words_of_scripts() -> Words:
    from prose_kernel.language.words import catalogue

    found = catalogue("openprose")
    return Words({**found.keywords, **found.script_keywords}, {**found.properties, **found.script_properties})


PROFILES: Final[tuple[Profile, ...]] = ("default", "strict", "prosescript")
"""The values of `--profile`."""


def in_profile(language: Language, profile: Profile) -> Language:
    """The language as it reads texts of one profile, whatever the settings say. It is the same language in a run: its
    machine, its names. Raises `UsageError` for a language without profiles, and for an unknown one."""
    if language.name != OPENPROSE.name or profile not in PROFILES:
        known = f"one of {', '.join(PROFILES)}" if language.name == OPENPROSE.name else "leave it out"
        raise UsageError(f"{language.title} has no profile `{profile}`", hint=known)
    return _read_in(profile)


@cache
def _read_in(profile: Profile) -> Language:
    def compile_(source: Source, **options: Any) -> Compiled:
        return OPENPROSE.compile(source, **{**options, "profile": profile})

    if profile != "prosescript":
        return replace(OPENPROSE, profile=profile, compile=compile_)
    return replace(
        OPENPROSE,
        title="ProseScript",
        profile=profile,
        compile=compile_,
        completeness=partial(_later("language.openprose.completion:completeness"), profile=profile),
        complete=partial(_later("language.openprose.completion:complete"), profile=profile),
        words=_words_of_scripts,
    )


def of_scripts(language: Language, name: str) -> Language:
    """The language of the scripts in a file: in a contract file ProseScript."""
    return in_profile(language, "prosescript") if is_contract(name) else language


def of_text(name: str, profile: str) -> Language:
    """The language of a text that a run has recorded; `profile` is "" where the settings decided."""
    language = LANGUAGES[name]
    return in_profile(language, cast("Profile", profile)) if profile else language


def compile_with_settings(language: Language, source: Source, pipefail: Callable[[], bool], **options: Any) -> Compiled:
    """A compiled text. `pipefail` reads that setting; it is called only where it could take a warning away (W052)."""
    compiled = language.compile(source, **options)
    if all(one.code != "W052" for one in compiled.diagnostics):
        return compiled
    return language.compile(source, **options, pipefail=pipefail())


def default() -> Language:
    return next(iter(LANGUAGES.values()))


def of_file(name: str) -> Language:
    """The language of a file, by its suffix."""
    return next((one for one in LANGUAGES.values() if name.endswith(one.suffixes)), default())


def of_magic(magic: str) -> Language | None:
    """The language of the cells of a notebook that begin with `%%magic`, and of the kernel of that name."""
    return next((one for one in LANGUAGES.values() if one.magic == magic), None)


def suffixes() -> tuple[str, ...]:
    """The suffixes of program files."""
    return tuple(suffix for one in LANGUAGES.values() for suffix in one.suffixes)


def runnable_suffixes() -> tuple[str, ...]:
    """The suffixes of program files and of notebooks."""
    return (*suffixes(), ".ipynb")
