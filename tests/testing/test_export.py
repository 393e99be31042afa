"""`%export`, `prose export` and `prose notebook`: conversion of notebooks to programs and back."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from notebook.recording import Recording
from testing.books import code, error, markdown, prose, write

from prose_kernel.errors import UsageError
from prose_kernel.language.source import Source
from prose_kernel.notebook.cells import Cells
from prose_kernel.notebook.exporting import ExportedCell, as_cells, as_program
from prose_kernel.runs import languages
from prose_kernel.runs.languages import LANGUAGES, Language
from prose_kernel.runs.provenance import Opening
from prose_kernel.runtime.asker import Unattended

OPENPROSE, VVM = LANGUAGES["openprose"], LANGUAGES["vvm"]
CORPUS = Path(__file__).parents[1] / "corpus" / "run"


def no_file(name: str) -> tuple[str, Language]:
    raise AssertionError(name)


def joined(*texts: str, language: Language = OPENPROSE) -> str:
    return as_program([ExportedCell(text, f"cell {n}") for n, text in enumerate(texts, 1)], language, no_file).text


def refusal(*texts: str, language: Language = OPENPROSE) -> str:
    with pytest.raises(UsageError) as caught:
        joined(*texts, language=language)
    return str(caught.value)


# ---------------------------------------------------------------- one program of cells


def test_a_repeated_declaration_becomes_an_assignment() -> None:
    text = joined("const x = 1\nlet y = 1", "let x = 2", "const y = x\noutput o = 1", "output o = y")
    assert text == "let x = 1\nlet y = 1\n\nx = 2\n\ny = x\noutput o = 1\n\no = y\n"
    assert OPENPROSE.compile(Source.of(text)).ok
    assert joined("x = 1", "x = 2", "export x", language=VVM) == "x = 1\n\nx = 2\n\nexport x\n"


def test_a_repeated_import_appears_once() -> None:
    Path("a.prose").write_text("output x = 1\n")
    assert joined('use "./a.prose" as a', 'use "./a.prose" as a\nlet r = a()').count("\nuse") == 0


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (('agent a:\n  model: haiku', "agent a:\n  model: opus"), "cell 2: this cannot be one program: The agent `a`"),
        (("block b:\n  exec \"ls\"", "block b:\n  exec \"pwd\""), "cell 2: this cannot be one program: The block `b`"),
        (("let {a, b} = {a: 1, b: 2}", "let {a, b} = {a: 2, b: 1}"), "cell 2: this cannot be one program: `a` is already"),
        (("let x = nothing_there",), "cell 1: this cannot be one program: "),
        (("let x = 1\nif x == 1:\n  return 2", "let y = 2"), "cell 1: `return 2` ends only this cell"),
        (("%restore", "let x = 1"), "cell 1: %restore brings back another state"),
        (("let x = 1", "%%vvm\ny = 2"), "a program is in one (OpenProse: cell 1; VVM: cell 2)"),
    ],
)  # fmt: skip
def test_cells_that_cannot_be_one_program_are_refused_with_the_reason(texts: tuple[str, ...], message: str) -> None:
    assert message in refusal(*texts)


def test_magics_become_comments_options_and_statements() -> None:
    Path("part.prose").write_text("let p = 1\n")
    parts = [
        "%provider scripted\n%cassette name --mode replay\n%input who=Ada\n%gate approve send",
        "%bindings\nlet x = 1\n%cd 'a b'\n",
        "%run part.prose",
        "%plan\nlet never = 2",
        "x?",
        "%pip install thing",
        "%%task\nsleep 1",
    ]

    def read(name: str) -> tuple[str, Language]:
        return Path(name).read_text(), OPENPROSE

    made = as_program([ExportedCell(text, f"cell {n}") for n, text in enumerate(parts, 1)], OPENPROSE, read)
    assert made.text == (
        "# prose run --provider scripted --cassette name --cassette-mode replay --input who=Ada --yes send FILE\n\n"
        "# %provider scripted\n# %cassette name --mode replay\n# %input who=Ada\n# %gate approve send\n\n"
        "# %bindings\nlet x = 1\n# %cd 'a b'\nexec \"cd 'a b'\"\n\n"
        "# %run part.prose\nlet p = 1\n\n"
        "# %plan\n# let never = 2\n\n# x?\n\n# %pip install thing\n\n# %%task\n# sleep 1\n"
    )
    assert made.remarks == ("cell 6: %pip install thing is left out", "cell 7 is left out: %%task isn't a statement")


def test_cells_above_a_reset_are_left_out() -> None:
    assert joined("let x = 1", "let y = 2\n%reset\nlet x = 3", "let z = x") == "let x = 3\n\nlet z = x\n"


# ---------------------------------------------------------------- the magic


def run(*cells: tuple[str, str], language: Language = OPENPROSE) -> Recording:
    """Run cells, each with its id, and return the output of the last one."""

    async def go() -> Recording:
        here = Cells(Path.cwd(), Unattended(), language)
        for name, text in cells:
            output = Recording()
            await here.run(text, output, live=False, opening=Opening.of(text, name or None, None))
        await here.close()
        return output

    return asyncio.run(go())


def test_export_shows_and_writes_the_cells_so_far() -> None:
    shown = run(("a", "let x = 1"), ("b", "output y = x"), ("c", "%export"))
    assert shown.texts == ["let x = 1\n\noutput y = x"]
    written = run(("a", "%input n=1\nlet x = 1"), ("b", "output y = x"), ("c", "%export out.prose"))
    assert "prose run --input n=1 out.prose" in written.texts[0]
    assert Path("out.prose").read_text().endswith("let x = 1\n\noutput y = x\n")


def test_a_cell_that_runs_again_replaces_itself_and_a_failed_cell_is_left_out() -> None:
    shown = run(
        ("a", "let x = 1"),
        ("b", "let y = x"),
        ("a", "let x = 2"),
        ("c", 'exec "exit 3"'),
        ("b", "let y = nothing"),
        ("", "let z = 1"),
        ("", "let z = 2"),
        ("d", "%export"),
    )
    assert shown.texts == [
        'let x = 2\n\nlet y = x\n\n# cell 3 is left out: it failed\n# exec "exit 3"\n\nlet z = 1\n\nz = 2'
        "\n\ncell 3 is left out: it failed"
    ]


def test_a_reset_removes_earlier_cells_from_the_export() -> None:
    assert run(("a", "let x = 1"), ("b", "%reset\nlet y = 2"), ("c", "%export")).texts == ["let y = 2"]
    assert run(("a", "let x = 1"), ("b", "%reset"), ("c", "%export")).texts == ["No cell of this run has finished yet."]


def test_a_cell_that_uses_values_of_python_is_not_exported() -> None:
    async def go() -> Recording:
        here, output = Cells(Path.cwd(), Unattended(), OPENPROSE), Recording()
        for opening in (
            Opening("a", 1, "let x = 1"),
            Opening("b", 2, "%prose input n=1\n%prose bindings"),
            Opening("c", 3, "y = 2", VVM),
        ):
            assert opening.code
            here.remember(opening, opening.language, failed=False)
        here.remember(Opening("c", 3, "let y = x"), None, failed=False)
        here.remember(Opening("e", 4, "%prose export"), None, failed=True)
        await here.run("%export", output, live=False)
        here.remember(Opening("d", 5, "let z = n", given={"n": "digest"}), None, failed=False)
        await here.run("%export", output, live=False)
        await here.close()
        return output

    output = asyncio.run(go())
    assert output.calls[0][1].data["text/plain"] == (
        "# prose run --input n=1 FILE\n\nlet x = 1\n\n# %prose input n=1\n# %prose bindings\n\nlet y = x"
    )
    assert output.calls[1][1].evalue == "%export: cell 4 takes n from Python, which no program can"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%export out.txt", "the name of a program in OpenProse ends with .prose"),
        ("%export a b", "too many words"),
        ("%export there.prose", "%export: there.prose exists"),
        ("%export there.prose/x.prose", "cannot be written"),
    ],
)
def test_a_file_that_cannot_be_written_is_an_error(line: str, message: str) -> None:
    Path("there.prose").write_text("mine\n")
    shown = run(("a", "let x = 1"), ("b", line))
    assert message in shown.calls[-1][1].evalue
    assert Path("there.prose").read_text() == "mine\n"
    run(("a", "let x = 1"), ("b", "%export there.prose --force"))
    assert Path("there.prose").read_text() == "let x = 1\n"


# ---------------------------------------------------------------- the commands


def test_an_exported_notebook_runs_as_a_program_with_the_same_outputs(capfd: pytest.CaptureFixture[str]) -> None:
    fails = code('exec "exit 3"', error("ExecError", "x"), tags=("raises-exception",))
    book = write(
        Path("b.ipynb"),
        markdown("# Title\n\nWords."),
        code('let x = "one"'),
        fails,
        code('let x = "two"\noutput y = x'),
    )
    assert prose("export", book) == 0
    seen = capfd.readouterr()
    assert seen.out == (
        "# # Title\n#\n# Words.\n\nlet x = \"one\"\n\n"
        "# cell 2 is left out: it is expected to fail\n# exec \"exit 3\"\n\nx = \"two\"\noutput y = x\n"
    )  # fmt: skip
    assert seen.err == "cell 2 is left out: it is expected to fail\n"
    assert prose("export", book, "-o", "b.prose") == 0
    assert prose("run", "b.prose") == prose("run", book) == 0
    assert capfd.readouterr().out == "b.prose is written\ny: two\ny: two\n"
    assert prose("export", book, "-o", "b.prose") == 0
    assert capfd.readouterr().out == "b.prose is up to date\n"
    assert prose("export", book, "-o", "b.vvm") == 2
    Path("b.prose").write_text("mine")
    assert prose("export", book, "-o", "b.prose") == 2
    assert prose("export", book, "-o", "b.prose", "--force") == 0


def test_cells_of_python_are_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    book = write(Path("p.ipynb"), code("print(1)"), code("%%prose\nlet x = 1"), kernel="python3")
    assert prose("export", book) == 0
    assert capfd.readouterr().out == "# cell 1 is left out: it is in another language\n# print(1)\n\nlet x = 1\n"


@pytest.mark.parametrize("name", ["a.prose", "a.vvm"])
def test_comments_of_a_program_become_markdown_cells(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    text = "# # Title\n#\n# Words 🦉\n\nx = 1\n\n# More words\ny = x\n# NBVAL_SKIP\n#!not words\nz = y\n"
    text = (
        text
        if name == "a.vvm"
        else text.replace("x = 1", "let x = 1").replace("y = x", "let y = x").replace("z = ", "let z = ")
    )
    Path(name).write_text(text)
    assert prose("notebook", name) == 0
    book: Any = nbformat.read("a.ipynb", as_version=4)
    nbformat.validate(book)
    language = languages.of_file(name)
    assert book.metadata.kernelspec.name == book.metadata.language_info.name == language.magic
    assert [cell.cell_type for cell in book.cells] == ["markdown", "code", "markdown", "code"]
    assert book.cells[0].source == "# Title\n\nWords 🦉"
    before = Path("a.ipynb").read_bytes()
    assert prose("notebook", name) == 0
    assert Path("a.ipynb").read_bytes() == before
    capfd.readouterr()
    assert prose("export", "a.ipynb") == 0
    assert capfd.readouterr().out == text


@pytest.mark.parametrize(("name", "text"), [("a.prose", "let = 1\n"), ("a.vvm", "x = = 1\n"), ("gone.prose", None)])
def test_a_program_with_errors_does_not_become_a_notebook(
    name: str, text: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        Path(name).write_text(text)
    assert prose("notebook", name) == 2
    assert not Path("a.ipynb").exists()


# ---------------------------------------------------------------- conversion in both directions

STATEMENTS = {
    "openprose": (
        *("let a = 1", "let b = a", "let c = b\nlet d = c", 'exec "echo {a}"', "output e = d"),
        *("if a == 1:\n  exec \"true\"\n# in between\n  let g = 2", "block f(x):\n  # inside\n  output x\n\n  exec \"pwd\""),
        *('let h = """\n# no words\n\n%magic\n"""', "do f(a)", "agent k:\n  model: haiku", "session: k"),
    ),
    "vvm": (
        *("a = 1", "b = a", "def f(x):\n  # inside\n  return g(x)", "def g(x):\n\n  return x", "export a", "c = f(b)"),
        *('agent k(prompt="x")', "d = `# no words\n\n%magic`", "if a == 1:\n  e = 1\n# in between\nelse:\n  e = 2"),
    ),
}  # fmt: skip
COMMENTS = ("# words", "# # Heading", "#", "#no words", "# a\n#\n# b", "# NBVAL_SKIP", "# 🦉 שלום\t%x")


