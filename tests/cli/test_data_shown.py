"""Images, data and files of `prose run`: pipes get bytes; terminals get tables, and a line for each image."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import forked
import pexpect
import pytest
from sample_files import png

LINE = "PNG image, 3 × 2, 72 bytes"
CSV = "name,n,about\nAnna,1,a long text that does not fit into a narrow terminal\nBo,22,short\n"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "a.png").write_bytes(png())
    (tmp_path / "t.csv").write_text(CSV)
    return tmp_path


def piped(here: Path, program: str) -> bytes:
    (here / "p.prose").write_text(program)
    return forked.printed("run", "p.prose", cwd=here)


def shown(here: Path, program: str) -> subprocess.CompletedProcess[str]:
    (here / "p.prose").write_text(program)
    return forked.prose("run", "p.prose", cwd=here)


def at_terminal(here: Path, program: str, columns: int = 40) -> str:
    (here / "p.prose").write_text(program)
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": str(columns)}
    child = forked.Terminal("run", "p.prose", cwd=here, env=environment, columns=columns)
    child.expect(pexpect.EOF, timeout=60)
    assert child.end() == 0, child.before
    return str(child.before).replace("\r\n", "\n")


def test_a_pipe_gets_the_bytes_of_images_and_data(here: Path) -> None:
    assert piped(here, 'exec "cat a.png"') == png()
    assert piped(here, 'exec "cat t.csv"\n  format: "csv"').decode() == CSV


def test_a_kept_image_and_a_shown_file_are_lines_next_to_the_result(here: Path) -> None:
    found = shown(here, 'let chart = exec "cat a.png"\n  display: "t.csv"\noutput said = "{chart}"')
    printed = found.stderr
    kept = re.search(rf"chart: {LINE}, kept in (\S+)", printed)
    assert kept and (here / kept[1]).read_bytes() == png()
    assert "t.csv" in printed and found.stdout == f"said: [{LINE}]\n"


def test_a_person_at_a_terminal_sees_lines_and_tables_that_fit(here: Path) -> None:
    printed = at_terminal(
        here, 'exec "echo drawing; cat a.png"\nexec "cat t.csv"\n  format: "csv"\nexec "true"\n  display: "t.csv"'
    )
    assert "drawing\n" in printed and re.search(rf"{LINE}, kept\s+in \S+/images/1-exec\.png", printed)
    assert "\N{REPLACEMENT CHARACTER}" not in printed and "IHDR" not in printed
    tables = [line for line in printed.split("\n") if line.startswith(("name", "Anna", "Bo"))]
    assert len(tables) == 6 and tables[:3] == tables[3:6] and all(len(line) <= 40 for line in tables)
    assert tables[1].endswith("…") and tables[0].startswith("name   n  about")


def test_a_file_that_is_missing_ends_the_run_with_one_clear_error(here: Path) -> None:
    found = shown(here, 'exec "true"\n  display: "gone.png"')
    assert found.returncode == 1
    assert "gone.png cannot be shown: there is no such file [E223]" in found.stderr
    assert "Traceback" not in found.stderr
