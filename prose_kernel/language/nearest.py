"""Finds the name that a user probably meant to type, for hints (openprose.md 9.6)."""

from __future__ import annotations

from collections.abc import Iterable

_BUDGET = 20_000  # comparisons per program: time must stay linear even if all names are wrong


class Nearest:
    """Finds the nearest name by edit distance; returns None after a fixed budget of comparisons."""

    def __init__(self) -> None:
        self._left = _BUDGET

    @property
    def has_budget(self) -> bool:
        """Whether any of the budget is left."""
        return self._left > 0

    def __call__(self, name: str, candidates: Iterable[str]) -> str | None:
        """Return the candidate with the fewest typing errors, the first by alphabet; None if none is close."""
        allowed = _max_distance(len(name))
        if not allowed:
            return None
        best: tuple[int, str] | None = None
        for candidate in candidates:
            if self._left <= 0:
                break
            self._left -= 1
            if candidate == name or abs(len(candidate) - len(name)) > allowed or len(candidate) < 2:
                continue
            distance = _distance(name.casefold(), candidate.casefold())
            if distance <= allowed and (best is None or (distance, candidate) < best):
                best = distance, candidate
        return best[1] if best else None


def containing(name: str, candidates: Iterable[str]) -> str | None:
    """Return the first candidate, by alphabet, that begins with `name` or has it as a part (`parallel` in
    `max_parallel`); None if there is none, or if `name` has fewer than four letters."""
    part = name.casefold()
    found = (one for one in candidates if one.casefold().startswith(part) or part in one.casefold().split("_"))
    return min(found, default=None) if len(part) > 3 else None


def did_you_mean(name: str | None) -> str | None:
    """Return the hint for a nearest name; None without a name."""
    return f"did you mean `{name}`?" if name else None


def nearest_hint(name: str, candidates: Iterable[str], otherwise: str | None = None) -> str | None:
    """Return the hint for the nearest of the candidates; `otherwise` if none is close."""
    return did_you_mean(Nearest()(name, candidates)) or otherwise


def _max_distance(length: int) -> int:
    """Return how many typing errors a name may have; 0 for names that are very short or too long to type by hand."""
    if length < 3 or length > 64:
        return 0
    return 1 if length < 5 else 2 if length < 9 else 3


def _distance(a: str, b: str) -> int:
    """Return the number of edits (insert, delete, replace, swap neighbours) that turn `a` into `b`."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        before, previous, row = row, before, [i]
        for j, right in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (left != right))
            if i > 1 and j > 1 and left == b[j - 2] and a[i - 2] == right:
                cost = min(cost, previous[j - 2] + 1)
            row.append(cost)
    return row[-1]
