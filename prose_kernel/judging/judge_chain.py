"""The chain that decides a condition: rules, a script, a recording, a model or agent, the person; never a default.

See docs/reference/openprose.md 3.4 and docs/reference/sessions.md 3.2.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from prose_kernel.errors import NoPerson, ProseError, ProviderError, Undecided
from prose_kernel.language.source import Source
from prose_kernel.language.structs import replace
from prose_kernel.language.text import one_line
from prose_kernel.runtime.asker import serial
from prose_kernel.runtime.ports import Finding, Judge, Judged, JudgedText, JudgeRequest, JudgeWrapper, Pick, Verdict
from prose_kernel.runtime.services import Asker
from prose_kernel.runtime.session_options import BatchMode, RulesMode
from prose_kernel.runtime.value_text import NAME, material, quoted

if TYPE_CHECKING:
    from prose_kernel.judging.human import HumanJudge

# The rules (a dozen regular expressions) and the person are imported with the first question: most cells ask none, and
# kernel start-up time is a feature.

Answer = TypeVar("Answer")
LiveJudge = Callable[[], Judge | None]

RULE = "write it as a rule (`score >= 85`, `docs is empty`, see docs/reference/judge-rules.md)"
ASK = "record it in an interactive run, or choose a judge (PROSE_JUDGE; in a notebook %judge)"
FIX = f"{RULE}, {ASK}"
STRUCTURE = f"let the text be JSON (a session with `output:`), {ASK}"
"""The hint for a field or the items of a text, which no rule finds."""

ANSWER_COST = 1000
"""The number of characters of values that costs about as much as one more answer of a model (a sentence and a word)."""


class Script(Protocol):
    """Prepared answers; None if there is none for a question at this execution path."""

    def judgement(self, text: str, at: str = "") -> str | None: ...

    def extracted(self, path: str, at: str = "") -> str | None: ...

    def items(self, value: str, at: str = "") -> tuple[str, ...] | None: ...


class _Question(NamedTuple):
    """A question in messages, the reason why no rule answers it, and what to do about that."""

    text: str
    why: str
    fix: str


_ITEMS = _Question("which items a text holds", "the text is neither JSON nor a list", STRUCTURE)


class ModelOrPersonJudge:
    """The `Judge` port without recordings: a model or CLI agent (`live`), else the person.

    `live` is called for each question, because the judge may change from cell to cell.
    """

    def __init__(
        self,
        human: Asker | None = None,
        live: LiveJudge | None = None,
        *,
        rules: RulesMode = "first",
        criteria: bool = False,
    ) -> None:
        self._person = serial(human) if human is not None else None
        self._live = live
        self._rules = rules
        self._criteria = criteria

    async def decide(self, request: JudgeRequest) -> Verdict:
        """Return the verdict of the model, else of the person. Raises `Undecided`, as all methods do, if neither
        decides."""
        _, why = _ruling(request, self._rules, self._criteria)
        question = _Question(quoted(request), why, _fix(request))
        return await self._ask(question, lambda judge: judge.decide(request), lambda human: human.decide(request, why))

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        return await self._ask(
            _choice(request), lambda judge: judge.choose(request, labels), lambda human: human.choose(request, labels)
        )

    async def extract(self, request: JudgeRequest, value: str, path: str) -> Finding:
        return await self._ask(
            _member(path), lambda judge: judge.extract(request, value, path), lambda human: human.extract(value, path)
        )

    async def items(self, request: JudgeRequest, value: str) -> Finding:
        return await self._ask(_ITEMS, lambda judge: judge.items(request, value), lambda human: human.items(value))

    async def _ask(
        self,
        question: _Question,
        calling: Callable[[Judge], Awaitable[Answer]],
        asking: Callable[[HumanJudge], Awaitable[Answer]],
    ) -> Answer:
        text, why, fix = question
        failed = False
        if self._live is not None and (judge := self._live()) is not None:
            try:
                return await calling(judge)
            except (Undecided, ProviderError) as problem:  # the person decides instead
                why, fix, failed = one_line(str(problem), 300), problem.hint or fix, True
        if self._person is not None and self._person.available:
            from prose_kernel.judging.human import HumanJudge

            try:
                async with self._person.turn():
                    if failed:
                        self._person.show(f"The judge has no answer: {why}")
                    return await asking(HumanJudge(self._person))
            except EOFError:
                raise Undecided(f"the person's input ended before {text} was decided", hint=fix) from None
            except NoPerson:
                pass
        raise Undecided(f"cannot decide {text}: {why}", hint=fix, failed=failed)


def _fix(request: JudgeRequest) -> str:
    """Return the hint for a question that no part of the chain can decide."""
    return FIX if request.subject is None else ASK


def _choice(request: JudgeRequest) -> _Question:
    why = "no binding it names is one of its options" if request.subject is None else "no judge is chosen"
    return _Question(f"the choice {quoted(request)}", why, _fix(request))


def _member(path: str) -> _Question:
    return _Question(f"what `{path}` is in a text", "the text is not JSON", STRUCTURE)


def _no_rules(request: JudgeRequest, rules: RulesMode, criteria: bool) -> str:
    """Return why no rule may answer a question; "" if one may. Criteria of VVM have rules only if `criteria` is set
    (docs/reference/vvm.md 4.6)."""
    if rules == "off":
        return "the rules are off"
    if request.subject is not None and not criteria:
        return "no judge is chosen"
    return ""


def _ruling(request: JudgeRequest, rules_mode: RulesMode, criteria: bool) -> tuple[bool | None, str]:
    """Return the answer of the rules to a condition, or None, with the reason."""
    if why := _no_rules(request, rules_mode, criteria):
        return None, why
    from prose_kernel.judging import rules

    found = rules.decide(request.text, request.bindings, request.written, request.inserted)
    return found.answer, found.why if found.answer is None else f"{found.rule}: {found.why}"


class RecordedOnlyJudge(JudgeWrapper):
    """The `Judge` port around recorded judgements while no judge is chosen.

    In a non-interactive run a question without a record is undecided; the hint of the error says how to record it.
    """

    def __init__(self, recorded: Judge, person: Asker, *, rules: RulesMode, criteria: bool = False) -> None:
        self._recorded = recorded
        self._person = person
        self._undecided = ModelOrPersonJudge(rules=rules, criteria=criteria)

    async def ask(self, request: JudgeRequest, calling: Callable[[Judge], Awaitable[Judged]]) -> Judged:
        try:
            return await calling(self._recorded)
        except Undecided as miss:
            if self._person.available:
                raise
            missed = miss
        try:
            return await calling(self._undecided)
        except Undecided as undecided:
            raise Undecided(str(undecided), hint=f"{missed.hint or undecided.hint} ({missed})") from None


class JudgeChain:
    """The `Judge` port.

    - `rules`: whether rules decide first, exclusively (`only`) or not at all (`off`).
    - `criteria`: whether rules also decide the criteria of VVM. `batch`: which questions are asked together.
    - `scripted`: answers written beforehand.
    - `others`: the judge that is asked after these: `ModelOrPersonJudge`, or a recording of it. Without it, `human` is
      the person.
    - `dry_run`: no question is asked, so that the run continues: an undecided condition is uncertain, a loop shows its
      body once, a choice takes its first option.
    """

    def __init__(
        self,
        rules: RulesMode = "first",
        human: Asker | None = None,
        scripted: Script | None = None,
        *,
        others: Judge | None = None,
        dry_run: bool = False,
        criteria: bool = False,
        batch: BatchMode = "sure",
    ) -> None:
        self._rules = rules
        self._criteria = criteria
        self._batch = batch
        self._others = others if others is not None else ModelOrPersonJudge(human, rules=rules, criteria=criteria)
        self._scripted = scripted if rules != "only" else None
        self._dry_run = dry_run

    async def decide(self, request: JudgeRequest) -> Verdict:
        """Return the first verdict in the chain. Raises `Undecided`."""
        ruled, why = _ruling(request, self._rules, self._criteria)
        if ruled is not None or request.by_rules:
            return Verdict(ruled, "rules", why)
        script = self._scripted
        if script is not None and (answer := script.judgement(request.text, request.at)) is not None:
            return _scripted_verdict(answer, request.text)
        if self._dry_run:
            again = request.loop is not None and bool(request.loop_index)
            return Verdict(None, "dry-run", "undecided", no_progress=again)
        self._refuse_if_only_rules(_Question(quoted(request), why, _fix(request)))
        try:
            return await self._others.decide(self._with_batch(request))
        except Undecided as problem:  # suggest the cheapest fix first: a rule needs no judge and no recording
            if request.subject is not None:
                raise
            hint = problem.hint or FIX
            hint = hint if hint.startswith(RULE) else f"{RULE}; or {hint}"
            raise Undecided(str(problem), hint=hint, missed=problem.missed, failed=problem.failed) from None

    def _with_batch(self, request: JudgeRequest) -> JudgeRequest:
        """Return the request with those further questions that no rule decides and that are worth asking with it:
        optional questions are included only while they are small compared with the common values."""
        if not request.further:
            return request
        left = sum(map(len, material(request).whole.values())) // 2 if self._batch == "ahead" else 0
        chosen: list[JudgeRequest] = []
        for one in request.further if self._batch != "off" and self._scripted is None else ():
            answer, _ = _ruling(one, self._rules, self._criteria)
            if answer is not None:
                if answer and one.conditional:
                    break  # nothing after it is asked
                continue
            if one.conditional:
                left -= len(one.question) + ANSWER_COST
                if left < 0:
                    break
            chosen.append(one)
        return replace(request, further=tuple(chosen))

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        """Return the label that the first judge in the chain picks. Raises `Undecided`.

        A rule picks only if a binding that the criteria name is exactly one of the labels. A scripted label need not be
        one of them.
        """
        if not _no_rules(request, self._rules, self._criteria) and (pick := _named_label(request, labels)):
            return pick
        script = self._scripted
        if script is not None and (label := script.judgement(request.text, request.at)) is not None:
            return Pick(label, "scripted")
        if self._dry_run:
            return Pick(labels[0], "dry-run", "undecided: " + " | ".join(labels))
        self._refuse_if_only_rules(_choice(request))
        return await self._others.choose(request, labels)

    async def extract(self, request: JudgeRequest, value: str, path: str) -> Finding:
        """Return the value at a member path of a prose text. Raises `Undecided`."""
        script = self._scripted
        if script is not None and (found := script.extracted(path, request.at)) is not None:
            return Finding(found, "scripted")
        if self._dry_run:
            return Finding(value, "dry-run", "undecided")
        self._refuse_if_only_rules(_member(path))
        return await self._others.extract(request, value, path)

    async def items(self, request: JudgeRequest, value: str) -> Finding:
        """Return the items of a prose text. Raises `Undecided`; also for a text of several lines, which every mode
        splits by lines (openprose.md 3.11), so that no question is asked about the output of `ls`."""
        script = self._scripted
        if script is not None and (found := script.items(value, request.at)) is not None:
            return Finding(list(found), "scripted")
        if sum(1 for line in value.splitlines() if line.strip()) > 1:
            raise Undecided("the text has several lines: they are its items")
        if self._dry_run:
            return Finding([value], "dry-run", "undecided")
        self._refuse_if_only_rules(_ITEMS)
        return await self._others.items(request, value)

    def _refuse_if_only_rules(self, question: _Question) -> None:
        if self._rules == "only":
            raise Undecided(f"no rule decides {question.text}: {question.why}", hint=question.fix)


def _scripted_verdict(answer: str, text: str) -> Verdict:
    from prose_kernel.judging.facts import NO, STUCK, UNCERTAIN, YES

    word = answer.strip().casefold()
    if word in YES | NO:
        return Verdict(word in YES, "scripted")
    if word in UNCERTAIN | STUCK:
        return Verdict(None, "scripted", no_progress=word in STUCK)
    raise Undecided(
        f'the script answers **{one_line(text)}** with "{one_line(answer, 40)}"',
        hint="a condition takes yes, no, uncertain or no progress",
        failed=True,
    )


_NAMED = re.compile(
    r"(?:(?:based|depending)\s+on\s+|according\s+to\s+|by\s+|(?:what|which)\s+is\s+)?(?:the\s+)?(?:value\s+of\s+)?"
    rf"`?(?P<name>{NAME.pattern})`?(?:\s+is)?[\s.:?]*",
    re.IGNORECASE,
)


def _named_label(request: JudgeRequest, labels: tuple[str, ...]) -> Pick | None:
    """Return the label that is the value of the one binding that the criteria name. With more words they may mean
    another label: `what comes after the stage`."""
    from prose_kernel.judging import facts

    found = _NAMED.fullmatch(request.question.strip())
    name = found["name"] if found is not None else ""
    if name not in request.bindings:
        return None
    try:
        label = facts.short(request.bindings[name])
    except ProseError:
        return None
    return Pick(label, "rules", f'label: {name} is "{label}"') if label in labels else None


# ---------------------------------------------------------------- before a run


class Condition(NamedTuple):
    """A question that a program may ask the judge.

    - `line`, `text`: its place and its words; `choice` or `criterion` (of VVM) if it isn't a condition.
    - `decidable`: whether a rule decides it.
    - `forms`: the forms of its parts; empty if a part has none.
    """

    line: int
    text: str
    decidable: bool
    forms: tuple[str, ...] = ()
    choice: bool = False
    criterion: bool = False


def decidable_conditions(questions: Iterable[JudgedText], source: Source, *, criteria: bool = False) -> list[Condition]:
    """Return every condition and choice of a program in source order, for `prose check`. With `criteria`, rules also
    decide those of VVM.

    `decidable` is only about the form: a rule reads it and can decide it both ways. If a value isn't what the rule
    needs (`score >= 85` with a score of "good"), the next judge is still asked. A choice is never decidable.
    """
    from prose_kernel.judging import rules

    found = []
    for question in questions:
        ruled = not question.choice and (criteria or not question.criterion)
        found.append(
            Condition(
                source.line_column(question.span.start)[0],
                question.text,
                ruled and rules.decidable(question.sample),
                rules.named(question.sample) if ruled else (),
                question.choice,
                question.criterion,
            )
        )
    return found
