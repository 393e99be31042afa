"""`prose`: the entry point and its table of subcommands (docs/reference/openprose.md 8).

The module of a subcommand is imported when the command is used, so that `prose compile` does not load the machine, and
`prose run` does not load Jupyter.
"""

from __future__ import annotations

import errno
import importlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from click.exceptions import NoArgsIsHelpError

from prose_kernel._version import __version__
from prose_kernel.cli import streams
from prose_kernel.errors import CompileError, GateRefused, ImportProgramError, UsageError
from prose_kernel.language.nearest import Nearest, did_you_mean

COMMANDS = {
    "run": "prose_kernel.cli.run:run",
    "runs": "prose_kernel.cli.runs:runs",
    "report": "prose_kernel.cli.runs:report",
    "compile": "prose_kernel.cli.compile:compile_",
    "fmt": "prose_kernel.cli.compile:fmt",
    "check": "prose_kernel.cli.compile:check",
    "upgrade": "prose_kernel.cli.convert:upgrade",
    "judge": "prose_kernel.cli.judge:judge",
    "graph": "prose_kernel.cli.compile:graph",
    "plan": "prose_kernel.cli.plan:plan",
    "what-if": "prose_kernel.cli.what_if:what_if",
    "export": "prose_kernel.cli.convert:export",
    "notebook": "prose_kernel.cli.convert:notebook",
    "test": "prose_kernel.testing.command:test",
    "eval": "prose_kernel.evaluation.command:evaluate",
    "gates": "prose_kernel.cli.gates:gates",
    "gate": "prose_kernel.cli.gates:gate",
    "approve": "prose_kernel.cli.gates:approve_alias",
    "reject": "prose_kernel.cli.gates:reject_alias",
    "cassette": "prose_kernel.cli.cassette:cassette",
    "tasks": "prose_kernel.cli.tasks:tasks",
    "help": "prose_kernel.cli.help:help_",
    "explain": "prose_kernel.cli.help:explain",
    "examples": "prose_kernel.cli.examples:examples",
    "exercises": "prose_kernel.cli.exercises:exercises",
    "lsp": "prose_kernel.lsp.command:lsp",
    "install": "prose_kernel.cli.install:install",
    "programs": "prose_kernel.cli.programs:programs",
    "trust": "prose_kernel.cli.trust:trust",
    "doctor": "prose_kernel.cli.doctor:doctor",
    "update": "prose_kernel.cli.update:update",
}
NEEDS_HOST = "E362"
_ONE_RENDER = f"needs a host of responsibilities, which isn't here: `prose run FILE` renders a node once [{NEEDS_HOST}]"
RETIRED = {
    "boot": "`prose boot` is retired; there is nothing to start: `prose run FILE` runs a program",
    "serve": f"`prose serve` {_ONE_RENDER}",
    "react": f"`prose react` {_ONE_RENDER}",
}

USAGE_STATUS = 2


