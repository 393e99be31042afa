"""Completion of VVM text: whether a cell is complete, and the keywords, names, agents, keys and values at the cursor.

For offers, the text before the cursor is only split into tokens, because it need not be correct. The bracket around the
cursor determines the offers; on a new line, the open blocks do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from prose_kernel.language.incomplete_text import Completeness, unfinished
from prose_kernel.language.source import Source
from prose_kernel.language.vvm.lexer import END, KINDS, LINE_STARTS, NUMBER, STRING, TEMPLATE, WORD, Tokens
from prose_kernel.language.vvm.names import LIBRARY, RESERVED, KnownNames
from prose_kernel.language.vvm.parser import parse
from prose_kernel.language.vvm.parser_state import PART_WORDS
from prose_kernel.language.word_catalogue import Completion, Offer, catalogue

_words: Final = partial(catalogue, "vvm")
_WORD: Final = re.compile(r"[A-Za-z_]\w*\Z")
_PLACEHOLDER: Final = re.compile(r"\{([\w.]*)\Z")
_OPEN_STRING: Final = re.compile(r'(?<!\\)"[^"\n]*\Z')
_MODULE_WORDS: Final = ("import", "from", "export", "agent")
_STATEMENT_WORDS: Final = (
    *("if", "while", "for", "match", "choose", "constrain", "with", "try"),
    *("raise", "pass", "def"),
)
_CLAUSES: Final = {
    "if": ("elif", "else"),
    "elif": ("elif", "else"),
    "try": ("except", "finally"),
    "except": ("finally",),
}
_NEXT_IMPORT_WORD: Final = {("import", 2): "from", ("from", 2): "import", ("from", 4): "as", ("from", 5): "as"}
"""The next keyword of an import, by its first word and its number of tokens."""
_ONLY_KEYS: Final = frozenset({"agent", "permissions", "memory", "constrain", "error"})
"""The owners of brackets that contain only keywords."""
_NEW_NAME: Final = frozenset({"def", "agent", "for", "as"})
_VALUE_WORDS: Final = ("true", "false", "it", "not")
_BRACKETS: Final = frozenset("([{")


def completeness(text: str) -> tuple[Completeness, str]:
    """Return whether a cell is complete, and for an incomplete one the indentation of its next line."""
    parsed = parse(Source(text))
    found = unfinished(text, parsed, invalid=any(found not in parsed.awaited for found in parsed.diagnostics))
    if found is not None:
        return found
    if parsed.awaited:
        return "incomplete", " " * (parsed.awaited[-1].column - 1)
    return "complete", ""


def complete(text: str, inside: str, start: int, known: KnownNames | None, values: Mapping[str, Any]) -> Completion:
    """Complete the word at the end of `text`, which is in code, or in a string or template that begins at `start`."""
    word = _WORD.search(text[-200:])
    begin = len(text) - len(word.group()) if word else len(text)
    return Completion(begin, offers(text[:begin], inside, known, values))


def offers(before: str, inside: str, known: KnownNames | None, values: Mapping[str, Any]) -> Iterable[Offer]:
    """Offer completions at the end of `before`: in code, in a `string`, a `triple`-quoted one or a template (`marker`).

    `values` holds the values of names, whose fields are offered.
    """
    known = known or KnownNames()
    if inside == "marker":
        found = _PLACEHOLDER.search(before)
        if found is None:
            return []
        path = found[1].split(".")[:-1]
        return _members(path, values) if path else _TokenizedText(before[: found.start()]).variables(known)
    if inside == "string":
        opened = _OPEN_STRING.search(before)
        return _TokenizedText(before[: opened.start()]).in_string(known) if opened else []
    return [] if inside == "triple" else _TokenizedText(before).in_code(known, values)


def _members(path: list[str], values: Mapping[str, Any]) -> list[Offer]:
    """Return the fields of the object at a path, or of a string that is JSON (docs/reference/vvm.md 3.5)."""
    value: Any = values
    for name in path:
        value = _fields(value).get(name)
    return [Offer(name, "property") for name in _fields(value) if isinstance(name, str) and name.isidentifier()]


def _fields(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}


def _keywords(words: Iterable[str]) -> list[Offer]:
    return [Offer(word, "keyword", _words().keywords[word].summary) for word in words]


class _TokenizedText:
    """The tokens before a cursor without comments, the open brackets among them, and the logical lines."""

    def __init__(self, before: str) -> None:
        tokens = Tokens(before)
        self.tokens: list[str] = []
        self.open: list[int] = []  # indexes of the open brackets
        self.lines: list[tuple[int, int]] = []  # column and index of the first token of each logical line
        at_line_start = True
        for start, text in zip(tokens.starts, tokens.texts, strict=True):
            if start >= len(before) or not text.strip() or text == END or (text[0] == "#" and not self.tokens):
                at_line_start = at_line_start or (text[:1] == "\n" and start < len(before) and not self.open)
                continue
            if text[0] in LINE_STARTS:
                at_line_start = at_line_start or not self.open
                continue
            if at_line_start and not self.open:
                self.lines.append((start - before.rfind("\n", 0, start) - 1, len(self.tokens)))
            at_line_start = False
            if text in _BRACKETS:
                self.open.append(len(self.tokens))
            elif text in ")]}" and self.open:
                self.open.pop()
            self.tokens.append(text)
        self.at_line_start = at_line_start and not self.open
        line = before.rpartition("\n")[2]
        self.column = len(line) - len(line.lstrip(" "))

    def _at(self, index: int) -> str:
        """Return the token at an index, which may count from the end; "" if there is none."""
        return self.tokens[index] if -len(self.tokens) <= index < len(self.tokens) else ""

    # ---- names

    def variables(self, known: KnownNames) -> list[Offer]:
        """Return the names that may be read: of this text first, then of earlier cells, then of the library."""
        own = [Offer(name, kind, "declared above") for name, kind in self._declared() if kind != "agent"]
        earlier = [
            Offer(name, "function" if name in known.functions else "variable")
            for name in sorted(known.variables | set(known.functions))
        ]
        return [*own, *earlier, *(Offer(name, "function", entry.summary) for name, entry in _words().functions.items())]

    def agents(self, known: KnownNames) -> list[Offer]:
        own = [name for name, kind in self._declared() if kind == "agent"]
        return [Offer(name, "agent") for name in dict.fromkeys([*own, *known.agents])]

    def _possible_agents(self, known: KnownNames, values: Mapping[str, Any]) -> list[Offer]:
        """Return the variables that hold an agent, or whose value is unknown because this text binds them."""
        own = {name for name, _ in self._declared()}
        found = [offer for offer in self.variables(known) if offer.kind == "variable"]
        kinds = {name: getattr(values[name], "kind", "") for name in values.keys() - own}
        return [offer for offer in found if kinds.get(offer.text, "agent") == "agent"]

    def _declared(self) -> Iterator[tuple[str, str]]:
        """Yield the names that this text binds, each with its kind."""
        tokens = self.tokens
        for index, token in enumerate(tokens):
            if KINDS.get(token[0]) != WORD or token in RESERVED:
                continue
            before, after = tokens[index - 1] if index else "", self._at(index + 1)
            if before in ("agent", "def"):
                yield token, before.replace("def", "function")
            elif before == "@":
                if self._at(index - 2) == "import" and after != "as":
                    yield token, "agent"
            elif before == "as":
                yield token, "agent" if self._at(index - 3) == "@" else "variable"
            elif before in ("for", "import") and after != "as":
                yield token, "variable"
        starts = {first for _, first in self.lines}
        for first in starts:
            if self._at(first + 1) == "=" and self._at(first) not in RESERVED:
                yield self._at(first), "variable"
            elif self._at(first) == "def" and self._at(first + 2) == "(":
                for index in range(first + 3, len(tokens)):
                    if tokens[index] == ")":
                        break
                    if tokens[index] != ",":
                        yield tokens[index], "variable"

    # ---- strings

    def in_string(self, known: KnownNames) -> list[Offer]:
        """Offer the values of the key that the string belongs to."""
        if self._at(-1) == "from":
            return [Offer("", "programs")]
        index = -1
        while self._at(index) in ("[", ",") or (self._at(index)[:1] == '"' and self.open):
            index -= 1  # skip the elements before it in a list
        key = self._at(index - 1)
        if self._at(index) not in ("=", ":"):
            return []
        if key == "kind":
            return [Offer(kind, "value", f"error: {meaning}") for kind, meaning in _words().error_kinds.items()]
        if key == "skills":
            own = [t.strip('"') for at, t in enumerate(self.tokens) if at and self.tokens[at - 1] == "import"]
            return [Offer(name, "value") for name in dict.fromkeys([*own, *known.skills])]
        entry = _words().properties.get(key)
        return [Offer(value.strip('"'), "value") for value in entry.values if value[:1] == '"'] if entry else []

    # ---- code

    def in_code(self, known: KnownNames, values: Mapping[str, Any]) -> list[Offer]:
        before = self._at(-1)
        if self.at_line_start:
            return self._statements(known)
        if before == "@":
            return [*self.agents(known), *(self._possible_agents(known, values) if self._at(-2) != "export" else ())]
        if before == ".":
            return self._after_dot(known, values)
        if before in _NEW_NAME and not self.open:
            return []
        if self.open:
            return self._in_brackets(known)
        return self._in_line(known)

    def _statements(self, known: KnownNames) -> list[Offer]:
        """Offer the words that can begin a line; the blocks around it decide."""
        blocks: list[tuple[int, str]] = []
        aligned = ""
        for column, first in [*self.lines, (self.column, -1)]:
            aligned = ""
            while blocks and blocks[-1][0] >= column:
                at, word = blocks.pop()
                aligned = word if at == column else ""
            if first >= 0:
                blocks.append((column, self.tokens[first]))
        around = [word for _, word in blocks]
        clauses = _CLAUSES.get(aligned, ())
        if around and around[-1] in PART_WORDS:
            return _keywords([PART_WORDS[around[-1]]])
        words = [*clauses, *_STATEMENT_WORDS, *(_MODULE_WORDS if not around else ())]
        words += ["return"] if "def" in around else []
        words += ["break", "continue"] if {"while", "for"} & set(around) else []
        return [*_keywords(words), *self.variables(known)]

    def _after_dot(self, known: KnownNames, values: Mapping[str, Any]) -> list[Offer]:
        path: list[str] = []
        index = len(self.tokens) - 1
        while index >= 1 and self.tokens[index] == "." and KINDS.get(self.tokens[index - 1][0]) == WORD:
            path.insert(0, self.tokens[index - 1])
            index -= 2
        derive = [Offer("with", "keyword", "Derive an agent: `.with(key=value)`.")]
        if index >= 0 and self.tokens[index] == "@":
            return derive
        agents = {offer.text for offer in self.agents(known)}
        return [*_members(path, values), *(derive if len(path) == 1 and path[0] in agents else [])]

    def _in_brackets(self, known: KnownNames) -> list[Offer]:
        opened = self.open[-1]
        before = self._at(-1)
        names = [*self.variables(known), *self.agents(known)]
        owner = self._owner(opened)
        if before in ("=", ":"):
            entry = _words().properties.get(self._at(-2))
            found = [Offer(value, "value") for value in entry.values] if entry else []
            return [*found, *_keywords(_VALUE_WORDS), *names]
        if before in ("(", "{", "[", ","):
            keys = [] if self.tokens[opened] == "[" else self._keys_of(opened, owner, known)
            if owner in _ONLY_KEYS:
                return keys
            return [*keys, *_keywords(_VALUE_WORDS), *names] if before != "{" else []  # a new key
        return self._after_value(names)

    def _owner(self, opened: int) -> str:
        """Return the name under which words.toml lists the keys of a bracket; "" if they are not listed."""
        sign, before, further = self.tokens[opened], self._token(opened - 1), self._token(opened - 2)
        if sign == "{":
            if before == "@":
                return "agent"
            return further if before in ("=", ":") and further in ("permissions", "memory") else ""
        if sign != "(":
            return ""
        if further == "agent" or (before == "with" and further == "."):
            return "agent"
        if further == "constrain":
            return "constrain"
        if before == "error" and further == "case":
            return "error"
        if before == "perm":
            return "permissions"
        return "agent call" if before[:1] == "`" and further != "?" else ""

    def _token(self, index: int) -> str:
        """Return the token at an index; "" for one before the first token."""
        return self.tokens[index] if index >= 0 else ""

    def _keys_of(self, opened: int, owner: str, known: KnownNames) -> list[Offer]:
        if owner == "error":
            return [Offer("kind=", "property", "Error values of one kind."), Offer("_", "keyword", "Any error value.")]
        if owner:
            after = ": " if self.tokens[opened] == "{" and self._token(opened - 1) != "@" else "="
            found = [(name, entry) for name, entry in _words().properties.items() if owner in entry.owners]
            return [Offer(f"{name}{after}", "property", entry.summary) for name, entry in found]
        name = self._token(opened - 1)
        parameters = known.functions.get(name) or LIBRARY.get(name, ())
        return [Offer(f"{one}=", "property", f"of {name}") for one in parameters]

    def _in_line(self, known: KnownNames) -> list[Offer]:
        """Offer completions inside a statement, outside of brackets."""
        first = self.tokens[self.lines[-1][1] :]
        names = [*self.variables(known), *self.agents(known)]
        if first == ["with"]:
            return _keywords(["input"])
        if first == ["export"]:
            exported = [Offer("pack", "function", _words().functions["pack"].summary)]
            return [*(offer for offer in self.variables(known) if offer.text not in LIBRARY), *exported]
        if first[0] in ("import", "from"):
            after = _NEXT_IMPORT_WORD.get((first[0], len(first)))
            return _keywords([after] if after and self._at(-1) != "@" else [])
        if first == ["except"]:
            return _keywords(["as"])
        if first == ["case"]:
            return [*_keywords(["error"]), Offer("_", "keyword", "Any value.")]
        if first[0] in ("raise", "option", "require", "pass", "break", "continue", "else", "try", "finally"):
            return []
        return self._after_value(names)

    def _after_value(self, names: list[Offer]) -> list[Offer]:
        """Offer operators after a value, values after an operator or a word that needs one."""
        before = self._at(-1)
        kind = KINDS.get(before[:1])
        ends = before in (*")]}", "it", "true", "false") or kind in (NUMBER, STRING, TEMPLATE)
        if not ends and not (kind == WORD and before not in RESERVED):
            return [*_keywords(_VALUE_WORDS), *names]
        words = ["and", "or"]
        line = self.tokens[self.lines[-1][1] :] if self.lines else []
        if not self.open and line and line[0] == "for" and len(line) == 2:
            return _keywords(["in"])
        if not self.open and line and line[0] == "choose":
            words = ["as"] if "by" in line else ["by", *words]
        return _keywords(words)
