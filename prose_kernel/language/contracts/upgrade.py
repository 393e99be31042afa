"""Converts a `.prose` program to a function in a contract file, and back (prose-md.md 11).

The text of the statements is kept, including comments. Inputs become Parameters; outputs become variables, one `return`
of them, and Returns. Programs that a function can't express are refused. A contract file is converted back only if the
resulting program converts to the same file again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prose_kernel.errors import UsageError
from prose_kernel.language.contracts import SUFFIX
from prose_kernel.language.contracts.compile import ContractProgram, compile_source
from prose_kernel.language.contracts.items import read_items
from prose_kernel.language.diagnostics import first_error
from prose_kernel.language.fixes import Edit, replaced
from prose_kernel.language.nodes import walk
from prose_kernel.language.openprose import compile_source as compile_program
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.keywords import NAME
from prose_kernel.language.openprose.program_interface import is_executable
from prose_kernel.language.source import Source, Span
from prose_kernel.language.text import code_fence

_TITLE: Final = re.compile(r"[^A-Za-z0-9]+")
_RETURN: Final = re.compile(rf"return[ \t]+(?:(?P<one>{NAME})|\{{(?P<all>[^{{}}]*)\}})[ \t]*\n*\Z")
_ELSEWHERE: Final = ("E330", "E215")
"""Errors about other files, which can't be loaded here."""
_SECTIONS: Final = frozenset(["Parameters", "Returns", "Execution"])


class NotConvertible(UsageError):
    """A program or contract file can't be converted without loss."""


def upgraded(program: tree.Program, source: Source) -> tuple[str, str]:
    """Return the contract file for a checked program, and its suffix. Raises `NotConvertible` otherwise."""
    name = _name(source.name)
    inputs = [item for item in program.items if isinstance(item, tree.Input)]
    outputs = [item for item in program.items if isinstance(item, tree.Output)]
    _refuse(source, program, outputs)
    names = list(dict.fromkeys(one.name.id for one in outputs if one.name is not None))
    edits = [*(Edit(_lines(source, one.span), "") for one in inputs), *_variables(outputs)]
    script = replaced(source.text, edits).strip("\n")
    if names:
        given = names[0] if len(names) == 1 else f"{{ {', '.join(f'{one}: {one}' for one in names)} }}"
        script = f"{script}\n\nreturn {given}".lstrip("\n")
    elif isinstance(last := next(reversed(program.items), None), tree.Return) and isinstance(last.value, tree.Object):
        names = [entry.key for entry in last.value.entries]
    fence = code_fence(script)
    parts = [f"---\nname: {name}\nkind: function\n---\n", f"# {_TITLE.sub(' ', name).strip().capitalize()}\n"]
    if inputs:
        parts.append("### Parameters\n\n" + "".join(_parameter(source, one) for one in inputs))
    if names:
        parts.append("### Returns\n\n" + "".join(f"- `{one}`\n" for one in names))
    parts.append(f"### Execution\n\n{fence}prose\n{script}\n{fence}\n")
    text = "\n".join(parts)
    file = compile_source(Source(text, f"{name}{SUFFIX}"))
    if wrong := first_error(one for one in file.diagnostics if one.code not in _ELSEWHERE):
        raise NotConvertible(f"as a function it would have errors: {wrong}")
    return text, SUFFIX


def downgraded(program: ContractProgram, source: Source) -> tuple[str, str]:
    """Return the program for a contract file, and its suffix. Raises `NotConvertible` if it can't be converted."""
    unit = program.file.own
    kept = [one.name for one in unit.node.sections]
    if unit.node.kind != "function" or not unit.has_script or len(program.file.units) > 1:
        raise NotConvertible("only a function with a script, and without inline nodes, can be a program")
    if extra := next((one for one in unit.node.sections if one.name not in _SECTIONS), None):
        raise _error_at(source, extra.heading, f"a program has nothing like `### {extra.title}`")
    script = source.slice(unit.node.fences[0].inside)
    outputs = [one.name for one in unit.contract.outputs]
    body = _with_outputs(script, outputs) if outputs else script
    prompts = {name: item.text for item in unit.node.items("Parameters") for name in item.roots}
    escaped = ((one.name, prompts[one.name].replace("\\", "\\\\").replace('"', '\\"')) for one in unit.contract.inputs)
    lines = [f'input {name}: "{prompt}"\n' for name, prompt in escaped]
    text = "".join([*lines, "\n" if lines else "", body.strip("\n"), "\n"])
    made = Source(text, f"{unit.name}.prose")
    compiled = compile_program(made)
    if not compiled.ok:
        raise NotConvertible(f"as a program it would have errors: {first_error(compiled.diagnostics)}")
    if upgraded(compiled.program, made)[0] != source.text:
        raise NotConvertible(f"something of the sections {', '.join(dict.fromkeys(kept))} would be lost")
    return text, ".prose"


