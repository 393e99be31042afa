"""A30: commands that may hide a failure with the exit code 0 (exec-and-tasks.md 2.6)."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest

from prose_kernel.language.exit_codes import LONGEST, may_hide

HIDE = [
    "pytest | tail -20",
    "sh -c 'echo 3 FAILED; exit 1' 2>&1 | tail -20",
    "make; echo done",
    "make\necho done",
    "ruff format . || true",
    "npm start &",
    "npm start & npm test",
    "sh -c 'npm test; echo ok'",
    'bash -lc "npm test | tee log"',
    "cd app; npm test",
    "make |& tee log",
    "! grep -q x y",
    "for f in *.py; do python $f; done",
    "if make; then echo ok; fi",
    'echo "$(npm test)"',
    "echo `npm test`",
    "cat <(npm test)",
    "x=$(npm test | tail -1)",
    "find . -name '*.py' -exec pylint {} \\;",
    "trap 'exit 0' EXIT; npm test",
    "bash <<'EOF'\nnpm test\necho done\nEOF",
    "bash <<< 'npm test; true'",
    "set -e; a && b; c",
    "set -o pipefail; a | b; c",
    "(npm test; true)",
    "{ npm test; true; }",
    "npm test || { echo bad; }",
    "npm test || (exit 1); make",
    "a || false; b",
    "a || exit 0",
    "ssh host 'npm test; echo'",
    'eval "npm test; true"',
    'npm test;echo "a # b"',
    "npm test # comment\necho ok",
    "export R=$(npm test)",
    "npm test >| log | cat",
    "npm test; exit 0",
    'test -z "$(npm test)"',
    "npm test; 'unclosed",
    "a" * LONGEST + "; b",
]
SHOW = [
    "pytest",
    "cd app && npm run lint 2>&1",
    "make check &> log.txt # always | the same; log",
    "grep -q 'a|b; c' notes.txt && echo ok",
    "npm test &>> log",
    "npm test >| log",
    'echo "a; b | c & d"',
    "set -e\n./configure\nmake install",
    "set -euo pipefail; pytest | tail",
    "echo start; npm test",
    "export CI=1; npm test",
    "npm test;",
    "npm test\n",
    'git tag "v$(date | cut -c1-4)"',
    "x=$(npm test)",
    "npm test || exit 1",
    "npm test || exit 1; make",
    "npm test || { echo bad; exit 1; }",
    "cat <<EOF > f\na; b | c\nEOF",
    "python - <<'EOF'\nx = 1 | 2\nEOF",
    "bash -euo pipefail -c 'npm test | tail'",
    "echo y | npm init",
    "(cd app && npm test)",
    "CI=1 npm test",
    "npm \\\n test",
    'curl "http://x/?a=1&b=2"',
    "npm test 3>&1 1>&2 2>&3",
    "diff <(sort a) <(sort b)",
    "echo $((1 | 2))",
    "echo ${x:-a}",
]


@pytest.mark.parametrize("text", HIDE)
def test_a30_a_code_that_something_may_hide(text: str) -> None:
    assert may_hide(text)


@pytest.mark.parametrize("text", SHOW)
def test_a30_a_code_that_shows_every_failure(text: str) -> None:
    assert not may_hide(text)


def test_a30_pipefail_is_about_pipes_of_the_same_shell() -> None:
    assert not may_hide("pytest | tail", pipefail=True)
    assert not may_hide("pytest |& tee log | tail", pipefail=True)
    assert may_hide("pytest | tail; echo", pipefail=True)
    assert may_hide("pytest | tail || true", pipefail=True)
    assert may_hide("sh -c 'pytest | tail'", pipefail=True)


def test_a30_a_code_documented_to_show_failures_does_so_in_a_real_shell(tmp_path: Path) -> None:
    """If one of some random probes fails and bash exits with 0 all the same, the text may hide the failure."""
    chance = random.Random(30)
    shown = 0
    scripts = ['probe() { if [ "$1" = "$FAIL" ]; then : > ran; return 1; fi; }; export -f probe']
    texts = [_list(chance, 2) for _ in range(150)]
    for number, text in enumerate(texts):
        for probe in sorted(set(re.findall(r"probe (\d)", text))):
            quoted = text.replace("'", "'\\''")
            scripts.append(
                f"rm -f ran; FAIL={probe} bash -c '{quoted}' >/dev/null 2>&1 && test -e ran && echo {number}"
            )
    (tmp_path / "all.sh").write_text("\n".join(scripts))
    found = subprocess.run(
        ["bash", "all.sh"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    hidden = {int(line) for line in found.stdout.split()}
    assert len(hidden) > 30
    for number, text in enumerate(texts):
        if not may_hide(text):
            shown += 1
            assert number not in hidden, text
    assert shown > 10


def _list(chance: random.Random, depth: int) -> str:
    parts = [_command(chance, depth)]
    for _ in range(chance.randrange(3)):
        parts += [chance.choice([" && ", " && ", "; ", " || ", " | ", "\n"]), _command(chance, depth)]
    return chance.choice(["", "", "set -e; ", "set -o pipefail; ", "set -eo pipefail\n"]) + "".join(parts)


def _command(chance: random.Random, depth: int) -> str:
    probe = f"probe {chance.randrange(4)}"
    if depth == 0:
        return probe
    inner = _list(chance, depth - 1)
    quoted = inner.replace("'", "'\\''")
    return chance.choice(
        [
            *(probe, probe, probe, f"{probe} 2>&1", f"{probe} > /dev/null", "exit 1", "true", "echo x"),
            *(f"( {inner} )", f"{{ {inner}\n}}", f"bash -c '{quoted}'", f"x=$({inner})", f"! {probe}"),
        ]
    )
