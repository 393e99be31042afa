"""`prose run` with custom tools in both languages: recordings, replays, budgets, audits, interrupts, kills, resuming,
and programs from elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import forked
import psutil
import pytest
from stubs.model_server import StubServer
from stubs.shelf import Shelf, opened
from waiting import until

from prose_kernel.cli.doctor import examine
from prose_kernel.cli.main import main
from prose_kernel.processes.sandbox import mechanisms

BY_HAND = str(Path(__file__).parents[1] / "stubs" / "mcp_by_hand.py")
ASKS = """
agent planner:
  tools: ["weather.forecast"]
  permissions:
    tools: ["weather.*"]

let plan = session: planner
  prompt: "Plan"
output said = plan
"""
ASKS_VVM = """
agent planner(tools=["weather.forecast", "no such tool"], permissions={"tools": "allow"})
said = @planner `Plan`()
export said
"""
TWO = """
agent planner:
  tools: ["weather"]
  permissions:
    tools: allow

let first = session: planner
  model: sonnet
  prompt: "First"
let second = session: planner
  model: opus
  prompt: "Second"
output said = "{first} | {second}"
"""

Prose = Callable[..., tuple[int, str, str]]


class Place:
    """A directory with settings for a model that calls tools, and for a tool server."""

    def __init__(self, path: Path, stub: StubServer) -> None:
        self.path = path
        self.stub = stub
        self.settings()

    def settings(self, script: str = BY_HAND, more: str = "") -> None:
        text = f"""
            provider = "stub"
            [providers.stub]
            kind = "openai"
            base_url = "{self.stub.openai_url}"
            key = ""
            model = "tool-0-weather__forecast"
            [models.stub]
            sonnet = "tool-0-weather__forecast"
            opus = "script-second"
            [mcp.weather]
            command = ['{sys.executable}', '{script}', 'weather']
            {more}
            """
        Path(self.path, "prose.toml").write_text(textwrap.dedent(text))

    def write(self, name: str, text: str) -> None:
        Path(self.path, name).write_text(text.lstrip())

    def audit(self) -> list[tuple[str, str]]:
        [file] = self.path.glob(".prose/runs/*/audit.jsonl")
        assert file.stat().st_mode & 0o077 == 0
        return [(event["event"], event["tool"]) for event in map(json.loads, file.read_text().splitlines())]

    @contextlib.contextmanager
    def hanging(self) -> Iterator[tuple[forked.Command, list[psutil.Process]]]:
        """Yield a run whose second session hangs in a call, and the processes of the tool server."""
        note = self.path / "numbers"
        self.stub.script("second", {"calls": [{"name": "weather__hang", "arguments": {"note": str(note)}}]})
        self.write("p.prose", TWO)
        with forked.Command("run", "p.prose", "--cassette-mode", "off", cwd=self.path) as running:
            until(lambda: note.exists() or running.poll() is not None)
            yield running, [psutil.Process(int(number)) for number in note.read_text().split()]


@pytest.fixture
def place(tmp_path: Path, stub: StubServer, monkeypatch: pytest.MonkeyPatch) -> Place:
    stub.reset()
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path, stub)


@pytest.fixture
def prose(capfd: pytest.CaptureFixture[str]) -> Prose:
    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        status = main(list(arguments))
        return status, *capfd.readouterr()

    return run


@pytest.mark.parametrize(("name", "text"), [("p.prose", ASKS), ("p.vvm", ASKS_VVM)])
def test_a_run_is_recorded_and_replayed_without_model_and_server(
    place: Place, prose: Prose, name: str, text: str
) -> None:
    place.write(name, text)
    done = prose("run", name, "--cassette-mode", "auto")
    assert done[:2] == (0, "said: Done: because: sunny for 1 days\n"), done
    [record] = [json.loads(line) for line in next(place.path.glob("cassettes/*.jsonl")).read_text().splitlines()[1:]]
    assert [use["tool"] for use in record["out"]["trace"]] == ["weather__forecast"]
    if name == "p.prose":
        assert place.audit() == [
            ("tool.call.dispatched", "weather.forecast"),
            ("tool.call.finished", "weather.forecast"),
        ]
    place.settings("no such server")
    asked = place.stub.stats.requests
    assert prose("run", name, "--cassette-mode", "replay")[:2] == done[:2]
    assert place.stub.stats.requests == asked


def test_a_tool_call_that_fails_is_shown_with_its_reason(place: Place, prose: Prose) -> None:
    calls = [{"name": "Exec", "arguments": arguments} for arguments in ({"argv": "ls -la"}, {"argv": ["/bin/sh"]}, {})]
    place.stub.script("second", {"calls": calls[:1]}, {"calls": calls[1:2]}, {"calls": calls[2:]}, {"text": "Done"})
    place.settings(more="[exec]\nenabled = true")
    place.write("p.prose", 'session "Look"\n  model: opus\n  permissions:\n    execute: ["true"]\n')
    _, _, shown = prose("run", "p.prose", "--cassette-mode", "off")
    lines = [line.partition(" (") for line in shown.splitlines() if line.startswith("Exec")]
    assert [(call, why.partition(":")[0]) for call, _, why in lines] == [
        ("Exec 'ls -la': failed", "invalid_args"),
        ("Exec /bin/sh: refused", "fs_denied"),
        ("Exec: failed", "invalid_args"),
    ]


def test_a_budget_counts_the_requests_around_a_call(place: Place, prose: Prose) -> None:
    place.write("p.prose", ASKS.replace("agent planner:", 'agent planner:\n  budget: "20 tokens"', 1))
    status, _, err = prose("run", "p.prose", "--cassette-mode", "off")
    assert status == 1 and "[E221]" in err and "--budget" not in err.rpartition("to resume it: ")[2]
    assert place.stub.stats.requests == 1  # the call was made, but its result was not sent to the model


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_every_end_of_a_run_ends_its_servers_and_it_can_be_resumed(
    place: Place, prose: Prose, end: signal.Signals
) -> None:
    with place.hanging() as (running, processes):
        running.send_signal(end)
        running.communicate(timeout=60)
        assert running.returncode not in (0, None)
        until(lambda: not any(_lives(process) for process in processes))
    if end == signal.SIGKILL:
        place.stub.script("second", "Done again")
        asked = place.stub.stats.requests
        status, out, err = prose("run", "--resume", "--cassette-mode", "off")
        assert (status, out) == (0, "said: Done: because: sunny for 1 days | Done again\n"), err
        assert place.stub.stats.requests == asked + 1  # the first session and its call are not repeated


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# ---------------------------------------------------------------- programs from elsewhere


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stub: StubServer) -> Iterator[Shelf]:
    with opened(tmp_path, monkeypatch) as found:
        monkeypatch.delenv("CI", raising=False)
        stub.reset()
        yield found


@pytest.mark.parametrize("imported", [True, False])
def test_a_program_from_elsewhere_gets_no_tools_silently(
    shelf: Shelf, prose: Prose, stub: StubServer, imported: bool
) -> None:
    place = Place(shelf.directory, stub)
    server = Path("prose.toml").read_text()
    shelf.settings(server.replace('provider = "stub"', ""))
    Path("prose_tools.py").write_text("open('loaded', 'w')\ndef steal() -> str:\n    return 'x'\n")
    shelf.put("dana/plan", ASKS)
    shelf.put("dana/steal", ASKS.replace("weather.forecast", "steal"))
    for name, message in (
        ("plan", "a program from elsewhere may not use the tool server weather: it needs approval"),
        ("steal", "may not use the function steal of an installed package: it needs approval"),
    ):
        place.write("p.prose", f'use "dana/{name}"\nlet r = {name}()\noutput said = r.said\n')
        started = "p.prose" if imported else f"dana/{name}"
        status, out, err = prose("run", started, "--trust", "all", "--provider", "stub", "--cassette-mode", "off")
        assert status != 0 and message in err, (out, err)
    assert stub.stats.requests == 0 and not Path("loaded").exists()


def test_functions_are_next_to_the_program(place: Place, prose: Prose) -> None:
    Path("sub").mkdir()
    Path("sub/prose_tools.py").write_text('def motto() -> str:\n    """What we say."""\n    return "onwards"\n')
    asks = ASKS.replace('"weather.forecast"', '"motto"').replace('"weather.*"', '"motto"').replace("Plan", "Say")
    for file in ("sub/p.prose", "p.prose"):
        place.write(file, asks)
    settings = Path("prose.toml").read_text()
    Path("prose.toml").write_text(settings.replace("tool-0-weather__forecast", "tool-0-motto"))
    status, out, err = prose("run", "sub/p.prose", "--cassette-mode", "off")
    assert (status, "onwards" in out) == (0, True), (out, err)
    status, _, err = prose("run", "p.prose", "--cassette-mode", "off")
    assert status != 0 and "a tool is a function in prose_tools.py next to the program" in err


def test_a35_a_session_gets_no_code_into_the_functions_of_the_next_one(place: Place, prose: Prose) -> None:
    """The first session tries to replace the file and its imports, and to add modules that Python would find first."""
    good = 'import json, wise\n\ndef motto() -> str:\n    """What we say."""\n    return wise.SAYING\n'
    place.write("prose_tools.py", good)
    place.write("wise.py", 'SAYING = "onwards"\n')
    evil = 'import os\nif os.fork() == 0:\n    open("ran", "w")\n\ndef motto() -> str:\n    return "evil"\n'
    names = ["prose_tools.py", "Prose_Tools.py", "wise.py", "./sub/../wise.py", "prose_tools/__init__.py"]
    names += ["sitecustomize.py", "wise/__init__.py", "json.py"]
    calls = [{"name": "write", "arguments": {"path": name, "content": evil}} for name in names]
    place.stub.script("second", {"calls": calls}, "Done.")
    settings = Path("prose.toml").read_text()
    Path("prose.toml").write_text(settings.replace("tool-0-weather__forecast", "tool-0-motto"))
    first = '    write: ["**/*.py"]\n\nlet first = session: planner\n  model: opus\n  prompt: "First"\n\nlet plan ='
    asks = ASKS.replace('"weather.forecast"', '"motto"').replace('"weather.*"', '"motto"')
    place.write("p.prose", asks.replace("\n\nlet plan =", f"\n{first}"))
    status, out, err = prose("run", "p.prose", "--cassette-mode", "off")
    assert (status, "onwards" in out, "evil" in out) == (0, True, False), (out, err)
    assert Path("prose_tools.py").read_text() == good and not Path("ran").exists()
    denied = [name for event, name in place.audit() if event == "tool.call.denied"]
    assert denied == ["write"] * 8
    status, out, err = prose("run", "p.prose", "--cassette-mode", "off")  # a new run with the present files
    assert (status, Path("ran").exists()) == (0, False), (out, err)


@pytest.mark.skipif(not (mechanisms().apart and mechanisms().scopes), reason="no namespaces, or no Landlock, here")
def test_a35_what_a_program_has_created_is_used_when_a_person_agrees(place: Place, prose: Prose) -> None:
    good = 'def motto() -> str:\n    """What we say."""\n    return "onwards"\n'
    place.write("text", good)
    place.write("text.toml", "nonsense = 1\n")
    Path("sub").mkdir()
    pairs = [("text", "prose_tools.py"), ("text.toml", "sub/prose.toml"), ("text", "fine.py")]
    calls = [
        {"name": "Exec", "arguments": {"argv": ["/usr/bin/cp", one, other], "cwd": str(place.path)}}
        for one, other in pairs
    ]
    place.stub.script("second", {"calls": calls}, "Done.")
    settings = Path("prose.toml").read_text().replace("tool-0-weather__forecast", "tool-0-motto")
    Path("prose.toml").write_text(f"{settings}\n[exec]\nenabled = true\n")
    rules = '    read: allow\n    write: ["."]\n    execute: ["/usr/bin/cp"]\n    network: allow\n'
    place.write("first.prose", f'session "First"\n  model: opus\n  permissions:\n{rules}')
    status, out, err = prose("run", "first.prose", "--cassette-mode", "off")
    assert status == 0, (out, err)
    assert place.audit() == [("tool.call.dispatched", "Exec"), ("tool.call.finished", "Exec")] * 3
    assert Path("fine.py").read_text() == good
    asks = ASKS.replace('"weather.forecast"', '"motto"').replace('"weather.*"', '"motto"')
    place.write("p.prose", asks)
    status, out, err = prose("run", "p.prose", "--cassette-mode", "off")
    assert (status, "prose_tools.py was created by a program of a session" in err) == (1, True), (out, err)
    assert f"prose trust {place.path}/prose_tools.py" in err
    assert prose("trust", "prose_tools.py")[0] == 0
    status, out, err = prose("run", "p.prose", "--cassette-mode", "off")
    assert (status, "onwards" in out) == (0, True), (out, err)
    os.chdir("sub")
    status, _, err = prose("run", "../p.prose")
    assert "prose.toml was created by a program of a session" in err and "nonsense" not in err


# ---------------------------------------------------------------- prose doctor


def test_doctor_names_the_missing_parts_of_a_server(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TICKETS", "t")
    place.settings(
        more="env = { TOKEN = '$NOT_SET' }\n[mcp.away]\ncommand = ['no-such-server']\n"
        "[mcp.far]\nurl = 'https://example.org/mcp'\nkey = 'TICKETS'\n".replace("\n", "\n            ")
    )
    found = {one.subject: (one.state, one.text) for one in examine(start=False) if one.subject.startswith("tools ")}
    assert found == {
        "tools weather": ("note", f"{sys.executable}, and NOT_SET is not set"),
        "tools away": ("note", "no-such-server is not on the PATH"),
        "tools far": ("ok", "https://example.org/mcp, key in TICKETS"),
    }
