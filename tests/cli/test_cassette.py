"""`prose cassette`: show, tidy, prune, diff and redact on recordings of real runs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from prose_kernel.cassettes.records import key_of
from prose_kernel.cli.main import main

PROGRAM = 'let a = session "Write about frogs"\nlet b = session "Write about toads"\noutput both = a + b\n'
HERE = Path("cassettes/session.jsonl")
KERNEL = {"kernelspec": {"display_name": "Prose", "language": "prose", "name": "prose"}}


def record(at: str, prompt: str, answer: str, **more: object) -> dict[str, object]:
    """Return a record as a person would write it by hand."""
    req = {"kind": "session", "prompt": prompt, "perm": perm()}
    return {
        "t": "session", "v": 2, "key": key_of(req), "at": at, "try": 1, "req": req,
        "out": {"text": answer},
        "meta": {"origin": "authored", "recorded": "2026-11-21"}, **more,
    }  # fmt: skip


def perm() -> object:
    """Return the permissions in the key of every session here."""
    from prose_kernel.cassettes.keys import Identity
    from prose_kernel.cassettes.portable_redaction import Redaction
    from prose_kernel.runtime.ports import SessionRequest
    from prose_kernel.runtime.session_options import Surroundings

    identity = Identity(Redaction(), Surroundings(str(Path.cwd())), lambda _: tuple(tools()), {})
    return identity.session(SessionRequest("session", "x", "c1/1/s0"))["perm"]


def tools() -> list[str]:
    """Return the tools offered to every session here, which are a part of its key."""
    from prose_kernel.access.session_permissions import Policy
    from prose_kernel.models.tools.session_tools import tool_names
    from prose_kernel.runtime.ports import SessionRequest

    request = SessionRequest("session", "x", "c1/1/s0")
    return sorted(tool_names(request, Policy.of({}, {}, str(Path.cwd()))))


def hits(at: str, prompt: str, answer: str) -> dict[str, object]:
    """Return a record that matches a session of a program without permissions."""
    made = record(at, prompt, answer)
    req = {**made["req"], "tools": tools()}  # type: ignore[dict-item]
    return {**made, "req": req, "key": key_of(req)}


def write(*records: dict[str, object], path: Path = HERE) -> None:
    path.parent.mkdir(exist_ok=True)
    head = {"t": "head", "v": 2, "format": "prose-cassette"}
    path.write_text("".join(json.dumps(line, sort_keys=True) + "\n" for line in (head, *records)))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def program() -> Path:
    path = Path("p.prose")
    path.write_text(PROGRAM)
    write(
        hits("c1/1/s0", "Write about frogs", "Frogs leap."),
        hits("c1/2/s0", "Write about toads", "Toads sit."),
        hits("c1/3/s0", "Write about newts", "Newts hide."),
    )
    return path


def lines() -> list[dict[str, object]]:
    return [json.loads(line) for line in HERE.read_text().splitlines()]


# ---------------------------------------------------------------- show


def test_show_prints_a_line_a_record(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cassette", "show"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "cassettes/session.jsonl: 3 records",
        "  2  session  c1/1/s0  authored  Write about frogs → Frogs leap.",
        "  3  session  c1/2/s0  authored  Write about toads → Toads sit.",
        "  4  session  c1/3/s0  authored  Write about newts → Newts hide.",
    ]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--at", "c1/2"], ["c1/2/s0"]),
        (["--at", "c1"], ["c1/1/s0", "c1/2/s0", "c1/3/s0"]),
        (["--grep", "Newts"], ["c1/3/s0"]),
        (["--type", "judge"], []),
        (["session", "--at", "c1/1/s0"], ["c1/1/s0"]),
        (["session.jsonl", "--grep", "Frogs"], ["c1/1/s0"]),
    ],
)
def test_show_filters(program: Path, capsys: pytest.CaptureFixture[str], options: list[str], found: list[str]) -> None:
    assert main(["cassette", "show", "--json", *options]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["at"] for record in printed] == found
    assert all(record["file"] == str(HERE) for record in printed)


def test_show_full_is_markdown_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    judge = {
        "t": "judge", "v": 2, "key": "0", "at": "c1/j0",
        "req": {"kind": "decide", "condition": "it is \u202egood", "bindings": {"a": {"chars": 3, "sha256": "0"}}},
        "out": {"answer": None, "no_progress": True, "reason": "\x1b]0;title\x07same as before"},
        "meta": {"origin": "model", "resolved": "big-1"},
    }  # fmt: skip
    write(record("c1/1/s0", "One\nline", "# Heading"), judge)
    assert main(["cassette", "show", "--full"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "## session c1/1/s0 (line 2)" in out
    assert "> One\n> line" in out
    assert "- a: 3 characters" in out
    assert "> uncertain (no progress): " in out


def test_show_reports_an_incomplete_record(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    HERE.write_bytes(HERE.read_bytes() + b'{"t":"session","ke')
    assert main(["cassette", "show"]) == 0
    assert capsys.readouterr().err == (
        "Warning: cassettes/session.jsonl, line 5: the last record was not written to its end; it is left out\n"
    )


@pytest.mark.parametrize("part", ["out", "facts"])
def test_a49_a_record_that_cannot_be_decoded_is_one_line(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    HERE.parent.mkdir(exist_ok=True)
    good, bad = record("c1/1/s0", "Good?", "Yes."), record("c2/1/s0", "Bad?", "No.")
    bad[part] = {"out": {"text": "No.", "trace": 5}, "facts": {"writes": 5}}[part]
    HERE.write_text("".join(json.dumps(one) + "\n" for one in ({"t": "head", "v": 2}, bad, good)))
    assert main(["cassette", "show", "--full"]) == 0
    shown = capsys.readouterr().out
    assert "## session c2/1/s0 (line 2)" in shown and "No." not in shown and "> Yes." in shown


def test_without_recordings_there_is_nothing_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cassette", "show"]) == 2
    assert "no recordings here" in capsys.readouterr().err
    assert main(["cassette", "show", "demo"]) == 2
    assert "there is no recording demo" in capsys.readouterr().err


# ---------------------------------------------------------------- tidy


def test_tidy_sorts_records_and_moves_unreadable_ones_aside(capsys: pytest.CaptureFixture[str]) -> None:
    newer = {"t": "dream", "v": 9, "at": "c0"}
    write(
        record("c10/1/s0", "ten", "X"), record("c2/1/s0", "two", "II"), newer, record("c2/1/s0", "two", "2"),
        record("c2/1/s0", "two", "2"),
    )  # fmt: skip
    data = HERE.read_bytes().split(b"\n")
    data[2:2] = [b"not json", b"", b'{"t":"session"}']
    HERE.write_bytes(b"\n".join(data))
    assert main(["cassette", "tidy", "--check"]) == 1
    assert HERE.read_bytes() == b"\n".join(data)
    capsys.readouterr()
    assert main(["cassette", "tidy"]) == 0
    assert capsys.readouterr().out == (
        "cassettes/session.jsonl: 3 records, 2 replaced or duplicate records removed,"
        " 2 unreadable lines moved to cassettes/session.jsonl.bad\n"
    )
    assert [(line["t"], line.get("at")) for line in lines()] == [
        ("head", None), ("session", "c2/1/s0"), ("session", "c10/1/s0"), ("dream", "c0"),
    ]  # fmt: skip
    assert lines()[1]["out"]["text"] == "2"  # type: ignore[index]
    assert Path(f"{HERE}.bad").read_bytes() == b'not json\n{"t":"session"}\n'
    before = HERE.read_bytes()
    assert main(["cassette", "tidy", "--check"]) == 0
    assert main(["cassette", "tidy"]) == 0
    assert HERE.read_bytes() == before


# ---------------------------------------------------------------- prune


def test_prune_removes_records_that_no_program_uses(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(program), "--cassette-mode", "replay"]) == 0
    assert capsys.readouterr().out == "both: Frogs leap.Toads sit.\n"
    assert main(["cassette", "prune", "--dry-run", str(program)]) == 0
    assert "1 unused record would be removed\n  line 4: session c1/3/s0" in capsys.readouterr().out
    assert len(lines()) == 4
    assert main(["cassette", "prune", str(program)]) == 0
    assert [line.get("at") for line in lines()] == [None, "c1/1/s0", "c1/2/s0"]


@pytest.mark.parametrize("named", [(), ("--cassette", str(HERE))])
def test_prune_keeps_records_that_are_added_meanwhile(program: Path, named: tuple[str, ...]) -> None:
    write(record("c9/1/s0", "Write about newts", "Newts swim."), path=Path("new.jsonl"))
    program.write_text(f'{PROGRAM}exec "tail -n 1 new.jsonl >> {HERE}"\n')
    assert main(["cassette", "prune", str(program), *named]) == 0
    assert [line.get("at") for line in lines()] == [None, "c1/1/s0", "c1/2/s0", "c9/1/s0"]


def test_prune_removes_nothing_when_a_program_does_not_replay(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("q.prose").write_text('let c = session "Write about snakes"\n')
    before = HERE.read_bytes()
    assert main(["cassette", "prune", str(program), "q.prose"]) == 3
    err = capsys.readouterr().err
    assert "nothing is recorded for session c1/1/s0" in err
    assert "nothing is removed: q.prose did not replay to its end" in err
    assert HERE.read_bytes() == before


def test_prune_runs_notebooks_in_replay_mode_whatever_they_set(program: Path) -> None:
    import nbformat

    book = nbformat.v4.new_notebook(metadata=KERNEL)  # type: ignore[no-untyped-call]
    book.cells = [
        nbformat.v4.new_code_cell("%provider human"),  # type: ignore[no-untyped-call]
        nbformat.v4.new_code_cell("%cassette session --mode record"),  # type: ignore[no-untyped-call]
        nbformat.v4.new_code_cell('let n = session "Write about newts"'),  # type: ignore[no-untyped-call]
    ]
    nbformat.write(book, "b.ipynb")  # type: ignore[no-untyped-call]
    assert main(["cassette", "prune", "b.ipynb"]) == 0
    assert [line.get("at") for line in lines()] == [None, "c1/3/s0"]


# ---------------------------------------------------------------- diff


def test_diff_names_sessions_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    old, new = Path("old.jsonl"), Path("new.jsonl")
    same, gone, moved = record("c1/1/s0", "same", "s"), record("c1/5/s0", "gone", "g"), record("c1/3/s0", "moved", "m")
    write(same, record("c1/2/s0", "Say one", "I"), moved, gone, record("c1/6/s0", "kept", "as it was"), path=old)
    write(
        same, record("c1/2/s0", "Say two", "I"), {**moved, "at": "c2/1/s0"}, record("c1/6/s0", "kept", "as it is"),
        record("c1/7/s0", "new", "n"), path=new,
    )  # fmt: skip
    assert main(["cassette", "diff", str(old), str(new)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "changed  session c1/2/s0",
        '         `prompt` differs at character 5: "Say two" instead of "Say one"',
        "moved    session c1/3/s0 → c2/1/s0",
        "changed  session c1/6/s0",
        '         answer: `text` differs at character 7: "as it is" instead of "as it was"',
        "added    session c1/7/s0",
        "removed  session c1/5/s0",
    ]
    assert main(["cassette", "diff", str(old), str(old)]) == 0
    assert capsys.readouterr().out == "old.jsonl: no difference\n"
    assert main(["cassette", "diff", "--json", str(old), str(new)]) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[1]) == {
        "what": "moved", "type": "session", "at": "c2/1/s0", "try": 1, "before": "c1/3/s0", "details": [],
    }  # fmt: skip


def test_diff_against_git(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cassette", "diff", "session"]) == 2
    assert "git has no HEAD of cassettes/session.jsonl" in capsys.readouterr().err
    environment = {
        **os.environ, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b", "GIT_CONFIG_GLOBAL": "/dev/null",
    }  # fmt: skip
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run(["git", *command], check=True, env=environment)
    assert main(["cassette", "diff", "session"]) == 0
    write(*[line for line in lines()[1:] if line["at"] != "c1/2/s0"])
    capsys.readouterr()
    assert main(["cassette", "diff", "session"]) == 1
    assert capsys.readouterr().out == "removed  session c1/2/s0\n"
    assert main(["cassette", "diff", "session", "--rev", "--output=x"]) == 2


# ---------------------------------------------------------------- redact


def test_redact_removes_secrets_and_computes_new_keys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "hunter2-hunter2")
    secret, custom = "hunter2-hunter2", "project Apple"
    writes = [{"path": "a.md", "sha256": "0" * 64, "text": f"for {custom}"}]
    write(
        record("c1/1/s0", f"Use {secret}", "ok"),
        record("c1/2/s0", "plain", f"about {custom}", out={"text": custom}, facts={"writes": writes}),
        record("c1/3/s0", "nothing", "here"),
    )
    HERE.write_bytes(HERE.read_bytes() + f'{{"torn {secret}'.encode())
    assert main(["cassette", "redact", "--check", "--pattern", "project \\w+"]) == 1
    assert secret in HERE.read_text()
    assert main(["cassette", "redact", "--pattern", "project \\w+"]) == 0
    assert "3 records redacted (line 2, 3, 5)" in capsys.readouterr().out
    text = HERE.read_text()
    assert secret not in text
    assert custom not in text
    first, second = (json.loads(line) for line in text.splitlines()[1:3])
    assert first["req"]["prompt"] == "Use «env:SERVICE_TOKEN»"
    assert first["key"] == key_of(first["req"])
    assert second["facts"]["writes"][0]["text"] == "for «secret:custom»"
    assert second["facts"]["writes"][0]["sha256"] != "0" * 64
    assert main(["cassette", "redact", "--check", "--pattern", "project \\w+"]) == 0


def test_redact_warns_about_texts_stored_only_in_part(capsys: pytest.CaptureFixture[str]) -> None:
    long = {"sha256": "0" * 64, "chars": 5000, "head": "the codename is zeta"}
    short = {"sha256": "1" * 64, "chars": 8, "head": "use zeta"}
    req = {"kind": "session", "prompt": "x", "context": {"a": long, "b": short}}
    write({**record("c1/1/s0", "x", "y"), "req": req, "key": key_of(req)})
    assert main(["cassette", "redact", "--pattern", "zeta"]) == 0
    assert "line 2: only the beginning of a long text is stored" in capsys.readouterr().err
    context = lines()[1]["req"]["context"]  # type: ignore[index]
    assert context["a"] == {**long, "head": "the codename is «secret:custom»"}
    assert context["b"]["head"] == "use «secret:custom»"
    assert context["b"]["sha256"] != short["sha256"]


def test_an_invalid_pattern_is_an_error(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cassette", "redact", "--pattern", "("]) == 2
    assert "is not a regular expression" in capsys.readouterr().err
