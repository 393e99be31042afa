"""System calls that confine a child before it becomes the program: limits, privileges, namespaces, Landlock (1.3).

A program cannot undo any of these steps. Each failure is an `OSError` with the name of the step. The monitor imports
this module, so it imports only modules that load in a few milliseconds.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)
# found here, once, and not in each fork
_syscall, _unshare, _mount_, _capget, _capset = _libc.syscall, _libc.unshare, _libc.mount, _libc.capget, _libc.capset
_CAPABILITY_WORDS = ctypes.c_char * 24
_short_prctl = ctypes.CDLL(None).prctl
_short_prctl.argtypes = (ctypes.c_int, ctypes.c_ulong)  # half the time of five arguments

_LIMITS = 16
_NO_NEW_PRIVILEGES = 38
_PARENT_DEATH_SIGNAL = 1
_SUB_REAPER = 36
_DROP_FROM_BOUNDING_SET = 24
_AMBIENT, _AMBIENT_CLEAR_ALL = 47, 4
_NEW_USER, _NEW_NETWORK, _NEW_IPC, _NEW_MOUNTS = 0x10000000, 0x40000000, 0x08000000, 0x00020000
_READ_ONLY, _NO_SET_ID, _NO_DEVICES, _REMOUNT, _BIND, _RECURSIVE = 1, 2, 4, 32, 4096, 16384
_SLAVE, _RELATIVE_TIMES = 1 << 19, 1 << 21

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
_MAKE_CHAR, _MAKE_BLOCK, _TRUNCATE, _IOCTL = 1 << 6, 1 << 11, 1 << 14, 1 << 15
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""The number of file rights in each version of Landlock; 16 from version 5 on."""

READ = READ_FILE | READ_DIR
WRITE = 0xFFFF & ~(READ | EXECUTE | _IOCTL | _MAKE_CHAR | _MAKE_BLOCK)
DEVICE = READ_FILE | WRITE_FILE | _IOCTL | _TRUNCATE

_KEPT_CAPABILITIES = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4
"""The capabilities that root keeps: only on files; none to raise limits, inspect processes, or mount."""


def _check(result: int, step: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), step)
    return result


def _prctl(option: int, *arguments: int) -> int:
    return int(_libc.prctl(option, *(*arguments, 0, 0, 0, 0)[:4]))


def become_sub_reaper() -> None:
    """Make this process the new parent of every process below it that loses its parent."""
    _check(_prctl(_SUB_REAPER, 1), "sub-reaper")


def die_with_parent(signal: int) -> None:
    """Let the system signal this process when its parent ends (0: no signal). The parent's main thread must fork it."""
    _check(_prctl(_PARENT_DEATH_SIGNAL, signal), "parent death signal")


def limited(limits: Iterable[tuple[int, int, int]]) -> dict[int, tuple[int, int]]:
    """Return this process's resource limits, changed by `limits`: (resource, soft, hard). A lower hard limit stays."""
    found = {number: resource.getrlimit(number) for number in range(_LIMITS)}
    for number, soft, hard in limits:
        _, now = found[number]
        if now != resource.RLIM_INFINITY:
            hard = min(hard, now)
        found[number] = min(soft, hard), hard
    return found


def no_new_privileges() -> None:
    """Disable set-id bits and file capabilities."""
    _check(_prctl(_NO_NEW_PRIVILEGES, 1), "no new privileges")


def drop_capabilities() -> None:
    """Drop every capability that is not about files. Does nothing for a process without capabilities."""
    header, data = struct.pack("=Ii", 0x20080522, 0), _CAPABILITY_WORDS()
    _check(_capget(header, data), "capabilities")
    words = struct.unpack("=6I", data.raw)
    permitted = (words[1] | words[4] << 32) & _KEPT_CAPABILITIES
    effective = (words[0] | words[3] << 32) & _KEPT_CAPABILITIES
    if not any(words):
        return
    _prctl(_AMBIENT, _AMBIENT_CLEAR_ALL)
    for number in range(64):
        if not 1 << number & _KEPT_CAPABILITIES and _short_prctl(_DROP_FROM_BOUNDING_SET, number) < 0:
            break  # this system has no further capabilities
    low, high = 0xFFFFFFFF, 32
    kept = (effective & low, permitted & low, 0, effective >> high, permitted >> high, 0)
    _check(_capset(header, struct.pack("=6I", *kept)), "capabilities")


# ---------------------------------------------------------------- system calls

_SECCOMP, _SECCOMP_FILTER = 22, 2


