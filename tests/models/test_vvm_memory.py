"""Memories of digest and ledger, on real directories and against real processes (docs/reference/vvm.md 6.6)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from machine.fakes import FakeClock

from prose_kernel.errors import MemoryLocked, ProviderError
from prose_kernel.models.digest_memory import DigestMemories
from prose_kernel.models.memory_directory import Memories
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.ports import MemoryBinding, MemoryMode
from prose_kernel.runtime.session_options import MemoryLimits, Surroundings

BINDING = MemoryBinding("project", "team/a:1", "team%2Fa%3A1")
HERE = ".vvm/memory/team%2Fa%3A1"


def memories(cwd: Path, clock: Any = None, **facts: Any) -> DigestMemories:
    home = facts.pop("home", cwd / "home")
    where = Surroundings(str(cwd), environment={"HOME": str(home)})
    return DigestMemories(where, clock or FakeClock(), **facts)


async def call(
    of: DigestMemories, *patches: str, mode: MemoryMode = "continue", binding: MemoryBinding = BINDING
) -> tuple[str, str | None]:
    """Make one call; return its memory, and the reason for a discarded patch."""
    memory = await of.open(binding, mode)
    try:
        return memory.prelude, await memory.keep(patches)
    finally:
        memory.close()


def patch(**facts: Any) -> str:
    return json.dumps(facts)


def files(cwd: Path, at: str = HERE) -> dict[str, str]:
    place = cwd / at
    return {entry.name: entry.read_text() for entry in sorted(place.iterdir()) if entry.name != "lock"}


def ledger(cwd: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (cwd / HERE / "ledger.jsonl").read_text().splitlines()]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The directory of a memory that exists."""
    (tmp_path / HERE).mkdir(parents=True)
    return tmp_path


# ---------------------------------------------------------------- passed facts and kept facts


async def test_a_first_call_gets_an_empty_memory(tmp_path: Path) -> None:
    prelude, why = await call(memories(tmp_path))
    assert why is None
    assert prelude == (
        "## Memory Context\nscope: project   key: team/a:1\n### Digest\n(empty)\n### Retained facts\n(none)\n"
        "### Memory Update Protocol\n"
        "You may end your reply with ONE fenced block tagged vvm-memory holding a JSON object:\n"
        '"digest" (string, replaces the whole digest) and/or "retain" (list of short factual strings).\n'
        "Never include credentials or secrets.\n---"
    )
    assert [*files(tmp_path)] == ["meta.json"]  # the call had nothing to keep


async def test_a_patch_is_passed_to_the_next_call(tmp_path: Path) -> None:
    of = memories(tmp_path)
    await call(of, patch(digest="Likes tea.\n", retain=["W tea is hot", "N @Lee: send figures"]))
    prelude, _ = await call(of)
    assert "### Digest\nLikes tea.\n### Retained facts\n- W tea is hot\n- N @Lee: send figures\n###" in prelude
    assert ledger(tmp_path) == [
        {"ts": "2026-01-01T00:00:00Z", "digest": "Likes tea.\n", "retain": ["W tea is hot", "N @Lee: send figures"]}
    ]
    assert files(tmp_path)["digest.md"] == "Likes tea.\n"


async def test_the_digest_is_replaced_and_can_be_cleared_and_the_ledger_grows(tmp_path: Path) -> None:
    of = memories(tmp_path)
    await call(of, patch(digest="one", retain=["a"]))
    await call(of, patch(retain=["b"]))
    assert files(tmp_path)["digest.md"] == "one"
    await call(of, patch(digest=""))
    assert files(tmp_path)["digest.md"] == ""
    assert [sorted(entry) for entry in ledger(tmp_path)] == [
        ["digest", "retain", "ts"],
        ["retain", "ts"],
        ["digest", "ts"],
    ]
    assert "### Digest\n(empty)\n### Retained facts\n- a\n- b\n" in (await call(of))[0]


async def test_an_empty_object_writes_nothing(tmp_path: Path) -> None:
    assert (await call(memories(tmp_path), "{}"))[1] is None
    assert [*files(tmp_path)] == ["meta.json"]


