"""Checks the hoisted imports, declarations and exports of a module (docs/reference/vvm.md 9.1 to 9.3)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from prose_kernel.errors import ImportProgramError
from prose_kernel.language.diagnostics import Diagnostic, Findings
from prose_kernel.language.nearest import Nearest, did_you_mean
from prose_kernel.language.source import Source, Span
from prose_kernel.language.structs import replace
from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.program_interface import CheckedModule, LoadModule, exported_names, names_file
from prose_kernel.language.vvm.tree import Name, Program

_SKILL_SOURCE: Final = re.compile(r"github:[^/\s]+/\S+|npm:\S+|\.\.?/.*", re.DOTALL)


class ImportChecker:
    """Checks the hoisted statements at the top level of one module.

    Afterwards `agents` holds the names of its agents, `skills` the source of each skill; `resolved` maps the paths of
    imports to the modules, in source order.
    """

    def __init__(self, findings: Findings, near: Nearest, load: LoadModule | None) -> None:
        self._findings = findings
        self._report = findings.report
        self._near = near
        self._load = load
        self.agents: set[str] = set()
        self.skills: dict[str, str] = {}
        self.resolved: dict[str, CheckedModule] = {}
        self._tried: set[str] = set()
        self._agents: dict[str, Span] = {}
        self._imports: dict[str, Span] = {}
        self._functions: dict[str, Span] = {}
        self._exports: dict[str, tuple[bool, Span]] = {}  # whether by `pack`

    def check(self, program: Program) -> None:
        for item in program.items:
            match item:
                case tree.SkillImport():
                    self._skill(item)
                case tree.ModuleImport():
                    self._import(item)
                case tree.AgentDeclaration():
                    self._agent(item.name)
                case tree.Def():
                    self._function(item.name)
                case tree.Export() | tree.ExportPack():
                    self._export(item)
                case _:
                    pass

    def _position(self, span: Span) -> str:
        line, column = self._findings.source.line_column(span.start)
        return f"line {line}, column {column}"

    def _skill(self, item: tree.SkillImport) -> None:
        name, source = item.name.value, item.source.value
        if not name.strip():
            self._report("V030", item.name.span, "the skill import has an empty name", 'for example "web-search"')
        if not source.strip():
            self._report("V030", item.source.span, "the skill import has an empty source", f"the forms are {_FORMS}")
        elif _SKILL_SOURCE.fullmatch(source) is None:
            message = f'"{source}" is not a known form of a skill source'
            self._report("V501", item.source.span, message, f"the forms are {_FORMS}")
        if not name.strip():
            return
        if name in self.skills:
            self._report("V031", item.name.span, f'the skill "{name}" is imported twice', "keep one of the imports")
        self.skills.setdefault(name, source)

    def _import(self, item: tree.ModuleImport) -> None:
        if item.agent:
            self._agent(item.local)
        else:
            name = item.local
            first = self._imports.get(name.id) or self._functions.get(name.id)
            if first is not None:
                message = f"`{name.id}` is taken already ({self._position(first)})"
                self._report("V207", name.span, message, f"import it under another name: `as {name.id}2`")
            self._imports.setdefault(name.id, name.span)
        module = self._module(item.path)
        if module is not None:
            self._check_exported(item, module)

    def _module(self, path: tree.String) -> CheckedModule | None:
        """Return the module at a path; a failed import is reported where the path first occurs."""
        if path.value in self._tried:
            return self.resolved.get(path.value)
        self._tried.add(path.value)
        try:
            if path.value.endswith(".prose"):
                message = f"{path.value} is a program of OpenProse, which a VVM file cannot import"
                raise ImportProgramError(message, code="V090", hint="cells of one notebook may be in both languages")
            if not names_file(path.value):
                hint = 'give the path of a file: "./name.vvm"'
                if path.value.strip():
                    example = f'"./{path.value.lstrip("./~")}"'
                    hint = f"a module is a file, with a path that begins with `./`, `../` or `/`: {example}"
                raise ImportProgramError(f"Module not found: {path.value}", code="V090", hint=hint)
            found = self._load(path.value) if self._load is not None else None
        except ImportProgramError as error:
            self._report(error.code, path.span, error.message, error.hint)
            return None
        if not isinstance(found, CheckedModule):
            return None
        self.resolved[path.value] = found
        return found

    def _check_exported(self, item: tree.ModuleImport, module: CheckedModule) -> None:
        contract, name = module.contract, item.name
        here, there = contract.exports, contract.exported_agents
        if item.agent:
            here, there = there, here
        if name.id in here or not module.whole:
            return
        message = f"Export '{name.id}' not found in module '{item.path.value}'"
        if name.id in there:
            hint = "it is a value there: leave out `@`" if item.agent else f"it is an agent there: `import @{name.id}`"
        else:
            near = did_you_mean(self._near(name.id, here))
            hint = near or (f"it exports {', '.join(here[:12])}" if here else "it exports nothing of that kind")
        self._report("V090", name.span, message, hint)

    def _agent(self, name: Name) -> None:
        self.agents.add(name.id)
        self.check_unique("V020", "an agent", name, self._agents)

    def _function(self, name: Name) -> None:
        imported = self._imports.get(name.id)
        if imported is not None and name.id not in self._functions:
            message = f"`{name.id}` is imported already ({self._position(imported)})"
            self._report("V207", name.span, message, "choose another name, or import it under another one")
        self.check_unique("V021", "a function", name, self._functions)

    def check_unique(self, code: str, kind: str, name: Name, above: dict[str, Span]) -> None:
        """Report a name that is in `above`, the definitions of this kind above it in the same scope."""
        first = above.get(name.id)
        above.setdefault(name.id, name.span)
        if first is not None:
            message = f"there is {kind} `{name.id}` already ({self._position(first)})"
            self._report(code, name.span, message, "choose another name")

    def _export(self, item: tree.Export | tree.ExportPack) -> None:
        is_pack = isinstance(item, tree.ExportPack)
        own: set[str] = set()
        for name in exported_names(item):
            first = self._exports.get(name.id)
            if name.id in own:
                continue  # V205
            own.add(name.id)
            if first is None:
                self._exports[name.id] = is_pack, name.span
            elif is_pack or first[0]:
                message = f"`{name.id}` is exported already ({self._position(first[1])})"
                self._report("V207", name.span, message, "export each name in one place")


_FORMS: Final = '"github:user/repo", "npm:package", "./path" and "../path"'


def skill_conflicts(modules: Iterable[CheckedModule], program: Program, source: Source) -> list[Diagnostic]:
    """Return V032 for skills whose source differs from the source in a module that is loaded earlier (9.1)."""
    sources: dict[str, tuple[str, str]] = {}
    found: list[Diagnostic] = []
    for one, text in (*((module.program, module.source) for module in modules), (program, source)):
        findings = Findings(text)
        own: set[str] = set()
        for item in one.items:
            if isinstance(item, tree.SkillImport) and item.name.value not in own:
                name, span = item.name.value, item.source.span
                own.add(name)
                first, where = sources.setdefault(name, (item.source.value, text.name))
                if first != item.source.value:
                    message = f'the skill "{name}" comes from "{item.source.value}" here, but from "{first}" in {where}'
                    findings.add("V032", span.start, span.end, message, "agree on one source")
        found += findings.found if one is program else in_file(findings.found, text.name)
    return found


def in_file(findings: Iterable[Diagnostic], name: str) -> list[Diagnostic]:
    """Return findings with the name of the imported file that they are in."""
    return [replace(one, file=name) for one in findings]
