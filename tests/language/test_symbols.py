"""The names that a text defines and uses, which editors rename, find and go to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from language.places import names_of, with_another_name

from prose_kernel.language.source import Source
from prose_kernel.runs import languages

CORPUS = Path(__file__).parents[1] / "corpus"
EXAMPLES = Path(__file__).parents[2] / "prose_kernel" / "examples"
HIDING = {"W141", "W160", "W170", "W180", "V703", "V707", "V530", "W052"}
"""Warnings about the name itself, or about its word in a condition: another one has no such fault, or another one."""


@pytest.mark.parametrize("suffix", ["prose", "vvm"])
def test_a_name_that_is_changed_everywhere_leaves_the_program_as_it_was(suffix: str) -> None:
    """For every symbol of every program of the corpus: a missed occurrence causes a finding."""
    tried = 0
    for path in [*sorted(CORPUS.rglob(f"*.{suffix}")), *sorted(EXAMPLES.glob(f"*.{suffix}"))]:
        language = languages.of_file(path.name)
        try:
            source = Source.of(path.read_bytes().decode())
        except UnicodeDecodeError:
            continue
        compiled = language.compile(source)
        if not compiled.ok or len(source.text) > 50_000:
            continue
        before = Counter((found.code, found.line) for found in compiled.diagnostics if found.code not in HIDING)
        index = language.index(compiled.program, source)
        for symbol in index.symbols:
            changed = with_another_name(source, index, symbol, "fresh_name")
            after = language.compile(Source.of(changed)).diagnostics
            found = Counter((one.code, one.line) for one in after if one.code not in HIDING)
            assert found == before, (path.name, symbol.kind, symbol.name, changed)
            tried += 1
    assert tried > (1200 if suffix == "prose" else 500)


# ---------------------------------------------------------------- what a name means

OPENPROSE = [
    ("let [x] = 1\noutput y = [x]\n", "a variable"),
    ("let [x] = 1\n[x] = 2\nsession '{[x]}'\n", "an assignment and a text"),
    ("let x = 1\nblock f([x]):\n  output r = [x]\ndo f(x)\n", "a parameter hides it"),
    ("let [x] = 1\nblock f:\n  output r = '{[x]}'\ndo f\n", "a block reads its caller's"),
    ("block f:\n  [x] = 2\nlet [x] = 1\ndo f\n", "and writes it"),
    ("block f:\n  let x = 2\nlet [x] = 1\ndo f\noutput y = [x]\n", "its own is another one"),
    ("block f:\n  output [found] = 1\ndo f\noutput y = [found]\n", "what a bare do exports"),
    ("block g:\n  output o = '{[x]}'\nblock f([x]):\n  do g\ndo f(1)\n", "a parameter of the caller"),
    ("for [x] in [1]:\n  exec 'echo {[x]}'\nlet x = 2\n", "a loop variable"),
    ("let x = 1\nlet y = [1] | map: item\nlet z = [1] | reduce(x, [i]): [i] + 1\n", "a pipe"),
    ("try:\n  exec 'a'\ncatch as [e]:\n  output y = [e]\nlet e = 1\n", "an error"),
    ("agent [w]:\n  prompt: 'x'\nsession: [w]\n  prompt: 'y'\n", "an agent"),
    ("agent [w]:\n  persist: true\nsession: [w]\n  prompt: 'x'\n  context: [w]\n", "an agent as context"),
    ("agent w:\n  prompt: 'about {[x]}'\nlet [x] = 1\nsession: w\n", "the text of an agent"),
    ("block [f]:\n  exec 'a'\nblock g:\n  do [f]\nlet r = do [f]\n", "a block"),
    ("use './a.prose' as [rev]\nlet rev2 = [rev](x: 1)\n", "an import"),
    ("let [a] = 1\nlet o = {[a], b: [a]}\n", "a shorthand"),
    ("gate [ok]:\n  prompt: 'x'\n", "a gate"),
]
VVM = [
    ("[x] = 1\nexport [x]\n", "a variable"),
    ("x = 1\ndef f([x]):\n  return [x]\nexport x\n", "a parameter hides it"),
    ("[x] = 1\ndef f():\n  return [x]\n", "a function reads the module's"),
    ("x = 1\ndef f():\n  [x] = 2\n  return [x]\n", "an assigned name is local"),
    ("def f():\n  return [x]\n[x] = 1\n", "also before it is bound"),
    ("def [f]([a]):\n  return [a]\ny = [f]([a]=1)\n".replace("[f]", "f"), "the name of an argument"),
    ("agent [w]()\nx = @[w] `hi`(1)\nexport @[w]\n", "an agent"),
    ("[x] = 1\ny = ?`is {[x]} or {[x].y}`\n", "a template"),
    ("agent w()\nx = 1\ny = @[w].with(model='opus') `x`(x)\n".replace("agent w", "agent [w]"), "a derived agent"),
    ("[x] = 1\nm = pack([x], k=[x])\n", "pack"),
    ("try:\n  raise\nexcept as [e]:\n  y = [e]\n", "an error"),
    ("match 1:\n  case error([e]):\n    y = [e]\n", "a pattern"),
    ("def f():\n  def [g]([a]):\n    return 1\n  return [g](a=1)\n".replace("[a]", "a"), "a function in a function"),
]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        *(pytest.param("openprose", text.replace("'", '"'), id=about) for text, about in OPENPROSE),
        *(pytest.param("vvm", text.replace("'", '"'), id=f"vvm: {about}") for text, about in VVM),
    ],
)
def test_every_place_of_a_name_is_found_and_no_other(language: str, text: str) -> None:
    marked, plain = [], ""
    for at, piece in enumerate(text.split("[")):
        name, closed, rest = piece.partition("]")
        if at and closed and name.isidentifier():
            marked.append(len(plain))
            plain += name + rest
        else:
            plain += ("[" if at else "") + piece
    index = names_of(languages.LANGUAGES[language], plain)
    places = [[one.start for one in index.of(symbol)] for symbol in index.symbols]
    assert marked in places, places


def test_what_other_files_can_name() -> None:
    text = 'input topic: "?"\nlet x = 1\noutput summary = x\nblock f:\n  output inner = 1\n'
    index = names_of(languages.OPENPROSE, text)
    assert {symbol.name: symbol.shared for symbol in index.symbols if symbol.shared} == {
        "topic": {"input topic"},
        "summary": {"output summary"},
    }
    index = names_of(
        languages.VVM, "agent w()\ndef f(a):\n  return a\nx = 1\nexport f\nexport @w\nexport pack(x, k=1)\n"
    )
    assert {symbol.name: symbol.shared for symbol in index.symbols if symbol.shared} == {
        "w": {"agent w"},
        "f": {"value f"},
        "a": {"parameter f.a"},
        "x": {"value x"},
        "k": {"value k"},
    }


def test_the_names_of_other_files_in_a_text() -> None:
    text = 'use "./a.prose" as rev\nlet r = rev(topic: 1)\nlet {s, t} = rev(topic: 2)\noutput o = "{r.u} {s}"\n'
    index = names_of(languages.OPENPROSE, text)
    targets = [(text[one.start : one.end], one.target.name) for one in index.occurrences if one.target]
    assert targets == [
        ("topic", "input topic"),
        ("s", "output s"),
        ("t", "output t"),
        ("topic", "input topic"),
        ("u", "output u"),
    ]
    assert [text[span.start : span.end] for span, _ in index.links] == ['"./a.prose"']


def test_a_variable_that_may_hold_something_else_has_no_outputs_of_a_program() -> None:
    text = 'use "./a.prose" as rev\nlet r = rev(x: 1)\nr = {u: 1}\noutput o = r.u\n'
    assert not [
        one for one in names_of(languages.OPENPROSE, text).occurrences if one.target and "output" in one.target.name
    ]
