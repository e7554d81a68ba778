"""MCP over HTTP: the package's own client, API keys, workspaces."""

from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.server.app import ServerApp
from segue.server.settings import ServerSettings
from tests.interfaces.mcp.test_server import OTHER, add_session, call, open_hub

URL = "http://localhost/mcp"


def http_client(app: Any, key: str | None) -> httpx2.AsyncClient:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app), base_url="http://localhost", headers=headers
    )


async def served(hub: Hub, tmp_path: Path) -> ServerApp:
    return ServerApp(hub, ServerSettings(directory=tmp_path))


async def test_a_key_reads_the_sessions_of_its_workspace(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        own = await add_session(hub)
        other = await add_session(hub, OTHER)
        app = await served(hub, tmp_path)
        for workspace, seen, hidden in (("local", own, other), ("other", other, own)):
            _, key = await hub.keys.create(workspace)
            async with (
                http_client(app, key) as http,
                Client(streamable_http_client(URL, http_client=http)) as client,
            ):
                answer = await call(client, "search_sessions", words="walrus")
                assert seen.id in answer and hidden.id not in answer
                refused = await call(client, "read_session", session=hidden.id)
                assert refused.startswith("ERROR")
                names = [tool.name for tool in (await client.list_tools()).tools]
                assert "set_title" not in names
        await app.close()


@pytest.mark.parametrize("key", [None, "sk-wrong"])
async def test_a_request_without_a_valid_key_is_refused(tmp_path: Path, key: str | None) -> None:
    async with open_hub(tmp_path) as hub:
        app = await served(hub, tmp_path)
        async with http_client(app, key) as http:
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            response = await http.post("/mcp", json=body)
            assert response.status_code == 401
            assert "Authentication failed" in response.text
            foreign = await http.post("/mcp", json=body, headers={"host": "evil.example"})
            assert foreign.status_code == 403
        assert (await hub.sessions.list(LOCAL)).sessions == []
        await app.close()


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_only_post_is_answered(tmp_path: Path, method: str) -> None:
    async with open_hub(tmp_path) as hub:
        app = await served(hub, tmp_path)
        _, key = await hub.keys.create("local")
        async with http_client(app, key) as http:
            headers = {"accept": "text/event-stream"}
            response = await http.request(method, "/mcp", headers=headers)
            assert response.status_code == 405 and "use POST" in response.text
        await app.close()


async def test_a_cursor_of_another_workspace_is_refused(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        for _ in range(4):
            await add_session(hub)
            await add_session(hub, OTHER, title="Quokka")
        app = await served(hub, tmp_path)
        arguments = {"words": "walrus", "order": "newest", "limit": 2}
        cursor = ""
        for workspace in ("other", "local"):
            _, key = await hub.keys.create(workspace)
            async with (
                http_client(app, key) as http,
                Client(streamable_http_client(URL, http_client=http)) as client,
            ):
                if cursor:
                    answer = await call(client, "search_sessions", **arguments, cursor=cursor)
                    assert answer.startswith("ERROR") and "Quokka" not in answer
                else:
                    answer = await call(client, "search_sessions", **arguments)
                    cursor = answer.rsplit("cursor=", 1)[1]
        await app.close()
