"""Writes the canonical form of a VVM program (docs/reference/vvm.md 14), as `prose fmt` prints it.

Two spaces per level, one statement per line, at most 100 columns if brackets can be broken; comments and single blank
lines stay where they are. The output parses to an equal program, and formatting it again changes nothing.

There are three steps, none of which recurses, so that nesting has no limit and the time is linear in the length of the
text: `_lines` flattens the tree into logical lines; `line_pieces.Header` turns each of them into pieces, with the
comments inside its brackets; `layout.Layout` decides which brackets are broken. `_Writer` combines lines and comments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.layout import STEP, Layout, comment_text
from prose_kernel.language.vvm.line_pieces import NEVER, Header, quoted, template
from prose_kernel.language.vvm.tree import Body, Comment, Expression, Statement


def format_program(program: tree.Program) -> str:
    """Return the canonical text of a program, with a final line break; "" for an empty one. Never raises."""
    return _Writer(program).text()


# ---------------------------------------------------------------- logical lines


_LineWriter = Callable[[Header], None]


class _Line(Struct):
    """A logical line: the level of its block, the offset of its start, the function that writes it. `word` is the
    keyword of a clause whose offset is not in the tree (`else`, `finally`); it is searched from `start` on."""

    level: int
    start: int
    write: _LineWriter
    node: object
    opens: bool = False
    clause: bool = False
    word: str = ""


def _lines(items: Body) -> Iterator[_Line]:
    """Yield all logical lines of a program in order."""
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
    """Return the logical lines of a statement, with the bodies between them."""
    start, inner = node.span.start, level + 1

    def opening(write: _LineWriter, at: int, deep: int = level, clause: bool = False, word: str = "") -> _Line:
        return _Line(deep, at, write, node, opens=True, clause=clause, word=word)

    found: list[_Line | tuple[Iterator[Statement], int]] = []
    match node:
        case tree.If():
            end = start
            for index, arm in enumerate(node.arms):
                begins = arm.span.start if index else start
                found += [opening(_with_value("elif " if index else "if ", arm.condition), begins, clause=index > 0),
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
            found.append(opening(_with_value("match ", node.value), start))
            for case in node.cases:
                found += [opening(_case(case.pattern), case.span.start, inner), (iter(case.body), inner + 1)]
        case tree.Choose():
            after = f" by ?{template(node.criterion)} as {node.target.id}:"
            found.append(opening(_with_value("choose ", node.value, after), start))
            for option in node.options:
                found += [opening(_option(option), option.span.start, inner), (iter(option.body), inner + 1)]
        case tree.Constrain():
            found.append(opening(_constrain(node), start))
            for one in node.requirements:
                found.append(_Line(inner, one.span.start, _fixed(f"require ?{template(one.criterion)}"), one))
        case tree.While():
            found += [opening(_with_value("while ", node.condition), start), (iter(node.body), inner)]
        case tree.For():
            found += [opening(_with_value(f"for {node.target.id} in ", node.items), start), (iter(node.body), inner)]
        case tree.WithInput():
            found += [opening(_with_value("with input ", node.value), start), (iter(node.body), inner)]
        case tree.Def():
            found += [opening(_def(node), start), (iter(node.body), inner)]
        case _:
            found.append(_Line(level, start, _simple(node), node))
    return found


def _end(body: Body, otherwise: int) -> int:
    return body[-1].span.end if body else otherwise


def _fixed(text: str) -> _LineWriter:
    return lambda header: header.put([text])


def _with_value(before: str, value: Expression, after: str = ":") -> _LineWriter:
    def write(header: Header) -> None:
        header.put([before])
        header.value(value)
        header.put([after])

    return write


def _option(node: tree.Option) -> _LineWriter:
    return lambda header: header.put(["option ", header.string(node.label), ":"])


def _constrain(node: tree.Constrain) -> _LineWriter:
    head = f"constrain {node.target.id}"
    return lambda header: header.put([head, *header.bracketed("(", header.keywords(node.bounds), ")"), ":"])


def _def(node: tree.Def) -> _LineWriter:
    names = [(name.span.start, (name.id,)) for name in node.parameters]
    return lambda header: header.put([f"def {node.name.id}", *header.bracketed("(", names, ")"), ":"])


def _case(pattern: tree.Pattern) -> _LineWriter:
    if isinstance(pattern, tree.AnyPattern):
        return _fixed("case _:")
    if isinstance(pattern, tree.CriterionPattern):
        return _fixed(f"case ?{template(pattern.template)}:")
    assert isinstance(pattern, tree.ErrorPattern)
    shown = pattern.name.id if pattern.name else "_" if pattern.kind is None else f"kind={quoted(pattern.kind)}"
    parts, end = [(0, (shown,))], pattern.span.end
    return lambda header: header.put(["case ", *header.bracketed("error(", parts, ")", end, comma=False), ":"])


def _simple(node: Statement) -> _LineWriter:
    match node:
        case tree.Assign():
            return _with_value(f"{node.target.id} = ", node.value, "")
        case tree.ExpressionStatement():
            return _with_value("", node.value, "")
        case tree.Return(value=value) if value is not None:
            return _with_value("return ", value, "")
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
            return lambda it: it.put(["export pack", *it.called(node.arguments, node.keywords, node.span.end)])
        case tree.AgentDeclaration():
            head, end = f"agent {node.name.id}", node.span.end
            return lambda it: it.put([head, *it.bracketed("(", it.keywords(node.keywords), ")", end)])
    return _fixed(type(node).__name__.lower())  # pass, break, continue; return and raise without a value


# ---------------------------------------------------------------- the text


class _Writer:
    """Writes lines and comments; decides the line and block of each comment, and the places of blank lines."""

    def __init__(self, program: tree.Program) -> None:
        self.source = program.text
        self.comments = program.comments
        self.next = 0  # the first comment that has not been written yet
        self._starts = [comment.span.start for comment in program.comments]
        self._lines = list(_lines(program.items))
        self._out: list[str] = []
        self._skip_blank = True  # at the start of a block, or after a blank line
        self._columns = [0]  # of the statements of each open block
        self._function_levels: list[int] = []  # the levels of the functions that are open
        self._after_agent = False  # whether the previous line declares an agent
        self._after_tall = False  # whether the previous line has several rows
        for index, line in enumerate(self._lines):
            if line.word:
                line.start = self._find(line.word, line.start)
            elif index and not self.source:
                line.start = max(line.start, self._lines[index - 1].start)

    def text(self) -> str:
        previous: _Line | None = None
        for index, line in enumerate(self._lines):
            above = self._take_comments(line.start)
            after = self._lines[index + 1].start if index + 1 < len(self._lines) else NEVER
            text = self._line(line, bisect_right(self._starts, after - 1))
            self._write_gap(above, previous, line, "\n" in text)
            self._put(line.level, text, opens=line.opens)
            self._remember(line, "\n" in text)
            previous = line
        self._write_gap(self._take_comments(NEVER), previous, None, tall=False)
        return "".join(f"{line}\n" for line in self._out)

    def _take_comments(self, offset: int) -> Sequence[Comment]:
        """Return the comments before an offset that have not been written yet."""
        begin, self.next = self.next, max(self.next, bisect_right(self._starts, offset - 1))
        return self.comments[begin : self.next]

    def _find(self, word: str, begin: int) -> int:
        """Return the offset of a clause's word: the first occurrence after `begin` outside of comments."""
        while (found := self.source.find(word, begin)) >= 0:
            at = bisect_right(self._starts, found) - 1
            if at < 0 or self.comments[at].span.end <= found:
                return found
            begin = self.comments[at].span.end
        return begin

    # ---- one line

    def _line(self, line: _Line, limit: int) -> str:
        """Return a line with the comments in it and after it; `limit` is the index of the next line's first comment."""
        trailing = [index for index in range(self.next, limit) if not self.comments[index].alone]
        inside = trailing[-1] if trailing else self.next
        for wrap in (False, True):
            header = Header(self.source, self.comments, self.next, limit, inside, wrap=wrap)
            line.write(header)
            if not header.misplaced:
                break
        self.next = header.next
        text = Layout(header.pieces, line.level).text()
        if self.next < limit and not self.comments[self.next].alone:
            text += f"  {comment_text(self.comments[self.next])}"
            self.next += 1
        return text

    def _remember(self, line: _Line, tall: bool) -> None:
        """Record the facts about a written line that the next line needs."""
        self._after_agent = isinstance(line.node, tree.AgentDeclaration)
        self._after_tall = tall
        if isinstance(line.node, tree.Def):
            self._function_levels.append(line.level)
        column = self._column(line.start)
        self._columns[line.level :] = [column, column + 1] if line.opens else [column]

    def _put(self, level: int, text: str, *, opens: bool = False) -> None:
        self._out.append(" " * (level * STEP) + text)
        self._skip_blank = opens

    def _blank(self) -> None:
        """Write a blank line, except at the beginning of a block or after another blank line."""
        if not self._skip_blank:
            self._out.append("")
            self._skip_blank = True

    # ---- between two lines

    def _write_gap(self, above: Sequence[Comment], before: _Line | None, after: _Line | None, tall: bool) -> None:
        """Write the comments and blank lines between two lines; `tall`: the second one has several rows."""
        rows = self._levels(above, before, after)
        if before and before.opens and not (after and after.level > before.level) and not (
            rows and rows[0][0] > before.level
        ):  # fmt: skip
            self._put(before.level + 1, "pass")  # only for a tree without a text: a body that was read has a comment
        separate = self._needs_blank(after, tall)
        blank = after is not None and not after.clause and self._blank_before(after.start)
        leading = len(rows)  # the first of the comments that belong to the line: a blank line precedes them
        apart = blank
        while after and leading and not apart and rows[leading - 1][0] == after.level:
            leading -= 1
            apart = rows[leading][2]
        for index, (level, comment, spaced) in enumerate(rows):
            if spaced or (separate and index == leading):
                self._blank()
            self._put(level, comment_text(comment))
        if blank or (separate and leading == len(rows)):
            self._blank()

    def _levels(
        self, above: Sequence[Comment], before: _Line | None, after: _Line | None
    ) -> list[tuple[int, Comment, bool]]:
        """Return the comments between two lines, each with the level of the block that its column indicates, and
        whether a blank line precedes it."""
        lowest = after.level if after else 0
        level = before.level + before.opens if before else 0
        rows = []
        for comment in above:
            column = self._column(comment.span.start)
            while self.source and level > lowest and column < self._columns[level]:
                level -= 1
            rows.append((level, comment, self._blank_before(comment.span.start)))
        return rows

    def _needs_blank(self, after: _Line | None, tall: bool) -> bool:
        """Return whether a line needs a blank line before it: around functions and agents, not between short agents."""
        closed = False
        while self._function_levels and (after is None or self._function_levels[-1] >= after.level):
            self._function_levels.pop()
            closed = True
        if after is None or after.clause:
            return False
        if isinstance(after.node, tree.AgentDeclaration):
            return closed or not self._after_agent or self._after_tall or tall
        return closed or self._after_agent or isinstance(after.node, tree.Def)

    # ---- the original text

    def _line_start(self, offset: int) -> int:
        return self.source.rfind("\n", 0, max(offset, 0)) + 1

    def _column(self, offset: int) -> int:
        return offset - self._line_start(offset) if self.source else 0

    def _blank_before(self, offset: int) -> bool:
        """Return whether the line above an offset is blank."""
        end = self._line_start(offset) - 1
        return end >= 0 and not self.source[self.source.rfind("\n", 0, end) + 1 : end].strip()
