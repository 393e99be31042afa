"""The watchdog process. Run by path, on Linux with `python -I -S`, so it imports only modules that load quickly.

It reads lines from its standard input, a pipe whose only writer is the kernel:

- `?TICKS`: commands are about to be started, and their processes will not be older than this; `?`: all are started.
- `+G`: group G runs; `+G TICKS`: its members may lack the marker, and none is older than this.
- `=G PID TICKS ...`: the command of group G has ended and left these processes.
- `-G`: group G has ended.

When the pipe or the kernel's process ends, the watchdog ends all registered groups: TERM, one second, KILL. The kernel
writes the same lines into a private file. If kernel and watchdog were both killed, the next watchdog of this user (or
the next start of a notebook) reads it to end the remaining processes.
"""

from __future__ import annotations

import _signal as signals  # type: ignore[import-not-found]  # without the 8 ms of enumerations around it
import os
import select
import sys
import time

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - no pathlib here
    import process_table  # type: ignore[import-not-found]
    import system  # type: ignore[import-not-found]
else:
    from prose_kernel.processes import process_table, system

_BATCH = 0.02
_READINGS = 5
"""How many readings of the process table may show no process of a non-empty group: a process that forks and ends, or
executes another program, during a reading is missing in it."""

_PARENT = 1.0
"""Seconds between two checks whether the kernel lives, on systems without a descriptor for that."""
_GRACE = 1.0
_START = 0.3
"""Seconds within which a process that the kernel was just starting has executed its program."""

Known = set[tuple[int, int]]


class Groups:
    """The groups that the kernel has reported: running commands, and processes that ended commands have left."""

    def __init__(self, marker: str) -> None:
        self.marker = marker
        self.ours = marker.rpartition(":")[0] + ":"
        self.tasks = self.ours + "task:"
        self.running: dict[int, int] = {}  # the earliest start time of a member of each group
        self.left: dict[int, Known] = {}
        self.starting: int | None = None
        self._rest = b""

    def take(self, data: bytes) -> None:
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            numbers = [int(word) for word in line[1:].split()]
            if line[:1] == b"?":
                self.starting = numbers[0] if numbers else None
                continue
            group = numbers.pop(0)
            self.running.pop(group, None)
            self.left.pop(group, None)
            if line[:1] == b"+":
                self.running[group] = numbers[0] if numbers else 0
            elif line[:1] == b"=":
                self.left[group] = set(zip(numbers[::2], numbers[1::2], strict=True))

    def members_to_end(self) -> dict[int, Known]:
        """Return the groups to end, with the members of each."""
        scopes: dict[int, Known] = {}
        for look in range(_READINGS):
            time.sleep(_BATCH if look else 0)
            scopes.update(self._members(process_table.members()))
            if all(group in scopes or process_table.is_empty(group) for group in (*self.running, *self.left)):
                break
        return scopes

    def _members(self, table: list[process_table.Member]) -> dict[int, Known]:
        """Return the groups that have a process in `table`.

        The number of a running group is not reused, because the kernel has not reaped its leader.
        """
        scopes = {}
        for group, oldest in self.running.items():
            known = {m.identity for m in table if m.ticks >= oldest and process_table.in_scope(m, group)}
            if known:
                scopes[group] = known
        for group, known in self.left.items():
            if process_table.still_ours(group, known, self.marker, table):
                scopes[group] = known
        return scopes

    def drop_reused(self) -> None:
        """Drop groups whose number was reused after kernel and watchdog were killed. A group is ours if its leader
        started at the recorded time, or if one of its processes carries our marker."""
        table = process_table.members()
        for group, ticks in tuple(self.running.items()):
            members = [member for member in table if process_table.in_scope(member, group)]
            if ticks and (group, ticks) in {member.identity for member in members}:
                continue
            if not any(process_table.carries_prefix(member.pid, self.ours) for member in members):
                del self.running[group]

    def find_started(self) -> None:
        """Find the groups of commands and helpers that were being started when the kernel was killed. Check repeatedly,
        because a leader may form its group only now."""
        if (oldest := self.starting) is None:
            return
        until = time.monotonic() + _START
        while True:
            table = process_table.members()
            old = {member.session for member in table if member.ticks < oldest}
            for member in table:
                session = member.session  # the leader may already have ended
                known = session in self.running or session in self.left or session in old
                if not known and process_table.carries_prefix(member.pid, self.ours):
                    self.running[session] = oldest
            if time.monotonic() >= until:
                return
            time.sleep(_BATCH)

    def add_tasks(self, scopes: dict[int, Known], table: list[process_table.Member]) -> None:
        """Add processes of tasks in other sessions, which the marker of tasks shows."""
        for member in table:
            if member.session not in scopes and process_table.carries_prefix(member.pid, self.tasks):
                scopes.setdefault(member.session, set()).add(member.identity)


