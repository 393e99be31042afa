"""Runs commands on other machines, through Dask (docs/how-to/many-machines.md).

Each worker of a Dask cluster gets one actor, which owns a process engine; `RemoteCommands` is the machine's `Commands`
port over all of them. Commands are not Dask tasks: Dask repeats a task whose worker is lost, and a command must never
run twice.
"""
