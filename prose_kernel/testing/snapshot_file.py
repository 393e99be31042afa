"""The file with a program's expected results, `triage.prose.expected.md`, which people read and review.

It has one or more cases, each below a heading of the first level. The text between that heading and the line
`Exit status:` is written by people and never changed; it may have a block of TOML with the options of the case. Below
are the sections that `prose test --update` writes::

    # triage.prose

    ```toml
    input.report = "It crashes on Fridays"
    ```

    Exit status: 0

    ## Output line

    ```text
    The answer is forty-two.
    ```

A newline at the end of a text makes no difference. Control characters are shown by their Unicode pictures.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct, field

from prose_kernel.access import plain_files
from prose_kernel.access.atomic import write_whole
from prose_kernel.errors import UsageError, reason_of, usage_errors
from prose_kernel.language.text import code_fence
from prose_kernel.runs.toml_file import TomlFile
from prose_kernel.views.escaping import visible

SUFFIX = ".expected.md"
_FENCE = re.compile(r"(`{3,}|~{3,})(.*)$")
_STATUS = "Exit status: "


class CaseOptions(Struct, frozen=True):
    input: Mapping[str, str] = {}
    """Values of inputs by name."""
    yes: tuple[str, ...] = ()
    no: tuple[str, ...] = ()
    """Gates decided in advance."""
    directory: str = "."
    """The working directory, relative to that of the program."""
    provider: str = ""
    """`replay` (recordings, the default), or `scripted` with a file."""
    script: str = ""
    cassette: str = ""
    """The recording of this case; a record that it never uses is an error."""
    bindings: Annotated[bool | tuple[str, ...], "true or a list of names"] = False
    """Names whose values are part of the snapshot, or true for all."""
    ignore: tuple[str, ...] = ()
    """Sections that are not compared, such as `stderr`."""
    seconds: float | None = None
    """The limit of time."""
    strict: bool = False
    """Whether the language reference is applied literally."""


class SnapshotCase(Struct, frozen=True):
    """A case of a file: its name, the text above its results, and the results by section, in order."""

    name: str
    head: str
    options: CaseOptions
    status: int | None = None
    sections: Mapping[str, str] = field(default_factory=dict)


# ---------------------------------------------------------------- reading


def read(path: Path) -> list[SnapshotCase]:
    """Return the cases of a file. Raises `UsageError` if the file cannot be used."""
    try:
        text = plain_files.read(path).decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as problem:
        raise UsageError(f"cannot read {path.name}: {reason_of(problem, str(problem))}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path.name} is not UTF-8 text") from None
    cases = [_case(path.name, name, lines) for name, lines in _parts(text)]
    if not cases:
        raise UsageError(f"{path.name} has no case", hint="each case begins with a heading: # NAME")
    names = [case.name for case in cases]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{path.name} has two cases named {name}")
    return cases


def _parts(text: str) -> list[tuple[str, list[str]]]:
    """Return name and lines of each case. Text above the first heading belongs to the first case."""
    parts: list[tuple[str, list[str]]] = []
    above: list[str] = []
    fence = ""
    for line in text.split("\n"):
        fence = _fence_after(line, fence)
        if not fence and line.startswith("# ") and not line.startswith("# #"):
            parts.append((line[2:].strip(), [*above, line]))
            above = []
        elif parts:
            parts[-1][1].append(line)
        else:
            above.append(line)
    return parts


def _fence_after(line: str, fence: str) -> str:
    """Return the fence of the block that is open after a line; "" outside of blocks."""
    found = _FENCE.match(line)
    if found is None:
        return fence
    if not fence:
        return found[1]
    closes = found[1].startswith(fence) and not found[2].strip()
    return "" if closes else fence


def _case(file: str, name: str, lines: Sequence[str]) -> SnapshotCase:
    """Return the case in these lines: its head up to the line with the exit status, then its sections."""
    head: list[str] = []
    options: list[str] = []
    sections: dict[str, str] = {}
    status: int | None = None
    fence, kind, title = "", "", ""
    block: list[str] = []
    for line in lines:
        before, fence = fence, _fence_after(line, fence)
        if status is None and not fence and line.startswith(_STATUS):
            status = _number(file, name, line)
        elif not before and fence:
            kind, block = line.strip("`~ ").casefold(), []
        elif before and fence:
            block.append(line)
        elif before and status is not None:
            sections[title] = "\n".join(block)
        elif before and kind == "toml":
            options += block
        elif status is not None and line.startswith("## "):
            title = line[3:].strip()
        if status is None:
            head.append(line)
    return SnapshotCase(name, "\n".join(head).rstrip(), _options(file, name, "\n".join(options)), status, sections)


def _number(file: str, case: str, line: str) -> int:
    try:
        return int(line.removeprefix(_STATUS).split()[0])
    except (ValueError, IndexError):
        raise UsageError(f"{file}, {case}: {line!r} names no exit status") from None


def _options(file: str, case: str, text: str) -> CaseOptions:
    if not text.strip():
        return CaseOptions()
    place = f"{file}, {case}"
    try:
        data = tomllib.loads(text)
    except ValueError as problem:
        raise UsageError(f"{place}: its options are not TOML: {problem}") from None
    options = TomlFile(place, "", data, noun="option")
    found = options.values(CaseOptions)
    options.require()
    return CaseOptions(**found)


# ---------------------------------------------------------------- writing


def replace_tested(path: Path, text: str, stamp: plain_files.Stamp | None) -> None:
    """Write new results into a tested file. Raises `UsageError` if the file has changed since its `stamp` was taken."""
    if plain_files.stamp_of(path) != stamp:
        raise UsageError(f"{path.name} was changed while it was tested; it is not updated", hint="test it again")
    with usage_errors(f"cannot write {path.name}"):
        write_whole(path, text, in_place=True)


def written(cases: Sequence[SnapshotCase]) -> str:
    """Return the text of a file with these cases."""
    return "\n".join(_written(case) for case in cases)


def _written(case: SnapshotCase) -> str:
    if case.status is None:
        return f"{case.head}\n"
    parts = [case.head, "", f"{_STATUS}{case.status}", ""]
    for title, text in case.sections.items():
        fence = code_fence(text)
        kind = "json" if text[:1] in ("{", "[") and text[-1:] in ("}", "]") else "text"
        parts += [f"## {title}", "", f"{fence}{kind}", *([text] if text else []), fence, ""]
    return "\n".join(parts)


def shown(text: str) -> str:
    """Return a text in the form of a section."""
    return visible(text.replace("\r\n", "\n")).rstrip("\n")


def data_text(value: Any) -> str:
    """Return data in the form of a section: a text unchanged, everything else as JSON."""
    from prose_kernel.runtime.json_data import indented, json_text

    if isinstance(value, str):
        return shown(value)
    compact = json_text(value)
    return indented(compact) if isinstance(value, dict | list) else compact
