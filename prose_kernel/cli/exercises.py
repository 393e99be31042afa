"""`prose exercises`: test that the checks of exercises accept the solutions and reject wrong answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prose_kernel.runs import languages
from prose_kernel.runtime.asker import Unattended
from prose_kernel.views.display import Output, Problem
from prose_kernel.views.document import plain_text

if TYPE_CHECKING:
    from prose_kernel.notebook.exercises import Exercise, Exercises
    from prose_kernel.runs.languages import Language

_NOT_COPIED = frozenset((".prose", ".vvm", ".git", ".ipynb_checkpoints", "__pycache__", "prose.toml"))
_LARGEST = 50 * 1024 * 1024
"""The largest size, in bytes, of a file that is copied for answers; larger files don't belong to exercises."""


@click.command(short_help="Test the checks of exercises.")
@click.argument("names", metavar="FILE...", nargs=-1, required=True)
def exercises(names: tuple[str, ...]) -> int:
    """Test every exercise of FILE (checks/NOTEBOOK.yaml, or its notebook): the solution must pass its
    checks, an empty answer and each wrong answer fail with the file's feedback. Answers run offline, in a copy of the
    directory.

    Exit status 1: an exercise whose checks are wrong.
    """
    status = 0
    _add_commands_to_path()
    for name in names:
        found, directory = _read(Path(name))
        with tempfile.TemporaryDirectory(prefix="prose-exercise-") as made:
            copy = _Copy(directory, Path(made))
            for exercise in found.exercises:
                problems = list(_problems(found, exercise, copy))
                status = max(status, 1 if problems else 0)
                click.echo(f"{'✗' if problems else '✓'} {found.notebook}/{exercise}")
                for problem in problems:
                    click.echo("\n".join(f"    {line}" for line in problem.splitlines()))
    return status


def _add_commands_to_path() -> None:
    """Put the directory of `prose` and this `python` first on the PATH, as in a kernel: answers may run them."""
    own, path = str(Path(sys.executable).parent), os.environ.get("PATH", "")
    if own not in path.split(os.pathsep):
        os.environ["PATH"] = f"{own}{os.pathsep}{path}"


def _read(path: Path) -> tuple[Exercises, Path]:
    """Return the exercises of a file, and the directory of their notebook."""
    from prose_kernel.notebook import exercises as files

    notebook = path if path.suffix == ".ipynb" else path.parent.parent / f"{path.stem}.ipynb"
    file = path.parent / files.DIRECTORY / f"{path.stem}.yaml" if path.suffix == ".ipynb" else path
    language = languages.default()
    if notebook.is_file():
        from prose_kernel.cli.notebook_file import read_cells

        _, language = read_cells(str(notebook))
    return files.read(file, language, str(file)), notebook.parent


def _problems(found: Exercises, name: str, copy: _Copy) -> Iterator[str]:
    exercise = found.exercises[name]

    def tried(answer: str) -> tuple[bool, str]:
        return asyncio.run(_tried(copy.clean(), found.language, name, exercise, answer))

    if not exercise.solution.strip():
        yield "there is no solution: nothing shows that the checks can be passed"
    else:
        passed, feedback = tried(exercise.solution)
        if not passed:
            yield f"the solution does not pass:\n{feedback}"
    if tried(exercise.starter)[0]:
        yield "an empty answer passes"
    for number, wrong in enumerate(exercise.wrong, 1):
        passed, feedback = tried(wrong.answer)
        if passed:
            yield f"wrong answer {number} passes"
        elif wrong.says not in feedback:
            yield f"the feedback to wrong answer {number} lacks {wrong.says!r}:\n{feedback}"


def _not_copied(directory: str, names: list[str]) -> list[str]:
    """Return the names to leave out of a copy of a notebook's directory: files of runs, large files, pipes, sockets."""
    found = []
    for name in names:
        path = Path(directory, name)
        usual = path.is_symlink() or path.is_dir() or (path.is_file() and path.stat().st_size <= _LARGEST)
        if name in _NOT_COPIED or not usual:
            found.append(name)
    return found


class _Copy:
    """A copy of a notebook's directory, which is reused for all answers. Most answers only add files, and removing them
    is much faster than copying all other files again."""

    def __init__(self, directory: Path, place: Path) -> None:
        self._directory = directory
        self._place = place
        self._copy = place
        self._facts: dict[str, tuple[int, ...]] = {}

    def clean(self) -> Path:
        """Return the copy, after undoing the changes of former answers."""
        found = _facts(self._copy) if self._facts else {}
        for path in found.keys() - self._facts.keys():
            if stat.S_ISDIR(found[path][0]):
                shutil.rmtree(path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):  # it may have been removed with its directory
                    Path(path).unlink()
        if not self._facts or _facts(self._copy) != self._facts:
            self._copy = Path(tempfile.mkdtemp(dir=self._place)) / "notebook"
            shutil.copytree(self._directory, self._copy, ignore=_not_copied, symlinks=True)
            self._facts = _facts(self._copy)
        return self._copy


def _facts(directory: Path) -> dict[str, tuple[int, ...]]:
    """Return facts about each path below a directory that show whether it was changed. A copied file has the time of
    the original, which is earlier than any answer."""
    found = {}
    for place, directories, files in os.walk(directory):
        for path in (f"{place}{os.sep}{name}" for name in (*directories, *files)):
            status = os.lstat(path)
            content = () if stat.S_ISDIR(status.st_mode) else (status.st_size, status.st_mtime_ns)
            found[path] = status.st_mode, status.st_ino, *content
    return found


async def _tried(directory: Path, language: Language, name: str, exercise: Exercise, answer: str) -> tuple[bool, str]:
    """Return whether an answer to an exercise passes, and the errors and feedback that a learner would read. It runs in
    a separate run in this directory."""
    import yaml

    from prose_kernel.notebook import exercise_checks
    from prose_kernel.notebook.cells import Cells

    feedback_output = _FeedbackOutput()
    cells = Cells(directory, Unattended(), language)
    (directory / ".exercise.yaml").write_text(yaml.safe_dump(dict(exercise.answers or {})), encoding="utf-8")
    cells.choose(provider="scripted", script=".exercise.yaml", cassette_mode="off")
    try:
        for part in (exercise.before, answer):
            if part.strip():
                await cells.run(part, feedback_output, live=False)
        met = await exercise_checks.findings(cells, exercise, language)
    finally:
        await cells.close()
    feedback_output.lines.append(plain_text(exercise_checks.feedback(name, exercise, met, 0)))
    return all(one.passed for one in met), "\n".join(feedback_output.lines)


class _FeedbackOutput(Output):
    """Collects the errors of an answer. Other output is not needed here: the checks receive it separately."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def error(self, problem: Problem) -> None:
        self.lines.append(f"{problem.ename}: {problem.evalue}")
