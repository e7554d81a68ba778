"""The earlier draft of version 2: its capabilities and its `session/load`."""

from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.testbed import AcpTestbed


async def test_draft_capabilities_are_announced_with_the_current_ones(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2, initialize=False) as client:
        session = (await client.initialize())["capabilities"]["session"]
    for name in ("load", "resume", "close", "list", "additionalDirectories"):
        assert isinstance(session[name], dict)
    assert session["mcp"] == {"stdio": {}, "http": {}}


async def test_draft_load_replays_messages_and_returns_null(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        id = await client.new_session(testbed.directory)
        await client.run_prompt(id, "What's the capital of France?\n/say Paris")
        await client.request("session/close", {"sessionId": id})
        before = len(client.log)
        assert await client.open_session("load", id, testbed.directory) is None
        updates = client.updates(before)
        assert [update.kind for update in updates[:2]] == ["user_message", "agent_message"]
        assert all(update.body["messageId"] for update in updates[:2])
        assert conversation(updates)[1:] == [
            ("agent", "What's the capital of France?"),
            ("agent", "Paris"),
        ]
        assert client.log[-1] == "session/load"
        assert await client.run_prompt(id, "as if never interrupted") == "end_turn"


async def test_draft_mcp_servers_need_a_type(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        server = {"type": "stdio", "name": "a", "command": "relative", "args": [], "env": []}
        params = {"cwd": "/", "mcpServers": [server]}
        assert (await client.request_error("session/new", params)).code == -32602
