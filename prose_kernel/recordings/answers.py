"""What is recorded of a session's answer: its text, wherever it stands, its memory, its files, its trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from prose_kernel.recordings.effects import describe
from prose_kernel.recordings.records import builtins
from prose_kernel.recordings.redaction import holds_private_key
from prose_kernel.runtime.ports import SessionRequest, SessionResult, Target

if TYPE_CHECKING:
    from prose_kernel.recordings.cassette_store import Shelf


def answer_of(result: SessionResult, request: SessionRequest, shelf: Shelf) -> tuple[dict[str, Any] | None, list[str]]:
    """`out` of a session's record, and what the person is to be told. None: it must not be recorded."""
    text = result.text if result.text is not None else written_answer(request.target, shelf.where.cwd)
    writes, outside = describe(result.writes, shelf.where.cwd, shelf.redaction)
    warnings = [
        f"session {request.at} wrote {path}, outside of the working directory: a replay will not write it"
        for path in outside
    ]
    trace = [
        {"tool": use.tool, "summary": use.summary, "outcome": use.outcome, "detail": use.detail} for use in result.trace
    ]
    texts = [text, result.memory_after, result.segment, result.summary, *(write.after for write in result.writes)]
    if any(holds_private_key(text) for text in [*texts, *(use.detail for use in result.trace)] if text):
        warnings.append(f"session {request.at} is not recorded: its answer holds a private key (PEM)")
        return None, warnings
    out: dict[str, Any] = {
        "text": text,
        "memory_after": result.memory_after,
        "writes": [builtins(write) for write in writes],
    }
    cut = result.details.get("cut") is True
    more = {"summary": result.summary, "segment": result.segment, "trace": trace, "cut": cut}
    return out | {name: value for name, value in more.items() if value}, warnings


def written_answer(target: Target | None, cwd: str) -> str | None:
    """The answer that a session wrote to its binding itself, without the header; None where it cannot be read."""
    if target is None or not target.location:
        return None
    try:
        text = Path(cwd, target.location).read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None
    if text.startswith(target.header):
        return text[len(target.header) :]
    _, separator, value = text.partition("\n---\n")
    return value.removeprefix("\n") if separator and text.startswith("# ") else text
