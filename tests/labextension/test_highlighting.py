"""Highlighting, indentation and registration by the scripts of the JupyterLab extension, in Node (container.js)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labextension.script import LABEXTENSION, ROOT, Colour, ask, by_offset
from pygments.token import Keyword, Operator

from prose_kernel.language.openprose import compile_source
from prose_kernel.language.openprose.keywords import CONSTANTS, CONTEXTUAL, KEYWORDS
from prose_kernel.language.openprose.lexer import Token, tokenize
from prose_kernel.language.pygments_lexer import ProseLexer
from prose_kernel.language.source import Source


def tokens(text: str) -> list[Colour]:
    return [(line, piece, style) for line, piece, style in ask({"do": "tokens", "text": text})[0]]


def styles(text: str) -> list[tuple[str, str]]:
    return [(piece, style) for _, piece, style in tokens(text) if style]


# ---------------------------------------------------------------- colours

KEY, NAME, NEW, TEXT, PATH, PROPERTY = (
    "keyword",
    "variableName",
    "variableName.definition",
    "string",
    "variableName.special",
    "propertyName",
)
ESCAPE, MARKER, COLON, SIGN = "string.special", "string.special emphasis", "punctuation", "operator"
CONTROL, BETWEEN = "controlKeyword", "controlOperator"  # of the shell

LINES: list[tuple[str, list[tuple[str, str]]]] = [
    ("# let x", [("# let x", "comment")]),
    ("  # x", [("  # x", "comment")]),
    ("%bindings x", [("%bindings x", "meta")]),
    ("%%prose --in x\nexec", [("%%prose --in x", "meta"), ("exec", NAME)]),
    ('use "a" as b', [("use", KEY), ('"a"', TEXT), ("as", KEY), ("b", NEW)]),
    ('import "a" from "b"', [("import", KEY), ('"a"', TEXT), ("from", KEY), ('"b"', TEXT)]),
    ("agent a-b:\n  model: c", [("agent", KEY), ("a-b", NEW), (":", COLON), ("model", PROPERTY), (":", COLON), ("c", NAME)]),
    ('input exec: "?"', [("input", KEY), ("exec", NEW), (":", COLON), ('"?"', TEXT)]),
    ("let exec = 1", [("let", KEY), ("exec", NEW), ("=", SIGN), ("1", "number")]),
    ("exec = 1", [("exec", NAME), ("=", SIGN), ("1", "number")]),
    ("session = x", [("session", NAME), ("=", SIGN), ("x", NAME)]),
    ("session == x", [("session", KEY), ("==", SIGN), ("x", NAME)]),
    ('x = exec "a"', [("x", NAME), ("=", SIGN), ("exec", KEY), ('"a"', TEXT)]),
    ("output x", [("output", KEY), ("x", NAME)]),
    ("output x = y", [("output", KEY), ("x", NEW), ("=", SIGN), ("y", NAME)]),
    ("output session: a", [("output", KEY), ("session", KEY), (":", COLON), ("a", NAME)]),
    ('session "a"\n  output: { b: text }', [("session", KEY), ('"a"', TEXT), ("output", PROPERTY), (":", COLON), ("{", "brace"), ("b", PROPERTY), (":", COLON), ("text", NAME), ("}", "brace")]),
    ("output.x", [("output", NAME), (".", "derefOperator"), ("x", NAME)]),
    ("const {a, b} = c", [("const", KEY), ("{", "brace"), ("a", NEW), (",", "separator"), ("b", NEW), ("}", "brace"), ("=", SIGN), ("c", NAME)]),
    ("a.exec.let", [("a", NAME), (".", "derefOperator"), ("exec", NAME), (".", "derefOperator"), ("let", NAME)]),
    ("for a, in-b in c:", [("for", KEY), ("a", NEW), (",", "separator"), ("in-b", NEW), ("in", KEY), ("c", NAME), (":", COLON)]),
    ("parallel for a in b:", [("parallel", KEY), ("for", KEY), ("a", NEW), ("in", KEY), ("b", NAME), (":", COLON)]),
    ('parallel ("any", count: 1):', [("parallel", KEY), ("(", "paren"), ('"any"', TEXT), (",", "separator"), ("count", PROPERTY), (":", COLON), ("1", "number"), (")", "paren"), (":", COLON)]),
    ("block f(a):", [("block", KEY), ("f", NEW), ("(", "paren"), ("a", NEW), (")", "paren"), (":", COLON)]),
    ("do f(a)", [("do", KEY), ("f", NAME), ("(", "paren"), ("a", NAME), (")", "paren")]),
    ("repeat 3 as i:", [("repeat", KEY), ("3", "number"), ("as", KEY), ("i", NEW), (":", COLON)]),
    ("loop until **a** as i:", [("loop", KEY), ("until", KEY), ("**a**", MARKER), ("as", KEY), ("i", NEW), (":", COLON)]),
    ("catch as e:", [("catch", KEY), ("as", KEY), ("e", NEW), (":", COLON)]),
    ("if not a and b is c:", [("if", KEY), ("not", "operatorKeyword"), ("a", NAME), ("and", "operatorKeyword"), ("b", NAME), ("is", "operatorKeyword"), ("c", NAME), (":", COLON)]),
    ("a | map:", [("a", NAME), ("|", SIGN), ("map", KEY), (":", COLON)]),
    ("a\n  | reduce(b, c):", [("a", NAME), ("|", SIGN), ("reduce", KEY), ("(", "paren"), ("b", NAME), (",", "separator"), ("c", NAME), (")", "paren"), (":", COLON)]),
    ("map = filter", [("map", NAME), ("=", SIGN), ("filter", NAME)]),
    ('exec "a" -> session "b"', [("exec", KEY), ('"a"', TEXT), ("->", SIGN), ("session", KEY), ('"b"', TEXT)]),
    ("parallel:\n  session: session", [("parallel", KEY), (":", COLON), ("session", KEY), (":", COLON), ("session", NAME)]),
    ("gate a:\n  on_reject: retry", [("gate", KEY), ("a", NEW), (":", COLON), ("on_reject", PROPERTY), (":", COLON), ("retry", KEY)]),
    ("x = [true, null, {let: 2.5, if: 90s}]", [("x", NAME), ("=", SIGN), ("[", "squareBracket"), ("true", "bool"), (",", "separator"), ("null", "null"), (",", "separator"), ("{", "brace"), ("let", PROPERTY), (":", COLON), ("2.5", "number"), (",", "separator"), ("if", PROPERTY), (":", COLON), ("90s", "number"), ("}", "brace"), ("]", "squareBracket")]),
    ("depth-1 - 1", [("depth-1", NAME), ("-", SIGN), ("1", "number")]),
    ("wait 2h30m 3x", [("wait", NAME), ("2h30m", "number"), ("3", "number"), ("x", NAME)]),
    # text
    ('throw "a {b.c[0].d} {e f} {} {{g}} {h}}"', [("throw", KEY), ('"a ', TEXT), ("{b.c[0].d}", PATH), (' {e f} {} {{g}} {h}}"', TEXT)]),
    (r'throw "\"\{a}\\{b}"', [("throw", KEY), ('"', TEXT), (r"\"\{", ESCAPE), ("a}", TEXT), ("\\\\", ESCAPE), ("{b}", PATH), ('"', TEXT)]),
    ('throw ""', [("throw", KEY), ('""', TEXT)]),
    ('throw "a # b" # c', [("throw", KEY), ('"a # b"', TEXT), (" # c", "comment")]),
    ('throw "a\nlet b', [("throw", KEY), ('"a', TEXT), ("let", KEY), ("b", NEW)]),
    ('throw "a\n  b {c}"\nlet', [("throw", KEY), ('"a', TEXT), ("  b ", TEXT), ("{c}", PATH), ('"', TEXT), ("let", KEY)]),
    ('exec "a\n  cwd: b', [("exec", KEY), ('"a', TEXT), ("cwd", PROPERTY), (":", COLON), ("b", NAME)]),
    ('session "a:\n  exec ""', [("session", KEY), ('"a:', TEXT), ("exec", KEY), ('""', TEXT)]),
    ('throw """a\n% {b} # "c" """"\nlet', [("throw", KEY), ('"""a', TEXT), ("% ", TEXT), ("{b}", PATH), (' # "c" """"', TEXT), ("let", KEY)]),
    ('throw """\nsession """\nlet\n"""\n"""\nlet', [("throw", KEY), ('"""', TEXT), ('session """', TEXT), ("let", TEXT), ('"""', TEXT), ('"""', TEXT), ("let", KEY)]),
    # commands
    ('exec "if a; then {b} && echo if $x 2>&1; fi"', [("exec", KEY), ('"', TEXT), ("if", CONTROL), (" a", TEXT), (";", BETWEEN), (" ", TEXT), ("then", CONTROL), (" ", TEXT), ("{b}", PATH), (" ", TEXT), ("&&", BETWEEN), (" echo if ", TEXT), ("$x", PATH), (" ", TEXT), ("2>&1;", BETWEEN), (" ", TEXT), ("fi", CONTROL), ('"', TEXT)]),
    ('exec """\nfor f in *; do\n  ls\ndone\n"""\nthrow "for | $x"', [("exec", KEY), ('"""', TEXT), ("for", CONTROL), (" f ", TEXT), ("in", CONTROL), (" *", TEXT), (";", BETWEEN), (" ", TEXT), ("do", CONTROL), ("  ls", TEXT), ("done", CONTROL), ('"""', TEXT), ("throw", KEY), ('"for | $x"', TEXT)]),
    # conditions
    ('if **a "b {c} \\{d}\n* #e**:', [("if", KEY), ('**a "b ', MARKER), ("{c}", PATH), (" \\", MARKER), ("{d}", PATH), ("* #e**", MARKER), (":", COLON)]),
    ("if ***a ** b\nc***:", [("if", KEY), ("***a ** b", MARKER), ("c***", MARKER), (":", COLON)]),
    ("if ****:", [("if", KEY), ("****", MARKER), (":", COLON)]),
    ("if **a\n  x\nelif **b**:", [("if", KEY), ("**a", MARKER), ("  x", MARKER), ("elif", KEY), ("**b**", MARKER), (":", COLON)]),
    # a bracket that was never closed
    ("x = [1,\nlet y = 2", [("x", NAME), ("=", SIGN), ("[", "squareBracket"), ("1", "number"), (",", "separator"), ("let", KEY), ("y", NEW), ("=", SIGN), ("2", "number")]),
]  # fmt: skip


