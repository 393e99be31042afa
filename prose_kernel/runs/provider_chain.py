"""The chain of ports that a session passes through, from the statement to the provider.

    session "..."           machine: the statement asks the port `sessions` of its run
      lazy                  runs/lazy_objects.py: the first session of a run loads all of the following
      CountedSessions       models/usage_and_prices.py: budgets; tokens and costs
      RememberingSessions   models/agent_memory.py: the memory of a persistent agent
      RecordedOnlySessions  models/providers/provider_choice.py: the error if neither provider nor person can answer
      RecordedSessions      cassettes/recorded_answers.py: the recorded answer, or else a live one, which it records
      LiveProviders         models/provider_pool.py: makes the chosen model or agent
        ModelSessions       models/providers/model_sessions.py: a conversation with a model and its tools
          ModelServers      models/providers/model_servers.py: the server, its queue, retries and fallbacks
        AcpSessions         models/providers/acp.py: a CLI agent

`SessionServices.sessions` builds this chain. Other providers end it instead of `LiveProviders`: `HumanSessions`,
`Unconfigured`, `ScriptedSessions`, `FunctionSessions`, `DryRunSessions`. Conditions use `SessionServices.judge`.
Nothing is imported, read or started before it is needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec import field as struct_field

from prose_kernel.access.approvals import Approvals, AuditWriter, no_audit
from prose_kernel.cassettes.recorded_answers import RecordedJudge, RecordedPhrases, RecordedRaces, RecordedSessions
from prose_kernel.cassettes.recordings import Cassettes, SharedCassettes
from prose_kernel.errors import ProviderError, UsageError
from prose_kernel.judging import judge_chain as judging
from prose_kernel.models.agent_memory import RememberingSessions, restore_noted
from prose_kernel.models.digest_memory import DigestMemories
from prose_kernel.models.memory_directory import IsAnswered, Memories
from prose_kernel.models.provider_pool import LiveProviders, MoreTools, ProviderContext
from prose_kernel.models.providers import provider_choice, vendors
from prose_kernel.models.providers.provider_choice import Choice, choice_of, judge_choice, judge_model
from prose_kernel.models.usage_and_prices import (
    CountedJudge,
    CountedPhrases,
    CountedSessions,
    LimitedJudge,
    LimitedPhrases,
    UsageTotals,
    consumed,
    has_price,
)
from prose_kernel.runs.lazy_objects import lazy
from prose_kernel.runtime import budgets
from prose_kernel.runtime.asker import SerialAsker, serial
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.ports import (
    CONFIGURED,
    Clock,
    Commands,
    Judge,
    Overrides,
    Phrases,
    Races,
    SessionRequest,
    Sessions,
)
from prose_kernel.runtime.requests import Request
from prose_kernel.runtime.services import Asker, Guard, Terminals
from prose_kernel.runtime.session_options import SessionOptions, Surroundings

if TYPE_CHECKING:
    from pathlib import Path

    from prose_kernel.models.providers.model_servers import SharedConnections
    from prose_kernel.models.providers.scripted import Script
    from prose_kernel.runs.session_description import Description


class Facilities(Struct, frozen=True):
    """The services of a run for its sessions.

    `interrupt` cancels the run; a person's `:quit` calls it. `guard` starts the processes of CLI agents, `terminals`
    their commands. `more_tools` makes the tools of commands, tasks and `Exec`. `is_answered` searches the journals of
    killed runs. `functions` is the directory whose Python functions sessions may use; `note` writes the run's audit
    log. `recordings`, and the `connections` to model servers, may be shared by many runs. `overrides` are ports that
    Python code supplies instead of the chosen ones.
    """

    clock: Clock = struct_field(default_factory=SystemClock)
    interrupt: Callable[[], object] | None = None
    guard: Guard | None = None
    terminals: Terminals | None = None
    more_tools: MoreTools | None = None
    is_answered: IsAnswered = lambda path, key: False
    functions: Path | None = None
    note: AuditWriter = no_audit
    recordings: SharedCassettes | None = None
    connections: SharedConnections | None = None
    overrides: Overrides = CONFIGURED


def connect(
    asker: Asker,
    options: SessionOptions | None = None,
    where: Surroundings | None = None,
    facilities: Facilities | None = None,
    before: SessionServices | None = None,
) -> SessionServices:
    """Make the services for these options.

    `before` are the services that they replace in the same run: recordings stay open, and consumption, permissions and
    memories are taken over. A script's judgements count with every provider. Raises `UsageError` for an unknown
    provider or judge and for an invalid script; then nothing has changed.
    """
    person, given = serial(asker), facilities or Facilities()
    options, where = options or SessionOptions(), where or Surroundings(".")
    own = given.overrides
    choice = Choice("function") if own.sessions is not None else choice_of(options.provider, options)
    judges = Choice("function") if own.judge is not None else judge_choice(options)
    script = _script(choice, options)
    if choice.kind == "replay" and options.cassette.mode in ("off", "record"):
        raise UsageError(
            f"provider replay answers only from recordings, and the cassette mode is {options.cassette.mode}",
            hint="choose another provider first, or the mode replay",
        )
    notes = before.notes if before is not None else PermissionNotes()
    context = _provider_context(person, options, where, given, before, notes)
    live = LiveProviders(context)
    cassettes = _cassettes(context, given.recordings, before)
    usage = before.usage if before is not None else UsageTotals()
    memories = before.memories if before is not None else Memories(given.is_answered, partial(_warn, person))
    detected = provider_choice.detect(options, where)
    services = SessionServices(
        person, context, choice, judges, script, notes, usage, memories, cassettes, live, detected, given.interrupt, own
    )
    notes.cassettes = cassettes if choice.recorded else None
    return services


class PermissionNotes:
    """Records the answers to permission questions in the current recordings, if there are any."""

    def __init__(self) -> None:
        self.cassettes: Cassettes | None = None

    def ask(self, at: str, question: str, answer: str) -> None:
        if self.cassettes is not None:
            self.cassettes.note_ask(at, question, answer)


@dataclass(frozen=True)
class SessionServices:
    """The ports of a machine that concern sessions. Each port is a chain, built from its first link to its last.

    `asker` is the person for all of them: pass the same one to the gates, so that questions take turns. `choice` is the
    provider of sessions, `judges` the judge of conditions; `detected` is the vendor whose API key was found if no
    provider was chosen; `usage` is the consumption of the run. Close the services when the run ends.
    """

    asker: SerialAsker
    context: ProviderContext = field(repr=False)
    choice: Choice
    judges: Choice
    script: Script | None = field(repr=False)
    notes: PermissionNotes = field(repr=False)
    usage: UsageTotals
    memories: Memories = field(repr=False)
    cassettes: Cassettes
    live: LiveProviders = field(repr=False)
    detected: provider_choice.Detected | None
    interrupt: Callable[[], object] | None
    overrides: Overrides = CONFIGURED

    @cached_property
    def sessions(self) -> Sessions:
        """The chain for sessions."""
        context, kind, recorded = self.context, self.choice.kind, self.choice.recorded
        no_provider = kind == "none" and context.options.cassette.mode is None
        links: list[tuple[bool, _Link]] = [
            (True, partial(CountedSessions, usage=self.usage)),
            (
                kind != "dry-run",
                partial(RememberingSessions, where=context.where, clock=context.clock, memories=self.memories),
            ),
            (no_provider, partial(provider_choice.RecordedOnlySessions, asker=self.asker)),
            (
                recorded,
                partial(
                    RecordedSessions,
                    cassettes=self.cassettes,
                    asker=self.asker,
                    approvals=context.approvals,
                    asks_model=self._model_answers,
                ),
            ),
        ]
        port: Sessions = _linked(links, self._provider())
        return port

    @cached_property
    def judge(self) -> Judge:
        """The chain for conditions."""
        rules, criteria = self.context.options.judge.rules, self.context.options.judge.criteria
        if self.choice.kind == "dry-run":
            dry = judging.JudgeChain(rules, None, self.script, dry_run=True, criteria=criteria)
            return CountedJudge(dry, self.usage)
        batch = self.context.options.judge.batch
        replay = self.choice.kind == "replay"
        recorded = self.choice.recorded and self.judges.recorded
        no_judge = recorded and not replay and self.judges.kind == "none" and self.context.options.cassette.mode is None

        def rules_and_script(others: Judge) -> Judge:
            return judging.JudgeChain(rules, scripted=self.script, others=others, criteria=criteria, batch=batch)

        links: list[tuple[bool, _Link]] = [
            (True, partial(CountedJudge, usage=self.usage)),
            (True, rules_and_script),
            (no_judge, partial(judging.RecordedOnlyJudge, person=self.asker, rules=rules, criteria=criteria)),
            (
                recorded,
                partial(
                    RecordedJudge,
                    cassettes=self.cassettes,
                    asker=self.asker,
                    asks_model=lambda: self._live_judge() is not None,
                ),
            ),
        ]
        person, live = (None, None) if replay else (self.asker, self._live_judge)
        port: Judge = _linked(links, judging.ModelOrPersonJudge(person, live, rules=rules, criteria=criteria))
        return port

    @cached_property
    def phrases(self) -> Phrases | None:
        """The chain that phrases questions to the person; None if their texts stay unchanged."""
        judge = self.context.options.judge
        if not judge.phrase or judge.rules == "only" or self.choice.kind == "dry-run":
            return None
        links: list[tuple[bool, _Link]] = [
            (True, partial(CountedPhrases, usage=self.usage)),
            (self.choice.recorded, partial(RecordedPhrases, cassettes=self.cassettes, asker=self.asker)),
        ]
        port: Phrases = _linked(links, LimitedPhrases(self._live_phrases))
        return port

    @cached_property
    def races(self) -> Races | None:
        """The recorded winners of races; None if nothing is recorded."""
        return RecordedRaces(self.cassettes, asker=self.asker) if self.choice.recorded else None

    @cached_property
    def digests(self) -> DigestMemories:
        """The memories of VVM's agents."""
        context, idle = self.context, self.choice.kind == "dry-run"
        return DigestMemories(context.where, context.clock, self.memories, context.options.memory, idle=idle)

    @cached_property
    def commands(self) -> Commands | None:
        """The `Commands` port of a dry run; None if commands really run."""
        if self.choice.kind != "dry-run":
            return None
        from prose_kernel.runs.session_description import DryRunCommands

        return DryRunCommands()

    # ------------------------------------------------------------ the last links

    def _provider(self) -> Sessions | None:
        """Return the provider for sessions without a recorded answer; None if only recordings may answer."""
        match self.choice.kind:
            case "replay":
                return None
            case "dry-run":
                from prose_kernel.runs.session_description import DryRunSessions

                return DryRunSessions(self.describe)
            case "scripted":
                from prose_kernel.models.providers.scripted import ScriptedSessions

                assert self.script is not None
                return ScriptedSessions(self.script, self.context.clock)
            case "human":
                from prose_kernel.models.providers.human import HumanSessions

                return HumanSessions(self.asker, self.interrupt)
            case "function":
                return self.overrides.sessions
            case "none":
                return provider_choice.Unconfigured(
                    self.asker,
                    self.interrupt,
                    self._detected_sessions,
                    options=self.context.options,
                    where=self.context.where,
                )
            case _:
                return lazy(lambda: self.live.sessions(self.choice))

    def _detected_sessions(self) -> Sessions | None:
        choice = self._detected_choice()
        return self.live.sessions(choice) if choice is not None else None

    def _detected_choice(self) -> Choice | None:
        """Return the vendor whose API key is set, after informing the person."""
        return self._announced.choice() if self._announced is not None else None

    @cached_property
    def _announced(self) -> provider_choice.Announced | None:
        return provider_choice.Announced(self.detected, self.asker, self._notice) if self.detected is not None else None

    def _notice(self, detected: provider_choice.Detected) -> str:
        model = vendors.find(detected.choice.name, self.context.options).model
        return detected.notice(model or "the one each session names", self.cassettes.mode(self.asker), self.asker)

    def _model_answers(self) -> bool:
        """Return whether a model or agent, rather than a person, answers sessions that are not recorded."""
        if self.choice.kind == "none":
            return self._detected_choice() is not None
        return self.choice.kind != "human"

    def _live_judge(self) -> Judge | None:
        """Return the function, model or agent that judges now."""
        if self.overrides.judge is not None:
            return self.overrides.judge
        choice: Choice | None = self.judges
        if self.judges.kind == "none":
            choice = self._detected_choice() if self.context.options.judge.provider is None else None
        if choice is None:
            return None
        return LimitedJudge(self.live.judge(choice, judge_model(choice, self.context.options)))

    def _live_phrases(self) -> Phrases | None:
        """Return the chosen judge. A vendor whose key was only found in the environment is not used for this."""
        judges = self.judges
        return self.live.judge(judges, judge_model(judges, self.context.options)) if judges.live else None

    # ------------------------------------------------------------ while they are in use

    def describe(self, request: SessionRequest) -> Description:
        """Describe a session without running it: message, provider, tools, permissions and recordings."""
        from prose_kernel.runs.session_description import describe

        return describe(request, self)

    def again(self, request: Request, notes: Mapping[str, Any], got: bool) -> None:
        """Apply the notes on a replayed answer: consumption, recording and memory.

        `got` is true if the program received the answer, false after a failure.
        """
        self.usage.add_noted(notes.get("usage", ()))
        budgets.count_noted(notes)
        if "record" in notes and self.choice.recorded and self.cassettes.mode(self.asker) != "off":
            self.cassettes.store.use_as_before(request.at, *notes["record"])
        if got and "memory" in notes:
            restore_noted(self.memories, self.context.where.cwd, request, notes["memory"])

    def refuse_unpriced(self, models: Sequence[str | None], *, judges: bool) -> None:
        """Raise `UsageError` if a budget of money lacks the price of a model: of `models`, the names in sessions (None:
        the default), or with `judges` of the judge's. A replay asks no model, so it needs no prices."""
        mode = self.cassettes.mode(self.asker) if self.choice.recorded else "off"
        if mode == "replay" and any(self.cassettes.store.entries()):
            return
        options = self.context.options
        asked = [(self.choice, name, self.choice.model) for name in models]
        judge = judge_choice(options)
        if judges and options.judge.rules != "only":
            asked.append((judge, None, judge_model(judge, options) or judge.model))
        for choice, name, default in asked:
            if choice.kind == "model":
                with contextlib.suppress(ProviderError):  # reported when the session runs
                    for meant in vendors.chain(choice.name, options, name, default):
                        if not has_price(meant.name, meant.model, meant.options.price):
                            message, hint = vendors.unpriced(meant)
                            raise UsageError(message, hint=hint)

    async def close(self) -> None:
        """End the agents' processes and write pending recordings. A second call does nothing."""
        try:
            await self.live.close()
        finally:
            self.cassettes.close()


