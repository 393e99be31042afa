"""`prose run --keep RUN` and `--resume RUN --changed`: an edited program keeps answers of an earlier run."""

from __future__ import annotations

import json
import re
import shutil
import signal
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from prose_kernel.storage import file_digests
from prose_kernel.storage.journal_file import JournalFile
from prose_kernel.storage.journal_reading import read
from tests.cli.test_resume import DIES, Place, Ran
from tests.cli.test_resume import _notebook as notebook

YES = "--yes-rerun"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Place:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prose.toml").write_text('[cassette]\nmode = "off"\n')
    return Place(tmp_path, capfd)


def script(place: Place, **answers: str) -> tuple[str, ...]:
    """Write answers of sessions by the first word of their task, and return the options that use them."""
    (place.path / "script.yaml").write_text(
        "sessions:\n" + "".join(f"  {json.dumps(task + '*')}: {json.dumps(text)}\n" for task, text in answers.items())
    )
    return ("--provider", "scripted", "--script", "script.yaml")


def kept(seen: Ran) -> tuple[int, dict[str, int]]:
    """Return the number of kept answers, and the numbers of new requests by reason."""
    line = next(line for line in seen.err.splitlines() if line.startswith("kept "))
    if line.startswith(("kept all", "kept the only")):
        return int((re.findall(r"\d+", line) or ["1"])[0]), {}
    asked = line.partition("asked ")[2]
    counts = {
        why: int(found[1])
        for why in ("failed", "changed", "new")
        if (found := re.search(rf"(\d+) [a-z ]*{why}", asked))
    }
    return int(line.split()[1]), counts


def keep(place: Place, *options: str, run: int = -1) -> Ran:
    return place.prose("run", "p.prose", "--keep", place.runs()[run].name, *options)


def test_edits_that_change_no_request_keep_all_answers(place: Place) -> None:
    options = script(place, Plan="a plan", Write="a text")
    place.write(
        "p.prose",
        """
        let plan = session "Plan it"
        let other = exec "echo x >> ran; echo other"
        let text = session "Write it: {plan}"
          context: [plan, other]
        output done = text
        """,
    )
    assert place.prose("run", "p.prose", *options).status == 0
    place.write(
        "p.prose",
        """
        # a comment, another order and other names
        let second = exec "echo x >> ran; echo other"
        let n = 1
        let first = session "Plan it"
        if n == 1:
          let third = session "Write it: {first}"
            context: [first, second]
          output done = third
        """,
    )
    script(place)
    seen = keep(place, *options)
    assert (seen.status, kept(seen)) == (0, (3, {}))
    assert place.ran == ["x"]


def test_a_changed_prompt_repeats_the_requests_that_depend_on_it(place: Place) -> None:
    text = """
        let a = session "Alpha {word}"
        let b = session "Beta: {a}"
        let c = session "Gamma"
        output d = "{{b}}{{c}}"
        """
    place.write("p.prose", text.replace("{word}", "one"))
    options = script(place, Alpha="first", Beta="b", Gamma="c")
    place.prose("run", "p.prose", *options)
    place.write("p.prose", text.replace("{word}", "two"))
    same = keep(place, *options, YES, "--why")
    assert kept(same) == (2, {"changed": 1}), "the answer is the same, so nothing else is asked"
    assert 'prompt differs at character 7: "Alpha two" instead of "Alpha one"' in same.err
    options = script(place, Alpha="second", Beta="b2", Gamma="c2")
    place.write("p.prose", text.replace("{word}", "three"))
    assert kept(keep(place, *options, YES, run=0)) == (1, {"changed": 2})


def test_equal_requests_keep_their_places_then_their_order(place: Place) -> None:
    loop = (
        'let n = ""\nfor x in [{}]:\n  let r = exec "echo x >> ran; wc -l < ran"\n  n = "{{n}}{{r}}"\noutput all = n\n'
    )
    place.write("p.prose", loop.format("1, 2, 3"))
    assert place.prose("run", "p.prose").status == 0
    place.write("p.prose", "let first = 1\n" + loop.format("1, 2"))
    seen = keep(place)
    assert (kept(seen), seen.out) == ((2, {}), "all: 12\n")
    place.write("p.prose", loop.format("1, 2, 3, 4"))
    assert kept(keep(place, run=0)) == (3, {"changed": 1}), "the fourth is a new one"


