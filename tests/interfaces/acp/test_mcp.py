"""MCP servers that a client names: connected, called, reported when they fail, and released."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.interfaces.acp.harness import Client
from tests.interfaces.acp.testbed import House

PROGRAM = str(Path(__file__).parent / "programs" / "adder.py")


def stdio(version: int, name: str = "adder", **more: Any) -> dict[str, Any]:
    server = {"name": name, "command": sys.executable, "args": [PROGRAM], "env": [], **more}
    return server if version == 1 else {"type": "stdio", **server}


@asynccontextmanager
async def over_http() -> AsyncIterator[str]:
    """The address of a server on this machine."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, PROGRAM, "http", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.wait()


async def call(client: Client, id: str, tool: str, arguments: str = "") -> tuple[str, str]:
    """What the demo agent gets from a tool: a status and a text."""
    before = len(client.log)
    await client.run(id, f"/mcp adder {tool} {arguments}")
    result = [u.body for u in client.updates(before) if u.kind == "tool_call_update"][-1]
    return result["status"], result["content"][0]["content"]["text"]


async def test_a_tool_of_a_stdio_server_is_called(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new(house.directory, mcpServers=[stdio(version)])
        assert await call(client, id, "add", '{"a": 2, "b": 40}') == ("completed", "42")
        assert await call(client, id, "place") == ("completed", str(house.directory))
        status, text = await call(client, id, "fail")
        assert status == "failed" and "fail" in text
        status, text = await call(client, id, "nonsense")
        assert status == "failed"
        # Another session has nothing of it.
        other = await client.new(house.directory)
        status, text = await call(client, other, "add", '{"a": 2, "b": 40}')
        assert status == "failed" and "no MCP server named 'adder'" in text


async def test_a_tool_of_an_http_server_is_called_with_the_client_s_headers(
    house: House, version: int
) -> None:
    async with over_http() as url, house.inside(version) as client:
        headers = [{"name": "x-key", "value": "only-for-you"}]
        server = {"type": "http", "name": "adder", "url": url, "headers": headers}
        id = await client.new("/", mcpServers=[server])
        assert await call(client, id, "add", '{"a": 2, "b": 40}') == ("completed", "42")
        assert await call(client, id, "secret") == ("completed", "only-for-you")


async def test_a_server_is_released_with_its_session_and_not_restored(house: House) -> None:
    async with house.inside(2) as client:
        id = await client.new("/", mcpServers=[stdio(2)])
        _, pid = await call(client, id, "process")
        assert psutil.pid_exists(int(pid))
        await client.ask("session/close", {"sessionId": id})
        assert not psutil.pid_exists(int(pid))
        await client.open("resume", id, "/")
        status, text = await call(client, id, "add", "{}")
        assert status == "failed" and "no MCP server" in text


async def test_opening_anew_replaces_the_servers(house: House) -> None:
    async with house.inside(1) as client:
        id = await client.new("/", mcpServers=[stdio(1)])
        _, before = await call(client, id, "process")
        await client.open("load", id, "/", mcpServers=[stdio(1)])
        _, after = await call(client, id, "process")
        assert before != after and not psutil.pid_exists(int(before))
        fork = (await client.open("fork", id, "/"))["sessionId"]
        status, _ = await call(client, fork, "add", "{}")
        assert status == "failed"


async def test_a_server_that_fails_is_reported_while_the_session_opens(
    house: House, version: int
) -> None:
    broken = [
        stdio(version, "absent", command="/no/such/program", args=[]),
        stdio(version, "silent", args=["-c", "pass"]),
        {"type": "http", "name": "closed", "url": "http://127.0.0.1:9/mcp", "headers": []},
    ]
    wanted = {"clientCapabilities": {"session": {"notices": {}}}} if version == 1 else {}
    async with house.inside(version, greet=False) as client:
        await client.initialize(**wanted)
        id = await client.new("/", mcpServers=[*broken, stdio(version)])
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
async def test_a_server_that_is_described_wrongly_keeps_the_session_from_opening(
    house: House, version: int, servers: Any
) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        for method in ("new", "load", "resume", "fork"):
            params = {"sessionId": id, "cwd": "/", "mcpServers": servers}
            assert (await client.refusal(f"session/{method}", params)).code == -32602
        assert len((await client.ask("session/list"))["sessions"]) == 1


async def test_secrets_are_used_and_never_kept_or_shown(house: House) -> None:
    secret = "hunter2-and-more"
    async with house.child(2) as (client, _):
        env = [{"name": "SECRET", "value": secret}]
        id = await client.new("/", mcpServers=[stdio(2, env=env)])
        status, text = await call(client, id, "add", '{"a": 1, "b": 1}')
        assert (status, text) == ("completed", "2")
        listed = str(await client.ask("session/list"))
        replayed = str(await client.replay(id, "/"))
        assert secret not in listed + replayed + str(client.log)
    for path in house.data.rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes()


async def test_no_server_is_left_when_the_client_goes_away(house: House) -> None:
    async with house.child(1) as (client, _):
        id = await client.new("/", mcpServers=[stdio(1)])
        _, pid = await call(client, id, "process")
        await client.begin(id, "/say begun\n/wait 60")
    assert not psutil.pid_exists(int(pid))


async def test_a_session_that_is_given_up_while_it_connects_is_not_made(house: House) -> None:
    async with house.inside(2) as client:
        server = stdio(2, args=["-c", "import time; time.sleep(60)"])
        request = await client.post("session/new", {"cwd": "/", "mcpServers": [server]})
        await asyncio.sleep(0.2)
        await client.tell("$/cancel_request", {"requestId": request})
        with pytest.raises(Exception, match="-32800"):
            await client.answer(request)
        assert await client.ask("session/list") == {"sessions": []}
        children = psutil.Process().children(recursive=True)
        assert not [child for child in children if "time.sleep(60)" in " ".join(child.cmdline())]
