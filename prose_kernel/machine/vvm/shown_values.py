"""Values of VVM as people are shown them: the word for their kind, and their text (docs/reference/vvm.md 3.1, 3.7)."""

from __future__ import annotations

import json

from prose_kernel.runtime.values import Value, full_text, plain
from prose_kernel.runtime.values import kind_of as runtime_kind_of

_KINDS = {"null": "unit", "text": "string", "array": "list", "error": "error value"}


def kind_of(value: Value) -> str:
    """The word for a value's kind; an error value and a ref are recognised by their shape, the error first."""
    if isinstance(value, dict):
        if isinstance(value.get("error"), dict):
            return "error value"
        return "ref" if isinstance(value.get("ref"), str) else "object"
    kind = runtime_kind_of(value)
    return _KINDS.get(kind, kind)


def text_of(value: Value) -> str:
    """The whole value as text: strings as they are, unit as `()`, all else as JSON; a float keeps its point."""
    match value:
        case None:
            return "()"
        case bool():
            return full_text(value)
        case float() | list() | dict():
            return json.dumps(plain(value), ensure_ascii=False)
        case _:
            return full_text(value)
