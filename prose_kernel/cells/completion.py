"""Completion at the cursor: keywords, names, properties and their values, magics, paths.

The parser decides which keywords can follow the cursor; names, properties and texts are read from the line and
what encloses it. Positions count code points, as the Jupyter protocol does since 5.2 (a cursor after 😀 is at 1, where
UTF-16 would say 2).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prose_kernel import languages
from prose_kernel.cells.scan import inside, literals, segments, spoken
from prose_kernel.errors import UsageError
from prose_kernel.language.words import Offer
from prose_kernel.languages import Language, Words

if TYPE_CHECKING:
    from prose_kernel.cells.runner import Cells

_PATHS = 200
"""Entries of one directory that are offered."""
_WORD = re.compile(r"[A-Za-z_][\w-]*\Z")
_STATEMENT = "%prompt "
_NAME = r"[A-Za-z_][\w-]*"


@dataclass(frozen=True, slots=True)
class Completions:
    """Offers that replace the code points from `start` to `end`."""

    start: int
    end: int
    matches: tuple[Offer, ...] = ()

    def moved(self, by: int) -> Completions:
        """The same offers, `by` code points further on."""
        return Completions(self.start + by, self.end + by, self.matches)


def complete(cells: Cells, code: str, cursor: int) -> Completions:
    """The completions at a cursor position."""
    cursor = max(0, min(cursor, len(code)))
    if code.startswith("%%") and "\n" not in code[:cursor]:
        return _magic(cells, code[:cursor], cursor, cells.language)
    language, code = spoken(code, cells.language)
    where, start = inside(code, cursor, language)
    line = code[code.rfind("\n", 0, cursor) + 1 : cursor]
    if where == "comment":
        return Completions(cursor, cursor)
    if language.offers is not None and not (where == "code" and line.startswith("%")):
        return _offered(cells, language, code, cursor, where, start)
    if where in ("string", "triple"):
        return _in_text(cells, code, cursor, start)
    if where == "marker":
        return _interpolated(cells, code, cursor) or Completions(cursor, cursor)
    if line.startswith(_STATEMENT):  # what follows is a program's line
        code = code[: cursor - len(line)] + line.removeprefix(_STATEMENT)
        return complete(cells, code, len(code)).moved(len(_STATEMENT))
    if line.startswith("%"):
        return _magic(cells, line, cursor, language)
    word = _WORD.search(line)
    begin = cursor - len(word.group()) if word else cursor
    offers = _code(cells, code[:begin], line[: len(line) - (cursor - begin)])
    return _matching(offers, code[begin:cursor], begin, cursor)


def _offered(cells: Cells, language: Language, code: str, cursor: int, where: str, start: int) -> Completions:
    """What a language offers itself; paths are filled in here."""
    word = re.search(r"[A-Za-z_]\w*\Z", code[max(0, cursor - 200) : cursor])
    begin = cursor - len(word.group()) if word else cursor
    if language.offers is None:
        return Completions(cursor, cursor)
    offers = list(language.offers(code[:begin], where, _known(cells, language), cells.values()))
    if any(offer.kind == "paths" for offer in offers):
        return _path(cells, code, cursor, start, programs=True)
    return _matching(offers, code[begin:cursor], begin, cursor)


def _matching(offers: Iterable[Offer], prefix: str, start: int, end: int) -> Completions:
    found: dict[str, Offer] = {}
    for match in offers:
        if match.text.startswith(prefix) and match.text != prefix:
            found.setdefault(match.text, match)
    order = {"variable": 0, "property": 1, "value": 2, "agent": 3, "block": 4, "function": 4, "keyword": 5}
    return Completions(start, end, tuple(sorted(found.values(), key=lambda m: (order.get(m.kind, 9), m.text))))


# ---------------------------------------------------------------- names


def _known(cells: Cells, language: Language | None = None) -> Any:
    workspace = cells.started
    return workspace.machine_of(language or languages.default()).known() if workspace is not None else None


_DECLARED = re.compile(
    rf"^[ \t]*(?:let|const|output|input)[ \t]+({_NAME})|^[ \t]*({_NAME})[ \t]*=(?!=)|\bas[ \t]+({_NAME})"
    rf"|\bfor[ \t]+({_NAME})(?:[ \t]*,[ \t]*({_NAME}))?[ \t]+in\b",
    re.M,
)
_PARAMETERS = re.compile(rf"^[ \t]*block[ \t]+{_NAME}[ \t]*\(([^)\n]*)", re.M)


def variables(cells: Cells, before: str) -> list[Offer]:
    """Names that may be read: those of earlier cells, and what the text before the cursor declares."""
    code = code_only(before)
    found = [name for groups in _DECLARED.findall(code) for name in groups if name]
    found += [name for group in _PARAMETERS.findall(code) for name in re.findall(_NAME, group)]
    matches = [Offer(name, "variable", "declared in this cell") for name in dict.fromkeys(found)]
    known = _known(cells)
    if known is not None:
        matches += [Offer(name, "variable", variable.kind) for name, variable in known.variables.items()]
        matches += [Offer(name, "variable") for name in sorted(known.soft_exports)]
    return matches


def _registered(cells: Cells, before: str, word: str, registry: str) -> list[Offer]:
    found = re.findall(rf"^[ \t]*{word}[ \t]+({_NAME})", code_only(before), re.M)
    known = _known(cells)
    if known is not None:
        found += list(getattr(known, registry))
    return [Offer(name, word) for name in dict.fromkeys(found)]


def programs(cells: Cells, before: str) -> list[Offer]:
    """Names of imported programs."""
    found = re.findall(rf"^[ \t]*use[ \t]+\"[^\"\n]*\"[ \t]+as[ \t]+({_NAME})", before, re.M)
    known = _known(cells)
    return [Offer(name, "program") for name in dict.fromkeys([*found, *(known.programs if known else ())])]


def code_only(text: str) -> str:
    """The text with its literals blanked out, position for position."""
    parts, at = [], 0
    for region in literals(text):
        parts += [text[at : region.start], re.sub(r"[^\n]", " ", text[region.start : region.end])]
        at = region.end
    return "".join([*parts, text[at:]])


# ---------------------------------------------------------------- code


def _code(cells: Cells, before: str, head: str) -> list[Offer]:
    """Offers in code; `before` is everything before the word, `head` the part of it on the cursor's line."""
    stripped = head.strip()
    if re.search(r"\b(session|resume)[ \t]*(?:[\w-]+[ \t]*)?:\s*\Z", head):
        return _registered(cells, before, "agent", "agents")
    if re.search(r"\bdo[ \t]+\Z", head):
        return _registered(cells, before, "block", "blocks")
    if re.search(r"^[ \t]*(?:let|const|agent|block|gate|input)[ \t]+\Z|\bas[ \t]+\Z|\bfor[ \t]+\Z", head):
        return []  # a new name
    owner = owner_of(before)
    if owner and (named := re.match(rf"[ \t]*({_NAME})[ \t]*:[ \t]*(\[[^\]]*)?\Z", head)):
        return _property_values(cells, before, named[1])
    if (call := re.search(r"\b(parallel|loop)\b[^()\n]*\([^()\n]*\Z", head)) is not None:
        return _modifiers(call[1], head)
    return _expected(cells, before, owner if stripped == "" else None)


