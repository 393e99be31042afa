"""The magic that shows a file: `%show`."""

from __future__ import annotations

import asyncio

from prose_kernel.errors import ExecError, UsageError
from prose_kernel.notebook.magics.registry import Call, magic, use

_SCRIPTS = "--scripts"


@magic(
    "%show FILE [--scripts]",
    "show a file: an image, PDF, HTML page, table (CSV, JSON, JSON Lines), Markdown, notebook or text",
)
async def show(call: Call) -> None:
    from prose_kernel.storage.shown_files import read
    from prose_kernel.views.files import file_display

    names = [word for word in call.words if word != _SCRIPTS]
    unknown = next((word for word in names if word.startswith("--")), None)
    if unknown or len(names) > 1:
        extra = unknown or names[1]
        hint = "put a name with spaces in quotes" if not unknown else f"usage: {show.usage}"
        raise UsageError(f"%show: {extra} is not understood", hint=hint)
    if not names:
        use(call, show, 1, 2)
        raise UsageError("%show: too few words", hint=f"usage: {show.usage}")
    workspace = call.cells.started
    directory = workspace.cwd if workspace is not None else call.cells.cwd
    try:
        file = await asyncio.to_thread(read, names[0], str(directory))
    except ExecError as problem:
        raise UsageError(f"%show: {problem.message}", hint=problem.hint) from None
    call.show(await asyncio.to_thread(file_display, file, scripts=_SCRIPTS in call.words))