@st.composite
def programs(draw: st.DrawFn, language: Language) -> str:
    kinds = st.one_of(st.sampled_from(STATEMENTS[language.name]), st.sampled_from(COMMENTS))
    parts = draw(st.lists(kinds, max_size=10, unique=True))
    return "".join(part + "\n" * draw(st.integers(1, 3)) for part in parts).rstrip("\n") + "\n"


@pytest.mark.parametrize("language", [OPENPROSE, VVM], ids=lambda one: one.name)
@given(data=st.data())
@settings(max_examples=120)
def test_a_program_survives_conversion_to_cells_and_back(language: Language, data: st.DataObject) -> None:
    """Each cell uses only names from cells above it, as in a kernel."""
    text = data.draw(programs(language))
    compiled = language.compile(Source.of(text))
    if not compiled.ok:
        return
    pieces = as_cells(compiled.program, compiled.source, language)
    parts = [
        ExportedCell(one.text, "x", is_text=one.kind == "markdown", gap=one.prose.get("gap", min(number, 1)))
        for number, one in enumerate(pieces)
    ]
    assert as_program(parts, language, no_file).text.strip("\n") == text.strip("\n")
    so_far = ""
    for piece in pieces:
        if piece.kind == "code":
            so_far += piece.text + "\n"
            assert language.compile(Source.of(so_far)).ok, so_far


