"""Agent calls whose answers are files, with references as values (docs/reference/vvm.md 7)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from machine.fakes import Reply
from machine.vvm_world import Vvm
from msgspec import structs

from prose_kernel.errors import ProviderError
from prose_kernel.machine.vvm.agent_calls import summary_of
from prose_kernel.models.digest_memory import DigestMemories
from prose_kernel.models.session_prompt import answered, assemble
from prose_kernel.runtime.events import SessionFinished
from prose_kernel.runtime.ports import SessionProgress, SessionRequest, SessionResult
from prose_kernel.runtime.session_options import Surroundings
from prose_kernel.storage.answer_files import AnswerFiles

RUN = "20260101-000000-9c0d1e"
BINDINGS = f".vvm/runs/{RUN}/bindings"
AGENT = "agent a()"

Act = Callable[[SessionRequest], SessionResult]


def wrote(request: SessionRequest, text: str, reply: str) -> SessionResult:
    """Return the output of a session with file tools: a file and a confirmation."""
    return structs.replace(
        answered(reply, provider="fake", origin="model", request=request, writes=True), text=text or None
    )


def confirmed(request: SessionRequest, summary: str) -> str:
    assert request.target is not None
    return f"Binding written: {request.target.name}\nPath: {request.target.location}\nSummary: {summary}\n"


class Acting:
    """A provider with scripted replies."""

    def __init__(self, *acts: Act) -> None:
        self.acts = list(acts)
        self.requests: list[SessionRequest] = []

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        self.requests.append(request)
        act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
        return act(request)


class Filed(Vvm):
    """A world whose agents' answers are files in a real directory."""

    def __init__(self, project: Path, *acts: Act, **more: Any) -> None:
        super().__init__(**more)
        self.project = project
        self.files = AnswerFiles(project, RUN, self.clock)  # type: ignore[assignment]
        memories = DigestMemories(Surroundings(str(project)), self.clock)
        self.acting = Acting(*acts)
        sessions = self.acting if acts else self.sessions
        self.vvm.host.ports = structs.replace(
            self.vvm.host.ports, sessions=sessions, memories=memories, answers=self.files
        )
        self.vvm._shared.host.listeners = (self.files, *self.vvm._shared.host.listeners)
        self.files.start("the program\n")

    def binding(self, number: int) -> str:
        return (self.project / BINDINGS / f"b{number:06d}.md").read_text()

    @property
    def log(self) -> str:
        return (self.project / ".vvm" / "runs" / RUN / "state.md").read_text()

    @property
    def rows(self) -> list[str]:
        return [line for line in self.log.splitlines() if line.startswith("| ")][1:]


def ref(number: int, summary: str) -> dict[str, str]:
    return {"ref": f"{BINDINGS}/b{number:06d}.md", "summary": summary, "mime": "text/markdown"}


# ---------------------------------------------------------------- answers


async def test_an_answer_is_a_file_and_its_value_refers_to_it(tmp_path: Path) -> None:
    w = Filed(tmp_path, lambda r: wrote(r, "# Five\n\nheadings\n", confirmed(r, "Five headings.")))
    assert await w.cell(AGENT, "outline = @a `x`(())", "outline") == ref(1, "Five headings.")
    assert w.binding(1) == "# Five\n\nheadings\n"
    assert w.rows == [f"| outline | {BINDINGS}/b000001.md | Five headings. |"]
    assert "] outline = @a (b000001)\n" in w.log


async def test_r4_the_reply_of_a_backend_without_file_tools_is_stored(tmp_path: Path) -> None:
    w = Filed(tmp_path, sessions_say={"x": "First. Second! Third? Fourth.\n\nmore\n"})
    assert await w.cell(AGENT, "x = @a `x`(())", "x") == ref(1, "First. Second! Third?")
    assert w.binding(1) == "First. Second! Third? Fourth.\n\nmore\n"


async def test_r3_a_malformed_confirmation_is_tolerated(tmp_path: Path) -> None:
    w = Filed(tmp_path, lambda r: wrote(r, "content", "I wrote it, have fun. Bye."))
    assert await w.cell(AGENT, "@a `x`(())") == ref(1, "I wrote it, have fun. Bye.")
    w = Filed(tmp_path / "2", lambda r: wrote(r, "content", ""))
    assert await w.cell(AGENT, "@a `x`(())") == ref(1, "content")


@pytest.mark.parametrize(
    ("written", "summary"),
    [
        ("One. Two. Three. Four.", "One. Two. Three."),
        ("Two\nlines here.", "Two lines here."),
        ("**Bold** end", "Bold** end"),
        ("x" * 600, "x" * 499 + "…"),
    ],
)
async def test_a_summary_is_bounded(tmp_path: Path, written: str, summary: str) -> None:
    w = Filed(tmp_path, lambda r: wrote(r, "content", confirmed(r, written)))
    assert await w.cell(AGENT, "@a `x`(())") == ref(1, summary)


