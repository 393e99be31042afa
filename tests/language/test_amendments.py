"""Amendments to the reference that a program's text decides: A1, and A3 and A4 before a run."""

from __future__ import annotations

import itertools

import pytest

from prose_kernel.language.diagnostics import Profile
from prose_kernel.language.openprose import compile_source
from prose_kernel.language.openprose.program_interface import KnownAgent, KnownNames, Variable
from prose_kernel.language.source import Source
from prose_kernel.runs import languages

_HEADERS = {
    "if": "if **tests passed well**:",
    "for": 'for x in ["a"]:',
    "repeat": "repeat 2:",
    "loop": "loop (max: 2):",
    "try": "try:",
}


def found(text: str, profile: Profile = "default") -> list[tuple[str, int, int]]:
    return [(d.code, d.line, d.column) for d in compile_source(Source.of(text), profile=profile).diagnostics]


@pytest.mark.parametrize("profile", ["default", "strict"])
@pytest.mark.parametrize("word", _HEADERS)
def test_a1_a_statement_below_an_empty_body_was_meant_to_be_in_it(word: str, profile: Profile) -> None:
    text = f'{_HEADERS[word]}\n\nexec "make publish"\n'
    (error,) = compile_source(Source.of(text), profile=profile).diagnostics
    assert (error.code, error.line, error.column) == ("E147", 1, 1)
    assert error.message == f"the body of `{word}` is empty"
    assert error.hint == f'indent line 3 by two spaces to put it under "{word}"'


@pytest.mark.parametrize("word", ["parallel", "do"])
def test_a1_elsewhere_it_is_a_warning_with_the_same_hint(word: str) -> None:
    (warning,) = compile_source(Source.of(f'{word}:\nexec "a"\n')).diagnostics
    assert (warning.code, warning.hint) == ("W120", f'indent line 2 by two spaces to put it under "{word}"')


@pytest.mark.parametrize(("header", "line"), [("elif **it is red now**:", 3), ("else:", 3)], ids=["elif", "else"])
def test_a1_later_arms_count_too(header: str, line: int) -> None:
    text = f'if **it is green**:\n  exec "a"\n{header}\nexec "b"\n'
    assert found(text) == [("E147", line, 1)]


@pytest.mark.parametrize("header", ["catch as e:", "finally:"])
def test_a1_parts_of_try_count_too(header: str) -> None:
    assert found(f'try:\n  exec "a"\n{header}\nexec "b"\n') == [("E147", 3, 1)]


@pytest.mark.parametrize(
    "text",
    [
        'if **tests passed well**:\n  # later\nexec "a"\n',  # a comment fills the body
        'do:\nexec "a"\n',
        'parallel:\nexec "a"\n',
        'block f:\nexec "a"\n',
        'do:\n  if **tests passed well**:\nexec "a"\n',  # another column
        "if **tests passed well**:\n",  # nothing below
        'if **tests passed well**:\nelse:\n  exec "a"\n',  # an arm, no statement
    ],
)
def test_a1_other_empty_bodies_are_a_remark(text: str) -> None:
    assert [code for code, _, _ in found(text)] == ["W120"]


def test_a1_what_follows_from_the_missing_indentation_is_not_reported() -> None:
    arms = 'if **it is green**:\nexec "a"\nelif **it is red now**:\nexec "b"\nelse:\nexec "c"\n'
    assert found(arms) == [("E147", 1, 1)]
    assert found('try:\nexec "a"\ncatch as e:\nexec "b"\n') == [("E147", 1, 1)]


def test_a1_a_header_that_could_not_be_read_is_one_error() -> None:
    assert found('if tests pass:\nexec "a"\n') == [("E004", 1, 10)]


_PROPERTIES = 'let x = "a"\nexec "wc"\n  stdin: x\n  env: { x, N: 1 }\n  max-output: 500\n  format: "lines"\n  display: "{x}.png"\n'


