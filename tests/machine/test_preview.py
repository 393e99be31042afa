"""The requests of sessions, listed without running anything (sessions.md 3.1 `dry-run`, openprose.md 4)."""

from __future__ import annotations

import copy

import pytest
from machine.fakes import World, lines, tree_of

from prose_kernel.errors import RunError
from prose_kernel.language.source import Source
from prose_kernel.runtime.events import SessionStarted
from prose_kernel.runtime.machine import Preview
from prose_kernel.runtime.ports import SessionRequest
from prose_kernel.runtime.preview import MOST_SESSIONS, unknown


async def previews(world: World, *text: str) -> tuple[Preview, ...]:
    source = Source.of(lines(*text), "cell")
    return await world.machine.preview(tree_of(source), source)


async def requests(world: World, *text: str) -> list[SessionRequest]:
    found = [preview.request for preview in await previews(world, *text)]
    assert None not in found
    return [request for request in found if request is not None]


AGENTS = [
    "agent writer:",
    "  model: opus",
    '  prompt: "You write about {topic}"',
    '  skills: ["style"]',
    "  permissions:",
    '    read: ["docs/*"]',
    "agent keeper:",
    '  prompt: "Keep"',
    "  persist: project",
]
BEFORE = [*AGENTS, 'let topic = "frogs"', "let parts = [1, 2, 3]", 'let data = {a: "x"}', 'let log = exec "true"']


@pytest.mark.parametrize(
    "text",
    [
        ['session "Write about {topic}"'],
        ['session: writer', '  prompt: "Go"', "  context: [topic, log]", '  timeout: "20s"', "  retry: 2"],
        ['let plan = session: writer', "  model: haiku", "  permissions:", "    bash: deny", '    read: ["{topic}/*"]'],
        ["session: keeper"],
        ['session named: writer', '  prompt: "x"', "  context: { topic, k: data.a }"],
        ['session "a"', 'session "b"', 'let c = session "c"', 'output d = session "d"'],
        ["block f(x):", '  session "About {x}"', "  do g(x)", "block g(y):", '  session "More {y}"', 'do f("tea")', "do f(topic)"],
        ["parallel:", '  a = session "a"', '  session "b"', "  do:", '    session "c"', 'session "after"'],
        ["for part in parts:", '  session "part {part}"'],
        ["parallel for part, at in parts:", '  session "part {part} {at}"', '  session "again {part}"'],
        ["repeat 3 as i:", '  session "pass {i}"'],
        ['let x = parts | map:', '  session "do {item}"'],
        ['let x = parts | pmap:', '  session "do {item}"', 'session "after"'],
        ["parallel for part in parts:", '  session "part {part}"', 'let y = session "after"', 'session "last"'],
        ['session "one" -> session "two"'],
        ["do:", '  session "inside"', "try:", '  session "tried"', "catch as e:", '  let no = "no"', "finally:", '  session "last"'],
        ["block again(n):", "  parallel:", '    x = session "x {n}"', '    y = session "y {n}"', "parallel:", "  do again(1)", "  do again(2)"],
        ["input kind: ~Which?~".replace("~", '"'), 'session "a"', "input more: ~What?~".replace("~", '"'), 'session "b"'],
        ['session "fresh"', "  context: []", 'session "t"', '  context: "some text"'],
    ],
)  # fmt: skip
async def test_a_preview_lists_the_requests_of_the_run(text: list[str]) -> None:
    w = World(user_says={"kind": "this", "more": "that"})
    await w.run(lines(*BEFORE), cell=True)
    foreseen = await requests(w, *text)
    await w.run(lines(*text), cell=True)
    asked = [event.request for event in w.of(SessionStarted)]
    assert len(foreseen) == len(asked) > 0
    order = {request.at: request for request in asked}
    assert {request.at: request for request in foreseen} == order


async def test_nothing_runs_and_nothing_changes() -> None:
    w = World()
    await w.run(lines(*BEFORE), cell=True)
    text = ['let plan = session "x"', 'exec "touch y"', "input who: ~Who?~".replace("~", '"'), "do f(plan)"]
    block = ["block f(p):", "  if **good**:", '    let topic = session "{p}"', "  else:", '    session "{plan}"']
    before = (dict(w.machine.bindings()), [*w.machine.definitions()], w.machine.known(), len(w.events))
    kept = copy.deepcopy(vars(w.store))
    first, second = [await previews(w, *block, *text) for _ in range(2)]
    assert [p.request for p in first] == [p.request for p in second]
    assert w.sessions.tasks == [] and w.commands.ran == ["true"] and vars(w.store) == kept
    known = w.machine.known()
    assert (dict(w.machine.bindings()), [*w.machine.definitions()], len(w.events)) == (before[0], before[1], before[3])
    assert known.variables.keys() == before[2].variables.keys() and known.blocks.keys() == before[2].blocks.keys()


