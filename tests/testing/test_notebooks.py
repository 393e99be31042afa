"""`prose test NOTEBOOK`: compared outputs, failures and their messages, and the changes of `--update`."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import nbformat
import pytest
from models.people import ScriptedPerson
from notebook.recording import Recording
from testing.books import code, error, markdown, prose, stream, write
from waiting import PATIENCE

from prose_kernel.errors import UsageError
from prose_kernel.notebook.cells import Cells
from prose_kernel.runs import languages
from prose_kernel.runs.provenance import Provenance
from prose_kernel.testing.notebook_source import read
from prose_kernel.testing.notebooks import test_notebook as tested_notebook
from prose_kernel.testing.options import SuiteOptions
from prose_kernel.testing.outputs import Rules, comparable, compare
from prose_kernel.views.test_results import difference

ROOT = Path(__file__).parents[2]


def findings(path: Path, options: SuiteOptions | None = None) -> list[str]:
    """Return all findings of a test, each with the name of its cell."""
    tested = tested_notebook(path.resolve(), path.name, options or SuiteOptions())
    return [f"{outcome.name}: {outcome.text()}" for outcome in tested.outcomes if outcome.findings]


def update(path: Path) -> Path:
    tested_notebook(path.resolve(), path.name, SuiteOptions(update=True))
    return path


# ---------------------------------------------------------------- failures


def test_an_updated_notebook_passes() -> None:
    book = write(
        Path("a.ipynb"),
        markdown("# words"),
        code('let x = 1\nexec "echo hi"', count=None),
        code("let y = x", count=None),
    )
    assert [line.partition(":")[0] for line in findings(book)] == ["notebook"]
    assert findings(update(book)) == []
    nbformat.validate(nbformat.read(book, as_version=4))
    (output,) = json.loads(book.read_text())["cells"][2]["outputs"]
    assert list(output) == sorted(output)  # like nbformat, so that Jupyter saves the same file
    assert not Path(".prose").exists()


def test_a_notebook_that_was_changed_while_it_was_tested_is_not_updated(capsys: pytest.CaptureFixture[str]) -> None:
    book = write(Path("a.ipynb"), code('exec "echo >> a.ipynb"', count=None))
    before = book.read_text()
    assert prose("test", "--update", book) == 2
    assert "Error: a.ipynb was changed while it was tested; it is not updated\n" in capsys.readouterr().err
    assert book.read_text() == before + "\n"


def test_a_difference_is_shown_with_its_cell_statement_and_lines() -> None:
    book = write(Path("a.ipynb"), code("let a = 1"), code('exec "echo one"\nexec "echo two"', stream("one\nthree\n")))
    assert findings(book)[1] == "\n".join(
        ["cell 2: line 2: stdout differs", '    exec "echo two"', "    ^", "    one", "  - three", "  + two"]
    )


def test_a_changed_display_of_a_value_names_the_statement_that_bound_it() -> None:
    book = update(write(Path("a.ipynb"), code('let a = 1\nlet b = 2\nlet c = 3\nexec "true"', count=None)))
    changed = json.loads(book.read_text().replace("let b = 2", "let b = 5"))
    book.write_text(json.dumps(changed))
    (found,) = findings(book)
    assert found.startswith("cell 1: line 2: display differs (text/html, text/plain)\n    let b = 5\n    ^\n")


def test_the_order_of_different_kinds_counts() -> None:
    book = update(write(Path("a.ipynb"), code('exec "echo hi"\nlet x = 1\nlet y = 2\nexec "true"', count=None)))
    data = json.loads(book.read_text())
    data["cells"][0]["outputs"].reverse()
    book.write_text(json.dumps(data))
    (found,) = findings(book)
    assert "another order: the " in found


def test_the_order_of_stdout_and_stderr_does_not_count() -> None:
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


def test_a_missing_expected_error_is_a_failure() -> None:
    """nbval passes a cell that is tagged and succeeds without outputs."""
    traceback = "\x1b[1mExecError\x1b[0m at line 2, column 1: exec failed with exit code 3 [E203]"
    saved = error("ExecError", "exec failed with exit code 3", traceback, '  exec "true"\n  ^')
    tagged = code('let x = 1\nexec "true"', saved, tags=("raises-exception",))
    silent = code("let y = 1", tags=("raises-exception",))
    assert findings(write(Path("a.ipynb"), tagged, silent)) == [
        "cell 1: line 2: the expected error did not come: ExecError: exec failed with exit code 3\n"
        '    exec "true"\n    ^',
        "cell 2: the cell is tagged raises-exception and did not fail",
    ]


def test_an_error_that_differs_from_the_committed_one_is_a_failure() -> None:
    saved = error("ExecError", "exec failed with exit code 3")
    book = write(Path("a.ipynb"), code('exec "exit 4"', saved, tags=("raises-exception",)))
    (found,) = findings(book)
    assert "the error differs: ExecError" in found
    assert "  - exec failed with exit code 3\n  + exec failed with exit code 4" in found


def test_cells_without_a_run_and_counts_out_of_order_are_failures() -> None:
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
    assert findings(update(book)) == []
    assert [cell.count for cell in read(book).cells] == [1, 2, 3, None]


@pytest.mark.parametrize(
    ("line", "tags"), [("# NBVAL_IGNORE_OUTPUT", ()), ("  #  NBVAL_IGNORE_OUTPUT ", ()), ("", ("nbval-ignore-output",))]
)
def test_markers_and_tags_of_nbval_are_applied(line: str, tags: tuple[str, ...]) -> None:
    ignored = code(f'{line}\nexec "date +%N"', stream("1\n"), tags=tags)
    skipped = code('# NBVAL_SKIP\nexec "touch ran"', stream("1\n"))
    raises = code('# NBVAL_RAISES_EXCEPTION\n# NBVAL_IGNORE_OUTPUT\nexec "exit 3"')
    assert findings(write(Path("a.ipynb"), ignored, skipped, raises)) == []
    assert not Path("ran").exists()


def test_a_marker_overrides_a_tag_and_lax_compares_only_marked_cells() -> None:
    checked = code('# NBVAL_CHECK_OUTPUT\nexec "echo a"', stream("b\n"), tags=("nbval-ignore-output",))
    other = code('exec "echo a"', stream("b\n"))
    book = write(Path("a.ipynb"), checked, other)
    assert len(findings(book)) == 2
    assert [found.partition(":")[0] for found in findings(book, SuiteOptions(lax=True))] == ["cell 1"]


def test_a_sanitize_file_of_nbval_is_applied_to_both_sides() -> None:
    Path("s.cfg").write_text("[year]\nregex: [0-9]{4}\nreplace: YEAR\n")
    book = write(Path("a.ipynb"), code('exec "date +%Y"', stream("1868\n")))
    assert len(findings(book)) == 1
    assert findings(book, SuiteOptions(rules=Rules(["s.cfg"]))) == []


@pytest.mark.parametrize("text", ["regex: [\nreplace: x\n", "regex: a\n", "regex: a\nreplace: \\9\n"])
def test_an_invalid_sanitize_file_is_a_usage_error(text: str) -> None:
    Path("s.cfg").write_text(text)
    with pytest.raises(UsageError, match=r"s\.cfg, line 1"):
        Rules(["s.cfg"])


def test_metadata_and_overwritten_lines_are_not_compared() -> None:
    book = update(write(Path("a.ipynb"), code("let x = exec \"printf 'a\\\\rb\\\\n'\"\nlet y = 1", count=None)))
    data = json.loads(book.read_text())
    for output in data["cells"][0]["outputs"]:
        output["metadata"] = {"prose": {"seconds": 3}}
    book.write_text(json.dumps(data))
    assert findings(book) == []
    half, whole = [stream("10 %\r50 %\r100 %\n")], [stream("100 %\r\n")]
    assert compare(comparable(half, Rules()), comparable(whole, Rules())) == []
    long = "=" * 5_000_000  # without linear costs the test would exceed its time limit
    assert (
        compare(comparable([stream(f"{long}\r1\n{long}")], Rules()), comparable([stream(f"1\n{long}")], Rules())) == []
    )


def test_images_and_json_are_compared_and_widgets_are_not() -> None:
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


def test_a_difference_is_short() -> None:
    long = difference("a\n" * 100_000, "b\n" * 100_000)
    assert len(long) < 50
    assert max(map(len, difference("x" * 1_000_000 + "a", "x" * 1_000_000 + "b"))) < 300
    many = [{"output_type": "display_data", "data": {"text/plain": str(n)}} for n in range(5000)]
    assert len(compare(comparable(many, Rules()), comparable(many[1:], Rules()))) <= 3


# ---------------------------------------------------------------- recordings, non-interactive


def record(name: str, *prompts: str) -> None:
    """Record sessions that a person answers."""

    async def run() -> None:
        cells = Cells(Path.cwd(), ScriptedPerson(*(f"answer to {prompt}" for prompt in prompts)), languages.default())
        cells.overrides = {"provider": "human", "cassette_mode": "record", "cassette": name}
        for number, prompt in enumerate(prompts):
            assert await cells.run(f'let s{number} = session "{prompt}"', Recording(), live=False) is None
        await cells.close()

    asyncio.run(run())


def test_recordings_answer_sessions_and_unused_records_are_failures() -> None:
    record("a", "first", "second")
    book = update(write(Path("a.ipynb"), code('let s0 = session "first"', count=None)))
    (found,) = findings(book)
    assert found.startswith("recording: cassettes/a.jsonl, line ")
    assert found.endswith("is recorded and never used (prose cassette prune removes it)")
    idle = update(write(book, code("let x = 1", count=None)))
    assert findings(idle) == ["recording: cassettes/a.jsonl: no cell uses any record of it"]
    whole = update(
        write(book, code('let s0 = session "first"', count=None), code('let s1 = session "second"', count=None))
    )
    assert findings(whole) == []


def test_a_changed_prompt_is_shown_with_its_difference_and_not_saved() -> None:
    record("a", "Write about toads")
    book = update(write(Path("a.ipynb"), code('let s0 = session "Write about toads"', count=None)))
    book.write_text(book.read_text().replace("toads\\", "frogs\\"))
    before = book.read_bytes()
    found = findings(book, SuiteOptions(update=True))
    assert "nothing is recorded for session c1/1/s0" in found[0]
    assert '"Write about frogs" instead of "Write about toads"' in found[0]
    assert book.read_bytes() == before


def test_the_provider_that_a_notebook_chooses_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-real-key")
    book = write(Path("a.ipynb"), code('%provider anthropic\n%cassette --mode off\nlet x = session "hello"'))
    (found,) = findings(book)
    assert "anthropic is not called: this run is offline" in found


def test_a_cell_that_asks_a_person_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    book = write(Path("a.ipynb"), code('input name: "Who?"\nlet x = name'))
    (found,) = findings(book)
    assert "the cell failed" in found


def test_a_cell_that_exceeds_the_timeout_is_interrupted_and_later_cells_do_not_run() -> None:
    busy = "let n = 0\nloop (max: 1000000000):\n  n = n + 1"
    for source in ('exec "sleep 600"', busy):
        book = write(Path("a.ipynb"), code(source), code('exec "touch ran"'))
        message = "cell 1: the cell did not end within 0.3 s and was interrupted; later cells did not run"
        assert findings(book, SuiteOptions(seconds=0.3)) == [message]
        assert not Path("ran").exists()


@pytest.mark.parametrize("source", ["let x = 1", 'exec "true"', "nothing"])
def test_a_cell_may_end_in_the_moment_of_its_timeout(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cell is interrupted after its last statement, while its names are being recorded."""
    ending, interrupted = threading.Event(), threading.Event()
    interrupt, end = Cells.interrupt, Provenance.end

    def interrupts(cells: Cells) -> None:
        ending.wait(PATIENCE)
        interrupt(cells)
        interrupted.set()

    def ends(provenance: Provenance, *, failed: bool) -> None:
        ending.set()
        interrupted.wait(PATIENCE)
        end(provenance, failed=failed)

    monkeypatch.setattr(Cells, "interrupt", interrupts)
    monkeypatch.setattr(Provenance, "end", ends)
    book = write(Path("a.ipynb"), code(source), code('exec "touch ran"'))
    message = "cell 1: the cell did not end within 0.01 s and was interrupted; later cells did not run"
    assert findings(book, SuiteOptions(seconds=0.01)) == [message]


