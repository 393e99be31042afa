"""The watchdog process. Run by path with `python -I -S`, so it imports only what starts in a few milliseconds.

Reads lines from its standard input, a pipe whose only writer is the kernel: `?TICKS` a command is about to be started,
and nothing of it is older than that (`?` it was not), `+G` group G runs (`+G TICKS`: somebody else takes its leader's
status, and nobody in it is older than that), `=G pid ticks ...` its command ended and left these processes, `-G` it is
over. When the pipe ends, or the kernel's process does, everything registered is ended:
TERM, one second, KILL. On the way it keeps a private file of long-lived groups, from which the next watchdog of this
user sweeps what is left when kernel and watchdog were both killed.
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
else:
    from prose_kernel.commands import process_table

_BATCH = 0.02
_KEEP_AFTER = 0.5
_KEEP_AT_LEAST = 8.0
_GRACE = 1.0
_START = 0.3
"""Seconds in which what the kernel was just starting has become its program."""

Known = set[tuple[int, int]]


class Groups:
    """What runs and what was left, as the kernel told it."""

    def __init__(self, marker: str) -> None:
        self.marker = marker
        self.tasks = marker.rpartition(":")[0] + ":task:"
        self.running: dict[int, float] = {}
        self.left: dict[int, Known] = {}
        self.starting: int | None = None
        self._oldest: dict[int, int] = {}
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
            self._oldest.pop(group, None)
            if line[:1] == b"+":
                self.starting = None
                self.running[group] = time.monotonic()
                self._oldest[group] = numbers[0] if numbers else 0
            elif line[:1] == b"=":
                self.left[group] = set(zip(numbers[::2], numbers[1::2], strict=True))

    def seize(self, table: list[process_table.Member]) -> dict[int, Known]:
        """The groups to end, each with its members.

        The number of a running group is its own: the kernel would have taken its leader's status only later.
        """
        scopes = {}
        for group in self.running:
            oldest = self._oldest[group]
            known = {m.identity for m in table if m.ticks >= oldest and process_table.in_scope(m, group)}
            if known:
                scopes[group] = known
        for group, known in self.left.items():
            if process_table.still_ours(group, known, self.marker, table):
                scopes[group] = known
        return scopes

    def find_started(self) -> None:
        """The group of a command during whose start the kernel was killed: its leader may become it only now."""
        until = time.monotonic() + _START
        while self.starting is not None:
            for member in process_table.members():
                leads = member.pid == member.session and member.pid not in self.running and member.pid not in self.left
                if leads and member.ticks >= self.starting and process_table.carries(member.pid, self.marker):
                    self.running[member.pid] = time.monotonic()
                    self._oldest[member.pid], self.starting = self.starting, None
                    break
            if time.monotonic() >= until:
                return
            time.sleep(_BATCH)

    def hunt(self, scopes: dict[int, Known], table: list[process_table.Member]) -> None:
        """Add what tasks have started and what left their groups: it carries their marker."""
        for member in table:
            if member.session not in scopes and process_table.carries_prefix(member.pid, self.tasks):
                scopes.setdefault(member.session, set()).add(member.identity)


def end(scopes: dict[int, Known], groups: Groups) -> None:
    """TERM, one second, KILL; a group is signalled only as long as it is still the one that we knew."""
    for number, patience in ((signals.SIGTERM, _GRACE), (signals.SIGKILL, _GRACE)):
        until = time.monotonic() + patience
        signalled = False
        while True:
            table = process_table.members()
            scopes = {
                group: known
                for group, known in scopes.items()
                if process_table.still_ours(group, known, groups.marker, table)
            }
            before = set(scopes)
            groups.hunt(scopes, table)
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


# ---------------------------------------------------------------- the private file


def boot_id() -> str:
    return _text("/proc/sys/kernel/random/boot_id").strip()


def _text(path: str) -> str:
    try:
        with open(path) as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""


def private(directory: str) -> bool:
    """Make the directory if need be; whether it is ours alone."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103
        status = os.lstat(directory)
    except OSError:
        return False
    return status.st_uid == os.getuid() and status.st_mode & 0o170077 == 0o040000


