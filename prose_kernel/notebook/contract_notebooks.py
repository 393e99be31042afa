"""A contract file as a notebook, and back (prose-md.md 10).

The front matter is a raw cell, the text from one heading to the next a Markdown cell, each fence of a script a code
cell. Magics are no script: a magic line in a script becomes a comment, and a cell that has nothing else is kept in a
fence `prose-notebook`, which is a code cell when the file is opened again.

Below `prose` in its metadata a cell keeps what its text does not show and what differs from the usual: `open` and
`close`, the lines of its fence; `end`, the blank lines below it. `exact` is the stretch of the file as it was, for what
cannot be written back from these; it is used as long as the cell's text is the same. The notebook's metadata has
`prose.contract`, with the file's byte order mark and line ends. Outputs are not part of a contract file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from prose_kernel.errors import UsageError
from prose_kernel.language.contracts.layout import Block, blocks
from prose_kernel.language.contracts.reader import read
from prose_kernel.language.contracts.tree import NOTEBOOK
from prose_kernel.language.source import Source
from prose_kernel.notebook.exporting import Piece, notebook_data
from prose_kernel.notebook.scan import has_statements, is_no_program, looks_ahead, segments, spoken
from prose_kernel.runs import languages

Kind = Literal["code", "markdown", "raw"]
_PROFILE: Final = "prosescript"
_WORD: Final = "prose"
_BOM: Final = "\ufeff"
_BLANK_LINES: Final = re.compile(r"(?:[ \t]*\n)+")
_SIGNS: Final = re.compile(r"`{3,}|~{3,}")
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")


def is_contract_notebook(metadata: Mapping[str, Any]) -> bool:
    """Whether a notebook was made of a contract file."""
    return _contract(metadata) is not None


def as_notebook(text: str, name: str) -> dict[str, Any]:
    """The notebook of a contract file, whose `text` is decoded and otherwise as it was read. Any text has one."""
    marked = text.startswith(_BOM)
    text = text.removeprefix(_BOM)
    lines = _LINE.findall(text)
    source = Source(text.replace("\r\n", "\n"), name)
    ended = [line for line in lines if line.endswith("\n")]
    crlf = bool(ended) and all(line.endswith("\r\n") for line in ended)
    mixed = not crlf and "\r\n" in text
    stretches = _stretches(source)
    pieces = []
    for one in stretches:
        raw = source.text[one.start : one.end]
        if mixed:
            first = source.line_column(one.start)[0] - 1
            raw = "".join(lines[first : first + len(_LINE.findall(raw))])
        pieces.append(_piece(one.kind, raw, last=one is stretches[-1]))
    contract = {**({"bom": True} if marked else {}), **({"crlf": True} if crlf else {})}
    return notebook_data(pieces, languages.default(), {"profile": _PROFILE, "contract": contract})


def as_file(notebook: Mapping[str, Any]) -> str:
    """The contract file of a notebook: what `as_notebook` was given, where no cell was changed.

    Raises `UsageError` for a cell with attachments, which a file of text cannot hold.
    """
    contract = _contract(notebook.get("metadata", {})) or {}
    cells = [cell for cell in notebook["cells"] if _text(cell).strip() or _own(cell)]
    parts = [_written(cell, last=cell is cells[-1]) for cell in cells]
    parts = [part if part.endswith("\n") else f"{part}\n" for part in parts[:-1]] + parts[-1:]
    text = "".join(parts)
    if contract.get("crlf") is True:
        text = text.replace("\n", "\r\n")
    return f"{_BOM}{text}" if contract.get("bom") is True else text


def _contract(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    own = metadata.get("prose")
    contract = own.get("contract") if isinstance(own, Mapping) else None
    return contract if isinstance(contract, Mapping) else None


# ---------------------------------------------------------------- a file to cells


@dataclass(slots=True)
class _Stretch:
    """A part of the file that becomes a cell."""

    kind: Kind
    start: int
    end: int


def _stretches(source: Source) -> Sequence[_Stretch]:
    """The parts of a file; they tile it. Blank lines belong to what is above them."""
    file, _ = read(source)
    scripts = {fence.span for node in file.nodes for fence in node.fences if fence.closed}
    scripts.update(one.span for one in file.blocks if one.kind == "fence" and one.closed and one.text == NOTEBOOK)
    found: list[_Stretch] = []
    for block in file.blocks:
        start, end = block.span
        kind: Kind = "raw" if block.kind == "frontmatter" else "code" if block.span in scripts else "markdown"
        if block.kind == "text" and found and (blank := _BLANK_LINES.match(source.text, start, end)) is not None:
            start = found[-1].end = blank.end()
        begins = kind != "markdown" or 0 < block.level <= 3 or not found or found[-1].kind != "markdown"
        if start == end:
            continue
        if begins:
            found.append(_Stretch(kind, start, end))
        else:
            found[-1].end = end
    return found


def _piece(kind: Kind, raw: str, *, last: bool) -> Piece:
    """The cell of a stretch."""
    text, own = _read(kind, raw)
    usual = {"end": _end(last)}
    if kind == "code":
        usual |= {"open": _opener(_script(text)), "close": _closer(own["open"])}
    own = {key: value for key, value in own.items() if value != usual[key]}
    if not text.strip() or _render(kind, text, own, last=last) != raw:
        own["exact"] = raw
    return Piece(kind, text, own)


def _read(kind: Kind, raw: str) -> tuple[str, dict[str, str]]:
    """The text of a cell, and what is around it in the file."""
    raw = raw.replace("\r\n", "\n")
    first = next(iter(blocks(raw)), None) if kind == "code" else None
    if first is None or first.kind != "fence":
        text = raw.rstrip(" \t\n")
        return text, {"end": raw[len(text) :]}
    fence, end = raw[first.inside.end : first.span.end].rstrip("\n"), first.inside.end
    own = {"open": raw[: first.inside.start].rstrip("\n"), "close": fence, "end": raw[end + len(fence) :]}
    return _dedented(raw, first).removesuffix("\n"), own


def _dedented(raw: str, fence: Block) -> str:
    lines = _LINE.findall(raw, fence.inside.start, fence.inside.end)
    return "".join(line[min(fence.margin, len(line) - len(line.lstrip(" "))) :] for line in lines)


# ---------------------------------------------------------------- cells to a file


def _text(cell: Mapping[str, Any]) -> str:
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(source)


def _own(cell: Mapping[str, Any]) -> dict[str, str]:
    """What is below `prose` in a cell's metadata, as far as it is text."""
    own = cell.get("metadata", {}).get("prose")
    return {key: value for key, value in own.items() if isinstance(value, str)} if isinstance(own, Mapping) else {}


