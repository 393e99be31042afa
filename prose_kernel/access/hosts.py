"""The addresses that a session's `network` patterns cover: hosts, hosts with a port, URLs; and public addresses.

See `docs/reference/exec-and-tasks.md` 3.13.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from msgspec import Struct

from prose_kernel.access.globs import Glob
from prose_kernel.errors import PermissionDenied

_ADDRESS: Final = re.compile(
    r"(?:(?P<scheme>[a-z][a-z0-9+.-]*)://)?(?P<host>\[[0-9a-f:.]+\]|[^\s/?#@:\\\[\]]+)(?::(?P<port>\d{1,5}))?"
    r"(?P<path>[/?#].*)?",
    re.IGNORECASE,
)
_PORTS: Final = {"http": 80, "https": 443}
_LABELS: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*|\[[0-9a-f:.]+\]")


class Address(Struct, frozen=True):
    """A request's target, or a pattern for targets. `scheme`, `port` and `path` are None if they aren't given."""

    host: str
    scheme: str | None = None
    port: int | None = None
    path: str | None = None


def address(text: str) -> Address | None:
    """Parse a URL or a host strictly; return None if it is neither (user names in a URL, unusual characters)."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return None
    host = _host(match["host"])
    scheme = match["scheme"].lower() if match["scheme"] else None
    if host is None or (scheme is not None and scheme not in _PORTS):
        return None
    port = int(match["port"]) if match["port"] else _PORTS.get(scheme or "")
    path = re.split(r"[?#]", match["path"] or "", maxsplit=1)[0]
    return Address(host, scheme, port, path or ("/" if scheme or match["path"] else None))


def _host(text: str) -> str | None:
    """Return the name in lower-case ASCII without a final dot; None if it isn't a host name."""
    text = text.lower().removesuffix(".")
    try:
        text = text if text.isascii() else text.encode("idna").decode("ascii")
    except UnicodeError:
        return None
    return text if _LABELS.fullmatch(text) else None


# ---------------------------------------------------------------- patterns


class HostPattern(Struct, frozen=True):
    """One `network` pattern. `depth` is the number of labels below `host` that it covers: 0, exactly 1, or 2 for any
    number. With an empty `host` it covers every host."""

    host: str
    depth: int
    scheme: str | None
    port: int | None
    path: tuple[Glob, ...] | None

    @property
    def exact(self) -> bool:
        return self.depth == 0

    def covers(self, target: Address) -> bool:
        if self.scheme not in (None, target.scheme) or self.port not in (None, target.port):
            return False
        return self._covers_host(target.host) and self._covers_path(target.path)

    def _covers_host(self, host: str) -> bool:
        if self.depth == 0:
            return host == self.host
        if not self.host:
            return True
        if self.depth == 2 and host == self.host:
            return True
        more = host.removesuffix(f".{self.host}")
        return more != host and bool(more) and (self.depth == 2 or "." not in more)

    def _covers_path(self, path: str | None) -> bool:
        if self.path is None:
            return True
        if path is None:
            return False
        decoded = unquote(path)
        if {".", ".."} & set(decoded.split("/")) or "\\" in decoded:
            return False
        return any(glob.matches(decoded) for glob in self.path)


def check(pattern: str) -> None:
    """Raise `PermissionDenied` for a URL pattern that contains `..`."""
    if ".." in pattern.split("/"):
        raise PermissionDenied(
            f"the permission `network: {pattern}` is refused: `..` is not allowed in a pattern",
            hint="write the path as it is requested",
        )


@lru_cache(maxsize=256)
def host_pattern(text: str) -> HostPattern | None:
    """Compile a pattern; return None for an invalid one, which covers nothing.

    `api.d` covers that host, `*.d` one more label, `**.d` the host and all below, `*` every host. A port or a scheme
    narrows it, and so does a path, which is a glob (a final `/` covers everything below).
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "", text
    elif scheme.lower() not in _PORTS:
        return None
    host, slash, path = rest.partition("/")
    depth = 0
    match = re.fullmatch(r"(\*{1,2})(?:\.(.+?))?(:\d{1,5})?", host)
    if match is not None:
        depth, host = (len(match[1]), match[2]) if match[2] else (2, "any")
        host += match[3] or ""
    found = address(host)
    if found is None:
        return None
    scheme = scheme.lower()
    port = found.port if found.port is not None else _PORTS.get(scheme)
    named = "" if match is not None and not match[2] else found.host
    return HostPattern(named, depth, scheme or None, port, _paths(path) if slash else None)


def _paths(path: str) -> tuple[Glob, ...] | None:
    """Return the globs of a URL pattern's path; None for a lone `/`, which covers everything."""
    if not path:
        return None
    decoded = "/" + unquote(path)
    return (Glob(decoded.rstrip("/")), Glob(decoded + "**")) if decoded.endswith("/") else (Glob(decoded),)


# ---------------------------------------------------------------- public and private addresses

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""All addresses of the public internet except NAT64."""
_DOCUMENTATION: Final = ipaddress.IPv6Network("3fff::/20")
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})


def is_public(address: IPAddress) -> bool:
    """Return whether the address is on the public internet; if it contains an IPv4 address, both must be."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = _embedded_ipv4(address)
        if inner is not None and not is_public(inner):
            return False
        if inner is not None and (address.ipv4_mapped or address in _NAT64):
            return True  # these denote the IPv4 address inside them
        if address not in _GLOBAL_UNICAST or address in _DOCUMENTATION:
            return False
    return address.is_global and not address.is_multicast


def _embedded_ipv4(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address inside an IPv6 address: mapped, 6to4, Teredo, NAT64, IPv4-compatible, ISATAP."""
    known = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
    if known is not None:
        return known
    bits = int(address)
    if address in _NAT64 or bits >> 32 == 0 or (bits >> 32) & 0xFFFF_FFFF in _ISATAP:
        return ipaddress.IPv4Address(bits & 0xFFFF_FFFF)
    return None
