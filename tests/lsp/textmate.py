"""A small interpreter of TextMate grammars. As in editors, the first of the rules that match earliest in a line applies."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

Rule = dict[str, Any]


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@dataclass
class Open:
    """A `begin` whose `end` was not found yet."""

    rule: Rule
    scope: str


class Interpreter:
    def __init__(self, grammar: Rule) -> None:
        self.grammar = grammar
        self._flat: dict[int, list[Rule]] = {}

    def scopes(self, text: str) -> list[str]:
        """Return the innermost scope of each character; line ends have none."""
        found: list[str] = []
        stack = [Open(self.grammar, "")]
        for line in text.split("\n"):
            found += [*self._line(line, stack), ""]
        return found[:-1]

    def _line(self, line: str, stack: list[Open]) -> list[str]:
        scopes = [""] * len(line)
        at = 0
        seen: dict[str, re.Match[str] | None] = {}
        for _ in range(4 * len(line) + 20):
            top = stack[-1]
            match, rule = self._next(line, at, top, seen)
            if match is None:
                scopes[at:] = [top.scope] * (len(line) - at)
                return scopes
            scopes[at : match.start()] = [top.scope] * (match.start() - at)
            at = match.end()
            if rule is None:
                scopes[match.start() : at] = [top.scope] * (at - match.start())
                stack.pop()
                continue
            scope = rule.get("name", top.scope)
            scopes[match.start() : at] = [scope] * (at - match.start())
            for group, capture in rule.get("captures", {}).items():
                start, end = match.span(int(group))
                scopes[start:end] = [capture["name"]] * (end - start)
            if "begin" in rule:
                stack.append(Open(rule, scope))
        raise AssertionError(f"no progress in {line!r}")

    def _next(
        self, line: str, at: int, top: Open, seen: dict[str, re.Match[str] | None]
    ) -> tuple[re.Match[str] | None, Rule | None]:
        """Return the next match in a line and its rule. `seen` caches the matches of patterns that are still ahead."""

        def search(pattern: str) -> re.Match[str] | None:
            known = seen.get(pattern)
            if pattern not in seen or (known is not None and known.start() < at):
                known = seen[pattern] = compiled(pattern).search(line, at)
            return known

        best: re.Match[str] | None = None
        chosen: Rule | None = None
        if "end" in top.rule:
            best = search(top.rule["end"])
        for rule in self._rules(top.rule):
            match = search(rule.get("match") or rule["begin"])
            if match is not None and (best is None or match.start() < best.start()):
                best, chosen = match, rule
        return best, chosen

    def _rules(self, rule: Rule) -> list[Rule]:
        """Return the rules inside a rule; included ones replace their `include`."""
        if id(rule) not in self._flat:
            flat: list[Rule] = []
            for one in rule.get("patterns", ()):
                if "include" in one:
                    flat += self._rules(self.grammar["repository"][one["include"].removeprefix("#")])
                else:
                    flat.append(one)
            self._flat[id(rule)] = flat
        return self._flat[id(rule)]
