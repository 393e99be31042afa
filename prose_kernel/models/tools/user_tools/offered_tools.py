"""The tools that a server or a functions file offers: the usable ones, and the others with the reason."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from prose_kernel.language.text import encodable, one_line
from prose_kernel.models.tools.tool import ToolSpec

MOST_TOOLS: Final = 128
"""The maximum number of tools of one source: vendors accept no more."""
DESCRIPTION: Final = 4000
SCHEMA: Final = 64 * 1024
ALL: Final = 512 * 1024
"""Size limits, in bytes, of one schema and of all schemas of a source."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
"""Names that every vendor accepts."""


@dataclass(slots=True)
class Offer:
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
        if kind not in _TYPES:
            return f"there is no type {one_line(json.dumps(kind), 40)}"
    for key, form in _FORMS.items():
        if key in schema and not isinstance(schema[key], form):
            return f"`{key}` must be {'a list' if form is list else 'an object'}"
    parts = [part for key in ("properties", "$defs", "definitions") for part in schema.get(key, {}).values()]
    parts += [part for key in ("anyOf", "allOf", "oneOf") for part in schema.get(key, ())]
    parts += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    return next((fault for part in parts if (fault := _fault(part)) is not None), None)


_TYPES: Final = ("string", "integer", "number", "boolean", "array", "object", "null")
_FORMS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("properties", "$defs", "definitions"), dict),
    **dict.fromkeys(("required", "enum", "anyOf", "allOf", "oneOf"), list),
}
