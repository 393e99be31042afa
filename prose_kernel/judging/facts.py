"""Facts about a value that need no judgement: emptiness, numbers, counts, exit codes. None means Unknown."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping

from prose_kernel.runtime.structured_text import json_in
from prose_kernel.runtime.value_text import MARK
from prose_kernel.runtime.values import ErrorValue, ExecText, Reference, Value, inserted_text

SHORT = 80  # characters of a value that can be the answer to a question, not a text about it
EXIT_CODE = " exit code"  # suffix of a subject: the exit code of a command

# the answers to a condition that a script or a person may give, case-folded
YES = frozenset(("y", "yes", "true"))
NO = frozenset(("n", "no", "false"))
UNCERTAIN = frozenset(("u", "uncertain", "unknown"))
STUCK = frozenset(("no progress", "no-progress"))

_STEP = re.compile(r"\.([^\W\d]\w*(?:-\w+)*)|\[(\d+)\]")
_NUMBER = re.compile(r"[-+]?(?:[1-9]\d{0,2}(?:,\d{3})+|0|[1-9]\d*)(?:\.\d+)?%?", re.ASCII)
"""Text with leading zeros (`007`, `01234`) is a code, not a number."""
_VERSION = re.compile(r"v?(\d+(?:\.\d+){2,})", re.ASCII)
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_BULLET = re.compile(r"(?:[-*+•]|\d+[.)])\s+\S")
_ANSWER = re.compile(r"(yes|y|true|no|n|false)[.!]?", re.IGNORECASE)
_INVISIBLE = re.compile("[\u00ad\u034f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]")
_PLAIN = {
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b\u2032\u02bc"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb"), '"'),
    **dict.fromkeys(
        map(ord, "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"),
        " ",
    ),
}
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")  # no spaces between words


def resolve(subject: str, bindings: Mapping[str, Value]) -> tuple[bool, Value]:
    """Return whether the path leads to a usable value, and the value; a number literal is its own value."""
    path, wants_exit, _ = subject.partition(EXIT_CODE)
    if path[0].isdigit() or path[0] in "+-":
        literal = number(path)
        return literal is not None, literal[0] if literal else None
    end = re.compile(r"[.\[]").search(path)
    name = path[: end.start()] if end else path
    if name not in bindings:
        return False, None
    value = bindings[name]
    if isinstance(value, Reference):
        value = value.read()
    if is_missing(value):
        return False, None
    for match in _STEP.finditer(path, len(name)):
        found, value = _member(value, match[1]) if match[1] else _element(value, int(match[2]))
        if not found:
            return False, None
    if wants_exit:
        code = exit_code(value)
        return code is not None, code
    return True, value


def _member(value: Value, name: str) -> tuple[bool, Value]:
    match value:
        case ExecText():
            return _exec_member(value, name)
        case ErrorValue():
            data: object = dict(value.fields)
        case Reference() | str():
            data = structure(text(value) or "")
        case _:
            data = value
    if isinstance(data, dict) and name in data:
        return True, data[name]
    if isinstance(data, list) and name in ("count", "length", "size"):
        return True, len(data)
    return False, None


def _exec_member(value: ExecText, name: str) -> tuple[bool, Value]:
    if name == "stdout":
        return True, value
    if value.bare:
        return False, None
    match name:
        case "exit_code":
            code = exit_code(value)
            return code is not None, code
        case "stderr":
            return not value.result.stderr_truncated, value.result.stderr
        case _:
            return False, None


def _element(value: Value, index: int) -> tuple[bool, Value]:
    data = structure(text(value) or "") if isinstance(value, Reference | str) else value
    return (True, data[index]) if isinstance(data, list) and index < len(data) else (False, None)


def structure(text: str) -> Value:
    """Return the JSON array or object in a text, or in its first fenced block; None if there is none."""
    found = json_in(text)
    return found if isinstance(found, list | dict) else None


def is_missing(value: Value) -> bool:
    """Return whether a value does not exist yet: the marker of a dry run, or a collection that contains one."""
    match value:
        case list():
            return any(_marked(element) for element in value)
        case dict():
            return any(_marked(element) for element in value.values())
        case _:
            return MARK in (text(value) or "")


def _marked(value: Value) -> bool:
    if isinstance(value, Reference):
        return MARK in value.summary  # without reading every element's binding
    return MARK in (text(value) or "")


def text(value: Value) -> str | None:
    """Return the value if it is a text, else None."""
    match value:
        case str():
            return value
        case ExecText():
            return value.text.rstrip("\n")
        case Reference():
            return value.read()
        case _:
            return None


def plain(text: str) -> str:
    """Return a text in the form for comparisons: NFC, with straight quotes, plain spaces and newlines."""
    return unicodedata.normalize("NFC", text).translate(_PLAIN).replace("\r\n", "\n")


def looser(text: str) -> str:
    """Return a text without differences that a reader cannot see: invisible characters, widths, variants of letters."""
    return unicodedata.normalize("NFKC", _INVISIBLE.sub("", plain(text)))


def is_complete(value: Value) -> bool:
    """Return whether the text is complete, not cut at 30,000 characters."""
    return not (isinstance(value, ExecText) and value.result.stdout_truncated)


def exit_code(value: Value) -> int | None:
    """Return the exit code of a command; None if it is not reliable: `pytest | tail` always ends with 0."""
    return value.result.exit_code if isinstance(value, ExecText) and not (value.bare or code_hidden(value)) else None


def code_hidden(value: Value) -> bool:
    """Return whether the exit code is a 0 that may hide a failure, judging by the command's text."""
    return isinstance(value, ExecText) and value.result.exit_code == 0 and value.result.code_hidden


