"""What clients hear of a session that others are in too, in this process or another."""

import asyncio
import json
import os
import sys
from urllib.request import Request, urlopen

from segue.model.principal import LOCAL
from tests.clients.rest_server import serving
from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.harness import Client, Update, is_rest
from tests.interfaces.acp.testbed import House
from tests.interfaces.rest.api import HEADERS


def info(client: Client) -> list[dict[str, object]]:
    return [u.body for u in client.updates() if u.kind == "session_info_update"]


async def joined(client: Client, id: str) -> None:
    """Open it too, and forget what that said."""
    await client.open("resume", id, "/")
    client.log.clear()


async def test_a_change_made_elsewhere_is_told_and_only_the_change(
    house: House, version: int
) -> None:
    async with house.inside(version) as client, house.hub() as hub:
        id = await client.new("/")
        await hub.editor.set_title(LOCAL, id, "Named")
        await client.until(lambda update: update.body.get("title") == "Named")
        await hub.editor.set_tag(LOCAL, id, "urgent")
        await client.until(lambda update: "_meta" in update.body)
        await hub.editor.set_tag(LOCAL, id, None)
        await hub.editor.set_title(LOCAL, id, None)
        await client.until(lambda update: update.body.get("title", "") is None)
        await hub.editor.trash(LOCAL, id)
        await client.until(lambda update: "deleted" in update.body.get("_meta", {}))
        name = {"sessionUpdate": "session_info_update"}
        assert info(client) == [
            {**name, "title": "Named"},
            {**name, "_meta": {"tag": "urgent"}},
            {**name, "_meta": {"tag": None}},
            {**name, "title": None},
            {**name, "_meta": {"deleted": True}},
        ]


