"""Commands and their values: truncated output (A2), standard input and variables (A3), data (A4), results in arrays (A5)."""

from __future__ import annotations

import pytest
from machine.fakes import Reply, World, lines
from machine.test_preview import previews

from prose_kernel.runtime.values import ExecText

CUT = 'let log = exec "big"'
BIG = {"big": Reply("[1, 2]\n" * 10_000)}


@pytest.mark.parametrize(
    "use",
    [
        "for x in log:\n  output y = x",
        'let y = log | map: "a"',
        "let y = log | filter: true",
        "let y = log | reduce(a, b): a",
        "let y = log | pmap: item",
        "parallel for x in log:\n  output y = x",
        "let y = log[0]",
        "let y = log.name",
        'let y = log == "a"',
        'let y = "Log: {log}"',
        'let y = ["{both.log}"]',
        'let y = log + "!"',
        "let y = log - 1",
        "let y = log + 1",
        "let y = [1, 2][log]",
        'repeat log:\n  exec "date"',
        "let y = [log] == [1]",
        "let y = log < 3",
        'exec "echo {log}"',
        'let d = "x"\nexec "echo {both.log}"',
        'exec "wc"\n  stdin: log',
        'exec "wc"\n  env: { log }',
        'exec "wc"\n  stdin: { log }',
    ],
)
async def test_a2_truncated_output_is_not_used_as_a_value(use: str) -> None:
    w = World(commands_say=dict(BIG))
    error = await w.fail(lines(CUT, "let both = { log }", *use.split("\n")))
    assert error.code == "E220"
    assert error.message == (
        "the value is cut: it holds only the first 30,000 characters of 70,000 bytes that the command printed"
    )
    assert error.hint == "to keep all of it, write `max-output: 70000` below the `exec`"
    assert w.commands.ran == ["big"]


async def test_a2_truncated_output_may_be_shown_and_passed_to_a_session_with_a_note() -> None:
    w = World(commands_say=dict(BIG))
    await w.run(lines(CUT, "output shown = log", 'session "Read {log}"', 'session "Look"', "  context: log"))
    assert (await w.fail('throw "It printed {log}"')).message.startswith("It printed [1, 2]")
    assert len(w.store.text("shown")) == 30_000
    note = "[`log` is cut: only the first 30,000 characters of 70,000 bytes of the command's output]"
    assert w.sessions.tasks[0].endswith("\n\n" + note)


async def test_a3_max_output_raises_and_lowers_the_limit() -> None:
    w = World(commands_say={"big": Reply("x\n" * 50_000), "small": Reply("abcdef")})
    await w.run(
        lines(
            'let a = exec "big"',
            "  max-output: 100000",
            'let b = exec "small"',
            "  max-output: 3",
            "for x in a:",
            "  let y = x",
        )
    )
    assert (len(w.store.text("a")), w.store.text("b")) == (100_000, "abc")
    assert [r.max_output for r in w.commands.requests] == [100_000, 3]


async def test_a3_the_strict_profile_ignores_the_new_properties() -> None:
    w = World(commands_say={"big": Reply("x" * 40_000)})
    await w.run(
        lines(
            'let A = "b"',
            'let log = exec "big"',
            "  max-output: 3",
            "  stdin: A",
            "  env: { A }",
            '  format: "csv"',
            '  timeout: "9s"',
        ),
        profile="strict",
    )
    (request,) = w.commands.requests
    assert (request.max_output, request.stdin, request.env, request.timeout) == (30_000, None, {}, 9)
    assert w.value("log") == "x" * 30_000


async def test_a3_stdin_and_env_get_values_as_they_are() -> None:
    w = World()
    await w.run(
        lines(
            'let text = "a; b"',
            "let rows = [{ n: 1 }]",
            'exec "one"',
            "  stdin: text",
            "  env: { text, rows, N: 2, GONE: null }",
            'exec "two"',
            "  stdin: rows",
            'exec "three"',
        )
    )
    one, two, three = w.commands.requests
    assert (one.stdin, one.env) == ("a; b", {"text": "a; b", "rows": '[{"n":1}]', "N": "2", "GONE": ""})
    assert (two.stdin, two.env) == ('[{"n":1}]', {})
    assert (three.stdin, three.env, three.max_output) == (None, {}, 30_000)


@pytest.mark.parametrize(
    ("form", "printed", "expected"),
    [
        (None, '[{"a": 1}, {"a": 2}]\n', [{"a": 1}, {"a": 2}]),
        ("json", '{"a": [1, 2]}', [1, 2]),
        ("jsonl", '{"a": 1}\n\n{"a": 2}\n', [{"a": 1}, {"a": 2}]),
        ("csv", 'name,n\n"a, b",1\nc,2\n', [{"name": "a, b", "n": "1"}, {"name": "c", "n": "2"}]),
        ("lines", "- a\r\n\nb\n", ["- a", "", "b"]),
        ("lines", "", []),
    ],
)
async def test_a4_data_as_a_collection(form: str | None, printed: str, expected: list[object]) -> None:
    w = World(commands_say={"get": Reply(printed)})
    declared = [f'  format: "{form}"'] if form else []
    await w.run(lines('let rows = exec "get"', *declared, "let found = rows | map: item"))
    assert w.values("found") == [expected]
    assert w.store.text("rows") == printed


async def test_a4_paths_and_indexes() -> None:
    w = World(commands_say={"get": Reply('[{"a": {"b": 7}}]'), "csv": Reply("n,v\nx,1\n")})
    await w.run(
        lines(
            'let rows = exec "get"',
            "let b = rows[0].a.b",
            'let text = "b is {rows[0].a.b}"',
            'let c = exec "csv"',
            '  format: "csv"',
            "let v = c[0].v",
        )
    )
    assert w.values("b", "text", "v") == [7, "b is 7", "1"]


