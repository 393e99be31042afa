"""The values of a running program (openprose.md 3.2), and their forms as text and JSON.

Text is `str`, numbers `int` or `float`, booleans `bool`, null `None`, arrays `list`, objects `dict`. Lists and dicts
are never changed after they have become a value. Three kinds have their own classes, and values that only one language
has are `LanguageValue`s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeVar

from prose_kernel.errors import RunError, ValueTypeError
from prose_kernel.runtime.json_data import LONGEST_TEXT as LONGEST_TEXT
from prose_kernel.runtime.json_data import int_text, json_text, mapped, too_large
from prose_kernel.runtime.ports import CommandResult, Key


@dataclass(frozen=True, slots=True)
class ExecText:
    """The value of `exec`: its stdout, with the command's result as metadata (openprose.md 5.4).

    `bare` is true for a value bound under `on-fail: ignore` after a failure: exit code and stderr are not kept.
    `format` is the declared format of the text, or ""; `location` is the location of its binding, or "".
    """

    text: str
    result: CommandResult = field(compare=False)
    bare: bool = False
    format: str = field(default="", compare=False)
    location: str = field(default="", compare=False)

    def at(self, location: str) -> ExecText:
        """Return the same value with its binding at `location`."""
        return ExecText(self.text, self.result, self.bare, self.format, location)


@dataclass(frozen=True, slots=True)
class Reference:
    """The value of a session: the `key` and `location` of its binding, and `read`, which returns its text. A typed
    answer has a `schema`."""

    key: Key
    read: Callable[[], str] = field(compare=False, repr=False)
    location: str = ""
    summary: str = ""
    schema: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ErrorValue:
    """A caught error (openprose.md 3.12). `fields` are plain JSON, in the order of the reference's table."""

    fields: Mapping[str, object]
    error: RunError = field(compare=False, repr=False)

    @property
    def message(self) -> str:
        return str(self.fields.get("message", ""))


class LanguageValue:
    """A value that only its own language can use: a function or an agent.

    `kind` is the word for people. `str` is its text in a store, in another language, and in JSON.
    """

    __slots__ = ()

    kind: ClassVar[str]


Value = (
    str
    | int
    | float
    | bool
    | None
    | list["Value"]
    | dict[str, "Value"]
    | ExecText
    | Reference
    | ErrorValue
    | LanguageValue
)


def kind_of(value: Value) -> str:
    """Return the word for a value's kind in messages."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "text"
        case list():
            return "array"
        case dict():
            return "object"
        case ExecText():
            return "text from exec"
        case Reference():
            return "text from session" if value.schema is None else "object from session"
        case ErrorValue():
            return "error"
        case LanguageValue():
            return value.kind


def number_text(value: int | float) -> str:
    """Return a plain decimal (1.6): no exponent, no trailing zeros."""
    if isinstance(value, int):
        return int_text(value)
    text = format(value, "f") if abs(value) < 1e15 else format(value, ".0f")
    exact = repr(value)
    if "e" not in exact and "n" not in exact:
        text = exact
    return text.rstrip("0").rstrip(".") if "." in text else text


def full_text(value: Value) -> str:
    """Return the value in its stored form: verbatim text, a JSON scalar, or compact JSON."""
    match value:
        case str():
            return value
        case ExecText():
            return value.text
        case Reference():
            return value.read()
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return number_text(value)
        case ErrorValue():
            return value.message
        case LanguageValue():
            return str(value)
        case _:
            return json_text(plain(value), separators=(",", ":"))


def inserted_text(value: Value) -> str:
    """Return the value as inserted by interpolation (1.6): exec text without its trailing newlines, null as empty text.

    Raises E209 for an array or object whose text would be too long (amendment A32).
    """
    match value:
        case list() | dict():
            require_writable(value)
            return full_text(value)
        case None:
            return ""
        case ExecText():
            return value.text.rstrip("\n")
        case _:
            return full_text(value)


def require_writable(value: Value) -> None:
    """Raise E209 for an array or object whose text would not fit into memory."""
    if much := too_large(value):
        raise ValueTypeError(f"this {kind_of(value)} is {much}", hint="use a part of it")


def require_short(length: int) -> None:
    """Raise E209 if a text that a program is about to build is too long."""
    if length > LONGEST_TEXT:
        raise ValueTypeError(
            f"the text would have more than {LONGEST_TEXT:,} characters", hint="write it to a file, and name the file"
        )


def data_of(value: ExecText | Reference) -> object:
    """Return the data of a typed answer, or of complete output with a declared format; otherwise the verbatim text.

    Output that is not in its declared format is returned as text.
    """
    if isinstance(value, Reference):
        text = value.read()
        return _parsed(text, "json") if value.schema is not None else text
    if not value.format or value.bare or value.result.stdout_truncated or value.result.image:
        return value.text
    return _parsed(value.text, value.format)


def _parsed(text: str, form: str) -> object:
    from prose_kernel.runtime.data_formats import NotData, parse

    try:
        return parse(text, form)
    except NotData:
        return text


_JSON: Final[frozenset[type]] = frozenset((str, int, float, bool, type(None)))


def plain(value: Value) -> object:
    """Return the value as plain JSON data: exec text as inserted, references read, errors as their fields, typed
    answers and output with a declared format as their data."""
    match value:
        case list() | dict():
            return too_large(value) or mapped(value, plain, _JSON)
        case ExecText():
            found = data_of(value)
            return found.rstrip("\n") if isinstance(found, str) else found
        case Reference():
            return data_of(value)
        case ErrorValue():
            return dict(value.fields)
        case LanguageValue():
            return str(value)
        case _:
            return value


def verbatim(value: Value) -> object:
    """Like `plain`, but exec text keeps its trailing newlines (5.4)."""
    match value:
        case list() | dict():
            return too_large(value) or mapped(value, verbatim, _JSON)
        case ExecText():
            return data_of(value)
        case _:
            return plain(value)


V = TypeVar("V")


class ReadMapping(Mapping[str, V]):
    """A read-only view of a mapping. `read` converts a value when it is looked up."""

    def __init__(self, values: Mapping[str, Any], read: Callable[[Any], V]) -> None:
        self._values = values
        self._read = read

    def __getitem__(self, name: str) -> V:
        return self._read(self._values[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<values: {', '.join(self) or 'none'}>"
