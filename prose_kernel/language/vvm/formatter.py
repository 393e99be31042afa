"""The canonical form of a VVM program (docs/reference/vvm.md 14): what `prose fmt` prints.

Two spaces a level, one statement a line, at most 100 columns where a bracket can be broken; comments stay where they
are, and so do single blank lines. What is printed parses to an equal program, and printing it again changes nothing.

Three steps, none of which recurses, so that no program is nested too deeply and time grows with the text alone:
`_lines` flattens the tree into its logical lines; `_Header` turns one of them into pieces, with the comments inside of
its brackets; `_Layout` decides which brackets are broken. `_Writer` puts the lines and the other comments together.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.tree import Body, Comment, Expression, Keyword, Statement

_STEP: Final = 2
_WIDTH: Final = 100
_DEEPEST: Final = 60
"""Nothing inside of brackets is indented beyond this column: else deep nesting would cost the square of its depth."""
_NEVER: Final = 1 << 62


def format_program(program: tree.Program) -> str:
    """The canonical text of a program; "" for an empty one, else it ends with a line break. Never raises."""
    return _Writer(program).text()


# ---------------------------------------------------------------- pieces


class _Mark:
    """A piece that is no text: where a line may be broken, where a group of such places begins and ends."""

    __slots__ = ("broken", "flat")

    def __init__(self, flat: str = "", broken: str = "") -> None:
        self.flat, self.broken = flat, broken


_GROUP: Final = _Mark()
_ELEMENTS: Final = _Mark()  # a group that is broken when one of its parts has several lines
_END: Final = _Mark()
_SOFT: Final = _Mark()
_SPACE: Final = _Mark(" ")
_OUT: Final = _Mark()  # before a closing bracket
_COMMA: Final = _Mark("", ",")
_OPENING: Final = _Mark("", "(")
_CLOSING: Final = _Mark("", ")")
_DEEPER: Final = _Mark()
_HIGHER: Final = _Mark()
_BREAKS: Final = frozenset({_SOFT, _SPACE, _OUT})


@dataclass(frozen=True, slots=True)
class _Comments:
    """Here stand the comments that begin before an offset."""

    before: int


_Piece = str | _Mark | Comment
_Part = str | _Mark | _Comments | tuple[Expression, int]

# ---------------------------------------------------------------- texts and numbers

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ESCAPED: Final = re.compile(r'[\\"\x00-\x1f\x7f\ud800-\udfff]')
_TRIPLE_ESCAPED: Final = re.compile(r'[\\\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]|"(?=""|\Z)')
_SHORT: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}
_TEMPLATE_ESCAPES: Final = str.maketrans({"`": "\\`", "{": "{{", "}": "}}"})


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return _SHORT.get(character) or f"\\u{ord(character):04x}"


def quoted(text: str, triple: bool = False) -> str:
    """A string literal, `"…"` or `\"""…\"""`, with no more escapes than it needs."""
    if triple:
        return f'"""{_TRIPLE_ESCAPED.sub(_escape, text)}"""'
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _template(node: tree.Template) -> str:
    shown = [
        part.translate(_TEMPLATE_ESCAPES) if isinstance(part, str) else f"{{{'.'.join(part.path)}}}"
        for part in node.parts
    ]
    return f"`{''.join(shown)}`"


def _number(value: int | float) -> str:  # noqa: PYI041 - mypy takes `float` for a float alone here
    if isinstance(value, float):
        if value == float("inf"):
            return "1" + "0" * 309 + ".0"  # what a number of so many digits means
        shown = format(Decimal(repr(value)), "f")
        return shown if "." in shown or not shown.isdigit() else f"{shown}.0"
    return format(Decimal(value), "f")  # `str` refuses more than 4,300 digits


# ---------------------------------------------------------------- expressions

# How tightly an expression binds, loosest first.
_OR, _AND, _NOT, _COMPARE, _SUM, _POSTFIX = range(6)
_Operation = tree.Logical | tree.Compare | tree.Sum
_OPERATIONS: Final = (tree.Logical, tree.Compare, tree.Sum)


def _binds(node: Expression) -> int:
    if isinstance(node, tree.Logical):
        return _OR if node.operator == "or" else _AND
    if isinstance(node, tree.Not):
        return _NOT
    if isinstance(node, tree.Compare):
        return _COMPARE
    return _SUM if isinstance(node, tree.Sum) else _POSTFIX


class _Header:
    """The pieces of one logical line, with the comments that stand inside of it.

    `inside` is the index behind the last comment that must stand inside, because another one follows it on the line.
    When a comment is met outside of all brackets, `misplaced` tells that the line's value needs parentheses.
    """

    def __init__(self, writer: _Writer, limit: int, inside: int, wrap: bool) -> None:
        self.pieces: list[_Piece] = []
        self.next = writer.next
        self.misplaced = False
        self._source = writer.source
        self._comments = writer.comments
        self._limit = limit
        self._inside = inside
        self._wrap = wrap
        self._depth = 0

    def put(self, parts: Iterable[_Part]) -> None:
        """Add what `parts` stand for, expanding expressions; the agenda stands for recursion."""
        agenda: list[_Part] = list(parts)
        agenda.reverse()
        while agenda:
            part = agenda.pop()
            if isinstance(part, tuple):
                node, at_least = part
                if _binds(node) < at_least:
                    agenda += [")", _HIGHER, (node, _OR), _DEEPER, "("]
                else:
                    self._flush(_start(node))
                    agenda.extend(reversed(_EXPANSIONS[type(node)](self, node)))
            elif isinstance(part, _Comments):
                self._flush(part.before)
            elif part is _DEEPER:
                self._depth += 1
            elif part is _HIGHER:
                self._depth -= 1
            else:
                self.pieces.append(part)

    def _flush(self, before: int) -> None:
        last = self._inside if before == _NEVER else self._limit
        while self.next < last and self._comments[self.next].span.start < before:
            if not self._depth:
                self.misplaced = True
                return
            self.pieces.append(self._comments[self.next])
            self.next += 1

    def value(self, node: Expression) -> None:
        """The one expression of a line, in parentheses if it has to be broken and is not bracketed itself."""
        parts: list[_Part]
        if self._wrap or (isinstance(node, (*_OPERATIONS, tree.Not)) and not _ends_bracketed(node)):
            inner = self._chain(node) if isinstance(node, _OPERATIONS) else [(node, _OR)]
            parts = [_GROUP, _OPENING, _DEEPER, _Comments(_start(node)), _SOFT, *inner, _Comments(_NEVER), _OUT,
                     _HIGHER, _CLOSING, _END]  # fmt: skip
        elif isinstance(node, tree.Sum):
            parts = [(node.left, _SUM), f" {node.operator} ", (node.right, _POSTFIX)]
        else:
            parts = [(node, _OR)]
        self.put(parts)
        self.misplaced = self.misplaced or self.next < self._inside

    # ---- operators

    def _chain(self, node: _Operation) -> list[_Part]:
        """Operations of one precedence that lean to the left, as one row of operands."""
        binds = _binds(node)
        rights: list[tuple[str, Expression]] = []
        first: Expression = node
        while isinstance(first, _OPERATIONS) and _binds(first) == binds:
            rights.append((first.operator, first.right))
            first = first.left
        parts: list[_Part] = [(first, binds + 1)]
        for operator, right in reversed(rights):
            parts += [_Comments(_start(right)), _SPACE, f"{operator} ", (right, binds + 1)]
        return parts

    def _operation(self, node: _Operation) -> list[_Part]:
        return [_GROUP, *self._chain(node), _END]

    def _not(self, node: tree.Not) -> list[_Part]:
        return ["not ", (node.value, _NOT)]

    # ---- brackets

    def bracketed(
        self,
        opening: str,
        elements: Sequence[tuple[int, Sequence[_Part]]],
        closing: str,
        end: int = _NEVER,
        *,
        comma: bool = True,
        hug: bool = False,
    ) -> list[_Part]:
        """A bracket with elements, each with the offset where it begins; `end` is where the bracket ends."""
        parts: list[_Part] = [opening, _DEEPER]
        if hug:
            (start, element), = elements  # fmt: skip
            return [*parts, _Comments(start), *element, _Comments(end), _HIGHER, closing]
        parts = [_ELEMENTS if len(elements) > 1 else _GROUP, *parts]
        for index, (start, element) in enumerate(elements):
            parts += [*([","] if index else []), _Comments(start), _SPACE if index else _SOFT, *element]
        parts += [*([_COMMA] if elements and comma else []), _Comments(end), _OUT, _HIGHER, closing, _END]
        return parts

    def keywords(self, keywords: Iterable[Keyword]) -> list[tuple[int, Sequence[_Part]]]:
        return [(one.span.start, (f"{one.name}=", (one.value, _OR))) for one in keywords]

    def arguments(self, values: Iterable[Expression]) -> list[tuple[int, Sequence[_Part]]]:
        return [(_start(value), ((value, _OR),)) for value in values]

    def _list(self, node: tree.List) -> list[_Part]:
        return self.bracketed("[", self.arguments(node.elements), "]", node.span.end, hug=_hugs(node.elements))

    def _object(self, node: tree.Object) -> list[_Part]:
        pairs = [
            (
                pair.span.start,
                (
                    f"{pair.key if _WORD.match(pair.key) else quoted(pair.key)}: ",
                    (pair.value, _OR),
                ),
            )
            for pair in node.pairs
        ]
        return self.bracketed("{", pairs, "}", node.span.end)

    def _call(self, node: tree.Call) -> list[_Part]:
        callee = node.callee
        base: list[_Part] = [(callee, _POSTFIX)]
        if isinstance(callee, tree.AgentName | tree.InlineAgent) or (
            isinstance(callee, tree.Predicate) and callee.argument is None
        ) or (isinstance(callee, tree.Member) and callee.name == "with") or _is_reference(callee):  # fmt: skip
            base = ["(", _DEEPER, *base, _HIGHER, ")"]
        return [*base, *self.called(node.arguments, node.keywords, node.span.end)]

    def called(self, arguments: Sequence[Expression], keywords: Sequence[Keyword], end: int) -> list[_Part]:
        elements = [*self.arguments(arguments), *self.keywords(keywords)]
        return self.bracketed("(", elements, ")", end, hug=not keywords and _hugs(arguments))

    # ---- the rest

    def _base(self, node: Expression) -> list[_Part]:
        return ["(", _DEEPER, (node, _OR), _HIGHER, ")"] if isinstance(node, tree.Number) else [(node, _POSTFIX)]

    def _member(self, node: tree.Member) -> list[_Part]:
        return [*self._base(node.value), _Comments(node.span.end - len(node.name)), f".{node.name}"]

    def _index(self, node: tree.Index) -> list[_Part]:
        elements = self.arguments([node.index])
        return [(node.value, _POSTFIX), *self.bracketed("[", elements, "]", node.span.end, comma=False)]

    def _with(self, node: tree.With) -> list[_Part]:
        elements = self.keywords(node.keywords)
        return [*self._base(node.agent), *self.bracketed(".with(", elements, ")", node.span.end)]

    def _inline(self, node: tree.InlineAgent) -> list[_Part]:
        return self.bracketed("@{", self.keywords(node.keywords), "}", node.span.end)

    def _predicate(self, node: tree.Predicate) -> list[_Part]:
        shown = f"?{_template(node.template)}"
        if node.argument is None:
            return [shown]
        elements = self.arguments([node.argument])
        hug = _hugs([node.argument])
        return [shown, *self.bracketed("(", elements, ")", node.span.end, comma=False, hug=hug)]

    def _agent_call(self, node: tree.AgentCall) -> list[_Part]:
        given = () if node.argument is None else (node.argument,)
        call = self.called(given, node.options, node.span.end)
        return [(node.agent, _POSTFIX), _Comments(node.template.span.start), f" {_template(node.template)}", *call]

    def _string(self, node: tree.String) -> list[_Part]:
        return [self.string(node)]

    def string(self, node: tree.String) -> str:
        """Triple-quoted if it has line breaks and was written so."""
        start = node.span.start
        written = not node.span.end or not self._source or self._source.startswith('"""', start)
        return quoted(node.value, "\n" in node.value and written)


