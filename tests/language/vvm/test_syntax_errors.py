"""What cannot be read: each mistake at its place, once, with what to type instead (docs/reference/vvm.md 10.2)."""

from __future__ import annotations

import pytest
from language.marked import cases, places, unmark

from prose_kernel.errors import CompileError
from prose_kernel.language.source import Source
from prose_kernel.language.vvm import decode, parse
from prose_kernel.language.vvm import tree as t

TABLE = cases("../syntax/vvm")


@pytest.mark.parametrize("name", TABLE)
def test_findings_at_their_places(name: str) -> None:
    source, expected = unmark(TABLE[name].removesuffix("\n"), "default")
    found = parse(source).diagnostics
    assert places(found) == expected, "\n".join(d.render() for d in found)


HINTS = [
    ("x = -1", "there is no unary minus", "write `0 - 1`"),
    ("x = a && b", "there is no `&&`", "write `and`"),
    ("x = !a", "there is no `!`", "write `not`"),
    ("x = 2 * 3", "there is no `*`", "numbers have `+` and `-` alone"),
    ("x += 1", "there is no `+=`", "write `x = x + …`"),
    ("x = 1;", "there is no `;`", "write each statement on a line of its own"),
    ("// note", "there is no `//`", "a comment begins with `#`"),
    ("x = 'a'", "strings stand in double quotes", 'write `"a"`'),
    ('x = f"a"', "a string has no prefix `f`", "values go into a template: `{name}`"),
    ("x = (1, 2)", "there are no tuples", "write a list: `[a, b]`"),
    ("x = \u201ca\u201d", "`\u201c` does not begin a string", 'write straight quotes: `"text"`'),
    ("x\u00a0= 1", "the character U+00A0 is not a blank here", "type an ordinary space"),
    ("x = 30m", "`30m` is not a number", 'a duration is a string: `"30m"`'),
    ("x = .5", "a number begins with a digit", "write `0.5`"),
    ("x = ", "expected a value behind `=`, found the end of the line", "write `()` for nothing"),
    ("if x = 1:\n  y", "expected `:`, found `=`", "write `==` to compare"),
    ("if x\n  y", "expected `:`, found the end of the line", "write `:` at the end of the line"),
    ("if x: y", "the body of `if` stands on the same line", "begin it on the next line, indented"),
    ("if a:\n  b\nelse if c:\n  d", "there is no `else if`", "write `elif`"),
    ("while a:\n  b\nelse:\n  c", "loops have no `else`", "write these statements behind the loop"),
    ("def f(x=1):\n  y", "a parameter has no default", "every call gives all values"),
    ("for i, x in y:\n  z", "`for` takes one name", "take the element apart in the body: `x[0]`, `x.name`"),
    ("try:\n  a\nexcept:\n  b", "expected `as`, found `:`", "write `except as err:`"),
    ("with f() as x:\n  y", "expected `input`, found `f`", "write `with input value:`"),
    ("@a `do`", "the call of an agent needs parentheses", "write `()` behind the task, or `(input)`"),
    ("@a(x)", "expected the task of the agent in backticks, found `(`", "write ``@name `task`(input)``"),
    ('@a "do"(x)', "the task of an agent stands in backticks", "write `` `…` `` instead of quotes"),
    ("a `do`(x)", "a template stands behind an agent or `?`", "write `@a` to call an agent"),
    ("@a `do`(x, y)", "an agent takes one input", "pass a list, or an object: `pack(a, b)`"),
    ("x = f(1", "`(` is never closed", "write `)` behind the last item"),
    ("x = f(1]", "`]` does not close `(`", "write `)`"),
    ("x = {a = 1}", "expected `:`, found `=`", "write `key: value` in an object"),
    ("x = f(a: 1)", "expected `=`, found `:`", "write `a=…`"),
    ("a.b = 1", "only a plain name can be assigned", "values are never changed: assign a new one, such as `x = x + [item]`"),
    ("a, b = 1, 2", "an assignment has one name", "assign each name on a line of its own"),
    ("agent my-agent()", "`my-agent` is not a name", "write `my_agent`"),
    ('from "x" import a, b', "one `import` brings one name", "write an `import` of its own for each name"),
    ("export x = 1", "an `export` assigns nothing", "assign before: `name = value`, then `export name`"),
    ('let x = "a"', "`let` begins no statement", "write `name = value`"),
    ('session "a"', "`session` begins no statement", "call an agent: ``@name `task`(input)``"),
    ("x = lambda y: y", "`lambda` begins no value", "a function is written `def name(x):`, with its body below"),
    (
        "x = a if b else c",
        "expected the end of the line, found the reserved word `if`",
        "there is no conditional expression; write an `if` statement that assigns in both branches",
    ),
    ("raise x", "expected a string behind `raise`, found `x`", "a message is written out; to hand an error value on, write `return`"),
    ("choose x by `a` as y:\n  option \"b\":\n    z", "a criterion begins with `?`", "write `?` before the backtick"),
    ("match x:\n  else:\n    y", "only `case` stands in the body of `match`", "the last case is written `case _:`"),
    ("@a `{it}`()", "`it` is a reserved word, not a name", "write `{}` for the input"),
    ("@a `{ x }`()", "a `{` that begins no placeholder", "write `{x}`, without blanks"),
    (
        '@a `{"a": 1}`()',
        "a `{` that begins no placeholder",
        "write `{{` and `}}` for braces as text; placeholders are `{}`, `{name}` and `{name.field}`",
    ),
    ("it = 1", "`it` cannot be assigned", "`with input value:` gives `it` another value in its body"),
    ("x = input", "`input` is a reserved word, not a value", "a name of your own must be another word, such as `input_`"),
    ('x = "abc', "this string is never closed", 'close it with `"` on this line; text of several lines stands in `"""`'),
    ("x = @a `abc", "this template is never closed", "close it with a backtick; ``\\` `` is a backtick as text"),
    ("\tx = 1", "tab in indentation", "indent with spaces (two for each level)"),
    ("if x:\n    a\n  b", "the line begins behind 2 spaces, where no block above it does", "begin it at the start of the line or behind 4 spaces"),
    ("x = 1\n  y", "unexpected indentation", "begin it at the start of the line"),
    ("if x:\ny", "the body of `if` is missing, or not indented", "indent the lines of the body; write `pass` for an empty one"),
    ("try:\n  x", "`try` has neither `except` nor `finally`", "write `except as err:` below its body"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "hint"), HINTS, ids=[text for text, _, _ in HINTS])
