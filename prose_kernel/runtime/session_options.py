"""The options of sessions, judge and recordings: who answers, where recordings are, what is allowed.

Plain data that these rooms share, so that none imports another. `settings.py` fills it from `prose.toml` and the
environment; nothing here reads either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta, Struct

RulesMode = Literal["first", "only", "off"]
BatchMode = Literal["sure", "ahead", "off"]
CassetteMode = Literal["off", "auto", "record", "replay"]
Repeats = Literal["strict", "reuse"]
Stale = Literal["warn", "fail", "ignore"]
JudgeOutput = Literal["tool", "native", "prompted"]
Effort = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
SAMPLING = ("temperature", "top_p", "seed")
Temperature = Annotated[float, Meta(ge=0, le=2, description="a number from 0 to 2")]
Share = Annotated[float, Meta(gt=0, le=1, description="a number above 0, at most 1")]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1, description="a whole number from 0")]
Rule = str | tuple[str, ...]
"""A permission: a word (`allow`, `deny`, `prompt`) or patterns."""


Unpriced = Literal["refuse", "allow"]
Dollars = Annotated[float, Meta(ge=0, le=1_000_000)]


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    """What a model costs: US dollars for a million tokens in (`input`) and out (`output`)."""

    input: Dollars
    output: Dollars


Prices = Annotated[Price, "a price such as { input = 3.0, output = 15.0 }: US dollars for a million tokens"]


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How the model of an alias is asked: one table `[models.NAME.ALIAS]` of prose.toml.

    - `model`: the server's name of the model; None: what the alias means there without this table.
    - `max_tokens`: the limit of one reply; None: the server's.
    - `temperature`, `top_p`, `seed`: how the next word is chosen; `effort`: how long a model that reasons may think.
    - `cache`: the server keeps what requests begin with, so that the next ones cost less.
    - `fallback`: who is asked, in this order, where the model cannot answer for now: an alias of the same server, a
      server (`ollama`: its default model), or both (`openai:sonnet`).
    - `price`: what it costs, for models that the price list does not know, or where your price is another one.

    None is the vendor's default. An option that the model does not take is an error of the session.
    """

    model: str | None = None
    max_tokens: int | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    seed: Seed | None = None
    effort: Effort | None = None
    cache: bool = False
    fallback: tuple[str, ...] = ()
    price: Prices | None = None

    @property
    def told(self) -> dict[str, object]:
        """What a recording tells of how its model was asked."""
        names = ("max_tokens", *SAMPLING, "effort", "cache")
        found = {name: getattr(self, name) for name in names}
        return {name: value for name, value in found.items() if value is not None and value is not False}


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A server that models are reached through: one table `[providers.NAME]` of prose.toml (sessions.md 2.2, 2.3).

    - `kind`: the wire format, `anthropic` or `openai` (any OpenAI-compatible server); empty: the prefix of a model
      string that pydantic-ai knows (`google`, `mistral`, `bedrock` ...), which is then the table's name.
    - `base_url`: where the server is; None is the vendor's own address.
    - `key`: the environment variable that holds the key; None is the vendor's usual one; empty: the server takes none.
    - `model`: the model of sessions that name no alias.
    - `aliases`: what `sonnet`, `opus` and `haiku` mean here: `[models.NAME]`; `options`: how they are asked, where the
      alias is a table; `default` is how sessions are asked that name none.
    - `judge_output`: how verdicts and typed answers are asked for first; None is `native` where the model knows it,
      then `tool`, then words.
    - `tools`: whether models here can call tools; without, context is passed by value and replies are the answers.
    - `timeout`: seconds that the server may stay silent; `max_tokens` the limit of one reply.
    - `token_timeout`: seconds without a token after which a session without `timeout:` ends; `session_timeout`: seconds
      that all requests of such a session may take.
    """

    kind: Literal["anthropic", "openai", ""] = ""
    base_url: str | None = None
    key: str | None = None
    model: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, ModelOptions] = field(default_factory=dict)
    judge_output: JudgeOutput | None = None
    tools: bool = True
    timeout: float = 300.0
    token_timeout: float = 600.0
    session_timeout: float = 3600.0
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """A CLI agent that speaks the Agent Client Protocol: one table `[agents.NAME]` of prose.toml (sessions.md 5).

    `command` is its argument list, `env` what it gets on top of our environment. `aliases` maps model aliases to the
    agent's own model ids. With `enforcement = "advisory"` a session may run although the agent cannot enforce its read
    and network rules; `strict` refuses it.
    """

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    enforcement: Literal["strict", "advisory"] = "strict"
    timeout: float = 600.0


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server of tools that speaks the Model Context Protocol: one table `[mcp.NAME]` of prose.toml (docs/tools.md).

    It is either started (`command`, its argument list, with `env` on top of our environment; the value `$NAME` is that
    of a variable, which may stand in the state directory's `.env`) or reached at `url`; `key` names the variable of a
    token that is sent there. `tools` are the only ones that are offered (empty: all), `timeout` the seconds of a call.
    """

    command: tuple[str, ...] = ()
    url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    tools: tuple[str, ...] = ()
    timeout: float = 60.0


