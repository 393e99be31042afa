from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from storage.backends import tiny_disk

from prose_kernel.errors import StateError
from prose_kernel.runtime.ports import Binding, Key
from prose_kernel.runtime.values import Value
from prose_kernel.storage import bindings
from prose_kernel.storage.run_directory import RunDirectory
from prose_kernel.storage.stores import FilesystemStore

RUN = "20260301-101500-k3x9qa"


def binding(name: str, value: Value, execution_id: int | None = None) -> Binding:
    return Binding(Key(name, execution_id), "let", value, f"let {name} = …")


def files(directory: Path) -> list[str]:
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file())


@pytest.fixture
def store(tmp_path: Path) -> FilesystemStore:
    return FilesystemStore(RunDirectory(Path(".prose"), RUN, cwd=tmp_path))


async def test_nothing_worth_keeping_leaves_nothing(store: FilesystemStore, tmp_path: Path) -> None:
    store.record_source("# only a comment\n")
    store.home.log(())("# run:… notebook\n\n")
    await store.flush()
    assert list(tmp_path.iterdir()) == []
    store.put(binding("x", "1"))
    await store.flush()
    run = tmp_path / ".prose" / "runs" / RUN
    assert files(run) == ["bindings/x.md", "program.prose", "state.md"]
    assert (run / "program.prose").read_text() == "# only a comment\n"


async def test_cells_are_added_to_the_program(store: FilesystemStore) -> None:
    store.record_source('let a = "1"')
    store.put(binding("a", "1"))
    await store.flush()
    store.record_source('let b = "2"\n\n')
    await store.flush()
    assert (store.paths.directory / "program.prose").read_text() == 'let a = "1"\n\nlet b = "2"\n'


async def test_a_run_of_a_file_has_its_directory_from_the_start(store: FilesystemStore) -> None:
    store.start('exec "true"\n')
    await store.flush()
    assert files(store.paths.directory) == ["program.prose"]


async def test_layout_with_imports(store: FilesystemStore) -> None:
    store.start("use …")
    inner = store.nested("local", "tidy", "# tidy\n")
    deep = inner.nested("url", "fix", "# fix\n")
    again = store.nested("local", "tidy", "# tidy\n", 2)
    odd = store.nested("local", "a/b", "# odd\n")
    deep.put(binding("x", "v", 2))
    await deep.flush()
    assert files(store.paths.directory) == [
        "imports/local--a_b/program.prose",
        "imports/local--tidy--2/program.prose",
        "imports/local--tidy/imports/url--fix/bindings/x__2.md",
        "imports/local--tidy/imports/url--fix/program.prose",
        "imports/local--tidy/program.prose",
        "program.prose",
    ]
    assert deep.chain == ("local--tidy", "url--fix")
    assert again.chain == ("local--tidy--2",)
    assert odd.chain == ("local--a_b",)


def test_places_as_sessions_see_them(tmp_path: Path) -> None:
    inside = FilesystemStore(RunDirectory(Path(".prose"), RUN, cwd=tmp_path), user_home=tmp_path / "home")
    assert inside.location(Key("plan", 3)) == f".prose/runs/{RUN}/bindings/plan__3.md"
    assert inside.memory("captain", "true") == f".prose/runs/{RUN}/agents/captain/"
    assert inside.memory("captain", "project") == ".prose/agents/captain/"
    assert inside.nested("local", "t", "").memory("captain", "true") == (
        f".prose/runs/{RUN}/imports/local--t/agents/captain/"
    )
    outside = FilesystemStore(RunDirectory(tmp_path / "elsewhere", RUN, cwd=tmp_path / "work"))
    assert outside.location(Key("plan")) == str(tmp_path / "elsewhere" / "runs" / RUN / "bindings" / "plan.md")


async def test_a_session_may_write_the_binding_itself(store: FilesystemStore, tmp_path: Path) -> None:
    asked = binding("notes", "")
    target, written = store.target(asked), store.watch(asked.key)
    assert target is not None and not written()
    place = tmp_path / target.location
    place.parent.mkdir(parents=True)
    place.write_text(target.header + "what I found\n")
    assert written()
    assert store.read(asked.key) == "what I found\n"


