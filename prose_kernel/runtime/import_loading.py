"""Loads imports for all languages. A resumed run gets the recorded texts."""

from __future__ import annotations

from msgspec import structs

from prose_kernel.runtime.execution_context import ExecutionContext
from prose_kernel.runtime.ports import LoadedProgram, LoadRequest


async def load(s: ExecutionContext, request: LoadRequest) -> LoadedProgram:
    """Return the imported program. Raises the errors of `LoadProgram`."""
    find = s.host.load
    assert find is not None
    found: list[LoadedProgram] = []

    async def ask() -> dict[str, str]:
        found.append(await find(request))
        return dict(found[0].texts)

    texts = await s.ask(request, dict, ask)
    return found[0] if found else await find(structs.replace(request, texts=texts))
