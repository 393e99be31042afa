"""The permissions of a CLI agent: translates its requests into our rules, and chooses the option that answers one.

An agent gives for each tool call a kind (`read`, `edit`, `execute` ...) and the tool's raw input. A call whose effect
cannot be read from these is denied (sessions.md 5, permissions).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from prose_kernel.access.safe_files import resolve
from prose_kernel.access.session_permissions import Answer, Kind, Policy, Ruling, shown
from prose_kernel.errors import PermissionDenied
from prose_kernel.models.tools.permission_check import Access
from prose_kernel.models.tools.tool import ToolFailed, ToolRefused
from prose_kernel.runtime.session_options import AgentCommand

_KINDS: Final[Mapping[str, Kind]] = {
    "read": "read",
    "search": "read",
    "edit": "write",
    "delete": "write",
    "move": "write",
    "execute": "bash",
    "fetch": "network",
}
_PATHS: Final = frozenset((
    "path", "paths", "file", "files", "file_path", "filepath", "filePath", "filename", "absolute_path", "abs_path",
    "notebook_path", "directory", "source", "destination", "from", "to", "old_path", "new_path", "oldPath", "newPath",
))  # fmt: skip
_COMMANDS: Final = ("command", "cmd", "script")
_ADDRESSES: Final = ("url", "uri", "urls")
_WHOLE: Final = frozenset({"**", "**/*", "./**", "./**/*", "./", "."})
"""Patterns that cover the whole workspace, as a missing rule does."""


class AgentToolCall(Struct, frozen=True):
    """A tool call as an agent describes it: `kind` in the protocol's terms, `paths` from its locations and edits."""

    kind: str | None
    title: str
    raw: object
    paths: tuple[str, ...] = ()


class PermissionOption(Struct, frozen=True):
    """An answer that the agent offers for a permission request."""

    id: str
    kind: str


def refuse_unenforceable(name: str, command: AgentCommand, policy: Policy) -> None:
    """Raise `PermissionDenied` for rules that cannot be enforced: an agent reads and fetches by itself, often without
    asking, so a rule that restricts this is only advice. `enforcement = "advisory"` allows such rules."""
    if command.enforcement == "advisory":
        return
    read, network = policy.rule("read"), policy.rule("network")
    restricted = not _WHOLE & set(read) if isinstance(read, tuple) else read in ("deny", "prompt")
    closed = [f"read: {shown(read)}"] if restricted else []
    if network == "deny" or not isinstance(network, str):
        closed.append(f"network: {shown(network)}")
    if closed:
        raise PermissionDenied(
            f"the agent {name} cannot be held to `{'`, `'.join(closed)}`: "
            "a CLI agent reads files and the network by itself",
            hint=f'leave the rule out, choose a model instead, or set `enforcement = "advisory"` in [agents.{name}] of '
            "prose.toml to take it as advice",
        )


