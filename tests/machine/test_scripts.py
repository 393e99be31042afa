"""Scripts of contracts and ProseScript in cells: calls, results, returns, throws (docs/reference/prose-md.md 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from machine.fakes import Reply, World, lines, plain

from prose_kernel.language.openprose import compile_source
from prose_kernel.language.openprose import tree as t
from prose_kernel.language.openprose.call_targets import (
    CallInput,
    CallOutput,
    CallProblem,
    CallTarget,
    Interface,
    ScriptSource,
)
from prose_kernel.language.source import Source
from prose_kernel.machine.openprose.calls import CallRequest, run_script
from prose_kernel.machine.openprose.program_context import ProgramContext
from prose_kernel.machine.openprose.program_text import any_call_of
from prose_kernel.machine.openprose.programs import nested_context
from prose_kernel.machine.openprose.sessions import run_session
from prose_kernel.runtime.events import SessionStarted
from prose_kernel.runtime.trampoline import call, drive
from prose_kernel.runtime.values import Value


@dataclass(frozen=True)
class Function:
    """A function for tests: its declarations, and its script or the task of its session."""

    inputs: tuple[CallInput, ...] = ()
    outputs: tuple[str, ...] = ()
    script: str = ""
    slot: bool = False


class Library:
    """Finds call targets by name and renders them."""

    def __init__(self, **functions: Function) -> None:
        self.functions = functions
        self.requests: list[CallRequest] = []

    def find(self, name: str, uses: Mapping[str, str], *, path: bool = False) -> CallTarget | CallProblem:
        found = self.functions.get(uses.get(name, name).removeprefix("./"))
        if found is None:
            return CallProblem("E313", f"nothing is called `{name}`")
        outputs = tuple(CallOutput(each.rstrip("?"), each.endswith("?")) for each in found.outputs)
        return CallTarget(name, "function", found.inputs, outputs, False, bool(found.script), found.slot, unit=found)

    def texts(self) -> dict[str, str]:
        return {}

    def element(self, value: str) -> CallTarget | None:
        found = self.find(value, {})
        return found if isinstance(found, CallTarget) else None

    async def render(self, s: ProgramContext, node: t.Node, request: CallRequest) -> Value:
        self.requests.append(request)
        target, unit = request.target, request.target.unit
        source = script(unit.script, self, fixed=tuple(request.inputs), outputs=target.outputs)
        inner = nested_context(s, node, target.name, ("local", target.name), source, "", any_call_of)
        inner = inner.called_from(s)
        if unit.script:
            program = compile_source(source, profile="prosescript").program
            value = await call(run_script(inner, program, source, request.inputs))
        else:
            shown = ", ".join(f"{key}={plain(part)}" for key, part in {**request.inputs, **request.extra}.items())
            session = t.Session(t.Text((f"{target.name}({shown})",)), None, None, ())
            value = await call(run_session(inner, session, None))
        await inner.flush()
        return value


def script(text: str, library: Library | None = None, kind: Any = "function", **more: Any) -> ScriptSource:
    return ScriptSource(text, "main.prose.md", interface=Interface(kind, "main", targets=library, **more))


async def run(w: World, *text: str, library: Library | None = None, values: Mapping[str, Any] = {}, **more: Any) -> Any:
    """Run a script as the root of a run and return its plain value."""
    source = script(lines(*text), library, **more)
    compiled = compile_source(source, profile="prosescript")
    assert compiled.ok, [d.render() for d in compiled.diagnostics]
    w.machine._shared.host.renderer = library
    run_ = w.machine._run
    context = ProgramContext(run_, run_.root, source, "/start", "c1")
    return plain(await drive(run_script(context, compiled.program, source, values)))


async def cell(w: World, *text: str) -> Any:
    source = Source(lines(*text), "cell")
    compiled = compile_source(source, profile="prosescript", known=w.machine.known(), cell=True)
    assert compiled.ok, [d.render() for d in compiled.diagnostics]
    return plain(await w.machine.run(compiled.program, source, inputs={}, cell=True))


BRIEF = Function((CallInput("topic"), CallInput("depth", True, 3)), ("report", "notes?"))


async def test_a_call_binds_the_outputs_by_name() -> None:
    w = World(sessions_say={"brief(topic=tea, depth=3)": '{"report": "r", "more": 1}'})
    found = await run(
        w, "let x = call brief", '  topic: "tea"', "return [x.report, x.notes, x]", library=Library(brief=BRIEF)
    )
    assert found == ["r", None, {"report": "r", "notes": None}]
    assert [e.place.program for e in w.of(SessionStarted)] == [("local--brief",)]


async def test_a_missing_output_is_an_error_that_retry_repeats() -> None:
    w = World(sessions_say={"brief(topic=1, depth=2)": ["no object", '{"notes": 1}', '{"report": 2}']})
    text = ["let x = call brief", "  topic: 1", "  depth: 2", "  retry: 2", "return x.report"]
    assert await run(w, *text, library=Library(brief=BRIEF)) == 2
    w = World()
    caught = ["try:", "  call brief", "    topic: 1", "catch as e:", "  return [e.code, e.program]"]
    assert await run(w, *caught, library=Library(brief=BRIEF)) == ["E230", "brief"]


async def test_a_single_output_is_the_value_and_its_own_field() -> None:
    w = World(sessions_say={"one()": "it"})
    text = [
        "let x = call one",
        "let { n } = call one",
        "parallel:",
        "  let y = call one",
        'return [x, x.n, "{x.n}", n, y.n]',
    ]
    assert await run(w, *text, library=Library(one=Function(outputs=("n",)))) == ["it"] * 5


async def test_a_script_runs_in_its_own_frame() -> None:
    inner = Function((CallInput("a"),), ("sum",), lines("let secret = a + 1", "return { sum: secret }"))
    w = World()
    text = ["let secret = 5", "let x = call inner", "  a: secret", "return [x, secret]"]
    assert await run(w, *text, library=Library(inner=inner)) == [6, 5]
    assert w.store.inner["local--inner"].text("secret") == "6"


async def test_calls_in_calls_and_by_position() -> None:
    add = Function((CallInput("a"), CallInput("b")), (), lines("return a + b"))
    w = World()
    text = ["let x = call add", "  a: call add(1, 2)", "  b: call add(3, 4)", "return x"]
    assert await run(w, *text, library=Library(add=add)) == 10


async def test_modifiers_of_the_session() -> None:
    library = Library(one=Function())
    w = World()
    text = [
        'let best = "fast"',
        "call one",
        '  prompt: "also {topic}"',
        "  model: best",
        '  timeout: "2m"',
        "  context: topic",
    ]
    await run(w, *text, library=library, fixed=("topic",), values={"topic": "tea"})
    (request,) = library.requests
    assert (request.prompt, request.model, request.timeout) == ("also tea", "fast", 120.0)
    assert [item.name for item in request.context or ()] == ["topic"]


async def test_a_function_calls_itself_a_hundred_times() -> None:
    down = Function((CallInput("n"),), (), lines("return call down", "  n: n - 1"))
    w = World()
    text = ["try:", "  call down", "    n: 1", "catch as e:", "  return [e.code, e.message]"]
    code, message = await run(w, *text, library=Library(down=down))
    assert code == "E206"
    assert message == "RecursionLimitExceeded: function 'down' exceeded max_depth 100"


async def test_slots_and_their_elements() -> None:
    library = Library(a=Function((CallInput("x"),), slot=True), b=Function(slot=True))
    w = World()
    text = [
        "let found = []",
        "for critic in critics:",
        "  let r = call critic",
        "    x: 1",
        "  append r to found",
        "return found",
    ]
    values = {"critics": ["a", "b"]}
    found = await run(w, *text, library=library, kind="delegation", variables=("critics",), values=values)
    assert found == ["<a(x=1)>", "<b(x=1)>"]
    error = ["try:", "  for c in critics:", "    call c", "catch as e:", "  return e.code"]
    assert (
        await run(World(), *error, library=library, kind="delegation", variables=("critics",), values=values) == "E026"
    )


async def test_concurrent_calls_have_separate_numbers() -> None:
    w = World(order=lambda text: {"one(x=1)": 3.0, "one(x=2)": 1.0}.get(text, 0))
    one = Function((CallInput("x"),))
    text = ["parallel:", "  a = call one(1)", "  b = call one(2)", "return [a, b]"]
    assert await run(w, *text, library=Library(one=one)) == ["<one(x=1)>", "<one(x=2)>"]
    assert list(w.store.inner) == ["local--one", "local--one--2"]
    assert [e.request.at for e in w.of(SessionStarted)] == ["c1/1/b0/u0/s0", "c1/1/b1/u0/s0"]


async def test_a_call_as_a_statement_is_kept() -> None:
    w = World()
    await run(w, "call one", "return 1", library=Library(one=Function()))
    assert w.store.text("anon_001") == "<one()>"


async def test_a_dry_run_lists_the_sessions_of_calls() -> None:
    add = Function((CallInput("a"),), (), lines('session "work on {a}"', "return a"))
    library, w = Library(add=add, one=Function()), World()
    source = script(lines("let x = call add", "  a: 5", "if x is good enough:", "  call one", "return x"), library)
    compiled = compile_source(source, profile="prosescript")
    w.machine._shared.host.renderer = library
    found = await w.machine.preview(compiled.program, source)
    assert [each.request.task for each in found if each.request is not None] == ["work on 5", "one()"]
    assert not w.of(SessionStarted)


# ---------------------------------------------------------------- return and throw


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (["return"], None),
        (["let x = 1", "let y = x + 1"], 2),
        (["block b():", "  let x = 1", "  return", "let y = do b()", "return [y]"], [None]),
        (
            ["let r = parallel for x in [1, 2]:", "  if x == 1:", '    return "one"', "  let y = x", "return r"],
            ["one", 2],
        ),
        (["let r = parallel for x in [1, 2]:", "  return x + 1", "return r"], [2, 3]),
        (["let r = [1, 2] | pmap:", "  return item + 1", "return r"], [2, 3]),
        (["parallel:", "  a = if true:", "    return 1", "  b = do:", "    return 2", "return [a, b]"], [1, 2]),
        (["for x in [1, 2]:", "  return x"], 1),
        (["let r = parallel repeat 3 as i:", "  return i", "return r"], [0, 1, 2]),
        (["let r = loop for each x in [5, 6, 7] (max: 2) as i:", "  let y = x + i", "return r"], [5, 7]),
        (["let xs = [1, 2]", "append 3 to xs", 'return [xs.length, "{xs.length}"]'], [3, "3"]),
        (["return {", "  a: 1", "  b: 2", "}"], {"a": 1, "b": 2}),
        (["try:", "  return 1", "finally:", "  let z = 1"], 1),
    ],
)
async def test_values_of_scripts(text: list[str], value: Any) -> None:
    assert await run(World(), *text) == value


@pytest.mark.parametrize(
    ("thrown", "fields"),
    [
        ('{ error: "no-budget", message: "too dear", cost: 3 }', ["too dear", "no-budget", 3]),
        ('{ error: "no-budget", cost: 4 }', ["no-budget", "no-budget", 4]),
        ('{ error: "other", message: "m", cost: 5 }', ["m", None, 5]),
    ],
)
async def test_objects_are_thrown_with_their_fields(thrown: str, fields: list[Any]) -> None:
    text = ["try:", f"  throw {thrown}", "catch as e:", "  return [e.message, e.name, e.cost]"]
    assert await run(World(), *text, errors=("no-budget",)) == fields


async def test_other_values_are_thrown_as_messages() -> None:
    text = ["try:", "  throw {}", "catch as e:", "  return [e.type, e.message, e.name]"]
    for value, message in (('"no-budget"', "no-budget"), ("1 + 1", "2"), ("[1]", "[1]")):
        found = await run(World(), *[line.format(value) for line in text], errors=("no-budget",))
        assert found == ["ThrowError", message, "no-budget" if message == "no-budget" else None]
    again = ["try:", "  try:", '    throw "a"', "  catch as e:", "    throw e", "catch as f:", "  return f.message"]
    assert await run(World(), *again) == "a"


# ---------------------------------------------------------------- conditions, agents, the host


async def test_words_are_judged_and_names_are_read() -> None:
    w = World(judge_says={"the draft is good enough": True})
    text = ["let ready = false", "if ready:", "  return 1", "if the draft is good enough:", "  return 2"]
    assert await run(w, *text) == 2
    assert [request.text for request in w.judge.requests] == ["the draft is good enough"]


async def test_models_and_shapes() -> None:
    w = World()
    text = [
        "agent a:", "  prompt: \"You write.\"", "  model: config.best", "  shape:", '    self: "texts"',
        '    prohibited: ["lies", "noise"]', "session: a", '  prompt: "go"', "return 1",
    ]  # fmt: skip
    await run(w, *text, kind="delegation", variables=("config",), values={"config": {"best": "big-1"}})
    (started,) = w.of(SessionStarted)
    assert started.request.model == "big-1"
    assert started.request.system == "You write.\nYou are responsible for: texts\nYou must not: lies, noise"


async def test_stages_and_reads_of_the_host() -> None:
    w = World(sessions_say={"Write an {outline}.": "done"})
    text = [
        'let s = session outline(topic)', 'let before = read_world_model("self")', 'let news = read_subscription("n", "topic")',
        "return [s, before, news]",
    ]  # fmt: skip
    more = {
        "kind": "responsibility",
        "fixed": ("topic",),
        "prior": ("truth",),
        "stages": {"outline": "Write an {outline}."},
    }
    assert await run(w, *text, values={"topic": "tea"}, **more) == ["done", None, "tea"]
    found = await run(World(), *text[1:2], "return before", values={"topic": 1, "truth": "old"}, **more)
    assert found == {"truth": "old"}


async def test_cells_return_their_value() -> None:
    w = World(sessions_say={"x": Reply("answer")})
    assert await cell(w, "let a = 1", "return { a: a }") == {"a": 1}
    assert await cell(w, "a = a + 1", "if a == 2:", "  return a", "let b = 1") == 2
    assert w.machine.outputs() == {}
    assert await cell(w, 'output z = session "x"') == "answer"
    assert list(w.machine.outputs()) == ["z"]
