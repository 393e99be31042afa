"""Colours: every character keeps its place, and the words of the language are distinguished."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from language.vvm.character_kinds import kinds as vvm_kinds
from language.vvm.character_kinds import without_errors
from language.vvm.random_trees import commented, programs
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.token import Comment, Generic, Keyword, Name, Number, Operator, Punctuation, String

from prose_kernel.language.pygments_lexer import ProseLexer, VvmLexer
from prose_kernel.language.vvm.formatter import format_program

SAMPLE = '''# a comment
agent writer:
  model: opus
let plan = session "Write {topic} \\n"
  context: [notes, exec]
if **the plan is good** and count >= 3:
  exec """
  echo {plan}
  """
    timeout: "30s"
let exec = plan | map:
  {item}
'''


def kinds(text: str, word: str) -> list[object]:
    return [kind for _, kind, value in ProseLexer().get_tokens_unprocessed(text) if value == word]


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("agent", Keyword.Declaration),
        ("writer", Name.Class),
        ("model", Name.Attribute),
        ("session", Keyword),
        ("{topic}", String.Interpol),
        ("the plan is good", Generic.Emph),
        ("and", Operator.Word),
        ("3", Number),
        ("timeout", Name.Attribute),
        ("# a comment", Comment.Single),
    ],
)
def test_words_have_their_kind(word: str, kind: object) -> None:
    assert kinds(SAMPLE, word) == [kind]


def test_a_soft_keyword_is_a_name_before_an_equals_sign() -> None:
    assert Name in kinds(SAMPLE, "exec") and Keyword in kinds(SAMPLE, "exec")


@given(st.text(alphabet='aexcl "*{}\\#\n|:=->%0'))
def test_nothing_is_lost(text: str) -> None:
    assert "".join(value for _, _, value in ProseLexer().get_tokens_unprocessed(text)) == text


# ---------------------------------------------------------------- VVM

VVM = """# notes
agent scribe(model="small", memory={scope: "a\\n"},)
def note(item):
  text = @scribe `Note \\` {{on}} {item.title}: {}`(it, retry=1)
  return {from: text, "b": [0.5, true, not ?`short`(text)]}
match pmap([1], note):
  case error(kind="timeout"):
    raise "late"
"""
FITS: dict[str, tuple[object, ...]] = {
    "comment": (Comment,),
    "string": (String.Double, String.Escape),
    "template": (String.Backtick, String.Escape, String.Interpol),
    "number": (Number,),
    "name": (Name,),
    "reserved": (Keyword, Operator.Word, Name.Builtin.Pseudo),
    "sign": (Operator, Punctuation, Name.Decorator),
}


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("# notes", Comment.Single),
        ("agent", Keyword.Declaration),
        ("model", Name.Attribute),
        ("scope", Name.Attribute),
        ("from", Name.Attribute),
        ("retry", Name.Attribute),
        ("kind", Name.Attribute),
        ("def", Keyword),
        ("note", Name.Function),
        ("\\n", String.Escape),
        ("{{", String.Escape),
        ("{item.title}", String.Interpol),
        ("it", Name.Builtin.Pseudo),
        ("0.5", Number),
        ("true", Keyword.Constant),
        ("not", Operator.Word),
        ("pmap", Name.Builtin),
        ("error", Keyword),
    ],
)
def test_words_of_vvm_have_their_kind(word: str, kind: object) -> None:
    found = [found for _, found, value in VvmLexer().get_tokens_unprocessed(VVM) if value == word]
    assert found[0] is kind


def test_pygments_knows_the_lexer_by_name_and_by_file() -> None:
    assert isinstance(get_lexer_by_name("vvm"), VvmLexer)
    assert isinstance(get_lexer_for_filename("team.vvm"), VvmLexer)


def misfits(text: str) -> list[str]:
    """Tokens of Pygments that the lexer of the language reads otherwise."""
    told = vvm_kinds(text)
    return [
        f"{value!r} is {kind}, not {sorted(there)}"
        for at, kind, value in VvmLexer().get_tokens_unprocessed(text)
        if (there := {one for one in told[at : at + len(value)] if one})
        and not all(any(kind in fitting for fitting in FITS[one]) for one in there)
    ]


def test_pygments_reads_programs_as_the_language_does() -> None:
    found = without_errors()
    assert len(found) > 40
    assert {name: wrong for name, text in found if (wrong := misfits(text))} == {}


@settings(max_examples=settings().max_examples // 3, deadline=None)
@given(programs.map(format_program).flatmap(commented))
def test_pygments_reads_every_program_as_the_language_does(text: str) -> None:
    assert misfits(text) == []


@given(st.text(alphabet='aexcl "`*{}\\#\n|:=->%0@?'))
def test_nothing_of_vvm_is_lost(text: str) -> None:
    assert "".join(value for _, _, value in VvmLexer().get_tokens_unprocessed(text)) == text
