"""The cost of workflows, compared with pydantic-ai alone: whole programs and the same in Python, with one stub server.

- three chained sessions: a page, notes on it, the page again with both;
- thirty issues sorted: a typed answer each, eight at a time;
- five questions about one document;
- the thirty issues again with a first server that is dead (always 503), and a second one.

Requests and tokens are counted by the stub (tests/stubs/tokens.py), for both sides in the same way; `cached` are tokens
that a server would have found in its cache. Texts are streamed on both sides. Seconds are the median of several runs
in turn. `python benchmarks/workflows.py [--quick] [--json]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

from prose_kernel.runtime.asker import Unattended

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent))

from stubs.workflows import CHAINED, GUIDE

from benchmarks.models import stub
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.session_options import ModelOptions, ModelServer

DRAFT = "The lighthouse was built in 1868 and is 41 metres high. Its lamp reaches 24 nautical miles. " * 16
DOCUMENT = "".join(f"Paragraph {n}: the keeper notes wind, sea and ships, and trims the lamp.\n" for n in range(200))
QUESTIONS = ["Who keeps notes?", "What is noted?", "When is the lamp trimmed?", "By whom is it trimmed?", "Where?"]
CLERK = "You sort the issues of a software project by what has to be done, and how soon. Judge by what is written."
KINDS = ("bug", "question", "feature", "docs")
ISSUES = [
    f"Issue {n}: after the update to version 3.{n} the export of a report stops with an error in the second step, "
    "but only where the file is larger than the quota. The log says that the disk is full, which it is not. "
    f"It worked in version 2.{n}. I have tried it on two machines, with and without the cache. Steps: open a project "
    "with more than a hundred pages, choose export, then the second format; wait until the bar stands at half. "
    "What I expect: a file. What I get: a message without a number, and half a file that nothing can read."
    for n in range(30)
]
FIELDS = '  output:\n    kind: "bug" or "question" or "feature" or "docs"\n    urgent: boolean\n    summary: text\n'

SORTED = """\
input issues: "The issues"
agent clerk:
  prompt: "{guide}"{tools}
{fields}parallel for issue in issues:
  session: clerk
    prompt: "Sort this issue. {{issue}}"
"""
ASKED = """\
input document: "A document"
input questions: "The questions"
agent reader:
  prompt: "{guide}"{tools}
for question in questions:
  session: reader
    prompt: "{{question}}"
    context: document
