"""The tools that sessions are given: ours, each with its permission check inside (sessions.md 2.3)."""
