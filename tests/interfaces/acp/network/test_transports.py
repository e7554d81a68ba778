"""Clients over HTTP and WebSocket do everything that clients over stdio do."""

import asyncio
from pathlib import Path

import pytest

from segue.model.principal import LOCAL
from tests.interfaces.acp.harness import Client
from tests.interfaces.acp.network.served import PAIRS, serve

SCRIPT = "Hello there\n/think hm\n/say hi\n/tool ls a b\n/plan one; x two\n/ask May I?"


async def conversation(client: Client, session: str) -> list[tuple[str, str]]:
    """Return the messages and calls of a session that this client loads."""
    entries: dict[str, tuple[str, str]] = {}
    for update in await client.replay(session, "/"):
        body = update.body
        if "messageId" in body:
            kind = update.kind.removesuffix("_chunk")
            blocks = body["content"] if isinstance(body["content"], list) else [body["content"]]
            before = entries.get(body["messageId"], (kind, ""))[1]
            entries[body["messageId"]] = (kind, before + "".join(b["text"] for b in blocks))
        elif "toolCallId" in body:
            entries[body["toolCallId"]] = ("call", body["status"])
    return list(entries.values())


@pytest.mark.parametrize(("transport", "version"), PAIRS)
async def test_client_creates_prompts_lists_and_loads_a_session(
    tmp_path: Path, transport: str, version: int
) -> None:
    async with serve(tmp_path / "data") as served:
        async with served.connect(transport, version) as client:
            session = await client.new_session("/")
            assert await client.run_prompt(session, SCRIPT) == "end_turn"
            assert len(client.permission_requests) == 1
            listed = (await client.request("session/list", {}))["sessions"]
            assert [row["sessionId"] for row in listed] == [session]
            live = [update.kind for update in client.updates()]
            assert live
        async with served.connect(transport, version) as client:
            assert await conversation(client, session) == [
                ("user_message", SCRIPT),
                ("agent_message", "Hello there"),
                ("agent_thought", "hm"),
                ("agent_message", "hi"),
                ("call", "completed"),
                ("call", "completed"),
            ]
            unknown = {"sessionId": "01a1ecb4-1250-709b-ad6e-07648173598a", "cwd": "/"}
            error = await client.request_error("session/load", unknown)
            assert error.code == -32002


@pytest.mark.parametrize(("transport", "version"), PAIRS)
async def test_two_clients_of_a_session_see_the_same_turn_and_either_answers(
    tmp_path: Path, transport: str, version: int
) -> None:
    async with (
        serve(tmp_path / "data") as served,
        served.connect(transport, version) as one,
        served.connect("ws", version) as two,
    ):
        one.answer_permission = lambda params: None
        session = await one.new_session("/")
        await two.open_session("resume", session, "/")
        turn = asyncio.create_task(one.run_prompt(session, "/say hi\n/ask May I?"))
        await two.wait_until(lambda: len(two.permission_requests) == 1)
        assert await turn == "end_turn"
        texts = [
            "".join(
                update.body["content"]["text"]
                for update in client.updates()
                if update.kind == "agent_message_chunk" and update.body["content"]["type"] == "text"
            )
            for client in (one, two)
        ]
        assert texts[0] == texts[1]
        assert len(one.permission_requests) == len(two.permission_requests) == 1


@pytest.mark.parametrize(("transport", "version"), PAIRS)
async def test_lost_client_cancels_nothing(tmp_path: Path, transport: str, version: int) -> None:
    async with serve(tmp_path / "data") as served:
        async with served.connect(transport, version) as client:
            session = await client.new_session("/")
            await client.start_prompt(session, "/say begun\n/wait 0.3\n/say ended")
        async with asyncio.timeout(60):
            while (await served.hub.sessions.get(LOCAL, session)).status != "idle":
                await asyncio.sleep(0.02)
        async with served.connect(transport, version) as client:
            texts = [text for kind, text in await conversation(client, session)]
            assert texts[1:] == ["begun", "ended"]


@pytest.mark.parametrize("version", [1, 2])
async def test_text_that_ends_with_half_a_character_is_prompted_and_kept(
    tmp_path: Path, version: int
) -> None:
    async with serve(tmp_path / "data") as served, served.connect("ws", version) as client:
        session = await client.new_session("/")
        assert await client.run_prompt(session, "/say cut \ud83d") == "end_turn"
        assert ("agent_message", "cut ?") in await conversation(client, session)
        events = await served.hub.history.events(LOCAL, session, types=["agent_message"])
        assert [event.body.content[0].text for event in events] == ["cut \ud83d"]
