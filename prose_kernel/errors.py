"""The tree of all errors that prose_kernel raises.

::

    ProseError                          base of everything below
    ├── CompileError                    a program with errors: its diagnostics, found before anything runs
    ├── RunError                        an error of the running program; `try` can catch it (openprose.md 3.12)
    │   ├── SessionError                E201, E218   a session failed, or its announced binding is missing
    │   │                               E224         the schema of its answer cannot be used
    │   ├── SessionTimeout              E201         a session ran out of time (type `TimeoutError`)
    │   ├── ExecError                   E203-E205    a command failed, timed out, could not start; E050/E053 at run time
    │   │                               E223         a file cannot be shown
    │   ├── ThrowError                  E207         thrown by the program
    │   ├── RecursionLimitExceeded      E206
    │   ├── GateRejected                E213, E214   rejected, closed or timed out
    │   ├── InputError                  E212         no person to ask
    │   ├── ImportProgramError          E215, E028   a program could not be loaded (type `ImportError`)
    │   ├── ValueTypeError              E208-E210    names, members, operands, collections (type `TypeError`)
    │   ├── JudgeError                  E211         no judge could decide, or the verdict was not a label
    │   ├── ContractError               E230, E231   a result lacks an output, or a promise is broken
    │   ├── VvmRaise                    R201-R220    raised by a VVM program (docs/reference/vvm.md 10.4)
    │   ├── StateError                  E219         a binding or record could not be stored
    │   │   └── StoreFailed                          because the disk is full, or the database cannot be reached
    │   ├── BudgetSpent                 E221         a budget of the run, a block, an agent or a session is spent
    │   └── ResumeMismatch              E222         a resumed run makes other requests than its journal records
    ├── NoPerson                        the user port has no person to ask
    ├── Undecided                       a judge cannot decide; ask the next one
    ├── ProviderError                   a session provider's failure, with `retryable` (sessions.md 2.3)
    │   ├── ProviderAuth                a wrong or missing API key, or an account without permission
    │   ├── ProviderRateLimit           too many requests; retryable, with `retry_after`
    │   ├── ProviderOverloaded          the server is overloaded; retryable
    │   ├── ProviderTimeout             the server did not answer in time; retryable
    │   │   └── RecordedTimeout         a recorded session that exceeded its own `timeout:`
    │   ├── ProviderConnection          the connection failed or broke; retryable
    │   ├── ProviderBadReply            an invalid reply; retryable
    │   ├── ContextTooLong              the message is longer than the model accepts
    │   ├── PermissionDenied            the session may not run: a permission cannot be enforced
    │   ├── SessionCancelled            the person, or the agent's host, has cancelled the call
    │   ├── MemoryLocked                another process keeps the memory of the agent locked
    │   ├── NoProvider                  no provider is configured
    │   └── CassetteMiss                the session has no record, and no provider may be called
    │       └── StaleRecording          a file that the recorded session read has changed
    ├── GateRefused                     `prose gate` refused a decision (exit status 1)
    ├── TaskRefused                     a command or task call was refused, with its `kind`
    └── UsageError                      an invalid magic, option or setting
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from prose_kernel.language.diagnostics import Diagnostic
    from prose_kernel.language.source import Location


NON_INTERACTIVE: Final = "the run is non-interactive"


class ProseError(Exception):
    """Base of every error that prose_kernel raises on purpose."""


class CompileError(ProseError):
    """A source text has at least one diagnostic of severity error; none of it was executed.

    `diagnostics` holds all of them, including warnings, sorted by line, column and code; `first` is the first error.
    `hint` says what to do about the text as a whole.
    """

    def __init__(self, diagnostics: Sequence[Diagnostic], hint: str | None = None) -> None:
        self.diagnostics = tuple(diagnostics)
        self.hint = hint
        self.first = next((d for d in self.diagnostics if d.severity == "error"), None)
        super().__init__(self.first.message if self.first else "invalid program")


class RunError(ProseError):
    """An error of a running program, which `catch` binds (openprose.md 3.12).

    `code` is the E2xx code of section 9.5, `message` one line. `details` holds the other fields of the error value
    (`command`, `exit_code`, `stderr`, `gate`, `kind` …) as plain JSON. The machine sets `location` to the failing
    statement if it is known; `call_stack` holds one line for each enclosing block or program call, innermost first.
    `no_answer` is true if the error arose only because no one could answer (exit status 3). `answer` is the path of the
    request whose answer is the error, "" for an error of the program itself: a run can be resumed before that request.
    `replaced` has the paths of failed requests whose errors were still to be handled when this error ended their code.
    """

    type: ClassVar[str] = "Error"
    default_code: ClassVar[str] = "E201"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        details: Mapping[str, object] | None = None,
        hint: str | None = None,
        no_answer: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.details: dict[str, object] = dict(details or {})
        self.hint = hint
        self.no_answer = no_answer
        self.location: Location | None = None
        self.call_stack: tuple[str, ...] = ()
        self.answer = ""
        self.replaced: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[str, ...]:
        """The paths of the failed requests that the error stands for."""
        return (self.answer, *self.replaced) if self.answer else self.replaced

    @property
    def unanswered(self) -> bool:
        """Whether the program can neither catch nor ignore the error: nothing could answer a session or condition."""
        return self.no_answer and isinstance(self, (SessionError, JudgeError))

    @property
    def ends_siblings(self) -> bool:
        """Whether the error ends a parallel construct, even one that tolerates failures."""
        return self.unanswered


class Interrupted(RunError):
    """The run was interrupted. Programs cannot catch it."""

    def __init__(self) -> None:
        super().__init__("interrupted")


class SessionError(RunError):
    type = "SessionError"
    default_code = "E201"


class SessionTimeout(RunError):
    type = "TimeoutError"
    default_code = "E201"


class ExecError(RunError):
    type = "ExecError"
    default_code = "E203"


class ThrowError(RunError):
    type = "ThrowError"
    default_code = "E207"


class ContractError(RunError):
    type = "ContractError"
    default_code = "E230"
    page = "prose-md"


class RecursionLimitExceeded(RunError):
    type = "RecursionLimitExceeded"
    default_code = "E206"


class GateRejected(RunError):
    type = "GateRejected"
    default_code = "E213"


class InputError(RunError):
    type = "InputError"
    default_code = "E212"


class ImportProgramError(RunError):
    type = "ImportError"
    default_code = "E215"


class ValueTypeError(RunError):
    type = "TypeError"
    default_code = "E209"


class JudgeError(RunError):
    type = "JudgeError"
    default_code = "E211"


class VvmRaise(RunError):
    """A raised error of VVM: `raise`, or a fault that the program can catch (docs/reference/vvm.md 3.3, 10.4)."""

    type = "RaisedError"
    default_code = "R220"

    @property
    def value(self) -> dict[str, object]:
        """The value that `except as` binds."""
        return {"error": {"kind": "thrown", "message": self.message}}


class Thrown(VvmRaise):
    """Raised by the program's `raise`; `type` is the kind that `except` matches."""

    type = "thrown"


