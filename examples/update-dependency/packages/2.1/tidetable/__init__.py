"""Tide tables."""

__version__ = "2.1"


def next_high(times, now):
    """The first time at or after now, or None."""
    return next((time for time in sorted(times) if time >= now), None)
