"""Reads the fields of `exec_command`: types, defaults, hints for errors (docs/reference/exec-and-tasks.md 4.1).

Numbers and booleans may be strings, because models often send strings. Unknown fields are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from prose_kernel.errors import TaskRefused
from prose_kernel.language.nearest import nearest_hint

LONGEST_COMMAND = 1024 * 1024
LONGEST_WINDOW_MS = 600_000
CHARACTERS_PER_TOKEN = 4
_DEFAULT_WINDOW_MS = 10_000
_DEFAULT_TOKENS = 8_000
_MOST_TOKENS = 64_000

DuplicatePolicy = Literal["reuse_running", "start_new"]

FIELDS = (
    "cmd",
    "workdir",
    "shell",
    "login",
    "tty",
    "yield_time_ms",
    "max_output_tokens",
    "summary",
    "continue_on_result",
    "duplicate_policy",
)

_HINTS = {
    **dict.fromkeys(
        ("background", "run_in_background", "detach"),
        "there is no background flag: a command that outlives yield_time_ms becomes a task by itself",
    ),
    "status": "call TaskStatus(task_id) for the status of a task",
    "task_handle": "use task_id, in TaskStatus, TaskOutput and TaskStop",
    "task_id": "exec_command starts a command; TaskStatus, TaskOutput and TaskStop take a task_id",
    "command": "use cmd",
    "argv": "use cmd, one string for the shell",
    "script": "use cmd",
    "cwd": "use workdir",
    "directory": "use workdir",
    **dict.fromkeys(
        ("timeout", "timeout_ms", "timeout_s"),
        "there is no time limit; yield_time_ms is how long to wait before the command becomes a task",
    ),
    "description": "use summary",
    "env": "write the variable before the command: NAME=value make",
    "stdin": "a command reads an empty standard input; use a here-document",
}


class CommandCall(Struct, frozen=True):
    """A validated `exec_command`."""

    cmd: str
    workdir: str | None = None
    shell: str | None = None
    login: bool = False
    yield_time_ms: int = _DEFAULT_WINDOW_MS
    max_output_tokens: int = _DEFAULT_TOKENS
    summary: str | None = None
    continue_on_result: bool = False
    duplicate_policy: DuplicatePolicy = "reuse_running"

    @property
    def budget(self) -> int:
        """The maximum length of a preview, in characters."""
        return self.max_output_tokens * CHARACTERS_PER_TOKEN


def read_call(fields: Mapping[str, object]) -> CommandCall:
    """Return the validated call. Raises `TaskRefused`."""
    _check_names(fields)
    given = {name: value for name, value in fields.items() if value is not None}
    if _flag(given, "tty"):
        raise TaskRefused("unsupported", "tty: commands have no terminal in this version", hint="leave tty out")
    return CommandCall(
        cmd=_command(given),
        workdir=_text(given, "workdir"),
        shell=_text(given, "shell"),
        login=_flag(given, "login"),
        yield_time_ms=whole(given.get("yield_time_ms"), "yield_time_ms", 0, LONGEST_WINDOW_MS, _DEFAULT_WINDOW_MS),
        max_output_tokens=_tokens(given),
        summary=_text(given, "summary"),
        continue_on_result=_flag(given, "continue_on_result"),
        duplicate_policy=_policy(given),
    )


def _check_names(fields: Mapping[str, object]) -> None:
    for name in fields:
        if name in FIELDS:
            continue
        hint = _HINTS.get(name) or nearest_hint(name, FIELDS, f"the fields are {', '.join(FIELDS)}")
        raise TaskRefused("invalid_input", f"unknown field {name!r}", hint=hint, details={"field": name})


def _wrong(name: str, wanted: str, hint: str | None = None) -> TaskRefused:
    return TaskRefused("invalid_input", f"{name}: {wanted}", hint=hint, details={"field": name})


def _command(given: Mapping[str, object]) -> str:
    cmd = given.get("cmd")
    if not isinstance(cmd, str):
        raise _wrong("cmd", "the command is missing" if cmd is None else "must be one string for the shell")
    if not cmd.strip():
        raise _wrong("cmd", "the command is empty")
    if "\0" in cmd:
        raise _wrong("cmd", "the command contains a NUL character")
    if not encodable(cmd):
        raise _wrong("cmd", "the command contains a character that cannot be encoded")
    if len(cmd.encode()) > LONGEST_COMMAND:
        raise _wrong("cmd", "the command is longer than 1 MiB", "write it to a file and run that")
    return cmd


def _text(given: Mapping[str, object], name: str) -> str | None:
    value = given.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or "\0" in value or not encodable(value):
        raise _wrong(name, "must be a string that can be encoded")
    return value


def encodable(text: str) -> bool:
    """Return whether a text can be part of a record, path or command; a text with half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _flag(given: Mapping[str, object], name: str) -> bool:
    value = given.get(name, False)
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if not isinstance(value, bool):
        raise _wrong(name, "must be true or false")
    return value


def whole(value: object, name: str, least: int, most: int, default: int) -> int:
    """Return a whole number in a range, which may be given as a string. Raises `TaskRefused`."""
    if value is None:
        return default
    number = value
    if isinstance(value, str):
        try:
            number = float(value.strip())
        except ValueError:
            raise _wrong(name, f"must be a number between {least} and {most}") from None
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise _wrong(name, f"must be a number between {least} and {most}")
    if not least <= number <= most or number != int(number):
        raise _wrong(name, f"must be a whole number between {least} and {most}")
    return int(number)


def _tokens(given: Mapping[str, object]) -> int:
    """Return the output budget in tokens: 0 means the default, and larger values become the maximum."""
    asked = whole(given.get("max_output_tokens"), "max_output_tokens", 0, 2**53, 0)
    return min(asked, _MOST_TOKENS) or _DEFAULT_TOKENS


def _policy(given: Mapping[str, object]) -> DuplicatePolicy:
    policy = given.get("duplicate_policy", "reuse_running")
    if policy == "reuse_running":
        return "reuse_running"
    if policy == "start_new":
        return "start_new"
    raise _wrong("duplicate_policy", "must be reuse_running or start_new")
