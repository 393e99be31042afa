"""Findings of `prose doctor` about sessions: extras, providers, judges, API keys, agents and recordings."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from prose_kernel.errors import UsageError, reason_of

if TYPE_CHECKING:
    from prose_kernel.models.providers.provider_choice import Choice
    from prose_kernel.runs.settings import Settings
    from prose_kernel.runtime.session_options import McpServer, ModelServer, SessionOptions, Surroundings

EXTRAS = {"llm": "pydantic-ai-slim", "acp": "agent-client-protocol", "local": "xllamacpp", "mcp": "mcp"}
NEEDS = {"model": "llm", "agent": "acp"}


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding about a subject. A `broken` one has a `fix`; a `note` isn't a fault."""

    state: Literal["ok", "note", "broken"]
    subject: str
    text: str
    fix: str | None = None


def examine(settings: Settings, cwd: Path) -> Iterator[Finding]:
    """Yield all findings about sessions for a program started in `cwd`. No server is called, and no key is shown."""
    from prose_kernel.runs.settings import surroundings

    options = settings.session_options(cwd)
    where = surroundings(cwd, None, settings.state_dir)
    yield from _extras()
    yield from _provider(options, where)
    yield from _judge(options)
    for name, server in options.servers.items():
        yield _server(name, server, options, where)
    for name, agent in options.agents.items():
        yield _agent(name, agent.command, chosen=options.provider == f"acp:{name}")
    for name, tools in options.mcp.items():
        yield _mcp(name, tools, where)
    yield from _recordings(cwd)


def _extras() -> Iterator[Finding]:
    for extra, package in EXTRAS.items():
        subject = f"extra [{extra}]"
        if found := _installed(extra):
            yield Finding("ok", subject, f"{package} {found}")
        else:
            yield Finding("note", subject, "not installed", _pip(extra))


def _installed(extra: str) -> str | None:
    try:
        return version(EXTRAS[extra])
    except PackageNotFoundError:
        return None


def _pip(extra: str) -> str:
    return f"{sys.executable} -m pip install 'prose_kernel[{extra}]'"


# ---------------------------------------------------------------- provider and judge


def _provider(options: SessionOptions, where: Surroundings) -> Iterator[Finding]:
    from prose_kernel.models.providers import vendors
    from prose_kernel.models.providers.provider_choice import cause, choice_of, detect

    try:
        choice = choice_of(options.provider, options)
    except UsageError as problem:
        yield Finding("broken", "provider", str(problem), problem.hint)
        return
    if choice.kind == "none":
        detected = detect(options, where)
        text, fix = "none set: sessions are answered by the person here, if there is one", None
        if detected is not None:
            text = f"none set: {detected.choice.name} where a person is there, because {detected.variable} is set"
            fix = "PROSE_AUTODETECT=0 turns it off"
        else:
            why, provider, unset = cause(options, where)
            package = vendors.install(provider.partition(":")[0])
            if not unset:  # there is a key
                text = f"{text}; {why}"
                fix = f"{sys.executable} -m pip install '{package}'" if package else f"PROSE_PROVIDER={provider}"
        yield Finding("note", "provider", text, fix)
    elif choice.kind == "scripted" and not (options.script and Path(options.script).is_file()):
        yield Finding("broken", "provider", "scripted, but there is no script", "set PROSE_SCRIPT to a YAML file")
    elif (extra := NEEDS.get(choice.kind)) is not None and _installed(extra) is None:
        yield Finding("broken", "provider", f"{options.provider}, but [{extra}] is not installed", _pip(extra))
    else:
        yield _ready(choice, options, where)


