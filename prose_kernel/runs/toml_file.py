"""A strict reader of TOML files: `prose.toml`, specifications of evaluations, options of test cases.

A struct declares a table: its fields are the keys, their types the accepted values. The note of a type,
`Annotated[T, "a text"]` or `Annotated[T, Meta(..., description="a text")]`, describes the accepted values; a number
without a note must be above 0. Each key is checked separately: one mistake costs one value, and its error has a line.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, time
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import FieldInfo

from prose_kernel.access import plain_files
from prose_kernel.access.created_code import require_agreed
from prose_kernel.errors import UsageError, reason_of
from prose_kernel.language.nearest import did_you_mean, nearest_hint
from prose_kernel.language.text import clipped, escaped
from prose_kernel.programs import missing_files

Key = tuple[str | int, ...]
Table = TypeVar("Table", bound=Struct)

_SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_TOO_LARGE_FROM = 1 << 63
_TOO_LARGE = "a number of at most 64 bits"
_HEADER = re.compile(r"\s*(\[{1,2})([^\[\]]+)\]{1,2}\s*(?:#.*)?$")
_KEY = re.compile(r"\s*([^=#\[\]{}]+?)\s*=")

declared = functools.cache(msgspec.structs.fields)


class TomlFile(Struct, frozen=True):
    """The content of a TOML file. Errors are raised as `UsageError`, or added to `problems` where documented.

    `noun` is the word for a key in errors; with `columns`, errors give columns as well as lines. `removed` are keys of
    former versions.
    """

    name: str
    text: str
    data: Mapping[str, Any]
    noun: str = "setting"
    columns: bool = False
    removed: Collection[str] = ()
    problems: list[UsageError] = field(default_factory=list)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Add a `UsageError` of the block to `problems` and skip the rest of the block."""
        try:
            yield
        except UsageError as problem:
            self.problems.append(problem)

    def require(self) -> None:
        """Raise one error for all problems."""
        if self.problems:
            raise combined_error(self.problems, self.noun)

    # ------------------------------------------------------------ tables

    def table(self, key: Key) -> Mapping[str, Any]:
        """Return the table at `key`; an empty one, with a problem, for another value."""
        found: Any = self.data
        for part in key:
            found = found[part] if isinstance(part, int) else found.get(part, {}) if isinstance(found, dict) else {}
        if isinstance(found, dict):
            return found
        self.problems.append(self.mistake(key, f"a table [{dotted(key)}], not {as_written(found)}"))
        return {}

    def values(
        self, kind: type[Struct], key: Key = (), *, without: Collection[str] = (), also: Collection[str] = ()
    ) -> dict[str, Any]:
        """Return the valid values of the table at `key` by field of `kind`; add errors to `problems`.

        Fields `without` are not keys; `also` are further keys, which the caller reads. A field whose type is a struct
        is a nested table, returned as a dict; if the struct has a `SHORT` key, its value may replace the table.
        """
        content = self.table(key)
        fields = {one.name: one for one in declared(kind) if one.name not in without}
        self._refuse_unknown(content, key, fields, also)
        for one in fields.values():
            if one.required and one.name not in content:
                hint = f"{one.name} takes {accepted(one.type)}"
                self.problems.append(self.mistake(key, f"`{one.name}` is missing", hint))
        found: dict[str, Any] = {}
        for name, value in content.items():
            inner = fields[name].type if name in fields else None
            with self.noting():
                if not (isinstance(inner, type) and issubclass(inner, Struct)):
                    found |= {name: self._checked(value, fields[name], (*key, name))} if inner is not None else {}
                elif isinstance(value, str) and (short := getattr(inner, "SHORT", "")):
                    only = next(one for one in declared(inner) if one.name == short)
                    found[name] = {short: self._checked(value, only, (*key, name))}
                else:
                    found[name] = self.values(inner, (*key, name))
        return found

    def struct(self, kind: type[Table], key: Key = (), **options: Collection[str]) -> Table:
        """Return the table at `key` as a struct. Raises `UsageError` for a wrong or missing value."""
        noted = len(self.problems)
        values = self.values(kind, key, **options)
        if len(self.problems) > noted:
            raise self.problems.pop()
        return kind(**values)

    def _refuse_unknown(
        self, content: Mapping[str, object], key: Key, fields: Mapping[str, FieldInfo], also: Collection[str]
    ) -> None:
        known = [*fields, *also]
        for name in content:
            if name not in known:
                hint = nearest_hint(name, known, f"one of {', '.join(known)}")
                table, _, inner = name.partition("_")
                if table in fields and _has_key(fields[table].type, inner):  # the setting's single name: `vvm_depth`
                    hint = did_you_mean(f"[{dotted((*key, table))}] {inner}")
                hint = "it was removed: delete this line" if name in self.removed else hint
                self.problems.append(self.mistake((*key, name), f"there is no such {self.noun}", hint))

    def _checked(self, value: object, declaration: FieldInfo, key: Key) -> object:
        try:
            if value == "" and declaration.default != "" and declaration.name != "key":  # a server without a key
                raise ValueError
            return convert(value, declaration.type)
        except ValueError as problem:
            self.refuse(key, str(problem) or accepted(declaration.type), value)

    # ------------------------------------------------------------ errors

    def refuse(self, key: Key, wanted: str, value: object) -> NoReturn:
        self.fail(key, f"{wanted}, not {as_written(value)}")

    def fail(self, key: Key, text: str, hint: str | None = None) -> NoReturn:
        raise self.mistake(key, text, hint)

    def mistake(self, key: Key, text: str, hint: str | None = None) -> UsageError:
        """Return an error about a key, with its place in the file."""
        where = ""
        if place := place_of(self.text, key):
            where = f" line {place[0]}, column {place[1]}" if self.columns else f" line {place[0]}"
        return UsageError(f"{self.name}{where}: {f'{dotted(key)}: ' if key else ''}{text}", hint=hint)


