"""Checks the parameters, scripts, instances, tools and skills of a contract file (prose-md.md 3.1, 6, 8)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from prose_kernel.language.contracts.tests import read_test
from prose_kernel.language.contracts.tree import SCRIPT, ContractNode, Item
from prose_kernel.language.contracts.units import FileUnit, Unit
from prose_kernel.language.diagnostics import Diagnostic, diagnostic
from prose_kernel.language.openprose.call_targets import CallProblem
from prose_kernel.language.source import Span

_NEAR_FENCE: Final = re.compile(r"(?:prosescript|prose)(?=\s|\Z)", re.IGNORECASE)
_PROVIDED: Final = re.compile(r"`?([^`\s]*)`?")
_NONE: Final = frozenset(["(none)", "none", "none."])


def check_file(file: FileUnit) -> list[Diagnostic]:
    """Return all findings for a file, except errors in the files that it calls."""
    found = list(file.findings)
    for unit in file.units:
        if not unit.node.kind:
            continue
        for check in (_parameters, _script, _instances, _tools, _skills):
            found += check(unit)
        if unit.node.kind == "test" and file.contract.fields.get("subject"):
            found += read_test(unit).findings
    return found


def _parameters(unit: Unit) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for item in unit.node.items("Parameters") if unit.node.kind == "function" else ():
        for name in item.roots:
            if name in seen:
                yield diagnostic(unit.file.source, "E021", item.head, f"The parameter `{name}` is declared twice")
            seen.add(name)


def _script(unit: Unit) -> Iterator[Diagnostic]:
    section, source = unit.node.script_section, unit.file.source
    if section is None or (unit.node.kind not in ("function", "responsibility", "gateway", "pattern")):
        return
    near = [one for one in section.fences if _NEAR_FENCE.match(one.text) and not SCRIPT.match(one.text)]
    for fence in near:
        line = Span(fence.span.start, fence.inside.start - 1)
        yield diagnostic(source, "W320", line, f"a fence `{fence.text}` is not run", "only `prose` is")
    if unit.has_script:
        yield from unit.compiled.diagnostics
    elif unit.node.kind == "pattern":
        hint = "write the script in a fence that begins with ```prose"
        yield diagnostic(source, "E345", section.line, "the Delegation has no script", hint)
    elif section.text and not near:
        message = "this Execution is in words: a session reads it"
        yield diagnostic(source, "W316", section.line, message)


def _instances(unit: Unit) -> Iterator[Diagnostic]:
    source = unit.file.source
    if unit.node.kind not in ("function", "responsibility", "gateway"):
        return
    for at, one in unit.declared:
        if isinstance(one, str):
            hint = "write `- name: ...`, `pattern: ...`, perhaps the mappings `with` and `config`"
            yield diagnostic(source, "E340", at, one, hint)
        elif isinstance(problem := unit.targets.instance(one), CallProblem):
            yield diagnostic(source, problem.code, at, problem.message, problem.hint)


def _tools(unit: Unit) -> Iterator[Diagnostic]:
    source, library = unit.file.source, unit.file.files.library
    for item, text in _entries(unit.node, "Tools"):
        namespace, colon, name = text.partition(":")
        if not colon or not name or "/" in name:
            yield diagnostic(source, "E335", item.head, f"`{text}` is not a tool [tool_invalid]", "write `cli:NAME`")
        elif namespace not in ("cli", "mcp"):
            message = f"`{namespace}` is not a kind of tools [tool_unsupported_kind]"
            yield diagnostic(source, "E336", item.head, message, "write `cli:NAME` or `mcp:NAME`")
        elif namespace == "cli" and library is not None and not library.has_tool(name):
            message = f"the tool `{text}` is not on this machine"
            yield diagnostic(source, "W330", item.head, message, "install it, or it is an error when the node runs")


def _skills(unit: Unit) -> Iterator[Diagnostic]:
    source, library = unit.file.source, unit.file.files.library
    for item, text in _entries(unit.node, "Skills"):
        if ":" not in text:
            message, hint = f"the skill `{text}` has no namespace", f"write `NAMESPACE:{text}`"
            yield diagnostic(source, "W332", item.head, message, hint)
        elif library is not None and not library.has_skill(text):
            yield diagnostic(source, "W331", item.head, f"the skill `{text}` is not on this machine")


def _entries(node: ContractNode, section: str) -> Iterator[tuple[Item, str]]:
    for item in node.items(section):
        for text in provided(item):
            yield item, text


def provided(item: Item) -> Iterable[str]:
    """Return the tools or skills in a bullet, as written; empty for `(none)`."""
    if item.names:
        return [item.names[0]]
    if item.text.lower() in _NONE:
        return []
    found = _PROVIDED.match(item.text)
    return [found[1].rstrip(":,")] if found and found[1] else []
