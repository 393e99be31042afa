"""GET requests that connect only to checked addresses, for the `fetch` tool and for imports from servers.

A host name is looked up once and its addresses are checked. The connection goes to a checked address, so that a changed
DNS answer has no effect. Redirects are not followed here: the caller checks each of them. Proxies, `.netrc` and similar
settings of the environment are ignored, because they would change the destination.
"""

from __future__ import annotations

import asyncio
import importlib
import ipaddress
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, Final

from prose_kernel.access import hosts

ENCODINGS: Final = ("gzip", "x-gzip", "deflate")
_PIECE: Final = 65536


class HttpFailed(Exception):
    """The request got no usable response; the message says why. `again` is True if another attempt may succeed."""

    def __init__(self, message: str, *, again: bool = False) -> None:
        super().__init__(message)
        self.again = again


class NotAUrl(HttpFailed):
    """The text is not an http or https URL."""


class Credentials(HttpFailed):
    """The URL contains a user name or a password."""


class Unreachable(HttpFailed):
    """Raised if no address of the host accepts a connection. `certificate` is the problem of the host's certificate, or
    None for other reasons."""

    def __init__(self, host: str, certificate: str | None = None) -> None:
        super().__init__(f"'{host}' could not be reached", again=certificate is None)
        self.certificate = certificate


class PrivateAddress(HttpFailed):
    """All addresses of the host belong to this machine or to a private network."""


def url_of(given: str, base: Any = None) -> Any:
    """Return `given` as a URL that may be requested, relative to `base` (the URL of a redirect).

    Raises `NotAUrl` and `Credentials`.
    """
    library = _library()
    try:
        url = library.URL(given) if base is None else base.join(given)
    except (library.InvalidURL, ValueError):
        raise NotAUrl("this is not a URL") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise NotAUrl("only http and https URLs can be fetched")
    if url.userinfo:
        raise Credentials("a URL with a user name or password is not fetched")
    return url


def host_of(url: Any) -> str:
    """Return the host's name for the rules, the lookup, the certificate and the person: ASCII, without brackets."""
    return str(url.raw_host.decode("ascii").strip("[]"))


def port_of(url: Any) -> int:
    return int(url.port or (443 if url.scheme == "https" else 80))


async def addresses(url: Any, *, private: bool) -> list[str]:
    """Return the allowed addresses of the URL's host; addresses of private networks are allowed only if `private`.

    Raises `HttpFailed` if the host does not exist, `PrivateAddress` if it has only private addresses.
    """
    host = host_of(url)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port_of(url), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, OverflowError):
        raise HttpFailed(f"there is no host '{host}'") from None
    numbers = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    allowed = [one for one in numbers if private or hosts.is_public(ipaddress.ip_address(one.split("%")[0]))]
    if not allowed:
        raise PrivateAddress(f"'{host}' is this machine or a private network")
    return allowed


@asynccontextmanager
async def get(url: Any, to: Sequence[str], accept: str) -> AsyncIterator[Any]:
    """Yield the response to a GET, its body unread, from the first reachable address in `to`.

    The `Host` header and the check of the certificate use the host's name. Raises `HttpFailed`, also for errors inside
    the `async with`. There is no time limit here.
    """
    from prose_kernel._version import __version__

    library, name = _library(), host_of(url)
    headers = {
        "Host": url.netloc.decode("ascii"),
        "User-Agent": f"prose_kernel/{__version__}",
        "Accept": accept,
        "Accept-Encoding": "gzip, deflate",
    }
    async with library.AsyncClient(
        verify=_certificates(), trust_env=False, follow_redirects=False, timeout=library.Timeout(None)
    ) as client:
        try:
            response = await _send(client, library, url, to, headers)
            try:
                yield response
            finally:
                await response.aclose()
        except library.HTTPError as error:
            message = f"'{name}' gave no proper answer ({type(error).__name__})"
            raise HttpFailed(message, again=True) from None


async def _send(client: Any, library: Any, url: Any, to: Sequence[str], headers: dict[str, str]) -> Any:
    certificate = None
    for address in to:
        target = url.copy_with(host=address)
        request = client.build_request("GET", target, headers=headers, extensions={"sni_hostname": host_of(url)})
        try:
            return await client.send(request, stream=True)
        except library.ConnectError as error:
            certificate = certificate or _certificate(error)
    raise Unreachable(host_of(url), certificate)


def _certificate(error: BaseException | None) -> str | None:
    """Return OpenSSL's reason for rejecting the certificate; None if the connection failed for another reason."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message or "it cannot be verified"
        error = error.__cause__ or error.__context__
    return None


async def body(response: Any, limit: int) -> tuple[bytes, bool]:
    """Return the first `limit` bytes of the body, decompressed, and whether there is more.

    Never holds much more in memory. Raises `HttpFailed` for damaged data and for an encoding that was not requested.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity", *ENCODINGS):
        raise HttpFailed(f"the answer is packed in a way that was not asked for ({encoding})")
    unpack = zlib.decompressobj(wbits=47) if encoding in ENCODINGS else None
    found = bytearray()
    async for piece in response.aiter_raw(_PIECE):
        try:
            found += piece if unpack is None else unpack.decompress(piece, limit + 1 - len(found))
        except zlib.error:
            raise HttpFailed("the answer is packed, and cannot be unpacked") from None
        if len(found) > limit:
            return bytes(found[:limit]), True
        if unpack is not None and unpack.eof:
            break  # the rest is ignored
    if unpack is not None and found and not unpack.eof:
        raise HttpFailed("the answer is packed, and its end is missing", again=True)
    return bytes(found), False


@lru_cache(maxsize=1)
def _certificates() -> Any:
    """Return the system's trusted certificates. Cached: reading them takes longer than a request to a nearby server."""
    return _library().create_ssl_context(trust_env=False)


def _library() -> Any:
    """Import httpx2 when the first request is made."""
    return importlib.import_module("httpx2")
