"""`prose install`: register the kernel with Jupyter, with the absolute path of this interpreter.

The wheel already brings a kernelspec whose interpreter is plain `python`; Jupyter runs that with its own interpreter.
Where Jupyter lives in another environment than prose_kernel, only an absolute path works.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import click

from prose_kernel.errors import UsageError


def spec_directory() -> Path:
    """Where kernel.json and the logos are: inside the package, or beside it in a checkout."""
    package = Path(__file__).parent.parent
    for directory in (package / "kernelspec", package.parent / "kernelspec"):
        if (directory / "kernel.json").is_file():
            return directory
    raise UsageError("this installation holds no kernelspec", hint="pip install --force-reinstall prose_kernel")


@click.command(short_help="Register the kernel with Jupyter.")
@click.option("--user", "where", flag_value="user", help="For this account (the default).")
@click.option("--sys-prefix", "where", flag_value="sys-prefix", help="Into this Python environment.")
@click.option("--prefix", metavar="P", help="Below P/share/jupyter.")
@click.option("--name", metavar="N", default="prose", show_default=True, help="The name of the kernelspec.")
@click.option("--display-name", metavar="TEXT", help="What the launcher shows.")
def install(where: str | None, prefix: str | None, name: str, display_name: str | None) -> None:
    """Register the Prose kernel with Jupyter, to be started with this Python interpreter."""
    if prefix is not None and where is not None:
        raise click.UsageError("choose one of --user, --sys-prefix and --prefix")
    from jupyter_client.kernelspec import KernelSpecManager

    target = sys.prefix if where == "sys-prefix" else prefix
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "kernelspec"
        write_spec(directory, display_name)
        try:
            placed = KernelSpecManager().install_kernel_spec(
                str(directory), kernel_name=name, user=target is None, prefix=target
            )
        except (OSError, ValueError) as problem:
            raise UsageError(f"cannot install the kernelspec: {problem}", hint="prose install --user") from None
    click.echo(f"kernel {name} is registered in {placed}")
    click.echo(f"it starts {sys.executable}")


def write_spec(directory: Path, display_name: str | None = None) -> None:
    """Put a kernelspec with this interpreter into a new directory."""
    shutil.copytree(spec_directory(), directory)
    path = directory / "kernel.json"
    spec = json.loads(path.read_text(encoding="utf-8"))
    spec["argv"][0] = sys.executable
    if display_name is not None:
        spec["display_name"] = display_name
    path.write_text(json.dumps(spec, indent=1) + "\n", encoding="utf-8")
