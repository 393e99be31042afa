"""The same cells through the kernel and through `%%prose`: the same outputs, byte for byte."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpec
from notebook.kernels import Client, Ran, kernel, specification
from waiting import gone

CELLS = {
    "blank": "\n\n",
    "comment": "# nothing",
    "stream": 'exec "echo one; echo two"',
    "both streams": 'exec "echo out"\nexec "echo err >&2"\nexec "echo out again"',
    "colours": r'''exec """printf '\\033[31mred\\033[0m\\033[2J\\n'"""''',
    "number": "let n = 40 + 2",
    "text": 'let t = "some <b>text</b>"',
    "array": 'let a = ["x", 1, true, null]',
    "object": 'let o = {name: "x", list: [1, 2]}',
    "bound exec": 'let rev = exec "echo abc; echo careful >&2"',
    "failing exec, continued": 'exec "echo no >&2; exit 3"\n  on-fail: "continue"',
    "failing exec, ignored": 'let x = exec "echo out; exit 3"\n  on-fail: "ignore"',
    "failing exec": 'exec "echo no >&2; exit 3"',
    "time limit": 'exec "sleep 30"\n  timeout: "100ms"\n  on-fail: "continue"',
    "truncation": 'let many = exec "seq 100000"',
    "flood": 'exec "seq 50000"',
    "several lets": "let a = 1\nlet b = 2\nlet c = 3",
    "loop": 'repeat 5 as i:\n  let last = exec "echo {i}"',
    "loop of streams": 'for x in ["a", "b"]:\n  exec "echo {x}"',
    "parallel": 'parallel:\n  a = exec "sleep 0.1; echo slow"\n  exec "echo fast"',
    "parallel for": 'parallel for i in [1, 2, 3]:\n  exec "echo {i}"',
    "parallel failure": 'parallel:\n  a = exec "echo fine"\n  exec "sleep 0.2; exit 4"',
    "condition by rule": 'let result = exec "true"\nif **result succeeded**:\n  let verdict = "good"',
    "condition nobody can answer": 'if **the weather is nice**:\n  exec "true"',
    "block": 'block greet(name):\n  exec "echo hello {name}"\ndo greet("you")',
    "error in a block": 'block fall():\n  throw "fell"\ndo fall()',
    "caught": 'try:\n  throw "no"\ncatch as e:\n  let message = "{e}"',
    "broken": "let = 3\nsession: nobody\nlet q = undefined_name",
    "warning": 'let greeting = "hi"\nexec "echo {greeting}"',
    "session without provider": 'session "Write something"',
    "input without person": 'input topic: "What?"',
    "gate without person": 'gate g:\n  prompt: "Go?"',
    "gate approved": '%gate approve g2\ngate g2:\n  prompt: "Go?"\nexec "echo gone"',
    "bindings": 'let a = 1\nlet b = exec "echo hi"\n%bindings',
    "binding": 'let b = exec "echo hi; exit 2"\n  on-fail: "continue"\n%binding b',
    "agents and blocks": 'agent w:\n  model: opus\n  prompt: "Write"\nblock f(x):\n  return x\n%agents\n%blocks',
    "unknown magic": "%bindigns",
    "magic misuse": "%gate perhaps g",
    "help": "%help",
    "directory": 'exec "mkdir -p sub; cd sub"\n%cd',
    "pipeline": 'let sizes = ["a", "bb"] | map:\n  exec "echo {item}"',
    "hostile": r'''let x = exec """printf '<script>alert(1)</script>\\000'"""''',
    "last value of if": 'if true:\n  exec "echo shown"',
}


def python_kernel() -> KernelSpec:
    return specification("ipykernel_launcher", "signal")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with kernel(tmp_path_factory.mktemp("python"), spec=python_kernel(), forks=True) as client:
        assert client.run("%load_ext prose_kernel").status == "ok"
        yield client


EXPLAIN = re.compile("more: %(?:prose )?explain(?: vvm| openprose)?")
OF_PYTHON = re.compile("(?<=%)prose (?=help)")
"""Where a hint names a line magic, what a Python notebook needs before its name."""
"""How the last line of an error begins: it differs from front end to front end."""


def shown(ran: Ran) -> list[Any]:
    """The outputs as a notebook file would hold them, without what varies (metadata, counts)."""
    saved: list[Any] = []
    for message in ran.outputs:
        content = message["content"]
        if message["msg_type"] == "stream":
            if saved and saved[-1][:2] == ["stream", content["name"]]:
                saved[-1][2] += content["text"]
            else:
                saved.append(["stream", content["name"], content["text"]])
        elif message["msg_type"] == "error":
            trace = [OF_PYTHON.sub("", EXPLAIN.sub("more: %explain", line)) for line in content["traceback"]]
            saved.append(["error", content["ename"], content["evalue"], trace])
        else:
            saved.append([message["msg_type"], content["data"], sorted(content["metadata"].get("prose", {}))])
    return saved


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_shows_the_same(client: Client, python: Client, name: str) -> None:
    python.run("%prose reset")
    code = CELLS[name]
    ours = client.run(f"\n{code}")  # lines are counted from that of the magic
    theirs = python.run(f"%%prose\n{code}")
    assert shown(theirs) == shown(ours)
    assert theirs.status == ours.status


def test_an_error_ends_with_what_to_type_to_read_about_it(client: Client, python: Client) -> None:
    for code, program in (("E004", "exec ls"), ("E203", 'exec "exit 3"')):
        assert client.run(program).error["traceback"][-1] == f"\x1b[2mmore: %explain {code}\x1b[0m"
        assert python.run(f"%%prose\n{program}").error["traceback"][-1] == f"\x1b[2mmore: %prose explain {code}\x1b[0m"
        assert shown(python.run(f"%prose explain {code}")) == shown(client.run(f"%explain {code}"))
    assert "%" not in client.run("%nonsense").error["traceback"][-1].removeprefix("\x1b[2mhint: %help")


@pytest.mark.parametrize(("program", "code"), [("x = 'text'", "V001"), ("len(nothing)", "R201")])
def test_an_error_of_the_other_language_has_its_own_code(
    program: str, code: str, client: Client, python: Client
) -> None:
    cell = f"%%vvm\n{program}"
    assert client.run(cell).error["traceback"][-1] == f"\x1b[2mmore: %explain {code}\x1b[0m"
    assert python.run(cell).error["traceback"][-1] == f"\x1b[2mmore: %prose explain {code}\x1b[0m"
    assert f"#### {code}: " in str(shown(client.run(f"%explain {code}")))
    assert shown(client.run(f"%%vvm\n%explain {code}")) == shown(client.run(f"%explain {code}"))


@pytest.mark.parametrize("magic", ["bindings", "agents", "blocks", "help", "help exec", "state", "cd", "nonsense"])
def test_line_magics_show_the_same(client: Client, python: Client, magic: str) -> None:
    python.run("%prose reset")
    assert shown(python.run(f"%prose {magic}")) == shown(client.run(f"%{magic}"))


# ---------------------------------------------------------------- what only Python has


def test_values_go_in_and_come_out(python: Client) -> None:
    python.run("%prose reset")
    python.run("topic = 'bi\"rds {x}\\n\\\\'\nnumbers = [1, 2.5, True, None, {'a': 'b'}]")
    ran = python.run("%%prose --in topic numbers --out both listing\nlet both = topic\nlet listing = numbers")
    assert ran.status == "ok", ran.content
    assert python.run("assert both == topic and listing == numbers, (both, listing)").status == "ok"
    assert python.run("assert prose['both'] == topic and 'listing' in prose and len(prose) == 4").status == "ok"


def test_output_of_a_command_comes_out_verbatim(python: Client) -> None:
    python.run('%%prose\nlet x = exec "echo hi"')
    assert python.run("assert prose['x'] == 'hi\\n'").status == "ok"


def test_a_name_that_is_not_bound_lists_those_that_are(python: Client) -> None:
    python.run("%prose reset")
    assert python.run("prose['nope']").error["evalue"] == "there is no binding 'nope': nothing is bound yet"
    python.run("%%prose\nlet plan = 1\nlet names = 2")
    error = python.run("prose['nope']").error
    assert (error["ename"], error["evalue"]) == ("NotBound", "there is no binding 'nope'; bound are plan, names")
    assert python.run("try:\n    prose['nope']\nexcept KeyError:\n    pass").status == "ok"


def test_assigning_binds_a_value(python: Client) -> None:
    assert python.run("prose['b'] = {'k': [1, 'x']}; prose['b2'] = prose['b']['k']").status == "ok"
    assert python.run('%prose output c = "{b.k[1]} {b2[0]}"').displays == ["c: text = x 1"]
    for statement, says in (
        ("prose['x'] = object()", "prose x: a value of type object has no counterpart in Prose"),
        ("prose['not a name'] = 1", "'not a name' cannot be the name of a binding"),
    ):
        error = python.run(statement).error
        assert error["ename"] == "TypeError" and error["evalue"].startswith(says), error


@pytest.mark.parametrize(
    ("line", "shows"),
    [
        ("%prose let x = 1", ["x: number = 1"]),
        ('%prose let y = "{x}"', ["y: text = 7"]),
        ("%prose bindings", ["name"]),
        ("%prose %cd", ["."]),
    ],
)
def test_a_line_is_a_statement_or_a_magic(python: Client, line: str, shows: list[str]) -> None:
    python.run("%prose reset")
    python.run("x = 'of Python'")  # braces are the program's, not IPython's
    python.run("%prose let x = 7")
    assert [text.split("  ")[0] for text in python.run(line).displays] == shows


def test_a_command_on_a_line_is_a_statement_or_the_magic(python: Client) -> None:
    assert python.run('%prose exec "echo hi; echo there"').text() == "hi\nthere\n"
    assert python.run("%prose exec echo hi").text() == "hi\n"
    error = python.run("%prose let = 1").error
    assert error["ename"] == "SyntaxError"


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("bindngs", "did you mean `%prose bindings`?"),
        ("vars", "%prose bindings lists what is bound"),
        ("nonsense", "%prose help lists all magics"),
        ("gate maybe x", "usage: %prose gate"),
        ("prose", "%%prose on the first line makes the whole cell OpenProse"),
    ],
)
def test_hints_name_what_can_be_typed_in_a_python_notebook(python: Client, line: str, hint: str) -> None:
    assert f"hint: {hint}" in python.run(f"%prose {line}").error["traceback"][-1]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--in missing", "no Python variable"),
        ("--in unfit", "no counterpart"),
        ("--out missing", "bound no such name"),
        ("words", "not understood"),
        ('--in "a', "%%prose: no closing quotation"),
    ],
)
def test_misuse_is_explained(python: Client, line: str, says: str) -> None:
    python.run("unfit = object()")
    ran = python.run(f"%%prose {line}\n# nothing")
    assert ran.error["ename"] == "UsageError" and says in ran.error["evalue"]


def test_a_misspelt_name_has_the_probable_one_as_hint(python: Client) -> None:
    python.run("customers = [1, 2]")
    assert "hint: did you mean `customers`?" in python.run("%%prose --in custmers\n# nothing").error["traceback"][-1]
    ran = python.run("%%prose --out sumary\nlet summary = 1")
    assert "hint: did you mean `summary`?" in ran.error["traceback"][-1]


def test_an_interrupt_ends_a_cell_that_also_awaits(python: Client) -> None:
    """In such a cell, an interrupt is no exception: ipykernel cancels the cell's task."""
    command = 'exec "echo started; sleep 4903"'
    request = python.send(
        f"import asyncio\nawait asyncio.sleep(0)\nget_ipython().run_cell_magic('prose', '', {command!r})"
    )
    python.until_text(request, "started")
    python.interrupt()
    assert python.finish(request).error["ename"] == "KeyboardInterrupt"


def test_an_interrupt_ends_the_cell_and_its_children(python: Client) -> None:

    request = python.send('%%prose\nexec "echo started; sleep 4901"')
    python.until_text(request, "started")
    python.interrupt()
    assert python.finish(request).error["ename"] == "KeyboardInterrupt"
    assert gone("sleep 4901")
    assert python.run('%%prose\nexec "echo fine"').text() == "fine\n"


def test_a_person_is_asked_in_the_cell(python: Client) -> None:
    ran = python.run('%%prose\ninput who: "Who?"\nexec "echo {who}"', answers=["me"], allow_stdin=True)
    assert ran.text() == "me\n"


def test_it_can_be_loaded_twice_and_unloaded(tmp_path: Path) -> None:
    with kernel(tmp_path, spec=python_kernel(), forks=True) as client:
        for line in (
            "%load_ext prose_kernel",
            "%load_ext prose_kernel",
            "%%prose\nlet a = 1",
            "%unload_ext prose_kernel",
        ):
            assert client.run(line).status == "ok"
        assert client.run("%prose bindings").status == "error" or "not found" in client.run("%prose bindings").text(
            "stderr"
        )
        assert client.run("prose").error["ename"] == "NameError"
