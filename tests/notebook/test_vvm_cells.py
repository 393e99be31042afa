"""VVM cells: the same outputs in its own kernel, as `%%vvm` in the Prose kernel and in Python, and by `prose run`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from notebook.kernels import Client, Ran, kernel, specification, vvm_specification
from notebook.test_both_front_ends import shown as shown_anywhere
from stubs.model_server import StubServer

from prose_kernel.cli.main import main

CELLS = {
    "blank": "\n",
    "comment": "# nothing",
    "number": "n = 40 + 2",
    "float": "n = 3.0",
    "text": 't = "some <b>text</b>"',
    "unit": "u = ()",
    "list": 'l = ["x", 1, true, ()]',
    "object": 'o = {name: "x", list: [1, 2]}',
    "table": 'o = [{a: 1, b: "x"}, {a: 2, b: "y"}]',
    "error value": 'e = {error: {kind: "timeout", message: "too long"}}',
    "ref": 'r = {ref: ".vvm/runs/r/bindings/b000001.md", summary: "Short."}',
    "function": "def twice(n):\n  return n + n\nf = twice",
    "definitions alone": "def twice(n):\n  return n + n\nagent scribe()",
    "several": "a = 1\nb = 2\nc = 3",
    "expression": "a = 1\na + 1",
    "unit as the last value": "a = 1\n()",
    "text as the last value": '"plain"',
    "table as the last value": "[{a: 1}, {a: 2}]",
    "parallel": "def twice(n):\n  return n + n\npmap([1, 2, 3], twice)",
    "loop": "for i in [1, 2, 3]:\n  last = i",
    "condition": 'if 1 < 2:\n  verdict = "less"',
    "exports": "a = 1\nu = ()\nexport a\nexport u\nexport pack(k=a)",
    "raised": 'raise "on purpose"',
    "fault in a function": "def size(v):\n  return len(v)\nsize(1)",
    "caught": 'try:\n  raise "no"\nexcept as e:\n  m = e.error.message\nm',
    "broken": "a = \nb = ]\nc = 1",
    "warning": "b = nothing_of_that_name",
    "agent that nobody answers": "agent scribe()\n@scribe `Hello`(())",
    "judgement that nobody makes": '?`it is good`("x")',
    "bindings": "a = 1\ndef f(x):\n  return x\nexport a\n%bindings\n%blocks\n%binding a",
    "magic in a literal": 't = """\n%bindings\n"""',
    "magic in a template": "agent scribe()\ndef f():\n  return @scribe `a\n%bindings\n\\` # `(())\nx = 1",
    "unknown magic": "a = 1\n%bindigns",
    "shell": "!ls",
    "help": "%help",
    "other language inside": "a = 1\n%%prose",
}


def shown(ran: Ran) -> list[Any]:
    """The outputs; of an error without the page of the reference, which a kernel names for other languages only."""
    found = shown_anywhere(ran)
    for output in found:
        if output[0] == "error":
            output[3] = [re.sub(r"%explain (vvm|openprose) ", "%explain ", line) for line in output[3]]
    return found


@pytest.fixture(scope="module")
def vvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with kernel(tmp_path_factory.mktemp("vvm"), spec=vvm_specification(), forks=True) as client:
        yield client


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with kernel(
        tmp_path_factory.mktemp("python"), spec=specification("ipykernel_launcher", "signal"), forks=True
    ) as client:
        assert client.run("%load_ext prose_kernel").status == "ok"
        yield client


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_shows_the_same_everywhere(vvm: Client, client: Client, python: Client, name: str) -> None:
    vvm.run("%reset")
    python.run("%vvm reset")
    code = CELLS[name]
    ours = vvm.run(f"\n{code}")  # lines are counted from that of the magic
    assert shown(client.run(f"%%vvm\n{code}")) == shown(ours)
    assert shown(python.run(f"%%vvm\n{code}")) == shown(ours)


def write(path: Path, name: str, *sources: str) -> str:
    spec = {"kernelspec": {"name": name, "display_name": name, "language": name}}
    nbformat.write(new_notebook(cells=[new_code_cell(source) for source in sources], metadata=spec), path)
    return str(path)


@pytest.mark.parametrize("name", [*CELLS][::3])  # in kernels all of them are compared
def test_prose_run_says_the_same_of_every_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[Any] = []
    for book in (
        write(tmp_path / "b.ipynb", "vvm", f"\n{CELLS[name]}"),
        write(tmp_path / "b.ipynb", "prose", f"%%vvm\n{CELLS[name]}"),
        write(tmp_path / "b.ipynb", "python", f"%%vvm\n{CELLS[name]}"),
    ):
        status = main(["run", Path(book).name, "--in-context"])
        seen.append((status, capfd.readouterr().out))
    assert seen[1:] == [seen[0], seen[0]]


# ---------------------------------------------------------------- one run


def text(client: Client, code: str) -> str:
    ran = client.run(code)
    assert ran.status == "ok", ran.outputs
    (shown,) = ran.displays
    return shown


@pytest.mark.parametrize("which", ["vvm", "prose", "python"])
def test_cells_of_both_languages_belong_to_one_run(vvm: Client, client: Client, python: Client, which: str) -> None:
    one = {"vvm": vvm, "prose": client, "python": python}[which]
    one.run("%prose reset" if which == "python" else "%reset")
    assert text(one, "%%vvm\nn = 20\ndef twice(x):\n  return x + x") == "n: number = 20"
    assert text(one, '%%prose\nlet m = n + 1\nblock greet(who):\n  return "hi {who}"') == "m: number = 21"
    assert text(one, "%%prose\ndo twice(m)") == "42"
    assert text(one, '%%vvm\ngreet("you")') == "hi you"
    assert text(one, "%%vvm\nn = 1") == "n: number = 1"
    assert text(one, "%%prose\nlet o = n") == "o: number = 1"
    names = text(one, "%prose bindings" if which == "python" else "%bindings")
    assert [line.split()[0] for line in names.splitlines()[1:]].count("n") == 1
    rows = {line.split()[0]: line.split("  ")[1:] for line in names.splitlines()}
    assert {
        name: next(part.strip() for part in row if part.strip()) for name, row in rows.items() if name in "nmo"
    } == {"n": "number", "m": "let, number", "o": "let, number"}
    called = text(one, "%prose blocks" if which == "python" else "%blocks")
    assert sorted(line.split("  ")[0] for line in called.splitlines()[1:]) == ["greet(who)", "twice(x)"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def f(x):\n  return x", "this is VVM: write %%vvm on the first line of the cell"),
        ("%bindings\ndef f(x):\n  return x", "this is VVM: write %%vvm on the first line of the cell"),
        ('%%vvm\nlet a = exec "true"', "this is OpenProse: write %%prose on the first line of the cell"),
        ("%%vvm\nx = = 1", None),
        ("%%vvm\nreturn 1", None),
        ("let a == 1", None),
        ("let = 5", None),
    ],
)
def test_a_cell_in_the_other_language_gets_a_hint(client: Client, code: str, said: str | None) -> None:
    client.run("%reset")
    lines = client.run(code).error["traceback"]
    assert [line for line in lines if "on the first line" in line] == ([f"hint: {said}"] if said else [])


def test_names_of_an_imported_module_have_no_cards(tmp_path: Path) -> None:
    (tmp_path / "m.vvm").write_text("inner = 1\ndef next(n):\n  return n + inner\nexport next\n")
    with kernel(tmp_path, spec=vvm_specification(), forks=True) as client:
        assert client.run('from "./m.vvm" import next\nx = next(1)').displays == ["x: number = 2"]


def test_a_branch_with_an_error_value_has_failed(vvm: Client) -> None:
    vvm.run("%reset")
    first, *_ = vvm.run('def f(n):\n  return {error: {message: "no"}}\npmap([1], f)').displays
    assert first == 'parallel, 1 branch: 1 failed\n  ✗ 1: {"error": {"message": "no"}}'


def test_help_takes_an_agent_as_it_is_written(vvm: Client) -> None:
    vvm.run('%reset\nagent writer(prompt="Short.")')
    assert text(vvm, "%help @writer") == text(vvm, "%help writer")


def test_prose_says_that_a_function_needs_its_arguments(client: Client) -> None:
    client.run("%reset")
    client.run("%%vvm\ndef two(a, b):\n  return a")
    ran = client.run("do two(1)")
    assert ran.displays == [
        "Warning at line 1: the function `two` takes 2 arguments, not 1 (the call raises if it is reached) [W140]"
    ]
    assert ran.error["evalue"] == "bad arguments to two: 'b' is missing"


@pytest.mark.parametrize(
    ("code", "shows"),
    [
        ("\n \n%%vvm\nx = 1", "x: number = 1"),
        ("%% vvm \nx = 1", "x: number = 1"),
        ("%%vvm\r\nx = 1\r\n", "x: number = 1"),
        ("%%vvm", ""),
        ("%%vvm\n\n# nothing", ""),
        ("%%vvmx\nx = 1", "there is no cell magic %%vvmx"),
        ("%%VVM\nx = 1", "there is no cell magic %%VVM"),
        ("%%vvm --in y\nx = 1", "%%vvm takes no words here: --in y"),
        ("x = 1\n%%vvm", "there is no cell magic %%vvm"),
        ("%%prose\n%%vvm\nx = 1", "there is no cell magic %%vvm"),
    ],
)
def test_which_language_a_cell_is_in(vvm: Client, client: Client, code: str, shows: str) -> None:
    for one in (vvm, client):
        one.run("%reset")
        ran = one.run(code)
        assert (ran.displays or [error["evalue"] for error in ran.of("error")] or [""])[-1] == shows


def test_a_cell_with_an_error_between_good_ones_changes_nothing(vvm: Client) -> None:
    vvm.run("%reset")
    vvm.run("x = 1")
    ran = vvm.run("x = 2\ny = ]\nz = 3")
    assert ran.error["ename"] == "SyntaxError"
    assert "line 2, column 5" in ran.error["traceback"][0]
    assert text(vvm, "x") == "1"
    assert vvm.run("z").status == "error"


def test_an_error_points_at_the_line_of_the_cell(vvm: Client, client: Client, python: Client) -> None:
    for one in (vvm, client, python):
        assert "line 3, column 5" in one.run("%%vvm\nx = 1\ny = ]").error["traceback"][0]
        assert "at line 4, column 1" in one.run('%%vvm\nx = 1\n\nraise "no"').error["traceback"][0]
        assert "at line 3, column 1" in one.run('%%prose\nlet x = 1\nthrow "no"').error["traceback"][0]


def test_values_of_python_go_in_and_come_out(python: Client) -> None:
    python.run("%prose reset")
    python.run("given = {'a key': [1, -2.5, True, None, 'say \"hi\" `{x}` \\n\\u2603']}\nsmall = 5e-324")
    ran = python.run('%%vvm --in given small --out back\nback = given["a key"] + [small]')
    assert ran.status == "ok", ran.error
    assert python.run("print(back == given['a key'] + [small], prose['back'] == back)").text() == "True True\n"
    python.run("import os")
    assert "has no counterpart in VVM" in python.run("%%vvm --in os\n1").error["evalue"]
    assert python.run("%vvm x + 1").status == "error"
    assert text(python, "%vvm len(back)") == "6"


@pytest.mark.parametrize("which", ["vvm", "prose"])
def test_a_cell_is_completed_and_explained_in_its_language(vvm: Client, client: Client, which: str) -> None:
    one = {"vvm": vvm, "prose": client}[which]
    one.run("%reset")
    one.run("%%vvm\ncounter = 1\nagent scribe()")
    one.run("%%prose\nlet weight = 2")

    def offered(code: str) -> tuple[list[str], int]:
        reply = one.ask("complete_request", {"code": code, "cursor_pos": len(code)})["content"]
        return reply["matches"], reply["cursor_start"]

    for prefix in ("%%vvm\n", "%%vvm\n\n  ") if which == "prose" else ("", "%%vvm\n"):
        assert offered(f"{prefix}coun") == (["counter"], len(prefix))
        assert "weight" in offered(f"{prefix}wei")[0]
        assert "while" in offered(f"{prefix}whi")[0] and "session" not in offered(f"{prefix}sess")[0]
        assert "scribe" in offered(f"{prefix}@scr")[0]
        code = f"{prefix}while"
        found = one.ask("inspect_request", {"code": code, "cursor_pos": len(code)})["content"]
        assert found["found"] and found["data"]["text/plain"].startswith("while: ")
    assert "session" in offered("%%prose\nsess")[0]
    assert "counter" in offered("%%prose\nlet x = cou")[0]
    found = one.ask("inspect_request", {"code": "%%prose\nsession", "cursor_pos": 12})["content"]
    assert found["data"]["text/plain"].startswith("session: ")

    def ended(code: str) -> tuple[str, str | None]:
        reply = one.ask("is_complete_request", {"code": code})["content"]
        return reply["status"], reply.get("indent")

    assert ended("%%vvm") == ("incomplete", "")
    assert ended("%%vvm\nif true:") == ("incomplete", "  ")
    assert ended("%%vvm\nx = 1\n\n") == ("complete", None)
    assert ended("%%prose\nrepeat 3:") == ("incomplete", "  ")
    if which == "vvm":
        assert ended("def f(x):") == ("incomplete", "  ")
        assert ended("x = ]")[0] == "invalid"


# ---------------------------------------------------------------- interrupts, restart


def test_a_loop_without_end_can_be_interrupted(vvm: Client, client: Client, python: Client) -> None:
    for one in (vvm, client, python):
        started = '%%vvm\nx = "before"\n%bindings\nwhile true:\n  pass'
        request = one.send(started)
        one.until(request, lambda message: message["msg_type"] == "display_data")
        one.interrupt()
        ran = one.finish(request)
        assert ran.error["ename"] == "KeyboardInterrupt"
        assert text(one, "%%vvm\nx") == "before"


def test_a49_finally_runs_after_an_interrupt(vvm: Client) -> None:
    vvm.run("%reset")
    request = vvm.send("x = 1\n%bindings\ntry:\n  while true:\n    pass\nfinally:\n  x = 2")
    vvm.until(request, lambda message: message["msg_type"] == "display_data")
    vvm.interrupt()
    assert vvm.finish(request).error["ename"] == "KeyboardInterrupt"
    assert text(vvm, "x") == "2"


def test_a_session_can_be_interrupted(vvm: Client) -> None:
    vvm.run("%reset")
    vvm.run("agent scribe()")
    request = vvm.send("@scribe `Write`(())", allow_stdin=True)
    vvm.channels.get_stdin_msg(timeout=30)
    vvm.interrupt()
    assert vvm.finish(request).error["ename"] == "KeyboardInterrupt"
    assert text(vvm, "1 + 1") == "2"


def test_a_restart_forgets_every_name(tmp_path: Path) -> None:
    with kernel(tmp_path, spec=vvm_specification(), forks=True) as client:
        assert text(client, "x = 1") == "x: number = 1"
        client.manager.restart_kernel(now=False)
        client.channels.wait_for_ready(timeout=30)
        ran = client.run("x")
        assert "unbound name: x" in ran.error["evalue"]
    assert not list(tmp_path.glob(".prose"))


def test_the_kernel_says_what_it_speaks(vvm: Client) -> None:
    info = vvm.ask("kernel_info_request", {})["content"]
    assert info["language_info"]["name"] == "vvm"
    assert info["language_info"]["file_extension"] == ".vvm"
    assert info["language_info"]["pygments_lexer"] == "vvm"
    assert info["banner"].endswith("VVM in Jupyter. %help lists the magics.")


# ---------------------------------------------------------------- replays

STUB = """[providers.stub]
kind = "openai"
base_url = "URL"
model = "echo-1"
"""
TALK = (
    'agent scribe(prompt="Be brief.")\ndraft = @scribe `Draft for {}`("Ada")',
    '%%prose\nagent editor:\n  prompt: "Edit."\nlet better = session: editor\n  prompt: "Better: {draft}"',
    "%%vvm\ndef ask(x):\n  return @editor `About {x}`(better)\nboth = pmap([1, 2], ask)\nboth",
    "%%prose\nlet last = do ask(3)",
    '%%prose\nsession: scribe\n  prompt: "Last: {last}"',
    "export draft\nexport both",
)


def told(ran: Ran) -> list[Any]:
    """The outputs, without the names of what differs from run to run."""
    return [output[:2] for output in shown(ran)]


def test_alternating_cells_replay_without_a_person(tmp_path: Path) -> None:
    with StubServer() as stub:
        (tmp_path / "prose.toml").write_text(STUB.replace("URL", stub.openai_url))
        with kernel(tmp_path, spec=vvm_specification(), forks=True) as client:
            client.run("%provider stub\n%cassette talk --mode record")
            recorded = [client.run(cell) for cell in TALK]
        assert [ran.status for ran in recorded] == ["ok"] * len(TALK)
        asked = stub.stats.requests
    assert asked == 6
    with kernel(tmp_path, spec=vvm_specification(), forks=True) as client:
        client.run("%provider replay\n%cassette talk --mode replay")
        assert [told(client.run(cell)) for cell in TALK] == [told(ran) for ran in recorded]
        again = [client.run(cell) for cell in TALK[:1]]
        assert [ran.error["ename"] for ran in again] == ["SessionError"]  # every record is used once
    with kernel(tmp_path, forks=True) as client:  # the same cells in the other kernel
        client.run("%provider replay\n%cassette talk --mode replay")
        cells = [cell if cell.startswith("%%") else f"%%vvm\n{cell}" for cell in TALK]
        assert [told(client.run(cell)) for cell in cells] == [told(ran) for ran in recorded]


def test_functions_inside_of_values_are_kept_in_files_as_text(tmp_path: Path) -> None:
    with kernel(tmp_path, forks=True) as client:
        assert client.run("%%vvm\ndef f(n):\n  return n\nagent w()\nx = {f: f, l: [w]}").status == "ok"
        assert client.run("let y = x").status == "ok"
        assert text(client, "%%vvm\nx.f(3)") == "3"
    (kept,) = tmp_path.glob(".prose/runs/*/bindings/y.md")
    assert kept.read_text().endswith('\n---\n\n{"f":"function f(n)","l":["agent w"]}')


def test_help_is_completed_in_the_language_of_the_cell(vvm: Client) -> None:
    def completed(code: str) -> set[str]:
        return set(vvm.channels.complete(code, reply=True, timeout=20)["content"]["matches"])

    vvm.run("%reset\nagent matcher()\ndef mate(x):\n  return x\nmatched = 1")
    assert completed("%help mat") == {"match", "matched", "matcher", "mate"}
    assert "match" not in completed("%%prose\n%help mat")