def _start(node: Expression) -> int:
    return node.span.start


def _hugs(elements: Sequence[Expression]) -> bool:
    """Whether a bracket's one element is bracketed itself, so that both brackets are broken as one."""
    return len(elements) == 1 and isinstance(elements[0], tree.List | tree.Object)


def _ends_bracketed(node: Expression) -> bool:
    """`notes + [ … ]`: what is too long is inside of the bracket."""
    return (
        isinstance(node, tree.Sum)
        and isinstance(node.left, tree.Name | tree.String | tree.It | tree.Number)
        and isinstance(node.right, tree.List | tree.Object | tree.Call | tree.AgentCall)
    )


def _is_reference(node: Expression) -> bool:
    """`@name` or `@{…}`, with any number of `.with(…)` behind it."""
    while isinstance(node, tree.With):
        node = node.agent
    return isinstance(node, tree.AgentName | tree.InlineAgent)


_EXPANSIONS: Final[dict[type, Callable[[_Header, Any], list[_Part]]]] = {
    tree.Name: lambda header, node: [node.id],
    tree.Unit: lambda header, node: ["()"],
    tree.It: lambda header, node: ["it"],
    tree.Boolean: lambda header, node: ["true" if node.value else "false"],
    tree.Number: lambda header, node: [_number(node.value)],
    tree.AgentName: lambda header, node: [f"@{node.id}"],
    tree.String: _Header._string,
    tree.List: _Header._list,
    tree.Object: _Header._object,
    tree.Not: _Header._not,
    tree.Logical: _Header._operation,
    tree.Compare: _Header._operation,
    tree.Sum: _Header._operation,
    tree.Member: _Header._member,
    tree.Index: _Header._index,
    tree.Call: _Header._call,
    tree.Predicate: _Header._predicate,
    tree.InlineAgent: _Header._inline,
    tree.With: _Header._with,
    tree.AgentCall: _Header._agent_call,
}


