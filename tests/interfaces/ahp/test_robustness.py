"""Wrong messages, other versions, several clients at once and broken connections."""

from __future__ import annotations

import asyncio
import json
import socket
import uuid
from pathlib import Path
from typing import Any

import pytest
import websockets

from segue.interfaces.ahp import app
from segue.interfaces.ahp.protocol import ROOT, VERSIONS, chat_uri, choose_version, session_uri
from segue.model.content import plain_text
from segue.model.event import AgentMessage, Event
from segue.model.principal import LOCAL
from tests.interfaces.ahp.client import TIMEOUT_SECONDS, AhpServer
from tests.interfaces.ahp.test_ahp import create, running

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"channel": ROOT, "protocolVersions": ["0.9.0"], "clientId": "a"},
}


async def exchange(server: AhpServer, *messages: str | bytes) -> list[dict[str, Any]]:
    """Send messages after `initialize`, and return what the server answers to them."""
    url = f"ws://127.0.0.1:{server.port}/ahp?tkn={await server.token()}"
    async with websockets.connect(url) as link:
        await link.send(json.dumps(INITIALIZE))
        await link.recv()
        for message in messages:
            await link.send(message)
        await link.send('{"jsonrpc": "2.0", "id": "last", "method": "listSessions", "params": {}}')
        answers = []
        while (answer := json.loads(await link.recv())).get("id") != "last":
            answers.append(answer)
        return answers


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{nope", -32700),
        ("[" * 100_000, -32700),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "listSessions"}', -32700),
        ('[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', -32600),
        ("42", -32600),
        ('{"jsonrpc": "2.0", "id": 1}', -32600),
        ('{"jsonrpc": "2.0", "id": 1, "method": 7}', -32600),
        ('{"jsonrpc": "2.0", "id": [1], "method": "listSessions"}', -32600),
    ],
)
async def test_what_is_no_message_is_answered_with_an_error(
    tmp_path: Path, message: str | bytes, code: int
) -> None:
    async with running(tmp_path) as (_, server):
        (answer,) = await exchange(server, message)
        assert answer["error"]["code"] == code and answer["error"]["message"]


async def test_answers_and_unknown_notifications_are_ignored(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, server):
        for message in ('{"id": 4, "result": {}}', '{"method": "unknown"}', '{"method": "ping"}'):
            assert await exchange(server, message) == []


async def test_request_with_half_a_character_is_answered(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, server):
        request = (
            '{"jsonrpc": "2.0", "id": 7, "method": "listSessions", "params": {"cursor": "\\ud83d"}}'
        )
        (answer,) = await exchange(server, request)
        assert (answer["id"], answer["error"]["code"]) == (7, -32602)


WRONG_PARAMS: list[tuple[str, dict[str, Any]]] = [
    ("subscribe", {"channel": ROOT, "view": 3}),
    ("listSessions", {"cursor": 5}),
    ("listSessions", {"limit": True}),
    ("createChat", {"channel": "x", "chat": "x", "source": 5}),
    ("createSession", {"channel": session_uri(str(uuid.uuid4())), "workingDirectories": ["x:/"]}),
    ("fetchTurns", {"channel": chat_uri(str(uuid.uuid4()))}),
    ("initialize", {"protocolVersions": "0.9.0", "clientId": "a"}),
    ("initialize", {"protocolVersions": ["0.9.0"], "clientId": ""}),
    ("reconnect", {"clientId": "a", "lastSeenServerSeq": "x", "subscriptions": []}),
    ("reconnect", {"clientId": "a", "lastSeenServerSeq": 10**18, "subscriptions": []}),
    ("reconnect", {"clientId": "a", "lastSeenServerSeq": 0}),
]


async def test_wrong_params_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path) as (_, server), server.connect() as client:
        await client.initialize()
        for method, params in WRONG_PARAMS:
            answer = await client.raw_request(method, **params)
            assert answer["error"]["code"] == -32602, (method, answer)
    assert not caplog.records


async def test_nothing_but_a_ping_is_answered_before_initialize(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, server), server.connect() as client:
        assert await client.request("ping") is None
        assert (await client.raw_request("listSessions"))["error"]["code"] == -32600
        await client.dispatch(ROOT, "root/configChanged", config={})
        refused = await client.wait_for_action("root/configChanged")
        assert refused["rejectionReason"] == "initialize or reconnect first"