def _has_key(table: object, name: str) -> bool:
    return isinstance(table, type) and issubclass(table, Struct) and name in [one.name for one in declared(table)]


def as_written(value: object) -> str:
    """Return the beginning of a value, in the spelling of TOML if Python's is different."""
    match value:
        case bool():
            return str(value).lower()
        case date() | time():
            return value.isoformat()
        case str():
            return repr(clipped(value, 120))
        case _:
            return clipped(repr(value), 120)


def read(path: Path, example: str, shown: str = "", **options: Any) -> TomlFile:
    """Read a file, called `shown` in errors. Raises `UsageError`, with `example` as the hint if it is not TOML."""
    import tomllib  # only if the file exists: kernel start-up must be fast

    name, text = escaped(shown or path.name or str(path)), ""
    try:
        require_agreed([path])
        text = plain_files.read_text(path, plain_files.SMALL).removeprefix("\ufeff")
        found = TomlFile(name, text, tomllib.loads(text), **options)
        if "\\" in text and (key := _with_nul(found.data)) is not None:
            found.fail(key, "a text cannot have the character U+0000")
        return found
    except OSError as problem:
        missing = isinstance(problem, FileNotFoundError)
        hint = missing_files.hint(name, (".toml",), path=str(path)) if missing else None
        raise UsageError(f"{name} cannot be read: {reason_of(problem)}", hint=hint) from None
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not UTF-8 text") from None
    except ValueError as problem:
        reason = problem if isinstance(problem, tomllib.TOMLDecodeError) else "a number has too many digits"
        raise UsageError(f"{name} is not TOML: {reason}", hint=example) from None
    except RecursionError:
        raise UsageError(f"{name} is nested too deeply", hint=example) from None


def _with_nul(value: object, key: Key = ()) -> Key | None:
    """Return the key of the first text with a NUL, which no path, command or variable can contain."""
    if isinstance(value, str):
        return key if "\0" in value else None
    entries: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        entries = value.items()
    elif isinstance(value, list):
        entries = enumerate(value)
    return next((place for name, one in entries if (place := _with_nul(one, (*key, name))) is not None), None)


def combined_error(problems: Sequence[UsageError], noun: str = "setting") -> UsageError:
    """Return one error that lists all problems."""
    if len(problems) == 1:
        return problems[0]
    lines = [f"  {problem}" + (f" ({problem.hint})" if problem.hint else "") for problem in problems]
    return UsageError("\n".join([f"{len(problems)} {noun}s are wrong:", *lines]))


