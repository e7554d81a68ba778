"""MCP servers of a client: connected, called, reported when they fail, and stopped."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from segue.agents import mcp
from segue.hub.turns import agents
from tests import small_mcp_server
from tests.interfaces.acp.harness import SECONDS, Client
from tests.interfaces.acp.testbed import AcpTestbed

SDK_PROGRAM = str(Path(__file__).parent / "programs" / "adder.py")


def stdio(
    version: int, name: str = "adder", program: str = small_mcp_server.PROGRAM, **more: Any
) -> dict[str, Any]:
    server = {"name": name, "command": sys.executable, "args": [program], "env": [], **more}
    return server if version == 1 else {"type": "stdio", **server}


@asynccontextmanager
async def http_server() -> AsyncIterator[str]:
    """Start an MCP server over HTTP, and return its URL."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, SDK_PROGRAM, "http", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.wait()


async def call(client: Client, id: str, tool: str, arguments: str = "") -> tuple[str, str]:
    """Have the demo agent call a tool, and return the status and text of the result."""
    before = len(client.log)
    await client.run_prompt(id, f"/mcp adder {tool} {arguments}")
    result = [u.body for u in client.updates(before) if u.kind == "tool_call_update"][-1]
    return result["status"], result["content"][0]["content"]["text"]


