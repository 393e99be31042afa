"""The channel between a notebook and its run: for which notebooks it is opened, and which cells run again."""

from __future__ import annotations

from typing import Any

from labextension.script import ask

CELLS = ["let x = 1", "let y = x", "let z = y"]
OPENED = ["open prose_kernel:panel", "cells"]


def link(implementation: str = "prose_kernel", language: str = "prose", **more: Any) -> list[str]:
    (recorded,) = ask({"do": "link", "implementation": implementation, "language": language, "cells": CELLS} | more)
    return list(recorded)


def test_a_channel_is_opened_for_notebooks_with_cells_of_our_languages() -> None:
    assert link() == OPENED
    assert link("ipython", "python") == []
    assert link("ipython", "python", cells=["%%prose\nlet x = 1"]) == OPENED
    assert link("ipython", "python", cells=["%%prosecco"]) == []
    assert link("xr", "R", cells=["%%prose\nlet x = 1"]) == []


def test_the_channel_is_opened_again_after_a_restart() -> None:
    assert link(restart=True) == OPENED * 2


def test_stale_cells_run_one_by_one_in_the_order_of_the_kernel() -> None:
    run = {"first": ["0", "1"], "0": ["1"], "1": ["1", "2"], "2": []}
    assert link(next=run) == [*OPENED, "run 0", "run 1", "run 2"]
    assert link(next=run, failing="1") == [*OPENED, "run 0", "run 1"]
    assert link(next={"first": ["0"], "0": ["0", "gone"]}) == [*OPENED, "run 0"]