class StateError(RunError):
    type = "StateError"
    default_code = "E219"


class StoreFailed(StateError):
    """The store of the run is full or unreachable. The error belongs to no statement and answers no request. A program
    can neither catch nor ignore it; the run can be resumed when the store is available again."""

    @property
    def unanswered(self) -> bool:
        return True


class BudgetSpent(RunError):
    """A budget is spent. `budget` is its key: a program can catch the error once, where that budget is active."""

    type = "BudgetError"
    default_code = "E221"

    def __init__(
        self, message: str, *, budget: str, details: Mapping[str, object] | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, details=details, hint=hint)
        self.budget = budget

    @property
    def of_one_session(self) -> bool:
        """Whether the budget belongs to one session, which then fails like any other."""
        return self.budget.startswith("session ")

    @property
    def ends_siblings(self) -> bool:
        return not self.of_one_session


class ResumeMismatch(RunError):
    """A resumed program makes another request than its journal records. It can neither catch nor ignore this error."""

    type = "ResumeMismatch"
    default_code = "E222"

    @property
    def unanswered(self) -> bool:
        return True


class NoPerson(ProseError):
    """The user port has no person to ask: no terminal, `allow_stdin` false, or CI."""

    def __init__(self, message: str = NON_INTERACTIVE) -> None:
        super().__init__(message)


