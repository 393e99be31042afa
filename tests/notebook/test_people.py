"""Questions with a form, and who may answer them: a front end that was not asked, a forged or late answer, a reloaded page, an interrupt, a deadline (A8, A9)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpec
from notebook.kernels import TIMEOUT, Client, Message, Ran, kernel, specification
from stubs.model_server import StubServer

from prose_kernel.notebook.stdin import described
from prose_kernel.runtime.asker import Button, Field, Form

GATES = 'gate one:\n  prompt: "One?"\ngate two:\n  prompt: "Two?"'
GATE = 'gate deploy:\n  prompt: "Deploy?"\nexec "echo deployed"'


@contextmanager
def another(client: Client) -> Iterator[Any]:
    """A second front end of the same kernel: a client with its own session."""
    channels = BlockingKernelClient(connection_file=client.manager.connection_file)
    channels.load_connection_file()
    channels.start_channels()
    try:
        if client.manager.kernel_spec.language == "prose":  # IPython answers nothing there while a cell runs
            channels.wait_for_ready(timeout=TIMEOUT)
        yield channels
    finally:
        channels.stop_channels()


def asked(channels: Any) -> Message:
    question: Message = channels.get_stdin_msg(timeout=TIMEOUT)
    assert question["msg_type"] == "input_request"
    return question


def answer(channels: Any, question: Message, value: str) -> None:
    """As JupyterLab answers: it says which question it means."""
    content = {"status": "ok", "value": value}
    channels.stdin_channel.send(channels.session.msg("input_reply", content, parent=question["header"]))


def control(channels: Any, kind: str, content: object) -> Message:
    message = channels.session.msg(kind, content)
    channels.control_channel.send(message)
    while True:
        reply: Message = channels.get_control_msg(timeout=TIMEOUT)
        if reply["parent_header"]["msg_id"] == message["header"]["msg_id"]:
            return reply


def settled(channels: Any) -> None:
    """What was sent before has been looked at: the kernel answers other requests while it asks."""
    message = channels.session.msg("is_complete_request", {"code": "x"})
    channels.shell_channel.send(message)
    while channels.get_shell_msg(timeout=TIMEOUT)["parent_header"]["msg_id"] != message["header"]["msg_id"]:
        pass


def withdrawn(client: Client, request: str) -> str:
    message = client.until(request, lambda message: "withdrawn" in message["metadata"].get("prose", {}))
    assert message["msg_type"] == "status"
    return str(message["metadata"]["prose"]["withdrawn"])


def labels(question: Message) -> list[str]:
    return [button["label"] for button in question["metadata"]["prose"]["buttons"]]


# ---------------------------------------------------------------- what a question looks like


def test_a_gate_has_two_buttons_and_a_reason(client: Client) -> None:
    code = 'let v = "1.0"\ngate deploy:\n  prompt: "Deploy {v}?"\n  timeout: "1h"'
    request = client.send(code, allow_stdin=True)
    question = asked(client.channels)
    form = question["metadata"]["prose"]
    assert 3500 < form.pop("seconds") <= 3600 and len(form.pop("key")) > 20
    assert form == {
        "kind": "gate",
        "title": "gate deploy",
        "text": "Deploy 1.0?",
        "markdown": False,
        "above": False,
        "note": "timeout 1h",
        "buttons": [
            {"label": "Approve", "answer": "approve", "joins": ": ", "main": False},
            {"label": "Reject", "answer": "reject", "joins": ": ", "main": False},
        ],
        "field": {"label": "Reason (optional)", "several": False, "required": False, "verbatim": "", "end": ""},
    }
    assert question["content"]["prompt"].endswith("gate deploy, timeout 1h\napprove or reject? ")
    answer(client.channels, question, "approve: looks good")
    assert "gate deploy: approved by user: looks good" in client.finish(request).displays


def test_the_texts_of_a_form_neither_act_nor_hide_anything() -> None:
    form = Form("gate", "gate\x1b]0;x", (Button("Yes\u202e", "y"),), Field("Why\x00"), "a\u202eb", "c\x1b[2J")
    shown = described(form)
    assert (shown["title"], shown["text"], shown["note"]) == ("gate␛]0;x", "a\\u202eb", "c␛[2J")
    assert "\\u202e" in str(shown["buttons"]) and "␀" in str(shown["field"])


def test_an_input_has_a_field_and_no_separate_answer(client: Client) -> None:
    request = client.send('input who: "Who?"', allow_stdin=True)
    question = asked(client.channels)
    form = question["metadata"]["prose"]
    assert (form["kind"], form["text"], labels(question)) == ("input", "Who?", ["Submit"])
    assert "default" not in form and "value" not in form["field"]
    answer(client.channels, question, "")
    assert client.finish(request).displays == ["who: text, empty"]


def test_a_session_has_a_text_area_whose_lines_are_text(client: Client) -> None:
    client.run("%provider human")
    request = client.send('let a = session "Which *one*?\\n<b>Say</b>"\nexec "cat"\n  stdin: a', allow_stdin=True)
    question = asked(client.channels)
    form = question["metadata"]["prose"]
    assert (form["kind"], form["field"]["several"], form["markdown"], form["above"]) == (
        "session",
        True,
        True,
        True,
    )  # shown once (A49)
    assert "*one*" in form["text"] and "<b>" not in form["text"]
    assert labels(question) == ["Submit", "Skip", "Fail", "Show all", "End the run"]
    answer(client.channels, question, f"{form['field']['verbatim']}\nfirst\n:quit\n.\n  :skip")
    assert client.finish(request).text().endswith("first\n:quit\n.\n  :skip")
    client.run("%provider auto")


def test_a_question_of_the_judge_has_a_button_for_each_answer(client: Client) -> None:
    code = 'choice **which**:\n  option "2":\n    exec "echo two"\n  option "1":\n    exec "echo one"'
    request = client.send(code, allow_stdin=True)
    question = asked(client.channels)
    assert labels(question) == ["2", "1", "Why?"]
    assert question["metadata"]["prose"]["text"] == "which" and question["metadata"]["prose"]["above"]
    answer(client.channels, question, question["metadata"]["prose"]["buttons"][0]["answer"])
    assert client.finish(request).text().endswith("two\n")
    request = client.send('if **it rains**:\n  exec "echo wet"', allow_stdin=True)
    question = asked(client.channels)
    assert labels(question) == ["Yes", "No", "Uncertain", "Why?"]
    answer(client.channels, question, "yes")
    assert client.finish(request).text().endswith("wet\n")


def test_questions_of_branches_are_shown_one_after_the_other_in_the_order_of_the_source(client: Client) -> None:
    names = ["a", "b", "c"]
    code = "parallel:\n" + "".join(f'  do:\n    input {name}: "{name}?"\n' for name in names)
    request = client.send(code, allow_stdin=True)
    for name in names:
        question = asked(client.channels)
        assert question["metadata"]["prose"]["title"] == f"input {name}"
        with pytest.raises(Empty):  # the next one is asked when this one is answered
            client.channels.get_stdin_msg(timeout=0)
        answer(client.channels, question, name)
    assert client.finish(request).status == "ok"


# ---------------------------------------------------------------- who may answer


def test_a8_messages_of_other_clients_decide_nothing(client: Client) -> None:
    request = client.send(GATE, allow_stdin=True)
    question = asked(client.channels)
    with another(client) as stranger:
        answer(stranger, question, "approve")
        key = question["metadata"]["prose"]["key"]
        comm = {"comm_id": "1", "target_name": "prose", "data": {"answer": "approve", "key": key}}
        for kind in ("comm_open", "comm_msg", "comm_close", "input_reply"):
            content = comm if kind != "input_reply" else {"value": "approve"}
            stranger.shell_channel.send(stranger.session.msg(kind, content, parent=question["header"]))
        stranger.control_channel.send(stranger.session.msg("input_reply", {"value": "approve"}, question["header"]))
        for wrong in ({"key": "x"}, {"key": ""}, {"key": None}, {"key": [key]}, {}):
            assert control(stranger, "prose_question_request", wrong)["content"].get("waiting") is not True
        settled(stranger)
        with pytest.raises(Empty):  # nor is another person asked
            stranger.get_stdin_msg(timeout=0)
    answer(client.channels, question, "reject")
    ran = client.finish(request)
    assert ran.error["ename"] == "GateRejected" and ran.text() == ""
    assert client.run("output still = 1").status == "ok"


def test_a8_an_answer_that_is_not_signed_decides_nothing(client: Client) -> None:
    request = client.send(GATE, allow_stdin=True)
    question = asked(client.channels)
    session = client.channels.session
    key, session.key = session.key, b"forged"
    answer(client.channels, question, "approve")
    session.key = key
    answer(client.channels, question, "reject")
    assert client.finish(request).error["ename"] == "GateRejected"


def test_a_double_click_answers_one_question(client: Client) -> None:
    code = 'gate one:\n  prompt: "One?"\ngate two:\n  prompt: "Two?"'
    request = client.send(code, allow_stdin=True)
    first = asked(client.channels)
    answer(client.channels, first, "approve")
    answer(client.channels, first, "approve")
    second = asked(client.channels)
    answer(client.channels, first, "approve")
    answer(client.channels, second, "reject")
    ran = client.finish(request)
    assert ran.displays[0] == "gate one: approved by user" and ran.error["ename"] == "GateRejected"


def test_a9_an_answer_after_the_deadline_comes_too_late(client: Client) -> None:
    code = (
        'try:\n  gate g:\n    prompt: "Go?"\n    timeout: "200ms"\ncatch:\n  exec "echo late"\n'
        'input n: "Name?"\noutput n'
    )
    request = client.send(code, allow_stdin=True)
    question = asked(client.channels)
    assert withdrawn(client, request) == question["header"]["msg_id"]
    following = asked(client.channels)
    answer(client.channels, question, "approve")
    answer(client.channels, following, "Ada")
    ran = client.finish(request)
    assert "result: text = Ada" in ran.displays and not any("approved" in text for text in ran.displays)


def test_an_interrupt_withdraws_the_question(client: Client) -> None:
    request = client.send('input n: "Name?"', allow_stdin=True)
    question = asked(client.channels)
    client.interrupt()
    assert withdrawn(client, request) == question["header"]["msg_id"]
    assert client.finish(request).error["ename"] == "KeyboardInterrupt"
    following = client.send('input n: "Name?"\noutput n', allow_stdin=True)
    again = asked(client.channels)
    answer(client.channels, question, "late")
    answer(client.channels, again, "Grace")
    assert client.finish(following).displays[-1] == "result: text = Grace"


# ---------------------------------------------------------------- a reloaded page


def python_kernel() -> KernelSpec:
    spec = specification("ipykernel_launcher")
    spec.language = "python"
    return spec


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with kernel(tmp_path_factory.mktemp("python"), spec=python_kernel(), forks=True) as client:
        assert client.run("%load_ext prose_kernel").status == "ok"
        yield client


def reloaded(client: Client, cell: str) -> Ran:
    """A gate waits, its page is reloaded: a client with another identity and the key of the tab."""
    request = client.send(cell, allow_stdin=True)
    question = asked(client.channels)
    key = question["metadata"]["prose"]["key"]
    with another(client) as page:
        assert control(page, "prose_question_request", {"key": key})["content"]["waiting"] is True
        again = asked(page)
        assert again["metadata"]["prose"]["title"] == question["metadata"]["prose"]["title"]
        assert again["parent_header"]["msg_type"] == "prose_question_request"
        assert withdrawn(client, request) == question["header"]["msg_id"]
        answer(client.channels, question, "approve")  # the page that was left is asked no more
        settled(page) if client.manager.kernel_spec.language == "prose" else None
        answer(page, again, "approve: from the new page")
        second = asked(page)  # and so is what the cell asks later
        answer(page, second, "reject: seen")
        ran = client.finish(request)
        assert control(page, "prose_question_request", {"key": key})["content"]["waiting"] is False
    return ran


def test_a8_a_page_that_was_loaded_again_is_asked_again(client: Client) -> None:
    ran = reloaded(client, GATES)
    assert ran.error["ename"] == "GateRejected" and "from the new page" in ran.displays[0]
    request = client.send(GATE, allow_stdin=True)  # the next cell asks who has sent it
    answer(client.channels, asked(client.channels), "approve")
    assert client.finish(request).text() == "deployed\n"


def test_a8_a_prose_cell_in_python_asks_a_page_again(python: Client) -> None:
    ran = reloaded(python, f"%%prose\n{GATES}")
    assert ran.error["ename"] == "GateRejected"


def test_a_prose_cell_in_python_asks_with_a_form(python: Client) -> None:
    request = python.send(f"%%prose\n{GATE}", allow_stdin=True)
    question = asked(python.channels)
    assert labels(question) == ["Approve", "Reject"]
    with another(python) as stranger:
        answer(stranger, question, "reject")
        assert control(stranger, "prose_question_request", {"key": "x"})["content"]["waiting"] is False
    answer(python.channels, question, "approve")
    assert python.finish(request).text() == "deployed\n"


# ---------------------------------------------------------------- what is kept


def test_who_decided_is_recorded_as_without_a_form(client: Client, tmp_path: Path) -> None:
    request = client.send(GATE, allow_stdin=True)
    answer(client.channels, asked(client.channels), "approve: fine")
    with suppress(Empty):
        client.finish(request)
    newest = max((client.directory / ".prose" / "runs").iterdir(), key=lambda run: run.stat().st_mtime_ns)
    kept = "".join(path.read_text() for path in sorted((newest / "gates").glob("*")) if path.is_file())
    assert '"approved"' in kept and '"user"' in kept and "fine" in kept and '"cell"' in kept


# ---------------------------------------------------------------- an input in the words of a model (A49)


@pytest.fixture(scope="module")
def words() -> Iterator[StubServer]:
    with StubServer() as stub:
        stub.script("words", json.dumps({"question": "Where shall it go?", "options": ["staging", "production"]}))
        yield stub


@pytest.fixture(scope="module")
def worded(words: StubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    directory = tmp_path_factory.mktemp("worded")
    table = 'provider = "stub:script-words"\n[cassette]\nmode = "off"\n[providers.stub]\nkind = "openai"\nkey = ""\n'
    (directory / "prose.toml").write_text(f'{table}base_url = "{words.openai_url}"\n')
    with kernel(directory, forks=True) as client:
        yield client


@pytest.mark.parametrize("typed", ["production", "my laptop"])
def test_a49_an_input_with_a_marker_has_buttons_and_takes_any_text(worded: Client, typed: str) -> None:
    request = worded.send("input where: **the environment to deploy to**", allow_stdin=True)
    question = asked(worded.channels)
    form = question["metadata"]["prose"]
    assert (form["kind"], form["text"]) == ("input", "Where shall it go?")
    assert [(b["label"], b["answer"], b["joins"]) for b in form["buttons"]] == [
        ("staging", "staging", None),
        ("production", "production", None),
        ("Submit", "", ""),
    ]
    assert question["content"]["prompt"] == "Where shall it go? (staging / production)"
    answer(worded.channels, question, typed)
    assert worded.finish(request).displays == [f"where: text = {typed}"]


def test_a49_an_interrupt_ends_the_wait_for_words(worded: Client, words: StubServer) -> None:
    assert worded.run("%provider stub:hang").status == "ok"
    request = worded.send("input where: **the environment to deploy to**", allow_stdin=True)
    words.wait_for(lambda stats: stats.in_flight == 1)
    worded.manager.interrupt_kernel()
    assert worded.finish(request).status == "error"
    words.wait_for(lambda stats: stats.in_flight == 0)
    assert worded.run("%provider human").status == "ok"
    ran = worded.run("input where: **the environment to deploy to**", answers=["x"], allow_stdin=True)
    assert ran.displays == ["where: text = x"]
