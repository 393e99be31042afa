"""Requests, answers and errors as a journal holds them.

A request is kept as a digest of everything that decides its answer, and the beginning of its text, to show both when a
program does something else than before. What only orients (finished steps, positions) is not part of the digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, structs

from prose_kernel import errors
from prose_kernel.language.shortening import clipped
from prose_kernel.runtime.ports import (
    CommandRequest,
    CommandResult,
    Finding,
    GateRequest,
    JudgeRequest,
    LoadRequest,
    MemoryRequest,
    Question,
    SessionRequest,
    ShowRequest,
    Wait,
)

T = TypeVar("T")

Request = (
    CommandRequest
    | SessionRequest
    | JudgeRequest
    | Question
    | GateRequest
    | LoadRequest
    | MemoryRequest
    | ShowRequest
    | Wait
)

_SHOWN: Final = 500
_ENCODER: Final = msgspec.json.Encoder(enc_hook=str)
_DECODERS: Final[dict[type, msgspec.json.Decoder[Any]]] = {}
_BUILTINS: Final = {"EOFError": EOFError, "TimeoutError": TimeoutError}


class Described(msgspec.Struct, frozen=True):
    """A request as the journal knows it: its key, its kind, its text for people, and what its digest is made of; of a
    gate also its name, and the id of its record."""

    key: str
    kind: str
    said: str
    parts: tuple[object, ...] = ()
    gate: str = ""
    record: str = ""
    brief: str = ""
    """In the place of a text that is not to be written down."""

    def digest(self, without: Sequence[bytes]) -> str:
        """Of all that decides the answer, `without` the ids of the run and of those that it branched from."""
        data = dumps((self.kind, self.said, self.parts))
        for run_id in without:
            data = data.replace(run_id, b"*")
        return hashlib.blake2b(data, digest_size=8).hexdigest()

    @property
    def shown(self) -> str:
        return self.brief or shown(self.said)


def shown(said: str) -> str:
    """The beginning of a text without secrets, for people."""
    from prose_kernel.runtime.secret_patterns import hidden_of_process  # what counts is in the digest

    return clipped(hidden_of_process()(said[: 8 * _SHOWN]), _SHOWN)


@dataclass(frozen=True, slots=True)
class Moved:
    """A run that continues in another directory: its records have the paths of the directory in which it was begun."""

    then: str
    now: str

    def before(self, path: str) -> str:
        """Return a path as it was in the first directory."""
        return _below(path, self.now, self.then)

    def request(self, request: Request) -> Request:
        """Return a request as it was in the first directory."""
        match request:
            case CommandRequest():
                return structs.replace(request, cwd=self.before(request.cwd))
            case ShowRequest():
                return structs.replace(request, directory=self.before(request.directory))
            case _:
                return request

    def recorded(self, answer: T) -> T:
        """Return an answer as a record has it."""
        return _with_directory(answer, self.now, self.then)

    def answer(self, answer: T) -> T:
        """Return a recorded answer as it is in this directory."""
        return _with_directory(answer, self.then, self.now)


def _with_directory(answer: T, old: str, new: str) -> T:
    if isinstance(answer, CommandResult) and answer.cwd_after is not None:
        return structs.replace(answer, cwd_after=_below(answer.cwd_after, old, new))
    return answer


def _below(path: str, old: str, new: str) -> str:
    return new + path[len(old) :] if path == old or path.startswith(f"{old}/") else path


def describe(request: Request, also: Sequence[str] = ()) -> Described:
    """What is asked; `also` is what belongs to the question beside the request (labels, the text to read)."""
    match request:
        case CommandRequest():
            limits = (request.cwd, request.timeout, request.max_output, request.track)
            piped = ("pipefail",) if request.pipefail else ()  # absent from journals of earlier versions
            parts = (*limits, request.stdin, dict(request.env), *piped)
            return Described(_numbered(request.at, request.attempt), "command", request.command, parts)
        case SessionRequest():
            context = None if request.context is None else [(c.name, c.text, c.missing) for c in request.context]
            given = request.given.text if request.given is not None else None
            memory = (request.memory.scope, request.memory.resume) if request.memory is not None else None
            who = (request.kind, request.system, request.agent, request.label, request.model)
            rest = (context, request.skills, dict(request.permissions), memory, request.timeout, given, request.prelude)
            brief = f"@{request.agent}" if request.filed else ""
            return Described(
                _numbered(request.at, request.attempt), "session", request.task, (*who, *rest), brief=brief
            )
        case JudgeRequest():
            return Described(request.at, "judge", request.text, (request.loop, request.subject, *also))
        case GateRequest():
            gate = (request.id, request.allow, request.timeout, request.on_reject)
            key, said = _numbered(request.at, request.attempt - 1), request.prompt or request.name
            return Described(key, "gate", said, gate, request.name, request.id)
        case Question():
            return Described(request.at, "input", request.prompt, (request.name,))
        case LoadRequest():
            return Described(request.at, "import", request.path)
        case MemoryRequest():
            return Described(request.at, "memory", request.key, (request.what, *also))
        case ShowRequest():
            return Described(request.at, "file", request.path, (request.directory,))
        case Wait():
            return Described(request.at, "wait", request.why, (request.seconds,))


def _numbered(at: str, attempt: int) -> str:
    return f"{at}#{attempt}" if attempt else at


# ---------------------------------------------------------------- answers


def encode(value: object) -> Raw:
    return Raw(dumps(value))


def dumps(value: object) -> bytes:
    """JSON of anything. A lone surrogate, as names of files have them, is escaped."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value, enc_hook=str)).encode()


