"""The acceptance statements of exec-and-tasks.md part 3; each has one or more tests with its number."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from processes.exec_tool.conftest import PYTHON, SYSTEM, Bench, ended, program, result
from waiting import PATIENCE, appears, processes

from prose_kernel.processes.engine import Engine
from prose_kernel.processes.exec_tool.audit import AuditLog
from prose_kernel.processes.exec_tool.capabilities import CapabilityError, CapabilityRecord, CapabilityStore, FsGrant
from prose_kernel.processes.exec_tool.checks import InvalidArguments, parse
from prose_kernel.processes.exec_tool.tool import AgentPrograms, Dispatcher, ExecCall, ExecTool, Handler, register_exec
from prose_kernel.processes.options import ExecOptions
from prose_kernel.runtime.services import ExecCaller

# ---------------------------------------------------------------- registration


def test_acceptance_1_nothing_is_registered_until_one_explicit_call(tmp_path: Path) -> None:
    engine = Engine(state_dir=tmp_path)
    handlers: dict[str, Handler] = {}
    tool = ExecTool(engine, ExecOptions(), AuditLog())
    assert handlers == {}
    assert register_exec(handlers, tool) == "Exec"
    assert register_exec(handlers, tool) == "Exec"
    assert handlers == {"Exec": tool}
    engine.close()


async def test_acceptance_1_both_opt_ins_are_needed(tmp_path: Path) -> None:
    engine = Engine(state_dir=tmp_path / "state")
    granted = ExecCaller("a", str(tmp_path), {"execute": ("/bin/echo",), "read": "workspace"})
    nothing = ExecCaller("b", str(tmp_path), {"read": "workspace"})
    off = AgentPrograms(engine, ExecOptions(), AuditLog())
    on = AgentPrograms(engine, ExecOptions(enabled=True), AuditLog())
    assert (off.offers(granted), on.offers(nothing), on.offers(granted)) == (False, False, True)
    assert (await off.call(granted, "1", {"argv": ["/bin/echo"]})).error == "tool_not_found"
    assert (await on.call(nothing, "2", {"argv": ["/bin/echo"]})).error == "permission_denied"
    assert (await on.call(granted, "3", {"argv": ["/bin/echo", "hi"]})).result["stdout"] == "hi\n"
    engine.close()


def test_acceptance_2_nothing_else_changes_when_it_is_not_registered() -> None:
    code = (
        "import sys; import prose_kernel.processes.shell, prose_kernel.runs.workspace, prose_kernel.notebook.kernel;"
        "print([m for m in sys.modules if 'exec_tool' in m or m.endswith(('.monitor', '.confinement'))])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize("argv", ["/bin/echo hi", [], ["/bin/echo", 3], ["/bin/echo", ""], [""], None, {}, [None]])
async def test_acceptance_3_argv_is_a_list_of_strings_that_are_not_empty(bench: Bench, argv: object) -> None:
    assert (await bench.call({"argv": argv})).error == "invalid_args"


async def test_acceptance_4_argv_0_is_absolute_and_exists(bench: Bench) -> None:
    relative = await bench("echo", "hi")
    assert relative.error == "invalid_args" and "absolute" in relative.message
    assert (await bench("/usr/bin/no-such-program-here")).error == "tool_failed"


@pytest.mark.parametrize(
    ("env", "word"),
    [
        ([], "env"),
        ("A=1", "env"),
        ({"A": 1}, "string"),
        ({"A": None}, "string"),
        ({"_A": "1"}, "reserved"),
        ({"A=B": "1"}, "="),
        ({"": "1"}, "name"),
        ({"A": "x\0y"}, "NUL"),
        ({"A\0": "x"}, "NUL"),
        ({"A": "\ud800"}, "encoded"),
    ],
)
async def test_acceptance_5_env_maps_names_to_strings(bench: Bench, env: object, word: str) -> None:
    outcome = await bench("/usr/bin/env", env=env)
    assert outcome.error == "invalid_args" and word in outcome.message


async def test_acceptance_5_env_absent_means_none(bench: Bench) -> None:
    assert parse({"argv": ["/bin/true"]}, ()).env == {}
    assert parse({"argv": ["/bin/true"], "env": None}, ()).env == {}


def test_acceptance_6_timeout() -> None:
    def timeout(**given: object) -> int:
        return parse({"argv": ["/bin/true"], **given}, ()).timeout_s

    assert timeout() == 60
    assert timeout(timeout_s=30) == 30
    assert timeout(timeout_s=30.7) == 30
    assert (timeout(timeout_s=1), timeout(timeout_s=600)) == (1, 600)
    for wrong in (0, 0.9, 601, 600.5, 600.9, True, float("nan"), float("inf"), "30", -1, None, [1]):
        with pytest.raises(InvalidArguments):
            timeout(timeout_s=wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_output_bytes": 100},
        {"max_output_bytes": 5 * 1024 * 1024},
        {"max_output_bytes": True},
        {"max_output_bytes": 2048.0},
        {"cwd": "here"},
        {"cwd": "/tmp\0"},
        {"cwd": 3},
        {"stream": True},
        {"stdin": "x"},
        {"background": True},
    ],
)
async def test_acceptance_7_the_other_arguments(bench: Bench, wrong: Mapping[str, object]) -> None:
    outcome = await bench.call({"argv": ["/bin/true"], **wrong})
    assert outcome.error == "invalid_args"
    assert bench.events("denied")[-1]["error"] == "invalid_args"


async def test_acceptance_7_characters_that_no_program_could_get(bench: Bench) -> None:
    for item in ("a\0b", "\ud800"):
        assert (await bench("/bin/echo", item)).error == "invalid_args"


# ---------------------------------------------------------------- capabilities


async def test_acceptance_8_without_the_grant_or_without_a_record(bench: Bench) -> None:
    agent = bench.agent(("/", "rw"), tools=("Read",))
    assert (await bench("/bin/echo", "hi", agent=agent)).error == "permission_denied"
    assert (await bench("/bin/echo", "hi", agent="nobody")).error == "permission_denied"


async def test_acceptance_8_an_explicit_record_is_sufficient(bench: Bench) -> None:
    agent = bench.agent(("/", "r"), tools=("*",))
    assert result(await bench("/bin/echo", "hi", agent=agent))["stdout"] == "hi\n"


async def test_acceptance_9_binary_and_directory_are_checked(bench: Bench) -> None:
    here = str(bench.directory)
    assert (await bench("/bin/echo", agent=bench.agent((here, "r")))).error == "fs_denied"
    outcome = await bench("/bin/echo", agent=bench.agent(*SYSTEM), cwd=here)
    assert outcome.error == "fs_denied" and "cwd" in outcome.message


async def test_acceptance_10_traversal_and_links_do_not_lead_out(bench: Bench, tmp_path: Path) -> None:
    evil = program(tmp_path / "evil", "#!/bin/sh\necho evil\n")
    granted = tmp_path / "granted"
    granted.mkdir()
    (granted / "link").symlink_to(evil)
    agent = bench.agent(*SYSTEM, (str(granted), "r"))
    traversal = f"/usr/bin/../..{evil}"
    for path in (traversal, str(granted / "link"), f"{granted}/../evil"):
        outcome = await bench(path, agent=agent, cwd="/usr")
        assert outcome.error == "fs_denied" and "outside" in outcome.message, path
        assert str(evil) not in outcome.message or path != str(granted / "link")
    assert bench.events("denied")[1]["target"] == str(evil)


async def test_acceptance_11_merged_systems_agree_in_both_directions(bench: Bench) -> None:
    if not Path("/bin").is_symlink():
        pytest.skip("/bin is no link here")
    for prefix in ("/bin", "/usr/bin"):
        for path in ("/bin/echo", "/usr/bin/echo"):
            agent = bench.agent((prefix, "r"))
            outcome = await bench(path, "hi", agent=agent, cwd=prefix)
            assert result(outcome)["stdout"] == "hi\n"


async def test_acceptance_12_what_the_agent_may_write_it_cannot_run(bench: Bench, tmp_path: Path) -> None:
    mine = program(tmp_path / "area" / "deep" / "tool", "#!/bin/sh\necho ran\n")
    for prefix in (tmp_path / "area", tmp_path / "area" / "deep", mine):
        agent = bench.agent(*SYSTEM, (str(tmp_path), "r"), (str(prefix), "rw"))
        assert (await bench(str(mine), agent=agent)).error == "fs_denied"
    bench.use(from_writable=True)
    assert result(await bench(str(mine), agent=agent))["stdout"] == "ran\n"


async def test_acceptance_13_an_ungranted_path_reveals_nothing(bench: Bench, tmp_path: Path) -> None:
    granted = tmp_path / "granted"
    granted.mkdir()
    there = program(tmp_path / "secret" / "there", "#!/bin/sh\n")
    (granted / "to-there").symlink_to(there)
    (granted / "to-nothing").symlink_to(tmp_path / "secret" / "nothing")
    agent = bench.agent((str(granted), "r"))

    async def answer(path: object) -> tuple[object, str]:
        outcome = await bench(str(path), agent=agent, cwd=str(granted))
        return outcome.error, outcome.message.replace(str(path), "PATH")

    expected = ("fs_denied", "PATH resolves outside the granted prefixes")
    for path in (there, tmp_path / "secret" / "nothing", tmp_path / "no" / "where", there / "below"):
        assert await answer(path) == expected
    assert await answer(granted / "to-there") == await answer(granted / "to-nothing") == expected
    assert await answer(f"{granted}/none/../../secret/there") == expected
    cwd = [(await bench("/bin/true", agent=bench.agent(*SYSTEM), cwd=str(each))).error for each in (tmp_path, "/nope")]
    assert cwd == ["fs_denied", "fs_denied"]


# ---------------------------------------------------------------- behaviour


async def test_acceptance_14_echo(bench: Bench) -> None:
    answer = result(await bench("/bin/echo", "hello, you"))
    assert list(answer) == [
        "exit_code",
        "stdout",
        "stderr",
        "stdout_truncated",
        "stderr_truncated",
        "duration_s",
        "timed_out",
    ]
    assert (answer["exit_code"], answer["stdout"], answer["stderr"], answer["timed_out"]) == (
        0,
        "hello, you\n",
        "",
        False,
    )


async def test_acceptance_15_shell_characters_are_literal(bench: Bench) -> None:
    hostile = ["; touch x", "&&", "|", "$(touch x)", "`touch x`", "*", "~", "a\nb", ">x", "$HOME", "-n", "\\", "'", '"']
    code = "import sys; sys.stdout.write('\\0'.join(sys.argv[1:]))"
    answer = result(await bench.python(code, *hostile))
    assert str(answer["stdout"]).split("\0") == hostile
    assert list(bench.directory.iterdir()) == []


async def test_acceptance_16_a_useless_path_variable_is_no_obstacle(bench: Bench) -> None:
    bench.environment["PATH"] = "/nowhere"
    assert result(await bench("/bin/echo", "hi"))["stdout"] == "hi\n"


async def test_acceptance_17_a_failing_program_is_a_result(bench: Bench) -> None:
    outcome = await bench("/bin/false")
    assert outcome.ok and result(outcome)["exit_code"] == 1


async def test_acceptance_17_a_signal_is_a_negative_exit_code(bench: Bench) -> None:
    answer = result(await bench.python("import os; os.kill(os.getpid(), 9)"))
    assert answer["exit_code"] == -9 and not answer["timed_out"] and "limit_hit" not in answer


async def test_acceptance_18_the_time_limit(bench: Bench) -> None:
    began = time.monotonic()
    answer = result(await bench("/bin/sleep", "130.181", timeout_s=1))
    assert time.monotonic() - began < PATIENCE
    assert answer["timed_out"] and answer["exit_code"] != 0
    assert processes("sleep 130.181") == []


async def test_acceptance_19_the_environment_is_built_from_nothing(bench: Bench) -> None:
    bench.environment |= {
        "ANTHROPIC_API_KEY": "sk-1",
        "AWS_SECRET_ACCESS_KEY": "2",
        "GITHUB_TOKEN": "3",
        "PROSE_JOB": "4",
        "CC_INTERNAL": "5",
        "MY_OWN": "6",
        "LD_PRELOAD": "/x.so",
    }
    answer = result(await bench("/usr/bin/env", env={"MY_OWN": "mine", "TERM": "vt100"}))
    seen = dict(line.split("=", 1) for line in str(answer["stdout"]).splitlines())
    assert set(seen) == {"PATH", "HOME", "LANG", "LC_ALL", "USER", "TERM", "SHELL", "MY_OWN"}
    assert (seen["MY_OWN"], seen["TERM"]) == ("mine", "vt100")
    assert (seen["PATH"], seen["HOME"]) == ("/usr/local/bin:/usr/bin:/bin", "/tmp")  # A49


async def test_a49_the_environment_may_be_the_kernels(bench: Bench) -> None:
    bench.use(home="inherit")
    bench.environment.update({"HOME": "/usr", "LANG": "de_DE.UTF-8"})
    seen = dict(line.split("=", 1) for line in str(result(await bench("/usr/bin/env"))["stdout"]).splitlines())
    assert (seen["HOME"], seen["LANG"], seen["PATH"]) == ("/usr", "de_DE.UTF-8", bench.environment["PATH"])


async def test_acceptance_19_fallbacks(bench: Bench) -> None:
    bench.environment.clear()
    answer = result(await bench("/usr/bin/env"))
    seen = dict(line.split("=", 1) for line in str(answer["stdout"]).splitlines())
    assert seen["PATH"] == "/usr/local/bin:/usr/bin:/bin"
    assert (seen["LANG"], seen["LC_ALL"], seen["TERM"], seen["SHELL"]) == ("C.UTF-8", "C.UTF-8", "dumb", "/bin/sh")
    assert seen["USER"] and seen["HOME"].startswith("/")


async def test_acceptance_19_a_private_home_is_empty_and_private(bench: Bench) -> None:
    tool = bench.use(home="private")
    agent = bench.agent(*SYSTEM)
    first = str(result(await bench("/usr/bin/printenv", "HOME", agent=agent, cwd="/usr"))["stdout"]).strip()
    again = str(result(await bench("/usr/bin/printenv", "HOME", agent=agent, cwd="/usr"))["stdout"]).strip()
    other = str(
        result(await bench("/usr/bin/printenv", "HOME", agent=bench.agent(*SYSTEM), cwd="/usr"))["stdout"]
    ).strip()
    assert first == again != other
    assert Path(first).stat().st_mode & 0o777 == 0o700 and not any(Path(first).iterdir())
    tool.close()
    assert not Path(first).exists() and not Path(other).exists()


@pytest.mark.parametrize("size", [1023, 1024, 1025, 1024 * 1024])
async def test_acceptance_20_the_head_is_kept(bench: Bench, size: int) -> None:
    code = f"import sys; sys.stdout.write('a' * {size}); sys.stderr.write('b' * {size})"
    answer = result(await bench.python(code, max_output_bytes=1024))
    assert (answer["stdout_truncated"], answer["stderr_truncated"]) == (size > 1024, size > 1024)
    assert (answer["stdout"], answer["stderr"]) == ("a" * min(size, 1024), "b" * min(size, 1024))


async def test_acceptance_20_whole_characters_only(bench: Bench) -> None:
    code = "import sys; sys.stdout.buffer.write(b'x' + '\\U0001f600'.encode() * 400)"
    answer = result(await bench.python(code, max_output_bytes=1024))
    assert answer["stdout"] == "x" + "\U0001f600" * 255 and answer["stdout_truncated"]


async def test_acceptance_21_memory(bench: Bench) -> None:
    code = "x = bytes(700 * 1024 * 1024); print('got it')"  # Python writes no part of it
    answer = result(await bench.python(code))
    assert answer["exit_code"] == 1 and "MemoryError" in str(answer["stderr"])
    bench.use(memory=2 * 1024**3)
    assert result(await bench.python(code))["stdout"] == "got it\n"


async def test_acceptance_21_cpu(bench: Bench) -> None:
    bench.use(cpu_seconds=1)
    answer = result(await bench.python("while True: pass", timeout_s=30))
    assert (answer["exit_code"], answer["limit_hit"], answer["timed_out"]) == (-24, "cpu", False)


async def test_acceptance_21_cpu_limit_ignored_is_a_kill(bench: Bench) -> None:
    bench.use(cpu_seconds=1)
    code = "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    answer = result(await bench.python(code, timeout_s=30))
    assert (answer["exit_code"], answer["timed_out"]) == (-9, False) and "limit_hit" not in answer


async def test_acceptance_21_file_size(bench: Bench) -> None:
    file = bench.directory / "large"
    answer = result(await bench("/bin/dd", "if=/dev/zero", f"of={file}", "bs=1M", "count=100"))
    assert file.stat().st_size == 64 * 1024 * 1024
    assert (answer["exit_code"], answer["limit_hit"]) == (-25, "file_size")


async def test_acceptance_22_the_whole_tree_is_gone(bench: Bench) -> None:
    script = (
        "sleep 62.221 & setsid sleep 62.222 & setsid env -i /bin/sh -c 'trap \"\" TERM; sleep 62.223' & "
        "(setsid /bin/sh -c 'sleep 62.224 & exit' &) ; (trap '' TERM INT HUP; sleep 62.225) & echo started"
    )
    began = time.monotonic()
    answer = result(await bench("/bin/sh", "-c", script))
    assert time.monotonic() - began < PATIENCE
    assert answer["stdout"] == "started\n" and answer["exit_code"] == 0 and not answer["timed_out"]
    assert int(str(answer["background_killed"])) >= 4
    assert processes("sleep 62.22") == []


async def test_acceptance_22_at_the_limit_too(bench: Bench) -> None:
    script = (
        "setsid env -i sleep 63.221 & (trap '' TERM; sleep 63.222) & trap '' TERM; echo x; sleep 63.223; sleep 63.224"
    )
    began = time.monotonic()
    answer = result(await bench("/bin/sh", "-c", script, timeout_s=1))
    assert 1.9 < time.monotonic() - began < PATIENCE
    assert answer["timed_out"] and answer["stdout"] == "x\n"
    assert processes("sleep 63.22") == []


async def test_acceptance_23_stdin_and_directory(bench: Bench) -> None:
    assert result(await bench("/bin/cat"))["stdout"] == ""
    assert result(await bench("/bin/pwd", "-P"))["stdout"] == f"{bench.directory}\n"


async def test_acceptance_25_the_streams_are_apart_and_each_keeps_its_order(bench: Bench) -> None:
    script = "printf 'one\\ntwo\\n'; echo wrong >&2; printf part; sleep 0.1; echo ial; echo again >&2"
    answer = result(await bench("/bin/sh", "-c", script))
    assert (answer["stdout"], answer["stderr"]) == ("one\ntwo\npartial\n", "wrong\nagain\n")


async def test_acceptance_26_what_was_printed_before_the_limit_is_kept(bench: Bench) -> None:
    answer = result(await bench("/bin/sh", "-c", "printf early; sleep 20", timeout_s=1))
    assert answer["timed_out"] and answer["stdout"] == "early"


# ---------------------------------------------------------------- audit, dispatcher, store


async def test_acceptance_27_one_event_before_and_one_after(bench: Bench) -> None:
    outcome = await bench("/bin/echo", "needle", env={"PLAIN": "value-of-env"})
    (event,) = bench.events("dispatched")
    assert (event["tool"], event["call"], event["ok"]) == ("Exec", outcome.call, True)
    assert "needle" in repr(event["args"]) and "value-of-env" not in repr(bench.audit.events)
    assert event["program"] == str(Path("/bin/echo").resolve()) and event["cwd"] == str(bench.directory)
    (end,) = bench.events("finished")
    assert (end["call"], end["ok"], end["exit_code"], end["stdout_bytes"]) == (outcome.call, True, 0, 7)
    assert bench.audit.events.index(event) < bench.audit.events.index(end)


async def test_acceptance_27_a_refused_call_leaves_one_event_with_its_kind(bench: Bench) -> None:
    outcome = await bench("/bin/echo", agent=bench.agent(("/opt", "r")))
    (event,) = bench.events("denied")
    assert (event["call"], event["error"], event["missing"]) == (outcome.call, "fs_denied", "r /bin/echo")
    assert bench.events("dispatched") == []


async def test_acceptance_27_dispatched_is_written_before_the_start(bench: Bench, tmp_path: Path) -> None:
    started = program(tmp_path / "tool", "#!/bin/sh\ntouch ready; while [ ! -e go ]; do sleep 0.01; done\n")
    call = asyncio.ensure_future(bench(str(started)))
    await appears(tmp_path / "ready")
    assert (len(bench.events("dispatched")), bench.events("finished")) == (1, [])
    (tmp_path / "go").touch()
    assert result(await call)["exit_code"] == 0


async def test_acceptance_28_whatever_a_tool_does_the_session_continues(bench: Bench) -> None:
    async def throws(call: ExecCall) -> Mapping[str, object]:
        raise ValueError("the text of the fault")

    async def answers_a_list(call: ExecCall) -> object:
        return ["no object"]

    bench.handlers["Throws"] = throws
    bench.handlers["List"] = answers_a_list
    agent = bench.agent(*SYSTEM, tools=("*",))
    outcomes = [await bench.call({}, agent=agent, tool=tool) for tool in ("Nope", None, "Throws", "List")]
    assert [outcome.error for outcome in outcomes] == ["tool_not_found", "tool_not_found", "tool_failed", "tool_failed"]
    assert "the text of the fault" in outcomes[2].message
    assert (await bench.call([1], agent=agent)).error == "invalid_args"
    assert result(await bench("/bin/echo", "still here", agent=agent, cwd="/usr"))["stdout"] == "still here\n"
    assert [event["error"] for event in bench.events("denied")] == [
        "tool_not_found",
        "tool_not_found",
        "tool_failed",
        "tool_failed",
        "invalid_args",
    ]


async def test_acceptance_28_a_missing_store_refuses(bench: Bench) -> None:
    alone = Dispatcher(bench.handlers, None, bench.audit)
    outcome = await alone.dispatch("anybody", "1", "Exec", {"argv": ["/bin/echo"]})
    assert outcome.error == "permission_denied"


def test_acceptance_29_create_and_read_back() -> None:
    store = CapabilityStore()
    record = CapabilityRecord(frozenset({"Exec"}), (FsGrant("/work", "rw"), FsGrant("/usr", "r")))
    store.create("a", record)
    with pytest.raises(CapabilityError) as again:
        store.create("a", CapabilityRecord())
    assert again.value.kind == "already_exists"
    assert store.find("a") == record
    assert [store.find(agent) for agent in ("nobody", None, 3, "")] == [None] * 4


@pytest.mark.parametrize(
    "record",
    [
        CapabilityRecord(fs_grants=(FsGrant("work", "r"),)),
        CapabilityRecord(fs_grants=(FsGrant("/work", "w"),)),  # type: ignore[arg-type]
        CapabilityRecord(tool_grants=frozenset({""})),
    ],
)
def test_acceptance_29_invalid_grants(record: CapabilityRecord) -> None:
    with pytest.raises(CapabilityError) as refused:
        CapabilityStore().create("a", record)
    assert refused.value.kind == "invalid_grant"


def test_acceptance_29_prefixes_end_at_directories() -> None:
    record = CapabilityRecord(fs_grants=(FsGrant("/agents/alice", "r"), FsGrant("/agents/alice/out", "rw")))
    reach, written = record.reach(), record.reach(writable=True)
    assert reach.covers("/agents/alice") and reach.covers("/agents/alice/x")
    assert not reach.covers("/agents/alicia") and not written.covers("/agents/alice/x")
    assert written.covers("/agents/alice/out/x")
    assert [record.tool(odd) for odd in (None, 3, "", b"x", [])] == [False] * 5


async def test_a_cancelled_call_leaves_nothing(bench: Bench) -> None:
    call = asyncio.ensure_future(bench("/bin/sh", "-c", "setsid sleep 64.1 & touch ready; sleep 64.2"))
    await appears(bench.directory / "ready")
    pids = processes("sleep 64.")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert len(pids) >= 2 and ended(pids, 0)


async def test_an_interrupt_ends_the_program(bench: Bench) -> None:
    call = asyncio.ensure_future(bench("/bin/sh", "-c", "trap '' INT; touch ready; sleep 65.1; sleep 65.1"))
    await appears(bench.directory / "ready")
    bench.engine.interrupt()
    outcome = await call
    assert outcome.error == "tool_failed" and "interrupted" in outcome.message
    assert processes("sleep 65.1") == []


def test_the_python_of_these_tests_is_a_real_file() -> None:
    assert Path(PYTHON).is_file() and not Path(PYTHON).is_symlink()
