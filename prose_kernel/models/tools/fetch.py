"""The tool that fetches a page: the rules check every hop, and `access.checked_http` every address.

Addresses of this machine and of private networks are refused, unless a pattern names the host itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from prose_kernel.access import checked_http
from prose_kernel.access.checked_http import Credentials, HttpFailed, PrivateAddress, host_of
from prose_kernel.access.hosts import IPAddress, is_public
from prose_kernel.access.session_permissions import Ruling
from prose_kernel.models.tools import page_worker
from prose_kernel.models.tools.files import TEXT, schema_of
from prose_kernel.models.tools.permission_check import Access
from prose_kernel.models.tools.tool import ToolFailed, ToolRefused, ToolSpec, text

SECONDS: Final = 30.0
SIZE_LIMIT: Final = 4 * 1024 * 1024
TEXT_LIMIT: Final = 100_000
HOPS: Final = 5
CONVERTING: Final = 5
"""The time limit for converting a page to text, in seconds."""
_ACCEPT: Final = "text/*, application/json, */*;q=0.5"
_TEXTUAL: Final = ("text/", "application/json", "application/xml", "application/javascript", "application/x-ndjson")


class Page(Struct, frozen=True):
    """The server's response at the last hop."""

    url: str
    status: str
    kind: str
    body: bytes
    cut: bool
    encoding: str | None
    failed: bool


class FetchTool:
    """Returns the text of an http(s) URL; HTML as markdown if the package for it is installed."""

    spec = ToolSpec("fetch", "Get the text of a web page.", schema_of(("url",), url=TEXT))

    def __init__(self, access: Access, seconds: float = SECONDS) -> None:
        self._access = access
        self._seconds = seconds

    def summary(self, arguments: Mapping[str, object]) -> str:
        return str(arguments.get("url", ""))

    async def call(self, arguments: Mapping[str, object]) -> str:
        try:
            page = await self._follow(checked_http.url_of(text(arguments, "url")))
        except TimeoutError:
            raise ToolFailed(f"no answer within {self._seconds:g} seconds") from None
        except Credentials as refused:
            raise ToolRefused(str(refused)) from None
        except HttpFailed as failure:
            raise ToolFailed(str(failure)) from None
        shown = await _text(page)
        if page.failed:
            raise ToolFailed(f"{page.status}\n\n{shown[:2000]}".rstrip())
        return f"{page.url} ({page.kind or 'no type given'})\n\n{shown}"

    async def _follow(self, url: Any) -> Page:
        """Return the page at the end of the redirects. Time that the person takes to allow a hop does not count."""
        left = self._seconds
        loop = asyncio.get_running_loop()
        for _ in range(HOPS + 1):
            ruling = await self._allowed(url)
            started = loop.time()
            async with asyncio.timeout(left):
                found = await _hop(url, ruling)
            left -= loop.time() - started
            if isinstance(found, Page):
                return found
            url = found
        raise ToolFailed(f"more than {HOPS} redirects")

    async def _allowed(self, url: Any) -> Ruling:
        """Return the ruling on this URL, after asking the person if a rule says so. Raises `ToolRefused`."""
        ruling, name = self._access.policy.decide("network", rule_target(url)), host_of(url)
        if ruling.answer == "prompt":
            literal = _literal(name)
            if name.rstrip(".") == "localhost" or (literal is not None and not is_public(literal)):
                raise ToolRefused(_private(name))
            ruling = await self._access.ask(
                "network", str(url), f"network access to {name} by {self._access.session_name}"
            )
        if ruling.answer != "allow":
            raise ToolRefused(f"network access to '{name}' is not allowed: {ruling.why}")
        return ruling


def rule_target(url: Any) -> str:
    """Return the URL as the rules check it: built from the parts that are really sent, without query and fragment."""
    host = host_of(url)
    host = f"[{host}]" if ":" in host else host
    port = checked_http.port_of(url)
    path = url.raw_path.decode("ascii").split("?", 1)[0]
    return f"{url.scheme}://{host}:{port}{path}"


def _private(host: str) -> str:
    return (
        f"network access to '{host}' is not allowed: it is this machine or a private network, "
        "and no `network` pattern names it"
    )


def _literal(host: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


async def _hop(url: Any, ruling: Ruling) -> Page | Any:
    """Make one request; return the page, or the URL of a redirect."""
    try:
        to = await checked_http.addresses(url, private=ruling.exact)
    except PrivateAddress:
        raise ToolRefused(_private(host_of(url))) from None
    async with checked_http.get(url, to, _ACCEPT) as response:
        if response.has_redirect_location:
            return checked_http.url_of(response.headers["location"], url)
        body, cut = await checked_http.body(response, SIZE_LIMIT)
    status = f"{response.status_code} {response.reason_phrase}".strip()
    kind = response.headers.get("content-type", "").split(";")[0].strip().lower()
    return Page(str(url), status, kind, body, cut, response.charset_encoding, response.is_error)


async def _text(page: Page) -> str:
    """Return the page as text for the model, cut to `TEXT_LIMIT` characters."""
    if not page.body:
        return "[empty]"
    if page.kind and not (page.kind.startswith(_TEXTUAL) or page.kind.endswith(("+json", "+xml"))):
        return f"[{len(page.body):,} bytes of {page.kind}: not text]"
    if b"\0" in page.body[:8192]:
        return f"[{len(page.body):,} bytes: not text]"
    try:
        shown = page.body.decode(page.encoding or "utf-8", "replace")
    except LookupError:
        shown = page.body.decode("utf-8", "replace")
    if page.kind in ("text/html", "application/xhtml+xml"):
        shown = await _markdown(shown)
    if len(shown) > TEXT_LIMIT:
        return f"{shown[:TEXT_LIMIT]}\n\n[cut: {len(shown):,} characters in all{', or more' if page.cut else ''}]"
    return f"{shown}\n\n[cut: the page is longer]" if page.cut else shown


async def _markdown(html: str) -> str:
    """Convert HTML to markdown; return it unchanged if the package is missing, or runs out of time or memory.

    The conversion runs in a separate process (`page_worker.py`), which is ended with this call.
    """
    command = (sys.executable, "-I", page_worker.__file__, str(CONVERTING), str(os.getpid()))
    pipe = asyncio.subprocess.PIPE
    try:
        worker = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, env={}, start_new_session=True
        )
    except OSError:
        return html
    try:
        async with asyncio.timeout(CONVERTING):
            text, _ = await worker.communicate(html.encode("utf-8", "replace"))
    except TimeoutError:
        return html
    finally:
        with contextlib.suppress(ProcessLookupError):
            worker.kill()
        await asyncio.shield(worker.wait())
    return text.decode("utf-8", "replace") if worker.returncode == 0 else html
