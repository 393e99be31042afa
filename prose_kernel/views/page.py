"""Render documents as self-contained HTML pages: the frame, the style, and the escaping of untrusted text.

The page has no script, and its policy (`Content-Security-Policy`) forbids scripts and loading; the only style sheet is
allowed by its hash. Text of programs, commands and sessions is escaped by its element (`tag`), or passes through
`terminal_text` or `markdown_text`, which remove active and hidden content.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from prose_kernel.access import plain_files
from prose_kernel.errors import UsageError, reason_of
from prose_kernel.views import document as doc
from prose_kernel.views.escaping import Html, html, tag, terminal, visible

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

GENERATOR: Final = "prose_kernel"
"""The generator in the metadata of our pages; such pages may be replaced."""


class Section(Struct, frozen=True):
    """A part of a page with a title, which the table of contents lists. `inner` has the ids and titles of its parts
    that are listed, too."""

    id: str
    title: str
    body: Html
    inner: Sequence[tuple[str, str]] = ()


class Filter(Struct, frozen=True):
    """A filter that works without a script. Each of the `options` shows one class of elements, the first one shows all.
    `of` is the class of all filtered elements; an element that also has the class `group` is shown if any of its
    content is shown."""

    id: str
    title: str
    of: str
    options: Sequence[tuple[str, str]]


def page(title: str, head: Html, sections: Sequence[Section], choice: Filter | None = None) -> str:
    """Return a whole page; `head` is shown above its sections."""
    style = _style(choice)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    listed = tag("ol", *map(_listed, sections))
    filters = _radios(choice.id, choice.title, choice.options) if choice is not None else ""
    themes = _radios("theme", "Colours", (("auto", "Auto"), ("light", "Light"), ("dark", "Dark")))
    body = (html(tag("section", tag("h2", s.title, id=s.id), "\n", s.body), "\n") for s in sections)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="generator" content="{GENERATOR}">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">\n'
        f"{tag('title', title)}\n<style>{style}</style></head>\n<body>"
        f'<nav aria-label="Contents">{listed}{filters}{themes}</nav>\n'
        f"{tag('main', head, chr(10), *body)}</body></html>\n"
    )


def _listed(section: Section) -> Html:
    inner = [tag("li", tag("a", title, href=f"#{id_}")) for id_, title in section.inner]
    return tag("li", tag("a", section.title, href=f"#{section.id}"), tag("ol", *inner) if inner else "")


def _radios(name: str, title: str, options: Sequence[tuple[str, str]]) -> Html:
    found: list[Html] = []
    for number, (key, shown) in enumerate(options):
        found.append(tag("input", type="radio", name=name, id=f"{name}-{key}", checked=not number))
        found.append(tag("label", shown, for_=f"{name}-{key}"))
    return tag("fieldset", tag("legend", title), *found)


@cache
def _sheet() -> str:
    return resources.files(__package__).joinpath("page.css").read_text("utf-8")


def _style(choice: Filter | None) -> str:
    rules = [_sheet()]
    for key, _ in choice.options[1:] if choice is not None else ():
        assert choice is not None
        others = f"body:has(#{choice.id}-{key}:checked) .{choice.of}:not(.{key})"
        rules.append(f"{others}:not(.group), {others}.group:not(:has(.{key})) {{ display: none; }}\n")
    return "".join(rules)


def check_page(path: Path, *, force: bool) -> None:
    """Raise `UsageError` if a page can't be written to this path. A missing directory can be created."""
    try:
        if path.is_dir():
            hint = f"name a file, such as {_named(path / 'report.html')}"
            raise UsageError(f"{_named(path)} is a directory", hint=hint)
        if not force and path.exists() and not is_ours(path):
            raise UsageError(f"{_named(path)} exists and isn't a report", hint="name another file, or add --force")
        directory = next(parent for parent in path.absolute().parents if parent.exists())
        if not directory.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(directory, os.W_OK | os.X_OK):
            number = errno.EROFS if os.statvfs(directory).f_flag & os.ST_RDONLY else errno.EACCES
            raise OSError(number, os.strerror(number))
    except (OSError, ValueError) as problem:
        raise _unwritten(path, problem) from None


def _named(path: Path) -> str:
    """Return a path for messages: relative to the working directory if it is below it."""
    from prose_kernel.storage.run_paths import shown

    return shown(path, Path.cwd()) if path.is_absolute() else str(path)


def _unwritten(path: Path, problem: Exception) -> UsageError:
    reason = reason_of(problem, "it isn't a file name")
    return UsageError(f"{_named(path)} cannot be written: {reason}")


def write_page(path: Path, content: str, *, force: bool) -> None:
    """Write a page atomically; a missing directory is created. Raises `UsageError` if another file exists that isn't
    such a page (unless `force`), or a directory."""
    from prose_kernel.access.atomic import write_whole

    check_page(path, force=force)
    try:
        write_whole(path, content, contended=True)  # two concurrent reports of the same run
    except (OSError, ValueError) as problem:
        raise _unwritten(path, problem) from None


def is_ours(path: Path) -> bool:
    """Return whether a file is a page of this package. Raises `OSError`."""
    if not path.is_file():
        return False
    head = plain_files.head(path)
    return head.startswith(b"<!doctype html>\n") and f'name="generator" content="{GENERATOR}"'.encode() in head


# ---------------------------------------------------------------- documents


