"""The languages: one record each, which is all that the other rooms know of it.

A text belongs to the language of its file's suffix, of its cell's magic, or of the kernel it is typed into. Nothing of
a language is imported before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from prose_kernel.language.diagnostics import Diagnostic, Profile
    from prose_kernel.language.source import Source
    from prose_kernel.runtime.machine import Machine
    from prose_kernel.runtime.ports import JudgedText, LoadedProgram, LoadRequest


class Compiled(Protocol):
    """A text with all that was found at compile time, sorted; `ok` when none of it is an error."""

    @property
    def source(self) -> Source: ...

    @property
    def program(self) -> Any: ...

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]: ...

    @property
    def ok(self) -> bool: ...


class Programs(Protocol):
    """What finds and reads the programs that a text imports; `load_contract` is for the language's own compiler."""

    @property
    def load_contract(self) -> Callable[[str], Any]: ...

    async def load_program(self, request: LoadRequest) -> LoadedProgram: ...


class CompileText(Protocol):
    def __call__(
        self,
        source: Source,
        *,
        profile: Profile = "default",
        known: Any = None,
        load: Callable[[str], Any] | None = None,
        cell: bool = False,
    ) -> Compiled:
        """Read and check a text; never raises. `known` is what the machine holds by then, `load` tells what an import
        gives, `cell` applies the rules of a notebook."""
        ...


class OpenPrograms(Protocol):
    def __call__(self, base: Path, *, program: Path | None = None, profile: Profile = "default") -> Programs:
        """The programs around a directory, or around a program file."""
        ...


class WordDoc(Protocol):
    """A word in one sentence, with an example; of a property its usual values and the statements that take it."""

    @property
    def summary(self) -> str: ...

    @property
    def example(self) -> str: ...

    @property
    def values(self) -> tuple[str, ...]: ...

    @property
    def owners(self) -> tuple[str, ...]: ...


class Words(NamedTuple):
    """The words of a language, for completion and inspection."""

    keywords: Mapping[str, WordDoc]
    properties: Mapping[str, WordDoc]

    def properties_of(self, owner: str) -> dict[str, WordDoc]:
        """The properties that may stand under a statement of this kind."""
        return {name: entry for name, entry in self.properties.items() if owner in entry.owners}


@dataclass(frozen=True, slots=True)
class Language:
    """A language: how its texts are known, and what can be done with them.

    `inputs` are the names that a program asks values for, `gates` those of its gates: what can be given beforehand.
    """

    name: str
    suffixes: tuple[str, ...]
    magic: str
    decode: Callable[[bytes, str], Source] = field(repr=False)
    compile: CompileText = field(repr=False)
    format_program: Callable[[Any], str] = field(repr=False)
    completeness: Callable[[str], tuple[Literal["complete", "incomplete", "invalid"], str]] = field(repr=False)
    expected: Callable[[str], frozenset[str]] = field(repr=False)
    words: Callable[[], Words] = field(repr=False)
    machine: Callable[[], type[Machine]] = field(repr=False)
    programs: OpenPrograms = field(repr=False)
    inputs: Callable[[Any], tuple[str, ...]] = field(repr=False)
    gates: Callable[[Any], frozenset[str]] = field(repr=False)
    judged_texts: Callable[[Any], Iterable[JudgedText]] = field(repr=False)


# ---------------------------------------------------------------- OpenProse


def _decode(data: bytes, name: str) -> Source:
    from prose_kernel.language.openprose import decode

    return decode(data, name)


def _compile(
    source: Source,
    *,
    profile: Profile = "default",
    known: Any = None,
    load: Callable[[str], Any] | None = None,
    cell: bool = False,
) -> Compiled:
    from prose_kernel.language.openprose import compile_source

    return compile_source(source, profile=profile, known=known, load=load, cell=cell)


def _format(program: Any) -> str:
    from prose_kernel.language.openprose import format_program

    return format_program(program)


def _completeness(text: str) -> tuple[Literal["complete", "incomplete", "invalid"], str]:
    from prose_kernel.language.openprose.editing import completeness

    return completeness(text)


def _expected(text: str) -> frozenset[str]:
    from prose_kernel.language.openprose.editing import expected

    return expected(text)


def _words() -> Words:
    from prose_kernel.language.openprose.word_docs import KEYWORDS, PROPERTIES

    return Words(KEYWORDS, PROPERTIES)


def _machine() -> type[Machine]:
    from prose_kernel.machine.openprose.machine import Machine

    return Machine


def _programs(base: Path, *, program: Path | None = None, profile: Profile = "default") -> Programs:
    from prose_kernel.state.programs import LocalPrograms

    return LocalPrograms(base, program=program, profile=profile)


def _inputs(program: Any) -> tuple[str, ...]:
    from prose_kernel.language.openprose.contract import contract

    return tuple(contract(program).inputs)


def _gates(program: Any) -> frozenset[str]:
    from prose_kernel.machine.openprose.program_text import gate_names

    return gate_names(program)


def _judged_texts(program: Any) -> Iterable[JudgedText]:
    from prose_kernel.machine.openprose.program_text import judged_texts

    return judged_texts(program)


OPENPROSE: Final = Language(
    "openprose",
    (".prose",),
    "prose",
    _decode,
    _compile,
    _format,
    _completeness,
    _expected,
    _words,
    _machine,
    _programs,
    _inputs,
    _gates,
    _judged_texts,
)

LANGUAGES: Final = {OPENPROSE.name: OPENPROSE}
"""Every language by name; the first one is that of a text which says nothing else."""


def default() -> Language:
    return next(iter(LANGUAGES.values()))


def of_file(name: str) -> Language:
    """The language of a file, by its suffix."""
    return next((one for one in LANGUAGES.values() if name.endswith(one.suffixes)), default())


def of_magic(magic: str) -> Language | None:
    """The language of the cells of a Python notebook that begin with `%%magic`, and of the kernel of that name."""
    return next((one for one in LANGUAGES.values() if one.magic == magic), None)
