"""Commands that read the text of a program and run nothing: `prose compile` and `fmt` (openprose.md 8), `check`
(sessions.md 3.2) and `graph`."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable, Hashable, Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from prose_kernel.access import atomic
from prose_kernel.cli import program_files, result_text
from prose_kernel.cli.shared_options import profile_of, profile_option, profile_options
from prose_kernel.errors import CompileError, ImportProgramError, UsageError, usage_errors
from prose_kernel.language.contracts import LIBRARY, is_contract
from prose_kernel.language.diagnostics import Diagnostic, Profile, has_errors
from prose_kernel.language.source import Source
from prose_kernel.language.text import as_argument, one_line
from prose_kernel.runs import languages

if TYPE_CHECKING:
    from prose_kernel.judging.judge_chain import Condition
    from prose_kernel.programs.remote_programs import RemotePrograms
    from prose_kernel.runs.languages import Language, Programs

FAULT, USAGE = 1, 2
Shared = dict[Path, dict[Hashable, Any]]
"""The compiler's cache of contract files, by directory: a file that ten others call is checked once."""


class Compiled(NamedTuple):
    """A compiled file: its tree if it could be parsed, its findings, or the error if it could not be read."""

    name: str
    language: Language
    text: str
    program: Any
    diagnostics: tuple[Diagnostic, ...]
    unreadable: UsageError | None = None

    @property
    def ok(self) -> bool:
        return self.unreadable is None and not has_errors(self.diagnostics)

    @property
    def canonical(self) -> str:
        """The canonical form of a correct program."""
        return self.language.format_program(self.program)


@click.command("compile", short_help="Check programs; nothing is run.")
@click.argument("names", metavar="FILE...", nargs=-1, required=True)
@profile_options
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Format of the findings.")
def compile_(names: tuple[str, ...], strict: bool, profile: str | None, form: str) -> int:
    """Check programs, run nothing. Print correct ones in canonical form, of VVM the exports.

    Findings go to stderr. With --format json, one object for each file on stdout: {"file", "language", "ok",
    "contract", "diagnostics"}; contract: inputs and outputs, or of VVM agents, functions, exports and imports. FILE may
    be - for OpenProse on standard input.

    Exit status 1: errors.
    """
    status = 0
    for compiled in _compile_all(names, profile_of(profile, strict)):
        status = max(status, USAGE if compiled.unreadable else 0 if compiled.ok else FAULT)
        if form == "json":
            click.echo(result_text.result_line(_as_json(compiled)))
            continue
        _print_findings(compiled, several=len(names) > 1)
        if compiled.ok:
            report = compiled.language.report(compiled.program, compiled.name, len(compiled.diagnostics))
            _print_program(compiled, report, several=len(names) > 1)
    return status


def _as_json(compiled: Compiled) -> dict[str, object]:
    """Return the object for one file. Keys of the contract that the language doesn't have are left out."""
    data: dict[str, object] = {"file": compiled.name, "language": compiled.language.name, "ok": compiled.ok}
    if compiled.ok:
        contract = asdict(compiled.language.contract(compiled.program))
        data["contract"] = {name: value for name, value in contract.items() if value is not None}
    found = compiled.diagnostics
    if compiled.unreadable is not None:
        found = (Diagnostic("E215", 1, 1, str(compiled.unreadable)),)
    return {**data, "diagnostics": [result_text.diagnostic_json(one) for one in found]}


def _compile_all(names: tuple[str, ...], profile: Profile) -> Iterator[Compiled]:
    shared: Shared = {}
    for name in names:
        try:
            yield compile_file(name, profile, shared)
        except UsageError as problem:
            yield Compiled(name, languages.of_file(name), "", None, (), problem)
        except Exception as defect:  # a defect of this package in one file must not hide the findings in the others
            if sys.flags.dev_mode:
                raise
            internal = UsageError(
                f"{name}: internal error: {type(defect).__name__}: {defect}",
                hint="please report this with the file; PYTHONDEVMODE=1 shows where it happened",
            )
            yield Compiled(name, languages.of_file(name), "", None, (), internal)


