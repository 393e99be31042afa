"""The tool that gets a page: every address checked at every hop, and connected to as it was checked.

A name is looked up once; its addresses are judged, and the connection goes to the judged address, so that a name which
changes its mind in between gains nothing. Addresses of this machine and of private networks are refused, unless a
pattern names the host itself.
"""

from __future__ import annotations

import asyncio
import importlib
import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from prose_kernel.permissions.hosts import IPAddress, is_public
from prose_kernel.permissions.policy import Ruling
from prose_kernel.sessions.tools.access import Access
from prose_kernel.sessions.tools.arguments import text
from prose_kernel.sessions.tools.tool import ToolFailed, ToolRefused, ToolSpec

SECONDS: Final = 30.0
SIZE_LIMIT: Final = 4 * 1024 * 1024
TEXT_LIMIT: Final = 100_000
HOPS: Final = 5
_TEXTUAL: Final = ("text/", "application/json", "application/xml", "application/javascript", "application/x-ndjson")


@dataclass(frozen=True, slots=True)
class Page:
    """What a server answered at the last hop."""

    url: str
    status: str
    kind: str
    body: bytes
    cut: bool
    encoding: str | None
    failed: bool


class FetchTool:
    """The text behind an http(s) URL; HTML as markdown where the package for that is there."""

    spec = ToolSpec(
        "fetch",
        "Get a web page or file over HTTP and return its text.",
        {
            "type": "object",
            "properties": {"url": {"type": "string", "description": "an http or https URL"}},
            "required": ["url"],
            "additionalProperties": False,
        },
    )

    def __init__(self, access: Access, seconds: float = SECONDS) -> None:
        self._access = access
        self._seconds = seconds

    def summary(self, arguments: Mapping[str, object]) -> str:
        return str(arguments.get("url", ""))

    async def call(self, arguments: Mapping[str, object]) -> str:
        library = _library()
        try:
            page = await self._follow(library, _url(library, text(arguments, "url")))
        except TimeoutError:
            raise ToolFailed(f"no answer within {self._seconds:g} seconds") from None
        shown = await asyncio.to_thread(_text, page)
        if page.failed:
            raise ToolFailed(f"{page.status}\n\n{shown[:2000]}".rstrip())
        return f"{page.url} ({page.kind or 'no type given'})\n\n{shown}"

    async def _follow(self, library: Any, url: Any) -> Page:
        """The page at the end of the redirects. Time that the person takes to allow a hop does not count."""
        left = self._seconds
        loop = asyncio.get_running_loop()
        for _ in range(HOPS + 1):
            ruling = await self._allowed(url)
            started = loop.time()
            async with asyncio.timeout(left):
                found = await self._hop(library, url, ruling)
            left -= loop.time() - started
            if isinstance(found, Page):
                return found
            url = found
        raise ToolFailed(f"more than {HOPS} redirects")

    async def _allowed(self, url: Any) -> Ruling:
        """What the rules, and the person where they say so, think of this URL. Raises `ToolRefused`."""
        ruling, name = self._access.policy.rule("network", checked(url)), host_of(url)
        if ruling.answer == "prompt":
            literal = _literal(name)
            if name.rstrip(".") == "localhost" or (literal is not None and not is_public(literal)):
                raise ToolRefused(_private(name))
            ruling = await self._access.ask("network", str(url), f"network access to {name} by {self._access.who}")
        if ruling.answer != "allow":
            raise ToolRefused(f"network access to '{name}' is not allowed: {ruling.why}")
        return ruling

    async def _hop(self, library: Any, url: Any, ruling: Ruling) -> Page | Any:
        """One request: the page, or the URL that it redirects to."""
        port = url.port or (443 if url.scheme == "https" else 80)
        name = host_of(url)
        for address in await _addresses(name, port, private=ruling.exact):
            try:
                return await _request(library, url, address)
            except library.ConnectError:
                continue
            except library.HTTPError as error:
                raise ToolFailed(f"'{name}' gave no proper answer ({type(error).__name__})") from None
        raise ToolFailed(f"'{name}' could not be reached")


