"""HTML as elements: what stands in them is text and is escaped, unless it is `Html` already."""

from __future__ import annotations

from prose_kernel.views.safety import html_text

_EMPTY = frozenset({"img", "input"})


class Html(str):
    """Markup whose texts are escaped."""

    __slots__ = ()


def html(*parts: str) -> Html:
    """The parts one after the other."""
    return Html("".join([part if isinstance(part, Html) else html_text(part) for part in parts]))


def tag(name: str, /, *parts: str, **attributes: str | bool | None) -> Html:
    """An element with these attributes: `class_` is `class`, one that is true has no value, None and False are none."""
    given = ""
    for key, value in attributes.items():
        if value is True:
            given += f" {key}"
        elif isinstance(value, str):
            given += f' {key.rstrip("_")}="{html_text(value)}"'
    return Html(f"<{name}{given}>" if name in _EMPTY else f"<{name}{given}>{html(*parts)}</{name}>")
