"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

if TYPE_CHECKING:
    from prose_kernel.language.diagnostics import Profile

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
