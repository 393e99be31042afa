"""`prose install`: register the kernels with Jupyter, or install programs from a registry or URL (`programs.py`).

The kernelspecs in the wheel have the interpreter `python`, for which Jupyter uses its own. If Jupyter is in another
environment than prose_kernel, only the absolute path of the interpreter works, which this command registers.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import click

from prose_kernel.errors import UsageError, reason_of
from prose_kernel.runs import languages
from prose_kernel.runs.languages import Language


def spec_directory(language: Language) -> Path:
    """Return the directory of a language's kernel.json and logos: in the package, or next to it in a checkout."""
    package = Path(__file__).parent.parent
    for parent in (package, package.parent):
        directory = parent / "kernelspec" / language.magic
        if (directory / "kernel.json").is_file():
            return directory
    raise UsageError("this installation holds no kernelspec", hint="pip install --force-reinstall prose_kernel")


@click.command(short_help="Register the kernels with Jupyter, or install programs from elsewhere.")
@click.argument("targets", metavar="[TARGET]...", nargs=-1)
@click.option("--upgrade", is_flag=True, help="Fetch programs (default: all) again and replace their pins.")
@click.option(
    "--trust",
    metavar="PROGRAM",
    multiple=True,
    help="Agree to programs: a URL or handle/name with its imports, a SHA-256, or all. Repeatable.",
)
@click.option("--user", "where", flag_value="user", help="For this account (the default).")
@click.option("--sys-prefix", "where", flag_value="sys-prefix", help="Into this Python environment.")
@click.option("--prefix", metavar="P", help="Below P/share/jupyter.")
@click.option("--language", metavar="L", help="One kernel only: prose or vvm.  [default: both]")
@click.option("--name", metavar="N", help="The name of that kernelspec.  [default: prose, vvm]")
@click.option("--display-name", metavar="TEXT", help="Its name in the launcher.")
def install(targets: tuple[str, ...], upgrade: bool, trust: tuple[str, ...], **options: Any) -> int:
    """Register the kernels of Prose and VVM with Jupyter, for this Python interpreter. --name and
    --display-name are for one kernel.

    With TARGET (handle/name or a URL): fetch programs with their imports, show what they can do, and write
    your agreement into prose.lock.

    Exit status 1: a program has errors.
    """
    if targets or upgrade:
        if any(option is not None for option in options.values()):
            raise click.UsageError("these options are about kernels; programs take --upgrade and --trust")
        from prose_kernel.cli.programs import install_programs

        return install_programs(targets, trust, upgrade=upgrade)
    if trust:
        raise click.UsageError("--trust needs a TARGET to install")
    return _install_kernels(**options)


def _install_kernels(
    where: str | None, prefix: str | None, language: str | None, name: str | None, display_name: str | None
) -> int:
    if prefix is not None and where is not None:
        raise click.UsageError("choose one of --user, --sys-prefix and --prefix")
    target = sys.prefix if where == "sys-prefix" else prefix
    chosen = _chosen(language, one=name is not None or display_name is not None)
    for one in chosen:
        registered = name or one.magic
        click.echo(f"kernel {registered} is registered in {_register(one, registered, display_name, target)}")
    click.echo(f"{'they start' if len(chosen) > 1 else 'it starts'} {sys.executable}")
    return 0


def _chosen(name: str | None, *, one: bool) -> list[Language]:
    """Return the languages whose kernels are registered."""
    if name is None:
        return [languages.default()] if one else [*languages.LANGUAGES.values()]
    found = languages.of_magic(name)
    if found is None:
        known = ", ".join(language.magic for language in languages.LANGUAGES.values())
        raise click.UsageError(f"--language {name}: one of {known}")
    return [found]


def _register(language: Language, name: str, display_name: str | None, prefix: str | None) -> str:
    from jupyter_client.kernelspec import KernelSpecManager

    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "kernelspec"
        write_spec(directory, language, display_name)
        try:
            with warnings.catch_warnings(action="ignore"):  # IPython warns about a home directory without write access
                return str(
                    KernelSpecManager().install_kernel_spec(
                        str(directory), kernel_name=name, user=prefix is None, prefix=prefix
                    )
                )
        except (OSError, ValueError) as problem:
            raise UsageError(
                f"cannot install the kernelspec: {reason_of(problem, str(problem))}",
                hint="prose install --sys-prefix" if prefix is None else "prose install --user",
            ) from None


def write_spec(directory: Path, language: Language, display_name: str | None = None) -> None:
    """Write a language's kernelspec with this interpreter into a new directory."""
    shutil.copytree(spec_directory(language), directory)
    path = directory / "kernel.json"
    spec = json.loads(path.read_text(encoding="utf-8"))
    spec["argv"][0] = sys.executable
    if display_name is not None:
        spec["display_name"] = display_name
    path.write_text(json.dumps(spec, indent=1) + "\n", encoding="utf-8")
