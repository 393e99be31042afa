"""Escape untrusted text (of commands, sessions, bindings) for terminals, HTML and Markdown, and make HTML elements.

Displayed text must be inert: no escape sequences except colours, no tags, scripts or images, no hidden control or
direction characters. Values are never changed, only their display.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape, unescape

from prose_kernel.language.text import clipped

_HIDDEN = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,64}m")
_TERMINAL = re.compile(rf"\x1b\[[0-9;:]{{0,64}}m|[{_HIDDEN}]")
_PLAIN = re.compile(rf"\r(?!\n)|[{_HIDDEN}]")
_SPECIAL = re.compile("[&<>\"']")
_PARTIAL = re.compile(r"\x1b(\[[0-9;:]{0,64})?\Z")
_ASCII_HIDDEN = bytes(c for c in range(128) if (c < 32 and c not in (9, 10, 13)) or c == 127)


@lru_cache(maxsize=256)
def _shown(character: str) -> str:
    """Return the visible replacement of a hidden character."""
    code = ord(character)
    if code < 32:
        return chr(0x2400 + code)
    if code == 127:
        return "\u2421"
    if 0xD800 <= code <= 0xDFFF:
        return "\N{REPLACEMENT CHARACTER}"
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _keep_colour(match: re.Match[str]) -> str:
    found = match.group()
    return found if len(found) > 1 else _shown(found)


def terminal(text: str) -> str:
    """Escape text for an output stream: colours, tabs, line ends and carriage returns stay; other control characters
    are made visible.

    Linear, and cheap for text without control characters.
    """
    if text.isascii():
        data = text.encode("ascii")
        if len(data.translate(None, _ASCII_HIDDEN)) == len(data):
            return text
    return _TERMINAL.sub(_keep_colour, text)


class TerminalText:
    """Does the same as `terminal` for text in pieces; a colour sequence may be split between two pieces."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        text = self._held + text
        self._held = ""
        if "\x1b" in text[-70:] and (cut := _PARTIAL.search(text, max(0, len(text) - 70))):
            self._held = text[cut.start() :]
            text = text[: cut.start()]
        return terminal(text)

    def end(self) -> str:
        held, self._held = self._held, ""
        return terminal(held)


def visible(text: str) -> str:
    """Escape text for a card or a message: colours are removed, other control characters are made visible."""
    if text.isascii() and text.isprintable():
        return text
    return _PLAIN.sub(lambda m: _shown(m.group()), _COLOUR.sub("", text))


def html_text(text: str) -> str:
    """Escape text for HTML content or an attribute value."""
    shown = visible(text)
    return escape(shown) if _SPECIAL.search(shown) else shown


_EMPTY = frozenset({"img", "input"})


class Html(str):
    """HTML whose texts are escaped."""

    __slots__ = ()


def html(*parts: str) -> Html:
    """Join parts, and escape each part that is not `Html`."""
    return Html("".join([part if type(part) is Html else html_text(part) for part in parts]))


def tag(name: str, /, *parts: str, **attributes: str | bool | None) -> Html:
    """Return an element. `class_` sets the attribute `class`; True sets it without a value, None and False omit it."""
    given = ""
    for key, value in attributes.items():
        if value is True:
            given += f" {key}"
        elif isinstance(value, str):
            given += f' {key.rstrip("_")}="{html_text(value)}"'
    return Html(f"<{name}{given}>" if name in _EMPTY else f"<{name}{given}>{html(*parts)}</{name}>")


LITERAL = "mathjax_ignore tex2jax_ignore"
"""The class of an HTML element with literal text, in which a dollar sign does not begin a formula."""


def clip(text: str, width: int = 120) -> str:
    """Return the first line, cut to `width` characters; an ellipsis marks a cut."""
    line, newline, rest = text[: width * 4].lstrip("\n").partition("\n")
    more = bool(newline and rest.strip())
    line = visible(line.rstrip("\r")).rstrip()
    return clipped(line, width) + (" …" if more and len(line) <= width else "")


