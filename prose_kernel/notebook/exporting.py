"""Convert a notebook to one program, and a program to a notebook.

The program consists of the texts of all cells. Constructs that only cells allow are rewritten (`Language.merged`).
Magics become comments, and settings also options of `prose run` in the first line; Markdown cells become comments.
Cells that cannot be part of one program are refused, with the reason. Blank lines are kept: between two cells there is
one; a cell with another number of blank lines above it has the number in its metadata.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from prose_kernel.errors import UsageError
from prose_kernel.language.fixes import replaced
from prose_kernel.language.incomplete_text import literals
from prose_kernel.language.source import Source
from prose_kernel.language.structs import replace
from prose_kernel.notebook.cell_scan import cell_language, has_statements, is_no_program, is_preview, segments
from prose_kernel.notebook.notebook_files import language_info
from prose_kernel.runs import languages
from prose_kernel.runs.languages import Language

if TYPE_CHECKING:
    from prose_kernel.runs.languages import Compiled

ROUNDS = 8
"""How often a joined text is changed and compiled again; each round fixes all findings of the previous one."""

_OPTIONS = {"input": "--input", "provider": "--provider", "judge": "--judge", "trust": "--trust", "remote": "--remote"}
_DISPLAY_ONLY = frozenset(
    (
        *("bindings", "binding", "agents", "blocks", "state", "help", "explain", "boundaries", "history", "usage"),
        *("prompt", "plan", "graph", "timeline", "profile", "tasks", "warnings", "clear", "export", "report", "show"),
        *("stale", "check"),
    )
)
"""Magics that only show something: a program runs the same without them."""
_SETTINGS = frozenset((*_OPTIONS, "cassette", "cd", "cwd", "gate"))  # without arguments they only show something, too


_RESETS = re.compile(r"^%reset\b.*$", re.MULTILINE)


class ExportedCell(Struct, frozen=True):
    """A cell to export. `name` is its name in messages, `is_text` marks text for people, `left_out` is the reason why
    it isn't part of the program but a comment, `gap` the number of blank lines above it."""

    text: str
    name: str
    is_text: bool = False
    left_out: str = ""
    gap: int = 1


class Exported(Struct, frozen=True):
    """A program, the options of `prose run` that it needs, and remarks about what was left out."""

    text: str
    language: Language
    options: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


# ---------------------------------------------------------------- a program of cells


def as_program(
    parts: Iterable[ExportedCell], default: Language, read: Callable[[str], tuple[str, Language]]
) -> Exported:
    """Return one program that does the same as the cells. `read` returns the text and language of a file for `%run`.

    Raises `UsageError`, with the reason, if the cells cannot be one program.
    """
    return _Program(default, read).of(list(parts))


