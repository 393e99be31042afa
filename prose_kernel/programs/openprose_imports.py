"""Imported programs: resolve a `use` path, read and check the program, return its contract (openprose.md 6.1).

Local files are read here; remote programs come from `RemotePrograms`, or are unavailable without it. A program and all
its imports are fetched and checked first; then a person agrees to run new texts; then it is loaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct, field

from prose_kernel.access import plain_files
from prose_kernel.errors import CompileError, ImportProgramError
from prose_kernel.language import typed_answers
from prose_kernel.language.contracts import LIBRARY, SUFFIX, file_and_node, is_contract
from prose_kernel.language.diagnostics import PROSESCRIPT_PROFILES, Diagnostic, Profile, decode
from prose_kernel.language.nodes import walk
from prose_kernel.language.openprose.call_targets import interface_of
from prose_kernel.language.openprose.program_interface import ProgramInterface, abilities, all_gates, contract, place_of
from prose_kernel.language.openprose.tree import Call, Program, Use
from prose_kernel.language.source import Source
from prose_kernel.language.structs import replace
from prose_kernel.language.text import as_argument
from prose_kernel.programs import files as program_files
from prose_kernel.programs import missing_files, urls
from prose_kernel.programs.consent import Candidate
from prose_kernel.programs.contract_files import ContractFiles
from prose_kernel.programs.files import Location
from prose_kernel.runtime.ports import LoadedProgram, LoadRequest

if TYPE_CHECKING:
    from prose_kernel.programs.remote_programs import RemotePrograms


_Candidates = dict[Location, Candidate]
Stamp = plain_files.Stamp | str
"""The stamp of a file; the digest of a remote program, or the given text itself."""


class _Parsed(Struct, frozen=True):
    """A parsed program with its imports."""

    where: Location
    stamp: Stamp
    source: Source
    program: Program
    paths: tuple[str, ...]


class _Checked(Struct, frozen=True):
    """A program without errors. `imports` are the imported programs, as checked, in the order of `text.paths`."""

    text: _Parsed
    contract: ProgramInterface
    imports: tuple[_Checked | None, ...]


class _Reading(Struct):
    """Whether the last check has read a `remote` program, and the `contracts` whose check is waiting for the files that
    they call."""

    remote: bool = False
    contracts: list[Location] = field(default_factory=list)


class LocalPrograms:
    """Resolves the imports of one program or notebook.

    - `base` is the directory to which its local paths are relative.
    - `program` is its own file, so that importing it is detected as a cycle.
    - `origin` is the registry name or URL of a program that is itself remote.
    - `resolver` is called for the first remote program.
    - `texts` replace files, by address: the texts in an editor, or the texts that a resumed run has read before.

    A program is read again if its file has changed.
    """

    def __init__(
        self,
        base: Path,
        *,
        program: Path | None = None,
        profile: Profile = "default",
        resolver: Callable[[], RemotePrograms] | None = None,
        origin: str = "",
        texts: Mapping[str, str] | None = None,
    ) -> None:
        self._profile: Profile = profile
        self._make_resolver = resolver
        self._made_resolver: RemotePrograms | None = None
        name = file_and_node(program.name)[0] if program else ""
        self._root = Location(str(_real(base / (name or "."))), shown=name)
        if origin:
            self._root = self._remote(origin)
        self._directory = _real(base)
        self._shown_from = "" if base.is_absolute() else str(base)
        self._texts: dict[Location, _Parsed] = {}
        self._checked: dict[Location, _Checked] = {}
        self._loaded: dict[int, tuple[Source, tuple[Location, ...]]] = {}
        self._reading = program_files.OfLoad(_Reading())
        self._given = program_files.OfLoad[Mapping[str, str]]({} if texts is None else texts)

    # ------------------------------------------------------------ the calls

    def load_contract(self, path: str) -> Any:
        """Return the contract of the program at a `use` path of the root; None for a remote program that is not cached.
        For `LIBRARY`, return the files around a contract file.

        Raises `ImportProgramError`: E215 if it is missing or has errors, E112 for a cycle; E224 for an unusable JSON
        Schema.
        """
        if path.startswith(typed_answers.FILE_PREFIX):
            return ProgramInterface(schema=self._schema(path, self._root)[0])
        if path == LIBRARY:
            root = self._root
            if root.address == str(self._directory):  # cells, which have no file
                root = Location(f"{self._directory}/-", shown="-")
            return self.library(root)
        where = self.resolve(path)
        text = self._read(where)
        return None if text is None else self._check(text, (self._root,)).contract

    async def load_program(self, request: LoadRequest) -> LoadedProgram:
        """Return the imported program, read and checked in a worker thread.

        Raises `ImportProgramError` as `load_contract` does, and for a remote program that cannot be fetched.
        """
        path, source = request.path, request.importer
        _, chain = self._loaded.get(id(source), (source, (self._root,)))
        with self._given.set(request.texts or {}), self._reading.set(_Reading()):
            if path.startswith(typed_answers.FILE_PREFIX):
                schema, texts = await asyncio.to_thread(self._schema, path, chain[-1])
                return LoadedProgram(schema, source, "", "", texts=texts)
            where = self.resolve(path, chain[-1])
            if where in chain:
                raise _cycle((*chain[chain.index(where) :], where))
            checked, remote = await self._complete(where, chain)
            if remote and len(chain) == 1:
                remote = await self._with_other_imports(source, where, remote)
        await self._admit(remote)
        text = checked.text
        self._loaded[id(text.source)] = text.source, (*chain, where)
        handle, slug = handle_and_slug(path, where, self._registry)
        found = remote[where].fetched if where in remote else None
        url, digest = (found.url, found.digest) if found else ("", "")
        return LoadedProgram(text.program, text.source, handle, slug, url, digest, _texts(checked))

    # ------------------------------------------------------------ contract files

    def library(self, where: Location) -> ContractFiles:
        """Return the files around a contract file."""
        return ContractFiles(
            where.address, self._given.now, self._contract_at, shown_from=str(Path(where.shown).parent)
        )

    def _contract_at(self, address: str) -> ProgramInterface:
        """Return the contract of a `.prose` program that a contract file calls."""
        where = Location(address, shown=os.path.relpath(address, self._directory))
        waiting = self._reading.now.contracts
        if where in waiting:
            raise _cycle((*waiting[waiting.index(where) :], where))
        text = self._read(where)
        assert text is not None  # a file
        return self._check(text, (self._root, *waiting)).contract

    def _check_contract(self, text: _Parsed) -> _Checked:
        from prose_kernel.language.contracts.compile import compile_source

        self._reading.now.contracts.append(text.where)
        try:
            files: Any = self.library(text.where)
            compiled = compile_source(text.source, profile=self._profile, load=lambda path: files)
        finally:
            self._reading.now.contracts.pop()
        if not compiled.ok:
            raise _errors(text.where, compiled.diagnostics)
        text = replace(text, program=compiled.program)
        return _Checked(text, contract(compiled.program), ())

    def file_of(self, path: str) -> Path | None:
        """Return the local file of a `use` path of the root; None for any other path."""
        try:
            where = self.resolve(path)
        except ImportProgramError:
            return None
        return None if where.remote else Path(where.address)

    async def load_root(self) -> Source:
        """Return the text of the program at `origin`, after consent to all remote programs that it leads to.

        Raises `CompileError` if it has errors itself, and `ImportProgramError` as `load_program` does.
        """
        try:
            checked, remote = await self._complete(self._root, ())
        except ImportProgramError as error:
            text = await asyncio.to_thread(self._read, self._root)
            findings = self._own_errors(text) if text is not None else ()
            if findings:
                raise CompileError(findings) from None
            raise error from None
        await self._admit(remote)
        return checked.text.source

    # ------------------------------------------------------------ programs from elsewhere

    @property
    def _resolver(self) -> RemotePrograms | None:
        if self._made_resolver is None and self._make_resolver is not None:
            self._made_resolver = self._make_resolver()
        return self._made_resolver

    @property
    def _registry(self) -> str:
        return self._made_resolver.registry if self._made_resolver is not None else urls.REGISTRY

    async def _complete(self, where: Location, chain: tuple[Location, ...]) -> tuple[_Checked, _Candidates]:
        """Return the checked program and all remote programs that it leads to, itself included, fetching missing
        ones."""
        while True:
            found = await asyncio.to_thread(self._attempt, where, chain)
            if isinstance(found, tuple):
                return found
            for one in found:
                if self._resolver is None:
                    hint = f"save {one.address} next to this program and `use` the file"
                    raise ImportProgramError(
                        f'"{one.shown}" cannot be loaded: offline, only local files are', hint=hint
                    )
                await self._resolver.fetch(one.address)

    def _attempt(self, where: Location, chain: tuple[Location, ...]) -> tuple[_Checked, _Candidates] | list[Location]:
        """Return the result of `_complete`, or the programs that must be fetched first."""
        self._reading.now.remote = where.remote
        if not where.remote and (local := self._read(where)) is not None:
            checked = self._check(local, chain)
            if not self._reading.now.remote:
                return checked, {}
        remote: _Candidates = {}
        missing: list[Location] = []
        resolver, size = self._resolver, 0
        seen = {where}
        ahead: list[tuple[Location, tuple[str, ...]]] = [(where, ())]
        for at, via in ahead:
            agreed = at.address in self._given.now  # agreed to when the run began
            fetched = resolver.cached(at.address) if at.remote and not agreed and resolver else None
            size += len(fetched.data) if fetched is not None else 0
            if resolver is not None and size > resolver.size:
                raise _too_many(where, f"{resolver.size:,} bytes of programs", "size")
            try:
                text = self._read(at)
            except ImportProgramError:
                continue  # the check reports it
            if text is None:
                missing.append(at)
                continue
            if fetched is not None:
                if fetched.digest != text.stamp:
                    return []  # the pin has changed meanwhile
                remote[at] = Candidate(fetched, abilities(text.program), via)
                via = (*via, at.address)
            for inner in self._uses_of(text):
                if inner not in seen:
                    seen.add(inner)
                    ahead.append((inner, via))
        if resolver is not None and len(remote) + len(missing) > resolver.most:
            raise _too_many(where, f"{resolver.most} programs", "most")
        if missing:
            return missing
        text = self._read(where)
        assert text is not None  # it is not missing
        checked = self._check(text, chain)
        if where in remote and remote[where].fetched.digest != checked.text.stamp:
            return []  # the pin has changed meanwhile
        return checked, remote

    def _uses_of(self, text: _Parsed) -> list[Location]:
        found = []
        for path in text.paths:
            with contextlib.suppress(ImportProgramError):  # the check reports it
                found.append(self.resolve(path, text.where))
        return found

    async def _with_other_imports(self, importer: Source, first: Location, remote: _Candidates) -> _Candidates:
        """Add the remote programs of the text's other imports, so that one question covers all. An error in one of
        these imports is reported when that import is loaded."""
        from prose_kernel.language.openprose.parser import parse

        program = parse(importer, self._profile).program
        for path in dict.fromkeys(item.path.raw for item in program.items if isinstance(item, Use)):
            with contextlib.suppress(ImportProgramError):
                if (where := self.resolve(path)) != first:
                    remote = (await self._complete(where, (self._root,)))[1] | remote
        return remote

    async def _admit(self, remote: _Candidates) -> None:
        if remote and self._resolver is not None:
            await self._resolver.admit(tuple(remote.values()))

    def _own_errors(self, text: _Parsed) -> tuple[Diagnostic, ...]:
        """Return the program's own errors, without those of its imports; empty if it has none."""
        from prose_kernel.language.openprose import compile_source

        compiled = compile_source(text.source, profile=self._profile)
        return () if compiled.ok else compiled.diagnostics

    # ------------------------------------------------------------ paths

    def resolve(self, path: str, importer: Location | None = None) -> Location:
        """Resolve a path in `importer` (by default the root). Raises `ImportProgramError` (E215) if 6.1 forbids it."""
        importer = importer or self._root
        place = place_of(path, self._profile)
        if place == "local":
            return self._remote_relative(path, importer) if importer.remote else self._file(path, importer)
        if place == "remote":
            return self._remote(path)
        raise ImportProgramError(
            f'"{path}" is not an import path', hint="a file, `handle/name`, or an `https://` address"
        )

    def _file(self, path: str, importer: Location) -> Location:
        if not path.isprintable():
            raise ImportProgramError("a path with unprintable characters cannot be loaded: no file can be called so")
        if path.startswith("~/"):
            return Location(str(_real(Path.home() / path[2:])), shown=path)
        is_root = importer is self._root
        directory = self._directory if is_root else Path(importer.address).parent
        above = self._shown_from if is_root else str(Path(importer.shown).parent)
        return Location(str(_real(directory / path)), shown=os.path.normpath(Path(above) / path))

    def _remote(self, path: str) -> Location:
        resolver = self._resolver
        return Location(urls.address(path, resolver.registry if resolver is not None else urls.REGISTRY), True, path)

    def _remote_relative(self, path: str, importer: Location) -> Location:
        """Resolve a relative path of a remote program: on its own server, never to a file of this machine."""
        if path.startswith(("/", "~/")):
            raise ImportProgramError(f'"{path}" names a file of this machine, in a program from elsewhere')
        resolver = self._resolver
        url = urls.relative_url(resolver.location(importer.address) if resolver is not None else importer.address, path)
        return Location(url, True, url)

    # ------------------------------------------------------------ reading

    def _schema(self, path: str, importer: Location) -> tuple[dict[str, Any], dict[str, str]]:
        """Return a JSON Schema that a program names, and the texts that were read for it. Raises
        `ImportProgramError`."""
        path = path.removeprefix(typed_answers.FILE_PREFIX)
        if importer.remote:
            raise program_files.unusable_schema(path, "a program from elsewhere reads no files")
        if "://" in path:
            raise program_files.unusable_schema(path, "a schema is a file; nothing is fetched for it")
        return program_files.read_schema(self._file(path, importer), self._given.now)

    def _read(self, where: Location) -> _Parsed | None:
        """Return the parsed program at `where`, cached if unchanged; None if a remote program is unavailable."""
        known = self._texts.get(where)
        data: bytes | None = None
        try:
            self._reading.now.remote |= where.remote
            if (given := self._given.now.get(where.address)) is not None:
                data = given.encode("utf-8", "replace")
                stamp: Stamp = given
            elif where.remote:
                fetched = self._resolver.cached(where.address) if self._resolver is not None else None
                if fetched is None:
                    return None
                stamp = fetched.digest
                data = fetched.data
            else:
                stamp = program_files.stamp(where.address)
            if known is not None and known.stamp == stamp:
                return known
            content = program_files.read(where.address) if data is None else data
        except program_files.Unreadable as reason:
            hint = missing_files.hint(where.shown, (".prose", SUFFIX), path=where.address) if reason.missing else None
            raise ImportProgramError(f'"{where.shown}" cannot be loaded: {reason}', hint=hint) from None
        text = self._texts[where] = self._parse(where, stamp, content)
        return text

    def _parse(self, where: Location, stamp: Stamp, data: bytes) -> _Parsed:
        from prose_kernel.language.openprose.parser import parse

        try:
            source = decode(data, where.shown)
        except CompileError as error:
            raise _errors(where, error.diagnostics) from None
        if is_contract(where.address):
            return _Parsed(where, stamp, source, Program(()), ())
        parsed = parse(source, self._profile)
        uses = dict.fromkeys(item.path.raw for item in parsed.program.items if isinstance(item, Use))
        return _Parsed(where, stamp, source, parsed.program, tuple(uses))

    # ------------------------------------------------------------ checking

    def _check(self, start: _Parsed, chain: tuple[Location, ...]) -> _Checked:
        """Check a program and all its imports, innermost first."""
        result = program_files.checked(start, chain, self.resolve, self._read, self._check_one)[start.where]
        if isinstance(result, ImportProgramError):
            raise result
        return result

    def _check_one(
        self, text: _Parsed, cycle_to: program_files.CycleTo, results: program_files.Results[_Checked]
    ) -> _Checked | ImportProgramError:
        """Check one program, whose imports have their `results`."""
        if is_contract(text.where.address):
            return self._check_contract(text)

        def find(path: str) -> _Checked | None:
            where = self.resolve(path, text.where)
            if cycle := cycle_to(where):
                raise _cycle(cycle)
            found = results.get(where)
            if isinstance(found, ImportProgramError):
                raise found
            return found

        def load(path: str) -> ProgramInterface | None:
            if path.startswith(typed_answers.FILE_PREFIX):
                return ProgramInterface(schema=self._schema(path, text.where)[0])
            found = find(path)
            return None if found is None else found.contract

        imports: tuple[_Checked | None, ...] | None
        try:
            imports = tuple(map(find, text.paths))
        except ImportProgramError:
            imports = None  # the check of the text reports it
        known = self._checked.get(text.where)
        if imports is not None and known is not None and known.text is text and _same_imports(known.imports, imports):
            return known
        from prose_kernel.language.openprose import compile_source

        calls = self._profile in PROSESCRIPT_PROFILES and any(isinstance(node, Call) for node in walk(text.program))
        if calls:
            text = self._with_targets(text)
            self._reading.now.contracts.append(text.where)  # it may be called by a file that it calls
        try:
            compiled = compile_source(text.source, profile=self._profile, load=load)
        finally:
            if calls:
                self._reading.now.contracts.pop()
        if not compiled.ok:
            return _errors(text.where, compiled.diagnostics)
        gates = all_gates(text.program, load)
        checked = _Checked(text, replace(contract(text.program), gates=gates), imports or ())
        if not calls:  # the files that it calls are read again
            self._checked[text.where] = checked
        return checked

    def _with_targets(self, text: _Parsed) -> _Parsed:
        """Return a script together with the contract files around it, which it may call."""
        from prose_kernel.language.contracts.compile import with_targets

        files: Any = self.library(text.where)
        return replace(text, source=with_targets(text.source, lambda path: files, self._profile, None, pipefail=False))


