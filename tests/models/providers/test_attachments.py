"""Images and PDFs sent with a session's message: to models in each wire format, to CLI agents, and in recordings."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from machine.fakes import lines
from models.people import ScriptedPerson
from models.providers.agents import agent
from models.providers.models import WIRES, Live, asked
from sample_files import PDF, png
from stubs.model_server import StubServer

from prose_kernel.errors import PermissionDenied, ProviderError, RunError
from prose_kernel.language.structs import replace
from prose_kernel.models import attachments
from prose_kernel.runs import languages, settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.ports import CommandResult, ContextItem, Given, SessionRequest
from prose_kernel.runtime.values import ExecText, Value

LINE = "PNG image, 3 × 2, 72 bytes"


def printed(data: bytes, line: str = LINE) -> ExecText:
    text = f"[{line}]\n"
    return ExecText(text, CommandResult("exited", 0, text, image=data))


def item(value: Value, name: str = "chart") -> ContextItem:
    return ContextItem(name, f".prose/runs/r/bindings/{name}.md", content=value)


def file(path: str) -> ContextItem:
    return ContextItem("file", text=path, file=True)


def parts(stub: StubServer) -> list[str]:
    """Return the parts of the last message: its texts, and the images and PDFs as base64."""
    assert stub.last is not None
    body = stub.last.body
    message = next(one for one in reversed(body.get("messages") or body["input"]) if one.get("role") == "user")
    found = []
    for part in message["content"]:
        texts = [part.get("text"), (part.get("source") or {}).get("data"), part.get("image_url"), part.get("file_data")]
        texts.append((part.get("file") or {}).get("file_data"))
        url = next(text for text in texts if text)
        url = url["url"] if isinstance(url, dict) else url
        found.append(url.rpartition("base64,")[2])
    return found


def base64(data: bytes) -> str:
    return b64encode(data).decode()


@pytest.mark.parametrize("wire", WIRES)
class TestModels:
    async def test_images_of_values_and_files_go_with_the_message(
        self, stub: StubServer, wire: str, tmp_path: Path
    ) -> None:
        (tmp_path / "logo.PNG").write_bytes(png(5, 4))
        context = (item(printed(png())), item([printed(png(4, 4)), 1], "all"), file("logo.PNG"), file("notes.md"))
        async with Live(stub, wire, "ok-0", tmp_path) as live:
            result = await live.run(asked(context=context))
        text, *rest, task = parts(stub)
        assert f"===== chart\n{LINE} (it goes with this message)\n===== end of chart" in text
        assert "===== file\nlogo.PNG\n===== end of file\n\n===== file\nnotes.md\n" in text
        assert task == "Say something."
        assert rest == [
            f"chart: {LINE}",
            base64(png()),
            "all: PNG image, 4 × 4, 71 bytes",
            base64(png(4, 4)),
            "logo.PNG: PNG image, 5 × 4, 71 bytes",
            base64(png(5, 4)),
        ]
        assert [read.path for read in result.reads] == ["logo.PNG"]

    async def test_attachments_referenced_by_a_vvm_input_are_sent(
        self, stub: StubServer, wire: str, tmp_path: Path
    ) -> None:
        (tmp_path / "a.png").write_bytes(png())
        request = SessionRequest("call", "Look.", "c1/s0", given=Given('{"ref": "a.png"}', ("a.png", "b000001.md")))
        async with Live(stub, wire, "ok-0", tmp_path, tools=False) as live:
            await live.run(request)
        assert parts(stub)[1:] == [f"a.png: {LINE}", base64(png()), "Look."]

    @pytest.mark.parametrize(
        ("context", "rule", "error", "message"),
        [
            (
                file("gone.png"),
                "allow",
                ProviderError,
                "gone.png cannot be given to the session: there is no such file",
            ),
            (
                file("text.png"),
                "allow",
                ProviderError,
                "text.png cannot be given to the session: it isn't an image or a",
            ),
            (file("empty.pdf"), "allow", ProviderError, "empty.pdf cannot be given to the session: it is empty"),
            (file("real.png"), "deny", PermissionDenied, "reading 'real.png' is not allowed"),
            (item(printed(png()[:40])), "allow", ProviderError, "chart cannot be given to the session: PNG image"),
            (item([printed(png())] * 21), "allow", ProviderError, "21 images and PDFs cannot be given to the session"),
        ],
    )
    async def test_an_attachment_that_cannot_be_sent_is_one_error_and_nothing_is_sent(
        self, stub: StubServer, wire: str, tmp_path: Path, context: Any, rule: str, error: Any, message: str
    ) -> None:
        for name, data in (("text.png", b"hello"), ("empty.pdf", b""), ("real.png", png())):
            (tmp_path / name).write_bytes(data)
        async with Live(stub, wire, "ok-0", tmp_path) as live:
            with pytest.raises(error) as caught:
                await live.run(asked(context=(context,), permissions={"read": rule}))
        assert str(caught.value).startswith(message) and not caught.value.retryable
        assert stub.stats.requests == 0


async def test_too_much_for_one_message_is_an_error(
    stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "TOGETHER", 100)
    async with Live(stub, "anthropic", "ok-0", tmp_path) as live:
        with pytest.raises(ProviderError, match="together they have more than the 100 bytes that a message takes"):
            await live.run(asked(context=(item(printed(png())), item(printed(png())))))


async def test_too_many_files_are_an_error_before_any_is_read(stub: StubServer, tmp_path: Path) -> None:
    context = tuple(file(f"{n}.png") for n in range(1_000))  # none of the files exists
    async with Live(stub, "anthropic", "ok-0", tmp_path) as live:
        with pytest.raises(ProviderError, match=r"1,000 images and PDFs cannot be given .* takes up to 20"):
            await live.run(asked(context=context))


@pytest.mark.parametrize(("wire", "takes"), [("anthropic", True), ("responses", True), ("chat", True)])
async def test_pdfs_go_to_models_that_take_them(stub: StubServer, wire: str, takes: bool, tmp_path: Path) -> None:
    (tmp_path / "paper.pdf").write_bytes(PDF)
    async with Live(stub, wire, "ok-0", tmp_path) as live:
        await live.run(asked(context=(file("paper.pdf"),)))
    assert base64(PDF) in parts(stub)


@pytest.mark.parametrize(("path", "kind"), [("a.png", "images"), ("a.pdf", "PDFs")])
async def test_an_attachment_for_a_model_without_vision_names_the_model(
    stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, kind: str
) -> None:
    from pydantic_ai.models.openai import OpenAIChatModel

    monkeypatch.setattr(OpenAIChatModel, "_unsupported_file_inputs", frozenset({"image", "document"}))
    (tmp_path / path).write_bytes(png() if kind == "images" else PDF)
    async with Live(stub, "chat", "ok-0", tmp_path) as live:
        with pytest.raises(ProviderError) as caught:
            await live.run(asked(context=(file(path),)))
    assert str(caught.value) == f"gateway: `{path}` cannot be sent: the model `ok-0` takes no {kind}"
    assert stub.stats.requests == 0


# ---------------------------------------------------------------- CLI agents


@pytest.mark.parametrize("takes", [True, False])
async def test_an_agent_gets_blocks_if_it_supports_them_else_links(tmp_path: Path, takes: bool) -> None:
    (tmp_path / "paper.pdf").write_bytes(PDF)
    async with agent(tmp_path, *(["takes=all"] if takes else [])) as bench:
        result = await bench.run(
            "prompt", context=(item(printed(png())), file("paper.pdf")) if takes else (file("paper.pdf"),)
        )
    blocks = json.loads(result.text)[1:]
    if takes:
        assert [block["type"] for block in blocks] == ["resource_link", "text", "image", "text", "resource"]
        assert blocks[2]["data"] == base64(png()) and blocks[4]["resource"]["blob"] == base64(PDF)
    else:
        assert [block["type"] for block in blocks] == ["text", "resource_link"]
        assert blocks[1]["uri"] == (tmp_path / "paper.pdf").as_uri()


async def test_an_image_without_a_file_is_refused_for_an_agent_without_image_support(tmp_path: Path) -> None:
    async with agent(tmp_path) as bench:
        with pytest.raises(ProviderError, match="`chart` cannot be sent: the agent stub takes no images"):
            await bench.run("prompt", context=(item(printed(png())),))


# ---------------------------------------------------------------- programs, recordings

PROGRAM = lines(
    'let chart = exec "cat chart.png"',
    'let a = session "What grows?"',
    "  context: chart",
    'let b = session "And this?"',
    "  context:",
    '    file: "logo.png"',
)


async def run(
    cwd: Path, stub: StubServer, *, mode: str = "auto", program: str = PROGRAM, name: str = "main.prose"
) -> list[str]:
    """Run the program, and return the warnings and notes that the person saw."""
    (cwd / "prose.toml").write_text(
        f'provider = "gateway"\n[providers.gateway]\nkind = "openai"\nbase_url = "{stub.openai_url}"\nmodel = "ok-0"\n'
    )
    person = ScriptedPerson(available=False)
    loaded = settings.load(cwd, {"HOME": str(cwd.parent)}, cassette_mode=mode)
    start = Start(cwd, name, notebook=False, language=languages.of_file(name))
    here = Workspace(loaded, start, asker=person)
    try:
        await here.execute(program, name)
    finally:
        await here.close()
    return person.transcript


async def test_a_recording_holds_digests_and_replays_without_the_files(stub: StubServer, tmp_path: Path) -> None:
    (tmp_path / "chart.png").write_bytes(png())
    (tmp_path / "logo.png").write_bytes(png(5, 4))
    assert await run(tmp_path, stub) == []
    assert [base64(png()) in json.dumps(seen.body) for seen in stub.seen] == [True, False]
    cassette = next((tmp_path / "cassettes").glob("*.jsonl")).read_text()
    assert base64(png())[:40] not in cassette and base64(png(5, 4))[:40] not in cassette
    assert (
        "images"
        in json.loads(next(line for line in cassette.splitlines() if "grows" in line))["req"]["context"]["chart"]
    )

    stub.reset()
    assert await run(tmp_path, stub, mode="replay") == []
    (tmp_path / "logo.png").unlink()
    warnings = await run(tmp_path, stub, mode="replay")
    assert len(warnings) == 1 and "logo.png has changed since" in warnings[0]
    (tmp_path / "chart.png").write_bytes(png(shade=150))  # of the same size, and thus with the same line in the message
    with pytest.raises(RunError, match=r"`context\.chart` holds another image"):
        await run(tmp_path, stub, mode="replay")
    assert stub.stats.requests == 0


async def test_an_agent_of_vvm_sees_the_image_that_its_input_refers_to(stub: StubServer, tmp_path: Path) -> None:
    kept = tmp_path / ".prose" / "images"  # where `%%vvm --in` writes Python values
    kept.mkdir(parents=True)
    (kept / "a.png").write_bytes(png())
    await run(
        tmp_path, stub, program='agent reader()\nx = @reader `Look`({ref: ".prose/images/a.png"})\n', name="p.vvm"
    )
    assert base64(png()) in parts(stub)


async def test_two_sessions_may_send_the_same_image_to_an_agent_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, rename = threading.Barrier(2, timeout=30), os.replace

    def together(old: str, new: Path, **more: Any) -> None:
        if Path(new).parent.name == "images":
            both.wait()
        rename(old, new, **more)

    monkeypatch.setattr(os, "replace", together)
    async with agent(tmp_path) as bench:
        where = replace(bench.sessions._host.where, run_directory="run")
        bench.sessions._host = replace(bench.sessions._host, where=where)
        chart = item(printed(png()))
        results = await asyncio.gather(*(bench.run("prompt", context=(chart,)) for _ in range(2)))
    uris = [json.loads(result.text or "")[-1]["uri"] for result in results]
    assert uris == [next((tmp_path / "run" / "images").iterdir()).as_uri()] * 2