# ---------------------------------------------------------------- layout


class _Layout:
    """One logical line as text: its pieces are laid out from left to right, each group flat if it fits.

    A group fits when the text up to the next place after it that may be broken ends within the width. A text of several
    lines counts with its first line before it and with its last one behind it. Sums over all pieces are made once, so
    that each question costs the same however much a group holds.
    """

    def __init__(self, pieces: Sequence[_Piece], level: int) -> None:
        self._pieces = pieces
        self._indent = level * _STEP
        self._out: list[str] = []
        self._measure()

    def _measure(self) -> None:
        pieces = self._pieces
        size = len(pieces)
        self._width = width = [0] * (size + 1)  # of all flat texts before a piece
        self._comments = comments = [0] * (size + 1)  # how many stand before a piece
        self._tall = tall = [-1] * (size + 1)  # the last text of several lines before a piece
        self._ends = ends = [0] * size
        opened: list[int] = []
        for index, piece in enumerate(pieces):
            text = piece if isinstance(piece, str) else piece.flat if isinstance(piece, _Mark) else ""
            width[index + 1] = width[index] + len(text)
            comments[index + 1] = comments[index] + isinstance(piece, Comment)
            tall[index + 1] = index if "\n" in text else tall[index]
            if piece is _GROUP or piece is _ELEMENTS:
                opened.append(index)
            elif piece is _END:
                ends[opened.pop()] = index
        self._break = after = [size] * (size + 1)  # the first place from a piece on that may be broken
        self._next_tall = next_tall = [size] * (size + 1)
        for index in range(size - 1, -1, -1):
            piece = pieces[index]
            breaks = isinstance(piece, Comment) or piece in _BREAKS
            after[index] = index if breaks else after[index + 1]
            next_tall[index] = index if tall[index + 1] == index else next_tall[index + 1]

    def _first_line(self, index: int) -> int:
        piece = self._pieces[index]
        return piece.index("\n") if isinstance(piece, str) else 0

    def _last_line(self, index: int) -> int:
        piece = self._pieces[index]
        return len(piece) - piece.rindex("\n") - 1 if isinstance(piece, str) else 0

    def _reach(self, begin: int, end: int) -> int:
        """The width from one piece on, to the first line break after it or to where one may be put from `end` on."""
        tall = self._next_tall[begin]
        stop = self._break[end]
        if tall < stop:
            return self._width[tall] - self._width[begin] + self._first_line(tall)
        return self._width[stop] - self._width[begin]

    def _fits(self, begin: int, column: int) -> bool:
        end = self._ends[begin]
        if self._comments[end] > self._comments[begin]:
            return False
        last = self._tall[end]
        if last < begin:
            return column + self._reach(begin, end) <= _WIDTH
        if self._pieces[begin] is _ELEMENTS:
            return False
        behind = self._last_line(last) + self._reach(last + 1, max(last + 1, end))
        return column + self._reach(begin, end) <= _WIDTH and behind <= _WIDTH

    def text(self) -> str:
        out = self._out
        base = min(self._indent, _DEEPEST - _STEP)
        groups: list[tuple[bool, int, int]] = [(False, base, base)]  # broken, its own indentation, that of its end
        broken, inner, outer = groups[0]
        column, fresh = self._indent, -1  # `fresh`: the indentation of a line with nothing in it, or -1
        for index, piece in enumerate(self._pieces):
            if isinstance(piece, Comment):
                if fresh >= 0 or piece.alone:
                    self._break_line(fresh >= 0)
                    out.append(f"{' ' * inner}{_shown(piece)}")
                else:
                    self._strip()
                    out.append(f"  {_shown(piece)}")
                out.append("\n")
                fresh = inner
            elif piece is _GROUP or piece is _ELEMENTS:
                breaks = not self._fits(index, fresh if fresh >= 0 else column)
                groups.append((breaks, min(inner + _STEP, _DEEPEST) if breaks else inner, inner))
                broken, inner, outer = groups[-1]
            elif piece is _END:
                groups.pop()
                broken, inner, outer = groups[-1]
            elif broken and piece in _BREAKS:
                self._break_line(fresh >= 0)
                fresh = outer if piece is _OUT else inner
            else:
                text = piece if isinstance(piece, str) else (piece.broken if broken else piece.flat)
                if not text or (fresh >= 0 and text == " "):
                    continue
                if fresh >= 0:
                    text = text.lstrip(" ")
                    out.append(" " * fresh)
                    column, fresh = fresh, -1
                out.append(text)
                cut = text.rfind("\n")
                column = len(text) - cut - 1 if cut >= 0 else column + len(text)
        if fresh >= 0:
            out.pop()  # the line break behind a comment
        return "".join(out)

    def _break_line(self, fresh: bool) -> None:
        if not fresh:
            self._strip()
            self._out.append("\n")

    def _strip(self) -> None:
        if self._out:
            self._out[-1] = self._out[-1].rstrip(" ")


