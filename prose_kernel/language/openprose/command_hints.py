"""Makes the hints for values and braces in a command: W051 and E053 (docs/reference/openprose.md 5.2)."""

from __future__ import annotations

import re

from prose_kernel.language.openprose.tree import Interpolation, Text

_LONGEST = 160
_NAME_CONTINUES = re.compile(r"[A-Za-z0-9_{\[]")


def braces_hint(inside: str, name: str, nearest: str | None, after_dollar: bool) -> str:
    """Return the hint for braces around an unknown name, which may be meant for the shell or awk (E053)."""
    escaped = f"\\{{{inside}\\}}"
    if after_dollar:
        plain = f"write `${inside}`, or " if inside == name else "write "
        return f"{plain}`${escaped}` to keep the braces for the shell"
    near = f"did you mean `{{{nearest}}}`? otherwise " if nearest else ""
    return f"{near}define `{name}` first, or write `{escaped}` to pass the braces on"


def safe_form(text: Text, first: Interpolation) -> str:
    """Return the hint of W051: the command with environment variables in place of interpolations. Of a command with
    several lines, only the line that contains `first` is shown."""
    shown, entries = safe_command(text)
    variables = _variables(text)
    line = next((line for line in shown.split("\n") if f"${variables[first.raw]}" in line), shown).strip()
    if len(line) <= _LONGEST and "\n" not in shown:
        line = 'exec "' + line.replace("\\", "\\\\").replace('"', '\\"') + '"'
    elif len(line) > _LONGEST:
        line = f'"${variables[first.raw]}"'
    return f"write `{line}`, and below it `env: {{ {entries} }}`; a long text can go in as `stdin: {first.raw[1:-1]}`"


def safe_command(text: Text) -> tuple[str, str]:
    """Return the command with environment variables in place of interpolations, and the entries of `env`."""
    variables = _variables(text)
    entries = ", ".join(_entry(name, raw[1:-1]) for raw, name in variables.items())
    return _rewritten(text, variables), entries


def _entry(name: str, path: str) -> str:
    return name if path == name else f"{name}: {path}"


def _variables(text: Text) -> dict[str, str]:
    """Map each interpolation, as written, to a variable name."""
    found: dict[str, str] = {}
    for part in text.interpolations:
        if part.raw in found:
            continue
        last = next((step for step in reversed(part.steps) if isinstance(step, str)), part.name)
        base = name = last.replace("-", "_")
        number = 2
        while name in found.values() or name.isupper():
            name, number = (name.lower(), number) if name.isupper() else (f"{base}{number}", number + 1)
        found[part.raw] = name
    return found


def _rewritten(text: Text, variables: dict[str, str]) -> str:
    """Return the command with each interpolation replaced by a quoted variable, in any context of shell quotes."""
    done: list[str] = []
    quote = ""
    for index, part in enumerate(text.parts):
        if isinstance(part, str):
            quote = _quote_after(part, quote)
            done.append(part.removesuffix("$") if _is_dollar(text.parts, index) else part)
            continue
        following = text.parts[index + 1] if index + 1 < len(text.parts) else ""
        variable = f"${variables[part.raw]}"
        if quote == "'":
            done.append(f"'\"{variable}\"'")
        elif quote == '"':
            is_longer = isinstance(following, str) and _NAME_CONTINUES.match(following)
            done.append(f'""{variable}""' if is_longer else variable)
        else:
            done.append(f'"{variable}"')
    return "".join(done)


def _is_dollar(parts: tuple[str | Interpolation, ...], index: int) -> bool:
    following = parts[index + 1] if index + 1 < len(parts) else None
    return isinstance(following, Interpolation) and following.after_dollar


def _quote_after(part: str, quote: str) -> str:
    """Return the shell quote that is open after `part`, "" for none."""
    escaped = False
    for char in part:
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif char in "'\"" and not quote:
            quote = char
        elif char == quote:
            quote = ""
    return quote
