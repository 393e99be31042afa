"""Errors of a running program: where they arose, and how the program sees them (openprose.md 3.12)."""

from __future__ import annotations

from typing import Final, TypeVar

from prose_kernel.errors import RecursionLimitExceeded, RunError
from prose_kernel.language.openprose import tree
from prose_kernel.language.source import Source
from prose_kernel.machine.openprose.runs import ExecutionContext
from prose_kernel.runtime.events import Failed
from prose_kernel.runtime.values import ErrorValue

E = TypeVar("E", bound=RunError)

_ORDER: Final = (
    "statement",
    "line",
    "execution_id",
    "branch",
    "program",
    "command",
    "exit_code",
    "stderr",
    "stdout",
    "timed_out",
    "gate",
    "status",
    "resolved_by",
    "comment",
)
_HEAD: Final = 200


def located(s: ExecutionContext, error: E, node: tree.Node) -> E:
    """The error, with its place set to the start of `node` unless it has one already."""
    if error.location is None:
        error.location = s.location(node.span)
    return error


def announce(s: ExecutionContext, error: RunError, node: tree.Node) -> None:
    """The first statement that an error leaves: note the statement and the stack, tell the listeners."""
    if "statement" in error.details:
        return
    located(s, error, node)
    error.details.update({"statement": head(s.source, node), "line": s.source.line_column(node.span.start)[0]})
    if s.frame.execution_id is not None:
        error.details["execution_id"] = s.frame.execution_id
    error.call_stack = (*stack_lines(s), *s.run.call_stack)
    if s.host.listeners:
        s.emit(Failed(s.place(node.span), error))


def head(source: Source, node: tree.Node) -> str:
    """The first line of a statement's text."""
    start = node.span.start
    end = source.text.find("\n", start, start + _HEAD)
    return source.text[start : end if end >= 0 else start + _HEAD].strip()


def stack_lines(s: ExecutionContext) -> tuple[str, ...]:
    """One line for each block on the way here, innermost first; a long recursion is shortened in the middle."""
    lines = [
        f"in block {frame.block} #{frame.execution_id}, called at line {frame.caller.location.line}"
        f" of {frame.caller.location.source}"
        for frame in s.frame.stack()
        if frame.caller is not None
    ]
    if len(lines) > 20:
        lines[10:-10] = [f"... {len(lines) - 20} more ..."]
    return tuple(lines)


def error_value(error: RunError) -> ErrorValue:
    """What `catch` binds: the fields of 3.12 in the order of its table, then what else the error knows."""
    fields: dict[str, object] = {"type": error.type, "code": error.code, "message": one_line(error.message)}
    for name in _ORDER:
        if name in error.details:
            fields[name] = error.details[name]
    for name, value in error.details.items():
        fields.setdefault(name, value)
    return ErrorValue(fields, error)


def forget_trace(error: BaseException) -> None:
    """Drop what Python remembers about the way of an error, so that a kept error keeps nothing else alive."""
    error.__traceback__ = None
    error.__context__ = None
    error.__cause__ = None


def one_line(text: str) -> str:
    return " ".join(text.split()) if "\n" in text else text


def recursion_error(block: str, limit: int) -> RecursionLimitExceeded:
    return RecursionLimitExceeded(f"RecursionLimitExceeded: block '{block}' exceeded max_depth {limit}")
