"""Two cassettes compared by what they mean: which records are new, gone, moved or changed, and in what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from prose_kernel.recordings import misses, records
from prose_kernel.recordings.cassette_files import CassetteFile, Entry

What = Literal["added", "removed", "moved", "changed"]


@dataclass(frozen=True, slots=True)
class Change:
    """One record that differs. `before` is where a moved one stood; `details` say what differs, one line each."""

    what: What
    type: str
    at: str
    tried: int = 1
    before: str = ""
    details: tuple[str, ...] = ()


def changes(old: CassetteFile, new: CassetteFile) -> list[Change]:
    """What has happened between two cassettes, in the order of the new one; what is gone comes last."""
    before, after = _counting(old), _counting(new)
    by_key = {(e.record.key, e.record.at, e.record.tried): e for e in before}
    by_path = {(_family(e), e.record.at, e.record.tried): e for e in before}
    pairs: dict[int, Entry] = {}
    taken: set[int] = set()

    def pair(entry: Entry, former: Entry | None) -> None:
        if former is not None and id(former) not in taken and id(entry) not in pairs:
            pairs[id(entry)] = former
            taken.add(id(former))

    for entry in after:
        pair(entry, by_key.get((entry.record.key, entry.record.at, entry.record.tried)))
    moved: dict[tuple[str, int], list[Entry]] = {}
    for entry in before:
        if id(entry) not in taken:
            moved.setdefault((entry.record.key, entry.record.tried), []).append(entry)
    for entry in after:
        waiting = moved.get((entry.record.key, entry.record.tried)) if id(entry) not in pairs else None
        if waiting:
            pair(entry, waiting.pop(0))
    for entry in after:
        pair(entry, by_path.get((_family(entry), entry.record.at, entry.record.tried)))
    found = [change for entry in after if (change := _change(pairs.get(id(entry)), entry)) is not None]
    gone = [entry for entry in before if id(entry) not in taken]
    return found + [Change("removed", e.record.t, e.record.at, e.record.tried) for e in gone]


def _counting(found: CassetteFile) -> list[Entry]:
    return [entry for entry in found.entries if entry.record.t in records.ANSWERS and not entry.replaced]


def _family(entry: Entry) -> str:
    """What a record answers: a session's answer and its failure answer the same."""
    return "session" if entry.record.t == "error" else entry.record.t


def _change(old: Entry | None, new: Entry) -> Change | None:
    record = new.record
    if old is None:
        return Change("added", record.t, record.at, record.tried)
    details = tuple(details_of(old, new))
    if old.record.at != record.at:
        return Change("moved", record.t, record.at, record.tried, old.record.at, details)
    return Change("changed", record.t, record.at, record.tried, "", details) if details else None


def details_of(old: Entry, new: Entry) -> Iterable[str]:
    """What differs between two records of one place: what was asked, then what was answered, then by whom."""
    if old.record.t != new.record.t:
        yield f"was {_noun(old)}, is {_noun(new)}"
    asked = misses.differences(records.mapping(old.record.req), records.mapping(new.record.req))
    yield from map(str, asked)
    was, is_now = records.mapping(old.record.out), records.mapping(new.record.out)
    for name in sorted(was.keys() | is_now.keys()):
        if name == "summary" and was.get("text") != is_now.get("text"):
            continue  # made of the text
        if was.get(name) != is_now.get(name):
            yield f"answer: `{name}` {_told(was.get(name), is_now.get(name))}"
    told = (records.mapping(old.record.meta), records.mapping(new.record.meta))
    for name in ("origin", "provider", "resolved"):
        if told[0].get(name) != told[1].get(name):
            yield f"{name}: {told[1].get(name) or 'none'} instead of {told[0].get(name) or 'none'}"


def _noun(entry: Entry) -> str:
    return {"error": "a failure", "session": "an answer"}.get(entry.record.t, entry.record.t)


def _told(was: Any, is_now: Any) -> str:
    if isinstance(was, str) and isinstance(is_now, str):
        return misses.text_difference(was, is_now)
    if isinstance(was, list) and isinstance(is_now, list):
        return _lists(was, is_now)
    return f"is {misses.shown(is_now)} instead of {misses.shown(was)}"


def _lists(was: list[Any], is_now: list[Any]) -> str:
    def name(item: Any) -> str:
        return str(item.get("path") or item.get("tool") or item) if isinstance(item, Mapping) else str(item)

    differing = [name(new) for old, new in zip(was, is_now, strict=False) if old != new]
    differing += [name(item) for item in [*was[len(is_now) :], *is_now[len(was) :]]]
    return f"differs in {misses.shown(differing)}"
