"""The ports to the outside: everything that the machine cannot decide by itself.

The machine sends a request to a port, and the port's implementation returns a result. Both are frozen, picklable data,
so the work can be done in another process. Implementations are in `processes`, `models`, `judging`, `storage` and the
front ends; the machine imports none of them.

Every request has a deterministic path `at`: `c2/3/b1/i0/s0` is the first session asked by the first iteration in the
second branch of the third statement of the second cell. It is the same in every run of a program, and unique except for
the numbered attempts at one session or gate. Recordings and traces depend on it.

`Gates` is a separate port, because only an outside principal may use it (openprose.md 5.10): sessions, judges and
commands have no call that could decide a gate.
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
"""The characters of each stream that the value of an `exec` keeps, unless it sets `max-output`."""


class CommandRequest(Struct, frozen=True):
    """One `exec`: the interpolated shell text, the directory to run in, the limit in seconds.

    - `track`: report the shell's final directory (`cwd_after`); off for an explicit `cwd:`
    - `max_output`: the characters kept of each stream
    - `stdin`: the text of standard input, or an image (None: empty); `env`: additional environment variables
    - `pipefail`: a pipe ends with the exit code of its last failed command
    - `attempt`: the number of retries before this one
    - `reads`, `writes`: globs for the files that the command depends on and writes; None: not declared
    - `needs`: resources that the machine must have (`processes.resources`)
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
        return self.reads is not None


Outcome = Literal["exited", "signaled", "timed_out", "interrupted", "cancelled", "spawn_failed", "lost"]
"""`lost`: the command ran on another machine, which cannot be reached any more. Its effects are unknown, so it runs
again only if the program asks for it (`retry`)."""


class KeptFrom(Struct, frozen=True, omit_defaults=True):
    """The origin of a kept answer: the run that made the request, and the time of the answer ("" if unknown). `at` is
    the path of the request that keeps it."""

    run: str
    at: str
    answered: str = ""


class CommandResult(Struct, frozen=True, omit_defaults=True):
    """The result of a command (exec-and-tasks.md 1.2). `exit_code` follows the `exec` column of its table.

    `kind` names a failure: `exit`, `signal`, `timeout`, `spawn`, `cwd`, `lost`; None on success. Streams are decoded
    and cut to `max_output` code points. `duration`, `max_rss`, `cpu_s` and `worker` (the name of the remote machine
    that ran the command) are volatile and belong into metadata only. `image` is the picture in stdout, or at its end;
    `stdout` has one line in its place. `code_hidden` means that the command's text may hide a failure by ending with
    exit code 0 (exec-and-tasks.md 2.6). `kept_from` is set for the result of an earlier run; the command did not run.
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
    """The process that executes a run, as identified to the machines that run its commands. A process that takes over
    the run has a larger `epoch`, and `resumed` is true."""

    run: str
    epoch: int
    resumed: bool = False


Stream = Literal["stdout", "stderr"]


class Omitted(NamedTuple):
    """The amount of omitted output: bytes, and line ends."""

    size: int = 0
    lines: int = 0

    def and_(self, text: str) -> Omitted:
        return Omitted(self.size + utf8_size(text), self.lines + text.count("\n"))


NOTHING_OMITTED = Omitted()


def utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


class OnOutput(Protocol):
    """Receives a command's output. `omitted` describes output before `text` that is not delivered; only a consumer that
    displays a limited part of the output gets it."""

    def __call__(self, stream: Stream, text: str, omitted: Omitted = NOTHING_OMITTED, /) -> None: ...


class Commands(Protocol):
    async def run(self, request: CommandRequest, on_output: OnOutput | None = None) -> CommandResult:
        """Run one command to its end. `on_output` gets decoded text in few, large pieces, in the caller's loop.

        Never raises an error for anything that the command does. Cancelling the call ends the command with the signals
        for this cause; `asyncio.CancelledError` propagates when no process of its group is left.
        """


# ---------------------------------------------------------------- displayed files


class ShowRequest(Struct, frozen=True):
    """A file to show: the path as the program names it, and the directory that it is relative to."""

    path: str
    directory: str
    at: str = ""


class ShownFile(Struct, frozen=True, omit_defaults=True):
    """The contents of a file to show. `name` is its path as given, `media` its media type, `size` its bytes.

    `data` is the whole file, or the beginning of a text; for a table (`text/csv`, `application/jsonl`) it is empty, and
    `rows` has the first of `total` rows. `note` has further facts for the person: a damaged row, an encoding.
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
        """Read a file to show it to people. Raises `ExecError` (E223) if it cannot be shown. Never blocks on an endless
        file."""

    def matching(self, directory: str, globs: Sequence[str]) -> dict[str, str] | None:
        """Return the SHA-256 digests of the files below `directory` that match any of these globs, by relative path.

        None if there are too many, or one of them changed while it was read. Call it in a thread.
        """

    def digests(self, directory: str, paths: Sequence[str]) -> dict[str, str]:
        """Return the digests of the files with these paths; those that can't be read are left out."""