def _shown(comment: Comment) -> str:
    if comment.span.start == 0 and comment.text.startswith("!"):
        return f"#{comment.text}"  # the system reads a script's first line so
    return f"# {comment.text}".rstrip()


# ---------------------------------------------------------------- logical lines


_Write = Callable[[_Header], None]


@dataclass(slots=True)
class _Line:
    """A logical line: the level of its block, where it begins, what it consists of. `word` is that of a clause whose
    place the tree does not tell (`else`, `finally`), to be looked for from `start` on."""

    level: int
    start: int
    write: _Write
    node: object
    opens: bool = False
    clause: bool = False
    word: str = ""


def _lines(items: Body) -> Iterator[_Line]:
    """All logical lines of a program in order."""
    agenda: list[_Line | tuple[Iterator[Statement], int]] = [(iter(items), 0)]
    while agenda:
        entry = agenda.pop()
        if isinstance(entry, _Line):
            yield entry
            continue
        body, level = entry
        statement = next(body, None)
        if statement is not None:
            agenda += [(body, level), *reversed(_parts(statement, level))]


def _parts(node: Statement, level: int) -> list[_Line | tuple[Iterator[Statement], int]]:
    """The logical lines of a statement, and bodies between them."""
    start, inner = node.span.start, level + 1

    def opening(write: _Write, at: int, deep: int = level, clause: bool = False, word: str = "") -> _Line:
        return _Line(deep, at, write, node, opens=True, clause=clause, word=word)

    found: list[_Line | tuple[Iterator[Statement], int]] = []
    match node:
        case tree.If():
            end = start
            for index, arm in enumerate(node.arms):
                begins = arm.span.start if index else start
                found += [opening(_valued("elif " if index else "if ", arm.condition), begins, clause=index > 0),
                          (iter(arm.body), inner)]  # fmt: skip
                end = _end(arm.body, arm.condition.span.end)
            if node.otherwise is not None:
                found += [opening(_fixed("else:"), end, clause=True, word="else"), (iter(node.otherwise), inner)]
        case tree.Try():
            found += [opening(_fixed("try:"), start), (iter(node.body), inner)]
            end = _end(node.body, start + len("try"))
            if node.handler is not None:
                handler = node.handler
                write = _fixed(f"except as {handler.target.id}:")
                found += [opening(write, handler.span.start, clause=True), (iter(handler.body), inner)]
                end = _end(handler.body, handler.target.span.end)
            if node.final is not None:
                found += [opening(_fixed("finally:"), end, clause=True, word="finally"), (iter(node.final), inner)]
        case tree.Match():
            found.append(opening(_valued("match ", node.value), start))
            for case in node.cases:
                found += [opening(_case(case.pattern), case.span.start, inner), (iter(case.body), inner + 1)]
        case tree.Choose():
            found.append(opening(_choose(node), start))
            for option in node.options:
                found += [opening(_option(option), option.span.start, inner), (iter(option.body), inner + 1)]
        case tree.Constrain():
            found.append(opening(_constrain(node), start))
            for one in node.requirements:
                found.append(_Line(inner, one.span.start, _fixed(f"require ?{_template(one.criterion)}"), one))
        case tree.While():
            found += [opening(_valued("while ", node.condition), start), (iter(node.body), inner)]
        case tree.For():
            found += [opening(_valued(f"for {node.target.id} in ", node.items), start), (iter(node.body), inner)]
        case tree.WithInput():
            found += [opening(_valued("with input ", node.value), start), (iter(node.body), inner)]
        case tree.Def():
            found += [opening(_def(node), start), (iter(node.body), inner)]
        case _:
            found.append(_Line(level, start, _simple(node), node))
    return found


