"""`prose run` with models and recordings, and the findings of `prose doctor` about them, with the real command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import forked
import nbformat
import pexpect
import pytest
from stubs.model_server import ANSWER, StubServer

from prose_kernel.cli import doctor
from prose_kernel.cli.main import main

PROGRAM = 'let a = session "Say something"\nif **the text is nice**:\n  session "Praise"\n    context: a\n'

Prose = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def here(tmp_path: Path, stub: StubServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    stub.reset()
    for name in ("CI", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "JPY_SESSION_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    table = f'[providers.stub]\nkind = "openai"\nbase_url = "{stub.openai_url}"\nmodel = "ok-1"\n'
    (tmp_path / "prose.toml").write_text(table)
    (tmp_path / "p.prose").write_text(PROGRAM)
    return tmp_path


@pytest.fixture
def prose(here: Path) -> Prose:
    """Return a function that runs the command in a separate process."""
    return lambda *arguments, **environment: forked.prose(*arguments, cwd=here, env={**os.environ, **environment})


@pytest.fixture(scope="module")
def cassette(stub: StubServer, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The files of PROGRAM after one recording."""
    directory = tmp_path_factory.mktemp("recorded")
    table = f'[providers.stub]\nkind = "openai"\nbase_url = "{stub.openai_url}"\nmodel = "ok-1"\n'
    (directory / "prose.toml").write_text(table)
    (directory / "p.prose").write_text(PROGRAM)
    forked.prose("run", "p.prose", *RECORD, cwd=directory).check_returncode()
    return (directory / "cassettes" / "session.jsonl").read_bytes()


@pytest.fixture
def recorded(here: Path, cassette: bytes, stub: StubServer) -> Path:
    """Put the cassette of PROGRAM into place."""
    (here / "cassettes").mkdir()
    path = here / "cassettes" / "session.jsonl"
    path.write_bytes(cassette)
    stub.reset()
    return path


RECORD = ("--provider", "stub", "--judge", "stub:json-1-yes", "--cassette-mode", "auto")


def test_a_recording_replays_without_a_model(prose: Prose, stub: StubServer, here: Path) -> None:
    live = prose("run", "p.prose", *RECORD, "--cassette", "mine")
    assert (live.returncode, live.stdout) == (0, f"{ANSWER}\n")
    assert "**the text is nice** yes (model: because)" in live.stderr
    requests = stub.stats.requests
    assert requests == 3
    assert [path.name for path in (here / "cassettes").glob("*.jsonl")] == ["mine.jsonl"]
    again = prose("run", "p.prose")
    assert (again.returncode, again.stdout) == (0, live.stdout)
    assert "replayed: 3 of 3 answers came from recordings" in again.stderr
    assert again.stderr.replace("replayed: 3 of 3 answers came from recordings\n", "") == live.stderr
    assert stub.stats.requests == requests


def test_usage_on_request(prose: Prose) -> None:
    live = prose("run", "p.prose", *RECORD, "--usage")
    lines = [line for line in live.stderr.splitlines() if line.startswith("usage")]
    assert [line.partition(":")[0] for line in lines] == ["usage of stub json-1-yes", "usage of stub ok-1"]
    assert "1 judgement, 1 request, " in lines[0]
    assert "2 sessions, 2 requests, " in lines[1]
    again = prose("run", "p.prose", "--usage")
    assert "2 sessions, 2 replayed" in again.stderr
    (Path("e.prose")).write_text('exec "true"\n')
    assert "usage: no session or judgement ran" in prose("run", "e.prose", "--usage").stderr


def test_a47_a_resumed_run_keeps_its_cassette_mode(prose: Prose, here: Path, recorded: Path) -> None:
    stops = 'exec "test -e died || { touch died; kill -9 $PPID; sleep 60; }"\n'
    (here / "p.prose").write_text(f'{stops}let a = session "Say something"\n')
    assert prose("run", "p.prose", "--cassette-mode=off").returncode == -9
    assert prose("run", "--resume").returncode == 3  # the recording is not used
    assert prose("run", "--resume", "--cassette-mode=replay").returncode == 0


def test_unused_records_are_named(prose: Prose, here: Path, recorded: Path) -> None:
    (here / "p.prose").write_text('let a = session "Say something"\n')
    ended = prose("run", "p.prose")
    assert ended.returncode == 0
    assert "unused records: cassettes/session.jsonl line 3 (c1/2/j0), cassettes/session.jsonl line 4" in ended.stderr


