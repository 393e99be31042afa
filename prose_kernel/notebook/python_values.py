"""Pass Python values to a run and back: each becomes a statement of the program, traced and stored like any other.

DataFrames are passed as arrays of objects, one for each row. pandas and polars are not imported to recognise one: a
value can be a DataFrame only if its library is loaded. A new one is made with the requested or the loaded library.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from prose_kernel.access import atomic
from prose_kernel.errors import CompileError, RunError, UsageError, usage_errors
from prose_kernel.language.python_literals import GivenFile
from prose_kernel.language.structs import replace
from prose_kernel.runtime.command_data import parsed
from prose_kernel.runtime.images import LARGEST, file_name, picture
from prose_kernel.runtime.structured_text import json_in
from prose_kernel.runtime.values import ExecText, Reference, Value, verbatim

if TYPE_CHECKING:
    from prose_kernel.notebook.cells import Cells
    from prose_kernel.runs.languages import Language

Library = Literal["pandas", "polars"]
LIBRARIES: Final[tuple[Library, ...]] = ("pandas", "polars")
MOST: Final = 1_000_000
"""The most values of one DataFrame that may become program text."""
_NOT_CONVERTED: Final = object()


@dataclass(frozen=True, slots=True)
class GivenImage(GivenFile):
    """A `GivenFile` with its bytes, before they are in a file."""

    data: bytes = field(repr=False)


async def bind_values(
    cells: Cells, values: Mapping[str, object], source: str = "%%prose --in", language: Language | None = None
) -> None:
    """Bind Python values in the run under their names. `source` names the requesting syntax in messages.

    Raises `UsageError` for a value without counterpart and for a name that cannot be bound.
    """
    workspace = cells.workspace
    language = language or workspace.language
    values = {name: _with_saved_image(value, cells) for name, value in values.items()}
    text = "".join(language.bind(name, value, f"{source} {name}") for name, value in values.items())
    compiled = workspace.compile(text, language=language)
    if not compiled.ok:
        raise UsageError(f"{source}: {CompileError(compiled.diagnostics)}")
    await workspace.run(compiled, language=language)


def _with_saved_image(value: object, cells: Cells) -> object:
    """Return the value; an image is first saved to a file in the state directory. Raises `UsageError`."""
    if not isinstance(value, GivenImage):
        return value
    file = Path(cells.workspace.start.cwd, cells.workspace.settings.state_dir, value.path)
    with usage_errors("the image cannot be written"):
        atomic.write_whole(file, value.data)
    return replace(value, path=str(file))


# ---------------------------------------------------------------- Python to Prose


def plain_value(value: object, head: str) -> object:
    """Convert a DataFrame to rows, a series or array to a list, and a number of their libraries to a Python number.

    The bytes of an image or PDF, and objects that IPython shows as PNG (such as a Pillow image), become a `GivenImage`.
    Other values are returned unchanged. Missing values (NaN, NaT, null) become None, dates and times ISO text. An index
    other than 0, 1, 2 … becomes the first columns. Raises `UsageError`, whose message begins with `head`.
    """
    if isinstance(value, (list, tuple)):
        return [plain_value(item, head) for item in value]
    if isinstance(value, dict):
        return {key: plain_value(item, head) for key, item in value.items()}
    for name, convert in (("pandas", _from_pandas), ("polars", _from_polars), ("numpy", _from_numpy)):
        library = sys.modules.get(name)
        if library is not None and (found := convert(library, value, head)) is not _NOT_CONVERTED:
            return found
    return _image(value, head)


def _image(value: object, head: str) -> object:
    """Convert bytes, or an object that can draw itself, to a `GivenImage`; return other values unchanged. Raises
    `UsageError`."""
    draw = getattr(value, "_repr_png_", None)
    data = draw() if callable(draw) and not isinstance(value, type) else value
    if not isinstance(data, (bytes, bytearray)):
        return value
    data = bytes(data)
    drawn = picture(data)
    if drawn is None:
        raise UsageError(
            f"{head}: these bytes aren't an image or a PDF",
            hint="PNG, JPEG, GIF, WebP and PDF can be given; text goes in as `data.decode()`",
        )
    if drawn.broken or len(data) > LARGEST:
        raise UsageError(f"{head}: {drawn.text}", hint=f"images of up to {LARGEST:,} bytes can be given")
    return GivenImage(f"images/{file_name(drawn, data)}", drawn.text, data)


def _from_pandas(pandas: Any, value: Any, head: str) -> object:
    if isinstance(value, pandas.Series):
        return list(_pandas_cells(value, head))
    if not isinstance(value, pandas.DataFrame):
        return _NOT_CONVERTED
    index = value.index
    plain = isinstance(index, pandas.RangeIndex) and index.name is None and index.start == 0 and index.step == 1
    try:
        frame = value if plain else value.reset_index()
    except ValueError as problem:
        raise UsageError(f"{head}: {problem}", hint="rename the index, or drop it: df.reset_index(drop=True)") from None
    names = [".".join(map(str, one)).rstrip(".") if isinstance(one, tuple) else str(one) for one in frame.columns]
    _check(names, len(frame), head)
    columns = [list(_pandas_cells(frame.iloc[:, at], f"{head}: column `{name}`")) for at, name in enumerate(names)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _pandas_cells(series: Any, head: str) -> Iterator[object]:
    for value, missing in zip(series.tolist(), series.isna().tolist(), strict=True):
        yield None if missing is True else _cell(value, head)


def _from_polars(polars: Any, value: Any, head: str) -> object:
    if isinstance(value, polars.LazyFrame):
        raise UsageError(f"{head}: a LazyFrame has no rows yet", hint="give it collected: df.collect()")
    if isinstance(value, polars.Series):
        return [_cell(item, head) for item in value.to_list()]
    if not isinstance(value, polars.DataFrame):
        return _NOT_CONVERTED
    _check(value.columns, value.height, head)
    columns = [
        [_cell(item, f"{head}: column `{name}`") for item in value.get_column(name).to_list()] for name in value.columns
    ]
    return [dict(zip(value.columns, row, strict=True)) for row in zip(*columns, strict=True)]


def _from_numpy(numpy: Any, value: Any, head: str) -> object:
    if isinstance(value, numpy.ndarray):
        _check(["value"], value.size, head)
        return [_cell(item, head) for item in value.tolist()] if value.ndim else _cell(value.item(), head)
    return _cell(value.item(), head) if isinstance(value, numpy.generic) else _NOT_CONVERTED


def _check(names: Sequence[str], rows: int, head: str) -> None:
    for at, name in enumerate(names):
        if name in names[:at]:
            raise UsageError(f"{head}: two columns are called `{name}`", hint="rename one of them")
    if rows * len(names) > MOST:
        size = f"{rows:,} rows of {len(names):,} columns"
        hint = 'write it to a file (df.to_csv("data.csv")) and let commands read that, or give a part of it'
        raise UsageError(f"{head}: {size} are more than {MOST:,} values", hint=hint)


def _cell(value: Any, head: str) -> object:
    """Convert a value in a DataFrame to a plain Python value. Raises `UsageError`."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if math.isinf(value):
                raise UsageError(f"{head} holds an infinite number", hint="replace it, or give it as text")
            return None if math.isnan(value) else float(value)
        case list() | tuple():
            return [_cell(item, head) for item in value]
        case dict():
            return {str(key): _cell(item, head) for key, item in value.items()}
        case Decimal():
            return _cell(float(value), head)
        case date() | time():
            return None if value != value else value.isoformat()  # NaT differs from itself
        case timedelta():
            return None if value != value else str(value)
    if callable(item := getattr(value, "tolist", None)):  # a value of numpy
        return _cell(item(), head)
    if type(value).__module__.startswith("pandas") and type(value).__name__ in ("NAType", "NaTType"):
        return None
    if type(value).__module__.startswith("pandas") and type(value).__name__ in ("Period", "Interval"):
        return str(value)
    raise UsageError(f"{head} holds a {type(value).__name__}", hint="give it as text: df[name].astype(str)")


