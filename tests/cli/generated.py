"""Generates pages of docs/: `make generated` writes them, and a test compares them."""

from __future__ import annotations

import ast
import copy
import functools
import itertools
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import click
from msgspec import NODEFAULT

from prose_kernel.cli.main import cli
from prose_kernel.language.openprose import keywords
from prose_kernel.language.openprose.tables import GRAMMAR_FILE
from prose_kernel.runs.settings import Setting, Settings, all_settings

DOCS = Path(__file__).parents[2] / "docs"
PACKAGE = DOCS.parent / "prose_kernel"
NOTE = "<!-- Written by `make generated`; change the source of it instead. -->"


def page_path(name: str) -> Path:
    """Return the path of a page by its name, which has a directory if it is ambiguous (`reference/sessions`)."""
    found = [path for path in DOCS.rglob(f"{name.rpartition('/')[2]}.md") if path.match(f"{name}.md")]
    assert len(found) == 1, f"{name}.md: {len(found)} pages"
    return found[0]


def command_line() -> str:
    """Return docs/reference/cli.md: the help of every command except aliases, with the common options at the top."""
    options = [
        f"| `{words}` | {meaning} |".replace("|json", "\\|json").replace("|fail", "\\|fail")
        for words, meaning in _SHARED.items()
    ]
    parts = [f"# The command line\n\n{NOTE}\n\n{_EVERYWHERE}\n" + "\n".join(options)]
    context = click.Context(cli, info_name="prose", **cli.context_settings)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        if command.get_short_help_str().startswith("Same as"):
            continue
        usage, text = _help(command, name, context)
        if isinstance(command, click.Group):
            inner = click.Context(command, info_name=name, parent=context)
            for sub in command.commands:
                line, meaning = _help(command.commands[sub], sub, inner)
                text += f"\n\n{line.removeprefix(f'{usage} ')}\n{textwrap.indent(meaning, '  ')}"
        parts.append(f"## `{usage}`\n\n```text\n{text}\n```")
    return "\n\n".join(parts) + "\n"


_EVERYWHERE = """`prose COMMAND --help` prints all options of a command. RUN is the id of a run, or its beginning. `prose approve` and `prose reject` are
short for `prose gate approve` and `prose gate reject`. Commands that read programs have `--profile default`, `strict` or `prosescript`
(the later form of OpenProse), and `--strict`: only the [original grammar](openprose/grammar.md#23-the-strict-profile). Commands about
runs, gates and tasks have `--state-dir DIR` (default: `.prose`).

Exit status: 0 done; 2 wrong usage, or nothing could be done; 130 interrupted; others below.

More: [gates](openprose/exec-and-gate.md#510-who-decides), [resuming](../how-to/durability.md), [kept
answers](../how-to/edit-and-continue.md), [stores](../how-to/state.md).

These options are [settings](settings.md) of one run: `--provider NAME`, `--script FILE`, `--judge NAME`, `--cassette NAME`,
`--cassette-mode MODE`, `--cassette-stale HOW`, `--realtime`, `--budget LIMITS`, `--state KIND` (`--backend`), `--gates MODE`, `--remote
ADDRESS`, `--otel`, `--log FILE`. Others with one meaning everywhere:

| Option | Meaning |
| --- | --- |"""
_SHARED = {
    "--run RUN": "the run",
    "--format [text|json]": "the format of the output",
    "--force": "replace an existing file; a report is replaced without it",
    "--input NAME=VALUE": "the value of an input; repeatable",
    "--yes GATE, --no GATE": "approve or reject a [gate](openprose/exec-and-gate.md#510-who-decides) (`MODULE:GATE` of an import) in advance; repeatable",
    "--interrupted [rerun|fail]": "of a resumed run: commands and sessions that were running are repeated (default), or fail",
    "--why": "with kept answers: show why each request was made",
    "--yes-rerun": "with kept answers: repeat commands and sessions without a question",
    "--dry-run": "only show the changes",
    "--json": "JSON, an object a line",
    "--comment TEXT": "kept with the decision",
    "--as NAME": "decide as this principal of the gate",
    "--junitxml FILE": "write a report for CI systems",
    "--trust PROGRAM": "agree to [programs](../how-to/programs.md): a URL or `handle/name` with its imports, a SHA-256, or `all`; repeatable",
}
_SETTINGS = [
    "provider",
    "script",
    "judge",
    "cassette",
    "cassette-mode",
    "cassette-stale",
    "budget",
    "backend",
    "gates",
    "remote",
    "realtime",
    "otel",
    "log",
]
"""The options of `prose run` and other commands that equal settings."""
_UNNAMED = {"--profile", "--state-dir", "--strict"}
"""Options that are left out of the sections of commands."""


