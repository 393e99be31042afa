"""Decides whether a cell is complete, and completes keywords, names and properties at the cursor.

The parser determines the possible keywords. The line of the cursor and the lines that enclose it determine names,
properties and the contents of texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from prose_kernel.language import typed_answers
from prose_kernel.language.diagnostics import PROSESCRIPT_PROFILES, Profile
from prose_kernel.language.incomplete_text import Completeness, code_only, literals, unfinished
from prose_kernel.language.openprose import keywords
from prose_kernel.language.openprose.call_targets import MODIFIERS, CallTarget, CallTargets
from prose_kernel.language.openprose.checker import schema_without_field
from prose_kernel.language.openprose.lexer import LAYOUT
from prose_kernel.language.openprose.parser import Parser, parse
from prose_kernel.language.openprose.program_interface import KnownNames
from prose_kernel.language.source import Source
from prose_kernel.language.structs import replace
from prose_kernel.language.word_catalogue import Completion, Offer, catalogue

_words: Final = partial(catalogue, "openprose")
_DELIMITERS: Final = ("***", "**")
_NAME: Final = r"[A-Za-z_][\w-]*"
_BEGIN: Final = r"(?<![\w-])(?:[^\WA-Za-z_]|-)*"
"""The beginning of a word. Without it, a search would try each letter of a long word, which takes quadratic time."""
_WORD: Final = re.compile(rf"{_BEGIN}({_NAME})\Z")
_STILL_COMING = frozenset({"E003", "E180", "E190"})
"""Errors that later lines may resolve: a missing prompt, `catch` or `option`."""


def completeness(text: str, profile: Profile = "default") -> tuple[Completeness, str]:
    """Return whether a cell is complete, and for an incomplete one the indentation of its next line."""
    parsed = parse(Source(text), profile)
    codes = {found.code for found in parsed.diagnostics if found.severity == "error"}
    found = unfinished(text, parsed, invalid=bool(codes - _STILL_COMING))
    return found or ("complete" if not codes else "incomplete" if codes == {"E180"} else "invalid", "")


def complete(
    text: str,
    inside: str,
    start: int,
    known: KnownNames | None,
    values: Mapping[str, Any],
    profile: Profile = "default",
) -> Completion:
    """Complete the end of `text`, which is in code, or inside a string or marker that begins at `start`."""
    known = known or KnownNames()
    if (fields := _fields(known, text, inside, values)) is not None:
        return fields
    if inside in ("string", "triple"):
        return _in_text(known, text, start)
    if inside == "marker":
        return _interpolated(known, text) or Completion(len(text))
    line = text[text.rfind("\n") + 1 :]
    word = _WORD.search(line)
    begin = len(text) - len(word[1]) if word else len(text)
    if profile in PROSESCRIPT_PROFILES and (called := _call_offers(known, text[:begin])) is not None:
        return Completion(begin, called)
    offers = _code(known, text[:begin], line[: len(line) - (len(text) - begin)])
    if profile in PROSESCRIPT_PROFILES:
        terminals = expected(text[:begin], profile)
        words = [word for word, kind in keywords.SCRIPT_WORDS.items() if kind in terminals]
        offers += [Offer(word, "keyword", _words().script_keywords[word].summary) for word in words]
    return Completion(begin, offers)


# ---------------------------------------------------------------- calls

_CALLING: Final = r"(?:\A[ \t]*|[=:][ \t]*|\breturn[ \t]+)call[ \t]+"
_CALL: Final = re.compile(rf'{_CALLING}(?:"(?P<path>[^"\n]*)"|(?P<name>{_NAME}))[ \t]*(?:#.*)?\Z')
"""Matches a line that ends with a call."""
_USE: Final = re.compile(rf'^[ \t]*use[ \t]+"([^"\n]*)"[ \t]+as[ \t]+({_NAME})', re.MULTILINE)


def call_target_in(line: str, before: str, targets: CallTargets) -> CallTarget | None:
    """Return the target of the call at the end of a line, None without one; `before` is the text up to the call."""
    call = _CALL.search(line)
    if call is None:
        return None
    name = call["path"] if call["path"] is not None else call["name"]
    found = targets.find(name, _uses(before), path=call["path"] is not None)
    return found if isinstance(found, CallTarget) else None


def _uses(before: str) -> dict[str, str]:
    return {alias: path for path, alias in _USE.findall(before)}


def with_call_targets(known: KnownNames | None, targets: CallTargets) -> KnownNames:
    return replace(known or KnownNames(), targets=targets)


def describe_call(text: str, offset: int, targets: CallTargets) -> str:
    """Describe the call target at an offset, or the input at an offset below its call; "" for anything else."""
    end = text.find("\n", offset)
    start = offset
    while start > 0 and re.match(r'[\w"./-]', text[start - 1]):
        start -= 1
    name = re.compile(rf'"[^"\n]*"|{_NAME}').match(text, start)
    if name is None:
        return ""
    head = text[text.rfind("\n", 0, start) + 1 : start]
    if re.search(rf"{_CALLING}\Z", head):
        target = call_target_in(head + name[0], text[:start], targets)
        return target.about if target is not None else ""
    if head.strip() or text[name.end() : name.end() + 1] != ":" or end == 0:
        return ""
    target = _enclosing_call(text[:start], targets)[0]
    about = target.about.split("\n") if target is not None else []
    return next((line.strip() for line in about if line.split()[:2] == ["input", name[0]]), "")


def _call_offers(known: KnownNames, before: str) -> list[Offer] | None:
    """Offer names after `call`, and inputs in the block below one; None elsewhere."""
    if known.targets is None:
        return None
    head = before[before.rfind("\n") + 1 :]
    if re.search(rf"{_CALLING}\Z", head):
        return [Offer(name, "function", "can be called") for name in known.targets.names(_uses(before))]
    if head.strip() or not head:
        return None
    target, given = _enclosing_call(before, known.targets)
    if target is None:
        return None
    notes = {one.name: "optional" if one.optional else f"of {target.name}" for one in target.inputs}
    declared = [Offer(f"{name}: ", "property", note) for name, note in notes.items() if name not in given]
    session = () if target.has_script else ("prompt", "context")
    more = [name for name in (*MODIFIERS, "model", "timeout", *session) if name not in notes and name not in given]
    return [*declared, *(Offer(f"{name}: ", "keyword", "modifies the call") for name in more)]


def _enclosing_call(before: str, targets: CallTargets) -> tuple[CallTarget | None, set[str]]:
    """Return the target of the call whose block contains the last line of `before`, and the inputs given above that
    line."""
    *lines, head = before.split("\n")
    given: set[str] = set()
    for line in reversed(lines):
        if line.strip() and _indent(line) < _indent(head):
            return call_target_in(line, before, targets), given
        given.add(line.partition(":")[0].strip())
    return None, given


# ---------------------------------------------------------------- fields and types of typed answers

_MEMBER: Final = re.compile(rf"(?:{_BEGIN}{_NAME}|\])\.((?:{_NAME})?)\Z")
_PROBE_FIELD: Final = "field-that-the-cursor-asks-for"
_IN_TEXTS: Final = {"string": ('}"',), "triple": ('}"""',)}
_IN_CODE: Final = ("", ")", "]", ":\n  BODY", "\n  BODY", " is 1:\n  BODY")
"""Endings that may complete the statement before the cursor."""


