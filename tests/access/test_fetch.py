"""The fetch tool against real servers on loopback: redirects, addresses, limits, faults."""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any

import psutil
import pytest
from machine.fakes import FakeClock
from models.people import ScriptedPerson
from needs import needs_module
from stubs.http_server import Behaviour, Server, Write, cut, drip, garbage, hang, nothing, redirect, response
from waiting import PATIENCE

from prose_kernel.access import hosts
from prose_kernel.access.approvals import Approvals
from prose_kernel.access.session_permissions import Policy
from prose_kernel.models.tools import fetch
from prose_kernel.models.tools.fetch import FetchTool
from prose_kernel.models.tools.permission_check import Access
from prose_kernel.models.tools.tool import ToolFailed, ToolRefused
from prose_kernel.runtime.ports import SessionRequest
from prose_kernel.runtime.session_options import Rule, Surroundings


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    found = Server()
    listening = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = listening.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        listening.close()  # `async with` would wait for requests that are never answered


def tool(
    rules: Mapping[str, Rule] | None = None,
    person: ScriptedPerson | None = None,
    seconds: float = 20,
    cwd: str = "/nowhere",
) -> FetchTool:
    request = SessionRequest("session", "x", "c1/s0", agent="reader")
    policy = Policy.of(rules or {"network": ("127.0.0.1",)}, {}, cwd)
    approvals = Approvals(person or ScriptedPerson(available=False), FakeClock())
    return FetchTool(Access(request, policy, approvals, Surroundings(cwd)), seconds)


async def get(server: Server, path: str = "/", given: FetchTool | None = None, host: str = "127.0.0.1") -> str:
    return await (given or tool()).call({"url": f"http://{host}:{server.port}{path}"})


# ---------------------------------------------------------------- pages


async def test_a_text_page(server: Server) -> None:
    server.pages["/a"] = response("grüße".encode("latin-1"), "text/plain; charset=latin-1")
    assert await get(server, "/a?q=1#f") == f"http://127.0.0.1:{server.port}/a?q=1#f (text/plain)\n\ngrüße"
    assert server.requests == ["/a?q=1"]
    assert server.hosts == [f"127.0.0.1:{server.port}"]


async def test_html_becomes_markdown(server: Server) -> None:
    needs_module("markdownify")
    html = (
        b"<html><head><script>evil()</script></head><body><h1>Title</h1><p>See <a href='/x'>this</a>.</p></body></html>"
    )
    server.pages["/"] = response(html, "text/html; charset=utf-8")
    text = (await get(server)).partition("\n\n")[2]
    assert "# Title" in text and "[this](/x)" in text and "<p>" not in text


async def test_endlessly_nested_html_is_shown_unchanged(server: Server) -> None:
    server.pages["/"] = response(b"<div>" * 19_000 + b"deep", "text/html")
    assert (await get(server)).endswith("deep")


async def test_compressed_pages_and_pages_without_a_type(server: Server) -> None:
    server.pages["/z"] = response(gzip.compress(b"unpacked"), more="Content-Encoding: gzip\r\n")
    assert (await get(server, "/z")).endswith("\n\nunpacked")
    server.pages["/n"] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
    assert await get(server, "/n") == f"http://127.0.0.1:{server.port}/n (no type given)\n\nhi"


@pytest.mark.parametrize(
    ("kind", "body", "says"),
    [
        ("image/png", b"\x89PNG", "[4 bytes of image/png: not text]"),
        ("text/plain", b"a\0b", "[3 bytes: not text]"),
        ("text/plain", b"", "[empty]"),
        ("application/ld+json", b'{"a": 1}', '{"a": 1}'),
        ("text/plain; charset=klingon", b"ok", "ok"),
    ],
)
async def test_a_file_that_is_not_text_is_one_clear_error(server: Server, kind: str, body: bytes, says: str) -> None:
    server.pages["/"] = response(body, kind)
    assert (await get(server)).partition("\n\n")[2] == says


async def test_an_error_page_is_a_failure_with_its_beginning(server: Server) -> None:
    with pytest.raises(ToolFailed, match=r"^404 Not Found\n\nno such page$"):
        await get(server, "/missing")


# ---------------------------------------------------------------- limits


async def test_an_endless_page_is_cut(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "SIZE_LIMIT", 300_000)

    async def endless(_: str, write: Write) -> None:
        await write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await write(b"2000\r\n" + b"x" * 0x2000 + b"\r\n")

    server.pages["/"] = endless
    answer = await get(server)
    assert answer.endswith("[cut: 300,000 characters in all, or more]") and len(answer) < fetch.TEXT_LIMIT + 200
    await server.left.wait()


async def test_a_compression_bomb_counts_with_its_unpacked_size(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "SIZE_LIMIT", 1_000_000)
    server.pages["/"] = response(gzip.compress(b"0" * 200_000_000), more="Content-Encoding: gzip\r\n")
    assert (await get(server)).endswith("[cut: 1,000,000 characters in all, or more]")


