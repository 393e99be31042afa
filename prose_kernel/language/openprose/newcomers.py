"""Hints for what people bring from a shell, from Python and from other languages (docs/reference/openprose.md 9.6).

All of it is data: a word, or a pattern for a line that could not be read, and what to type instead.
"""

from __future__ import annotations

import functools
import re
from typing import Final

_SHELL: Final = re.compile(
    r"(?:apt|apt-get|awk|aws|bash|brew|bun|bundle|cargo|cat|cd|chmod|chown|clear|cmake|composer|conda|cp|curl|cut|date|"
    r"deno|df|diff|docker|dotnet|du|echo|env|eslint|export|find|gcc|gem|gh|git|go|gradle|grep|gunzip|gzip|head|history|"
    r"htop|java|jest|jq|jupyter|kill|kubectl|less|ln|ls|make|man|mkdir|more|mv|mvn|mypy|nano|node|npm|npx|perl|php|"
    r"ping|pip|pip3|pipx|pnpm|poetry|pre-commit|printf|ps|pwd|pytest|python|python3|rg|rm|rmdir|rsync|ruby|ruff|rustc|"
    r"scp|sed|sh|sleep|sort|source|ssh|su|sudo|tail|tar|tee|terraform|time|top|touch|tox|tr|tree|tsc|uniq|unzip|uv|vim|"
    r"wc|wget|which|whoami|xargs|yarn|zip|zsh)"
)
_KEYWORDS: Final = (
    "agent|assert|block|break|catch|choice|const|continue|do|elif|else|exec|finally|for|gate|if|input|let|loop|option"
    "|output|parallel|repeat|resume|return|session|throw|try|use"
)
_CONVERTERS: Final = "values need no conversion: a text that is a number counts as one"
_LISTS: Final = "there are no list functions: use `| map:`, `| filter:` or `| reduce(a, b):`, or a command"
_END: Final = "delete it: a body ends where its indentation ends"
_LEAVE: Final = "a program ends after its last line; `return` ends it earlier; a terminal ends with Ctrl-D"
_COMMENT: Final = "a comment starts with `#`"

BARE: Final = {
    "help": "in a terminal `prose help`, in a notebook `%help`; `?` behind a name shows what it is",
    "exit": _LEAVE,
    "quit": _LEAVE,
    "pass": "an empty body needs no `pass`: a comment will do",
    "dir": 'to run a command, write `exec "ls"`',
    **dict.fromkeys(("end", "endif", "endfor", "endwhile", "done", "fi", "esac"), _END),
}
"""What to do instead of a statement that is one word."""

NAMES: Final = {
    "True": "write `true`",
    "TRUE": "write `true`",
    "False": "write `false`",
    "FALSE": "write `false`",
    **dict.fromkeys(("None", "NULL", "Null", "nil", "undefined"), "write `null`"),
}
"""What other languages call a constant."""

CALLS: Final = {
    **dict.fromkeys(("print", "puts", "printf", "display", "alert"), "to show a value, write `output result = {0}`"),
    **dict.fromkeys(("echo", "log"), 'to show a value, write `output result = {0}`; a text: `exec "echo ..."`'),
    "len": 'to count, ask a command: `let n = exec "jq length"`, and below it `stdin: {0}`',
    "range": "to repeat something, write `repeat N as i:`; `i` counts from 0",
    "input": "write `input name: {0}`; its value is then `name`",
    "open": 'read a file with a command: `let text = exec "cat FILE"`',
    **dict.fromkeys(("str", "int", "float", "bool"), _CONVERTERS),
    **dict.fromkeys(("sorted", "sum", "min", "max", "map", "filter", "zip", "enumerate", "list"), _LISTS),
    **dict.fromkeys(("exec", "session", "throw"), "`{1}` takes no parentheses: `{1} {text}`"),
    "assert": "`assert` takes no parentheses: `assert {0}`",
    "do": "write `do name(...)`, with the name of a block",
    "sleep": 'write `exec "sleep {0}"`',
    "exit": '`return` ends a program, `throw "why"` ends it with an error',
    "quit": '`return` ends a program, `throw "why"` ends it with an error',
    "help": BARE["help"],
}
"""What to write instead of a call; `{0}` are its arguments, `{text}` the same in quotes, `{1}` is the name."""

