"""Sessions, judge, recordings and the person, made from options in one call and plugged into a machine.

A session passes through the memory of its agent, then the recordings, then a provider. A question to the judge passes
through the rules, the script, the recordings, a model or agent, the person. Nothing is imported, read or started before
it is needed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from prose_kernel.access.policy import Note, PermissionDesk, unnoted
from prose_kernel.cassettes.library import Cassettes, SharedCassettes
from prose_kernel.cassettes.recorded_decisions import RecordedJudge, RecordedPhrases, RecordedRaces
from prose_kernel.cassettes.recorded_sessions import RecordedSessions
from prose_kernel.errors import ProviderError, UsageError
from prose_kernel.judging.chain import Asked, JudgeChain, UnrecordedIsNobody
from prose_kernel.models.digest_memory import DigestMemories
from prose_kernel.models.memory import Memories, RememberingSessions, again
from prose_kernel.models.memory_undo import IsAnswered
from prose_kernel.models.provider_pool import LiveProviders, LiveSessions, MoreTools, ProviderContext
from prose_kernel.models.providers import vendors
from prose_kernel.models.providers.choice import AGENT, Choice, choice_of, judge_choice, judge_model
from prose_kernel.models.providers.unconfigured import Announced, Detected, detect
from prose_kernel.models.usage import (
    CountedJudge,
    CountedPhrases,
    CountedSessions,
    LimitedJudge,
    LimitedPhrases,
    UsageTotals,
)
from prose_kernel.runtime import budgets
from prose_kernel.runtime.asker import PersonUser, SerialAsker, serial
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.journal_codec import Request
from prose_kernel.runtime.ports import Clock, Commands, Judge, Phrases, Races, SessionRequest, Sessions, User
from prose_kernel.runtime.services import Asker, Guard, Terminals
from prose_kernel.runtime.session_options import SessionOptions, Surroundings

if TYPE_CHECKING:
    from pathlib import Path

    from prose_kernel.models.providers.model_servers import SharedWays
    from prose_kernel.models.providers.scripted import Script
    from prose_kernel.models.tools.own.pool import OwnTools
    from prose_kernel.run.session_description import Description


@dataclass(frozen=True, slots=True)
class SessionServices:
    """The ports of a machine that have to do with sessions.

    `asker` is the person that all of them share: pass the same one to the gates, so that questions take turns.
    `commands` is set when commands must not run either (a dry run); None means: run them. `choice` is the provider of
    sessions, `detected` the vendor whose key was found while none was chosen; `usage` is what the run has consumed.
    Close the services when the run ends.
    """

    sessions: Sessions
    judge: Judge
    user: User
    asker: SerialAsker
    cassettes: Cassettes
    usage: UsageTotals
    choice: Choice
    means: ProviderContext = field(repr=False)
    live: LiveProviders = field(repr=False)
    notes: _Notes = field(repr=False)
    memories: Memories = field(repr=False)
    digests: DigestMemories = field(repr=False)
    commands: Commands | None = None
    races: Races | None = None
    phrases: Phrases | None = None
    detected: Detected | None = None

    def describe(self, request: SessionRequest) -> Description:
        """What the session would be sent, to whom, with which tools and permissions, and what is recorded for it."""
        from prose_kernel.run.session_description import describe

        return describe(request, self)

    def again(self, request: Request, notes: Mapping[str, Any], got: bool) -> None:
        """An answer of an earlier process of the run has been replayed: what was noted beside it counts here as well.

        `got` tells whether the program got the answer then, or a failure.
        """
        self.usage.again(notes.get("usage", ()))
        budgets.again(notes)
        if "record" in notes and self._recording:
            self.cassettes.again(request.at, *notes["record"])
        if got and "memory" in notes:
            again(self.memories, self.means.where.cwd, request, notes["memory"])

    def lone_judge(self) -> LoneJudge:
        """The model or agent that judges, without rules, script and person: what `%judge calibrate` asks. Raises
        `UsageError` where there is none."""
        options, where = self.means.options, self.means.where
        choice = judge_choice(options)
        if not choice.live:
            raise UsageError("no model and no agent judges here", hint="%judge SERVER[:MODEL], or PROSE_JUDGE")
        model = judge_model(choice, options)
        usual = vendors.find(choice.name, options).model if choice.kind == "model" else None
        name = ":".join(filter(None, (choice.name, model or choice.model or usual)))
        name = f"{AGENT}{name}" if choice.kind == "agent" else name
        mode = "replay" if self.choice.kind == "replay" else options.cassette.mode
        file = f"cassettes/calibration/{re.sub(r'[^A-Za-z0-9.]+', '-', name).strip('-.') or 'judge'}.jsonl"
        # the key of a question does not say who was asked: each judge has a recording of its own
        kept = replace(options.cassette, name=file, alone=True, mode=mode or ("auto" if where.attended else "replay"))
        cassettes = Cassettes(kept, where, self.means.clock)
        asked = Asked(None, lambda: LimitedJudge(self.live.judge(choice, model)), rules="off")
        judge = CountedJudge(RecordedJudge(asked, cassettes, asker=self.asker), self.usage)
        return LoneJudge(name, judge, cassettes, options.max_parallel or (4 if choice.kind == "agent" else 8))

    def refuse_unpriced(self, models: Sequence[str | None], *, judges: bool) -> None:
        """Under a budget of money: raise `UsageError` where a model that sessions name (None: the default), or the one
        that judges, has no known price."""
        from prose_kernel.models.providers import prices

        options = self.means.options
        asked = [(self.choice, name, self.choice.model) for name in models]
        judge = judge_choice(options)
        if judges and options.judge.rules != "only":
            asked.append((judge, None, judge_model(judge, options) or judge.model))
        for choice, name, default in asked:
            if choice.kind == "model":
                with contextlib.suppress(ProviderError):  # reported where the session is asked
                    for meant in vendors.chain(choice.name, options, name, default):
                        if not prices.is_known(meant.name, meant.model, meant.options.price):
                            message, hint = vendors.unpriced(meant)
                            raise UsageError(message, hint=hint)

    @property
    def _recording(self) -> bool:
        return self.choice.kind not in ("scripted", "dry-run") and self.cassettes.mode(self.asker) != "off"

    async def retire(self) -> None:
        """End the agents' processes. The services that replace these keep the recordings."""
        await self.live.close()

    async def close(self) -> None:
        """End the agents' processes and write what is still to be recorded. A second call does nothing."""
        try:
            await self.live.close()
        finally:
            self.cassettes.close()


