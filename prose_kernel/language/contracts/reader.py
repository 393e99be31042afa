"""Reads a contract file into nodes and findings: front matter, nodes, sections, and the kinds of nodes that sections
belong to (prose-md.md 1.2 to 1.4). Never raises.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, cast

from prose_kernel.language.contracts import SUFFIX
from prose_kernel.language.contracts.items import OPTIONAL, declared, read_items
from prose_kernel.language.contracts.tree import Block, ContractFile, ContractNode, Item, Kind, Section
from prose_kernel.language.diagnostics import STRICT_PROFILES, Diagnostic, Findings, Profile
from prose_kernel.language.nearest import Nearest, did_you_mean
from prose_kernel.language.openprose.keywords import NAME
from prose_kernel.language.source import Source, Span

_MARKED: Final = re.compile(
    r"^(?: {0,3}(#{1,6})(?=[ \t\n]|\Z)| {0,3}<!--|[ \t]*(`{3,}(?=[^`\n]*$)|~{3,}))([^\n]*)", re.MULTILINE
)
"""Matches a line that may begin a block, so a long file of plain text costs one search."""
_FRONT: Final = re.compile(r"---[ \t]*\n(?:(?P<yaml>(?>(?:(?!---[ \t]*(?:\n|\Z))[^\n]*\n)*))---[ \t]*(?:\n|\Z))?")
_CLOSING_SIGNS: Final = re.compile(r"[ \t]#+[ \t]*\Z|\A#+[ \t]*\Z")
_NODE_NAME: Final = re.compile(rf"{NAME}(?>(?:\.{NAME})*)")
_ID: Final = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")
_NOT_IN_TITLES: Final = re.compile(r"[^a-z0-9]+")

_KINDS: Final = ("responsibility", "function", "gateway", "pattern", "test")
_NAMED_KINDS: Final = "`responsibility`, `function`, `gateway`, `pattern`, `test`"
_RETIRED_KINDS: Final[Mapping[str, str]] = {
    "service": "write `kind: function` with Parameters and Returns",
    "program": "write `kind: function` whose Execution calls the parts",
    "system": "write one function or responsibility whose Execution calls the parts",
    "composite": "write `kind: pattern` with Slots and Delegation",
}
_ALL: Final = "rfgpt"
_SECTIONS: Final[Mapping[str, str]] = {
    "Description": _ALL, "Strategies": _ALL, "Goal": "rfg", "Continuity": "rg", "Schedule": "g", "Receives": "g",
    "Emits": "g", "Payload": "g", "Parameters": "fp", "Returns": "fp", "Requires": "rp", "Maintains": "rgp",
    "Errors": _ALL, "Invariants": _ALL, "Environment": "rfgp", "Runtime": "rfgp", "Skills": "rfgp", "Tools": "rfgp",
    "Shape": "rfgp", "Execution": "rfg", "Patterns": "rf", "Slots": "p", "Config": "p", "Delegation": "p",
    "Fixtures": "t", "Expects": "t", "Expects Not": "t",
}  # fmt: skip
"""The known sections, with the first letters of the kinds of nodes that they belong to."""
_RETIRED: Final[Mapping[str, str]] = {
    "Ensures": "write `### Returns` in a function, `### Maintains` in a responsibility",
    "Services": "`call` the parts in `### Execution`",
    "Wiring": "`call` the parts in `### Execution`",
}
_IGNORED: Final[Mapping[str, str]] = {
    "Criteria": "write promises under `### Maintains`",
    "Constraints": "write `### Invariants` or `### Shape`",
    "Fulfillment": "write `### Execution`",
    "Memory": "write `### Maintains`",
}
_KNOWN_SECTIONS: Final[Mapping[str, str]] = {name.lower(): name for name in (*_SECTIONS, *_RETIRED, *_IGNORED)}
"""The known names of sections by their lower-case form."""
_WITH_ITEMS: Final = frozenset(_SECTIONS) - {"Description", "Continuity", "Goal", "Execution", "Delegation", "Patterns"}
_WITH_PARTS: Final = frozenset(["Requires", "Maintains", "Execution"])
_NOT_EMPTY: Final = frozenset(["Parameters", "Returns", "Requires", "Maintains", "Description", "Execution"])
_OF_INTERFACES: Final = frozenset(["Parameters", "Returns", "Requires", "Maintains", "Continuity"])
_INTERFACES: Final = {
    "function": "Parameters and Returns",
    "responsibility": "Requires and Maintains",
    "gateway": "Maintains",
}
_REQUIRED: Final = {
    "responsibility": (("Maintains",),),
    "pattern": (("Slots",), ("Delegation",)),
    "test": (("Expects", "Expects Not"),),
}
_LONGEST_KNOWN: Final = max(map(len, _KNOWN_SECTIONS)) + 2


# ---------------------------------------------------------------- blocks


def blocks(text: str) -> list[Block]:
    """Split any text into blocks, in linear time."""
    front = front_matter(text)
    found = [front] if front is not None else []
    at = search = front.span.end if front is not None else 0
    last_comment = text.rfind("-->")
    while (mark := _MARKED.search(text, search)) is not None:
        if not mark[1] and not mark[2]:  # a comment is text, if it is closed
            opened = text.index("<!--", mark.start())
            search = text.index("-->", opened) + 3 if opened < last_comment else mark.end()
            continue
        block = _heading(text, mark) if mark[1] else _fence(text, mark)
        if block.span.start > at:
            found.append(Block("text", Span(at, block.span.start)))
        found.append(block)
        at = search = block.span.end
    if at < len(text):
        found.append(Block("text", Span(at, len(text))))
    return found


def front_matter(text: str) -> Block | None:
    """Return the front matter of a text, None if there is none or it isn't closed."""
    front = _FRONT.match(text)
    if front is None or front["yaml"] is None:
        return None
    return Block("frontmatter", Span(0, front.end()), inside=Span(*front.span("yaml")))


