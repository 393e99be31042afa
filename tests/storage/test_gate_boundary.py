"""A process started by a run cannot decide the run's gates (docs/reference/openprose.md 5.10, amendments A6, A8, A10; docs/explanation/threat-model.md)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import forked
import psutil
import pytest
from gate_people import RUN, Person, request

from prose_kernel.access import peers
from prose_kernel.cli.main import main
from prose_kernel.errors import GateRefused
from prose_kernel.processes import system
from prose_kernel.processes.engine import Engine
from prose_kernel.processes.long_lived_processes import Helpers
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.storage.gates.deciding import Gatekeeper, GatePolicy
from prose_kernel.storage.gates.file_records import FileRecords
from prose_kernel.storage.gates.second_process import Decider, Resolution, pending_gates, resolve_gate

CLIENT = '''
"""Ask for approval of the gate `go` over the socket; print the answer."""
import glob, json, os, socket, time
here = os.path.dirname(os.path.abspath(__file__))
while not glob.glob(here + "/.prose/runs/*/gates/decisions.sock"):
    time.sleep(0.01)
os.chdir(glob.glob(here + "/.prose/runs/*/gates")[0])
record = json.load(open("go.pending.json"))
with socket.socket(socket.AF_UNIX) as s:
    s.connect("decisions.sock")
    request = {"ask": "decide", "gate": "go", "created_at": record["created_at"], "decision": "approved", "principal": "user"}
    s.sendall(json.dumps(request).encode() + b"\\n")
    print(s.recv(65536).decode().strip(), flush=True)
'''

SCRIPT = """
    # what a command may try while a gate of its run waits; $1 python, $2 where it writes what was answered
    client="$1 -I -S $PWD/client.py"
    out=$2
    while [ -z "$gates" ]; do gates=$(ls -d "$PWD"/.prose/runs/*/gates 2>/dev/null); sleep 0.02; done
    $client > "$out/plain"
    env -u PROSE_JOB $client > "$out/env-u"
    env -i $client > "$out/env-i"
    nohup env -i $client > "$out/nohup" 2>/dev/null
    setsid -w env -i $client > "$out/setsid"
    ( ( env -i $client > "$out/double-fork" ) & )
    while [ ! -s "$out/double-fork" ]; do sleep 0.02; done
    # A34: these have left every process that started them, with all marks
    setsid -f env -u PROSE_JOB $client > "$out/a34-env-u"
    setsid -f env -i $client > "$out/a34-env-i"
    setsid sh -c "( setsid -f env -i $client > '$out/a34-daemon' & )"
    for form in env-u env-i daemon; do
        while [ ! -s "$out/a34-$form" ]; do sleep 0.02; done
    done
    sed -i 's/"process": "[^"]*"/"process": "1:0.00"/' "$gates/go.pending.json"
    $client > "$out/forged-process"
    echo '{"gate_id": "go", "decision": "approved", "principal": "user", "timestamp": "'$(date -u +%FT%TZ)'", "comment": ""}' \\
        > "$gates/go.resolved.json"
    while [ -e "$gates/go.resolved.json" ]; do sleep 0.02; done
    while [ ! -s "$out/earlier" ] || [ ! -s "$out/imported" ]; do sleep 0.02; done
    touch "$out/done"
"""

PROGRAM = """
use "./inner.prose" as inner

exec "env -i {python} -I -S client.py > out/earlier 2>out/earlier-err &"
parallel:
  gate go:
    prompt: "Publish?"
  exec "sh attempts.sh {python} out"
  inner()
exec "echo published"
"""

INNER = """
exec "env -i {python} -I -S client.py > out/imported"
"""


@contextmanager
def running(*arguments: str, expects: str) -> Iterator[forked.Command]:
    """Start `prose run p.prose` in the working directory, and yield it once stderr has the expected text."""
    with forked.Command("run", "p.prose", *arguments) as run:
        printed = ""
        while expects not in printed:
            line = run.stderr.readline()
            assert line, printed
            printed += line
        yield run


def approve(gate: str = "go") -> Resolution:
    return resolve_gate(Path(".prose"), "approve", gate, clock=SystemClock(), by=Decider({}))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROSE_JOB", raising=False)


def test_a8_a34_commands_of_a_run_cannot_decide_its_gates(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    Path("client.py").write_text(CLIENT)
    Path("attempts.sh").write_text(textwrap.dedent(SCRIPT))
    Path("p.prose").write_text(PROGRAM.replace("{python}", sys.executable))
    Path("inner.prose").write_text(INNER.replace("{python}", sys.executable))
    with running("--gates=wait", expects="gate go of run") as run:
        while not Path("out/done").exists():
            assert run.poll() is None, run.communicate()
            time.sleep(0.02)
        assert [gate.record.id for gate in pending_gates(Path(".prose"), SystemClock())] == ["go"]
        answers = {place.name: json.loads(place.read_text()) for place in Path("out").iterdir() if place.stat().st_size}
        assert approve().status == "approved"
        out, err = run.communicate(timeout=60)
    assert out.endswith("published\n"), err
    assert "gate go: approved by user (command line)" in err
    assert sorted(answers) == [
        *("a34-daemon", "a34-env-i", "a34-env-u"),
        *("double-fork", "earlier", "env-i", "env-u", "forged-process", "imported", "nohup", "plain", "setsid"),
    ]
    for name, answer in answers.items():
        assert answer.get("inside") is True and "ok" not in answer, (name, answer)
    (log,) = Path(".prose/runs").glob("*/gates/audit.jsonl")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(e["event_type"], e["metadata"]) for e in events] == [
        ("created", {}),
        ("ignored", {"reason": "this run takes no decisions from files"}),
        ("approved", {"source": "cli"}),
    ]


