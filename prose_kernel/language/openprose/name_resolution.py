"""Checks the names that expressions, texts, contexts and collections read (openprose.md 1.6, 3.5, 4.3, 5.2, 6.2)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice

from prose_kernel.language import typed_answers
from prose_kernel.language.nearest import did_you_mean
from prose_kernel.language.openprose import hints, tree
from prose_kernel.language.openprose.keywords import HOST_READS
from prose_kernel.language.openprose.program_index import Survey, Undefined, UndefinedCode
from prose_kernel.language.openprose.program_interface import ProgramInterface
from prose_kernel.language.openprose.scopes import CallResult, Frame, TypedAnswer
from prose_kernel.language.openprose.tree import Name, Node, Text, is_hole
from prose_kernel.language.source import Span
from prose_kernel.language.typed_answers import Schema

_LEAVES = frozenset({tree.Number, tree.Constant, tree.Duration})
_SHORTEST_MARKER = 10
NO_FUNCTION = "there is no function"
"""The start of the message about a call of a function that only other languages have."""

_METADATA = frozenset({"exit_code", "exitcode", "returncode", "stdout", "stderr", "timed_out"})


class NameChecker:
    """Checks the names that expressions and texts read in the current frame, without recursion."""

    def __init__(self, survey: Survey, on_condition: Callable[[tree.Discretion], None]) -> None:
        self.survey = survey
        self._on_condition = on_condition
        self._text_code: UndefinedCode = "E108" if survey.strict or survey.strict_script else "W108"
        self._commands: list[tuple[Text, list[tree.Interpolation]]] = []
        self._suspects: list[tuple[str, Span, str]] = []
        self._fields: list[tuple[Frame, str, str, Span, Schema]] = []

    # ---- expressions

    def expression(self, node: Node, code: UndefinedCode = "E131") -> None:
        """Check every name in an expression; report an unknown one with `code`."""
        if type(node) is Name:
            self.name(node, code)
            return
        stack: list[Node] = [node]
        while stack:
            node = stack.pop()
            kind = type(node)
            if kind in _LEAVES:
                continue
            if isinstance(node, Name):
                self.name(node, code)
            elif isinstance(node, Text):
                if node.parts:
                    self.text(node)
            elif isinstance(node, tree.Discretion):
                self.marker(node)
            else:
                stack.extend(self._operands(node))

    def _operands(self, node: Node) -> tuple[Node, ...]:
        if isinstance(node, tree.Member):
            self._member(node.value, node.name.id, node.name.span)
            return (node.value,)
        if isinstance(node, tree.Index):
            key = node.index.literal if isinstance(node.index, Text) else None
            self._member(node.value, key, node.index.span)
            return (node.index, node.value)
        if isinstance(node, tree.Binary):
            return (node.right, node.left)
        if isinstance(node, tree.Logical):
            return node.operands
        if isinstance(node, tree.Not):
            return (node.operand,)
        if isinstance(node, tree.Array):
            return node.elements
        if isinstance(node, tree.Object):
            return tuple(entry.value for entry in node.entries)
        if isinstance(node, tree.ProgramCall):
            self.call(node)
            return tuple(argument.value for argument in node.arguments)
        return ()

    def name(self, node: Name, code: UndefinedCode) -> None:
        if not self.survey.sees(node.id):
            self.survey.undefined(Undefined(node.id, node.span, code))

    def collection(self, node: Node, code: UndefinedCode) -> None:
        """Check the collection of a `for` (E162) or the input of a pipeline (E170)."""
        if isinstance(node, (tree.Number, tree.Discretion, tree.Constant)):
            if is_hole(node):
                return
            kind = "A marker" if isinstance(node, tree.Discretion) else "This value"
            self.survey.report(code, node.span, f"{kind} is not a collection", "use an array, or a name that holds one")
            return
        root = _root(node)
        if not isinstance(root, Name) or self.survey.sees(root.id):
            self.expression(node)
            return
        self.survey.undefined(Undefined(root.id, root.span, code))
        while isinstance(node, (tree.Member, tree.Index)):
            if isinstance(node, tree.Index):
                self.expression(node.index)
            node = node.value

    # ---- context

    def context(self, node: Node) -> None:
        """Check the value of a `context:` property (4.3)."""
        if isinstance(node, (tree.ContextBlock, tree.Object)):
            for entry in node.entries:
                self._reference(entry.value)
        elif isinstance(node, tree.Array):
            for element in node.elements:
                if isinstance(element, (Name, tree.Member, tree.Index)):
                    self._reference(element)
                elif not is_hole(element):
                    message = "An element of a context array must be a name or a path"
                    self.survey.report("E134", element.span, message, "bind the value with `let` and pass its name")
        elif isinstance(node, (Name, tree.Member, tree.Index, Text)):
            self._reference(node)
        else:
            message = "A context must be a name, a path, an array or object of them, or a text"
            self.survey.report("E134", node.span, message, "bind the value with `let` and pass its name")

    def _reference(self, node: Node) -> None:
        if isinstance(node, Name) and self._is_agent_reference(node):
            return
        self.expression(node, "E132")

    def _is_agent_reference(self, node: Name) -> bool:
        """Report an agent used as context, which means its memory (2.3 row 25). Return whether one was reported."""
        name = node.id
        agent = self.survey.agent(name)
        if agent is None or name in self.survey.frame.visible or name in self.survey.frame.temporaries:
            return False
        if agent.persist and not self.survey.strict:
            self.survey.report("W133", node.span, f"`{name}` is an agent; its memory is passed as context")
        else:
            hint = "only an agent with `persist` has a memory that can be passed" if not self.survey.strict else None
            self.survey.report("E132", node.span, f"`{name}` is an agent, not a variable", hint)
        return True

    # ---- texts

    def text(self, text: Text, code: UndefinedCode | None = None) -> None:
        """Check the names in a text. Without `code`, unknown ones keep their braces (W108, `strict` E108)."""
        for part in text.parts:
            if type(part) is tree.Interpolation:
                self.interpolation(part, code or self._text_code)

    def marker(self, node: tree.Discretion, *, condition: bool = True) -> None:
        """Check a discretion marker: W108 in both profiles, and W162 for a condition that is too short to judge."""
        text = node.text
        if condition and 0 < len(text.raw) < _SHORTEST_MARKER:
            message = f"The condition `{text.raw}` is very short"
            self.survey.report("W162", node.span, message, "say in a few words what must be true")
        if condition:
            self._on_condition(node)
        self.text(text, "W108")

    def command(self, node: tree.Exec) -> None:
        """Check the command of an `exec`: E050, E053, and W051 once for its interpolations, which the shell reads."""
        text = node.command
        if not text.raw.strip():
            self.survey.report("E050", text.span, "Empty command", 'write the command in the quotes: `exec "ls"`')
            return
        self.text(text, "E053")
        if parts := text.interpolations:
            # Whether a name exists is known now at the root, but in a block only after the walk.
            known = [p for p in parts if not self.survey.frame.is_root or self.survey.sees(p.name)]
            self._commands.append((text, known))

    def report_insertions(self) -> None:
        """Report W051 once for each command with an interpolation of a known name (unknown ones are E053)."""
        for text, parts in self._commands:
            inserted = [p for p in parts if self.survey.root.open or self.survey.is_declared(p.name)]
            first = next((p for p in inserted if p.after_dollar), next(iter(inserted), None))
            if first is not None:
                name, found = first.name, []
                if first.after_dollar:
                    found.append(f"the program's `{name}` is inserted after the `$`, not the shell's")
                if not self.survey.strict:
                    found.append(hints.safe_form(text, first))
                message = f"the shell reads the value of `{first.raw[1:-1]}` as part of the command"
                self.survey.report("W051", first.span, message, "; ".join(found) or None)

    def interpolation(self, part: tree.Interpolation, code: UndefinedCode) -> None:
        """Check one `{path}` (1.6)."""
        for step in part.steps:
            if isinstance(step, Name) and not self.survey.sees(step.id):
                self.survey.undefined(Undefined(step.id, step.span, code, part.raw))
        if not self.survey.sees(part.name):
            self.survey.undefined(Undefined(part.name, part.span, code, part.raw, part.after_dollar))
        elif part.steps:
            self._held_member(part.name, part.steps[0], part.span)
            self._interpolated_fields(part)

    # ---- members

    def answer(self, node: Node) -> TypedAnswer | None:
        """Return the typed answer, or the part of one, that an expression refers to, if known."""
        steps: list[str | None] = []
        while isinstance(node, (tree.Member, tree.Index)):
            if isinstance(node, tree.Member):
                steps.append(node.name.id)
            else:
                steps.append(node.index.literal if isinstance(node.index, Text) else None)
            node = node.value
        schema = self._answer_in(node.id) if isinstance(node, Name) else None
        for step in reversed(steps):
            if schema is None:
                return None
            schema = typed_answers.item(schema) if step is None else typed_answers.field(schema, step)
        return TypedAnswer(schema) if schema is not None else None

    def _answer_in(self, name: str) -> Schema | None:
        frame = self.survey.frame
        held = frame.items.get(name) if name in frame.temporaries else frame.held.get(name)
        if frame.is_root and name not in frame.table and name in self.survey.known.variables:
            return self.survey.known.variables[name].answer
        return held.schema if isinstance(held, TypedAnswer) else None

    def _interpolated_fields(self, part: tree.Interpolation) -> None:
        schema = self._answer_in(part.name)
        for step in part.steps:
            if schema is None:
                return
            if isinstance(step, str):
                self._field(part.name, schema, step, part.span)
                schema = typed_answers.field(schema, step)
            else:
                schema = typed_answers.item(schema)

    def _field(self, name: str, schema: Schema, key: str, span: Span) -> None:
        """Record the read of a field if the typed answer can't have it."""
        fields = typed_answers.fields_of(schema)
        if fields is not None and key not in fields:
            self._fields.append((self.survey.frame, name, key, span, schema))

    def schema_without_field(self, key: str) -> Schema | None:
        """Return the schema of a typed answer whose nonexistent field `key` is read, None without one."""
        return next((schema for _, _, asked, _, schema in self._fields if asked == key), None)

    def report_fields(self) -> None:
        """Report E187 for the recorded fields, unless the name may also hold another kind of value."""
        for frame, name, key, span, schema in self._fields:
            mixed = frame.mixed if name not in self.survey.known.variables else frame.held
            if name in mixed or name in self.survey.assigned_in_blocks:
                continue
            hint = self._meant(key, "fields", typed_answers.fields_of(schema) or ())
            self.survey.report("E187", span, f"The answer has no field `{key}`", hint)

    def _meant(self, name: str, kind: str, names: Collection[str]) -> str:
        """Return the hint for a name that isn't one of `names`: the most similar one, or the first ones."""
        listed = f"its {kind}: {', '.join(islice(names, 12))}" if names else f"it has no {kind}"
        return did_you_mean(self.survey.near(name, names)) or listed

    def _member(self, value: Node, key: str | None, span: Span) -> None:
        root = _root(value)
        if key is not None and isinstance(root, Name) and (held := self.answer(value)) is not None:
            self._field(root.id, held.schema, key, span)
        if isinstance(value, Name):
            self._held_member(value.id, key, span)
        elif isinstance(value, tree.ProgramCall):
            self.program_output(value.program.id, self.survey.program(value.program.id), key, span)

    def _held_member(self, name: str, key: object, span: Span) -> None:
        """Check a member of a variable whose kind of value is known: E138 for the text of an `exec`, E028 for a
        program's result."""
        if name in self.survey.frame.temporaries:
            return
        held = self.survey.frame.held.get(name)
        if name not in self.survey.frame.held and self.survey.frame.is_root:
            variable = self.survey.known.variables.get(name)
            held = "exec" if variable and variable.from_exec else None
        if held == "exec":
            self._suspects.append((name, span, key if isinstance(key, str) else ""))
        elif isinstance(held, CallResult) and isinstance(key, str):
            self.program_output(held.program, held.contract, key, span)

    def report_exec_members(self) -> None:
        """Report E138 for variables that no block assigns to.

        The output of a command may be data with members, so only metadata such as `exit_code` is always an error.
        """
        for name, span, key in self._suspects:
            if name not in self.survey.assigned_in_blocks and (self.survey.strict or key in _METADATA):
                lack = f"without a member `{key}`" if key else "and has no members"
                message = f"`{name}` holds the output of a command, which is text {lack}"
                hint = f"use a marker, `if **{name} shows a failure**:`, or pass it as context"
                self.survey.report("E138", span, message, hint)

    def program_output(self, program: str, contract: ProgramInterface | None, key: str | None, span: Span) -> None:
        """Report E028 if a program whose contract is known has no output `key` (6.2).

        A program without outputs returns its final value, whose fields are unknown.
        """
        if key is None or contract is None or not contract.outputs or key in contract.outputs:
            return
        hint = self._meant(key, "outputs", contract.outputs)
        self.survey.report("E028", span, f"`{program}` has no output `{key}`", hint)

    # ---- program calls

    def call(self, node: tree.ProgramCall) -> None:
        """Check a call `name(input: value)` of a program: E009, E025, E026, E027 (6.2)."""
        survey = self.survey
        seen: set[str] = set()
        named = [argument.name for argument in node.arguments if argument.name.id]
        for name in named:
            if name.id in seen:
                survey.report("E009", name.span, f"The argument `{name.id}` is given twice")
            seen.add(name.id)
        program = node.program
        if survey.script and program.id in HOST_READS and not survey.is_program(program.id):
            message = f"`{program.id}` is a read of the host, kept for existing files"
            survey.report_legacy("W319", program.span, message, "read the names that the script starts with")
            return
        if not survey.is_program(program.id):
            survey.report("E025", program.span, *self._no_program(node))
            return
        contract = survey.program(program.id)
        if contract is None or contract.outputs is None:
            return
        for name in named:
            if name.id not in contract.inputs:
                hint = self._meant(name.id, "inputs", contract.inputs)
                survey.report("E027", name.span, f"`{program.id}` has no input `{name.id}`", hint)
        for wanted, required in contract.inputs.items():
            if required and wanted not in seen:
                survey.report("E026", program.span, f"The input `{wanted}` of `{program.id}` is missing")

    def _no_program(self, node: tree.ProgramCall) -> tuple[str, str | None]:
        """Return the message and the hint for a call of something that isn't a program."""
        name, survey = node.program.id, self.survey
        inside = ", ".join(survey.source.slice(argument.value.span) for argument in node.arguments)
        if survey.block(name) is not None:
            return f"`{name}` is a block, not an imported program", f"write `do {name}({inside})`"
        if survey.agent(name) is not None:
            return f"`{name}` is an agent, not an imported program", f"write `session: {name}`"
        if hint := hints.call(name, inside):
            return f"{NO_FUNCTION} `{name}`", hint
        near = did_you_mean(survey.near(name, [*survey.programs, *survey.known.programs]))
        return f"no imported program is called `{name}`", near or 'a call needs an import: `use "./file.prose" as name`'


def _root(node: Node) -> Node:
    """Return the value that a path begins with."""
    while isinstance(node, (tree.Member, tree.Index)):
        node = node.value
    return node
