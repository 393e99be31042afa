"""The operator's settings for `Exec`; agents and programs cannot change them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ExecOptions:
    """The table `[exec]` of prose.toml, and options that only an operator's code can set.

    - `enabled`: whether there is an `Exec` tool at all; agents need a grant besides.
    - `memory_bytes`: the address space of one process. Node and Java need 4 GiB.
    - `cpu_seconds`: CPU time of one process; None: as many seconds as the call may take.
    - `file_bytes`, `open_files`: the largest file that may be written, and how many may be open.
    - `home`: `tmp`: HOME=/tmp and a fixed PATH; `inherit`: the kernel's values; `private`: those, and for each agent an
      empty home directory.
    - `allow_exec_from_writable`: lets an agent run programs that lie where it may write.
    - `network`: with `best-effort` a program runs under `network: deny` also where only TCP, or nothing, can be denied.
    - `lists`: `permissive` lets a program run although its lists of files cannot be enforced here.
    - `refuse_env`, `allow_env`: further names (with `*`) that agents may not set, and names that they may after all.
    """

    enabled: bool = False
    memory_bytes: int = 512 * MEBIBYTE
    cpu_seconds: int | None = None
    file_bytes: int = 64 * MEBIBYTE
    open_files: int = 256
    home: Literal["tmp", "inherit", "private"] = "tmp"
    allow_exec_from_writable: bool = False
    network: Literal["strict", "best-effort"] = "strict"
    lists: Literal["strict", "permissive"] = "strict"
    refuse_env: tuple[str, ...] = ()
    allow_env: tuple[str, ...] = ()
