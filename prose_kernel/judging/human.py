"""The person as a judge: one question at a time, repeated until the answer is understood."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final

from prose_kernel.judging.facts import NO, STUCK, UNCERTAIN, YES
from prose_kernel.language.text import one_line, printable
from prose_kernel.runtime.asker import Button, Field, Form, ask_with_form, serial
from prose_kernel.runtime.ports import Finding, JudgeRequest, Pick, Verdict
from prose_kernel.runtime.services import Asker
from prose_kernel.runtime.value_text import NAME, data_or_text, readable_preview

SHOWN: Final = 1_000
SHOWN_LINES: Final = 15
"""The number of characters and lines of a criterion's value that a person sees first."""
_WHY: Final = Button("Why?", "why")
_YES_OR_NO: Final = (Button("Yes", "yes"), Button("No", "no"), Button("Uncertain", "uncertain"), _WHY)
_SUBMIT: Final = Button("Submit", "", "", main=True)


class HumanJudge:
    """The `Judge` port, answered by the person. A question holds the turn until its answer is clear."""

    def __init__(self, asker: Asker) -> None:
        self._asker = serial(asker)

    @property
    def available(self) -> bool:
        return self._asker.available

    async def decide(self, request: JudgeRequest, undecided: str) -> Verdict:
        """Return the person's verdict; `undecided` is the reason why no rule decides."""
        async with self._asker.turn():
            asked = "Is this true?" if request.subject is None else "Does the value meet this criterion?"
            self._asker.show(f"{_value(request)}{asked}{_loop_pass(request)}\n  {_indented(request.text)}")
            while True:
                answer = await self._word(
                    "[y]es, [n]o, [u]ncertain, or why? ",
                    Form("judge", asked, _YES_OR_NO, text=request.text, above=True),
                )
                if answer in YES | NO:
                    return Verdict(answer in YES, "human")
                if answer in UNCERTAIN | STUCK:
                    return Verdict(None, "human", no_progress=answer in STUCK)
                if answer in ("w", "why"):
                    why = [f"Not decided by a rule: {undecided}."] if request.subject is None else []
                    self._asker.show("\n".join([*why, *_material(request)]))

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        folded = {label.casefold(): label for label in reversed(labels)}
        async with self._asker.turn():
            numbered = (f"  {number}. {printable(label)}" for number, label in enumerate(labels, 1))
            self._asker.show("\n".join([f"{_value(request)}Which one?\n  {_indented(request.text)}", *numbered]))
            buttons = (Button(one_line(label), _input(label, number, folded)) for number, label in enumerate(labels, 1))
            form = Form("judge", "Which one?", (*buttons, _WHY), text=request.text, above=True)
            while True:
                answer = await self._word(f"1 to {len(labels)}, or why? ", form)
                if answer in folded:
                    return Pick(folded[answer], "human")
                if answer.isascii() and answer.isdecimal() and len(answer) < 10 and 1 <= int(answer) <= len(labels):
                    return Pick(labels[int(answer) - 1], "human")
                if answer in ("w", "why"):
                    self._asker.show("\n".join(_material(request)))

    async def extract(self, value: str, path: str) -> Finding:
        async with self._asker.turn():
            self._asker.show(f"What is `{path}` in this text?\n\n{printable(value)}")
            form = Form("judge", f"What is {path}?", (_SUBMIT,), Field(path), value, above=True)
            return Finding(data_or_text((await ask_with_form(self._asker, f"{path}: ", form)).strip()), "human")

    async def items(self, value: str) -> Finding:
        found: list[str] = []
        async with self._asker.turn():
            self._asker.show(f"Which items does this text hold?\n\n{printable(value)}\n\nOne a line; end with `.`")
            field = Field("One item a line", several=True, end="\n.")
            form = Form("judge", "Which items does this text hold?", (_SUBMIT,), field, value, above=True)
            while True:
                for line in (await ask_with_form(self._asker, "> ", form)).split("\n"):
                    if line.strip() == ".":
                        return Finding([*found], "human")
                    if line.strip():
                        found.append(line.strip())

    async def _word(self, prompt: str, form: Form) -> str:
        return " ".join((await ask_with_form(self._asker, prompt, form)).split()).casefold()


def _input(label: str, number: int, folded: Container[str]) -> str:
    """Return the text that picks a label: the label, because a label may itself be a number; its number in the list if
    the label cannot be typed as one line of single spaces."""
    return label if " ".join(label.split()).casefold() in folded else str(number)


def _loop_pass(request: JudgeRequest) -> str:
    if request.loop is None or request.loop_index is None:
        return ""
    of = f" of {request.loop_maximum}" if request.loop_maximum is not None else ""
    ends = "yes ends the loop" if request.loop == "until" else "no ends the loop"
    return f" (before pass {request.loop_index + 1}{of}; {ends})"


def _indented(text: str) -> str:
    return printable(text).replace("\n", "\n  ")


def _value(request: JudgeRequest) -> str:
    """Return the value of a VVM criterion, or the beginning of a long one; the person can ask for the rest."""
    if request.subject is None:
        return ""
    text = "\n".join(request.subject.split("\n", SHOWN_LINES)[:SHOWN_LINES])[:SHOWN]  # what fits on a screen
    more = len(request.subject) - len(text)
    note = f"\n  [{more:,} more characters: why]" if more else ""
    return f"The value:\n  {_indented(text)}{note}\n"


def _material(request: JudgeRequest) -> Iterable[str]:
    """Yield the bindings that the question names, else all, each in a few words; and the last events."""
    if request.subject is not None:
        yield f"The value:\n  {_indented(request.subject)}"
        return
    named = [name for name in dict.fromkeys(NAME.findall(request.text)) if name in request.bindings]
    names = named or list(request.bindings)
    yield from (f"  {name}: {readable_preview(request.bindings[name])}" for name in names[-20:])
    if len(names) > 20:
        yield f"  and {len(names) - 20} earlier names"
    if request.recent:
        yield "Last events:"
        yield from (f"  {one_line(event)}" for event in request.recent)
