"""The displays of a cell: MIME bundles, errors, and the protocol `Output` that each front end implements."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from prose_kernel.runtime.ports import Stream


class Display(Struct, frozen=True):
    """A MIME bundle. `facts` holds values that vary from run to run (durations, models, run ids): they become the
    output's metadata under the key `prose`, which comparisons of notebooks ignore. `person` is the bundle with such
    figures included: it is part of the metadata, too, and front ends with our extension show it instead."""

    data: Mapping[str, str]
    facts: Mapping[str, object] = field(default_factory=dict)
    person: Mapping[str, str] = field(default_factory=dict)

    @property
    def metadata(self) -> dict[str, object]:
        found = {**self.facts, "person": dict(self.person)} if self.person else dict(self.facts)
        return {"prose": found} if found else {}


class Problem(Struct, frozen=True):
    """An error output: stable name and value; the traceback has only program lines, with ANSI styles. `code` is the
    code of the diagnostic, if there is one; `link` is the address of the reference page that explains it."""

    ename: str
    evalue: str
    traceback: tuple[str, ...]
    code: str = ""
    link: str = ""

    def lines(self, explain: str) -> list[str]:
        """Return the traceback, and how to read about the code: `explain` is the command for it in this front end."""
        if not self.code:
            return list(self.traceback)
        return [*self.traceback, f"\x1b[2mmore: {explain} {self.code}\x1b[0m", *([self.link] if self.link else [])]


class Output:
    """The destination of one cell's outputs, in the order of the calls. Subclasses ignore calls that they do not
    define."""

    def stream(self, name: Stream, text: str) -> None:
        """Append text to a stream, and return when it has been sent."""

    def display(self, display: Display, display_id: str | None = None) -> None:
        """Show a bundle; with an id it can be replaced later."""

    def update(self, display: Display, display_id: str) -> None:
        """Replace the bundle shown under an id."""

    def result(self, display: Display) -> None:
        """Show the cell's last value. Called at most once a cell, as the last output."""

    def error(self, problem: Problem) -> None:
        """Show the error of a failed cell. Called at most once, as the last output."""

    def clear(self, *, wait: bool = False) -> None:
        """Remove the outputs that the cell has shown so far; with `wait`, remove them when the next output comes."""

    def page(self, display: Display) -> None:
        """Show help next to the notebook, if the front end has a place for it."""


class ForwardingOutput(Output):
    """An `Output` that forwards all calls to another one; subclasses intercept some of them."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def stream(self, name: Stream, text: str) -> None:
        self._output.stream(name, text)

    def display(self, display: Display, display_id: str | None = None) -> None:
        self._output.display(display, display_id)

    def update(self, display: Display, display_id: str) -> None:
        self._output.update(display, display_id)

    def result(self, display: Display) -> None:
        self._output.result(display)

    def error(self, problem: Problem) -> None:
        self._output.error(problem)

    def clear(self, *, wait: bool = False) -> None:
        self._output.clear(wait=wait)

    def page(self, display: Display) -> None:
        self._output.page(display)
