"""Completion on half-typed cells, with nothing run yet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from notebook.recording import Recording
from scaling import assert_linear

from prose_kernel.language.diagnostics import Profile
from prose_kernel.language.openprose import completion
from prose_kernel.language.source import Source
from prose_kernel.language.word_catalogue import catalogue
from prose_kernel.notebook.cells import Cells
from prose_kernel.notebook.completion import complete
from prose_kernel.notebook.magics.registry import all_magics
from prose_kernel.runtime.asker import Unattended


@pytest.fixture
def cells(tmp_path: Path) -> Cells:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "guide.md").write_text("x")
    (tmp_path / "data.csv").write_text("x")
    (tmp_path / "review.prose").write_text("x")
    (tmp_path / ".hidden").write_text("x")
    return Cells(tmp_path, Unattended())


def offers(cells: Cells, text: str) -> set[str]:
    """The completions at `¦`."""
    cursor = text.index("¦") if "¦" in text else len(text)
    found = complete(cells, text.replace("¦", "", 1), cursor)
    return {match.text for match in found.matches}


ANSWER = 'let a = session "Ask"\n  output: { good: text, list: [{ name: text }] }\n'


@pytest.mark.parametrize(
    ("text", "wanted", "unwanted"),
    [
        ("se", {"session"}, {"exec"}),
        (ANSWER + "output x = a.", {"good", "list"}, {"session"}),
        (ANSWER + "output x = a.go", {"good"}, {"list"}),
        (ANSWER + "if a.", {"good", "list"}, {"session"}),
        (ANSWER + 'session "See {a.', {"good", "list"}, set()),
        (ANSWER + "for x in a.list:\n  let y = x.", {"name"}, {"good"}),
        (ANSWER + "for x in a.", {"good", "list"}, set()),
        ('session "Ask"\n  output: { good: ', {"text", "number", "integer", "boolean"}, {"exec"}),
        ('session "Ask"\n  output:\n    good: t', {"text"}, {"try"}),
        ("", {"exec", "session", "agent", "let", "use"}, {"elif", "catch", "option", "is"}),
        ("if x ", {"and", "or", "is"}, {"exec"}),
        ("for x ", {"in"}, {"exec", "and"}),
        ('session "x" -> ', {"session", "exec", "resume"}, {"let"}),
        ('exec "ls"\n  ', {"timeout", "cwd"}, {"exec", "let"}),
        ('if **x**:\n  exec "a"\nel', {"elif", "else"}, set()),
        ('try:\n  exec "a"\n', {"catch", "finally"}, {"elif"}),
        ("choice **x**:\n  ", {"option"}, {"exec"}),
        ("let x = ", {"exec", "session", "true", "parallel"}, {"agent", "use"}),
        ("let a = 1\n    let b = 2\nlet x = ", {"exec", "session", "true", "parallel"}, {"and", "is"}),
        ("let a = 1\n    let b = 2\n    let x = ", {"exec", "session", "true", "parallel"}, {"and", "is"}),
        ("let ", set(), {"exec", "x"}),
        ("agent writer:\n  model: ", {"sonnet", "opus", "haiku"}, {"exec"}),
        ("agent writer:\n  mo", {"model"}, {"on-fail"}),
        ('exec "ls"\n  on', {"on-fail"}, {"model"}),
        ('exec "ls"\n  on-fail: ', {'"throw"', '"continue"', '"ignore"'}, set()),
        ('exec "ls"\n  on-fail: "', {"throw", "continue", "ignore"}, {"30s"}),
        ('session "x"\n  ', {"context", "retry", "backoff", "timeout"}, {"on-fail", "cwd"}),
        ('session "x"\n  backoff: ', {"linear", "exponential"}, set()),
        ("agent writer:\n  model: opus\nsession: ", {"writer"}, {"exec"}),
        ("agent writer:\n  model: opus\nresume: w", {"writer"}, set()),
        ('block greet(name):\n  exec "a"\ndo ', {"greet"}, {"exec"}),
        ('let plan = 1\nsession "x"\n  context: ', {"plan"}, set()),
        ('let plan = 1\nsession "x"\n  context: [plan, ', {"plan"}, set()),
        ('let plan = 1\nexec "echo {pl¦}"', {"plan"}, set()),
        ("let plan = 1\nif **{pl", {"plan"}, set()),
        ('let plan = 1\nexec "echo pl', set(), {"plan"}),
        ("# let pl", set(), {"plan"}),
        ("gate deploy:\n  ", {"prompt", "allow", "on_reject", "timeout"}, {"model"}),
        ("parallel (", {'"all"', '"first"', '"any"', "on-fail", "count"}, set()),
        ("parallel (on-fail: ", {'"fail-fast"', '"continue"', '"ignore"'}, set()),
        ("loop until **x** (m", {"max"}, set()),
        ("loop ", {"until", "while"}, {"elif"}),
        ("let xs = [1]\nlet y = xs | m", {"map"}, {"max"}),
        ('for item in items:\n  exec "{it', {"item"}, set()),
        ('use "./review.prose" as review\nlet r = re', {"review"}, set()),
        ("%bi", {"%bindings", "%binding"}, {"%agents"}),
        ("%gate ", {"approve", "reject"}, set()),
        ("%help ex", {"exec"}, set()),
        ("%provider ", {"auto", "human", "dry-run", "scripted", "replay", "anthropic", "ollama"}, {"first"}),
        ("%judge ", {"first", "only", "off", "human", "auto", "anthropic"}, {"scripted", "replay"}),
        ("%judge c", {"calibrate"}, {"why"}),
        ("%judge calibrate ", {"--least", "--only"}, {"human"}),
        ("%judge first ", {"human", "anthropic"}, {"only"}),
        ("%cassette ", {"--mode"}, set()),
        ("%cassette night --mode ", {"off", "auto", "record", "replay"}, {"--mode"}),
        ("%us", {"%usage"}, set()),
        ("%prompt se", {"session"}, {"gate"}),
        ("agent writer:\n  model: opus\n%prompt session: wri", {"writer"}, {"review"}),
        ("%cd ", {"docs/"}, {"data.csv"}),
        ("%run ", {"review.prose", "docs/"}, {"data.csv"}),
        ('exec "cat da', {"data.csv"}, {"docs/"}),
        ('exec "cat docs/', {"guide.md"}, {"data.csv"}),
        ('exec "ls"\n  cwd: "', {"docs/"}, {"data.csv"}),
        ('use "', {"review.prose", "docs/"}, {"data.csv", ".hidden"}),
        ('session "Write da', set(), {"data.csv"}),
    ],
)
def test_offers_fit_their_place(cells: Cells, text: str, wanted: set[str], unwanted: set[str]) -> None:
    found = offers(cells, text)
    assert wanted <= found
    assert not unwanted & found


def test_positions_count_code_points(cells: Cells) -> None:
    code = 'let 😀x = 1\nlet plan = 2\nlet s = "😀" + pl'
    found = complete(cells, code, len(code))
    assert code[found.start : found.end] == "pl"
    assert [m.text for m in found.matches] == ["plan"]


def test_any_cursor_position_is_fine(cells: Cells) -> None:
    code = 'agent a:\n  prompt: """x {y}\n"""\nlet z = session: a # done\n'
    for cursor in [-5, *range(len(code) + 1), len(code) + 10]:
        found = complete(cells, code, cursor)
        assert 0 <= found.start <= found.end <= len(code)
        cells.inspect(code, cursor)


def test_completion_in_a_large_cell_costs_what_its_size_says(cells: Cells) -> None:
    def work(count: int) -> Callable[[], None]:
        code = "".join(f'let name{i} = "text {i}" # remark\n' for i in range(count)) + "let x = nam"

        def ask() -> None:
            assert len(complete(cells, code, len(code)).matches) == count

        return ask

    assert_linear(work, 250)


@pytest.mark.parametrize(("begin", "end"), [("", ""), ('let a = "', ""), ('let a = "', '"\nlet x = f(a, '), ("f(", "")])
def test_completion_after_a_long_word_costs_what_its_size_says(cells: Cells, begin: str, end: str) -> None:
    def work(length: int) -> Callable[[], None]:
        code = begin + "x" * length + end

        def ask() -> None:
            complete(cells, code, len(code))

        return ask

    assert_linear(work, 4000)


@pytest.mark.parametrize(
    "above", ['let a = "ab"\n' * 10_000, f'let a = "{"x" * 100_000}"\n', '"""\nlet\n"""\n' * 10_000]
)
@pytest.mark.parametrize("line", ["let b = a", "se", "parallel:\n  s", 'let b = ["a", a'])
def test_completion_after_a_long_text_offers_what_it_offers_alone(cells: Cells, above: str, line: str) -> None:
    def found(code: str) -> list[str]:
        return [offer.text for offer in complete(cells, code, len(code)).matches]

    assert found(above + line) == found(f"let a = 1\n{line}" if "let a" in above else line)


@pytest.mark.parametrize(("quotes", "inner"), [('"', "{x} "), ('"""', "{x}\n")])
def test_completion_after_long_strings_does_not_parse_them(
    cells: Cells, monkeypatch: pytest.MonkeyPatch, quotes: str, inner: str
) -> None:
    parsed, parser = list[int](), completion.Parser

    def recorded(source: Source, profile: Profile) -> object:
        parsed.append(len(source.text))
        return parser(source, profile)

    monkeypatch.setattr(completion, "Parser", recorded)
    code = f"let abc = {quotes}{inner * 30_000}{quotes}\nlet b = a"
    assert "abc" in {offer.text for offer in complete(cells, code, len(code)).matches}
    assert 0 < max(parsed) < 100


