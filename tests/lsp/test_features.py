"""Features for one document: findings, completion, hover, structure, formatting, fixes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lsp.editor import Editor, applied
from lsprotocol import types

from prose_kernel.lsp import language_features


@pytest.fixture
def editor(tmp_path: Path) -> Editor:
    return Editor(tmp_path)


LIB = 'input topic: "?"\ninput tone: "?"\noutput summary = session "About {topic} in {tone}"\n'
TEAM = 'agent reviewer(model="opus")\n# Says what is weak.\ndef review(text, level):\n  return text\nexport review\nexport @reviewer\n'


# ---------------------------------------------------------------- findings


def found(editor: Editor, name: str, text: str) -> list[types.Diagnostic]:
    return language_features.diagnostics(editor.open(name, text))


def test_a_finding_has_its_code_range_hint_and_a_link_to_the_reference(editor: Editor) -> None:
    (one,) = found(editor, "a.prose", 'let colour = 1\noutput x = "😀" + colur\n')
    assert (one.code, one.severity, one.source) == ("E131", types.DiagnosticSeverity.Error, "prose")
    assert one.range == types.Range(types.Position(1, 18), types.Position(1, 23))
    assert [hint.message for hint in one.related_information or ()] == ["hint: did you mean `colour`?"]
    href = one.code_description.href if one.code_description else ""
    assert href.endswith("/reference/openprose/errors.md#e131-undefined-variable")
    page, _, anchor = href.removeprefix("file://").partition("#")
    assert f"e131: {anchor.partition('-')[2].replace('-', ' ')}" in Path(page).read_text(encoding="utf-8").casefold()


def test_findings_of_each_language_link_to_its_page(editor: Editor) -> None:
    (one,) = found(editor, "a.vvm", "x = nobody\nexport x\n")
    assert one.severity == types.DiagnosticSeverity.Warning
    assert one.code_description is not None and "/vvm/errors.md#v701" in one.code_description.href


def test_imports_are_checked_against_files_and_open_documents(editor: Editor) -> None:
    editor.write("lib.prose", LIB)
    text = 'use "./lib.prose" as lib\noutput r = lib(topic: "a")\n'
    assert [one.code for one in found(editor, "a.prose", text)] == ["E026"]
    editor.open("lib.prose", 'input topic: "?"\noutput summary = topic\n')
    assert found(editor, "a.prose", text) == []
    editor.open("lib.prose", "output = 3\n")
    assert [one.code for one in found(editor, "a.prose", text)] == ["E215"]


def test_errors_of_an_imported_module_are_reported_at_its_import_with_their_place(editor: Editor) -> None:
    editor.write("team.vvm", "agent a()\nbreak\n")
    findings = found(editor, "a.vvm", 'x = 1\nfrom "./team.vvm" import @a\nexport x\n')
    (one,) = [one for one in findings if one.code == "V081"]
    assert one.message == "team.vvm has errors, line 2: `break` outside a loop"
    assert one.range.start == types.Position(1, 5)
    (related,) = one.related_information or ()
    assert (Path(related.location.uri).name, related.location.range.start.line) == ("team.vvm", 1)


def test_a_document_without_a_file_is_checked_too(editor: Editor) -> None:
    document = editor.documents.open("untitled:Untitled-1", "x = nobody\n", "vvm")
    assert {one.code for one in language_features.diagnostics(document)} == {"V701", "V530"}
    assert (
        language_features.diagnostics(editor.documents.open("untitled:a", "output a = b\n", "prose"))[0].code == "E131"
    )


def test_cells_of_a_notebook_have_no_findings(editor: Editor) -> None:
    document = editor.documents.open((editor.folder / "a.ipynb").as_uri(), "%bindings\nlet x = 1\nlet x = 2\n", "prose")
    assert language_features.diagnostics(document) == []
    assert "session" in [item.label for item in language_features.completion(document, types.Position(3, 0)).items]


# ---------------------------------------------------------------- completion


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("a.prose", "let colour = 1\noutput x = col^", {"colour"}),
        ("a.prose", 'let colour = 1\nsession "about {^', {"colour"}),
        ("a.prose", 'session: ^\nagent writer:\n  prompt: "x"\n', {"writer"}),
        ("a.prose", 'do ^\nblock tidy:\n  exec "x"\n', {"tidy"}),
        ("a.prose", 'exec "x"\n  time^', {"timeout"}),
        ("a.prose", "sess^", {"session"}),
        ("a.prose", 'use "./lib.prose" as lib\nlet r = lib(^', {"topic: ", "tone: "}),
        ("a.prose", 'use "./lib.prose" as lib\nlet r = lib(topic: "x", ^', {"tone: "}),
        ("a.prose", 'use "./^', {"lib.prose", "folder/"}),
        ("a.vvm", "x = @^\nagent writer()\n", {"writer"}),
        ("a.vvm", "def tidy(a):\n  return a\nx = ti^", {"tidy"}),
        ("a.vvm", "agent w(^", {"model=", "prompt="}),
        ("a.vvm", "x = 1\ny = ?`is {^", {"x"}),
    ],
)
def test_names_options_and_files_are_completed(editor: Editor, name: str, text: str, wanted: set[str]) -> None:
    editor.write("lib.prose", LIB)
    (editor.folder / "folder").mkdir()
    assert wanted <= set(editor.completions(name, text))


def test_comments_and_given_arguments_are_not_completed(editor: Editor) -> None:
    editor.write("lib.prose", LIB)
    assert editor.completions("a.prose", "# sess^") == []
    assert "topic: " not in editor.completions("a.prose", 'use "./lib.prose" as lib\nlet r = lib(topic: "x", ^')


def test_a_completion_replaces_the_typed_text_after_wide_characters(editor: Editor) -> None:
    document, offset = editor.at("a.prose", 'let colour = 1\nlet x = "😀" + colo^')
    item = language_features.completion(document, editor.position(document, offset)).items[0]
    assert isinstance(item.text_edit, types.TextEdit)
    assert applied(document.text, [item.text_edit]) == 'let colour = 1\nlet x = "😀" + colour'


# ---------------------------------------------------------------- hover, structure


@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [
        ("a.prose", 'ex^ec "ls"\n', ["**exec**: Run a shell command"]),
        ("a.prose", 'exec "ls"\n  time^out: "3s"\n', ["**timeout**:"]),
        ("a.prose", 'let log = exec "ls"\noutput x = l^og\n', ["**variable** `log`", 'let log = exec "ls"']),
        ("a.prose", '# Writes.\nagent w:\n  model: opus\nsession: ^w\n', ["**agent** `w`", "  model: opus", "Writes."]),
        ("a.prose", 'block f(a, b):\n  exec "x"\ndo ^f(1, 2)\n', ["**block** `f`", "block f(a, b):"]),
        ("a.prose", 'use "./lib.prose" as lib\nlet r = l^ib(topic: 1, tone: 2)\n', ["**program** `lib` from lib.prose", "input: `topic`, `tone`", "output: `summary`"]),
        ("a.prose", 'use "./lib.prose" as lib\nlet r = lib(to^pic: 1, tone: 2)\n', ["**variable** `topic` from lib.prose", 'input topic: "?"']),
        ("a.vvm", 'from "./team.vvm" import review\nx = re^view(1, 2)\nexport x\n', ["**function** `review` from team.vvm", "def review(text, level):", "Says what is weak."]),
        ("a.vvm", "x = ma^p([1], 2)\n", ["**map**"]),
        ("a.vvm", "wh^ile true:\n  pass\n", ["**while**"]),
    ],
)  # fmt: skip
def test_hover_explains_words_and_names(editor: Editor, name: str, text: str, parts: list[str]) -> None:
    editor.write("lib.prose", LIB)
    editor.write("team.vvm", TEAM)
    shown = editor.hover(name, text)
    assert shown is not None
    for part in parts:
        assert part in shown


@pytest.mark.parametrize("text", ['let x = "ex^ec"\n', "# ex^ec\n", "let x = 1 ^ \n", "^\n"])
def test_words_in_texts_and_comments_have_no_hover(editor: Editor, text: str) -> None:
    assert editor.hover("a.prose", text) is None


def test_document_symbols_are_a_tree(editor: Editor) -> None:
    def tree(found: list[types.DocumentSymbol]) -> list[Any]:
        return [(one.name, one.detail, *([tree(list(one.children))] if one.children else [])) for one in found]

    text = 'agent w:\n  model: opus\nblock f(a):\n  let b = a\n  for c in [1]:\n    output d = c\nlet e = 1\ngate g:\n  prompt: "x"\n'
    assert tree(language_features.document_symbols(editor.open("a.prose", text))) == [
        ("w", "agent"), ("f", "block", [("b", "variable"), ("d", "variable")]), ("e", "variable"), ("g", "gate"),
    ]  # fmt: skip
    text = "agent w()\ndef f(a):\n  def g():\n    x = 1\n    return x\n  return g\ny = f(1)\nexport y\n"
    assert tree(language_features.document_symbols(editor.open("a.vvm", text))) == [
        ("w", "agent"), ("f", "function", [("g", "function", [("x", "variable")])]), ("y", "variable"),
    ]  # fmt: skip


def test_ranges_of_symbols_contain_their_names_and_children(editor: Editor) -> None:
    def check(found: list[types.DocumentSymbol]) -> None:
        for one in found:
            assert one.range.start <= one.selection_range.start <= one.selection_range.end <= one.range.end, one.name
            for child in one.children or ():
                assert one.range.start <= child.range.start and child.range.end <= one.range.end, child.name
            check(list(one.children or ()))

    for path in sorted((Path(__file__).parents[2] / "prose_kernel" / "examples").glob("*.[pv]*")):
        check(language_features.document_symbols(editor.open(path.name, path.read_text(encoding="utf-8"))))


def test_blocks_texts_and_comments_fold(editor: Editor) -> None:
    text = '# one\n# two\nif true:\n  exec """\n  # no comment\n  # at all\n  """\n\nelse:\n  exec "b"\n\n\nagent w:\n  model: opus\n'
    folds = [
        (one.start_line, one.end_line, one.kind) for one in language_features.folding(editor.open("a.prose", text))
    ]
    comment = types.FoldingRangeKind.Comment
    assert folds == [(2, 9, None), (3, 6, None), (12, 13, None), (0, 1, comment)]


