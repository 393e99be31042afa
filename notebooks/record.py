"""Record a notebook from answers written by hand, then run it in replay and save its outputs.

`python notebooks/record.py NOTEBOOK...`

The answers of `course/01_ask.ipynb` are in `course/answers/01_ask.yaml`; its recording becomes
`course/cassettes/01_ask.jsonl`, with `origin: authored` in every record. Edit the notebook or the answers, run
this again, and commit all three. Nobody calculates keys: the notebook is run, and what it asks is looked up in the
answers. The tools that an answer calls are run for real, with the session's permissions. A notebook without answers
only gets its outputs.

Learners ask the sessions of an exercise by hand. The exercises of `checks/01_ask.yaml` that have `answers` are
recorded as well: their solutions run after the notebook, into `course/cassettes/01_ask.exercises.jsonl`.

A contract file, `contracts/tour.prose.md`, is run as a program, and the tests next to it are run. Of a test,
`course/desk/desk.test.prose.md`, only these. None gets outputs.

    sessions:
      - task: Write a tagline            # the first entry whose text the task contains
        tools:                           # made before the reply; <NAME>: the place of a context; <task>: the last task
          - read: {path: <facts>}
        reply: Still on. Since 1868.
        memory: ...                      # memory.md of a persistent agent afterwards
      - task: What to wear
        answers:                         # one entry a call; what is asked more often has no answer
          - error: the server is overloaded
          - reply: A coat.
    judge:
      - question: the leaflet is friendly          # is answered as often as it is asked, without `answers`
        about: Welcome                   # VVM: an entry for the values that contain this text
        answer: true                     # yes, no, uncertain, or the label of a choice
        reason: It greets the reader.

Notebooks of both languages are recorded in the same way. In VVM the task is the rendered template with the input below
it, and a reply may end with a `vvm-memory` block.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import nbformat
import yaml
from msgspec import structs
from nbclient import NotebookClient

from prose_kernel.cassettes.cassette_edits import tidied
from prose_kernel.cli.main import main as prose
from prose_kernel.cli.notebook_file import read_cells
from prose_kernel.errors import NoProvider, ProviderOverloaded, Undecided
from prose_kernel.language.contracts import SUFFIX
from prose_kernel.models.provider_pool import LiveProviders, ProviderContext
from prose_kernel.models.providers.provider_choice import Choice
from prose_kernel.models.session_prompt import answered
from prose_kernel.notebook import exercises
from prose_kernel.notebook.cells import Cells
from prose_kernel.runs import provider_chain
from prose_kernel.runtime.ports import (
    Finding,
    JudgeRequest,
    Pick,
    SessionProgress,
    SessionRequest,
    SessionResult,
    Verdict,
)
from prose_kernel.views.display import Display, Problem

AUTHORED = "authored"
_TEST = f".test{SUFFIX}"
CELL_SECONDS = 120
MEASURED = {"seconds", "duration", "cpu_s", "max_rss"}
WORDS = {True: True, False: False, "yes": True, "no": False, "uncertain": None}
_TASK = re.compile(r"\btask_[0-9a-f]{16}\b")
_CHOOSES = re.compile(r"^%provider[ \t]+\S.*$|(?<=\S)[ \t]+--mode[ \t]+\S+", re.MULTILINE)

Entry = Mapping[str, Any]


class Answers:
    """The answers of one notebook, and the ones that have been used."""

    def __init__(self, path: Path) -> None:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        self.written = str(data["written"])
        self._sessions = list(data.get("sessions", ()))
        self._judge = list(data.get("judge", ()))
        self._calls: Counter[str] = Counter()

    def session(self, task: str) -> Entry | None:
        return self._next(self._sessions, task)

    def judgement(self, question: str, subject: str = "") -> Entry | None:
        return self._next(self._judge, question, subject)

    def unused(self) -> list[str]:
        return [key for key in map(_key, (*self._sessions, *self._judge)) if not self._calls[key]]

    def _next(self, entries: list[Entry], text: str, subject: str = "") -> Entry | None:
        fitting = (e for e in entries if _asked(e) in text and e.get("about", "") in subject)
        entry = next(fitting, None)
        if entry is None:
            return None
        self._calls[_key(entry)] += 1
        number = self._calls[_key(entry)]
        answers: list[Entry] = entry.get("answers", [entry] * (number if "question" in entry else 1))
        return answers[number - 1] if number <= len(answers) else None


def _asked(entry: Entry) -> str:
    return str(entry.get("task") or entry["question"])


def _key(entry: Entry) -> str:
    """Return the text that an entry answers, and the text of its `about`."""
    return f"{_asked(entry)} ({entry['about']})" if "about" in entry else _asked(entry)


class AuthoredSessions:
    """The `Sessions` port, answered by hand. Nothing is recorded for a task without an answer."""

    def __init__(self, answers: Answers, context: ProviderContext) -> None:
        self._answers = answers
        self._context = context

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        entry = self._answers.session(request.task)
        if entry is None:
            raise NoProvider(f"there is no answer for {request.task!r}")
        if "error" in entry:
            raise ProviderOverloaded(entry["error"])
        tools = self._context.session_tools(request, on_progress)
        tools.add(await self._context.named_tools(request))
        places = _places(request)
        for call in entry.get("tools", ()):
            for name, arguments in call.items():
                said = (await tools.call(name, {key: _placed(value, places) for key, value in arguments.items()})).text
                if found := _TASK.search(said):
                    places["<task>"] = found[0]
        answer = answered(entry["reply"].rstrip("\n"), provider="", origin=AUTHORED)
        made = {"trace": tools.trace, "reads": tools.reads, "writes": tools.writes}
        return structs.replace(answer, memory_after=entry.get("memory"), **made)


def _placed(value: object, places: Mapping[str, str]) -> object:
    return places.get(value, value) if isinstance(value, str) else value


def _places(request: SessionRequest) -> dict[str, str]:
    """Return the value of `<NAME>` in a tool call: the path of a context, or of the agent's memory."""
    places = {f"<{item.name}>": item.location for item in request.context or () if item.location}
    if request.memory is not None:
        places["<memory>"] = f"{request.memory.directory.rstrip('/')}/memory.md"
    return places


