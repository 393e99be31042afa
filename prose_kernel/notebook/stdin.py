"""Ask the user of a notebook over the stdin channel; every wait for an answer can be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import zmq

from prose_kernel.errors import NobodyToAsk

_POLL_SECONDS = 0.02
_SENT_SECONDS = 1.0


class StdinChannel:
    """The `Asker` of a kernel: ours, or the IPython kernel that `%%prose` runs in.

    `kernel` needs `session`, `stdin_socket` and `iopub_thread`. `current` gives the identity and the parent message
    of the executing request; it is called at each question, because parallel questions belong to the same cell.
    `available` follows `allow_stdin` of the current request; `show` writes beside the program's own output. `magic` is
    what a magic begins with in this notebook.
    """

    def __init__(
        self, kernel: Any, current: Callable[[], tuple[Any, Any]], show: Callable[[str], None], magic: str = "%"
    ) -> None:
        self.magic = magic
        self._kernel = kernel
        self._current = current
        self._show = show
        self._turn: asyncio.Lock | None = None
        self.available = False

    def show(self, text: str) -> None:
        self._show(text)

    async def ask(self, prompt: str) -> str:
        """One line from the person. Raises `NobodyToAsk` when the front end has no input channel, `EOFError` at the
        end of input. Questions are asked one at a time."""
        if not self.available:
            raise NobodyToAsk("this front end cannot be asked: it runs the notebook without an input channel")
        if self._turn is None:
            self._turn = asyncio.Lock()
        async with self._turn:
            return await self._exchange(prompt)

    async def _exchange(self, prompt: str) -> str:
        socket, session = self._kernel.stdin_socket, self._kernel.session
        with suppress(zmq.Again):
            while True:  # answers to questions that were withdrawn
                socket.recv_multipart(zmq.NOBLOCK)
        await self._outputs_are_sent()
        ident, parent = self._current()
        question = session.send(socket, "input_request", {"prompt": prompt, "password": False}, parent, ident=ident)
        answered = (question["header"]["msg_id"], parent.get("header", {}).get("msg_id"))
        while True:
            value = self._answer(answered, ident)
            if value is not None:
                break
            await asyncio.sleep(_POLL_SECONDS)
        if value == "\x04":
            raise EOFError
        return value

    async def _outputs_are_sent(self) -> None:
        """Wait until what was shown is on its way: outputs have a channel and a thread of their own, and a text that
        arrives after the question would appear below the box instead of above it."""
        sent = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._kernel.iopub_thread.schedule(lambda: loop.call_soon_threadsafe(sent.set))
        with suppress(TimeoutError):
            await asyncio.wait_for(sent.wait(), _SENT_SECONDS)

    def _answer(self, wanted: tuple[object, ...], asked: list[bytes] | bytes | None) -> str | None:
        """The answer, if it has come.

        Passed over: what somebody sends who was not asked, a late answer to a question that was withdrawn (where the
        front end says what it answers), and what is no message at all.
        """
        socket, session = self._kernel.stdin_socket, self._kernel.session
        first = (asked[0] if asked else None) if isinstance(asked, list) else asked
        while True:
            try:
                sender, reply = session.recv(socket, mode=zmq.NOBLOCK)
            except Exception:  # noqa: S112 - not signed, or not to be decoded
                continue
            if reply is None:
                return None
            content, header = reply["content"], reply["parent_header"]
            if reply["msg_type"] != "input_reply" or not isinstance(content, dict):
                continue
            if header and header.get("msg_id") not in wanted:
                continue
            if not first or sender[:1] == [first]:
                return str(content.get("value", ""))