@dataclass(frozen=True, slots=True)
class LoneJudge:
    """A judge asked alone: its name with the model, its recording, and how many questions it gets at a time. Close the
    recording when done."""

    name: str
    judge: Judge
    cassettes: Cassettes
    at_once: int


class _Notes:
    """Writes the answers to permission questions into the current recordings, if there are any."""

    def __init__(self) -> None:
        self.cassettes: Cassettes | None = None

    def ask(self, at: str, question: str, answer: str) -> None:
        if self.cassettes is not None:
            self.cassettes.note_ask(at, question, answer)


def connect(
    asker: Asker,
    options: SessionOptions | None = None,
    where: Surroundings | None = None,
    *,
    clock: Clock | None = None,
    interrupt: Callable[[], object] | None = None,
    guard: Guard | None = None,
    terminals: Terminals | None = None,
    more_tools: MoreTools | None = None,
    before: SessionServices | None = None,
    is_answered: IsAnswered | None = None,
    functions: Path | None = None,
    note: Note | None = None,
    recordings: SharedCassettes | None = None,
    ways: SharedWays | None = None,
) -> SessionServices:
    """Make the services for these options.

    A script's judgements count with every provider. `interrupt` cancels the run; a person's `:quit` calls it. `guard`
    starts the processes of CLI agents, `terminals` their commands. `before` are the services that these replace in the
    same run; its recordings stay open. `is_answered` looks into journals of runs that were killed. `recordings` are
    those that many runs use. `functions` is the directory whose Python functions sessions may use;
    `note` writes the run's audit log, for tools of one's own. Raises `UsageError` for an unknown provider or judge and
    for an invalid script; then nothing has changed.
    """
    connecting = _Connecting(asker, options, where, clock, interrupt)
    connecting.shared, connecting.ways = recordings, ways
    if before is None and is_answered is not None:
        connecting.memories.is_answered = is_answered
    return connecting.services(guard, terminals, more_tools, before, functions, note)


