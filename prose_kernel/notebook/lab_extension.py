"""Send the JupyterLab extension its data: stale cells, findings in cells, and the content of a panel about the run.

The extension opens a channel to the target `prose_kernel:panel`. After each cell the kernel sends the list of stale
cells; it updates the panel only while that is shown. Without a channel nothing is computed. The messages:

to the kernel    {"do": "cells", "cells": [[id, text], ...]}: the order of the notebook has changed
                 {"do": "show", "on": true}, {"do": "value", "name": ...}
after each cell  {"kind": "stale", "stale": [...], "next": [ids that run first], "after": id}
                 {"kind": "kept", "cells": {id: [paths]}}: the kept answers of cells
when shown       kinds `names` (`changed`, `gone`, `agents`) and `running`; `run` asks to run the stale cells

Execute requests have `cellId` and `deletedCells` in their metadata, and `prose_rerun` for kept answers:
{"again": [paths]} or {"keep": true}.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from prose_kernel.errors import UsageError
from prose_kernel.language.source import Source
from prose_kernel.notebook.cell_scan import draft_language, has_statements, segments
from prose_kernel.views.escaping import clip, preview, visible

if TYPE_CHECKING:
    from prose_kernel.language.diagnostics import Diagnostic
    from prose_kernel.notebook.cells import Cells
    from prose_kernel.notebook.messages import Comm
    from prose_kernel.runs.languages import Compiled, Language
    from prose_kernel.runs.provenance import Cell, Version
    from prose_kernel.runs.run_machines import BoundName


TARGET: Final = "prose_kernel:panel"
POLL_SECONDS: Final = 0.3
"""Seconds between two checks of a running cell."""
MAX_PREVIEW: Final = 120
MAX_VALUE: Final = 20_000
"""The most characters of a value that the panel unfolds."""
MAX_CELLS: Final = 5_000
MAX_ANSWERS: Final = 1_000
"""The most kept answers of one cell that have a button."""
MAX_RUNNING: Final = 100
"""The most running activities that are listed."""


class Panel:
    """The target of the channels. All methods are called in one thread, or while no cell runs.

    `later` calls a function after some seconds, in the thread of cells.
    """

    def __init__(self, cells: Cells, later: Callable[[float, Callable[[], None]], object]) -> None:
        self._cells = cells
        self._later = later
        self._links: dict[Comm, bool] = {}  # the open channels, and whether their panels are shown
        self._ordered_by: Comm | None = None  # the last channel that has sent its cells
        self._sent: dict[str, tuple[object, object]] = {}  # the content of the panels: value and version by name
        self._kept: Mapping[str, Sequence[str]] = {}
        self._last_running: object = None
        self._polling = False
        self._file_check: asyncio.Task[None] | None = None  # the running check of files
        # messages that wait for a check of files: the channels, and the cell that has ended
        self._waiting: list[tuple[Sequence[Comm], str | None]] = []

    # ------------------------------------------------------------ channels

    def opened(self, link: Comm) -> None:
        self._send_changed_answers()
        self._links[link] = False
        self._report_stale([link])
        link.send(self._usage_message())
        self._send_kept([link], self._kept)

    def closed(self, link: Comm) -> None:
        self._links.pop(link, None)
        if self._file_check is not None and not self._links:
            self._file_check.cancel()
            self._file_check = None  # a page that is loaded again needs another check
        if self._ordered_by is link:
            self._ordered_by = None

    def received(self, link: Comm, data: Mapping[str, Any]) -> None:
        """Handle data from a front end: its cells in order, whether the panel is shown, a cell to check, a value to
        unfold."""
        match data:
            case {"do": "cells", "cells": list() as cells}:
                known = [
                    (key, text)
                    for one in cells[:MAX_CELLS]
                    if isinstance(one, list) and len(one) == 2
                    for key, text in [one]
                    if isinstance(key, str) and isinstance(text, str)
                ]
                self._cells.provenance.set_cell_order(known)
                self._ordered_by = link
                self._report_stale(list(self._links))
            case {"do": "show", "on": bool() as shown} if link in self._links:
                self._links[link] = shown
                if shown:
                    self._sent, self._last_running = {}, None
                    self._send_changes()
            case {"do": "check", "cell": str() as cell, "text": str() as text, "above": list() as above}:
                self._send_findings(link, cell, text, [one for one in above[:MAX_CELLS] if isinstance(one, str)])
            case {"do": "value", "name": str() as name}:
                self._send_value(link, name)
            case _:
                pass

    # ------------------------------------------------------------ start and end of cells

    def cell_started(self) -> None:
        if any(self._links.values()) and not self._polling:
            self._polling = True
            self._later(POLL_SECONDS, self._poll)

    def cell_ended(self) -> None:
        if self._links:
            self._report_stale(list(self._links))
            for link in self._links:
                link.send(self._usage_message())
            self._send_changed_answers()
            self._send_changes()

    def _poll(self) -> None:
        self._polling = False
        if self._cells.running:
            self._send_running()
            self.cell_started()

    def rerun(self, cells: Sequence[Cell]) -> bool:
        """Ask the front end to run stale cells of the notebook. Return False if it does not know them."""
        known = set(self._cells.provenance.order)
        if self._ordered_by is None or any(cell.key not in known for cell in cells):
            return False
        self._ordered_by.send({"kind": "run"})
        return True

    # ------------------------------------------------------------ messages

    def _report_stale(self, links: Sequence[Comm]) -> None:
        """Send the list of stale cells: now, or when the files that answers depend on have been checked.

        Only one check runs at a time. Messages that come up meanwhile wait for the end of the next check.
        """
        from prose_kernel.runs.freshness import depends_on_files

        last = self._cells.provenance.last
        after = last.key if last is not None else None
        if not depends_on_files(self._cells.provenance):
            return self._send_stale([(links, after)])
        self._waiting.append((links, after))
        if self._file_check is None or self._file_check.done():
            self._file_check = asyncio.ensure_future(self._find_stale())
        return None

    async def _find_stale(self) -> None:
        from prose_kernel.runs.freshness import check_answer_files

        while self._waiting:
            waiting, self._waiting = self._waiting, []
            await check_answer_files(self._cells.provenance)
            self._send_stale(waiting)

    def _send_stale(self, waiting: Sequence[tuple[Sequence[Comm], str | None]]) -> None:
        from prose_kernel.notebook.magics.freshness import freshness_of
        from prose_kernel.runs.freshness import stale_facts

        freshness = freshness_of(self._cells)
        found = freshness.stale()
        sure = [freshness.first(one.cell) for one in found if not one.maybe]
        following = [*dict.fromkeys(cell.key for cells in sure for cell in cells)]
        facts = stale_facts(found)
        for links, after in waiting:
            for link in (link for link in links if link in self._links):
                link.send({"kind": "stale", "stale": facts, "next": following, "after": after})

    def _usage_message(self) -> dict[str, object]:
        """Return a message with the provider of sessions, which is "" before any session, and the usage of the run."""
        run = self._cells.current
        if run is None or (services := run.started_services) is None:
            return {"kind": "who", "provider": "", "models": [], "cost": "", "asked": 0, "replayed": 0}
        from prose_kernel.runs.session_description import who
        from prose_kernel.views.usage import cost

        # Between cells no person can be asked, so `who` would report that there is none, although one has answered.
        by_hand = services.choice.kind == "human" or (services.choice.kind == "none" and services.detected is None)
        total = services.usage.total
        return {
            "kind": "who",
            "provider": "no model" if by_hand else who(services),
            "models": [line.model for line in services.usage.lines if line.model],
            "cost": "cost unknown" if total.unpriced and not total.cost else cost(total),
            "asked": total.sessions + total.judgements,
            "replayed": total.replayed,
        }

    def _send_changed_answers(self) -> None:
        """Send the answers that a click can request again: the answers that the last runs of cells have kept."""
        run = self._cells.current
        kept = run.journal.kept_by_cells() if run is not None and run.journal is not None else {}
        cells = {**self._kept, **kept}
        changed = {cell: kept.get(cell, ()) for cell in cells if self._kept.get(cell) is not kept.get(cell)}
        self._kept = kept
        self._send_kept(list(self._links), changed)

    def _send_kept(self, links: Sequence[Comm], kept: Mapping[str, Sequence[str]]) -> None:
        for link in links if kept else ():
            link.send({"kind": "kept", "cells": {cell: list(paths[:MAX_ANSWERS]) for cell, paths in kept.items()}})

    def _send_changes(self) -> None:
        """Send the changed parts of the panel."""
        shown = [link for link, on in self._links.items() if on]
        if not shown:
            return
        names, provenance = self._cells.names(), self._cells.provenance
        provenance.read()
        changed: list[dict[str, object]] = []
        panels: dict[str, tuple[object, object]] = {}
        for name, named in names.items():
            version = provenance.current(name)
            panels[name] = (named.info.value, version)
            before = self._sent.get(name)
            if before is None or before[0] is not named.info.value or before[1] is not version:
                changed.append(_binding(name, named, version))
        gone = [name for name in self._sent if name not in panels]
        fresh, self._sent = not self._sent, panels
        message = {"kind": "names", "all": fresh, "changed": changed, "gone": gone, "agents": self._agents()}
        for link in shown:
            link.send(message)
        self._send_running()

    def _agents(self) -> list[dict[str, object]]:
        found = []
        for one in self._cells.definitions():
            definition, version = one.definition, self._cells.provenance.current(one.definition.name)
            summary = definition.facts.get("model") or definition.facts.get("parameters") or ""
            found.append({"name": definition.name, "kind": definition.kind, "said": summary, **_origin(version)})
        return found

    def _send_running(self) -> None:
        """Send the running activities, if they have changed."""
        activities = self._cells.record.open if self._cells.running else []
        found = []
        for one in activities[:MAX_RUNNING]:
            line, _ = one.place.source.line_column(one.place.span.start)
            branch = " / ".join(step.label for step in one.branches)
            found.append({"kind": one.kind, "label": clip(one.label, MAX_PREVIEW), "line": line, "branch": branch})
        calling = self._cells.provenance.calling
        message = {
            "kind": "running",
            "cell": calling.key if calling is not None and self._cells.running else None,
            "under_way": found,
            "more": max(0, len(activities) - MAX_RUNNING),
        }
        if message != self._last_running:
            self._last_running = message
            for link in [link for link, on in self._links.items() if on]:
                link.send(message)

    def _send_findings(self, link: Comm, cell: str, text: str, above: list[str]) -> None:
        """Send the findings in a cell that is typed. Does nothing while a cell runs: the extension asks again."""
        if not self._cells.running:
            link.send({"kind": "findings", "cell": cell, "findings": findings(self._cells, text, above)})

    def _send_value(self, link: Comm, name: str) -> None:
        named = self._cells.names().get(name)
        if named is not None:
            text, rest = preview(named.language.text_of(named.info.value), 500, MAX_VALUE)
            link.send({"kind": "value", "name": name, "text": text, "rest": rest})


def _binding(name: str, named: BoundName, version: Version | None) -> dict[str, object]:
    text = named.language.text_of(named.info.value)
    return {
        "name": name,
        "kind": named.kind,
        "size": len(text),
        "preview": visible(clip(text, MAX_PREVIEW)),
        **_origin(version),
    }


def _origin(version: Version | None) -> dict[str, object]:
    """Return the cell that made a value, for a click on it, and the names that the value was made from."""
    if version is None:
        return {"cell": None, "by": "", "from": []}
    line, _ = version.source.line_column(version.span.start)
    key = version.cell.key
    cell = key if not key.startswith("text:") else None
    return {"cell": cell, "by": f"{version.label} line {line}", "from": list(version.made_from)}


# ---------------------------------------------------------------- findings in a cell that is typed

MAX_CHARACTERS: Final = 100_000
"""The most characters of a cell that is checked, and of the text above it that is searched for names."""
MAX_FINDINGS: Final = 100
"""The most findings that are shown for a cell."""
_UNDEFINED_NAME: Final = frozenset(
    {
        *("E007", "E017", "E018", "E025", "E053", "E108", "E131", "E132", "E135", "E140", "E162", "E170"),
        *("W007", "W108", "W119", "W135", "V040", "V051", "V701", "V707"),
    }
)
"""Codes of findings about an undefined name. A cell above that has not run yet may define the name."""
_WORD: Final = re.compile(r"[A-Za-z_][\w-]*")


def findings(cells: Cells, code: str, above: Iterable[str]) -> list[dict[str, object]]:
    """Return the findings in a cell; `above` holds the texts of the cells above it. Positions count UTF-16 units, as
    editors do. Section 6 of docs/reference/jupyter.md.

    The cell is compiled against the names of the run, as it would be when it runs. Nothing runs, no run begins, and
    imported programs are neither fetched nor does a person have to agree to them (`load_contract`).
    """
    if len(code) > MAX_CHARACTERS:
        return []
    language, text = draft_language(code, cells.language)
    text = _program(text, language)
    if not has_statements(text):
        return []
    try:
        compiled = _compiled(cells, text, language)
    except UsageError:  # a setting is invalid, which the cell reports when it runs
        return []
    shown = [one for one in compiled.diagnostics if not one.file and (one.severity == "error" or cells.show_warnings)]
    if any(one.code in _UNDEFINED_NAME for one in shown):
        known = set(_WORD.findall("\n".join(above)[-MAX_CHARACTERS:]))
        shown = [one for one in shown if not (one.code in _UNDEFINED_NAME and _names(one, compiled.source) & known)]
    return [_described(one, text) for one in shown[:MAX_FINDINGS]]


def _program(code: str, language: Language) -> str:
    """Return the program text of a cell: magic lines are replaced by blanks, so that no offset changes."""
    pieces = segments(code, language)
    if code.startswith("%%") or code.strip().startswith("?") or code.rstrip().endswith("?"):
        return ""  # a cell magic, or a request for help
    if not any(piece.magic for piece in pieces):
        return code
    lines = code.split("\n")
    for piece in pieces:
        if piece.magic:
            lines[piece.line - 1] = " " * len(lines[piece.line - 1])
    return "\n".join(lines)


def _compiled(cells: Cells, text: str, language: Language) -> Compiled:
    if cells.started_workspace is not None:
        return cells.started_workspace.compile(text, "cell", language)
    settings = cells.settings
    return language.compile(
        Source.of(text, "cell"),
        profile=settings.profile,
        load=cells.programs(language).load_contract,
        cell=True,
        pipefail=settings.exec.pipefail,
    )


def _names(one: Diagnostic, source: Source) -> set[str]:
    """Return the names that a finding is about."""
    quoted = " ".join(re.findall(r"`([^`]+)`", one.message))
    return set(_WORD.findall(f"{source.slice(one.span)} {quoted}"))


def _described(one: Diagnostic, text: str) -> dict[str, object]:
    start = max(0, min(one.span.start, len(text) - 1))  # something missing at the end is marked at the last character
    end = min(one.span.end, len(text))
    if end - start < 2 and (word := _WORD.match(text, start)):
        end = word.end()  # mark a whole word, such as the first word of a statement
    message = f"{one.message} [{one.code}]" + (f"\nhint: {one.hint}" if one.hint else "")
    return {
        "from": _units(text, start),
        "to": _units(text, max(end, start + 1)),
        "severity": one.severity,
        "message": message,
    }


def _units(text: str, offset: int) -> int:
    before = text[:offset]
    return offset if before.isascii() else len(before.encode("utf-16-le", "surrogatepass")) // 2
