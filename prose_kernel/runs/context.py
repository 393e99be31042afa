"""The context of a run: the start options of its workspace, settings, front end, listeners, and supplied values."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec import field as struct_field

from prose_kernel.language.contracts import file_and_node
from prose_kernel.runs import languages
from prose_kernel.runs.lazy_objects import Once
from prose_kernel.runs.settings import Settings
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.events import Audience, Listener, UnreportedBegins
from prose_kernel.runtime.ports import CONFIGURED, Clock, LoadedProgram, LoadRequest, Overrides

if TYPE_CHECKING:
    from prose_kernel.cassettes.recordings import SharedCassettes
    from prose_kernel.models.providers.model_servers import SharedConnections
    from prose_kernel.processes.engine import Engine
    from prose_kernel.remote.commands import RemoteCommands
    from prose_kernel.runs.earlier_run import EarlierRun
    from prose_kernel.runs.languages import Language
    from prose_kernel.runs.resumption import Resumption
    from prose_kernel.runtime.services import Asker
    from prose_kernel.storage.gates.answers import GateAnswer
    from prose_kernel.telemetry.spans_from_events import Spans


@dataclass(frozen=True, slots=True)
class Start:
    """The start options of a workspace.

    - `program_file`: the name of the program in the trace. If it is a file, local imports are relative to its
      directory, otherwise to `cwd`.
    - `notebook`: cells arrive one by one, and gates never wait for a decision from outside.
    - `supplied`, `decisions`: input values, and decisions of gates, that were given beforehand.
    - `gate_files`: gates are decided by files that another program writes.
    - `elsewhere`: the program is an example of the package, not a file of the user; its sessions work in `cwd`.
    - `origin`: the registry name or URL of a fetched program. `trust`: the fetched programs agreed to beforehand.
    - `language`: the language of a text that does not name one, None for the language of the program file.
    - `at`: the prefix of all paths of the run.
    - `recordings`, `connections`: recordings, and connections to model servers, that several runs share.
    - `run_id`: the id of the first run, "" for a new id.
    - `overrides`: ports that Python code supplies.
    - `keep`: the earlier run whose answers the run may use.
    """

    cwd: Path
    program_file: str = "notebook"
    notebook: bool = True
    supplied: Mapping[str, str] = field(default_factory=dict)
    decisions: Mapping[str, bool] = field(default_factory=dict)
    gate_files: bool = False
    elsewhere: bool = False
    notebook_path: str = ""
    origin: str = ""
    trust: Sequence[str] = ()
    language: Language | None = None
    at: str = ""
    recordings: SharedCassettes | None = None
    connections: SharedConnections | None = None
    run_id: str = ""
    overrides: Overrides = CONFIGURED
    keep: EarlierRun | None = None


class Listeners:
    """The listeners of a workspace. While a run is restored, whose events were shown when they happened, they are
    muted: only listeners added with `replayed` receive events."""

    def __init__(self, listeners: Iterable[Listener], *, muted: bool) -> None:
        self._live = Audience(listeners)
        self.all = Audience((self._live,))
        """Receives all events of a run."""
        self._unreported = UnreportedBegins()
        self._muted = False
        self.mute(muted)

    def add(self, listener: Listener, *, replayed: bool) -> None:
        (self.all if replayed else self._live).add(listener)

    def remove(self, listener: Listener) -> None:
        (self._live if self._live.has(listener) else self.all).remove(listener)

    def mute(self, muted: bool) -> None:
        """Start or stop noting events instead of passing them to the listeners."""
        if muted is not self._muted:
            self._muted = muted
            self.all.remove(self._live if muted else self._unreported.note)
            self.all.add(self._unreported.note if muted else self._live)

    def emit_open(self) -> None:
        """Emit the begin of open activities that began while the listeners were muted. Listeners added with `replayed`
        have received it already."""
        for event in self._unreported.take():
            self._live(event)

    def text_ended(self) -> None:
        """Forget the activities of a text of the restored run, which has ended."""
        self._unreported.forget_activities()

    def forget(self) -> None:
        """Reset the listeners after the end of a run."""
        self._unreported.take()
        self.mute(False)


class SuppliedValues:
    """Input values and decisions about gates that were given before the program asks for them."""

    def __init__(self, start: Start, *, resumed: bool = False) -> None:
        self.supplied = dict(start.supplied)
        self.decisions = dict(start.decisions)
        self.following: dict[str, deque[GateAnswer]] = {}
        self._by_journal = set(start.supplied) if resumed else set[str]()
        self._declared: set[str] = set()

    def supply(self, name: str, value: str, *, by_journal: bool = False) -> None:
        """Set the value of an input. `by_journal`: it was given to an earlier process of the run."""
        self.supplied[name] = value
        (self._by_journal.add if by_journal else self._by_journal.discard)(name)

    def take_over(self, former: SuppliedValues) -> None:
        """Take over the values and decisions given in this process before the run was restored again."""
        for name in former.supplied.keys() - former._by_journal:
            self.supply(name, former.supplied[name])
        self.decisions.update(former.decisions)
        self.following.update(former.following)

    def declare(self, names: Iterable[str]) -> None:
        """Note that texts of the run declare these inputs."""
        self._declared.update(names)

    def decision(self, name: str) -> str | None:
        """Return the supplied value that decides a gate: the value with its name, unless a text of the run declares an
        input of that name, or the value was given to an earlier process of the run."""
        return None if name in self._declared or name in self._by_journal else self.supplied.get(name)


class RunContext(Struct, frozen=True):
    """The surroundings of a run. Settings, front end and process engine outlive the run; a change makes a new context.

    `load` loads an import, `interrupt` ends the running program. `resumption` is the earlier run that this one
    continues. `warnings` may be added from any thread and are shown at the end of a text. `remote` runs commands on
    other machines, `spans` reports the run to OpenTelemetry and the log.
    """

    settings: Settings
    start: Start
    asker: Asker
    emit: Listener
    load: Callable[[LoadRequest], Awaitable[LoadedProgram]]
    interrupt: Callable[[], None]
    given: SuppliedValues
    engine: Once[Engine]
    clock: Clock = struct_field(default_factory=SystemClock)
    warnings: deque[str] = struct_field(default_factory=deque)
    resumption: Resumption | None = None
    remote: RemoteCommands | None = None
    spans: Spans | None = None

    @property
    def language(self) -> Language:
        """The language of a text that does not name one."""
        return self.start.language or languages.of_file(self.start.program_file)

    @property
    def state_setting_applies(self) -> bool:
        """Whether the setting `state` decides where the run is kept (OpenProse), rather than `vvm_state`."""
        return self.language.state == "state"

    @property
    def leaves_no_files(self) -> bool:
        """Whether the run leaves nothing on disk unless the user asks for it: a VVM program in its default mode
        (docs/reference/vvm.md 7.1). A notebook is a file itself, so its run is kept."""
        start = self.start
        noted = start.notebook or start.program_file.endswith(".ipynb") or start.recordings is not None
        return not self.state_setting_applies and self.settings.vvm.state != "filesystem" and not noted

    @property
    def file(self) -> Path | None:
        """The program file, if there is one."""
        file = self.start.cwd / file_and_node(self.start.program_file)[0]
        return file if file.is_file() else None

    @property
    def project(self) -> Path:
        """The directory in which the sessions of the run work."""
        next_to_file = self.language.works_next_to_file and not self.start.notebook and not self.start.elsewhere
        return self.file.parent if next_to_file and self.file is not None else self.start.cwd

    @property
    def functions(self) -> Path | None:
        """The directory whose Python functions sessions may use; None if the program isn't a file of the user."""
        if self.start.origin or self.start.elsewhere:
            return None
        return self.file.parent if self.file is not None else self.start.cwd

    def show(self, warning: str) -> None:
        self.asker.show(f"Warning: {warning}")

    def show_warnings(self) -> None:
        """Show the warnings that were added since the last call."""
        while self.warnings:
            self.show(self.warnings.popleft())
