"""Makes hints for users who write shell commands, Python or another language (docs/reference/openprose.md 9.6), and for
values and braces in commands (5.2).

The hints of 9.6 are data in `hints.toml`: for a word, or for a pattern of an unreadable line, the text to type instead.
"""

from __future__ import annotations

import functools
import re
from itertools import zip_longest
from typing import Final

from prose_kernel.language.openprose.keywords import KEYWORDS
from prose_kernel.language.openprose.tree import Interpolation, Text
from prose_kernel.language.word_catalogue import hints

_SHELL: Final = (  # compiled at its first use
    r"(?:apt|apt-get|awk|aws|bash|brew|bun|bundle|cargo|cat|cd|chmod|chown|clear|cmake|composer|conda|cp|curl|cut|date|"
    r"deno|df|diff|docker|dotnet|du|echo|env|eslint|export|find|gcc|gem|gh|git|go|gradle|grep|gunzip|gzip|head|history|"
    r"htop|java|jest|jq|jupyter|kill|kubectl|less|ln|ls|make|man|mkdir|more|mv|mvn|mypy|nano|node|npm|npx|perl|php|"
    r"ping|pip|pip3|pipx|pnpm|poetry|pre-commit|printf|ps|pwd|pytest|python|python3|rg|rm|rmdir|rsync|ruby|ruff|rustc|"
    r"scp|sed|sh|sleep|sort|source|ssh|su|sudo|tail|tar|tee|terraform|time|top|touch|tox|tr|tree|tsc|uniq|unzip|uv|vim|"
    r"wc|wget|which|whoami|xargs|yarn|zip|zsh)"
)
_KEYWORDS: Final = "|".join(sorted(KEYWORDS.keys() - {"and", "import", "is", "not", "or"}))
_hints: Final = functools.partial(hints, "openprose")
_RANGE: Final = re.compile(r"(\d{1,9})(?:, *(\d{1,9}))?")
_NAME: Final = r"[A-Za-z_](?:[\w-]*\w)?"
_SAME_CASE: Final = rf"(?:{_KEYWORDS})\b"
_SENTENCE: Final = re.compile(r"[A-Za-z][\w'-]*(?:,?[ ]+[\w'-]+){2,}[.!?]?")
_ARTICLE: Final = re.compile(r"\b(?:the|a|an|all|my|our|your|this|that|these|please)\b", re.IGNORECASE)
MAX_QUOTED: Final = 200
"""How many characters of the user's text a hint may quote, and a line may have for the patterns to be tried."""
_LONGEST_COMMAND: Final = 160
_NAME_CONTINUES: Final = re.compile(r"[A-Za-z0-9_{\[]")
_STRAIGHT: Final = str.maketrans(dict.fromkeys("\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}", '"'))


@functools.cache
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple(
        (re.compile(pattern.replace("NAME", _NAME).replace("KEYWORD", _KEYWORDS), re.DOTALL), hint)
        for pattern, hint in _hints()["lines"].items()
    )


def command(text: str) -> str | None:
    """Return the shell command that a line begins with (`ls` for `ls -la`), None if it isn't recognised."""
    word = re.match(r"[\w-]+(?![\w-]*[ ]*(?:=(?!=)|:(?=\s|$)|\())", text)
    if word is None or re.fullmatch(_SHELL, word[0]) is None:
        return None
    return None if _SENTENCE.fullmatch(text) and _ARTICLE.search(text) else word[0]


def no_statement(word: str) -> str:
    """Return the message for a line that begins with a shell command."""
    return f"`{word}` is a command, not a statement"


def bare_word(word: str) -> str | None:
    """Return the hint for a statement that is only a word."""
    if hint := _hints()["bare"].get(word):
        return hint
    if re.fullmatch(_SHELL, word):
        return run(word)
    return call(word, "") if word in _hints()["calls"] else None


def constant(name: str) -> str | None:
    """Return the hint for a name that is a constant in other languages."""
    return _hints()["names"].get(name)


