"""One line of what `prose doctor` reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about a subject. A `broken` one carries the `fix`; a `note` is no fault."""

    state: Literal["ok", "note", "broken"]
    subject: str
    text: str
    fix: str | None = None
