"""A model server whose behaviour depends on the name of the model. Our tests use it in place of the API of a model.

It speaks `/v1/chat/completions`, `/v1/responses` and `/v1/messages`, streaming and not, over plain HTTP/1.1. In a test::

    with StubServer() as stub:
        ...  # `stub.url` is the base of Anthropic's clients, `stub.openai_url` (with /v1) that of OpenAI's
        assert stub.stats.peak == 8

As a separate process, `python -m stubs.model_server [PORT]` prints its URL, and answers `GET /stats`, `GET /last` (the last
request), `GET /cost` (`tokens.Cost`), `POST /script/NAME` (see `script-NAME`) and `POST /reset`.

The names of models, after an optional prefix that ends with `/` (`<ms>` is the time until the answer begins):

- `ok-<ms>`: answers `The answer is forty-two.`;  `echo-<ms>`: the last text of the user;  `system-<ms>`: the system text
- `tool-<ms>[-Name]`: calls that tool (otherwise the first one) with arguments that fit its schema, then answers `Done: `
  and the result
- `json-<ms>[-WORD]`: an object that fits the requested schema (a response format, or an output tool); an enumeration has
  WORD, or its first value if it has no WORD; a free text is `because`
- `script-NAME`: the turns given with `script()`, one for each request of a conversation; see `turn_of`
- `err-<code>[-n]`: that HTTP status, the first n times (else always); 429 and 503 with `retry-after: 7`
- `noschema[-WORD]`: refuses a schema (400), otherwise like `json`;  `words`: refuses the tool `answer`, too
- `context`: the error of a message that is too long;  `quota`: a 429 for a spent quota
- `hang`: never answers;  `stall`: begins a stream, then sends nothing;  `drip`: streams a word each 10 ms for ever
- `garbage`: 200 with an HTML page;  `broken`: 200 with half a JSON object;  `cut`: stops in the middle and closes
- `moved`: redirects to another server (this one, as `localhost`)
- `drop`: closes without an answer;  `midway`: streams three words, then an error event;  `unended`: three words, then a
  stream without an end event
- `big-<MB>`: a text of that many megabytes;  `line-<MB>`: the same in one piece;  `empty`: an empty text;  `nonsense`: `Perhaps. Who knows?`
- `markdown`: text with hostile markup;  `length`: cut by the limit of tokens;  `refuse`: declined

A request with the key `wrong` is answered with 401, for all models.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from stubs.model_wire import Asked, Json, Messages, Turn, Wire, read
from stubs.tokens import cost
from waiting import PATIENCE

ANSWER = "The answer is forty-two."
NONSENSE = "Perhaps. Who knows?"
MARKDOWN = (
    "# Hi\n\n<script>alert(1)</script>\n\n<img src=x onerror=alert(1)>\n\n[click](javascript:alert(1))\n\n"
    "```\nnever closed\n\n\x1b[31mred\x1b[0m \u202e backwards"
)
MB = 1_000_000
Made = TypeVar("Made")


@dataclass
class Stats:
    """The requests that the server received. `tokens` counts all pieces of text sent in streams."""

    requests: int = 0
    in_flight: int = 0
    peak: int = 0
    disconnects: int = 0
    tokens: int = 0
    tokens_after_disconnect: int = 0
    connections: int = 0
    by_model: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Last:
    """The last request of a model: its path, headers (names in lower case), body, and how the server read it."""

    path: str
    headers: Mapping[str, str]
    body: Json
    asked: Asked


class ClientClosed(Exception):
    """The client has closed the connection."""


class Connection:
    """One HTTP connection: it reads requests, and notices when a waiting client disconnects."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ahead = b""
        self.closed = False
        self.begun = False

    async def request(self) -> tuple[str, str, dict[str, str], bytes] | None:
        """Read a request and return its method, path, headers and body; None after the last one."""
        try:
            head = self._ahead + await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        self._ahead = b""
        self.begun = False
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        return method, path, headers, body

    async def until_disconnect(self, work: Awaitable[Made]) -> Made:
        """Return the result of the work. Cancels it and raises `ClientClosed` as soon as the client disconnects."""
        task = asyncio.ensure_future(work)
        watch = asyncio.ensure_future(self._reader.read(1)) if not self._ahead else None
        try:
            await asyncio.wait({task, watch} if watch else {task}, return_when=asyncio.FIRST_COMPLETED)
            if watch is not None and watch.done() and not task.done():
                if watch.exception() is not None or not watch.result():
                    self.closed = True
                    raise ClientClosed
                self._ahead = watch.result()
                return await task
            return task.result()
        finally:
            for running in (task, watch):
                if running is not None and not running.done():
                    running.cancel()
                    with suppress(asyncio.CancelledError, Exception):
                        await running
            if watch is not None and not watch.cancelled() and watch.done() and not watch.exception():
                self._ahead = watch.result()

    async def send(self, data: bytes) -> None:
        self.begun = True
        try:
            self._writer.write(data)
            await self._writer.drain()
        except ConnectionError:
            self.closed = True
            raise ClientClosed from None

    async def reply(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {status} Stub\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n"
        await self.send(head.encode() + body)

    async def begin_stream(self) -> None:
        await self.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )

    async def chunk(self, data: bytes) -> None:
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def end_stream(self) -> None:
        await self.send(b"0\r\n\r\n")

    def close(self) -> None:
        self._writer.close()