"""

Cost = dict[str, int]
Work = Callable[[str], Awaitable[object]]


def get(url: str, path: str, data: object = None) -> Any:
    body = None if data is None else json.dumps(data).encode()
    with urllib.request.urlopen(urllib.request.Request(url + path, data=body)) as said:
        return json.load(said)


# ---------------------------------------------------------------- ours


def ours(program: str, model: str, supplied: dict[str, Any], *, tools: bool, dead: bool = False) -> Work:
    text = program.format(
        guide=CLERK if program is SORTED else GUIDE, tools="" if tools else "\n  tools: none", fields=FIELDS
    )

    async def run(url: str) -> object:
        first = ModelServer("openai", f"{url}/v1", key="", model=model, judge_output="native")
        servers = {"stub": first}
        if dead:
            broken = ModelOptions("err-503", fallback=("stub",))
            servers["dead"] = ModelServer(
                "openai", f"{url}/v1", key="", model="sonnet", aliases={"sonnet": "err-503"}, options={"sonnet": broken}
            )
        settings = Settings().changed(
            provider="dead" if dead else "stub", providers=servers, cassette_mode="off", journal="off", max_parallel=8
        )
        with tempfile.TemporaryDirectory() as directory:
            here = Workspace(settings, Start(Path(directory), supplied=supplied), asker=Unattended())
            try:
                await here.execute(text)
            finally:
                await here.close()
        return None

    return run


# ---------------------------------------------------------------- pydantic-ai alone


def agent(url: str, model: str, output: Any = str, prompt: str = GUIDE, *, dead: bool = False) -> Any:
    from openai import AsyncOpenAI
    from pydantic_ai import Agent
    from pydantic_ai.models.fallback import FallbackModel
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    made: Any = OpenAIChatModel(model, provider=OpenAIProvider(openai_client=client))
    if dead:
        made = FallbackModel(OpenAIChatModel("err-503", provider=OpenAIProvider(openai_client=client)), made)
    return Agent(made, output_type=output, instructions=prompt)


async def streamed(writer: Any, prompt: str) -> str:
    """Return the answer, which is shown as it arrives."""
    async with writer.run_stream(prompt) as said:
        return "".join([text async for text in said.stream_text(delta=True, debounce_by=None)])


def chained(model: str) -> Work:
    async def run(url: str) -> object:
        writer = agent(url, model)
        draft = await streamed(writer, "Write a page about the lighthouse.")
        notes = await streamed(writer, f"What is weak in this page?\n\n{draft}")
        again = "Write the page again, with the notes in mind."
        return await streamed(writer, f"{again}\n\nDraft:\n{draft}\n\nNotes:\n{notes}")

    return run


def sorted_issues(model: str, *, dead: bool = False) -> Work:
    async def run(url: str) -> object:
        from pydantic import BaseModel
        from pydantic_ai import NativeOutput

        class Sorted(BaseModel):
            kind: Literal["bug", "question", "feature", "docs"]
            urgent: bool
            summary: str

        clerk, gate = agent(url, model, NativeOutput(Sorted, name="answer"), CLERK, dead=dead), asyncio.Semaphore(8)

        async def one(issue: str) -> object:
            async with gate:
                return await clerk.run(f"Sort this issue. {issue}")

        return await asyncio.gather(*map(one, ISSUES))

    return run


def questions(model: str) -> Work:
    async def run(url: str) -> object:
        reader = agent(url, model)
        return [await streamed(reader, f"{DOCUMENT}\n\n{question}") for question in QUESTIONS]

    return run


# ---------------------------------------------------------------- measuring


async def measured(url: str, works: dict[str, Work], rounds: int) -> dict[str, dict[str, float]]:
    """Return requests, tokens and seconds of each workflow, measured alternately."""
    found: dict[str, dict[str, float]] = {}
    for name, work in works.items():
        await asyncio.to_thread(get, url, "/reset", {})
        await work(url)
        found[name] = await asyncio.to_thread(get, url, "/cost")
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            began = time.perf_counter()
            await work(url)
            times[name].append(time.perf_counter() - began)
    return {name: {**cost, "seconds": statistics.median(times[name])} for name, cost in found.items()}


def workflows(url: str) -> dict[str, dict[str, Work]]:
    get(url, "/script/draft", [{"text": DRAFT, "wait": 0.2}])
    document: dict[str, Any] = {"document": DOCUMENT, "questions": QUESTIONS}
    issues: dict[str, Any] = {"issues": ISSUES}
    return {
        "three chained sessions": {
            "library": chained("script-draft"),
            "none": ours(CHAINED, "script-draft", {}, tools=False),
            "default": ours(CHAINED, "script-draft", {}, tools=True),
        },
        "thirty issues sorted": {
            "library": sorted_issues("json-200"),
            "none": ours(SORTED, "json-200", issues, tools=False),
            "default": ours(SORTED, "json-200", issues, tools=True),
        },
        "five questions about one document": {
            "library": questions("ok-200"),
            "none": ours(ASKED, "ok-200", document, tools=False),
            "default": ours(ASKED, "ok-200", document, tools=True),
        },
        "thirty issues, first server dead": {
            "library": sorted_issues("json-200", dead=True),
            "none": ours(SORTED, "json-200", issues, tools=False, dead=True),
            "default": ours(SORTED, "json-200", issues, tools=True, dead=True),
        },
    }


def shown(found: dict[str, dict[str, dict[str, float]]]) -> str:
    lines = ["| Workflow | | Requests | Tokens in | Cached | Seconds |", "| --- | --- | --- | --- | --- | --- |"]
    names = {"library": "pydantic-ai alone", "none": "Prose, `tools: none`", "default": "Prose, default tools"}
    for workflow, sides in found.items():
        for side, cost in sides.items():
            more = cost["seconds"] / sides["library"]["seconds"]
            figures = f"{cost['requests']:.0f} | {cost['tokens_in']:,.0f} | {cost['cached']:,.0f}"
            lines.append(f"| {workflow} | {names[side]} | {figures} | {cost['seconds']:.2f} ({more:.2f}) |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    given = parser.parse_args()

    async def all_of(url: str) -> dict[str, dict[str, dict[str, float]]]:
        works = await asyncio.to_thread(workflows, url)
        return {name: await measured(url, sides, 1 if given.quick else 5) for name, sides in works.items()}

    with stub() as url:
        found = asyncio.run(all_of(url))
    print(json.dumps(found, indent=1) if given.json else shown(found))


if __name__ == "__main__":
    main()
