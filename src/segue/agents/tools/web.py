"""The web_fetch tool, and an HTTP transport that refuses private addresses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from segue.agents.egress.addresses import PrivateAddress, resolve
from segue.model.event import ToolResult
from segue.untrusted import PARSERS, ParsingFailed

from .base import Tool, ToolContext, ToolError, ToolInput, completed_result, failed_result
from .page_text import ENCODINGS, read_page

if TYPE_CHECKING:
    import httpx2

MAX_PAGE_BYTES = 5_000_000
MAX_TEXT_CHARACTERS = 60_000
PAGE_CPU_SECONDS = 5.0  # to extract the text of a page
TIMEOUT_SECONDS = 30.0
MAX_REDIRECTS = 5
USER_AGENT = "segue"
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/xhtml", "+json", "+xml")


class FetchInput(ToolInput, frozen=True):
    url: Annotated[str, Meta(min_length=1, max_length=8192)]


def make_transport(*, allow_private: bool) -> httpx2.AsyncHTTPTransport:
    """Return an HTTP transport. Unless `allow_private` is set, it connects to public hosts only.

    It resolves each host name once, checks all addresses, and connects to a checked one. That
    covers every connection, also after redirects.
    """
    import httpx2

    transport = httpx2.AsyncHTTPTransport(trust_env=False)
    if not allow_private:
        pool: Any = transport._pool
        # If a new httpx2 renames this attribute, this must fail rather than permit everything.
        pool._network_backend = _PublicBackend(pool._network_backend)
    return transport


class _PublicBackend:
    """A network backend that connects to public addresses only."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def connect_tcp(self, host: str, port: int, **options: Any) -> Any:
        try:
            addresses = await resolve(host, port, private=False)
        except PrivateAddress as error:
            raise PrivateAddress(f"{error}; set web.private to allow it") from None
        except OSError as error:
            raise _connect_error()(f"{host}: {error.strerror or error}") from None
        return await self._inner.connect_tcp(addresses[0], port, **options)

    async def connect_unix_socket(self, *_: Any, **__: Any) -> Any:
        raise PrivateAddress("Unix sockets are not on the public internet")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


def _connect_error() -> type[Exception]:
    import httpcore2

    return httpcore2.ConnectError


async def _fetch(context: ToolContext, arguments: FetchInput) -> ToolResult:
    import httpx2

    if context.egress is not None:
        transport = httpx2.AsyncHTTPTransport(proxy=context.egress.url, trust_env=False)
    else:
        transport = make_transport(allow_private=bool(context.config.get("web.private")))
    try:
        async with (
            asyncio.timeout(TIMEOUT_SECONDS),
            httpx2.AsyncClient(transport=transport, trust_env=False) as client,
        ):
            return await _follow(client, arguments.url)
    except TimeoutError:
        raise ToolError(f"{arguments.url} took longer than {TIMEOUT_SECONDS:.0f} s") from None
    except PrivateAddress as error:
        raise ToolError(str(error)) from None
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
        raise ToolError(f"{arguments.url}: {error or type(error).__name__}") from None


async def _follow(client: httpx2.AsyncClient, url: str) -> ToolResult:
    headers = {
        "user-agent": USER_AGENT,
        "accept": "text/html,text/*;q=0.9,*/*;q=0.5",
        "accept-encoding": ", ".join(ENCODINGS),
    }
    for _ in range(MAX_REDIRECTS + 1):
        if not url.lower().startswith(("http://", "https://")):
            raise ToolError(f"{url}: only http and https can be fetched")
        async with client.stream("GET", url, headers=headers) as response:
            if response.has_redirect_location:
                url = str(response.url.join(response.headers["location"]))
                continue
            return await _page_result(response)
    raise ToolError(f"{url}: more than {MAX_REDIRECTS} redirects")


async def _page_result(response: httpx2.Response) -> ToolResult:
    media_type = (
        response.headers.get("content-type", "text/plain").partition(";")[0].strip().lower()
    )
    if not any(media_type.startswith(text) or media_type.endswith(text) for text in _TEXT_TYPES):
        raise ToolError(f"{response.url} has the type {media_type}, which is not text")
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in (*ENCODINGS, "identity"):
        raise ToolError(f"{response.url} has the unsupported encoding {encoding[:100]}")
    data = bytearray()
    async for chunk in response.aiter_raw():
        data += chunk
        if len(data) > MAX_PAGE_BYTES:
            break
    arguments = (
        bytes(data[: MAX_PAGE_BYTES + 1]),
        encoding if encoding in ENCODINGS else "",
        response.charset_encoding or "utf-8",
        "html" if "html" in media_type else "text",
        MAX_PAGE_BYTES,
        MAX_TEXT_CHARACTERS,
    )
    try:
        text, truncated = await PARSERS.run(read_page, *arguments, cpu_seconds=PAGE_CPU_SECONDS)
    except ParsingFailed as error:
        raise ToolError(f"{response.url} cannot be read: {error}") from None
    note = "\n\n[… truncated]" if truncated else ""
    page = f"{response.url}\n\n{text}{note}"
    if response.is_error:
        return failed_result(f"HTTP {response.status_code} {page}")
    return completed_result(page)


FETCH = Tool(
    "web_fetch",
    "fetch",
    "Fetch a page of the public web and return its text.",
    FetchInput,
    _fetch,
)
