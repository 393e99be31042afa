"""Templates of the launcher are programs without findings. tests/browser/test_templates.py opens them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from labextension.script import LABEXTENSION
from needs import needs

from prose_kernel.cli.main import main

TEMPLATES = LABEXTENSION / "static" / "parts" / "templates.js"


def evaluate(expression: str, module: Path) -> Any:
    script = f"import({json.dumps(module.as_uri())}).then((m) => console.log(JSON.stringify({expression})))"
    done = subprocess.run([needs("node"), "-e", script], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def test_each_template_is_a_program_without_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    templates = evaluate("m.default", TEMPLATES)
    assert [one["id"] for one in templates] == ["workflow", "commands", "contract"]
    for one in templates:
        cells = [cell["source"] for cell in one.get("cells", []) if cell["cell_type"] == "code"]
        name = one["name"] if "text" in one else f"{one['id']}.prose"
        Path(name).write_text(one.get("text") or "\n".join(cells) + "\n")
        status = main(["check", name])
        out, err = capfd.readouterr()
        assert (status, err) == (0, "") and "ask " not in out, (name, out)


@pytest.mark.parametrize(
    ("existing", "name"),
    [([], "a.prose.md"), (["a.prose.md"], "a 1.prose.md"), (["a.prose.md", "a 1.prose.md"], "a 2.prose.md")],
)
def test_a_template_does_not_overwrite_an_existing_file(existing: list[str], name: str) -> None:
    plugin = LABEXTENSION / "static" / "plugins" / "templates.js"
    assert evaluate(f"m.freeName('a.prose.md', {json.dumps(existing)})", plugin) == name
