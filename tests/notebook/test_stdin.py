"""The person: questions on the stdin channel, and a clear error in non-interactive runs."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty

from jupyter_client.session import Session
from notebook.kernels import Client
from waiting import PATIENCE


def test_an_input_is_asked_and_bound(client: Client) -> None:
    ran = client.run('input topic: "About what?"\nexec "echo {topic}"', answers=["birds"], allow_stdin=True)
    assert ran.status == "ok"
    assert ran.text() == "birds\n"


def test_no_one_to_ask_is_an_error(client: Client) -> None:
    ran = client.run('input topic: "About what?"')
    assert ran.error["ename"] == "InputError"
    assert "topic" in ran.error["evalue"]


def test_an_input_given_beforehand_is_not_asked(client: Client) -> None:
    ran = client.run('%input given="two words"\ninput given: "About what?"\nexec "echo {given}"')
    assert ran.text() == "two words\n"


def test_a_gate_is_asked_until_the_answer_counts(client: Client) -> None:
    code = 'gate deploy:\n  prompt: "Deploy?"\nexec "echo deployed"'
    ran = client.run(code, answers=["", "perhaps", "yes: go on"], allow_stdin=True)
    assert ran.text() == "deployed\n"
    assert any("gate deploy: approved by user: go on" in text for text in ran.displays)


def test_a_rejected_gate_stops(client: Client) -> None:
    code = 'gate deploy:\n  prompt: "Deploy?"\nexec "echo deployed"'
    ran = client.run(code, answers=["no"], allow_stdin=True)
    assert ran.error["ename"] == "GateRejected" and ran.text() == ""
    ran = client.run(code)
    assert ran.error["ename"] == "GateRejected" and ran.text() == ""


def test_gates_are_decided_beforehand(client: Client) -> None:
    code = 'gate deploy:\n  prompt: "Deploy?"\nexec "echo deployed"'
    assert client.run("%gate approve deploy --comment fine").status == "ok"
    assert client.run(code).text() == "deployed\n"
    assert client.run(code).error["ename"] == "GateRejected"
    client.run("%gate reject deploy")
    assert client.run(code, allow_stdin=True).error["ename"] == "GateRejected"


def test_the_end_of_input_rejects_a_gate(client: Client) -> None:
    ran = client.run('gate g:\n  prompt: "Go?"', answers=["\x04"], allow_stdin=True)
    assert ran.error["ename"] == "GateRejected"


def test_a_gate_question_is_withdrawn_at_its_deadline(client: Client) -> None:
    ran = client.run('gate g:\n  prompt: "Go?"\n  timeout: "300ms"', answers=[None], allow_stdin=True)
    assert ran.error["ename"] == "GateRejected"
    assert "timed out" in ran.text()
    assert client.run('input n: "Name?"\nexec "echo {n}"', answers=["late"], allow_stdin=True).text() == "late\n"


def test_questions_of_branches_take_turns(client: Client) -> None:
    code = 'parallel:\n  do:\n    input a: "A?"\n  do:\n    input b: "B?"\nexec "echo {a} {b}"'
    ran = client.run(code, answers=["one", "two"], allow_stdin=True)
    assert ran.text().endswith("one two\n")


def test_completion_is_answered_while_a_question_waits(client: Client) -> None:
    request = client.send('input topic: "About what?"', allow_stdin=True)
    client.channels.get_stdin_msg(timeout=PATIENCE)
    assert "exec" in client.ask("complete_request", {"code": "ex", "cursor_pos": 2})["content"]["matches"]
    client.channels.input("x")
    assert client.finish(request).status == "ok"


def test_a_question_waits_for_the_connection_of_its_client(client: Client) -> None:
    """Each channel connects at its own speed, and a socket drops a message to a client that it does not know."""
    late = client.manager.client()
    late.session = Session(key=client.channels.session.key)  # its own identity
    late.start_channels(stdin=False, hb=False)
    try:
        request = late.execute('exec "echo ready"\ninput name: "Name?"\nexec "echo {name}"', allow_stdin=True)
        client.until(request, lambda message: message["content"].get("text") == "ready\n")
        for _ in range(3):  # the kernel has asked when it has answered these
            client.ask("complete_request", {"code": "ex", "cursor_pos": 2})
        assert late.get_stdin_msg(timeout=PATIENCE)["content"]["prompt"] == "Name? "
        late.input("Ada")
        client.until(request, lambda message: message["content"].get("text") == "Ada\n")
        assert late.get_shell_msg(timeout=PATIENCE)["content"]["status"] == "ok"
    finally:
        late.stop_channels()


def test_a7_an_input_counts_from_the_next_cell_on_when_the_run_has_long_started(client: Client) -> None:
    assert client.run('exec "true"').status == "ok"
    failed = client.run('input who: "Who?"')
    assert "%input who=VALUE" in failed.error["traceback"][-2]
    for name in ("Ada", "Grace"):
        assert client.run(f"%input who={name}").status == "ok"
        assert client.run('input who: "Who?"').displays == [f"who: text = {name}"]


def test_a16_a_question_is_asked_when_all_that_is_above_it_has_been_sent(client: Client) -> None:
    """IOPub and stdin are two sockets: by the time the question arrives, the text that belongs to it is there."""
    client.run("%provider human")
    request = client.send('exec "seq 1000"\nsession "Which of them is prime?"', allow_stdin=True)
    question = client.channels.get_stdin_msg(timeout=PATIENCE)
    shown = ""
    with suppress(Empty):
        while "Which of them is prime?" not in shown:
            message = client.channels.get_iopub_msg(timeout=PATIENCE)
            shown += message["content"].get("text", "")
            last = message
    assert "1000\n" in shown and "Which of them is prime?" in shown
    assert last["header"]["date"] <= question["header"]["date"]
    client.channels.input(":fail no")
    assert client.finish(request).status == "error"
    client.run("%provider auto")
