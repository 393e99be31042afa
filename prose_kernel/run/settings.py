"""Every setting: its meaning, its environment variable, its default. Settings are read here and passed down.

Highest precedence first: arguments (a magic, a command-line option), the environment, `.prose/.env`, `prose.toml`, the
default. No other module reads settings from the environment.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_type_hints

from msgspec import Meta

from prose_kernel.errors import UsageError
from prose_kernel.runtime.session_options import (
    AgentCommand,
    BatchMode,
    CassetteMode,
    CassetteOptions,
    JudgeOptions,
    McpServer,
    MemoryLimits,
    ModelServer,
    PostgresUrls,
    Repeats,
    Rule,
    RulesMode,
    SessionOptions,
    Stale,
    Surroundings,
    Unpriced,
)

if TYPE_CHECKING:
    from prose_kernel.language.budgets import Limits

GateMode = Literal["auto", "ask", "wait", "deny"]
StateBackend = Literal["filesystem", "sqlite", "postgres", "in-context"]
AnswerBackend = Literal["filesystem", "in-context"]
ToolName = Literal["read", "list", "search", "write", "edit", "fetch", "exec_command", "Exec"]
Limit = Annotated[int, "a whole number, or 0 for no limit"]
Address = Annotated[
    str,
    Meta(pattern="^https?://[^\\s\\x00-\\x1f\\x7f]+$", description="an address that begins with https:// or http://"),
]

FILE_ONLY = (
    "cassette_redact",
    "tasks_environment",
    "exec_refuse_env",
    "exec_allow_env",
    "functions_env",
    "remote_environment",
    "programs_private_hosts",
    "tools_default",
    "permissions",
    "providers",
    "agents",
    "mcp",
)
WHO_ANSWERS = ("provider", "script", "judge", "judge_model", "judge_rules", "cassette", "cassette_mode")
"""The settings that a magic may change during a run, for the following cells."""

DECIDES = ("state", "vvm_state", "profile", "vvm_depth", "vvm_input", "exec_pipefail")
"""The settings that decide what a program does and where it keeps things: a run is resumed with those it began with."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one workspace.

    The environment variable `PROSE_<FIELD IN CAPITALS>` sets a field, and so does the same name in `.prose/.env`.

    - `shell`: the shell of `exec`; None means `bash`, or `sh` if there is no `bash`.
    - `state_dir`: the directory that contains `runs/`, relative to the working directory.
    - `state`: where a run is kept: `filesystem`, `sqlite` (a database file in the directory of the run), `postgres` (a
      server; see `OPENPROSE_POSTGRES_URL`), or `in-context` (in memory; nothing is written).
    - `profile`: `default`, or `strict`, which follows the specification literally.
    - `journal`: whether a run keeps a journal, with which it can be resumed after its process was killed (`on`), also
      after a power cut (`durable`: each answer waits for the disk), or not (`off`).
    - `gates`: how gates are decided (`auto`, `ask`, `wait`, `deny`).
    - `gates_resume`: what the approvals of an earlier process count in a run that is resumed: they are asked once more
      (`ask`), or the word of the journal, a file that commands can write, is accepted (`replay`).
    - `provider`: the provider of sessions: `human`, `scripted`, `dry-run`, `replay`, a model server (`anthropic`,
      `ollama:llama3.3`: the part after the colon is the model) or a CLI agent (`acp:NAME`); None (or `auto`) means
      the person at the notebook or terminal, if there is one.
    - `script`: the YAML file of the `scripted` provider.
    - `judge`: the judge of conditions that no rule decides: a model server or a CLI agent, as in `provider`; None means
      the provider of sessions if it is one of these; `off` means no model, only the person.
    - `judge_model`: the alias or id of the judge's model, if `judge` names none; None means the provider's default.
    - `judge_rules`: whether rules decide conditions before the judge (`first`), without it (`only`) or never (`off`).
    - `judge_batch`: which conditions about the same values a model is asked in one request: those that are asked in any
      case (`sure`), also those that may be (`ahead`: an `elif`), or never two (`off`).
    - `judge_phrase`: whether the judge puts the text of an `input` with `**...**` into plain words for the person, with
      buttons for its options; needs a model or an agent as judge.
    - `budget`: what the sessions and judgements of a run may consume: `2 usd, 200k tokens, 30 min, 100 sessions`, or
      some of it; None or `off` means no limit.
    - `unpriced`: whether a budget of money refuses a model without a known price (`refuse`), or does not count what it
      costs (`allow`).
    - `cassette`: the recording to write: a name below `cassettes/`, or a path; None means the notebook's name.
    - `cassette_mode`: `auto` (use recorded answers; get missing ones from the provider and record them), `record`
      (always call the provider), `replay` (never call it) or `off`; None means `auto` if a provider or a person can
      answer, else `replay`.
    - `cassette_repeats`: whether each record answers once (`strict`), or the last record of a request also answers all
      further ones (`reuse`).
    - `cassette_redact`: regular expressions for text to remove from recordings, in addition to the built-in ones.
    - `cassette_private`: whether only their owner can read new recordings.
    - `cassette_realtime`: whether a replay takes as long as the recorded session did.
    - `cassette_stale`: what a replay does if a file that a session read has changed: `warn`, `fail` or `ignore`; None
      means `fail` if `CI` is set, else `warn`.
    - `offline`: whether model servers and CLI agents are never called; a session that would call one fails.
    - `autodetect`: whether an API key in the environment is used if no provider is chosen; only if a person is
      present to see the notice.
    - `max_parallel`: how many sessions may run at once; None means 8 with models, 4 with CLI agents.
    - `tool_rounds`: how many requests to the model one session may make.
    - `tools_default`: the tools that models get in sessions that do not name them, of `read`, `list`, `search`,
      `write`, `edit`, `fetch`, `exec_command` and `Exec`; None means all that the permissions allow, [] none.
    - `function_seconds`: how many seconds one call of a Python function of `prose_tools.py` may take.
    - `functions_env`: names of variables that the process of these functions gets besides common ones (`PATH`, `HOME`,
      `LANG` and the like).
    - `tasks_at_once`: how many tasks may be active.
    - `tasks_per_session`: how many tasks of one agent's session may be active.
    - `tasks_seconds`: how many seconds a task may run; None means as long as the run.
    - `tasks_kept`: how many finished tasks a run keeps, with their logs.
    - `tasks_log`: bytes of one task's log: the first quarter holds the beginning, the rest the end of the output.
    - `tasks_environment`: names of variables that are passed to agents' commands although they look like secrets.
    - `exec_enabled`: whether agents with an `execute:` permission get the tool `Exec`, which runs programs for them.
    - `exec_memory`: bytes of address space of one such program; Node and Java need 4 GiB.
    - `exec_home`: the environment of such programs: HOME=/tmp and a fixed PATH (`tmp`), the kernel's values
      (`inherit`), or those with an empty home directory for each agent (`private`).
    - `exec_network`: whether a program is refused if the network is denied and that cannot be enforced (`strict`),
      or runs with the protection available (`best-effort`).
    - `exec_lists`: the same for file lists: `strict`, or `permissive`.
    - `exec_from_writable`: whether programs may be run from directories that the agent may write.
    - `exec_refuse_env`: further names of variables that agents may not set for programs; `*` is a wildcard.
    - `exec_allow_env`: names of refused variables that agents may set anyway.
    - `exec_audit_required`: whether a program is refused if it cannot be recorded in the run's audit log.
    - `exec_pipefail`: whether `exec` runs its commands with `pipefail`, where the program does not say.
    - `remote`: where commands run: the address of a Dask scheduler (`tls://HOST:PORT`, `tcp://HOST:PORT`), `local` (a
      cluster on this machine, for trying), or `off`; None means on this machine.
    - `remote_environment`: names of variables that commands on other machines get from here; `*` is a wildcard. Those
      of locale and time zone always travel.
    - `programs_registry`: the address that programs named `handle/slug` are fetched from.
    - `programs_size`: how many bytes a program from elsewhere may have.
    - `programs_seconds`: how many seconds fetching one may take, redirects and further attempts included.
    - `programs_most`: how many programs from elsewhere one import may lead to.
    - `programs_private_hosts`: hosts on this machine or in a private network that programs may be fetched from.
    - `permissions`: what a session may do if its program does not say.
    - `providers`: model servers by name.
    - `agents`: CLI agents by name.
    - `mcp`: servers of tools by name, which sessions with `tools:` use.
    - `concurrency`: how many branches may wait for commands or sessions at once; None means no limit.
    - `display_cap`: bytes of one command's output that are displayed; of a longer output the middle is omitted.
      0 means no limit. Values, logs and piped output of the command line are never cut.
    - `display_lines`: the same in lines.
    - `docs_url`: where this documentation is on the web; error codes link there. The address of the site that `make
      docs` makes, or an address with `{page}` in the place of the name of a page.
    - `notify`: how a terminal calls the person when a question waits and the run has been busy for ten seconds: `bell`,
      `desktop` (a notification, where the terminal knows OSC 9), or `off`. JupyterLab has a setting of its own.
    - `telemetry_otel`: whether runs are watched through OpenTelemetry; the `OTEL_` variables say where spans go.
    - `telemetry_log`: the file that gets the same as lines of JSON, relative to the working directory; "": none.
    - `telemetry_content`: whether prompts, answers, commands, questions and messages of errors are in both, too.
    - `telemetry_commands`: whether commands get the context of their span (`TRACEPARENT`) while runs are watched.
    - `vvm_state`: where agents of VVM put their results: `in-context` (they are the values), or `filesystem` (files
      below `.vvm/runs/`, to which the values refer).
    - `vvm_depth`: how many calls of VVM functions may be inside each other.
    - `vvm_rules`: whether the rules that decide conditions of OpenProse decide criteria of VVM too (`?` templates),
      before the judge.
    - `vvm_input`: how many characters the input of an agent call of VVM may have; a longer one is refused, not cut.
    - `vvm_memory_digest`: bytes of the digest in an agent's memory.
    - `vvm_memory_items`: how many facts an answer may add to an agent's memory.
    - `vvm_memory_item`: bytes of one such fact.
    - `vvm_memory_facts`: how many retained facts an agent is told, the newest ones.
    - `vvm_memory_wait`: how many seconds to wait for a memory that another process uses.
    """

    shell: str | None = None
    state_dir: str = ".prose"
    state: StateBackend = "filesystem"
    journal: Literal["on", "durable", "off"] = "on"
    profile: Literal["default", "strict"] = "default"
    gates: GateMode = "auto"
    gates_resume: Literal["ask", "replay"] = "ask"
    provider: str | None = None
    script: str | None = None
    judge: str | None = None
    judge_model: str | None = None
    judge_rules: RulesMode = "first"
    judge_batch: BatchMode = "sure"
    judge_phrase: bool = True
    budget: str | None = None
    unpriced: Unpriced = "refuse"
    cassette: str | None = None
    cassette_mode: CassetteMode | None = None
    cassette_repeats: Repeats = "strict"
    cassette_redact: tuple[str, ...] = ()
    cassette_private: bool = False
    cassette_realtime: bool = False
    cassette_stale: Stale | None = None
    offline: bool = False
    autodetect: bool = True
    max_parallel: int | None = None
    tool_rounds: int = 50
    tools_default: tuple[ToolName, ...] | None = None
    function_seconds: int = 60
    functions_env: tuple[str, ...] = ()
    tasks_at_once: int = 32
    tasks_per_session: int = 8
    tasks_seconds: int | None = None
    tasks_kept: int = 500
    tasks_log: int = 16 * 1024 * 1024
    tasks_environment: tuple[str, ...] = ()
    exec_enabled: bool = False
    exec_memory: int = 512 * 1024 * 1024
    exec_home: Literal["tmp", "inherit", "private"] = "tmp"
    exec_network: Literal["strict", "best-effort"] = "strict"
    exec_lists: Literal["strict", "permissive"] = "strict"
    exec_from_writable: bool = False
    exec_refuse_env: tuple[str, ...] = ()
    exec_allow_env: tuple[str, ...] = ()
    exec_audit_required: bool = False
    exec_pipefail: bool = False
    remote: str | None = None
    remote_environment: tuple[str, ...] = ()
    programs_registry: str = "https://p.prose.md/"
    programs_size: int = 1024 * 1024
    programs_seconds: int = 30
    programs_most: int = 100
    programs_private_hosts: tuple[str, ...] = ()
    permissions: Mapping[str, Rule] = field(default_factory=dict)
    providers: Mapping[str, ModelServer] = field(default_factory=dict)
    agents: Mapping[str, AgentCommand] = field(default_factory=dict)
    mcp: Mapping[str, McpServer] = field(default_factory=dict)
    concurrency: int | None = None
    display_cap: Limit = 100_000
    display_lines: Limit = 1_000
    docs_url: Address | None = None
    notify: Literal["off", "bell", "desktop"] = "off"
    telemetry_otel: bool = False
    telemetry_log: str | None = None
    telemetry_content: bool = False
    telemetry_commands: bool = True
    vvm_state: AnswerBackend = "in-context"
    vvm_depth: int = 100
    vvm_rules: bool = False
    vvm_input: int = 10_000_000
    vvm_memory_digest: int = 16 * 1024
    vvm_memory_items: int = 32
    vvm_memory_item: int = 1024
    vvm_memory_facts: int = 20
    vvm_memory_wait: int = 10

    @property
    def chooses_who_answers(self) -> bool:
        """Whether anything was chosen about who answers sessions and conditions, which may turn out to be wrong."""
        return any(getattr(self, name) != getattr(_DEFAULTS, name) for name in WHO_ANSWERS)

    @property
    def records_by_choice(self) -> bool:
        """Whether a recording was asked for."""
        return self.cassette is not None or self.cassette_mode in ("auto", "record")

    @property
    def on_other_machines(self) -> bool:
        """Whether commands run on other machines; a dry run runs none."""
        return self.remote not in (None, "off") and self.provider != "dry-run"

    @property
    def watched(self) -> bool:
        """Whether somebody watches runs from outside; nobody watches a dry run."""
        return (self.telemetry_otel or bool(self.telemetry_log)) and self.provider != "dry-run"

    def knows_model(self, name: str) -> bool:
        """Whether a model's name in a program is an alias that these settings, or the built-in ones, give a meaning to,
        or names a server (`openai:gpt-5-mini`)."""
        from prose_kernel.models.providers import vendors

        head, colon, rest = name.partition(":")
        if colon and rest and head in (*self.providers, *vendors.BUILT_IN, *vendors.PREFIXES):
            return True
        aliases = [one.aliases for one in self.providers.values()] + [one.aliases for one in self.agents.values()]
        return name in vendors.ALIASES or any(name in known for known in aliases)

    def session_options(self, cwd: Path) -> SessionOptions:
        """Return the options that concern sessions; file names are relative to `cwd`."""
        return SessionOptions(
            provider=None if self.provider == "auto" else self.provider,
            script=str(cwd / self.script) if self.script else None,
            judge=JudgeOptions(
                self.judge_rules,
                None if self.judge == "auto" else self.judge,
                self.judge_model,
                self.vvm_rules,
                self.judge_batch,
                self.judge_phrase,
            ),
            cassette=CassetteOptions(
                self.cassette,
                self.cassette_mode,
                self.cassette_repeats,
                self.cassette_redact,
                self.cassette_private,
                self.cassette_realtime,
                self.cassette_stale,
            ),
            servers=self.providers,
            agents=self.agents,
            permissions=self.permissions,
            max_parallel=self.max_parallel,
            memory=MemoryLimits(
                self.vvm_memory_digest,
                self.vvm_memory_item,
                self.vvm_memory_items,
                self.vvm_memory_facts,
                patience=self.vvm_memory_wait,
            ),
            offline=self.offline,
            autodetect=self.autodetect,
            tool_rounds=self.tool_rounds,
            tools=self.tools_default,
            mcp=self.mcp,
            function_seconds=self.function_seconds,
            function_env=self.functions_env,
            unpriced=self.unpriced,
        )


_DEFAULTS = Settings()


def load(
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    *,
    file: Path | None = None,
    problems: list[UsageError] | None = None,
    **arguments: object,
) -> Settings:
    """Load the settings of a program started in `cwd`; `file` replaces the `prose.toml` there.

    `arguments` with value None are ignored. Raises `UsageError` that names every wrong setting, its place and what it
    accepts; with `problems` these errors are added to it instead, and all other settings apply.
    """
    found: list[UsageError] = []
    environment = os.environ if environment is None else environment
    hints = _hints()
    written = _written(file or cwd / "prose.toml", hints, found)
    state_dir = arguments.get("state_dir") or environment.get("PROSE_STATE_DIR") or written.get("state_dir") or ".prose"
    dotenv = _dotenv(cwd / str(state_dir) / ".env", found)
    values: dict[str, object] = dict(written)
    for name, hint in hints.items():
        variable = f"PROSE_{name.upper()}"
        text = environment.get(variable, "") or dotenv.get(variable, "")
        if (argument := arguments.get(name)) is not None:
            values[name] = argument
            if isinstance(argument, str):
                _convert_into(values, argument, hint, name, variable, found)
        elif text != "" and name not in FILE_ONLY:
            of = variable if environment.get(variable) else f"{variable} in .env"
            _convert_into(values, text, hint, name, of, found)
    try:
        budget_limits(str(values["budget"]) if values.get("budget") is not None else "off")
    except UsageError as problem:
        found.append(problem)
        values["budget"] = None
    if problems is not None:
        problems += found
    elif found:
        raise _all_of(found)
    return Settings(**values)  # type: ignore[arg-type]  # each value has been checked against its hint


def checked(**arguments: object) -> dict[str, object]:
    """Those of these settings that are given, as options of a command give them. Raises `UsageError`."""
    found: list[UsageError] = []
    values: dict[str, object] = {}
    for name, value in arguments.items():
        if value is not None:
            _convert_into(values, str(value), _hints()[name], name, f"--{name.replace('_', '-')}", found)
    if found:
        raise _all_of(found)
    return values


def budget_limits(text: str) -> Limits | None:
    """The limits of a budget as people write it; None for `off`. Raises `UsageError`."""
    if text.strip().casefold() == "off":
        return None
    from prose_kernel.language import budgets

    try:
        return budgets.parse(text)
    except ValueError as problem:
        hint = f"write it like this, or some of it: {budgets.EXAMPLE}; off means no limit"
        raise UsageError(f"budget: {problem}", hint=hint) from None


def surroundings(cwd: Path, run_directory: Path | None, state_dir: str) -> Surroundings:
    """Return the surroundings of a run. The state directory's `.env` may hold API keys; the environment wins."""
    environment = {**_dotenv(cwd / state_dir / ".env"), **os.environ}
    notebook = environment.get("JPY_SESSION_NAME") or None
    return Surroundings(
        str(cwd),
        str(run_directory) if run_directory is not None else None,
        notebook,
        environment,
        attended=environment.get("CI", "").strip().casefold() in ("", "0", "false"),
        state_dir=state_dir,
    )


