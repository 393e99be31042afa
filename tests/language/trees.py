"""Hypothesis strategies for programs, as trees that the grammar can express."""

from __future__ import annotations

from hypothesis import strategies as st

from prose_kernel.language.openprose import tree as t
from prose_kernel.language.openprose.tree import ExpressionStatement as Run
from prose_kernel.language.openprose.tree import Interpolation, Name, Number, Text

NAMES = st.sampled_from(["a", "b-c", "item", "x1", "context", "_y", "map", "agent", "loop"])
name = NAMES.map(Name)
callee = name.filter(lambda n: n.id != "loop")  # `loop (` is always the keyword (1.9)
fragment = st.text(st.sampled_from('ab {}"\\\n\t$#*-:=é'), min_size=1, max_size=8)


@st.composite
def interpolation(draw: st.DrawFn) -> Interpolation:
    head = draw(NAMES)
    steps = tuple(draw(st.lists(st.one_of(NAMES, st.integers(0, 9), name), max_size=2)))
    raw = head + "".join(f".{s}" if isinstance(s, str) else f"[{getattr(s, 'id', s)}]" for s in steps)
    return Interpolation(head, steps, f"{{{raw}}}")


@st.composite
def texts(draw: st.DrawFn) -> Text:
    parts: list[str | Interpolation] = []
    for part in draw(st.lists(st.one_of(fragment, interpolation()), max_size=4)):
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            parts[-1] += part
        elif isinstance(part, Interpolation) and parts and isinstance(parts[-1], str) and parts[-1].endswith("$"):
            parts.append(Interpolation(part.name, part.steps, part.raw, after_dollar=True))
        else:
            parts.append(part)
    return Text(tuple(parts))


marker = st.text(st.sampled_from("ab c\n*"), max_size=12).map(str.strip).filter(lambda s: s and "***" not in s).map(
    lambda s: t.Discretion(Text((s,)))
)  # fmt: skip
number = st.one_of(st.integers(-99, 99).map(Number), st.floats(0.001, 1e9, allow_nan=False).map(Number))
leaf = st.one_of(
    name, texts(), marker, number, st.sampled_from([t.Constant(True), t.Constant(None), t.Duration("90s")])
)