def test_later_minor_and_patch_versions_are_compatible() -> None:
    for version in (*VERSIONS, "1.4.2", "0.9.3", "0.5.2"):
        assert choose_version(["9.0.0", version, "0.9.0"]) == version
    for offered in ([], ["2.0.0"], ["0.5.0"], ["0.10.0"], ["1.0"], ["1.0.0-beta"], ["01.0.0"], [7]):
        assert choose_version(offered) is None


async def test_connection_ends_if_no_version_is_compatible(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, server), server.connect() as client:
        answer = await client.raw_request("initialize", protocolVersions=["9.0.0"], clientId="a")
        assert answer["error"]["code"] == -32005
        assert answer["error"]["data"] == {"supportedVersions": list(VERSIONS)}
        await client.closed()


async def test_ping_is_answered_while_a_long_request_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as (hub, server), server.connect() as client:
        session = await create(hub)
        await client.initialize()
        may_continue = asyncio.Event()

        async def wait(*_: Any) -> None:
            await may_continue.wait()

        monkeypatch.setattr(hub.sync, "ensure_current", wait)
        request = asyncio.ensure_future(client.request("subscribe", channel=chat_uri(session.id)))
        assert await client.request("ping") is None
        assert not request.done()
        may_continue.set()
        assert (await request)["snapshot"]["state"]["turns"]


async def test_only_one_of_two_conflicting_answers_is_accepted(tmp_path: Path) -> None:
    async with (
        running(tmp_path) as (hub, server),
        server.connect() as first,
        server.connect() as second,
    ):
        session = await create(hub)
        chat = chat_uri(session.id)
        for client in (first, second):
            await client.initialize()
            await client.request("subscribe", channel=chat)
        turn_id = await first.prompt(chat, "/ask May I?")
        calls = [await client.wait_for_action("chat/toolCallReady") for client in (first, second)]
        call = {"toolCallId": calls[0]["action"]["toolCallId"]}
        allow = {"approved": True, "confirmed": "user-action"}
        deny = {"approved": False, "reason": "denied"}
        await asyncio.gather(
            first.dispatch(chat, "chat/toolCallConfirmed", turnId=turn_id, **call, **allow),
            second.dispatch(
                chat, "chat/toolCallConfirmed", turnId=calls[1]["action"]["turnId"], **call, **deny
            ),
        )
        ended = [await client.wait_for_action("chat/turnComplete") for client in (first, second)]
        assert len(ended) == 2
        answers = await hub.history.events(LOCAL, session.id, types=("permission_answered",))
        assert len(answers) == 1
        (answer,) = answers
        states = [
            (await client.request("subscribe", channel=chat))["snapshot"]["state"]["turns"][-1]
            for client in (first, second)
        ]
        parts = [state["responseParts"] for state in states]
        assert parts[0] == parts[1]
        reasons = [
            message["params"].get("rejectionReason")
            for client in (first, second)
            for message in client.messages
            if message.get("params", {}).get("action", {}).get("type") == "chat/toolCallConfirmed"
        ]
        assert reasons.count(None) == 2 and len(reasons) == 3, (answer, reasons)


@pytest.mark.parametrize("is_sequence_lost", [True, False])
async def test_turn_that_runs_during_a_reconnect_is_complete(
    tmp_path: Path, is_sequence_lost: bool
) -> None:
    async with running(tmp_path) as (hub, server):
        session = await create(hub)
        chat = chat_uri(session.id)
        async with server.connect() as client:
            await client.initialize()
            await client.request("subscribe", channel=chat)
            await client.prompt(chat, "/slow 0.01\n/say " + " ".join(map(str, range(100))))
            seen = (await client.wait_for_action("chat/delta"))["serverSeq"]
        async with server.connect() as client:
            fields = {"clientId": "client-1", "subscriptions": [ROOT, chat]}
            last_seen = 0 if is_sequence_lost else seen
            result = await client.request("reconnect", lastSeenServerSeq=last_seen, **fields)
            states = {each["resource"]: each["state"] for each in result["snapshots"]}
            if turn := states[chat].get("activeTurn"):
                await client.wait_for_action("chat/turnComplete", turnId=turn["id"])
            state = (await client.request("subscribe", channel=chat))["snapshot"]["state"]
            (part,) = state["turns"][-1]["responseParts"]
            assert part["content"] == " ".join(map(str, range(100)))
            assert len(state["turns"]) == 2


