"""Simulate the disks that a power cut may leave of a run with `journal = "durable"`, and resume from each of them.

`python -m durability.power [--cases NAME ...]` builds all disks (`make durability`); the suite takes a sample.

A disk has only synced data: the bytes of a file after `fsync` of the file, a name after `fsync` of its directory.
Everything else may be missing. Four disks are therefore built for each sync of a run, as if the power had been cut
just before it:

- `least`: only synced data
- `half`: also half of the bytes added to the journal since the last sync
- `zeros`: the journal has its full length, but its new bytes are zeros
- `mixed`: also the current content of half of all other files, chosen by their names

Commands of the outside world have happened: their traces stay. Files made by commands, memories outside the run and the
audit logs of gates may be lost, because they are not synchronised.
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LOSSES = ("least", "half", "zeros", "mixed")
CUTS = "cuts"
"""The file with the content of the disk at each sync."""

CASES = (
    "sequence", "parallel", "first", "retry", "recursion", "imports", "gate-retry", "gates-in-parallel",
    "judged-loop", "finally", "pipelines", "exec-continue", "nested-forks", "sessions", "vvm-agents", "vvm-pmap",
    "vvm-memory", "vvm-answer-files",
)  # fmt: skip


@dataclass
class Cut:
    """The files just before a sync: synced content and all current content, by path relative to the run's place."""

    synced: dict[str, bytes]
    current: dict[str, bytes]


@dataclass
class Disk:
    """Tracks the syncs of this process below `place`."""

    place: str
    files: dict[str, bytes] = field(default_factory=dict)
    names: dict[str, set[str]] = field(default_factory=dict)
    cuts: list[Cut] = field(default_factory=list)
    moved: dict[str, bytes] = field(default_factory=dict)

    def install(self) -> None:
        self.files = everything(self.place)
        for directory, directories, files in os.walk(self.place):
            self.names[directory] = {*directories, *files}
        lock, replace = threading.RLock(), os.replace
        for name in ("fsync", "fdatasync"):
            setattr(os, name, self._syncing(getattr(os, name), lock))

        def replacing(source: Any, target: Any, **more: Any) -> None:
            replace(source, target, **more)
            if not more.get("src_dir_fd") and (known := self._relative(os.fspath(source))) in self.files:
                self.moved[self._relative(os.path.abspath(target))] = self.files.pop(known)  # noqa: PTH100

        os.replace = replacing  # type: ignore[assignment]

    def _syncing(self, sync: Any, lock: threading.RLock) -> Any:
        def syncing(descriptor: int) -> None:
            with lock:
                path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
                if path.startswith(self.place):
                    self.cuts.append(Cut(self.synced(), everything(self.place)))
                sync(descriptor)
                if os.path.isdir(path):  # noqa: PTH112
                    self.names[path] = set(os.listdir(path))  # noqa: PTH208
                    moved_here = {name for name in self.moved if os.path.dirname(f"{self.place}/{name}") == path}  # noqa: PTH120
                    self.files |= {name: self.moved.pop(name) for name in moved_here}
                else:
                    self.files[self._relative(path)] = Path(path).read_bytes()

        return syncing

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self.place)

    def synced(self) -> dict[str, bytes]:
        """Return the content that a power cut cannot remove. A synced name without synced bytes is an empty file."""
        found: dict[str, bytes] = {}

        def look(directory: str) -> None:
            for name in self.names.get(directory, ()):
                path = f"{directory}/{name}"
                if path in self.names or os.path.isdir(path):  # noqa: PTH112
                    look(path)
                else:
                    found[self._relative(path)] = self.files.get(self._relative(path), b"")

        look(self.place)
        return found


def everything(place: str) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in Path(place).rglob("*") if path.is_file()}


