"""Parses expressions (docs/reference/vvm.md 2): precedence climbing with an explicit stack.

The stack holds operators without their right operand, and open brackets, whose precedence is 0. So neither deep
brackets nor long chains of operators need Python's stack. The loop reads an operand, then everything that may follow
it; after an operator or an opening bracket it reads the next operand.
"""

from __future__ import annotations

from typing import Any, Final

from prose_kernel.language.python_literals import read_number
from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.lexer import (
    KINDS,
    LINE_STARTS,
    NUMBER,
    STRING,
    WORD,
    BadEscape,
    is_closed,
    template,
    unescape,
)
from prose_kernel.language.vvm.names import RESERVED
from prose_kernel.language.vvm.parser_state import (
    AGENT_CALL,
    ARGUMENT,
    CALL,
    GROUP,
    INDEX,
    INLINE,
    LIST,
    OBJECT,
    ONE_VALUE,
    WITH,
    WITH_KEYWORDS,
    Bracket,
    Entry,
)
from prose_kernel.language.vvm.syntax_errors import SKIP, SyntaxErrors
from prose_kernel.language.vvm.tree import Expression, Keyword, Name, Template

_FOLLOWING: Final = frozenset("(.[")
_EQUALS: Final = frozenset("=:")  # `:` is a mistake
_MAX_PLAIN_DIGITS: Final = 20  # digits of a number that is read without any checks
_EMPTY_OR_LONG: Final = ("", '"')  # the second character of empty and triple-quoted strings
_NOT: Final = 3
_OPERATORS: Final = {
    "or": 1, "and": 2, "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "+": 5, "-": 5,
}  # fmt: skip
_CONSTANTS: Final = {"true": True, "false": False}


