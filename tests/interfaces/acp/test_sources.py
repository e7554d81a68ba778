"""Sessions that another tool keeps: listed and read in place, and continued as a fork."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from segue.model import ids
from segue.model.content import as_content
from segue.model.event import AgentMessage, Created, UserMessage
from segue.testing.source import MemorySource
from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.harness import Client
from tests.interfaces.acp.testbed import House

SAID = [("user", "Why is it slow?"), ("agent", "Nothing is cached.")]


@asynccontextmanager
async def with_source(
    house: House, version: int
) -> AsyncIterator[tuple[Client, MemorySource, str]]:
    source = MemorySource()
    async with house.inside(version, sources=[source]) as client:
        made = await source.add(
            ids.new_id(),
            [
                Created(cwd="/p", source="memory", git_branch="main"),
                UserMessage(content=as_content(SAID[0][1])),
                AgentMessage(content=as_content(SAID[1][1])),
            ],
        )
        yield client, source, made.id


async def test_it_is_listed_among_our_own_and_says_whose_it_is(house: House, version: int) -> None:
    async with with_source(house, version) as (client, _, id):
        own = await client.new("/p")
        rows = (await client.ask("session/list", {"cwd": "/p"}))["sessions"]
        assert {row["sessionId"]: row["_meta"]["source"] for row in rows} == {
            id: "memory",
            own: "segue",
        }


async def test_it_is_replayed_and_followed_but_takes_no_prompts(house: House, version: int) -> None:
    async with with_source(house, version) as (client, source, id):
        assert conversation(await client.replay(id, "/p")) == SAID
        await source.grow(id, [AgentMessage(content=as_content("And now it is."))])
        await client.until(lambda update: "And now it is." in str(update.body))
        refused = await client.refusal("session/prompt", client.prompting(id, "hello"))
        assert refused.code == -32602 and "fork" in refused.message
        await client.tell("session/cancel", {"sessionId": id})
        assert await client.ask("session/close", {"sessionId": id}) == {}


async def test_a_fork_of_it_goes_on(house: House, version: int) -> None:
    async with with_source(house, version) as (client, _, id):
        fork = (await client.open("fork", id, "/p"))["sessionId"]
        await client.run(fork, "/history")
        said = conversation(await client.replay(fork, "/p"))
        assert said[:2] == SAID
        assert said[-1] == ("agent", "Before this turn: 1 messages of yours, 1 of mine.")


async def test_it_is_renamed_archived_and_deleted_without_touching_the_tool_s_files(
    house: House, version: int
) -> None:
    async with with_source(house, version) as (client, _, id):
        await client.ask("session/set_title", {"sessionId": id, "title": "Slow"})
        (row,) = (await client.ask("session/list"))["sessions"]
        assert row["title"] == "Slow"
        await client.ask("session/archive", {"sessionId": id})
        assert (await client.ask("session/list"))["sessions"] == []
        await client.ask("session/unarchive", {"sessionId": id})
        await client.ask("session/delete", {"sessionId": id})
        assert (await client.ask("session/list", {"archived": "include"}))["sessions"] == []
