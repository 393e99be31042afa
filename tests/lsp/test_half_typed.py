"""No request of an editor fails for any unfinished text, and all answers are inside the text."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lsp.editor import Editor
from lsprotocol import types

from prose_kernel.cli.compile import compile_file
from prose_kernel.lsp import language_features
from prose_kernel.lsp.names import RenameRefused, definition, references, rename

ROOT = Path(__file__).parents[2]


@cache
def programs() -> list[tuple[str, str]]:
    """Return the short programs of the corpus, with their suffixes."""
    paths = [*(ROOT / "tests" / "corpus").rglob("*.prose"), *(ROOT / "tests" / "corpus").rglob("*.vvm")]
    paths += (ROOT / "prose_kernel" / "examples").glob("*.[pv]*")
    texts = [(path.suffix, path.read_bytes().decode(errors="replace")) for path in sorted(paths)]
    return [(suffix, text) for suffix, text in texts if len(text) < 4_000]


def test_a49_every_prefix_of_a_match_on_errors_is_accepted() -> None:
    text = 'match v:\n  case error(kind="a"):\n    x = 1\n  case error(_):\n    x = 2\n'
    for end in range(len(text)):
        ask_all(".vvm", text[:end], end)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_all_features_accept_any_text(tmp_path_factory: object, data: st.DataObject) -> None:
    suffix, text = data.draw(st.sampled_from(programs()))
    end = data.draw(st.integers(0, len(text)))
    begin = data.draw(st.integers(0, end)) if data.draw(st.booleans()) else 0
    rubbish = data.draw(st.sampled_from(["", "", "\r\n", "😀", '"', "`", "{", "\u2028", "\x00", "\ud800"]))
    ask_all(suffix, text[begin:end] + rubbish, data.draw(st.integers(0, end - begin + len(rubbish))))


def ask_all(suffix: str, text: str, at: int) -> None:
    editor = Editor(Path("/nowhere"))
    document = editor.open(f"a{suffix}", text)
    offset = min(at, len(document.source.text))
    place = editor.position(document, offset)
    inside = document.text.end
    whole = types.Range(types.Position(0, 0), types.Position(*inside))
    ranges = [one.range for one in language_features.diagnostics(document)]
    ranges += [one.range for one in language_features.document_symbols(document)]
    for action in language_features.code_actions(document, types.Range(place, place)):
        assert action.edit is not None
        ranges += [edit.range for edit in (action.edit.changes or {})[document.uri]]
    for item in language_features.completion(document, place).items:
        assert isinstance(item.text_edit, types.TextEdit)
        ranges.append(item.text_edit.range)
    for one in ranges:
        assert whole.start <= one.start <= one.end <= whole.end, (one, whole)
    language_features.hover(editor.documents, document, place)
    language_features.semantic_tokens(document)
    assert all(fold.start_line < fold.end_line <= inside.line for fold in language_features.folding(document))
    if "#" not in text:
        language_features.formatting(document)
    definition(editor.documents, document, offset)
    occurrence = document.index.at(offset)
    if occurrence is not None:
        assert references(editor.documents, document, occurrence)
        with suppress(RenameRefused):
            rename(editor.documents, document, offset, "fresh_name")


@pytest.mark.parametrize("folder", ["compile", "vvm/compile"])
def test_a49_findings_have_the_messages_of_prose_compile(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = ROOT / "tests" / "corpus" / folder
    monkeypatch.chdir(directory)
    for path in sorted(directory.glob("*.[pv]*")):
        with suppress(UnicodeDecodeError):
            document = Editor(directory).open(path.name, path.read_bytes().decode())
            compiled = [(d.code, d.message) for d in compile_file(path.name).diagnostics if not d.file]
            assert [(d.code, d.message) for d in language_features.diagnostics(document)][: len(compiled)] == compiled
