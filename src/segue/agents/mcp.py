"""MCP servers for a session: connected when it is opened, released when it is closed.

Each connection lives in a task of its own, because what opens it must also close it. The SDK is
imported with the first server, not before: it is larger than all the rest of us. For anybody but
the local user, programs run confined or not at all, and addresses must be public.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from segue.acp.wire import HttpMcpServer, McpServer, StdioMcpServer
from segue.model.content import Audio, Block, Image, Resource, ResourceLink, Text, as_content
from segue.model.event import ToolResult

from .base import Keyring, McpTool
from .tools.web import make_transport

if TYPE_CHECKING:
    import httpx2
    from mcp import Client

CONNECT_SECONDS = 30.0
CLOSE_SECONDS = 5.0
MAX_TOOLS = 1000


class McpServers:
    """The servers that one session has."""

    def __init__(self) -> None:
        self._links: dict[str, _Link] = {}

    @classmethod
    async def connect(
        cls,
        servers: Sequence[McpServer],
        cwd: str,
        *,
        local: bool,
        private: bool = False,
        keyring: Keyring | None = None,
    ) -> tuple[McpServers, dict[str, str]]:
        """Those that could be connected, and for the others why they could not.

        `local` says that the local user asks; `private`, that others may name private addresses;
        `keyring` has the tokens that servers ask for. A reason that is `TokenRequired` says that
        there was none that the server took.
        """
        self = cls()
        links = {server.name: _Link(server, cwd, local, private, keyring) for server in servers}
        failures: dict[str, str] = {}
        try:
            reasons = await asyncio.gather(*(link.open() for link in links.values()))
        except BaseException:  # given up meanwhile: nothing may be left of it
            await asyncio.gather(*(link.close() for link in links.values()))
            raise
        for name, why in zip(links, reasons, strict=True):
            if why is None:
                self._links[name] = links[name]
            else:
                failures[name] = why
        return self, failures

    @classmethod
    def unconnected(cls, servers: Sequence[McpServer], cwd: str) -> McpServers:
        """Servers that are not connected here, for an agent that does it itself."""
        self = cls()
        self._links = {server.name: _Link(server, cwd, True, True, None) for server in servers}
        return self

    async def close(self) -> None:
        links, self._links = list(self._links.values()), {}
        await asyncio.gather(*(link.close() for link in links))

    def servers(self) -> Sequence[str]:
        return tuple(self._links)

    def configs(self) -> Sequence[McpServer]:
        """The servers as they were named."""
        return [link.server for link in self._links.values()]

    async def offered(self) -> Sequence[McpTool]:
        found = await asyncio.gather(*(link.offered() for link in self._links.values()))
        return [tool for tools in found for tool in tools]

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        link = self._links.get(server)
        if link is None or link.client is None:
            return _failed(f"no MCP server named {server!r} is connected to this session")
        try:
            result = await link.client.call_tool(tool, dict(arguments))
        except Exception as error:
            # Whatever a server does wrong is the tool's failure, and no more than that.
            return _failed(f"{server}: {error}")
        return ToolResult(
            call_id="",
            status="failed" if result.is_error else "completed",
            content=tuple(_block(block) for block in result.content),
            output=result.structured_content,
        )


class TokenRequired(str):
    """Why a server could not be connected, where it asks for a token."""


class _Link:
    """One server's connection, and the task that owns it."""

    def __init__(
        self,
        server: McpServer,
        cwd: str,
        local: bool,
        private: bool,
        keyring: Keyring | None,
    ) -> None:
        self.server = server
        self._keyring = keyring
        self._answered = 0  # the last status over HTTP
        self._cwd = cwd
        self._local = local
        self._private = local or private
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self.client: Client | None = None

    async def open(self) -> str | None:
        """Connect; why not, if it cannot be done."""
        ready: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(ready))
        done, _ = await asyncio.wait([ready], timeout=CONNECT_SECONDS)
        if done:
            return ready.result()
        await self.close()
        return f"did not answer within {CONNECT_SECONDS:.0f} s"

    async def offered(self) -> list[McpTool]:
        """The server's tools; none if it does not say."""
        try:
            return [] if self.client is None else await self._list(self.client)
        except Exception:  # a server without tools, or one that is going
            return []

    async def _list(self, client: Client) -> list[McpTool]:
        found: list[McpTool] = []
        cursor: str | None = None
        while True:
            page = await client.list_tools(cursor=cursor)
            found += [
                McpTool(
                    server=self.server.name,
                    name=tool.name,
                    description=tool.description or "",
                    input_schema=dict(tool.input_schema),
                )
                for tool in page.tools
            ]
            cursor = page.next_cursor
            if not cursor or len(found) > MAX_TOOLS:
                return found

    async def close(self) -> None:
        if self._task is None:
            return
        self._stop.set()
        # One that is still being connected does not listen.
        patience = CLOSE_SECONDS if self.client is not None else 0
        done, _ = await asyncio.wait([self._task], timeout=patience)
        if not done:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _live(self, ready: asyncio.Future[str | None]) -> None:
        try:
            async with AsyncExitStack() as stack:
                self.client = await stack.enter_async_context(await self._dial(stack))
                if not ready.done():
                    ready.set_result(None)
                await self._stop.wait()
        except Exception as error:
            if not ready.done():
                ready.set_result(self._why(error))
        finally:
            self.client = None
            if not ready.done():
                ready.set_result("the connection was given up")

    def _why(self, error: Exception) -> str:
        if self._answered in (401, 403):  # of which the SDK's error says nothing
            return TokenRequired(f"the server answers {self._answered}")
        return _cause(error)

    async def _heard(self, answer: httpx2.Response) -> None:
        self._answered = answer.status_code

    async def _dial(self, stack: AsyncExitStack) -> Client:
        from mcp import Client

        if isinstance(self.server, StdioMcpServer):
            from mcp.client.stdio import StdioServerParameters, stdio_client

            # The server's words go nowhere: our standard error is the client's to read.
            quiet = stack.enter_context(open(os.devnull, "w"))  # noqa: SIM115  # the stack closes it
            command, *args = [self.server.command, *self.server.args]
            env = {variable.name: variable.value for variable in self.server.env}
            if not self._local:
                (command, *args), env = _confined([command, *args], env, self._cwd)
            parameters = StdioServerParameters(command=command, args=args, env=env, cwd=self._cwd)
            return Client(stdio_client(parameters, errlog=quiet))
        return Client(await self._http(stack, self.server))

    async def _http(self, stack: AsyncExitStack, server: HttpMcpServer) -> Any:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        headers = {header.name: header.value for header in server.headers}
        client = await stack.enter_async_context(
            httpx2.AsyncClient(
                headers=headers,
                auth=None if self._keyring is None else _auth(self._keyring, server.url),
                timeout=60,
                event_hooks={"response": [self._heard]},
                transport=None if self._private else make_transport(allow_private=False),
                trust_env=self._private,
            )
        )
        return streamable_http_client(server.url, http_client=client)


