"""web_fetch and web_search against servers on loopback addresses, and the guard before them."""

import asyncio
import gzip
import json
import socket
from collections.abc import Callable
from typing import Any, Self

import pytest

from segue.agents.tools import web, websearch

from .place import Place, told

Handler = Callable[[str], tuple[int, dict[str, str], bytes]]


class Site:
    """A web site that says what a function of the path says."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.asked: list[str] = []
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
        self.asked.append(path)
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
    ],
)
async def test_private_addresses_are_refused_in_every_spelling(place: Place, address: str) -> None:
    async with Site(lambda _: page("SECRET")) as site:
        result = await place.use("web_fetch", url=f"http://{address}:{site.port}/")
        assert result.status == "failed" and "public internet" in told(result)
        assert site.asked == []


@pytest.mark.parametrize(
    ("address", "fine"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("64:ff9b::808:808", True),
        ("192.0.2.1", False),
        ("255.255.255.255", False),
        ("ff02::1", False),
        ("fe80::1%eth0", False),
    ],
)
def test_what_is_public(address: str, fine: bool) -> None:
    assert web.public(address) is fine


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.org/", "nonsense", "http://"])
async def test_only_the_web_is_fetched(place: Place, url: str) -> None:
    assert (await place.use("web_fetch", url=url)).status == "failed"


async def test_a_redirect_is_checked_like_any_address(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "public", lambda address: address == "127.0.0.1")
    async with Site(lambda _: page("x")) as site:

        def away(_: str) -> tuple[int, dict[str, str], bytes]:
            return 302, {"location": f"http://127.0.0.2:{site.port}/"}, b""

        async with Site(away) as first:
            result = await place.use("web_fetch", url=first.url)
        assert first.asked == ["/"] and site.asked == []
    assert result.status == "failed" and "public internet" in told(result)


async def test_a_name_is_resolved_once_and_that_address_used(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that says something else the second time gets no second question."""
    real, asked = socket.getaddrinfo, []

    def resolve(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host == "rebind.test":
            asked.append(host)
            host = "127.0.0.1" if len(asked) == 1 else "127.0.0.2"
        return real(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(web, "public", lambda address: address == "127.0.0.1")
    async with Site(lambda _: page("fine")) as site:
        result = await place.use("web_fetch", url=f"http://rebind.test:{site.port}/")
    assert told(result).endswith("fine") and asked == ["rebind.test"]
    assert f"rebind.test:{site.port}" in site.heads[0]


async def test_a_name_with_one_private_address_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(*_: Any, **__: Any) -> Any:
        return [(2, 1, 6, "", (address, 80)) for address in ("8.8.8.8", "10.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert "public internet" in told(await place.use("web_fetch", url="http://both.test/"))


async def fetched(place: Place, handler: Handler) -> str:
    async with Site(handler) as site:
        result = await place.use("web_fetch", place.context(config=OPEN), url=f"{site.url}/a")
        return f"{result.status}: {told(result)}"


async def test_a_page_is_shown_as_its_words_and_links(place: Place) -> None:
    html = (
        "<html><head><title>T</title><style>x{}</style></head><body><h1>Top</h1>"
        "<script>alert(1)</script><p>One <b>two</b> &amp; three</p>"
        "<ul><li><a href='/x'>Link</a></li></ul></body></html>"
    )
    shown = await fetched(place, lambda _: page(html))
    assert shown.startswith("completed: http://127.0.0.1")
    assert shown.split("\n\n", 1)[1] == "# Top\nOne two & three\n- Link (/x)"


async def test_redirects_are_followed_up_to_a_few(place: Place) -> None:
    def twice(path: str) -> tuple[int, dict[str, str], bytes]:
        return page("there") if path == "/c" else (302, {"location": chr(ord(path[1]) + 1)}, b"")

    assert (await fetched(place, twice)).endswith("there")
    assert "redirects" in await fetched(place, lambda _: (302, {"location": "/a"}, b""))


async def test_what_is_too_large_is_cut_and_what_is_no_text_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "MAX_BYTES", 100_000)
    plain = {"content-type": "text/plain"}
    assert "cut here" in await fetched(place, lambda _: (200, plain, b"x" * 200_000))
    bomb = gzip.compress(b"x" * 20_000_000)
    packed = {**plain, "content-encoding": "gzip"}
    assert "cut here" in await fetched(place, lambda _: (200, packed, bomb))
    image = {"content-type": "image/png"}
    assert "not text" in await fetched(place, lambda _: (200, image, b"x"))


async def test_errors_and_odd_replies_are_told(place: Place) -> None:
    html = {"content-type": "text/html; charset=nonsense"}
    assert (await fetched(place, lambda _: (404, html, b"gone"))).startswith("failed: HTTP 404")


async def test_a_server_that_does_not_answer_is_given_up(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "SECONDS", 0.2)
    gone = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            pass
        writer.close()
        gone.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    result = await place.use("web_fetch", place.context(config=OPEN), url=url)
    await gone.wait()
    server.close()
    assert "took longer" in told(result)


# Searching.


async def test_a_search_goes_to_the_configured_provider(place: Place) -> None:
    found = {"results": [{"title": "A", "url": "http://a", "content": "about a"}]}
    answer = (200, {"content-type": "application/json"}, json.dumps(found).encode())
    async with Site(lambda _: answer) as site:
        context = place.context(config={"web.search": f"searxng:{site.url}"})
        result = await place.use("web_search", context, query="what is a")
    assert told(result) == "A\nhttp://a\nabout a"
    assert site.asked == ["/search?q=what+is+a&format=json"]


@pytest.mark.parametrize(
    ("name", "reply"),
    [
        ("brave", {"web": {"results": [{"title": "A", "url": "u", "description": "d"}]}}),
        ("tavily", {"results": [{"title": "A", "url": "u", "content": "d"}, "odd"]}),
    ],
)
async def test_the_hosted_providers_get_their_key(name: str, reply: Any) -> None:
    answer = (200, {"content-type": "application/json"}, json.dumps(reply).encode())
    key = websearch.PROVIDERS[name].key or ""
    async with Site(lambda _: answer) as site:
        found = await websearch.search(f"{name}:{site.url}/", "q", {key: "the-key"})
        with pytest.raises(websearch.ToolError, match=key):
            await websearch.search(f"{name}:{site.url}/", "q", {})
    assert found == [websearch.Found("A", "u", "d")]
    assert "the-key" in site.heads[0]


@pytest.mark.parametrize("setting", ["", "unheard-of", "searxng"])
async def test_no_provider_is_no_search(place: Place, setting: str) -> None:
    context = place.context(config={"web.search": setting})
    assert (await place.use("web_search", context, query="x")).status == "failed"
