"""The memory of persistent agents, through the `Sessions` port and on real directories (openprose.md 4.4)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from machine.fakes import FakeClock
from waiting import PATIENCE

from prose_kernel.errors import ProviderError
from prose_kernel.models import agent_memory
from prose_kernel.models.agent_memory import RememberingSessions
from prose_kernel.models.memory_directory import Memories
from prose_kernel.models.session_prompt import REMEMBER, RULE, assemble, in_message, segment_file, with_texts
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.ports import (
    AgentMemory,
    AnswerFile,
    ContextItem,
    SessionProgress,
    SessionRequest,
    SessionResult,
)
from prose_kernel.runtime.session_options import Surroundings

HOME = ".prose/agents/captain"
Act = Callable[[SessionRequest], Awaitable[SessionResult]]


def asked(
    kind: str = "session", task: str = "Review the plan", *, scope: str = "project", **facts: Any
) -> SessionRequest:
    kept = facts.pop("kept", True)
    target = AnswerFile("plan", ".prose/runs/x/bindings/plan.md", "# plan\n") if kept else None
    directory = facts.pop("directory", f"{HOME}/")
    remembered = AgentMemory("captain", scope, directory, resume=kind == "resume")
    return SessionRequest(kind, task, "c1/s0", agent="captain", memory=remembered, target=target, **facts)  # type: ignore[arg-type]


class Inner:
    """A provider with a fixed or scripted answer; `requests` holds its requests."""

    def __init__(self, act: Act | None = None) -> None:
        self.requests: list[SessionRequest] = []
        self._act = act

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        self.requests.append(request)
        if self._act is not None:
            return await self._act(request)
        return SessionResult("Looks fine.\nReally.", "Looks fine.", "stub", "model")

    @property
    def last(self) -> AgentMemory:
        found = self.requests[-1].memory
        assert found is not None
        return found


def remembering_sessions(cwd: Path, inner: Inner, clock: Any = None) -> RememberingSessions:
    return RememberingSessions(inner, Surroundings(str(cwd)), clock or FakeClock())


async def run(cwd: Path, inner: Inner, request: SessionRequest, clock: Any = None) -> SessionResult:
    return await remembering_sessions(cwd, inner, clock).run(request, lambda _: None)


def files(cwd: Path, directory: str = HOME) -> dict[str, str]:
    """Return the texts in a memory directory by file name."""
    place = cwd / directory
    return {entry.name: entry.read_text() for entry in sorted(place.iterdir()) if entry.name != agent_memory.LOCK}


# ---------------------------------------------------------------- written for the session


async def test_a_session_that_wrote_nothing_is_remembered_too(tmp_path: Path) -> None:
    inner = Inner()
    result = await run(tmp_path, inner, asked())
    assert result.text == "Looks fine.\nReally."
    assert (inner.last.text, inner.last.segment) == (None, f"{HOME}/captain-001.md")
    assert files(tmp_path) == {
        "memory.md": "# captain\n\n## Sessions\n\n- Review the plan: Looks fine.\n",
        "captain-001.md": (
            "# Segment 001\n\ntimestamp: 2026-01-01T00:00:00+00:00\n"
            'prompt: "Review the plan"\n\n## Summary\n\n- Looks fine.\n'
        ),
    }


async def test_resume_reads_and_adds_and_session_starts_again_but_keeps_segments(tmp_path: Path) -> None:
    inner = Inner()
    await run(tmp_path, inner, asked())
    first = files(tmp_path)["memory.md"]
    await run(tmp_path, inner, asked("resume", 'Say "go"\nnow'))
    assert (inner.last.text, inner.last.segment) == (first, f"{HOME}/captain-002.md")
    assert files(tmp_path)["memory.md"] == first + '- Say "go" now: Looks fine.\n'
    assert 'prompt: "Say \\"go\\"\\nnow"' in files(tmp_path)["captain-002.md"]
    await run(tmp_path, inner, asked())
    assert inner.last.text is None
    assert files(tmp_path)["memory.md"] == first
    assert sorted(files(tmp_path)) == ["captain-001.md", "captain-002.md", "captain-003.md", "memory.md"]


async def test_a_memory_with_other_sections_keeps_them(tmp_path: Path) -> None:
    (tmp_path / HOME).mkdir(parents=True)
    (tmp_path / HOME / "memory.md").write_text("# captain\n\n## Decisions\n\n- north\n")
    inner = Inner()
    for _ in range(2):
        await run(tmp_path, inner, asked("resume"))
    assert files(tmp_path)["memory.md"] == (
        "# captain\n\n## Decisions\n\n- north\n\n## Sessions\n\n"
        "- Review the plan: Looks fine.\n- Review the plan: Looks fine.\n"
    )


async def test_nothing_in_the_memory_depends_on_the_day_or_on_how_many_runs_there_were(tmp_path: Path) -> None:
    class Later(FakeClock):
        def monotonic(self) -> float:
            return 1e9

    texts = []
    for clock in (FakeClock(), Later()):
        await run(tmp_path, Inner(), asked(), clock)
        await run(tmp_path, Inner(), asked("resume"), clock)
        texts.append(files(tmp_path)["memory.md"])
    assert texts[0] == texts[1]


async def test_numbers_grow_to_four_digits_and_continue_from_the_highest(tmp_path: Path) -> None:
    (tmp_path / HOME).mkdir(parents=True)
    for name in ("captain-007.md", "captain-999.md", "captain-abc.md", "other-2000.md", "captain-12.md"):
        (tmp_path / HOME / name).touch()
    inner = Inner()
    for number in (1000, 1001):
        await run(tmp_path, inner, asked("resume"))
        assert inner.last.segment == f"{HOME}/captain-{number}.md"
    assert files(tmp_path)["captain-1000.md"].startswith("# Segment 1000\n")


@pytest.mark.parametrize("scope", ["true", "project", "user", "notes/"])
async def test_every_scope_is_a_directory(tmp_path: Path, scope: str) -> None:
    directory = str(tmp_path / "elsewhere") + "/" if scope == "user" else "some/where/"
    inner = Inner()
    await run(tmp_path, inner, asked(scope=scope, directory=directory))
    await run(tmp_path, inner, asked("resume", scope=scope, directory=directory))
    assert inner.last.text == "# captain\n\n## Sessions\n\n- Review the plan: Looks fine.\n"
    assert (tmp_path / directory / "captain-002.md").is_file()


# ---------------------------------------------------------------- written by the session, or known by the provider


async def test_memory_written_by_the_session_is_kept(tmp_path: Path) -> None:
    async def write(request: SessionRequest) -> SessionResult:
        (tmp_path / HOME / "memory.md").write_text("# captain\nmine\n")
        (tmp_path / segment_file(request.memory or pytest.fail("no memory"))).write_text("# Segment 001\nmine\n")
        return SessionResult("ok")

    await run(tmp_path, Inner(write), asked())
    assert files(tmp_path) == {"memory.md": "# captain\nmine\n", "captain-001.md": "# Segment 001\nmine\n"}


async def test_memory_from_the_provider_or_a_recording_is_written(tmp_path: Path) -> None:
    async def replay(_: SessionRequest) -> SessionResult:
        return SessionResult("ok", memory_after="# captain\nnew\n", segment="# Segment 001\n\nwhat was done\n")

    for _ in range(2):
        await run(tmp_path, Inner(replay), asked())
    assert files(tmp_path) == {
        "memory.md": "# captain\nnew\n",
        "captain-001.md": "# Segment 001\n\nwhat was done\n",
        "captain-002.md": "# Segment 002\n\nwhat was done\n",  # the number is this invocation's
    }


async def test_a_dry_run_leaves_no_memory(tmp_path: Path) -> None:
    async def dry(_: SessionRequest) -> SessionResult:
        return SessionResult("⟦dry-run⟧", origin="dry-run")

    await run(tmp_path, Inner(dry), asked())
    assert files(tmp_path) == {}
    await run(tmp_path, Inner(dry), asked(scope="true", kept=False))


async def test_sessions_without_memory_pass_unchanged(tmp_path: Path) -> None:
    inner, plain = Inner(), SessionRequest("session", "x", "c1/s0", context=(ContextItem("a", text="b"),))
    await run(tmp_path, inner, plain)
    assert inner.requests == [plain] and list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize("failure", [ProviderError("broken"), asyncio.CancelledError()], ids=["error", "cancelled"])
@pytest.mark.parametrize("existing", [None, "# captain\nold\n"])
async def test_an_attempt_that_fails_leaves_the_memory_as_it_was(
    tmp_path: Path, failure: BaseException, existing: str | None
) -> None:
    place = tmp_path / HOME
    place.mkdir(parents=True)
    if existing is not None:
        (place / "memory.md").write_text(existing)
    before = files(tmp_path)

    async def half(_: SessionRequest) -> SessionResult:
        (place / "memory.md").write_text("half")
        (place / "captain-001.md").write_text("half")
        raise failure

    with pytest.raises(type(failure)):
        await run(tmp_path, Inner(half), asked())
    assert files(tmp_path) == before
    async with asyncio.timeout(PATIENCE):  # the lock is free again
        await run(tmp_path, Inner(), asked("resume"))


UNREADABLE: list[tuple[str, Callable[[Path], object], str]] = [
    ("directory", lambda path: path.mkdir(), "memory.md is a directory"),
    ("pipe", os.mkfifo, "memory.md is a pipe"),
    ("binary", lambda path: path.write_bytes(b"# captain\0"), "memory.md is a binary file"),
    ("latin-1", lambda path: path.write_bytes(b"caf\xe9"), "memory.md is not UTF-8 text"),
    (
        "huge",
        lambda path: path.write_bytes(b"x" * (agent_memory.MEMORY_LIMIT + 1)),
        "memory.md is larger than 1,048,576 bytes",
    ),
    ("link", lambda path: path.symlink_to(__file__), "memory.md is a link"),
    ("loop", lambda path: path.symlink_to(path), "memory.md is a link"),
]


@pytest.mark.parametrize("kind", ["session", "resume"])
@pytest.mark.parametrize(("make", "says"), [case[1:] for case in UNREADABLE], ids=[case[0] for case in UNREADABLE])
async def test_a_memory_that_is_not_text_is_one_clear_error_and_stays(
    tmp_path: Path, kind: str, make: Callable[[Path], object], says: str
) -> None:
    (tmp_path / HOME).mkdir(parents=True)
    make(tmp_path / HOME / "memory.md")
    before = os.lstat(tmp_path / HOME / "memory.md")
    inner = Inner()
    with pytest.raises(ProviderError) as found:
        await run(tmp_path, inner, asked(kind))
    assert str(found.value) == f"the memory of agent 'captain' cannot be read: {says}"
    assert found.value.hint == f"repair or remove {HOME}/memory.md; nothing in it was changed"
    assert not found.value.retryable and not inner.requests
    after = os.lstat(tmp_path / HOME / "memory.md")
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)


async def test_a_memory_that_may_not_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / HOME).mkdir(parents=True)
    (tmp_path / HOME / "memory.md").write_text("x")

    def refused(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refused)
        with pytest.raises(ValueError, match=r"memory\.md: permission denied"):
            agent_memory.read(tmp_path / HOME / "memory.md")


@pytest.mark.parametrize(
    ("place", "says"), [(".prose", "a part of the path is not a directory"), (HOME, "something else is in its place")]
)
async def test_a_directory_that_cannot_be_created_is_an_error_before_the_session_runs(
    tmp_path: Path, place: str, says: str
) -> None:
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text("a file")
    inner = Inner()
    with pytest.raises(ProviderError) as found:
        await run(tmp_path, inner, asked())
    assert str(found.value) == f"the memory of agent 'captain' cannot be kept: {says}"
    assert not found.value.retryable and str(tmp_path) not in str(found.value) and not inner.requests


async def test_a_memory_that_grew_too_large_is_refused_and_the_former_one_stays(tmp_path: Path) -> None:
    async def grow(_: SessionRequest) -> SessionResult:
        return SessionResult("ok", memory_after="x" * (agent_memory.MEMORY_LIMIT + 1))

    await run(tmp_path, Inner(), asked())
    before = files(tmp_path)
    with pytest.raises(ProviderError, match="has 1,048,577 bytes"):
        await run(tmp_path, Inner(grow), asked("resume"))
    assert files(tmp_path) == before


async def test_the_errors_of_a_runs_own_memory_name_no_run(tmp_path: Path) -> None:
    directory = ".prose/runs/20260101-000000-abcdef/agents/captain/"
    (tmp_path / directory / "memory.md").mkdir(parents=True)
    with pytest.raises(ProviderError) as found:
        await run(tmp_path, Inner(), asked(scope="true", directory=directory))
    assert "20260101" not in f"{found.value} {found.value.hint}"


# ---------------------------------------------------------------- one at a time


async def test_sessions_of_one_agent_take_turns(tmp_path: Path) -> None:
    running = most = 0

    async def slow(request: SessionRequest) -> SessionResult:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return SessionResult(request.task, request.task)

    sessions = remembering_sessions(tmp_path, Inner(slow))
    await asyncio.gather(*(sessions.run(asked("resume", f"task {n}"), lambda _: None) for n in range(8)))
    assert most == 1
    lines = files(tmp_path)["memory.md"].splitlines()
    assert lines[-8:] == [f"- task {n}: task {n}" for n in range(8)]
    assert len(files(tmp_path)) == 9


async def test_different_agents_do_not_wait_for_each_other(tmp_path: Path) -> None:
    both = asyncio.Barrier(2)

    async def together(_: SessionRequest) -> SessionResult:
        await both.wait()
        return SessionResult("ok")

    sessions = remembering_sessions(tmp_path, Inner(together))
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(sessions.run(asked(directory=f"{n}/"), lambda _: None) for n in "ab"))


HOLDER = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Any:
    """Another process, which holds the lock of the memory until its input ends."""
    (tmp_path / HOME).mkdir(parents=True)
    command = [sys.executable, "-c", HOLDER, str(tmp_path / HOME / agent_memory.LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        process.communicate()


async def test_a_memory_that_another_process_never_releases_is_an_error(tmp_path: Path, holder: Any) -> None:
    clock, notes = FakeClock(), []
    with pytest.raises(ProviderError) as found:
        await remembering_sessions(tmp_path, Inner(), clock).run(asked("resume"), notes.append)
    assert str(found.value) == "the memory of agent 'captain' is in use by another process"
    assert found.value.retryable and str(holder.pid) not in f"{found.value}{found.value.hint}"
    assert agent_memory.PATIENCE <= clock.time < agent_memory.PATIENCE + 2
    assert notes == [SessionProgress("note", "waiting: another process uses the memory of 'captain'")]


async def test_a_session_waits_for_a_locked_memory(tmp_path: Path, holder: Any) -> None:
    waiting = asyncio.Event()
    sessions = remembering_sessions(tmp_path, Inner(), SystemClock())
    running = asyncio.create_task(sessions.run(asked("resume"), lambda _: waiting.set()))
    await waiting.wait()
    holder.stdin.close()
    holder.wait()
    holder.stdin = None
    async with asyncio.timeout(PATIENCE):
        assert (await running).text == "Looks fine.\nReally."


async def test_waiting_can_be_cancelled(tmp_path: Path, holder: Any) -> None:
    waiting = asyncio.Event()
    sessions = remembering_sessions(tmp_path, Inner(), SystemClock())
    running = asyncio.create_task(sessions.run(asked("resume"), lambda _: waiting.set()))
    await waiting.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


WRITER = """
import asyncio, sys
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.ports import AgentMemory, SessionRequest, SessionResult, AnswerFile
from prose_kernel.models.agent_memory import RememberingSessions
from prose_kernel.runtime.session_options import Surroundings