def compile_file(name: str, profile: Profile = "default", shared: Shared | None = None, *, typed: str = "") -> Compiled:
    """Compile a file, and check it against the programs that it uses: local ones, and fetched ones that are pinned.

    `name` may also be an installed program. Commands that compile several files pass `shared`. Raises `UsageError` if
    the file cannot be read; `typed` is its name in this message, if given.
    """
    name = program_files.contract_file_of(name)
    if not program_files.is_file(name) and program_files.is_remote(name, strict=profile == "strict"):
        return _compile_installed(name, profile)
    if name.endswith(".ipynb") and program_files.is_file(name):
        command = f"prose run {as_argument(name)}"
        raise UsageError(f"{name} is a notebook; its cells are checked one by one, as they run: {command}")
    language = languages.of_file(name)
    try:
        source = program_files.read_source(name, typed)
    except CompileError as error:
        return Compiled(name, language, "", None, error.diagnostics)
    compiled = languages.compile_with_settings(
        language, source, _pipefail, profile=profile, load=_contracts(name, language, profile, shared)
    )
    return Compiled(name, language, source.text, compiled.program, compiled.diagnostics)


def correct_file(name: str, profile: Profile = "default") -> Compiled | None:
    """Compile a file. If it has errors, print them and return None."""
    compiled = compile_file(name, profile)
    if compiled.ok:
        return compiled
    click.echo(result_text.diagnostics_text(compiled.diagnostics), err=True)
    return None


def _compile_installed(name: str, profile: Profile) -> Compiled:
    language = languages.default()
    resolver = _resolver("")
    try:
        found = resolver.cached(resolver.address(name))
        if found is None:
            hint = f"prose install {as_argument(name)}"
            raise UsageError(f"{name} is not installed, and nothing is fetched here", hint=hint)
        source = language.decode(found.data, name)
    except ImportProgramError as problem:
        raise UsageError(problem.message, hint=problem.hint) from None
    except CompileError as error:
        return Compiled(name, language, "", None, error.diagnostics)
    programs = language.programs(Path.cwd(), profile=profile, resolver=lambda: resolver, origin=name)
    compiled = languages.compile_with_settings(
        language, source, _pipefail, profile=profile, load=programs.load_contract
    )
    return Compiled(name, language, source.text, compiled.program, compiled.diagnostics)


def _pipefail() -> bool:
    from prose_kernel.runs import settings

    return settings.load(Path.cwd(), problems=[]).exec.pipefail


def _resolver(name: str) -> RemotePrograms:
    """Return the loader of programs that were fetched earlier; nothing is fetched."""
    from prose_kernel.runs import settings
    from prose_kernel.runs.imported_programs import remote_programs

    return remote_programs(settings.load(Path.cwd()), Path.cwd(), name)


def _contracts(name: str, language: Language, profile: Profile, shared: Shared | None) -> Callable[[str], Any]:
    """Return the function that looks up the imports of a file. Its first call loads the modules for imports."""

    @cache
    def programs() -> Programs:
        if name == program_files.STDIN:
            return language.programs(Path.cwd(), profile=profile, resolver=lambda: _resolver(""))
        file = Path(name)
        return language.programs(file.parent, program=file, profile=profile, resolver=lambda: _resolver(name))

    def load(path: str) -> Any:
        found = programs().load_contract(path)
        if path == LIBRARY and shared is not None and is_contract(name):
            found.shared = shared.setdefault(Path(name).parent, {})
        return found

    return load


def _print_findings(compiled: Compiled, several: bool) -> None:
    if compiled.unreadable:
        click.echo(result_text.error_text(compiled.unreadable), err=True)
    if several and compiled.diagnostics:
        click.echo(f"{compiled.name}:", err=True)
    if compiled.language.refusal and not compiled.ok:
        click.echo(compiled.language.refusal, err=True)
    if compiled.diagnostics:
        click.echo(result_text.diagnostics_text(compiled.diagnostics) + "\n" * (several or compiled.ok), err=True)


def _print_program(compiled: Compiled, text: str, several: bool) -> None:
    click.echo((f"# {compiled.name}\n" if several else "") + text, nl=False)


@click.command("fmt", short_help="Print programs in canonical form.")
@click.argument("names", metavar="FILE...", nargs=-1, required=True)
@click.option("--check", "check_only", is_flag=True, help="Print nothing; name the files that are not canonical.")
@click.option("--write", is_flag=True, help="Rewrite the files in place.")
@click.option("--drop-comments", is_flag=True, help="With --write: also rewrite files with comments, without them.")
@profile_option
def fmt(names: tuple[str, ...], check_only: bool, write: bool, drop_comments: bool, profile: str | None) -> int:
    """Print programs in canonical form. OpenProse: declarations first, no comments. VVM keeps comments and blank lines.

    Exit status 1: errors, or files that would change (--check) or were skipped (--write).
    """
    if check_only and write:
        raise click.UsageError("--check and --write exclude each other")
    status = 0
    for compiled in _compile_all(names, profile_of(profile, strict=False)):
        if not compiled.ok:
            _print_findings(compiled, several=len(names) > 1)
            status = max(status, USAGE if compiled.unreadable else FAULT)
        elif write:
            status = max(status, _rewrite(compiled, drop_comments))
        elif not check_only:
            _print_program(compiled, compiled.canonical, several=len(names) > 1)
        elif compiled.canonical != compiled.text:
            click.echo(f"{compiled.name} is not in canonical form", err=True)
            status = max(status, FAULT)
    return status


