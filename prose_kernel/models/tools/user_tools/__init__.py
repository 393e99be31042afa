"""Tools that users provide: MCP servers of prose.toml, Python functions of prose_tools.py (docs/how-to/tools.md)."""
