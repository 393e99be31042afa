"""The values of VVM (docs/reference/vvm.md 3): the names of their types, values that are recognised by their shape,
equality, order and sums, and values as text.

Unit is `None`; booleans, numbers, strings, lists and objects are Python's own, and never changed after they have become
a value. Error values and refs are plain objects. Functions and agents are `LanguageValue`s.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final, cast

from prose_kernel.errors import RunError, VvmRaise
from prose_kernel.language.vvm.expression_checks import ADD_HINT
from prose_kernel.runtime import json_data
from prose_kernel.runtime.execution_context import ExecutionContext, Node, located
from prose_kernel.runtime.json_data import int_text, json_text, mapped, too_large
from prose_kernel.runtime.shared_names import Agent
from prose_kernel.runtime.values import (
    LONGEST_TEXT,
    ErrorValue,
    ExecText,
    LanguageValue,
    Reference,
    Value,
    data_of,
    full_text,
)

_FENCE: Final = re.compile(r"(`{3,}|~{3,})[^\n`]*\n")
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""Matches an escaped surrogate. An unpaired surrogate isn't text."""


_TYPES: Final[dict[type, str]] = {
    type(None): "unit", bool: "boolean", int: "number", float: "number", str: "string", list: "list", dict: "object",
}  # fmt: skip


def raised(s: ExecutionContext, node: Node, code: str, message: str, *, hint: str | None = None) -> VvmRaise:
    """Return a run-time error located at a node (10.4)."""
    return located(s, VvmRaise(message, code=code, hint=hint), node)


def type_of(value: Value) -> str:
    """Return the name of a value's type in messages (3.1)."""
    return _TYPES.get(type(value)) or ("agent" if isinstance(value, Agent) else "function")


def a_type_of(value: Value) -> str:
    """Return the name of the type with its article: `a number`, `an object`."""
    name = type_of(value)
    return name if name == "unit" else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def is_error(value: Value) -> bool:
    """Return whether a value is an error value: its field `error` is an object (3.3)."""
    return type(value) is dict and type(value.get("error")) is dict


def is_ref(value: Value) -> bool:
    """Return whether a value is a ref: its field `ref` is a string (3.4)."""
    return type(value) is dict and type(value.get("ref")) is str


def error_value(error: RunError) -> dict[str, Value]:
    """Return the value that `except as` binds (4.11)."""
    return {"error": {"kind": "thrown", "message": error.message}}


# ---------------------------------------------------------------- the JSON view of a string


def json_view(text: str) -> Any:
    """Return the list or object in a text that is JSON, or a single fenced block of JSON; None for others (3.5).

    The view is computed once for each text and shared: it must not be changed.
    """
    start = text[:200].lstrip()[:1]
    if start and start not in "[{`~":
        return None
    return _json_view(text)


@lru_cache(maxsize=64)
def _json_view(text: str) -> Any:
    text = _unfenced(text.strip())
    try:
        found = json_data.loads(text, parse_constant=json_data.no_constant, parse_float=_finite)
    except ValueError:
        return None
    if _HALF.search(text):
        written = json_text(found).encode("utf-16", "surrogatepass")
        found = json.loads(written.decode("utf-16", "replace"))
    return found if isinstance(found, (list, dict)) else None


def why_no_view(text: str) -> str:
    """Return why a text has no JSON view, as a predicate."""
    return f"is JSON that {json_data.DEEPER}" if json_data.is_deep_json(_unfenced(text.strip())) else "is not JSON"


def _unfenced(text: str) -> str:
    """Return the content of a text that is a single fenced block; other texts unchanged."""
    opening = _FENCE.match(text)
    if opening is None or not text.endswith(opening[1], opening.end()):
        return text
    return text[opening.end() :].rstrip(opening[1][0])


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is too large")
    return number


def typed(text: str) -> Value:
    """Return the object of a typed answer, or its text if the object would look like an error value or a ref."""
    found = json_view(text)
    return found if isinstance(found, dict) and not is_error(found) and not is_ref(found) else text


# ---------------------------------------------------------------- values of another language


