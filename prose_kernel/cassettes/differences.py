"""Differences between two requests, for the message of a miss and the comparison of two cassettes.

See docs/reference/sessions.md 4.2.
"""

from __future__ import annotations

import difflib
import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from prose_kernel.cassettes import records
from prose_kernel.cassettes.cassette_files import CassetteFile, PlacedRecord
from prose_kernel.cassettes.records import SearchFields
from prose_kernel.language.text import as_argument, one_line

CANDIDATES: Final = 20
FINALISTS: Final = 3
COMPARED: Final = 2_000
WORDS: Final = 200
ALIKE: Final = 0.5
SHOWN: Final = 24
_LONG: Final = frozenset({"sha256", "chars", "head"})
_TEXTS: Final = ("prompt", "condition", "text")
_NOUNS: Final = {"error": "a failure", "session": "an answer"}


class _Request:
    """The parts of a request that are compared, split once."""

    __slots__ = ("kind", "parts", "text")

    def __init__(self, req: Mapping[str, Any]) -> None:
        self.kind = "session" if req.get("kind") == "resume" else str(req.get("kind"))
        self.parts = frozenset((name, repr(value)) for name, value in req.items())
        self.text = next((_beginning(req[name]) for name in _TEXTS if name in req), "")[:COMPARED]

    def rank(self, other: _Request) -> tuple[int, int]:
        """Return how many fields are equal, and the length of the texts' common beginning: cheap, and good enough to
        choose candidates."""
        return len(self.parts & other.parts), _common_prefix(self.text, other.text)

    def similarity(self, other: _Request, *, exact: bool) -> tuple[float, int, int]:
        """Return the ratio of equal words; `exact` considers their order."""
        words, other_words = (one.text.split()[:WORDS] for one in (self, other))
        matcher = difflib.SequenceMatcher(None, words, other_words, autojunk=False)
        return round(matcher.ratio() if exact else matcher.quick_ratio(), 6), *self.rank(other)


class Nearest:
    """Finds the record that is most similar to a request. `own` is the recording that is written; "" means any.

    Records are split once, not again for each miss.
    """

    def __init__(self, entries: Iterable[PlacedRecord], own: str = "") -> None:
        self._own = own
        self._known: dict[str, list[tuple[_Request, PlacedRecord]]] = defaultdict(list)
        for entry in entries:
            if entry.record.t in ("session", "error", "judge"):
                one = _Request(records.mapping(entry.record.req))
                self._known[one.kind].append((one, entry))

    def find(self, req: Mapping[str, Any], at: str) -> tuple[PlacedRecord, bool] | None:
        """Return the nearest record, and whether it has the same path. Sessions are compared with sessions, judgements
        with judgements of the same kind.

        The path counts only in the recording of this notebook or program; in others equal paths are coincidence.
        """
        asked = _Request(req)
        known = self._known[asked.kind]
        here = [(one, entry) for one, entry in known if entry.record.at == at]
        own = [(one, entry) for one, entry in here if self._own in ("", entry.file)]
        if own:
            return max(own, key=lambda pair: pair[0].rank(asked))[1], True
        if not known:
            return None
        best = heapq.nlargest(CANDIDATES, known, key=lambda pair: pair[0].rank(asked))
        best = heapq.nlargest(FINALISTS, best, key=lambda pair: pair[0].similarity(asked, exact=False))
        nearest = max(best, key=lambda pair: pair[0].similarity(asked, exact=True))
        if here and nearest[0].similarity(asked, exact=True)[0] < ALIKE:
            nearest = max(here, key=lambda pair: pair[0].rank(asked))
        return nearest[1], nearest in here


def _beginning(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("head", ""))
    return value if isinstance(value, str) else ""