def _fields(known: KnownNames, text: str, inside: str, values: Mapping[str, Any]) -> Completion | None:
    """Complete the fields of the value before the dot that ends a text; None if no fields are known.

    To find the schema of a typed answer, the text is checked with a field that cannot exist (`schema_without_field`).
    """
    member = _MEMBER.search(text)
    if member is None or inside == "marker":
        return None
    begin = member.start(1)
    body = " " * _indent(text[text.rfind("\n") + 1 :]) + '  exec "true"'
    for ending in _IN_TEXTS.get(inside, _IN_CODE):
        source = Source(text[:begin] + _PROBE_FIELD + ending.replace("  BODY", body))
        schema = schema_without_field(parse(source).program, source, known, _PROBE_FIELD)
        if schema is not None:
            names = typed_answers.fields_of(schema) or ()
            types = [typed_answers.type_words(typed_answers.field(schema, name) or {}) for name in names]
            return Completion(begin, [Offer(name, "property", kind) for name, kind in zip(names, types, strict=True)])
    outputs = _outputs(known, text[:begin], values)
    return Completion(begin, [Offer(name, "property") for name in outputs]) if outputs else None


def _outputs(known: KnownNames, text: str, values: Mapping[str, Any]) -> list[str]:
    """Return the fields of the name before the dot that ends `text`: an object of an earlier cell, or a program's
    result."""
    named = re.search(rf"{_BEGIN}({_NAME})\.\Z", text)
    if named is None:
        return []
    calls = re.findall(rf"^[ \t]*(?:(?:let|const|output)[ \t]+)?{named[1]}[ \t]*=[ \t]*({_NAME})[ \t]*\(", text, re.M)
    contract = known.programs.get(calls[-1]) if calls else None
    if contract is not None:
        return list(contract.outputs or ())
    value = values.get(named[1])
    return [name for name in value if re.fullmatch(_NAME, name)] if isinstance(value, dict) else []


