"""Agents that another machine serves over HTTP or WebSocket answer like child processes."""

import os
import re
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_websocket
from websockets.http11 import Request, Response

from segue.acp.remote import check_url, request_headers, url_of_account
from segue.acp.websocket_stream import WebSocketStream
from segue.model.errors import AgentFailed
from segue.model.principal import LOCAL
from tests.agents.acp.test_agent import message_texts, native_ids, open_session, opened_hub
from tests.interfaces.acp.network.served import TRANSPORTS, serve


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_agent_elsewhere_answers_and_keeps_its_session(
    tmp_path: Path, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path / "server") as served:
        monkeypatch.setenv("SEGUE_ACP_TOKEN", served.key)
        url = url_of_account(f"acp+{transport}://127.0.0.1:{served.port}/acp", os.environ)
        session: str | None = None
        for number in (1, 2):
            async with opened_hub(tmp_path / "laptop") as hub:
                id, opened = await open_session(hub, url, tmp_path, session)
                session = id
                for prompt in (f"/say answer {number}", "/history"):
                    assert await hub.turns.run(LOCAL, id, prompt, opened=opened) == "end_turn"
                texts = await message_texts(hub, id)
                assert len(await native_ids(hub, id)) == 1
                await opened.close()
        assert texts == [
            "answer 1",
            "Before this turn: 1 messages of yours, 1 of mine.",
            "answer 2",
            "Before this turn: 3 messages of yours, 3 of mine.",
        ]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_refused_key_and_unreachable_server_are_reported(
    tmp_path: Path, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path / "server") as served, opened_hub(tmp_path / "laptop") as hub:
        monkeypatch.setenv("SEGUE_ACP_TOKEN", "wrong")
        for address, reason in (
            (f"{served.port}/acp", "SEGUE_ACP_TOKEN is not a key of the server: HTTP 401"),
            (f"{served.port}/wrong", "no agent at this path: HTTP 404; that of segue is /acp"),
            ("1/acp", "reached|connect|refused"),
        ):
            url = url_of_account(f"acp+{transport}://127.0.0.1:{address}", os.environ)
            agent = await hub.agents.from_spec(LOCAL, {"kind": "acp", "command": url})
            with pytest.raises(AgentFailed, match=reason):
                await agent.list_sessions()
        monkeypatch.delenv("SEGUE_ACP_TOKEN")
        url = url_of_account(f"acp+{transport}://127.0.0.1:{served.port}/acp", os.environ)
        agent = await hub.agents.from_spec(LOCAL, {"kind": "acp", "command": url})
        with pytest.raises(AgentFailed, match="needs a key: HTTP 401; set SEGUE_ACP_TOKEN"):
            await agent.list_sessions()


def test_url_and_headers_of_an_agent_elsewhere() -> None:
    for url, reason in (
        ("acp+ws://key@host/acp", "SEGUE_ACP_TOKEN"),
        ("acp+ws:///acp", "host"),
        ("acp+ws://host/acp#team", "SEGUE_ACP_ACCOUNT"),
    ):
        with pytest.raises(ValueError, match=reason):
            check_url(url)
    assert request_headers({"SEGUE_ACP_TOKEN": "t"}) == {"Authorization": "Bearer t"}
    assert request_headers({"SEGUE_ACP_HEADERS": "X-Secret-Key: a\n\nB: c: d"}) == {
        "X-Secret-Key": "a",
        "B": "c: d",
    }
    with pytest.raises(ValueError, match="Name: value"):
        request_headers({"SEGUE_ACP_HEADERS": "nonsense"})


async def test_cookies_of_a_server_are_returned_to_it() -> None:
    seen: list[str | None] = []

    def add_cookie(link: ServerConnection, request: Request, response: Response) -> None:
        seen.append(request.headers.get("Cookie"))
        response.headers["Set-Cookie"] = "affinity=worker-7; Path=/acp; HttpOnly"

    async def answer(link: ServerConnection) -> None:
        await link.wait_closed()

    async with serve_websocket(answer, "127.0.0.1", 0, process_response=add_cookie) as server:
        port = server.sockets[0].getsockname()[1]
        stream = await WebSocketStream.connect(f"ws://127.0.0.1:{port}/acp", {})
        await stream.close()
        await stream._open()  # as after a lost link
        await stream.close()
    assert seen == [None, "affinity=worker-7"]


def test_account_depends_on_the_server_and_on_the_headers_and_hides_them() -> None:
    url = "acp+ws://host/acp"
    account = url_of_account(url, {"SEGUE_ACP_TOKEN": "t"})
    assert re.fullmatch(re.escape(url) + r"#[0-9a-f]{16}", account)
    assert account == url_of_account(url, {"SEGUE_ACP_HEADERS": "authorization: Bearer t"})
    assert account != url_of_account(url, {"SEGUE_ACP_TOKEN": "u"})
    other_url = "acp+ws://other/acp"
    fingerprint = account.removeprefix(url)
    assert not url_of_account(other_url, {"SEGUE_ACP_TOKEN": "t"}).endswith(fingerprint)
    assert url_of_account(url, {}) == url
    named = {"SEGUE_ACP_TOKEN": "t", "SEGUE_ACP_ACCOUNT": "team-a"}
    assert url_of_account(url, named) == f"{url}#team-a"
    with pytest.raises(ValueError, match="SEGUE_ACP_ACCOUNT is 'a b'"):
        url_of_account(url, {"SEGUE_ACP_ACCOUNT": "a b"})


async def test_session_stored_without_an_account_does_not_continue_with_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path / "server") as served, opened_hub(tmp_path / "laptop") as hub:
        monkeypatch.setenv("SEGUE_ACP_TOKEN", served.key)
        url = f"acp+ws://127.0.0.1:{served.port}/acp"
        id, opened = await open_session(hub, url, tmp_path)
        assert await hub.turns.run(LOCAL, id, "/say hello", opened=opened) == "error"
        (failed,) = await hub.history.events(LOCAL, id, types=["failed"])
        assert "begun with another key" in failed.body.message
        await opened.close()
        assert (await served.hub.sessions.list(LOCAL)).sessions == []
