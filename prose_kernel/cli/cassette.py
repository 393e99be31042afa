"""`prose cassette`: read, tidy, upgrade, prune, compare and redact recordings (sessions.md 4.2)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prose_kernel.access import jsonl, plain_files
from prose_kernel.errors import UsageError, reason_of, usage_errors
from prose_kernel.views.document import Table, counted, plain_text
from prose_kernel.views.escaping import visible

if TYPE_CHECKING:
    from prose_kernel.cassettes.cassette_files import CassetteFile, PlacedRecord, Writer
    from prose_kernel.cassettes.differences import Change

CUT = 72
ASIDE = ".bad"

_files = click.argument("names", metavar="[FILE]...", nargs=-1)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, an object a line.")
_check = click.option("--check", is_flag=True, help="Change nothing; exit status 1 if something would change.")


@click.group()
def cassette() -> None:
    """Read and maintain recordings. FILE is a path, or a name in cassettes/; default: all of them.

    Exit status: 1 for differences (diff, --check); prune returns that of the program that did not replay.
    """


@cassette.command(short_help="Print records for people.")
@_files
@click.option("--at", "at", metavar="PATH", help="Only records at or below this execution path.")
@click.option(
    "--type",
    "kind",
    type=click.Choice(["session", "error", "judge", "race", "ask", "phrase"]),
    help="Only records of a type.",
)
@click.option("--grep", metavar="TEXT", help="Only records that contain this text.")
@click.option("--full", is_flag=True, help="Print whole records, as Markdown.")
@_json
def show(names: Sequence[str], at: str | None, kind: str | None, grep: str | None, full: bool, as_json: bool) -> None:
    """Print records, one line for each."""
    for found in map(_read, _chosen(names)):
        entries = [e for e in found.entries if e.record.t != "head" and _wanted(e, at, kind, grep)]
        if as_json:
            for entry in entries:
                click.echo(json.dumps({"file": found.name, "line": entry.line, **_decoded(entry)}, ensure_ascii=False))
        else:
            _print(found, entries, full)
        for warning in found.warnings:
            click.echo(f"Warning: {visible(warning)}", err=True)


def _wanted(entry: PlacedRecord, at: str | None, kind: str | None, grep: str | None) -> bool:
    place = entry.record.at
    below = at is None or place == at or place.startswith(at.rstrip("/") + "/")
    return below and kind in (None, entry.record.t) and (grep is None or _contains(_decoded(entry), grep))


def _contains(data: Any, text: str) -> bool:
    if isinstance(data, str):
        return text in data
    if isinstance(data, dict):
        return any(_contains(value, text) for value in data.values())
    return isinstance(data, list) and any(_contains(value, text) for value in data)


def _decoded(entry: PlacedRecord) -> dict[str, Any]:
    from prose_kernel.cassettes import records

    return records.plain(entry.raw)


def _as_markdown(entry: PlacedRecord) -> str:
    """Return a record as Markdown; for a malformed one, a text that says so."""
    from prose_kernel.cli import cassette_view

    try:
        return cassette_view.whole(_decoded(entry), entry.line)
    except (TypeError, ValueError, LookupError, AttributeError):
        return f"## {entry.record.t} {entry.record.at} (line {entry.line})\n\nThis record cannot be decoded.\n"


def _print(found: CassetteFile, entries: Sequence[PlacedRecord], full: bool) -> None:
    from prose_kernel.cli import cassette_view

    if full:
        click.echo(f"# {visible(found.name)}\n")
        for entry in entries:
            click.echo(visible(_as_markdown(entry)))
        return
    click.echo(f"{visible(found.name)}: {counted(len(entries), 'record')}")
    if rows := [cassette_view.row(entry.line, _decoded(entry)) for entry in entries]:
        click.echo(plain_text(Table((), rows, indent=2, most=None)))


@cassette.command(short_help="Put recordings into canonical order and form.")
@_files
@_check
def tidy(names: Sequence[str], check: bool) -> int:
    """Sort records by path, in canonical form, and remove replaced ones. Damaged lines move to FILE.bad."""
    from prose_kernel.cassettes.cassette_edits import tidied

    changed = False
    for path in _chosen(names):
        result = tidied(_bytes(path))
        parts = [counted(result.records, "record")]
        if result.duplicates:
            parts.append(f"{counted(result.duplicates, 'replaced or duplicate record')} removed")
        if result.aside:
            parts.append(f"{counted(len(result.aside), 'unreadable line')} moved to {_shown(path)}{ASIDE}")
        if result.data == _bytes(path):
            click.echo(f"{_shown(path)}: {parts[0]}, in order")
            continue
        changed = True
        if check:
            click.echo(f"{_shown(path)}: would be rewritten ({', '.join(parts)})")
            continue
        _rewrite(path, partial(_tidy, path))
        click.echo(f"{_shown(path)}: {', '.join(parts)}")
    return 1 if check and changed else 0


def _tidy(path: Path, data: bytes) -> bytes:
    """Return the new content of the file, after moving invalid lines to a file next to it."""
    from prose_kernel.cassettes.cassette_edits import tidied

    result = tidied(data)
    if result.aside:
        jsonl.append(path.with_name(path.name + ASIDE), b"\n".join(result.aside) + b"\n")
    return result.data


@cassette.command(short_help="Convert recordings of earlier formats.")
@_files
@click.option("--dry-run", is_flag=True, help="Only show the changes.")
def upgrade(names: Sequence[str], dry_run: bool) -> None:
    """Convert records of earlier formats. They replay as before."""
    from prose_kernel.cassettes.cassette_edits import parsed, upgraded

    for path in _chosen(names):
        data = _bytes(path)
        new, count = upgraded(data)
        if new != data and not dry_run:
            _rewrite(path, lambda data: upgraded(data)[0])
        verb = "would be converted" if dry_run else "converted"
        click.echo(f"{_shown(path)}: {counted(count, 'record')} {verb}")
        for bad in parsed(data).bad:
            click.echo(f"Warning: {_shown(path)}, line {bad.line} stays as it is: {visible(bad.why)}", err=True)


@cassette.command(short_help="Remove records that programs do not use.")
@click.argument("programs", metavar="PROGRAM...", nargs=-1, required=True)
@click.option("--cassette", "names", metavar="FILE", multiple=True, help="Prune this recording.  [default: those used]")
@click.option("--input", "inputs", metavar="NAME=VALUE", multiple=True, help="The value of an input. Repeatable.")
@click.option("--yes", metavar="GATE", multiple=True, help="Approve a gate in advance. Repeatable.")
@click.option("--no", metavar="GATE", multiple=True, help="Reject a gate in advance. Repeatable.")
@click.option("--dry-run", is_flag=True, help="Only show the records.")
def prune(
    programs: Sequence[str],
    names: Sequence[str],
    inputs: Sequence[str],
    yes: Sequence[str],
    no: Sequence[str],
    dry_run: bool,
) -> int:
    """Run programs and notebooks in replay, with their commands, and remove unused records.

    Name all programs that share a recording. If one fails, nothing is removed.
    """
    from prose_kernel.cli.cassette_prune import replayed

    used: set[tuple[str, bytes]] = set()
    # records that are added later may belong to another program that runs now
    known = {path: {entry.raw for entry in _read(path).entries} for path in (_chosen(names) if names else ())}
    for program in programs:
        done = replayed(program, inputs, yes, no)
        if done.error is not None:
            click.echo(done.error, err=True)
            click.echo(f"nothing is removed: {program} did not replay to its end", err=True)
            return done.status
        used |= done.used
        for path in {Path(name) for name, _ in done.known} - known.keys():
            known[path] = {raw for name, raw in done.known if Path(name) == path}
    paths = _chosen(names) if names else [Path(name) for name in sorted({name for name, _ in used})]
    if not paths:
        click.echo("nothing is removed: the programs have used no recording")
    for path in paths:
        _prune(path, known[path] - {raw for name, raw in used if Path(name) == path}, dry_run)
    return 0


def _prune(path: Path, unused: Container[bytes], dry_run: bool) -> None:
    from prose_kernel.cassettes import records
    from prose_kernel.cassettes.cassette_edits import without

    def unwanted(entry: PlacedRecord) -> bool:
        return entry.record.t in records.DECIDES and entry.raw in unused

    _, gone = without(_bytes(path), unwanted)
    if not dry_run and gone:
        _rewrite(path, lambda data: without(data, unwanted)[0])
    verb = "would be removed" if dry_run else "removed"
    click.echo(f"{_shown(path)}: {counted(len(gone), 'unused record')} {verb}")
    for entry in gone:
        click.echo(f"  line {entry.line}: {entry.record.t} {visible(entry.record.at)}")


@cassette.command(short_help="Compare a recording with git's version, or with another one.")
@click.argument("old_or_only", metavar="[OLD] FILE")
@click.argument("new", required=False, metavar="")
@click.option("--rev", metavar="REV", default="HEAD", show_default=True, help="The version in git to compare with.")
@_json
def diff(old_or_only: str, new: str | None, rev: str, as_json: bool) -> int:
    """Show new, missing, moved and changed sessions and judgements."""
    from prose_kernel.cassettes.cassette_files import parse
    from prose_kernel.cassettes.differences import changes

    if new is None:
        path = _path(old_or_only)
        before = parse(_from_git(path, rev), path, f"{rev}:{_shown(path)}")
    else:
        path = _path(new)
        before = _read(_path(old_or_only))
    found = changes(before, _read(path))
    for change in found:
        click.echo(json.dumps(_change_data(change), ensure_ascii=False) if as_json else visible(_change_text(change)))
    if not found and not as_json:
        click.echo(f"{_shown(path)}: no difference")
    return 1 if found else 0


def _from_git(path: Path, rev: str) -> bytes:
    """Return the content of a file in git. Raises `UsageError`."""
    if rev.startswith("-"):
        raise UsageError(f"--rev {rev}: that isn't a version in git")
    command = ["git", "show", f"{rev}:./{path.name}"]
    try:
        done = subprocess.run(command, cwd=path.parent, capture_output=True, check=False)
    except FileNotFoundError:
        raise UsageError("there is no git here", hint="give two files: prose cassette diff OLD NEW") from None
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0].removeprefix("fatal: ")
        raise UsageError(
            f"git has no {rev} of {_shown(path)}: {reason}", hint="give two files: prose cassette diff OLD NEW"
        )
    return done.stdout


def _change_text(change: Change) -> str:
    place = change.at if change.tried == 1 else f"{change.at} (attempt {change.tried})"
    if change.before:
        place = f"{change.before} → {place}"
    return "\n".join([f"{change.kind:<8} {change.type} {place}", *(f"         {line}" for line in change.details)])


def _change_data(change: Change) -> dict[str, object]:
    data = {"what": change.kind, "type": change.type, "at": change.at, "try": change.tried}
    return data | ({"before": change.before} if change.before else {}) | {"details": list(change.details)}


@cassette.command(short_help="Take secrets out of recordings.")
@_files
@click.option("--pattern", "patterns", metavar="REGEX", multiple=True, help="Further secrets. Repeatable.")
@_check
def redact(names: Sequence[str], patterns: Sequence[str], check: bool) -> int:
    """Remove secrets: values of variables with secret names, tokens of known formats, the patterns of
    prose.toml and --pattern. The history of git keeps them.
    """
    from prose_kernel.cassettes.cassette_edits import redacted
    from prose_kernel.cassettes.portable_redaction import Redaction
    from prose_kernel.runs import settings

    expressions = (*settings.load(Path.cwd()).cassette.redact, *patterns)
    redaction = Redaction(os.environ, expressions)
    changed = False
    for path in _chosen(names):
        result = redacted(_bytes(path), redaction)
        changed = changed or bool(result.changed)
        if result.changed and not check:
            _rewrite(path, lambda data: redacted(data, redaction).data)
        verb = "would be redacted" if check else "redacted"
        lines = f" (line {', '.join(map(str, result.changed))})" if result.changed else ""
        click.echo(f"{_shown(path)}: {counted(len(result.changed), 'record')} {verb}{lines}")
        if result.lost:
            where = f"{_shown(path)}, line {', '.join(map(str, result.lost))}"
            click.echo(f"Warning: {where}: only the beginning of a long text is stored; record this again", err=True)
    return 1 if check and changed else 0


# ---------------------------------------------------------------- files


def _chosen(names: Iterable[str]) -> list[Path]:
    """Return the named recordings, or all. Raises `UsageError` if there is none."""
    given = list(names)
    if given:
        return [_path(name) for name in given]
    from prose_kernel.cassettes.cassette_files import DIRECTORY, SUFFIX

    found = sorted(Path.cwd().glob(f"{DIRECTORY}/*{SUFFIX}"))
    if not found:
        raise UsageError("there are no recordings here: no cassettes/*.jsonl", hint="give the path of one")
    return found


def _path(name: str) -> Path:
    """Return the file for a name: a path, or a recording in `cassettes/`. Raises `UsageError` if there is none."""
    from prose_kernel.cassettes.cassette_files import DIRECTORY, SUFFIX

    for path in (Path(name), Path(DIRECTORY, name), Path(DIRECTORY, name + SUFFIX)):
        if os.path.lexists(path):
            return Path.cwd() / path
    raise UsageError(f"there is no recording {name}", hint="give its path, or its name in cassettes/")


def _bytes(path: Path) -> bytes:
    with usage_errors(f"cannot read {_shown(path)}"):
        return plain_files.read(path, plain_files.HUGE)


def _read(path: Path) -> CassetteFile:
    from prose_kernel.cassettes.cassette_files import parse

    return parse(_bytes(path), path, _shown(path))


def _shown(path: Path) -> str:
    return path.relative_to(Path.cwd()).as_posix() if path.is_relative_to(Path.cwd()) else str(path)


def _rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Replace the content of a recording by its `change`, while no kernel writes to it. Raises `UsageError`."""
    from prose_kernel.cassettes.cassette_files import Writer

    writer: Writer = Writer(path)
    try:
        writer.rewrite(change)
    except OSError as problem:
        raise UsageError(
            f"cannot write {_shown(path)}: {reason_of(problem, 'another process keeps writing to it')}"
        ) from None