def test_a_command_is_kept_until_something_with_effects_is_asked_again(place: Place) -> None:
    commands = [f'exec "echo {name} >> ran"\n' for name in "abcd"]
    place.write("p.prose", "".join(commands))
    place.prose("run", "p.prose")
    place.write("p.prose", "".join([commands[0], 'exec "echo B >> ran"\n', *commands[2:]]))
    seen = keep(place, YES, "--why")
    assert (kept(seen), place.ran) == ((1, {"changed": 3}), [*"abcdBcd"])
    assert seen.err.count("was asked again before it") == 2
    place.write("p.prose", "".join([*commands, 'exec "echo e >> ran"\n']))
    assert kept(keep(place, run=0)) == (4, {"new": 1}), "something at the end needs no question"


def test_a_command_that_declares_its_files_is_kept_while_they_are_unchanged(place: Place) -> None:
    text = """
        let name = "in"
        let a = exec "echo a >> ran; cat {name}/*.txt > out.txt; echo done"
          reads: ["{name}/**", "also.txt"]
          writes: ["out.txt"]
        let b = exec "echo b >> ran; echo 1"
          reads: []
        output c = "{a}{b}"
        """
    (place.path / "in").mkdir()
    place.write("in/one.txt", "1")
    place.write("p.prose", text)
    place.prose("run", "p.prose")
    place.write("p.prose", 'exec "true"\n' + text.replace("\n        ", "\n"))
    assert kept(keep(place, run=0)) == (2, {"new": 1}), "what ran before it does not matter"
    for change in ("in/one.txt", "in/two.txt", "also.txt", "out.txt"):
        run = len(place.runs()) - 1
        place.write(change, "other")
        seen = keep(place, YES, "--why", run=run)
        assert kept(seen) == (2, {"changed": 1}), change
        assert f"{change} has changed" in seen.err
    place.write("unrelated.txt", "x")
    assert kept(keep(place)) == (3, {})
    assert place.ran == [*"abaaaa"]


def test_a_file_that_a_later_command_of_the_run_has_written_is_unchanged(place: Place) -> None:
    text = """
        exec "cat f.txt; echo a >> ran"
          reads: ["f.txt"]
        exec "echo 2 > f.txt; echo b >> ran"
          reads: []
          writes: ["f.txt"]
        """
    place.write("f.txt", "1")
    place.write("p.prose", text)
    place.prose("run", "p.prose")
    place.write("p.prose", text + "output n = 1\n")
    assert kept(keep(place)) == (2, {})
    place.write("f.txt", "3")
    assert kept(keep(place, YES, run=0)) == (0, {"changed": 2})


def test_a_command_with_too_many_files_is_asked_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write("p.prose", 'exec "echo a >> ran"\n  reads: ["*.txt"]\n')
    for number in range(4):
        place.write(f"{number}.txt", "x")
    monkeypatch.setattr("prose_kernel.storage.file_digests.MOST_FILES", 3)
    place.prose("run", "p.prose")
    seen = keep(place, YES, "--why")
    assert (kept(seen), place.ran) == ((0, {"changed": 1}), ["a", "a"]), (seen.out, seen.err)
    assert "its files are not compared" in seen.err


def test_a_changed_session_without_file_writes_keeps_commands(place: Place) -> None:
    options = script(place, Say="a word", Tell="another")
    place.write("p.prose", 'session "Say it"\nexec "echo a >> ran"\n')
    place.prose("run", "p.prose", *options)
    place.write("p.prose", 'session "Tell it"\nexec "echo a >> ran"\n')
    assert kept(keep(place, *options, YES)) == (1, {"changed": 1})
    assert place.ran == ["a"]


def test_failures_are_asked_again(place: Place) -> None:
    place.write(
        "p.prose",
        'exec "echo a >> ran"\ntry:\n  exec "test -f there"\ncatch:\n  exec "echo b >> ran"\nexec "test -f also"\n',
    )
    assert place.prose("run", "p.prose").status == 1
    (place.path / "also").touch()
    seen = keep(place)
    assert (seen.status, kept(seen)) == (0, (3, {"failed": 1})), "a caught exit code is an answer"
    (place.path / "also").unlink()
    assert place.prose("run", "p.prose", "--keep", place.runs()[0].name).status == 1


def test_a_persons_input_is_kept_unless_it_is_to_be_asked_again(place: Place) -> None:
    place.write("p.prose", 'input word: "Which word?"\noutput w = word\n')
    assert place.prose("run", "p.prose", "--input", "word=tea").out == "w: tea\n"
    assert place.prose("run", "p.prose", "--keep", place.runs()[-1].name).status == 3, "no person has answered"


