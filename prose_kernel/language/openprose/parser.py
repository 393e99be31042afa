"""Parses tokens into a tree, with an LALR parser over the tables of grammar.lark (openprose.md 2).

Lark generates the tables. The loop is our own, because it builds the tree in place, skips the many chains of one-symbol
productions in the grammar of expressions, and continues after an error. Recovery (9.1) is in recovery.py.

A script may be in the fences of a file (prose-md.md 1.1, 3.1). The parser reads only the lines in the fences, without
the indentation of their openers. `in_file` then moves the result to the positions of these lines in the file; all later
stages use positions in the file.
"""

from __future__ import annotations

import keyword
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from operator import itemgetter
from typing import Any, Final, cast

from prose_kernel.language.diagnostics import ParsedText, Profile, in_order
from prose_kernel.language.nodes import gc_paused, move_spans
from prose_kernel.language.openprose import tables, tree
from prose_kernel.language.openprose.builder import Builder
from prose_kernel.language.openprose.call_targets import ScriptSource
from prose_kernel.language.openprose.diagnostic_collector import Findings
from prose_kernel.language.openprose.keywords import CONTEXTUAL, KEYWORDS, SCRIPT_CONTEXTUAL, SCRIPT_KINDS
from prose_kernel.language.openprose.lexer import LAYOUT, Lexer, RawToken
from prose_kernel.language.openprose.tree import Expression, Name, Program, ProgramCall
from prose_kernel.language.source import Source, Span
from prose_kernel.language.structs import replace

END: Final = tables.END
_RESERVED: Final = frozenset({"AND", "OR", "NOT", "IS", "CONSTANT"})
_KEYWORD_KINDS: Final = frozenset(KEYWORDS.values()) | SCRIPT_KINDS | {"CONSTANT"}
_INNER_LINES: Final = frozenset({"entry_line", "call_input"})  # productions of lines that may begin with any name

_UNIT, _PICK, _START, _GROW, _CALL, _CALL_ONE, _CALL_TWO = range(7)
Plan = tuple[int, str, int, Any, Callable[..., Any] | None]
"""How to reduce by a rule: the operation, the head, the length, the values to pass, the builder's method."""
_UNITS: Final[dict[tuple[int, int, str], int]] = {}
"""The results of `Parser._unit`, which depend only on the tables."""


class Parsed(ParsedText[Program], frozen=True):
    """The result of a parse. `positional_calls` are calls with unnamed arguments, which are an error (E004) if the
    checker finds that they call a program."""

    positional_calls: tuple[ProgramCall, ...] = ()


def parse(source: Source, profile: Profile = "default") -> Parsed:
    """Parse a program. Never raises: any text results in a tree and a list of diagnostics (9.1)."""
    with gc_paused():
        if isinstance(source, ScriptSource) and source.fences is not None:
            script = fenced_text(source, source.fences)
            return in_file(Parser(script, profile).parse(), script)
        return Parser(source, profile).parse()


def read_expression(text: str) -> Expression | None:
    """Parse a text on one line as an expression of ProseScript (prose-md.md 3.4); None if it isn't one."""
    parsed = parse(Source(f"assert {text}\n"), "prosescript")
    if any(d.severity == "error" and d.code != "E002" for d in parsed.diagnostics) or len(parsed.program.items) != 1:
        return None
    statement = parsed.program.items[0]
    return statement.condition if isinstance(statement, tree.Assert) else None


