"""The lines of a cassette: the content of a record, how it is written and read (sessions.md 4.2).

A cassette has one JSON object per line, in UTF-8 with sorted keys. Answers, errors and keys are those of a journal
(`runtime/journal_codec.py`, `runtime/requests.py`). Reading a file decodes only the search fields (`SearchFields`);
the rest stays bytes until it is needed. A line of format 1 is converted when it is read (`old_format.py`). A line that
is damaged or comes from a newer version is kept when the file is rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from prose_kernel._version import __version__
from prose_kernel.errors import BudgetSpent
from prose_kernel.language.diagnostics import conflict_line
from prose_kernel.language.structs import replace
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime import requests
from prose_kernel.runtime.json_data import DEEPER, LEVELS, levels
from prose_kernel.runtime.ports import FileRead, Finding, Pick, SessionResult, Usage, Verdict

VERSION: Final = 2
TYPES: Final = ("head", "session", "judge", "ask", "race", "error", "phrase")
DECIDES: Final = ("session", "error", "judge", "race")
"""The types that a replay needs."""
ANSWERS: Final = (*DECIDES, "phrase")
"""The types that answer a request on replay, and therefore have a key. `phrase` is the wording of an input."""

T = TypeVar("T")
_STATE: Final = {"hint": str | None, "retryable": bool, "retry_after": float | int | None}
"""The types of the fields of an error that determine what happens next."""

_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_EDITED: Final = "its key does not match its request: it was edited by hand"
_NO_ANSWER: Final = "its answer cannot be read"
_EMPTY: Final = msgspec.Raw(b"{}")
_USAGE: Final = {
    "requests": "requests",
    "in": "tokens_in",
    "out": "tokens_out",
    "cost": "cost",
    "cached": "tokens_cached",
}
_NAMED: Final = ("context", "bindings", "previews")
"""The parts of a request that are values by their names."""


class SearchFields(msgspec.Struct, frozen=True):
    """The search fields of a line: type, version, key, execution path, attempt (from 1), and the id of the notebook's
    cell if the front end gives one; the rest is undecoded."""

    t: str
    v: int = VERSION
    key: str = ""
    at: str = ""
    tried: int = msgspec.field(name="try", default=1)
    cell: str = ""
    req: msgspec.Raw = _EMPTY
    out: msgspec.Raw = _EMPTY
    facts: msgspec.Raw = _EMPTY
    meta: msgspec.Raw = _EMPTY


class Written(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that a session wrote.

    - `sha256` None: the session removed it.
    - `text` None: it is too long to be kept, or isn't text.
    - `before` is the digest of the former content; None if the file is new.
    """

    path: str
    sha256: str | None = None
    text: str | None = None
    before: str | None = None


class Facts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The files of an answer: the files that it depends on, with the digests that were read, and the files that it
    wrote."""

    reads: tuple[FileRead, ...] = ()
    writes: tuple[Written, ...] = ()


class Order(msgspec.Struct, frozen=True):
    """The `out` of a race: the branches that ended before it was decided, in this order; the last one decided it."""

    ended: tuple[int, ...] = ()


class Meta(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts about a record that aren't part of its identity. `ws` and `home` are the directories that its texts
    name."""

    origin: str = ""
    provider: str = ""
    resolved: str = ""
    agent: str = ""
    label: str = ""
    effects: str = ""
    usage: Mapping[str, float] = {}
    sampling: Mapping[str, Any] = {}
    ms: int = 0
    recorded: str = ""
    prose: str = ""
    ws: str = ""
    home: str = ""


_JUDGED: Final[Mapping[str, type[Verdict] | type[Pick]]] = {"decide": Verdict, "choose": Pick}


class BadLine(ValueError):
    """A line that isn't a record; the message gives the reason in a few words."""


_read = msgspec.json.Decoder(SearchFields).decode
_plain = msgspec.json.Decoder().decode
canonical = msgspec.json.Encoder(order="sorted").encode
"""Return JSON in the form of which keys are computed: sorted, without spaces, UTF-8."""


def encoded(data: object) -> bytes:
    """Return a record as a line, with its line end."""
    return canonical(data) + b"\n"


def head() -> dict[str, object]:
    return {"t": "head", "v": VERSION, "format": "prose-cassette", "prose": __version__}


def read(line: bytes) -> SearchFields:
    """Return the record of a line, in the current format; `v` is the version of the line. Raises `BadLine`."""
    try:
        record = _read(line)
        if record.v < VERSION:
            record = replace(_read(encoded(_upgraded(_plain(line)))), v=record.v)
    except _UNREADABLE as problem:
        raise BadLine(_parse_problem(line, problem)) from None
    if record.t in ANSWERS and record.v <= VERSION and not record.key:
        raise BadLine("it has no key")
    return record


def _upgraded(data: dict[str, Any]) -> dict[str, Any]:
    """Convert a line of format 1. Raises `BadLine` if the key does not match the request."""
    from prose_kernel.cassettes import old_format

    new, req = {**data, "v": VERSION}, data.get("req")
    if data.get("t") in ANSWERS and isinstance(req, dict):
        if data.get("key") != old_format.key_of(canonical(req)):
            raise BadLine(_EDITED)
        new["key"] = key_of(req)
    return new | old_format.answer(data)


