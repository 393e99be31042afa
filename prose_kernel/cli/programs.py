"""`prose programs`, `prose install TARGET`: fetched programs, and pins in `prose.lock` (docs/how-to/programs.md)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from prose_kernel.cli import program_files
from prose_kernel.errors import CompileError, UsageError, usage_errors
from prose_kernel.language.text import escaped
from prose_kernel.runs import languages
from prose_kernel.views.document import Table, plain_text

if TYPE_CHECKING:
    from prose_kernel.programs.lock_file import Pin
    from prose_kernel.programs.remote_programs import RemotePrograms
    from prose_kernel.runs.languages import RemotePrograms as Programs

_SHORT = 12


# ---------------------------------------------------------------- install


def install_programs(targets: Sequence[str], trust: Sequence[str], *, upgrade: bool) -> int:
    """Fetch programs and imports, ask for consent, and pin them. Raises `UsageError` and `ImportProgramError`."""
    resolver = _resolver(asks=True, upgrade=upgrade, trust=trust)
    if upgrade and not targets:
        targets = list(_pins(resolver))
    for target in targets:
        if not program_files.is_remote(target):
            raise UsageError(f"{target} isn't a program from elsewhere", hint="write handle/name, or https://…")
    before = dict(_pins(resolver))
    status = 0
    try:
        for target in targets:
            status = max(status, _install(resolver, target))
    finally:
        changed = [pin for url, pin in _pins(resolver).items() if before.get(url) != pin]
        for pin in changed:
            done = "replaced" if pin.url in before else "pinned"
            click.echo(f"{done} {resolver.name(pin.url)}  sha256 {pin.sha256}")
    if not changed and not status:
        click.echo(f"{resolver.lock.path.name}: up to date, nothing to do")
    return status


def _install(resolver: RemotePrograms, target: str) -> int:
    """Install a program and return the exit status. Raises `UsageError` if it cannot be pinned, and
    `ImportProgramError` if it cannot be fetched or the person does not agree."""
    try:
        made = languages.default().programs(Path.cwd(), resolver=lambda: resolver, origin=target)
        asyncio.run(cast("Programs", made).load_root())
    except CompileError as error:
        from prose_kernel.cli import result_text

        found = result_text.diagnostics_text(error.diagnostics)
        click.echo(f"{target} has errors, it is not installed:\n{found}", err=True)
        return 1
    if _address(resolver, target) not in _pins(resolver):
        raise UsageError(f"{target} is not installed: {resolver.lock.path.name} cannot be written")
    return 0


# ---------------------------------------------------------------- programs


@click.group("programs", short_help="List, show and remove programs from elsewhere.", invoke_without_command=True)
@click.pass_context
def programs(context: click.Context) -> None:
    """List the programs from elsewhere that prose.lock pins, with SHA-256, size, contents, and whether the
    cache has them. `prose install` adds programs.
    """
    if context.invoked_subcommand is None:
        _list(_resolver())


def _list(resolver: RemotePrograms) -> None:
    pins = _pins(resolver)
    kept, rows = dict(resolver.cache.entries()), []
    if not pins:
        click.echo("no programs from elsewhere are pinned here; prose install TARGET adds one")
    for url, pin in pins.items():
        at_hand = "cached" if pin.sha256 in kept else "not cached"
        holds = escaped(", ".join(pin.holds)) or "nothing that acts"
        rows.append((resolver.name(url), pin.sha256[:_SHORT], f"{pin.size:>9,} bytes", f"{at_hand:<10}", holds))
    if rows:
        click.echo(plain_text(Table((), rows, most=None)))
    if kept:
        click.echo(f"cache: {len(kept):,} programs, {sum(kept.values()):,} bytes in {resolver.cache.directory}")


@programs.command()
@click.argument("target")
def show(target: str) -> None:
    """Print a program. TARGET is a name, a URL, or the SHA-256 of a fetched program.

    A terminal gets invisible characters as escapes, a file or pipe the bytes.
    """
    resolver = _resolver()
    digest = target.removeprefix("sha256:")
    if len(digest) == 64 and "/" not in digest:
        data = resolver.cache.get(digest)
        if data is None:
            raise UsageError(f"no program with SHA-256 {digest} is in the cache", hint="name its URL")
        _print(data)
        return
    found = asyncio.run(resolver.fetch(_address(resolver, target)))
    pinned = "pinned" if found.url in _pins(resolver) else "not pinned"
    click.echo(f"# {found.location}\n# sha256 {found.digest}, {len(found.data):,} bytes, {pinned}", err=True)
    _print(found.data)


def _print(data: bytes) -> None:
    """Print these bytes unchanged; on a terminal, invisible characters are shown as escapes."""
    from prose_kernel.programs.consent import legible

    if sys.stdout.isatty():
        click.echo(legible(data))
    else:
        click.echo(data, nl=False)


@programs.command()
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
def remove(targets: tuple[str, ...]) -> None:
    """Remove programs and agreements from prose.lock."""
    resolver = _resolver()
    pins = _pins(resolver)
    wanted = {_address(resolver, target): target for target in targets}
    for url, target in wanted.items():
        if url not in pins:
            raise UsageError(f"{target} is not pinned", hint="prose programs lists what is")
    with usage_errors(f"{resolver.lock.path.name} cannot be written"):
        resolver.lock.change(remove=wanted)
    for target in wanted.values():
        click.echo(f"removed {target}")


@programs.command(short_help="Delete fetched programs from your account's cache.")
@click.option("--all", "everything", is_flag=True, help="Also pinned ones.")
def clean(everything: bool) -> None:
    """Delete fetched programs from your account's cache, except those pinned here."""
    resolver = _resolver()
    needed = set() if everything else {pin.sha256 for pin in _pins(resolver).values()}
    gone = [(digest, size) for digest, size in resolver.cache.entries() if digest not in needed]
    with usage_errors("the cache cannot be cleaned"):
        for digest, _ in gone:
            resolver.cache.remove(digest)
    click.echo(f"deleted {len(gone):,} programs, {sum(size for _, size in gone):,} bytes")


# ---------------------------------------------------------------- shared


def _resolver(*, asks: bool = False, upgrade: bool = False, trust: Sequence[str] = ()) -> RemotePrograms:
    from prose_kernel.cli.terminal import Screen, TerminalAsker, is_interactive
    from prose_kernel.runs import settings
    from prose_kernel.runs.imported_programs import remote_programs

    cwd = Path.cwd()
    asker = None
    if asks:
        screen = Screen(sys.stdout, sys.stderr)
        asker = TerminalAsker(sys.stdin, screen, available=is_interactive(sys.stdin, sys.stderr))
    found = remote_programs(settings.load(cwd), cwd, asker=asker, upgrade=upgrade)
    found.trust.add(trust, found.registry)
    return found


def _pins(resolver: RemotePrograms) -> dict[str, Pin]:
    return dict(resolver.lock.pins())


def _address(resolver: RemotePrograms, target: str) -> str:
    if not program_files.is_remote(target):
        raise UsageError(f"{target} isn't a program from elsewhere", hint="write handle/name, or https://…")
    return resolver.address(target)
