"""Send requests to a server or to the local store: pages, streams, retries, errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

import httpx2

from segue import __version__

from .errors import ApiFailure, warn

BETA = "managed-agents-2026-04-01"
API_VERSION = "2023-06-01"
_MAX_RETRIES = 2
_RETRY_SECONDS = 0.5
_TIMEOUT_SECONDS = 60.0
_SECRET_HEADERS = ("x-api-key", "authorization")


class ErrorResponse(ApiFailure):
    """An error response: its status goes to standard error, its body to standard output."""

    def __init__(self, message: str, body: Any, status: int = 0) -> None:
        super().__init__(message)
        self.body = body
        self.status = status


class ApiRequest(NamedTuple):
    """A request. With files, by their names, the body is a multipart form."""

    method: str
    path: str
    query: list[tuple[str, str]]
    body: Any = None
    files: Sequence[tuple[str, bytes]] = ()


class ApiClient:
    """Sends requests to one server, or to the local application through `transport`."""

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
            "anthropic-version": API_VERSION,
            "anthropic-beta": ",".join(dict.fromkeys((*betas, BETA))),
            "user-agent": f"segue/{__version__}",
            **({"x-api-key": key} if key else {}),
            **({"authorization": f"Bearer {token}"} if token else {}),
        }
        self.has_credentials = bool(key or token)
        self._debug = debug
        self._is_local = transport is not None
        # A stream is silent as long as its session is, so reading has no timeout.
        timeout = httpx2.Timeout(_TIMEOUT_SECONDS, read=None)
        self._http = httpx2.AsyncClient(
            base_url=base_url, headers=headers, transport=transport, timeout=timeout
        )

    async def __aenter__(self) -> ApiClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def fetch(self, request: ApiRequest) -> Any:
        """Return the decoded response."""
        response = await self._send(request)
        try:
            return _decode(await response.aread())
        finally:
            await response.aclose()

    async def download(self, request: ApiRequest) -> AsyncIterator[bytes]:
        """Yield the chunks of a file."""
        response = await self._send(request)
        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except httpx2.HTTPError as error:
            raise ApiFailure(f"the download was interrupted: {error}") from None
        finally:
            await response.aclose()

    async def list_items(self, request: ApiRequest, max_items: int | None) -> AsyncIterator[Any]:
        """Yield the items of a list, page by page."""
        query = list(request.query)
        count = 0
        while max_items is None or count < max_items:
            page = await self.fetch(request._replace(query=query))
            for item in page.get("data") or []:
                yield item
                count += 1
                if count == max_items:
                    return
            next_page = page.get("next_page")
            if not next_page:
                return
            query = [pair for pair in request.query if pair[0] != "page"] + [("page", next_page)]

    async def stream_events(self, request: ApiRequest) -> AsyncIterator[Any]:
        """Yield the data of server-sent events as they arrive."""
        response = await self._send(request)
        try:
            name, data = "", []
            async for line in response.aiter_lines():
                field, _, value = line.partition(":")
                if field == "event":
                    name = value.strip()
                elif field == "data":
                    data.append(value.removeprefix(" "))
                elif not line and data:
                    event = _decode("\n".join(data).encode())
                    if name == "error":
                        raise ErrorResponse("the stream ended with an error", event)
                    if name != "ping":
                        yield event
                    name, data = "", []
        except httpx2.HTTPError as error:
            raise ApiFailure(f"the stream was interrupted: {error}") from None
        finally:
            await response.aclose()

    async def _send(self, request: ApiRequest) -> httpx2.Response:
        """Return a successful response. Raises ErrorResponse for any other."""
        options: dict[str, Any] = {"params": [("beta", "true"), *request.query]}
        if request.files:
            files = [("files[]", file) for file in request.files]
            options |= {"data": request.body, "files": files}
        elif request.body is not None:
            options["content"] = json.dumps(request.body).encode()
            options["headers"] = {"content-type": "application/json"}
        http_request = self._http.build_request(request.method, request.path, **options)
        response = await self._send_with_retries(http_request)
        if response.is_success:
            return response
        body = await response.aread()
        await response.aclose()
        status = f"{response.status_code} {response.reason_phrase}"
        message = f"{self._shown(http_request)}: {status}"
        raise ErrorResponse(message, _decode(body), response.status_code)

    async def _send_with_retries(self, request: httpx2.Request) -> httpx2.Response:
        """Return the response; repeat the request if the server fails or is overloaded."""
        for attempt in range(_MAX_RETRIES + 1):
            is_last = attempt == _MAX_RETRIES
            if self._debug:
                self._show_request(request)
            try:
                response = await self._http.send(request, stream=True)
            except httpx2.HTTPError as error:
                if is_last or request.method != "GET":
                    reason = str(error) or type(error).__name__
                    raise ApiFailure(f"{self._shown(request)}: {reason}") from None
            else:
                if self._debug:
                    warn(f"< {response.status_code} {response.reason_phrase}")
                if is_last or (response.status_code < 500 and response.status_code != 429):
                    return response
                await response.aclose()
            await asyncio.sleep(_RETRY_SECONDS * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _show_request(self, request: httpx2.Request) -> None:
        warn(f"> {request.method} {self._shown_url(request)}")
        for name, value in request.headers.items():
            warn(f"> {name}: {'[redacted]' if name in _SECRET_HEADERS else value}")

    def _shown(self, request: httpx2.Request) -> str:
        """Return the method and the URL of a request, as messages show them."""
        return f'{request.method} "{self._shown_url(request)}"'

    def _shown_url(self, request: httpx2.Request) -> str:
        """Return the URL of a request; only its path if the local application answers it."""
        return request.url.raw_path.decode() if self._is_local else str(request.url)


def _decode(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")
