"""Values of options, bounds and configurations: one set of rules for the checker and the machine (vvm.md 6)."""

from __future__ import annotations

import pytest

from prose_kernel.language.vvm.configurations import (
    BOUNDS,
    OPTIONS,
    UNKNOWN,
    configuration_faults,
    duration,
    escaped,
    fault_of,
    merged,
    permissions,
)


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("30s", 30.0), ("1.5m", 90.0), ("2h", 7200.0), ("0s", 0.0), ("007s", 7.0)]
)
def test_a6_durations(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize("value", ["", "5", "s", "-1s", "1 s", "1d", "1m30s", ".5s", "1.s", "1S", "٣s", 5, None, True])
def test_texts_that_are_not_a_duration(value):
    assert duration(value) is None


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("retry", [0, 3, 10**30], [True, 1.0, -1, "1", None, []]),
        ("timeout", ["1s", "0.5h"], [1, "1", "1 s", None]),
        ("backoff", ["fixed", "exponential"], ["none", "linear", "", 1, None]),
        ("name", ["", "x"], [1, None, ["x"]]),
        ("memory_mode", ["continue", "dry_run", "fresh"], ["dry-run", "", None, {}]),
    ],
)
def test_call_options(name, good, bad):
    assert [fault_of(OPTIONS, name, value) for value in [*good, UNKNOWN]] == [None] * (len(good) + 1)
    assert all(fault_of(OPTIONS, name, value) for value in bad)


def test_unknown_options_and_bounds_are_not_a_fault():
    assert fault_of(OPTIONS, "colour", object()) is None
    assert fault_of(BOUNDS, "colour", object()) is None


def test_bounds():
    assert [fault_of(BOUNDS, *pair) for pair in (("attempts", 3), ("time", "5m"), ("budget", 0.5), ("budget", 2))] == [
        None
    ] * 4
    assert all(fault_of(BOUNDS, *pair) for pair in (("attempts", 1.5), ("time", 5), ("budget", "1"), ("budget", True)))


def test_a_fault_says_where_what_and_what_else():
    (fault,) = configuration_faults({"memory": {"scope": "team", "key": "k"}})
    assert (fault.path, fault.subject) == (("memory", "scope"), "memory.scope")
    assert str(fault) == '`memory.scope` must be "project", "user" or "path"'
    (fault,) = configuration_faults({"skills": ["a", 1]})
    assert str(fault) == "`skills[1]` must be a string"


@pytest.mark.parametrize(
    "configuration",
    [
        {},
        {"model": "m", "prompt": "", "skills": [], "permissions": {}, "other": object()},
        {"permissions": {"read": ["**"], "bash": "allow", "network": "prompt", "other": 1}},
        {"memory": {"scope": "project", "key": "a/b:c"}},
        {"memory": {"scope": "path", "path": "~/m", "key": "k", "note": 1}},
        {"memory": {"scope": UNKNOWN, "key": UNKNOWN, "path": UNKNOWN}},
        {"model": UNKNOWN, "skills": [UNKNOWN], "permissions": {"read": UNKNOWN}},
    ],
)
def test_configurations_that_are_right(configuration):
    assert configuration_faults(configuration) == []


@pytest.mark.parametrize(
    ("configuration", "subjects"),
    [
        ({"model": None, "prompt": 1}, ["model", "prompt"]),
        ({"skills": "a", "permissions": []}, ["skills", "permissions"]),
        ({"permissions": {"read": "a", "write": [1], "bash": True, "network": "ask"}}, None),
        ({"memory": {}}, ["memory", "memory"]),
        ({"memory": {"scope": "path", "key": "k"}}, ["memory"]),
        ({"memory": {"scope": "user", "key": "k", "path": "p"}}, ["memory.path"]),
        ({"memory": {"scope": "user", "key": ""}}, ["memory.key"]),
        ({"memory": {"scope": "user", "key": "ä" * 41}}, ["memory.key"]),
    ],
)
def test_configurations_that_are_wrong(configuration, subjects):
    found = [fault.subject for fault in configuration_faults(configuration)]
    wanted = [f"permissions.{key}" for key in ("read", "write", "bash", "network")] if subjects is None else subjects
    assert found == wanted


def test_overrides_may_leave_out_what_the_agent_has():
    assert configuration_faults({"memory": {"key": "k"}}, whole=False) == []
    assert configuration_faults({"memory": {"scope": "path"}}, whole=False) == []
    assert len(configuration_faults({"memory": {"key": 1}}, whole=False)) == 1


def test_section_6_3_objects_are_merged_all_else_replaces():
    base = {"model": "a", "skills": ["x"], "permissions": permissions({"read": ["a"]}), "memory": {"scope": "user"}}
    made = merged(base, {"model": "b", "skills": ["y"], "permissions": {"network": "allow"}, "memory": {"key": "k"}})
    assert made == {
        "model": "b",
        "skills": ["y"],
        "permissions": {"read": ["a"], "write": [], "execute": [], "bash": "deny", "network": "allow"},
        "memory": {"scope": "user", "key": "k"},
    }
    assert merged(base, {"permissions": permissions({"network": "allow"})})["permissions"]["read"] == []
    assert base["model"] == "a"


def test_a3_missing_permissions_are_denied():
    assert permissions({}) == {"read": [], "write": [], "execute": [], "bash": "deny", "network": "deny"}


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("team/a:1", "team%2Fa%3A1"),
        (".hidden.x", "%2Ehidden.x"),
        ("ä b", "%C3%A4%20b"),
        ("..", "%2E."),
        ("A-z_0.9", "A-z_0.9"),
    ],
)
def test_m2_memory_keys_are_escaped(key, name):
    assert escaped(key) == name