def _heading(text: str, mark: re.Match[str]) -> Block:
    end = min(mark.end() + 1, len(text))
    title = _CLOSING_SIGNS.sub("", mark[3]).strip()
    return Block("heading", Span(mark.start(), end), title, len(mark[1]))


def _fence(text: str, mark: re.Match[str]) -> Block:
    signs = mark[2]
    inside = min(mark.end() + 1, len(text))
    closer = re.compile(rf"^[ \t]*{signs[0]}{{{len(signs)},}}[ \t]*$", re.MULTILINE).search(text, inside)
    stop, end = (closer.start(), min(closer.end() + 1, len(text))) if closer is not None else (len(text), len(text))
    span, inner = Span(mark.start(), end), Span(inside, max(stop, inside))
    return Block("fence", span, mark[3].strip(), 0, inner, mark.start(2) - mark.start(), closer is not None)


# ---------------------------------------------------------------- the file


class Reader:
    """Reads one file. The findings are in no particular order."""

    def __init__(self, source: Source, profile: Profile) -> None:
        self.source = source
        self.text = source.text
        self.strict = profile in STRICT_PROFILES
        self.findings = Findings(source)
        self.report = self.findings.report
        self.blocks = blocks(self.text)
        self.fields: dict[str, Any] = {}

    def read(self) -> ContractFile:
        for block in self.blocks:
            if not block.closed:
                self.report("E304", block.span, "this fence is never closed", "close it with the same signs on a line")
        self.fields = self._front_matter()
        title = next((block.text for block in self.blocks if block.level == 1), "")
        inline = list(_split(self.blocks, 2))
        first = self.blocks.index(inline[0][0]) if inline else len(self.blocks)
        own = self._own(self.blocks[:first], title)
        nodes = [own, *(node for part in inline if (node := self._inline(*part, own)) is not None)]
        self._named_once(nodes)
        for node in nodes:
            _check_sections(self, node)
        return ContractFile(self.source, tuple(self.blocks), tuple(nodes), self.fields, title)

    # ---------------------------------------------------------------- front matter

    def _front_matter(self) -> dict[str, Any]:
        start = Span(0, 0)
        if not self.blocks or self.blocks[0].kind != "frontmatter":
            if self.text.startswith("---"):
                self.report("E302", start, "the front matter is never closed", "end it with a line `---`")
            else:
                hint = "begin the file with `---`, `kind: function`, `---`"
                self.report("E302", start, "there is no front matter", hint)
            return {}
        inside = self.blocks[0].inside
        try:
            _, fields = _yaml(self.text[inside.start : inside.end], "BaseLoader")
        except NotYaml as problem:
            at = min(self.source.line_starts[min(problem.line + 1, len(self.source.line_starts) - 1)], inside.end)
            self.report("E302", Span(at, at), f"the front matter isn't YAML: {problem}")
            return {}
        if not isinstance(fields, dict):
            self.report("E302", start, "the front matter isn't a YAML mapping", "write `kind: function` in it")
            return {}
        return {str(name): value for name, value in fields.items()}

    def _kind(self) -> Kind:
        if not self.fields:
            return ""
        kind = self.fields.get("kind")
        line = field_span(self.text, "kind")
        if kind is None or kind == "":
            self.report("E302", line, "the front matter has no `kind`", f"one of {_NAMED_KINDS}")
        elif not isinstance(kind, str):
            self.report("E300", line, "`kind` is a word", f"one of {_NAMED_KINDS}")
        elif kind in _RETIRED_KINDS:
            self.report("E301", line, f"the kind `{kind}` is retired", _RETIRED_KINDS[kind])
        elif kind not in _KINDS:
            self.report("E300", line, f"unknown kind `{kind}`", f"one of {_NAMED_KINDS}")
        else:
            return cast("Kind", kind)
        return ""

    def _own(self, part: Sequence[Block], title: str) -> ContractNode:
        kind, name = self._kind(), self.fields.get("name")
        if not isinstance(name, str) or not name.strip():
            name = _NOT_IN_TITLES.sub("-", title.lower()).strip("-")
            name = name or self.source.name.replace("\\", "/").rpartition("/")[2].removesuffix(SUFFIX)
            if self.fields:
                hint = f"write `name: {name}`"
                self.report("W303", field_span(self.text, "kind"), f"no `name`: it is `{name}`", hint)
        front = part[0].span.end if part and part[0].kind == "frontmatter" else 0
        end = part[-1].span.end if part else 0
        node = ContractNode(
            name.strip(), kind, Span(front, end), field_span(self.text, "kind"), False, self._sections(part)
        )
        if kind == "test" and not str(self.fields.get("subject") or "").strip():
            self.report("E350", node.heading, "a test needs a `subject`", "write `subject: NAME` in the front matter")
        if kind == "responsibility" and not _ID.fullmatch(str(self.fields.get("id"))):
            span = field_span(self.text, "id") if "id" in self.fields else node.heading
            message = "a responsibility has an `id`: 26 characters of Crockford base32, in upper case"
            self.report("E303" if self.strict else "W300", span, message)
        return node

    # ---------------------------------------------------------------- nodes

    def _inline(self, heading: Block, part: Sequence[Block], own: ContractNode) -> ContractNode | None:
        name = heading.text.strip("`").strip()
        if not _NODE_NAME.fullmatch(name):
            if own.kind:
                self.report("W304", heading.span, f"`{heading.text}` isn't a name: this part is documentation")
            return None
        read = self._sections(part)
        names = {one.name for one in read}
        kind: Kind = "function"
        if "Slots" in names:
            kind = "pattern"
        elif names & {"Requires", "Maintains", "Continuity"}:
            kind = "responsibility"
        return ContractNode(name, kind, Span(heading.span.start, _end(heading, part)), heading.span, True, read)

    def _named_once(self, nodes: Sequence[ContractNode]) -> None:
        names: set[str] = set()
        for node in nodes:
            if node.inline and node.name in names:
                own = node.name == nodes[0].name
                message = f"`{node.name}` is the name of {'the file itself' if own else 'another node'}"
                self.report("E305", node.heading, message)
            names.add(node.name)

    # ---------------------------------------------------------------- sections

    def _sections(self, part: Sequence[Block]) -> tuple[Section, ...]:
        return tuple(self._section(heading, inner) for heading, inner in _split(part, 3))

    def _section(self, heading: Block, inner: Sequence[Block]) -> Section:
        title, colon, first = heading.text.partition(":")
        name = _KNOWN_SECTIONS.get(" ".join(title.lower().split()), "")
        body = Span(heading.span.end, _end(heading, inner))
        text = self.text[body.start : body.end].strip()
        if colon and first.strip():
            text = f"{first.strip()}\n{text}".strip()
        fences = tuple(block for block in inner if block.kind == "fence")
        items: tuple[Item, ...] = ()
        if name in _WITH_ITEMS:
            items = read_items(self.text, body, fences, truth=name in ("Requires", "Maintains"))
        parts: tuple[Item, ...] = ()
        if name in _WITH_PARTS:
            parts = tuple(self._part(title, _end(title, below)) for title, below in _split(inner, 4))
        return Section(name, heading.text, heading.span, body, text, fences, items, parts)

    def _part(self, block: Block, end: int) -> Item:
        """Return a `####` part of a section: a facet, a need or a stage."""
        title = block.text
        names, remark, rest = declared(title)
        if not names and _NODE_NAME.fullmatch(title):
            names, rest = (title,), len(title)
        text = f"{title[rest:]}\n{self.text[block.span.end : end]}".strip()
        optional = OPTIONAL.search(f"{remark} {title[rest:]}") is not None
        return Item(names, remark, text, Span(block.span.start, end), block.span, optional)