METHODS: Final = {
    **dict.fromkeys(("contains", "includes", "has"), "write a condition in words: `**{0} contains {1}**`"),
    **dict.fromkeys(("startswith", "startsWith"), "write a condition in words: `**{0} begins with {1}**`"),
    **dict.fromkeys(("endswith", "endsWith"), "write a condition in words: `**{0} ends with {1}**`"),
    **dict.fromkeys(("append", "push", "add"), "write `{0} = {0} + [{1}]`"),
    **dict.fromkeys(("map", "filter", "reduce"), "write a pipeline: `{0} | map:`, `| filter:` or `| reduce(a, b):`"),
    **dict.fromkeys(
        ("lower", "upper", "strip", "trim", "split", "join", "replace", "format", "toLowerCase", "toUpperCase"),
        'let a command do it: `let x = exec "..."`, and below it `stdin: {0}`',
    ),
}
"""What to write instead of a method; `{0}` is the value, `{1}` the first argument."""

_RANGE: Final = re.compile(r"(\d{1,9})(?:, *(\d{1,9}))?")
_NAME: Final = r"[A-Za-z_](?:[\w-]*\w)?"
_LINES: Final = (
    (r"[!%]+[ ]*(?P<command>[A-Za-z./~].*)", "to run a command, write {exec}"),
    (r"(?P<command>(?:[.]{1,2}|~)?/[\w.~-][^\n]*)", "to run a command, write {exec}"),
    (r"[$](?P<a>\w+)", 'to show a variable of the environment, write `exec "echo ${a}"`'),
    (r"`{3}.*", "delete the line: a program needs no Markdown fence"),
    (r"(?:/[*]|<!--|--[ ]|-{3}|={3}).*", _COMMENT),
    (r"[})\]]+", "delete it: there are no braces, a body ends where its indentation ends"),
    (r"[^;]*;+", "delete the `;`"),
    (r"(?:import|from)[ ]+(?P<a>[\w.]+)(?:[ ,].*)?", "this is not Python, and `import` loads no modules; "
     'Python code runs as a command: `exec "python3 FILE.py"`; another program: `use "./FILE.prose" as name`'),
    (r"(?P<a>let|const)[ ]+(?P<b>NAME)[ ]*(?::[ ]*[A-Za-z]\w*[ ]*=(?!=)|==|:=|<-|:)[ ]*(?P<c>.+)",
     "write `{a} {b} = {c}`"),
    (r"(?P<a>let|const)[ ]+(?P<b>NAME)[ ]+(?P<c>[\w\"\[]+\S*)", "write `{a} {b} = {c}`"),
    (r"(?:let|const)[ ]+[(]?NAME(?:,[ ]*NAME)+[)]?[ ]*=.*", "bind each name with a `let` of its own"),
    (r"(?P<a>NAME)[ ]*(?::=|<-|:[ ]*[A-Za-z]\w*[ ]*=(?!=))[ ]*(?P<b>.+)", "write `let {a} = {b}`"),
    (r"(?:var|set|val|int|float|double|bool|boolean|string|String|str|number|auto|my|local|dim)[ ]+"
     r"(?P<a>NAME)(?:[ ]*=(?!=)[ ]*|[ ]+(?:to[ ]+)?)(?P<b>[^= ].*)", "write `let {a} = {b}`"),
    (r"(?P<a>NAME)[ ]*(?P<b>[+-])[ ]*=[ ]*(?P<c>.+)", "write `{a} = {a} {b} {c}`"),
    (r"(?P<a>NAME)[+][+]", "write `{a} = {a} + 1`"),
    (r"(?P<a>NAME)--", "write `{a} = {a} - 1`"),
    (rf"(?i:(?P<word>{_KEYWORDS}))\b(?P<a>.*)", "keywords are written in small letters: `{word}{a}`"),
    (r"(?P<a>.+?)[ ]*<>[ ]*(?P<b>.+)", "write `{a} != {b}`"),
    (r"loop[ ]+(?:up[ ]+to[ ]+(?P<a>\w+).*|(?P<b>\w+)[ ]+times.*)", "write `repeat {a}{b}:`"),
    (r".*\b[fFrRbBuU](?P<a>\"[^\"]*\").*", "a string needs no letter before it: `{a}`"),
    (r"(?P<a>exec[ ]+\"[^\"]*)\"[ ]*[|][ ]*exec[ ]+\"(?P<b>[^\"]*\")",
     "a pipe belongs into the command: `{a} | {b}`"),
    (r"(?P<a>exec[ ]+\"[^\"]*)\"[ ]*(?P<o>&&|[|][|]|[|]|;|>>|>|<)[ ]*\"?(?P<b>[^\"]+)\"?",
     "what the shell is to do belongs into the quotes: `{a} {o} {b}\"`"),
    (r"(?P<a>(?:let[ ]+[\w-]+[ ]*=[ ]*)?(?:exec|session|resume)\b.*?)[ ]+(?P<b>[a-z_-]+:[ ]*\S.*)",
     "indent properties on a line below: `  {b}`"),
    (r"(?P<a>(?:exec|session|throw)[ ]+\"[^\"]*\"|do[ ]+NAME(?:\([^()]*\))?)[ ]+if[ ]+(?P<b>[^\n]+)",
     "write `if {b}:`, and below it, indented: `{a}`"),
    (r".*=.+[ ]if[ ].+[ ]else[ ].+", "write `if`, `else` and a `let` in each, on lines of their own"),
    (r"while[ ]+(?P<a>[^{}\n]*?)[ ]*:?[ ]*\{.*", "write `loop while {a}:`, and indent the lines below it"),
    (r"(?:def|function|func|fn|fun)[ ]+(?P<a>NAME(?:[ ]*\([^()\n]*\))?)[ ]*:?[ ]*\{.*",
     "write `block {a}:`, and indent the lines below it"),
    (r"(?P<a>(?:if|elif|else|for|loop|repeat|try|catch|finally|block|parallel|do|choice|agent)\b[^{}\n]*?)"
     r"[ ]*:?[ ]*\{.*", "write `{a}:`, and indent the lines below it; there are no braces"),
    (r"(?P<a>(?:if|elif)[ ].*?)[ ]+then[ ]*:?", "write `{a}:`"),
    (r"foreach[ ]+(?P<a>NAME)[ ]+(?:in|of|as)[ ]+(?P<b>.+?)[ ]*:?", "write `for {a} in {b}:`"),
    (r"for[ ]+(?:let[ ]+|const[ ]+|var[ ]+)?(?P<a>NAME)[ ]+of[ ]+(?P<b>.+?)[ ]*:?", "write `for {a} in {b}:`"),
    (r"for[ ]*\(.*", "write `for name in collection:`; to repeat something, `repeat 3 as i:`"),
    (r"except\b.*[ ]as[ ]+(?P<a>NAME)[ ]*:?", "write `catch as {a}:`"),
    (r"raise[ ]+(?:NAME\()?(?P<a>\"[^\"]*\")\)?", "write `throw {a}`"),
    (r"assert[ ]+(?P<a>[^\",]+),[ ]*(?P<b>\".*\")", "write `assert {a}:`, and below it, indented: `{b}`"),
    (r"use[ ]+(?P<b>[^\s\"]+)(?P<c>.*)", 'put the path in quotes: `use "{b}" {c}`'),
    (r"(?P<a>.*=[ ]*)[$]\((?P<c>.*)\)", 'write `{a}exec "{c}"`'),
    (r"(?P<a>.*=[ ]*)[$]\{?(?P<c>\w+)\}?", 'write `{a}exec "printenv {c}"`'),
    (r"gate[ ]*:.*", "a gate needs a name: `gate release:`"),
    (r"with[ ]+open\(.*", 'read a file with a command: `let text = exec "cat FILE"`'),
    (r"(?:ask|prompt|chat|llm)[ ]+(?P<a>\"[^\"]*\")", "to give a task to a model, write `session {a}`"),
    (r"(?:print|puts|printf|display)[ ]*\((?P<a>.*)\)", "to show a value, write `output result = {a}`"),
    (r"(?:print|puts|printf|display)[ ]+(?P<a>.+)", "to show a value, write `output result = {a}`"),
    (r"(?:log|print|say)[ ]*\"(?P<a>[^\"]*)\".*", 'to show a text, write `exec "echo {a}"`'),
    (r"(?:async|await)[ ]+.*", "statements wait by themselves; put what may run at the same time into `parallel:`"),
    (r"class[ ]+.*", "there are no classes; put steps that are used again into a `block name:`"),
    (r"(?:.*=[ ]*)?lambda[ ]+.*", "there are no functions as values; put steps that are used again into a "
     "`block name:`"),
    (r"(?:switch|match)\b.*", "write `if`, `elif` and `else`, or `choice **what to choose by**:`"),
    (r"(?:del|global|nonlocal|yield)\b.*", "there is no such statement; `prose help` lists the statements"),
)  # fmt: skip
"""A pattern for a whole line, and what to write instead. Compiled when the first line cannot be read."""
_SAME_CASE: Final = re.compile(rf"(?:{_KEYWORDS})\b")
_SENTENCE: Final = re.compile(r"[A-Za-z][\w'-]*(?:,?[ ]+[\w'-]+){2,}[.!?]?")
_ARTICLE: Final = re.compile(r"\b(?:the|a|an|all|my|our|your|this|that|these|please)\b", re.IGNORECASE)
_STRAIGHT: Final = str.maketrans(dict.fromkeys("\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}", '"'))


