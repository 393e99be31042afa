"""Items of sections: the forms that declare names, defaults, what is optional (prose-md.md 1.5)."""

from __future__ import annotations

from typing import Any

import pytest

from prose_kernel.language.contracts.items import read_items
from prose_kernel.language.contracts.tree import MISSING, Item
from prose_kernel.language.source import Span


def items(text: str, *, truth: bool = False) -> tuple[Item, ...]:
    return read_items(text, Span(0, len(text)), (), truth=truth)


@pytest.mark.parametrize(
    ("text", "names", "words"),
    [
        ("- `topic`: what to look for", ("topic",), "what to look for"),
        ("- topic: what to look for", ("topic",), "what to look for"),
        ("- `topic` (optional, default \"tea\"): what", ("topic",), 'optional, default "tea" what'),
        ("- `topic`", ("topic",), ""),
        ("- `a`, `b` (one of `x`, `y`), `c`", ("a", "b", "c"), "one of `x`, `y`"),
        ("- `a` / `b` \u2014 two names", ("a", "b"), "two names"),
        ("- `subject` \u2014 a dash", ("subject",), "a dash"),
        ("- `funding` from the monitor \u2014 names it, too", ("funding",), "from the monitor \u2014 names it, too"),
        (" * `a.b`: c", ("a.b",), "c"),
        ("+ `rows[]`: each", ("rows[]",), "each"),
        ("- a (text): b", ("a",), "text b"),
        ("- `one word more` exists", (), "`one word more` exists"),
        ("- each item has: a title", (), "each item has: a title"),
        ("- if nothing is found: say so", (), "if nothing is found: say so"),
        ("- a:b", (), "a:b"),
        ("- freshness: a day", ("freshness",), "a day"),
        ("- `x`: first\n  second\n\n  - third\nother", ("x",), "first second - third"),
    ],
)  # fmt: skip
def test_the_forms_of_an_item(text: str, names: tuple[str, ...], words: str) -> None:
    (item,) = items(text)
    assert (item.names, item.words) == (names, words)


def test_words_of_a_truth_are_not_names() -> None:
    assert [item.names for item in items("- freshness: a day\n- `note`: x\n- Postconditions: y", truth=True)] == [
        (),
        ("note",),
        (),
    ]


def test_text_between_items_belongs_to_none() -> None:
    found = items("- a: one\n\nsome text\n\n- b: two\n   - c: three\n")
    assert [(item.names, item.text) for item in found] == [(("a",), "one"), (("b",), "two - c: three")]


@pytest.mark.parametrize(
    ("text", "optional", "default"),
    [
        ('(default: "std")', True, "std"),
        ("Defaults to `true`", True, True),
        ("default 3", True, 3),
        ("how many; the default value is 2.5.", True, 2.5),
        ("default `none`", True, None),
        ("default: [1, 2]", True, [1, 2]),
        ('default = {"a": [1]}', True, {"a": [1]}),
        ("default `a word`", True, "a word"),
        ("Optional", True, MISSING),
        ("(optional)", True, MISSING),
        ("roots to skip in default scope", False, MISSING),
        ("default 30s", False, MISSING),
        ("default [1", False, MISSING),
        ("optionally", False, MISSING),
    ],
)
def test_optional_and_default(text: str, optional: bool, default: Any) -> None:
    (item,) = items(f"- `a`: {text}")
    assert (item.optional, item.default) == (optional, default)


def test_an_item_of_dots_is_open() -> None:
    assert [item.open for item in items("- a: b\n- ...\n")] == [False, True]