@pytest.mark.parametrize(
    ("form", "printed", "use", "code", "message"),
    [
        ("", '{"a": 1,\n "b" 2}', "rows.b", "E138",
         "the output of the command is text, not JSON: expecting ':' delimiter at line 2, column 6 of the data"),
        ("", "plain text", "rows[0]", "E138",
         "the output of the command is text, not JSON: expecting value at line 1, column 1 of the data"),
        ("json", "[1,", "rows[0]", "E209", "the output is not JSON: expecting value at line 1, column 4 of the data"),
        ("json", "[1, NaN]", "rows[0]", "E209", "the output is not JSON: unexpected `NaN` at line 1, column 5 of the data"),
        ("jsonl", '{"a": 1}\n{"a" 2}\n', "rows[0]", "E209",
         "the output is not JSONL: expecting ':' delimiter at line 2, column 6 of the data"),
        ("csv", "a,b\n1,2\n3\n", "rows[0]", "E209",
         "the output is not CSV: 1 value for 2 columns at line 3, column 1 of the data"),
        ("csv", "a,a\n1,2\n", "rows[0]", "E209",
         "the output is not CSV: two columns are called `a` at line 1, column 3 of the data"),
    ],
)  # fmt: skip
async def test_a4_text_that_does_not_parse_is_an_error_with_its_location(
    form: str, printed: str, use: str, code: str, message: str
) -> None:
    w = World(commands_say={"get": Reply(printed)})
    declared = [f'  format: "{form}"'] if form else []
    error = await w.fail(lines('let rows = exec "get"', *declared, f"let x = {use}"))
    assert (error.code, error.message) == (code, message)


# ---------------------------------------------------------------- A5


async def test_a5_results_inside_arrays_and_objects_are_references_with_their_metadata() -> None:
    from prose_kernel.storage.bindings import render

    w = World(commands_say={"a": Reply("one\n"), "b": Reply("two\n", stderr="careful")})
    await w.run(
        lines(
            'let a = exec "a"',
            'let b = exec "b"',
            "let all = [a, { b }]",
            'let each = ["a", "b"] | map:',
            '  exec "{item}"',
            "let par = parallel:",
            '  exec "a"',
            '  z = exec "b"',
        )
    )
    values = {name: w.machine.bindings()[name].value for name in ("all", "each", "par")}

    def stored(name: str) -> object:
        from prose_kernel.storage.bindings import stored as as_stored

        return as_stored(values[name])

    def at(name: str) -> dict[str, str]:
        return {"$ref": f"bindings/{name}.md"}

    assert stored("all") == [at("a"), {"b": at("b")}]
    assert stored("each") == [at("anon_001"), at("anon_002")]
    assert stored("par") == {"_1": at("anon_003"), "z": at("z")}
    kept = render(w.store.kept["anon_002"])
    assert "exit_code: 0\nstderr: careful\n" in kept and kept.endswith("---\n\ntwo\n")


async def test_a5_a_result_whose_name_was_rebound_is_stored_in_a_separate_file() -> None:
    w = World(commands_say={"one": Reply("1\n"), "two": Reply("2\n")})
    await w.run(
        lines("let all = []", 'for c in ["one", "two"]:', '  let r = exec "{c}"', "  all = all + [r]", "let n = all")
    )
    from prose_kernel.storage.bindings import stored

    value = w.machine.bindings()["n"].value
    assert stored(value) == [{"$ref": "bindings/anon_001.md"}, {"$ref": "bindings/r.md"}]
    assert w.store.text("anon_001") == "1\n"
    assert isinstance(value, list) and [part.text for part in value if isinstance(part, ExecText)] == ["1\n", "2\n"]


async def test_a5_destructured_replies_of_another_program_leave_a_file_for_each_name() -> None:
    w = World(files={"./lib.prose": 'output a = session "A"\noutput b = session "B"\n'})
    await w.run(lines('use "./lib.prose" as lib', "let { a, b } = lib()"))
    assert (w.store.text("a"), w.store.text("b")) == ("<A>", "<B>")


async def test_a5_the_source_of_an_element_is_the_statement_in_the_program() -> None:
    w = World()
    await w.run(lines("do:", '  let x = ["p"] | map:', '    exec "{item}"', '      timeout: "3s"'))
    assert w.store.kept["anon_001"].source == 'let x = ["p"] | map:\n  exec "{item}"\n    timeout: "3s"'


async def test_a5_trailing_newlines_are_the_same_in_every_form_of_a_value() -> None:
    from prose_kernel.runtime.values import verbatim

    w = World(commands_say={"a": Reply("one\n\n")})
    await w.run(lines('let a = exec "a"', "let all = [a]", 'let t = "x\\n"'))
    found = {name: w.machine.bindings()[name].value for name in ("a", "all", "t")}
    assert w.store.text("a") == "one\n\n" and w.store.text("t") == "x\n"
    expected = {"a": "one\n\n", "all": ["one\n\n"], "t": "x\n"}
    assert {name: verbatim(value) for name, value in found.items()} == expected


async def test_a30_pipefail_in_the_program_overrides_the_settings() -> None:
    text = lines('exec "one"', 'exec "two"', "  pipefail: true", 'exec "three"', "  pipefail: false", '  cwd: "/"')
    for setting in (False, True):
        w = World()
        w.machine.host.pipefail = setting
        await w.run(text)
        assert [r.pipefail for r in w.commands.requests] == [setting, True, False]
        assert [p.command and p.command.pipefail for p in await previews(w, text)] == [setting, True, False]
    await w.run(text, profile="strict")
    assert [r.pipefail for r in w.commands.requests][3:] == [True, True, True]
