"""`prose examples`: real programs that ship with the package, by category.

The first line of an example is a comment, `# category: what it shows`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import click

from prose_kernel.errors import UsageError, usage_errors
from prose_kernel.runs import languages

DIRECTORY = Path(__file__).parent.parent / "examples"
NOTEBOOKS = (DIRECTORY / "notebooks", DIRECTORY.parents[1] / "notebooks")
"""The possible directories of the tour and the course: in an installed package, and in a checkout."""
SHIPPED = ("*.ipynb", "cassettes/*.jsonl", "checks/*.yaml", "programs/*", "desk/**/*", "*.eval.toml", "prose.toml")


class Example(NamedTuple):
    """A bundled program: number (`01`), name (`hello`), category, description, and file."""

    number: str
    name: str
    category: str
    about: str
    path: Path


def bundled() -> tuple[Example, ...]:
    """Return all examples, by number."""
    return tuple(_read(path) for path in sorted(DIRECTORY.glob("[0-9]*")) if path.name.endswith(languages.suffixes()))


def is_bundled(name: str) -> bool:
    """Return whether a program belongs to the package, so that nothing may be written next to it."""
    return DIRECTORY in Path(name).parents


def _read(path: Path) -> Example:
    number, _, name = path.stem.partition("-")
    with path.open(encoding="utf-8") as file:
        category, _, about = file.readline().removeprefix("#").partition(":")
    return Example(number, name, category.strip(), about.strip(), path)


def find_example(wanted: str) -> Path | None:
    """Return the example with that number, name, part of a name, or keyword; None if none or several match."""
    word = wanted.casefold()
    examples = bundled()
    tests: tuple[Callable[[Example], bool], ...] = (
        lambda e: word.isdigit() and int(word) == int(e.number),
        lambda e: word in (e.name, e.path.stem),
        lambda e: word in e.name,
        lambda e: word in e.about.casefold().split() or word in e.category.casefold().split(),
    )
    for test in tests:
        fitting = [e for e in examples if test(e)]
        if fitting:
            return fitting[0].path if len(fitting) == 1 else None
    return None


@click.command(short_help="List, print or run bundled examples.")
@click.argument("name", required=False)
@click.option("--run", "execute", is_flag=True, help="Run it instead of printing it.")
@click.option(
    "--notebooks",
    "target",
    metavar="DIRECTORY",
    type=Path,
    help="Copy the tours, the course and the topics, with their recordings.",
)
@click.pass_context
def examples(context: click.Context, name: str | None, execute: bool, target: Path | None) -> int:
    """List the bundled examples, or print NAME (a number, a name or a keyword)."""
    if target is not None:
        if name is not None or execute:
            raise click.UsageError("--notebooks takes neither NAME nor --run")
        _copy_notebooks(target)
        return 0
    if name is None:
        if execute:
            raise click.UsageError("--run needs the NAME of an example")
        _list()
        return 0
    path = find_example(name)
    if path is None:
        raise UsageError(f"{name} matches no example, or several", hint="prose examples lists them")
    if not execute:
        click.echo(path.read_text(encoding="utf-8"), nl=False)
        return 0
    commands = context.find_root().command
    assert isinstance(commands, click.Group)
    run = commands.get_command(context, "run")
    assert run is not None
    status = context.invoke(run, target=str(path))
    return status if isinstance(status, int) else 0


def _copy_notebooks(target: Path) -> None:
    """Copy the notebooks. Raises `UsageError` if the directory is not empty, or cannot be written."""
    source = next((place for place in NOTEBOOKS if (place / "tour.ipynb").exists()), None)
    if source is None:
        raise UsageError("the notebooks are not part of this installation")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists", hint="name a new or an empty directory")
    places = [source / directory for directory in ("", "course", "topics")]
    found = sorted({path for place in places for pattern in SHIPPED for path in place.glob(pattern) if path.is_file()})
    found = [path for path in found if not any(part.startswith(".") for part in path.relative_to(source).parts)]
    with usage_errors(f"cannot write {target}"):
        for path in found:
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    click.echo(f"{sum(path.suffix == '.ipynb' for path in found)} notebooks: open {target / 'tour.ipynb'}")


def _list() -> None:
    found = bundled()
    width = max(len(e.name) for e in found)
    for category, group in groupby(sorted(found, key=lambda e: e.number), key=lambda e: e.category):
        click.echo(category)
        for example in group:
            click.echo(f"  {example.number}  {example.name:<{width}}  {example.about}")
    click.echo("\nprose examples NAME prints one, prose run NAME runs it")
    click.echo("prose examples --notebooks DIRECTORY copies the tours, the course and the topics")
