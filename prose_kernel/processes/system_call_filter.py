"""Makes the filter of system calls for confined programs (exec-and-tasks.md 1.3).

The filter covers all architectures to which a process may switch: the 32-bit calls of a 64-bit system have other
numbers. All calls of another architecture are refused.
"""

from __future__ import annotations

import errno
import functools
import os
import struct

_X86_64, _I386, _ARM64, _ARM, _RISCV64 = 0xC000003E, 0x40000003, 0xC00000B7, 0x40000028, 0xC00000F3
_X32 = 0x40000000
"""The bit of x32 calls, x86's third interface, with 32-bit pointers."""

_ARCHITECTURES = {
    **dict.fromkeys(("x86_64", "i686", "i586", "i386"), (_X86_64, _I386)),
    **dict.fromkeys(("aarch64", "armv7l", "armv8l"), (_ARM64, _ARM)),
    "riscv64": (_RISCV64,),
}
"""The architectures to which a process may switch on each known machine, as named by `os.uname`."""

# `prlimit64` is refused for other processes. `socketcall` is i386's old way to make sockets. The flags of `clone3` are
# in memory, which a filter cannot read, so it is refused; the C library falls back to `clone`.
_NUMBERS = {
    "prlimit64": {_X86_64: 302, _I386: 340, _ARM64: 261, _ARM: 369, _RISCV64: 261},
    "socket": {_X86_64: 41, _I386: 359, _ARM64: 198, _ARM: 281, _RISCV64: 198},
    "socketpair": {_X86_64: 53, _I386: 360, _ARM64: 199, _ARM: 288, _RISCV64: 199},
    "socketcall": {_I386: 102},
    "clone": {_X86_64: 56, _I386: 120, _ARM64: 220, _ARM: 120, _RISCV64: 220},
    "clone3": {_X86_64: 435, _I386: 435, _ARM64: 435, _ARM: 435, _RISCV64: 435},
    "unshare": {_X86_64: 272, _I386: 310, _ARM64: 97, _ARM: 337, _RISCV64: 97},
    "setns": {_X86_64: 308, _I386: 346, _ARM64: 268, _ARM: 375, _RISCV64: 268},
    "io_uring_setup": {_X86_64: 425, _I386: 425, _ARM64: 425, _ARM: 425, _RISCV64: 425},
    "io_uring_enter": {_X86_64: 426, _I386: 426, _ARM64: 426, _ARM: 426, _RISCV64: 426},
    "io_uring_register": {_X86_64: 427, _I386: 427, _ARM64: 427, _ARM: 427, _RISCV64: 427},
    "add_key": {_X86_64: 248, _I386: 286, _ARM64: 217, _ARM: 309, _RISCV64: 217},
    "request_key": {_X86_64: 249, _I386: 287, _ARM64: 218, _ARM: 310, _RISCV64: 218},
    "keyctl": {_X86_64: 250, _I386: 288, _ARM64: 219, _ARM: 311, _RISCV64: 219},
    "bpf": {_X86_64: 321, _I386: 357, _ARM64: 280, _ARM: 386, _RISCV64: 280},
    "perf_event_open": {_X86_64: 298, _I386: 336, _ARM64: 241, _ARM: 364, _RISCV64: 241},
    "userfaultfd": {_X86_64: 323, _I386: 374, _ARM64: 282, _ARM: 388, _RISCV64: 282},
    "open_by_handle_at": {_X86_64: 304, _I386: 342, _ARM64: 265, _ARM: 371, _RISCV64: 265},
}
_REFUSED = (
    *("setns", "io_uring_setup", "io_uring_enter", "io_uring_register", "add_key", "request_key", "keyctl"),
    *("bpf", "perf_event_open", "userfaultfd", "open_by_handle_at"),
)
_SHARED = {
    _X86_64: (29, 30, 31, 67, 64, 65, 66, 220, 68, 69, 70, 71, 240, 241),
    _I386: (117, 395, 396, 397, 398, 393, 394, 420, 399, 400, 401, 402, 277, 278),
    _ARM64: (*range(186, 198), 180, 181),
    _ARM: (*range(298, 309), 312, 420, 274, 275),
    _RISCV64: (*range(186, 198), 180, 181),
}
"""The calls for shared memory, semaphores and message queues of System V and POSIX, whose names all processes share."""

_LOAD, _EQUAL, _LEAST, _ANY, _ANSWER = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_NUMBER, _ARCHITECTURE, _FIRST = 0, 4, 16
_NEW_USER = 0x10000000
_UNIX = 1

Instruction = tuple[int, int, int, int]


@functools.cache
def code(*, sockets: bool, shared: bool) -> bytes:
    """Return the filter in the system's format. `sockets` refuses all socket families except Unix, `shared` refuses
    objects shared by name with other processes. Raises `OSError` on a machine whose calls are unknown."""
    architectures = _ARCHITECTURES.get(os.uname().machine)
    if architectures is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), "system call filter")
    found: list[Instruction] = []
    for architecture in architectures:
        section = _section(architecture, sockets, shared)
        found += [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 0, len(section), architecture), *section]
    found.append(_refused(_ENOSYS))
    return b"".join(struct.pack("=HBBI", *each) for each in found)


def _section(architecture: int, sockets: bool, shared: bool) -> list[Instruction]:
    """Return the instructions for the calls of one architecture; they end with a verdict."""
    found: list[Instruction] = [(_LOAD, 0, 0, _NUMBER)]
    if architecture == _X86_64:
        found += [(_LEAST, 0, 1, _X32), _refused(_ENOSYS)]

    def refuse(number: int | None, error: int) -> None:
        if number is not None:
            found.extend([(_EQUAL, 0, 1, number), _refused(error)])

    def only(call: str, test: Instruction, error: int) -> None:
        """Refuse a call unless `test`, applied to its first argument, skips the refusal."""
        number = _NUMBERS[call].get(architecture)
        if number is not None:
            allowed: Instruction = (_ANSWER, 0, 0, _ALLOW)
            found.extend([(_EQUAL, 0, 4, number), (_LOAD, 0, 0, _FIRST), test, _refused(error), allowed])

    only("prlimit64", (_EQUAL, 1, 0, 0), _EPERM)
    only("clone", (_ANY, 0, 1, _NEW_USER), _EPERM)
    only("unshare", (_ANY, 0, 1, _NEW_USER), _EPERM)
    refuse(_NUMBERS["clone3"][architecture], _ENOSYS)
    for call in _REFUSED:
        refuse(_NUMBERS[call][architecture], _EPERM)
    if sockets:
        only("socket", (_EQUAL, 1, 0, _UNIX), _EAFNOSUPPORT)
        only("socketpair", (_EQUAL, 1, 0, _UNIX), _EAFNOSUPPORT)
        refuse(_NUMBERS["socketcall"].get(architecture), _EAFNOSUPPORT)
    if shared:
        for number in _SHARED[architecture]:
            refuse(number, _EPERM)
    return [*found, (_ANSWER, 0, 0, _ALLOW)]


def _refused(error: int) -> Instruction:
    return _ANSWER, 0, 0, _ERROR | error
