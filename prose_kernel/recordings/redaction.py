"""Secrets and places are taken out of a text before anything is hashed or written (sessions.md 4.2).

Looked for are the values of secret-looking environment variables, token shapes, a person's own expressions and, for
keys, the directories that differ from machine to machine. What a text cannot hold is ruled out by its fixed characters
first; the rest is one expression and one pass, linear in the text (a person's own expressions follow one by one).
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from prose_kernel.errors import UsageError
from prose_kernel.runtime.secret_patterns import SHAPES, Find

SHORTEST: Final = 8
"""Characters that the value of a secret-looking variable must have: shorter ones occur in ordinary text."""

PHRASE: Final = 16
LONG: Final = 20
"""Characters from which several words, or one without a break, are taken for a secret."""

CACHED: Final = 65_536
"""Characters of a text that are worth remembering."""

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|AUTH|PRIVATE|COOKIE", re.IGNORECASE)
_NAMES_A_PLACE = re.compile(r"(?:FILE|PATH|DIR|SOCK|SOCKET)\Z|\AXAUTHORITY\Z", re.IGNORECASE)


def looks_secret(value: str) -> bool:
    """Whether the value of a secret-looking variable could be a secret, and not an ordinary word, number or path.

    A known token shape is one, and so is a phrase of several words; anything else has several kinds of characters, or
    is long without a break, and its characters vary.
    """
    if len(value) < SHORTEST:
        return False
    if any(value.startswith(fixed) for find in SHAPES for fixed in find.fixed):
        return True
    if value[:1] in "/~." or "://" in value[:12]:
        return re.search(r"[^\s:/@]+:[^\s/@]+@", value) is not None  # a URL with a password
    words = [word for word in re.split(r"[-_.\s]+", value) if word]
    if len(words) >= 3 and len(value) >= PHRASE:
        return True
    kinds = (str.isupper, str.islower, str.isdigit, lambda c: not c.isalnum() and c not in "-_. ")
    mixed = sum(any(kind(character) for character in value[1:]) for kind in kinds)
    counts = [value.count(character) / len(value) for character in set(value)]
    entropy = -sum(share * math.log2(share) for share in counts)
    return entropy >= (2.5 if mixed > 1 else 3.0 if len(words) == 1 and len(value) >= LONG else math.inf)


def _secrets(environment: Mapping[str, str]) -> tuple[Find, ...]:
    """The values of secret-looking variables, the longest first; one that has two names goes by the first of them."""
    names: dict[str, str] = {}
    for name, value in sorted(environment.items()):
        if looks_secret(value) and _SECRET_NAME.search(name) and not _NAMES_A_PLACE.search(name):
            names.setdefault(unicodedata.normalize("NFC", value), name)
    values = sorted(names, key=len, reverse=True)
    return tuple(Find((value,), re.escape(value), f"«env:{names[value]}»") for value in values)


def _places(places: Mapping[str, str]) -> tuple[Find, ...]:
    """A directory counts where it stands for itself or what is below it: not `/home/al` in `/home/alice`."""
    known = sorted(places, key=len, reverse=True)
    return tuple(
        Find((place,), rf"(?<![\w.~-]){re.escape(place)}(?![\w~-]|\.\w)", places[place])
        for place in known
        if len(place) > 1
    )


class _Pass:
    """All that is looked for in one pass."""

    def __init__(self, finds: tuple[Find, ...]) -> None:
        self._finds = finds
        self._fixed = [(fixed, number) for number, find in enumerate(finds) for fixed in find.fixed]
        self._compiled: dict[tuple[int, ...], re.Pattern[str]] = {}

    def __call__(self, text: str) -> str:
        present = tuple([number for fixed, number in self._fixed if fixed in text])
        if not present:
            return text
        present = tuple(dict.fromkeys(present))
        expression = self._compiled.get(present)
        if expression is None:
            parts = (f"({self._finds[number].expression})" for number in present)
            expression = self._compiled[present] = re.compile("|".join(parts))
        words = [self._finds[number].word for number in present]
        return expression.sub(lambda match: words[(match.lastindex or 1) - 1], text)


class Redaction:
    """What is taken out of texts: for writing (`text`, `data`), and for keys (`identity`), where places go as well.

    `places` maps directories to the words that stand for them. Raises `UsageError` for an expression that is none.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        expressions: Iterable[str] = (),
        places: Mapping[str, str] | None = None,
    ) -> None:
        self._secrets = (*_secrets(environment or {}), *SHAPES)
        self._own = [_compiled(expression) for expression in expressions]
        self._known: dict[str, str] = {}
        self._written = _Pass(self._secrets)
        self.learn(places or {})

    def learn(self, places: Mapping[str, str]) -> None:
        """Take further places out of keys: those of the machine that something was recorded on."""
        self._known = {**places, **self._known}
        self._places = [(re.compile(place.expression), place) for place in _places(self._known)]
        self._hashed = _Pass((*self._secrets, *(place for _, place in self._places)))
        self._short = lru_cache(maxsize=128)(self._identity)  # the same system prompt and context come again and again

    def places_in(self, texts: Iterable[str], words: Iterable[str]) -> dict[str, str]:
        """The first place for each of the words that stands in one of the texts: word to place."""
        wanted = frozenset(words)
        found: dict[str, str] = {}
        for text in texts:
            for expression, find in self._places:
                if find.word in wanted and find.fixed[0] in text and expression.search(text):
                    found.setdefault(find.word, find.fixed[0])
        return found

    def text(self, text: str) -> str:
        """The text without secrets, everything else as it is."""
        return self._without_own(self._written(text))

    def identity(self, text: str) -> str:
        """The text as it counts for a key: without secrets and places, composed, lines ended by LF, none by spaces."""
        return self._short(text) if len(text) <= CACHED else self._identity(text)

    def _identity(self, text: str) -> str:
        text = sound(text)
        if not text.isascii():
            text = unicodedata.normalize("NFC", text)
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        text = self._without_own(self._hashed(text))
        if " \n" in text or "\t\n" in text:
            text = "\n".join([line.rstrip(" \t") for line in text.split("\n")])
        return text.rstrip(" \t\n")

    def data(self, data: Any) -> Any:
        """Plain data with every text in it redacted, the names of members too."""
        return mapped(data, lambda text: self.text(sound(text)))

    def _without_own(self, text: str) -> str:
        for expression in self._own:
            text = expression.sub(_custom, text)
        return text


def mapped(data: Any, change: Callable[[str], str]) -> Any:
    """Plain data with every text in it changed, the names of members too."""
    match data:
        case str():
            return change(data)
        case Mapping():
            return {change(str(name)): mapped(value, change) for name, value in data.items()}
        case list() | tuple():
            return [mapped(value, change) for value in data]
        case _:
            return data


def _custom(match: re.Match[str]) -> str:
    return "«secret:custom»" if match[0] else ""


def _compiled(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except re.error as problem:
        raise UsageError(
            f"cassette redaction: `{expression}` is not a regular expression: {problem}",
            hint="correct it in prose.toml, `[cassette] redact`",
        ) from None


def sound(text: str) -> str:
    """The text as UTF-8 can hold it: a lone surrogate becomes U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
