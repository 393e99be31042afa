"""Helpers for tests of models: the stub's servers in each wire format, a session's request, and real tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from models.people import ScriptedPerson
from stubs.model_server import StubServer

from prose_kernel.access.approvals import Approvals
from prose_kernel.access.session_permissions import Policy
from prose_kernel.models.providers.model_judge import ModelJudge
from prose_kernel.models.providers.model_servers import ModelServers
from prose_kernel.models.providers.model_sessions import ModelSessions
from prose_kernel.models.tools.session_tools import SessionTools
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.ports import SessionProgress, SessionRequest
from prose_kernel.runtime.session_options import ModelServer, SessionOptions, Surroundings

WIRES = ("anthropic", "chat", "responses")
KEY = "sk-live-1234567890abcdef"
ENVIRONMENT = {"STUB_KEY": KEY}


def server(wire: str, stub: StubServer, **more: Any) -> tuple[str, ModelServer]:
    """Return a server's name and settings: Anthropic's format, OpenAI-compatible, or OpenAI's own (Responses API)."""
    more = {"key": "STUB_KEY", "timeout": 30.0, **more}
    match wire:
        case "anthropic":
            return "anthropic", ModelServer("anthropic", **{"base_url": stub.url, **more})
        case "chat":
            return "gateway", ModelServer("openai", **{"base_url": stub.openai_url, **more})
        case _:
            return "openai", ModelServer("", **{"base_url": stub.openai_url, "judge_output": "native", **more})


def asked(task: str = "Say something.", **more: Any) -> SessionRequest:
    return SessionRequest("session", task, "c1/s0", **more)


def conversation(body: Mapping[str, Any]) -> list[str]:
    """Return the texts of a request's messages without the system text; a tool call becomes its arguments."""
    messages = body.get("messages") or body["input"]
    return [_message_text(one) for one in messages if one.get("role") != "system"]


def _message_text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content)


class Live:
    """A session provider and a judge that use one server; `shown` holds the progress reports of the sessions."""

    def __init__(
        self,
        stub: StubServer,
        wire: str,
        model: str | None,
        cwd: Path,
        *,
        environment: Mapping[str, str] = ENVIRONMENT,
        host: Mapping[str, str] | None = None,
        limit: int = 8,
        rounds: int = 50,
        clock: Any = None,
        others: Mapping[str, ModelServer] | None = None,
        run_directory: str | None = None,
        **more: Any,
    ) -> None:
        name, found = server(wire, stub, **more)
        self.name = name
        self.clock = clock
        self.where = Surroundings(str(cwd), run_directory, environment=environment)
        self.shown: list[SessionProgress] = []
        host = host or {"read": "allow", "write": "allow"}
        approvals = Approvals(ScriptedPerson(available=False), SystemClock())

        def bench(request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionTools:
            policy = Policy.of(request.permissions, host, str(cwd))
            return SessionTools(request, policy, approvals, self.where, on_progress)

        self.bench = bench
        options = SessionOptions(servers={name: found, **(others or {})}, max_parallel=limit)
        self.servers = ModelServers(options, self.where, clock or SystemClock())
        self.sessions = ModelSessions(self.servers, name, model, session_tools=bench, rounds=rounds)
        self.judge = ModelJudge(self.servers, name, model, clock=clock)

    async def run(self, request: SessionRequest | None = None) -> Any:
        return await self.sessions.run(request or asked(), self.shown.append)

    @property
    def text(self) -> str:
        """The streamed text."""
        return "".join(part.text for part in self.shown if part.kind == "text")

    async def __aenter__(self) -> Live:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.servers.close()
