"""A CLI agent that does what its prompt says, over the real protocol: the agent's side of the same library.

    python -m stubs.acp_agent [start=...] [ignore=cancel,term] [models=config|older|none] [closes]

Each line `do: WHAT ...` of a prompt is done in order; without one the whole prompt is said back:

- `say TEXT`; `noise TEXT` on stdout, `complain TEXT` on stderr; `env NAME`, `model`, `cwd`, `prompt`: says it;
  `half`: half a character;
  `think TEXT`; `big MEGABYTES`: says so much; `long MEGABYTES`: the same in one message
- `call KIND STATUS {json}`: reports a tool call (its raw input; `path`, `old`, `new` make an edit) and tells its end
- `ask KIND {json} [once,always,reject,never]`: asks for permission with these options, says `allowed: ID` or `denied`
- `read PATH`, `write PATH TEXT`, `run COMMAND`: through the client; `touch PATH TEXT`, `touch-more PATH`: by
  itself, told to nobody; `second TEXT`: says it and stops the first time, goes on the second
- `hang`: waits for ever (until cancelled); `die CODE`; `kill`: by SIGKILL; `fail CODE MESSAGE`: an error of the protocol;
  `stop REASON`; `fork`: starts a child that ignores TERM; `wait FILE`: until the file is there
- `usage IN OUT COST`: what the turn has cost

`start=` is what happens instead of a good start: `garbage`, `flood`, `exit`, `hang`, `auth`, `version`, `nonsense`,
`banner` (some text first, then good), `deaf` (answers nothing after hello).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pydantic

# Half of a start is pydantic reading docstrings from the library's source, and building 280 models. Few are used.
pydantic.BaseModel.model_config["defer_build"] = True
with contextlib.suppress(ImportError):
    from pydantic._internal import _fields

    _fields.extract_docstrings_from_cls = lambda *_, **__: {}

from acp import (  # noqa: E402
    PROTOCOL_VERSION,
    RequestError,
    embedded_text_resource,
    run_agent,
    schema,
    text_block,
    update_agent_message,
    update_agent_thought_text,
)

OPTIONS = {
    "once": schema.PermissionOption(option_id="yes-1", name="Allow", kind="allow_once"),
    "always": schema.PermissionOption(option_id="yes-for-ever", name="Always", kind="allow_always"),
    "reject": schema.PermissionOption(option_id="no-1", name="Reject", kind="reject_once"),
    "never": schema.PermissionOption(option_id="no-for-ever", name="Never", kind="reject_always"),
}
CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
assert embedded_text_resource


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

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, client_capabilities: Any = None, **more: Any) -> Any:
        match self.settings.get("start"):
            case "hang":
                await asyncio.sleep(1000)
            case "fail":
                raise RequestError.internal_error({"details": "no disk"})
        self.capabilities = client_capabilities
        closes = schema.SessionCloseCapabilities() if "closes" in self.settings else None
        return schema.InitializeResponse(
            protocol_version=99 if self.settings.get("start") == "version" else PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(
                session_capabilities=schema.SessionCapabilities(close=closes),
                prompt_capabilities=schema.PromptCapabilities(
                    image="takes" in self.settings, embedded_context="takes" in self.settings
                ),
            ),
            agent_info=schema.Implementation(name="stub", version="1.0"),
            auth_methods=[schema.AuthMethodAgent(id="login", name="Stub Login")],
        )

    async def new_session(self, cwd: str, **more: Any) -> Any:
        if self.settings.get("start") == "auth":
            raise RequestError.auth_required({"details": "run `stub login`"})
        if self.settings.get("start") == "deaf":
            await asyncio.sleep(1000)
        id = uuid.uuid4().hex
        self.cancelled[id] = asyncio.Event()
        self.models[id] = "small"
        self.cwd[id] = cwd
        options = None
        if self.settings.get("models", "config") == "config":
            choices = [schema.SessionConfigSelectOption(value=value, name=value) for value in ("small", "large")]
            options = [
                schema.SessionConfigOptionSelect(
                    id="m", name="Model", category="model", type="select", current_value="small", options=choices
                )
            ]
        return schema.NewSessionResponse(session_id=id, config_options=options)

    async def set_config_option(self, config_id: str, session_id: str, value: str | bool, **more: Any) -> Any:
        self.models[session_id] = str(value)
        return schema.SetSessionConfigOptionResponse(config_options=[])

    async def cancel(self, session_id: str, **more: Any) -> None:
        Path(self.cwd[session_id], "told-to-cancel").touch()
        if "cancel" not in self.ignored:
            self.cancelled[session_id].set()

    async def close_session(self, session_id: str, **more: Any) -> Any:
        Path(self.cwd[session_id], "closed").touch()
        return schema.CloseSessionResponse()

    async def prompt(self, session_id: str, prompt: list[Any], **more: Any) -> Any:
        self.prompt_blocks = prompt
        text = "\n\n".join(block.text for block in prompt if isinstance(block, schema.TextContentBlock))
        turn = Turn(self, session_id, text)
        todo = [
            line.strip().removeprefix("do:").strip() for line in text.splitlines() if line.strip().startswith("do:")
        ]
        self.working += 1
        self.most = max(self.most, self.working)
        try:
            return await self.work(session_id, turn, todo or ["prompt"])
        finally:
            self.working -= 1

    async def work(self, session_id: str, turn: Turn, todo: list[str]) -> Any:
        working = asyncio.ensure_future(turn.all(todo))
        stopped = asyncio.ensure_future(self.cancelled[session_id].wait())
        await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            working.cancel()
            return schema.PromptResponse(stop_reason="cancelled", usage=turn.usage)
        stopped.cancel()
        return schema.PromptResponse(stop_reason=working.result(), usage=turn.usage)


class Turn:
    def __init__(self, stub: Stub, id: str, text: str) -> None:
        self.stub, self.id, self.text = stub, id, text
        self.client = stub.client
        self.usage: Any = None
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

    async def tell(self, update: Any) -> None:
        await self.client.session_update(session_id=self.id, update=update)

    async def do_say(self, text: str) -> None:
        for word in text.replace("\\n", "\n").split(" "):
            await self.tell(update_agent_message(text_block(word + " ")))

    async def do_think(self, text: str) -> None:
        await self.tell(update_agent_thought_text(text))

    async def do_big(self, megabytes: str) -> None:
        for _ in range(int(float(megabytes) * 10)):
            await self.tell(update_agent_message(text_block("x" * 100_000)))

    async def do_long(self, megabytes: str) -> None:
        await self.tell(update_agent_message(text_block("x" * int(megabytes) * 1_000_000)))

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
        blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in self.stub.prompt_blocks]
        said = self.text if len(blocks) == 1 else json.dumps(blocks)
        await self.tell(update_agent_message(text_block(said)))

    async def do_most(self, _: str) -> None:
        """How many prompts there were at once, at most."""
        await self.do_say(str(self.stub.most))

    async def do_terminals(self, _: str) -> None:
        await self.do_say(str(self.stub.capabilities.terminal))

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
        self.usage = schema.Usage(
            total_tokens=int(given) + int(made), input_tokens=int(given), output_tokens=int(made), cached_read_tokens=1
        )
        update = schema.UsageUpdate(
            session_update="usage_update", used=1, size=2, cost=schema.Cost(amount=float(cost), currency="USD")
        )
        await self.tell(update)

    async def do_touch(self, rest: str) -> None:
        name, _, text = rest.partition(" ")
        Path(self.stub.cwd[self.id], name).write_text(text)

    async def do_touch_more(self, name: str) -> None:
        with Path(self.stub.cwd[self.id], name).open("a") as file:
            file.write("x")

    async def do_second(self, text: str) -> None:
        """Says it the first time, and nothing more; goes on the second time."""
        self.stub.seen += 1
        if self.stub.seen % 2:
            await self.do_say(text)
            self.over = True

    def described(self, kind: str, raw: dict[str, Any]) -> dict[str, Any]:
        self.stub.calls += 1
        content, locations = [], []
        if "path" in raw:
            path = str(Path(self.stub.cwd[self.id], raw["path"]))
            locations = [schema.ToolCallLocation(path=path)]
            if "new" in raw:
                edit = schema.FileEditToolCallContent(
                    type="diff", path=path, old_text=raw.get("old"), new_text=raw["new"]
                )
                content = [edit]
        return {
            "tool_call_id": f"call-{self.stub.calls}",
            "kind": kind,
            "title": raw.get("title", f"{kind} something"),
            "raw_input": {name: value for name, value in raw.items() if name not in ("title", "output")},
            "content": content,
            "locations": locations,
        }

    async def do_call(self, rest: str) -> None:
        kind, status, raw = rest.split(" ", 2)
        given = json.loads(raw)
        call = self.described(kind, given)
        await self.tell(schema.ToolCallStart(session_update="tool_call", status="pending", **call))
        if "new" in given and status == "completed":
            path = Path(self.stub.cwd[self.id], given["path"])
            await asyncio.sleep(0.05)  # the client looks at the file when it hears of the edit
            before = path.read_text() if path.exists() else ""
            path.write_text(before.replace(given["old"], given["new"]) if given.get("old") else given["new"])
        end = schema.ToolCallProgress(
            session_update="tool_call_update",
            tool_call_id=call["tool_call_id"],
            status=status,
            raw_output=given.get("output"),
        )
        await self.tell(end)

    async def do_ask(self, rest: str) -> None:
        kind, _, more = rest.partition(" ")
        raw, end = json.JSONDecoder().raw_decode(more)
        names = more[end:].strip() or "once,always,reject"
        call = schema.ToolCallUpdate(status="pending", **self.described(kind, raw))
        options = [OPTIONS[name] for name in names.split(",")]
        answer = await self.client.request_permission(session_id=self.id, tool_call=call, options=options)
        outcome = answer.outcome
        said = outcome.option_id if outcome.outcome == "selected" else "cancelled"
        status = "completed" if said.startswith("yes") else "failed"
        progress = schema.ToolCallProgress(
            session_update="tool_call_update", tool_call_id=call.tool_call_id, status=status
        )
        await self.tell(progress)
        await self.do_say(f"answer: {said}")

    async def do_read(self, rest: str) -> None:
        path, _, lines = rest.partition(" ")
        first, limit = (int(each) for each in lines.split()) if lines else (None, None)
        try:
            answer = await self.client.read_text_file(
                session_id=self.id, path=str(Path(self.stub.cwd[self.id], path)), line=first, limit=limit
            )
        except RequestError as refused:
            await self.do_say(f"error: {refused}")
        else:
            await self.do_say(f"content: {answer.content}")

    async def do_write(self, rest: str) -> None:
        path, _, text = rest.partition(" ")
        full = str(Path(self.stub.cwd[self.id], path))
        try:
            await self.client.write_text_file(session_id=self.id, path=full, content=text.replace("\\n", "\n"))
        except RequestError as refused:
            await self.do_say(f"error: {refused}")

    async def do_run(self, command: str) -> None:
        try:
            made = await self.client.create_terminal(session_id=self.id, command=command)
        except RequestError as refused:
            await self.do_say(f"error: {refused}")
            return
        id = made.terminal_id
        end = await self.client.wait_for_terminal_exit(session_id=self.id, terminal_id=id)
        output = await self.client.terminal_output(session_id=self.id, terminal_id=id)
        await self.client.release_terminal(session_id=self.id, terminal_id=id)
        await self.do_say(f"exit {end.exit_code}: {output.output}")


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
    asyncio.run(run_agent(Stub(settings), use_unstable_protocol=True))


if __name__ == "__main__":
    main()
