"""Amendment A36: files from others are plain files or are refused; nothing hangs, nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import forked
import pytest
from published_secrets import PUBLISHED, secret_part
from stubs.model_server import StubServer

from prose_kernel.access import atomic, jsonl, plain_files
from prose_kernel.cli.main import main
from prose_kernel.runtime import redaction

VICTIM = "# the start file of a shell\n"
PROGRAM = 'let a = exec "echo one"\noutput said = a\n'
CELL = {"cell_type": "code", "metadata": {}, "outputs": [], "source": "exec 'true'", "execution_count": None}
NOTEBOOK = {"nbformat": 4, "nbformat_minor": 4, "metadata": {"kernelspec": {"name": "prose"}}, "cells": [CELL]}
SPEC = 'program = "p.prose"\ndataset = "cases.jsonl"\n[[assert]]\nrule = "said is not empty"\n'


STUB = StubServer()


@pytest.fixture(autouse=True, scope="module")
def model_server() -> Iterator[None]:
    with STUB:
        yield


@pytest.fixture(autouse=True)
def nothing_waits() -> Iterator[None]:
    """Fail a test that hangs, as it would if it opened a pipe."""

    def stop(*_: object) -> None:
        raise TimeoutError("it waits")

    former = signal.signal(signal.SIGALRM, stop)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, former)


def put(kind: str, path: Path) -> None:
    """Create a `kind` of file that is not a plain file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "link":
            victim = path.parent / f"{path.name}.victim"
            victim.write_text(VICTIM)
            path.symlink_to(victim.name)
        case "dangling link":
            path.symlink_to("not-there-yet")
        case "endless device":
            path.symlink_to("/dev/zero")
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(os.path.relpath(path))
        case "directory":
            path.mkdir()


