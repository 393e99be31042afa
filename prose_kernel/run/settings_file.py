"""Read `prose.toml`, check every key, and return the values for the fields of `Settings`. An error names its line.

::

    provider = "anthropic"                     # any setting with a single value
    [gates]                                    # mode, resume; or gates = "wait"
    [judge]                                    # rules, provider, model, batch, phrase
    [budget]                                   # run: what a run may consume
    [cassette]                                 # name, mode, repeats, redact, private, realtime, stale
    [tools]                                    # default: what sessions of models get
    [tasks]                                    # at_once, per_session, seconds, kept, log, environment
    [exec]                                     # enabled, memory, home, network, lists, environment …
    [remote]                                   # scheduler, environment: commands on other machines
    [programs]                                 # registry, size, seconds, most, private_hosts: programs from elsewhere
    [telemetry]                                # otel, log, content, commands: watching runs from outside
    [vvm]                                      # state, depth, rules
    [permissions]                              # what a session may do by default
    [providers.NAME]                           # a model server
    [models.NAME]                              # what sonnet, opus, haiku and `default` mean there ...
    [models.NAME.ALIAS]                        # ... and how such a model is asked
    [agents.NAME]                              # a CLI agent that speaks ACP

Only `settings.py` uses this module.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Meta

from prose_kernel.access import plain_files
from prose_kernel.access.created_code import require_agreed
from prose_kernel.errors import UsageError
from prose_kernel.runtime.session_options import AgentCommand, McpServer, ModelOptions, ModelServer, Rule

NAME = "prose.toml"
REMOVED = frozenset(("batch", "batch_size", "batch_wait", "batch_poll", "bubblewrap"))  # settings of former versions

# The tables whose keys are settings of their own: table, key, field of `Settings`.
TABLES: Mapping[str, Mapping[str, str]] = {
    "gates": {"mode": "gates", "resume": "gates_resume"},
    "judge": {
        "rules": "judge_rules",
        "provider": "judge",
        "model": "judge_model",
        "batch": "judge_batch",
        "phrase": "judge_phrase",
    },
    "budget": {"run": "budget", "unpriced": "unpriced"},
    "cassette": {
        "name": "cassette",
        "mode": "cassette_mode",
        "repeats": "cassette_repeats",
        "redact": "cassette_redact",
        "private": "cassette_private",
        "realtime": "cassette_realtime",
        "stale": "cassette_stale",
    },
    "tools": {"default": "tools_default"},
    "tasks": {
        "at_once": "tasks_at_once",
        "per_session": "tasks_per_session",
        "seconds": "tasks_seconds",
        "kept": "tasks_kept",
        "log": "tasks_log",
        "environment": "tasks_environment",
    },
    "exec": {
        "enabled": "exec_enabled",
        "memory": "exec_memory",
        "home": "exec_home",
        "network": "exec_network",
        "lists": "exec_lists",
        "from_writable": "exec_from_writable",
        "refuse_env": "exec_refuse_env",
        "allow_env": "exec_allow_env",
        "audit_required": "exec_audit_required",
        "pipefail": "exec_pipefail",
    },
    "functions": {"env": "functions_env"},
    "programs": {
        "registry": "programs_registry",
        "size": "programs_size",
        "seconds": "programs_seconds",
        "most": "programs_most",
        "private_hosts": "programs_private_hosts",
    },
    "telemetry": {
        "otel": "telemetry_otel",
        "log": "telemetry_log",
        "content": "telemetry_content",
        "commands": "telemetry_commands",
    },
    "remote": {"scheduler": "remote", "environment": "remote_environment"},
    "vvm": {
        "state": "vvm_state",
        "depth": "vvm_depth",
        "rules": "vvm_rules",
        "input": "vvm_input",
        "memory_digest": "vvm_memory_digest",
        "memory_items": "vvm_memory_items",
        "memory_item": "vvm_memory_item",
        "memory_facts": "vvm_memory_facts",
        "memory_wait": "vvm_memory_wait",
    },
}
SHORT: Mapping[str, str] = {"gates": "mode"}
"""Tables that may be written as the value of one of their keys: `gates = "wait"`."""

NAMED = ("providers", "models", "agents", "mcp")
KINDS = ("read", "write", "execute", "bash", "network", "tools")
WORDS = ("allow", "deny", "prompt")
AGENT = "acp:"
SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
MAY_BE_EMPTY = ("key",)  # a server without a key

_HEADER = re.compile(r"\s*\[{1,2}([^\[\]]+)\]{1,2}\s*(?:#.*)?$")
_KEY = re.compile(r"\s*([^=#\[\]{}]+?)\s*=")

Key = tuple[str, ...]
Options = TypeVar("Options", ModelServer, ModelOptions, AgentCommand, McpServer)


def read(path: Path, hints: Mapping[str, object], problems: list[UsageError]) -> dict[str, object]:
    """Return the settings of a file by field of `Settings`, whose types are `hints`.

    Each key is checked separately: errors are added to `problems`, with their line; all other keys are returned.
    """
    import tomllib  # only if the file exists: kernel start-up must be fast

    try:
        require_agreed([path])
        text = plain_files.read_text(path, plain_files.SMALL)
        return SettingsFile(text, tomllib.loads(text), problems).values(hints)
    except UsageError as problem:
        problems.append(problem)
    except OSError as problem:
        problems.append(UsageError(f"{NAME} cannot be read: {(problem.strerror or 'unknown').lower()}"))
    except UnicodeDecodeError:
        problems.append(UsageError(f"{NAME} is not UTF-8 text"))
    except tomllib.TOMLDecodeError as problem:
        problems.append(UsageError(f"{NAME} is not TOML: {problem}", hint="docs/settings.md shows every setting"))
    except RecursionError:
        problems.append(UsageError(f"{NAME} is nested too deeply", hint="docs/settings.md shows every setting"))
    return {}


class SettingsFile:
    """The content of a `prose.toml`, checked key by key; errors are added to `problems`."""

    def __init__(self, text: str, data: dict[str, Any], problems: list[UsageError]) -> None:
        self._text = text
        self._data = data
        self._problems = problems

    def values(self, hints: Mapping[str, object]) -> dict[str, object]:
        """Return checked values by field of `Settings`, whose types are `hints`."""
        inside = {field for table in TABLES.values() for field in table.values()}
        single = [name for name in hints if name not in inside and name not in (*NAMED, "permissions")]
        found: dict[str, object] = {}
        self._known(self._data, (), [*single, *TABLES, "permissions", *NAMED])
        for name in single:
            if name in self._data:
                with self._noting():
                    found[name] = self._checked(self._data[name], hints[name], (name,))
        for table, names in TABLES.items():
            if table in SHORT and isinstance(self._data.get(table), str):
                with self._noting():
                    field = names[SHORT[table]]
                    found[field] = self._checked(self._data[table], hints[field], (table,))
                continue
            content = self._table((table,))
            self._known(content, (table,), names)
            for key, value in content.items():
                if key in names:
                    with self._noting():
                        found[names[key]] = self._checked(value, hints[names[key]], (table, key))
        for pattern in found.get("cassette_redact", ()):  # type: ignore[attr-defined]  # checked above
            with self._noting():
                self._expression(("cassette", "redact"), pattern)
        if "permissions" in self._data:
            found["permissions"] = self._permissions()
        servers, agents = self._servers(), self._agents()
        self._add_models(servers, agents)
        named = {"providers": servers, "agents": agents, "mcp": self._mcp()}
        return found | {name: tables for name, tables in named.items() if tables}

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Add a `UsageError` of the block to `problems` and skip the rest of the block."""
        try:
            yield
        except UsageError as problem:
            self._problems.append(problem)

    # ------------------------------------------------------------ tables

    def _permissions(self) -> dict[str, Rule]:
        content = self._table(("permissions",))
        self._known(content, ("permissions",), KINDS)
        rules: dict[str, Rule] = {}
        for kind, value in content.items():
            if kind not in KINDS:
                continue
            patterns = kind != "bash"
            if isinstance(value, str) and value in WORDS:
                rules[kind] = value
            elif patterns and isinstance(value, list) and all(isinstance(part, str) for part in value):
                rules[kind] = tuple(value)
            else:
                some = " or a list of patterns" if patterns else ""
                wanted = f"'allow', 'deny', 'prompt'{some}"
                self._problems.append(self._mistake(("permissions", kind), f"{wanted}, not {value!r}"))
        return rules

    def _servers(self) -> dict[str, ModelServer]:
        found = {}
        for name in self._table(("providers",)):
            with self._noting():
                self._plain_name(("providers", name), name)
                found[name] = self._object(ModelServer, ("providers", name), without=("aliases", "options"))
        return found

    def _agents(self) -> dict[str, AgentCommand]:
        found = {}
        for name in self._table(("agents",)):
            with self._noting():
                self._plain_name(("agents", name), name)
                agent = self._object(AgentCommand, ("agents", name), without=("aliases",))
                if not agent.command or not agent.command[0]:
                    self._refuse(("agents", name, "command"), "the program and its arguments", list(agent.command))
                found[name] = agent
        return found

    def _mcp(self) -> dict[str, McpServer]:
        found = {}
        for name in self._table(("mcp",)):
            with self._noting():
                self._plain_name(("mcp", name), name)
                if "." in name:
                    self._refuse(("mcp", name), "a name without dots", name)
                server = self._object(McpServer, ("mcp", name))
                if bool(server.command and server.command[0]) == (server.url is not None):
                    self._fail(("mcp", name), "it takes either `command` (to start it) or `url` (to reach it)")
                if server.url is not None and not server.url.startswith(("https://", "http://")):
                    self._refuse(("mcp", name, "url"), "an address that begins with https:// or http://", server.url)
                found[name] = server
        return found

    def _add_models(self, servers: dict[str, ModelServer], agents: dict[str, AgentCommand]) -> None:
        """Add `[models.NAME]` to the server of that name, `[models."acp:NAME"]` to the agent."""
        for name in self._table(("models",)):
            with self._noting():
                self._add_model(name, servers, agents)

    def _add_model(self, name: str, servers: dict[str, ModelServer], agents: dict[str, AgentCommand]) -> None:
        options = {
            alias: self._alias(("models", name, alias), meant, tables=not name.startswith(AGENT))
            for alias, meant in self._table(("models", name)).items()
        }
        aliases = {alias: each.model for alias, each in options.items() if each.model is not None}
        if name.startswith(AGENT):
            agent = name.removeprefix(AGENT)
            if agent not in agents:
                self._refuse(("models", name), f"the name of an [agents.{agent}] table of this file", None)
            agents[agent] = replace(agents[agent], aliases=aliases)
            return
        server = servers.get(name, ModelServer())
        default = aliases.pop("default", None)
        if default is not None and server.model is not None:
            self._refuse(("models", name, "default"), f"one default: [providers.{name}] has `model` already", None)
        options = {alias: each for alias, each in options.items() if each != ModelOptions(each.model)}
        servers[name] = replace(server, aliases=aliases, options=options, model=default or server.model)

    def _alias(self, key: Key, meant: object, *, tables: bool) -> ModelOptions:
        """What an alias means: the name of a model, or a table that says how it is asked as well."""
        if isinstance(meant, dict) and tables:
            return self._object(ModelOptions, key)
        if not isinstance(meant, str) or not meant:
            self._refuse(key, "the name of a model" + (", or a table" if tables else ""), meant)
        return ModelOptions(meant)

    def _object(self, kind: type[Options], key: Key, without: Iterable[str] = ()) -> Options:
        """Return the table at `key` as an object of the dataclass `kind`."""
        content, hints = self._table(key), get_type_hints(kind, include_extras=True)
        known = [field.name for field in fields(kind) if field.name not in without]
        self._known(content, key, known)
        for field in fields(kind):
            if field.default is MISSING and field.default_factory is MISSING and field.name not in content:
                self._fail(key, f"`{field.name}` is missing", f"{field.name} takes {accepted(hints[field.name])}")
        values: dict[str, Any] = {
            name: self._checked(value, hints[name], (*key, name)) for name, value in content.items() if name in known
        }
        return kind(**values)

    def _plain_name(self, key: Key, name: str) -> None:
        if not name or ":" in name or name.split() != [name]:
            self._refuse(key, "a name without blanks and colons", name)

    def _expression(self, key: Key, pattern: str) -> None:
        try:
            re.compile(pattern)
        except re.error as problem:
            self._refuse(key, f"regular expressions ({problem})", pattern)

    # ------------------------------------------------------------ checking

    def _table(self, key: Key) -> Mapping[str, Any]:
        found: Any = self._data
        for part in key:
            found = found.get(part, {}) if isinstance(found, dict) else {}
        if isinstance(found, dict):
            return found
        self._problems.append(self._mistake(key, f"a table [{_dotted(key)}], not {found!r}"))
        return {}

    def _known(self, content: Mapping[str, object], key: Key, known: Iterable[str]) -> None:
        names = list(known)
        for name in content:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                hint = f"did you mean `{near[0]}`?" if near else f"one of {', '.join(names)}"
                hint = "it was removed: delete this line" if name in REMOVED else hint
                self._problems.append(self._mistake((*key, name), "there is no such setting", hint))

    def _checked(self, value: object, hint: object, key: Key) -> object:
        if value == "" and key[-1] not in MAY_BE_EMPTY:
            self._refuse(key, accepted(hint), value)
        try:
            return convert(value, hint)
        except ValueError:
            self._refuse(key, accepted(hint), value)

    def _refuse(self, key: Key, wanted: str, value: object) -> NoReturn:
        self._fail(key, wanted if value is None else f"{wanted}, not {value!r}")

    def _fail(self, key: Key, text: str, hint: str | None = None) -> NoReturn:
        raise self._mistake(key, text, hint)

    def _mistake(self, key: Key, text: str, hint: str | None = None) -> UsageError:
        line = line_of(self._text, key)
        return UsageError(f"{NAME}{f' line {line}' if line else ''}: {_dotted(key)}: {text}", hint=hint)


