"""The message of an agent call and the meaning of its reply (docs/reference/vvm.md 6.5, 7.3)."""

from __future__ import annotations

from typing import Any

import pytest
from models.people import ScriptedPerson

from prose_kernel.access.session_permissions import Policy
from prose_kernel.errors import ProviderError, SessionCancelled
from prose_kernel.models.providers.human import HumanSessions
from prose_kernel.models.session_prompt import RULE, answered, assemble, in_message
from prose_kernel.runtime.ports import AnswerFile, Given, SessionRequest

RUN = ".vvm/runs/20260101-000000-9c0d1e/bindings"
TARGET = AnswerFile("b000002", f"{RUN}/b000002.md", "")


def call(task: str = "Do it.", **more: Any) -> SessionRequest:
    return SessionRequest("call", task, "c1/1/s0", agent="scribe", **more)


def test_a_task_without_context_is_the_whole_message() -> None:
    assert assemble(call("  as written\n ", program="x.vvm", position=3, finished=("a",))).text == "  as written\n "


def test_the_input_follows_the_task_unchanged() -> None:
    assert assemble(call(given=Given("line 1\nline 2\n"))).text == "Do it.\n\nInput:\n---\nline 1\nline 2\n\n---"
    assert assemble(call(given=Given(""))).text == "Do it.\n\nInput:\n---\n\n---"
    assert "Input:" not in assemble(call()).text


def test_a_full_message_has_the_order_of_the_reference() -> None:
    request = call(
        system="Be brief.",
        prelude="## Memory Context\n---",
        given=Given('{"ref": "x"}', (f"{RUN}/b000001.md",), RUN),
        target=TARGET,
    )
    assembled = assemble(request)
    assert [part.section for part in assembled.parts] == ["system", "memory", "task", "input", "references", "output"]
    assert assembled.text == (
        "System: Be brief.\n\n## Memory Context\n---\n\nDo it.\n\n"
        'Input:\n---\n{"ref": "x"}\n---\n\n'
        "## Ref Reading Protocol\n\n"
        "Your input holds ref values: objects whose `ref` is the path of a file with the full content.\n"
        "- `summary` is a bounded preview; it is often enough\n"
        "- Read the file at the path if you need the full content\n"
        f"- You may read {RUN}/**\n"
        "- Cite by file name when you refer to the content, for example: per b000001.md\n\n"
        f"## Binding Contract\n\nWrite your complete output to:\n  {RUN}/b000002.md\n\n"
        "Then answer with only this confirmation:\n\n"
        f"  Binding written: b000002\n  Path: {RUN}/b000002.md\n"
        "  Summary: <1 to 3 sentences describing what you produced>\n\n"
        "All substantive output goes into the file. A vvm-memory block, if you give one, comes after the confirmation."
    )


def test_a42_constant_parts_come_first_and_no_file_is_requested() -> None:
    request = call(system="Be brief.", prelude="## Memory Context", given=Given("{}", ("a.md",)), target=TARGET)
    spoken = in_message(request, reads=True)
    assert [part.section for part in spoken.parts] == ["system", "rules", "context", "memory", "task"]
    assert spoken.section("system", "rules") == f"Be brief.\n\n{RULE}"
    assert spoken.section("context") == "===== input\n{}\n===== end of input"
    assert spoken.without("system", "rules", "context").text == "## Memory Context\n\nDo it."


# ---------------------------------------------------------------- replies

CONFIRMATION = f"Binding written: b000002\nPath: {RUN}/b000002.md\nSummary: Done."


@pytest.mark.parametrize(
    ("target", "writes", "reply", "text", "stored_reply"),
    [
        (None, True, "answer", "answer", None),
        (None, False, CONFIRMATION, CONFIRMATION, None),  # without a file to write it is an ordinary answer
        (TARGET, False, "answer", "answer", None),
        (TARGET, True, "answer", None, "answer"),
        (TARGET, True, CONFIRMATION, None, CONFIRMATION),
        (TARGET, False, CONFIRMATION, None, CONFIRMATION),
    ],
)
def test_the_verdict_of_a_reply(
    target: AnswerFile | None, writes: bool, reply: str, text: str | None, stored_reply: str | None
) -> None:
    result = answered(reply, provider="p", origin="model", request=call(target=target), writes=writes)
    assert (result.text, result.reply) == (text, stored_reply)


# ---------------------------------------------------------------- people


async def ask(person: ScriptedPerson, request: SessionRequest) -> Any:
    return await HumanSessions(person).run(request, lambda _: None)


async def test_a_person_sees_memory_input_and_task_and_answers() -> None:
    person = ScriptedPerson("done")
    request = call(prelude="## Memory Context\nnotes\n---", given=Given("the input"), target=TARGET)
    assert (await ask(person, request)).text == "done"
    shown = person.transcript[0]
    assert shown.index("notes") < shown.index("the input") < shown.index("Do it.")
    assert shown.endswith("Do it.") and "Binding Contract" not in shown


async def test_skip_cancels_a_call_and_fail_fails_it() -> None:
    with pytest.raises(SessionCancelled, match="skipped by the person who answered"):
        await ask(ScriptedPerson(":skip"), call())
    with pytest.raises(ProviderError, match="no time"):
        await ask(ScriptedPerson(":fail no time"), call())


# ---------------------------------------------------------------- permissions


@pytest.mark.parametrize(
    "place", [".vvm/runs/x/state.md", ".vvm/memory/k/digest.md", "sub/.vvm/runs/x/bindings/b000001.md"]
)
def test_no_rule_lets_a_session_write_files_of_the_runtime(place: str) -> None:
    policy = Policy.of({"write": "allow", "read": "allow"}, {}, "/space")
    assert policy.decide("write", f"/space/{place}").answer == "deny"
    assert policy.decide("read", f"/space/{place}").answer == "allow"
