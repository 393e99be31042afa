"""`prose trust`: agree to protected files that programs of sessions have created (docs/how-to/permissions.md)."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import click

from prose_kernel.access import created_code, peers, plain_files
from prose_kernel.errors import UsageError


@click.command(short_help="Agree to code or settings that a session's program has created.")
@click.argument("names", metavar="[FILE]...", nargs=-1)
def trust(names: tuple[str, ...]) -> int:
    """Agree to FILE, which a session's program has created and from which code or settings are loaded
    (prose_tools.py, prose.toml ...). Read it first. Without FILE, list the files that wait here.
    """
    cwd = Path.cwd()
    if not names:
        files = [os.path.relpath(path, cwd) for path in created_code.waiting(cwd)]
        click.echo("\n".join(files) or "no file waits for your agreement")
        return 0
    if peers.inside_a_run():
        hint = "type the command in your own terminal"
        raise UsageError("prose trust: called from inside a run, which may not agree", hint=hint)
    for name in names:
        if not created_code.agree(cwd / name):
            raise UsageError(f"no program of a session has created {name}", hint="prose trust lists what waits here")
        click.echo(f"agreed to {name}{_digest(cwd / name)}")
    return 0


def _digest(path: Path) -> str:
    try:
        return f"  sha256 {hashlib.sha256(plain_files.read(path)).hexdigest()}"
    except OSError:
        return ""