def _dotted(key: Key) -> str:
    return ".".join(part if re.fullmatch(r"[\w-]+", part) else f'"{part}"' for part in key)


# ---------------------------------------------------------------- values and their types


def convert(value: object, hint: object, *, text: bool = False) -> object:
    """Convert `value` to its declared type; `text=True` for environment variables. Raises `ValueError`."""
    import msgspec

    if text and _plain(hint) is bool:
        word = str(value).strip().casefold()
        if word not in SWITCH:
            raise ValueError
        return SWITCH[word]
    try:
        found: object = msgspec.convert(value, hint, strict=not text)
    except msgspec.ValidationError as problem:
        raise ValueError from problem
    if isinstance(found, bool) or not isinstance(found, int | float):
        return found
    if not math.isfinite(found):
        raise ValueError
    note = _note(hint)
    if not isinstance(note, Meta) and (found < 0 or (found == 0 and note is None)):
        raise ValueError
    return found


def accepted(hint: object) -> str:
    """Describe the values that a setting of type `hint` accepts."""
    note, plain = _note(hint), _plain(hint)
    if note is not None:
        return str(note.description if isinstance(note, Meta) else note)
    if get_origin(plain) is Literal:
        return "one of " + ", ".join(repr(word) for word in get_args(plain) if word)
    if get_origin(plain) is tuple and get_origin(get_args(plain)[0]) is Literal:
        return "a list of " + ", ".join(map(repr, get_args(get_args(plain)[0])))
    return {bool: "true or false", int: "a whole number above 0", float: "a number above 0", str: "a text"}.get(
        plain if isinstance(plain, type) else object,
        "a table of texts" if get_origin(plain) is not tuple else "a list of texts",
    )


