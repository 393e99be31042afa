"""A CLI agent that follows the instructions of its prompt, over the real protocol, with JSON written by hand.

The library has an agent, too, but loading its 280 models would be most of the work of each of some 200 tests.

    python -m stubs.acp_agent [start=...] [ignore=cancel,term] [models=config|older|none] [closes] [session=ID]

The lines `do: INSTRUCTION ...` of a prompt are executed in order; without one, the answer is the prompt:

- `say TEXT`; `noise TEXT` on stdout, `complain TEXT` on stderr; `env NAME`, `model`, `cwd`, `prompt`: says the value;
  `half`: half a character;
  `think TEXT`; `big MEGABYTES`: says a text of this size; `long MEGABYTES`: the same in one message
- `call KIND STATUS {json}`: reports a tool call (its raw input; `path`, `old`, `new` make an edit) and reports its end
- `ask KIND {json} [once,always,reject,never]`: asks for permission with these options, says `allowed: ID` or `denied`
- `read PATH`, `write PATH TEXT`, `run COMMAND`: through the client; `touch PATH TEXT`, `touch-more PATH`: directly, without a
  report; `second TEXT`: says it and stops the first time, continues the second time
- `hang`: waits for ever (until cancelled); `die CODE`; `kill`: by SIGKILL; `fail CODE MESSAGE`: an error of the protocol;
  `stop REASON`; `fork`: starts a child that ignores TERM; `wait FILE`: until the file exists
- `later INSTRUCTION`: begins it, and does not wait for its end
- `usage IN OUT COST`: reports the usage of the turn

`start=` replaces a correct start by: `garbage`, `flood`, `exit`, `hang`, `auth`, `version`, `nonsense`, `banner` (a text
before a correct start), `deaf` (no answers after `initialize`).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import traceback
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

Json = dict[str, Any]

OPTIONS = {
    "once": {"optionId": "yes-1", "name": "Allow", "kind": "allow_once"},
    "always": {"optionId": "yes-for-ever", "name": "Always", "kind": "allow_always"},
    "reject": {"optionId": "no-1", "name": "Reject", "kind": "reject_once"},
    "never": {"optionId": "no-for-ever", "name": "Never", "kind": "reject_always"},
}
CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"


class RequestError(Exception):
    """An error of the protocol, of this agent or of the client."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class Client:
    """The client on standard input and output: JSON-RPC, one message a line."""

    def __init__(self, stub: Stub) -> None:
        self._methods = {
            "initialize": stub.initialize,
            "session/new": stub.new_session,
            "session/set_config_option": stub.set_config_option,
            "session/prompt": stub.prompt,
            "session/cancel": stub.cancel,
            "session/close": stub.close_session,
        }
        self._asked: dict[int, asyncio.Future[Json]] = {}
        self._numbers = itertools.count()
        self._running: set[asyncio.Task[None]] = set()
        stub.client = self

    async def serve(self) -> None:
        """Answer the client until it closes standard input."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=50 << 20)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
        self._writer = asyncio.StreamWriter(transport, protocol, None, loop)
        while line := await reader.readline():
            message = json.loads(line)
            if "method" in message:
                task = asyncio.create_task(self._answer(message))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            elif not (asked := self._asked.pop(message["id"])).done():  # it may have been cancelled before
                asked.set_result(message)

    async def ask(self, method: str, /, **params: Any) -> Any:
        """Return the result of a request to the client. Raises `RequestError` if it answers with an error."""
        number = next(self._numbers)
        self._asked[number] = asyncio.get_running_loop().create_future()
        await self._send(id=number, method=method, params=params)
        answer = await self._asked[number]
        if error := answer.get("error"):
            raise RequestError(error["code"], error["message"], error.get("data"))
        return answer["result"]

    async def notify(self, method: str, /, **params: Any) -> None:
        await self._send(method=method, params=params)

    async def _answer(self, message: Json) -> None:
        try:
            answer = {"result": await self._method(message["method"], message.get("params") or {})}
        except RequestError as error:
            answer = {"error": {"code": error.code, "message": str(error), "data": error.data}}
        except Exception as defect:
            traceback.print_exc()
            answer = {"error": {"code": -32603, "message": "Internal error", "data": {"details": str(defect)}}}
        if "id" in message:
            await self._send(id=message["id"], **answer)

    def _method(self, name: str, params: Json) -> Coroutine[Any, Any, Json]:
        if name not in self._methods:
            raise RequestError(-32601, "Method not found", {"method": name})
        return self._methods[name](params)

    async def _send(self, **message: Any) -> None:
        self._writer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        await self._writer.drain()


class Stub:
    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings
        self.ignored = settings.get("ignore", "").split(",")
        self.cancelled: dict[str, asyncio.Event] = {}
        self.models: dict[str, str] = {}
        self.cwd: dict[str, str] = {}
        self.calls = 0
        self.seen = 0
        self.working = self.most = 0
        self.client: Any = None

    async def initialize(self, params: Json) -> Json:
        match self.settings.get("start"):
            case "hang":
                await asyncio.sleep(1000)
            case "fail":
                raise RequestError(-32603, "Internal error", {"details": "no disk"})
        self.capabilities = params["clientCapabilities"]
        takes = "takes" in self.settings
        return {
            "protocolVersion": 99 if self.settings.get("start") == "version" else 1,
            "agentCapabilities": {
                "sessionCapabilities": {"close": {}} if "closes" in self.settings else {},
                "promptCapabilities": {"image": takes, "embeddedContext": takes},
            },
            "agentInfo": {"name": "stub", "version": "1.0"},
            "authMethods": [{"id": "login", "name": "Stub Login"}],
        }

    async def new_session(self, params: Json) -> Json:
        if self.settings.get("start") == "auth":
            raise RequestError(-32000, "Authentication required", {"details": "run `stub login`"})
        if self.settings.get("start") == "deaf":
            await asyncio.sleep(1000)
        id = self.settings.get("session") or uuid.uuid4().hex
        self.cancelled[id] = asyncio.Event()
        self.models[id] = "small"
        self.cwd[id] = params["cwd"]
        if self.settings.get("models", "config") != "config":
            return {"sessionId": id}
        choices = [{"value": value, "name": value} for value in ("small", "large")]
        option = {"id": "m", "name": "Model", "category": "model", "type": "select", "currentValue": "small"}
        return {"sessionId": id, "configOptions": [option | {"options": choices}]}

    async def set_config_option(self, params: Json) -> Json:
        self.models[params["sessionId"]] = str(params["value"])
        return {"configOptions": []}

    async def cancel(self, params: Json) -> Json:
        id = params["sessionId"]
        Path(self.cwd[id], "told-to-cancel").touch()
        if "cancel" not in self.ignored:
            self.cancelled[id].set()
        return {}

    async def close_session(self, params: Json) -> Json:
        Path(self.cwd[params["sessionId"]], "closed").touch()
        return {}

    async def prompt(self, params: Json) -> Json:
        self.prompt_blocks = params["prompt"]
        text = "\n\n".join(block["text"] for block in params["prompt"] if block["type"] == "text")
        turn = Turn(self, params["sessionId"], text)
        todo = [
            line.strip().removeprefix("do:").strip() for line in text.splitlines() if line.strip().startswith("do:")
        ]
        self.working += 1
        self.most = max(self.most, self.working)
        try:
            return await self.work(params["sessionId"], turn, todo or ["prompt"])
        finally:
            self.working -= 1

    async def work(self, session_id: str, turn: Turn, todo: list[str]) -> Json:
        working = asyncio.ensure_future(turn.all(todo))
        stopped = asyncio.ensure_future(self.cancelled[session_id].wait())
        await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            working.cancel()
            return {"stopReason": "cancelled", **turn.usage}
        stopped.cancel()
        return {"stopReason": working.result(), **turn.usage}


class Turn:
    def __init__(self, stub: Stub, id: str, text: str) -> None:
        self.stub, self.id, self.text = stub, id, text
        self.client = stub.client
        self.usage: Json = {}
        self.over = False

    async def all(self, todo: list[str]) -> Any:
        for each in todo:
            if self.over:
                break
            what, _, rest = each.partition(" ")
            what = what.replace("-", "_")
            if what == "stop":
                return rest
            await getattr(self, f"do_{what}")(rest)
        return "end_turn"

    async def notify(self, kind: str, /, **update: Any) -> None:
        await self.client.notify("session/update", sessionId=self.id, update={"sessionUpdate": kind, **update})

    async def message(self, text: str, kind: str = "agent_message_chunk") -> None:
        await self.notify(kind, content={"type": "text", "text": text})

    async def do_say(self, text: str) -> None:
        for word in text.replace("\\n", "\n").split(" "):
            await self.message(word + " ")

    async def do_think(self, text: str) -> None:
        await self.message(text, "agent_thought_chunk")

    async def do_big(self, megabytes: str) -> None:
        for _ in range(int(float(megabytes) * 10)):
            await self.message("x" * 100_000)

    async def do_long(self, megabytes: str) -> None:
        await self.message("x" * int(megabytes) * 1_000_000)

    async def do_half(self, _: str) -> None:
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "HALF!"}}
        message = {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": self.id, "update": update}}
        print(json.dumps(message).replace("HALF", "\\ud800"), flush=True)

    async def do_noise(self, text: str) -> None:
        print(text, flush=True)

    async def do_complain(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    async def do_env(self, name: str) -> None:
        await self.do_say(os.environ.get(name, "(unset)"))

    async def do_model(self, _: str) -> None:
        await self.do_say(self.stub.models[self.id])

    async def do_cwd(self, _: str) -> None:
        await self.do_say(self.stub.cwd[self.id])

    async def do_prompt(self, _: str) -> None:
        blocks = self.stub.prompt_blocks
        await self.message(self.text if len(blocks) == 1 else json.dumps(blocks))

    async def do_most(self, _: str) -> None:
        """Say the highest number of parallel prompts."""
        await self.do_say(str(self.stub.most))

    async def do_terminals(self, _: str) -> None:
        await self.do_say(str(self.stub.capabilities.get("terminal", False)))

    async def do_hang(self, _: str) -> None:
        await asyncio.sleep(1000)

    async def do_wait(self, name: str) -> None:
        while not Path(self.stub.cwd[self.id], name).exists():
            await asyncio.sleep(0.01)

    async def do_die(self, code: str) -> None:
        os._exit(int(code))

    async def do_kill(self, _: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def do_fail(self, rest: str) -> None:
        code, _, message = rest.partition(" ")
        raise RequestError(int(code), message, {"details": "as the prompt wished"})

    async def do_fork(self, _: str) -> None:
        subprocess.Popen([sys.executable, "-c", CHILD])

    async def do_usage(self, rest: str) -> None:
        given, made, cost = rest.split()
        tokens = {"inputTokens": int(given), "outputTokens": int(made), "cachedReadTokens": 1}
        self.usage = {"usage": {"totalTokens": int(given) + int(made), **tokens}}
        await self.notify("usage_update", used=1, size=2, cost={"amount": float(cost), "currency": "USD"})

    async def do_later(self, todo: str) -> None:
        what, _, rest = todo.partition(" ")
        self.begun = asyncio.create_task(getattr(self, f"do_{what}")(rest))
        await asyncio.sleep(0)  # its first message is sent

    async def do_touch(self, rest: str) -> None:
        name, _, text = rest.partition(" ")
        Path(self.stub.cwd[self.id], name).write_text(text)

    async def do_touch_more(self, name: str) -> None:
        with Path(self.stub.cwd[self.id], name).open("a") as file:
            file.write("x")

    async def do_second(self, text: str) -> None:
        """The first time, say the text and end the turn; the second time, continue."""
        self.stub.seen += 1
        if self.stub.seen % 2:
            await self.do_say(text)
            self.over = True

    def call_of(self, kind: str, raw: dict[str, Any]) -> dict[str, Any]:
        self.stub.calls += 1
        content, locations = [], []
        if "path" in raw:
            path = str(Path(self.stub.cwd[self.id], raw["path"]))
            locations = [{"path": path}]
            if "new" in raw:
                old = {"oldText": raw["old"]} if "old" in raw else {}
                content = [{"type": "diff", "path": path, "newText": raw["new"], **old}]
        return {
            "toolCallId": f"call-{self.stub.calls}",
            "kind": kind,
            "title": raw.get("title", f"{kind} something"),
            "rawInput": {name: value for name, value in raw.items() if name not in ("title", "output")},
            "content": content,
            "locations": locations,
            "status": "pending",
        }

    async def do_call(self, rest: str) -> None:
        kind, status, raw = rest.split(" ", 2)
        given = json.loads(raw)
        call = self.call_of(kind, given)
        await self.notify("tool_call", **call)
        if "new" in given and status == "completed":
            path = Path(self.stub.cwd[self.id], given["path"])
            await asyncio.sleep(0.05)  # the client reads the file when the edit is reported
            before = path.read_text() if path.exists() else ""
            path.write_text(before.replace(given["old"], given["new"]) if given.get("old") else given["new"])
        output = {"rawOutput": given["output"]} if "output" in given else {}
        await self.notify("tool_call_update", toolCallId=call["toolCallId"], status=status, **output)

    async def do_ask(self, rest: str) -> None:
        kind, _, more = rest.partition(" ")
        raw, end = json.JSONDecoder().raw_decode(more)
        names = more[end:].strip() or "once,always,reject"
        call = self.call_of(kind, raw)
        options = [OPTIONS[name] for name in names.split(",")]
        answer = await self.ask("session/request_permission", toolCall=call, options=options)
        outcome = answer["outcome"].get("optionId", "cancelled")
        status = "completed" if outcome.startswith("yes") else "failed"
        await self.notify("tool_call_update", toolCallId=call["toolCallId"], status=status)
        await self.do_say(f"answer: {outcome}")

    async def ask(self, method: str, /, **params: Any) -> Json:
        answer: Json = await self.client.ask(method, sessionId=self.id, **params)
        return answer

    async def do_read(self, rest: str) -> None:
        path, _, lines = rest.partition(" ")
        part = dict(zip(("line", "limit"), map(int, lines.split()), strict=False))
        try:
            answer = await self.ask("fs/read_text_file", path=str(Path(self.stub.cwd[self.id], path)), **part)
        except RequestError as refused:
            await self.do_say(f"error: {refused}")
        else:
            await self.do_say(f"content: {answer['content']}")

    async def do_write(self, rest: str) -> None:
        path, _, text = rest.partition(" ")
        full = str(Path(self.stub.cwd[self.id], path))
        try:
            await self.ask("fs/write_text_file", path=full, content=text.replace("\\n", "\n"))
        except RequestError as refused:
            await self.do_say(f"error: {refused}")

    async def do_run(self, command: str) -> None:
        try:
            made = await self.ask("terminal/create", command=command)
        except RequestError as refused:
            await self.do_say(f"error: {refused}")
            return
        id = made["terminalId"]
        end = await self.ask("terminal/wait_for_exit", terminalId=id)
        output = await self.ask("terminal/output", terminalId=id)
        await self.ask("terminal/release", terminalId=id)
        await self.do_say(f"exit {end.get('exitCode')}: {output['output']}")


def main() -> None:
    settings = dict(each.partition("=")[::2] for each in sys.argv[1:])
    if "term" in settings.get("ignore", ""):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    match settings.get("start"):
        case "garbage":
            print("Welcome to the agent!\n> ", flush=True)
            time.sleep(1000)
        case "flood":
            while True:
                print("y" * 1000)
        case "exit":
            print("cannot find my soul", file=sys.stderr)
            sys.exit(3)
        case "nonsense":
            sys.stdin.readline()
            print('{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"one"}}', flush=True)
            time.sleep(1000)
        case "banner":
            print("starting the agent ...", flush=True)
    asyncio.run(Client(Stub(settings)).serve())


if __name__ == "__main__":
    main()
