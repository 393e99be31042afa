"""The lines of a cassette: what a record holds, how it is written and read (sessions.md 4.2).

A cassette is a JSON object a line, UTF-8, keys sorted. A line is only looked into where it is needed: reading a file
decodes what records are found by (`Record`), the rest stays as the bytes it is. A line that makes no sense, or comes
from a newer version, is kept by whoever rewrites the file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeVar

import msgspec

from prose_kernel._version import __version__
from prose_kernel.runtime.nesting import DEEPER, LEVELS, levels
from prose_kernel.runtime.ports import Usage

VERSION: Final = 1
PREFIX: Final = "k1:"
_CONFLICT: Final = re.compile(rb"(?:<{7}|>{7}|\|{7})(?: |\Z)|={7}\s*\Z")
TYPES: Final = ("head", "session", "judge", "ask", "race", "error", "phrase")
DECIDES: Final = ("session", "error", "judge", "race")
"""The types that a replay needs."""
ANSWERS: Final = (*DECIDES, "phrase")
"""The types that answer something on replay, and therefore have a key. `phrase`: how an input was put into words."""

T = TypeVar("T", bound=msgspec.Struct)
_EMPTY: Final = msgspec.Raw(b"{}")


class Record(msgspec.Struct, frozen=True):
    """A line as it is found by: type, version, key, execution path, attempt (from 1), and the id of the notebook's cell
    where the front end tells one; the rest undecoded."""

    t: str
    v: int = VERSION
    key: str = ""
    at: str = ""
    tried: int = msgspec.field(name="try", default=1)
    cell: str = ""
    req: msgspec.Raw = _EMPTY
    out: msgspec.Raw = _EMPTY
    meta: msgspec.Raw = _EMPTY


class Written(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that a session wrote. `sha256` None: it removed it. `text` None: too long to be kept, or no text.
    `before` is the digest of what stood there, None: there was no such file."""

    path: str
    sha256: str | None = None
    text: str | None = None
    before: str | None = None


class Seen(msgspec.Struct, frozen=True):
    """A workspace file that a session read, and the digest of what it read."""

    path: str
    sha256: str


class Used(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call of a tool, for reading."""

    tool: str
    summary: str = ""
    outcome: Literal["ok", "refused", "failed"] = "ok"
    detail: str = ""


class Answer(msgspec.Struct, frozen=True):
    """`out` of a session. `cut`: the reply ended at the limit of tokens. `reply`: what is said beside the answer."""

    text: str | None = None
    summary: str = ""
    memory_after: str | None = None
    segment: str | None = None
    writes: tuple[Written, ...] = ()
    reads: tuple[Seen, ...] = ()
    trace: tuple[Used, ...] = ()
    cut: bool = False
    reply: str | None = None


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """`out` of an error. `kind` is the class of the error tree; `timeout` marks the program's own time limit."""

    kind: str = msgspec.field(name="class", default="ProviderError")
    message: str = ""
    retryable: bool = True
    hint: str | None = None
    retry_after: float | None = None


class Judgement(msgspec.Struct, frozen=True, omit_defaults=True):
    """`out` of a judgement: what was decided, picked, found or phrased, and why."""

    answer: Any = None
    reason: str = ""
    no_progress: bool = False


class Order(msgspec.Struct, frozen=True):
    """`out` of a race: the branches that ended before it was decided, in the order they did; the last one decided."""

    ended: tuple[int, ...] = ()


class Meta(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts about a record that are no part of its identity. `ws`, `home`: the directories that its texts name."""

    origin: str = ""
    provider: str = ""
    resolved: str = ""
    agent: str = ""
    label: str = ""
    effects: str = ""
    usage: Mapping[str, float] = {}
    sampling: Mapping[str, Any] = {}
    ms: int = 0
    done: int = 0
    recorded: str = ""
    prose: str = ""
    ws: str = ""
    home: str = ""


class BadLine(ValueError):
    """A line that is no record; the message says why, in a few words."""


_read = msgspec.json.Decoder(Record).decode
_plain = msgspec.json.Decoder().decode
_write = msgspec.json.Encoder(order="sorted")


def canonical(data: object) -> bytes:
    """JSON in the one form that keys are taken of: sorted, without spaces, UTF-8."""
    return _write.encode(data)


_OUT: Final[Mapping[str, type[msgspec.Struct]]] = {
    "session": Answer,
    "error": Failure,
    "judge": Judgement,
    "phrase": Judgement,
    "race": Order,
}


def encoded(data: object) -> bytes:
    """A record as a line, with its line end."""
    return _write.encode(data) + b"\n"


def head() -> dict[str, object]:
    return {"t": "head", "v": VERSION, "format": "prose-cassette", "prose": __version__}


def read(line: bytes) -> Record:
    """The record of a line. Raises `BadLine`."""
    try:
        record = _read(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise BadLine(_why(line, problem)) from None
    if record.t in ANSWERS and record.v <= VERSION and not record.key:
        raise BadLine("it has no key")
    return record


def _why(line: bytes, problem: Exception) -> str:
    if _CONFLICT.match(line):
        return "it is a conflict marker of git: keep the records of both sides and remove the marker"
    try:
        _plain(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "it is not JSON"
    return f"it is not a record: {problem}".replace("\n", " ")[:160]


def plain(line: bytes) -> dict[str, Any]:
    """A whole line as plain data, unknown fields included. Raises `BadLine`."""
    try:
        data = _plain(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise BadLine("it is not JSON") from None
    if not isinstance(data, dict):
        raise BadLine("it is not a JSON object")
    return data


def part(raw: msgspec.Raw, kind: type[T]) -> T:
    """A part of a record, fields of newer versions left out. Raises `BadLine`."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise BadLine(f"it is not a record: {problem}".replace("\n", " ")[:160]) from None


def damage(record: Record) -> str | None:
    """Why a record cannot answer anything; None for one that can. Its key must be that of what it was asked."""
    try:
        _plain(record.req), part(record.meta, Meta)
        out = part(record.out, _OUT[record.t])
    except BadLine as bad:
        return str(bad)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "what it was asked is not JSON"
    if isinstance(out, Judgement) and levels(out.answer) > LEVELS:
        return f"its answer {DEEPER}"
    if record.key != key_of(mapping(record.req)):
        return "its key does not match its request: it was edited by hand"
    return None


def key_of(req: Mapping[str, Any]) -> str:
    """The key of a record with this `req`."""
    return PREFIX + hashlib.sha256(canonical(req)).hexdigest()


def mapping(raw: msgspec.Raw) -> dict[str, Any]:
    """A part of a record as plain data; anything that is no object is empty."""
    try:
        data = _plain(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def builtins(part: msgspec.Struct) -> dict[str, Any]:
    """A part as plain data, for writing."""
    data: dict[str, Any] = msgspec.to_builtins(part)
    return data


def usage_facts(usage: Usage | None) -> Mapping[str, float]:
    """What an answer consumed, as `meta` holds it."""
    if usage is None:
        return {}
    facts = {"requests": usage.requests, "in": usage.tokens_in, "out": usage.tokens_out, "cost": usage.cost}
    facts["cached"] = usage.tokens_cached
    return {name: value for name, value in facts.items() if value}


def usage_of(record: Record) -> Usage:
    """What an answer consumed when it was recorded."""
    facts = part(record.meta, Meta).usage
    requests, tokens_in, tokens_out = (int(facts.get(name, 0)) for name in ("requests", "in", "out"))
    return Usage(requests, tokens_in, tokens_out, facts.get("cost", 0.0))
