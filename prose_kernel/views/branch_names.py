"""Name the branches of a `parallel`: by their labels, or by the items of their iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from prose_kernel.language.text import clipped
from prose_kernel.runs.languages import Language
from prose_kernel.runtime.events import ParallelStarted
from prose_kernel.runtime.json_text import json_text
from prose_kernel.runtime.values import Reference, Value, full_text, plain
from prose_kernel.views.escaping import visible

WIDTH: Final = 30
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
        item = next((one for one in telling if isinstance(one, str) and 0 < len(one.strip()) <= WIDTH), item)
    if isinstance(item, (list, Mapping)):
        text = json_text(plain(item[:20] if isinstance(item, list) else item))
    elif isinstance(item, Reference):
        text = item.summary or item.key.name
    else:
        text = item if isinstance(item, str) else language.text_of(item)
    return clipped(" ".join(visible(full_text(text)[:_LOOKED_AT]).split()), WIDTH, tidy=True)
