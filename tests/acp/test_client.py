"""The ACP client, with segue's own agent and with faulty ones."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from segue.acp.client import AcpClient, UnsupportedCapability
from segue.acp.rpc import RpcError
from tests.acp.memory_stream import StreamEnd, connect_ends


def own_command(directory: Path) -> list[str]:
    return [sys.executable, "-m", "segue", "acp", "--data-dir", str(directory)]


async def test_a_session_s_whole_life_with_segue_s_own_agent(tmp_path: Path) -> None:
    updates: list[dict[str, Any]] = []

    async def record(session: str, update: dict[str, Any]) -> None:
        updates.append(update)

    async def allow(request: dict[str, Any]) -> str | None:
        return "allow"

    async with AcpClient.start(
        own_command(tmp_path), on_update=record, on_permission=allow
    ) as client:
        assert (client.version, client.agent["name"]) == (2, "segue")
        assert (await client.list()).sessions == []
        id = await client.new("/")
        await client.prompt(id, [{"type": "text", "text": "/ask May I?"}])
        while not any(update.get("stopReason") for update in updates):
            await asyncio.sleep(0.01)
        results = [u["status"] for u in updates if u["sessionUpdate"] == "tool_call_update"]
        assert results == ["in_progress", "completed"]
        assert await client.set_title(id, " Named ") == "Named"
        assert await client.status(id) == "open"
        await client.close(id)
        assert await client.status(id) == "saved"
        updates.clear()
        await client.load(id, "/")
        assert updates[0]["sessionUpdate"] == "user_message"
        fork = await client.fork(id, "/")
        await client.archive(fork)
        rows = {row.session_id: row.title async for row in client.sessions(cwd="/")}
        assert rows == {id: "Named"}
        assert [row.session_id async for row in client.sessions(archived="only")] == [fork]
        await client.unarchive(fork)
        await client.resume(fork, "/")
        await client.cancel(fork)
        await client.delete(fork)
        assert len((await client.list()).sessions) == 1


async def test_sessions_yields_the_rows_of_every_page(tmp_path: Path) -> None:
    async with AcpClient.start(own_command(tmp_path)) as client:
        created = {await client.new("/") for _ in range(60)}
        assert {row.session_id async for row in client.sessions()} == created


@asynccontextmanager
async def connect(**handlers: Any) -> AsyncIterator[tuple[AcpClient, StreamEnd]]:
    """Yield a client, and the agent's end for the test to play."""
    own_end, agent = connect_ends()
    client = AcpClient(own_end, own_end, **handlers)
    serving = asyncio.create_task(client.serve())
    try:
        yield client, agent
    finally:
        await agent.close()
        await serving


async def initialize(client: AcpClient, agent: StreamEnd, result: Any) -> None:
    initializing = asyncio.create_task(client.initialize())
    await agent.send(id=(await agent.receive())["id"], result=result)
    await initializing


async def answer(agent: StreamEnd, request: Any, result: Any) -> Any:
    task = asyncio.ensure_future(request)
    await agent.send(id=(await agent.receive())["id"], result=result)
    return await task


async def test_an_agent_that_answers_2_in_the_shape_of_version_1_is_version_1() -> None:
    async with connect() as (client, agent):
        sessions = {"list": {}, "delete": None}
        capabilities = {"loadSession": True, "sessionCapabilities": sessions}
        result = {"protocolVersion": 2, "agentCapabilities": capabilities}
        await initialize(client, agent, result)
        assert client.version == 1
        names = ("load", "list", "delete", "resume")
        assert [client.supports(name) for name in names] == [True, True, False, False]


