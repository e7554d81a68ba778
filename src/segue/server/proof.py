"""Answer clients that check whether this server has the store's secret."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from segue.http.hosts import HostCheck
from segue.hub import Hub
from segue.hub.access.server_proof import is_nonce, server_proof
from segue.model.errors import InvalidInput, SegueError


class ServerProofApp:
    """Serve the proof as plain text. It needs no sign-in, and it reveals nothing of the store."""

    def __init__(self, hub: Hub, hosts: HostCheck) -> None:
        self._hub = hub
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._answer(Request(scope, receive))
        except SegueError as error:
            response = PlainTextResponse(f"{error.message}\n", error.http_status)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        self._hosts.check(dict(request.scope["headers"]))
        nonce = request.query_params.get("nonce", "")
        if not is_nonce(nonce):
            raise InvalidInput("nonce: must be 32 hexadecimal digits")
        _, port = request.scope["server"]
        return PlainTextResponse(await server_proof(self._hub.store, nonce, port))
