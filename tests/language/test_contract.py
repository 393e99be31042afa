"""The contracts of programs, blocks and import paths (openprose.md 3.6, 3.16, 6.1)."""

from __future__ import annotations

import pytest

from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.parser import parse
from prose_kernel.language.openprose.program_interface import (
    block_exports,
    block_names,
    contract,
    persistence,
    place_of,
    slug,
)
from prose_kernel.language.source import Source


def read(text):
    return parse(Source(text), "default").program


def first(text, kind):
    return next(item for item in read(text).items if isinstance(item, kind))


def test_inputs_are_required_before_the_first_executable_statement():
    program = read(
        'use "./x.prose" as x\ninput a: "?"\nagent w:\n  prompt: "p"\ninput b: **what is it about**\nexec "ls"\n'
        'input c: "?"\nif **the build is green**:\n  input d: "?"\nblock f:\n  input e: "?"\n'
    )
    assert dict(contract(program).inputs) == {"a": True, "b": True, "c": False, "d": False, "e": False}


def test_outputs_are_those_of_the_root():
    program = read(
        "output a = 1\nif **the build is green**:\n  output b = 2\nelse:\n  output b = 3\nblock f:\n  output no = 1\n"
        "parallel:\n  do:\n    output c = 4\nlet q = do:\n  output d = 1\nlet p = [1] | map:\n  output e = item\n"
        "try:\n  output f = 1\ncatch:\n  output g = 2\nfinally:\n  output h = 3\n"
        'choice **what to do next**:\n  option "x":\n    output i = 1\n'
    )
    assert contract(program).outputs == ("a", "b", "c", "d", "e", "f", "g", "h", "i")


@pytest.mark.parametrize(
    ("text", "outputs"),
    [
        ("output { a: 1, b: 2 }\n", ("a", "b")),
        ('output session "a task for someone"\n', ("result",)),
        ("return { a: 1 }\n", ("a",)),
        ("let x = 1\nif x == 1:\n  return x\noutput y = 2\n", ("result", "y")),
        ("return\n", ()),
        ('exec "ls"\n', ()),
    ],
)
def test_anonymous_outputs(text, outputs):
    assert contract(read(text)).outputs == outputs


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("  output a = 1\n  if **the build is green**:\n    output b = 2\n", ("a", "b")),
        ('  parallel:\n    a = exec "x"\n    exec "y"\n    b = exec "z"\n', ("a", "b")),
        ('  parallel:\n    a = exec "x"\n  exec "y"\n', ()),
        ('  output o = 1\n  parallel:\n    a = exec "x"\n', ("o",)),
        ("  let a = 1\n  output a\n", ()),
    ],
)
def test_soft_exports_of_a_block(body, names):
    assert block_exports(first("block f:\n" + body, tree.Block)) == names


def test_names_of_a_block():
    block = first(
        "block f(p, q):\n  let { a, b } = p\n  for x, i in q:\n    c = x\n  repeat 2 as r:\n    let d = r\n"
        '  try:\n    exec "x"\n  catch as e:\n    throw e\n  parallel:\n    g = exec "y"\n  input h: "?"\n'
        "  let k = [1] | reduce(l, m):\n    l\n  output n = 1\n",
        tree.Block,
    )
    assert block_names(block) == frozenset("pqabxicrdeghklmn") | {"item"}


@pytest.mark.parametrize(
    ("value", "memory"),
    [
        ("true", "true"),
        ("false", None),
        ("project", "project"),
        ("user", "user"),
        ('"notes/"', "notes/"),
        ('"project"', "project"),
        ("forever", None),
        ("3", None),
    ],
)
def test_persistence(value, memory):
    assert persistence(first(f"agent a:\n  persist: {value}\n", tree.Agent)) == memory


def test_no_persistence():
    assert persistence(first('agent a:\n  prompt: "p"\n', tree.Agent)) is None


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("http://x.org/a.prose", "remote"),
        ("https://x.org/a", "remote"),
        ("https://", "bad"),
        ("@dana/outline", "remote"),
        ("@dana", "bad"),
        ("./a.prose", "local"),
        ("../a", "local"),
        ("/a/b/c", "local"),
        ("~/a.prose", "local"),
        ("a/b/c.prose", "local"),
        ("c.prose", "local"),
        ("dana/outline", "remote"),
        ("dana/out line", "bad"),
        ("a/b/c", "remote"),
        ("a/b/c/d-1", "remote"),
        ("a//c", "bad"),
        ("a/b/", "bad"),
        ("alone", "local"),
    ],
)
def test_places_of_paths(path, place):
    assert place_of(path) == place


def test_strict_reads_one_kind_of_path_differently():
    assert place_of("examples/xx.prose", "strict") == "remote"
    assert place_of("./examples/xx.prose", "strict") == "local"
    assert place_of("xx.prose", "strict") == "local"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("dana/outline", "outline"),
        ("@dana/out-line", "out-line"),
        ("./shared/tidy.prose", "tidy"),
        ("https://x.org/p/fix.prose?v=1", "fix"),
        ("./my file.prose", None),
        ("./1st.prose", None),
        ("./", None),
    ],
)
def test_slugs(path, name):
    assert slug(path) == name
