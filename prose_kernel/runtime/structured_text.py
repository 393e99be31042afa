"""Reads structure from texts: JSON, members, indexes, items, binding files (openprose.md 3.11).

No function here asks a judge. `JudgeNeeded` means that only a judge can decide.
"""

from __future__ import annotations

import re
from typing import cast

from prose_kernel.errors import ImportProgramError, ValueTypeError
from prose_kernel.runtime import command_data, json_data
from prose_kernel.runtime.values import ErrorValue, ExecText, Reference, Value, kind_of

_FENCE = re.compile(r"(`{3,})[ \t]*(json\w*)?[ \t]*", re.IGNORECASE)
_BULLET = re.compile(r"^([ \t]*)(?:[-*+•]|\d{1,9}[.)])[ \t]+(\S.*)$", re.MULTILINE)


class JudgeNeeded(Exception):
    """The rules do not decide; `text` is what a judge would have to read."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class ProgramResult(dict[str, Value]):
    """The value of a program call: its outputs by name. `alias` is the name used for the call."""

    __slots__ = ("alias",)

    def __init__(self, outputs: dict[str, Value], alias: str) -> None:
        super().__init__(outputs)
        self.alias = alias


def json_in(text: str) -> object:
    """Return the data if a text, or its first fenced block, is JSON; None otherwise, or if it nests too deeply."""
    try:
        return shallow_json_in(text)
    except json_data.TooDeep:
        return None


def shallow_json_in(text: str) -> object:
    """Like `json_in`, but raises `json_data.TooDeep`."""
    stripped = text.strip()
    if stripped[:1] in ("{", "["):
        found = _parsed(stripped)
        if found is not None:
            return found
    fenced = _fenced(text)
    return _parsed(fenced) if fenced is not None else None


def _fenced(text: str) -> str | None:
    """Return the first fenced block. Takes linear time, however many fences are open (A37)."""
    if "```" not in text:
        return None
    lines = text.split("\n")
    fences = [(number, found) for number, line in enumerate(lines) if (found := _FENCE.fullmatch(line))]
    longest = 0
    opening: tuple[int, int] | None = None
    for number, found in reversed(fences):
        length = len(found[1])
        if number < len(lines) - 1 and length <= longest:
            opening = number, length
        if found[2] is None:
            longest = max(longest, length)
    if opening is None:
        return None
    begin, length = opening
    end = next(number for number, found in fences if number > begin and found[2] is None and len(found[1]) >= length)
    return "\n".join(lines[begin + 1 : end])


def _parsed(text: str) -> object:
    try:
        found: object = json_data.loads(text, parse_constant=json_data.no_constant)
    except json_data.TooDeep:
        raise
    except ValueError:
        return None
    return found


def _data_in(text: str) -> object:
    """Return the JSON in a text that the program uses as data. Raises E209 for JSON that nests too deeply."""
    try:
        return shallow_json_in(text)
    except json_data.TooDeep:
        raise ValueTypeError(f"the text is JSON that {json_data.DEEPER}") from None


# ---------------------------------------------------------------- members


def member(value: Value, name: str) -> Value:
    """Return `value.name`. Raises E028, E138, E209, E220, or `JudgeNeeded` for prose."""
    match value:
        case ProgramResult():
            if name not in value:
                raise ImportProgramError(f"program '{value.alias}' has no output '{name}'", code="E028")
            return value[name]
        case dict():
            return _field(value, name)
        case ErrorValue():
            if name not in value.fields:
                raise ValueTypeError(f"the error has no field '{name}'")
            return cast("Value", value.fields[name])
        case ExecText():
            return member(command_data.parsed(value), name)
        case str() | Reference():
            text = value if isinstance(value, str) else value.read()
            data = _data_in(text)
            if isinstance(data, dict):
                return _field(data, name)
            if text.strip() and not isinstance(data, list):
                raise JudgeNeeded(text)
            raise ValueTypeError(f"the text has no field '{name}'")
        case _:
            raise ValueTypeError(f"{_with_article(value)} has no field '{name}'")


def _field(value: dict[str, Value], name: str) -> Value:
    if name not in value:
        known = ", ".join(list(value)[:8])
        raise ValueTypeError(f"the object has no field '{name}'", hint=f"it has: {known}" if known else None)
    return value[name]


def index(value: Value, at: Value) -> Value:
    """Return `value[at]`. Raises E138, E209, E210, E220, or `JudgeNeeded`."""
    command_data.require_whole(at)
    if isinstance(value, ExecText):
        value = command_data.parsed(value, position=True)
    if isinstance(at, (str, Reference, ExecText)) and not isinstance(value, list):
        key = at if isinstance(at, str) else at.read() if isinstance(at, Reference) else at.text.rstrip("\n")
        return member(value, key)
    if isinstance(value, dict):
        raise ValueTypeError("an object has no numbered elements", hint='name a field: `.name` or `["name"]`')
    return element(value if isinstance(value, list) else collection(value), at)


def element(items: list[Value], at: Value) -> Value:
    """Return an element of an array by its number from 0, which may be a text."""
    number = int(at) if isinstance(at, str) and at.strip().isdecimal() and len(at) < 20 else at
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ValueTypeError("an index is a whole number from 0")
    if number >= len(items):
        count = "1 element" if len(items) == 1 else f"{len(items)} elements"
        raise ValueTypeError(f"index {number} is out of range; the array has {count}")
    return items[number]


# ---------------------------------------------------------------- collections


def collection(value: Value) -> list[Value]:
    """Return the items of a value. Raises E209, E210, E220, or `JudgeNeeded` for prose not split by rules 1 to 3."""
    match value:
        case list():
            return value
        case ExecText():
            if value.format:
                return collection(command_data.parsed(value))
            command_data.require_whole(value)
            return _items(value.text.rstrip("\n"))
        case str():
            return _items(value)
        case Reference():
            return _items(value.read())
        case dict():
            only = _only_array(value)
            if only is not None:
                return only
            raise not_a_collection(value)
        case _:
            raise not_a_collection(value)


def _items(text: str) -> list[Value]:
    if not text.strip():
        raise ValueTypeError("an empty text is not a collection", code="E210")
    data = _data_in(text)
    if isinstance(data, list):
        return cast("list[Value]", data)
    if isinstance(data, dict):
        only = _only_array(data)
        if only is not None:
            return only
    listed = _listed(text)
    if listed is not None:
        return listed
    raise JudgeNeeded(text)


def _only_array(value: dict[str, Value]) -> list[Value] | None:
    arrays = [item for item in value.values() if isinstance(item, list)]
    return arrays[0] if len(arrays) == 1 else None


def _listed(text: str) -> list[Value] | None:
    """Return the items of a list with bullets or numbers, at its top level; None if there are fewer than two."""
    found = _BULLET.findall(text)
    if not found:
        return None
    outer = min(len(indent.expandtabs()) for indent, _ in found)
    items: list[Value] = [item.rstrip() for indent, item in found if len(indent.expandtabs()) == outer]
    return items if len(items) > 1 else None


def lines(text: str) -> list[Value]:
    """Split a text without a judge: return its non-empty lines, if there are several. Raises E210."""
    found: list[Value] = [line.strip() for line in text.splitlines() if line.strip()]
    if len(found) < 2:
        raise ValueTypeError("this text is not a collection", code="E210", hint="write an array: [a, b]")
    return found


def not_a_collection(value: Value) -> ValueTypeError:
    return ValueTypeError(f"{_with_article(value)} is not a collection", code="E210")


def _with_article(value: Value) -> str:
    word = kind_of(value)
    return word if word == "null" else f"an {word}" if word[0] in "aeo" else f"a {word}"


# ---------------------------------------------------------------- binding files

# docs/reference/openprose.md 7.4; only LF ends a line. A session may have written the file.


def value_of(text: str) -> str:
    """Return the value in a binding file, even if a session has written it with an incomplete header.

    Without any header the whole text is the value.
    """
    if not text.startswith("# "):
        return text
    _, fence, _, rest = split_source(text)
    _, value = split_value(text if fence is None else rest)
    return text if value is None else value


def split_source(text: str) -> tuple[list[str], str | None, str, str]:
    """Return the lines before `source:`, the fence (None if there is none), the source, and the rest of the text."""
    start = text.find("\nsource:\n```")
    if start < 0:
        return text[:1000].split("\n"), None, "", ""
    head = text[:start].split("\n")
    opening = start + len("\nsource:\n")
    line_end = text.find("\n", opening)
    line = text[opening : line_end if line_end >= 0 else len(text)]
    fence = line[: len(line) - len(line.lstrip("`"))]
    close = text.find(f"\n{fence}\n", opening + len(line))
    if line_end < 0 or close < 0:
        return head, None, "", ""
    return head, fence, text[line_end + 1 : close], text[close + len(fence) + 2 :]


def split_value(rest: str) -> tuple[str, str | None]:
    """Return the lines before the first line that is exactly `---`, and the text after it and its blank line."""
    if rest.startswith("---\n"):
        at = 0
    else:
        at = rest.find("\n---\n") + 1
        if at == 0:  # a file that ends with its separator has an empty value
            return rest, "" if f"\n{rest}".endswith("\n---") else None
    return rest[:at], rest[at + len("---\n") :].removeprefix("\n")
