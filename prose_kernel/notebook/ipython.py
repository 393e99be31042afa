"""Prose and VVM in Python notebooks: `%load_ext prose_kernel`, then `%%prose` and `%%vvm` cells, `%prose …` and
`%vvm …` lines, and `prose["name"]`. Cells of both languages belong to one run.

A cell runs through the same `Cells` as in the kernel, on an event loop in a separate thread, because IPython's loop
is busy with the cell that waits for it. An interrupt reaches the Prose cell first: its commands end, its `finally`
bodies run, and then the Python cell ends with the error. It takes effect wherever the cell waits, and the machine
yields to the loop during long computations. Code of another package that never waits (a listener, a front end's hook)
cannot be stopped, because Python interrupts only the main thread.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from msgspec import Struct

from prose_kernel.errors import ProseError, UsageError
from prose_kernel.language.diagnostics import Profile
from prose_kernel.language.nearest import nearest_hint
from prose_kernel.language.structs import replace
from prose_kernel.notebook.bindings import Bindings
from prose_kernel.notebook.cells import Cells, FrontEnd
from prose_kernel.notebook.ipython_output import MAGIC, CellResult, ShellOutput, TerminalAsker, as_exception
from prose_kernel.notebook.lab_extension import TARGET, Panel
from prose_kernel.notebook.magics.registry import all_magics, words_of
from prose_kernel.notebook.messages import replaces_displays
from prose_kernel.notebook.stdin import QUESTION_REQUEST, StdinChannel
from prose_kernel.runs import languages
from prose_kernel.runs.languages import Language
from prose_kernel.runs.loop_thread import LoopThread
from prose_kernel.runs.provenance import Cell, Opening, digest
from prose_kernel.runtime.services import Asker
from prose_kernel.runtime.values import Value
from prose_kernel.views.display import Problem
from prose_kernel.views.problems import problem_of, simple

T = TypeVar("T")


class CellArguments(Struct, frozen=True):
    """The words after `%%prose`: Python variables to pass in, bindings to pass out, bindings to pass out as
    DataFrames, and the profile of the cell."""

    ins: tuple[str, ...] = ()
    outs: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    profile: str = ""


def arguments(line: str, magic: str = "prose") -> CellArguments:
    """Read `--profile NAME`, `--in NAME … --out NAME … --frame NAME …` after `%%magic`.

    Raises `UsageError` for anything else.
    """
    lists: dict[str, list[str]] = {"--in": [], "--out": [], "--frame": []}
    current: list[str] | None = None
    profiles: list[str] = []
    usage = f"%%{magic} [--profile NAME] [--in NAME …] [--out NAME …] [--frame NAME …]"
    for word in words_of(line.replace("--profile=", "--profile "), f"%%{magic}", usage):
        if word == "--profile":
            current = profiles
        elif current is profiles and not profiles:
            profiles.append(word)
        elif word in lists:
            current = lists[word]
        elif current is None or current is profiles or not word.isidentifier():
            raise UsageError(f"%%{magic}: {word} is not understood", hint=f"usage: {usage}")
        else:
            current.append(word)
    taken, given, framed = (tuple(lists[name]) for name in ("--in", "--out", "--frame"))
    return CellArguments(taken, given, framed, profiles[0] if profiles else "")


@dataclass
class PythonFrontEnd(FrontEnd):
    """The front end of `%%prose` in one IPython shell."""

    shell: Any
    thread: LoopThread = field(default_factory=LoopThread)

    def __post_init__(self) -> None:
        self._request: tuple[Any, Any] = ([], {})
        self._output: ShellOutput | None = None
        self._framed: dict[str, tuple[str, ...]] = {}  # bindings that cells pass out as DataFrames, by cell key
        kernel = getattr(self.shell, "kernel", None)
        self._terminal: TerminalAsker | None = None
        self._channel: StdinChannel | None = None
        asker: Asker
        if kernel is None:
            asker = self._terminal = TerminalAsker()
        else:
            asker = self._channel = StdinChannel(kernel, lambda: self._request, lambda: self._output, MAGIC)
            kernel.control_handlers[QUESTION_REQUEST] = self._channel.answer_question_request
        self.cells = Cells(Path.cwd(), asker, front_end=self)
        self.bindings = Bindings(self.values, self.bind)
        self.panel: Panel | None = None
        if kernel is not None:
            self.panel = Panel(self.cells, self._later)
            _register_comm_target(self.panel)
            self.shell.events.register("post_run_cell", self._cell_ended)

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        loop = self.thread.loop
        loop.call_soon_threadsafe(lambda: loop.call_later(seconds, work))

    def _cell_ended(self, result: object) -> None:
        """Update the panel after any cell, which may have changed a variable that one of our cells uses."""
        if self.panel is not None:
            self.panel.cell_ended()

    # ------------------------------------------------------------ the magics

    def cell(self, language: Language, line: str, code: str) -> CellResult | None:
        """Run a `%%prose` or `%%vvm` cell. Raises a `ProseCellError` with the name of the problem."""
        source = f"%%{language.magic}"
        try:
            given = arguments(line, language.magic)
            if given.profile:
                language = languages.in_profile(language, cast("Profile", given.profile))
            elif language.name == self.cells.language.name:
                language = self.cells.language
            values = {name: self._python_value(name, source) for name in given.ins}
        except (UsageError, ValueError) as problem:
            raise as_exception(simple("UsageError", str(problem), getattr(problem, "hint", None))) from None
        taken, digests = (*given.outs, *given.frames), _digests(language, values)
        # the blank line replaces the line of the magic, so that line numbers are right
        opening = replace(self._opening(), code=f"\n{code}", language=language, given=digests, taken=taken)
        self._framed[opening.key] = given.frames
        result = self._run(language, opening, values, whole_cell=True)
        self._pass_out(given, source)
        return result

    def line(self, language: Language, line: str) -> CellResult | None:
        """Run `%prose …`: a statement (`%prose let x = 1`), or a line magic of the kernel without its `%`.

        Text that is a program runs as one: `%prose exec "make"` runs a statement, `%prose exec make` a magic. The name
        of a binding shows its value; the name of a magic without arguments runs the magic.
        """
        text = line.strip() or "help"
        if text in self.bindings:
            text = f"%binding {text}"
        program = text.startswith("%") or self._is_program(text, language)
        opening = replace(self._opening(python=True), code=text if program else f"%{text}", language=language)
        return self._run(language, opening, {})

    def _is_program(self, text: str, language: Language) -> bool:
        if text in all_magics():
            return False  # although a single word may be an expression
        try:
            compiled = self.cells.workspace.compile(text, language=language)
        except UsageError:
            return False  # a setting is invalid, which the line reports when it runs
        word = text.split(None, 1)[0]
        return compiled.ok or (word not in all_magics() and text != word)

    def values(self) -> Mapping[str, Value]:
        """Return the values of the run."""
        self._restore_former()
        return self.cells.values()

    def _restore_former(self) -> None:
        """Restore the run if an interrupt has stopped its restoring, as a cell does first."""
        if self.cells.unrestored is not None:
            try:
                self._wait(self.cells.restore_former())
            except (ProseError, asyncio.CancelledError) as error:
                raise as_exception(problem_of(error)) from None

    def bind(self, name: str, value: object) -> None:
        """Run `prose[name] = value`. Raises `TypeError` if the name or the value cannot be bound."""
        if not isinstance(name, str) or not name.isidentifier():
            raise TypeError(f"{name!r} cannot be the name of a binding")
        from prose_kernel.notebook.python_values import plain_value

        try:
            plain = plain_value(value, f"prose {name}")
            self._restore_former()
            self._wait(self._give(self._opening(python=True), {name: plain}, "prose"))
        except UsageError as problem:
            raise TypeError(f"{problem}; {problem.hint}" if problem.hint else str(problem)) from None

    def _python_value(self, name: str, source: str) -> object:
        """Return the value of a Python variable as it is passed to a cell. Raises `UsageError`."""
        from prose_kernel.notebook.python_values import plain_value

        try:
            value = self.shell.user_ns[name]
        except KeyError:
            known = [one for one in self.shell.user_ns if not one.startswith("_")]
            missing = f"{source} --in {name}: there is no Python variable of that name"
            raise UsageError(missing, hint=nearest_hint(name, known, "an earlier cell has to set it")) from None
        return plain_value(value, f"{source} --in {name}")

    def _pass_out(self, given: CellArguments, source: str) -> None:
        for option, names in (("--out", given.outs), ("--frame", given.frames)):
            for name in names:
                if name not in self.bindings:
                    problem = f"{source} {option} {name}: the cell has bound no such name"
                    hint = nearest_hint(name, self.bindings, "prose shows what is bound")
                    raise as_exception(simple("UsageError", problem, hint))
                self.shell.user_ns[name] = self.bindings[name] if option == "--out" else self._frame(name, source)

    def _frame(self, name: str, source: str) -> object:
        from prose_kernel.notebook.python_values import frame

        try:
            return frame(name, self.cells.values()[name])
        except UsageError as problem:
            raise as_exception(simple("UsageError", f"{source} --frame: {problem}", problem.hint)) from None

    # ------------------------------------------------------------ run cells

    def _opening(self, python: bool = False) -> Opening:
        """Return the identity of the cell that IPython runs."""
        kernel, number = getattr(self.shell, "kernel", None), self.shell.displayhook.prompt_count
        parent = kernel.get_parent("shell") if kernel is not None else {}
        code = parent.get("content", {}).get("code") or ""
        opening = self.cells.opening(code, number, parent.get("metadata", {}))
        last = self.cells.provenance.last
        if last is not None and (last.key, last.number) == (opening.key, opening.number):
            opening = replace(opening, run=last.run)  # another line of a cell that is running
        return replace(opening, python=python)

    async def _give(
        self, opening: Opening, values: Mapping[str, object], source: str, language: Language | None = None
    ) -> None:
        """Bind Python values, and record the cell `opening` as their origin. Raises `UsageError`."""
        from prose_kernel.notebook.python_values import bind_values

        self.cells.provenance.begin(opening)
        try:
            await bind_values(self.cells, values, source, language)
        finally:
            self.cells.provenance.end(failed=False)

    def holds(self, cell: Cell, name: str) -> bool:
        opening = cell.opening
        if opening.language is None or name not in self.shell.user_ns:
            return False
        try:
            value = self._python_value(name, "")
        except UsageError:
            return False
        return _digests(opening.language, {name: value})[name] == opening.given[name]

    @asynccontextmanager
    async def rerunning(self, opening: Opening) -> AsyncIterator[None]:
        from prose_kernel.notebook.python_values import bind_values

        if opening.given and opening.language is not None:
            source = f"%%{opening.language.magic} --in"
            values = {name: self._python_value(name, source.removesuffix(" --in")) for name in opening.given}
            self.cells.provenance.begin(replace(opening, given=_digests(opening.language, values)))
            await bind_values(self.cells, values, source, opening.language)
        yield
        frames = self._framed.get(opening.key, ())
        for name in opening.taken:
            if name in self.bindings:
                self.shell.user_ns[name] = self._frame(name, "%rerun") if name in frames else self.bindings[name]

    def rerun(self, cells: Sequence[Cell]) -> bool:
        return self.panel is not None and self.panel.rerun(cells)

    def _run(
        self, language: Language, opening: Opening, values: Mapping[str, object], *, whole_cell: bool = False
    ) -> CellResult | None:
        if values:
            self._restore_former()
        output = self._output = ShellOutput(self.shell, whole_cell)
        live = self._prepare()
        if self.panel is not None:
            self.panel.cell_started()
        try:
            problem = self._wait(self._work(language, opening, values, output, live))
        finally:
            output.flush()
            self._output = None
        if problem is not None:
            raise as_exception(problem, of_line=opening.python) from None
        return CellResult(output.value) if output.value is not None else None

    async def _work(
        self, language: Language, opening: Opening, values: Mapping[str, object], output: ShellOutput, live: bool
    ) -> Problem | None:
        if values:
            try:
                await self._give(opening, values, f"%%{language.magic} --in", language)
            except UsageError as problem:
                return simple("UsageError", str(problem), problem.hint)
        return await self.cells.run(opening.code, output, live=live, language=language, opening=opening)

    def _prepare(self) -> bool:
        """Prepare for questions of a cell. Return whether a person is watching it where displays can be replaced."""
        if self._channel is None:
            return False
        kernel = self.shell.kernel
        self._request = (kernel._get_shell_context_var(kernel._shell_parent_ident), kernel.get_parent("shell"))
        self._channel.available = bool(kernel._allow_stdin)
        return self._channel.available and replaces_displays(self._request[1])

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the end of the cell, also after a keyboard interrupt, which is passed on to the cell."""
        serve = self._terminal.serve if self._terminal is not None else lambda: None
        return self.thread.wait(work, self.cells.interrupt, serve, raises=False)

    def close(self) -> None:
        """End the run, its processes and the thread."""
        if self.panel is not None:
            with suppress(Exception):
                self.shell.events.unregister("post_run_cell", self._cell_ended)
            self.panel = None
        if self._channel is not None:
            self.shell.kernel.control_handlers.pop(QUESTION_REQUEST, None)
        if self.cells.started_workspace is not None:
            with suppress(Exception):
                self.thread.submit(self.cells.close()).result(timeout=10)
        self.thread.close()