def _help(command: click.Command, name: str, parent: click.Context) -> tuple[str, str]:
    """Return a command's usage, and its help with the options that are not common ones."""
    settings = command.context_settings | {"terminal_width": 100}
    with click.Context(command, info_name=name, parent=parent, **settings) as context:
        named = [one for one in command.params if isinstance(one, click.Option) and not _UNNAMED.intersection(one.opts)]
        shared = [one for one in named if _words(one, context) in _known() or _is_setting(one, command)]
        own = copy.copy(command)
        own.add_help_option = False
        own.params = [one for one in named if one not in shared]
        formatter = context.make_formatter()
        own.format_help_text(context, formatter)
        click.Command.format_options(own, context, formatter)  # without the commands of a group
        usage = [] if isinstance(command, click.Group) else command.collect_usage_pieces(context)
        if isinstance(parent.command, click.Group) and parent.parent and len(shared) < 3:
            usage += [f"[{one.opts[-1]}]" for one in shared]
            shared = []
        heading = " ".join([context.command_path, *usage]).replace("[OPTIONS]", "")
        text = textwrap.dedent(formatter.getvalue().replace("\nOptions:\n", "\n")).strip()
        of_settings = [one for one in shared if _is_setting(one, command)]
        others = [one.opts[-1] for one in shared if len(of_settings) < len(_SETTINGS) or one not in of_settings]
        if len(of_settings) == len(_SETTINGS):
            others.append("all options that are settings")
        also = f"\n\nAlso: {', '.join(others)}" if shared else ""
        return " ".join(heading.split()), f"{text}{also}"


def _is_setting(option: click.Option, command: click.Command) -> bool:
    return command.name in ("run", "eval", "what-if", "calibrate") and option.opts[-1].removeprefix("--") in _SETTINGS


def _known() -> list[str]:
    """Return the options of the table at the top."""
    return ", ".join(_SHARED).split(", ")


def _words(option: click.Option, context: click.Context) -> str:
    """Return an option as its help shows it: `--run RUN`."""
    return option.opts[-1] if option.is_flag else f"{option.opts[-1]} {option.make_metavar(context)}"


def settings() -> str:
    """Return docs/reference/settings.md: every setting with the docstring of its field."""
    meanings = {**_meanings("runs/settings.py"), **_meanings("runtime/session_options.py")}
    rows = ["| In `prose.toml` | Default | Meaning |", "| --- | --- | --- |"]
    for name, one in all_settings().items():
        kind = type(getattr(Settings(), one.table, None) or Settings()).__name__
        text = " ".join(meanings[kind, one.key].split()).replace("|", "\\|")
        default = "" if one.default in (None, (), NODEFAULT) else f"`{_toml(one.default)}`"
        if not one.in_file_only and name != f"{one.table}_{one.key}".lstrip("_"):
            text += f" `PROSE_{name.upper()}`"
        rows.append(" ".join(f"| {_key(one)} | {default} | {text} |".split()))
    table = "\n".join(rows)
    return f"""# Settings

{NOTE}

Strongest first: an option of `prose run` or a magic, the environment variable, `.prose/.env`, `prose.toml` in the working directory (of
a notebook: its directory).

The variable of `shell` is `PROSE_SHELL`, that of `[exec] memory` `PROSE_EXEC_MEMORY`. Where it has another name, the name is in the last
column. Lists and tables have no variable. In [Python](python.md), a setting has the name of its variable in lower case, without `PROSE_`.

{table}

## prose.toml

[prose.toml](prose.toml) has every key with an example, also those of model servers, [fallbacks](../how-to/providers.md#fallbacks), CLI
agents and [tool servers](../how-to/tools.md#mcp-servers). Keys of model servers stay in the environment, or in `.prose/.env`:

```toml
[providers.gateway]
kind = "openai"
base_url = "https://gateway.example.org/v1"
key = "GATEWAY_KEY"               # the variable with the key, never the key
```
"""


