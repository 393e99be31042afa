"""The options of sessions, judge, recordings, tasks, `Exec` and programs from elsewhere.

Plain data that the rooms share. `runs/settings.py` fills it from `prose.toml` and the environment; nothing here reads
them. The structs also declare tables of `prose.toml`: each field is a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec import field as struct_field
from msgspec.structs import asdict

from prose_kernel.language.structs import replace

RulesMode = Literal["first", "only", "off"]
BatchMode = Literal["sure", "ahead", "off"]
CassetteMode = Literal["off", "auto", "record", "replay"]
Repeats = Literal["strict", "reuse"]
JudgeOutput = Literal["tool", "native", "prompted"]
Unpriced = Literal["refuse", "allow"]
SAMPLING = ("temperature", "top_p", "seed")
Rule = str | tuple[str, ...]
"""A permission: a word (`allow`, `deny`, `prompt`) or patterns."""
Address = Annotated[
    str,
    Meta(pattern="^https?://[^\\s\\x00-\\x1f\\x7f]+$", description="an address that begins with https:// or http://"),
]
Dollars = Annotated[float, Meta(ge=0, le=1_000_000)]


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    """The price of a model in US dollars for a million tokens in (`input`) and out (`output`)."""

    input: Dollars
    output: Dollars


Prices = Annotated[Price, "a price such as { input = 3.0, output = 15.0 }: US dollars for a million tokens"]


class _Layer(Struct, frozen=True):
    def stated(self) -> dict[str, Any]:
        """Return the values that differ from the defaults."""
        blank = type(self)()
        return {name: value for name, value in asdict(self).items() if value != getattr(blank, name)}


class ModelOptions(_Layer, frozen=True):
    """The request options of an alias: one table `[models.NAME.ALIAS]`.

    None is the vendor's default. An option that the model does not take is an error of the session.
    """

    model: str | None = None
    """The server's name of the model; None: the meaning of the alias without this table."""
    max_tokens: int | None = None
    """The limit of one reply; None: the server's."""
    temperature: Annotated[float, Meta(ge=0, le=2, description="a number from 0 to 2")] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1, description="a number above 0, at most 1")] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1, description="a whole number from 0")] | None = None
    effort: Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    """How long a model that reasons may think."""
    cache: bool = False
    """Whether the server keeps the beginning of requests, so that the next ones cost less."""
    fallback: tuple[str, ...] = ()
    """The replacements, in this order, while the model cannot answer: an alias of the same server, a server (`ollama`:
    its default model), or both (`openai:sonnet`)."""
    price: Prices | None = None
    """For models that the price list does not know, or with another price."""

    @property
    def recorded_options(self) -> dict[str, object]:
        names = ("max_tokens", *SAMPLING, "effort", "cache")
        return {name: value for name, value in self.stated().items() if name in names}

    def over(self, under: ModelOptions) -> ModelOptions:
        """Return `under` with the options that are stated here, except the model and its fallbacks."""
        stated = {name: value for name, value in self.stated().items() if name not in ("model", "fallback")}
        return replace(under, **stated)


class ModelServer(_Layer, frozen=True):
    """A model server: one table `[providers.NAME]` (sessions.md 2.3, 2.7)."""

    kind: Literal["anthropic", "openai", ""] = ""
    """The wire format, `openai` for any compatible server; empty: the table's name is a prefix that pydantic-ai knows
    (`google`, `mistral`, `bedrock` ...)."""
    base_url: str | None = None
    """None: the vendor's address."""
    key: str | None = None
    """The environment variable of the key; None: the vendor's usual one; empty: the server takes no key."""
    model: str | None = None
    """The model of sessions that name no alias."""
    aliases: Mapping[str, str] = {}
    """The meaning of `sonnet`, `opus`, `haiku` here: `[models.NAME]`."""
    options: Mapping[str, ModelOptions] = {}
    """The options of aliases that are tables; `default`: of sessions that name no alias."""
    judge_output: JudgeOutput | None = None
    """The first form of verdicts and typed answers; None: `native` if the model knows it, then `tool`, then words."""
    tools: bool = True
    """Whether models here can call tools; otherwise context is passed by value and replies are the answers."""
    timeout: float = 300.0
    """Seconds of silence after which a request fails."""
    token_timeout: float = 600.0
    """Seconds without a token after which a session without `timeout:` ends."""
    session_timeout: float = 3600.0
    """Seconds that all requests of such a session may take."""
    max_tokens: int | None = None
    """The limit of one reply."""

    def over(self, under: ModelServer) -> ModelServer:
        """Return `under` with the values that are stated here; aliases one by one."""
        merged = {"aliases": {**under.aliases, **self.aliases}, "options": {**under.options, **self.options}}
        return replace(under, **{**self.stated(), **merged})