class Inner:
    async def run(self, request, on_progress):
        await asyncio.sleep(0)
        return SessionResult("ok", request.task)

async def main(cwd, name):
    sessions = RememberingSessions(Inner(), Surroundings(cwd), SystemClock())
    for number in range(10):
        memory = AgentMemory("captain", "project", ".prose/agents/captain/", resume=True)
        request = SessionRequest("resume", f"{name}{number}", "c1/s0", memory=memory, target=AnswerFile("x", "x.md", ""))
        await sessions.run(request, lambda _: None)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_two_processes_lose_nothing_of_one_memory(tmp_path: Path) -> None:
    writers = [await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, str(tmp_path), name) for name in "ab"]
    async with asyncio.timeout(60):
        assert [await writer.wait() for writer in writers] == [0, 0]
    lines = [line for line in files(tmp_path)["memory.md"].splitlines() if line.startswith("- ")]
    assert sorted(lines) == sorted(f"- {name}{n}: {name}{n}" for name in "ab" for n in range(10))
    assert len([name for name in files(tmp_path) if name.startswith("captain-")]) == 20


# ---------------------------------------------------------------- memory of a run that lives in memory


async def test_memory_of_a_run_in_memory_is_text_and_touches_no_file(tmp_path: Path) -> None:
    inner = Inner()
    sessions = remembering_sessions(tmp_path, inner)
    for kind in ("session", "resume", "resume", "session"):
        await sessions.run(asked(kind, scope="true", kept=False, directory="agents/captain/"), lambda _: None)
    line = "- Review the plan: Looks fine.\n"
    texts = [request.memory and request.memory.text for request in inner.requests]
    assert texts == [None, f"# captain\n\n## Sessions\n\n{line}", f"# captain\n\n## Sessions\n\n{line}{line}", None]
    assert all(request.memory and request.memory.directory == "" for request in inner.requests)
    assert list(tmp_path.iterdir()) == []
    message = assemble(inner.requests[2]).text
    assert message.count("Looks fine.") == 2 and "memory.md" not in message