@pytest.mark.parametrize("behaviour", [hang, drip])
async def test_a_slow_server_times_out(server: Server, behaviour: Behaviour) -> None:
    server.pages["/"] = behaviour
    with pytest.raises(ToolFailed, match=r"^no answer within 0\.3 seconds$"):
        await get(server, given=tool(seconds=0.3))


@pytest.mark.parametrize("behaviour", [cut, garbage, nothing])
async def test_a_broken_answer_is_a_failure_with_a_message(server: Server, behaviour: Behaviour) -> None:
    server.pages["/"] = behaviour
    with pytest.raises(ToolFailed, match=r"^'127\.0\.0\.1' gave no proper answer \(\w+\)$"):
        await get(server)


async def test_no_server_and_no_host() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    with pytest.raises(ToolFailed, match=r"^'127\.0\.0\.1' could not be reached$"):
        await tool().call({"url": f"http://127.0.0.1:{port}/"})
    with pytest.raises(ToolFailed, match=r"^there is no host 'no-such-host\.invalid'$"):
        await tool({"network": ("*.invalid",)}).call({"url": "http://no-such-host.invalid/"})


async def test_a_cancelled_fetch_closes_the_connection(server: Server) -> None:
    arrived = asyncio.Event()

    async def wait(_: str, write: Write) -> None:
        arrived.set()
        while True:
            await asyncio.sleep(0.01)
            await write(b"x" * 65536)

    server.pages["/"] = wait
    fetching = asyncio.create_task(get(server))
    await arrived.wait()
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    async with asyncio.timeout(PATIENCE):
        await server.left.wait()


# ---------------------------------------------------------------- permitted targets


async def test_redirects_are_followed_and_judged_at_each_hop(server: Server) -> None:
    server.pages |= {"/a": redirect("/b"), "/b": redirect("c", "308 Permanent Redirect"), "/c": response(b"here")}
    assert (await get(server, "/a")).startswith(f"http://127.0.0.1:{server.port}/c ")
    server.pages["/out"] = redirect(f"http://localhost:{server.port}/c")
    with pytest.raises(ToolRefused, match=r"^network access to 'localhost' is not allowed: the rule is"):
        await get(server, "/out")
    only_a = tool({"network": (f"http://127.0.0.1:{server.port}/a",)})
    with pytest.raises(ToolRefused):
        await get(server, "/a", only_a)
    assert server.requests == ["/a", "/b", "/c", "/out", "/a"]


async def test_the_number_of_redirects_is_limited(server: Server) -> None:
    server.pages["/"] = redirect("/")
    with pytest.raises(ToolFailed, match=r"^more than 5 redirects$"):
        await get(server)
    assert len(server.requests) == fetch.HOPS + 1


@pytest.mark.parametrize(
    "to", ["file:///etc/passwd", "ftp://127.0.0.1/", "http://user:secret@127.0.0.1/", "http://[::1/", ""]
)
async def test_a_redirect_to_something_else_is_not_followed(server: Server, to: str) -> None:
    server.pages["/"] = redirect(to)
    with pytest.raises((ToolFailed, ToolRefused)):
        await get(server)


@pytest.mark.parametrize(
    "url", ["", "a b", "file:///etc/passwd", "//127.0.0.1/", "http://", "http://u:p@127.0.0.1/", "gopher://x/"]
)
async def test_a_text_that_is_not_a_url_is_not_fetched(url: str) -> None:
    with pytest.raises((ToolFailed, ToolRefused)):
        await tool({"network": "allow"}).call({"url": url})


@pytest.mark.parametrize("rule", ["allow", ("*",), ("**.0.0.1", "*.0.0.1", "http://*/")])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "2130706433", "[::ffff:127.0.0.1]"])
async def test_this_machine_is_not_called_unless_a_pattern_names_it(server: Server, rule: Rule, host: str) -> None:
    with pytest.raises((ToolRefused, ToolFailed)):
        await get(server, "/", tool({"network": rule}), host)
    assert server.requests == []


async def test_a_pattern_that_names_the_host_allows_a_private_address(server: Server) -> None:
    server.pages["/"] = response(b"local")
    assert (await get(server, "/", tool({"network": ("*", "localhost")}), "localhost")).endswith("local")
    assert (await get(server, "/", tool({"network": (f"localhost:{server.port}",)}), "LOCALHOST")).endswith("local")


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True), ("127.9.9.9", False), ("10.0.0.1", False), ("169.254.169.254", False), ("100.64.0.1", False),
        ("0.0.0.0", False), ("224.0.0.1", False), ("255.255.255.255", False), ("2606:2800:220:1::1", True), ("::1", False),
        ("fe80::1", False), ("fc00::1", False), ("::ffff:10.0.0.1", False), ("::ffff:93.184.216.34", True),
        ("64:ff9b::7f00:1", False), ("64:ff9b::808:808", True), ("64:ff9b:1::808:808", False), ("2002:7f00:1::", False),
        ("ff02::1", False), ("::", False), ("::10.0.0.1", False), ("fec0::1", False), ("feff::1", False),
        ("::ffff:0:10.0.0.1", False), ("::ffff:0:93.184.216.34", False), ("100::1", False), ("3fff::1", False),
        ("5f00::1", False), ("4000::1", False), ("2001:db8::1", False),
        ("2606:2800::5efe:a00:1", False), ("2606:2800::200:5efe:c0a8:1", False), ("2606:2800::5efe:808:808", True),
    ],
)  # fmt: skip
def test_a22_addresses_of_the_open_internet(address: str, public: bool) -> None:
    assert fetch.is_public(ipaddress.ip_address(address)) is public


