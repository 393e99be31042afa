"""Reports W052: a condition asks whether a command succeeded, but the command may hide a failure (openprose.md 5.2)."""

from __future__ import annotations

import re
from typing import Final

from prose_kernel.language.exit_codes import may_hide
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.program_index import Survey
from prose_kernel.language.openprose.tree import Arrow, Constant, Discretion, Exec, Node
from prose_kernel.language.source import Span

_LOOKS: Final = (
    r"contains?|includes?|shows?|says?|mentions?|lists?|match(?:es)?|starts?|begins?|ends?|outputs?|texts?|prints?"
    r"|reports?"
)
_OUTCOME: Final = r"pass\w*|fail\w*|succe\w+|green|zero|non-?zero|exit(?:ed|s)?|broken?|ok(?:ay)?|error\w*"
_ASKED: Final = rf"(?:['’]s)?`?(?:\s+(?!(?:{_LOOKS})\b)[\w'’-]+){{0,4}}?\s+(?:{_OUTCOME})\b"
_OF: Final = r"\bexit\s+(?:code|status)\s+of\s+(?:the\s+)?`?"


class HiddenExitCodes:
    """Finds conditions about exit codes that a command may hide; `pipefail` is the setting `exec_pipefail`."""

    def __init__(self, survey: Survey, pipefail: bool) -> None:
        self._survey = survey
        self._pipefail = pipefail
        self._hiding: dict[str, bool] = {}
        """The names bound to commands that may hide a failure, and whether `pipefail` would prevent that."""
        self._bound: set[str] = set()
        self._conditions: list[tuple[str, Span]] = []

    def bound(self, name: str, value: Node) -> None:
        self._bound.add(name)
        spawn = value.spawns[-1] if isinstance(value, Arrow) else value
        if not isinstance(spawn, Exec):
            return
        written = tree.value_of(spawn.properties, "pipefail") if not self._survey.strict else None
        pipefail = bool(written.value) if isinstance(written, Constant) else self._pipefail
        if may_hide(spawn.command.raw, pipefail=pipefail):
            self._hiding[name] = not may_hide(spawn.command.raw, pipefail=True)

    def condition(self, node: Discretion) -> None:
        """Record a condition for `report`; its names may be bound further down."""
        self._conditions.append((node.text.raw, node.span))

    def report(self) -> None:
        """Report W052 once for each condition."""
        if not self._conditions:
            return
        earlier = self._survey.known.variables.items()
        hiding = {name: True for name, known in earlier if known.hides_code and name not in self._bound}
        if not (hiding := {**hiding, **self._hiding}):
            return
        names = "|".join(map(re.escape, sorted(hiding, key=len, reverse=True)))
        asked = re.compile(rf"(?<![\w-])(?P<a>{names})(?![\w-]){_ASKED}|{_OF}(?P<b>{names})(?![\w-])", re.IGNORECASE)
        folded = {name.casefold(): name for name in hiding}
        for text, span in self._conditions:
            if match := asked.search(text):
                name = folded[(match["a"] or match["b"]).casefold()]
                advice = "add `pipefail: true` below the `exec`"
                if self._survey.strict or not hiding[name]:
                    advice = "end the command with the one that decides (`&&` in place of `;`, no `|| true`)"
                hint = f'{advice}, or look at its text: `**{name} contains "..."**`'
                self._survey.report("W052", span, f"The exit code of `{name}` may hide a failure", hint)