def test_a_gate_is_kept_with_the_requests_before_it_if_its_approval_is_confirmed(place: Place) -> None:
    text = 'exec "echo a >> ran"\ngate release:\n  prompt: "Publish?"\nexec "echo b >> ran"\n'
    place.write("p.prose", text)
    assert place.prose("run", "p.prose", "--yes", "release").status == 0
    place.write("p.prose", text + 'exec "echo c >> ran"\n')
    assert keep(place, "--yes", "release").status == 0
    assert place.ran == [*"abc"]
    place.write("p.prose", text.replace("echo a", "echo A"))
    seen = keep(place, YES, "--gates", "deny", run=0)
    assert seen.status == 3 and place.ran == [*"abcA"], "an approval is about what came before it"


def test_the_approval_of_an_earlier_process_is_confirmed_before_anything_runs(place: Place) -> None:
    text = 'exec "echo a >> ran"\ngate release:\n  prompt: "Publish?"\nexec "echo b >> ran"\n'
    place.write("p.prose", text)
    assert place.killed("run", "p.prose", "--yes", "release").status == 0
    place.write("p.prose", text + 'exec "echo c >> ran"\n')
    assert keep(place, YES).status == 3
    assert place.ran == [*"ab"]
    assert keep(place, YES, "--yes", "release", run=0).status == 0
    assert place.ran == [*"abc"]


def test_the_loser_of_a_race_is_not_asked(place: Place) -> None:
    text = """
        let won = parallel ("first"):
          exec "echo slow >> ran; sleep 60"
          exec "echo quick"
        output w = won
        """
    place.write("p.prose", text)
    place.prose("run", "p.prose")
    place.write("p.prose", text + 'output done = "yes"\n')
    (place.path / "ran").unlink(missing_ok=True)
    seen = keep(place)
    assert (seen.status, kept(seen)[0]) == (0, 1)
    assert not (place.path / "ran").exists()


def test_a_killed_run_that_keeps_answers_keeps_the_rest_when_it_is_resumed(place: Place) -> None:
    options = script(place, One="1", Two="2")
    place.write("p.prose", 'let a = session "One"\nlet b = session "Two"\noutput c = "{a}{b}"\n')
    place.prose("run", "p.prose", *options)
    script(place)
    place.write(
        "p.prose", f'let a = session "One"\n{DIES.format("x")}\nlet b = session "Two"\noutput c = "{{a}}{{b}}"\n'
    )
    run = place.runs()[-1].name
    assert place.killed("run", "p.prose", "--keep", run, *options).status == -signal.SIGKILL
    seen = place.prose("run", "--resume", *options)
    assert (seen.status, seen.out) == (0, "x\nc: 12\n")
    assert kept(seen) == (2, {"new": 1})


def test_a_run_of_vvm_keeps_answers_that_are_files(place: Place) -> None:
    options = script(place, Alpha="first", Beta="second")
    filesystem = ("--state", "filesystem")
    text = 'agent a(model="x", prompt="p")\none = @a `Alpha`()\ntwo = @a `Beta`(one)\nexport two\n'
    place.write("p.vvm", text)
    first = place.prose("run", "p.vvm", *options, *filesystem)
    assert first.status == 0, first.err
    place.write("p.vvm", text.replace("one = ", "zero = 1\none = "))
    script(place)
    run = place.runs(".vvm")[-1].name
    seen = place.prose("run", "p.vvm", "--keep", run, *options, *filesystem)
    assert (seen.status, kept(seen)) == (0, (2, {})), seen.err
    script(place, Zero="0")
    place.write("p.vvm", text.replace("one = ", "zero = @a `Zero`()\none = ").replace("(one)", "([one, zero][0])"))
    seen = place.prose("run", "p.vvm", "--keep", run, *options, *filesystem)
    assert (seen.status, kept(seen)) == (0, (2, {"new": 1})), "the numbers of files are no part of a key"
    refused = place.prose("run", "p.vvm", "--keep", run, *options)
    assert refused.status == 2 and "--state=filesystem" in refused.err and "leaves nothing on disk" in refused.err


def test_a_run_that_is_shown_again_has_a_reason_for_each_request(place: Place) -> None:
    place.write("data", "then")
    place.write("p.prose", 'let a = exec "cat data"\n  reads: ["data"]\nlet b = exec "echo b"\n')
    assert place.prose("run", "p.prose").status == 0
    place.write("data", "now")
    assert "data has changed" in keep(place, YES, "--why").err
    seen = place.prose("run", "--resume", place.runs()[-1].name, "--changed", "--why")
    assert kept(seen) == (0, {"changed": 2})
    assert seen.err.count("    it was asked before this run was resumed\n") == 2


