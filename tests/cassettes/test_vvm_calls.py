"""Recordings of agent calls: keys, and replays byte for byte (docs/reference/vvm.md 6.5, sessions.md 4.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cassettes.test_keys import identity, key
from machine.fakes import FakeClock
from machine.vvm_world import Vvm
from models.people import ScriptedPerson
from msgspec import structs

from prose_kernel.cassettes.recorded_answers import RecordedSessions
from prose_kernel.cassettes.recordings import Cassettes
from prose_kernel.models.digest_memory import DigestMemories
from prose_kernel.models.session_prompt import answered
from prose_kernel.runtime.ports import ContextItem, Given, SessionProgress, SessionRequest, SessionResult
from prose_kernel.runtime.session_options import CassetteOptions, Surroundings
from prose_kernel.storage.answer_files import AnswerFiles

CALL = SessionRequest("call", "Do it.", "c1/1/s0", agent="a", model="small", given=Given("in"), prelude="memory")


@pytest.mark.parametrize(
    "change",
    [
        {"task": "Do that."},
        {"given": Given("other")},
        {"given": Given("")},
        {"given": None},
        {"prelude": "another memory"},
        {"prelude": ""},
        {"settings": {"temperature": 1}},
        {"model": "big"},
        {"system": "Be brief."},
        {"kind": "session"},
        {"kind": "session", "context": (ContextItem("input", text="in"),)},
    ],
)
def test_fields_that_count_for_a_key(change: dict[str, Any]) -> None:
    assert key(structs.replace(CALL, **change)) != key(CALL)


@pytest.mark.parametrize(
    "change", [{"at": "c9/s7"}, {"agent": "b"}, {"label": "x"}, {"program": "p"}, {"position": 9}, {"attempt": 1}]
)
def test_fields_that_do_not_count(change: dict[str, Any]) -> None:
    assert key(structs.replace(CALL, **change)) == key(CALL)


def test_an_empty_input_is_not_missing() -> None:
    assert key(structs.replace(CALL, given=Given(""))) != key(structs.replace(CALL, given=None))


def test_secrets_and_locations_are_removed_from_keys() -> None:
    secret = "ghp_" + "a1B2" * 9
    with_secret = structs.replace(CALL, given=Given(f"in {secret} /work/a/x"), prelude=f"m {secret}")
    req = identity().session(with_secret)
    assert secret not in str(req) and "/work/a" not in str(req)
    assert key(with_secret, identity("/work/b")) != key(with_secret)  # there it isn't a place
    elsewhere = structs.replace(with_secret, given=Given(f"in {secret} /work/b/x"))
    assert key(elsewhere, identity("/work/b")) == key(with_secret)


def test_files_that_an_input_refers_to_count_by_their_content(tmp_path: Path) -> None:
    run = ".vvm/runs/r/bindings"
    (tmp_path / run).mkdir(parents=True)
    place = tmp_path / run / "b000001.md"
    made = identity(str(tmp_path))
    request = structs.replace(CALL, given=Given("in", (f"{run}/b000001.md",), run))
    missing = key(request, made)
    place.write_text("one")
    one = key(request, made)
    place.write_text("two")
    assert len({missing, one, key(request, made)}) == 3
    (tmp_path / "secret.md").write_text("x")
    outside = structs.replace(CALL, given=Given("in", (f"{run}/../../../../secret.md", "secret.md"), run))
    assert "secret" not in str(made.session(outside))


# ---------------------------------------------------------------- whole runs


class Provider:
    """Gives a different answer to each call, so that only a recording can repeat one."""

    def __init__(self) -> None:
        self.asked = 0

    async def run(self, request: SessionRequest, on_progress: Any) -> SessionResult:
        self.asked += 1
        on_progress(SessionProgress("text", "…"))
        text = f'answer {self.asked} to {request.task}\n```vvm-memory\n{{"retain": ["fact {self.asked}"]}}\n```\n'
        if request.target is None or self.asked % 2:
            return answered(text, provider="live", origin="model", request=request)
        reply = f"Binding written: {request.target.name}\nSummary: Written {self.asked}.\n"
        result = answered(reply, provider="live", origin="model", request=request, writes=True)
        return structs.replace(result, text=text)


PROGRAM = (
    'agent a(memory={scope: "project", key: "k"})',
    "agent b()",
    "def f(n):",
    "  x = @a `first {n}`(n)",
    "  return @b `second {n}`([x])",
    "out = pmap([1, 2, 3], f)",
    "out",
)


async def run(cwd: Path, run_id: str, *, files: bool, live: bool) -> tuple[Any, int]:
    """Run the program in a directory with recordings; return its value and the number of calls."""
    w = Vvm()
    where = Surroundings(str(cwd), run_directory=f".vvm/runs/{run_id}", environment={"HOME": str(cwd / "home")})
    options = CassetteOptions("main", "record" if live else "replay")
    cassettes = Cassettes(options, where, w.clock, tool_names=lambda _: (), permissions={})
    provider = Provider()
    inner = provider if live else None
    answers = AnswerFiles(cwd, run_id, w.clock) if files else None
    if answers is not None:
        answers.start("")
    w.vvm.host.ports = structs.replace(
        w.vvm.host.ports,
        sessions=RecordedSessions(inner, cassettes, asker=ScriptedPerson(available=False)),
        memories=DigestMemories(where, FakeClock()),
        answers=answers,
    )
    try:
        return await w.cell(*PROGRAM), provider.asked
    finally:
        cassettes.close()


def remembered(cwd: Path) -> str:
    return (cwd / ".vvm/memory/k/ledger.jsonl").read_text()


@pytest.mark.parametrize("files", [False, True])
async def test_a_run_is_replayed_byte_for_byte(tmp_path: Path, files: bool) -> None:
    first, second = "20260101-000000-aaaaaa", "20260202-000000-bbbbbb"
    value, asked = await run(tmp_path, first, files=files, live=True)
    assert asked == 6
    kept = remembered(tmp_path)
    for path in (tmp_path / ".vvm/memory/k").iterdir():
        path.unlink()
    again, _ = await run(tmp_path, second, files=files, live=False)
    assert str(again) == str(value).replace(first, second)
    assert remembered(tmp_path) == kept
    if files:
        bindings = [sorted((tmp_path / f".vvm/runs/{r}/bindings").iterdir()) for r in (first, second)]
        assert [p.name for p in bindings[0]] == [p.name for p in bindings[1]]
        assert [p.read_bytes() for p in bindings[0]] == [p.read_bytes() for p in bindings[1]]
