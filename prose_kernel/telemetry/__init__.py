"""Watching runs from outside: spans for OpenTelemetry, and the same as a log in JSON lines (docs/watching.md)."""