@pytest.mark.parametrize("end", ["", "  ", "  let x = ", "el", "catch:\n  let a = 1\n"])
@pytest.mark.parametrize(
    "head",
    [
        "if c == 1:\n",
        "if c == 1:\n  let a = 1\nelif c == 2:\n",
        "try:\n",
        "try:\n  let a = 1\ncatch as e:\n",
        "block b(x):\n",
        "for x in [1]:\n",
        'if ["a",\n    b] == """\nlet\n""":\n',
        "if c == 1:\n  for x in [1]:\n    let a = 1\n",
    ],
)
def test_completion_in_and_below_a_long_block_offers_what_a_short_one_does(cells: Cells, head: str, end: str) -> None:
    def found(lines: int) -> list[str]:
        code = head + "  let a = b + 1\n" * lines + end
        return [offer.text for offer in complete(cells, code, len(code)).matches]

    assert found(6_000) == found(1)


@pytest.mark.parametrize("outer", ["", "  "])
def test_completion_after_two_long_arms_knows_what_they_belong_to(cells: Cells, outer: str) -> None:
    def found(lines: int) -> list[str]:
        body = f"{outer}  let a = b + 1\n" * lines
        code = f"{'if c == 1:' if outer else ''}\n{outer}try:\n{body}{outer}catch:\n{body}{outer}fin"
        return [offer.text for offer in complete(cells, code, len(code)).matches]

    assert found(6_000) == found(1) == ["finally"]


