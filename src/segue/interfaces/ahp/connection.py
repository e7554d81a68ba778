"""Receive the messages of one client."""

from __future__ import annotations

from typing import Any

from segue.acp.rpc import INVALID_REQUEST, RpcError
from segue.hub import Hub
from segue.model.principal import Principal

from .client import Client, Send
from .handlers.actions import ClientActions
from .handlers.requests import Requests
from .protocol import UNSUPPORTED_VERSION
from .subscriptions.forms import Forms


class AhpConnection:
    """One client, which sends requests and actions."""

    def __init__(self, hub: Hub, principal: Principal, send: Send, forms: Forms) -> None:
        self._send = send
        self._client = Client(hub, principal, send, forms)
        self._requests = Requests(self._client)
        self._actions = ClientActions(self._client)

    async def receive(self, message: Any) -> bool:
        """Handle one message, and return whether the connection may continue.

        Requests are answered, also if they fail.
        """
        if not isinstance(message, dict):
            await self._refuse(None, "a message is one JSON object; batches are not supported")
            return True
        method, params = message.get("method"), message.get("params")
        id = message.get("id")
        params = params if isinstance(params, dict) else {}
        if not isinstance(method, str):
            if "result" not in message and "error" not in message:  # no answer to a request of ours
                await self._refuse(id, "the message has no method")
        elif "id" not in message:
            if method == "unsubscribe":
                await self._client.unsubscribe(str(params.get("channel")))
            elif method == "dispatchAction":
                await self._actions.dispatch(params)
        elif isinstance(id, bool) or not isinstance(id, str | int):
            await self._refuse(None, "the id of a request is a text or a whole number")
        else:
            return await self._answer(id, method, params)
        return True

    async def _answer(self, id: str | int, method: str, params: dict[str, Any]) -> bool:
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": id}
        code = None
        try:
            answer["result"] = await self._requests.answer(method, params)
        except RpcError as error:
            answer["error"], code = error.to_wire(), error.code
        await self._send(answer)
        return code != UNSUPPORTED_VERSION

    async def _refuse(self, id: Any, reason: str) -> None:
        error = RpcError(INVALID_REQUEST, reason).to_wire()
        await self._send({"jsonrpc": "2.0", "id": id, "error": error})

    async def close(self) -> None:
        """Stop following. No turn is cancelled."""
        await self._client.close()
