"""What is asked of a model server and what comes back, in plain data; and the way to it, opened at first use.

`ModelSessions` and `ModelJudge` speak these words; the adapter (`model_adapter.py` and its
parts) alone knows the library behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from prose_kernel.errors import ProviderAuth
from prose_kernel.models.attachments import Attachment
from prose_kernel.models.providers import load, vendors
from prose_kernel.models.tools.tool import ToolAnswer, ToolSpec
from prose_kernel.runtime.ports import Usage
from prose_kernel.runtime.session_options import ModelOptions, ModelServer, Surroundings

if TYPE_CHECKING:
    from types import ModuleType

AT_ONCE = 8  # live calls of a run, unless the settings say otherwise
LONGEST_REPLY = 8_000_000  # characters of one session's reply, thinking included

CallTool = Callable[[str, Mapping[str, object]], Awaitable[ToolAnswer]]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A message to a model, the tools it may call, and how often it may be asked before it must have answered.

    The tools in `denied` are not offered; a call of one goes to `call` all the same, which answers what would grant it.
    `options` are those of the model's alias. `settings` are other keys of an agent: those that servers know
    (`temperature` and the like) are sent. `output` is the JSON Schema of the answer: servers that can be held to one
    are, the others get `words` after the message, which ask for it. `context` goes before the message: what further
    conversations may begin with too; `attached` goes between the two. `opens` is waited for before each request.
    `timed`: the session has a `timeout:` of its own. `streams`: somebody watches the text come; a whole reply costs
    half the work.
    `history` is what was said by now: a conversation that fails leaves it there, and one that begins with it goes on,
    maybe with another model. `wrong` are answers of earlier attempts that did not fit `output`, each with what was
    wrong with it.
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


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered. `model` is the id that the server gave; `cut`: the limit of tokens ended the text."""

    text: str
    model: str
    usage: Usage
    cut: bool = False


class Link(Protocol):
    """An open way to one server. Every call raises `ProviderError`; cancelling it cancels at the server."""

    def prepare(self, model: str) -> None:
        """Load what this model needs; may take long, so it is called in a thread."""
        ...

    async def converse(self, asked: Conversation, on_text: Callable[[str], None]) -> Reply: ...

    async def close(self) -> None: ...


class Way:
    """The way to a server: opened when it is first used, in the loop that uses it; closed with its owner."""

    def __init__(self, name: str, server: ModelServer, where: Surroundings) -> None:
        self.name = name
        self.server = server
        self._where = where
        self._link: Link | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._prepared: set[str] = set()

    def leads_to(self, name: str, server: ModelServer, where: Surroundings) -> bool:
        """Whether it is the way to this server, with these keys and for this workspace."""
        same = (self._where.cwd, self._where.environment) == (where.cwd, where.environment)
        return same and (self.name, self.server) == (name, server)

    async def open(self, model: str) -> Link:
        """The link, ready for this model; what takes long is done in a thread.

        Raises `NoProvider` where the packages are missing, `ProviderAuth` where the key is.
        """
        key = self._key()
        adapter: ModuleType = await load(
            "prose_kernel.models.providers.model_adapter", what=f"the provider {self.name}", extra="llm"
        )
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # connections and locks belong to the loop that made them
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
        """The key; None for a server without one. Its value goes nowhere but to the server."""
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
