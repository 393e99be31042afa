"""Converts recordings of format 1, written by version 0.1, to the current format.

Format 1 has its own form of answers and failures, and its keys contain the names of contexts. Requests are the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from prose_kernel import errors
from prose_kernel.runtime import journal_codec as codec

_JUDGED: Final = {"decide": "answer", "choose": "label"}
"""The field of an answer, by kind of question; other kinds have a `value`."""


def key_of(request: bytes) -> str:
    """Return the key of a request of format 1, from its canonical form."""
    return f"k1:{hashlib.sha256(request).hexdigest()}"


def answer(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the converted fields of a line of format 1 that holds an answer; other fields stay unchanged."""
    out, req, meta = ((part if isinstance(part := line.get(name), dict) else None) for name in ("out", "req", "meta"))
    match line.get("t"):
        case "session" if out is not None:
            return _session(out)
        case "error" if out is not None:
            return {"out": _error(out)}
        case "judge" | "phrase" if out is not None:
            return {"out": _judged(out, req or {}, meta or {})}
    return {}


def _session(out: Mapping[str, Any]) -> dict[str, Any]:
    facts = {name: out[name] for name in ("reads", "writes") if out.get(name)}
    answer = {name: value for name, value in out.items() if name not in ("reads", "writes", "cut") and value}
    answer["text"] = out.get("text")
    if out.get("memory_after") is not None:
        answer["memory_after"] = out["memory_after"]
    if out.get("cut"):
        answer["details"] = {"cut": True}
    return {"out": answer} | ({"facts": facts} if facts else {})


def _error(out: Mapping[str, Any]) -> dict[str, Any]:
    message, hint, name = str(out.get("message", "")), out.get("hint"), out.get("class")
    if name == errors.BudgetSpent.__name__:
        return _encoded(errors.BudgetSpent(message, budget=str(hint or "")))
    kind = getattr(errors, str(name), errors.ProviderError)
    if not (isinstance(kind, type) and issubclass(kind, errors.ProviderError)):
        kind = errors.ProviderError
    found = _encoded(kind(message, hint=hint))
    state = found["state"] | {"retryable": out.get("retryable", True)}
    if "retry_after" in state:
        state["retry_after"] = out.get("retry_after")
    return found | {"state": state}


def _encoded(error: Exception) -> dict[str, Any]:
    return codec.loads(codec.encode_error(error), dict)


def _judged(out: Mapping[str, Any], req: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
    name = _JUDGED.get(str(req.get("kind")), "value")
    value = out.get("answer")
    if name == "answer" and not isinstance(value, bool):
        value = None
    new = {name: str(value) if name == "label" else value, "by": str(meta.get("origin", ""))}
    return new | {more: out[more] for more in ("reason", "no_progress") if out.get(more)}