class ExpressionParser(SyntaxErrors):
    """Parses expressions; `end` is the offset after the last one."""

    def expression(self, opened: Bracket | None = None) -> Any:
        """Return the expression that begins at the next token.

        With `opened`, a bracket of keywords whose opening token was read, read up to its end and return its keywords.
        """
        texts, starts = self.texts, self.starts
        kind_of, precedence_of = KINDS.get, _OPERATORS.get
        make_name: Any = Name  # created directly, which is faster than `at`
        make_string: Any = tree.String
        make_number: Any = tree.Number
        at = self.at
        value: Any
        bracket: Bracket | None
        stack: list[Entry] = []
        self.stack = stack
        depth = 0  # of open brackets
        entered = closed = None  # the bracket whose next item, or whose closing token, comes next
        limit = self.bracket_limit()
        if opened is not None:
            stack.append((0, opened))
            depth = 1
            entered = opened
        while True:
            # ---- an operand
            if depth > limit:
                raise self.too_deep(stack[-1][1].at)
            if entered is not None:
                at = self._item(entered, at)
                if texts[at] == entered.closer:
                    closed = entered
                entered = None
            if closed is None:
                text = texts[at]
                kind = kind_of(text[0])
                if kind == WORD and text not in RESERVED:
                    start = starts[at]
                    end = start + len(text)
                    value = make_name(text, span=(start, end))
                    at += 1
                elif kind == STRING:
                    start = starts[at]
                    end = start + len(text)
                    odd = text[-1] != '"' or text[1:2] in _EMPTY_OR_LONG or "\\" in text
                    value = make_string(self.string(at) if odd else text[1:-1], span=(start, end))
                    at += 1
                elif kind == NUMBER and text.isdigit() and len(text) < _MAX_PLAIN_DIGITS:
                    start = starts[at]
                    end = start + len(text)
                    value = make_number(int(text), span=(start, end))
                    at += 1
                elif text == "not" and not (stack and stack[-1][0] > _NOT):
                    stack.append((_NOT, text, None, starts[at]))
                    at += 1
                    if depth and texts[at][0] in LINE_STARTS:
                        at += 1
                    continue
                else:
                    bracket = self._open(at)
                    if bracket is None:
                        value, start, end, bracket = self._operand(at, depth)
                        at = self.at
                        if value is SKIP:
                            continue
                    else:
                        at += 1
                    if bracket is not None:
                        stack.append((0, bracket))
                        depth += 1
                        entered = bracket
                        continue
            # ---- tokens that continue it
            while True:
                if closed is not None:
                    stack.pop()
                    depth -= 1
                    start, end = closed.start, starts[at] + 1
                    at += 1
                    if closed is opened:
                        self.at = at
                        self.end = end
                        return tuple(closed.keywords)
                    value = _bracket_node(closed, end)
                    if closed.is_agent:
                        self.at = at
                        value, end, entered = self._agent_tail(value, end, depth)
                        at = self.at
                    closed = None
                    if entered is not None:
                        stack.append((0, entered))
                        depth += 1
                        break
                text = texts[at]
                precedence = precedence_of(text)
                if precedence is not None:
                    while stack and stack[-1][0] >= precedence:
                        value, start = _operation(stack.pop(), value, end)
                    stack.append((precedence, text, value, start))
                    at += 1
                    if depth and texts[at][0] in LINE_STARTS:
                        at += 1
                    break
                if text in _FOLLOWING:
                    if text == ".":
                        self.at = at
                        value, end, entered = self._member(value, start, depth)
                        at = self.at
                        if entered is None:
                            continue
                    else:
                        entered = Bracket(CALL if text == "(" else INDEX, at, start, value)
                        at += 1
                    stack.append((0, entered))
                    depth += 1
                    break
                if depth and text[0] in LINE_STARTS:
                    at += 1
                    continue
                # ---- the token after it
                while stack and stack[-1][0]:
                    value, start = _operation(stack.pop(), value, end)
                if not stack:
                    self.at = at
                    self.end = end
                    return value
                bracket = stack[-1][1]
                self._add(bracket, value, end)
                if text == bracket.closer:
                    closed = bracket
                elif text == "," and bracket.tag not in ONE_VALUE:
                    at += 1
                    entered = bracket
                    break
                else:
                    raise self.in_bracket(at, bracket)

    # ---- operands

    def _open(self, at: int) -> Bracket | None:
        """Return the bracket that the token at `at` opens as an operand; None for another token, and for `()`."""
        text = self.texts[at]
        if text == "[":
            return Bracket(LIST, at, self.starts[at])
        if text == "{":
            return Bracket(OBJECT, at, self.starts[at])
        if text == "(" and self.texts[self.after_line_ends(at + 1)] != ")":
            return Bracket(GROUP, at, self.starts[at])
        return None

    def _operand(self, at: int, depth: int) -> tuple[Any, int, int, Bracket | None]:
        """Return the operand at `at`, its start and its end, and None; or None, and the bracket that it opens."""
        text = self.texts[at]
        start = self.starts[at]
        end = start + len(text)
        self.at = at + 1
        if KINDS.get(text[0]) == NUMBER:
            return tree.Number.at(start, end, self.number(at)), start, end, None
        if text == "it":
            return tree.It.at(start, end), start, end, None
        if text in _CONSTANTS:
            return tree.Boolean.at(start, end, _CONSTANTS[text]), start, end, None
        if text == "(":
            self.at = self.after_line_ends(at + 1) + 1
            end = self.starts[self.at - 1] + 1
            return tree.Unit.at(start, end), start, end, None
        if text == "?":
            return self._predicate(start, depth)
        if text == "@":
            return self._agent(start, depth)
        if depth and text[0] in LINE_STARTS:
            return self._operand(at + 1, depth)
        return (*self.bad_operand(at), None)

    def after_line_ends(self, at: int) -> int:
        """Return `at`, or the next index if the token at `at` is a line end (which brackets may contain)."""
        return at + 1 if self.texts[at][0] in LINE_STARTS else at

    def _predicate(self, start: int, depth: int) -> tuple[Any, int, int, Bracket | None]:
        if depth:
            self.at = self.after_line_ends(self.at)
        task, end = self.criterion_text(self.at)
        opening = self.after_line_ends(self.at) if depth else self.at
        if self.texts[opening] != "(":
            return tree.Predicate.at(start, end, task, None), start, end, None
        self.at = opening + 1
        return None, start, end, Bracket(ARGUMENT, opening, start, None, task)

    def _agent(self, start: int, depth: int) -> tuple[Any, int, int, Bracket | None]:
        at = self.after_line_ends(self.at) if depth else self.at
        text = self.texts[at]
        self.at = at + 1
        if text == "{":
            return None, start, start, Bracket(INLINE, at, start)
        if KINDS.get(text[0]) != WORD:
            raise self.unexpected(at, "the name of an agent after `@`")
        end = self.starts[at] + len(text)
        value, end, bracket = self._agent_tail(tree.AgentName.at(start, end, text), end, depth)
        return value, start, end, bracket

    def _agent_tail(self, agent: Any, end: int, depth: int) -> tuple[Any, int, Bracket | None]:
        """Read the tokens after a reference to an agent: `.with(`, or a task and its `(`."""
        start = agent.span.start
        at = self.after_line_ends(self.at) if depth else self.at
        text = self.texts[at]
        if text == "." and (opening := self._with_bracket(at, depth)):
            self.at = opening + 1
            bracket = Bracket(WITH, opening, start, agent)
            bracket.is_agent = True
            return agent, end, bracket
        if text[0] == "`":
            task = self.template(at)
            opening = self.after_line_ends(at + 1) if depth else at + 1
            if self.texts[opening] != "(":
                end = task.span.end
                self.missing_parentheses(end, opening)
                self.at = opening
                return tree.AgentCall.at(start, end, agent, task, None, ()), end, None
            self.at = opening + 1
            return agent, end, Bracket(AGENT_CALL, opening, start, agent, task)
        if text == "(":
            raise self.unexpected(at, "the task of the agent in backticks", "write ``@name `task`(input)``")
        return agent, end, None

    def _with_bracket(self, at: int, depth: int) -> int:
        """Return the index of the `(` of `.with(`, whose `.` is at `at`; 0 for anything else."""
        word = self.after_line_ends(at + 1) if depth else at + 1
        if self.texts[word] != "with":
            return 0
        opening = self.after_line_ends(word + 1) if depth else word + 1
        return opening if self.texts[opening] == "(" else 0

    def _member(self, value: Any, start: int, depth: int) -> tuple[Any, int, Bracket | None]:
        """Read `.name` after a value, or `.with(`."""
        if opening := self._with_bracket(self.at, depth):
            self.at = opening + 1
            return value, start, Bracket(WITH, opening, start, value)
        at = self.after_line_ends(self.at + 1) if depth else self.at + 1
        name = self.texts[at]
        if KINDS.get(name[0]) != WORD:
            raise self.bad_member(at)
        self.at = at + 1
        end = self.starts[at] + len(name)
        return tree.Member.at(start, end, value, name), end, None

    # ---- brackets

    def _item(self, bracket: Bracket, at: int) -> int:
        """Read the key of the next item of a bracket; return the index of its value, or of the closing token."""
        texts = self.texts
        if texts[at][0] in LINE_STARTS:
            at += 1
        text = texts[at]
        tag = bracket.tag
        if text == bracket.closer:
            if tag in ONE_VALUE and tag != ARGUMENT:
                raise self.unexpected(at, "a value")
            return at
        if tag in WITH_KEYWORDS:
            if KINDS.get(text[0]) == WORD and texts[equals := self.after_line_ends(at + 1)] in _EQUALS:
                if texts[equals] == ":":
                    self.colon_for_equals(equals)
                bracket.key = text, self.starts[at]
                return self.after_line_ends(equals + 1)
            if tag != CALL or bracket.keywords:
                self.check_positional(bracket, at)
        elif tag == OBJECT:
            return self._object_key(bracket, at)
        return at

    def _object_key(self, bracket: Bracket, at: int) -> int:
        text = self.texts[at]
        kind = KINDS.get(text[0])
        if kind == WORD:
            key = text
        elif kind == STRING:
            key = self.string(at)
        else:
            key = self.bad_key(bracket, at)
        bracket.key = key, self.starts[at]
        colon = self.after_line_ends(at + 1)
        if self.texts[colon] != ":":
            return self.missing_colon(bracket, colon)
        return self.after_line_ends(colon + 1)

    def _add(self, bracket: Bracket, value: Any, end: int) -> None:
        key = bracket.key
        if key is None:
            bracket.values.append(value)
        elif bracket.tag == OBJECT:
            bracket.values.append(tree.Pair.at(key[1], end, key[0], value))
            bracket.key = None
        else:
            bracket.keywords.append(Keyword.at(key[1], end, key[0], value))
            bracket.key = None

    # ---- strings, numbers, templates

    def string(self, at: int) -> str:
        text = self.texts[at]
        if text.startswith('"""'):
            if at in self.tokens.unclosed:
                raise self.unterminated(at, "V003")
            quotes = 3
        elif is_closed(text):
            quotes = 1
        else:
            raise self.unterminated(at, "V003")
        if "\\" not in text:
            return text[quotes:-quotes]
        bad: list[BadEscape] = []
        text = unescape(text, quotes, bad)
        for escape in bad:
            self.bad_escape(at, escape)
        return text

    def number(self, at: int) -> int | float:
        value = read_number(self.texts[at])
        return self.bad_number(at) if value is None else value

    def template(self, at: int) -> Template:
        if at in self.tokens.unclosed:
            raise self.unterminated(at, "V004")
        return template(self.texts[at], self.starts[at], self.report)

    def criterion_text(self, at: int) -> tuple[Template, int]:
        """Return the template after `?`, and its end."""
        if self.texts[at][0] != "`":
            raise self.unexpected(at, "a criterion in backticks", "write ``?`criterion` ``")
        self.at = at + 1
        return self.template(at), self.starts[at] + len(self.texts[at])


