"""Loads the parse tables of `grammar.lark`, which Lark's LALR generator makes and `grammar.json` stores.

Generating them takes a fifth of a second and imports Lark; reading them takes two milliseconds. `load` reads the stored
tables if they match the grammar, otherwise it generates them in memory, so a stale or missing file is slow but never
wrong. `python -m prose_kernel.language.openprose.tables` writes the file.
"""

from __future__ import annotations

import json
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

GRAMMAR_FILE: Final = Path(__file__).with_name("grammar.lark")
TABLES_FILE: Final = Path(__file__).with_name("grammar.json")

FORMAT: Final = 1
END: Final = "$END"


class Rule(Struct, frozen=True):
    """One alternative of a production.

    `picks` are the stack positions of the arguments for the builder, counted from the top (-1 is the last symbol); 0
    means an absent optional part. `action` is the builder's method; "" returns the only pick, "[" and "+" start and
    extend a list.
    """

    head: str
    length: int
    action: str
    picks: tuple[int, ...]


class Tables(Struct, frozen=True, dict=True):
    """The parse tables. `rows[state]` maps a symbol to a state (>= 0), or a terminal to the ~index of a rule (< 0)."""

    rows: list[dict[str, int]]
    rules: list[Rule]
    start: int
    end: int

    @cached_property
    def symbols(self) -> list[str]:
        """For each state, the symbol that leads to it."""
        found = {target: symbol for row in self.rows for symbol, target in row.items() if target >= 0}
        return [found.get(state, "") for state in range(len(self.rows))]


@cache
def load() -> Tables:
    """Return the tables of the grammar next to this module."""
    grammar = GRAMMAR_FILE.read_bytes()
    try:
        kept = json.loads(TABLES_FILE.read_bytes())
        if kept["format"] == FORMAT and kept["grammar"].encode() == grammar:
            return _unpack(kept)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return _unpack(_generate(grammar))


def _unpack(kept: dict[str, Any]) -> Tables:
    symbols: list[str] = kept["symbols"]
    rows = [{symbols[key]: target for key, target in zip(row[::2], row[1::2], strict=True)} for row in kept["rows"]]
    rules = [Rule(symbols[head], length, action, tuple(picks)) for head, length, action, picks in kept["rules"]]
    return Tables(rows, rules, kept["start"], kept["end"])


def _lark(grammar: bytes, *, debug: bool = False) -> Any:
    """Return Lark's parser for a grammar. For an ambiguous one, Lark raises GrammarError or, with `debug`, logs it."""
    from lark import Lark
    from lark.lexer import Lexer

    class External(Lexer):  # keeps Lark from making a lexer; the tokens come from lexer.py
        def __init__(self, conf: object) -> None: ...
        def lex(self, state: object, parser: object = None) -> Any:
            return iter(())

    return Lark(grammar.decode(), start="program", parser="lalr", lexer=External, debug=debug)


def _generate(grammar: bytes) -> dict[str, Any]:
    """Return Lark's tables in the form of `grammar.json`; the result is deterministic."""
    lark = _lark(grammar)
    table = lark.parser.parser._parse_table
    rules = {rule: index for index, rule in enumerate(lark.rules)}
    numbers = _numbered(table)
    symbols = sorted({symbol for row in table.states.values() for symbol in row} | {r.origin.name for r in lark.rules})
    index = {symbol: position for position, symbol in enumerate(symbols)}
    rows: list[list[int]] = []
    for state in numbers:
        row: list[int] = []
        for symbol, (_, target) in sorted(table.states[state].items()):
            row += [index[symbol], numbers[target] if isinstance(target, int) else ~rules[target]]
        rows.append(row)
    return {
        "format": FORMAT,
        "grammar": grammar.decode(),
        "start": numbers[table.start_states["program"]],
        "end": numbers[table.end_states["program"]],
        "symbols": symbols,
        "rules": [_rule(rule, index) for rule in lark.rules],
        "rows": rows,
    }


def _numbered(table: Any) -> dict[int, int]:
    """Number Lark's states in the order in which they are reached, because Lark's own numbers are random."""
    numbers = {table.start_states["program"]: 0}
    for state in (reached := list(numbers)):
        for _, (_, target) in sorted(table.states[state].items()):
            if isinstance(target, int) and target not in numbers:
                numbers[target] = len(numbers)
                reached.append(target)
    return numbers


def _rule(rule: Any, index: dict[str, int]) -> list[Any]:
    name, length = rule.origin.name, len(rule.expansion)
    if name.startswith("__"):  # a list that Lark makes for `*` or `+`; its last symbol is the element
        grows = rule.expansion[0].name == name
        return [index[name], length, "+" if grows else "[", [-length, -1] if grows else [-1]]
    picks: list[int] = []
    symbols = enumerate(rule.expansion)
    for absent in rule.options.empty_indices or [False] * length:
        if absent:
            picks.append(0)
            continue
        position, symbol = next(symbols)
        if not getattr(symbol, "filter_out", False):
            picks.append(position - length)
    action = rule.alias or name
    if rule.options.expand1 and not rule.alias and len(picks) == 1:
        action = ""
    return [index[name], length, action, picks]


def write() -> None:
    """Write `grammar.json` for the current grammar."""
    text = json.dumps(_generate(GRAMMAR_FILE.read_bytes()), separators=(",", ":"))
    TABLES_FILE.write_text(text + "\n", encoding="ascii")


if __name__ == "__main__":
    write()
