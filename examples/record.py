"""Record examples from answers that were written by hand, and save what they give.

`python examples/record.py [DIRECTORY...]`, from the repository; without DIRECTORY all of them.

The answers of `NAME/x.prose`, or of the contract file `NAME/x.prose.md`, are in `NAME/answers/x.yaml` (the form:
notebooks/record.py). The inputs and decisions of each case are read from `x.prose.expected.md`. The recording becomes
`NAME/cassettes/x.jsonl`, `origin: authored` in every record. Only what the evaluation asks in addition becomes
`x.eval.jsonl`, and what `x.test.prose.md` asks in addition `x.test.jsonl`. Edit the program or the answers, run this,
look at the difference, and commit all of it.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "notebooks"))

import record as by_hand  # noqa: E402

from prose_kernel.cli.main import main as prose  # noqa: E402

ENDINGS = (".prose", ".prose.md", ".vvm", ".ipynb")


def record(program: Path, answers: by_hand.Answers) -> None:
    """Run every case of a program, or the notebook, with the answers written by hand; then its evaluation, which adds
    what only its data set asks."""
    by_hand.answer_with(answers)
    if program.suffix == ".ipynb":
        asyncio.run(by_hand.record(program, answers))
    else:
        run_cases(program)
    by_hand.record_tests(program.parent)
    for spec in program.parent.glob("*.eval.toml"):
        prose(["eval", "--fresh", "--provider=anthropic", "--judge=anthropic", "--cassette-mode=auto", spec.name])


def run_cases(program: Path) -> None:
    for options in cases(program):
        given = [f"--input={name}={value}" for name, value in options.get("input", {}).items()]
        given += [f"--yes={gate}" for gate in options.get("yes", ())]
        given += [f"--no={gate}" for gate in options.get("no", ())]
        cassette = options.get("cassette", program.name.partition(".")[0])
        told = ["--provider=anthropic", "--cassette-mode=auto", f"--cassette={cassette}"]
        prose(["run", *told, *given, program.name])


def cases(program: Path) -> list[dict]:
    """The options of each case that is committed beside a program."""
    text = program.with_name(f"{program.name}.expected.md").read_text(encoding="utf-8")
    return [tomllib.loads(found) for found in re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


def remake(directory: Path) -> None:
    for written in sorted(directory.glob("answers/*.yaml")):
        (target,) = (path for ending in ENDINGS if (path := directory / (written.stem + ending)).exists())
        answers = by_hand.Answers(written)
        cassettes = directory / "cassettes"
        with by_hand._without_a_trace(directory):
            for former in cassettes.glob("*.jsonl"):
                former.unlink()
            record(target, answers)
        for cassette in sorted(cassettes.glob("*.jsonl")):
            print(f"{cassette.name}: records: {by_hand.settle(cassette, answers)}")
        if unused := answers.unused():
            sys.exit(f"{written}: answers that nothing asked for: {', '.join(unused)}")
        subprocess.run([Path(sys.executable).with_name("prose"), "test", "--update", str(target)], check=False)


def main() -> int:
    chosen = [Path(name) for name in sys.argv[1:]] or sorted(
        path.parent.parent for path in HERE.glob("*/answers/*.yaml")
    )
    for directory in dict.fromkeys(path if path.is_dir() else HERE / path for path in chosen):
        remake(directory.resolve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
