"""Fetches the text of a program over https: checks each redirect, limits size and total time, explains failures.

Fetched programs are kept in the user's cache, which all projects and processes share.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from prose_kernel.access import plain_files
from prose_kernel.access.atomic import write_whole
from prose_kernel.errors import ImportProgramError
from prose_kernel.programs import urls
from prose_kernel.runtime.session_options import ProgramSettings

ATTEMPTS: Final = 3
REDIRECTS: Final = 5
LONGEST_PAUSE: Final = 5.0
_ACCEPT: Final = "text/plain, text/markdown, text/*;q=0.8, application/octet-stream;q=0.5"
_FILES: Final = ("application/octet-stream", "binary/octet-stream", "application/x-openprose", "application/x-prose")
_HTML: Final = ("text/html", "application/xhtml+xml")
_STATUS: Final = {
    401: "the server requires a login",
    403: "the server refuses access to it",
    404: "the server has no such program",
    410: "it was removed from the server",
    429: "the server has too many requests",
}


class Downloaded(NamedTuple):
    """A program's bytes, and the URL at the end of the redirects."""

    data: bytes
    location: str


class _Failed(Exception):
    """A failed request. `pause` is the seconds to wait before another attempt; None if another attempt would not
    help."""

    def __init__(self, why: str, pause: float | None = None, hint: str | None = None) -> None:
        super().__init__(why)
        self.pause = pause
        self.hint = hint


async def download(
    url: str, limits: ProgramSettings, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> Downloaded:
    """Return the program at a canonical URL. A server that is busy or breaks off is tried again, twice.

    Raises `ImportProgramError` (E215) with the reason if it cannot be fetched.
    """
    urls.require_https(url)
    try:
        async with asyncio.timeout(limits.seconds):
            for attempt in range(ATTEMPTS):
                try:
                    return await _follow(url, limits)
                except _Failed as failure:
                    if failure.pause is None or attempt == ATTEMPTS - 1:
                        raise urls.unfetchable(url, str(failure), failure.hint) from None
                    await sleep(max(failure.pause, 2**attempt * random.uniform(0.2, 0.4)))  # noqa: S311 - no secret
    except TimeoutError:
        raise urls.unfetchable(url, f"no complete answer within {limits.seconds} seconds") from None
    raise AssertionError


async def _follow(url: str, limits: ProgramSettings) -> Downloaded:
    for _ in range(REDIRECTS + 1):
        found = await _request(url, limits)
        if isinstance(found, Downloaded):
            return found
        try:
            url = urls.canonical(found)
            urls.require_https(url)
        except ImportProgramError as refused:
            raise _Failed(
                f"the server redirects to what is not fetched: {refused.message}", hint=refused.hint
            ) from None
    raise _Failed(f"more than {REDIRECTS} redirects")


async def _request(url: str, limits: ProgramSettings) -> Downloaded | str:
    """Make one request; return the program, or the URL of a redirect."""
    from prose_kernel.access import checked_http as http

    try:
        target = http.url_of(url)
        name = http.host_of(target)
        tested = f"{name}:{http.port_of(target)}" in urls.plain_http
        private = tested or name in map(str.lower, limits.private_hosts)
        to = await http.addresses(target, private=private)
        async with http.get(target, to, _ACCEPT) as response:
            if response.has_redirect_location:
                return str(http.url_of(response.headers["location"], target))
            _accept(url, response, limits)
            data, more = await http.body(response, limits.size)
    except http.PrivateAddress as refused:
        hint = f'if that is meant, name it in prose.toml: [programs] private_hosts = ["{name}"]'
        raise _Failed(f"{refused}: programs are fetched from the open internet", hint=hint) from None
    except http.Unreachable as failure:
        if failure.certificate is not None:
            raise _Failed(f"the certificate of '{name}' is not valid: {failure.certificate}") from None
        raise _Failed(str(failure), 0.0) from None
    except http.HttpFailed as failure:
        raise _Failed(str(failure), 0.0 if failure.again else None) from None
    if more:
        raise _too_large(limits)
    return Downloaded(_text(url, data), url)


def _accept(url: str, response: Any, limits: ProgramSettings) -> None:
    """Raise `_Failed` for a response that does not contain a program, before any of its body is read."""
    status = response.status_code
    if status != 200:
        why = _STATUS.get(status) or ("the server failed" if status >= 500 else "the server did not send it")
        again = status == 429 or status in (500, 502, 503, 504)
        raise _Failed(f"{why} ({status})", _pause(response) if again else None)
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in _HTML:
        raise _html_page(url)
    if kind and not kind.startswith("text/") and kind not in _FILES:
        raise _Failed(f"the server says that it is {kind}, which isn't a program")
    length = response.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limits.size and "content-encoding" not in response.headers:
        raise _too_large(limits)


def _pause(response: Any) -> float:
    """Return how many seconds the server asks to wait, at most `LONGEST_PAUSE`."""
    asked = response.headers.get("retry-after", "")
    return min(float(asked), LONGEST_PAUSE) if asked.isdecimal() else 0.0


def _text(url: str, data: bytes) -> bytes:
    """Return the bytes if they can be a program's text; else raise `_Failed`."""
    if not data.strip():
        raise _Failed("the server sent an empty text")
    if data.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        raise _html_page(url)
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise _Failed(f"it is not UTF-8 text (byte {problem.start + 1})") from None
    return data


def _html_page(url: str) -> _Failed:
    raw = urls.raw_page(url)
    hint = f"the text is at {raw}" if raw else "give the address of the program's text, not of a page that shows it"
    return _Failed("it is an HTML page, not a program", hint=hint)


def _too_large(limits: ProgramSettings) -> _Failed:
    limit = f"{limits.size / 1024**2:g} MiB" if limits.size >= 1024**2 else f"{limits.size:,} bytes"
    hint = "[programs] size in prose.toml changes the limit"
    return _Failed(f"it is larger than {limit}, the limit for programs from elsewhere", hint=hint)


# ---------------------------------------------------------------- cache

SUFFIX = ".prose"


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class ProgramCache:
    """Fetched programs below `directory`: by default `~/.cache/prose_kernel/programs`, or the system's directory for
    caches (`XDG_CACHE_HOME`). A cache that cannot be written stores nothing and raises no error.

    A file is named by the SHA-256 of its content, which is checked whenever it is read. So it does not matter which
    process wrote it, processes cannot interfere, and a damaged file counts as missing.
    """

    def __init__(self, directory: Path | None = None) -> None:
        import platformdirs

        self.directory = directory or platformdirs.user_cache_path("prose_kernel") / "programs"

    def get(self, digest: str) -> bytes | None:
        """Return the program with that digest; None if it is missing or damaged."""
        try:
            data = plain_files.read(self._path(digest))
        except OSError:
            return None
        return data if digest_of(data) == digest else None

    def put(self, data: bytes) -> str:
        """Store a program and return its digest."""
        digest = digest_of(data)
        if self.get(digest) is None:
            with contextlib.suppress(OSError):
                path = self._path(digest)
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                write_whole(path, data, contended=True, private=True)
        return digest

    def _path(self, digest: str) -> Path:
        return self.directory / f"{digest}{SUFFIX}"

    def entries(self) -> Iterator[tuple[str, int]]:
        """Yield the digest and size of each cached program, sorted."""
        if self.directory.is_dir():
            for path in sorted(self.directory.glob(f"*{SUFFIX}")):
                with contextlib.suppress(OSError):
                    yield path.stem, path.stat().st_size

    def remove(self, digest: str) -> None:
        """Delete a program. Raises `OSError`."""
        self._path(digest).unlink(missing_ok=True)
