"""The monitor process and its guards: one guard for each program, which owns every process that the program starts
(exec-and-tasks.md 1.3).

The kernel runs this file once, by path, with `python -I -S`. At least one guard waits for a job. It has forked the
process that will become the program, which takes the job and passes it to the guard, so a program starts in two
milliseconds; a new interpreter takes 25. When its program has ended, a guard waits for the next one. A guard adopts
every process below it that loses its parent, so none can escape. It enforces the time limit and ends the whole tree,
even if the kernel has died. Neither monitor nor guard holds the pipes of a running program.

A job is one message with four descriptors: a memory file with the job (a `dict`, marshalled), a socket to the kernel,
and the program's stdout and stderr. The guard reports in lines: `guard PID`, `started PID TICKS`, `failed STEP ERRNO`,
`ended STATUS CAUSE KILLED LEFT MAXRSS CPU`. The kernel sends single letters: `i` interrupt, `c` cancel, `k` kill now.
"""

from __future__ import annotations

import _signal as signals  # type: ignore[import-not-found]  # without the 8 ms of enumerations around it
import _socket as sockets  # for the same reason
import gc
import marshal
import os
import resource
import select
import struct
import sys
import time

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - no pathlib here
    import process_table  # type: ignore[import-not-found]
    import sandbox_syscalls  # type: ignore[import-not-found]
    import system  # type: ignore[import-not-found]
else:
    from prose_kernel.processes import process_table, sandbox_syscalls, system

_CHECK_INTERVAL = 0.02
_KILL_INTERVAL = 0.002
_FOUR_DESCRIPTORS = sockets.CMSG_SPACE(4 * 4)
_IGNORED = (signals.SIGINT, signals.SIGQUIT, signals.SIGTERM, signals.SIGHUP)
_IGNORED_BY_PYTHON = (signals.SIGPIPE, signals.SIGXFSZ)
_MOST_WAITING = 4
"""The number of guards that wait for a job."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    Job = dict[str, Any]
    Ladder = list[tuple[int, float]]  # signals before KILL, each with the seconds to wait


# ---------------------------------------------------------------- the child, until it becomes the program


def become_program(guard: int, jobs: sockets.socket, to_guard: sockets.socket, failures: int) -> None:
    """Wait for a job, pass it to the guard, and execute its program; if a step fails, report it and exit. Never
    returns."""
    step = "start"
    try:
        os.setsid()
        _default_signals((*_IGNORED, *_IGNORED_BY_PYTHON, signals.SIGCHLD))
        sandbox_syscalls.die_with_parent(signals.SIGKILL)
        if os.getppid() != guard:
            os._exit(127)
        os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0)
        system.prefer_for_out_of_memory(os.getpid())
        job_file, link, stdout, stderr = _received(jobs)
        _send(to_guard, (job_file, link))
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        job = _read(job_file)
        os.umask(job["umask"])
        step = "cwd"
        os.chdir(job["cwd"])
        _require_identity(os.stat("."), job["cwd_identity"])  # noqa: PTH116
        step = "limits"
        for number, limit in job["limits"].items():
            resource.setrlimit(number, limit)
        step = "confinement"
        _confine(job)
        if not os.read(to_guard.fileno(), 1):  # the guard has been killed
            os._exit(127)
        step = "program"
        _require_identity(os.stat(job["program"]), job["identity"])  # noqa: PTH116
        os.execve(job["program"], job["argv"], job["env"])  # noqa: S606
    except OSError as problem:
        what = problem.filename if step == "confinement" else ""
        os.write(failures, f"{step} {problem.errno or 0} {what}".encode())
    except BaseException as problem:
        os.write(failures, f"start 0 {type(problem).__name__}".encode())
    os._exit(127)


def _read(file: int) -> Job:
    """Return the job in a memory file, which another process reads as well."""
    data = os.pread(file, os.fstat(file).st_size, 0)
    os.close(file)
    return marshal.loads(data)  # type: ignore[no-any-return]  # noqa: S302 - from our own kernel, in memory


def _default_signals(numbers: Iterable[int]) -> None:
    for number in numbers:
        try:
            signals.signal(number, signals.SIG_DFL)
        except (OSError, ValueError):  # KILL, STOP, and the signals reserved by the C library
            continue
    signals.pthread_sigmask(signals.SIG_SETMASK, ())


def _require_identity(status: os.stat_result, identity: tuple[int, int] | None) -> None:
    """Raise `OSError` unless this is the file that was checked."""
    if identity is not None and (status.st_dev, status.st_ino) != identity:
        raise OSError(116, "changed")


def _confine(job: Job) -> None:
    if job["keep_rights"]:
        return
    if job["own_network"] or job["apart"]:
        sandbox_syscalls.own_namespaces(job["own_network"], job["apart"], job["read_only"])
        os.chdir(job["cwd"])  # as seen through the new mounts
        _require_identity(os.stat("."), job["cwd_identity"])  # noqa: PTH116
    sandbox_syscalls.no_new_privileges()
    if job["landlock"]:
        paths = job["paths"]
        if paths is None and not job["apart"]:
            paths = sandbox_syscalls.all_but_shared_memory()
        sandbox_syscalls.landlock(paths, job["no_tcp"])
    sandbox_syscalls.drop_capabilities()
    if job["filter"]:
        sandbox_syscalls.filter_calls(job["filter"])


# ---------------------------------------------------------------- the tree


class Tree:
    """All processes below this one. This process adopts orphans, so when it has no child, nothing is left."""

    def __init__(self, main: int) -> None:
        self.main = main
        self.status = -1
        self.exited = False
        self.cpu = 0.0
        self.max_rss = 0

    def reap(self) -> bool:
        """Reap all processes that have ended; return whether any process is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if os.WIFSTOPPED(status):  # a process has made this one its tracer
                continue
            self.cpu += usage.ru_utime + usage.ru_stime
            self.max_rss = max(self.max_rss, usage.ru_maxrss)
            if pid == self.main and not self.exited:
                self.exited = True
                self.status = status

    def members(self) -> list[process_table.Member]:
        found: list[process_table.Member] = process_table.below((os.getpid(),), process_table.members())
        return found

    def signal(self, number: int) -> int:
        """Signal each process, but not another process that got its PID meanwhile; return their number."""
        members = self.members()
        for member in members:
            try:
                descriptor = os.pidfd_open(member.pid)
            except OSError:
                continue
            try:
                now = process_table.member_of(member.pid)
                if now is not None and now.ticks == member.ticks:
                    signals.pidfd_send_signal(descriptor, number)
                    if number != signals.SIGKILL:
                        signals.pidfd_send_signal(descriptor, signals.SIGCONT)
            except OSError:
                continue
            finally:
                os.close(descriptor)
        return len(members)


