"""Read and check the specification of an evaluation, a TOML file (docs/how-to/evaluation.md)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from prose_kernel.errors import UsageError
from prose_kernel.language.structs import replace
from prose_kernel.language.text import clipped
from prose_kernel.runs import toml_file
from prose_kernel.runs.toml_file import Key, TomlFile

Kind = Literal["expression", "rule", "judge", "python"]
KINDS: Final[tuple[Kind, ...]] = ("expression", "rule", "judge", "python")
Share = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]


class Assertion(Struct, frozen=True):
    """A condition on each run. Exactly one of the first four is set."""

    expression: str = ""
    rule: str = ""
    judge: str = ""
    python: str = ""
    name: str = ""
    weight: Annotated[float, Meta(ge=0, le=1_000_000, description="a number from 0 to 1,000,000")] = 1.0
    """Its part in the score of a run."""
    threshold: Share = 0.5
    """The least score that passes."""
    seconds: Annotated[float, Meta(gt=0, le=1_000_000, description="a number above 0, at most 1,000,000")] = 30.0
    """The limit of time of a Python function, and of the load of its file."""

    @property
    def kind(self) -> Kind:
        return next(kind for kind in KINDS if getattr(self, kind))

    @property
    def text(self) -> str:
        return str(getattr(self, self.kind))


class Variant(Struct, frozen=True):
    """One way to run the program: other settings, another program, other prompts, other constants."""

    name: Annotated[str, "a name"]
    program: str = ""
    settings: Mapping[str, Any] = {}
    """In the shape of prose.toml."""
    input: Mapping[str, Any] = {}
    """Values of inputs and constants."""
    agent: Mapping[str, Mapping[str, Any]] = {}
    """Properties of agents by their name."""
    pass_rate: Share | None = None
    """The least share of runs that must pass."""


class Spec(Struct, frozen=True):
    """A whole evaluation. File names are relative to `path`."""

    path: Path
    file: TomlFile
    assertions: tuple[Assertion, ...]
    variants: tuple[Variant, ...]
    program: Annotated[str, "a program or notebook to evaluate, such as 'triage.prose'"]
    dataset: Annotated[str, "a file of JSON Lines or CSV, a case in each line, such as 'cases.jsonl'"]
    name: str = ""
    id: str = "id"
    repeat: Annotated[int, Meta(ge=1, le=10_000, description="a whole number from 1 to 10,000")] = 1
    parallel: int = 4
    seconds: float = 300.0
    threshold: Share | None = None
    pass_rate: Share | None = None
    regression: Literal["significant", "any"] = "significant"
    broken_lines: Literal["stop", "count"] = "stop"
    budget: str = ""
    cassette: str = ""
    input: Mapping[str, Any] = {}
    settings: Mapping[str, Any] = {}
    yes: tuple[str, ...] = ()
    no: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """Its name without `.toml`: `triage.eval`."""
        return self.path.name.removesuffix(".toml")

    @property
    def decisions(self) -> dict[str, bool]:
        """The gates that are decided in advance."""
        return {**dict.fromkeys(self.yes, True), **dict.fromkeys(self.no, False)}

    def mistake(self, key: Key, text: str, hint: str | None = None) -> UsageError:
        """Return an error about one key of the file."""
        return self.file.mistake(key, text, hint)


def read(path: Path, shown: str = "") -> Spec:
    """Return the evaluation in a file. If `path` is a link, names of other files are relative to its target. `shown` is
    the name in messages. Raises a `UsageError` that lists all mistakes with lines and columns."""
    path = Path(os.path.realpath(path))
    file = toml_file.read(path, "docs/how-to/evaluation.md shows one", shown, noun="key", columns=True)
    values = file.values(Spec, without=("path", "file", "assertions", "variants"), also=("assert", "variant"))
    with file.noting():
        _check_budget(file, values.get("budget", ""))
    assertions, variants = [], []
    for number in range(_count(file, "assert")):
        with file.noting():
            assertions.append(_assertion(file, ("assert", number)))
    for number in range(_count(file, "variant")):
        with file.noting():
            variants.append(file.struct(Variant, ("variant", number)))
    with file.noting():
        if not file.data.get("assert"):
            file.fail((), "there is no [[assert]]", "write a condition: [[assert]] with a rule, for example")
    file.require()
    _check_distinct(file, "assert", [one.name for one in assertions])
    _check_distinct(file, "variant", [one.name for one in variants])
    return Spec(path, file, tuple(assertions), tuple(variants) or (Variant("default"),), **values)


def _count(file: TomlFile, name: str) -> int:
    found = file.data.get(name, [])
    if isinstance(found, list) and all(isinstance(one, dict) for one in found):
        return len(found)
    file.problems.append(file.mistake((name,), f"tables [[{name}]], with two brackets"))
    return 0


def _assertion(file: TomlFile, key: Key) -> Assertion:
    given = [kind for kind in KINDS if kind in file.table(key)]
    found = file.struct(Assertion, key)
    if len(given) != 1:
        wrong = f"{' and '.join(given)} together" if given else "it has none of them"
        file.fail(key, f"an assertion is one of {', '.join(KINDS)}: {wrong}")
    text = str(getattr(found, given[0])).strip()
    if not text:
        file.fail((*key, given[0]), "it is empty")
    if given[0] == "python" and not re.fullmatch(r"[^:]+\.py:[A-Za-z_]\w*", text):
        file.refuse((*key, "python"), "FILE.py:FUNCTION", text)
    changes: dict[str, Any] = {given[0]: text}
    return replace(found, name=found.name or clipped(text, 60), **changes)


def _check_budget(file: TomlFile, budget: str) -> None:
    from prose_kernel.runs.settings import budget_limits

    try:
        budget_limits(budget or "off")
    except UsageError as problem:
        file.fail(("budget",), str(problem).removeprefix("budget: "), problem.hint)


def _check_distinct(file: TomlFile, kind: str, names: Sequence[str]) -> None:
    for number, name in enumerate(names):
        if name in names[:number]:
            file.fail((kind, number), f"a second one with the name {name!r}", "give it another `name`")
