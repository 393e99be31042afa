"""What people type who come from a shell, from Python, from another language: one finding, and what to type instead."""

from __future__ import annotations

import re

import pytest

from prose_kernel.language.openprose import compile_source
from prose_kernel.language.source import Source

_RUN = "to run a command, write "
_PYTHON = (
    "this is not Python, and `import` loads no modules; Python code runs as a command: "
    '`exec "python3 FILE.py"`; another program: `use "./FILE.prose" as name`'
)

TYPED = {
    "ls": ("E005", "`ls` is a command, not a statement", _RUN + '`exec "ls"`'),
    "ls -la": ("E005", "`ls` is a command, not a statement", _RUN + '`exec "ls -la"`'),
    "!ls": ("E106", "illegal character `!`", _RUN + '`exec "ls"`'),
    "cd /tmp": ("E004", "`cd` is a command, not a statement", _RUN + '`exec "cd /tmp"`'),
    "%pip install x": ("E106", "illegal character `%`", _RUN + '`exec "pip install x"`'),
    "echo hello": ("E004", "`echo` is a command, not a statement", _RUN + '`exec "echo hello"`'),
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
    'print("x")': ("E025", "there is no function `print`", 'to show a value, write `output result = "x"`'),
    'log "hello"': ("E004", "unexpected string", 'to show a text, write `exec "echo hello"`'),
    "import os": ("E004", "`import` needs a quoted string", _PYTHON),
    "import pandas as pd": ("E004", "`import` needs a quoted string", _PYTHON),
    "let x = [1]\nlet n = len(x)": (
        "E025",
        "there is no function `len`",
        'to count, ask a command: `let n = exec "jq length"`, and below it `stdin: x`',
    ),
    'for i in range(3):\n  exec "ls"': (
        "E025",
        "there is no function `range`",
        "to repeat something, write `repeat 3 as i:`",
    ),
    'let n = input("Who?")': (
        "E025",
        "there is no function `input`",
        'write `input name: "Who?"`; its value is then `name`',
    ),
    'try:\n  exec "a"\nexcept:\n  exec "b"': ("E004", "unexpected `:`", "write `catch as name:`"),
    'let x = "a"\nlet y = f"hi {x}"': ("E004", "unexpected string", 'a string needs no letter before it: `"hi {x}"`'),
    "let x = 1\nx += 1": ("E004", "unexpected `=`", "write `x = x + 1`"),
    "Let x = 1\noutput y = x": ("E004", "unexpected `x`", "keywords are written in small letters: `let x = 1`"),
    "let x == 5\noutput y = x": ("E004", "unexpected `==`", "write `let x = 5`"),
    'exec "ls" timeout: "3s"': ("E004", "unexpected `timeout`", 'indent properties on a line below: `  timeout: "3s"`'),
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
    "cd ..": ("E004", "`cd` is a command, not a statement", _RUN + '`exec "cd .."`'),
    "pwd": ("E005", "`pwd` is a command, not a statement", _RUN + '`exec "pwd"`'),
    "git status": ("E004", "`git` is a command, not a statement", _RUN + '`exec "git status"`'),
    'git commit -m "x"': ("E004", "`git` is a command, not a statement", _RUN + '`exec "git commit -m \\"x\\""`'),
    "print(x)": ("E025", "there is no function `print`", "to show a value, write `output result = x`"),
    "print('x')": ("E106", "illegal character `'`", 'to show a value, write `output result = "x"`'),
    "pip install x": ("E004", "`pip` is a command, not a statement", _RUN + '`exec "pip install x"`'),
    'pip install "x"': ("E004", "`pip` is a command, not a statement", _RUN + '`exec "pip install \\"x\\""`'),
    "!ls -la": ("E106", "illegal character `!`", _RUN + '`exec "ls -la"`'),
    "%ls": ("E106", "illegal character `%`", _RUN + '`exec "ls"`'),
    'for i in [1,2]\n  exec "ls"': ("E004", "missing `:` after `for i in [1,2]`", "add `:` at the end of the line"),
    "let x = 1\nx++": ("E004", "unexpected `+`", "write `x = x + 1`"),
    "let x = 1\nx -= 1": ("E004", "unexpected `=`", "write `x = x - 1`"),
    "let x: 5": ("E004", "unexpected `:`", "write `let x = 5`"),
    "let x := 5": ("E004", "unexpected `:`", "write `let x = 5`"),
    "exec ls -la": ("E004", "`exec` needs a quoted string", 'write `exec "ls -la"`'),
    "exec 'ls'": ("E106", "illegal character `'`", 'strings use double quotes: `"ls"`'),
    "session 'x'": ("E106", "illegal character `'`", 'strings use double quotes: `"x"`'),
    'if true:\n\texec "ls"': ("E101", "tab in indentation", "indent with spaces (two for each level)"),
    "exec “ls”": ("E106", "illegal character `“`", 'strings use plain double quotes: `"ls"`'),
    "session “hello there”": ("E106", "illegal character `“`", 'strings use plain double quotes: `"hello there"`'),
    'let x = 1\nif x == 1:\n  exec "ls"\nelse if x == 2:\n  exec "pwd"': (
        "E004",
        "unexpected `if`",
        "write `elif x == 2:`",
    ),
    'if true:\n  exec "ls"\nend': (
        "E005",
        "there is no name `end`",
        "delete it: a body ends where its indentation ends",
    ),
    'if true {\n  exec "ls"\n}': (
        "E004",
        "unexpected `{`",
        "write `if true:`, and indent the lines below it; there are no braces",
    ),
    "}": ("E004", "unexpected `}`", "delete it: there are no braces, a body ends where its indentation ends"),
    "let x = True": ("E131", "Undefined variable `True`", "write `true`"),
    "let x = None": ("E131", "Undefined variable `None`", "write `null`"),
    '// comment\nexec "ls"': ("E106", "illegal character `/`", "a comment starts with `#`"),
    "/* comment */": ("E106", "illegal character `/`", "a comment starts with `#`"),
    'exec "ls"; exec "pwd"': ("E106", "illegal character `;`", "put each statement on a line of its own"),
    'exec "ls";': ("E106", "illegal character `;`", "delete the `;`"),
    "exit()": ("E025", "there is no function `exit`", '`return` ends a program, `throw "why"` ends it with an error'),
    "quit": (
        "E005",
        "there is no name `quit`",
        "a program ends after its last line; `return` ends it earlier; a terminal ends with Ctrl-D",
    ),
    "quit()": ("E025", "there is no function `quit`", '`return` ends a program, `throw "why"` ends it with an error'),
    "help()": (
        "E025",
        "there is no function `help`",
        "in a terminal `prose help`, in a notebook `%help`; `?` behind a name shows what it is",
    ),
    'echo "hello"': ("E004", "`echo` is a command, not a statement", _RUN + '`exec "echo \\"hello\\""`'),
    "from os import path": ("E004", "unexpected `os`", _PYTHON),
    'let x = "abc"\nlen(x)': (
        "E025",
        "there is no function `len`",
        'to count, ask a command: `let n = exec "jq length"`, and below it `stdin: x`',
    ),
    'let x = "abc"\nlet n = len(x)': (
        "E025",
        "there is no function `len`",
        'to count, ask a command: `let n = exec "jq length"`, and below it `stdin: x`',
    ),
    "range(3)": ("E025", "there is no function `range`", "to repeat something, write `repeat 3 as i:`"),
    "let r = range(3)": ("E025", "there is no function `range`", "to repeat something, write `repeat 3 as i:`"),
    'input("..")': ("E025", "there is no function `input`", 'write `input name: ".."`; its value is then `name`'),
    'let n = input("name?")': (
        "E025",
        "there is no function `input`",
        'write `input name: "name?"`; its value is then `name`',
    ),
    'try:\n  exec "false"\nexcept:\n  exec "ls"': ("E004", "unexpected `:`", "write `catch as name:`"),
    'try:\n  exec "false"\nexcept Exception as e:\n  exec "ls"': (
        "E004",
        "unexpected `Exception`",
        "write `catch as e:`",
    ),
    'let x = f"..."': ("E004", "unexpected string", 'a string needs no letter before it: `"..."`'),
    'let n = 1\nlet x = f"hi {n}"': ("E004", "unexpected string", 'a string needs no letter before it: `"hi {n}"`'),
    "Let x = 1": ("E004", "unexpected `x`", "keywords are written in small letters: `let x = 1`"),
    "let x == 5": ("E004", "unexpected `==`", "write `let x = 5`"),
    'exec "ls" timeout: 5': ("E004", "unexpected `timeout`", "indent properties on a line below: `  timeout: 5`"),
    "gate:": ("E004", "unexpected `:`", "a gate needs a name: `gate release:`"),
    'gate:\n  prompt: "x"': ("E004", "unexpected `:`", "a gate needs a name: `gate release:`"),
    'log "hi"': ("E004", "unexpected string", 'to show a text, write `exec "echo hi"`'),
    'if true:\n  exec "ls"\nelseif false:\n  exec "pwd"': ("E004", "unexpected `false`", "write `elif false:`"),
    'exec "echo {nope}"': (
        "E053",
        "Undefined name `nope` in a command",
        "define `nope` first, or write `\\{nope\\}` to pass the braces on",
    ),
    'def f():\n  exec "ls"': ("E004", "unexpected `f`", "write `block f():`"),
    'while true:\n  exec "ls"': ("E004", "unexpected `true`", "write `loop while true:`"),
    "function f() {\n}": ("E004", "unexpected `f`", "write `block f():`, and indent the lines below it"),
    'if x = 1:\n  exec "ls"': ("E004", "unexpected `=`", "write `if x == 1:`"),
    "let x = 5 * 3": ("E106", "illegal character `*`", "only `+` and `-` calculate"),
    "let x = 5\nlet y = x / 2": ("E106", "illegal character `/`", "only `+` and `-` calculate"),
    "print": ("E005", "there is no name `print`", "to show a value, write `output result = ...`"),
    "session hello": ("E003", "session without prompt", 'put the prompt in quotes: `session "hello"`'),
    'ask "what"': ("E004", "unexpected string", 'to give a task to a model, write `session "what"`'),
    'prompt "x"': ("E004", "unexpected string", 'to give a task to a model, write `session "x"`'),
    '"hello"': ("E005", "this statement has no effect", 'a prompt needs `session`: `session "hello"`'),
    "5": ("E005", "this statement has no effect", "to show the value, write `output result = 5`"),
    "1 + 1": ("E005", "this statement has no effect", "to show the value, write `output result = 1 + 1`"),
    "let x = 1\nx": ("E005", "this statement has no effect", "to show the value, write `output result = x`"),
    "let 1x = 5": ("E004", "unexpected `1`", "a name belongs here"),
    "const x": ("E004", "`x` needs a value", "write `const x = ...`"),
    "#!/bin/bash\nls": ("E005", "`ls` is a command, not a statement", _RUN + '`exec "ls"`'),
    "$HOME": ("E106", "illegal character `$`", 'to show a variable of the environment, write `exec "echo $HOME"`'),
    "echo $HOME": ("E004", "`echo` is a command, not a statement", _RUN + '`exec "echo $HOME"`'),
    "export A=1": ("E004", "`export` is a command, not a statement", _RUN + '`exec "export A=1"`'),
    "ls | wc -l": ("E004", "`ls` is a command, not a statement", _RUN + '`exec "ls | wc -l"`'),
    "ls > f": ("E005", "`ls` is a command, not a statement", _RUN + '`exec "ls > f"`'),
    "cd foo && ls": ("E004", "`cd` is a command, not a statement", _RUN + '`exec "cd foo && ls"`'),
    "sudo apt install x": ("E004", "`sudo` is a command, not a statement", _RUN + '`exec "sudo apt install x"`'),
    "python3 x.py": ("E004", "`python3` is a command, not a statement", _RUN + '`exec "python3 x.py"`'),
    "./run.sh": ("E004", "unexpected `.`", _RUN + '`exec "./run.sh"`'),
    "~/run.sh": ("E106", "illegal character `~`", _RUN + '`exec "~/run.sh"`'),
    'exec "ls" > "f"': ("E004", "unexpected `>`", 'what the shell is to do belongs into the quotes: `exec "ls > f"`'),
    "exec(ls)": ("E025", "there is no function `exec`", '`exec` takes no parentheses: `exec "ls"`'),
    'exec("ls")': ("E025", "there is no function `exec`", '`exec` takes no parentheses: `exec "ls"`'),
    'session("hi")': ("E003", "session without prompt", 'put the prompt in quotes: `session "hi"`'),
    "let x = [1, 2, 3]\nx[0]": (
        "E005",
        "this statement has no effect",
        "to show the value, write `output result = x[0]`",
    ),
    'for x of [1,2]:\n  exec "ls"': ("E004", "unexpected `of`", "write `for x in [1,2]:`"),
    'foreach x in [1]:\n  exec "ls"': ("E004", "unexpected `x`", "write `for x in [1]:`"),
    'block foo():\n  exec "ls"\nfoo()': ("E025", "`foo` is a block, not an imported program", "write `do foo()`"),
    'block foo:\n  exec "ls"\nfoo': ("E005", "this statement has no effect", "`foo` is a block: `do foo(...)`"),
    'raise "x"': ("E004", "unexpected string", 'write `throw "x"`'),
    'assert 1 == 2, "bad"': ("E004", "unexpected `,`", 'write `assert 1 == 2:`, and below it, indented: `"bad"`'),
    'async session "x"': (
        "E004",
        "unexpected `session`",
        "statements wait by themselves; put what may run at the same time into `parallel:`",
    ),
    "await x": (
        "E004",
        "unexpected `x`",
        "statements wait by themselves; put what may run at the same time into `parallel:`",
    ),
    'class A:\n  exec "ls"': (
        "E004",
        "unexpected `A`",
        "there are no classes; put steps that are used again into a `block name:`",
    ),
    "let x = lambda y: y": (
        "E004",
        "unexpected `y`",
        "there are no functions as values; put steps that are used again into a `block name:`",
    ),
    'switch x:\n  exec "ls"': (
        "E004",
        "unexpected `x`",
        "write `if`, `elif` and `else`, or `choice **what to choose by**:`",
    ),
    "not true": ("E005", "this statement has no effect", "to show the value, write `output result = not true`"),
    "sleep 1": ("E004", "`sleep` is a command, not a statement", _RUN + '`exec "sleep 1"`'),
    'exec "ls" if true': ("E004", "unexpected `if`", 'write `if true:`, and below it, indented: `exec "ls"`'),
    'if true: exec "ls"': ("E004", "unexpected `exec`", "put it on a line of its own, indented"),
    'if (true)\n  exec "ls"': ("E004", "missing `:` after `if (true)`", "add `:` at the end of the line"),
    "let x = true ? 1 : 2": ("E004", "unexpected `?`", "there is no `?:`; use `if` and `else`"),
    'if 1 == 1 && 2 == 2:\n  exec "ls"': ("E106", "illegal character `&`", "write `and`"),
    'if !true:\n  exec "ls"': ("E106", "illegal character `!`", "write `not`"),
    'let x = 1\nif x === 1:\n  exec "ls"': ("E004", "unexpected `=`", "write `if x == 1:`"),
    'if 1 <> 2:\n  exec "ls"': ("E004", "unexpected `>`", "write `if 1 != 2:`"),
    "---": ("E004", "unexpected `-`", "a comment starts with `#`"),
    "SELECT * FROM x": ("E106", "illegal character `*`", "only `+` and `-` calculate"),
    '{"a": 1}': ("E005", "this statement has no effect", 'to show the value, write `output result = {"a": 1}`'),
    "[1, 2]": ("E005", "this statement has no effect", "to show the value, write `output result = [1, 2]`"),
    "var x = 1": ("E004", "unexpected `x`", "write `let x = 1`"),
    "int x = 5": ("E004", "unexpected `x`", "write `let x = 5`"),
    'String x = "a"': ("E004", "unexpected `x`", 'write `let x = "a"`'),
    "x: int = 5": ("E004", "unexpected `:`", "write `let x = 5`"),
    "x <- 5": ("E005", "this statement has no effect", "write `let x = 5`"),
    "let x <- 5": ("E004", "unexpected `<`", "write `let x = 5`"),
    "set x 5": ("E004", "unexpected `x`", "write `let x = 5`"),
    "let x 5": ("E004", "unexpected `5`", "write `let x = 5`"),
    'say "hi"': ("E004", "unexpected string", 'to show a text, write `exec "echo hi"`'),
    "Hello there, please fix the tests": (
        "E004",
        "unexpected `there`",
        'to give a task to a model, write `session "Hello there, please fix the tests"`',
    ),
    "please run the tests": (
        "E004",
        "unexpected `run`",
        'to give a task to a model, write `session "please run the tests"`',
    ),
    "fix the bug": ("E004", "unexpected `the`", 'to give a task to a model, write `session "fix the bug"`'),
}