async def test_a_session_that_writes_nothing_has_failed(tmp_path: Path) -> None:
    w = Filed(tmp_path, lambda r: wrote(r, "", confirmed(r, "I lied.")))
    value = await w.cell(AGENT, "x = @a `x`(())", "x")
    assert value == {
        "error": {
            "kind": "binding_failed",
            "message": "the session did not write its binding b000001",
            "data": {"path": f"{BINDINGS}/b000001.md"},
        }
    }
    assert w.rows == []
    assert "] x = @a (b000001) failed: binding_failed\n" in w.log


async def test_a_file_of_blanks_is_an_empty_one(tmp_path: Path) -> None:
    w = Filed(tmp_path, lambda r: wrote(r, " \n\n", confirmed(r, "x")))
    value = await w.cell(AGENT, "@a `x`(())")
    assert value["error"]["kind"] == "binding_failed"  # type: ignore[index,call-overload]


async def test_a4_a_missing_binding_is_asked_for_again_with_the_same_number(tmp_path: Path) -> None:
    def partial(request: SessionRequest) -> SessionResult:
        assert request.target is not None
        (tmp_path / request.target.location).write_text("half of it")
        raise ProviderError("broke off")

    def look(request: SessionRequest) -> SessionResult:
        assert request.target is not None
        assert not (tmp_path / request.target.location).exists()
        return wrote(request, "", "nothing")

    w = Filed(tmp_path, partial, look, lambda r: wrote(r, "whole", confirmed(r, "Done.")))
    assert await w.cell(AGENT, "x = @a `x`((), retry=2)", "x") == ref(1, "Done.")
    assert {r.target.name for r in w.acting.requests if r.target} == {"b000001"}
    assert w.binding(1) == "whole"


async def test_a_file_written_without_a_recorded_tool_call_is_accepted(tmp_path: Path) -> None:
    def act(request: SessionRequest) -> SessionResult:
        assert request.target is not None
        (tmp_path / request.target.location).write_text("by the session")
        return answered(confirmed(request, "Yes."), provider="fake", origin="scripted", request=request)

    w = Filed(tmp_path, act)
    before = (tmp_path / BINDINGS).stat().st_ino
    assert await w.cell(AGENT, "@a `x`(())") == ref(1, "Yes.")
    assert w.binding(1) == "by the session" and (tmp_path / BINDINGS).stat().st_ino == before


