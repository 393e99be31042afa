"""Files of exercises: a teacher writes them next to a notebook, `checks/NOTEBOOK.yaml` (docs/how-to/teaching.md).

They are read at the first check. A file that makes no sense is one `UsageError` that says where.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from prose_kernel.access import plain_files
from prose_kernel.errors import UsageError, reason_of
from prose_kernel.language.nearest import nearest_hint
from prose_kernel.runs import languages
from prose_kernel.runs.languages import Language

DIRECTORY: Final = "checks"
_LARGEST: Final = 1_000_000
_FEATURES: Final = (
    "value",
    "output",
    "command",
    "commands",
    "session",
    "sessions",
    "judged",
    "gate",
    "gates",
    "parallel",
    "step",
)
_TEXTS: Final = ("is", "contains", "matches")


class Check(Struct, frozen=True, forbid_unknown_fields=True, rename={"is_": "is"}):
    """One requirement. Of the fields before `is` exactly one says what is looked at.

    - `value`: an expression of the language; without `is`, `contains` or `matches` it must be true.
    - `output`: `true`; what the program printed and gave, without blanks at its ends.
    - `command`, `session`, `judged`, `gate`: a part of the text of a command that ran, a session that was asked, a
      condition that was decided, or the name of a gate that opened.
    - `commands`, `sessions`, `gates`: how many there were; `at_least` instead of exactly.
    - `parallel`: in how many branches side by side something ran; `at_least` instead of exactly.
    - `step`: a kind of statement that the program has to have: `loop`, `parallel`, `if`, `try`, `gate`, `block` ...
    """

    expects: str
    value: str | None = None
    output: bool | None = None
    command: str | None = None
    commands: int | None = None
    session: str | None = None
    sessions: int | None = None
    judged: str | None = None
    gate: str | None = None
    gates: int | None = None
    parallel: int | None = None
    step: str | None = None
    is_: Any = msgspec.UNSET
    contains: str | None = None
    matches: str | None = None
    at_least: bool = False
    hints: tuple[str, ...] = ()

    @property
    def feature(self) -> str:
        """The checked facts."""
        return next(name for name in _FEATURES if getattr(self, name) is not None)

    def problem(self) -> str | None:
        """The reason why the check is invalid, or None."""
        chosen = [name for name in _FEATURES if getattr(self, name) is not None]
        if len(chosen) != 1:
            return f"exactly one of {', '.join(_FEATURES)} says what is looked at" + (
                f", not {' and '.join(chosen)}" if chosen else ""
            )
        compared = [name for name, given in zip(_TEXTS, self._comparisons(), strict=True) if given]
        if len(compared) > 1:
            return f"{' and '.join(compared)} exclude each other"
        if compared and chosen[0] not in ("value", "output"):
            return f"{compared[0]} is for value and output"
        if chosen[0] == "output" and not compared:
            return "output needs is, contains or matches"
        if self.matches is not None:
            try:
                re.compile(self.matches)
            except re.error as problem:
                return f"matches isn't a regular expression: {problem}"
        return None

    def _comparisons(self) -> tuple[bool, bool, bool]:
        return self.is_ is not msgspec.UNSET, self.contains is not None, self.matches is not None


class Wrong(Struct, frozen=True, forbid_unknown_fields=True):
    """An answer that must not pass; `says` is a part of the learner's feedback."""

    answer: str
    says: str = ""


class Exercise(Struct, frozen=True, forbid_unknown_fields=True):
    """One exercise. `before` is what the cells above it do, `solution` an answer that passes, `answers` what sessions
    and conditions get when the solution is tried (the format of the `scripted` provider)."""

    task: str
    checks: tuple[Check, ...]
    solution: str = ""
    starter: str = ""
    before: str = ""
    points: int = 1
    wrong: tuple[Wrong, ...] = ()
    answers: Mapping[str, Any] | None = None


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    exercises: dict[str, Exercise]
    language: str = ""


class Exercises(Struct, frozen=True):
    """The exercises of one notebook, by name, and the language of their expressions."""

    notebook: str
    language: Language
    exercises: dict[str, Exercise]


@functools.lru_cache(4)
def _parsed(text: str) -> _File:
    """The exercises in a file's text. Every %check of a notebook reads its file; YAML takes 30 ms for one lesson."""
    import yaml

    return msgspec.convert(yaml.safe_load(text), _File)


def read(path: Path, default: Language) -> Exercises:
    """Read a file of exercises. Raises `UsageError`."""
    import yaml

    try:
        found = _parsed(plain_files.read_text(path, _LARGEST))
    except OSError as problem:
        raise UsageError(f"{path.name or path} cannot be read: {reason_of(problem)}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as problem:
        mark = getattr(problem, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise UsageError(f"{path.name} isn't YAML{where}", hint="docs/how-to/teaching.md shows the format") from None
    except msgspec.ValidationError as problem:
        raise UsageError(f"{path.name}: {problem}", hint="docs/how-to/teaching.md shows the format") from None
    language = languages.of_magic(found.language) if found.language else default
    if language is None:
        raise UsageError(f"{path.name}: there is no language {found.language}")
    for name, exercise in found.exercises.items():
        for number, check in enumerate(exercise.checks, 1):
            if problem_here := check.problem():
                raise UsageError(f"{path.name}: check {number} of {name}: {problem_here}")
    return Exercises(path.stem, language, found.exercises)


def files(directory: Path, notebook: str = "") -> list[Path]:
    """The files of exercises next to a notebook, its own first."""
    try:
        found = sorted((directory / DIRECTORY).glob("*.yaml"))
    except OSError:
        return []
    return sorted(found, key=lambda path: path.stem != Path(notebook).stem)


def find(directory: Path, notebook: str, wanted: str, default: Language) -> tuple[Exercises, str]:
    """The exercise of a name, in the file of the notebook or in another one next to it. Raises `UsageError`."""
    known: dict[str, Exercises] = {}
    file, _, name = wanted.rpartition("/")
    for path in files(directory, notebook):
        if file and path.stem != file:
            continue
        found = read(path, default)
        if name in found.exercises:
            return found, name
        known |= {**dict.fromkeys(found.exercises, found), **known}
    if not known:
        raise UsageError(
            "there are no exercises here", hint=f"they are in {DIRECTORY}/NOTEBOOK.yaml next to the notebook"
        )
    raise UsageError(f"there is no exercise {wanted}", hint=nearest_hint(name, known, "%check lists them"))
