"""The catalogue of messages: programs, each with the findings of the compiler below it.

`messages_openprose.txt` and `messages_vvm.txt` are sequences of cases. A case is a line `===`, which may end with the name of
a group, the program, and one line for each finding: `» CODE LINE:COLUMN MESSAGE`, with `»   HINT` below it where there is a
hint. `make generated` writes these lines again; a test compares them. To add a case, write its program and run it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from prose_kernel.language.diagnostics import Diagnostic
from prose_kernel.language.source import Source
from prose_kernel.runs import languages

CATALOGUES = {name: Path(__file__).parent / f"messages_{name}.txt" for name in languages.LANGUAGES}
_CASE = re.compile(r"^===(?: (.+))?\n((?:(?!===|»).*\n)*)((?:».*\n)*)", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    group: str
    program: str
    written: str

    @property
    def header(self) -> str:
        return f"=== {self.group}" if self.group else "==="


def cases(language: str, group: str | None = None) -> list[Case]:
    """Return the cases of a catalogue, or of one group in it."""
    text = CATALOGUES[language].read_text(encoding="utf-8")
    found = [Case(*(part or "" for part in match.groups())) for match in _CASE.finditer(text)]
    return [case for case in found if group in (None, case.group)]


def found(language: str, program: str) -> tuple[Diagnostic, ...]:
    return tuple(languages.LANGUAGES[language].compile(Source.of(program)).diagnostics)


def catalogue(language: str) -> str:
    """Return the catalogue with the current findings."""
    return "".join(
        f"{case.header}\n{case.program}" + "".join(map(_lines, found(language, case.program)))
        for case in cases(language)
    )


def _lines(one: Diagnostic) -> str:
    hint = f"»   {one.hint}\n" if one.hint else ""
    return f"» {one.code} {one.line}:{one.column} {one.message}\n{hint}"


def main() -> None:
    for language, path in CATALOGUES.items():
        path.write_text(catalogue(language), encoding="utf-8")


if __name__ == "__main__":
    main()