def _expected(cells: Cells, before: str, owner: str | None) -> list[Offer]:
    """What the grammar has a place for after `before`: properties, keywords, and names where a value may stand."""
    terminals = languages.default().expected(before)
    properties = _words().properties_of(owner).items() if owner else ()
    offers = [Offer(name, "property", entry.summary) for name, entry in properties]
    offers += [_keyword(word) for word in _words().keywords if word.upper() in terminals and word != "import"]
    if "CONSTANT" in terminals:
        offers += [*variables(cells, before), *programs(cells, before)]
        offers += [_keyword(word) for word in ("true", "false", "null")]
    return offers


def _words() -> Words:
    return languages.default().words()


def _keyword(word: str) -> Offer:
    return Offer(word, "keyword", _words().keywords[word].summary)


def _modifiers(word: str, head: str) -> list[Offer]:
    if re.search(r"on-fail\s*:\s*\Z", head):
        return [Offer(f'"{v}"', "value") for v in ("fail-fast", "continue", "ignore")]
    if word == "parallel":
        return [
            *(Offer(f'"{v}"', "value") for v in ("all", "first", "any")),
            Offer("on-fail", "property"),
            Offer("count", "property"),
        ]
    return [Offer("max", "property", _words().properties["max"].summary)]


def _property_values(cells: Cells, before: str, name: str) -> list[Offer]:
    entry = _words().properties.get(name.replace("on_fail", "on-fail").replace("on-reject", "on_reject"))
    values = [Offer(value, "value") for value in entry.values] if entry else []
    if name == "context":
        values += variables(cells, before)
    if name == "on_reject":
        values += [_keyword("throw"), _keyword("continue"), _keyword("session")]
    return values


