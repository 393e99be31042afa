"""Values as text (docs/reference/vvm.md 3.7): the canonical serialisation, and the forms in templates and displays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from prose_kernel.errors import VvmRaise
from prose_kernel.machine.vvm.values import a_type_of, equal, is_error, is_ref, type_of
from prose_kernel.runtime.json_text import int_text, json_text, too_large
from prose_kernel.runtime.values import LanguageValue, Value, full_text

LONGEST: Final = 2000
"""The most characters of a value that a template inserts whole."""
PREVIEW: Final = 300
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
    if type(value) is str and len(value) <= LONGEST:
        return value
    if type(value) is dict and is_ref(value):
        canonical(value)  # refuses functions in it
        return ref_preview(value)
    text = input_text(value)
    if len(text) <= LONGEST or not isinstance(value, (str, list, dict)):
        return text
    first = "\n".join(text.split("\n", LINES)[:LINES])[:PREVIEW].rstrip()
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


@dataclass(frozen=True, slots=True)
class Rendered:
    """A template with its values: the whole `text`, the text as `written` with its placeholders, and the text
    `inserted` for each of them. Without placeholders `written` is empty."""

    text: str
    written: str = ""
    inserted: tuple[tuple[str, str], ...] = ()


# ---------------------------------------------------------------- texts for people


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