class Guard:
    """Watches one program, and ends all of its processes."""

    def __init__(self, job: Job, link: int, child_ends: int, main: int) -> None:
        self._link = link
        self._tree = Tree(main)
        self._timeout: float | None = job["timeout"]
        self._ladders: dict[str, Ladder] = job["ladders"]
        self._after_kill: float = job["after_kill"]
        self._cause = "exited"
        self._orders = ""
        self._killed = 0
        self._poller = select.poll()
        self._poller.register(link, select.POLLIN)
        self._child_ends = child_ends
        self._poller.register(child_ends, select.POLLIN)

    def run(self) -> bool:
        """Watch the program to its end; return whether any process is left."""
        end = time.monotonic() + self._timeout if self._timeout is not None else None
        while True:
            self._tree.reap()
            if self._tree.exited or self._orders:
                break
            if end is not None and time.monotonic() >= end:
                break
            self._wait(None if end is None else end - time.monotonic())
        if self._tree.exited:
            self._killed = self._kill()
        else:
            self._end()
        return self._report_end()

    def _wait(self, seconds: float | None) -> None:
        """Wait until a process has ended, the kernel has sent something, or the time is over."""
        for descriptor, _ in self._poller.poll(None if seconds is None else max(0.0, seconds) * 1000 + 0.5):
            if descriptor == self._link:
                self._listen()
            else:
                os.read(self._child_ends, 4096)

    def _listen(self) -> None:
        try:
            words = os.read(self._link, 4096)
        except OSError:  # the kernel was killed before it had read all reports
            words = b""
        if not words:
            self._poller.unregister(self._link)
            self._orders += "c"  # the kernel is gone
        self._orders += words.decode("ascii", "replace")

    def _end(self) -> None:
        """Send the signals of the ladder one by one, until nothing is left."""
        self._cause = "timed_out" if not self._orders else "interrupted" if self._orders[0] == "i" else "cancelled"
        for number, patience in self._ladders[self._cause]:
            if "k" not in self._orders and self._step(number, patience):
                return
        self._kill()

    def _step(self, number: int, patience: float) -> bool:
        now = time.monotonic()
        heard, until, look = len(self._orders), now + patience, now + process_table.LOST
        self._tree.signal(number)
        while self._tree.reap():
            now = time.monotonic()
            if now >= look:
                if number == signals.SIGINT and process_table.all_ignore(self._tree.members(), number):
                    return False
                look = until
            if now >= until or "k" in self._orders or (len(self._orders) > heard and self._orders[-1] == "i"):
                return False
            self._wait(min(_CHECK_INTERVAL, until - now))
        return True

    def _kill(self) -> int:
        """Send KILL until nothing is left, even if processes fork; return how many processes the first KILL met."""
        if not self._tree.reap():
            return 0
        until = time.monotonic() + self._after_kill
        first = self._tree.signal(signals.SIGKILL)
        while self._tree.reap() and time.monotonic() < until:
            self._wait(_KILL_INTERVAL)
            self._tree.signal(signals.SIGKILL)
        return first

    def _report_end(self) -> bool:
        tree, is_left = self._tree, self._tree.reap()
        left = len(tree.members()) if is_left else 0
        status = tree.status if tree.exited else -1
        end = f"ended {status} {self._cause} {self._killed} {left} {tree.max_rss} {tree.cpu:.6f}"
        _report(self._link, end.encode())
        return is_left


