"""Finds live processes in the process table by group, session or marker, and signals all groups of a session.

The watchdog process uses this module, too. It runs without `site` and must start in a few milliseconds, so this module
imports only `os`, and defines no dataclass.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

if __package__:
    from prose_kernel.processes import system
else:  # run by path
    import system  # type: ignore[import-not-found,no-redef]


LOST = 0.05
"""Seconds after which a signal that has not ended a process counts as lost or ignored."""


class Member:
    """One live process: its PID, group, session, start time in ticks since boot, and parent.

    PID and start time together identify a process, because a PID may be reused.
    """

    __slots__ = ("group", "parent", "pid", "session", "ticks")

    def __init__(self, pid: int, group: int, session: int, ticks: int, parent: int = 0) -> None:
        self.pid = pid
        self.group = group
        self.session = session
        self.ticks = ticks
        self.parent = parent

    @property
    def identity(self) -> tuple[int, int]:
        return self.pid, self.ticks


def members() -> list[Member]:
    """Return all live processes, without zombies. Takes about 10 ms for 600 processes on Linux."""
    return [member for pid in system.pids() if (member := member_of(pid)) is not None]


def member_of(pid: int) -> Member | None:
    """Return the live process with this PID, or None."""
    info = system.process_info(pid)
    return Member(pid, *info) if info is not None else None


def job_of(pid: int) -> str | None:
    """Return the value of `PROSE_JOB` with which the process was started, or None."""
    for entry in system.environment(pid):
        if entry.startswith(b"PROSE_JOB="):
            return entry[10:].decode("utf-8", "replace")
    return None


def carries_prefix(pid: int, marker: str) -> bool:
    """Return whether the process's `PROSE_JOB` begins with `marker`."""
    return (job_of(pid) or "").startswith(marker)


def processes_of_run(run: str) -> list[Member]:
    """Return the live processes that commands of a run have started, on any kernel or worker of this machine."""
    mark = f"PROSE_RUN={run}".encode()
    return [member for member in members() if mark in system.environment(member.pid)]


def dies_of(pid: int, number: int) -> bool:
    """Return whether a signal would certainly end the process, which neither blocks nor ignores nor handles it."""
    masks = system.signal_masks(pid)
    return masks is not None and not any(mask >> (number - 1) & 1 for mask in masks)


def handles(pid: int, number: int) -> bool:
    """Return whether the process may handle a signal: by a handler, or by blocking it and waiting for it."""
    masks = system.signal_masks(pid)
    if masks is None:
        return member_of(pid) is not None  # otherwise it has ended meanwhile
    return bool((masks[0] | masks[2]) >> (number - 1) & 1)


def all_ignore(members: Iterable[Member], number: int) -> bool:
    """Return whether some processes live, and all of them ignore a signal, so that waiting for their end is useless."""
    found = False
    for member in members:
        masks = system.signal_masks(member.pid)
        if masks is not None and masks[1] >> (number - 1) & 1:
            found = True
        elif member_of(member.pid) is not None:  # otherwise it has ended meanwhile
            return False
    return found


def programs_below(pid: int) -> dict[int, bytes]:
    """Return the programs of a process and of all processes below it. Much faster than reading the whole table."""
    found: dict[int, bytes] = {}
    waiting = [pid]
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found[pid] = system.program_of(pid)
            waiting += system.children(pid)
    return found


def below(roots: Iterable[int], table: Iterable[Member]) -> list[Member]:
    """Return all descendants of the processes `roots`, as far as the chain of parents is complete."""
    children: dict[int, list[Member]] = {}
    for member in table:
        children.setdefault(member.parent, []).append(member)
    found: list[Member] = []
    waiting = list(roots)
    while waiting:
        for child in children.pop(waiting.pop(), ()):
            found.append(child)
            waiting.append(child.pid)
    return found


def in_scope(member: Member, leader: int) -> bool:
    """Return whether a process belongs to the command led by `leader`.

    The scope of a command is its group and the groups that it made in its session (`timeout`, `set -m`), but not
    processes that called setsid.
    """
    return leader in (member.group, member.session)


def still_ours(leader: int, known: set[tuple[int, int]], marker: str, table: list[Member]) -> list[Member]:
    """Return the live processes of a group whose leader has ended; none if the group's number has been reused.

    It has not been reused if the group contains a process that was seen before (`known`, which is updated) or that
    carries the marker.
    """
    now = [member for member in table if in_scope(member, leader)]
    if not any(member.identity in known or job_of(member.pid) == marker for member in now):
        return []
    known.update(member.identity for member in now)
    return now


def is_empty(group: int) -> bool:
    """Return whether a group contains none of our processes, in one system call. An unreaped zombie counts as one."""
    try:
        os.killpg(group, 0)
    except OSError:
        return True
    return False


def signal_scope(leader: int, number: int, table: list[Member]) -> None:
    """Send a signal to the leader's group, and to the other groups of its session."""
    groups = {leader} | {member.group for member in table if member.session == leader}
    for group in groups:
        try:
            os.killpg(group, number)
        except OSError:  # the group has ended, or belongs to another user
            continue
