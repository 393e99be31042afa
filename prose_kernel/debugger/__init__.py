"""A debugger for programs of any language, over the Debug Adapter Protocol (docs/how-to/debugging.md).

`Debugger` is a hook that pauses a program, `Texts` has the places where it may pause, `Adapter` implements the
protocol, `KernelDebugger` connects it to a Jupyter kernel. The kernel imports them with the first debug request.
"""
