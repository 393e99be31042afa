"""Explains the syntax error of a line with a code, a message and the hints of openprose.md 9.6.

`explain` applies rules to the tokens around the first unexpected one. The rules are ordered from the most specific to
the most general; the first one that matches makes the finding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final
from unicodedata import category

from msgspec import Struct

from prose_kernel.language.nearest import Nearest, did_you_mean
from prose_kernel.language.openprose import hints
from prose_kernel.language.openprose.keywords import KEYWORDS
from prose_kernel.language.openprose.lexer import LAYOUT, SIGNS, RawToken
from prose_kernel.language.structs import replace
from prose_kernel.language.text import clipped, on_one_line
from prose_kernel.language.word_catalogue import ascii_sign, invisible_hint

_WORD_KINDS: Final = frozenset(KEYWORDS.values()) | {"NAME", "CONSTANT"}
_LAYOUT: Final = LAYOUT | {"PIPE"}
_ASKING: Final = {"STRING", "COLON"}
_SIGNS: Final = {"COLON", "COMMA", "RPAR", "RSQB", "RBRACE"}


class Trouble(Struct, frozen=True):
    """The finding for a line: code, offsets of the offending token, message and hint."""

    code: str
    start: int
    end: int
    message: str
    hint: str | None = None


class LogicalLine(Struct):
    """The logical line `tokens[first:stop]`, whose unexpected token is at `at` and whose end is at `stop`.

    - `row`: the symbols that are possible at `at`, as a row of the parse table
    - `symbol`: the last symbol on the parse stack, or the last part of a finished statement (`else`)
    - `owner`: the kind of statement that owns the property block of the line, "" outside of one
    - `colon`: whether a colon is possible
    - `options`: the offset of the `choice` around the line if it has no option yet
    """

    text: str
    tokens: Sequence[RawToken]
    first: int
    at: int
    stop: int
    row: dict[str, int]
    symbol: str
    owner: str
    colon: bool
    options: int | None

    def kind(self, offset: int) -> str:
        """Return the kind of the token `offset` places after the unexpected one, "" outside the line."""
        index = self.at + offset
        return self.tokens[index][0] if self.first <= index <= self.stop else ""

    def written(self, index: int) -> str:
        _, start, end, _ = self.tokens[index]
        return self.text[start:end]

    def text_of(self, index: int) -> str:
        """Return a string token as it is shown in a hint."""
        return on_one_line(self.written(index))

    def words(self, first: int, last: int) -> str:
        """Return the text from token `first` up to token `last`, exclusive; a long text is cut."""
        if last <= first:
            return ""
        start, end = self.tokens[first][1], self.tokens[last - 1][2]
        return clipped(self.text[start:end], hints.MAX_QUOTED, "...", kept=hints.MAX_QUOTED)

    @property
    def head(self) -> str:
        return self.tokens[self.first][0]

    @property
    def head_word(self) -> str:
        return self.written(self.first)

    def here(self, code: str, message: str, hint: str | None = None) -> Trouble:
        return self.on(self.at, code, message, hint)

    def on(self, index: int, code: str, message: str, hint: str | None = None) -> Trouble:
        _, start, end, _ = self.tokens[index]
        return Trouble(code, start, max(end, start + 1), message, hint)

    def unexpected(self, hint: str | None) -> Trouble:
        return self.here("E004", f"unexpected {_shown(self, self.at)}", hint)


Rule = Callable[[LogicalLine], Trouble | None]


def explain(line: LogicalLine) -> Trouble:
    found = next((trouble for rule in _RULES if (trouble := rule(line)) is not None), None) or _unexpected(line)
    if line.head in _LAYOUT or line.owner:
        return found
    text = line.words(line.first, line.stop)
    hint = hints.line(text)
    if hint and line.head == "NAME" and (command := hints.command(text)):
        return line.on(line.first, "E004", hints.no_statement(command), hint)
    if hint is None and found.hint is None and line.head == "NAME":
        hint = hints.sentence(text)
    return replace(found, hint=hint) if hint else found


# ---- characters


_CHARACTERS: Final = {
    **dict.fromkeys("'`\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}", "strings use double quotes"),
    **dict.fromkeys(
        "\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}", 'strings use plain double quotes: `"`'
    ),
    ";": "put each statement on a line of its own",
    "/": "a comment starts with `#`",
    "!": "write `not`",
    "&": "write `and`",
    "@": "OpenProse has no `@`; agents of VVM are called in a cell that begins with `%%vvm`",
    "\r": "end lines with a line feed",
    "\x00": "this looks like a binary file",
    "$": "interpolation is `{name}`, inside a string",
}


def _character(line: LogicalLine) -> Trouble | None:
    if line.kind(0) != "ILLEGAL":
        return None
    start = line.tokens[line.at][1]
    char = line.text[start]
    plain, pair = ascii_sign(char), "".join(map(ascii_sign, line.text[start : start + 2]))
    hint = _CHARACTERS.get(char) or _CHARACTERS.get(plain)
    if plain == "?":
        ternary = any(token[0] == "COLON" for token in line.tokens[line.at : line.stop])
        hint = "there is no `?:`; use `if` and `else`" if ternary else _HELP
        if char == "?":
            return line.here("E004", "unexpected `?`", hint)
    elif pair in _PAIRS:
        hint = f"write `{pair}`"
    elif plain in _CALCULATING and pair not in ("//", "/*"):
        return line.here("E106", f"illegal character `{char}`", "only `+` and `-` calculate")
    elif hint is None:
        hint = f"write `{plain}`" if plain in _PLAIN else invisible_hint(char) or _name_hint(char)
    if plain == "!" and pair not in _PAIRS and line.at > line.first and line.tokens[line.at - 1][0] == "NAME":
        hint = None
    if quoted := _OTHER_QUOTES.match(line.text, start):
        kind = "double" if char == "'" else "plain double"
        hint = f'strings use {kind} quotes: `"{quoted[1] or quoted[2]}"`'
    return line.here("E106", f"illegal character {_name(char)}", hint)


def _name_hint(char: str) -> str | None:
    """Return the hint for letters of other alphabets, their accents, and symbols such as emoji."""
    is_foreign = char.isalpha() or category(char)[0] == "M" or (category(char) == "So" and char > "\xff")
    hint = "names are made of `A` to `Z`, `a` to `z`, digits, `_` and `-`"
    return hint if is_foreign and not char.isascii() else None


_PLAIN: Final = frozenset({*SIGNS, '"', "#", "_"})
_PAIRS: Final = ("!=", "**")
_CALCULATING: Final = ("/", "*", "%")
_HELP: Final = "in a notebook, Shift+Tab and `%help WORD` explain"
_OTHER_QUOTES: Final = re.compile(
    "'([^'\n]*)'|[\N{LEFT DOUBLE QUOTATION MARK}\N{LEFT SINGLE QUOTATION MARK}]([^\"\n]*?)"
    "[\N{RIGHT DOUBLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}]"
)


def _quotes_inside(line: LogicalLine) -> Trouble | None:
    """Explain unescaped quotes inside a string: in `"Say "hi" to Ann"`, a word follows directly after a string."""
    for index in (line.at, line.at - 1):  # after the text of a session, the word is valid and the next string isn't
        before, word = line.tokens[index - 1], line.tokens[index]
        if index <= line.first or before[0] != "STRING" or word[0] not in {*_WORD_KINDS, "NUMBER"}:
            continue
        if before[2] == word[1] and any(token[0] == "STRING" for token in line.tokens[index : line.stop]):
            return line.on(index, "E004", f"unexpected {_shown(line, index)}", _ESCAPED)
    return None


_ESCAPED: Final = 'write `\\"` for a quote inside a string'


def _name(char: str) -> str:
    """Return a character for a message: itself if printable, else its code point."""
    return f"`{char}`" if char.isprintable() and not 0xD800 <= ord(char) <= 0xDFFF else f"U+{ord(char):04X}"


# ---- layout


def _indent(line: LogicalLine) -> Trouble | None:
    if line.kind(0) != "_INDENT":
        return None
    index = line.at + 1
    above = any(token[0] not in _LAYOUT for token in line.tokens[: line.at])
    hint = "align it with the line above" if above else "begin it at the start of the line"
    return line.on(index, "E103", "unexpected indentation: nothing here takes a body", hint)


def _property_value(line: LogicalLine) -> Trouble | None:
    """Explain `prompt: Write a poem`: text without quotes (9.6)."""
    first, words = line.first, line.words(line.first + 2, line.stop)
    if not line.owner or line.at <= first + 2 or line.tokens[first + 1][0] != "COLON":
        return None
    if line.tokens[first + 2][0] not in _WORD_KINDS or line.kind(0) not in _WORD_KINDS or '"' in words:
        return None
    name = line.head_word
    return line.on(first + 2, "E004", f"the text of `{name}` needs quotes", f'write `{name}: "{words}"`')


def _property_number(line: LogicalLine) -> Trouble | None:
    """Explain a number with an unknown unit: `max-output: 100mb`, `timeout: 5 min`."""
    if not line.owner or line.at != line.first + 3 or line.kind(-1) != "NUMBER":
        return None
    hint = _NUMBERS.get(line.head_word)
    return line.unexpected(hint) if hint else None


_NUMBERS: Final = {
    "max-output": "characters to keep: `max-output: 200000`",
    "timeout": 'write a duration: `"30s"`, `"1h"`',
}


def _property_line(line: LogicalLine) -> Trouble | None:
    """Explain a line of a property block that isn't `name: value` (2.1)."""
    if not line.owner or line.at > line.first + 1 or ("property" not in line.row and line.symbol != "NAME"):
        return None
    if line.at == line.first + 1 and line.kind(-1) != "NAME":
        return None
    if line.owner == "spawn":
        return line.on(line.first, "E103", "unexpected indentation: only `name: value` lines are allowed here",
                       "align a statement with the line that owns the block")  # fmt: skip
    return line.unexpected("write `name: value`")


