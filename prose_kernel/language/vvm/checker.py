"""The static checks of a VVM program: every code of docs/reference/vvm.md 10.2 and 10.3 that needs more than grammar.

One walk visits the statements in source order. It uses an explicit stack, the agenda, instead of recursion, so that
neither the nesting nor the length of a program can exhaust Python's stack. Steps after a body are pushed before it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any, ClassVar, Final

from msgspec import Struct

from prose_kernel.language.diagnostics import Diagnostic, Findings, in_order
from prose_kernel.language.nearest import Nearest
from prose_kernel.language.nodes import visitors
from prose_kernel.language.source import Source, Span
from prose_kernel.language.structs import replace
from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.agent_checks import AgentChecker
from prose_kernel.language.vvm.expression_checks import ExpressionChecker, ModuleNames, items_error
from prose_kernel.language.vvm.import_checks import ImportChecker, in_file, skill_conflicts
from prose_kernel.language.vvm.names import LIBRARY, KnownNames
from prose_kernel.language.vvm.program_interface import CheckedModule, LoadModule, execution_order
from prose_kernel.language.vvm.scopes import Scope, Scopes, nested_statements
from prose_kernel.language.vvm.tree import Name, Program

_NO_NAMES = KnownNames()
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_STRING: Final = re.compile(r'"([^"\n]*)"')
_CERTAIN_CODES = frozenset({"V211", "V711"})  # not reported for a text with syntax errors


def check(
    program: Program,
    source: Source,
    *,
    known: KnownNames | None = None,
    load: LoadModule | None = None,
    cell: bool = False,
    syntax_findings: Sequence[Diagnostic] = (),
) -> tuple[Diagnostic, ...]:
    """Return all findings of a program in source order, then the findings of the modules that it imports.

    `known` holds the names that are bound before this text. `cell` applies the rules of a notebook (9.6): later cells
    may read names that this one assigns. `load` returns the module at a path; without it imports are not checked.
    `syntax_findings`, of the parser, are included; names that an unreadable line may bind are not reported as missing.
    Nothing is executed; the cost is linear in the size of the program.
    """
    checker = Checker(program, source, known or _NO_NAMES, load, cell, syntax_findings)
    found = [*syntax_findings, *checker.run()]
    modules = execution_order(checker.imports.resolved.values())
    by_file: dict[str, list[Diagnostic]] = {"": found}
    for module in modules:
        by_file.setdefault(module.source.name, []).extend(module.findings)
    for finding in skill_conflicts(modules, program, source) if modules else ():
        by_file[finding.file].append(finding)
    return tuple(finding for findings in by_file.values() for finding in in_order(findings))


def check_module(
    program: Program, source: Source, load: LoadModule, syntax_findings: Sequence[Diagnostic]
) -> tuple[tuple[Diagnostic, ...], Mapping[str, CheckedModule]]:
    """Return all findings of an imported file, syntax errors included, and the modules that it imports."""
    checker = Checker(program, source, _NO_NAMES, load, False, syntax_findings)
    found = in_order([*syntax_findings, *checker.run()])
    return tuple(in_file(found, source.name)), checker.imports.resolved


class Checker:
    """Checks one program."""

    def __init__(
        self,
        program: Program,
        source: Source,
        known: KnownNames,
        load: LoadModule | None,
        cell: bool,
        syntax_findings: Sequence[Diagnostic],
    ) -> None:
        self._unparsed = _unparsed(program, source, syntax_findings)
        known = self._unparsed.added_to(known)
        self._program = program
        self._known = known
        self._cell = cell
        self._findings = Findings(source)
        near = Nearest()
        self._scopes = Scopes(program.items, lambda name, span: self._expressions.report_early_read(name, span))
        self.imports = ImportChecker(self._findings, near, load)
        self.imports.check(program)
        skills = {*known.skills, *self.imports.skills}
        self._agents = checks = AgentChecker(self._findings, near, skills, self._is_defined, load)
        functions = {
            item.name.id: tuple(parameter.id for parameter in item.parameters)
            for item in program.items
            if isinstance(item, tree.Def) and self._scopes.binding_counts[item.name.id] == 1
        }
        names = ModuleNames(known, self.imports.agents, functions)
        self._expressions = ExpressionChecker(self._findings, near, names, self._scopes, checks, self._is_reached)
        self._walk = self._expressions.walk
        self._report = self._findings.report
        self._is_broken = any(finding.severity == "error" for finding in syntax_findings)
        self._nesting = 0  # blocks around the current statement, in its scope
        self._agenda: list[tuple[Callable[[Any], None] | None, Any]] = []  # None: visit the statement

    def run(self) -> Sequence[Diagnostic]:
        self._schedule(self._program.items)
        agenda, visit = self._agenda, self._visit
        while agenda:
            action, argument = agenda.pop()
            if action is None:
                visit[type(argument)](self, argument)
            else:
                action(argument)
        if not self._cell:
            self._report_unread(self._scopes.module)
        found = self._findings.found
        return [one for one in found if one.code not in _CERTAIN_CODES] if self._is_broken else found

    def _is_reached(self) -> bool:
        """Return whether the current statement runs whenever the module does, and outside of a `try`."""
        return not self._nesting and self._scopes.current.is_module

    # ------------------------------------------------------------ the agenda

    def _schedule(self, body: tree.Body) -> None:
        self._agenda.extend(zip(repeat(None), reversed(body)))

    def _defer(self, action: Callable[[Any], None], argument: Any) -> None:
        """Schedule an action that runs after everything that is scheduled later."""
        self._agenda.append((action, argument))

    def _schedule_steps(self, *steps: tuple[Callable[[Any], None], Any]) -> None:
        self._agenda.extend(reversed(steps))

    def _block(self, body: tree.Body) -> None:
        self._nesting += 1
        self._defer(self._leave_block, None)
        self._schedule(body)

    def _leave_block(self, _: None) -> None:
        self._nesting -= 1

    def _loop(self, body: tree.Body) -> None:
        self._defer(self._leave_loop, None)
        self._block(body)

    def _leave_loop(self, _: None) -> None:
        self._scopes.leave_loop()

    # ------------------------------------------------------------ binding

    def _bind(self, name: Name) -> None:
        """Bind a name that is never reported as unread: of `for`, `as`, `def`, a pattern, a parameter, an import."""
        self._record_binding(name)
        self._scopes.current.exempt.add(name.id)

    def _record_binding(self, name: Name) -> None:
        """Bind a name in the current scope, and report that it hides a library function (V703)."""
        scope = self._scopes.current
        scope.bound.add(name.id)
        if name.id in LIBRARY and name.id not in scope.shadows:
            scope.shadows.add(name.id)
            message = f"`{name.id}` hides the library function of that name"
            self._report("V703", name.span, message, "choose another name if you need the function")

    def _report_unread(self, scope: Scope) -> None:
        for target in scope.unread():
            if target.id in self._unparsed.words:
                continue
            hint = f"read or export it, or call it `_{target.id}` if that is on purpose"
            self._report("V530", target.span, f"`{target.id}` is assigned but never read", hint)

    # ------------------------------------------------------------ statements of a module

    def _is_misplaced(self, node: tree.Node, words: str) -> bool:
        """Return whether a statement of a module is inside a block or a function, and report it (V202)."""
        if self._is_reached():
            return False
        if self._may_lack_header(node):
            return True
        where = "a block" if self._scopes.current.is_module else "a function"
        hint = "move it out, to the left margin"
        start = node.span.start
        self._report("V202", Span(start, start + len(words.partition(" ")[0])), f"{words} inside {where}", hint)
        return True

    def visit_skill_import(self, node: tree.SkillImport | tree.ModuleImport) -> None:
        self._is_misplaced(node, "import" if isinstance(node, tree.SkillImport) else "from ... import")
        if isinstance(node, tree.ModuleImport) and not node.agent:
            self._bind(node.local)

    visit_module_import = visit_skill_import

    def _is_defined(self, name: str) -> bool:
        return self._scopes.holder(name) is not None or self._known.binds(name)

    def visit_agent_declaration(self, node: tree.AgentDeclaration) -> None:
        self._is_misplaced(node, "agent")
        self.imports.agents.add(node.name.id)
        static = self._agents.check_declared(node.keywords)
        found = self._findings.found
        before = len(found)
        self._walk(*(keyword.value for keyword in node.keywords))
        if not static:
            del found[before:]  # V041 is enough

    def visit_export(self, node: tree.Export) -> None:
        if self._is_misplaced(node, "export"):
            return
        name = node.name
        if node.agent:
            if not self._expressions.is_agent(name.id):
                self._expressions.report_missing_agent(name.id, name.span, variables=False)
            return
        if name.id in self._scopes.module.names:
            self._scopes.module.reads.add(name.id)
        elif not self._known.binds(name.id):
            self._expressions.report_unbound_export(name)

    def visit_export_pack(self, node: tree.ExportPack) -> None:
        self._is_misplaced(node, "export")
        self._expressions.pack(node.arguments, node.keywords)
        self._walk(*node.arguments, *(keyword.value for keyword in node.keywords))

    def _may_lack_header(self, node: tree.Node) -> bool:
        """Return whether the header above this statement may be lost."""
        return self._unparsed.hides_header(self._findings.source, node.span)

    # ------------------------------------------------------------ functions

    def visit_def(self, node: tree.Def) -> None:
        scope = self._scopes.current
        self._bind(node.name)
        if not scope.is_module:
            message = f"`{node.name.id}` is a function inside a function, which other implementations may not accept"
            self._report("V706", node.name.span, message)
            self.imports.check_unique("V021", "a function", node.name, scope.functions)
        elif self._nesting:
            self._is_misplaced(node, "def")
        self._defer(self._leave_function, (self._scopes.enter(node), self._nesting))
        self._nesting = 0
        seen: set[str] = set()
        for parameter in node.parameters:
            if parameter.id in seen:
                message = f"the parameter `{parameter.id}` appears twice"
                self._report("V204", parameter.span, message, "choose another name")
            seen.add(parameter.id)
            self._bind(parameter)
        self._schedule(node.body)

    def _leave_function(self, outer: tuple[Scope, int]) -> None:
        self._report_unread(self._scopes.current)
        self._scopes.leave(outer[0])
        self._nesting = outer[1]

    def visit_return(self, node: tree.Return) -> None:
        if self._scopes.current.is_module and not self._may_lack_header(node):
            start = node.span.start
            hint = "export a result: `export name`"
            self._report("V080", Span(start, start + len("return")), "`return` outside a function", hint)
        if node.value is not None:
            self._walk(node.value)

    def visit_break(self, node: tree.Break | tree.Continue) -> None:
        if not self._scopes.current.loops and not self._may_lack_header(node):
            word = "break" if isinstance(node, tree.Break) else "continue"
            hint = "it belongs into a `for` or `while` of the same function"
            self._report("V081", node.span, f"`{word}` outside a loop", hint)

    visit_continue = visit_break

    # ------------------------------------------------------------ other statements

    def visit_raise(self, _: tree.Node) -> None:
        """Check nothing."""

    visit_pass = visit_raise

    def visit_assign(self, node: tree.Assign) -> None:
        self._walk(node.value)
        self._record_binding(node.target)
        self._scopes.current.assigned.setdefault(node.target.id, node.target)

    def visit_expression_statement(self, node: tree.ExpressionStatement) -> None:
        self._walk(node.value)

    def visit_if(self, node: tree.If) -> None:
        if node.otherwise is not None:
            self._defer(self._block, node.otherwise)
        for arm in reversed(node.arms[1:]):
            self._defer(self._further_arm, arm)
        for arm in node.arms[:1]:
            self._arm(arm)

    def _further_arm(self, arm: tree.Arm) -> None:
        self._nesting += 1  # its condition may not be evaluated
        self._defer(self._leave_block, None)
        self._arm(arm)

    def _arm(self, arm: tree.Arm) -> None:
        self._expressions.condition(arm.condition)
        self._block(arm.body)

    def visit_while(self, node: tree.While) -> None:
        self._scopes.enter_loop()
        self._expressions.condition(node.condition)
        self._loop(node.body)

    def visit_for(self, node: tree.For) -> None:
        self._walk(node.items)
        self._expressions.report_error(items_error(node.items))
        self._bind(node.target)
        self._scopes.enter_loop()
        self._loop(node.body)

    def visit_with_input(self, node: tree.WithInput) -> None:
        self._walk(node.value)
        self._block(node.body)

    def visit_match(self, node: tree.Match) -> None:
        self._walk(node.value)
        reached = True
        for case in node.cases:
            if not reached:
                message = "this `case` is never reached: `case _` above matches everything"
                self._report("V704", case.span, message, "move `case _` to the end")
            reached = reached and not isinstance(case.pattern, tree.AnyPattern)
        self._schedule_steps(*((self._case, case) for case in node.cases))

    def _case(self, case: tree.Case) -> None:
        pattern = case.pattern
        if isinstance(pattern, tree.CriterionPattern):
            self._walk(pattern.template)
        elif isinstance(pattern, tree.ErrorPattern) and pattern.name is not None:
            self._bind(pattern.name)
        self._block(case.body)

    def visit_choose(self, node: tree.Choose) -> None:
        self._walk(node.value, node.criterion)
        self._bind(node.target)
        labels: set[str] = set()
        for option in node.options:
            if option.label.value in labels:
                message = f'the option "{option.label.value}" appears twice in this `choose`'
                self._report("V206", option.label.span, message, "give each option a label of its own")
            labels.add(option.label.value)
        self._schedule_steps(*((self._block, option.body) for option in node.options))

    def visit_constrain(self, node: tree.Constrain) -> None:
        target, scope = node.target, self._scopes.current
        if target.id not in scope.bound and not (scope.is_module and self._known.binds(target.id)):
            hint = f"assign `{target.id}` before"
            if not scope.is_module and target.id in self._scopes.module.names:
                hint = f"a function cannot rebind a name of the module: make `{target.id}` a parameter"
            message = f"`constrain {target.id}`: nothing above binds `{target.id}` in this scope"
            self._report("V070", target.span, message, hint)
        self._agents.check_bounds(node.bounds)
        self._walk(*(bound.value for bound in node.bounds), *(one.criterion for one in node.requirements))
        self._bind(target)

    def visit_try(self, node: tree.Try) -> None:
        if node.final is not None:
            self._defer(self._block, node.final)
        if node.handler is not None:
            self._defer(self._handler, node.handler)
        self._block(node.body)

    def _handler(self, handler: tree.Handler) -> None:
        self._bind(handler.target)
        self._block(handler.body)

    _visit: ClassVar = visitors(tree, vars())


# ---------------------------------------------------------------- unreadable text


class _Unparsed(Struct, frozen=True):
    """The words and strings outside of all statements. Every word of a line with a syntax error counts as bound and as
    read, so that one mistake is not reported twice. `first` is the offset of the first error, `misplaced` that of the
    first line with a wrong indentation."""

    words: frozenset[str] = frozenset()
    strings: frozenset[str] = frozenset()
    first: int | None = None
    misplaced: int | None = None

    def added_to(self, known: KnownNames) -> KnownNames:
        """Return `known` with everything that an unreadable line may have bound."""
        if self.first is None:
            return known
        return replace(
            known,
            variables=known.variables | self.words,
            agents={**known.agents, **dict.fromkeys(self.words)},
            skills={**known.skills, **dict.fromkeys(self.strings, "")},
        )

    def hides_header(self, source: Source, span: Span) -> bool:
        """Return whether the statement may be in a block whose header is unreadable: it is indented below an error, or
        a line above it has a wrong indentation."""
        if self.misplaced is not None and self.misplaced < span.start:
            return True
        return self.first is not None and self.first < span.start and source.line_column(span.start)[1] > 1


def _unparsed(program: tree.Program, source: Source, found: Sequence[Diagnostic]) -> _Unparsed:
    """Return the text that is lost at the parser's errors: the line of each, and everything between the statements
    before and after it."""
    errors = sorted(one.span.start for one in found if one.severity == "error")
    if not errors:
        return _Unparsed()
    spans = [node.span for node in nested_statements(program.items) if isinstance(node, tree.Statement)]
    starts = sorted(span.start for span in spans)
    ends = sorted(span.end for span in spans)
    words: set[str] = set()
    strings: set[str] = set()
    end = 0
    for error in errors:
        if error < end:
            continue
        at, after = bisect_right(starts, error), bisect_right(ends, error)
        begin = max(starts[at - 1] if at else 0, ends[after - 1] if after else 0)
        start = max(end, min(begin, source.text.rfind("\n", 0, error) + 1))  # the error may cut a statement short
        end = starts[at] if at < len(starts) else len(source.text)
        words.update(_WORD.findall(source.text, start, end))
        strings.update(_STRING.findall(source.text, start, end))
    misplaced = min((one.span.start for one in found if one.code == "V002"), default=None)
    return _Unparsed(frozenset(words), frozenset(strings), errors[0], misplaced)
