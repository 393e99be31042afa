"""papermill itself, with parameters for a notebook of the Prose kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import forked
import nbformat
import pytest
from lazy_module import LazyModule
from notebook.kernels import KERNELS

papermill, exceptions = LazyModule("papermill"), LazyModule("papermill.exceptions")

PARAMETERS = {
    "topic": 'a {b} "c" \\ d\nnext',
    "count": 3,
    "ratio": -0.5,
    "small": 1e-7,
    "ready": True,
    "nothing": None,
    "names": ["x", "y"],
    "plan": {"title": "T", "steps": [1, {"deep": False}]},
}
KERNEL = {"kernelspec": {"name": "prose", "display_name": "Prose", "language": "prose"}}

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    # Jupyter chooses the ports of a kernel before the kernel opens them: another process may be faster.
    pytest.mark.flaky(reruns=1, only_rerun="Kernel died before replying to kernel_info"),
]


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kernels that are forks."""
    root = tmp_path_factory.mktemp("jupyter")
    with pytest.MonkeyPatch.context() as patch, forked.as_kernels(root, KERNELS):
        patch.setenv("JUPYTER_PATH", str(root))
        yield


def notebook(path: Path, *sources: str) -> Path:
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=KERNEL), path)
    return path


def test_parameters_become_let_statements_that_the_notebook_uses(tmp_path: Path) -> None:
    source = notebook(
        tmp_path / "in.ipynb",
        'let topic = "default"\nlet count = 1',
        "output all = {topic, ratio, small, nothing, count, ready}",
        "output rest = {names, steps: plan.steps}",
    )
    papermill.execute_notebook(
        source, tmp_path / "out.ipynb", PARAMETERS, kernel_name="prose", cwd=tmp_path, progress_bar=False
    )
    done = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    injected = done.cells[1]
    assert injected.metadata.tags == ["injected-parameters"]
    assert injected.source == (
        "# Parameters\n"
        'let topic = "a \\{b\\} \\"c\\" \\\\ d\\nnext"\n'
        "let count = 3\n"
        "let ratio = -0.5\n"
        "let small = 0.0000001\n"
        "let ready = true\n"
        "let nothing = null\n"
        'let names = ["x", "y"]\n'
        'let plan = {title: "T", steps: [1, {deep: false}]}\n'
    )
    shown = "".join(cell.outputs[-1]["data"]["text/plain"] for cell in done.cells[2:])
    assert '"topic": "a {b} \\"c\\" \\\\ d\\nnext"' in shown
    assert all(
        part in shown for part in ('"ratio": -0.5', '"small": 1e-07', '"nothing": null', '"count": 3', '"deep": false')
    )


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"when": {1: 1}}, "parameter when: a dict with a key that isn't text has no counterpart in Prose"),
        ({"x": float("nan")}, "parameter x: nan has no counterpart in Prose"),
        ({"not a name": 1}, "parameter not a name: not a name in OpenProse"),
        ({True: 1}, "parameter True: not a name in OpenProse"),
    ],
)
def test_what_has_no_counterpart_is_refused_before_anything_runs(
    tmp_path: Path, parameters: dict[object, object], says: str
) -> None:
    source = notebook(tmp_path / "in.ipynb", 'exec "touch ran"')
    with pytest.raises(exceptions.PapermillException, match=says):
        papermill.execute_notebook(source, tmp_path / "out.ipynb", parameters, cwd=tmp_path, progress_bar=False)
    assert not (tmp_path / "ran").exists()


def test_the_parameters_of_a_notebook_can_be_listed(tmp_path: Path) -> None:
    source = notebook(tmp_path / "in.ipynb", 'let topic = "a # b" # what it is about\nlet count = 1\nexec "true"')
    found = papermill.inspect_notebook(str(source))
    assert [(p["name"], p["inferred_type_name"], p["default"], p["help"]) for p in found.values()] == [
        ("topic", "text", '"a # b"', "what it is about"),
        ("count", "number", "1", ""),
    ]


def test_parameters_of_a_vvm_notebook_are_assignments(tmp_path: Path) -> None:
    cells = [
        nbformat.v4.new_code_cell(source) for source in ('topic = "default" # what it is about', "all = topic\nall")
    ]
    cells[0].metadata["tags"] = ["parameters"]
    kernel = {"kernelspec": {"name": "vvm", "display_name": "VVM", "language": "vvm"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), tmp_path / "in.ipynb")
    given = {"topic": 'a {b} "c" \\ `d`\nnext', "ratio": -0.5, "nothing": None, "plan": {"a key": [1, True]}}
    papermill.execute_notebook(
        tmp_path / "in.ipynb", tmp_path / "out.ipynb", given, kernel_name="vvm", cwd=tmp_path, progress_bar=False
    )
    done = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert done.cells[1].source == (
        '# Parameters\ntopic = "a {b} \\"c\\" \\\\ `d`\\nnext"\n'
        'ratio = (0 - 0.5)\nnothing = ()\nplan = {"a key": [1, true]}\n'
    )
    assert done.cells[2].outputs[-1]["data"]["text/plain"].endswith(given["topic"])
    found = papermill.inspect_notebook(str(tmp_path / "in.ipynb"))
    assert [(p["name"], p["help"]) for p in found.values()] == [("topic", "what it is about")]
    with pytest.raises(exceptions.PapermillException, match="parameter match: not a name in VVM"):
        papermill.execute_notebook(tmp_path / "in.ipynb", None, {"match": 1}, kernel_name="vvm", progress_bar=False)
