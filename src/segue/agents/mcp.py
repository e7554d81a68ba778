"""The MCP servers of a session: connected when it is opened, closed when it is closed.

Each connection has its own task, because the task that opens an MCP client must also close it. The
MCP SDK is imported with the first server, because the import takes longer than all of segue's. For
callers other than the local user, server programs run in a sandbox or not at all, and server
addresses must be public.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from segue.acp.rpc import METHOD_NOT_FOUND
from segue.acp.wire import AcpMcpServer, HttpMcpServer, StdioMcpServer
from segue.model.content import Audio, Block, Image, Resource, ResourceLink, Text, as_content
from segue.model.event import ToolResult

from .base import Keyring, McpTool
from .sandbox import launch
from .tools.web import make_transport

if TYPE_CHECKING:
    import httpx2
    from mcp import Client

    from .tools.base import ToolContext

McpServerConfig = StdioMcpServer | HttpMcpServer | AcpMcpServer

log = logging.getLogger("segue.agents.mcp")

CONNECT_SECONDS = 30.0
CLOSE_SECONDS = 5.0
MAX_TOOLS = 1000


class McpServers:
    """The MCP servers of one session.

    `failures` has the reason for each server that could not be connected, by its name. A reason of
    the type `TokenRequired` means that the server accepted none of the tokens.
    """

    def __init__(self) -> None:
        self.failures: dict[str, str] = {}
        self._connections: dict[str, _Connection] = {}  # also those that are being opened
        self._opening: dict[str, asyncio.Task[None]] = {}

    @classmethod
    async def connect(
        cls,
        servers: Sequence[McpServerConfig],
        cwd: str,
        *,
        sandbox: ToolContext | None,
        private: bool = False,
        keyring: Keyring | None = None,
        wait_seconds: float | None = None,
    ) -> McpServers:
        """Connect to servers. Those that need longer than `wait_seconds` connect later.

        `sandbox` is None for the local user. For other callers it is the session's context, which
        determines the sandbox of server programs. `private` lets other callers use servers at
        private addresses.
        `keyring` has the tokens for servers.
        """
        self = cls()
        self._connections = {
            server.name: _Connection(server, cwd, sandbox=sandbox, private=private, keyring=keyring)
            for server in servers
        }
        loop = asyncio.get_running_loop()
        for name, connection in self._connections.items():
            self._opening[name] = loop.create_task(self._open(name, connection))
        try:
            await asyncio.wait(self._opening.values(), timeout=wait_seconds)
        except BaseException:  # cancelled: no connection may stay open
            await self.close()
            raise
        return self

    async def _open(self, name: str, connection: _Connection) -> None:
        reason = await connection.open()
        if reason is not None:
            self.failures[name] = reason
            del self._connections[name]

    @property
    def is_connecting(self) -> bool:
        """True while servers are being connected."""
        return not all(task.done() for task in self._opening.values())

    async def wait_connected(self) -> None:
        """Wait until each server is connected or has failed."""
        if self._opening:
            await asyncio.wait(self._opening.values())

    @classmethod
    def unconnected(cls, servers: Sequence[McpServerConfig], cwd: str) -> McpServers:
        """Return servers without connecting them, for an agent that connects them itself."""
        self = cls()
        self._connections = {
            server.name: _Connection(server, cwd, sandbox=None, private=True, keyring=None)
            for server in servers
        }
        return self

    async def close(self) -> None:
        """Close all connections."""
        opening, self._opening = list(self._opening.values()), {}
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        connections, self._connections = list(self._connections.values()), {}
        await asyncio.gather(*(connection.close() for connection in connections))

    def servers(self) -> Sequence[str]:
        return tuple(self._connections)

    def configs(self) -> Sequence[McpServerConfig]:
        """Return the configuration of each server."""
        return [connection.server for connection in self._connections.values()]

    async def offered(self) -> Sequence[McpTool]:
        await self.wait_connected()
        per_server = await asyncio.gather(
            *(connection.list_tools() for connection in self._connections.values())
        )
        return [tool for tools in per_server for tool in tools]

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        if opening := self._opening.get(server):
            await asyncio.wait([opening])
        connection = self._connections.get(server)
        if connection is None or connection.client is None:
            return _failed_result(f"no MCP server named {server!r} is connected to this session")
        try:
            result = await connection.client.call_tool(tool, dict(arguments))
        except Exception as error:
            # An error of the server is a failed tool call; it must not end the turn.
            return _failed_result(f"{server}: {error}")
        return ToolResult(
            call_id="",
            status="failed" if result.is_error else "completed",
            content=tuple(_block(block) for block in result.content),
            output=result.structured_content,
        )


class TokenRequired(str):
    """The reason why a connection failed: the server requires a token."""


class _Connection:
    """The connection to one server, and the task that owns it."""

    def __init__(
        self,
        server: McpServerConfig,
        cwd: str,
        *,
        sandbox: ToolContext | None,
        private: bool,
        keyring: Keyring | None,
    ) -> None:
        self.server = server
        self._keyring = keyring
        self._http_status = 0  # of the last response
        self._cwd = cwd
        self._sandbox = sandbox
        self._private = sandbox is None or private
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self.client: Client | None = None

    async def open(self) -> str | None:
        """Connect, and return the reason if that fails, else None."""
        ready: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._serve(ready))
        done, _ = await asyncio.wait([ready], timeout=CONNECT_SECONDS)
        if done:
            return ready.result()
        await self.close()
        return f"did not answer within {CONNECT_SECONDS:.0f} s"

    async def list_tools(self) -> list[McpTool]:
        """Return the server's tools; none if the server has no tools, or cannot list them."""
        try:
            return [] if self.client is None else await self._list_pages(self.client)
        except Exception as error:  # the turn continues without these tools
            if getattr(error, "code", None) != METHOD_NOT_FOUND:
                message = "the tools of the MCP server %s cannot be listed: %s"
                log.warning(message, self.server.name, _cause(error))
            return []

    async def _list_pages(self, client: Client) -> list[McpTool]:
        tools: list[McpTool] = []
        cursor: str | None = None
        while True:
            page = await client.list_tools(cursor=cursor)
            tools += [
                McpTool(
                    server=self.server.name,
                    name=tool.name,
                    description=tool.description or "",
                    input_schema=dict(tool.input_schema),
                )
                for tool in page.tools
            ]
            cursor = page.next_cursor
            if not cursor or len(tools) > MAX_TOOLS:
                return tools

    async def close(self) -> None:
        """Close the connection; cancel the task if it does not end in time."""
        if self._task is None:
            return
        self._stop.set()
        # A task that is still connecting does not wait for the stop event.
        timeout = CLOSE_SECONDS if self.client is not None else 0
        done, _ = await asyncio.wait([self._task], timeout=timeout)
        if not done:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _serve(self, ready: asyncio.Future[str | None]) -> None:
        try:
            async with AsyncExitStack() as stack:
                self.client = await stack.enter_async_context(await self._make_client(stack))
                if not ready.done():
                    ready.set_result(None)
                await self._stop.wait()
        except Exception as error:
            if not ready.done():
                ready.set_result(self._failure_reason(error))
        finally:
            self.client = None
            if not ready.done():
                ready.set_result("the connection was closed before it was ready")

    def _failure_reason(self, error: Exception) -> str:
        if self._http_status in (401, 403):  # the SDK's error does not include the status
            return TokenRequired(f"the server answered with HTTP status {self._http_status}")
        return _cause(error)

    async def _record_status(self, response: httpx2.Response) -> None:
        self._http_status = response.status_code

    async def _make_client(self, stack: AsyncExitStack) -> Client:
        try:
            from mcp import Client
        except ModuleNotFoundError:
            from segue.extras import install_command

            command = install_command("mcp")
            raise ConnectionError(f"MCP servers need a package; run: {command}") from None

        if isinstance(self.server, StdioMcpServer):
            from mcp.client.stdio import StdioServerParameters, stdio_client

            # Discard the server's standard error: segue's own belongs to its client.
            devnull = stack.enter_context(open(os.devnull, "w"))  # noqa: SIM115  # the stack closes it
            command, *args = [self.server.command, *self.server.args]
            env = {variable.name: variable.value for variable in self.server.env}
            if self._sandbox is not None:
                await launch.detect_backends()
                (command, *args), env = _sandboxed([command, *args], env, self._sandbox)
            parameters = StdioServerParameters(command=command, args=args, env=env, cwd=self._cwd)
            return Client(stdio_client(parameters, errlog=devnull))
        if isinstance(self.server, AcpMcpServer):
            raise ValueError("only external agents call MCP servers over ACP")
        return Client(await self._http_transport(stack, self.server))

    async def _http_transport(self, stack: AsyncExitStack, server: HttpMcpServer) -> Any:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        headers = {header.name: header.value for header in server.headers}
        egress = None if self._sandbox is None else self._sandbox.egress
        transport: httpx2.AsyncBaseTransport | None = None
        if egress is not None and not egress.rules.allow_mcp_servers:
            transport = httpx2.AsyncHTTPTransport(proxy=egress.url, trust_env=False)
        elif not self._private:
            transport = make_transport(allow_private=False)
        client = await stack.enter_async_context(
            httpx2.AsyncClient(
                headers=headers,
                auth=None if self._keyring is None else _auth(self._keyring, server.url),
                timeout=60,
                event_hooks={"response": [self._record_status]},
                transport=transport,
                trust_env=transport is None,
            )
        )
        return streamable_http_client(server.url, http_client=client)


def _sandboxed(
    command: list[str], env: dict[str, str], context: ToolContext
) -> tuple[list[str], dict[str, str]]:
    from .sandbox.scratch import make_scratch_directory
    from .tools.bash import base_environment, sandboxed_program

    scratch = make_scratch_directory(context.session)
    env = {**base_environment(scratch, local=False), **env}
    return sandboxed_program(command, env, context, scratch)


def _auth(keyring: Keyring, url: str) -> httpx2.Auth:
    """Return authentication that sends the server's token, and a new one after a 401 response."""
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
            response = yield request
            if response.status_code == 401 and (renewed := await keyring.token(url, token)):
                request.headers["authorization"] = f"Bearer {renewed}"
                yield request

    return Bearer()


def _cause(error: BaseException) -> str:
    """Return the message of the first error in nested exception groups."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return str(error) or type(error).__name__


def _failed_result(text: str) -> ToolResult:
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
            resource = block.resource
            return Resource(
                uri=str(resource.uri),
                text=getattr(resource, "text", None),
                data=getattr(resource, "blob", None),
                mime=resource.mime_type,
            )
