"""Pygments lexers for OpenProse and VVM, which nbconvert, Sphinx and terminals use for colours."""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import RegexLexer, bygroups, default, include, words  # type: ignore[import-untyped]
from pygments.token import Comment, Generic, Keyword, Name, Number, Operator, Punctuation, String, Text  # type: ignore[import-untyped]

from prose_kernel.language.openprose.keywords import CONTEXTUAL, KEYWORDS
from prose_kernel.language.vvm.names import CONSTANTS, LIBRARY, OPERATORS, RESERVED

_NAME = r"[A-Za-z_](?:[A-Za-z0-9_]|-(?=[A-Za-z0-9_]))*"
_HEADER = r"(?:session|resume|parallel|do|try|catch|finally|else|loop|if|elif)[ \t]*:"
_OPERATORS = ("and", "or", "not", "is")
_STATEMENTS = sorted(KEYWORDS.keys() - {*_OPERATORS})
_WORDS = sorted({*CONTEXTUAL, *_OPERATORS} - {"max"})


class ProseLexer(RegexLexer):  # type: ignore[misc]
    """Lexer for OpenProse. Keywords are soft: before `=`, `.` or `,` a word is a name."""

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
            (r"(?<![\w.-])call(?=[ \t]+[A-Za-z_\"])", Keyword),
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


_ID = r"[A-Za-z_][A-Za-z0-9_]*"


class VvmLexer(RegexLexer):  # type: ignore[misc]
    """Lexer for VVM. Keywords are reserved, except as members, keys of objects and names of arguments."""

    name = "VVM"
    aliases: ClassVar[list[str]] = ["vvm"]
    filenames: ClassVar[list[str]] = ["*.vvm"]
    mimetypes: ClassVar[list[str]] = ["text/x-vvm"]

    tokens: ClassVar[dict[str, list[object]]] = {
        "root": [
            (r"^%.*$", Comment.Preproc),
            (rf"(def)([ \t]+)({_ID})", bygroups(Keyword, Text, Name.Function)),
            (rf"(agent)([ \t]+)({_ID})", bygroups(Keyword.Declaration, Text, Name.Class)),
            include("code"),
        ],
        "code": [
            include("blank"),
            (r'"""', String.Double, "triple"),
            (r'"', String.Double, "string"),
            (r"`", String.Backtick, "template"),
            (r"\.", Punctuation, "member"),
            (r"@", Name.Decorator, "reference"),
            (r"\d+(?:\.\d+)?", Number),
            (words(("true", "false"), suffix=r"\b"), Keyword.Constant),
            (r"it\b", Name.Builtin.Pseudo),
            (words(sorted(OPERATORS), suffix=r"\b"), Operator.Word),
            (words(sorted(RESERVED - OPERATORS - CONSTANTS), suffix=r"\b"), Keyword),
            (words(sorted(LIBRARY), suffix=r"\b"), Name.Builtin),
            (_ID, Name),
            (r"==|!=|<=|>=|[=<>+?-]", Operator),
            (r"[(\[{]", Punctuation, "bracket"),
            (r"[)\]}:,]", Punctuation),
            (r".", Text),
        ],
        "blank": [(r"#.*$", Comment.Single), (r"\s+", Text.Whitespace)],
        "member": [include("blank"), (_ID, Name, "#pop"), default("#pop")],
        "reference": [include("blank"), (_ID, Name.Decorator, "#pop"), default("#pop")],
        "bracket": [
            (rf"{_ID}(?=(?:\s|#.*\n)*(?:=(?!=)|:))", Name.Attribute),
            (r"[)\]}]", Punctuation, "#pop"),
            include("code"),
        ],
        "string": [
            (r"\\(?:u[0-9A-Fa-f]{4}|[^\n])", String.Escape),
            (r'"|$', String.Double, "#pop"),
            (r'[^"\\\n]+|\\', String.Double),
        ],
        "triple": [
            (r"\\(?:u[0-9A-Fa-f]{4}|[\s\S])", String.Escape),
            (r'"""', String.Double, "#pop"),
            (r'[^"\\]+|["\\]', String.Double),
        ],
        "template": [
            (r"\\`|\{\{|\}\}", String.Escape),
            (rf"\{{(?:{_ID}(?:\.{_ID})*)?\}}", String.Interpol),
            (r"`", String.Backtick, "#pop"),
            (r"[^`\\{}]+|[\\{}]", String.Backtick),
        ],
    }


def lexer_of(name: str) -> RegexLexer:
    """Return the lexer of a language; it keeps blank lines as they are."""
    found = next(one for one in (ProseLexer, VvmLexer) if name in one.aliases)
    return found(stripnl=False, ensurenl=False)