def _end(body: Body, otherwise: int) -> int:
    return body[-1].span.end if body else otherwise


def _fixed(text: str) -> _Write:
    return lambda header: header.put([text])


def _valued(before: str, value: Expression, after: str = ":") -> _Write:
    def write(header: _Header) -> None:
        header.put([before])
        header.value(value)
        header.put([after])

    return write


def _choose(node: tree.Choose) -> _Write:
    return _valued("choose ", node.value, f" by ?{_template(node.criterion)} as {node.target.id}:")


def _option(node: tree.Option) -> _Write:
    return lambda header: header.put(["option ", header.string(node.label), ":"])


def _constrain(node: tree.Constrain) -> _Write:
    def write(header: _Header) -> None:
        bounds = header.bracketed("(", header.keywords(node.bounds), ")")
        header.put([f"constrain {node.target.id}", *bounds, ":"])

    return write


def _def(node: tree.Def) -> _Write:
    def write(header: _Header) -> None:
        names = [(name.span.start, (name.id,)) for name in node.parameters]
        header.put([f"def {node.name.id}", *header.bracketed("(", names, ")"), ":"])

    return write


def _case(pattern: tree.Pattern) -> _Write:
    if isinstance(pattern, tree.AnyPattern):
        return _fixed("case _:")
    if isinstance(pattern, tree.CriterionPattern):
        return _fixed(f"case ?{_template(pattern.template)}:")
    shown = pattern.name.id if pattern.name else "_" if pattern.kind is None else f"kind={quoted(pattern.kind)}"

    def write(header: _Header) -> None:
        inside = header.bracketed("error(", [(0, (shown,))], ")", pattern.span.end, comma=False)
        header.put(["case ", *inside, ":"])

    return write


