"""`prose test NOTEBOOK`: what is compared, what is found, how it is said, and what `--update` writes."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import nbformat
import pytest
from models.people import ScriptedPerson
from notebook.recording import Recording
from testing.books import code, error, prose, stream, words, write

from prose_kernel.errors import UsageError
from prose_kernel.notebook.cells import Cells
from prose_kernel.runs import languages
from prose_kernel.testing.notebook_source import read
from prose_kernel.testing.notebooks import test_notebook as tested_notebook
from prose_kernel.testing.options import Options
from prose_kernel.testing.outputs import Rules, comparable, compare
from prose_kernel.views.test_results import difference

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def findings(path: Path, options: Options | None = None) -> list[str]:
    """All findings of a test, each with the name of its cell."""
    tested = tested_notebook(path.resolve(), path.name, options or Options())
    return [f"{outcome.name}: {outcome.text()}" for outcome in tested.outcomes if outcome.findings]


def updated(path: Path) -> Path:
    tested_notebook(path.resolve(), path.name, Options(update=True))
    return path


# ---------------------------------------------------------------- what is found


def test_a_notebook_is_as_committed_after_it_was_updated() -> None:
    book = write(
        Path("a.ipynb"), words("# words"), code('let x = 1\nexec "echo hi"', count=None), code("let y = x", count=None)
    )
    assert [line.partition(":")[0] for line in findings(book)] == ["notebook"]
    assert findings(updated(book)) == []
    nbformat.validate(nbformat.read(book, as_version=4))
    (output,) = json.loads(book.read_text())["cells"][2]["outputs"]
    assert list(output) == sorted(output)  # as nbformat writes it: one that Jupyter saves again is the same
    assert not Path(".prose").exists()


def test_a_difference_names_the_cell_the_statement_and_what_differs() -> None:
    book = write(Path("a.ipynb"), code("let a = 1"), code('exec "echo one"\nexec "echo two"', stream("one\nthree\n")))
    assert findings(book)[1] == "\n".join(
        ["cell 2: line 2: stdout differs", '    exec "echo two"', "    ^", "    one", "  - three", "  + two"]
    )


def test_a_card_is_of_the_statement_that_bound_its_name() -> None:
    book = updated(write(Path("a.ipynb"), code('let a = 1\nlet b = 2\nlet c = 3\nexec "true"', count=None)))
    changed = json.loads(book.read_text().replace("let b = 2", "let b = 5"))
    book.write_text(json.dumps(changed))
    (found,) = findings(book)
    assert found.startswith("cell 1: line 2: display differs (text/html, text/plain)\n    let b = 5\n    ^\n")


def test_the_order_of_different_kinds_counts() -> None:
    book = updated(write(Path("a.ipynb"), code('exec "echo hi"\nlet x = 1\nlet y = 2\nexec "true"', count=None)))
    data = json.loads(book.read_text())
    data["cells"][0]["outputs"].reverse()
    book.write_text(json.dumps(data))
    (found,) = findings(book)
    assert "another order: the " in found


def test_how_stdout_and_stderr_mix_does_not_count() -> None:
    both = 'exec "echo a; echo b >&2; echo c"'
    book = write(Path("a.ipynb"), code(both, stream("b\n", "stderr"), stream("a\nc\n")))
    assert findings(book) == []


def test_an_unexpected_error_is_shown_with_its_line() -> None:
    book = write(Path("a.ipynb"), code('exec "echo ok"\nexec "exit 3"', stream("ok\n")))
    (found,) = findings(book)
    assert found.startswith(
        "cell 1: the cell failed, and it has no tag raises-exception\n  ExecError at line 2, column 1"
    )
    assert '    exec "exit 3"\n    ^' in found


def test_an_expected_error_that_did_not_come_is_found() -> None:
    """nbval passes a cell that is tagged and succeeds without outputs."""
    told = "\x1b[1mExecError\x1b[0m at line 2, column 1: exec failed with exit code 3 [E203]"
    saved = error("ExecError", "exec failed with exit code 3", told, '  exec "true"\n  ^')
    tagged = code('let x = 1\nexec "true"', saved, tags=("raises-exception",))
    silent = code("let y = 1", tags=("raises-exception",))
    assert findings(write(Path("a.ipynb"), tagged, silent)) == [
        "cell 1: line 2: the expected error did not come: ExecError: exec failed with exit code 3\n"
        '    exec "true"\n    ^',
        "cell 2: the cell is tagged raises-exception and did not fail",
    ]


def test_another_error_than_the_committed_one_is_found() -> None:
    saved = error("ExecError", "exec failed with exit code 3")
    book = write(Path("a.ipynb"), code('exec "exit 4"', saved, tags=("raises-exception",)))
    (found,) = findings(book)
    assert "the error differs: ExecError" in found
    assert "  - exec failed with exit code 3\n  + exec failed with exit code 4" in found


def test_cells_that_were_never_run_and_counts_out_of_order() -> None:
    book = write(
        Path("a.ipynb"),
        code('exec "echo a"', stream("a\n"), count=5),
        code('exec "echo b"', stream("b\n"), count=4),
        code('exec "echo c"', count=None),
        code("", count=None),
    )
    assert findings(book) == [
        "cell 3: the cell was never run: no outputs are committed that could be compared",
        "notebook: cell 2 was run before cell 1: their execution counts are 4 and 5",
    ]
    assert findings(updated(book)) == []
    assert [cell.count for cell in read(book).cells] == [1, 2, 3, None]


@pytest.mark.parametrize(
    ("line", "tags"), [("# NBVAL_IGNORE_OUTPUT", ()), ("  #  NBVAL_IGNORE_OUTPUT ", ()), ("", ("nbval-ignore-output",))]
)
def test_markers_and_tags_of_nbval_are_honoured(line: str, tags: tuple[str, ...]) -> None:
    ignored = code(f'{line}\nexec "date +%N"', stream("1\n"), tags=tags)
    skipped = code('# NBVAL_SKIP\nexec "touch ran"', stream("1\n"))
    raises = code('# NBVAL_RAISES_EXCEPTION\n# NBVAL_IGNORE_OUTPUT\nexec "exit 3"')
    assert findings(write(Path("a.ipynb"), ignored, skipped, raises)) == []
    assert not Path("ran").exists()


def test_a_marker_wins_over_a_tag_and_lax_compares_what_is_marked() -> None:
    checked = code('# NBVAL_CHECK_OUTPUT\nexec "echo a"', stream("b\n"), tags=("nbval-ignore-output",))
    other = code('exec "echo a"', stream("b\n"))
    book = write(Path("a.ipynb"), checked, other)
    assert len(findings(book)) == 2
    assert [found.partition(":")[0] for found in findings(book, Options(lax=True))] == ["cell 1"]


def test_a_sanitize_file_of_nbval_is_applied_to_both_sides() -> None:
    Path("s.cfg").write_text("[year]\nregex: [0-9]{4}\nreplace: YEAR\n")
    book = write(Path("a.ipynb"), code('exec "date +%Y"', stream("1868\n")))
    assert len(findings(book)) == 1
    assert findings(book, Options(rules=Rules(["s.cfg"]))) == []


@pytest.mark.parametrize("text", ["regex: [\nreplace: x\n", "regex: a\n", "regex: a\nreplace: \\9\n"])
def test_a_sanitize_file_that_makes_no_sense_is_a_usage_error(text: str) -> None:
    Path("s.cfg").write_text(text)
    with pytest.raises(UsageError, match=r"s\.cfg, line 1"):
        Rules(["s.cfg"])


def test_metadata_and_carriage_returns_take_no_part() -> None:
    book = updated(write(Path("a.ipynb"), code("let x = exec \"printf 'a\\\\rb\\\\n'\"\nlet y = 1", count=None)))
    data = json.loads(book.read_text())
    for output in data["cells"][0]["outputs"]:
        output["metadata"] = {"prose": {"seconds": 3}}
    book.write_text(json.dumps(data))
    assert findings(book) == []
    half, whole = [stream("10 %\r50 %\r100 %\n")], [stream("100 %\r\n")]
    assert compare(comparable(half, Rules()), comparable(whole, Rules())) == []
    long = "=" * 5_000_000  # costs are linear in the text: the time limit of a test would end this one otherwise
    assert (
        compare(comparable([stream(f"{long}\r1\n{long}")], Rules()), comparable([stream(f"1\n{long}")], Rules())) == []
    )


def test_images_widgets_and_json_of_a_bundle() -> None:
    def bundle(**data: object) -> list[dict[str, object]]:
        return [{"output_type": "display_data", "data": {name.replace("_", "/"): d for name, d in data.items()}}]

    def lines(one: list[dict[str, object]], other: list[dict[str, object]]) -> list[str]:
        found = compare(comparable(one, Rules()), comparable(other, Rules()))
        return [line for finding in found for line in finding.lines()]

    png = {"image_png": "aGVsbG8="}
    assert lines(bundle(**png), bundle(image_png="aGVsbG8=\n")) == []
    assert lines(bundle(**png), bundle(image_png="aGVsbG8gd29ybGQ=")) == [
        "display differs (image/png)",
        "  - 5 bytes",
        "  + 11 bytes",
    ]
    assert (
        lines(bundle(**png), bundle(text_plain="x"))[0]
        == "the display has other types: text/plain instead of image/png"
    )
    json_data = {"application_json": {"a": [1]}}
    assert lines(bundle(**json_data), bundle(application_json={"a": [2]}))[0] == "display differs (application/json)"
    widget = [{"output_type": "display_data", "data": {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}}}]
    other = [{"output_type": "display_data", "data": {"application/vnd.jupyter.widget-view+json": {"model_id": "2"}}}]
    assert lines(widget, other) == []


def test_a_difference_never_is_long() -> None:
    long = difference("a\n" * 100_000, "b\n" * 100_000)
    assert len(long) < 50
    assert max(map(len, difference("x" * 1_000_000 + "a", "x" * 1_000_000 + "b"))) < 300
    many = [{"output_type": "display_data", "data": {"text/plain": str(n)}} for n in range(5000)]
    assert len(compare(comparable(many, Rules()), comparable(many[1:], Rules()))) <= 3


# ---------------------------------------------------------------- recordings, non-interactive


def record(name: str, *prompts: str) -> None:
    """A recording of sessions that a person answers."""

    async def run() -> None:
        cells = Cells(Path.cwd(), ScriptedPerson(*(f"answer to {prompt}" for prompt in prompts)), languages.default())
        cells.overrides = {"provider": "human", "cassette_mode": "record", "cassette": name}
        for number, prompt in enumerate(prompts):
            assert await cells.run(f'let s{number} = session "{prompt}"', Recording(), live=False) is None
        await cells.close()

    asyncio.run(run())


def test_recordings_answer_and_what_is_never_used_is_found() -> None:
    record("a", "first", "second")
    book = updated(write(Path("a.ipynb"), code('let s0 = session "first"', count=None)))
    (found,) = findings(book)
    assert found.startswith("recording: cassettes/a.jsonl, line ")
    assert found.endswith("is recorded and never used (prose cassette prune removes it)")
    idle = updated(write(book, code("let x = 1", count=None)))
    assert findings(idle) == ["recording: cassettes/a.jsonl: no cell uses any record of it"]
    whole = updated(
        write(book, code('let s0 = session "first"', count=None), code('let s1 = session "second"', count=None))
    )
    assert findings(whole) == []


def test_a_prompt_that_has_changed_is_named_with_what_differs_and_is_not_saved() -> None:
    record("a", "Write about toads")
    book = updated(write(Path("a.ipynb"), code('let s0 = session "Write about toads"', count=None)))
    book.write_text(book.read_text().replace("toads\\", "frogs\\"))
    before = book.read_bytes()
    found = findings(book, Options(update=True))
    assert "nothing is recorded for session c1/1/s0" in found[0]
    assert '"Write about frogs" instead of "Write about toads"' in found[0]
    assert book.read_bytes() == before


def test_no_provider_is_called_whatever_a_notebook_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-real-key")
    book = write(Path("a.ipynb"), code('%provider anthropic\n%cassette --mode off\nlet x = session "hello"'))
    (found,) = findings(book)
    assert "anthropic is not called: this run is offline" in found


def test_no_one_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    book = write(Path("a.ipynb"), code('input name: "Who?"\nlet x = name'))
    (found,) = findings(book)
    assert "the cell failed" in found


def test_a_cell_that_never_ends_is_interrupted_and_the_rest_does_not_run() -> None:
    busy = "let n = 0\nloop (max: 1000000000):\n  n = n + 1"
    for source in ('exec "sleep 600"', busy):
        book = write(Path("a.ipynb"), code(source), code('exec "touch ran"'))
        said = "cell 1: the cell did not end within 0.3 s and was interrupted; later cells did not run"
        assert findings(book, Options(seconds=0.3)) == [said]
        assert not Path("ran").exists()


def test_a_test_works_outside_the_main_thread() -> None:
    """pytest-xdist and thread pools: no signal handler can be set there."""
    book = updated(write(Path("a.ipynb"), code('exec "echo hi"', count=None)))
    found: list[str] = ["none"]

    def run() -> None:
        found[:] = findings(book)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == []


# ---------------------------------------------------------------- the file


def test_update_writes_nothing_but_what_changed(capsys: pytest.CaptureFixture[str]) -> None:
    book = write(Path("a.ipynb"), code('exec "echo a"', stream("b\n")), code('exec "echo ü"', stream("ü\n")))
    before = book.read_text()
    assert prose("test", "--update", book) == 0
    assert book.read_text() == before.replace('"b\\n"', '"a\\n"')
    said = capsys.readouterr().out
    assert "UPDATED a.ipynb, cell 1\n  line 1: stdout differs" in said
    assert "1 updated, 1 passed in 1 file" in said
    stamp = book.stat().st_mtime_ns
    assert prose("test", "--update", book) == 0
    assert book.stat().st_mtime_ns == stamp


@pytest.mark.parametrize("layout", [{"indent": 2}, {"indent": "\t"}, {"separators": (",", ":")}, {"crlf": True}])
def test_update_keeps_the_layout_of_the_file(layout: dict[str, object]) -> None:
    book = write(Path("a.ipynb"), code('exec "echo a"', stream("b\n")))
    crlf = layout.pop("crlf", False)
    text = json.dumps(json.loads(book.read_text()), **layout) + "\n"  # type: ignore[arg-type]
    book.write_bytes((text.replace("\n", "\r\n") if crlf else text).encode())
    before = book.read_bytes()
    updated(book)
    after = book.read_bytes()
    assert findings(book) == []
    if "separators" not in layout:
        assert after == before.replace(b'"b\\n"', b'"a\\n"')


def test_update_is_refused_where_ci_is_set(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    book = write(Path("a.ipynb"), code('exec "echo a"', stream("b\n")))
    before = book.read_bytes()
    monkeypatch.setenv("CI", "true")
    assert prose("test", "--update", book) == 2
    assert "CI is set" in capsys.readouterr().err
    assert book.read_bytes() == before


def test_what_fails_is_never_saved() -> None:
    tagged = code("let y = 1", tags=("raises-exception",))
    book = write(Path("a.ipynb"), code('exec "exit 3"'), tagged)
    before = book.read_bytes()
    assert len(findings(updated(book))) == 2
    assert book.read_bytes() == before


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is not JSON"),
        (b"{", "it is not JSON: Expecting"),
        (b'{"nbformat": 4,\n<<<<<<< HEAD\n"cells": []}', "line 2 is a conflict marker of git"),
        (b'{"nbformat": 4,\r\n"cells": []\r\n>>>>>>> theirs\r\n}', "line 3 is a conflict marker of git"),
        (b"\xff\xfe", "it is not UTF-8 text"),
        (b"[1]", "it has no `nbformat`"),
        (b"{}", "it has no `nbformat`"),
        (b'{"nbformat": 3, "worksheets": []}', "is a notebook of format 3; this version reads format 4"),
        (b'{"nbformat": 5, "cells": []}', "is a notebook of format 5; this version reads format 4"),
        (b'{"nbformat": 4, "cells": 3}', "it has no list of cells"),
        (b'{"nbformat": 4, "metadata": [], "cells": []}', "its `metadata` isn't an object"),
        (b'{"nbformat": 4, "cells": [{}]}', "the `cell_type` of its cell 1"),
        (b'{"nbformat": 4, "cells": [{"cell_type": "code"}]}', "the `source` of its cell 1 is missing or wrong"),
        (b'{"nbformat": 4, "nbformat_minor": "5", "cells": []}', "its `nbformat_minor` isn't a whole number"),
        (b'{"nbformat": 4, "cells": [{"cell_type": "code", "source": [1]}]}', "the `source` of its cell 1"),
        (b'{"nbformat": 4, "cells": [{"cell_type": "code", "source": "", "outputs": 1}]}', "the list of `outputs`"),
        (b'{"nbformat": 4, "cells": []}', "it is a notebook of another kernel"),
        (b"[" * 100_000, "it is not JSON"),
    ],
    ids=lambda value: value[:24].decode("latin-1") if isinstance(value, bytes) else "",
)
def test_a_file_that_is_not_a_notebook_is_reported_in_one_line(
    content: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("b.ipynb").write_bytes(content)
    assert prose("test", "b.ipynb") == 1
    shown_text = capsys.readouterr().out
    assert said in shown_text
    assert "Traceback" not in shown_text


@pytest.mark.parametrize("name", ["gone.ipynb", "none*.ipynb", "a\0b.ipynb", "x" * 300 + ".ipynb", "notes.txt"])
def test_a_file_that_is_not_there_is_a_usage_error(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("notes.txt").write_text("x")
    assert prose("test", name) == 2
    assert capsys.readouterr().err.startswith("Error: ")


def test_a_notebook_of_another_language_is_named_or_passed_by(capsys: pytest.CaptureFixture[str]) -> None:
    write(Path("r.ipynb"), code("print(1)"), kernel="ir")
    assert prose("test", "r.ipynb") == 1
    assert "it is a notebook of the kernel ir" in capsys.readouterr().out
    assert prose("test") == 5
    assert "nothing to test" in capsys.readouterr().err


def test_crlf_tabs_emoji_and_right_to_left_text_come_through() -> None:
    source = 'exec "printf \'\\\\ta 🦉\\\\r\\\\nשלום\\\\n\'"\r\n\r\nlet x = "ä\u202e🦉"'
    book = write(Path("a b 🦉.ipynb"), code(source, count=None))
    assert findings(updated(book)) == []
    data = json.loads(book.read_text(encoding="utf-8"))
    data["cells"][0]["outputs"][0]["text"] = ["\ta 🦉\n", "\u202eעולם\n"]
    book.write_text(json.dumps(data), encoding="utf-8")
    text = findings(book)[0]
    assert "עולם" in text
    assert "\u202e" not in text


def test_duplicate_ids_and_huge_outputs_do_no_harm() -> None:
    huge = stream("".join(f"line {n}\n" for n in range(60_000)))
    book = write(Path("a.ipynb"), code('exec "seq 3"', huge), code('exec "echo a"', stream("a\n")))
    data = json.loads(book.read_text())
    for cell in data["cells"]:
        cell["id"] = "same"
    book.write_text(json.dumps(data))
    (found,) = findings(book)
    assert found.count("\n") < 50


# ---------------------------------------------------------------- other languages and kernels


def test_cells_of_both_languages_and_the_kernel_of_vvm() -> None:
    book = write(
        Path("a.ipynb"),
        code("x = 1 + 1\nx", count=None),
        code('%%prose\nexec "echo {x}"', count=None),
        code("%nonsense", count=None, tags=("raises-exception",)),
        kernel="vvm",
    )
    assert findings(updated(book)) == []
    book.write_text(book.read_text().replace("x = 1 + 1", "x = 1 + 2"))
    found = findings(book)
    assert [line.split("\n")[0] for line in found] == [
        "cell 1: line 1: result differs (text/html, text/plain)",
        "cell 2: line 2: stdout differs",
    ]


@pytest.mark.parametrize("text", ["print(1)", '%%prose\nexec "echo hi"'])
def test_a_notebook_of_another_kernel_fails_and_names_nbval(text: str) -> None:
    """Also with cells in our languages: nothing of it is run."""
    book = write(Path("a.ipynb"), code(text), kernel="python3")
    (found,) = findings(book)
    assert "the kernel python3" in found and "pytest --nbval a.ipynb" in found


def test_our_own_notebooks_are_as_committed() -> None:
    """Two short ones in this process; continuous integration tests all of them."""
    for name in ("topics/values.ipynb", "topics/errors.ipynb"):
        assert findings(ROOT / "notebooks" / name) == []
