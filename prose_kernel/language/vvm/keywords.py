"""The reserved words of VVM (docs/reference/vvm.md 1.3)."""

from __future__ import annotations

from typing import Final

RESERVED: Final = frozenset(
    {
        "import", "from", "as", "export", "agent", "def", "return", "match", "case", "choose", "by", "option",
        "constrain", "require", "with", "input", "if", "elif", "else", "while", "for", "in", "try", "except",
        "finally", "raise", "pass", "break", "continue", "and", "or", "not", "it", "true", "false", "error"
    }
)  # fmt: skip
OPERATORS: Final = frozenset({"and", "or", "not", "in"})
CONSTANTS: Final = frozenset({"true", "false", "it"})
CLAUSES: Final = frozenset({"elif", "else", "except", "finally"})
"""The words that continue a statement above them."""
