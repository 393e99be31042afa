"""The scripts of the JupyterLab extension, run in Node with stubs of the shared modules of JupyterLab (container.js)."""

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
"""Line (from 0), text, style."""


_running: dict[Path, subprocess.Popen[str]] = {}
"""The processes with the scripts of a directory; conftest.py ends them."""


def ask(*questions: dict[str, Any], of: Path = LABEXTENSION) -> list[Any]:
    """Return the answers to questions. The first question of a module starts the process."""
    if of not in _running:
        script = next((of / "static").glob("remoteEntry*.js"))
        command = [needs("node"), str(Path(__file__).parent / "container.js"), str(script)]
        _running[of] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )
    node = _running[of]
    assert node.stdin is not None and node.stdout is not None
    node.stdin.write(f"{json.dumps(questions)}\n")
    node.stdin.flush()
    answers = node.stdout.readline()
    if not answers:  # it has ended with an error
        raise AssertionError(_running.pop(of).communicate()[1])
    return list(json.loads(answers))


def end_all() -> None:
    while _running:
        _, node = _running.popitem()
        node.kill()  # a timer of a script would keep it for seconds
        node.communicate()


def by_offset(text: str, answer: list[Colour]) -> list[str]:
    """Return the style of each character; line breaks have none."""
    found = [""] * len(text)
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    for line, piece, style in answer:
        found[starts[line] : starts[line] + len(piece)] = [style or ""] * len(piece)
        starts[line] += len(piece)
    return found
