"""Declares the options that several commands share, and reads those of `prose run`: inputs, decisions of gates, the
backend, and the settings file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from msgspec import Struct

from prose_kernel.language.contracts import PRIOR

if TYPE_CHECKING:
    from prose_kernel.language.diagnostics import Profile
    from prose_kernel.runtime.journal_replay import UnderWay


F = TypeVar("F", bound=Callable[..., Any])

state_dir_option = click.option(
    "--state-dir",
    metavar="DIR",
    default=lambda: click.get_current_context().obj,  # the value given to the group
    help="Where runs are kept.  [default: .prose]",
)
profile_option = click.option(
    "--profile", type=click.Choice(["default", "strict", "prosescript"]), help="The form of OpenProse."
)


def profile_options(command: F) -> F:
    """Add `--profile` and `--strict` to a command."""
    strict = click.option("--strict", is_flag=True, help="Accept only the original grammar.")
    return profile_option(strict(command))


def profile_of(profile: str | None, strict: bool) -> Profile:
    """Return the profile of these options. With ProseScript, `--strict` refuses forms kept for existing files."""
    if profile == "prosescript":
        return "prosescript-strict" if strict else "prosescript"
    return "strict" if strict else cast("Profile", profile or "default")


# ---------------------------------------------------------------- prose run


class RunOptions(Struct, frozen=True):
    """The options of `prose run`, as typed. `settings` has the options in `SETTINGS`, by the name of the setting."""

    settings: Mapping[str, Any]
    resume: str | None = None
    interrupted: UnderWay | None = None
    at: str | None = None
    stored: bool = False
    changed: bool = False
    yes_rerun: bool = False
    cwd: str | None = None
    keep: str | None = None
    why: bool = False
    ask_again: bool = False
    only_stale: bool = False
    inputs: tuple[str, ...] = ()
    prior: tuple[str, ...] = ()
    yes: tuple[str, ...] = ()
    no: tuple[str, ...] = ()
    form: str = "text"
    strict: bool = False
    profile: str | None = None
    in_context: bool = False
    state: str | None = None
    gate_files: bool = False
    realtime: bool = False
    trust: tuple[str, ...] = ()
    otel: bool = False
    log: str | None = None
    usage: bool = False
    key: str | None = None


ANSWERING: Final = ("provider", "script", "judge", "cassette", "cassette_mode", "cassette_stale", "remote", "budget")
"""The options about the source of answers, the place of commands, and costs."""
SETTINGS: Final = (*ANSWERING, "state_dir", "gates")
"""The options that are settings of the same name."""


def settings_file(cwd: Path, name: str) -> Path | None:
    """Return the `prose.toml` next to a notebook, which applies as in Jupyter; None to use the working directory's."""
    sibling = (cwd / os.path.expanduser(name)).parent / "prose.toml"
    return sibling if name.endswith(".ipynb") and sibling.is_file() else None


def answering_options(given: RunOptions) -> tuple[str, ...]:
    """Return the options in `ANSWERING`, as typed. To resume the run, they have to be given again."""
    typed = {name: value for name in ANSWERING if (value := given.settings[name])}
    return tuple(part for name, value in typed.items() for part in (f"--{name.replace('_', '-')}", value))


def pairs(inputs: Sequence[str], option: str = "--input") -> dict[str, str]:
    values: dict[str, str] = {}
    for item in inputs:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{item!r} is not of the form NAME=VALUE", param_hint=option)
        if name in values:
            raise click.BadParameter(f"{name} is given twice", param_hint=option)
        values[name] = value
    return values


def supplied(given: RunOptions) -> dict[str, str]:
    """Return the values of inputs and, under prefixed names, those of an earlier render (`--prior`)."""
    prior = {f"{PRIOR}{name}": value for name, value in pairs(given.prior, "--prior").items()}
    return {**pairs(given.inputs), **prior}


def decisions(yes: Sequence[str], no: Sequence[str]) -> dict[str, bool]:
    for option, names in (("--yes", yes), ("--no", no)):
        if not all(name.strip() for name in names):
            raise click.BadParameter("the name of a gate is empty", param_hint=option)
    both = set(yes) & set(no)
    if both:
        raise click.UsageError(f"--yes and --no for the same gate: {', '.join(sorted(both))}")
    return {**dict.fromkeys(yes, True), **dict.fromkeys(no, False)}


def backend_of(state: str | None, in_context: bool) -> str | None:
    """Return the chosen backend, None without a choice; `sqlite+` means sqlite."""
    wanted = state.removesuffix("+") if state else None
    if in_context:
        if wanted not in (None, "in-context"):
            raise click.UsageError(f"--in-context and --state {state} exclude each other")
        return "in-context"
    return wanted
