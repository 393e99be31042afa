"""The tool that searches text in files: like grep, bounded in results and in time."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from prose_kernel.access import safe_files as places
from prose_kernel.access.globs import Glob
from prose_kernel.access.grants import Reach
from prose_kernel.access.safe_files import ResolvedPath
from prose_kernel.language.text import clipped
from prose_kernel.models.tools.files import TEXT, DirectoryEntry, Visible, schema_of, walk
from prose_kernel.models.tools.permission_check import Access
from prose_kernel.models.tools.tool import StopFlag, ToolFailed, ToolRefused, ToolSpec, flag, in_thread, text

MATCH_LIMIT: Final = 200
LINE_LIMIT: Final = 300
FILE_LIMIT: Final = 4 * 1024 * 1024
SECONDS: Final = 20.0
LINE_SECONDS: Final = 0.5

Matches = Callable[[str], bool]


class SearchTool:
    """Finds lines that contain a text, or match a regular expression, in the files that may be read."""

    spec = ToolSpec(
        "search",
        "Find lines with a text in a file, or in files below a directory that match a glob.",
        schema_of(
            ("text",), text=TEXT, path=TEXT, pattern=TEXT, regex={"type": "boolean"}, ignore_case={"type": "boolean"}
        ),
    )

    def __init__(self, access: Access) -> None:
        self._access = access

    def summary(self, arguments: Mapping[str, object]) -> str:
        where = " ".join(str(arguments[name]) for name in ("path", "pattern") if name in arguments)
        return self._access.neutral(f"{arguments.get('text', '')!s} in {where or '.'}")

    async def call(self, arguments: Mapping[str, object]) -> str:
        wanted, path, pattern = text(arguments, "text"), text(arguments, "path", "."), text(arguments, "pattern", "")
        deadline = time.monotonic() + SECONDS
        matches = matcher(wanted, regex=flag(arguments, "regex"), ignore_case=flag(arguments, "ignore_case"))
        place, reach = await self._place(path, wanted)

        def search(stop: StopFlag) -> str:
            if reach is None:
                return _report(_matching(place, _content(place), matches, stop, deadline), self._access)
            visible = Visible(self._access, reach)
            return _report(_below(place, pattern, visible, matches, stop, deadline), self._access)

        return await in_thread(search)

    async def _place(self, path: str, wanted: str) -> tuple[ResolvedPath, Reach | None]:
        """Return a file (without reach), or a directory and its visible part."""
        place = places.resolve(path, self._access.cwd, self._access.home)
        request = f"a search for {wanted!r} in {path}"
        if self._access.granted("read", place) or (
            self._access.policy.decide("read", place.path).answer != "deny" and _is_file(place.path)
        ):
            return await self._access.file("read", path, request), None
        return await self._access.directory(path, request)


def _is_file(path: str) -> bool:
    return os.path.isfile(path) and not os.path.islink(path)  # noqa: PTH113, PTH114 - asked of text


def matcher(wanted: str, *, regex: bool, ignore_case: bool) -> Matches:
    """Return a function that tests a line. Raises `ToolFailed` for an invalid expression; the function raises
    `TimeoutError` for a line that takes too long."""
    if not regex:
        if not ignore_case:
            return lambda line: wanted in line
        folded = wanted.casefold()
        return lambda line: folded in line.casefold()
    try:
        engine: Any = importlib.import_module("regex")  # matching with the standard library cannot be stopped
    except ImportError:
        raise ToolFailed("regular expressions need the package `regex`: search for a plain text instead") from None
    try:
        compiled: Any = engine.compile(wanted, engine.IGNORECASE if ignore_case else 0)
    except engine.error as error:
        raise ToolFailed(f"this is not a regular expression: {error}") from None
    return lambda line: compiled.search(line, timeout=LINE_SECONDS, concurrent=True) is not None


def _report(found: Iterator[tuple[ResolvedPath, str]], access: Access) -> str:
    lines: list[str] = []
    for place, line in found:
        if len(lines) == MATCH_LIMIT:
            return "\n".join(lines) + f"\n\n[more than {MATCH_LIMIT}: search for less, or in fewer files]"
        lines.append(line)
        access.saw(place)
    return "\n".join(lines) or "[no match]"


def _below(
    place: ResolvedPath, pattern: str, visible: Visible, matches: Matches, stop: StopFlag, deadline: float
) -> Iterator[tuple[ResolvedPath, str]]:
    glob = Glob(pattern) if pattern else None
    for entry in walk(place, visible, stop, deep=True):
        if not entry.is_directory and not entry.is_link and (glob is None or glob.matches(entry.name)):
            yield from _in_entry(entry, place, matches, stop, deadline)


def _in_entry(
    entry: DirectoryEntry, place: ResolvedPath, matches: Matches, stop: StopFlag, deadline: float
) -> Iterator[tuple[ResolvedPath, str]]:
    shown = entry.name if place.named in (".", "./") else f"{place.named.rstrip('/')}/{entry.name}"
    found = ResolvedPath(shown, entry.path)
    try:
        content = _content(found)
    except (ToolFailed, ToolRefused):  # missing, unreadable or not a file: no matches
        return
    yield from _matching(found, content, matches, stop, deadline)


def _content(place: ResolvedPath) -> str:
    """Return the text of a file; "" if it is binary, or has more than 4 MiB."""
    with places.opened(place) as descriptor, open(descriptor, "rb", closefd=False) as file:
        data = file.read(FILE_LIMIT + 1)
    return "" if len(data) > FILE_LIMIT or b"\0" in data[:8192] else data.decode("utf-8", "replace")


def _matching(
    place: ResolvedPath, content: str, matches: Matches, stop: StopFlag, deadline: float
) -> Iterator[tuple[ResolvedPath, str]]:
    for number, line in enumerate(content.split("\n"), 1):
        if number % 1000 == 1:
            stop.check()
        if time.monotonic() >= deadline:
            raise ToolFailed(f"the search took longer than {SECONDS:g} seconds: search in fewer files")
        try:
            found = matches(line)
        except TimeoutError:
            raise ToolFailed("the regular expression takes too long: use a simpler one") from None
        if found:
            shown = line.rstrip("\r")
            yield place, f"{place.named}:{number}: {clipped(shown, LINE_LIMIT, kept=LINE_LIMIT)}"
