"""The `Exec` tool: runs a program with arguments for an agent, with limits that protect the machine."""