class _Program(Struct):
    """A program under construction: its lines, and for each line the name of its cell."""

    default: Language
    read: Callable[[str], tuple[str, Language]]
    lines: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def of(self, parts: Sequence[ExportedCell]) -> Exported:
        parts = self._since_reset(parts)
        language = self._one_language(parts)
        for part in parts:
            text = self._text(part, language)
            if text.strip():
                self._add(text, part)
        text = self._merged("\n".join(self.lines).rstrip() + "\n" if self.lines else "", language)
        if self.options:
            text = f"# prose run {' '.join(self.options)} FILE\n\n{text}"
        return Exported(text, language, tuple(self.options), tuple(self.remarks))

    def _since_reset(self, parts: Sequence[ExportedCell]) -> Sequence[ExportedCell]:
        """Return the cells of a notebook's last run: the cells after the last `%reset`."""
        for number in range(len(parts) - 1, -1, -1):
            part = parts[number]
            found = None if part.is_text or part.left_out else list(_RESETS.finditer(part.text))
            if found:
                self.remarks.append(f"{part.name} begins a new run; the text above its %reset is left out")
                rest = replace(part, text=part.text[found[-1].end() :].lstrip("\n"))
                return [rest, *parts[number + 1 :]]
        return parts

    def _one_language(self, parts: Sequence[ExportedCell]) -> Language:
        used: dict[str, tuple[Language, list[str]]] = {}
        for part in parts:
            if not part.is_text and not part.left_out:
                language, text = cell_language(part.text, self.default)
                if any(not piece.magic and has_statements(piece.text) for piece in segments(text, language)):
                    used.setdefault(language.name, (language, []))[1].append(part.name)
        if len(used) > 1:
            listed = "; ".join(f"{language.title}: {', '.join(names)}" for language, names in used.values())
            raise UsageError(
                f"the cells are in several languages, and a program is in one ({listed})",
                hint="prose run NOTEBOOK.ipynb runs all of them in one run",
            )
        return next((language for language, _ in used.values()), self.default)

    def _add(self, text: str, part: ExportedCell) -> None:
        lines = text.rstrip().split("\n")  # white space at the end of a cell has no meaning
        while lines and not lines[0].strip():
            del lines[0]
        added = [*([""] * part.gap if self.lines else []), *lines]
        self.lines += added
        self.names += [part.name] * len(added)

    # ------------------------------------------------------------ one cell

    def _text(self, part: ExportedCell, language: Language) -> str:
        if part.is_text:
            return comment(part.text)
        if part.left_out:
            self.remarks.append(f"{part.name} is left out: {part.left_out}")
            return comment(f"{part.name} is left out: {part.left_out}\n{part.text.strip()}")
        _, text = cell_language(part.text, self.default)
        if is_no_program(text):
            if text.lstrip().startswith("%%"):
                self.remarks.append(f"{part.name} is left out: {text.split()[0]} isn't a statement")
            return comment(part.text.strip())
        pieces = segments(text, language)
        if pieces and pieces[0].magic and is_preview(pieces):
            return comment(part.text.strip())
        return "\n".join(
            self._magic(piece.text, part.name, language) if piece.magic else piece.text.strip("\n") for piece in pieces
        )

    def _magic(self, line: str, name: str, language: Language) -> str:
        """Return the program text for a magic line."""
        word, _, rest = line.partition(" ")
        if languages.of_magic(word) is not None:  # as magics are written in Python
            word, _, rest = rest.strip().partition(" ")
        rest = rest.strip()
        shown = comment(f"%{line}")
        if word == "run" and rest:
            text, other = self.read(shlex.split(rest)[0])
            if other is not language:
                raise UsageError(f"{name}: %run {rest} runs {other.title}, and this program is {language.title}")
            return f"{shown}\n{text.rstrip()}"
        if word in ("cd", "cwd") and rest and (changes := language.change_directory(shlex.split(rest)[0])):
            return f"{shown}\n{changes}"
        if word == "gate" and len(decided := rest.split()) >= 2 and decided[0] in ("approve", "reject"):
            self.options.append(f"{'--yes' if decided[0] == 'approve' else '--no'} {shlex.quote(decided[1])}")
        elif word == "cassette" and rest:
            self.options += _cassette(rest)
        elif word in _OPTIONS and rest:
            self.options += _option(word, rest)
        elif word in ("restore", "back"):
            raise UsageError(f"{name}: %{word} brings back another state of the run, which a program cannot")
        elif word not in _DISPLAY_ONLY and word not in _SETTINGS:
            self.remarks.append(f"{name}: %{line} is left out")
        return shown

    # ------------------------------------------------------------ the whole text

    def _merged(self, text: str, language: Language) -> str:
        """Rewrite constructs that only cells allow. Raises `UsageError` if the text cannot be a program."""
        for _ in range(ROUNDS):
            compiled = language.compile(Source.of(text, "program"))
            edits = {edit.span: edit for edit in language.merged(compiled)}
            if compiled.ok or not edits:
                break
            text = replaced(text, edits.values())
        self._check(compiled, language)
        return text

    def _check(self, compiled: Compiled, language: Language) -> None:
        wrong = next((d for d in compiled.diagnostics if d.severity == "error"), None)
        if wrong is not None:
            name = self.names[wrong.line - 1] if wrong.line <= len(self.names) else ""
            raise UsageError(f"{name}: this cannot be one program: {wrong.message} [{wrong.code}]", hint=wrong.hint)
        last = self.names[-1] if self.names else ""
        for span in language.ends(compiled.program):
            line = compiled.source.line_column(span.start)[0]
            if self.names[line - 1] != last:
                raise UsageError(
                    f"{self.names[line - 1]}: `{compiled.source.line_text(line).strip()}` ends only this cell,"
                    " and would end the whole program",
                    hint="put what follows it into `else`, or make a block of the cell",
                )


