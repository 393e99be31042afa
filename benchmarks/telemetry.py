"""Telemetry: the cost of OpenTelemetry and the log, compared with the same run without them.

Three texts: many passes of a loop, many statements, and many sessions that a script answers. Each runs unwatched (the
floor), with OpenTelemetry whose spans a collector in this process takes and forgets, and with a log; in turn. Figures
are processor time of this process, with what is sent at the end. The import of the SDK is outside. The floor of a span
is what the SDK alone needs for one with five attributes, made, ended and sent.

`python benchmarks/telemetry.py [--json] [--quick]`.
"""

from __future__ import annotations

import argparse
import asyncio
import http.server
import json
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.asker import Unattended

HOW: dict[str, dict[str, Any]] = {"off": {}, "otel": {"telemetry_otel": True}, "log": {"telemetry_log": "log"}}


class Taker(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Discard the spans."""


async def once(text: str, how: str) -> float:
    """Return the processor seconds of one run."""
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "script.yaml").write_text("sessions: {'*': answer}\n")
        chosen: dict[str, Any] = {"journal": "off", "cassette_mode": "off", "state": "in-context", **HOW[how]}
        settings = Settings().changed(provider="scripted", script="script.yaml", **chosen)
        workspace = Workspace(settings, Start(Path(place)), asker=Unattended())
        await workspace.execute('session "first"')  # loads modules
        began = time.process_time()
        await workspace.execute(text)
        await workspace.close()
        return time.process_time() - began


def alone(count: int) -> float:
    """Return the processor seconds that the SDK needs for one span."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer = provider.get_tracer("floor")
    began = time.process_time()
    for number in range(count):
        span = tracer.start_span("let", attributes={"prose.statement": number})
        span.set_attributes({"code.line.number": 1, "code.column.number": 1, "prose.kind": "let", "prose.name": "a"})
        span.end()
    provider.shutdown()
    return (time.process_time() - began) / count


def measured(rounds: int, count: int) -> dict[str, dict[str, float]]:
    texts = {
        "loop passes": (20 * count, f"let n = 0\nrepeat {20 * count}:\n  n = n + 1\n"),
        "statements": (count, "".join(f"let a{number} = {number}\n" for number in range(count))),
        "sessions": (count, f'repeat {count}:\n  session "do it"\n'),
    }
    found: dict[str, dict[str, float]] = {}
    for name, (size, text) in texts.items():
        spent: dict[str, list[float]] = {how: [] for how in HOW}
        for turn in range(rounds + 1):
            for how in (*HOW,)[turn % 3 :] + (*HOW,)[: turn % 3]:
                taken = asyncio.run(once(text, how))
                if turn:  # the first round loads modules
                    spent[how].append(taken)
        best = {how: statistics.median(spent[how]) for how in HOW}
        found[name] = {f"{how}_seconds": best[how] for how in HOW}
        for how in ("otel", "log"):
            found[name][f"{how}_over_off"] = best[how] / best["off"]
            found[name][f"{how}_microseconds_each"] = (best[how] - best["off"]) / size * 1e6
    floor = statistics.median(alone(count) for _ in range(rounds)) * 1e6
    each = found["statements"]["otel_microseconds_each"]
    found["a span"] = {"sdk_alone_microseconds": floor, "statement_over_sdk_alone": each / floor}
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Taker)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{server.server_port}"
    found = measured(2, 200) if asked.quick else measured(5, 1000)
    if asked.json:
        print(json.dumps(found))
        return
    for name, figures in found.items():
        print(name)
        for what, figure in figures.items():
            print(f"  {what:<24}{figure:12.4f}")


if __name__ == "__main__":
    main()
