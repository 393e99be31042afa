"""Tools that a team brings: MCP servers of prose.toml, and Python functions of prose_tools.py (docs/tools.md)."""
