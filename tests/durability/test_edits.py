"""Random edits of random programs: a run that keeps the answers from before the edit makes exactly the requests that the
edit has changed, and has the same result as a run from the beginning.

The necessary requests are found by running both programs from the beginning: requests of the edited program that the
first one did not make with the same contents. A gate must also be asked again after any repeated request, and a command
that declares no files after a repeated command or gate.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
from durability.live import MemoryLog
from machine.fakes import World
from machine.vvm_world import Vvm
from msgspec import structs

from prose_kernel.access.globs import Glob
from prose_kernel.runs.journal import RunJournal
from prose_kernel.runtime.answer_facts import AnsweredFiles
from prose_kernel.runtime.earlier_answers import EarlierAnswers, Rules
from prose_kernel.runtime.journal_codec import encode
from prose_kernel.runtime.journal_records import Answered, Asked, Completed, Record, Text
from prose_kernel.runtime.ports import (
    CommandRequest,
    CommandResult,
    FileRead,
    FileWrite,
    GateDecision,
    GateRequest,
    JudgeRequest,
    SessionRequest,
    SessionResult,
    ShownFile,
    ShowRequest,
    Verdict,
)
from prose_kernel.runtime.requests import Keys
from prose_kernel.runtime.value_text import material, readable

PROGRAMS = 30
EDITS = 1_020 if "DURABILITY_EXAMPLES" in os.environ else 90


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# ---------------------------------------------------------------- programs


@dataclass
class Statement:
    """A statement that binds its result to `name`. `uses` are earlier names; `file` is read by a session or a command."""

    kind: str
    name: str
    task: int
    uses: list[str] = field(default_factory=list)
    file: str = ""
    items: list[str] = field(default_factory=list)

    def openprose(self) -> str:
        words = f"Task {self.task}" + (f" with file {self.file}" if self.file else "")
        match self.kind:
            case "pure":
                return f'let {self.name} = "text {self.task}"\n'
            case "session":
                context = f"  context: [{', '.join(self.uses)}]\n" if self.uses else ""
                return f'let {self.name} = session "{words}"\n{context}'
            case "prompt":
                return f'let {self.name} = session "{words}: {" ".join(f"{{{n}}}" for n in self.uses)}"\n'
            case "command":
                inputs = (
                    f"  env: {{ {', '.join(f'V{i}: {n}' for i, n in enumerate(self.uses))} }}\n" if self.uses else ""
                )
                reads = f'"{self.file}"' if self.file else ""
                return f'let {self.name} = exec "tool {self.task}"\n{inputs}  reads: [{reads}]\n'
            case "undeclared":
                return f'let {self.name} = exec "undeclared {self.task}"\n'
            case "gate":
                shown = f"Gate {self.task}: {' '.join(f'{{{n}}}' for n in self.uses)}"
                return f'gate g{self.task}:\n  prompt: "{shown}"\n'
            case "judge":
                values = " ".join(f"{{{n}}}" for n in self.uses)
                return f'let {self.name} = "no"\nif **Judge {self.task}: {values}**:\n  {self.name} = "yes"\n'
            case "until":
                judged = f"loop until **Judge {self.task}: {{{self.name}}}** (max: 3):\n"
                return f'let {self.name} = "begin"\n{judged}  {self.name} = session "{words}: {{{self.name}}}"\n'
            case "parallel":
                each = f'  session "{words} of {{x}}"\n'
                return f"let {self.name} = parallel for x in [{', '.join(map(repr, self.items))}]:\n{each}".replace(
                    "'", '"'
                )
            case _:
                each = f'  session "{words} of {{x}}"\n'
                return f"let {self.name} = for x in [{', '.join(map(repr, self.items))}]:\n{each}".replace("'", '"')

    def vvm(self) -> str:
        words = f"Task {self.task}" + (f" with file {self.file}" if self.file else "")
        inputs = f"[{', '.join(self.uses)}]" if self.uses else ""
        match self.kind:
            case "pure":
                return f'{self.name} = "text {self.task}"\n'
            case "prompt":
                return f"{self.name} = @a `{words}: {' '.join(f'{{{n}}}' for n in self.uses)}`()\n"
            case "loop" | "parallel":
                items = ", ".join(f'"{item}"' for item in self.items)
                each = f"  {self.name} = {self.name} + [@a `{words} of {{x}}`()]\n"
                return f"{self.name} = []\nfor x in [{items}]:\n{each}"
            case "judge" | "until":
                value = self.uses[0] if self.uses else f'"value {self.task}"'
                judged = f"if ?`Judge {self.task}`({value}):\n"
                return f'{self.name} = "no"\n{judged}  {self.name} = @a `{words}`({inputs})\n'
            case _:
                return f"{self.name} = @a `{words}`({inputs})\n"


def bound(program: Sequence[Statement]) -> list[str]:
    """Return the names that later statements can use: a gate has none."""
    return [one.name for one in program if one.kind != "gate"]


class Programs:
    """Makes and edits programs. Some tasks repeat, so that several requests have equal keys."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.made = 0

    def statement(self, before: Sequence[str]) -> Statement:
        draw = self.random
        self.made += 1
        kinds = ["session", "session", "prompt", "command", "loop", "parallel", "pure", "judge", "until", "gate"]
        kind = draw.choice([*kinds, "undeclared"])
        uses = (
            draw.sample(before, min(len(before), draw.randint(0, 2)))
            if kind in ("session", "prompt", "command", "judge", "gate")
            else []
        )
        if kind == "prompt" and not uses:
            kind = "session"
        file = draw.choice(["", "", "f1.txt", "f2.txt"]) if kind in ("session", "prompt", "command") else ""
        items = draw.sample("abcdef", draw.randint(1, 3)) if kind in ("loop", "parallel") else []
        return Statement(kind, f"v{self.made}", draw.choice([self.made, self.made, 1]), uses, file, items)

    def program(self) -> list[Statement]:
        found: list[Statement] = []
        for _ in range(self.random.randint(4, 9)):
            found.append(self.statement(bound(found)))
        return found

    def edited(self, program: list[Statement], files: dict[str, str]) -> tuple[list[Statement], dict[str, str]]:
        new, files = deepcopy(program), dict(files)
        for _ in range(self.random.choice([1, 1, 2, 3])):
            self.random.choice(
                [self._insert, self._delete, self._rename, self._prompt, self._item, self._file, self._swap]
            )(new, files)
        return new, files

    def _insert(self, program: list[Statement], files: dict[str, str]) -> None:
        at = self.random.randint(0, len(program))
        program.insert(at, self.statement(bound(program[:at])))

    def _delete(self, program: list[Statement], files: dict[str, str]) -> None:
        used = {name for one in program for name in one.uses}
        free = [one for one in program if one.name not in used]
        if len(program) > 1:
            program.remove(self.random.choice(free))

    def _rename(self, program: list[Statement], files: dict[str, str]) -> None:
        one, self.made = self.random.choice(program), self.made + 1
        old_name, one.name = one.name, f"renamed{self.made}"
        for other in program:
            other.uses = [one.name if name == old_name else name for name in other.uses]

    def _prompt(self, program: list[Statement], files: dict[str, str]) -> None:
        self.made += 1
        self.random.choice(program).task = 1_000 + self.made

    def _item(self, program: list[Statement], files: dict[str, str]) -> None:
        loops = [one for one in program if one.items]
        if loops:
            one = self.random.choice(loops)
            one.items = self.random.sample("abcdefgh", self.random.randint(1, 4))

    def _file(self, program: list[Statement], files: dict[str, str]) -> None:
        self.made += 1
        files[self.random.choice([*files])] = f"content {self.made}"

    def _swap(self, program: list[Statement], files: dict[str, str]) -> None:
        at = [n for n in range(len(program) - 1) if program[n].name not in program[n + 1].uses]
        if at:
            n = self.random.choice(at)
            program[n], program[n + 1] = program[n + 1], program[n]