def _composite(inner: st.SearchStrategy[t.Expression]) -> st.SearchStrategy[t.Expression]:
    many = st.lists(inner, max_size=3).map(tuple)
    path = st.one_of(name, st.builds(t.Member, name, name))
    shorthand = path.map(lambda p: t.Entry(p.id if isinstance(p, Name) else p.name.id, p, shorthand=True))
    entry = st.one_of(shorthand, st.builds(t.Entry, st.sampled_from(["k", "a b", "session", "true"]), inner))
    operators = st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "is", "+", "-"])
    return st.one_of(
        many.map(t.Array),
        st.lists(entry, max_size=3).map(tuple).map(t.Object),
        st.builds(t.Member, inner, name),
        st.builds(t.Index, inner, inner),
        st.builds(t.Binary, operators, inner, inner),
        st.builds(t.Logical, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(t.Not, inner),
        st.builds(t.ProgramCall, callee, st.lists(st.builds(t.Argument, name, inner), max_size=2).map(tuple)),
    )


expression = st.recursive(leaf, _composite, max_leaves=6)
condition = expression.filter(lambda e: not isinstance(e, Text))
block_call = st.builds(t.BlockCall, name, st.lists(expression, max_size=2).map(tuple))

_values = st.builds(t.Property, st.sampled_from([Name("context"), Name("model"), Name("other")]), expression)
_permissions = st.builds(t.Argument, st.sampled_from([Name("bash"), Name("read")]), st.one_of(name, expression))
_blocks = st.one_of(
    st.lists(_permissions, min_size=1, max_size=2).map(
        lambda e: t.Property(Name("permissions"), t.Permissions(tuple(e)))
    ),
    st.lists(st.builds(t.Argument, name, expression), min_size=1, max_size=2).map(
        lambda e: t.Property(Name("context"), t.ContextBlock(tuple(e)))
    ),
)
properties = st.lists(st.one_of(_values, _blocks), max_size=2).map(tuple)
on_reject = st.one_of(
    st.sampled_from([t.OnReject("throw"), t.OnReject("retry"), t.OnReject("continue")]),
    st.builds(t.OnReject, st.sampled_from(["throw", "session"]), texts()),
)
gate_properties = st.one_of(properties, on_reject.map(lambda r: (t.Property(Name("on_reject"), r),)))
spawn = st.one_of(
    st.builds(t.Session, title=texts(), properties=properties),
    st.builds(t.Session, label=st.none() | name, agent=name, properties=properties),
    st.builds(t.Resume, name, properties),
    st.builds(t.Exec, texts(), properties),
)
arrow = st.lists(spawn, min_size=2, max_size=3).map(tuple).map(t.Arrow)
modifiers = st.builds(
    t.Modifiers, st.sampled_from(["all", "first"]), st.sampled_from(["fail-fast", "continue", "ignore"])
) | st.builds(t.Modifiers, st.just("any"), count=st.none() | st.integers(1, 5))
simple = st.one_of(
    spawn.map(Run),
    arrow.map(Run),
    block_call.map(Run),
    st.builds(t.Throw, st.none() | name | texts()),
    st.builds(t.Return, st.none() | expression),
    st.just(t.Break()),
    st.builds(t.Assert, condition, st.none() | texts()),
    st.builds(t.Input, name, texts() | marker),
    st.builds(t.Let, st.sampled_from(["let", "const"]), st.tuples(name), expression | spawn),
    st.builds(t.Let, st.just("let"), st.tuples(name, name), expression, destructured=st.just(True)),
    st.builds(t.Assign, name, expression | arrow),
    st.builds(t.Output, st.none() | name, expression | spawn),
    st.builds(t.Gate, name, gate_properties),
)


def _branch(statement: t.Statement) -> t.Branch:
    if isinstance(statement, t.Assign):
        return t.Branch(statement.name, Run(statement.value))
    if isinstance(statement, t.Let) and statement.kind == "let" and not statement.destructured:
        return t.Branch(statement.names[0], Run(statement.value))
    return t.Branch(None, statement)


def _unique(branches: list[t.Branch]) -> tuple[t.Branch, ...]:
    seen: set[str] = set()
    kept = []
    for branch in branches:
        if branch.name is None or branch.name.id not in seen:
            kept.append(branch)
            seen.add(branch.name.id if branch.name else "")
    return tuple(kept)


def _compound(inner: st.SearchStrategy[t.Statement]) -> st.SearchStrategy[t.Statement]:
    body = st.lists(inner, min_size=1, max_size=2).map(tuple)
    variable = st.none() | name
    arms = st.lists(st.builds(t.Arm, condition, body), min_size=1, max_size=2).map(tuple)
    pipe_body = st.one_of(body, expression.map(lambda e: (Run(e),)))
    operation = st.one_of(
        st.builds(t.PipeOperation, st.sampled_from(["map", "filter", "pmap"]), st.just(()), pipe_body),
        st.builds(t.PipeOperation, st.just("reduce"), st.tuples(name, name), pipe_body),
    )
    compound: st.SearchStrategy[t.Expression] = st.one_of(
        st.builds(t.Do, body),
        st.builds(t.If, arms, st.none() | body),
        st.builds(t.For, name, variable, expression, body, st.none() | modifiers),
        st.builds(t.Repeat, st.integers(1, 9).map(Number) | name, variable, body),
        st.builds(t.Loop, st.none(), st.none(), st.none() | st.integers(1, 9), variable, body),
        st.builds(
            t.Loop, st.sampled_from(["until", "while"]), condition, st.none() | st.integers(1, 9), variable, body
        ),
        st.builds(t.Try, body, st.builds(t.Catch, variable, body), st.none() | body),
        st.builds(t.Try, body, st.none(), body),
        st.builds(t.Choice, marker, st.lists(st.builds(t.Option, texts(), body), min_size=1, max_size=2).map(tuple)),
        st.builds(t.Parallel, modifiers, st.lists(inner.map(_branch), min_size=1, max_size=3).map(_unique)),
        st.builds(t.Pipe, expression, st.lists(operation, min_size=1, max_size=2).map(tuple)),
    )
    return st.one_of(
        compound.map(Run),
        st.builds(t.Let, st.just("let"), st.tuples(name), compound),
        st.builds(t.Output, st.none() | name, compound),
        st.builds(t.Return, compound),
    )


statement = st.recursive(simple, _compound, max_leaves=5)

# ---- ProseScript

script_name = st.one_of(name, st.sampled_from(["call", "record", "append"]).map(Name))
_value = st.one_of(expression, script_name)
call = st.deferred(lambda: st.one_of(plain_call, _with_inputs))
plain_call = st.builds(
    t.Call, st.one_of(name, texts().filter(lambda x: "\n" not in x.raw)), st.lists(_value, max_size=2).map(tuple)
)
_with_inputs = st.builds(
    t.Call,
    name,
    st.just(()),
    st.lists(st.builds(t.Argument, script_name, st.one_of(_value, plain_call)), max_size=2).map(tuple),
)
script_simple = st.one_of(
    simple,
    call.map(Run),
    st.builds(t.Let, st.just("let"), st.tuples(script_name), call),
    st.builds(t.Return, st.one_of(call, script_name)),
    st.builds(t.Throw, _value),
    st.builds(t.Append, _value, name),
    st.builds(t.Stage, name, st.lists(expression, max_size=2).map(tuple)).map(Run),
)


def _script_compound(inner: st.SearchStrategy[t.Statement]) -> st.SearchStrategy[t.Statement]:
    body = st.lists(inner, min_size=1, max_size=2).map(tuple)
    each = st.builds(t.For, name, st.none() | name, expression, body, st.none(), st.integers(1, 9))
    repeat = st.builds(t.Repeat, st.integers(1, 9).map(Number) | name, st.none() | name, body, st.just(True))
    return st.one_of(_compound(inner), each.map(Run), repeat.map(Run))


script_program = st.builds(
    t.Program,
    st.lists(st.recursive(script_simple, _script_compound, max_leaves=5), max_size=4).map(tuple),
    script=st.just(True),
)

definition = st.one_of(
    st.builds(t.Use, texts(), st.none() | name),
    st.builds(t.SkillImport, texts(), texts()),
    st.builds(t.Agent, name, properties),
    st.builds(
        t.Block,
        name,
        st.lists(name, max_size=2).map(tuple),
        st.none() | st.integers(1, 9),
        st.lists(statement, min_size=1, max_size=2).map(tuple),
    ),
)
program = st.lists(st.one_of(statement, definition), max_size=4).map(tuple).map(t.Program)
