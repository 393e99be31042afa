"""`prose update`: migrate an old `.prose` directory (docs/reference/openprose.md 8)."""

from __future__ import annotations

from pathlib import Path

import click

from prose_kernel.errors import UsageError, reason_of


@click.command(short_help="Migrate an old .prose directory.")
@click.option("--state-dir", metavar="DIR", default=".prose", show_default=True, help="The directory to migrate.")
def update(state_dir: str) -> None:
    """Migrate a workspace: `execution/` becomes `runs/`, `agents/` is created, `state.json` is deleted."""
    root = Path(state_dir)
    if not root.is_dir():
        click.echo(f"{state_dir}: there is no such directory, nothing to update")
        return
    try:
        done = migrate(root)
    except OSError as problem:
        raise UsageError(f"cannot update {state_dir}: {reason_of(problem)} ({problem.filename})") from None
    for step in done:
        click.echo(f"{state_dir}: {step}")
    if not done:
        click.echo(f"{state_dir}: up to date, nothing to do")


def migrate(root: Path) -> list[str]:
    """Migrate `root`, and return a line for each step that was necessary. Raises `OSError`."""
    done = []
    if (root / "execution").is_dir():
        done.append(_move_runs(root / "execution", root / "runs"))
    if not (root / "agents").is_dir():
        (root / "agents").mkdir()
        done.append("created agents/")
    if (root / "state.json").is_file():
        (root / "state.json").unlink()
        done.append("deleted state.json")
    return done


def _move_runs(old: Path, new: Path) -> str:
    """Rename the directory; if the new one exists already, move the runs that it does not contain yet."""
    if not new.exists():
        old.rename(new)
        return "renamed execution/ to runs/"
    runs = sorted(run for run in old.iterdir() if not (new / run.name).exists())
    for run in runs:
        run.rename(new / run.name)
    if any(old.iterdir()):
        return f"moved {len(runs)} of execution/ into runs/; the others exist there and were not moved"
    old.rmdir()
    return f"moved {len(runs)} of execution/ into runs/"
