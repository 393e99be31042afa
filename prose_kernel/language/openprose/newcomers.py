"""Hints for what people bring from a shell, from Python and from other languages (docs/reference/openprose.md 9.6).

All of it is data: a word, or a pattern for a line that could not be read, and what to type instead.
"""

from __future__ import annotations

import re
from typing import Final

_SHELL: Final = re.compile(
    r"(?:apt|apt-get|awk|bash|brew|bun|cargo|cat|cd|chmod|chown|clear|cmake|conda|cp|curl|cut|date|deno|df|diff|"
    r"docker|du|echo|env|export|find|gcc|gh|git|go|grep|gunzip|gzip|head|history|htop|java|jq|kill|kubectl|less|ln|"
    r"ls|make|man|mkdir|more|mv|mvn|mypy|nano|node|npm|npx|ping|pip|pip3|pnpm|printf|ps|pwd|pytest|python|python3|rm|"
    r"rmdir|rsync|ruff|rustc|scp|sed|sh|sleep|sort|source|ssh|su|sudo|tail|tar|tee|terraform|time|top|touch|tr|tree|"
    r"uniq|unzip|uv|vim|wc|wget|which|whoami|xargs|yarn|zip|zsh)"
)
_KEYWORDS: Final = (
    "agent|assert|block|break|catch|choice|const|continue|do|elif|else|exec|finally|for|gate|if|input|let|loop|option"
    "|output|parallel|repeat|resume|return|session|throw|try|use"
)
_CONVERTERS: Final = "values need no conversion: a text that is a number counts as one"
_LISTS: Final = "there are no list functions: use `| map:`, `| filter:` or `| reduce(a, b):`, or a command"

BARE: Final = {
    "help": "in a terminal `prose help`, in a notebook `%help`; `?` behind a name shows what it is",
    "exit": "a program ends after its last line; `return` ends it earlier; a terminal ends with Ctrl-D",
    "quit": "a program ends after its last line; `return` ends it earlier; a terminal ends with Ctrl-D",
    "pass": "an empty body needs no `pass`: a comment will do",
}
"""What to do instead of a statement that is one word."""

CALLS: Final = {
    **dict.fromkeys(("print", "puts", "printf", "display", "alert"), "to show a value, write `output result = {0}`"),
    **dict.fromkeys(("echo", "log"), 'to show a value, write `output result = {0}`; a text: `exec "echo ..."`'),
    "len": 'to count, ask a command: `let n = exec "jq length"`, and below it `stdin: {0}`',
    "range": "to repeat something, write `repeat {0} as i:`",
    "input": "write `input name: {0}`; its value is then `name`",
    "open": 'read a file with a command: `let text = exec "cat FILE"`',
    **dict.fromkeys(("str", "int", "float", "bool"), _CONVERTERS),
    **dict.fromkeys(("sorted", "sum", "min", "max", "map", "filter", "zip", "enumerate", "list"), _LISTS),
    **dict.fromkeys(("exec", "session", "throw", "assert", "do"), "`{1}` is a statement and takes no parentheses"),
    "sleep": 'write `exec "sleep {0}"`',
    "exit": '`return` ends a program, `throw "why"` ends it with an error',
}
"""What to write instead of a call; `{0}` are its arguments, `{1}` is the name."""