async def test_memory_of_a_run_outlives_a_change_of_provider(tmp_path: Path) -> None:
    shared, inner = Memories(), Inner()
    for kind in ("session", "resume"):
        sessions = RememberingSessions(inner, Surroundings(str(tmp_path)), FakeClock(), shared)
        await sessions.run(asked(kind, scope="true", kept=False, directory="agents/captain/"), lambda _: None)
    assert inner.last.text == "# captain\n\n## Sessions\n\n- Review the plan: Looks fine.\n"


async def test_programs_do_not_share_the_memory_of_agents_with_one_name(tmp_path: Path) -> None:
    inner = Inner()
    sessions = remembering_sessions(tmp_path, inner)
    for program, kind in (("a.prose", "session"), ("b.prose", "resume")):
        request = asked(kind, scope="true", kept=False, directory="agents/captain/", program=program)
        await sessions.run(request, lambda _: None)
    assert inner.last.text is None


# ---------------------------------------------------------------- memory in the message, memory as context


async def test_the_message_by_value_holds_the_memory_and_names_no_file(tmp_path: Path) -> None:
    inner = Inner()
    await run(tmp_path, inner, asked())
    await run(tmp_path, inner, asked("resume"))
    assert in_message(inner.requests[-1], reads=True).text == (
        f"{RULE} {REMEMBER}\n\n"
        "===== your memory\n# captain\n\n## Sessions\n\n- Review the plan: Looks fine.\n===== end of your memory\n\n"
        "Review the plan"
    )
    by_reference = assemble(inner.requests[-1]).text
    assert f"Your memory is at: {HOME}/memory.md\nYour segment file is: {HOME}/captain-002.md\n" in by_reference
    assert in_message(inner.requests[0], reads=True).section("memory") is None