async def test_dns_rebinding_does_not_reach_another_address(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is looked up once, so its second address is never contacted."""
    checked = Server()
    listening = await asyncio.start_server(checked.serve, "127.0.0.2", server.port)
    checked.pages["/"] = response(b"the checked one")
    answers = iter(["127.0.0.2"] + ["127.0.0.1"] * 10)

    def lookup(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        assert host == "rebinding.example"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(hosts, "is_public", lambda address: str(address) == "127.0.0.2")
    async with listening:
        answer = await get(server, "/", tool({"network": ("*.example",)}), "rebinding.example")
        assert answer.endswith("the checked one")
        with pytest.raises(ToolRefused, match="a private network"):
            await get(server, "/", tool({"network": ("*.example",)}), "rebinding.example")
    assert server.requests == []
    assert checked.hosts == [f"rebinding.example:{server.port}"]


async def test_a_host_has_one_name_for_the_rules_the_lookup_and_the_person(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []

    def lookup(host: str, *_: Any, **__: Any) -> list[Any]:
        looked_up.append(host)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    person = ScriptedPerson("y")
    with pytest.raises(ToolFailed, match=r"there is no host 'xn--bcher-kva\.example'"):
        await tool({"network": "prompt"}, person).call({"url": "http://bücher.example/"})
    assert looked_up == ["xn--bcher-kva.example"]
    assert "always = network access to xn--bcher-kva.example by agent reader" in person.transcript[0]


async def test_tls_uses_the_name_of_the_host_and_not_its_address() -> None:
    names: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda _socket, name, _context: names.append(name)

    async def never(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    listening = await asyncio.start_server(never, "127.0.0.1", 0, ssl=context)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(ToolFailed, match="'localhost' could not be reached"):
            await tool({"network": ("localhost",)}).call({"url": f"https://localhost:{port}/"})
    assert set(names) == {"localhost"}


# ---------------------------------------------------------------- the person


async def test_prompt_asks_for_each_host_with_the_whole_address() -> None:
    person = ScriptedPerson("n", "y")
    asking = tool({"network": "prompt"}, person)
    with pytest.raises(ToolRefused, match=r"^network access to 'a\.invalid' is not allowed: the person said no$"):
        await asking.call({"url": "http://a.invalid/x?secret=1"})
    assert "  | http://a.invalid/x?secret=1" in person.transcript[0]
    assert "always = network access to a.invalid by agent reader" in person.transcript[0]
    with pytest.raises(ToolFailed, match="there is no host"):
        await asking.call({"url": "http://b.invalid/"})


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "169.254.169.254"])
async def test_a_private_address_is_refused_without_asking(server: Server, host: str) -> None:
    person = ScriptedPerson("y")
    with pytest.raises(ToolRefused, match="no `network` pattern names it"):
        await get(server, "/", tool({"network": "prompt"}, person), host)
    assert person.transcript == []


async def test_a_yes_does_not_open_a_private_network_through_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.2.3", 80))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: inside)
    with pytest.raises(ToolRefused, match="no `network` pattern names it"):
        await tool({"network": "prompt"}, ScriptedPerson("y")).call({"url": "http://intranet.example/"})


async def test_no_proxy_of_the_environment_is_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.pages["/"] = response(b"direct")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await get(server)).endswith("direct")


# ---------------------------------------------------------------- pages that take long to convert


HOSTILE = b"<p>" + b" " * 200_000 + b"x</p>"


async def test_a37_a_page_that_converts_slowly_is_shown_unchanged(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_module("markdownify")
    monkeypatch.setattr(fetch, "CONVERTING", 1)
    server.pages["/"] = response(HOSTILE, "text/html")
    async with asyncio.timeout(PATIENCE):
        assert "<p>   " in await get(server)


async def test_a37_the_conversion_of_a_page_can_be_cancelled(server: Server) -> None:
    needs_module("markdownify")
    server.pages["/"] = response(HOSTILE, "text/html")
    asked = asyncio.create_task(get(server))
    workers: list[psutil.Process] = []
    async with asyncio.timeout(PATIENCE):
        while not workers:
            children = psutil.Process().children()
            workers = [one for one in children if any("page_worker" in part for part in _arguments(one))]
            await asyncio.sleep(0.01)
    began = asyncio.get_running_loop().time()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert asyncio.get_running_loop().time() - began < 1
    assert not workers[0].is_running()


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
