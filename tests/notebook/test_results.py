"""The end of a cell's output: every value once, the last one as the result."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from notebook.recording import Recording
from notebook.test_cells import Person, fine, wrong

from prose_kernel.notebook.cells import Cells

Outputs = list[tuple[str, str]]


@pytest.fixture
async def cells(tmp_path: Path) -> AsyncIterator[Cells]:
    made = Cells(tmp_path, Person())
    made.show_warnings = False
    yield made
    await made.close()


def outputs(recording: Recording) -> Outputs:
    kinds = [call[1] if call[0] == "stream" else call[0] for call in recording.calls]
    found: Outputs = []
    for kind, text in zip(kinds, recording.texts, strict=True):
        if found and kind in ("stdout", "stderr") and found[-1][0] == kind:
            found[-1] = kind, found[-1][1] + text
        else:
            found.append((kind, text))
    return found


PARALLEL = "parallel, 2 branches: 2 done\n  ✓ {}: one\n  ✓ {}: two"


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        pytest.param(
            "let a = 1\nlet b = [1, 2]", [("display", "a: number = 1"), ("result", "b: array = [1, 2]")], id="let"
        ),
        pytest.param(
            "let a = 1\nlet b = 2\nlet c = 3", [("result", "a: number = 1\nb: number = 2\nc: number = 3")], id="lets"
        ),
        pytest.param(
            "let a = 1\na = 2\nlet c = 3",
            [("result", "a: number, bound 2 times = 2\nc: number = 3")],
            id="assignment and let",
        ),
        pytest.param("let a = 1\na = 2", [("display", "a: number, bound 2 times = 2")], id="assignment"),
        pytest.param("%input who=Ada\ninput who: ~Who?~", [("result", "who: text = Ada")], id="input"),
        pytest.param("output 5", [("result", "result: number = 5")], id="anonymous output"),
        pytest.param(
            "output { a: 1, b: [2] }",
            [("display", "a: number = 1"), ("result", "b: array = [2]")],
            id="anonymous outputs",
        ),
        pytest.param(
            "block f():\n  output one = 1\n  output two = 2\nlet { one, two } = do f()",
            [("display", "one: number = 1"), ("result", "two: number = 2")],
            id="destructuring",
        ),
        pytest.param("if 1 < 2:\n  let next = ~x~", [("result", "next: text = x")], id="if"),
        pytest.param(
            "if 1 < 2:\n  let next = ~x~\n  exec ~echo on~",
            [("display", "next: text = x"), ("stdout", "on\n")],
            id="if that ends in a command",
        ),
        pytest.param("let s = ~a~\nchoice **the s**:\n  option ~a~:\n    let did = 1", None, id="choice"),
        pytest.param("do:\n  let inner = 1", [("result", "inner: number = 1")], id="do"),
        pytest.param("do:\n  exec ~echo a~\n  exec ~true~", [("stdout", "a\n")], id="do of commands"),
        pytest.param(
            "try:\n  exec ~exit 1~\ncatch as e:\n  exec ~echo {e.exit_code}~\nfinally:\n  exec ~echo end~",
            [("stdout", "1\nend\n")],
            id="try",
        ),
        pytest.param(
            "let n = 1\nloop until n > 9 (max: 9):\n  n = n + n",
            [("display", "n: number, bound 5 times = 16")],
            id="loop",
        ),
        pytest.param(
            "loop until 1 > 2 (max: 2):\n  let said = exec ~printf ''~",
            [("display", "said: text from exec, empty, bound 2 times")],
            id="loop without result",
        ),
        pytest.param("for c in [~a~, ~b~]:\n  exec ~echo {c}~", [("stdout", "a\nb\n")], id="for"),
        pytest.param("repeat 2:\n  exec ~echo a~", [("stdout", "a\na\n")], id="repeat"),
        pytest.param(
            "parallel:\n  a = exec ~echo one~\n  b = exec ~echo two~",
            [("display", PARALLEL.format("a", "b"))],
            id="parallel with names",
        ),
        pytest.param(
            "parallel:\n  exec ~echo one~\n  exec ~echo two~",
            [("display", PARALLEL.format("_1", "_2")), ("stdout", "[_1] one\n[_2] two\n")],
            id="parallel of bare commands",
        ),
        pytest.param(
            "let both = parallel:\n  exec ~cd /; echo one~\n  exec ~echo two~",
            [("display", PARALLEL.format("_1", "_2")), ("result", 'both: array = ["one", "two"]')],
            id="parallel that is bound",
        ),
        pytest.param(
            "let both = parallel for w in [~one~, ~two~]:\n  exec ~cd / && echo {w}~",
            [("display", PARALLEL.format("one", "two")), ("result", 'both: array = ["one", "two"]')],
            id="parallel for that is bound",
        ),
        pytest.param(
            "parallel for w in [~one~, ~two~]:\n  exec ~echo {w}~",
            [("display", PARALLEL.format("one", "two")), ("stdout", "[one] one\n[two] two\n")],
            id="parallel for",
        ),
        pytest.param("[~a~, ~b~] | map:\n  exec ~echo {item}; echo e >&2~", [("result", '["a", "b"]')], id="map"),
        pytest.param(
            "[~a~, ~b~] | map:\n  exec ~echo at {item}~\n  item",
            [("stdout", "at a\nat b\n"), ("result", '["a", "b"]')],
            id="a bare command in a pipeline",
        ),
        pytest.param(
            "[~one~, ~two~] | pmap:\n  exec ~echo {item}~",
            [("display", PARALLEL.format("one", "two")), ("result", '["one", "two"]')],
            id="pmap",
        ),
        pytest.param(
            "let n = [1, 2] | reduce(a, b):\n  exec ~echo {b}~", [("result", "n: text from exec = 2")], id="reduce"
        ),
        pytest.param("exec ~echo one~ -> exec ~echo two~", [("stdout", "one\ntwo\n")], id="arrow"),
        pytest.param(
            "let l = exec ~echo one~ -> exec ~echo two~",
            [("stdout", "one\n"), ("result", "l: text from exec = two")],
            id="arrow that is bound",
        ),
        pytest.param("block f():\n  exec ~echo hi~\ndo f()", [("stdout", "hi\n")], id="block that prints"),
        pytest.param(
            "block f():\n  exec ~echo hi~\nlet x = do f()", [("result", "x: text from exec = hi")], id="bound call"
        ),
        pytest.param("block f():\n  output 1 + 1\ndo f()", [("result", "2")], id="block with a value"),
        pytest.param("block f():\n  output exec ~echo hi~\ndo f()", [("result", "hi")], id="block that gives a text"),
        pytest.param(
            "block f():\n  try:\n    exec ~echo body~\n  finally:\n    exec ~echo after~\ndo f()",
            [("stdout", "body\nafter\n")],
            id="block whose value was printed before its end",
        ),
        pytest.param("let a = 1\nassert a == 1", [("result", "a: number = 1")], id="assert"),
    ],
)
async def test_nothing_is_shown_twice(cells: Cells, code: str, shown: Outputs | None) -> None:
    found = outputs(await fine(cells, code.replace("~", '"')))
    if shown is None:
        shown = [("display", "s: text = a"), *found[1:-1], ("result", "did: number = 1")]
    assert found == shown


async def test_a_session_in_a_body_is_shown_once(cells: Cells, tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text('sessions:\n  "poem": "Roses"\n')
    await fine(cells, "%provider scripted script.yaml")
    found = await fine(cells, 'try:\n  session "Write a poem"\nfinally:\n  exec "echo done"')
    assert outputs(found) == [("display", "session · scripted\nRoses"), ("stdout", "done\n")]
    block = 'block write():\n  try:\n    session "Write a poem"\n  finally:\n    exec "echo done"\n'
    assert outputs(await fine(cells, block + "do write()")) == [
        ("display", "write · scripted\nRoses"),
        ("stdout", "done\n"),
    ]


async def test_the_output_of_a_caught_failure_of_a_consumed_command_is_not_shown(cells: Cells) -> None:
    code = 'try:\n  let x = exec "echo no >&2; exit 1"\ncatch as e:\n  exec "echo {e.exit_code}"'
    assert outputs(await fine(cells, code)) == [("stdout", "1\n")]


async def test_stderr_that_was_shown_is_not_in_the_error_again(cells: Cells) -> None:
    for code, shown in (
        ('exec "echo broken >&2; exit 4"', True),
        ('parallel:\n  exec "echo broken >&2; exit 4"', True),
        ('let x = exec "echo broken >&2; exit 4"', False),
        ('try:\n  exec "echo other >&2; exit 3"\ncatch:\n  let x = exec "echo broken >&2; exit 4"', False),
    ):
        name, _, traceback = await wrong(cells, code)
        assert name == "ExecError" and "exit code 4" in traceback
        assert ("broken" in traceback.replace("echo broken", "")) is not shown, code


async def test_stderr_of_which_only_the_beginning_was_shown_is_in_the_error(cells: Cells) -> None:
    cells.overrides["display_cap"] = 3
    *_, traceback = await wrong(cells, 'exec "echo broken >&2; exit 4"')
    assert "broken" in traceback.replace("echo broken", "")


async def test_a_table_keeps_what_varies_in_its_metadata(cells: Cells) -> None:
    recording = await fine(cells, 'let a = exec "echo 1"\nlet b = 2\nlet c = 3')
    (call,) = recording.calls
    assert call[0] == "result" and set(call[1].metadata["prose"]) == {"a"}
    assert "duration" in call[1].metadata["prose"]["a"]


async def test_commands_of_imported_programs_do_not_move_the_notebook(cells: Cells, tmp_path: Path) -> None:
    (tmp_path / "away.prose").write_text('exec "cd / && echo away"\noutput done = true\n')
    found = outputs(await fine(cells, 'use "./away.prose"\naway()'))
    assert found == [("stdout", "away\n"), ("result", '{"done": true}')]


# ---------------------------------------------------------------- warnings


async def test_warnings_of_one_code_are_one_line(cells: Cells) -> None:
    cells.show_warnings = True
    code = 'let a = "x"\nlet b = "y"\nexec "echo {a}"\nexec "echo {b}"\nexec "echo {a}"\nlet c = 1\nif a == "x":\n  let c = 2'
    warnings = (await fine(cells, code)).calls[0][1].data
    assert warnings["text/plain"].split("\n") == [
        "Warning at lines 3, 4 and 5: the shell reads the values of `a`, `b` as part of the command "
        "(pass them with `env:` or `stdin:`) [W051]",
        "Warning at line 8: `c` is already declared further out; this acts as an assignment (write `c = ...`) [W136]",
    ]
    assert "<code>a</code>" in warnings["text/html"]


async def test_warnings_of_a_vvm_module_name_its_file(cells: Cells, tmp_path: Path) -> None:
    cells.show_warnings = True
    (tmp_path / "lib.vvm").write_text("unread = 1\nx = 1\nexport x\n")
    warnings = (await fine(cells, '%%vvm\nfrom "./lib.vvm" import x\n')).calls[0][1].data
    assert warnings["text/plain"] == (
        "Warning at line 1 of lib.vvm: `unread` is assigned but never read "
        "(read or export it, or call it `_unread` if that is on purpose) [V530]"
    )


async def test_a_warning_lists_ten_names_and_counts_the_others(cells: Cells) -> None:
    cells.show_warnings = True
    code = "".join(f'let v{n} = "{n}"\n' for n in range(14)) + "".join(f'exec "echo {{v{n}}}"\n' for n in range(14))
    (line,) = (await fine(cells, code)).texts[0].split("\n")
    assert (
        line.startswith("Warning at lines 15, 16, 17")
        and "and 4 more: the shell reads the values of `v0`, `v1`" in line
    )
