"""What to type instead: for words and signs that other languages have (docs/reference/vvm.md 10)."""

from __future__ import annotations

from typing import Final

from prose_kernel.language.shortening import clipped

SIGNS: Final[dict[str, tuple[str, str]]] = {
    "&&": ("there is no `&&`", "write `and`"),
    "||": ("there is no `||`", "write `or`"),
    "!": ("there is no `!`", "write `not`"),
    "&": ("there is no `&`", "write `and`"),
    "|": ("there is no `|`", "write `or`; a list is worked through with `map(items, f)` or `filter(items, f)`"),
    "*": ("there is no `*`", "numbers have `+` and `-` alone"),
    "/": ("there is no `/`", "numbers have `+` and `-` alone"),
    "%": ("there is no `%`", "numbers have `+` and `-` alone"),
    "**": ("there is no `**`", "numbers have `+` and `-` alone"),
    "//": ("there is no `//`", "a comment begins with `#`"),
    "++": ("there is no `++`", "write `x = x + 1`"),
    "--": ("there is no `--`", "write `x = x - 1`"),
    "->": ("there is no `->`", "one statement follows the other; each may use what the one before has assigned"),
    "=>": ("there is no `=>`", "a function is written `def name(x):`, with its body below"),
    "<>": ("there is no `<>`", "write `!=`"),
    "===": ("there is no `===`", "write `==`"),
    "!==": ("there is no `!==`", "write `!=`"),
    ":=": ("there is no `:=`", "assign on a line of its own: `name = value`"),
    ";": ("there is no `;`", "write each statement on a line of its own"),
    "\\": ("there is no `\\` at the end of a line", "put the expression into parentheses to go on below"),
    "$": ("there is no `$`", "variables are plain names; in a template `{name}`"),
    "~": ("there is no `~`", "write `not`"),
    "^": ("there is no `^`", "numbers have `+` and `-` alone"),
}  # fmt: skip
"""Signs that are not in the language: message and hint. Those such as `+=` are explained by `sign`."""

_LET: Final = "write `name = value`"
_DEF: Final = "a function is written `def name(x):`, with its body below"
_SESSION: Final = "call an agent: ``@name `task`(input)``"
_NO_CLASS: Final = "there are no classes; data are objects `{key: value}`, behaviour is a `def`"
_LOOP: Final = "write `while condition:` or `for x in items:`"
WORDS: Final[dict[str, str]] = {
    "let": _LET,
    "const": _LET,
    "var": _LET,
    "set": _LET,
    "global": "a function cannot assign to a variable outside; return the value instead",
    "nonlocal": "a function cannot assign to a variable outside; return the value instead",
    **dict.fromkeys(("df", "de", "ef"), "did you mean `def`?"),
    **dict.fromkeys(("fo", "fr"), "did you mean `for`?"),
    "function": _DEF,
    "func": _DEF,
    "fn": _DEF,
    "fun": _DEF,
    "sub": _DEF,
    "block": _DEF,
    "lambda": _DEF,
    "class": _NO_CLASS,
    "new": _NO_CLASS,
    "struct": _NO_CLASS,
    "async": "leave `async` out: everything waits for its result; `pmap(items, f)` runs calls at the same time",
    "await": "leave `await` out: every call waits for its result",
    "yield": "collect the values in a list and `return` it",
    "del": "values are never changed; assign a new one",
    "assert": 'write `if not condition:` and `raise "message"` below it',
    "is": "write `==`",
    "then": "write `:` behind the condition, and the body below",
    "elseif": "write `elif`",
    "elsif": "write `elif`",
    "unless": "write `if not condition:`",
    "until": "write `while not condition:`",
    "loop": _LOOP,
    "repeat": "write `for i in range(n):`",
    "foreach": "write `for x in items:`",
    "parallel": "write `pmap(items, f)`",
    "switch": "write `match value:` with `case` below it, or `if` and `elif`",
    "choice": "write ``choose value by ?`criterion` as name:`` with `option` below it",
    "when": "write `if condition:`",
    "do": "call the function: `name(arguments)`",
    "catch": "write `except as err:`",
    "throw": 'write `raise "message"`',
    "print": "a cell shows the value of its last line; a program gives back what it exports: `export name`",
    "echo": "a cell shows the value of its last line; a program gives back what it exports: `export name`",
    "output": "write `name = value`, then `export name`",
    "session": _SESSION,
    "resume": _SESSION,
    "prompt": _SESSION,
    "exec": "commands are run by OpenProse: in a notebook, begin the cell with `%%prose`; or ask an agent that may: "
            "`permissions=perm(bash=\"allow\")`",
    "use": 'write `from "path" import name`',
    "require": 'write `from "path" import name`',
    "include": 'write `from "path" import name`',
    "gate": "gates are a matter of OpenProse: in a notebook, begin the cell with `%%prose`; "
            "`permissions=perm(bash=\"prompt\")` asks before an agent acts",
    "default": "write `case _:`",
}  # fmt: skip
"""First words of statements in other languages, and words between values: what to write here."""