async def test_meta_describes_the_last_use(tmp_path: Path) -> None:
    clock = FakeClock()
    of = memories(tmp_path, clock)
    await call(of)
    clock.time = 90
    await call(of, "nonsense")
    assert json.loads(files(tmp_path)["meta.json"]) == {
        "schema_version": 1,
        "created_at": "2026-01-01T00:00:00Z",
        "last_used_at": "2026-01-01T00:01:30Z",
        "last_mode": "continue",
        "last_warning": {"code": "not JSON", "at": "2026-01-01T00:01:30Z"},
    }


async def test_a_dry_run_reads_memory_and_writes_nothing(tmp_path: Path) -> None:
    prelude, why = await call(memories(tmp_path), patch(digest="x"), mode="dry_run")
    assert prelude.endswith("Never include credentials or secrets. Updates are ignored for this call.\n---")
    assert why is None
    assert not (tmp_path / ".vvm").exists()
    await call(memories(tmp_path), patch(digest="kept"))
    before = files(tmp_path)
    prelude, _ = await call(memories(tmp_path), patch(digest="x"), mode="dry_run")
    assert "### Digest\nkept\n" in prelude
    assert files(tmp_path) == before


async def test_inspecting_a_memory_changes_no_file(tmp_path: Path) -> None:
    of = memories(tmp_path)
    assert "(empty)" in of.prelude(BINDING, "continue")
    assert not (tmp_path / ".vvm").exists()
    await call(of, patch(digest="kept"))
    assert of.prelude(BINDING, "continue") == (await call(of))[0]


async def test_without_an_answer_nothing_is_kept(tmp_path: Path) -> None:
    prelude, _ = await call(memories(tmp_path, idle=True), patch(digest="x"))
    assert "Updates are ignored" not in prelude
    assert not (tmp_path / ".vvm").exists()


# ---------------------------------------------------------------- places


@pytest.mark.parametrize(
    ("binding", "place"),
    [
        (MemoryBinding("project", "k", "k"), "work/.vvm/memory/k"),
        (MemoryBinding("user", "k", "k"), "home/.vvm/memory/k"),
        (MemoryBinding("path", "k", "k", "shared/notes"), "work/shared/notes/k"),
        (MemoryBinding("path", "k", "k", "~/notes"), "home/notes/k"),
    ],
)
async def test_m1_the_directory_of_a_memory(tmp_path: Path, binding: MemoryBinding, place: str) -> None:
    (tmp_path / "work").mkdir()
    of = memories(tmp_path / "work", home=tmp_path / "home")
    await call(of, patch(digest="x"), binding=binding)
    assert (tmp_path / place / "digest.md").read_text() == "x"


async def test_r10_the_memory_directory_is_ignored_by_git(tmp_path: Path) -> None:
    await call(memories(tmp_path))
    assert (tmp_path / ".vvm" / ".gitignore").read_text() == "*\n"


async def test_without_a_project_directory_project_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="the project directory does not exist"):
        await call(memories(tmp_path / "gone"))


# ---------------------------------------------------------------- invalid patches


@pytest.mark.parametrize(
    ("patches", "why"),
    [
        (["{}", "{}"], "several blocks"),
        (["{"], "not JSON"),
        (["[" * 100_000], "not JSON"),
        (["[]"], "not an object"),
        ([patch(digest=1)], "digest is not a string"),
        ([patch(digest=None)], "digest is not a string"),
        ([patch(retain="x")], "retain is not a list of strings"),
        ([patch(digest="fine", retain=[1])], "retain is not a list of strings"),
        ([patch(digest="x" * 16_385)], "digest too long"),
        ([patch(digest="ä" * 8_193)], "digest too long"),
        ([patch(retain=["x"] * 33)], "retain too long"),
        ([patch(retain=["x" * 1_025])], "retain too long"),
        ([patch(digest="a\0b")], "not text"),
        ([patch(digest="fine", retain=["a\0b"])], "not text"),
    ],
)
async def test_m5_m7_an_invalid_patch_is_discarded_whole(tmp_path: Path, patches: Sequence[str], why: str) -> None:
    of = memories(tmp_path)
    await call(of, patch(digest="before"))
    before = files(tmp_path)
    assert (await call(of, *patches))[1] == why
    after = files(tmp_path)
    assert (after["digest.md"], after["ledger.jsonl"]) == (before["digest.md"], before["ledger.jsonl"])


