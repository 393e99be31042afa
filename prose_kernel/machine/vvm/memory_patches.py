"""Reads memory patches, with which a session changes its agent's memory: fenced blocks tagged `vvm-memory` (6.6).

They are removed from every reply, even without a memory. A block inside another fenced block is an example, not a
patch; an unclosed fence does not hide any patch.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

TAG: Final = "vvm-memory"
UNTERMINATED: Final = "unterminated"
"""Replaces a block with an unclosed fence. It isn't valid JSON, so it is discarded."""

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")


class Split(NamedTuple):
    """A reply without its patches, and the patches."""

    visible: str
    patches: tuple[str, ...]


class _Fence(NamedTuple):
    mark: str
    length: int
    info: str


def split(reply: str) -> Split:
    """Take the patches out of a reply. White space that a patch leaves at the end is trimmed; the rest is unchanged."""
    if TAG not in reply:
        return Split(reply, ())
    lines = re.findall(r"[^\n]*\n|[^\n]+\Z", reply)
    fences = [_fence(line) for line in lines]
    closing = _longest_closing(fences)
    kept: list[str] = []
    patches: list[str] = []
    at, last = 0, 0  # `last`: the length of `kept` when the last patch was removed
    while at < len(lines):
        fence = fences[at]
        end = _end(fences, closing, at) if fence is not None else None
        if fence is not None and fence.info == TAG:
            patches.append(UNTERMINATED if end is None else "".join(lines[at + 1 : end]))
            at, last = (len(lines) if end is None else end + 1), len(kept)
            continue
        stop = at + 1 if end is None else end + 1
        kept += lines[at:stop]
        at = stop
    if not patches:
        return Split(reply, ())
    after = "".join(kept[last:])
    visible = "".join(kept) if after.strip() else "".join(kept[:last]).rstrip()
    return Split(visible, tuple(patches))


def _fence(line: str) -> _Fence | None:
    found = _FENCE.match(line)
    if found is None:
        return None
    mark, info = found[1][0], line[found.end() :].strip(" \t\r\n")
    return None if mark == "`" and mark in info else _Fence(mark, len(found[1]), info)


def _longest_closing(fences: list[_Fence | None]) -> list[dict[str, int]]:
    """Return for each line the longest fence after it that could close one, by its mark, to avoid vain searches."""
    longest: dict[str, int] = {}
    found: list[dict[str, int]] = []
    for fence in reversed(fences):
        found.append(longest)
        if fence is not None and not fence.info and fence.length > longest.get(fence.mark, 0):
            longest = {**longest, fence.mark: fence.length}
    return found[::-1]


def _end(fences: list[_Fence | None], closing: list[dict[str, int]], at: int) -> int | None:
    """Return the line that closes the fence of a line, or None."""
    fence = fences[at]
    if fence is None or closing[at].get(fence.mark, 0) < fence.length:
        return None
    for number in range(at + 1, len(fences)):
        other = fences[number]
        if other is not None and not other.info and other.mark == fence.mark and other.length >= fence.length:
            return number
    return None
