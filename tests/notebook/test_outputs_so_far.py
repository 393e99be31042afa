"""Outputs of cells so far are available to a reloaded page (A29)."""

from __future__ import annotations

import threading
from typing import Any

from notebook.kernels import Client

from prose_kernel.notebook import messages
from prose_kernel.notebook.messages import OUTPUTS_REQUEST, CellLog, OutputsSoFar


def display(text: str, name: str = "") -> dict[str, Any]:
    return {"data": {"text/plain": text}, "metadata": {}, "transient": {"display_id": name} if name else {}}


def shown(log: CellLog) -> list[str]:
    outputs: Any = log.as_data()["outputs"]
    return [one["content"].get("text") or one["content"]["data"]["text/plain"] for one in outputs]


def log() -> CellLog:
    return CellLog("a", "r", 1, threading.Lock())


def test_a29_outputs_are_kept_as_they_are_now() -> None:
    kept = log()
    kept.add("stream", {"name": "stdout", "text": "a"})
    kept.add("stream", {"name": "stdout", "text": "b\n"})
    kept.add("stream", {"name": "stderr", "text": "c\n"})
    kept.add("display_data", display("live", "x"))
    kept.add("update_display_data", display("final", "x"))
    assert shown(kept) == ["ab\n", "c\n", "final"] and kept.number == 5
    kept.add("clear_output", {"wait": True})
    assert shown(kept) == ["ab\n", "c\n", "final"]
    assert kept.add("stream", {"name": "stdout", "text": "new"}) == 7
    assert shown(kept) == ["new"]
    kept.add("clear_output", {"wait": False})
    assert shown(kept) == []


def test_a29_a_flood_is_kept_in_part(monkeypatch: Any) -> None:
    monkeypatch.setattr(messages, "MAX_CHARACTERS", 100)
    kept = log()
    for _ in range(50):
        kept.add("stream", {"name": "stdout", "text": "x" * 30})
    first, note = shown(kept)
    assert first == "x" * 90 and "not restored" in note
    kept.add("error", {"ename": "E", "evalue": "", "traceback": [], "text": "the error"})
    assert shown(kept)[2:] == ["the error"]


def test_a29_only_running_and_named_cells_get_a_message() -> None:
    logs = OutputsSoFar()
    for name in "abc":
        logs.begin(name, f"r{name}", 1).done = name != "c"
    logs.begin("b", "again", 4).done = True

    def told(content: object) -> list[tuple[Any, Any]]:
        cells: Any = logs.answer(content)["cells"]
        return [(one["cell"], one["request"]) for one in cells]

    assert told({"cells": ["b", 3, None]}) == [("c", "rc"), ("b", "again")]
    assert told(None) == told({}) == told({"cells": 5}) == [("c", "rc")]


def test_a29_a_kernel_tells_its_running_cell(client: Client) -> None:
    (client.directory / "go").unlink(missing_ok=True)
    code = 'exec "echo one"\nlet card = 2\nexec "echo two; until test -e go; do sleep 0.05; done"'
    request = client.send(code)
    client.until_text(request, "two")
    entry = told(client)
    assert (entry["cell"], entry["request"], entry["done"]) == ("a", request, False)
    assert [one["kind"] for one in entry["outputs"]] == ["stream", "display_data", "stream"]
    assert entry["number"] == 3
    (client.directory / "go").touch()
    ran = client.finish(request)
    assert ran.status == "ok"
    numbers = [message["metadata"]["prose"]["number"] for message in ran.outputs]
    assert numbers == sorted(numbers) and all(m["metadata"]["prose"]["cell"] == "a" for m in ran.outputs)
    assert told(client)["done"] is True


def told(client: Client) -> dict[str, Any]:
    channels = client.channels
    message = channels.session.msg(OUTPUTS_REQUEST, {"cells": ["a"]})
    channels.control_channel.send(message)
    while True:
        reply = channels.get_control_msg(timeout=20)
        if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
            break
    (entry,) = [one for one in reply["content"]["cells"] if one["cell"] == "a"]
    return dict(entry)
