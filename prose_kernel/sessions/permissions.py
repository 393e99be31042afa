"""What a session may do: the rules of its `permissions:` over those of the host, and the question to the person (4.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from prose_kernel.machine.ports import Asker, Clock
from prose_kernel.sessions.options import Rule

Kind = Literal["read", "write", "execute", "network", "bash"]
Answer = Literal["allow", "deny", "prompt"]


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the rules say to one call. `why` names the rule, for the model and the trace; `exact` tells that a pattern
    names the target itself, without a wildcard."""

    answer: Answer
    why: str = ""
    exact: bool = False


class Policy:
    """The rules of one session, resolved."""

    @classmethod
    def of(cls, stated: Mapping[str, Rule], host: Mapping[str, Rule], cwd: str) -> Policy:
        """`stated` is the merged block of the program (empty: none), `host` the settings' rules, `cwd` the workspace.

        Raises `PermissionDenied` for a pattern with `..`.
        """
        raise NotImplementedError

    def rule(self, kind: Kind, target: str) -> Ruling:
        """What the rules say: `target` is an absolute resolved path (read, write, execute), a URL or a host (network), a
        command line (bash). Never raises: odd targets are denied."""
        raise NotImplementedError

    def could(self, kind: Kind) -> bool:
        """Whether any call of this kind could ever be allowed."""
        raise NotImplementedError

    def words(self, kind: Kind) -> Rule:
        """The rule in force, as written: `allow`, `deny`, `prompt`, `workspace`, or patterns."""
        raise NotImplementedError

    @property
    def digest(self) -> str:
        """The rules in force as canonical text, the same on every machine: a part of a recording's key."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to the person. `always` names what the answer "always" covers: shown, and remembered for the run.

    `who` is the session in words (`agent reviewer`), `at` its execution path, `what` the full request, any number of
    lines; nothing of it is cut.
    """

    kind: Kind
    who: str
    at: str
    what: str
    always: str


class PermissionDesk:
    """Asks the person, one question at a time: y, n, or always (for this run)."""

    def __init__(
        self,
        asker: Asker,
        clock: Clock,
        note_ask: Callable[[str, str, str], object] | None = None,
        limit: float = 300.0,
    ) -> None: ...

    @property
    def available(self) -> bool:
        raise NotImplementedError

    async def ask(self, question: Ask) -> Ruling:
        """`allow`, or `deny` with the reason: no, no answer in time, nobody here."""
        raise NotImplementedError