async def test_files_appear_whole(store: FilesystemStore) -> None:
    """A reader in another thread never sees a partial file, and no temporary name stays."""
    path = store.paths.directory / "bindings" / "x.md"
    seen: set[int] = set()
    stop = False

    def watch() -> None:
        while not stop:
            if path.exists():
                seen.add(len(path.read_bytes()))

    watcher = asyncio.create_task(asyncio.to_thread(watch))
    sizes = set()
    for letter in "abcdef":
        made = binding("x", letter * 3_000_000)
        store.put(made)
        await store.flush()
        sizes.add(len(bindings.render(made).encode()))
    stop = True
    await watcher
    assert seen and seen <= sizes
    assert files(store.paths.directory) == ["bindings/x.md"]


async def test_a_value_stored_during_a_flush_is_written_by_the_next(store: FilesystemStore) -> None:
    for n in range(500):
        store.put(binding(f"v{n}", "x" * 500))
    flushing = asyncio.create_task(store.flush())
    await asyncio.sleep(0)
    store.put(binding("v0", "newer"))
    assert store.read(Key("v0")) == "newer"
    await flushing
    await store.flush()
    assert store.read(Key("v0")) == "newer"
    assert len(files(store.paths.directory)) == 500


async def test_thousands_of_bindings_cost_the_same_each(tmp_path: Path) -> None:
    async def cost(count: int, run: str) -> float:
        store = FilesystemStore(RunDirectory(tmp_path, run, cwd=tmp_path))
        started = time.process_time()
        for n in range(count):
            store.put(binding(f"v{n}", "value", n))
        await store.flush()
        spent = time.process_time() - started
        assert len(files(store.paths.directory)) == count
        return spent / count

    for attempt in range(3):  # a busy machine may need more than one attempt
        small, large = await cost(250, f"a{attempt}"), await cost(2_500, f"b{attempt}")
        if large < small * 4:
            return
    raise AssertionError(f"{small} s each of 250, {large} s each of 2,500")


