"""Evaluation: the cost of `prose eval` for each case that a recording answers, compared with the same runs without it.

The floor is the core of `prose run` in a bare loop: a workspace for each case, the program run in it, its output read;
with the same recordings, which are read once. The evaluation does that, checks two assertions, notes the result on disk
and sums up. Figures are processor time of this process; each size runs in turn with its floor. Memory is the peak that
Python allocates beside the recordings of a small evaluation.

`python benchmarks/evaluation.py [--json] [--quick]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prose_kernel.cassettes.recordings import SharedCassettes
from prose_kernel.evaluation.runner import Evaluation, EvaluationOptions
from prose_kernel.evaluation.spec import read
from prose_kernel.language.source import Source
from prose_kernel.models.provider_pool import LiveProviders
from prose_kernel.runs import languages, provider_chain, settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.asker import Unattended
from prose_kernel.runtime.ports import SessionRequest, SessionResult

PROGRAM = """\
input question: "What is asked?"
agent clerk:
  prompt: "Answer in one word."
output answer = session: clerk
  prompt: "{question}"
"""
SPEC = """\
program = "clerk.prose"
dataset = "cases.jsonl"
[[assert]]
expression = "answer == expected"
[[assert]]
rule = "answer has at most 3 words"
"""


class Answered(LiveProviders):
    """Answers immediately, to make a recording."""

    def sessions(self, choice: Any) -> Any:
        return self

    async def run(self, request: SessionRequest, on_progress: Callable[..., None]) -> SessionResult:
        return SessionResult("forty", provider="benchmark", origin="model")


def prepare(directory: Path, count: int) -> Path:
    """Return a specification with its recordings."""
    cases = ({"id": f"c{n}", "question": f"What is number {n}?", "expected": "forty"} for n in range(count))
    (directory / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    (directory / "clerk.prose").write_text(PROGRAM)
    spec = directory / "clerk.eval.toml"
    spec.write_text(SPEC)
    provider_chain.LiveProviders = Answered  # type: ignore[misc]
    evaluated(spec, overrides={"provider": "anthropic:m", "cassette_mode": "auto"})
    return spec


def evaluated(spec: Path, **options: Any) -> float:
    """Return the processor seconds of one evaluation."""
    began = time.process_time()
    summary = asyncio.run(Evaluation(read(spec), EvaluationOptions(**options)).run())
    assert all(one.passed for one in summary.results), summary.results[0]
    return time.process_time() - began


def bare(spec: Path) -> float:
    """Return the processor seconds of the floor."""

    async def loop() -> None:
        directory = spec.parent
        chosen = settings.load(
            directory, state="in-context", journal="off", cassette="clerk.eval", cassette_mode="replay"
        )
        language = languages.default()
        compiled = language.compile(Source.of(PROGRAM, "clerk.prose"))
        shared = SharedCassettes(lambda at, meta: None)
        for line in (directory / "cases.jsonl").read_text().splitlines():
            case = json.loads(line)
            start = Start(
                directory,
                "clerk.prose",
                notebook=False,
                supplied={"question": case["question"]},
                at=f"case={case['id']}/variant=default/r1/",
                recordings=shared,
            )
            workspace = Workspace(chosen, start, asker=Unattended())
            await workspace.run(compiled)
            assert workspace.outputs()["answer"][0].read() == "forty"  # type: ignore[union-attr]
            await workspace.close()
        shared.end()

    began = time.process_time()
    asyncio.run(loop())
    return time.process_time() - began


def peak(spec: Path) -> int:
    tracemalloc.start()
    evaluated(spec)
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


def measured(count: int, rounds: int) -> list[dict[str, float]]:
    found = []
    for size in (count // 4, count // 2, count):
        with tempfile.TemporaryDirectory() as place:
            spec = prepare(Path(place), size)
            evaluated(spec), bare(spec)  # loads modules
            pairs = [(evaluated(spec), bare(spec)) for _ in range(rounds)]
            ours, floor = (statistics.median(times) for times in zip(*pairs, strict=True))
            found.append(
                {
                    "cases": size,
                    "ms_a_case": 1000 * ours / size,
                    "floor_ms_a_case": 1000 * floor / size,
                    "ratio": statistics.median(one / other for one, other in pairs),
                    "peak_mb": peak(spec) / 1e6,
                }
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    os.environ["CI"] = "true"  # only recordings answer
    found = measured(*((200, 3) if given.quick else (1000, 7)))
    if given.json:
        print(json.dumps(found, indent=1))
        return
    print("cases  a case    bare loop  ratio  peak of memory")
    for one in found:
        print(
            f"{one['cases']:5}  {one['ms_a_case']:5.2f} ms  {one['floor_ms_a_case']:6.2f} ms"
            f"  {one['ratio']:5.2f}  {one['peak_mb']:8.1f} MB"
        )


if __name__ == "__main__":
    main()
