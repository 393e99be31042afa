"""Remote programs from a server with all faults: limits, redirects, pins, agreement, cache, lock file."""

from __future__ import annotations

import asyncio
import gzip
import os
import socket
import ssl
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.people import ScriptedPerson
from needs import needs_module
from stubs.http_server import Behaviour, Write, cut, drip, garbage, hang, nothing, redirect, response, running
from stubs.shelf import Shelf, digest, opened

from prose_kernel.access import hosts
from prose_kernel.errors import CompileError, ImportProgramError, UsageError
from prose_kernel.language.source import Source
from prose_kernel.programs import remote_programs, urls
from prose_kernel.programs.lock_file import LockFile, Pin, place_of, text_of
from prose_kernel.programs.openprose_imports import LocalPrograms
from prose_kernel.programs.remote_programs import ProgramCache, RemotePrograms
from prose_kernel.runtime.ports import LoadedProgram, LoadRequest
from prose_kernel.runtime.session_options import ProgramSettings

HELLO = 'exec "echo hello"\noutput said = "hello"\n'
QUIET = 'output said = "nothing"\n'


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    with opened(tmp_path, monkeypatch) as found:
        yield found


async def load(resolver: RemotePrograms, path: str, directory: Path | None = None) -> LoadedProgram:
    programs = LocalPrograms(directory or Path.cwd(), resolver=lambda: resolver)
    return await programs.load_program(LoadRequest(path, Source("…"), "c1/l0"))


async def failure(resolver: RemotePrograms, path: str, code: str = "E215") -> str:
    """Return the error message of loading."""
    with pytest.raises(ImportProgramError) as caught:
        await load(resolver, path)
    assert caught.value.code == code
    return caught.value.message + (f" | {caught.value.hint}" if caught.value.hint else "")


# ---------------------------------------------------------------- fetching


async def test_a_program_of_the_registry_is_fetched_once_pinned_and_cached(shelf: Shelf) -> None:
    url = shelf.put("dana/outline", HELLO)
    person = ScriptedPerson("yes")
    found = await load(shelf.resolver(person=person), "dana/outline")
    assert (found.handle, found.slug, found.url, found.digest) == ("dana", "outline", url, digest(HELLO))
    assert person.transcript == [
        "A program from elsewhere, not agreed to before:\n\n"
        f"  {url}\n    sha256  {digest(HELLO)}\n    size    {len(HELLO)} bytes\n    holds   exec (1)\n\n"
        "exec runs shell commands on this machine, with your rights.",
        "? Run this, now and later? yes, no, or show (print the text): ",
    ]
    assert shelf.pin(url) == Pin(url=url, sha256=digest(HELLO), size=len(HELLO), holds=("exec (1)",))
    shelf.server.pages.clear()
    for path in ("dana/outline", "@dana/outline", url):  # three names of one program
        assert (await load(shelf.resolver(), path)).source.text == HELLO
    assert shelf.server.requests == ["/dana/outline"]


async def test_one_question_covers_a_program_and_all_its_imports(shelf: Shelf) -> None:
    outer = shelf.put("dana/outer", 'use "./lib/part.prose"\nuse "kim/other" as other\noutput x = part()\n')
    part = shelf.put("dana/lib/part.prose", 'use "../quiet.prose"\noutput y = quiet()\n')
    quiet, other = shelf.put("dana/quiet.prose", QUIET), shelf.put("kim/other", 'let a = session "Hi"\noutput a = a\n')
    person = ScriptedPerson("y")
    await load(shelf.resolver(person=person), "@dana/outer")
    assert len(person.transcript) == 2 and person.transcript[0].startswith("4 programs from elsewhere")
    assert [line.strip() for line in person.transcript[0].splitlines() if "http" in line and "used" not in line] == [
        outer, part, other, quiet,
    ]  # fmt: skip
    assert f"used by {part}" in person.transcript[0] and "session (1)" in person.transcript[0]
    assert list(shelf.lock.pins()) == sorted([outer, part, quiet, other])


async def test_one_question_covers_all_imports_of_a_text(shelf: Shelf) -> None:
    urls_of = [shelf.put(f"dana/p{number}", f"output x = {number}\n") for number in range(3)]
    person = ScriptedPerson("y")
    resolver = shelf.resolver(person=person)
    programs = LocalPrograms(shelf.directory, resolver=lambda: resolver)
    cell = Source("".join(f'use "dana/p{number}"\n' for number in (0, 1, 2, 3)))
    for number in range(3):
        await programs.load_program(LoadRequest(f"dana/p{number}", cell, "c1/l0"))
    assert len(person.transcript) == 2 and all(url in person.transcript[0] for url in urls_of)
    with pytest.raises(ImportProgramError, match=r"no such program \(404\)"):
        await programs.load_program(LoadRequest("dana/p3", cell, "c1/l0"))


