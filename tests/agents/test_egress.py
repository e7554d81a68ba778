"""The egress proxy: it connects to allowed hosts only."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from segue.agents.egress.proxy import EgressProxy
from segue.agents.egress.rules import EgressRules, rules_of


class WebServer:
    """A server on loopback that answers every request with the request."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(head)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        await writer.drain()
        writer.close()


@asynccontextmanager
async def web_server() -> AsyncIterator[WebServer]:
    web = WebServer()
    async with await asyncio.start_server(web.answer, "127.0.0.1", 0) as server:
        web.port = server.sockets[0].getsockname()[1]
        yield web


@asynccontextmanager
async def egress(rules: EgressRules) -> AsyncIterator[EgressProxy]:
    proxy = EgressProxy("session", rules)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()


async def send(proxy: EgressProxy, data: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(data.encode())
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.close()
    return answer.decode()


@pytest.mark.parametrize(
    ("hosts", "host", "allowed"),
    [
        (None, "example.com", True),
        ((), "example.com", False),
        (("example.com",), "EXAMPLE.com.", True),
        (("example.com",), "a.example.com", False),
        (("example.com",), "example.com.evil.org", False),
        (("*.example.com",), "a.b.example.com", True),
        (("*.example.com",), "example.com", False),
        (("*.example.com",), "evilexample.com", False),
    ],
)
def test_hosts_are_compared_by_whole_names(
    hosts: tuple[str, ...] | None, host: str, allowed: bool
) -> None:
    assert EgressRules(hosts).allows(host) is allowed


def test_rules_follow_the_networking_of_the_environment() -> None:
    assert not rules_of(None, private=False).limited
    assert not rules_of({"type": "unrestricted"}, private=False).limited
    limited: dict[str, Any] = {"type": "limited", "allowed_hosts": ["a.org"]}
    assert rules_of(limited, private=False) == EgressRules(("a.org",), False, False)
    rules = rules_of(
        {**limited, "allow_package_managers": True, "allow_mcp_servers": True}, private=False
    )
    assert rules.allows("pypi.org") and rules.allows("a.org") and not rules.allows("b.org")
    assert rules.allow_mcp_servers


async def test_requests_to_allowed_hosts_are_forwarded() -> None:
    async with web_server() as web, egress(EgressRules(("localhost",), private=True)) as proxy:
        url = f"http://localhost:{web.port}/a?b"
        answer = await send(
            proxy, f"GET {url} HTTP/1.1\r\nHost: other\r\nProxy-Connection: x\r\n\r\n"
        )
        assert answer.endswith("hi")
        (head,) = web.requests
        assert head.startswith(b"GET /a?b HTTP/1.1\r\n") and b"other" not in head
        tunnel = f"CONNECT localhost:{web.port} HTTP/1.1\r\n\r\nGET /c HTTP/1.1\r\n\r\n"
        answer = await send(proxy, tunnel)
        assert answer.startswith("HTTP/1.1 200 Connection established") and answer.endswith("hi")
        assert proxy.take_refusals() == []


@pytest.mark.parametrize(
    ("rules", "target"),
    [
        (EgressRules(("example.com",), private=True), "127.0.0.1"),
        (EgressRules(("127.0.0.1", "localhost", "0.0.0.0", "[::1]", "10.0.0.1")), "127.0.0.1"),
        (EgressRules(), "localhost"),
        (EgressRules(), "127.1"),
        (EgressRules(), "2130706433"),
        (EgressRules(), "[::1]"),
        (EgressRules(), "[::ffff:127.0.0.1]"),
        (EgressRules(), "0.0.0.0"),
        (EgressRules(), "169.254.169.254"),
        (EgressRules(), "10.0.0.1"),
    ],
)
async def test_other_hosts_and_private_addresses_are_refused(
    rules: EgressRules, target: str
) -> None:
    async with web_server() as web, egress(rules) as proxy:
        for request in (f"CONNECT {target}:{web.port}", f"GET http://{target}:{web.port}/"):
            assert (await send(proxy, f"{request} HTTP/1.1\r\n\r\n")).startswith("HTTP/1.1 403 ")
        (refusal,) = proxy.take_refusals()
        assert target.strip("[]") in refusal and proxy.take_refusals() == []
        assert web.requests == []


async def test_checked_address_is_the_one_that_is_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with web_server() as web, egress(EgressRules(("a.example",), private=True)) as proxy:
        answers = ["127.0.0.1", "169.254.169.254"]  # a name that means another address each time

        async def resolve(host: str, port: int, **_: Any) -> Any:
            address = answers.pop(0) if host == "a.example" else host
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve, raising=False)
        answer = await send(proxy, f"GET http://a.example:{web.port}/ HTTP/1.1\r\n\r\n")
        assert answer.endswith("hi") and len(answers) == 1


@pytest.mark.parametrize(
    "request_line", ["GET / HTTP/1.1", "nonsense", "CONNECT a HTTP/1.1", "GET https://a/ HTTP/1.1"]
)
async def test_other_requests_are_refused(request_line: str) -> None:
    async with egress(EgressRules()) as proxy:
        assert (await send(proxy, f"{request_line}\r\n\r\n")).startswith("HTTP/1.1 400 ")