def disk_of(cut: Cut, loss: str) -> dict[str, bytes]:
    """Return one disk that a power cut may leave."""
    disk = {**cut.synced, **{name: text for name, text in cut.current.items() if name.startswith("ran/")}}
    for name, current in cut.current.items():
        before = disk.get(name, b"")
        if name.endswith("journal.jsonl"):
            if name in disk and loss in ("half", "zeros"):
                added = len(current) - len(before)
                disk[name] = current[: len(before) + added // 2] if loss == "half" else before + bytes(added)
        elif loss == "mixed" and random.Random(name).randrange(2):
            disk[name] = current
    return disk


def _of_the_journal(files: dict[str, str]) -> dict[str, str]:
    """Return the files whose content can be derived from the journal."""
    return {name: text for name, text in files.items() if not name.startswith(("gates/", "memory/"))}


def lay_out(disk: dict[str, bytes], place: Path) -> None:
    shutil.rmtree(place)
    for name in ("ran", "home"):
        (place / name).mkdir(parents=True)
    for name, text in disk.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(text)


class PowerCuts:
    """Runs one program, cuts the power at each of its syncs, and resumes it from each disk."""

    def __init__(self, runs: Any, case: str) -> None:
        from durability.killed import Job

        self.runs, self.case = runs, case
        job = runs.job(case)
        self.job = Job(case, job.place, power=True)
        self.expected = runs.server.run(self.job)
        assert self.expected["status"] == 0, (case, self.expected)
        self.cuts: list[Cut] = pickle.loads(Path(f"{job.place}.{CUTS}").read_bytes())

    def disks(self, limit: int | None = None) -> list[tuple[int, str]]:
        """Return all disks, or a random sample of at most `limit`."""
        found = [(number, loss) for number in range(len(self.cuts)) for loss in LOSSES]
        return found if limit is None else random.Random(self.case).sample(found, min(limit, len(found)))

    def problem(self, number: int, loss: str) -> str | None:
        """Resume from one disk, once repeating lost requests and once failing them. Return the problem."""
        from durability.killed import Job, journal_of, tags_of
        from durability.matrix import errors_of

        place = Path(self.job.place)
        for under_way in ("rerun", "fail"):
            lay_out(disk_of(self.cuts[number], loss), place)
            path = journal_of(place)
            if path is not None and b"\n" not in path.read_bytes():
                shutil.rmtree(path.parent)  # the power was cut before the first request
                path = None
            if path is None and any((place / "ran").iterdir()):
                return "a command has begun, and there is no journal"
            lost = Counter(tag for tag, how in tags_of(path) if how == "under way") if path else Counter[str]()
            ended = self.runs.server.run(Job(self.case, self.job.place, power=True, resume=True, under_way=under_way))
            if under_way == "rerun":
                if ended["status"] != 0:
                    return f"the resumed run ended with {ended}: {errors_of(self.job)[-900:]}"
                expected, current = ({**one, "files": _of_the_journal(one["files"])} for one in (self.expected, ended))
                problem = self.runs.compare(self.case, expected, current) or self.runs.compare_counts(place, lost, 0)
            else:
                problem = self._started_twice(place)
            if problem is not None:
                return f"{under_way}: {problem}"
        return None

    def _started_twice(self, place: Path) -> str | None:
        from durability.killed import counted, journal_of, tags_of

        path = journal_of(place)
        asked = Counter(tag for tag, _ in tags_of(path)) if path is not None else Counter[str]()
        return next(
            (f"{tag} ran {n} times of {asked[tag]}" for tag, n in counted(place).items() if n > asked[tag]), None
        )

    def problems(self, limit: int | None = None) -> Iterator[str]:
        for number, loss in self.disks(limit):
            problem = self.problem(number, loss)
            if problem is not None:
                yield f"{self.case}, sync {number}, {loss}: {problem}"


def main() -> int:
    from durability.matrix import Server, matrix

    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cases", nargs="*", default=list(CASES))
    options.add_argument("--disks", type=int, help="so many drawn disks of each program, not all of them")
    chosen = options.parse_args()
    server, problems = Server(), list[str]()
    print(f"{'program':<20} {'syncs':>6} {'disks':>6}")
    with matrix("filesystem", server) as runs:
        for case in chosen.cases:
            cuts = PowerCuts(runs, case)
            found = list(cuts.problems(chosen.disks))
            note = f"  {len(found)} PROBLEMS" if found else ""
            print(f"{case:<20} {len(cuts.cuts):>6} {len(cuts.disks(chosen.disks)):>6}{note}", flush=True)
            problems += found
    server.close()
    for problem in problems:
        print(f"\n{problem[:1500]}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
