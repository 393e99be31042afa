"""Recognises conditions of ProseScript that are written without markers (docs/reference/prose-md.md 3.4).

Only the header's own line matters. If a condition consists only of names, the parser keeps both readings, expression
and words (`tree.AmbiguousCondition`), and the checker chooses one, because only it knows the variables (rule 5b).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, Literal

from msgspec import Struct

from prose_kernel.language.nodes import walk
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.keywords import NAME

_HEADER: Final = re.compile(
    rf"""(?:(?:(?:let|const)[ \t]+(?:{NAME}|\{{[^{{}}\n]*\}})|output[ \t]+{NAME}|{NAME})[ \t]*=(?!=)[ \t]*
        |(?:return|output)[ \t]+)?
        (?P<word>if|elif|choice|loop[ \t]+until|loop[ \t]+while)(?![\w.-])(?![ \t]*=(?!=))[ \t]*""",
    re.VERBOSE,
)
_PIECES: Final = re.compile(r'"(?:[^"\\\n]|\\[^\n])*+"|\*\*\*?|["()[\]{}:\n]')
_REST: Final = re.compile(r"[ \t]*(?:#[^\n]*)?\n")
_MAXIMUM: Final = re.compile(rf"(.*?)[ \t]*(\([ \t]*max\b[^()\n]*\)(?:[ \t]+as[ \t]+{NAME})?)[ \t]*\Z")
_VARIABLE: Final = re.compile(rf"(.*?)[ \t]+as[ \t]+{NAME}\Z")
_TWO_WORDS: Final = re.compile(rf"(?<![\w.-])(?!(?:and|or|not|is)\b){NAME}[ \t]+(?!(?:and|or|is)\b)[A-Za-z_]")
_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\[^\n])*+"')
_CLOSERS: Final = {")": "(", "]": "[", "}": "{"}
_OPERATORS: Final = frozenset({"==", "!=", "<", "<=", ">", ">=", "+", "-"})
_LITERALS: Final = (tree.Text, tree.Number, tree.Constant, tree.Duration)
_EVIDENT: Final = (*_LITERALS, tree.Array, tree.Object, tree.ProgramCall, tree.Member, tree.Index)
_NAMES: Final = (tree.Name, tree.Member, tree.Logical, tree.Not, tree.Binary)

ReadExpression = Callable[[str], tree.Expression | None]
"""Parses a text as an expression, or returns None; the parser's `read_expression`."""
Reading = Literal["words", "names", "string"]


class BareCondition(Struct, frozen=True):
    """A condition without markers in a header: the text from `start` to `end`.

    - `reading`: "words", "string" (words in quotes), or "names" (an expression if each name is a variable, else words)
    - `keyword`: the offset of the header's keyword
    - `takes_variable`: the text ends with `as NAME`, which belongs to the condition if it is read as words
    - `colon`: the offset of a colon inside words (E312), or -1
    """

    reading: Reading
    keyword: int
    start: int
    end: int
    takes_variable: bool = False
    colon: int = -1


def read(text: str, at: int, expression: ReadExpression | None) -> BareCondition | None:
    """Return the bare condition of the header on the line that begins at `at`.

    Return None if the line has no header or follows the rules of openprose.md (expressions, markers, incomplete text).
    Without `expression`, two words in a row are the only sign of words.
    """
    header = _HEADER.match(text, at)
    if header is None:
        return None
    keyword, start = header.start("word"), header.end()
    colon = next((one for one in _colons(text, start) if _REST.match(text, one + 1)), None)  # rule 1
    if colon is None:
        return None
    condition = text[start:colon].rstrip(" \t")
    is_loop = header["word"].startswith("loop")
    limited = _MAXIMUM.match(condition) if is_loop else None
    if limited is not None:
        condition = limited[1]
    end = start + len(condition)
    if any(piece[0].startswith("**") for piece in _PIECES.finditer(condition)):
        return None
    if _STRING.fullmatch(condition):
        return BareCondition("string", keyword, start, end)
    if header["word"] == "choice":
        return BareCondition("words", keyword, start, end)
    named = _VARIABLE.match(condition) if is_loop and limited is None else None
    reading = _reading(named[1] if named is not None else condition, expression)
    if reading == "expression":
        return None
    if reading == "names":
        return BareCondition("names", keyword, start, end, named is not None)
    inner = next(_colons(condition + "\n"), -1)
    return BareCondition("words", keyword, start, end, named is not None, start + inner if inner >= 0 else -1)


def variable_in(text: str) -> int:
    """Return the offset of a trailing `as NAME` in the text of a condition, 0 without one."""
    found = _VARIABLE.match(text)
    return text.index("as", len(found[1])) if found is not None else 0


def is_words(text: str, word: str, expression: ReadExpression) -> bool:
    """Return whether the header `word` (such as `if`, `loop until`) reads `text` without markers as words, whatever
    variables exist."""
    if not text or text != text.strip(" \t") or "\n" in text or (word.startswith("loop") and _MAXIMUM.match(text)):
        return False
    found = read(f"{word} {text}:\n", 0, expression)
    start = len(word) + 1
    return (
        found is not None
        and (found.reading, found.start, found.end) == ("words", start, start + len(text))
        and found.colon < 0
        and not found.takes_variable
    )


def _colons(text: str, at: int = 0) -> Iterator[int]:
    """Yield the offsets of the colons of a line that are outside strings, balanced brackets and markers, in order."""
    found: list[int] = []
    open_brackets: list[tuple[str, int]] = []
    marker = ""
    for piece in _PIECES.finditer(text, at):
        sign = piece[0]
        if sign == "\n":
            break
        if marker or sign.startswith("**"):
            marker = "" if sign == marker else marker or sign
        elif sign == '"':  # never closed
            return
        elif sign in "([{":
            open_brackets.append((sign, len(found)))
        elif sign in _CLOSERS:
            if open_brackets and open_brackets[-1][0] == _CLOSERS[sign]:
                del found[open_brackets.pop()[1] :]
        elif sign == ":":
            found.append(piece.start())
    yield from found


def _reading(text: str, read_expression: ReadExpression | None) -> Literal["words", "names", "expression"]:
    """Apply rules 5 and 6 as far as the text decides them; the variables aren't known here."""
    if not text or _TWO_WORDS.search(_STRING.sub('""', text)):
        return "words"
    if read_expression is None:
        return "expression"
    expression = read_expression(text)
    if expression is None:
        return "words"
    if any(_is_evident(operand) for operand in _operands(expression)):
        return "expression"
    return "names" if all(isinstance(node, _NAMES) for node in walk(expression)) else "words"


def _operands(expression: tree.Expression) -> Iterator[tree.Expression]:
    """Yield the operands of `and`, `or` and `not`, or the expression itself."""
    stack = [expression]
    while stack:
        node = stack.pop()
        if isinstance(node, tree.Logical):
            stack.extend(node.operands)
        elif isinstance(node, tree.Not):
            stack.append(node.operand)
        else:
            yield node


def _is_evident(node: tree.Expression) -> bool:
    """Apply rule 5a to one operand."""
    if isinstance(node, tree.Binary) and node.operator == "is":
        if isinstance(node.left, _LITERALS) or isinstance(node.right, _LITERALS):
            return True
    elif isinstance(node, _EVIDENT):
        return True
    return any(isinstance(part, tree.Binary) and part.operator in _OPERATORS for part in walk(node))
