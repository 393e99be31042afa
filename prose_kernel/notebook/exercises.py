"""Read files of exercises, which a teacher writes next to a notebook: `checks/NOTEBOOK.yaml` (docs/how-to/teaching.md).

They are read at the first check. An invalid file raises one `UsageError`, which names the place.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Final, TypeAlias, Union, cast, get_args, get_origin

import msgspec
from msgspec import Struct

from prose_kernel.access import plain_files
from prose_kernel.errors import UsageError, reason_of
from prose_kernel.language.nearest import Nearest, did_you_mean, nearest_hint
from prose_kernel.language.text import clipped
from prose_kernel.runs import languages
from prose_kernel.runs.languages import Language

DIRECTORY: Final = "checks"
_LARGEST: Final = 1_000_000
_SHOWN: Final = 80
_FORMAT: Final = "docs/how-to/teaching.md shows the format"
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

_Place: TypeAlias = tuple[str | int, ...]
"""The keys and indexes that lead to a value in a file."""


class Check(Struct, frozen=True, forbid_unknown_fields=True, rename={"is_": "is"}):
    """One requirement. One of the fields before `is`, or `command` with `gate`, selects the checked fact.

    - `value`: an expression of the language; without `is`, `contains` or `matches` it must be true.
    - `output`: `true`; checks the printed text and the results of the program, without blanks at its ends.
    - `command`, `session`, `judged`, `gate`: a part of the text of a command that ran, a session's task, a decided
      condition with its answer (`TEXT → yes`), or the name of a gate. A `command` with a `gate` must run after it. With
      `matches` the whole text must also match.
    - `commands`, `sessions`, `gates`: their number; with `at_least` the smallest allowed number.
    - `parallel`: the number of parallel branches in which something ran; with `at_least` the smallest allowed number.
    - `step`: a kind of statement that the program must have: `loop`, `parallel`, `if`, `try`, `gate`, `block` ...
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
        """The name of the field that selects the checked fact."""
        return next(name for name in _FEATURES if getattr(self, name) is not None)

    def problem(self) -> str | None:
        """Return why the check is invalid, or None."""
        chosen = [name for name in _FEATURES if getattr(self, name) is not None]
        if len(chosen) != 1 and chosen != ["command", "gate"]:
            return f"exactly one of {', '.join(_FEATURES)} says what is looked at" + (
                f", not {' and '.join(chosen)}" if chosen else ""
            )
        compared = [name for name, given in zip(_TEXTS, self._comparisons(), strict=True) if given]
        if len(compared) > 1:
            return f"{' and '.join(compared)} exclude each other"
        parts = ("command", "session", "judged") if self.matches is not None else ()
        if compared and chosen[0] not in ("value", "output", *parts):
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
    """An answer that must not pass; `says` must be a part of the learner's feedback."""

    answer: str
    says: str = ""


class Exercise(Struct, frozen=True, forbid_unknown_fields=True):
    """One exercise. `before` is the program of the cells above it, `solution` an answer that passes, `answers` the
    answers to sessions and conditions when the solution is tried (in the format of the `scripted` provider)."""

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
def _parsed(text: str, name: str) -> _File:
    """Return the exercises in a file's text. Raises `UsageError`.

    Cached, because every %check of a notebook reads its file, and YAML takes 30 ms for one lesson.
    """
    import yaml

    try:
        data = yaml.safe_load(text)
        try:
            return msgspec.convert(data, _File)
        except msgspec.ValidationError as problem:
            where, found, hint = _first_mistake(data) or ((), str(problem), _FORMAT)
            raise _mistake(name, text, where, found, hint) from None
    except (yaml.YAMLError, RecursionError) as problem:
        mark, reason = getattr(problem, "problem_mark", None), getattr(problem, "problem", None)
        at = f" line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise UsageError(f"{name}{at}: not YAML" + (f": {reason}" if reason else ""), hint=_FORMAT) from None


# ---------------------------------------------------------------- error messages


def _mistake(name: str, text: str, where: _Place, problem: str, hint: str | None = _FORMAT) -> UsageError:
    """Return the error for a place in a file: `first_steps.yaml line 9: check 1 of greeting: ...`."""
    match where:
        case ("exercises", str(exercise), "checks" | "wrong" as kind, int(number), *_):
            title = f"{'check' if kind == 'checks' else 'wrong answer'} {number + 1} of {exercise}: "
        case ("exercises", str(exercise), *_):
            title = f"{exercise}: "
        case _:
            title = ""
    line = _line(text, where)
    return UsageError(f"{name}{f' line {line}' if line else ''}: {title}{problem}", hint=hint)


def _line(text: str, where: _Place) -> int | None:
    """Return the line of a place in a YAML text."""
    import yaml

    node, line = yaml.compose(text, yaml.SafeLoader), None
    for step in where:
        if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            node = node.value[step]
        elif isinstance(node, yaml.MappingNode):
            line, node = next(
                ((key.start_mark.line + 1, value) for key, value in node.value if key.value == str(step)), (line, None)
            )
            continue
        line = node.start_mark.line + 1 if node is not None else line
    return line


