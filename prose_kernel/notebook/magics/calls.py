"""`%call`: run a function of a contract file with inputs from the line, or from a form (docs/reference/jupyter.md 2).

The magic becomes the statement `call` in a separate text, which is checked, run and journaled like any cell. The
person's entries in the form are part of that text, so a restored run doesn't ask again.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from prose_kernel.errors import CompileError, NoPerson, UsageError
from prose_kernel.language.diagnostics import Diagnostic, diagnostic
from prose_kernel.language.source import Source, Span
from prose_kernel.language.structs import replace
from prose_kernel.notebook.magics.registry import MagicCall, magic, words_of
from prose_kernel.runs import languages
from prose_kernel.runtime.asker import Button, Form, FormField, ask_with_form, serial
from prose_kernel.runtime.structured_text import json_in

if TYPE_CHECKING:
    from prose_kernel.notebook.cells import Cells
    from prose_kernel.runs.languages import Language

_INPUT: Final = re.compile(r"([A-Za-z_][\w-]*)=")
_SPACE: Final = re.compile(r"\s*")
_WORD: Final = re.compile(r"""(?:[^\s"']|"(?:[^"\\]|\\.)*"|'[^']*'|["'])+""")
_LONGEST_LINE: Final = 60
"""The most characters of a default in a field of one line."""


def script() -> Language:
    return languages.in_profile(languages.default(), "prosescript")


@magic(
    "%call NAME [INPUT=VALUE…]",
    "run a function: an inline node, a contract file or `std/...`; without inputs, a form asks for them",
    raw=True,
)
async def call(given: MagicCall) -> None:
    name, inputs = _read(given)
    target = _target(given.cells, name)
    if target is not None and target.inputs:
        inputs |= await _ask_for_inputs(given, target, inputs)
    source = Source.of(f"%call {given.text}", "cell")
    try:
        value = await given.cells.run_text(_statement(name, inputs), given.view, language=script())
    except CompileError as problem:
        sign = serial(given.cells.asker).magic
        raise CompileError([_at_magic(one, source, inputs, sign) for one in problem.diagnostics]) from None
    given.view.result_of_part(value)


def completions(cells: Cells, words: Sequence[str]) -> list[str]:
    """Return completions for the word after `%call` and some words."""
    targets = cells.targets(script())
    if targets is None:
        return []
    if not words:
        return list(targets.names({}))
    target = _target(cells, words[0])
    given = {word.partition("=")[0] for word in words[1:]}
    return [f"{one.name}=" for one in target.inputs if one.name not in given] if target is not None else []


def _read(given: MagicCall) -> tuple[str, dict[str, Any]]:
    """Return the name of the function, and the values by input. Raises `UsageError`."""
    text = given.text
    first = _WORD.match(text)
    if first is None:
        raise given.wrong("too few words")
    inputs: dict[str, Any] = {}
    at = _SPACE.match(text, first.end()).end()  # type: ignore[union-attr]  # it matches anywhere
    while at < len(text):
        found = _INPUT.match(text, at)
        if found is None:
            raise given.wrong(f"`{text[at:].split()[0]}` is not INPUT=VALUE")
        if found[1] in inputs:
            raise UsageError(f"%call: the input `{found[1]}` is given twice")
        inputs[found[1]], at = _value_at(text, found.end())
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
    return _unquoted(first[0]), inputs


def _value_at(text: str, at: int) -> tuple[Any, int]:
    """Return a value and its end: JSON if it is in brackets or braces and valid, else a word as a shell reads it."""
    if text[at : at + 1] in ("[", "{"):
        with contextlib.suppress(ValueError, RecursionError):
            return json.JSONDecoder().raw_decode(text, at)
    word = _WORD.match(text, at)
    return (_unquoted(word[0]), word.end()) if word is not None else ("", at)


def _unquoted(word: str) -> str:
    return "".join(words_of(word, "%call", call.usage))


def _value(text: str) -> Any:
    """Return the value of a text typed into a field, which is read as on the line but without quotes."""
    value, end = _value_at(text, 0) if text[:1] in ("[", "{") else (text, len(text))
    return text if text[end:].strip() else value


def _statement(name: str, inputs: Mapping[str, Any]) -> str:
    literal = languages.default().literal
    called = literal(name, "%call") if _is_path(name) else name
    lines = [f"call {called}", *(f"  {key}: {literal(value, key)}" for key, value in inputs.items())]
    return "\n".join(lines) + "\n"


def _is_path(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z_][\w-]*", name) is None


def _target(cells: Cells, name: str) -> Any:
    """Return the callee; None for an unknown name, which the checker reports."""
    targets = cells.targets(script())
    found = targets.find(name, {}, path=_is_path(name)) if targets is not None else None
    return found if hasattr(found, "inputs") else None


def _at_magic(one: Diagnostic, source: Source, inputs: Mapping[str, Any], magic: str) -> Diagnostic:
    """Move a finding in the statement to its word in the magic line; a hint begins with the prefix `magic`."""
    key = [*inputs][one.line - 2] if 1 < one.line <= len(inputs) + 1 else ""
    text = source.text
    at = text.find(f" {key}=") + 1 if key else len("%call ")
    end = at + len(key or re.split(r"\s", text[at:], maxsplit=1)[0])
    hint = one.hint
    if one.code == "E026":
        hint = f"{magic}{text.rstrip()[1:]} {one.message.split('`')[1]}=VALUE"
    return replace(diagnostic(source, one.code, Span(at, end), one.message, hint), file=one.file)


# ---------------------------------------------------------------- the form


async def _ask_for_inputs(given: MagicCall, target: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Ask the person for values: of all inputs if the line has none, else of the missing ones. Returns no values in a
    run without a person."""
    wanted = [one for one in target.inputs if one.name not in inputs and not (inputs and one.optional)]
    asker = given.cells.asker
    if (
        not wanted
        or not asker.available
        or (not inputs and all(one.optional for one in wanted) and not given.view.live)
    ):
        return {}
    about = {line.split()[1]: line for line in target.about.split("\n") if line.startswith("  input ")}
    parts = tuple(_part(one, about.get(one.name, "")) for one in wanted)
    form = Form("input", f"Inputs of {target.name}", (Button("Run", "", "", main=True),), parts=parts)
    try:
        answer = await ask_with_form(asker, f"{target.name}: {', '.join(part.name for part in parts)} ", form)
        return await _values(given, wanted, answer)
    except NoPerson:
        return {}


def _part(one: Any, about: str) -> FormField:
    words = about.partition("  - ")[2]
    value = "" if one.default is None else one.default if isinstance(one.default, str) else json.dumps(one.default)
    kind = "text" if len(value) > _LONGEST_LINE or "\n" in value else "line"
    return FormField(one.name, kind, words, required=not one.optional, value=value)  # type: ignore[arg-type]


async def _values(given: MagicCall, wanted: Sequence[Any], answer: str) -> dict[str, Any]:
    """Read the answer. A form gives a JSON object. Other text is the first input; the others are asked one by one."""
    data = json_in(answer) if answer.lstrip().startswith("{") else None
    if isinstance(data, dict):
        names = {one.name: one for one in wanted}
        return {
            name: _value(value) if isinstance(value, str) else value
            for name, value in data.items()
            if name in names and not (value in ("", None) and names[name].optional)
        }
    found = {wanted[0].name: _value(answer)}
    for one in wanted[1:]:
        if not one.optional:
            found[one.name] = _value(await given.cells.asker.ask(f"{one.name}: "))
    return found
