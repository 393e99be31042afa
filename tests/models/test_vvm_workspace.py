"""Agents of VVM in a run as the front ends create it: services, state modes, recordings, and the text of `%prompt`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from models.people import ScriptedPerson

from prose_kernel.errors import RunError
from prose_kernel.models.session_prompt import assemble
from prose_kernel.runs import languages
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.events import Event, SessionStarted
from prose_kernel.storage.answer_files import AnswerFiles

VVM = languages.LANGUAGES["vvm"]
SCRIPT = {
    "Note": 'Noted. Really.\n```vvm-memory\n{"digest": "tea", "retain": ["W tea"]}\n```\n',
    "About": "About it.",
    "Slow": {"reply": "late", "delay": "1h"},
}
AGENTS = 'agent a(memory={scope: "project", key: "k"}, prompt="P", model="small")\nagent b()\n'


def workspace(cwd: Path, *, person: ScriptedPerson | None = None, **more: Any) -> Workspace:
    (cwd / "script.yaml").write_text(yaml.safe_dump({"sessions": SCRIPT}))
    start = more.pop("start", None) or Start(cwd, language=more.pop("language", VVM))
    listeners = more.pop("listeners", ())
    settings = Settings().changed(**{"provider": "scripted", "script": "script.yaml", **more})
    return Workspace(settings, start, asker=person or ScriptedPerson(available=False), listeners=listeners)


def log(cwd: Path, run_id: str | None) -> str:
    return (cwd / ".vvm" / "runs" / str(run_id) / "state.md").read_text()


async def test_a_cell_in_context_leaves_its_journal_and_memory(tmp_path: Path) -> None:
    here = workspace(tmp_path)
    try:
        assert await here.execute(AGENTS + "x = @a `Note`(())\nx") == "Noted. Really."
        assert here.opened.directory == tmp_path / ".vvm" / "runs" / str(here.opened.id)
        assert [path.name for path in here.opened.directory.iterdir()] == ["journal.jsonl"]
        assert "✅ x bound" in (here.opened.transcript or "")
    finally:
        await here.close()
    assert sorted(path.name for path in (tmp_path / ".vvm").iterdir()) == [".gitignore", "memory", "runs"]


async def test_an_answer_in_a_file_is_read_back_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, reads = AnswerFiles.read, []
    monkeypatch.setattr(AnswerFiles, "read", lambda self, target: reads.append(read(self, target)) or reads[-1])
    here = workspace(tmp_path, vvm_state="filesystem")
    try:
        await here.execute(AGENTS + "x = @b `About`(())\ny = @b `About`(1)\n")
    finally:
        await here.close()
    assert reads == [None, "About it."] * 2  # before the write, and to compare the file with the recording


async def test_a23_the_files_of_a_notebook_are_those_of_its_run(tmp_path: Path) -> None:
    here = workspace(tmp_path, vvm_state="filesystem")
    try:
        value = await here.execute(AGENTS + "x = @b `About`(())\nx")
        first = here.opened.id
        assert first is not None and value["ref"] == f".vvm/runs/{first}/bindings/b000001.md"  # type: ignore[index,call-overload]
        await here.execute("@b `About`(x)")
        assert here.opened.id == first and here.opened.directory == tmp_path / ".vvm" / "runs" / first
        assert here.opened.transcript is None
        assert "Status: running" in log(tmp_path, first)
    finally:
        await here.close()
    text = log(tmp_path, first)
    assert "Status: completed" in text
    assert "| x | " in text and "| _anon_001 | " in text and "b000002.md" in text
    assert (
        tmp_path / ".vvm/runs" / first / "program.vvm"
    ).read_text() == AGENTS + "x = @b `About`(())\nx\n\n@b `About`(x)\n"


async def test_a23_together_with_openprose_there_is_one_run_id(tmp_path: Path) -> None:
    here = workspace(tmp_path, vvm_state="filesystem", language=languages.default())
    try:
        await here.execute("let a = 1")
        value = await here.execute(AGENTS + "@b `About`(a)", language=VVM)
        await here.execute('let c = session "About"')
        assert value["ref"] == f".vvm/runs/{here.opened.id}/bindings/b000001.md"  # type: ignore[index,call-overload]
        assert (tmp_path / ".prose" / "runs" / str(here.opened.id)).is_dir()
        program = (tmp_path / ".vvm/runs" / str(here.opened.id) / "program.vvm").read_text()
        assert "let" not in program and "agent b()" in program
    finally:
        await here.close()


async def test_a_file_has_its_memory_and_files_in_its_own_directory(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    text = AGENTS + "x = @a `Note`(())\nexport x\n"
    (tmp_path / "reports" / "weekly.vvm").write_text(text)
    start = Start(tmp_path, "reports/weekly.vvm", notebook=False)
    here = workspace(tmp_path, start=start, vvm_state="filesystem")
    try:
        value = await here.execute(text, "reports/weekly.vvm")
        run_id = here.opened.id
    finally:
        await here.close()
    assert value == {
        "x": {"ref": f".vvm/runs/{run_id}/bindings/b000001.md", "summary": "Noted. Really.", "mime": "text/markdown"}
    }
    reports = tmp_path / "reports"
    assert (reports / ".vvm/memory/k/digest.md").read_text() == "tea"
    assert (reports / ".vvm/runs" / str(run_id) / "bindings/b000001.md").read_text() == "Noted. Really."
    assert "Program: reports/weekly.vvm\n" in log(reports, run_id) and "Completed with 1 export" in log(reports, run_id)
    assert not (tmp_path / ".vvm").exists()


async def test_a_failed_run_is_logged(tmp_path: Path) -> None:
    here = workspace(tmp_path, vvm_state="filesystem")
    with pytest.raises(RunError) as failed:
        await here.execute(AGENTS + 'x = @b `About`(())\nraise "no more"')
    run_id = here.opened.id
    await here.close(failed.value)
    assert "Status: failed" in log(tmp_path, run_id) and "Failed: no more" in log(tmp_path, run_id)


async def test_s10_an_interrupt_is_not_an_error_value_and_frees_the_memory(tmp_path: Path) -> None:
    started = asyncio.Event()

    def listen(event: Event) -> None:
        if isinstance(event, SessionStarted):
            started.set()

    here = workspace(tmp_path, listeners=[listen])
    try:
        text = AGENTS + "try:\n  x = @a `Slow`(())\nexcept as e:\n  @b `About`(())\nfinally:\n  @b `About`(())\n"
        running = asyncio.ensure_future(here.execute(text))
        await started.wait()
        started.clear()
        here.interrupt()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not started.is_set()  # neither `except` nor `finally` made a request
        assert await here.execute("@a `Note`(())") == "Noted. Really."
    finally:
        await here.close()


# ---------------------------------------------------------------- previews


@pytest.mark.parametrize("state", ["in-context", "filesystem"])
async def test_the_preview_equals_the_request(tmp_path: Path, state: str) -> None:
    sent: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, SessionStarted):
            sent.append(assemble(event.request).text)

    here = workspace(tmp_path, vvm_state=state, listeners=[listen])
    text = '@a.with(prompt="Q") `Note {}`({n: 1}, name="first")\n@b `About`("this")\n'
    try:
        await here.execute(AGENTS + "@a `Note`(())")
        sent.clear()
        before = sorted(str(path) for path in tmp_path.rglob("*"))
        found = await here.preview(here.compile(text))
        assert sorted(str(path) for path in tmp_path.rglob("*")) == before
        shown = [assemble(one.request).text for one in found if one.request is not None]
        described = [here.opened.services.describe(one.request).text for one in found if one.request is not None]
        await here.execute(text)
        assert shown == sent and len(sent) == 2
        assert "### Digest\ntea\n" in shown[0] and ("## Binding Contract" in shown[0]) == (state == "filesystem")
        assert "System prompt:\nQ" in described[0] and described[0].startswith("call c2/1/s0 · label first · agent a")
        if state == "filesystem":
            assert str(here.opened.id) not in described[0]  # the preview is the same in every run
    finally:
        await here.close()


async def test_a_dry_run_shows_and_keeps_no_memory(tmp_path: Path) -> None:
    person = ScriptedPerson(available=False)
    here = workspace(tmp_path, provider="dry-run", person=person)
    try:
        assert await here.execute(AGENTS + "@a `Note`(())") == "⟦dry-run c1/1/s0⟧"
    finally:
        await here.close()
    assert not (tmp_path / ".vvm").exists()


async def test_a23_a_replay_without_a_record_ends_the_run(tmp_path: Path) -> None:
    here = workspace(tmp_path, provider="replay", script=None)
    try:
        with pytest.raises(RunError, match="nothing is recorded") as failed:
            await here.execute(AGENTS + "try:\n  @b `About`((), retry=2)\nexcept as e:\n  pass")
        assert failed.value.unanswered
    finally:
        await here.close()


async def test_settings_of_memory_reach_it(tmp_path: Path) -> None:
    here = workspace(tmp_path, vvm_memory_digest=2, vvm_input=3)
    try:
        await here.execute(AGENTS + "@a `Note`(())")
        assert not (tmp_path / ".vvm/memory/k/digest.md").exists()
        meta = json.loads((tmp_path / ".vvm/memory/k/meta.json").read_text())
        assert meta["last_warning"]["code"] == "digest too long"
        value = await here.execute('@b `About`("long")')
        assert value["error"]["kind"] == "rejected"  # type: ignore[index,call-overload]
    finally:
        await here.close()