def _on_reject(line: LogicalLine) -> Trouble | None:
    if line.head != "NAME" or line.head_word not in ("on_reject", "on-reject") or line.at < line.first + 2:
        return None
    if line.kind(0) == "_NL":
        return None
    hint = None
    if line.at > line.first + 2 and line.written(line.first + 2) == "retry":
        hint = "`retry` opens the same gate again; to ask for something else first, use a `loop`"
    message = "`on_reject` must be throw, retry, continue or session"
    return line.on(line.first + 2, "E199", message, hint)


# ---- heads of statements


_HEADER_ENDS: Final = frozenset({"COLON", "_OPEN_MAXIMUM", "_NL"})
_MISSING: Final[tuple[tuple[str, str, frozenset[str] | None, str, str, str], ...]] = (
    ("", "BLOCK", frozenset({"COLON", "LPAR"}), "E143", "block without name", "write `block name:`"),
    ("INPUT", "INPUT", frozenset({"COLON", "STRING"}), "E020", "input without name", 'write `input name: "..."`'),
    ("", "OUTPUT", frozenset({"EQUALS"}), "E023", "output without name", "write `output name = ...`"),
    ("", "REPEAT", frozenset({"COLON"}), "E161", "`repeat` needs a count", "write `repeat 3:`"),
    ("", "REPEAT", frozenset({"PLUS"}), "E160", "`repeat` needs a count", "write `repeat 3:`"),
    ("", "UNTIL", _HEADER_ENDS, "E165", "empty condition", "say what to judge: `loop until **...**:`"),
    ("", "WHILE", _HEADER_ENDS, "E165", "empty condition", "say what to judge: `loop while **...**:`"),
    ("", "IF", _HEADER_ENDS, "E192", "empty condition", "say what to judge: `if **...**:`"),
    ("", "ELIF", _HEADER_ENDS, "E192", "empty condition", "say what to judge: `elif **...**:`"),
    ("", "CHOICE", _HEADER_ENDS, "E191", "empty criteria", "say what to choose by: `choice **the best fit**:`"),
    ("USE", "AS", None, "E111", "the alias must be a name", 'write `use "path" as name`'),
)
"""Missing parts after a keyword: the kind of the line's first token ("": any), the keyword, the kinds of the token that
follows it (None: any), code, message, hint."""


