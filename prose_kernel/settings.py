"""Every setting: its meaning, its environment variable, its default. Read in one place and passed down.

Strongest first: arguments (a magic, a command-line option), the environment, `.prose/.env`, `prose.toml`, the default.
No other module reads the environment for a setting.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_type_hints

from prose_kernel.errors import UsageError
from prose_kernel.runtime.session_options import (
    AgentCommand,
    CassetteMode,
    CassetteOptions,
    JudgeOptions,
    ModelServer,
    Repeats,
    Rule,
    RulesMode,
    SessionOptions,
    Stale,
    Surroundings,
)

GateMode = Literal["auto", "ask", "wait", "deny"]
StateBackend = Literal["filesystem", "in-context"]

FILE_ONLY = (
    "cassette_redact",
    "tasks_environment",
    "exec_refuse_env",
    "exec_allow_env",
    "permissions",
    "providers",
    "agents",
)
WHO_ANSWERS = ("provider", "script", "judge", "judge_model", "judge_rules", "cassette", "cassette_mode")
"""The settings that may change while a run lives: by a magic, for the next cells."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one workspace.

    Each field is set by the environment variable `PROSE_<FIELD IN CAPITALS>`, or by the same name in `.prose/.env`.

    - `shell`: the shell of `exec`; None means `bash`, else `sh`.
    - `state_dir`: the directory that holds `runs/`, relative to where the program was started.
    - `state`: where a run lives: on disk, or `in-context` (in memory, nothing is written).
    - `profile`: `default`, or `strict` for the literal reading of the language.
    - `gates`: who may decide a gate (`auto`, `ask`, `wait`, `deny`).
    - `provider`: who answers sessions: `human`, `scripted`, `dry-run`, `replay`, a model server (`anthropic`,
      `ollama:llama3.3`: the part behind the colon is the model) or a CLI agent (`acp:NAME`); None (or `auto`) means
      the person here, if there is one.
    - `script`: the file of the `scripted` provider (YAML).
    - `judge`: who decides conditions that no rule decides: a model server or a CLI agent, as in `provider`; None means
      the provider of sessions when it is one of these; `off`: no model, the person alone.
    - `judge_model`: the alias or the id of the model that judges, if `judge` names none; None: the provider's own.
    - `judge_rules`: whether rules decide conditions before anyone else (`first`), alone (`only`) or not at all (`off`).
    - `cassette`: the recording that is written: a name below `cassettes/`, or a path; None means the notebook's name.
    - `cassette_mode`: `auto` (a recorded answer is used, a missing one is asked for and recorded), `record` (always
      ask), `replay` (never ask) or `off`; None means `auto` where somebody can answer, else `replay`.
    - `cassette_repeats`: whether the last record of a request answers any number of further ones (`reuse`), or each
      answers once (`strict`).
    - `cassette_redact`: regular expressions for what no recording may hold, on top of the built-in ones.
    - `cassette_private`: whether new recordings are readable by their owner alone.
    - `cassette_realtime`: whether a replay takes as long as the recorded session did.
    - `cassette_stale`: what a replay does where a file that a session read has changed: `warn`, `fail` or `ignore`;
      without it, fail where `CI` is set, else warn.
    - `autodetect`: whether an API key in the environment is used when no provider is chosen; only where a person is
      there to be told.
    - `max_parallel`: how many sessions may be live at once; None means 8 with models, 4 with CLI agents.
    - `tool_rounds`: how many requests to the model one session may take.
    - `tasks_at_once`: how many tasks may be active.
    - `tasks_per_session`: how many tasks of one agent's session may be active.
    - `tasks_seconds`: how long a task may run; None means as long as the run.
    - `tasks_kept`: how many ended tasks a run remembers, with their logs.
    - `tasks_log`: bytes of one task's log: the first quarter of them and the last three quarters are kept.
    - `tasks_environment`: names of variables that agents' commands get although they look like secrets.
    - `exec_enabled`: whether agents whose rules say `execute` get the tool `Exec`, which runs programs for them.
    - `exec_memory`: bytes of address space of one such program; Node and Java need 4 GiB.
    - `exec_home`: the home directory that programs get: the kernel's (`inherit`), or a `private` empty one.
    - `exec_network`: whether a program is refused where the network is denied and that cannot be enforced (`strict`),
      or runs with what can be (`best-effort`).
    - `exec_lists`: the same for rules about files: `strict`, or `permissive`.
    - `exec_bubblewrap`: whether programs run in namespaces of their own, by bubblewrap; refused where it does not work.
    - `exec_from_writable`: whether programs may be run from where the agent may write.
    - `exec_refuse_env`: further names of variables, with `*`, that agents may not set for programs.
    - `exec_allow_env`: names of refused variables that agents may set after all.
    - `exec_audit_required`: whether a program is refused when it cannot be recorded in the run's audit log.
    - `permissions`: what a session may do where its program does not say.
    - `providers`: model servers by name.
    - `agents`: CLI agents by name.
    - `concurrency`: how many branches may wait for commands or sessions at once; None means no cap but the machine's.
    - `display_cap`: bytes of one command's stream that a notebook shows live; the command line shows all of it.
    """

    shell: str | None = None
    state_dir: str = ".prose"
    state: StateBackend = "filesystem"
    profile: Literal["default", "strict"] = "default"
    gates: GateMode = "auto"
    provider: str | None = None
    script: str | None = None
    judge: str | None = None
    judge_model: str | None = None
    judge_rules: RulesMode = "first"
    cassette: str | None = None
    cassette_mode: CassetteMode | None = None
    cassette_repeats: Repeats = "strict"
    cassette_redact: tuple[str, ...] = ()
    cassette_private: bool = False
    cassette_realtime: bool = False
    cassette_stale: Stale | None = None
    autodetect: bool = True
    max_parallel: int | None = None
    tool_rounds: int = 50
    tasks_at_once: int = 32
    tasks_per_session: int = 8
    tasks_seconds: int | None = None
    tasks_kept: int = 500
    tasks_log: int = 16 * 1024 * 1024
    tasks_environment: tuple[str, ...] = ()
    exec_enabled: bool = False
    exec_memory: int = 512 * 1024 * 1024
    exec_home: Literal["inherit", "private"] = "inherit"
    exec_network: Literal["strict", "best-effort"] = "strict"
    exec_lists: Literal["strict", "permissive"] = "strict"
    exec_bubblewrap: bool = False
    exec_from_writable: bool = False
    exec_refuse_env: tuple[str, ...] = ()
    exec_allow_env: tuple[str, ...] = ()
    exec_audit_required: bool = False
    permissions: Mapping[str, Rule] = field(default_factory=dict)
    providers: Mapping[str, ModelServer] = field(default_factory=dict)
    agents: Mapping[str, AgentCommand] = field(default_factory=dict)
    concurrency: int | None = None
    display_cap: int = 8 * 1024 * 1024

    def session_options(self, cwd: Path) -> SessionOptions:
        """What the sessions room is told of them; files are relative to `cwd`."""
        return SessionOptions(
            provider=None if self.provider == "auto" else self.provider,
            script=str(cwd / self.script) if self.script else None,
            judge=JudgeOptions(self.judge_rules, None if self.judge == "auto" else self.judge, self.judge_model),
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
            autodetect=self.autodetect,
            tool_rounds=self.tool_rounds,
        )


def load(
    cwd: Path, environment: Mapping[str, str] | None = None, *, file: Path | None = None, **arguments: object
) -> Settings:
    """The settings in force for a program started in `cwd`; `file` is another `prose.toml` than the one there.

    `arguments` with value None do not count. Raises `UsageError` naming the place and what it accepts.
    """
    environment = os.environ if environment is None else environment
    hints = _hints()
    written = _written(file or cwd / "prose.toml", hints)
    state_dir = arguments.get("state_dir") or environment.get("PROSE_STATE_DIR") or written.get("state_dir") or ".prose"
    dotenv = _dotenv(cwd / str(state_dir) / ".env")
    values: dict[str, object] = dict(written)
    for name, hint in hints.items():
        variable = f"PROSE_{name.upper()}"
        text = environment.get(variable, "") or dotenv.get(variable, "")
        if (argument := arguments.get(name)) is not None:
            values[name] = argument if not isinstance(argument, str) else _converted(argument, hint, name, variable)
        elif text != "" and name not in FILE_ONLY:
            of = variable if environment.get(variable) else f"{variable} in .env"
            values[name] = _converted(text, hint, name, of)
    return Settings(**values)  # type: ignore[arg-type]  # each value has been checked against its hint


def surroundings(cwd: Path, run_directory: Path | None, state_dir: str) -> Surroundings:
    """Where a run happens. Keys may stand in the `.env` of the state directory too; the environment beats it."""
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


@functools.cache
def _hints() -> Mapping[str, object]:
    return get_type_hints(Settings)


def _written(path: Path, hints: Mapping[str, object]) -> Mapping[str, object]:
    if not path.is_file():
        return {}
    from prose_kernel.settings_file import SettingsFile

    return SettingsFile(path).values(hints)


def _dotenv(path: Path) -> Mapping[str, str]:
    if not path.is_file():
        return {}
    from dotenv import dotenv_values  # only where there is such a file: kernel start-up time is a feature

    return {key: value for key, value in dotenv_values(path).items() if value is not None}


def _converted(text: str, hint: object, name: str, place: str) -> object:
    from prose_kernel.settings_file import accepted, convert

    try:
        return convert(text, hint, text=True)
    except ValueError:
        raise UsageError(f"setting {name} ({place}): {accepted(hint)}, not {text!r}") from None