def _register_comm_target(panel: Panel) -> None:
    """Let front ends open channels to the panel."""
    import comm

    def opened(link: Any, message: Mapping[str, Any]) -> None:
        link.on_msg(lambda message: panel.received(link, message["content"]["data"]))
        link.on_close(lambda message: panel.closed(link))
        panel.opened(link)

    comm.get_comm_manager().register_target(TARGET, opened)


def _digests(language: Language, values: Mapping[str, object]) -> dict[str, str]:
    """Return digests of Python values as they are passed to a cell; "" for a value that cannot be passed."""
    found = {}
    for name, value in values.items():
        try:
            found[name] = digest(language.bind(name, value, name))
        except UsageError:
            found[name] = ""
    return found


_fronts: dict[int, PythonFrontEnd] = {}
_register_atexit: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)
"""Its callbacks run while threads can still be started, which ending a run needs."""


def _close_all() -> None:
    for id_ in tuple(_fronts):
        _fronts.pop(id_).close()


def load(shell: Any) -> None:
    """Run `%load_ext prose_kernel`: add the magics, and the name `prose` unless the notebook uses it already."""
    if id(shell) in _fronts:
        return
    if not _fronts:
        import concurrent.futures.thread  # noqa: F401 - its callback, registered before ours, runs after it

        _register_atexit(_close_all)
    front = _fronts[id(shell)] = PythonFrontEnd(shell)
    from IPython.core.magic import no_var_expand

    for language in languages.LANGUAGES.values():
        cell, line = (partial(_interruptible, run, language) for run in (front.cell, front.line))
        shell.register_magic_function(cell, magic_kind="cell", magic_name=language.magic)
        line = no_var_expand(line)  # braces are the program's
        shell.register_magic_function(line, magic_kind="line", magic_name=language.magic)
    shell.user_ns.setdefault("prose", front.bindings)


def _interruptible(run: Callable[..., CellResult | None], *arguments: object) -> CellResult | None:
    """Run a magic. An interrupt before or after its wait shows no code of this package."""
    try:
        return run(*arguments)
    except KeyboardInterrupt as key:
        raise as_exception(problem_of(key)) from None


def unload(shell: Any) -> None:
    """Run `%unload_ext prose_kernel`: end the run and remove the magics."""
    front = _fronts.pop(id(shell), None)
    if front is None:
        return
    front.close()
    for kind in ("cell", "line"):
        for language in languages.LANGUAGES.values():
            shell.magics_manager.magics[kind].pop(language.magic, None)
    if shell.user_ns.get("prose") is front.bindings:
        del shell.user_ns["prose"]
