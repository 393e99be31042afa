"""Statements of VVM (docs/reference/vvm.md 4.4, 4.5, 4.10, 4.11)."""

from __future__ import annotations

from machine.vvm_world import raised_by, value_of


async def test_a_name_is_bound_and_read() -> None:
    assert await value_of("x = 1", "x + 2") == 3


async def test_an_expression_statement_drops_its_value() -> None:
    assert await value_of("x = 1", "x", '"inert"', "y = 2") is None


async def test_if_runs_the_first_arm_that_holds() -> None:
    text = ("def f(n):", "  if n < 1:", "    return 0", "  elif n < 2:", "    return 1", "  else:", "    return 2")
    assert await value_of(*text, "[f(0), f(1), f(2)]") == [0, 1, 2]


async def test_conditions_must_be_booleans() -> None:
    for text in ("if 1:", 'while "yes":', "if true and 1:", "if not ():"):
        code, message = await raised_by(text, "  pass")
        assert code == "R203" and message.startswith("condition is not a boolean")
