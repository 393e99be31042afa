"""Go back with files: undo the changes that a run made since a record of its journal (docs/how-to/durability.md).

Only paths that commands and sessions of the run have changed since that record, or that going back has changed earlier,
are written. No link is followed, so nothing outside of the directory is written, whatever the history contains.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from prose_kernel.access import atomic, plain_files, safe_files
from prose_kernel.errors import UsageError
from prose_kernel.language.text import escaped
from prose_kernel.storage import file_history
from prose_kernel.storage.file_history import CONTENTS, FileState, Scanner, entry_of
from prose_kernel.storage.journal_reading import JournalRead

_SHOWN: Final = 20
_NOTHING_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class FileRestoration(Struct):
    """The effect of going back on the files of a run. `targets` maps changed paths to their new content (None: the file
    is removed), `found` to their present one. `foreign` are the targets that other programs have changed since; `left`
    describes the paths that stay as they are, with the reason."""

    directory: str
    contents: Path
    targets: dict[str, FileState | None] = field(default_factory=dict)
    found: dict[str, FileState | None] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @classmethod
    def before(cls, journal: JournalRead, record: int) -> FileRestoration:
        """Return how to restore the files at a record of a journal. Raises `UsageError` if they were not kept."""
        run, head = journal.path.parent, journal.head
        history = file_history.read(run)
        if history is None:
            hint = "set keep_files = true under [run] in prose.toml, and run the program again"
            raise UsageError(f"run {head.run} has kept no files", hint=hint)
        if history.problem:
            raise UsageError(f"run {head.run} has not kept all files: {escaped(history.problem)}")
        directory = os.path.realpath(head.directory)
        plan = cls(directory, run / CONTENTS)
        then, states = history.tree_before(record), history.states()
        changed = history.since(record, own=True)
        if history.under_way:  # a request was killed before its changes were recorded
            skipped = file_history.skipped_paths(directory, run, head.notebook_path)
            scanner = Scanner(directory, skipped, file_history.digest)
            scanner.expect(history.tree_before(None))
            changed |= scanner.changes().keys()
        foreign = history.since(record, own=False)
        for path in sorted(changed | states.keys()):
            target, now = then.get(path), plan.entry(path)
            is_known = now in states.get(path, ())
            if target == now or (path not in changed and not is_known):
                continue
            if target is not None and target.kind == "f" and not plan.has(target.content):
                plan.left.append(f"{path} (its content was not kept)")
                continue
            plan.targets[path], plan.found[path] = target, now
            if now is not None and (path in foreign or not is_known):
                plan.foreign.append(path)
        away = dict.fromkeys(line.outside for line in history.lines if line.at >= record and line.outside)
        plan.left += [f"{path} (a command ran there, outside of the directory)" for path in away]
        return plan

    def entry(self, path: str) -> FileState | None:
        """Return the present state of a path, None if there is no file."""
        with contextlib.suppress(OSError), self._parent(path) as (parent, name):
            return entry_of(name, os.stat(name, dir_fd=parent, follow_symlinks=False), file_history.digest, parent)
        return None

    def has(self, content: str) -> bool:
        """Return whether the content with this digest is kept, undamaged."""
        if not content.isalnum():
            return False
        try:
            with plain_files.reading(self.contents / content, None) as file:
                return file_history.digest(file.fileno(), os.fstat(file.fileno())) == content
        except OSError:
            return False

    def apply(self) -> None:
        """Change the files. Paths that cannot be changed, or that were changed since `before`, are added to `left`."""
        for path in [path for path, found in self.found.items() if self.entry(path) != found]:
            del self.targets[path]
            self.left.append(f"{path} (it has just been changed)")
        down = sorted(self.targets, key=lambda path: path.count("/"))
        for path in down:
            self._at(path, self._open_up)
        for path in reversed(down):
            self._at(path, self._clear)
        for path in down:
            if self.targets[path] is not None:
                self._at(path, self._put, create=True)
        for path in reversed(down):  # a directory without write permission gets its files first
            if (target := self.targets[path]) is not None and target.kind == "d":
                self._at(path, self._set_mode)

    @contextlib.contextmanager
    def _parent(self, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        with safe_files.parent(f"{self.directory}/{path}", create=create) as found:
            yield found

    def _at(self, path: str, step: Callable[[int, str, FileState | None], None], *, create: bool = False) -> None:
        try:
            with self._parent(path, create=create) as (parent, name):
                step(parent, name, self.targets[path])
        except OSError as problem:
            if create or problem.errno not in _NOTHING_THERE:
                why = "it is not empty" if problem.errno == errno.ENOTEMPTY else safe_files.reason(problem)
                self.left.append(f"{path} ({why})")

    def _open_up(self, parent: int, name: str, _: FileState | None) -> None:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(name, stat.S_IMODE(mode) | stat.S_IRWXU, dir_fd=parent)

    def _clear(self, parent: int, name: str, target: FileState | None) -> None:
        is_directory = stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
        if is_directory and (target is None or target.kind != "d"):
            os.rmdir(name, dir_fd=parent)
        elif not is_directory and (target is None or target.kind != "f"):
            os.unlink(name, dir_fd=parent)

    def _put(self, parent: int, name: str, target: FileState | None) -> None:
        assert target is not None
        if target.kind == "d":
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=parent)
        elif target.kind == "l":
            os.symlink(target.content, name, dir_fd=parent)
        else:
            with plain_files.reading(self.contents / target.content, None) as file:
                kept = file_history.pieces(file.fileno())
                atomic.replace(f".{os.urandom(8).hex()}.tmp", name, kept, target.mode, directory=parent)

    def _set_mode(self, parent: int, name: str, target: FileState | None) -> None:
        assert target is not None
        os.chmod(name, target.mode, dir_fd=parent)

    # ------------------------------------------------------------ texts for people

    def question(self) -> str:
        """Return the list of files that another program or person has changed."""
        return "\n".join(["these files have changed since, and not by the run:", *_listed(self.foreign)])

    def summary(self) -> list[str]:
        """Return the changes as lines of text."""
        counts = {
            "removed": sum(target is None for target in self.targets.values()),
            "put back": sum(target is not None for target in self.targets.values()),
        }
        found = ", ".join(f"{number:,} {what}" for what, number in counts.items() if number)
        lines = [f"Files and directories: {found or 'nothing to change'}."]
        return [*lines, "Left as they are:", *_listed(self.left)] if self.left else lines


def _listed(paths: list[str]) -> list[str]:
    more = [f"  … and {len(paths) - _SHOWN:,} more"] if len(paths) > _SHOWN else []
    return [*(f"  {escaped(path)}" for path in paths[:_SHOWN]), *more]
