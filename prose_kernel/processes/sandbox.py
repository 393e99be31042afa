"""Finds out which mechanisms of confinement this machine supports, for `Exec`, tasks and `prose doctor` (1.3).

Each is tried, once: the system's version isn't enough, because a container may forbid supported mechanisms.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import subprocess
import threading
from typing import Literal

from msgspec import Struct

from prose_kernel.processes import system, system_call_filter
from prose_kernel.processes.monitor import COMMAND

_SECONDS = 20
_SCOPES = 6
_TCP = 4


class Mechanisms(Struct, frozen=True):
    """The supported mechanisms. `monitor` and `network` (empty network namespaces) are "" if they work, else the reason
    why not. `landlock` is its version, 0 for none. `filters`: system calls can be filtered. `apart`: a program can have
    separate mounts and shared memory.
    """

    monitor: str
    landlock: int = 0
    network: str = ""
    filters: bool = False
    apart: bool = False

    @property
    def scopes(self) -> bool:
        """Whether a program can be kept from signalling processes outside its domain."""
        return self.landlock >= _SCOPES

    @property
    def tcp(self) -> bool:
        return self.landlock >= _TCP


class MechanismStatus(Struct, frozen=True):
    """One line of `prose doctor`. A `note` isn't an error: a use of the missing feature fails or warns visibly."""

    state: Literal["ok", "note"]
    subject: str
    text: str


_lock = threading.Lock()


def mechanisms() -> Mechanisms:
    """Return the supported mechanisms. The first call tries them, for some 0.05 s. Callable from any thread."""
    with _lock:
        return _probe_mechanisms()


@functools.cache
def _probe_mechanisms() -> Mechanisms:
    if not system.LINUX:
        return Mechanisms("it needs Linux (a process that adopts orphans, Landlock)", 0, "there is no monitor")
    try:
        command, nothing = [*COMMAND, "--probe", _filter().hex()], subprocess.DEVNULL
        asked = subprocess.run(command, stdin=nothing, capture_output=True, timeout=_SECONDS, check=False, env={})
        lines = asked.stdout.decode().split("\n")
    except (OSError, subprocess.SubprocessError) as problem:
        return Mechanisms(f"the monitor does not start: {type(problem).__name__}", 0, "there is no monitor")
    found = dict(line.split(" ") for line in lines if line)
    if found.get("sub-reaper") != "0" or not hasattr(os, "pidfd_open"):
        return Mechanisms("this system cannot hand orphans to the monitor", 0, "there is no monitor")
    version = int(found["landlock"]) if found.get("domain") == "0" else 0
    number = found.get("network", "1")
    why = f"the system does not allow it ({errno.errorcode.get(int(number), number)})"
    network = "" if number == "0" else why
    return Mechanisms("", version, network, found.get("filter") == "0", found.get("apart") == "0")


def _filter() -> bytes:
    with contextlib.suppress(OSError):
        return system_call_filter.code(sockets=True, shared=True)
    return b""


def probe(found: Mechanisms | None = None) -> tuple[MechanismStatus, ...]:
    """Return the lines of `prose doctor`: which restrictions of agents' programs this machine can enforce."""
    found = mechanisms() if found is None else found
    if found.monitor:
        missing = f"not available: {found.monitor}; Exec is refused, and so are agents' commands under rules that bind"
        return (MechanismStatus("note", "monitor", missing),)
    enforced = f"`read:` and `write:` are enforced for agents' programs (version {found.landlock})"
    bound = (
        f"{enforced}; too old to keep them from signalling your other processes"
        if found.landlock
        else "not available: agents' programs are refused where `read:` or `write:` is stated"
        " (or run unbound: [exec] lists)"
    )
    lines = (
        ("landlock", found.landlock > 0 and found.scopes, enforced, bound),
        (
            "no network",
            not found.network,
            "`network: deny` is enforced for agents' programs",
            f"not available: {found.network}; agents' programs are refused under `network: deny`"
            " (or run with less: [exec] network)",
        ),
        (
            "system calls",
            found.filters,
            "sockets, keys, io_uring and user namespaces are refused where they must be",
            "cannot be filtered; agents' programs are refused under `network: deny`",
        ),
        (
            "apart",
            found.apart,
            "agents' programs share no memory, and cannot change protected files",
            "no namespaces of mounts and memory: shared memory is refused, protected files can be changed",
        ),
    )
    return (
        MechanismStatus("ok", "monitor", "agents' programs are ended together with everything they have started"),
        *(MechanismStatus("ok" if works else "note", name, yes if works else no) for name, works, yes, no in lines),
    )
