"""Makes the one-line form of a command for lists, cards and events (exec-and-tasks.md 4.10, hazard 100).

Secrets are replaced; here-documents and inline scripts are replaced by their sizes. Only the owner can read the files
with the full text.
"""

from __future__ import annotations

import re
from collections import deque

from prose_kernel.language.text import clipped
from prose_kernel.runtime.redaction import masked

LONGEST_DISPLAY = 240
_HERE = re.compile(r"<<-?[ \t]*(['\"]?)([A-Za-z_]\w*)\1")
_INLINE = re.compile(r"(\s-(?:c|e|eval)\s+)(\"(?:[^\"\\]|\\.)*\"|'[^']*')", re.S)
_LONGEST_INLINE = 60


def display_of(command: str) -> str:
    """Return a command for lists, cards and events: one line of at most 240 characters."""
    text = _without_documents(command[: 64 * LONGEST_DISPLAY])
    text = masked(_INLINE.sub(_inline_script, text))
    text = " ".join(text.split())
    text = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
    return clipped(text, LONGEST_DISPLAY)


def _without_documents(text: str) -> str:
    """Return a command in which each here-document is replaced by its number of lines."""
    if "<<" not in text:
        return text
    lines = text.split("\n")
    ends: dict[str, deque[int]] = {}
    for number, line in enumerate(lines):
        ends.setdefault(line.split(maxsplit=1)[0] if line.strip() else "", deque()).append(number)
    shown, at = [], 0
    while at < len(lines):
        line, begin = lines[at], _HERE.search(lines[at])
        end = 0
        if begin is not None and (closing := ends.get(begin[2])):
            while closing and closing[0] <= at + 1:
                closing.popleft()
            end = closing[0] if closing else 0
        if begin is None or not end:
            shown.append(line)
            at += 1
            continue
        count = end - at - 1
        rest = lines[end].lstrip()[len(begin[2]) :]
        shown.append(
            f"{line[: begin.start()]}<<{begin[2]}{line[begin.end() :]} [{count} line{'s' if count != 1 else ''}]{rest}"
        )
        at = end + 1
    return "\n".join(shown)


def _inline_script(match: re.Match[str]) -> str:
    script = match[2]
    if len(script) <= _LONGEST_INLINE and "\n" not in script:
        return match[0]
    return f"{match[1]}[script of {len(script) - 2} characters]"