def loads(data: bytes | Raw, kind: type[T]) -> T:
    """Return the value that `dumps` was given. Raises `msgspec.MsgspecError` for other bytes."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    try:
        found: T = decoder.decode(data)
    except (msgspec.DecodeError, RecursionError):
        try:
            return msgspec.convert(json.loads(bytes(data)), kind)
        except (ValueError, RecursionError):
            raise msgspec.DecodeError("no JSON, or nested too deeply") from None
    return found


def decode(raw: Raw, kind: type[T]) -> T:
    """The answer as it was. Raises `msgspec.MsgspecError` for what is none."""
    if kind is Finding:
        return Finding(**loads(raw, dict))  # type: ignore[return-value]  # its value may be anything
    return loads(raw, kind)


# ---------------------------------------------------------------- errors


class _Error(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    args: list[str]
    state: dict[str, Any] = {}


def may_be_kept(error: BaseException) -> bool:
    """Whether an error is an answer of the outside, and no fault of ours."""
    return isinstance(error, (errors.ProseError, *_BUILTINS.values()))


def encode_error(error: BaseException) -> Raw:
    known = next(c.__name__ for c in type(error).__mro__ if c.__name__ in _BUILTINS or c.__module__ == errors.__name__)
    state = {name: value for name, value in vars(error).items() if name != "location" and not name.startswith("__")}
    return encode(_Error(known, [str(part) for part in error.args], state))


def is_store_failure(raw: Raw) -> bool:
    """Whether this is an encoded `StoreFailed`."""
    try:
        return loads(raw, _Error).type == errors.StoreFailed.__name__
    except msgspec.MsgspecError:
        return False


def decode_error(raw: Raw) -> Exception:
    found = loads(raw, _Error)
    kind: Any = _BUILTINS.get(found.type) or getattr(errors, found.type, errors.ProviderError)
    error: Exception = kind.__new__(kind, *found.args)
    error.args = tuple(found.args)
    if isinstance(error, errors.ProviderError):  # what the version that wrote it did not know yet
        vars(error).update(vars(type(error)("")))
    vars(error).update({name: tuple(v) if isinstance(v, list) else v for name, v in found.state.items()})
    if isinstance(error, errors.RunError):
        error.location = None
    return error
