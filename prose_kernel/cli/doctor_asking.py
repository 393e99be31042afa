"""`prose doctor --ask`: ask every model and agent in the settings a minimal question, all in parallel. This costs money
and sends messages to other machines; plain `prose doctor` sends no requests."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from prose_kernel.cli.doctor_sessions import Finding
from prose_kernel.errors import ProseError, ProviderError, UsageError
from prose_kernel.language.text import one_line
from prose_kernel.runtime.ports import JudgeRequest, SessionRequest, Usage, reported

if TYPE_CHECKING:
    from prose_kernel.models.provider_pool import LiveProviders
    from prose_kernel.models.providers.provider_choice import Choice
    from prose_kernel.runs.settings import Settings
    from prose_kernel.runtime.session_options import ModelServer, SessionOptions, Surroundings

QUESTION = SessionRequest("session", "Answer with the one word: ready", "doctor/s0")
CONDITION = JudgeRequest("two is more than one", "doctor/j0")
SHOWN = 60  # the characters of an answer that are shown

Reply = tuple[str, str, Usage | None]
"""The model that answered, its answer, and the consumption."""


Ask = Callable[[], Awaitable[Reply]]


def examine(settings: Settings, cwd: Path, seconds: float) -> Iterator[Finding]:
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
        name: structs.replace(
            server, options={alias: structs.replace(one, fallback=()) for alias, one in server.options.items()}
        )
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
