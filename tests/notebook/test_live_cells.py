"""Live views of running activities of a cell, in real kernels; the notebook keeps nothing of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from notebook.kernels import Client, Ran, kernel, specification
from notebook.test_sessions_shown import saved

GO = "while [ ! -e go ]; do sleep 0.05; done"
CODE = f"""exec "echo before"
repeat 2 as i:
  let log = exec "echo fetching; {GO}"
exec "echo after"
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    spec = specification("ipykernel_launcher", "signal")
    with kernel(tmp_path_factory.mktemp("python"), spec=spec, forks=True) as client:
        assert client.run("%load_ext prose_kernel").status == "ok"
        yield client


def watch(client: Client, code: str, go: Path) -> str:
    """Start a watched cell, wait until it shows that a command is running, and let the command end."""
    go.unlink(missing_ok=True)
    request = client.send(code, allow_stdin=True)
    client.until(request, lambda message: "fetching" in str(message["content"].get("data", "")))
    go.touch()
    return request


def ended(client: Client, request: str) -> Ran:
    """The rest of a cell, from where its panel is taken away: everything that the notebook holds follows."""
    ran = client.finish(request)
    at = ran.kinds.index("clear_output")
    return Ran(ran.reply, ran.outputs[at:])


def test_a_watched_cell_leaves_the_notebook_of_an_unwatched_one(client: Client) -> None:
    go = client.directory / "go"
    live = ended(client, watch(client, CODE, go))
    assert live.kinds.count("clear_output") == 1
    quiet = client.run(CODE)
    assert not {"clear_output", "update_display_data"} & set(quiet.kinds)
    assert saved(live) == saved(quiet)
    assert [output.get("text") for output in saved(quiet)] == ["before\n", None, "after\n"]


def test_an_interrupt_while_something_is_shown_live_leaves_only_the_error(client: Client) -> None:
    (client.directory / "go").unlink(missing_ok=True)
    request = client.send(f'let log = exec "echo fetching; {GO}"', allow_stdin=True)
    client.until(request, lambda message: "fetching" in str(message["content"].get("data", "")))
    client.interrupt()
    ran = ended(client, request)
    assert [output["kind"] for output in saved(ran)] == ["error"] and ran.error["ename"] == "KeyboardInterrupt"


def test_a_cell_of_a_python_notebook_does_the_same(python: Client) -> None:
    go = python.directory / "go"
    live = ended(python, watch(python, f"%%prose\n{CODE}", go))
    assert live.kinds.count("clear_output") == 1
    assert saved(live) == saved(python.run(f"%%prose\n{CODE}"))


def test_what_python_has_printed_in_the_cell_is_never_cleared(python: Client) -> None:
    (python.directory / "go").touch()
    ran = python.run('print("mine")\n%prose let log = exec "sleep 1; echo fetching"', allow_stdin=True)
    assert "clear_output" not in ran.kinds and ran.text() == "mine\n"
