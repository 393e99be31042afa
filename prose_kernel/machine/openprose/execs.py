"""`exec` on the machine's side (openprose.md 5.1 to 5.7; exec-and-tasks.md 2.1 to 2.6)."""

from __future__ import annotations

import os
import os.path
from collections.abc import Awaitable, Mapping
from typing import Final, Literal, cast

from msgspec import Struct

from prose_kernel.errors import ExecError, RunError
from prose_kernel.language.durations_and_budgets import parse_duration
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.properties import RELATIVE_GLOB, RETRY_IF_LOST, leaves_directory
from prose_kernel.language.structs import replace
from prose_kernel.language.text import clipped
from prose_kernel.machine.openprose.bindings import Destination, SpawnCode
from prose_kernel.machine.openprose.code import expression
from prose_kernel.machine.openprose.expressions import refuse_undefined, render
from prose_kernel.machine.openprose.frames import Spawned
from prose_kernel.machine.openprose.program_context import ProgramContext
from prose_kernel.runtime import resource_errors
from prose_kernel.runtime.attempts import Attempted, Retries, before_retry
from prose_kernel.runtime.command_data import input_text, variable_text
from prose_kernel.runtime.compiled_code import value_of
from prose_kernel.runtime.events import CommandFinished, CommandOutput, CommandStarted, FileShown, Place
from prose_kernel.runtime.execution_context import located
from prose_kernel.runtime.ports import (
    DEFAULT_MAX_OUTPUT,
    NOTHING_OMITTED,
    CommandRequest,
    CommandResult,
    Omitted,
    OnOutput,
    ShownFile,
    ShowRequest,
    Stream,
)
from prose_kernel.runtime.preview import unknown
from prose_kernel.runtime.values import ExecText, Value

OnFail = Literal["throw", "continue", "ignore"]

DEFAULT_TIMEOUT: Final = "2m"
LOST_RETRIES: Final = 3
"""The retries of `retry: lost`. Without a limit, a command that ends its worker each time would end all workers."""

_BLOCKS: Final = (tree.Permissions, tree.ContextBlock, tree.OnReject)
_CODES: Final = {"timeout": "E204", "spawn": "E205", "cwd": "E205"}


def word(value: object) -> str:
    """Return the text of a property's value that is a word, bare or quoted; "" for others."""
    return value.text if isinstance(value, tree.Duration) else tree.word_of(value) or ""


def _computed(node: tree.Exec) -> list[tree.Property]:
    """Return the properties whose values are computed before the command starts: `stdin` and `env`."""
    return [p for p in node.properties if p.name.id in ("stdin", "env") and not isinstance(p.value, _BLOCKS)]


class _ExecOptions(Struct, frozen=True):
    """The parts of an `exec` as written. `pipefail` is None if not set; `seconds` is None if `limit` isn't a duration.
    `short` is the beginning of the command."""

    properties: Mapping[str, object]
    command: str
    short: str
    on_fail: OnFail
    limit: str
    seconds: float | None
    max_output: int
    pipefail: bool | None
    form: str
    needs: Mapping[str, float]

    @classmethod
    def of(cls, node: tree.Exec, found: Mapping[str, object]) -> _ExecOptions:
        limit = word(found["timeout"]) if "timeout" in found else DEFAULT_TIMEOUT
        most, piped = found.get("max-output"), found.get("pipefail")
        return cls(
            found,
            node.command.raw,
            f'"{clipped(" ".join(node.command.raw.split()), 60, "...")}"',
            cast("OnFail", word(found["on-fail"]) if "on-fail" in found else "throw"),
            limit,
            parse_duration(limit),
            most.value if isinstance(most, tree.Number) and isinstance(most.value, int) else DEFAULT_MAX_OUTPUT,
            bool(piped.value) if isinstance(piped, tree.Constant) else None,
            word(found.get("format")),
            _amounts(found["needs"]) if "needs" in found else {},
        )


