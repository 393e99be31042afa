"""Sessions answered by the person at the notebook or the terminal (sessions.md 3.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Literal

from prose_kernel.errors import NoPerson, ProviderError, SessionCancelled
from prose_kernel.language.structs import replace
from prose_kernel.language.text import clipped, printable
from prose_kernel.language.typed_answers import Schema, may_be_null, type_words, without_null
from prose_kernel.models.providers import no_provider
from prose_kernel.models.session_prompt import answered, asked, assemble, permission_lines, with_texts
from prose_kernel.runtime import budgets
from prose_kernel.runtime.asker import Button, Field, Form, FormField, ask_with_form, serial
from prose_kernel.runtime.json_data import json_text
from prose_kernel.runtime.ports import SessionProgress, SessionRequest, SessionResult
from prose_kernel.runtime.services import Asker
from prose_kernel.runtime.structured_text import json_in
from prose_kernel.runtime.typed_answers import WrongAnswer, checked_answer, missing

HELP = "at a text prompt: Enter ends your answer, `:more` opens several lines;\nalso :skip, :fail MESSAGE, :show, :quit"
"""Its lines fit into a notebook of ordinary width."""
TEXT = ":text"
"""A first line that makes the rest of the same input plain text; a text area sends it if necessary."""
FIELDS = "Give one line `field: value` for each field (`:more` opens several lines), or JSON."
MORE = "Several lines: end with a line that is only `.`"
PROMPT = "> "
_MOST_PARTS: Final = 40
"""The maximum number of fields of a typed answer that a form shows as separate fields."""
LONGEST = 4000
"""The number of characters of a section that are shown initially; `:show` shows all of it."""


class HumanSessions:
    """The `Sessions` port, answered by a person; concurrent sessions are asked one at a time.

    An answer is one line and ends with Enter. `:more` opens several lines, which end with a line that is only `.`; `..`
    means a line with one dot, and `::` at the start of a line means one colon. Several lines in one input of a larger
    box are one answer. Fields of a typed answer may be given one at a time. `interrupt` ends the run on `:quit`.
    """

    def __init__(self, asker: Asker, interrupt: Callable[[], object] | None = None) -> None:
        self._asker = serial(asker)
        self._interrupt = interrupt

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        """Return the person's answer, or an empty text after `:skip` (which cancels a call). Raises `ProviderError`
        after `:fail`, and after `:skip` if the answer is typed; `NoProvider` if no person is available."""
        if not self._asker.available:
            raise no_provider("no person can answer this session")
        try:
            async with self._asker.turn():
                await budgets.placed()
                return await self._converse(request)
        except EOFError:
            raise no_provider("the person's input has ended before this session was answered") from None
        except NoPerson:
            raise no_provider("no person can answer this session") from None

    async def _converse(self, request: SessionRequest) -> SessionResult:
        self._show(request)
        form = _form(request)
        wrong = ""
        several: list[str] | None = None
        given: list[str] = []
        """Lines `field: value` of earlier inputs."""
        while True:
            lines: list[str] = [] if several is None else several
            # a front end with a larger box may send several lines together
            answer = await ask_with_form(self._asker, PROMPT, replace(form, note=wrong))
            first, newline, text = answer.partition("\n")
            if newline and first == TEXT and several is None:
                if text.strip() and self._fits(request, text):
                    return _answered(request, text.split("\n"))
                continue
            for line in answer.split("\n"):
                command, _, rest = line.strip().partition(" ")
                match command:
                    case "." if not rest:
                        if (several is not None or lines) and self._fits(request, "\n".join(lines)):
                            return _answered(request, lines)
                        if several is not None:
                            several.clear()
                    case ":more" if not rest and several is None:
                        several = lines
                        self._asker.show(MORE)
                    case ":skip" if not rest and request.kind == "call":
                        raise SessionCancelled("skipped by the person who answered")
                    case ":skip" if not rest and request.output is not None:
                        raise ProviderError("skipped by the person who answered", retryable=False)
                    case ":skip" if not rest:
                        return SessionResult("", "skipped", "human", "human", {"skipped": True})
                    case ":fail":
                        raise ProviderError(rest.strip() or "failed by the person who answered")
                    case ":show" if not rest:
                        self._show(request, whole=True)
                    case ":quit" if not rest:
                        if self._interrupt is None:
                            raise ProviderError("the person who answered quit", retryable=False)
                        self._interrupt()
                        await asyncio.get_running_loop().create_future()  # until the interrupt cancels this
                    case _:
                        lines.append(line[1:] if line.strip() == ".." or line.startswith("::") else line)
            if form.parts or several is None:
                form = _with_values(form, answer)
            answers = several is None and any(line.strip() for line in lines)
            if answers:
                lines = [*given, *lines] if json_in(answer) is None else lines
                if not (wrong := self._wrong(request, "\n".join(lines))):
                    return _answered(request, lines)
                if left := _missing(request, "\n".join(lines)):
                    given, wrong = lines, f"Missing: {', '.join(left)}"
                    self._asker.show(printable(wrong))
                else:
                    self._asker.show(printable(f"{wrong}. {FIELDS}"))

    def _fits(self, request: SessionRequest, text: str) -> bool:
        """Return whether this is a valid answer; if not, show the person what is wrong with it."""
        if wrong := self._wrong(request, text):
            self._asker.show(printable(f"{wrong}. {FIELDS}"))
        return not wrong

    def _wrong(self, request: SessionRequest, text: str) -> str:
        """Return why this isn't a valid answer; "" if it is."""
        if request.output is None:
            return ""
        try:
            checked_answer(text, request.output, typed_by_hand=True)
        except WrongAnswer as problem:
            return f"That does not fit: {problem}"
        return ""

    def _show(self, request: SessionRequest, *, whole: bool = False) -> None:
        self._asker.show(printable(to_answer(request, whole=whole)))


