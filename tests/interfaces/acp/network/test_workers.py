"""Several processes behind one address serve each connection together."""

import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from segue.acp.http_stream import HttpStream
from segue.acp.resumable import cursor_of
from segue.interfaces.acp.network import registry
from segue.server.peers import WorkerPeers
from tests.clients.rest_server import serving
from tests.interfaces.acp.harness import Client
from tests.interfaces.acp.network.served import LineTransport, serve
from tests.interfaces.acp.network.test_http import INITIALIZE, events, request


async def test_request_reaches_the_process_that_has_its_connection(tmp_path: Path) -> None:
    ports = tmp_path / "ports"
    ports.mkdir()
    data = tmp_path / "data"
    peers = [WorkerPeers(ports, number) for number in range(2)]
    async with (
        serve(data, peers=peers[0]) as first,
        serve(data, peers=peers[1]) as second,
        first.http() as client,
    ):
        for number, served in enumerate((first, second)):
            (ports / str(number)).write_text(str(served.port))
        response = await client.post(first.url, json=INITIALIZE)
        connection = {"acp-connection-id": response.headers["acp-connection-id"]}
        listing = request("session/list")
        response = await client.post(second.url, json=listing, headers=connection)
        assert (response.status_code, response.content) == (202, b"")
        stream = {**connection, "accept": "text/event-stream"}
        async with client.stream("GET", second.url, headers=stream) as streamed:
            ((_, answer),) = await events(streamed, 1)
            assert answer["result"]["sessions"] == []
        without_key = {**connection, "x-api-key": "wrong"}
        response = await client.post(second.url, json=listing, headers=without_key)
        assert response.status_code == 401
        for unknown in ("7-x", "1-x", "99999999-x", "-x", "x"):
            headers = {"acp-connection-id": unknown}
            response = await client.post(second.url, json=listing, headers=headers)
            assert response.status_code == 404
        (ports / "0").write_text("1")  # a port on which no process listens
        response = await client.post(second.url, json=listing, headers=connection)
        assert response.status_code == 503
        for peer in peers:
            await peer.close()


async def test_websocket_resumes_through_any_process(tmp_path: Path) -> None:
    ports = tmp_path / "ports"
    ports.mkdir()
    peers = [WorkerPeers(ports, number) for number in range(2)]
    async with (
        serve(tmp_path / "data", peers=peers[0]) as first,
        serve(tmp_path / "data", peers=peers[1]) as second,
    ):
        for number, served in enumerate((first, second)):
            (ports / str(number)).write_text(str(served.port))
        headers = first.headers()
        async with websocket(first.port, headers) as socket:
            id = socket.response.headers["acp-connection-id"]
            resumable = {"transport": {"resumable": {}}}
            info = {"name": "a", "version": "1"}
            params = {"protocolVersion": 2, "info": info, "capabilities": resumable}
            await socket.send(json.dumps(request("initialize", **params)))
            cursor = cursor_of(json.loads(await socket.recv()))
        resume = {"jsonrpc": "2.0", "method": "stream/resume"}
        for connection_id, answers in ((id, True), ("0-unknown", False), ("1-x", False)):
            async with websocket(second.port, headers) as socket:
                params = {"connectionId": connection_id, "cursor": cursor}
                await socket.send(json.dumps({**resume, "params": params}))
                await socket.send(json.dumps(request("session/list")))
                message = json.loads(await socket.recv())
                if answers:
                    assert message["result"]["sessions"] == []
                else:
                    assert message["method"] == "stream/resume_failed"
        for peer in peers:
            await peer.close()


def websocket(port: int, headers: dict[str, str]) -> Any:
    return connect(f"ws://127.0.0.1:{port}/acp", additional_headers=headers, proxy=None)


async def test_one_key_has_a_limit_of_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "MAX_CONNECTIONS_OF_CALLER", 2)
    async with serve(tmp_path / "data") as served, served.http() as client:
        opened = [await client.post(served.url, json=INITIALIZE) for _ in range(3)]
        assert [response.status_code for response in opened] == [200, 200, 429]
        assert "2 ACP connections" in opened[2].text
        _, other = await served.hub.keys.create("local")
        response = await client.post(served.url, json=INITIALIZE, headers={"x-api-key": other})
        assert response.status_code == 200
        connection = {"acp-connection-id": opened[0].headers["acp-connection-id"]}
        assert (await client.delete(served.url, headers=connection)).status_code == 202
        assert (await client.post(served.url, json=INITIALIZE)).status_code == 200


@pytest.mark.full
async def test_client_of_a_server_with_workers_prompts_and_loads(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--workers", "3") as server:
        stream = HttpStream(f"{server.url}/acp", {"x-api-key": server.key})
        client = Client(LineTransport(stream), 1)
        await client.initialize()
        session = await client.new_session("/")
        for number in range(10):
            assert await client.run_prompt(session, f"/say number {number}") == "end_turn"
        texts = [
            update.body["content"]["text"]
            for update in await client.replay(session, "/")
            if update.kind == "agent_message_chunk"
        ]
        assert texts == [f"number {number}" for number in range(10)]
        await stream.close()
        await client.end()