def _missing_part(line: LogicalLine) -> Trouble | None:
    """Explain a part that is missing after its keyword, with a specific code (1.7, 1.9)."""
    kind, before = line.kind(0), line.kind(-1)
    for head, keyword, kinds, code, message, hint in _MISSING:
        if before == keyword and head in ("", line.head) and (kinds is None or kind in kinds):
            return line.here(code, message, hint)
    return None


def _session(line: LogicalLine) -> Trouble | None:
    """Explain `session` without quotes (9.6), without anything (E003), or with an agent and a text (4.2)."""
    before = range(line.at - 1, max(line.first, line.at - 5) - 1, -1)
    at = next((k for k in before if line.tokens[k][0] == "SESSION"), -1)
    if at < 0:  # `resume` with an agent and a text
        is_resume = line.at > line.first and line.written(line.at - 1) == "resume"
        hint = _with_agent(line, line.at - 1) if is_resume else None
        return line.here("E004", _TEXT_IS_A_PROPERTY, hint) if hint is not None else None
    if at == line.at - 1 and line.kind(0) == "_NL":
        return line.on(at, "E003", "session without prompt and agent", 'write `session "prompt"` or `session: agent`')
    follows = line.tokens[at + 1][0]
    if follows == "STRING":
        index = at + 2 if line.at == at + 3 and line.kind(-1) in _WORD_KINDS else line.at
        if line.tokens[index][0] in _WORD_KINDS:
            hint = "indent properties below the session"
            return line.on(index, "E004", f"unexpected {_shown(line, index)}", hint)
        return None
    if follows == "COLON" or (follows in _WORD_KINDS and line.tokens[at + 2][0] == "COLON"):
        if line.kind(0) == "STRING":
            return line.here("E004", _TEXT_IS_A_PROPERTY, f"indent `prompt: {line.text_of(line.at)}` below it")
        return None
    if (with_agent := _with_agent(line, at)) is not None:
        return line.on(at + 1, "E004", _TEXT_IS_A_PROPERTY, with_agent)
    words = line.words(at + 1, line.stop).replace('"', "'").rstrip(":")
    if words.startswith("('") and words.endswith("')"):  # written as a call
        words = words[2:-2]
    return line.on(at + 1, "E003", "session without prompt", f'put the prompt in quotes: `session "{words}"`')


