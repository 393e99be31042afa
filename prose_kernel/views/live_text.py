"""Texts for live views: lines, elapsed times, estimates, passes, consumption, and the names of branches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from prose_kernel.language.text import clipped
from prose_kernel.runs.languages import Language
from prose_kernel.runtime.events import ParallelStarted
from prose_kernel.runtime.json_data import json_text
from prose_kernel.runtime.running_loops import OpenLoop
from prose_kernel.runtime.values import Reference, Value, full_text, plain
from prose_kernel.views.escaping import clip, visible

if TYPE_CHECKING:
    from prose_kernel.views.run_record import Figures


MIN_FINISHED: Final = 3
"""The number of items that must have finished before a time is estimated."""
TITLE: Final = 60
"""The most characters of a command, a task, or the first line of a construct."""
_MODIFIERS: Final = re.compile(r" \([a-z-]+: [^()]*\)?…?\Z")


RUNS: Final = "▸"
"""The mark of running work in a language without its own markers."""


class LiveLine(Struct, frozen=True):
    """One line of a live view. `mark` is its state (`▸ ✗ ✓`, or a marker of its language), `about` a remark after its
    name, `time` its running time, `last` its last printed line."""

    name: str
    about: tuple[str, ...] = ()
    mark: str = RUNS
    depth: int = 0
    time: str = ""
    last: str = ""
    done: tuple[int, int] | None = None


def consumed_text(figures: Figures) -> str:
    """Return the tokens and US dollars so far; the dollars omit answers with an unknown price."""
    tokens = figures.tokens_in + figures.tokens_out
    if not tokens and not figures.cost:
        return ""
    money = f"${figures.cost:.4f}" if figures.cost else ""
    more = " and more" if money and figures.unpriced else ""
    return " · ".join(part for part in (f"{tokens:,} tokens", f"{money}{more}") if part)


def pass_text(loop: OpenLoop) -> str:
    number, maximum = loop.index + 1, loop.maximum
    if maximum is None:
        return f"pass {number:,}"
    return f"pass {number:,} of {maximum:,}" if loop.fixed else f"pass {number:,}, at most {maximum:,}"


def head_line(text: str) -> str:
    """Return the first line of a construct, which has its condition or its items."""
    return clip(text.partition("\n")[0].strip().removesuffix(":"), TITLE)


def fork_line(text: str) -> str:
    """Return the first line of a construct with branches, without its options for failures and strategies."""
    return _MODIFIERS.sub("", head_line(text))


def nonempty(parts: Iterable[str]) -> tuple[str, ...]:
    return tuple(part for part in parts if part)


def estimate(finished: int, left: int, seconds: float) -> str:
    """Estimate how long the rest takes from the finished items; "" if too few have finished."""
    if finished < MIN_FINISHED or left <= 0:
        return ""
    rest = seconds / finished * left
    if rest < 10:
        return "a few seconds left"
    step = 5 if rest < 60 else 30 if rest < 600 else 60
    return f"about {elapsed(round(rest / step) * step)} left"


def elapsed(seconds: float) -> str:
    """Return an elapsed time in whole seconds: `12 s`, `5 min 06 s`, `2 h 03 min`."""
    whole = int(seconds)
    if whole < 1:
        return ""
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02} min"


# ---------------------------------------------------------------- names of branches

_NAME_WIDTH: Final = 30
"""The most characters of an item's name."""
MAX_UNIQUE: Final = 10_000
"""The most items that get unique names; if there are more, each name contains the item's number."""
_LOOKED_AT: Final = 400
_NAMING_FIELDS: Final = ("name", "title", "id", "label", "path", "file", "url", "key")
"""Fields that identify an object: the first one that it has is used, otherwise its first short field."""


class BranchNames(Sequence[str]):
    """The names of the branches by index. Names of items are computed on first use and are unique."""

    def __init__(self, event: ParallelStarted, language: Language) -> None:
        self._event = event
        self._language = language
        self._all: list[str] | None = None

    def __len__(self) -> int:
        return self._event.count

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        event = self._event
        if not event.iterations:
            return (event.labels[index] if index < len(event.labels) else None) or f"_{index + 1}"
        if not event.items:
            return f"i{index}"
        if event.count > MAX_UNIQUE:
            return f"{item_name(event.items[index], self._language)} (i{index})".lstrip()
        if self._all is None:
            self._all = self._unique_names()
        return self._all[index]

    def _unique_names(self) -> list[str]:
        """Return the names; of items with equal texts, the second and later ones get numbers."""
        found: dict[str, int] = {}
        for index, item in enumerate(self._event.items):
            name = base = item_name(item, self._language) or f"i{index}"
            number = 1
            while name in found:
                number = max(number, found[base]) + 1
                name = f"{base} ({number})"
            found[name] = 1
            found[base] = max(found[base], number)
        return list(found)


def item_name(item: Value, language: Language) -> str:
    """Return the text of an item, shortened to one line; for an object, the field that names it."""
    if isinstance(item, dict) and language.kind_of(item) != "ref":
        telling = [*(item[key] for key in _NAMING_FIELDS if key in item), *item.values()]
        item = next((one for one in telling if isinstance(one, str) and 0 < len(one.strip()) <= _NAME_WIDTH), item)
    if isinstance(item, (list, Mapping)):
        text = json_text(plain(item[:20] if isinstance(item, list) else item))
    elif isinstance(item, Reference):
        text = item.summary or item.key.name
    else:
        text = item if isinstance(item, str) else language.text_of(item)
    return clipped(" ".join(visible(full_text(text)[:_LOOKED_AT]).split()), _NAME_WIDTH, tidy=True)
