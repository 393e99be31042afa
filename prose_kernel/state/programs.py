"""Imported programs: what a `use` path means, reading and checking it, its contract (openprose.md 6.1).

Files are read here; what lies elsewhere comes from a `Resolver`, and without one it is out of reach.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urljoin, urlsplit

from prose_kernel.errors import CompileError, ImportProgramError
from prose_kernel.language.diagnostics import Diagnostic, Profile
from prose_kernel.language.openprose.contract import contract, place_of
from prose_kernel.language.openprose.names import Contract
from prose_kernel.language.openprose.tree import Program, Use
from prose_kernel.language.source import Source
from prose_kernel.runtime.ports import LoadedProgram, LoadRequest

REGISTRY: Final = "https://p.prose.md/"
_LARGEST: Final = 256 * 1024 * 1024


class Resolver(Protocol):
    """Where programs that are no local files come from. `url` is absolute, a registry path already made one."""

    def cached(self, url: str) -> bytes | None:
        """The program when it is at hand without a connection."""
        ...

    async def fetch(self, url: str) -> bytes:
        """The program. Raises `ImportProgramError` (E215) saying why not."""
        ...


@dataclass(frozen=True, slots=True)
class Where:
    """Where a program stands: a file (absolute, links resolved) or an address; `shown` names it for people."""

    address: str
    remote: bool = False
    shown: str = field(default="", compare=False)


Stamp = tuple[int, int, int] | bytes


@dataclass(frozen=True, slots=True)
class _Text:
    """A program as read, with its imports."""

    where: Where
    stamp: Stamp
    source: Source
    program: Program
    uses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Checked:
    """A program without errors. `imports` are the ones it was checked against, in the order of its `uses`."""

    text: _Text
    contract: Contract
    imports: tuple[_Checked | None, ...]


@dataclass(slots=True)
class _Visit:
    """A program on the way of a depth-first walk, and the imports still to be visited."""

    text: _Text
    ahead: Iterator[str]


class LocalPrograms:
    """Resolves the imports of one program or notebook.

    `base` is the directory that its local paths are relative to; `program` its own file, so that an import of it is
    found to be a cycle. Programs are read again when their file has changed.
    """

    def __init__(
        self,
        base: Path,
        *,
        program: Path | None = None,
        profile: Profile = "default",
        resolver: Resolver | None = None,
        home: Path | None = None,
    ) -> None:
        self._profile: Profile = profile
        self._resolver = resolver
        self._home = home
        self._root = Where(str(_real(base / (program.name if program else "."))), shown=program.name if program else "")
        self._directory = _real(base)
        self._shown_from = "" if base.is_absolute() else str(base)
        self._texts: dict[Where, _Text] = {}
        self._checked: dict[Where, _Checked] = {}
        self._loaded: dict[int, tuple[Source, tuple[Where, ...]]] = {}

    # ------------------------------------------------------------ the two calls

    def load_contract(self, path: str) -> Contract | None:
        """The contract of the program at a `use` path of the root; None for a remote program that is not at hand.

        Raises `ImportProgramError`: E215 when it is missing or has errors, E112 for a cycle.
        """
        where = self.resolve(path)
        text = self._read(where)
        return None if text is None else self._check(text, (self._root,)).contract

    async def load_program(self, request: LoadRequest) -> LoadedProgram:
        """The program that an import leads to, read and checked in a worker thread.

        Raises `ImportProgramError` as `load_contract` does, and for a remote program that cannot be fetched.
        """
        path, source = request.path, request.importer
        _, chain = self._loaded.get(id(source), (source, (self._root,)))
        where = self.resolve(path, chain[-1])
        if where in chain:
            raise _cycle((*chain[chain.index(where) :], where))
        data = await self._fetch(where) if where.remote else None
        checked = await asyncio.to_thread(self._load, where, chain, data)
        text = checked.text
        self._loaded[id(text.source)] = text.source, (*chain, where)
        handle, slug = handle_and_slug(path, where)
        return LoadedProgram(text.program, text.source, handle, slug)

    def _load(self, where: Where, chain: tuple[Where, ...], data: bytes | None) -> _Checked:
        text = self._read(where, data)
        assert text is not None  # a file, or fetched
        return self._check(text, chain)

    # ------------------------------------------------------------ paths

    def resolve(self, path: str, importer: Where | None = None) -> Where:
        """What a path means in `importer` (the root by default). Raises `ImportProgramError` (E215) for none of 6.1."""
        importer = importer or self._root
        place = place_of(path, self._profile)
        if place == "local":
            return self._remote_neighbour(path, importer) if importer.remote else self._file(path, importer)
        if place == "remote" and path.startswith(("http://", "https://")):
            return Where(path, True, path)
        if place == "remote":
            return Where(REGISTRY + path.removeprefix("@"), True, path)
        raise ImportProgramError(f'"{path}" is no import path', hint="a file, `handle/name`, or an `https://` address")

    def _file(self, path: str, importer: Where) -> Where:
        if not path.isprintable():
            raise ImportProgramError("a path with unprintable characters cannot be loaded: no file can be called so")
        if path.startswith("~/"):
            return Where(str(_real((self._home or Path.home()) / path[2:])), shown=path)
        is_root = importer is self._root
        directory = self._directory if is_root else Path(importer.address).parent
        above = self._shown_from if is_root else str(Path(importer.shown).parent)
        return Where(str(_real(directory / path)), shown=os.path.normpath(Path(above) / path))

    def _remote_neighbour(self, path: str, importer: Where) -> Where:
        if path.startswith(("/", "~/")):
            raise ImportProgramError(f'"{path}" names a file of this machine, in a program from elsewhere')
        url = urljoin(importer.address, path)
        return Where(url, True, url)

    # ------------------------------------------------------------ reading

    async def _fetch(self, where: Where) -> bytes:
        if self._resolver is None:
            raise ImportProgramError(
                f'"{where.shown}" cannot be loaded: offline, only local files are',
                hint=f"save {where.address} beside this program and `use` the file",
            )
        return await self._resolver.fetch(where.address)

    def _read(self, where: Where, data: bytes | None = None) -> _Text | None:
        """The program at `where`, parsed, from memory when it has not changed; None when it is not at hand."""
        known = self._texts.get(where)
        if where.remote:
            data = data if data is not None or self._resolver is None else self._resolver.cached(where.address)
            if data is None:
                return None
            stamp: Stamp = data
        else:
            stamp = _stamp(where)
        if known is not None and known.stamp == stamp:
            return known
        text = self._texts[where] = self._parse(where, stamp, _bytes(where) if data is None else data)
        return text

    def _parse(self, where: Where, stamp: Stamp, data: bytes) -> _Text:
        from prose_kernel.language.openprose import decode, parse

        try:
            source = decode(data, where.shown)
        except CompileError as error:
            raise _errors(where, error.diagnostics) from None
        parsed = parse(source, self._profile)
        uses = dict.fromkeys(item.path.raw for item in parsed.program.items if isinstance(item, Use))
        return _Text(where, stamp, source, parsed.program, tuple(uses))

    # ------------------------------------------------------------ checking

    def _check(self, start: _Text, chain: tuple[Where, ...]) -> _Checked:
        """Check a program and all it imports, the innermost first. Without recursion: imports nest to any depth."""
        results: dict[Where, _Checked | ImportProgramError] = {}
        visits = [_Visit(start, iter(start.uses))]
        active = {*chain, start.where}
        while visits:
            visit = visits[-1]
            path = next(visit.ahead, None)
            if path is not None:
                text = self._import_of(visit.text, path, results, active)
                if text is not None:
                    active.add(text.where)
                    visits.append(_Visit(text, iter(text.uses)))
                continue
            way = (*chain, *(v.text.where for v in visits))
            results[visit.text.where] = self._check_one(visit.text, way, results)
            active.discard(visit.text.where)
            visits.pop()
        result = results[start.where]
        if isinstance(result, ImportProgramError):
            raise result
        return result

    def _import_of(
        self, importer: _Text, path: str, results: dict[Where, _Checked | ImportProgramError], active: set[Where]
    ) -> _Text | None:
        """The import to visit next; None when there is nothing to visit. What cannot be read goes into `results`."""
        try:
            where = self.resolve(path, importer.where)
        except ImportProgramError:
            return None  # the check of the importer reports it
        if where in results or where in active:
            return None
        try:
            return self._read(where)
        except ImportProgramError as error:
            results[where] = error
            return None

    def _check_one(
        self, text: _Text, way: tuple[Where, ...], results: dict[Where, _Checked | ImportProgramError]
    ) -> _Checked | ImportProgramError:
        """`way` leads from the root to the program itself; its imports are in `results`."""

        def find(path: str) -> _Checked | None:
            where = self.resolve(path, text.where)
            if where in way:
                raise _cycle((*way[way.index(where) :], where))
            found = results.get(where)
            if isinstance(found, ImportProgramError):
                raise found
            return found

        def load(path: str) -> Contract | None:
            found = find(path)
            return None if found is None else found.contract

        imports, broken = _imports(text.uses, find)
        known = self._checked.get(text.where)
        if not broken and known is not None and known.text is text and _same(known.imports, imports):
            return known
        from prose_kernel.language.openprose import compile_source

        compiled = compile_source(text.source, profile=self._profile, load=load)
        if not compiled.ok:
            return _errors(text.where, compiled.diagnostics)
        checked = self._checked[text.where] = _Checked(text, contract(text.program), imports)
        return checked


def handle_and_slug(path: str, where: Where) -> tuple[str, str]:
    """The two halves of an import's directory name (6.5): `local` and the stem, `url` and the last part, or a registry
    path's own."""
    if not where.remote:
        return "local", Path(path).name.removesuffix(".prose") or "program"
    if where.address.startswith(REGISTRY) and not path.startswith(("http://", "https://")):
        handle, _, rest = where.address.removeprefix(REGISTRY).partition("/")
        return handle, rest.rpartition("/")[2].removesuffix(".prose") or "program"
    return "url", Path(urlsplit(where.address).path).stem or "program"


