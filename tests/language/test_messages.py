"""The wording of findings: `messages_openprose.txt` and `messages_vvm.txt`. Other tests assert codes and places."""

from __future__ import annotations

import pytest
from language.messages import CATALOGUES, cases, catalogue


@pytest.mark.parametrize("language", CATALOGUES)
def test_messages_and_hints_are_those_of_the_catalogue(language: str) -> None:
    assert CATALOGUES[language].read_text(encoding="utf-8") == catalogue(language), "if it is meant: `make generated`"


@pytest.mark.parametrize("language", CATALOGUES)
def test_a_case_has_a_finding_and_is_there_once(language: str) -> None:
    programs = [case.program for case in cases(language)]
    assert len(programs) == len(set(programs))
    assert all(case.written for case in cases(language))
