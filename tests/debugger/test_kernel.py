"""The debugger in a real kernel, with the messages that JupyterLab sends (docs/reference/jupyter.md 4)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from debugger.client import Lab, lab
from ipykernel.compiler import murmur2_x86  # the hash function of JupyterLab
from notebook.kernels import REPOSITORY, vvm_specification

from prose_kernel.debugger.breakpoints import SEED, murmur2

BLOCKS = """# a comment
let n = 1

block greet(who, depth):
  let text = "hello {who}"
  if depth > 0:
    do greet("Bob", depth - 1)
  output text
let first = do greet("Ann", 1)
let second = [n, {a: [1, 2]}, "x"]
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("debugger"), forks=True) as found:
        yield found


@pytest.fixture
def notebook(shared: Lab) -> Iterator[Lab]:
    assert shared.client.run("%reset").status == "ok"
    shared.events.clear()
    yield shared
    shared.body("disconnect")


@pytest.fixture(scope="module")
def shared_vvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("vvm"), vvm_specification(), forks=True) as found:
        yield found


@pytest.fixture
def vvm(shared_vvm: Lab) -> Iterator[Lab]:
    assert shared_vvm.client.run("%reset").status == "ok"
    shared_vvm.events.clear()
    yield shared_vvm
    shared_vvm.body("disconnect")


# ---------------------------------------------------------------- a session


@pytest.mark.parametrize("text", ["", "a", "ab", "abc", "abcd", "let x = 1\n", "é 漢字 🎉\n\n  tab\t", "x" * 1001])
def test_cells_have_the_hash_of_jupyterlab(text: str) -> None:
    data = text.encode()
    assert murmur2(data) == murmur2_x86(text, SEED)


@pytest.mark.parametrize("name", ["prose", "vvm"])
def test_the_kernelspecs_announce_a_debugger(name: str) -> None:
    """JupyterLab reads only this entry."""
    spec = json.loads((REPOSITORY / "kernelspec" / name / "kernel.json").read_text())
    assert spec["metadata"]["debugger"] is True


def test_an_open_notebook_gets_answers_to_its_requests(notebook: Lab) -> None:
    for _ in range(4):
        without_arguments = notebook.reply({"type": "request", "seq": 0, "command": "debugInfo"})
        assert without_arguments["success"]
        info = notebook.body("debugInfo")
    assert info["isStarted"] is False
    assert (info["hashMethod"], info["hashSeed"]) == ("Murmur2", 0xC70F6907)
    assert info["richRendering"] is True
    assert info["copyToGlobals"] is False
    capabilities = notebook.start()
    assert [one["filter"] for one in capabilities["exceptionBreakpointFilters"]] == ["all errors", "uncaught errors"]
    notebook.event("initialized")
    assert notebook.body("debugInfo")["isStarted"] is True
    assert notebook.body("inspectVariables") == {"variables": []}
    assert notebook.body("modules") == {"modules": [], "totalModules": 0}
    assert notebook.body("threads")["threads"][0]["id"] == 1
    assert notebook.body("configurationDone") == {}
    path = notebook.body("dumpCell", code=BLOCKS)["sourcePath"]
    assert path == f"{info['tmpFilePrefix']}{murmur2_x86(BLOCKS, SEED)}{info['tmpFileSuffix']}"
    reply = notebook.client.ask("kernel_info_request", {})
    assert reply["content"]["supported_features"] == ["debugger"]


def test_a_breakpoint_has_a_stack_scopes_variables_and_steps(notebook: Lab) -> None:
    notebook.start()
    points = notebook.set_breakpoints(BLOCKS, 5)
    assert [(p["verified"], p["line"]) for p in points] == [(True, 5)]
    cell = notebook.run(BLOCKS)
    frames = notebook.stopped(5)
    assert [(f["name"], f["line"]) for f in frames] == [("greet #1", 5), ("cell", 9)]
    assert frames[0]["source"]["path"] == points[0]["source"]["path"]
    assert notebook.body("source", source=frames[0]["source"])["content"] == BLOCKS
    assert notebook.scopes() == {"Locals": {"who": '"Ann"', "depth": "1"}, "Globals": {"n": "1"}}
    notebook.resume("next")
    assert [f["line"] for f in notebook.stopped(6, "step")] == [6, 9]
    assert notebook.value("depth + 1") == "2"
    notebook.resume("next")
    notebook.stopped(7, "step")
    notebook.resume("stepIn")
    assert [f["name"] for f in notebook.stopped(5, "step")] == ["greet #2", "greet #1", "cell"]
    assert notebook.value("who") == '"Bob"'
    assert notebook.value("who", frame=2) == '"Ann"'
    notebook.resume("stepOut")
    assert [f["line"] for f in notebook.stopped(8, "step")] == [8, 9]
    notebook.resume("stepOut")
    assert [f["line"] for f in notebook.stopped(10, "step")] == [10]
    notebook.resume()
    assert notebook.finish(cell)["status"] == "ok"
    listed = {one["name"]: one for one in notebook.body("inspectVariables")["variables"]}
    assert listed["second"]["value"] == '[1, {a: […]}, "x"]'
    members = notebook.body("variables", variablesReference=listed["second"]["variablesReference"])["variables"]
    assert [(m["name"], m["value"]) for m in members] == [("[0]", "1"), ("[1]", "{a: [1, 2]}"), ("[2]", '"x"')]
    deeper = notebook.body("variables", variablesReference=members[1]["variablesReference"])["variables"]
    assert [(m["name"], m["value"]) for m in deeper] == [("a", "[1, 2]")]
    rich = notebook.body("richInspectVariables", variableName="first")
    assert rich["data"]["text/markdown"].startswith("<code>first</code>: text\n\n```\nhello Ann")