def guard(jobs: sockets.socket, to_monitor: sockets.socket) -> None:
    """Serve jobs, one after another, while the monitor wants this guard to wait for the next one."""
    child_ends, monitor = _child_ends(), os.getppid()
    sandbox_syscalls.become_sub_reaper()
    sandbox_syscalls.die_with_parent(signals.SIGKILL)  # whenever this guard waits
    while _serve(jobs, to_monitor, child_ends):
        sandbox_syscalls.die_with_parent(signals.SIGKILL)
        if os.getppid() != monitor:
            return
        _report(to_monitor.fileno(), b"w")
        jobs = sockets.socket(fileno=_received(to_monitor)[0])


def _serve(jobs: sockets.socket, to_monitor: sockets.socket, child_ends: int) -> bool:
    """Fork the process of a program, wait until it has a job, and watch the program until none of its processes is
    left. Return whether all have ended."""
    own_pid = os.getpid()
    here, there = sockets.socketpair()
    reader, failures = os.pipe()
    pid = os.fork()
    if pid == 0:
        become_program(own_pid, jobs, there, failures)
    for socket in (there, jobs):  # a busy guard keeps no job in the queue of a killed monitor
        socket.close()
    os.close(failures)
    own = process_table.member_of(pid)
    job_file, link = _received(here)
    sandbox_syscalls.die_with_parent(0)
    _report(link, b"guard %d" % own_pid)
    _report(here.fileno(), b"g")  # this guard lives on, even without the monitor: the program may start
    _report(to_monitor.fileno(), b"b")
    here.close()
    job = _read(job_file)
    try:
        failure = _until_exec(reader, link, pid, job["start_timeout"])
        if failure:
            os.waitpid(pid, 0)
            _report(link, b"failed " + failure)
            return not Tree(pid).reap()  # it may have started, and forked, just before it was killed
        _report(link, b"started %d %d" % (pid, own.ticks if own is not None else 0))
        return not Guard(job, link, child_ends, pid).run()
    finally:
        os.close(reader)
        os.close(link)


def _send(socket: sockets.socket, descriptors: Sequence[int]) -> None:
    packed = struct.pack(f"{len(descriptors)}i", *descriptors)
    socket.sendmsg([b"j"], [(sockets.SOL_SOCKET, sockets.SCM_RIGHTS, packed)] if packed else [])


def _received(socket: sockets.socket) -> list[int]:
    """Wait for a message and return its descriptors. Exits if it has none, or if the other end is closed."""
    _, sent, _, _ = socket.recvmsg(1, _FOUR_DESCRIPTORS, sockets.MSG_CMSG_CLOEXEC)
    if not sent:
        os._exit(0)
    return [number for _, _, each in sent for (number,) in struct.iter_unpack("i", each)]


def _report(link: int, line: bytes) -> None:
    try:
        os.write(link, line + b"\n")
    except OSError:
        return  # the reader is gone


