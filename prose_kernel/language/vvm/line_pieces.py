"""Turns one logical line of VVM into pieces: texts, possible line breaks, and the comments inside its brackets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from prose_kernel.language.nodes import visitors
from prose_kernel.language.python_literals import number
from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.layout import (
    CLOSING,
    COMMA,
    DEDENT,
    ELEMENTS,
    END,
    GROUP,
    OPENING,
    SOFT,
    SPACE,
    Mark,
    Piece,
)
from prose_kernel.language.vvm.tree import Comment, Expression, Keyword

NEVER: Final = 1 << 62
"""An offset after the end of any text."""
_ENTER: Final = Mark()
_LEAVE: Final = Mark()


class _Comments(Struct, frozen=True):
    """The place of the unwritten comments that begin before an offset."""

    before: int


_Part = str | Mark | _Comments | tuple[Expression, int]

# ---------------------------------------------------------------- texts

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ESCAPED: Final = re.compile(r'[\\"\x00-\x1f\x7f\ud800-\udfff]')
_TRIPLE_ESCAPED: Final = re.compile(r'[\\\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]|"(?=""|\Z)')
_SHORT: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}
_TEMPLATE_ESCAPES: Final = str.maketrans({"`": "\\`", "{": "{{", "}": "}}"})


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return _SHORT.get(character) or f"\\u{ord(character):04x}"


def quoted(text: str, triple: bool = False) -> str:
    """Return a string literal, `"…"` or `\"""…\"""`, with no more escapes than it needs."""
    if triple:
        return f'"""{_TRIPLE_ESCAPED.sub(_escape, text)}"""'
    return f'"{_ESCAPED.sub(_escape, text)}"'


def template(node: tree.Template) -> str:
    shown = [
        part.translate(_TEMPLATE_ESCAPES) if isinstance(part, str) else f"{{{'.'.join(part.path)}}}"
        for part in node.parts
    ]
    return f"`{''.join(shown)}`"


# ---------------------------------------------------------------- expressions

# The precedence of an expression, lowest first.
_OR, _AND, _NOT, _COMPARE, _SUM, _POSTFIX = range(6)
_Operation = tree.Logical | tree.Compare | tree.Sum
_OPERATIONS: Final = (tree.Logical, tree.Compare, tree.Sum)


def _precedence(node: Expression) -> int:
    if isinstance(node, tree.Logical):
        return _OR if node.operator == "or" else _AND
    if isinstance(node, tree.Not):
        return _NOT
    if isinstance(node, tree.Compare):
        return _COMPARE
    return _SUM if isinstance(node, tree.Sum) else _POSTFIX


class Header:
    """The pieces of one logical line, with the comments inside it.

    Comments are identified by their index: `next` is the first one that is not written yet, `limit` the first one of
    the next line. Comments before `inside` must be inside the line, because another one follows at its end. A comment
    outside of all brackets sets `misplaced`: the line's value needs parentheses.
    """

    def __init__(
        self, source: str, comments: Sequence[Comment], next: int, limit: int, inside: int, *, wrap: bool
    ) -> None:
        self.pieces: list[Piece] = []
        self.next = next
        self.misplaced = False
        self._source = source
        self._comments = comments
        self._limit = limit
        self._inside = inside
        self._wrap = wrap
        self._depth = 0

    def put(self, parts: Iterable[_Part]) -> None:
        """Add `parts`, expanding expressions with an explicit stack instead of recursion."""
        agenda: list[_Part] = list(parts)
        agenda.reverse()
        while agenda:
            part = agenda.pop()
            if isinstance(part, tuple):
                node, at_least = part
                if _precedence(node) < at_least:
                    agenda += [")", _LEAVE, (node, _OR), _ENTER, "("]
                else:
                    self._add_comments(_start(node))
                    agenda.extend(reversed(_EXPANSIONS[type(node)](self, node)))
            elif isinstance(part, _Comments):
                self._add_comments(part.before)
            elif part is _ENTER:
                self._depth += 1
            elif part is _LEAVE:
                self._depth -= 1
            else:
                self.pieces.append(part)

    def _add_comments(self, before: int) -> None:
        """Add the unwritten comments that begin before an offset; outside of brackets only set `misplaced`."""
        last = self._inside if before == NEVER else self._limit
        while self.next < last and self._comments[self.next].span.start < before:
            if not self._depth:
                self.misplaced = True
                return
            self.pieces.append(self._comments[self.next])
            self.next += 1

    def value(self, node: Expression) -> None:
        """Add the only expression of a line; operations without a final bracket get parentheses that can be broken."""
        parts: list[_Part]
        if self._wrap or (isinstance(node, (*_OPERATIONS, tree.Not)) and not _ends_bracketed(node)):
            inner = self._chain(node) if isinstance(node, _OPERATIONS) else [(node, _OR)]
            parts = [GROUP, OPENING, _ENTER, _Comments(_start(node)), SOFT, *inner, _Comments(NEVER), DEDENT,
                     _LEAVE, CLOSING, END]  # fmt: skip
        elif isinstance(node, tree.Sum):
            parts = [(node.left, _SUM), f" {node.operator} ", (node.right, _POSTFIX)]
        else:
            parts = [(node, _OR)]
        self.put(parts)
        self.misplaced = self.misplaced or self.next < self._inside

    # ---- operators

    def _chain(self, node: _Operation) -> list[_Part]:
        """Return a chain of left-associative operations with the same precedence as one row of operands."""
        binds = _precedence(node)
        rights: list[tuple[str, Expression]] = []
        first: Expression = node
        while isinstance(first, _OPERATIONS) and _precedence(first) == binds:
            rights.append((first.operator, first.right))
            first = first.left
        parts: list[_Part] = [(first, binds + 1)]
        for operator, right in reversed(rights):
            parts += [_Comments(_start(right)), SPACE, f"{operator} ", (right, binds + 1)]
        return parts

    def visit_logical(self, node: _Operation) -> list[_Part]:
        return [GROUP, *self._chain(node), END]

    visit_compare = visit_sum = visit_logical

    def visit_not(self, node: tree.Not) -> list[_Part]:
        return ["not ", (node.value, _NOT)]

    # ---- brackets

    def bracketed(
        self,
        opening: str,
        elements: Sequence[tuple[int, Sequence[_Part]]],
        closing: str,
        end: int = NEVER,
        *,
        comma: bool = True,
        hug: bool = False,
    ) -> list[_Part]:
        """Return the parts of a bracket; each element has its start offset, `end` is the bracket's end offset."""
        parts: list[_Part] = [opening, _ENTER]
        if hug:
            (start, element), = elements  # fmt: skip
            return [*parts, _Comments(start), *element, _Comments(end), _LEAVE, closing]
        parts = [ELEMENTS if len(elements) > 1 else GROUP, *parts]
        for index, (start, element) in enumerate(elements):
            parts += [*([","] if index else []), _Comments(start), SPACE if index else SOFT, *element]
        parts += [*([COMMA] if elements and comma else []), _Comments(end), DEDENT, _LEAVE, closing, END]
        return parts

    def keywords(self, keywords: Iterable[Keyword]) -> list[tuple[int, Sequence[_Part]]]:
        return [(one.span.start, (f"{one.name}=", (one.value, _OR))) for one in keywords]

    def arguments(self, values: Iterable[Expression]) -> list[tuple[int, Sequence[_Part]]]:
        return [(_start(value), ((value, _OR),)) for value in values]

    def visit_list(self, node: tree.List) -> list[_Part]:
        return self.bracketed("[", self.arguments(node.elements), "]", node.span.end, hug=_hugs(node.elements))

    def visit_object(self, node: tree.Object) -> list[_Part]:
        pairs = [
            (pair.span.start, (f"{pair.key if _WORD.match(pair.key) else quoted(pair.key)}: ", (pair.value, _OR)))
            for pair in node.pairs
        ]
        return self.bracketed("{", pairs, "}", node.span.end)

    def visit_call(self, node: tree.Call) -> list[_Part]:
        callee = node.callee
        base: list[_Part] = [(callee, _POSTFIX)]
        if isinstance(callee, tree.AgentName | tree.InlineAgent) or (
            isinstance(callee, tree.Predicate) and callee.argument is None
        ) or (isinstance(callee, tree.Member) and callee.name == "with") or _is_reference(callee):  # fmt: skip
            base = ["(", _ENTER, *base, _LEAVE, ")"]
        return [*base, *self.called(node.arguments, node.keywords, node.span.end)]

    def called(self, arguments: Sequence[Expression], keywords: Sequence[Keyword], end: int) -> list[_Part]:
        elements = [*self.arguments(arguments), *self.keywords(keywords)]
        return self.bracketed("(", elements, ")", end, hug=not keywords and _hugs(arguments))

    # ---- other expressions

    def _receiver(self, node: Expression) -> list[_Part]:
        return ["(", _ENTER, (node, _OR), _LEAVE, ")"] if isinstance(node, tree.Number) else [(node, _POSTFIX)]

    def visit_member(self, node: tree.Member) -> list[_Part]:
        return [*self._receiver(node.value), _Comments(node.span.end - len(node.name)), f".{node.name}"]

    def visit_index(self, node: tree.Index) -> list[_Part]:
        elements = self.arguments([node.index])
        return [(node.value, _POSTFIX), *self.bracketed("[", elements, "]", node.span.end, comma=False)]

    def visit_with(self, node: tree.With) -> list[_Part]:
        elements = self.keywords(node.keywords)
        return [*self._receiver(node.agent), *self.bracketed(".with(", elements, ")", node.span.end)]

    def visit_inline_agent(self, node: tree.InlineAgent) -> list[_Part]:
        return self.bracketed("@{", self.keywords(node.keywords), "}", node.span.end)

    def visit_predicate(self, node: tree.Predicate) -> list[_Part]:
        shown = f"?{template(node.template)}"
        if node.argument is None:
            return [shown]
        elements = self.arguments([node.argument])
        hug = _hugs([node.argument])
        return [shown, *self.bracketed("(", elements, ")", node.span.end, comma=False, hug=hug)]

    def visit_agent_call(self, node: tree.AgentCall) -> list[_Part]:
        given = () if node.argument is None else (node.argument,)
        call = self.called(given, node.options, node.span.end)
        return [(node.agent, _POSTFIX), _Comments(node.template.span.start), f" {template(node.template)}", *call]

    def string(self, node: tree.String) -> str:
        """Return a string literal: triple-quoted if it has line breaks and was written so."""
        start = node.span.start
        written = not node.span.end or not self._source or self._source.startswith('"""', start)
        return quoted(node.value, "\n" in node.value and written)