_TEXT_IS_A_PROPERTY = "a session with an agent takes its text as a property"


def _with_agent(line: LogicalLine, at: int) -> str | None:
    """Return the hint for `session agent "text"` or `resume agent "text"`, with or without a colon, whose first token
    is at `at`; None for anything else."""
    kinds = [line.tokens[k][0] if k < len(line.tokens) else "_NL" for k in range(at + 1, at + 5)]
    if kinds[0] not in _WORD_KINDS or kinds[1] != "STRING" or "_NL" not in (kinds[2], kinds[3]):
        return None
    if kinds[2] not in ("_NL", "COLON"):
        return None
    spawn, agent = line.written(at), line.written(at + 1)
    return f"write `{spawn}: {agent}`, and indent `prompt: {line.text_of(at + 2)}` below it"


def _arms(line: LogicalLine) -> Trouble | None:
    """Explain `elif`, `else`, `catch`, `finally`, `option` in a wrong place."""
    if line.at != line.first:
        return None
    found = _ARMS.get((line.symbol, line.kind(0))) or _ARMS.get(("", line.kind(0)))
    return line.here(*found) if found is not None else None


_IF: Final = "align it with its `if`"
_TRY: Final = "the order is `try`, `catch`, `finally`, in one column"
_ARMS: Final[dict[tuple[str, str], tuple[str, str, str | None]]] = {
    ("else", "ELSE"): ("E195", "a second `else`", None),
    ("else", "ELIF"): ("E193", "`elif` after `else`", "`else` comes last"),
    ("", "ELSE"): ("E194", "`else` without `if`", _IF),
    ("", "ELIF"): ("E193", "`elif` without `if`", _IF),
    ("finally", "FINALLY"): ("E185", "a second `finally`", _TRY),
    ("finally", "CATCH"): ("E185", "`catch` after `finally`", _TRY),
    ("catch", "CATCH"): ("E185", "a second `catch`", _TRY),
    ("", "CATCH"): ("E185", "`catch` without `try`", _TRY),
    ("", "FINALLY"): ("E185", "`finally` without `try`", _TRY),
    ("", "OPTION"): ("E004", "unexpected `option`", "indent options below `choice **...**:`"),
}
"""The findings for an arm in a wrong place: by the part of a statement above it ("": any other), and its own kind."""