async def test_local_programs_may_import_remote_ones_but_not_the_reverse(shelf: Shelf) -> None:
    (shelf.directory / "mine.prose").write_text('use "dana/outline"\noutput x = outline()\n')
    shelf.put("dana/outline", QUIET)
    assert (await load(shelf.resolver("y"), "./mine.prose")).handle == "local"
    for path in ("/etc/x.prose", "~/x.prose"):
        shelf.put("dana/spy", f'use "{path}" as x\n')
        assert "names a file of this machine, in a program from elsewhere" in await failure(
            shelf.resolver("y"), "dana/spy"
        )
    shelf.put("dana/spy", 'use "./mine.prose"\n')
    assert "the server has no such program (404)" in await failure(shelf.resolver("y"), "dana/spy")


async def test_relative_imports_resolve_against_the_redirected_url(shelf: Shelf) -> None:
    shelf.server.pages["/dana/outline"] = redirect("/files/v2/outline.prose")
    found = shelf.put("files/v2/outline.prose", 'use "./part.prose"\noutput x = part()\n')
    part = shelf.put("files/v2/part.prose", QUIET)
    person = ScriptedPerson("y")
    await load(shelf.resolver(person=person), "dana/outline")
    assert f"from    {found}" in person.transcript[0]
    pin = shelf.pin(shelf.url + "dana/outline")
    assert pin is not None and pin.location == found and shelf.pin(part) is not None
    shelf.server.pages.clear()
    assert (await load(shelf.resolver(), "dana/outline")).url == shelf.url + "dana/outline"


@pytest.mark.parametrize(
    ("status", "reason", "requests"),
    [
        ("404 Not Found", "the server has no such program (404)", 1),
        ("410 Gone", "it was removed from the server (410)", 1),
        ("403 Forbidden", "the server refuses access to it (403)", 1),
        ("418 Teapot", "the server did not send it (418)", 1),
        ("206 Partial Content", "the server did not send it (206)", 1),
        ("429 Too Many", "the server has too many requests (429)", 3),
        ("503 Unavailable", "the server failed (503)", 3),
    ],
)
async def test_an_error_status_of_the_server_is_reported_in_words(
    shelf: Shelf, status: str, reason: str, requests: int
) -> None:
    shelf.server.pages["/dana/x"] = response(b"no", status=status, more="Retry-After: 2\r\n")
    assert await failure(shelf.resolver(), "dana/x") == f'"{shelf.url}dana/x" cannot be loaded: {reason}'
    assert len(shelf.server.requests) == requests
    assert shelf.pauses == [2.0] * (requests - 1)


async def test_a_busy_server_is_tried_again(shelf: Shelf) -> None:
    async def second_time(_: str, write: Write) -> None:
        busy = len(shelf.server.requests) == 1
        await write(response(b"", status="503 Busy") if busy else response(QUIET.encode()))

    shelf.server.pages["/dana/x"] = second_time
    assert (await load(shelf.resolver("y"), "dana/x")).source.text == QUIET
    assert len(shelf.pauses) == 1


@pytest.mark.parametrize("behaviour", [cut, garbage, nothing])
async def test_a_broken_answer_is_an_error(shelf: Shelf, behaviour: Behaviour) -> None:
    """Also if the server announces more bytes than it sends."""
    shelf.server.pages["/dana/x"] = behaviour
    assert "gave no proper answer" in await failure(shelf.resolver(), "dana/x")
    assert len(shelf.server.requests) == remote_programs.ATTEMPTS and not list(
        ProgramCache(shelf.directory / "cache").entries()
    )


@pytest.mark.parametrize("behaviour", [hang, drip])
async def test_a_slow_answer_exceeds_the_time_limit(shelf: Shelf, behaviour: Behaviour) -> None:
    shelf.server.pages["/dana/x"] = behaviour
    limits = ProgramSettings(seconds=1)
    assert "no complete answer within 1 seconds" in await failure(shelf.resolver(limits=limits), "dana/x")


