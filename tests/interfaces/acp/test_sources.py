"""Read-only sessions of another tool: listed, read in place, and prompted after a fork."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from segue.model import ids
from segue.model.content import as_content
from segue.model.event import AgentMessage, Created, UserMessage
from segue.testing.source import MemorySource
from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.harness import Client
from tests.interfaces.acp.testbed import AcpTestbed

CONVERSATION = [("user", "Why is it slow?"), ("agent", "Nothing is cached.")]


@asynccontextmanager
async def with_source(
    testbed: AcpTestbed, version: int
) -> AsyncIterator[tuple[Client, MemorySource, str]]:
    source = MemorySource()
    async with testbed.connect_in_process(version, sources=[source]) as client:
        session = await source.create(
            ids.new_id(),
            [
                Created(cwd="/p", source="memory", git_branch="main"),
                UserMessage(content=as_content(CONVERSATION[0][1])),
                AgentMessage(content=as_content(CONVERSATION[1][1])),
            ],
        )
        yield client, source, session.id


async def test_session_of_a_source_is_listed_with_its_source(
    testbed: AcpTestbed, version: int
) -> None:
    async with with_source(testbed, version) as (client, _, id):
        own_id = await client.new_session("/p")
        rows = (await client.request("session/list", {"cwd": "/p"}))["sessions"]
        assert {row["sessionId"]: row["_meta"]["source"] for row in rows} == {
            id: "memory",
            own_id: "segue",
        }


async def test_read_only_session_is_replayed_and_followed_but_not_prompted(
    testbed: AcpTestbed, version: int
) -> None:
    async with with_source(testbed, version) as (client, source, id):
        assert conversation(await client.replay(id, "/p")) == CONVERSATION
        await source.append(id, [AgentMessage(content=as_content("And now it is."))])
        await client.wait_for_update(lambda update: "And now it is." in str(update.body))
        error = await client.request_error("session/prompt", client.prompt_params(id, "hello"))
        assert error.code == -32602 and "fork" in error.message
        await client.notify("session/cancel", {"sessionId": id})
        assert await client.request("session/close", {"sessionId": id}) == {}


async def test_fork_of_a_read_only_session_can_be_prompted(
    testbed: AcpTestbed, version: int
) -> None:
    async with with_source(testbed, version) as (client, _, id):
        fork = (await client.open_session("fork", id, "/p"))["sessionId"]
        await client.run_prompt(fork, "/history")
        entries = conversation(await client.replay(fork, "/p"))
        assert entries[:2] == CONVERSATION
        assert entries[-1] == ("agent", "Before this turn: 1 messages of yours, 1 of mine.")


async def test_editing_a_read_only_session_does_not_change_its_files(
    testbed: AcpTestbed, version: int
) -> None:
    async with with_source(testbed, version) as (client, _, id):
        await client.request("session/set_title", {"sessionId": id, "title": "Slow"})
        (row,) = (await client.request("session/list"))["sessions"]
        assert row["title"] == "Slow"
        await client.request("session/archive", {"sessionId": id})
        assert (await client.request("session/list"))["sessions"] == []
        await client.request("session/unarchive", {"sessionId": id})
        await client.request("session/delete", {"sessionId": id})
        assert (await client.request("session/list", {"archived": "include"}))["sessions"] == []
