from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from prose_kernel.errors import ExecError, StateError
from prose_kernel.runtime.ports import Binding, CommandResult, Key
from prose_kernel.runtime.structured_text import split_source, split_value
from prose_kernel.runtime.values import ErrorValue, ExecText, Reference
from prose_kernel.storage import bindings

identifiers = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}(-[a-z0-9]+)?", fullmatch=True)
awkward = st.sampled_from(
    ["---", "\n---\n", "```", "````\n", "\n", "\r\n", "\r", "|", "(empty)", " ", "source:\n", "x: y"]
)
texts = st.lists(st.one_of(awkward, st.text(st.characters(exclude_categories=["Cs"]), max_size=6)), max_size=8).map(
    "".join
)
results = st.builds(
    CommandResult,
    outcome=st.just("exited"),
    exit_code=st.integers(0, 255),
    stdout=texts,
    stderr=texts,
    stdout_truncated=st.booleans(),
    stderr_truncated=st.booleans(),
    timed_out=st.booleans(),
    signal=st.none() | st.just("SIGKILL"),
)


INDENTED_LINE_END = re.compile(r"(\r\n|\r|\n)  ")


def parse_fields(text: str) -> dict[str, str]:
    """Parse the `name: value` lines of metadata or of an error; `(empty)` means the empty text."""
    found: dict[str, str] = {}
    lines = iter(text.split("\n"))
    line = next(lines, None)
    while line is not None:
        name, colon, value = line.partition(": ")
        line = next(lines, None)
        if value == "|":
            block: list[str] = []
            while line is not None and line.startswith("  "):
                block.append(line)
                line = next(lines, None)
            found[name] = INDENTED_LINE_END.sub(r"\1", "\n".join(block))[2:]
        elif colon:
            found[name] = "" if value == "(empty)" else value
    return found


def metadata(text: str) -> dict[str, str]:
    return parse_fields(split_value(split_source(text)[3])[0])


def binding(value: object, **changes: object) -> Binding:
    given = Binding(Key("rev"), "let", value, 'let rev = exec "git rev-parse --short HEAD"')  # type: ignore[arg-type]
    return structs.replace(given, **changes)  # type: ignore[arg-type]


def test_a_binding_file_matches_the_reference() -> None:
    value = ExecText("4f2a91c\n", CommandResult("exited", 0, stdout="4f2a91c\n"))
    assert (
        bindings.render(binding(value))
        == """# rev

kind: let

source:
```prose
let rev = exec "git rev-parse --short HEAD"
```

exit_code: 0
stderr: (empty)

---

4f2a91c
"""
    )


def test_execution_id_and_label_are_below_the_kind() -> None:
    text = bindings.render(binding("hello", key=Key("anon_001", 3, (1,)), label="draft"))
    assert text.startswith("# anon_001\n\nkind: let\nexecution_id: 3\nlabel: draft\n\nsource:\n")
    parsed = bindings.parse(text)
    assert (parsed.name, parsed.execution_id) == ("anon_001", 3)
    assert text.endswith("```\n\n---\n\nhello")


@pytest.mark.parametrize(
    ("stderr", "lines"),
    [
        ("", "stderr: (empty)"),
        ("oops", "stderr: oops"),
        ("oops\n", "stderr: oops"),
        (" oops", "stderr: |\n   oops"),
        ("a\n---\nb\n", "stderr: |\n  a\n  ---\n  b"),
        ("a\n\nb", "stderr: |\n  a\n  \n  b"),
        ("|", "stderr: |\n  |"),
        ("(empty)", "stderr: |\n  (empty)"),
        ("10%\r---\r20%", "stderr: |\n  10%\r  ---\r  20%"),
    ],
)
def test_stderr_forms(stderr: str, lines: str) -> None:
    value = ExecText("", CommandResult("exited", 1, stderr=stderr))
    assert f"exit_code: 1\n{lines}\n\n---\n\n" in bindings.render(binding(value))


def test_flags_appear_only_when_they_apply() -> None:
    result = CommandResult(
        "timed_out", 124, stdout_truncated=True, stderr_truncated=True, timed_out=True, signal="SIGKILL", stderr="e"
    )
    text = bindings.render(binding(ExecText("x", result)))
    expected = "stderr: e\nstdout_truncated: true\nstderr_truncated: true\ntimed_out: true\nsignal: SIGKILL\n\n---\n"
    assert expected in text