@pytest.mark.parametrize(
    ("code", "wanted", "line"),
    [
        ("\n\n# note\n\nlet x = 1\n", 1, 5),
        ("\n\n# note\n\nlet x = 1\n", 3, 5),
        ('let x = """\nmany\n\nlines"""\nlet y = 2\n', 3, 1),
        ('let x = session "a"\n  retry: 2\nlet y = 2\n', 2, 1),
        ("if true:\n  # here\n  let a = 1\nelse:\n  let b = 2\n", 2, 3),
        ("if true:\n  # here\n  let a = 1\nelse:\n  let b = 2\n", 4, 5),
        ('block f():\n  let a = 1\nlet b = 1\nparallel:\n  one = exec "true"\n  two = exec "true"\n', 1, 2),
        ('parallel:\n  one = exec "true"\n  two = exec "true"\n', 3, 3),
        ("%provider echo\nlet x = 1\n", 1, 2),
        ("%%vvm\n\nx = 1\n", 1, 3),
        ("%%vvm\ndef f():\n  return 1\nx = f()\n", 2, 3),
        ("let x = 1\n\n# the end", 3, None),
        ("let x = (\n", 1, 1),
        ("", 1, None),
    ],
)
def test_breakpoints_move_to_statements(notebook: Lab, code: str, wanted: int, line: int | None) -> None:
    (point,) = notebook.set_breakpoints(code, wanted)
    assert (point["verified"], point["line"]) == (line is not None, line or wanted)


def test_line_numbers_count_magics_and_cells_of_the_other_language(notebook: Lab) -> None:
    notebook.start()
    vvm = "%%vvm\n\ndef double(x):\n  y = x + x\n  return y\nr = double(4)\n"
    notebook.set_breakpoints(vvm, 4)
    cell = notebook.run(vvm)
    frames = notebook.stopped(4)
    assert [(f["name"], f["line"]) for f in frames] == [("double", 4), ("cell", 6)]
    assert notebook.body("source", source=frames[0]["source"])["content"] == vvm
    assert notebook.scopes()["Locals"] == {"x": "4"}
    notebook.resume()
    assert notebook.finish(cell)["status"] == "ok"
    prose = "%bindings\nlet before = 1\n\nlet z = do double(before)\n"
    notebook.set_breakpoints(prose, 4)
    cell = notebook.run(prose)
    notebook.stopped(4)
    notebook.resume("stepIn")
    frames = notebook.stopped(4, "step")
    assert [f["name"] for f in frames] == ["double", "cell"]
    assert [f["line"] for f in frames] == [4, 4]
    assert "another language" in notebook.error_of("evaluate", expression="do double(1)", frameId=2)
    notebook.resume("stepOut")
    assert notebook.finish(cell)["status"] == "ok"


def test_breakpoints_may_have_conditions_hit_counts_and_messages(notebook: Lab) -> None:
    notebook.start()
    code = "let n = 0\nrepeat 6:\n  n = n + 1\nlet last = n\n"
    notebook.set_breakpoints(code, {"line": 3, "condition": "n == 4"})
    cell = notebook.run(code)
    notebook.stopped(3)
    assert notebook.value("n") == "4"
    notebook.resume()
    assert notebook.finish(cell)["status"] == "ok"
    notebook.set_breakpoints(
        code, {"line": 3, "hitCondition": ">= 6"}, {"line": 4, "logMessage": "n is {n}, {nowhere}"}
    )
    cell = notebook.run(code)
    notebook.stopped(3)
    assert notebook.value("n") == "5"
    notebook.resume()
    assert notebook.event("output")["output"].startswith("n is 6, {nowhere: ")
    assert notebook.finish(cell)["status"] == "ok"
    (bad,) = notebook.set_breakpoints(code, {"line": 3, "hitCondition": "often"})
    assert (bad["verified"], bad["message"]) == (False, "`often` is not a count of hits: write 3, >= 3 or % 3")
    notebook.set_breakpoints(code, {"line": 3, "condition": "**n is large**"})
    cell = notebook.run(code)
    event = notebook.event("stopped")
    assert event["text"].startswith("the condition `**n is large**` cannot be computed: no condition in `**` is judged")
    notebook.set_breakpoints(code)
    notebook.resume()
    assert notebook.finish(cell)["status"] == "ok"