@dataclass(frozen=True, slots=True)
class CassetteOptions:
    """Recordings (sessions.md 4.2).

    - `name`: the cassette that is written: a name, or a path below the working directory; None: from the notebook.
    - `mode`: None means `auto` where somebody can answer, `replay` where nobody can.
    - `repeats`: `reuse` lets the last record of a key answer any number of further requests.
    - `redact`: regular expressions whose matches are not written, on top of the built-in ones.
    - `private`: new cassette files are readable by their owner alone.
    - `realtime`: recorded latencies are waited for on replay.
    - `stale`: what a replay does where a file that the session read has changed; None: `fail` in CI, else `warn`.
    - `alone`: no other cassette is read.
    - `writes`: whether answers are written down; recorded ones are used all the same.
    """

    name: str | None = None
    mode: CassetteMode | None = None
    repeats: Repeats = "strict"
    redact: tuple[str, ...] = ()
    private: bool = False
    realtime: bool = False
    stale: Stale | None = None
    alone: bool = False
    writes: bool = True


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """Conditions (sessions.md 3.2): `rules` decide first, alone or not at all; `provider` is the live judge (None: the
    provider of sessions, when it is a model or an agent; `off`: none), `model` its alias or model id. With `criteria`
    the rules decide criteria of VVM too. `batch` says which conditions about the same values a model gets in one
    request: those that are certainly asked (`sure`), also those that may be (`ahead`), or none (`off`). With `phrase`
    the live judge puts inputs with a marker into words."""

    rules: RulesMode = "first"
    provider: str | None = None
    model: str | None = None
    criteria: bool = False
    batch: BatchMode = "sure"
    phrase: bool = True


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Memories of digest and ledger (docs/reference/vvm.md 6.6), in bytes: a digest, the items of one `retain` and how
    many there may be, the facts that a call is told and how many. `patience` are the seconds to wait for another
    process."""

    digest: int = 16 * 1024
    item: int = 1024
    items: int = 32
    facts: int = 20
    facts_size: int = 4 * 1024
    patience: float = 10.0


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Everything that decides who answers, and what an answer may do.

    `provider` is a name: `human`, `scripted`, `dry-run`, `replay`, a model server (`anthropic`, `ollama:llama3.3`: the
    part behind the colon is the model) or a CLI agent (`acp:opencode`). `script` is the file of `scripted`.
    `permissions` are the host's rules where a program states none (exec-and-tasks.md 3.12). `max_parallel` caps live
    sessions (None: 8 for models, 4 for agents). `memory` bounds the memories of agents. `autodetect` lets a key in the
    environment be used where a person is there to be told. `tool_rounds` bounds the requests of one session. `offline`:
    no model server and no CLI agent is ever called. `tools` are the names of the tools that sessions of models get
    without naming them (None: all). `mcp` are servers of tools by name; a call of a Python function may take
    `function_seconds`, and its process gets the variables `function_env` although they look like secrets.
    """

    provider: str | None = None
    script: str | None = None
    judge: JudgeOptions = JudgeOptions()
    cassette: CassetteOptions = CassetteOptions()
    servers: Mapping[str, ModelServer] = field(default_factory=dict)
    agents: Mapping[str, AgentCommand] = field(default_factory=dict)
    permissions: Mapping[str, Rule] = field(default_factory=dict)
    max_parallel: int | None = None
    memory: MemoryLimits = MemoryLimits()
    offline: bool = False
    autodetect: bool = True
    tool_rounds: int = 50
    tools: tuple[str, ...] | None = None
    mcp: Mapping[str, McpServer] = field(default_factory=dict)
    function_seconds: float = 60.0
    function_env: tuple[str, ...] = ()
    unpriced: Unpriced = "refuse"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a run happens: what the room needs to know of it, and nothing it could change.

    `cwd` is the workspace (absolute); `run_directory` that of the run, None while it lives in memory; `notebook` the
    notebook's path as the server tells it (`JPY_SESSION_NAME`), None elsewhere; `environment` where keys are looked up.
    `attended` is a hint for defaults alone: False where nobody will ever answer (`CI=true`). `state_dir` is the state
    directory, relative to `cwd`.
    """

    cwd: str
    run_directory: str | None = None
    notebook: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    attended: bool = True
    state_dir: str = ".prose"


@dataclass(frozen=True, slots=True)
class PostgresUrls:
    """Where PostgreSQL is: the URL for runs, that for memory of scope `user` (None: the same), and where the first one
    was found. URLs hold passwords and are never shown."""

    url: str | None = field(default=None, repr=False)
    user_url: str | None = field(default=None, repr=False)
    place: str = ""
