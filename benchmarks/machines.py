"""Loops and calls: passes and calls a second of VVM beside OpenProse, in one run.

The two machines take turns, best of several rounds, in processor time; without listeners, and with one that drops what
it is told, as every front end has one. `python benchmarks/machines.py [--quick] [--json]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from prose_kernel import languages
from prose_kernel.judge.chain import JudgeChain
from prose_kernel.language.source import Source
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.ports import Ports
from prose_kernel.state.memory import MemoryStore

Text = Callable[[int], str]

WORK: dict[str, dict[str, Text]] = {
    "passes of a loop": {
        "openprose": lambda n: f"let n = 0\nrepeat {n} as i:\n  n = n + i\n",
        "vvm": lambda n: f"n = 0\nfor i in range({n}):\n  n = n + i\n",
    },
    "passes with a condition": {
        "openprose": lambda n: f"let n = 0\nrepeat {n} as i:\n  if n < 1000000:\n    n = n + 1\n",
        "vvm": lambda n: f"n = 0\nfor i in range({n}):\n  if n < 1000000:\n    n = n + 1\n",
    },
    "calls": {
        "openprose": lambda n: f"block f(x):\n  return x + 1\nlet n = 0\nrepeat {n} as i:\n  n = do f(n)\n",
        "vvm": lambda n: f"def f(x):\n  return x + 1\nn = 0\nfor i in range({n}):\n  n = f(n)\n",
    },
}
DEEP = "def f(n):\n  if n <= 1:\n    return 1\n  return 1 + f(n - 1)\nexport r\nr = f({n})\n"


def machine(name: str, listening: bool) -> Any:
    nobody: Any = None  # nothing here asks the outside
    ports = Ports(nobody, nobody, JudgeChain(), nobody, nobody, MemoryStore(cwd="."), SystemClock())
    listeners = [lambda event: None] if listening else []
    return languages.LANGUAGES[name].machine()(ports, listeners=listeners, cwd=".", program_file="bench")


def seconds(name: str, text: str, listening: bool = False, **settings: int) -> float:
    """Processor time of one run, reading not counted."""
    source = Source(text)
    compiled = languages.LANGUAGES[name].compile(source)
    assert compiled.ok, compiled.diagnostics
    there = machine(name, listening)
    for setting, value in settings.items():
        setattr(there, setting, value)
    begun = time.process_time()
    asyncio.run(there.run(compiled.program, source))
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    count, rounds, deep = (20_000, 3, 20_000) if given.quick else (200_000, 5, 100_000)
    found: dict[str, float] = {}
    for listening in (False, True):
        for what, texts in WORK.items():
            best = dict.fromkeys(texts, float("inf"))
            for _ in range(rounds):
                for name, text in texts.items():
                    best[name] = min(best[name], seconds(name, text(count), listening))
            label = f"{what}, {'with' if listening else 'without'} a listener"
            for name, spent in best.items():
                found[f"{label}: {name} (a second)"] = round(count / spent)
            found[f"{label}: vvm / openprose"] = round(best["openprose"] / best["vvm"], 2)
    found[f"a call {deep:,} deep: vvm (seconds)"] = round(seconds("vvm", DEEP.format(n=deep), depth=deep), 2)
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        for label, value in found.items():
            print(f"{label:60} {value:>12,}")


if __name__ == "__main__":
    main()
