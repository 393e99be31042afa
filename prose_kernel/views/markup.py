"""Make HTML elements. Contents and attributes are escaped, unless they are `Html` already."""

from __future__ import annotations

from prose_kernel.views.escaping import html_text

_EMPTY = frozenset({"img", "input"})


class Html(str):
    """HTML whose texts are escaped."""

    __slots__ = ()


def html(*parts: str) -> Html:
    """Join parts, and escape each part that is not `Html`."""
    return Html("".join([part if type(part) is Html else html_text(part) for part in parts]))


def tag(name: str, /, *parts: str, **attributes: str | bool | None) -> Html:
    """Return an element. `class_` sets the attribute `class`; True sets it without a value, None and False omit it."""
    given = ""
    for key, value in attributes.items():
        if value is True:
            given += f" {key}"
        elif isinstance(value, str):
            given += f' {key.rstrip("_")}="{html_text(value)}"'
    return Html(f"<{name}{given}>" if name in _EMPTY else f"<{name}{given}>{html(*parts)}</{name}>")