async def test_redirects_are_limited(shelf: Shelf) -> None:
    shelf.server.pages["/dana/x"] = redirect("/dana/x")
    assert "more than 5 redirects" in await failure(shelf.resolver(), "dana/x")
    assert len(shelf.server.requests) == 6


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ("http://example.org/x", "the server redirects to what is not fetched: "),
        ("ftp://example.org/x", "only http and https URLs can be fetched"),
        ("https://user:secret@example.org/x", "a URL with a user name or password is not fetched"),
        ("https://localhost/x", "'localhost' is this machine or a private network"),
        ("https://[::1]/x", "'::1' is this machine or a private network"),
        ("https://169.254.169.254/x", "'169.254.169.254' is this machine or a private network"),
    ],
)
async def test_each_redirect_is_checked(shelf: Shelf, to: str, reason: str) -> None:
    shelf.server.pages["/dana/x"] = redirect(to)
    message = await failure(shelf.resolver(), "dana/x")
    assert reason in message and "secret" not in message


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://example.org/x.prose", "only https is fetched, so that the program can't be changed on the way"),
        ("https://user:secret@example.org/x", "a URL with a user name or password is not loaded"),
        ("https://10.0.0.1/x", "'10.0.0.1' is this machine or a private network"),
        ("https://2130706433/x", "is this machine or a private network"),
        ("https://[::ffff:127.0.0.1]/x", "is this machine or a private network"),
        ("https://exa mple.org/x", "it isn't an address of a program"),
        ("https://example.org\\.evil.org/x", "it isn't an address of a program"),
        ("https://no-such-host.invalid/x", "there is no host 'no-such-host.invalid'"),
    ],
)
async def test_invalid_and_private_addresses_are_not_fetched(shelf: Shelf, url: str, reason: str) -> None:
    message = await failure(shelf.resolver(), url)
    assert reason in message and "secret" not in message


async def test_a_private_host_in_the_settings_is_connected_to(shelf: Shelf) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    resolver = shelf.resolver(limits=ProgramSettings(seconds=20, private_hosts=("localhost",)))
    assert "'localhost' could not be reached" in await failure(resolver, f"https://localhost:{port}/x")


async def test_an_invalid_certificate_is_reported(shelf: Shelf, tmp_path: Path) -> None:
    with running(own_certificate(tmp_path)) as server:
        server.pages["/x"] = response(QUIET.encode())
        resolver = shelf.resolver(limits=ProgramSettings(seconds=20, private_hosts=("localhost",)))
        message = await failure(resolver, f"https://localhost:{server.port}/x")
    assert "the certificate of 'localhost' is not valid: self" in message
    assert server.requests == []


def own_certificate(directory: Path) -> ssl.SSLContext:
    """Return an SSL context with a self-signed certificate for `localhost`."""
    import datetime

    needs_module("cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = directory / "server.pem"
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


async def test_a_host_is_checked_by_its_resolved_address(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "is_public", lambda address: False)
    assert "is this machine or a private network" in await failure(shelf.resolver(), "https://localhost/x")


async def test_control_characters_in_an_address_are_escaped(shelf: Shelf) -> None:
    shelf.put("dana/x", 'use "https://evil\x1b[2J\u202e/x" as x\n')
    assert r'"https://evil\x1b[2J\u202e/x" cannot be loaded' in await failure(shelf.resolver(), "dana/x")
    message = await failure(shelf.resolver(), "https://example.org/" + "a" * 5000)
    assert "its address is longer than 2,000 characters" in message and len(message) < 200


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("dana/outline", "dana/outline"),
        ("dana/flows/review.prose", "@dana/flows/review.prose"),
        ("dana/part.prose", "@dana/part.prose"),
        ("dana/x?v=1", "@dana/x?v=1"),
        ("x.prose", ""),
        ("dana/", ""),
    ],
)
def test_names_and_urls_convert_into_each_other(path: str, name: str) -> None:
    url = urls.REGISTRY + path
    assert urls.name_of(url, urls.REGISTRY) == (name or url)
    assert urls.address(name or url, urls.REGISTRY) == url


@given(
    st.sampled_from(["https://", "http://", "HTTPS://"]),
    st.sampled_from(["example.org", "EXAMPLE.org:443", "b\u00fccher.example", "x.org:8443", "[::1]", "x.org."]),
    st.text(st.sampled_from("/.?#%2eab \u00fc@:;=&~+"), max_size=12),
)
def test_a_url_has_one_spelling_and_keeps_its_host(scheme: str, host: str, rest: str) -> None:
    url = f"{scheme}{host}/{rest}"
    found = hosts.address(url)
    assert found is not None
    once = urls.canonical(url)
    assert urls.canonical(once) == once and once.isascii() and "#" not in once
    again = hosts.address(once)
    assert again is not None and (again.host, again.port, again.scheme) == (found.host, found.port, found.scheme)
    assert ".." not in urlsplit(once).path.split("/")
    assert (
        urlsplit(urls.relative_url(once, "./" + rest.partition("#")[0].replace("@", ""))).netloc
        == urlsplit(once).netloc
    )