def _is_type(before: str, code: str, head: str) -> bool:
    """Return whether the cursor is at a type: in the object after `output:`, or after a field in its block."""
    if re.search(r"\boutput[ \t]*:[ \t]*\{[^}]*[:\[][ \t]*\Z", before):
        return True
    if not re.match(rf"[ \t]*{_NAME}[ \t]*:(?:.*[:\[])?[ \t]*\Z", head):
        return False
    return re.match(r"[ \t]*output[ \t]*:[ \t]*\Z", _enclosing(before, code, _indent(head))) is not None


# ---------------------------------------------------------------- names


_DECLARED = re.compile(
    rf"^[ \t]*(?:let|const|output|input)[ \t]+({_NAME})|^[ \t]*({_NAME})[ \t]*=(?!=)|\bas[ \t]+({_NAME})"
    rf"|\bfor[ \t]+({_NAME})(?:[ \t]*,[ \t]*({_NAME}))?[ \t]+in\b",
    re.M,
)
_BLOCK = re.compile(rf"block[ \t]+{_NAME}")
_PARAMETERS = re.compile(rf"^[ \t]*block[ \t]+{_NAME}[ \t]*\(([^)\n]*)", re.M)


def _variables(known: KnownNames, code: str) -> list[Offer]:
    """Offer the variables of earlier cells, and those declared in the code before the cursor."""
    code = _in_scope(code)
    found = [name for groups in _DECLARED.findall(code) for name in groups if name]
    found += [name for group in _PARAMETERS.findall(code) for name in re.findall(_NAME, group)]
    matches = [Offer(name, "variable", "declared above") for name in dict.fromkeys(found)]
    matches += [Offer(name, "variable", variable.kind) for name, variable in known.variables.items()]
    matches += [Offer(name, "variable") for name in sorted(known.soft_exports)]
    return matches


def _in_scope(code: str) -> str:
    """Return the code before the cursor without closed blocks, whose names are out of scope."""
    kept: list[str] = []
    block: list[str] = []
    for line in code.split("\n"):
        if line[:1] not in ("", " ", "\t"):
            block = []
        if block or _BLOCK.match(line):
            block.append(line)
        else:
            kept.append(line)
    return "\n".join(kept + block if block and block[-1][:1] in (" ", "\t") else kept)


def _registered(known: KnownNames, code: str, word: str, registry: str) -> list[Offer]:
    found = re.findall(rf"^[ \t]*{word}[ \t]+({_NAME})", code, re.M)
    found += list(getattr(known, registry))
    return [Offer(name, word) for name in dict.fromkeys(found)]


# ---------------------------------------------------------------- code


def _code(known: KnownNames, before: str, head: str) -> list[Offer]:
    """Complete a word in code; `before` is the text before the word, `head` the part of it on the cursor's line."""
    stripped = head.strip()
    code = code_only(before, _DELIMITERS)
    if re.search(r"\b(session|resume)[ \t]*(?:[\w-]+[ \t]*)?:\s*\Z", head):
        return _registered(known, code, "agent", "agents")
    if re.search(r"\bdo[ \t]+\Z", head):
        return _registered(known, code, "block", "blocks")
    if re.search(r"^[ \t]*(?:let|const|agent|block|gate|input)[ \t]+\Z|\bas[ \t]+\Z|\bfor[ \t]+\Z", head):
        return []  # a new name
    if _is_type(before, code, head):
        return [Offer(word, "keyword", "type of a field") for word in typed_answers.WORDS]
    owner = _owner_of(before, code)
    if owner and (named := re.match(rf"[ \t]*({_NAME})[ \t]*:[ \t]*(\[[^\]]*)?\Z", head)):
        return _property_values(known, code, named[1])
    if (call := re.search(r"\b(parallel|loop)\b[^()\n]*\([^()\n]*\Z", head)) is not None:
        return _modifiers(call[1], head)
    inputs = _inputs(known, head)
    return [*inputs, *_expected(known, before, code, owner if stripped == "" else None)]


