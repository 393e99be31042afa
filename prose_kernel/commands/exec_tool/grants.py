"""From the rules of a session to the capabilities of its agent (exec-and-tasks.md 3.12)."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from prose_kernel.commands.exec_tool import paths, patterns, programs
from prose_kernel.commands.exec_tool.capabilities import CapabilityRecord, ExecuteRules, FsGrant, Mode
from prose_kernel.commands.exec_tool.options import ExecOptions
from prose_kernel.runtime.services import ExecCaller

Rule = str | tuple[str, ...]
TOOL = "Exec"

_PERMITTED = ("allow", "prompt")


def capabilities(caller: ExecCaller, options: ExecOptions, search_path: str | None) -> CapabilityRecord:
    """The record of an agent. Unknown words grant nothing; `prompt` has been answered with yes before a call comes."""
    execute = caller.rules.get("execute", "deny")
    listed = _listed(execute, caller.workspace, search_path)
    grants = [*_files(caller, "read", "r"), *_files(caller, "write", "rw"), *_binaries(execute, listed)]
    granted = execute in _PERMITTED if isinstance(execute, str) else bool(execute)
    return CapabilityRecord(
        tool_grants=frozenset({TOOL}) if granted else frozenset(),
        fs_grants=tuple(grants),
        net_grants=frozenset({"*"}) if caller.rules.get("network") == "allow" else frozenset(),
        execute=ExecuteRules(listed if not isinstance(execute, str) else None, caller.rules.get("bash") == "allow"),
        network=_network(caller.rules.get("network", "deny"), options),
        lists_bind=options.lists if caller.lists_bind else None,
        workspace=caller.workspace,
    )


def _network(rule: Rule, options: ExecOptions) -> Literal["open", "none", "best-effort"]:
    # hosts cannot be told apart for a program, so a list of them leaves it none
    if isinstance(rule, str) and rule in _PERMITTED:
        return "open"
    return "none" if options.network == "strict" else "best-effort"


def _files(caller: ExecCaller, kind: Literal["read", "write"], mode: Mode) -> Iterable[FsGrant]:
    rule = caller.rules.get(kind, "deny")
    if rule == "workspace":
        yield FsGrant(caller.workspace, mode)
    elif isinstance(rule, str):
        if rule in _PERMITTED:
            yield FsGrant("/", mode)
    else:
        for pattern in rule:
            whole = patterns.absolute(pattern, caller.workspace)
            if whole is not None:
                prefix, rest = patterns.split(whole)
                yield FsGrant(prefix, mode, whole if rest else None)


def _listed(rule: Rule, workspace: str, search_path: str | None) -> tuple[str, ...]:
    """The execute list as absolute patterns: a bare word is what the kernel's `PATH` has under that name."""
    if isinstance(rule, str):
        return ()
    found = []
    for pattern in rule:
        if "/" not in pattern and not any(sign in pattern for sign in "*?~"):
            program = shutil.which(pattern, path=search_path)
            if program is not None:
                found.append(paths.resolve(str(Path(program).absolute())).path)
        elif (whole := patterns.absolute(pattern, workspace)) is not None:
            found.append(whole)
    return tuple(found)


def not_found(caller: ExecCaller, search_path: str | None) -> tuple[str, ...]:
    """The bare words of the execute list that name no program here: said once to the person."""
    rule = caller.rules.get("execute", ())
    if isinstance(rule, str):
        return ()
    bare = [pattern for pattern in rule if "/" not in pattern and not any(sign in pattern for sign in "*?~")]
    return tuple(name for name in bare if shutil.which(name, path=search_path) is None)


def _binaries(rule: Rule, listed: tuple[str, ...]) -> Iterable[FsGrant]:
    if isinstance(rule, str):
        if rule in _PERMITTED:
            yield FsGrant("/", "r", binaries=True)
        return
    for pattern in listed:
        prefix, rest = patterns.split(pattern)
        yield FsGrant(prefix, "r", pattern if rest else None, binaries=True)


def dangerous(record: CapabilityRecord) -> tuple[str, ...]:
    """What is granted that can run arbitrary commands, for a warning at registration: programs, and directories."""
    found = []
    for grant in record.fs_grants:
        path = Path(paths.resolve(grant.prefix).path)
        if path.is_file() and programs.arbitrary(str(path)):
            found.append(str(path))
        elif grant.pattern is None and path.is_dir() and _holds_shells(path):
            found.append(f"{path}/")
    return tuple(dict.fromkeys(found))


def _holds_shells(directory: Path) -> bool:
    return any((directory / inside / "sh").exists() for inside in (".", "bin", "usr/bin"))


def listed_by_name(path: str, rules: ExecuteRules) -> bool:
    """Whether the execute list names this very file, without a wildcard."""
    return any(not patterns.split(each)[1] and paths.resolve(each).path == path for each in rules.listed or ())


def matches_list(path: str, rules: ExecuteRules) -> bool:
    """Whether the execute list has a resolved path; no list means every program."""
    if rules.listed is None:
        return True
    for pattern in rules.listed:
        prefix, rest = patterns.split(pattern)
        resolved = paths.resolve(prefix).path
        if (path == resolved and not rest) or (
            (rest or pattern.endswith("/"))
            and path.startswith(resolved.rstrip("/") + "/")
            and patterns.matches(path, resolved, rest)
        ):
            return True
    return False
