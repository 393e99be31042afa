"""Loading an import, the same for every language: a resumed run has the texts that it had then."""

from __future__ import annotations

from msgspec import structs

from prose_kernel.runtime.execution_context import ExecutionContext
from prose_kernel.runtime.ports import LoadedProgram, LoadRequest


async def load(s: ExecutionContext, request: LoadRequest) -> LoadedProgram:
    """The program that an import leads to. Raises what `LoadProgram` raises."""
    find = s.host.load
    assert find is not None
    found: list[LoadedProgram] = []

    async def ask() -> dict[str, str]:
        found.append(await find(request))
        return dict(found[0].texts)

    texts = await s.ask(request, dict, ask)
    return found[0] if found else await find(structs.replace(request, texts=texts))
