"""Results and errors of the command line as JSON and as text (docs/reference/openprose.md 8 and 9.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import click
from click.exceptions import NoArgsIsHelpError

from prose_kernel.errors import CompileError, RunError, UsageError
from prose_kernel.language.diagnostics import Diagnostic, caret
from prose_kernel.runtime.json_data import json_text
from prose_kernel.views.document import counted
from prose_kernel.views.escaping import clip
from prose_kernel.views.request_text import reason, request_line

_MOST_LISTED = 20
"""The number of requests that are listed; the others are only counted."""

if TYPE_CHECKING:
    from prose_kernel.cassettes.cassette_files import PlacedRecord
    from prose_kernel.models.usage_and_prices import UsageLine
    from prose_kernel.runs.languages import Language
    from prose_kernel.runs.provider_chain import SessionServices
    from prose_kernel.runs.resumption import Resumption
    from prose_kernel.runtime.earlier_answers import EarlierAnswers, Why
    from prose_kernel.runtime.journal_records import Asked
    from prose_kernel.runtime.values import Value

STDERR_TAIL_LINES = 20
UNUSED_SHOWN = 3


def wants_json(args: Sequence[str]) -> bool:
    """Return whether arguments contain `--format json`, even if they cannot be parsed."""
    return "--format=json" in args or any(a == "--format" and b == "json" for a, b in pairwise(args))


def result_line(result: Mapping[str, object]) -> str:
    """Return a JSON object on one line, in ASCII, so that no terminal encoding can break it."""
    return json_text(result, ascii_only=True)


def diagnostic_json(found: Diagnostic) -> dict[str, object]:
    entry: dict[str, object] = {
        **({"file": found.file} if found.file else {}),
        "code": found.code,
        "severity": found.severity,
        "line": found.line,
        "column": found.column,
        "message": found.message,
    }
    return {**entry, "hint": found.hint} if found.hint else entry


def diagnostics_text(diagnostics: Iterable[Diagnostic]) -> str:
    """Return all diagnostics in the format of 9.1, separated by empty lines."""
    return "\n\n".join(d.render() for d in diagnostics)


def error_text(error: Exception, shown_stderr: bool = False) -> str:
    """Return the text of a program's error, its diagnostics, or one `Error:` line and a hint. `shown_stderr` is true if
    the command's stderr was shown already."""
    if isinstance(error, RunError):
        return _run_error_text(error, shown_stderr)
    if isinstance(error, CompileError):
        return diagnostics_text(error.diagnostics)
    if isinstance(error, UsageError):
        return f"Error: {error}" + (f"\nhint: {error.hint}" if error.hint else "")
    message = error.format_message() if isinstance(error, click.ClickException) else str(error)
    return message if isinstance(error, NoArgsIsHelpError) else f"Error: {message}"


def code_of(error: Exception) -> str:
    """Return the code of an error, if it has an entry in the reference, else ""."""
    if isinstance(error, CompileError):
        return error.first.code if error.first is not None else ""
    return error.code if isinstance(error, RunError) else ""


def error_json(error: Exception) -> dict[str, object]:
    """Return the `error` of a result object: type, code, message, line, column, and further fields of the error."""
    match error:
        case CompileError():
            return compile_error_json(error)
        case RunError():
            return run_error_json(error)
        case click.ClickException():
            message = error.format_message()
        case _:
            message = str(error)
    return {"type": "UsageError", "code": None, "message": message, "line": None, "column": None}


def not_started(error: Exception) -> dict[str, object]:
    """Return the result object of a run that never began."""
    return result("failed", None, {}, {}, error_json(error))


def result(
    status: str,
    run_id: str | None,
    outputs: Mapping[str, object],
    bindings: Mapping[str, object],
    error: Mapping[str, object] | None,
) -> dict[str, object]:
    """Return the last output of `prose run --format json`."""
    return {
        "status": status,
        "run_id": run_id,
        "outputs": dict(outputs),
        "bindings": dict(bindings),
        "error": None if error is None else dict(error),
    }


def compile_error_json(error: CompileError) -> dict[str, object]:
    """Return the first error, with all diagnostics."""
    first = error.first or error.diagnostics[0]
    return {
        "type": "CompileError",
        **{key: value for key, value in diagnostic_json(first).items() if key != "severity"},
        "diagnostics": [diagnostic_json(d) for d in error.diagnostics],
    }


def run_error_json(error: RunError) -> dict[str, object]:
    """Return the fields of an uncaught error (openprose.md 3.12), with line and column."""
    where = error.location
    body: dict[str, object] = {
        "type": error.type,
        "code": error.code,
        "message": error.message,
        "line": where.line if where else None,
        "column": where.column if where else None,
    }
    if where:
        body["source"] = where.source
    if error.call_stack:
        body["call_stack"] = list(error.call_stack)
    body.update((key, value) for key, value in error.details.items() if key not in body)
    if error.hint:
        body["hint"] = error.hint
    return body


def _run_error_text(error: RunError, shown_stderr: bool) -> str:
    """Return an uncaught error for people: head line (as in a notebook), source line, caret, call stack, and the end of
    a command's stderr unless it was shown already."""
    from prose_kernel.views.problems import after_type, folded

    where = error.location
    text = error.type + after_type(error)
    if where is not None:
        text += caret(where.text, where.column, error.hint)
    elif error.hint:
        text += f"\nhint: {error.hint}"
    text += "".join(f"\n  {line}" for line in folded(error.call_stack))
    return text + ("" if shown_stderr else _stderr_tail(error))