def _name(name: str) -> str:
    stem = name.replace("\\", "/").rpartition("/")[2].removesuffix(".prose")
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-")
    return stem if re.fullmatch(NAME, stem) else f"program-{stem}".strip("-")


def _refuse(source: Source, program: tree.Program, outputs: Sequence[tree.Output]) -> None:
    """Raise `NotConvertible` if the program has something that a function can't express."""
    begun = False
    top = {id(one) for one in program.items}
    for item in program.items:
        begun = begun or is_executable(item)
        if isinstance(item, tree.Input) and begun:
            raise _error_at(source, item.span, "a function has all its inputs before it begins", "move it to the top")
        if isinstance(item, tree.Output) and item.name is None:
            raise _error_at(source, item.span, "an output without a name ends the program", "write `return`")
    for node in walk(program):
        if isinstance(node, tree.Input | tree.Output) and id(node) not in top:
            kind = type(node).__name__.lower()
            message = f"an `{kind}` inside a body has no place in a function"
            raise _error_at(source, node.span, message, "bind a variable, and move it to the top level")
        if isinstance(node, tree.SkillImport):
            raise _error_at(source, node.span, "`import` of a skill has no place in a function", "write `### Skills`")
    ends = [node.span for node in program.items if isinstance(node, tree.Return)]
    if ends and outputs:
        raise _error_at(source, ends[0], "a program with outputs and `return` gives two results", "keep one of them")


def _variables(outputs: Iterable[tree.Output]) -> Iterator[Edit]:
    """Yield the edits that turn `output x = v` into `let x = v`, or `x = v` if the name was declared before."""
    seen: set[str] = set()
    for one in outputs:
        assert one.name is not None  # `_refuse` rejects outputs without a name
        before = Span(one.span.start, one.name.span.start)
        yield Edit(before, "" if one.name.id in seen else "let ")
        seen.add(one.name.id)


def _parameter(source: Source, one: tree.Input) -> str:
    prompt = one.prompt.text if isinstance(one.prompt, tree.Discretion) else one.prompt
    words = " ".join(prompt.raw.split())
    line = f"- `{one.name.id}`: {words}\n" if words else f"- `{one.name.id}`\n"
    (item,) = read_items(line, Span(0, len(line)), ())
    if item.optional:
        message = f"as a parameter `{one.name.id}` would be optional, because of the words of its prompt"
        raise _error_at(source, one.span, message, "reword the prompt")
    return line


def _lines(source: Source, span: Span) -> Span:
    """Return the span of the whole lines of a statement."""
    start = source.text.rfind("\n", 0, span.start) + 1
    end = source.text.find("\n", max(span.end - 1, span.start))
    return Span(start, end + 1 if end >= 0 else len(source.text))


def _with_outputs(script: str, names: list[str]) -> str:
    """Return the script without its last `return`, and with its variables `names` as outputs."""
    last = _RETURN.search(script)
    given = [last["one"]] if last is not None and last["one"] else []
    if last is not None and not given:
        given = re.findall(rf"({NAME})[ \t]*:[ \t]*\1\b", last["all"])
    if last is None or given != names:
        raise NotConvertible("the script must end with one `return` of its outputs by their names")
    body = script[: last.start()]
    for name in names:
        body, count = re.subn(rf"^let[ \t]+(?={re.escape(name)}[ \t]*=)", "output ", body, count=1, flags=re.MULTILINE)
        if not count:
            raise NotConvertible(f"the output `{name}` is not a variable at the top level of the script")
    return body


def _error_at(source: Source, span: Span, message: str, hint: str | None = None) -> NotConvertible:
    line, column = source.line_column(span.start)
    return NotConvertible(f"line {line}, column {column}: {message}", hint=hint)