def test_the_message_by_value_holds_the_context() -> None:
    items = (
        ContextItem("plan", "bindings/plan.md", content="one\ntwo"),
        ContextItem("late", missing=True),
        ContextItem("gone", "somewhere"),
        ContextItem("n", text="3"),
    )
    request = SessionRequest("session", "Go", "c1/s0", context=items)
    assert in_message(request, reads=True).section("context") == (
        "===== plan\none\ntwo\n===== end of plan\n\n===== late\n(no result)\n===== end of late\n\n"
        "===== gone\n(not readable from here)\n===== end of gone\n\n===== n\n3\n===== end of n"
    )
    assert assemble(with_texts(request)).section("context") == (
        "Context:\n- plan:\n    one\n    two\n- late: (no result)\n- gone: (not readable from here)\n- n: 3"
    )


async def test_an_agents_memory_as_context_is_known_to_all_further_in(tmp_path: Path) -> None:
    await run(tmp_path, Inner(), asked())
    (tmp_path / "odd").write_bytes(b"\0")
    items = (ContextItem("captain", f"{HOME}/memory.md"), ContextItem("odd", "odd"), ContextItem("none", "none"))
    inner = Inner()
    await run(tmp_path, inner, SessionRequest("session", "x", "c1/s0", context=items))
    contents = [item.content for item in inner.requests[0].context or ()]
    assert contents == ["# captain\n\n## Sessions\n\n- Review the plan: Looks fine.\n", None, None]


async def test_a_memory_that_cannot_be_read_at_the_end_is_free_for_the_next_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> object:
        raise OSError(5, "Input/output error")

    sessions, former = remembering_sessions(tmp_path, Inner()), agent_memory.MemoryFiles.texts
    await sessions.run(asked(), lambda _: None)
    monkeypatch.setattr(agent_memory.MemoryFiles, "texts", broken)
    with pytest.raises(OSError, match="Input/output error"):
        await sessions.run(asked(task="Again"), lambda _: None)
    monkeypatch.setattr(agent_memory.MemoryFiles, "texts", former)
    assert sorted(files(tmp_path)) == ["captain-001.md", "memory.md"]
    async with asyncio.timeout(PATIENCE):
        await sessions.run(asked(task="Once more"), lambda _: None)