def _imports(uses: tuple[str, ...], find: _Find) -> tuple[tuple[_Checked | None, ...], bool]:
    """The imports that are there, and whether one is broken."""
    try:
        return tuple(find(path) for path in uses), False
    except ImportProgramError:
        return (), True


class _Find(Protocol):
    def __call__(self, path: str, /) -> _Checked | None: ...


def _same(before: tuple[_Checked | None, ...], now: tuple[_Checked | None, ...]) -> bool:
    return len(before) == len(now) and all(a is b for a, b in zip(before, now, strict=True))


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _stamp(where: Where) -> Stamp:
    try:
        status = os.stat(where.address)  # noqa: PTH116 - the address is text
    except (OSError, ValueError) as error:
        raise _unreadable(where, error) from None
    if stat.S_ISDIR(status.st_mode):
        raise ImportProgramError(f'"{where.shown}" cannot be loaded: it is a directory, not a program')
    if not stat.S_ISREG(status.st_mode):
        raise ImportProgramError(f'"{where.shown}" cannot be loaded: it is a device, not a program')
    if status.st_size > _LARGEST:
        raise ImportProgramError(f'"{where.shown}" cannot be loaded: no program is that large')
    return status.st_mtime_ns, status.st_size, status.st_ino


def _bytes(where: Where) -> bytes:
    try:
        return Path(where.address).read_bytes()
    except OSError as error:
        raise _unreadable(where, error) from None


