"""Convert contract files to notebooks and back, and declare the parameters of nodes in cells (prose-md.md 10).

The front matter is a raw cell, the text from one heading to the next a Markdown cell, each fence of a script a code
cell. Magics aren't part of a script, so a magic line in a script becomes a comment. A cell of magics only is kept in a
fence `prose-notebook`, which becomes a code cell when the file is opened again.

A cell's metadata keeps under `prose` what its text does not show, if it differs from the usual form: `open` and
`close`, the lines of its fence; `end`, the blank lines below it. `exact` is the cell's original text in the file, if
these cannot reproduce it; it is used as long as the cell's text is unchanged. The notebook's metadata has
`prose.contract`, with the file's byte order mark and line ends. Outputs are not part of a contract file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal

from prose_kernel.access import plain_files
from prose_kernel.errors import UsageError
from prose_kernel.language.contracts import SUFFIX
from prose_kernel.language.contracts.interface import INPUT_SECTIONS, contract_of, truth_names
from prose_kernel.language.contracts.reader import blocks, read
from prose_kernel.language.contracts.tree import NOTEBOOK, ContractNode
from prose_kernel.language.source import Source
from prose_kernel.notebook.cell_scan import draft_language, has_statements, is_no_program, is_preview, segments
from prose_kernel.notebook.exporting import Piece, notebook_data
from prose_kernel.notebook.notebook_files import decoded
from prose_kernel.runs import languages

Kind = Literal["code", "markdown", "raw"]
_literal: Final = languages.default().literal
_PROFILE: Final = "prosescript"
_WORD: Final = "prose"
_BOM: Final = "\ufeff"
_BLANK_LINES: Final = re.compile(r"(?:[ \t]*\n)+")
_FENCE_SIGNS: Final = re.compile(r"`{3,}|~{3,}")
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")


def is_contract_notebook(metadata: Mapping[str, Any]) -> bool:
    """Return whether a notebook was made from a contract file."""
    return _contract(metadata) is not None


def as_notebook(text: str, name: str) -> dict[str, Any]:
    """Return the notebook of a contract file. Its `text` is decoded and otherwise unchanged; any text is accepted."""
    marked = text.startswith(_BOM)
    text = text.removeprefix(_BOM)
    lines = _LINE.findall(text)
    source = Source(text.replace("\r\n", "\n"), name)
    ended = [line for line in lines if line.endswith("\n")]
    crlf = bool(ended) and all(line.endswith("\r\n") for line in ended)
    mixed = not crlf and "\r\n" in text
    pieces = []
    for kind, start, end in _cell_spans(source):
        raw = source.text[start:end]
        if mixed:
            first = source.line_column(start)[0] - 1
            raw = "".join(lines[first : first + len(_LINE.findall(raw))])
        pieces.append(_piece(kind, raw, last=end == len(source.text)))
    contract = {**({"bom": True} if marked else {}), **({"crlf": True} if crlf else {})}
    return notebook_data(pieces, languages.default(), {"profile": _PROFILE, "contract": contract})


def as_file(notebook: Mapping[str, Any]) -> str:
    """Return the contract file of a notebook: the text that was passed to `as_notebook`, except for changed cells.

    Raises `UsageError` for a cell with attachments, which a text file cannot hold.
    """
    contract = _contract(notebook.get("metadata", {})) or {}
    cells = [cell for cell in notebook["cells"] if _text(cell).strip() or _prose_metadata(cell)]
    parts = [_file_part(cell, last=cell is cells[-1]) for cell in cells]
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


def _cell_spans(source: Source) -> list[tuple[Kind, int, int]]:
    """Return the parts of a file that become cells, with their starts and ends. Blank lines belong to the part above
    them."""
    file, _ = read(source)
    scripts = {fence.span for node in file.nodes for fence in node.fences if fence.closed}
    scripts.update(one.span for one in file.blocks if one.kind == "fence" and one.closed and one.text == NOTEBOOK)
    begins: list[tuple[Kind, int]] = []
    for block in file.blocks:
        start, end = block.span
        kind: Kind = "raw" if block.kind == "frontmatter" else "code" if block.span in scripts else "markdown"
        if block.kind == "text" and begins and (blank := _BLANK_LINES.match(source.text, start, end)) is not None:
            start = blank.end()
        opens = kind != "markdown" or 0 < block.level <= 3 or not begins or begins[-1][0] != "markdown"
        if opens and start < end:
            begins.append((kind, start))
    places = pairwise([*(start for _, start in begins), len(source.text)])
    return [(kind, start, end) for (kind, _), (start, end) in zip(begins, places, strict=True)]


def _piece(kind: Kind, raw: str, *, last: bool) -> Piece:
    """Return the cell for a part of the file."""
    text, own = _read(kind, raw)
    usual = {"end": _end(last)}
    if kind == "code":
        usual |= {"open": _opener(_script(text)), "close": _closer(own["open"])}
    own = {key: value for key, value in own.items() if value != usual[key]}
    if not text.strip() or _render(kind, text, own, last=last) != raw:
        own["exact"] = raw
    return Piece(kind, text, own)


def _read(kind: Kind, raw: str) -> tuple[str, dict[str, str]]:
    """Return the text of a cell, and the text around it in the file."""
    raw = raw.replace("\r\n", "\n")
    first = next(iter(blocks(raw)), None) if kind == "code" else None
    if first is None or first.kind != "fence":
        text = raw.rstrip(" \t\n")
        return text, {"end": raw[len(text) :]}
    fence, end = raw[first.inside.end : first.span.end].rstrip("\n"), first.inside.end
    own = {"open": raw[: first.inside.start].rstrip("\n"), "close": fence, "end": raw[end + len(fence) :]}
    lines = _LINE.findall(raw, first.inside.start, first.inside.end)
    text = "".join(line[min(first.margin, len(line) - len(line.lstrip(" "))) :] for line in lines)
    return text.removesuffix("\n"), own


# ---------------------------------------------------------------- cells to a file


def _text(cell: Mapping[str, Any]) -> str:
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(source)


def _prose_metadata(cell: Mapping[str, Any]) -> dict[str, str]:
    """Return the entries under `prose` in a cell's metadata that are texts."""
    own = cell.get("metadata", {}).get("prose")
    return {key: value for key, value in own.items() if isinstance(value, str)} if isinstance(own, Mapping) else {}


