"""What an agent may use: one immutable record for each, kept in a store; no record means no (exec-and-tasks.md 3.3)."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Mode = Literal["r", "rw"]
EVERYTHING = "*"


class CapabilityError(Exception):
    """The store does not do what was asked. `kind`: `derivation_invalid`, `already_exists`, `unknown_agent`,
    `invalid_grant`; the message names the field."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


@dataclass(frozen=True, slots=True)
class FsGrant:
    """An absolute prefix, which covers itself and what is below it, and a mode.

    `pattern` further restricts it to the resolved paths that match (see `patterns`). With `binaries` it counts for the
    program that is started, and for nothing else.
    """

    prefix: str
    mode: Mode
    pattern: str | None = None
    binaries: bool = False


@dataclass(frozen=True, slots=True)
class ExecuteRules:
    """What a `permissions:` block adds for programs (3.12).

    `listed` are resolved absolute patterns (None: any program that is granted). `shells` tells that `bash: allow` is
    stated; without, shells and launchers are refused, and interpreters that the list does not name itself.
    """

    listed: tuple[str, ...] | None = ()
    shells: bool = False


@dataclass(frozen=True, slots=True)
class CapabilityRecord:
    """What one agent may use. The default is nothing at all.

    `network` says what a program's network must be: `open`, `none` (refused where that cannot be), or `best-effort`.
    `lists_bind` tells that a program may open only what the grants cover, besides the system's directories: `strict` is
    refused where that cannot be enforced, `permissive` runs with a warning, None does not restrict it.
    """

    tool_grants: frozenset[str] = frozenset()
    fs_grants: tuple[FsGrant, ...] = ()
    net_grants: frozenset[str] = frozenset()
    model_grants: frozenset[str] = frozenset()
    sub_agent: bool = False
    parent: str | None = None
    execute: ExecuteRules | None = None
    network: Literal["open", "none", "best-effort"] = "open"
    lists_bind: Literal["strict", "permissive"] | None = None
    workspace: str | None = None

    def tool(self, name: object) -> bool:
        """Whether a tool may be called. Never raises, like every check here."""
        return isinstance(name, str) and bool(name) and _any_or(self.tool_grants, name)

    def model(self, name: object) -> bool:
        return isinstance(name, str) and bool(name) and _any_or(self.model_grants, name)

    def host(self, name: object) -> bool:
        """Whether a host may be reached: exact, `*.d` one more label, `**.d` d and any depth below, `*` all."""
        return isinstance(name, str) and bool(name) and any(_host_matches(each, name) for each in self.net_grants)

    def path(self, path: object, mode: object) -> bool:
        """Whether a path is covered as it is written; callers resolve it first (see `paths`)."""
        if not isinstance(path, str) or not path.startswith("/") or mode not in ("r", "rw"):
            return False
        return any((mode == "r" or grant.mode == "rw") and below(path, grant.prefix) for grant in self.fs_grants)


def _any_or(grants: frozenset[str], name: str) -> bool:
    return EVERYTHING in grants or name in grants


def _host_matches(pattern: str, host: str) -> bool:
    if pattern in (EVERYTHING, host):
        return True
    if pattern.startswith("**."):
        return host == pattern[3:] or host.endswith(pattern[2:])
    if pattern.startswith("*."):
        label, dot, rest = host.partition(".")
        return bool(label and dot) and rest == pattern[2:]
    return False


def below(path: str, prefix: str) -> bool:
    """Whether a prefix covers a path, at the boundaries of directories."""
    prefix = prefix.rstrip("/")
    return path == prefix or path.startswith(prefix + "/")


