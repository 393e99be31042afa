"""`prose lsp`: the language server for editors, over standard input and output (docs/how-to/editors.md)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prose_kernel.errors import UsageError

if TYPE_CHECKING:
    from prose_kernel.language.diagnostics import Profile


@click.command("lsp", short_help="Serve an editor: findings, completion, names.")
@click.option("--strict", is_flag=True, help="Judge by the literal language reference.")
@click.option("--profile", type=click.Choice(["default", "strict", "prosescript"]), help="How OpenProse is read.")
@click.option(
    "--vscode",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Only write the extension for VS Code, with the TextMate grammars, into DIRECTORY: ~/.vscode/extensions.",
)
@click.option("--stdio", is_flag=True, help="Use standard input and output, which is what it does anyway.")
def lsp(strict: bool, profile: Profile | None, vscode: Path | None, stdio: bool) -> int:
    """Serve an editor over standard input and output, in the Language Server Protocol: findings, completion, hover,
    definitions, references, rename, formatting, fixes, for OpenProse and VVM. An editor starts it:
    docs/how-to/editors.md. Needs the extra: pip install 'prose_kernel[lsp]'."""
    if vscode is not None:
        from prose_kernel.lsp.editors import write_extension

        try:
            folder = write_extension(vscode.expanduser())
        except OSError as error:
            raise UsageError(f"{vscode} cannot be written: {(error.strerror or str(error)).lower()}") from None
        click.echo(f"{folder}\nRestart VS Code to load it.")
        return 0
    try:
        from prose_kernel.lsp.server import serve
    except ImportError as missing:
        if (missing.name or "").partition(".")[0] not in ("pygls", "lsprotocol", "cattrs", "attrs"):
            raise
        raise UsageError("the language server needs pygls", hint="pip install 'prose_kernel[lsp]'") from None
    if sys.stdin.isatty():
        click.echo("prose lsp waits for an editor; docs/how-to/editors.md shows how. Ctrl+C ends it.", err=True)
    serve(profile or ("strict" if strict else "default"))
    return 0
