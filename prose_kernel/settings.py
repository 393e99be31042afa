"""Every setting: its meaning, its environment variable, its default. Read in one place and passed down.

Strongest first: arguments (a magic, a command-line option), the environment, `.prose/.env`, the default.
No other module reads the environment for a setting.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, get_args, get_type_hints

from prose_kernel.errors import UsageError

GateMode = Literal["auto", "ask", "wait", "deny"]
StateBackend = Literal["filesystem", "in-context"]
RulesMode = Literal["first", "only", "off"]


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one workspace.

    Each field is set by the environment variable `PROSE_<FIELD IN CAPITALS>`, or by the same name in `.prose/.env`.

    - `shell`: the shell of `exec`; None means `bash`, else `sh`.
    - `state_dir`: the directory that holds `runs/`, relative to where the program was started.
    - `state`: where a run lives: on disk, or `in-context` (in memory, nothing is written).
    - `profile`: `default`, or `strict` for the literal reading of the language.
    - `gates`: who may decide a gate (`auto`, `ask`, `wait`, `deny`).
    - `provider`: who answers sessions: `scripted`, `human`, `dry-run`; None means the person here, if there is one.
    - `script`: the file of the `scripted` provider (YAML).
    - `judge_rules`: whether rules decide conditions before anyone else, alone, or not at all.
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
    judge_rules: RulesMode = "first"
    concurrency: int | None = None
    display_cap: int = 8 * 1024 * 1024


def load(cwd: Path, environment: Mapping[str, str] | None = None, **arguments: object) -> Settings:
    """The settings in force for a program started in `cwd`.

    `arguments` with value None do not count. Raises `UsageError` naming the variable and what it accepts.
    """
    environment = os.environ if environment is None else environment
    state_dir = Path(str(arguments.get("state_dir") or environment.get("PROSE_STATE_DIR") or ".prose"))
    given = {**_dotenv(cwd / state_dir / ".env"), **environment}
    values: dict[str, object] = {}
    for name in (f.name for f in fields(Settings)):
        argument = arguments.get(name)
        if argument is not None:
            values[name] = argument
        elif (text := given.get(f"PROSE_{name.upper()}", "")) != "":
            values[name] = text
    return _convert(values)


def _dotenv(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    from dotenv import dotenv_values  # only where there is such a file: kernel start-up time is a feature

    return {key: value for key, value in dotenv_values(path).items() if value is not None}


def _convert(values: dict[str, object]) -> Settings:
    if not values:
        return Settings()
    import msgspec

    try:
        settings = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as problem:
        name = str(problem).rpartition("$.")[2].rstrip("`") or "settings"
        given = values.get(name)
        raise UsageError(f"setting {name} (PROSE_{name.upper()}): {_accepted(name)}, not {given!r}") from None
    for name in ("concurrency", "display_cap"):
        if (number := getattr(settings, name)) is not None and number < 1:
            raise UsageError(f"setting {name} (PROSE_{name.upper()}): a whole number above 0, not {number}")
    return settings


def _accepted(name: str) -> str:
    """What a setting accepts, in words."""
    hint = get_type_hints(Settings)[name]
    words = [repr(word) for part in (hint, *get_args(hint)) for word in get_args(part) if isinstance(word, str)]
    words += [repr(word) for word in get_args(hint) if isinstance(word, str) and repr(word) not in words]
    return "one of " + ", ".join(words) if words else "a whole number"
