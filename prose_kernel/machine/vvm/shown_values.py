"""Values of VVM as people are shown them: the word for their kind, and their text (docs/reference/vvm.md 3.1, 3.7)."""

from __future__ import annotations

from prose_kernel.machine.vvm.rendering import as_written, ref_preview
from prose_kernel.machine.vvm.values import is_error, is_ref, type_of
from prose_kernel.runtime.json_text import int_text
from prose_kernel.runtime.values import LanguageValue, Value, full_text


def kind_of(value: Value) -> str:
    """The word for a value's kind. Error values and refs are recognised by their shape, the error first."""
    if is_error(value):
        return "error value"
    return "ref" if is_ref(value) else type_of(value)


def text_of(value: Value) -> str:
    """The whole value as text: strings as they are, unit as `()`, a ref in two lines, all else as JSON; a float keeps
    its point."""
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
