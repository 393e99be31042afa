"""Checks the form and type of the arguments of `Exec`, without accessing the file system (exec-and-tasks.md 3.1)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prose_kernel.processes.exec_tool.environment import refused_name

NAMES = ("argv", "cwd", "env", "timeout_s", "max_output_bytes")
TIMEOUT = 60
LONGEST = 600
OUTPUT = 262_144
OUTPUT_RANGE = (1024, 4_194_304)


class InvalidArguments(Exception):
    """An argument is wrong; the message names it and describes the expected value."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The checked arguments. `cwd` None means the workspace if it is granted, else `/`."""

    argv: tuple[str, ...]
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: int = TIMEOUT
    max_output_bytes: int = OUTPUT


def parse(given: Mapping[str, object], refused: Iterable[str], relaxed: Iterable[str] = ()) -> Arguments:
    """Check the arguments of a call. `refused` adds patterns of refused environment names, `relaxed` lists names to
    accept nevertheless. Raises `InvalidArguments`."""
    for name in given:
        if name not in NAMES:
            raise InvalidArguments(f"unknown argument {name!r}; the arguments are {', '.join(NAMES)}")
    argv = _argv(given.get("argv"))
    return Arguments(
        argv,
        _cwd(given.get("cwd")),
        _env(given.get("env"), tuple(refused), frozenset(relaxed)),
        _timeout(given.get("timeout_s", TIMEOUT)),
        _output(given.get("max_output_bytes", OUTPUT)),
    )


def _argv(given: object) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not given:
        raise InvalidArguments("argv must be a list of strings with at least one item, not a command line")
    for item in given:
        if not isinstance(item, str) or not item:
            raise InvalidArguments("every item of argv must be a non-empty string")
        _text("argv", item)
    if not given[0].startswith("/"):
        raise InvalidArguments("argv[0] must be the absolute path of a program; names are not looked up")
    return tuple(given)


def _text(name: str, value: str) -> None:
    if "\0" in value:
        raise InvalidArguments(f"{name} contains a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArguments(f"{name} contains a character that cannot be encoded") from None


def _cwd(given: object) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str) or not given.startswith("/"):
        raise InvalidArguments("cwd must be the absolute path of a directory")
    _text("cwd", given)
    return given


def _env(given: object, refused: tuple[str, ...], relaxed: frozenset[str]) -> Mapping[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidArguments("env must be an object of strings")
    for name, value in given.items():
        if not isinstance(name, str) or not name or "=" in name:
            raise InvalidArguments("a name in env must be a non-empty string without '='")
        if not isinstance(value, str):
            raise InvalidArguments(f"env: the value of {name} must be a string")
        _text("env", name)
        _text("env", value)
        if name.startswith("_"):
            raise InvalidArguments(f"env: {name} is reserved; names that begin with '_' are not passed on")
        if name not in relaxed and refused_name(name, refused):
            raise InvalidArguments(f"env: {name} is not allowed; it could make a program load other code")
    return dict(given)


def _timeout(given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
        raise InvalidArguments("timeout_s must be a number of seconds from 1 to 600")
    if not 1 <= given <= LONGEST:
        raise InvalidArguments(f"timeout_s must be from 1 to 600, not {given}")
    return int(given)


def _output(given: object) -> int:
    low, high = OUTPUT_RANGE
    if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
        raise InvalidArguments(f"max_output_bytes must be a whole number from {low} to {high}")
    return given
