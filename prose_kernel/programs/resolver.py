"""Provides remote programs: pinned ones from the cache, others from their server, and asks for consent.

Programs are not parsed here: their language finds their imports and abilities (`openprose_imports`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from prose_kernel.errors import ImportProgramError, reason_of
from prose_kernel.programs import consent, urls
from prose_kernel.programs.consent import Candidate, Fetched, Trust
from prose_kernel.programs.download import ProgramCache, digest_of, download
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
        pins = await asyncio.to_thread(self.lock.pins)
        new = [one for one in candidates if not self._is_pinned(one, pins.get(one.fetched.url))]
        if not new:
            return
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
        if not self._writes or not await self._write([self._pin_of(one) for one in new]):
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
