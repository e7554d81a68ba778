"""Tests of web_fetch and web_search against loopback servers, and of the address check."""

import asyncio
import gzip
import json
import socket
import time
from collections.abc import Callable
from typing import Any, Self

import pytest

from segue.agents.egress import addresses
from segue.agents.tools import web, websearch
from segue.agents.tools.page_text import plain_text
from segue.untrusted import MAX_ASYNC_CALLS
from tests.busy_parsers import busy_parsers

from .session_directory import SessionDirectory, text_of

Handler = Callable[[str], tuple[int, dict[str, str], bytes]]


class Site:
    """A web server whose responses come from a function of the path."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.paths: list[str] = []
        self.heads: list[str] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        path = head.split()[1]
        self.paths.append(path)
        status, headers, body = self._handler(path)
        lines = [f"HTTP/1.1 {status} X", "connection: close", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        try:
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            await writer.drain()
        except ConnectionError:
            pass
        writer.close()


def page(body: str) -> tuple[int, dict[str, str], bytes]:
    return 200, {"content-type": "text/html; charset=utf-8"}, body.encode()


OPEN = {"web.private": True}


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "2130706433"),
        *("10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "169.254.169.254"),
        *("[fd00::1]", "[fe80::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "224.0.0.1"),
        *("[fec0::1]", "[::127.0.0.1]", "[::ffff:0:127.0.0.1]"),
    ],
)
async def test_private_addresses_are_refused_in_every_notation(
    directory: SessionDirectory, address: str
) -> None:
    async with Site(lambda _: page("SECRET")) as site:
        result = await directory.run("web_fetch", url=f"http://{address}:{site.port}/")
        assert result.status == "failed" and "public internet" in text_of(result)
        assert site.paths == []


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("64:ff9b::808:808", True),
        ("::ffff:8.8.8.8", True),
        ("2002:808:808::1", True),
        ("192.0.2.1", False),
        ("192.0.0.8", False),
        ("192.88.99.1", False),
        ("0.0.0.1", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("240.0.0.1", False),
        ("255.255.255.255", False),
        ("ff02::1", False),
        ("ff0e::1", False),
        ("fe80::1%eth0", False),
        ("2606:4700::1111%eth0", False),
        ("fec0::1", False),  # site-local
        ("feff::1", False),
        ("fc00::1", False),
        ("::", False),
        ("::127.0.0.1", False),  # IPv4-compatible
        ("::10.0.0.1", False),
        ("::8.8.8.8", False),
        ("::ffff:10.0.0.1", False),  # IPv4-mapped
        ("::ffff:0:127.0.0.1", False),  # IPv4-translated
        ("::ffff:0:8.8.8.8", False),
        ("64:ff9b::10.0.0.1", False),  # NAT64
        ("64:ff9b:1::8.8.8.8", False),  # NAT64 inside of a network
        ("2002:a00:1::1", False),  # 6to4
        ("2001:0:808:808::f5ff:fffe", False),  # Teredo of 10.0.0.1
        ("2001:db8::1", False),
        ("3fff::1", False),
        ("100::1", False),
        ("5f00::1", False),
        ("4000::1", False),
    ],
)
def test_is_public_recognises_public_addresses(address: str, expected: bool) -> None:
    assert addresses.is_public(address) is expected


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.org/", "nonsense", "http://"])
async def test_only_http_urls_are_fetched(directory: SessionDirectory, url: str) -> None:
    assert (await directory.run("web_fetch", url=url)).status == "failed"


async def test_a_redirect_to_a_private_address_is_refused(
    directory: SessionDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "is_public", lambda address: address == "127.0.0.1")
    async with Site(lambda _: page("x")) as site:

        def redirect(_: str) -> tuple[int, dict[str, str], bytes]:
            return 302, {"location": f"http://127.0.0.2:{site.port}/"}, b""

        async with Site(redirect) as first:
            result = await directory.run("web_fetch", url=first.url)
        assert first.paths == ["/"] and site.paths == []
    assert result.status == "failed" and "public internet" in text_of(result)


async def test_a_host_name_is_resolved_once(
    directory: SessionDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: the second lookup would return another address."""
    real_getaddrinfo, lookups = socket.getaddrinfo, []

    def resolve(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host == "rebind.test":
            lookups.append(host)
            host = "127.0.0.1" if len(lookups) == 1 else "127.0.0.2"
        return real_getaddrinfo(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(addresses, "is_public", lambda address: address == "127.0.0.1")
    async with Site(lambda _: page("fine")) as site:
        result = await directory.run("web_fetch", url=f"http://rebind.test:{site.port}/")
    assert text_of(result).endswith("fine") and lookups == ["rebind.test"]
    assert f"rebind.test:{site.port}" in site.heads[0]


async def test_a_host_name_with_one_private_address_is_refused(
    directory: SessionDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(*_: Any, **__: Any) -> Any:
        return [(2, 1, 6, "", (address, 80)) for address in ("8.8.8.8", "10.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert "public internet" in text_of(await directory.run("web_fetch", url="http://both.test/"))


async def fetch(directory: SessionDirectory, handler: Handler) -> str:
    async with Site(handler) as site:
        result = await directory.run(
            "web_fetch", directory.context(config=OPEN), url=f"{site.url}/a"
        )
        return f"{result.status}: {text_of(result)}"


async def test_a_page_is_converted_to_text_with_links(directory: SessionDirectory) -> None:
    html = (
        "<html><head><title>T</title><style>x{}</style></head><body><h1>Top</h1>"
        "<script>alert(1)</script><p>One <b>two</b> &amp; three</p>"
        "<ul><li><a href='/x'>Link</a></li></ul></body></html>"
    )
    text = await fetch(directory, lambda _: page(html))
    assert text.startswith("completed: http://127.0.0.1")
    assert text.split("\n\n", 1)[1] == "# Top\nOne two & three\n- Link (/x)"


async def test_a_limited_number_of_redirects_is_followed(directory: SessionDirectory) -> None:
    def redirect_twice(path: str) -> tuple[int, dict[str, str], bytes]:
        return page("there") if path == "/c" else (302, {"location": chr(ord(path[1]) + 1)}, b"")

    assert (await fetch(directory, redirect_twice)).endswith("there")
    assert "redirects" in await fetch(directory, lambda _: (302, {"location": "/a"}, b""))


async def test_a_large_page_is_truncated_and_a_binary_one_refused(
    directory: SessionDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "MAX_PAGE_BYTES", 100_000)
    plain = {"content-type": "text/plain"}
    assert "truncated" in await fetch(directory, lambda _: (200, plain, b"x" * 200_000))
    bomb = gzip.compress(b"x" * 20_000_000)
    packed = {**plain, "content-encoding": "gzip"}
    assert "truncated" in await fetch(directory, lambda _: (200, packed, bomb))
    image = {"content-type": "image/png"}
    assert "not text" in await fetch(directory, lambda _: (200, image, b"x"))


@pytest.mark.parametrize("hostile", ["<a ", "<!--", "<a b='", "<p>", "&#", "<script>", "<a '>"])
async def test_a_hostile_page_does_not_occupy_the_event_loop(
    directory: SessionDirectory, hostile: str
) -> None:
    html = f"<p>begins</p>{hostile * (40_000 // len(hostile))}"
    before = time.thread_time()
    text = await fetch(directory, lambda _: page(html))
    assert "begins" in text
    assert time.thread_time() - before < 1  # 14 s of `<a ` with the standard library's parser


async def test_pages_wait_in_threads_of_their_own_and_further_ones_are_refused(
    directory: SessionDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "TIMEOUT_SECONDS", 600)  # a busy machine may need more than 30 s
    async with Site(lambda _: page("there")) as site:
        context = directory.context(config=OPEN)
        with busy_parsers(monkeypatch):
            fetches = [
                asyncio.ensure_future(directory.run("web_fetch", context, url=f"{site.url}/a"))
                for _ in range(MAX_ASYNC_CALLS + 1)
            ]
            async with asyncio.timeout(300):
                await asyncio.wait(fetches, return_when=asyncio.FIRST_COMPLETED)
                assert await asyncio.to_thread(len, "free") == 4
        texts = [text_of(result) for result in await asyncio.gather(*fetches)]
    assert sum("try again later" in text for text in texts) == 1
    assert sum(text.endswith("there") for text in texts) == MAX_ASYNC_CALLS


def test_a_page_of_a_megabyte_is_read_in_linear_time() -> None:
    for hostile in ("<a ", '<a b="', "</", "<!", "<a =", "<style></style", "&a;"):
        plain_text(hostile * (1_000_000 // len(hostile)))
        plain_text(hostile * (1_000_000 // len(hostile)) + ">")


async def test_a_page_that_is_compressed_twice_is_refused(directory: SessionDirectory) -> None:
    bomb = gzip.compress(gzip.compress(bytes(1_000_000)))
    for encoding in ("gzip, gzip", "br", "zstd"):
        headers = {"content-type": "text/plain", "content-encoding": encoding}
        answer = await fetch(directory, lambda _, headers=headers: (200, headers, bomb))
        assert answer.startswith("failed") and "unsupported encoding" in answer


@pytest.mark.parametrize("charset", ["punycode", "zlib_codec", "undefined", "unicode_escape"])
async def test_a_page_with_an_odd_charset_is_read(
    directory: SessionDirectory, charset: str
) -> None:
    headers = {"content-type": f"text/plain; charset={charset}"}
    answer = await fetch(directory, lambda _: (200, headers, b"begins-" + b"b" * 5_000))
    assert answer.startswith("completed")


async def test_an_error_page_with_an_unknown_charset_is_reported(
    directory: SessionDirectory,
) -> None:
    html = {"content-type": "text/html; charset=nonsense"}
    assert (await fetch(directory, lambda _: (404, html, b"gone"))).startswith("failed: HTTP 404")


async def test_fetching_from_a_silent_server_times_out(
    directory: SessionDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "TIMEOUT_SECONDS", 0.2)
    disconnected = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            pass
        writer.close()
        disconnected.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    result = await directory.run("web_fetch", directory.context(config=OPEN), url=url)
    await disconnected.wait()
    server.close()
    assert "took longer" in text_of(result)


# Searching.


async def test_a_search_goes_to_the_configured_provider(directory: SessionDirectory) -> None:
    results = {"results": [{"title": "A", "url": "http://a", "content": "about a"}]}
    answer = (200, {"content-type": "application/json"}, json.dumps(results).encode())
    async with Site(lambda _: answer) as site:
        context = directory.context(config={"web.search": f"searxng:{site.url}"})
        result = await directory.run("web_search", context, query="what is a")
    assert text_of(result) == "A\nhttp://a\nabout a"
    assert site.paths == ["/search?q=what+is+a&format=json"]


@pytest.mark.parametrize(
    ("name", "reply"),
    [
        ("brave", {"web": {"results": [{"title": "A", "url": "u", "description": "d"}]}}),
        ("tavily", {"results": [{"title": "A", "url": "u", "content": "d"}, "odd"]}),
    ],
)
async def test_hosted_providers_receive_their_api_key(name: str, reply: Any) -> None:
    answer = (200, {"content-type": "application/json"}, json.dumps(reply).encode())
    key = websearch.PROVIDERS[name].key_variable or ""
    async with Site(lambda _: answer) as site:
        results = await websearch.search(f"{name}:{site.url}/", "q", {key: "the-key"})
        with pytest.raises(websearch.ToolError, match=key):
            await websearch.search(f"{name}:{site.url}/", "q", {})
    assert results == [websearch.SearchResult("A", "u", "d")]
    assert "the-key" in site.heads[0]


@pytest.mark.parametrize("setting", ["", "unknown", "searxng"])
async def test_search_fails_without_a_valid_provider(
    directory: SessionDirectory, setting: str
) -> None:
    context = directory.context(config={"web.search": setting})
    assert (await directory.run("web_search", context, query="x")).status == "failed"
