"""Config of patterns: defaults in their forms (prose-md.md 6)."""

from __future__ import annotations

from typing import Any

import pytest

from prose_kernel.language.contracts.reader import read
from prose_kernel.language.contracts.targets import config_defaults
from prose_kernel.language.source import Source


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ("- rounds (integer, default: 3): how many", 3),
        ("- `rounds`: integer, default `2`", 2),
        ("- `rounds`: 3", 3),
        ("- `label` (string, default: Corpus A): a label", "Corpus A"),
        ('- `label` (string, default: "none of it"): a label', "none of it"),
        ("- `label` (string, default: none): a label", None),
        ("- `names` (list, default: ['a', 'b'])", ["a", "b"]),
        ("- `parts` (list, default: { \"a\": 1 }, { \"a\": 2 })", [{"a": 1}, {"a": 2}]),
        ("- `rounds` (default 3, at most 5)", 3),
        ("- `on`: `true`", True),
        ("- `label`: a word for people", None),
        ("- `label`", None),
        ("- `label` (default: ): a label", ""),
        ("- `label`: default ``", ""),
    ],
)  # fmt: skip
def test_defaults(item: str, value: Any) -> None:
    name = item.split()[1].strip("`:")
    file, _ = read(Source(f"---\nname: p\nkind: pattern\n---\n### Config\n{item}\n", "p.prose.md"))
    assert config_defaults(file.own) == {name: value}
