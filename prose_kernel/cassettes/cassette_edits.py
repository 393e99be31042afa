"""Edits the bytes of a cassette: sorts and normalizes records, removes duplicates, unused records and secrets.

Every function takes the bytes of a file and returns its new content with a summary of the changes. Nothing is removed
but what the caller names; unreadable lines are returned, so that the caller can keep them elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from prose_kernel.cassettes import cassette_files as files
from prose_kernel.cassettes import records
from prose_kernel.cassettes.cassette_files import CassetteFile, PlacedRecord
from prose_kernel.cassettes.keys import HEAD, digest
from prose_kernel.cassettes.portable_redaction import Redaction
from prose_kernel.cassettes.recorded_files import LONGEST

_NUMBER: Final = re.compile(r"\d+")
_DIGEST_FIELDS: Final = frozenset({"sha256", "chars", "head"})


class Tidied(Struct):
    """A file's new content, with the number of records and of removed duplicates. `aside` are unreadable lines."""

    data: bytes
    records: int = 0
    duplicates: int = 0
    aside: list[bytes] = field(default_factory=list)


def parsed(data: bytes) -> CassetteFile:
    return files.parse(data, Path(), "")


def tidied(data: bytes) -> Tidied:
    """Return the records that count, each once, in canonical form, in the order of their paths."""
    found = parsed(data)
    counted = [entry for entry in found.entries if entry.record.t != "head" and not entry.replaced]
    lines = dict.fromkeys(records.encoded(records.plain(e.raw)) for e in sorted(counted, key=_sort_key))
    heads = [entry for entry in found.entries if entry.record.t == "head"]
    newer = [bad.raw + b"\n" for bad in found.bad if bad.newer]
    first = records.encoded(records.plain(heads[0].raw) if heads else records.head())
    return Tidied(
        b"".join([first, *lines, *newer]),
        len(lines) + len(newer),
        len(found.entries) - len(heads) - len(lines),
        [bad.raw for bad in found.bad if not bad.newer],
    )


def _sort_key(entry: PlacedRecord) -> tuple[list[tuple[str, int]], str, int]:
    """Return the sort key of a record: paths by their numbers (`c2/1` before `c10/1`), then attempts in order."""
    parts = []
    for part in entry.record.at.split("/"):
        number = _NUMBER.search(part)
        parts.append((_NUMBER.sub("", part, count=1), int(number[0]) if number and len(number[0]) < 12 else -1))
    return parts, entry.record.t if entry.record.t not in ("session", "error") else "", entry.record.tried


def upgraded(data: bytes) -> tuple[bytes, int]:
    """Return the file with all records in the current format, and the number of converted records."""
    data, old = _edited(
        data.removeprefix(files.BOM),
        lambda entry: entry.record.v < records.VERSION,
        lambda entry: records.encoded(records.plain(entry.raw)),
    )
    return data, sum(entry.record.t != "head" for entry in old)


def without(data: bytes, unwanted: Callable[[PlacedRecord], bool]) -> tuple[bytes, list[PlacedRecord]]:
    """Return the file without the unwanted records, and these records."""
    return _edited(data, unwanted, lambda entry: b"")


def _edited(
    data: bytes, chosen: Callable[[PlacedRecord], bool], new: Callable[[PlacedRecord], bytes]
) -> tuple[bytes, list[PlacedRecord]]:
    """Return the file with `new` lines for the chosen records, and these records; every other line is unchanged."""
    found = [entry for entry in parsed(data).entries if chosen(entry)]
    lines = [line + b"\n" for line in data.split(b"\n")]
    for entry in found:
        lines[entry.line - 1] = new(entry)
    return b"".join(lines)[:-1], found


# ---------------------------------------------------------------- secrets


class Redacted(Struct):
    """A file without secrets. `changed` are the numbers of changed lines; `lost` those whose key cannot be computed
    again, because only the beginning of a changed text is known."""

    data: bytes
    changed: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)


def redacted(data: bytes, redaction: Redaction) -> Redacted:
    """Remove the secrets from every line, and compute keys again for changed requests."""
    result = Redacted(b"")
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if line.strip() and (after := _line(line, redaction, number, result)) != line:
            lines[number - 1] = after
            result.changed.append(number)
    result.data = b"\n".join(lines)
    return result


def _line(line: bytes, redaction: Redaction, number: int, result: Redacted) -> bytes:
    try:
        record = records.plain(line)
    except records.BadLine:
        return redaction.text(line.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    after: dict[str, Any] = redaction.data(record)
    if after == record:
        return line
    req = record.get("req")
    if isinstance(req, Mapping) and "key" in record and after["req"] != req:
        lost: list[str] = []
        after["req"] = _redacted_request(req, redaction, lost)
        after["key"] = records.key_of(after["req"])
        if lost:
            result.lost.append(number)
    for write, former in zip(_writes(after), _writes(record), strict=True):
        if write.get("text") != former.get("text") and isinstance(write.get("text"), str):
            write["sha256"] = digest(write["text"])
            if len(write["text"].encode()) > LONGEST:
                write["text"] = None
    return records.encoded(after)[:-1]


def _writes(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    facts = record.get("facts")
    writes = facts.get("writes") if isinstance(facts, Mapping) else None
    return [write for write in writes if isinstance(write, dict)] if isinstance(writes, list) else []


def _redacted_request(value: Any, redaction: Redaction, lost: list[str]) -> Any:
    """Return `req` without secrets. A text held by its digest gets a new digest if all of it is known."""
    if isinstance(value, Mapping):
        if value.keys() == _DIGEST_FIELDS and isinstance(value["head"], str):
            return _redacted_digest(value, redaction, lost)
        return {name: _redacted_request(member, redaction, lost) for name, member in value.items()}
    if isinstance(value, list):
        return [_redacted_request(member, redaction, lost) for member in value]
    return redaction.text(value) if isinstance(value, str) else value


def _redacted_digest(value: Mapping[str, Any], redaction: Redaction, lost: list[str]) -> dict[str, Any]:
    head = redaction.text(value["head"])
    if head == value["head"]:
        return dict(value)
    if value["chars"] == len(value["head"]):
        return {"sha256": digest(head), "chars": len(head), "head": head[:HEAD]}
    lost.append(head)
    return {**value, "head": head}