def _rewrite(compiled: Compiled, drop_comments: bool) -> int:
    """Replace the file atomically; not a file with comments, which would be lost, unless `drop_comments`."""
    if compiled.name == program_files.STDIN:
        raise UsageError("standard input cannot be rewritten", hint="leave out --write")
    text = compiled.canonical
    if text == compiled.text:
        return 0
    # a `#` that the canonical form lacks isn't in a string or marker
    if compiled.text.count("#") > text.count("#") and not drop_comments:
        click.echo(f"{compiled.name} holds comments, which the canonical form drops; left as it is", err=True)
        click.echo("hint: --drop-comments rewrites it without them", err=True)
        return FAULT
    before = program_files.read_bytes(compiled.name)
    if compiled.language.decode(before, compiled.name).text != compiled.text:
        raise UsageError(f"{compiled.name} was changed meanwhile; it is not rewritten", hint="type the command again")
    with usage_errors(f"cannot write {compiled.name}"):
        atomic.write_whole(compiled.name, _as_before(before, text), in_place=True)
    return 0


def _as_before(before: bytes, text: str) -> bytes:
    """Return the new text as bytes, with the line endings and byte order mark of the file."""
    if b"\r\n" in before:
        text = text.replace("\n", "\r\n")
    return (codecs.BOM_UTF8 if before.startswith(codecs.BOM_UTF8) else b"") + text.encode()


# ---------------------------------------------------------------- check, graph


@click.command(short_help="List the conditions that rules can decide.")
@click.argument("name", metavar="FILE")
@profile_options
def check(name: str, strict: bool, profile: str | None) -> int:
    """List the conditions of a program, and whether a rule decides them (docs/reference/judge-rules.md).

    Exit status 1: errors, or a condition that needs a model or a person.
    """
    from prose_kernel.judging.judge_chain import decidable_conditions
    from prose_kernel.runs import settings

    compiled = correct_file(name, profile_of(profile, strict))
    if compiled is None:
        return FAULT
    texts = list(compiled.language.judged_texts(compiled.program))
    criteria = any(text.criterion for text in texts) and settings.load(Path.cwd()).vvm.rules
    found = decidable_conditions(texts, Source.of(compiled.text, name), criteria=criteria)
    for condition in found:
        mark = "rule" if condition.decidable else "ask "
        text = f"?`{one_line(condition.text)}`" if condition.criterion else f"**{condition.text}**"
        click.echo(f"{mark}  line {condition.line}: {text} ({_why(condition, criteria)})")
    open_ones = sum(not condition.decidable for condition in found)
    click.echo(f"{len(found) - open_ones} of {len(found)} conditions can be decided by rules")
    return 1 if open_ones else 0


def _why(condition: Condition, criteria: bool) -> str:
    if condition.decidable:
        return ", ".join(condition.forms)
    if condition.criterion and condition.choice:
        return "a choice: the judge picks a label"
    if condition.criterion and not criteria:
        return "rules decide criteria only with [vvm] rules = true"
    if condition.choice:
        return "a choice: a rule picks only what a binding it names is"
    if "numbers" in condition.forms:
        return "a rule decides it if both values are numbers"
    if "true" in condition.forms:
        return "a rule decides it if the value is true or false"
    return "a rule could only say yes to it" if condition.forms else "no rule reads it"


@click.command(short_help="Draw a program as a diagram.")
@click.argument("name", metavar="FILE")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "mermaid", "markdown"]),
    default="text",
    help="Indented lines, a Mermaid diagram, or a Markdown block with one.",
)
@profile_options
def graph(name: str, form: str, strict: bool, profile: str | None) -> int:
    """Draw a program, run nothing. FILE may be - for OpenProse on standard input.

    Exit status 1: errors in the program.
    """
    from prose_kernel.views.diagram import DiagramText, fence, mermaid, outline

    compiled = correct_file(name, profile_of(profile, strict))
    if compiled is None:
        return FAULT
    parts = [DiagramText("", compiled.language.flow(compiled.program, Source.of(compiled.text, name)))]
    if form == "text":
        click.echo(outline(parts))
    else:
        click.echo(mermaid(parts) if form == "mermaid" else fence(mermaid(parts)), nl=form == "markdown")
    return 0
