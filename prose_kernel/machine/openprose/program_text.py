"""Facts from the text of a program: stored texts of statements, declared names, questions to people and judges, and the
numbers that branches may need.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from prose_kernel.language.durations_and_budgets import parse_budget
from prose_kernel.language.nodes import statement_kind, walk
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.program_interface import names_bound
from prose_kernel.language.source import Source, Span
from prose_kernel.runtime.budgets import Spending
from prose_kernel.runtime.numbering import Kind
from prose_kernel.runtime.ports import JudgedText

_MULTILINE_TOKENS: Final = ("STRING", "DISCRETION")


def declared_names(program: tree.Program) -> frozenset[str]:
    """Return every name that is bound in the program, including temporary names."""
    return frozenset(name for node in walk(program) for name in names_bound(node))


# ---------------------------------------------------------------- statements


def valued_kind(program: tree.Program) -> str:
    """Return the kind of the statement that determines a text's value, "" without one.

    It is `ended` if a `return` of ProseScript may end the text, because no event has shown its value then.
    """
    statements = [item for item in program.items if not isinstance(item, tree.Definition)]
    if program.script and any(isinstance(node, tree.Return) for item in statements for node in walk(item)):
        return "ended"
    valued = (item for item in reversed(statements) if item.valued or isinstance(item, tree.Return))
    return next(map(statement_kind, valued), "")


def statement_text(source: Source, span: Span) -> str:
    """Return a statement moved to the first column (docs/reference/openprose.md 7.4): its further lines lose the
    indentation of the first one.

    Text inside a string or a marker is data of the program and does not change.
    """
    text = source.slice(span)
    if "\n" not in text:
        return text
    column = source.line_column(span.start)[1]
    return text if column == 1 else _dedented(text, column - 1)


def whole_lines(source: Source, span: Span) -> str:
    """Return the complete lines of a part of a statement, moved to the first column together."""
    start = source.text.rfind("\n", 0, span.start) + 1
    before = source.text[start : span.start]
    return statement_text(source, Span(start + len(before) - len(before.lstrip(" ")), span.end))


@lru_cache(maxsize=256)
def _dedented(text: str, columns: int) -> str:
    inside = _protected_lines(text)
    lines = []
    at = 0
    for line in text.split("\n"):
        blank = len(line) - len(line.lstrip(" "))
        lines.append(line if at == 0 or at in inside else line[min(blank, columns) :])
        at += len(line) + 1
    return "\n".join(lines)


def _protected_lines(text: str) -> frozenset[int]:
    """Return the offsets of lines that start inside a string or a marker."""
    from prose_kernel.language.openprose.lexer import tokenize

    starts: set[int] = set()
    for token in tokenize(text):
        if token.kind in _MULTILINE_TOKENS:
            at = text.find("\n", token.start, token.end)
            while at >= 0:
                starts.add(at + 1)
                at = text.find("\n", at + 1, token.end)
    return frozenset(starts)


# ---------------------------------------------------------------- questions to people and judges


def gate_names(program: tree.Program) -> frozenset[str]:
    """Return the names of all gates of a program, or of all scripts of a contract file, without imports."""
    return frozenset(node.name.id for one in program.scripts() for node in walk(one) if isinstance(node, tree.Gate))


def may_run_commands(program: tree.Program) -> bool:
    """Return whether the program, or one that it imports or calls, may run `exec`."""
    return any(isinstance(node, (tree.Exec, tree.Use, tree.Call)) for node in walk(program))


def judged_texts(program: tree.Program) -> list[JudgedText]:
    """Return each marker that is judged, in source order, of a program or of all scripts of a contract file. The marker
    of an input is a question to the person, and is left out."""
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
    """Return the models named by a program and its call targets, and whether a budget in them limits money. Imports are
    left out.

    Names in called files have no place. `source` is the source of a program that isn't a contract file.
    """
    called = any(isinstance(node, tree.Call) for node in walk(program))
    if program.declared is None and not called:
        return _script_spending(program, None)
    from prose_kernel.language.contracts.compile import reachable_units

    found = [_script_spending(program, None)] if program.declared is None else []
    for unit, model in reachable_units(program, source):
        if unit.has_script:
            spent = _script_spending(unit.compiled.program, model)
        else:
            own = next((item.text.strip("`\"'") for item in unit.node.items("Runtime") if "model" in item.names), None)
            spent = Spending(((model or own, None),), money=False)
        if unit.file.source.text != getattr(source, "text", None):
            spent = Spending(tuple((name, None) for name, _ in spent.models), spent.money)
        found.append(spent)
    return Spending(tuple(dict.fromkeys(one for spent in found for one in spent.models)), any(s.money for s in found))


def _script_spending(script: tree.Program, model: str | None) -> Spending:
    """Return the spending of one script, whose sessions use `model` by default."""
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
    return Spending(tuple(models), any(parse_budget(text).usd is not None for text in texts))


def _names_a_model(node: tree.Session | tree.Resume, agents: Mapping[str, bool]) -> bool:
    own = any(each.name.id == "model" for each in node.properties)
    return own or (node.agent is not None and agents.get(node.agent.id, True))


def _sample(text: tree.Text) -> str:
    return "".join(part if isinstance(part, str) else "0" for part in text.parts)


# ---------------------------------------------------------------- numbers


class Needs(NamedTuple):
    """The numbers that a branch may need, from its text.

    `calls_blocks` means that it calls a block, `spawns` that it contains a session whose value is not bound, `stores`
    that a value without a name may have to be stored. `programs` are the aliases of the called programs.
    """

    calls_blocks: bool
    programs: frozenset[str]
    spawns: bool
    stores: bool


EXECUTION = Kind("execution", lambda needs: 0 if needs.calls_blocks else None)
ANONYMOUS = Kind("anonymous", lambda needs: 0 if needs.spawns else 1 if needs.stores or needs.calls_blocks else None)


def call_of(program: str, aliases: frozenset[str]) -> Kind:
    """Return the kind that counts calls of one imported program, known to the running program under these aliases."""

    def wanted(needs: Needs) -> int | None:
        return 0 if needs.programs & aliases else 1 if needs.calls_blocks else None

    return Kind(f"program {program}", wanted)


def any_call_of(program: str) -> Kind:
    """Return the kind that counts calls of one target, called by any name of it: of a slot, a variable, a path."""
    return Kind(f"program {program}", lambda needs: 0 if needs.programs else 1 if needs.calls_blocks else None)


def needs_of(statement: tree.Node) -> Needs:
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
    """Return the spawn whose value is bound to the name of a statement or branch, or None."""
    value: tree.Node | None = None
    match node:
        case tree.Branch(name=tree.Name(), statement=tree.ExpressionStatement() as statement):
            value = statement.value
        case tree.Assign() | tree.Output(name=tree.Name()) | tree.Let(destructured=False):
            value = node.value
    return value.spawns[-1] if isinstance(value, tree.Arrow) else value
