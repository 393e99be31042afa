"""An API key in the environment while no provider is chosen: used where a person can be told (sessions.md 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from prose_kernel.runtime.services import Asker
from prose_kernel.sessions.options import SessionOptions, Surroundings
from prose_kernel.sessions.providers import vendors
from prose_kernel.sessions.providers.choice import Choice

VENDORS = ("anthropic", "openai")
"""Whose keys are looked for, in this order; one without a model (`[models.openai] default`) is passed over."""


@dataclass(frozen=True, slots=True)
class Detected:
    """A vendor whose key is there: never the key itself."""

    variable: str
    choice: Choice

    def notice(self, model: str, mode: str) -> str:
        """What the person is told before the first use."""
        recorded = {
            "auto": "answers are recorded, and recorded ones are used (cassette mode auto)",
            "record": "every answer is recorded anew (cassette mode record)",
            "off": "nothing is recorded (cassette mode off)",
        }.get(mode, f"cassette mode {mode}")
        return (
            f"{self.variable} is set and no provider is chosen, so {self.choice.name} answers sessions.\n"
            f"Model: {model}; {recorded}. What a session is sent leaves this machine and may cost money.\n"
            f"To choose it for good: PROSE_PROVIDER={self.choice.name}; PROSE_AUTODETECT=0 turns this off.\n"
            "To answer yourself: `%provider human` (in a terminal: `prose run --provider human`)."
        )


def detect(options: SessionOptions, where: Surroundings) -> Detected | None:
    """The vendor that would be used, if any: a key, the packages for it, and no word against it."""
    if options.provider is not None or not options.autodetect or not where.attended:
        return None
    for vendor in VENDORS:
        server = vendors.find(vendor, options)
        if server.key and server.model and where.environment.get(server.key, "").strip():
            return Detected(server.key, Choice("model", vendor)) if find_spec("pydantic_ai") is not None else None
    return None


class Announced:
    """A detected vendor, used only where a person is here, and only after the person has been told; once in a run."""

    def __init__(self, detected: Detected, asker: Asker, notice: Callable[[Detected], str]) -> None:
        self._detected = detected
        self._asker = asker
        self._notice = notice
        self._told = False

    def choice(self) -> Choice | None:
        """The vendor, now that the person knows; None where nobody is here."""
        if not self._asker.available:
            return None
        if not self._told:
            self._asker.show(self._notice(self._detected))
            self._told = True
        return self._detected.choice
