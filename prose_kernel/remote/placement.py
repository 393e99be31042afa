"""Commands that wait for a place on a worker, and what a worker offers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prose_kernel.processes.needs import shown
from prose_kernel.remote.worker import RemoteCommand

Needs = tuple[tuple[str, float], ...]


@dataclass(slots=True, eq=False)
class Group:
    """Waiting commands with the same needs, in order."""

    needs: Mapping[str, float]
    commands: deque[RemoteCommand]


class WaitingCommands:
    """All waiting commands. Those with the same needs are one group, so that each group costs one look for a place."""

    def __init__(self) -> None:
        self._groups: dict[Needs, Group] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __len__(self) -> int:
        return sum(len(group.commands) for group in self._groups.values())

    def add(self, command: RemoteCommand) -> None:
        self._group(command).commands.append(command)

    def put_back(self, commands: Iterable[RemoteCommand]) -> None:
        """Put commands first that had a place and were not started; the earliest one comes first."""
        for command in sorted(commands, key=lambda command: command.number, reverse=True):
            self._group(command).commands.appendleft(command)

    def remove(self, command: RemoteCommand) -> bool:
        """Remove a command; return whether it was waiting."""
        key = _key(command)
        group = self._groups.get(key)
        if group is None or command not in group.commands:
            return False
        group.commands.remove(command)
        self._drop_empty(key)
        return True

    def take(self, group: Group) -> RemoteCommand:
        """Take the first command of a group."""
        command = group.commands.popleft()
        self._drop_empty(_key(command))
        return command

    def take_all(self) -> list[RemoteCommand]:
        """Take all commands, in order."""
        groups, self._groups = self._groups, {}
        return sorted((one for group in groups.values() for one in group.commands), key=lambda one: one.number)

    def take_needing(self, needs: str) -> list[RemoteCommand]:
        """Take all commands with these needs, as text."""
        found = [key for key, group in self._groups.items() if shown(group.needs) == needs]
        return [command for key in found for command in self._groups.pop(key).commands]

    def groups(self) -> Iterator[Group]:
        """The groups that may get a place, the one with the earliest command first.

        A command does not overtake an earlier one that needs one of the same resources: then that one might wait for
        ever.
        """
        blocked: set[str] = set()
        for group in sorted(self._groups.values(), key=lambda group: group.commands[0].number):
            if blocked.isdisjoint(group.needs):
                yield group
            blocked.update(group.needs)

    def _group(self, command: RemoteCommand) -> Group:
        key = _key(command)
        if key not in self._groups:
            self._groups[key] = Group(command.request.needs, deque())
        return self._groups[key]

    def _drop_empty(self, key: Needs) -> None:
        if not self._groups[key].commands:
            del self._groups[key]


def _key(command: RemoteCommand) -> Needs:
    return tuple(sorted(command.request.needs.items()))