def _plain(hint: object) -> object:
    """Return the type without its `| None` and without annotations."""
    hint = _some(hint)
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _note(hint: object) -> object:
    """Return what is annotated to a type: a `Meta` that says what is accepted, or a text that does; None without."""
    hint = _some(hint)
    return get_args(hint)[1] if get_origin(hint) is Annotated else None


def _some(hint: object) -> object:
    if get_origin(hint) in (Union, UnionType):
        return next(part for part in get_args(hint) if part is not type(None))
    return hint


# ---------------------------------------------------------------- lines of keys


def line_of(text: str, key: Key) -> int | None:
    """Return the line number of a key, or of the innermost enclosing table that exists; None if neither exists."""
    best: tuple[int, int] | None = None
    table: Key = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = found = _path(f"[{header[1]}]")
        elif assigned := _KEY.match(line):
            found = (*table, *_path(f"{assigned[1]} = 0"))
        else:
            continue
        if found and found == key[: len(found)] and (best is None or len(found) > best[0]):
            best = (len(found), number)
    return best[1] if best else None


def _path(line: str) -> Key:
    import tomllib

    try:
        data: object = tomllib.loads(line)
    except (tomllib.TOMLDecodeError, RecursionError):
        return ()
    path: list[str] = []
    while isinstance(data, dict) and data:
        name, data = next(iter(data.items()))
        path.append(name)
    return tuple(path)
