"""What a language says of its words: their documentation, and what completion offers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Entry:
    """A word of a language: one sentence, an example, and for a property its values and where it may stand."""

    summary: str
    example: str
    values: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()


class Offer(NamedTuple):
    """One completion: the text to insert, what it is (`variable`, `agent`, `keyword` …), a short note.

    Of the kinds `programs`, `directories` and `files` it stands for all paths of that kind.
    """

    text: str
    kind: str
    note: str = ""


class Completion(NamedTuple):
    """Offers for what is typed from `start` to the cursor."""

    start: int
    offers: Iterable[Offer] = ()
