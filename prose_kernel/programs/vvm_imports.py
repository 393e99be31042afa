"""VVM modules: resolve an import path, read and check the file and all its imports (9.3 of the reference)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from prose_kernel.access import plain_files
from prose_kernel.errors import CompileError, ImportProgramError
from prose_kernel.language import typed_answers
from prose_kernel.language.diagnostics import Diagnostic, decode, has_errors
from prose_kernel.language.source import Source
from prose_kernel.language.text import as_argument
from prose_kernel.language.typed_answers import Schema
from prose_kernel.language.vvm.program_interface import CheckedModule, contract, execution_order, names_file
from prose_kernel.language.vvm.tree import Program
from prose_kernel.programs import files as program_files
from prose_kernel.programs import missing_files
from prose_kernel.programs.files import Location
from prose_kernel.runtime.ports import LoadedProgram, LoadRequest


class _Parsed(Struct, frozen=True):
    """A file that was read and parsed, with the paths of its imports."""

    where: Location
    stamp: plain_files.Stamp | str
    source: Source
    program: Program
    findings: tuple[Diagnostic, ...]
    paths: tuple[str, ...]


class LocalModules:
    """Loads the modules that one program or notebook imports.

    `base` is the directory to which its paths are relative; `program` is its own file, so that importing it is detected
    as a cycle. A file is read again if it has changed; otherwise its module is the same object as before.
    """

    def __init__(self, base: Path, *, program: Path | None = None, texts: Mapping[str, str] | None = None) -> None:
        name = program.name if program else ""
        self._directory = os.path.abspath(base)  # noqa: PTH100 - links are not resolved
        self._shown_from = "" if base.is_absolute() else str(base)
        shown = os.path.normpath(os.path.join(self._shown_from, name)) if name else ""  # noqa: PTH118
        self._root = Location(os.path.abspath(base / name), shown=shown)  # noqa: PTH100
        self._texts: dict[str, _Parsed] = {}
        self._modules: dict[str, tuple[_Parsed, CheckedModule]] = {}
        self._given = program_files.OfLoad[Mapping[str, str]]({} if texts is None else texts)

    # ------------------------------------------------------------ the two calls

    def load_contract(self, path: str) -> CheckedModule | Schema:
        """Return the module at an import path of the root, whose findings include its errors; for a JSON Schema, the
        schema.

        Raises `ImportProgramError`: V090 if there is no such file, V201 if it is the root itself, E224 for an unusable
        schema.
        """
        if path.startswith(typed_answers.FILE_PREFIX):
            return self._schema(path, self._root)[0]
        return self._load(path)

    def _load(self, path: str) -> CheckedModule:
        file = self._resolve(path, self._root)
        if file.address == self._root.address:
            raise _cycle((self._root, file))
        start = self._read(file)
        module = program_files.checked(start, (self._root,), self._resolve, self._read, self._module)[start.where]
        assert isinstance(module, CheckedModule)
        return module

    async def load_program(self, request: LoadRequest) -> LoadedProgram:
        """Return the module at an import path of the root, read and checked in a worker thread.

        Raises `ImportProgramError` as `load_contract` does, and if the module or one that it imports has errors.
        """
        with self._given.set(request.texts or {}):
            if request.path.startswith(typed_answers.FILE_PREFIX):
                schema, found = await asyncio.to_thread(self._schema, request.path, self._root)
                return LoadedProgram(schema, request.importer, "", "", texts=found)
            module = await asyncio.to_thread(self._load, request.path)
        for one in execution_order([module]):
            if has_errors(one.findings):
                raise _module_error(one)
        texts = {one.path: one.source.text for one in execution_order([module])}
        return LoadedProgram(module, module.source, "local", Path(module.path).stem, texts=texts)

    def file_of(self, path: str) -> Path | None:
        """Return the file of an import path of the root; None for a path that names no file."""
        try:
            return Path(self._resolve(path, self._root).address)
        except ImportProgramError:
            return None

    # ------------------------------------------------------------ reading

    def _schema(self, path: str, importer: Location) -> tuple[dict[str, Any], dict[str, str]]:
        """Return a JSON Schema, and the texts that were read for it. Raises `ImportProgramError`."""
        path = path.removeprefix(typed_answers.FILE_PREFIX)
        if "://" in path or not path.isprintable():
            raise program_files.unusable_schema(path, "a schema is a file; nothing is fetched for it")
        return program_files.read_schema(self._place(path, importer), self._given.now)

    def _resolve(self, path: str, importer: Location) -> Location:
        if not names_file(path) or not path.isprintable():
            raise ImportProgramError(f"Module not found: {path}", code="V090", hint="no file can be called so")
        return self._place(path, importer)

    def _place(self, path: str, importer: Location) -> Location:
        is_root = importer is self._root
        directory = self._directory if is_root else os.path.dirname(importer.address)  # noqa: PTH120
        above = self._shown_from if is_root else os.path.dirname(importer.shown)  # noqa: PTH120
        shown = os.path.normpath(os.path.join(above, path))  # noqa: PTH118
        found = Location(os.path.normpath(os.path.join(directory, path)), shown=shown)  # noqa: PTH118
        return self._root if found == self._root else found  # the root has the same name, whichever import leads to it

    def _read(self, file: Location) -> _Parsed:
        """Return the parsed file, cached if unchanged. Raises `ImportProgramError` (V090)."""
        known = self._texts.get(file.address)
        if (given := self._given.now.get(file.address)) is not None:
            if known is None or (known.stamp, known.where.shown) != (given, file.shown):
                known = self._texts[file.address] = _parsed(file, given, given.encode("utf-8", "replace"))
            return known
        try:
            stamp = program_files.stamp(file.address)
            if known is not None and (known.stamp, known.where.shown) == (stamp, file.shown):
                return known
            data = program_files.read(file.address)
        except program_files.Unreadable as reason:
            why = "" if reason.missing else f" ({reason})"
            hint = missing_files.hint(file.shown, (".vvm",), path=file.address) if reason.missing else None
            raise ImportProgramError(f"Module not found: {file.shown}{why}", code="V090", hint=hint) from None
        text = self._texts[file.address] = _parsed(file, stamp, data)
        return text

    # ------------------------------------------------------------ checking

    def _module(
        self, text: _Parsed, cycle_to: program_files.CycleTo, results: program_files.Results[CheckedModule]
    ) -> CheckedModule:
        """Check one file, whose imports have their `results`."""
        from prose_kernel.language.vvm.checker import check_module

        def load(path: str) -> CheckedModule:
            where = self._resolve(path, text.where)
            if cycle := cycle_to(where):
                raise _cycle(cycle)
            found = results[where]
            if isinstance(found, ImportProgramError):
                raise found
            return found

        known = self._modules.get(text.where.address)
        if known is not None and known[0] is text and _same_imports(known[1].imports, load):
            return known[1]

        def find(path: str) -> CheckedModule | Schema:
            return self._schema(path, text.where)[0] if path.startswith(typed_answers.FILE_PREFIX) else load(path)

        findings, imports = check_module(text.program, text.source, find, text.findings)
        module = CheckedModule(
            text.where.address,
            text.source,
            text.program,
            contract(text.program),
            imports,
            findings,
            whole=not has_errors(text.findings),
        )
        if not has_errors(findings):
            self._modules[text.where.address] = text, module
        return module


def _parsed(file: Location, stamp: plain_files.Stamp | str, data: bytes) -> _Parsed:
    from prose_kernel.language.vvm.parser import parse

    try:
        source = decode(data, file.shown, "V001")
    except CompileError as error:
        found = tuple(one for one in error.diagnostics if isinstance(one, Diagnostic))
        return _Parsed(file, stamp, Source("", file.shown), Program(()), found, ())
    parsed = parse(source)
    return _Parsed(file, stamp, source, parsed.program, tuple(parsed.diagnostics), contract(parsed.program).imports)


def _same_imports(imports: Mapping[str, CheckedModule], load: Callable[[str], CheckedModule]) -> bool:
    """Return whether the imports lead to the same modules as before."""
    try:
        return all(load(path) is module for path, module in imports.items())
    except ImportProgramError:
        return False


def _cycle(way: tuple[Location, ...]) -> ImportProgramError:
    names = [one.shown or "this program" for one in way]
    if len(way) == 2:
        return ImportProgramError(f"{names[0]} imports itself", code="V201", hint="leave the import out")
    hint = "move their shared parts into a separate module"
    return ImportProgramError(f"modules import each other: {' -> '.join(names)}", code="V201", hint=hint)


def _module_error(module: CheckedModule) -> ImportProgramError:
    """Return the error for a module that has got errors since the importing text was checked."""
    errors = [one for one in module.findings if one.severity == "error"]
    name = module.source.name
    hint = f"prose compile {as_argument(name)}"
    return ImportProgramError(program_files.errors_in(name, errors), code=errors[0].code, hint=hint)