def number(value: Value) -> tuple[float, bool] | None:
    """Return the number that a value, or all of its text, is; and whether it is a percentage."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return None if isinstance(value, float) and math.isnan(value) else (value, False)
    content = (text(value) or "").strip()
    if len(content) > SHORT or not _NUMBER.fullmatch(content):
        return None
    digits = content.rstrip("%").replace(",", "")
    return (float(digits) if "." in digits else int(digits)), content.endswith("%")


def version(text: str) -> tuple[int, ...] | None:
    """Return the parts of a version with several dots: `1.10.0`."""
    match = _VERSION.fullmatch(text.strip())
    return tuple(map(int, match[1].split("."))) if match is not None and len(text) <= SHORT else None


def short(value: Value) -> str | None:
    """Return a value that can be an answer: trimmed text of one short line, a number, a boolean; else None."""
    if isinstance(value, list | dict | ErrorValue):
        return None
    shown = "null" if value is None else inserted_text(value).strip()
    return shown if len(shown) <= SHORT and "\n" not in shown else None


def yes_no(value: Value) -> bool | None:
    """Return a boolean, also from a text that is only the answer. Text after a "Yes," may revoke it."""
    if isinstance(value, bool):
        return value
    match = _ANSWER.fullmatch((text(value) or "").strip())
    return match[1].lower() in YES if match is not None else None


def count(value: Value, unit: str) -> tuple[int, int] | None:
    """Return how many words, lines, characters or items a value has: the smallest and the largest count that may be
    meant."""
    if unit == "item":
        items = _items(value)
        return None if items is None else (items, items)
    content = text(value)
    if content is None or not is_complete(value):
        return None
    if len(content) <= SHORT and re.match(r"\W*\d+\W*(?:\w+\W*)?$", content):
        return None  # "120 lines" contains a count, but isn't one
    match unit:
        case "word":
            words = content.split()
            return None if _UNSPACED.search(content) else (sum(any(map(str.isalnum, one)) for one in words), len(words))
        case "line":
            lines = content.strip("\n").split("\n") if content.strip("\n") else []
            return sum(bool(line.strip()) for line in lines), len(lines)
        case _:
            import regex  # a character is a grapheme: a family of emoji, a letter with its accent

            counts = [len(regex.findall(r"\X", one)) for one in (content.strip(), content)]
            return counts[0], counts[1]


def _items(value: Value) -> int | None:
    if isinstance(value, list | dict):
        data: Value = value
    else:
        content = text(value)
        if content is None or not is_complete(value):
            return None
        data = structure(content)
        if data is None:
            return _bullets(content)
    if isinstance(data, dict):  # an object counts as its one list (openprose.md 3.11)
        lists = [field for field in data.values() if isinstance(field, list)]
        data = lists[0] if len(lists) == 1 else None
    return len(data) if isinstance(data, list) else None


def _bullets(content: str) -> int | None:
    """Return the number of items of the one list in a text; None if it may have two, or nested lists."""
    lines = content.rstrip().split("\n")
    marks = [match[0][0] if (match := _BULLET.match(line)) else "" for line in lines]
    listed = [number for number, mark in enumerate(marks) if mark]
    if len(listed) < 2 or len({"1" if marks[number].isdigit() else marks[number] for number in listed}) > 1:
        return None
    inside = lines[listed[0] : listed[-1] + 1]
    return len(listed) if all(_BULLET.match(line) or line[:1] in ("", " ", "\t") for line in inside) else None


def field(value: Value, words: str) -> bool | None:
    """Return the boolean field with this name in an object (`ready to ship` is `ready_to_ship`); None if it has none.

    A text counts only if all of it is such an object: an object in the middle of a text may be about anything.
    """
    data: object = value
    if isinstance(value, str | Reference) and (value_text := (text(value) or "").strip())[:1] == "{":
        data = json_in(value_text) if value_text[-1:] == "}" else None
    if not isinstance(data, dict):
        return None
    names = {words, words.replace(" ", "_"), words.replace(" ", "-")}
    found = {value_text for name, value_text in data.items() if name in names and isinstance(value_text, bool)}
    return found.pop() if len(found) == 1 else None


def is_fast(pattern: str, length: int) -> bool:
    """Return whether matching a regular expression against a text of that length is certainly fast.

    `re` backtracks, and the text of a condition may contain text from a session: a repeated group, many options or
    several open repeats over a long text are left to the next judge.
    """
    bare = re.sub(r"\\.|\[\^?\]?[^\]]*\]", "x", pattern)
    if re.search(r"\)[*+?{]|\(\?P?[=(]", bare) or re.search(r"\\[1-9]", pattern):
        return False
    repeats = len(re.findall(r"[*+{]", bare))
    options = bare.count("?") + bare.count("|")
    return options <= 10 and (repeats == 0 or float(max(length, 1)) ** (repeats + 1) <= 1e8)


# ---------------------------------------------------------------- empty or given

# Unknown if the text may say that there is nothing, or be a placeholder.

SENTENCE = 300  # characters of a first sentence that can say that there is nothing
_HOLLOW = {"[]", "{}", "null", '""'}
_DENIES = re.compile(
    r"\bn/a\b|\bn\.\s?a\.|\b(?:no|not|none|nothing|never|neither|nobody|without|empty|zero|0|missing|absent|nil|null|cannot|unable|lacks?|"
    r"sorry|unfortunately|nowhere|no one|hardly|barely|zilch|nada|zip|void|blank|vacant|unset|unknown|unspecified|"
    r"undefined|undetermined|undecided|unassigned|unavailable|unanswered|pending|placeholder|lorem|tb[acd]|todo|fixme|"
    r"lgtm|omitted|redacted|removed|deleted|skipped|"
    # the same in other languages
    r"kein\w*|nichts?|ohne|leer|entf\wllt|rien|aucune?s?|pas|sans|vide|n\wants?|ningun[ao]?s?|ningún|sin|vac[ií][oa]s?|"
    r"nessun[ao]?|niente|nulla|vuot[oa]|nenhum\w*|sem|vazi[oa]|geen|niets|leeg|zonder|ingen|inget|inga|intet|ikke|inte|tom|"
    r"tomt|ei|eivät|tyhjä|nie|brak|nic|żad\w+|žád\w+|bez|ne|nema|nimic|niciun\w*|nu|fără|nincs\w*|semmi|üres|yok|değil|hiç\w*|"
    r"boş|tidak|kosong|hakuna|wala|không|нет|не|ничего|нету|без|пусто|немає|нічого|няма|нищо|κανέν\w+|τίποτα|δεν|nihil)\b"
    r"|n['’]t\b|^\W*(?:errors?|fail(?:ed|ure)?)\b|[無无没沒空]|なし|ない|ません|없|لا|ليس|אין|नहीं|ไม่",
    re.IGNORECASE,
)
_NOTHING = {
    "", "none", "n/a", "na", "nothing", "nil", "null", "empty", "tbd", "tba", "todo", "unknown", "undefined", "xxx",
}  # fmt: skip
_PLACEHOLDER = re.compile(
    r"<[^<>\n]{1,80}>|\[[^\[\]\n\"]{1,80}\]|\{\{?[^{}\n\":]{1,80}\}?\}|\$\{[^{}\n]+\}|%\w+%|_{3,}|\bx{3,}\b|^\W+$|^\W*\$\w+\W*$"
    r"|\bto be (?:\w+ )?(?:determined|decided|defined|announced|confirmed|discussed|completed|added|filled|written)\b"
    r"|\b(?:insert|your|enter|add|put|fill in|write|type) (?:\w+ ){0,4}here\b|\bcoming soon\b"
    r"|\bsee (?:above|below)\b|\bas above\b"
    r"|\b(?:looks?|all|seems|everything(?: is|'s)?|we(?: are|'re)) (?:good|fine|ok|okay|clear|great|well)\b|\bship it\b"
    r"|^\W*(?:ok|okay|fine|good|great|clean|clear|perfect|pass(?:ed)?|done|default|example|sample|dummy|test)\W*$",
    re.IGNORECASE,
)
"""Texts that may be a placeholder, or that give praise instead of a list: they may mean that there is nothing."""
_SHORT_PLACEHOLDER = 120
_MARKUP = " \t\r\n-*+•—–_#>|`'\"()[]{}<>.,:;!?…\u200b\u200c\u200d\u2060\ufeff"


def empty(value: Value) -> bool | None:
    match value:
        case None:
            return True
        case list() | dict():
            return _hollow(value)
        case bool() | int() | float():
            return False
        case ErrorValue():
            return None
    words = (text(value) or "").strip()
    if not words or words in _HOLLOW:
        return True
    return None if _says_nothing(words) else False


def _hollow(value: list[Value] | dict[str, Value]) -> bool | None:
    """Return whether a collection is empty; None for one that holds only empty values: `{"items": []}`."""
    if not value:
        return True
    parts = value if isinstance(value, list) else value.values()
    return None if all(part is None or part == "" or part == [] or part == {} for part in parts) else False


def _says_nothing(words: str) -> bool:
    """Return whether a text may say that there is nothing: in every line that isn't a heading (`n/a`, "# Findings",
    "None."), in its first sentence ("No files."), or as JSON (`[ ]`)."""
    lines = (line.strip() for line in words.split("\n"))
    if all(line.strip(_MARKUP).casefold() in _NOTHING for line in lines if line[:1] != "#" and line[-1:] != ":"):
        return True
    data = structure(words)
    if isinstance(data, list | dict):
        return _hollow(data) is not False
    first = re.split(r"[.!?]\s|\n", words, maxsplit=1)[0]
    if len(words) <= _SHORT_PLACEHOLDER and _PLACEHOLDER.search(plain(words)):
        return True
    return len(first) <= SENTENCE and _DENIES.search(plain(first)) is not None


def given(value: Value) -> bool | None:
    match value:
        case None:
            return False
        case bool():
            return True if value else None
        case ErrorValue():
            return None
        case list() | dict():
            return True if _hollow(value) is False else None
    if isinstance(value, int | float):
        return True
    words = (text(value) or "").strip()
    if not words:
        return False
    return None if words in _HOLLOW or _says_nothing(words) else True
