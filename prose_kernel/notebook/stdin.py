"""Ask the user of a notebook over the stdin channel; every wait for an answer can be cancelled.

A question is sent to the front end that has sent the cell, over a channel that no other client reads, and only that
front end can answer it. Its metadata has the form of the question (`runtime/asker.py`): the JupyterLab
extension shows buttons and fields, any other front end its input box; the answer is the same `input_reply` in both
cases.

A reloaded page is a new client. So the metadata of a question has a key of its cell, which the extension keeps for its
tab. With this key the reloaded page requests the questions of the old page on the control channel
(`prose_question_request`).
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import zmq
from msgspec import Struct, field
from msgspec.structs import asdict

from prose_kernel.errors import NoPerson
from prose_kernel.notebook.messages import replaces_displays
from prose_kernel.runtime.asker import NO_CHANNEL, Form
from prose_kernel.views.display import Output
from prose_kernel.views.escaping import markdown, terminal, visible

QUESTION_REQUEST = "prose_question_request"
"""The request of a page that has a key: `{"key": ...}`. The answer has `known` (whether the key is valid) and `waiting`
(whether a question waits)."""
_POLL_SECONDS = 0.02
_SENT_SECONDS = 1.0

Address = tuple[Any, Any]
"""The client's identity and the message of the request that a question belongs to."""


class _Page(Struct):
    """The client that answers the questions of a cell: its sender, or a later client with the key. `address` is always
    replaced as a whole, because the control thread replaces it, too."""

    request: object
    address: Address
    key: str = field(default_factory=lambda: secrets.token_urlsafe(16))


class _Question(Struct):
    """A waiting question, its address, and the id of its message (`asked`, empty while no client is reached)."""

    prompt: str
    form: Form | None
    address: Address
    asked: str = ""

    @property
    def client(self) -> bytes | None:
        """The identity of the client that is asked."""
        ident = self.address[0]
        found = (ident[0] if ident else None) if isinstance(ident, list) else ident
        return found or None


