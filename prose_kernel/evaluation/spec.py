"""What an evaluation is: the TOML file that describes it, read and checked (docs/evaluation.md)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, get_type_hints

from prose_kernel.access import plain_files
from prose_kernel.access.created_code import require_agreed
from prose_kernel.errors import UsageError
from prose_kernel.language.shortening import clipped

Key = tuple[str | int, ...]
KINDS: Final = ("expression", "rule", "judge", "python")
Kind = Literal["expression", "rule", "judge", "python"]
BROKEN: Final = ("stop", "count")
REGRESSION: Final = ("significant", "any")


@dataclass(frozen=True, slots=True)
class Assertion:
    """One thing that has to hold of each run. Exactly one of the first four is set.

    `threshold` is the least score (0 to 1) that passes; `weight` is how much it counts in the score of a run. `seconds`
    is the limit of time of a Python function.
    """

    expression: str = ""
    rule: str = ""
    judge: str = ""
    python: str = ""
    name: str = ""
    weight: float = 1.0
    threshold: float = 0.5
    seconds: float = 30.0

    @property
    def kind(self) -> Kind:
        return next(kind for kind in KINDS if getattr(self, kind))

    @property
    def text(self) -> str:
        return str(getattr(self, self.kind))


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run the program: other settings, another program, other prompts, other constants.

    `settings` is a table in the shape of prose.toml; `agent` are properties of agents by their name; `input` are values
    of inputs and constants. `pass_rate` is the least share of runs that must pass.
    """

    name: str = ""
    program: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    input: Mapping[str, Any] = field(default_factory=dict)
    agent: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    pass_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Spec:
    """A whole evaluation. File names are relative to `path`; `text` is what stands in it."""

    path: Path
    text: str
    program: str
    dataset: str
    assertions: tuple[Assertion, ...]
    variants: tuple[Variant, ...]
    name: str = ""
    id: str = "id"
    repeat: int = 1
    parallel: int = 4
    seconds: float = 300.0
    threshold: float | None = None
    pass_rate: float | None = None
    regression: Literal["significant", "any"] = "significant"
    broken_lines: Literal["stop", "count"] = "stop"
    budget: str = ""
    cassette: str = ""
    input: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    yes: tuple[str, ...] = ()
    no: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """Its name without `.toml`: `triage.eval`."""
        return self.path.name.removesuffix(".toml")

    def mistake(self, key: Key, text: str, hint: str | None = None) -> UsageError:
        """An error about one key of the file."""
        return Places(self.path.name, self.text).mistake(key, text, hint)


_TOP: Final = tuple(one.name for one in fields(Spec) if one.name not in ("path", "text", "assertions", "variants"))


def read(path: Path) -> Spec:
    """The evaluation in a file. Raises `UsageError` for one that makes no sense, with line and column."""
    import tomllib

    require_agreed([path])
    try:
        text = plain_files.read(path, plain_files.SMALL).decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as problem:
        raise UsageError(f"cannot read {path.name}: {(problem.strerror or str(problem)).lower()}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path.name} is not UTF-8 text") from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise UsageError(f"{path.name} is not TOML: {problem}", hint="docs/evaluation.md shows one") from None
    except RecursionError:
        raise UsageError(f"{path.name} is nested too deeply") from None
    return _Reader(path, text, data).spec()