def _ready(choice: Choice, options: SessionOptions, where: Surroundings) -> Finding:
    name = str(options.provider)
    if choice.kind != "model":
        return Finding("ok", "provider", name)
    from prose_kernel.models.providers import vendors

    server = vendors.find(choice.name, options)
    model = choice.model or server.model
    if server.key and not where.environment.get(server.key, "").strip():
        return Finding("broken", "provider", f"{name}, but {server.key} is not set", f"set {server.key}")
    if model is None:
        fix = f'[models.{choice.name}] default = "MODEL" in prose.toml, or PROSE_PROVIDER={choice.name}:MODEL'
        return Finding("note", "provider", f"{name}, without a model for sessions that name none", fix)
    key = f", key in {server.key}" if server.key else ""
    return Finding("ok", "provider", f"{name}, model {server.aliases.get(model, model)}{key}")


def _judge(options: SessionOptions) -> Iterator[Finding]:
    from prose_kernel.models.providers.provider_choice import judge_choice

    if options.judge.rules == "only":
        yield Finding("ok", "judge", "only rules")
        return
    try:
        choice = judge_choice(options)
    except UsageError as problem:
        if options.judge.provider is not None:  # otherwise the problem is reported for the provider
            yield Finding("broken", "judge", str(problem), problem.hint)
        return
    first = "" if options.judge.rules == "off" else "rules, then "
    live = options.judge.provider or options.provider
    yield Finding("ok", "judge", f"{first}{live if choice.live else 'the person here'}")


# ---------------------------------------------------------------- servers, agents, recordings


def _server(name: str, server: ModelServer, options: SessionOptions, where: Surroundings) -> Finding:
    from prose_kernel.models.providers import vendors

    subject = f"server {name}"
    try:
        server = vendors.find(name, options)
    except UsageError as problem:
        return Finding("broken", subject, str(problem), problem.hint)
    address = server.base_url or "the vendor's own address"
    if not server.key:
        return Finding("ok", subject, f"{address}, no key")
    if where.environment.get(server.key, "").strip():
        return Finding("ok", subject, f"{address}, key in {server.key}")
    return Finding("note", subject, f"{address}, and {server.key} is not set", f"set {server.key}")


def _agent(name: str, command: tuple[str, ...], *, chosen: bool) -> Finding:
    subject = f"agent {name}"
    found = shutil.which(os.path.expanduser(command[0]))
    if found is not None:
        return Finding("ok", subject, found)
    fix = f"install it, or correct [agents.{name}] command"
    return Finding("broken" if chosen else "note", subject, f"{command[0]} is not on the PATH", fix)


def _mcp(name: str, server: McpServer, where: Surroundings) -> Finding:
    """Return a finding about a tool server's program or address, API key and variables. The server is not started."""
    subject = f"tools {name}"
    if _installed("mcp") is None:
        return Finding("broken", subject, "[mcp] is not installed", _pip("mcp"))
    place = server.url or shutil.which(os.path.expanduser(server.command[0]))
    if place is None:
        fix = f"install it, or correct [mcp.{name}] command"
        return Finding("note", subject, f"{server.command[0]} is not on the PATH", fix)
    named = [value[1:] for value in server.env.values() if value.startswith("$")]
    missing = [variable for variable in (*named, server.key or "") if variable and not where.environment.get(variable)]
    if missing:
        return Finding("note", subject, f"{place}, and {missing[0]} is not set", f"set {missing[0]}")
    return Finding("ok", subject, f"{place}, key in {server.key}" if server.key else place)


def _recordings(cwd: Path) -> Iterator[Finding]:
    from prose_kernel.cassettes.cassette_files import DIRECTORY, SUFFIX, read_file

    directory = cwd / DIRECTORY
    paths = sorted(directory.glob(f"*{SUFFIX}")) if directory.is_dir() else []
    if not paths:
        yield Finding("ok", "recordings", "none here")
        return
    count = 0
    for path in paths:
        try:
            read = read_file(path, f"{DIRECTORY}/{path.name}")
        except OSError as problem:
            yield Finding("broken", "recordings", f"{path.name} cannot be read: {reason_of(problem, '')}")
            continue
        count += sum(entry.record.t != "head" for entry in read.entries)
        for warning in read.warnings:
            yield Finding("note", "recordings", warning, "prose cassette tidy")
    yield Finding("ok", "recordings", f"{count} record{'s' if count != 1 else ''} in {DIRECTORY}/")