@pytest.fixture(scope="module")
def tokens_of_lines() -> dict[str, list[tuple[str, str]]]:
    """The styled tokens of all texts of `LINES`, from one request."""
    texts = [text for text, _ in LINES]
    answers = ask(*({"do": "tokens", "text": text} for text in texts))
    return {
        text: [(piece, style) for _, piece, style in answer if style]
        for text, answer in zip(texts, answers, strict=True)
    }


@pytest.mark.parametrize(("text", "expected"), LINES, ids=[text for text, _ in LINES])
def test_words_and_text_have_their_styles(
    tokens_of_lines: dict[str, list[tuple[str, str]]], text: str, expected: list[tuple[str, str]]
) -> None:
    assert tokens_of_lines[text] == expected


@settings(max_examples=5, deadline=None)
@given(st.lists(st.text(alphabet='aexcl let if:\n "*{}[]()\\#|=->%.0', max_size=60), min_size=100, max_size=100))
def test_tokens_cover_any_text(texts: list[str]) -> None:
    for text, answer in zip(texts, ask(*({"do": "tokens", "text": t} for t in texts)), strict=True):
        lines = [""] * len(text.split("\n"))
        for line, piece, _ in answer:
            lines[line] += piece
        assert "\n".join(lines) == text


WORDS = """
use: use "a"
import, from: import "a" from "b"
option: option "a":
exec: exec "a"
input: input a: "b"
agent: agent a:
gate: gate a:
block: block a:
resume: resume: a
parallel, for, in: parallel for a in b:
repeat, as: repeat 3 as i:
loop, until: loop until **a**:
while: loop while **a**:
try: try:
catch: catch:
finally: finally:
if: if a:
elif: elif a:
else: else:
do: do a
throw: throw "a"
break: break
continue: continue
output: output a = b
let: let a = b
const: const a = b
session: session "a"
choice: choice **a**:
return: return a
assert: assert a
and, or, not, is: if a and b or not c is d:
map: a | map:
pmap: a | pmap:
filter: a | filter:
reduce: a | reduce(b, c):
true, false, null: a = [true, false, null]
"""
"""Every word of the language, and a line that has it as a keyword."""
LINE_WITH = {
    word: line
    for row in WORDS.strip().split("\n")
    for words, line in [row.split(": ", 1)]
    for word in words.split(", ")
}


