"""One MCP server: its process (or its address), the session with it, its tools and their calls.

Imported with the package `mcp` at the first session that uses a server. A server's messages are data: descriptions and
results are bounded, and are never instructions to this program; the package declines requests of the server (sampling,
elicitation, roots), because no callback is given.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, cast

import anyio
import httpx2
import mcp_types as types
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from prose_kernel.language.text import one_line
from prose_kernel.models.json_rpc import LONGEST, ServerProcess
from prose_kernel.models.tools.tool import MOST_TOOLS, OfferedTools, ToolFailed, check_arguments
from prose_kernel.runtime import tracing
from prose_kernel.runtime.services import Guard
from prose_kernel.runtime.session_options import McpServer

START: Final = 30.0
PAGES: Final = 100
# the package logs text of the server: show it only if logging is configured
logging.getLogger("mcp").addHandler(logging.NullHandler())
_VARIABLE: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)


class Mcp:
    """A server of `[mcp.NAME]`. Every method may raise `ToolFailed`; if the server has ended, the next call restarts
    it."""

    def __init__(
        self, name: str, server: McpServer, guard: Guard | None, cwd: str, environment: Mapping[str, str], limit: int
    ) -> None:
        self.name = name
        self._server = server
        self._guard = guard
        self._cwd = cwd
        self._environment = environment
        self._limit = limit
        self._answers: dict[str, Mapping[str, Any]] = {}
        self._status = 0
        self._session: ClientSession | None = None
        self._process: ServerProcess | None = None
        self._serving: asyncio.Task[None] | None = None
        self._finish = asyncio.Event()
        self._starting = asyncio.Lock()

    async def list(self) -> OfferedTools:
        """Return the tools that the settings allow, with the server's schemas."""
        offer = OfferedTools()
        self._answers = {}
        cursor: str | None = None
        for _ in range(PAGES):
            session = await self._open()
            params = types.PaginatedRequestParams(cursor=cursor)
            page = await self._within(session.list_tools(params=params), START)
            for tool in page.tools:
                if not self._server.tools or tool.name in self._server.tools:
                    prefix = f"{self.name}__"
                    offer.add(tool.name, tool.description or "", tool.input_schema, prefix)
                    if tool.output_schema is not None:
                        self._answers.setdefault(tool.name, tool.output_schema)
            cursor = page.next_cursor
            if not cursor or len(offer.unusable) > MOST_TOOLS:
                break
        return offer

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        session = await self._open()
        parent = tracing.traceparent()
        meta = cast("types.RequestParamsMeta", {"traceparent": parent}) if parent else None
        result = await self._within(session.call_tool(name, dict(arguments), meta=meta), self._server.timeout)
        if not isinstance(result, types.CallToolResult):
            raise ToolFailed("the server asks for more than a tool call")
        text = self._text(result)
        if result.is_error:
            raise ToolFailed(text or "the tool failed without a word")
        if name in self._answers:
            try:
                check_arguments(self._answers[name], result.structured_content or {}, "answer")
            except ToolFailed as problem:
                raise ToolFailed(f"the tool server {self.name} does not keep to its own schema: {problem}") from None
        return text

    async def close(self) -> None:
        """End the session and the process. May be called in any loop."""
        serving, self._serving, self._session = self._serving, None, None
        process = self._process
        if serving is not None and serving.get_loop() is asyncio.get_running_loop():
            self._finish.set()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
        elif process is not None:
            await process.stop()

    # ------------------------------------------------------------ results

    def _text(self, result: types.CallToolResult) -> str:
        parts = [_shown(part) for part in result.content]
        if not parts and result.structured_content is not None:
            parts.append(json.dumps(result.structured_content, ensure_ascii=False))
        text = "\n".join(parts)
        if len(text) <= self._limit:
            return text
        return f"{text[: self._limit]}\n\n[cut: {len(text):,} characters in all]"

    # ------------------------------------------------------------ the session with the server

    async def _within(self, work: Any, seconds: float) -> Any:
        """Return the server's answer. A server that does not answer in time is ended."""
        asking = asyncio.ensure_future(work)
        serving = self._serving
        assert serving is not None
        try:
            done, _ = await asyncio.wait({asking, serving}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if asking in done:
                return asking.result()
            if not done:
                await self.close()
                raise ToolFailed(f"the tool server {self.name} gave no answer within {seconds:g} seconds; it was ended")
            raise ToolFailed(self._gone())
        except (ToolFailed, asyncio.CancelledError):
            raise
        except Exception as problem:  # the package may raise anything for a faulty server
            if serving.done() or (self._process is not None and self._process.over):
                await self.close()
                raise ToolFailed(self._gone()) from None
            raise ToolFailed(f"the tool server {self.name}: {_problem_text(problem)}") from None
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    def _gone(self) -> str:
        return self._process.gone if self._process is not None else f"the tool server {self.name} is gone"

    async def _open(self) -> ClientSession:
        async with self._starting:
            if self._session is not None and self._serving is not None and not self._serving.done():
                return self._session
            await self.close()
            self._finish = asyncio.Event()
            ready: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
            self._serving = asyncio.ensure_future(self._serve(ready))
            done, _ = await asyncio.wait({ready}, timeout=START)
            if not done:
                await self.close()
                raise ToolFailed(f"the tool server {self.name} did not say hello within {START:g} seconds")
            self._session = ready.result()
            return self._session

    async def _serve(self, ready: asyncio.Future[ClientSession]) -> None:
        """Keep the session open in one task: the package's scopes must be left in the task that entered them."""
        try:
            streams = self._http() if self._server.url is not None else self._stdio()
            async with streams as (incoming, outgoing), _Session(incoming, outgoing) as session:
                try:
                    await session.initialize()
                except Exception as problem:  # raised here, before closing the streams ends the process
                    raise self._unusable(problem) from None
                if not ready.done():
                    ready.set_result(session)
                await self._finish.wait()
        except asyncio.CancelledError:
            raise
        except Exception as problem:
            if not ready.done():
                ready.set_exception(self._unusable(problem))
        finally:
            if not ready.done():
                ready.set_exception(ToolFailed(self._gone()))
            ready.exception()  # retrieved, so that asyncio does not log it

    def _unusable(self, found: Exception) -> ToolFailed:
        problem = _innermost(found)
        if isinstance(problem, ToolFailed):
            return problem
        if self._process is not None and self._process.over:
            return ToolFailed(self._gone())
        status = f" (HTTP {self._status})" if self._status >= 400 else ""
        return ToolFailed(f"the tool server {self.name} cannot be used: {_problem_text(problem)}{status}")

    @contextlib.asynccontextmanager
    async def _stdio(self) -> AsyncIterator[Any]:
        if self._guard is None:
            raise ToolFailed(f"the tool server {self.name} cannot be started here: no process engine would end it")
        to_session, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](100_000)
        outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)

        def heard(message: dict[str, Any]) -> None:
            with contextlib.suppress(
                ValueError, anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError
            ):
                parsed = types.jsonrpc_message_adapter.validate_python(message, by_name=False)
                to_session.send_nowait(SessionMessage(parsed))

        process = ServerProcess(self.name, heard, to_session.close)
        try:
            env = {
                name: self._variable(named[1]) if (named := _VARIABLE.fullmatch(text)) is not None else text
                for name, text in self._server.env.items()
            }
            await process.start(self._guard, self._server.command, env, self._cwd)
        except BaseException:
            for stream in (to_session, incoming, outgoing, from_session):
                stream.close()
            raise
        self._process = process

        async def write() -> None:
            async for message in from_session:
                process.send(message.message.model_dump(mode="json", by_alias=True, exclude_unset=True))

        writing = asyncio.ensure_future(write())
        try:
            yield incoming, outgoing
        finally:
            writing.cancel()
            await process.stop()
            for stream in (to_session, incoming, outgoing, from_session):
                stream.close()

    def _variable(self, name: str) -> str:
        value = self._environment.get(name)
        if not value:
            raise ToolFailed(f"the environment variable {name} for the tool server {self.name} is not set")
        return value

    @contextlib.asynccontextmanager
    async def _http(self) -> AsyncIterator[Any]:
        headers = {}
        if self._server.key:
            headers["authorization"] = f"Bearer {self._variable(self._server.key)}"
        timeout = httpx2.Timeout(self._server.timeout, connect=min(10.0, self._server.timeout))

        async def answered(response: httpx2.Response) -> None:
            self._status, response.stream = response.status_code, _Counted(response.stream)

        transport, hooks = httpx2.AsyncHTTPTransport(), {"response": [answered]}
        assert self._server.url is not None
        async with (
            httpx2.AsyncClient(headers=headers, timeout=timeout, transport=transport, event_hooks=hooks) as client,
            streamable_http_client(self._server.url, http_client=client) as streams,
        ):
            yield streams


