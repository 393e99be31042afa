"""The options `--profile` and `--strict` of the commands that read programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

if TYPE_CHECKING:
    from prose_kernel.language.diagnostics import Profile

F = TypeVar("F", bound=Callable[..., Any])

profile_option = click.option(
    "--profile",
    type=click.Choice(["default", "strict", "prosescript"]),
    help="How OpenProse is read; prosescript is the later form of the language.",
)


def profile_options(command: F) -> F:
    """Add `--profile` and `--strict` to a command."""
    strict = click.option("--strict", is_flag=True, help="Judge by the literal language reference.")
    return profile_option(strict(command))


def profile_of(profile: str | None, strict: bool) -> Profile:
    """The profile that the options choose: `--strict` with ProseScript refuses what that keeps for existing files."""
    if profile == "prosescript":
        return "prosescript-strict" if strict else "prosescript"
    return "strict" if strict else cast("Profile", profile or "default")
