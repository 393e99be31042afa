"""Hints for errors of a cell as a whole: its language is another one, or a run was lost with the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prose_kernel.runs import languages
from prose_kernel.runtime.asker import serial

if TYPE_CHECKING:
    from prose_kernel.errors import RunError
    from prose_kernel.language.diagnostics import Diagnostic
    from prose_kernel.notebook.notebook_run import NotebookRun
    from prose_kernel.runs.languages import Language

_UNDEFINED = frozenset({"E007", "E053", "E131", "E132", "E140", "V040"})
"""Errors about a name that nothing has defined."""
_UNBOUND = "R201"
"""The error about such a name while a program runs."""
_MAYBE_UNBOUND = "V701"
"""The compiler's warning about a name that may be unbound."""


def of_findings(run: NotebookRun, text: str, language: Language, found: Sequence[Diagnostic]) -> str | None:
    """Return the hint for a text that does not compile, or None."""
    hint = _other_language(run, text, language)
    unknown = any(one.code in _UNDEFINED and not one.hint for one in found)
    if hint or run.workspace.begun or run.last_journal or not unknown:
        return hint
    from prose_kernel.notebook.magics.restore import restorable_runs

    magic = serial(run.asker).magic
    return f"{magic}restore brings back the names of the last run" if restorable_runs(run, mine=True) else None


def of_unbound_name(run: NotebookRun, error: RunError, warnings: Sequence[Diagnostic]) -> str | None:
    """Return the hint for an error in the first text of a run, which may use a name of the run before it. A hint that
    the error has stays."""
    advised = error.hint or any(one.code == _MAYBE_UNBOUND and one.hint for one in warnings)
    if error.code != _UNBOUND or advised:
        return error.hint
    from prose_kernel.notebook.magics.restore import earlier_run_hint

    earlier = earlier_run_hint(run)
    return f"{serial(run.asker).magic}reset ends this run; then {earlier}" if earlier else error.hint


def _other_language(run: NotebookRun, text: str, language: Language) -> str | None:
    """Return a hint for a text that isn't a program in its language, but a correct one in another."""
    words = text.split(None, 2)
    reserved = words[1:2] == ["="] and language.completeness(f"{words[0]} = 1")[0] == "invalid"
    # One word is valid in too many languages; a reserved word as a name, as in `let = 1`, is more likely a mistake.
    if language.completeness(text)[0] == "invalid" and len(words) > 1 and not reserved:
        for other in languages.LANGUAGES.values():
            if other is not language and not run.workspace.compile(text, language=other).diagnostics:
                return f"this is {other.title}: write %%{other.magic} on the first line of the cell"
    return None
