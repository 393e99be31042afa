"""Permissions of a session: its `permissions:` merged over the host's rules, and questions to the person (4.5)."""

from __future__ import annotations

import asyncio
import fnmatch
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from prose_kernel.access import grants, hosts
from prose_kernel.access.grants import FsGrant, Reach, Surface
from prose_kernel.errors import NoPerson
from prose_kernel.runtime import question_forms
from prose_kernel.runtime.asker import serial
from prose_kernel.runtime.ports import Clock, SessionRequest
from prose_kernel.runtime.question_forms import Button, Form
from prose_kernel.runtime.services import Asker
from prose_kernel.runtime.session_options import Rule, Surroundings
from prose_kernel.runtime.text import escaped, escaped_lines

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
    """Return the kinds of permission that decide about calls of a tool; `tools:NAME` is a tool that a program names."""
    return ("tools",) if tool.startswith("tools:") else TOUCHES.get(tool, ("bash", *_FILES))


@dataclass(frozen=True, slots=True)
class Ruling:
    """The decision of the rules about one call. `why` names the rule, for the model and the trace; `exact`: a pattern
    names the target itself, without a wildcard."""

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
        """Return the policy for the merged block of the program (`stated`, may be empty) over the settings' rules
        (`host`); `cwd` is the workspace.

        `state_dir` is the state directory (None: `.prose` in the workspace); `environment` provides `HOME` and `PATH`.
        Raises `PermissionDenied` for a pattern with `..`.
        """
        environment = {} if environment is None else environment
        home = environment.get("HOME") or str(Path.home())
        state = os.path.join(cwd, state_dir or ".prose")  # noqa: PTH118 - text in, text out
        rules: dict[Kind, Rule] = {kind: _settled(kind, stated, host) for kind in (*KINDS, "tools")}
        return cls(rules, Surface(cwd, home, state), environment.get("PATH"))

    @classmethod
    def of_session(cls, request: SessionRequest, host: Mapping[str, Rule], where: Surroundings) -> Policy:
        """Return the rules of a session over those of the host. Raises `PermissionDenied` for an invalid pattern."""
        return cls.of(request.permissions, host, where.cwd, state_dir=where.state_dir, environment=where.environment)

    def rule(self, kind: Kind, target: str) -> Ruling:
        """Return the decision of the rules. `target` is an absolute resolved path (read, write, execute), a URL or host
        (network), or a command line (bash). Never raises: invalid targets are denied."""
        why = f"the rule is `{kind}: {shown(self.words(kind))}`"
        if kind in ("read", "write"):
            reason = self.protects(kind, target)
            if reason is not None:
                return Ruling("deny", reason)
        rule = self.words(kind)
        if isinstance(rule, str) and rule != WORKSPACE:
            word = _WORDS[rule]
            if kind == "network" and hosts.address(target) is None:
                return Ruling("deny", "this isn't an address that could be checked")
            return Ruling(word, why)
        if kind == "network":
            return self._network(target, why)
        if kind == "tools":
            fits = any(fnmatch.fnmatchcase(target, pattern) for pattern in self.patterns(kind))
            return Ruling("allow" if fits else "deny", why)
        return Ruling("allow" if self.reach(kind).covers(target) else "deny", why)

    def _network(self, target: str, why: str) -> Ruling:
        found = hosts.address(target)
        if found is None:
            return Ruling("deny", "this isn't an address that could be checked")
        patterns = [pattern for text in self.patterns("network") if (pattern := hosts.host_pattern(text)) is not None]
        covering = [pattern for pattern in patterns if pattern.covers(found)]
        exact = any(pattern.exact for pattern in covering)
        return Ruling("allow" if covering else "deny", why, exact)

    def protects(self, kind: Kind, target: str) -> str | None:
        """Return why this resolved path is closed to every session; None: the rules decide."""
        if not target.startswith("/") or "\0" in target:
            return "this isn't a path that could be checked"
        return grants.protected(kind, target, self._surface)

    def reach(self, kind: Kind) -> Reach:
        """Return the files that a rule covers now; the word `prompt` covers all of them, after a question."""
        return Reach(file_grants(self.words(kind), kind, self._surface, self._search_path))

    def could(self, kind: Kind) -> bool:
        """Return whether any call of this kind could be allowed, perhaps after a question."""
        return self.words(kind) != "deny"

    def words(self, kind: Kind) -> Rule:
        """Return the effective rule: `allow`, `deny`, `prompt`, `workspace`, or patterns as written (never empty)."""
        return self._rules.get(kind, "deny")

    def patterns(self, kind: Kind) -> tuple[str, ...]:
        """Return the patterns of a rule as written; empty if it is a word."""
        rule = self.words(kind)
        return rule if isinstance(rule, tuple) else ()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return the kinds to show: all of `KINDS`, and `tools` if there is a rule about it."""
        return KINDS if self.words("tools") == SHIPPED["tools"] else (*KINDS, "tools")


def _settled(kind: Kind, stated: Mapping[str, Rule], host: Mapping[str, Rule]) -> Rule:
    """Return the effective rule in normal form: a known word, or patterns in order, each once."""
    for rules in (stated, host):
        if kind in rules:
            return _spelled(kind, rules[kind])
    return SHIPPED[kind]


def _check(kind: Kind, pattern: str) -> None:
    if kind == "network":
        hosts.check(pattern)
    elif kind != "tools":
        grants.check(kind, pattern)


def _spelled(kind: Kind, rule: Rule) -> Rule:
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


# ---------------------------------------------------------------- the question to the person


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to the person. `always` describes what the answer "always" covers: shown, and remembered for the run.

    `who` names the session (`agent reviewer`), `at` is its execution path, `what` the full request, any number of
    lines; it is never cut. An answer applies only in `program`: another program may have an agent of that name too.
    """

    kind: Kind
    who: str
    at: str
    what: str
    always: str
    program: str = ""

    @classmethod
    def of(cls, request: SessionRequest, kind: Kind, what: str, always: str) -> Ask:
        """Return a question about a call of this session."""
        return cls(kind, who(request), request.at, what, always, request.program)

    @property
    def covered(self) -> tuple[Kind, str, str]:
        """Return the key under which the answer "always" is remembered."""
        return self.kind, self.always, self.program


