"""The confinement that this machine supports: tried once, shown by `prose doctor` (1.3).

A look at the version of the system proves nothing: a container may forbid what the system offers.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import subprocess
import threading
from dataclasses import dataclass
from typing import Literal

from prose_kernel.processes import system, system_call_filter
from prose_kernel.processes.monitor import COMMAND

_SECONDS = 20
_SCOPES = 6
_TCP = 4


@dataclass(frozen=True, slots=True)
class Mechanisms:
    """The supported mechanisms. `network` is "" if a program can have an empty network namespace, else the reason;
    `monitor` likewise. `landlock` is the version, 0 for none. `filters`: system calls can be filtered; `apart`: a
    program can have its own mounts and shared memory.
    """

    monitor: str
    landlock: int = 0
    network: str = ""
    filters: bool = False
    apart: bool = False

    @property
    def scopes(self) -> bool:
        """Whether a program can be kept from signalling what is outside of its domain."""
        return self.landlock >= _SCOPES

    @property
    def tcp(self) -> bool:
        return self.landlock >= _TCP


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `prose doctor`: `note` is no fault, what it says degrades visibly where it is asked for."""

    state: Literal["ok", "note"]
    subject: str
    text: str


_lock = threading.Lock()


def mechanisms() -> Mechanisms:
    """Return the supported mechanisms; the first call tries them, in a few hundredths of a second. From any thread."""
    with _lock:
        return _tried()


@functools.cache
def _tried() -> Mechanisms:
    if not system.LINUX:
        return Mechanisms("it needs Linux (a process that adopts orphans, Landlock)", 0, "there is no monitor")
    try:
        lines = _run([*COMMAND, "--probe", _filter().hex()]).stdout.decode().split("\n")
    except (OSError, subprocess.SubprocessError) as problem:
        return Mechanisms(f"the monitor does not start: {type(problem).__name__}", 0, "there is no monitor")
    found = dict(line.split(" ") for line in lines if line)
    if found.get("sub-reaper") != "0" or not hasattr(os, "pidfd_open"):
        return Mechanisms("this system cannot hand orphans to the monitor", 0, "there is no monitor")
    version = int(found["landlock"]) if found.get("domain") == "0" else 0
    network = "" if found.get("network") == "0" else _reason(found.get("network", "1"))
    return Mechanisms("", version, network, found.get("filter") == "0", found.get("apart") == "0")


def _filter() -> bytes:
    with contextlib.suppress(OSError):
        return system_call_filter.code(sockets=True, shared=True)
    return b""


def _run(argv: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False, env={})


def _reason(number: str) -> str:
    return f"the system does not allow it ({errno.errorcode.get(int(number), number)})"


def probe(found: Mechanisms | None = None) -> tuple[Finding, ...]:
    """The lines of `prose doctor`: what is enforced for agents' programs here, and what is refused where it is not."""
    found = mechanisms() if found is None else found
    if found.monitor:
        missing = f"not available: {found.monitor}; Exec is refused, and so are agents' commands under rules that bind"
        return (Finding("note", "monitor", missing),)
    return (
        Finding("ok", "monitor", "agents' programs are ended together with everything they have started"),
        _landlock_finding(found),
        _network_finding(found.network),
        _calls_finding(found),
        _apart_finding(found),
    )


def _landlock_finding(found: Mechanisms) -> Finding:
    if not found.landlock:
        text = "not available: agents' programs are refused where `read:` or `write:` is stated"
        return Finding("note", "landlock", f"{text} (or run unbound: [exec] lists)")
    text = f"`read:` and `write:` are enforced for agents' programs (version {found.landlock})"
    if found.scopes:
        return Finding("ok", "landlock", text)
    return Finding("note", "landlock", f"{text}; too old to keep them from signalling your other processes")


def _network_finding(problem: str) -> Finding:
    if not problem:
        return Finding("ok", "no network", "`network: deny` is enforced for agents' programs")
    text = f"not available: {problem}; agents' programs are refused under `network: deny`"
    return Finding("note", "no network", f"{text} (or run with less: [exec] network)")


def _calls_finding(found: Mechanisms) -> Finding:
    if found.filters:
        return Finding(
            "ok", "system calls", "sockets, keys, io_uring and user namespaces are refused where they must be"
        )
    return Finding("note", "system calls", "cannot be filtered; agents' programs are refused under `network: deny`")


def _apart_finding(found: Mechanisms) -> Finding:
    if found.apart:
        return Finding("ok", "apart", "agents' programs share no memory, and cannot change protected files")
    text = "no namespaces of mounts and memory: shared memory is refused, protected files can be changed"
    return Finding("note", "apart", text)