def _missing(request: SessionRequest, text: str) -> list[str] | None:
    """Return the missing fields of an answer that is valid so far."""
    try:
        return missing(text, request.output) if request.output is not None else None
    except WrongAnswer:
        return None


_BUTTONS = (
    Button("Submit", "", "", main=True),
    Button("Skip", ":skip"),
    Button("Fail", ":fail", " "),
    Button("Show all", ":show"),
    Button("End the run", ":quit"),
)


def _form(request: SessionRequest) -> Form:
    parts = _parts(request.output) if request.output is not None else ()
    field = None if parts else Field("Your answer", several=True, required=True, verbatim=TEXT)
    task = request.task.strip("\n")
    return Form("session", asked(request), _BUTTONS, field, task, markdown=True, above=True, parts=parts)


def _parts(schema: Schema) -> tuple[FormField, ...]:
    """Return a form field for each field of a typed answer; none if the fields are unknown."""
    properties = schema.get("properties", {})
    if not 0 < len(properties) <= _MOST_PARTS or not all(isinstance(part, dict) for part in properties.values()):
        return ()
    needed = schema.get("required", ())
    return tuple(_part(name, part, name in needed) for name, part in properties.items())


def _part(name: str, schema: Schema, needed: bool) -> FormField:
    inner, about = without_null(schema), type_words(schema)
    required = needed and not may_be_null(schema)
    options = inner.get("enum", ())
    kind = inner.get("type")
    if options and all(isinstance(option, str) for option in options):
        return FormField(name, "choice", about, tuple(options), required)
    if kind == "boolean":
        return FormField(name, "choice", about, ("yes", "no"), required)
    if kind == "array" and without_null(inner.get("items") or {}).get("type") == "string":
        return FormField(name, "list", about, required=False)
    kinds: dict[object, Literal["text", "line"]] = {"string": "text", "number": "line", "integer": "line"}
    return FormField(name, kinds.get(kind, "json"), about, required=required and kind != "string")


def _with_values(form: Form, answer: str) -> Form:
    """Return the form filled with the values that the person has already given, for another try."""
    given = json_in(answer)
    if not isinstance(given, dict):
        return form

    def text(value: object) -> str:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return "\n".join(value)
        return value if isinstance(value, str) else json_text(value)

    filled = (replace(part, value=text(given[part.name])) if part.name in given else part for part in form.parts)
    return replace(form, parts=tuple(filled))


def _answered(request: SessionRequest, lines: list[str]) -> SessionResult:
    text = "\n".join(lines)
    if request.output is not None and text.lstrip().startswith("{"):
        text = checked_answer(text, request.output, typed_by_hand=True)  # a form gives all values as text
    return answered(text, provider="human", origin="human", request=request)


def to_answer(request: SessionRequest, *, whole: bool = False) -> str:
    """Return a session as text for the person who answers: agent, permissions, the material with the context included
    (a person does not read files to answer), how to answer, and last, above the box, the question."""
    lines = [asked(request)]
    if request.permissions:
        lines += ["Permissions:", *(f"  {line}" for line in permission_lines(request.permissions))]
    if request.skills:
        lines.append(f"Skills: {', '.join(request.skills)}")
    parts = [part for part in assemble(with_texts(request)).parts if part.section != "output"]

    def cut(text: str) -> str:
        mark = f"\n[… {len(text) - LONGEST:,} more characters; `:show` shows all]"
        return text if whole else clipped(text, LONGEST, mark, kept=LONGEST, tidy=True)

    texts: dict[str, str] = {part.section: cut(part.text) for part in parts}
    if request.output is not None:
        fields = request.output.get("properties", {}).items()
        types = [f"  {name}: {type_words(part) if isinstance(part, dict) else 'any'}" for name, part in fields]
        texts["answer"] = "\n".join(("The answer has these fields:", *types, FIELDS))
    question = texts.pop("task", "")
    return "\n\n".join(("\n".join(lines), *texts.values(), f"({HELP})", question)).rstrip()
