"""Definitions, references and renames across files."""

from __future__ import annotations

from pathlib import Path

import pytest
from lsp.editor import Editor

from prose_kernel.lsp.names import RenameRefused, renamable_name

LIB = 'input topic: "?"\noutput summary = session "About {topic}"\n'
MAIN = 'use "./lib.prose" as lib\nlet r = lib(topic: "x")\noutput y = "{r.summary}"\n'
TEAM = "agent reviewer()\ndef review(text, level):\n  return text\nexport review\nexport @reviewer\n"
USER = 'from "./team.vvm" import review\nfrom "./team.vvm" import @reviewer as second\nx = review(1, level=2)\ny = @second `z`(x)\nexport pack(x, y)\n'


@pytest.fixture
def editor(tmp_path: Path) -> Editor:
    one = Editor(tmp_path)
    for name, text in {"lib.prose": LIB, "main.prose": MAIN, "team.vvm": TEAM, "user.vvm": USER}.items():
        one.write(name, text)
    return one


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("main.prose", MAIN.replace("let r", "let ^r"), ("main.prose", 2, "r")),
        ("main.prose", MAIN.replace("{r.", "{^r."), ("main.prose", 2, "r")),
        ("main.prose", MAIN.replace("= lib(", "= l^ib("), ("lib.prose", 1, "")),
        ("main.prose", MAIN.replace('"./lib', '"./l^ib'), ("lib.prose", 1, "")),
        ("main.prose", MAIN.replace("topic", "to^pic"), ("lib.prose", 1, "topic")),
        ("main.prose", MAIN.replace("summary", "^summary"), ("lib.prose", 2, "summary")),
        ("user.vvm", USER.replace("= review(", "= ^review("), ("team.vvm", 2, "review")),
        ("user.vvm", USER.replace("import review", "import ^review"), ("team.vvm", 2, "review")),
        ("user.vvm", USER.replace("level=", "^level="), ("team.vvm", 2, "level")),
        ("user.vvm", USER.replace("@second `", "@^second `"), ("team.vvm", 1, "reviewer")),
        ("a.prose", "let x = 1\nx = 2\noutput y = ^x\n", ("a.prose", 1, "x")),
        ("a.prose", 'use "./none.prose" as n\nlet r = ^n()\n', ("a.prose", 1, "n")),
        ("a.prose", "let x = 1 ^ \n", None),
        ("a.prose", "let y = [1] | map: ^item\n", None),
    ],
)
def test_definitions_are_found(editor: Editor, name: str, text: str, wanted: tuple[str, int, str] | None) -> None:
    assert editor.definition(name, text) == wanted


def test_references_are_found_in_every_file_of_the_workspace(editor: Editor) -> None:
    assert editor.references("lib.prose", LIB.replace("summary", "^summary")) == [
        ("lib.prose", 2, 8), ("main.prose", 3, 16),
    ]  # fmt: skip
    from_import = editor.references("user.vvm", USER.replace("= review", "= ^review"))
    assert from_import == [("user.vvm", 1, 26), ("user.vvm", 3, 5), ("team.vvm", 2, 5), ("team.vvm", 4, 8)]
    assert editor.references("team.vvm", TEAM.replace("agent rev", "agent ^rev")) == [
        ("team.vvm", 1, 7), ("team.vvm", 5, 9), ("user.vvm", 2, 27),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "new", "changed"),
    [
        ("main.prose", MAIN.replace("let r", "let ^r"), "result", {"main.prose": MAIN.replace("let r", "let result").replace("{r.", "{result.")}),
        ("lib.prose", LIB.replace("input top", "input ^top"), "theme", {"lib.prose": LIB.replace("topic", "theme"), "main.prose": MAIN.replace("topic", "theme")}),
        ("main.prose", MAIN.replace("{r.su", "{r.^su"), "short", {"lib.prose": LIB.replace("summary", "short"), "main.prose": MAIN.replace("summary", "short")}),
        ("user.vvm", USER.replace("= review", "= ^review"), "judge", {"team.vvm": TEAM.replace("review(", "judge(").replace("export review", "export judge"), "user.vvm": USER.replace("import review", "import judge").replace("= review", "= judge")}),
        ("team.vvm", TEAM.replace("level", "^level"), "depth", {"team.vvm": TEAM.replace("level", "depth"), "user.vvm": USER.replace("level", "depth")}),
        ("user.vvm", USER.replace("as second", "as ^second"), "third", {"user.vvm": USER.replace("second", "third")}),
        ("a.prose", 'use "./lib.prose"\nlet r = ^lib(topic: "x")\n', "l", {"a.prose": 'use "./lib.prose" as l\nlet r = l(topic: "x")\n'}),
        ("a.prose", "let a = 1\nlet o = {^a, b: a}\n", "c", {"a.prose": "let c = 1\nlet o = {a: c, b: c}\n"}),
        ("a.vvm", "a = 1\nb = 2\nx = pack(^a, b, it)\nexport x\n", "c", {"a.vvm": "c = 1\nb = 2\nx = pack(a=c, b=b, it=it)\nexport x\n"}),
        ("a.prose", "let x = 1\noutput y = ^x\n", "x", {}),
    ],
)  # fmt: skip
def test_a_rename_changes_all_files(editor: Editor, name: str, text: str, new: str, changed: dict[str, str]) -> None:
    assert editor.rename(name, text, new) == changed