class _Reader:
    """Checks the tables of a file, key by key."""

    def __init__(self, path: Path, text: str, data: dict[str, Any]) -> None:
        self._path = path
        self._text = text
        self._data = data
        self._places = Places(path.name, text)

    def spec(self) -> Spec:
        self._known(self._data, (), (*_TOP, "variant", "assert"))
        values = self._values(Spec, self._data, (), _TOP)
        for needed in ("program", "dataset"):
            if not values.get(needed):
                self._fail((), f"`{needed}` is missing", _NEEDS[needed])
        self._choices(values)
        assertions = tuple(self._assertion(table, n) for n, table in enumerate(self._tables("assert")))
        if not assertions:
            self._fail((), "there is no [[assert]]", "say what has to hold: [[assert]] with a rule, for example")
        self._distinct("assert", [one.name for one in assertions])
        variants = tuple(self._variant(table, n) for n, table in enumerate(self._tables("variant")))
        self._distinct("variant", [one.name for one in variants])
        return Spec(self._path, self._text, assertions=assertions, variants=variants or (Variant("default"),), **values)

    def _choices(self, values: Mapping[str, Any]) -> None:
        for name in ("repeat", "parallel", "seconds"):
            if name in values and values[name] <= 0:
                self._fail((name,), f"a number above 0, not {values[name]}")
        for name in ("threshold", "pass_rate"):
            self._share(values.get(name), (name,))
        if budget := values.get("budget"):
            from prose_kernel.run.settings import budget_limits

            try:
                budget_limits(budget)
            except UsageError as problem:
                self._fail(("budget",), str(problem).removeprefix("budget: "), problem.hint)

    def _share(self, value: float | None, key: Key) -> None:
        if value is not None and not 0 <= value <= 1:
            self._fail(key, f"a number from 0 to 1, not {value}")

    def _assertion(self, table: Mapping[str, Any], number: int) -> Assertion:
        key: Key = ("assert", number)
        names = [one.name for one in fields(Assertion)]
        self._known(table, key, names)
        given = [kind for kind in KINDS if kind in table]
        if len(given) != 1:
            said = f"{' and '.join(given)} together" if given else "it says nothing"
            self._fail(key, f"an assertion is one of {', '.join(KINDS)}: {said}")
        values = self._values(Assertion, table, key, names)
        text = values[given[0]].strip()
        if not text:
            self._fail((*key, given[0]), "it is empty")
        values["name"] = values.get("name") or clipped(text, 60)
        self._share(values.get("threshold"), (*key, "threshold"))
        if values.get("weight", 1) < 0:
            self._fail((*key, "weight"), f"a number, 0 or more, not {values['weight']}")
        if values.get("seconds", 1) <= 0:
            self._fail((*key, "seconds"), f"a number above 0, not {values['seconds']}")
        if given[0] == "python" and not re.fullmatch(r"[^:]+\.py:[A-Za-z_]\w*", text):
            self._fail((*key, "python"), f"FILE.py:FUNCTION, not {text!r}")
        return Assertion(**{**values, given[0]: text})

    def _variant(self, table: Mapping[str, Any], number: int) -> Variant:
        key: Key = ("variant", number)
        names = [one.name for one in fields(Variant)]
        self._known(table, key, names)
        values = self._values(Variant, table, key, names)
        if not values.get("name"):
            self._fail(key, "a variant needs a `name`")
        self._share(values.get("pass_rate"), (*key, "pass_rate"))
        return Variant(**values)

    def _distinct(self, kind: str, names: Sequence[str]) -> None:
        for number, name in enumerate(names):
            if name in names[:number]:
                self._fail((kind, number), f"a second one with the name {name!r}", "give it another `name`")

    # ------------------------------------------------------------ checking

    def _tables(self, name: str) -> Sequence[Mapping[str, Any]]:
        found = self._data.get(name, [])
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            self._fail((name,), f"tables [[{name}]], with two brackets")
        return found

    def _known(self, table: Mapping[str, Any], key: Key, known: Sequence[str]) -> None:
        for name in table:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(known)}"
                self._fail((*key, name), f"there is no `{name}` here", hint)

    def _values(self, kind: type, table: Mapping[str, Any], key: Key, names: Sequence[str]) -> dict[str, Any]:
        import msgspec

        hints = get_type_hints(kind)
        found = {}
        for name in names:
            if name not in table:
                continue
            try:
                found[name] = msgspec.convert(table[name], hints[name])
            except msgspec.ValidationError as problem:
                said = str(problem).partition(" - at")[0]
                self._fail((*key, name), said[0].lower() + said[1:])
        return found

    def _fail(self, key: Key, text: str, hint: str | None = None) -> NoReturn:
        raise self._places.mistake(key, text, hint)


_NEEDS: Final = {
    "program": 'the program or notebook to evaluate: program = "triage.prose"',
    "dataset": 'JSON Lines or CSV, a case in each line: dataset = "cases.jsonl"',
}


class Places:
    """Where keys stand in a TOML text, for messages."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._lines = text.split("\n")

    def mistake(self, key: Key, text: str, hint: str | None = None) -> UsageError:
        found = self.place(key)
        where = f" line {found[0]}, column {found[1]}" if found else ""
        dotted = "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in key).lstrip(".")
        return UsageError(f"{self._name}{where}: {dotted + ': ' if dotted else ''}{text}", hint=hint)

    def place(self, key: Key) -> tuple[int, int] | None:
        """Line and column of a key, or of the innermost table around it that can be found."""
        table: Key = ()
        counts: dict[Key, int] = {}
        best: tuple[int, int, int] | None = None
        for number, line in enumerate(self._lines, 1):
            if header := _HEADER.match(line):
                names = tuple(part.strip().strip("\"'") for part in header[2].split("."))
                if header[1] == "[[":
                    counts[names] = counts.get(names, -1) + 1
                    table = (*names, counts[names])
                else:
                    table = self._inside(names, counts)
                found, column = table, header.start(2) + 1
            elif assigned := _ASSIGNED.match(line):
                found = (*table, *(part.strip().strip("\"'") for part in assigned[1].split(".")))
                column = assigned.start(1) + 1
            else:
                continue
            if found == key[: len(found)] and (best is None or len(found) > best[0]):
                best = (len(found), number, column)
        return best[1:] if best else None

    @staticmethod
    def _inside(names: tuple[str, ...], counts: Mapping[Key, int]) -> Key:
        """`[variant.agent.x]` belongs to the last `[[variant]]`."""
        first = names[:1]
        return (*first, counts[first], *names[1:]) if first in counts else names


_HEADER: Final = re.compile(r"\s*(\[{1,2})([^\[\]]+)\]{1,2}\s*(?:#.*)?$")
_ASSIGNED: Final = re.compile(r"\s*([^=#\[\]{}]+?)\s*=")
