"""Programs with their findings written into them.

Tables of them are in `cases/`, each program under a line `=== name`. `«E019»x` means that E019 is reported at the `x`;
`«W136/E019»x` has the code of each profile, `-` for none. Several codes at one place are separated by commas:
`«W114,W008/E114»x`.
"""

from __future__ import annotations

import re
from pathlib import Path

from prose_kernel.language.diagnostics import Diagnostic, Profile
from prose_kernel.language.openprose.checker import Checker
from prose_kernel.language.openprose.parser import parse
from prose_kernel.language.openprose.program_interface import KnownNames, LoadContract
from prose_kernel.language.openprose.tree import Program
from prose_kernel.language.source import Source

_MARK = re.compile(r"«([^»]*)»")
PROFILES: tuple[Profile, Profile] = ("default", "strict")

Place = tuple[str, int, int]


def cases(table: str) -> dict[str, str]:
    """Return the programs of one table in `cases/` by name, with their marks."""
    text = (Path(__file__).parent / "cases" / f"{table}.txt").read_text(encoding="utf-8")
    parts = re.split(r"^=== (.+)\n", text, flags=re.MULTILINE)
    names = parts[1::2]
    assert len(names) == len(set(names)), f"two cases of {table} have one name"
    return dict(zip(names, parts[2::2], strict=True))


def unmark(marked: str, profile: Profile) -> tuple[Source, list[Place]]:
    """Return the source without its marks, and the marked findings in order."""
    text, expected, end = "", [], 0
    for mark in _MARK.finditer(marked):
        text += marked[end : mark.start()]
        end = mark.end()
        both = mark[1].split("/")
        codes = both[min(PROFILES.index(profile), len(both) - 1)]
        line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
        expected += [(code, line, column) for code in codes.split(",") if code != "-"]
    return Source(text + marked[end:]), sorted(expected, key=lambda e: (e[1], e[2], e[0]))


def findings(
    source: Source | str,
    profile: Profile = "default",
    *,
    known: KnownNames | None = None,
    load: LoadContract | None = None,
    cell: bool = False,
) -> tuple[Diagnostic, ...]:
    """Return the checker's findings for a parsed program."""
    source = source if isinstance(source, Source) else Source(source)
    return check(parse(source, profile).program, source, profile, known=known, load=load, cell=cell)


def check(
    program: Program,
    source: Source,
    profile: Profile = "default",
    *,
    known: KnownNames | None = None,
    load: LoadContract | None = None,
    cell: bool = False,
) -> tuple[Diagnostic, ...]:
    return Checker(program, source, profile, known or KnownNames(), cell, load).run()


def places(found: tuple[Diagnostic, ...]) -> list[Place]:
    return [(d.code, d.line, d.column) for d in found]
