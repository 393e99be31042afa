"""What a child does to itself before it becomes the program: limits, no new rights, no way out (exec-and-tasks.md 1.3).

Runs in the monitor's forked child, so it imports only what starts in a few milliseconds, and each failure is an
`OSError` that carries the name of the step. Nothing here can be undone by the program that follows.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct

_libc = ctypes.CDLL(None, use_errno=True)

_NO_NEW_PRIVILEGES = 38
_PARENT_DEATH_SIGNAL = 1
_SUB_REAPER = 36
_DROP_FROM_BOUNDING_SET = 24
_AMBIENT, _AMBIENT_CLEAR_ALL = 47, 4
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
_MAKE_CHAR, _MAKE_BLOCK, _TRUNCATE, _IOCTL = 1 << 6, 1 << 11, 1 << 14, 1 << 15
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""How many rights on files each version of Landlock knows; 16 from version 5 on."""

READ = READ_FILE | READ_DIR
WRITE = 0xFFFF & ~(READ | EXECUTE | _IOCTL | _MAKE_CHAR | _MAKE_BLOCK)
DEVICE = READ_FILE | WRITE_FILE | _IOCTL | _TRUNCATE

_KEPT_CAPABILITIES = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4
"""Of root's rights only those on files stay: no raising of limits, no looking into other processes, no mounting."""


def _check(result: int, step: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), step)
    return result


def _prctl(option: int, *arguments: int) -> int:
    padded = [ctypes.c_ulong(each) for each in (*arguments, 0, 0, 0, 0)[:4]]
    return int(_libc.prctl(option, *padded))


def become_sub_reaper() -> None:
    """From now on, whoever below loses its parent becomes a child of this process."""
    _check(_prctl(_SUB_REAPER, 1), "sub-reaper")


def die_with_parent(signal: int) -> None:
    """Valid for this process alone, and only when the thread that forked it is its parent's main thread."""
    _check(_prctl(_PARENT_DEATH_SIGNAL, signal), "parent death signal")


def set_limits(limits: list[tuple[int, int, int]]) -> None:
    """Resource, soft and hard limit. A hard limit that is lower already is kept."""
    for number, soft, hard in limits:
        _, now = resource.getrlimit(number)
        if now != resource.RLIM_INFINITY:
            hard = min(hard, now)
        resource.setrlimit(number, (min(soft, hard), hard))


def no_new_privileges() -> None:
    """Set-id bits and file capabilities have no effect any more."""
    _check(_prctl(_NO_NEW_PRIVILEGES, 1), "no new privileges")


def drop_capabilities(maps_root: bool = False) -> None:
    """Give up every right that is not about files; does nothing for who has none. `maps_root` keeps what root needs to
    enter a user namespace as root."""
    keep = _KEPT_CAPABILITIES | (1 << 31 if maps_root else 0)
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0))
    data = ctypes.create_string_buffer(24)
    _check(_libc.capget(header, data), "capabilities")
    words = struct.unpack("=6I", data.raw)
    permitted = (words[1] | words[4] << 32) & keep
    effective = (words[0] | words[3] << 32) & keep
    if not any(words):
        return
    _prctl(_AMBIENT, _AMBIENT_CLEAR_ALL)
    for number in range(64):
        if not 1 << number & keep:
            _prctl(_DROP_FROM_BOUNDING_SET, number)
    low, high = 0xFFFFFFFF, 32
    kept = (effective & low, permitted & low, 0, effective >> high, permitted >> high, 0)
    _check(_libc.capset(header, ctypes.create_string_buffer(struct.pack("=6I", *kept))), "capabilities")


# ---------------------------------------------------------------- limits of others

_SECCOMP, _SECCOMP_FILTER = 22, 2
_PRLIMIT = {0xC000003E: 302, 0x40000003: 340, 0xC00000B7: 261, 0x40000028: 369, 0xC00000F3: 261}
"""The number of prlimit64 by architecture: x86 with 64 and 32 bits, ARM with 64 and 32 bits, RISC-V."""


def only_own_limits() -> None:
    """Let prlimit work on the caller alone: nothing else keeps a program from setting limits of our other processes.

    One filter for system calls, in which every other call is allowed.
    """
    load, equal, either, answer = 0x20, 0x15, 0x54, 0x06
    code: list[tuple[int, int, int, int]] = []
    for architecture, number in _PRLIMIT.items():
        code += [
            (load, 0, 0, 4),  # the architecture
            (equal, 0, 6, architecture),
            (load, 0, 0, 0),  # the call, without the mark of the x32 variant
            (either, 0, 0, 0xBFFFFFFF),
            (equal, 0, 3, number),
            (load, 0, 0, 16),  # its first argument: whose limits
            (equal, 1, 0, 0),
            (answer, 0, 0, 0x00050001),  # EPERM
        ]
    code.append((answer, 0, 0, 0x7FFF0000))
    instructions = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in code))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(code), ctypes.addressof(instructions)))
    if _libc.prctl(_SECCOMP, ctypes.c_ulong(_SECCOMP_FILTER), program, 0, 0) < 0:
        _check(-1, "system call filter")


# ---------------------------------------------------------------- network


def isolate_network() -> None:
    """A network namespace of its own, with nothing in it; through a user namespace where that is needed."""
    if _libc.unshare(_NEW_NETWORK) == 0:
        return
    user, group = os.geteuid(), os.getegid()
    _check(_libc.unshare(_NEW_USER | _NEW_NETWORK), "network namespace")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


# ---------------------------------------------------------------- Landlock


def landlock_version() -> int:
    """The version of Landlock that this system offers; 0 when there is none."""
    return max(0, int(_libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))))


def landlock(paths: list[tuple[bytes, int]] | None, no_tcp: bool) -> None:
    """Enter a domain of its own: what is outside cannot be signalled, traced or looked into.

    `paths` are the only places for files, each with its rights (None: files are not restricted); what does not exist
    is left out. `no_tcp` forbids connecting and listening, and sockets without a file.
    """
    version = landlock_version()
    known = (1 << _RIGHTS.get(version, 16)) - 1
    # A domain has to handle something: making devices is what no program needs.
    handled = known if paths is not None else 0 if version >= 6 else _MAKE_BLOCK
    network = 3 if no_tcp and version >= 4 else 0
    scoped = 0 if version < 6 else 3 if no_tcp else 2
    attributes = struct.pack("=QQQ", handled, network, scoped)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    domain = _check(
        _libc.syscall(_LANDLOCK_CREATE, buffer, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0)), "Landlock"
    )
    try:
        for path, rights in paths or ():
            _allow(domain, path, rights & known)
        _check(_libc.syscall(_LANDLOCK_RESTRICT, domain, ctypes.c_uint32(0)), "Landlock")
    finally:
        os.close(domain)


def _allow(domain: int, path: bytes, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if os.fstat(descriptor).st_mode & 0o170000 != 0o040000:  # no directory
            rights &= _OF_FILES
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, descriptor), 12)
        _check(
            _libc.syscall(_LANDLOCK_ADD, domain, ctypes.c_int(1), rule, ctypes.c_uint32(0)),
            "Landlock",
        )
    finally:
        os.close(descriptor)