def adopted(value: Value, *, refs: bool) -> Value:
    """Return a value of another language as a VVM value (13). With `refs` a session's reply becomes a ref, else
    text."""
    match value:
        case ExecText():
            return cast("Value", data_of(value))
        case Reference() if value.schema is not None:
            return typed(value.read())
        case Reference():
            if refs and value.location:
                return {"ref": value.location, "summary": value.summary} if value.summary else {"ref": value.location}
            return value.read()
        case ErrorValue():
            return {"error": _error_fields(value)}
        case list() | dict():
            found: Value = mapped(value, partial(adopted, refs=refs))
            return found
        case LanguageValue():
            return value
        case _:
            return value


def _error_fields(value: ErrorValue) -> dict[str, Value]:
    """Return the canonical fields (3.3); further facts of the error are under `data`."""
    data: dict[str, Any] = {key: item for key, item in value.fields.items() if key != "message"}
    fields: dict[str, Value] = {"kind": "thrown", "message": value.message}
    return {**fields, "data": data} if data else fields


# ---------------------------------------------------------------- equality, order and sums (3.2, 3.6)

# For values of any depth. Python says `True == 1`, even inside containers, so its `==` compares only texts and numbers.

LONGEST_LIST: Final = 10_000_000
"""The most items of a list that `+` may build. A value that doubles in a loop would otherwise exhaust the kernel's
memory."""

_LONGEST: Final[dict[type, int]] = {str: LONGEST_TEXT, list: LONGEST_LIST}
_NUMBERS: Final = (int, float)


def equal(left: Value, right: Value) -> bool:
    """Return whether two values are structurally equal. Raises R206 if a function or agent is compared."""
    kind = type(left)
    if kind is type(right) and (kind is int or kind is str):
        return left == right
    return _equal(left, right, set())


def _equal(a: Any, b: Any, seen: set[tuple[int, int]]) -> bool:
    """`seen` are the pairs assumed to be equal, so that a list in many places is compared only once."""
    if isinstance(a, LanguageValue) or isinstance(b, LanguageValue):
        which = a if isinstance(a, LanguageValue) else b
        raise VvmRaise(f"cannot compare {a_type_of(which)}", code="R206")
    kind, other = type(a), type(b)
    if kind is not other:
        return kind in _NUMBERS and other in _NUMBERS and bool(a == b)
    if kind is not list and kind is not dict:
        return bool(a == b)
    keys = range(len(a)) if kind is list else sorted(a)
    if len(a) != len(b) or (kind is dict and a.keys() != b.keys()):
        return False
    if (id(a), id(b)) in seen:
        return True
    seen.add((id(a), id(b)))
    for key in keys:  # noqa: SIM110 - `all` would take two frames a level
        if not _equal(a[key], b[key], seen):
            return False
    return True


def _unsupported(operator: str, left: Value, right: Value, reason: str | None = None) -> VvmRaise:
    """Return R205. `reason` replaces the types of the values. `except` shows a program only the message."""
    hint = ADD_HINT if operator == "+" and not reason and str in (type(left), type(right)) else None
    reason = reason or f"{a_type_of(left)} and {a_type_of(right)}"
    return VvmRaise(f"unsupported operand types for {operator}: {reason}", code="R205", hint=hint)


def _compared(sign: str, compare: Callable[[Any, Any], bool]) -> Callable[[Value, Value], Value]:
    def operate(left: Value, right: Value) -> Value:
        if type(left) in _NUMBERS and type(right) in _NUMBERS:
            return compare(left, right)
        raise _unsupported(sign, left, right)

    return operate


def _add(left: Any, right: Any) -> Value:
    kind, other = type(left), type(right)
    if kind is other and (kind is int or kind in _LONGEST):
        if kind is not int and len(left) + len(right) > _LONGEST[kind]:
            what = "characters" if kind is str else "items"
            raise _unsupported("+", left, right, f"the result would have more than {_LONGEST[kind]:,} {what}")
        return json_data.joined(left, right) if kind is list else left + right
    if kind in _NUMBERS and other in _NUMBERS:
        return _floats("+", left, right)
    raise _unsupported("+", left, right)


def _subtract(left: Any, right: Any) -> Value:
    kind, other = type(left), type(right)
    if kind in _NUMBERS and other in _NUMBERS:
        return left - right if kind is other is int else _floats("-", left, right)
    raise _unsupported("-", left, right)