async def test_a_value_of_32_mb(store: FilesystemStore) -> None:
    value = "0123456789abcdé\n" * (32 * 1024 * 1024 // 17)
    store.put(binding("big", value))
    flushing = asyncio.create_task(store.flush())
    turns = 0
    while not flushing.done():
        await asyncio.sleep(0)
        turns += 1
    await flushing
    assert turns > 10, "the loop was blocked while the value was written"
    assert store.read(Key("big")) == value


async def test_an_endlessly_nested_value_is_an_error_and_not_a_crash(store: FilesystemStore) -> None:
    value: Value = "x"
    for _ in range(100_000):
        value = [value]
    store.put(binding("deep", value))
    store.put(binding("x", "kept"))
    with pytest.raises(StateError, match="'deep' could not be stored: its value is nested too deeply"):
        await store.flush()
    assert files(store.paths.directory) == ["bindings/x.md"]


# ---------------------------------------------------------------- a disk that refuses


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    yield from tiny_disk(tmp_path)


async def test_full_disk(small_disk: Path) -> None:
    store = FilesystemStore(RunDirectory(small_disk, RUN, cwd=small_disk))
    store.put(binding("x", "old"))
    await store.flush()
    store.home.log(())("1→ x ✓\n")
    store.put(binding("x", "n" * 500_000))
    with pytest.raises(StateError, match="'x' could not be stored: no space left on device") as caught:
        await store.flush()
    assert caught.value.details == {"binding": "x"}
    on_disk = (store.paths.directory / "bindings" / "x.md").read_text()
    assert bindings.value_of(on_disk) == "old"
    assert not [name for name in files(small_disk) if name.endswith(".tmp")]
    assert store.read(Key("x")) == "n" * 500_000, "the new value is not lost"
    store.put(binding("x", "small again"))
    await store.flush()
    assert bindings.value_of((store.paths.directory / "bindings" / "x.md").read_text()) == "small again"


async def test_a_lost_value_is_reported_once(small_disk: Path) -> None:
    """A command of the same run makes room: the old failure must not prevent it."""
    store = FilesystemStore(RunDirectory(small_disk, RUN, cwd=small_disk))
    store.put(binding("x", "n" * 500_000))
    store.put(binding("y", "waits behind it"))
    with pytest.raises(StateError, match=r"'x' could not be stored: no space left on device \(and 1 more\)"):
        await store.flush()
    await store.flush()
    store.put(binding("z", "n" * 500_000))
    with pytest.raises(StateError, match="'z' could not be stored: no space left on device"):
        await store.flush()
    store.put(binding("x", "m" * 500_000))
    with pytest.raises(StateError, match="'x' could not be stored"):
        await store.flush()
    store.put(binding("x", "small"))
    store.put(binding("z", "small"))
    await store.flush()
    assert files(store.paths.directory) == ["bindings/x.md", "bindings/y.md", "bindings/z.md"]


@pytest.fixture
def small_files() -> Iterator[None]:
    """Limit the size of all files to 64 KB (needs no rights)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


async def test_one_value_that_cannot_be_written_does_not_stop_the_others(
    store: FilesystemStore, small_files: None
) -> None:
    store.put(binding("x", "old"))
    await store.flush()
    for name, value in (("a", "1"), ("x", "n" * 100_000), ("y", "m" * 100_000), ("b", "2")):
        store.put(binding(name, value))
    with pytest.raises(StateError, match=r"'x' could not be stored: file too large \(and 1 more\)"):
        await store.flush()
    assert files(store.paths.directory) == ["bindings/a.md", "bindings/b.md", "bindings/x.md"]
    assert bindings.value_of((store.paths.directory / "bindings" / "x.md").read_text()) == "old"


async def test_a_state_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / ".prose").write_text("in the way")
    store = FilesystemStore(RunDirectory(Path(".prose"), RUN, cwd=tmp_path))
    store.put(binding("x", "1"))
    assert (store.by_value, store.lost) == (False, None)
    await store.flush()
    assert store.by_value
    assert store.lost == "the state directory '.prose' cannot be written (not a directory); this run is kept in memory"
    store.put(binding("y", "2"))
    await store.flush()
    assert [store.read(Key("x")), store.read(Key("y"))] == ["1", "2"]
    assert (tmp_path / ".prose").read_text() == "in the way"


async def test_a_full_disk_gets_no_empty_directory(tmp_path: Path, small_files: None) -> None:
    store = FilesystemStore(RunDirectory(Path(".prose"), RUN, cwd=tmp_path))
    store.put(binding("x", "1"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        await store.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert store.lost is not None and not store.paths.directory.exists()
    assert store.read(Key("x")) == "1"


async def test_every_write_of_a_session_is_noticed(store: FilesystemStore) -> None:
    store.put(binding("x", "one"))
    unwritten = store.watch(Key("x"))
    await store.flush()
    assert unwritten()
    place = store.paths.directory / "bindings" / "x.md"
    for text in ("one", "two", "two"):
        written = store.watch(Key("x"))
        assert not written()
        place.write_text(text)
        assert written()


def test_a_process_killed_while_it_writes_leaves_whole_files(tmp_path: Path) -> None:
    """Hazard 77: the file is complete or missing."""
    program = f"""
        import asyncio
        from pathlib import Path
        from prose_kernel.runtime.ports import Binding, Key
        from prose_kernel.storage.stores import FilesystemStore
        from prose_kernel.storage.run_directory import RunDirectory
        store = FilesystemStore(RunDirectory(Path({str(tmp_path)!r}), {RUN!r}))
        async def main():
            n = 0
            while True:
                n += 1
                store.put(Binding(Key("x"), "let", chr(97 + n % 26) * 400_000, "let x = …"))
                await store.flush()
                if n == 3:
                    print("writing", flush=True)
        asyncio.run(main())
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "writing\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    value = bindings.parse((tmp_path / "runs" / RUN / "bindings" / "x.md").read_text()).value
    assert len(value) == 400_000 and len(set(value)) == 1
