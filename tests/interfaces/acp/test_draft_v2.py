"""The earlier draft of version 2: its markers, and `session/load` as it was."""

from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.testbed import House


async def test_its_markers_stand_beside_today_s(house: House) -> None:
    async with house.inside(2, greet=False) as client:
        session = (await client.initialize())["capabilities"]["session"]
    for name in ("load", "resume", "close", "list", "additionalDirectories"):
        assert isinstance(session[name], dict)
    assert session["mcp"] == {"stdio": {}, "http": {}}


async def test_a_load_replays_whole_messages_and_answers_with_null(house: House) -> None:
    async with house.inside(2) as client:
        id = await client.new(house.directory)
        await client.run(id, "What's the capital of France?\n/say Paris")
        await client.ask("session/close", {"sessionId": id})
        before = len(client.log)
        assert await client.open("load", id, house.directory) is None
        updates = client.updates(before)
        assert [update.kind for update in updates[:2]] == ["user_message", "agent_message"]
        assert all(update.body["messageId"] for update in updates[:2])
        assert conversation(updates)[1:] == [
            ("agent", "What's the capital of France?"),
            ("agent", "Paris"),
        ]
        assert client.log[-1] == "session/load"
        assert await client.run(id, "as if never interrupted") == "end_turn"


async def test_its_servers_have_a_type_and_a_whole_list(house: House) -> None:
    async with house.inside(2) as client:
        server = {"type": "stdio", "name": "a", "command": "relative", "args": [], "env": []}
        params = {"cwd": "/", "mcpServers": [server]}
        assert (await client.refusal("session/new", params)).code == -32602
