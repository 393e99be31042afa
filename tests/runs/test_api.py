"""The Python API (docs/reference/python.md)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from waiting import PATIENCE, appears

from prose_kernel.errors import CompileError, InputError, ProviderError, RunError, UsageError
from prose_kernel.judging.python_function import Decision, JudgeFunction
from prose_kernel.models.providers.python_function import Prompt
from prose_kernel.runs import api
from prose_kernel.runs.workspace import Workspace
from prose_kernel.runtime.asker import Unattended
from prose_kernel.runtime.events import CommandFinished, CommandStarted, Event, RunEnded
from prose_kernel.runtime.ports import Binding
from prose_kernel.storage.journal_reading import is_written
from prose_kernel.storage.stores import MemoryStore

MEMORY = {"state": "in-context"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def echo(prompt: Prompt) -> str:
    return f"<{prompt.task}>"


# ---------------------------------------------------------------- run


def test_a_result_has_outputs_bindings_and_usage() -> None:
    program = 'input who: "Who?"\nlet line = exec "echo 7"\nlet answer = session "Greet {who}"\noutput both = "{line}{answer}"'
    result = api.run(program, {"who": "Ann"}, provider=echo)
    assert result.status == "completed"
    assert result.outputs == {"both": "7<Greet Ann>"}
    assert result.bindings == {"who": "Ann", "line": "7\n", "answer": "<Greet Ann>", "both": "7<Greet Ann>"}
    assert (result.usage.sessions, result.usage.requests, result.usage.cost) == (1, 0, 0)
    assert result.directory is not None
    assert result.directory.name == result.run_id
    assert (result.directory / "bindings").is_dir()


def test_a_run_in_memory_leaves_no_files(tmp_path: Path) -> None:
    result = api.run("let n = 1 + 1", settings=MEMORY)
    assert (result.value, result.run_id, result.directory) == (2, None, None)
    assert list(tmp_path.iterdir()) == []


def test_inputs_and_values_may_be_data() -> None:
    result = api.run('input rows: "Rows?"\nlet first = rows[0].n\nlet all = [first, true, null]', {"rows": [{"n": 3}]})
    assert result.bindings["all"] == [3, True, None]


def test_errors_have_the_name_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "flow.prose").write_text('let a = 1\nthrow "no"\n')
    result = api.run(Path("flow.prose"))
    error = result.error
    assert isinstance(error, RunError)
    assert (result.status, error.code, error.message) == ("failed", "E207", "no")
    assert error.location is not None
    assert (error.location.source, error.location.line, error.location.column) == ("flow.prose", 2, 1)
    assert result.bindings == {"a": 1}
    with pytest.raises(RunError):
        result.raise_for_error()


def test_a_vvm_file_runs(tmp_path: Path) -> None:
    (tmp_path / "flow.vvm").write_text("x = 1 + 2\nexport x\n")
    assert api.run(Path("flow.vvm")).outputs == {"x": 3}


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: api.run("let = 1"), CompileError, "="),
        (lambda: api.run("flow.prose"), UsageError, "text"),
        (lambda: api.run(Path("missing.prose")), UsageError, "missing.prose"),
        (lambda: api.run("let a = 1", {"b": "1"}), UsageError, "b"),
        (lambda: api.run("let a = 1", gates={"b": True}), UsageError, "gate b: the program has no such gate"),
        (lambda: api.run("let a = 1", settings={"provder": "human"}), UsageError, "provder"),
        (lambda: api.run("let a = 1", settings={"provider": "nonsense"}), UsageError, "nonsense"),
        (lambda: api.compile("x", language="cobol"), UsageError, "cobol"),
        (lambda: api.run("let a = 1", providr=echo), TypeError, "providr"),
    ],
)
def test_mistakes_of_the_caller_raise_before_anything_runs(
    call: Callable[[], object], kind: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=message):
        call()
    assert not (tmp_path / ".prose").exists()


def test_questions_without_an_asker_are_errors() -> None:
    error = api.run('input a: "A?"').error
    assert isinstance(error, InputError)
    assert error.no_answer


def test_gates_are_decided_in_advance() -> None:
    program = 'gate deploy:\n  prompt: "Deploy?"\nlet done = "yes"'
    assert api.run(program, gates={"deploy": True}).bindings["done"] == "yes"
    assert api.run(program, gates={"deploy": False}).error is not None


@pytest.mark.parametrize("decision", ["no", "reject", "approve", 1, None, {"decision": "reject"}])
def test_only_true_and_false_decide_a_gate(decision: object) -> None:
    with pytest.raises(UsageError, match="`gates`: the decision about g is True or False, not "):
        api.run('gate g:\n  prompt: "?"', gates={"g": decision})  # type: ignore[dict-item]


CYCLE: list[object] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": [1]}, "argument inputs: values by name, not [1]"),
        ({"inputs": {1: "x"}}, "argument inputs: values by name, not {1: 'x'}"),
        ({"inputs": {"a": CYCLE}}, "input a nests more than 500 levels deep"),
        ({"inputs": {"a": b"x"}}, "input a: text, or data for JSON, not b'x'"),
        ({"inputs": {"a": [{"b": float("nan")}]}}, "input a: text, or data for JSON, not nan"),
        ({"inputs": {"a": {(1, 2): 3}}}, "input a: text, or data for JSON, not (1, 2)"),
        ({"inputs": {"a": object()}}, "input a: text, or data for JSON, not <object object at "),
        ({"settings": [1]}, "argument settings: values by name, or `Settings`, not [1]"),
        ({"settings": {"provider": 3}}, "setting provider: a text, not 3"),
        ({"asker": 3}, "argument asker: an object like `Asker`, not 3"),
        ({"provider": "nope"}, "argument provider: a function (models are chosen by `settings`), not 'nope'"),
        ({"judge": 3}, "argument judge: a function"),
        ({"store": 3}, "argument store: an object like `MemoryStore()`, not 3"),
        ({"store": MemoryStore}, "argument store: an object like `MemoryStore()`, not <class"),
        ({"listener": 3}, "argument listener: a function, not 3"),
        ({"gates": ["a"]}, "argument gates: decisions by name, not ['a']"),
        ({"cwd": "a\0b"}, "argument cwd: an existing directory, not 'a\\x00b'"),
        ({"cwd": "absent/directory"}, "argument cwd: an existing directory, not 'absent/directory'"),
        ({"cwd": "x" * 300}, "argument cwd: an existing directory"),
    ],
)
def test_invalid_arguments_are_errors(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    for start in (partial(api.run, 'input a: "A?"'), api.Session):
        with pytest.raises(UsageError) as wrong:
            start(**arguments)
        assert str(wrong.value).startswith(message)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("program", [None, 3, Path("a\0b.prose")])
def test_a_program_is_a_text_a_path_or_compiled(program: Any) -> None:
    for start in (api.run, api.compile, api.stream):
        with pytest.raises(UsageError, match="argument program: a text, the `Path` of a file, or a compiled program"):
            start(program)


def test_a_compiled_program_runs_again() -> None:
    program = api.compile('input n: "N?"\nif n > 2:\n  exec "true"\nlet m = n')
    assert (program.inputs, program.language, program.warnings) == (("n",), "openprose", ())
    assert [api.run(program, {"n": n}).bindings["m"] for n in ("1", "2")] == ["1", "2"]


# ---------------------------------------------------------------- functions instead of models


def test_a_provider_gets_the_message_and_returns_data() -> None:
    seen: list[Prompt] = []

    async def classify(prompt: Prompt) -> object:
        seen.append(prompt)
        return {"kind": "bug"}

    program = (
        'agent a:\n  model: opus\n  prompt: "Be brief"\nlet text = "crash"\n'
        'let c = session: a\n  prompt: "Classify"\n  context: text\n  output:\n    kind: "bug" or "question"\n'
        "let k = c.kind"
    )
    assert api.run(program, provider=classify).bindings["k"] == "bug"
    (prompt,) = seen
    assert (prompt.task, prompt.agent, prompt.model, prompt.system) == ("Classify", "a", "opus", "Be brief")
    assert "crash" in prompt.message
    assert prompt.schema is not None
    assert prompt.schema["required"] == ["kind"]


def test_a_failing_provider_is_a_failed_attempt() -> None:
    calls: list[int] = []

    def flaky(prompt: Prompt) -> str:
        calls.append(prompt.attempt)
        if prompt.attempt < 2:
            raise ConnectionError("down")
        return "up"

    program = 'let a = session "x"\n  retry: 3\n  backoff: none'
    assert api.run(program, provider=flaky).bindings["a"] == "up"
    assert calls == [0, 1, 2]

    def refuses(prompt: Prompt) -> str:
        raise ProviderError("never", retryable=False)

    error = api.run(program, provider=refuses).error
    assert isinstance(error, RunError)
    assert (error.code, error.message) == ("E201", "never")
    assert "division" in str(api.run('session "x"', provider=lambda prompt: 1 // 0).error)


def test_a_race_runs_without_recordings() -> None:
    program = 'parallel ("first"):\n  a = exec "echo 1"\n  b = exec "sleep 30"\noutput won = a\n'
    assert api.run(program, provider=lambda prompt: "ok").outputs == {"won": "1\n"}


def test_the_hint_completes_a_part_of_a_setting() -> None:
    with pytest.raises(UsageError) as wrong:
        api.run('exec "true"', settings={"parallel": 2})
    assert wrong.value.hint == "did you mean `max_parallel`?"


def test_a_judge_decides_conditions_without_a_rule() -> None:
    asked: list[Decision] = []

    def judge(decision: Decision) -> bool | str | None:
        asked.append(decision)
        return decision.options[1] if decision.options else "fine" in str(decision.values["draft"])

    program = (
        'let draft = "all fine"\nlet n = 3\n'
        "if **the draft reads well**:\n  n = 4\n"
        "if **n is above 3**:\n  n = 5\n"
        'choice **the tone of the draft**:\n  option "dry":\n    n = 6\n  option "warm":\n    n = 7'
    )
    assert api.run(program, judge=judge).bindings["n"] == 7
    assert [(one.text, one.options) for one in asked] == [
        ("the draft reads well", ()),
        ("the tone of the draft", ("dry", "warm")),
    ]


@pytest.mark.parametrize("judge", [lambda decision: "maybe", lambda decision: 1 // 0])
def test_a_judge_that_cannot_decide_is_an_error(judge: JudgeFunction) -> None:
    error = api.run("if **this reads well**:\n  throw", judge=judge).error
    assert isinstance(error, RunError)
    assert error.code == "E211"


def test_a_store_of_the_caller_gets_each_binding(tmp_path: Path) -> None:
    class RecordingStore(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def put(self, binding: Binding) -> None:
            self.names.append(binding.key.name)
            super().put(binding)

    store = RecordingStore()
    result = api.run('let a = 1\nlet b = session "x"', provider=echo, store=store)
    assert (store.names, result.run_id) == (["a", "b"], None)
    assert not (tmp_path / ".prose" / "runs").exists()


def raising(error: BaseException, *, within_loop: bool = False) -> Callable[[object], Any]:
    def plain(_: object) -> object:
        raise error

    async def coroutine(_: object) -> object:
        raise error

    return coroutine if within_loop else plain


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (raising(SystemExit(3)), "SystemExit: 3"),
        (raising(SystemExit(3), within_loop=True), "SystemExit: 3"),
        (raising(KeyboardInterrupt()), "KeyboardInterrupt"),
        (raising(StopIteration()), "StopIteration"),
    ],
)
def test_exits_of_functions_are_failures(function: Callable[[object], Any], message: str) -> None:
    asked = api.run('session "x"', settings=MEMORY, provider=function).error
    assert str(asked).endswith(f"the provider function raised {message}")
    judged = api.run("if **this reads well**:\n  throw", settings=MEMORY, judge=function).error
    assert str(judged).endswith(f"the judge function raised {message}")


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_exits_of_askers_and_listeners_reach_the_caller(kind: type[BaseException]) -> None:
    class InterruptingAsker(Unattended):
        available = True

        async def ask(self, prompt: str) -> str:
            raise kind

    with pytest.raises(kind):
        api.run('input a: "A?"', settings=MEMORY, asker=InterruptingAsker())
    with api.Session(settings=MEMORY, listener=raising(kind())) as session:
        for _ in range(2):
            with pytest.raises(kind):
                session.cell("let a = 1")


# ---------------------------------------------------------------- cells


def test_cells_share_names_and_survive_errors() -> None:
    with api.Session(settings=MEMORY, provider=echo) as session:
        assert session.cell("let a = 20").status == "completed"
        assert session.cell('let b = a + 1\nthrow "x"').status == "failed"
        with pytest.raises(CompileError):
            session.cell("let =")
        assert session.cell("let c = a + b").value == 41
        assert session.cell("y = a", language="vvm").status == "completed"
        assert dict(session.bindings) == {"a": 20, "b": 21, "c": 41, "y": 20}


def test_cells_of_several_threads_run_one_after_the_other() -> None:
    with api.Session(settings=MEMORY) as session:
        session.cell("let n = 0")
        threads = [threading.Thread(target=session.cell, args=("n = n + 1",)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert session.bindings["n"] == 8


def test_threads_run_programs_at_the_same_time() -> None:
    """Names of a function stay local, however often Python switches between the threads."""
    numbers = range(20)
    functions = [f"def f{n}(a):\n  b{n} = a + {n}\n  if b{n} > 9:\n    b{n} = 9\n  return b{n}\n" for n in numbers]
    program = api.compile("".join([*functions, *(f"r{n} = f{n}(1)\nexport r{n}\n" for n in numbers)]), language="vvm")
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            results = list(threads.map(api.run, [program] * 8))
    finally:
        sys.setswitchinterval(interval)
    assert [result.status for result in results] == ["completed"] * 8, results[0].error
    assert all(result.outputs == {f"r{n}": min(n + 1, 9) for n in numbers} for result in results)


def test_another_thread_can_interrupt_a_cell() -> None:
    started = threading.Event()

    def listen(event: Event) -> None:
        if isinstance(event, CommandStarted):
            started.set()

    with api.Session(settings=MEMORY, listener=listen) as session:
        interrupting = threading.Thread(target=lambda: (started.wait(), session.interrupt()))
        interrupting.start()
        assert session.cell('let a = 1\nexec "sleep 60"').status == "interrupted"
        interrupting.join()
        assert session.cell("let b = a").value == 1


def test_a_cell_can_be_interrupted_while_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    with api.Session(settings=MEMORY) as session:
        compile_text = Workspace.compile

        def compile_and_interrupt(self: Workspace, *arguments: Any) -> Any:
            session.interrupt()
            return compile_text(self, *arguments)

        monkeypatch.setattr(Workspace, "compile", compile_and_interrupt)
        assert session.cell("let a = 1").status == "interrupted"
        monkeypatch.undo()
        assert session.cell("let a = 2").value == 2


async def test_a_stream_can_be_interrupted_before_its_program_begins() -> None:
    async with api.stream("let a = 1", settings=MEMORY) as running:
        running.interrupt()
        assert [event async for event in running] == []
    assert running.result is not None
    assert running.result.status == "interrupted"


def test_control_c_ends_the_program_first(tmp_path: Path) -> None:
    code = (
        "from prose_kernel.runs import api\n"
        "try:\n    api.run('exec \"echo $$ >pid; kill -INT $PPID; exec sleep 60\"')\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "interrupted\n", done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


# ---------------------------------------------------------------- in a running loop


def test_functions_that_never_return_keep_neither_the_run_nor_the_process(tmp_path: Path) -> None:
    code = (
        "import threading\nfrom prose_kernel.runs import api\nnever = threading.Event()\n"
        "def provider(prompt): return 'fine' if prompt.task == 'ask' else never.wait()\n"
        "items = [str(n) for n in range(40)]\n"
        'text = f\'parallel for i in [{chr(44).join(items)}] (on-fail: "ignore"):\\n  session "wait {{i}}"\\n    timeout: 100ms\\n\'\n'
        "print(api.run(text + 'output said = session \"ask\"\\n', provider=provider).outputs)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout, ran.stderr) == ("{'said': 'fine'}\n", "")


async def test_run_works_inside_a_running_loop() -> None:
    assert api.run("let a = 1", settings=MEMORY).value == 1


async def test_cancelling_ends_commands(tmp_path: Path) -> None:
    task = asyncio.create_task(api.arun('exec "echo >started; sleep 60 || echo >ended; echo >survived"'))
    await appears(tmp_path / "started")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not (tmp_path / "survived").exists()


async def test_a_second_cancellation_waits_for_the_end_of_the_program_too(tmp_path: Path) -> None:
    program = """try:
  exec "echo >started; sleep 60"