def _inputs(known: KnownNames, head: str) -> list[Offer]:
    """Offer the inputs of the program whose call contains the cursor, if an input name is possible there."""
    call = re.search(rf"{_BEGIN}({_NAME})[ \t]*\((?:[^()]*,)?[ \t]*\Z", head)
    contract = known.programs.get(call[1]) if call else None
    if call is None or contract is None:
        return []
    given = set(re.findall(rf"({_NAME})[ \t]*:", call[0]))
    return [Offer(f"{name}: ", "property", f"of {call[1]}") for name in contract.inputs if name not in given]


def _expected(known: KnownNames, before: str, code: str, owner: str | None) -> list[Offer]:
    """Offer what the grammar allows after `before`: properties, keywords, and names in place of values."""
    terminals = expected(before)
    properties = [(name, entry) for name, entry in _words().properties.items() if owner in entry.owners]
    offers = [Offer(name, "property", entry.summary) for name, entry in properties]
    offers += [_keyword(word) for word in _words().keywords if word.upper() in terminals and word != "import"]
    if "CONSTANT" in terminals:
        offers += _variables(known, code)
        offers += [Offer(name, "program") for name in dict.fromkeys([*_uses(before), *known.programs])]
        offers += [_keyword(word) for word in ("true", "false", "null")]
    return offers


def expected(text: str, profile: Profile = "default") -> frozenset[str]:
    """Return the terminals of grammar.lark that can follow `text`, which ends at a cursor.

    A word directly before the cursor counts as not yet written. Terminals are keywords in capitals, `NAME`, `STRING`,
    `DISCRETION`, signs such as `COLON`, and layout such as `_NL`.
    """
    stem = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
    if len(stem) > _MAX_PARSED and (stem := _last_lines(_shortened(stem))) == "":
        return frozenset()
    parser = Parser(Source(f"{stem}x"), profile)
    tokens = [token for chunk in parser.lexer.chunks() for token in chunk]
    stop = next((i for i, t in enumerate(tokens) if t[0] not in LAYOUT and t[2] > len(stem)), len(tokens))
    if stop and tokens[stop - 1][0] == "NAME":
        _, start, end, name = tokens[stop - 1]
        if name.id in keywords.KEYWORDS:  # the next token, which would make it a keyword, isn't written yet
            tokens[stop - 1] = (keywords.KEYWORDS[name.id], start, end, name.id)
    parser.read(tokens, end=tokens[stop] if stop < len(tokens) else None)
    return parser.acceptable()


_MAX_PARSED: Final = 50_000
"""How many characters of code before a cursor are parsed, and how many of the headers that enclose them."""
_LONG_LITERAL: Final = 20
"""The length from which a literal is replaced by a short one."""
_LINE: Final = re.compile(r"^([ \t]*)([^\s)\]}]\w*)", re.M)
_ARMS: Final = frozenset({"elif", "else", "catch", "finally"})
_BRACKET: Final = re.compile(r"[()\[\]{}\n]")


def _shortened(text: str) -> str:
    """Replace each long string by a short one; the contents of strings don't matter for what can follow."""
    parts, at = [], 0
    for region in literals(text, _DELIMITERS):
        if region.kind in ("string", "triple") and region.closed and region.end - region.start > _LONG_LITERAL:
            quotes = text[region.start : region.start + (3 if region.kind == "triple" else 1)]
            parts += [text[at : region.start], f"{quotes}x{quotes}"]
            at = region.end
    return "".join([*parts, text[at:]])


def _last_lines(text: str) -> str:
    """Return the last lines of a long text, preceded by the headers of their blocks; "" if the last line is too long.

    A literal with several lines is part of one line here, and counts as one character.
    """
    code = _layout(text)
    start, left = len(code) + 1, _MAX_PARSED
    while start > 0:
        begin = code.rfind("\n", 0, start - 1) + 1
        left -= _cost(code[begin : start - 1]) + 1
        if left < 0:
            break
        start = begin
    return _headers(text, code, start) + text[start:] if start <= len(code) else ""


def _headers(text: str, code: str, start: int) -> str:
    """Return the headers that enclose the line at `start`. Above an arm such as `catch`, its statement is kept with a
    short body."""
    found: list[str] = []
    first = _LINE.search(code, start)
    low, arm = (len(first[1]), first[2] in _ARMS) if first is not None else (len(code), False)
    left, end = _MAX_PARSED, start - 1
    while end > 0 and (low > 0 or arm):
        begin = code.rfind("\n", 0, end) + 1
        line = _LINE.match(code, begin, end)
        if line is not None and len(line[1]) < low + arm:
            stop = min(_end(code, begin, left), start)
            left -= _cost(code[begin:stop]) + 1
            if left < 0:
                break
            found += [f"{line[1]}  return\n"] if len(line[1]) == low else []
            found.append(text[begin:stop])
            low, arm = len(line[1]), line[2] in _ARMS
        end = begin - 1
    return "".join(reversed(found))