async def test_m5_unknown_keys_are_ignored_with_a_warning(tmp_path: Path) -> None:
    assert (await call(memories(tmp_path), patch(digest="x", mood="good")))[1] == "unknown keys"
    assert files(tmp_path)["digest.md"] == "x"


async def test_m7_a_patch_of_exactly_the_limit_is_kept(tmp_path: Path) -> None:
    assert (await call(memories(tmp_path), patch(digest="x" * 16_384, retain=["y" * 1_024] * 32)))[1] is None


async def test_m7_limits_can_be_set(tmp_path: Path) -> None:
    of = memories(tmp_path, limits=MemoryLimits(digest=3, items=1, item=2, facts=1, facts_size=10))
    assert (await call(of, patch(digest="long")))[1] == "digest too long"
    assert (await call(of, patch(retain=["a", "b"])))[1] == "retain too long"
    await call(of, patch(retain=["a"]))
    await call(of, patch(retain=["b"]))
    assert "### Retained facts\n- b\n###" in (await call(of))[0]


SECRETS = {
    "private-key": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjE=\n",
    "token": "use ghp_" + "a1B2" * 9,
    "bearer-token": "send Authorization: Bearer abcdef0123456789",
    "assignment": "DB_PASSWORD=hunter2",
}


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize("where", ["digest", "retain"])
async def test_m8_a_patch_with_a_secret_is_discarded_and_never_passed_on(tmp_path: Path, kind: str, where: str) -> None:
    text = SECRETS[kind]
    _, why = await call(
        memories(tmp_path), patch(**({"digest": text} if where == "digest" else {"retain": ["a", text]}))
    )
    assert why == f"secret: {kind}"
    assert [*files(tmp_path)] == ["meta.json"]
    assert text not in files(tmp_path)["meta.json"]


@pytest.mark.parametrize(
    "text",
    ["AKIA" + "A1B2" * 4, "sk-" + "a1b2" * 8, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijk", "api_key: k3y-v4lue!",
     'the "token": "abc123def"', "secret = 's3cr3t'", '{"api_key": "correcthorse"}', "password := `letmein`",
     "gsk_" + "a1B2" * 8],
)  # fmt: skip
async def test_m8_more_secrets(tmp_path: Path, text: str) -> None:
    _, why = await call(memories(tmp_path), patch(retain=[text]))
    assert why is not None and why.startswith("secret: ")


@pytest.mark.parametrize(
    "text",
    [
        "asked for a new password",
        "the secret: she likes rain",
        "token budget: 2000",
        "sk-8",
        'secret: "her garden"',
        "max_tokens=512.",
    ],
)
async def test_m8_ordinary_words_are_not_secrets(tmp_path: Path, text: str) -> None:
    assert (await call(memories(tmp_path), patch(retain=[text])))[1] is None


# ---------------------------------------------------------------- edited files


async def test_invalid_lines_of_a_ledger_are_skipped(here: Path) -> None:
    lines = [
        '{"retain": ["one"]}',
        "nonsense",
        "[1]",
        '{"retain": "two"}',
        '{"retain": [2, "three\\n  lines"]}',
        "\x00\xff",
    ]
    (here / HERE / "ledger.jsonl").write_text("\n".join(lines))
    of = memories(here)
    assert "### Retained facts\n- one\n- three lines\n###" in (await call(of, patch(retain=["four"])))[0]
    assert json.loads((here / HERE / "ledger.jsonl").read_text().splitlines()[-1])["retain"] == ["four"]


async def test_the_newest_facts_are_shown_oldest_first(here: Path) -> None:
    (here / HERE / "ledger.jsonl").write_text("".join(f'{{"retain": ["fact {n}"]}}\n' for n in range(20_000)))
    prelude, _ = await call(memories(here))
    facts = [line for line in prelude.splitlines() if line.startswith("- ")]
    assert facts == [f"- fact {n}" for n in range(19_980, 20_000)]


async def test_a_single_fact_that_is_too_long_is_cut(here: Path) -> None:
    (here / HERE / "ledger.jsonl").write_text(json.dumps({"retain": ["old", "x" * 100_000]}))
    prelude, _ = await call(memories(here))
    assert f"### Retained facts\n- {'x' * 4096}\n###" in prelude