KINDS = ("link", "dangling link", "endless device", "pipe", "socket", "directory")
WORDS = {"link": "link", "dangling link": "link", "endless device": "link"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_a36_nothing_but_a_plain_file_is_opened(kind: str, here: Path) -> None:
    path = here / "there"
    put(kind, path)
    for work in (
        lambda: plain_files.read(path),
        lambda: jsonl.append(path, b"x"),
        lambda: atomic.write_whole(path, "x", in_place=True),
        lambda: plain_files.descriptor(path, os.O_RDWR | os.O_CREAT),
    ):
        with pytest.raises(OSError, match=f"it is a {WORDS.get(kind, kind)}"):
            work()
    if kind == "link":
        assert (here / "there.victim").read_text() == VICTIM
    assert not (here / "not-there-yet").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes devices")
def test_a36_a_device_is_refused(here: Path) -> None:
    os.mknod(here / "zero", 0o20666, os.makedev(1, 5))
    with pytest.raises(OSError, match="it is a device"):
        plain_files.read(here / "zero")


def test_a36_a_file_larger_than_the_limit_is_not_read(here: Path) -> None:
    (here / "large").touch()
    os.truncate(here / "large", 50 << 30)
    with pytest.raises(OSError, match="it is larger than 256 megabytes, the limit"):
        plain_files.read(here / "large")
    with pytest.raises(OSError, match="larger than"):
        plain_files.read("/proc/self/maps", 10)  # its size is 0


def test_a_small_file_needs_little_memory_whatever_the_limit(here: Path) -> None:
    (here / "small").write_text("few bytes")
    tracemalloc.start()
    try:
        assert plain_files.read(here / "small", plain_files.LARGE) == b"few bytes"
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_pipe_is_read_to_its_end_and_not_past_the_limit(here: Path) -> None:
    for size, limit in ((3_000_000, plain_files.LARGE), (3_000_000, 3_000_000)):
        with subprocess.Popen(["head", "-c", str(size), "/dev/zero"], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert len(plain_files.read_named(f"/dev/fd/{process.stdout.fileno()}", limit)) == size
    with subprocess.Popen(["head", "-c", "3000001", "/dev/zero"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with pytest.raises(OSError, match="larger than"):
            plain_files.read_named(f"/dev/fd/{process.stdout.fileno()}", 3_000_000)


def test_a36_a_link_typed_by_a_person_is_followed(here: Path) -> None:
    put("link", here / "there")
    assert plain_files.read_named(here / "there") == VICTIM.encode()
    put("endless device", here / "zero")
    with pytest.raises(OSError, match="it is a device"):
        plain_files.read_named(here / "zero")


def test_a36_writing_whole_replaces_a_link_and_keeps_its_target(here: Path) -> None:
    put("link", here / "there")
    atomic.write_whole(here / "there", "new")
    assert not (here / "there").is_symlink()
    assert ((here / "there").read_text(), (here / "there.victim").read_text()) == ("new", VICTIM)


# ---------------------------------------------------------------- each command with each kind of file


def _session(here: Path) -> None:
    (here / "p.prose").write_text('let a = session "Say hello"\n')
    (here / "s.yaml").write_text('"*": hello\n')


def _asked(here: Path) -> None:
    _session(here)
    table = f'[providers.stub]\nkind = "openai"\nbase_url = "{STUB.openai_url}"\nmodel = "ok-1"\n'
    (here / "prose.toml").write_text(table)


def _spec(here: Path) -> None:
    (here / "p.prose").write_text(PROGRAM)
    (here / "e.eval.toml").write_text(SPEC)
    (here / "cases.jsonl").write_text('{"id": "1"}\n')


def _plain(here: Path) -> None:
    (here / "p.prose").write_text(PROGRAM)


def _imports(here: Path) -> None:
    (here / "p.prose").write_text('use "./lib.prose" as lib\nlet x = lib()\n')


def _notebook(here: Path) -> None:
    (here / "n.ipynb").write_text(json.dumps(NOTEBOOK))


SITES: list[tuple[str, Callable[[Path], None], tuple[str, ...], int]] = [
    ("p.prose", _plain, ("run", "p.prose"), 2),
    ("p.prose", _plain, ("compile", "p.prose"), 2),
    ("p.prose", _plain, ("fmt", "p.prose", "--write", "--drop-comments"), 2),
    ("p.vvm", _plain, ("run", "p.vvm"), 2),
    ("lib.prose", _imports, ("run", "p.prose"), 2),
    ("prose.toml", _plain, ("run", "p.prose"), 2),
    (".prose/.env", _plain, ("run", "p.prose"), 2),
    ("s.yaml", _session, ("run", "p.prose", "--provider", "scripted", "--script", "s.yaml"), 2),
    ("cassettes/session.jsonl", _asked, ("run", "p.prose", "--provider", "stub", "--cassette-mode", "auto"), 0),
    ("cassettes/session.jsonl", _asked, ("run", "p.prose", "--provider", "stub", "--cassette-mode", "record"), 0),
    ("cassettes/session.jsonl", _session, ("run", "p.prose", "--cassette-mode", "replay"), 3),
    ("cassettes/session.jsonl", _plain, ("cassette", "tidy"), 2),
    ("cassettes/session.jsonl", _plain, ("cassette", "tidy", "cassettes/session.jsonl"), 2),
    ("cassettes/session.jsonl", _plain, ("cassette", "redact"), 2),
    ("cassettes/session.jsonl", _plain, ("cassette", "show"), 2),
    ("p.prose.expected.md", _plain, ("test", "p.prose", "--update"), 1),
    ("n.ipynb", _notebook, ("test", "n.ipynb", "--update"), 1),
    ("e.eval.toml", _spec, ("eval", "e.eval.toml"), 2),
    ("cases.jsonl", _spec, ("eval", "e.eval.toml"), 2),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("site", SITES, ids=lambda site: f"{' '.join(site[2])}: {site[0]}")
def test_a36_no_command_hangs_or_writes_elsewhere(
    kind: str,
    site: tuple[str, Callable[[Path], None], tuple[str, ...], int],
    here: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    name, prepare, arguments, status = site
    prepare(here)
    path = here / name
    path.unlink(missing_ok=True)
    put(kind, path)
    found = main(list(arguments))
    seen = capfd.readouterr()
    assert "Internal error" not in seen.err
    named = name in arguments and arguments[0] in ("run", "compile", "eval")
    if not (kind == "link" and named):  # a link typed by a person is read
        assert found in (status, 2 if kind == "dangling link" else 5 if kind == "directory" else status), seen.err
        printed = (seen.out + seen.err).casefold()
        assert (
            "it is a" in printed
            or "is a directory" in printed
            or "nothing to test" in printed
            or (kind == "dangling link" and ("no such file" in printed or "no file" in printed))
        ), seen
    for victim in here.rglob("*.victim"):
        assert victim.read_text() == VICTIM
    assert not (here / "not-there-yet").exists()


def test_a36_an_unreadable_journal_does_not_stop_the_list_of_runs(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _plain(here)
    assert main(["run", "p.prose"]) == 0
    runs = here / ".prose" / "runs"
    (real,) = [path.name for path in runs.iterdir()]
    for number, kind in enumerate(KINDS):
        for name in ("journal.jsonl", "state.md"):
            put(kind, runs / f"20260101-00000{number}-aaaaaa" / name)
    put("pipe", runs / "20260101-000009-aaaaaa" / "state.db")
    capfd.readouterr()
    assert main(["runs"]) == 0
    assert real in capfd.readouterr().out
    for number in range(len(KINDS)):
        assert main(["runs", "show", f"20260101-00000{number}-aaaaaa"]) == 0
        assert main(["run", "--resume", f"20260101-00000{number}-aaaaaa"]) == 2
    assert "Internal error" not in capfd.readouterr().err


def test_a36_files_opened_by_the_shell_are_read(here: Path) -> None:
    signal.alarm(150)  # the start of an interpreter takes time
    (here / "real.prose").write_text(PROGRAM)
    (here / "linked.prose").symlink_to("real.prose")
    (here / "prose.py").write_text("import sys; from prose_kernel.cli.main import main; sys.exit(main())")
    (here / "shell").mkdir()
    with forked.in_shells(here / "shell"):
        for line in (
            "prose run linked.prose",
            "prose run /dev/stdin < real.prose",
            "cat real.prose | prose run /dev/stdin",
            "cat real.prose | prose run -",
            f"{sys.executable} prose.py run <(cat real.prose)",  # a forked test process has only the three standard streams
        ):
            done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
            assert (done.returncode, "one" in done.stdout) == (0, True), (line, done.stderr)


@pytest.fixture
def another_process() -> Iterator[None]:
    """Clear the cache of secrets, which a process reads once from its environment."""
    redaction._replacer.cache_clear()
    yield
    redaction._replacer.cache_clear()


def noted(record: bytes) -> bytes:
    """Return the fields of a journal line without the program's own values: its text and answers."""
    data = json.loads(record[9:])
    answers = dict.fromkeys(("answered", "completed", "step-ended"), ("value", "error"))
    for own in {"text": ("text", "supplied"), "noted": ("value",), **answers}.get(data["k"], ()):
        data.pop(own, None)
    return json.dumps(data).encode()


@pytest.mark.usefixtures("another_process")
def test_a38_git_ignores_the_state_directory_and_no_file_of_a_run_holds_a_secret_of_the_environment(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Bindings and the journal hold the program's own values. Text written about these values holds no secret."""
    signal.alarm(120)
    tokens = [token for each in PUBLISHED.values() for token in each]
    assert len(tokens) >= 54
    secrets = {f"S{number}_TOKEN": token for number, token in enumerate(tokens)}
    parts = {name: secret_part(value).encode() for name, value in secrets.items()}
    parts |= {"MY_API_KEY": b"qX7-plumage-4491-tundra", "OTHER_TOKEN": b"zZ9-lantern-2288-walnut"}
    secrets["MY_API_KEY"] = "qX7-plumage-4491-tundra"
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PROSE_TELEMETRY_LOG", "spans.jsonl")
    monkeypatch.setenv("PROSE_TELEMETRY_CONTENT", "true")
    (here / ".prose").mkdir()
    (here / ".prose" / ".env").write_text("OTHER_TOKEN=zZ9-lantern-2288-walnut\n")
    lines = []
    for name, value in secrets.items():
        lines += [f'let {name} = exec "printenv {name}"', f'try:\n  exec "printenv {name} >&2; exit 3"\ncatch as err:']
        lines += ['  exec "true # {err.message}"', f'try:\n  throw "no {{{name}}}"\ncatch:', '  exec "true"']
        if "PRIVATE" not in value:  # sessions with a private key are refused
            lines.append(f'let said_{name} = session "Say {{{name}}}"')
    lines += ['gate go:\n  prompt: "Go on with {S0_TOKEN}?"', 'throw "no {MY_API_KEY}"']
    (here / "p.prose").write_text("\n".join(lines))
    table = f'[providers.stub]\nkind = "openai"\nbase_url = "{STUB.openai_url}"\nmodel = "echo-1"\n'
    (here / "prose.toml").write_text(table)
    options = ["--provider", "stub", "--yes", "go", "--cassette", "kept", "--cassette-mode", "record"]
    assert main(["run", "p.prose", *options]) == 1, capfd.readouterr()
    assert (here / ".prose" / ".gitignore").read_text() == "*\n"
    (run,) = (here / ".prose" / "runs").iterdir()
    assert main(["report", run.name, "--output", "r.html"]) == 0
    own = [here / "p.prose", here / ".prose" / ".env"]
    files = {path for path in here.rglob("*") if path.is_file() and path not in own}
    assert {"state.md", "journal.jsonl", "spans.jsonl", "kept.jsonl", "r.html"} <= {path.name for path in files}
    for path in sorted(files):
        if path.parent.name == "bindings":
            continue
        data = path.read_bytes()
        if path.name == "journal.jsonl":
            assert path.stat().st_mode & 0o777 == 0o600
            data = b"\n".join(map(noted, data.splitlines()))
        assert not [name for name, part in parts.items() if part in data], path


@pytest.mark.usefixtures("another_process")
@pytest.mark.parametrize("state", ["filesystem", "sqlite"])
@pytest.mark.parametrize("written", [False, True])
def test_a38_notes_of_a_run_about_programs_and_answers_hold_no_secret(
    written: bool, state: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that prints no secret leaves none in any file; one whose text holds some leaves them only there."""
    names = {"MY_API_KEY": "qX7-plumage-4491-tundra", "SITE_URL": "postgresql://me:Tr0ub4dor-and-three@localhost:1/x"}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PROSE_TELEMETRY_LOG", ".prose/runs/spans.jsonl")
    monkeypatch.setenv("PROSE_TELEMETRY_CONTENT", "true")
    (here / ".prose" / "runs").mkdir(parents=True)
    (here / ".prose" / ".env").write_text("OTHER_TOKEN=zZ9-lantern-2288-walnut\n")
    parts = [b"qX7-plumage-4491-tundra", b"Tr0ub4dor-and-three", b"zZ9-lantern-2288-walnut"]
    key, url, other = ([part.decode() for part in parts]) if written else ("$MY_API_KEY", "$SITE_URL", "none")
    (here / "p.prose").write_text(
        f'exec "true {key} {url} {other}"\ntry:\n  exec "exit 3 # {key}"\ncatch as err:\n  session "Say {other}"\n'
        f'gate go:\n  prompt: "Go on with {other}?"\nthrow "no {key}"\n'
    )
    (here / "s.yaml").write_text('"*": hello\n')
    options = ["--provider", "scripted", "--script", "s.yaml", "--state", state, "--yes", "go"]
    assert main(["run", "p.prose", *options]) == 1
    files = [path for path in (here / ".prose" / "runs").rglob("*") if path.is_file()]
    assert {"journal.jsonl", "spans.jsonl"} <= {path.name for path in files}
    for path in files:
        data = path.read_bytes()
        if written and path.name == "journal.jsonl":
            data = b"\n".join(line for line in data.split(b"\n") if b'{"k":"text"' not in line)
        if not (written and (path.name == "program.prose" or path.parent.name == "bindings" or ".db" in path.name)):
            assert not [part for part in parts if part in data], path


@pytest.mark.parametrize("step", ['a = "{a}{a}"', "a = a + a"])
def test_a32_a_doubled_text_ends_at_a_hundred_million_characters(
    step: str, here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prose_kernel.runtime.values.LONGEST_TEXT", 10_000)  # a smaller bound, reached sooner
    monkeypatch.setattr("prose_kernel.machine.openprose.expressions.LONGEST_TEXT", 10_000)
    (here / "p.prose").write_text(f'let a = "0123456789x"\nrepeat 60:\n  {step}\noutput n = "done"\n')
    assert main(["run", "p.prose"]) == 1
    printed = capfd.readouterr().err
    assert "E209" in printed and "more than 10,000 characters" in printed