def _until_exec(reader: int, link: int, pid: int, seconds: float) -> bytes:
    """Wait for the exec, which closes the pipe `reader`; return the failure, if any. Wait at most `seconds`, because a
    file system may hang."""
    poller = select.poll()
    poller.register(reader, select.POLLIN)
    poller.register(link, select.POLLIN)
    ready = {descriptor for descriptor, _ in poller.poll(seconds * 1000)}
    if reader in ready:
        return os.read(reader, 512)
    os.kill(pid, signals.SIGKILL)
    return b"cancelled 0 " if ready else b"program 110 "


# ---------------------------------------------------------------- the monitor


def monitor(channel: int) -> None:
    """Keep a guard waiting until the kernel has died. The guards end by themselves."""
    gc.disable()  # a collection in a fork would copy the pages of all objects; nothing here makes reference cycles
    _default_signals(set(range(1, signals.NSIG)) - {*_IGNORED_BY_PYTHON})
    for number in _IGNORED:
        signals.signal(number, signals.SIG_IGN)
    sandbox_syscalls.become_sub_reaper()
    os.set_inheritable(channel, False)
    child_ends, jobs = _child_ends(), sockets.socket(fileno=channel)
    poller = select.poll()
    poller.register(channel, 0)  # only to notice its end
    poller.register(child_ends, select.POLLIN)
    guards: dict[int, sockets.socket] = {}
    waiting: set[int] = set()
    while True:
        if not waiting:
            started = _new_guard(jobs)
            guards[started.fileno()] = started
            waiting.add(started.fileno())
            poller.register(started, select.POLLIN)
        for number, _ in poller.poll():
            if number == channel:
                return
            if number == child_ends:
                os.read(child_ends, 4096)
                _tidy()
                continue
            waiting.discard(number)
            wanted = len(waiting) < _MOST_WAITING
            try:
                states = guards[number].recv(4096)
                if states.endswith(b"w\n"):
                    _send(guards[number], [jobs.fileno()] if wanted else [])
                    waiting.update([number] if wanted else [])
            except OSError:  # it was killed
                states = b""
            if not states:
                poller.unregister(number)
                guards.pop(number).close()


def _new_guard(jobs: sockets.socket) -> sockets.socket:
    """Fork a guard. Return a socket on which it reports `b`, it is busy, and `w`, it wants to wait for the next job."""
    here, there = sockets.socketpair()
    if os.fork() == 0:
        try:
            here.close()
            guard(jobs, there)
        finally:
            os._exit(0)
    there.close()
    return here


def _tidy() -> None:
    """Reap ended guards, and kill the programs of a killed guard, which have become children of this process.

    A guard is in the session of the monitor, a program never is.
    """
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        session = os.getsid(0)
        for pid in system.children(os.getpid()):
            if os.getsid(pid) != session:
                os.kill(pid, signals.SIGKILL)
    except OSError:
        return


def _child_ends() -> int:
    """Return a descriptor that becomes readable when a child ends."""
    reader, writer = os.pipe()
    for descriptor in (reader, writer):
        os.set_blocking(descriptor, False)
    signals.signal(signals.SIGCHLD, lambda *_: None)
    signals.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def probe() -> None:
    """Try each mechanism in a separate child, and print the results."""
    print(f"landlock {sandbox_syscalls.landlock_version()}")
    for name, attempt in (
        ("sub-reaper", sandbox_syscalls.become_sub_reaper),
        ("network", lambda: sandbox_syscalls.own_namespaces(True, False)),
        ("apart", lambda: sandbox_syscalls.own_namespaces(False, True)),
        ("domain", _try_domain),
        ("filter", _try_filter),
    ):
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            try:
                attempt()
            except OSError as problem:
                os._exit(min(problem.errno or 1, 255))
            os._exit(0)
        print(f"{name} {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")


def _try_domain() -> None:
    sandbox_syscalls.no_new_privileges()
    sandbox_syscalls.landlock([(b"/usr", sandbox_syscalls.READ)], False)


def _try_filter() -> None:
    sandbox_syscalls.no_new_privileges()
    sandbox_syscalls.filter_calls(bytes.fromhex(sys.argv[2]))


if __name__ == "__main__":
    if sys.argv[1] == "--probe":
        probe()
    else:
        monitor(int(sys.argv[1]))