def read(source: Source, profile: Profile = "default") -> tuple[ContractFile, list[Diagnostic]]:
    reader = Reader(source, profile)
    return reader.read(), reader.findings.found


def _split(part: Sequence[Block], level: int) -> Iterator[tuple[Block, Sequence[Block]]]:
    """Yield the headings of a level, each with the blocks up to the next one."""
    starts = [at for at, block in enumerate(part) if block.level == level]
    for start, end in pairwise([*starts, len(part)]):
        yield part[start], part[start + 1 : end]


def _end(heading: Block, part: Sequence[Block]) -> int:
    return part[-1].span.end if part else heading.span.end


class NotYaml(Exception):
    """Raised for a text that isn't YAML, with the reason, and the number of the line, from 0."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.line = line


def yaml_entries(text: str) -> list[tuple[int, Any]]:
    """Return the entries of a list with their lines, from 0; empty if the text isn't a list. Raises `NotYaml`."""
    node, data = _yaml(text, "SafeLoader")
    lines = [one.start_mark.line for one in node.value] if isinstance(data, list) else []
    return list(zip(lines, data, strict=True)) if lines else []


def _yaml(text: str, name: str) -> tuple[Any, Any]:
    """Return the tree and the data of a text. The loader `name` must be one that makes only plain data."""
    import yaml

    loader = getattr(yaml, f"C{name}", getattr(yaml, name))(text)
    try:
        node = loader.get_single_node()
        return node, loader.construct_document(node) if node is not None else None
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        raise NotYaml(getattr(problem, "problem", None) or "it cannot be read", mark.line if mark else 0) from None
    except RecursionError:
        raise NotYaml("it is nested too deeply") from None
    except (ValueError, OverflowError, TypeError):  # such as an invalid date
        raise NotYaml("it cannot be read") from None
    finally:
        loader.dispose()