def method(name: str, value: str, argument: str) -> str | None:
    """Return the hint for a call of a method that other languages have."""
    found = _hints()["methods"].get(name)
    return found.format(value, argument) if found else None


def call(name: str, arguments: str) -> str | None:
    """Return the hint for a call of something that isn't a program."""
    found = _hints()["calls"].get(name)
    if name == "range" and (numbers := _RANGE.fullmatch(arguments)) is not None:
        start, stop = (int(numbers[1]), int(numbers[2])) if numbers[2] else (0, int(numbers[1]))
        if not start:
            return f"to repeat something, write `repeat {stop} as i:`; `i` counts from 0"
        if 0 < stop - start <= 10:
            return f"write `for i in [{', '.join(map(str, range(start, stop)))}]:`"
    if found is not None:
        text = arguments if arguments.startswith('"') else f'"{arguments or "..."}"'
        return found.replace("{0}", arguments or "...").replace("{text}", text).replace("{1}", name)
    return f'to run a command, write `exec "{name} ..."`' if re.fullmatch(_SHELL, name) else None


def line(text: str) -> str | None:
    """Return the hint for an unreadable line, None if it isn't recognised."""
    text = text.strip()
    plain = text.translate(_STRAIGHT)
    if '"' not in plain:
        plain = re.sub(r"(?<!\w)'([^'\n]*)'", r'"\1"', plain)
    for pattern, hint in _patterns():
        found = pattern.fullmatch(text if "{exec}" in hint else plain)
        if found is None or ("{word}" in hint and re.match(_SAME_CASE, text)):
            continue
        parts = {key: value.strip(" ") if key != "a" else value for key, value in found.groupdict("").items()}
        if "word" in parts:
            parts["word"] = parts["word"].lower()
        return hint.format_map(parts | {"exec": _quoted(parts.get("command", ""))})
    return run(text) if command(text) else None


def sentence(text: str) -> str | None:
    """Return the hint for a line that is a sentence, which is probably meant for a model."""
    return f'to give a task to a model, write `session "{text}"`' if _SENTENCE.fullmatch(text) else None


def run(text: str) -> str:
    """Return the hint for a shell command."""
    return f"to run a command, write {_quoted(text)}"


def _quoted(command: str) -> str:
    if "\n" in command:
        return '`exec "..."`'
    escaped = command.replace("\\", "\\\\").replace('"', '\\"')
    return '`exec "' + re.sub(r"\{([A-Za-z_][^{}]*)\}", r"\\{\1\\}", escaped) + '"`'


# ---- values and braces in commands: W051, E053


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
    if len(line) <= _LONGEST_COMMAND and "\n" not in shown:
        line = 'exec "' + line.replace("\\", "\\\\").replace('"', '\\"') + '"'
    elif len(line) > _LONGEST_COMMAND:
        line = f'"${variables[first.raw]}"'
    return f"write `{line}`, and below it `env: {{ {entries} }}`; a long text can go in as `stdin: {first.raw[1:-1]}`"


def safe_command(text: Text) -> tuple[str, str]:
    """Return the command with environment variables in place of interpolations, and the entries of `env`."""
    variables = _variables(text)
    paths = ((name, raw[1:-1]) for raw, name in variables.items())
    entries = ", ".join(name if path == name else f"{name}: {path}" for name, path in paths)
    return _rewritten(text, variables), entries


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
    for part, following in zip_longest(text.parts, text.parts[1:], fillvalue=""):
        if isinstance(part, str):
            quote = _quote_after(part, quote)
            dollar = isinstance(following, Interpolation) and following.after_dollar
            done.append(part.removesuffix("$") if dollar else part)
            continue
        variable = f"${variables[part.raw]}"
        if quote == "'":
            done.append(f"'\"{variable}\"'")
        elif quote == '"':
            is_longer = isinstance(following, str) and _NAME_CONTINUES.match(following)
            done.append(f'""{variable}""' if is_longer else variable)
        else:
            done.append(f'"{variable}"')
    return "".join(done)


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
