"""Small evaluations, and a model server whose answers are the results of a function."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prose_kernel.evaluation.results import Summary
from prose_kernel.evaluation.runner import Evaluation, EvaluationOptions
from prose_kernel.evaluation.spec import read
from prose_kernel.models.provider_pool import LiveProviders
from prose_kernel.runs import provider_chain
from prose_kernel.runtime import budgets
from prose_kernel.runtime.ports import JudgeRequest, SessionProgress, SessionRequest, SessionResult, Usage, Verdict

PROGRAM = """\
input question: "What is asked?"

agent clerk:
  prompt: "Answer in one word."

output answer = session: clerk
  prompt: "{question}"
"""

LIVE = '[settings]\nprovider = "anthropic:m"\n'
RIGHT = '[[assert]]\nname = "right"\nexpression = "answer == expected"\n'

Answer = Callable[[SessionRequest], str]


class Model:
    """A model server for tests: it counts requests, and answers with the result of a function."""

    def __init__(self, answer: Answer, judge: Callable[[JudgeRequest], bool] = lambda request: True) -> None:
        self.answer = answer
        self.judged = judge
        self.asked = 0

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        await budgets.placed()
        self.asked += 1
        await asyncio.sleep(0)
        usage = Usage(1, 10, 2, 0.001)
        return SessionResult(self.answer(request), provider="anthropic", origin="model", usage=usage)

    async def decide(self, request: JudgeRequest) -> Verdict:
        self.asked += 1
        usage = {"requests": 1, "tokens_in": 3, "tokens_out": 1, "cost": 0.0}
        return Verdict(self.judged(request), "model", "because", details={"usage": usage})

    def plug_in(self, monkeypatch: Any) -> None:
        model = self

        class Live(LiveProviders):
            def sessions(self, choice: Any) -> Any:
                return model

            def judge(self, choice: Any, name: str | None) -> Any:
                return model

        monkeypatch.setattr(provider_chain, "LiveProviders", Live)


def write(
    directory: Path, spec: str, cases: Sequence[Mapping[str, Any]] | str = (), program: str = PROGRAM, name: str = "t"
) -> Path:
    """Write a specification with its program and its data set."""
    lines = cases if isinstance(cases, str) else "".join(json.dumps(case) + "\n" for case in cases)
    (directory / "cases.jsonl").write_text(lines, encoding="utf-8")
    (directory / "clerk.prose").write_text(program, encoding="utf-8")
    path = directory / f"{name}.eval.toml"
    head = "" if "program =" in spec.partition("[")[0] else 'program = "clerk.prose"\n'
    path.write_text(f'{head}dataset = "cases.jsonl"\n{spec}', encoding="utf-8")
    return path


def evaluate(path: Path, **options: Any) -> Summary:
    return asyncio.run(Evaluation(read(path), EvaluationOptions(**options)).run())