async def test_an_agent_that_refuses_version_2_is_asked_for_version_1() -> None:
    async with connect() as (client, agent):
        initializing = asyncio.create_task(client.initialize())
        first = await agent.receive()
        await agent.send(id=first["id"], error={"code": -32602, "message": "what?"})
        second = await agent.receive()
        assert [request["params"]["protocolVersion"] for request in (first, second)] == [2, 1]
        await agent.send(id=second["id"], result={"protocolVersion": 1})
        await initializing
        assert client.version == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.list(),
        lambda client: client.load("x", "/"),
        lambda client: client.resume("x", "/"),
        lambda client: client.fork("x", "/"),
        lambda client: client.close("x"),
        lambda client: client.delete("x"),
        lambda client: client.set_title("x", "y"),
        lambda client: client.archive("x"),
        lambda client: client.unarchive("x"),
        lambda client: client.status("x"),
    ],
)
async def test_a_capability_that_is_not_advertised_is_not_used(call: Any) -> None:
    async with connect() as (client, agent):
        await initialize(client, agent, {"protocolVersion": 1, "agentCapabilities": {}})
        with pytest.raises(UnsupportedCapability):
            await call(client)
        assert agent.has_received_all()


async def test_a_version_2_agent_has_the_baseline_capabilities() -> None:
    async with connect() as (client, agent):
        result = {"protocolVersion": 2, "info": {"name": "x"}, "capabilities": {"session": {}}}
        await initialize(client, agent, result)
        assert all(client.supports(name) for name in ("list", "resume", "close"))
        assert not any(client.supports(name) for name in ("delete", "fork", "load"))
        # Without load, the client resumes and replays from the start.
        loading = asyncio.create_task(client.load("x", "/"))
        request = await agent.receive()
        assert request["method"] == "session/resume"
        assert request["params"]["replayFrom"] == {"type": "start"}
        await agent.send(id=request["id"], result={})
        await loading


async def test_malformed_rows_are_skipped_and_malformed_titles_dropped() -> None:
    rows = [
        {"sessionId": "a", "cwd": "/", "updatedAt": "2026-01-01T00:00:00"},
        {"sessionId": "b"},
        "c",
        None,
        {"sessionId": "d", "cwd": "/", "title": 7},
    ]
    async with connect() as (client, agent):
        capabilities = {"sessionCapabilities": {"list": {}}}
        await initialize(client, agent, {"protocolVersion": 1, "agentCapabilities": capabilities})
        page = await answer(agent, client.list(), {"sessions": rows, "nextCursor": None})
        assert [row.session_id for row in page.sessions] == ["a", "d"]
        assert page.next_cursor is None
        assert (await answer(agent, client.list(), {"sessions": None})).sessions == []


async def test_a_repeated_cursor_ends_the_list() -> None:
    async with connect() as (client, agent):
        capabilities = {"sessionCapabilities": {"list": {}}}
        await initialize(client, agent, {"protocolVersion": 1, "agentCapabilities": capabilities})

        async def play() -> None:
            for _ in range(2):
                request = await agent.receive()
                row = {"sessionId": "a", "cwd": "/"}
                await agent.send(id=request["id"], result={"sessions": [row], "nextCursor": "same"})

        playing = asyncio.create_task(play())
        assert len([row async for row in client.sessions()]) == 2
        await playing


async def test_updates_are_handled_in_order_and_before_the_result_that_follows() -> None:
    handled: list[int] = []

    async def handle_slowly(session: str, update: dict[str, Any]) -> None:
        await asyncio.sleep(0.01 / (update["n"] + 1))
        handled.append(update["n"])

    async with connect(on_update=handle_slowly) as (client, agent):
        opening = asyncio.create_task(client.new("/"))
        id = (await agent.receive())["id"]
        for number in range(10):
            params = {"sessionId": "x", "update": {"n": number}}
            await agent.send(method="session/update", params=params)
        await agent.send(id=id, result={"sessionId": "x"})
        await opening
        assert handled == list(range(10))


async def test_an_unadvertised_request_from_the_agent_is_not_found() -> None:
    async with connect() as (_, agent):
        await agent.send(id=1, method="fs/read_text_file", params={})
        assert (await agent.receive())["error"]["code"] == -32601
        await agent.send(id=2, method="session/request_permission", params={"options": []})
        assert (await agent.receive())["result"] == {"outcome": {"outcome": "cancelled"}}


async def test_the_client_raises_the_agent_s_error() -> None:
    async with connect() as (client, agent):
        opening = asyncio.create_task(client.new("/"))
        await agent.send(
            id=(await agent.receive())["id"], error={"code": -32000, "message": "log in"}
        )
        with pytest.raises(RpcError, match="log in"):
            await opening
