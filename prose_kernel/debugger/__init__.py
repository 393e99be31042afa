"""A debugger for programs of any language, over the Debug Adapter Protocol (docs/how-to/debugging.md).

`Debugger` is a hook that holds a program, `Texts` says where it may be held, `Adapter` speaks the protocol. Nothing
here knows Jupyter or a language, and nothing is imported before a debugger attaches.
"""