@functools.cache
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern.replace("NAME", _NAME), re.DOTALL), hint) for pattern, hint in _LINES)


def command(text: str) -> str | None:
    """The command that a line begins with (`ls -la`: `ls`), None for what looks like nothing in particular."""
    word = re.match(r"[\w-]+(?![\w-]*[ ]*(?:=(?!=)|:(?=\s|$)|\())", text)
    if word is None or _SHELL.fullmatch(word[0]) is None:
        return None
    return None if _SENTENCE.fullmatch(text) and _ARTICLE.search(text) else word[0]


def no_statement(word: str) -> str:
    """The message for a line that begins with a command."""
    return f"`{word}` is a command, not a statement"


def bare_word(word: str) -> str | None:
    """The hint for a statement that is only a word."""
    if word in BARE:
        return BARE[word]
    if _SHELL.fullmatch(word):
        return run(word)
    return call(word, "") if word in CALLS else None


def call(name: str, arguments: str) -> str | None:
    """The hint for a call of something that is no program."""
    found = CALLS.get(name)
    if name == "range" and (numbers := _RANGE.fullmatch(arguments)) is not None:
        start, stop = (int(numbers[1]), int(numbers[2])) if numbers[2] else (0, int(numbers[1]))
        if not start:
            return f"to repeat something, write `repeat {stop} as i:`; `i` counts from 0"
        if 0 < stop - start <= 10:
            return f"write `for i in [{', '.join(map(str, range(start, stop)))}]:`"
    if found is not None:
        text = arguments if arguments.startswith('"') else f'"{arguments or "..."}"'
        return found.replace("{0}", arguments or "...").replace("{text}", text).replace("{1}", name)
    return f'to run a command, write `exec "{name} ..."`' if _SHELL.fullmatch(name) else None


