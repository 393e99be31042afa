"""Splits text into tokens (docs/reference/vvm.md 1).

One regular expression splits the whole text into pieces without a gap, each a token and the blanks after it; offsets
are running sums of lengths. So no Python code runs for a token before the parser looks at it: its text identifies it.
Line ends are tokens too. Such a token includes the comment before it and all blank lines and comments below, up to the
indentation of the next line with code. The parser, which knows the open brackets, decides what a line end means.
"""

from __future__ import annotations

import re
from itertools import accumulate, repeat
from typing import Final

from prose_kernel.language.vvm.tree import Comment

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