def _common_prefix(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


# ---------------------------------------------------------------- what differs


def differences(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """Return the differences between two requests, prompts first: each is a field, and for a text the first character
    that differs, from 1."""
    order = [*_TEXTS, "system", "context", "bindings", "memory", "options", "model", "kind", "tools", "perm", "skills"]
    names = [name for name in order if name in recorded or name in asked]
    names += sorted((recorded.keys() | asked.keys()) - set(names))
    differing = (name for name in names if recorded.get(name) != asked.get(name))
    return [
        f"`{field}` {how}" for name in differing for field, how in _differs(name, recorded.get(name), asked.get(name))
    ]


def _differs(name: str, recorded: Any, asked: Any) -> Iterable[tuple[str, str]]:
    """Return the fields that differ in a part of two requests, each with its difference."""
    if name in ("context", "bindings", "skills"):
        return _members(name, recorded or {}, asked or {}, _content_difference)
    if name in (*_TEXTS, "system"):
        return [(name, text_difference(recorded, asked))]
    if name == "memory":
        return [(name, "holds something else")]
    if name != "perm":
        return [(name, _instead(recorded, asked))]
    if isinstance(recorded, str) or isinstance(asked, str):
        return [("permissions", "are others than in the recording")]
    return sorted(_members("permissions", recorded or {}, asked or {}, _instead))


def _members(
    name: str, recorded: Mapping[str, Any], asked: Mapping[str, Any], describe: Callable[[Any, Any], str]
) -> Iterator[tuple[str, str]]:
    for member in {**recorded, **asked}:
        if recorded.get(member) != asked.get(member):
            yield f"{name}.{member}", describe(recorded.get(member), asked.get(member))


def _instead(recorded: Any, asked: Any) -> str:
    return f"is {shown(asked)} instead of {shown(recorded)}"


def _content_difference(recorded: Any, asked: Any) -> str:
    """Describe the difference between two contexts: in the text, or with the same text in an image."""
    if isinstance(recorded, Mapping) and isinstance(asked, Mapping) and recorded.get("sha256") == asked.get("sha256"):
        return "holds another image" if recorded.get("images") else "was recorded without its image"
    return text_difference(recorded, asked)


def text_difference(recorded: Any, asked: Any) -> str:
    if recorded is None or asked is None:
        return "is new" if recorded is None else "is missing"
    if not _is_text(recorded) or not _is_text(asked):
        return "is something else"
    was, is_now = _beginning(recorded), _beginning(asked)
    at = _common_prefix(was, is_now)
    if at == len(was) == len(is_now):
        return f"differs after its first {at:,} characters ({_length(recorded):,} recorded, {_length(asked):,} now)"
    return f"differs at character {at + 1}: {_piece(is_now, at)} instead of {_piece(was, at)}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, Mapping) and value.keys() >= _LONG)


def _length(value: Any) -> int:
    return int(value["chars"]) if isinstance(value, Mapping) else len(value)


def _piece(text: str, at: int) -> str:
    """Return the words around a position, in quotes."""
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
    """Return the command that records a missing answer."""
    if program.endswith((".prose", ".vvm", ".ipynb")):
        typed = as_argument(program)
        return f"record it: `prose run --cassette-mode=auto {typed}`, with a provider or a person to answer"
    return "record it: `%cassette --mode auto`, then run the cell again, with a provider or a person to answer"


def message(title: str, nearest: Nearest, req: Mapping[str, Any], at: str, *, used_up: int = 0) -> str:
    """Return why there is no answer, in one line. `used_up` is the number of records with the same key, all used."""
    if used_up:
        plural = "record is" if used_up == 1 else "records are"
        return (
            f"nothing is recorded for {title}: the same was asked before, and its {used_up} {plural} used"
            ' (`repeats = "reuse"` would answer with the last)'
        )
    found = nearest.find(req, at)
    if found is None:
        return f"nothing is recorded for {title}: there is no cassette with such a record"
    entry, same = found
    where = "the record at the same path" if same else f"the nearest record ({entry.record.at})"
    differing = differences(records.mapping(entry.record.req), req)
    changes = "; ".join(differing[:2]) + (f"; and {len(differing) - 2} more" if len(differing) > 2 else "")
    if not differing:
        changes = f"has no attempt left (it has {entry.record.tried})"
    return f"nothing is recorded for {title}: {where} is {entry.place}: {changes}"


# ---------------------------------------------------------------- two cassettes

ChangeKind = Literal["added", "removed", "moved", "changed"]


class Change(Struct, frozen=True):
    """One record that differs. `before` is the former path of a moved record; `details` describe the differences, one
    line each."""

    kind: ChangeKind
    type: str
    at: str
    tried: int = 1
    before: str = ""
    details: tuple[str, ...] = ()


_MATCHED_BY: Final[tuple[Callable[[SearchFields], tuple[object, ...]], ...]] = (
    lambda one: (one.key, one.at, one.tried),
    # a moved record
    lambda one: (one.key, one.tried),
    # a record whose question or answer has changed
    lambda one: ("session" if one.t == "error" else one.t, one.at, one.tried),
)
"""The features by which two records are matched, in this order. A session's answer and its failure match."""


def changes(old: CassetteFile, new: CassetteFile) -> list[Change]:
    """Return the changes from one cassette to another, in the order of the new one; removed records come last."""
    before, after = _answers(old), _answers(new)
    pairs: dict[int, PlacedRecord] = {}
    taken: set[int] = set()
    for alike in _MATCHED_BY:
        waiting: dict[tuple[object, ...], list[PlacedRecord]] = {}
        for entry in before:
            if id(entry) not in taken:
                waiting.setdefault(alike(entry.record), []).append(entry)
        for entry in after:
            if id(entry) not in pairs and (formers := waiting.get(alike(entry.record))):
                pairs[id(entry)] = former = formers.pop(0)
                taken.add(id(former))
    found = [change for entry in after if (change := _change(pairs.get(id(entry)), entry)) is not None]
    gone = [entry for entry in before if id(entry) not in taken]
    return found + [Change("removed", e.record.t, e.record.at, e.record.tried) for e in gone]


def _answers(found: CassetteFile) -> list[PlacedRecord]:
    return [entry for entry in found.entries if entry.record.t in records.ANSWERS and not entry.replaced]


def _change(old: PlacedRecord | None, new: PlacedRecord) -> Change | None:
    record = new.record
    if old is None:
        return Change("added", record.t, record.at, record.tried)
    details = tuple(details_of(old, new))
    if old.record.at != record.at:
        return Change("moved", record.t, record.at, record.tried, old.record.at, details)
    return Change("changed", record.t, record.at, record.tried, "", details) if details else None


def details_of(old: PlacedRecord, new: PlacedRecord) -> Iterable[str]:
    """Yield the differences between two records of one path: the question, then the answer, then its source."""
    if old.record.t != new.record.t:
        was, is_now = (_NOUNS.get(e.record.t, e.record.t) for e in (old, new))
        yield f"was {was}, is {is_now}"
    yield from differences(records.mapping(old.record.req), records.mapping(new.record.req))
    before, after = ({**records.mapping(e.record.out), **records.mapping(e.record.facts)} for e in (old, new))
    for name in sorted(before.keys() | after.keys()):
        if name == "summary" and before.get("text") != after.get("text"):
            continue  # made of the text
        if before.get(name) != after.get(name):
            yield f"answer: `{name}` {_value_change(before.get(name), after.get(name))}"
    before, after = records.mapping(old.record.meta), records.mapping(new.record.meta)
    for name in ("origin", "provider", "resolved"):
        if before.get(name) != after.get(name):
            yield f"{name}: {after.get(name) or 'none'} instead of {before.get(name) or 'none'}"


def _value_change(was: Any, is_now: Any) -> str:
    if isinstance(was, str) and isinstance(is_now, str):
        return text_difference(was, is_now)
    if isinstance(was, list) and isinstance(is_now, list):
        return _lists(was, is_now)
    return _instead(was, is_now)


def _lists(was: list[Any], is_now: list[Any]) -> str:
    def name(item: Any) -> str:
        return str(item.get("path") or item.get("tool") or item) if isinstance(item, Mapping) else str(item)

    differing = [name(new) for old, new in zip(was, is_now, strict=False) if old != new]
    differing += [name(item) for item in [*was[len(is_now) :], *is_now[len(was) :]]]
    return f"differs in {shown(differing)}"
