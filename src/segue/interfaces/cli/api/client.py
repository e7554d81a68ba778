"""Requests, to a server or to the local store: pages, streams, retries, errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

import httpx2

from segue import __version__

from .errors import Failure, warn

BETA = "managed-agents-2026-04-01"
VERSION = "2023-06-01"
_RETRIES = 2
_PAUSE = 0.5
_SECRETS = ("x-api-key", "authorization")


class Refused(Failure):
    """An answer that is an error: its status on standard error, its body on standard output."""

    def __init__(self, message: str, body: Any, status: int = 0) -> None:
        super().__init__(message)
        self.body = body
        self.status = status


class Request(NamedTuple):
    """What is asked. With files, by the names they go by, the body is a form."""

    method: str
    path: str
    query: list[tuple[str, str]]
    body: Any = None
    files: Sequence[tuple[str, bytes]] = ()


class Client:
    """One server, or the store that stands for one."""

    def __init__(
        self,
        base_url: str,
        *,
        key: str | None = None,
        token: str | None = None,
        betas: tuple[str, ...] = (),
        transport: httpx2.AsyncBaseTransport | None = None,
        debug: bool = False,
    ) -> None:
        headers = {
            "anthropic-version": VERSION,
            "anthropic-beta": ",".join(dict.fromkeys((*betas, BETA))),
            "user-agent": f"segue/{__version__}",
            **({"x-api-key": key} if key else {}),
            **({"authorization": f"Bearer {token}"} if token else {}),
        }
        self.keyed = bool(key or token)
        self._debug = debug
        # A stream is silent for as long as its session is.
        timeout = httpx2.Timeout(60.0, read=None)
        self._http = httpx2.AsyncClient(
            base_url=base_url, headers=headers, transport=transport, timeout=timeout
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def one(self, request: Request) -> Any:
        """The answer to a request."""
        answer = await self._send(request)
        try:
            return _decoded(await answer.aread())
        finally:
            await answer.aclose()

    async def pieces(self, request: Request) -> AsyncIterator[bytes]:
        """A file, as it comes."""
        answer = await self._send(request)
        try:
            async for piece in answer.aiter_bytes():
                yield piece
        except httpx2.HTTPError as error:
            raise Failure(f"the file broke off: {error}") from None
        finally:
            await answer.aclose()

    async def items(self, request: Request, most: int | None) -> AsyncIterator[Any]:
        """The things in a list, page after page."""
        query = list(request.query)
        left = most
        while left is None or left > 0:
            page = await self.one(request._replace(query=query))
            for item in page.get("data") or []:
                yield item
                if left is not None:
                    left -= 1
                    if left == 0:
                        return
            following = page.get("next_page")
            if not following:
                return
            query = [pair for pair in request.query if pair[0] != "page"] + [("page", following)]

    async def events(self, request: Request) -> AsyncIterator[Any]:
        """What a stream says, as it says it."""
        answer = await self._send(request)
        try:
            name, data = "", []
            async for line in answer.aiter_lines():
                field, _, value = line.partition(":")
                if field == "event":
                    name = value.strip()
                elif field == "data":
                    data.append(value.removeprefix(" "))
                elif not line and data:
                    item = _decoded("\n".join(data).encode())
                    if name == "error":
                        raise Refused("the stream ended with an error", item)
                    if name != "ping":
                        yield item
                    name, data = "", []
        except httpx2.HTTPError as error:
            raise Failure(f"the stream broke off: {error}") from None
        finally:
            await answer.aclose()

    async def _send(self, request: Request) -> httpx2.Response:
        sent: dict[str, Any] = {"params": [("beta", "true"), *request.query]}
        if request.files:
            sent |= {"data": request.body, "files": [("files[]", file) for file in request.files]}
        elif request.body is not None:
            sent["content"] = json.dumps(request.body).encode()
            sent["headers"] = {"content-type": "application/json"}
        made = self._http.build_request(request.method, request.path, **sent)
        answer = await self._tried(made)
        if answer.is_success:
            return answer
        body = await answer.aread()
        await answer.aclose()
        said = f'{made.method} "{made.url}": {answer.status_code} {answer.reason_phrase}'
        raise Refused(said, _decoded(body), answer.status_code)

    async def _tried(self, request: httpx2.Request) -> httpx2.Response:
        """The answer; what fails on the server's side is tried again."""
        for tried in range(_RETRIES + 1):
            last = tried == _RETRIES
            if self._debug:
                _tell(request)
            try:
                answer = await self._http.send(request, stream=True)
            except httpx2.HTTPError as error:
                if last or request.method != "GET":
                    at = f'{request.method} "{request.url}"'
                    raise Failure(f"{at}: {error or type(error).__name__}") from None
            else:
                if self._debug:
                    warn(f"< {answer.status_code} {answer.reason_phrase}")
                if last or (answer.status_code < 500 and answer.status_code != 429):
                    return answer
                await answer.aclose()
            await asyncio.sleep(_PAUSE * 2**tried)
        raise AssertionError("the last try returns or raises")


def _tell(request: httpx2.Request) -> None:
    warn(f"> {request.method} {request.url}")
    for name, value in request.headers.items():
        warn(f"> {name}: {'[redacted]' if name in _SECRETS else value}")


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")
