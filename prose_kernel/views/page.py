"""One HTML page that needs nothing from elsewhere: its frame, its style, and how texts of others get into it.

The page has no script, and a policy (`Content-Security-Policy`) that allows none: nothing is loaded, the one style
sheet is known by its hash. Whatever comes from a program, a command or a session goes through `text`, `terminal_text`
or `markdown_text`, which leave nothing in it that could act or hide.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from prose_kernel.access import plain_files
from prose_kernel.errors import UsageError
from prose_kernel.views.safety import terminal, visible

if TYPE_CHECKING:
    from pathlib import Path

    from markdown_it import MarkdownIt

GENERATOR: Final = "prose_kernel"
"""What the pages that we have written name as their maker: those may be replaced."""
_LOOKED_AT: Final = 4096


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page with a title: what the table of contents lists. `inner` are the parts of it that it lists too,
    each with its id. Ids and titles are texts, `body` is HTML."""

    id: str
    title: str
    body: str
    inner: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """A filter that works without a script: what is looked at is chosen from these, each with a class of elements. The
    first option shows all. `of` is the class of all elements that take part; one that has `group` as well is shown
    when something in it is."""

    id: str
    title: str
    of: str
    options: Sequence[tuple[str, str]]


def page(title: str, head: str, sections: Sequence[Section], choice: Choice | None = None) -> str:
    """A whole page; `head` is HTML that stands above its sections."""
    style = _style(choice)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    listed = "".join(_listed(section) for section in sections)
    body = "".join(f'<section><h2 id="{text(s.id)}">{text(s.title)}</h2>\n{s.body}</section>\n' for s in sections)
    filters = _radios(choice.id, choice.title, choice.options) if choice is not None else ""
    themes = _radios("theme", "Colours", (("auto", "Auto"), ("light", "Light"), ("dark", "Dark")))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="generator" content="{GENERATOR}">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">\n'
        f"<title>{text(title)}</title>\n<style>{style}</style></head>\n<body>"
        f'<nav aria-label="Contents"><ol>{listed}</ol>{filters}{themes}</nav>\n'
        f"<main>{head}\n{body}</main></body></html>\n"
    )


def _listed(section: Section) -> str:
    inner = "".join(f'<li><a href="#{text(id_)}">{text(title)}</a></li>' for id_, title in section.inner)
    return f'<li><a href="#{text(section.id)}">{text(section.title)}</a>{f"<ol>{inner}</ol>" if inner else ""}</li>'


def _radios(name: str, title: str, options: Sequence[tuple[str, str]]) -> str:
    found = "".join(
        f'<input type="radio" name="{name}" id="{name}-{key}"{"" if number else " checked"}>'
        f'<label for="{name}-{key}">{text(shown)}</label>'
        for number, (key, shown) in enumerate(options)
    )
    return f"<fieldset><legend>{text(title)}</legend>{found}</fieldset>"


@cache
def _sheet() -> str:
    return resources.files(__package__).joinpath("page.css").read_text("utf-8")


def _style(choice: Choice | None) -> str:
    rules = [_sheet()]
    for key, _ in choice.options[1:] if choice is not None else ():
        assert choice is not None
        others = f"body:has(#{choice.id}-{key}:checked) .{choice.of}:not(.{key})"
        rules.append(f"{others}:not(.group), {others}.group:not(:has(.{key})) {{ display: none; }}\n")
    return "".join(rules)


def write_page(path: Path, content: str, *, force: bool) -> None:
    """Write a page, whole or not at all. Raises `UsageError`: what is there stays unless it is such a page itself, or
    `force` is given; a directory stays always."""
    from prose_kernel.access.atomic import write_whole

    try:
        if path.is_dir():
            raise UsageError(f"{path} is a directory", hint=f"name a file, such as {path / 'report.html'}")
        if not force and path.exists() and not is_ours(path):
            raise UsageError(f"{path} is there, and no report", hint="name another file, or add --force")
        if not path.parent.is_dir():
            raise UsageError(f"there is no directory {path.parent}", hint="make it first, or name another file")
        write_whole(path, content, contended=True)  # two reports at once, of the same run
    except (OSError, ValueError) as problem:
        reason = (getattr(problem, "strerror", None) or "it is no name of a file").lower()
        raise UsageError(f"{path} cannot be written: {reason}") from None


