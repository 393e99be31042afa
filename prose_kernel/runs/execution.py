"""The steps of a run that end it: its texts, its end in the log, its result, its closing.

The Python API, the command line and tests all run their texts through `to_end`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from prose_kernel.errors import ProseError, RunError, UsageError

if TYPE_CHECKING:
    from prose_kernel.runs.languages import Compiled, Language
    from prose_kernel.runs.workspace import Workspace

R = TypeVar("R")


async def to_end(
    current: Callable[[], Workspace], texts: Awaitable[object], result: Callable[[ProseError | None], Awaitable[R]]
) -> R:
    """Run texts in a workspace, end the run, and return its `result`, which is called while the run is still open.

    `current` returns the workspace, which one of the texts may have replaced. `result` gets the error that ended the
    texts, `Interrupted` after an interrupt; without a `RunError` of theirs that of ending the run, if there is any. The
    workspace is closed in every case.
    """
    error: ProseError | None = None
    cause: RunError | None = None
    try:
        try:
            await texts
        except ProseError as problem:
            error = problem
        cause = error if isinstance(error, RunError) else None
        try:
            await current().end(cause)
        except RunError as unkept:
            error = error if cause is not None else unkept
        return await result(error)
    finally:
        await current().close(cause)


def refuse_unknown_inputs(names: Iterable[str], compiled: Compiled, language: Language, option: str = "input ") -> None:
    """Raise `UsageError` for a supplied value that the program neither asks for nor has a gate for."""
    inputs, gates = language.inputs(compiled.program), language.gates(compiled.program)
    unknown = next((name for name in names if name not in inputs and name not in gates), None)
    if unknown is not None:
        asked = f"its inputs are {', '.join(inputs)}" if inputs else "it has no inputs"
        raise UsageError(f"{option}{unknown}: the program has no such input; {asked}")