def _simple(node: Statement) -> _Write:
    match node:
        case tree.Assign():
            return _valued(f"{node.target.id} = ", node.value, "")
        case tree.ExpressionStatement():
            return _valued("", node.value, "")
        case tree.Return(value=None):
            return _fixed("return")
        case tree.Return(value=value) if value is not None:
            return _valued("return ", value, "")
        case tree.Raise(message=None):
            return _fixed("raise")
        case tree.Raise(message=message) if message is not None:
            return lambda header: header.put([f"raise {header.string(message)}"])
        case tree.SkillImport():
            return lambda header: header.put([f"import {header.string(node.name)} from {header.string(node.source)}"])
        case tree.ModuleImport():
            name = f"{'@' * node.agent}{node.name.id}" + (f" as {node.alias.id}" if node.alias else "")
            return lambda header: header.put([f"from {header.string(node.path)} import {name}"])
        case tree.Export():
            return _fixed(f"export {'@' * node.agent}{node.name.id}")
        case tree.ExportPack():
            return lambda header: header.put(
                ["export pack", *header.called(node.arguments, node.keywords, node.span.end)]
            )
        case tree.AgentDeclaration():
            return lambda header: header.put(
                [f"agent {node.name.id}", *header.bracketed("(", header.keywords(node.keywords), ")", node.span.end)]
            )
    return _fixed(type(node).__name__.lower())  # pass, break, continue