def _library() -> Any:
    try:
        return importlib.import_module("httpx2")
    except ImportError:
        raise ToolFailed("fetching needs the package httpx2: pip install 'prose_kernel[llm]'") from None


def _url(library: Any, given: str, base: Any = None) -> Any:
    """A URL that may be fetched, relative to that of a redirect. Raises `ToolFailed`, `ToolRefused`."""
    try:
        url = library.URL(given) if base is None else base.join(given)
    except (library.InvalidURL, ValueError):
        raise ToolFailed("this is not a URL") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ToolFailed("only http and https URLs can be fetched")
    if url.userinfo:
        raise ToolRefused("a URL with a user name or password is not fetched")
    return url


def host_of(url: Any) -> str:
    """The host's one name, for the rules, the lookup, the certificate and the person: ASCII, no brackets."""
    return str(url.raw_host.decode("ascii").strip("[]"))


def checked(url: Any) -> str:
    """The URL as the rules judge it: made of what will really be sent, without query and fragment."""
    host = host_of(url)
    host = f"[{host}]" if ":" in host else host
    port = url.port or (443 if url.scheme == "https" else 80)
    path = url.raw_path.decode("ascii").split("?", 1)[0]
    return f"{url.scheme}://{host}:{port}{path}"


# ---------------------------------------------------------------- addresses


async def _addresses(host: str, port: int, *, private: bool) -> list[str]:
    """The addresses of a host that may be connected to. Raises `ToolRefused` if there are only private ones."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, OverflowError):
        raise ToolFailed(f"there is no host '{host}'") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    allowed = [address for address in addresses if private or is_public(ipaddress.ip_address(address.split("%")[0]))]
    if not allowed:
        raise ToolRefused(_private(host))
    return allowed


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


# ---------------------------------------------------------------- one request


async def _request(library: Any, url: Any, address: str) -> Page | Any:
    """GET, sent to the address that was judged: name and certificate are still the host's."""
    from prose_kernel._version import __version__

    host = url.netloc.decode("ascii")
    headers = {
        "Host": host,
        "User-Agent": f"prose_kernel/{__version__}",
        "Accept": "text/*, application/json, */*;q=0.5",
    }
    target = url.copy_with(host=address)
    timeout = library.Timeout(None)  # the whole fetch has one limit
    async with library.AsyncClient(trust_env=False, follow_redirects=False, timeout=timeout) as client:
        request = client.build_request("GET", target, headers=headers, extensions={"sni_hostname": host_of(url)})
        response = await client.send(request, stream=True)
        try:
            if response.has_redirect_location:
                return _url(library, response.headers["location"], url)
            body, cut = await _body(response)
        finally:
            await response.aclose()
    status = f"{response.status_code} {response.reason_phrase}".strip()
    kind = response.headers.get("content-type", "").split(";")[0].strip().lower()
    return Page(str(url), status, kind, body, cut, response.charset_encoding, response.is_error)


async def _body(response: Any) -> tuple[bytes, bool]:
    """The beginning of the body, and whether there was more. What it unpacks to is what counts."""
    pieces: list[bytes] = []
    size = 0
    async for piece in response.aiter_bytes(65536):
        pieces.append(piece)
        size += len(piece)
        if size > SIZE_LIMIT:
            break
    body = b"".join(pieces)
    return body[:SIZE_LIMIT], len(body) > SIZE_LIMIT


# ---------------------------------------------------------------- text


def _text(page: Page) -> str:
    """The page as text for the model, cut to `TEXT_LIMIT` characters."""
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
        shown = _markdown(shown)
    if len(shown) > TEXT_LIMIT:
        return f"{shown[:TEXT_LIMIT]}\n\n[cut: {len(shown):,} characters in all{', or more' if page.cut else ''}]"
    return f"{shown}\n\n[cut: the page is longer]" if page.cut else shown


def _markdown(html: str) -> str:
    """HTML as markdown; as it is where the package is missing or gives up on it."""
    try:
        library: Any = importlib.import_module("markdownify")
        return str(library.markdownify(html, heading_style="ATX", strip=["script", "style"])).strip()
    except (ImportError, RecursionError, ValueError):
        return html
