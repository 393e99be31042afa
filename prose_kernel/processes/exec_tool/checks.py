"""Checks one call of `Exec` against the grants: steps 5 to 9 of `docs/reference/exec-and-tasks.md` 3.2.

The first failure decides. Grants are checked before existence, so that a refusal never reveals whether a path exists.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from prose_kernel.access.grants import Reach
from prose_kernel.access.path_resolver import Resolved, resolve
from prose_kernel.processes.exec_tool import programs
from prose_kernel.processes.exec_tool.arguments import Arguments
from prose_kernel.processes.exec_tool.capabilities import CapabilityRecord
from prose_kernel.runtime.services import ExecErrorKind


class Refused(Exception):
    """The call is refused. The audit log also gets `missing`, the grant that it needs, and `target`, the target of a
    link."""

    def __init__(self, kind: ExecErrorKind, message: str, *, missing: str = "", target: str = "") -> None:
        super().__init__(message)
        self.kind: ExecErrorKind = kind
        self.message = message
        self.missing = missing
        self.target = target


@dataclass(frozen=True, slots=True)
class Checked:
    """The checked program and working directory."""

    program: Resolved
    cwd: Resolved


def check(arguments: Arguments, record: CapabilityRecord, from_writable: bool) -> Checked:
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
    if programs.is_launcher(program.path, program.identity):
        raise Refused("fs_denied", f"{path} starts other programs; that needs bash: allow", target=program.path)
    if programs.is_interpreter(program.path) and not Reach(rules.listed or ()).names(program.path):
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