def end(scopes: dict[int, Known], groups: Groups) -> None:
    """Send TERM, wait one second, send KILL. A group is signalled only while its number is not reused."""
    unseen: dict[int, int] = {}
    for number, patience in ((signals.SIGTERM, _GRACE), (signals.SIGKILL, _GRACE)):
        until = time.monotonic() + patience
        signalled = False
        while True:
            table = process_table.members()
            scopes = {
                group: known for group, known in scopes.items() if _is_there(group, known, groups.marker, table, unseen)
            }
            before = set(scopes)
            groups.add_tasks(scopes, table)
            if not scopes:
                return
            if not signalled or number == signals.SIGKILL or before != set(scopes):
                for group in scopes:
                    process_table.signal_scope(group, number, table)
                    process_table.signal_scope(group, signals.SIGCONT, table)
                signalled = True
            if time.monotonic() >= until:
                break
            time.sleep(_BATCH)


def _is_there(group: int, known: Known, marker: str, table: list[process_table.Member], unseen: dict[int, int]) -> bool:
    """Return whether a group still has a live process; a group may be missing in some readings of the table."""
    if process_table.still_ours(group, known, marker, table):
        unseen.pop(group, None)
        return True
    unseen[group] = unseen.get(group, 0) + 1
    return unseen[group] < _READINGS and not process_table.is_empty(group)


# ---------------------------------------------------------------- the private file


def private(directory: str) -> bool:
    """Make the directory if it is missing. Return whether it is private to this user."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103
        status = os.lstat(directory)
    except OSError:
        return False
    return status.st_uid == os.getuid() and status.st_mode & 0o170077 == 0o040000


def sweep(directory: str) -> None:
    """End the processes of kernels that were killed together with their watchdogs; leave a live kernel's file alone."""
    for path in orphans(directory):
        sweep_one(path)


def orphans(directory: str, watched: bool = True) -> list[str]:
    """Return the files of dead kernels, including those with a live watchdog if `watched` is set."""
    found = []
    for name in os.listdir(directory):  # noqa: PTH208
        path = f"{directory}/{name}"
        if not name.startswith("jobs-") or not (lines := _lines(path)):
            continue
        heads = _heads(lines)
        here = heads.get(b"boot") == system.boot_id().encode()
        busy = _lives(heads.get(b"owner", b"")) or (not watched and _lives(heads.get(b"watchdog", b"")))
        if not (here and busy):
            found.append(path)
    return found


def sweep_one(path: str) -> None:
    """End the processes of this file's kernel, and remove the file."""
    lines = _lines(path)
    heads = _heads(lines)
    if heads.get(b"boot") == system.boot_id().encode():
        _sweep_lines(heads.get(b"marker", b"").decode(), lines)
    _remove(path)


def _heads(lines: list[bytes]) -> dict[bytes, bytes]:
    return dict(line.split(b" ", 1) for line in lines if line[:1].isalpha() and b" " in line)


def _sweep_lines(marker: str, lines: list[bytes]) -> None:
    groups = Groups(marker)
    for line in lines:
        try:
            groups.take(line + b"\n")
        except (ValueError, IndexError):  # a head, or damaged: skip only this line
            continue
    if marker:
        groups.find_started()
        groups.drop_reused()
        end(groups.members_to_end(), groups)


def _lines(path: str) -> list[bytes]:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read().split(b"\n")
    except OSError:
        return []


def _lives(owner: bytes) -> bool:
    try:
        pid, ticks = (int(word) for word in owner.split())
    except ValueError:
        return False
    member = process_table.member_of(pid)
    return member is not None and member.ticks == ticks


def _remove(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108
    except OSError:
        return


# ---------------------------------------------------------------- the process


class ReportReader:
    """Reads the kernel's reports until it closes the pipe or ends."""

    def __init__(self, groups: Groups, kernel: int) -> None:
        self._groups = groups
        self._kernel = kernel
        self._gone = _exit_descriptor(kernel)

    def run(self) -> None:
        poller = select.poll()
        poller.register(0, select.POLLIN)
        if self._gone >= 0:
            # A forked copy of the kernel may hold the pipe open, so watch for the end of the kernel, too.
            poller.register(self._gone, select.POLLIN)
        os.set_blocking(0, False)
        patience = None if self._gone >= 0 else _PARENT * 1000
        while self._take({descriptor for descriptor, _ in poller.poll(patience)}):
            time.sleep(_BATCH)  # commands often start together: wake up once for all of them

    def _take(self, ready: set[int]) -> bool:
        try:
            data = os.read(0, 65536)
        except BlockingIOError:
            return self._gone not in ready if self._gone >= 0 else os.getppid() == self._kernel
        self._groups.take(data)
        return bool(data)


def _exit_descriptor(pid: int) -> int:
    try:
        return system.exit_descriptor(pid) if os.getppid() == pid else -1
    except OSError:
        return -1


def main(kernel: int, directory: str, marker: str, journal: str = "") -> None:
    for number in (signals.SIGINT, signals.SIGTERM, signals.SIGHUP):
        signals.signal(number, signals.SIG_IGN)
    groups = Groups(marker)
    if private(directory):
        sweep(directory)
    ReportReader(groups, kernel).run()
    groups.find_started()
    end(groups.members_to_end(), groups)
    if journal:
        _remove(journal)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
