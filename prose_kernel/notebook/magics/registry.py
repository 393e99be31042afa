"""Register, find and run line magics, and give hints for magics of other kernels."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from prose_kernel.access import plain_files
from prose_kernel.errors import UsageError, reason_of
from prose_kernel.language.nearest import Nearest, did_you_mean
from prose_kernel.runs import languages
from prose_kernel.views.bundle import bundle
from prose_kernel.views.display import Display, Output
from prose_kernel.views.document import Block
from prose_kernel.views.escaping import clip

if TYPE_CHECKING:
    from prose_kernel.language.source import Source
    from prose_kernel.notebook.cells import Cells
    from prose_kernel.runs.languages import Language
    from prose_kernel.views.cell_view import CellView


class MagicCall(Struct, frozen=True):
    """One use of a magic, under one of its names: its words (as a shell would split them), its text as typed, and the
    output to show things in.

    `below` is the program text below a magic that shows it instead of letting it run.
    """

    magic: Magic
    cells: Cells
    words: tuple[str, ...]
    text: str
    output: Output
    view: CellView
    below: str = ""

    def show(self, shown: Block | Display) -> None:
        self.output.display(bundle(shown))

    def say(self, text: str) -> None:
        self.show(Display({"text/plain": text}))

    def wrong(self, text: str, called: str = "") -> UsageError:
        """Return the error of a wrong call. `called` replaces the name of the magic in it."""
        return UsageError(f"%{called or self.magic.name}: {text}", hint=f"usage: {self.magic.usage}")

    def check_word_count(self, minimum: int, maximum: int) -> None:
        """Raise `UsageError` if there are too few or too many words."""
        if not minimum <= len(self.words) <= maximum:
            raise self.wrong(f"too {'few' if len(self.words) < minimum else 'many'} words")

    def take_option(self, words: list[str], option: str, called: str = "") -> str | None:
        """Remove an option and the word after it from `words`, and return the word. Raises `UsageError`, in which
        `called` replaces the name of the magic."""
        if option not in words:
            return None
        at = words.index(option)
        if at + 1 == len(words):
            raise self.wrong(f"{option} needs a value", called)
        value = words[at + 1]
        del words[at : at + 2]
        return value


Run = Callable[[MagicCall], Awaitable[None]]


class Magic(Struct, frozen=True):
    """A magic: its usage, its effect in one line (`summary`), and its function. `raw`: its text isn't split into
    words."""

    name: str
    usage: str
    summary: str
    run: Run
    raw: bool = False


_MODULES = (
    "prose_kernel.evaluation.magic",
    "prose_kernel.notebook.magics.calls",
    "prose_kernel.notebook.magics.export",
    "prose_kernel.notebook.magics.freshness",
    "prose_kernel.notebook.magics.restore",
    "prose_kernel.notebook.magics.pictures",
    "prose_kernel.notebook.magics.sessions",
    "prose_kernel.notebook.magics.plan",
    "prose_kernel.notebook.magics.tasks",
    "prose_kernel.notebook.magics.teaching",
    "prose_kernel.notebook.magics.general",
)
_defined: dict[str, Magic] = {}


@functools.cache
def all_magics() -> Mapping[str, Magic]:
    """Return all magics by name. The first call imports the modules that define them, except for modules of a room that
    is missing from the installation."""
    for module in _MODULES:
        if importlib.util.find_spec(module.rpartition(".")[0]) is not None:
            importlib.import_module(module)
    return _defined


def magic(usage: str, summary: str, *more: str, raw: bool = False) -> Callable[[Run], Magic]:
    """Register a magic under the name in its usage, and under `more` names."""

    def register(run: Run) -> Magic:
        name = usage.split()[0].removeprefix("%")
        for known in (name, *more):
            _defined[known] = Magic(known, usage.replace(f"%{name}", f"%{known}", 1), summary, run, raw)
        return _defined[name]

    return register


_GROUPS: Mapping[str, str] = {
    "learn": "help explain check step",
    "look at the run": "bindings binding agents blocks history state usage",
    "foresee": "plan prompt graph",
    "see what happened": "timeline profile report show",
    "run": "run call eval rerun stale ask input gate trust",
    "go back, keep": "back restore reset export",
    "sessions": "provider judge cassette budget",
    "commands, tasks": "exec tasks task stop resume cd boundaries remote",
    "notebook": "pip clear warnings",
}


def grouped() -> Mapping[str, tuple[str, ...]]:
    """Return the names of line magics by purpose, in the order of `%help`, with one name of each magic."""
    known = all_magics()
    return {title: tuple(name for name in names.split() if name in known) for title, names in _GROUPS.items()}


def cell_magics() -> list[tuple[str, str]]:
    """Return the usage and the summary of each cell magic: a first line that decides how the whole cell is read."""
    of_languages = [
        (f"%%{one.magic}", f"as the first line: the whole cell is {one.title}") for one in languages.LANGUAGES.values()
    ]
    return [
        *of_languages,
        ("%%task [OPTIONS]", "the whole cell is one shell command; options as for %exec; also %%command"),
    ]


def on_or_off(call: MagicCall, now: bool) -> bool:
    """Return whether the word after a magic is `on`; without a word, show and return the current state `now`. Raises
    `UsageError`."""
    call.check_word_count(0, 1)
    if not call.words:
        call.say("on" if now else "off")
        return now
    if call.words[0] not in ("on", "off"):
        raise call.wrong("on or off")
    return call.words[0] == "on"


def resolve_path(cells: Cells, given: str) -> Path:
    """Resolve a path that was typed, relative to the directory in which commands run."""
    return cells.directory / os.path.expanduser(given)


def read_program(call: MagicCall, name: str) -> tuple[Source, Language]:
    """Read a program file whose name was typed after a magic, and return it with its language. Raises `UsageError`."""
    try:
        data = plain_files.read_named(resolve_path(call.cells, name))
    except (OSError, ValueError) as problem:
        reason = reason_of(problem) if isinstance(problem, OSError) else "not a file name"
        elsewhere = name.startswith(("http://", "https://", "@"))
        hint = f'programs from elsewhere are imported: use "{name}" as name' if elsewhere else None
        raise UsageError(f"%{call.magic.name}: {name} cannot be read: {reason}", hint=hint) from None
    language = languages.of_file(name)
    return language.decode(data, name), language


def find(line: str, language: Language | None = None) -> Magic:
    """Find the magic for a line (without its `%`) in a cell of a language. Raises `UsageError` for an unknown magic."""
    name = line.partition(" ")[0].strip()
    if name.startswith("%"):
        known = [usage.split()[0] for usage, _ in cell_magics()]
        hint = _INSTEAD.get(name.removeprefix("%")) or f"there are {', '.join(known)}"
        if languages.of_magic(name.removeprefix("%")) is not None:
            hint = f"%{name} names the language of a whole cell: write it at the very beginning of the cell"
        raise UsageError(f"there is no cell magic %{clip(name)}", hint=statement(hint, language))
    found = all_magics().get(name)
    if found is None:
        raise UsageError(f"there is no magic %{clip(name)}", hint=statement(_instead(name, line), language))
    return found


def statement(hint: str, language: Language | None) -> str:
    """Return a hint. If it is an `exec` statement, and this language has none, add the kind of cell to write it in."""
    first = languages.default()
    if language in (None, first) or not hint.startswith('exec "'):
        return hint
    return f"in a cell that begins with %%{first.magic}: {hint}"


_SHELL = frozenset(
    (
        *("ls", "ll", "la", "pwd", "cat", "less", "more", "head", "tail", "grep", "find", "mkdir", "rmdir", "rm"),
        *("cp", "mv", "touch", "man", "echo", "git", "make"),
    )
)
_INSTEAD = {
    **dict.fromkeys(("sx", "system", "sc"), 'exec "make" runs a command; let log = exec "make" keeps what it prints'),
    **dict.fromkeys(("bash", "sh", "script", "zsh"), 'exec """ and the lines of a script below it, ended by """'),
    **dict.fromkeys(("time", "timeit", "prun"), 'exec "time make" times a command'),
    **dict.fromkeys(("who", "whos", "who_ls", "vars", "variables", "names"), "%bindings lists what is bound"),
    **dict.fromkeys(("lsmagic", "magic", "quickref"), "%help lists all magics"),
    **dict.fromkeys(("env", "set_env"), 'exec "TARGET=test make" sets a variable for one command'),
    **dict.fromkeys(("load_ext", "reload_ext"), "nothing needs to be loaded in this notebook"),
    **dict.fromkeys(("python", "python3", "py", "pypy"), 'exec "python3 script.py" runs Python'),
    **dict.fromkeys(("conda", "mamba", "uv"), "%pip install NAME installs into the Python of this kernel"),
    **dict.fromkeys(("matplotlib", "autoreload", "pylab", "config"), "leave it out: this is not a Python notebook"),
    **dict.fromkeys(("load", "loadpy", "include"), "%run FILE runs a program file"),
    "reset_selective": "%reset forgets every name",
}


_MAX_HINT: Final = 200
"""The most characters of the user's text in a hint."""