def _layout(text: str) -> str:
    """Replace each literal by its first character and spaces, so that offsets stay and a literal is on one line."""
    parts, at = [], 0
    for region in literals(text, _DELIMITERS):
        sign = "" if region.kind == "comment" else text[region.start]
        parts += [text[at : region.start], sign.ljust(region.end - region.start)]
        at = region.end
    return "".join([*parts, text[at:]])


def _cost(code: str) -> int:
    return len("".join(code.split()))


def _end(code: str, begin: int, most: int) -> int:
    """Return the offset after the line at `begin`, including the lines that its open brackets join to it."""
    depth = 0
    for sign in _BRACKET.finditer(code, begin, begin + most):
        depth += 1 if sign[0] in "([{" else -1 if sign[0] in ")]}" else 0
        if sign[0] == "\n" and depth <= 0:
            return sign.end()
    return code.find("\n", begin) + 1


def _keyword(word: str) -> Offer:
    return Offer(word, "keyword", _words().keywords[word].summary)


def _modifiers(word: str, head: str) -> list[Offer]:
    if re.search(r"on-fail\s*:\s*\Z", head):
        return [Offer(f'"{v}"', "value") for v in ("fail-fast", "continue", "ignore")]
    if word == "parallel":
        strategies = [Offer(f'"{v}"', "value") for v in ("all", "first", "any")]
        return [*strategies, Offer("on-fail", "property"), Offer("count", "property")]
    return [Offer("max", "property", _words().properties["max"].summary)]


def _property_values(known: KnownNames, code: str, name: str) -> list[Offer]:
    entry = _words().properties.get(name.replace("on_fail", "on-fail").replace("on-reject", "on_reject"))
    values = [Offer(value, "value") for value in entry.values] if entry else []
    if name == "context":
        values += _variables(known, code)
    if name == "on_reject":
        values += [_keyword("throw"), _keyword("continue"), _keyword("session")]
    return values


def _owner_of(before: str, code: str) -> str | None:
    """Return the keyword of the statement that owns the properties of the cursor's line: the last spawn, agent or gate
    on the nearest line above that is indented less."""
    line = _enclosing(before, code, len(before) - before.rfind("\n") - 1)
    return next(iter(re.findall(r"\b(?:session|resume|exec|agent|gate)\b", line)[::-1]), None)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _enclosing(before: str, code: str, width: int) -> str:
    last = before[before.rfind("\n") + 1 :]
    width = min(width, _indent(last) if last.strip() else len(last))
    for line in reversed(code.split("\n")[:-1]):
        if _indent(line) < width and line.strip():
            return line.strip()
    return ""


# ---------------------------------------------------------------- texts


def _in_text(known: KnownNames, text: str, start: int) -> Completion:
    if (found := _interpolated(known, text)) is not None:
        return found
    head = text[text.rfind("\n", 0, start) + 1 : start]
    values: list[Offer] = []
    if re.search(r"\b(cwd|persist)[ \t]*:[ \t]*\Z", head):
        values = [Offer("", "directories")]
    elif re.search(r"\b(use|import|from)[ \t]+\Z", head):
        values = [Offer("", "programs")]
    elif re.search(r"\bexec[ \t]+\Z", head):
        values = [Offer("", "files")]
    elif named := re.search(rf"({_NAME})[ \t]*:[ \t]*\Z", head):
        entry = _words().properties.get(named[1].replace("on_fail", "on-fail"))
        values = [Offer(v.strip('"'), "value") for v in entry.values if v.startswith('"')] if entry else []
    elif re.search(r"\bparallel[ \t]*(?:for\b[^()]*)?\([ \t]*\Z", head):
        values = [Offer(v, "value") for v in ("all", "first", "any")]
    return Completion(start + 1, values)


def _interpolated(known: KnownNames, text: str) -> Completion | None:
    """Complete a variable after `{` in a string or marker; None elsewhere."""
    opened = re.search(rf"(?<!\\)\{{({_NAME})?\Z", text[-200:])
    if opened is None:
        return None
    begin = len(text) - len(opened[1] or "")
    return Completion(begin, _variables(known, code_only(text[:begin], _DELIMITERS)))
