"""The regular expressions of the package match the same text with each Python from 3.11.0."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import prose_kernel

PACKAGES = ("language", "runtime", "access", "machine", "judging", "programs", "views")

FAIL_IN_PLACE = {_constants.LITERAL, _constants.NOT_LITERAL, _constants.IN, _constants.ANY, _constants.AT}
"""Operations that do not move the position in the text when they fail."""


def patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    for module in pkgutil.walk_packages(prose_kernel.__path__, "prose_kernel."):
        if module.name.split(".")[1] in PACKAGES:
            for name, value in vars(import_module(module.name)).items():
                if isinstance(value, re.Pattern):
                    yield f"{module.name}.{name}", value


def possessive_groups(operations: Any) -> Iterator[Any]:
    """Yield the repeated part of each possessive quantifier of a group."""
    for operation, argument in operations:
        if operation is _constants.POSSESSIVE_REPEAT and not _compiler._simple(argument[2]):
            yield argument[2]
        for part in argument if isinstance(argument, tuple) else (argument,):
            for inner in part if isinstance(part, list) else (part,):
                if isinstance(inner, _parser.SubPattern):
                    yield from possessive_groups(inner)


def fails_in_place(operations: Iterable[Any]) -> bool:
    """Whether a failed match leaves the position unchanged: it fails before it consumes text, or never."""
    has_moved = False
    for place, (operation, argument) in enumerate(operations):
        if operation is _constants.BRANCH and not place:
            if not all(fails_in_place(alternative) for alternative in argument[1]):
                return False
            has_moved = True
        elif operation is _constants.POSSESSIVE_REPEAT and _compiler._simple(argument[2]):
            if place and argument[0]:  # it may fail after an earlier part has matched
                return False
            has_moved = True
        elif operation not in FAIL_IN_PLACE or has_moved:
            return False
    return True


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r'(?:[^"\\]++|\\.)*+', True),
        (r"(?:\#[^\n]*+)?+\n", True),
        (r"[a-z]++[0-9]*+", True),  # no group
        (r"(?:-[a-z]++)*+", False),
        (r"(?:[ \t]*+\n)*+", False),
        (r'(?:\\.|"(?!""))*+', False),
        (r"(?:a|b(?:-[a-z]+)?c)++", False),
    ],
)
def test_fails_in_place_finds_groups_with_the_defect(pattern: str, expected: bool) -> None:
    assert all(map(fails_in_place, possessive_groups(_parser.parse(pattern)))) == expected


def test_possessive_groups_match_the_same_before_python_3_11_5() -> None:
    """In these versions, a possessive group that failed within a repetition kept the part that had matched
    (https://github.com/python/cpython/issues/106052). An atomic group, `(?>(?:...)*)`, is correct in all versions."""
    found = dict(patterns())
    assert len(found) > 100
    wrong = [
        name
        for name, pattern in found.items()
        if not all(map(fails_in_place, possessive_groups(_parser.parse(pattern.pattern, pattern.flags))))
    ]
    assert not wrong
