"""The files around a contract file: resolves paths and bare names, and reads the texts (prose-md.md 3.5, 8, 9).

Only plain files are read, and nothing is fetched: dependencies are below `deps/` of the project.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from prose_kernel.access import plain_files
from prose_kernel.errors import CompileError, ImportProgramError
from prose_kernel.language.contracts import STANDARD, SUFFIX
from prose_kernel.language.contracts.reader import own_field
from prose_kernel.language.diagnostics import decode
from prose_kernel.language.openprose.program_interface import ProgramInterface
from prose_kernel.language.source import Source
from prose_kernel.programs import files as program_files
from prose_kernel.programs import missing_files

INDEX: Final = f"index{SUFFIX}"
_HEAD: Final = 16_000
"""The number of bytes of a file that contain its front matter."""
_PIN: Final = re.compile(r"(\S+)[ \t]+([0-9a-fA-F]{7,})")
_VERSION: Final = re.compile(r"(.+)@([^@/]+)\Z")
_SKIPPED: Final = frozenset(["deps", "dist", "runs", "state"])
_SKILLS: Final = ("skills", "~/.claude/skills", "~/.codex/skills", "~/.agents/skills")


class ContractFiles:
    """The `Library` of one text. `texts` are read instead of files, by address. `program` returns the contract of the
    `.prose` program at an address."""

    def __init__(
        self,
        home: str,
        texts: Mapping[str, str] | None = None,
        program: Callable[[str], ProgramInterface] | None = None,
        *,
        shown_from: str = "",
    ) -> None:
        self.home = home
        self.shared: dict[Hashable, Any] | None = None
        self._texts = {} if texts is None else texts
        self._program = program
        self._directory = os.path.dirname(home)  # noqa: PTH120 - text in, text out
        self._shown_from = shown_from
        self._names: dict[str, dict[str, list[str]]] = {}
        self._handles: dict[str, str] = {}

    # ------------------------------------------------------------ paths

    def resolve(self, importer: str, path: str) -> str:
        first, slash, rest = path.partition("/")
        directory = os.path.dirname(importer)  # noqa: PTH120
        if not path or not path.isprintable():
            raise _missing(f'"{path}" is not a path')
        if path.startswith(("./", "../", "/", "~/")) or (path.endswith((SUFFIX, ".prose")) and "." not in first):
            return self._first_file(os.path.join(directory, os.path.expanduser(path)), path)  # noqa: PTH118
        if first in STANDARD and slash:
            return self._dependency(importer, f"{STANDARD[first]}/{rest}", path)
        if not slash:
            return self._first_file(os.path.join(directory, path), path)  # noqa: PTH118
        if "." in first and "://" not in path:
            return self._dependency(importer, path, path)
        raise _missing(f'"{path}" names a registry, which is not open', "write the host: `github.com/OWNER/REPO/PATH`")

    def _first_file(self, place: str, shown: str, within: str = "") -> str:
        """Return the first file that exists for a path: as written, with the suffix, or the index of a directory."""
        for candidate in (place, place + SUFFIX, os.path.join(place, INDEX)):  # noqa: PTH118
            address = _real(candidate)
            if self._is_file(address):
                if within and not address.startswith(within + os.sep):
                    raise _missing(f'"{shown}" leads out of its repository by a link')
                return address
        whole = shown.endswith((SUFFIX, ".prose"))
        hint = missing_files.hint(shown, (SUFFIX, ".prose"), path=place)
        if hint is None and not whole:
            hint = f"it may be {Path(shown).name}{SUFFIX} or a directory with {INDEX}"
        raise _missing(f'there is no file "{shown}"', hint)

    def _is_file(self, address: str) -> bool:
        return address in self._texts or os.path.islink(address) or os.path.isfile(address)  # noqa: PTH113, PTH114

    def _dependency(self, importer: str, path: str, shown: str) -> str:
        version = _VERSION.match(path)
        path, wanted = (version[1], version[2]) if version else (path, "")
        parts = path.split("/")
        if ".." in parts or "." in parts or "" in parts or len(parts) < 4:
            raise _missing(f'"{shown}" is not the path of a dependency', "write HOST/OWNER/REPO/PATH")
        root, repository = root_of(importer), "/".join(parts[:3])
        place = os.path.join(root, "deps", *parts[:3])  # noqa: PTH118
        if not os.path.isdir(place) and not any(one.startswith(place) for one in self._texts):  # noqa: PTH112
            hint = f"`prose install` of OpenProse puts it into deps/{repository}; clone it there"
            raise _missing(f"Dependency not found: {repository}", hint)
        if wanted and not _pinned(root, repository, wanted):
            raise _missing(f"{repository} is not installed in version {wanted}", "prose.lock of the project names it")
        found = self._first_file(os.path.join(place, *parts[3:]), shown, os.path.realpath(place))  # noqa: PTH118
        self._handles[found] = parts[1]
        return found

    def handle(self, address: str) -> str:
        return self._handles.get(address, "local")

    # ------------------------------------------------------------ names

    def siblings(self, importer: str, name: str) -> tuple[str, ...]:
        directory = os.path.dirname(importer)  # noqa: PTH120
        for candidate in (f"{name}{SUFFIX}", f"{name}/{INDEX}"):
            address = os.path.join(directory, candidate)  # noqa: PTH118
            if self._is_file(address):
                return (address,)
        return tuple(self._by_name(directory).get(name, ()))

    def sibling_names(self, importer: str) -> tuple[str, ...]:
        named = self._by_name(os.path.dirname(importer))  # noqa: PTH120
        stems = {Path(one).name.removesuffix(SUFFIX) for places in named.values() for one in places}
        return tuple(sorted({*named, *stems}))

    def above(self, importer: str, name: str) -> str | None:
        place = os.path.dirname(importer)  # noqa: PTH120
        root = root_of(importer)
        top = os.path.dirname(place) if root == place else root  # noqa: PTH120
        while True:
            for directory in _directories_below(place):
                if found := self._by_name(directory).get(name):
                    return found[0]
            if place in (top, os.path.dirname(place)):  # noqa: PTH120
                return None
            place = os.path.dirname(place)  # noqa: PTH120

    def _by_name(self, directory: str) -> dict[str, list[str]]:
        """Return the contract files of a directory by the names in their front matter."""
        known = self._names.get(directory)
        if known is None:
            known = self._names[directory] = {}
            for address in self._files(directory):
                name = own_field(self._head(address), "name") or Path(address).name.removesuffix(SUFFIX)
                known.setdefault(name, []).append(address)
        return known

    def _files(self, directory: str) -> list[str]:
        given = [one for one in self._texts if os.path.dirname(one) == directory and one.endswith(SUFFIX)]  # noqa: PTH120
        try:
            names = [one.name for one in os.scandir(directory) if one.name.endswith(SUFFIX) and not one.is_symlink()]
        except OSError:
            names = []
        return sorted({*given, *(os.path.join(directory, name) for name in names)})  # noqa: PTH118

    def _head(self, address: str) -> str:
        return self._texts[address][:_HEAD] if address in self._texts else head_of(address)

    # ------------------------------------------------------------ texts

    def read(self, address: str) -> Source:
        shown = self.shown(address)
        if address in self._texts:
            return Source.of(self._texts[address], shown)
        try:
            program_files.stamp(address)
            return decode(program_files.read(address), shown)
        except program_files.Unreadable as reason:
            raise ImportProgramError(f'"{shown}" cannot be loaded: {reason}', code="E330") from None
        except CompileError as error:
            raise ImportProgramError(program_files.errors_in(shown, error.diagnostics)) from None

    def program(self, address: str) -> ProgramInterface:
        if self._program is None:
            raise _missing("programs are not loaded here")
        return self._program(address)

    def shown(self, address: str) -> str:
        """Return the name of a file in messages: relative to the text."""
        relative = os.path.relpath(address, self._directory)
        return os.path.normpath(os.path.join(self._shown_from, relative))  # noqa: PTH118

    # ------------------------------------------------------------ this machine

    def has_tool(self, name: str) -> bool:
        return shutil.which(name) is not None

    def has_variable(self, name: str) -> bool:
        return name in os.environ

    def has_skill(self, name: str) -> bool:
        places = (os.path.join(self._directory, os.path.expanduser(one), *name.split(":")) for one in _SKILLS)  # noqa: PTH118
        return any(os.path.exists(place) or os.path.exists(f"{place}.md") for place in places)  # noqa: PTH110


def head_of(address: Path | str) -> str:
    """Return the beginning of a file with its front matter; "" if it cannot be read."""
    try:
        with plain_files.reading(address, None) as file:
            return file.read(_HEAD).decode("utf-8-sig", "replace").replace("\r\n", "\n")
    except OSError:
        return ""


def root_of(importer: str) -> str:
    """Return the root of the project that a file belongs to (9), which contains its dependencies."""
    directory = os.path.dirname(importer)  # noqa: PTH120
    for place in (directory, *map(str, Path(directory).parents)):
        if os.path.isdir(os.path.join(place, ".agents", "prose")):  # noqa: PTH112, PTH118
            return os.path.join(place, ".agents", "prose")  # noqa: PTH118
        if any(os.path.exists(os.path.join(place, name)) for name in ("deps", "prose.lock", ".git")):  # noqa: PTH110, PTH118
            return place
    return directory


def _directories_below(directory: str) -> Iterator[str]:
    for place, inner, _ in os.walk(directory):
        inner[:] = sorted(name for name in inner if name not in _SKIPPED and not name.startswith("."))
        yield place


def _pinned(root: str, repository: str, version: str) -> bool:
    """Return whether the lock file pins a repository to a commit that begins with `version`; our TOML format pins
    none."""
    try:
        lines = plain_files.read_text(os.path.join(root, "prose.lock"), errors="replace").splitlines()  # noqa: PTH118
    except OSError:
        return False
    pins = [_PIN.fullmatch(line.partition("#")[0].strip()) for line in lines]
    long_enough = len(version) >= 7
    return long_enough and any(one and one[1] == repository and one[2].startswith(version) for one in pins)


def _real(path: str) -> str:
    """Return the path with links to directories resolved. A link to the file itself is refused when it is read."""
    place, name = os.path.split(os.path.normpath(path) if ".." not in path else path)
    return os.path.join(os.path.realpath(place), name)  # noqa: PTH118


def _missing(message: str, hint: str | None = None) -> ImportProgramError:
    return ImportProgramError(message, code="E330", hint=hint)