class Parser:
    """One parse. `states`, `values` and `starts` (offsets in the text) are the LALR stack."""

    def __init__(self, source: Source, profile: Profile) -> None:
        self.tables = tables.load()
        self.rows = self.tables.rows
        self.findings = Findings(source)
        self.lexer = Lexer(source.text, profile, self.findings, read_expression)
        self.text = self.lexer.text
        self.profile = profile
        self.builder = Builder(profile, self.findings, self.lexer.ambiguous)
        self.plans = _plans()
        self.states = [self.tables.start]
        self.values: list[Any] = [None]  # index 0 is the value of an absent optional part
        self.starts = [0]
        self.end = 0  # the end of the last token
        self.skipping = 0  # levels of a skipped block that continues in the next chunk

    def parse(self) -> Parsed:
        last_line: list[str] = []
        for tokens in self.lexer.chunks():
            self.read(tokens, self._after_skipped(tokens))
            last_line = [token[0] for token in tokens[-60:]]
        program = self._finish()
        last = next((kind for kind in reversed(last_line) if kind not in LAYOUT), "")
        unclosed = self.lexer.unclosed
        return Parsed(
            program,
            in_order(self.findings.found, self.findings.source.text),
            unclosed is not None or (last == "COLON" and not self.findings.error_since(self.end)),
            unclosed or ("arrow" if last == "ARROW" else None),
            last_line[-1:] == ["_DEDENT"],
            tuple(self.builder.positional_calls),
        )

    # ---- the loop

    def read(self, tokens: list[RawToken], index: int = 0, end: RawToken | None = None) -> None:
        """Read the tokens from `index` on, up to the token `end`, and recover from all errors."""
        while index < (stop := len(tokens) if end is None else tokens.index(end)):
            index = self._read(tokens, index, stop)
            if index < stop:
                from prose_kernel.language.openprose.recovery import recover

                index = recover(self, tokens, index)  # may remove a token, before or after `end`

    def _read(self, tokens: list[RawToken], index: int, size: int) -> int:
        """Shift and reduce from `index` up to `size`; return the index of the first unexpected token, or `size`."""
        rows, plans, units = self.rows, self.plans, _UNITS
        states, values, starts, builder = self.states, self.values, self.starts, self.builder
        last = self.end
        row = rows[states[-1]]
        for index in range(index, size):  # noqa: B020 - the last index is the result
            kind, start, end, value = tokens[index]
            while True:
                target = row.get(kind)
                if target is None:
                    retyped = self._retype(tokens, index, row)
                    if retyped is None:
                        self.end = last
                        return index
                    tokens[index] = retyped
                    kind, start, end, value = retyped
                    continue
                if target >= 0:
                    states.append(target)
                    values.append(value)
                    starts.append(start)
                    row = rows[target]
                    last = end
                    break
                operation, head, length, picks, method = plans[~target]
                if operation == _UNIT:
                    key = (states[-2], target, kind)
                    after = units.get(key)
                    if after is None:
                        after = units[key] = self._unit(*key)
                    states[-1] = after
                    row = rows[after]
                    continue
                # Most take one or two values; unpacking a tuple of them costs more than the call.
                if operation == _CALL_ONE:
                    made = method(builder, starts[-length], last, values[picks])  # type: ignore[misc]
                elif operation == _CALL_TWO:
                    made = method(builder, starts[-length], last, values[picks[0]], values[picks[1]])  # type: ignore[misc]
                elif operation == _CALL:
                    made = method(builder, starts[-length], last, *picks(values))  # type: ignore[misc]
                elif operation == _GROW:
                    made = values[-length]
                    made.append(values[-1])
                elif operation == _START:
                    made = [values[-1]]
                else:
                    made = values[picks]
                if length > 1:
                    cut = 1 - length
                    del states[cut:], values[cut:], starts[cut:]
                values[-1] = made
                target = rows[states[-2]][head]
                states[-1] = target
                row = rows[target]
        self.end = last
        return size

    def _unit(self, below: int, rule: int, kind: str) -> int:
        """Return the state after all one-symbol reductions required by `kind`, starting with `rule` on top of
        `below`."""
        while True:
            state = self.rows[below][self.plans[~rule][1]]
            target = self.rows[state].get(kind)
            if target is None or target >= 0 or self.plans[~target][0] != _UNIT:
                return state
            rule = target

    def _retype(self, tokens: Sequence[RawToken], index: int, row: dict[str, int]) -> RawToken | None:
        """Return the token in its other reading: a keyword as a name, a name as a contextual word (1.9)."""
        kind, start, end, value = tokens[index]
        if kind == "NAME":
            contextual = CONTEXTUAL.get(value.id) or SCRIPT_CONTEXTUAL.get(value.id)
            return (contextual, start, end, value) if contextual in row else None
        if kind not in _KEYWORD_KINDS or "NAME" not in row:
            return None
        before = tokens[index - 1][0] if index else "_NL"
        if before in LAYOUT and not _INNER_LINES & (self.landing("NAME") or row).keys():
            return None  # `session:` and the like begin a statement, not a property (2.1)
        if kind == "_CALL" and tokens[index + 1][0] in ("NAME", "STRING"):
            return None  # a call where none is allowed
        if kind in _RESERVED and before != "DOT" and tokens[index + 1][0] != "COLON":
            return None
        return ("NAME", start, end, Name.at(start, end, self.text[start:end]))

    # ---- the stack, for recovery

    def accepts(self, *kinds: str) -> bool:
        """Return whether tokens of these kinds could come next, in this order."""
        states = self.states.copy()
        return all(self._shift(states, kind) for kind in kinds)

    def landing(self, kind: str) -> dict[str, int] | None:
        """Return the row of the state in which a token `kind` would be shifted; None if the token isn't allowed."""
        states = self.states.copy()
        return self.rows[states[-2]] if self._shift(states, kind) else None

    def _shift(self, states: list[int], kind: str) -> bool:
        """Apply the actions for a token `kind` to `states`; return False if the token isn't allowed."""
        while True:
            target = self.rows[states[-1]].get(kind)
            if target is None:
                return kind == END and states[-1] == self.tables.end
            if target >= 0:
                states.append(target)
                return True
            _, head, length, _, _ = self.plans[~target]
            if length:
                del states[-length:]
            states.append(self.rows[states[-1]][head])

    def acceptable(self) -> frozenset[str]:
        """Return the terminals that could come next."""
        row = self.rows[self.states[-1]]
        return frozenset(kind for kind in row if kind != "HOLE" and kind.isupper() and self.accepts(kind))

    def feed(self, *tokens: RawToken) -> None:
        """Shift tokens that `accepts` allows."""
        end = self.end
        self._read(list(tokens), 0, len(tokens))
        self.end = end

    def unwind(self, offset: int) -> None:
        """Drop from the stack everything that begins at or after `offset`."""
        while len(self.states) > 1 and self.starts[-1] >= offset:
            self.pop()

    def pop(self) -> None:
        del self.states[-1], self.values[-1], self.starts[-1]

    def _after_skipped(self, tokens: Sequence[RawToken]) -> int:
        """Return the index after the block that was being skipped when the last chunk ended; 0 if there is none."""
        for index, token in enumerate(tokens):
            if not self.skipping:
                return index
            self.skipping += (token[0] == "_INDENT") - (token[0] == "_DEDENT")
        return len(tokens)

    def _finish(self) -> Program:
        end = (END, self.end, self.end, None)
        while not self.accepts(END) and len(self.states) > 1:
            self.pop()
        if len(self.states) == 1:
            return self.builder.program(0, self.end)
        self._read([end], 0, 1)  # reduces to `program`; the end itself is never shifted
        program = self.values[-1]
        assert isinstance(program, Program)
        return program


