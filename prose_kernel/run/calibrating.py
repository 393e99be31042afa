"""Put a labelled set to the judge of a run, under its budget: what `%judge calibrate` and `prose judge` share."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack

from prose_kernel.judging import calibration
from prose_kernel.judging.calibration import Answer, Calibration, Item
from prose_kernel.run.workspace import Workspace
from prose_kernel.runtime import budgets


async def calibrate(
    workspace: Workspace,
    file: str | None = None,
    category: str | None = None,
    on_answer: Callable[[Answer, int], object] = lambda answer, of: None,
) -> Calibration:
    """The answers of the run's model or agent to the set in a file (None: the shipped one). Each is kept in the judge's
    own recording when it comes, so that a calibration which was interrupted goes on where it was.

    Raises `UsageError` for a broken file and where nobody judges, and what `calibration.calibrate` raises.
    """
    items = _items(workspace, file, category)
    alone = workspace.services.lone_judge()
    budget = workspace.budget
    active = (budget,) if budget is not None else ()
    try:
        with ExitStack() as open_ones:
            if active:
                open_ones.enter_context(budgets.counting(active, lambda: "the calibration"))
            for one in active:
                open_ones.enter_context(one.open())
                open_ones.enter_context(one.asks(person=False))
            return await calibration.calibrate(
                items,
                alone.judge,
                alone.name,
                at_once=alone.at_once,
                on_answer=lambda answer: on_answer(answer, len(items)),
            )
    finally:
        alone.cassettes.close()


def _items(workspace: Workspace, file: str | None, category: str | None) -> tuple[Item, ...]:
    if file is None:
        return calibration.of_category(calibration.load(calibration.SHIPPED), category)
    path = workspace.cwd / os.path.expanduser(file)  # noqa: PTH111 - a home directory of nobody stays as it is
    return calibration.of_category(calibration.load(path, file), category)