def test_semantic_tokens_have_the_kinds_of_names(editor: Editor) -> None:
    document = editor.open(
        "a.prose", "const é😀 = 1\n".replace("é😀", "n") + 'agent w:\n  prompt: "😀{n}"\nsession: w\n'
    )
    data = list(language_features.semantic_tokens(document).data)
    legend = language_features.TOKENS
    line = character = 0
    tokens = []
    for at in range(0, len(data), 5):
        down, right, width, kind, marks = data[at : at + 5]
        line, character = line + down, right + (0 if down else character)
        tokens.append((line, character, width, legend.token_types[kind], marks))
    assert tokens == [(0, 6, 1, "variable", 3), (1, 6, 1, "class", 1), (2, 14, 1, "variable", 2), (3, 9, 1, "class", 0)]


# ---------------------------------------------------------------- formatting and fixes


def formatted(editor: Editor, name: str, raw: str) -> str:
    document = editor.open(name, raw)
    return applied(document.text, language_features.formatting(document))


def test_formatting_keeps_line_ends_and_broken_texts(editor: Editor) -> None:
    assert formatted(editor, "a.prose", 'let   x=exec   "a"\n\n') == 'let x = exec "a"\n'
    assert formatted(editor, "a.prose", "let   x=1\r\n") == "let x = 1\r\n"
    assert formatted(editor, "a.vvm", "x=1 # why\nexport   x\n") == "x = 1  # why\nexport x\n"
    assert formatted(editor, "a.prose", "let   x=\n") == "let   x=\n"  # it has an error


