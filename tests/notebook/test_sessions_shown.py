"""Sessions in a real kernel, answered by the stub server: streaming, tools, interrupts, recordings, nbclient and nbval."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forked
import nbformat
import pytest
from notebook.kernels import KERNELS, REPOSITORY, Client, Ran, kernel, specification
from stubs.model_server import ANSWER, StubServer


def configure(directory: Path, stub: StubServer, mode: str) -> None:
    lines = ['provider = "stub:ok-0"', "[cassette]", f'mode = "{mode}"']
    lines += ["[providers.stub]", 'kind = "openai"', f'base_url = "{stub.openai_url}"', 'key = ""']
    lines += ["[models.stub]", 'sonnet = "ok-1"', 'opus = "tool-0-list"']
    (directory / "prose.toml").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, stub: StubServer) -> Path:
    directory = tmp_path_factory.mktemp("sessions")
    configure(directory, stub, "off")
    return directory


@pytest.fixture(scope="module")
def shared(home: Path) -> Iterator[Client]:
    with kernel(home, forks=True) as client:
        yield client


def saved(ran: Ran) -> list[dict[str, Any]]:
    """The outputs as a notebook file would hold them, without what varies."""
    found: list[dict[str, Any]] = []
    places: dict[str, dict[str, Any]] = {}
    for message in ran.outputs:
        content = message["content"]
        display_id = content.get("transient", {}).get("display_id")
        if message["msg_type"] == "clear_output":
            found, places = [], {}  # all fields follow again
            continue
        if message["msg_type"] == "update_display_data":
            places[display_id]["data"] = content["data"]
            continue
        if message["msg_type"] == "stream" and found and found[-1].get("name") == content["name"]:
            found[-1]["text"] += content["text"]
            continue
        kept = {"kind": message["msg_type"]}
        kept |= {name: content[name] for name in ("data", "name", "text", "ename", "evalue") if name in content}
        found.append(kept)
        if display_id:
            places[display_id] = kept
    return found


# ---------------------------------------------------------------- live and quiet


@pytest.mark.parametrize(
    "code",
    [
        'session "Say it"',
        'let x = session "Say it"',
        "agent list_maker:\n  model: opus\n  prompt: \"List\"\nlet files = session: list_maker",
        "%provider stub:err-500-1\nlet x = session \"Say it\"\n  retry: 2",
        '%provider stub:err-400\ntry:\n  session "Say it"\ncatch as e:\n  let said = "caught"',
        '%provider stub:midway\nsession "Say it"',
        'parallel:\n  a = session "one"\n  b = session "two"\n  exec "echo three"',
        '%provider stub:markdown-0\nsession "Say it"\nlet after = 1',
        "for x in [1, 2, 3]:\n  session \"Say {x}\"",
        "%provider dry-run\nsession \"Say it\"",
    ],
)  # fmt: skip
def test_who_watches_and_who_does_not_get_the_same_notebook(client: Client, stub: StubServer, code: str) -> None:
    live = client.run("%provider stub:ok-0\n%reset") and client.run(code, allow_stdin=True)
    stub.reset()
    client.run("%provider stub:ok-0\n%reset")
    quiet = client.run(code)
    assert "update_display_data" not in quiet.kinds
    assert saved(live) == saved(quiet)
    assert any("text/markdown" in output.get("data", {}) for output in saved(quiet))
    client.run("%provider stub:ok-0")


def test_an_answer_streams_while_a_person_watches(client: Client, stub: StubServer) -> None:
    words = " ".join(f"word{number}" for number in range(400))
    client.run(f"%provider stub:{stub.script('long', words)}")
    ran = client.run('session "Say it"', allow_stdin=True)
    assert ran.kinds[0] == "display_data" and set(ran.kinds[1:]) == {"update_display_data"}
    assert len({message["content"]["transient"]["display_id"] for message in ran.outputs}) == 1
    last = ran.outputs[-1]["content"]
    assert last["data"]["text/plain"] == f"session · model\n{words}"
    facts = last["metadata"]["prose"]
    assert (facts["provider"], facts["origin"], facts["replayed"]) == ("stub", "model", False)
    assert facts["usage"]["tokens_out"] > 0 and facts["seconds"] >= 0


def test_an_interrupt_keeps_the_text_ends_the_request_and_leaves_the_kernel_well(
    client: Client, stub: StubServer
) -> None:
    stub.reset()
    client.run("%provider stub:drip")
    request = client.send('let story = session "Tell"', allow_stdin=True)
    client.until(request, lambda m: m["msg_type"] == "update_display_data")
    client.interrupt()
    ran = client.finish(request)
    assert ran.error["ename"] == "KeyboardInterrupt"
    shown = [m for m in ran.outputs if m["msg_type"] == "update_display_data"][-1]["content"]["data"]
    assert shown["text/markdown"].endswith("**■ interrupted: this answer is not complete**")
    assert set(shown) == {"text/markdown", "text/plain"}
    stats = stub.wait_for(lambda seen: seen.disconnects == 1 and seen.in_flight == 0)
    assert stats.tokens_after_disconnect == 0
    client.run("%provider stub:ok-0")
    (again,) = saved(client.run('session "Again"', allow_stdin=True))
    assert again["data"]["text/plain"] == f"session · model\n{ANSWER}"


def test_a_session_that_hangs_can_be_interrupted(client: Client, stub: StubServer) -> None:
    stub.reset()
    client.run("%provider stub:hang")
    request = client.send('parallel:\n  session "a"\n  session "b"', allow_stdin=True)
    stub.wait_for(lambda seen: seen.in_flight == 2)
    client.interrupt()
    ran = client.finish(request)
    assert ran.error["ename"] == "KeyboardInterrupt"
    assert "2 cancelled" in ran.outputs[-2]["content"]["data"]["text/plain"]
    stub.wait_for(lambda seen: seen.in_flight == 0)
    client.run("%provider stub:ok-0")
    assert client.run('exec "echo fine"').text() == "fine\n"


def test_a_huge_reply_is_shown_in_part_and_cheaply(client: Client, stub: StubServer) -> None:
    client.run("%provider stub:big-2")
    ran = client.run('let huge = session "Say much"', allow_stdin=True)
    assert ran.status == "ok"
    sizes = [len(json.dumps(message["content"])) for message in ran.outputs]
    assert max(sizes) < 500_000 and sum(sizes[:-1]) < 100_000 * len(sizes)
    assert "characters in all; the binding holds all of them" in ran.outputs[-1]["content"]["data"]["text/plain"]
    client.run("%provider stub:ok-0")


def test_tool_calls_fold_into_their_own_output(client: Client, home: Path) -> None:
    code = 'agent lister:\n  model: opus\n  prompt: "List"\nlet files = session: lister'
    ran = client.run(code, allow_stdin=True)
    *_, trace = ran.outputs
    assert trace["msg_type"] == "display_data" and set(trace["content"]["data"]) == {"text/html", "text/plain"}
    assert trace["content"]["data"]["text/html"].startswith("<details")
    assert trace["content"]["data"]["text/plain"].startswith("files: 1 tool call\n  ✓ list")
    for message in ran.outputs[:-1]:
        assert "<details" not in json.dumps(message["content"]["data"])


def test_a_permission_is_asked_while_the_session_runs(client: Client, home: Path, stub: StubServer) -> None:
    turns = [
        {"text": "I shall write it.", "calls": [{"name": "write", "arguments": {"path": "made.txt", "content": "hi"}}]},
        "Done.",
    ]
    client.run(f"%provider stub:{stub.script('writer', *turns)}")
    code = 'session:\n  prompt: "Write"\n  permissions:\n    write: prompt'
    ran = client.run(code, ["y"], allow_stdin=True)
    assert ran.status == "ok", ran.error
    assert "made.txt" in ran.text()
    assert saved(ran)[-1]["data"]["text/plain"].startswith("session: 1 tool call\n  ✓ write")
    refused = client.run(code)  # non-interactive
    assert "refused" in refused.displays[-1]
    client.run("%provider stub:ok-0")


def test_a_person_answers_in_place_of_a_model(client: Client) -> None:
    client.run("%provider human")
    ran = client.run('let x = session "Say it"', ["an answer", "."], allow_stdin=True)
    assert ran.displays == ["x · session · human\nan answer"]
    client.run("%provider stub:ok-0")


# ---------------------------------------------------------------- magics


def test_usage_is_counted_by_model(client: Client) -> None:
    client.run('session "one"\nsession "two"')
    (table,) = client.run("%usage").displays
    head, line = table.split("\n")
    assert head.split()[:6] == ["provider", "model", "sessions", "judgements", "replayed", "requests"]
    assert line.split()[:6] == ["stub", "ok-0", "2", "0", "0", "2"]


def test_the_judge_says_why(client: Client) -> None:
    client.run("%judge off stub:json-0-yes")
    assert client.run('let x = "Frogs."\nif **x is about frogs**:\n  let y = 1').status == "ok"
    (table,) = client.run("%judge why").displays
    assert table.split("\n")[-1].split() == ["x", "is", "about", "frogs", "yes", "model", "because"]
    client.run("%judge first auto")


def test_a_judge_is_calibrated_in_place(client: Client, home: Path, stub: StubServer) -> None:
    items = [{"condition": f"it rains in {n}", "label": "no" if n else "yes"} for n in range(3)]
    (home / "own.jsonl").write_text("\n".join(json.dumps(item) for item in items))
    client.run("%judge stub:json-0-yes")
    ran = client.run("%judge calibrate own.jsonl --least 50")
    assert ran.status == "error" and ran.error["evalue"] == "%judge calibrate: it is right less often than in 50 %"
    first, *tables = saved(ran)[:-1]
    assert first["data"]["text/plain"].startswith(
        "stub:json-0-yes: 1 of 3 right, 33.3 % (95 % interval 6.1 to 79.2 %)."
    )
    assert [part["data"]["text/plain"].split("  ")[0] for part in tables] == [
        "right answer",
        "category",
        "worst misses",
    ]
    assert client.run("%judge calibrate own.jsonl --least much").status == "error"
    ran = client.run("%judge calibrate nowhere.jsonl")
    assert ran.error["evalue"] == "nowhere.jsonl cannot be read: no such file or directory"
    assert not ran.displays
    client.run("%judge auto")


def test_prompt_shows_what_would_be_sent_and_sends_nothing(client: Client, stub: StubServer) -> None:
    client.run('let topic = "frogs"')
    stub.reset()
    code = (
        '%prompt\nagent writer:\n  model: sonnet\n  prompt: "You are terse"\n  permissions:\n    read: ["*.md"]\n'
        'let plan = session: writer\n  prompt: "Plan {topic}"\nsession "Write {plan}"\n  context: topic'
    )
    (text,) = client.run(code).displays
    assert stub.stats.requests == 0
    first, second = text.split("\n\nsession ")
    assert "agent writer" in first and "model sonnet" in first and "for plan" in first
    assert "sonnet → ok-1" in first and "Plan frogs" in first and "You are terse" in first and "read: *.md" in first
    assert "Write ⟦plan: not known yet⟧" in second and "topic 5 (" in second
    assert ".prose/runs/«run»/bindings/" in second
    assert client.run(code).displays == [text]  # nothing has changed by looking
    assert "plan" not in client.run("%bindings").displays[0] and client.run("%agents").displays == ["No agents yet."]


def test_prompt_takes_a_statement_with_its_body_below(client: Client) -> None:
    (text,) = client.run('%prompt let plan = session "Plan"\n  prompt: "the day"\n  model: opus').displays
    assert "model opus (line 1, for plan)" in text
    assert "Plan\n\n    the day" in text
    assert "at line 3" in "\n".join(client.run('%prompt session "T"\n  prompt: "x"\n  model: 5').error["traceback"])


def test_a_value_that_an_answer_replaces_is_shown_before_it(client: Client) -> None:
    shown = client.run('let word = "first"\nrepeat 1:\n  word = session "one"').displays
    assert [text.splitlines()[0].split(" · ")[0] for text in shown] == ["word: text = first", "word"]


def test_prompt_takes_a_statement_as_it_is_written(client: Client) -> None:
    (text,) = client.run("""%prompt session "Don't stop" """).displays
    assert "Don't stop" in text
    assert client.run("%prompt let x = 1").displays == ["There is no session in it."]
    assert "Undefined agent" in client.run("%prompt session: nobody").error["evalue"]


def test_provider_and_judge_show_their_state(client: Client) -> None:
    (text,) = client.run("%provider").displays
    assert "answers now" in text and "stub" in text and "acp:" not in text.split("can be chosen")[0]
    client.run("%judge only stub:json-0-no")
    (text,) = client.run("%judge").displays
    assert "only: only rules" in text and "stub:json-0-no" in text
    client.run("%judge first auto")


# ---------------------------------------------------------------- recordings

CELLS = (
    'agent writer:\n  model: sonnet\n  prompt: "You are terse"',
    'let plan = session: writer\n  prompt: "Plan the day"',
    'parallel:\n  a = session "one"\n  b = session: writer\n    prompt: "two"',
    'agent lister:\n  model: opus\n  prompt: "List what is here"\nlet files = session: lister',
    'for x in ["a", "b", "a"]:\n  session "About {x}"',
    'try:\n  session "Fails"\n    model: haiku\ncatch as e:\n  let said = "caught"',
    "%judge stub:json-0\nif **the plan is good**:\n  let good = true\nelse:\n  let good = false\n%judge auto",
    '%provider stub:length\nsession "Say more than you may"\n%provider stub:ok-0',
    "%cassette",
)


@dataclass(frozen=True)
class Recorded:
    """A notebook that was run once with a person watching, with its recording; the server is gone."""

    directory: Path
    book: Path
    environment: dict[str, str]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    directory = tmp_path_factory.mktemp("recorded")
    with StubServer() as stub:
        configure(directory, stub, "auto")
        with (directory / "prose.toml").open("a") as settings:
            settings.write('haiku = "err-400"\n')
        with kernel(directory, forks=True) as client:
            ran = [client.run(code, allow_stdin=True) for code in CELLS]
    assert [one.status for one in ran] == ["ok"] * len(CELLS)
    settings_ = (directory / "prose.toml").read_text()
    (directory / "prose.toml").write_text(settings_.replace('"stub:ok-0"', '"replay"').replace('mode = "auto"\n', ""))
    book = directory / "recorded.ipynb"
    nbformat.write(notebook_of(ran[:-1]), book)
    (jupyter := directory / "jupyter").mkdir()
    paths = {"JUPYTER_PATH": str(jupyter), "PYTHONPATH": str(REPOSITORY), "HOME": str(directory)}
    with forked.as_kernels(jupyter, KERNELS):
        yield Recorded(directory, book, {**os.environ, **paths})


def notebook_of(ran: Sequence[Ran]) -> Any:
    """The notebook that a front end would have saved."""
    cells = []
    for number, (code, one) in enumerate(zip(CELLS, ran, strict=False), 1):
        outputs = [nbformat.v4.new_output(output.pop("kind"), **output) for output in saved(one)]
        cells.append(nbformat.v4.new_code_cell(code, execution_count=number, outputs=outputs))
    spec = {"name": "prose", "display_name": "Prose", "language": "prose"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec})


def shown_in(book: Any) -> list[list[Any]]:
    keys = ("output_type", "data", "name", "text", "ename", "evalue")
    return [[{key: output[key] for key in keys if key in output} for output in cell.outputs] for cell in book.cells]


def test_a_replayed_notebook_is_the_recorded_one_byte_for_byte(recorded: Recorded) -> None:
    code = (
        "import nbformat, sys; from nbclient import NotebookClient\n"
        "book = nbformat.read(sys.argv[1], 4)\n"
        "NotebookClient(book, timeout=60, resources={'metadata': {'path': sys.argv[2]}}).execute()\n"
        "nbformat.write(book, sys.argv[3])"
    )
    again = recorded.directory / "again.nb"
    words = (code, str(recorded.book), str(recorded.directory), str(again))
    done = forked.python(*words, cwd=recorded.directory, env=recorded.environment, package=REPOSITORY)
    assert done.returncode == 0, done.stderr
    first, second = nbformat.read(recorded.book, 4), nbformat.read(again, 4)
    assert shown_in(first) == shown_in(second)
    facts = second.cells[1].outputs[0].metadata["prose"]
    assert facts["replayed"] is True and facts["origin"] == "model"
    (judged, bound) = second.cells[-2].outputs
    assert judged.data["text/plain"] == "the plan is good → yes (model: because)"
    assert judged.metadata["prose"]["decisions"][0]["replayed"] is True and "good: boolean" in bound.data["text/plain"]
    assert "the reply ended at the limit of tokens" in second.cells[-1].outputs[0].data["text/plain"]
    assert "sonnet · model" in second.cells[1].outputs[0].data["text/plain"]


def test_nbval_passes_offline_on_a_recorded_notebook(recorded: Recorded) -> None:
    """With no other plugin of pytest, because others take seconds to load."""
    options = ("-q", "-p", "no:cacheprovider", "-p", "nbval.plugin", "--nbval")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(recorded.book)],
        env={**recorded.environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=recorded.directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def test_cassette_shows_the_state_of_the_recording(recorded: Recorded) -> None:
    with kernel(recorded.directory, forks=True) as client:
        client.run(CELLS[0])
        client.run(CELLS[1])
        (text,) = client.run("%cassette", allow_stdin=True).displays
        rows = dict(line.split("  ", 1) for line in text.split("\n")[1:])
        assert rows["is written"].strip() == "cassettes/session.jsonl" and rows["mode"].strip() == "auto"
        assert rows["used in this run"].strip() == "1" and rows["records"].strip() == "10 in 1 file"
        assert rows["not used"].strip().startswith("9 ")
        miss = client.run('session "Never recorded"')
        assert "nothing is recorded" in miss.error["evalue"]
        assert miss.kinds == ["error"]
        (told,) = client.run("%prompt let plan = session: writer\n").displays
        assert "recording" in told and "miss" in told
        assert "answers only from recordings" in client.run("%cassette --mode record").error["evalue"]
        client.run("%provider human\n%cassette other --mode record")
        (text,) = client.run("%cassette").displays
        rows = dict(line.split("  ", 1) for line in text.split("\n")[1:])
        assert rows["is written"].strip() == "cassettes/other.jsonl" and rows["mode"].strip() == "record"


def test_a_damaged_recording_is_reported_once(recorded: Recorded, tmp_path: Path) -> None:
    (tmp_path / "cassettes").mkdir()
    whole = (recorded.directory / "cassettes" / "session.jsonl").read_text()
    (tmp_path / "cassettes" / "session.jsonl").write_text(whole[: len(whole) - 40])
    (tmp_path / "prose.toml").write_text((recorded.directory / "prose.toml").read_text())
    with kernel(tmp_path, forks=True) as client:
        ran = [client.run(code) for code in CELLS[:3]]
        assert sum(one.text().count("Warning: cassettes/session.jsonl") for one in ran) == 1
        assert ran[1].status == "ok"


# ---------------------------------------------------------------- Prose in Python notebooks


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory, stub: StubServer) -> Iterator[Client]:
    directory = tmp_path_factory.mktemp("python")
    configure(directory, stub, "off")
    with kernel(directory, spec=specification("ipykernel_launcher", "signal"), forks=True) as client:
        assert client.run("%load_ext prose_kernel").status == "ok"
        yield client


def test_a_session_streams_in_a_python_notebook(python: Client, stub: StubServer) -> None:
    words = " ".join(f"word{number}" for number in range(300))
    assert python.run(f"%prose provider stub:{stub.script('python', words)}").status == "ok"
    live = python.run('%%prose\nlet said = session "Say it"', allow_stdin=True)
    assert live.kinds[0] == "display_data" and set(live.kinds[1:]) == {"update_display_data"}
    quiet = python.run('%%prose\nlet said = session "Say it"')
    assert saved(live) == saved(quiet) and quiet.displays == [f"said · session · model\n{words}"]
    assert python.run('print(prose["said"] == "' + words + '")').text() == "True\n"


def test_an_interrupt_of_a_python_cell_ends_the_session(python: Client, stub: StubServer) -> None:
    stub.reset()
    python.run("%prose provider stub:drip")
    request = python.send('%%prose\nlet story = session "Tell"', allow_stdin=True)
    python.until(request, lambda m: m["msg_type"] == "update_display_data")
    python.interrupt()
    ran = python.finish(request)
    assert ran.error["ename"] == "KeyboardInterrupt"
    last = [m for m in ran.outputs if m["msg_type"] == "update_display_data"][-1]["content"]["data"]
    assert last["text/plain"].endswith("■ interrupted: this answer is not complete")
    stub.wait_for(lambda seen: seen.in_flight == 0)
    assert python.run("%prose provider stub:ok-0").status == "ok"


def test_magics_work_in_python_notebooks(python: Client) -> None:
    for line, says in (
        ("provider", "answers now"),
        ("judge", "asked in turn"),
        ("cassette", "mode"),
        ("usage", ""),
        ('prompt session "Don\'t stop"', "Don't stop"),
    ):
        ran = python.run(f"%prose {line}")
        assert ran.status == "ok", ran.error
        assert says in ran.displays[0]
    (text,) = python.run('%%prose\n%prompt\nlet never = session "Look only"').displays
    assert "Look only" in text and python.run('print("never" in prose)').text() == "False\n"
