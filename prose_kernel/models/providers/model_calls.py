"""Requests to a model server and their replies as plain data, and the connection, which is opened at first use.

`ModelSessions` and `ModelJudge` use these types; only the adapter (`model_adapter.py` and its parts) uses the library.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any, Protocol, cast

from msgspec import Struct, field

from prose_kernel.errors import ProviderAuth
from prose_kernel.models.attachments import Attachment
from prose_kernel.models.providers import load, vendors
from prose_kernel.models.tools.tool import ToolAnswer, ToolSpec
from prose_kernel.runtime.ports import Usage
from prose_kernel.runtime.session_options import ModelOptions, ModelServer, Surroundings

AT_ONCE = 8  # live calls of a run, unless the settings say otherwise
LONGEST_REPLY = 8_000_000  # characters of one session's reply, thinking included

CallTool = Callable[[str, Mapping[str, object]], Awaitable[ToolAnswer]]


class Conversation(Struct, frozen=True):
    """A message to a model, the tools it may call, and the maximum number of requests.

    - `denied` tools are not offered; a call of one still goes to `call`, which answers with the permission that would
      grant it.
    - `options` belong to the model's alias. `settings` are other keys of an agent; those that servers know (such as
      `temperature`) are sent.
    - `output` is the JSON Schema of the answer: servers that can enforce a schema get it, others get `words` after the
      message.
    - `context` comes first, so that other conversations can share it as their beginning; then `attached`, then the
      message.
    - `opens` is awaited before each request. `timed`: the session has a `timeout:` property.
    - `streams`: the text is shown as it arrives; a reply in one piece costs half the work.
    - `history` has the messages so far: a failed conversation leaves them there, and one that begins with them
      continues, possibly with another model.
    - `wrong` are answers of earlier attempts that did not fit `output`, each with its problem.
    """

    model: str
    message: str
    system: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    call: CallTool | None = None
    rounds: int = 50
    denied: tuple[str, ...] = ()
    options: ModelOptions = field(default_factory=ModelOptions)
    settings: Mapping[str, object] = field(default_factory=dict)
    output: Mapping[str, Any] | None = None
    attached: tuple[Attachment, ...] = ()
    opens: Callable[[], Awaitable[None]] | None = None
    timed: bool = False
    history: list[Any] = field(default_factory=list)
    context: tuple[str, ...] = ()
    words: str = ""
    streams: bool = True
    wrong: tuple[tuple[str, str], ...] = ()


class Reply(Struct, frozen=True):
    """The answer of a model. `model` is the id that the server returned; `cut`: the token limit ended the text."""

    text: str
    model: str
    usage: Usage
    cut: bool = False


class Link(Protocol):
    """An open connection to one server. Calls raise `ProviderError`; cancelling a call cancels it at the server."""

    def prepare(self, model: str) -> None:
        """Load the packages of this model; called in a thread, because it may take long."""

    async def converse(self, asked: Conversation, on_text: Callable[[str], None]) -> Reply: ...

    async def close(self) -> None: ...


class LazyConnection:
    """A lazy connection to a server: opened at first use, in the loop that uses it; closed with its owner."""

    def __init__(self, name: str, server: ModelServer, where: Surroundings) -> None:
        self.name = name
        self.server = server
        self._where = where
        self._link: Link | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._prepared: set[str] = set()

    def leads_to(self, name: str, server: ModelServer, where: Surroundings) -> bool:
        """Return whether this is the connection to this server, with these keys and for this workspace."""
        same = (self._where.cwd, self._where.environment) == (where.cwd, where.environment)
        return same and (self.name, self.server) == (name, server)

    async def open(self, model: str) -> Link:
        """Return the connection, ready for this model; slow steps run in a thread.

        Raises `NoProvider` if packages are missing, `ProviderAuth` if the key is.
        """
        key = self._key()
        adapter: ModuleType = await load(
            "prose_kernel.models.providers.model_adapter", feature=f"the provider {self.name}", extra="llm"
        )
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # connections and locks belong to the loop that created them
            self._link, self._loop, self._opening = None, loop, asyncio.Lock()
            self._prepared.clear()
        async with self._opening:
            if self._link is None:
                opened = await asyncio.to_thread(adapter.ServerLink, self.name, self.server, key, self._where)
                self._link = cast("Link", opened)
            link = self._link
            if model not in self._prepared:
                await asyncio.to_thread(link.prepare, model)
                self._prepared.add(model)
        return link

    def _key(self) -> str | None:
        """Return the key; None for a server without one. Its value is sent only to the server."""
        variable = self.server.key or vendors.key_of(self.name, self.server, self._where.environment)
        if not variable:
            return None
        value = self._where.environment.get(variable, "").strip()
        if not value:
            raise ProviderAuth(
                f"there is no key for {self.name}: the environment variable {variable} is not set",
                hint=f"set {variable} before you start, or choose another provider",
            )
        return value

    async def close(self) -> None:
        """Close the connections. A second call does nothing."""
        link, self._link = self._link, None
        if link is not None and self._loop is asyncio.get_running_loop():
            await link.close()