def _file_part(cell: Mapping[str, Any], *, last: bool) -> str:
    if cell.get("attachments"):
        raise UsageError("a contract file cannot hold an attached image", hint="save the image as a file, and link it")
    found = cell.get("cell_type")
    kind: Kind = "code" if found == "code" else "raw" if found == "raw" else "markdown"
    text, own = _text(cell), _prose_metadata(cell)
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
    """Return the script of a code cell, with magics as comments; None if the cell has no script."""
    if not text.strip() or ("%" not in text and text.strip()[0] not in "!?" and not text.rstrip().endswith("?")):
        return text
    language, program = draft_language(text, languages.default())
    pieces = segments(program, language)
    if language is not languages.default() and language.profile != _PROFILE:
        return None
    if is_no_program(program) or not pieces or (pieces[0].magic and is_preview(pieces)):
        return None
    lines = text.split("\n")
    magics = {piece.line for piece in pieces if piece.magic} | ({1} if program is not text else set())
    if magics and not any(has_statements(piece.text) for piece in pieces if not piece.magic):
        return None
    return "\n".join(f"# {line}" if number in magics else line for number, line in enumerate(lines, 1))


def _opener(script: str | None) -> str:
    return f"```{_WORD}" if script is not None else f"```{NOTEBOOK}"


def _fence(lines: Iterable[str], own: Mapping[str, str], usual: str) -> tuple[str, str]:
    """Return the lines around a script: the original ones, or longer ones if a line of the script would close them."""
    opener = own.get("open", usual)
    found = _FENCE_SIGNS.search(opener)
    if found is None or (opener[found.end() :].split() or [""])[0] != usual[3:]:
        opener, own = usual, {}
        found = _FENCE_SIGNS.match(opener)
    signs = found[0] if found is not None else "```"
    inside = [line.strip() for line in lines]
    longest = max((len(line) for line in inside if line.startswith(signs) and not line.strip(signs[0])), default=0)
    if longest:
        opener = opener.replace(signs, signs[0] * (longest + 1), 1)
        return opener, _closer(opener)
    return opener, own.get("close", _closer(opener))


def _closer(opener: str) -> str:
    """Return the usual closing line of a fence that begins with the line `opener`."""
    found = _FENCE_SIGNS.search(opener)
    return opener[: found.end()] if found is not None else "```"


def _end(last: bool) -> str:
    return "\n" if last else "\n\n"


# ---------------------------------------------------------------- parameters

# A cell has no contract. So the parameters that its script reads are declared by statements before the cell runs:
# `input` for a parameter, which `%input` supplies or the user types, `const` for the default of an optional one.


def declarations(notebook: Path, text: str, bound: Collection[str], supplied: Collection[str]) -> str:
    """Return statements that declare the parameters read by `text` that are not yet `bound`: "" if there are none, and
    for a notebook that isn't a contract file or cannot be read."""
    lines: dict[str, str] = {}
    for node in _nodes(notebook):
        for one in contract_of(node).inputs:
            if one.name not in bound and _uses_name(text, one.name):
                is_given = one.name in supplied or not one.optional
                default = f"const {one.name} = {_literal(one.default, one.name)}\n"
                lines.setdefault(one.name, _input_statement(node, one.name) if is_given else default)
        for name in truth_names(node) if node.kind == "responsibility" else ():
            if name not in bound and _uses_name(text, name):
                lines.setdefault(name, f"let {name} = null\n")
    return "".join(lines.values())


def _nodes(notebook: Path) -> Iterator[ContractNode]:
    """Yield the nodes that have a script."""
    try:
        content = plain_files.read(notebook)
        text = content.decode("utf-8-sig") if notebook.name.endswith(SUFFIX) else _of_notebook(notebook.name, content)
    except (OSError, UsageError, UnicodeDecodeError):
        return
    file, _ = read(Source.of(text, notebook.name))
    yield from (node for node in file.nodes if node.fences)


def _of_notebook(name: str, content: bytes) -> str:
    if b'"contract"' not in content:
        return ""
    _, data = decoded(name, content)
    return as_file(data) if is_contract_notebook(data.get("metadata", {})) else ""


def _uses_name(text: str, name: str) -> bool:
    """Return whether a text uses a name that it doesn't declare itself."""
    own = re.search(rf"^[ \t]*(?:let|const|input)[ \t]+{re.escape(name)}\b", text, re.MULTILINE)
    return own is None and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) is not None


def _input_statement(node: ContractNode, name: str) -> str:
    item = node.item(name, INPUT_SECTIONS)
    return f"input {name}: {_literal((item.words if item is not None else '') or name, name)}\n"