def test_an_evaluation_computes_without_side_effects(notebook: Lab) -> None:
    notebook.start()
    code = "let n = 1\nblock bump(x):\n  n = n + x\n  output n\nblock forever(x):\n  do forever(x)\nlet done = true\n"
    notebook.set_breakpoints(code, 7)
    cell = notebook.run(code)
    notebook.stopped(7)
    assert notebook.value("do bump(5)") == "6"
    assert notebook.value("n") == "1"
    assert notebook.value('"n is {n}"') == '"n is 1"'
    for text, part in (
        ('exec "ls"', "no command runs"),
        ('session "hi"', "no session is asked"),
        ("n = 5", "does not change"),
        ("let n = 5", "does not change"),
        ("", "nothing to evaluate"),
        ("n +", "ends too early"),
        ("missing", "missing"),
    ):
        assert part in notebook.error_of("evaluate", expression=text, frameId=1), text
    assert notebook.error_of("evaluate", expression="do forever(1)", frameId=1)
    assert "does not change names" in notebook.error_of("setVariable", name="n", value="2")
    notebook.resume()
    assert notebook.finish(cell)["status"] == "ok"
    assert notebook.client.run("output n\n").displays[-1].endswith("1")


# ---------------------------------------------------------------- branches, loops, programs


def test_a_stopped_branch_stops_the_other_branches(notebook: Lab) -> None:
    notebook.start()
    code = "parallel:\n  one = do:\n    let a = 1\n    let b = 2\n  two = do:\n    let c = 3\nlet end = 1\n"
    notebook.set_breakpoints(code, 3, 6)
    cell = notebook.run(code)
    assert notebook.stopped(3)[0]["name"] == "cell [one]"
    notebook.resume("next")
    assert notebook.stopped(4, "step")[0]["name"] == "cell [one]"
    notebook.resume("next")
    assert notebook.stopped(6)[0]["name"] == "cell [two]"
    notebook.resume("stepOut")
    notebook.stopped(7, "step")
    notebook.resume()
    assert notebook.finish(cell)["status"] == "ok"


def test_next_steps_over_a_parallel_and_into_a_loop(notebook: Lab) -> None:
    notebook.start()
    code = 'let found = parallel for x in [1, 2]:\n  exec "echo {x}"\nfor y in [1, 2]:\n  let z = y\nlet end = 1\n'
    notebook.set_breakpoints(code, 1)
    cell = notebook.run(code)
    notebook.stopped(1)
    notebook.resume("next")
    notebook.stopped(3, "step")
    notebook.resume("next")
    for _ in range(2):
        notebook.stopped(4, "step")
        notebook.resume("next")
    notebook.stopped(5, "step")
    notebook.resume()
    assert notebook.finish(cell)["status"] == "ok"


def test_imported_programs_have_sources_and_breakpoints(notebook: Lab) -> None:
    directory = notebook.client.directory
    program = 'input name: "who"\nlet text = "hi {name}"\noutput greeting = text\n'
    Path(directory, "greet.prose").write_text(program)
    notebook.start()
    code = 'use "./greet.prose" as greet\nlet r = greet(name: "Ann")\n'
    notebook.set_breakpoints(code, 2)
    cell = notebook.run(code)
    notebook.stopped(2)
    notebook.resume("stepIn")
    frames = notebook.stopped(None, "step")
    assert frames[0]["source"]["name"].endswith("greet.prose")
    assert [f["line"] for f in frames][1:] == [2]
    assert notebook.body("source", source=frames[0]["source"])["content"] == program
    path = frames[0]["source"]["path"]
    (point,) = notebook.body("setBreakpoints", source={"path": path}, breakpoints=[{"line": 3}])["breakpoints"]
    assert (point["verified"], point["line"]) == (True, 3)
    notebook.resume()
    notebook.stopped(3)
    notebook.resume()
    assert notebook.finish(cell)["status"] == "ok"
    assert [m["name"] for m in notebook.body("modules")["modules"]] == [path]


def test_a_breakpoint_may_have_an_absolute_path_before_the_file_runs(notebook: Lab) -> None:
    file = Path(notebook.client.directory, "rooted.prose").resolve()
    file.write_text('let text = "hi"\noutput greeting = text\n')
    notebook.start()
    place = {"path": str(file)}
    (point,) = notebook.body("setBreakpoints", source=place, breakpoints=[{"line": 2}])["breakpoints"]
    cell = notebook.run('use "./rooted.prose" as rooted\nlet r = rooted()\n')
    found = notebook.event("breakpoint")["breakpoint"]
    assert found == {"id": point["id"], "verified": True, "line": 2, "source": place}
    frames = notebook.stopped(2)
    assert notebook.body("source", source=place) == notebook.body("source", source=frames[0]["source"])
    assert [one["source"] for one in notebook.body("debugInfo")["breakpoints"]] == [str(file)]
    notebook.body("setBreakpoints", source=frames[0]["source"], breakpoints=[])
    assert notebook.body("debugInfo")["breakpoints"] == []
    notebook.resume()
    assert notebook.finish(cell)["status"] == "ok"


