"""The interface of a tool: a name, a JSON schema, and a function that checks before it acts; and the tools that a
server or a functions file offers.

A provider gets `SessionTools` for each attempt. The model gets a refused or failed call as an error, and
the session continues.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeVar

from msgspec import Struct, field

from prose_kernel.access.safe_files import ToolFailed, ToolRefused
from prose_kernel.language.text import encodable, one_line

__all__ = ["Tool", "ToolAnswer", "ToolFailed", "ToolRefused", "ToolSpec"]

Outcome = Literal["ok", "refused", "failed"]


class ToolSpec(Struct, frozen=True):
    """The description of a tool for a model. `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, object]


class ToolAnswer(Struct, frozen=True):
    """The answer to a call for the model, and its outcome."""

    text: str
    outcome: Outcome = "ok"


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    async def call(self, arguments: Mapping[str, object]) -> str:
        """Run the tool. Raises `ToolRefused`, `ToolFailed`; cancelling the call ends everything it started."""


# ---------------------------------------------------------------- work in a thread

T = TypeVar("T")


class Stopped(ToolFailed):
    """The call was cancelled while its thread was running; never shown."""


class StopFlag(threading.Event):
    """A cancellation flag that long work in a thread checks now and then. `begun`: the thread has taken the work."""

    begun = False

    def check(self) -> None:
        """Raise `Stopped` if the call was cancelled."""
        if self.is_set():
            raise Stopped("stopped")


async def in_thread(work: Callable[[StopFlag], T]) -> T:
    """Return the result of `work`, run in a thread. On cancellation the thread is stopped and awaited first; if no
    thread is free yet, nothing is done."""
    stop = StopFlag()

    def begin() -> T:
        stop.begun = True
        stop.check()
        return work(stop)

    running = asyncio.ensure_future(asyncio.to_thread(begin))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        if not stop.begun:
            running.cancel()
        await _ended(running)
        raise


async def _ended(running: asyncio.Future[T]) -> None:
    """Wait for the thread, even if cancelled again: it may be writing."""
    while not running.done():
        try:
            await asyncio.wait((running,))
        except asyncio.CancelledError:
            continue
    if not running.cancelled():
        running.exception()  # retrieved, so that asyncio does not log it


# ---------------------------------------------------------------- arguments

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
}


def check_arguments(
    schema: Mapping[str, Any], arguments: Mapping[str, object], noun: str = "arguments", *, closed: bool = False
) -> None:
    """Raise `ToolFailed` naming the first error: a missing, unknown or ill-typed argument.

    Supports the keywords of our tools' schemas: `properties`, `required`, `additionalProperties`, `type`, `items`,
    `minimum`, `maximum`, `enum`. The tool checks everything else. The schema may come from a third party; `noun` names
    the values in messages. `closed` refuses unknown arguments even if the schema allows them.
    """
    fields = schema.get("properties")
    properties: Mapping[str, Any] = fields if isinstance(fields, Mapping) else {}
    for name in _items(schema.get("required")):
        if name not in arguments:
            raise ToolFailed(f"invalid {noun}: '{name}' is missing")
    for name, value in arguments.items():
        if name in properties:
            wrong = _wrong(name, properties[name], value)
            if wrong is not None:
                raise ToolFailed(f"invalid {noun}: {wrong}")
        elif closed or schema.get("additionalProperties", True) is False:
            raise ToolFailed(f"invalid {noun}: there is no '{name}' (known: {', '.join(properties) or 'none'})")


def _wrong(name: str, schema: object, value: object, of: str = "") -> str | None:
    if not isinstance(schema, Mapping):
        return None
    kind = schema.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        wrong_boolean = isinstance(value, bool) and kind != "boolean"
        if not isinstance(value, _TYPES[kind]) or wrong_boolean:
            return f"{of}'{name}' must be {'an' if kind[0] in 'aeiou' else 'a'} {kind}"
    if isinstance(value, (int, float)):
        for limit, words, broken in (("minimum", "at least", value.__lt__), ("maximum", "at most", value.__gt__)):
            if limit in schema and broken(schema[limit]) is True:
                return f"'{name}' must be {words} {schema[limit]}"
    known = _items(schema.get("enum"))
    if known and value not in known:
        return f"'{name}' must be one of {', '.join(map(str, known))}"
    if isinstance(value, Sequence) and not isinstance(value, str) and "items" in schema:
        for item in value:
            wrong = _wrong(name, schema["items"], item, "every item of ")
            if wrong is not None:
                return wrong
    return None


def _items(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def text(arguments: Mapping[str, object], name: str, default: str | None = None, *, empty: bool = False) -> str:
    """Return a text argument. Raises `ToolFailed` if it is missing or, unless `empty` is allowed, has no characters."""
    value = arguments.get(name, default)
    if not isinstance(value, str) or not (value or empty or default == ""):
        raise ToolFailed(f"invalid arguments: '{name}' must be a non-empty text")
    return value


def counted(arguments: Mapping[str, object], name: str, default: int) -> int:
    """Return an integer argument of at least 1. Raises `ToolFailed` for a smaller one."""
    value = arguments.get(name, default)
    if not isinstance(value, int):
        return default
    if name in arguments and value < 1:
        raise ToolFailed(f"invalid arguments: '{name}' must be at least 1")
    return value


def flag(arguments: Mapping[str, object], name: str) -> bool:
    return arguments.get(name) is True


# ---------------------------------------------------------------- offered tools

MOST_TOOLS: Final = 128
"""The maximum number of tools of one source: vendors accept no more."""
DESCRIPTION: Final = 4000
SCHEMA: Final = 64 * 1024
ALL: Final = 512 * 1024
"""Size limits, in bytes, of one schema and of all schemas of a source."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
"""Names that every vendor accepts."""


class OfferedTools(Struct):
    """The tools of a source in order, and by name why others cannot be offered. Its contents are not trusted."""

    tools: list[ToolSpec] = field(default_factory=list)
    unusable: dict[str, str] = field(default_factory=dict)
    _size: int = 0

    def add(self, name: str, description: str, schema: Mapping[str, Any], prefix: str = "") -> None:
        """Offer a tool, or record why it cannot be offered. Its name for models begins with `prefix`."""
        length, why = _measured(schema)
        if why is None and (_NAME.fullmatch(name) is None or len(prefix) + len(name) > 64):
            why = "its name is not one of at most 64 letters, digits, `_`, `-` and `.`"
        if why is None and any(spec.name == name for spec in self.tools):
            why = "there are two of that name"
        if why is None and (len(self.tools) == MOST_TOOLS or self._size + length > ALL):
            why = f"there are more than {MOST_TOOLS} tools, or more than {ALL // 1024} KiB of schemas"
        if why is not None:
            self.unusable.setdefault(name[:200], why)
            return
        self._size += length
        text = encodable((description or name)[:DESCRIPTION])
        self.tools.append(ToolSpec(name, text, schema))


def _measured(schema: Mapping[str, Any]) -> tuple[int, str | None]:
    """Return the length of a schema in bytes, and the reason why it is unusable, or None."""
    try:
        length = len(json.dumps(schema, ensure_ascii=False).encode())
        if length > SCHEMA:
            return length, f"its schema has more than {SCHEMA // 1024} KiB"
        fault = None if schema.get("type") == "object" else "it is not that of an object"
        fault = fault or _fault(schema)
    except (ValueError, RecursionError):
        return 0, "its schema isn't JSON"
    return length, f"its schema is wrong: {fault}" if fault else None


def _fault(schema: object) -> str | None:
    """Return an error of the kind that servers make and vendors refuse. A full check by the metaschema takes seconds
    for a large schema."""
    if isinstance(schema, bool):
        return None
    if not isinstance(schema, Mapping):
        return "a schema must be an object"
    types = schema.get("type", "object")
    for kind in types if isinstance(types, list) else [types]:
        if kind not in (*_TYPES, "null"):
            return f"there is no type {one_line(json.dumps(kind), 40)}"
    for key, form in _FORMS.items():
        if key in schema and not isinstance(schema[key], form):
            return f"`{key}` must be {'a list' if form is list else 'an object'}"
    parts = [part for key in ("properties", "$defs", "definitions") for part in schema.get(key, {}).values()]
    parts += [part for key in ("anyOf", "allOf", "oneOf") for part in schema.get(key, ())]
    parts += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    return next((fault for part in parts if (fault := _fault(part)) is not None), None)


_FORMS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("properties", "$defs", "definitions"), dict),
    **dict.fromkeys(("required", "enum", "anyOf", "allOf", "oneOf"), list),
}
