"""Helpers for tests that write contract files and run `prose` on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prose_kernel.cli.main import main


def function(name: str, *sections: str) -> str:
    return "\n".join([f"---\nname: {name}\nkind: function\n---\n", *sections, ""])


def parameters(*items: str) -> str:
    return "### Parameters\n\n" + "\n".join(f"- {item}" for item in items) + "\n"


def returns(*items: str) -> str:
    return "### Returns\n\n" + "\n".join(f"- {item}" for item in items) + "\n"


def script(*lines: str, title: str = "Execution") -> str:
    return f"### {title}\n\n```prose\n" + "\n".join(lines) + "\n```\n"


class ContractWorld:
    """The current directory, at first empty. `out` and `err` hold the output of the last command."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capsys = capsys
        self.out = self.err = ""

    def write(self, **files: str) -> None:
        """Write files; `a__b` means `a/b`, and names without a suffix get `.prose.md`."""
        for name, text in files.items():
            path = self.directory / (name.replace("__", "/") + ("" if "." in name else ".prose.md"))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def put(self, name: str, text: str) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def prose(self, *words: str) -> int:
        status = main(list(words))
        self.out, self.err = self._capsys.readouterr()
        return status

    def findings(self, name: str, *options: str) -> list[tuple[str, int, int]]:
        """Compile a file, and return its codes with line and column."""
        self.prose("compile", "--format", "json", *options, name)
        return [(one["code"], one["line"], one["column"]) for one in json.loads(self.out)["diagnostics"]]

    def codes(self, name: str, *options: str) -> list[str]:
        return [code for code, _, _ in self.findings(name, *options)]

    def run(self, name: str, *options: str, answers: dict[str, str] | None = None) -> dict[str, Any]:
        """Run a file with the scripted provider, and return its result; `answers` maps patterns to answers."""
        self.put("answers.yaml", json.dumps({"sessions": answers or {}}))
        self.status = self.prose(
            "run", name, "--provider", "scripted", "--script", "answers.yaml", "--format", "json", *options
        )
        lines = [line for line in self.out.splitlines() if line.startswith("{")]
        return json.loads(lines[-1]) if lines else {}