def _start(node: Expression) -> int:
    return node.span.start


def _hugs(elements: Sequence[Expression]) -> bool:
    """Return whether a bracket's only element is bracketed itself, so that both brackets are broken as one."""
    return len(elements) == 1 and isinstance(elements[0], tree.List | tree.Object)


def _ends_bracketed(node: Expression) -> bool:
    """Return whether a sum such as `notes + [ … ]` can be broken inside its final bracket."""
    return (
        isinstance(node, tree.Sum)
        and isinstance(node.left, tree.Name | tree.String | tree.It | tree.Number)
        and isinstance(node.right, tree.List | tree.Object | tree.Call | tree.AgentCall)
    )


def _is_reference(node: Expression) -> bool:
    """Return whether the node is `@name` or `@{…}`, followed by any number of `.with(…)`."""
    while isinstance(node, tree.With):
        node = node.agent
    return isinstance(node, tree.AgentName | tree.InlineAgent)


_EXPANSIONS: Final[dict[type, Callable[[Header, Any], list[_Part]]]] = {
    **visitors(tree, vars(Header)),
    tree.Name: lambda header, node: [node.id],
    tree.Unit: lambda header, node: ["()"],
    tree.It: lambda header, node: ["it"],
    tree.Boolean: lambda header, node: ["true" if node.value else "false"],
    tree.Number: lambda header, node: [number(node.value)],
    tree.AgentName: lambda header, node: [f"@{node.id}"],
    tree.String: lambda header, node: [header.string(node)],
}
