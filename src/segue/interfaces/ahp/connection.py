"""Receive the messages of one client."""

from __future__ import annotations

from typing import Any

from segue.acp.rpc import RpcError
from segue.hub import Hub
from segue.model.principal import Principal

from .client import Client, Send
from .handlers.actions import ClientActions
from .handlers.requests import Requests
from .subscriptions.forms import Forms


class AhpConnection:
    """One client, which sends requests and actions."""

    def __init__(self, hub: Hub, principal: Principal, send: Send, forms: Forms) -> None:
        self._send = send
        self._client = Client(hub, principal, send, forms)
        self._requests = Requests(self._client)
        self._actions = ClientActions(self._client)

    async def receive(self, message: dict[str, Any]) -> None:
        """Handle one message. Requests are answered, also if they fail."""
        method, params = str(message.get("method")), message.get("params")
        params = params if isinstance(params, dict) else {}
        if "id" not in message:
            if method == "unsubscribe":
                await self._client.unsubscribe(str(params.get("channel")))
            elif method == "dispatchAction":
                await self._actions.dispatch(params)
            return
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            answer["result"] = await self._requests.answer(method, params)
        except RpcError as error:
            answer["error"] = error.to_wire()
        await self._send(answer)

    async def close(self) -> None:
        """Stop following. No turn is cancelled."""
        await self._client.close()