def as_html(block: doc.Block) -> Html:
    match block:
        case doc.Paragraph(words):
            return tag("p", *map(_word, words))
        case doc.Items(items):
            return tag("ul", *(tag("li", *map(_word, words)) for words in items))
        case doc.Fields(fields):
            rows = [html(tag("dt", name), tag("dd", value)) for name, value in fields if value]
            return tag("dl", *rows) if rows else Html()
        case doc.Listing(text):
            return tag("pre", text)
        case doc.Untrusted(text):
            return markdown_text(text)
        case doc.Table():
            return _table(block)
        case doc.Group(blocks):
            return html(*map(as_html, blocks))
        case doc.Rich(rich):
            return as_html(rich)


def _word(word: doc.Word) -> Html:
    match word:
        case doc.Trusted(text, plain):
            return html(text if plain is None else plain)
        case doc.Code():
            return tag("code", word)
        case doc.Strong():
            return tag("b", word)
        case str():
            return html(word)


def _table(table: doc.Table) -> Html:
    kinds = ["n" if at in table.numbers else None for at in range(len(table.head))]

    def row(name: str, cells: Sequence[doc.Word]) -> Html:
        return tag("tr", *(tag(name, _word(cell), class_=kind) for kind, cell in zip(kinds, cells, strict=True)))

    body = (html(row("td", cells), "\n") for cells in table.shown)
    found = tag("div", tag("table", tag("thead", row("th", table.head)), tag("tbody", *body)), class_="wide")
    return html(found, tag("p", table.more, class_="quiet")) if table.more else found


# ---------------------------------------------------------------- untrusted text


_ALLOWED: Final = re.compile(r"(?i)(?:https?://|mailto:)")
"""The allowed beginnings of link targets."""
_SGR: Final = re.compile(r"\x1b\[([0-9;:]*)m")
_ON: Final = {1: "a1", 2: "a2", 3: "a3", 4: "a4", 9: "a9"}
_OFF: Final = {21: ("a1",), 22: ("a1", "a2"), 23: ("a3",), 24: ("a4",), 29: ("a9",)}


def terminal_text(shown: str) -> Html:
    """Return a command's output with its colours, as a terminal shows it: overwritten parts of lines are omitted."""
    found = terminal(shown.replace("\r\n", "\n"))
    if "\r" in found:
        found = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in found.split("\n"))
    if "\x1b" not in found:
        return html(found)
    out: list[Html] = []
    style: dict[str, str] = {}
    for number, piece in enumerate(_SGR.split(found)):
        if number % 2:
            _styled(piece, style)
        elif piece:
            classes = " ".join(dict.fromkeys(style.values()))
            out.append(tag("span", piece, class_=classes) if classes else html(piece))
    return html(*out)


def _styled(codes: str, style: dict[str, str]) -> None:
    """Apply a colour sequence to `style`, the current class of each property."""
    numbers = iter([int(code or 0) for code in re.split("[;:]", codes)])
    for code in numbers:
        match code:
            case 0:
                style.clear()
            case 38 | 48:
                _nearest_colour(numbers, "f" if code == 38 else "b", style)
            case 39 | 49:
                style.pop("f" if code == 39 else "b", None)
            case _ if code in _ON:
                style[_ON[code]] = _ON[code]
            case _ if code in _OFF:
                for name in _OFF[code]:
                    style.pop(name, None)
            case _ if 30 <= code % 60 <= 37 and code < 98:
                style["f"] = f"f{code % 10}"
            case _ if 40 <= code % 60 <= 47 and code < 108:
                style["b"] = f"b{code % 10}"


def _nearest_colour(numbers: Iterator[int], layer: str, style: dict[str, str]) -> None:
    """Set a colour of 256, or of 24 bits: the nearest of the eight colours that a page has in light and dark."""
    match next(numbers, 0):
        case 5:
            index = next(numbers, 0)
            if index < 16:
                style[layer] = f"{layer}{index % 8}"
                return
            cube = index - 16
            red, green, blue = (cube // 36, cube // 6 % 6, cube % 6) if index < 232 else (index - 232,) * 3
            top = 5 if index < 232 else 23
        case 2:
            red, green, blue = (next(numbers, 0) for _ in range(3))
            top = 255
        case _:
            return
    style[layer] = f"{layer}{(2 * red > top) + 2 * (2 * green > top) + 4 * (2 * blue > top)}"


def markdown_text(source: str) -> Html:
    """Return untrusted Markdown as HTML: no tags or images, harmless links, headings below those of the page."""
    parser = _markdown()
    tokens = parser.parse(visible(source))
    for token in tokens:
        _harmless(token)
    return tag("div", Html(parser.renderer.render(tokens, parser.options, {})), class_="md")


def _harmless(token: Any) -> None:
    """Remove unsafe parts of a parser's token; a hidden character may have been written as an entity."""
    token.content = visible(token.content)
    token.info = ""
    if token.type in ("heading_open", "heading_close"):
        token.tag = f"h{min(int(token.tag[1]) + 3, 6)}"
    if token.type == "link_open":
        token.attrs = {"href": str(token.attrs.get("href", "")), "rel": "noreferrer noopener", "target": "_blank"}
    else:
        token.attrs = {name: value for name, value in token.attrs.items() if name == "start"}  # of an ordered list
    tag = "a"
    for inner in token.children or ():
        _harmless(inner)
        if inner.type == "link_open" and not inner.attrs["href"]:  # the only target that the parser does not validate
            tag, inner.attrs = "span", {}
        if inner.type in ("link_open", "link_close"):
            inner.tag, tag = tag, tag if inner.type == "link_open" else "a"
    if token.children:
        token.children = [_described(inner) if inner.type == "image" else inner for inner in token.children]


def _described(image: Any) -> Any:
    from markdown_it.token import Token

    return Token("text", "", 0, content=f"[image: {image.content}]")


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.validateLink = lambda url: _ALLOWED.match(url) is not None  # type: ignore[method-assign]
    return parser
