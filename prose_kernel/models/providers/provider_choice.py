"""The provider of a run's sessions (sessions.md 3.1, 3.3): the chosen one, by its name (`human`, `anthropic`,
`ollama:llama3.3`, `acp:opencode`). If none is chosen: a vendor whose key is set, the person, or a clear error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from prose_kernel.errors import CassetteMiss, NoProvider, StaleRecording, UsageError
from prose_kernel.language.nearest import Nearest, did_you_mean
from prose_kernel.language.text import clipped
from prose_kernel.models.providers import FIX, no_provider, vendors
from prose_kernel.runtime.asker import serial
from prose_kernel.runtime.ports import SessionProgress, SessionRequest, SessionResult, Sessions
from prose_kernel.runtime.services import Asker
from prose_kernel.runtime.session_options import SessionOptions, Surroundings

Kind = Literal["none", "human", "scripted", "dry-run", "replay", "model", "agent", "function"]

KEYLESS: tuple[Kind, ...] = ("human", "scripted", "dry-run", "replay")
AGENT = "acp:"


class Choice(Struct, frozen=True):
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


# ---------------------------------------------------------------- no provider is chosen


def choosing(provider: str, asker: Asker) -> str:
    """Return the command that chooses a provider, as typed in the front end in use."""
    magic = serial(asker).magic
    return f"`{magic}provider {provider}`" if magic else f"`prose run --provider {provider} FILE`"


def notice(asker: Asker, options: SessionOptions, where: Surroundings) -> str:
    """Return the text that explains why the person answers, and how to choose a model."""
    why, provider, variable = cause(options, where)
    needs = [f"{variable} must be set"] if variable else []
    if package := vendors.install(provider.partition(":")[0]):
        needs.append(f"first `{'%' if serial(asker).magic else ''}pip install '{package}'`")
    more = f" ({'; '.join(needs)})" if needs else ""
    return f"{why}, so you answer this program's sessions yourself.\nTo use a model: {choosing(provider, asker)}{more}."


def cause(options: SessionOptions, where: Surroundings) -> tuple[str, str, str]:
    """Return what is missing, the provider to choose, and the variable of its key unless that is set."""
    for vendor in VENDORS:
        server = vendors.find(vendor, options)
        if key := vendors.key_of(vendor, server, where.environment):
            if not server.model:
                return f"{key} is set, but {vendor} has no default model", f"{vendor}:MODEL", ""
            if not options.autodetect:
                return f"{key} is set, but autodetect is off", vendor, ""
            return f"{key} is set, but the packages for models are not installed", vendor, ""
    return "No model is configured", VENDORS[0], vendors.find(VENDORS[0], options).key or ""


_NO_PERSON = "no model is configured, and no person can answer this session"

Progress = Callable[[SessionProgress], None]


class Unconfigured:
    """The `Sessions` port without a chosen provider.

    `detected` returns the sessions of a vendor whose key is in the environment, after showing the person a notice; None
    if there is none. Otherwise the person answers, after a notice shown once. `interrupt` ends the run on `:quit`.
    """

    def __init__(
        self,
        asker: Asker,
        interrupt: Callable[[], object] | None = None,
        detected: Callable[[], Sessions | None] = lambda: None,
        *,
        options: SessionOptions | None = None,
        where: Surroundings | None = None,
    ) -> None:
        self._options = options or SessionOptions()
        self._where = where or Surroundings(".")
        self._asker = serial(asker)
        self._interrupt = interrupt
        self._detected = detected
        self._noticed = False

    async def run(self, request: SessionRequest, on_progress: Progress) -> SessionResult:
        """Run a session. Raises `NoProvider` if no person is available; this is checked for each request, and may
        change from cell to cell."""
        if not self._asker.available:
            raise no_provider(_NO_PERSON)
        vendor = self._detected()
        if vendor is not None:
            return await vendor.run(request, on_progress)
        from prose_kernel.models.providers.human import HumanSessions

        async with self._asker.turn():
            if not self._noticed:
                self._noticed = True
                self._asker.show(notice(self._asker, self._options, self._where))
            return await HumanSessions(self._asker, self._interrupt).run(request, on_progress)


class RecordedOnlySessions:
    """A `Sessions` port that wraps recorded sessions if no provider is chosen. Without a person, a session that is not
    recorded raises `NoProvider`; its hint names the missing recording."""

    def __init__(self, recorded: Sessions, asker: Asker) -> None:
        self._recorded = recorded
        self._asker = asker

    async def run(self, request: SessionRequest, on_progress: Progress) -> SessionResult:
        try:
            return await self._recorded.run(request, on_progress)
        except CassetteMiss as miss:
            if self._asker.available or isinstance(miss, StaleRecording):
                raise
            raise NoProvider(_NO_PERSON, hint=f"{FIX} ({miss})") from None


# ---------------------------------------------------------------- a key in the environment

_OTHERS = tuple(name for name in vendors.PREFIXES if name not in vendors.SHARED)
VENDORS = ("anthropic", *vendors.MODELS, "openrouter", *_OTHERS)
"""The vendors whose keys are searched, in this order. A vendor without a default model or without its packages is
skipped."""


class Detected(Struct, frozen=True):
    """A vendor whose key is set; never holds the key itself."""

    variable: str
    choice: Choice

    def notice(self, model: str, mode: str, asker: Asker) -> str:
        """Return the notice that is shown before the first use."""
        recorded = {
            "auto": "answers are recorded, and recorded ones are used (cassette mode auto)",
            "record": "every answer is recorded again (cassette mode record)",
            "off": "nothing is recorded (cassette mode off)",
        }.get(mode, f"cassette mode {mode}")
        return (
            f"{self.variable} is set and no provider is chosen, so {self.choice.name} answers sessions.\n"
            f"Model: {model}; {recorded}. Sessions send data to this provider and may cost money.\n"
            f"To choose it for good: PROSE_PROVIDER={self.choice.name}; PROSE_AUTODETECT=0 turns this off.\n"
            f"To answer yourself: {choosing('human', asker)}."
        )


def detect(options: SessionOptions, where: Surroundings) -> Detected | None:
    """Return the vendor that would be used: its key is set, its packages are installed, and autodetect is on."""
    if options.provider is not None or not options.autodetect or not where.attended:
        return None
    for vendor in VENDORS:
        server = vendors.find(vendor, options)
        key = vendors.key_of(vendor, server, where.environment)
        if key is not None and server.model and vendors.install(vendor) is None:
            return Detected(key, Choice("model", vendor))
    return None


class Announced:
    """A detected vendor, used only if a person is available, and after one notice in the run."""

    def __init__(self, detected: Detected, asker: Asker, notice: Callable[[Detected], str]) -> None:
        self._detected = detected
        self._asker = asker
        self._notice = notice
        self._shown = False

    def choice(self) -> Choice | None:
        """Return the vendor, after showing the notice; None if no person is available."""
        if not self._asker.available:
            return None
        if not self._shown:
            self._asker.show(self._notice(self._detected))
            self._shown = True
        return self._detected.choice
