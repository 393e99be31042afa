"""A collector of OpenTelemetry on the loopback interface: OTLP over HTTP."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Collector:
    """The received spans in order, and the bytes of every request. `status` is the status of its answers."""

    url: str = ""
    status: int = 200
    spans: list[Span] = field(default_factory=list)
    services: set[str] = field(default_factory=set)
    received: bytes = b""
    metrics: set[str] = field(default_factory=set)

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        self.received += body
        for resource in request.resource_spans:
            self.services |= {
                one.value.string_value for one in resource.resource.attributes if one.key == "service.name"
            }
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]

    def take_metrics(self, body: bytes) -> None:
        request = ExportMetricsServiceRequest()
        request.ParseFromString(body)
        self.received += body
        for resource in request.resource_metrics:
            self.metrics |= {metric.name for scope in resource.scope_metrics for metric in scope.metrics}

    def tree(self) -> list[str]:
        """Return the spans as `parent > name`, sorted."""
        names = {span.span_id: span.name for span in self.spans}
        return sorted(f"{names.get(span.parent_span_id, '')} > {span.name}" for span in self.spans)


def log_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a telemetry log."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@contextmanager
def serving() -> Iterator[Collector]:
    found = Collector()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.headers["Content-Type"] == "application/x-protobuf"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/metrics":
                found.take_metrics(body)
            else:
                assert self.path == "/v1/traces"
                found.take(body)
            self.send_response(found.status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