def test_a3_the_new_properties_are_known_in_the_default_profile_only() -> None:
    assert found(_PROPERTIES) == []
    strict = [item for item in found(_PROPERTIES, "strict") if item[0] == "W005"]
    assert strict == [("W005", line, 3) for line in (3, 4, 5, 6, 7)]


def test_a3_names_in_stdin_and_env_are_checked() -> None:
    assert found('exec "ls"\n  stdin: gone\n  env: { lost }\n') == [("E131", 2, 10), ("E131", 3, 10)]
    assert found('exec "ls"\n  display: "{gone}.png"\n') == [("E053", 2, 13)]


def test_display_is_formatted_completed_and_renamed_like_other_properties() -> None:
    text = 'let x = "a"\nexec "ls"\n    display:   "{x}.png"\n'
    compiled = compile_source(Source.of(text))
    language = languages.default()
    assert language.format_program(compiled.program) == 'let x = "a"\nexec "ls"\n  display: "{x}.png"\n'
    names = language.index(compiled.program, compiled.source)
    assert [one.start for one in names.occurrences] == [4, text.index("{x}") + 1]
    assert "display" in language.words().properties


def test_a3_the_safe_form_of_w051_has_no_findings() -> None:
    assert found('let x = "a"\nexec "echo \\"$x\\""\n  env: { x }\nexec "wc"\n  stdin: x\n') == []


def test_a3_escapes_of_the_shell_are_not_a_finding_in_a_long_command() -> None:
    assert found('exec """\necho \\$HOME \\(a\\) \\033[1m \\`x\\`\n"""\n') == []
    assert found('exec """\necho \\q\n"""\n') == [("W104", 2, 6)]
    assert found('session """\necho \\$HOME\n"""\n') == [("W104", 2, 6)]


def test_a4_paths_and_indexes_of_output_are_decided_while_it_runs() -> None:
    text = 'let r = exec "cat rows.json"\nlet a = r[0].name\nlet b = r.name\n'
    assert found(text) == []
    strict = [item for item in found(text, "strict") if item[0] != "E004"]
    assert strict == [("E138", 2, 11), ("E138", 3, 11)]


def test_a4_exit_code_and_stderr_are_not_members_unless_the_output_is_declared() -> None:
    assert found('let r = exec "ls"\nlet a = r.exit_code\n') == [("E138", 2, 11)]
    assert found('let r = exec "ls"\n  format: "json"\nlet a = r.exit_code\n') == []


# ---------------------------------------------------------------- A49

_FIRST_LINES = ('session "x"', "session: a", 'let x = session "x"', "agent a:", 'exec "ls"', "gate g:", "resume: a")
_WORDS = ("model:", "prompt:", "context:", "retry:", "tools:", "permissions:", "unknown:", "budget:")
_DEEPER = ("word", "x: 1", "- item", '"text"', "[", "# remark")
_CONTINUATIONS = ("-> b", "|", "->", "| map:", '-> session "y"')


@pytest.mark.parametrize("head", _FIRST_LINES)
def test_a49_no_combination_of_lines_is_an_internal_error(head: str) -> None:
    combinations = itertools.product(_WORDS, _DEEPER, _CONTINUATIONS, (0, 2, 4))
    for named, deeper, continued, indent in combinations:
        found(f"{head}\n  {named}\n      {deeper}\n{' ' * indent}{continued}\nlet after = 1\n")


def test_a49_a_parallel_may_have_empty_parentheses() -> None:
    assert found('parallel ():\n  exec "a"\n') == []
    assert found('parallel ():\n  exec "a"\n', "strict") == [("E004", 1, 11)]


def test_a49_strict_objects_and_arrays_may_list_names() -> None:
    start = 'let a = session "x"\nlet b = session "y"\n'
    assert found(start + "let c = {a, b}\nlet d = [a, b]\n", "strict") == []
    assert found(start + "let c = {a, k: b}\n", "strict") == [("E004", 3, 13)]


