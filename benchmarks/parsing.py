"""Reading programs of both languages: lines per second, compared with CPython's own parser, and the cost at start-up.

Each size is measured in turn with `ast.parse` on Python text of as many lines that says the same things, in this
process, best of many rounds, in processor time. `python benchmarks/parsing.py [--json]`.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable

from prose_kernel.language import openprose, vvm
from prose_kernel.language.openprose import parser as openprose_parser
from prose_kernel.language.source import Source
from prose_kernel.language.vvm import parser as vvm_parser

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
VVM_HEAD = """\
agent writer(model="opus")
c = "x"
notes = "y"
def review(x, y):
  return @writer `Review {x} with {y}`(x)

"""
VVM = """\
# Part {i}: write it, test it, mend it until it is good.
a{i} = @writer `Write about {c} and others`(notes,
  name="part",
  retry=3)

# The tests decide first, then somebody reads it.
b{i} = @writer `Test part {i}`(a{i},
  timeout="5m",
  memory_mode="fresh")

if ?`the draft is good enough`(a{i}):
  review(a{i}, {i})
else:
  @writer.with(model="haiku") `
    Improve this part.

    Keep what is good. Say what has changed, and why; one line each.
    Do not touch the other parts: {c}.
    `(
    pack(a{i}, b{i}))

for x in [a{i}, c]:
  review(x, {i})

d{i} = a{i} + c
export d{i}

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
assert LINES == VVM.count("\n") == PYTHON.count("\n")
START = """
import bisect, contextlib, dataclasses, functools, json, pathlib, re, sys, time, typing  # a kernel has them anyway
text = {"openprose": 'let x = exec "date"\\n', "vvm": "x = range(3)\\nexport x\\n"}[sys.argv[1]]
began = time.process_time()
from importlib import import_module
from prose_kernel.language.source import Source
language = "prose_kernel.language." + sys.argv[1]
read = import_module(language).compile_source if "check" in sys.argv else import_module(language + ".parser").parse
read(Source(text))
print(time.process_time() - began, "lark" in sys.modules)
"""


def text_of(unit: str, lines: int, head: str = "") -> str:
    parts = [unit.replace("{i}", str(n)) for n in range(lines // LINES + 1)]
    return "".join((head + "".join(parts)).splitlines(keepends=True)[:lines])


def measure(lines: int) -> dict[str, float]:
    """Return the lines per second for one size: each language's parser, without and with all checks, and ast.parse.

    Processor time, because that is what a busy machine does not change; in turn, so that all see the same machine.
    """
    lines = lines // LINES * LINES
    prose, program = Source(text_of(PROSE, lines, HEAD)), Source(text_of(VVM, lines, VVM_HEAD))
    python = text_of(PYTHON, lines)
    assert vvm.compile_source(program).ok
    works: dict[str, Callable[[], object]] = {
        "parse": lambda: openprose_parser.parse(prose),
        "compile": lambda: openprose.compile_source(prose),
        "vvm_parse": lambda: vvm_parser.parse(program),
        "vvm_compile": lambda: vvm.compile_source(program),
        "ast": lambda: ast.parse(python),
    }
    seconds = dict.fromkeys(works, 9e9)
    for _ in range(max(9, min(300, 60_000 // lines))):
        for name, work in works.items():
            gc.collect()  # otherwise the next case pays for the objects of this one
            began = time.process_time()
            work()
            seconds[name] = min(seconds[name], time.process_time() - began)
    return {
        "lines": lines,
        **{name: lines / spent for name, spent in seconds.items()},
        "ratio": seconds["ast"] / seconds["compile"],
        "vvm_ratio": seconds["ast"] / seconds["vvm_compile"],
    }


def start_cost(language: str, mode: str) -> float:
    """Return the seconds until a fresh process has read its first program; the best of several."""
    times = []
    environment = {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    for _ in range(7):
        run = subprocess.run(
            [sys.executable, "-c", START, language, mode], capture_output=True, text=True, check=True, env=environment
        )
        spent, imported = run.stdout.split()
        assert imported == "False", "Lark was imported: grammar.json is stale"
        times.append(float(spent))
    return min(times)


def command_cost() -> tuple[float, float]:
    """Return the processor seconds of `prose compile` for one line, and of an empty Python program."""
    program = "from prose_kernel.cli.main import main; main(['compile', '-'])"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    least = {program: 9e9, "": 9e9}
    for _ in range(7):
        for code in least:
            began = resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-c", code]
            subprocess.run(command, input=b'output x = "y"\n', capture_output=True, check=True, env=environment)
            ended = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
            least[code] = min(least[code], spent)
    return least[program], least[""]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options.add_argument("--quick", action="store_true", help="no text of 100,000 lines")
    given = options.parse_args()
    rows = [measure(lines) for lines in (100, 1_000, 10_000, 100_000)[: 3 if given.quick else 4]]
    start = {f"{name} {mode}": start_cost(name, mode) for name in ("openprose", "vvm") for mode in ("parse", "check")}
    command, python = command_cost()
    if given.json:
        print(json.dumps({"sizes": rows, "start_seconds": start, "command_seconds": command, "python_seconds": python}))
        return
    columns = ("lines", "parse", "compile", "vvm_parse", "vvm_compile", "ast")
    print(" ".join(f"{column:>12}" for column in (*columns, "compile:ast", "vvm:ast")))
    for row in rows:
        print(*(f"{row[column]:>12.0f}" for column in columns), f"{row['ratio']:>12.2f} {row['vvm_ratio']:>12.2f}")
    for what, seconds in start.items():
        print(f"start, {what}: first program after {seconds * 1000:.1f} ms")
    print(f"prose compile of one line: {command * 1000:.0f} ms, {command / python:.1f} times an empty Python program")


if __name__ == "__main__":
    main()
