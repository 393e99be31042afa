"""The project's tools: the demo, and the commands of pre-commit and CI."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import forked
import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from needs import needs_module

ROOT = Path(__file__).parents[2]
PROSE = {"kernelspec": {"name": "prose", "display_name": "Prose", "language": "prose"}}


def test_pre_commit_runs_what_make_lint_runs() -> None:
    lint = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    tools = re.findall(r"\$\(BIN\)/(\S+)", lint)
    assert tools
    assert [tool for tool in tools if f".venv/bin/{tool}" not in hooks] == []


def test_ci_runs_make_test_on_a_clone() -> None:
    script = (ROOT / ".ci/run").read_text()
    assert "git clone" in script
    assert "make test" in script
    assert subprocess.run(["bash", "-n", ROOT / ".ci/run"]).returncode == 0


def show(tmp_path: Path, *sources: str) -> subprocess.CompletedProcess[str]:
    """Return a function that runs the demo as a fork, with a forked kernel."""
    cells = [new_markdown_cell("# A title"), *map(new_code_cell, sources)]
    nbformat.write(new_notebook(cells=cells, metadata=PROSE), tmp_path / "b.ipynb")
    script = str(ROOT / "notebooks/show.py")
    code = f"import runpy, sys; sys.argv[0] = {script!r}; runpy.run_path({script!r}, run_name='__main__')"
    (jupyter := tmp_path / "jupyter").mkdir()
    with forked.as_kernels(jupyter, {"prose": ROOT / "kernelspec/prose/kernel.json"}):
        environment = {**os.environ, "JUPYTER_PATH": str(jupyter)}
        words = (code, str(tmp_path / "b.ipynb"), str(tmp_path / "build"))
        return forked.python(*words, cwd=tmp_path, env=environment, package=ROOT)


def test_the_demo_runs_a_notebook_through_the_kernel_and_renders_it(tmp_path: Path) -> None:
    needs_module("nbconvert")
    seen = show(tmp_path, 'exec "echo from a command"')
    assert seen.returncode == 0, seen.stderr
    assert "# A title" in seen.stdout
    assert '  │ exec "echo from a command"\nfrom a command\n' in seen.stdout
    assert "from a command" in (tmp_path / "build/b.html").read_text()


def test_a_failing_demo_is_reported(tmp_path: Path) -> None:
    needs_module("nbconvert")
    seen = show(tmp_path, 'exec "exit 3"', 'exec "echo never"')
    assert seen.returncode == 1
    assert "A cell failed" in seen.stderr
