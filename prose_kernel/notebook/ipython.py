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
import builtins
import concurrent.futures
import queue
import re
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from prose_kernel.errors import NoPerson, ProseError, UsageError
from prose_kernel.language.diagnostics import Profile
from prose_kernel.language.nearest import nearest_hint
from prose_kernel.notebook.cells import Cells, FrontEnd
from prose_kernel.notebook.lab_extension import TARGET, Panel
from prose_kernel.notebook.magics.registry import all_magics, words_of
from prose_kernel.notebook.messages import replaces_displays
from prose_kernel.notebook.stdin import QUESTION_REQUEST, StdinChannel
from prose_kernel.runs import languages
from prose_kernel.runs.languages import Language
from prose_kernel.runs.loop_thread import LoopThread, ctrl_c
from prose_kernel.runs.provenance import Cell, Opening, digest
from prose_kernel.runtime.asker import DECISIONS, NEXT_PART, PARTS_OF_A_PASTE, Form, discard_typed
from prose_kernel.runtime.ports import Stream
from prose_kernel.runtime.services import Asker
from prose_kernel.runtime.values import Value, verbatim
from prose_kernel.views.display import Display, Output, Problem
from prose_kernel.views.escaping import terminal
from prose_kernel.views.problems import problem_of, simple

T = TypeVar("T")
MAGIC = "%prose "
"""The prefix of the kernel's magics in a Python notebook."""
_LISTED = 20


# ---------------------------------------------------------------- results


class Bindings(Mapping[str, object]):
    """The bindings of the Prose run as Python values: `prose["plan"]`.

    Text, output of commands and answers of sessions are `str`; numbers, booleans, `None`, lists and dicts are what they
    are in Python; typed answers and output in a declared format are data. `prose.frame("rows")` is an array of objects
    as a DataFrame. Reading a name that is not bound raises `KeyError`, which lists the names there are. Assigning binds
    a value in the run, as `let` does. The mapping always shows the current state of the run.
    """

    def __init__(self, values: Callable[[], Mapping[str, Value]], bind: Callable[[str, object], None]) -> None:
        self._values = values
        self._bind = bind

    def __getitem__(self, name: str) -> object:
        __tracebackhide__ = True  # IPython shows the line that reads the name, not this one
        return verbatim(self._value(name))

    def _value(self, name: str) -> Value:
        __tracebackhide__ = True
        values = self._values()
        if name not in values:
            raise NotBound(name, tuple(values))
        return values[name]

    def __setitem__(self, name: str, value: object) -> None:
        self._bind(name, value)

    def frame(self, name: str, library: str | None = None) -> Any:
        """An array of objects as a DataFrame of pandas or polars: `library`, else the one that is imported already.

        Raises `KeyError` for a name that is not bound, `TypeError` for a value that isn't an array of objects.
        """
        __tracebackhide__ = True
        from prose_kernel.notebook.python_values import frame

        try:
            return frame(name, self._value(name), library)
        except UsageError as problem:
            raise TypeError(f"{problem}; {problem.hint}" if problem.hint else str(problem)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def __repr__(self) -> str:
        return f"<Prose bindings: {', '.join(self) or 'none yet'}>"


class NotBound(KeyError):
    """The error for a name that is not bound in the run; it lists the bound names."""

    def __init__(self, name: object, known: tuple[str, ...]) -> None:
        super().__init__(name)
        self._known = known

    def __str__(self) -> str:
        if not self._known:
            return f"there is no binding {self.args[0]!r}: nothing is bound yet"
        shown = ", ".join(self._known[:_LISTED])
        more = len(self._known) - _LISTED
        return f"there is no binding {self.args[0]!r}; bound are {shown}" + (f" and {more:,} more" if more > 0 else "")


class CellResult:
    """The last value of a `%%prose` cell as IPython's result, displayed as in the kernel."""

    def __init__(self, display: Display) -> None:
        self._display = display

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, str], dict[str, object]]:
        return dict(self._display.data), self._display.metadata

    def __repr__(self) -> str:
        return self._display.data.get("text/plain", "")


class ProseCellError(Exception):
    """A `%%prose` or `%%vvm` cell failed. Raised as a subclass with the name of the problem (`ExecError` …)."""

    problem: Problem
    of_line: bool
    """Whether a `%prose` line failed: magics have no second `%` there, unlike in a `%%prose` cell."""

    def _render_traceback_(self) -> list[str]:
        lines = self.problem.lines("%prose explain")
        return [_as_python_magics(line) if self.of_line and line.startswith(_HINT) else line for line in lines]


_HINT = "\x1b[2mhint: "


