"""Compare the outputs of a cell with the committed ones: their order, errors, and every MIME type.

Streams between two other outputs count as one output with two texts, because the order in which stdout and stderr of a
command mix is undefined. The order of other outputs matters. Metadata, execution counts and tracebacks are ignored.
Rules of a sanitize file are applied to both sides, as in nbval.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from msgspec import Struct

from prose_kernel.access import plain_files
from prose_kernel.errors import UsageError, reason_of
from prose_kernel.views.escaping import clip
from prose_kernel.views.test_results import StateDifference, Statement, difference

Output = dict[str, Any]
"""An output in the form of a notebook file."""

IGNORED = frozenset({"application/vnd.jupyter.widget-view+json"})  # the ids of models are random
FIRST = ("text/plain", "text/markdown", "text/html")
"""If several MIME types differ, the first one of these is shown."""
ALIGNED = 400
"""The most outputs of a cell that are aligned; with more, only the first differences are shown."""
_ENCLOSED_LINE = re.compile(r" at line (\d+), column (\d+):")


class Comparable(Struct, frozen=True):
    """An output that is compared.

    `texts` are its texts by kind (`stdout`, a MIME type, `evalue`), `statements` the possible statements of the output,
    each with the name that it bound. `pieces` are those of printed text: stream, text, statement.
    """

    kind: str
    texts: Mapping[str, str]
    raw: Output
    statements: tuple[tuple[str, Statement], ...] = ()
    pieces: tuple[tuple[str, str, Statement | None], ...] = ()


class Rules:
    """Replacements that are made on both sides before the comparison. Raises `UsageError` for an invalid file."""

    def __init__(self, files: Iterable[str] = ()) -> None:
        found: dict[str, str] = {}
        for name in files:
            found.update(_rules_of(name))
        self._rules = tuple((re.compile(expression), by) for expression, by in found.items())

    def __call__(self, text: str) -> str:
        for expression, by in self._rules:
            text = expression.sub(by, text)
        return text


def _rules_of(name: str) -> dict[str, str]:
    """Return the rules of a file in the format of nbval: a line `regex: …`, then a line `replace: …`."""
    try:
        lines = plain_files.read_named(name, plain_files.SMALL).decode().splitlines()
    except (OSError, ValueError) as problem:
        reason = reason_of(problem, "it is not UTF-8 text")
        raise UsageError(f"cannot read {name}: {reason}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.startswith("regex:"):
            continue
        below = lines[number] if number < len(lines) else ""
        if not below.startswith("replace:"):
            raise UsageError(f"{name}, line {number}: the next line does not begin with `replace:`")
        expression, by = line.removeprefix("regex:").lstrip(" "), below.removeprefix("replace:").lstrip(" ")
        try:
            re.compile(expression).sub(by, "")
            re.sub(f"(?:{expression})?", by, "")
        except (re.error, IndexError) as problem:
            raise UsageError(f"{name}, line {number}: {expression!r} isn't a regular expression: {problem}") from None
        found[expression] = by
    return found


# ---------------------------------------------------------------- the outputs of one side


def comparable(outputs: Sequence[Output], rules: Rules, origins: Mapping[int, Any] | None = None) -> list[Comparable]:
    """Return outputs in the form in which they are compared; `origins` has their statements by index."""
    found: list[Comparable] = []
    origins = origins or {}
    streams: dict[str, str] = {}
    pieces: list[tuple[str, str, Statement | None]] = []
    for number, output in enumerate(outputs):
        kind = output.get("output_type")
        if kind == "stream":
            name = str(output.get("name", "stdout"))
            streams[name] = streams.get(name, "") + joined(output.get("text", ""))
            at = origins.get(number, ())
            pieces.append((name, joined(output.get("text", "")), at[0][1] if at else None))
            continue
        if streams:
            found.append(_stream(streams, pieces, rules))
            streams, pieces = {}, []
        if kind == "error":
            texts = {name: rules(str(output.get(name, ""))) for name in ("ename", "evalue")}
        else:
            texts = dict(_texts(output.get("data") or {}, rules))
        found.append(Comparable(str(kind), texts, output, tuple(origins.get(number, ()))))
    return [*found, _stream(streams, pieces, rules)] if streams else found


def _stream(streams: Mapping[str, str], pieces: list[tuple[str, str, Statement | None]], rules: Rules) -> Comparable:
    texts = {name: rules(folded(text)) for name, text in sorted(streams.items()) if text}
    return Comparable("stream", texts, {}, pieces=tuple(pieces))


def folded(text: str) -> str:
    """Return the text of a stream without parts that a carriage return has overwritten."""
    return "\n".join(line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n"))


def _texts(data: Mapping[str, Any], rules: Rules) -> Iterator[tuple[str, str]]:
    for mime, value in sorted(data.items()):
        if mime in IGNORED:
            continue
        text = joined(value) if isinstance(value, str | list) else json.dumps(value, indent=1, sort_keys=True)
        yield mime, text.strip("\n") if _is_bytes(mime) else rules(text)


def _is_bytes(mime: str) -> bool:
    return mime.startswith(("image/", "audio/", "video/")) and not mime.endswith("+xml")


def joined(text: object) -> str:
    """Return a text of a notebook file, which may be a list of lines, as one string."""
    return "".join(map(str, text)) if isinstance(text, list) else str(text)


# ---------------------------------------------------------------- both sides


def compare(expected: Sequence[Comparable], actual: Sequence[Comparable]) -> list[StateDifference]:
    """Return the differences, in order."""
    begin = 0
    while begin < min(len(expected), len(actual)) and _same(expected[begin], actual[begin]):
        begin += 1
    want, got = expected[begin:], actual[begin:]
    if len(want) + len(got) > ALIGNED:
        return [_differs(a, b) for a, b in zip(want, got, strict=False) if not _same(a, b)][:3] or [
            StateDifference(f"{len(got):,} outputs instead of {len(want):,}", saved=True)
        ]
    keys = [(one.kind, *one.texts.items()) for one in want], [(one.kind, *one.texts.items()) for one in got]
    removed: list[Comparable] = []
    added: list[Comparable] = []
    found: list[StateDifference] = []
    for what, i, j, k, m in SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        if what == "equal":
            continue
        paired, old, new = _pairs(want[i:j], got[k:m])
        found += [_differs(a, b) for a, b in paired]
        removed += old
        added += new
    for one in list(removed):
        moved = next((other for other in added if _same(one, other)), None)
        if moved is not None:
            removed.remove(one)
            added.remove(moved)
            found.append(_moved(moved, actual))
    return [*found, *map(_missing, removed), *map(_unexpected, added)]


def _same(one: Comparable, other: Comparable) -> bool:
    return one.kind == other.kind and one.texts == other.texts


def _pairs(
    want: Sequence[Comparable], got: Sequence[Comparable]
) -> tuple[list[tuple[Comparable, Comparable]], list[Comparable], list[Comparable]]:
    """Return pairs of outputs of the same kind, in order, and the outputs of each side without a partner."""
    rest = list(got)
    paired, alone = [], []
    for one in want:
        partner = next((other for other in rest if other.kind == one.kind), None)
        if partner is None:
            alone.append(one)
        else:
            paired.append((one, partner))
            rest.remove(partner)
    return paired, alone, rest


_WORDS = {"stream": "printed text", "display_data": "display", "execute_result": "result", "error": "error"}


def _name(one: Comparable) -> str:
    return f"{_WORDS.get(one.kind, one.kind)} ({', '.join(one.texts) or 'empty'})"


def _differs(expected: Comparable, actual: Comparable) -> StateDifference:
    if expected.kind == "error":
        return _other_error(expected, actual)
    names = [name for name in {**expected.texts, **actual.texts} if expected.texts.get(name) != actual.texts.get(name)]
    if expected.kind != "stream" and expected.texts.keys() != actual.texts.keys():
        was, now = (", ".join(one.texts) or "nothing" for one in (expected, actual))
        return StateDifference(
            f"the {_WORDS[expected.kind]} has other types: {now} instead of {was}", _statement(actual), saved=True
        )
    if not names:
        return StateDifference(f"{_name(actual)} instead of {_name(expected)}", _statement(actual), saved=True)
    name = next((mime for mime in FIRST if mime in names), names[0])
    was, now = expected.texts.get(name, ""), actual.texts.get(name, "")
    what = f"{_WORDS[expected.kind]} differs ({', '.join(names)})" if expected.kind != "stream" else f"{name} differs"
    if _is_bytes(name):
        detail: tuple[str, ...] = (f"- {_size(was)}", f"+ {_size(now)}")
    else:
        detail = difference(was, now)
    return StateDifference(what, _statement(actual, detail, name), detail, saved=True)


def _size(data: str) -> str:
    try:
        return f"{len(base64.b64decode(data)):,} bytes"
    except (binascii.Error, ValueError):
        return f"{len(data):,} characters"


def _other_error(expected: Comparable, actual: Comparable) -> StateDifference:
    (was, old), (now, new) = ((one.texts["ename"], one.texts["evalue"]) for one in (expected, actual))
    message = f"the error differs: {now} instead of {was}" if was != now else f"the error differs: {now}"
    return StateDifference(message, _statement(actual) or _place_of_error(actual.raw), difference(old, new), saved=True)


def _missing(one: Comparable) -> StateDifference:
    if one.kind == "error":
        error = f"{one.texts['ename']}: {clip(one.texts['evalue'], 200)}"
        return StateDifference(f"the expected error did not come: {error}", _place_of_error(one.raw))
    return StateDifference(f"missing: {_name(one)}", detail=difference(_text(one), ""), saved=True)


def _unexpected(one: Comparable) -> StateDifference:
    if one.kind == "error":
        return failed(one.raw)
    return StateDifference(f"not committed: {_name(one)}", _statement(one), difference("", _text(one)), saved=True)


def _moved(one: Comparable, actual: Sequence[Comparable]) -> StateDifference:
    at = next(number for number, other in enumerate(actual) if other is one)
    order = f"comes after the {_name(actual[at - 1])}" if at else "comes first"
    return StateDifference(f"another order: the {_name(one)} {order}", _statement(one), saved=True)


def _text(one: Comparable) -> str:
    name = next((name for name in (*FIRST, *one.texts) if name in one.texts), "")
    text = one.texts.get(name, "")
    return _size(text) if _is_bytes(name) else text


def failed(error: Output) -> StateDifference:
    """Return the finding for an unexpected error, with the text that the cell shows."""
    lines = [line for text in error.get("traceback", ()) for line in joined(text).split("\n")]
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    shown = lines[:30] if lines else [f"{error.get('ename')}: {error.get('evalue')}"]
    finding = "the cell failed, and it has no tag raises-exception"
    return StateDifference(finding, detail=tuple(clip(line, 600) for line in shown))


def _place_of_error(error: Output) -> Statement | None:
    """Return the line, column and source line in a committed error."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(map(joined, error.get("traceback", ()))))
    found = _ENCLOSED_LINE.search(text)
    if found is None:
        return None
    below = text[found.end() :].split("\n")[1:2]
    line = below[0].removeprefix("  ") if below else ""
    return Statement(int(found[1]), int(found[2]), line)


def _statement(one: Comparable, detail: Sequence[str] = (), stream: str = "") -> Statement | None:
    """Return the statement of an output. If there are several, it is the one that printed the first unexpected line, or
    whose name begins a changed line."""
    came = next((line[2:] for line in detail if line.startswith("+ ") and line[2:].strip()), "")
    if one.kind == "stream":
        pieces = [(text, at) for name, text, at in one.pieces if name == (stream or name)]
        return next((at for text, at in pieces if came in text), pieces[0][1] if pieces else None)
    words = {word.rstrip(":") for line in detail if line[:1] in "-+" for word in line[1:].split()[:1]}
    named = (at for name, at in one.statements if name in words)
    return next(named, one.statements[0][1] if one.statements else None)
