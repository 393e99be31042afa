"""Commands that know which span they belong to: `TRACEPARENT` in their environment."""

from __future__ import annotations

from msgspec import structs

from prose_kernel.runtime.ports import CommandRequest, CommandResult, Commands, OnOutput
from prose_kernel.telemetry.listener import Spans


class TracedCommands:
    """The `Commands` port around another one. A variable that the program sets itself stays."""

    def __init__(self, commands: Commands, spans: Spans) -> None:
        self._commands = commands
        self._spans = spans

    async def run(self, request: CommandRequest, on_output: OnOutput | None = None) -> CommandResult:
        told = self._spans.environment(request.at)
        if told:
            request = structs.replace(request, env={**told, **request.env})
        return await self._commands.run(request, on_output)
