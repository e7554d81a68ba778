"""The MCP server: the protocol of the `mcp` package, answered by the hub."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from segue import __version__
from segue.hub.tools import mcp_caller
from segue.model.errors import SegueError
from segue.model.principal import Principal

from . import catalog
from .answers import shorten
from .arguments import schema
from .caller import Call
from .scope import Caller, McpSettings, SessionScope

if TYPE_CHECKING:
    from segue.hub import Hub

MAX_ERROR_CHARS = 2000  # an error names the value that was refused

INSTRUCTIONS = """\
segue has the sessions of all coding agents that were used here. Before you begin, look at \
recent_work, and search for what was tried before. Secrets in answers are masked."""

Context = ServerRequestContext[Any, Any]
OpenHub = Callable[[], Awaitable["Hub"]]
PrincipalOf = Callable[[Context], Principal]


class McpServer:
    """Answers MCP requests over the sessions of a hub, which is opened when it is first needed."""

    def __init__(self, open_hub: OpenHub, principal_of: PrincipalOf, settings: McpSettings) -> None:
        self._open_hub = open_hub
        self._principal_of = principal_of
        self._settings = settings
        self._tools = catalog.tools(allow_write=settings.allow_write)
        self._scope = SessionScope(settings)
        self._opening: asyncio.Future[Hub] | None = None
        self.protocol: Server[Any] = Server(
            "segue",
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )

    async def _hub(self) -> Hub:
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open_hub())
        return await asyncio.shield(self._opening)

    async def _call(
        self, context: Context, tool: str = "", arguments: Mapping[str, Any] | None = None
    ) -> Call:
        """Return what a request works with."""
        hub = await self._hub()
        principal = self._principal_of(context)
        caller = Caller()
        if tool:
            is_local = self._settings.directory is not None
            environment: Mapping[str, str] = os.environ if is_local else {}
            id = mcp_caller(dict(context.meta or {}), environment)
            caller = Caller(id, tool, arguments or {})
        return Call(hub, principal, self._settings, self._scope, caller)

    async def _list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    description=tool.description,
                    input_schema=schema(tool.arguments),
                    annotations=types.ToolAnnotations(
                        read_only_hint=not tool.writes,
                        destructive_hint=False,
                        idempotent_hint=True,
                        open_world_hint=False,
                    ),
                )
                for tool in self._tools.values()
            ]
        )

    async def _call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = self._tools.get(params.name)
        if tool is None:
            message = f"there is no tool {params.name!r}; use one of {', '.join(self._tools)}"
            raise MCPError(types.INVALID_PARAMS, message)
        arguments = params.arguments or {}
        try:
            call = await self._call(context, params.name, arguments)
            text = await tool.run(call, arguments)
        except SegueError as error:
            return _text_result(self._shown_error(context, error), is_error=True)
        return _text_result(text)

    def _shown_error(self, context: Context, error: SegueError) -> str:
        """Return an error's message; only the local user sees paths in it."""
        is_local = self._principal_of(context).local
        return shorten(error.message if is_local else error.remote_message, MAX_ERROR_CHARS)

    async def _list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        call = await self._call(context)
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=uri, name=title, description=text, mime_type="text/markdown")
                for uri, title, text in await catalog.recent_resources(call)
            ]
        )

    async def _list_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        templates = {
            "session": (catalog.SESSION_URI, "The outline of a session."),
            "turn": (catalog.TURN_URI, "One turn of a session, counted from 1."),
        }
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    name=name, uri_template=uri, description=text, mime_type="text/markdown"
                )
                for name, (uri, text) in templates.items()
            ]
        )

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        try:
            text = await catalog.read_resource(await self._call(context), uri)
        except SegueError as error:
            raise self._protocol_error(context, error) from None
        contents = types.TextResourceContents(uri=uri, mime_type="text/markdown", text=text)
        return types.ReadResourceResult(contents=[contents])

    async def _list_prompts(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        argument = types.PromptArgument(
            name="session", description="The id of the session.", required=True
        )
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(
                    name=prompt.name,
                    title=prompt.title,
                    description=prompt.description,
                    arguments=[argument],
                )
                for prompt in catalog.PROMPTS.values()
            ]
        )

    async def _get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        session = (params.arguments or {}).get("session", "")
        try:
            text = await catalog.prompt_text(await self._call(context), params.name, session)
        except SegueError as error:
            raise self._protocol_error(context, error) from None
        content = types.TextContent(type="text", text=text)
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])

    def _protocol_error(self, context: Context, error: SegueError) -> MCPError:
        message = self._shown_error(context, error)
        return MCPError(types.INVALID_PARAMS, message)


def _text_result(text: str, *, is_error: bool = False) -> types.CallToolResult:
    content = types.TextContent(type="text", text=text)
    return types.CallToolResult(content=[content], is_error=is_error)


def serve_stdio(open_hub: OpenHub, principal: Principal, settings: McpSettings) -> None:
    """Answer one client over standard input and output, until they end."""
    asyncio.run(_serve_stdio(open_hub, principal, settings))


async def _serve_stdio(open_hub: OpenHub, principal: Principal, settings: McpSettings) -> None:
    from mcp.server.stdio import stdio_server

    async with AsyncExitStack() as stack:

        async def open_until_exit() -> Hub:
            return await stack.enter_async_context(await open_hub())

        server = McpServer(open_until_exit, lambda context: principal, settings).protocol
        async with stdio_server() as (reader, writer):
            await server.run(reader, writer, server.create_initialization_options())
