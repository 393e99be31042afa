"""All benchmarks, one after the other: `python -m benchmarks [--quick]` (`make bench`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    scripts = (
        "parsing.py",
        "contract_files.py",
        "machines.py",
        "kernel.py",
        "models.py",
        "workflows.py",
        "typed_answers.py",
        "replay.py",
        "journal.py",
        "exec_tool.py",
        "tasks.py",
        "remote.py",
        "stores.py",
        "telemetry.py",
        "evaluation.py",
        "tools.py",
    )
    for script in scripts:
        print(f"\n# {script}\n", flush=True)
        subprocess.run([sys.executable, str(HERE / script), *sys.argv[1:]], check=True)


if __name__ == "__main__":
    main()
