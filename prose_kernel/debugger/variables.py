"""Values for a debugger: one line each, with members that are listed on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from prose_kernel.runtime.values import ErrorValue, ExecText, LanguageValue, Reference, Value
from prose_kernel.views.escaping import clip

if TYPE_CHECKING:
    from prose_kernel.runs.languages import Language

MAX_MEMBERS: Final = 100
"""The most members in one list; one more entry has the rest."""
WIDTH: Final = 200
"""The most characters of a value on its line."""

Listed = list[dict[str, Any]]


class Variables:
    """Numbers for expandable entries: scopes, values with members, further members. They are valid until `clear`."""

    def __init__(self, typed: bool = True, first: int = 1) -> None:
        self.typed = typed
        self._members: dict[int, Callable[[], Listed]] = {}
        self._next = first

    def clear(self) -> None:
        """Make all numbers invalid, because the program continues. No number is used twice."""
        self._members.clear()

    def listed(self, reference: int) -> Listed | None:
        """Return the variables of a reference; None if there are none."""
        found = self._members.get(reference)
        return found() if found is not None else None

    def scope(self, names: Callable[[], Mapping[str, Value]], language: Language) -> int:
        """Return a number for the names of a scope."""
        return self._number(lambda: self.members(list(names().items()), language, expression=str))

    def members(
        self,
        members: list[tuple[str, Value]],
        language: Language,
        expression: Callable[[str], str] = lambda name: "",
        start: int = 0,
    ) -> Listed:
        """Return an entry for each of the members from `start` on, and one for the members that exceed the limit."""
        part = members[start : start + MAX_MEMBERS]
        listed = [self.variable(name, value, language, expression(name)) for name, value in part]
        left = len(members) - start - len(part)
        if left > 0:
            more = self._number(lambda: self.members(members, language, expression, start + MAX_MEMBERS))
            listed.append({"name": "…", "value": f"{left:,} more", "variablesReference": more})
        return listed

    def variable(self, name: str, value: Value, language: Language, expression: str = "") -> dict[str, Any]:
        """Return the entry of a value. Its reference is a number if it can be expanded, else 0."""
        found: dict[str, Any] = {"name": clip(name, WIDTH), "value": one_line(value, language), "variablesReference": 0}
        if expression:
            found["evaluateName"] = expression
        if self.typed:
            found["type"] = language.kind_of(value)
        if members := members_of(value):
            found["variablesReference"] = self._number(lambda: self.members(members(), language))
        return found

    def _number(self, members: Callable[[], Listed]) -> int:
        number, self._next = self._next, self._next + 1
        self._members[number] = members
        return number


def members_of(value: Value) -> Callable[[], list[tuple[str, Value]]] | None:
    """Return the function that lists the members of a value, if it has any."""
    match value:
        case list():
            return (lambda: [(f"[{index}]", member) for index, member in enumerate(value)]) if value else None
        case dict():
            return (lambda: list(value.items())) if value else None
        case ExecText(bare=False):
            result = value.result
            return lambda: [("stdout", value.text), ("stderr", result.stderr), ("exit_code", result.exit_code)]
        case ErrorValue():
            return lambda: [(name, field) for name, field in value.fields.items()]  # type: ignore[misc]
        case _:
            return None


def one_line(value: Value, language: Language) -> str:
    """Return the beginning of a value. Text is quoted; of many members only a few are shown."""
    match value:
        case str():
            return _quoted(value)
        case ExecText():
            return _quoted(value.text)
        case Reference():
            return _quoted(value.read())
        case list() | dict():
            return _collection(value, language)
        case ErrorValue():
            return clip(f"error: {value.message}", WIDTH)
        case LanguageValue():
            return clip(str(value), WIDTH)
        case _:
            return clip(language.text_of(value), WIDTH)


def _quoted(text: str) -> str:
    shown = text[:WIDTH].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{clip(shown, WIDTH)}"' + (f" ({len(text):,} characters)" if len(text) > WIDTH else "")


def _collection(value: list[Value] | dict[str, Value], language: Language, deep: int = 0) -> str:
    count, most = len(value), 6 if deep == 0 else 3
    if deep > 1 and count:
        return "[…]" if isinstance(value, list) else "{…}"

    def short(member: Value) -> str:
        if isinstance(member, (list, dict)):
            return _collection(member, language, deep + 1)
        return clip(one_line(member, language), 40)

    if isinstance(value, list):
        parts = [short(member) for member in value[:most]]
    else:
        parts = [f"{clip(name, 40)}: {short(member)}" for name, member in list(value.items())[:most]]
    inside = ", ".join([*parts, "…"] if count > most else parts)
    shown = f"[{inside}]" if isinstance(value, list) else f"{{{inside}}}"
    return f"{shown} ({count:,})" if deep == 0 and count > most else shown
