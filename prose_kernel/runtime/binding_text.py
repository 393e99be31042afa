"""Where the value of a binding file begins (openprose.md 7.4): also in a file that a session has written.

Lines are told apart by LF alone.
"""

from __future__ import annotations


def value_of(text: str) -> str:
    """The value in a binding file, also in one that a session has written with a poor header.

    Without any header the whole text is the value.
    """
    if not text.startswith("# "):
        return text
    _, fence, _, rest = split_source(text)
    _, value = split_value(text if fence is None else rest)
    return text if value is None else value


def split_source(text: str) -> tuple[list[str], str | None, str, str]:
    """The lines before `source:`, the fence (None when there is none), the source, and the text after the fence."""
    start = text.find("\nsource:\n```")
    if start < 0:
        return text[:1000].split("\n"), None, "", ""
    head = text[:start].split("\n")
    opening = start + len("\nsource:\n")
    line_end = text.find("\n", opening)
    line = text[opening : line_end if line_end >= 0 else len(text)]
    fence = line[: len(line) - len(line.lstrip("`"))]
    close = text.find(f"\n{fence}\n", opening + len(line))
    if line_end < 0 or close < 0:
        return head, None, "", ""
    return head, fence, text[line_end + 1 : close], text[close + len(fence) + 2 :]


def split_value(rest: str) -> tuple[str, str | None]:
    """The lines before the first line that is exactly `---`, and what follows it and its blank line."""
    if rest.startswith("---\n"):
        at = 0
    else:
        at = rest.find("\n---\n") + 1
        if at == 0:  # a file that ends with its separator has an empty value
            return rest, "" if f"\n{rest}".endswith("\n---") else None
    return rest[:at], rest[at + len("---\n") :].removeprefix("\n")