def test_a_plan_shows_what_is_kept_and_why_the_rest_is_asked(place: Place) -> None:
    text = 'let a = exec "echo a >> ran; echo a"\n  reads: ["in/**"]\n  writes: ["out"]\nlet b = session "{} {{a}}"\nlet c = session "Use {{b}}"\n'
    options = script(place, Say="hi", Use="used", Tell="told")
    place.write("p.prose", text.format("Say"))
    place.prose("run", "p.prose", *options)
    run = place.runs()[0].name
    place.write("p.prose", text.format("Tell"))
    whole, seen = place.prose("plan", "p.prose"), place.prose("plan", "p.prose", "--keep", run)
    assert (whole.status, whole.out.splitlines()[0]) == (0, "The program comes to 2 sessions, 1 command.")
    shown = [line.split()[:3] for line in seen.out.splitlines() if not line.startswith(" ")]
    assert shown == [
        ["kept", "command", "c1/1/x0:"],
        ["asked", "session", "c1/2/s0:"],
        ["asked", "session", "c1/3/s0:"],
    ]
    assert "  reads in/**" in seen.out and "  writes out" in seen.out
    assert "reads in/**" in whole.out and "writes out" in whole.out
    assert place.ran == ["a"] and len(place.runs()) == 1, "nothing is asked or run"
    place.write("p.prose", "let = 1\n")
    assert place.prose("plan", "p.prose", "--keep", run).status == 1
    assert place.prose("plan", "nothing.prose").status == 2


# ---------------------------------------------------------------- bad input


def _rewritten(journal: Path, change: Callable[[str], str]) -> None:
    """Change the records of a journal, and update its checksums."""
    checksum, lines = 0, []
    for line in journal.read_text().splitlines():
        body = change(line[9:]).encode()
        checksum = zlib.crc32(body, checksum)
        lines.append(b"%08x %b\n" % (checksum, body))
    journal.write_bytes(b"".join(lines))


def test_an_answer_that_cannot_be_read_is_asked_again(place: Place) -> None:
    place.write("p.prose", 'exec "echo a >> ran"\noutput b = 1\n')
    place.prose("run", "p.prose")
    _rewritten(place.runs()[0] / "journal.jsonl", lambda line: line.replace('"exit_code":0', '"exit_code":"none"'))
    seen = keep(place)
    assert (seen.status, kept(seen)[0], place.ran) == (0, 0, ["a", "a"])


def test_a_journal_without_keys_is_refused(place: Place) -> None:
    place.write("p.prose", 'exec "echo a >> ran"\n')
    place.prose("run", "p.prose")
    _rewritten(place.runs()[0] / "journal.jsonl", lambda line: re.sub(r',"id":"[0-9a-f]+","parts":\{[^}]*\}', "", line))
    seen = keep(place)
    assert seen.status == 2 and place.ran == ["a"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("p.prose", "--keep", "nothing"), "there is no run"),
        (("p.vvm", "--keep", "{run}", "--state", "filesystem"), "written in vvm"),
        (("p.prose", "--keep", "{run}", "--in-context"), 'no journal (state = "in-context")'),
        (("p.prose", "--keep", "{run}", "--provider", "dry-run"), "dry run"),
        (("p.prose", "--keep", "{run}", "--resume"), "exclude each other"),
        (("p.prose", "--why"), "--why is about"),
        (("p.prose", "--ask-again"), "--ask-again is about"),
        (("n.ipynb", "--keep", "{run}"), "for program files"),
    ],
)
def test_values_that_cannot_be_kept_are_reported(place: Place, arguments: tuple[str, ...], says: str) -> None:
    place.write("p.prose", 'exec "echo a >> ran"\n')
    place.write("p.vvm", "x = 1\n")
    notebook(place.path / "n.ipynb", "output a = 1")
    place.prose("run", "p.prose")
    run = place.runs()[0].name
    seen = place.prose("run", *(part.format(run=run) for part in arguments))
    assert seen.status == 2 and says in seen.err, seen.err
    assert place.ran == ["a"]


def test_a_journal_of_another_version_is_refused(place: Place) -> None:
    place.write("p.prose", 'exec "echo a >> ran"\n')
    place.prose("run", "p.prose")
    (run,) = place.runs()
    _rewritten(run / "journal.jsonl", lambda line: line.replace('"k":"head"', '"k":"head","version":0'))
    for words in (("run", "--keep"), ("plan", "--keep"), ("run", "--resume")):
        seen = place.prose(words[0], "p.prose", words[1], run.name)
        assert seen.status == 2 and "has version 0" in seen.err, seen.err
    assert place.ran == ["a"]