def test_a8_a_socket_put_in_the_place_of_the_run_is_recognized(tmp_path: Path) -> None:
    Path("fake.py").write_text(
        "import os, socket, sys\n"
        "os.chdir(sys.argv[1]); os.unlink('decisions.sock')\n"
        "s = socket.socket(socket.AF_UNIX); s.bind('decisions.sock'); s.listen()\n"
        "print('ready', file=open('fake', 'w'), flush=True)\n"
        "while True:\n"
        "    c, _ = s.accept()\n"
        "    try: c.recv(65536); c.sendall(b'{\"ok\": true}\\n')\n"
        "    except OSError: pass\n"
    )
    Path("p.prose").write_text(
        'parallel (on-fail: "ignore"):\n  gate go:\n    prompt: "Publish?"\n'
        f'  exec "while [ ! -S .prose/runs/*/gates/decisions.sock ]; do sleep 0.02; done; '
        f'env -i {sys.executable} -I -S fake.py .prose/runs/*/gates"\n'
    )
    with running("--gates=wait", expects="gate go of run") as run:
        while not list(Path(".prose/runs").glob("*/gates/fake")):
            assert run.poll() is None
            time.sleep(0.02)
        with pytest.raises(
            GateRefused, match="cannot be asked: what listens in the place of the run was started by a run"
        ):
            approve()


def test_a10_the_gate_of_a_dead_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("p.prose").write_text('gate go:\n  prompt: "Publish?"\n')
    with running("--gates=wait", expects="gate go of run"):
        pass  # leaving the block kills it
    assert main(["gates"]) == 0
    assert "the run has ended; this gate no longer waits" in capsys.readouterr().out
    assert main(["gate", "approve", "go"]) == 1
    assert "has ended: no run waits at gate go" in capsys.readouterr().err


def test_a8_gate_files_need_the_wait_mode(capsys: pytest.CaptureFixture[str]) -> None:
    Path("p.prose").write_text('gate go:\n  prompt: "Publish?"\n')
    assert main(["run", "p.prose", "--gate-files"]) == 2
    assert "--gate-files needs --gates=wait" in capsys.readouterr().err


def test_a6_an_input_value_is_not_a_decision(capsys: pytest.CaptureFixture[str]) -> None:
    """A program that takes an input of the gate's name gets its value; the gate does not."""
    gate = 'gate go:\n  prompt: "Publish?"\nexec "echo published"\n'
    Path("p.prose").write_text('input go: "Go where?"\n' + gate)
    assert main(["run", "p.prose", "--input", "go=approve"]) == 3
    Path("p.prose").write_text(gate + 'input go: "Go where?"\n')
    assert main(["run", "p.prose", "--input", "go=approve"]) == 3
    Path("p.prose").write_text(gate)
    assert main(["run", "p.prose", "--input", "go=approve"]) == 0
    assert capsys.readouterr().out == "published\n"