def test_the_table_has_all_words_of_the_language() -> None:
    words = {*KEYWORDS, *CONTEXTUAL, *CONSTANTS} - {"max"}  # `(max: 3)` looks like a property
    assert set(LINE_WITH) == words, "add a line with the word to WORDS"


def test_every_word_of_the_language_has_a_colour_in_jupyterlab() -> None:
    answers = ask(*({"do": "tokens", "text": line} for line in LINE_WITH.values()))
    highlighted = {"keyword", "operatorKeyword", "bool", "null"}
    plain = [word for word, found in zip(LINE_WITH, answers, strict=True)
             if not any(piece == word and style in highlighted for _, piece, style in found)]  # fmt: skip
    assert plain == []


def test_every_word_of_the_language_has_a_colour_in_pygments() -> None:
    plain = [word for word, line in LINE_WITH.items()
             if not any(value == word and (kind in Keyword or kind in Operator.Word)
                        for kind, value in ProseLexer().get_tokens(line))]  # fmt: skip
    assert plain == []


# ---------------------------------------------------------------- compared with the lexer of the language


def correct_programs() -> Iterator[tuple[str, str]]:
    """Yield programs without errors, of the package and of the corpus. Lines end with LF."""
    for path in [*ROOT.glob("prose_kernel/examples/**/*.prose"), *ROOT.glob("tests/corpus/**/*.prose")]:
        text = path.read_bytes().decode("utf-8", "replace")
        if "\r" not in text and "\t" not in text and "\0" not in text and compile_source(Source.of(text, path.name)).ok:
            yield path.name, text