def test_breakpoints_keep_their_lines_in_a_file_that_is_edited_between_runs(notebook: Lab) -> None:
    file = Path(notebook.client.directory, "edited.prose")
    file.write_text("let a = 1\nlet b = 2\noutput c = a\n")
    notebook.start()
    code = 'use "./edited.prose" as edited\nlet r = edited()\n'
    notebook.set_breakpoints(code, 2)
    cell = notebook.run(code)
    notebook.stopped(2)
    notebook.resume("stepIn")
    path = notebook.stopped(None, "step")[0]["source"]["path"]
    wanted = [{"line": 2}, {"line": 9}]
    points = notebook.body("setBreakpoints", source={"path": path}, breakpoints=wanted)["breakpoints"]
    assert [point["verified"] for point in points] == [True, False]
    notebook.resume()
    notebook.stopped(2)
    notebook.resume()
    assert notebook.finish(cell)["status"] == "ok"
    file.write_text("let a = 1\n# moved\n\nlet b = 2\noutput c = a\n" + "# more\n" * 3 + "let d = 4\n")
    notebook.set_breakpoints(code)
    cell = notebook.run(code)
    notebook.stopped(4)
    notebook.resume()
    notebook.stopped(9)
    notebook.resume()
    assert notebook.finish(cell)["status"] == "ok"


def test_ten_thousand_breakpoints_can_be_set(notebook: Lab) -> None:
    notebook.start()
    code = "let x = 1\n" * 9_999 + "if x > 1:\n  let y = 1\n"
    assert [point["line"] for point in notebook.set_breakpoints(code, *range(2, 10_002))] == [*range(2, 10_002)]
    assert not any(point["verified"] for point in notebook.set_breakpoints(code, *range(20_000, 30_000)))


# ---------------------------------------------------------------- errors, pauses, ends


def test_the_debugger_stops_at_errors(notebook: Lab) -> None:
    notebook.start("uncaught errors")
    code = 'try:\n  throw "caught"\ncatch as e:\n  let x = 1\nthrow "not caught"\n'
    cell = notebook.run(code)
    event = notebook.event("stopped")
    assert (event["reason"], event["text"]) == ("exception", "not caught")
    assert notebook.body("exceptionInfo", threadId=1)["breakMode"] == "unhandled"
    assert notebook.body("stackTrace", threadId=1)["stackFrames"][0]["line"] == 5
    notebook.resume()
    assert notebook.finish(cell)["status"] == "error"
    notebook.body("setExceptionBreakpoints", filters=["all errors"])
    cell = notebook.run(code)
    assert notebook.event("stopped")["text"] == "caught"
    notebook.resume()
    assert notebook.event("stopped")["text"] == "not caught"
    notebook.resume()
    assert notebook.finish(cell)["status"] == "error"


def test_a_computing_loop_can_be_paused(notebook: Lab) -> None:
    notebook.start()
    cell = notebook.run("let n = 0\nloop:\n  n = n + 1\n")
    notebook.client.until(cell, lambda message: message["msg_type"] == "execute_input")
    notebook.body("pause", threadId=1)
    assert notebook.event("stopped")["reason"] == "pause"
    notebook.client.ask("interrupt_request", {}, "control")
    notebook.event("continued")
    reply = notebook.finish(cell)
    assert (reply["status"], reply["ename"]) == ("error", "KeyboardInterrupt")


@pytest.mark.parametrize("position", ["root", "branch"])
def test_an_interrupt_while_stopped_ends_the_cell(notebook: Lab, position: str) -> None:
    notebook.start()
    branch = 'parallel:\n  one = do:\n    let a = 1\n  two = exec "sleep 60"\nlet end = 1\n'
    code, line = ("let a = 1\nlet b = 2\n", 2) if position == "root" else (branch, 3)
    notebook.set_breakpoints(code, line)
    cell = notebook.run(code)
    notebook.stopped(line)
    assert notebook.client.ask("is_complete_request", {"code": "let x = 1"})["content"]["status"] == "complete"
    notebook.client.ask("interrupt_request", {}, "control")
    notebook.event("continued")
    assert notebook.finish(cell)["ename"] == "KeyboardInterrupt"
    assert notebook.body("debugInfo")["stoppedThreads"] == []
    notebook.set_breakpoints(code)
    assert notebook.client.run("let again = 1").status == "ok"