def test_a_line_with_too_much_code_is_not_parsed(cells: Cells) -> None:
    """It kept the kernel busy for many seconds."""
    line = "let ab = [" + '"a", ' * 100_000 + "tr"
    assert [offer.text for offer in complete(cells, "let ab = [tr", 12).matches] == ["true"]
    assert complete(cells, line, len(line)).matches == ()


@pytest.mark.parametrize("word", sorted({*catalogue("openprose").keywords, *catalogue("openprose").properties}))
def test_every_word_has_documentation_with_an_example(cells: Cells, word: str) -> None:
    found = cells.inspect(word, len(word))
    assert found is not None
    assert word.split("-")[0] in found.data["text/plain"]
    assert "```prose" in found.data["text/markdown"]


@pytest.mark.parametrize("name", sorted(all_magics()))
def test_every_magic_has_documentation(cells: Cells, name: str) -> None:
    found = cells.inspect(f"%{name} x", 1)
    assert found is not None
    assert f"%{name}" in found.data["text/plain"]


@pytest.mark.parametrize("text", ["nothing|", "", "# exec|", '"exec|"', "  |  "])
def test_nothing_is_known_about_nothing(cells: Cells, text: str) -> None:
    cursor = text.find("|")
    assert cells.inspect(text.replace("|", ""), max(cursor, 0)) is None


@pytest.mark.parametrize("line", ["%%", "%%v", "%%t", "%%nothing", "%%vvm", "%%task --"])
def test_the_first_line_of_a_cell_is_completed(cells: Cells, line: str) -> None:
    found = [first for first in ("%%prose", "%%task", "%%vvm") if first.startswith(line) and first != line]
    assert sorted(offers(cells, line)) == found