def _option(word: str, rest: str) -> Iterator[str]:
    """Yield the options of `prose run` for a magic."""
    words = shlex.split(rest)
    if word == "provider" and words[:1] == ["scripted"] and len(words) == 2:
        yield f"--provider scripted --script {shlex.quote(words[1])}"
    elif word == "input":  # as the magic reads it
        value = words[0].partition("=")[2] if len(words) == 1 else rest.partition("=")[2].strip()
        yield f"--input {rest.partition('=')[0].strip()}={shlex.quote(value)}"
    else:
        yield " ".join((_OPTIONS[word], *map(shlex.quote, words)))


def _cassette(rest: str) -> Iterator[str]:
    words = shlex.split(rest)
    while words:
        word = words.pop(0)
        if word in ("--mode", "--stale") and words:
            yield f"--cassette-{word[2:]} {shlex.quote(words.pop(0))}"
        elif not word.startswith("-"):
            yield f"--cassette {shlex.quote(word)}"


def comment(text: str) -> str:
    """Return text as comment lines."""
    return "\n".join(f"# {line}" if line else "#" for line in text.split("\n"))


# ---------------------------------------------------------------- a notebook from a program


class Piece(Struct, frozen=True):
    """A cell of a notebook that is made from a program. `prose` are the entries under `prose` in its metadata, such as
    `gap`, the number of blank lines above it."""

    kind: Literal["code", "markdown", "raw"]
    text: str
    prose: Mapping[str, Any] = field(default_factory=dict)


def as_cells(program: Any, source: Source, language: Language) -> list[Piece]:
    """Split a program without errors into cells: comments between top-level statements become Markdown cells.

    Cells begin at top-level statements with a blank line or a comment above them, and never between a name's use and
    its definition below.
    """
    lines = source.text.split("\n")
    words = _comment_lines(program, source, language, lines)
    starts = _starts(program, source, language)
    pieces: list[list[str]] = []
    kinds: list[Literal["code", "markdown"]] = []
    gaps: list[int] = []
    blank = 0
    for number, line in enumerate(lines, 1):
        if not line.strip() and not _inside(program, source, number):
            blank += 1
            continue
        kind: Literal["code", "markdown"] = "markdown" if number in words else "code"
        begins = not pieces or kind != kinds[-1] or blank > 0
        if begins and (not pieces or kind == "markdown" or kinds[-1] == "markdown" or number in starts):
            pieces.append([line])
            kinds.append(kind)
            gaps.append(blank)
        else:
            pieces[-1] += [*[""] * blank, line]
        blank = 0
    usual = [0, *([1] * len(gaps))]
    prose = [{"gap": gap} if gap != expected else {} for gap, expected in zip(gaps, usual, strict=False)]
    return [_piece(*parts) for parts in zip(kinds, pieces, prose, strict=True)]


def _piece(kind: Literal["code", "markdown"], lines: Sequence[str], prose: Mapping[str, Any]) -> Piece:
    words = "\n".join(line[2:] for line in lines)
    if kind == "markdown" and words.strip():
        return Piece("markdown", words, prose)
    return Piece("code", "\n".join(lines), prose)


