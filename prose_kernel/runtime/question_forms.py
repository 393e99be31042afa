"""Forms for questions to the person, for front ends with more than an input line: buttons, fields, text areas.

A form only adds to a question. A click or a text in it becomes the same answer as one typed into the line, so
decisions, records and saved files do not depend on the kind of input. A form has no default answer: the person has to
act.
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
    """Gives the answer `answer`. With `joins`, a text in the field is added to it, after `joins`. The `main` button is
    also triggered by Ctrl+Enter, and by Enter in a field of one line."""

    label: str
    answer: str
    joins: str | None = None
    main: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A text field, of `several` lines or one. `verbatim` is a line after which all lines are plain text, for an answer
    with lines that would be commands (`:quit`, `.`); `end` ends an answer of several lines. A `required` field cannot
    be left empty."""

    label: str
    several: bool = False
    required: bool = False
    verbatim: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """One field of an answer that is an object; the form answers with JSON, its values as text.

    `kind` is `line`, `text` (several lines), `list` (one item a line), `json` or `choice`, which has `options`. `value`
    is the initial value.
    """

    name: str
    kind: Literal["line", "text", "list", "json", "choice"]
    about: str = ""
    options: tuple[str, ...] = ()
    required: bool = True
    value: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    """One question. `kind` is `gate`, `input`, `session`, `judge`, `permission` or `program`; `text` is the question,
    `note` has further facts. `parts` are the fields of an answer that is an object, instead of one `field`. `markdown`
    means that the text is Markdown. With `above` the text is shown above the question already, and repeated only by
    front ends that do not show that. `left` returns the seconds until the answer is no longer needed."""

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
    """Return the answer to a question, given in its form if the front end shows forms, else on a line."""
    shows = getattr(asker, "ask_form", None)
    return str(await (asker.ask(prompt) if shows is None else shows(prompt, form)))


DECISIONS: Final = frozenset(("gate", "permission", "program"))
"""Kinds of questions that only an answer to exactly this question may decide."""

NEXT_PART: Final = 0.1
"""The seconds within which a terminal delivers the next part of a long pasted text."""

PARTS_OF_A_PASTE: Final = 100


def discard_typed(descriptor: int) -> bool:
    """Discard unread input of a terminal, and return whether there was any. Does nothing to other files."""
    import select
    import termios

    try:
        held = os.isatty(descriptor) and bool(select.select([descriptor], [], [], 0)[0])
        termios.tcflush(descriptor, termios.TCIFLUSH)
    except (OSError, ValueError, termios.error):
        return False
    return held