@cache
def _plans() -> list[Plan]:
    return [_plan(rule) for rule in tables.load().rules]


def _plan(rule: tables.Rule) -> Plan:
    picks = rule.picks
    if rule.action == "":
        return (_UNIT if rule.length == 1 else _PICK, rule.head, rule.length, picks[0], None)
    if rule.action in "[+":
        return (_START if rule.action == "[" else _GROW, rule.head, rule.length, None, None)
    method = _builder_of(rule.action)
    if len(picks) == 1:
        return (_CALL_ONE, rule.head, rule.length, picks[0], method)
    if len(picks) == 2:
        return (_CALL_TWO, rule.head, rule.length, picks, method)
    take: Any = itemgetter(*picks) if picks else itemgetter(slice(0, 0))
    return (_CALL, rule.head, rule.length, take, method)


def _builder_of(action: str) -> Callable[..., Any]:
    """Return the builder's method for a production; without one, the constructor of its node: `Gate` for `gate`."""
    method = getattr(Builder, action + "_" if keyword.iskeyword(action) else action, None)
    if method is None:
        make = getattr(tree, action.title().replace("_", ""))
        return lambda builder, start, end, *values: make(*values, span=(start, end))
    return cast("Callable[..., Any]", method)


# ---------------------------------------------------------------- scripts in the fences of a file

_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, eq=False)
class FencedText(Source):
    """The script in the fences of a file. Offsets are those of the script, lines and columns those of the file.

    `places` are the offsets in the file at which the script's lines begin, and at which the last one ends.
    """

    file: Source = field(default_factory=lambda: Source(""))
    places: tuple[int, ...] = ()

    def line_column(self, offset: int) -> tuple[int, int]:
        return self.file.line_column(self.place(offset))

    def line_text(self, line: int) -> str:
        return self.file.line_text(line)

    def place(self, offset: int) -> int:
        """Convert an offset in the script to one in the file."""
        line = bisect_right(self.line_starts, offset) - 1
        return self.places[line] + offset - self.line_starts[line]

    def in_file(self, start: int, end: int) -> Span:
        """Convert a span in the script to one in the file. A span that ends with a line doesn't reach the next line."""
        first = self.place(start)
        return Span(first, self.place(end - 1) + 1 if end > start else first)

    @cached_property
    def shift(self) -> int | None:
        """The difference between the offsets in the file and in the script; None if it depends on the line."""
        shifts = {place - start for place, start in zip(self.places, self.line_starts, strict=False)}
        return shifts.pop() if len(shifts) == 1 else None


def fenced_text(source: Source, fences: Sequence[tuple[Span, int]]) -> FencedText:
    """Return the script in the `fences` of `source`. Each line loses the indentation of its fence's opener, or all of
    its indentation if it has less."""
    parts: list[str] = []
    places: list[int] = []
    text = source.text
    for span, indent in fences:
        at = span.start
        for line in _LINE.findall(text, span.start, span.end):
            off = min(indent, len(line) - len(line.lstrip(" "))) if indent else 0
            parts.append(line[off:])
            places.append(at + off)
            at += len(line)
    places.append(fences[-1][0].end if fences else len(text))
    return FencedText("".join(parts), source.name, source.prompt, source, tuple(places))


def in_file(parsed: Parsed, script: FencedText) -> Parsed:
    """Move the result of parsing a script to positions in the file."""
    done: set[int] = set()
    for node in (parsed.program, *parsed.positional_calls):
        move_spans(node, script.in_file, script.shift, done)
    found = tuple(replace(one, span=script.in_file(*one.span)) for one in parsed.diagnostics)
    return replace(parsed, diagnostics=found)