def _options(line: LogicalLine) -> Trouble | None:
    if "option" not in line.row or line.at != line.first:
        return None
    if line.options is not None:
        return Trouble("E190", line.options, line.options + 6, "`choice` has no options", 'add `option "label":` lines')
    return line.unexpected('write `option "label":`')


# ---- pipelines and calls


def _pipe(line: LogicalLine) -> Trouble | None:
    if line.kind(-1) == "PIPE":
        if line.kind(0) == "PIPE":
            return line.here("E004", "unexpected `|`", "write `or`")
        return line.here("E171", f"unknown operation {_shown(line, line.at)}", "one of map, filter, reduce, pmap")
    for index in range(line.at - 1, max(line.first, line.at - 6), -1):
        kind = line.tokens[index][0]
        if kind in ("COLON", "_NL"):
            return None
        if kind == "REDUCE" and line.tokens[index - 1][0] == "PIPE" and line.kind(-1) != "RPAR":
            return line.here("E172", "`reduce` needs two names", "write `reduce(total, item):`")
    return None


def _call(line: LogicalLine) -> Trouble | None:
    kind = line.kind(0)
    if kind == "LPAR" and line.kind(-2) == "DOT":
        first = line.at - 1
        while first > line.first and line.tokens[first - 1][0] in ("DOT", "NAME"):
            first -= 1
        word, method = line.words(first, line.at), line.written(line.at - 1)
        value, inside = line.words(first, line.at - 2), line.words(line.at + 1, line.at + 2)
        if hint := hints.method(method, value, inside if inside != ")" else "..."):
            return line.on(line.at - 1, "E004", "values have no methods", hint)
        return line.on(first, "E025", f"there is no program `{word}`", 'import it: `use "./file.prose" as name`')
    if kind == "COLON" and line.kind(-2) in ("LPAR", "COMMA"):
        at = next((k for k in range(line.at, line.first - 1, -1) if line.tokens[k][0] == "DO"), -1)
        if at >= 0:
            hint = f"write `do {line.written(at + 1)}(...)` with the values only"
            return line.here("E004", "a block takes its arguments in order, without names", hint)
    return None


# ---- conditions


