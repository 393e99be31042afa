"""Sends spans and metrics to OpenTelemetry, through the providers of the process, or our own ones, which the `OTEL_`
variables describe.

Only this module imports the SDK; it is imported when a run is watched. Users flush and close a provider that they have
set. Our own providers export in a thread. An unreachable collector causes one warning, loses only its spans and
metrics, and delays the end of a process by at most `PATIENCE`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry import context, metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from prose_kernel._version import __version__
from prose_kernel.errors import UsageError
from prose_kernel.language.text import one_line
from prose_kernel.runtime.redaction import hidden_of_process
from prose_kernel.telemetry import spans
from prose_kernel.telemetry.spans import SCHEMA, Attribute, Note, Span, SpanDestination, trace_and_span

PATIENCE: Final = 3.0
"""Seconds for the last spans to reach the collector."""
_QUIET: Final = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal")
_KINDS: Final = {"attempt": trace.SpanKind.CLIENT, "request": trace.SpanKind.CLIENT}


class Tracer(SpanDestination):
    """Sends spans. `environment` holds the `OTEL_` variables and the trace context of this process."""

    assigns_ids = True

    def __init__(self, environment: Mapping[str, str], warn: Callable[[str], None]) -> None:
        provider = trace.get_tracer_provider()
        self._own: TracerProvider | None = None
        self._exporter: WarningExporter | None = None
        if isinstance(provider, trace.ProxyTracerProvider):  # the user has set none
            with sdk_messages(environment, warn):
                if (exporter := _exporter(environment)) is not None:
                    self._exporter = WarningExporter(exporter, warn)
                provider = self._own = TracerProvider(resource=resource(environment), shutdown_on_exit=False)
                if self._exporter is not None:
                    self._own.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = provider.get_tracer("prose_kernel", __version__, schema_url=SCHEMA)
        self._spans: dict[int, trace.Span] = {}
        carrier = {name.lower(): environment[name] for name in ("TRACEPARENT", "TRACESTATE") if name in environment}
        self._remote = TraceContextTextMapPropagator().extract(carrier)

    def begun(self, span: Span) -> None:
        if span.parent is not None and id(span.parent) in self._spans:
            parent_context = trace.set_span_in_context(self._spans[id(span.parent)], context.Context())
        elif trace.get_current_span().get_span_context().is_valid:
            parent_context = context.get_current()
        else:
            parent_context = self._remote
        kind = _KINDS.get(span.kind, trace.SpanKind.INTERNAL)
        attributes, links = clean_attributes(span.attributes), _links(span)
        name = _clean(span.name)
        made = self._tracer.start_span(name, parent_context, kind, attributes, links, start_time=span.begin)
        self._spans[id(span)] = made
        span_context = made.get_span_context()
        if span_context.is_valid:  # it isn't if recording is off (OTEL_SDK_DISABLED)
            span.trace_id, span.span_id = f"{span_context.trace_id:032x}", f"{span_context.span_id:016x}"
            span.sampled = span_context.trace_flags.sampled

    def noted(self, span: Span, note: Note) -> None:
        if (made := self._spans.get(id(span))) is not None:
            made.add_event(note.name, clean_attributes(note.attributes), note.at)

    def ended(self, span: Span) -> None:
        made = self._spans.pop(id(span), None)
        if made is None:
            return
        made.update_name(_clean(span.name))
        made.set_attributes(clean_attributes(span.attributes))
        if span.status == "error":
            made.set_status(trace.Status(trace.StatusCode.ERROR, _clean(span.message or span.error) or None))
        elif span.status == "cancelled":
            made.set_attribute("prose.outcome", "cancelled")
        made.end(span.end)

    def close(self) -> None:
        late = self._own is not None and not ended_in_time(self._own.shutdown, "prose-telemetry-end")
        if late and self._exporter is not None:
            self._exporter.failed()


def ended_in_time(shutdown: Callable[[], object], name: str) -> bool:
    """Call the `shutdown` of a provider in a thread; return whether it has ended within `PATIENCE`."""
    ending = threading.Thread(target=shutdown, name=name, daemon=True)
    try:
        ending.start()
    except RuntimeError:  # Python 3.12.0 and 3.12.1 start no thread while the interpreter ends
        shutdown()
        return True
    ending.join(PATIENCE)
    return not ending.is_alive()


def _clean(text: str) -> str:
    """Return a text without secrets and without characters that UTF-8 cannot encode. A file name may contain such
    characters; they would lose all spans that are sent together."""
    return hidden_of_process()(text).encode("utf-8", "backslashreplace").decode()


def clean_attributes(attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """Return attributes with texts in the form of `_clean`."""
    return {name: _clean(value) if isinstance(value, str) else value for name, value in attributes.items()}


def _links(span: Span) -> list[trace.Link]:
    earlier = trace_and_span(span.link)
    if earlier is None:
        return []
    trace_id, span_id = (int(number, 16) for number in earlier)
    return [trace.Link(trace.SpanContext(trace_id, span_id, is_remote=True))]


def resource(environment: Mapping[str, str]) -> Resource:
    """Return the resource of our providers: from the variables, otherwise the service `prose`."""
    found = Resource.create()
    if environment.get("OTEL_SERVICE_NAME") or "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        return found
    return found.merge(Resource({SERVICE_NAME: "prose"}))


def destination(environment: Mapping[str, str]) -> str:
    """Return the destination of spans for display, without secrets in its address. Raises `UsageError`."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or not _wanted(environment):
        return "no exporter"
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    address = next((environment[name] for name in names if environment.get(name)), "http://localhost:4318")
    try:
        found = urlsplit(address)
        host, port = found.hostname, found.port
    except ValueError:
        host = None
    if host is None or found.scheme not in ("http", "https"):
        raise UsageError(
            "the collector's address isn't a URL", hint="set OTEL_EXPORTER_OTLP_ENDPOINT, as http://localhost:4318"
        )
    return f"{found.scheme}://{host}" + (f":{port}" if port else "")


