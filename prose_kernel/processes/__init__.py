"""The process engine and its users: `exec`, the shell commands of a program.

`Engine` (`engine.py`) owns one thread with its own event loop, from first use to `close`; `ShellCommands` (`shell.py`)
is the machine's `Commands` port on top of it. A kernel starts without loading either.
"""