def _unreadable(where: Where, error: OSError | ValueError) -> ImportProgramError:
    if isinstance(error, FileNotFoundError):
        reason = "there is no such file"
    else:
        reason = (getattr(error, "strerror", None) or "no file can be called so").lower()
    return ImportProgramError(f'"{where.shown}" cannot be loaded: {reason}')


def _errors(where: Where, findings: tuple[Diagnostic, ...]) -> ImportProgramError:
    """The error of an importer whose import has errors; a cycle below stays a cycle."""
    errors = [finding for finding in findings if finding.severity == "error"]
    cycle = next((finding for finding in errors if finding.code == "E112"), None)
    if cycle is not None:
        return ImportProgramError(cycle.message, code="E112", hint=cycle.hint)
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    place = f"line {first.line}, column {first.column}"
    return ImportProgramError(
        f'"{where.shown}" cannot be loaded, it has errors: {place}: {first.message} [{first.code}]{more}',
        hint=f"prose compile {where.shown}" if not where.remote else None,
    )


def _cycle(way: tuple[Where, ...]) -> ImportProgramError:
    shown = " -> ".join(where.shown or "this program" for where in way)
    return ImportProgramError(
        f"Import cycle: {shown}", code="E112", hint="a program cannot import itself, also not by way of others"
    )