def _parse_problem(line: bytes, problem: Exception) -> str:
    if conflict_line(line.decode("utf-8", "replace")):
        return "it is a conflict marker of git: keep the records of both sides and remove the marker"
    try:
        _plain(line)
    except _UNREADABLE:
        return "it is not JSON"
    return f"it is not a record: {problem}".replace("\n", " ")[:160]


def plain(line: bytes) -> dict[str, Any]:
    """Return a whole line as plain data in the current format, including unknown fields. Raises `BadLine`."""
    data = _object(line)
    version = data.get("v", VERSION)
    return _upgraded(data) if isinstance(version, int) and version < VERSION else data


def mapping(part: msgspec.Raw) -> dict[str, Any]:
    """Return a part of a record as plain data; empty if it isn't an object."""
    try:
        return _object(part)
    except BadLine:
        return {}


def _object(text: bytes | msgspec.Raw) -> dict[str, Any]:
    try:
        data = _plain(text)
    except _UNREADABLE:
        raise BadLine("it is not JSON") from None
    if not isinstance(data, dict):
        raise BadLine("it is not a JSON object")
    return data


def part(raw: msgspec.Raw, kind: type[T], message: str = "it is not a record") -> T:
    """Return a part of a record, without fields of newer versions. Raises `BadLine`, which begins with `message`."""
    try:
        return codec.decode(raw, kind)
    except (*_UNREADABLE, TypeError, ValueError) as problem:
        raise BadLine(f"{message}: {problem}".replace("\n", " ")[:160]) from None


def failure(record: SearchFields) -> Exception:
    """Return the error that ended an attempt. Raises `BadLine`."""
    try:
        error = codec.decode_error(record.out)
        state = vars(error)
    except (msgspec.MsgspecError, TypeError, ValueError, AttributeError):
        raise BadLine("its error cannot be read") from None
    needed = ("budget", "message") if isinstance(error, BudgetSpent) else ()
    fits = all(isinstance(state[name], kinds) for name, kinds in _STATE.items() if name in state)
    if not fits or not all(isinstance(state.get(name), str) for name in needed):
        raise BadLine("its error cannot be read")
    return error


def answer_of(record: SearchFields) -> SessionResult | Exception | Verdict | Pick | Finding | Order:
    """Return the answer of a record. Raises `BadLine`."""
    match record.t:
        case "error":
            return failure(record)
        case "race":
            return part(record.out, Order)
        case "session":
            return part(record.out, SessionResult, _NO_ANSWER)
        case _:
            asked = mapping(record.req).get("kind")
            kind: type[Verdict] | type[Pick] | type[Finding] = _JUDGED.get(str(asked), Finding)
            return part(record.out, kind, _NO_ANSWER)


def plain_answer(answer: object) -> Any:
    """Return an answer or a failure as plain data, in the form of a record."""
    out = codec.encode_error(answer) if isinstance(answer, Exception) else codec.encode(answer)
    return codec.loads(out, object)


def damage(record: SearchFields) -> str | None:
    """Return why a record cannot answer anything, for example because its key does not match its request; None if it
    can."""
    try:
        req = _plain(record.req)
        part(record.meta, Meta), part(record.facts, Facts)
        found = answer_of(record)
    except BadLine as bad:
        return str(bad)
    except _UNREADABLE:
        return "what it was asked is not JSON"
    if isinstance(found, Finding) and levels(found.value) > LEVELS:
        return f"its answer {DEEPER}"
    if not isinstance(req, dict) or record.key != key_of(req):
        return _EDITED
    return None


def key_of(req: Mapping[str, Any]) -> str:
    """Return the key of a record with this `req`. Names of variables aren't part of it."""
    parts = ((name, canonical(_without_names(name, req[name]))) for name in sorted(req))
    return requests.key_of(str(req.get("kind")), parts).digest


def _without_names(name: str, value: Any) -> Any:
    return [value[key] for key in sorted(value)] if name in _NAMED and isinstance(value, dict) else value


def usage_facts(usage: Usage | None) -> Mapping[str, float]:
    """Return the usage of an answer in the form of `meta`."""
    found = {name: getattr(usage, field, 0) for name, field in _USAGE.items()}
    return {name: value for name, value in found.items() if value}


def usage_of(record: SearchFields) -> Usage:
    """Return the usage of an answer when it was recorded."""
    facts = part(record.meta, Meta).usage
    requests, tokens_in, tokens_out = (int(facts.get(name, 0)) for name in ("requests", "in", "out"))
    return Usage(requests, tokens_in, tokens_out, facts.get("cost", 0.0))


def without_facts(result: SessionResult) -> SessionResult:
    """Return a session's answer without the fields that a record holds elsewhere, or not at all."""
    return replace(result, writes=(), reads=(), usage=None, answer_file=None, patches=())