def test_what_to_type_instead(text: str, message: str, hint: str) -> None:
    found = parse(Source(text)).diagnostics
    assert [(d.message, d.hint) for d in found] == [(message, hint)]


def test_a_finding_as_it_is_shown() -> None:
    (found,) = parse(Source("x = 1\ny = (2")).diagnostics
    assert found.render() == (
        "E001 line 2 col 5: `(` is never closed\n  y = (2\n      ^\nhint: write `)` behind the last item"
    )


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(CompileError) as caught:
        decode(b'\xef\xbb\xbfx = 1\r\ny = "\xff"\r\n', "a.vvm")
    (found,) = caught.value.diagnostics
    assert found.render().splitlines()[0] == "E001 line 2 col 6: not UTF-8: byte 0xff"


def test_a_byte_order_mark_and_line_ends_are_no_part_of_the_text() -> None:
    source = decode(b'\xef\xbb\xbfx = """a\r\nb"""\r\n', "a.vvm")
    parsed = parse(source)
    assert parsed.diagnostics == ()
    assert parsed.program.items == (t.Assign(t.Name("x"), t.String("a\nb")),)


def test_what_can_be_read_is_read() -> None:
    parsed = parse(Source("def f(x=1):\n  y = 2\n  return = 3\nz = 4\nif z = 4:\n  w = 5\nelse:\n  w = 6\n"))
    function, assign, choice = parsed.program.items
    assert isinstance(function, t.Def) and function.name.id == "f"
    assert function.body[0] == t.Assign(t.Name("y"), t.Number(2))
    assert assign == t.Assign(t.Name("z"), t.Number(4))
    assert isinstance(choice, t.If) and choice.otherwise == (t.Assign(t.Name("w"), t.Number(6)),)