async def test_sessions_of_other_workspaces_do_not_exist(tmp_path: Path) -> None:
    async with running(tmp_path) as (hub, server):
        session = await create(hub)
        uri, chat = session_uri(session.id), chat_uri(session.id)
        _, key = await hub.keys.create("other")
        async with server.connect(key) as client:
            result = await client.initialize(ROOT, uri, chat)
            assert [each["resource"] for each in result["snapshots"]] == [ROOT]
            source = {"kind": "fork", "chat": chat, "turnId": "x"}
            requests: dict[str, dict[str, Any]] = {
                "subscribe": {"channel": chat},
                "disposeSession": {"channel": uri},
                "createChat": {"channel": uri, "chat": chat_uri(session.id, "x"), "source": source},
                "resourceRead": {"uri": f"{uri}/content/4/0/before"},
            }
            for method, params in requests.items():
                answer = await client.raw_request(method, **params)
                assert answer["error"]["code"] == -32001, (method, answer)
            message = {"text": "Hi", "origin": {"kind": "user"}}
            actions: dict[str, dict[str, Any]] = {
                "chat/turnStarted": {"turnId": "x", "message": message},
                "chat/turnCancelled": {"turnId": "x", "duration": 0},
                "session/titleChanged": {"title": "Mine"},
                "session/isArchivedChanged": {"isArchived": True},
                "session/configChanged": {"config": {"mode": "plan"}},
                "chat/pendingMessageSet": {"kind": "queued", "id": "x", "message": message},
            }
            for name, fields in actions.items():
                await client.dispatch(chat, name, **fields)
                envelope = await client.wait_for(
                    lambda sent, name=name: (  # type: ignore[misc]
                        sent.get("params", {}).get("action", {}).get("type") == name
                        and "rejectionReason" in sent["params"]
                    )
                )
                assert session.id in envelope["params"]["rejectionReason"]
        after = await hub.sessions.get(LOCAL, session.id)
        assert (after.title, after.state, after.last_seq) == (
            session.title,
            session.state,
            session.last_seq,
        )


async def test_prompt_of_a_client_that_disconnects_at_once_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as (hub, server):
        session = await create(hub)
        may_continue, following = asyncio.Event(), asyncio.Event()

        async def wait(*_: Any) -> None:
            following.set()
            await may_continue.wait()

        monkeypatch.setattr(hub.sync, "ensure_current", wait)
        async with server.connect() as client:
            await client.initialize()
            asking = asyncio.ensure_future(
                client.raw_request("subscribe", channel=chat_uri(session.id))
            )
            await following.wait()
            await client.prompt(chat_uri(session.id), "/say after the end")
            asking.cancel()
        may_continue.set()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for event in hub.history.follow(LOCAL, session.id, session.last_seq):
                if isinstance(event, Event) and isinstance(event.body, AgentMessage):
                    assert plain_text(event.body.content) == "after the end"
                    break


async def test_client_that_does_not_read_is_disconnected_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MAX_UNREAD_BYTES", 500_000)
    async with running(tmp_path) as (hub, server):
        session = await create(hub)
        chat = chat_uri(session.id)
        url = f"ws://127.0.0.1:{server.port}/ahp?tkn={await server.token()}"
        sock = socket.create_connection(("127.0.0.1", server.port))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        options: dict[str, Any] = {"sock": sock, "max_queue": 1, "compression": None}
        async with websockets.connect(url, **options) as link:
            await link.send(json.dumps(INITIALIZE))
            subscribe = {"jsonrpc": "2.0", "id": 2, "method": "subscribe"}
            await link.send(json.dumps({**subscribe, "params": {"channel": chat}}))
            text = "x" * 200_000
            for _ in range(20):
                await hub.turns.run(LOCAL, session.id, f"/say {text}")
            with pytest.raises(websockets.ConnectionClosed) as closed:
                while True:
                    await link.recv()
            assert closed.value.rcvd is not None and closed.value.rcvd.code == app.TRY_AGAIN_LATER
        async with server.connect() as client:
            await client.initialize()
            state = (await client.request("subscribe", channel=chat))["snapshot"]["state"]
            assert len(state["turns"]) == 21