@dataclass(slots=True)
class CapabilityStore:
    """One record for each agent, for ever: a finished agent keeps its own. From any thread."""

    _records: dict[str, CapabilityRecord] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def create(self, agent: str, record: CapabilityRecord) -> None:
        """Raises `CapabilityError`: `already_exists`, `invalid_grant`."""
        if not agent:
            raise CapabilityError("unknown_agent", "an agent has a name")
        for problem in _problems(record):
            raise CapabilityError("invalid_grant", problem)
        with self._lock:
            if agent in self._records:
                raise CapabilityError("already_exists", f"{agent} has its capabilities already")
            self._records[agent] = record

    def derive(self, parent: str, child: str, record: CapabilityRecord) -> None:
        """Create a child's record, not stronger than its parent's. Raises `CapabilityError`."""
        with self._lock:
            above = self._records.get(parent)
        if above is None:
            raise CapabilityError("unknown_agent", f"{parent} has no capabilities")
        if parent == child:
            raise CapabilityError("derivation_invalid", "parent: an agent cannot be its own parent")
        for problem in _stronger(above, record):
            raise CapabilityError("derivation_invalid", problem)
        self.create(child, _with_parent(record, parent))

    def find(self, agent: object) -> CapabilityRecord | None:
        """The record of an agent; None means that everything is refused."""
        with self._lock:
            return self._records.get(agent) if isinstance(agent, str) else None

    # every check is false for an agent without a record

    def tool(self, agent: object, name: object) -> bool:
        return (record := self.find(agent)) is not None and record.tool(name)

    def model(self, agent: object, name: object) -> bool:
        return (record := self.find(agent)) is not None and record.model(name)

    def host(self, agent: object, name: object) -> bool:
        return (record := self.find(agent)) is not None and record.host(name)

    def path(self, agent: object, path: object, mode: object) -> bool:
        return (record := self.find(agent)) is not None and record.path(path, mode)

    def sub_agent(self, agent: object) -> bool:
        return (record := self.find(agent)) is not None and record.sub_agent


def _with_parent(record: CapabilityRecord, parent: str) -> CapabilityRecord:
    from dataclasses import replace

    return replace(record, parent=parent)


_HOST = re.compile(r"(\*|\*\*?\.)?[^*\s/]*", re.ASCII)


def _problems(record: CapabilityRecord) -> Iterable[str]:
    for grant in record.fs_grants:
        if not isinstance(grant.prefix, str) or not grant.prefix.startswith("/") or "\0" in grant.prefix:
            yield f"fs_grants: {grant.prefix!r} is no absolute path"
        if grant.mode not in ("r", "rw"):
            yield f"fs_grants: {grant.mode!r} is no mode; it is r or rw"
    named: Mapping[str, frozenset[str]] = {
        "tool_grants": record.tool_grants,
        "net_grants": record.net_grants,
        "model_grants": record.model_grants,
    }
    for name, grants in named.items():
        if any(not isinstance(each, str) or not each for each in grants):
            yield f"{name}: a name cannot be empty"
    for host in record.net_grants:
        if not _HOST.fullmatch(host):
            yield f"net_grants: {host!r} is no host pattern"


def _stronger(parent: CapabilityRecord, child: CapabilityRecord) -> Iterable[str]:
    """Where a child's record would allow more than its parent's. Patterns of hosts are compared as they are written."""
    for name, mine, theirs in (
        ("tool_grants", parent.tool_grants, child.tool_grants),
        ("net_grants", parent.net_grants, child.net_grants),
        ("model_grants", parent.model_grants, child.model_grants),
    ):
        more = set() if EVERYTHING in mine else set(theirs) - set(mine)
        if more:
            yield f"{name}: the parent does not have {', '.join(sorted(more))}"
    for grant in child.fs_grants:
        if not any(_covers(each, grant) for each in parent.fs_grants):
            yield f"fs_grants: the parent does not have {grant.prefix} with {grant.mode}"
    if child.sub_agent and not parent.sub_agent:
        yield "sub_agent: the parent may not create children"
    if parent.execute is not None and not _executes_less(parent.execute, child.execute):
        yield "execute: the parent's list is shorter"
    if parent.network != "open" and child.network != parent.network and child.network != "none":
        yield "network: the parent's programs have none"
    if parent.lists_bind is not None and child.lists_bind not in (parent.lists_bind, "strict"):
        yield "lists_bind: the parent's lists bind"


def _covers(parent: FsGrant, child: FsGrant) -> bool:
    if child.mode == "rw" and parent.mode != "rw":
        return False
    if parent.binaries and not child.binaries:
        return False
    if parent.pattern is not None and parent.pattern != child.pattern:
        return False
    return ".." not in child.prefix.split("/") and below(child.prefix, parent.prefix)


def _executes_less(parent: ExecuteRules, child: ExecuteRules | None) -> bool:
    if child is None or (child.shells and not parent.shells):
        return False
    if parent.listed is None:
        return True
    return child.listed is not None and set(child.listed) <= set(parent.listed)
