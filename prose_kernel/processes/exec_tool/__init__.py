"""The `Exec` tool: a program with arguments, run for an agent without making the machine a hostage."""
