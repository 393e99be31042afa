"""Text to tokens: docs/reference/vvm.md 1.

One regular expression cuts the whole text into pieces without a gap, each a token and the blanks behind it; offsets are
running sums of lengths. So no Python code runs for a token before the parser looks at it: a token is known by its text.
Line ends are tokens too. Such a token holds the comment before it and all blank lines and comments below, up to the
indentation of the next line with code; what a line end means is for the parser to say, which knows the open brackets.
"""

from __future__ import annotations

import re
from itertools import accumulate, repeat
from typing import Final

from prose_kernel.language.nodes import maker
from prose_kernel.language.vvm.tree import Comment

END: Final = "\x04"
"""The text of the token behind the last one."""
WORD, NUMBER, STRING, TEMPLATE, SIGN, LINE, ILLEGAL = range(7)
KINDS: Final[dict[str, int]] = {
    **dict.fromkeys("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_", WORD),
    **dict.fromkeys("0123456789", NUMBER),
    **dict.fromkeys("=!<>+-.,:()[]{}@?", SIGN),
    '"': STRING,
    "`": TEMPLATE,
    "\n": LINE,
    "#": LINE,
}
"""What a token is, by its first character; all others are illegal."""
LINE_STARTS: Final = "\n#"
"""What the token of a line's end begins with."""

_LINES: Final = r"(?:\#[^\n]*+)?+\n(?:[ \t]*+(?:\#[^\n]*+)?+\n)*+"
_PIECE: Final = re.compile(
    rf'''(?:
      [A-Za-z_][A-Za-z0-9_]*+
    | {_LINES}
    | """(?:[^"\\]++|\\.|"(?!""))*+(?:""")?+
    | "(?:[^"\\\n]++|\\[^\n]?+)*+"?+
    | `(?:[^`\\]++|\\`?+)*+`?+
    | [0-9]++(?:\.[0-9]++)?+[A-Za-z0-9_]*+
    | \+\+ | -- | [-=]> | [-+*/%|&:]= | \*\* | // | && | \|\| | <> | === | !==  # what other languages have
    | == | != | <= | >=
    | [-<>+=.,:()\[\]{{}}@?]
    | '[^'\n]*+'?+
    | [^\x00-\x7f]++
    | .
    )[ \t]*+''',
    re.VERBOSE | re.DOTALL,
)
_FIRST: Final = re.compile(r"(?:[ \t]*+(?:#[^\n]*+)?+\n)*+[ \t]*+")
_COMMENT: Final = re.compile(r"#([^\n]*+)")
_comment = maker(Comment)


class Tokens:
    """The tokens of a text: the text and the offset of each. The first holds what stands before all code."""

    def __init__(self, text: str) -> None:
        self.text = text = text if text.endswith("\n") else text + "\n"
        first = _FIRST.match(text)
        begin = first.end() if first else 0
        pieces = [text[:begin], *_PIECE.findall(text, begin)]
        self.starts = list(accumulate(map(len, pieces), initial=0))
        self.texts = list(map(str.rstrip, pieces, repeat(" \t")))
        self.texts.append(END)
        self.last = len(pieces)

    def is_cut(self, at: int) -> bool:
        """Whether the template or triple-quoted string at `at` is cut off by the end of the text."""
        return at == self.last - 1

    def end(self, at: int) -> int:
        """The offset behind the token at `at`."""
        return self.starts[at] + len(self.texts[at])

    def comments(self) -> tuple[Comment, ...]:
        found = []
        text, starts = self.text, self.starts
        for at, token in enumerate(self.texts):
            if "#" in token and (not at or token[0] in "#\n"):
                begin, end = starts[at], starts[at] + len(token)
                for match in _COMMENT.finditer(text, begin, end):
                    alone = match.start() != begin or not at
                    found.append(_comment(match.start(), match.end(), match[1].strip(), alone))
        return tuple(found)