def postgres_urls(cwd: Path, state_dir: str, environment: Mapping[str, str] | None = None) -> PostgresUrls:
    """Return where PostgreSQL is (openprose.md 7.2): the state directory's `.env` wins over the environment, and
    `OPENPROSE_POSTGRES_URL` over `DATABASE_URL`."""
    environment = os.environ if environment is None else environment
    dotenv = _dotenv(cwd / state_dir / ".env")
    found = (
        (dotenv.get("OPENPROSE_POSTGRES_URL"), f"{state_dir}/.env"),
        (environment.get("OPENPROSE_POSTGRES_URL"), "OPENPROSE_POSTGRES_URL"),
        (environment.get("DATABASE_URL"), "DATABASE_URL"),
    )
    url, place = next(((url, place) for url, place in found if url), (None, ""))
    user = dotenv.get("OPENPROSE_POSTGRES_USER_URL") or environment.get("OPENPROSE_POSTGRES_USER_URL")
    return PostgresUrls(url, user or None, place)


@functools.cache
def _hints() -> Mapping[str, object]:
    return get_type_hints(Settings, include_extras=True)


def _all_of(found: list[UsageError]) -> UsageError:
    """One error for all that is wrong."""
    if len(found) == 1:
        return found[0]
    lines = [f"  {problem}" + (f" ({problem.hint})" if problem.hint else "") for problem in found]
    return UsageError("\n".join([f"{len(found)} settings are wrong:", *lines]))