@pytest.mark.parametrize("typed", TYPED)
def test_one_finding_that_says_what_to_type(typed: str) -> None:
    found = compile_source(Source.of(typed + "\n")).diagnostics
    assert [(d.code, d.message, d.hint) for d in found] == [TYPED[typed]]


def advised(typed: str) -> str | None:
    """The program with its line as the hint writes it, where the hint writes a whole line."""
    found = compile_source(Source.of(typed + "\n")).diagnostics[0]
    written = re.fullmatch(
        r"(?:[a-z -]+, |[a-z ]+: )?(?:write )?`([^`]+)`(?:, and indent the lines below it.*)?", found.hint or ""
    )
    if written is None or not re.match(r"(?!gate )[a-z]+ (?!\.\.\.)", written[1]) or "..." in written[1]:
        return None  # a part of a line, or an example
    rows = typed.split("\n")
    rows[found.line - 1] = written[1]
    rows = [row for row in rows if row != "}" and (written[1].endswith(":") or not row.startswith(" "))]
    if rows[-1].endswith(":"):
        rows.append('  exec "true"')
    return "\n".join(rows)


ADVISED = {typed: text for typed in TYPED if (text := advised(typed)) is not None}


@pytest.mark.parametrize("typed", ADVISED)
def test_what_the_hint_says_to_type_can_be_typed(typed: str) -> None:
    found = compile_source(Source.of(ADVISED[typed] + "\n")).diagnostics
    undeclared = ("E131", "W135") if "let " not in typed else ()
    assert [d.render() for d in found if d.severity == "error" and d.code not in undeclared] == []


def test_most_hints_write_a_whole_line() -> None:
    assert len(ADVISED) > len(TYPED) / 2


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