class WorkingTree(Protocol):
    """The files in the directory of a run."""

    async def watched(self, cwd: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `ask`, and keep the contents of the files that its work changes.

        `cwd` is the directory of a command; "" for a session.
        """


# ---------------------------------------------------------------- sessions


@dataclass(frozen=True, slots=True)
class ContextItem:
    """One line of a session's context (openprose.md 4.3): a name with a place to read it from, or with its text.

    - `missing`: the name belongs to a cancelled branch, and is listed as having no result
    - `content`: the text at `location`, for uses that cannot read the location (a recording's key, a provider without
      tools). A reference is read only then. None if only the session can read it (the memory file of an agent)
    - `row`: the location isn't a file; our `read` tool can read it, other programs may not
    - `file`: the text is the path of a file, as the program names it
    - `age`: orders contexts from the part that changes least (the program's own text, `()`) to the newest
    """

    name: str
    location: str | None = None
    text: str | None = None
    missing: bool = False
    content: Value = field(default=None, compare=False, repr=False)
    row: bool = False
    file: bool = False
    age: tuple[int, ...] = field(default=(), compare=False, repr=False)


class AnswerFile(Struct, frozen=True):
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
    """The memory of a persistent agent: its directory, and whether to read it first (`resume`).

    `text` is the content of the memory when the session starts (None: empty, or not to be read), `segment` the file of
    this invocation. The `models` room sets both when it holds the directory's lock.
    """

    agent: str
    scope: str
    directory: str
    resume: bool
    text: str | None = None
    segment: str | None = None


class Given(Struct, frozen=True):
    """The input of an agent call: a channel separate from the task (docs/reference/vvm.md 6.5).

    `text` is the value as text: a string unchanged, everything else serialised. `references` are the files named by
    reference values in it; a session may read those below `readable`, the directory of the run's bindings ("": there is
    none).
    """

    text: str
    references: tuple[str, ...] = ()
    readable: str = ""


class SessionRequest(Struct, frozen=True):
    """One attempt at a `session`, a `resume`, or an agent call of VVM (`call`), before the message is assembled.

    - `task`, `system`: the texts, interpolated
    - `context`: None if the program has no context, empty for `context: []`
    - `timeout`: in seconds
    - `output`: the JSON Schema of the answer; None: any text. `correction` describes the problem of the last answer;
      `wrong` has each unfit answer of an earlier attempt with its problem
    - for a call: `given` (None: an empty input), `prelude` (the contents of the agent's memory) and `settings`, the
      agent's configuration without the known keys. A call has no text that orients a session
    - `tools`: the names of the user's own tools: `weather` (a server), `weather.forecast`, `word_count` (a function);
      `bare`: the session gets no other tools (`tools: none`)
    - `elsewhere`: the program was fetched
    - `filed`: the runtime keeps the answer of this call in a file, even if `target` is None because the reply is the
      answer
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
    target: AnswerFile | None = None
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
    """One call of a tool by a session, as shown in its trace, without volatile data.

    `summary` shows the request on one line (`src/main.py`, `make test`); `detail` has the beginning of the result, or
    the reason of a refusal.
    """

    tool: str
    summary: str
    outcome: Literal["ok", "refused", "failed"] = "ok"
    detail: str = ""


class FileRead(Struct, frozen=True):
    """A workspace file that a session read, and the digest of its contents."""

    path: str
    sha256: str


class FileWrite(Struct, frozen=True):
    """A file that a session wrote: the path, relative to its workspace if inside it, and the text before (None: there
    was no file) and after (None: removed, or not a text)."""

    path: str
    before: str | None
    after: str | None


class Usage(Struct, frozen=True):
    """The consumption of a session or a judgement: requests to the model, tokens in and out, cost in US dollars if
    known. `counted` is False if the provider did not report tokens. `tokens_cached` of the tokens in came from the
    server's cache. A replayed answer consumes nothing."""

    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None
    counted: bool = True
    tokens_cached: int = 0


def reported(given: object) -> Usage | None:
    """Return the usage in the details of a judgement, which may be plain data; None if there is none."""
    if isinstance(given, Usage):
        return given
    if not isinstance(given, dict):
        return None
    known = {name: given[name] for name in Usage.__struct_fields__ if name in given}
    return Usage(**known)


class SessionResult(Struct, frozen=True, omit_defaults=True):
    """A session's answer. `text` is None if the session has written its binding itself.

    - `origin`: the kind of author: `model`, `agent` (a CLI agent), `human`, `authored` (an example written by hand),
      `scripted`, `dry-run`; the same when the answer is replayed
    - `trace`: the calls of tools, in order
    - `memory_after`, `segment`: the texts of a persistent agent's two files, if the provider knows them (None: they are
      not written yet)
    - `writes`: the other files that the session wrote with our tools; `reads`: the workspace files that it read
    - `usage`, `replayed`, `details` (resolved model, provider's facts, date): volatile, for metadata and trace only
    - `reply`: the reply of a call that wrote its answer to a file; None: the reply is the answer
    - `answer_file`: in journals, the name of the file with a call's answer, and its SHA-256; `patches` are then the
      patches of its memory
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
    """Visible progress of a session: a piece of its text, a complete note, or a tool that it has called.

    A session that starts its text again (after a tool call) sends a piece that begins with a blank line. `seconds` is
    the duration of the call of a tool: volatile, 0 if replayed.
    """

    kind: Literal["text", "note", "tool"]
    text: str
    tool: ToolUse | None = None
    seconds: float = 0.0


class Sessions(Protocol):
    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        """Run one attempt. Raises `ProviderError` (with `retryable`). Must honour cancellation; the machine enforces
        `request.timeout`."""


# ---------------------------------------------------------------- memories of digest and ledger

MemoryScope = Literal["project", "user", "path"]
MemoryMode = Literal["continue", "dry_run"]


class MemoryBinding(Struct, frozen=True):
    """The identity of the memory that an agent call uses (docs/reference/vvm.md 6.6), instead of the agent's name.

    `name` is the escaped key, the name of its directory.
    """

    scope: MemoryScope
    key: str
    name: str
    path: str | None = None


class MemoryRequest(Struct, frozen=True):
    """Opens the memory of an agent call, or applies an answer's patches to it (`what`)."""

    key: str
    what: Literal["open", "keep"]
    at: str


class OpenMemory(Protocol):
    """The memory of one agent call, locked until `close`."""

    @property
    def prelude(self) -> str:
        """The text before the task."""

    async def keep(self, patches: Sequence[str]) -> str | None:
        """Apply the patches of an answer. Returns why they are discarded, in a word or two; None if they are kept, or
        there are none. Never raises an error because of a patch or the disk."""

    def close(self) -> None:
        """Unlock it. A second call does nothing."""


class Memories(Protocol):
    """The memories of agents as digest and ledger."""

    async def open(self, binding: MemoryBinding, mode: MemoryMode) -> OpenMemory:
        """Wait for the memory, lock and read it. Raises `MemoryLocked` if another process keeps it, and `ProviderError`
        if it cannot be used. `dry_run` locks it only for reading, and keeps nothing."""

    def prelude(self, binding: MemoryBinding, mode: MemoryMode) -> str:
        """Return the text that a call would get now, without locking or changing anything. Raises `ProviderError`."""


class Answers(Protocol):
    """The files for answers of agent calls, if calls return references (docs/reference/vvm.md 7)."""

    @property
    def readable(self) -> str:
        """The directory of this run's bindings, as sessions see it."""

    def target(self, number: int) -> AnswerFile:
        """Return the file of a call: `b000001` and its place."""

    def clear(self, target: AnswerFile) -> None:
        """Remove what an earlier attempt has left. Raises `StateError`."""

    def read(self, target: AnswerFile) -> str | None:
        """Return the text that the session has written; None if the file is missing or a link. Raises `StateError` if
        it is too large."""

    def write(self, target: AnswerFile, text: str) -> None:
        """Write this text to the file. Raises `StateError`."""

    def answered(self, name: str | None, agent: str, target: AnswerFile, summary: str) -> str:
        """Note a successful call, and return its name in the index: `name`, or a generated one for a call whose result
        is not bound."""

    def failed(self, name: str | None, agent: str, target: AnswerFile, kind: str) -> str:
        """Note a failed call, and return its name in the index."""


# ---------------------------------------------------------------- judge


LAST_RESULT = "the last result"
"""The name of an unnamed value in messages to a judge; no program can use it."""


class JudgeRequest(Struct, frozen=True):
    """A question to the judge with its context (openprose.md 3.4).

    - `bindings`: every visible name with its value; if the question names none, `LAST_RESULT` is the value of a newer
      session or command without a name
    - `text`: the question with the values inserted; `inserted`: these values by their placeholders (`{draft}`);
      `written`: the question with the placeholders. A model is asked that, and gets the values as material, so that a
      value cannot act as a question
    - `subject`: set for a criterion of VVM (docs/reference/vvm.md 4.6). The judge sees only this value, as text
    - `further`: the questions that follow with no action in between; the judge may answer them together with this one.
      A further question is `conditional` if it is asked only depending on the answers before it
    - `by_rules`: only rules may answer it; otherwise the answer is uncertain
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
        """The question without text written by a model or a command."""
        return self.written or self.text


class Verdict(Struct, frozen=True, omit_defaults=True):
    """`answer` None is "uncertain"; `no_progress` ends a loop. `by` (`rules`, `scripted`, `model`, `agent`, `human`,
    `authored`, `dry-run`) and `reason` are kept in replays; `details` is volatile."""

    answer: bool | None
    by: str
    reason: str = ""
    no_progress: bool = False
    details: Mapping[str, object] = struct_field(default_factory=dict)


class Pick(Struct, frozen=True, omit_defaults=True):
    """The label that `choose` picked, with its author and reason. An unknown label makes the machine ask once more."""

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
    """A question that a program may ask the judge, known before it runs: its place, its text as written, a sample with
    numbers for inserted values, and whether it is a `choice`. A `criterion` is a VVM question about a single value."""

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
    """A `Judge` around another one. Subclasses implement `ask`, which gets each question with its call of a judge."""

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
    """Words the text of an `input` with a marker for the person (A49)."""

    async def phrase(self, request: JudgeRequest) -> Finding:
        """Return a `question` and its `options`, possibly none. If it raises `ProseError` or `TimeoutError`, the text
        is shown as written."""


class LiveJudge(Judge, Phrases, Protocol):
    """A model or an agent."""


class Races(Protocol):
    """The recorded winners of `parallel` constructs that don't wait for all branches (`first`, `any`; sessions.md 4.2).

    A race is identified by its execution path and its text. It is recorded only if sessions took part in it, so that a
    replay, in which every session answers immediately, ends the same way.
    """

    def recorded(self, at: str, text: str) -> tuple[int, ...] | None:
        """Return the branches that ended before the race was decided, in that order; None: let the branches race."""

    async def ended(self, at: str, text: str, branches: tuple[int, ...]) -> None:
        """Record the end of a race: these branches ended, in this order; the last one decided it."""


# ---------------------------------------------------------------- user and gates


class Question(Struct, frozen=True):
    """An `input` (openprose.md 6.3): the name that it binds and the text to show. With `phrase` a model may word it
    first; the journal's request does not include that."""

    name: str
    prompt: str
    at: str = ""
    phrase: JudgeRequest | None = None


class User(Protocol):
    async def ask(self, question: Question) -> str:
        """Return the person's answer. Raises `NoPerson`. Questions of parallel branches are asked one at a time."""


class GateRequest(Struct, frozen=True):
    """A gate that opens (openprose.md 5.8, 5.9): record id, gate name, evaluated properties; `timeout` in seconds. In
    an imported program the gate's name begins with the module: `deploy:release`."""

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
    """The end of a gate record. `reason` is set by closing: `cancelled`, `interrupted`, `nobody`. `source` is the
    channel: `cell`, `terminal`, `option`, `cli`, `sql`, `file`."""

    status: Literal["approved", "rejected", "timeout"]
    by: str
    comment: str = ""
    reason: str | None = None
    source: str | None = None

    @property
    def decided_by(self) -> str:
        """The author of the decision and the channel, for people. A file is never called a user."""
        ways = {
            "cli": f"{self.by} (command line)",
            "sql": f"{self.by} (SQL)",
            "file": f"a decision file in the name of {self.by}",
        }
        return ways.get(self.source or "", self.by)


class Gates(Protocol):
    async def decide(self, request: GateRequest) -> GateDecision:
        """Write the record; ask, wait or deny, depending on the mode; return the decision that won.

        If the call is cancelled, the record is closed first (`rejected` by `system`, reason `cancelled`).
        """

    def replayed(self, request: GateRequest, decision: GateDecision) -> None:
        """Note that the journal has answered this request: a decision supplied for it in advance is used up."""


# ---------------------------------------------------------------- programs


class LoadRequest(Struct, frozen=True):
    """An import: the path as written, and the source that contains it.

    `texts` has the recorded texts of a resumed run by address; nothing else is read then.
    """

    path: str
    importer: Source
    at: str
    texts: Mapping[str, str] | None = None


class LoadedProgram(Struct, frozen=True):
    """A loaded import: a checked tree of the importing language, its source, and the two parts of its directory's name
    (docs/reference/openprose.md 6.5). A fetched program has a `url` and a `digest` (SHA-256 of the text as served);
    `texts` are the sources that were read for it, by address."""

    program: Any
    source: Source
    handle: str
    slug: str
    url: str = ""
    digest: str = ""
    texts: Mapping[str, str] = struct_field(default_factory=dict)


class FoundRun(Struct, frozen=True):
    """A completed run that a program uses: its value, and notes for the person."""

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
    """A value to store. `source` is the text of the statement that made it; `label` belongs to a labelled session."""

    key: Key
    kind: Literal["input", "output", "let", "const"]
    value: Value
    source: str
    label: str | None = None


class Store(Protocol):
    """Keeps the bindings of a run. `put` and `read` are synchronous and cheap: writing may be deferred to `flush`,
    which the machine calls before anything outside could read, and at the end of each cell or run.

    `chain` names the import directories around this store, empty for the run itself."""

    @property
    def chain(self) -> tuple[str, ...]: ...

    @property
    def by_value(self) -> bool:
        """Whether sessions cannot read the stored values, so that context is passed by value (7.6)."""

    @property
    def in_files(self) -> bool:
        """Whether `location` names a file, which any tool can read, instead of a row of a database."""

    @property
    def lost(self) -> str | None:
        """Why values can only be kept in memory, in a sentence for people; None normally (E219)."""

    def put(self, binding: Binding) -> None: ...

    def read(self, key: Key) -> str:
        """Return the value of a binding as text. Raises `StateError` if it is missing (the machine reports E218)."""

    def watch(self, key: Key) -> Callable[[], bool]:
        """Return a function that reports whether the session has written the binding itself since this call.

        It always returns False if sessions cannot write (`target` is None)."""

    def location(self, key: Key, within: tuple[str, ...] = ()) -> str:
        """Return the location given to a session for reading the binding (4.3): `.prose/runs/<run>/bindings/plan.md`,
        or the row of a table. `within` are names of imported programs' calls below this store, which need not exist."""

    def target(self, binding: Binding) -> AnswerFile | None:
        """Return the file to which a session writes the binding, and its header; None if its reply is the answer."""

    def memory(self, agent: str, persist: str) -> str:
        """Return the memory directory of a persistent agent (4.4); `persist` is `true`, `project`, `user`, a path."""

    def has_memory(self, agent: str, persist: str) -> bool: ...

    def nested(self, handle: str, slug: str, source: str, number: int = 1) -> Store:
        """Return the store of an imported program's call (`imports/{handle}--{slug}[--number]`), and keep its
        source."""

    async def flush(self) -> None:
        """Write everything put so far to the disk. Raises `StateError` that names the values that failed."""


# ---------------------------------------------------------------- time


class Wait(Struct, frozen=True):
    """A branch waits without a request: before a retry for `seconds`, or, after a long computation, for the turns of
    other branches."""

    why: Literal["retry", "turn"]
    at: str
    seconds: float = 0.0


class Clock(Protocol):
    """The only source of time for the machine and the gates; tests supply their own."""

    def now(self) -> datetime:
        """Return the wall clock time in UTC."""

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class Overrides(Struct, frozen=True):
    """Ports that Python code supplies for a run, instead of those chosen by its settings.

    `judge` decides what no rule decides. A run with its own `store` is kept only there: it has no directory and no
    journal.
    """

    sessions: Sessions | None = None
    judge: Judge | None = None
    store: Store | None = None


CONFIGURED: Final = Overrides()
"""No overridden ports: the settings choose them all."""


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
