"""Real CLI agents, installed by `make agents`, driven over loopback against the stub model server (sessions.md 5).

Each has its own home directory and a dummy key. Connections to other hosts lead to a closed port.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from models.providers.agents import Bench, agent, request, target
from stubs.model_server import StubServer

from prose_kernel.models.json_rpc import Patience
from prose_kernel.runtime.ports import FileWrite, SessionRequest

BIN = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prose_kernel/agents/node_modules/.bin"
MODELS = ("script-work", "script-rest", "hang", "ok-0")
PATIENCE = Patience(start=90, noise=10, cancel=10, grace=3)

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Real:
    """A real agent: its command, and an environment that points to a stub server."""

    program: str
    arguments: tuple[str, ...]
    environment: Callable[[StubServer, Path], dict[str, str]]


def isolated(home: Path) -> dict[str, str]:
    home.mkdir()
    places = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CONFIG", "DATA", "CACHE", "STATE")}
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    here = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
    return {"HOME": str(home), **places, **nowhere, **here}


def opencode(stub: StubServer, home: Path) -> dict[str, str]:
    options = {"baseURL": stub.openai_url, "apiKey": "dummy"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {model: {} for model in MODELS}}
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "enabled_providers": ["stub"],
        "model": "stub/ok-0",
        "small_model": "stub/ok-0",
        "permission": {"edit": "ask", "bash": "ask"},
        "provider": {"stub": provider},
    }
    off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    return {
        **isolated(home),
        "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
        **{f"OPENCODE_DISABLE_{name}": "1" for name in off},
    }


def claude(stub: StubServer, home: Path) -> dict[str, str]:
    return {
        **isolated(home),
        "ANTHROPIC_BASE_URL": stub.url,
        "ANTHROPIC_API_KEY": "dummy",
        "ANTHROPIC_MODEL": "ok-0",
        "IS_SANDBOX": "1",  # otherwise it refuses to run as root
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


OPENCODE = Real("opencode", ("acp",), opencode)
CLAUDE = Real("claude-agent-acp", (), claude)


def installed(real: Real) -> tuple[str, ...]:
    program = BIN / real.program
    if not program.exists():
        pytest.skip(f"{real.program} is not installed: `make agents` installs it where npm is")
    return (str(program), *real.arguments)


async def test_opencode_works_under_our_permissions(tmp_path: Path, stub: StubServer) -> None:
    """One process runs a session with permission, one without, and one that is cancelled at the model's server."""
    command, cwd = installed(OPENCODE), tmp_path.resolve() / "work"
    cwd.mkdir()
    stub.script(
        "work",
        {
            "text": "I will look.",
            "calls": [{"name": "bash", "arguments": {"command": "echo ran > ran.txt", "description": "x"}}],
        },
        {"text": "", "calls": [{"name": "write", "arguments": {"filePath": str(cwd / "out.md"), "content": "hi"}}]},
        "All done.",
    )
    aliases = {"opus": "stub/script-work", "haiku": "stub/hang"}
    environment = opencode(stub, tmp_path / "home")
    async with agent(cwd, command=command, patience=PATIENCE, env=environment, aliases=aliases) as bench:
        refused = await bench.sessions.run(asked(bench, "opus", {"bash": "deny"}), bench.progress.append)
        assert not (cwd / "ran.txt").exists()
        assert [(use.tool, use.summary, use.outcome) for use in refused.trace] == [
            ("bash", "echo ran > ran.txt", "refused")
        ]

        allowed = {"bash": "allow", "write": ("*.md",)}
        result = await bench.sessions.run(asked(bench, "opus", allowed), bench.progress.append)
        assert (cwd / "ran.txt").read_text() == "ran\n"
        assert (result.text, result.details["model"]) == ("All done.", "stub/script-work")
        assert [(use.tool, use.summary, use.outcome) for use in result.trace] == [
            ("bash", "echo ran > ran.txt", "ok"),
            ("edit", "out.md", "ok"),
        ]
        assert result.writes == (FileWrite("out.md", None, "hi"),)
        assert result.usage is not None
        assert result.usage.tokens_in > 0

        task = asyncio.create_task(bench.sessions.run(asked(bench, "haiku", {}), bench.progress.append))
        await stub.until(lambda stats: stats.by_model["hang"] > 0, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await stub.until(lambda stats: stats.disconnects > 0, 10)


async def test_claude_works_under_our_permissions(tmp_path: Path, stub: StubServer) -> None:
    command, cwd = installed(CLAUDE), tmp_path.resolve() / "work"
    cwd.mkdir()
    environment = claude(stub, tmp_path / "home")
    async with agent(cwd, command=command, patience=PATIENCE, env=environment) as bench:
        result = await bench.sessions.run(asked(bench, None, {}), bench.progress.append)
        assert (result.text, result.details["model"]) == ("The answer is forty-two.", "ok-0")
        assert result.usage is not None
        assert result.usage.tokens_out > 0


def asked(bench: Bench, model: str | None, permissions: dict[str, object]) -> SessionRequest:
    return request(model=model, permissions=permissions, target=target("answer", bench.cwd))
