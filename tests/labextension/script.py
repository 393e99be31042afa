"""The scripts of the JupyterLab extension, run in Node with stubs of what JupyterLab shares (container.js)."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from needs import needs

ROOT = Path(__file__).parents[2]
LABEXTENSION = ROOT / "labextension"

Colour = tuple[int, str, str | None]
"""Line from 0, text, style."""


def ask(*questions: dict[str, Any], of: Path = LABEXTENSION) -> list[Any]:
    script = next((of / "static").glob("remoteEntry*.js"))
    done = subprocess.run(
        [needs("node"), str(Path(__file__).parent / "container.js"), str(script)],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def by_offset(text: str, answer: list[Colour]) -> list[str]:
    """The style of each character; a line break has that of nothing."""
    found = [""] * len(text)
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    for line, piece, style in answer:
        found[starts[line] : starts[line] + len(piece)] = [style or ""] * len(piece)
        starts[line] += len(piece)
    return found