def test_an_unknown_home_has_no_paths(cells: Cells) -> None:
    for code in ("%cd ~nobody-of-this-name/", "%run ~nobody-of-this-name/x", 'exec "ls ~nobody-of-this-name/'):
        assert offers(cells, code) == set()


# ---------------------------------------------------------------- VVM


@pytest.mark.parametrize(
    ("text", "wanted", "unwanted"),
    [
        ("%%vvm\nma", {"match", "map"}, {"session"}),
        ("%%vvm\nagent writer(mo", {"model="}, {"retry="}),
        ("%%vvm\nagent writer()\nx = @wr", {"writer"}, set()),
        ('%%vvm\nagent writer(model="o', {"opus"}, {"sonnet"}),
        ("%%vvm\ntopic = 1\nx = ?`about {to", {"topic"}, set()),
        ("%%vvm\ntopic = 1\nx = 3-to", {"topic"}, set()),
        ('%%vvm\nfrom "./', {"team.vvm", "docs/"}, {"data.csv"}),
        ('%%vvm\nfrom "./docs/', set(), {"team.vvm"}),
        ("%%vvm\n# ma", set(), {"match"}),
        ("%%vvm\n%bi", {"%bindings"}, set()),
    ],
)
def test_a_cell_of_vvm_offers_words_of_vvm(cells: Cells, text: str, wanted: set[str], unwanted: set[str]) -> None:
    (cells.cwd / "team.vvm").write_text("")
    found = offers(cells, text)
    assert wanted <= found
    assert not unwanted & found


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("%%vvm\nx = pm¦ap([1], f)", "pmap"),
        ("%%vvm\nagent a(mem¦ory={})", "memory"),
        ("%%vvm\nx = @a `t`(ret¦ry=1)", "agent call"),
        ("%%vvm\nmat¦ch x:", "match"),
    ],
)
def test_a_word_of_vvm_is_described(cells: Cells, text: str, shown: str) -> None:
    found = cells.inspect(text.replace("¦", ""), text.index("¦"))
    assert found is not None
    assert shown in found.data["text/plain"] and "```vvm" in found.data["text/markdown"]


async def test_names_of_earlier_cells_are_offered_with_their_fields(cells: Cells) -> None:
    cell = '%%vvm\nplan = {title: "A", steps: {first: 1}}\ndef shorten(text):\n  return text'
    output = Recording()
    await cells.run(cell, output, live=False)
    assert "error" not in output.kinds, output.calls
    assert {"plan", "shorten"} <= offers(cells, "%%vvm\nx = ")
    assert offers(cells, "%%vvm\nx = plan.steps.") == {"first"}
    assert offers(cells, "%%vvm\nx = @shorten `{plan.") == {"title", "steps"}
    assert "text=" in offers(cells, "%%vvm\nx = shorten(")
    function = cells.inspect("%%vvm\nx = shorten", len("%%vvm\nx = short"))
    assert function is not None and "def shorten(text):" in function.data["text/plain"]
    await cells.close()


async def test_a49_outputs_of_an_imported_program_are_offered(cells: Cells) -> None:
    (cells.cwd / "review.prose").write_text('output findings = "x"\noutput sources = [1]\n')
    await cells.run(
        'use "./review.prose"\nlet r = review()\nlet o = {name: 1, "two words": 2}\n', Recording(), live=False
    )
    assert offers(cells, "output x = r.") == {"findings", "sources"}
    assert offers(cells, "let s = review()\nif s.fi") == {"findings"}
    assert offers(cells, 'session "See {o.') == {"name"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("block f(a):\n  let b = 1\nlet c = 2\noutput x = ", {"c"}),
        ("block f(a):\n  let b = 1\nlet c = 2\nblock g(d):\n  let e = 3\n  let x = ", {"c", "d", "e"}),
        ("block f(a):\n  let b = 1\n\n  let x = ", {"a", "b"}),
    ],
)
def test_a49_names_of_a_block_are_offered_only_in_it(cells: Cells, text: str, names: set[str]) -> None:
    assert offers(cells, text) & set("abcdefg") == names


@pytest.mark.parametrize(
    "line", ["%", "%a.b", "%%x y", "%run", "%gate  ", "%judge calibrate --", "%%prose %", "x.", "x..", "%prompt x."]
)
def test_a49_completion_never_raises(cells: Cells, line: str) -> None:
    for cursor in range(len(line) + 1):
        complete(cells, line, cursor)