finally:
  exec "echo >cleaning; sleep 60"
"""
    task = asyncio.create_task(api.arun(program))
    await appears(tmp_path / "started")
    task.cancel()
    await appears(tmp_path / "cleaning")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (journal,) = tmp_path.glob(".prose/runs/*/journal.jsonl")
    kinds = [json.loads(line[9:])["k"] for line in journal.read_text().splitlines()]
    assert kinds[-3:] == ["answered", "ended", "finished"]


async def test_runs_are_concurrent() -> None:
    both = asyncio.Barrier(2)

    async def meet(prompt: Prompt) -> str:
        await both.wait()
        return prompt.task

    results = await asyncio.gather(*(api.arun(f'session "{n}"', settings=MEMORY, provider=meet) for n in (1, 2)))
    assert [result.value for result in results] == ["1", "2"]


async def test_cells_of_several_tasks_run_one_after_the_other() -> None:
    async with api.AsyncSession() as session:
        cells = [session.cell(f'let {name} = exec "echo {name}"') for name in "ab"]
        results = await asyncio.gather(*cells)
        assert [result.value for result in results] == ["a\n", "b\n"]


async def test_closing_a_session_ends_the_cell_that_another_task_runs(tmp_path: Path) -> None:
    session = api.AsyncSession()
    cell = asyncio.create_task(session.cell('exec "echo >started; sleep 60"'))
    await appears(tmp_path / "started")
    await session.close()
    assert (await cell).status == "interrupted"
    (journal,) = tmp_path.glob(".prose/runs/*/journal.jsonl")
    kinds = [json.loads(line[9:])["k"] for line in journal.read_text().splitlines()]
    assert (kinds[-2:], is_written(journal)) == (["ended", "finished"], False)


async def test_events_arrive_while_the_program_runs() -> None:
    async with api.stream('exec "echo 1"\nlet b = exec "echo 2"', settings=MEMORY) as running:
        events = [event async for event in running]
    assert [event.result.stdout for event in events if isinstance(event, CommandFinished)] == ["1\n", "2\n"]
    assert isinstance(events[-1], RunEnded)
    assert running.result is not None
    assert running.result.bindings == {"b": "2\n"}


async def test_a_stream_needs_async_with() -> None:
    running = api.stream("let a = 1", settings=MEMORY)
    with pytest.raises(UsageError, match="`async with`"):
        await asyncio.wait_for(anext(running), timeout=PATIENCE)


async def test_leaving_the_stream_ends_the_program() -> None:
    async with api.stream('exec "sleep 60"', settings=MEMORY) as running:
        async for event in running:
            if isinstance(event, CommandStarted):
                break
    assert running.result is None


async def test_cells_run_in_the_loop_of_the_caller() -> None:
    async with api.AsyncSession({"n": 2}, settings=MEMORY) as session:
        assert (await session.cell('input n: "N?"\nlet m = n + 1')).value == 3