def _first_mistake(data: object) -> tuple[_Place, str, str | None] | None:
    """Return the place of the first mistake, with its description and hint; None for another kind of mistake."""
    places: list[tuple[_Place, object, type[Struct]]] = []
    exercises = data.get("exercises") if isinstance(data, dict) else None
    for name, exercise in exercises.items() if isinstance(exercises, dict) else ():
        if not isinstance(name, str):
            return ("exercises", name), f"the name of an exercise must be a text, not {name!r}", None
        parts: tuple[tuple[str, type[Struct]], ...] = (("checks", Check), ("wrong", Wrong))
        for key, kind in parts:
            items = exercise.get(key) if isinstance(exercise, dict) else None
            for number, item in enumerate(items if isinstance(items, list) else ()):
                places.append((("exercises", name, key, number), item, kind))
        places.append((("exercises", name), exercise, Exercise))
    places.append(((), data, _File))
    for where, value, kind in places:
        if found := _mistake_of(value, kind):
            key, problem, hint = found
            return ((*where, key) if key else where, problem, hint)
    return None


def _mistake_of(value: object, kind: type[Struct]) -> tuple[str, str, str | None] | None:
    """Return the key of the first mistake in a mapping, with its description and hint."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    if not isinstance(value, dict):
        required = " and ".join(f"`{name}`" for name, field in fields.items() if field.required)
        found = "nothing" if value is None else clipped(repr(value), _SHOWN)
        return "", f"a mapping with {required} is needed, not {found}", _FORMAT
    for key in value:
        if key not in fields:
            known = f"one of {', '.join(fields)}"
            return str(key), f"there is no key `{key}`", nearest_hint(str(key), list(fields), known)
    for name, field in fields.items():
        if name not in value:
            if field.required:
                return "", f"`{name}` is missing", _FORMAT
            continue
        try:
            msgspec.convert(value[name], field.type)
        except msgspec.ValidationError:
            return name, f"`{name}` must be {_wanted(field.type)}, not {clipped(repr(value[name]), _SHOWN)}", None
    return None


def _wanted(kind: object) -> str:
    """Describe the values of a field."""
    if get_origin(kind) in (Union, UnionType):
        kind = next(part for part in get_args(kind) if part is not type(None))
    words = {str: "a text", int: "a whole number", bool: "true or false", tuple: "a list"}
    return words.get(cast("type", get_origin(kind) or kind), "a mapping")


def read(path: Path, default: Language, shown: str = "") -> Exercises:
    """Read a file of exercises, called `shown` in messages. Raises `UsageError`."""
    shown = shown or path.name
    try:
        text = plain_files.read_text(path, _LARGEST)
        found = _parsed(text, shown)
    except OSError as problem:
        raise UsageError(f"{shown} cannot be read: {reason_of(problem)}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{shown} is not UTF-8 text") from None
    language = languages.of_magic(found.language) if found.language else default
    if language is None:
        missing = f"there is no language {found.language}"
        raise _mistake(shown, text, ("language",), missing, "write prose or vvm")
    for name, exercise in found.exercises.items():
        for number, check in enumerate(exercise.checks):
            if problem_here := check.problem():
                raise _mistake(shown, text, ("exercises", name, "checks", number), problem_here, None)
    return Exercises(path.stem, language, found.exercises)


def files(directory: Path, notebook: str = "") -> list[Path]:
    """Return the files of exercises next to a notebook; the notebook's file comes first."""
    try:
        found = sorted((directory / DIRECTORY).glob("*.yaml"))
    except OSError:
        return []
    return sorted(found, key=lambda path: path.stem != Path(notebook).stem)


def find(directory: Path, notebook: str, wanted: str, default: Language) -> tuple[Exercises, str]:
    """Find an exercise by its name, in the notebook's file or another one next to it. Raises `UsageError`."""
    known: dict[str, Exercises] = {}
    unreadable: UsageError | None = None
    file, _, name = wanted.rpartition("/")
    for path in files(directory, notebook):
        if file and path.stem != file:
            continue
        try:
            found = read(path, default)
        except UsageError as problem:
            if path.stem in (file, Path(notebook).stem):
                raise
            unreadable = unreadable or problem
            continue
        if name in found.exercises:
            return found, name
        known |= {**dict.fromkeys(found.exercises, found), **known}
    near = Nearest()(name, known)
    if unreadable is not None and near is None:  # the exercise may be there
        raise unreadable
    if not known:
        raise UsageError(
            "there are no exercises here", hint=f"they are in {DIRECTORY}/NOTEBOOK.yaml next to the notebook"
        )
    raise UsageError(f"there is no exercise {wanted}", hint=did_you_mean(near) or "%check lists them")