def _meanings(module: str) -> dict[tuple[str, str], str]:
    """Return the docstring of each field of a module's classes, by class and field."""
    found: dict[tuple[str, str], str] = {}
    for kind in ast.parse((PACKAGE / module).read_text(encoding="utf-8")).body:
        for field, text in itertools.pairwise(kind.body if isinstance(kind, ast.ClassDef) else ()):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                    found[kind.name, name] = meaning  # type: ignore[attr-defined]  # only classes get here
    return found


def _toml(value: object) -> str:
    """Return a default as it is written in `prose.toml`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _key(one: Setting) -> str:
    """Return the table and key of a setting in `prose.toml`."""
    named = {"providers": "`[providers.NAME]`, `[models.NAME]`"}
    named |= {key: f"`[{key}.NAME]`" for key in ("agents", "mcp")} | {"permissions": "`[permissions]`"}
    return f"`[{one.table}] {one.key}`" if one.table else named.get(one.key, f"`{one.key}`")


# ---------------------------------------------------------------- generated parts of handwritten pages

_PART = re.compile(r"(<!-- generated: ([\w -]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str) -> str:
    """Return a page of docs/ with new generated parts, between `<!-- generated: NAME -->` and `<!-- end -->`."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return _PART.sub(
        lambda match: f"{match[1]}{_part(match[2], Path(page).parts[1].removesuffix('.md'))}\n{match[3]}", text
    )


def _part(name: str, page: str) -> str:
    word, _, rest = name.partition(" ")
    return PARTS[word](rest or page)


def property_table(_rest: str) -> str:
    """Return the properties of each statement, from the checker's table."""
    heads = {"session": "`session`, `resume`"}
    rows = [(heads.get(owner, f"`{owner}`"), names) for owner, names in keywords.PROPERTIES.items()]
    lines = [f"| {head} | {', '.join(f'`{name}`' for name in names)} |" for head, names in rows]
    return "\n".join(["| In | Properties |", "| --- | --- |", *lines])


_OTHER_FORMS = "|".join(["append", "inline_property", "titled_(?:colon|parenthesis|line)"])
_OTHER_ALTERNATIVES = "|".join(
    [_OTHER_FORMS, "agent_head text_block", "call_target", "stage", "_LOOP_EACH", "_PARALLEL_REPEAT", "_RAISE"]
)


def grammar(_rest: str) -> str:
    """Return the productions of the grammar file, except old forms, ProseScript's and helpers of the tree builder."""
    _, *parts, _terminals = re.split(r"^// -{4} ", GRAMMAR_FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = "\n\n".join(part.split("\n", 1)[1].strip() for part in parts if not part.startswith("ProseScript"))
    text = text.replace("\n        | HOLE", "")  # inserted by error recovery
    text = re.sub(rf"^(?:{_OTHER_FORMS}): .*\n+", "", text, flags=re.MULTILINE)
    text = re.sub(rf"\s+\| (?:{_OTHER_ALTERNATIVES})\b[^|\n]*?(?=\s*(?:\||$))", "", text, flags=re.MULTILINE)
    text = re.sub(r" +-> \w+|^\?", "", text, flags=re.MULTILINE)
    return f"```text\n{text}\n```"


PARTS: dict[str, Callable[[str], str]] = {"grammar": grammar, "properties": property_table}
PARTLY = (*(f"reference/openprose/{part}.md" for part in ("grammar", "sessions-and-agents")),)
PAGES: dict[str, Callable[[], str]] = {
    "reference/cli.md": command_line,
    "reference/settings.md": settings,
    **{page: functools.partial(filled, page) for page in PARTLY},
}


def main() -> int:
    for name, make in PAGES.items():
        (DOCS / name).write_text(make(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
