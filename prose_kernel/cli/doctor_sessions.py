"""Findings of `prose doctor` about sessions: extras, providers, judges, API keys, agents and recordings.

With `--ask`, every model and agent in the settings is asked a minimal question, all in parallel. This costs money and
sends messages to other machines; plain `prose doctor` sends no requests.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from prose_kernel.errors import ProseError, ProviderError, UsageError, reason_of
from prose_kernel.language.structs import replace
from prose_kernel.language.text import one_line
from prose_kernel.runtime.ports import JudgeRequest, SessionRequest, Usage, reported

if TYPE_CHECKING:
    from prose_kernel.models.provider_pool import LiveProviders
    from prose_kernel.models.providers.provider_choice import Choice
    from prose_kernel.runs.settings import Settings
    from prose_kernel.runtime.session_options import McpServer, ModelServer, SessionOptions, Surroundings


EXTRAS = {"llm": "pydantic-ai-slim", "acp": "agent-client-protocol", "local": "xllamacpp", "mcp": "mcp"}
NEEDS = {"model": "llm", "agent": "acp"}


class Finding(Struct, frozen=True):
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


# ---------------------------------------------------------------- --ask

QUESTION = SessionRequest("session", "Answer with the one word: ready", "doctor/s0")
CONDITION = JudgeRequest("two is more than one", "doctor/j0")
SHOWN = 60  # the characters of an answer that are shown

Reply = tuple[str, str, Usage | None]
"""The model that answered, its answer, and the consumption."""

Ask = Callable[[], Awaitable[Reply]]


def ask_all(settings: Settings, cwd: Path, seconds: float) -> Iterator[Finding]:
    """Ask all models and agents of the settings, each for at most `seconds`, and yield a finding for each."""
    from prose_kernel.runs.settings import surroundings

    options = settings.session_options(cwd)
    if options.offline:
        yield Finding("broken", "ask", "the settings say offline", "PROSE_OFFLINE=0 lets this command ask")
        return
    where = surroundings(cwd, None, settings.state_dir)
    try:
        found = asyncio.run(_all(options, where, seconds))
    except UsageError as problem:
        found = [Finding("broken", "ask", str(problem), problem.hint)]
    yield from found or [Finding("note", "ask", "the settings name no model and no agent", "docs/how-to/providers.md")]


def _no_fallbacks(options: SessionOptions) -> SessionOptions:
    """Return the options without fallbacks, so that each model has to answer itself."""
    servers = {
        name: replace(server, options={alias: replace(one, fallback=()) for alias, one in server.options.items()})
        for name, server in options.servers.items()
    }
    return replace(options, servers=servers)


async def _all(options: SessionOptions, where: Surroundings, seconds: float) -> list[Finding]:
    from prose_kernel.access.approvals import Approvals
    from prose_kernel.models.provider_pool import LiveProviders, ProviderContext
    from prose_kernel.processes.engine import Engine
    from prose_kernel.processes.long_lived_processes import Helpers
    from prose_kernel.runtime.asker import Unattended
    from prose_kernel.runtime.clock import SystemClock

    engine, clock = Engine(), SystemClock()
    context = ProviderContext(
        _no_fallbacks(options), where, clock, Approvals(Unattended(), clock), guard=Helpers(engine)
    )
    live = LiveProviders(context)
    try:
        targets = list(_targets(options, where, live))
        for _, choice, _ in targets:
            with suppress(ProseError):  # the error occurs again when the provider is asked
                await live.prepare(choice)
        return await asyncio.gather(*(_asked(f"ask {name}", ask, seconds) for name, _, ask in targets))
    finally:
        try:
            await live.close()
        finally:
            await asyncio.to_thread(engine.close)


def _targets(options: SessionOptions, where: Surroundings, live: LiveProviders) -> Iterator[tuple[str, Choice, Ask]]:
    """Yield name, choice and question function for each model of the chosen provider, its fallbacks and every server
    with a table, for the judge, and for the agents. Unless chosen, those without API key or command are left out."""
    from prose_kernel.models.providers import vendors
    from prose_kernel.models.providers.provider_choice import Choice, choice_of, detect, judge_choice, judge_model

    chosen, judge = choice_of(options.provider, options), judge_choice(options)
    detected = detect(options, where)
    if chosen.kind == "none" and detected is not None:
        chosen = detected.choice
    if chosen.model is not None:
        yield f"{chosen.name}:{chosen.model}", chosen, _session(live, chosen)
    for name in _servers(options, chosen):
        try:
            vendors.check(name, options)
        except UsageError as problem:
            yield name, Choice("model", name), _failing(problem)
            continue
        server = vendors.find(name, options)
        if name != chosen.name and server.key and not where.environment.get(server.key, "").strip():
            continue
        for aliases in _aliases(name, server).values():
            choice = Choice("model", name, aliases[0])
            yield f"{name} {', '.join(aliases)}", choice, _session(live, choice)
    if judge.live and options.judge.rules != "only":
        model = judge_model(judge, options)
        yield "judge", replace(judge, model=model or judge.model), _judgement(live, judge, model)
    for name, agent in options.agents.items():
        choice = Choice("agent", name)
        if choice == chosen or shutil.which(os.path.expanduser(agent.command[0])) is not None:
            yield f"acp:{name}", choice, _session(live, choice)


def _servers(options: SessionOptions, chosen: Choice) -> Iterable[str]:
    from prose_kernel.models.providers import vendors

    named = [chosen.name] if chosen.kind == "model" else []
    for name, server in options.servers.items():
        named.append(name)
        for alias, one in server.options.items():
            if one.fallback:
                with suppress(ProseError):  # reported for the server
                    named += [meant.name for meant in vendors.chain(name, options, alias)]
    return dict.fromkeys(named)


def _aliases(name: str, server: ModelServer) -> dict[str, list[str]]:
    """Return the models of a server with their aliases. An unknown alias counts as a model, which will fail."""
    from prose_kernel.models.providers import vendors

    meant: dict[str, list[str]] = {}
    for alias in (*([vendors.DEFAULT] if server.model else []), *server.aliases):
        try:
            model = vendors.model_id(name, server, alias)
        except ProviderError:
            model = alias
        meant.setdefault(model, []).append(alias)
    return meant


def _failing(problem: ProseError) -> Ask:
    async def ask() -> Reply:
        raise problem

    return ask


def _session(live: LiveProviders, choice: Choice) -> Ask:
    async def ask() -> Reply:
        result = await live.sessions(choice).run(QUESTION, lambda progress: None)
        return str(result.details.get("model", "")), result.text or "", result.usage

    return ask


def _judgement(live: LiveProviders, choice: Choice, model: str | None) -> Ask:
    async def ask() -> Reply:
        verdict = await live.judge(choice, model).decide(CONDITION)
        word = {True: "yes", False: "no", None: "uncertain"}[verdict.answer]
        text = f"{word}, {CONDITION.question}"
        return str(verdict.details.get("model", "")), text, reported(verdict.details.get("usage"))

    return ask


async def _asked(subject: str, ask: Ask, seconds: float) -> Finding:
    began = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            model, text, usage = await ask()
    except TimeoutError:
        return Finding("broken", subject, f"no answer within {seconds:g} s", "is it there? `--seconds` waits longer")
    except ProseError as problem:
        return Finding("broken", subject, str(problem), getattr(problem, "hint", None))
    details = [f'"{one_line(text, SHOWN)}"', f"{time.monotonic() - began:.1f} s", *_consumed(usage)]
    return Finding("ok", subject, f"{model + ': ' if model else ''}{', '.join(details)}")


def _consumed(usage: Usage | None) -> Iterator[str]:
    if usage is None or not usage.counted or not (usage.tokens_in or usage.tokens_out):
        yield "tokens unknown"
        return
    yield f"{usage.tokens_in:,} + {usage.tokens_out:,} tokens"
    yield "price not known" if usage.cost is None else f"{usage.cost:.6f} usd"
