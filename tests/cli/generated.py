"""The generated pages of docs/: `make generated` writes them, a test compares them."""

from __future__ import annotations

import ast
import functools
import itertools
import re
import sys
from collections.abc import Callable
from pathlib import Path

import click
from msgspec import NODEFAULT

from prose_kernel.cli.main import cli
from prose_kernel.language.openprose import keywords, properties
from prose_kernel.language.openprose.tables import GRAMMAR
from prose_kernel.runs.settings import Setting, Settings, every

DOCS = Path(__file__).parents[2] / "docs"
PACKAGE = DOCS.parent / "prose_kernel"
NOTE = "<!-- Written by `make generated`; change the source of it instead. -->"


def page_path(name: str) -> Path:
    """A page of docs/ by its name; `reference/sessions` where several have it."""
    found = [path for path in DOCS.rglob(f"{name.rpartition('/')[2]}.md") if path.match(f"{name}.md")]
    assert len(found) == 1, f"{name}.md: {len(found)} pages"
    return found[0]


def command_line() -> str:
    """docs/reference/cli.md: the help of every command."""
    parts = [f"# The command line\n\n{NOTE}\n\n{_help(cli, 'prose', None)}"]
    context = click.Context(cli, info_name="prose", **cli.context_settings)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        parts.append(f"## prose {name}\n\n{_help(command, name, context)}")
        if isinstance(command, click.Group):
            inner = click.Context(command, info_name=name, parent=context)
            parts += [
                f"### prose {name} {sub}\n\n{_help(command.commands[sub], sub, inner)}" for sub in command.commands
            ]
    return "\n\n".join(parts) + "\n"


def _help(command: click.Command, name: str, parent: click.Context | None) -> str:
    settings = command.context_settings | {"terminal_width": 100}
    with click.Context(command, info_name=name, parent=parent, **settings) as context:
        return f"```text\n{command.get_help(context)}\n```"


def settings() -> str:
    """docs/reference/settings.md: every setting with the text below its declaration, and a whole `prose.toml`."""
    meanings = {**_meanings("runs/settings.py"), **_meanings("runtime/session_options.py")}
    rows = []
    for name, one in every().items():
        kind = type(getattr(Settings(), one.table, None) or Settings()).__name__
        text = " ".join(meanings[kind, one.key].split()).replace("|", "\\|")
        default = "none" if one.default in (None, (), NODEFAULT) else f"`{one.default}`"
        variable = "" if one.in_file_only else f"`PROSE_{name.upper()}`"
        rows.append(f"| `{name}` | {_key(one)} | {variable} | {default} | {text} |")
    heads = ["| Setting | In `prose.toml` | Variable | Default | Meaning |", "| --- | --- | --- | --- | --- |"]
    table = "\n".join([*heads, *rows])
    example = (DOCS / "reference" / "prose.toml").read_text(encoding="utf-8").rstrip()
    return f"""# Settings

{NOTE}

Strongest first: an option of `prose run` or a magic, the environment variable, the same name in `.prose/.env`,
`prose.toml` in the working directory (for a notebook: beside it), the default. A value that makes no sense is an error
that names its place and what would.

{table}

Keys of model servers are no settings: they stay in the environment (or in `.prose/.env`, which git should ignore), and a
server's table names the variable.

## prose.toml

The whole of it, [as a file](prose.toml):

```toml
{example}
```
"""


def _meanings(module: str) -> dict[tuple[str, str], str]:
    """The text below each field of the classes of a module, by class and field."""
    found: dict[tuple[str, str], str] = {}
    for kind in ast.parse((PACKAGE / module).read_text(encoding="utf-8")).body:
        for field, text in itertools.pairwise(kind.body if isinstance(kind, ast.ClassDef) else ()):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                    found[kind.name, name] = meaning  # type: ignore[attr-defined]  # it has a body: it is a class
    return found


def _key(one: Setting) -> str:
    """The place of a setting in `prose.toml`."""
    named = {"providers": "`[providers.NAME]`, `[models.NAME]`", "agents": "`[agents.NAME]`"}
    return f"`[{one.table}]` `{one.key}`" if one.table else named.get(one.key, f"`{one.key}`")


# ---------------------------------------------------------------- parts of pages that are otherwise written by hand

_PART = re.compile(r"(<!-- generated: ([\w -]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str) -> str:
    """A page of docs/ with its generated parts, which stand between `<!-- generated: NAME -->` and `<!-- end -->`."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return _PART.sub(
        lambda match: f"{match[1]}{_part(match[2], Path(page).parts[1].removesuffix('.md'))}\n{match[3]}", text
    )


def _part(name: str, page: str) -> str:
    word, _, rest = name.partition(" ")
    return PARTS[word](rest or page)


_TOKENS = {
    "STRING": "a string", "NAME": "a name", "NUMBER": "a number", "COLON": "`:`", "LPAR": "`(`", "_NL": "the end of the line",
    "DOT": "`.`", "PIPE": "`\\|`", "EQUALS": "`=`", "COMMA": "`,`", "MINUS": "`-`", "PLUS": "`+`",
}  # fmt: skip


def keyword_table(_rest: str) -> str:
    """When a word is a keyword, from the tables that the lexer reads."""
    rows = ["| Word | Is a keyword |", "| --- | --- |"]
    conditions: dict[str, list[str]] = {}
    for kind, following in keywords.ONLY_BEFORE.items():
        conditions.setdefault(f"before {_either(following)}", []).append(kind.lower())
    for kind, following in keywords.NEVER_BEFORE.items():
        when = f"except before {_either(following)}" if following else "everywhere"
        conditions.setdefault(when, []).append(kind.lower())
    rows += [f"| {', '.join(f'`{word}`' for word in words)} | {when} |" for when, words in conditions.items()]
    return "\n".join(rows)


def _either(tokens: frozenset[str]) -> str:
    shown = [_TOKENS.get(token, f"`{token}`") for token in sorted(tokens, key=lambda t: (t not in _TOKENS, t))]
    return " or ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def property_table(_rest: str) -> str:
    """Which property may stand where, from the table that the checker reads."""
    owners = list(properties.ALLOWED)
    heads = {"agent": "`agent`", "session": "`session`, `resume`", "exec": "`exec`", "gate": "`gate`"}
    names = dict.fromkeys(name for allowed in properties.ALLOWED.values() for name in allowed)
    rows = [["Property", *(heads.get(owner, f"`{owner}`") for owner in owners)], ["---"] * (len(owners) + 1)]
    rows += [[f"`{name}`", *("yes" if name in properties.ALLOWED[o] else "" for o in owners)] for name in names]
    return "\n".join(f"| {' | '.join(row)} |".replace("  ", " ") for row in rows)


def grammar(part: str) -> str:
    """A part of the grammar file: the productions below its heading comment, without what only the tree needs."""
    parts = re.split(r"^// -{4} ", GRAMMAR.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    found = next(text for text in parts if text.startswith(part))
    found = found.replace("\n        | HOLE", "")  # what error recovery puts in
    lines = [re.sub(r"^\?", "", re.sub(r" +-> \w+", "", line)) for line in found.split("\n", 1)[1].strip().split("\n")]
    return "```text\n" + "\n".join(lines) + "\n```"


PARTS: dict[str, Callable[[str], str]] = {
    "grammar": grammar,
    "keywords": keyword_table,
    "properties": property_table,
}
PARTLY = (*(f"reference/openprose/{part}.md" for part in ("lexical-structure", "grammar", "sessions-and-agents")),)
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