class Undecided(ProseError):
    """A judge cannot decide; the next one is asked. The message gives the reason in one line, `hint` the fix.

    `missed` is true if a replay has no record of the question, and nothing else may be asked; `failed` is true if a
    judge was asked and failed.
    """

    def __init__(self, message: str, *, hint: str | None = None, missed: bool = False, failed: bool = False) -> None:
        super().__init__(message)
        self.hint = hint
        self.missed = missed
        self.failed = failed


class ProviderError(ProseError):
    """A session provider failed. `retryable` is true if another attempt may succeed.

    `no_answer` is true if it failed only because no one could answer (exit status 3); `replayed` is true if the failure
    comes from a recording, so the next attempt need not wait.
    """

    retries: ClassVar[bool] = True
    no_answer: ClassVar[bool] = False

    def __init__(self, message: str, *, retryable: bool | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.retryable = self.retries if retryable is None else retryable
        self.hint = hint
        self.replayed = False


class ProviderAuth(ProviderError):
    """The API key is missing or wrong, or the account lacks permission."""

    retries = False


class ProviderRateLimit(ProviderError):
    """Too many requests. `retry_after` is the wait that the server requested, in seconds."""

    busy: ClassVar[bool] = True

    def __init__(self, message: str, *, retry_after: float | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class ProviderOverloaded(ProviderError):
    """The server reports that it is overloaded (`busy`), or had an internal error. `retry_after` as above."""

    def __init__(
        self, message: str, *, busy: bool = False, retry_after: float | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.busy = busy
        self.retry_after = retry_after


class ProviderTimeout(ProviderError):
    """The server did not answer in time."""


class RecordedTimeout(ProviderTimeout):
    """The session exceeded its own `timeout:` when it was recorded."""


class ProviderConnection(ProviderError):
    """The connection failed, or broke before the answer was complete."""


class ProviderBadReply(ProviderError):
    """The server's reply is invalid: a different format, or a different kind of server."""


class ContextTooLong(ProviderError):
    """The message is longer than the model accepts."""

    retries = False


class PermissionDenied(ProviderError):
    """The session may not run with these permissions: the provider cannot enforce one of them."""

    retries = False


class SessionCancelled(ProviderError):
    """The person who answers, or the host of an agent, has cancelled the call."""

    retries = False


class MemoryLocked(ProviderError):
    """Another process has kept the memory of the agent locked for too long."""

    retries = False


class NoProvider(ProviderError):
    """No provider is configured, and no person is present to answer instead."""

    retries = False
    no_answer = True


class CassetteMiss(ProviderError):
    """The session has no record, and in this mode no provider is called (sessions.md 4.2)."""

    retries = False
    no_answer = True


class StaleRecording(CassetteMiss):
    """A file that the recorded session read has changed, and outdated answers are not accepted."""


class UsageError(ProseError):
    """An invalid magic, command-line option or setting; the message says what is accepted."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class GateRefused(ProseError):
    """`prose gate` refused a decision: the gate is unknown or already resolved, it is too late, it is not allowed, or
    the command was called from inside a run."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class TaskRefused(ProseError):
    """`exec_command` or a task call was refused (docs/reference/exec-and-tasks.md 4.2).

    `kind` is one of `invalid_input`, `unsupported`, `workdir_not_found`, `command_spawn_failed`, `task_not_found`,
    `task_limit_reached`, `task_store_failed`, `permission_denied`, `runtime_closed`; `retryable` is true if the
    same call may succeed later.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        hint: str | None = None,
        details: Mapping[str, object] | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint
        self.details: dict[str, object] = dict(details or {})
        self.retryable = retryable


def reason_of(error: Exception, otherwise: str = "unknown") -> str:
    """Return the reason of a failed system call in lower case, for use in a message; `otherwise` if it has none."""
    reason: str | None = getattr(error, "strerror", None)
    return reason.lower() if reason else otherwise


@contextmanager
def usage_errors(failure: str) -> Iterator[None]:
    """Convert an `OSError` in the block to a `UsageError` with the message `failure` and the reason."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{failure}: {reason_of(error, str(error))}") from None
