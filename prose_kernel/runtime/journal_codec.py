"""Encodes answers and errors for journals and recordings."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw

from prose_kernel import errors
from prose_kernel.runtime.ports import Finding

T = TypeVar("T")

_ENCODER: Final = msgspec.json.Encoder(enc_hook=str)
_DECODERS: Final[dict[type, msgspec.json.Decoder[Any]]] = {}
_BUILTINS: Final = {"EOFError": EOFError, "TimeoutError": TimeoutError}


def encode(value: object) -> Raw:
    return Raw(dumps(value))


def dumps(value: object) -> bytes:
    """Return any value as JSON. A lone surrogate, which file names can contain, is escaped."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value, enc_hook=str)).encode()


def without_ids(data: bytes, run_ids: Iterable[bytes]) -> bytes:
    """Return data that is the same in every run: with a star for each id of a run."""
    for run_id in run_ids:
        data = data.replace(run_id, b"*")
    return data


def loads(data: bytes | Raw, kind: type[T]) -> T:
    """Return the value that was passed to `dumps`. Raises `msgspec.MsgspecError` for other bytes."""
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
    """Return the decoded answer. Raises `msgspec.MsgspecError` if it isn't one."""
    if kind is Finding:
        return Finding(**loads(raw, dict))  # type: ignore[return-value]  # its value may be anything
    return loads(raw, kind)


def readable(raw: Raw, kind: type[T]) -> T | None:
    """Return the decoded answer; None if it cannot be read as this kind."""
    try:
        return decode(raw, kind)
    except msgspec.MsgspecError:
        return None


def notes(aside: Raw) -> dict[str, Any]:
    """Return the notes on an answer (`runtime/open_request.py`)."""
    return readable(aside, dict) or {}


# ---------------------------------------------------------------- errors


_OLD_NAMES: Final = {"NoPerson": "NobodyToAsk", "no_answer": "nobody"}
"""Classes and attributes that have the names of earlier versions in journals and recordings."""
_RENAMED: Final = {written: name for name, written in _OLD_NAMES.items()}


class _Error(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    args: list[str]
    state: dict[str, Any] = {}


def may_be_kept(error: BaseException) -> bool:
    """Return whether an error is an answer from outside, and not a bug in this program."""
    return isinstance(error, (errors.ProseError, *_BUILTINS.values()))


def encode_error(error: BaseException) -> Raw:
    known = next(c.__name__ for c in type(error).__mro__ if c.__name__ in _BUILTINS or c.__module__ == errors.__name__)
    state = {
        _OLD_NAMES.get(name, name): value
        for name, value in vars(error).items()
        if name != "location" and not name.startswith("__")
    }
    return encode(_Error(_OLD_NAMES.get(known, known), [str(part) for part in error.args], state))


def is_store_failure(raw: Raw) -> bool:
    """Return whether this is an encoded `StoreFailed`."""
    found = readable(raw, _Error)
    return found is not None and found.type == errors.StoreFailed.__name__


def decode_error(raw: Raw) -> Exception:
    found = loads(raw, _Error)
    kind: Any = _BUILTINS.get(found.type) or getattr(errors, _RENAMED.get(found.type, found.type), errors.ProviderError)
    error: Exception = kind.__new__(kind, *found.args)
    error.args = tuple(found.args)
    if isinstance(error, errors.ProviderError):  # attributes unknown to the version that wrote the error
        vars(error).update(vars(type(error)("")))
    state = {_RENAMED.get(name, name): tuple(v) if isinstance(v, list) else v for name, v in found.state.items()}
    vars(error).update(state)
    if isinstance(error, errors.RunError):
        error.location = None
    return error
