"""Modules, exports, results and cells of VVM (docs/reference/vvm.md 9)."""

from __future__ import annotations

import pytest
from machine.fakes import World, lines
from machine.vvm_world import Vvm

from prose_kernel.errors import RunError
from prose_kernel.language.source import Source
from prose_kernel.language.vvm import compile_source
from prose_kernel.language.vvm.names import KnownNames
from prose_kernel.machine.vvm.machine import Machine
from prose_kernel.runtime.events import CellStarted, StatementDone
from prose_kernel.runtime.values import Value

# ---------------------------------------------------------------- exports and results (9.3, 9.4)


async def test_the_result_of_a_file_is_what_it_exports() -> None:
    w = Vvm()
    assert await w.run("export b\na = 1\nb = a + 1\nexport a\nexport b\n") == {"b": 2, "a": 1}
    assert list(w.vvm.outputs()) == ["b", "a"]
    assert await Vvm().run("a = 1\na\n") == {}


async def test_x5_functions_are_not_results() -> None:
    assert await Vvm().run("export f\nexport x\ndef f():\n  return 1\nx = f()\n") == {"x": 1}


async def test_x1_export_pack_captures_at_its_place() -> None:
    assert await Vvm().run("a = 1\nexport pack(a, b=a + 1)\na = 5\nexport c\nc = 3\n") == {"a": 1, "b": 2, "c": 3}


async def test_x4_an_export_that_was_never_bound_raises() -> None:
    w = Vvm()
    with pytest.raises(RunError) as raised:
        await w.run("if false:\n  x = 1\nexport x\n")
    assert (raised.value.code, raised.value.message) == ("R219", "export never assigned: x")
    assert raised.value.location is not None and raised.value.location.line == 3


# ---------------------------------------------------------------- imports (9.2, 9.3)


async def test_a_module_runs_once_before_its_importer() -> None:
    w = Vvm(
        modules={
            "lib/a.vvm": 'from "./b.vvm" import n\nexport twice\nexport m\nm = n + 1\ndef twice(x):\n  return x + n\n',
            "lib/b.vvm": "export n\nn = 10\n",
        }
    )
    text = 'from "./lib/a.vvm" import twice\nfrom "./lib/a.vvm" import m as eleven\nfrom "./lib/b.vvm" import n\n'
    text += "export r\nr = [twice(1), eleven, n]\n"
    assert await w.run(text) == {"r": [11, 11, 10]}
    assert await w.cell('from "./lib/b.vvm" import n as other', "other") == 10


async def test_x3_an_import_is_a_snapshot() -> None:
    w = Vvm(modules={"a.vvm": "export n\nexport get\nn = 1\ndef get():\n  return n\n"})
    text = 'from "./a.vvm" import n\nfrom "./a.vvm" import get\nn = 5\nexport r\nr = [n, get()]\n'
    assert await w.run(text) == {"r": [5, 1]}


async def test_names_of_the_importer_are_not_seen_in_a_module() -> None:
    w = Vvm(modules={"a.vvm": "export f\ndef f():\n  return hidden\n"})
    error = await w.fails('from "./a.vvm" import f', "hidden = 1", "f()")
    assert (error.code, error.message) == ("R201", "unbound name: hidden")
    assert error.location is not None and error.location.source == "a.vvm"
    assert error.call_stack == ("in function f, called at line 3 of cell",)


async def test_it_is_unit_in_every_module_and_functions_see_the_callers() -> None:
    w = Vvm(modules={"a.vvm": "export x\nexport f\nx = [it]\ndef f():\n  return it\n"})
    text = ('from "./a.vvm" import x', 'from "./a.vvm" import f', "with input 3:", "  y = f()", "[x, y]")
    assert await w.cell(*text) == [[None], 3]


async def test_a_raise_in_a_module_ends_the_program() -> None:
    w = Vvm(modules={"a.vvm": 'export x\nx = 1\nraise "no"\n'})
    error = await w.fails('from "./a.vvm" import x', "y = 1")
    assert error.message == "no" and not w.vvm.bindings()
    assert error.location is not None and (error.location.source, error.location.line) == ("a.vvm", 3)
    assert error.call_stack == ("in module a.vvm, reached by the import at line 1 of cell",)