class StdinChannel:
    """The `Asker` of a kernel: ours, or the IPython kernel that `%%prose` runs in.

    `kernel` needs `session`, `stdin_socket`, `iopub_socket` and `iopub_thread`. `current` returns the identity and the
    message of the executing request; it is called for each question, because parallel questions belong to the same
    cell. `available` follows `allow_stdin` of the current request; `output` returns the output of the running cell.
    `magic` is the prefix of magics in this notebook. `on_answer` is called with the line of a question and its answer,
    as front ends show them.
    """

    def __init__(
        self,
        kernel: Any,
        current: Callable[[], Address],
        output: Callable[[], Output | None],
        magic: str = "%",
        on_answer: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.magic = magic
        self._kernel = kernel
        self._current = current
        self._output = output
        self._turn: asyncio.Lock | None = None
        self._page: _Page | None = None
        self._question: _Question | None = None
        self.available = False
        self._on_answer = on_answer

    def show(self, text: str) -> None:
        """Show a text above the next question."""
        if (output := self._output()) is not None:
            output.stream("stdout", terminal(text if text.endswith("\n") else text + "\n"))

    async def ask(self, prompt: str) -> str:
        """Ask for one line of text. Raises `NoPerson` if the front end has no input channel, `EOFError` at the end of
        input. Questions are asked one at a time."""
        return await self._ask(prompt, None)

    async def ask_form(self, prompt: str, form: Form) -> str:
        """Do the same with a form, which front ends show if they can."""
        return await self._ask(prompt, form)

    async def _ask(self, prompt: str, form: Form | None) -> str:
        if not self.available:
            raise NoPerson(NO_CHANNEL)
        if self._turn is None:
            self._turn = asyncio.Lock()
        async with self._turn:
            return await self._exchange(prompt, form)

    async def _exchange(self, prompt: str, form: Form | None) -> str:
        with suppress(zmq.Again):
            while True:  # answers to withdrawn questions
                self._kernel.stdin_socket.recv_multipart(zmq.NOBLOCK)
        await self._outputs_are_sent()
        page = self._asked_page()
        question = self._question = _Question(prompt, form, page.address)
        self._put(question, page)
        try:
            while (value := self._answer(question)) is None:
                await asyncio.sleep(_POLL_SECONDS)
                if page.address is not question.address:
                    self._resend(question, page)
                elif not question.asked:
                    self._put(question, page)
        except BaseException:
            self._withdraw(question)
            raise
        finally:
            self._question = None
        if value == "\x04":
            raise EOFError
        self._on_answer(f"{prompt} {value}")
        return value

    async def _outputs_are_sent(self) -> None:
        """Wait until all outputs are sent: they have a separate channel and thread, and a text that arrives after the
        question would appear below the input box instead of above it."""
        sent = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._kernel.iopub_thread.schedule(lambda: loop.call_soon_threadsafe(sent.set))
        with suppress(TimeoutError):
            await asyncio.wait_for(sent.wait(), _SENT_SECONDS)

    # ------------------------------------------------------------ send and withdraw a question

    def _asked_page(self) -> _Page:
        address = self._current()
        if self._page is None or self._page.request != _id(address[1]):
            self._page = _Page(_id(address[1]), address)
        return self._page

    def _put(self, question: _Question, page: _Page) -> None:
        ident, parent = question.address
        prompt = question.prompt
        if prompt and not prompt[-1].isspace() and not replaces_displays(parent):
            prompt += " "  # on a terminal the answer is typed directly after it
        content = {"prompt": prompt, "password": False}
        metadata = {} if question.form is None else {"prose": described(question.form) | {"key": page.key}}
        socket = self._kernel.stdin_socket
        socket.router_mandatory = 1  # otherwise the socket drops a message to a client that is not connected yet
        try:
            sent = self._kernel.session.send(socket, "input_request", content, parent, ident=ident, metadata=metadata)
        except zmq.ZMQError as problem:
            if problem.errno != zmq.EHOSTUNREACH:
                raise
            question.asked = ""
        else:
            question.asked = sent["header"]["msg_id"]
        finally:
            socket.router_mandatory = 0

    def _withdraw(self, question: _Question) -> None:
        """Tell the front end that the answer is no longer needed, in the metadata of a status that is true anyway: a
        front end that ignores the metadata notices nothing."""
        kernel = self._kernel
        if not question.asked:
            return
        metadata = {"prose": {"withdrawn": question.asked}}
        with suppress(Exception):  # it must not hide the error that ended the question
            kernel.session.send(
                kernel.iopub_socket,
                "status",
                {"execution_state": "busy"},
                parent=question.address[1],
                ident=kernel._topic("status"),
                metadata=metadata,
            )

    # ------------------------------------------------------------ a reloaded page

    def answer_question_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Answer `prose_question_request`; called on the control thread. A client with the key of the cell is the same
        tab with a new identity: open questions are sent to it instead of the old identity."""
        content = parent.get("content")
        key = str(content.get("key", "")) if isinstance(content, dict) else ""
        page = self._page
        known = page is not None and hmac.compare_digest(key.encode("utf-8", "replace"), page.key.encode())
        if known and page is not None:
            page.address = (ident, parent)
        answer = {"status": "ok", "known": known, "waiting": known and self._question is not None}
        self._kernel.session.send(stream, "prose_question_reply", answer, parent, ident)

    def _resend(self, question: _Question, page: _Page) -> None:
        self._withdraw(question)
        question.address = page.address
        self._put(question, page)
        self._kernel._publish_status("busy", "shell", parent=self._current()[1])  # the request has published an idle

    # ------------------------------------------------------------ the answer

    def _answer(self, question: _Question) -> str | None:
        """Return the answer, or None if it has not arrived.

        Skips invalid messages, messages of other clients, and late answers to withdrawn questions (if the front end
        names the question).
        """
        socket, session = self._kernel.stdin_socket, self._kernel.session
        wanted, first = (question.asked, _id(question.address[1])), question.client
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


def _id(request: Any) -> object:
    return request.get("header", {}).get("msg_id")


def described(form: Form) -> dict[str, object]:
    """Return the data of a form for the extension. Its texts are made harmless and contain no hidden characters."""
    return {
        "kind": form.kind,
        "title": visible(form.title),
        "text": markdown(form.text) if form.markdown else visible(form.text),
        "markdown": form.markdown,
        "above": form.above,
        "note": visible(form.note),
        "buttons": [asdict(button) | {"label": visible(button.label)} for button in form.buttons],
        "field": None if form.field is None else asdict(form.field) | {"label": visible(form.field.label)},
        **({"parts": [asdict(part) | {"about": visible(part.about)} for part in form.parts]} if form.parts else {}),
        "seconds": None if form.left is None else max(0.0, round(form.left(), 1)),
    }