def _as_python_magics(hint: str) -> str:
    """Return a hint with line magics as they are typed in Python: `%prose bindings` instead of `%bindings`."""
    return re.sub(rf"(?<![%\w])%(?=(?:{'|'.join(all_magics())})\b)", MAGIC, hint)


def as_exception(problem: Problem, *, of_line: bool = False) -> ProseCellError:
    """Return an exception with the name, text and traceback of a problem."""
    own = {"__module__": "prose_kernel", "problem": problem, "of_line": of_line}
    kind = type(problem.ename, (ProseCellError,), own)
    error = kind(problem.evalue)
    assert isinstance(error, ProseCellError)
    return error


# ---------------------------------------------------------------- outputs


class ShellOutput(Output):
    """`Output` through IPython's streams and display publisher. `whole_cell` is true if the cell has no other code
    that may display something."""

    def __init__(self, shell: Any, whole_cell: bool) -> None:
        self.whole_cell = whole_cell
        self._shell = shell
        self._last: Stream | None = None
        self.value: Display | None = None

    def stream(self, name: Stream, text: str) -> None:
        if self._last not in (None, name):
            self.flush()
        self._last = name
        (sys.stdout if name == "stdout" else sys.stderr).write(text)

    @property
    def in_place(self) -> bool:
        """Whether displays can be replaced later; a terminal would show them a second time."""
        kernel = getattr(self._shell, "kernel", None)
        return kernel is not None and replaces_displays(kernel.get_parent("shell"))

    def flush(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()

    def display(self, display: Display, display_id: str | None = None) -> None:
        self._publish(display, display_id, update=False)

    def update(self, display: Display, display_id: str) -> None:
        self._publish(display, display_id, update=True)

    def _publish(self, display: Display, display_id: str | None, *, update: bool) -> None:
        self.flush()
        transient = {"display_id": display_id} if display_id else {}
        self._shell.display_pub.publish(
            data=dict(display.data), metadata=display.metadata, transient=transient, update=update
        )

    def result(self, display: Display) -> None:
        self.value = display

    def error(self, problem: Problem) -> None:
        """Do nothing: IPython shows the error when the magic raises it."""

    def clear(self, *, wait: bool = False) -> None:
        self.flush()
        self._shell.display_pub.clear_output(wait)

    def page(self, display: Display) -> None:
        from IPython.core import page

        page.page({"data": dict(display.data), "text/plain": display.data["text/plain"]})


# ---------------------------------------------------------------- the person at a terminal


class TerminalAsker:
    """Asks the person at an IPython prompt, on the main thread, which waits for the cell anyway."""

    magic = MAGIC

    def __init__(self) -> None:
        self.questions: queue.Queue[tuple[str, bool, concurrent.futures.Future[str]]] = queue.Queue()

    @property
    def available(self) -> bool:
        return sys.stdin is not None and sys.stdin.isatty()

    async def ask(self, prompt: str) -> str:
        return await self._ask(prompt, decides=False)

    async def ask_form(self, prompt: str, form: Form) -> str:
        """Ask a question. A decision must be typed after it: text typed or pasted earlier is discarded."""
        return await self._ask(prompt, decides=form.kind in DECISIONS)

    async def _ask(self, prompt: str, *, decides: bool) -> str:
        if not self.available:
            raise NoPerson
        answer: concurrent.futures.Future[str] = concurrent.futures.Future()
        self.questions.put((prompt, decides, answer))
        return await asyncio.wrap_future(answer)

    def show(self, text: str) -> None:
        print(terminal(text))

    def serve(self) -> None:
        """Ask a waiting question; called on the main thread."""
        try:
            prompt, decides, answer = self.questions.get_nowait()
        except queue.Empty:
            return
        if answer.set_running_or_notify_cancel():
            try:
                for _ in range(PARTS_OF_A_PASTE):
                    if not (decides and discard_typed(sys.stdin.fileno())):
                        break
                    time.sleep(NEXT_PART)
                with ctrl_c(signal.default_int_handler):
                    answer.set_result(builtins.input(prompt))
            except EOFError as end:
                answer.set_exception(end)
            except KeyboardInterrupt:
                answer.set_exception(EOFError())
                raise


# ---------------------------------------------------------------- the front end


@dataclass(frozen=True, slots=True)
class Arguments:
    """The words after `%%prose`: Python variables to pass in, bindings to pass out, bindings to pass out as
    DataFrames, and the profile of the cell."""

    ins: tuple[str, ...] = ()
    outs: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    profile: str = ""


def arguments(line: str, magic: str = "prose") -> Arguments:
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
    return Arguments(taken, given, framed, profiles[0] if profiles else "")


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

    def _pass_out(self, given: Arguments, source: str) -> None:
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
