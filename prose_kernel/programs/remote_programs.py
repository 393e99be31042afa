"""Provides remote programs: pinned ones from the cache, others from their server, and asks for consent.

A program is fetched over https: each redirect is checked, size and total time are limited, and failures are explained.
The cache belongs to the user; all projects and processes share it. Programs are not parsed here: their language finds
their imports and abilities (`openprose_imports`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from prose_kernel.access import plain_files
from prose_kernel.access.atomic import write_whole
from prose_kernel.errors import ImportProgramError, reason_of
from prose_kernel.programs import consent, urls
from prose_kernel.programs.consent import Candidate, Fetched, Trust
from prose_kernel.programs.lock_file import NAME, LockFile, Pin
from prose_kernel.runtime.asker import SerialAsker
from prose_kernel.runtime.session_options import ProgramSettings

SIZE_FACTOR: Final = 4
"""The total size of these programs as a multiple of the limit for one: they are parsed before any consent."""


class RemotePrograms:
    """The remote programs of one workspace or command, by the URLs that `address` returns.

    Pinned programs come from the cache, or from their server if the text is still the same. Unpinned programs are
    fetched for each load until a person consents; then they are pinned, or only remembered if `writes` is false.
    `upgrade` ignores the pins when fetching, to replace them. `most` and `size` limit the number and the total bytes of
    the programs that one import may lead to.
    """

    def __init__(
        self,
        settings: ProgramSettings,
        lock: LockFile,
        cache: ProgramCache,
        *,
        asker: SerialAsker | None = None,
        writes: bool = True,
        upgrade: bool = False,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.registry = urls.canonical(settings.registry.rstrip("/") + "/")
        self.most = settings.most
        self.size = SIZE_FACTOR * settings.size
        self.lock = lock
        self.cache = cache
        self.trust = Trust()
        self._settings = settings
        self._asker = asker
        self._writes = writes
        self._upgrade = upgrade
        self._sleep = sleep
        self._fetched: dict[str, Fetched] = {}  # fetched and not pinned, or not pinned yet
        self._agreed: set[str] = set()  # digests of agreed texts that cannot be pinned
        self._admitting = asyncio.Lock()  # a parallel import of the same programs waits for the answer

    def address(self, path: str) -> str:
        """Return the URL for a registry name or URL. Raises `ImportProgramError` (E215)."""
        return urls.address(path, self.registry)

    def name(self, url: str) -> str:
        """Return the name of a program's URL in the registry; the URL if it isn't in the registry."""
        return urls.name_of(url, self.registry)

    def cached(self, url: str) -> Fetched | None:
        """Return the program if no connection is needed: the pinned text, else a fetched one that may still be agreed
        to.

        Raises `ImportProgramError` if `prose.lock` cannot be used.
        """
        at_hand, pin = self._fetched.get(url), self._pin(url)
        if pin is None or self._upgrade:
            return at_hand
        if at_hand is not None and at_hand.digest == pin.sha256:
            return at_hand
        data = self.cache.get(pin.sha256)
        return None if data is None else Fetched(url, pin.location or url, data, pin.sha256)

    def location(self, url: str) -> str:
        """Return the URL at which a program was found after redirects, the base of its relative imports."""
        at_hand, pin = self._fetched.get(url), self._pin(url)
        if at_hand is not None and (pin is None or self._upgrade or at_hand.digest == pin.sha256):
            return at_hand.location
        return pin.location or url if pin is not None else url

    async def fetch(self, url: str) -> Fetched:
        """Return the program. Raises `ImportProgramError` (E215) if it is unreachable, or not the pinned text."""
        known = await asyncio.to_thread(self.cached, url)
        if known is not None:
            return known
        found = await download(url, self._settings, sleep=self._sleep)
        digest = digest_of(found.data)
        pin = None if self._upgrade else self._pin(url)
        if pin is not None and pin.sha256 != digest:
            why = f"it is not the text that {NAME} pins: it has sha256 {digest}, pinned is {pin.sha256}"
            raise urls.unfetchable(url, why, f"if the change is wanted: prose install --upgrade {self.name(url)}")
        await asyncio.to_thread(self.cache.put, found.data)
        location = found.location if pin is None else pin.location or url
        fetched = self._fetched[url] = Fetched(url, location, found.data, digest)
        return fetched

    async def admit(self, candidates: Sequence[Candidate]) -> None:
        """Return if all candidates may run, and pin them. Raises `ImportProgramError` (E215)."""
        if self._new(candidates, await asyncio.to_thread(self.lock.pins)):
            async with self._admitting:
                await self._admit_new(candidates, await asyncio.to_thread(self.lock.pins))

    def _new(self, candidates: Sequence[Candidate], pins: Mapping[str, Pin]) -> list[Candidate]:
        return [one for one in candidates if not self._is_pinned(one, pins.get(one.fetched.url))]

    async def _admit_new(self, candidates: Sequence[Candidate], pins: Mapping[str, Pin]) -> None:
        new = self._new(candidates, pins)
        agreed = self._agreed.union(pin.sha256 for pin in pins.values())
        undecided = [
            Candidate(one.fetched, one.holds, one.via, pin.sha256 if (pin := pins.get(one.fetched.url)) else None)
            for one in new
            if one.fetched.digest not in agreed
        ]
        try:
            if undecided:
                await consent.agree(undecided, self.trust, self._asker)
        except ImportProgramError:
            for one in new:
                self._fetched.pop(one.fetched.url, None)
            raise
        if new and not (self._writes and await self._write([self._pin_of(one) for one in new])):
            self._agreed.update(one.fetched.digest for one in new)

    def _pin(self, url: str) -> Pin | None:
        return self.lock.pins().get(url)

    def _is_pinned(self, candidate: Candidate, pin: Pin | None) -> bool:
        found = candidate.fetched
        if pin is not None:
            return (pin.sha256, pin.location or pin.url) == (found.digest, found.location)
        return not self._writes and found.digest in self._agreed

    def _pin_of(self, one: Candidate) -> Pin:
        found = one.fetched
        return Pin(
            url=found.url,
            sha256=found.digest,
            size=len(found.data),
            location=found.location if found.location != found.url else "",
            holds=one.holds,
        )

    async def _write(self, pins: list[Pin]) -> bool:
        try:
            await asyncio.to_thread(self.lock.change, pins)
        except OSError as problem:
            if self._asker is not None:
                self._asker.show(f"Warning: {NAME} cannot be written ({reason_of(problem)}); you will be asked again")
            return False
        return True


# ---------------------------------------------------------------- download

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
