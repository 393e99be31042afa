"""Files of JSON lines: only torn or damaged lines are lost, also in the logs of gates and of programs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prose_kernel.access import jsonl
from prose_kernel.processes.exec_tool.audit import AuditFailure, AuditLog


def test_a_line_is_added_after_a_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "made" / "x.jsonl"
    jsonl.append(path, b'{"n":1}\n')
    with path.open("ab") as file:
        file.write(b'{"n":2')
    jsonl.append(path, b'{"n":3}\n', durable=True)
    assert list(jsonl.objects(path)) == [(1, {"n": 1}), (2, {}), (3, {"n": 3})]


def test_lines_are_counted_with_blank_ones_and_the_torn_one_is_marked() -> None:
    assert list(jsonl.lines(b"a\n\n \nb\nc")) == [(1, b"a", False), (4, b"b", False), (5, b"c", True)]
    assert list(jsonl.lines(b"")) == []


def test_added_lines_are_removed_if_the_block_fails(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"torn")
    with pytest.raises(KeyError), jsonl.added(path, b"{}\n"):
        raise KeyError
    assert path.read_bytes() == b"torn"


def test_an_audit_log_skips_a_damaged_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    AuditLog(path).append("one")
    with path.open("ab") as file:
        file.write(b'not JSON\n{"event": "to')
    log = AuditLog(path)
    log.append("two")
    assert [event["event"] for event in log.events] == ["one", "two"]


def test_a_full_disk_does_not_damage_an_audit_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, real = AuditLog(tmp_path / "audit.jsonl", mandatory=True), os.write
    log.append("one")

    def full(descriptor: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(28, "No space left on device")
        return real(descriptor, bytes(data[:-10]))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(AuditFailure, match="no space left on device"):
        log.append("two")
    monkeypatch.undo()
    assert [event["event"] for event in log.events] == ["one"]
    assert (tmp_path / "audit.jsonl").read_bytes().endswith(b"\n")