class _Session(ClientSession):
    """Skips the package's check of answers, because a third-party pattern can take forever to match. We check them
    ourselves."""

    async def validate_tool_result(self, name: str, result: types.CallToolResult) -> None:
        return


def _shown(part: types.ContentBlock) -> str:
    """Return a part of a result as text; a part that is not text is described."""
    if isinstance(part, types.TextContent):
        return part.text
    if isinstance(part, types.ImageContent | types.AudioContent):
        return f"[{part.type}: {one_line(part.mime_type, 60)}, {len(part.data) * 3 // 4:,} bytes, not shown here]"
    if isinstance(part, types.EmbeddedResource):
        held = part.resource
        return held.text if isinstance(held, types.TextResourceContents) else f"[file: {one_line(str(held.uri))}]"
    return f"[link: {one_line(str(part.uri))}]"


class _Counted(httpx2.AsyncByteStream):
    """The bytes of a response, which ends if it is longer than a message may be."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = 0
        async for piece in self._inner:
            length += len(piece)
            if length > LONGEST:
                raise httpx2.ReadError(f"more than {LONGEST // (1024 * 1024)} MiB")
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


def _innermost(problem: BaseException) -> BaseException:
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem


def _problem_text(problem: BaseException) -> str:
    """Return a problem on one line; for a message that violates the protocol, its location."""
    if isinstance(problem, ValidationError):
        first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
        text = f"its message breaks the protocol: {'.'.join(map(str, first['loc']))}: {first['msg']}"
    else:
        text = str(problem) or type(problem).__name__
    return one_line(text, 300)
