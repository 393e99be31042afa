"""Two languages in one run (docs/reference/vvm.md 13): names, values and callables are shared."""

from __future__ import annotations

import pytest
from machine.fakes import World, lines
from runtime.tally import TallyMachine, compile_text

from prose_kernel.errors import RunError
from prose_kernel.language.source import Source
from prose_kernel.runtime.events import Bound, CellStarted, RunStarted
from prose_kernel.runtime.values import Value, plain


class Both(World):
    """A run with cells in OpenProse and Tally."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tally = TallyMachine.sharing(self.machine)

    async def prose(self, *text: str) -> Value:
        return await self.run(lines(*text), cell=True)

    async def count(self, *text: str) -> Value:
        source = Source("\n".join(text), "cell")
        return await self.tally.run(compile_text(source).program, source, cell=True)


async def test_a_value_means_the_same_in_both() -> None:
    w = Both()
    await w.prose("let a = 20")
    assert await w.count("let b = a") == 20
    await w.prose("let c = b + 1")
    assert await w.count("let b = c") == 21
    await w.prose("let d = b")
    assert plain(w.machine.bindings()["d"].value) == 21


async def test_the_last_binding_of_a_name_wins() -> None:
    w = Both()
    await w.prose("const a = 1")
    await w.count("let a = 2")
    await w.prose("let b = a", "a = 3")
    assert await w.count("let c = a") == 3


async def test_bindings_of_branches_are_seen_after_the_join() -> None:
    w = Both()
    await w.prose("parallel:", '  x = session "one"', "  do:", "    let y = 5")
    assert await w.count("let z = y") == 5


async def test_a_function_is_called_like_a_block() -> None:
    w = Both()
    await w.count("let n = 30", "def more(x) = x + n")
    await w.prose("let r = do more(4)")
    assert w.machine.bindings()["r"].value == 34
    await w.count("let n = 1")
    await w.prose("let r = do more(4)")
    assert w.machine.bindings()["r"].value == 5


async def test_a_block_is_called_like_a_function_and_sees_the_names_of_its_language() -> None:
    w = Both()
    await w.prose("let total = 1", "block add(x):", "  total = total + x", "  return total")
    assert await w.count("let r = add(total)") == 2
    assert await w.count("let s = total") == 2


async def test_a_definition_replaces_one_of_the_other_language() -> None:
    w = Both()
    await w.count("let one = 1", "def f(x) = x + one")
    await w.prose("block f(x):", "  return 7", "let r = do f(1)")
    assert w.machine.bindings()["r"].value == 7
    assert await w.count("let q = f(one)") == 7
    await w.count("def f(x) = x + one")
    await w.prose("let r = do f(1)")
    assert w.machine.bindings()["r"].value == 2


async def test_an_error_of_a_function_is_caught_where_it_was_called() -> None:
    w = Both()
    await w.count("def wrong(x) = x + nowhere")
    await w.prose("try:", "  do wrong(1)", "catch as e:", "  let said = e.message", "let after = 1")
    assert w.machine.bindings()["said"].value == "'nowhere' is not defined here"


async def test_an_error_of_a_block_ends_only_the_cell_that_called_it() -> None:
    w = Both()
    await w.prose("block f(x):", '  throw "no"')
    with pytest.raises(RunError, match=r"^no$"):
        await w.count("let one = 1", "let r = f(one)")
    await w.prose("let go_on = one")
    assert w.machine.bindings()["go_on"].value == 1


async def test_cells_and_statements_are_numbered_as_one_run() -> None:
    w = Both()
    await w.prose("let a = 1", "let b = 2")
    await w.count("let c = 3")
    await w.prose("let d = 4")
    assert [e.index for e in w.events if isinstance(e, CellStarted)] == [1, 2, 3]
    assert len([e for e in w.events if isinstance(e, RunStarted)]) == 1
    assert [e.place.ordinal for e in w.events if isinstance(e, Bound)] == [1, 2, 3, 4]


async def test_bindings_made_by_a_block_for_another_language_are_stored() -> None:
    w = Both()
    await w.prose("let total = 1", "block add(x):", "  total = total + x", "  return total")
    await w.count("let r = add(total)")
    assert w.store.text("total") == "2"
    assert w.store.text("r") == "2"
