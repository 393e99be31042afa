"""Render errors and warnings for cells: a stable name, one line, and a traceback of program lines; warnings with the
same code share a line (docs/reference/openprose.md 9.1).

They never contain Python frames, paths, process ids or durations.
"""

from __future__ import annotations

import asyncio
import re
import sys
import traceback
from collections.abc import Iterable, Sequence

from prose_kernel.errors import CompileError, ProseError, ProviderError, RunError, UsageError
from prose_kernel.language.diagnostics import Diagnostic, caret
from prose_kernel.language.text import clipped, escaped
from prose_kernel.runtime.resource_errors import shortage
from prose_kernel.views.display import Problem
from prose_kernel.views.escaping import clip, visible

_DIM, _BOLD, _END = "\x1b[2m", "\x1b[1m", "\x1b[0m"  # no colours, because none is readable on every background
DIAGNOSTICS = 50
"""The most diagnostics of one cell that are shown; the rest is counted."""
LISTED = 10
"""The most lines and names that one warning lists; the rest is counted."""
_STACK_ENDS = 10
_TAIL_LINES, _TAIL_CHARACTERS = 20, 4000
_MESSAGE_CHARACTERS = 10_000
_QUOTED = re.compile(r"`([^`]*)`")


def problem_of(error: BaseException, *, stderr_shown: bool = False) -> Problem:
    """Return the error output of any exception that ended a cell; `stderr_shown`: the cell shows the stderr already."""
    match error:
        case CompileError():
            return _compile_problem(error)
        case RunError():
            shown = visible(message_line(error.message))
            return Problem(error.type, shown, tuple(_run_lines(error, stderr_shown)), error.code)
        case asyncio.CancelledError() | KeyboardInterrupt():
            return simple("KeyboardInterrupt", "the cell was interrupted")
        case UsageError() | ProviderError():
            return simple(type(error).__name__, str(error), error.hint)
        case ProseError():
            return simple(type(error).__name__, str(error))
        case RecursionError():
            return simple("RecursionLimitExceeded", "the program is nested too deeply")
        case MemoryError():
            return simple("MemoryError", "there is not enough memory for this cell")
        case _ if (found := shortage(error)) is not None:
            return simple("ResourceError", found.message, found.hint)
        case _:
            return _internal(error)


def message_line(message: str) -> str:
    """Return the message of a program's error in the form shown everywhere: on one line, and shortened if it is very
    long, such as a message of `throw`. Control characters are not made visible."""
    return _shortened(" ".join(line.strip() for line in message.splitlines() if line.strip()))


def after_type(error: RunError) -> str:
    """Return what follows the type in an error's first line: the place, the message and the code."""
    place = error.location
    of = f" of {escaped(place.source)}" if place is not None and place.source != "cell" else ""
    where = f" at line {place.line}, column {place.column}{of}" if place is not None else ""
    message = message_line(error.message)
    return f"{where}{f': {message}' if message else ''} [{error.code}]"


def simple(name: str, message: str, hint: str | None = None) -> Problem:
    """Return an error without a location in a program."""
    shown = visible(_shortened(message))
    lines = [f"{_BOLD}{name}{_END}: {shown}"]
    if hint:
        lines.append(f"{_DIM}hint: {visible(hint)}{_END}")
    return Problem(name, shown, tuple(lines))


def _internal(error: BaseException) -> Problem:
    """Return the error output of an internal defect. The details go to the kernel's stderr, for a bug report."""
    traceback.print_exception(error, file=sys.__stderr__)
    message = f"{type(error).__name__} inside prose_kernel; the kernel's log has the details"
    return simple("InternalError", message, "the state of the notebook is kept; please report this")


def _compile_problem(error: CompileError) -> Problem:
    found = error.diagnostics
    wrong = [d for d in found if d.severity == "error"]
    evalue = f"{wrong[0].message} [{wrong[0].code}]" if wrong else str(error)
    if len(wrong) > 1:
        evalue += f" and {len(wrong) - 1} more"
    parts = (d.render().partition("\n") for d in found[:DIAGNOSTICS])
    lines = [f"{_BOLD}{visible(head)}{_END}{newline}{visible(rest)}" for head, newline, rest in parts]
    if more := len(found) - DIAGNOSTICS:
        lines += [f"{_DIM}and {more:,} more{_END}"] if more > 0 else []
    if error.hint:
        lines.append(f"hint: {visible(error.hint)}")
    first = (wrong or found)[0]
    return Problem("SyntaxError", visible(evalue), tuple(lines), first.code)


