"""`scripts/wild.py` counts what contract files hold (docs/reference/prose-md.md 13)."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GOOD = """---
name: good
kind: function
---
### Parameters
- `topic`: what to write about
- tone: how
### Returns
- `text`: what was written
- each text has: a title

### Execution
```prose
let found = call inner
  topic: topic
let read = session look(found)
return session "Write about {read}."
```

#### look

Read it.

## inner

### Parameters
- `topic`: what to look for
### Returns
- `notes`
"""


def test_a_directory_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good.prose.md").write_text(GOOD)
    (tmp_path / "words.prose.md").write_text(
        GOOD.replace("name: good", "name: words").replace("```prose\n", "```text\n")
    )
    (tmp_path / "old.prose.md").write_text("---\nname: old\nkind: service\n---\n")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "left-out.prose.md").write_text("---\n")
    monkeypatch.setattr("sys.argv", ["wild.py", str(tmp_path)])
    runpy.run_path(str(ROOT / "scripts" / "wild.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:4] == ["| function | 2 | 1 / 1 / 0 | 0 |", "| service | 1 | 0 / 0 / 0 | 1: old.prose.md (E301) |"]
    assert "2 of 3 files compile." in lines
    assert "Inline nodes: 2 function. Scripts: 2 sessions, 1 scripts, 1 calls." in lines
    assert "Parameters: 4 `name`, 2 name:." in lines
    assert "Returns: 4 `name`, 2 words." in lines