async def test_m7_an_oversized_digest_is_passed_up_to_the_limit(here: Path) -> None:
    (here / HERE / "digest.md").write_text("ä" * 20_000)
    prelude, _ = await call(memories(here))
    assert f"### Digest\n{'ä' * 8192}\n[digest truncated: 40,000 bytes, the first 16,384 are shown]\n###" in prelude


@pytest.mark.parametrize(
    ("data", "why"), [(b"a\0b", "digest.md is a binary file"), (b"\xff\xfe", "digest.md is not UTF-8 text")]
)
async def test_a_binary_digest_is_an_error(here: Path, data: bytes, why: str) -> None:
    (here / HERE / "digest.md").write_bytes(data)
    with pytest.raises(ProviderError, match=why) as failed:
        await call(memories(here))
    assert str(failed.value) == f"the memory 'team/a:1' cannot be used: {why}"
    assert not failed.value.retryable
    assert (here / HERE / "digest.md").read_bytes() == data


@pytest.mark.parametrize("name", ["digest.md", "ledger.jsonl", "lock"])
async def test_links_are_refused(here: Path, name: str) -> None:
    outside = here / "outside"
    outside.write_text("mine")
    (here / HERE / name).symlink_to(outside)
    with pytest.raises(ProviderError, match=f"{name} is a link"):
        await call(memories(here), patch(digest="x", retain=["y"]))
    assert outside.read_text() == "mine"


async def test_the_target_of_a_linked_meta_file_is_not_written(here: Path) -> None:
    outside = here / "outside"
    outside.write_text("mine")
    (here / HERE / "meta.json").symlink_to(outside)
    assert (await call(memories(here), patch(digest="x")))[1] is None
    assert outside.read_text() == "mine"


async def test_a_link_that_is_put_in_the_way_during_the_call_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    memory = await memories(tmp_path).open(BINDING, "continue")
    (tmp_path / HERE / "digest.md").symlink_to(outside)
    assert await memory.keep([patch(digest="x", retain=["y"])]) == "not written: digest.md is a link"
    memory.close()
    assert outside.read_text() == "mine"
    assert not (tmp_path / HERE / "ledger.jsonl").exists()  # both files or neither


@pytest.mark.parametrize("place", [".vvm", ".vvm/memory", HERE])
async def test_a_directory_reached_by_a_link_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ProviderError, match="its directory is a link"):
        await call(memories(tmp_path), patch(digest="x"))
    assert [*(tmp_path / "elsewhere").iterdir()] == []


@pytest.mark.parametrize("name", ["digest.md", "ledger.jsonl"])
async def test_a_directory_in_the_place_of_a_file_is_an_error(here: Path, name: str) -> None:
    (here / HERE / name).mkdir()
    with pytest.raises(ProviderError, match=f"{name} is a directory"):
        await call(memories(here))


