"""Explain a program statement by statement in plain words, from its flow; nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from prose_kernel.language.source import Source
from prose_kernel.views.document import Paragraph, counted, paragraph
from prose_kernel.views.escaping import inline_code, visible

if TYPE_CHECKING:
    from prose_kernel.language.flow import FlowStep, Way
    from prose_kernel.runs.languages import Language
    from prose_kernel.runtime.ports import JudgedText

LINES: Final = 400
"""The most steps that are explained; the rest is counted."""
Line = tuple[int, str]
"""The nesting depth, and a sentence in which code is enclosed by two marks that no program can contain."""
_CODE: Final = re.compile("\ue000([^\ue001]*)\ue001")

_WAYS: Final = {
    "yes": "if so:",
    "else": "otherwise:",
    "try": "tries this:",
    "catch": "if that fails:",
    "except": "if that fails:",
    "finally": "at the end, in any case:",
}


def explained(program: Any, source: Source, language: Language) -> Paragraph:
    """Return the statements of a valid program as a list of sentences, each with its line."""
    words = _Explainer(source, tuple(language.judged_texts(program)))
    lines = list(words.steps(language.flow(program, source), 0))
    more = len(lines) - LINES
    lines = lines[:LINES] + ([(0, f"… and {more:,} more")] if more > 0 else [])
    if not lines:
        lines = [(0, "Nothing: the program has no statements.")]
    markdown, plain = (
        "\n".join(f"{'  ' * depth}- {form(sentence)}" for depth, sentence in lines) for form in (_markdown, _plain)
    )
    return paragraph(markdown, plain)


def _code(text: str) -> str:
    return f"\ue000{text.replace(chr(0xE000), '').replace(chr(0xE001), '')}\ue001"


def _markdown(sentence: str) -> str:
    return _CODE.sub(lambda found: inline_code(found[1]), sentence)


def _plain(sentence: str) -> str:
    return visible(_CODE.sub(r"`\1`", sentence))


def _names(names: Iterable[str]) -> str:
    found = [_code(name) for name in names]
    return " and ".join(part for part in (", ".join(found[:-1]), "".join(found[-1:])) if part)


class _Explainer:
    def __init__(self, source: Source, judged: tuple[JudgedText, ...]) -> None:
        self._source = source
        self._judged = judged

    def steps(self, steps: Iterable[FlowStep], depth: int) -> Iterator[Line]:
        for step in steps:
            line = self._source.location(step.span.start).line
            end = ":" if any(way.steps for way in step.ways) else "."
            yield depth, f"line {line}: {self._phrase(step)}{end}"
            if step.omitted:
                yield depth + 1, f"… {counted(step.omitted, 'statement')} that nest too deep to be explained"
            for way in step.ways:
                yield from self._way(step, way, depth + 1)

    def _way(self, step: FlowStep, way: Way, depth: int) -> Iterator[Line]:
        if not way.label or (step.kind == "parallel" and len(way.steps) == 1):
            yield from self.steps(way.steps, depth)
            return
        if step.kind == "parallel":
            yield depth, f"the branch {_code(way.label)}:"
        else:
            yield depth, _WAYS.get(way.label) or f"if {_code(way.label)}:"
        yield from self.steps(way.steps, depth + 1)
        if not way.steps:
            yield depth + 1, "does nothing"

    # ------------------------------------------------------------ sentences

    def _phrase(self, step: FlowStep) -> str:
        text = _code(step.text)
        match step.kind:
            case "agent":
                return f"defines the agent {_code(step.uses[0])}; no request is made yet"
            case "block":
                return f"defines {text}, which runs where it is called"
            case "import":
                return f"makes {text} known, to be used as {_names(step.uses)}"
            case "input":
                return f"takes the value that was given for {_names(step.binds)}, or asks you for it"
            case "output":
                return f"{text}: a result of the program"
            case "session":
                return self._session(step)
            case "command":
                return f"runs the command {text}{_bound_to(step, 'what it prints')}"
            case "gate":
                return f"{text} stops the program until a person approves"
            case "judgement":
                return f"{text}: {self._who_decides(step)}{_bound_to(step, 'the answer')}"
            case "call":
                return f"calls {text}{_bound_to(step, 'what it gives')}"
            case "parallel":
                return self._parallel(step)
            case "loop":
                return self._loop(step)
            case "if":
                return self._if(step)
            case "try":
                return "is ready for errors"
            case "body":
                return f"{text}, as a separate body"
            case "leave":
                return f"{text}: goes no further here"
            case _:
                return f"computes {text}"

    def _session(self, step: FlowStep) -> str:
        agent = step.uses[0] if step.uses else ""
        provider = f"the agent {_code(agent)}" if agent else "a model, or another provider of sessions"
        asks = f"asks {provider}" if step.text == agent else f"asks {provider}: {_code(step.text)}"
        given = f", with {_names(step.reads)}" if step.reads else ""
        return f"{asks}{given}{_bound_to(step, 'the answer')}"

    def _parallel(self, step: FlowStep) -> str:
        if not step.ways:
            return f"runs {_code(step.text)}: for all items at the same time{_bound_to(step, 'the results')}"
        rule = step.text.removeprefix("parallel").strip()
        waits = f" {_code(rule)}" if rule else " and waits for all of them"
        branches = counted(len(step.ways), "branch")
        return f"runs {branches} at the same time{waits}{_bound_to(step, 'the results')}"

    def _loop(self, step: FlowStep) -> str:
        word, text = step.text.split(None, 1)[0], _code(step.text)
        if step.text.startswith("parallel for") or word == "pmap":
            phrase = f"for each item, all at the same time ({text})"
        elif word == "repeat":
            phrase = f"a counted number of times ({text})"
        elif word in ("loop", "while"):
            phrase = f"again and again ({text})"
            if self._is_judged(step):
                phrase += f"; each time {self._who_decides(step)}"
        else:
            phrase = f"for each item in turn ({text})"
        return f"{phrase}{_bound_to(step, 'the results')}"

    def _if(self, step: FlowStep) -> str:
        decides = f"; {self._who_decides(step)}" if self._is_judged(step) else ""
        one_way = "" if step.text == "if" else f" {_code(step.text)}"
        phrase = f"asks whether{one_way}" if step.ways and step.ways[0].label == "yes" else f"chooses one way{one_way}"
        return f"{phrase}{decides}{_bound_to(step, 'its value')}"

    def _is_judged(self, step: FlowStep) -> bool:
        """Return whether the judge decides the step's condition, the part before its bodies."""
        inner = [one.span.start for way in step.ways for one in way.steps]
        end = min([one for one in inner if one > step.span.start], default=step.span.end)
        return any(step.span.start <= one.span.start < end for one in self._judged)

    def _who_decides(self, step: FlowStep) -> str:
        own = [one for one in self._judged if step.span.start <= one.span.start < step.span.end]
        if not own:
            return "decided by its value"
        return "a model or you decide" if all(one.criterion for one in own) else "a rule, a model or you decide"


def _bound_to(step: FlowStep, result: str) -> str:
    return f", and calls {result} {_names(step.binds)}" if step.binds else ""