def own_field(head: str, name: str) -> str:
    """Return a field of the front matter from the beginning of a file's text, "" if it isn't a text."""
    front = front_matter(head)
    with contextlib.suppress(NotYaml):
        _, found = _yaml(head[slice(*front.inside)], "BaseLoader") if front is not None else (None, None)
        if isinstance(found, dict) and isinstance(found.get(name), str):
            return str(found[name]).strip()
    return ""


def field_span(text: str, name: str) -> Span:
    """Return the span of a field's line in the front matter, or of its first line if the field is missing."""
    front = front_matter(text)
    if front is None:
        return Span(0, 0)
    found = re.compile(rf"^{re.escape(name)}[ \t]*:[^\n]*", re.MULTILINE).search(text, *front.inside)
    return Span(*found.span()) if found is not None else Span(0, 3)


# ---------------------------------------------------------------- kinds and sections


def _check_sections(reader: Reader, node: ContractNode) -> None:
    """Report repeated, retired, empty, misplaced and missing sections of a node."""
    seen: set[str] = set()
    for section in node.sections:
        if not section.name:
            _unknown(reader, section)
            continue
        if section.name in seen:
            reader.report("E306", section.line, f"`### {section.name}` is there already in this node")
        elif section.name in _RETIRED:
            reader.report("E307", section.line, f"`### {section.name}` is retired", _RETIRED[section.name])
        elif section.name in _IGNORED:
            message = f"`### {section.name}` is documentation only"
            reader.report("W306", section.line, message, _IGNORED[section.name])
        elif not section.text and section.name in _NOT_EMPTY:
            reader.report("W305", section.line, f"`### {section.name}` is empty")
        seen.add(section.name)
        if node.kind:
            _check_kind(reader, node, section)
    for names in _REQUIRED.get(node.kind, ()):
        if seen.isdisjoint(names):
            needed = " or ".join(f"`### {name}`" for name in names)
            reader.report("E308", node.heading, f"a {node.kind} needs {needed}")
    if node.kind == "function" and "Returns" not in seen:
        hint = "add `### Returns`"
        reader.report("W307", node.heading, "no Returns: the whole answer is the result", hint)
    if node.kind == "gateway":
        continuity = node.section("Continuity")
        if continuity is None or "external-driven" not in continuity.text:
            at = continuity.line if continuity else node.heading
            reader.report("W308", at, "the Continuity of a gateway is `external-driven`")


def _unknown(reader: Reader, section: Section) -> None:
    name = " ".join(section.title.partition(":")[0].split()).lower()
    if not 3 <= len(name) <= _LONGEST_KNOWN or name in _KNOWN_SECTIONS:
        return
    near = Nearest()(name, _KNOWN_SECTIONS)
    if near is not None:
        hint = did_you_mean(f"### {_KNOWN_SECTIONS[near]}")
        reader.report("W301", section.line, f"`### {section.title}` is documentation only", hint)


def _check_kind(reader: Reader, node: ContractNode, section: Section) -> None:
    kinds = _SECTIONS.get(section.name)
    if kinds is None or node.kind[0] in kinds:
        return
    if node.kind in _INTERFACES and section.name in _OF_INTERFACES:
        message = f"`### {section.name}` isn't part of the interface of a {node.kind}"
        reader.report("E309", section.line, message, f"it has {_INTERFACES[node.kind]}")
    else:
        reader.report("W302", section.line, f"`### {section.name}` has no effect in a {node.kind}")
