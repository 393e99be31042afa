"""The built-in tools of sessions, each with its own permission check (sessions.md 2.3)."""
