"""Jupyter's own test suite for kernels, with a sample for every test it has."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import forked
import jupyter_kernel_test
import pytest
from notebook.kernels import KERNELS, REPOSITORY

SPECIFICATIONS = {name: json.loads(file.read_text()) for name, file in KERNELS.items()}


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The kernelspecs of the repository in a separate prefix, for kernels that are forks."""
    root = tmp_path_factory.mktemp("jupyter")
    with pytest.MonkeyPatch.context() as patch, forked.as_kernels(root, KERNELS):
        patch.setenv("JUPYTER_PATH", str(root))
        patch.setenv("JUPYTER_DATA_DIR", str(root / "own"))
        patch.setenv("JUPYTER_RUNTIME_DIR", str(root / "runtime"))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))
        patch.chdir(root)
        yield


class TestProseKernel(jupyter_kernel_test.KernelTests):
    kernel_name = "prose"
    language_name = "prose"
    file_extension = ".prose"
    code_hello_world = 'exec "echo hello, world"'
    code_stderr = 'exec "echo oops >&2"'
    completion_samples: ClassVar[list[dict[str, object]]] = [
        {"text": "sess", "matches": {"session"}},
        {"text": "%bind", "matches": {"%binding", "%bindings"}},
        {"text": "agent a:\n  model: o", "matches": {"opus"}},
    ]
    complete_code_samples: ClassVar[list[str]] = ['exec "ls"', "let x = 1", "# c", "%bindings", ""]
    incomplete_code_samples: ClassVar[list[str]] = ["repeat 3:", 'session """\nmore', "let x = [1,"]
    invalid_code_samples: ClassVar[list[str]] = ["let = 3", "exec 'single'"]
    code_page_something = "exec?"
    code_generate_error = 'throw "on purpose"'
    code_execute_result: ClassVar[list[dict[str, str]]] = [
        {"code": "let x = 1 + 2", "result": "x: number = 3"},
        {"code": 'let y = "a"', "result": "y: text = a"},
        {"code": 'do:\n  let z = "inner"', "result": "z: text = inner"},
    ]
    code_display_data: ClassVar[list[dict[str, str]]] = [
        {"code": "%bindings", "mime": "text/markdown"},
        {"code": 'exec "exit 3"\n  on-fail: "continue"', "mime": "text/html"},
    ]
    code_history_pattern = "let x*"
    supported_history_operations = ("tail", "range", "search")
    code_inspect_sample = "exec"
    code_clear_output = "%clear"


class TestWelcome(jupyter_kernel_test.IopubWelcomeTests):
    kernel_name = "prose"
    support_iopub_welcome = True


class TestVvmKernel(jupyter_kernel_test.KernelTests):
    kernel_name = "vvm"
    language_name = "vvm"
    file_extension = ".vvm"
    code_hello_world = '%%prose\nexec "echo hello, world"'
    code_stderr = '%%prose\nexec "echo oops >&2"'
    completion_samples: ClassVar[list[dict[str, object]]] = [
        {"text": "%bind", "matches": {"%binding", "%bindings"}},
        {"text": "%%prose\nsess", "matches": {"session"}},
        {"text": "whi", "matches": {"while"}},
    ]
    complete_code_samples: ClassVar[list[str]] = ["x = 1", "# c", "%bindings", "", "%%prose\nlet x = 1\n\n"]
    incomplete_code_samples: ClassVar[list[str]] = ["def f(x):", 'x = """\nmore', "x = [1,", "%%prose", "%%prose\nif"]
    invalid_code_samples: ClassVar[list[str]] = ["x = ]", "def 3():"]
    code_page_something = "while?"
    code_inspect_sample = "while"
    code_generate_error = 'raise "on purpose"'
    code_execute_result: ClassVar[list[dict[str, str]]] = [
        {"code": "x = 1 + 2", "result": "x: number = 3"},
        {"code": '"a" + "b"', "result": "ab"},
        {"code": "export x", "result": '{"x": 3}'},
        {"code": "%%prose\nlet z = x", "result": "z: number = 3"},
    ]
    code_display_data: ClassVar[list[dict[str, str]]] = [{"code": "%bindings", "mime": "text/markdown"}]
    code_history_pattern = "x =*"
    supported_history_operations = ("tail", "range", "search")
    code_clear_output = "%clear"


@pytest.mark.parametrize(("name", "options"), [("prose", []), ("vvm", ["--language=vvm"])])
def test_the_specification_fits_the_kernel(name: str, options: list[str]) -> None:
    specification = SPECIFICATIONS[name]
    assert specification["argv"] == ["python", "-P", "-m", "prose_kernel", *options, "-f", "{connection_file}"]
    assert specification["language"] == name
    assert specification["interrupt_mode"] == "message"
    for logo in ("logo-svg.svg", "logo-32x32.png", "logo-64x64.png"):
        assert (Path(REPOSITORY) / "kernelspec" / name / logo).stat().st_size > 100
