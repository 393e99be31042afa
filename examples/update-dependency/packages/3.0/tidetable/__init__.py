"""Tide tables."""

__version__ = "3.0"


class NoTide(LookupError):
    """There is no further tide in the table."""


def next_tide(times, *, after):
    """The first time at or after `after`. Raises NoTide where there is none."""
    for time in sorted(times):
        if time >= after:
            return time
    raise NoTide(after)
