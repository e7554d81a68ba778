"""Several processes behind one address serve each connection together."""

from pathlib import Path

import pytest

from segue.acp.http_stream import HttpStream
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