def test_a_run_of_another_directory_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write("p.prose", 'exec "echo a >> ran"\n')
    place.prose("run", "p.prose")
    (place.path / "sub").mkdir()
    run = place.runs()[0]
    monkeypatch.chdir(place.path / "sub")
    place.write("sub/p.prose", 'exec "echo a >> ran"\n')
    seen = place.prose("run", "p.prose", "--keep", str(run))
    assert seen.status == 2 and "another directory" in seen.err


def test_a_run_that_is_still_going_is_refused(place: Place) -> None:
    place.write("p.prose", 'exec "echo a >> ran"\n')
    place.prose("run", "p.prose")
    (run,) = place.runs()
    file = JournalFile(run / "journal.jsonl")
    file.take_ownership(read(file.path))
    seen = [place.prose(*words, "p.prose", "--keep", run.name) for words in (("run",), ("plan",))]
    file.close()
    assert [(one.status, "is running" in one.err) for one in seen] == [(2, True)] * 2
    assert keep(place).status == 0 and place.ran == ["a"]


def test_a_program_whose_language_has_changed_is_refused(place: Place) -> None:
    place.write("p.vvm", "x = 1\nexport x\n")
    place.prose("run", "p.vvm", "--state", "filesystem")
    (run,) = place.runs(".vvm")
    place.write("p.prose", "let x = 1\noutput y = x\n")
    for words in (("run",), ("plan",)):
        seen = place.prose(*words, "p.prose", "--keep", run.name)
        assert seen.status == 2 and "is one of vvm" in seen.err


# ---------------------------------------------------------------- files


def test_globs_that_match_too_many_files_are_bounded_and_say_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_digests, "MOST_FILES", 10)
    for number in range(file_digests.MOST_FILES + 1):
        (place.path / "many" / f"d{number}").mkdir(parents=True)
        (place.path / "many" / f"d{number}" / "f").touch()
    place.write("p.prose", 'exec "echo a >> ran"\n  reads: ["many/**"]\nexec "echo b >> ran"\n  reads: []\n')
    place.prose("run", "p.prose")
    seen = keep(place, YES, "--why")
    assert (kept(seen), place.ran) == ((1, {"changed": 1}), ["a", "b", "a"])
    assert seen.err.count("its files are not compared: more than 10,000 files or 1 GiB, or one changed meanwhile") == 1


def test_files_that_change_while_they_are_read_are_not_compared(place: Place) -> None:
    place.write("p.prose", 'exec "echo a >> ran"\n  reads: ["log"]\n')
    stop = threading.Event()
    (place.path / "log").write_bytes(bytes(4 << 20))  # reading it takes longer than the pause between two writes

    def write() -> None:
        with (place.path / "log").open("ab", buffering=0) as log:
            while not stop.wait(0.001):
                log.write(b"x")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        place.prose("run", "p.prose")
        seen = keep(place, YES, "--why")
    finally:
        stop.set()
        writer.join()
    assert (kept(seen), place.ran) == ((0, {"changed": 1}), ["a", "a"]), (seen.out, seen.err)


# ---------------------------------------------------------------- other stores


def test_a_run_in_sqlite_is_kept_by_one_in_files_and_back(place: Place) -> None:
    place.write("p.prose", 'let a = exec "echo a >> ran; echo one"\noutput b = a\n')
    stores = ("sqlite", "filesystem", "sqlite")
    assert place.prose("run", "p.prose", "--state", stores[0]).status == 0
    for number, store in enumerate(stores[1:]):
        place.write("p.prose", f'let a = exec "echo a >> ran; echo one"\noutput b{number} = a\n')
        seen = keep(place, "--state", store)
        assert (seen.status, kept(seen), seen.out) == (0, (1, {}), f"b{number}: one\n")
    assert place.ran == ["a"]


def test_a_run_in_postgresql_is_kept_also_without_its_directory(place: Place, postgres_url: str) -> None:
    (place.path / ".prose").mkdir()
    place.write(".prose/.env", f"OPENPROSE_POSTGRES_URL={postgres_url}\n")
    place.write("p.prose", 'let a = exec "echo a >> ran; echo one"\noutput b = a\n')
    assert place.prose("run", "p.prose", "--state", "postgres").status == 0
    (run,) = place.runs()
    place.write("p.prose", 'let a = exec "echo a >> ran; echo one"\noutput c = a\n')
    seen = keep(place, "--state", "postgres")
    assert (kept(seen), seen.out) == ((1, {}), "c: one\n")
    shutil.rmtree(run)
    seen = place.prose("run", "p.prose", "--keep", run.name, "--state", "postgres")
    assert (seen.status, kept(seen), seen.out, place.ran) == (0, (1, {}), "c: one\n", ["a"]), seen.err