_WORDS = re.compile(r"#(?: .*\S.*)?")
_MARKER = re.compile(r"#[# \t]*NBVAL_\w+[ \t]*")


def _comment_lines(program: Any, source: Source, language: Language, lines: Sequence[str]) -> set[int]:
    """Return the numbers of lines with comments for people, between top-level statements."""
    found = {
        number
        for number, line in enumerate(lines, 1)
        if _WORDS.fullmatch(line) and not _MARKER.fullmatch(line) and not _inside(program, source, number)
    }
    for region in literals(source.text, language.delimiters):
        if region.kind != "comment":
            first, last = (source.line_column(at)[0] for at in (region.start, max(region.start, region.end - 1)))
            found.difference_update(range(first + 1, last + 1))
    allowed = {source.line_column(offset)[0] for offset in _boundaries(program, source, language)}
    return {number for number in found if _next_code(number, found, lines) in {None, *allowed}}


def _next_code(number: int, words: set[int], lines: Sequence[str]) -> int | None:
    """Return the number of the next line of code; None if there is none."""
    for later in range(number + 1, len(lines) + 1):
        if later not in words and lines[later - 1].strip():
            return later
    return None


def _inside(program: Any, source: Source, number: int) -> bool:
    """Return whether a line is inside a top-level statement, below its first line."""
    start = source.line_starts[number - 1]
    return any(item.span.start < start < item.span.end for item in program.items)


def _starts(program: Any, source: Source, language: Language) -> set[int]:
    """Return the numbers of lines at which a code cell may begin: comments belong to the code below them."""
    found = {source.line_column(offset)[0] for offset in _boundaries(program, source, language)}
    for number in sorted(found):
        while number > 1 and source.line_text(number - 1).startswith("#"):
            number -= 1
        found.add(number)
    return found


def _boundaries(program: Any, source: Source, language: Language) -> list[int]:
    """Return the offsets where a cell may begin: top-level statements, unless text above uses a name that is defined
    there or below. A program that may end early stays one cell, because in a cell that would end only the cell."""
    starts = [item.span.start for item in program.items]
    if any(language.ends(program)):
        return starts[:1]
    defined: dict[int, int] = {}
    used: dict[int, int] = {}
    for one in language.index(program, source).occurrences:
        if one.symbol is not None:
            places = defined if one.defines else used
            places[id(one.symbol)] = min(one.start, places.get(id(one.symbol), one.start))
    apart = [(at, defined[symbol]) for symbol, at in used.items() if defined.get(symbol, -1) > at]
    return [start for start in starts if not any(use < start <= definition for use, definition in apart)]


def notebook_data(
    pieces: Sequence[Piece], language: Language, prose: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the notebook file of these cells, for the kernel of their language. The ids of cells depend only on their
    text. `prose` are the entries under `prose` in the notebook's metadata."""
    known: set[str] = set()
    return {
        "cells": [_cell(piece, known) for piece in pieces],
        "metadata": {
            **({"prose": dict(prose)} if prose else {}),
            "kernelspec": {
                "display_name": language.title.removeprefix("Open"),
                "language": language.magic,
                "name": language.magic,
            },
            "language_info": language_info(language),
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell(piece: Piece, known: set[str]) -> dict[str, Any]:
    count = 0
    while (name := hashlib.sha256(f"{piece.kind}\n{count}\n{piece.text}".encode()).hexdigest()[:12]) in known:
        count += 1
    known.add(name)
    metadata = {"prose": dict(piece.prose)} if piece.prose else {}
    source = piece.text.splitlines(keepends=True)
    if piece.kind != "code":
        return {"cell_type": piece.kind, "id": name, "metadata": metadata, "source": source}
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": name,
        "metadata": metadata,
        "outputs": [],
        "source": source,
    }
