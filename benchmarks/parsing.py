"""Reading programs: lines a second beside CPython's own parser, and what a start pays.

Each size is measured in turn with `ast.parse` on Python text of as many lines that says the same things, in this
process, best of many rounds, in processor time. `python benchmarks/parsing.py [--json]`.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

from prose_kernel.language.openprose import compile_source, parse
from prose_kernel.language.source import Source

HEAD = (
    'agent writer:\n  model: opus\nlet c = "x"\nlet notes = "y"\nblock review(x, y):\n  session "review {x} with {y}"\n'
)
PROSE = """\
# Part {i}: write it, test it, mend it until it is good.
let a{i} = session "Write about {c} and others"
  context: [notes, c]
  retry: 3

# The tests decide first, then somebody reads it.
let b{i} = exec "make test-{i}"
  timeout: "5m"
  on-fail: "continue"

if **the draft {i} is good enough**:
  do review(a{i}, {i})
else:
  session: writer
    prompt: \"""
    Improve part {i}.

    Keep what is good. Say what has changed, and why; one line each.
    Do not touch the other parts: {c}.
    \"""
    context: { a{i}, b{i} }

for x in [a{i}, c]:
  do review(x, {i})

output d{i} = a{i} + c

"""
PYTHON = """\
# Part {i}: write it, test it, mend it until it is good.
a{i} = session(f"Write about {c} and others",
  context=[notes, c],
  retry=3)

# The tests decide first, then somebody reads it.
b{i} = shell("make test-{i}",
  timeout="5m",
  on_fail="continue")

if judge("the draft {i} is good enough"):
  review(a{i}, {i})
else:
  session(writer,
    prompt=f'''
    Improve part {i}.

    Keep what is good. Say what has changed, and why; one line each.
    Do not touch the other parts: {c}.
    ''',
    context={"a": a{i}, "b": b{i}})

for x in [a{i}, c]:
  review(x, {i})

d{i} = a{i} + c

"""
LINES = PROSE.count("\n")
START = """
import bisect, contextlib, dataclasses, functools, json, pathlib, re, sys, time, typing  # a kernel has them anyway
began = time.process_time()
from prose_kernel.language.openprose import compile_source
from prose_kernel.language.source import Source
compile_source(Source('let x = exec "date"\\n')) if "check" in sys.argv else __import__(
    "prose_kernel.language.openprose.parser", fromlist=["parse"]
).parse(Source('let x = exec "date"\\n'))
print(time.process_time() - began, "lark" in sys.modules)
"""


def text_of(unit: str, lines: int, head: str = "") -> str:
    parts = [unit.replace("{i}", str(n)) for n in range(lines // LINES + 1)]
    return "".join((head + "".join(parts)).splitlines(keepends=True)[:lines])


def measure(lines: int) -> dict[str, float]:
    """Lines a second for one size: parse alone, parse and check, ast.parse; and the ratio of the last two.

    Processor time, because that is what a busy machine does not change; in turn, so that all see the same machine.
    """
    lines = lines // LINES * LINES
    source, python = Source(text_of(PROSE, lines, HEAD)), text_of(PYTHON, lines)
    works: dict[str, Callable[[], object]] = {
        "parse": lambda: parse(source),
        "compile": lambda: compile_source(source),
        "ast": lambda: ast.parse(python),
    }
    seconds = dict.fromkeys(works, 9e9)
    for _ in range(max(9, min(300, 180_000 // lines))):
        for name, work in works.items():
            began = time.process_time()
            work()
            seconds[name] = min(seconds[name], time.process_time() - began)
    return {
        "lines": lines,
        **{name: lines / spent for name, spent in seconds.items()},
        "ratio": seconds["ast"] / seconds["compile"],
        "checking": 1 - seconds["parse"] / seconds["compile"],
    }


def start_cost(mode: str) -> float:
    """Seconds from nothing to the first program read, in a fresh process; the best of several."""
    times = []
    environment = {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    for _ in range(7):
        run = subprocess.run(
            [sys.executable, "-c", START, mode], capture_output=True, text=True, check=True, env=environment
        )
        spent, imported = run.stdout.split()
        assert imported == "False", "Lark was imported: grammar.json is stale"
        times.append(float(spent))
    return min(times)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    as_json = options.parse_args().json
    rows = [measure(lines) for lines in (100, 1_000, 10_000, 100_000)]
    start = {mode: start_cost(mode) for mode in ("parse", "check")}
    if as_json:
        print(json.dumps({"sizes": rows, "start_seconds": start}))
        return
    print(f"{'lines':>8} {'parse/s':>10} {'compile/s':>10} {'ast/s':>10} {'compile:ast':>12} {'checking':>9}")
    for row in rows:
        print(
            f"{row['lines']:>8.0f} {row['parse']:>10.0f} {row['compile']:>10.0f} {row['ast']:>10.0f}"
            f" {row['ratio']:>12.2f} {row['checking']:>8.0%}"
        )
    print(f"start: first program parsed {start['parse'] * 1000:.1f} ms, compiled {start['check'] * 1000:.1f} ms")


if __name__ == "__main__":
    main()