class StateFile:
    """Which live processes belong to which kernel: pid and start ticks of each, and the boot that they belong to."""

    def __init__(self, directory: str, kernel: int) -> None:
        self.usable = private(directory)
        self._path = f"{directory}/jobs-{os.getpid()}"
        self._kernel = kernel
        self._kept: list[tuple[int, int]] = []

    def keep(self, identities: list[tuple[int, int]]) -> bool:
        """Write the file anew when something changed (then true); remove it when there is nothing to keep."""
        if not self.usable or identities == self._kept:
            return False
        self._kept = identities
        if not identities:
            self.remove()
            return True
        owners = [member for pid in (self._kernel, os.getpid()) if (member := process_table.member_of(pid)) is not None]
        lines = [f"boot {boot_id()}"]
        lines += [f"owner {member.pid} {member.ticks}" for member in owners]
        lines += [f"child {pid} {ticks}" for pid, ticks in identities]
        try:
            descriptor = os.open(f"{self._path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write("\n".join(lines) + "\n")
            os.replace(f"{self._path}.new", self._path)  # noqa: PTH105
        except OSError:
            pass  # a full disk: the sweep is a second net, the first one is this process
        return True

    def remove(self) -> None:
        for path in (self._path, f"{self._path}.new"):
            try:
                os.unlink(path)  # noqa: PTH108
            except OSError:
                continue


def sweep(directory: str) -> None:
    """End what kernels left that were killed together with their watchdogs.

    A process is killed only when boot, number and start time all match; a file whose owners live is not touched.
    """
    for name in os.listdir(directory):  # noqa: PTH208
        path = f"{directory}/{name}"
        rows = [line.split() for line in _text(path).splitlines()]
        if not name.startswith("jobs-") or not rows:
            continue
        identities = {kind: {(int(r[1]), int(r[2])) for r in rows if r[0] == kind} for kind in ("owner", "child")}
        if ["boot", boot_id()] in rows:
            if any(_lives(identity) for identity in identities["owner"]):
                continue
            _kill(identities["child"])
        try:
            os.unlink(path)  # noqa: PTH108
        except OSError:
            continue


def _lives(identity: tuple[int, int]) -> bool:
    member = process_table.member_of(identity[0])
    return member is not None and member.identity == identity


def _kill(identities: Known) -> None:
    for number in (signals.SIGTERM, signals.SIGKILL):
        alive = [identity for identity in identities if _lives(identity)]
        for pid, _ in alive:
            for each in (number, signals.SIGCONT):
                try:
                    os.kill(pid, each)
                except OSError:
                    continue
        until = time.monotonic() + _GRACE
        while any(_lives(identity) for identity in alive) and time.monotonic() < until:
            time.sleep(_BATCH)


# ---------------------------------------------------------------- the process


class Watch:
    """Takes what the kernel tells, until it closes the pipe or is gone."""

    def __init__(self, groups: Groups, kernel: int, state: StateFile) -> None:
        self._groups = groups
        self._state = state
        self._gone = _pidfd(kernel)
        self._looked_at = 0.0
        self._interval = _KEEP_AFTER

    def run(self) -> None:
        poller = select.poll()
        poller.register(0, select.POLLIN)
        if self._gone >= 0:
            # A forked copy of the kernel may hold the pipe open: the end of the kernel itself counts as well.
            poller.register(self._gone, select.POLLIN)
        os.set_blocking(0, False)
        while self._take({descriptor for descriptor, _ in poller.poll(self._patience())}):
            self._keep()
            time.sleep(_BATCH)  # commands come in crowds: wake up for all of them together

    def _patience(self) -> float | None:
        """Milliseconds until the private file wants a look; for ever when nothing is registered."""
        return self._interval * 1000 if self._groups.running or self._groups.left else None

    def _take(self, ready: set[int]) -> bool:
        try:
            data = os.read(0, 65536)
        except BlockingIOError:
            return self._gone not in ready
        self._groups.take(data)
        self._interval = _KEEP_AFTER
        return bool(data)

    def _keep(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < _KEEP_AFTER:
            return
        self._looked_at = now
        groups, identities = self._groups, set()
        long_lived = [group for group, since in groups.running.items() if now - since > _KEEP_AFTER]
        if long_lived or groups.left:
            table = process_table.members()
            for group in long_lived:
                identities |= {member.identity for member in table if process_table.in_scope(member, group)}
            for group, known in groups.left.items():
                identities |= {m.identity for m in process_table.still_ours(group, known, groups.marker, table)}
            if groups.running:
                carriers = (m for m in table if process_table.carries_prefix(m.pid, groups.tasks))
                identities |= {member.identity for member in carriers}
        if not self._state.keep(sorted(identities)):
            self._interval = min(2 * self._interval, _KEEP_AT_LEAST)


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid) if os.getppid() == pid else -1
    except (AttributeError, OSError):
        return -1


def main(kernel: int, directory: str, marker: str) -> None:
    for number in (signals.SIGINT, signals.SIGTERM, signals.SIGHUP):
        signals.signal(number, signals.SIG_IGN)
    groups = Groups(marker)
    state = StateFile(directory, kernel)
    if state.usable:
        sweep(directory)
    Watch(groups, kernel, state).run()
    groups.find_started()
    end(groups.seize(process_table.members()), groups)
    state.remove()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
