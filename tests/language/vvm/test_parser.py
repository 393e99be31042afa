"""What valid programs mean: docs/reference/vvm.md 2."""

from __future__ import annotations

import pytest
from language.vvm.programs import PROGRAMS

from prose_kernel.language.source import Source
from prose_kernel.language.vvm import compile_source, parse


@pytest.mark.parametrize("name", PROGRAMS)
def test_valid_programs_have_no_findings(name: str) -> None:
    parsed = parse(Source(PROGRAMS[name]))
    assert [d.render() for d in parsed.diagnostics] == []
    assert compile_source(Source(PROGRAMS[name])).program == parsed.program
