"""Queues the commands that wait for a place on a worker."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping

from prose_kernel.processes.resources import shown
from prose_kernel.remote.worker_client import RemoteCommand

Needs = tuple[tuple[str, float], ...]

Group = deque[RemoteCommand]
"""Waiting commands with the same needs, in order; never empty."""


class WaitingCommands:
    """All waiting commands, grouped by their needs, so that workers are checked once for each group."""

    def __init__(self) -> None:
        self._groups: defaultdict[Needs, Group] = defaultdict(deque)

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, command: RemoteCommand) -> None:
        self._groups[_key(command)].append(command)

    def put_back(self, commands: Iterable[RemoteCommand]) -> None:
        """Put commands that had a place but were not started at the front, in order."""
        for command in sorted(commands, key=lambda command: command.number, reverse=True):
            self._groups[_key(command)].appendleft(command)

    def remove(self, command: RemoteCommand) -> bool:
        """Remove a command; return whether it was waiting."""
        key = _key(command)
        if command not in self._groups.get(key, ()):
            return False
        self._groups[key].remove(command)
        self._drop_empty(key)
        return True

    def take(self, group: Group) -> RemoteCommand:
        """Take the first command of a group."""
        command = group.popleft()
        self._drop_empty(_key(command))
        return command

    def take_all(self) -> list[RemoteCommand]:
        """Take all commands, in order."""
        found = sorted((one for group in self._groups.values() for one in group), key=lambda one: one.number)
        self._groups.clear()
        return found

    def take_needing(self, needs: str) -> list[RemoteCommand]:
        """Take all commands with these needs, which are given as text."""
        found = [key for key, group in self._groups.items() if shown(needs_of(group)) == needs]
        return [command for key in found for command in self._groups.pop(key)]

    def groups(self) -> Iterator[Group]:
        """Yield the groups that may get a place, the group with the earliest command first.

        No command overtakes an earlier one that needs one of the same resources, because that one might then wait
        forever.
        """
        blocked: set[str] = set()
        for group in sorted(self._groups.values(), key=lambda group: group[0].number):
            needs = needs_of(group)
            if blocked.isdisjoint(needs):
                yield group
            blocked.update(needs)

    def _drop_empty(self, key: Needs) -> None:
        if not self._groups[key]:
            del self._groups[key]


def needs_of(group: Group) -> Mapping[str, float]:
    return group[0].request.needs


def _key(command: RemoteCommand) -> Needs:
    return tuple(sorted(command.request.needs.items()))
