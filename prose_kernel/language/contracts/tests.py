"""Reads files of kind `test`: subject, fixtures, cases and assertions (prose-md.md 7)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from textwrap import dedent
from typing import Any, Final

from msgspec import Struct, field

from prose_kernel.errors import ImportProgramError
from prose_kernel.language.contracts import SUFFIX
from prose_kernel.language.contracts.items import value_of
from prose_kernel.language.contracts.reader import field_span
from prose_kernel.language.contracts.targets import ProgramTarget, it_has
from prose_kernel.language.contracts.tree import Item
from prose_kernel.language.contracts.units import Unit
from prose_kernel.language.diagnostics import STRICT_PROFILES, Diagnostic, diagnostic

ERROR: Final = "__error.md"
_EXPECTED: Final = "expected_result"
_SEPARATOR: Final = re.compile(r"\A\s*(?::|--?(?=\s)|\u2013|\u2014)?[ \t]*")
_PREDICATE: Final = re.compile(r"`?([A-Za-z_][A-Za-z0-9_.-]*)`?\s+predicate:\s*(.*)", re.DOTALL)
_KEY: Final = re.compile(r"^[ \t]+(?:[-*+][ \t]+)?`?([A-Za-z_][A-Za-z0-9_-]*)`?:[ \t]*([^\n]*)$", re.MULTILINE)
_ABSENT: Final = re.compile(r"(?:does not|doesn't|must not) exist\b", re.IGNORECASE)
_NOT_FOUND: Final = "the subject `{}` is not found"
_CODE: Final = re.compile(r"`([^`\n]+)`")


class Assertion(Struct, frozen=True):
    """A condition about the output `name`, or about all outputs if it is "". `holds` is whether it must be true. For
    `__error.md`, `text` is `exists` or `does not exist`."""

    name: str
    text: str
    holds: bool
    item: Item | None = None

    @property
    def condition(self) -> str:
        """The condition for the judge: text in backticks is quoted (7)."""
        words = f"{self.name} {self.text}".strip()
        return _CODE.sub(lambda code: json.dumps(code[1], ensure_ascii=False), words)

    @property
    def is_about_error(self) -> bool:
        return self.name == ERROR

    @property
    def wants_error(self) -> bool:
        """Whether the assertion is true if the subject fails."""
        return _ABSENT.match(self.text) is None

    @property
    def shown(self) -> str:
        return f"{self.name}: {self.text}" if self.name else self.text


class ContractCase(Struct, frozen=True):
    """One run of the subject. `missing` are the required inputs without a fixture."""

    name: str
    values: Mapping[str, Any]
    assertions: tuple[Assertion, ...]
    missing: tuple[str, ...] = ()
    item: Item | None = None


class TestFile(Struct, frozen=True):
    """The contents of a test. `subject` is None if it can't be found or tested; `findings` has the reason."""

    subject: Unit | None
    cases: tuple[ContractCase, ...] = ()
    findings: tuple[Diagnostic, ...] = field(default=())


def read_test(unit: Unit) -> TestFile:
    """Return the subject, cases and assertions of a node of kind `test`."""
    source = unit.file.source
    try:
        subject = subject_of(unit)
    except ImportProgramError as problem:
        line = field_span(source.text, "subject")
        return TestFile(None, (), (diagnostic(source, problem.code, line, problem.message, problem.hint),))
    assertions = tuple(_assertions(unit))
    common, named = _fixtures(unit)
    cases = tuple(_cases(subject, common, named, assertions))
    findings = tuple(_findings(unit, subject, common, cases, assertions))
    return TestFile(subject, cases, findings)


def subject_of(unit: Unit) -> Unit:
    """Return the function or responsibility that is tested. Raises `ImportProgramError` if there is none."""
    name = str(unit.file.contract.fields.get("subject") or "").strip()
    try:
        found = _found(unit, name) if name else None
    except ImportProgramError as problem:
        if problem.code != "E316":
            raise ImportProgramError(_NOT_FOUND.format(name), code="E351", hint=problem.hint) from None
        raise
    if found is None:
        raise ImportProgramError(_NOT_FOUND.format(name), code="E351")
    if isinstance(found, ProgramTarget) or found.node.kind not in ("function", "responsibility"):
        kind = "program" if isinstance(found, ProgramTarget) else found.node.kind or "file with errors"
        message = f"the subject `{name}` is a {kind}: functions and responsibilities are tested"
        raise ImportProgramError(message, code="E352")
    return found


