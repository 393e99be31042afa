"""The form of a question to the person, for front ends with more than an input line: buttons, fields, text areas.

A form only adds to a question. A click or a text in it becomes the same answer as one typed into the line, so
decisions, records and saved files do not depend on the kind of input. A form has no default answer: nothing is decided
unless the person acts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from prose_kernel.runtime.services import Asker


@dataclass(frozen=True, slots=True)
class Button:
    """Gives the answer `answer`. With `joins` that and the text of the field follow, if there is such a text. The one
    that is `main` also acts at Ctrl+Enter, and at Enter in a field of one line."""

    label: str
    answer: str
    joins: str | None = None
    main: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A text field, of `several` lines or one. `verbatim` is a line after which all lines are plain text, for an answer
    with lines that would be commands (`:quit`, `.`); `end` ends an answer of several lines. A `required` one cannot be
    left empty."""

    label: str
    several: bool = False
    required: bool = False
    verbatim: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """One field of an answer that is an object; the form answers with JSON, its values as text.

    `kind` is `line`, `text` (several lines), `list` (one item a line), `json` or `choice`, which has `options`. `value`
    is there at first.
    """

    name: str
    kind: Literal["line", "text", "list", "json", "choice"]
    about: str = ""
    options: tuple[str, ...] = ()
    required: bool = True
    value: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    """One question. `kind` is `gate`, `input`, `session`, `judge`, `permission` or `program`; `text` is what is asked,
    and `note` what else counts. `parts` are the fields of an answer that is an object, instead of one `field`.
    `markdown`: show the text as Markdown; with `above` it is shown above the question already, and repeated only for
    front ends that do not show that. `left` gives the seconds until the answer is not needed any more."""

    kind: str
    title: str
    buttons: tuple[Button, ...]
    field: Field | None = None
    text: str = ""
    note: str = ""
    markdown: bool = False
    above: bool = False
    left: Callable[[], float] | None = None
    parts: tuple[Part, ...] = ()


async def ask(asker: Asker, prompt: str, form: Form) -> str:
    """The answer to a question: through its form where the front end shows forms, else as a line."""
    shows = getattr(asker, "ask_form", None)
    return str(await (asker.ask(prompt) if shows is None else shows(prompt, form)))


DECISIONS: Final = frozenset(("gate", "permission", "program"))
"""Kinds of questions that only an answer to just this question decides."""

NEXT_PART: Final = 0.1
"""Seconds in which a terminal hands over the next part of a long text that was pasted."""

PARTS_OF_A_PASTE: Final = 100


def discard_typed(descriptor: int) -> bool:
    """Forget what waits to be read from a terminal; whether it held a line. Nothing happens to anything else."""
    import select
    import termios

    try:
        held = os.isatty(descriptor) and bool(select.select([descriptor], [], [], 0)[0])
        termios.tcflush(descriptor, termios.TCIFLUSH)
    except (OSError, ValueError, termios.error):
        return False
    return held
