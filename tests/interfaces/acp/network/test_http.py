"""Requests to /acp: statuses, headers, streams, and what keys may do."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect as connect_websocket
from websockets.exceptions import ConnectionClosed, InvalidStatus

from segue.http.limits import caller_of
from segue.interfaces.acp.network import stream as stream_module
from segue.model.content import Text
from segue.model.event import UserMessage
from segue.model.principal import LOCAL
from segue.server.connections import ConnectionLimits
from tests.interfaces.acp.network.served import PAIRS, Served, serve

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": 1, "clientCapabilities": {}},
}
UNKNOWN_SESSION = "01a1ecb4-1250-709b-ad6e-07648173598a"


def request(method: str, id: int = 2, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


async def initialized(client: httpx2.AsyncClient, url: str) -> dict[str, str]:
    """Initialize a connection, and return the header that names it."""
    response = await client.post(url, json=INITIALIZE)
    assert (response.status_code, response.json()["id"]) == (200, 1)
    return {"acp-connection-id": response.headers["acp-connection-id"]}


async def events(response: httpx2.Response, count: int) -> list[tuple[str, dict[str, Any]]]:
    """Return the id and the message of the next events of a stream."""
    messages: list[tuple[str, dict[str, Any]]] = []
    id = ""
    async with asyncio.timeout(30):
        async for line in response.aiter_lines():
            if line.startswith("id: "):
                id = line.removeprefix("id: ")
            elif line.startswith("data: "):
                messages.append((id, json.loads(line.removeprefix("data: "))))
                if len(messages) == count:
                    return messages
    raise AssertionError(f"the stream ended after {messages}")


async def test_statuses_of_requests(tmp_path: Path) -> None:
    async with serve(tmp_path / "data") as served, served.http() as client:
        url = served.url
        connection = await initialized(client, url)
        other = {"acp-connection-id": "unknown"}
        stream = {"accept": "text/event-stream"}
        prompt = request("session/prompt", sessionId=UNKNOWN_SESSION, prompt=[])
        wrong_session = {**connection, "acp-session-id": "another"}
        text = {**connection, "content-type": "text/plain"}
        as_json = {**connection, "content-type": "application/json"}
        cases: list[tuple[int, Any]] = [
            (202, client.post(url, json=request("session/list"), headers=connection)),
            (400, client.post(url, json=INITIALIZE, headers=connection)),
            (400, client.post(url, json=request("session/list"))),
            (404, client.post(url, json=request("session/list"), headers=other)),
            (415, client.post(url, content=b"{}", headers=text)),
            (400, client.post(url, content=b"{nonsense", headers=as_json)),
            (400, client.post(url, content=b"1", headers=as_json)),
            (501, client.post(url, json=[request("session/list")], headers=connection)),
            (400, client.post(url, json=prompt, headers=wrong_session)),
            (202, client.post(url, json=prompt, headers=connection)),
            (406, client.get(url, headers=connection)),
            (400, client.get(url, headers=stream)),
            (404, client.get(url, headers={**stream, **other})),
            (404, client.get(url, headers={**stream, **connection, "acp-session-id": "x"})),
            (409, client.get(url, headers={**stream, **connection, "last-event-id": "999"})),
            (405, client.put(url, headers=connection)),
            (400, client.delete(url)),
            (404, client.delete(url, headers=other)),
            (202, client.delete(url, headers=connection)),
            (404, client.delete(url, headers=connection)),
            (400, client.post(url, json={**INITIALIZE, "params": {"protocolVersion": 0}})),
            (400, client.post(url, json={**INITIALIZE, "id": None})),
            (400, client.post(url, json={**INITIALIZE, "jsonrpc": "1.0"})),
        ]
        for index, (status, response) in enumerate(cases):
            answer = await response
            assert answer.status_code == status, (index, answer.text)
            assert status == 202 or "message" in answer.json()["error"]


async def test_stream_has_one_reader_and_keeps_messages_until_it_comes(tmp_path: Path) -> None:
    async with serve(tmp_path / "data") as served, served.http() as client:
        connection = await initialized(client, served.url)
        stream = {**connection, "accept": "text/event-stream"}
        new = request("session/new", cwd="/", mcpServers=[])
        await client.post(served.url, json=new, headers=connection)
        async with client.stream("GET", served.url, headers=stream) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            ((_, answer),) = await events(response, 1)
            assert (await client.get(served.url, headers=stream)).status_code == 409
        session = answer["result"]["sessionId"]
        of_session = {**stream, "acp-session-id": session}
        prompt = [{"type": "text", "text": "/say hi"}]
        message = request("session/prompt", 3, sessionId=session, prompt=prompt)
        await client.post(served.url, json=message, headers=connection)
        async with client.stream("GET", served.url, headers=of_session) as response:
            first = await events(response, 3)
        # The client got the third message, but the link was lost before it read the second.
        again = {**of_session, "last-event-id": first[0][0]}
        # The server does not know that the first of these links is lost too.
        async with (
            client.stream("GET", served.url, headers=again) as lost,
            client.stream("GET", served.url, headers=again) as newest,
        ):
            assert await events(newest, 2) == first[1:]
            async with asyncio.timeout(30):
                async for _ in lost.aiter_bytes():
                    pass


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"x-api-key": "sk-segue-wrong"}, 401),
        ({"authorization": "Bearer KEY"}, 200),
        ({"x-api-key": "KEY", "host": "other.example"}, 403),
        ({"x-api-key": "KEY", "origin": "https://other.example"}, 403),
        ({"x-api-key": "KEY", "origin": "http://localhost:3000"}, 200),
    ],
)
async def test_key_host_and_origin_are_checked(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    async with serve(tmp_path / "data") as served, served.http(headers={}) as client:
        headers = {name: value.replace("KEY", served.key) for name, value in headers.items()}
        response = await client.post(served.url, json=INITIALIZE, headers=headers)
        assert response.status_code == status
        url = served.url.replace("http", "ws")
        host = headers.pop("host", None)
        if host is not None:  # the client library sets this header itself
            return
        origin = headers.pop("origin", None)
        try:
            async with connect_websocket(url, additional_headers=headers, origin=origin) as link:  # type: ignore[arg-type]
                assert link.response is not None
                assert link.response.headers["acp-connection-id"]
                assert status == 200
        except InvalidStatus as error:
            assert error.response.status_code == status


async def test_websocket_answers_what_is_no_message_before_initialize(tmp_path: Path) -> None:
    async with serve(tmp_path / "data") as served:
        url, headers = served.url.replace("http", "ws"), {"x-api-key": served.key}
        async with connect_websocket(url, additional_headers=headers) as link:
            for text, code in (("{nonsense", -32700), (json.dumps([INITIALIZE]), -32600)):
                await link.send(text)
                answer = json.loads(await link.recv())
                assert (answer["id"], answer["error"]["code"]) == (None, code)
            await link.send(json.dumps(INITIALIZE))
            assert json.loads(await link.recv())["result"]["protocolVersion"] == 1


async def test_websocket_is_refused_on_other_paths(tmp_path: Path) -> None:
    async with serve(tmp_path / "data") as served:
        for path in ("/search", "/v1/sessions", "/acp/"):
            url = f"ws://127.0.0.1:{served.port}{path}"
            with pytest.raises(InvalidStatus) as caught:
                await connect_websocket(url, additional_headers=served.headers())
            assert caught.value.response.status_code == 404


@pytest.mark.parametrize(("transport", "version"), PAIRS)
async def test_key_cannot_choose_directories_or_programs_of_the_server(
    tmp_path: Path, transport: str, version: int
) -> None:
    server = {"name": "s", "type": "stdio", "command": "/bin/sh", "args": [], "env": []}
    async with serve(tmp_path / "data") as served, served.connect(transport, version) as client:
        for field, value in (("mcpServers", [server]), ("additionalDirectories", ["/etc"])):
            params = {"cwd": "/etc", "mcpServers": [], field: value}
            error = await client.request_error("session/new", params)
            assert (error.code, error.message.partition(":")[0]) == (-32602, field)
        opened = await client.request("session/new", {"cwd": "/etc", "mcpServers": []})
        session = await served.hub.sessions.get(LOCAL, opened["sessionId"])
        assert session.cwd == opened["_meta"]["segue"]["cwd"]
        assert session.cwd == str(tmp_path / "data" / "work" / session.id)
        assert await client.run_prompt(session.id, "/read /etc/hostname") == "end_turn"
        forked = await client.request(
            "session/fork", {"sessionId": session.id, "cwd": "/etc", "mcpServers": []}
        )
        fork = await served.hub.sessions.get(LOCAL, forked["sessionId"])
        assert fork.cwd == session.cwd


async def test_key_opens_a_session_of_the_local_user_and_changes_nothing_of_it(
    tmp_path: Path, version: int
) -> None:
    async with serve(tmp_path / "data") as served, served.connect("ws", version) as client:
        session = await served.hub.editor.create(LOCAL, cwd=str(tmp_path), roots=("/usr",))
        await client.open_session("resume", session.id, "/home/me/project")
        after = await served.hub.sessions.get(LOCAL, session.id)
        assert (after.cwd, after.roots) == (str(tmp_path), ("/usr",))
        # A permission request of the local user's turn is not the key's to answer.
        turn = await served.hub.turns.submit(LOCAL, session.id, "/ask May I?\n/say after")
        await client.wait_for_update(lambda update: "toolCallId" in update.body)
        await asyncio.sleep(0.1)
        assert client.permission_requests == []
        row = await served.hub.sessions.get(LOCAL, session.id)
        await served.hub.turns.answer(LOCAL, session.id, row.open_asks[0], "allow")
        await served.hub.turns.wait(LOCAL, session.id, turn)


async def test_connection_belongs_to_its_key(tmp_path: Path) -> None:
    async with serve(tmp_path / "data") as served, served.http() as client:
        connection = await initialized(client, served.url)
        _, other_key = await served.hub.keys.create("local")
        _, stranger = await served.hub.keys.create("elsewhere")
        for key in (other_key, stranger):
            headers = {**connection, "x-api-key": key}
            response = await client.post(served.url, json=request("session/list"), headers=headers)
            assert response.status_code == 404
        session = await served.hub.editor.create(LOCAL)
        async with served.connect("ws", 1, key=stranger) as other:
            error = await other.request_error(
                "session/load", {"sessionId": session.id, "cwd": "/", "mcpServers": []}
            )
            assert error.code == -32002


async def test_streams_end_after_their_key_was_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segue.http.keys.KEY_CHECK_SECONDS", 0.05)
    async with serve(tmp_path / "data") as served, served.http() as client:
        connection = await initialized(client, served.url)
        stream = {**connection, "accept": "text/event-stream"}
        url = served.url.replace("http", "ws")
        link = await connect_websocket(url, additional_headers=served.headers())
        await link.send(json.dumps(INITIALIZE))
        await link.recv()
        async with client.stream("GET", served.url, headers=stream) as response:
            (key,) = await served.hub.keys.list("local")
            await served.hub.keys.revoke("local", key.id)
            async with asyncio.timeout(30):
                async for _ in response.aiter_bytes():
                    pass
        with pytest.raises(ConnectionClosed) as caught:
            await link.recv()
        assert caught.value.rcvd is not None and caught.value.rcvd.code == 1008


async def test_rate_limit_counts_posts_and_delays_websocket_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segue.http.websocket.RATE_LIMIT_PAUSE_SECONDS", 0.01)
    seconds = 0.0  # of the limiter's clock, so that no token comes back in between
    async with serve(tmp_path / "data", rate_limit=60) as served, served.http() as client:
        limiter = served.app.acp._rate_limiter
        monkeypatch.setattr(limiter, "_now", lambda: seconds)
        connection = await initialized(client, served.url)
        statuses = [
            (await client.post(served.url, json=request("x", n), headers=connection)).status_code
            for n in range(65)
        ]
        assert statuses == [202] * 59 + [429] * 6
        _, other = await served.hub.keys.create("local")
        async with served.connect("ws", 1, key=other) as link:
            requests = asyncio.gather(*[link.request("session/list", {}) for _ in range(60)])
            caller = caller_of(await served.hub.keys.authenticate(other))
            while limiter._buckets[caller][0] >= 1:
                await asyncio.sleep(0.01)
            assert not requests.done()
            seconds = 60.0
            await requests  # the last messages waited for tokens


async def test_slow_reader_is_bounded_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "MAX_UNSENT_BYTES", 4096)
    monkeypatch.setattr(stream_module, "MAX_KEPT_BYTES", 4096)
    async with serve(tmp_path / "data") as served, served.http() as client:
        connection = await initialized(client, served.url)
        stream = {**connection, "accept": "text/event-stream"}
        new = request("session/new", cwd="/", mcpServers=[])
        await client.post(served.url, json=new, headers=connection)
        async with client.stream("GET", served.url, headers=stream) as response:
            ((_, answer),) = await events(response, 1)
        session = answer["result"]["sessionId"]
        prompt = [{"type": "text", "text": "/repeat 300 " + "x" * 100}]
        message = request("session/prompt", 3, sessionId=session, prompt=prompt)
        await client.post(served.url, json=message, headers=connection)
        while (await served.hub.sessions.get(LOCAL, session)).status != "idle":
            await asyncio.sleep(0.02)  # the turn does not wait for the reader
        kept = served.app.acp.connections.find(
            connection["acp-connection-id"], await served.hub.keys.authenticate(served.key)
        )
        assert kept is not None
        outbound = kept.session_stream(session)
        assert outbound is not None
        assert outbound._unsent_bytes < 2 * 4096
        of_session = {**stream, "acp-session-id": session}
        async with client.stream("GET", served.url, headers=of_session) as response:
            received = await events(response, 303)
        texts = [
            m["params"]["update"]["content"]["text"]
            for _, m in received
            if "update" in str(m) and "content" in m["params"]["update"]
        ]
        assert "".join(texts).count("x") == 300 * 100


async def idle_connections(served: Served, count: int) -> None:
    """Open idle WebSockets, and check that a further client is served."""
    url = served.url.replace("http", "ws")
    links = []
    for _ in range(count):
        link = await connect_websocket(url, additional_headers=served.headers())
        await link.send(json.dumps(INITIALIZE))
        links.append(link)
    for link in links:
        assert json.loads(await link.recv())["result"]["protocolVersion"] == 1
    async with served.connect("http", 2) as client:
        assert (await client.request("session/list", {}))["sessions"] == []
    for link in links:
        await link.close()


async def test_idle_connections_do_not_disturb_others(tmp_path: Path) -> None:
    async with serve(tmp_path / "data") as served:
        await idle_connections(served, 25)


@pytest.mark.full
async def test_five_hundred_idle_connections_do_not_disturb_others(tmp_path: Path) -> None:
    async with serve(tmp_path / "data") as served:
        await idle_connections(served, 500)


async def test_websocket_counts_as_a_connection_until_it_is_closed(tmp_path: Path) -> None:
    limits = ConnectionLimits(max_connections=1)
    async with serve(tmp_path / "data", limits=limits) as served:
        url = served.url.replace("http", "ws")
        link = await connect_websocket(url, additional_headers=served.headers())
        with pytest.raises(InvalidStatus) as caught:
            await connect_websocket(url, additional_headers=served.headers())
        assert caught.value.response.status_code == 503
        await link.close()
        for _ in range(100):
            try:
                link = await connect_websocket(url, additional_headers=served.headers())
                break
            except InvalidStatus:
                await asyncio.sleep(0.02)
        else:
            raise AssertionError("the closed WebSocket still counts")
        await link.close()


async def test_websocket_that_is_not_read_is_closed(tmp_path: Path) -> None:
    limits = ConnectionLimits(max_connections=10, write_seconds=0.2)
    async with serve(tmp_path / "data", limits=limits) as served:
        session = await served.hub.editor.create(LOCAL)
        message = UserMessage(content=(Text(text="x" * 100_000),))
        await served.hub.editor.append(LOCAL, session.id, *[message] * 200)
        url = served.url.replace("http", "ws")
        link = await connect_websocket(
            url, additional_headers=served.headers(), max_queue=1, compression=None
        )
        await link.send(json.dumps(INITIALIZE))
        await link.recv()
        load = request("session/load", sessionId=session.id, cwd="/", mcpServers=[])
        await link.send(json.dumps(load))
        async with asyncio.timeout(30):
            while served.app.acp.connections.count:
                await asyncio.sleep(0.02)
        link.transport.abort()


async def test_unused_connection_is_closed_and_its_turn_is_not_cancelled(tmp_path: Path) -> None:
    async with serve(tmp_path / "data") as served, served.http() as client:
        connection = await initialized(client, served.url)
        session = await served.hub.editor.create(LOCAL)
        resume = request("session/resume", sessionId=session.id, cwd="/", mcpServers=[])
        await client.post(served.url, json=resume, headers=connection)
        stream = {**connection, "accept": "text/event-stream"}
        async with client.stream("GET", served.url, headers=stream) as response:
            await events(response, 1)
        prompt = [{"type": "text", "text": "/wait 0.2\n/say done"}]
        message = request("session/prompt", 3, sessionId=session.id, prompt=prompt)
        await client.post(served.url, json=message, headers=connection)
        while (await served.hub.sessions.get(LOCAL, session.id)).status != "running":
            await asyncio.sleep(0.01)
        for _ in range(100):
            served.app.acp.connections.close_unused(before=float("inf"))
            response = await client.post(
                served.url, json=request("session/list"), headers=connection
            )
            if response.status_code == 404:
                break
            await asyncio.sleep(0.02)  # until the server has noticed that the reader is gone
        else:
            raise AssertionError("the connection is still open")
        while (await served.hub.sessions.get(LOCAL, session.id)).status != "idle":
            await asyncio.sleep(0.02)
        messages = await served.hub.history.events(LOCAL, session.id, types=["agent_message"])
        assert "done" in str(messages[-1].body)
