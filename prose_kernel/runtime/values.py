"""The values of a running program (openprose.md 3.2) and how each reads as text or JSON.

Text is `str`, numbers `int` or `float`, booleans `bool`, null `None`, arrays `list`, objects `dict`. Lists and dicts
are never changed after they have become a value. Three kinds have classes of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from prose_kernel.errors import RunError
from prose_kernel.runtime.ports import CommandResult, Key


@dataclass(frozen=True, slots=True)
class ExecText:
    """The value of `exec`: its stdout, with the result it came from as metadata (openprose.md 5.4).

    `bare` is true for a value bound under `on-fail: ignore` after a failure: neither code nor stderr is kept.
    """

    text: str
    result: CommandResult = field(compare=False)
    bare: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """The value of a session: where its binding lives. `run` names the store that holds it (see `Machine`)."""

    key: Key
    read: Callable[[], str] = field(compare=False, repr=False)
    location: str = ""
    summary: str = ""


@dataclass(frozen=True, slots=True)
class ErrorValue:
    """A caught error (openprose.md 3.12). `fields` are plain JSON, in the order of the reference's table."""

    fields: Mapping[str, object]
    error: RunError = field(compare=False, repr=False)

    @property
    def message(self) -> str:
        return str(self.fields.get("message", ""))


Value = str | int | float | bool | None | list["Value"] | dict[str, "Value"] | ExecText | Reference | ErrorValue


def kind_of(value: Value) -> str:
    """The word people are shown for a value's kind."""
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
            return "text from session"
        case ErrorValue():
            return "error"


def number_text(value: int | float) -> str:
    """Plain decimal (1.6): no exponent, no trailing zeros."""
    if isinstance(value, int):
        return str(value)
    text = format(value, "f") if abs(value) < 1e15 else format(value, ".0f")
    exact = repr(value)
    if "e" not in exact and "n" not in exact:
        text = exact
    return text.rstrip("0").rstrip(".") if "." in text else text


def full_text(value: Value) -> str:
    """The value as it is stored: verbatim text, a JSON scalar, compact JSON."""
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
        case _:
            return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))


def inserted_text(value: Value) -> str:
    """The value as interpolation inserts it (1.6): exec text without its trailing newlines, null as empty text."""
    match value:
        case None:
            return ""
        case ExecText():
            return value.text.rstrip("\n")
        case _:
            return full_text(value)


def plain(value: Value) -> object:
    """The value as plain JSON data; exec text as inserted, references read, errors as their fields."""
    match value:
        case list():
            return [plain(v) for v in value]
        case dict():
            return {k: plain(v) for k, v in value.items()}
        case ExecText():
            return inserted_text(value)
        case Reference():
            return value.read()
        case ErrorValue():
            return dict(value.fields)
        case _:
            return value


def verbatim(value: Value) -> object:
    """The value as plain JSON data, every text as it is kept: exec text with its trailing newlines (5.4)."""
    match value:
        case list():
            return [verbatim(v) for v in value]
        case dict():
            return {k: verbatim(v) for k, v in value.items()}
        case ExecText():
            return value.text
        case _:
            return plain(value)


# ---------------------------------------------------------------- what a session is given to read


def full_content(value: Value) -> str:
    """All that a session can learn from a value, wherever it is kept."""
    return "\n".join(_exec_lines(value)) if isinstance(value, ExecText) else inline_text(value, placed=False)


def _exec_lines(value: ExecText) -> Iterator[str]:
    """A command's output after what its binding would tell beside it (5.5)."""
    result = value.result
    if not value.bare:
        yield f"exit_code: {result.exit_code}"
        if result.timed_out:
            yield "timed_out: true"
        if result.stderr:
            yield "stderr:"
            yield from (f"  {line}" for line in result.stderr.rstrip("\n").split("\n"))
        yield "stdout:"
    yield value.text


def inline_text(value: Value, *, placed: bool = True) -> str:
    """A value as text in a context; with `placed`, members that are stored are named by their place, not read."""
    if isinstance(value, ErrorValue):
        return "\n".join(_error_lines(value))
    if isinstance(value, (list, dict)) and placed:
        return json.dumps(_with_places(value), ensure_ascii=False, separators=(",", ":"))
    return full_text(value)


def _error_lines(value: ErrorValue) -> Iterator[str]:
    """A failed command: what happened, then its stderr (exec-and-tasks.md 2.6). Other errors field by field."""
    if "command" in value.fields:
        yield value.message
        if value.fields.get("stderr"):
            yield str(value.fields["stderr"]).rstrip("\n")
        return
    for key, item in value.fields.items():
        yield f"{key}: {item}"


def _with_places(value: Value) -> object:
    match value:
        case list():
            return [_with_places(item) for item in value]
        case dict():
            return {key: _with_places(item) for key, item in value.items()}
        case Reference():
            return {"$ref": value.location}
        case ErrorValue():
            return dict(value.fields)
        case None | bool() | int() | float():
            return value
        case _:
            return full_text(value)
