"""Test the judge of a run with a labelled set, under the run's budget, for `%judge calibrate` and `prose judge`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import ExitStack

from prose_kernel.cassettes.recorded_answers import RecordedJudge
from prose_kernel.cassettes.recordings import Cassettes
from prose_kernel.errors import UsageError
from prose_kernel.judging import calibration
from prose_kernel.judging.calibration import Calibration, JudgeAnswer
from prose_kernel.judging.judge_chain import ModelOrPersonJudge
from prose_kernel.language.structs import replace
from prose_kernel.models.providers import vendors
from prose_kernel.models.providers.provider_choice import AGENT, judge_choice, judge_model
from prose_kernel.models.usage_and_prices import CountedJudge, LimitedJudge
from prose_kernel.runs.provider_chain import SessionServices
from prose_kernel.runs.workspace import Workspace
from prose_kernel.runtime import budgets
from prose_kernel.runtime.ports import Judge


async def calibrate(
    workspace: Workspace,
    file: str | None = None,
    category: str | None = None,
    on_answer: Callable[[JudgeAnswer, int], object] = lambda answer, of: None,
    on_begin: Callable[[], object] = lambda: None,
) -> Calibration:
    """Return the answers of the run's model or agent to the set in a file (None: the shipped set). Each answer is
    recorded when it arrives, so that an interrupted calibration can continue. `on_begin` is called before the first
    question.

    Raises `UsageError` for a broken file or a missing judge, and the errors of `calibration.calibrate`.
    """
    load = calibration.load
    known = load(calibration.SHIPPED) if file is None else load(workspace.cwd / os.path.expanduser(file), file)  # noqa: ASYNC240
    items, services = calibration.of_category(known, category), workspace.opened.services
    name, judge, cassettes = _judge_of(services)
    budget = workspace.opened.budget
    try:
        on_begin()
        with ExitStack() as open_ones:
            if budget is not None:
                open_ones.enter_context(budgets.counting((budget,), lambda: "the calibration"))
                open_ones.enter_context(budget.open())
                open_ones.enter_context(budget.awaiting(person=False))
            return await calibration.calibrate(
                items,
                judge,
                name,
                at_once=services.context.options.max_parallel or (4 if name.startswith(AGENT) else 8),
                on_answer=lambda answer: on_answer(answer, len(items)),
            )
    finally:
        cassettes.close()


def _judge_of(services: SessionServices) -> tuple[str, Judge, Cassettes]:
    """Return name, port and recording of the model or agent that judges. Raises `UsageError` if there is none."""
    options, where = services.context.options, services.context.where
    choice = judge_choice(options)
    if not choice.live:
        raise UsageError(
            "no model and no agent judges here", hint="--judge SERVER[:MODEL], in a notebook %judge SERVER[:MODEL]"
        )
    model = judge_model(choice, options)
    usual = vendors.find(choice.name, options).model if choice.kind == "model" else None
    name = ":".join(filter(None, (choice.name, model or choice.model or usual)))
    name = f"{AGENT}{name}" if choice.kind == "agent" else name
    mode = "replay" if services.choice.kind == "replay" else options.cassette.mode
    file = f"cassettes/calibration/{re.sub(r'[^A-Za-z0-9.]+', '-', name).strip('-.') or 'judge'}.jsonl"
    # the key of a question does not name the judge, so each judge has its own recording
    kept = replace(options.cassette, name=file, alone=True, mode=mode or ("auto" if where.attended else "replay"))
    cassettes = Cassettes(kept, where, services.context.clock)
    asked = ModelOrPersonJudge(None, lambda: LimitedJudge(services.live.judge(choice, model)), rules="off")
    return name, CountedJudge(RecordedJudge(asked, cassettes, asker=services.asker), services.usage), cassettes