def test_a49_a_session_with_an_agent_may_have_its_text_on_the_line() -> None:
    text = 'agent a:\n  prompt: "You write."\nlet x = session: a "Write."\n  retry: 2\n  backoff: 3\n'
    assert found(text) == []
    assert [f[:2] for f in found(text, "strict")] == [("E004", 3), ("E183", 5)]
    program = compile_source(Source(text)).program
    canonical = languages.default().format_program(program)
    assert 'session: a\n  prompt: "Write."\n  retry: 2\n  backoff: 3\n' in canonical
    assert found(text.replace("  retry", '  prompt: "Another."\n  retry')) == [("E009", 4, 3)]


def test_a49_a_list_may_have_a_line_for_each_element() -> None:
    text = 'let a = "x"\nlet b = "y"\nsession "s"\n  context:\n    - a\n    - b\n  permissions:\n    read:\n      - "*.md"\n'
    assert found(text) == []
    canonical = languages.default().format_program(compile_source(Source(text)).program)
    assert "context: [a, b]" in canonical and 'read: ["*.md"]' in canonical
    assert [f for f in found(text, "strict") if f[0] == "E004"] == [("E004", 5, 5), ("E004", 9, 7)]


@pytest.mark.parametrize("word", ["resume", "session", "if", "try", "parallel", "let"])
def test_a49_fmt_keeps_the_meaning_of_properties_on_the_line(word: str) -> None:
    program = compile_source(Source(f'session "x" {word}: a retry: 1\n')).program
    again = compile_source(Source(languages.default().format_program(program)))
    assert again.ok and set(again.program.items[0].value.properties) == set(program.items[0].value.properties)


@pytest.mark.parametrize(
    ("backoff", "codes"), [("0", []), ("2.5", []), ("300", []), ("301", ["E183"]), ("-1", ["E183"])]
)
def test_a49_backoff_may_be_seconds(backoff: str, codes: list[str]) -> None:
    assert [code for code, _, _ in found(f'session "x"\n  retry: 1\n  backoff: {backoff}\n')] == codes


CODES = [
    ("**the tests passed**", True),
    ("**tests succeeded**", True),
    ("**all tests pass**", True),
    ("**tests and lint failed**", True),
    ("**the exit code of tests is 0**", True),
    ("**tests did not exit with an error**", True),
    ("**`tests` failed** and x", True),
    ('**tests contains "3 failed"**', False),
    ("**tests shows that everything passed**", False),
    ("**tests is not empty**", False),
    ("**the smoketests passed**", False),
    ("**the review passed**", False),
]


@pytest.mark.parametrize(("condition", "warned"), CODES, ids=[condition for condition, _ in CODES])
def test_a30_a_condition_on_a_hidden_exit_code_is_a_warning(condition: str, warned: bool) -> None:
    head = 'let x = true\nlet tests = exec "pytest 2>&1 | tail -20"\n'
    assert found(f'{head}if {condition}:\n  exec "make"\n') == ([("W052", 3, 4)] if warned else [])


def test_a30_the_warning_names_the_ways_out_that_there_are() -> None:
    def hint(command: str, more: str = "", **options: bool) -> str | None:
        text = f'loop until **the tests passed** (max: 3):\n  let tests = exec "{command}"{more}\n'
        warnings = compile_source(Source.of(text), **options).diagnostics
        return next((d.hint for d in warnings if d.code == "W052"), None)

    piped, listed = hint("pytest | tail"), hint("pytest; echo")
    assert piped and "`pipefail: true`" in piped and "contains" in piped
    assert listed and "pipefail" not in listed and "contains" in listed
    assert hint("pytest") is None
    assert hint("pytest | tail", "\n    pipefail: true") is None
    assert hint("pytest | tail", pipefail=True) is None
    assert hint("pytest | tail", "\n    pipefail: false", pipefail=True) is not None
    assert hint("pytest; echo", pipefail=True) is not None