def _condition(line: LogicalLine) -> Trouble | None:
    """Explain a condition in words without markers, or with `=` instead of `==` (9.6)."""
    opener = next((k for k in range(line.at - 1, line.first - 1, -1) if line.tokens[k][0] in _CONDITIONS), -1)
    if opener < 0:
        return None
    head = "loop " + line.written(opener) if line.tokens[opener][0] in ("UNTIL", "WHILE") else line.written(opener)
    if line.kind(0) == "EQUALS":
        left = line.words(line.first, line.at - 1 if line.written(line.at - 1) == "==" else line.at)
        return line.here("E004", "unexpected `=`", f"write `{left} == {line.words(line.at + 1, line.stop) or '...'}`")
    if line.kind(-1) == "COLON":
        return line.unexpected("put it on a line of its own, indented")
    if line.kind(0) not in _WORD_KINDS or line.tokens[opener + 1][0] not in _WORD_KINDS:
        return None
    last = next((k for k in range(opener, line.stop) if line.tokens[k][0] in ("COLON", "_OPEN_MAXIMUM")), line.stop)
    return line.unexpected(f"a condition in words needs `**`: `{head} **{line.words(opener + 1, last)}**:`")


_CONDITIONS: Final = {"IF", "ELIF", "UNTIL", "WHILE"}


# ---- words of other languages


_OTHER_WORDS: Final = {
    "while": ("write `loop while {}`", "**...**:"),
    "until": ("write `loop until {}`", "**...**:"),
    **dict.fromkeys(("def", "function", "func", "fn", "fun"), ("write `block {}`", "name:")),
    **dict.fromkeys(("elseif", "elsif"), ("write `elif {}`", "**...**:")),
    **dict.fromkeys(("var", "set", "val"), ("write `let {}`", "")),
    "except": ("write `catch as name:`", ""),
    "raise": ('write `throw "..."`', ""),
    "call": ("write `do {}`, or `name(input: value)` for a program", ""),
}
"""Hints for statement words of other languages. `{}` is the text after the word or, without any, the second value."""


def _other_words(line: LogicalLine) -> Trouble | None:
    """Explain statements from other languages (9.6)."""
    word, rest = line.head_word, line.first + 1
    after = [line.written(index) for index in range(rest, min(line.stop, rest + 4))]
    if line.head == "ELSE" and line.kind(0) == "IF":
        return line.here("E004", "unexpected `if`", f"write `elif {line.words(line.at + 1, line.stop) or '**...**:'}`")
    if word in _OTHER_WORDS:
        template, default = _OTHER_WORDS[word]
        hint = template.format(line.words(rest, line.stop) or default)
    elif word == "for" and after[:1] == ["each"] and len(after) > 1:
        hint = f"write `for {line.words(rest + 1, line.stop)}`"
    elif word == "approve":
        hint = f"the statement is called `gate`: `gate {after[0] if after else 'name'}:`"
    elif word == "else" and line.kind(0) == "DISCRETION":
        hint = f"write `elif {line.words(rest, line.stop)}`"
    elif word == "resume" and after:
        hint = f"write `resume: {after[0]}`"
    else:
        return None
    return line.unexpected(hint) if line.at <= line.first + 3 else None


def _misspelt(line: LogicalLine) -> Trouble | None:
    """Explain a line that begins with a misspelt statement word."""
    if line.head != "NAME" or line.at != line.first + 1 or line.kind(0) not in _AFTER_STATEMENT_WORD:
        return None
    word = line.head_word
    meant = Nearest()(word, _STATEMENT_WORDS)
    if meant is None or word[0] != meant[0]:  # typos rarely change the first letter
        return None
    if len(word) == len(meant) == 3 and sorted(word) != sorted(meant):
        return None
    return line.unexpected(did_you_mean(meant))


def _misspelt_value(line: LogicalLine) -> Trouble | None:
    """Explain `let d = sesion "x"`: a value that begins with a misspelt statement word."""
    if line.kind(-1) != "NAME" or line.kind(-2) not in _BEFORE_A_VALUE or line.kind(0) not in ("STRING", "COLON"):
        return None
    word = line.written(line.at - 1)
    meant = Nearest()(word, _VALUE_WORDS)
    return line.on(line.at - 1, "E004", f"unknown word `{word}`", did_you_mean(meant)) if meant else None