# ---------------------------------------------------------------- values and their types


def convert(value: object, hint: object, *, text: bool = False) -> object:
    """Convert `value` to its declared type; `text=True` for environment variables.

    Raises `ValueError`; its message says what is accepted, if that is not what `accepted` says.
    """
    note, plain = _note(hint)
    if text and plain is bool:
        word = str(value).strip().casefold()
        if word not in _SWITCH:
            raise ValueError
        return _SWITCH[word]
    try:
        found: object = msgspec.convert(value, hint, strict=not text)
    except msgspec.ValidationError as problem:
        if plain in (int, float) and isinstance(value, str) and value.isdecimal() and len(value.lstrip("0")) > 19:
            raise ValueError(_TOO_LARGE) from problem
        raise ValueError from problem
    if isinstance(found, bool) or not isinstance(found, int | float):
        return found
    if isinstance(found, int) and not -_TOO_LARGE_FROM <= found < _TOO_LARGE_FROM:
        raise ValueError(_TOO_LARGE)
    if not math.isfinite(found):
        raise ValueError
    if not isinstance(note, Meta) and (found < 0 or (found == 0 and note is None)):
        raise ValueError
    return found


def accepted(hint: object) -> str:
    """Describe the values of a type."""
    note, plain = _note(hint)
    if note is not None:
        return str(note.description if isinstance(note, Meta) else note)
    if get_origin(plain) is Literal:
        return "one of " + ", ".join(repr(word) for word in get_args(plain) if word)
    if get_origin(plain) is tuple:
        of = get_args(plain)[0]
        return "a list of " + (", ".join(map(repr, get_args(of))) if get_origin(of) is Literal else "texts")
    names = {bool: "true or false", int: "a whole number above 0", float: "a number above 0", str: "a text"}
    return (
        names.get(plain, "a table")
        if isinstance(plain, type)
        else "a table" + " of texts" * (get_args(plain)[1:] == (str,))
    )


def _note(hint: object) -> tuple[Any, object]:
    """Return the note of a type, None without, and the type without notes and without `| None`."""
    if get_origin(hint) in (Union, UnionType):
        hint = next(part for part in get_args(hint) if part is not type(None))
    return (get_args(hint)[1], get_args(hint)[0]) if get_origin(hint) is Annotated else (None, hint)


# ---------------------------------------------------------------- places of keys


def dotted(key: Key) -> str:
    """Return a key as people write it: `models."acp:x".opus`, `assert[2].rule`."""
    parts = [f"[{part + 1}]" if isinstance(part, int) else part for part in key]
    plain = [part if re.fullmatch(r"[\w-]+|\[\d+\]", part) else f'"{part}"' for part in parts]
    return ".".join(plain).replace(".[", "[")


def place_of(text: str, key: Key) -> tuple[int, int] | None:
    """Return line and column of a key, or of the innermost enclosing table that exists; None if neither exists."""
    best: tuple[int, tuple[int, int]] = (0, (0, 0))
    table: Key = ()
    counts: dict[Key, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if header := _HEADER.match(line):
            names = _path(f"[{header[2]}]")
            if header[1] == "[[":
                counts[names] = counts.get(names, -1) + 1
            # `[variant.agent.x]` belongs to the last `[[variant]]`
            found = table = next(
                ((*names[:n], counts[names[:n]], *names[n:]) for n in range(len(names), 0, -1) if names[:n] in counts),
                names,
            )
        elif assigned := _KEY.match(line):
            found = (*table, *_path(f"{assigned[1]} = 0"))
        else:
            continue
        shared = min(len(found), len(key))
        # a longer path matches, too: `[modles.x]` is the place of the misspelt `modles`
        if shared > best[0] and found[:shared] == key[:shared]:
            column = header.start(2) if header else assigned.start(1)  # type: ignore[union-attr]
            best = (shared, (number, column + 1))
    return best[1] if best[0] else None


def _path(line: str) -> tuple[str, ...]:
    import tomllib

    try:
        data: object = tomllib.loads(line)
    except (ValueError, RecursionError):
        return ()
    path: list[str] = []
    while isinstance(data, dict) and data:
        name, data = next(iter(data.items()))
        path.append(name)
    return tuple(path)
