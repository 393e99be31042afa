"""The hint for a file that does not exist: a file with a similar name."""

from __future__ import annotations

import os
from itertools import islice

from prose_kernel.language.nearest import Nearest, did_you_mean

_MAX_NAMES = 5_000  # names of a directory that are compared


def hint(name: str, suffixes: tuple[str, ...], *, path: str | None = None) -> str | None:
    """Return the hint that names a file of the same directory with one of `suffixes`: a similar name, or the same stem.

    `name` is the name that a person wrote. `path` is the path that was tried, if `name` isn't relative to the working
    directory.
    """
    try:
        with os.scandir(os.path.dirname(path or os.path.expanduser(name)) or ".") as entries:  # noqa: PTH120
            there = [
                one.name
                for one in islice(entries, _MAX_NAMES)
                if one.name.endswith(suffixes) and one.name[0] != "." and one.name.isprintable() and one.is_file()
            ]
    except (OSError, ValueError):
        return None
    directory, typed = os.path.split(name)
    stem, _, suffix = typed.partition(".")
    near = Nearest()
    found = near(typed, there) if len(stem) > 2 else None
    if found is not None and found.partition(".")[0] not in (stem, near(stem, [found.partition(".")[0]])):
        found = None  # a common suffix does not make names similar
    if found is None:
        stems = {one.partition(".")[0]: one for one in sorted(there, reverse=True)}
        wanted = stem if stem in stems or suffix else near(stem, stems)
        found = stems.get(wanted or "")
    return did_you_mean(found and os.path.join(directory, found))  # noqa: PTH118