def test_a_reloaded_page_keeps_breakpoints_and_a_disconnect_resumes(notebook: Lab) -> None:
    notebook.start()
    code = "let a = 1\nlet b = 2\n"
    path = notebook.set_breakpoints(code, 2)[0]["source"]["path"]
    cell = notebook.run(code)
    notebook.stopped(2)
    info = notebook.body("debugInfo")
    assert (info["isStarted"], info["stoppedThreads"]) == (True, [1])
    assert info["breakpoints"] == [{"source": path, "breakpoints": [{"line": 2}]}]
    notebook.body("setBreakpoints", source={"path": path}, breakpoints=[{"line": 2}], sourceModified=False)
    assert notebook.body("stackTrace", threadId=1)["totalFrames"] == 1
    notebook.body("disconnect", restart=False, terminateDebuggee=False)
    notebook.event("continued")
    assert notebook.finish(cell)["status"] == "ok"
    info = notebook.body("debugInfo")
    assert (info["isStarted"], info["breakpoints"], info["stoppedThreads"]) == (False, [], [])
    assert notebook.client.run(code).status == "ok"


def test_terminate_ends_the_cell(notebook: Lab) -> None:
    notebook.start()
    code = "let a = 1\nlet b = 2\n"
    notebook.set_breakpoints(code, 2)
    cell = notebook.run(code)
    notebook.stopped(2)
    notebook.body("terminate")
    assert notebook.finish(cell)["ename"] == "KeyboardInterrupt"


def test_invalid_requests_are_refused(notebook: Lab) -> None:
    notebook.start()
    for content in (
        {},
        {"seq": "x", "command": "debugInfo"},
        {"seq": -3, "command": ""},
        {"seq": 1, "command": 7},
        {"seq": 1, "command": "debugInfo", "arguments": [1]},
        {"seq": 1, "command": "fly"},
        {"seq": 1, "command": "dumpCell", "arguments": {"code": 3}},
        {"seq": 1, "command": "setBreakpoints", "arguments": {"breakpoints": 3}},
        {"seq": 1, "command": "setBreakpoints", "arguments": {"source": {"path": "x"}, "breakpoints": [7, None]}},
        {"seq": 1, "command": "setBreakpoints", "arguments": {"source": {"path": "x"}, "breakpoints": [{"line": -1}]}},
        {"seq": 1, "command": "variables", "arguments": {"variablesReference": 10**30}},
        {"seq": 1, "command": "scopes", "arguments": {"frameId": 3}},
        {"seq": 1, "command": "evaluate", "arguments": {"expression": ["x"]}},
        {"seq": 1, "command": "continue"},
        {"seq": 1, "command": "stepBack"},
        {"seq": 1, "command": "source", "arguments": {"source": {"path": "/etc/passwd"}}},
    ):
        reply = notebook.reply(content)
        assert reply["type"] == "response"
        if content.get("command") != "debugInfo" or "arguments" in content:
            assert not reply["success"], content
            assert reply["message"]
            assert "Traceback" not in reply["message"]
    unknown = notebook.body("setBreakpoints", source={"path": "/tmp/old/1.prose"}, breakpoints=[{"line": 4}])
    assert [(p["verified"], p["line"]) for p in unknown["breakpoints"]] == [(False, 4)]
    assert notebook.client.run("let fine = 1").status == "ok"


def test_lone_surrogates_in_requests_are_answered(notebook: Lab) -> None:
    session = notebook.client.channels.session
    pack, session.pack = session.pack, lambda message: json.dumps(message, default=str).encode()
    try:
        notebook.start()
        assert notebook.reply({"seq": 1, "command": "\ud800"})["message"] == "this debugger does not know `?`"
        (point,) = notebook.body("setBreakpoints", source={"path": "\ud800"}, breakpoints=[{"line": 1}])["breakpoints"]
        assert point["source"] == {"path": "?"}
        notebook.body("dumpCell", code='let x = "\ud800"')
    finally:
        session.pack = pack


def test_huge_conditions_and_counts_are_refused(notebook: Lab) -> None:
    notebook.start()
    code = "let n = 1\nlet z = n\n"
    (point,) = notebook.set_breakpoints(code, {"line": 2, "hitCondition": "9" * 5000})
    assert not point["verified"] and "is not a count of hits" in point["message"]
    path = point["source"]["path"]
    long = [{"line": 2, "condition": "x" * 100_001}]
    assert "longer than" in notebook.error_of("setBreakpoints", source={"path": path}, breakpoints=long)
    notebook.set_breakpoints(code, {"line": 2, "condition": "(" * 40_000 + "1" + ")" * 40_000})
    cell = notebook.run(code)
    event = notebook.event("stopped")
    assert len(event["text"]) < 300 and event["text"].endswith("nested too deeply")
    assert notebook.body("continue", threadId=1)
    assert notebook.finish(cell)["status"] == "ok"


