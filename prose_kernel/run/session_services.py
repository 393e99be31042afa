"""What answers sessions and conditions in a run, what records them, and what they have consumed."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prose_kernel.errors import ProviderError, UsageError
from prose_kernel.models.memory import again
from prose_kernel.models.memory_directory import Memories
from prose_kernel.models.providers import vendors
from prose_kernel.models.providers.choice import Choice, judge_choice, judge_model
from prose_kernel.models.usage import UsageTotals
from prose_kernel.runtime import budgets
from prose_kernel.runtime.asker import SerialAsker
from prose_kernel.runtime.journal_codec import Request
from prose_kernel.runtime.ports import Commands, Judge, Phrases, Races, SessionRequest, Sessions

if TYPE_CHECKING:
    from prose_kernel.cassettes.library import Cassettes
    from prose_kernel.models.digest_memory import DigestMemories
    from prose_kernel.models.provider_pool import LiveProviders, ProviderContext
    from prose_kernel.models.providers.unconfigured import Detected
    from prose_kernel.run.session_description import Description


class PermissionNotes:
    """Writes the answers to permission questions into the recordings in use, if there are any."""

    def __init__(self) -> None:
        self._cassettes: Cassettes | None = None

    def write_to(self, cassettes: Cassettes | None) -> None:
        self._cassettes = cassettes

    def ask(self, at: str, question: str, answer: str) -> None:
        if self._cassettes is not None:
            self._cassettes.note_ask(at, question, answer)


@dataclass(frozen=True, slots=True)
class SessionServices:
    """The ports of a machine that have to do with sessions; made by `session_chain.connect`.

    `asker` is the person that all of them share: pass the same one to the gates, so that questions take turns.
    `commands` is set when commands must not run either (a dry run); None means: run them. `choice` is the provider of
    sessions, `detected` the vendor whose key was found while none was chosen; `usage` is what the run has consumed.
    Close the services when the run ends.
    """

    sessions: Sessions
    judge: Judge
    asker: SerialAsker
    cassettes: Cassettes
    usage: UsageTotals
    choice: Choice
    means: ProviderContext = field(repr=False)
    live: LiveProviders = field(repr=False)
    notes: PermissionNotes = field(repr=False)
    memories: Memories = field(repr=False)
    digests: DigestMemories = field(repr=False)
    commands: Commands | None = None
    races: Races | None = None
    phrases: Phrases | None = None
    detected: Detected | None = None

    def describe(self, request: SessionRequest) -> Description:
        """What the session would be sent, to whom, with which tools and permissions, and what is recorded for it."""
        from prose_kernel.run.session_description import describe

        return describe(request, self)

    def again(self, request: Request, notes: Mapping[str, Any], got: bool) -> None:
        """Count what the journal noted beside an answer that an earlier process of the run got, and that is replayed.

        `got` tells whether the program got the answer then, or a failure.
        """
        self.usage.again(notes.get("usage", ()))
        budgets.again(notes)
        if "record" in notes and self.choice.recorded and self.cassettes.mode(self.asker) != "off":
            self.cassettes.again(request.at, *notes["record"])
        if got and "memory" in notes:
            again(self.memories, self.means.where.cwd, request, notes["memory"])

    def refuse_unpriced(self, models: Sequence[str | None], *, judges: bool) -> None:
        """Under a budget of money: raise `UsageError` where a model that sessions name (None: the default), or the one
        that judges, has no known price."""
        from prose_kernel.models.providers import prices

        options = self.means.options
        asked = [(self.choice, name, self.choice.model) for name in models]
        judge = judge_choice(options)
        if judges and options.judge.rules != "only":
            asked.append((judge, None, judge_model(judge, options) or judge.model))
        for choice, name, default in asked:
            if choice.kind == "model":
                with contextlib.suppress(ProviderError):  # reported where the session is asked
                    for meant in vendors.chain(choice.name, options, name, default):
                        if not prices.is_known(meant.name, meant.model, meant.options.price):
                            message, hint = vendors.unpriced(meant)
                            raise UsageError(message, hint=hint)

    async def retire(self) -> None:
        """End the agents' processes. The services that replace these keep the recordings."""
        await self.live.close()

    async def close(self) -> None:
        """End the agents' processes and write what is still to be recorded. A second call does nothing."""
        try:
            await self.live.close()
        finally:
            self.cassettes.close()
