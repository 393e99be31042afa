"""The hint for a program file that does not exist: a file of nearly its name."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from prose_kernel.language.nearest import Nearest, did_you_mean
from prose_kernel.runs import languages

_MOST = 5_000  # names of a directory that are looked at


def hint(name: str) -> str | None:
    """Return the hint that names a program or notebook of that directory: spelled nearly so, or with the same stem."""
    typed = Path(os.path.expanduser(name))  # noqa: PTH111 - the home directory of an unknown user stays as it is
    try:
        with os.scandir(typed.parent) as entries:
            known = (*languages.suffixes(), ".ipynb")
            there = [
                one.name
                for one in islice(entries, _MOST)
                if one.name.endswith(known) and one.name[0] != "." and one.name.isprintable() and one.is_file()
            ]
    except (OSError, ValueError):
        return None
    near = Nearest()
    found = near(typed.name, there)
    if found is None:
        stems = {one.partition(".")[0]: one for one in sorted(there, reverse=True)}
        stem = typed.name.partition(".")[0]
        wanted = stem if stem in stems or typed.suffix else near(stem, stems)
        found = stems.get(wanted or "")
    return did_you_mean(found and str(Path(name).parent / found))
