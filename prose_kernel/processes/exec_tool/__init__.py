"""The `Exec` tool: runs a program for an agent, within limits that protect the machine."""
