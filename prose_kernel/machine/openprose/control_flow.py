"""How a program leaves a body early. No error: `catch` does not see it, `finally` runs."""

from __future__ import annotations

from typing import Literal

from prose_kernel.runtime.values import Value


class ControlFlow(Exception):
    """`return` and anonymous `output` (`valued` when they give a value), `break`, `continue`.

    `fields` tells that the value is an object literal, whose keys become the outputs of a program (3.16).
    """

    def __init__(
        self,
        how: Literal["return", "break", "continue"],
        value: Value = None,
        *,
        valued: bool = False,
        fields: bool = False,
    ) -> None:
        super().__init__(how)
        self.how = how
        self.value = value
        self.valued = valued
        self.fields = fields
        self._settled = valued

    def passed(self, value: Value) -> None:
        """The value of what ran before in a body that is left, for a bare `return`; the innermost body counts."""
        if not self._settled:
            self.value, self._settled = value, True
