"""The Debug Adapter Protocol: answers requests with a `Debugger`, and sends its events.

JupyterLab sends some additional requests (`debugInfo`, `dumpCell`, `inspectVariables`, `richInspectVariables`); other
clients send the requests of the specification. Every request gets exactly one response: an invalid request is refused
with a message, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from prose_kernel.debugger.breakpoints import (
    PREFIX,
    SEED,
    Breakpoint,
    ReadCell,
    Texts,
    check_hits,
    evaluated_in,
    reason,
)
from prose_kernel.debugger.pausing import ALL_ERRORS, THREAD, UNCAUGHT, Debugger, Send, as_protocol
from prose_kernel.debugger.variables import MAX_MEMBERS, Variables, one_line
from prose_kernel.errors import ProseError, UsageError
from prose_kernel.runs import languages
from prose_kernel.runtime.statement_hook import StackFrame

if TYPE_CHECKING:
    from prose_kernel.debugger.jupyter import KernelDebugger
    from prose_kernel.runs.languages import Language

Arguments = Mapping[str, Any]
Body = dict[str, Any]

_MAX_BREAKPOINTS: Final = 10_000
"""The most breakpoints of one text."""
_MAX_EXPRESSION: Final = 100_000
"""The most characters of an expression."""
_FIRST_IDLE: Final = 1_000_000_000
"""The first number of the entries that are shown while no program is paused."""


class RequestRefused(Exception):
    """A request cannot be fulfilled; the message gives the reason."""


class Adapter:
    """One debug session."""

    def __init__(self, language: Language, send: Send, read_cell: ReadCell, host: KernelDebugger) -> None:
        self.texts = Texts(language.suffixes[0], read_cell, host.directory)
        self.debugger = Debugger(self.texts, self._event, host.journal_position)
        self.started = False
        self._language = language
        self._send = send
        self._host = host
        self._variables = Variables()
        self._idle = Variables(typed=False, first=_FIRST_IDLE)  # the names while no program is paused
        self._seq = 0
        self._commands: dict[str, Callable[[Arguments], Body | None]] = {
            "debugInfo": self._debug_info,
            "initialize": self._initialize,
            "attach": self._attach,
            "launch": self._attach,
            "configurationDone": lambda _: None,
            "setExceptionBreakpoints": self._set_exception_breakpoints,
            "dumpCell": self._dump_cell,
            "setBreakpoints": self._set_breakpoints,
            "breakpointLocations": self._breakpoint_locations,
            "inspectVariables": self._inspect_variables,
            "richInspectVariables": self._rich_inspect,
            "threads": lambda _: {"threads": [{"id": THREAD, "name": "program"}]},
            "stackTrace": self._stack_trace,
            "scopes": self._scopes,
            "variables": self._variables_of,
            "source": self._source,
            "continue": lambda _: self._resume(None),
            "next": lambda _: self._resume("over"),
            "stepIn": lambda _: self._resume("in"),
            "stepOut": lambda _: self._resume("out"),
            "stepBack": self._step_back,
            "runTo": self._run_to,
            "pause": lambda _: self._pause(),
            "exceptionInfo": self._exception_info,
            "modules": self._modules,
            "loadedSources": lambda _: {"sources": [_source_of(text) for text in self.texts.files()]},
            "terminate": self._terminate,
            "disconnect": self._disconnect,
            "setVariable": self._refuse_change,
            "setExpression": self._refuse_change,
            "copyToGlobals": self._refuse_change,
        }

    # ------------------------------------------------------------ requests and events

    async def handle(self, request: object) -> Body:
        """Return the response to a request, even to an invalid one."""
        given: Mapping[str, Any] = request if isinstance(request, Mapping) else {}
        command, arguments, number = given.get("command"), given.get("arguments"), given.get("seq")
        body: Body | None = None
        problem = ""
        try:
            body = await self._answer(command, arguments)
        except (RequestRefused, ProseError) as error:
            problem = reason(error)
        except Exception as error:  # an invalid request, or our defect: always send a response
            problem = f"the request cannot be answered ({type(error).__name__})"
        self._seq += 1
        response: Body = {
            "type": "response",
            "seq": self._seq,
            "request_seq": number if isinstance(number, int) and not isinstance(number, bool) else 0,
            "success": not problem,
            "command": command if isinstance(command, str) else "",
            "body": body or {},
        }
        return {**response, "message": problem} if problem else response

    async def _answer(self, command: object, arguments: object) -> Body | None:
        if not isinstance(command, str) or not command:
            raise RequestRefused("a request needs a `command`")
        if not isinstance(arguments, Mapping | None):
            raise RequestRefused("the `arguments` of a request are an object")
        if command == "evaluate":
            return await self._evaluate(arguments or {})
        found = self._commands.get(command)
        if found is None:
            raise RequestRefused(f"this debugger does not know `{command[:100]}`")
        return found(arguments or {})

    def _event(self, event: str, body: Body) -> None:
        if not self.started:
            return
        if event == "continued":
            self._variables.clear()
        self._seq += 1
        self._send(event, {"type": "event", "seq": self._seq, "event": event, "body": body})

    # ------------------------------------------------------------ a session

    def _debug_info(self, _: Arguments) -> Body:
        return {
            "isStarted": self.started,
            "hashMethod": "Murmur2",
            "hashSeed": SEED,
            "tmpFilePrefix": PREFIX,
            "tmpFileSuffix": self.texts.suffix,
            "breakpoints": [
                {"source": found[0].path, "breakpoints": [_as_set(point) for point in found]}
                for found in self.debugger.breakpoints.values()
            ],
            "stoppedThreads": [THREAD] if self.debugger.paused is not None else [],
            "richRendering": True,
            "exceptionPaths": [ALL_ERRORS, UNCAUGHT],
            "copyToGlobals": False,
        }

    def _initialize(self, arguments: Arguments) -> Body:
        self._variables.typed = arguments.get("clientID") != "jupyterlab"  # it shows types instead of values
        return {
            "supportsConfigurationDoneRequest": True,
            "supportsConditionalBreakpoints": True,
            "supportsHitConditionalBreakpoints": True,
            "supportsLogPoints": True,
            "supportsBreakpointLocationsRequest": True,
            "supportsEvaluateForHovers": True,
            "supportsExceptionInfoRequest": True,
            "supportsLoadedSourcesRequest": True,
            "supportsModulesRequest": True,
            "supportsStepBack": True,
            "supportsTerminateRequest": True,
            "supportsDelayedStackTraceLoading": True,
            "exceptionBreakpointFilters": [
                {"filter": ALL_ERRORS, "label": ALL_ERRORS, "default": False},
                {"filter": UNCAUGHT, "label": UNCAUGHT, "default": False},
            ],
        }

    def _attach(self, _: Arguments) -> None:
        if not self.started:
            self.started = True
            self._host.attached()
        self._event("initialized", {})

    def _disconnect(self, arguments: Arguments) -> None:
        """Continue the program without breakpoints when the client leaves; `terminateDebuggee` ends the cell."""
        if self.debugger.paused is not None:  # a client that shows a paused program must learn that it continues
            self._event("continued", {"threadId": THREAD, "allThreadsContinued": True})
        self.debugger.reset()
        self._variables.clear()
        if self.started:
            self.started = False
            self._host.detached()
        if arguments.get("terminateDebuggee") is True:
            self._host.interrupt()

    def _terminate(self, _: Arguments) -> None:
        self._host.interrupt()
        self._event("terminated", {})

    # ------------------------------------------------------------ breakpoints

    def _dump_cell(self, arguments: Arguments) -> Body:
        code = arguments.get("code")
        if not isinstance(code, str):
            raise RequestRefused("`dumpCell` needs the `code` of a cell")
        return {"sourcePath": self.texts.cell(code).path}

    def _set_breakpoints(self, arguments: Arguments) -> Body:
        path = _path(arguments)
        wanted = arguments.get("breakpoints")
        if wanted is None:
            wanted = [{"line": line} for line in arguments.get("lines") or ()]
        if not isinstance(wanted, list):
            raise RequestRefused("the `breakpoints` are a list")
        points = [_breakpoint(path, one) for one in wanted[:_MAX_BREAKPOINTS]]
        return {"breakpoints": [as_protocol(point) for point in self.debugger.set_breakpoints(path, points)]}

    def _breakpoint_locations(self, arguments: Arguments) -> Body:
        text = self.texts.find(_path(arguments))
        first = _line(arguments.get("line"))
        last = _line(arguments.get("endLine", first))
        lines = sorted({stop.line for stop in text.stops}) if text is not None else []
        return {"breakpoints": [{"line": line} for line in lines if first <= line <= last]}

    def _set_exception_breakpoints(self, arguments: Arguments) -> None:
        filters = arguments.get("filters")
        chosen = filters if isinstance(filters, list) else []
        self.debugger.error_filters = frozenset(one for one in chosen if one in (ALL_ERRORS, UNCAUGHT))

    # ------------------------------------------------------------ continue

    def _resume(self, kind: Any) -> Body:
        if not self.debugger.resume(kind):
            raise RequestRefused("no program is held")
        return {"allThreadsContinued": True}

    def _pause(self) -> None:
        if not self.started:
            raise RequestRefused("the debugger is not started")
        self.debugger.pause()

    def _run_to(self, arguments: Arguments) -> Body:
        """Answer our own request `runTo`: pause the program on a line, once."""
        path, line = _path(arguments), _line(arguments.get("line"))
        found = self.debugger.run_to(path, line)
        if found is None:
            raise RequestRefused("there is no statement here or below")
        return {"line": found, "allThreadsContinued": self.debugger.resume()}

    def _step_back(self, arguments: Arguments) -> Body:
        """Run the cell again, and pause it before the statement that ran last, or with `line`, before the last
        statement on that line."""
        paused, cell = self.debugger.paused, self.debugger.cell
        if paused is None or paused.released.done() or cell is None:
            raise RequestRefused("no program is held in a cell that began while the debugger was on")
        number = cell.count - 1
        line = arguments.get("line")
        if line is not None:
            found = self.debugger.last_before(_path(arguments), _line(line))
            if found is None:
                raise RequestRefused("no statement of that line has run in this cell")
            number = found
        if number < 1:
            raise RequestRefused("this is the first statement of the cell")
        if number > len(cell.marks):
            raise RequestRefused(f"the way back is only known for the first {len(cell.marks):,} statements of a cell")
        if problem := self._host.prepare_rewind():
            raise RequestRefused(problem)
        self.debugger.rewind(number)
        return {"allThreadsContinued": True}

    # ------------------------------------------------------------ inspect

    def _frame(self, arguments: Arguments) -> StackFrame:
        paused = self.debugger.paused
        if paused is None:
            raise RequestRefused("no program is held")
        number = arguments.get("frameId")
        if number is None:
            return paused.frames[0]
        if not isinstance(number, int) or not 1 <= number <= len(paused.frames):
            raise RequestRefused("there is no such frame")
        return paused.frames[number - 1]

    def _stack_trace(self, arguments: Arguments) -> Body:
        paused = self.debugger.paused
        if paused is None:
            return {"stackFrames": [], "totalFrames": 0}
        first, levels = arguments.get("startFrame"), arguments.get("levels")
        start = first if isinstance(first, int) and first > 0 else 0
        end = start + levels if isinstance(levels, int) and levels > 0 else None
        frames = [self._stack_frame(at, frame) for at, frame in enumerate(paused.frames, 1)][start:end]
        return {"stackFrames": frames, "totalFrames": len(paused.frames)}

    def _stack_frame(self, number: int, frame: StackFrame) -> Body:
        line, column = frame.source.line_column(frame.span.start)
        source = _source_of(self.debugger.text_of(frame))
        return {"id": number, "name": frame.name, "line": line, "column": column, "source": source}

    def _scopes(self, arguments: Arguments) -> Body:
        frame = self._frame(arguments)
        language = languages.LANGUAGES[frame.context.language]
        return {
            "scopes": [
                {
                    "name": scope.name,
                    "variablesReference": self._variables.scope(scope.names, language),
                    "expensive": False,
                }
                for scope in frame.scopes
            ]
        }

    def _variables_of(self, arguments: Arguments) -> Body:
        reference = arguments.get("variablesReference")
        if not isinstance(reference, int):
            raise RequestRefused("`variables` needs a `variablesReference`")
        found = (self._variables if reference < _FIRST_IDLE else self._idle).listed(reference)
        if found is None:
            raise RequestRefused("the program has gone on; this variable is not shown any more")
        start, count = arguments.get("start"), arguments.get("count")
        begin = start if isinstance(start, int) and start > 0 else 0
        end = begin + count if isinstance(count, int) and count > 0 else None
        return {"variables": found[begin:end]}

    def _inspect_variables(self, _: Arguments) -> Body:
        """Return the names of the run. Requested after every output of a cell, so it must be cheap."""
        self._idle.clear()
        names = list(self._host.names().items())
        listed = [self._idle.variable(name, value, language, name) for name, (value, language) in names[:MAX_MEMBERS]]
        if len(names) > MAX_MEMBERS:
            left = f"{len(names) - MAX_MEMBERS:,} more"
            listed.append({"name": "…", "value": f"{left}; %bindings lists them", "variablesReference": 0})
        return {"variables": listed}

    def _rich_inspect(self, arguments: Arguments) -> Body:
        name = arguments.get("variableName")
        if not isinstance(name, str):
            raise RequestRefused("`richInspectVariables` needs a `variableName`")
        paused = self.debugger.paused
        if paused is not None:
            frame = self._frame(arguments)
            for scope in frame.scopes:
                names = scope.names()
                if name in names:
                    return self._host.rich(name, names[name], languages.LANGUAGES[frame.context.language])
        found = self._host.names().get(name)
        if found is None:
            raise RequestRefused(f"there is no name `{name[:100]}` here")
        return self._host.rich(name, *found)

    async def _evaluate(self, arguments: Arguments) -> Body:
        """Evaluate an expression in a frame, without asking models or people; used for watches and hovers."""
        text = arguments.get("expression")
        if not isinstance(text, str) or len(text) > _MAX_EXPRESSION:
            raise RequestRefused("`evaluate` needs an `expression`")
        frame = self._frame(arguments)
        language = languages.LANGUAGES[frame.context.language]
        try:
            value = await evaluated_in(frame)(text)
        except RecursionError:
            raise UsageError("the expression is nested too deeply") from None
        shown = self._variables.variable("", value, language)
        result = language.text_of(value) if arguments.get("context") == "clipboard" else one_line(value, language)
        return {"result": result, "type": language.kind_of(value), "variablesReference": shown["variablesReference"]}

    def _source(self, arguments: Arguments) -> Body:
        text = self.texts.find(_path(arguments))
        if text is None:
            raise RequestRefused("no text of that path has run")
        language = self._language if text.is_cell else languages.of_file(text.path)
        return {"content": text.content, "mimeType": f"text/x-{language.magic}"}

    def _exception_info(self, _: Arguments) -> Body:
        paused = self.debugger.paused
        if paused is None or paused.error is None:
            raise RequestRefused("no program is held at an error")
        error = paused.error
        uncaught = paused.context.guarded == 0
        return {
            "exceptionId": error.code,
            "description": error.message,
            "breakMode": "unhandled" if uncaught else "always",
            "details": {"message": error.message, "typeName": error.type, "stackTrace": "\n".join(error.call_stack)},
        }

    def _modules(self, _: Arguments) -> Body:
        files = self.texts.files()
        modules = [{"id": number, "name": text.name, "path": text.path} for number, text in enumerate(files, 1)]
        return {"modules": modules, "totalModules": len(modules)}

    def _refuse_change(self, _: Arguments) -> None:
        raise RequestRefused(
            "the debugger does not change names: a run is repeated from its texts and their answers, where a value that"
            " was set here would be missing"
        )


def _source_of(text: Any) -> Body:
    return {"name": text.name, "path": text.path}


def _as_set(point: Breakpoint) -> Body:
    texts = {"condition": point.condition, "hitCondition": point.hit_condition, "logMessage": point.log}
    line = point.line if point.line is not None else point.wanted
    return {"line": line, **{key: text for key, text in texts.items() if text}}


def _path(arguments: Arguments) -> str:
    source = arguments.get("source")
    path = source.get("path") if isinstance(source, Mapping) else None
    if not isinstance(path, str):
        raise RequestRefused("the request needs a `source` with a `path`")
    return path


def _line(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise RequestRefused("a line is a number from 1 on")
    return value


def _breakpoint(path: str, given: object) -> Breakpoint:
    if not isinstance(given, Mapping):
        raise RequestRefused("a breakpoint is an object with a `line`")

    def text(key: str) -> str:
        value = given.get(key) or ""
        if not isinstance(value, str):
            raise RequestRefused(f"the `{key}` of a breakpoint is a text")
        if len(value) > _MAX_EXPRESSION:
            raise RequestRefused(f"the `{key}` of a breakpoint is longer than {_MAX_EXPRESSION:,} characters")
        return value.strip()

    hits = text("hitCondition")
    line = _line(given.get("line"))
    return Breakpoint(0, path, line, None, text("condition"), hits, text("logMessage"), check_hits(hits))