def _wanted(environment: Mapping[str, str]) -> bool:
    """Return whether the variables request an exporter. Raises `UsageError` for an unsupported one."""
    wanted = environment.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    if wanted == "none":
        return False
    protocols = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((environment[name] for name in protocols if environment.get(name)), "http/protobuf")
    if wanted != "otlp" or protocol != "http/protobuf":
        what = f"OTEL_TRACES_EXPORTER={wanted}" if wanted != "otlp" else f"the OTLP protocol {protocol}"
        raise UsageError(f"{what} is not supported", hint="spans go out as otlp with http/protobuf, or nowhere: none")
    return True


@contextlib.contextmanager
def sdk_messages(environment: Mapping[str, str], warn: Callable[[str], None]) -> Iterator[None]:
    """Pass the SDK's log messages about its variables to `warn`, each as one line without the values of headers, which
    contain keys. Raises `UsageError` if the SDK cannot continue."""
    logger, handler = logging.getLogger("opentelemetry"), _Messages()
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    except (ValueError, TypeError, OSError) as problem:
        text = _without_headers(str(problem), environment)
        raise UsageError(f"a variable of OpenTelemetry cannot be used: {text}") from None
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated
        for message in handler.messages:
            warn(f"OpenTelemetry: {one_line(_without_headers(message, environment), 200)}")


class _Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def _without_headers(text: str, environment: Mapping[str, str]) -> str:
    for name, value in environment.items():
        if name.startswith("OTEL_") and name.endswith("HEADERS"):
            for secret in (value, *value.split(","), *(part.partition("=")[2] for part in value.split(","))):
                text = text.replace(secret.strip(), "...") if secret.strip() else text
    return text


def _exporter(environment: Mapping[str, str]) -> SpanExporter | None:
    if not _wanted(environment):
        return None
    destination(environment)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    silence_loggers(*_QUIET)
    return OTLPSpanExporter()


def silence_loggers(*names: str) -> None:
    """Drop the records of these loggers, because our own warning reports the problem once."""
    for name in names:
        logging.getLogger(name).addFilter(_nothing)


def _nothing(record: logging.LogRecord) -> bool:
    return False


class WarningExporter(SpanExporter):
    """Exports through another exporter, in the exporting thread, and warns once if that fails."""

    def __init__(self, exporter: SpanExporter, warn: Callable[[str], None]) -> None:
        self._exporter = exporter
        self._warn = warn
        self._reported = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception:  # an exporter may come from any package
            result = SpanExportResult.FAILURE
        if result is not SpanExportResult.SUCCESS:
            self.failed()
        return result

    def failed(self) -> None:
        if not self._reported:
            self._reported = True
            self._warn("the collector of OpenTelemetry does not take spans; they are lost while it does not")

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


# ---------------------------------------------------------------- metrics

_SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)


class Meter(SpanDestination):
    """Records the measures of each ended span. `environment` holds the `OTEL_` variables; our own provider sends the
    metrics every minute and at the end."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        provider = metrics.get_meter_provider()
        self._own: MeterProvider | None = None
        if not isinstance(provider, MeterProvider) and type(provider).__name__.startswith("_Proxy"):
            with sdk_messages(environment, lambda text: None):  # the tracer warns about the same variables
                provider = self._own = _provider(environment)
        meter = provider.get_meter("prose_kernel", __version__, schema_url=spans.SCHEMA)
        seconds = partial(meter.create_histogram, unit="s", explicit_bucket_boundaries_advisory=_SECONDS)
        tokens = meter.create_histogram(
            spans.TOKENS, unit="{token}", description="Tokens used.", explicit_bucket_boundaries_advisory=_TOKENS
        )
        cost = meter.create_counter(spans.COST, unit="{USD}", description="Known cost of models.")
        self._record: dict[str, Callable[..., None]] = {
            spans.DURATION: seconds(spans.DURATION, description="GenAI operation duration.").record,
            spans.OPERATIONS: seconds(spans.OPERATIONS, description="Duration of operations.").record,
            spans.TOKENS: tokens.record,
            spans.COST: cost.add,
        }

    def ended(self, span: Span) -> None:
        for measure in spans.measures_of(span):
            self._record[measure.name](measure.value, clean_attributes(measure.attributes))

    def close(self) -> None:
        if self._own is not None:
            ended_in_time(self._own.shutdown, "prose-metrics-end")


def _provider(environment: Mapping[str, str]) -> MeterProvider:
    wanted = environment.get("OTEL_METRICS_EXPORTER", "").strip() or "otlp"
    readers = []
    if wanted == "otlp" and destination(environment) != "no exporter":
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        silence_loggers("opentelemetry.exporter.otlp.proto.http.metric_exporter", "opentelemetry.sdk.metrics")
        readers.append(PeriodicExportingMetricReader(SilentMetrics(OTLPMetricExporter())))
    return MeterProvider(readers, resource=resource(environment), shutdown_on_exit=False)


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