class AgentRules:
    """The permissions of one session, applied to an agent's tool calls."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def decide(self, call: AgentToolCall) -> Ruling:
        """Return whether the call is allowed; a rule `prompt` asks the person."""
        kind = _KINDS.get(call.kind or "")
        if kind is None:
            if call.kind == "think":
                return Ruling("allow", "it touches nothing")
            return Ruling("deny", "it is not clear what this would do")
        if kind in ("read", "write"):
            return await self._files(kind, call)
        if kind == "bash":
            return await self.command(command_of(call) or call.title)
        return await self._network(call)

    def forbids(self, call: AgentToolCall) -> str | None:
        """Return why the rules forbid this call without asking a person; None if they do not. Used for calls that were
        made without asking: changes, commands and the network."""
        kind = _KINDS.get(call.kind or "")
        policy = self._access.policy
        if kind == "write":
            for path in paths_of(call):
                try:
                    place = resolve(path, self._access.cwd, self._access.home)
                except (ToolRefused, ToolFailed) as refused:
                    return str(refused)
                ruling = policy.decide("write", place.path)
                if ruling.answer == "deny" and not self._access.granted("write", place):
                    return ruling.why
        elif kind == "bash" and policy.rule("bash") == "deny":
            return policy.decide("bash", command_of(call) or call.title).why
        elif kind == "network" and (address := address_of(call)):
            ruling = policy.decide("network", address)
            return ruling.why if ruling.answer == "deny" else None
        return None

    async def command(self, command: str) -> Ruling:
        """Return whether a command may be run."""
        if not command.strip():
            return Ruling("deny", "it is not clear what this would do")
        ruling = self._access.policy.decide("bash", command)
        return await self._ask("bash", command) if ruling.answer == "prompt" else ruling

    async def _network(self, call: AgentToolCall) -> Ruling:
        """Return the ruling on a network call. A call without an address (a search) needs a plain `allow`, not
        patterns."""
        policy, address = self._access.policy, address_of(call)
        if address:
            ruling = policy.decide("network", address)
        else:
            word = policy.rule("network")
            answers: Mapping[object, Answer] = {"allow": "allow", "prompt": "prompt"}
            ruling = Ruling(answers.get(word, "deny"), f"the rule is `network: {shown(word)}`")
        return await self._ask("network", address or call.title) if ruling.answer == "prompt" else ruling

    async def _files(self, kind: Kind, call: AgentToolCall) -> Ruling:
        paths = paths_of(call) or ((".",) if call.kind == "search" else ())
        if not paths:
            return Ruling("deny", "it names no file")
        try:
            for path in paths:
                await self._access.file(kind, path, f"{call.kind} {path}")
        except (ToolRefused, ToolFailed) as refused:
            return Ruling("deny", str(refused))
        return Ruling("allow", "the rules allow it")

    async def _ask(self, kind: Kind, question: str) -> Ruling:
        covers = "running any command" if kind == "bash" else "any use of the network"
        return await self._access.ask(kind, question, f"{covers} by {self._access.session_name}")


# ---------------------------------------------------------------- reading a call


def command_of(call: AgentToolCall) -> str:
    """Return the command line of a call; "" if its input has none. A list is joined to one line."""
    raw = call.raw if isinstance(call.raw, Mapping) else {}
    for name in _COMMANDS:
        value = raw.get(name)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, Sequence) and value and all(isinstance(part, str) for part in value):
            return " ".join(str(part) for part in value)
    return ""


def address_of(call: AgentToolCall) -> str:
    """Return the address that a call uses; "" if its input has none."""
    raw = call.raw if isinstance(call.raw, Mapping) else {}
    for name in _ADDRESSES:
        value = raw.get(name)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
            return value[0]
    return ""


def paths_of(call: AgentToolCall) -> tuple[str, ...]:
    """Return each file that a call names once: its locations, its edits, and the paths of its raw input."""
    return tuple(dict.fromkeys((*call.paths, *_raw_paths(call.raw))))


def _raw_paths(raw: object, depth: int = 0) -> Iterator[str]:
    if not isinstance(raw, Mapping) or depth > 3:
        return
    for name, value in raw.items():
        inner = value if isinstance(value, list) else [value]
        for each in inner:
            if isinstance(each, str) and name in _PATHS and each.strip():
                yield each
            else:
                yield from _raw_paths(each, depth + 1)


# ---------------------------------------------------------------- answering


def option_for(ruling: Ruling, options: Iterable[PermissionOption], *, blanket: bool) -> str | None:
    """Return the id of the option that matches the ruling; None if there is none, so that the request is cancelled.

    A call is allowed once: the agent asks again the next time, and the client remembers answers itself. A permanent
    option is chosen only if nothing else is offered and the rule is a plain `allow` (`blanket`).
    """
    offered = {option.kind: option.id for option in reversed(tuple(options))}
    if ruling.answer == "allow":
        if "allow_once" in offered:
            return offered["allow_once"]
        if blanket and "allow_always" in offered:
            return offered["allow_always"]
    return offered.get("reject_once") or offered.get("reject_always")


def is_blanket(policy: Policy, call: AgentToolCall) -> bool:
    """Return whether the rule for calls of this kind is a plain `allow`."""
    kind = _KINDS.get(call.kind or "")
    return kind is not None and policy.rule(kind) == "allow"