def test_a_changed_prompt_is_a_miss_with_status_3_and_the_fix(
    prose: Prose, here: Path, recorded: Path, stub: StubServer
) -> None:
    (here / "p.prose").write_text(PROGRAM.replace("Say something", "Say anything"))
    missed = prose("run", "p.prose", "--provider", "stub")
    assert missed.returncode == 3
    assert "`prompt` differs at character" in missed.stderr
    assert "hint: record it: `prose run --cassette-mode=auto p.prose`" in missed.stderr
    assert stub.stats.requests == 0


def test_json_contains_the_error_too(prose: Prose) -> None:
    missed = prose("run", "p.prose", "--format", "json")
    assert missed.returncode == 3
    body = json.loads(missed.stdout.splitlines()[-1])
    assert (body["status"], body["error"]["code"]) == ("failed", "E201")


def test_options_override_variables_and_variables_override_the_file(prose: Prose, here: Path, stub: StubServer) -> None:
    with (here / "prose.toml").open("a") as file:
        file.write('[cassette]\nmode = "replay"\n')
    (here / "p.prose").write_text('session "Say something"\n')
    assert prose("run", "p.prose", PROSE_PROVIDER="stub").returncode == 3
    assert prose("run", "p.prose", PROSE_PROVIDER="stub", PROSE_CASSETTE_MODE="off").returncode == 0
    assert prose("run", "p.prose", "--cassette-mode", "replay", PROSE_CASSETTE_MODE="off").returncode == 3
    assert stub.stats.requests == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--provider", "claud"), "there is no provider `claud`"),
        (("--provider", "acp:nobody"), "there is no CLI agent `nobody`"),
        (("--judge", "replay"), "`replay` cannot judge"),
        (("--cassette-mode", "sometimes"), "one of 'off', 'auto', 'record', 'replay', not 'sometimes'"),
        (("--provider", "replay", "--cassette-mode", "off"), "provider replay answers only from recordings"),
    ],
)
def test_invalid_options_are_usage_errors(
    here: Path, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert main(["run", "p.prose", *arguments]) == 2
    assert message in capfd.readouterr().err


def test_a_mistake_in_the_file_names_its_line(prose: Prose, here: Path) -> None:
    (here / "prose.toml").write_text('provder = "x"\n')
    ended = prose("run", "p.prose")
    assert ended.returncode == 2
    assert "prose.toml line 1: provder: there is no such setting" in ended.stderr
    assert "did you mean `provider`?" in ended.stderr


def test_a_notebook_has_the_file_and_the_recordings_next_to_it(prose: Prose, here: Path, stub: StubServer) -> None:
    beside = here / "work"
    beside.mkdir()
    (here / "prose.toml").rename(beside / "prose.toml")
    kernelspec = {"name": "prose", "display_name": "Prose", "language": "prose"}
    cells = [nbformat.v4.new_code_cell('session "Say something"')]
    book = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernelspec})
    nbformat.write(book, beside / "tour.ipynb")
    live = prose("run", "work/tour.ipynb", "--provider", "stub", "--cassette-mode", "auto")
    assert (live.returncode, live.stdout) == (0, f"{ANSWER}\n")
    assert [path.name for path in (beside / "cassettes").glob("*.jsonl")] != []
    assert not (here / "cassettes").exists()
    assert prose("run", "work/tour.ipynb").returncode == 0
    assert stub.stats.requests == 1


def test_a_key_is_not_used_in_ci_although_there_is_a_terminal(here: Path, stub: StubServer) -> None:
    (here / "prose.toml").write_text(f'[providers.anthropic]\nbase_url = "{stub.url}"\nmodel = "ok-1"\n')
    environment = {**os.environ, "CI": "1", "ANTHROPIC_API_KEY": "sk-not-a-real-one"}
    child = forked.Terminal("run", "p.prose", cwd=here, env=environment)
    child.expect(pexpect.EOF)
    assert "no model is configured, and no person can answer" in " ".join(child.before.split())
    assert child.end() == 3
    assert stub.stats.requests == 0