def is_ours(path: Path) -> bool:
    """Whether a file is a page that was written here. Raises `OSError`."""
    if not path.is_file():
        return False
    with plain_files.reading(path, None, follow=True) as file:
        head = file.read(_LOOKED_AT)
    return head.startswith(b"<!doctype html>\n") and f'name="generator" content="{GENERATOR}"'.encode() in head


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Container[int] = (), left_out: int = 0) -> str:
    """A table of cells that are HTML; `head` are texts, `numbers` the columns that are set to the right."""
    more = f'<p class="quiet">and {left_out:,} more</p>' if left_out > 0 else ""
    kinds = [' class="n"' if at in numbers else "" for at in range(len(head))]
    top = "".join(f"<th{kind}>{text(title)}</th>" for kind, title in zip(kinds, head, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{cell}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>\n" for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>{more}'


# ---------------------------------------------------------------- texts


def text(plain: str) -> str:
    """A text as content or attribute value: no colours, and what would be hidden is shown."""
    return html.escape(visible(plain), quote=False).replace('"', "&quot;")  # attributes stand in double quotes


_ALLOWED: Final = re.compile(r"(?i)(?:https?://|mailto:)")
"""How the target of a link may begin."""
_SGR: Final = re.compile(r"\x1b\[([0-9;:]*)m")
_ON: Final = {1: "a1", 2: "a2", 3: "a3", 4: "a4", 9: "a9"}
_OFF: Final = {21: ("a1",), 22: ("a1", "a2"), 23: ("a3",), 24: ("a4",), 29: ("a9",)}


def terminal_text(shown: str) -> str:
    """The output of a command with its colours, as a terminal shows it: what was overwritten on a line is left out."""
    found = terminal(shown.replace("\r\n", "\n"))
    if "\r" in found:
        found = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in found.split("\n"))
    if "\x1b" not in found:
        return html.escape(found, quote=False)
    out: list[str] = []
    style: dict[str, str] = {}
    for number, piece in enumerate(_SGR.split(found)):
        if number % 2:
            _styled(piece, style)
        elif piece:
            escaped = html.escape(piece, quote=False)
            classes = " ".join(dict.fromkeys(style.values()))
            out.append(f'<span class="{classes}">{escaped}</span>' if classes else escaped)
    return "".join(out)


def _styled(codes: str, style: dict[str, str]) -> None:
    """Apply one sequence of colours to the classes by what they set."""
    numbers = iter([int(code or 0) for code in re.split("[;:]", codes)])
    for code in numbers:
        match code:
            case 0:
                style.clear()
            case 38 | 48:
                _of_many(numbers, "f" if code == 38 else "b", style)
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


def _of_many(numbers: Iterator[int], what: str, style: dict[str, str]) -> None:
    """One of 256 colours, or of all of them: the nearest of the eight that a page has in light and dark."""
    match next(numbers, 0):
        case 5:
            index = next(numbers, 0)
            if index < 16:
                style[what] = f"{what}{index % 8}"
                return
            cube = index - 16
            red, green, blue = (cube // 36, cube // 6 % 6, cube % 6) if index < 232 else (index - 232,) * 3
            top = 5 if index < 232 else 23
        case 2:
            red, green, blue = (next(numbers, 0) for _ in range(3))
            top = 255
        case _:
            return
    style[what] = f"{what}{(2 * red > top) + 2 * (2 * green > top) + 4 * (2 * blue > top)}"


def markdown_text(source: str) -> str:
    """Markdown of others as HTML: no tags, no images, links that do no harm, headings below those of the page."""
    parser = _markdown()
    tokens = parser.parse(visible(source))
    for token in tokens:
        _harmless(token)
    found: str = parser.renderer.render(tokens, parser.options, {})
    return f'<div class="md">{found}</div>'


def _harmless(token: Any) -> None:
    """Take out of a token of the parser what the page has no use for; a hidden character may have been written as an
    entity."""
    token.content = visible(token.content)
    token.info = ""
    if token.type in ("heading_open", "heading_close"):
        token.tag = f"h{min(int(token.tag[1]) + 3, 6)}"
    if token.type == "link_open":
        token.attrs = {"href": str(token.attrs.get("href", "")), "rel": "noreferrer noopener", "target": "_blank"}
    else:
        token.attrs = {}
    tag = "a"
    for inner in token.children or ():
        _harmless(inner)
        if inner.type == "link_open" and not inner.attrs["href"]:  # the only one that the parser does not ask about
            tag, inner.attrs = "span", {}
        if inner.type in ("link_open", "link_close"):
            inner.tag, tag = tag, tag if inner.type == "link_open" else "a"
    if token.children:
        token.children = [_described(inner) if inner.type == "image" else inner for inner in token.children]


def _described(image: Any) -> Any:
    """An image becomes its description."""
    from markdown_it.token import Token

    return Token("text", "", 0, content=f"[image: {image.content}]")


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.validateLink = lambda url: _ALLOWED.match(url) is not None  # type: ignore[method-assign]
    return parser
