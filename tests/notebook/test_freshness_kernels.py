"""Stale cells in real kernels: cells are known by their ids, in Prose notebooks and with `%%prose` in Python."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from notebook.kernels import Client, Ran, kernel, specification


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with kernel(tmp_path_factory.mktemp("python"), spec=specification("ipykernel_launcher", "signal")) as client:
        client.run("%load_ext prose_kernel")
        yield client


def run(client: Client, cell: str, code: str, deleted: list[str] | None = None) -> Ran:
    """Run a cell as JupyterLab does."""
    client.channels.session.metadata = {"cellId": cell, "deletedCells": deleted or []}
    try:
        return client.run(code)
    finally:
        client.channels.session.metadata = {"cellId": "a"}


def stale(client: Client, line: str = "%stale") -> dict[str, list[str]]:
    """The stale cells as an output's metadata tells them."""
    ran = run(client, "looks", line)
    assert ran.status == "ok", ran.content
    (shown,) = ran.of("display_data")
    return {one["cell"]: one["why"] for one in shown["metadata"].get("prose", {}).get("stale", [])}


def number(client: Client, cell: str, code: str) -> int:
    ran = run(client, cell, code)
    assert ran.status == "ok", ran.content
    return int(ran.content["execution_count"])


def test_cells_are_known_by_their_ids(client: Client) -> None:
    run(client, "a", "let x = 1")
    run(client, "b", "let y = x")
    assert stale(client) == {}
    again = number(client, "a", "let x = 2 # edited")
    assert stale(client) == {"b": [f"x was changed by [{again}]"]}
    run(client, "c", "let z = 1", deleted=["b"])
    assert stale(client) == {}


def test_an_interrupted_cell_has_bound_what_it_has_bound(client: Client) -> None:
    run(client, "a", "let x = 1\nlet late = 1")
    run(client, "b", "let y = x")
    run(client, "c", "let z = late")
    client.channels.session.metadata = {"cellId": "a"}
    request = client.send('x = 2\nexec "echo begun; sleep 4712"\nlate = 2')
    client.until_text(request, "begun")
    client.interrupt()
    ran = client.finish(request)
    assert ran.error["ename"] == "KeyboardInterrupt"
    assert stale(client) == {"b": [f"x was changed by [{ran.content['execution_count']}]"]}


def test_after_a_restart_the_cells_are_known_by_their_texts(client: Client) -> None:
    run(client, "a", "let x = 1")
    run(client, "b", "let y = x\noutput seen = y")
    client.manager.restart_kernel()
    client.channels.wait_for_ready(timeout=30)
    assert run(client, "r", "%restore").status == "ok"
    run(client, "a", "let x = 1")
    assert stale(client) == {}
    again = number(client, "a", "let x = 5")
    run(client, "b", "let y = x\noutput seen = y")
    assert stale(client) == {}
    again = number(client, "a", "let x = 6")
    assert stale(client) == {"b": [f"x was changed by [{again}]"]}
    shown = run(client, "looks", "%rerun stale").displays
    assert shown[0] == "[5] let y = x"
    assert "6" in shown[1]


def test_cells_of_a_python_notebook(python: Client) -> None:
    run(python, "p", "n = 4\nprose['given'] = 1")
    first = number(python, "a", "%%prose --in n\nlet x = n + given")
    run(python, "b", "%%vvm --out total\ntotal = x + 1")
    assert stale(python, "%prose stale") == {}
    run(python, "p", "n = 5")
    assert stale(python, "%prose stale")["a"] == ["the Python variable n has changed"]
    changed = number(python, "p", "n = 5\nprose['given'] = 2")
    found = stale(python, "%prose stale")
    assert found["a"] == [f"given was changed by [{changed}]", "the Python variable n has changed"]
    assert found["b"] == [f"x may change: [{first}] is stale"]
    ran = run(python, "r", "%prose rerun stale")
    assert ran.status == "ok", ran.content
    assert stale(python, "%prose stale") == {}
    assert run(python, "looks", "print(prose['x'], total)").text() == "7 8\n"
    seen = run(python, "looks", "%prose bindings x").displays[0]
    assert seen.startswith("x: let, number, made by")
    assert "from n, given" in seen