def who(request: SessionRequest) -> str:
    """Return a unique description of a session: its agent, its label, else its path."""
    if request.agent:
        return f"agent {request.agent}"
    return f"session {request.label}" if request.label else f"the session at {request.at}"


Note = Callable[[str, Mapping[str, object]], None]
"""Writes an event into the audit log of the run. Raises `ToolRefused` if a mandatory log cannot be written."""


def no_audit(event: str, payload: Mapping[str, object]) -> None:
    """Write nothing: a run that is not stored has no audit log."""


ANSWERS: Final[Mapping[str, Literal["yes", "no", "always"]]] = {
    "y": "yes",
    "yes": "yes",
    "n": "no",
    "no": "no",
    "a": "always",
    "always": "always",
}
_WIDTH: Final = 160
_PROMPT: Final = "Allow? (y / n / always) "
_BUTTONS: Final = Button("Allow", "y"), Button("Do not allow", "n"), Button("Always", "always")
_NO_PERSON: Final = Ruling("deny", "it needs approval, and no person can be asked")


class Approvals:
    """Asks the person, one question at a time: y, n, or always (for this run).

    Create one for each run: "always" applies for its lifetime. `note_ask` is called for each answered question, with
    its execution path and its answer. `audit` writes refusals into the run's audit log.
    """

    def __init__(
        self,
        asker: Asker,
        clock: Clock,
        note_ask: Callable[[str, str, str], object] | None = None,
        limit: float = 300.0,
        audit: Note = no_audit,
    ) -> None:
        self.audit = audit
        self._asker = serial(asker)
        self._clock = clock
        self._note_ask = note_ask
        self._limit = limit
        self._always: set[tuple[Kind, str, str]] = set()

    @property
    def available(self) -> bool:
        return self._asker.available

    async def ask(self, question: Ask) -> Ruling:
        """Return `allow`, or `deny` with the reason (refused, no answer in time, no person). A cancelled question is
        withdrawn."""
        if question.covered in self._always:
            return self._remembered()
        if not self._asker.available:
            return _NO_PERSON
        try:
            async with self._asker.turn():
                if question.covered in self._always:  # answered while this one waited
                    return self._remembered()
                return await self._within_limit(question)
        except (EOFError, NoPerson):
            return _NO_PERSON

    def _remembered(self) -> Ruling:
        return Ruling("allow", "the person allowed it for this run")

    async def _within_limit(self, question: Ask) -> Ruling:
        asking = asyncio.ensure_future(self._answer(question))
        timer = asyncio.ensure_future(self._clock.sleep(self._limit))
        try:
            await asyncio.wait((asking, timer), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                minutes = f"{self._limit / 60:g} minutes"
                self._asker.show(f"No answer within {minutes}: not allowed.")
                return Ruling("deny", f"it needs approval, and no answer came within {minutes}")
            return self._settled(question, asking.result())
        finally:
            for task in (asking, timer):
                task.cancel()
            await asyncio.gather(asking, timer, return_exceptions=True)

    async def _answer(self, question: Ask) -> Literal["yes", "no", "always"]:
        self._asker.show(written(question))
        end = self._clock.monotonic() + self._limit
        always = f"always = {_one_line(question.always)}, for the rest of this run"
        form = Form(
            "permission",
            "Allow?",
            _BUTTONS,
            None,
            escaped_lines(question.what),
            always,
            above=True,
            left=lambda: end - self._clock.monotonic(),
        )
        while True:
            answer = ANSWERS.get((await question_forms.ask(self._asker, _PROMPT, form)).strip().lower())
            if answer is not None:
                return answer
            self._asker.show("Please answer y, n or always.")

    def _settled(self, question: Ask, answer: Literal["yes", "no", "always"]) -> Ruling:
        if self._note_ask is not None:
            self._note_ask(question.at, f"{question.kind}: {question.what}", answer)
        if answer == "no":
            return Ruling("deny", "the person said no")
        if answer == "always":
            self._always.add(question.covered)
        return Ruling("allow", "the person allowed it")


def written(question: Ask) -> str:
    """Return the question as shown: complete, each line of the request marked, so that no part of it looks like our
    text."""
    asking = question.who if question.at in question.who else f"{question.who} · {question.at}"
    lines = [f"Permission needed ({question.kind}): {_one_line(asking)} asks for", ""]
    for line in question.what.split("\n"):
        text = escaped(line)
        lines += [f"  | {text[start : start + _WIDTH]}" for start in range(0, len(text), _WIDTH)] or ["  |"]
    lines += ["", f"always = {_one_line(question.always)}, for the rest of this run"]
    return "\n".join(lines)


def _one_line(text: str) -> str:
    return escaped(" ".join(text.split()))