def _written(path: Path, hints: Mapping[str, object], found: list[UsageError]) -> Mapping[str, object]:
    """The settings of a `prose.toml` that can be used; what cannot goes to `found`."""
    if not os.path.lexists(path):
        return {}
    from prose_kernel.run.settings_file import read

    return read(path, hints, found)


def _dotenv(path: Path, found: list[UsageError] | None = None) -> Mapping[str, str]:
    """The variables of a `.env` file; none of one that cannot be read, which goes to `found`."""
    if not os.path.lexists(path):
        return {}
    import io  # only if the file exists: kernel start-up must be fast

    from dotenv import dotenv_values

    from prose_kernel.access import plain_files
    from prose_kernel.access.created_code import require_agreed
    from prose_kernel.runtime.secret_patterns import learn

    try:
        require_agreed([path])
        text = io.StringIO(plain_files.read_text(path, plain_files.SMALL))
        variables = {key: value for key, value in dotenv_values(stream=text).items() if value is not None}
        learn(variables)
        return variables
    except UsageError as problem:
        if found is not None:
            found.append(problem)
        return {}
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        if found is not None:
            found.append(UsageError(f"{path.name} cannot be read: {(reason or 'unknown').lower()}"))
        return {}


def _convert_into(
    values: dict[str, object], text: str, hint: object, name: str, place: str, found: list[UsageError]
) -> None:
    from prose_kernel.run.settings_file import accepted, convert

    try:
        values[name] = convert(text, hint, text=True)
    except ValueError:
        values.pop(name, None)
        found.append(UsageError(f"setting {name} ({place}): {accepted(hint)}, not {text!r}"))
