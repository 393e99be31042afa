"""Names, frames and mutability: the table of openprose.md 3.5, row by row, in both profiles."""

from __future__ import annotations

import pytest
from language.marked import PROFILES, cases, findings, places, unmark

ROWS = cases("rows")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("row", ROWS)
def test_rows_of_the_table(row, profile):
    source, expected = unmark(ROWS[row], profile)
    assert places(findings(source, profile)) == expected


VISIBILITY = cases("visibility")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("case", VISIBILITY)
def test_what_a_read_finds(case, profile):
    source, expected = unmark(VISIBILITY[case], profile)
    assert places(findings(source, profile)) == expected


EXEC_VALUES = cases("exec_values")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("case", EXEC_VALUES)
def test_members_of_exec_values(case, profile):
    source, expected = unmark(EXEC_VALUES[case], profile)
    assert places(findings(source, profile)) == expected
