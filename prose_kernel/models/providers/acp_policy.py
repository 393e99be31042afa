"""What a CLI agent may do: its requests in the words of our permissions, and the option that answers one.

Implements the permissions row of sessions.md 5.

An agent says for each tool call a kind (`read`, `edit`, `execute` ...) and the tool's raw input. What cannot be read
out of these is denied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from prose_kernel.access.policy import Answer, Kind, Policy, Ruling
from prose_kernel.access.safe_files import resolve
from prose_kernel.errors import PermissionDenied
from prose_kernel.models.tools.access import Access
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
_PATHS: Final = frozenset(
    [
        "path",
        "paths",
        "file",
        "files",
        "file_path",
        "filepath",
        "filePath",
        "filename",
        "absolute_path",
        "abs_path",
        "notebook_path",
        "directory",
        "source",
        "destination",
        "from",
        "to",
        "old_path",
        "new_path",
        "oldPath",
        "newPath",
    ]
)
_COMMANDS: Final = ("command", "cmd", "script")
_ADDRESSES: Final = ("url", "uri", "urls")
_WHOLE: Final = frozenset({"**", "**/*", "./**", "./**/*", "./", "."})
"""Patterns that cover the workspace, which is what nothing stated covers too."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as an agent describes it: `kind` in the protocol's words, `paths` from its locations and edits."""

    kind: str | None
    title: str
    raw: object
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Option:
    """An answer that the agent offers for a permission request."""

    id: str
    kind: str


def refuse_unenforceable(name: str, command: AgentCommand, policy: Policy) -> None:
    """Raises `PermissionDenied` for rules that nobody would keep: an agent reads and fetches by itself, often without
    asking, so a rule that closes a part of that is advice. With `enforcement = "advisory"` it may be."""
    if command.enforcement == "advisory":
        return
    read, network = policy.words("read"), policy.words("network")
    restricted = not _WHOLE & set(read) if isinstance(read, tuple) else read in ("deny", "prompt")
    closed = [f"read: {_written(read)}"] if restricted else []
    if network == "deny" or not isinstance(network, str):
        closed.append(f"network: {_written(network)}")
    if closed:
        raise PermissionDenied(
            f"the agent {name} cannot be held to `{'`, `'.join(closed)}`: "
            "a CLI agent reads files and the network by itself",
            hint=f'leave the rule out, choose a model instead, or set `enforcement = "advisory"` in [agents.{name}] of '
            "prose.toml to take it as advice",
        )


def _written(rule: object) -> str:
    return ", ".join(rule) if isinstance(rule, tuple) else str(rule)


class AgentRules:
    """The permissions of one session, asked in an agent's words."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def decide(self, call: Call) -> Ruling:
        """Whether the call may be done; a rule `prompt` asks the person."""
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

    def forbids(self, call: Call) -> str | None:
        """Why the rules close this call, whoever is asked; None when they do not. For what was done without asking:
        changes, commands and the network."""
        kind = _KINDS.get(call.kind or "")
        policy = self._access.policy
        if kind == "write":
            for path in paths_of(call):
                try:
                    place = resolve(path, self._access.cwd, self._access.home)
                except (ToolRefused, ToolFailed) as refused:
                    return str(refused)
                ruling = policy.rule("write", place.path)
                if ruling.answer == "deny" and not self._access.granted("write", place):
                    return ruling.why
        elif kind == "bash" and policy.words("bash") == "deny":
            return policy.rule("bash", command_of(call) or call.title).why
        elif kind == "network" and (address := address_of(call)):
            ruling = policy.rule("network", address)
            return ruling.why if ruling.answer == "deny" else None
        return None

    async def command(self, command: str) -> Ruling:
        """Whether a command may be run."""
        if not command.strip():
            return Ruling("deny", "it is not clear what this would do")
        ruling = self._access.policy.rule("bash", command)
        return await self._ask("bash", command) if ruling.answer == "prompt" else ruling

    async def _network(self, call: Call) -> Ruling:
        """A call without an address (a search) is allowed only by a word, not by patterns."""
        policy, address = self._access.policy, address_of(call)
        if address:
            ruling = policy.rule("network", address)
        else:
            word = policy.words("network")
            answers: Mapping[object, Answer] = {"allow": "allow", "prompt": "prompt"}
            ruling = Ruling(answers.get(word, "deny"), f"the rule is `network: {_written(word)}`")
        return await self._ask("network", address or call.title) if ruling.answer == "prompt" else ruling

    async def _files(self, kind: Kind, call: Call) -> Ruling:
        paths = paths_of(call) or ((".",) if call.kind == "search" else ())
        if not paths:
            return Ruling("deny", "it names no file")
        try:
            for path in paths:
                await self._access.file(kind, path, f"{call.kind} {path}")
        except (ToolRefused, ToolFailed) as refused:
            return Ruling("deny", str(refused))
        return Ruling("allow", "the rules allow it")

    async def _ask(self, kind: Kind, what: str) -> Ruling:
        covers = "running any command" if kind == "bash" else "any use of the network"
        return await self._access.ask(kind, what, f"{covers} by {self._access.who}")


# ---------------------------------------------------------------- reading a call


def command_of(call: Call) -> str:
    """The command line of a call, as far as its input tells; a list is shown as one line."""
    raw = call.raw if isinstance(call.raw, Mapping) else {}
    for name in _COMMANDS:
        said = raw.get(name)
        if isinstance(said, str) and said.strip():
            return said
        if isinstance(said, Sequence) and said and all(isinstance(part, str) for part in said):
            return " ".join(str(part) for part in said)
    return ""


def address_of(call: Call) -> str:
    """The address that a call goes to, as far as its input tells."""
    raw = call.raw if isinstance(call.raw, Mapping) else {}
    for name in _ADDRESSES:
        said = raw.get(name)
        if isinstance(said, str) and said.strip():
            return said
        if isinstance(said, list) and len(said) == 1 and isinstance(said[0], str):
            return said[0]
    return ""


def paths_of(call: Call) -> tuple[str, ...]:
    """Every file that a call names: its locations, its edits, and the paths of its raw input. Each once."""
    return tuple(dict.fromkeys((*call.paths, *_raw_paths(call.raw))))


def _raw_paths(raw: object, depth: int = 0) -> Iterator[str]:
    if not isinstance(raw, Mapping) or depth > 3:
        return
    for name, said in raw.items():
        inner = said if isinstance(said, list) else [said]
        for each in inner:
            if isinstance(each, str) and name in _PATHS and each.strip():
                yield each
            else:
                yield from _raw_paths(each, depth + 1)


# ---------------------------------------------------------------- answering


def option_for(ruling: Ruling, options: Iterable[Option], *, blanket: bool) -> str | None:
    """The id of the option that says what was ruled; None: none of them does, so the request is called off.

    What was allowed is allowed once: we are asked again the next time, and remember for ourselves. An option for ever
    is taken only where nothing else is offered and the rule is a plain `allow` (`blanket`).
    """
    offered = {option.kind: option.id for option in reversed(tuple(options))}
    if ruling.answer == "allow":
        if "allow_once" in offered:
            return offered["allow_once"]
        if blanket and "allow_always" in offered:
            return offered["allow_always"]
    return offered.get("reject_once") or offered.get("reject_always")


def is_blanket(policy: Policy, call: Call) -> bool:
    """Whether the rule for calls of this kind is a plain `allow`."""
    kind = _KINDS.get(call.kind or "")
    return kind is not None and policy.words(kind) == "allow"
