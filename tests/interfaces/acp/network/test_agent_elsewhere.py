"""`segue acp --agent acp+ws://…`: an agent on another machine gets no session of this one."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from segue.hub import Hub
from segue.model.principal import LOCAL, Principal
from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.harness import ErrorResponse
from tests.interfaces.acp.network.served import TRANSPORTS, serve
from tests.interfaces.acp.testbed import AcpTestbed


async def private_session(testbed: AcpTestbed) -> str:
    """Create a conversation that the local user had with another agent, and return its id."""
    async with testbed.hub() as hub:
        session = await hub.editor.create(LOCAL, cwd="/")
        await hub.turns.run(LOCAL, session.id, "/say a private answer")
    return session.id


async def test_agent_elsewhere_gets_its_own_sessions_only(
    testbed: AcpTestbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private_id = await private_session(testbed)
    async with serve(tmp_path / "server") as served:
        monkeypatch.setenv("SEGUE_ACP_TOKEN", served.key)
        monkeypatch.setenv("SEGUE_SOURCES", "all")  # a setting for all commands chooses nothing
        url = f"acp+ws://127.0.0.1:{served.port}/acp"
        remote = await served.hub.editor.create(LOCAL, cwd="/")
        await served.hub.turns.run(LOCAL, remote.id, "/say of the server")
        async with testbed.connect_child(1, "--agent", url) as (client, _):
            listed = await client.request("session/list", {})
            assert [row["sessionId"] for row in listed["sessions"]] == [remote.id]
            for method in ("load", "resume", "fork"):
                with pytest.raises(
                    ErrorResponse, match=r"conversation there \(2 messages"
                ) as error:
                    await client.open_session(method, private_id, "/")
                assert url in str(error.value)
            for method, more in (("delete", {}), ("set_title", {"title": "x"})):
                with pytest.raises(ErrorResponse, match="not one of"):
                    await client.request(f"session/{method}", {"sessionId": private_id, **more})
            assert ("agent", "of the server") in conversation(await client.replay(remote.id, "/"))
            assert await client.run_prompt(remote.id, "/say more") == "end_turn"
            new_id = await client.new_session("/")
            assert await client.run_prompt(new_id, "/say new") == "end_turn"
        async with testbed.connect_child(1, "--agent", url) as (client, _):
            listed = await client.request("session/list", {})
            assert {row["sessionId"] for row in listed["sessions"]} == {remote.id, new_id}
            assert ("agent", "more") in conversation(await client.replay(remote.id, "/"))
            await client.open_session("resume", new_id, "/")
            assert await client.run_prompt(new_id, "/say again") == "end_turn"
        assert "private" not in await stored_text(served.hub)


async def test_option_sources_lets_an_agent_elsewhere_get_local_sessions(
    testbed: AcpTestbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private_id = await private_session(testbed)
    async with serve(tmp_path / "server") as served:
        monkeypatch.setenv("SEGUE_ACP_TOKEN", served.key)
        agent = ("--agent", f"acp+ws://127.0.0.1:{served.port}/acp")
        async with testbed.connect_child(1, *agent, "--sources", "none") as (client, _):
            assert (await client.request("session/list", {}))["sessions"] == []
        async with testbed.connect_child(1, *agent, "--sources", "claude") as (client, _):
            listed: dict[str, Any] = await client.request("session/list", {})
            assert [row["sessionId"] for row in listed["sessions"]] == [private_id]
            await client.open_session("load", private_id, "/")
            assert await client.run_prompt(private_id, "/say shared") == "end_turn"
        assert "private" in await stored_text(served.hub)


async def stored_text(hub: Hub, principal: Principal = LOCAL) -> str:
    """Return all that a hub has stored of the sessions of a workspace."""
    texts = []
    for session in (await hub.sessions.list(principal)).sessions:
        texts += [str(event.body) async for event in hub.history.read(principal, session.id)]
    return "\n".join(texts)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_sessions_of_one_key_do_not_reach_the_workspace_of_another(
    testbed: AcpTestbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    team_b = Principal(workspace="team-b", local=True)
    async with serve(tmp_path / "server") as served:
        _, key_b = await served.hub.keys.create("team-b")
        url = f"acp+{transport}://127.0.0.1:{served.port}/acp"
        monkeypatch.setenv("SEGUE_ACP_TOKEN", served.key)
        async with testbed.connect_child(1, "--agent", url) as (client, _):
            id = await client.new_session("/")
            assert await client.run_prompt(id, "/say a private answer") == "end_turn"

        monkeypatch.setenv("SEGUE_ACP_TOKEN", key_b)
        async with testbed.connect_child(1, "--agent", url) as (client, _):
            assert (await client.request("session/list", {}))["sessions"] == []
            for method in ("load", "resume", "fork"):
                with pytest.raises(ErrorResponse, match="begun with another key"):
                    await client.open_session(method, id, "/")
            for method, more in (("delete", {}), ("set_title", {"title": "x"})):
                with pytest.raises(ErrorResponse, match="begun with another key"):
                    await client.request(f"session/{method}", {"sessionId": id, **more})
            with pytest.raises(ErrorResponse, match="session not found"):
                await client.run_prompt(id, "/history")
            other_id = await client.new_session("/")
            assert await client.run_prompt(other_id, "/say of team b") == "end_turn"
        async with testbed.hub() as hub:  # as `segue prompt` does
            assert await hub.turns.run(LOCAL, id, "/history") == "error"
            stored = await stored_text(hub)
            assert "begun with another key" in stored
            assert key_b not in stored
        assert "of team b" in await stored_text(served.hub, team_b)
        assert "private" not in await stored_text(served.hub, team_b)

        monkeypatch.setenv("SEGUE_ACP_TOKEN", served.key)
        async with testbed.connect_child(1, "--agent", url) as (client, _):
            (row,) = (await client.request("session/list", {}))["sessions"]
            assert row["sessionId"] == id
            assert ("agent", "a private answer") in conversation(await client.replay(id, "/"))
            assert await client.run_prompt(id, "/say more") == "end_turn"
        assert "more" in await stored_text(served.hub)


async def test_named_account_keeps_its_sessions_when_its_key_is_replaced(
    testbed: AcpTestbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path / "server") as served:
        url = f"acp+ws://127.0.0.1:{served.port}/acp"
        monkeypatch.setenv("SEGUE_ACP_ACCOUNT", "team-a")
        monkeypatch.setenv("SEGUE_ACP_TOKEN", served.key)
        async with testbed.connect_child(1, "--agent", url) as (client, _):
            id = await client.new_session("/")
            assert await client.run_prompt(id, "/say before") == "end_turn"
        monkeypatch.setenv("SEGUE_ACP_TOKEN", (await served.hub.keys.create("local"))[1])
        async with testbed.connect_child(1, "--agent", url) as (client, _):
            (row,) = (await client.request("session/list", {}))["sessions"]
            assert row["sessionId"] == id
            await client.open_session("load", id, "/")
            assert await client.run_prompt(id, "/say after") == "end_turn"


async def test_initialize_succeeds_if_the_server_only_fails_for_a_moment(
    testbed: AcpTestbed,
) -> None:
    async def fail(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(fail, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        agent = ("--agent", f"acp+ws://127.0.0.1:{port}/acp")
        warning = "refused the connection: the server answered HTTP 503"
        async with testbed.connect_child(1, *agent, warning=warning) as (client, _):
            with pytest.raises(ErrorResponse, match=warning):
                await client.request("session/new", {"cwd": "/", "mcpServers": []})


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_initialize_fails_if_the_server_refuses_the_connection(
    testbed: AcpTestbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    async with serve(tmp_path / "server") as served:
        url = f"acp+{transport}://127.0.0.1:{served.port}"
        for path, token, reason in (
            ("/acp", "wrong", "SEGUE_ACP_TOKEN is not a key of the server: HTTP 401"),
            ("/acp", "", "the server needs a key: HTTP 401; set SEGUE_ACP_TOKEN"),
            ("/wrong", served.key, "no agent at this path: HTTP 404"),
        ):
            monkeypatch.setenv("SEGUE_ACP_TOKEN", token)
            agent = ("--agent", url + path)
            async with testbed.connect_child(1, *agent, initialize=False) as (client, _):
                for _attempt in range(2):
                    with pytest.raises(ErrorResponse, match=reason):
                        await client.initialize()
                with pytest.raises(ErrorResponse, match="send `initialize` first"):
                    await client.request("session/list", {})
