"""The package: the wheel registers the kernel and installs the command, and works without the checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel with the installed hatchling, so that nothing is downloaded."""
    target = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "--disable-pip-version-check",
        "-w",
        str(target),
    ]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True, stdin=subprocess.DEVNULL)
    return next(target.glob("*.whl"))


@pytest.mark.slow
def test_the_wheel_holds_kernelspec_grammar_examples_and_licence(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    ends = (
        ".data/data/share/jupyter/kernels/prose/kernel.json",
        ".data/data/share/jupyter/kernels/vvm/kernel.json",
        ".data/data/share/jupyter/kernels/vvm/logo-svg.svg",
        "prose_kernel/kernelspec/prose/kernel.json",
        "prose_kernel/kernelspec/vvm/kernel.json",
        ".data/data/share/jupyter/labextensions/prose-kernel/package.json",
        ".data/data/share/jupyter/labextensions/prose-kernel/install.json",
        ".data/data/etc/jupyter/jupyter_server_config.d/prose_kernel.json",
        "prose_kernel/docs/reference/openprose.md",
        "prose_kernel/docs/reference/openprose/execution.md",
        "prose_kernel/language/vvm/corrections.md",
        "prose_kernel/examples/01-hello.prose",
        "prose_kernel/examples/lib/measure.prose",
        "prose_kernel/examples/notebooks/tour.ipynb",
        "prose_kernel/examples/notebooks/cassettes/tour.jsonl",
        "prose_kernel/examples/notebooks/course/cassettes/01_ask.jsonl",
        "prose_kernel/examples/notebooks/course/desk/tickets/01.txt",
        "prose_kernel/examples/notebooks/course/checks/01_ask.yaml",
        "prose_kernel/examples/notebooks/course/prose_tools.py",
        "prose_kernel/examples/notebooks/topics/programs/tidy.prose",
        "prose_kernel/examples/18-research.vvm",
        "prose_kernel/examples/lib/desk.vvm",
        "prose_kernel/examples/notebooks/vvm_tour.ipynb",
        "prose_kernel/examples/notebooks/topics/programs/desk.vvm",
        "licenses/LICENSE",
    )
    assert [end for end in ends if not any(name.endswith(end) for name in names)] == []
    assert any(name.endswith(".lark") for name in names)
    assert not any(name.startswith(("tests/", "notebooks/")) or "/.prose/" in name for name in names)
    shipped = [name for name in names if re.search("/notebooks/(?!.*(/checks/|/desk/|/prose_tools.py))", name)]
    assert not any(name.endswith((".py", ".yaml")) for name in shipped)  # without tools and answers


@pytest.mark.slow
def test_the_wheel_works_in_its_own_environment(wheel: Path, tmp_path: Path) -> None:
    """The new environment uses the dependencies of this one, so that nothing is downloaded."""
    home = tmp_path / "env"
    venv.create(home, with_pip=False)
    site = next(home.glob("lib/python*/site-packages"))
    installed = [p for p in map(Path, sys.path) if p.name == "site-packages"]
    own = ("prose_kernel", "_prose_kernel", "__editable__", "_editable")
    borrowed = tmp_path / "borrowed"
    borrowed.mkdir()
    for entry in (e for p in installed for e in p.iterdir() if not e.name.startswith(own)):
        if not (borrowed / entry.name).exists():
            (borrowed / entry.name).symlink_to(entry)
    for loose in borrowed.glob("*.pth"):
        loose.unlink()
    (site / "borrowed.pth").write_text(f"{borrowed}\n")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(home / "bin/python"),
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--no-compile",  # most modules are never imported here
    ]
    subprocess.run([*pip, "--disable-pip-version-check", str(wheel)], check=True, capture_output=True)

    spec = json.loads((home / "share/jupyter/kernels/prose/kernel.json").read_text())
    assert spec["argv"][0] == "python"
    seen = subprocess.run(
        [home / "bin/prose", "run", "hello", "--format", "json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert seen.returncode == 0, seen.stderr
    assert json.loads(seen.stdout.splitlines()[-1])["outputs"]["greeting"].startswith("This machine runs ")

    explained = [home / "bin/prose", "explain", "E004"]
    seen = subprocess.run(explained, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert seen.stdout.startswith("#### E004: "), seen.stderr

    copied = [home / "bin/prose", "examples", "--notebooks", "learn"]
    subprocess.run(copied, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    replay = [home / "bin/prose", "run", "learn/tour.ipynb", "--yes", "publish"]
    seen = subprocess.run(replay, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert seen.returncode == 0, seen.stderr
    assert "replayed: 1 of 1 answers came from recordings" in seen.stderr


def test_binder_installs_the_jupyterlab_that_is_tested_and_the_package() -> None:
    binder = ROOT / "binder"
    lab = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]["lab"]
    assert [line for line in (binder / "requirements.txt").read_text().splitlines() if not line.startswith("#")] == lab
    script = binder / "postBuild"
    assert os.access(script, os.X_OK) and "pip install --no-cache-dir .\n" in script.read_text(encoding="utf-8")
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