def test_a49_a_terminal_shows_the_words_of_a_model_and_takes_any_text(here: Path, stub: StubServer) -> None:
    model = stub.script("words", json.dumps({"question": "Where shall it go?", "options": ["staging", "production"]}))
    (here / "p.prose").write_text("input where: **the environment to deploy to**\noutput said = where\n")
    command = ("run", "p.prose", "--provider", f"stub:{model}")
    child = forked.Terminal(*command, cwd=here)
    child.expect_exact("Where shall it go? (staging / production) ")
    child.sendline("my laptop")
    child.expect_exact("said: my laptop")
    child.expect(pexpect.EOF)
    assert (child.end(), stub.stats.requests) == (0, 1)
    assert forked.prose(*command, "--input", "where=x", cwd=here).returncode == 0
    assert stub.stats.requests == 1


def test_an_authored_answer_is_marked(prose: Prose, recorded: Path) -> None:
    recorded.write_text(recorded.read_text().replace('"origin":"model"', '"origin":"authored"'))
    assert "replayed, example text written by hand" in prose("run", "p.prose").stderr


def test_a_dry_run_describes_everything_and_runs_nothing(prose: Prose, here: Path, stub: StubServer) -> None:
    done = prose("run", "p.prose", "--provider", "dry-run")
    assert done.returncode == 0
    for piece in (
        "session c1/1/s0",
        "placeholders (this is a dry run)",
        "permissions  read: workspace",
        "tools        read, ",
        "mode replay",
        '**the text is nice** uncertain (dry-run: undecided: yes: line 3 `session "Praise"`; no: nothing)',
        "a = ⟦dry-run c1/1/s0⟧",
    ):
        assert piece in done.stderr
    assert stub.stats.requests == 0
    assert not (here / "cassettes").exists()


# ---------------------------------------------------------------- doctor


def test_doctor_names_providers_and_missing_settings(prose: Prose, here: Path) -> None:
    table = (here / "prose.toml").read_text()
    (here / "prose.toml").write_text(
        f'provider = "gateway"\n[agents.here]\ncommand = ["{sys.executable}"]\n[agents.gone]\ncommand = ["no-such-agent"]\n'
        '[providers.gateway]\nkind = "openai"\nbase_url = "https://gateway.example.org/v1"\nkey = "GATEWAY_KEY"\n'
        f'model = "m"\n{table}'
    )
    found = prose("doctor", "--no-start").stdout
    for line in (
        "ok     extra [llm]: pydantic-ai-slim ",
        "ok     extra [acp]: agent-client-protocol ",
        "broken provider: gateway, but GATEWAY_KEY is not set",
        "note   server gateway: https://gateway.example.org/v1, and GATEWAY_KEY is not set",
        "ok     server stub: http://127.0.0.1:",
        f"ok     agent here: {sys.executable}",
        "note   agent gone: no-such-agent is not on the PATH",
        "ok     judge: rules, then gateway",
        "ok     recordings: none here",
    ):
        assert line in found
    found = prose("doctor", "--no-start", GATEWAY_KEY="sk-not-a-real-one").stdout
    assert "ok     provider: gateway, model m, key in GATEWAY_KEY" in found
    assert "sk-not" not in found


def test_doctor_reads_recordings_and_names_an_invalid_line(prose: Prose, recorded: Path) -> None:
    with recorded.open("a") as file:
        file.write("half a rec")
    found = prose("doctor", "--no-start", PROSE_PROVIDER="stub").stdout
    assert "ok     recordings: 3 records in cassettes/" in found
    assert "note   recordings: cassettes/session.jsonl, line 5: " in found
    assert "ok     provider: stub, model ok-1" in found


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"PROSE_PROVIDER": "claud"}, "broken provider: there is no provider `claud`"),
        ({"PROSE_PROVIDER": "scripted"}, "broken provider: scripted, but there is no script"),
        ({"PROSE_JUDGE": "replay"}, "broken judge: `replay` cannot judge"),
        ({"PROSE_JUDGE_RULES": "only"}, "ok     judge: only rules"),
        ({"ANTHROPIC_API_KEY": "k" * 20}, "note   provider: none set: anthropic where a person is there, because"),
        ({"PROSE_GATES": "x"}, "broken settings: setting gates (PROSE_GATES): one of"),
    ],
)
def test_doctor_checks_the_chosen_providers(
    here: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], line: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = settings_findings()
    assert any(finding.startswith(line) for finding in found), found


def settings_findings() -> list[str]:
    return [f"{f.state:<6} {f.subject}: {f.text}" for f in doctor._settings()]


