"""Checks a parsed program statically: every compile-time code of openprose.md 9 that needs more than the grammar.

The checker walks the tree once, in text order. It recurses into bodies, with at most five Python frames per level; the
lexer limits nesting to 100 levels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import ClassVar, Final

from prose_kernel.language import typed_answers
from prose_kernel.language.diagnostics import Diagnostic, Profile
from prose_kernel.language.nearest import did_you_mean
from prose_kernel.language.nodes import rebuilt, visitors, walk
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.bare_conditions import variable_in
from prose_kernel.language.openprose.call_checks import CallChecker, check_result
from prose_kernel.language.openprose.call_targets import CallProblem, ScriptSource, interface_of
from prose_kernel.language.openprose.declarations import Declarations, ImportChecker
from prose_kernel.language.openprose.hidden_exit_codes import HiddenExitCodes
from prose_kernel.language.openprose.name_resolution import NameChecker
from prose_kernel.language.openprose.output_types import written_schema
from prose_kernel.language.openprose.program_index import Survey
from prose_kernel.language.openprose.program_interface import KnownNames, LoadContract, is_executable, local_name
from prose_kernel.language.openprose.properties import PropertyChecker
from prose_kernel.language.openprose.scopes import CallResult, Construct, Frame, KnownValue, StatementList, TypedAnswer
from prose_kernel.language.openprose.tree import PLACEHOLDER, Discretion, Name, Node, Program
from prose_kernel.language.source import Source, Span
from prose_kernel.language.structs import replace
from prose_kernel.language.typed_answers import Schema

_THROWS = (None, "throw")


def free_inputs(program: Program, source: Source) -> dict[str, bool]:
    """Return the names that a delegation's script reads but never declares; they are further inputs of its instances.

    The value is False for names that occur only in texts, where an unknown name keeps its braces (prose-md.md 3.3).
    """
    checker = Checker(program, source, "prosescript", KnownNames(variables=interface_of(source).known()), False, None)
    checker.run()
    return dict(checker.survey.free)


def schema_without_field(program: Program, source: Source, known: KnownNames, key: str) -> Schema | None:
    """Return the schema of the typed answer from which a program reads the nonexistent field `key`, if any."""
    checker = Checker(program, source, "default", known, True, None)
    checker.run()
    return checker.names.schema_without_field(key)


EMPTY: Final = "the script is empty; its value is null"


class Checker:
    """One check of one program. `run` returns all findings, sorted by line, column, code (9.1).

    `known` holds the names of earlier cells. With `cell`, they may be redefined silently (3.1, notebook rule);
    otherwise they count as declared at the top. `pipefail` is the setting of that name. `load` returns the contract of
    a `use` path; without it, imports stay unchecked. Nothing is executed. The cost is linear in the program's size.
    """

    def __init__(
        self,
        program: Program,
        source: Source,
        profile: Profile,
        known: KnownNames,
        cell: bool,
        load: LoadContract | None,
        pipefail: bool = False,
    ) -> None:
        self.program = program
        self.known = known
        self.cell = cell
        self.survey = Survey(program, source, profile, known)
        self.strict = self.survey.strict
        self.codes = HiddenExitCodes(self.survey, pipefail)
        self.names = NameChecker(self.survey, self.codes.condition)
        self.load = load
        self.properties = PropertyChecker(self.survey, self.names, load)
        self.declarations = Declarations(self.survey)
        self.calls = CallChecker(self.survey, self.names, self.properties, self._value)
        self.decided: dict[int, bool] = {}
        """For each ambiguous condition, by its `id`, whether it is an expression (otherwise words)."""
        self._undecided: list[tree.AmbiguousCondition] = []
        self._returns = False
        self._statements = False
        self._early = {id(item) for item in takewhile(lambda item: not is_executable(item), program.items)}
        self._started: set[str] = set()
        self._later: list[tuple[Name, set[str], Callable[[Checker, Name], None]]] = []
        """Names to report at the end of the text, unless it adds them to the set."""
        self._defined: dict[str, set[str]] = {"agent": set(), "block": set()}

    def run(self) -> tuple[Diagnostic, ...]:
        ImportChecker(self.survey, self.load).check(self.program, cell=self.cell)
        if not self.cell and not self.survey.script:
            self.declarations.declare_known()
            self._defined["agent"].update(self.known.agents)
            self._defined["block"].update(self.known.blocks)
        visit = self._visit
        for item in self.program.items:
            visit[type(item)](self, item)
            self._statements = self._statements or not isinstance(item, tree.Use | tree.Agent | tree.Block)
        self._finish()
        return self.survey.finish()

    def _finish(self) -> None:
        """Make the checks that need the whole text."""
        self.declarations.finish()
        reads = self.survey.free_reads()
        for bare in self._undecided:
            self._decide(bare, [n for n in _names(bare) if not self.survey.is_declared(n.id) and n.id not in reads])
        for name, found, report in self._later:
            if name.id not in found:
                report(self, name)
        self.names.report_exec_members()
        self.names.report_fields()
        self.names.report_insertions()
        self.codes.report()
        if self.survey.script and self.survey.interface.kind != "cell":
            self._judge_end()

    def _judge_end(self) -> None:
        """Check that a script returns a result: W120, W313 (prose-md.md 3.1, 3.7)."""
        if not self._statements:
            source = self.survey.source
            fences = source.fences if isinstance(source, ScriptSource) else None
            end = len(source.text[: fences[-1][0].end if fences else None].rstrip())
            self.survey.report("W120", Span(end, end), EMPTY)
        elif not self._returns:
            last = next(item for item in reversed(self.program.items) if not isinstance(item, tree.Agent | tree.Block))
            message = "the script has no `return`; the value of its last statement is its result"
            self.survey.report("W313", last.span, message, "add `return ...`")

    # ---------------------------------------------------------------- values and bodies

    def _value(self, value: Node) -> None:
        """Check a right-hand side of `=` or an expression statement, including the bodies in it."""
        visit = self._visit.get(type(value))
        if visit is not None:
            visit(self, value)
        else:
            self.names.expression(value)

    def _body(
        self,
        place: StatementList,
        body: tree.Body,
        *temporaries: tuple[Name, str],
        item: Schema | None = None,
        isolated: bool = False,
    ) -> None:
        """Check a body with its temporary names; `item` is the schema of the first name's value, if known.

        With `isolated`, each iteration has its own scope, whose bindings are dropped when it ends (3.7).
        """
        frame = self.survey.frame
        outer, frame.place = frame.place, place
        outer_names = frame.new_names
        if isolated:
            frame.new_names = []
        header: set[str] = set()
        for name, kind in temporaries:
            self.declarations.temporary(name, kind, header)
        if item is not None and temporaries[0][0].id in frame.temporaries:
            frame.items[temporaries[0][0].id] = TypedAnswer(item)
        visit = self._visit
        for statement in body:
            visit[type(statement)](self, statement)
        frame.close_place(outer)
        if isolated:
            for bound in frame.new_names or ():
                del frame.visible[bound]
            frame.new_names = outer_names

    def visit_use(self, node: tree.Use) -> None:
        """Check the `use` of a script; `ImportChecker` has registered all imports before the walk."""
        survey = self.survey
        if not survey.script:
            return
        if self._statements or survey.strict_script:
            hint = 'call the path: `call "..."`' if survey.strict_script else "move it to the top of the script"
            survey.report("E311", node.span, "`use` out of place", hint)
        alias = local_name(node)
        if not node.path.raw.strip() or node.path.raw == PLACEHOLDER:
            return
        if alias is not None:
            self.calls.uses.setdefault(alias, node.path.raw)
        if survey.interface.targets is not None:
            found = survey.interface.targets.find(node.path.raw, {}, path=True)
            if isinstance(found, CallProblem):
                survey.report(found.code, node.path.span, found.message, found.hint)

    def visit_skill_import(self, _node: Node) -> None:
        """Do nothing; skill imports were registered before the walk."""

    # ---------------------------------------------------------------- plain statements

    def visit_expression_statement(self, node: tree.ExpressionStatement) -> None:
        self._value(node.value)
        if type(node.value) is tree.BlockCall:
            self._export(node.value)

    def visit_let(self, node: tree.Let) -> None:
        self._value(node.value)
        if not node.destructured:
            self.codes.bound(node.names[0].id, node.value)
            self.declarations.declare(node.names[0], node.kind, self._held(node.value))
            return
        value = node.value
        for name in node.names:
            if isinstance(value, tree.ProgramCall):
                program = value.program.id
                self.names.program_output(program, self.survey.program(program), name.id, name.span)
            elif isinstance(value, tree.Call) and (target := self.calls.target(value)) is not None:
                self.names.program_output(target.name, self.calls.contract(target), name.id, name.span)
            self.declarations.declare(name, node.kind, None)

    def visit_assign(self, node: tree.Assign) -> None:
        self._value(node.value)
        self.codes.bound(node.name.id, node.value)
        self.declarations.assign(node.name, self._held(node.value))

    def visit_append(self, node: tree.Append) -> None:
        self._value(node.value)
        self.names.name(node.name, "E131")
        if self.survey.sees(node.name.id) or not self.survey.frame.is_root:
            self.declarations.assign(node.name, None)

    def _is_contracts(self, node: tree.Output | tree.Input) -> bool:
        """Report E310 in a script of a contract, which declares the interface itself. The name counts as declared."""
        if not self.survey.script or self.survey.interface.kind == "cell":
            return False
        word = "output" if isinstance(node, tree.Output) else "input"
        hint = "return it" if word == "output" else "declare it under Parameters"
        at = node.span.start
        self.survey.report("E310", Span(at, at + len(word)), f"`{word}` in a script of a contract", hint)
        if node.name is not None:
            self.survey.frame.show(node.name.id)
            self.survey.declared_in[node.name.id] = None
        return True

    def visit_output(self, node: tree.Output) -> None:
        if self._is_contracts(node):
            return
        name, value = node.name, node.value
        self._value(value)
        if name is not None:
            self.codes.bound(name.id, value)
            same = isinstance(value, Name) and value.id == name.id
            held = self.survey.frame.held.get(name.id) if same else self._held(value)
            self.declarations.declare(name, "output", held)

    def visit_input(self, node: tree.Input) -> None:
        if self._is_contracts(node):
            return
        prompt = node.prompt
        if self.strict and id(node) not in self._early:
            is_top = self.survey.frame.is_root and self.survey.frame.place.construct is None
            where = "after an executable statement" if is_top else "inside a body"
            message = f"The input `{node.name.id}` is {where}"
            self.survey.report("E022", node.span, message, "move it to the top of the program")
        if isinstance(prompt, Discretion):
            self.names.marker(prompt, condition=False)
        else:
            self.names.text(prompt)
        raw = prompt.text.raw if isinstance(prompt, Discretion) else prompt.raw
        if not raw.strip():
            message = f"The input `{node.name.id}` has an empty description"
            self.survey.report("W110", prompt.span, message, "say what is asked for")
        self.declarations.declare(node.name, "input", None)

    def visit_throw(self, node: tree.Throw) -> None:
        value = node.value
        self._ends_script()
        if value is None:
            if self.survey.frame.is_root and not self.survey.frame.place.in_catch:
                message = "`throw` without a message outside a catch body"
                self.survey.report("W184", node.span, message, 'say what went wrong: `throw "..."`')
        elif not isinstance(value, tree.Text):
            self.names.expression(value)
        else:
            if not value.raw.strip():
                self.survey.report("W181", value.span, "The message of this throw is empty", "say what went wrong")
            self.names.text(value)

    def visit_return(self, node: tree.Return) -> None:
        if node.value is not None:
            self._value(node.value)
        if self._ends_script() and isinstance(node.value, tree.Object):
            check_result(self.survey, node.value)

    def _ends_script(self) -> bool:
        """Return whether a `return` here ends the script; `return` and `throw` define the script's result (3.7)."""
        ends = self.survey.frame.is_root and not self.survey.frame.place.in_branch
        self._returns = self._returns or ends
        return ends

    def visit_break(self, node: tree.Break | tree.Continue) -> None:
        if not self.survey.frame.place.in_loop and not self.strict:  # `strict` reports E004 anywhere
            word = "break" if isinstance(node, tree.Break) else "continue"
            hint = "it leaves or continues the innermost `for`, `repeat` or `loop`"
            self.survey.report("E166", node.span, f"`{word}` outside a loop", hint)

    visit_continue = visit_break

    def visit_assert(self, node: tree.Assert) -> None:
        self.names.expression(node.condition)
        if node.message is not None:
            self.names.text(node.message)

    def visit_gate(self, node: tree.Gate) -> None:
        self.survey.gate(node)
        self.properties.gate(node.name, node.properties)

    # ---------------------------------------------------------------- bound values

    def _held(self, value: Node) -> KnownValue:
        """Describe the value of a variable that is bound directly to `value`."""
        spawn = value.spawns[-1] if isinstance(value, tree.Arrow) else value
        if isinstance(spawn, tree.Exec):
            return "exec" if tree.value_of(spawn.properties, "format") is None else None
        if isinstance(value, tree.Call):
            return self.calls.held(value)
        if isinstance(value, tree.ProgramCall):
            return CallResult(value.program.id, self.survey.program(value.program.id))
        if isinstance(spawn, tree.Session | tree.Resume):
            return self._answer(spawn)
        if isinstance(value, tree.BlockCall):
            block = self.survey.blocks.get(value.block.id)
            return self._body_answer(block.body) if block is not None else None
        if isinstance(value, tree.Pipe):
            item = self._item_schemas(value)[-1]
            return TypedAnswer({"type": "array", "items": item}) if item is not None else None
        return self.names.answer(value)

    def _body_answer(self, body: tree.Body) -> TypedAnswer | None:
        """Return the answer of a body that ends only at its last statement, a session; else None."""
        last = body[-1] if body else None
        if not isinstance(last, tree.ExpressionStatement) or not isinstance(last.value, tree.Session | tree.Resume):
            return None
        ends = any(isinstance(node, tree.Return | tree.Output) for part in body for node in walk(part))
        return None if ends else self._answer(last.value)

    def _item_schemas(self, node: tree.Pipe) -> list[Schema | None]:
        """Return the item schemas for each operation of a pipeline and for its result; None for untyped ones."""
        held = self.names.answer(node.source)
        items = [typed_answers.item(held.schema) if held is not None else None]
        for operation in node.operations:
            if operation.kind == "filter":
                items.append(items[-1])
                continue
            given = self._body_answer(operation.body) if operation.kind in ("map", "pmap") else None
            items.append(given.schema if given is not None else None)
        return items

    def _answer(self, node: tree.Session | tree.Resume) -> TypedAnswer | None:
        """Return the declared answer of a session: by the session's own `output`, else by the agent's."""
        if self.strict:
            return None
        schema = None
        if tree.value_of(node.properties, "output") is not None:
            schema = written_schema(node.properties, self.survey.schemas)
        elif node.agent is not None:
            schema = self.survey.output_of(node.agent.id)
        return TypedAnswer(schema) if schema is not None else None

    def _export(self, node: tree.BlockCall) -> None:
        """Add the names that a bare `do` exports (3.6)."""
        survey, block = self.survey, node.block.id
        if self.strict:
            return
        if survey.block(block) is None:
            # A misspelt block is one finding; don't report its missing exports as well.
            block = survey.near(block, survey.blocks) or ""
            if not block:
                return
        names = survey.exports(block)
        if names is None:
            self.survey.frame.open = True
        for name in names or ():
            self.survey.frame.show(name)
            self.survey.frame.held.setdefault(name, None)

    # ---------------------------------------------------------------- definitions

    def visit_agent(self, node: tree.Agent) -> None:
        name = node.name
        if name.id in self._defined["agent"]:
            self.survey.report("E006", name.span, f"The agent `{name.id}` is defined twice", "choose another name")
        elif name.id in self.survey.known.variables:
            message = f"`{name.id}` is the name of a variable of an earlier cell"
            self.survey.report("E133", name.span, message, "choose another name for the agent")
        self._defined["agent"].add(name.id)
        if not node.properties:
            self.survey.report("W121", name.span, f"The agent `{name.id}` has no properties")
        # Agent texts are filled in when a session is spawned, with the names visible there (4.2).
        outer, self.survey.frame = self.survey.frame, Frame(is_root=False)
        self.properties.check("agent", node.properties)
        self.survey.frame = outer

    def visit_block(self, node: tree.Block) -> None:
        name, survey = node.name, self.survey
        if name.id in self._defined["block"]:
            survey.report("E141", name.span, f"The block `{name.id}` is defined twice", "choose another name")
        self._defined["block"].add(name.id)
        if survey.agent(name.id) is not None:
            survey.report("E142", name.span, f"`{name.id}` is the name of an agent", "choose another name")
        if node.max_depth is not None and node.max_depth < 1:
            survey.report("E145", name.span, "`max_depth` must be a positive whole number", "write `(max_depth: 50)`")
        if node.budget is not None:
            self.properties.check_budget(name, node.budget, "agent")
        outer, survey.frame = survey.frame, Frame(is_root=False)
        self._body(StatementList(), node.body, *[(parameter, "parameter") for parameter in node.parameters])
        survey.frame = outer

    # ---------------------------------------------------------------- spawns and calls

    def visit_session(self, node: tree.Session) -> None:
        if node.agent is not None:
            if self.survey.agent(node.agent.id) is None:
                self._later.append((node.agent, self._defined["agent"], Checker._undefined_agent))
            self._started.add(node.agent.id)
        if node.title is not None:
            self.properties.session_prompt(node.title)
        if node.properties:
            self.properties.check("session", node.properties)

    def visit_resume(self, node: tree.Resume) -> None:
        name = node.agent
        agent = self.survey.agent(name.id)
        if agent is None:
            self._later.append((name, self._defined["agent"], Checker._undefined_agent))
        elif agent.persist is None:
            if name.id not in self.survey.agents_with_persist:
                hint = f"add `persist: true` to the agent, or start it fresh with `session: {name.id}`"
                self.survey.report("E017", name.span, f"The agent `{name.id}` keeps no memory to resume", hint)
        elif agent.persist == "true" and name.id not in self.known.agents and name.id not in self._started:
            if self.survey.frame.is_root:
                self._resumed_too_early(name)
            else:
                self._later.append((name, self._started, Checker._resumed_too_early))
        if node.properties:
            self.properties.check("session", node.properties)

    def _resumed_too_early(self, name: Name) -> None:
        message = f"`{name.id}` is resumed, but no earlier `session: {name.id}` gives it a memory"
        self.survey.report("W119", name.span, message, f"start it with `session: {name.id}`")

    def _undefined_agent(self, name: Name) -> None:
        survey = self.survey
        near = did_you_mean(survey.near(name.id, [*survey.agents, *self.known.agents]))
        survey.report("E007", name.span, f"Undefined agent `{name.id}`", near or f"define it: `agent {name.id}:`")

    def visit_call(self, node: tree.Call) -> None:
        self.calls.check(node)

    def visit_stage(self, node: tree.Stage) -> None:
        for argument in node.arguments:
            self.names.expression(argument)
        if node.name.id not in self.survey.interface.stages:
            message = f"there is no stage `{node.name.id}`: no heading `#### {node.name.id}` under Execution"
            self.survey.report("E003", node.name.span, message, 'write `session "..."`')

    def visit_exec(self, node: tree.Exec) -> None:
        self.names.command(node)
        if node.properties:
            self.properties.check("exec", node.properties)

    def visit_arrow(self, node: tree.Arrow) -> None:
        for spawn in node.spawns:
            self._visit[type(spawn)](self, spawn)

    def visit_block_call(self, node: tree.BlockCall) -> None:
        name, survey = node.block, self.survey
        parameters = survey.block(name.id)
        if parameters is None:
            self._later.append((name, self._defined["block"], Checker._undefined_block))
        elif len(parameters) != len(node.arguments):
            wanted, given = len(parameters), len(node.arguments)
            plural = "" if wanted == 1 else "s"
            kind, hint = ("block", "missing ones are null, extra ones are dropped")
            if survey.is_function(name.id):
                kind, hint = ("function", "the call raises if it is reached")
            message = f"The {kind} `{name.id}` takes {wanted} argument{plural}, not {given}"
            survey.report("W140", name.span, message, hint)
        for argument in node.arguments:
            self.names.expression(argument)

    def _undefined_block(self, name: Name) -> None:
        survey = self.survey
        if survey.is_program(name.id):
            hint: str | None = f"`{name.id}` is an imported program: `{name.id}(name: value)`"
        elif survey.agent(name.id) is not None:
            hint = f"`{name.id}` is an agent: `session: {name.id}`"
        else:
            hint = did_you_mean(survey.near(name.id, [*survey.blocks, *self.known.blocks]))
        survey.report("E140", name.span, f"Undefined block `{name.id}`", hint)

    # ---------------------------------------------------------------- bodies

    def visit_do(self, node: tree.Do) -> None:
        place = self.survey.frame.place
        self._body(place.child(Construct(place), conditional=False), node.body)

    def visit_parallel(self, node: tree.Parallel) -> None:
        frame = self.survey.frame
        count = node.modifiers.count
        if count is not None and count > len(node.branches):
            message = f"`count` is {count}, but there are only {len(node.branches)} branches"
            self.survey.report("W150", self._count_span(node.modifiers.span), message)
        construct = Construct(frame.place)
        names: set[str | None] = set()
        bound: list[str] = []
        outer_names = frame.new_names
        for branch in node.branches:
            name = branch.name.id if branch.name is not None else None
            is_tolerated = node.modifiers.on_fail == "continue"
            bound += self._branch(branch, construct, is_repeated=name in names, is_tolerated=is_tolerated)
            names.add(name)
        frame.new_names = outer_names
        for one in bound:  # from here on the names of all branches are visible
            frame.show(one)

    def _count_span(self, span: Span) -> Span:
        """Return the span of the value of `count:` in the modifiers."""
        named = re.search(r"count[^:]*:\s*", self.survey.source.slice(span))
        return Span(span.start + named.end(), span.end) if named is not None else span

    def _branch(self, branch: tree.Branch, construct: Construct, *, is_repeated: bool, is_tolerated: bool) -> list[str]:
        """Check a branch. Returns the names that it bound, which its siblings do not see (3.7)."""
        frame = self.survey.frame
        outer, frame.place = frame.place, construct.place.child(construct, conditional=False)
        frame.place.in_branch = True
        frame.new_names = []
        statement = branch.statement
        if branch.name is not None and isinstance(statement, tree.ExpressionStatement):
            value = statement.value
            self._value(value)
            if not is_repeated:  # otherwise it is E154
                # A tolerated branch that fails has an error value, which has members (3.7).
                held = None if is_tolerated and _may_raise(value) else self._held(value)
                self.codes.bound(branch.name.id, value)
                self.declarations.declare(branch.name, "branch", held)
        else:
            self._visit[type(statement)](self, statement)
        bound = frame.new_names or []
        for name in bound:
            del frame.visible[name]
        frame.new_names = None
        frame.close_place(outer)
        return bound

    def visit_for(self, node: tree.For) -> None:
        frame = self.survey.frame
        self.names.collection(node.collection, "E162")
        place = frame.place.child(Construct(frame.place))
        # `break` doesn't leave a `parallel for` (2.3 row 38), but it leaves a loop around one.
        place.in_loop = place.in_loop or node.modifiers is None
        place.in_branch = place.in_branch or node.modifiers is not None
        names = [(name, "loop variable") for name in (node.item, node.index) if name is not None]
        held = self.names.answer(node.collection)
        item = typed_answers.item(held.schema) if held is not None else None
        self._body(place, node.body, *names, item=item, isolated=node.modifiers is not None)

    def visit_repeat(self, node: tree.Repeat) -> None:
        self.names.expression(node.count)
        self._loop_body(node.body, node.variable, concurrent=node.concurrent)

    def visit_loop(self, node: tree.Loop) -> None:
        if node.condition is not None:
            self._condition(node.condition)
        elif node.maximum is None:
            hint = "add `(max: 10)` or a condition: `loop until **done**:`"
            self.survey.report("W161", node.span, "This loop has no condition and no maximum", hint)
        takes_variable = isinstance(node.condition, tree.AmbiguousCondition) and node.condition.takes_variable
        in_words = takes_variable and self.decided.get(id(node.condition)) is False
        self._loop_body(node.body, None if in_words else node.variable)

    def _loop_body(self, body: tree.Body, variable: Name | None, *, concurrent: bool = False) -> None:
        place = self.survey.frame.place.child(Construct(self.survey.frame.place))
        place.in_loop = place.in_loop or not concurrent
        place.in_branch = place.in_branch or concurrent
        self._body(place, body, *([(variable, "loop variable")] if variable else []), isolated=concurrent)

    def _condition(self, node: tree.Expression) -> None:
        """Check a header's condition; decide whether ambiguous names are words or an expression (prose-md.md 3.4)."""
        if not isinstance(node, tree.AmbiguousCondition):
            self.names.expression(node)
            return
        if not self.survey.frame.is_root or self.survey.interface.kind == "delegation":
            self._undecided.append(node)  # decided when the whole text has been walked
            return
        self._decide(node, [name for name in _names(node) if not self.survey.sees(name.id)])
        if self.decided[id(node)]:
            self.names.expression(node.expression)

    def _decide(self, node: tree.AmbiguousCondition, unknown: list[Name]) -> None:
        self.decided[id(node)] = not unknown
        if not unknown:
            return
        first = min(unknown, key=lambda name: name.span)
        near = did_you_mean(self.survey.near(first.id, self.survey.declared_in))
        message = f"`{first.id}` is not a variable, so the condition is read as words"
        self.survey.report("W312", first.span, message, near)
        if node.takes_variable:
            at = node.span.start + variable_in(self.survey.source.slice(node.span))
            self.survey.report("W317", Span(at, node.span.end), "`as` belongs to the words here",
                               "give the loop a maximum before it: `(max: 10) as name`")  # fmt: skip
        self.names.marker(node.words)

    def visit_try(self, node: tree.Try) -> None:
        construct = Construct(self.survey.frame.place)
        self._body(construct.place.child(construct), node.body)
        if node.catch is not None:
            place = construct.place.child(construct)
            place.in_catch = True
            self._body(place, node.catch.body, *([(node.catch.name, "catch variable")] if node.catch.name else []))
        if node.final is not None:
            self._body(construct.place.child(construct, conditional=False), node.final)

    def visit_choice(self, node: tree.Choice) -> None:
        self.names.marker(node.criteria)
        construct = Construct(self.survey.frame.place, exclusive=True)
        labels: set[str] = set()
        for option in node.options:
            label = option.label
            if label.raw in labels:
                self.survey.report("W190", label.span, f'Two options are labelled "{label.raw}"')
            labels.add(label.raw)
            if not option.body and self._is_blank(label.span.end, option.span.end):
                self.survey.report("W191", label.span, f'The option "{label.raw}" has an empty body')
        for option in node.options:
            self._body(construct.place.child(construct), option.body)

    def _is_blank(self, start: int, end: int) -> bool:
        """Return whether the lines below a header are empty; otherwise its body could not be parsed."""
        below = self.survey.source.slice(Span(start, end)).partition("\n")[2]
        return all(not line or line.startswith("#") for line in map(str.strip, below.split("\n")))

    def visit_if(self, node: tree.If) -> None:
        construct = Construct(self.survey.frame.place, exclusive=True)
        for arm in node.arms:
            self._condition(arm.condition)
            self._body(construct.place.child(construct), arm.body)
        if node.otherwise is not None:
            self._body(construct.place.child(construct), node.otherwise)

    def visit_pipe(self, node: tree.Pipe) -> None:
        self.names.collection(node.source, "E170")
        for operation, item in zip(node.operations, self._item_schemas(node), strict=False):
            self._operation(operation, item if operation.kind != "reduce" else None)

    def _operation(self, node: tree.PipeOperation, item: Schema | None) -> None:
        body = node.body
        if not body[-1].valued if body else self._is_blank(node.span.start, node.span.end):
            message = f"The body of `{node.kind}` yields no value"
            self.survey.report("W171", node.span, message, "end it with the value of the item")
        place = self.survey.frame.place.child(Construct(self.survey.frame.place))
        place.in_branch = place.in_branch or node.kind == "pmap"
        names = node.names or (Name(id="item", span=node.span),)
        temporaries = [(name, "pipeline variable") for name in names]
        self._body(place, body, *temporaries, item=item, isolated=node.kind == "pmap")

    _visit: ClassVar = visitors(tree, vars())
    """Unbound methods, because bound ones would create a reference cycle for each check."""


def _names(node: tree.AmbiguousCondition) -> list[Name]:
    """Return the variables named in a bare condition, without the fields of paths."""
    fields = {id(part.name) for part in walk(node.expression) if isinstance(part, tree.Member)}
    return [part for part in walk(node.expression) if isinstance(part, Name) and id(part) not in fields]


def resolve_conditions(program: Program, decided: Mapping[int, bool]) -> Program:
    """Return the program with each bare condition replaced by the chosen reading."""
    without_variable: set[int] = set()

    def change(node: Node) -> Node:
        if isinstance(node, tree.Loop) and id(node.condition) in without_variable:
            return replace(node, variable=None)
        if not isinstance(node, tree.AmbiguousCondition):
            return node
        if decided.get(id(node), True):
            return node.expression
        if node.takes_variable:
            without_variable.add(id(node.words))
        return node.words

    return rebuilt(program, change)


def _may_raise(value: Node) -> bool:
    """Return whether a branch with this value can fail: anything but a command with its own `on-fail`."""
    return not isinstance(value, tree.Exec) or tree.word_of(tree.value_of(value.properties, "on-fail")) in _THROWS
