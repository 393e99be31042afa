"""Reports runs as spans and metrics, to OpenTelemetry and to a log of JSON lines (docs/how-to/watching.md)."""
