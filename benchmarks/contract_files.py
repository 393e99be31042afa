"""Contract files: `prose compile` of a directory, and of many scripts in one file.

Files that call nothing are measured in turn with files in chains of ten, where each calls the next; both have the same
text but for the call. Figures are processor time of this process, the least of several rounds, without its start.
The scripts in one file call each other the same way. `python benchmarks/contract_files.py [--json] [--quick]`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from prose_kernel.cli.main import main as prose
from prose_kernel.language.contracts.compile import compile_source
from prose_kernel.language.source import Source

CHAIN = 10
BODY = """\
### Parameters

- `text`: what to write about

### Returns

- `more`: the result, not empty

### Execution

```prose
let draft = session "Write about {text}."
let more = CALL
return more
```
"""
ALONE = 'session "Shorten {draft}."'


def body(number: int, *, chained: bool) -> str:
    is_last = not chained or number % CHAIN == CHAIN - 1
    return BODY.replace("CALL", ALONE if is_last else f"call part-{number + 1}\n  text: draft")


def write_files(directory: Path, count: int, *, chained: bool) -> list[str]:
    """Write functions into a directory, and return their names for the command line."""
    directory.mkdir()
    for number in range(count):
        text = f"---\nname: part-{number}\nkind: function\n---\n\n{body(number, chained=chained)}"
        (directory / f"part-{number}.prose.md").write_text(text)
    return [f"{directory.name}/part-{number}.prose.md" for number in range(count)]


def one_file(count: int) -> Source:
    nodes = (f"## part-{number}\n\n{body(number, chained=True)}" for number in range(count))
    return Source("---\nname: all\nkind: function\n---\n\n" + "\n".join(nodes), "all.prose.md")


def compile_files(names: list[str]) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        assert prose(["compile", *names]) == 0


def least(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the smallest processor time of each, measured alternately."""
    found = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            began = time.process_time()
            work()
            found[name] = min(found[name], time.process_time() - began)
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options.add_argument("--quick", action="store_true", help="fewer files and rounds")
    chosen = options.parse_args()
    count, rounds = (100, 2) if chosen.quick else (1_000, 5)
    with tempfile.TemporaryDirectory() as made, contextlib.chdir(made):
        alone = write_files(Path("alone"), count, chained=False)
        chains = write_files(Path("chains"), count, chained=True)
        compile_files(alone[:1])  # imports are not measured
        files = least({"alone": lambda: compile_files(alone), "chains": lambda: compile_files(chains)}, rounds)
    sizes = (count // 2, count, 2 * count)
    scripts = least({str(n): partial(compile_source, one_file(n)) for n in sizes}, rounds)
    if chosen.json:
        print(json.dumps({"files": count, "seconds": files, "scripts_of_one_file": scripts}))
        return
    print(f"{count} files, independent: {files['alone']:.2f} s, in chains of {CHAIN}: {files['chains']:.2f} s")
    for size, seconds in scripts.items():
        print(f"{size} scripts in one file: {seconds:.2f} s, {seconds / int(size) * 1000:.2f} ms each")


if __name__ == "__main__":
    main()
