"""What differs between two requests: what a miss says, and two cassettes compared (docs/reference/sessions.md 4.2)."""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from prose_kernel.cassettes import records
from prose_kernel.cassettes.cassette_files import CassetteFile, Entry
from prose_kernel.runtime.text import one_line

CANDIDATES: Final = 20
FINALISTS: Final = 3
COMPARED: Final = 2_000
WORDS: Final = 200
ALIKE: Final = 0.5
SHOWN: Final = 24
_LONG: Final = frozenset({"sha256", "chars", "head"})
_TEXTS: Final = ("prompt", "condition", "text")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two requests differ: a field, and in a text the character (from 1)."""

    field: str
    said: str

    def __str__(self) -> str:
        return f"`{self.field}` {self.said}"


class Nearest:
    """Finds the record that comes closest to a request. `own` is the recording that is written; "" means any.

    What it knows of the records is kept, so that a thousand misses do not read a thousand times.
    """

    def __init__(self, entries: Iterable[Entry], own: str = "") -> None:
        self._own = own
        self._entries = [entry for entry in entries if entry.record.t in ("session", "error", "judge")]
        self._requests: dict[int, dict[str, Any]] = {}
        self._parts: dict[int, frozenset[tuple[str, str]]] = {}
        self._at: dict[str, list[Entry]] = {}
        for entry in self._entries:
            self._at.setdefault(entry.record.at, []).append(entry)

    def find(self, req: Mapping[str, Any], at: str) -> tuple[Entry, bool] | None:
        """The nearest record, and whether it has the same path.

        The path counts in the recording of this notebook or program; those of others have the same paths by chance.
        """
        asked = _Asked(req)
        here = [entry for entry in self._at.get(at, ()) if self._comparable(entry, req)]
        own = [entry for entry in here if self._own in ("", entry.file)]
        if own:
            return max(own, key=lambda entry: self._rank(entry, asked)), True
        comparable = [entry for entry in self._entries if self._comparable(entry, req)]
        if not comparable:
            return None
        best = heapq.nlargest(CANDIDATES, comparable, key=lambda entry: self._rank(entry, asked))
        best = heapq.nlargest(FINALISTS, best, key=lambda entry: self._likeness(entry, asked, exact=False))
        nearest = max(best, key=lambda entry: self._likeness(entry, asked, exact=True))
        if here and self._likeness(nearest, asked, exact=True)[0] < ALIKE:
            nearest = max(here, key=lambda entry: self._rank(entry, asked))
        return nearest, nearest in here

    def request(self, entry: Entry) -> dict[str, Any]:
        found = self._requests.get(id(entry))
        if found is None:
            found = self._requests[id(entry)] = records.mapping(entry.record.req)
        return found

    def _comparable(self, entry: Entry, req: Mapping[str, Any]) -> bool:
        """A session is compared with sessions, a judgement with judgements of its kind."""
        kinds = {str(self.request(entry).get("kind")), str(req.get("kind"))}
        return len(kinds) == 1 or kinds == {"session", "resume"}

    def _rank(self, entry: Entry, asked: _Asked) -> tuple[int, int]:
        """How many fields are the same, and how far the texts agree: cheap, and good enough to choose candidates."""
        other = self.request(entry)
        parts = self._parts.get(id(entry))
        if parts is None:
            parts = self._parts[id(entry)] = _parts(other)
        return len(parts & asked.parts), _agreement(_main_text(other)[:COMPARED], asked.text)

    def _likeness(self, entry: Entry, asked: _Asked, *, exact: bool) -> tuple[float, int, int]:
        """How much of the words is the same; `exact` heeds their order."""
        words = _main_text(self.request(entry))[:COMPARED].split()[:WORDS]
        matcher = difflib.SequenceMatcher(None, words, asked.words, autojunk=False)
        ratio = matcher.ratio() if exact else matcher.quick_ratio()
        return round(ratio, 6), *self._rank(entry, asked)


class _Asked:
    """What a request is compared by, taken apart once."""

    def __init__(self, req: Mapping[str, Any]) -> None:
        self.parts = _parts(req)
        self.text = _main_text(req)[:COMPARED]
        self.words = self.text.split()[:WORDS]


def _parts(req: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    return frozenset((name, repr(value)) for name, value in req.items())


def _main_text(req: Mapping[str, Any]) -> str:
    return next((_beginning(req[name]) for name in _TEXTS if name in req), "")


def _beginning(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("head", ""))
    return value if isinstance(value, str) else ""


def _agreement(one: str, other: str) -> int:
    """Return the length of the two texts' common beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


# ---------------------------------------------------------------- what differs


