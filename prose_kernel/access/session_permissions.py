"""Permissions of a session: its `permissions:` merged over the host's rules (openprose.md 4.5)."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from prose_kernel.access import grants, hosts
from prose_kernel.access.grants import FsGrant, Reach, Surface
from prose_kernel.runtime.ports import SessionRequest
from prose_kernel.runtime.session_options import Rule, Surroundings

Kind = Literal["read", "write", "execute", "network", "bash", "tools"]
Answer = Literal["allow", "deny", "prompt"]

KINDS: Final[tuple[Kind, ...]] = ("read", "write", "execute", "network", "bash")
"""The kinds that every session has; `tools` is for sessions that name user-provided tools (docs/how-to/tools.md)."""
WORKSPACE: Final = "workspace"
SHIPPED: Final[Mapping[Kind, Rule]] = {
    "read": WORKSPACE,
    "write": "deny",
    "execute": "deny",
    "network": "prompt",
    "bash": "deny",
    "tools": "prompt",
}
"""The default rules."""

_FILES: Final[tuple[Kind, ...]] = ("read", "write", "network")
TOUCHES: Final[Mapping[str, tuple[Kind, ...]]] = {
    "read": ("read",),
    "list": ("read",),
    "search": ("read",),
    "write": ("write",),
    "edit": ("read", "write"),
    "fetch": ("network",),
    "Exec": ("execute", *_FILES),
}
"""The kinds of permission that decide about calls of a tool; see `touches` for other tools."""

_WORDS: Final[Mapping[str, Answer]] = {"allow": "allow", "deny": "deny", "prompt": "prompt", "ask": "prompt"}


def touches(tool: str) -> tuple[Kind, ...]:
    """Return the kinds of permission that decide about calls of a tool. `tools:NAME` is a tool that a program names."""
    return ("tools",) if tool.startswith("tools:") else TOUCHES.get(tool, ("bash", *_FILES))


class Ruling(Struct, frozen=True):
    """The decision of the rules about one call. `why` names the rule, for the model and the trace; `exact` is True if a
    pattern names the target itself, without a wildcard."""

    answer: Answer
    why: str = ""
    exact: bool = False


class Policy:
    """The rules of one session, resolved: for each kind the program's rule, else the host's, else `SHIPPED`.

    Unknown kinds and words grant nothing. Some files are closed to every session: see `grants.protected`.
    """

    def __init__(self, rules: Mapping[Kind, Rule], surface: Surface, search_path: str | None = None) -> None:
        self._rules = dict(rules)
        self._surface = surface
        self._search_path = search_path
        for kind, rule in self._rules.items():
            for pattern in rule if isinstance(rule, tuple) else ():
                _check(kind, pattern)

    @classmethod
    def of(
        cls,
        stated: Mapping[str, Rule],
        host: Mapping[str, Rule],
        cwd: str,
        *,
        state_dir: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Policy:
        """Return the policy for the program's merged `permissions:` block (`stated`, may be empty) over the settings'
        rules (`host`); `cwd` is the workspace.

        `state_dir` is the state directory (None: `.prose` in the workspace); `environment` provides `HOME` and `PATH`.
        Raises `PermissionDenied` for a pattern with `..`.
        """
        environment = {} if environment is None else environment
        home = environment.get("HOME") or str(Path.home())
        state = os.path.join(cwd, state_dir or ".prose")  # noqa: PTH118 - text in, text out
        rules: dict[Kind, Rule] = {kind: _effective_rule(kind, stated, host) for kind in (*KINDS, "tools")}
        return cls(rules, Surface(cwd, home, state), environment.get("PATH"))

    @classmethod
    def of_session(cls, request: SessionRequest, host: Mapping[str, Rule], where: Surroundings) -> Policy:
        """Return the policy of a session over the host's rules. Raises `PermissionDenied` for an invalid pattern."""
        return cls.of(request.permissions, host, where.cwd, state_dir=where.state_dir, environment=where.environment)

    def decide(self, kind: Kind, target: str) -> Ruling:
        """Return the decision of the rules. `target` is an absolute resolved path (read, write, execute), a URL or host
        (network), or a command line (bash). Never raises: invalid targets are denied."""
        why = f"the rule is `{kind}: {shown(self.rule(kind))}`"
        if kind in ("read", "write"):
            reason = self.protects(kind, target)
            if reason is not None:
                return Ruling("deny", reason)
        address = hosts.address(target) if kind == "network" else None
        if kind == "network" and address is None:
            return Ruling("deny", "this isn't an address that could be checked")
        rule = self.rule(kind)
        if isinstance(rule, str) and rule != WORKSPACE:
            return Ruling(_WORDS[rule], why)
        if address is not None:
            return self._network(address, why)
        if kind == "tools":
            fits = any(fnmatch.fnmatchcase(target, pattern) for pattern in self.patterns(kind))
            return Ruling("allow" if fits else "deny", why)
        return Ruling("allow" if self.reach(kind).covers(target) else "deny", why)

    def _network(self, target: hosts.Address, why: str) -> Ruling:
        patterns = [pattern for text in self.patterns("network") if (pattern := hosts.host_pattern(text)) is not None]
        covering = [pattern for pattern in patterns if pattern.covers(target)]
        exact = any(pattern.exact for pattern in covering)
        return Ruling("allow" if covering else "deny", why, exact)

    def protects(self, kind: Kind, target: str) -> str | None:
        """Return why this resolved path is closed to every session; None: the rules decide."""
        if not target.startswith("/") or "\0" in target:
            return "this isn't a path that could be checked"
        return grants.protected(kind, target, self._surface)

    def reach(self, kind: Kind) -> Reach:
        """Return the files that a rule covers now; the word `prompt` covers all of them, after a question."""
        return Reach(file_grants(self.rule(kind), kind, self._surface, self._search_path))

    def may_allow(self, kind: Kind) -> bool:
        """Return whether any call of this kind could be allowed, perhaps after a question."""
        return self.rule(kind) != "deny"

    def rule(self, kind: Kind) -> Rule:
        """Return the effective rule: `allow`, `deny`, `prompt`, `workspace`, or patterns as written (never empty)."""
        return self._rules.get(kind, "deny")

    def patterns(self, kind: Kind) -> tuple[str, ...]:
        """Return the patterns of a rule as written; empty if it is a word."""
        rule = self.rule(kind)
        return rule if isinstance(rule, tuple) else ()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return the kinds to show: all of `KINDS`, and `tools` if there is a rule about it."""
        return KINDS if self.rule("tools") == SHIPPED["tools"] else (*KINDS, "tools")


def _effective_rule(kind: Kind, stated: Mapping[str, Rule], host: Mapping[str, Rule]) -> Rule:
    """Return the effective rule in normal form: a known word, or patterns in order, each once."""
    for rules in (stated, host):
        if kind in rules:
            return _normalized(kind, rules[kind])
    return SHIPPED[kind]


def _check(kind: Kind, pattern: str) -> None:
    if kind == "network":
        hosts.check(pattern)
    elif kind != "tools":
        grants.check(kind, pattern)


def _normalized(kind: Kind, rule: Rule) -> Rule:
    if isinstance(rule, str):
        return _WORDS.get(rule, "deny")
    if kind == "bash":
        return "deny"
    return tuple(sorted({pattern for pattern in rule if pattern})) or "deny"


def file_grants(rule: Rule, kind: Kind, surface: Surface, search_path: str | None = None) -> tuple[FsGrant, ...]:
    """Return the access that a rule about files grants to sessions' tools, `Exec` and agents' commands.

    The word `prompt` grants everything: the person is asked beforehand. Unknown words grant nothing.
    """
    mode: grants.Mode = "rw" if kind == "write" else "r"
    binaries = kind == "execute"
    if isinstance(rule, tuple):
        return grants.program_grants(rule, surface, search_path) if binaries else grants.grants(rule, surface, mode)
    if rule == WORKSPACE:
        return (FsGrant(surface.cwd, mode, binaries=binaries, secrets=False),)
    return (FsGrant("/", mode, binaries=binaries),) if _WORDS.get(rule, "deny") != "deny" else ()


def shown(rule: Rule) -> str:
    """Return a rule for display: the word, or the patterns."""
    return rule if isinstance(rule, str) else ", ".join(rule)
