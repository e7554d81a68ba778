"""web_fetch, and the guard that keeps requests away from private addresses."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from segue.model.event import ToolResult

from .base import Input, Tool, ToolContext, ToolError, done, failed, shortened

if TYPE_CHECKING:
    import httpx2

MAX_BYTES = 5_000_000
MAX_TEXT = 60_000
SECONDS = 30.0
MAX_REDIRECTS = 5
AGENT = "segue"
_TEXT = ("text/", "application/json", "application/xml", "application/xhtml", "+json", "+xml")
_SPACES = re.compile(r"\s+")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class PrivateAddress(OSError):
    """The name leads to an address that is not on the public internet."""


class Fetch(Input, frozen=True):
    url: Annotated[str, Meta(min_length=1, max_length=8192)]


def public(address: str) -> bool:
    """Whether an address is one of the public internet, whatever it is wrapped in."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo and found.teredo[1])
        if inner is None and found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner:
            return public(str(inner))
    return found.is_global and not found.is_multicast


def make_transport(*, allow_private: bool) -> httpx2.AsyncHTTPTransport:
    """A way to the network on which a name is resolved once, checked, and that address used.

    Every connection goes through it, those of redirects too.
    """
    import httpx2

    made = httpx2.AsyncHTTPTransport(trust_env=False)
    if not allow_private:
        pool: Any = made._pool
        # An attribute that is gone one day must be an error, never an open door.
        pool._network_backend = _Guard(pool._network_backend)
    return made


class _Guard:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def connect_tcp(self, host: str, port: int, **options: Any) -> Any:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise _unreachable()(f"{host}: {error.strerror or error}") from None
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        if not addresses or not all(public(address) for address in addresses):
            raise PrivateAddress(f"{host} is not an address of the public internet")
        return await self._inner.connect_tcp(addresses[0], port, **options)

    async def connect_unix_socket(self, *_: Any, **__: Any) -> Any:
        raise PrivateAddress("a socket of this machine is not on the public internet")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


def _unreachable() -> type[Exception]:
    import httpcore2

    return httpcore2.ConnectError


async def _fetch(context: ToolContext, given: Fetch) -> ToolResult:
    import httpx2

    private = bool(context.config.get("web.private"))
    try:
        async with (
            asyncio.timeout(SECONDS),
            httpx2.AsyncClient(
                transport=make_transport(allow_private=private), trust_env=False
            ) as client,
        ):
            return await _follow(client, given.url)
    except TimeoutError:
        raise ToolError(f"{given.url} took longer than {SECONDS:.0f} s") from None
    except PrivateAddress as error:
        raise ToolError(str(error)) from None
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
        raise ToolError(f"{given.url}: {error or type(error).__name__}") from None


async def _follow(client: httpx2.AsyncClient, url: str) -> ToolResult:
    headers = {"user-agent": AGENT, "accept": "text/html,text/*;q=0.9,*/*;q=0.5"}
    for _ in range(MAX_REDIRECTS + 1):
        if not url.lower().startswith(("http://", "https://")):
            raise ToolError(f"{url}: only http and https can be fetched")
        async with client.stream("GET", url, headers=headers) as response:
            if response.has_redirect_location:
                url = str(response.url.join(response.headers["location"]))
                continue
            return await _shown(response)
    raise ToolError(f"{url}: more than {MAX_REDIRECTS} redirects")


async def _shown(response: httpx2.Response) -> ToolResult:
    kind = response.headers.get("content-type", "text/plain").partition(";")[0].strip().lower()
    if not any(kind.startswith(each) or kind.endswith(each) for each in _TEXT):
        raise ToolError(f"{response.url} is {kind}, not text")
    data = bytearray()
    cut = False
    async for chunk in response.aiter_bytes(65536):
        data += chunk
        if len(data) > MAX_BYTES:
            del data[MAX_BYTES:]
            cut = True
            break
    text = bytes(data).decode(_charset(response), "replace")
    if "html" in kind:
        text = plain_text(text)
    note = "\n\n[… cut here]" if cut else ""
    whole = f"{response.url}\n\n{shortened(text, MAX_TEXT)}{note}"
    if response.is_error:
        return failed(f"HTTP {response.status_code} {whole}")
    return done(whole)


def _charset(response: httpx2.Response) -> str:
    import codecs

    try:
        return codecs.lookup(response.charset_encoding or "utf-8").name
    except LookupError:
        return "utf-8"


class _Words(HTMLParser):
    """The text of a page, with its links."""

    _SILENT = frozenset({"script", "style", "noscript", "template", "svg", "head"})
    _BLOCKS = frozenset(
        {"p", "div", "section", "article", "header", "footer", "main", "li", "ul", "ol", "table"}
        | {"tr", "pre", "blockquote", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "dt", "dd"}
        | {"figure", "figcaption", "form", "nav", "aside"}
    )

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._silent: list[str] = []
        self._link: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self._SILENT:
            self._silent.append(tag)
        elif tag in self._BLOCKS:
            self.parts.append("\n- " if tag == "li" else "\n")
            if tag[0] == "h" and tag[1:].isdigit():
                self.parts.append("#" * int(tag[1:]) + " ")
        elif tag == "a":
            self._link = dict(attrs).get("href")

    def handle_endtag(self, tag: str) -> None:
        if self._silent and tag == self._silent[-1]:
            self._silent.pop()
        elif tag in self._BLOCKS:
            self.parts.append("\n")
        elif tag == "a":
            if self._link and self._link.startswith(("http", "/")):
                self.parts.append(f" ({self._link})")
            self._link = None

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.parts.append(_SPACES.sub(" ", data))


def plain_text(page: str) -> str:
    """A page's words, a line for each block."""
    words = _Words()
    words.feed(page)
    words.close()
    lines = (" ".join(line.split()) for line in "".join(words.parts).split("\n"))
    return "\n".join(line for line in lines if line)


FETCH = Tool(
    "web_fetch",
    "fetch",
    "Fetch a page of the public web and show its text.",
    Fetch,
    lambda given: f"Fetch {given.url}",
    _fetch,
)
