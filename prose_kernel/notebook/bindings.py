"""`prose["name"]` in a Python notebook: the bindings of the run as Python values (docs/reference/jupyter.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prose_kernel.errors import UsageError
from prose_kernel.runtime.values import Value, verbatim

_LISTED = 20


class Bindings(Mapping[str, object]):
    """The bindings of the Prose run as Python values: `prose["plan"]`.

    Text, output of commands and answers of sessions are `str`; numbers, booleans, `None`, lists and dicts are what they
    are in Python; typed answers and output in a declared format are data. `prose.frame("rows")` is an array of objects
    as a DataFrame. Reading a name that is not bound raises `KeyError`, which lists the names there are. Assigning binds
    a value in the run, as `let` does. The mapping always shows the current state of the run.
    """

    def __init__(self, values: Callable[[], Mapping[str, Value]], bind: Callable[[str, object], None]) -> None:
        self._values = values
        self._bind = bind

    def __getitem__(self, name: str) -> object:
        __tracebackhide__ = True  # IPython shows the line that reads the name, not this one
        return verbatim(self._value(name))

    def _value(self, name: str) -> Value:
        __tracebackhide__ = True
        values = self._values()
        if name not in values:
            raise NotBound(name, tuple(values))
        return values[name]

    def __setitem__(self, name: str, value: object) -> None:
        self._bind(name, value)

    def frame(self, name: str, library: str | None = None) -> Any:
        """An array of objects as a DataFrame of pandas or polars: `library`, else the one that is imported already.

        Raises `KeyError` for a name that is not bound, `TypeError` for a value that isn't an array of objects.
        """
        __tracebackhide__ = True
        from prose_kernel.notebook.python_values import frame

        try:
            return frame(name, self._value(name), library)
        except UsageError as problem:
            raise TypeError(f"{problem}; {problem.hint}" if problem.hint else str(problem)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def __repr__(self) -> str:
        return f"<Prose bindings: {', '.join(self) or 'none yet'}>"


class NotBound(KeyError):
    """The error for a name that is not bound in the run; it lists the bound names."""

    def __init__(self, name: object, known: tuple[str, ...]) -> None:
        super().__init__(name)
        self._known = known

    def __str__(self) -> str:
        if not self._known:
            return f"there is no binding {self.args[0]!r}: nothing is bound yet"
        shown = ", ".join(self._known[:_LISTED])
        more = len(self._known) - _LISTED
        return f"there is no binding {self.args[0]!r}; bound are {shown}" + (f" and {more:,} more" if more > 0 else "")
