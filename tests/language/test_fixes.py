"""Changes that apply hints: each one removes its finding and adds no other."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from prose_kernel.language.fixes import is_improvement, replaced
from prose_kernel.language.source import Source
from prose_kernel.runs import languages
from prose_kernel.runs.languages import Language

CORPUS = Path(__file__).parents[1] / "corpus"

OPENPROSE = [
    ("let colour = 1\noutput x = colur\n", "E131", "let colour = 1\noutput x = colour\n"),
    ('let colour = 1\noutput x = "{colur.a}"\n', "E108", 'let colour = 1\noutput x = "{colour.a}"\n'),
    ('agent writer:\n  prompt: "x"\nsession: writr\n', "E007", 'agent writer:\n  prompt: "x"\nsession: writer\n'),
    ('block f:\n  exec "a"\nblock review:\n  exec "b"\ndo reviw\n', "E140", 'block f:\n  exec "a"\nblock review:\n  exec "b"\ndo review\n'),
    ('exec "a"\n  timeot: "3s"\n', "E148", 'exec "a"\n  timeout: "3s"\n'),
    ('let ok = exec "a"\nif ok == "x":\nexec "b"\nexec "c"\n', "E147", 'let ok = exec "a"\nif ok == "x":\n  exec "b"\nexec "c"\n'),
    ('for x in [1]:\nif x == 1:\n  exec "b"\n\n  exec "c"\nexec "d"\n', "E147", 'for x in [1]:\n  if x == 1:\n    exec "b"\n\n    exec "c"\nexec "d"\n'),
    ("x = 4\n", "W135", "let x = 4\n"),
    ("let x = 1\nlet x = 2\n", "E019", "let x = 1\nx = 2\n"),
    ("let x = 1\nif x == 1:\n  let x = 2\n", "W136", "let x = 1\nif x == 1:\n  x = 2\n"),
    ('let d = exec "x"\nexec "rm {d}"\n', "W051", 'let d = exec "x"\nexec "rm \\"$d\\""\n  env: { d }\n'),
    (
        'let d = exec "x"\nfor i in [1]:\n  exec "rm {d} > {i}"  # now\n    timeout: "3s"\n',
        "W051",
        'let d = exec "x"\nfor i in [1]:\n  exec "rm \\"$d\\" > \\"$i\\""  # now\n    env: { d, i }\n    timeout: "3s"\n',
    ),
    ('let d = exec "x"\nexec """\nrm {d}\nls\n"""\n', "W051", 'let d = exec "x"\nexec """\nrm "$d"\nls\n"""\n  env: { d }\n'),
    ("exec \"awk '{print}' f\"\n", "E053", "exec \"awk '\\{print\\}' f\"\n"),
    ('exec "echo ${HOME}"\n', "E053", 'exec "echo $HOME"\n'),
    ('exec "grep \'\\d\' f"\n', "E002", "exec \"grep '\\\\d' f\"\n"),
    ("session Write a poem\n", "E003", 'session "Write a poem"\n'),
    ("let a = 'x'\n", "E106", 'let a = "x"\n'),
    ('if tests pass:\n  exec "a"\n', "E004", 'if **tests pass**:\n  exec "a"\n'),
    ('let x = 1\nif x == 1:\n  exec "a"\nelse if x == 2:\n  exec "b"\n', "E004", 'let x = 1\nif x == 1:\n  exec "a"\nelif x == 2:\n  exec "b"\n'),
    ('print("x")\n', "E025", 'output result = "x"\n'),
    ('use "a/b"\nuse "c/b"\n', "E110", 'use "a/b"\nuse "c/b" as b-2\n'),
    ('parallel (count: 2):\n  exec "a"\n  exec "b"\n  exec "c"\n', "E152", 'parallel ("any", count: 2):\n  exec "a"\n  exec "b"\n  exec "c"\n'),
    ('if true:\n\texec "a"\n', "E101", 'if true:\n  exec "a"\n'),
]  # fmt: skip
VVM = [
    ("colour = 1\nx = ?`is {colur}`\nexport x\n", "V051", "colour = 1\nx = ?`is {colour}`\nexport x\n"),
    ("agent writer()\nx = @writr `hi`(1)\nexport x\n", "V040", "agent writer()\nx = @writer `hi`(1)\nexport x\n"),
    ('agent a(modl="x")\n', "V520", 'agent a(model="x")\n'),
    ("x = ?`a {nobody}`\nexport x\n", "V051", "x = ?`a {{nobody}}`\nexport x\n"),
    ("x = 1\n", "V530", "_x = 1\n"),
    ("x = 'a'\nexport x\n", "V001", 'x = "a"\nexport x\n'),
    ("x = None\nexport x\n", "V701", "x = ()\nexport x\n"),
    ("def f(by):\n  return 1\nexport f\n", "V010", "def f(by_):\n  return 1\nexport f\n"),
    ('y = "a\\q"\nexport y\n', "V005", 'y = "a\\\\q"\nexport y\n'),
    ("eport @nobody\n", "V001", "export @nobody\n"),  # V040 was there before, too
]


def first(language: Language, text: str, code: str) -> str | None:
    source = Source.of(text)
    compiled = language.compile(source)
    found = next(one for one in compiled.diagnostics if one.code == code)
    for fix in language.fixes(compiled, found):
        changed = replaced(text, fix.edits)
        if is_improvement(fix, found, compiled.diagnostics, language.compile(Source.of(changed)).diagnostics):
            return changed
    return None


@pytest.mark.parametrize(
    ("language", "text", "code", "after"),
    [*(("openprose", *case) for case in OPENPROSE), *(("vvm", *case) for case in VVM)],
)
def test_the_first_change_that_holds(language: str, text: str, code: str, after: str) -> None:
    assert first(languages.LANGUAGES[language], text, code) == after


@pytest.mark.parametrize(
    ("language", "text", "code"),
    [
        ("openprose", 'let r = tidy(text: "a")\n', "E025"),  # the hint has an example: `use "./file.prose" as name`
        ("openprose", "let a = 2 * 3\n", "E106"),  # only `+` and `-` calculate
        ("openprose", 'let x = 1\nexec "a {x}"\n  env: { y: x }\n', "W051"),  # it has an `env`
        ("openprose", 'let x = 1\nlet y = [1] | map: exec "a {x}" | map: item\n', "W051"),  # nothing can go below it
        ("vvm", "x = (1, 2)\nexport x\n", "V001"),
        ("vvm", "retry\n", "V701"),  # `return` would be V080, outside of a function
    ],
)
def test_a_change_that_does_not_help_is_not_offered(language: str, text: str, code: str) -> None:
    assert first(languages.LANGUAGES[language], text, code) is None


def test_a_command_that_was_changed_runs_the_same_words() -> None:
    """The fix of W051 does the same as its hint: quotes of the shell stay balanced."""
    text = 'let a = exec "x"\nexec "printf \'%s|\' \'{a}\' \\"{a}b\\" {a}"\n'
    changed = first(languages.OPENPROSE, text, "W051")
    assert changed is not None
    command = changed.split("\n")[1]
    assert command == 'exec "printf \'%s|\' \'\'\\"$a\\"\'\' \\"\\"\\"$a\\"\\"b\\" \\"$a\\""'


def test_no_change_of_the_corpus_touches_what_it_should_not() -> None:
    """The edits of a fix never overlap, and are inside the text."""
    seen = 0
    for path in sorted([*CORPUS.rglob("*.prose"), *CORPUS.rglob("*.vvm")]):
        language = languages.of_file(path.name)
        source = Source.of(path.read_bytes().decode(errors="replace"))
        if len(source.text) > 20_000:
            continue
        compiled = language.compile(source)
        for found in compiled.diagnostics:
            for fix in language.fixes(compiled, found):
                edits = sorted(fix.edits)
                assert edits[0].span.start >= 0 and edits[-1].span.end <= len(source.text), path.name
                assert all(a.span.end <= b.span.start for a, b in pairwise(edits)), path.name
                assert fix.title and "\n" not in fix.title
                seen += 1
    assert seen > 200