@pytest.mark.parametrize(
    ("name", "text", "new", "reason"),
    [
        ("a.prose", "let ^a = 1\nlet b = a\n", "b", "`b` does not fit: `b` is already declared here (a.prose, line 2) [E019]"),
        ("a.prose", "let ^a = 1\nfor b in [1]:\n  output c = a\n", "b", "`b` is the name of another parameter already (line 2)"),
        ("a.prose", "let a = 1\nblock f(^b):\n  output c = a + b\ndo f(1)\n", "a", "`a` is the name of another variable already (line 1)"),
        ("a.prose", "let ^a = 1\n", "b c", "`b c` does not fit: unexpected `c` (a.prose, line 1) [E004]"),
        ("a.prose", "let ^a = 1\n", "", "`` does not fit: unexpected `=` (a.prose, line 1) [E004]"),
        ("a.prose", "let ^a = 1\n", "b = 2\nlet a", "`b = 2\nlet a` would mean something else, or is not a name (line 1)"),
        ("a.vvm", "a = 1\nb = ^a\nexport b\n", "b", "`b` is the name of another variable already (line 2)"),
        ("a.vvm", "def f(^a):\n  return a\nx = f(1)\nexport x\n", "if", "`if` does not fit: `if` is a reserved word, not a name (a.vvm, line 1) [V010]"),
        ("user.vvm", USER.replace("as second", "as ^second"), "review", None),
        ("a.prose", "let y = [1] | map: ^item\n", "x", "`item` is a name of the language"),
        ("a.prose", "l^et y = 1\n", "x", "only names of variables, parameters, agents, blocks, functions, imports and gates can be changed"),
    ],
)  # fmt: skip
def test_a_rename_that_would_collide_is_refused(
    editor: Editor, name: str, text: str, new: str, reason: str | None
) -> None:
    if reason is None:  # agents and functions may have the same names
        assert editor.rename(name, text, new)
        return
    with pytest.raises(RenameRefused) as refused:
        editor.rename(name, text, new)
    assert str(refused.value) == reason


def test_a_rename_that_would_collide_in_another_file_is_refused(editor: Editor) -> None:
    editor.write("user.vvm", USER.replace("x = review", "judge = 1\nx = review"))
    with pytest.raises(RenameRefused):
        editor.rename("team.vvm", TEAM.replace("def rev", "def ^rev"), "judge")


def test_open_documents_replace_files_on_disk(editor: Editor) -> None:
    editor.open("main.prose", "# nothing of lib any more\n")
    assert editor.references("lib.prose", LIB.replace("summary", "^summary")) == [("lib.prose", 2, 8)]


def test_the_name_of_an_import_without_alias_is_offered(editor: Editor) -> None:
    document, offset = editor.at("a.prose", 'use "./l^ib.prose"\n')
    span, name = renamable_name(document, offset)
    assert (document.source.slice(span), name) == ('"./lib.prose"', "lib")


def test_circular_imports_have_references(editor: Editor) -> None:
    editor.write("one.vvm", 'from "./two.vvm" import b\na = b\nexport a\n')
    editor.write("two.vvm", 'from "./one.vvm" import a\nb = a\nexport b\n')
    text = 'from "./one.vvm" import a\nb = a\nexport ^b\n'
    assert ("one.vvm", 1, 25) in editor.references("two.vvm", text)
    assert editor.references("self.vvm", 'from "./self.vvm" import a\nexport ^a\n') == [
        ("self.vvm", 1, 26), ("self.vvm", 2, 8),
    ]  # fmt: skip