def test_formatting_never_drops_a_comment(editor: Editor) -> None:
    document = editor.open("a.prose", "# why\nlet   x=1\n")
    assert language_features.formatting(document) is None


def test_code_actions_apply_hints(editor: Editor) -> None:
    text = 'let colour = 1\r\nlet d = exec "x"\r\nexec "rm {d} {colur}"\r\n'
    done = dict(editor.after_code_actions("a.prose", text))
    assert done["Change to `colour`"] == text.replace("colur", "colour")
    text = 'let d = exec "x"\r\nexec "rm {d}"\r\n'
    assert dict(editor.after_code_actions("a.prose", text)) == {
        "Pass the values in the environment": 'let d = exec "x"\r\nexec "rm \\"$d\\""\r\n  env: { d }\r\n'
    }


def test_code_actions_belong_to_findings_in_the_range(editor: Editor) -> None:
    document = editor.open("a.prose", "x = 1\ny = 2\n")
    line = types.Range(types.Position(1, 0), types.Position(1, 3))
    (action,) = language_features.code_actions(document, line)
    assert action.title == "Declare it: `let y`" and action.kind == types.CodeActionKind.QuickFix
    assert [one.code for one in action.diagnostics or ()] == ["W135"]


def test_findings_in_indented_fences_of_a_contract_file_have_the_columns_of_the_editor(editor: Editor) -> None:
    first = '  ```prose\n  let a = "😀" + bb\n  return a\n  ```\n'
    second = "    ```prose\n    return (cc\n    ```\n"
    text = f"---\nname: f\nkind: function\n---\n\n### Returns\n\n- `x`: 😀\n\n### Execution\n\n{first}\n## g\n\n### Returns\n\n- `y`: é\n\n### Execution\n\n{second}"
    for mark in ("", "\ufeff"):
        ranges = [(one.code, one.range) for one in found(editor, "f.prose.md", mark + text)]
        assert ranges == [
            ("E131", types.Range(types.Position(12, 17), types.Position(12, 19))),
            ("E105", types.Range(types.Position(25, 11), types.Position(25, 12))),
        ]


