"""The language reference that ships with the package (`docs/reference/`), section by section.

`prose explain` and `%explain` print the result of `section`. For a code, this is its entry in the reference, then a
program with the mistake and its correction, from the language's `corrections.md`. Pages are read when first needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from msgspec import Struct

from prose_kernel.errors import UsageError

DEFAULT = "openprose"
"""The page for codes and section numbers without a language, unless a caller prefers the page of another language."""

PROSESCRIPT_PROFILES = "prose-md"
"""The page of the codes that only contract files and ProseScript have."""

_TABLES = {DEFAULT: ("exec-and-tasks", "2.1"), "vvm": ("vvm", "5")}
"""Page and section with a table of words: properties of commands, and functions."""

_PACKAGE = Path(__file__).parents[1]
_HEADING = re.compile(r"(#{2,6}) (?:([EVWR]\d{3}): |(\d+(?:\.\d+)*)\.? )(.+)")
_KEY = re.compile(r"[EVWR]\d+|\d+(?:\.\d+)*\.?", re.IGNORECASE)
_OF_SCRIPTS = re.compile(r"[EW]3\d\d|E23\d")
_OLD_CODE = re.compile(r"([EW])(\d{3})")
_EXPLAINING = re.compile(r"[3-6]\.\d+$")
"""The numbers of sections that explain the words of a language."""
_LEAF = re.compile(r"[3-9]\.\d+$")
_FENCE = re.compile(r" *(`{3,})")
_COMMENT = re.compile(r"<!-- .* -->\n+")
_CORRECTION = re.compile(r"^#### (\w+)\n\n(.*?)(?=\n#### |\Z)", re.MULTILINE | re.DOTALL)


class Heading(Struct, frozen=True):
    """A numbered section, or the section of a diagnostic code, in a page. `start` and `end` are offsets in its text."""

    page: str
    file: str  # the part of the page, without `.md`: `openprose/errors`; `vvm` for a page in one file
    key: str
    title: str
    start: int
    end: int

    @property
    def path(self) -> Path:
        """The file that holds it."""
        return directory() / f"{self.file}.md"

    @property
    def anchor(self) -> str:
        """The fragment by which Markdown viewers find it."""
        text = f"{self.key}: {self.title}" if self.key[0].isalpha() else f"{self.key} {self.title}"
        return re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")


def directory() -> Path:
    """Return the pages' directory, in an installed package or a checkout. Raises `UsageError` if it is missing."""
    for place in (_PACKAGE / "docs" / "reference", _PACKAGE.parent / "docs" / "reference"):
        if place.is_dir():
            return place
    raise UsageError("this installation has no reference pages", hint="pip install --force-reinstall prose_kernel")


def pages() -> tuple[str, ...]:
    """Return the names of all pages, the default page first."""
    names = sorted(path.stem for path in directory().glob("*.md"))
    return tuple(sorted(names, key=lambda name: name != DEFAULT))


@cache
def parts(page: str) -> tuple[tuple[str, str], ...]:
    """Return the files of a page and their texts: the main file, then those in the directory of its name, in the order
    of its links.

    A section may continue in the next file, so only the first file's title is included.
    """
    first = _markdown(page)
    others = dict.fromkeys(re.findall(rf"\]\(({page}/[\w-]+)\.md\)", first))
    return ((page, first), *((file, _markdown(file).partition("\n")[2].lstrip()) for file in others))


def _markdown(file: str) -> str:
    return (directory() / f"{file}.md").read_text(encoding="utf-8").rstrip() + "\n\n"


@cache
def text(page: str) -> str:
    """Return the Markdown of a page with all of its parts."""
    return "".join(part for _, part in parts(page))


@cache
def headings(page: str) -> tuple[Heading, ...]:
    """Return the numbered headings and the headings of codes in a page, in order."""
    found: list[tuple[int, int, str, str, str]] = []  # level, start, file, key, title
    at, fence = 0, ""
    for file, part in parts(page):
        for line in part.splitlines(keepends=True):
            if mark := _FENCE.match(line):
                fence = mark[1] if not fence else "" if mark[1].startswith(fence) else fence
            elif not fence and line.startswith("#"):
                match = _HEADING.fullmatch(line.rstrip())
                level = len(line) - len(line.lstrip("#"))
                found.append((level, at, file, (match[2] or match[3]) if match else "", match[4] if match else ""))
            at += len(line)
    ends = [
        next((start for level, start, *_ in found[index + 1 :] if level <= own), at)
        for index, (own, *_) in enumerate(found)
    ]
    return tuple(
        Heading(page, file, key, title, start, end)
        for (_, start, file, key, title), end in zip(found, ends, strict=True)
        if key
    )


def heading(page: str, key: str) -> Heading | None:
    """Return the heading of a code or section in a page; None if the heading or the pages are missing."""
    try:
        return _by_key(page).get(key)
    except (OSError, UsageError):
        return None


@cache
def _by_key(page: str) -> dict[str, Heading]:
    return {one.key: one for one in reversed(headings(page))}


def is_key(word: str) -> bool:
    """Return whether a word has the form of a code or a section number."""
    return _KEY.fullmatch(word) is not None


def page_of(code: str) -> str:
    """Return the page with the entry of a code. Codes of VVM begin with V or R."""
    if code[:1] in ("V", "R"):
        return "vvm"
    return PROSESCRIPT_PROFILES if _OF_SCRIPTS.fullmatch(code) else DEFAULT


def link(code: str, base: str | None) -> str:
    """Return the address of a code on the web, "" if it is unknown. `base` is the setting `docs_url`."""
    found = heading(page_of(code), code)
    if not base or found is None:
        return ""
    file = found.file
    place = base.replace("{page}", file) if "{page}" in base else f"{base.rstrip('/')}/docs/reference/{file}.html"
    return f"{place}#{found.anchor}"


