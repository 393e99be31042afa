"""The interface of a tool: a name, a JSON schema, and a function that checks before it acts.

A provider gets `SessionTools` for each attempt. The model gets a refused or failed call as an error, and
the session continues.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeVar

from prose_kernel.access.safe_files import ToolFailed, ToolRefused

__all__ = ["Tool", "ToolAnswer", "ToolFailed", "ToolRefused", "ToolSpec"]

Outcome = Literal["ok", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """The description of a tool for a model. `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ToolAnswer:
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


class Stop(threading.Event):
    """A cancellation flag that long work in a thread checks now and then."""

    def check(self) -> None:
        """Raise `Stopped` if the call was cancelled."""
        if self.is_set():
            raise Stopped("stopped")


async def in_thread(work: Callable[[Stop], T]) -> T:
    """Return the result of `work`, run in a thread. On cancellation the thread is stopped and awaited first."""
    stop = Stop()
    running = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
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