_Link = Callable[[Any], Any]
"""Wraps a port in another one."""


def _linked(links: Sequence[tuple[bool, _Link]], last: Any) -> Any:
    """Wrap `last` in the links that are used; the first link is the outermost one."""
    for used, link in reversed(links):
        if used:
            last = link(last)
    return last


# ---------------------------------------------------------------- parts of the services


def _script(choice: Choice, options: SessionOptions) -> Script | None:
    if not options.script:
        if choice.kind == "scripted":
            hint = "give a YAML file of replies: --script FILE, PROSE_SCRIPT=FILE, or `%provider scripted FILE`"
            raise UsageError("provider scripted has no script", hint=hint)
        return None
    from prose_kernel.models.providers.scripted import load_script

    return load_script(options.script)


def _provider_context(
    person: SerialAsker,
    options: SessionOptions,
    where: Surroundings,
    given: Facilities,
    before: SessionServices | None,
    notes: PermissionNotes,
) -> ProviderContext:
    from prose_kernel.models.tools.user_tools import ToolHost, UserTools

    earlier = before.context if before is not None else None
    pins = earlier.user_tools.pins if earlier is not None and earlier.user_tools is not None else None
    host = ToolHost(given.guard, given.functions, given.note, partial(_warn, person), pins)
    return ProviderContext(
        options,
        where,
        given.clock,
        # the same approvals for the whole run, because the answer "always" applies to all of it
        earlier.approvals if earlier is not None else Approvals(person, given.clock, notes.ask, audit=given.note),
        given.guard,
        given.terminals,
        given.more_tools,
        UserTools(options, where, host),
        streams=given.recordings is None,
        connections=given.connections,
    )


def _cassettes(context: ProviderContext, shared: SharedCassettes | None, before: SessionServices | None) -> Cassettes:
    """Return the recordings for these options: the open ones if they fit, otherwise new ones that replace them."""
    options, earlier = context.options, before.context if before is not None else None
    same = earlier is not None and (earlier.options.cassette, earlier.options.permissions, earlier.where) == (
        options.cassette,
        options.permissions,
        context.where,
    )
    if before is not None and same:
        return before.cassettes
    made = Cassettes(
        options.cassette,
        context.where,
        context.clock,
        tool_names=context.tool_names,
        permissions=options.permissions,
        consumed=consumed,
    )
    made = shared.shared(made) if shared is not None else made
    if before is not None:
        before.cassettes.close()
    return made


def _warn(person: SerialAsker, text: str) -> None:
    person.show(f"Warning: {text}")
