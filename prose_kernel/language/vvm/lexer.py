"""Splits text into tokens, and reads the values of string, number and template tokens (docs/reference/vvm.md 1).

One regular expression splits the whole text into pieces without a gap, each a token and the blanks after it; offsets
are running sums of lengths. So no Python code runs for a token before the parser looks at it: its text identifies it.
Line ends are tokens too. Such a token includes the comment before it and all blank lines and comments below, up to the
indentation of the next line with code. The parser, which knows the open brackets, decides what a line end means.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import accumulate, repeat
from typing import Final, NamedTuple

from prose_kernel.language.vvm.names import RESERVED
from prose_kernel.language.vvm.tree import Comment, Placeholder, Template

END: Final = "\x04"
"""The text of the token after the last one."""
WORD, NUMBER, STRING, TEMPLATE, SIGN, LINE = range(6)
KINDS: Final[dict[str, int]] = {
    **dict.fromkeys("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_", WORD),
    **dict.fromkeys("0123456789", NUMBER),
    **dict.fromkeys("=!<>+-.,:()[]{}@?", SIGN),
    '"': STRING,
    "`": TEMPLATE,
    "\n": LINE,
    "#": LINE,
}
"""The kind of a token by its first character; all others are illegal."""
LINE_STARTS: Final = "\n#"
"""The first characters of a line-end token."""

_LINES: Final = r"(?:\#[^\n]*+)?+\n(?>(?:[ \t]*+(?:\#[^\n]*+)?+\n)*)"
_PIECE: Final = re.compile(
    rf'''(?:
      [A-Za-z_][A-Za-z0-9_]*+
    | {_LINES}
    | """(?>(?:[^"\\]++|\\.|"(?!""))*)(?:""")?+
    | "(?:[^"\\\n]++|\\[^\n]?+)*+"?+
    | `(?:[^`\\]++|\\`?+)*+`?+
    | [0-9]++(?:\.[0-9]++)?[A-Za-z0-9_]*+
    | \+\+ | -- | [-=]> | [-+*/%|&:]= | \*\* | // | && | \|\| | <> | === | !==  # operators of other languages
    | == | != | <= | >=
    | [-<>+=.,:()\[\]{{}}@?]
    | '[^'\n]*+'?+
    | [^\x00-\x7f]++
    | .
    )[ \t]*+''',
    re.VERBOSE | re.DOTALL,
)
_FIRST: Final = re.compile(r"(?>(?:[ \t]*+(?:#[^\n]*+)?+\n)*)[ \t]*+")
_COMMENT: Final = re.compile(r"#([^\n]*+)")
_MULTILINE: Final = ("`", '"""')
_OPENS_TEMPLATE: Final = re.compile(
    r"(?:\A[ \t]*+|[=(,][ \t]*+|return[ \t]++)@\w++(?:\.with\(.*\))?[ \t]*+\Z"
    r"|\A[ \t]*+(?:(?:el)?if|while|case|require|choose)\b.*\?[ \t]*+\Z"
)
_OPENS_STRING: Final = re.compile(r"(?:\A|[(,])[ \t]*+\w++[ \t]*+=[ \t]*+\Z")
_MAX_REPAIRS: Final = 10


class Tokens:
    """The tokens of a text: the text and the offset of each. The first one contains everything before the code."""

    def __init__(self, text: str) -> None:
        self.text = text = text if text.endswith("\n") else text + "\n"
        first = _FIRST.match(text)
        begin = first.end() if first else 0
        pieces = [text[:begin], *_PIECE.findall(text, begin)]
        self.starts = list(accumulate(map(len, pieces), initial=0))
        self.texts = list(map(str.rstrip, pieces, repeat(" \t")))
        self.texts.append(END)
        self.last = len(pieces)
        self.unclosed: set[int] = set()  # indexes of the templates and triple-quoted strings without an end
        if pieces[-1].startswith(_MULTILINE):
            self._close_earlier()

    def _close_earlier(self) -> None:
        """Handle a template or string without an end. An earlier one may be the cause: if the quote that closes it
        looks like one that opens the next, then it was left open, and it is cut after its first line."""
        text, begin = self.text, 1
        for _ in range(_MAX_REPAIRS):
            opens = _OPENS_TEMPLATE if self.texts[self.last - 1][0] == "`" else _OPENS_STRING
            at = next((at for at in range(begin, self.last - 1) if _ends_like_a_start(self.texts[at], opens)), None)
            if at is None:
                break
            start = self.starts[at]
            end = text.index("\n", start)
            pieces = _PIECE.findall(text, end)
            self.texts[at:] = [text[start:end].rstrip(" \t"), *map(str.rstrip, pieces, repeat(" \t")), END]
            self.starts[at:] = [start, *accumulate(map(len, pieces), initial=end)]
            self.last = len(self.texts) - 1
            self.unclosed.add(at)
            begin = at + 1
            if not pieces[-1].startswith(_MULTILINE):
                return
        self.unclosed.add(self.last - 1)

    def end(self, at: int) -> int:
        """Return the offset after the token at `at`."""
        return self.starts[at] + len(self.texts[at])

    def comments(self) -> tuple[Comment, ...]:
        """Return all comments in source order."""
        found: list[Comment] = []
        texts = self.texts
        for at in [at for at, token in enumerate(texts) if "#" in token and (token[0] in LINE_STARTS or not at)]:
            begin = self.starts[at]
            for match in _COMMENT.finditer(self.text, begin, self.end(at)):
                alone = match.start() != begin or not at
                text = match[1].rstrip()
                found.append(Comment.at(match.start(), match.start() + 1 + len(text), text.lstrip(), alone))
        return tuple(found)


def _ends_like_a_start(token: str, opens: re.Pattern[str]) -> bool:
    """Return whether the end of a template or string looks like the beginning of the next one."""
    if not token.startswith(_MULTILINE):
        return False
    line = token.rpartition("\n")
    return bool(line[1]) and opens.search(line[2].rstrip('`"')) is not None


# ---------------------------------------------------------------- strings and numbers

_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})(?:\\u([0-9A-Fa-f]{4}))?|(.))?", re.DOTALL)
_SIMPLE: Final = {"\\": "\\", '"': '"', "/": "/", "n": "\n", "t": "\t", "b": "\b", "f": "\f", "r": "\r"}
_CLOSED: Final = re.compile(r'"(?:[^"\\\n]++|\\[^\n])*+"')


