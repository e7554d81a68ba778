"""Answer a request with an `Idempotency-Key` once, and repeat the answer for later ones."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope

from segue.hub.access.idempotency import Answer, Reservation
from segue.model import codec
from segue.model.errors import SegueError

from . import errors
from .request import RestRequest

HEADER = b"idempotency-key"
REPLAYED = (b"idempotent-replayed", b"true")
_BOUNDARY = re.compile(rb'boundary="?([^";,]+)')
# With these, a request was refused before it had any effect, and may succeed later.
_RETRY_LATER = (429, 503)


class Fingerprint:
    """Identifies a request by its method, its address and its body, while the body is read.

    The boundaries of a form are left out: a client that sends a form again chooses others.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        address = (scope["method"], scope["path"], scope["query_string"].decode("latin-1"))
        self._hash = hashlib.sha256("\n".join((*address, "")).encode())
        content_type = dict(scope["headers"]).get(b"content-type", b"")
        boundary = _BOUNDARY.search(content_type)
        self._boundary = None if boundary is None else boundary[1]
        self._pending = b""
        self._complete = False

    async def receive(self) -> Message:
        """Receive a message for the handler of the request."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._add(message.get("body", b""))
            self._complete = not message.get("more_body", False)
        return message

    async def finish(self) -> str:
        """Read the rest of the body and return the fingerprint. Raises ClientDisconnect."""
        while not self._complete:
            if (await self.receive())["type"] == "http.disconnect":
                raise ClientDisconnect
        final = self._hash.copy()
        final.update(self._pending)
        return final.hexdigest()

    def _add(self, data: bytes) -> None:
        if self._boundary is None:
            self._hash.update(data)
            return
        data = (self._pending + data).replace(self._boundary, b"")
        split = max(0, len(data) - len(self._boundary))
        self._hash.update(data[:split])
        self._pending = data[split:]  # a boundary may begin in it


async def answer_once(
    request: RestRequest, key: str, handle: Callable[[], Awaitable[Any]]
) -> Response:
    """Return the response of a request with a key, which `handle` computes if it is the first."""
    keys = request.hub.idempotency_keys
    fingerprint = Fingerprint(request.scope, request.receive)
    request.receive = fingerprint.receive
    while (reservation := await keys.reserve(request.workspace, key)) is None:
        stored = await keys.answer(request.workspace, key, await fingerprint.finish())
        if stored is not None:
            request.response_headers.append(REPLAYED)
            return _response(stored)
    try:
        answer = await _first_answer(request, reservation, handle)
    except (ClientDisconnect, SegueError):
        raise
    except Exception:  # it may have taken effect, so it is not tried again
        failure = SegueError("the first request with this key failed; its log has the details")
        answer = _error_answer(request, failure)
        await keys.store_answer(reservation, await fingerprint.finish(), answer, encrypt=False)
        raise
    assert request.endpoint is not None
    await keys.store_answer(
        reservation,
        await fingerprint.finish(),
        answer,
        encrypt=request.endpoint.returns_secret,
    )
    return _response(answer)


async def _first_answer(
    request: RestRequest, reservation: Reservation, handle: Callable[[], Awaitable[Any]]
) -> Answer:
    """Return the answer to the first request; release its key if it had no effect."""
    keys = request.hub.idempotency_keys
    try:
        result = await handle()
    except ClientDisconnect:  # before its body was complete
        await keys.release(reservation)
        raise
    except SegueError as error:
        if error.http_status in _RETRY_LATER:
            await keys.release(reservation)
            raise
        return _error_answer(request, error)
    return Answer(200, codec.encode(result), {})


def _error_answer(request: RestRequest, error: SegueError) -> Answer:
    body = errors.envelope(error, request.request_id, local=request.principal.local)
    headers = {name.decode(): value.decode() for name, value in errors.retry_headers(error)}
    return Answer(error.http_status, codec.encode(body), headers)


def _response(answer: Answer) -> Response:
    return Response(answer.body, answer.status, answer.headers, media_type="application/json")