def owner_of(before: str) -> str | None:
    """The statement whose properties the cursor's line may hold: the nearest line above that is indented less."""
    line = _enclosing(before, len(before) - before.rfind("\n") - 1)
    found = None
    for match in re.finditer(r"\b(session|resume|exec|agent|gate)\b", line):
        found = match[1]
    return found


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _lines_above(before: str) -> list[str]:
    lines = code_only(before).split("\n")[:-1]
    return [line for line in lines if line.strip()]


def _enclosing(before: str, width: int) -> str:
    last = before[before.rfind("\n") + 1 :]
    width = min(width, _indent(last) if last.strip() else len(last))
    for line in reversed(_lines_above(before)):
        if _indent(line) < width:
            return line.strip()
    return ""


# ---------------------------------------------------------------- texts


def _in_text(cells: Cells, code: str, cursor: int, start: int) -> Completions:
    found = _interpolated(cells, code, cursor)
    if found is not None:
        return found
    head = code[code.rfind("\n", 0, start) + 1 : start]
    if re.search(r"\b(cwd|persist)[ \t]*:[ \t]*\Z", head):
        return _path(cells, code, cursor, start, directories=True)
    if re.search(r"\b(use|import|from)[ \t]+\Z", head):
        return _path(cells, code, cursor, start, programs=True)
    if re.search(r"\bexec[ \t]+\Z", head):
        return _path(cells, code, cursor, start)
    if named := re.search(rf"({_NAME})[ \t]*:[ \t]*\Z", head):
        entry = _words().properties.get(named[1].replace("on_fail", "on-fail"))
        values = [Offer(v.strip('"'), "value") for v in entry.values if v.startswith('"')] if entry else []
        return _matching(values, code[start + 1 : cursor], start + 1, cursor)
    if re.search(r"\bparallel[ \t]*(?:for\b[^()]*)?\([ \t]*\Z", head):
        values = [Offer(v, "value") for v in ("all", "first", "any")]
        return _matching(values, code[start + 1 : cursor], start + 1, cursor)
    return Completions(cursor, cursor)


def _interpolated(cells: Cells, code: str, cursor: int) -> Completions | None:
    """`{na` in a text or marker: names of variables."""
    opened = re.search(rf"(?<!\\)\{{({_NAME})?\Z", code[max(0, cursor - 200) : cursor])
    if opened is None:
        return None
    prefix = opened[1] or ""
    begin = cursor - len(prefix)
    return _matching(variables(cells, code[:begin]), prefix, begin, cursor)


def _path(
    cells: Cells, code: str, cursor: int, start: int, *, directories: bool = False, programs: bool = False
) -> Completions:
    """The last word of the text as a path below the directory that commands run in."""
    word = re.search(r"[^\s\"'|&;<>()=]*\Z", code[start:cursor])
    typed = word.group() if word else ""
    workspace = cells.started
    base = workspace.cwd if workspace is not None else cells.cwd
    parent, _, prefix = typed.rpartition("/")
    named = parent + "/" if parent or typed.startswith("/") else ""
    folder = Path(os.path.expanduser(named))  # noqa: PTH111 - a home directory of nobody stays as it is
    matches = list(_entries(base / folder, prefix, directories, programs)) if typed or directories or programs else []
    begin = cursor - len(prefix)
    return Completions(begin, cursor, tuple(matches))


def _entries(folder: Path, prefix: str, directories: bool, programs: bool) -> Iterable[Offer]:
    try:
        with os.scandir(folder) as entries:
            found = sorted((e for e in entries if e.name.startswith(prefix)), key=lambda e: e.name)[:_PATHS]
    except (OSError, ValueError):
        return
    for entry in found:
        if entry.name.startswith(".") and not prefix.startswith("."):
            continue
        if entry.is_dir():
            yield Offer(entry.name + "/", "path")
        elif not directories and (not programs or entry.name.endswith((*languages.suffixes(), ".md"))):
            yield Offer(entry.name, "path")


# ---------------------------------------------------------------- magics


