"""Read `prose.toml`: the tables that `Settings` declares, and tables with user-defined names (`[providers.NAME]` ...).

docs/reference/prose.toml shows every key. Only `settings.py` and evaluations use this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from prose_kernel.errors import UsageError
from prose_kernel.language.structs import replace
from prose_kernel.runs.toml_file import Key, TomlFile, read
from prose_kernel.runtime.session_options import AgentCommand, McpServer, ModelOptions, ModelServer, Permissions

_AGENT = "acp:"
_REMOVED = frozenset(("batch", "batch_size", "batch_wait", "batch_poll", "bubblewrap"))
_NAMED = ("permissions", "providers", "agents", "mcp")
Named = TypeVar("Named", bound=Struct)


def read_settings(path: Path, kind: type[Struct], problems: list[UsageError]) -> dict[str, Any]:
    """Return the valid settings of a file, like `written`; add errors, with their lines, to `problems`."""
    try:
        file = read(path, "docs/reference/settings.md shows every setting", problems=problems, removed=_REMOVED)
        return written(file, kind)
    except UsageError as problem:
        problems.append(problem)
        return {}


def written(file: TomlFile, kind: type[Struct]) -> dict[str, Any]:
    """Return the valid settings by field of `kind`, which is `Settings`; tables are dicts. Errors become problems."""
    found = file.values(kind, without=(*_NAMED, "misspelt"), also=(*_NAMED, "models"))
    for pattern in found.get("cassette", {}).get("redact", ()):
        with file.noting():
            _check_expression(file, pattern)
    with file.noting():
        _check_budget(file, found.get("budget", {}))
    if "permissions" in file.data:
        found["permissions"] = file.values(Permissions, ("permissions",))
    servers = _named(file, "providers", ModelServer, without=("aliases", "options"))
    agents = _named(file, "agents", AgentCommand, _check_agent, without=("aliases",))
    for name in file.table(("models",)):
        with file.noting():
            _add_models(file, name, servers, agents)
    named = {"providers": servers, "agents": agents, "mcp": _named(file, "mcp", McpServer, _check_tools)}
    return found | {name: tables for name, tables in named.items() if tables}


def _named(
    file: TomlFile,
    table: str,
    kind: type[Named],
    check: Callable[[TomlFile, Key, Named], None] = lambda file, key, found: None,
    without: tuple[str, ...] = (),
) -> dict[str, Named]:
    found = {}
    for name in file.table((table,)):
        with file.noting():
            if not name or ":" in name or name.split() != [name]:
                file.refuse((table, name), "a name without blanks and colons", name)
            if table == "mcp" and "." in name:
                file.refuse((table, name), "a name without dots", name)
            one = file.struct(kind, (table, name), without=without)
            check(file, (table, name), one)
            found[name] = one
    return found


def _check_agent(file: TomlFile, key: Key, agent: AgentCommand) -> None:
    if not agent.command or not agent.command[0]:
        file.refuse((*key, "command"), "the program and its arguments", list(agent.command))


def _check_tools(file: TomlFile, key: Key, server: McpServer) -> None:
    if bool(server.command and server.command[0]) == (server.url is not None):
        file.fail(key, "it takes either `command` (to start it) or `url` (to reach it)")


def _check_budget(file: TomlFile, budget: dict[str, Any]) -> None:
    limits = budget.get("run")
    if limits is None:
        return
    from prose_kernel.language.durations_and_budgets import BUDGET_HINT, parse_budget_setting

    try:
        parse_budget_setting(limits)
    except ValueError as problem:
        del budget["run"]
        file.fail(("budget", "run"), str(problem), BUDGET_HINT)


def _check_expression(file: TomlFile, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as problem:
        file.refuse(("cassette", "redact"), f"regular expressions ({problem})", pattern)


# ---------------------------------------------------------------- models


def _add_models(file: TomlFile, name: str, servers: dict[str, ModelServer], agents: dict[str, AgentCommand]) -> None:
    """Add the aliases of `[models.NAME]` to the server NAME, those of `[models."acp:NAME"]` to the agent NAME."""
    agent = name.removeprefix(_AGENT) if name.startswith(_AGENT) else None
    options = {
        alias: _alias(file, ("models", name, alias), meant, tables=agent is None)
        for alias, meant in file.table(("models", name)).items()
    }
    aliases = {alias: each.model for alias, each in options.items() if each.model is not None}
    if agent is not None:
        if agent not in file.table(("agents",)):
            file.fail(("models", name), f"the name of an [agents.{agent}] table of this file")
        if agent in agents:
            agents[agent] = replace(agents[agent], aliases=aliases)
        return
    server = servers.get(name, ModelServer())
    default = aliases.pop("default", None)
    if default is not None and server.model is not None:
        file.fail(("models", name, "default"), f"one default: [providers.{name}] has `model` already")
    options = {alias: each for alias, each in options.items() if each != ModelOptions(each.model)}
    servers[name] = replace(server, aliases=aliases, options=options, model=default or server.model)


def _alias(file: TomlFile, key: Key, meant: object, *, tables: bool) -> ModelOptions:
    """Return the meaning of an alias, which is the name of a model, or a table with options."""
    if isinstance(meant, dict) and tables:
        return file.struct(ModelOptions, key)
    if not isinstance(meant, str) or not meant:
        file.refuse(key, "the name of a model" + (", or a table" if tables else ""), meant)
    return ModelOptions(meant)
