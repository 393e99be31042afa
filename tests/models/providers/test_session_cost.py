"""Costs of sessions in requests and tokens: whole programs in the command's workspace, against the stub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from evaluation.evaluations import evaluate, write
from models.people import ScriptedPerson
from stubs.model_server import StubServer
from stubs.tokens import Cost, cost
from stubs.workflows import CHAINED, GUIDE

from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.session_options import ModelServer

DRAFT = "The lighthouse was built in 1868 and is 41 metres high. Its lamp reaches 24 nautical miles. " * 8
DOCUMENT = "Paragraph {n}: the keeper of the lighthouse notes wind, sea and ships, and trims the lamp at dusk.\n"
QUESTIONS = """\
input document: "A document"
for question in ["Who notes?", "What is noted?", "When is the lamp trimmed?", "By whom?", "Where?"]:
  session "{question}"
    context: { question, document }
"""


async def run(
    stub: StubServer,
    directory: Path,
    text: str,
    model: str,
    *,
    kind: str = "openai",
    person: bool = False,
    judge_output: Any = None,
    **more: Any,
) -> Cost:
    url = stub.openai_url if kind == "openai" else stub.url
    server = ModelServer(kind, url, key="", model=model, judge_output=judge_output)  # type: ignore[arg-type]
    settings = Settings().changed(provider="stub", providers={"stub": server}, cassette_mode="off", journal="off")
    here = Workspace(settings, Start(directory, **more), asker=ScriptedPerson(available=person))
    try:
        await here.execute(text)
    finally:
        await here.close()
    return cost(last.body for last in stub.seen)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize(("tools", "most"), [("\n  tools: none", 1_700), ("", 2_800)])
async def test_a42_three_chained_sessions(stub: StubServer, tmp_path: Path, kind: str, tools: str, most: int) -> None:
    model = stub.script("writes", DRAFT)
    usage = await run(stub, tmp_path, CHAINED.format(guide=GUIDE, tools=tools), model, kind=kind, person=True)
    texts = 3 * len(DRAFT) // 5  # the draft twice and the notes once, which is the minimum
    assert usage.requests == 3 and texts < usage.tokens_in * 5 and usage.tokens_in <= most
    assert usage.cached == 0


@pytest.mark.parametrize(("kind", "kept"), [("openai", 4), ("anthropic", 3)])
async def test_a42_five_questions_about_a_document_find_it_in_the_cache(
    stub: StubServer, tmp_path: Path, kind: str, kept: int
) -> None:
    document = "".join(DOCUMENT.format(n=n) for n in range(200))
    usage = await run(stub, tmp_path, QUESTIONS, "ok-0", kind=kind, supplied={"document": document})
    assert usage.requests == 5
    assert usage.cached > 0.9 * kept / 5 * usage.tokens_in


async def test_a42_a_short_beginning_is_not_kept(stub: StubServer, tmp_path: Path) -> None:
    await run(stub, tmp_path, QUESTIONS, "ok-0", kind="anthropic", supplied={"document": DRAFT[:500]})
    assert "cache_control" not in str([last.body for last in stub.seen])


def test_a42_the_cases_of_an_evaluation_share_connections_and_stream_nothing(stub: StubServer, tmp_path: Path) -> None:
    (tmp_path / "prose.toml").write_text(
        f'[providers.stub]\nkind = "openai"\nbase_url = "{stub.openai_url}"\nkey = ""\nmodel = "ok-0"\n'
    )
    spec = write(
        tmp_path, '[[assert]]\nrule = "answer is not empty"\n', [{"id": n, "question": "?"} for n in range(20)]
    )
    overrides = {"provider": "stub", "cassette_mode": "off"}
    summary = evaluate(spec, parallel=4, overrides=overrides)
    assert [one.status for one in summary.results] == ["passed"] * 20
    assert stub.stats.requests == 20 and stub.stats.connections <= 4
    assert not any(last.body.get("stream") for last in stub.seen)


def test_a43_the_cases_of_an_evaluation_pass_a_dead_server_over(stub: StubServer, tmp_path: Path) -> None:
    (tmp_path / "prose.toml").write_text(
        f'[providers.dead]\nkind = "openai"\nbase_url = "{stub.openai_url}"\nkey = ""\n'
        f'[providers.well]\nkind = "openai"\nbase_url = "{stub.openai_url}"\nkey = ""\nmodel = "ok-0"\n'
        '[models.dead.default]\nmodel = "err-503"\nfallback = ["well"]\n'
    )
    spec = write(
        tmp_path, '[[assert]]\nrule = "answer is not empty"\n', [{"id": n, "question": "?"} for n in range(20)]
    )
    summary = evaluate(spec, parallel=4, overrides={"provider": "dead", "cassette_mode": "off"})
    assert [one.status for one in summary.results] == ["passed"] * 20
    assert stub.stats.by_model["ok-0"] == 20 and stub.stats.by_model["err-503"] <= 6
