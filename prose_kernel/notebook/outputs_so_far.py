"""Keep the outputs of cells so far, for a page that was reloaded while they ran (docs/reference/jupyter.md 6).

JupyterLab shows the outputs of an execution only in the page that requested it: a reloaded page doesn't know the
request, and drops them. So the kernel keeps the current outputs of its last cells (streams joined, displays replaced,
cleared outputs removed). The extension requests them on the control channel (`prose_outputs_request`), shows them, and
continues with the later messages: each message has its cell and a number, so that none is lost or shown twice.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

REQUEST: Final = "prose_outputs_request"
"""The request of a page: `{"cells": [ids]}`, the cells that ran when it was left. The answer has these and the running
cell: `{"cells": [{cell, request, count, done, number, outputs: [{kind, content}]}]}`."""
MAX_CELLS: Final = 200
"""The most cells whose outputs are kept."""
MAX_CHARACTERS: Final = 5_000_000
"""The most characters that are kept of one cell; later output is omitted, with a note."""

Content = dict[str, Any]


@dataclass(slots=True)
class CellLog:
    """The outputs of one execution of a cell. `request` is the id of the execute request."""

    cell: str
    request: str
    count: int
    lock: threading.Lock
    done: bool = False
    number: int = 0
    _outputs: list[tuple[str, Content, list[str]]] = field(default_factory=list)
    _clear: bool = False
    _size: int = 0

    def add(self, kind: str, content: Content) -> int:
        """Add an output that is about to be sent, and return its number in this execution."""
        with self.lock:
            self.number += 1
            if kind == "clear_output":
                self._clear = True
                if not content.get("wait"):
                    self._cleared()
            elif kind == "update_display_data":
                self._replace(content)
            else:
                self._cleared()
                self._append(kind, content)
            return self.number

    def as_data(self) -> dict[str, object]:
        with self.lock:
            shown = [
                {"kind": kind, "content": content | {"text": "".join(texts)} if texts else content}
                for kind, content, texts in self._outputs
            ]
            return {
                "cell": self.cell,
                "request": self.request,
                "count": self.count,
                "done": self.done,
                "number": self.number,
                "outputs": shown,
            }

    def _cleared(self) -> None:
        if self._clear:
            self._outputs, self._clear, self._size = [], False, 0

    def _append(self, kind: str, content: Content) -> None:
        text = content.get("text", "") if kind == "stream" else ""
        full = self._size > MAX_CHARACTERS
        self._size += len(text) if text else sum(map(len, content.get("data", {}).values()))
        if self._size > MAX_CHARACTERS and kind != "error":
            if not full:
                note = "… what was shown after this is not restored; `%report` has it\n"
                self._outputs.append(("stream", {"name": "stderr"}, [note]))
            return
        last = self._outputs[-1] if self._outputs else None
        if text and last is not None and last[0] == "stream" and last[1]["name"] == content["name"]:
            last[2].append(text)
        else:
            self._outputs.append((kind, content, [text] if text else []))

    def _replace(self, content: Content) -> None:
        wanted = content["transient"]["display_id"]
        for at, (kind, former, _) in enumerate(self._outputs):
            if kind == "display_data" and former["transient"].get("display_id") == wanted:
                self._outputs[at] = (kind, content, [])


class OutputsSoFar:
    """The outputs of the newest execution of each of the last cells."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # cells run on the main thread, the request is answered on the control thread
        self._logs: dict[str, CellLog] = {}

    def begin(self, cell: str, request: str, count: int) -> CellLog:
        log = CellLog(cell, request, count, self._lock)
        with self._lock:
            self._logs.pop(cell, None)
            self._logs[cell] = log
            while len(self._logs) > MAX_CELLS:
                del self._logs[next(iter(self._logs))]
        return log

    def answer(self, content: object) -> dict[str, object]:
        """Return the content of the reply to a page."""
        wanted = content.get("cells", ()) if isinstance(content, Mapping) else ()
        named = {key for key in wanted if isinstance(key, str)} if isinstance(wanted, Sequence) else set()
        with self._lock:
            logs = [log for log in self._logs.values() if not log.done or log.cell in named]
        return {"status": "ok", "cells": [log.as_data() for log in logs]}
