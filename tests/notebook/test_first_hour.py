"""First cells of people who know another kernel: they work, or the error says what to type."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from notebook.kernels import Client
from notebook.test_cells import cells, wrong  # noqa: F401

from prose_kernel.notebook.cells import Cells


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("%ls -l", 'exec "ls -l"'),
        ("%cat notes.md", 'exec "cat notes.md"'),
        ("%pwd", 'exec "pwd"'),
        ("!ls -l", 'exec "ls -l"'),
        ("!pip install x", 'exec "pip install x"'),
        ("%time make", 'exec "time make" times a command'),
        ("%%time\nlet x = 1", 'exec "time make" times a command'),
        ("%%bash\nls", 'exec """ and the lines of a script below it, ended by """'),
        ("%whos", "%bindings lists what is bound"),
        ("%lsmagic", "%help lists all magics"),
        ("%load_ext prose_kernel", "nothing needs to be loaded in this notebook"),
        ("%conda install x", "%pip install NAME installs into the Python of this kernel"),
        ("%env A=1", 'exec "TARGET=test make" sets a variable for one command'),
        ("%matplotlib inline", "leave it out: this is not a Python notebook"),
        ("%load file.prose", "%run FILE runs a program file"),
        ("%vvm x = 1", "%%vvm on the first line makes the whole cell VVM"),
        ("%%matlab\nx", "there are %%prose, %%vvm, %%task"),
        ("%bindngs", "did you mean `%bindings`?"),
        ("%xyzzy", "%help lists all magics"),
    ],
)
async def test_a_magic_of_another_kernel_says_what_to_type(cells: Cells, line: str, hint: str) -> None:  # noqa: F811
    name, _, traceback = await wrong(cells, line)
    assert name == "UsageError"
    assert f"hint: {hint}" in traceback


def wheel(directory: Path, name: str, module: str) -> str:
    """A wheel with one module."""
    file = directory / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{module}.py", "answer = 42\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", f"{module}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return file.name


def test_pip_installs_for_the_python_of_the_kernel(client: Client) -> None:
    """Into a directory that is on the kernel's path: the environment of the tests stays as it is."""
    file = wheel(client.directory, "demo", "demo")
    ran = client.run(f"%pip install --no-index --target packages ./{file}")
    assert "Successfully installed demo-1.0" in ran.text()
    assert ran.displays == ["No restart is needed."]
    assert (client.directory / "packages" / "demo.py").is_file()
    file = wheel(client.directory, "extra", "zmq/extra")
    ran = client.run(f"%pip install --no-index --target packages ./{file}")
    assert ran.displays == ["Restart the kernel to use extra: the former version is loaded."]


def test_a_failure_of_pip_is_an_error_below_its_output(client: Client) -> None:
    ran = client.run("%pip install --no-index no-such-package-of-ours")
    assert "no-such-package-of-ours" in ran.text("stderr")
    assert ran.error["evalue"] == "%pip: pip failed with exit code 1"
    assert "usage: %pip install NAME" in client.run("%pip").error["traceback"][-1]