class _Connecting:
    """The parts of the services while they are put together."""

    def __init__(
        self,
        asker: Asker,
        options: SessionOptions | None,
        where: Surroundings | None,
        clock: Clock | None,
        interrupt: Callable[[], object] | None,
    ) -> None:
        self.person = serial(asker)
        self.shared: SharedCassettes | None = None
        self.ways: SharedWays | None = None
        self.options = options or SessionOptions()
        self.where = where or Surroundings(".")
        self.clock = clock or SystemClock()
        self.interrupt = interrupt
        self.memories = Memories(warn=lambda text: self.person.show(f"Warning: {text}"))
        self.choice = choice_of(self.options.provider, self.options)
        self.judges = judge_choice(self.options)
        self.script = self._script()
        if self.choice.kind == "replay" and self.options.cassette.mode in ("off", "record"):
            mode = self.options.cassette.mode
            raise UsageError(
                f"provider replay answers from recordings alone, and the cassette mode is {mode}",
                hint="choose another provider first, or the mode replay",
            )
        self.detected = detect(self.options, self.where)

    def services(
        self,
        guard: Guard | None,
        terminals: Terminals | None,
        more_tools: MoreTools | None,
        before: SessionServices | None,
        functions: Path | None,
        note: Note | None,
    ) -> SessionServices:
        notes = before.notes if before is not None else _Notes()
        # the same desk for the whole run: an answer "always" holds for it
        desk = (
            before.means.desk
            if before is not None
            else PermissionDesk(self.person, self.clock, notes.ask, audit=note or unnoted)
        )
        means = ProviderContext(
            self.options,
            self.where,
            self.clock,
            desk,
            guard,
            terminals,
            more_tools,
            self._own_tools(guard, functions, note, before),
            streams=self.shared is None,
            ways=self.ways,
        )
        self.desk = desk
        if before is not None:
            self.memories = before.memories
        self.live = LiveProviders(means)
        self.cassettes = self._cassettes(means, before)
        self.announced = Announced(self.detected, self.person, self._notice) if self.detected is not None else None
        commands: Commands | None = None
        if self.choice.kind == "dry-run":
            from prose_kernel.run.session_description import DryRunCommands

            commands = DryRunCommands()
        usage = before.usage if before is not None else UsageTotals()
        services = SessionServices(
            sessions=CountedSessions(self._sessions(lambda request: services.describe(request)), usage),
            judge=CountedJudge(self._judge(), usage),
            user=PersonUser(self.person, lambda: services.phrases),
            asker=self.person,
            cassettes=self.cassettes,
            usage=usage,
            choice=self.choice,
            means=means,
            live=self.live,
            notes=notes,
            memories=self.memories,
            digests=DigestMemories(
                self.where, self.clock, self.memories, self.options.memory, idle=self.choice.kind == "dry-run"
            ),
            commands=commands,
            races=RecordedRaces(self.cassettes, asker=self.person) if self._recording else None,
            phrases=CountedPhrases(self._phrases(), usage) if self._may_phrase else None,
            detected=self.detected,
        )
        notes.cassettes = self.cassettes if self._recording else None
        return services

    def _own_tools(
        self, guard: Guard | None, functions: Path | None, note: Note | None, before: SessionServices | None
    ) -> OwnTools:
        from prose_kernel.models.tools.own.pool import Around, OwnTools

        earlier = before.means.own_tools if before is not None else None
        pins = earlier.pins if earlier is not None else None
        around = Around(guard, functions, warn=lambda text: self.person.show(f"Warning: {text}"), pins=pins)
        return OwnTools(self.options, self.where, around if note is None else replace(around, note=note))

    # ------------------------------------------------------------ recordings

    @property
    def _recording(self) -> bool:
        return self.choice.kind not in ("scripted", "dry-run")

    def _cassettes(self, means: ProviderContext, before: SessionServices | None) -> Cassettes:
        options = self.options
        if (
            before is not None
            and before.means.options.cassette == options.cassette
            and before.means.options.permissions == options.permissions
            and before.means.where == self.where
        ):
            return before.cassettes
        make = self.shared or Cassettes
        made = make(
            options.cassette,
            self.where,
            self.clock,
            tool_names=means.tool_names,
            permissions=options.permissions,
        )
        if before is not None:
            before.cassettes.close()
        return made

    # ------------------------------------------------------------ sessions

    def _sessions(self, describe: Callable[[SessionRequest], Description]) -> Sessions:
        if self.choice.kind == "dry-run":
            from prose_kernel.run.session_description import DryRunSessions

            return DryRunSessions(describe)
        if self.choice.kind == "scripted":
            return RememberingSessions(self._scripted(), self.where, self.clock, self.memories)
        recorded: Sessions = RecordedSessions(
            self._answering(), self.cassettes, asker=self.person, desk=self.desk, asks_model=self._model_answers
        )
        if self.choice.kind == "nobody" and self.options.cassette.mode is None:
            from prose_kernel.models.providers import unconfigured

            recorded = unconfigured.UnrecordedIsNobody(recorded, self.person)
        return RememberingSessions(recorded, self.where, self.clock, self.memories)

    def _answering(self) -> Sessions | None:
        """Return the provider for what is not recorded; None: none may be asked."""
        match self.choice.kind:
            case "replay":
                return None
            case "human":
                from prose_kernel.models.providers.human import HumanSessions

                return HumanSessions(self.person, self.interrupt)
            case "nobody":
                from prose_kernel.models.providers.unconfigured import Unconfigured

                return Unconfigured(
                    self.person, self.interrupt, self._detected_sessions, options=self.options, where=self.where
                )
            case _:
                return LiveSessions(self.live, self.choice)

    def _model_answers(self) -> bool:
        """Whether a model or agent answers what is not recorded, rather than a person."""
        if self.choice.kind == "nobody":
            return self.announced is not None and self.announced.choice() is not None
        return self.choice.kind != "human"

    def _detected_sessions(self) -> Sessions | None:
        choice = self.announced.choice() if self.announced is not None else None
        return self.live.sessions(choice) if choice is not None else None

    def _notice(self, detected: Detected) -> str:
        model = vendors.find(detected.choice.name, self.options).model
        return detected.notice(model or "the one each session names", self.cassettes.mode(self.person), self.person)

    def _script(self) -> Script | None:
        if not self.options.script:
            if self.choice.kind == "scripted":
                raise UsageError("provider scripted has no script", hint="set PROSE_SCRIPT to a YAML file of replies")
            return None
        from prose_kernel.models.providers.scripted import load_script

        return load_script(self.options.script)

    def _scripted(self) -> Sessions:
        from prose_kernel.models.providers.scripted import ScriptedSessions

        assert self.script is not None
        return ScriptedSessions(self.script, self.clock)

    # ------------------------------------------------------------ the judge

    def _judge(self) -> Judge:
        rules, criteria = self.options.judge.rules, self.options.judge.criteria
        if self.choice.kind == "dry-run":
            return JudgeChain(rules, None, self.script, dry_run=True, criteria=criteria)
        if self.choice.kind == "replay":
            nobody = Asked(rules=rules, criteria=criteria)
            others: Judge = RecordedJudge(nobody, self.cassettes, asker=self.person)
        else:
            others = Asked(self.person, self._live_judge, rules=rules, criteria=criteria)
            if self._recording:
                others = RecordedJudge(others, self.cassettes, asker=self.person)
            if self._recording and self.judges.kind == "nobody" and self.options.cassette.mode is None:
                others = UnrecordedIsNobody(others, self.person, rules=rules, criteria=criteria)
        batch = self.options.judge.batch
        return JudgeChain(rules, scripted=self.script, others=others, criteria=criteria, batch=batch)

    def _live_judge(self) -> Judge | None:
        """Return the model or agent that judges now."""
        choice: Choice | None = self.judges
        if self.judges.kind == "nobody":
            detects = self.options.judge.provider is None and self.announced is not None
            choice = self.announced.choice() if detects and self.announced is not None else None
        if choice is None:
            return None
        return LimitedJudge(self.live.judge(choice, judge_model(choice, self.options)))

    # ------------------------------------------------------------ the words of questions

    @property
    def _may_phrase(self) -> bool:
        judge = self.options.judge
        return judge.phrase and judge.rules != "only" and self.choice.kind != "dry-run"

    def _phrases(self) -> Phrases:
        limited = LimitedPhrases(self._live_phrases)
        return RecordedPhrases(limited, self.cassettes, asker=self.person) if self._recording else limited

    def _live_phrases(self) -> Phrases | None:
        """Return the judge that was chosen: no vendor is used for words only because its key was found."""
        return self.live.judge(self.judges, judge_model(self.judges, self.options)) if self.judges.live else None
