"""One `prose run --resume` makes all requests again whose failures ended the run, and no others."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from durability.test_stores_away import run_with_lost_gate

from prose_kernel.cli.main import main


def answered(key: str) -> str:
    """Return a shell command that waits until the program has received the answer to a request."""
    return f"until grep -q 'answered[^.],.key.:.{key}[^0-9]' .prose/runs/*/journal.jsonl; do sleep 0.02; done"


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ran(program: str) -> tuple[list[str], list[str]]:
    """Run a program that fails until the file `mended` is there, then resume it once. Return what ran before and after."""
    Path("p.prose").write_text(textwrap.dedent(program))
    assert main(["run", "p.prose"]) == 1
    before = Path("ran").read_text().split()
    Path("mended").touch()
    assert main(["run", "--resume"]) == 0
    return before, Path("ran").read_text().split()[len(before) :]


REPLACED = {
    "by an error in finally": (
        """
        try:
          exec "echo x >> ran; test -f mended"
        finally:
          exec "echo y >> ran; test -f mended"
        """,
        ["x", "y"],
    ),
    "by another branch": (
        f"""
        parallel:
          do:
            try:
              exec "echo x >> ran; test -f mended"
            finally:
              exec "echo y >> ran; test -f mended || sleep 600"
          exec "{answered("c1/1/b0/x0")}; test -f mended"
        """,
        ["x", "y"],
    ),
}


@pytest.mark.parametrize("how", REPLACED)
def test_a_failure_that_was_replaced_is_made_again_by_the_first_resume(how: str) -> None:
    program, words = REPLACED[how]
    assert ran(program)[1] == words


def test_a_branch_keeps_what_it_asked_after_a_failure_of_another_one() -> None:
    """Also a failure that it has handled, with the requests of its handler."""
    program = f"""
    parallel:
      do:
        try:
          exec "echo x >> ran; test -f mended"
        finally:
          exec "{answered("c1/1/b1/x5")}; echo y >> ran"
      do:
        exec "{answered("c1/1/b0/x0")}; echo a >> ran"
        try:
          exec "echo b >> ran; test -f mended"
        catch:
          exec "echo c >> ran"
        exec "echo d >> ran; test -f mended"
          on-fail: "continue"
        exec "echo e >> ran; test $PROSE_ATTEMPT = 2"
          retry: 1
          backoff: "none"
        exec "echo f >> ran"
    exec "echo after >> ran"
    """
    before, after = ran(program)
    assert before == ["x", "a", "b", "c", "d", "e", "e", "f", "y"]
    assert after == ["x", "y", "after"]


def test_a_request_that_differs_after_the_failure_is_made() -> None:
    program = f"""
    let failures = 0
    parallel:
      do:
        try:
          exec "test -f mended"
        catch:
          failures = 1
          exec "{answered("c1/2/b1/x1")}"
          throw
      do:
        exec "{answered("c1/2/b0/x0")}"
        exec "echo $failures >> ran"
          env: {{ failures }}
    """
    assert ran(program) == (["1"], ["0"])


def test_a_branch_keeps_what_it_asked_after_its_store_failed_in_another_one(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = f"""
    parallel:
      do:
        try:
          gate go:
            prompt: "Go?"
        finally:
          exec "{answered("c1/1/b1/x1")}; echo y >> ran"
      do:
        exec "until grep -q Store[F]ailed .prose/runs/*/journal.jsonl; do sleep 0.02; done; echo a >> ran"
        exec "echo b >> ran"
    """
    run_with_lost_gate(textwrap.dedent(program), monkeypatch, capfd)
    assert Path("ran").read_text().split() == ["a", "b", "y"]
    assert main(["run", "--resume", "--yes=go"]) == 0
    assert Path("ran").read_text().split() == ["a", "b", "y", "y"]


def test_a_branch_that_begins_before_a_kept_answer_makes_its_request_again() -> None:
    program = f"""
    parallel:
      do:
        try:
          exec "echo x >> ran; test -f mended"
        finally:
          exec "{answered("c1/1/b1/x1")}"
      do:
        exec "{answered("c1/1/b0/x0")}; echo a >> ran"
        exec "echo b >> ran"
    """
    assert ran(program) == (["x", "a", "b"], ["x"])
    (directory,) = Path(".prose/runs").iterdir()
    assert main(["run", "--resume", directory.name, "--from", "c1/1/b1/x1"]) == 0
    assert sorted(Path("ran").read_text().split()[4:]) == ["b", "x"]


@pytest.mark.parametrize("how", [[], ["--changed"]])
def test_failures_of_all_calls_of_pmap_are_made_again(how: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """The answers are no failures, but the statements that use them fail."""
    Path("p.vvm").write_text(
        'agent a(model="m")\ndef study(side):\n  return [0, 0][len(@a `{side}`(()).summary)]\n'
        'found = pmap(["l", "r"], study)\nexport found\n'
    )
    options = ["--provider=scripted", "--script=replies.yaml", "--cassette-mode=off"]
    Path("replies.yaml").write_text("sessions: {l: long, r: long}\n")
    assert main(["run", "p.vvm", "--state=filesystem", *options]) == 1
    Path("replies.yaml").write_text('sessions: {l: "1", r: "1"}\n')
    assert main(["run", "--resume", *how, *options]) == 0
    assert "found: [0, 0]" in capfd.readouterr().out