def _stderr_tail(error: RunError) -> str:
    """Return the last lines of a failed command's stderr."""
    stderr = error.details.get("stderr")
    if not isinstance(stderr, str) or not stderr.strip():
        return ""
    lines = stderr.rstrip("\n").splitlines()
    shown = lines[-STDERR_TAIL_LINES:]
    cut = f" (last {len(shown)} of {len(lines)} lines)" if len(shown) < len(lines) else ""
    return f"\nstderr{cut}:\n" + "\n".join(f"  {line}" for line in shown)


def output_text(name: str, value: Value, language: Language) -> str:
    """Return an output for people: `name: value`, or a table or several lines of text below the name."""
    from prose_kernel.views.tables_of_values import table_of

    table = table_of(value)
    text = language.inserted(value) if table is None else table.text
    return f"{name}:\n{text}" if "\n" in text else f"{name}: {text}"


# ---------------------------------------------------------------- sessions


def session_notes(services: SessionServices | None, *, usage: bool = False) -> tuple[str, ...]:
    """Return the remarks about sessions, one line each; with `usage`, the consumption by provider and model.

    `services` is None for a run that used no session and no judge.
    """
    if services is None:
        return ("usage: no session or judgement ran",) if usage else ()
    total = services.usage.total
    notes = []
    if usage:
        notes += [_line(line) for line in services.usage.lines] or ["usage: no session or judgement ran"]
    elif any(_paid(line, services) for line in services.usage.lines if line.requests):
        notes.append(_line(total, "the run"))
    elif total.replayed:
        asked = total.sessions + total.judgements
        notes.append(f"replayed: {total.replayed} of {asked} answers came from recordings")
    if total.replayed and (unused := services.cassettes.unused()):
        notes.append(_unused(unused))
    return tuple(notes)


def _paid(line: UsageLine, services: SessionServices) -> bool:
    """Return whether the answers may cost money: a price is known, or the server needs an API key."""
    from prose_kernel.models.providers import vendors

    try:
        return bool(line.cost or vendors.find(line.provider, services.context.options).key)
    except UsageError:  # no model server: an agent, a person
        return False


def _line(line: UsageLine, who: str = "") -> str:
    who = who or " ".join(part for part in (line.provider, line.model) if part)
    kinds = ((line.sessions, "session"), (line.judgements, "judgement"))
    parts = [counted(number, kind) for number, kind in kinds if number]
    if line.replayed:
        parts.append(f"{line.replayed} replayed")
    if line.requests:
        cost = f"${line.cost:.4f}" if line.cost or not line.unpriced else "cost unknown"
        cached = f" ({line.tokens_cached:,} of them cached)" if line.tokens_cached else ""
        tokens = f"{line.tokens_in:,} tokens in{cached}, {line.tokens_out:,} out"
        parts += [counted(line.requests, "request"), tokens, cost]
        if line.uncounted:
            parts[-2] = (
                f"{parts[-2]} + {line.uncounted:,} unknown" if line.tokens_in or line.tokens_out else "tokens unknown"
            )
    return f"usage of {who}: {', '.join(parts)}"


def _unused(unused: tuple[PlacedRecord, ...]) -> str:
    named = ", ".join(
        f"{entry.file} line {entry.line}" + (f" ({entry.record.at})" if entry.record.at else "")
        for entry in unused[:UNUSED_SHOWN]
    )
    more = f" and {len(unused) - UNUSED_SHOWN} more" if len(unused) > UNUSED_SHOWN else ""
    return f"unused records: {named}{more}; `prose cassette prune` removes them"


# ---------------------------------------------------------------- resumed runs and kept answers


def request_lines(requests: Sequence[Asked]) -> list[str]:
    """Return the first requests of a list, one per line, and the number of the others."""
    more = [f"  … and {len(requests) - _MOST_LISTED:,} more"] if len(requests) > _MOST_LISTED else []
    return [*(f"  {request_line(asked)}" for asked in requests[:_MOST_LISTED]), *more]


def kept_answers(earlier: EarlierAnswers, *, why: bool = False) -> list[str]:
    """Return lines that count the kept answers of an earlier run and the repeated requests; `why` lists the latter."""
    asked = list(earlier.asked_again())
    total = len(earlier.kept) + len(asked)
    if not asked:
        return [f"kept {'the only answer' if total == 1 else f'all {total:,} answers'}"] if total else []
    count = Counter(one.why for one in asked)
    parts = [f"{count[why]:,} {words}" for why, words in _ASKED.items() if count[why]]
    sums = ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]
    line = f"kept {len(earlier.kept):,} of {counted(total, 'answer')}; asked {sums}"
    return [line, *(f"  {request_line(one.asked)}\n    {reason(one)}" for one in asked)] if why else [line]


_ASKED: Final[Mapping[Why, str]] = {"failed": "that had failed", "changed": "that changed", "new": "new"}


def lost_requests(lost: Sequence[Asked], how: Resumption) -> list[str]:
    """Return the notes about requests that were running when the run ended, for the end of its replay."""
    from prose_kernel.storage.run_history import actions_under_way

    made = actions_under_way(how.journal) if any(asked.kind == "session" for asked in lost) else {}
    called = {key for key, steps in made.items() if steps.calls}

    def line(asked: Asked, then: str) -> str:
        steps = made.get(asked.key)
        return f"Was under way and {then}: {request_line(asked)}" + (f" ({clip(str(steps), 120)})" if steps else "")

    again = [asked for asked in lost if how.under_way == "rerun" or asked.kind not in ("command", "session")]
    failed = [asked for asked in lost if asked not in again]
    return [
        *(line(asked, "continues" if asked.key in called else "is asked again") for asked in again),
        *(line(asked, "fails now") for asked in failed),
    ]