def test_scripts_in_a_contract_file_are_checked_and_formatted(editor: Editor) -> None:
    head = "---\nname: {}\nkind: function\n---\n\n### Returns\n\n- `x`\n\n### Execution\n\n```prose\n{}\n```\n"
    editor.write("drafter.prose.md", head.format("drafter", "return 1"))
    text = head.format("f", "let   a = call drafter\nlet b = call draftr\nreturn b")
    (one,) = found(editor, "f.prose.md", text)
    assert (one.code, one.range.start, one.range.end) == ("E313", types.Position(13, 13), types.Position(13, 19))
    text = text.replace("draftr", "drafter")
    document = editor.open("f.prose.md", text)
    assert language_features.diagnostics(document) == []
    assert {symbol.name for symbol in document.index.symbols} >= {"a", "b"}
    assert applied(document.text, language_features.formatting(document)) == text.replace("let   a", "let a")


def test_documents_may_have_the_prosescript_profile(tmp_path: Path) -> None:
    from prose_kernel.lsp.documents import Documents

    documents = Documents(profile="prosescript")
    text = "let ready = 1\nif ready:\n  return {\n    a: 1\n    b: ready\n  }\n"
    document = documents.open((tmp_path / "p.prose").as_uri(), text)
    assert document.compiled.diagnostics == ()
    assert "call" in document.language.words().keywords


# ---------------------------------------------------------------- contract files

NOTES = """\
---
name: notes
kind: function
---

### Parameters

- `topic`: what to write about
- `tone` (default "dry"): how it sounds

### Returns

- `text`: the notes

### Errors

- `empty`: there is nothing to say

### Execution

```prose
let found = call finder
  topic: topic
return "{found} in {tone}"
```

## finder

### Parameters

- `topic`
- `limit` (default 3)

### Returns

- `hits`: what was found
"""
CALLER = """\
---
name: caller
kind: function
---

### Parameters

- `subject`

### Returns

- `text`

### Execution

  ```prose
  %s
  ```

## polish

### Parameters

- `draft`: a text

### Returns

- `text`
"""
CALL = "let a = call notes\n    topic: subject\n  return a"