# ---------------------------------------------------------------- the text


class _Writer:
    """Puts lines and comments together: which comment stands on which line, in which block; where lines are blank."""

    def __init__(self, program: tree.Program) -> None:
        self.source = program.text
        self.comments = program.comments
        self.next = 0  # the first comment that has not been written yet
        self._starts = [comment.span.start for comment in program.comments]
        self._lines = list(_lines(program.items))
        self._out: list[str] = []
        self._opened = True  # nothing stands in the block yet
        self._columns = [0]  # of the statements of each open block
        self._level = 0  # of the block that comments may stand in
        self._functions: list[int] = []  # the levels of the functions that are open
        self._agent = False  # whether the line before declares an agent
        self._tall = False  # whether it has several lines
        for index, line in enumerate(self._lines):
            if line.word:
                line.start = self._find(line.word, line.start)
            elif index and not self.source:
                line.start = max(line.start, self._lines[index - 1].start)

    def text(self) -> str:
        previous: _Line | None = None
        for index, line in enumerate(self._lines):
            above = self._above(line.start)
            after = self._lines[index + 1].start if index + 1 < len(self._lines) else _NEVER
            text = self._line(line, bisect_right(self._starts, after - 1))
            self._gap(above, previous, line, "\n" in text)
            self._put(line.level, text, opens=line.opens)
            self._enter(line, "\n" in text)
            previous = line
        self._gap(self._above(_NEVER), previous, None, tall=False)
        return "".join(f"{line}\n" for line in self._out)

    def _above(self, offset: int) -> Sequence[Comment]:
        """The comments before an offset that have not been written yet."""
        begin, self.next = self.next, max(self.next, bisect_right(self._starts, offset - 1))
        return self.comments[begin : self.next]

    def _find(self, word: str, begin: int) -> int:
        """Where a word of a clause is: the first one from an offset on that is in no comment."""
        while (found := self.source.find(word, begin)) >= 0:
            at = bisect_right(self._starts, found) - 1
            if at < 0 or self.comments[at].span.end <= found:
                return found
            begin = self.comments[at].span.end
        return begin

    # ---- one line

    def _line(self, line: _Line, limit: int) -> str:
        """A line with the comments in it and the one behind it; `limit` is the index of the next line's first."""
        beside = [index for index in range(self.next, limit) if not self.comments[index].alone]
        inside = beside[-1] if beside else self.next
        header = _Header(self, limit, inside, wrap=False)
        line.write(header)
        if header.misplaced:
            header = _Header(self, limit, inside, wrap=True)
            line.write(header)
        self.next = header.next
        text = _Layout(header.pieces, line.level).text()
        if self.next < limit and not self.comments[self.next].alone:
            text += f"  {_shown(self.comments[self.next])}"
            self.next += 1
        return text

    def _enter(self, line: _Line, tall: bool) -> None:
        """What the next line has to know of this one."""
        self._agent = isinstance(line.node, tree.AgentDeclaration)
        self._tall = tall
        if isinstance(line.node, tree.Def):
            self._functions.append(line.level)
        column = self._column(line.start)
        self._columns[line.level :] = [column, column + 1] if line.opens else [column]

    def _put(self, level: int, text: str, *, opens: bool = False) -> None:
        self._out.append(" " * (level * _STEP) + text)
        self._opened = opens

    def _blank(self) -> None:
        """A blank line, but not at the beginning of a block and never two."""
        if not self._opened:
            self._out.append("")
            self._opened = True

    # ---- between two lines

    def _gap(self, above: Sequence[Comment], before: _Line | None, after: _Line | None, tall: bool) -> None:
        """Write the comments and blank lines between two lines; `tall` tells that the second one has several rows."""
        rows = self._levels(above, before, after)
        if before and before.opens and not (after and after.level > before.level) and not (
            rows and rows[0][0] > before.level
        ):  # fmt: skip
            self._put(before.level + 1, "pass")  # no text says this: a body holds a comment at least
        separate = self._separate(after, tall)
        blank = after is not None and not after.clause and self._blank_before(after.start)
        leading = len(rows)  # the first of the comments that belong to the line: a blank line stands before them
        apart = blank
        while after and leading and not apart and rows[leading - 1][0] == after.level:
            leading -= 1
            apart = rows[leading][2]
        for index, (level, comment, spaced) in enumerate(rows):
            if spaced or (separate and index == leading):
                self._blank()
            self._put(level, _shown(comment))
        if blank or (separate and leading == len(rows)):
            self._blank()

    def _levels(
        self, above: Sequence[Comment], before: _Line | None, after: _Line | None
    ) -> list[tuple[int, Comment, bool]]:
        """The comments between two lines, each with the level of the block that its column shows, and whether a blank
        line stands before it."""
        lowest = after.level if after else 0
        level = before.level + before.opens if before else 0
        rows = []
        for comment in above:
            column = self._column(comment.span.start)
            while self.source and level > lowest and column < self._columns[level]:
                level -= 1
            rows.append((level, comment, self._blank_before(comment.span.start)))
        return rows

    def _separate(self, after: _Line | None, tall: bool) -> bool:
        """Whether a blank line belongs before a line: functions stand apart, and agents but for rows of short ones."""
        closed = False
        while self._functions and (after is None or self._functions[-1] >= after.level):
            self._functions.pop()
            closed = True
        if after is None or after.clause:
            return False
        if isinstance(after.node, tree.AgentDeclaration):
            return closed or not self._agent or self._tall or tall
        return closed or self._agent or isinstance(after.node, tree.Def)

    # ---- the text that was read

    def _line_start(self, offset: int) -> int:
        return self.source.rfind("\n", 0, max(offset, 0)) + 1

    def _column(self, offset: int) -> int:
        return offset - self._line_start(offset) if self.source else 0

    def _blank_before(self, offset: int) -> bool:
        """Whether the line before that of an offset is blank."""
        end = self._line_start(offset) - 1
        return end >= 0 and not self.source[self.source.rfind("\n", 0, end) + 1 : end].strip()
