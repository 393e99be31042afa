"""Chooses the mechanisms that confine a call, and refuses the call if a required one is missing here (1.3)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from prose_kernel.access.created_code import ProtectedFiles, watch
from prose_kernel.access.grants import FsGrant, Reach
from prose_kernel.access.path_resolver import is_below, resolve
from prose_kernel.language.structs import replace
from prose_kernel.processes import sandbox_syscalls as rights
from prose_kernel.processes.exec_tool.capabilities import CapabilityRecord
from prose_kernel.processes.exec_tool.checks import Checked, Refused
from prose_kernel.processes.monitored_process import Confinement
from prose_kernel.processes.sandbox import Mechanisms

_PROGRAMS = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin")
_READABLE = ("/proc", "/sys/devices/system/cpu", "/sys/fs/cgroup")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_SECRETS = frozenset(("shadow", "shadow-", "gshadow", "gshadow-", "sudoers", "sudoers.d", "ssh", "krb5.keytab"))
_MOST_FILES = 20_000
_MOST_KEPT = 500


class Plan(Struct, frozen=True):
    """The confinement of a call. `gaps` are sentences about missing restrictions. The caller ends `watch` after the
    call."""

    confinement: Confinement
    gaps: tuple[str, ...] = ()
    watch: ProtectedFiles | None = None


def plan(record: CapabilityRecord, found: Mechanisms, checked: Checked, home: str | None) -> Plan:
    """Return the plan of a call. Raises `Refused`, which names the missing mechanism."""
    if found.monitor:
        raise Refused("tool_failed", f"the process monitor is not available: {found.monitor}")
    watching = _watch(record)
    try:
        kept = tuple(map(os.fsencode, watching.kept[:_MOST_KEPT])) if watching is not None else ()
        made = _plan(record, found, checked, home, kept)
    except BaseException:
        if watching is not None:
            watching.end()
        raise
    return replace(made, watch=watching)


def _plan(
    record: CapabilityRecord, found: Mechanisms, checked: Checked, home: str | None, kept: tuple[bytes, ...]
) -> Plan:
    gaps: list[str] = []
    own_network, no_tcp = _network(record, found, gaps)
    files = _files(record, found, checked, home, gaps)
    if not found.landlock:
        gaps.append("Landlock is not offered here: a program can signal and look into others of the same user")
        if not found.apart:
            gaps.append("neither are namespaces: a program can open the shared memory of others of the same user")
    if kept and not found.apart:
        gaps.append("there are no namespaces here: a program can write files that code is loaded from")
    confinement = Confinement(
        found.landlock > 0,
        files,
        own_network,
        no_tcp,
        apart=found.apart,
        read_only=kept if found.apart else (),
        filtered=found.filters,
        no_sockets=record.network != "open",
    )
    return Plan(confinement, tuple(gaps))


def _watch(record: CapabilityRecord) -> ProtectedFiles | None:
    """Return a watch on the protected files where the program may write."""
    if record.workspace is None:
        return None
    deep = record.lists_bind is not None
    workspace = resolve(record.workspace)
    granted = [resolve(grant.prefix) for grant in record.fs_grants if grant.mode == "rw"]
    places: dict[str, bool] = {}
    for place in granted if deep else [workspace]:
        if place.reason is None and is_below(workspace.path, place.path):
            place = workspace
        if place.directory and place.reason is None:
            places[place.path] = deep
    return watch(workspace.path, places) if places else None


def _network(record: CapabilityRecord, found: Mechanisms, gaps: list[str]) -> tuple[bool, bool]:
    if record.network == "open":
        return False, False
    missing = "a network namespace" if found.network else "" if found.filters else "a filter of system calls"
    if not missing:
        return True, False
    if record.network == "none":
        why = f": {found.network}" if found.network else ""
        raise Refused("tool_failed", f"the network is denied, and {missing} to enforce it is not available{why}")
    if found.filters or not found.network:
        return not found.network, found.tcp
    gaps.append(f"the network is denied, and {'only TCP' if found.tcp else 'nothing'} can be")
    return False, found.tcp


def _files(
    record: CapabilityRecord, found: Mechanisms, checked: Checked, home: str | None, gaps: list[str]
) -> tuple[tuple[bytes, int], ...] | None:
    if record.lists_bind is None:
        return None
    if not found.landlock:
        if record.lists_bind == "strict":
            raise Refused("tool_failed", "the program states which files may be used, and Landlock is not available")
        gaps.append("the lists of files are not enforced: Landlock is not available")
        return None
    return tuple(_allowed(record, checked, home))


def _allowed(record: CapabilityRecord, checked: Checked, home: str | None) -> Iterator[tuple[bytes, int]]:
    """Yield the files that a program may use, with rights: the system, its own file, and the lists. No writable place
    is executable."""
    for place in _PROGRAMS:
        yield place.encode(), rights.READ | rights.EXECUTE
    for place in (*_READABLE, *_settings()):
        yield os.fsencode(place), rights.READ
    for place in _DEVICES:
        yield place.encode(), rights.DEVICE
    yield os.fsencode(checked.program.path), rights.READ_FILE | rights.EXECUTE
    if home is not None:
        yield os.fsencode(home), rights.READ | rights.WRITE
    written = [resolve(grant.prefix).path for grant in record.fs_grants if grant.mode == "rw"]
    for grant in record.fs_grants:
        prefix = resolve(grant.prefix)
        if prefix.status is not None and prefix.reason is None:
            near = any(is_below(place, prefix.path) or is_below(prefix.path, place) for place in written)
            yield from _granted(grant, prefix.path, near)


def _granted(grant: FsGrant, prefix: str, writable: bool) -> Iterator[tuple[bytes, int]]:
    """Yield the rights of one grant. `writable`: the agent may write at, below or above `prefix`."""
    place = os.fsencode(prefix)
    execute = 0 if writable else rights.EXECUTE
    if grant.binaries:
        # one listed program may run another
        if prefix != "/":
            yield place, rights.READ | execute
    elif grant.mode == "rw" and not (grant.pattern == "" and os.path.isdir(prefix)):  # noqa: PTH112 - no bare directory
        yield place, rights.READ | rights.WRITE
    elif grant.subtree:
        yield place, rights.READ | execute
    else:
        yield place, rights.READ_DIR
        for file in _matching(grant, prefix):
            yield os.fsencode(file), rights.READ_FILE


def _matching(grant: FsGrant, prefix: str) -> Iterable[str]:
    """Yield the files that a pattern matches now. A link isn't followed: its target must be granted."""
    reach = Reach((grant,))
    if not grant.pattern:
        if os.path.isfile(prefix):  # noqa: PTH113
            yield prefix
        return
    seen = 0
    for directory, _, names in os.walk(prefix):
        for name in names:
            seen += 1
            if seen > _MOST_FILES:
                where = f"{prefix}{grant.pattern}"
                raise Refused("tool_failed", f"{where} is below a directory with too many files to enforce it")
            path = f"{directory.rstrip('/')}/{name}"
            if reach.covers(path) and not os.path.islink(path):  # noqa: PTH114
                yield path


def _settings() -> Iterator[str]:
    """Yield the system's settings, except files with secrets."""
    for directory, without in (("/etc", _SECRETS | {"ssl"}), ("/etc/ssl", frozenset({"private"}))):
        try:
            names = sorted(entry.name for entry in Path(directory).iterdir())
        except OSError:
            continue
        yield from (f"{directory}/{name}" for name in names if name not in without)
