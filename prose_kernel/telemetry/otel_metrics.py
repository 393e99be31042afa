"""Sends metrics to OpenTelemetry, in addition to spans (`otel.py`): the measures of each ended span.

They go through the process's meter provider, or our own one, which sends them every minute and at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)

from prose_kernel._version import __version__
from prose_kernel.telemetry import conventions, otel
from prose_kernel.telemetry.spans import Recorder, Span

_SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)


class Meter(Recorder):
    """Measures ended spans. `environment` holds the `OTEL_` variables."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        provider = metrics.get_meter_provider()
        self._own: MeterProvider | None = None
        if not isinstance(provider, MeterProvider) and type(provider).__name__.startswith("_Proxy"):
            with otel.sdk_messages(environment, lambda text: None):  # the tracer warns about the same variables
                provider = self._own = _provider(environment)
        meter = provider.get_meter("prose_kernel", __version__, schema_url=conventions.SCHEMA)
        seconds = partial(meter.create_histogram, unit="s", explicit_bucket_boundaries_advisory=_SECONDS)
        tokens = meter.create_histogram(
            conventions.TOKENS, unit="{token}", description="Tokens used.", explicit_bucket_boundaries_advisory=_TOKENS
        )
        cost = meter.create_counter(conventions.COST, unit="{USD}", description="Known cost of models.")
        self._record: dict[str, Callable[..., None]] = {
            conventions.DURATION: seconds(conventions.DURATION, description="GenAI operation duration.").record,
            conventions.OPERATIONS: seconds(conventions.OPERATIONS, description="Duration of operations.").record,
            conventions.TOKENS: tokens.record,
            conventions.COST: cost.add,
        }

    def ended(self, span: Span) -> None:
        for measure in conventions.measures_of(span):
            self._record[measure.name](measure.value, otel.clean_attributes(measure.attributes))

    def close(self) -> None:
        if self._own is not None:
            otel.ended_in_time(self._own.shutdown, "prose-metrics-end")


def _provider(environment: Mapping[str, str]) -> MeterProvider:
    wanted = environment.get("OTEL_METRICS_EXPORTER", "").strip() or "otlp"
    readers = []
    if wanted == "otlp" and otel.destination(environment) != "no exporter":
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        otel.silence_loggers("opentelemetry.exporter.otlp.proto.http.metric_exporter", "opentelemetry.sdk.metrics")
        readers.append(PeriodicExportingMetricReader(SilentMetrics(OTLPMetricExporter())))
    return MeterProvider(readers, resource=otel.resource(environment), shutdown_on_exit=False)


class SilentMetrics(MetricExporter):
    """Exports through another exporter, and ignores failures, because many collectors accept spans but no metrics. The
    tracer reports an unreachable collector."""

    def __init__(self, exporter: MetricExporter) -> None:
        super().__init__(
            preferred_temporality=exporter._preferred_temporality, preferred_aggregation=exporter._preferred_aggregation
        )
        self._exporter = exporter

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **more: Any) -> MetricExportResult:
        try:
            return self._exporter.export(metrics_data, timeout_millis, **more)
        except Exception:  # an exporter may come from any package
            return MetricExportResult.FAILURE

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **more: Any) -> None:
        self._exporter.shutdown(timeout_millis, **more)