def test_a_kernel_can_restart_while_stopped(tmp_path: Path) -> None:
    code = "try:\n  let a = 1\nfinally:\n  let b = 2\n"
    with lab(tmp_path) as notebook:
        notebook.start()
        notebook.set_breakpoints(code, 2)
        notebook.run(code)
        notebook.stopped(2)
        notebook.client.manager.restart_kernel()
        notebook.client.channels.wait_for_ready(timeout=30)
        assert notebook.body("debugInfo")["isStarted"] is False
        notebook.start()
        points = notebook.set_breakpoints(code, 2)  # as JupyterLab does for each cell with breakpoints
        assert points[0]["verified"]
        cell = notebook.run(code)
        notebook.stopped(2)
        notebook.resume()
        assert notebook.finish(cell)["status"] == "ok"


def test_a_large_value_is_listed_in_parts(notebook: Lab) -> None:
    notebook.start()
    code = "%%vvm\nrows = range(250)\nlast = 1\n"
    notebook.set_breakpoints(code, 3)
    cell = notebook.run(code)
    notebook.stopped(3)
    (scope,) = notebook.body("scopes", frameId=1)["scopes"]
    names = notebook.body("variables", variablesReference=scope["variablesReference"])["variables"]
    rows = next(one for one in names if one["name"] == "rows")
    assert rows["value"] == "[0, 1, 2, 3, 4, 5, …] (250)"
    listed = notebook.body("variables", variablesReference=rows["variablesReference"])["variables"]
    assert (len(listed), listed[-1]["name"], listed[-1]["value"]) == (101, "…", "150 more")
    more = notebook.body("variables", variablesReference=listed[-1]["variablesReference"])["variables"]
    assert (more[0]["name"], more[-1]["value"]) == ("[100]", "50 more")
    notebook.resume()
    assert notebook.finish(cell)["status"] == "ok"
    assert "gone on" in notebook.error_of("variables", variablesReference=rows["variablesReference"])


def test_a_debugged_run_has_the_same_journal(notebook: Lab) -> None:
    code = 'let n = 0\nrepeat 3:\n  n = n + 1\nlet x = exec "echo {n}"\nlet m = n\n'
    histories = []
    for debugged in (True, False):
        assert notebook.client.run("%reset").status == "ok"
        if debugged:
            notebook.start()
            notebook.set_breakpoints(code, 3, 5)
            cell = notebook.run(code)
            for line in (3, 3, 3, 5):
                notebook.stopped(line)
                notebook.resume()
            assert notebook.finish(cell)["status"] == "ok"
            notebook.body("disconnect")
        else:
            assert notebook.client.run(code).status == "ok"
        (display,) = notebook.client.run("%history").displays
        histories.append(re.sub(r"\[\d+\] *", "[n] ", display))
    assert histories[0] == histories[1]


LOOPS = {
    "prose": ("let n = 0\nlet m = 0\nloop:\n  n = n + 1\n  if n > 10:\n    m = n\n", "let at = [n, m]\noutput at\n"),
    "flat": ("let n = 0\nloop:\n  n = n + 1\n", "output n\n"),
    "vvm": ("%%vvm\nn = 0\nm = 0\nwhile true:\n  n = n + 1\n  if n > 10:\n    m = n\n", "%%vvm\n[n, m]\n"),
}


@pytest.mark.parametrize("kind", LOOPS)
def test_an_interrupted_debugged_loop_is_restored_without_a_debugger(notebook: Lab, kind: str) -> None:
    code, ask = LOOPS[kind]
    notebook.start()
    notebook.client.run('let before = exec "true"')
    cell = notebook.run(code)
    notebook.client.until(cell, lambda message: message["msg_type"] == "execute_input")
    notebook.body("pause", threadId=1)
    notebook.event("stopped")
    notebook.resume()
    notebook.client.ask("interrupt_request", {}, "control")
    assert notebook.finish(cell)["ename"] == "KeyboardInterrupt"
    notebook.body("disconnect")
    before = notebook.client.run(ask).displays
    notebook.client.run("%reset")
    assert notebook.client.run("%restore").status == "ok"
    after = notebook.client.run(ask).displays
    assert after == before != []


# ---------------------------------------------------------------- runs to a line, steps back


def test_the_program_runs_to_a_line(notebook: Lab) -> None:
    notebook.start()
    code = "let n = 0\nrepeat 3:\n  n = n + 1\nlet end = n\n"
    path = notebook.body("dumpCell", code=code)["sourcePath"]
    assert notebook.body("runTo", source={"path": path}, line=3) == {"line": 3, "allThreadsContinued": False}
    cell = notebook.run(code)
    notebook.stopped(3)
    assert notebook.body("runTo", source={"path": path}, line=4)["allThreadsContinued"] is True
    notebook.stopped(4)
    assert notebook.value("n") == "3"
    notebook.resume()
    assert notebook.finish(cell)["status"] == "ok"