def differences(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> list[Difference]:
    """Return the differences between two requests, field by field; prompts first.

    Records from before version 0.2 hold a digest of all rules, and tools for the session's own files.
    """
    if isinstance(recorded.get("perm"), str) and isinstance(asked.get("perm", {}), Mapping):
        tools = {"tools": asked["tools"]} if {*recorded.get("tools", ())} >= {*asked.get("tools", ("",))} else {}
        known = {name: value for name, value in recorded.items() if name not in ("perm", *tools)}
        now = {name: value for name, value in asked.items() if name not in ("perm", *tools)}
        return differences(known, now) or [Difference("permissions", "are others than in the recording")]
    order = [*_TEXTS, "system", "context", "bindings", "memory", "options", "model", "kind", "tools", "perm", "skills"]
    names = [name for name in order if name in recorded or name in asked]
    names += sorted((recorded.keys() | asked.keys()) - set(names))
    found: list[Difference] = []
    for name in names:
        found += _differs(name, recorded.get(name), asked.get(name))
    return found


def _differs(name: str, recorded: Any, asked: Any) -> list[Difference]:
    if recorded == asked:
        return []
    if name in ("context", "bindings", "skills"):
        return _members(name, recorded or {}, asked or {})
    if name in (*_TEXTS, "system"):
        return [Difference(name, text_difference(recorded, asked))]
    if name == "memory":
        return [Difference(name, "holds something else")]
    if name == "perm":
        return _rules(recorded, asked)
    return [Difference(name, f"is {shown(asked)} instead of {shown(recorded)}")]


def _rules(recorded: Any, asked: Any) -> list[Difference]:
    """The rules that differ, each by its name."""
    if isinstance(recorded, str) or isinstance(asked, str):
        return [Difference("permissions", "are others than in the recording")]
    before, now = recorded or {}, asked or {}
    return [
        Difference(f"permissions.{kind}", f"is {shown(now.get(kind))} instead of {shown(before.get(kind))}")
        for kind in sorted(before.keys() | now.keys())
        if before.get(kind) != now.get(kind)
    ]


def _members(name: str, recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> list[Difference]:
    found = []
    for member in [*recorded, *(m for m in asked if m not in recorded)]:
        field = f"{name}.{member}"
        if member not in asked:
            found.append(Difference(field, "is not there any more"))
        elif member not in recorded:
            found.append(Difference(field, "is new"))
        elif recorded[member] != asked[member]:
            found.append(Difference(field, _content_difference(recorded[member], asked[member])))
    return found


def _content_difference(recorded: Any, asked: Any) -> str:
    """Describe the difference between two contexts: in the text, or with the same text in an image."""
    if isinstance(recorded, Mapping) and isinstance(asked, Mapping) and recorded.get("sha256") == asked.get("sha256"):
        return "holds another image" if recorded.get("images") else "was recorded without its image"
    return text_difference(recorded, asked)


def text_difference(recorded: Any, asked: Any) -> str:
    if recorded is None or asked is None:
        return "is new" if recorded is None else "is not there any more"
    if not _is_text(recorded) or not _is_text(asked):
        return "is something else"
    was, is_now = _beginning(recorded), _beginning(asked)
    at = _agreement(was, is_now)
    if at == len(was) == len(is_now):
        return f"differs behind its first {at:,} characters ({_length(recorded):,} recorded, {_length(asked):,} now)"
    return f"differs at character {at + 1}: {_piece(is_now, at)} instead of {_piece(was, at)}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, Mapping) and value.keys() >= _LONG)


def _length(value: Any) -> int:
    return int(value["chars"]) if isinstance(value, Mapping) else len(value)


def _piece(text: str, at: int) -> str:
    """The words around a place, in quotes."""
    start = max(0, at - SHOWN // 2)
    piece = one_line(text[start : at + SHOWN], 2 * SHOWN)
    if not piece:
        return "nothing" if at >= len(text) else "blank space"
    return '"' + ("…" if start else "") + piece + ("…" if at + SHOWN < len(text) else "") + '"'


def shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return one_line(", ".join(map(str, value)) or "none", 80)
    return one_line(str(value), 80)


# ---------------------------------------------------------------- the message


def command(program: str) -> str:
    """The command that records what is missing."""
    if program.endswith((".prose", ".vvm", ".ipynb")):
        return f"record it: `prose run --cassette-mode=auto {program}`, with a provider or a person to answer"
    return "record it: `%cassette --mode auto`, then run the cell again, with a provider or a person to answer"


def message(what: str, nearest: Nearest, req: Mapping[str, Any], at: str, *, used_up: int = 0) -> str:
    """Why there is no answer, in one line. `used_up`: so many records have the same key, and all are used."""
    if used_up:
        plural = "record is" if used_up == 1 else "records are"
        return (
            f"nothing is recorded for {what}: the same was asked before, and its {used_up} {plural} used"
            ' (`repeats = "reuse"` would answer with the last)'
        )
    found = nearest.find(req, at)
    if found is None:
        return f"nothing is recorded for {what}: there is no cassette with such a record"
    entry, same = found
    where = "the record at the same path" if same else f"the nearest record ({entry.record.at})"
    differing = differences(nearest.request(entry), req)
    told = "; ".join(map(str, differing[:2])) + (f" and {len(differing) - 2} more" if len(differing) > 2 else "")
    if not differing:
        told = f"has no attempt left (it has {entry.record.tried})"
    return f"nothing is recorded for {what}: {where} is {entry.file}, line {entry.line}: {told}"


# ---------------------------------------------------------------- two cassettes

What = Literal["added", "removed", "moved", "changed"]


@dataclass(frozen=True, slots=True)
class Change:
    """One record that differs. `before` is the former place of a moved one; `details` say what differs, one line
    each."""

    what: What
    type: str
    at: str
    tried: int = 1
    before: str = ""
    details: tuple[str, ...] = ()


def changes(old: CassetteFile, new: CassetteFile) -> list[Change]:
    """Return the changes from one cassette to another, in the order of the new one; removed records come last."""
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
    """Return the differences between two records of one place: the question, then the answer, then its source."""
    if old.record.t != new.record.t:
        yield f"was {_noun(old)}, is {_noun(new)}"
    asked = differences(records.mapping(old.record.req), records.mapping(new.record.req))
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
        return text_difference(was, is_now)
    if isinstance(was, list) and isinstance(is_now, list):
        return _lists(was, is_now)
    return f"is {shown(is_now)} instead of {shown(was)}"


def _lists(was: list[Any], is_now: list[Any]) -> str:
    def name(item: Any) -> str:
        return str(item.get("path") or item.get("tool") or item) if isinstance(item, Mapping) else str(item)

    differing = [name(new) for old, new in zip(was, is_now, strict=False) if old != new]
    differing += [name(item) for item in [*was[len(is_now) :], *is_now[len(was) :]]]
    return f"differs in {shown(differing)}"