def test_names_of_functions_and_their_inputs_are_completed(editor: Editor) -> None:
    editor.write("notes.prose.md", NOTES)

    def completions(line: str) -> list[str]:
        return editor.completions("caller.prose.md", CALLER % line)

    assert completions("let a = call ^") == ["caller", "notes", "polish"]
    assert completions("let a = call no^") == ["notes"]
    assert completions("call notes\n    topic: subject\n    t^") == ["tone: ", "timeout: "]
    assert completions("call polish\n    ^")[:2] == ["draft: ", "backoff: "]
    assert "subject" in completions("let a = s^")
    assert editor.completions("caller.prose.md", f"{CALLER % CALL}\ncall ^") == []


def test_hovering_over_a_call_shows_the_contract_of_its_function(editor: Editor) -> None:
    editor.write("notes.prose.md", NOTES)
    shown = editor.hover("caller.prose.md", CALLER % CALL.replace("notes", "no^tes"))
    assert shown is not None
    for part in (
        "notes.prose.md",
        "topic  - what to write about",
        'tone = "dry"',
        "text  - the notes",
        "error   empty",
    ):
        assert part in shown
    shown = editor.hover("caller.prose.md", CALLER % CALL.replace("topic:", "to^pic:"))
    assert shown is not None and "- `topic`: what to write about" in shown


def test_definitions_of_calls_are_nodes_and_list_items(editor: Editor) -> None:
    editor.write("notes.prose.md", NOTES)

    def at(script: str) -> tuple[str, int, str] | None:
        return editor.definition("caller.prose.md", CALLER % script)

    assert at(CALL.replace("notes", "no^tes")) == ("notes.prose.md", 2, "notes")
    assert at(CALL.replace("topic:", "topic^:")) == ("notes.prose.md", 8, "topic")
    assert at(CALL.replace("subject", "subj^ect")) == ("caller.prose.md", 8, "subject")
    assert at("return call po^lish\n    draft: subject") == ("caller.prose.md", 21, "polish")
    assert at('return call "./no^tes.prose.md"\n    topic: "{subject}"') == ("notes.prose.md", 2, "notes")
    assert at('return call polish\n    draft: "{sub^ject}"') == ("caller.prose.md", 8, "subject")


def test_references_to_an_input_are_found_across_files(editor: Editor) -> None:
    editor.write("notes.prose.md", NOTES)
    editor.open("caller.prose.md", CALLER % CALL)
    places = editor.references("notes.prose.md", NOTES.replace("- `topic`: what", "- `top^ic`: what"))
    assert places == [("notes.prose.md", 8, 4), ("notes.prose.md", 23, 10), ("caller.prose.md", 18, 5)]


def test_renaming_an_input_changes_its_list_item_its_uses_and_calls_in_other_files(editor: Editor) -> None:
    editor.write("notes.prose.md", NOTES)
    editor.write("caller.prose.md", CALLER % CALL)
    changed = editor.rename("notes.prose.md", NOTES.replace("- `topic`: what", "- `top^ic`: what"), "theme")
    assert changed["notes.prose.md"] == NOTES.replace("`topic`: what", "`theme`: what").replace(
        ": topic\n", ": theme\n"
    )
    assert changed["caller.prose.md"] == CALLER % CALL.replace("topic:", "theme:")


def test_the_outline_of_a_contract_file_has_its_nodes_sections_and_names(editor: Editor) -> None:
    document = editor.open("notes.prose.md", NOTES)
    own, finder = language_features.document_symbols(document)
    assert (own.name, finder.name) == ("notes", "finder")
    assert [one.name for one in own.children or ()] == ["Parameters", "Returns", "Errors", "Execution"]
    parts = [[one.name for one in section.children or ()] for section in own.children or ()]
    assert parts == [[], ["text"], [], ["found"]]
    assert finder.selection_range.start == types.Position(26, 3)


def test_every_prefix_of_a_contract_file_has_an_outline(editor: Editor) -> None:
    for end in range(0, len(NOTES), 17):
        document = editor.open("half.prose.md", NOTES[:end])
        language_features.document_symbols(document)
        language_features.completion(document, types.Position(*document.text.end))