WORDS = {KEY, "operatorKeyword"}
BEGINNINGS = {"_NL", "_INDENT", "_DEDENT", "EQUALS", "ARROW", ""}  # the token before a word that can only be a keyword


def differences(text: str, colours: list[str]) -> Iterator[str]:
    seen: set[int] = set()
    before = ""
    for token in tokenize(text):
        if token.end > token.start:
            seen.update(range(token.start, token.end))
            there = {colours[at] for at in range(token.start, min(token.end, len(text))) if text[at] != "\n"}
            if not _agrees(token, text[token.start : token.end], before, there):
                yield f"line {text.count(chr(10), 0, token.start) + 1}: {token.kind} is {sorted(there)}"
        before = token.kind
    for at in set(range(len(text))) - seen:
        if colours[at] not in ("", "comment"):
            yield f"line {text.count(chr(10), 0, at) + 1}: {text[at]!r} is {colours[at]}"


def _agrees(token: Token, word: str, before: str, there: set[str]) -> bool:
    if token.kind == "STRING":
        return there <= {TEXT, ESCAPE, PATH, CONTROL, BETWEEN}
    if token.kind == "DISCRETION":
        return there <= {MARKER, PATH}
    if not token.word:
        return not there & WORDS
    if word in CONTEXTUAL or word == "retry":
        return there <= {*WORDS, NAME, NEW, PROPERTY}
    if token.kind not in KEYWORDS.values():
        return there <= {NAME, NEW, PROPERTY}
    return there <= WORDS if before in BEGINNINGS else there <= {*WORDS, NAME, NEW, PROPERTY}


def test_tokens_of_programs_agree_with_the_lexer() -> None:
    programs = list(correct_programs())
    assert len(programs) > 300
    answers = ask(*({"do": "tokens", "text": text} for _, text in programs))
    wrong = {
        name: found
        for (name, text), answer in zip(programs, answers, strict=True)
        if (found := list(differences(text, by_offset(text, answer))))
    }
    assert wrong == {}


# ---------------------------------------------------------------- indentation


@pytest.mark.parametrize(
    ("text", "after", "typed", "column"),
    [
        ("if x:", "", None, 2),
        ("if x: # why", "", None, 2),
        ("if x:\n  # why\n", "", None, 2),
        ("exec ':'", "", None, 0),
        ('exec "a:"', "", None, 0),
        ("try:\n  x\nif x:", "", None, 2),  # as deep as the text's own blocks
        ("a:\n   b:\n      c", "", None, 6),
        ("x\n  | map:", "", None, 4),
        ("x = [", "", None, 2),
        ("x = [\n  {", "", None, 4),
        ("x = [1,\n     {", "", None, 7),  # aligned, not the indentation of a block
        ("x = [\n  1,", "]", None, 0),
        ('x = """\n  a', "", None, None),  # text keeps the indentation of its line
        ("if x:\n  y", "else:", None, 0),
        ("if x:\n  if y:\n    z", "elif", None, 2),
        ("if x:\n  if y:\n    z", "else:", "      else:", 2),
        ("if x:\n  if y:\n    z", "else:", "else:", 0),  # a person has indented it
        ("try:\n  if y:\n    z", "catch:", None, 0),
        ("try:\n  x\ncatch:\n  y", "finally:", None, 0),
        ("p:\n  a = try:\n    x", "catch:", "    catch:", 2),
        ("x", "else:", None, None),
        ("%%prose", "", None, 0),
    ],
)
def test_a_new_line_has_the_expected_indentation(text: str, after: str, typed: str | None, column: int | None) -> None:
    question = {"do": "indent", "text": text, "after": after}
    assert ask(question if typed is None else {**question, "typed": typed}) == [column]


