"""Requests to models and calls of tools as separate spans, with metrics of both (A46)."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from models.people import ScriptedPerson
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from stubs.model_server import StubServer
from telemetry.collector import Collector, log_lines
from waiting import eventually

from prose_kernel.errors import RunError
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.session_options import McpServer, ModelOptions, ModelServer, Price

BY_HAND = str(Path(__file__).parents[1] / "stubs" / "mcp_by_hand.py")


@pytest.fixture(scope="module")
def running_stub() -> Iterator[StubServer]:
    with StubServer() as found:
        yield found


@pytest.fixture
def stub(running_stub: StubServer) -> StubServer:
    running_stub.reset()
    return running_stub


async def run(stub: StubServer, cwd: Path, model: str, text: str, **more: Any) -> None:
    server = ModelServer(
        "openai",
        stub.openai_url,
        key="",
        model="it",
        aliases={"it": model},
        options={"it": ModelOptions(price=Price(input=1.0, output=2.0))},
    )
    chosen = {"provider": "stub", "providers": {"stub": server}, "cassette_mode": "off", "journal": "off", **more}
    here = Workspace(Settings().changed(**chosen), Start(cwd), asker=ScriptedPerson(available=False))
    try:
        with contextlib.suppress(RunError):
            await here.execute(text)
    finally:
        await here.close()


def completed_spans(path: Path, *kinds: str) -> list[dict[str, Any]]:
    """Return the spans that have begun and ended, in the order of their ends."""
    found = log_lines(path)
    begun = {line["span_id"] for line in found if line["event"] == "begin"}
    return [line for line in found if line["event"] == "end" and line["kind"] in kinds and line["span_id"] in begun]


async def test_a46_each_request_and_each_tool_has_a_span_that_begins_and_ends(stub: StubServer, tmp_path: Path) -> None:
    """Unknown tools have spans, too. Only requests have tokens."""
    (tmp_path / "notes.txt").write_text("remember the milk")
    calls = [{"name": "read", "arguments": {"path": "notes.txt"}}, {"name": "no such secret", "arguments": {}}]
    model = stub.script("operations", {"calls": calls}, "Done.")
    permissions = "agent a:\n  permissions:\n    read: allow\n"
    await run(stub, tmp_path, model, f'{permissions}session: a\n  prompt: "Go"\n', telemetry_log="log")
    log = tmp_path / "log"
    (attempt,) = completed_spans(log, "attempt")
    found = completed_spans(log, "request", "tool")
    assert [one["name"] for one in found] == [
        f"chat {model}",
        "execute_tool read",
        "execute_tool unknown",
        f"chat {model}",
    ]
    assert {one["parent_id"] for one in found} == {attempt["span_id"]}
    assert [one["status"] for one in found] == ["ok", "ok", "error", "ok"]
    for one in (found[0], found[3]):
        attributes = one["attributes"]
        assert attributes["gen_ai.operation.name"] == "chat" and attributes["gen_ai.provider.name"] == "stub"
        cost = (attributes["gen_ai.usage.input_tokens"] + 2 * attributes["gen_ai.usage.output_tokens"]) / 1e6
        assert attributes["prose.cost.usd"] == pytest.approx(cost) and cost > 0
    assert (attempt["name"], "gen_ai.usage.input_tokens" in attempt["attributes"]) == ("attempt", False)
    assert "secret" not in log.read_text()


@pytest.mark.parametrize("model", ["err-500", "cut"])
async def test_a46_a_failed_request_has_a_span(stub: StubServer, tmp_path: Path, model: str) -> None:
    await run(stub, tmp_path, model, 'session "Go"\n', telemetry_log="log")
    (request,) = completed_spans(tmp_path / "log", "request")
    assert (request["status"], request["attributes"]["error.type"]) == ("error", request["error"])
    assert "gen_ai.usage.input_tokens" not in request["attributes"]


async def test_a46_a_judgement_has_the_span_of_its_request(stub: StubServer, tmp_path: Path) -> None:
    await run(stub, tmp_path, "json-0-yes", 'if **the moon is made of cheese**:\n  exec "true"\n', telemetry_log="log")
    (judgement,), (request,) = (
        completed_spans(tmp_path / "log", "judgement"),
        completed_spans(tmp_path / "log", "request"),
    )
    assert request["parent_id"] == judgement["span_id"]
    assert request["attributes"]["gen_ai.usage.output_tokens"] > 0


async def test_a46_an_mcp_server_gets_the_traceparent_of_the_call(stub: StubServer, tmp_path: Path) -> None:
    model = stub.script("parents", {"calls": [{"name": "traced__parent", "arguments": {}}]}, "Done.")
    traced = McpServer((sys.executable, BY_HAND, "traced"), timeout=20)
    text = 'agent a:\n  tools: ["traced"]\n  permissions:\n    tools: allow\nsession: a\n  prompt: "Go"\n'
    await run(stub, tmp_path, model, text, mcp={"traced": traced}, telemetry_log="log", telemetry_content=True)
    (called,) = completed_spans(tmp_path / "log", "tool")
    answer = called["attributes"]["gen_ai.tool.call.result"]
    assert answer == f"00-{called['trace_id']}-{called['span_id']}-01"


async def test_a46_requests_tokens_cost_and_operations_are_measured(
    stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: provider)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    text = 'session "Go"\nexec "true"\nexec "false"\n'
    await run(stub, tmp_path, "ok-0", text, telemetry_log="log", telemetry_otel=True)
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert set(found) == {
        "gen_ai.client.operation.duration",
        "gen_ai.client.token.usage",
        "prose.cost",
        "prose.operation.duration",
    }
    tokens = {dict(point.attributes)["gen_ai.token.type"]: point for point in found["gen_ai.client.token.usage"]}
    assert set(tokens) == {"input", "output"}
    outcomes = [dict(point.attributes) for point in found["prose.operation.duration"]]
    assert {(one["prose.operation"], one["prose.outcome"]) for one in outcomes} >= {
        ("session", "ok"),
        ("command", "exited"),
    }
    (line,) = [line for line in log_lines(tmp_path / "log") if line["event"] == "metrics"]
    logged = {(one["name"], one["attributes"].get("gen_ai.token.type")): one for one in line["metrics"]}
    assert logged["gen_ai.client.token.usage", "input"]["sum"] == tokens["input"].sum
    assert logged["prose.cost", None]["sum"] > 0


async def test_a46_metrics_arrive_at_the_collector_of_spans(
    stub: StubServer, tmp_path: Path, collector: Collector
) -> None:
    await run(stub, tmp_path, "ok-0", 'session "Go"\n', telemetry_otel=True)
    assert "gen_ai.client.token.usage" in collector.metrics
    assert "chat ok-0" in {span.name for span in collector.spans}


async def test_a46_the_span_of_a_cancelled_request_ends(stub: StubServer, tmp_path: Path) -> None:
    text = 'parallel ("first"):\n  a = session "Go"\n  b = exec "until test -f asked; do sleep 0.02; done"\n'
    running = asyncio.create_task(run(stub, tmp_path, "hang", text, telemetry_log="log"))
    await eventually(lambda: stub.stats.requests)
    (tmp_path / "asked").touch()
    await running
    (request,) = completed_spans(tmp_path / "log", "request")
    assert request["status"] == "cancelled"