def _instead(name: str, line: str) -> str:
    """Return the text to type instead of a misspelt magic, or a magic of other kernels."""
    if name in _SHELL:
        return f'exec "{clip(line, _MAX_HINT)}"'
    if name in _INSTEAD:
        return _INSTEAD[name]
    if (of_cell := languages.of_magic(name)) is not None:
        return f"%%{name} on the first line makes the whole cell {of_cell.title}"
    near = Nearest()(name, all_magics())
    return did_you_mean(near and f"%{near}") or "%help lists all magics"


_MAX_QUOTED: Final = 100_000
"""The most characters of a line of words with quotes."""
_QUOTING: Final = re.compile(r"['\"\\]")
_PLAIN_WORDS: Final = re.compile(r"[^ \t\r\n]+")


def words_of(text: str, magic: str, usage: str) -> list[str]:
    """Split the line of `magic`, such as `%run`, as a shell does. Raises `UsageError` for an unclosed quote, and for a
    quoted line for which `shlex`, which takes the square of a word's length, would need minutes."""
    if len(text) > _MAX_QUOTED:
        if _QUOTING.search(text):
            message = f"the line has quotes and is longer than {_MAX_QUOTED:,} characters"
            raise UsageError(f"{magic}: {message}", hint=f"usage: {usage}")
        return _PLAIN_WORDS.findall(text)
    try:
        return shlex.split(text)
    except ValueError as problem:
        raise UsageError(f"{magic}: {problem}".lower(), hint=f"usage: {usage}") from None


async def run_line(cells: Cells, line: str, output: Output, view: CellView, below: str = "") -> None:
    """Run a magic line (without its `%`); `below` is the program text that it may show. Raises `UsageError`, and the
    errors of the magic's work."""
    found = find(line, view.language)
    rest = line.partition(" ")[2]
    words = () if found.raw else tuple(words_of(rest, f"%{found.name}", found.usage))
    await found.run(MagicCall(found, cells, words, rest.strip(), output, view, below))
