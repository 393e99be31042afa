"""Removes secrets and directories from texts before anything is hashed or written (sessions.md 4.2).

It searches for the values of secret-looking environment variables, the shapes of tokens, the user's own expressions
and, for keys, the directories that differ from machine to machine. Patterns that a text cannot contain are excluded
first, by their fixed characters; the rest is one expression and one pass, linear in the text (the user's expressions
follow one by one).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from prose_kernel.errors import UsageError
from prose_kernel.runtime.redaction import SecretReplacer, mapped, secret_finds
from prose_kernel.runtime.secret_patterns import SHAPES, Find

CACHED: Final = 65_536
"""The size limit, in characters, of texts whose result is cached."""


def _places(places: Mapping[str, str]) -> tuple[Find, ...]:
    """Return the patterns of directories. A directory matches only as a whole path or the start of one: not `/home/al`
    in `/home/alice`."""
    known = sorted(places, key=len, reverse=True)
    return tuple(
        Find((place,), rf"(?<![\w.~-]){re.escape(place)}(?![\w~-]|\.\w)", places[place])
        for place in known
        if len(place) > 1
    )


class Redaction:
    """Removes secrets from texts that are written (`text`, `data`), and also directories from keys (`identity`).

    `places` maps directories to their placeholders. Raises `UsageError` for an invalid regular expression.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        expressions: Iterable[str] = (),
        places: Mapping[str, str] | None = None,
    ) -> None:
        self._secrets = (*secret_finds(environment or {}), *SHAPES)
        self._own = [_compiled(expression) for expression in expressions]
        self._known: dict[str, str] = {}
        self._written = SecretReplacer(self._secrets)
        self.learn(places or {})

    def learn(self, places: Mapping[str, str]) -> None:
        """Also remove these directories from keys: those of the machine on which something was recorded."""
        self._known = {**places, **self._known}
        self._places = [(re.compile(place.expression), place) for place in _places(self._known)]
        self._hashed = SecretReplacer((*self._secrets, *(place for _, place in self._places)))
        self._short = lru_cache(maxsize=128)(self._identity)  # system prompts and contexts repeat

    def places_in(self, texts: Iterable[str], words: Iterable[str]) -> dict[str, str]:
        """Return, by placeholder, the first directory that occurs in one of the texts."""
        wanted = frozenset(words)
        found: dict[str, str] = {}
        for text in texts:
            for expression, find in self._places:
                if find.word in wanted and find.fixed[0] in text and expression.search(text):
                    found.setdefault(find.word, find.fixed[0])
        return found

    def text(self, text: str) -> str:
        """Return the text without secrets, otherwise unchanged."""
        return self._without_own(self._written(text))

    def identity(self, text: str) -> str:
        """Return the text for a key: without secrets, directories and trailing spaces, in NFC, with LF line ends."""
        return self._short(text) if len(text) <= CACHED else self._identity(text)

    def _identity(self, text: str) -> str:
        text = without_surrogates(text)
        if not text.isascii():
            text = unicodedata.normalize("NFC", text)
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        text = self._without_own(self._hashed(text))
        if " \n" in text or "\t\n" in text:
            text = "\n".join([line.rstrip(" \t") for line in text.split("\n")])
        return text.rstrip(" \t\n")

    def data(self, data: Any) -> Any:
        """Return plain data with every text in it redacted, also the names of members."""
        return mapped(data, lambda text: self.text(without_surrogates(text)))

    def _without_own(self, text: str) -> str:
        for expression in self._own:
            text = expression.sub(lambda match: "«secret:custom»" if match[0] else "", text)
        return text


def _compiled(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except re.error as problem:
        raise UsageError(
            f"cassette redaction: `{expression}` is not a regular expression: {problem}",
            hint="correct it in prose.toml, `[cassette] redact`",
        ) from None


def without_surrogates(text: str) -> str:
    """Return a text that UTF-8 can encode: a lone surrogate becomes U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
