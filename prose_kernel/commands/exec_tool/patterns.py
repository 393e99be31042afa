"""Patterns for paths: `*` and `?` stay within a component, `**` crosses, a `/` at the end is all below (3.12)."""

from __future__ import annotations

import functools
import os
import re


def split(pattern: str) -> tuple[str, str]:
    """The longest leading run of components without wildcard, and the rest ("" when there is no wildcard)."""
    parts = pattern.split("/")
    for number, part in enumerate(parts):
        if "*" in part or "?" in part:
            return "/".join(parts[:number]) or "/", "/".join(parts[number:])
    return pattern, ""


def absolute(pattern: str, workspace: str) -> str | None:
    """An absolute pattern: relative ones start at the workspace, `~` is the home. None when `..` is in it."""
    if not pattern or "\0" in pattern or ".." in pattern.split("/"):
        return None
    if pattern.startswith("~"):
        pattern = os.path.expanduser(pattern)  # noqa: PTH111
    if not pattern.startswith("/"):
        pattern = f"{workspace.rstrip('/')}/{pattern.removeprefix('./')}"
    trailing = "/" if pattern.endswith("/") else ""
    return "/" + "/".join(part for part in pattern.split("/") if part not in ("", ".")) + trailing


def matches(path: str, prefix: str, rest: str) -> bool:
    """Whether what stands below a prefix in a path matches the rest of a pattern; no rest: itself and all below."""
    inside = path[len(prefix.rstrip("/")) :].lstrip("/")
    return not rest or _compiled(rest).fullmatch(inside) is not None


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    text, position = "", 0
    while position < len(pattern):
        if pattern.startswith("**/", position):
            text, position = text + "(?:.*/)?", position + 3
        elif pattern.startswith("**", position):
            text, position = text + ".*", position + 2
        elif pattern[position] in "*?":
            text, position = text + ("[^/]*" if pattern[position] == "*" else "[^/]"), position + 1
        else:
            text, position = text + re.escape(pattern[position]), position + 1
    if text.endswith("/"):
        text += ".*"
    return re.compile(text, re.DOTALL)
