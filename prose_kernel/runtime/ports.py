"""The ports to the outside: everything that the machine cannot decide by itself.

The machine says what the program wants; an implementation answers. Requests and results are frozen, picklable data, so
that a leaf operation can be executed elsewhere without the machine knowing. Implementations live in `processes`,
`models`, `judging`, `storage` and the front ends; the machine imports none of them.

Every request carries `at`, its deterministic path: `c2/3/b1/i0/s0` is the first session asked by the first iteration in
the second branch of the third statement of the second cell. It is the same in every run of a program and never given
twice, but for the attempts at one session or gate, which are numbered. Recordings and traces of a run hang off it.

`Gates` is a separate port, because only an outside principal may use it (openprose.md 5.10): sessions, judges and
commands have no call that could decide one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeVar

from msgspec import Struct
from msgspec import field as struct_field

if TYPE_CHECKING:
    from prose_kernel.language.source import Source, Span
    from prose_kernel.runtime.values import Value

T = TypeVar("T")

# ---------------------------------------------------------------- commands

DEFAULT_MAX_OUTPUT: Final = 30_000
"""Characters of each stream that the value of an `exec` keeps, unless it says otherwise with `max-output`."""


class CommandRequest(Struct, frozen=True):
    """One `exec`: the interpolated shell text, the directory to run in, the limit in seconds.

    `track` asks for the shell's final directory (`cwd_after`); it is off for an explicit `cwd:`. Of each stream the
    first `max_output` characters are kept. `stdin` is the text of standard input, or an image (None: empty), `env`
    holds further environment variables. With `pipefail` a pipe ends with the code of its last command that failed.
    `attempt` counts the retries before this one. `reads` and `writes` are globs for the files that the command depends
    on and makes; None: it declares none. `needs` are resources that the machine must have (`processes.resources`).
    """

    command: str
    cwd: str
    timeout: float
    track: bool = True
    max_output: int = DEFAULT_MAX_OUTPUT
    stdin: str | bytes | None = None
    env: Mapping[str, str] = struct_field(default_factory=dict)
    at: str = ""
    pipefail: bool = False
    attempt: int = 0
    reads: tuple[str, ...] | None = None
    writes: tuple[str, ...] | None = None
    needs: Mapping[str, float] = struct_field(default_factory=dict)

    @property
    def declares_files(self) -> bool:
        """Whether the files that its result depends on are known."""
        return self.reads is not None


Outcome = Literal["exited", "signaled", "timed_out", "interrupted", "cancelled", "spawn_failed", "lost"]
"""`lost`: the command ran on another machine, which cannot be reached any more. Its effects are not known; only the
program can run it again (`retry`)."""


class KeptFrom(Struct, frozen=True, omit_defaults=True):
    """The origin of a kept answer: the run that made the request, and the time of the answer ("" if unknown). `at` is
    the path of the request that keeps it."""

    run: str
    at: str
    answered: str = ""


class CommandResult(Struct, frozen=True, omit_defaults=True):
    """The result of a command (exec-and-tasks.md 1.2). `exit_code` follows the `exec` column of its table.

    `kind` names a failure: `exit`, `signal`, `timeout`, `spawn`, `cwd`, `lost`; None on success. Streams are decoded
    and cut to `max_output` code points. `duration`, `max_rss`, `cpu_s` and `worker` (the name of the machine, for a
    command that ran on another one) are volatile and belong into metadata only. `image` is the picture that stdout was
    or ended in; `stdout` has one line in its place. `code_hidden`: the command's text may hide a failure by ending with
    exit code 0 (exec-and-tasks.md 2.6). `kept_from`: it is the result of an earlier run, and the command did not run.
    """

    outcome: Outcome
    exit_code: int
    stdout: str = ""
    stderr: str = ""
    kind: Literal["exit", "signal", "timeout", "spawn", "cwd", "lost"] | None = None
    signal: str | None = None
    timed_out: bool = False
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    replaced_bytes: int = 0
    pipes_held: bool = False
    background_left: int = 0
    cwd_after: str | None = None
    spawn_error: str | None = None
    duration: float = 0.0
    max_rss: int = 0
    cpu_s: float = 0.0
    worker: str | None = None
    image: bytes = b""
    code_hidden: bool = False
    kept_from: KeptFrom | None = None


class Owner(Struct, frozen=True):
    """The process that runs a run, for machines that run its commands. A process that takes the run over has a larger
    `epoch`, and has `resumed` it."""

    run: str
    epoch: int
    resumed: bool = False


Stream = Literal["stdout", "stderr"]


class Omitted(NamedTuple):
    """How much of an output is left out: bytes, and ends of lines."""

    size: int = 0
    lines: int = 0

    def and_(self, text: str) -> Omitted:
        return Omitted(self.size + utf8_size(text), self.lines + text.count("\n"))


NOTHING_OMITTED = Omitted()


def utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


class OnOutput(Protocol):
    """Gets a command's output. `omitted` came before `text` and is not delivered; only a consumer that displays a
    limited part of an output is ever given it."""

    def __call__(self, stream: Stream, text: str, omitted: Omitted = NOTHING_OMITTED, /) -> None: ...


class Commands(Protocol):
    async def run(self, request: CommandRequest, on_output: OnOutput | None = None) -> CommandResult:
        """Run one command to its end. `on_output` gets decoded text in few, large pieces, in the caller's loop.

        Never raises for anything the command does. Cancelling the call ends the command by the ladder of its cause
        (`asyncio.CancelledError` then propagates once nothing of its group is left).
        """


# ---------------------------------------------------------------- files that are shown


class ShowRequest(Struct, frozen=True):
    """A file to show: the path as the program names it, and the directory that it is relative to."""

    path: str
    directory: str
    at: str = ""


class ShownFile(Struct, frozen=True, omit_defaults=True):
    """A file as it was when it was to be shown. `name` is its path as given, `media` what it is, `size` its bytes.

    `data` is the whole file, or the beginning of a text; of a table (`text/csv`, `application/jsonl`) it is empty, and
    `rows` holds the first of `total` rows. `note` says what else a person should know: a damaged row, an encoding.
    """

    name: str
    media: str
    size: int
    data: bytes = b""
    rows: tuple[dict[str, Any], ...] = ()
    total: int = 0
    note: str = ""


class Files(Protocol):
    async def show(self, request: ShowRequest) -> ShownFile:
        """Read a file for people to see. Raises `ExecError` (E223) for one that cannot be shown; never waits for one
        that has no end."""

    def matching(self, directory: str, globs: Sequence[str]) -> dict[str, str] | None:
        """Return the SHA-256 digests of the files below `directory` that match any of these globs, by relative path.

        None if there are too many, or one of them changed while it was read. Call it in a thread.
        """

    def digests(self, directory: str, paths: Sequence[str]) -> dict[str, str]:
        """Return the digests of the files with these paths; those that can't be read are left out."""


