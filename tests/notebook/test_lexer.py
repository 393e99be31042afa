"""Colours: every character keeps its place, and the words of the language are told apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pygments.token import Comment, Generic, Keyword, Name, Number, Operator, String

from prose_kernel.pygments_lexer import ProseLexer

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