class BadEscape(NamedTuple):
    """An unknown escape: its start and end in the token of the string, quotes included."""

    start: int
    end: int


def is_closed(token: str) -> bool:
    """Return whether the token of a single-line string has its closing quote."""
    if "\\" in token:
        return _CLOSED.fullmatch(token) is not None
    return len(token) > 1 and token[-1] == '"'


def unescape(token: str, quotes: int, bad: list[BadEscape]) -> str:
    """Return the text between the quotes of a token with a backslash; unknown escapes are kept, and added to `bad`."""
    found: list[str] = []
    at, end = quotes, len(token) - quotes
    while True:
        backslash = token.find("\\", at, end)
        if backslash < 0:
            found.append(token[at:end])
            return "".join(found)
        found.append(token[at:backslash])
        match = _ESCAPE.match(token, backslash, end)
        assert match is not None
        text, at = _meaning(match)
        if text is None:
            bad.append(BadEscape(backslash, at))
            text = token[backslash:at]
        found.append(text)


def _meaning(match: re.Match[str]) -> tuple[str | None, int]:
    """Return the character that an escape means, None for an invalid one, and the end of the escape."""
    if match[1] is None:
        return _SIMPLE.get(match[3] or ""), match.end()
    code = int(match[1], 16)
    if not 0xD800 <= code < 0xE000:
        return chr(code), match.end(1)
    low = int(match[2], 16) if match[2] and code < 0xDC00 else 0
    if not 0xDC00 <= low < 0xE000:
        return None, match.end(1)
    return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)), match.end()


# ---------------------------------------------------------------- templates

Report = Callable[..., None]
"""Called with `(code, start, end, message, hint)` for a finding."""