def test_a30_a_value_of_an_earlier_cell_counts_until_it_is_bound_again() -> None:
    known = KnownNames(variables={"tests": Variable("let", from_exec=True, hides_code=True)})

    def warned(text: str) -> bool:
        compiled = compile_source(Source.of(text), known=known, cell=True)
        return "W052" in {d.code for d in compiled.diagnostics}

    assert warned('if **the tests passed**:\n  exec "make"\n')
    assert not warned('loop until **the tests passed** (max: 2):\n  let tests = exec "pytest"\n')


def test_a30_the_property_takes_true_or_false_and_is_not_strict() -> None:
    assert found('exec "a | b"\n  pipefail: true') == found('exec "a | b"\n  pipefail: false') == []
    assert found('exec "a | b"\n  pipefail: "yes"') == [("E004", 2, 13)]
    assert found('exec "a | b"\n  pipefail: true', "strict") == [("W005", 2, 3)]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ('session: a\n  """x\n  y"""\n', [("E007", 1, 10), ("E004", 2, 3), ("E107", 2, 3)]),
        ('for i in [1]:\nexec "x"\n', [("E147", 1, 1), ("E004", 1, 11)]),
        ('if not 1 == 2:\nexec "x"\n', [("E147", 1, 1), ("E004", 1, 4)]),
    ],
)
def test_a49_strict_reports_mistakes_after_a_mistake(text: str, codes: list[tuple[str, int, int]]) -> None:
    assert sorted(found(text, "strict")) == sorted(codes)


def test_a49_agents_and_variables_of_earlier_cells_have_their_own_names() -> None:
    agent, variable = 'agent a:\n  prompt: "x"\n', 'let a = "x"\n'
    known = KnownNames(variables={"a": Variable("let")})
    assert [d.code for d in compile_source(Source(agent), known=known, cell=True).diagnostics] == ["E133"]
    known = KnownNames(agents={"a": KnownAgent()})
    assert [d.code for d in compile_source(Source(variable), known=known, cell=True).diagnostics] == ["E133"]
    assert compile_source(Source(agent), known=known, cell=True).ok


@pytest.mark.parametrize(
    ("lines", "codes"),
    [
        ("retry: 3\nbackoff: exponential", []),
        ('retry: "lost"\nbackoff: 2.5', []),
        ("retry: 0", [("E181", 2, 10)]),
        ("retry: often", [("E182", 2, 10)]),
        ("retry: 1.5", [("E182", 2, 10)]),
        ("retry: 11", [("W182", 2, 10)]),
        ("retry: 1\nbackoff: random", [("E183", 3, 12)]),
        ("backoff: linear", [("W183", 2, 3)]),
    ],
)
def test_a58_retry_of_a_command(lines: str, codes: list[tuple[str, int, int]]) -> None:
    text = 'exec "ls"\n' + "".join(f"  {line}\n" for line in lines.split("\n"))
    assert found(text) == codes
    assert {code for code, _, _ in found(text, "strict")} == {"W005"}


def test_a58_a_session_is_never_lost() -> None:
    assert found('session "x"\n  retry: lost\n') == [("E182", 2, 10)]


@pytest.mark.parametrize(
    ("needs", "codes"),
    [
        ("{ GPU: 1, memory: 0.5, ssd: true }", []),
        ("{ GPU: 0 }", ["E004"]),
        ("{ GPU: -1 }", ["E004"]),
        ("{ GPU: false }", ["E004"]),
        ('{ GPU: "one", ssd: null }', ["E004", "E004"]),
        ("{}", ["E004"]),
        ("GPU", ["E004"]),
        ('["GPU"]', ["E004"]),
    ],
)
def test_a58_needs_are_amounts_or_tags(needs: str, codes: list[str]) -> None:
    text = f'exec "ls"\n  needs: {needs}\n'
    assert [code for code, _, _ in found(text)] == codes
    assert {code for code, line, _ in found(text, "strict") if line == 2} >= {"W005"}