@expression(tree.Exec, lambda node: [item.value for item in _computed(node)])
class ExecCode(SpawnCode):
    spawned: Spawned = "exec"

    async def spawn(self, s: ProgramContext, destination: Destination | None) -> Value:
        if s.cancellation.stopped:
            return None  # cancelled by its siblings: starts nothing new
        node: tree.Exec = self.node
        written = _ExecOptions.of(node, s.run.properties("exec", node.properties))
        found, on_fail, command, form = written.properties, written.on_fail, written.command, written.form
        if s.host.preview is not None:
            name = destination.name if destination is not None else None
            await s.host.preview.announce(s, node, name, self._request(s, written), "command")
            return unknown(name or "output")
        request = await self._request(s, written)
        await s.flush()
        spawn = s.host.next_spawn()
        bound_to = destination.name if destination else None
        place = s.place(node)
        s.emit(CommandStarted(place, spawn, request, command, bound_to, self.used, form))
        request, result = await self._attempts(s, place, spawn, request, written)
        moved = self._change_directory(s, request, result)
        raised = result.kind is not None and on_fail == "throw"
        s.recent.note(f"exec {written.short}: exit code {result.exit_code}")
        if result.kind is not None and not raised and s.host.listeners:
            for depth in range(1, len(s.branches) + 1):
                s.host.failed_commands[s.branches[:depth]] = result
        s.emit(CommandFinished(place, spawn, request, command, bound_to, result, on_fail, raised, moved, self.used))
        if raised:
            raise located(s, _error(command, request, result, written.limit), node)
        if result.kind is None and isinstance(shown := found.get("display"), tree.Text):
            await self._show(s, spawn, request.cwd, shown)
        bare = result.kind is not None and on_fail == "ignore"
        return ExecText(result.stdout, result, bare, form)

    async def _attempts(
        self, s: ProgramContext, place: Place, spawn: int, request: CommandRequest, written: _ExecOptions
    ) -> tuple[CommandRequest, CommandResult]:
        """Run the command until it succeeds or `retry` allows no further attempt. Returns the last request and its
        result."""

        def run() -> Awaitable[CommandResult]:
            return s.host.ports.commands.run(current, _display(s, place, spawn))

        while True:
            current = request
            result = await s.ask(current, CommandResult, run)
            if result.kind is None:
                return request, result
            retries = retries_of(written.properties)
            only_lost = word(written.properties.get("retry")) == RETRY_IF_LOST
            if only_lost:
                retries = replace(retries, maximum=LOST_RETRIES)
            if request.attempt >= retries.maximum or not _may_be_repeated(result, only_lost=only_lost):
                return request, result
            request = replace(request, attempt=request.attempt + 1)
            what = Attempted(self.node, spawn, request.at)
            await before_retry(s, what, retries, request.attempt, why=_message(current, result, written.limit))

    async def _show(self, s: ProgramContext, spawn: int, directory: str, path: tree.Text) -> None:
        """Show the file of `display`, which the command has written."""
        files = s.host.ports.files
        request = ShowRequest(await render(s, path, refuse_undefined), directory, s.at("file"))
        if files is None:
            return
        try:
            file = await s.ask(request, ShownFile, lambda: files.show(request))
        except RunError as error:
            raise located(s, error, path) from None
        s.emit(FileShown(s.place(self.node), spawn, file))

    async def _request(self, s: ProgramContext, written: _ExecOptions) -> CommandRequest:
        node: tree.Exec = self.node
        found = written.properties
        command = await render(s, node.command, refuse_undefined)
        if not command.strip():
            raise located(s, ExecError("the command is empty", code="E050"), node.command)
        if written.seconds is None:
            hint = 'write a duration: "30s", "5m"'
            raise located(s, ExecError(f"'{written.limit}' is not a duration", code="E051", hint=hint), node)
        cwd = found.get("cwd")
        stdin, env = await self._inputs(s, found) if self.parts else (None, {})
        reads = await _globs(s, found["reads"]) if "reads" in found else None
        writes = await _globs(s, found["writes"]) if "writes" in found else None
        pipefail = written.pipefail if written.pipefail is not None else s.host.pipefail
        if not isinstance(cwd, tree.Text):
            directory, track = s.cwd, True
        else:
            directory, track = os.path.expanduser(await render(s, cwd, refuse_undefined)), False  # noqa: ASYNC240
            directory = os.path.join(s.cwd, directory)  # noqa: PTH118
        at = s.at("exec")
        given = (command, directory, written.seconds, track, written.max_output, stdin, env, at, pipefail)
        return CommandRequest(*given, reads=reads, writes=writes, needs=written.needs)

    async def _inputs(
        self, s: ProgramContext, found: Mapping[str, object]
    ) -> tuple[str | bytes | None, dict[str, str]]:
        """Return the standard input, and additional environment variables."""
        stdin: str | bytes | None = None
        env: dict[str, str] = {}
        for item, code in zip(_computed(self.node), self.parts, strict=True):
            if item.name.id not in found:
                continue
            value = await value_of(code, s)
            try:
                if item.name.id == "stdin":
                    stdin = input_text(value)
                elif isinstance(value, dict):
                    env = {name: variable_text(part) for name, part in value.items()}
            except RunError as error:
                raise located(s, error, item.value) from None
        return stdin, env

    def _change_directory(self, s: ProgramContext, request: CommandRequest, result: CommandResult) -> str | None:
        """Set the directory to the shell's final one (5.6), and return it if it is a different one."""
        after = result.cwd_after
        if not request.track or after is None or after == s.cwd:
            return None
        s.cwd = after
        return after