_BEFORE_A_VALUE: Final = frozenset({"EQUALS", "ARROW", "COLON"})
_VALUE_WORDS: Final = ("call", "choice", "exec", "parallel", "resume", "session")
_AFTER_STATEMENT_WORD: Final = _WORD_KINDS | {"STRING", "COLON", "LBRACE", "DISCRETION", "NUMBER"}
_STATEMENT_WORDS: Final = sorted(
    KEYWORDS.keys() - {"and", "break", "continue", "do", "elif", "else", "if", "is", "not", "or"}
)


def _unquoted(line: LogicalLine) -> Trouble | None:
    """Explain missing quotes: `exec ls -la`, `use path`, `throw some words` (9.6)."""
    index = next((k for k in range(line.at - 1, line.first - 1, -1) if line.written(k) in _QUOTED), -1)
    if index < 0 or (index > line.first and line.tokens[index - 1][0] not in ("EQUALS", "ARROW", "OUTPUT", "COLON")):
        return None
    kind, following = line.tokens[index][0], line.tokens[index + 1][0]
    if kind not in ("NAME", "THROW", "EXEC", "USE", "IMPORT", "OPTION") or following not in _WORD_KINDS:
        return None
    word = line.written(index)
    words = line.words(index + 1, line.stop)
    start = line.tokens[index + 1][1] if word != "throw" else line.tokens[line.at][1]
    colon = ":" if words.endswith(":") else ""
    shown = words.rstrip(":").replace('"', '\\"')
    return Trouble("E004", start, start + 1, f"`{word}` needs a quoted string", f'write `{word} "{shown}"{colon}`')


_QUOTED: Final = {"exec", "use", "import", "option", "throw"}


def _input(line: LogicalLine) -> Trouble | None:
    if line.head == "INPUT" and line.at == line.first + 2 and line.kind(0) in ("STRING", "DISCRETION"):
        words = f"{line.words(line.first, line.at)}: {line.written(line.at)}"
        return line.here("E004", f"missing `:` before the {_shown(line, line.at)}", f"write `{words}`")
    word = line.written(line.at - 1)
    if word in ("input", "gate") and (line.kind(-2) == "EQUALS" or line.head == "GATE") and line.kind(0) in _ASKING:
        text = next((line.text_of(k) for k in (line.at, line.at + 1) if line.tokens[k][0] == "STRING"), '"..."')
        name = line.written(line.at - 3) if line.kind(-2) == "EQUALS" else "name"
        form = f"`input {name}: {text}`" if word == "input" else f"`gate {name}:`, below it `prompt: {text}`"
        return line.unexpected(f"write {form}")
    return None


def _maximum(line: LogicalLine) -> Trouble | None:
    """Explain a maximum without a colon: `loop until **...** (max 3):`, `(max = 3)`."""
    if line.head != "LOOP" or line.written(line.at - 1) != "max" or line.kind(0) not in ("NUMBER", "NAME", "EQUALS"):
        return None
    number = line.at + 1 if line.kind(0) == "EQUALS" else line.at
    most = line.written(number) if line.tokens[number][0] in ("NUMBER", "NAME") else "3"
    return line.unexpected(f"write `(max: {clipped(most, 40, '...')})`")


def _catch(line: LogicalLine) -> Trouble | None:
    begins = line.head == "NAME" and line.head_word == "catch" and line.at == line.first + 1
    if (line.kind(-1) == "CATCH" and line.kind(0) == "NAME") or (begins and line.kind(0) in _WORD_KINDS):
        return line.unexpected(f"write `catch as {line.written(line.at)}:`")
    return None


# ---- the end of a line


