"""DataFrames in and out of `%%prose` and `%%vvm`: rows of a program, the same values again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from lazy_module import LazyModule
from needs import needs_installed
from notebook.kernels import kernel, specification
from sample_files import png

from prose_kernel.errors import UsageError
from prose_kernel.notebook.python_values import frame, plain_value

needs_installed("pandas", "polars", "numpy")
pandas, polars, numpy = LazyModule("pandas"), LazyModule("polars"), LazyModule("numpy")


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from IPython.core.interactiveshell import InteractiveShell

    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("ipython")
        patch.chdir(home)
        patch.setenv("IPYTHONDIR", str(home))
        made = InteractiveShell()
        made.run_line_magic("load_ext", "prose_kernel")
        yield made
        made.run_line_magic("unload_ext", "prose_kernel")


def run(shell: Any, cell: str) -> Any:
    return shell.run_cell(cell).raise_error()


PEOPLE = [
    {"name": "Anna", "age": 41, "score": 1.5, "Unit price": 3},
    {"name": "Bo", "age": 7, "score": 2.25, "Unit price": 4},
]


@pytest.mark.parametrize("language", ["prose", "vvm"])
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_goes_in_and_comes_back(shell: Any, language: str, library: str) -> None:
    made = {"pandas": pandas, "polars": polars}[library].DataFrame(PEOPLE)
    shell.user_ns["df"] = made
    run(shell, f"%%{language} --in df\n" + ("let older = df\n" if language == "prose" else "older = df\n"))
    prose = shell.user_ns["prose"]
    assert prose["df"] == PEOPLE
    back = prose.frame("older", library)
    assert type(back) is type(made) and back.equals(made)


def test_a_program_works_on_the_rows(shell: Any) -> None:
    shell.user_ns["df"] = pandas.DataFrame(PEOPLE)
    run(
        shell,
        "%%prose --in df --out names --frame rows\nlet names = df | map: item.name\nlet rows = df | filter: item.age > 10",
    )
    assert shell.user_ns["names"] == ["Anna", "Bo"]
    rows = shell.user_ns["rows"]
    assert isinstance(rows, pandas.DataFrame) and rows.to_dict("records") == PEOPLE[:1]


def test_output_of_a_command_comes_out_as_a_frame(shell: Any) -> None:
    run(shell, '%%prose --frame found\nlet found = exec "printf \'a,b\\\\n1,x\\\\n2,y\\\\n\'"\n  format: "csv"')
    assert shell.user_ns["found"].to_dict("list") == {"a": ["1", "2"], "b": ["x", "y"]}
    prose = shell.user_ns["prose"]
    assert prose.frame("found", "polars").columns == ["a", "b"]


def test_a_frame_can_be_assigned(shell: Any) -> None:
    prose = shell.user_ns["prose"]
    prose["table"] = polars.DataFrame(PEOPLE)
    assert prose["table"] == PEOPLE
    with pytest.raises(TypeError, match="two columns are called `a`"):
        prose["table"] = pandas.DataFrame([[1, 2]], columns=["a", "a"])


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%prose --frame gone\nlet a = 1", "%%prose --frame gone: the cell has bound no such name"),
        ("%%prose --frame a\nlet a = 1", "%%prose --frame: a isn't an array of objects"),
        ("%%prose --in df\nlet a = 1", "%%prose --in df: column `a` holds a object"),
    ],
)
def test_what_cannot_cross_is_one_clear_error(shell: Any, cell: str, message: str) -> None:
    shell.user_ns["df"] = pandas.DataFrame({"a": [object()]})
    failed = shell.run_cell(cell)
    assert str(failed.error_in_exec) == message
    prose = shell.user_ns["prose"]
    with pytest.raises(KeyError, match="there is no binding 'nowhere'"):
        prose.frame("nowhere")


# ---------------------------------------------------------------- types


def test_missing_values_dates_and_nested_ones_of_pandas() -> None:
    made = pandas.DataFrame(
        {
            "float": [1.5, None],
            "whole": pandas.array([1, None], dtype="Int64"),
            "flag": pandas.array([True, None], dtype="boolean"),
            "day": pandas.to_datetime(["2026-01-02 03:04:05", None]),
            "zone": pandas.to_datetime(["2026-01-02", None]).tz_localize("UTC"),
            "kind": pandas.Categorical(["a", None]),
            "text": ["x", None],
            "for": pandas.to_timedelta(["1h", None]),
            "nested": [[1, {"a": numpy.int64(2)}], None],
            "mixed": [numpy.float32(0.5), Decimal("0.25")],
            "date": [date(2026, 1, 2), None],
        }
    )
    first, second = plain_value(made, "df")  # type: ignore[misc]
    assert first == {
        "float": 1.5, "whole": 1, "flag": True, "day": "2026-01-02T03:04:05", "zone": "2026-01-02T00:00:00+00:00",
        "kind": "a", "text": "x", "for": "0 days 01:00:00", "nested": [1, {"a": 2}], "mixed": 0.5, "date": "2026-01-02",
    }  # fmt: skip
    assert {name for name, value in second.items() if value is not None} == {"mixed"}
    assert all(type(value) in (float, int, bool, str, list) for value in first.values())


def test_missing_values_dates_and_nested_ones_of_polars() -> None:
    made = polars.DataFrame(
        {
            "whole": [1, None],
            "float": [1.5, float("nan")],
            "at": [datetime(2026, 1, 2, 3), None],
            "for": [timedelta(hours=1), None],
            "list": [[1, 2], []],
            "struct": [{"a": 1}, {"a": None}],
        }
    )
    assert plain_value(made, "df") == [
        {"whole": 1, "float": 1.5, "at": "2026-01-02T03:00:00", "for": "1:00:00", "list": [1, 2], "struct": {"a": 1}},
        {"whole": None, "float": None, "at": None, "for": None, "list": [], "struct": {"a": None}},
    ]
    with pytest.raises(UsageError, match="a LazyFrame has no rows yet"):
        plain_value(made.lazy(), "df")


def test_an_index_that_says_something_becomes_columns() -> None:
    made = pandas.DataFrame(PEOPLE)[["name", "age"]]
    assert plain_value(made, "df") == [{"name": "Anna", "age": 41}, {"name": "Bo", "age": 7}]
    assert plain_value(made.set_index("name"), "df") == plain_value(made, "df")
    assert plain_value(made.iloc[1:], "df") == [{"index": 1, "name": "Bo", "age": 7}]
    grouped = made.groupby("name").agg({"age": ["min", "max"]})
    assert plain_value(grouped, "df") == [
        {"name": "Anna", "age.min": 41, "age.max": 41},
        {"name": "Bo", "age.min": 7, "age.max": 7},
    ]
    with pytest.raises(UsageError, match="df: cannot insert name, already exists"):
        plain_value(made.set_index("name", drop=False), "df")


def test_series_arrays_and_numbers_of_numpy_cross_too() -> None:
    assert plain_value(pandas.Series([1, None]), "s") == [1.0, None]
    assert plain_value(polars.Series([1, None]), "s") == [1, None]
    assert plain_value(numpy.arange(4).reshape(2, 2), "a") == [[0, 1], [2, 3]]
    assert plain_value({"n": [numpy.int64(3), numpy.float64("nan")]}, "a") == {"n": [3, None]}
    assert plain_value("text", "t") == "text"


def test_empty_frames() -> None:
    assert plain_value(pandas.DataFrame({"a": []}), "df") == []
    assert len(frame("f", [], "pandas")) == 0 == frame("f", [], "polars").height  # type: ignore[attr-defined,arg-type]


def test_whole_numbers_stay_whole_with_missing_ones() -> None:
    rows: Any = [{"n": 1, "b": True, "t": "x"}, {"n": None, "b": None}]
    made: Any = frame("f", rows, "pandas")
    assert [str(kind) for kind in made.dtypes[:2]] == ["Int64", "boolean"]
    assert plain_value(made, "df") == [{"n": 1, "b": True, "t": "x"}, {"n": None, "b": None, "t": None}]
    mixed: Any = frame("f", [{"a": 1}, {"a": 1.5}, {"a": None}], "polars")
    assert mixed.get_column("a").to_list() == [1.0, 1.5, None]


def test_a_large_frame_goes_in_and_one_that_is_too_large_says_so(shell: Any) -> None:
    shell.user_ns["df"] = pandas.DataFrame({"a": range(5000), "b": "text"})
    run(shell, "%%prose --in df --frame df2\nlet df2 = df")
    assert shell.user_ns["df2"].equals(shell.user_ns["df"])
    with pytest.raises(UsageError, match=r"df: 1,000,001 rows of 1 columns are more than 1,000,000 values") as caught:
        plain_value(pandas.DataFrame({"a": numpy.zeros(1_000_001)}), "df")
    assert "to_csv" in (caught.value.hint or "")


def test_infinite_numbers_are_refused() -> None:
    with pytest.raises(UsageError, match="df: column `a` holds an infinite number"):
        plain_value(pandas.DataFrame({"a": [float("inf")]}), "df")


def test_neither_library_is_imported_for_other_values() -> None:
    code = (
        "import sys\nfrom prose_kernel.notebook.python_values import plain_value\n"
        "assert plain_value([1, {'a': 'b'}], 'x') == [1, {'a': 'b'}]\n"
        "assert not {'pandas', 'polars', 'numpy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)


def test_the_library_that_is_loaded_is_used_and_another_one_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: Any = [{"a": 1}]
    assert pandas.DataFrame and polars.DataFrame  # loaded
    monkeypatch.delitem(sys.modules, "pandas")
    assert type(frame("f", rows)).__module__.startswith("polars")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="pandas is not installed") as caught:
        frame("f", rows, "pandas")
    assert caught.value.hint == "%pip install pandas"
    with pytest.raises(UsageError, match="arrow makes no DataFrames here"):
        frame("f", rows, "arrow")


def test_a_frame_counts_for_freshness_and_comes_out_again(tmp_path: Path) -> None:
    with kernel(tmp_path, spec=specification("ipykernel_launcher", "signal"), forks=True) as client:

        def run_cell(cell: str, code: str) -> str:
            client.channels.session.metadata = {"cellId": cell}
            ran = client.run(code)
            assert ran.status == "ok", ran
            return "".join(ran.displays)

        run_cell("a", "%load_ext prose_kernel\nimport pandas as pd\ndf = pd.DataFrame({'n': [1, 20]})")
        run_cell("b", "%%prose --in df --frame old\nlet old = df | filter: item.n > 10")
        assert run_cell("c", "%prose stale") == "No cell is stale."
        run_cell("d", "df = pd.DataFrame({'n': [1, 20, 30]})")
        assert "the Python variable df has changed" in run_cell("e", "%prose stale")
        run_cell("f", "%prose rerun stale --here")
        run_cell("g", "assert isinstance(old, pd.DataFrame) and list(old['n']) == [20, 30]")


# ---------------------------------------------------------------- images


class Drawing:
    """An object that displays itself as PNG, like images of Pillow."""

    def _repr_png_(self) -> bytes:
        return png()


@pytest.mark.parametrize("value", [png(), bytearray(png()), Drawing()])
def test_an_image_goes_in_as_the_image_that_a_command_prints(shell: Any, value: object) -> None:
    shell.user_ns["chart"] = value
    run(shell, '%%prose --in chart\nlet size = exec "wc -c"\n  stdin: chart')
    assert shell.user_ns["prose"]["size"].strip() == "72"


def test_an_image_goes_into_vvm_as_a_ref_to_its_file(shell: Any) -> None:
    shell.user_ns["scan"] = png()
    run(shell, "%%vvm --in scan\nagain = scan")
    ref = shell.user_ns["prose"]["again"]
    assert ref["summary"] == "PNG image, 3 × 2, 72 bytes" and Path(ref["ref"]).read_bytes() == png()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"hello", "%%prose --in data: these bytes aren't an image or a PDF"),
        (png()[:50], "%%prose --in data: PNG image, 3 × 2, 50 bytes, broken: its end is missing"),
        ([png()], "%%prose --in data: a value of type GivenImage has no counterpart in Prose"),
    ],
)
def test_bytes_that_are_not_an_image_are_one_clear_error(shell: Any, value: object, message: str) -> None:
    shell.user_ns["data"] = value
    assert str(shell.run_cell("%%prose --in data\nlet a = 1").error_in_exec) == message