def _found(unit: Unit, name: str) -> Unit | ProgramTarget | None:
    targets, library = unit.targets, unit.file.files.library
    if "/" in name or name.endswith(SUFFIX):
        return targets.at(name)
    if (near := targets.sibling(name)) is not None or library is None:
        return near
    above = library.above(unit.file.address, name)
    return targets.file(above, name) if above is not None else None


_Fixtures = dict[str, tuple[Any, Item]]


def _fixtures(unit: Unit) -> tuple[_Fixtures, list[tuple[Item, dict[str, Any]]]]:
    """Return the values outside of cases, and the named cases with their keys."""
    common: _Fixtures = {}
    named: list[tuple[Item, dict[str, Any]]] = []
    text = unit.file.source.text
    for item in unit.node.items("Fixtures"):
        if item.names == ("fixture",):
            keys = _KEY.findall(text, item.span.start, item.span.end)
            named.append((item, {key: value if key == _EXPECTED else _value(value) for key, value in keys}))
        elif item.names:
            first = text.index(item.names[-1], item.head.start) + len(item.names[-1])
            raw = _SEPARATOR.sub("", text[first : item.span.end].removeprefix("`"), count=1)
            common.update(dict.fromkeys(item.roots, (_value(raw), item)))
    return common, named


def _value(raw: str) -> Any:
    """Return the value of a fixture: lines after `|`, JSON in quotes or brackets, code in backticks, or text."""
    head, _, rest = raw.partition("\n")
    if head.strip() == "|":
        return dedent(rest.expandtabs()).strip("\n")
    joined = " ".join(raw.split())
    if joined[:1] in ('"', "[", "{"):
        return value_of(joined)
    code = re.fullmatch(r"`([^`]*)`", joined)
    return code[1] if code else joined


def _assertions(unit: Unit) -> Iterator[Assertion]:
    for section, holds in (("Expects", True), ("Expects Not", False)):
        for item in unit.node.items(section):
            found = _PREDICATE.fullmatch(item.text) if item.names == ("path",) else None
            if found is not None:
                yield Assertion(found[1], found[2], holds, item)
            else:
                yield Assertion(item.names[0] if item.names else "", item.words, holds, item)


def _cases(
    subject: Unit, common: _Fixtures, named: list[tuple[Item, dict[str, Any]]], assertions: tuple[Assertion, ...]
) -> Iterator[ContractCase]:
    inputs, takes_more = subject.contract.inputs, subject.contract.takes_more
    names = {one.name for one in inputs}
    unnamed: list[tuple[Item | None, dict[str, Any]]] = [(None, {})]
    for item, keys in named or unnamed:
        values = {name: value for name, (value, _) in common.items() if name in names or takes_more}
        values.update((key, value) for key, value in keys.items() if key in names)
        missing = tuple(one.name for one in inputs if not one.optional and one.name not in values)
        more = (Assertion("", keys[_EXPECTED], True, item),) if keys.get(_EXPECTED) else ()
        title = item.text.split(" ")[0].strip("`\"'") if item is not None else ""
        yield ContractCase(title, values, (*assertions, *more), missing, item)


def _findings(
    unit: Unit, subject: Unit, common: _Fixtures, cases: tuple[ContractCase, ...], assertions: tuple[Assertion, ...]
) -> Iterator[Diagnostic]:
    source, strict = unit.file.source, unit.file.files.profile in STRICT_PROFILES
    inputs = dict.fromkeys(sorted(one.name for one in subject.contract.inputs))
    for name, (_, item) in common.items():
        if name not in inputs and not subject.contract.takes_more:
            yield diagnostic(source, "E027", item.head, f"`{subject.name}` has no input `{name}`", it_has(inputs))
    for case in cases:
        if case.missing and case.item is not None:
            message = f"the case `{case.name}` has no value for `{case.missing[0]}`: it is not run"
            yield diagnostic(source, "W351", case.item.head, message)
        for name in case.missing if case.item is None else ():
            code = "E026" if strict else "W352"
            yield diagnostic(source, code, unit.node.heading, f"no fixture for the input `{name}`: it is null")
    outputs = dict.fromkeys(sorted(one.name for one in subject.contract.outputs))
    for one in assertions:
        name = one.name.partition(".")[0].removesuffix("[]")
        if one.item is not None and name and not one.is_about_error and name not in outputs:
            message = f"`{subject.name}` has no output `{name}`"
            yield diagnostic(source, "W350", one.item.head, message, it_has(outputs))