class StubServer:
    """The server in a thread with its own loop, as a context manager. See the module for its models."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.stats = Stats()
        self.last: Last | None = None
        self.seen: list[Last] = []
        self._scripts: dict[str, list[Json]] = {}
        self._failures: Counter[str] = Counter()
        self._connections: set[Connection] = set()
        self._changed = threading.Condition()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------ for tests

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    def script(self, name: str, *turns: Json | str) -> str:
        """Return the name of a model that answers the n-th request of a conversation with the n-th turn; see `turn_of`."""
        self._scripts[name] = [{"text": turn} if isinstance(turn, str) else turn for turn in turns]
        return f"script-{name}"

    def reset(self) -> None:
        """Forget all requests; connections and scripts stay."""
        self.stats = Stats()  # running requests count in the earlier ones
        self.last, self.seen = None, []
        self._failures.clear()

    def wait_for(self, true: Callable[[Stats], bool], timeout: float = 30.0) -> Stats:
        """Block the calling thread until the predicate is true. Raises `TimeoutError` after the timeout."""
        with self._changed:
            if not self._changed.wait_for(lambda: true(self.stats), timeout):
                raise TimeoutError(f"the stub server has seen only this: {self.stats}")
        return self.stats

    async def until(self, true: Callable[[Stats], bool], timeout: float = 30.0) -> Stats:
        """Wait like `wait_for`, without blocking the loop."""
        return await asyncio.to_thread(self.wait_for, true, timeout)

    def __enter__(self) -> StubServer:
        ready = threading.Event()

        def serve() -> None:
            asyncio.run(self._serve(ready))

        self._thread = threading.Thread(target=serve, name="stub model server", daemon=True)
        self._thread.start()
        if not ready.wait(PATIENCE):
            raise TimeoutError("the stub server does not start")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None and self._thread is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)

    async def _serve(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, backlog=4096)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ------------------------------------------------------------ connections and requests

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection = Connection(reader, writer)
        self.stats.connections += 1
        try:
            while not connection.closed and (request := await connection.request()) is not None:
                await self._answer(connection, *request)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            connection.close()
            self._tasks.discard(task)

    async def _answer(
        self, connection: Connection, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> None:
        path = path.partition("?")[0]
        if path.startswith(("/stats", "/last", "/cost", "/script/", "/reset")):
            await self._control(connection, path, body)
            return
        if method != "POST":
            listed = {"object": "list", "data": [{"id": "ok-0", "object": "model", "created": 1, "owned_by": "stub"}]}
            await connection.reply(200, json.dumps(listed if path.endswith("/models") else {}).encode())
            return
        content = json.loads(body or b"{}")
        if path.endswith("/count_tokens"):
            await connection.reply(200, json.dumps({"input_tokens": len(body.split())}).encode())
            return
        try:
            wire = read(path, content)
        except StopIteration:
            await connection.reply(404, b'{"error": {"message": "no such path"}}')
            return
        self.last = Last(path, headers, content, wire.asked)
        self.seen.append(self.last)
        stats = self.stats
        self._count(stats, requests=1, in_flight=1)
        stats.by_model[wire.asked.model] += 1
        try:
            await connection.until_disconnect(self._behave(connection, wire, headers))
        except ClientClosed:
            self._count(stats, disconnects=1)
        finally:
            self._count(stats, in_flight=-1)

    def _count(self, stats: Stats, **more: int) -> None:
        with self._changed:
            for name, value in more.items():
                setattr(stats, name, getattr(stats, name) + value)
            stats.peak = max(stats.peak, stats.in_flight)
            self._changed.notify_all()

    async def _control(self, connection: Connection, path: str, body: bytes) -> None:
        shown: object = {}
        if path == "/stats":
            shown = vars(self.stats)  # asdict cannot copy a Counter
        elif path == "/cost":
            shown = asdict(cost(last.body for last in self.seen))
        elif path == "/last" and self.last is not None:
            shown = asdict(self.last)
        elif path.startswith("/script/"):
            shown = {"model": self.script(path.removeprefix("/script/"), *json.loads(body))}
        elif path == "/reset":
            self.reset()
        await connection.reply(200, json.dumps(shown).encode())

    # ------------------------------------------------------------ behaviour

    async def _behave(self, connection: Connection, wire: Wire, headers: Mapping[str, str]) -> None:
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if key == "wrong":
            await self._fail(connection, wire, 401)
            return
        kind, _, rest = wire.asked.model.rpartition("/")[2].partition("-")
        match kind:
            case "err":
                code, _, times = rest.partition("-")
                self._failures[wire.asked.model] += 1
                if not times or self._failures[wire.asked.model] <= int(times):
                    await self._fail(connection, wire, int(code))
                    return
                await self._say(connection, wire, Turn.of_text(ANSWER))
            case "noschema" | "words" if _requires_a_schema(wire.asked, tools=kind == "words"):
                await self._fail(connection, wire, 400)
            case "noschema":
                await self._say(connection, wire, _json_turn(wire.asked, rest))
            case "words":
                await self._say(connection, wire, Turn.of_text('{"verdict": "reject", "score": 1}'))
            case "context" | "quota":
                await self._fail(connection, wire, 400 if kind == "context" else 429, kind)
            case "hang":
                await asyncio.Event().wait()
            case "drop":
                connection.closed = True
            case "garbage":
                await connection.reply(200, b"<html><body><h1>Welcome to the gateway</h1></body></html>", "text/html")
            case "moved":
                assert self.last is not None
                await connection.reply(307, b"", location=f"http://localhost:{self.port}{self.last.path}")
            case "broken":
                await connection.reply(200, b'{"id": "x", "choices": [{')
            case "cut" | "stall" | "drip" | "midway" | "unended":
                await self._halfway(connection, wire, kind)
            case _:
                wait, turn = self._turn(wire.asked, kind, rest)
                if wait:
                    await asyncio.sleep(wait)
                if isinstance(turn, int):
                    await self._fail(connection, wire, turn)
                else:
                    await self._say(connection, wire, turn)

    def _turn(self, asked: Asked, kind: str, rest: str) -> tuple[float, Turn | int]:
        first, _, more = rest.partition("-")
        wait = int(first) / 1000 if first.isdecimal() else 0.0
        match kind:
            case "echo":
                return wait, Turn.of_text(asked.user)
            case "system":
                return wait, Turn.of_text(asked.system)
            case "tool":
                return wait, _tool_turn(asked, more)
            case "json":
                return wait, _json_turn(asked, more)
            case "script":
                turns = self._scripts[rest]
                turn = turns[min(asked.turns, len(turns) - 1)]
                return float(turn.get("wait", 0)), turn_of(turn, asked)
            case "big":
                return 0, Turn(("x" * (MB // 10),) * (10 * int(first)))
            case "line":
                return 0, Turn(("x" * (MB * int(first)),))
            case "empty":
                return 0, Turn()
            case "nonsense":
                return 0, Turn.of_text(NONSENSE)
            case "markdown":
                return 0, Turn.of_text(MARKDOWN)
            case "length":
                return 0, Turn.of_text("This goes on and", finish="length")
            case "refuse":
                return 0, Turn.of_text("", finish="refusal")
            case _:
                return wait, Turn.of_text(ANSWER)

    async def _say(self, connection: Connection, wire: Wire, turn: Turn) -> None:
        if not wire.asked.stream:
            await connection.reply(200, json.dumps(wire.whole(turn)).encode())
            return
        await connection.begin_stream()
        for event in wire.events(turn):
            await connection.chunk(event)
            self._token(connection)
        await connection.end_stream()

    def _token(self, connection: Connection) -> None:
        self._count(self.stats, tokens=1, tokens_after_disconnect=int(connection.closed))

    async def _halfway(self, connection: Connection, wire: Wire, kind: str) -> None:
        """Send the beginning of a correct answer, then a fault."""
        if not wire.asked.stream:
            if kind == "cut":
                whole = json.dumps(wire.whole(Turn.of_text(ANSWER))).encode()
                await connection.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
                await connection.send(f"content-length: {len(whole)}\r\n\r\n".encode() + whole[: len(whole) // 2])
                connection.closed = True
                return
            if kind == "midway":
                await self._fail(connection, wire, 500)
                return
            await asyncio.Event().wait()
        await connection.begin_stream()
        await connection.chunk(wire.start())
        async for piece in _words(endless=kind == "drip"):
            await connection.chunk(wire.piece(piece))
            self._token(connection)
        if kind == "midway":
            error = wire.error(529, "overloaded_error", "Overloaded")
            name = b"event: error\n" if isinstance(wire, Messages) else b""
            await connection.chunk(name + b"data: " + json.dumps(error).encode() + b"\n\n")
            await connection.end_stream()
        elif kind == "stall":
            await asyncio.Event().wait()
        elif kind == "unended":
            await connection.end_stream()
        connection.closed = True

    async def _fail(self, connection: Connection, wire: Wire, status: int, kind: str = "") -> None:
        names = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error"}
        names |= {404: "not_found_error", 429: "rate_limit_error", 529: "overloaded_error"}
        message, code = f"The stub fails with {status} (request req_011CStub).", None
        if kind == "context":
            code = "context_length_exceeded"
            message = "prompt is too long: 210000 tokens > 200000 maximum"
            if not isinstance(wire, Messages):
                message = (
                    "This model's maximum context length is 8192 tokens. Please reduce the length of the messages."
                )
        elif kind == "quota":
            code, message = "insufficient_quota", "You exceeded your current quota, please check your billing details."
        error = wire.error(status, names.get(status, "api_error"), message, code)
        later = {"retry_after": "7"} if status in (429, 503) else {}
        await connection.reply(status, json.dumps(error).encode(), **later)


def _requires_a_schema(asked: Asked, *, tools: bool) -> bool:
    return asked.schema is not None or (tools and "answer" in asked.tools)


async def _words(*, endless: bool) -> AsyncIterator[str]:
    count = 0
    while endless or count < 3:
        yield f"word{count} "
        count += 1
        await asyncio.sleep(0.01)


def turn_of(turn: Json, asked: Asked) -> Turn | int:
    """A turn of a script: `{"text": ...}`, `{"calls": [{"name": ..., "arguments": {...}}]}`, both, or `{"error": 500}`.

    `{results}` in a text is replaced by the results of the tools so far; `wait` are seconds before the turn.
    """
    if "error" in turn:
        return int(turn["error"])
    text = str(turn.get("text", "")).replace("{results}", "; ".join(asked.results))
    content = Turn.of_text(text)
    return Turn(content.pieces, tuple((call["name"], call.get("arguments", {})) for call in turn.get("calls", ())))


def _tool_turn(asked: Asked, name: str) -> Turn:
    if asked.results or not asked.tools:
        return Turn.of_text(f"Done: {'; '.join(asked.results)}")
    chosen = next((tool for tool in asked.tools if tool.casefold() == name.casefold()), None)
    chosen = chosen or next(iter(asked.tools))
    return Turn(calls=((chosen, fitting(asked.tools[chosen], "")),))


def _json_turn(asked: Asked, word: str) -> Turn:
    if asked.schema is not None:
        return Turn.of_text(json.dumps(fitting(asked.schema, word)))
    if asked.tools:
        named = ("final", "output", "answer")
        name = next((tool for tool in asked.tools if any(one in tool for one in named)), next(iter(asked.tools)))
        return Turn(calls=((name, fitting(asked.tools[name], word)),))
    found = re.search(r"\{.*\"properties\".*\}", asked.system + asked.user, re.DOTALL)
    return Turn.of_text(json.dumps(fitting(json.loads(found[0]), word) if found else {}))


def fitting(schema: Json, word: str, root: Json | None = None) -> Any:
    """Return a value that fits a JSON schema; an enumeration has `word` if the schema allows it."""
    root = schema if root is None else root
    if "$ref" in schema:
        return fitting((root.get("$defs") or {})[schema["$ref"].rsplit("/", 1)[-1]], word, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return next((value for value in schema["enum"] if str(value) == word), schema["enum"][0])
    for either in ("anyOf", "oneOf"):
        if either in schema:
            return fitting(schema[either][0], word, root)
    match schema.get("type"):
        case "object" | None:
            properties = schema.get("properties") or {}
            required = schema.get("required", [])
            return {name: fitting(part, word, root) for name, part in properties.items() if name in required}
        case "array":
            return [fitting(schema.get("items") or {"type": "string"}, word, root)]
        case "boolean":
            return word not in ("no", "false")
        case "integer" | "number":
            return int(word) if word.isdecimal() else 1
        case _:
            return "because"


def main() -> None:
    with StubServer(int(sys.argv[1]) if len(sys.argv) > 1 else 0) as stub:
        print(stub.url, flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