def line(text: str) -> str | None:
    """The hint for a line that could not be read, None when it looks like nothing in particular."""
    text = text.strip()
    plain = text.translate(_STRAIGHT)
    if '"' not in plain:
        plain = re.sub(r"(?<!\w)'([^'\n]*)'", r'"\1"', plain)
    for pattern, hint in _patterns():
        found = pattern.fullmatch(text if "{exec}" in hint else plain)
        if found is None or ("{word}" in hint and _SAME_CASE.match(text)):
            continue
        parts = {key: value.strip(" ") if key != "a" else value for key, value in found.groupdict("").items()}
        if "word" in parts:
            parts["word"] = parts["word"].lower()
        return hint.format_map(parts | {"exec": _quoted(parts.get("command", ""))})
    return run(text) if command(text) else None


def sentence(text: str) -> str | None:
    """The hint for a line that is a sentence: most people mean it for a model."""
    return f'to give a task to a model, write `session "{text}"`' if _SENTENCE.fullmatch(text) else None


def run(text: str) -> str:
    """The hint for a command of the shell."""
    return f"to run a command, write {_quoted(text)}"


def _quoted(command: str) -> str:
    if "\n" in command:
        return '`exec "..."`'
    escaped = command.replace("\\", "\\\\").replace('"', '\\"')
    return '`exec "' + re.sub(r"\{([A-Za-z_][^{}]*)\}", r"\\{\1\\}", escaped) + '"`'
