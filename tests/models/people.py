"""People for tests: they give answers in order and keep a transcript of all output and questions."""

from __future__ import annotations

import asyncio

from prose_kernel.errors import NoPerson


class ScriptedPerson:
    """An `Asker`. Each answer is given after one turn of the loop, so that concurrent questions could mix."""

    def __init__(self, *answers: str, available: bool = True) -> None:
        self.answers = list(answers)
        self.available = available
        self.transcript: list[str] = []
        self.asking = 0
        self.most_asking = 0

    async def ask(self, prompt: str) -> str:
        if not self.available:
            raise NoPerson
        self.asking += 1
        self.most_asking = max(self.most_asking, self.asking)
        try:
            self.transcript.append(f"? {prompt}")
            await asyncio.sleep(0)
            if not self.answers:
                raise EOFError
            return self.answers.pop(0)
        finally:
            self.asking -= 1

    def show(self, text: str) -> None:
        self.transcript.append(text)


class LeavingPerson(ScriptedPerson):
    """A person who seems available, but has left when the first question is asked."""

    async def ask(self, prompt: str) -> str:
        raise NoPerson


class SilentPerson(ScriptedPerson):
    """An interactive person who never answers; `asked` is set when the first question is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def ask(self, prompt: str) -> str:
        self.transcript.append(f"? {prompt}")
        self.asked.set()
        await asyncio.get_running_loop().create_future()
        raise AssertionError
