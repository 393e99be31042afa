"""The collector that receives the spans of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from telemetry.collector import Collector, serving


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with serving() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        yield found