async def test_agent_calls_a_tool_of_a_stdio_server(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        servers = [stdio(version, program=SDK_PROGRAM)]
        id = await client.new_session(testbed.directory, mcpServers=servers)
        assert await call(client, id, "add", '{"a": 2, "b": 40}') == ("completed", "42")
        assert await call(client, id, "place") == ("completed", str(testbed.directory))
        status, text = await call(client, id, "fail")
        assert status == "failed" and "fail" in text
        status, text = await call(client, id, "nonsense")
        assert status == "failed"
        # Another session does not get the server.
        other = await client.new_session(testbed.directory)
        status, text = await call(client, other, "add", '{"a": 2, "b": 40}')
        assert status == "failed" and "no MCP server named 'adder'" in text


async def test_agent_calls_a_tool_of_an_http_server_with_headers(
    testbed: AcpTestbed, version: int
) -> None:
    async with http_server() as url, testbed.connect_in_process(version) as client:
        headers = [{"name": "x-key", "value": "only-for-you"}]
        server = {"type": "http", "name": "adder", "url": url, "headers": headers}
        id = await client.new_session("/", mcpServers=[server])
        assert await call(client, id, "add", '{"a": 2, "b": 40}') == ("completed", "42")
        assert await call(client, id, "secret") == ("completed", "only-for-you")


async def test_close_stops_the_mcp_servers_of_a_session(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        id = await client.new_session("/", mcpServers=[stdio(2)])
        _, pid = await call(client, id, "process")
        assert psutil.pid_exists(int(pid))
        await client.request("session/close", {"sessionId": id})
        assert not psutil.pid_exists(int(pid))
        await client.open_session("resume", id, "/")
        status, text = await call(client, id, "add", "{}")
        assert status == "failed" and "no MCP server" in text


async def test_reopening_replaces_the_mcp_servers(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        id = await client.new_session("/", mcpServers=[stdio(1)])
        _, before = await call(client, id, "process")
        await client.open_session("load", id, "/", mcpServers=[stdio(1)])
        _, after = await call(client, id, "process")
        assert before != after and not psutil.pid_exists(int(before))
        fork = (await client.open_session("fork", id, "/"))["sessionId"]
        status, _ = await call(client, fork, "add", "{}")
        assert status == "failed"


async def test_failed_mcp_server_is_reported_and_the_session_opens(
    testbed: AcpTestbed, version: int
) -> None:
    broken = [
        stdio(version, "absent", command="/no/such/program", args=[]),
        stdio(version, "silent", args=["-c", "pass"]),
        {"type": "http", "name": "closed", "url": "http://127.0.0.1:9/mcp", "headers": []},
    ]
    capabilities = {"clientCapabilities": {"session": {"notices": {}}}} if version == 1 else {}
    async with testbed.connect_in_process(version, initialize=False) as client:
        await client.initialize(**capabilities)
        id = await client.new_session("/", mcpServers=[*broken, stdio(version)])
        await client.wait_until(lambda: client.kinds().count("notice") >= len(broken))
        notices = [update.body for update in client.updates() if update.kind == "notice"]
        assert {notice["severity"] for notice in notices} == {"warning"}
        for name in ("absent", "silent", "closed"):
            assert sum(name in notice["title"] for notice in notices) == 1
        assert await call(client, id, "add", '{"a": 1, "b": 1}') == ("completed", "2")


@pytest.mark.parametrize(
    ("version", "servers"),
    [
        (1, [{"type": "sse", "name": "a", "url": "http://x", "headers": []}]),
        (2, [{"type": "sse", "name": "a", "url": "http://x"}]),
        (2, [{"type": "_custom", "name": "a"}]),
        (2, [{"name": "a", "command": "/bin/true"}]),
        (1, [{"type": "http", "name": "a"}]),
        (1, [{"name": "a", "command": "relative", "args": [], "env": []}]),
        (1, [{"name": "a", "command": "/bin/true", "args": "x", "env": []}]),
        (1, [{"command": "/bin/true", "args": [], "env": []}]),
        (1, [{"type": 7, "name": "a"}]),
        (1, [stdio(1), stdio(1)]),
        (2, [stdio(2), {"type": "http", "name": "adder", "url": "http://x"}]),
    ],
    ids=str,
)
async def test_invalid_mcp_server_is_rejected(
    testbed: AcpTestbed, version: int, servers: Any
) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        for method in ("new", "load", "resume", "fork"):
            params = {"sessionId": id, "cwd": "/", "mcpServers": servers}
            assert (await client.request_error(f"session/{method}", params)).code == -32602
        assert len((await client.request("session/list"))["sessions"]) == 1


async def test_secrets_of_mcp_servers_are_not_stored_or_shown(testbed: AcpTestbed) -> None:
    secret = "hunter2-and-more"
    async with testbed.connect_in_process(2) as client:
        env = [{"name": "SECRET", "value": secret}]
        id = await client.new_session("/", mcpServers=[stdio(2, env=env)])
        status, text = await call(client, id, "add", '{"a": 1, "b": 1}')
        assert (status, text) == ("completed", "2")
        listed = str(await client.request("session/list"))
        replayed = str(await client.replay(id, "/"))
        assert secret not in listed + replayed + str(client.log)
    for path in testbed.data.rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes()


async def test_disconnect_stops_the_mcp_servers(testbed: AcpTestbed) -> None:
    async with testbed.connect_child(1) as (client, _):
        id = await client.new_session("/", mcpServers=[stdio(1)])
        _, pid = await call(client, id, "process")
        await client.start_prompt(id, "/say begun\n/wait 60")
    assert not psutil.pid_exists(int(pid))


async def test_cancelled_new_request_creates_no_session(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        server = stdio(2, args=["-c", "import time; time.sleep(60)"])
        request = await client.send_request("session/new", {"cwd": "/", "mcpServers": [server]})
        async with asyncio.timeout(SECONDS):
            while not sleeping_servers():
                await asyncio.sleep(0.02)
        await client.notify("$/cancel_request", {"requestId": request})
        with pytest.raises(Exception, match="-32800"):
            await client.wait_response(request)
        assert await client.request("session/list") == {"sessions": []}
        assert not sleeping_servers()


def sleeping_servers() -> list[psutil.Process]:
    """Return the servers that were started and do not answer."""
    children = psutil.Process().children()
    return [child for child in children if "time.sleep(60)" in " ".join(child.cmdline())]


async def test_hung_mcp_server_does_not_delay_the_session_and_is_reported_later(
    testbed: AcpTestbed, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "MCP_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(mcp, "CONNECT_SECONDS", 1.5)
    hung = stdio(version, "hung", args=["-c", "import time; time.sleep(600)"])
    capabilities = {"clientCapabilities": {"session": {"notices": {}}}} if version == 1 else {}
    async with testbed.connect_in_process(version, initialize=False) as client:
        await client.initialize(**capabilities)
        id = await client.new_session("/", mcpServers=[hung, stdio(version)])
        assert "notice" not in client.kinds()
        # A turn waits for the server that it uses, and not for the other.
        assert await call(client, id, "add", '{"a": 1, "b": 1}') == ("completed", "2")
        notice = await client.wait_for_update(lambda update: update.kind == "notice")
        assert "hung" in notice.body["title"]
        assert notice.body["description"].startswith("did not answer within")