async def test_a_missing_module() -> None:
    error = await Vvm().fails('from "./no.vvm" import x')
    assert (error.code, error.message) == ("V090", "Module not found: no.vvm")


async def test_paths_of_judgements_in_modules_are_unique() -> None:
    w = Vvm(modules={"a.vvm": "export x\nx = ?`c`(1)\n", "b.vvm": "export x\nx = ?`c`(1)\n"}, judge_says={"c": True})
    await w.cell('from "./a.vvm" import x', 'from "./b.vvm" import x as y', "?`c`(2)")
    assert [request.at for request in w.judge.requests] == ["c1/u0/1/j0", "c1/u1/1/j0", "c1/1/j0"]


# ---------------------------------------------------------------- cells (9.6)


async def test_x6_cells_are_one_growing_module() -> None:
    w = Vvm()
    await w.cell("x = 1", "def f(y):", "  return x + y")
    assert await w.cell("f(1)") == 2
    await w.cell("x = 10")
    assert await w.cell("f(1)") == 11
    await w.cell("def f(y, z):", "  return y")
    assert w.vvm.known() == KnownNames(frozenset({"x", "f"}), {"f": ("y", "z")}, {}, {})


async def test_the_value_of_a_cell() -> None:
    w = Vvm()
    assert await w.cell("export a", "a = 1") == {"a": 1}
    assert await w.cell("export b", "b = 2", "b + 1") == 3
    assert await w.cell("c = 1") is None
    assert w.vvm.outputs() == {"a": 1, "b": 2}
    assert [e.valued for e in w.of(CellStarted)] == ["assign", "sum", "assign"]
    assert [e.value for e in w.of(StatementDone)] == [3]


async def test_hoisting_is_per_cell() -> None:
    w = Vvm()
    assert (await w.fails("f()")).code == "R201"
    assert await w.cell("f()", "def f():", "  return 1") == 1


async def test_bindings_of_a_failed_cell_are_kept() -> None:
    w = Vvm()
    await w.fails("x = 1", "y = nowhere")
    assert await w.cell("x") == 1


async def test_bindings_and_definitions_can_be_inspected() -> None:
    w = Vvm()
    await w.cell("x = 1", "def f(a, b):", "  x = 2", "  return a", "g = f", "export x")
    infos = w.vvm.bindings()
    assert [(name, info.kind, info.statement) for name, info in infos.items()] == [
        ("x", "output", "x = 1"),
        ("g", "let", "g = f"),
    ]
    await w.cell('agent scribe(model="small", prompt="Be brief.")', "derived = scribe")
    definition, agent = w.vvm.definitions()
    assert (agent.kind, agent.name, agent.text) == (
        "agent",
        "scribe",
        'agent scribe(model="small", prompt="Be brief.")',
    )
    assert agent.facts == {"model": "small", "prompt": "Be brief."}
    assert (definition.kind, definition.name, dict(definition.facts)) == (
        "function",
        "f",
        {"parameters": "a, b", "statements": "2"},
    )
    assert definition.text.startswith("def f(a, b):")


# ---------------------------------------------------------------- two languages in one run (13)