# ---------------------------------------------------------------- runs


class Outside:
    """All ports. Answers depend only on the contents of requests. `asked` has the kinds and contents of requests in order."""

    def __init__(self, files: dict[str, str]) -> None:
        self._files = files
        self.asked: list[tuple[str, ...]] = []

    def _answer(self, *content: str) -> str:
        self.asked.append(content)
        return "answer " + sha256("\0".join(content))[:10]

    def _file(self, words: str) -> str:
        return next((name for name in self._files if f"file {name}" in words), "")

    async def run(self, request: Any, on_output: Any = None) -> Any:
        if isinstance(request, CommandRequest):
            read = [f"{path} {self._files[path]}" for path in request.reads or () if path in self._files]
            kind = "command" if request.declares_files else "undeclared"
            return CommandResult("exited", 0, self._answer(kind, request.command, *request.env.values(), *read))
        assert isinstance(request, SessionRequest)
        context = [item.text if item.content is None else readable(item.content) for item in request.context or ()]
        inputs = [request.given.text] if request.given is not None else []
        file = self._file(request.task)
        reads = (FileRead(file, sha256(self._files[file])),) if file else ()
        text = self._answer("session", request.task, *map(str, context), *inputs, self._files.get(file, ""))
        return SessionResult(text, origin="model", reads=reads)

    async def decide(self, request: Any) -> Any:
        if isinstance(request, GateRequest):
            self._answer("gate", request.name, request.prompt)
            return GateDecision("approved", "user")
        assert isinstance(request, JudgeRequest)
        seen = material(request)
        values = [*seen.whole.values(), *seen.previews.values()]
        answer = self._answer("judge", request.text, str(request.loop), *map(str, values))
        return Verdict(int(answer[-1], 16) % 2 == 0, "model")

    def replayed(self, request: GateRequest, decision: GateDecision) -> None:
        """A kept approval."""

    async def show(self, request: ShowRequest) -> ShownFile:
        raise AssertionError(request)

    def matching(self, directory: str, globs: Sequence[str]) -> dict[str, str] | None:
        return {name: sha256(text) for name, text in self._files.items() if any(Glob(g).matches(name) for g in globs)}

    def digests(self, directory: str, paths: Sequence[str]) -> dict[str, str]:
        return {path: sha256(self._files[path]) for path in paths if path in self._files}


