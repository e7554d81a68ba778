"""Claude Code's own sessions at this door: listed, opened, changed and forked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from segue import claude
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.source import ClaudeSource
from tests.claude.entries import S2, Home, S, as_line, assistant, call, result, user
from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.harness import Client
from tests.interfaces.acp.testbed import House

SAID = [
    ("user", "Why is it slow?"),
    ("tool", "Bash: completed"),
    ("agent", "Nothing is cached."),
]


@pytest.fixture
def home(house: House, monkeypatch: pytest.MonkeyPatch) -> Home:
    home = Home(house.directory / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home.root))
    home.write(
        [
            user("u1", None, "Why is it slow?", cwd="/p"),
            user("x1", "u1", "a branch that was left", cwd="/p"),
            assistant("a1", "u1", call("t1"), id="m1"),
            user("u2", "a1", result("t1")),
            assistant("a2", "u2", [{"type": "text", "text": "Nothing is cached."}]),
        ]
    )
    return home


@asynccontextmanager
async def at_the_door(house: House, version: int, home: Home) -> AsyncIterator[Client]:
    source = ClaudeSource(house.directory / "index", ClaudeHome(str(home.root)))
    async with house.inside(version, sources=[source]) as client:
        yield client


async def rows(client: Client, **params: object) -> dict[str, dict[str, object]]:
    listed = (await client.ask("session/list", params))["sessions"]
    return {row["sessionId"]: row for row in listed}


async def test_the_first_one_ever_is_listed_by_an_agent_that_runs_already(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(house.directory / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home.root))
    async with house.child(1) as (client, _):
        assert await rows(client) == {}
        home.talk()
        assert list(await rows(client)) == [S]


async def test_it_is_listed_beside_our_own_and_says_whose_it_is(
    house: House, version: int, home: Home
) -> None:
    async with at_the_door(house, version, home) as client:
        own = await client.new("/p")
        found = await rows(client, cwd="/p")
        assert {id: row["_meta"]["source"] for id, row in found.items()} == {  # type: ignore[index]
            S: "claude",
            own: "segue",
        }
        assert (found[S]["title"], found[S]["cwd"]) == ("Why is it slow?", "/p")


async def test_it_is_replayed_resumed_and_followed(house: House, version: int, home: Home) -> None:
    async with at_the_door(house, version, home) as client:
        assert conversation(await client.replay(S, "/p")) == SAID
        with (home.projects / "-w" / f"{S}.jsonl").open("ab") as file:
            file.write(as_line(user("u3", "a2", "And now?")))
        await client.until(lambda update: "And now?" in str(update.body))
        await client.ask("session/close", {"sessionId": S})
        before = len(client.log)
        await client.open("resume", S, "/p")
        assert conversation(client.updates(before)) == []


async def test_it_goes_on_here_with_a_copy_of_what_was_said(
    house: House, version: int, home: Home
) -> None:
    (before,) = [path.read_bytes() for path in home.projects.rglob("*.jsonl")]
    async with at_the_door(house, version, home) as client:
        await client.replay(S, "/p")
        start = len(client.log)
        assert await client.run(S, "/say Yes.") == "end_turn"
        assert ("agent", "Yes.") in conversation(client.updates(start))
        assert await client.run(S, "/say And more.") == "end_turn"
        await client.ask("session/close", {"sessionId": S})
        said = conversation(await client.replay(S, "/p"))
        assert said[:3] == SAID and said[-1] == ("agent", "And more.")
        assert (await rows(client)).keys() == {S}
    (after,) = [path.read_bytes() for path in home.projects.rglob("*.jsonl")]
    assert after == before


async def test_a_fork_of_it_goes_on_here(house: House, version: int, home: Home) -> None:
    async with at_the_door(house, version, home) as client:
        await client.replay(S, "/p")
        fork = (await client.open("fork", S, "/p"))["sessionId"]
        assert await client.run(fork, "/say Yes.") == "end_turn"
        said = conversation(await client.replay(fork, "/p"))
        assert said[:3] == SAID and said[-1] == ("agent", "Yes.")
        assert [row.session_id for row in claude.list_sessions()] == [S]


async def test_it_is_renamed_and_archived_in_claude_code_s_files(
    house: House, version: int, home: Home
) -> None:
    async with at_the_door(house, version, home) as client:
        await client.ask("session/set_title", {"sessionId": S, "title": "Slow"})
        info = claude.get_session_info(S)
        assert info is not None and info.custom_title == "Slow"
        assert (await rows(client))[S]["title"] == "Slow"
        await client.ask("session/archive", {"sessionId": S})
        info = claude.get_session_info(S)
        assert info is not None and info.archived is True
        assert await rows(client) == {}
        await client.ask("session/unarchive", {"sessionId": S})
        assert (await rows(client)).keys() == {S}


async def test_it_is_deleted_into_the_trash(house: House, version: int, home: Home) -> None:
    home.talk(S2, cwd="/p")
    async with at_the_door(house, version, home) as client:
        await client.ask("session/delete", {"sessionId": S})
        assert (await rows(client)).keys() == {S2}
        assert [row.session_id for row in claude.list_sessions()] == [S2]
        assert [gone.session_id for gone in claude.list_trash()] == [S]


async def test_the_command_shows_them_without_being_asked(
    house: House, version: int, home: Home
) -> None:
    async with house.child(version) as (client, _):
        assert (await rows(client)).keys() == {S}
        assert conversation(await client.replay(S, "/p")) == SAID
    async with house.child(version, "--sources", "none") as (client, _):
        assert await rows(client) == {}
    async with house.child(version, "--workspace", "other") as (client, _):
        assert await rows(client) == {}