def handle_and_slug(path: str, where: Location, registry: str = urls.REGISTRY) -> tuple[str, str]:
    """Return the two parts of an import's directory name (6.5): `local` and the stem, `url` and the last path segment,
    or the handle and name of a registry path."""
    if not where.remote:
        return "local", Path(path).name.removesuffix(".md").removesuffix(".prose") or "program"
    if where.address.startswith(registry) and not path.startswith(("http://", "https://", "./", "../")):
        handle, _, rest = where.address.removeprefix(registry).partition("/")
        return handle, rest.rpartition("/")[2].removesuffix(".prose") or "program"
    return "url", Path(urlsplit(where.address).path).stem or "program"


def _too_many(where: Location, much: str, setting: str) -> ImportProgramError:
    hint = f"[programs] {setting} in prose.toml changes the limit"
    return urls.unfetchable(where.shown, f"it leads to more than {much} from elsewhere", hint)


def _texts(checked: _Checked) -> dict[str, str]:
    """Return the sources of a program and of all its imports, by address."""
    found: dict[str, str] = {}
    agenda = [checked]
    while agenda:
        one = agenda.pop()
        found[one.text.where.address] = one.text.source.text
        found.update(one.text.program.texts())
        if (targets := interface_of(one.text.source).targets) is not None:
            found.update(targets.texts())
        agenda.extend(inner for inner in one.imports if inner is not None and inner.text.where.address not in found)
    return found


def _same_imports(before: tuple[_Checked | None, ...], now: tuple[_Checked | None, ...]) -> bool:
    return len(before) == len(now) and all(a is b for a, b in zip(before, now, strict=True))


def _real(path: Path) -> Path:
    """Return the path with links to directories resolved. A link to the file itself is refused when it is read."""
    return Path(os.path.realpath(path.parent), path.name)


def _errors(where: Location, findings: tuple[Diagnostic, ...]) -> ImportProgramError:
    """Return the importer's error for an import with errors; a cycle among its imports stays E112."""
    errors = [finding for finding in findings if finding.severity == "error"]
    cycle = next((finding for finding in errors if finding.code == "E112"), None)
    if cycle is not None:
        return ImportProgramError(cycle.message, code="E112", hint=cycle.hint)
    hint = None if where.remote else f"prose compile {as_argument(where.shown)}"
    return ImportProgramError(program_files.errors_in(where.shown, errors), hint=hint)


def _cycle(way: tuple[Location, ...]) -> ImportProgramError:
    shown = " -> ".join(where.shown or "this program" for where in way)
    return ImportProgramError(
        f"Import cycle: {shown}", code="E112", hint="a program cannot import itself, also not by way of others"
    )