def test_a_step_back_restores_the_state_before_the_statement(notebook: Lab) -> None:
    notebook.start()
    log = notebook.client.directory / "log"
    log.write_text("")
    code = 'let a = exec "echo one | tee -a log"\nlet b = exec "echo two | tee -a log"\nlet c = "{a} {b}"\nlet d = 4\n'
    notebook.client.run("let earlier = 7")
    notebook.set_breakpoints(code, 4)
    cell = notebook.run(code)
    notebook.stopped(4)
    assert log.read_text() == "one\ntwo\n"
    notebook.body("stepBack", threadId=1)
    notebook.stopped(3, "step")
    assert "c" not in notebook.scopes()["Globals"]
    assert notebook.value("b").startswith('"two')
    assert notebook.value("earlier") == "7"
    path = notebook.body("dumpCell", code=code)["sourcePath"]
    notebook.body("stepBack", threadId=1, source={"path": path}, line=2)
    notebook.stopped(2, "step")
    assert set(notebook.scopes()["Globals"]) == {"earlier", "a"}
    assert log.read_text() == "one\ntwo\n", "earlier commands are not run again"
    notebook.resume()
    notebook.stopped(4)
    assert log.read_text() == "one\ntwo\ntwo\n", "later commands are run"
    notebook.resume()
    assert notebook.finish(cell)["status"] == "ok"
    assert notebook.client.run("output d").status == "ok"


def test_steps_back_reach_the_first_statement_of_a_run_without_commands(vvm: Lab) -> None:
    vvm.start()
    vvm.client.run("earlier = 7")
    code = "a = earlier\nb = a + 1\nc = b + 1\n"
    vvm.set_breakpoints(code, 3)
    cell = vvm.run(code)
    vvm.stopped(3)
    for line, names in ((2, {"earlier", "a"}), (1, {"earlier"})):
        vvm.body("stepBack", threadId=1)
        vvm.stopped(line, "step")
        assert set(vvm.scopes()["Globals"]) == names
    assert "first statement" in vvm.error_of("stepBack", threadId=1)
    vvm.resume()
    vvm.stopped(3)
    vvm.resume()
    assert vvm.finish(cell)["status"] == "ok"
    assert vvm.client.run("c").displays[-1].endswith("9")


def test_a_step_back_leaves_a_branch_and_a_try(notebook: Lab) -> None:
    notebook.start()
    code = 'let x = exec "echo x"\nparallel:\n  one = do:\n    try:\n      let a = 1\n      let b = 2\n    finally:\n      exec "touch never"\n  two = exec "sleep 60"\n'
    notebook.set_breakpoints(code, 6)
    cell = notebook.run(code)
    notebook.stopped(6)
    path = notebook.body("dumpCell", code=code)["sourcePath"]
    notebook.body("stepBack", threadId=1, source={"path": path}, line=2)
    notebook.stopped(2, "step")
    assert not (notebook.client.directory / "never").exists(), "the abandoned branches run nothing"
    notebook.client.ask("interrupt_request", {}, "control")
    assert notebook.finish(cell)["ename"] == "KeyboardInterrupt"
    assert notebook.client.run("output x").displays[-1].endswith("x")


def test_cells_run_after_an_interrupt_that_follows_a_step_back(notebook: Lab) -> None:
    notebook.start()
    code = 'let x = exec "echo x"\nlet y = 2\nlet z = 3\n'
    notebook.set_breakpoints(code, 3)
    cell = notebook.run(code)
    notebook.stopped(3)
    notebook.body("stepBack", threadId=1)
    notebook.stopped(2, "step")
    notebook.client.ask("interrupt_request", {}, "control")
    assert notebook.finish(cell)["ename"] == "KeyboardInterrupt"
    assert notebook.client.run('exec "echo {x}!"').text() == "x!\n"
    assert notebook.client.run('exec "echo more"').text() == "more\n"


def interrupt_a_step_back(notebook: Lab, code: str, line: int) -> None:
    """Step back from a line of a cell, and interrupt while the earlier cell, which sets `n`, is repeated."""
    notebook.start()
    assert notebook.client.run("let n = 0\nrepeat 40000:\n  n = n + 1").status == "ok"
    notebook.set_breakpoints(code, line)
    cell = notebook.run(code)
    notebook.stopped(line)
    notebook.body("stepBack", threadId=1)
    notebook.client.ask("interrupt_request", {}, "control")
    assert notebook.finish(cell)["ename"] == "KeyboardInterrupt"


def test_an_interrupted_step_back_loses_no_name(notebook: Lab) -> None:
    code = 'let x = exec "echo x >> ran; echo x"\nlet y = 2\nlet z = 3\n'
    interrupt_a_step_back(notebook, code, 3)
    assert "40000" in notebook.client.run("%bindings").displays[-1]
    cell = notebook.run(code)
    notebook.stopped(3)
    notebook.resume()
    assert notebook.finish(cell)["status"] == "ok"
    assert Path(notebook.client.directory, "ran").read_text() == "x\n", "its command is not run again"
    assert notebook.client.run('%bindings\nexec "echo {x}{n}!"').text() == "x40000!\n"


