"""Magics for learners: `%explain` explains a word, `%step` shows the machine's steps, `%check` checks an exercise."""

from __future__ import annotations

import re
from itertools import zip_longest
from pathlib import Path

from prose_kernel.errors import UsageError
from prose_kernel.language.nearest import nearest_hint
from prose_kernel.language.text import screen_width
from prose_kernel.notebook import inspection
from prose_kernel.notebook.magics import tables
from prose_kernel.notebook.magics.registry import MagicCall, magic, on_or_off, read_program
from prose_kernel.runs import languages, reference_pages
from prose_kernel.views import document as doc
from prose_kernel.views.document import plain_text
from prose_kernel.views.escaping import fenced
from prose_kernel.views.word_help import with_section

_LINK = re.compile(r"\[([^\]\n]+)\]\((?!https?:)[^)\n]*\)")
"""A link from page to page, which does not work in a notebook."""

_EXAMPLE = re.compile(r"^(```\w+) .*$", re.MULTILINE)
"""The first line of an example; the words after its language are for its test."""

_CORRECTED = re.compile(r"^```diff[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""A program with a mistake, and its correction, as a diff."""

_OF_VVM = re.compile(r"^#### [VR]\d", re.MULTILINE)

_TITLES = ("reported", "corrected")
_CELL = "text-align: left; vertical-align: top"
_WIDEST = 80
"""The most columns of text for two programs side by side."""


@magic(
    "%explain [CODE|SECTION|WORD|FILE]",
    "explain the last error, an error code (E004), a section of the reference (3.7), a word of the language, a magic, "
    "a program, or the text below it in the cell",
)
async def explain(call: MagicCall) -> None:
    call.check_word_count(0, 2)
    if not call.words:
        if call.below.strip():
            return call.show(_program(call, call.below, "cell", call.view.language))
        return call.show(_last_error(call))
    wanted = " ".join(call.words)
    *page, word = call.words
    if (
        reference_pages.is_key(word)
        or wanted in reference_pages.pages()
        or (page and page[0] not in languages.LANGUAGES)
    ):
        return call.show(_section(call, wanted))
    if wanted.endswith(languages.suffixes()):
        source, language = read_program(call, wanted)
        return call.show(_program(call, source.text, source.name, language))
    return call.show(_word(call, word, languages.LANGUAGES[page[0]] if page else call.view.language))


def _last_error(call: MagicCall) -> doc.Block:
    problem = call.cells.last_problem
    if problem is None:
        raise call.wrong("no cell has failed yet")
    if problem.code:
        return _section(call, problem.code)
    raise UsageError(
        f"%explain: the last error, {problem.ename}, has no entry in the reference", hint="it says itself what to type"
    )


def _section(call: MagicCall, wanted: str) -> doc.Block:
    text = _LINK.sub(r"\1", reference_pages.section(wanted, call.view.language.name))
    rich = _EXAMPLE.sub(r"\1", _CORRECTED.sub(_two_columns, text))
    return doc.paragraph(rich, _EXAMPLE.sub(r"\1", _CORRECTED.sub(_two_text_columns, text)))


def _two_columns(diff: re.Match[str]) -> str:
    """Return the two programs as a table. After a blank line inside HTML, Markdown is read again, so the programs are
    highlighted."""
    language = "vvm" if _OF_VVM.search(diff.string) else "prose"
    programs = [fenced(program.rstrip(), language) for program in reference_pages.programs(diff[1])]
    cells = "".join(f'<td style="{_CELL}">\n\n{program}\n\n</td>\n' for program in programs)
    head = "".join(f'<th style="{_CELL}">{title}</th>' for title in _TITLES)
    return f"<table>\n<tr>{head}</tr>\n<tr>\n{cells}</tr>\n</table>"


def _two_text_columns(diff: re.Match[str]) -> str:
    """Return the two programs as a text table, or as a diff if they are too wide."""
    programs = [program.rstrip("\n").split("\n") for program in reference_pages.programs(diff[1])]
    table = doc.Table(_TITLES, list(zip_longest(*programs, fillvalue="")), indent=2)
    shown = plain_text(table)
    return shown if max(map(screen_width, shown.split("\n"))) <= _WIDEST else diff[0]


def _program(call: MagicCall, text: str, name: str, language: languages.Language) -> doc.Block:
    from prose_kernel.views.explanation import explained

    compiled = languages.without_errors(call.cells.workspace.compile(text, name, language))
    return explained(compiled.program, compiled.source, language)


def _word(call: MagicCall, word: str, language: languages.Language) -> doc.Block:
    """Return the documentation of a word, and its section of the reference."""
    found = inspection.describe(call.cells, word, language)
    if found is None:
        otherwise = "a code such as E004, a section such as 3.7, or a word: %help"
        hint = nearest_hint(word.lstrip("%"), tables.helpful_words(language), otherwise)
        raise UsageError(f"there is nothing to explain about {word}", hint=hint)
    return with_section(found, word, language)


@magic("%step [on|off]", "show after each program what the machine did, statement by statement, or no longer")
async def step(call: MagicCall) -> None:
    call.cells.stepwise = on_or_off(call, call.cells.stepwise)


# ---------------------------------------------------------------- exercises


@magic(
    "%check [EXERCISE] [--grade]",
    "look at your answer to an exercise; without EXERCISE: list them; --grade: an answer that is not right is an error",
)
async def check(call: MagicCall) -> None:
    from prose_kernel.notebook import exercise_checks, exercises

    cells = call.cells
    words = [word for word in call.words if word != "--grade"]
    if len(words) > 1 or any(word.startswith("-") for word in words):
        raise call.wrong(f"{words[-1]} is not understood")
    if not words:
        return call.show(_listed(call))
    found, name = exercises.find(cells.cwd, cells.notebook_path, words[0], cells.language)
    exercise = found.exercises[name]
    met = await exercise_checks.findings(cells, exercise, found.language)
    key = f"{found.notebook}/{name}"
    call.show(exercise_checks.feedback(name, exercise, met, cells.exercises.attempts(key)))
    passed = all(one.passed for one in met)
    cells.exercises.attempted(key, passed=passed)
    if not passed and "--grade" in call.words:
        raise UsageError(f"the answer to {name} is not right yet")
    return None


def _listed(call: MagicCall) -> doc.Table:
    """Return the exercises of the notebook, or of all files next to it if its name is unknown."""
    from prose_kernel.notebook import exercises

    cells = call.cells
    paths = exercises.files(cells.cwd, cells.notebook_path)
    own = [path for path in paths if path.stem == Path(cells.notebook_path).stem]
    rows = []
    for path in own or paths:
        found = exercises.read(path, cells.language)
        for name, exercise in found.exercises.items():
            mark = "✓" if cells.exercises.is_solved(f"{found.notebook}/{name}") else ""
            rows.append((name, mark, exercise.task))
    if not rows:
        raise UsageError("there are no exercises here", hint="they are in checks/NOTEBOOK.yaml next to the notebook")
    return doc.Table(("exercise", "done", "task"), rows)
