"""Facts from the text of a program besides its meaning: its statements as they are kept, the names it declares, the
numbers that its branches may need.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from prose_kernel.language import budget_values
from prose_kernel.language.nodes import statement_kind, walk
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.contract import names_bound
from prose_kernel.language.source import Source, Span
from prose_kernel.runtime.budgets import Spending
from prose_kernel.runtime.numbering import Kind
from prose_kernel.runtime.ports import JudgedText

_WITH_LINES: Final = ("STRING", "DISCRETION")


def declared_names(program: tree.Program) -> frozenset[str]:
    """Every name that something in the program binds, temporary names included."""
    return frozenset(name for node in walk(program) for name in names_bound(node))


# ---------------------------------------------------------------- statements


_NEVER_VALUED: Final = (tree.Throw, tree.Assert, tree.Gate, tree.Use, tree.SkillImport, tree.Agent, tree.Block)


def valued_kind(program: tree.Program) -> str:
    """The kind of the statement that gives a text its value, "" without one.

    It is `ended` where a `return` of ProseScript may end the text: nothing has shown its value.
    """
    statements = [item for item in program.items if not isinstance(item, tree.Block)]
    if program.script and any(isinstance(node, tree.Return) for item in statements for node in walk(item)):
        return "ended"
    return next((statement_kind(item) for item in reversed(program.items) if not isinstance(item, _NEVER_VALUED)), "")


def statement_text(source: Source, span: Span) -> str:
    """A statement as it would be in the first column (docs/reference/openprose.md 7.4): its further lines lose the
    indentation of the first one.

    Text inside a string or a marker belongs to the program's data and is not changed.
    """
    text = source.slice(span)
    if "\n" not in text:
        return text
    column = source.line_column(span.start)[1]
    return text if column == 1 else _moved(text, column - 1)


def whole_lines(source: Source, span: Span) -> str:
    """The lines of a part of a statement, as in the program, moved to the first column together."""
    start = source.text.rfind("\n", 0, span.start) + 1
    before = source.text[start : span.start]
    return statement_text(source, Span(start + len(before) - len(before.lstrip(" ")), span.end))


@lru_cache(maxsize=256)
def _moved(text: str, columns: int) -> str:
    inside = _inside(text)
    lines = []
    at = 0
    for line in text.split("\n"):
        blank = len(line) - len(line.lstrip(" "))
        lines.append(line if at == 0 or at in inside else line[min(blank, columns) :])
        at += len(line) + 1
    return "\n".join(lines)


def _inside(text: str) -> frozenset[int]:
    """The starts of the lines inside a string or a marker."""
    from prose_kernel.language.openprose.lexer import tokenize

    starts: set[int] = set()
    for token in tokenize(text):
        if token.kind in _WITH_LINES:
            at = text.find("\n", token.start, token.end)
            while at >= 0:
                starts.add(at + 1)
                at = text.find("\n", at + 1, token.end)
    return frozenset(starts)


# ---------------------------------------------------------------- what is asked of people and judges


def gate_names(program: tree.Program) -> frozenset[str]:
    """The names of all gates of a program, of a contract file those of all its scripts; imports left aside."""
    return frozenset(node.name.id for one in program.scripts() for node in walk(one) if isinstance(node, tree.Gate))


def may_run_commands(program: tree.Program) -> bool:
    """Whether the program, or one that it imports or calls, may run `exec`."""
    return any(isinstance(node, (tree.Exec, tree.Use, tree.Call)) for node in walk(program))


def judged_texts(program: tree.Program) -> list[JudgedText]:
    """Each marker that is judged, in source order; of a contract file those of all its scripts. An input's marker is a
    question to the person, so it is left out."""
    nodes = [node for one in program.scripts() for node in walk(one)]
    criteria = {id(node.criteria) for node in nodes if isinstance(node, tree.Choice)}
    prompts = {id(node.prompt) for node in nodes if isinstance(node, tree.Input)}
    found = [
        JudgedText(node.span, node.text.raw, _sample(node.text), id(node) in criteria)
        for node in nodes
        if isinstance(node, tree.Discretion) and id(node) not in prompts
    ]
    return sorted(found, key=lambda found: found.span)


def spending(program: tree.Program, source: Source | None = None) -> Spending:
    """The models that a program and what it calls name, and whether a budget in them limits money; imports left aside.

    Names in called files have no place. `source` is that of a program that isn't a contract file.
    """
    called = any(isinstance(node, tree.Call) for node in walk(program))
    if program.declared is None and not called:
        return _spent_by(program, None)
    from prose_kernel.language.contracts.compile import reached

    found = [_spent_by(program, None)] if program.declared is None else []
    for unit, model in reached(program, source):
        if unit.has_script:
            spent = _spent_by(unit.compiled.program, model)
        else:
            own = next((item.text.strip("`\"'") for item in unit.node.items("Runtime") if "model" in item.names), None)
            spent = Spending(((model or own, None),), money=False)
        if unit.file.source.text != getattr(source, "text", None):
            spent = Spending(tuple((name, None) for name, _ in spent.models), spent.money)
        found.append(spent)
    return Spending(tuple(dict.fromkeys(one for spent in found for one in spent.models)), any(s.money for s in found))


def _spent_by(script: tree.Program, model: str | None) -> Spending:
    """The same of one script, whose sessions use `model` by default."""
    agents: dict[str, bool] = {}
    models: list[tuple[str | None, Span | None]] = []
    texts: list[str] = []
    asks: list[tree.Session | tree.Resume] = []
    for node in walk(script):
        match node:
            case tree.Agent():
                agents[node.name.id] = any(each.name.id == "model" for each in node.properties)
            case tree.Property(name=tree.Name(id="model"), value=tree.Name() | tree.Text() as value):
                models.append((value.id if isinstance(value, tree.Name) else value.raw, value.span))
            case tree.Property(name=tree.Name(id="budget"), value=tree.Text() as limits):
                texts.append(limits.raw)
            case tree.Block(budget=tree.Text() as limits):
                texts.append(limits.raw)
            case tree.Session() | tree.Resume():
                asks.append(node)
    if any(not _names_a_model(node, agents) for node in asks):
        models.append((model, None))
    return Spending(tuple(models), any(budget_values.parse(text).usd is not None for text in texts))


def _names_a_model(node: tree.Session | tree.Resume, agents: Mapping[str, bool]) -> bool:
    own = any(each.name.id == "model" for each in node.properties)
    return own or (node.agent is not None and agents.get(node.agent.id, True))


def _sample(text: tree.Text) -> str:
    return "".join(part if isinstance(part, str) else "0" for part in text.parts)


# ---------------------------------------------------------------- numbers


class Needs(NamedTuple):
    """The numbers that a branch may need, from its text.

    `calls_blocks`: a block is called. `programs`: the aliases of the programs called. `spawns`: it contains a session
    whose value no name takes. `stores`: a value without a name may have to be stored.
    """

    calls_blocks: bool
    programs: frozenset[str]
    spawns: bool
    stores: bool


EXECUTION = Kind("execution", lambda needs: 0 if needs.calls_blocks else None)
ANONYMOUS = Kind("anonymous", lambda needs: 0 if needs.spawns else 1 if needs.stores or needs.calls_blocks else None)


def call_of(program: str, aliases: frozenset[str]) -> Kind:
    """The calls of one imported program, which the running program knows under these aliases."""

    def wanted(needs: Needs) -> int | None:
        return 0 if needs.programs & aliases else 1 if needs.calls_blocks else None

    return Kind(f"program {program}", wanted)


def any_call_of(program: str) -> Kind:
    """The calls of one target, which the running script may know under any name: a slot, a variable, a path."""
    return Kind(f"program {program}", lambda needs: 0 if needs.programs else 1 if needs.calls_blocks else None)


def needs_of(statement: tree.Node) -> Needs:
    """The needs of a branch's text, including all nested parts."""
    found = list(walk(statement))
    named = {id(spawn) for node in found if (spawn := _named_spawn(node)) is not None}
    sessions = [node for node in found if isinstance(node, tree.Session | tree.Resume)]
    calls = [node for node in found if isinstance(node, tree.Call)]
    spawns = [*sessions, *calls, *(node for node in found if isinstance(node, tree.Stage))]
    return Needs(
        calls_blocks=any(isinstance(node, tree.BlockCall) for node in found),
        programs=frozenset(
            [node.program.id for node in found if isinstance(node, tree.ProgramCall)]
            + [node.named[0] for node in calls]
        ),
        spawns=any(id(node) not in named for node in spawns)
        or any(isinstance(node, tree.OnReject) and node.action == "session" for node in found),
        stores=any(isinstance(node, tree.For | tree.Repeat | tree.Pipe) for node in found)
        or any(node.agent is not None or node.properties for node in sessions),
    )


def _named_spawn(node: tree.Node) -> tree.Node | None:
    """The spawn whose value goes to the name that a statement or a branch binds."""
    value: tree.Node | None = None
    match node:
        case tree.Branch(name=tree.Name(), statement=tree.ExpressionStatement() as statement):
            value = statement.value
        case tree.Assign() | tree.Output(name=tree.Name()) | tree.Let(destructured=False):
            value = node.value
    return value.spawns[-1] if isinstance(value, tree.Arrow) else value
