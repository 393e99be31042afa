"""Properties of agents, spawns, exec and gates: all their error codes (openprose.md 4.2-4.5, 5.2, 5.8, 9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from language.marked import PROFILES, cases, findings, places, unmark

from prose_kernel.language.durations_and_budgets import parse_duration
from prose_kernel.language.openprose.program_interface import KnownNames

LONG = "x" * 10_001
LONG_PROMPTS = {
    "agent": f'agent a:\n  prompt: «W003»"{LONG}"\n',
    "session": f'session «W003»"{LONG}"\n',
    "just short enough": f'session "{LONG[1:]}"\n',
}

AGENTS = cases("agents")

SESSIONS = cases("sessions")

CONTEXTS = cases("contexts")

EXECS = cases("execs")

GATES = cases("gates")


CASES = [
    pytest.param(text, id=f"{table}: {name}")
    for table, cases in [
        ("agent", AGENTS),
        ("session", SESSIONS),
        ("context", CONTEXTS),
        ("exec", EXECS),
        ("gate", GATES),
        ("long prompt", LONG_PROMPTS),
    ]
    for name, text in cases.items()
]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("text", CASES)
def test_properties(text, profile):
    source, expected = unmark(text, profile)
    assert places(findings(source, profile)) == expected


def test_skills_of_earlier_cells_are_known():
    text = 'agent a:\n  skills: ["web", "tidy", "other"]\n'
    known = KnownNames(skills=frozenset({"web"}), programs={"tidy": None})
    assert places(findings(text, known=known, cell=True)) == [("W007", 2, 27)]


DURATIONS = [
    ("90s", 90.0),
    ("1.5h", 5400.0),
    ("250ms", 0.25),
    ("0.1s", 0.1),
    ("2m", 120.0),
    ("", None),
    ("0s", None),
    ("-1s", None),
    ("90", None),
    ("90 s", None),
    (" 90s", None),
    ("1d", None),
    ("1h30m", None),
    ("1 hour", None),
    (".5s", None),
    ("5.s", None),
    ("٣s", None),
    ("1S", None),
    ("9" * 500 + "s", None),
]


@pytest.mark.parametrize(("text", "seconds"), DURATIONS)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2h30m", 9000.0),
        ("1d", 86400.0),
        ("1d12h", 129600.0),
        ("30m", 1800.0),
        ("1.5d", 129600.0),
        ("0m0s", None),
        ("2h 30m", None),
    ],
)
def test_durations_of_gates(text, seconds):
    assert parse_duration(text, gate=True) == seconds


@given(st.text(alphabet="0123456789.msh d", max_size=12), st.booleans())
def test_a_duration_is_positive_or_none(text, gate):
    seconds = parse_duration(text, gate)
    assert seconds is None or seconds > 0
    if seconds is not None and not gate:
        assert parse_duration(text, gate=True) == seconds
        codes = [d.code for d in findings(f'exec "ls"\n  timeout: "{text}"\n')]
        assert codes == (["W050"] if seconds > 600 else [])