class LazyGroup(click.Group):
    """A group that imports the module of a subcommand when the subcommand is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as missing:
            if missing.name != module.rpartition(".")[0]:
                raise
            return None  # this installation was made without its room
        command: click.Command = getattr(found, attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name in COMMANDS or name.startswith("-"):
            return super().resolve_command(ctx, args)
        raise click.UsageError(_unknown(name)) if name else NoArgsIsHelpError(ctx)


def _unknown(name: str) -> str:
    if name in RETIRED:
        return RETIRED[name]
    from prose_kernel.runs.languages import runnable_suffixes

    if name.endswith(runnable_suffixes()):
        return f"there is no command {name}; did you mean `prose run {shlex.quote(name)}`?"
    meant = _same_name(name) or ((near := Nearest()(name, COMMANDS)) and f"prose {near}")
    return f"there is no command {name}; " + (did_you_mean(meant) or "`prose help` lists them")


def _same_name(name: str) -> str | None:
    """Return the option, or the subcommand of another command, with this name."""
    if any(f"--{name}" in parameter.opts for parameter in cli.params):
        return f"prose --{name}"
    for above in ("runs", "gate", "cassette"):
        found = cli.get_command(click.Context(cli), above)
        if isinstance(found, click.Group) and name in found.commands:
            return f"prose {above} {name}"
    return None


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="prose", message="%(prog)s %(version)s")
def cli() -> None:
    """Run, check and manage programs in OpenProse and VVM: workflows of commands, agents and people.

    Exit status: 0 done, 2 wrong usage, or nothing could be done, 130 interrupted; the help of a command names others.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    0: done. 1: the program (or its text, or the request) is at fault, or standard output could not be written. 2: wrong
    usage, or an error before the start. 3: no provider or person could answer. 128 plus its number after a signal.
    """
    _prepare_streams()
    status = _run(list(sys.argv[1:] if arguments is None else arguments))
    unwritten = streams.output_problem()
    if unwritten is not None:
        _print_message(f"Error: standard output could not be written: {unwritten}")
        return status or 1
    return status


def _run(args: list[str]) -> int:
    try:
        colour = False if streams.without_colour() else None
        status = cli.main(args, prog_name="prose", standalone_mode=False, color=colour)
    except (click.ClickException, UsageError, CompileError) as error:
        return _before_the_start(error, args)
    except ImportProgramError as problem:  # an error of the command itself, not of a running program
        return _before_the_start(UsageError(problem.message, hint=problem.hint), args)
    except GateRefused as refused:
        _print_message(f"Error: {refused}" + (f"\nhint: {refused.hint}" if refused.hint else ""))
        return 1
    except (click.Abort, KeyboardInterrupt):
        return 130
    except Exception as defect:
        if isinstance(defect, FileNotFoundError) and not _directory_is_there():
            gone = "the directory that this command was started in is gone"
            return _before_the_start(UsageError(gone, hint="cd to a directory that exists"), args)
        if isinstance(defect, OSError) and defect.errno == errno.ENAMETOOLONG:  # only names from the user can be long
            from prose_kernel.language.text import clipped

            name = clipped(str(defect.filename), 200)
            return _before_the_start(UsageError(f"{name} cannot be used: file name too long"), args)
        if sys.flags.dev_mode:
            raise
        from prose_kernel.runtime.resource_errors import shortage

        if (found := shortage(defect)) is not None:
            click.echo(f"Error: {found.message}\nhint: {found.hint}", err=True)
            return 1
        click.echo(f"Internal error: {type(defect).__name__}: {defect}", err=True)
        click.echo("hint: please report this; PYTHONDEVMODE=1 shows where it happened", err=True)
        return 1
    return status if isinstance(status, int) else 0


def _directory_is_there() -> bool:
    try:
        return Path.cwd().is_dir()
    except OSError:
        return False


def _prepare_streams() -> None:
    """Make the output streams safe: a failed write raises nothing, characters that cannot be encoded are escaped, and a
    terminal gets no control sequences except colours."""
    streams.prepare()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
        if stream is not None and stream.isatty():
            from prose_kernel.cli.terminal import GuardedTerminal

            setattr(sys, name, GuardedTerminal(stream))


def _print_message(text: str) -> None:
    """Print a message to stderr; on a terminal, control characters are made visible."""
    if sys.stderr.isatty():
        from prose_kernel.views.escaping import visible

        text = visible(text)
    click.echo(text, err=True)


def _no_such_option(error: click.NoSuchOption, args: list[str]) -> UsageError:
    """Return the error with a better hint than click's, which suggests `--profile` for `--ofline`, or three names."""
    name = error.option_name.lstrip("-")
    known = error.ctx.command.get_params(error.ctx) if error.ctx is not None else []
    options = {option.lstrip("-"): option for one in known for option in (*one.opts, *one.secondary_opts)}
    near = Nearest()(name, [one for one in options if options[one].startswith("--")])
    command = error.ctx.command_path if error.ctx is not None else "prose"
    hint = did_you_mean(options[near]) if near else f"`{command} --help` lists them"
    file = next((word for word in args if word.startswith(error.option_name) and os.path.lexists(word)), None)
    if file is not None:
        from prose_kernel.language.text import as_argument

        hint = f"the file of that name is {as_argument(file)}"
    return UsageError(f"there is no option {error.option_name}", hint=hint)


def _before_the_start(error: click.ClickException | UsageError | CompileError, args: list[str]) -> int:
    """Print an error from before the start (and the result object for `run --format json`); return the exit status."""
    from prose_kernel.cli import result_text

    if isinstance(error, click.UsageError) and error.ctx is not None and not isinstance(error, NoArgsIsHelpError):
        click.echo(error.ctx.get_usage(), err=True)
    if isinstance(error, click.NoSuchOption):
        error = _no_such_option(error, args)
    _print_message(result_text.error_text(error))
    if args[:1] == ["run"] and result_text.wants_json(args):
        click.echo(result_text.result_line(result_text.not_started(error)))
    return USAGE_STATUS