REST: Final[dict[str, str]] = {
    "if": "there is no conditional expression; write an `if` statement that assigns in both branches",
    "for": "there are no comprehensions; write `map(items, f)` or `filter(items, f)`",
    "in": "there is no `in` test; go through the list with `for`, or ask with ``?`criterion`(value)``",
    "not": "there is no `not in`; write `not …` in front of the whole condition",
    "as": "a name is bound with `as` only by `except`, `choose` and `from … import`",
    "else": "there is no conditional expression; write an `if` statement that assigns in both branches",
    "with": "an agent is derived with `.with(key=value)`",
    "by": "`by` belongs to `choose`",
}  # fmt: skip
"""Reserved words behind a value."""

STATEMENTS: Final = (
    "agent", "case", "choose", "constrain", "def", "elif", "export", "for", "from", "if", "import", "match", "option",
    "raise", "require", "return", "while", "with",
)  # fmt: skip
"""Words that begin a statement and are followed by more."""
ALONE: Final = ("else", "finally", "try")
"""Words that a `:` follows."""
COMPLETE: Final = ("break", "continue", "pass", "return", "true", "false")
"""Words that may be a whole line, or a value."""

QUOTES: Final = frozenset("\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb")
PREFIXES: Final = frozenset({"f", "F", "r", "R", "b", "B", "u", "rb", "br", "fr", "rf"})
FUNCTIONS: Final = frozenset({"function", "func", "fn", "fun", "sub", "block", "async"})
LOOPS: Final = frozenset({"loop", "repeat", "foreach", "until"})
PATTERNS: Final = 'write `_`, `error(_)`, `error(name)`, `error(kind="…")` or ``?`criterion` ``'


def sign(text: str) -> tuple[str, str | None]:
    """Message and hint for a sign or character that is not in the language."""
    if text in SIGNS:
        return SIGNS[text]
    if len(text) == 2 and text[1] == "=":
        return f"there is no `{text}`", f"write `x = x {text[0]} …`" if text[0] in "+-" else None
    first = text[0]
    if first in QUOTES:
        return f"`{first}` does not begin a string", 'write straight quotes: `"text"`'
    if first in "\u00a0\u2007\u202f\u200b\u2003\u2002\u3000\ufeff":
        return f"{named(first)} is not a blank here", "type an ordinary space"
    if first.isalpha() and ord(first) > 127:
        return f"`{shown(text)}` cannot be part of a name", "names are made of `A` to `Z`, `a` to `z`, digits and `_`"
    return f"{shown_character(text)} cannot stand here", None


def shown(text: str) -> str:
    """A token in a message: short, and printable."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in clipped(text, 40, kept=40))


def shown_character(text: str) -> str:
    return f"`{shown(text)}`" if text[0].isprintable() else named(text[0])


def named(character: str) -> str:
    return f"the character U+{ord(character):04X}"