# ---------------------------------------------------------------- texts that are not a program


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        (b"<!DOCTYPE html><p>hi", "text/html; charset=utf-8", "it is an HTML page, not a program"),
        (b"\n <HTML>", "text/plain", "it is an HTML page, not a program"),
        (b"{}", "application/json", "the server says that it is application/json, which isn't a program"),
        (b"\x89PNG", "image/png", "the server says that it is image/png, which isn't a program"),
        (b" \n", "text/plain", "the server sent an empty text"),
        (b"output x = \xff", "text/plain", "it is not UTF-8 text (byte 12)"),
        (b"output x = = 1\n", "text/plain", "it has errors: line 1, column 12"),
    ],
)
async def test_a_text_that_is_not_a_program_is_an_error(shelf: Shelf, body: bytes, kind: str, reason: str) -> None:
    shelf.server.pages["/dana/x"] = response(body, kind)
    assert reason in await failure(shelf.resolver("y"), "dana/x")
    assert shelf.lock.pins() == {} and not shelf.lock.path.exists()


@pytest.mark.parametrize("kind", ["text/plain", "text/markdown; charset=utf-8", "application/octet-stream", ""])
async def test_common_content_types_are_accepted(shelf: Shelf, kind: str) -> None:
    shelf.server.pages["/dana/x"] = response(b"\xef\xbb\xbf" + QUIET.replace("\n", "\r\n").encode(), kind)
    assert (await load(shelf.resolver("y"), "dana/x")).source.text == QUIET


