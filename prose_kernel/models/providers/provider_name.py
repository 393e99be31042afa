"""Parses a provider's name: `human`, `anthropic`, `ollama:llama3.3`, `acp:opencode` (sessions.md 3.1, 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prose_kernel.errors import UsageError
from prose_kernel.language.nearest import Nearest, did_you_mean
from prose_kernel.language.text import clipped
from prose_kernel.models.providers import vendors
from prose_kernel.runtime.session_options import SessionOptions

Kind = Literal["none", "human", "scripted", "dry-run", "replay", "model", "agent", "function"]

KEYLESS: tuple[Kind, ...] = ("human", "scripted", "dry-run", "replay")
AGENT = "acp:"


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen provider. `name` is the server or the agent, `model` the part after the server's colon."""

    kind: Kind
    name: str = ""
    model: str | None = None

    @property
    def live(self) -> bool:
        """Return whether it is a model or an agent; these can also judge."""
        return self.kind in ("model", "agent")

    @property
    def recorded(self) -> bool:
        """Return whether its answers are recorded."""
        return self.kind not in ("scripted", "dry-run", "function")


def choice_of(name: str | None, options: SessionOptions) -> Choice:
    """Return the choice for a name; None means none was chosen. Raises `UsageError` for an unknown name."""
    if not name:
        return Choice("none")
    for kind in KEYLESS:
        if name == kind:
            return Choice(kind)
    if name.startswith(AGENT):
        return _agent(name.removeprefix(AGENT), options)
    server, _, model = name.partition(":")
    if server not in vendors.names(options):
        names = known_names(options)
        near = Nearest()(name, [*names, *vendors.PREFIXES])
        hint = did_you_mean(near) or f"one of {', '.join(names)}"
        raise UsageError(f"there is no provider `{clipped(name, 120)}`", hint=hint)
    vendors.check(server, options)
    return Choice("model", server, model or None)


def judge_choice(options: SessionOptions) -> Choice:
    """Return the judge for questions that the rules do not decide: as configured, else the provider of sessions if it
    can judge."""
    name = options.judge.provider
    if name in ("off", "human"):
        return Choice("none")
    if name is None:
        chosen = choice_of(options.provider, options)
        return chosen if chosen.live else Choice("none")
    chosen = choice_of(name, options)
    if not chosen.live:
        raise UsageError(f"`{name}` cannot judge", hint="a model server, acp:AGENT, or `off`: only the person")
    return chosen


def judge_model(choice: Choice, options: SessionOptions) -> str | None:
    """Return the model set for judging, unless the judge was named together with its model (`SERVER:MODEL`)."""
    named = options.judge.provider is not None and choice.model is not None
    return None if named else options.judge.model


def known_names(options: SessionOptions) -> list[str]:
    """Return the names that can be chosen here, for messages and completion."""
    servers = dict.fromkeys((*vendors.BUILT_IN, *options.servers))
    return [*KEYLESS, *servers, *(f"{AGENT}{name}" for name in options.agents)]


def _agent(name: str, options: SessionOptions) -> Choice:
    if name in options.agents:
        return Choice("agent", name)
    configured = ", ".join(f"{AGENT}{agent}" for agent in options.agents) or "none"
    hint = f'configured here: {configured}; prose.toml: [agents.{name or "NAME"}] command = ["PROGRAM", "ARGUMENT"]'
    raise UsageError(f"there is no CLI agent `{name}`", hint=hint)