def preview(text: str, lines: int = 10, characters: int = 1000) -> tuple[str, str]:
    """Return the beginning of a text, with control characters made visible, and the size of the text ("" if it is
    complete)."""
    head = text[:characters]
    shown = head.split("\n", lines)
    kept = "\n".join(shown[:lines])
    beginning = visible(kept.rstrip("\r\n")).rstrip("\r\n")
    if text[len(kept) :].strip("\n") == "":
        return beginning, ""
    total = text.count("\n") + (not text.endswith("\n"))
    return beginning, f"{len(text):,} characters, {total:,} line{'s' if total > 1 else ''} in all"


# ---------------------------------------------------------------- Markdown

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n`]*)\n?\Z")
_SPAN = re.compile(r"(?<!`)(?P<run>`{1,16})(?!`)(?P<code>[^`\n]+)(?P=run)(?!`)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_LIVE = re.compile(r"<(?=[A-Za-z/!?])|!\[|\]\(|^ {0,3}\[[^\]\n]+\]:", re.M)
_TARGET = re.compile(
    r"(?P<open>\]\([ \t]*+\n?+[ \t]*+|^ {0,3}\[[^\]]{1,999}\]:[ \t]*+\n?+[ \t]*+)(?P<target>[^\s)]{1,4000})", re.M
)
_FORMULA = re.compile(r"[$\\]")
_SCHEME = re.compile(r"[^a-z0-9]*(?P<scheme>[a-z][a-z0-9+.-]*):")
_ALLOWED = frozenset({"http", "https", "mailto", "ftp"})


def markdown(text: str) -> str:
    """Make untrusted Markdown safe: formatting stays, tags are shown as text, images become links, links keep only
    harmless targets. Code is unchanged. Takes linear time."""
    text = visible(text.replace("\r\n", "\n"))
    out: list[str] = []
    block: list[str] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if not fence and mark:
            out.append(_prose("".join(block)))
            block, fence = [line], mark[1]
        elif fence and mark and mark[1].startswith(fence) and not mark[2].strip():
            out.append(_code_block([*block, line]))
            block, fence = [], ""
        else:
            block.append(line)
    if fence:
        block[-1] = block[-1].rstrip("\n") + "\n"
        out.append(_code_block([*block, fence]))
    else:
        out.append(_prose("".join(block)))
    return "".join(out)


def _code_block(lines: list[str]) -> str:
    """Return a fenced block; content that could act outside of code is written as HTML, so that no other Markdown
    parser can activate it."""
    if not any(_LIVE.search(line) for line in lines):
        return "".join(lines)
    return f"<pre><code>{_entities(''.join(lines[1:-1]).rstrip(chr(10)))}</code></pre>\n"


def _prose(text: str) -> str:
    parts, at = [], 0
    for span in _SPAN.finditer(text):
        code = span.group()
        if _LIVE.search(code):
            code = f"<code>{_entities(span['code'].strip())}</code>"
        parts += [_calm(text[at : span.start()]), code]
        at = span.end()
    return "".join([*parts, _calm(text[at:])])


def _calm(text: str) -> str:
    text = _TAG.sub("&lt;", text).replace("![", "&#33;[")
    return _TARGET.sub(_target, text)


def _target(match: re.Match[str]) -> str:
    plain = re.sub(r"[\\\s\x00-\x20]", "", unescape(match["target"])).lower()
    scheme = _SCHEME.match(plain)
    return match.group() if scheme is None or scheme["scheme"] in _ALLOWED else match["open"] + "#"


def _entities(text: str) -> str:
    """Escape text inside an HTML tag inside Markdown: neither interprets it or turns it into a link."""
    return re.sub(r"[*_`$~\[\]\\|{}!#:@]", lambda m: f"&#{ord(m.group())};", escape(text, quote=False))


def inline_code(text: str) -> str:
    """Return one line as a Markdown code span that its content cannot close; also safe in a table cell."""
    text = " ".join(visible(text).split("\n"))
    return f"<code>{_entities(text)}</code>" if text else ""


def inline_text(text: str) -> str:
    """Return one line as Markdown without any markup; also safe in a table cell."""
    text = " ".join(visible(text).split("\n"))
    return f'<span class="{LITERAL}">{_entities(text)}</span>' if _FORMULA.search(text) else _entities(text)


def fenced(text: str, language: str = "") -> str:
    """Return a Markdown code block that the text cannot close and in which nothing can act."""
    if _LIVE.search(text):
        return f"<pre><code>{_entities(visible(text))}</code></pre>"
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{visible(text)}\n{fence}"
