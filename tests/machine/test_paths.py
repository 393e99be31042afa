"""Every request to a port carries its path, which is unique in a run and the same in each run of a program."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path

from machine.fakes import World, lines

from prose_kernel.errors import RunError
from prose_kernel.language.openprose.parser import parse
from prose_kernel.language.source import Source
from prose_kernel.runtime.events import CommandStarted, GateOpened, Judged, Place, SessionStarted

RUN = Path(__file__).parents[1] / "corpus" / "run"
ASKS = ("exec ", "session", "resume", "input ", "gate ", "**")


class RequestLog(World):
    """A world that records its requests with their paths."""

    @property
    def paths(self) -> list[tuple[str, str, int]]:
        asked = [("command", r.at, 0) for r in self.commands.requests]
        asked += [("session", r.at, r.attempt) for r in self.sessions.requests]
        asked += [("judge", r.at, 0) for r in self.judge.requests]
        asked += [("user", q.at, 0) for q in self.user.questions]
        return asked + [("gate", r.at, r.attempt) for r in self.gates.requests]


def programs() -> list[Path]:
    found = sorted(RUN.glob("*.prose"))
    return [path for path in found if sum(path.read_text("utf-8", "replace").count(word) for word in ASKS) > 1]


async def requests_of(text: str, *, delays: bool) -> list[tuple[str, str, int]]:
    # delays do not depend on the order of requests, so that the second run completes them in another order
    w = RequestLog(order=lambda text: sum(map(ord, text)) % 7 / 10 if delays else 0.0, listening=False)
    w.judge_says, w.user_says = dict.fromkeys(("ready", "done"), True), dict.fromkeys("abcxy", "z")
    tree = parse(Source(text)).program
    with contextlib.suppress(
        RunError, AssertionError, KeyError, ValueError
    ):  # the requests made before the error count
        await w.machine.run(tree, Source(text))
    return w.paths


async def test_paths_are_unique_and_the_same_in_every_run() -> None:
    several = 0
    for path in programs():
        text = path.read_text("utf-8", "replace")
        expected = json.loads(path.with_suffix(".json").read_text())
        if expected.get("exit", 0) == 2 or "strict" in expected or "first" in text or "any" in text:
            continue  # not compiled, or a race: timing decides which of its branches send requests
        first, second = await requests_of(text, delays=False), await requests_of(text, delays=True)
        assert sorted(first) == sorted(second), path.name
        assert [at for at, times in Counter(first).items() if times > 1] == [], path.name
        assert all(at.startswith("c1") for _, at, _ in first), path.name
        several += len(first) > 1
    assert several > 60


async def test_paths_name_cell_statement_branch_iteration_and_kind() -> None:
    w = RequestLog(user_says={"who": "me"}, judge_says={"good": True}, files={"./p.prose": 'exec "inside"\n'})
    await w.run(lines('input who: "Who?"', 'use "./p.prose" as p'), cell=True)
    await w.run(
        lines(
            'exec "a"',
            "parallel:",
            '  exec "b"',
            "  do:",
            "    for x in [1, 2]:",
            '      exec "c{x}"',
            "    parallel for y in [1, 2]:",
            '      session "s{y}"',
            "if **good**:",
            "  gate g:",
            '    prompt: "?"',
            "p()",
        ),
        cell=True,
    )
    assert [(r.command, r.at) for r in w.commands.requests] == [
        ("a", "c2/1/x0"), ("b", "c2/2/b0/x0"), ("c1", "c2/2/b1/x0"), ("c2", "c2/2/b1/x1"), ("inside", "c2/4/u0/1/x0"),
    ]  # fmt: skip
    assert [r.at for r in w.sessions.requests] == ["c2/2/b1/i0/s0", "c2/2/b1/i1/s0"]
    assert [q.at for q in w.user.questions] == ["c1/q0"]
    assert [r.at for r in w.judge.requests] == ["c2/3/j0"] and [r.at for r in w.gates.requests] == ["c2/3/g0"]
    assert w.loads == ["c1/l0"]


async def test_events_carry_the_kind_of_their_statement_and_its_path() -> None:
    w = World(judge_says={"good": True})
    await w.run(lines('let x = exec "a"', "parallel:", '  session "b"', "if **good**:", "  gate g:", '    prompt: "?"'))
    places: list[Place] = [event.place for event in w.of(CommandStarted, SessionStarted, Judged, GateOpened)]
    assert [(place.kind, place.at) for place in places] == [
        ("exec", "c1/1"), ("session", "c1/2/b0"), ("discretion", "c1/3"), ("gate", "c1/3"),
    ]  # fmt: skip
    (judged,) = w.of(Judged)
    assert judged.at == "c1/3/j0"
