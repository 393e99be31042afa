"""All settings: meaning, place in `prose.toml`, and default. Settings are read here and passed down.

Highest precedence first: arguments (a magic, a command-line option), the environment, `.prose/.env`, `prose.toml`, the
default. No other module reads settings from the environment.

`Settings` has the shape of `prose.toml`: `settings.exec.memory` is `[exec] memory`. Arguments, variables
(`PROSE_EXEC_MEMORY`) and journals use its single name, `exec_memory`; `all_settings` lists these names.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple, get_args, get_origin

from msgspec import Meta, Struct
from msgspec.structs import asdict, fields

from prose_kernel.errors import UsageError, reason_of
from prose_kernel.language.structs import replace
from prose_kernel.runtime.session_options import (
    Address,
    AgentCommand,
    CassetteOptions,
    CassetteSettings,
    ExecSettings,
    JudgeOptions,
    JudgeSettings,
    McpServer,
    MemoryLimits,
    ModelServer,
    PostgresUrls,
    ProgramSettings,
    Rule,
    SessionOptions,
    Surroundings,
    TaskSettings,
    Unpriced,
)

if TYPE_CHECKING:
    from prose_kernel.language.durations_and_budgets import Limits

Limit = Annotated[int, "a whole number, or 0 for no limit"]
ToolName = Literal["read", "list", "search", "write", "edit", "fetch", "exec_command", "Exec"]

ANSWER_SOURCES = ("provider", "script", "judge", "judge_model", "judge_rules", "cassette", "cassette_mode")
"""The settings that a magic may change during a run, for the following cells."""

FIXED_SETTINGS = ("state", "vvm_state", "profile", "vvm_depth", "vvm_input", "exec_pipefail", "contracts")
"""The settings that decide what a program does and where its state is kept. A resumed run uses its original values."""


Pause = Annotated[
    str, Meta(pattern=r"^\d{1,6}(\.\d+)? ?(s|min|h)$", description="a time such as `30 s`, `10 min` or `2 h`")
]
_SECONDS = {"s": 1, "min": 60, "h": 3600}

DATABASES: Final = ("sqlite", "postgres")
"""The kinds of state that are databases."""


class StateSettings(Struct, frozen=True):
    SHORT: ClassVar = "kind"

    kind: Literal["filesystem", "sqlite", "postgres", "in-context"] = "filesystem"
    """[Where a run is kept](../how-to/state.md): `filesystem`, `sqlite`, `postgres`, `in-context` (memory)."""
    wait: Pause = "10 min"
    """Wait for a stopped, locked or full database: `30 s`, `2 h`, `0 s`."""

    @property
    def in_database(self) -> bool:
        return self.kind in DATABASES

    @property
    def patience(self) -> float:
        """The seconds of `wait`."""
        number = self.wait.rstrip("smihn ")
        return float(number) * _SECONDS[self.wait[len(number) :].strip()]


class GateSettings(Struct, frozen=True):
    SHORT: ClassVar = "mode"

    mode: Literal["auto", "ask", "wait", "deny"] = "auto"
    """[Gates](openprose/exec-and-gate.md#510-who-decides): `auto`, `ask`, `wait`, `deny`."""
    resume: Literal["ask", "replay"] = "ask"
    """Approvals of an earlier process: asked once more (`ask`), or accepted (`replay`)."""


class BudgetSettings(Struct, frozen=True):
    run: str | None = None
    """[Limits](../how-to/budgets.md) of a run: `2 usd, 30 min`."""
    unpriced: Unpriced = "refuse"
    """[Models without a price](../how-to/budgets.md#prices): `refuse`, `allow`."""


class RunSettings(Struct, frozen=True):
    keep_files: bool = False
    """[Keep changed files](../how-to/durability.md#go-back-with-files) for going back."""


class ToolSettings(Struct, frozen=True):
    default: tuple[ToolName, ...] | None = None
    """Tools of sessions: `read`, `list`, `search`, `write`, `edit`, `fetch`, `exec_command`, `Exec`; default: all that
    the permissions allow; `[]`: none."""


class FunctionSettings(Struct, frozen=True):
    env: tuple[str, ...] = ()
    """Further variables for functions of `prose_tools.py`."""


class RemoteSettings(Struct, frozen=True):
    scheduler: str | None = None
    """[Dask scheduler](../how-to/many-machines.md): `tls://HOST:PORT`, `tcp://HOST:PORT`, `local` (here), `off`."""
    environment: tuple[str, ...] = ()
    """Variables that its commands get from here; `*` is a wildcard."""
    resources: Mapping[str, float] = {}
    """Resources of this machine for commands with `needs`: `{ GPU = 2 }`."""


class TelemetrySettings(Struct, frozen=True):
    otel: bool = False
    """[Send spans](../how-to/watching.md) through OpenTelemetry."""
    log: str | None = None
    """File for the same as lines of JSON."""
    content: bool = False
    """Include prompts, answers, commands, questions and errors."""
    commands: bool = True
    """Give commands `TRACEPARENT`."""


class VvmSettings(Struct, frozen=True):
    state: Literal["filesystem", "in-context"] = "in-context"
    """Results of agents: `in-context`, or `filesystem` (below `.vvm/runs/`)."""
    depth: int = 100
    """Depth of calls."""
    rules: bool = False
    """Rules decide criteria before the judge."""
    input: int = 10_000_000
    """Characters of the input of an agent call."""
    memory_digest: int = 16 * 1024
    """Bytes of the digest in an agent's memory."""
    memory_items: int = 32
    """Facts that an answer may add to it."""
    memory_item: int = 1024
    """Bytes of one such fact."""
    memory_facts: int = 20
    """Newest facts that an agent gets."""
    memory_wait: int = 10
    """Seconds to wait for a memory in use."""


class Settings(Struct, frozen=True):
    """All settings of one workspace, in the shape of `prose.toml`. Struct-typed fields are its tables."""

    shell: str | None = None
    """[Shell of `exec`](exec-and-tasks.md#23-shell-and-invocation)."""
    state_dir: str = ".prose"
    """Directory of `runs/`."""
    state: StateSettings = StateSettings()
    journal: Literal["on", "durable", "off"] = "on"
    """Journal for resuming a run: `on`, `durable` (also after a power cut), `off`."""
    profile: Literal["default", "strict", "prosescript", "prosescript-strict"] = "default"
    """Language: `default`, `strict` (the original grammar), `prosescript`, `prosescript-strict`."""
    contracts: Literal["rules", "judge", "off"] = "rules"
    """Check promises of contract files by `rules`, also by the `judge`, or not (`off`)."""
    gates: GateSettings = GateSettings()
    provider: str | None = None
    """[Provider of sessions](../how-to/providers.md): `anthropic`, `ollama:llama3.3`, `acp:NAME`, `human` ...; default:
    the person, if present."""
    script: str | None = None
    """YAML file of the provider `scripted`."""
    judge: JudgeSettings = JudgeSettings()
    budget: BudgetSettings = BudgetSettings()
    cassette: CassetteSettings = CassetteSettings()
    offline: bool = False
    """Fail instead of calling a model or agent."""
    autodetect: bool = True
    """Without a provider, [use an API key](sessions.md#33-with-nothing-configured) of the environment."""
    max_parallel: int | None = None
    """Sessions at the same time; default: 8 with models, 4 with CLI agents."""
    run: RunSettings = RunSettings()
    tool_rounds: int = 50
    """Requests of a session to the model."""
    tools: ToolSettings = ToolSettings()
    function_seconds: int = 60
    """Seconds of a call of a function of `prose_tools.py`."""
    functions: FunctionSettings = FunctionSettings()
    tasks: TaskSettings = TaskSettings()
    exec: ExecSettings = ExecSettings()
    remote: RemoteSettings = RemoteSettings()
    programs: ProgramSettings = ProgramSettings()
    permissions: Mapping[str, Rule] = {}
    """Default [permissions](../how-to/permissions.md)."""
    providers: Mapping[str, ModelServer] = {}
    """Model servers by name."""
    agents: Mapping[str, AgentCommand] = {}
    """CLI agents by name."""
    mcp: Mapping[str, McpServer] = {}
    """Tool servers (MCP) by name."""
    concurrency: int | None = None
    """Branches that wait for commands or sessions at the same time; default: no limit."""
    display_cap: Limit = 100_000
    """Displayed bytes of a command's output; 0: no limit."""
    display_lines: Limit = 1_000
    """The same in lines."""
    docs_url: Address | None = None
    """Address of this documentation, for links of codes; perhaps with `{page}`."""
    rerun: Literal["ask", "keep"] = "ask"
    """A cell that runs again: `ask` everything again, or `keep` [unchanged answers](../how-to/edit-and-continue.md)."""
    notify: Literal["off", "bell", "desktop"] = "off"
    """Signal of a terminal for a question after ten busy seconds: `bell`, `desktop` (OSC 9), `off`."""
    telemetry: TelemetrySettings = TelemetrySettings()
    vvm: VvmSettings = VvmSettings()
    misspelt: tuple[str, ...] = ()
    """Not a setting: remarks about variables that have nearly the name of one, and so have no effect."""

    def by_name(self) -> dict[str, Any]:
        """Return all values by the names of `all_settings`."""
        tables = {"": self, **asdict(self)}
        return {name: getattr(tables[one.table], one.key) for name, one in all_settings().items()}

    def changed(self, **values: Any) -> Settings:
        """Return these settings with other values, by the names of `all_settings`: `changed(cassette_mode="off")`."""
        known = all_settings()
        tables: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            if name not in known:
                raise TypeError(f"there is no setting {name}")
            tables.setdefault(known[name].table, {})[known[name].key] = value
        single = tables.pop("", {})
        return replace(self, **single, **{table: replace(getattr(self, table), **own) for table, own in tables.items()})

    @property
    def answer_sources(self) -> dict[str, Any]:
        """The values of the settings in `ANSWER_SOURCES`."""
        return {name: value for name, value in self.by_name().items() if name in ANSWER_SOURCES}

    @property
    def chooses_answer_source(self) -> bool:
        """Whether a setting chooses a provider, judge or recording. Such a choice may be invalid."""
        return self.answer_sources != Settings().answer_sources

    @property
    def records_by_choice(self) -> bool:
        """Whether a setting asks for a recording."""
        return self.cassette.name is not None or self.cassette.mode in ("auto", "record")

    @property
    def on_other_machines(self) -> bool:
        """Whether commands run on other machines; a dry run runs none."""
        return self.remote.scheduler not in (None, "off") and self.provider != "dry-run"

    @property
    def watched(self) -> bool:
        """Whether runs are reported to OpenTelemetry or a log; a dry run is not."""
        return (self.telemetry.otel or bool(self.telemetry.log)) and self.provider != "dry-run"

    def knows_model(self, name: str) -> bool:
        """Return whether a model's name is an alias (of the settings or built in), or has a server (`openai:NAME`)."""
        from prose_kernel.models.providers import vendors

        head, colon, rest = name.partition(":")
        if colon and rest and head in (*self.providers, *vendors.BUILT_IN, *vendors.PREFIXES):
            return True
        aliases = [one.aliases for one in self.providers.values()] + [one.aliases for one in self.agents.values()]
        return name in vendors.ALIASES or any(name in known for known in aliases)

    def session_options(self, cwd: Path) -> SessionOptions:
        """Return the options that concern sessions; file names are relative to `cwd`."""
        judge = replace(self.judge, provider=None if self.judge.provider == "auto" else self.judge.provider)
        vvm = self.vvm
        return SessionOptions(
            provider=None if self.provider == "auto" else self.provider,
            script=str(cwd / self.script) if self.script else None,
            judge=JudgeOptions(**asdict(judge), criteria=vvm.rules),
            cassette=CassetteOptions(**asdict(self.cassette)),
            servers=self.providers,
            agents=self.agents,
            permissions=self.permissions,
            max_parallel=self.max_parallel,
            memory=MemoryLimits(
                vvm.memory_digest, vvm.memory_item, vvm.memory_items, vvm.memory_facts, patience=vvm.memory_wait
            ),
            offline=self.offline,
            autodetect=self.autodetect,
            tool_rounds=self.tool_rounds,
            tools=self.tools.default,
            mcp=self.mcp,
            function_seconds=self.function_seconds,
            function_env=self.functions.env,
            unpriced=self.budget.unpriced,
        )


def original_settings(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in `FIXED_SETTINGS` from those that the journal of a run has recorded."""
    return {name: recorded[name] for name in FIXED_SETTINGS if recorded.get(name) is not None}


def in_ci(environment: Mapping[str, str]) -> bool:
    """Return whether a CI system runs this process: `CI` is set, but not to 0 or false."""
    return environment.get("CI", "").strip().casefold() not in ("", "0", "false")


class Setting(NamedTuple):
    """Place, type and default of a setting. `table` is empty for a key outside of the tables of `prose.toml`."""

    table: str
    key: str
    type: Any
    default: Any

    @property
    def in_file_only(self) -> bool:
        """Whether no environment variable can set it, because it is a list or a table."""
        return any(get_origin(part) in (tuple, Mapping) for part in (self.type, *get_args(self.type)))


_OWN_NAMES = {
    ("state", "kind"): "state",
    ("gates", "mode"): "gates",
    ("judge", "provider"): "judge",
    ("budget", "run"): "budget",
    ("budget", "unpriced"): "unpriced",
    ("cassette", "name"): "cassette",
    ("remote", "scheduler"): "remote",
}


@functools.cache
def all_settings() -> Mapping[str, Setting]:
    """Return all settings by their single names: `exec_memory` is `[exec] memory`."""
    found: dict[str, Setting] = {}
    for one in fields(Settings):
        if one.name == "misspelt":
            continue
        if isinstance(one.type, type) and issubclass(one.type, Struct):
            for key in fields(one.type):
                name = _OWN_NAMES.get((one.name, key.name), f"{one.name}_{key.name}")
                found[name] = Setting(one.name, key.name, key.type, key.default)
        else:
            found[one.name] = Setting("", one.name, one.type, one.default)
    return found


@functools.cache
def _set_by_variables() -> tuple[str, ...]:
    return tuple(name for name, setting in all_settings().items() if not setting.in_file_only)


def by_name(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a settings file by the names of `all_settings`."""
    places = {
        name: (written.get(one.table, {}) if one.table else written, one.key) for name, one in all_settings().items()
    }
    return {name: table[key] for name, (table, key) in places.items() if key in table}


def load(
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    *,
    file: Path | None = None,
    problems: list[UsageError] | None = None,
    **arguments: object,
) -> Settings:
    """Load the settings of a program started in `cwd`; `file` replaces the `prose.toml` there.

    `arguments` with value None are ignored. Raises a `UsageError` that lists every invalid setting, its place and its
    accepted values; with `problems`, errors are added to that list instead, and all other settings apply.
    """
    found: list[UsageError] = []
    environment = os.environ if environment is None else environment
    values = _written(file or cwd / "prose.toml", found)
    state_dir = arguments.get("state_dir") or environment.get("PROSE_STATE_DIR") or values.get("state_dir") or ".prose"
    dotenv = _dotenv(cwd / str(state_dir) / ".env", found)
    for name, setting in all_settings().items():
        variable = f"PROSE_{name.upper()}"
        text = environment.get(variable, "") or dotenv.get(variable, "")
        if (argument := arguments.get(name)) is not None:
            values[name] = argument
            if isinstance(argument, str):
                _convert_into(values, argument, name, "", found)
        elif text != "" and not setting.in_file_only:
            place = variable if environment.get(variable) else f"{variable} in .env"
            _convert_into(values, text, name, f" ({place})", found)
    if (budget := values.get("budget")) is not None:
        try:
            budget_limits(str(budget))
        except UsageError as problem:
            found.append(problem)
            values["budget"] = None
    if problems is not None:
        problems += found
    else:
        _require_none(found)
    misspelt = (*_misspelt(environment, ""), *_misspelt(dotenv, f" in {state_dir}/.env"))
    return Settings(misspelt=misspelt).changed(**values)


_NO_SETTINGS: Final = frozenset(("at", "attempt", "job", "platform", "run"))
"""Variables of this package that aren't settings: those that describe the run to a command, and those of tests."""


def _misspelt(variables: Mapping[str, str], place: str) -> Iterator[str]:
    """Yield remarks about misspelt settings. Other `PROSE_` variables may belong to another program or version."""
    for variable in sorted(name for name in variables if name.startswith("PROSE_")):
        name, known = variable.removeprefix("PROSE_").lower(), _set_by_variables()
        if name in known or name in _NO_SETTINGS or not variables[variable]:
            continue
        from prose_kernel.language.nearest import Nearest

        if (near := Nearest()(name, known)) is not None:
            yield f"{variable}{place} is not a setting; did you mean `PROSE_{near.upper()}`?"


def checked(**arguments: object) -> dict[str, object]:
    """Return the settings that a command's options give, converted to their types. Raises `UsageError`."""
    found: list[UsageError] = []
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        if value is not None:
            _convert_into(values, str(value), name, f"--{name.replace('_', '-')}", found)
    _require_none(found)
    return values


def budget_limits(text: str) -> Limits | None:
    """Return the limits of a written budget; None for `off`. Raises `UsageError`."""
    from prose_kernel.language.durations_and_budgets import BUDGET_HINT, parse_budget_setting

    try:
        return parse_budget_setting(text)
    except ValueError as problem:
        raise UsageError(f"budget: {problem}", hint=BUDGET_HINT) from None


def surroundings(cwd: Path, run_directory: Path | None, state_dir: str) -> Surroundings:
    """Return the surroundings of a run. The state directory's `.env` may hold API keys; the environment wins."""
    environment = {**_dotenv(cwd / state_dir / ".env"), **os.environ}
    notebook = environment.get("JPY_SESSION_NAME") or None
    return Surroundings(
        str(cwd),
        str(run_directory) if run_directory is not None else None,
        notebook,
        environment,
        attended=not in_ci(environment),
        state_dir=state_dir,
    )


def postgres_urls(cwd: Path, state_dir: str, environment: Mapping[str, str] | None = None) -> PostgresUrls:
    """Return the URLs of PostgreSQL (openprose.md 7.2). The state directory's `.env` takes precedence over the
    environment, and `OPENPROSE_POSTGRES_URL` over `DATABASE_URL`."""
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


def _require_none(problems: list[UsageError]) -> None:
    if problems:
        from prose_kernel.runs.toml_file import combined_error

        raise combined_error(problems)


def _written(path: Path, found: list[UsageError]) -> dict[str, Any]:
    """Return the valid settings of a `prose.toml` by name; add errors to `found`."""
    if not os.path.lexists(path):
        return {}
    from prose_kernel.runs.settings_reader import read_settings

    return by_name(read_settings(path, Settings, found))


def _dotenv(path: Path, found: list[UsageError] | None = None) -> Mapping[str, str]:
    """Return the variables of a `.env` file. If it cannot be read, add an error to `found`."""
    if not os.path.lexists(path):
        return {}
    import io  # only if the file exists: kernel start-up must be fast

    from dotenv import dotenv_values

    from prose_kernel.access import plain_files
    from prose_kernel.access.created_code import require_agreed
    from prose_kernel.runtime.redaction import learn

    try:
        require_agreed([path])
        text = io.StringIO(plain_files.read_text(path, plain_files.SMALL))
        variables = {key: value for key, value in dotenv_values(stream=text).items() if value is not None}
        learn(variables)
        return variables
    except (UsageError, OSError, ValueError) as problem:
        if found is not None:
            unread = f"{path.name} cannot be read: {reason_of(problem, 'it is not UTF-8 text')}"
            found.append(problem if isinstance(problem, UsageError) else UsageError(unread))
        return {}


def _convert_into(values: dict[str, Any], text: str, name: str, place: str, found: list[UsageError]) -> None:
    from prose_kernel.runs.toml_file import accepted, as_written, convert

    kind = all_settings()[name].type
    try:
        values[name] = convert(text, kind, text=True)
    except ValueError as problem:
        values.pop(name, None)
        found.append(UsageError(f"setting {name}{place}: {str(problem) or accepted(kind)}, not {as_written(text)}"))
