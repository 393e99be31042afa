"""`prose lsp`: the language server for editors, over standard input and output (docs/how-to/editors.md)."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prose_kernel.errors import UsageError, reason_of

if TYPE_CHECKING:
    from prose_kernel.language.diagnostics import Profile


@click.command("lsp", short_help="Start the language server for an editor.")
@click.option("--strict", is_flag=True, help="Accept only the original grammar.")
@click.option("--profile", type=click.Choice(["default", "strict", "prosescript"]), help="The form of OpenProse.")
@click.option(
    "--vscode",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Only write the extension for VS Code, with TextMate grammars.",
)
@click.option("--stdio", is_flag=True, help="No effect: always used.")
def lsp(strict: bool, profile: Profile | None, vscode: Path | None, stdio: bool) -> int:
    """Start the language server for OpenProse and VVM (docs/how-to/editors.md). Needs the extra:
    pip install 'prose_kernel[lsp]'."""
    if vscode is not None:
        from prose_kernel.lsp.editors import write_extension

        try:
            package = write_extension(Path(os.path.expanduser(vscode)))
        except OSError as error:
            raise UsageError(f"{vscode} cannot be written: {reason_of(error, str(error))}") from None
        click.echo(f"Install it: code --install-extension {shlex.quote(str(package))}")
        return 0
    try:
        from prose_kernel.lsp.server import serve
    except ImportError as missing:
        if (missing.name or "").partition(".")[0] not in ("pygls", "lsprotocol", "cattrs", "attrs"):
            raise
        raise UsageError("the language server needs pygls", hint="pip install 'prose_kernel[lsp]'") from None
    if sys.stdin.isatty():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python would wait for the thread that reads standard input
        click.echo("prose lsp waits for an editor; docs/how-to/editors.md shows how. Ctrl+C ends it.", err=True)
    serve(profile or ("strict" if strict else "default"))
    return 0
