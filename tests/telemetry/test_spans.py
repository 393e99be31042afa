"""Observation of runs: spans for OpenTelemetry and the log, and content that they leave out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
from models.people import ScriptedPerson
from notebook.recording import Recording
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from telemetry.collector import Collector, log_lines

from prose_kernel.errors import RunError, UsageError
from prose_kernel.language.source import Source
from prose_kernel.language.source import Span as ProseSpan
from prose_kernel.notebook.cells import Cells
from prose_kernel.runs.languages import VVM
from prose_kernel.runs.settings import Settings, load
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime import events
from prose_kernel.runtime.ports import Key, SessionRequest, SessionResult, ToolUse, Usage
from prose_kernel.telemetry.log import LogFile
from prose_kernel.telemetry.spans import Span
from prose_kernel.telemetry.spans_from_events import Spans

SCRIPT = """
sessions:
  flaky: [{error: "overloaded"}, "the secret answer"]
judge:
  "*": [yes]
"""


async def run(cwd: Path, *texts: str, vvm: bool = False, **settings: Any) -> ScriptedPerson:
    """Run texts one after the other and ignore errors of the programs."""
    person = ScriptedPerson(available=False)
    workspace = Workspace(Settings().changed(journal="off", **settings), Start(cwd), asker=person)
    try:
        for text in texts:
            with contextlib.suppress(RunError):
                await workspace.execute(text, language=VVM if vvm else None)
    finally:
        await workspace.close()
    return person


def ended(path: Path, kind: str) -> list[dict[str, Any]]:
    return [line for line in log_lines(path) if line["event"] == "end" and line["kind"] == kind]


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """A tracer provider of the process that keeps spans. Without a collector, sending metrics would take 3 seconds."""
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    found = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(found))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return found


def named(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


# ---------------------------------------------------------------- spans


async def test_a_run_is_a_tree_of_spans(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    await run(tmp_path, 'let a = exec "echo 1"', telemetry_otel=True)
    spans = named(exporter)
    assert spans.keys() == {"invoke_workflow notebook", "cell 1", "let", "command"}
    for inner, outer in (("command", "let"), ("let", "cell 1"), ("cell 1", "invoke_workflow notebook")):
        parent = spans[inner].parent
        assert parent is not None
        assert parent.span_id == spans[outer].context.span_id
    assert spans["command"].attributes is not None
    assert spans["command"].attributes["process.exit.code"] == 0


async def test_an_error_is_the_status_of_the_spans_that_it_ends(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    await run(tmp_path, 'exec "exit 3"', 'let a = "later"', telemetry_otel=True)
    spans = named(exporter)
    status = {name: span.status.description for name, span in spans.items() if not span.status.is_ok}
    assert status == {"command": "exit", "exec": "E203", "cell 1": "E203"}


async def test_a_caught_error_is_an_event_of_the_statement_that_caught_it(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    await run(tmp_path, 'try:\n  exec "exit 3"\ncatch:\n  let a = "x"\n', telemetry_otel=True)
    (event,) = named(exporter)["try"].events
    assert (event.name, dict(event.attributes or {})) == ("exception", {"exception.type": "E203"})
    assert named(exporter)["try"].status.is_ok


async def test_a_spent_budget_is_an_event_of_a_span(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    (tmp_path / "script.yaml").write_text("sessions: {'*': [a, b, c, d, e, f]}\n")
    text = 'repeat 6:\n  session "a secret"\n'
    options = {"provider": "scripted", "script": "script.yaml", "cassette_mode": "off", "budget": "5 sessions"}
    await run(tmp_path, text, telemetry_otel=True, telemetry_log="log", **options)
    (noted,) = (span.events for span in exporter.get_finished_spans() if span.events)
    assert [(one.name, *(one.attributes or {}).values()) for one in noted] == [
        ("prose.warning", "W221"),
        ("exception", "E221"),
    ]
    notes = [line for line in log_lines(tmp_path / "log") if line["event"] == "note"]
    assert next((line["name"], line["attributes"]) for line in notes) == ("prose.warning", {"prose.code": "W221"})
    assert "secret" not in (tmp_path / "log").read_text()


async def test_vvm_has_the_same_spans(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    await run(tmp_path, "x = 1\ny = x + 1\n", vvm=True, telemetry_otel=True)
    names = [span.name for span in exporter.get_finished_spans()]
    assert names == ["assign", "assign", "cell 1", "invoke_workflow notebook"]


async def test_a_command_has_its_span_in_its_environment(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    await run(tmp_path, 'exec "echo $TRACEPARENT > told"', telemetry_otel=True)
    context = named(exporter)["command"].context
    assert (tmp_path / "told").read_text() == f"00-{context.trace_id:032x}-{context.span_id:016x}-01\n"


async def test_telemetry_commands_false_gives_commands_no_variables(tmp_path: Path) -> None:
    await run(tmp_path, 'exec "echo $TRACEPARENT > told"', telemetry_log="log", telemetry_commands=False)
    assert (tmp_path / "told").read_text() == "\n"


async def test_a_run_continues_the_trace_of_its_environment(
    tmp_path: Path, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", f"00-{'a' * 32}-{'b' * 16}-01")
    await run(tmp_path, 'let a = "x"', telemetry_otel=True, telemetry_log="log")
    assert {f"{span.context.trace_id:x}" for span in exporter.get_finished_spans()} == {"a" * 32}
    assert named(exporter)["invoke_workflow notebook"].parent.span_id == int("b" * 16, 16)  # type: ignore[union-attr]
    await run(tmp_path, 'let a = "x"', telemetry_log="other")
    assert [(line["trace_id"], line["parent_id"]) for line in ended(tmp_path / "other", "run")] == [
        ("a" * 32, "b" * 16)
    ]


# ---------------------------------------------------------------- sessions


async def sessions(tmp_path: Path, **settings: Any) -> None:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    text = 'agent clerk:\n  model: sonnet\nsession: clerk\n  prompt: "a secret, flaky task"\n  retry: 2\n'
    await run(tmp_path, text, provider="scripted", script="script.yaml", cassette_mode="off", **settings)


async def test_a_session_has_a_span_for_each_attempt(tmp_path: Path) -> None:
    await sessions(tmp_path, telemetry_log="log")
    first, second = ended(tmp_path / "log", "attempt")
    (session,) = ended(tmp_path / "log", "session")
    assert session["name"] == "invoke_agent clerk"
    assert session["attributes"]["prose.attempts"] == 2
    assert {first["parent_id"], second["parent_id"]} == {session["span_id"]}
    assert (first["status"], second["status"], session["status"]) == ("error", "ok", "ok")
    assert second["attributes"]["gen_ai.request.model"] == "sonnet"
    assert (second["name"], second["attributes"].get("gen_ai.operation.name")) == ("attempt", None)  # no model


async def test_the_log_has_no_content_by_default(tmp_path: Path) -> None:
    await sessions(tmp_path, telemetry_log="log")
    await run(tmp_path, 'exec "echo secret >&2; exit 1"', telemetry_log="log")
    assert "secret" not in (tmp_path / "log").read_text()


async def test_the_log_has_content_if_it_is_switched_on(tmp_path: Path) -> None:
    await sessions(tmp_path, telemetry_log="log", telemetry_content=True)
    _, last = ended(tmp_path / "log", "attempt")
    (prompt,) = json.loads(last["attributes"]["gen_ai.input.messages"])
    assert prompt == {"role": "user", "parts": [{"type": "text", "content": "a secret, flaky task"}]}
    (answer,) = json.loads(last["attributes"]["gen_ai.output.messages"])
    assert answer["parts"][0]["content"].strip() == "the secret answer"


async def test_a_judgement_has_a_span(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    text = 'let a = "x"\nif **the secret matter is fine**:\n  let b = "y"\n'
    options = {"provider": "scripted", "script": "script.yaml", "judge_rules": "off", "cassette_mode": "off"}
    await run(tmp_path, text, telemetry_log="log", **options)
    (judgement,) = ended(tmp_path / "log", "judgement")
    assert "secret" not in json.dumps(judgement)
    assert judgement["attributes"]["prose.judge"] == "scripted"


async def test_a_gate_has_a_span_and_an_error_its_statement(tmp_path: Path) -> None:
    await run(tmp_path, 'gate ship:\n  prompt: "a secret?"\n', telemetry_log="log", gates="deny")
    (gate,) = ended(tmp_path / "log", "gate")
    assert (gate["name"], gate["attributes"]["prose.outcome"]) == ("gate ship", "rejected")
    assert [line["error"] for line in ended(tmp_path / "log", "statement")] == ["E213"]
    assert "secret" not in (tmp_path / "log").read_text()


async def test_the_spans_of_cancelled_commands_end(tmp_path: Path) -> None:
    text = 'parallel ("first"):\n  exec "echo fast"\n  exec "sleep 60"\n'
    await run(tmp_path, text, telemetry_log="log")
    assert sorted(line["status"] for line in ended(tmp_path / "log", "command")) == ["cancelled", "ok"]
    begun = [line["span_id"] for line in log_lines(tmp_path / "log") if line["event"] == "begin"]
    assert set(begun) <= {line["span_id"] for line in log_lines(tmp_path / "log") if line["event"] == "end"}


# ---------------------------------------------------------------- the collector


async def test_spans_have_arrived_after_the_workspace_is_closed(tmp_path: Path, collector: Collector) -> None:
    person = await run(tmp_path, 'let a = "x"', telemetry_otel=True)
    assert [span.name for span in collector.spans] == ["let", "cell 1", "invoke_workflow notebook"]
    assert person.transcript == []


@pytest.mark.parametrize("status", [400, 500])
async def test_a_collector_that_refuses_spans_is_reported_once(
    tmp_path: Path, collector: Collector, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    collector.status = status
    person = await run(tmp_path, 'let a = "x"', telemetry_otel=True)
    assert person.transcript == [
        "Warning: the collector of OpenTelemetry does not take spans; they are lost while it does not"
    ]
    assert caplog.records == []


async def test_a_collector_that_never_answers_does_not_stop_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from prose_kernel.telemetry import otel

    monkeypatch.setattr(otel, "PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the connection and never answers
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
        person = await asyncio.wait_for(run(tmp_path, 'let a = "x"', telemetry_otel=True), 30)
    assert len(person.transcript) == 1
    assert caplog.records == []


async def test_otel_sdk_disabled_switches_the_collector_off(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    person = await run(tmp_path, 'let a = exec "echo x"', telemetry_otel=True)
    assert (collector.spans, person.transcript) == ([], [])


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("OTEL_EXPORTER_OTLP_HEADERS", "key-that-nobody-may-see-" * 20, "Header format invalid!"),
        ("OTEL_TRACES_SAMPLER", "most", "Couldn't recognize sampler most."),
        ("OTEL_BSP_SCHEDULE_DELAY", "soon", "Unable to parse value"),
    ],
)
async def test_an_invalid_variable_is_reported_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    collector: Collector,
    capfd: pytest.CaptureFixture[str],
    variable: str,
    value: str,
    expected: str,
) -> None:
    monkeypatch.setenv(variable, value)
    person = await run(tmp_path, 'exec "touch ran"', telemetry_otel=True)
    (warning,) = person.transcript
    assert warning.startswith(f"Warning: OpenTelemetry: {expected}")
    assert "nobody" not in warning
    assert (tmp_path / "ran").exists()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "-3"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "many"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "nonsense"),
    ],
)
async def test_a_variable_that_stops_the_exporter_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(
        UsageError, match=r"a variable of OpenTelemetry cannot be used|the collector's address isn't a URL"
    ):
        await run(tmp_path, 'exec "touch ran"', telemetry_otel=True)
    assert not (tmp_path / "ran").exists()


async def test_an_unknown_exporter_is_an_error_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    with pytest.raises(UsageError, match="OTEL_TRACES_EXPORTER=zipkin is not supported"):
        await run(tmp_path, 'exec "touch ran"', telemetry_otel=True)
    assert not (tmp_path / "ran").exists()


# ---------------------------------------------------------------- the log


async def test_only_its_owner_can_read_the_log(tmp_path: Path) -> None:
    await run(tmp_path, 'let a = "x"', telemetry_log="log")
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600
    assert [(line["event"], line["kind"]) for line in log_lines(tmp_path / "log")] == [
        ("begin", "run"),
        ("begin", "cell"),
        ("end", "statement"),
        ("end", "cell"),
        ("end", "run"),
        ("metrics", "run"),
    ]


async def test_a_log_that_cannot_be_written_is_reported_once_and_the_program_runs(tmp_path: Path) -> None:
    person = await run(tmp_path, 'exec "touch ran"', 'let b = "x"', telemetry_log="missing/log")
    assert person.transcript == [
        "Warning: the log log cannot be written (no such file or directory); nothing more is logged"
    ]
    assert (tmp_path / "ran").exists()


async def test_a_log_is_never_appended_to_another_file(tmp_path: Path) -> None:
    (tmp_path / "p.prose").write_text("output x = 1\n")
    person = await run(tmp_path, 'let b = "x"', telemetry_log="p.prose")
    assert person.transcript == ["Warning: the log p.prose cannot be written (it isn't a log); nothing more is logged"]
    assert (tmp_path / "p.prose").read_text() == "output x = 1\n"


def test_a_long_log_is_rotated(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "log", pytest.fail, largest=400)
    for number in range(5):
        log.ended(Span("cell", f"cell {number}", 0, end=1))
    log.close()
    kept = log_lines(tmp_path / "log.1") + log_lines(tmp_path / "log")
    assert [line["name"] for line in kept][-1] == "cell 4"
    assert (tmp_path / "log").stat().st_size <= 400


def test_two_processes_that_rotate_a_log_lose_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samestat, spans = os.path.samestat, [Span("statement", f"statement {number}", 0, end=1) for number in range(6)]
    LogFile(tmp_path / "line", pytest.fail).ended(spans[0])
    four = 4 * (tmp_path / "line").stat().st_size
    one, other = (LogFile(tmp_path / "log", pytest.fail, largest=four) for _ in range(2))
    for number in range(4):
        (one, other)[number % 2].ended(spans[number])

    def rotates_first(*found: os.stat_result) -> bool:
        monkeypatch.setattr(os.path, "samestat", samestat)
        other.ended(spans[4])
        return samestat(*found)

    monkeypatch.setattr(os.path, "samestat", rotates_first)
    one.ended(spans[5])
    one.close()
    other.close()
    lines = log_lines(tmp_path / "log.1") + log_lines(tmp_path / "log")
    assert [line["name"] for line in lines] == [span.name for span in spans]


async def test_telemetry_that_is_off_is_not_attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from prose_kernel.runs import run_assembly

    monkeypatch.setattr(run_assembly, "watch", lambda *_: pytest.fail("telemetry is on"))
    await run(tmp_path, 'let a = "x"')


def test_settings_and_variables_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "prose.toml").write_text('[telemetry]\notel = true\nlog = "a"\ncontent = true\ncommands = false\n')
    found = load(tmp_path, {"PROSE_TELEMETRY_LOG": "b"})
    assert (found.telemetry.otel, found.telemetry.log, found.telemetry.content, found.telemetry.commands) == (
        True,
        "b",
        True,
        False,
    )


# ---------------------------------------------------------------- prose doctor


@pytest.mark.parametrize(
    ("table", "variables", "state", "expected"),
    [
        ("", {}, "ok", "off"),
        ("otel = true", {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://u:key@c.example/x?k=key"}, "ok", "https://c.example,"),
        ("otel = true", {"OTEL_EXPORTER_OTLP_ENDPOINT": "nonsense"}, "broken", "the collector's address isn't a URL"),
        ("otel = true", {"OTEL_TRACES_EXPORTER": "zipkin"}, "broken", "zipkin is not supported"),
        ("otel = true", {"OTEL_SDK_DISABLED": "true"}, "ok", "spans go to no exporter"),
        ('log = "missing/log"', {}, "broken", "the log missing/log cannot be written"),
        ('log = "log"\ncontent = true', {}, "note", "a log, with prompts"),
    ],
)
def test_doctor_reports_the_exporter_and_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, variables: dict[str, str], state: str, expected: str
) -> None:
    from prose_kernel.cli import doctor

    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prose.toml").write_text(f"[telemetry]\n{table}\n")
    found = doctor.telemetry(load(tmp_path, {}))
    assert found.state == state
    assert expected in found.text
    assert "key" not in found.text


# ---------------------------------------------------------------- front ends


async def test_spans_of_an_imported_program_belong_to_the_statement_that_calls_it(tmp_path: Path) -> None:
    (tmp_path / "part.prose").write_text(
        'input text: "what"\nlet inner = exec "echo 1"\nlet b = "x"\noutput c = text\n'
    )
    text = 'use "./part.prose" as part\nlet first = "1"\nlet r = part(text: first)\nlet last = exec "echo 2"\n'
    await run(tmp_path, text, telemetry_log="log")
    statements = ended(tmp_path / "log", "statement")
    assert [line["attributes"].get("prose.name") for line in statements] == ["first", "r", "last"]
    of = {line["span_id"]: line["attributes"]["prose.name"] for line in statements}
    assert [of[line["parent_id"]] for line in ended(tmp_path / "log", "command")] == ["r", "last"]


def test_prose_run_sends_and_logs_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collector: Collector) -> None:
    from prose_kernel.cli.main import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.prose").write_text('let a = "x"\n')
    assert main(["run", "program.prose", "--otel", "--log", "log"]) == 0
    assert [span.name for span in collector.spans] == ["let", "cell 1", "invoke_workflow program.prose"]
    assert [line["name"] for line in ended(tmp_path / "log", "run")] == ["invoke_workflow program.prose"]


def test_a_file_name_that_is_not_utf8_loses_no_spans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    from prose_kernel.cli.main import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "caf\udce9.prose").write_text('let a = "x"\n')
    assert main(["run", "caf\udce9.prose", "--otel", "--log", "log"]) == 0
    assert [span.name for span in collector.spans] == ["let", "cell 1", "invoke_workflow caf\\udce9.prose"]
    assert caplog.records == [] and len(log_lines(tmp_path / "log")) == 6


def test_prose_test_records_no_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collector: Collector) -> None:
    from prose_kernel.cli.main import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "prose.toml").write_text('[telemetry]\nlog = "log"\notel = true\n')
    (tmp_path / "program.prose").write_text('output a = "x"\n')
    assert main(["test", "--update", "program.prose"]) == 0
    assert collector.spans == []
    assert not (tmp_path / "log").exists()


async def test_cells_of_a_notebook_are_one_trace_in_both_languages(tmp_path: Path) -> None:
    (tmp_path / "prose.toml").write_text('[telemetry]\nlog = "log"\n')
    cells = Cells(tmp_path, ScriptedPerson(available=False))
    try:
        assert await cells.run('let a = "x"', Recording(), live=False) is None
        assert await cells.run("%%vvm\nb = 1", Recording(), live=False) is None
    finally:
        await cells.close()
    assert len({line["trace_id"] for line in log_lines(tmp_path / "log")}) == 1
    assert [line["name"] for line in ended(tmp_path / "log", "cell")] == ["cell 1", "cell 2"]


# ---------------------------------------------------------------- models


def test_an_attempt_by_a_model_has_its_tools_and_usage(tmp_path: Path) -> None:
    place = events.Place(Source("session", "cell"), ProseSpan(0, 7), 1, kind="session")
    request = SessionRequest("session", "a secret task", "c1/1/s0", model="sonnet", output={"type": "object"})
    tool = ToolUse("read", "secret.md", "refused", "a secret")
    details = {"model": "m-1", "sampling": {"temperature": 0.2, "seed": 7, "effort": "high"}}
    usage = Usage(requests=2, tokens_in=10, tokens_out=5, cost=0.25)
    result = SessionResult("secret", provider="anthropic", origin="model", details=details, usage=usage)
    spans = Spans([LogFile(tmp_path / "log", pytest.fail)])
    for event in (
        events.RunStarted(place, "p.prose"),
        events.CellStarted(place, 1),
        events.SessionStarted(place, 0, request, None),
        events.SessionProgressed(place, 0, "tool", "", tool, 2.5),
        events.SessionProgressed(place, 0, "tool", "", ToolUse("a secret tool", "", "failed")),
        events.SessionFinished(place, 0, request, None, Key("s0"), result, "secret"),
        events.RunEnded(place),
    ):
        if type(event) in spans.kinds:
            spans(event)
    spans.close()
    assert "secret" not in (tmp_path / "log").read_text()
    (attempt,), (called, unknown) = ended(tmp_path / "log", "attempt"), ended(tmp_path / "log", "tool")
    assert called["parent_id"] == attempt["span_id"]
    assert (called["name"], called["status"], called["error"]) == ("execute_tool read", "error", "refused")
    assert called["seconds"] == 2.5
    assert unknown["name"] == "execute_tool unknown"
    assert attempt["name"] == "chat m-1"
    attributes = attempt["attributes"]
    assert {
        name: attributes[name] for name in attributes if name.startswith("gen_ai.") or name == "prose.cost.usd"
    } == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m-1",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.response.model": "m-1",
        "gen_ai.request.temperature": 0.2,
        "gen_ai.request.seed": 7,
        "gen_ai.output.type": "json",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "prose.cost.usd": 0.25,
    }


async def test_attribute_names_follow_the_semantic_conventions(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
    from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

    import prose_kernel.telemetry

    (directory,) = prose_kernel.telemetry.__path__
    used = {
        name for file in Path(directory).glob("*.py") for name in re.findall(r'"(gen_ai\.[\w.]+)"', file.read_text())
    }
    assert len(used) > 10
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    assert used <= known | {value for name, value in vars(gen_ai_metrics).items() if name.startswith("GEN_AI_")}
    await sessions(tmp_path, telemetry_otel=True)
    kinds = {span.name: span.kind for span in exporter.get_finished_spans()}
    assert {name for name, kind in kinds.items() if kind is trace.SpanKind.CLIENT} == {"attempt", "chat sonnet"}
    assert set(kinds.values()) == {trace.SpanKind.CLIENT, trace.SpanKind.INTERNAL}


def test_the_model_of_a_judgement_has_a_span(tmp_path: Path) -> None:
    place = events.Place(Source("if", "cell"), ProseSpan(0, 2), 1, kind="if")
    usage = {"requests": 1, "tokens_in": 7, "tokens_out": 2, "counted": True}
    spans = Spans([LogFile(tmp_path / "log", pytest.fail)])
    spans(events.CellStarted(place, 1))
    spans(events.JudgeAsked(place, "a secret question", "j0"))
    details = {"provider": "google-gla", "model": "g-1", "usage": usage}
    spans(events.Judged(place, "a secret question", True, "model", "a secret reason", details, "j0"))
    spans.close()
    (judgement,), (asked,) = ended(tmp_path / "log", "judgement"), ended(tmp_path / "log", "attempt")
    assert (asked["name"], asked["parent_id"]) == ("chat g-1", judgement["span_id"])
    attributes = asked["attributes"]
    assert (attributes["gen_ai.provider.name"], attributes["gen_ai.usage.input_tokens"]) == ("gcp.gemini", 7)
    assert "secret" not in (tmp_path / "log").read_text()


def test_a_resumed_run_has_spans_only_of_new_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from prose_kernel.cli.main import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.prose").write_text('exec "echo known"\nexec "test -e go"\n')
    assert main(["run", "program.prose"]) == 1
    (tmp_path / "go").touch()
    assert main(["run", "--resume", "--log", "log"]) == 0
    assert [line["attributes"]["prose.at"] for line in ended(tmp_path / "log", "command")] == ["c1/2/x0"]
    assert [line["status"] for line in ended(tmp_path / "log", "run")] == ["ok"]


def test_a_resumed_run_is_linked_to_the_run_that_it_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exporter: InMemorySpanExporter
) -> None:
    from prose_kernel.cli.main import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.prose").write_text('exec "echo known"\nexec "test -e go"\n')
    assert main(["run", "program.prose", "--otel"]) == 1
    (tmp_path / "go").touch()
    assert main(["run", "--resume", "--otel"]) == 0
    first, second = (span for span in exporter.get_finished_spans() if span.name.startswith("invoke_workflow"))
    assert [link.context.span_id for link in second.links] == [first.context.span_id]
    assert [link.context.trace_id for link in second.links] == [first.context.trace_id]
    assert first.links == ()
    assert first.attributes is not None
    assert second.attributes is not None
    assert first.attributes["prose.run"] == second.attributes["prose.run"]


async def test_a_loop_has_one_span(tmp_path: Path) -> None:
    await run(tmp_path, "let n = 0\nrepeat 3:\n  n = n + 1\n", telemetry_log="log")
    statements = [line["attributes"] for line in ended(tmp_path / "log", "statement")]
    assert [(one["prose.kind"], one["code.line.number"], one.get("prose.name")) for one in statements] == [
        ("let", 1, "n"),
        ("repeat", 2, None),
    ]