async def test_the_hint_about_a_page_names_the_requested_host(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint does not name the connected address, for which no raw page is known."""
    host = f"localhost:{shelf.server.port}"
    monkeypatch.setattr(urls, "plain_http", {host})
    monkeypatch.setattr(urls, "raw_page", lambda url: f"{url}.raw")
    shelf.server.pages["/page"] = response(b"<p>", "text/html")
    assert f"the text is at http://{host}/page.raw" in await failure(shelf.resolver(), f"http://{host}/page")


def test_a_page_of_github_has_a_hint_to_its_raw_text() -> None:
    page = "https://github.com/openprose/prose/blob/main/examples/48-habit-miner.prose"
    assert urls.raw_page(page) == "https://raw.githubusercontent.com/openprose/prose/main/examples/48-habit-miner.prose"
    assert urls.raw_page("https://github.com/openprose/prose") is None


async def test_a_download_stops_at_the_size_limit(shelf: Shelf) -> None:
    sent = 0

    async def flood(path: str, write: Write) -> None:
        nonlocal sent
        length = b"Content-Length: 1073741824\r\n" if "lie" not in path else b""
        await write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n" + length + b"\r\n")
        for _ in range(16384):
            await write(b"x" * 65536)
            sent += 65536

    for path in ("dana/x", "dana/lie"):
        shelf.server.pages["/" + path] = flood
        assert "it is larger than 1 MiB, the limit for programs from elsewhere" in await failure(shelf.resolver(), path)
    assert sent < 100_000_000 and len(shelf.server.requests) == 2


async def test_the_size_limit_counts_unpacked_bytes(shelf: Shelf) -> None:
    shelf.server.pages["/dana/x"] = response(gzip.compress(b"#" * 50_000_000), more="Content-Encoding: gzip\r\n")
    limits = ProgramSettings(size=100_000, seconds=20)
    assert "it is larger than 100,000 bytes" in await failure(shelf.resolver(limits=limits), "dana/x")


async def test_content_encodings_are_decoded_or_errors(shelf: Shelf) -> None:
    text = QUIET.encode()
    for name, packed in (("gzip", gzip.compress(text)), ("deflate", zlib.compress(text))):
        shelf.server.pages[f"/dana/{name}"] = response(packed, more=f"Content-Encoding: {name}\r\n")
        assert (await load(shelf.resolver("y"), f"dana/{name}")).source.text == QUIET
    shelf.server.pages["/dana/br"] = response(b"?", more="Content-Encoding: br\r\n")
    assert "packed in a way that was not asked for (br)" in await failure(shelf.resolver(), "dana/br")
    shelf.server.pages["/dana/bad"] = response(b"not gzip", more="Content-Encoding: gzip\r\n")
    assert "packed, and cannot be unpacked" in await failure(shelf.resolver(), "dana/bad")
    shelf.server.pages["/dana/half"] = response(gzip.compress(text)[:-9], more="Content-Encoding: gzip\r\n")
    assert "its end is missing" in await failure(shelf.resolver(), "dana/half")


async def test_bytes_after_a_packed_text_are_not_read(shelf: Shelf) -> None:
    async def more(_: str, write: Write) -> None:
        await write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\n\r\n")
        await write(gzip.compress(QUIET.encode()))
        while True:
            await write(b"x" * 65536)

    shelf.server.pages["/dana/x"] = more
    assert (await load(shelf.resolver("y"), "dana/x")).source.text == QUIET


async def test_the_total_size_of_programs_is_limited(shelf: Shelf) -> None:
    text = "#" * 900 + "\n"
    for number in range(9):
        shelf.put(f"dana/p{number}.prose", text + f'use "./p{number + 1}.prose" as next\n')
    message = await failure(shelf.resolver("y", limits=ProgramSettings(size=1000)), "@dana/p0.prose")
    assert "it leads to more than 4,000 bytes of programs from elsewhere | [programs] size in prose.toml" in message
    assert len(shelf.server.requests) == 5 and shelf.lock.pins() == {}


async def test_a_cycle_and_an_endless_chain_of_imports_are_errors(shelf: Shelf) -> None:
    a, b = shelf.put("dana/a", 'use "kim/b"\n'), shelf.put("kim/b", 'use "dana/a"\n')
    assert "Import cycle: dana/a -> kim/b -> dana/a" in await failure(shelf.resolver("y"), "dana/a", "E112")
    assert a != b

    async def more(path: str, write: Write) -> None:
        number = int(path.partition("n=")[2] or 0) + 1
        await write(response(f'use "{shelf.url}chain?n={number}" as next\n'.encode()))

    shelf.server.pages["/chain"] = more
    message = await failure(shelf.resolver("y", most=10), f"{shelf.url}chain")
    assert "it leads to more than 10 programs from elsewhere" in message
    assert len(shelf.server.requests) == 2 + 10 and shelf.lock.pins() == {}


async def test_a_chain_of_sixty_programs_loads(shelf: Shelf) -> None:
    for number in range(60):
        shelf.put(f"dana/p{number}", f'use "./p{number + 1}.prose" as next\noutput x = next()\n')
        shelf.server.pages[f"/dana/p{number}.prose"] = shelf.server.pages[f"/dana/p{number}"]
    shelf.put("dana/p60.prose", QUIET)
    await load(shelf.resolver("y"), "dana/p0")
    assert len(shelf.lock.pins()) == 61


# ---------------------------------------------------------------- pins


async def test_a_text_that_differs_from_its_pin_is_refused_with_both_digests(shelf: Shelf) -> None:
    url = shelf.put("dana/outline", HELLO)
    await load(shelf.resolver("y"), "dana/outline")
    shelf.put("dana/outline", QUIET)
    assert (await load(shelf.resolver(), "dana/outline")).source.text == HELLO  # from the cache
    ProgramCache(shelf.directory / "cache").remove(digest(HELLO))
    assert await failure(shelf.resolver("y"), "dana/outline") == (
        f'"{url}" cannot be loaded: it is not the text that prose.lock pins: it has sha256 {digest(QUIET)}, '
        f"pinned is {digest(HELLO)} | if the change is wanted: prose install --upgrade dana/outline"
    )
    shelf.put("dana/outline", HELLO)
    assert (await load(shelf.resolver(), "dana/outline")).source.text == HELLO


async def test_an_upgrade_shows_both_digests_and_replaces_the_pin(shelf: Shelf) -> None:
    url = shelf.put("dana/outline", HELLO)
    await load(shelf.resolver("y"), "dana/outline")
    await load(shelf.resolver(upgrade=True), "dana/outline")  # unchanged: no question
    shelf.put("dana/outline", QUIET)
    person = ScriptedPerson("no", "yes")
    assert "you did not agree to run it" in await failure(shelf.resolver(person=person, upgrade=True), "dana/outline")
    assert shelf.lock.pins()[url].sha256 == digest(HELLO)
    await load(shelf.resolver(person=person, upgrade=True), "dana/outline")
    assert f"sha256  {digest(QUIET)}\n    was     {digest(HELLO)}" in person.transcript[0]
    assert shelf.lock.pins()[url].sha256 == digest(QUIET)


async def test_a_cached_program_that_was_changed_on_disk_is_fetched_again(shelf: Shelf) -> None:
    shelf.put("dana/outline", HELLO)
    await load(shelf.resolver("y"), "dana/outline")
    [file] = (shelf.directory / "cache").glob("*.prose")
    file.write_text('exec "rm -rf /"\n')
    assert (await load(shelf.resolver(), "dana/outline")).source.text == HELLO
    assert len(shelf.server.requests) == 2 and file.read_text() == HELLO


async def test_an_unreachable_server_is_an_error(shelf: Shelf) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    urls.plain_http |= {f"127.0.0.1:{port}"}
    message = await failure(shelf.resolver(), f"http://127.0.0.1:{port}/x")
    assert message == f"\"http://127.0.0.1:{port}/x\" cannot be loaded: '127.0.0.1' could not be reached"


async def test_a_cache_that_cannot_be_written_is_ignored(shelf: Shelf) -> None:
    (shelf.directory / "cache").write_text("in the way")
    shelf.put("dana/outline", QUIET)
    await load(shelf.resolver("y"), "dana/outline")
    await load(shelf.resolver(), "dana/outline")
    assert len(shelf.server.requests) == 2


def test_several_caches_store_the_same_program_once(tmp_path: Path) -> None:
    caches = [ProgramCache(tmp_path) for _ in range(4)]
    assert {cache.put(QUIET.encode()) for cache in caches} == {digest(QUIET)}
    assert [path.name for path in tmp_path.iterdir()] == [f"{digest(QUIET)}.prose"]
    assert ProgramCache(tmp_path / "gone").get(digest(QUIET)) is None


# ---------------------------------------------------------------- agreement


async def test_a_program_without_agreement_is_neither_loaded_nor_pinned(shelf: Shelf) -> None:
    url = shelf.put("dana/outline", HELLO)
    assert await failure(shelf.resolver("maybe", "show", "n"), "dana/outline") == (
        f'"{url}" cannot be loaded: you did not agree to run it'
    )
    non_interactive = (
        f'"{url}" cannot be loaded: it has not run here before, and the run is non-interactive | '
        f"read it (prose programs show {url}), then agree: %trust {digest(HELLO)}"
    )
    assert await failure(shelf.resolver(), "dana/outline") == non_interactive
    assert await failure(shelf.resolver(person=ScriptedPerson()), "dana/outline") == non_interactive  # the input ends
    assert shelf.lock.pins() == {}


async def test_refused_programs_are_fetched_again(shelf: Shelf) -> None:
    shelf.put("dana/outline", HELLO)
    resolver = shelf.resolver("no", "yes")
    await failure(resolver, "dana/outline")
    shelf.put("dana/outline", QUIET)
    assert (await load(resolver, "dana/outline")).source.text == QUIET


@pytest.mark.parametrize("writes", [True, False])
async def test_parallel_imports_of_a_program_ask_once(shelf: Shelf, writes: bool) -> None:
    shelf.put("dana/outline", HELLO)
    person = ScriptedPerson("y", "n")
    resolver = shelf.resolver(person=person, writes=writes)
    found = await asyncio.gather(*(load(resolver, "dana/outline") for _ in range(2)))
    assert [one.source.text for one in found] == [HELLO, HELLO]
    assert person.answers == ["n"]


async def test_a_removed_program_needs_agreement_again(shelf: Shelf) -> None:
    """`prose programs remove` may run in a terminal while a notebook runs."""
    url = shelf.put("dana/outline", HELLO)
    resolver = shelf.resolver("y", "n")
    await load(resolver, "dana/outline")
    shelf.lock.change(remove=[url])
    assert "you did not agree to run it" in await failure(resolver, "dana/outline")
    assert shelf.pin(url) is None


async def test_show_prints_the_whole_text_with_escapes(shelf: Shelf) -> None:
    """Control characters cannot hide a line from the reader."""
    url = shelf.put("dana/outline", HELLO + 'let a = "fine" # \x1b[8m\u202e\n')
    person = ScriptedPerson("s", "y")
    await load(shelf.resolver(person=person), "dana/outline")
    assert f'---- {url}\n{HELLO}let a = "fine" # \\x1b[8m\\u202e' in person.transcript


@pytest.mark.parametrize(
    ("trusted", "enough"), [("all", True), ("dana/outer", True), ("digest", False), ("kim/x", False)]
)
async def test_trust_in_a_url_covers_its_imports_and_trust_in_a_digest_one_text(
    shelf: Shelf, trusted: str, enough: bool
) -> None:
    outer = 'use "./part.prose"\noutput x = part()\n'
    shelf.put("dana/outer", outer)
    part = shelf.put("dana/part.prose", QUIET)
    resolver = shelf.resolver()
    resolver.trust.add([f"sha256:{digest(outer)}" if trusted == "digest" else trusted], resolver.registry)
    if enough:
        await load(resolver, "dana/outer")
    else:
        assert "the run is non-interactive" in await failure(resolver, "dana/outer")
        resolver.trust.add([digest(outer), digest(QUIET)], resolver.registry)
        await load(resolver, "dana/outer")
    assert part in shelf.lock.pins()


@pytest.mark.parametrize("given", ["everything", "abc123", "https://", "", "./dana/x.prose", "/dana/x", "~/x"])
def test_invalid_arguments_of_trust_are_errors(shelf: Shelf, given: str) -> None:
    resolver = shelf.resolver()
    with pytest.raises(UsageError):
        resolver.trust.add([given], resolver.registry)


async def test_a_command_of_a_run_cannot_agree_to_a_program(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can use neither the option nor a terminal that it has created."""
    url = shelf.put("dana/outline", HELLO)
    monkeypatch.setenv("PROSE_JOB", "run/1")
    resolver = shelf.resolver("yes")
    resolver.trust.add(["all"], resolver.registry)
    assert await failure(resolver, "dana/outline") == (
        f'"{url}" cannot be loaded: it has not run here before, and only a person may agree to that, '
        f"not a command of a run | at a terminal: prose install {url}"
    )
    monkeypatch.delenv("PROSE_JOB")
    await load(resolver, "dana/outline")
    monkeypatch.setenv("PROSE_JOB", "run/1")
    await load(shelf.resolver(), "dana/outline")  # a program with a person's agreement runs there, too


async def test_a_run_that_writes_nothing_keeps_the_agreement_in_memory(shelf: Shelf) -> None:
    shelf.put("dana/outline", QUIET)
    resolver = shelf.resolver("y", writes=False)
    for _ in range(2):
        await load(resolver, "dana/outline")
    assert not shelf.lock.path.exists()
    assert "the run is non-interactive" in await failure(shelf.resolver(writes=False), "dana/outline")


async def test_a_lock_file_that_cannot_be_written_is_a_warning(shelf: Shelf) -> None:
    shelf.put("dana/outline", QUIET)
    person = ScriptedPerson("y")
    resolver = shelf.resolver(person=person)
    (shelf.directory / ".prose.lock.tmp").mkdir()
    await load(resolver, "dana/outline")
    assert person.transcript[-1].startswith("Warning: prose.lock cannot be written (")


async def test_agreement_to_a_text_covers_its_other_addresses(shelf: Shelf) -> None:
    shelf.put("dana/outline", QUIET)
    await load(shelf.resolver("y"), "dana/outline")
    other = shelf.put("kim/copy", QUIET)
    await load(shelf.resolver(), "kim/copy")
    assert other in shelf.lock.pins()


# ---------------------------------------------------------------- the root program


async def test_the_root_program_may_be_remote(shelf: Shelf) -> None:
    shelf.put("dana/outer", 'use "./part.prose"\noutput x = part()\n')
    shelf.put("dana/part.prose", QUIET)
    resolver = shelf.resolver("y")
    programs = LocalPrograms(shelf.directory, resolver=lambda: resolver, origin="dana/outer")
    source = await programs.load_root()
    assert (
        await programs.load_program(LoadRequest("./part.prose", source, "c1/l0"))
    ).url == f"{shelf.url}dana/part.prose"
    with pytest.raises(ImportProgramError, match="Import cycle: dana/outer -> dana/outer"):
        await programs.load_program(LoadRequest("dana/outer", source, "c1/l0"))


async def test_a_root_program_with_errors_is_not_asked_about(shelf: Shelf) -> None:
    shelf.put("dana/bad", 'use "dana/gone"\noutput a = b\noutput c = d\n')
    shelf.put("dana/gone", QUIET)
    resolver = shelf.resolver()
    with pytest.raises(CompileError) as caught:
        await LocalPrograms(shelf.directory, resolver=lambda: resolver, origin="dana/bad").load_root()
    assert len([found for found in caught.value.diagnostics if found.severity == "error"]) == 2
    shelf.put("dana/half", 'use "dana/missing"\nexec "echo must not run"\n')
    with pytest.raises(ImportProgramError, match=r"no such program \(404\)"):
        await LocalPrograms(shelf.directory, resolver=lambda: resolver, origin="dana/half").load_root()


# ---------------------------------------------------------------- the lock file


def pin(url: str, letter: str = "a") -> Pin:
    return Pin(url=url, sha256=letter * 64, size=3, holds=("exec (1)",))


def test_a_lock_file_depends_only_on_its_pins(tmp_path: Path) -> None:
    one, two = LockFile(tmp_path / "1"), LockFile(tmp_path / "2", tmp_path / "mutex")
    one.change([pin("https://b/x"), pin("https://a/x")])
    two.change([pin("https://a/x", "c")])
    two.change([pin("https://b/x")])
    two.change([pin("https://a/x")])
    assert one.path.read_bytes() == two.path.read_bytes()
    assert LockFile(one.path).pins() == {"https://a/x": pin("https://a/x"), "https://b/x": pin("https://b/x")}
    two.change(remove=["https://a/x", "https://never"])
    assert list(two.pins()) == ["https://b/x"]
    assert one.path.read_text() == (
        "# Programs from elsewhere that this project runs, with the digests that a person has approved.\n"
        'version = 1\n\n[[program]]\nurl = "https://a/x"\n'
        f'sha256 = "{"a" * 64}"\nsize = 3\nholds = ["exec (1)"]\n\n[[program]]\nurl = "https://b/x"\n'
        f'sha256 = "{"a" * 64}"\nsize = 3\nholds = ["exec (1)"]\n'
    )


async def test_pins_list_any_name_of_a_memory(shelf: Shelf) -> None:
    memory = "m/\U0001f600\x7f, exec (0)"
    url = shelf.put("dana/x", f'agent a:\n  prompt: "x"\n  persist: "{memory}"\nlet x = session: a\noutput y = x\n')
    await load(shelf.resolver("y"), "dana/x")
    pin = shelf.pin(url)
    assert pin is not None and pin.holds == ("session (1)", f'memory: "{memory}"')


def test_concurrent_writers_of_the_lock_file_lose_no_pin(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def add(number: int) -> None:
        LockFile(tmp_path / "prose.lock", tmp_path / "mutex").change([pin(f"https://x/{number}")])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(24)))
    assert len(LockFile(tmp_path / "prose.lock").pins()) == 24


