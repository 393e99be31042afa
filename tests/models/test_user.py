"""Inputs, and the single person for all questions (openprose.md 6.3)."""

from __future__ import annotations

import asyncio

import pytest
from models.people import LeavingPerson, ScriptedPerson

from prose_kernel.errors import NoPerson
from prose_kernel.runtime.asker import PersonUser, SerialAsker, serial
from prose_kernel.runtime.ports import Question


async def test_an_input_shows_its_prompt_as_written_and_takes_any_line() -> None:
    person = ScriptedPerson("  spaced  ", "", "last")
    user = PersonUser(person)
    assert await user.ask(Question("topic", "What **exactly**? {x}")) == "  spaced  "
    assert await user.ask(Question("note", "Optional:")) == ""
    assert await user.ask(Question("name", "")) == "last"
    assert person.transcript == ["? What **exactly**? {x}", "? Optional:", "? name: "]


async def test_an_input_without_a_person_is_an_error() -> None:
    with pytest.raises(NoPerson, match=r"^the run is non-interactive$"):
        await PersonUser(ScriptedPerson(available=False)).ask(Question("topic", "?"))
    with pytest.raises(NoPerson, match=r"^the person's input has ended$"):
        await PersonUser(ScriptedPerson()).ask(Question("topic", "?"))


async def test_a_person_who_leaves_counts_as_non_interactive() -> None:
    with pytest.raises(NoPerson, match=r"^the run is non-interactive$"):
        await PersonUser(LeavingPerson()).ask(Question("topic", "?"))


async def test_inputs_of_parallel_branches_are_asked_in_order() -> None:
    person = ScriptedPerson(*map(str, range(20)))
    user = PersonUser(person)
    answers = await asyncio.gather(*(user.ask(Question(f"n{n}", f"{n}?")) for n in range(20)))
    assert answers == [str(n) for n in range(20)]
    assert person.most_asking == 1


async def test_a_turn_keeps_a_conversation_together() -> None:
    person = ScriptedPerson(*"abcd")
    asker = serial(person)

    async def conversation(name: str) -> tuple[str, str]:
        async with asker.turn():
            asker.show(name)
            return await asker.ask(f"{name} 1"), await asker.ask(f"{name} 2")

    assert await asyncio.gather(conversation("x"), conversation("y")) == [("a", "b"), ("c", "d")]
    assert person.transcript == ["x", "? x 1", "? x 2", "y", "? y 1", "? y 2"]


async def test_turns_nest_and_tasks_started_inside_belong_to_them() -> None:
    asker = serial(ScriptedPerson("a", "b"))
    async with asker.turn():
        async with asker.turn():
            assert await asyncio.create_task(asker.ask("inside")) == "a"
        outside = asyncio.create_task(asker.ask("also inside"))
        assert await outside == "b"


async def test_a_task_that_outlives_its_turn_queues_like_others() -> None:
    person = ScriptedPerson("first", "second")
    asker = serial(person)
    go = asyncio.Event()

    async def later() -> str:
        await go.wait()
        return await asker.ask("later")

    async with asker.turn():
        leftover = asyncio.create_task(later())
        await asyncio.sleep(0)
    async with asker.turn():
        go.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await asker.ask("now") == "first"
    assert await leftover == "second"


async def test_two_askers_have_their_own_turns() -> None:
    one, two = serial(ScriptedPerson("a")), serial(ScriptedPerson("b", "c"))
    async with one.turn(), two.turn():
        assert (await one.ask("?"), await two.ask("?")) == ("a", "b")
        async with two.turn():
            assert await two.ask("?") == "c"


def test_wrapping_twice_keeps_the_turn() -> None:
    asker = serial(ScriptedPerson())
    assert serial(asker) is asker
    assert isinstance(asker, SerialAsker)
    assert asker.available