class AuthoredJudge:
    """The `Judge` port, answered by hand."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    async def decide(self, request: JudgeRequest) -> Verdict:
        entry = self._entry(request.text, request.subject or "")
        return Verdict(WORDS[entry["answer"]], AUTHORED, entry.get("reason", ""))

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        entry = self._entry(request.text, request.subject or "")
        return Pick(entry["answer"], AUTHORED, entry.get("reason", ""))

    async def extract(self, request: JudgeRequest, value: str, path: str) -> Finding:
        return Finding(self._entry(path)["answer"], AUTHORED)

    async def items(self, request: JudgeRequest, value: str) -> Finding:
        return Finding(self._entry(value)["answer"], AUTHORED)

    def _entry(self, question: str, subject: str = "") -> Entry:
        entry = self._answers.judgement(question, subject)
        if entry is None:
            raise Undecided(f"there is no answer for {question!r}")
        return entry


# ---------------------------------------------------------------- running a notebook


class Nowhere:
    """An `Output` and an `Asker` that show nothing and answer no question."""

    available = False

    def stream(self, name: str, text: str) -> None: ...
    def display(self, display: Display, display_id: str | None = None) -> None: ...
    def result(self, display: Display) -> None: ...
    def page(self, display: Display) -> None: ...
    def update(self, display: Display, display_id: str) -> None: ...
    def clear(self) -> None: ...
    def error(self, problem: Problem) -> None: ...
    def show(self, text: str) -> None: ...

    async def ask(self, prompt: str) -> NoReturn:
        raise EOFError


def answer_with(answers: Answers) -> None:
    """Replace model servers by the answers written by hand."""

    class Authored(LiveProviders):
        def __init__(self, context: ProviderContext) -> None:
            super().__init__(context)
            self._context = context

        def sessions(self, choice: Choice) -> AuthoredSessions:
            return AuthoredSessions(answers, self._context)

        def judge(self, choice: Choice, model: str | None) -> AuthoredJudge:
            return AuthoredJudge(answers)

    provider_chain.LiveProviders = Authored  # type: ignore[misc]


async def record(notebook: Path, answers: Answers) -> None:
    """Run the cells with the answers written by hand."""
    answer_with(answers)
    nowhere = Nowhere()
    texts, language = read_cells(str(notebook))
    cells = Cells(notebook.parent, nowhere, language)
    cells.overrides = {"provider": "anthropic", "cassette_mode": "record", "cassette": notebook.stem}
    try:
        for cell in texts:
            problem = await cells.run(_CHOOSES.sub("", cell.text), nowhere, live=False)
            if problem is not None and not cell.may_fail:
                print(f"{notebook.name}, {cell.name}: {problem.ename}: {problem.evalue}", file=sys.stderr)
    finally:
        await cells.close()


def record_contract(file: Path, answers: Answers) -> None:
    """Run a contract file and the tests next to it with the answers written by hand."""
    answer_with(answers)
    if not file.name.endswith(_TEST):
        prose(["run", "--provider=anthropic", "--cassette-mode=auto", f"--cassette={stem(file)}", file.name])
    record_tests(file.parent)


def record_tests(directory: Path) -> None:
    """Record the additional requests of the tests of contract files."""
    for test in sorted(directory.glob(f"*{_TEST}")):
        with patch.dict(os.environ, PROSE_PROVIDER="anthropic", PROSE_JUDGE="anthropic"):
            prose(["test", "--live", test.name])


def stem(path: Path) -> str:
    """The name of a notebook or contract file, after which its answers and recordings are named."""
    return path.name.removesuffix(SUFFIX).removesuffix(".ipynb")


async def record_exercises(notebook: Path) -> list[Path]:
    """Run the solutions of the exercises that make requests; return the recordings made, none or one."""
    name = f"{notebook.stem}.exercises"
    made = notebook.parent / "cassettes" / f"{name}.jsonl"
    made.unlink(missing_ok=True)
    checks = notebook.parent / exercises.DIRECTORY / f"{notebook.stem}.yaml"
    if not checks.exists():
        return []
    _, language = read_cells(str(notebook))
    for title, exercise in exercises.read(checks, language).exercises.items():
        if exercise.answers is None:
            continue
        nowhere = Nowhere()
        cells = Cells(notebook.parent, nowhere, language)
        cells.overrides = {"provider": "anthropic", "cassette_mode": "record", "cassette": name}
        try:
            for text in filter(str.strip, (exercise.before, exercise.solution)):
                problem = await cells.run(text, nowhere, live=False)
                if problem is not None:
                    print(f"{checks.name}, {title}: {problem.ename}: {problem.evalue}", file=sys.stderr)
        finally:
            await cells.close()
    return [made] if made.exists() else []


def settle(cassette: Path, answers: Answers) -> int:
    """Write the records in canonical order, without times and durations."""
    lines = []
    for line in tidied(cassette.read_bytes()).data.splitlines():
        data = json.loads(line)
        if "meta" in data:
            data["meta"] = {"origin": AUTHORED, "recorded": answers.written}
        data.pop("prose", None)
        lines.append(json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":")))
    cassette.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(lines) - 1


def save_outputs(notebook: Path) -> None:
    """Run the notebook from its recordings, as nbval does, and save its outputs without durations."""
    book = nbformat.read(notebook, as_version=4)
    resources = {"metadata": {"path": str(notebook.parent)}}
    NotebookClient(book, timeout=CELL_SECONDS, resources=resources, coalesce_streams=True).execute()
    for cell in book.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            facts = output.get("metadata", {}).get("prose", {})
            for name in MEASURED & facts.keys():
                del facts[name]
    book.metadata = {"kernelspec": book.metadata.kernelspec, "language_info": book.metadata.language_info}
    nbformat.write(book, notebook)


@contextmanager
def _without_a_trace(directory: Path) -> Iterator[None]:
    """Work in the directory of the notebook, and remove the runs and memories made there."""
    made = [state for name in (".prose", ".vvm") if not (state := directory / name).exists()]
    try:
        with chdir(directory):
            yield
    finally:
        for state in made:
            shutil.rmtree(state, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="+", type=Path, metavar="NOTEBOOK")
    parser.add_argument("--no-outputs", action="store_true", help="make the recording alone")
    given = parser.parse_args()
    notebooks = [path.resolve() for path in given.notebooks]
    for notebook in notebooks:
        written = notebook.parent / "answers" / f"{stem(notebook)}.yaml"
        if not written.exists():
            continue
        answers = Answers(written)
        cassette = notebook.parent / "cassettes" / f"{stem(notebook)}.jsonl"
        more: list[Path] = []
        with _without_a_trace(notebook.parent):
            cassette.unlink(missing_ok=True)
            if notebook.suffix == ".ipynb":
                asyncio.run(record(notebook, answers))
                more = asyncio.run(record_exercises(notebook))
            else:
                record_contract(notebook, answers)
        for made in (cassette, *more):
            print(f"{made.name}: records: {settle(made, answers)}")
        if unused := answers.unused():
            print(f"answers that nothing asked for: {', '.join(unused)}", file=sys.stderr)
            return 1
    for notebook in (
        book for book in notebooks if book.suffix == ".ipynb" and not given.no_outputs
    ):  # each may show something of all recordings
        with _without_a_trace(notebook.parent):
            save_outputs(notebook)
    return 0


if __name__ == "__main__":
    sys.exit(main())
