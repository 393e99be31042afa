"""TextMate grammars, which VS Code and other editors colour by: what they are made of in any language.

A language makes its grammar of its own token tables. Patterns keep to what both Oniguruma and Python's `re` understand,
so that the tests can read a grammar the way an editor does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Rule = dict[str, Any]


def match(pattern: str, name: str = "", captures: Mapping[int, str] | None = None) -> Rule:
    """A rule for a piece of one line."""
    rule: Rule = {"match": pattern}
    if name:
        rule["name"] = name
    if captures:
        rule["captures"] = {str(number): {"name": scope} for number, scope in captures.items()}
    return rule


def between(begin: str, end: str, name: str, patterns: Iterable[Rule] = ()) -> Rule:
    """A rule from one pattern to another one, over lines."""
    rule: Rule = {"begin": begin, "end": end, "patterns": list(patterns)}
    if name:
        rule["name"] = name
    return rule


def include(name: str) -> Rule:
    """The rules of the repository by that name."""
    return {"include": f"#{name}"}


def any_of(words: Iterable[str]) -> str:
    """One of some words; longer ones come first."""
    return "|".join(sorted(words, key=lambda word: (-len(word), word)))


def grammar(name: str, title: str, repository: Mapping[str, Iterable[Rule]]) -> Rule:
    """A grammar whose rules are those of `code` in its repository."""
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": title,
        "scopeName": f"source.{name}",
        "patterns": [include("code")],
        "repository": {key: {"patterns": list(rules)} for key, rules in repository.items()},
    }