def _floats(operator: str, left: Any, right: Any) -> Value:
    try:
        number = float(left) + float(right) if operator == "+" else float(left) - float(right)
    except OverflowError:
        reason = "the whole number is too large to be added to one with a decimal point"
        raise _unsupported(operator, left, right, reason) from None
    if math.isinf(number):
        raise _unsupported(operator, left, right, "the result is too large for a number with a decimal point")
    return number


OPERATORS: Final[dict[str, Callable[[Value, Value], Value]]] = {
    "==": equal,
    "!=": lambda a, b: not equal(a, b),
    "<": _compared("<", lambda a, b: a < b),
    "<=": _compared("<=", lambda a, b: a <= b),
    ">": _compared(">", lambda a, b: a > b),
    ">=": _compared(">=", lambda a, b: a >= b),
    "+": _add,
    "-": _subtract,
}


# ---------------------------------------------------------------- values as text (3.7)

LONGEST_INSERTED: Final = 2000
"""The most characters of a value that a template inserts whole."""
PREVIEWED: Final = 300
LINES: Final = 3
"""The characters and lines of a longer value that a template shows."""


def canonical(value: Value) -> str:
    """Return JSON with sorted keys, `, ` and `: ` as separators, `null` for unit. Raises R211 for a function or
    agent."""
    if much := too_large(value):
        raise VvmRaise(f"cannot render {a_type_of(value)}", code="R211", hint=f"it is {much}")
    return json_text(value, sort=True, other=_refuse)


def as_written(value: Value) -> str:
    """Return JSON for people: keys in the order of the program, functions and agents as their text."""
    return too_large(value) or json_text(value)


def _refuse(value: object) -> Any:
    assert isinstance(value, LanguageValue)
    raise VvmRaise(f"cannot render {a_type_of(value)}", code="R211")


def input_text(value: Value) -> str:
    """Return a value as the text of an input: a string raw, `()` for unit, else its canonical serialisation."""
    if type(value) is str:
        return value
    return "()" if value is None else canonical(value)


def ref_preview(ref: dict[str, Value]) -> str:
    """Return the two lines that represent a ref. They never contain the content of its file."""
    summary = ref.get("summary")
    shown = summary if type(summary) is str and summary.strip() else "(none)"
    return f"[ref: {ref['ref']}]\nsummary: {shown}"


def inserted(value: Value, given: Value) -> str:
    """Return the text that a placeholder inserts for a value; `given` is the primary input of the template."""
    if type(value) is str and len(value) <= LONGEST_INSERTED:
        return value
    if type(value) is dict and is_ref(value):
        canonical(value)  # refuses functions in it
        return ref_preview(value)
    text = input_text(value)
    if len(text) <= LONGEST_INSERTED or not isinstance(value, (str, list, dict)):
        return text
    first = "\n".join(text.split("\n", LINES)[:LINES])[:PREVIEWED].rstrip()
    where = "[see input]" if _is_part_of(value, given) else f"[truncated, {len(text)} chars]"
    return f"{first}\n{where}"


def _is_part_of(value: Value, given: Value) -> bool:
    """Return whether a value is the input, or a direct element or field of it."""
    members = given if type(given) is list else given.values() if type(given) is dict else ()
    return any(value is member or _same(value, member) for member in (given, *members))


def _same(value: Value, member: Value) -> bool:
    if type(value) is not type(member):
        return False
    try:
        return equal(value, member)
    except VvmRaise:
        return False


def kind_of(value: Value) -> str:
    """Return the word for a value's kind. Error values and refs are recognised by their shape, the error first."""
    if is_error(value):
        return "error value"
    return "ref" if is_ref(value) else type_of(value)


def text_of(value: Value) -> str:
    """Return the whole value as text: strings unchanged, unit as `()`, a ref in two lines, others as JSON. A float
    keeps its point."""
    match value:
        case str() | LanguageValue() | bool():
            return full_text(value)
        case None:
            return "()"
        case int():
            return int_text(value)
        case dict() if is_ref(value) and not is_error(value):
            return ref_preview(value)
        case float() | list() | dict():
            return as_written(value)
        case _:
            return full_text(value)
