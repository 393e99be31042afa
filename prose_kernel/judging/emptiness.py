"""Decides whether a value is empty or given; Unknown if its text may say that there is nothing, or be a placeholder."""

from __future__ import annotations

import re

from prose_kernel.judging import facts
from prose_kernel.runtime.values import ErrorValue, Value

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
    words = (facts.text(value) or "").strip()
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
    data = facts.structure(words)
    if isinstance(data, list | dict):
        return _hollow(data) is not False
    first = re.split(r"[.!?]\s|\n", words, maxsplit=1)[0]
    if len(words) <= _SHORT_PLACEHOLDER and _PLACEHOLDER.search(facts.plain(words)):
        return True
    return len(first) <= SENTENCE and _DENIES.search(facts.plain(first)) is not None


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
    words = (facts.text(value) or "").strip()
    if not words:
        return False
    return None if words in _HOLLOW or _says_nothing(words) else True
