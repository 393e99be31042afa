"""Imported programs: resolve a `use` path, read and check the program, return its contract (openprose.md 6.1).

Local files are read here. Remote programs come from a `Resolver`; without one they are unavailable.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
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
from prose_kernel.state import program_files

REGISTRY: Final = "https://p.prose.md/"


class Resolver(Protocol):
    """Loads remote programs. `url` is absolute; registry paths are already resolved to one."""

    def cached(self, url: str) -> bytes | None:
        """Return the program if it is available without a connection, else None."""
        ...

    async def fetch(self, url: str) -> bytes:
        """Return the program. Raises `ImportProgramError` (E215) with the reason if it cannot be fetched."""
        ...


@dataclass(frozen=True, slots=True)
class Where:
    """The location of a program: a file (absolute, links resolved) or a URL; `shown` is its name for people."""

    address: str
    remote: bool = False
    shown: str = field(default="", compare=False)


Stamp = program_files.Stamp | bytes


@dataclass(frozen=True, slots=True)
class _Text:
    """A parsed program with its imports."""

    where: Where
    stamp: Stamp
    source: Source
    program: Program
    uses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Checked:
    """A program without errors. `imports` are the programs it was checked against, in the order of its `uses`."""

    text: _Text
    contract: Contract
    imports: tuple[_Checked | None, ...]


class LocalPrograms:
    """Resolves the imports of one program or notebook.

    `base` is the directory to which its local paths are relative; `program` is its own file, so that importing it is
    detected as a cycle. A program is read again if its file has changed.
    """

    def __init__(
        self,
        base: Path,
        *,
        program: Path | None = None,
        profile: Profile = "default",
        resolver: Resolver | None = None,
        home: Path | None = None,
        texts: Mapping[str, str] | None = None,
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
        # By address: what an editor holds, or what a resumed run has read before.
        self._given: Mapping[str, str] = {} if texts is None else texts

    # ------------------------------------------------------------ the two calls

    def load_contract(self, path: str) -> Contract | None:
        """Return the contract of the program at a `use` path of the root; None for a remote program that is not cached.

        Raises `ImportProgramError`: E215 if it is missing or has errors, E112 for a cycle.
        """
        where = self.resolve(path)
        text = self._read(where)
        return None if text is None else self._check(text, (self._root,)).contract

    async def load_program(self, request: LoadRequest) -> LoadedProgram:
        """The program that an import leads to, read and checked in a worker thread.

        Raises `ImportProgramError` as `load_contract` does, and for a remote program that cannot be fetched.
        """
        path, source = request.path, request.importer
        self._given = request.texts or {}
        _, chain = self._loaded.get(id(source), (source, (self._root,)))
        where = self.resolve(path, chain[-1])
        if where in chain:
            raise _cycle((*chain[chain.index(where) :], where))
        data = await self._fetch(where) if where.remote and where.address not in self._given else None
        checked = await asyncio.to_thread(self._load, where, chain, data)
        text = checked.text
        self._loaded[id(text.source)] = text.source, (*chain, where)
        handle, slug = handle_and_slug(path, where)
        return LoadedProgram(text.program, text.source, handle, slug, _texts(checked))

    def file_of(self, path: str) -> Path | None:
        """The local file that a `use` path of the root leads to; None for any other path."""
        try:
            where = self.resolve(path)
        except ImportProgramError:
            return None
        return None if where.remote else Path(where.address)

    def _load(self, where: Where, chain: tuple[Where, ...], data: bytes | None) -> _Checked:
        text = self._read(where, data)
        assert text is not None  # it is a file, or was fetched
        return self._check(text, chain)

    # ------------------------------------------------------------ paths

    def resolve(self, path: str, importer: Where | None = None) -> Where:
        """Resolve a path in `importer` (by default the root). Raises `ImportProgramError` (E215) if 6.1 forbids it."""
        importer = importer or self._root
        place = place_of(path, self._profile)
        if place == "local":
            return self._remote_neighbour(path, importer) if importer.remote else self._file(path, importer)
        if place == "remote" and path.startswith(("http://", "https://")):
            return Where(path, True, path)
        if place == "remote":
            return Where(REGISTRY + path.removeprefix("@"), True, path)
        raise ImportProgramError(
            f'"{path}" is not an import path', hint="a file, `handle/name`, or an `https://` address"
        )

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
        """Return the parsed program at `where`, cached if unchanged; None if a remote program is unavailable."""
        known = self._texts.get(where)
        try:
            if where.address in self._given:
                data = self._given[where.address].encode("utf-8", "replace")
                stamp: Stamp = data
            elif where.remote:
                data = data if data is not None or self._resolver is None else self._resolver.cached(where.address)
                if data is None:
                    return None
                stamp = data
            else:
                stamp = program_files.stamp(where.address)
            if known is not None and known.stamp == stamp:
                return known
            content = program_files.read(where.address) if data is None else data
        except program_files.Unreadable as reason:
            raise _unreadable(where, reason) from None
        text = self._texts[where] = self._parse(where, stamp, content)
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
        """Check a program and all its imports, innermost first."""
        results: dict[Where, _Checked | ImportProgramError] = {}
        active = {*chain, start.where}

        def enter(importer: _Text, path: str) -> _Text | None:
            text = self._import_of(importer, path, results, active)
            if text is not None:
                active.add(text.where)
            return text

        def check(way: list[_Text]) -> None:
            where = way[-1].where
            results[where] = self._check_one(way[-1], (*chain, *(text.where for text in way)), results)
            active.discard(where)

        program_files.innermost_first(start, lambda text: text.uses, enter, check)
        result = results[start.where]
        if isinstance(result, ImportProgramError):
            raise result
        return result

    def _import_of(
        self, importer: _Text, path: str, results: dict[Where, _Checked | ImportProgramError], active: set[Where]
    ) -> _Text | None:
        """Return the import to visit next, or None. An import that cannot be read is added to `results`."""
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
        """Check one program. `way` leads from the root to it; the results of its imports are in `results`."""

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
    """Return the two parts of an import's directory name (6.5): `local` and the stem, `url` and the last path segment,
    or the handle and name of a registry path."""
    if not where.remote:
        return "local", Path(path).name.removesuffix(".prose") or "program"
    if where.address.startswith(REGISTRY) and not path.startswith(("http://", "https://")):
        handle, _, rest = where.address.removeprefix(REGISTRY).partition("/")
        return handle, rest.rpartition("/")[2].removesuffix(".prose") or "program"
    return "url", Path(urlsplit(where.address).path).stem or "program"


def _texts(checked: _Checked) -> dict[str, str]:
    """The sources of a program and of all that it imports, by address."""
    found: dict[str, str] = {}
    agenda = [checked]
    while agenda:
        one = agenda.pop()
        found[one.text.where.address] = one.text.source.text
        agenda.extend(inner for inner in one.imports if inner is not None and inner.text.where.address not in found)
    return found


def _imports(uses: tuple[str, ...], find: _Find) -> tuple[tuple[_Checked | None, ...], bool]:
    """Return the imports, and whether one of them has errors."""
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


def _unreadable(where: Where, reason: program_files.Unreadable) -> ImportProgramError:
    return ImportProgramError(f'"{where.shown}" cannot be loaded: {reason}')


def _errors(where: Where, findings: tuple[Diagnostic, ...]) -> ImportProgramError:
    """Return the importer's error for an import with errors; a cycle among its imports stays E112."""
    errors = [finding for finding in findings if finding.severity == "error"]
    cycle = next((finding for finding in errors if finding.code == "E112"), None)
    if cycle is not None:
        return ImportProgramError(cycle.message, code="E112", hint=cycle.hint)
    return ImportProgramError(
        program_files.errors_in(where.shown, errors),
        hint=f"prose compile {where.shown}" if not where.remote else None,
    )


def _cycle(way: tuple[Where, ...]) -> ImportProgramError:
    shown = " -> ".join(where.shown or "this program" for where in way)
    return ImportProgramError(
        f"Import cycle: {shown}", code="E112", hint="a program cannot import itself, also not by way of others"
    )
