"""Checks one call of `Exec` (docs/reference/exec-and-tasks.md 3.2).

The form and type of the arguments (3.1) are checked first, without accessing the file system, then the grants. The
first failure decides. Grants are checked before existence, so that a refusal never reveals whether a path exists.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from prose_kernel.access.grants import FsGrant, Reach
from prose_kernel.access.path_resolver import Resolved, resolve
from prose_kernel.processes.environment import refused_name
from prose_kernel.processes.exec_tool import capabilities
from prose_kernel.processes.exec_tool.capabilities import CapabilityRecord
from prose_kernel.runtime.services import ExecErrorKind

NAMES = ("argv", "cwd", "env", "timeout_s", "max_output_bytes")
TIMEOUT = 60
LONGEST = 600
OUTPUT = 262_144
OUTPUT_RANGE = (1024, 4_194_304)


class Refused(Exception):
    """The call is refused. The audit log also gets `missing`, the grant that it needs, and `target`, the target of a
    link."""

    def __init__(self, kind: ExecErrorKind, message: str, *, missing: str = "", target: str = "") -> None:
        super().__init__(message)
        self.kind: ExecErrorKind = kind
        self.message = message
        self.missing = missing
        self.target = target


class InvalidArguments(Refused):
    """An argument is wrong; the message names it and describes the expected value."""

    def __init__(self, message: str) -> None:
        super().__init__("invalid_args", message)


class ExecArguments(Struct, frozen=True):
    """The checked arguments. `cwd` None means the workspace if it is granted, else `/`."""

    argv: tuple[str, ...]
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: int = TIMEOUT
    max_output_bytes: int = OUTPUT


def parse(
    given: Mapping[str, object], refused: Iterable[str], relaxed: Iterable[str] = (), grants: Iterable[FsGrant] = ()
) -> ExecArguments:
    """Check the arguments of a call. `refused` adds patterns of refused environment names, `relaxed` lists names to
    accept nevertheless; the path of a program in `grants` is in the error for its plain name. Raises
    `InvalidArguments`."""
    for name in given:
        if name not in NAMES:
            raise InvalidArguments(f"unknown argument {name!r}; the arguments are {', '.join(NAMES)}")
    argv = _argv(given.get("argv"), grants)
    return ExecArguments(
        argv,
        _cwd(given.get("cwd")),
        _env(given.get("env"), tuple(refused), frozenset(relaxed)),
        _timeout(given.get("timeout_s", TIMEOUT)),
        _output(given.get("max_output_bytes", OUTPUT)),
    )


def _argv(given: object, grants: Iterable[FsGrant]) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not given:
        raise InvalidArguments("argv must be a list of strings with at least one item, not a command line")
    for item in given:
        if not isinstance(item, str) or not item:
            raise InvalidArguments("every item of argv must be a non-empty string")
        _text("argv", item)
    if not given[0].startswith("/"):
        programs = (one.prefix for one in grants if one.binaries and one.pattern == "")
        known = next((path for path in programs if path.rpartition("/")[2] == given[0]), None)
        instead = f"; use {known}" if known is not None else ""
        raise InvalidArguments(f"argv[0] must be the absolute path of a program; names are not looked up{instead}")
    return tuple(given)


def _text(name: str, value: str) -> None:
    if "\0" in value:
        raise InvalidArguments(f"{name} contains a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArguments(f"{name} contains a character that cannot be encoded") from None


def _cwd(given: object) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str) or not given.startswith("/"):
        raise InvalidArguments("cwd must be the absolute path of a directory")
    _text("cwd", given)
    return given


def _env(given: object, refused: tuple[str, ...], relaxed: frozenset[str]) -> Mapping[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidArguments("env must be an object of strings")
    for name, value in given.items():
        if not isinstance(name, str) or not name or "=" in name:
            raise InvalidArguments("a name in env must be a non-empty string without '='")
        if not isinstance(value, str):
            raise InvalidArguments(f"env: the value of {name} must be a string")
        _text("env", name)
        _text("env", value)
        if name.startswith("_"):
            raise InvalidArguments(f"env: {name} is reserved; names that begin with '_' are not passed on")
        if name not in relaxed and refused_name(name, refused):
            raise InvalidArguments(f"env: {name} is not allowed; it could make a program load other code")
    return dict(given)


def _timeout(given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
        raise InvalidArguments("timeout_s must be a number of seconds from 1 to 600")
    if not 1 <= given <= LONGEST:
        raise InvalidArguments(f"timeout_s must be from 1 to 600, not {given}")
    return int(given)


def _output(given: object) -> int:
    low, high = OUTPUT_RANGE
    if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
        raise InvalidArguments(f"max_output_bytes must be a whole number from {low} to {high}")
    return given


class Checked(Struct, frozen=True):
    """The checked program and working directory."""

    program: Resolved
    cwd: Resolved


def check(arguments: ExecArguments, record: CapabilityRecord, from_writable: bool) -> Checked:
    """Check a call. Raises `Refused`. `from_writable` allows programs that the agent could have written."""
    program = _program(arguments.argv[0], record)
    _listed(arguments.argv[0], program, record)
    if not from_writable and record.reach(writable=True).contains(program.path):
        raise Refused("fs_denied", f"{arguments.argv[0]} is in a directory that this agent may write: it cannot be run")
    return Checked(program, _directory(arguments.cwd, record))


def _program(path: str, record: CapabilityRecord) -> Resolved:
    program = resolve(path)
    if program.reason is not None or not record.reach(binaries=True).covers(program.path):
        would = "" if record.execute is None else f"; what would allow it: {_rule('execute', path)}"
        message = f"{path} resolves outside the granted prefixes{would}"
        raise Refused("fs_denied", message, missing=f"r {path}", target=program.path)
    if program.status is None:
        raise Refused("tool_failed", f"{path}: no such program (ENOENT)")
    if not program.regular:
        raise Refused("tool_failed", f"{path} is not a regular file (EACCES)")
    if not os.access(program.path, os.X_OK):
        raise Refused("tool_failed", f"{path} is not executable (EACCES)")
    return program


def _listed(path: str, program: Resolved, record: CapabilityRecord) -> None:
    rules = record.execute
    if rules is None:
        return
    if rules.listed is not None and not Reach(rules.listed).covers(program.path):
        message = f"{path} is not in the execute list; what would allow it: {_rule('execute', path)}"
        raise Refused("fs_denied", message, missing=f"execute {path}", target=program.path)
    if rules.shells:
        return
    if capabilities.is_launcher(program.path, program.identity):
        raise Refused("fs_denied", f"{path} starts other programs; that needs bash: allow", target=program.path)
    if capabilities.is_interpreter(program.path) and not Reach(rules.listed or ()).names(program.path):
        raise Refused(
            "fs_denied",
            f"{path} runs code from its arguments; the execute list must name it without a wildcard",
            missing=f"execute {program.path}",
        )


def _rule(kind: str, path: str) -> str:
    """Return a line for `permissions:`, made only of the call's text, so that it reveals nothing about the files."""
    return f"{kind}: [{json.dumps(path, ensure_ascii=False)}]"


def _directory(path: str | None, record: CapabilityRecord) -> Resolved:
    if path is None:
        return _default_directory(record)
    cwd = resolve(path)
    if cwd.reason is not None or not record.reach().enters(cwd.path):
        would = "" if record.execute is None else f"; what would allow it: {_rule('read', f'{path}/')}"
        message = f"cwd {path} resolves outside the granted prefixes{would}"
        raise Refused("fs_denied", message, missing=f"r {path}", target=cwd.path)
    if not cwd.directory:
        raise Refused("tool_failed", f"cwd {path} is not a directory ({'ENOTDIR' if cwd.status else 'ENOENT'})")
    return cwd


def _default_directory(record: CapabilityRecord) -> Resolved:
    """Return the workspace if it is granted, else the root."""
    if record.workspace is not None:
        cwd = resolve(record.workspace)
        if cwd.directory and record.reach().enters(cwd.path):
            return cwd
    return resolve("/")
