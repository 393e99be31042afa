"""Watching runs from outside: spans for OpenTelemetry, and as a log in JSON lines (docs/how-to/watching.md)."""