def _confined(
    command: list[str], env: dict[str, str], cwd: str
) -> tuple[list[str], dict[str, str]]:
    from .tools.base import ToolContext
    from .tools.bash import environment, launched, scratch
    from .tools.path_guard import PathGuard

    context = ToolContext("mcp", PathGuard([cwd]), local=False, config={})
    place = scratch(context)
    return launched(command, context, place), {**environment(False, place), **env}


def _auth(keyring: Keyring, url: str) -> httpx2.Auth:
    """The server's token on every request to it, and another one when it is refused."""
    import httpx2

    class Bearer(httpx2.Auth):
        async def async_auth_flow(
            self, request: httpx2.Request
        ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            token = await keyring.token(url)
            if token is None:
                yield request
                return
            request.headers["authorization"] = f"Bearer {token}"
            answer = yield request
            if answer.status_code == 401 and (other := await keyring.token(url, token)):
                request.headers["authorization"] = f"Bearer {other}"
                yield request

    return Bearer()


def _cause(error: BaseException) -> str:
    """The plainest words for what went wrong, out of groups of groups."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return str(error) or type(error).__name__


def _failed(text: str) -> ToolResult:
    return ToolResult(call_id="", status="failed", content=as_content(text))


def _block(block: Any) -> Block:
    match block.type:
        case "text":
            return Text(text=block.text)
        case "image":
            return Image(data=block.data, mime=block.mime_type)
        case "audio":
            return Audio(data=block.data, mime=block.mime_type)
        case "resource_link":
            return ResourceLink(uri=str(block.uri), name=block.name, mime=block.mime_type)
        case _:
            held = block.resource
            return Resource(
                uri=str(held.uri),
                text=getattr(held, "text", None),
                data=getattr(held, "blob", None),
                mime=held.mime_type,
            )