@dataclass
class Result:
    records: list[Record]
    asked: list[tuple[str, ...]]
    values: dict[str, str]


async def run_program(
    text: str, files: dict[str, str], make: Callable[[], Any], before: Result | None = None
) -> Result:
    world, outside, log = make(), Outside(files), MemoryLog()
    machine = world.vvm if isinstance(world, Vvm) else world.machine
    host = machine.host
    rules = Rules(is_confirmed=lambda asked, answered: True)
    earlier = EarlierAnswers("before", enumerate(before.records), rules=rules) if before is not None else None
    ports = dict.fromkeys(("sessions", "commands", "files", "judge", "gates"), outside)
    host.ports = structs.replace(host.ports, **ports)
    journal = RunJournal(log, host, Keys("/start"), earlier=earlier)  # type: ignore[arg-type]
    with journal.text(Text(0, "any", "main", text)):
        await world.run(text, cell=True)
    values = {name: readable(info.value) for name, info in machine.bindings().items()}
    return Result(log.records, outside.asked, values)


def necessary_requests(whole: Result, before: Result) -> list[tuple[str, ...]]:
    """Return the requests of the whole run that are necessary if it keeps the answers of the run before."""
    known, found, effects = Counter(before.asked), list[tuple[str, ...]](), False
    for content in whole.asked:
        blocked = {"gate": bool(found), "undeclared": effects}.get(content[0], False)
        if known[content] and not blocked:
            known[content] -= 1
            continue
        found.append(content)
        effects = effects or content[0] in ("gate", "command", "undeclared")
    return found


@pytest.mark.parametrize("language", ["openprose", "vvm"])
async def test_an_edited_program_repeats_only_changed_requests(language: str) -> None:
    make = World if language == "openprose" else Vvm
    asked, necessary = Counter[str](), Counter[str]()
    for seed in range(PROGRAMS // 2):
        programs = Programs(seed)
        first, files = programs.program(), {"f1.txt": "one", "f2.txt": "two"}
        text = "".join(getattr(one, language)() for one in first)
        text = text if language == "openprose" else f'agent a(model="x", prompt="p")\n{text}'
        before = await run_program(text, files, make)
        for _ in range(EDITS // PROGRAMS):
            new, changed = programs.edited(first, files)
            now = "".join(getattr(one, language)() for one in new)
            now = now if language == "openprose" else f'agent a(model="x", prompt="p")\n{now}'
            whole = await run_program(now, changed, make)
            kept = await run_program(now, changed, make, before)
            assert kept.values == whole.values, f"a stale answer was used:\n{text}\nis now\n{now}"
            wanted = necessary_requests(whole, before)
            assert Counter(kept.asked) == Counter(wanted), f"{text}\nis now\n{now}"
            asked.update(kind for kind, *_ in kept.asked)
            necessary.update(kind for kind, *_ in wanted)
    kinds = {"session", "judge"} | ({"command", "undeclared", "gate"} if language == "openprose" else set())
    assert asked == necessary and set(asked) == kinds


def test_answers_that_waited_for_their_turn_keep_their_order() -> None:
    """The first session wrote a file that the second one had read before. So it is out of date for the second one."""
    wrote = SessionResult("w", "w", "vendor", "model", writes=(FileWrite("f", "old", "new"),))
    read = SessionResult("r", "r", "vendor", "model", reads=(FileRead("f", hashlib.sha256(b"old").hexdigest()),))
    answers = {"c1/1/b0/s0": encode(wrote), "c1/1/b1/s0": encode(read)}
    records: list[Record] = [Asked(key, "session", key, id=key) for key in answers]
    records += [kind(key, value) for kind in (Completed, Answered) for key, value in answers.items()]
    outside = Outside({"f": "new"})
    files = AnsweredFiles(Keys("/start"))
    for one in sorted(EarlierAnswers("before", enumerate(records)).unused, key=lambda one: one.order):
        files.add(one.asked, one.answered)
    assert files.changes([["c1"]], {}, outside) == ["f"]  # type: ignore[arg-type]