_MARK: Final = re.compile(r"\\`|\{\{|\}\}|\{\}|\{([A-Za-z_][A-Za-z0-9_]*+(?:\.[A-Za-z_][A-Za-z0-9_]*+)*+)\}|[{}]")
_SPACED: Final = re.compile(r"\{\s*+([A-Za-z_][A-Za-z0-9_]*+(?:\.[A-Za-z_][A-Za-z0-9_]*+)*+)\s*+\}")
_INDEXED: Final = re.compile(r"\{[A-Za-z_][A-Za-z0-9_.]*+\[")
_CALLED: Final = re.compile(r"\{[A-Za-z_][A-Za-z0-9_.]*+\(")
_MAX_FINDINGS: Final = 50  # findings reported for one template


def template(token: str, start: int, report: Report) -> Template:
    """Return the template of a token, whose backtick is at `start`."""
    content = token[1:-1]
    if "{" not in content and "}" not in content and "\\" not in content:
        return Template.at(start, start + len(token), (content,) if content else ())
    return _Reader(token, start, report).read()


class _Reader:
    def __init__(self, token: str, start: int, report: Report) -> None:
        self.token = token
        self.start = start
        self.report = report
        self.parts: list[str | Placeholder] = []
        self.text: list[str] = []
        self.open_braces = 0  # reported braces; the braces that close them are part of the same mistake
        self.findings_left = _MAX_FINDINGS

    def read(self) -> Template:
        token, end, at = self.token, len(self.token) - 1, 1
        for match in _MARK.finditer(token, 1, end):
            if match.start() > at:
                self.text.append(token[at : match.start()])
            at = match.end()
            self._read_mark(match)
        if at < end:
            self.text.append(token[at:end])
        self._end_text()
        return Template.at(self.start, self.start + len(token), tuple(self.parts))

    def _read_mark(self, match: re.Match[str]) -> None:
        mark = match[0]
        if mark == "\\`":
            self.text.append("`")
        elif mark in ("{{", "}}"):
            if self.open_braces:
                self.open_braces = self.open_braces + 2 if mark == "{{" else max(0, self.open_braces - 2)
            self.text.append(mark[0])
        elif mark == "{}":
            self._add_placeholder(match, ())
        elif match[1]:
            self._read_name(match, match[1])
        else:
            self._read_brace(match.start(), mark)

    def _end_text(self) -> None:
        if self.text:
            self.parts.append("".join(self.text))
            self.text = []

    def _add_placeholder(self, match: re.Match[str], path: tuple[str, ...]) -> None:
        self._end_text()
        self.parts.append(Placeholder.at(self.start + match.start(), self.start + match.end(), path))

    def _read_name(self, match: re.Match[str], name: str) -> None:
        path = tuple(name.split("."))
        if path[0] not in RESERVED:
            self._add_placeholder(match, path)
            return
        start = self.start + match.start() + 1
        self.text.append(match[0])
        if path == ("it",):
            hint = "write `{}` for the input"
        elif path[0] == "it":
            hint = f"bind it to a name first: `x = it.{'.'.join(path[1:])}`, then `{{x}}`"
        else:
            hint = f"give the variable another name, such as `{path[0]}_`"
        self._add_finding("V010", start, len(path[0]), f"`{path[0]}` is a reserved word, not a name", hint)

    def _read_brace(self, at: int, brace: str) -> None:
        if brace == "{":
            self.text.append("{")
            self.open_braces += 1
            if self.open_braces == 1:
                self._add_finding("V052", self.start + at, 1, "a `{` that does not begin a placeholder", self._hint(at))
        else:
            self.text.append("}")
            if self.open_braces:
                self.open_braces -= 1
            else:
                hint = "write `}}` for a brace as text"
                self._add_finding("V052", self.start + at, 1, "a `}` that does not end a placeholder", hint)

    def _hint(self, at: int) -> str:
        token = self.token
        if spaced := _SPACED.match(token, at):
            return f"write `{{{spaced[1]}}}`, without blanks"
        if _INDEXED.match(token, at):
            return "a placeholder has no indexes: assign the element to a name first, and write `{name}`"
        if _CALLED.match(token, at):
            return "a placeholder calls nothing: assign the result to a name first, and write `{name}`"
        return "write `{{` and `}}` for braces as text; placeholders are `{}`, `{name}` and `{name.field}`"

    def _add_finding(self, code: str, start: int, length: int, message: str, hint: str) -> None:
        if self.findings_left:
            self.findings_left -= 1
            self.report(code, start, start + length, message, hint)
