"""The URL of a program: its canonical form, and the kinds that are never fetched (docs/how-to/programs.md)."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, urljoin, urlsplit

from prose_kernel.errors import ImportProgramError
from prose_kernel.language.text import escaped

REGISTRY: Final = "https://p.prose.md/"
LONGEST: Final = 2000

plain_http: frozenset[str] = frozenset()
"""Servers, as `host:port`, that may be requested without TLS. Empty, except in tests with a local server."""

_SAFE: Final = "/?%:@!$&'()*+,;=~-._[]"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)+")
_GITHUB_PAGE: Final = re.compile(r"https://github\.com/([^/]+/[^/]+)/blob/(.+)")


def canonical(url: str, shown: str | None = None) -> str:
    """Return the canonical form of a program's URL: lower-case host, no default port, no `..`, no fragment, ASCII.

    Raises `ImportProgramError` (E215) for anything else; `shown` is its name in messages.
    """
    from prose_kernel.access import hosts

    shown = shown or url
    if len(url) > LONGEST:
        raise unfetchable(shown[:80] + "…", f"its address is longer than {LONGEST:,} characters")
    found = hosts.address(url) if url.isprintable() and "\\" not in url else None
    if found is None or found.scheme is None:
        if "@" in url.partition("//")[2].partition("/")[0]:  # not repeated: it may hold a password
            message = "a URL with a user name or password is not loaded: programs are fetched without signing in"
            raise ImportProgramError(message, hint="leave them out, or save the program to a file")
        raise unfetchable(shown, "it isn't an address of a program", "write `https://HOST/PATH`")
    default = 443 if found.scheme == "https" else 80
    place = found.host if found.port in (default, None) else f"{found.host}:{found.port}"
    path, mark, query = urlsplit(url)._replace(scheme="", netloc="", fragment="").geturl().partition("?")
    return f"{found.scheme}://{place}{quote(_without_dots(path), safe=_SAFE)}{mark}{quote(query, safe=_SAFE)}"


def _without_dots(path: str) -> str:
    """Return an absolute path with `.` and `..` resolved."""
    parts: list[str] = []
    for part in path.split("/")[1:]:
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return "/" + "/".join(parts).lstrip("/")


def address(target: str, registry: str) -> str:
    """Return the canonical URL of a registry name (`handle/slug`, `@handle/slug`) or a URL. Raises
    `ImportProgramError`."""
    if target.startswith(("http://", "https://")):
        return canonical(target)
    return canonical(registry.rstrip("/") + "/" + target.removeprefix("@"), target)


def relative_url(location: str, path: str) -> str:
    """Return the URL for a relative path in the program at `location`: always on the same host.

    Raises `ImportProgramError` (E215).
    """
    url = canonical(urljoin(location, path))
    if urlsplit(url).netloc != urlsplit(location).netloc:
        raise unfetchable(path, "a relative path cannot lead to another host", f"write the whole address: {url}")
    return url


def require_https(url: str) -> None:
    """Raise `ImportProgramError` (E215) for a canonical URL whose content could be changed in transit."""
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.netloc not in plain_http:
        why = "only https is fetched, so that the program can't be changed on the way"
        raise unfetchable(url, why, f"https://{parts.netloc.partition(':')[0]}{parts.path}")


def name_of(url: str, registry: str) -> str:
    """Return the shortest text that `address` resolves to this URL: `handle/slug`, `@handle/…`, or the URL itself."""
    path = url.removeprefix(registry) if url.startswith(registry) else ""
    handle, _, rest = path.partition("/")
    return path if _NAME.fullmatch(path) else f"@{path}" if handle and rest else url


def raw_page(url: str) -> str | None:
    """Return the raw URL of the file that a page of GitHub shows; None for other URLs."""
    match = _GITHUB_PAGE.match(url)
    return f"https://raw.githubusercontent.com/{match[1]}/{match[2]}" if match else None


def unfetchable(shown: str, why: str, hint: str | None = None) -> ImportProgramError:
    """Return the error (E215) for a program that cannot be fetched."""
    return ImportProgramError(f'"{escaped(shown)}" cannot be loaded: {why}', hint=hint)
