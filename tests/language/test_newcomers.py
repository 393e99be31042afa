"""What people type who come from a shell, from Python, from another language: one finding, and what to type instead."""

from __future__ import annotations

import pytest

from prose_kernel.language.openprose import compile_source
from prose_kernel.language.source import Source

_RUN = "to run a command, write "
_PYTHON = (
    "this is not Python, and `import` loads no modules; Python code runs as a command: "
    '`exec "python3 FILE.py"`; another program: `use "./FILE.prose" as name`'
)

TYPED = {
    "ls": ("E005", "there is no name `ls`", _RUN + '`exec "ls"`'),
    "ls -la": ("E005", "this statement has no effect", _RUN + '`exec "ls -la"`'),
    "!ls": ("E106", "illegal character `!`", _RUN + '`exec "ls"`'),
    "cd /tmp": ("E106", "illegal character `/`", _RUN + '`exec "cd /tmp"`'),
    "%pip install x": ("E106", "illegal character `%`", _RUN + '`exec "pip install x"`'),
    "echo hello": ("E004", "unexpected `hello`", _RUN + '`exec "echo hello"`'),
    "help": (
        "E005",
        "there is no name `help`",
        "in a terminal `prose help`, in a notebook `%help`; `?` behind a name shows what it is",
    ),
    "exit": (
        "E005",
        "there is no name `exit`",
        "a program ends after its last line; `return` ends it earlier; a terminal ends with Ctrl-D",
    ),
    "nope": ("E005", "there is no name `nope`", None),
    "print x": ("E004", "unexpected `x`", "to show a value, write `output result = x`"),
    'print("x")': ("E025", "no imported program is called `print`", 'to show a value, write `output result = "x"`'),
    'log "hello"': ("E004", "unexpected string", 'to show a text, write `exec "echo hello"`'),
    "import os": ("E004", "`import` needs a quoted string", _PYTHON),
    "import pandas as pd": ("E004", "`import` needs a quoted string", _PYTHON),
    "let x = [1]\nlet n = len(x)": (
        "E025",
        "no imported program is called `len`",
        'to count, ask a command: `let n = exec "jq length"`, and below it `stdin: x`',
    ),
    'for i in range(3):\n  exec "ls"': (
        "E025",
        "no imported program is called `range`",
        "to repeat something, write `repeat 3 as i:`",
    ),
    'let n = input("Who?")': (
        "E025",
        "no imported program is called `input`",
        'write `input name: "Who?"`; its value is then `name`',
    ),
    'try:\n  exec "a"\nexcept:\n  exec "b"': ("E004", "unexpected `:`", "write `catch as name:`"),
    'let x = "a"\nlet y = f"hi {x}"': ("E004", "unexpected string", 'a string needs no letter before it: `"hi {x}"`'),
    "let x = 1\nx += 1": ("E004", "unexpected `=`", "write `x = x + 1`"),
    "Let x = 1\noutput y = x": ("E004", "unexpected `x`", "keywords are written in small letters: `let x = 1`"),
    "let x == 5\noutput y = x": ("E004", "unexpected `==`", "write `let x = 5`"),
    'exec "ls" timeout: "3s"': (
        "E004",
        "unexpected `timeout`",
        'indent properties on a line below: `  timeout: "3s"`',
    ),
    'exec "a" | exec "b"': ("E004", "unexpected `|`", 'a pipe belongs into the command: `exec "a | b"`'),
    'gate:\n  prompt: "ok?"': ("E004", "unexpected `:`", "a gate needs a name: `gate release:`"),
    'with open("f") as f:\n  exec "ls"': (
        "E004",
        "unexpected `open`",
        'read a file with a command: `let text = exec "cat FILE"`',
    ),
    'if **the build is green**:\n  exec "a"\nelseif **it is red**:\n  exec "b"': (
        "E004",
        "unexpected discretion marker",
        "write `elif **it is red**:`",
    ),
    "exec ls": ("E004", "`exec` needs a quoted string", 'write `exec "ls"`'),
    "let x = $(date)\noutput y = x": ("E106", "illegal character `$`", 'write `let x = exec "date"`'),
    "use ./lib.prose as lib\nlet r = lib(a: 1)": (
        "E106",
        "illegal character `/`",
        'put the path in quotes: `use "./lib.prose" as lib`',
    ),
}


@pytest.mark.parametrize("typed", TYPED)
def test_one_finding_that_says_what_to_type(typed: str) -> None:
    found = compile_source(Source.of(typed + "\n")).diagnostics
    assert [(d.code, d.message, d.hint) for d in found] == [TYPED[typed]]


@pytest.mark.parametrize(
    ("declared", "hint"),
    [
        ("let thing = 1\nthing", "to show the value, write `output result = thing`"),
        ('block thing:\n  exec "a"\nthing', "`thing` is a block: `do thing(...)`"),
        ("agent thing:\n  model: opus\nthing", "`thing` is an agent: `session: thing`"),
        ("let things = 1\nthing", "did you mean `things`?"),
    ],
)
def test_a_bare_word_is_explained_by_what_has_that_name(declared: str, hint: str) -> None:
    (found,) = compile_source(Source.of(declared + "\n")).diagnostics
    assert (found.code, found.hint) == ("E005", hint)


@pytest.mark.parametrize(
    "text",
    [
        "let x 5\noutput y = x\noutput z = x",
        "var x = 5\noutput y = x",
        'let x = "unclosed\noutput y = x',
        "use lib.prose\nlet r = lib(a: 1)",
        'def greet(who):\n  exec "echo hello"\ndo greet("you")',
    ],
)
def test_what_could_not_be_read_is_declared_all_the_same(text: str) -> None:
    assert len(compile_source(Source.of(text + "\n")).diagnostics) == 1