async def test_a_change_by_the_command_line_reaches_an_editor(house: House, version: int) -> None:
    """Three real processes: the agent of an editor, one of another, and a command."""
    async with house.child(version) as (client, _), house.child(3 - version) as (other, _):
        id = await client.new("/")
        await other.open("resume", id, "/")
        command = ["-m", "segue", "prompt", id, "/say from the shell"]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            env={**os.environ, "SEGUE_DATA_DIR": str(house.data)},
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert b"from the shell" in output
        for each in (client, other):
            await each.until(lambda update: "updatedAt" in update.body, len(each.log) // 2)
            assert conversation(each.updates()) == [
                ("user", "/say from the shell"),
                ("agent", "from the shell"),
            ]


async def test_two_clients_see_the_same_turn(house: House, version: int) -> None:
    async with house.inside(version) as mine, house.inside(3 - version) as theirs:
        id = await mine.new("/")
        await joined(theirs, id)
        await mine.run(id, "hello\n/think hm\n/say hi\n/tool ls a")
        await theirs.until(lambda update: "updatedAt" in update.body)
        seen = conversation(theirs.updates())
        assert seen[0] == ("user", "hello\n/think hm\n/say hi\n/tool ls a")
        assert seen[1:] == conversation(mine.updates())[version - 1 :]


async def test_two_clients_take_turns(house: House, version: int) -> None:
    async with house.inside(version) as mine, house.inside(version) as theirs:
        id = await mine.new("/")
        await theirs.open("resume", id, "/")
        await mine.run(id, "/say one")
        await theirs.run(id, "/say two")
        await mine.run(id, "/history")
        said = [text for who, text in conversation(mine.updates()) if who == "agent"]
        assert said == ["one", "two", "Before this turn: 2 messages of yours, 2 of mine."]


async def test_a_prompt_sent_while_another_client_s_runs_waits_for_it(
    house: House, version: int
) -> None:
    async with house.inside(version) as mine, house.inside(version) as theirs:
        id = await mine.new("/")
        await theirs.open("resume", id, "/")
        first = await mine.begin(id, "/say one\n/wait 0.5\n/say two")
        await theirs.run(id, "/say three")
        await mine.answer(first)
        said = [text for who, text in conversation(theirs.updates()) if who == "agent"]
        assert said == ["one", "two", "three"]


async def test_one_client_cancels_the_other_s_turn(house: House, version: int) -> None:
    async with house.inside(version) as mine, house.inside(version) as theirs:
        id = await mine.new("/")
        await theirs.open("resume", id, "/")
        request = await mine.begin(id, "/say begun\n/wait 60")
        await theirs.tell("session/cancel", {"sessionId": id})
        result = await mine.answer(request)
        if version == 1:
            assert result == {"stopReason": "cancelled"}
        else:
            assert (await mine.until(is_rest)).body["stopReason"] == "cancelled"


async def test_who_leaves_takes_nothing_with_it(house: House, version: int) -> None:
    async with house.inside(version) as mine:
        id = await mine.new("/")
        request = await mine.begin(id, "/say begun\n/wait 1\n/say done")
        async with house.inside(version) as theirs:
            await theirs.open("resume", id, "/")
            await theirs.ask("session/close", {"sessionId": id})
        result = await mine.answer(request)
        if version == 1:
            assert result == {"stopReason": "end_turn"}
        else:
            assert (await mine.until(is_rest)).body["stopReason"] == "end_turn"


async def test_who_comes_in_the_middle_of_a_message_gets_all_of_it(
    house: House, version: int
) -> None:
    async with house.inside(version) as mine, house.inside(version) as theirs:
        id = await mine.new("/")
        words = " ".join(f"w{number}" for number in range(40))
        request = await mine.begin(id, f"/slow 0.03\n/say {words}")
        await theirs.open("resume", id, "/")
        before = len(theirs.log)
        await mine.answer(request)
        await theirs.until(lambda update: "updatedAt" in update.body, before)
        later = theirs.updates(before)
        assert conversation(later)[-1] == ("agent", words)
        if version == 2:  # what it may have seen before is begun anew
            first = next(update for update in later if "messageId" in update.body)
            assert (first.kind, first.body["content"]) == ("agent_message", [])


async def test_a_title_that_the_agent_gives_is_told_at_once(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        await client.begin(id, "/title By the agent\n/say begun\n/wait 60")

        def named(update: Update) -> bool:
            return update.body.get("title") == "By the agent"

        await client.until(named)


async def test_two_workspaces_see_no_session_cross_over(house: House, version: int) -> None:
    async with (
        house.child(version, "--workspace", "team-a") as (one, _),
        house.child(version, "--workspace", "team-b") as (two, _),
    ):
        id = await one.new("/")
        await one.run(id, "for team a alone")
        assert (await two.ask("session/list"))["sessions"] == []
        params = {"sessionId": id, "cwd": "/", "mcpServers": []}
        assert (await two.refusal("session/resume", params)).code == -32002
        assert len((await one.ask("session/list"))["sessions"]) == 1


async def test_a_change_over_http_reaches_every_editor_until_it_closes(
    house: House, version: int
) -> None:
    """Three real processes again: the agents of two editors, and a server."""
    async with house.child(version) as (client, _), house.child(3 - version) as (other, _):
        id = await client.new("/")
        await other.open("resume", id, "/")
        with serving(house.data) as server:

            def rename(title: str) -> None:
                request = Request(
                    f"{server.url}/v1/sessions/{id}",
                    json.dumps({"title": title}).encode(),
                    {**HEADERS, "x-api-key": server.key, "content-type": "application/json"},
                )
                urlopen(request).close()

            await asyncio.to_thread(rename, "Over HTTP")
            for each in (client, other):
                await each.until(lambda update: update.body.get("title") == "Over HTTP")
            await other.ask("session/close", {"sessionId": id})
            await asyncio.to_thread(rename, "Again")
            await client.until(lambda update: update.body.get("title") == "Again")
            # Of a closed session the harness refuses to be told.
            rows = (await other.ask("session/list"))["sessions"]
            assert [row["title"] for row in rows] == ["Again"]
            assert "Again" not in str(other.updates())
