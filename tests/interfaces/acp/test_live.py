"""Updates of a session that other clients or processes use too."""

import asyncio
import json
import os
import sys
from urllib.request import Request, urlopen

from segue.model.principal import LOCAL
from tests.clients.rest_server import serving
from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.harness import Client, Update, is_idle
from tests.interfaces.acp.testbed import AcpTestbed
from tests.interfaces.rest.api import HEADERS


def info_updates(client: Client) -> list[dict[str, object]]:
    return [u.body for u in client.updates() if u.kind == "session_info_update"]


async def attach(client: Client, id: str) -> None:
    """Attach a session, and clear the log."""
    await client.open_session("resume", id, "/")
    client.log.clear()


async def test_change_by_another_process_is_sent_as_a_patch(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        id = await client.new_session("/")
        await hub.editor.set_title(LOCAL, id, "Named")
        await client.wait_for_update(lambda update: update.body.get("title") == "Named")
        await hub.editor.set_tag(LOCAL, id, "urgent")
        await client.wait_for_update(lambda update: "_meta" in update.body)
        await hub.editor.set_tag(LOCAL, id, None)
        await hub.editor.set_title(LOCAL, id, None)
        await client.wait_for_update(lambda update: update.body.get("title", "") is None)
        await hub.editor.trash(LOCAL, id)
        await client.wait_for_update(lambda update: "deleted" in update.body.get("_meta", {}))
        name = {"sessionUpdate": "session_info_update"}
        assert info_updates(client) == [
            {**name, "title": "Named"},
            {**name, "_meta": {"tag": "urgent"}},
            {**name, "_meta": {"tag": None}},
            {**name, "title": None},
            {**name, "_meta": {"deleted": True}},
        ]


async def test_change_by_the_cli_reaches_the_client(testbed: AcpTestbed, version: int) -> None:
    """Use three processes: the servers of two clients, and a command."""
    async with (
        testbed.connect_child(version) as (client, _),
        testbed.connect_child(3 - version) as (other, _),
    ):
        id = await client.new_session("/")
        await other.open_session("resume", id, "/")
        command = ["-m", "segue", "prompt", id, "/say from the shell"]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            env={**os.environ, "SEGUE_DATA_DIR": str(testbed.data)},
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert b"from the shell" in output
        for connection in (client, other):
            await connection.wait_for_update(
                lambda update: "updatedAt" in update.body, len(connection.log) // 2
            )
            assert conversation(connection.updates()) == [
                ("user", "/say from the shell"),
                ("agent", "from the shell"),
            ]


async def test_two_clients_receive_the_same_turn(testbed: AcpTestbed, version: int) -> None:
    async with (
        testbed.connect_in_process(version) as first,
        testbed.connect_in_process(3 - version) as second,
    ):
        id = await first.new_session("/")
        await attach(second, id)
        await first.run_prompt(id, "hello\n/think hm\n/say hi\n/tool ls a")
        await second.wait_for_update(lambda update: "updatedAt" in update.body)
        seen = conversation(second.updates())
        assert seen[0] == ("user", "hello\n/think hm\n/say hi\n/tool ls a")
        assert seen[1:] == conversation(first.updates())[version - 1 :]


async def test_two_clients_alternate_prompts(testbed: AcpTestbed, version: int) -> None:
    async with (
        testbed.connect_in_process(version) as first,
        testbed.connect_in_process(version) as second,
    ):
        id = await first.new_session("/")
        await second.open_session("resume", id, "/")
        await first.run_prompt(id, "/say one")
        await second.run_prompt(id, "/say two")
        await first.run_prompt(id, "/history")
        replies = [text for who, text in conversation(first.updates()) if who == "agent"]
        assert replies == ["one", "two", "Before this turn: 2 messages of yours, 2 of mine."]


async def test_prompt_waits_for_the_turn_of_another_client(
    testbed: AcpTestbed, version: int
) -> None:
    async with (
        testbed.connect_in_process(version) as first,
        testbed.connect_in_process(version) as second,
    ):
        id = await first.new_session("/")
        await second.open_session("resume", id, "/")
        request = await first.start_prompt(id, "/say one\n/wait 0.5\n/say two")
        await second.run_prompt(id, "/say three")
        await first.wait_response(request)
        replies = [text for who, text in conversation(second.updates()) if who == "agent"]
        assert replies == ["one", "two", "three"]


async def test_client_cancels_the_turn_of_another_client(testbed: AcpTestbed, version: int) -> None:
    async with (
        testbed.connect_in_process(version) as first,
        testbed.connect_in_process(version) as second,
    ):
        id = await first.new_session("/")
        await second.open_session("resume", id, "/")
        request = await first.start_prompt(id, "/say begun\n/wait 60")
        await second.notify("session/cancel", {"sessionId": id})
        result = await first.wait_response(request)
        if version == 1:
            assert result == {"stopReason": "cancelled"}
        else:
            assert (await first.wait_for_update(is_idle)).body["stopReason"] == "cancelled"


async def test_disconnecting_client_does_not_end_the_turn_of_another(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as first:
        id = await first.new_session("/")
        request = await first.start_prompt(id, "/say begun\n/wait 1\n/say done")
        async with testbed.connect_in_process(version) as second:
            await second.open_session("resume", id, "/")
            await second.request("session/close", {"sessionId": id})
        result = await first.wait_response(request)
        if version == 1:
            assert result == {"stopReason": "end_turn"}
        else:
            assert (await first.wait_for_update(is_idle)).body["stopReason"] == "end_turn"


async def test_client_that_attaches_during_a_message_gets_all_of_it(
    testbed: AcpTestbed, version: int
) -> None:
    async with (
        testbed.connect_in_process(version) as mine,
        testbed.connect_in_process(version) as second,
    ):
        id = await mine.new_session("/")
        words = " ".join(f"w{number}" for number in range(40))
        request = await mine.start_prompt(id, f"/slow 0.03\n/say {words}")
        before = len(second.log)
        await second.open_session("resume", id, "/")
        await mine.wait_response(request)

        def has_the_whole_turn() -> bool:
            updates = second.updates(before)
            if ("agent", words) not in conversation(updates):
                return False
            last_message = max(
                index for index, update in enumerate(updates) if "messageId" in update.body
            )
            return any("updatedAt" in update.body for update in updates[last_message:])

        await second.wait_until(has_the_whole_turn)
        later = second.updates(before)
        assert conversation(later)[-1] == ("agent", words)
        if version == 2:  # the message restarts, because the client may have a part of it
            first = next(update for update in later if "messageId" in update.body)
            assert (first.kind, first.body["content"]) == ("agent_message", [])


async def test_title_by_the_agent_is_sent_at_once(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        await client.start_prompt(id, "/title By the agent\n/say begun\n/wait 60")

        def named(update: Update) -> bool:
            return update.body.get("title") == "By the agent"

        await client.wait_for_update(named)


async def test_workspaces_are_isolated(testbed: AcpTestbed, version: int) -> None:
    async with (
        testbed.connect_child(version, "--workspace", "team-a") as (one, _),
        testbed.connect_child(version, "--workspace", "team-b") as (two, _),
    ):
        id = await one.new_session("/")
        await one.run_prompt(id, "for team a alone")
        assert (await two.request("session/list"))["sessions"] == []
        params = {"sessionId": id, "cwd": "/", "mcpServers": []}
        assert (await two.request_error("session/resume", params)).code == -32002
        assert len((await one.request("session/list"))["sessions"]) == 1


async def test_change_over_http_reaches_attached_clients(testbed: AcpTestbed, version: int) -> None:
    """Use three processes: the servers of two clients, and an HTTP server."""
    async with (
        testbed.connect_child(version) as (client, _),
        testbed.connect_child(3 - version) as (other, _),
    ):
        id = await client.new_session("/")
        await other.open_session("resume", id, "/")
        with serving(testbed.data) as server:

            def rename(title: str) -> None:
                request = Request(
                    f"{server.url}/v1/sessions/{id}",
                    json.dumps({"title": title}).encode(),
                    {**HEADERS, "x-api-key": server.key, "content-type": "application/json"},
                )
                urlopen(request).close()

            await asyncio.to_thread(rename, "Over HTTP")
            for connection in (client, other):
                await connection.wait_for_update(
                    lambda update: update.body.get("title") == "Over HTTP"
                )
            await other.request("session/close", {"sessionId": id})
            await asyncio.to_thread(rename, "Again")
            await client.wait_for_update(lambda update: update.body.get("title") == "Again")
            # The harness fails on an update of a closed session.
            rows = (await other.request("session/list"))["sessions"]
            assert [row["title"] for row in rows] == ["Again"]
            assert "Again" not in str(other.updates())
