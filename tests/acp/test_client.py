"""The client's side, against our own agent and against careless ones."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from segue.acp.client import AcpClient, Unsupported
from segue.acp.rpc import RpcError
from tests.acp.twins import End, ends


def own(directory: Path) -> list[str]:
    return [sys.executable, "-m", "segue", "acp", "--data-dir", str(directory)]


async def test_the_whole_cycle_against_our_own_agent(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []

    async def listen(session: str, update: dict[str, Any]) -> None:
        heard.append(update)

    async def allow(request: dict[str, Any]) -> str | None:
        return "allow"

    async with AcpClient.start(own(tmp_path), on_update=listen, on_permission=allow) as client:
        assert (client.version, client.agent["name"]) == (2, "segue")
        assert (await client.list()).sessions == []
        id = await client.new("/")
        await client.prompt(id, [{"type": "text", "text": "/ask May I?"}])
        while not any(update.get("stopReason") for update in heard):
            await asyncio.sleep(0.01)
        results = [u["status"] for u in heard if u["sessionUpdate"] == "tool_call_update"]
        assert results == ["in_progress", "completed"]
        assert await client.set_title(id, " Named ") == "Named"
        assert await client.status(id) == "open"
        await client.close(id)
        assert await client.status(id) == "saved"
        heard.clear()
        await client.load(id, "/")
        assert heard[0]["sessionUpdate"] == "user_message"
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


async def test_every_page_is_turned(tmp_path: Path) -> None:
    async with AcpClient.start(own(tmp_path)) as client:
        made = {await client.new("/") for _ in range(60)}
        assert {row.session_id async for row in client.sessions()} == made


@asynccontextmanager
async def talking(**handlers: Any) -> AsyncIterator[tuple[AcpClient, End]]:
    """A client, and the agent's end for the test to play."""
    ours, theirs = ends()
    client = AcpClient(ours, ours, **handlers)
    serving = asyncio.create_task(client.serve())
    try:
        yield client, theirs
    finally:
        await theirs.hang_up()
        await serving


async def greeted(client: AcpClient, agent: End, result: Any) -> None:
    greeting = asyncio.create_task(client.initialize())
    await agent.say(id=(await agent.hear())["id"], result=result)
    await greeting


async def answered(agent: End, asking: Any, result: Any) -> Any:
    task = asyncio.ensure_future(asking)
    await agent.say(id=(await agent.hear())["id"], result=result)
    return await task


async def test_an_agent_that_says_two_and_means_one_is_understood() -> None:
    async with talking() as (client, agent):
        sessions = {"list": {}, "delete": None}
        capabilities = {"loadSession": True, "sessionCapabilities": sessions}
        result = {"protocolVersion": 2, "agentCapabilities": capabilities}
        await greeted(client, agent, result)
        assert client.version == 1
        offered = ("load", "list", "delete", "resume")
        assert [client.offers(name) for name in offered] == [True, True, False, False]


async def test_an_agent_that_refuses_version_two_is_asked_for_one() -> None:
    async with talking() as (client, agent):
        greeting = asyncio.create_task(client.initialize())
        first = await agent.hear()
        await agent.say(id=first["id"], error={"code": -32602, "message": "what?"})
        second = await agent.hear()
        assert [each["params"]["protocolVersion"] for each in (first, second)] == [2, 1]
        await agent.say(id=second["id"], result={"protocolVersion": 1})
        await greeting
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
async def test_what_is_not_advertised_is_not_asked_for(call: Any) -> None:
    async with talking() as (client, agent):
        await greeted(client, agent, {"protocolVersion": 1, "agentCapabilities": {}})
        with pytest.raises(Unsupported):
            await call(client)
        assert agent.silent()


async def test_in_version_two_sessions_come_with_their_baseline() -> None:
    async with talking() as (client, agent):
        result = {"protocolVersion": 2, "info": {"name": "x"}, "capabilities": {"session": {}}}
        await greeted(client, agent, result)
        assert all(client.offers(name) for name in ("list", "resume", "close"))
        assert not any(client.offers(name) for name in ("delete", "fork", "load"))
        # Where there is no load, a resume from the start is one.
        loading = asyncio.create_task(client.load("x", "/"))
        asked = await agent.hear()
        assert asked["method"] == "session/resume"
        assert asked["params"]["replayFrom"] == {"type": "start"}
        await agent.say(id=asked["id"], result={})
        await loading


async def test_rows_that_make_no_sense_are_left_out_and_odd_ones_kept() -> None:
    rows = [
        {"sessionId": "a", "cwd": "/", "updatedAt": "2026-01-01T00:00:00"},
        {"sessionId": "b"},
        "c",
        None,
        {"sessionId": "d", "cwd": "/", "title": 7},
    ]
    async with talking() as (client, agent):
        markers = {"sessionCapabilities": {"list": {}}}
        await greeted(client, agent, {"protocolVersion": 1, "agentCapabilities": markers})
        page = await answered(agent, client.list(), {"sessions": rows, "nextCursor": None})
        assert [row.session_id for row in page.sessions] == ["a", "d"]
        assert page.next is None
        assert (await answered(agent, client.list(), {"sessions": None})).sessions == []


async def test_a_cursor_that_comes_again_ends_the_list() -> None:
    async with talking() as (client, agent):
        markers = {"sessionCapabilities": {"list": {}}}
        await greeted(client, agent, {"protocolVersion": 1, "agentCapabilities": markers})

        async def play() -> None:
            for _ in range(2):
                asked = await agent.hear()
                row = {"sessionId": "a", "cwd": "/"}
                await agent.say(id=asked["id"], result={"sessions": [row], "nextCursor": "same"})

        playing = asyncio.create_task(play())
        assert len([row async for row in client.sessions()]) == 2
        await playing


async def test_updates_are_heard_in_order_and_before_the_answer_that_follows() -> None:
    heard: list[int] = []

    async def slowly(session: str, update: dict[str, Any]) -> None:
        await asyncio.sleep(0.01 / (update["n"] + 1))
        heard.append(update["n"])

    async with talking(on_update=slowly) as (client, agent):
        asking = asyncio.create_task(client.new("/"))
        id = (await agent.hear())["id"]
        for number in range(10):
            params = {"sessionId": "x", "update": {"n": number}}
            await agent.say(method="session/update", params=params)
        await agent.say(id=id, result={"sessionId": "x"})
        await asking
        assert heard == list(range(10))


async def test_what_an_agent_may_not_ask_is_not_found() -> None:
    async with talking() as (_, agent):
        await agent.say(id=1, method="fs/read_text_file", params={})
        assert (await agent.hear())["error"]["code"] == -32601
        await agent.say(id=2, method="session/request_permission", params={"options": []})
        assert (await agent.hear())["result"] == {"outcome": {"outcome": "cancelled"}}


async def test_an_agent_s_refusal_is_ours() -> None:
    async with talking() as (client, agent):
        asking = asyncio.create_task(client.new("/"))
        await agent.say(id=(await agent.hear())["id"], error={"code": -32000, "message": "log in"})
        with pytest.raises(RpcError, match="log in"):
            await asking