@pytest.mark.parametrize("provider", ["replay", "auto"])
def test_a12_a_program_cannot_hide_a_miss_and_the_status_is_3(prose: Prose, here: Path, provider: str) -> None:
    text = 'try:\n  session "Never recorded"\ncatch:\n  output a = "hidden"\nfinally:\n  exec "touch tidied"\n'
    (here / "hides.prose").write_text(text)
    ran = prose("run", "hides.prose", PROSE_PROVIDER=provider)
    assert ran.returncode == 3, ran.stderr
    assert "hidden" not in ran.stdout and (here / "tidied").exists()


def test_a12_stale_recordings_warn_or_fail(prose: Prose, here: Path, stub: StubServer) -> None:
    (here / "notes.md").write_text("first")
    (here / "reads.prose").write_text('output a = session "Read the notes"\n')
    model = stub.script("reads", {"calls": [{"name": "read", "arguments": {"path": "notes.md"}}]}, "It says {results}")
    live = prose("run", "reads.prose", "--provider", f"stub:{model}", "--cassette-mode", "auto")
    assert live.returncode == 0, live.stderr
    (here / "notes.md").write_text("second")
    warned = prose("run", "reads.prose", "--cassette-mode", "replay")
    assert warned.returncode == 0 and "notes.md has changed since cassettes/session.jsonl, line 2" in warned.stderr
    silent = prose("run", "reads.prose", "--cassette-mode", "replay", "--cassette-stale", "ignore", CI="true")
    assert (silent.returncode, silent.stdout) == (0, warned.stdout) and "has changed" not in silent.stderr
    in_ci = prose("run", "reads.prose", CI="true")
    assert in_ci.returncode == 3 and "notes.md has changed" in in_ci.stderr
    assert "--cassette-stale=warn" in in_ci.stderr


# ---------------------------------------------------------------- VVM

VVM = 'agent a(prompt="Be brief.", memory={scope: "project", key: "k"})\nx = @a `Say {}`("this")\nexport x\n'


def test_a_vvm_program_is_recorded_and_replayed(prose: Prose, stub: StubServer, here: Path) -> None:
    (here / "p.vvm").write_text(VVM)
    done = prose("run", "p.vvm", *RECORD, "--cassette", "main")
    assert (done.returncode, done.stdout) == (0, f"x: {ANSWER}\n")
    assert stub.stats.requests == 1 and stub.last is not None
    assert stub.last.asked.system.startswith("Be brief.\n\n")
    assert stub.last.asked.user.startswith("===== input\nthis\n===== end of input\n\n")
    assert stub.last.asked.user.endswith("---\n\nSay this")
    (here / ".vvm/memory/k/meta.json").unlink()
    again = prose("run", "p.vvm")
    assert (again.returncode, again.stdout) == (0, done.stdout)
    assert stub.stats.requests == 1
    (here / "p.vvm").write_text(VVM.replace("this", "that"))
    missed = prose("run", "p.vvm", "--provider", "replay", "--cassette", "main")
    assert missed.returncode == 3 and "nothing is recorded" in missed.stderr
    assert "prose run --cassette-mode=auto p.vvm" in missed.stderr and "that" in missed.stderr


def test_a42_the_runtime_writes_the_answer_of_a_vvm_call(prose: Prose, stub: StubServer, here: Path) -> None:
    (here / "p.vvm").write_text("agent a()\nx = @a `Write`(())\nexport x\n")
    done = prose(
        "run", "p.vvm", "--provider", "stub:ok-1", "--cassette-mode", "off", "--state", "filesystem", "--format", "json"
    )
    assert done.returncode == 0 and stub.stats.requests == 1
    place = json.loads(done.stdout)["outputs"]["x"]["ref"]
    assert (here / place).read_text() == ANSWER
    (state,) = (here / ".vvm/runs").glob("*/state.md")
    assert "x = @a (b000001)" in state.read_text()


def test_a_failed_vvm_call_is_reported_although_it_is_a_value(prose: Prose, here: Path) -> None:
    (here / "p.vvm").write_text('agent a()\n@a `q`((), retry=1)\nx = "went on"\nexport x\n')
    (here / "s.yaml").write_text('sessions: {"q": [{error: "busy"}, {error: "no"}]}\n')
    done = prose("run", "p.vvm", "--provider", "scripted", "--script", "s.yaml")
    assert (done.returncode, done.stdout, done.stderr) == (0, "x: went on\n", "retry 1 of 1\na: no\n")


# ---------------------------------------------------------------- doctor --ask


