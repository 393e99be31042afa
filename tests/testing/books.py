"""Helpers that write notebooks for tests of `prose test`, and run `prose`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prose_kernel.cli.main import main

KERNELS = {"prose": "prose", "vvm": "vvm", "python3": "python", "ir": "R"}


def code(source: str, *outputs: dict[str, Any], count: int | None = 1, tags: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a code cell."""
    return {
        "cell_type": "code",
        "execution_count": count,
        "id": f"c{abs(hash((source, count)))}"[:12],
        "metadata": {"tags": list(tags)} if tags else {},
        "outputs": list(outputs),
        "source": source.splitlines(keepends=True),
    }


def markdown(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": "words", "metadata": {}, "source": text}


def stream(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text.splitlines(keepends=True)}


def error(ename: str, evalue: str, *traceback: str) -> dict[str, Any]:
    return {"output_type": "error", "ename": ename, "evalue": evalue, "traceback": list(traceback)}


def write(path: Path, *cells: dict[str, Any], kernel: str = "prose", **more: Any) -> Path:
    """Write a notebook file. Code cells with the default count get counts in order."""
    count = 0
    for cell in cells:
        if cell["cell_type"] == "code" and cell["execution_count"] == 1:
            count += 1
            cell["execution_count"] = count
    spec = {"display_name": kernel, "language": KERNELS[kernel], "name": kernel}
    data = {"cells": list(cells), "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5, **more}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    return path


def prose(*arguments: str | Path) -> int:
    return main([str(argument) for argument in arguments])