def _run_lines(error: RunError, stderr_shown: bool) -> list[str]:
    place = error.location
    lines = [f"{_BOLD}{error.type}{_END}{visible(after_type(error))}"]
    if place is not None:
        lines.append(visible(caret(place.text, place.column, None).lstrip("\n")))
    lines += _command_lines(error, stderr_shown)
    if error.hint:
        lines.append(f"hint: {visible(error.hint)}")
    if error.call_stack:
        lines += [f"{_DIM}called from:{_END}", *(f"  {visible(clip(line))}" for line in folded(error.call_stack))]
    return lines


def _shortened(message: str) -> str:
    mark = f"… ({len(message):,} characters in all)"
    return clipped(message, _MESSAGE_CHARACTERS, mark, kept=_MESSAGE_CHARACTERS)


def _command_lines(error: RunError, stderr_shown: bool) -> list[str]:
    """Return lines about a failed command: the command, its exit code, the end of its stderr unless that is shown."""
    details = error.details
    lines = []
    command = details.get("interpolated") or details.get("command")
    if isinstance(command, str):
        lines.append(f"{_BOLD}$ {visible(clip(command))}{_END}")
    if "exit_code" in details:
        lines.append(f"exit code {details['exit_code']}")
    stderr = details.get("stderr")
    if not stderr_shown and isinstance(stderr, str) and stderr.strip():
        lines.append(tail(stderr))
    return lines


# ---------------------------------------------------------------- warnings


def warning_lines(diagnostics: Iterable[Diagnostic]) -> list[str]:
    """Return lines for the warnings; equal warnings about different names and places share a line."""
    groups: dict[tuple[str, str, str], list[Diagnostic]] = {}
    for found in diagnostics:
        if found.severity == "warning":
            key = found.file, found.code, _QUOTED.sub("``", found.message, count=1)
            groups.setdefault(key, []).append(found)
    return [_warning(code, group) for (_, code, _), group in groups.items()]


def _warning(code: str, group: Sequence[Diagnostic]) -> str:
    lines = _listed([str(found.line) for found in group], " and ")
    names = _listed([f"`{name[1]}`" for found in group if (name := _QUOTED.search(found.message))], ", ")
    message = group[0].message
    if message.startswith("The "):
        message = f"the {message[4:]}"
    if len({found.message for found in group}) > 1:
        message += f" (also {names.partition(', ')[2]})"
        if code == "W051":
            message = f"the shell reads the values of {names} as part of the command"
    hints = {found.hint for found in group}
    hint = hints.pop() if len(hints) == 1 else None
    if code == "W051" and hint is None:
        hint = "pass them with `env:` or `stdin:`"
    several = "s" if len({found.line for found in group}) > 1 else ""
    place = f" of {visible(group[0].file)}" if group[0].file else ""
    return f"Warning at line{several} {lines}{place}: {message}{f' ({hint})' if hint else ''} [{code}]"


def _listed(words: Sequence[str], last: str) -> str:
    """Join words, each once and in order: `a, b and c`."""
    found = list(dict.fromkeys(words))
    if len(found) > LISTED:
        return f"{', '.join(found[:LISTED])} and {len(found) - LISTED:,} more"
    return last.join(part for part in (", ".join(found[:-1]), "".join(found[-1:])) if part)


def tail(text: str) -> str:
    """Return the end of a stream, with control characters made visible; an ellipsis marks omitted text."""
    end = text.rstrip("\n")[-_TAIL_CHARACTERS:]
    kept = end.split("\n")[-_TAIL_LINES:]
    cut = len("\n".join(kept)) < len(text.rstrip("\n"))
    return ("…\n" if cut else "") + visible("\n".join(kept))


def folded(stack: Sequence[str]) -> list[str]:
    """Return a call stack, or only its two ends if the recursion is deep."""
    left_out = len(stack) - 2 * _STACK_ENDS
    if left_out < 2:
        return list(stack)
    return [*stack[:_STACK_ENDS], f"… {left_out:,} more …", *stack[-_STACK_ENDS:]]