@cache
def about(word: str, page: str) -> Heading | None:
    """Return the section that explains a word of the language: it has the word in its title (`try, raise`), or most
    often in code, or defines it in a table, or is the grammar. None if there is none, or no pages."""
    if page not in pages():
        return None
    own = headings(page)
    meaning = [one for one in own if _EXPLAINING.match(one.key)]
    name = re.escape(word)
    topic = re.compile(rf"(?i)(?:^|, | and )`?{name}s?`?(?=,| and |$)")
    if (titled := next((one for one in meaning if topic.search(one.title)), None)) is not None:
        return titled
    first_in_code = re.compile(rf"`{name}\b|^ *{name}\b(?=.*:$)", re.MULTILINE)
    in_code = re.compile(rf"`[^`\n]*(?<![\w-]){name}(?![\w-])[^`\n]*`")
    in_row = re.compile(rf"^\| `{name}[`(]", re.MULTILINE)
    in_grammar = re.compile(rf"(?i)(?<![\w-]){name}(?![\w-])")
    table = heading(*_TABLES[page]) if page in _TABLES else None
    return (
        _best_section(first_in_code, meaning, least=2)
        or _best_section(in_row, [table] if table is not None else ())
        or _best_section(first_in_code, meaning)
        or _best_section(in_code, (one for one in own if _LEAF.match(one.key) and "diagnostics" not in one.file))
        or _best_section(in_grammar, (one for one in own if one.key in ("2", "2.1")))
    )


def _best_section(pattern: re.Pattern[str], sections: Iterable[Heading], least: int = 1) -> Heading | None:
    """Return the (first) section in which the pattern matches most often; None with fewer than `least` matches."""
    counts = [(len(pattern.findall(text(one.page), one.start, one.end)), -at, one) for at, one in enumerate(sections)]
    most = max(counts, default=None)
    return most[2] if most is not None and most[0] >= least else None


def section(wanted: str, prefer: str = DEFAULT) -> str:
    """Return the Markdown of a section with its subsections, or the outline of a page.

    `wanted` is a code (`E004`, `V001`), a section number (`3.7` of the page `prefer`, or `vvm 3.7`) or a page (`vvm`).
    Raises `UsageError`, with the nearest keys, if there is no such section.
    """
    if wanted in pages():
        return outline(wanted)
    page, key = _parsed(wanted)
    is_code = key[:1].isalpha()
    searched = (page,) if page else pages() if is_code else (prefer,)
    known = [heading for name in searched for heading in headings(name)]
    for heading in known:
        if heading.key == key:
            entry = _COMMENT.sub("", text(heading.page)[heading.start : heading.end]).rstrip() + "\n"
            example = _examples(heading.page).get(key) if is_code else None
            return f"{entry}\n{example}" if example else entry
    kind = "section" if not is_code else "code" if is_key(key) else "word"
    near = get_close_matches(key, dict.fromkeys(h.key for h in known if h.key[:1].isalpha() == is_code), 3)
    if not is_code and not page:
        elsewhere = [f"{name} {key}" for name in pages() for heading in headings(name) if heading.key == key]
        near = [*elsewhere, *near][:3]
    quoted = " or ".join(f"`{one}`" for one in near)
    hint = f"did you mean {quoted}?" if near else "a code such as E004, or a section such as 3.7"
    named = wanted.rpartition(" ")[2] if kind == "word" else key or wanted
    raise UsageError(f"{page or 'the reference'} has no {kind} {named}", hint=hint)


def corrections(page: str) -> str:
    """Return the Markdown with examples of the codes of a page; "" for a page without codes."""
    language = DEFAULT if page == PROSESCRIPT_PROFILES else page
    file = _PACKAGE / "language" / language / "corrections.md"
    return file.read_text(encoding="utf-8") if file.is_file() else ""


@cache
def _examples(page: str) -> dict[str, str]:
    return dict(_CORRECTION.findall(corrections(page)))


def programs(diff: str) -> tuple[str, str]:
    """Return the program with a mistake and the corrected program, from the text of a `diff` block."""
    lines = diff.splitlines(keepends=True)
    before, after = ("".join(line[1:] or line for line in lines if line[0] != other) for other in "+-")
    return before, after


def outline(page: str) -> str:
    """Return the title of a page and a list of its numbered sections; the whole page if it has no sections."""
    found = [heading for heading in headings(page) if heading.key[0].isdigit()]
    if not found:
        return text(page)
    title = text(page).partition("\n")[0]
    return f"{title}\n\n" + "".join(f"{'  ' * one.key.count('.')}- {one.key} {one.title}\n" for one in found)


def _parsed(wanted: str) -> tuple[str, str]:
    """Return the page ("" if none is named) and the key. Raises `UsageError` for an unknown page."""
    *before, key = wanted.split() or [""]
    if not before:
        return "", key.upper().rstrip(".")
    name = before[-1].removesuffix(".md").rpartition("/")[2]
    if name not in pages():
        raise UsageError(f"the reference has no page {name}", hint=f"its pages: {', '.join(pages())}")
    key = key.upper().rstrip(".")
    return name, _current_code(key) if name == "vvm" else key


def _current_code(key: str) -> str:
    """Convert a code from before VVM's codes had their own letter: `E001` becomes V001, `W030` becomes V530."""
    old = _OLD_CODE.fullmatch(key)
    if old is None:
        return key
    return f"V{int(old[2]) + (500 if old[1] == 'W' else 0):03}"