def filter_calls(code: bytes) -> None:
    """Refuse system calls to this process and its descendants; `system_call_filter` makes the `code`."""
    program = struct.pack("@HP", len(code) // 8, _address(code))
    _check(_prctl(_SECCOMP, _SECCOMP_FILTER, _address(program)), "system call filter")


def _address(data: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


# ---------------------------------------------------------------- namespaces


def own_namespaces(network: bool, apart: bool, read_only: tuple[bytes, ...] = ()) -> None:
    """Enter new namespaces, through a user namespace if necessary.

    `network`: an empty network. `apart`: no memory, semaphore or queue of System V or POSIX is shared by name with
    other processes, and `read_only` files and directories cannot be changed.
    """
    wanted = (_NEW_NETWORK if network else 0) | (_NEW_IPC | _NEW_MOUNTS if apart else 0)
    if _unshare(wanted) != 0:
        user, group = os.geteuid(), os.getegid()
        _check(_unshare(_NEW_USER | wanted), "namespaces")
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, text.encode())
            finally:
                os.close(descriptor)
    if apart:
        _mount(b"none", b"/", None, _RECURSIVE | _SLAVE)
        for kind, target, data in ((b"tmpfs", b"/dev/shm", b"mode=1777,size=256m"), (b"mqueue", b"/dev/mqueue", None)):
            try:
                _mount(kind, target, kind, _NO_DEVICES | _NO_SET_ID, data)
            except (FileNotFoundError, NotADirectoryError):
                continue
        for path in read_only:
            _make_read_only(path)


def _make_read_only(path: bytes) -> None:
    try:
        kept = os.statvfs(path).f_flag
        _mount(path, path, None, _BIND | _RECURSIVE)
    except FileNotFoundError:
        return
    flags = kept & 0xC0E | (_RELATIVE_TIMES if kept & 4096 else 0)  # flags that a user namespace cannot remove
    _mount(b"none", path, None, _BIND | _REMOUNT | _READ_ONLY | flags)


def _mount(source: bytes, target: bytes, kind: bytes | None, flags: int, data: bytes | None = None) -> None:
    _check(_mount_(source, target, kind, ctypes.c_ulong(flags), data), "mounts")


# ---------------------------------------------------------------- Landlock


def landlock_version() -> int:
    """Return the supported version of Landlock; 0 if there is none."""
    return max(0, int(_syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)))


def landlock(paths: list[tuple[bytes, int]] | None, no_tcp: bool) -> None:
    """Enter a new domain, from which processes outside cannot be signalled, traced or inspected.

    `paths` are the only accessible files, each with its rights (None: files are not restricted); missing files are
    skipped. `no_tcp` forbids connecting and listening by TCP, and sockets in the abstract namespace.
    """
    version = landlock_version()
    known = (1 << _RIGHTS.get(version, 16)) - 1
    # A domain must restrict something: no program needs to create block devices.
    handled = known if paths is not None else 0 if version >= 6 else _MAKE_BLOCK
    network = 3 if no_tcp and version >= 4 else 0
    scoped = 0 if version < 6 else 3 if no_tcp else 2
    attributes = struct.pack("=QQQ", handled, network, scoped)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    domain = _check(_syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0), "Landlock")
    try:
        for path, rights in paths or ():
            _allow(domain, path, rights & known)
        _check(_syscall(_LANDLOCK_RESTRICT, domain, 0), "Landlock")
    finally:
        os.close(domain)


def all_but_shared_memory() -> list[tuple[bytes, int]]:
    """Return all files with all rights, except `/dev/shm` and `/dev/mqueue`. `/` and `/dev` get no new files."""
    every = 0xFFFF
    found = [(b"/", READ_DIR)]
    found += [(b"/" + name, every) for name in os.listdir(b"/") if name != b"dev"]  # noqa: PTH208
    found += [(b"/dev/" + name, every) for name in os.listdir(b"/dev") if name not in (b"shm", b"mqueue")]  # noqa: PTH208
    return found


def _allow(domain: int, path: bytes, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if os.fstat(descriptor).st_mode & 0o170000 != 0o040000:  # not a directory
            rights &= _OF_FILES
        added = _syscall(_LANDLOCK_ADD, domain, 1, struct.pack("=Qi", rights, descriptor), 0)
        if added < 0 and ctypes.get_errno() != errno.EBADFD:  # a pipe at `/dev/stdin` needs no rule
            _check(added, "Landlock")
    finally:
        os.close(descriptor)