def _line_end(line: LogicalLine) -> Trouble | None:
    if line.kind(0) != "_NL":
        return None
    before = line.tokens[line.at - 1] if line.at > line.first else None
    if line.colon and line.head != "SESSION":
        head = clipped(line.words(line.first, line.stop), 40, "...")
        return line.here("E004", f"missing `:` after `{head}`", "add `:` at the end of the line")
    if before is not None and before[0] == "EQUALS":
        return line.here("E004", "a value must follow `=` on the same line")
    if line.head in ("LET", "CONST") and before is not None and "EQUALS" in line.row:
        name = line.written(line.at - 1)
        return line.here("E004", f"`{name}` needs a value", f"write `{line.head_word} {name} = ...`")
    if line.head == "INPUT" and line.at == line.first + (3 if line.kind(-1) == "COLON" else 2):
        words = line.words(line.first, line.first + 2)
        return line.here("E004", f"`{words}` needs a prompt", f'write `{words}: "..."`')
    if before is not None and before[0] == "ARROW":
        return line.here("E004", "a session must follow `->`")
    return line.here("E004", "the line ends too early", _could_come(line))


def _could_come(line: LogicalLine) -> str | None:
    if "STRING" in line.row and "NAME" not in line.row:
        return "a string in double quotes belongs here"
    if "NAME" in line.row and "STRING" not in line.row:
        return "a name belongs here"
    return None


# ---- ProseScript


def _contract_call(line: LogicalLine) -> Trouble | None:
    """Explain a `call` without a target, with inputs on its line, or inside an expression (prose-md.md 3.2)."""
    kinds = [token[0] for token in line.tokens[line.first : line.at + 1]]
    if "_CALL" not in kinds:
        return None
    call = len(kinds) - 1 - kinds[::-1].index("_CALL")
    if call == len(kinds) - 1:
        return line.here("E004", "a call is not allowed inside an expression", "bind it first: `let x = call name`")
    if kinds[call + 1 :] == ["_NL"]:
        return line.on(line.first + call, "E004", "the target of the call is missing", "write `call name`")
    if line.kind(-1) in ("NAME", "STRING") and line.at == line.first + call + 2:
        return line.here("E004", "inputs of a call belong on the lines below it", "write `name: value` lines, indented")
    return None


# ---- anything else


def _unexpected(line: LogicalLine) -> Trouble:
    hint = None
    kind, before = line.kind(0), line.kind(-1)
    if kind == "PIPE" and before == "COLON":
        hint = 'put a text over several lines in `"""`'
    elif kind == "EQUALS" and before == "EQUALS":
        hint = "compare with `==`"
    elif kind in ("LBRACE", "STRING") and before == "NAME" and line.head != "NAME":
        hint = None
    elif line.colon and kind not in _SIGNS and before not in ("COMMA", "LPAR"):
        hint = "did you forget `:`?" if line.head in _HEADERS else None
    else:
        hint = _could_come(line)
    return line.unexpected(hint)


_HEADERS: Final = {"AGENT", "GATE", "BLOCK", "INPUT", "PARALLEL", "TRY", "FOR", "REPEAT", "CHOICE", "OPTION"}
_NAMES: Final = {
    "_NL": "end of line",
    "_DEDENT": "end of the block",
    "_INDENT": "indentation",
    "$END": "end of the text",
    "STRING": "string",
    "DISCRETION": "discretion marker",
}


def _shown(line: LogicalLine, index: int) -> str:
    return _NAMES.get(line.tokens[index][0]) or f"`{clipped(line.written(index), 40, '...')}`"


def first_word(tokens: Sequence[RawToken], index: int) -> Any:
    """Return the value of the token at `index`: for a name or keyword, the word itself."""
    value = tokens[index][3]
    return getattr(value, "id", value)


_RULES: Final[tuple[Rule, ...]] = (
    _character, _quotes_inside, _indent, _contract_call, _on_reject, _missing_part, _session, _arms,
    _options, _property_value, _property_number, _property_line, _pipe, _call, _other_words, _catch, _input,
    _maximum, _condition, _unquoted, _misspelt, _misspelt_value, _line_end,
)  # fmt: skip
