"""Files of imported programs and JSON Schemas, the same for every language: detects changes, reads, checks in order."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from prose_kernel.access import plain_files
from prose_kernel.errors import ImportProgramError, reason_of
from prose_kernel.language import typed_answers
from prose_kernel.language.diagnostics import Diagnostic
from prose_kernel.runtime.typed_answers import require_schema


class Unreadable(Exception):
    """The file cannot be read. The message is the reason, to be put after a name and a colon; `missing` is True if
    there is no such file."""

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason)
        self.missing = missing


def stamp(path: str) -> plain_files.Stamp:
    """Return the stamp of a regular file of a reasonable size. Raises `Unreadable` for anything else."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError) as error:
        raise _unreadable(error) from None
    if stat.S_ISDIR(status.st_mode):
        raise Unreadable("it is a directory, not a program")
    if stat.S_ISLNK(status.st_mode):
        raise Unreadable("it is a link, not a program")
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable("it is a device, not a program")
    if status.st_size > plain_files.LARGE:
        raise Unreadable("no program is that large")
    return plain_files.stamp(status)


def read(path: str) -> bytes:
    """Return the bytes of a file. Raises `Unreadable`."""
    try:
        return plain_files.read(path)
    except OSError as error:
        raise _unreadable(error) from None


def _unreadable(error: OSError | ValueError) -> Unreadable:
    if isinstance(error, FileNotFoundError):
        return Unreadable("there is no such file", missing=True)
    return Unreadable(reason_of(error, "no file can be called so"))


V = TypeVar("V")


class OfLoad(Generic[V]):
    """A value that belongs to one load of a program, in its task and its threads, because branches load programs at the
    same time. Outside of loads it is `otherwise`."""

    def __init__(self, otherwise: V) -> None:
        self._otherwise = otherwise
        self._value: ContextVar[V] = ContextVar("of a load")

    @property
    def now(self) -> V:
        return self._value.get(self._otherwise)

    @contextlib.contextmanager
    def set(self, value: V) -> Iterator[None]:
        token = self._value.set(value)
        try:
            yield
        finally:
            self._value.reset(token)


@dataclass(frozen=True, slots=True)
class Location:
    """The location of a program: an absolute path, or a URL (`remote`). `shown` is its name in messages."""

    address: str
    remote: bool = False
    shown: str = field(default="", compare=False)


class ReadProgram(Protocol):
    """A program that was read, with the paths of its imports."""

    @property
    def where(self) -> Location: ...

    @property
    def paths(self) -> tuple[str, ...]: ...


T = TypeVar("T", bound=ReadProgram)
R = TypeVar("R")
Results = dict[Location, R | ImportProgramError]
CycleTo = Callable[[Location], tuple[Location, ...]]
"""Returns the cycle that an import of a program closes, from this program to itself; empty if it closes none."""


def checked(
    start: T,
    chain: Sequence[Location],
    find: Callable[[str, Location], Location],
    read: Callable[[Location], T | None],
    check: Callable[[T, CycleTo, Results[R]], R | ImportProgramError],
) -> Results[R]:
    """Check a program after all its imports, and these after their own. Not recursive: imports nest to any depth.

    - `chain` are the programs that lead to it.
    - `find` returns the location of an import; `read` returns the program there, or None if it need not be visited.
    - `check` gets one program and the results so far; the result of an import that cannot be read is its error.
    """
    results: Results[R] = {}
    way, ahead = [start], [iter(start.paths)]
    active = {*chain, start.where}

    def cycle_to(met: Location) -> tuple[Location, ...]:
        if met not in active:
            return ()
        places = [*chain, *(text.where for text in way), met]
        return tuple(places[places.index(met) :])

    while way:
        importer = way[-1].where
        path = next(ahead[-1], None)
        if path is None:
            results[importer] = check(way[-1], cycle_to, results)
            active.discard(importer)
            way.pop()
            ahead.pop()
            continue
        try:
            where = find(path, importer)
        except ImportProgramError:
            continue  # the check of the importer reports it
        if where in results or where in active:
            continue
        try:
            inner = read(where)
        except ImportProgramError as error:
            results[where] = error
            continue
        if inner is not None:
            way.append(inner)
            active.add(inner.where)
            ahead.append(iter(inner.paths))
    return results


def errors_in(name: str, errors: Sequence[Diagnostic]) -> str:
    """Return the message for an import that has these errors."""
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    place = f"line {first.line}, column {first.column}"
    return f'"{name}" cannot be loaded, it has errors: {place}: {first.message} [{first.code}]{more}'


# ---------------------------------------------------------------- schemas of typed answers


def read_schema(file: Location, given: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the schema in a file, its references resolved, and the text of the file by its address.

    `given` are texts of a resumed run, by address. Raises `ImportProgramError` (E224).
    """
    try:
        text = given[file.address] if file.address in given else _schema_text(file.address)
        schema = typed_answers.read(text)
        require_schema(schema)
    except (ValueError, Unreadable) as problem:
        raise unusable_schema(file.shown, str(problem).removesuffix(", not a program")) from None
    return schema, {file.address: text}


def _schema_text(address: str) -> str:
    if stamp(address).size > typed_answers.MAX_LENGTH * 4:
        raise ValueError(f"the schema is too large; at most {typed_answers.MAX_LENGTH:,} characters are sent")
    return read(address).decode("utf-8-sig", "replace")


def unusable_schema(shown: str, problem: str) -> ImportProgramError:
    """Return the error for an unusable schema."""
    return ImportProgramError(f"{shown}: {problem}", code="E224", hint="or write the fields: `output: { ok: boolean }`")