async def test_a_pipe_in_place_of_a_file_does_not_block(here: Path) -> None:
    os.mkfifo(here / HERE / "digest.md")
    with pytest.raises(ProviderError, match=r"digest\.md is a pipe"):
        await call(memories(here))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("a\0b", "its path holds a NUL character"),
        ("x" * 5_000, "the name is too long"),
        ("a/" * 1_500, "its path is too deep"),
    ],
)
async def test_an_impossible_path_is_an_error(tmp_path: Path, path: str, why: str) -> None:
    with pytest.raises(ProviderError, match=why):
        await call(memories(tmp_path), binding=MemoryBinding("path", "k", "k", path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
@pytest.mark.parametrize("name", ["digest.md", "lock"])
async def test_files_without_permission_are_an_error(here: Path, name: str) -> None:
    (here / HERE / name).write_text("")
    (here / HERE / name).chmod(0)
    with pytest.raises(ProviderError, match="the system does not permit it"):
        await call(memories(here))


async def test_a_damaged_meta_file_is_rewritten(here: Path) -> None:
    (here / HERE / "meta.json").write_text("[" * 50_000)
    await call(memories(here))
    assert json.loads(files(here)["meta.json"])["last_mode"] == "continue"


# ---------------------------------------------------------------- one at a time


async def test_m4_calls_of_one_run_queue_without_a_limit(tmp_path: Path) -> None:
    clock = FakeClock()
    of = memories(tmp_path, clock)
    order: list[str] = []

    async def one(name: str) -> None:
        memory = await of.open(BINDING, "continue")
        order.append(f"{name} in")
        await clock.sleep(100)
        order.append(f"{name} out")
        await memory.keep([patch(retain=[name])])
        memory.close()

    await asyncio.gather(*(one(name) for name in "abc"))
    assert order == ["a in", "a out", "b in", "b out", "c in", "c out"]
    assert [entry["retain"] for entry in ledger(tmp_path)] == [["a"], ["b"], ["c"]]


async def test_other_memories_do_not_wait(tmp_path: Path) -> None:
    of = memories(tmp_path)
    first = await of.open(BINDING, "continue")
    second = await of.open(MemoryBinding("project", "other", "other"), "continue")
    first.close()
    second.close()


async def test_a_closed_memory_keeps_nothing_more(tmp_path: Path) -> None:
    memory = await memories(tmp_path).open(BINDING, "continue")
    memory.close()
    memory.close()
    assert await memory.keep([patch(digest="x")]) is None
    assert "digest.md" not in files(tmp_path)


async def test_a_cancelled_wait_leaves_the_memory_free(tmp_path: Path) -> None:
    of = memories(tmp_path)
    held = await of.open(BINDING, "continue")
    waiting = asyncio.ensure_future(of.open(BINDING, "continue"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    held.close()
    await call(of)


HOLDER = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder(here: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which locks the memory until it gets a signal."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(here / HERE / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    if process.poll() is None:
        process.communicate("\n")


@pytest.mark.parametrize("mode", ["continue", "dry_run"])
async def test_m4_another_process_is_waited_for_ten_seconds(
    here: Path, holder: subprocess.Popen[str], mode: MemoryMode
) -> None:
    clock = FakeClock()
    with pytest.raises(MemoryLocked, match="the memory 'team/a:1' is in use by another process"):
        await call(memories(here, clock), mode=mode)
    assert 10 <= clock.time < 10.2
    before = clock.time
    with pytest.raises(MemoryLocked):  # the failed call has left nothing locked
        await call(memories(here, clock), mode=mode)
    assert clock.time > before


async def test_m3_a_memory_that_becomes_free_in_time_is_used(here: Path, holder: subprocess.Popen[str]) -> None:
    class Freeing(SystemClock):
        async def sleep(self, seconds: float) -> None:
            assert holder.stdin is not None
            if not holder.stdin.closed:
                holder.communicate("\n")
            await super().sleep(seconds)

    await call(memories(here, Freeing()), patch(digest="after"))
    assert files(here)["digest.md"] == "after"


async def test_m3_two_runs_do_not_lose_each_others_facts(tmp_path: Path) -> None:
    script = """
import asyncio, json, sys
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.ports import MemoryBinding
from prose_kernel.runtime.session_options import Surroundings
from prose_kernel.models.digest_memory import DigestMemories

async def main():
    of = DigestMemories(Surroundings(sys.argv[1]), SystemClock())
    for n in range(10):
        memory = await of.open(MemoryBinding("project", "k", "k"), "continue")
        told = memory.prelude.split("### Digest\\n")[1].split("\\n")[0]
        count = 0 if told == "(empty)" else int(told)
        await memory.keep([json.dumps({"digest": str(count + 1), "retain": [f"{sys.argv[2]}{n}"]})])
        memory.close()

asyncio.run(main())
"""
    running = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path), name]) for name in "ab"]
    assert [process.wait() for process in running] == [0, 0]
    assert files(tmp_path, ".vvm/memory/k")["digest.md"] == "20"
    assert len(files(tmp_path, ".vvm/memory/k")["ledger.jsonl"].splitlines()) == 20


async def test_m3_a_dry_run_releases_the_lock_after_reading(here: Path) -> None:
    of = memories(here)
    looking = await of.open(BINDING, "dry_run")
    await call(of, patch(digest="meanwhile"))
    looking.close()


async def test_services_that_replace_others_in_a_run_share_the_queue(tmp_path: Path) -> None:
    queues = Memories()
    held = await memories(tmp_path, queues=queues).open(BINDING, "continue")
    waiting = asyncio.ensure_future(memories(tmp_path, queues=queues).open(BINDING, "continue"))
    await asyncio.sleep(0)
    assert not waiting.done()
    held.close()
    (await waiting).close()