DAEMON = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-I", "-S", *sys.argv[1:]], {})
    os._exit(0)
os.wait()
sys.stdin.read()
"""


@pytest.mark.skipif(not system.LINUX, reason="only Linux has sub-reapers")
async def test_a34_a_helper_that_forks_twice_decides_nothing(tmp_path: Path) -> None:
    """Functions, tool servers and CLI agents are all helpers of the engine."""
    directory = tmp_path / ".prose" / "runs" / RUN / "gates"
    records, engine, out = FileRecords(directory, RUN, SystemClock()), Engine(), Path("answer")
    person = Person(available=False)
    keeper = Gatekeeper(records, person, SystemClock(), GatePolicy("wait"), started=engine.guards)
    Path("client.py").write_text(CLIENT.replace("flush=True", "file=open(here + '/answer', 'w'), flush=True"))
    Path("daemon.py").write_text(DAEMON)
    output: list[str] = []
    helper = await Helpers(engine).start(
        [sys.executable, "daemon.py", str(tmp_path / "client.py")], {}, ".", output.append
    )
    gate = asyncio.create_task(keeper.decide(request("go")))
    try:
        while not out.exists() or not out.read_text():
            assert not gate.done(), gate
            await asyncio.sleep(0.02)
        assert json.loads(out.read_text()).get("inside") is True
    finally:
        gate.cancel()
        await asyncio.gather(gate, return_exceptions=True)
        await helper.stop(0)
        await asyncio.to_thread(engine.close)


async def test_a34_helpers_have_the_mark_of_the_run_in_their_environment() -> None:
    engine, output = Engine(), asyncio.Queue[str]()
    helper = await Helpers(engine).start(["sh", "-c", "echo mark=$PROSE_JOB"], {}, ".", output.put_nowait)
    assert (await output.get()).startswith(f"mark={engine.marker}:")
    await helper.stop(0)
    await asyncio.to_thread(engine.close)


@pytest.mark.skipif(not system.LINUX, reason="only Linux has sub-reapers")
def test_a34_a_process_detached_by_a_command_decides_no_gate_of_a_later_run(tmp_path: Path) -> None:
    """The process has outlived its run, and nothing in it shows its origin."""
    Path("client.py").write_text(CLIENT)
    program = Path("prose")  # as installed: a process that runs only this
    program.write_text("import sys; from prose_kernel.cli.main import main; sys.exit(main())")
    wait = "until [ -S .prose/runs/*/gates/decisions.sock ]; do sleep 0.05; done"
    again = f"env -i {sys.executable} -I -S client.py > answer.new; mv answer.new answer"
    Path("survivor.sh").write_text(f"echo $$ > pid; {wait}; {again}\n")
    Path("first.prose").write_text(
        'exec "setsid -f env -i PATH=$PATH sh survivor.sh; until [ -s pid ]; do sleep 0.02; done"\n'
    )
    subprocess.run([sys.executable, program, "run", "first.prose", "--state-dir", "other"], check=True, timeout=60)
    Path("p.prose").write_text('gate go:\n  prompt: "Publish?"\n')
    with running("--gates=wait", expects="gate go of run") as run:
        while not Path("answer").exists():
            assert run.poll() is None
            time.sleep(0.02)
        assert json.loads(Path("answer").read_text()).get("inside") is True
        assert approve().status == "approved"
        run.communicate(timeout=60)


def test_a34_an_incomplete_line_of_ancestors_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ancestor that ends during the check hides its own ancestors."""
    with subprocess.Popen(["sleep", "60"], env={}, start_new_session=True) as process:
        try:
            with pytest.raises(peers.Insider):
                peers.refuse_insiders(process.pid, lambda number: False)
            monkeypatch.setattr(psutil.Process, "parents", lambda self: [])
            with pytest.raises(peers.PeerRefused):
                peers.refuse_insiders(process.pid, lambda number: False)
        finally:
            process.kill()