def _operation(entry: Entry, right: Expression, end: int) -> tuple[Expression, int]:
    """Return the node of an operator that got its right operand, and the start of the node."""
    precedence, operator, left, start = entry
    if precedence == 5:
        return tree.Sum.at(start, end, operator, left, right), start
    if precedence == 4:
        return tree.Compare.at(start, end, operator, left, right), start
    if precedence == _NOT:
        return tree.Not.at(start, end, right), start
    return tree.Logical.at(start, end, operator, left, right), start


def _bracket_node(bracket: Bracket, end: int) -> Any:
    """Return the expression of a complete bracket."""
    tag, start, values = bracket.tag, bracket.start, bracket.values
    if tag == CALL:
        return tree.Call.at(start, end, bracket.head, tuple(values), tuple(bracket.keywords))
    if tag == OBJECT:
        return tree.Object.at(start, end, tuple(values))
    if tag == LIST:
        return tree.List.at(start, end, tuple(values))
    if tag == GROUP:
        return values[0]
    if tag == INDEX:
        return tree.Index.at(start, end, bracket.head, values[0])
    argument = values[0] if values else None
    if tag == ARGUMENT:
        return tree.Predicate.at(start, end, bracket.task, argument)
    if tag == AGENT_CALL:
        return tree.AgentCall.at(start, end, bracket.head, bracket.task, argument, tuple(bracket.keywords))
    if tag == INLINE:
        return tree.InlineAgent.at(start, end, tuple(bracket.keywords))
    return tree.With.at(start, end, bracket.head, tuple(bracket.keywords))