def test_doctor_asks_each_model_the_judge_and_the_agents(
    here: Path, stub: StubServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "prose.toml").write_text(
        f'provider = "stub"\n[providers.stub]\nkind = "openai"\nbase_url = "{stub.openai_url}"\n'
        '[models.stub]\ndefault = "ok-1"\nsonnet = "ok-1"\nopus = "err-529"\n'
        '[models.stub.fast]\nmodel = "ok-2"\nfallback = ["opus", "other:fast"]\n'
        f'[providers.other]\nkind = "openai"\nbase_url = "{stub.openai_url}"\nkey = "OTHER_KEY"\n'
        '[models.other]\nfast = "ok-3"\n[judge]\nmodel = "json-0-yes"\n'
        f'[agents.stub]\ncommand = ["{sys.executable}", "-m", "stubs.acp_agent"]\n'
        f'env = {{ PYTHONPATH = "{Path(__file__).parents[1]}" }}\n[agents.gone]\ncommand = ["no-such-agent"]\n'
    )
    monkeypatch.setattr(doctor, "examine", lambda start: iter(()))
    monkeypatch.delenv("OTHER_KEY", raising=False)
    assert main(["doctor", "--ask"]) == 1
    lines = capsys.readouterr().out.splitlines()
    findings = {line.partition(": ")[0]: line.partition(": ")[2] for line in lines if " ask " in line}
    assert list(findings) == [
        "ok     ask stub default, sonnet",
        "broken ask stub opus",
        "ok     ask stub fast",
        "ok     ask judge",
        "ok     ask acp:stub",
    ]
    assert re.fullmatch(
        rf'ok-1: "{ANSWER}", \d+\.\d s, \d+ \+ 4 tokens, price not known', findings["ok     ask stub default, sonnet"]
    )
    assert findings["broken ask stub opus"] == "stub: the server is overloaded or down for now"
    assert findings["ok     ask stub fast"].startswith("ok-2: ")  # the model itself, not one of its fallbacks
    assert findings["ok     ask judge"].startswith('json-0-yes: "yes, two is more than one"')
    assert lines[-1] == "1 broken"
    assert stub.stats.by_model == {"ok-1": 1, "ok-2": 1, "err-529": 1, "json-0-yes": 1}
    assert sorted(path.name for path in here.iterdir()) == ["p.prose", "prose.toml"]  # nothing is recorded


def test_doctor_does_not_wait_for_a_model_that_hangs(
    here: Path, stub: StubServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "prose.toml").write_text(
        f'provider = "stub"\n[providers.stub]\nkind = "openai"\nbase_url = "{stub.openai_url}"\nmodel = "hang"\n'
    )
    monkeypatch.setattr(doctor, "examine", lambda start: iter(()))
    assert main(["doctor", "--ask", "--seconds", "0.5"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if " ask stub " in line] == ["broken ask stub default: no answer within 0.5 s"]


def test_doctor_asks_the_other_models_if_a_table_is_invalid(
    here: Path, stub: StubServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = f'kind = "openai"\nbase_url = "{stub.openai_url}"\n'
    (here / "prose.toml").write_text(
        f'[providers.good]\n{table}model = "ok-1"\n[providers.lost]\n{table}model = "opus"\n'
        f'[providers.bad]\n{table}model = "ok-2"\n[models.bad.fast]\nmodel = "ok-3"\nfallback = ["god:fast"]\n'
    )
    monkeypatch.setattr(doctor, "examine", lambda start: iter(()))
    assert main(["doctor", "--ask"]) == 1
    lines = [
        line for line in capsys.readouterr().out.splitlines() if not line.startswith("ok     ask good default: ok-1")
    ]
    assert lines == [
        "broken ask lost default: the model `opus` means nothing on lost",
        '       fix: write in prose.toml: [models.lost] opus = "MODEL"',
        "broken ask bad: [models.bad.fast] fallback: there is no model `god:fast` to fall back to",
        "       fix: did you mean `good:fast`?",
        "2 broken",
    ]
    assert stub.stats.by_model == {"ok-1": 1}


def test_doctor_asks_no_provider_offline_or_without_the_option(
    here: Path, stub: StubServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROSE_PROVIDER", "stub")
    assert any("provider" in finding.subject for finding in doctor._settings())
    assert stub.stats.requests == 0
    monkeypatch.setenv("PROSE_OFFLINE", "1")
    monkeypatch.setattr(doctor, "examine", lambda start: iter(()))
    assert main(["doctor", "--ask"]) == 1
    assert "broken ask: the settings say offline" in capsys.readouterr().out
    assert stub.stats.requests == 0
