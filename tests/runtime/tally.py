"""Tally: a small language with a separate machine on the runtime, to test the interface between languages and runtime.

    let n = 2                       a number, a text, a name, or a call
    def twice(x) = x + x            a function: a value, which captures the enclosing names by reference
    ask a "Who?"                    a session; a failure is a value, not an error of the program
    each r = twice over n n n       concurrent calls; none is ever cancelled
    deep r = twice 100000           100,000 nested calls

Each line is a statement. The value of a text is the value of its last statement, or `nothing` if it has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from prose_kernel.errors import CompileError, RunError, ValueTypeError
from prose_kernel.language.diagnostics import Compiled, Diagnostic
from prose_kernel.language.source import Source, Span
from prose_kernel.language.symbols import SymbolIndex
from prose_kernel.language.word_catalogue import Completion
from prose_kernel.runs.languages import Language, Words
from prose_kernel.runtime import shared_names
from prose_kernel.runtime.attempts import AttemptLimits, Failure, Retries, SessionAttempts
from prose_kernel.runtime.compiled_code import Body, Code, Compiler, Step
from prose_kernel.runtime.events import Bound, Place
from prose_kernel.runtime.execution_context import ExecutionContext
from prose_kernel.runtime.machine import BindingInfo, Definition, Machine, Preview
from prose_kernel.runtime.parallel_branches import iterate
from prose_kernel.runtime.ports import Binding, Key, LoadedProgram, LoadRequest, SessionRequest, SessionResult
from prose_kernel.runtime.program_run import Run
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import LanguageValue, Value, full_text, kind_of

# ---------------------------------------------------------------- texts


@dataclass(frozen=True)
class Node:
    span: Span
    name: str
    words: tuple[str, ...]


class Let(Node): ...


class Def(Node): ...


class Ask(Node): ...


class Each(Node): ...


class Deep(Node): ...


class Operand(Node): ...


@dataclass(frozen=True)
class Text:
    items: tuple[Node, ...]


_FORMS = {
    Let: re.compile(r"let (\w+) = (\w+(?:\(\w+\))?)"),
    Def: re.compile(r"def (\w+)\((\w+)\) = (\w+) \+ (\w+)"),
    Ask: re.compile(r'ask (\w+) "([^"]*)"'),
    Each: re.compile(r"each (\w+) = (\w+) over ([\w ]+)"),
    Deep: re.compile(r"deep (\w+) = (\w+) (\d+)"),
}


def compile_text(source: Source, **_: Any) -> Compiled[Text]:
    items: list[Node] = []
    wrong: list[Diagnostic] = []
    at = 0
    for number, line in enumerate(source.text.split("\n"), 1):
        found = [(kind, match) for kind, form in _FORMS.items() if (match := form.fullmatch(line))]
        items += [kind(Span(at, at + len(line)), match[1], match.groups()[1:]) for kind, match in found]
        if line and not found:
            wrong.append(Diagnostic("E001", number, 1, f"no statement: {line}"))
        at += len(line) + 1
    return Compiled(source, Text(tuple(items)), tuple(wrong))


def format_text(program: Text) -> str:
    return "".join(f"{type(node).__name__.lower()} {node.name} {' '.join(node.words)}\n" for node in program.items)


# ---------------------------------------------------------------- values and names


@dataclass(frozen=True)
class Function(shared_names.Function):
    """A closure by reference: a call sees the values that `names` have at that time."""

    language: ClassVar[str] = "tally"
    called: str
    parameter: str
    operands: tuple[str, str]
    run: TallyRun

    @property
    def name(self) -> str:
        return self.called

    @property
    def parameters(self) -> tuple[str, ...]:
        return (self.parameter,)

    def __str__(self) -> str:
        return f"function of {self.parameter}"

    async def invoke(self, caller: ExecutionContext, node: Any, arguments: Sequence[Value]) -> Value:
        s = Context(self.run, caller.source, caller.cwd, caller.path).continue_from(caller)
        return await call(invoke(s, self, arguments[0]))


class Nothing(LanguageValue):
    kind: ClassVar[str] = "nothing"

    def __str__(self) -> str:
        return "nothing"


NOTHING = Nothing()


@dataclass(eq=False)
class Variable:
    key: Key
    value: Value
    source: str

    def binding(self) -> Binding:
        return Binding(self.key, "let", self.value, self.source)


class TallyRun(Run):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.names: dict[str, Value] = {}
        self.variables: dict[str, Variable] = {}
        self.supplied: Mapping[str, Value] = {}


class Context(ExecutionContext):
    __slots__ = ("names",)
    run: TallyRun

    def __init__(self, run: TallyRun, source: Source, cwd: str, path: str) -> None:
        super().__init__(run, source, cwd, path)
        self.names = run.names

    def _inner(self, iteration: int | None, path: str) -> Self:
        return type(self)(self.run, self.source, self.cwd, path)

    def place(self, node: Any) -> Place:
        kind = type(node).__name__.lower()
        return Place(self.source, node.span, self.run.progress.ordinal, branches=self.branches, kind=kind, at=self.path)

    def bind(self, node: Node, value: Value) -> Value:
        self.names[node.name] = value
        variable = Variable(Key(node.name), value, self.source.slice(node.span))
        self.run.variables[node.name] = variable
        self.run.changed(variable)
        self.run.publish(node.name, value)
        self.emit(Bound(self.place(node), node.name, "let", value, variable.key))
        return value

    def value(self, word: str, names: Mapping[str, Value]) -> Value:
        if word.isdigit():
            return int(word)
        if word not in names:
            raise ValueTypeError(f"'{word}' is not defined here", code="E208")
        return names[word]


# ---------------------------------------------------------------- code

COMPILER = Compiler()


class Statements(Body):
    compiler = COMPILER


@COMPILER.expression(Operand)
class OperandCode(Code):
    def __init__(self, node: Operand, parts: Any = (), used: bool = True) -> None:
        super().__init__(node, parts, used)
        self.now = lambda s: s.value(node.name, s.names)


async def invoke(s: Context, function: Value, argument: Value, depth: int = 1) -> Value:
    """Apply a function `depth` times, each time to its previous result."""
    if isinstance(function, shared_names.Function) and not isinstance(function, Function):
        return await call(function.invoke(s, s.statement, [argument]))
    if not isinstance(function, Function):
        raise ValueTypeError("only a function can be called")
    inner = await call(invoke(s, function, argument, depth - 1)) if depth > 1 else argument
    names = {**function.run.names, function.parameter: inner}
    left, right = (s.value(word, names) for word in function.operands)
    if not isinstance(left, int) or not isinstance(right, int):
        raise ValueTypeError("only numbers can be added")
    return (left + right) % 1_000_007


@COMPILER.statement(Let)
class LetStep(Step):
    async def _run(self, s: Context) -> Value:
        word, _, argument = self.node.words[0].rstrip(")").partition("(")
        value = COMPILER.compile_expression(Operand(self.node.span, word, ())).now(s)  # type: ignore[misc]
        if argument:
            value = await call(invoke(s, value, s.value(argument, s.names)))
        return s.bind(self.node, value)


@COMPILER.statement(Def)
class DefStep(Step):
    async def _run(self, s: Context) -> Value:
        parameter, left, right = self.node.words
        return s.bind(self.node, Function(self.node.name, parameter, (left, right), s.run))


@COMPILER.statement(Ask)
class AskStep(Step):
    async def _run(self, s: Context) -> Value:
        request = SessionRequest("session", self.node.words[0], s.at("session"))
        ended = await Attempts(
            s, self.node, request, Key(self.node.name), self.node.name, AttemptLimits(Retries(1))
        ).run()
        if isinstance(ended, Failure):
            return s.bind(self.node, {"error": {"kind": ended.error.details["kind"], "message": ended.error.message}})
        return s.bind(self.node, ended.value)


class Attempts(SessionAttempts):
    def keep(self, result: SessionResult) -> Value:
        return result.text


@dataclass(frozen=True)
class NeverCancels:
    strategy: Any = "all"
    count: int | None = None
    on_fail: Any = "continue"


@COMPILER.statement(Each)
class EachStep(Step):
    async def _run(self, s: Context) -> Value:
        function, words = s.value(self.node.words[0], s.names), self.node.words[1].split()

        async def one(branch: Context, index: int) -> Value:
            await branch.outside(branch.host.ports.clock.sleep(len(words) - index))
            return await call(invoke(branch, function, branch.value(words[index], branch.names)))

        fork = await iterate(s, self.node, words, NeverCancels(), one, "")
        failed = next((outcome.error for outcome in fork.outcomes if outcome.error is not None), None)
        if failed is not None:
            raise failed
        return s.bind(self.node, [outcome.value for outcome in fork.outcomes])


@COMPILER.statement(Deep)
class DeepStep(Step):
    async def _run(self, s: Context) -> Value:
        function, times = self.node.words
        return s.bind(self.node, await call(invoke(s, s.value(function, s.names), 1, int(times))))


# ---------------------------------------------------------------- machine and record


class TallyMachine(Machine):
    new_run = TallyRun

    def _context(self, source: Source, path: str) -> Context:
        return Context(self._run, source, self.cwd, path)

    async def _execute(self, context: Any, program: Text) -> Value:
        context.run.begin(program)
        value: Value = NOTHING
        for node in program.items:
            context.path, context.counts = f"c{context.run.progress.cell}/{context.run.next_statement()}", {}
            value = await call(Statements([node], True).run(context))
        return value

    def _valued(self, program: Text) -> str:
        return type(program.items[-1]).__name__.lower() if program.items else ""

    def known(self) -> frozenset[str]:
        return frozenset(self._run.names)

    def bindings(self) -> dict[str, BindingInfo]:
        return {
            name: BindingInfo(
                "let", variable.value, variable.key, Source(variable.source), Span(0, len(variable.source))
            )
            for name, variable in self._run.variables.items()
        }

    def outputs(self) -> dict[str, Value]:
        return {name: variable.value for name, variable in self._run.variables.items()}

    def definitions(self) -> tuple[Definition, ...]:
        return ()

    def adopt(self, name: str, value: Value) -> None:
        self._run.names[name] = value

    def shared(self) -> Mapping[str, Value]:
        return dict(self._run.names)

    async def preview(self, program: Text, source: Source) -> tuple[Preview, ...]:
        return ()


class NoPrograms:
    def load_contract(self, path: str) -> None:
        raise RunError("there are no imports")

    async def load_program(self, request: LoadRequest) -> LoadedProgram:
        raise RunError("there are no imports")

    def file_of(self, path: str) -> None:
        return None


def decode(data: bytes, name: str) -> Source:
    try:
        return Source(data.decode("ascii"), name)
    except UnicodeDecodeError:
        raise CompileError([Diagnostic("E109", 1, 1, "tally is ASCII")]) from None


def programs(base: Path, **_: Any) -> NoPrograms:
    return NoPrograms()


TALLY = Language(
    name="tally",
    title="Tally",
    suffixes=(".tally",),
    magic="tally",
    mode="text/plain",
    sample="let n = 1\n",
    decode=decode,
    compile=compile_text,
    format_program=format_text,
    report=lambda program, name, warnings: f"{name} counts\n",
    flow=lambda program, source: (),
    stops=lambda program: [],
    contract=lambda program: program,
    index=lambda program, source: SymbolIndex(),
    fixes=lambda compiled, diagnostic: (),
    known_in=lambda program, load: None,
    completeness=lambda text: ("complete", ""),
    complete=lambda text, inside, start, known, values: Completion(len(text)),
    words=lambda: Words({}, {}),
    expression_prefixes=("let computed_value = ",),
    constants=lambda program: {},
    agents=lambda program: (),
    literal=lambda value, what: str(value),
    with_agent=lambda program, name, properties: (),
    machine=lambda: TallyMachine,
    programs=programs,
    inputs=lambda program: (),
    gates=lambda program: frozenset(),
    judged_texts=lambda program: (),
    kind_of=kind_of,
    text_of=full_text,
    inserted=full_text,
    bind=lambda name, value, what: f"let {name} = {value}\n",
)
