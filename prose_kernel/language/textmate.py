"""Builds TextMate grammars, which VS Code and other editors use for colours: the parts common to all languages.

Each language builds its grammar from its token tables. Patterns use only syntax that both Oniguruma and Python's `re`
understand, so that the tests can read a grammar as an editor does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Rule = dict[str, Any]


def match(pattern: str, name: str = "", captures: Mapping[int, str] | None = None) -> Rule:
    """Return a rule for text within one line."""
    rule: Rule = {"match": pattern}
    if name:
        rule["name"] = name
    if captures:
        rule["captures"] = {str(number): {"name": scope} for number, scope in captures.items()}
    return rule


def between(begin: str, end: str, name: str, patterns: Iterable[Rule] = ()) -> Rule:
    """Return a rule for text from one pattern to another, over any number of lines."""
    rule: Rule = {"begin": begin, "end": end, "patterns": list(patterns)}
    if name:
        rule["name"] = name
    return rule


def include(name: str) -> Rule:
    """Return a reference to the rules of that name in the repository."""
    return {"include": f"#{name}"}


def any_of(words: Iterable[str]) -> str:
    """Return a pattern for any of the words, longer ones first."""
    return "|".join(sorted(words, key=lambda word: (-len(word), word)))


def grammar(name: str, title: str, repository: Mapping[str, Iterable[Rule]]) -> Rule:
    """Return a grammar whose rules are the rules `code` of its repository."""
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": title,
        "scopeName": f"source.{name}",
        "patterns": [include("code")],
        "repository": {key: {"patterns": list(rules)} for key, rules in repository.items()},
    }
