"""Stale cells in real kernels: cells are known by their ids, in Prose notebooks and with `%%prose` in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from notebook.kernels import Client, Ran, kernel, specification


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with kernel(
        tmp_path_factory.mktemp("python"), spec=specification("ipykernel_launcher", "signal"), forks=True
    ) as client:
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
    """The stale cells in an output's metadata."""
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


# ---------------------------------------------------------------- the channel to the panel


class Link:
    """A channel to the panel, as the extension of JupyterLab opens it."""

    def __init__(self, client: Client, comm_id: str, target: str = "prose_kernel:panel") -> None:
        self.client, self.comm_id = client, comm_id
        self._send("comm_open", {"target_name": target, "data": {}})

    def _send(self, kind: str, content: dict[str, Any]) -> str:
        session = self.client.channels.session
        message = session.msg(kind, {"comm_id": self.comm_id, **content})
        self.client.channels.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def say(self, **data: object) -> None:
        self._send("comm_msg", {"data": data})

    def close(self) -> None:
        self._send("comm_close", {"data": {}})

    def hear(self, kind: str, seen: Callable[[dict[str, Any]], bool] = lambda data: True) -> dict[str, Any]:
        """The next thing of a kind that the kernel says."""
        while True:
            message = self.client.channels.get_iopub_msg(timeout=30)
            content = message["content"]
            if message["msg_type"] == "comm_msg" and content["comm_id"] == self.comm_id:
                data: dict[str, Any] = content["data"]
                if data["kind"] == kind and seen(data):
                    return data


def begin(client: Client, cell: str, code: str) -> str:
    client.channels.session.metadata = {"cellId": cell}
    return client.send(code)


def test_the_panel_follows_the_run(client: Client) -> None:
    link = Link(client, "one")
    assert link.hear("stale") == {"kind": "stale", "stale": [], "next": [], "after": "a"}
    link.say(do="cells", cells=[["a", "let x = 1"], ["b", "let y = x"], ["c", "let z = y"]])
    link.say(do="show", on=True)
    assert link.hear("names") == {"kind": "names", "all": True, "changed": [], "gone": [], "agents": []}
    begin(client, "a", "let x = 1\nagent writer:\n  model: opus")
    told = link.hear("names")
    assert [one["name"] for one in told["changed"]] == ["x"]
    assert told["agents"][0]["said"] == "opus"
    begin(client, "b", "let y = x")
    told = link.hear("names", lambda data: bool(data["changed"]))
    assert [(one["name"], one["preview"], one["from"], one["cell"]) for one in told["changed"]] == [
        ("y", "1", ["x"], "b")
    ]
    begin(client, "c", "let z = y")
    link.hear("names", lambda data: bool(data["changed"]))
    begin(client, "a", "let x = 2")
    found = link.hear("stale", lambda data: bool(data["stale"]))
    assert [(one["cell"], one["maybe"]) for one in found["stale"]] == [("b", False), ("c", True)]
    assert (found["next"], found["after"]) == (["b"], "a")
    link.say(do="value", name="x")
    assert link.hear("value") == {"kind": "value", "name": "x", "text": "2", "rest": ""}
    request = begin(client, "r", "%rerun stale")
    link.hear("run")  # the front end runs its own cells
    assert client.reply(request)["content"]["status"] == "ok"
    link.close()
    assert run(client, "r", "%rerun stale").displays[0].endswith("] let y = x")


def test_the_panel_names_cells_whose_files_have_changed_in_the_order_in_which_they_run(client: Client) -> None:
    """Also one whose command writes the file that it reads: it stays stale, and the others run."""
    for name in ("one", "two"):
        (client.directory / name).write_text("1")
    link = Link(client, "files")
    link.say(do="cells", cells=[["a", ""], ["b", ""], ["c", ""]])
    begin(client, "a", 'exec "cat one; echo 2 >> one"\n  reads: ["one"]')
    told = link.hear("stale", lambda data: data["after"] == "a" and data["stale"])
    assert (told["stale"][0]["why"], told["next"]) == (["one has changed"], ["a"])
    begin(client, "b", "let x = 1")
    begin(client, "c", 'let c = exec "cat two"\n  reads: ["two"]')
    assert link.hear("stale", lambda data: data["after"] == "c")["next"] == ["a"]
    (client.directory / "two").write_text("2")
    begin(client, "b", "let x = 1")
    assert link.hear("stale", lambda data: data["after"] == "b" and len(data["next"]) > 1)["next"] == ["a", "c"]
    link.close()


def test_the_panel_shows_running_activities(client: Client) -> None:
    link = Link(client, "two")
    link.say(do="show", on=True)
    link.hear("names")
    request = begin(client, "a", 'parallel:\n  l = exec "sleep 4713"\n  r = exec "sleep 4714"')
    told = link.hear("running", lambda data: len(data["under_way"]) == 2)
    assert [(one["label"], one["line"], one["branch"]) for one in told["under_way"]] == [
        ("sleep 4713", 2, "l"),
        ("sleep 4714", 3, "r"),
    ]
    assert told["cell"] == "a"
    client.interrupt()
    assert link.hear("running", lambda data: data["cell"] is None)["under_way"] == []
    client.reply(request)
    link.close()


def test_nonsense_in_a_channel_is_ignored(client: Client) -> None:
    stranger = Link(client, "stranger", "nobody")
    link = Link(client, "three")
    link.hear("stale")
    for data in (
        {},
        {"do": "cells", "cells": "x"},
        {"do": "cells", "cells": [1, ["a"], [1, 2]]},
        {"do": "show", "on": 3},
    ):
        link.say(**data)
    stranger.say(do="show", on=True)
    for kind, content in (("comm_open", {}), ("comm_msg", {"data": 3}), ("comm_close", {"comm_id": 4})):
        link._send(kind, content)
    assert run(client, "a", "let x = 1").status == "ok"
    link.close()


def test_the_panel_of_a_python_notebook(python: Client) -> None:
    run(python, "z", "%prose reset")
    link = Link(python, "four")
    link.hear("stale")
    link.say(do="show", on=True)
    link.hear("names")
    begin(python, "a", "%%prose\nlet x = 1")
    assert link.hear("names", lambda data: bool(data["changed"]))["changed"][0]["name"] == "x"
    begin(python, "b", "%%prose\nlet y = x")
    link.hear("names", lambda data: bool(data["changed"]))
    begin(python, "a", "%%prose\nlet x = 2")
    assert link.hear("stale", lambda data: bool(data["stale"]))["next"] == ["b"]
    link.close()


def test_a_python_cell_that_writes_a_file_makes_the_cells_that_read_it_stale(python: Client) -> None:
    run(python, "z", "%prose reset")
    link = Link(python, "files")
    (python.directory / "rows.csv").write_text("1")
    run(python, "r", '%%prose\nlet rows = exec "cat rows.csv"\n  reads: ["rows.csv"]')
    assert link.hear("stale", lambda data: data["after"] == "r")["stale"] == []
    begin(python, "w", 'open("rows.csv", "w").write("2")')
    told = link.hear("stale", lambda data: bool(data["stale"]))
    assert [(one["cell"], one["why"]) for one in told["stale"]] == [("r", ["rows.csv has changed"])]
    assert stale(python, "%prose stale") == {"r": ["rows.csv has changed"]}
    run(python, "s", "%prose rerun stale --here")
    assert stale(python, "%prose stale") == {}
    link.close()
