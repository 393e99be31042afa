"""The contract files of a checkout, by kind: `python scripts/wild.py DIRECTORY`, or `make wild DIR=DIRECTORY`.

Prints the tables of docs/reference/prose-md.md 13: files, their Executions, what is rejected and why; scripts with
their calls and conditions; the forms of items. Nothing is run. Exit status 0.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from prose_kernel.language.contracts import SUFFIX
from prose_kernel.language.contracts.units import FileUnit, Unit
from prose_kernel.language.nodes import walk
from prose_kernel.language.openprose import tree
from prose_kernel.language.source import Source
from prose_kernel.runs import languages

LEFT_OUT = frozenset(["node_modules", ".git", ".prose", "dist"])
SECTIONS = ("Parameters", "Returns", "Requires", "Maintains")


class Counts:
    """The counts over all files."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.executions: Counter[tuple[str, str]] = Counter()
        self.rejected: dict[str, list[str]] = {}
        self.warnings: Counter[str] = Counter()
        self.items: Counter[tuple[str, str]] = Counter()
        self.inline: Counter[str] = Counter()
        self.inside: Counter[str] = Counter()

    def add(self, path: Path, name: str) -> None:
        language = languages.of_file(path.name)
        source = Source.of(path.read_bytes().decode("utf-8", "replace"), str(path))
        programs = language.programs(path.parent, program=path)
        compiled = language.compile(source, load=programs.load_contract)
        file: FileUnit = compiled.program.file
        kind = file.own.node.kind or str(file.contract.fields.get("kind") or "none")
        self.files[kind] += 1
        codes = sorted({one.code for one in compiled.diagnostics if one.severity == "error"})
        if codes:
            self.rejected.setdefault(kind, []).append(f"{name} ({', '.join(codes)})")
        self.warnings.update(one.code for one in compiled.diagnostics if one.severity == "warning")
        self.inline.update(unit.node.kind for unit in file.units[1:])
        for unit in file.units:
            self._unit(unit, kind)

    def _unit(self, unit: Unit, kind: str) -> None:
        section = unit.node.script_section
        if section is not None:
            fences = [fence.text.split(" ")[0] for fence in section.fences]
            form = "fence" if unit.has_script else "prosescript" if "prosescript" in fences else "words"
            self.executions[kind, form] += 1
        for name in SECTIONS:
            for item in unit.node.items(name):
                quoted = unit.file.source.text[item.head.start : item.head.start + 1] == "`"
                path = any("." in one for one in item.names)
                form = "words" if not item.names else "path" if path else "`name`" if quoted else "name:"
                self.items[name, form] += 1
        if unit.has_script:
            self.inside["scripts"] += 1
            for node in walk(unit.compiled.program):
                if isinstance(node, tree.Call | tree.Session | tree.Stage):
                    self.inside["calls" if isinstance(node, tree.Call) else "sessions"] += 1

    def lines(self) -> Iterator[str]:
        yield "| Kind | Files | Execution: fence / words / prosescript | Rejected |"
        yield "| --- | --- | --- | --- |"
        for kind, files in self.files.most_common():
            forms = " / ".join(str(self.executions[kind, form]) for form in ("fence", "words", "prosescript"))
            bad = self.rejected.get(kind, [])
            yield f"| {kind} | {files} | {forms} | {len(bad)}{': ' + ', '.join(bad) if bad else ''} |"
        total, bad_files = self.files.total(), sum(map(len, self.rejected.values()))
        yield f"\n{total - bad_files} of {total} files compile."
        yield f"Inline nodes: {_counted(self.inline)}. Scripts: {_counted(self.inside)}."
        for name in SECTIONS:
            forms = {form: count for (section, form), count in self.items.items() if section == name}
            yield f"{name}: {_counted(Counter(forms))}."
        yield f"Warnings: {_counted(self.warnings)}."


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"


def contract_files(directory: Path) -> Iterator[Path]:
    for place, inner, names in os.walk(directory):
        inner[:] = sorted(name for name in inner if name not in LEFT_OUT)
        yield from (Path(place, name) for name in sorted(names) if name.endswith(SUFFIX))


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/wild.py DIRECTORY")
    directory, counts = Path(sys.argv[1]), Counts()
    for path in contract_files(directory):
        counts.add(path, str(path.relative_to(directory)))
    print("\n".join(counts.lines()))


if __name__ == "__main__":
    main()