class WorkingTree(Protocol):
    """The files in the directory of a run."""

    async def watched(self, cwd: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Return what `ask` returns, and keep the contents of the files that its work changes.

        `cwd` is the directory of a command; "" for a session.
        """


# ---------------------------------------------------------------- sessions


@dataclass(frozen=True, slots=True)
class ContextItem:
    """One line of a session's context (openprose.md 4.3): a name with a place to read it from, or with its text.

    `missing` marks the name of a cancelled branch: it is listed as having no result. `content` is the text at
    `location`, for uses that cannot read the location: a recording's key, a provider without tools. It may be a
    reference, which is read only then; None if only the session can read it (the memory file of an agent). `row`: the
    location isn't a file: our `read` tool knows it, other programs may not. `file`: the text is the path of a file, as
    the program names it. `age` orders contexts from what changes least (the program's own text, `()`) to the newest.
    """

    name: str
    location: str | None = None
    text: str | None = None
    missing: bool = False
    content: Value = field(default=None, compare=False, repr=False)
    row: bool = False
    file: bool = False
    age: tuple[int, ...] = field(default=(), compare=False, repr=False)


class Target(Struct, frozen=True):
    """The file for a session's answer, and the header it must have (openprose.md 4.2 point 6, 7.4)."""

    name: str
    location: str
    header: str


class BlockScope(Struct, frozen=True):
    """The execution scope section of a session inside a block (openprose.md 4.2 point 3)."""

    execution_id: int
    block: str
    depth: int
    parent_execution_id: int


class AgentMemory(Struct, frozen=True):
    """The memory of a persistent agent: its directory, and whether it is to be read first (`resume`).

    `text` is what the memory holds when the session starts (None: nothing yet, or not to be read), `segment` the file
    of this invocation; both are filled in by the sessions room, which holds the directory's lock by then.
    """

    agent: str
    scope: str
    directory: str
    resume: bool
    text: str | None = None
    segment: str | None = None


class Given(Struct, frozen=True):
    """The input of an agent call: a channel separate from the task (docs/reference/vvm.md 6.5).

    `text` is the value as text, a string as it is and everything else serialised. `references` are the files that
    reference values in it name; a session may read those below `readable`, the directory of the run's bindings ("":
    there is none).
    """

    text: str
    references: tuple[str, ...] = ()
    readable: str = ""


class SessionRequest(Struct, frozen=True):
    """One attempt at a `session` or `resume`, or at an agent call of VVM (`call`), with everything resolved but the
    assembled message.

    `output` is the JSON Schema that the answer must fit, None: any text; `correction` says what was wrong with the last
    answer, `wrong` holds each answer of an earlier attempt that did not fit, with what was wrong with it. `task` and
    `system` are interpolated. `context` is None when the program said nothing, empty for `context: []`. `timeout` is in
    seconds. A call has `given` (None: an empty input), `prelude` (the contents of the agent's memory) and `settings`,
    the agent's configuration without the known keys; and no text that orients a session. `tools` are the names of the
    user's own tools: `weather` (a server), `weather.forecast`, `word_count` (a function); `bare`: a session gets no
    other tools (`tools: none`). `elsewhere`: the program was fetched. `filed`: the runtime keeps the answer of this
    call in a file, also where `target` is None because the reply is the answer.
    """

    kind: Literal["session", "resume", "call"]
    task: str
    at: str
    system: str | None = None
    agent: str | None = None
    label: str | None = None
    model: str | None = None
    context: tuple[ContextItem, ...] | None = None
    skills: tuple[str, ...] = ()
    permissions: Mapping[str, str | tuple[str, ...]] = struct_field(default_factory=dict)
    memory: AgentMemory | None = None
    scope: BlockScope | None = None
    target: Target | None = None
    program: str = ""
    position: int = 0
    finished: tuple[str, ...] = ()
    attempt: int = 0
    timeout: float | None = None
    given: Given | None = None
    prelude: str = ""
    settings: Mapping[str, object] = struct_field(default_factory=dict)
    output: Mapping[str, Any] | None = None
    correction: str = ""
    wrong: tuple[tuple[str, str], ...] = ()
    tools: tuple[str, ...] = ()
    elsewhere: bool = False
    bare: bool = False
    filed: bool = False


class ToolUse(Struct, frozen=True):
    """One call of a tool by a session, as its trace shows it; nothing in it differs from run to run.

    `summary` says on one line what was asked (`src/main.py`, `make test`); `detail` holds the beginning of what came
    back, or why it was refused.
    """

    tool: str
    summary: str
    outcome: Literal["ok", "refused", "failed"] = "ok"
    detail: str = ""


class FileRead(Struct, frozen=True):
    """A workspace file that a session read, and the digest of what was in it."""

    path: str
    sha256: str


class FileWrite(Struct, frozen=True):
    """A file that a session wrote: the path, relative to its workspace if it is in it, and the text before (None: no
    such file) and after (None: removed, or no text)."""

    path: str
    before: str | None
    after: str | None


class Usage(Struct, frozen=True):
    """The consumption of a session or a judgement: requests to the model, tokens in and out, cost in US dollars if it
    is known. `counted` is False where the provider did not report tokens. `tokens_cached` of those in were in the
    server's cache. A replayed answer consumes nothing."""

    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None
    counted: bool = True
    tokens_cached: int = 0


def reported(given: object) -> Usage | None:
    """Return the usage that the details of a judgement hold, as plain data or not; None if they hold none."""
    if isinstance(given, Usage):
        return given
    if not isinstance(given, dict):
        return None
    known = {name: given[name] for name in Usage.__struct_fields__ if name in given}
    return Usage(**known)


class SessionResult(Struct, frozen=True, omit_defaults=True):
    """A session's answer. `text` None means: the session has written its binding itself.

    `origin` says who made the answer: `model`, `agent` (a CLI agent), `human`, `authored` (an example written by hand),
    `scripted`, `dry-run`; it is the same when the answer is replayed. `trace` holds the calls of tools in order.
    `memory_after` and `segment` are the texts of a persistent agent's two files when the provider knows them (None:
    they are not written yet), `writes` the other files that the session wrote with our tools, `reads` those of the
    workspace that it read. `usage`, `replayed`, and `details` (resolved model, provider's facts, date) are volatile:
    metadata and trace only. `reply` is the reply of a call that wrote its answer to a file; None: its reply is the
    answer. `answer_file` is for journals: the name of the file that holds the answer of a call, with its SHA-256;
    `patches` are then those of its memory.
    """

    text: str | None
    summary: str = ""
    provider: str = ""
    origin: str = ""
    details: Mapping[str, object] = struct_field(default_factory=dict)
    trace: tuple[ToolUse, ...] = ()
    writes: tuple[FileWrite, ...] = ()
    reads: tuple[FileRead, ...] = ()
    memory_after: str | None = None
    segment: str | None = None
    usage: Usage | None = None
    replayed: bool = False
    reply: str | None = None
    answer_file: tuple[str, str] | None = None
    patches: tuple[str, ...] = ()


class SessionProgress(Struct, frozen=True):
    """Something a running session lets be seen: a piece of its text, a note (whole), or a tool that it has called.

    A session that starts its text again (after a tool call) sends a piece that begins with a blank line. `seconds` is
    how long the call of a tool took: volatile, 0 for one that is replayed.
    """

    kind: Literal["text", "note", "tool"]
    text: str
    tool: ToolUse | None = None
    seconds: float = 0.0


class Sessions(Protocol):
    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        """Run one attempt. Raises `ProviderError` (with `retryable`); honours cancellation and `request.timeout`
        is enforced by the machine."""


# ---------------------------------------------------------------- memories of digest and ledger

MemoryScope = Literal["project", "user", "path"]
MemoryMode = Literal["continue", "dry_run"]


class MemoryBinding(Struct, frozen=True):
    """Which memory an agent call works with (docs/reference/vvm.md 6.6). That is its identity, not the agent's name.

    `name` is the escaped key, the name of its directory.
    """

    scope: MemoryScope
    key: str
    name: str
    path: str | None = None


class MemoryRequest(Struct, frozen=True):
    """The memory of an agent call is opened, or an answer's patches are applied to it (`what`)."""

    key: str
    what: Literal["open", "keep"]
    at: str


class OpenMemory(Protocol):
    """The memory of one agent call, its own until `close`."""

    @property
    def prelude(self) -> str:
        """Return the text before the task."""

    async def keep(self, patches: Sequence[str]) -> str | None:
        """Apply the patch of an answer. Why it is discarded, in a word or two; None when it is kept, or there is
        nothing to keep. Never raises for what a patch or the disk is like."""

    def close(self) -> None:
        """Let others have it. A second call does nothing."""


class Memories(Protocol):
    """The memories of agents as digest and ledger."""

    async def open(self, binding: MemoryBinding, mode: MemoryMode) -> OpenMemory:
        """Wait for the memory, lock and read it. Raises `MemoryLocked` when another process keeps it, `ProviderError`
        for one that cannot be used. `dry_run` locks it only for reading, and keeps nothing."""

    def prelude(self, binding: MemoryBinding, mode: MemoryMode) -> str:
        """Return the text that a call would get now; nothing is locked, made or changed. Raises `ProviderError`."""


# ---------------------------------------------------------------- files of answers


class Answers(Protocol):
    """The files for answers of agent calls, if calls return references (docs/reference/vvm.md 7)."""

    @property
    def readable(self) -> str:
        """The directory of this run's bindings, as sessions see it."""

    def target(self, number: int) -> Target:
        """The file of a call: `b000001` and its place."""

    def clear(self, target: Target) -> None:
        """Remove what an attempt before has left. Raises `StateError`."""

    def read(self, target: Target) -> str | None:
        """Return the text that the session has written; None if there is no such file, or it is a link. Raises
        `StateError` for one that is too large."""

    def write(self, target: Target, text: str) -> None:
        """The file holds this text afterwards. Raises `StateError`."""

    def answered(self, name: str | None, agent: str, target: Target, summary: str) -> str:
        """Note a call that has succeeded, and return its name in the index: `name`, or one made for a call whose
        result no name takes."""

    def failed(self, name: str | None, agent: str, target: Target, kind: str) -> str:
        """Note a call that has failed, likewise."""


# ---------------------------------------------------------------- judge


LAST_RESULT = "the last result"
"""The name of an unnamed value in messages to a judge; no program can use it."""


class JudgeRequest(Struct, frozen=True):
    """A question to the judge with its context (openprose.md 3.4).

    `bindings` maps every visible name to its value; if the question names none, `LAST_RESULT` is what a session or
    command gave that has no name and is newer than all of them. `text` is the question with the values inserted;
    `inserted` are those values by their placeholder (`{draft}`), and `written` is the question with the
    placeholders: a model is asked that, and gets the values as material, so that no value can pass for a question.

    With a `subject` it is a criterion of VVM (docs/reference/vvm.md 4.6): the judge is shown this one value, as text,
    and nothing else of the program.

    `further` are the questions that come next, with nothing done in between; the judge may answer them together with
    this one. One of them that is asked only if the answers before it let it come to that is marked `conditional`.

    `by_rules`: only rules may answer it; what they leave open is uncertain.
    """

    text: str
    at: str
    program: str = ""
    bindings: Mapping[str, Value] = struct_field(default_factory=dict)
    recent: tuple[str, ...] = ()
    loop: Literal["until", "while"] | None = None
    loop_index: int | None = None
    loop_maximum: int | None = None
    written: str = ""
    inserted: tuple[tuple[str, str], ...] = ()
    subject: str | None = None
    further: tuple[JudgeRequest, ...] = ()
    conditional: bool = False
    by_rules: bool = False

    @property
    def question(self) -> str:
        """The question without what a model or a command wrote."""
        return self.written or self.text


class Verdict(Struct, frozen=True, omit_defaults=True):
    """`answer` None is "uncertain"; `no_progress` ends a loop. `by` (`rules`, `scripted`, `model`, `agent`, `human`,
    `authored`, `dry-run`) and `reason` say who decided and why, the same when replayed; `details` is volatile."""

    answer: bool | None
    by: str
    reason: str = ""
    no_progress: bool = False
    details: Mapping[str, object] = struct_field(default_factory=dict)


class Pick(Struct, frozen=True, omit_defaults=True):
    """The label that `choose` picked, and by whom and why. A label not in the list makes the machine ask once more."""

    label: str
    by: str
    reason: str = ""
    details: Mapping[str, object] = struct_field(default_factory=dict)


class Finding(Struct, frozen=True, omit_defaults=True):
    """The result of `extract` or `items` (for `items` a list), with its author and reason."""

    value: Value
    by: str
    reason: str = ""
    details: Mapping[str, object] = struct_field(default_factory=dict)


class JudgedText(Struct, frozen=True):
    """A question that a program may put to the judge, before it runs: its place, its text as written, with a number
    where values will be inserted, and whether it is a `choice`. A `criterion` is one of VVM, about a single value."""

    span: Span
    text: str
    sample: str
    choice: bool = False
    criterion: bool = False


Judged = TypeVar("Judged", Verdict, Pick, Finding)


class Judge(Protocol):
    """Decides conditions. Each call raises `Undecided` if no link of the chain can answer; machines report E211."""

    async def decide(self, request: JudgeRequest) -> Verdict: ...

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick: ...

    async def extract(self, request: JudgeRequest, value: str, path: str) -> Finding: ...

    async def items(self, request: JudgeRequest, value: str) -> Finding: ...


class JudgeWrapper:
    """A `Judge` around another one: `ask` gets each question, as the call that a judge has to answer."""

    async def ask(self, request: JudgeRequest, calling: Callable[[Judge], Awaitable[Judged]]) -> Judged:
        raise NotImplementedError

    async def decide(self, request: JudgeRequest) -> Verdict:
        return await self.ask(request, lambda judge: judge.decide(request))

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        return await self.ask(request, lambda judge: judge.choose(request, labels))

    async def extract(self, request: JudgeRequest, value: str, path: str) -> Finding:
        return await self.ask(request, lambda judge: judge.extract(request, value, path))

    async def items(self, request: JudgeRequest, value: str) -> Finding:
        return await self.ask(request, lambda judge: judge.items(request, value))


class Phrases(Protocol):
    """Puts the text of an `input` with a marker into plain words for the person (A49)."""

    async def phrase(self, request: JudgeRequest) -> Finding:
        """A `question` and its `options`, which may be none. Raises `ProseError` or `TimeoutError`; the text is shown
        as written then."""


class LiveJudge(Judge, Phrases, Protocol):
    """A model or an agent."""


# ---------------------------------------------------------------- races


class Races(Protocol):
    """The winners of a `parallel` that doesn't wait for all its branches (`first`, `any`; sessions.md 4.2).

    A race is known by its execution path and the text it is written in. It is recorded only when sessions took part in
    it, so that a replay, in which every session answers immediately, ends the same way.
    """

    def recorded(self, at: str, text: str) -> tuple[int, ...] | None:
        """The branches that ended before the race was decided, in the order they did; None: let them race."""

    async def ended(self, at: str, text: str, branches: tuple[int, ...]) -> None:
        """The race is over: these branches ended, in this order; the last one decided it."""


# ---------------------------------------------------------------- user and gates


class Question(Struct, frozen=True):
    """An `input` (openprose.md 6.3): the name it binds and the text to show as written. With `phrase` a model may put
    it into words first; the journal's request does not include that."""

    name: str
    prompt: str
    at: str = ""
    phrase: JudgeRequest | None = None


class User(Protocol):
    async def ask(self, question: Question) -> str:
        """The person's answer. Raises `NoPerson`. Questions of parallel branches are asked one at a time."""


class GateRequest(Struct, frozen=True):
    """A gate that opens (openprose.md 5.8, 5.9): record id, gate name, evaluated properties; `timeout` in seconds. The
    name of a gate in an imported program begins with the module: `deploy:release`."""

    id: str
    name: str
    prompt: str
    allow: tuple[str, ...]
    timeout: float
    timeout_text: str
    on_reject: str
    execution_id: int | None = None
    attempt: int = 1
    at: str = ""


class GateDecision(Struct, frozen=True, omit_defaults=True):
    """How a gate record ended. `reason` is set by closing: `cancelled`, `interrupted`, `nobody`. `source` is the door:
    `cell`, `terminal`, `option`, `cli`, `sql`, `file`."""

    status: Literal["approved", "rejected", "timeout"]
    by: str
    comment: str = ""
    reason: str | None = None
    source: str | None = None

    @property
    def decided_by(self) -> str:
        """The author of the decision and its channel, for people: a file is never called a user."""
        ways = {
            "cli": f"{self.by} (command line)",
            "sql": f"{self.by} (SQL)",
            "file": f"a decision file in the name of {self.by}",
        }
        return ways.get(self.source or "", self.by)


class Gates(Protocol):
    async def decide(self, request: GateRequest) -> GateDecision:
        """Write the record, ask or wait or deny by mode, return the one decision that won.

        When the call is cancelled the record is closed (`rejected` by `system`, reason `cancelled`) first.
        """

    def replayed(self, request: GateRequest, decision: GateDecision) -> None:
        """The journal has answered this request: what was given beforehand for it is used up."""


# ---------------------------------------------------------------- programs


class LoadRequest(Struct, frozen=True):
    """An import: the path as written, and the source that it is written in.

    With `texts` the programs are those of a run that is resumed: by address, and read nowhere else.
    """

    path: str
    importer: Source
    at: str
    texts: Mapping[str, str] | None = None


class LoadedProgram(Struct, frozen=True):
    """A loaded import: a checked tree of the importing language, its source, and the two parts of the name of its
    directory (docs/reference/openprose.md 6.5). `url` and `digest` (SHA-256 of the text as it was served) are those of
    a program from elsewhere; `texts` are the sources that were read for it, by address."""

    program: Any
    source: Source
    handle: str
    slug: str
    url: str = ""
    digest: str = ""
    texts: Mapping[str, str] = struct_field(default_factory=dict)


class FoundRun(Struct, frozen=True):
    """A completed run that a program is given: its value, and what the person should know about it."""

    value: dict[str, str]
    notes: tuple[str, ...] = ()


LoadProgram = Callable[[LoadRequest], Awaitable[LoadedProgram]]
"""Raises `ImportProgramError` (E215, E112)."""

# ---------------------------------------------------------------- store


class Key(Struct, frozen=True):
    """The place of a binding inside its run: name, frame, and the indexes of the parallel iterations around it.

    Its file name is `name[__execution_id][__i{index}...]` (openprose.md 7.4).
    """

    name: str
    execution_id: int | None = None
    iterations: tuple[int, ...] = ()


class Binding(Struct, frozen=True):
    """A value to keep. `source` is the text of the statement that made it. `label` is a labelled session's."""

    key: Key
    kind: Literal["input", "output", "let", "const"]
    value: Value
    source: str
    label: str | None = None


class Store(Protocol):
    """Keeps the bindings of a run. `put` and `read` are synchronous and cheap: writing may be deferred to `flush`,
    which the machine calls before anything outside could look, and at the end of each cell or run.

    `chain` names the import directories around this store, empty for the run itself."""

    @property
    def chain(self) -> tuple[str, ...]: ...

    @property
    def by_value(self) -> bool:
        """Whether sessions cannot read what is kept here: context is passed by value then (7.6)."""

    @property
    def in_files(self) -> bool:
        """Whether `location` names a file, which any tool can read; else it names a row of a database."""

    @property
    def lost(self) -> str | None:
        """Why nothing can be kept outside of memory, in a sentence for people; None while all is well (E219)."""

    def put(self, binding: Binding) -> None: ...

    def read(self, key: Key) -> str:
        """The value of a binding as text. Raises `StateError` when it is not there (E218 is the machine's)."""

    def watch(self, key: Key) -> Callable[[], bool]:
        """Call before a session that may write the binding itself; the returned function reports whether it has done
        so.

        Always false where sessions cannot write (`target` is None)."""

    def location(self, key: Key, within: tuple[str, ...] = ()) -> str:
        """The location given to a session for reading the binding (4.3): `.prose/runs/<run>/bindings/plan.md`, or the
        row of a table. `within` are names of imported programs' calls below this store, which need not exist."""

    def target(self, binding: Binding) -> Target | None:
        """Return the file that a session writes the binding to, and its header; None if it replies with its answer."""

    def memory(self, agent: str, persist: str) -> str:
        """The memory directory of a persistent agent (4.4); `persist` is `true`, `project`, `user`, a path."""

    def has_memory(self, agent: str, persist: str) -> bool: ...

    def nested(self, handle: str, slug: str, source: str, number: int = 1) -> Store:
        """The store of an imported program's call (`imports/{handle}--{slug}[--number]`), with its source kept."""

    async def flush(self) -> None:
        """Everything put so far is on disk afterwards. Raises `StateError` naming what could not be kept."""


# ---------------------------------------------------------------- time


class Wait(Struct, frozen=True):
    """A branch waits without a request: before a retry for `seconds`, or, after computing for long, until others had
    their turn."""

    why: Literal["retry", "turn"]
    at: str
    seconds: float = 0.0


class Clock(Protocol):
    """The only time the machine and the gates know; tests bring their own."""

    def now(self) -> datetime:
        """Wall clock, UTC."""

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class Overrides(Struct, frozen=True):
    """Ports that Python code supplies for a run, in place of those that its settings choose.

    `judge` decides what no rule decides. A run with its own `store` is kept only there: it has no directory and no
    journal.
    """

    sessions: Sessions | None = None
    judge: Judge | None = None
    store: Store | None = None


CONFIGURED: Final = Overrides()
"""No port is overridden: the settings choose them all."""


class Ports(Struct, frozen=True):
    """All ports of one machine."""

    commands: Commands
    sessions: Sessions
    judge: Judge
    user: User
    gates: Gates
    store: Store
    clock: Clock
    races: Races | None = None
    memories: Memories | None = None
    answers: Answers | None = None
    files: Files | None = None
    tree: WorkingTree | None = None
