"""The keywords of the language, and the conditions under which a word is one (the table of openprose.md 1.9).

All keywords are soft. Whether a word is a keyword depends on the next token (tables in this module), and on its
position: where the grammar allows only a name, the parser turns the keyword into a name again.
"""

from __future__ import annotations

from typing import Final, Literal

NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*+(?>(?:-[A-Za-z0-9_]++)*)"
"""The pattern of names and keywords."""
CONSTANTS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}

CONTEXTUAL: Final[dict[str, str]] = {
    word: word.upper() for word in ["as", "filter", "from", "in", "map", "max", "pmap", "reduce", "until", "while"]
}
"""Words that are names wherever the grammar allows a name."""

# For each keyword, the next tokens after which it is one (ONLY_BEFORE), or isn't (NEVER_BEFORE): kinds of tokens, or
# words in lower case.
ONLY_BEFORE: Final[dict[str, frozenset[str]]] = {
    "USE": frozenset({"STRING"}),
    "IMPORT": frozenset({"STRING"}),
    "OPTION": frozenset({"STRING"}),
    "EXEC": frozenset({"STRING"}),
    "INPUT": frozenset({"NAME", "COLON", "STRING"}),
    "AGENT": frozenset({"NAME"}),
    "GATE": frozenset({"NAME"}),
    "BLOCK": frozenset({"NAME", "COLON", "LPAR"}),
    "RESUME": frozenset({"COLON"}),
    "PARALLEL": frozenset({"COLON", "LPAR", "for", "_NL"}),
    "FOR": frozenset({"NAME"}),
    "REPEAT": frozenset({"NUMBER", "NAME", "COLON", "MINUS", "PLUS", "STRING"}),
    "LOOP": frozenset({"COLON", "LPAR", "until", "while", "as"}),
    "TRY": frozenset({"COLON"}),
    "FINALLY": frozenset({"COLON"}),
    "ELSE": frozenset({"COLON", "if"}),
    "CATCH": frozenset({"COLON", "as"}),
    "DO": frozenset({"COLON", "NAME", "_NL"}),
    "THROW": frozenset({"_NL", "STRING", "NAME"}),
    "BREAK": frozenset({"_NL"}),
    "CONTINUE": frozenset({"_NL"}),
}
NEVER_BEFORE: Final[dict[str, frozenset[str]]] = {
    "OUTPUT": frozenset({"DOT", "COLON"}),
    "LET": frozenset({"DOT", "LPAR", "PIPE"}),
    "CONST": frozenset({"DOT", "LPAR", "PIPE"}),
    "SESSION": frozenset({"EQUALS", "DOT", "COMMA", "PIPE"}),
    "IF": frozenset({"EQUALS"}),
    "ELIF": frozenset({"EQUALS"}),
    "CHOICE": frozenset({"EQUALS"}),
    "RETURN": frozenset({"EQUALS"}),
    "ASSERT": frozenset({"EQUALS"}),
    "AND": frozenset(),
    "OR": frozenset(),
    "NOT": frozenset(),
    "IS": frozenset(),
}

SCRIPT_CONTEXTUAL: Final[dict[str, str]] = {"each": "EACH", "to": "TO"}
HOST_READS: Final = ("read_world_model", "read_subscription")
"""Functions of the host that existing scripts call (prose-md.md 3.10)."""
LEGACY_CODES: Final = {"W314": "E004", "W318": "E004", "W319": "E025", "W321": "E315"}
"""The warnings for forms that ProseScript accepts for existing files, with the errors that `--strict` reports."""
SCRIPT_WORDS: Final[dict[str, str]] = {"call": "_CALL", "record": "_RECORD", "append": "_APPEND"}
"""Additional keywords of ProseScript (prose-md.md 3.2, 3.10)."""
_BEFORE_VALUE: Final = frozenset({"NAME", "STRING", "NUMBER", "LBRACE", "CONSTANT"})
SCRIPT_BEFORE: Final[dict[str, frozenset[str]]] = {
    "_CALL": frozenset({"NAME", "STRING", "_NL"}),
    "_RECORD": _BEFORE_VALUE,
    "_APPEND": _BEFORE_VALUE,
}
SCRIPT_KINDS: Final = frozenset({*SCRIPT_BEFORE, "_RAISE", "_STAGE", "_PARALLEL_REPEAT", "_LOOP_EACH"})
"""The kinds of keyword tokens that only ProseScript has."""

KEYWORDS: Final[dict[str, str]] = {kind.lower(): kind for kind in (*ONLY_BEFORE, *NEVER_BEFORE)}

Owner = Literal["agent", "session", "exec", "gate"]
PROPERTIES: Final[dict[Owner, tuple[str, ...]]] = {
    "agent": (
        *("model", "prompt", "persist", "context", "skills", "permissions"),
        *("retry", "backoff", "budget", "output", "tools"),
    ),
    "session": (
        *("model", "prompt", "context", "permissions"),
        *("retry", "backoff", "timeout", "budget", "output", "tools"),
    ),
    "exec": (
        *("timeout", "on-fail", "cwd", "stdin", "env", "max-output", "format", "display", "pipefail"),
        *("retry", "backoff", "reads", "writes", "needs"),
    ),
    "gate": ("prompt", "allow", "timeout", "on_reject"),
}
"""The properties of each owner."""
NOT_STRICT: Final[dict[str, frozenset[str]]] = {
    "agent": frozenset({"budget", "output", "tools"}),
    "session": frozenset({"budget", "output", "permissions", "timeout", "tools"}),  # 2.3 rows 21 and 53
    "exec": frozenset(
        {"backoff", "display", "env", "format", "max-output", "needs", "pipefail", "reads", "retry", "stdin", "writes"}
    ),
}
"""Properties that are unknown in the strict profile: they have no effect and cause a warning (W005)."""


def is_keyword(kind: str, following: str, word: str | None) -> bool:
    """Return whether a word is the keyword `kind` if the next token has the kind `following` and the text `word`."""
    only = ONLY_BEFORE.get(kind)
    if only is None:
        return following not in NEVER_BEFORE[kind]
    return following in only or word in only or (word is not None and "NAME" in only)
