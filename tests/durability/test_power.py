"""A power cut with `journal = "durable"`: a sample of the disks that it may leave (`make durability` builds all)."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from pathlib import Path

import pytest
from durability.matrix import Matrix, Server
from durability.power import Cut, Disk, PowerCuts, disk_of, everything


@pytest.mark.parametrize("case", ["sequence", "parallel", "vvm-pmap"])
def test_no_answer_is_lost_and_nothing_starts_twice(case: str, server: Server, tmp_path: Path) -> None:
    cuts = PowerCuts(Matrix(server, tmp_path), case)
    assert len(cuts.cuts) > 5
    assert list(cuts.problems(2)) == []


def test_the_model_of_a_disk_has_only_synced_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model of the disk handles bytes without a name, a name without bytes, and a replaced file."""
    for name in ("fsync", "fdatasync", "replace"):
        monkeypatch.setattr(os, name, getattr(os, name))  # put back after the test
    place = tmp_path / "place"
    place.mkdir()
    (place / "old").write_bytes(b"as it was")
    disk = Disk(str(place))
    disk.install()

    def write(name: str, text: bytes, *, syncs: bool) -> None:
        with (place / name).open("wb") as file:
            file.write(text)
            file.flush()
            if syncs:
                os.fsync(file.fileno())

    def names(directory: Path) -> None:
        opened = os.open(directory, os.O_RDONLY)
        os.fsync(opened)
        os.close(opened)

    write("old", b"new", syncs=False)
    write("one", b"1", syncs=True)
    assert disk.synced() == {"old": b"as it was"}
    names(place)
    write("two", b"2", syncs=False)
    names(place)
    assert disk.synced() == {"old": b"as it was", "one": b"1", "two": b""}
    write("temporary", b"3", syncs=True)
    os.replace(place / "temporary", place / "two")  # noqa: PTH105 - the function that is followed
    assert disk.synced()["two"] == b""
    names(place)
    assert disk.synced() == {"old": b"as it was", "one": b"1", "two": b"3"}
    assert disk.cuts[-1].current == everything(str(place))


def test_unsynced_data_is_lost_in_four_ways() -> None:
    path = ".prose/runs/R/journal.jsonl"
    cut = Cut({path: b"one\n"}, {path: b"one\ntwo\n", "ran/x": b"x\n", "main.prose": b""})
    found = {loss: disk_of(cut, loss)[path] for loss in ("least", "half", "zeros", "mixed")}
    assert found == {"least": b"one\n", "half": b"one\ntw", "zeros": b"one\n\0\0\0\0", "mixed": b"one\n"}
    assert disk_of(cut, "least")["ran/x"] == b"x\n"
    assert Counter(pickle.loads(pickle.dumps(cut)).current) == Counter(cut.current)