def test_a_failure_under_ignore_keeps_only_stdout() -> None:
    result = CommandResult("exited", 3, stdout="x", stderr="bad", stderr_truncated=True)
    text = bindings.render(binding(ExecText("x", result, bare=True)))
    assert metadata(text) == {}
    assert text.endswith("```\n\n---\n\nx")


def test_members_that_are_stored_bindings_are_references() -> None:
    reference = Reference(Key("plan"), lambda: "not read", ".prose/runs/r/bindings/plan.md")
    value = [1, "ü", {"plan": reference}, None, True, ExecText("a\n", CommandResult("exited", 0))]
    assert bindings.body(value) == '[1,"ü",{"plan":{"$ref":".prose/runs/r/bindings/plan.md"}},null,true,"a\\n"]'


@pytest.mark.parametrize(("value", "text"), [(None, "null"), (True, "true"), (2.5, "2.5"), (-3, "-3"), ("", "")])
def test_scalars_are_json(value: object, text: str) -> None:
    assert bindings.parse(bindings.render(binding(value))).value == text


def test_an_error_is_kept_as_its_fields() -> None:
    fields = {
        "type": "ExecError",
        "code": "E203",
        "message": "command failed: exit code 2",
        "line": 3,
        "exit_code": 2,
        "stderr": "a\n---\nb\n",
        "stdout": "",
        "timed_out": False,
    }
    parsed = bindings.parse(bindings.render(binding(ErrorValue(fields, ExecError("x")))))
    assert parsed.kind == "const"
    assert parsed.value.startswith("type: ExecError\ncode: E203\nmessage: command failed: exit code 2\nline: 3\n")
    again = parse_fields(parsed.value)
    assert again["stderr"] == "a\n---\nb" and again["stdout"] == "" and again["timed_out"] == "false"


@given(
    name=identifiers,
    execution_id=st.none() | st.integers(1, 10**9),
    label=st.none() | identifiers,
    kind=st.sampled_from(["input", "output", "let", "const"]),
    source=texts,
    value=texts,
)
def test_text_round_trip(
    name: str, execution_id: int | None, label: str | None, kind: str, source: str, value: str
) -> None:
    made = binding(value, key=Key(name, execution_id), kind=kind, source=source, label=label)
    text = bindings.render(made)
    parsed = bindings.parse(text)
    assert parsed == bindings.BindingFile(name, kind, value, execution_id)  # type: ignore[arg-type]
    head, _, found, _ = split_source(text)
    assert (parse_fields("\n".join(head)).get("label"), found) == (label, source)
    assert bindings.value_of(text) == value
    assert text == bindings.header(made) + value


@given(result=results, source=texts)
def test_exec_round_trip(result: CommandResult, source: str) -> None:
    text = bindings.render(binding(ExecText(result.stdout, result), source=source))
    facts = metadata(text)
    assert bindings.parse(text).value == result.stdout
    assert split_source(text)[2] == source
    assert facts["exit_code"] == str(result.exit_code)
    assert facts["stderr"] == result.stderr.removesuffix("\n")
    flags = {
        "stdout_truncated": result.stdout_truncated,
        "stderr_truncated": result.stderr_truncated,
        "timed_out": result.timed_out,
    }
    assert {name for name in flags if name in facts} == {name for name, on in flags.items() if on}
    assert facts.get("signal") == result.signal


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(value=st.lists(json_values) | st.dictionaries(texts, json_values))
def test_json_round_trip(value: object) -> None:
    assert json.loads(bindings.parse(bindings.render(binding(value))).value) == value


@pytest.mark.parametrize(
    "text", ["", "hello", "# x\n\nkind: let\n", "# x\n\nkind: odd\n\nsource:\n```prose\na\n```\n---\nv"]
)
def test_a_file_that_is_not_a_binding_is_refused(text: str) -> None:
    with pytest.raises(StateError):
        bindings.parse(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("just an answer\n---\nwith a rule", "just an answer\n---\nwith a rule"),
        ("# notes\n\nkind: let\n\n---\n\nbody\n---\nmore", "body\n---\nmore"),
        ("# A heading\n\nand no separator", "# A heading\n\nand no separator"),
        ("# notes\n\nsource:\n```prose\nx\n```\n\n---", ""),
    ],
)
def test_values_of_files_in_another_format_by_a_session(text: str, value: str) -> None:
    assert bindings.value_of(text) == value