class AgentCommand(Struct, frozen=True):
    """A CLI agent that speaks the Agent Client Protocol: one table `[agents.NAME]` (sessions.md 5)."""

    command: tuple[str, ...]
    """The program and its arguments."""
    env: Mapping[str, str] = {}
    """Variables in addition to our environment."""
    aliases: Mapping[str, str] = {}
    """The agent's model ids by alias."""
    enforcement: Literal["strict", "advisory"] = "strict"
    """`advisory`: a session may run although the agent cannot enforce its read and network rules."""
    timeout: float = 600.0


class McpServer(Struct, frozen=True):
    """A server of tools that speaks the Model Context Protocol: one table `[mcp.NAME]` (docs/how-to/tools.md).

    Either it is started (`command`) or reached (`url`).
    """

    command: tuple[str, ...] = ()
    """The program and its arguments."""
    url: Address | None = None
    env: Mapping[str, str] = {}
    """Variables in addition to our environment; `$NAME` is the value of a variable, also of the directory's `.env`."""
    key: str | None = None
    """The variable of a token that is sent to `url`."""
    tools: tuple[str, ...] = ()
    """The only tools that are offered; empty: all."""
    timeout: float = 60.0
    """Seconds of one call."""


class Permissions(Struct, frozen=True):
    """The kinds of rules in `[permissions]`. The settings keep those that are set, as a mapping."""

    read: PatternRule = "allow"
    write: PatternRule = "allow"
    execute: PatternRule = "allow"
    bash: Annotated[Literal["allow", "deny", "prompt"], "'allow', 'deny', 'prompt'"] = "allow"
    network: PatternRule = "allow"
    tools: PatternRule = "allow"


PatternRule = Annotated[
    Literal["allow", "deny", "prompt"] | tuple[str, ...], "'allow', 'deny', 'prompt' or a list of patterns"
]


class CassetteSettings(Struct, frozen=True):
    """Recordings: the table `[cassette]` (sessions.md 4.2)."""

    name: str | None = None
    """Recording to write, below `cassettes/`, or a path; default: the notebook's name, else `session`."""
    mode: CassetteMode | None = None
    """[Mode](sessions.md#42-recording-and-replay): `auto`, `record`, `replay`, `off`; default: `auto` if a provider
    or a person can answer, else `replay`."""
    repeats: Repeats = "strict"
    """Each record answers once (`strict`), or the last one repeatedly (`reuse`)."""
    redact: tuple[str, ...] = ()
    """Regular expressions of further text to remove."""
    private: bool = False
    """Only you can read new recordings."""
    realtime: bool = False
    """Replay at the recorded speed."""
    stale: Literal["warn", "fail", "ignore"] | None = None
    """[Stale records](sessions.md#42-recording-and-replay): `warn`, `fail`, `ignore`."""


class CassetteOptions(CassetteSettings, frozen=True):
    """The recordings of one run."""

    alone: bool = False
    """Whether no other cassette is read."""
    writes: bool = True
    """Whether answers are recorded; recorded ones are used in any case."""


class JudgeSettings(Struct, frozen=True):
    """Conditions: the table `[judge]` (sessions.md 3.2)."""

    provider: str | None = None
    """[Judge](../how-to/judge.md): a model server or CLI agent, or `off` (only you)."""
    model: str | None = None
    """Its alias or model id."""
    rules: RulesMode = "first"
    """[Rules](judge-rules.md): before the judge (`first`), without it (`only`), never (`off`)."""
    batch: BatchMode = "sure"
    """[Conditions in one request](sessions.md#32-the-judge): `sure`, `ahead`, or one (`off`)."""
    phrase: bool = True
    """Ask an `input` with `**...**` in plain words, with buttons."""


class JudgeOptions(JudgeSettings, frozen=True):
    """The judge of one run."""

    criteria: bool = False
    """Whether the rules decide criteria of VVM too."""


class TaskSettings(Struct, frozen=True):
    """Tasks: the table `[tasks]` (exec-and-tasks.md 4.10)."""

    at_once: int = 32
    """Active tasks of a run."""
    per_session: int = 8
    """Active tasks of a session."""
    seconds: int | None = None
    """Seconds that a task may run; default: as long as the run."""
    kept: int = 500
    """Finished tasks that a run keeps."""
    log: int = 16 * 1024 * 1024
    """Bytes of a task's log."""
    environment: tuple[str, ...] = ()
    """Variables for agents' commands although they look like secrets."""


