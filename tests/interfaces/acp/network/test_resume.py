"""A client that loses its link gets every update exactly once, a moment or a day later."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from segue.acp.http_stream import HttpStream
from segue.acp.resumable import cursor_of
from segue.acp.websocket_stream import WebSocketStream
from tests.cutting_proxy import CuttingProxy
from tests.interfaces.acp.network.served import PAIRS, TRANSPORTS, Served, serve
from tests.interfaces.acp.schema import check

SECONDS = 60
WORDS = "one two three four five six seven eight nine ten " * 3
TURN = f"/slow 0.001\n/say {WORDS}\n/think hm hm\n/tool ls a b\n/plan one; x two\n/say {WORDS}end"
# Updates that a server repeats when a client resumes in version 2: they are states, not news.
STATES = ("state_update", "session_info_update")


class RawClient:
    """A client that keeps every update with its cursor."""

    def __init__(self, stream: HttpStream | WebSocketStream, version: int) -> None:
        self._stream = stream
        self._version = version
        self._ids = iter(range(1, 10**6))
        self._methods: dict[int, str] = {}
        self._results: dict[int, Any] = {}
        self._changed = asyncio.Event()
        self.updates: list[tuple[str, dict[str, Any]]] = []
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while line := await self._stream.read_line():
            message = json.loads(line)
            check(self._version, message, self._methods.get(message.get("id")))
            if message.get("method") == "session/update":
                cursor = cursor_of(message)
                assert cursor is not None
                self.updates.append((cursor, message["params"]["update"]))
            elif "method" not in message:
                self._results[message["id"]] = message
            self._changed.set()

    async def request(self, method: str, **params: Any) -> Any:
        id = next(self._ids)
        self._methods[id] = method
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        await self._stream.write(json.dumps(message).encode() + b"\n")
        await self.wait_until(lambda: id in self._results)
        assert "result" in self._results[id], self._results[id]
        return self._results[id]["result"]

    async def wait_until(self, condition: Any) -> None:
        async with asyncio.timeout(SECONDS):
            while not condition():
                assert not self._task.done(), "the server has closed the connection"
                self._changed.clear()
                await self._changed.wait()

    async def initialize(self) -> None:
        info = {"info": {"name": "raw", "version": "1"}} if self._version == 2 else {}
        await self.request("initialize", protocolVersion=self._version, **info)

    async def prompt(self, session: str, text: str) -> None:
        """Run a turn to its end."""
        prompt = [{"type": "text", "text": text}]
        before = len(self.updates)
        await self.request("session/prompt", sessionId=session, prompt=prompt)
        if self._version == 2:
            await self.wait_until(
                lambda: any(u.get("stopReason") for _, u in self.updates[before:])
            )

    async def resume(self, session: str, cursor: str) -> list[tuple[str, dict[str, Any]]]:
        """Resume a session after a cursor, and return the updates that this brings."""
        common: dict[str, Any] = {"sessionId": session, "cwd": "/", "mcpServers": []}
        if self._version == 1:
            await self.request("session/load", **common, _meta={"acp/cursor": cursor})
        else:
            start = {"type": "cursor", "cursor": cursor}
            await self.request("session/resume", **common, replayFrom=start)
        return self.updates

    async def close(self) -> None:
        await self._stream.close()
        await self._task


@asynccontextmanager
async def connect(
    served: Served, transport: str, version: int, port: int | None = None
) -> AsyncIterator[RawClient]:
    address = f"{transport}://127.0.0.1:{port or served.port}/acp"
    stream: HttpStream | WebSocketStream
    if transport == "ws":
        stream = await WebSocketStream.connect(address, served.headers())
    else:
        stream = HttpStream(address, served.headers())
    client = RawClient(stream, version)
    try:
        await client.initialize()
        yield client
    finally:
        await client.close()


def story(updates: list[tuple[str, dict[str, Any]]], version: int) -> list[Any]:
    """Return what a client shows after these updates: texts by message, and all other updates.

    In version 1, a chunk is added to its message. In version 2, a message replaces it.
    """
    texts: dict[str, str] = {}
    others: list[Any] = []
    for _, update in updates:
        kind = update["sessionUpdate"]
        if message := update.get("messageId"):
            content = update["content"]
            whole = isinstance(content, list)
            text = "".join(block["text"] for block in (content if whole else [content]))
            texts[message] = text if whole else texts.get(message, "") + text
            if not whole and version == 2:
                continue
            if whole:
                others.append((kind, message))
        elif kind not in STATES or version == 1:
            others.append(update)
    return [texts, others]


async def run_with_cuts(served: Served, transport: str, version: int, seed: int) -> int:
    """Compare a client whose link is cut at random points with one whose link is not."""
    # Responses to POST are shorter than any limit; only streams are that long.
    limit = partial(random.Random(seed).randrange, 300, 3000)
    async with (
        CuttingProxy.open(served.port, limit) as proxy,
        connect(served, transport, version) as author,
        connect(served, transport, version) as whole,
        connect(served, transport, version, proxy.port) as cut,
    ):
        session = (await author.request("session/new", cwd="/", mcpServers=[]))["sessionId"]
        for client in (whole, cut):
            opening = {"sessionId": session, "cwd": "/", "mcpServers": []}
            await client.request("session/resume", **opening)
        proxy.is_cutting = True
        await author.prompt(session, TURN)
        marker = f"the last message {seed}"
        await author.prompt(session, f"/say {marker}")
        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                for client in (whole, cut, whole):
                    await client.wait_until(
                        lambda client=client: (
                            marker in story(client.updates, version)[0].values()
                            and len(story(client.updates, version)[1])
                            >= len(story(author.updates, version)[1])
                        )
                    )
        await asyncio.sleep(0.05)
        assert story(cut.updates, version) == story(whole.updates, version)
        cursors = [cursor for cursor, _ in cut.updates]
        assert len(set(cursors)) == len(cursors)
        return proxy.cuts


@pytest.mark.parametrize(("transport", "version"), PAIRS)
async def test_no_update_is_lost_or_doubled_when_the_link_is_cut(
    tmp_path: Path, transport: str, version: int
) -> None:
    async with serve(tmp_path / "data") as served:
        assert await run_with_cuts(served, transport, version, seed=1) >= 2


@pytest.mark.full
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_no_update_is_lost_or_doubled_at_a_thousand_cuts(
    tmp_path: Path, transport: str, version: int
) -> None:
    async with serve(tmp_path / "data") as served:
        cuts, seed = 0, 0
        while cuts < 250:  # of each transport and version, so 1,000 together
            seed += 1
            cuts += await run_with_cuts(served, transport, version, seed)


async def check_later_resumes(directory: Path, version: int, points: int) -> None:
    """Compare all updates with those before a cursor and those after it, in a new server."""
    async with (
        serve(directory) as served,
        connect(served, "ws", version) as author,
        connect(served, "ws", version) as reader,
    ):
        session = (await author.request("session/new", cwd="/", mcpServers=[]))["sessionId"]
        await reader.request("session/resume", sessionId=session, cwd="/", mcpServers=[])
        await author.prompt(session, TURN)
        await author.prompt(session, "/say the end")
        await reader.wait_until(
            lambda: (
                "the end" in story(reader.updates, version)[0].values()
                and len(reader.updates) >= len(author.updates) - 2
            )
        )
        await asyncio.sleep(0.1)
        updates = list(reader.updates)
    whole = story(updates, version)
    chosen = random.Random(version).sample(range(1, len(updates)), min(points, len(updates) - 1))
    async with serve(directory) as served:
        for point in chosen:
            async with connect(served, "ws", version) as client:
                rest = await client.resume(session, updates[point - 1][0])
                assert story([*updates[:point], *rest], version) == whole, updates[point - 1]
        async with connect(served, "ws", version) as client:
            opening = {"sessionId": session, "cwd": "/", "mcpServers": []}
            if version == 1:
                await client.request("session/load", **opening)
            else:
                await client.request("session/resume", **opening, replayFrom={"type": "start"})
            history = [item for item in client.updates if ".r" in item[0]]
        assert len(history) > 5
        for point in range(1, len(history), max(1, len(history) // points)):
            async with connect(served, "ws", version) as client:
                rest = await client.resume(session, history[point - 1][0])
                news = [item for item in rest if item[1]["sessionUpdate"] not in STATES]
                assert [update for _, update in news] == [update for _, update in history[point:]]


async def test_client_resumes_a_session_of_a_server_that_was_restarted(
    tmp_path: Path, version: int
) -> None:
    await check_later_resumes(tmp_path / "data", version, 4)


@pytest.mark.full
async def test_client_resumes_a_session_from_every_cursor(tmp_path: Path, version: int) -> None:
    await check_later_resumes(tmp_path / "data", version, 1000)


async def test_invalid_cursor_is_refused_by_name(tmp_path: Path) -> None:
    async with serve(tmp_path / "data") as served, served.connect("ws", 1) as client:
        session = await client.new_session("/")
        for cursor in ("nonsense", "17", 3, "e9999.1", "5.e9999.1", "e1.1~a:b"):
            meta = {"_meta": {"acp/cursor": cursor}}
            params = {"sessionId": session, "cwd": "/", "mcpServers": [], **meta}
            error = await client.request_error("session/load", params)
            assert (error.code, "cursor" in error.message) == (-32602, True)
