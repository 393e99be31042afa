"""The tools of sessions on real files: results, refusals, and links swapped in between check and use."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine.fakes import FakeClock
from models.benches import answer_of
from models.people import ScriptedPerson
from stubs.tokens import tokens_of
from waiting import eventually

from prose_kernel.access.approvals import Approvals
from prose_kernel.access.session_permissions import Policy
from prose_kernel.models.providers.acp import SessionOutputFiles
from prose_kernel.models.providers.python_function import FunctionSessions, Prompt
from prose_kernel.models.session_prompt import answered, assemble, with_row_texts
from prose_kernel.models.tools import files, search
from prose_kernel.models.tools import tool as tools
from prose_kernel.models.tools.session_tools import SessionTools, tool_names
from prose_kernel.models.tools.tool import StopFlag, ToolFailed, ToolRefused, ToolSpec
from prose_kernel.runtime.ports import (
    AgentMemory,
    AnswerFile,
    ContextItem,
    FileWrite,
    SessionProgress,
    SessionRequest,
    SessionResult,
    ToolUse,
)
from prose_kernel.runtime.session_options import Rule, Surroundings

RUN = ".prose/runs/20260301-101500-k3x9qa"
HEADER = '# plan\n\nkind: let\n\nsource:\n```prose\nlet plan = session "x"\n```\n\n---\n\n'


class Bench:
    """The tools of a session in a directory, with its trace and progress."""

    def __init__(
        self,
        cwd: Path,
        rules: Mapping[str, Rule] | None = None,
        *,
        person: ScriptedPerson | None = None,
        more: tuple[Any, ...] = (),
        default: tuple[str, ...] | None = None,
        **facts: Any,
    ) -> None:
        self.request = SessionRequest("session", "Do it", "c1/s0", **facts)
        self.policy = Policy.of(rules or {}, {}, str(cwd), environment={"HOME": str(cwd.parent / "home")})
        self.person = person or ScriptedPerson(available=False)
        self.progress: list[SessionProgress] = []
        where = Surroundings(str(cwd), environment={"HOME": str(cwd.parent / "home")})
        approvals = Approvals(self.person, FakeClock())
        self.bench = SessionTools(self.request, self.policy, approvals, where, self.progress.append, more, default)

    async def __call__(self, tool: str, **given: object) -> str:
        return await answer_of(self.bench, tool, given)

    @property
    def last(self) -> ToolUse:
        return self.bench.trace[-1]


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    return place


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


OPEN: dict[str, Rule] = {"read": ("./",), "write": ("./",)}

# ---------------------------------------------------------------- offered tools


def test_a42_tools_are_those_that_the_rules_allow_or_a_person_can(cwd: Path) -> None:
    def names(person: bool = False, default: tuple[str, ...] | None = None, **rules: Rule) -> tuple[str, ...]:
        bench = Bench(cwd, rules, person=ScriptedPerson(available=person), default=default)
        return tuple(spec.name for spec in bench.bench.specs)

    files = ("read", "list", "search")
    assert names() == files  # `network: prompt`, and no person to ask
    assert names(person=True) == (*files, "fetch")
    assert names(network="deny", read="deny") == ()
    assert names(write="prompt", network=()) == files
    assert names(person=True, write="prompt", network=()) == (*files, "write", "edit")
    assert names(write=("*.md",), network=("example.org",)) == (*files, "write", "edit", "fetch")
    assert names(read="deny", write=("*.md",)) == ("write",)  # an edit reads the file
    assert names(write="allow", default=("read", "write")) == ("read", "write")
    assert names(write="allow", default=()) == ()


def test_a42_no_tools_means_none(cwd: Path) -> None:
    bench = Bench(cwd, {"write": "allow", "bash": "allow"}, bare=True)
    assert bench.bench.specs == () and tool_names(bench.request, bench.policy, ("Exec",)) == ()
    named = Bench(cwd, {"tools": "allow"}, bare=True, tools=("weather",))
    assert tool_names(named.request, named.policy) == ("tools:weather",)


@pytest.mark.parametrize("facts", [{"bare": True}, {"default": ()}])
async def test_a42_a_tool_that_is_not_offered_does_not_run(cwd: Path, facts: dict[str, Any]) -> None:
    class Shell:
        spec = ToolSpec("exec_command", "Run.", {"type": "object"})

        async def call(self, arguments: Mapping[str, object]) -> str:
            raise AssertionError("it runs")

    bench = Bench(cwd, {"write": "allow", "bash": "allow"}, more=(Shell(),), **facts)
    assert bench.bench.specs == ()
    for answer in (await bench("write", path="a", content="x"), await bench("exec_command", cmd="true")):
        assert answer.startswith("refused: permission_denied")
    assert names(cwd) == []


async def test_a42_a_session_of_a_model_writes_neither_its_binding_nor_its_memory(cwd: Path) -> None:
    place, memory = f"{RUN}/bindings/plan.md", AgentMemory("captain", "project", ".prose/agents/captain", resume=False)
    bench = Bench(cwd, {"write": "allow"}, target=AnswerFile("plan", place, HEADER), memory=memory)
    assert (await bench("write", path=place, content="x")).startswith("refused: ")
    assert not (cwd / place).exists()
    closed = Bench(cwd, {"read": "deny", "network": "deny"}, target=AnswerFile("plan", place, HEADER), memory=memory)
    assert closed.bench.specs == ()


async def test_a42_a_long_context_can_be_read_whatever_the_rules_say(cwd: Path) -> None:
    (cwd / "plan.md").write_text("x" * 50_001)
    closed: dict[str, Rule] = {"read": "deny", "network": "deny"}

    def bench(length: int, **more: Any) -> Bench:
        return Bench(cwd, closed, context=(ContextItem("plan", "plan.md", content="x" * length),), **more)

    assert [spec.name for spec in bench(50_001).bench.specs] == ["read"]
    assert (await bench(50_001)("read", path="plan.md")).startswith("xxx")
    assert bench(50_000).bench.specs == bench(50_001, bare=True).bench.specs == ()


def test_the_names_in_a_recordings_key_do_not_depend_on_where_a_run_lives(cwd: Path) -> None:
    kept, by_value = Bench(cwd, OPEN, target=AnswerFile("plan", f"{RUN}/bindings/plan.md", HEADER)), Bench(cwd, OPEN)
    assert tool_names(kept.request, kept.policy, ("Exec",)) == tool_names(by_value.request, by_value.policy, ("Exec",))
    assert tool_names(kept.request, kept.policy, ("Exec",))[-1] == "Exec"


def test_schemas_are_objects_with_described_properties(cwd: Path) -> None:
    for spec in Bench(cwd, OPEN).bench.specs:
        schema: Any = spec.parameters
        assert schema["type"] == "object"
        assert set(schema.get("required", ())) <= set(schema["properties"])
        assert len(spec.description) < 150


@pytest.mark.parametrize("wrapped", [True, False])
def test_a42_all_our_schemas_are_short(cwd: Path, wrapped: bool) -> None:
    bench = Bench(cwd, {"read": "allow", "write": "allow", "network": "allow"})
    specs = [{"name": s.name, "description": s.description, "parameters": s.parameters} for s in bench.bench.specs]
    sent = [{"type": "function", "function": spec} if wrapped else spec for spec in specs]
    assert len(sent) == 6 and sum(map(tokens_of, sent)) < 350


# ---------------------------------------------------------------- reading


async def test_read_whole_and_in_lines(cwd: Path) -> None:
    (cwd / "a.txt").write_bytes(b"one\r\ntwo\nthree\nfour")
    bench = Bench(cwd)
    assert await bench("read", path="a.txt") == "one\r\ntwo\nthree\nfour"
    assert (
        await bench("read", path="a.txt", offset=2, limit=2)
        == "two\nthree\n\n\n[cut before line 4: read on with offset 4]"
    )
    assert await bench("read", path="a.txt", offset=4) == "four"
    assert await bench("read", path="a.txt", offset=9) == "[the file ends before line 9]"
    assert await bench("read", path=str(cwd / "a.txt"), limit=4) == "one\r\ntwo\nthree\nfour"
    assert bench.bench.trace[1] == ToolUse("read", "a.txt offset 2 limit 2", "ok", bench.bench.trace[1].detail)


async def test_a_large_file_is_read_in_parts_and_nothing_is_lost(cwd: Path) -> None:
    text = "".join(f"line {number} é\n" for number in range(60_000))
    (cwd / "big").write_text(text)
    bench, got, offset = Bench(cwd), "", 1
    while offset:
        answer = await bench("read", path="big", offset=offset)
        part, _, note = answer.partition("\n\n[cut before line ")
        assert len(part.encode()) <= files.READ_LIMIT
        got += part
        offset = int(note.partition(":")[0]) if note else 0
    assert got == text


async def test_a_line_that_is_too_long_is_cut_and_marked(cwd: Path) -> None:
    (cwd / "long").write_text("é" * files.READ_LIMIT)
    answer = await Bench(cwd)("read", path="long")
    assert answer.startswith("éé") and answer.endswith(
        "[line 1 is cut here: a call returns at most 262,144 bytes of 524,288]"
    )


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("b.png", b"\x89PNG\0\0", "'b.png' is a binary file (6 bytes): it cannot be read as text"),
        ("l1.txt", "caf\xe9 ".encode("latin-1"), "'l1.txt' is not UTF-8 text (5 bytes): it cannot be read as text"),
        ("empty", b"", ""),
    ],
)
async def test_a_file_that_is_not_text_is_answered_with_a_message(cwd: Path, name: str, data: bytes, says: str) -> None:
    (cwd / name).write_bytes(data)
    assert await Bench(cwd)("read", path=name) == (f"failed: {says}" if says else "")


async def test_directories_pipes_and_missing_files_are_answered_with_messages(cwd: Path) -> None:
    (cwd / "d").mkdir()
    os.mkfifo(cwd / "pipe")
    bench = Bench(cwd)
    assert await bench("read", path="d") == "failed: 'd' is a directory"
    assert await bench("read", path="pipe") == "failed: 'pipe' is not a regular file"
    assert await bench("read", path="no/such") == "failed: 'no/such': there is no such file or directory"
    assert await bench("read", path="a\0b") == "failed: the path must be a non-empty text without NUL"
    assert await bench("read", path="x" * 5000) == f"failed: '{'x' * 5000}': the name is too long"
    assert (await bench("read", path="\ud800")).startswith("failed: ")


async def test_a_refusal_is_the_same_whether_the_file_is_there_or_not(cwd: Path) -> None:
    (cwd.parent / "there").write_text("secret")
    bench = Bench(cwd)
    answers = [await bench("read", path=f"../{name}") for name in ("there", "not-there")]
    assert answers[0].replace("there", "X") == answers[1].replace("not-there", "X")
    assert answers[0] == "refused: reading '../there' is not allowed: the rule is `read: workspace`"
    assert bench.last.outcome == "refused"


# ---------------------------------------------------------------- writing


async def test_write_creates_and_replaces_and_keeps_the_mode(cwd: Path) -> None:
    bench = Bench(cwd, OPEN)
    assert await bench("write", path="out/deep/a.sh", content="one\n") == "Created 'out/deep/a.sh' (4 characters)."
    (cwd / "out/deep/a.sh").chmod(0o751)
    assert await bench("write", path="out/deep/a.sh", content="two\r\n") == "Replaced 'out/deep/a.sh' (5 characters)."
    assert (cwd / "out/deep/a.sh").read_bytes() == b"two\r\n"
    assert (cwd / "out/deep/a.sh").stat().st_mode & 0o777 == 0o751
    assert names(cwd / "out/deep") == ["a.sh"]
    assert bench.bench.writes == (FileWrite("out/deep/a.sh", None, "two\r\n"),)


async def test_the_writes_of_one_file_are_one_entry(cwd: Path) -> None:
    (cwd / "a").write_text("0")
    bench = Bench(cwd, OPEN)
    await bench("write", path="a", content="1")
    await bench("edit", path=f"{cwd}/./a", old="1", new="2")
    await bench("write", path="b", content="x")
    assert bench.bench.writes == (FileWrite("a", "0", "2"), FileWrite("b", None, "x"))


async def test_edit(cwd: Path) -> None:
    (cwd / "a").write_bytes(b"x = 1\r\ny = 1\r\n")
    bench = Bench(cwd, OPEN)
    assert await bench("edit", path="a", old="x = 1", new="x = 2") == "Replaced 1 occurrence in 'a'."
    assert await bench("edit", path="a", old=" = ", new=": ") == (
        "failed: the text to replace occurs 2 times in 'a': give more of it, or `all`"
    )
    assert await bench("edit", path="a", old="nowhere", new="") == "failed: the text to replace does not occur in 'a'"
    assert await bench("edit", path="a", old=" = ", new=": ", all=True) == "Replaced 2 occurrences in 'a'."
    assert (cwd / "a").read_bytes() == b"x: 2\r\ny: 1\r\n"
    assert await bench("edit", path="b", old="a", new="b") == "failed: 'b': there is no such file or directory"
    assert await Bench(cwd, {"read": ("b",), "write": ("a",)})("edit", path="a", old="x", new="y") == (
        "refused: reading 'a' is not allowed: the rule is `read: b`"
    )


async def test_content_that_is_not_text_or_too_long_is_not_written(cwd: Path) -> None:
    (cwd / "b.png").write_bytes(b"\x89PNG\0")
    bench = Bench(cwd, OPEN)
    assert await bench("write", path="b.png", content="x") == "failed: 'b.png' is a binary file (5 bytes)"
    assert (cwd / "b.png").read_bytes() == b"\x89PNG\0"
    too_much = await bench("write", path="big", content="x" * (files.WRITE_LIMIT + 1))
    assert too_much == "failed: 'big' would have 10,485,761 bytes; at most 10,485,760 can be written"
    assert (await bench("write", path="s", content="\ud800")).startswith("failed: the content holds a lone surrogate")
    assert names(cwd) == ["b.png"]
    assert bench.bench.writes == ()


async def test_write_outside_the_rule_is_refused_and_leaves_no_directory(cwd: Path) -> None:
    bench = Bench(cwd, {"write": ("out/**",)})
    for path in ("a", "../a", "out/../../a", "~/a", "/etc/a", "outside/x/y"):
        assert (await bench("write", path=path, content="x")).startswith("refused: "), path
    assert names(cwd) == [] and names(cwd.parent) == ["work"]


async def test_a_file_that_is_too_large_is_not_edited(cwd: Path) -> None:
    (cwd / "a").write_text("x" * (10 * 1024 * 1024 + 1))
    assert await Bench(cwd, OPEN)("edit", path="a", old="x", new="y") == "failed: 'a' is larger than 10,485,760 bytes"


async def test_nothing_half_written_stays_when_the_disk_fails(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cwd / "a").write_text("old")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert await Bench(cwd, OPEN)("write", path="a", content="new") == "failed: 'a': the disk is full"
    assert names(cwd) == ["a"] and (cwd / "a").read_text() == "old"


# ---------------------------------------------------------------- links


async def test_a_link_gives_its_target_no_more_rights(cwd: Path) -> None:
    outside = cwd.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (cwd / "link").symlink_to(outside / "secret")
    (cwd / "dir").symlink_to(outside)
    (cwd / "loop").symlink_to(cwd / "loop")
    (cwd / "proc").symlink_to("/proc/self/root")
    bench = Bench(cwd, OPEN)
    for path in ("link", "dir/secret", f"proc{outside}/secret", "/proc/self/cwd/x", "/dev/fd/0", "/proc/self/environ"):
        assert (await bench("read", path=path)).startswith("refused: "), path
        assert (await bench("write", path=path, content="x")).startswith("refused: "), path
    assert (await bench("read", path="loop")).startswith(("refused: ", "failed: "))
    assert (await bench("list", path="dir")).startswith("refused: ")
    assert (await bench("search", path="dir", text="secret")).startswith("refused: ")
    assert await bench("search", text="secret") == "[no match]"
    assert (outside / "secret").read_text() == "secret" and names(outside) == ["secret"]


async def test_a_link_inside_the_workspace_is_followed_once(cwd: Path) -> None:
    (cwd / "real").write_text("text")
    (cwd / "alias").symlink_to("real")
    bench = Bench(cwd, OPEN)
    assert await bench("read", path="alias") == "text"
    await bench("write", path="alias", content="new")
    assert (cwd / "alias").is_symlink() and (cwd / "real").read_text() == "new"
    assert bench.bench.writes == (FileWrite("real", "text", "new"),)


@pytest.mark.parametrize("swapped", ["file", "directory"])
async def test_a_link_swapped_in_between_check_and_use_gains_nothing(cwd: Path, swapped: str) -> None:
    outside = cwd.parent / "outside"
    outside.mkdir()
    (outside / "f").write_text("secret")
    inside, target = (cwd / "d" / "f", outside / "f") if swapped == "file" else (cwd / "d", outside)
    (cwd / "d").mkdir()
    (cwd / "d" / "f").write_text("harmless")
    stop = threading.Event()

    def swap() -> None:
        good, bad = cwd.parent / "good", cwd.parent / "bad"
        while not stop.is_set():
            bad.symlink_to(target)
            inside.rename(good)
            while not replaced(bad, inside):
                pass
            inside.unlink()
            while not replaced(good, inside):
                pass

    def replaced(source: Path, place: Path) -> bool:
        """Return whether the rename worked: a write may have recreated the target in between."""
        try:
            source.rename(place)
        except OSError:
            shutil.rmtree(place, ignore_errors=True)
            return False
        return True

    attacker = threading.Thread(target=swap)
    attacker.start()
    bench, answers = Bench(cwd, OPEN), set()
    try:
        for _ in range(75):
            answers.add((await bench("read", path="d/f"))[:8])
            answers.add((await bench("search", path="d", text="e"))[-6:])
            await bench("write", path="d/f", content="harmless")
    finally:
        stop.set()
        attacker.join()
    assert not any("secret" in answer for answer in answers), answers
    assert (outside / "f").read_text() == "secret"
    assert names(outside) == ["f"]


COMPONENTS = st.lists(st.sampled_from(["..", ".", "in", "out", "secret", "", "link", "up"]), max_size=6)


@given(COMPONENTS, st.sampled_from(["", "/", "~/", "{cwd}/", "{cwd}/../"]))
def test_no_path_leads_out(tmp_path_factory: pytest.TempPathFactory, parts: list[str], start: str) -> None:
    base = tmp_path_factory.getbasetemp() / "walk"
    cwd = base / "work"
    if not base.exists():
        (cwd / "in").mkdir(parents=True)
        (base / "secret").write_text("secret")
        (base / "out").mkdir()
        (base / "out" / "secret").write_text("secret")
        (cwd / "in" / "secret").write_text("public")
        (cwd / "link").symlink_to(base)
        (cwd / "in" / "up").symlink_to("../..")
    path = start.format(cwd=cwd) + "/".join(parts)
    answer = asyncio.run(Bench(cwd, OPEN)("read", path=path or "."))
    assert answer == "public" or answer.startswith(("refused: ", "failed: ")), path
    asyncio.run(Bench(cwd, OPEN)("write", path=path + "/new", content="x"))
    assert names(base) == ["out", "secret", "work"] and names(base / "out") == ["secret"]


# ---------------------------------------------------------------- list and search


@pytest.fixture
def tree(cwd: Path) -> Path:
    for name in ("src/a.py", "src/deep/b.py", "docs/x.md", ".git/config", "README.md", ".prose/.env", ".env"):
        (cwd / name).parent.mkdir(parents=True, exist_ok=True)
        (cwd / name).write_text(f"the needle of {name}\nsecond line\n")
    (cwd / "src" / "link").symlink_to("a.py")
    return cwd


async def test_list(tree: Path) -> None:
    bench = Bench(tree)
    assert await bench("list") == ".git/\n.prose/\nREADME.md\ndocs/\nsrc/"
    assert await bench("list", path="src") == "a.py\ndeep/\nlink (link)"
    assert await bench("list", pattern="**/*.py") == "src/a.py\nsrc/deep/b.py"
    assert await bench("list", path="src", pattern="*.md") == "[nothing to list]"
    assert await bench("list", path="README.md") == "failed: 'README.md': a part of the path is not a directory"
    assert [use.summary for use in bench.bench.trace] == [".", "src", ". **/*.py", "src *.md", "README.md"]


async def test_only_what_may_be_read_is_listed_and_searched(tree: Path) -> None:
    bench = Bench(tree, {"read": ("docs/**", "src/deep/")})
    assert await bench("list") == "docs/\nsrc/"
    assert await bench("list", path="src") == "deep/"
    assert await bench("search", text="needle") == (
        "docs/x.md:1: the needle of docs/x.md\nsrc/deep/b.py:1: the needle of src/deep/b.py"
    )
    assert (await bench("list", path=".git")).startswith("refused: ")
    everything = Bench(tree, {"read": "allow"})
    assert await everything("list", path=".prose") == "[nothing to list]"
    assert ".prose/.env" not in await everything("search", text="needle")


async def test_search(tree: Path) -> None:
    (tree / "bin").write_bytes(b"needle\0")
    bench = Bench(tree)
    assert await bench("search", text="NEEDLE", path="src", ignore_case=True) == (
        "src/a.py:1: the needle of src/a.py\nsrc/deep/b.py:1: the needle of src/deep/b.py"
    )
    assert await bench("search", text="needle", path="README.md") == "README.md:1: the needle of README.md"
    assert await bench("search", text="^second.*e$", regex=True, pattern="*.md") == "README.md:2: second line"
    assert await bench("search", text="second.", pattern="*.md") == "[no match]"
    assert (await bench("search", text="(", regex=True)).startswith("failed: this is not a regular expression: ")
    assert await bench("search", text="x", path="nowhere") == "failed: 'nowhere': there is no such file or directory"
    assert bench.bench.trace[0].summary == "NEEDLE in src"


async def test_a_search_without_the_package_for_expressions(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "regex", None)
    assert await Bench(tree)("search", text="a.b", regex=True) == (
        "failed: regular expressions need the package `regex`: search for a plain text instead"
    )
    assert await Bench(tree)("search", text="needle", path="README.md") == "README.md:1: the needle of README.md"


async def test_a_search_has_a_limit_of_time(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SECONDS", 0.0)
    assert (
        await Bench(tree)("search", text="x") == "failed: the search took longer than 0 seconds: search in fewer files"
    )


async def test_a_directory_that_cannot_be_opened_is_skipped(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.open

    def refusing(path: Any, *given: Any, **named: Any) -> int:
        if path == "deep":
            raise PermissionError(13, "Permission denied")
        return really(path, *given, **named)

    monkeypatch.setattr(os, "open", refusing)
    assert await Bench(tree)("list", path="src", pattern="**") == "a.py\nlink (link)"


async def test_a_search_is_bounded(cwd: Path) -> None:
    (cwd / "many").write_text("x\n" * 1000 + "y" * 5000)
    bench = Bench(cwd)
    answer = await bench("search", text="x")
    assert answer.count("many:") == search.MATCH_LIMIT
    assert answer.endswith("[more than 200: search for less, or in fewer files]")
    assert len(await bench("search", text="y")) < 400
    for number in range(files.LIST_LIMIT + 5):
        (cwd / f"f{number}").touch()
    assert (await bench("list")).endswith("[more than 1,000: use a narrower pattern]")


async def test_an_expression_that_explodes_ends_and_the_loop_stays_free(cwd: Path) -> None:
    (cwd / "a").write_text("a" * 60 + "b")
    bench, turns = Bench(cwd), 0
    running = asyncio.create_task(bench("search", text=r"(a|aa)+(a|aa)+$", regex=True))
    while not running.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert running.result() == "failed: the regular expression takes too long: use a simpler one"
    assert turns > 20


async def test_a_cancelled_search_ends_its_thread(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cwd / "a").write_text("a" * 60 + "b")
    begun, over = threading.Event(), threading.Event()

    async def in_thread(work: Callable[[StopFlag], str]) -> str:
        def watched(stop: StopFlag) -> str:
            begun.set()
            try:
                return work(stop)
            finally:
                over.set()

        return await tools.in_thread(watched)

    monkeypatch.setattr(search, "in_thread", in_thread)
    running = asyncio.create_task(Bench(cwd)("search", text=r"(a|aa)+(a|aa)+$", regex=True))
    await eventually(begun.is_set)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert over.is_set()


@pytest.fixture
def blocked() -> Iterator[threading.Event]:
    """An event that is set at the end, so that no thread waits for it longer."""
    free = threading.Event()
    yield free
    free.set()


async def test_a_call_that_no_thread_has_begun_is_cancelled_at_once(blocked: threading.Event) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    done: list[StopFlag] = []
    others = asyncio.ensure_future(asyncio.to_thread(blocked.wait))
    waiting = asyncio.ensure_future(tools.in_thread(done.append))
    await asyncio.sleep(0)
    waiting.cancel()
    await eventually(waiting.done)
    blocked.set()
    await others
    assert waiting.cancelled() and not done


async def test_functions_of_python_that_never_return_leave_threads_for_tools(blocked: threading.Event) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    called = threading.Event()

    def provider(prompt: Prompt) -> str:
        called.set()
        return str(blocked.wait())

    asked = asyncio.ensure_future(FunctionSessions(provider).run(SessionRequest("session", "x", "c1/s0"), print))
    await eventually(called.is_set)
    asked.cancel()
    reading = asyncio.ensure_future(tools.in_thread(lambda _: "read"))
    await eventually(reading.done)
    assert reading.result() == "read"


# ---------------------------------------------------------------- prompts


async def test_a_rule_that_says_prompt_asks_with_the_whole_request(cwd: Path) -> None:
    person = ScriptedPerson("y", "n", "always")
    bench = Bench(cwd, {"write": "prompt"}, person=person, agent="writer")
    assert (await bench("write", path="a", content="one\ntwo")).startswith("Created")
    shown = person.transcript[0]
    assert "agent writer · c1/s0" in shown and "  | a\n  |\n  | one\n  | two\n" in shown
    assert "always = writing any file by agent writer" in shown
    assert await bench("write", path="b", content="x") == "refused: writing 'b' is not allowed: the person said no"
    for name in ("c", "d"):
        assert (await bench("write", path=name, content="x")).startswith("Created")
    assert names(cwd) == ["a", "c", "d"]


async def test_list_and_search_need_the_right_to_read(tree: Path) -> None:
    bench = Bench(tree, {"read": "prompt"}, person=ScriptedPerson("n", "n", "always"))
    assert await bench("list") == "refused: reading '.' is not allowed: the person said no"
    assert (
        await bench("search", text="needle", path="src") == "refused: reading 'src' is not allowed: the person said no"
    )
    assert await bench("search", text="needle", path="src/a.py") == "src/a.py:1: the needle of src/a.py"
    assert "  | a search for 'needle' in src/a.py" in bench.person.transcript[-2]
    assert (await bench("read", path="README.md")).startswith("the needle")
    assert (await bench("list")).endswith("src/")


async def test_a_prompt_rule_refuses_without_a_person(cwd: Path) -> None:
    refused = await Bench(cwd, {"write": "prompt"})("write", path="a", content="x")
    assert refused.startswith("refused: permission_denied: this session may not use `write`")
    left = Bench(cwd, {"write": "prompt"}, person=ScriptedPerson(available=True))
    left.person.available = False  # after the tool was offered
    assert await left("write", path="a", content="x") == (
        "refused: writing 'a' is not allowed: it needs approval, and no person can be asked"
    )


async def test_always_grants_nothing_that_is_forbidden_to_every_session(cwd: Path) -> None:
    bench = Bench(cwd, {"write": "prompt"}, person=ScriptedPerson("always", "y"))
    await bench("write", path="a", content="x")
    assert (await bench("write", path=".prose/.env", content="x")).startswith("refused: ")
    assert bench.person.answers == ["y"]  # the person was not asked


# ---------------------------------------------------------------- trace, arguments, odd tools


async def test_the_trace_is_the_same_wherever_and_whenever_it_runs(tmp_path: Path) -> None:
    traces = []
    for place, run in (("one", "20260301-101500-k3x9qa"), ("two", "20261122-080000-zzzzzz")):
        cwd = tmp_path / place
        binding = f".prose/runs/{run}/bindings/plan.md"
        (cwd / binding).parent.mkdir(parents=True)
        (cwd / binding).write_text("x" * 3000)
        bench = Bench(cwd, context=(ContextItem("plan", binding),))
        await bench("read", path=binding)
        await bench("read", path=f"{cwd}/{binding}")
        await bench("read", path=f"{cwd}/none.md")
        traces.append(bench.bench.trace)
        reported = [(each.kind, each.text, each.tool) for each in bench.progress]
        assert reported == [("tool", f"read {use.summary}", use) for use in bench.bench.trace]
    assert traces[0] == traces[1]
    first = traces[0][0]
    assert (first.summary, first.outcome) == (".prose/runs/{run}/bindings/plan.md", "ok")
    assert len(first.detail) == 2000 and first.detail.endswith("x…")
    assert traces[0][2].detail == "failed: 'none.md': there is no such file or directory"


async def test_control_characters_reach_the_model_but_not_the_trace(cwd: Path) -> None:
    (cwd / "a").write_text("\x1b[2Jhidden\n")
    bench = Bench(cwd)
    assert await bench("read", path="a") == "\x1b[2Jhidden\n"
    assert bench.last.detail == "\ufffd[2Jhidden\n"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "'path' is missing"),
        ({"path": 3}, "'path' must be a string"),
        ({"path": ""}, "'path' must be a non-empty text"),
        ({"path": "a", "offset": 0}, "'offset' must be at least 1"),
        ({"path": "a", "offset": True}, "'offset' must be an integer"),
        ({"path": "a", "offset": 1.5}, "'offset' must be an integer"),
        ({"path": "a", "mode": "rb"}, "there is no 'mode' (known: path, offset, limit)"),
    ],
)
async def test_invalid_arguments_are_answered_with_messages(cwd: Path, given: dict[str, Any], says: str) -> None:
    bench = Bench(cwd)
    assert await answer_of(bench.bench, "read", given) == f"failed: invalid arguments: {says}"
    assert bench.last.outcome == "failed"


@pytest.mark.parametrize(
    ("tool", "given", "shown"),
    [
        ("read", {}, ""),
        ("read", {"offset": 3}, '{"offset": 3}'),
        ("read", {"path": ["a"]}, '["a"]'),
        ("read", {"path": ""}, ""),
        ("write", {"content": "x"}, '{"content": "x"}'),
        ("edit", {"old": "x"}, '{"old": "x"}'),
        ("list", {}, "."),
        ("list", {"path": 3}, "3"),
    ],
)
async def test_a46_a_call_without_a_path_is_shown_as_it_was_made(
    cwd: Path, tool: str, given: dict[str, Any], shown: str
) -> None:
    bench = Bench(cwd, OPEN)
    await bench.bench.call(tool, given)
    assert bench.last.summary == shown
    assert bench.progress[-1].text == f"{tool} {shown}".rstrip()


def test_arrays_and_choices_are_checked_too() -> None:
    schema = {"properties": {"argv": {"type": "array", "items": {"type": "string"}}, "how": {"enum": ["a", "b"]}}}
    tools.check_arguments(schema, {"argv": ["x"], "how": "a", "more": 1})
    for wrong in ({"argv": "x"}, {"argv": [1]}, {"how": "c"}):
        with pytest.raises(ToolFailed):
            tools.check_arguments(schema, wrong)


class OddTool:
    def __init__(self, name: str, act: Callable[[], str]) -> None:
        self.spec = ToolSpec(name, "", {"type": "object", "properties": {}})
        self._act = act

    async def call(self, given: Mapping[str, object]) -> str:
        return self._act()


def refuse() -> str:
    raise ToolRefused("by this rule")


async def test_a_broken_tool_fails_the_call_but_not_the_session(cwd: Path) -> None:
    more = (OddTool("breaks", lambda: str(1 / 0)), OddTool("refuses", refuse), OddTool("works", lambda: "fine"))
    bench = Bench(cwd, {"read": "deny", "network": "deny"}, more=more)
    assert await bench("breaks") == "failed: the tool broke (ZeroDivisionError)"
    assert await bench("refuses") == "refused: by this rule"
    assert await bench("works", command="make  test") == "fine"
    assert await bench("Nope") == "there is no tool 'Nope' here (tools: breaks, refuses, works)"
    assert bench.bench.trace == (
        ToolUse("breaks", "", "failed", "failed: the tool broke (ZeroDivisionError)"),
        ToolUse("refuses", "", "refused", "refused: by this rule"),
        ToolUse("works", "make test", "ok", "fine"),
        ToolUse("Nope", "", "failed", "there is no tool 'Nope' here (tools: breaks, refuses, works)"),
    )


async def test_parallel_calls_run_in_the_order_they_were_made(cwd: Path) -> None:
    bench = Bench(cwd, OPEN)
    await asyncio.gather(*(bench("write", path="a", content=str(number)) for number in range(20)))
    assert (cwd / "a").read_text() == "19"
    assert bench.bench.writes == (FileWrite("a", None, "19"),)


# ---------------------------------------------------------------- files written by a session


def producing(cwd: Path) -> Bench:
    place = f"{RUN}/bindings/plan.md"
    memory = AgentMemory("captain", "project", ".prose/agents/captain/", resume=True)
    return Bench(cwd, {"write": ("out/",)}, target=AnswerFile("plan", place, HEADER), memory=memory)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (HEADER + "Go", "Go"),
        (HEADER.rstrip() + "\nGo", "Go"),
        ("# plan\n\nkind: let\n\nsource:\n```prose\nother\n```\n\n---\n\nGo", "Go"),
        ("# plan\n\nkind: let\n\n---\n\nGo", "Go"),
        ("Go", "Go"),
        (HEADER, ""),
    ],
)
async def test_the_value_is_found_after_a_malformed_header(cwd: Path, written: str, value: str) -> None:
    assert harvested(cwd, written, SessionResult("ok")).text == value


async def test_files_written_by_an_agent_become_the_result(cwd: Path) -> None:
    result = answered("Binding written: plan\nSummary: A plan.", provider="stub", origin="agent")
    found = harvested(cwd, HEADER + "Go\n---\nsouth\n", result)
    assert (found.text, found.summary) == ("Go\n---\nsouth\n", "A plan.")
    assert (found.memory_after, found.segment) == ("# captain\n", "# Segment 001\n")
    assert (found.provider, found.origin) == ("stub", "agent")


async def test_without_written_files_the_reply_is_the_answer(cwd: Path) -> None:
    binding = cwd / RUN / "bindings" / "plan.md"
    binding.parent.mkdir(parents=True)
    binding.write_text(HEADER + "of a former attempt")
    outputs = SessionOutputFiles(producing(cwd).request, Surroundings(str(cwd)))
    assert outputs.added_to(SessionResult("The answer")).text == "The answer"
    announced = answered("Binding written: plan", provider="stub", origin="agent")
    assert outputs.added_to(announced).text is None
    assert outputs.added_to(announced).memory_after is None


def harvested(cwd: Path, written: str, result: SessionResult) -> SessionResult:
    """Return the result of a session that has written its binding, memory and segment."""
    outputs = SessionOutputFiles(producing(cwd).request, Surroundings(str(cwd)))
    files = {
        f"{RUN}/bindings/plan.md": written,
        ".prose/agents/captain/memory.md": "# captain\n",
        ".prose/agents/captain/captain-001.md": "# Segment 001\n",
    }
    for name, text in files.items():
        (cwd / name).parent.mkdir(parents=True, exist_ok=True)
        (cwd / name).write_text(text)
    return outputs.added_to(result)


async def test_files_written_by_other_programs_are_found_too(cwd: Path) -> None:
    bench = producing(cwd)
    outputs = SessionOutputFiles(bench.request, Surroundings(str(cwd)))
    (cwd / RUN / "bindings").mkdir(parents=True)
    (cwd / RUN / "bindings" / "plan.md").write_text(HEADER + "Go")
    assert outputs.added_to(SessionResult(None)).text == "Go"


async def test_a_link_or_a_pipe_that_a_session_left_in_the_place_of_its_binding_is_not_followed(cwd: Path) -> None:
    bench = producing(cwd)
    place = cwd / RUN / "bindings" / "plan.md"
    place.parent.mkdir(parents=True)
    (cwd / "secret").write_text("mine")
    outputs = SessionOutputFiles(bench.request, Surroundings(str(cwd)))
    place.symlink_to(cwd / "secret")
    assert outputs.added_to(SessionResult("said")).text == "said"
    place.unlink()
    os.mkfifo(place)
    assert outputs.added_to(SessionResult("said")).text == "said"


async def test_memory_that_lives_with_a_run_in_memory_grants_no_file(cwd: Path) -> None:
    memory = AgentMemory("captain", "true", "", resume=True, text="x")
    bench = Bench(cwd, {"read": "deny", "network": "deny"}, memory=memory)
    assert bench.bench.specs == ()


async def test_a_binding_in_a_database_is_read_by_its_location_and_nothing_else_of_it(cwd: Path) -> None:
    """openprose.md 4.3, 5.10: a session reads bindings, but has no connection to the database, which also holds the gates."""
    database = f"{RUN}/state.db"
    (cwd / database).parent.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(cwd / database)) as made:
        made.execute("CREATE TABLE gates (id TEXT)")
    where = f"{database} (bindings table, name='plan', execution_id=NULL)"
    item = ContextItem("plan", location=where, content="one\ntwo\nthree", row=True)
    bench = Bench(cwd, {"read": ("./",), "write": ("./",)}, context=(item,))
    assert await bench("read", path=where) == "one\ntwo\nthree"
    assert await bench("read", path=where, offset=2, limit=1) == "two\n\n\n[cut before line 3: read on with offset 3]"
    assert bench.last.summary == f"{where.replace(RUN, '.prose/runs/{run}')} offset 2 limit 1"
    assert "is not" in await bench("read", path=where.replace("plan", "other")) or bench.last.outcome == "failed"
    assert "is a database: read a binding in it by the whole location" in await bench("read", path=database)
    for tool, more in (("write", {"content": "x"}), ("edit", {"old": "a", "new": "b"})):
        assert "refused" in await bench(tool, path=database, **more)


def test_other_programs_get_the_content_of_rows() -> None:
    rows = (
        ContextItem("plan", location="state.db (bindings table, …)", content="the plan", row=True),
        ContextItem("notes", location="notes.md", content="the notes"),
    )
    request = SessionRequest("session", "Do it", "c1/s0", context=rows)
    assert "- plan: state.db (bindings table, …)" in assemble(request).text
    message = assemble(with_row_texts(request)).text
    assert "- plan: the plan" in message and "- notes: notes.md" in message