GOOD = text_of([pin("https://a/x")])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (GOOD.replace("version = 1", "<<<<<<< HEAD\nversion = 1"), "line 2 is the mark of a merge conflict"),
        (GOOD.replace("version = 1", "version = 2"), "it has version 2, this prose_kernel reads version 1"),
        (GOOD.replace("version = 1\n", ""), "Object missing required field `version`"),
        (GOOD.replace("a" * 64, "A" * 64), "Expected `str` matching regex"),
        (GOOD.replace("size = 3", 'size = "3"'), "Expected `int`, got `str`"),
        (GOOD + GOOD[GOOD.index("[[") :], "it has two entries for one URL"),
        (GOOD[:-20], "cannot be used: "),
        (GOOD.replace("https://a/x", "https://A/x"), '"https://A/x" is not how it writes a URL'),
        (GOOD.replace("https://a/x", "https://a/\\u001b[2J"), '"https://a/\\x1b[2J" is not how it writes a URL'),
        (GOOD.replace("size", 'location = "ftp://a/x"\nsize'), '"ftp://a/x" is not how it writes a URL'),
        ("\udcff", "it is not UTF-8 text"),
    ],
)
async def test_an_invalid_lock_file_stops_loading(shelf: Shelf, text: str, reason: str) -> None:
    shelf.lock.path.write_bytes(text.encode("utf-8", "surrogateescape"))
    shelf.put("dana/outline", QUIET)
    message = await failure(shelf.resolver("y"), "dana/outline")
    assert message.startswith("prose.lock cannot be used: ") and reason in message
    assert shelf.server.requests == [] and shelf.lock.path.read_bytes() == text.encode("utf-8", "surrogateescape")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_a_lock_file_that_cannot_be_read_stops_loading(shelf: Shelf) -> None:
    shelf.lock.path.write_text(GOOD)
    shelf.lock.path.chmod(0)
    assert "prose.lock cannot be used: it cannot be read" in await failure(shelf.resolver("y"), "dana/outline")


