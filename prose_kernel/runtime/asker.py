"""Questions to the person, one conversation at a time.

Several branches may need an answer from the same person at the same time: an input, a gate, a session that a person
answers, a condition. They take turns, in the order in which they asked. `SerialAsker` manages the turns; code that asks
more than one question keeps its turn with `async with asker.turn():`.

Forms are for front ends with more than an input line: buttons, fields, text areas. A form only adds to a question. A
click or a text in it becomes the same answer as one typed into the line, so decisions, records and saved files do not
depend on the kind of input. A form has no default answer: the person has to act.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, NoReturn

from msgspec import Struct

from prose_kernel.errors import NoPerson, ProseError
from prose_kernel.language.text import one_line
from prose_kernel.runtime.ports import Phrases, Question

if TYPE_CHECKING:
    from prose_kernel.runtime.services import Asker

_LONGEST_QUESTION: Final = 500
_LONGEST_OPTION: Final = 60
_MOST_OPTIONS: Final = 10

NO_CHANNEL: Final = "this front end cannot be asked: it runs the notebook without an input channel"
_held: ContextVar[tuple[object, ...]] = ContextVar("prose_kernel_turns", default=())


class Button(Struct, frozen=True):
    """Gives the answer `answer`. With `joins`, a text in the field is added to it, after `joins`. The `main` button is
    also triggered by Ctrl+Enter, and by Enter in a field of one line."""

    label: str
    answer: str
    joins: str | None = None
    main: bool = False


class Field(Struct, frozen=True):
    """A text field, of `several` lines or one. `verbatim` is a line after which all lines are plain text, for an answer
    with lines that would be commands (`:quit`, `.`); `end` ends an answer of several lines. A `required` field cannot
    be left empty."""

    label: str
    several: bool = False
    required: bool = False
    verbatim: str = ""
    end: str = ""


class FormField(Struct, frozen=True):
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


class Form(Struct, frozen=True):
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
    parts: tuple[FormField, ...] = ()


async def ask_with_form(asker: Asker, prompt: str, form: Form) -> str:
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


# ---------------------------------------------------------------- turns


class SerialAsker:
    """An `Asker` whose conversations never mix.

    A single `ask` takes a turn by itself. Inside `async with asker.turn():` any number of `show` and `ask` calls form
    one conversation, including those of tasks started there; nested turns join the outer one. Waiting turns are served
    in order and may be cancelled.
    """

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._lock = asyncio.Lock()
        self._turn: object = None  # identifies the conversation that has the turn

    @property
    def available(self) -> bool:
        return self._asker.available

    @property
    def magic(self) -> str:
        """The prefix of magics in the front end: `%` in the Prose kernel, `%prose ` in Python, empty at a terminal,
        where magics do not work."""
        return str(getattr(self._asker, "magic", "%"))

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold the right to talk to the person inside the block."""
        outer = _held.get()
        if self._turn in outer:
            yield
            return
        async with self._lock:
            self._turn = object()
            _held.set((*outer, self._turn))
            try:
                yield
            finally:
                _held.set(outer)
                self._turn = None

    async def ask(self, prompt: str) -> str:
        async with self.turn():
            return await self._asker.ask(prompt)

    async def ask_form(self, prompt: str, form: Form) -> str:
        async with self.turn():
            return await ask_with_form(self._asker, prompt, form)

    def show(self, text: str) -> None:
        self._asker.show(text)


class Unattended:
    """An `Asker` for runs without a person: texts go to `show`, and every question raises `NoPerson`."""

    available = False

    def __init__(
        self, show: Callable[[str], object] = lambda text: None, *, why: str = NO_CHANNEL, magic: str = "%"
    ) -> None:
        self.magic = magic
        self._show = show
        self._why = why

    def show(self, text: str) -> None:
        self._show(text)

    async def ask(self, prompt: str) -> NoReturn:
        raise NoPerson(self._why)


def serial(asker: Asker) -> SerialAsker:
    """Return `asker` itself if it already takes turns, else a `SerialAsker` around it. All callers must share one."""
    return asker if isinstance(asker, SerialAsker) else SerialAsker(asker)


class PersonUser:
    """The `User` port: the person at the front end answers inputs (openprose.md 6.3).

    The prompt is shown exactly as written; a prompt given as a marker is worded by the `phrases` port, if there is one.
    An empty answer is a legal value.
    """

    def __init__(self, asker: Asker, phrases: Callable[[], Phrases | None] = lambda: None) -> None:
        self._asker = serial(asker)
        self._phrases = phrases

    async def ask(self, question: Question) -> str:
        """Return the answer as typed. Raises `NoPerson` if no person is available or the input has ended."""
        if not self._asker.available:
            raise NoPerson
        try:
            async with self._asker.turn():  # taken before the question is worded, so that questions keep their order
                return await ask_with_form(self._asker, *_shown(question, await self._phrased(question)))
        except EOFError:
            raise NoPerson("the person's input has ended") from None
        except NoPerson:
            raise NoPerson from None

    async def _phrased(self, question: Question) -> Phrased | None:
        if question.phrase is None or (phrases := self._phrases()) is None:
            return None
        try:
            return _read((await phrases.phrase(question.phrase)).value)
        except (ProseError, TimeoutError):
            return None


class Phrased(NamedTuple):
    """A question as a model worded it, and the answers to choose from: none, or at least two."""

    text: str
    options: tuple[str, ...]


def _read(reply: object) -> Phrased | None:
    """Return a model's wording, shortened for display; None if it isn't a question."""
    found = reply if isinstance(reply, dict) else {}
    text, options = found.get("question"), found.get("options")
    if not isinstance(text, str) or not text.strip():
        return None
    texts = options if isinstance(options, list) else []
    listed = [one_line(one, _LONGEST_OPTION) for one in texts if isinstance(one, str)]
    known = tuple(dict.fromkeys(filter(None, listed)))
    return Phrased(one_line(text, _LONGEST_QUESTION), known if 2 <= len(known) <= _MOST_OPTIONS else ())


def _shown(question: Question, phrased: Phrased | None) -> tuple[str, Form]:
    """Return the question as one prompt and as a form. Text of several lines is kept above the worded question: it may
    contain what the person has to read."""
    text, prompt = question.prompt, question.prompt or f"{question.name}: "
    options: tuple[str, ...] = ()
    if phrased is not None:
        above = f"{text.strip()}\n\n" if "\n" in text.strip() else ""
        text, options = above + phrased.text, phrased.options
        prompt = f"{text} ({' / '.join(options)})" if options else text
    buttons = (*(Button(option, option) for option in options), Button("Submit", "", "", main=True))
    return prompt, Form("input", f"input {question.name}", buttons, Field(question.name), text)
