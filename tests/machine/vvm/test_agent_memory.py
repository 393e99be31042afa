"""Agent calls with memory: the prelude, the patch channel, and the order of access (docs/reference/vvm.md 6.6)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from machine.fakes import Reply
from machine.vvm_world import Vvm
from msgspec import structs

from prose_kernel.machine.vvm.memory_patches import UNTERMINATED, split
from prose_kernel.models.digest_memory import DigestMemories
from prose_kernel.runtime.events import Warned
from prose_kernel.runtime.session_options import Surroundings

AGENT = 'agent a(memory={scope: "project", key: "team/a:1"})'
HERE = ".vvm/memory/team%2Fa%3A1"


def world(tmp_path: Path, **more: Any) -> Vvm:
    w = Vvm(**more)
    memories = DigestMemories(Surroundings(str(tmp_path), environment={"HOME": str(tmp_path / "home")}), w.clock)
    w.vvm.host.ports = structs.replace(w.vvm.host.ports, memories=memories)
    return w


def patched(text: str, **patch: Any) -> str:
    return f"{text}\n```vvm-memory\n{json.dumps(patch)}\n```"


def digest(tmp_path: Path) -> str:
    return (tmp_path / HERE / "digest.md").read_text()


# ---------------------------------------------------------------- one call after the other


async def test_facts_retained_by_one_call_reach_the_next(tmp_path: Path) -> None:
    w = world(tmp_path, sessions_say={"one": patched("Noted.", digest="Likes tea.", retain=["W tea"])})
    assert await w.cell(AGENT, "x = @a `one`(())", "@a `two`(())", "x") == "Noted."
    first, second = w.sessions.requests
    assert first.task == "one" and "### Digest\n(empty)\n" in first.prelude
    assert second.task == "two" and "### Digest\nLikes tea.\n### Retained facts\n- W tea\n" in second.prelude


async def test_identity_is_scope_and_key_not_the_agents_name(tmp_path: Path) -> None:
    w = world(tmp_path, sessions_say={"one": patched("x", digest="shared")})
    await w.cell(
        AGENT,
        'agent b(memory={scope: "project", key: "team/a:1"})',
        "@a `one`(())",
        "@b `two`(())",
        '@b.with(memory={key: "other"}) `three`(())',
    )
    assert ["shared" in r.prelude for r in w.sessions.requests] == [False, True, False]


async def test_fresh_neither_reads_nor_writes(tmp_path: Path) -> None:
    w = world(tmp_path, sessions_say={"x": patched("x", digest="lost")})
    assert await w.cell(AGENT, '@a `x`((), memory_mode="fresh")') == "x"
    assert w.sessions.requests[0].prelude == ""
    assert not (tmp_path / ".vvm").exists()


async def test_dry_run_reads_and_does_not_write(tmp_path: Path) -> None:
    w = world(tmp_path, sessions_say={"one": patched("x", digest="kept"), "two": patched("y", digest="lost")})
    assert await w.cell(AGENT, "@a `one`(())", '@a `two`((), memory_mode="dry_run")') == "y"
    assert "### Digest\nkept\n" in w.sessions.requests[1].prelude
    assert "Updates are ignored for this call." in w.sessions.requests[1].prelude
    assert digest(tmp_path) == "kept"


async def test_a_memory_mode_without_memory_has_no_effect(tmp_path: Path) -> None:
    w = world(tmp_path, sessions_say={"x": patched("x", digest="lost")})
    assert await w.cell("agent b()", '@b `x`((), memory_mode="dry_run")') == "x"
    assert w.sessions.requests[0].prelude == ""
    assert [event for event in w.events if isinstance(event, Warned)] == []


async def test_a_failed_call_writes_nothing_and_frees_the_memory(tmp_path: Path) -> None:
    w = world(tmp_path, sessions_say={"bad": Reply(fails="no"), "good": patched("x", digest="kept")})
    await w.cell(AGENT, "@a `bad`((), retry=2)")
    assert [p.name for p in (tmp_path / HERE).iterdir() if p.name != "lock"] == []
    await w.cell("@a `good`(())")
    assert digest(tmp_path) == "kept"


async def test_an_interrupted_call_frees_the_memory(tmp_path: Path) -> None:
    w = world(tmp_path, sessions_say={"slow": Reply("x", after=100), "good": patched("x", digest="kept")})
    running = asyncio.ensure_future(w.cell(AGENT, "@a `slow`(())"))
    while not w.sessions.requests:
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    with FileLock(tmp_path / HERE / "lock", timeout=0):
        pass
    await w.cell(AGENT, "@a `good`(())")
    assert digest(tmp_path) == "kept"


class Announced:
    """A memory port that reports each memory it opens."""

    def __init__(self, inner: Any) -> None:
        self.prelude, self._open = inner.prelude, inner.open
        self.opened = asyncio.Event()

    async def open(self, *asked: Any) -> Any:
        opened = await self._open(*asked)
        self.opened.set()
        return opened


async def test_a_memory_is_freed_when_its_call_is_interrupted_before_its_turn(tmp_path: Path) -> None:
    w = world(tmp_path, listening=False)
    memories = Announced(w.vvm.host.ports.memories)
    w.vvm.host.ports = structs.replace(w.vvm.host.ports, memories=memories)
    f = ("def f(n):", "  if n == 1:", "    return @a `one`(())", "  while true:", "    n = n + 1")
    running = asyncio.ensure_future(w.cell(AGENT, *f, "pmap([1, 2], f)"))
    await memories.opened.wait()  # the other branch keeps computing and does not yield
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with asyncio.timeout(30):
        assert await w.cell("@a `two`(())") == "<two>"


async def test_m3_the_memory_is_locked_through_all_attempts(tmp_path: Path) -> None:
    w = world(tmp_path)
    seen: list[bool] = []

    async def run(request: Any, on_progress: Any) -> Any:
        probe = FileLock(tmp_path / HERE / "lock")
        try:
            probe.acquire(blocking=False)
            probe.release()
            seen.append(False)
        except TimeoutError:
            seen.append(True)
        return await w.sessions.run(request, on_progress)

    class Probing:
        def __init__(self) -> None:
            self.run = run

    w.sessions_say["x"] = [Reply(fails="1"), Reply(fails="2"), patched("x", digest="3")]
    w.vvm.host.ports = structs.replace(w.vvm.host.ports, sessions=Probing())
    await w.cell(AGENT, '@a `x`((), retry=2, backoff="fixed")')
    assert seen == [True, True, True]
    assert digest(tmp_path) == "3"
    assert len({r.prelude for r in w.sessions.requests}) == 1


async def test_m4_pmap_over_one_key_serialises_in_order(tmp_path: Path) -> None:
    replies = {str(n): Reply(patched(str(n), retain=[f"fact {n}"]), after=20.0 - n) for n in range(1, 5)}
    w = world(tmp_path, sessions_say=replies)
    value = await w.cell(AGENT, "def f(n):", "  return @a `{n}`(())", "pmap([1, 2, 3, 4], f)")
    assert value == ["1", "2", "3", "4"]
    assert w.sessions.peak == 1
    entries = (tmp_path / HERE / "ledger.jsonl").read_text().splitlines()
    assert [json.loads(entry)["retain"] for entry in entries] == [[f"fact {n}"] for n in range(1, 5)]


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_m4_a_session_limit_does_not_block_calls_with_memory(tmp_path: Path, concurrency: int) -> None:
    w = world(tmp_path, concurrency=concurrency)
    value = await w.cell(
        AGENT, "agent b()", "def f(n):", "  x = @a `{n}`(())", "  return @b `{n}b`(())", "pmap([1, 2, 3], f)"
    )
    assert value == ["<1b>", "<2b>", "<3b>"]


async def test_m4_a_memory_held_by_another_process_is_locked(tmp_path: Path) -> None:
    (tmp_path / HERE).mkdir(parents=True)
    w = world(tmp_path)
    with FileLock(tmp_path / HERE / "lock"):
        value = await w.cell(AGENT, "@a `x`((), retry=5)")
    assert value == {
        "error": {
            "kind": "locked",
            "message": "the memory 'team/a:1' is in use by another process",
            "data": {"key": "team/a:1"},
        }
    }
    assert 10 <= w.clock.time < 10.2 and w.sessions.requests == []
    assert await w.cell("@a `x`(())") == "<x>"


@pytest.mark.parametrize("damage", ["binary", "link", "directory"])
async def test_an_unusable_memory_is_an_error_value(tmp_path: Path, damage: str) -> None:
    place = tmp_path / HERE / "digest.md"
    place.parent.mkdir(parents=True)
    match damage:
        case "binary":
            place.write_bytes(b"\0\1")
        case "link":
            place.symlink_to(tmp_path / "other")
        case _:
            place.mkdir()
    w = world(tmp_path)
    value = await w.cell(AGENT, "@a `x`((), retry=5)")
    assert value["error"]["kind"] == "rejected" and value["error"]["data"] == {"permanent": True}  # type: ignore[index,call-overload]
    assert value["error"]["message"].startswith("the memory 'team/a:1' cannot be used: digest.md is ")  # type: ignore[index,call-overload]
    assert w.sessions.requests == []


async def test_without_a_project_directory_project_memory_is_rejected(tmp_path: Path) -> None:
    value = await world(tmp_path / "gone").cell(AGENT, "@a `x`(())")
    assert value["error"]["kind"] == "rejected"  # type: ignore[index,call-overload]


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("Hm.\n```vvm-memory\nnonsense\n```", "not JSON"),
        ('Hm.\n```vvm-memory\n{"digest": "never closed"}\n', "not JSON"),
        ("Hm.\n```vvm-memory\n{}\n```\n```vvm-memory\n{}\n```", "several blocks"),
        (patched("Hm.", digest="password=hunter2"), "secret: assignment"),
    ],
)
async def test_m5_m8_a_bad_patch_is_reported_and_the_answer_is_kept(tmp_path: Path, reply: str, why: str) -> None:
    w = world(tmp_path, sessions_say={"x": reply})
    assert await w.cell(AGENT, "@a `x`(())") == "Hm."
    (warned,) = w.of(Warned)
    assert (warned.code, warned.message) == ("V710", f"a memory update of @a is discarded: {why}")
    assert not (tmp_path / HERE / "digest.md").exists() and not (tmp_path / HERE / "ledger.jsonl").exists()
    meta = json.loads((tmp_path / HERE / "meta.json").read_text())
    assert meta["last_warning"] == {"code": why, "at": "2026-01-01T00:00:00Z"}


# ---------------------------------------------------------------- the patch channel


@pytest.mark.parametrize(
    ("reply", "visible", "patches"),
    [
        ("plain", "plain", ()),
        ("a\n```vvm-memory\n{}\n```\n", "a", ("{}\n",)),
        ("a  \n\n\n~~~ vvm-memory  \n{}\n~~~\n\n", "a", ("{}\n",)),
        ("```vvm-memory\n{}\n```\nafter  \n", "after  \n", ("{}\n",)),
        ("a\n```vvm-memory\n1\n```\nb\n```vvm-memory\n2\n```", "a\nb", ("1\n", "2\n")),
        ("a\n````vvm-memory\n```\nx\n```\n````\n", "a", ("```\nx\n```\n",)),
        ("a\r\n```vvm-memory\r\n{}\r\n```\r\n", "a", ("{}\r\n",)),
        ("a\n```vvm-memory\n{}", "a", (UNTERMINATED,)),
        ("a\n```vvm-memory", "a", (UNTERMINATED,)),
        ("a\n   ```vvm-memory\n{}\n   ```", "a", ("{}\n",)),
        # no patches: another info string, code by indentation, a word of text
        ("a\n```vvm-memory x\n{}\n```\n", None, ()),
        ("a\n```json vvm-memory\n{}\n```\n", None, ()),
        ("a\n    ```vvm-memory\n{}\n", None, ()),
        ("write ```vvm-memory``` blocks\n", None, ()),
        # an example in another block; a fence that is never closed hides nothing
        ("a\n````\n```vvm-memory\n{}\n```\n````\n", None, ()),
        ("a\n```python\nx\n```vvm-memory\n{}\n~~~\n", "a\n```python\nx", (UNTERMINATED,)),
    ],
)
def test_patches_are_taken_out(reply: str, visible: str | None, patches: tuple[str, ...]) -> None:
    assert split(reply) == (reply if visible is None else visible, patches)


def test_patches_are_found_quickly_in_a_million_fences() -> None:
    reply = "```x\n" * 200_000 + "```vvm-memory\n{}\n"
    assert split(reply).patches == (UNTERMINATED,)
    assert split(f"``` a{' ' * 1_000_000}b\n```\n```vvm-memory\n{{}}\n```").patches == ("{}\n",)