async def test_a_lock_file_that_is_a_pipe_is_an_error(shelf: Shelf) -> None:
    os.mkfifo(shelf.lock.path)
    assert "prose.lock cannot be used: it is not a file" in await failure(shelf.resolver("y"), "dana/outline")


def test_the_lock_file_is_next_to_a_notebook_or_in_the_directory(tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir()
    here, next_to_notebook = tmp_path / "prose.lock", tmp_path / "flows" / "prose.lock"
    assert place_of(tmp_path, "flows/a.prose") == here == place_of(tmp_path)
    assert place_of(tmp_path, "flows/a.ipynb") == next_to_notebook
    next_to_notebook.write_text(GOOD)
    assert place_of(tmp_path, "flows/a.prose") == next_to_notebook
    here.write_text(GOOD)
    assert place_of(tmp_path, "flows/a.prose") == here


async def test_a_changed_lock_file_is_read_again(shelf: Shelf) -> None:
    """`prose install --upgrade` may run in a terminal while a notebook runs."""
    shelf.put("dana/outline", HELLO)
    resolver = shelf.resolver("y")
    await load(resolver, "dana/outline")
    shelf.put("dana/outline", QUIET)
    await load(shelf.resolver("y", upgrade=True), "dana/outline")
    assert (await load(resolver, "dana/outline")).source.text == QUIET


async def test_a_fetch_can_be_cancelled(shelf: Shelf) -> None:
    shelf.server.pages["/dana/x"] = hang
    fetching = asyncio.create_task(load(shelf.resolver(), "dana/x"))
    while not shelf.server.requests:
        await asyncio.sleep(0.01)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
