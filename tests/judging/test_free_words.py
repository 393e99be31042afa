"""A31: conditions in free words, with values and their correct answers (`data/*.jsonl`, the format of docs/how-to/judge.md).

`conditions.jsonl` was written before its rules; `held_out.jsonl` and `treacherous.jsonl`, which tries to mislead the
rules, were written afterwards. `mechanical` items follow only from the values; `judgement` and `treacherous` ones do not, or only seem to. A rule that answers other than the
label is wrong; where the label is `uncertain`, every answer is.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prose_kernel.judging import calibration, rules
from prose_kernel.language.exit_codes import may_hide
from prose_kernel.runtime.ports import CommandResult
from prose_kernel.runtime.values import ExecText, Value

DATA = Path(__file__).parent / "data"
SETS = {path.stem: calibration.load(path) for path in sorted(DATA.glob("*.jsonl"))}
LEAST = {"conditions": 300, "held_out": 100, "treacherous": 200}


def value_of(written: Value) -> Value:
    """Return a value of an item; `{"exec": 1, "stdout": "..."}` is the result of a command, `command` its text."""
    if not (isinstance(written, dict) and {"exec", "stdout"} <= written.keys()):
        return written
    code, text = written["exec"], written["stdout"]
    assert isinstance(code, int) and isinstance(text, str)
    hidden = may_hide(str(written.get("command", "")))
    return ExecText(text, CommandResult("exited", code, stdout=text, code_hidden=hidden))


def ruled(item: calibration.CalibrationItem) -> rules.Ruling:
    return rules.decide(item.text, {name: value_of(value) for name, value in item.values.items()})


@pytest.mark.parametrize("name", SETS)
def test_a31_no_rule_decides_wrongly(name: str) -> None:
    rulings = [(item, ruled(item)) for item in SETS[name]]
    wrong = [(item.name, item.text, ruling) for item, ruling in rulings if ruling.answer not in (None, item.label)]
    assert wrong == []


@pytest.mark.parametrize("name", ["conditions", "held_out"])
def test_a31_mechanical_conditions_are_decided(name: str) -> None:
    mechanical = [item for item in SETS[name] if item.category == "mechanical"]
    opened = [item.text for item in mechanical if ruled(item).answer is None]
    assert len(mechanical) > 60
    assert len(opened) < 0.05 * len(mechanical), opened


def test_a31_the_sets_are_large_enough_and_mixed() -> None:
    assert all(len(SETS[name]) >= least for name, least in LEAST.items())
    for name in ("conditions", "held_out"):
        assert {item.category for item in SETS[name]} == {"mechanical", "judgement", "treacherous"}