class Both(World):
    """A run with cells in OpenProse and VVM."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.vvm = Machine.sharing(self.machine)

    async def prose(self, *text: str) -> Value:
        return await self.run(lines(*text), cell=True)

    async def cell(self, *text: str) -> Value:
        from machine.vvm_world import tree_of as vvm_tree

        source = Source(lines(*text), "cell")
        return await self.vvm.run(vvm_tree(source), source, cell=True)


async def test_a28_values_cross_as_data_and_text_verbatim() -> None:
    w = Both(commands_say={"echo": "text\n\n"}, sessions_say={"ask": "answer"})
    await w.prose('let a = exec "echo"', 'let b = session "ask"', "let c = [a, 1]", "let d = null", "let e = true")
    assert await w.cell("[a, b, c, d, e]") == ["text\n\n", "answer", ["text\n\n", 1], None, True]
    await w.cell("v = {k: [1, ()]}")
    assert await w.prose("let w = v") == {"k": [1, None]}


async def test_an_error_value_of_openprose_is_one_of_vvm() -> None:
    w = Both()
    await w.prose("let caught = null", "try:", '  throw "no"', "catch as e:", "  caught = e")
    found = await w.cell("match caught:", "  case error(x):", "    y = x.error.message", "y")
    assert found == "no"


async def test_functions_are_called_across() -> None:
    w = Both()
    await w.prose("block plus(a, b):", "  return a + b")
    assert await w.cell("def twice(x):", "  return plus(x, x)", "[twice(4), map([1], twice)]") == [8, [2]]
    await w.prose("let r = do twice(5)")
    assert await w.cell("r") == 10
    with pytest.raises(RunError, match=r"^bad arguments to plus: a function of another language takes no keywords$"):
        await w.cell("plus(1, b=2)")


async def test_the_last_binding_of_a_name_wins() -> None:
    w = Both()
    await w.cell("x = 1", "def f(n):", "  return [x, n]")
    await w.prose("x = 2", "let r = do f(x)")
    assert await w.cell("[x, r]") == [2, [2, 2]]
    await w.cell("x = 3")
    assert await w.prose("let y = x") == 3
    assert "x" in w.vvm.bindings()


async def test_names_that_vvm_cannot_spell_are_not_seen() -> None:
    w = Both()
    await w.prose("let two-words = 1", "let match = 2", "let fine = 3")
    assert w.vvm.known().variables == {"fine"}


async def test_an_error_is_caught_in_the_other_language() -> None:
    w = Both()
    await w.prose("block bad(x):", '  throw "from prose"')
    assert await w.cell("try:", "  bad(1)", "except as e:", "  pass", "e") == {
        "error": {"kind": "thrown", "message": "from prose"}
    }
    await w.cell("def worse(x):", '  raise "from vvm"')
    await w.prose("try:", "  do worse(1)", "catch as e:", "  let said = e.message", "let after = 1")
    assert await w.cell("[said, after]") == ["from vvm", 1]


async def test_circular_calls_across_languages_end() -> None:
    w = Both()
    await w.cell("def ping(n):", "  return n")
    await w.prose("block pong(n):", "  return do ping(n)")
    with pytest.raises(RunError, match="recursion limit"):
        await w.cell("def ping(n):", "  return pong(n)", "ping(1)")
    assert await w.cell("1 + 1") == 2


async def test_a_call_from_another_language_continues_its_line_of_control() -> None:
    w = Both(judge_says={"c": True})
    await w.cell("def f(x):", "  return ?`c`(x)")
    await w.prose("parallel for x in [1, 2]:", "  do f(x)")
    assert sorted(request.at for request in w.judge.requests) == ["c2/1/i0/j0", "c2/1/i1/j0"]


async def test_a_block_gets_as_many_arguments_as_it_wants() -> None:
    w = Both()
    await w.prose("block add(x, y):", "  return x + y")
    assert await w.cell("add(1, 2)") == 3
    for call in ("add(1)", "add(1, 2, 3)", "add(x=1, y=2)"):
        with pytest.raises(RunError, match="bad arguments to add") as seen:
            await w.cell(call)
        assert seen.value.code == "R208"


async def test_a_name_that_vvm_cannot_spell_is_hidden_and_named() -> None:
    w = Both()
    await w.prose('let release-notes = "x"')
    assert w.vvm.known().hidden == {"release-notes"}
    (found,) = compile_source(Source("release - notes\n", "cell"), known=w.vvm.known(), cell=True).diagnostics[:1]
    assert (found.code, found.hint) == (
        "V701",
        "VVM cannot spell `release-notes`: bind it to a name without `-` where it comes from",
    )
