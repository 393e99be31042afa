"""Loops, calls and sessions of VVM and of OpenProse, in one run.

The two machines take turns, best of several rounds, in processor time; without listeners, and with one that drops what
it is told, as every front end has one. Sessions run as in a notebook, answered from a script: microseconds for each of
500 and of 2,000, which should be the same. `python benchmarks/machines.py [--quick] [--json]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prose_kernel.judging.judge_chain import JudgeChain
from prose_kernel.language.source import Source
from prose_kernel.runs import languages
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.asker import Unattended
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.host import Host
from prose_kernel.runtime.ports import Ports
from prose_kernel.storage.stores import MemoryStore

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

AGENTS = 'agent a()\nagent m(memory={scope: "project", key: "k"})\n'
ASKED: dict[str, tuple[str, Text, dict[str, Any]]] = {
    "sessions in turn: openprose": ("openprose", lambda n: f'repeat {n} as i:\n  session "Say {{i}}"\n', {}),
    "sessions in turn: vvm": ("vvm", lambda n: f"{AGENTS}for i in range({n}):\n  @a `Say {{i}}`(i)\n", {}),
    "sessions at once: openprose": (
        "openprose",
        lambda n: f'items = [{", ".join(map(str, range(n)))}]\nparallel for i in items:\n  session "Say {{i}}"\n',
        {},
    ),
    "sessions at once: vvm": ("vvm", lambda n: _pmap(n, "a"), {}),
    "sessions at once, answers in files: vvm": ("vvm", lambda n: _pmap(n, "a"), {"vvm_state": "filesystem"}),
    "sessions of one memory: openprose": (
        "openprose",
        lambda n: f'agent m:\n  persist: project\nrepeat {n} as i:\n  session: m\n    prompt: "Say {{i}}"\n',
        {},
    ),
    "sessions of one memory: vvm": ("vvm", lambda n: _pmap(n, "m"), {}),
}


def _pmap(n: int, agent: str) -> str:
    return f"{AGENTS}def f(n):\n  return @{agent} `Say {{n}}`(n)\nx = pmap(range({n}), f)\n"


def machine(name: str, listening: bool) -> Any:
    nobody: Any = None  # nothing here asks the outside
    ports = Ports(nobody, nobody, JudgeChain(), nobody, nobody, MemoryStore(cwd="."), SystemClock())
    listeners = [lambda event: None] if listening else []
    return languages.LANGUAGES[name].machine()(Host(ports, listeners), cwd=".", program_file="bench")


def seconds(name: str, text: str, listening: bool = False, depth: int = 0) -> float:
    """Return the processor time of one run, without parsing."""
    source = Source(text)
    compiled = languages.LANGUAGES[name].compile(source)
    assert compiled.ok, compiled.diagnostics
    there = machine(name, listening)
    if depth:
        there.limit(depth=depth)
    begun = time.process_time()
    asyncio.run(there.run(compiled.program, source))
    return time.process_time() - begun


async def asked(language: str, text: str, settings: dict[str, Any]) -> float:
    """Return the processor time of one cell whose sessions a script answers."""
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory, "script.yaml")
        script.write_text('sessions: {"*": "It is done."}\n')
        chosen = Settings().changed(provider="scripted", script=str(script), **settings)
        here = Workspace(chosen, Start(Path(directory), language=languages.LANGUAGES[language]), asker=Unattended())
        try:
            await here.execute("pass\n" if language == "vvm" else 'exec "true"\n')  # loads the modules of the first use
            begun = time.process_time()
            await here.execute(text)
            return time.process_time() - begun
        finally:
            await here.close()


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
    for what, (name, text, settings) in ASKED.items():
        for many in (500, 2_000):
            spent = min(asyncio.run(asked(name, text(many), settings)) for _ in range(2 if given.quick else 3))
            found[f"{what}, {many:,} (us each)"] = round(spent / many * 1e6)
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        for label, value in found.items():
            print(f"{label:60} {value:>12,}")


if __name__ == "__main__":
    main()