@pytest.mark.parametrize("last", ["%back c1", 'exec "echo {n}"\n%reset'])
def test_back_and_reset_work_after_an_interrupted_step_back(notebook: Lab, last: str) -> None:
    interrupt_a_step_back(notebook, "let y = 2\nlet z = 3\n", 2)
    ran = notebook.client.run(last)
    assert ran.status == "ok", ran.error
    assert "reset" not in last or ran.text() == "40000\n"


def test_answers_are_shown_as_markdown_and_not_requested_twice(notebook: Lab) -> None:
    script = 'one: ["# first <img src=x onerror=alert(1)>", other]\ntwo: second\n'
    Path(notebook.client.directory, "answers.yaml").write_text(script)
    assert notebook.client.run("%provider scripted answers.yaml").status == "ok"
    notebook.start()
    code = 'agent bob:\n  persist: true\n  prompt: "be bob"\nlet a = session: bob\n  prompt: "one"\nlet b = resume: bob\n  prompt: "two"\nlet c = 3\n'
    notebook.set_breakpoints(code, 8)
    cell = notebook.run(code)
    notebook.stopped(8)
    shown = notebook.body("richInspectVariables", variableName="a", frameId=1)["data"]["text/markdown"]
    assert shown.startswith("<code>a</code>: text from session\n\n# first")
    assert "<img" not in shown
    notebook.body("stepBack", threadId=1)
    notebook.stopped(6, "step")
    assert set(notebook.scopes()["Globals"]) == {"a"}
    notebook.resume()
    notebook.stopped(8)
    assert notebook.scopes()["Globals"]["a"].startswith('"# first'), "the agent has the same memory and answer"
    notebook.resume()
    assert notebook.finish(cell)["status"] == "ok"


# ---------------------------------------------------------------- VVM


def test_vvm_has_closures_steps_and_evaluation(vvm: Lab) -> None:
    vvm.start()
    code = (
        "k = 10\ndef outer(x):\n  def add(y):\n    return x + y + k\n  z = add(1)\n  return z\nr = outer(3)\nlast = r\n"
    )
    vvm.set_breakpoints(code, 7)
    cell = vvm.run(code)
    vvm.stopped(7)
    vvm.resume("stepIn")
    vvm.stopped(3, "step")
    vvm.resume("next")
    vvm.stopped(5, "step")
    vvm.resume("stepIn")
    assert [f["name"] for f in vvm.stopped(4, "step")] == ["add", "outer", "cell"]
    scopes = vvm.scopes()
    assert (scopes["Locals"], scopes["Closure"]["x"]) == ({"y": "1"}, "3")
    assert vvm.value("x + y + k") == "14"
    assert vvm.value("outer(1)", frame=3) == "12"
    vvm.resume("stepOut")
    vvm.stopped(6, "step")
    vvm.resume("stepOut")
    vvm.stopped(8, "step")
    vvm.resume()
    assert vvm.finish(cell)["status"] == "ok"


def test_vvm_modules_can_be_debugged(vvm: Lab) -> None:
    Path(vvm.client.directory, "tools.vvm").write_text("base = 5\ndef add(x):\n  return x + base\nexport add\n")
    vvm.start()
    code = 'from "./tools.vvm" import add\nr = add(1)\n'
    path = vvm.body("setBreakpoints", source={"path": "tools.vvm"}, breakpoints=[{"line": 1}])
    assert path["breakpoints"][0]["verified"] is False
    vvm.set_breakpoints(code, 2)
    cell = vvm.run(code)
    frames = vvm.stopped(None)
    if frames[0]["source"]["name"].endswith("tools.vvm"):
        assert [f["line"] for f in frames] == [1, 1]
        vvm.resume()
        frames = vvm.stopped(2)
    vvm.resume("stepIn")
    frames = vvm.stopped(3, "step")
    assert [f["name"] for f in frames] == ["add", "cell"]
    assert vvm.value("x + base") == "6"
    vvm.resume()
    assert vvm.finish(cell)["status"] == "ok"


def test_vvm_has_conditions_and_stops_at_errors(vvm: Lab) -> None:
    vvm.start("uncaught errors")
    code = "n = 0\nwhile n < 5:\n  if n == 3:\n    m = n\n  n = n + 1\nbad = missing\n"
    vvm.set_breakpoints(code, {"line": 4, "condition": "n == 3"})
    cell = vvm.run(code)
    vvm.stopped(4)
    assert vvm.value("n") == "3"
    vvm.resume()
    assert "missing" in vvm.event("stopped")["text"]
    vvm.resume()
    assert vvm.finish(cell)["status"] == "error"