def _written(cell: Mapping[str, Any], *, last: bool) -> str:
    if cell.get("attachments"):
        raise UsageError("a contract file cannot hold an attached image", hint="save the image as a file, and link it")
    found = cell.get("cell_type")
    kind: Kind = "code" if found == "code" else "raw" if found == "raw" else "markdown"
    text, own = _text(cell), _own(cell)
    if (exact := own.get("exact")) is not None and _read(kind, exact)[0] == text:
        return exact
    return _render(kind, text, own, last=last)


def _render(kind: Kind, text: str, own: Mapping[str, str], *, last: bool) -> str:
    end = own.get("end", _end(last))
    if kind != "code":
        return f"{text}{end}"
    script = _script(text)
    inside = (text if script is None else script).split("\n")
    opener, closer = _fence(inside, own, _opener(script))
    margin = opener[: len(opener) - len(opener.lstrip())]
    lines = [f"{margin}{line}\n" if line else "\n" for line in inside] if text else []
    return "".join([f"{opener}\n", *lines, f"{closer}{end}"])


def _script(text: str) -> str | None:
    """The script of a code cell, magics as comments; None where it has nothing else."""
    if not text.strip() or ("%" not in text and text.strip()[0] not in "!?" and not text.rstrip().endswith("?")):
        return text
    language, program = spoken(text, languages.default())
    pieces = segments(program, language)
    if language is not languages.default() and language.profile != _PROFILE:
        return None
    if is_no_program(program) or not pieces or (pieces[0].magic and looks_ahead(pieces)):
        return None
    lines = text.split("\n")
    magics = {piece.line for piece in pieces if piece.magic} | ({1} if program is not text else set())
    if magics and not any(has_statements(piece.text) for piece in pieces if not piece.magic):
        return None
    return "\n".join(f"# {line}" if number in magics else line for number, line in enumerate(lines, 1))


def _opener(script: str | None) -> str:
    return f"```{_WORD}" if script is not None else f"```{NOTEBOOK}"


def _fence(lines: Iterable[str], own: Mapping[str, str], usual: str) -> tuple[str, str]:
    """The lines around a script: those that it had, longer where one of its lines would close the fence."""
    opener = own.get("open", usual)
    found = _SIGNS.search(opener)
    if found is None or (opener[found.end() :].split() or [""])[0] != usual[3:]:
        opener, own = usual, {}
        found = _SIGNS.match(opener)
    signs = found[0] if found is not None else "```"
    inside = [line.strip() for line in lines]
    longest = max((len(line) for line in inside if line.startswith(signs) and not line.strip(signs[0])), default=0)
    if longest:
        opener = opener.replace(signs, signs[0] * (longest + 1), 1)
        return opener, _closer(opener)
    return opener, own.get("close", _closer(opener))


def _closer(opener: str) -> str:
    """The usual line below a fence that begins with the line `opener`."""
    found = _SIGNS.search(opener)
    return opener[: found.end()] if found is not None else "```"


def _end(last: bool) -> str:
    return "\n" if last else "\n\n"
