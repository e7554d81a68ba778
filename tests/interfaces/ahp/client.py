"""A scripted client of the Agent Host Protocol, connected to a server in this process."""

from __future__ import annotations

import asyncio
import json
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import uvicorn
import websockets

from segue.hub import Hub
from segue.interfaces.ahp import AhpApp
from segue.interfaces.ahp.protocol import ROOT
from segue.model.principal import LOCAL, Principal

TIMEOUT_SECONDS = 60.0


class AhpClient:
    """Send requests and actions, and collect what the server sends.

    `observe` gets each message of a server, with the method of the request that it answers.
    """

    observe: ClassVar[Callable[[dict[str, Any], str | None], None] | None] = None

    def __init__(self, link: websockets.ClientConnection) -> None:
        self._link = link
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._changed = asyncio.Condition()
        self._client_seq = 0
        self._methods: dict[int, str] = {}  # of the requests
        self.messages: list[dict[str, Any]] = []
        self._reader = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        async for text in self._link:
            message = json.loads(text)
            if self.observe is not None:
                self.observe(message, self._methods.get(message.get("id")))
            if "id" in message:
                self._answers.pop(message["id"]).set_result(message)
            async with self._changed:
                self.messages.append(message)
                self._changed.notify_all()

    async def close(self) -> None:
        self._reader.cancel()
        await self._link.close()

    async def closed(self) -> None:
        """Wait until the server ends the connection."""
        await asyncio.wait_for(self._link.wait_closed(), TIMEOUT_SECONDS)

    async def raw_request(self, method: str, **params: Any) -> dict[str, Any]:
        number = len(self._answers) + len(self.messages) + 1000 * (self._client_seq + 1)
        while number in self._answers:
            number += 1
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        params.setdefault("channel", ROOT)
        self._methods[number] = method
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        await self._link.send(json.dumps(message))
        return await asyncio.wait_for(answer, TIMEOUT_SECONDS)

    async def request(self, method: str, **params: Any) -> Any:
        answer = await self.raw_request(method, **params)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    async def initialize(self, *channels: str) -> Any:
        return await self.request(
            "initialize",
            protocolVersions=["0.9.0"],
            clientId="client-1",
            initialSubscriptions=list(channels) or [ROOT],
        )

    async def unsubscribe(self, channel: str) -> None:
        message = {"jsonrpc": "2.0", "method": "unsubscribe", "params": {"channel": channel}}
        await self._link.send(json.dumps(message))
        await self.raw_request("listSessions")  # which is handled after it

    async def dispatch(self, channel: str, type: str, *, seq: Any = None, **fields: Any) -> int:
        return await self.send_action(channel, {"type": type, **fields}, seq=seq)

    async def send_action(self, channel: str, action: dict[str, Any], *, seq: Any = None) -> int:
        """Dispatch an action, and return the number that the client gave it."""
        self._client_seq += 1
        client_seq = self._client_seq if seq is None else seq
        params = {"channel": channel, "clientSeq": client_seq, "action": action}
        message = {"jsonrpc": "2.0", "method": "dispatchAction", "params": params}
        await self._link.send(json.dumps(message))
        return self._client_seq

    async def prompt(self, chat: str, text: str) -> str:
        """Start a turn and return its id."""
        turn_id = f"request_{uuid.uuid4()}"  # as VS Code names its turns
        message = {"text": text, "origin": {"kind": "user"}}
        await self.dispatch(chat, "chat/turnStarted", turnId=turn_id, message=message)
        return turn_id

    async def wait_for(self, matches: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first message that matches, also if it came earlier."""
        async with asyncio.timeout(TIMEOUT_SECONDS), self._changed:
            while True:
                for message in self.messages:
                    if matches(message):
                        return message
                await self._changed.wait()

    async def wait_for_action(self, type: str, **fields: Any) -> dict[str, Any]:
        """Return the envelope of the first action of a type with these fields."""

        def matches(message: dict[str, Any]) -> bool:
            action = message.get("params", {}).get("action", {})
            return action.get("type") == type and fields.items() <= action.items()

        return (await self.wait_for(matches))["params"]

    async def wait_for_notification(self, method: str) -> dict[str, Any]:
        return (await self.wait_for(lambda message: message.get("method") == method))["params"]

    def actions(self, channel: str) -> list[dict[str, Any]]:
        """Return the actions of a channel so far."""
        return [
            message["params"]["action"]
            for message in self.messages
            if message.get("method") == "action" and message["params"]["channel"] == channel
        ]


class AhpServer:
    """A server on a loopback port, and clients of it."""

    def __init__(self, hub: Hub, port: int) -> None:
        self.hub = hub
        self.port = port

    async def token(self, principal: Principal = LOCAL) -> str:
        """Return a connection token of the local user."""
        return await self.hub.logins.use_link(await self.hub.logins.create_link(principal))

    @asynccontextmanager
    async def connect(
        self, token: str | None = None, origin: str | None = None
    ) -> AsyncIterator[AhpClient]:
        token = await self.token() if token is None else token
        url = f"ws://127.0.0.1:{self.port}/ahp?tkn={token}"
        async with websockets.connect(url, max_size=None, origin=origin) as link:  # type: ignore[arg-type]
            client = AhpClient(link)
            try:
                yield client
            finally:
                await client.close()


@asynccontextmanager
async def serve(hub: Hub, port: int = 0) -> AsyncIterator[AhpServer]:
    """Serve the protocol on a loopback port, by default a free one."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    # Small, so that a client that does not read is noticed soon.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
    sock.listen()
    closing = asyncio.Event()
    config = uvicorn.Config(AhpApp(hub, closing=closing), lifespan="off", log_level="warning")
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[sock]))
    try:
        yield AhpServer(hub, sock.getsockname()[1])
    finally:
        closing.set()
        server.should_exit = True
        await serving