def _magic(cells: Cells, line: str, cursor: int, language: Language) -> Completions:
    from prose_kernel.cells.magics import MAGICS, cell_magics

    if re.match(r"%%?[\w-]*\Z", line):
        offers = [Offer(f"%{magic.name}", "magic", magic.summary) for magic in MAGICS.values()]
        if line.startswith("%%"):
            offers = [Offer(usage.split()[0], "magic", summary) for usage, summary in cell_magics()]
        return _matching(offers, line, cursor - len(line), cursor)
    word = re.search(r"\S*\Z", line)
    typed = word.group() if word else ""
    head = line[: len(line) - len(typed)].split()
    if head[0] in ("%run", "%cd", "%cwd"):
        found = _path(cells, line, len(line), 0, directories=head[0] != "%run", programs=head[0] == "%run")
        return found.moved(cursor - len(line))
    offers = [Offer(text, "value") for text in _arguments(cells, head, language)]
    return _matching(offers, typed, cursor - len(typed), cursor)


def _arguments(cells: Cells, head: list[str], language: Language) -> list[str]:
    known = _known(cells)
    match head:
        case ["%binding"]:
            return list(cells.values())
        case ["%gate"]:
            return ["approve", "reject"]
        case ["%gate", _]:
            return sorted(known.gates) if known else []
        case ["%provider"]:
            return ["auto", *_providers(cells)]
        case ["%judge"]:
            return ["first", "only", "off", "human", "auto", *_judges(cells)]
        case ["%judge", "first" | "only" | "off"]:
            return ["human", "auto", *_judges(cells)]
        case ["%cassette", *words] if words[-1:] == ["--mode"]:
            return ["off", "auto", "record", "replay"]
        case ["%cassette", *words]:
            return [*(["--mode"] if "--mode" not in words else []), *(_cassettes(cells) if not words else [])]
        case ["%explain"]:
            return _codes()
        case ["%warnings"]:
            return ["on", "off"]
        case ["%tasks"]:
            return ["--all"]
        case ["%task", _]:
            return ["output", "follow", "stop", "rerun"]
        case ["%help"]:
            from prose_kernel.cells.magics import MAGICS

            return sorted([*language.words().keywords, *_names(cells), *MAGICS])
        case _:
            return []


def _names(cells: Cells) -> set[str]:
    """The names of the run that `%help` explains."""
    defined = cells.started.definitions() if cells.started is not None else ()
    return {*cells.values(), *(one.definition.name for one in defined)}


def _providers(cells: Cells) -> list[str]:
    """The providers that could be chosen here; with settings that make no sense, none."""
    from prose_kernel.sessions.providers.choice import known_names

    try:
        return known_names(cells.settings.session_options(cells.cwd))
    except UsageError:
        return []


def _judges(cells: Cells) -> list[str]:
    """Those among them that can judge."""
    from prose_kernel.sessions.providers.choice import KEYLESS

    return [name for name in _providers(cells) if name not in KEYLESS]


def _codes() -> list[str]:
    """The diagnostic codes that the reference explains."""
    from prose_kernel import reference

    return [
        heading.key for page in reference.pages() for heading in reference.headings(page) if heading.key[0].isalpha()
    ]


def _cassettes(cells: Cells) -> list[str]:
    """The names of the recordings beside the notebook."""
    try:
        with os.scandir(cells.cwd / "cassettes") as entries:
            return sorted(entry.name.removesuffix(".jsonl") for entry in entries if entry.name.endswith(".jsonl"))
    except OSError:
        return []


# ---------------------------------------------------------------- completeness


def completeness_of(code: str, language: Language) -> tuple[str, str]:
    """`complete`, `incomplete` or `invalid`, and the indentation that the next line wants; decided by the parser.

    `language` is that of a cell which names none. A cell that begins with `%%` may have several statements: it is
    complete after a blank line.
    """
    language, text = spoken(code, language)
    if code.startswith("%%"):
        *body, last = code.split("\n")[1:] or [""]
        if not (any(line.strip() for line in body) and not last.strip() and (last or not body[-1].strip())):
            return "incomplete", "" if text is code else _completeness_of(text, language)[1]
        if text is code:
            return "complete", ""
    return _completeness_of(text, language)


def _completeness_of(code: str, language: Language) -> tuple[str, str]:
    pieces = segments(code, language)
    programs_ = [piece for piece in pieces if not piece.magic]
    if not programs_:
        return "complete", ""
    if pieces[-1].magic:
        return "complete", ""
    return language.completeness(programs_[-1].text)