def test_a_complete_arm_is_indented_again() -> None:
    lines = ["  else:", "  elif x:", "  catch as e:", "  finally:", "  ]", "  elsewhere", "  else", "  x = else:"]
    assert ask(*({"do": "reindents", "line": line} for line in lines)) == [True] * 5 + [False] * 3


# ---------------------------------------------------------------- registration in JupyterLab


def test_languages_are_registered_under_the_names_of_the_kernels() -> None:
    from prose_kernel.notebook.notebook_files import language_info
    from prose_kernel.runs.languages import LANGUAGES

    plugins = ask({"do": "plugins"})[0]
    assert len(plugins["languages"]) == len(LANGUAGES)
    for one in LANGUAGES.values():
        info = language_info(one)
        language = plugins["languages"][one.magic]
        assert language["name"] == info["codemirror_mode"]["name"]
        assert language["mime"] == info["mimetype"]
        assert [f".{extension}" for extension in language["extensions"]] == [info["file_extension"]]
    assert plugins["prose-kernel:language"] == ["languages"] and plugins["prose-kernel:magics"] == ["extensions"]
    assert plugins["prose-kernel:figures"] == ["rendermime"]
    assert plugins["prose-kernel:freshness"] == plugins["prose-kernel:panel"] == ["notebooks"]
    assert plugins["languageData"] == [{"line": "#"}] * 2


def test_figures_for_a_person_are_shown_from_the_metadata() -> None:
    question = {"do": "shown", "mime": "text/markdown", "data": {"text/markdown": "saved", "text/plain": "saved"}}
    with_figures = {"prose": {"person": {"text/markdown": "3 s"}}}
    personal, without, strange, other = ask(
        {**question, "metadata": with_figures},
        {**question, "metadata": {}},
        {**question, "metadata": {"prose": {"person": {"text/markdown": 3}}}},
        {**question, "mime": "image/svg+xml", "data": {"image/svg+xml": "saved"}, "metadata": with_figures},
    )
    assert personal == {"data": {"text/markdown": "3 s", "text/plain": "saved"}, "rank": 60, "safe": True}
    assert without["data"] == strange["data"] == question["data"]
    assert other == {"data": {"image/svg+xml": "saved"}, "rank": 60, "safe": False}  # still sanitised


def test_the_first_line_of_a_cell_determines_its_language() -> None:
    found = {
        "": None,
        "%%prose": "prose",
        "%%prose --in x\nlet": "prose",
        "%%vvm": "vvm",
        "import os": None,
        "\n  %%prose": "prose",
        "\n  %%vvm --state filesystem\nx = 1": "vvm",
        "%%prosecco": None,
        "%%vvm ": "vvm",
        "%%vvm-x": None,
        "%%python": None,
        "x\n%%prose": None,
    }
    assert ask({"do": "cell", "texts": list(found)})[0] == list(found.values())


# ---------------------------------------------------------------- the files


def hashes(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/labextension.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_file_names_have_the_hashes_of_the_files() -> None:
    done = hashes("--check")
    assert (done.returncode, done.stderr) == (0, ""), "run `python scripts/labextension.py`"


def test_an_edited_file_needs_another_hash(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(LABEXTENSION, tmp_path / "labextension"))
    loader = next((copy / "static").glob("remoteEntry*.js"))
    for edited in (loader, copy / "static/plugins/figures.js"):
        edited.write_text(edited.read_text("utf-8") + "\n", "utf-8")
    done = hashes("--check", str(copy))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 3
    assert hashes(str(copy)).returncode == 0
    new = next((copy / "static").glob("remoteEntry*.js"))
    assert new.name != loader.name
    assert (
        json.loads((copy / "package.json").read_text("utf-8"))["jupyterlab"]["_build"]["load"] == f"static/{new.name}"
    )
    assert hashes("--check", str(copy)).returncode == 0


def test_a_failing_plugin_does_not_affect_the_others(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(LABEXTENSION, tmp_path / "labextension"))
    (copy / "static/plugins/figures.js").write_text("export default async () => { throw new Error('no'); };\n")
    found, warnings = ask({"do": "plugins"}, {"do": "warnings"}, of=copy)
    assert "prose-kernel:language" in found
    assert "prose-kernel:figures" not in found
    assert "prose-kernel: plugins/figures.js cannot be used: Error: no" in warnings


def test_the_extension_has_the_version_of_the_package() -> None:
    import prose_kernel

    assert json.loads((LABEXTENSION / "package.json").read_text("utf-8"))["version"] == prose_kernel.__version__
    assert json.loads((LABEXTENSION / "install.json").read_text("utf-8"))["packageName"] == "prose_kernel"