async def _globs(s: ProgramContext, value: object) -> tuple[str, ...] | None:
    """Return the globs of `reads` or `writes`, or None if the value isn't an array. Raises E054 for a glob outside of
    the directory of the run."""
    if not isinstance(value, tree.Array):
        return None
    found = []
    for node in value.elements:
        if isinstance(node, tree.Text):
            glob = await render(s, node, refuse_undefined)
            if leaves_directory(glob):
                raise located(
                    s, ExecError(f"'{glob}' leaves the directory of the run", code="E054", hint=RELATIVE_GLOB), node
                )
            found.append(glob)
    return tuple(found)


def _amounts(needs: object) -> dict[str, float]:
    """Return the amounts in `needs` by name; `true` is an amount of 0 (`processes.resources`)."""
    entries = needs.entries if isinstance(needs, tree.Object) else ()
    return {entry.key: float(entry.value.value) if isinstance(entry.value, tree.Number) else 0.0 for entry in entries}


def retries_of(properties: Mapping[str, object]) -> Retries:
    retry, backoff = properties.get("retry"), properties.get("backoff")
    written = str(backoff.value) if isinstance(backoff, tree.Number) else word(backoff) or "none"
    return Retries(int(retry.value) if isinstance(retry, tree.Number) else 0, written)


def _may_be_repeated(result: CommandResult, *, only_lost: bool) -> bool:
    """Return whether `retry` repeats a command with this result: it ran and failed, and no person stopped it."""
    if only_lost or result.kind == "lost":
        return result.kind == "lost"
    return result.kind in ("exit", "signal", "timeout") and result.outcome not in ("interrupted", "cancelled")


def _display(s: ProgramContext, place: Place, spawn: int) -> OnOutput | None:
    if not s.host.listeners:
        return None

    def show(stream: Stream, text: str, omitted: Omitted = NOTHING_OMITTED) -> None:
        s.emit(CommandOutput(place, spawn, stream, text, omitted))

    return show


def _error(written: str, request: CommandRequest, result: CommandResult, limit: str) -> ExecError:
    details: dict[str, object] = {"command": written, "exit_code": result.exit_code}
    details.update(stderr=result.stderr, stdout=result.stdout, timed_out=result.timed_out, kind=result.kind)
    if request.command != written:
        details["interpolated"] = request.command
    if result.kind == "cwd":
        details["directory"] = request.cwd
    if result.signal is not None:
        details["signal"] = result.signal
    for flag in ("stdout_truncated", "stderr_truncated"):
        if getattr(result, flag):
            details[flag] = True
    hint = resource_errors.hint_for_start(result.spawn_error) if result.spawn_error else None
    if result.kind == "cwd":
        hint = "make the directory in which the command runs, or name another one with the property `cwd`"
    message, code = _message(request, result, limit), _CODES.get(result.kind or "", "E203")
    return ExecError(message, code=code, details=details, hint=hint)


def _message(request: CommandRequest, result: CommandResult, limit: str) -> str:
    if result.kind == "timeout":
        return f"exec timed out after {limit}"
    if result.kind in ("spawn", "cwd"):
        # The directory's path varies from run to run; the caret marks the program's text.
        reason = " ".join((result.spawn_error or result.stderr).replace(f": {request.cwd}", "").split())
        return f"exec could not start: {reason}" if reason else "exec could not start"
    if result.kind == "lost":
        return f"exec was lost with the {'worker' if result.worker else 'process'} that ran it; it may have run in part"
    if result.kind == "signal" and result.signal is not None:
        return f"exec was ended by {result.signal} (exit code {result.exit_code})"
    return f"exec failed with exit code {result.exit_code}"
