"""Sessions answered by a model over an API: the message sent, tools called, text shown as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from prose_kernel.errors import ProviderBadReply
from prose_kernel.runtime.ports import SessionProgress, SessionRequest, SessionResult
from prose_kernel.runtime.session_options import ModelServer, Surroundings
from prose_kernel.sessions.providers import vendors
from prose_kernel.sessions.providers.model_calls import Conversation, Way
from prose_kernel.sessions.request import Assembled, answered, assemble, without_files
from prose_kernel.sessions.usage import discarded

if TYPE_CHECKING:
    from prose_kernel.sessions.tools.tool import Tool
    from prose_kernel.sessions.tools.workbench import SessionWorkbench

OnProgress = Callable[[SessionProgress], None]
FindTools = Callable[[SessionRequest], Awaitable["Sequence[Tool]"]]
MakeWorkbench = Callable[[SessionRequest, OnProgress], "SessionWorkbench"]


class ModelSessions:
    """The `Sessions` port, answered by a model.

    `model` is the model of sessions that name no alias: an alias, or the server's own name of a model; None is the
    server's default. `workbench` makes the tools of one attempt; where the server's models call no tools, or the
    permissions leave none that could read, the context is passed by value and the reply is the answer. `limit` is
    shared by all who go to the same server, `rounds` bounds the requests of one session.
    """

    def __init__(
        self,
        server_name: str,
        server: ModelServer,
        model: str | None = None,
        *,
        workbench: MakeWorkbench,
        where: Surroundings,
        limit: asyncio.Semaphore | None = None,
        rounds: int = 50,
        own_tools: FindTools | None = None,
    ) -> None:
        self._way = Way(server_name, server, where, limit)
        self._model = model
        self._workbench = workbench
        self._rounds = rounds
        self._own_tools = own_tools

    async def run(self, request: SessionRequest, on_progress: OnProgress) -> SessionResult:
        """The model's answer. Raises `ProviderError`; cancelling the call cancels the request at the server."""
        name, server = self._way.name, self._way.server
        model = vendors.model_id(name, server, request.model, self._model)
        options = vendors.options_of(server, request.model, self._model)
        async with self._way.limit:
            link = await self._way.open(model)
            bench = self._workbench(request, on_progress) if server.tools else None
            if bench is not None and request.tools and self._own_tools is not None:
                bench.add(await self._own_tools(request))
            specs = bench.specs if bench is not None else ()
            by_value = without_files(request, [spec.name for spec in specs])
            message, system = spoken(request, by_value=by_value)
            asked = Conversation(
                model,
                message,
                system,
                specs,
                bench.call if bench else None,
                self._rounds,
                bench.denied if bench else (),
                options,
                request.settings,
                request.output,
            )
            reply = await link.converse(asked, lambda piece: on_progress(SessionProgress("text", piece)))
        if reply.cut:
            on_progress(SessionProgress("note", "the reply ends here because the limit of tokens was reached"))
        details = {"model": reply.model, **({"cut": True} if reply.cut else {})}
        said = answered(
            reply.text, provider=name, origin="model", details=details, request=request, writes=not by_value
        )
        said = structs.replace(said, usage=reply.usage)
        result = said if bench is None else bench.outputs.harvest(said, bench)
        if not reply.text.strip() and not result.text:
            discarded(result)
            raise ProviderBadReply(f"{name}: the model said nothing")
        return result

    async def close(self) -> None:
        """Close the connections to the server."""
        await self._way.close()


def spoken(request: SessionRequest, *, by_value: bool) -> tuple[str, str | None]:
    """The message of a session, and what goes through the system channel: the agent's prompt (openprose.md 4.2)."""
    assembled = assemble(request, by_value=by_value)
    message = Assembled(tuple(part for part in assembled.parts if part.section != "system"))
    return message.text, request.system or None