async def test_values_bound_by_earlier_statements_are_not_known_yet() -> None:
    w = World()
    await w.run('let topic = "frogs"', cell=True)
    found = await previews(
        w,
        'let plan = session "Plan {topic}"',
        'let topic = exec "date"',
        'session "Write {plan.title} about {topic}"',
        "  context: plan",
        "for item in plan:",
        '  session "Do {item}"',
        "if **done**:",
        '  let end = session "Close {topic}"',
        "else:",
        '  session "Open {topic}"',
        'session "Say {end}"',
    )
    shown = [(p.request.task, p.unknown) for p in found if p.request is not None]
    assert shown == [
        ("Plan frogs", ()),
        (f"Write {unknown('plan.title')} about {unknown('topic')}", ("plan.title", "topic", "plan")),
        (f"Do {unknown('item')}", ("item",)),
        (f"Close {unknown('topic')}", ("topic",)),
        (f"Open {unknown('topic')}", ("topic",)),
        (f"Say {unknown('end')}", ("end",)),
    ]
    closed, opened = [p.request for p in found if p.kind == "session"][3:5]
    assert closed is not None and opened is not None and closed.at == opened.at  # one of them will run


async def test_sessions_of_an_imported_program_are_reported_too() -> None:
    inner = lines("input about: ~What?~", "let a = session ~Study {about}~", "output b = session ~Write {a}~")
    w = World(files={"./study.prose": inner.replace("~", '"')})
    await w.run('use "./study.prose" as study\nlet topic = "frogs"\n', cell=True)
    call = ['let r = study(about: topic)', 'session "Use {r.b}"']  # fmt: skip
    found = await previews(w, *call)
    assert [p.request.task for p in found if p.request is not None] == [
        *("Study frogs", f"Write {unknown('a')}", f"Use {unknown('r.b')}")
    ]
    await w.run(lines(*call), cell=True)
    asked = [event.request for event in w.of(SessionStarted)]
    target = found[0].request.target if found[0].request is not None else None
    assert target is not None and target.location == "imports/local--study/bindings/a.md"
    assert [p.request.finished for p in found if p.request is not None] == [request.finished for request in asked]
    assert [p.request.at for p in found if p.request is not None] == [request.at for request in asked]
    (noted,) = await previews(w, 'use "./study.prose" as other', 'other(about: "x")')
    assert noted.request is None and "'other' is loaded when the text runs" in noted.note


async def test_a_session_that_could_not_start_says_why() -> None:
    w = World()
    found = await previews(w, "agent a:", '  prompt: "p"', "  persist: true", "resume: a", "session: a", "resume: a")
    assert [p.problem.code if p.problem is not None else None for p in found] == ["E018", None, None]
    assert isinstance(found[0].problem, RunError) and found[0].request is None


async def test_recursion_and_size_are_limited() -> None:
    w = World()
    recursive = await previews(w, "block f(n):", '  session "at {n}"', "  do f(n)", "do f(1)")
    assert [p.request.task for p in recursive if p.request is not None] == ["at 1"]
    text = [line for at in range(14) for line in (f"block b{at}():", f"  do b{at + 1}()", f"  do b{at + 1}()")]
    found = await previews(w, *text, "block b14():", '  session "leaf"', "do b0()")
    assert len(found) == MOST_SESSIONS
    deep = [f"{'  ' * at}do:" for at in range(90)] + ["  " * 90 + 'session "deep"']
    assert len(await previews(w, *deep)) == 1


async def test_values_computed_from_known_values_are_known() -> None:
    w = World()
    await w.run('let topic = "frogs"', cell=True)
    found = await previews(
        w,
        'let title = "On {topic}"',
        'let plan = session "Plan {title}"',
        'let same = plan == "x"',
        "let both = [title, plan]",
        'session "Write {title}, {same}, {both[0]}"',
    )
    assert [(p.request.task, p.unknown) for p in found if p.request is not None] == [
        ("Plan On frogs", ()),
        (f"Write On frogs, {unknown('same')}, {unknown('both[0]').replace('[0]', '')}", ("same", "both")),
    ]


async def test_a_preview_continues_after_statements_that_would_end_a_run() -> None:
    """A `return`, a `throw`, an error or a decided race may not occur in the actual run."""
    w = World()
    found = await previews(
        w,
        "block f():",
        "  for x in [1, 2]:",
        "    if **done**:",
        "      return",
        "    break",
        '  session "in f"',
        "do f()",
        "try:",
        '  throw "no"',
        '  session "tried"',
        "catch as e:",
        '  session "caught {e}"',
        "let parts = [1]",
        "let bad = parts[5]",
        'session "with {bad}"',
        'parallel ("first"):',
        '  session "one"',
        '  session "two"',
        "gate g:",
        '  prompt: "?"',
        '  on_reject: session "refused"',
    )
    tasks = [p.request.task for p in found if p.request is not None]
    assert tasks == ["in f", "tried", f"caught {unknown('e')}", f"with {unknown('bad')}", "one", "two", "refused"]
