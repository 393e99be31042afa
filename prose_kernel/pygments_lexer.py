"""Colours for OpenProse in everything that uses Pygments: nbconvert, Sphinx, terminals."""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import RegexLexer, bygroups, include, words  # type: ignore[import-untyped]
from pygments.token import Comment, Generic, Keyword, Name, Number, Operator, Punctuation, String, Text  # type: ignore[import-untyped]

_NAME = r"[A-Za-z_](?:[A-Za-z0-9_]|-(?=[A-Za-z0-9_]))*"
_HEADER = r"(?:session|resume|parallel|do|try|catch|finally|else|loop|output|if|elif)[ \t]*:"
_STATEMENTS = [
    "session",
    "resume",
    "exec",
    "gate",
    "input",
    "output",
    "agent",
    "block",
    "do",
    "use",
    "import",
    "let",
    "const",
    "parallel",
    "for",
    "repeat",
    "loop",
    "if",
    "elif",
    "else",
    "choice",
    "option",
    "try",
    "catch",
    "finally",
    "throw",
    "return",
    "break",
    "continue",
    "assert",
]
_WORDS = ("as", "in", "until", "while", "from", "map", "pmap", "filter", "reduce", "and", "or", "not", "is")


class ProseLexer(RegexLexer):  # type: ignore[misc]
    """OpenProse. Keywords are soft: before `=`, `.` or `,` a word is a name."""

    name = "OpenProse"
    aliases: ClassVar[list[str]] = ["prose", "openprose"]
    filenames: ClassVar[list[str]] = ["*.prose"]
    mimetypes: ClassVar[list[str]] = ["text/x-prose"]
    url = "https://github.com/openprose/prose"

    tokens: ClassVar[dict[str, list[object]]] = {
        "root": [
            (r"^%.*$", Comment.Preproc),
            (r"#.*$", Comment.Single),
            (r'"""', String.Double, "triple"),
            (r'"', String.Double, "string"),
            (r"\*\*\*", Generic.Emph, "marker3"),
            (r"\*\*", Generic.Emph, "marker2"),
            (rf"^([ \t]*)(agent|block|gate)([ \t]+)({_NAME})", bygroups(Text, Keyword.Declaration, Text, Name.Class)),
            (rf"^([ \t]+)(?!{_HEADER})({_NAME})([ \t]*)(:)(?=\s)", bygroups(Text, Name.Attribute, Text, Punctuation)),
            (r"\n|[ \t]+", Text.Whitespace),
            (words(("true", "false", "null"), suffix=r"(?![\w-])"), Keyword.Constant),
            (words(_STATEMENTS, prefix=r"(?<![\w.-])", suffix=r"(?![\w-])(?![ \t]*[=.,])"), Keyword),
            (words(_WORDS, prefix=r"(?<![\w.-])", suffix=r"(?![\w-])(?![ \t]*[=.,:])"), Operator.Word),
            (words(("map", "pmap", "filter"), prefix=r"(?<=\| )", suffix=r"(?=[ \t]*:)"), Operator.Word),
            (r"\d+(?:\.\d+)?(?:ms|s|m|h|d)?(?![\w])", Number),
            (r"->|\||==|!=|<=|>=|[=<>+-]", Operator),
            (r"[()\[\]{}:,.]", Punctuation),
            (_NAME, Name),
            (r".", Text),
        ],
        "inner": [
            (r"\\.", String.Escape),
            (rf"\{{{_NAME}(?:\.{_NAME}|\[(?:\d+|{_NAME})\])*\}}(?!\}})", String.Interpol),
            (r"\{{2,}", String),  # braces next to braces are text
        ],
        "string": [include("inner"), (r'"|$', String.Double, "#pop"), (r'[^"\\{\n]+|\{', String.Double)],
        "triple": [include("inner"), (r'"{3,}', String.Double, "#pop"), (r'[^"\\{]+|["{\\]', String.Double)],
        "marker2": [include("inner"), (r"\*\*", Generic.Emph, "#pop"), (r"[^*\\{]+|[*{\\]", Generic.Emph)],
        "marker3": [include("inner"), (r"\*\*\*", Generic.Emph, "#pop"), (r"[^*\\{]+|[*{\\]", Generic.Emph)],
    }