# ---------------------------------------------------------------- Prose to Python


def frame(name: str, value: Value, library: str | None = None) -> object:
    """Convert an array of objects to a DataFrame, with the requested library, else the loaded one, else the installed
    one. Output of a command is parsed as data. Raises `UsageError`.
    """
    rows = _rows(name, value)
    chosen = _library(library)
    columns = dict.fromkeys(column for row in rows for column in row)
    data = {column: [row.get(column) for row in rows] for column in columns}
    if chosen.__name__ == "polars":
        return chosen.DataFrame(data, strict=False, infer_schema_length=None)
    return chosen.DataFrame({column: _pandas_column(chosen, values) for column, values in data.items()})


def _rows(name: str, value: Value) -> list[dict[str, Any]]:
    try:
        if isinstance(value, ExecText):
            value = parsed(value)
        elif isinstance(value, (str, Reference)):
            value = json_in(value if isinstance(value, str) else value.read())  # type: ignore[assignment]
    except RunError as problem:
        raise UsageError(f"{name}: {problem.message}", hint=problem.hint) from None
    data = verbatim(value)
    if isinstance(data, list):
        data = [json_in(row) if isinstance(row, str) else row for row in data]
    if not isinstance(data, list) or not all(isinstance(row, dict) for row in data):
        hint = "a DataFrame is made of rows such as [{name: value}, ...]"
        raise UsageError(f"{name} isn't an array of objects", hint=hint)
    return data


def _library(wanted: str | None) -> Any:
    """Return the module for DataFrames. Raises `UsageError`."""
    if wanted is not None and wanted not in LIBRARIES:
        raise UsageError(f"{wanted} makes no DataFrames here", hint=f"one of {', '.join(LIBRARIES)}")
    names = (wanted,) if wanted else sorted(LIBRARIES, key=lambda one: one not in sys.modules)
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    missing = f"{wanted} is not installed" if wanted else "neither pandas nor polars is installed"
    raise UsageError(missing, hint=f"%pip install {names[0]}")


def _pandas_column(pandas: Any, values: list[Any]) -> Any:
    """Return a column in which whole numbers and booleans keep their types in spite of missing values; pandas would
    convert them."""
    known = [value for value in values if value is not None]
    if len(known) == len(values) or not known:
        return values
    if all(isinstance(value, bool) for value in known):
        return pandas.array(values, dtype="boolean")
    if all(isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 for value in known):
        return pandas.array(values, dtype="Int64")
    return values