async def test_a_link_instead_of_a_binding_file_is_not_an_answer(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")

    def act(request: SessionRequest) -> SessionResult:
        assert request.target is not None
        (tmp_path / request.target.location).symlink_to(tmp_path / "secret")
        return wrote(request, "", confirmed(request, "Yes."))

    w = Filed(tmp_path, act)
    value = await w.cell(AGENT, "@a `x`(())")
    assert value["error"]["kind"] == "binding_failed"  # type: ignore[index,call-overload]


# ---------------------------------------------------------------- numbers and names


async def test_r5_a_call_that_is_not_all_of_an_assignment_has_no_name(tmp_path: Path) -> None:
    w = Filed(tmp_path, sessions_say={})
    await w.cell(AGENT, "@a `1`(())", "x = [@a `2`(())]", "y = @a `3`(())", "z = @a `4`(@a `5`(()))")
    assert [row.split(" | ")[0] for row in w.rows] == ["| _anon_001", "| _anon_002", "| y", "| _anon_003", "| z"]


async def test_r2_numbers_do_not_depend_on_the_order_of_completion(tmp_path: Path) -> None:
    texts: list[dict[str, str]] = []
    for turn, slow in enumerate(("1", "2")):
        replies = {slow: Reply("slow", after=50)}
        w = Filed(tmp_path / str(turn), sessions_say=replies)
        lines = (AGENT, "def f(n):", "  x = @a `{n}`(n)", "  return @a `more {n}`(x)", "pmap([1, 2], f)")
        await w.cell(*lines)
        texts.append({r.task: r.target.name for r in w.sessions.requests if r.target})
    assert texts[0] == texts[1] == {"1": "b000001", "2": "b000002", "more 1": "b000003", "more 2": "b000004"}


async def test_numbers_continue_from_cell_to_cell(tmp_path: Path) -> None:
    w = Filed(tmp_path, sessions_say={})
    await w.cell(AGENT, "@a `1`(())")
    await w.cell("@a `2`(())")
    assert [r.target.name for r in w.sessions.requests if r.target] == ["b000001", "b000002"]


# ---------------------------------------------------------------- references


async def test_references_are_passed_on_as_they_are(tmp_path: Path) -> None:
    w = Filed(tmp_path, sessions_say={"1": "The answer. It is long."})
    await w.cell(AGENT, "x = @a `1`(())", "@a `About {}`(x)", "@a `In {x}`([x])")
    _, direct, nested = w.sessions.requests
    place = f"{BINDINGS}/b000001.md"
    assert direct.task == f"About [ref: {place}]\nsummary: The answer. It is long."
    assert direct.given is not None and nested.given is not None
    assert json.loads(direct.given.text) == ref(1, "The answer. It is long.")
    assert direct.given.references == nested.given.references == (place,)
    assert direct.given.readable == BINDINGS
    assert (
        "## Ref Reading Protocol" in assemble(nested).text and f"- You may read {BINDINGS}/**" in assemble(nested).text
    )


async def test_r8_text_operations_on_refs_raise(tmp_path: Path) -> None:
    w = Filed(tmp_path)
    await w.cell(AGENT, "x = @a `1`(())")
    assert [(await w.fails(text)).code for text in ("len(x)", 'x + "a"', "x.text")] == ["R215", "R205", "R209"]


async def test_a_ref_to_a_deleted_file_is_passed_on(tmp_path: Path) -> None:
    w = Filed(tmp_path)
    await w.cell(AGENT, "x = @a `1`(())")
    (tmp_path / BINDINGS / "b000001.md").unlink()
    assert (await w.cell("@a `2`(x)"))["ref"] == f"{BINDINGS}/b000002.md"  # type: ignore[index,call-overload]


# ---------------------------------------------------------------- what a session may do


async def test_r9_without_permissions_a_session_writes_only_its_binding(tmp_path: Path) -> None:
    w = Filed(tmp_path)
    await w.cell(AGENT, "@a `1`(())", 'agent b(permissions=perm(write=["out/**"]))', "@b `2`(())")
    assert w.sessions.requests[0].permissions == {"write": ()}
    assert w.sessions.requests[1].permissions["write"] == ("out/**",)


# ---------------------------------------------------------------- memory


PATCH = '```vvm-memory\n{"digest": "kept"}\n```\n'
REMEMBERING = 'agent m(memory={scope: "project", key: "k"})'


async def test_m6_a_patch_follows_the_confirmation(tmp_path: Path) -> None:
    w = Filed(tmp_path, lambda r: wrote(r, "content", confirmed(r, "Done.") + PATCH))
    assert await w.cell(REMEMBERING, "@m `x`(())") == ref(1, "Done.")
    assert w.binding(1) == "content"
    assert (tmp_path / ".vvm/memory/k/digest.md").read_text() == "kept"


async def test_m6_a_patch_in_the_binding_is_taken_out_and_counts(tmp_path: Path) -> None:
    w = Filed(tmp_path, lambda r: wrote(r, f"content\n\n{PATCH}", confirmed(r, "Done.")))
    assert await w.cell(REMEMBERING, "@m `x`(())") == ref(1, "Done.")
    assert w.binding(1) == "content"
    assert (tmp_path / ".vvm/memory/k/digest.md").read_text() == "kept"


async def test_m5_m6_patches_in_both_places_are_discarded(tmp_path: Path) -> None:
    w = Filed(tmp_path, lambda r: wrote(r, f"content\n{PATCH}", confirmed(r, "Done.") + PATCH))
    await w.cell(REMEMBERING, "@m `x`(())")
    assert w.binding(1) == "content"
    assert not (tmp_path / ".vvm/memory/k/digest.md").exists()


# ---------------------------------------------------------------- what goes wrong outside


async def test_a_directory_that_cannot_be_written_is_an_error_value(tmp_path: Path) -> None:
    (tmp_path / ".vvm").write_text("in the way")
    w = Filed(tmp_path)
    value = await w.cell(AGENT, "@a `x`((), retry=3)")
    assert value["error"]["kind"] == "binding_failed"  # type: ignore[index,call-overload]
    assert value["error"]["message"].startswith("the run directory '.vvm/runs' cannot be written")  # type: ignore[index,call-overload]
    assert w.sessions.requests == []


async def test_a_call_that_could_not_start_has_a_number_and_a_log_line(tmp_path: Path) -> None:
    w = Filed(tmp_path)
    (tmp_path / ".vvm/memory/k/digest.md").mkdir(parents=True)
    await w.cell('agent a(memory={scope: "project", key: "k"})', "x = @a `one`(())", "y = @{} `two`(())")
    assert w.value("x")["error"]["kind"] == "rejected" and w.value("y")["ref"].endswith("b000002.md")
    assert "x = @a (b000001) failed: rejected\n" in w.log
    messages = [event.error.message for event in w.events if isinstance(event, SessionFinished) and event.error]
    assert messages == ["the memory 'k' cannot be used: digest.md is a directory"]


def test_a_summary_is_found_quickly_in_a_million_lines() -> None:
    reply = f"Binding written: b000001\n{'> ' * 100_000}{chr(10) * 1_000_000}Summary: Done."
    assert summary_of(SessionResult(None, "", "p", "o", {}, reply=reply)) == "Done."