class ExecSettings(Struct, frozen=True):
    """Commands, and the programs of agents: the table `[exec]` (exec-and-tasks.md 3)."""

    enabled: bool = False
    """Offer the tool `Exec` under `execute:` rules."""
    memory: int = 512 * 1024 * 1024
    """Address space of a program, in bytes."""
    home: Literal["tmp", "inherit", "private"] = "tmp"
    """[Environment of programs](exec-and-tasks.md#35-environment): `tmp`, `inherit`, `private`."""
    network: Literal["strict", "best-effort"] = "strict"
    """If `network: deny` cannot be enforced: refuse (`strict`), or warn (`best-effort`)."""
    lists: Literal["strict", "permissive"] = "strict"
    """The same for file lists: `strict`, `permissive`."""
    from_writable: bool = False
    """Run programs from directories that the agent may write."""
    refuse_env: tuple[str, ...] = ()
    """Further variables that agents may not set; `*` is a wildcard."""
    allow_env: tuple[str, ...] = ()
    """Refused variables that agents may set."""
    audit_required: bool = False
    """Refuse calls that cannot be logged."""
    pipefail: bool = False
    """Default of `pipefail` of `exec`."""


class ProgramSettings(Struct, frozen=True):
    """Programs from elsewhere: the table `[programs]` (openprose.md 6.1)."""

    registry: Address = "https://p.prose.md/"
    """Server of programs named `handle/slug`."""
    size: int = 1024 * 1024
    """Bytes of a fetched program."""
    seconds: int = 30
    """Seconds to fetch one."""
    most: int = 100
    """Programs that one import may fetch."""
    private_hosts: tuple[str, ...] = ()
    """Private hosts that programs may be fetched from."""


class MemoryLimits(Struct, frozen=True):
    """Limits of memories with digest and ledger (docs/reference/vvm.md 6.6), sizes in bytes: one `retain` has at most
    `items` of size `item`; a call gets at most `facts`, of `facts_size` together. `patience` is the longest wait for
    another process, in seconds."""

    digest: int = 16 * 1024
    item: int = 1024
    items: int = 32
    facts: int = 20
    facts_size: int = 4 * 1024
    patience: float = 10.0


class SessionOptions(Struct, frozen=True):
    """The providers of sessions and the limits of their answers; the fields are settings, explained there.

    `script` is absolute. `permissions` apply if a program states none (exec-and-tasks.md 3.12). `tools` are the names
    of the tools of sessions that name none (None: all); `function_env` are variables for the process of Python
    functions although they look like secrets.
    """

    provider: str | None = None
    script: str | None = None
    judge: JudgeOptions = struct_field(default_factory=JudgeOptions)
    cassette: CassetteOptions = struct_field(default_factory=CassetteOptions)
    servers: Mapping[str, ModelServer] = struct_field(default_factory=dict)
    agents: Mapping[str, AgentCommand] = struct_field(default_factory=dict)
    permissions: Mapping[str, Rule] = struct_field(default_factory=dict)
    max_parallel: int | None = None
    memory: MemoryLimits = MemoryLimits()
    offline: bool = False
    autodetect: bool = True
    tool_rounds: int = 50
    tools: tuple[str, ...] | None = None
    mcp: Mapping[str, McpServer] = struct_field(default_factory=dict)
    function_seconds: float = 60.0
    function_env: tuple[str, ...] = ()
    unpriced: Unpriced = "refuse"


class Surroundings(Struct, frozen=True):
    """The place of a run.

    `cwd` is the workspace (absolute); `run_directory` the directory of the run, None if it is only in memory;
    `notebook` the notebook's path from the server (`JPY_SESSION_NAME`), or None; `environment` has the keys of
    providers. `attended` is a hint for defaults: False for a non-interactive run (`CI=true`). `state_dir` is the state
    directory, relative to `cwd`.
    """

    cwd: str
    run_directory: str | None = None
    notebook: str | None = None
    environment: Mapping[str, str] = struct_field(default_factory=dict)
    attended: bool = True
    state_dir: str = ".prose"


@dataclass(frozen=True, slots=True)
class PostgresUrls:
    """The URL of PostgreSQL for runs, the URL for memory of scope `user` (None: the same), and the `place` in which the
    first one was found. URLs contain passwords and are never shown."""

    url: str | None = field(default=None, repr=False)
    user_url: str | None = field(default=None, repr=False)
    place: str = ""
