"""The kind of each character in a VVM program by the lexer, with which tests compare highlighters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from prose_kernel.language.source import Source
from prose_kernel.language.vvm.lexer import END, KINDS, LINE, NUMBER, STRING, TEMPLATE, WORD, Tokens
from prose_kernel.language.vvm.names import RESERVED
from prose_kernel.language.vvm.parser import parse
from prose_kernel.runs import reference_pages

ROOT = Path(__file__).parents[3]
_NAMES = {WORD: "name", NUMBER: "number", STRING: "string", TEMPLATE: "template"}


def kinds(text: str) -> list[str]:
    """Return for each character `comment`, `string`, `template`, `number`, `name`, `reserved`, `sign`, or "" (blank).

    A reserved word that is a member, a key or an argument's name is a `name`.
    """
    found = [""] * len(text)
    tokens = Tokens(text)
    texts = [token for token in tokens.texts if token != END]
    code = [at for at, token in enumerate(texts) if token and KINDS.get(token[0]) != LINE]
    after = dict(zip(code, [*code[1:], -1], strict=False))
    before, depth = "", 0
    for at in code:
        token = texts[at]
        kind = _NAMES.get(KINDS.get(token[0], -1), "sign")
        follows = texts[after[at]] if after[at] >= 0 else ""
        if token in RESERVED and before not in (".", "@") and not (depth and follows in ("=", ":")):
            kind = "reserved"
        depth += (token in "([{") - (token in ")]}")
        start = tokens.starts[at]
        found[start : start + len(token)] = [kind] * len(token)
        before = token
    for comment in tokens.comments():
        start, end = comment.span
        found[start:end] = ["comment"] * (end - start)
    return found


def correct_programs() -> Iterator[tuple[str, str]]:
    """Return the programs without syntax errors of the corpus, the examples and the reference. Lines end with LF."""
    for path in [*ROOT.glob("tests/corpus/vvm/**/*.vvm"), *ROOT.glob("prose_kernel/examples/**/*.vvm")]:
        text = path.read_bytes().decode("utf-8", "replace")
        if "\r" not in text and "\t" not in text and "\ufeff" not in text:
            yield path.name, text
    for number, piece in enumerate(reference_pages.text("vvm").split("\n```vvm\n")[1:]):
        yield f"example {number} of the reference", piece.partition("\n```")[0] + "\n"


def without_errors() -> list[tuple[str, str]]:
    return [(name, text) for name, text in correct_programs() if not parse(Source.of(text)).diagnostics]
