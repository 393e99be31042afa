from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pytest
from storage.backends import FixedClock

from prose_kernel.runtime.ports import Key
from prose_kernel.storage import run_paths

CLOCK = FixedClock(datetime(2026, 3, 1, 10, 15, 0, 999999, tzinfo=UTC))


def test_r1_run_id_has_utc_time_and_six_hex_digits() -> None:
    run_id = run_paths.new_run_id(CLOCK, [], random.Random(1))
    assert run_id.startswith("20260301-101500-")
    assert run_paths.RUN_ID.fullmatch(run_id)
    assert set(run_id[16:]) <= set("0123456789abcdef")
    assert run_paths.new_run_id(CLOCK, [], random.Random(1)) == run_id
    assert run_paths.new_run_id(CLOCK, []) != run_paths.new_run_id(CLOCK, [])


@pytest.mark.parametrize(
    ("earlier", "second"),
    [
        (["20260301-091500-aaaaaa"], "20260301-101500"),
        (["20260301-101500-ffffff"], "20260301-101500"),
        (["20260301-105959-ffffff", "20260301-105958-aaaaaa"], "20260301-110000"),
        (["99999999-999999-aaaaaa", "notes"], "20260301-101500"),
        (["99991231-235959-aaaaaa"], "20260301-101500"),
        (["99991231-235959-aaaaaa", "20260301-105959-ffffff"], "20260301-110000"),
    ],
)
def test_an_id_is_later_than_the_runs_before_it(tmp_path: Path, earlier: list[str], second: str) -> None:
    for name in earlier:
        (tmp_path / "b" / name).mkdir(parents=True)
    (tmp_path / "b" / "20260302-000000-aaaaaa").write_text("not a run")
    assert run_paths.new_run_id(CLOCK, [tmp_path / "a", tmp_path / "b"]).startswith(f"{second}-")


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (Key("plan"), "plan.md"),
        (Key("plan", 43), "plan__43.md"),
        (Key("part", 7, (0,)), "part__7__i0.md"),
        (Key("anon_001", None, (2, 11)), "anon_001__i2__i11.md"),
    ],
)
def test_file_names(key: Key, name: str) -> None:
    assert run_paths.FileNames(ignore_case=False)(key) == name


def test_two_keys_never_share_a_file() -> None:
    names = run_paths.FileNames(ignore_case=False)
    assert names(Key("x__1")) == "x__1.md"
    assert names(Key("x", 1)) == "x__1~2.md"
    assert names(Key("x__1")) == "x__1.md"
    assert names(Key("Plan")) == "Plan.md"
    assert names(Key("plan")) == "plan.md"


def test_names_that_differ_in_case_get_a_suffix_where_the_disk_ignores_case() -> None:
    names = run_paths.FileNames(ignore_case=True)
    assert [names(Key(n)) for n in ("plan", "Plan", "PLAN", "plan")] == ["plan.md", "Plan~2.md", "PLAN~3.md", "plan.md"]


def test_a_name_longer_than_file_systems_allow_is_shortened_and_stays_unique() -> None:
    names = run_paths.FileNames(ignore_case=False)
    one, two = names(Key("a" * 400 + "x")), names(Key("a" * 400 + "y"))
    assert one != two
    assert len(one) < 255 and len(two) < 255


def test_this_disk_tells_case_apart(tmp_path: Path) -> None:
    probe = tmp_path / "Probe"
    probe.touch()
    assert run_paths.ignores_case(tmp_path / "not" / "there" / "yet") == (tmp_path / "pROBE").exists()


@pytest.mark.parametrize(
    ("persist", "expected"),
    [
        ("true", "/w/.prose/runs/r/agents/captain"),
        ("project", "/w/.prose/agents/captain"),
        ("user", "/home/me/.prose/agents/captain"),
        ("mem/captain/", "/w/mem/captain"),
        ("/var/mem", "/var/mem"),
        ("~/mem", "/home/me/mem"),
    ],
)
def test_memory_directories(persist: str, expected: str) -> None:
    place = run_paths.memory_directory(
        "captain",
        persist,
        run=Path("/w/.prose/runs/r"),
        state_dir=Path("/w/.prose"),
        project=Path("/w"),
        home=Path("/home/me"),
    )
    assert place == Path(expected)


def test_places_are_shown_relative_to_the_working_directory() -> None:
    assert run_paths.shown(Path("/w/.prose/runs/r/bindings/x.md"), Path("/w")) == ".prose/runs/r/bindings/x.md"
    assert run_paths.shown(Path("/state/runs/r"), Path("/w")) == "/state/runs/r"