_LINES: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern, re.DOTALL), hint)
    for pattern, hint in (
        (r"[!%]+[ ]*(?P<command>[A-Za-z./~].*)", "to run a command, write {exec}"),
        (r"(?:import|from)[ ]+(?P<a>[\w.]+)(?:[ ,].*)?", "this is not Python, and `import` loads no modules; "
         'Python code runs as a command: `exec "python3 FILE.py"`; another program: `use "./FILE.prose" as name`'),
        (r"(?P<a>let|const)[ ]+(?P<b>[\w-]+)[ ]*(?:==|:=|:)[ ]*(?P<c>.+)", "write `{a} {b} = {c}`"),
        (r"(?P<a>[\w-]+)[ ]*:=[ ]*(?P<b>.+)", "write `let {a} = {b}`"),
        (r"(?P<a>[\w-]+)[ ]*(?P<b>[+-])[ ]*=[ ]*(?P<c>.+)", "write `{a} = {a} {b} {c}`"),
        (r"(?P<a>[\w-]+)(?:[+][+]|--)", "write `{a} = {a} + 1`"),
        (rf"(?i:(?P<word>{_KEYWORDS}))\b(?P<a>.*)", "keywords are written in small letters: `{word}{a}`"),
        (r".*\b[fFrRbBuU](?P<a>\"[^\"]*\").*", "a string needs no letter before it: `{a}`"),
        (r"(?P<a>exec[ ]+\"[^\"]*)\"[ ]*[|][ ]*exec[ ]+\"(?P<b>[^\"]*\")",
         "a pipe belongs into the command: `{a} | {b}`"),
        (r"(?P<a>exec[ ]+\"[^\"]*)\"[ ]*(?P<o>&&|[|][|]|[|]|;|>>|>|<)[ ]*(?P<b>[^\"]*)",
         "what the shell is to do belongs into the quotes: `{a} {o} {b}\"`"),
        (r"(?P<a>(?:let[ ]+[\w-]+[ ]*=[ ]*)?(?:exec|session|resume)\b.*?)[ ]+(?P<b>[a-z_-]+:[ ]*\S.*)",
         "indent properties on a line below: `  {b}`"),
        (r"use[ ]+(?P<b>[^\s\"]+)(?P<c>.*)", 'put the path in quotes: `use "{b}" {c}`'),
        (r"(?P<a>.*=[ ]*)[$]\((?P<c>.*)\)", 'write `{a}exec "{c}"`'),
        (r"gate[ ]*:.*", "a gate needs a name: `gate release:`"),
        (r"with[ ]+open\(.*", 'read a file with a command: `let text = exec "cat FILE"`'),
        (r"(?:print|puts|printf|display)[ ]+(?P<a>.+)", "to show a value, write `output result = {a}`"),
        (r"(?:log|print|say)[ ]*\"(?P<a>[^\"]*)\".*", 'to show a text, write `exec "echo {a}"`'),
        (r"(?:echo)[ ]+\"?(?P<a>[^\"]*)\"?", 'to run a command, write `exec "echo {a}"`'),
        (r"(?:async|await)[ ]+.*", "a statement waits by itself; what may run at the same time goes into `parallel:`"),
        (r"class[ ]+.*", "there are no classes; steps that are used again are a `block name:`"),
        (r"lambda[ ]+.*", "there are no functions as values; steps that are used again are a `block name:`"),
        (r"(?:switch|match)\b.*", "write `if`, `elif` and `else`, or `choice **what to choose by**:`"),
        (r"(?:del|global|nonlocal|yield|raise)\b.*", "there is no such statement; `prose help` lists those there are"),
    )
)  # fmt: skip
_SAME_CASE: Final = re.compile(rf"(?:{_KEYWORDS})\b")


def bare_word(word: str) -> str | None:
    """The hint for a statement that is only a word."""
    if word in BARE:
        return BARE[word]
    return _command(word) if _SHELL.fullmatch(word) else None


def call(name: str, arguments: str) -> str | None:
    """The hint for a call of something that is no program."""
    found = CALLS.get(name)
    if found is not None:
        return found.replace("{0}", arguments or "...").replace("{1}", name)
    return f'to run a command, write `exec "{name} ..."`' if _SHELL.fullmatch(name) else None


def line(text: str) -> str | None:
    """The hint for a line that could not be read, None when it looks like nothing in particular."""
    text = text.strip()
    for pattern, hint in _LINES:
        found = pattern.fullmatch(text)
        if found is None or ("{word}" in hint and _SAME_CASE.match(text)):
            continue
        parts = {key: value.strip(" ") if key != "a" else value for key, value in found.groupdict("").items()}
        if "word" in parts:
            parts["word"] = parts["word"].lower()
        return hint.format_map(parts | {"exec": _quoted(parts.get("command", ""))})
    word = re.match(r"[\w-]+", text)
    return _command(text) if word is not None and _SHELL.fullmatch(word[0]) else None


def _command(text: str) -> str:
    return f"to run a command, write {_quoted(text)}"


def _quoted(command: str) -> str:
    if "\n" in command:
        return '`exec "..."`'
    return '`exec "' + command.replace("\\", "\\\\").replace('"', '\\"') + '"`'