def test_a_notebook_is_tested_outside_the_main_thread() -> None:
    """With pytest-xdist and thread pools, no signal handler can be set."""
    book = update(write(Path("a.ipynb"), code('exec "echo hi"', count=None)))
    found: list[str] = ["none"]

    def run() -> None:
        found[:] = findings(book)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == []


# ---------------------------------------------------------------- --update


def test_update_writes_only_changed_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    book = write(Path("a.ipynb"), code('exec "echo a"', stream("b\n")), code('exec "echo ü"', stream("ü\n")))
    before = book.read_text()
    assert prose("test", "--update", book) == 0
    assert book.read_text() == before.replace('"b\\n"', '"a\\n"')
    message = capsys.readouterr().out
    assert "UPDATED a.ipynb, cell 1\n  line 1: stdout differs" in message
    assert "1 updated, 1 passed in 1 file" in message
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
    update(book)
    after = book.read_bytes()
    assert findings(book) == []
    if "separators" not in layout:
        assert after == before.replace(b'"b\\n"', b'"a\\n"')


def test_update_is_refused_if_ci_is_set(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    book = write(Path("a.ipynb"), code('exec "echo a"', stream("b\n")))
    before = book.read_bytes()
    monkeypatch.setenv("CI", "true")
    assert prose("test", "--update", book) == 2
    assert "CI is set" in capsys.readouterr().err
    assert book.read_bytes() == before


def test_a_failed_notebook_is_not_updated() -> None:
    tagged = code("let y = 1", tags=("raises-exception",))
    book = write(Path("a.ipynb"), code('exec "exit 3"'), tagged)
    before = book.read_bytes()
    assert len(findings(update(book))) == 2
    assert book.read_bytes() == before


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("content", "message"),
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
    content: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("b.ipynb").write_bytes(content)
    assert prose("test", "b.ipynb") == 1
    shown_text = capsys.readouterr().out
    assert message in shown_text
    assert "Traceback" not in shown_text


@pytest.mark.parametrize("name", ["gone.ipynb", "none*.ipynb", "a\0b.ipynb", "x" * 300 + ".ipynb", "notes.txt"])
def test_a_missing_file_is_a_usage_error(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("notes.txt").write_text("x")
    assert prose("test", name) == 2
    assert capsys.readouterr().err.startswith("Error: ")


def test_a_notebook_of_another_language_fails_if_it_is_named_and_is_skipped_otherwise(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(Path("r.ipynb"), code("print(1)"), kernel="ir")
    assert prose("test", "r.ipynb") == 1
    assert "it is a notebook of the kernel ir" in capsys.readouterr().out
    assert prose("test") == 5
    assert "nothing to test" in capsys.readouterr().err


def test_crlf_tabs_emoji_and_right_to_left_text_are_compared() -> None:
    source = 'exec "printf \'\\\\ta 🦉\\\\r\\\\nשלום\\\\n\'"\r\n\r\nlet x = "ä\u202e🦉"'
    book = write(Path("a b 🦉.ipynb"), code(source, count=None))
    assert findings(update(book)) == []
    data = json.loads(book.read_text(encoding="utf-8"))
    data["cells"][0]["outputs"][0]["text"] = ["\ta 🦉\n", "\u202eעולם\n"]
    book.write_text(json.dumps(data), encoding="utf-8")
    text = findings(book)[0]
    assert "עולם" in text
    assert "\u202e" not in text


def test_duplicate_ids_and_huge_outputs_are_accepted() -> None:
    huge = stream("".join(f"line {n}\n" for n in range(60_000)))
    book = write(Path("a.ipynb"), code('exec "seq 3"', huge), code('exec "echo a"', stream("a\n")))
    data = json.loads(book.read_text())
    for cell in data["cells"]:
        cell["id"] = "same"
    book.write_text(json.dumps(data))
    (found,) = findings(book)
    assert found.count("\n") < 50


# ---------------------------------------------------------------- other languages and kernels


def test_a_notebook_may_have_cells_of_both_languages() -> None:
    book = write(
        Path("a.ipynb"),
        code("x = 1 + 1\nx", count=None),
        code('%%prose\nexec "echo {x}"', count=None),
        code("%nonsense", count=None, tags=("raises-exception",)),
        kernel="vvm",
    )
    assert findings(update(book)) == []
    book.write_text(book.read_text().replace("x = 1 + 1", "x = 1 + 2"))
    found = findings(book)
    assert [line.split("\n")[0] for line in found] == [
        "cell 1: line 1: result differs (text/html, text/plain)",
        "cell 2: line 2: stdout differs",
    ]


@pytest.mark.parametrize("text", ["print(1)", '%%prose\nexec "echo hi"'])
def test_a_notebook_of_another_kernel_fails_with_a_hint_to_nbval(text: str) -> None:
    """Cells in OpenProse or VVM are not run, either."""
    book = write(Path("a.ipynb"), code(text), kernel="python3")
    (found,) = findings(book)
    assert "the kernel python3" in found and "pytest --nbval a.ipynb" in found


def test_notebooks_of_this_repository_pass() -> None:
    """This tests two short ones; continuous integration tests all."""
    for name in ("topics/values.ipynb", "topics/errors.ipynb"):
        assert findings(ROOT / "notebooks" / name) == []