DIFFERENT = {"collection-not-3"}  # its output has its line number
SAMPLE = [path for path in sorted(CORPUS.glob("*.json")) if path.stem not in DIFFERENT][::36]


@pytest.mark.parametrize("case", SAMPLE, ids=lambda path: path.stem)
def test_a_program_and_its_notebook_have_the_same_outputs(
    case: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blank line between all statements of a program makes each of them a cell."""
    expected = json.loads(case.read_text())
    text = case.with_suffix(".prose").read_text()
    compiled = OPENPROSE.compile(Source.of(text))
    in_profile = expected.get("strict") or "--profile" in expected.get("args", ())
    if expected.get("exit") or in_profile or not compiled.program.items:
        return
    for item in reversed(compiled.program.items[1:]):
        start = item.span.start
        text = text[:start] + ("\n" if text[start - 1] == "\n" else "") + text[start:]
    for name, value in expected.get("env", {}).items():
        monkeypatch.setenv(name, value)
    results = []
    for form in ("program", "notebook"):
        place = tmp_path / form / "here"
        place.mkdir(parents=True)
        monkeypatch.chdir(place)
        for name, content in {**expected.get("files", {}), "p.prose": text}.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(content)
        options = list(expected.get("args", []))
        if "script" in expected:
            (place / "script.yaml").write_text(json.dumps(expected["script"]))
            options += ["--provider", "scripted", "--script", "script.yaml"]
        if form == "notebook":
            assert prose("notebook", "p.prose") == 0
        capfd.readouterr()
        file = "p.prose" if form == "program" else "p.ipynb"
        status = prose("run", file, "--format", "json", *options)
        result = json.loads(capfd.readouterr().out.splitlines()[-1])
        results.append((status, result["outputs"], result["bindings"]))
    assert json.loads(json.dumps(results[0]).replace("/program/", "/notebook/")) == json.loads(json.dumps(results[1]))


def test_a49_exported_commands_run_in_a_shell(tmp_path: Path) -> None:
    """Names and values with blanks and quotes are quoted, and a script is a separate option."""
    magics = "%input topic=two \"words\"\n%provider scripted 'my replies.yaml'\n%cassette rec --mode auto\n"
    program = 'input topic: "What?"\nlet a = session "Say {topic}"\noutput said = a\n'
    made = as_program([ExportedCell(magics + program, "cell 1")], OPENPROSE, no_file)
    (tmp_path / "my program.prose").write_text(made.text)
    (tmp_path / "my replies.yaml").write_text('"Say two \\"words\\"": "it works"\n')
    command = made.text.partition("\n")[0].removeprefix("# prose run ").replace(" FILE", " 'my program.prose'")
    script = f"{sys.executable} -c 'from prose_kernel.cli.main import main; raise SystemExit(main())' run {command}"
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "said: it works" in done.stdout
