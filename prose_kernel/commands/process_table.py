"""Who is alive: a look at the process table, by group and by session.

Used by the engine and by the watchdog process, which runs without `site` and must start in a few milliseconds: so this
module imports nothing but `os`, and defines no dataclass.
"""

from __future__ import annotations

import os

_ZOMBIE = (b"Z", b"X", b"x")
_NO_MORE_THREADS = (b"0", b"1")  # a process whose first thread has ended looks like a zombie, and lives


class Member:
    """One live process: its number, its group, its session, its start time in ticks since boot, and its parent.

    Number and start time together name a process for ever; the number alone may be used again.
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
    """All live processes; a zombie is not alive. Takes about 10 ms for 600 processes."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib costs the watchdog its quick start
        if name.isdigit():
            member = member_of(int(name))
            if member is not None:
                found.append(member)
    return found


def member_of(pid: int) -> Member | None:
    """The live process with this number, or None."""
    stat = _read(f"/proc/{pid}/stat")
    # the program's name stands in parentheses and may hold anything, also spaces and parentheses
    fields = stat[stat.rfind(b")") + 2 :].split()
    if len(fields) < 20 or (fields[0] in _ZOMBIE and fields[17] in _NO_MORE_THREADS):
        return None
    return Member(pid, int(fields[2]), int(fields[3]), int(fields[19]), int(fields[1]))


def job_of(pid: int) -> str | None:
    """The value of `PROSE_JOB` that the process was started with, if any."""
    for entry in _read(f"/proc/{pid}/environ").split(b"\0"):
        if entry.startswith(b"PROSE_JOB="):
            return entry[10:].decode("utf-8", "replace")
    return None


def carries(pid: int, marker: str) -> bool:
    """Whether the process was started with the environment variable `PROSE_JOB=marker`."""
    return f"PROSE_JOB={marker}".encode() in _read(f"/proc/{pid}/environ").split(b"\0")


def carries_prefix(pid: int, marker: str) -> bool:
    """Whether its `PROSE_JOB` begins with this."""
    environment = b"\0" + _read(f"/proc/{pid}/environ")
    return b"\0PROSE_JOB=" + marker.encode() in environment


def program_of(pid: int) -> bytes:
    """What the process executes, and with which arguments; empty when it is gone or not ours to see."""
    try:
        return os.readlink(f"/proc/{pid}/exe".encode()) + b"\0" + _read(f"/proc/{pid}/cmdline")  # noqa: PTH115
    except OSError:
        return b""


def dies_of(pid: int, number: int) -> bool:
    """Whether a signal would end the process: it neither blocks nor ignores nor handles it."""
    masks = _signal_masks(pid)
    return bool(masks) and not any(mask >> (number - 1) & 1 for mask in masks.values())


def handles(pid: int, number: int) -> bool:
    """Whether the process does something of its own about a signal: it has a handler, or blocks it to fetch it."""
    masks = _signal_masks(pid)
    return bool((masks.get(b"SigCgt", 0) | masks.get(b"SigBlk", 0)) >> (number - 1) & 1)


def _signal_masks(pid: int) -> dict[bytes, int]:
    masks = {}
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith((b"SigBlk:", b"SigIgn:", b"SigCgt:")):
            masks[line[:6]] = int(line[7:], 16)
    return masks


def programs_below(pid: int) -> dict[int, bytes]:
    """A process and all below it, each with `program_of`. Much quicker than a look at the whole table."""
    found: dict[int, bytes] = {}
    waiting = [pid]
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found[pid] = program_of(pid)
            waiting += [int(child) for child in _read(f"/proc/{pid}/task/{pid}/children").split()]
    return found


def in_scope(member: Member, leader: int) -> bool:
    """Whether a process belongs to the command that `leader` was started for.

    Its own group, and groups that it made inside its session (`timeout`, `set -m`); what called setsid left on purpose.
    """
    return leader in (member.group, member.session)


def still_ours(leader: int, known: set[tuple[int, int]], marker: str, table: list[Member]) -> list[Member]:
    """The live processes of a group whose leader is gone, if it is still the group that we knew; else nothing.

    The group's number may belong to a stranger by now. It does not as long as a process is in it that we saw before
    (`known`, which is brought up to date) or that carries the marker.
    """
    now = [member for member in table if in_scope(member, leader)]
    if not any(member.identity in known or carries(member.pid, marker) for member in now):
        return []
    known.update(member.identity for member in now)
    return now


def signal_scope(leader: int, number: int, table: list[Member]) -> None:
    """Send a signal to the leader's group, and to the other groups of its session."""
    groups = {leader} | {member.group for member in table if member.session == leader}
    for group in groups:
        try:
            os.killpg(group, number)
        except OSError:  # gone, or somebody else's: nothing that we could do about it
            continue


def _read(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        data = b""
        while chunk := os.read(descriptor, 65536):
            data += chunk
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return data
