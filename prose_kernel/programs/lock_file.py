"""`prose.lock`: the text pinned for each URL, which a person has agreed to run (docs/how-to/programs.md).

::

    version = 1

    [[program]]
    url = "https://p.prose.md/alice/research"
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    size = 1234
    holds = ["exec (2)", "session (3)"]

The entries are sorted and do not depend on when or where they were written, so that a review shows the changes.
`location` is present if the server redirects. An entry exists only if a person has agreed.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Final

from msgspec import DecodeError, Meta, Struct, ValidationError, toml

from prose_kernel.access import plain_files
from prose_kernel.access.atomic import write_whole
from prose_kernel.access.created_code import require_agreed
from prose_kernel.errors import ImportProgramError, UsageError, reason_of
from prose_kernel.language.diagnostics import conflict_line
from prose_kernel.language.text import escaped
from prose_kernel.programs import urls

NAME: Final = "prose.lock"
VERSION: Final = 1
_HEAD: Final = "# Programs from elsewhere that this project runs, with the digests that a person has approved.\n"
_PATIENCE: Final = 20

Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]


class Pin(Struct, frozen=True, kw_only=True):
    """The text that is pinned for a URL. `holds` lists the program's abilities, for people."""

    url: str
    sha256: Digest
    size: int
    location: str = ""
    holds: tuple[str, ...] = ()


class _Version(Struct):
    version: int


class _Content(Struct):
    program: tuple[Pin, ...] = ()


def place_of(cwd: Path, program_file: str = "") -> Path:
    """Return the lock file in use: the one in the working directory, else an existing one next to the program or
    notebook."""
    sibling = (cwd / program_file).parent / NAME
    if program_file.endswith(".ipynb"):
        return sibling
    here = cwd / NAME
    return sibling if program_file and not here.exists() and sibling.exists() else here


class LockFile:
    """The pins of one project. `mutex` is the directory of the lock that lets one process write at a time."""

    def __init__(self, path: Path, mutex: Path | None = None) -> None:
        self.path = path
        self._mutex = mutex
        self._read: tuple[plain_files.Stamp, dict[str, Pin]] | None = None

    def pins(self) -> Mapping[str, Pin]:
        """Return the pins by URL, sorted; read again if the file has changed.

        Raises `ImportProgramError` (E215) for a file that cannot be understood: nothing is guessed.
        """
        try:
            status = self.path.lstat()
            stamp = plain_files.stamp(status)
            known = self._read
            if known is None or known[0] != stamp:
                if not stat.S_ISREG(status.st_mode):
                    raise damaged("it is not a file")
                if status.st_size > plain_files.SMALL:
                    raise damaged("it is larger than any lock file")
                require_agreed([self.path])
                known = self._read = stamp, _parsed(plain_files.read(self.path, plain_files.SMALL))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except UsageError as problem:
            raise damaged(str(problem), problem.hint) from None
        except OSError as problem:
            raise damaged(f"it cannot be read: {reason_of(problem)}") from None
        return known[1]

    def change(self, add: Iterable[Pin] = (), remove: Iterable[str] = ()) -> None:
        """Add, replace and remove pins in one step, keeping changes of other processes. Raises `OSError`, and
        `ImportProgramError` as `pins` does."""
        with self._locked():
            self._read = None
            pins = dict(self.pins())
            for url in remove:
                pins.pop(url, None)
            pins.update((pin.url, pin) for pin in add)
            write_whole(self.path, text_of(pins.values()), durable=True)
            self._read = None

    def _locked(self) -> AbstractContextManager[object]:
        if self._mutex is None:
            return nullcontext()
        from filelock import FileLock, Timeout

        name = hashlib.sha256(str(self.path.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:32]
        try:
            self._mutex.mkdir(parents=True, exist_ok=True, mode=0o700)
            return FileLock(self._mutex / f"{name}.lock", timeout=_PATIENCE).acquire()
        except (OSError, Timeout):
            return nullcontext()  # the file is still replaced as a whole; at worst, consent is asked for again


def text_of(pins: Iterable[Pin]) -> str:
    """Return the content of a lock file, which depends only on the pins."""
    lines = [_HEAD, f"version = {VERSION}\n"]
    for pin in sorted(pins, key=lambda pin: pin.url):
        lines += ["\n[[program]]\n", f"url = {_quoted(pin.url)}\n"]
        lines += [f"location = {_quoted(pin.location)}\n"] if pin.location else []
        lines += [f"sha256 = {_quoted(pin.sha256)}\n", f"size = {pin.size}\n"]
        lines.append(f"holds = [{', '.join(map(_quoted, pin.holds))}]\n")
    return "".join(lines)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # otherwise TOML quotes like JSON


def _parsed(data: bytes) -> dict[str, Pin]:
    try:
        text = data.decode("utf-8")
        if line := conflict_line(text):
            hint = "keep the entries of both sides, or delete the file and run `prose install` again"
            raise damaged(f"line {line} is the mark of a merge conflict", hint)
        version = toml.decode(data, type=_Version).version
        if version != VERSION:
            raise damaged(f"it has version {version}, this prose_kernel reads version {VERSION}")
        pins = toml.decode(data, type=_Content).program
    except UnicodeDecodeError:
        raise damaged("it is not UTF-8 text") from None
    except (ValidationError, DecodeError, RecursionError) as problem:
        raise damaged(f"{problem}".partition("\n")[0] or "it is nested too deeply") from None
    found = {pin.url: pin for pin in sorted(pins, key=lambda pin: pin.url)}
    if len(found) < len(pins):
        raise damaged("it has two entries for one URL")
    for url in (url for pin in pins for url in (pin.url, pin.location) if url):
        if not _is_canonical(url):
            raise damaged(f'"{escaped(url[:80])}" is not how it writes a URL')
    return found


def _is_canonical(url: str) -> bool:
    try:
        return urls.canonical(url) == url
    except ImportProgramError:
        return False


def damaged(why: str, hint: str | None = None) -> ImportProgramError:
    return ImportProgramError(
        f"{NAME} cannot be used: {why}", hint=hint or "repair it, or delete it and run `prose install` again"
    )
