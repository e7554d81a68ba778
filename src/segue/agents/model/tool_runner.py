"""The tools that the model can call in one turn, and the execution of its calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import ToolDefinition

from segue.agents.base import (
    ALLOW,
    Answer,
    McpTool,
    PermissionRequest,
    Tools,
    Turn,
    remember_permission,
)
from segue.agents.base.spec import PermissionOverride, tool_name
from segue.agents.base.turn_hooks import HookedCall, Hooks, PostToolDecision
from segue.agents.permission import (
    DENIED,
    DENIED_CALL,
    INPUT_CHANGED,
    decide_permission,
    permission_fields,
    permission_request,
    policy_by_key,
    read_answers,
    refusal,
)
from segue.agents.tools import BUILT_IN, Tool, ToolContext, ToolError, failed_result
from segue.model import ids
from segue.model.content import as_content
from segue.model.event import (
    DELEGATES,
    RUN_BY_OTHERS,
    AnyBody,
    Event,
    Failed,
    Location,
    Policy,
    StatusChanged,
    SystemMessage,
    ThreadChanged,
    ToolCall,
    ToolKind,
    ToolResult,
)
from segue.model.tools.titles import request_title_of

from .conversation import provider_extra
from .delegation import Delegations
from .settings import CustomTool, Settings, Toolset

# The key in a call's `extra` for what hooks did: the model's `input`, if they have replaced it, and
# their `context`, a message for the model.
HOOKED = "hooked"
# Tools that segue runs itself, even if a remote worker runs the other tools.
_NEVER_REMOTE = ("web_fetch", "web_search")
# The user's client chose these MCP servers, not the agent, so their tools ask for permission.
_CLIENT_TOOLSET = Toolset(policy="always_ask")


class OfferedTool(NamedTuple):
    """A tool that the model can call: built-in, of an MCP server, or run by the client.

    A tool that `delegates` is answered by a thread.
    """

    name: str
    kind: ToolKind
    policy: Policy
    definition: ToolDefinition
    built_in: Tool | None = None
    mcp: McpTool | None = None
    delegates: bool = False

    @property
    def is_custom(self) -> bool:
        """True if a client runs the tool."""
        return self.built_in is None and self.mcp is None and not self.delegates

    @property
    def permission_name(self) -> str:
        """The name under which a user always allows the tool."""
        return self.definition.name


class PreparedCall(NamedTuple):
    """A tool call of the model, checked and ready to run or already refused."""

    event: ToolCall
    tool: OfferedTool | None
    arguments: Any = None
    refusal: str | None = None
    override: PermissionOverride = None
    context: str | None = None  # a hook's message for the model

    @property
    def for_hooks(self) -> HookedCall:
        """The call as hooks receive it."""
        return HookedCall(self.event.call_id, self.event.name, self.event.server, self.event.input)


class ToolProgress(NamedTuple):
    """The results of some calls, and whether others wait for clients."""

    events: list[Event]
    waits: bool


class ToolRunner:
    """Prepares and runs the tool calls of one turn."""

    def __init__(
        self,
        turn: Turn,
        context: ToolContext,
        settings: Settings,
        agent_servers: Tools,
        hooks: Hooks | None = None,
        delegations: Delegations | None = None,
    ) -> None:
        self._turn = turn
        self._hooks = hooks
        self._delegations = delegations
        self._threads_wait = False  # whether a thread of this turn waits for clients
        self._context = context
        self._agent_servers = agent_servers
        self._tools: dict[str, OfferedTool] = {}  # by the name that the model uses
        self._settings = settings
        self.stopped = False  # whether a hook has ended the turn

    async def load_tools(self) -> list[ToolDefinition]:
        """Collect the enabled tools, and return their definitions for the model."""
        settings = self._settings
        tools: list[OfferedTool] = []
        if self._delegations is not None:
            tools += map(_delegation_tool, self._delegations.definitions())
        if settings.built_in is not None:
            tools += self._built_in_tools(settings.built_in)
        tools += [_custom_tool(tool) for tool in settings.custom]
        for servers in (self._turn.tools, self._agent_servers):
            for mcp_tool in await servers.offered():
                toolset = settings.mcp.get(mcp_tool.server, _CLIENT_TOOLSET)
                enabled, policy = self._tool_config(toolset, mcp_tool.name)
                if enabled:
                    tools.append(_mcp_tool(mcp_tool, policy))
        for tool in tools:
            self._tools.setdefault(tool.definition.name, tool)
        return [tool.definition for tool in self._tools.values()]

    def _built_in_tools(self, toolset: Toolset) -> list[OfferedTool]:
        tools = []
        for tool in BUILT_IN.values():
            enabled, policy = self._tool_config(toolset, tool.name)
            if tool.name == "web_search" and not self._context.config.get("web.search"):
                continue
            if enabled:
                definition = ToolDefinition(
                    name=tool.name,
                    description=tool.description,
                    parameters_json_schema=tool.schema(),
                )
                tools.append(OfferedTool(tool.name, tool.kind, policy, definition, built_in=tool))
        return tools

    def _tool_config(self, toolset: Toolset, name: str) -> tuple[bool, Policy]:
        enabled, policy = toolset.tool_config(name)
        by_key = self._settings.tools_by_key and self._turn.local
        return enabled, policy_by_key(policy) if by_key else policy

    # Preparing calls.

    async def prepare(self, part: ToolCallPart) -> PreparedCall:
        """Validate a call of the model and run the hooks for it. The caller stores its event."""
        tool = self._tools.get(part.tool_name)
        arguments, mistake = _parse_arguments(part)
        event = ToolCall(
            call_id=ids.new_id(),
            name=part.tool_name,
            input=arguments,
            extra=provider_extra(part, ("id", "provider_name", "provider_details")),
        )
        if tool is None:
            # Mark the call as denied: a remote worker may have a tool with this name.
            event = msgspec.structs.replace(event, **DENIED)
            return PreparedCall(event, None, refusal=f"there is no tool {part.tool_name!r}")
        call = self._prepare_offered(event, tool, mistake)
        if self._hooks is None or mistake is not None:
            return call
        decision = await self._hooks.before_tool(self._turn, call.for_hooks)
        self.stopped = self.stopped or decision.stop
        hooked = {} if decision.context is None else {"context": decision.context}
        if decision.input is not None:
            hooked["input"] = event.input
            event = msgspec.structs.replace(event, input=decision.input)
        if hooked:
            event = msgspec.structs.replace(event, extra={**event.extra, HOOKED: hooked})
        call = self._prepare_offered(event, tool, decision.refusal, decision.override)
        return call._replace(context=decision.context)

    def _prepare_offered(
        self,
        event: ToolCall,
        tool: OfferedTool,
        mistake: str | None,
        override: PermissionOverride = None,
    ) -> PreparedCall:
        arguments = event.input
        locations: tuple[Location, ...] = ()
        if tool.built_in is not None and mistake is None:
            try:
                arguments = tool.built_in.parse(event.input)
                target = None if self._runs_remotely(tool) else tool.built_in.target(arguments)
                locations = () if target is None else (Location(path=self._resolve(target)),)
            except ToolError as error:
                # The remote worker validates the arguments of the calls that it runs.
                mistake = None if self._runs_remotely(tool) else str(error)
        extra, permission = event.extra, DENIED
        if mistake is None:
            permission = permission_fields(
                self._turn, tool.permission_name, tool.kind, tool.policy, override
            )
            if self._runs_remotely(tool):
                extra = {**extra, RUN_BY_OTHERS: True}
            if tool.delegates:
                extra = {**extra, DELEGATES: True}
        event = ToolCall(
            call_id=event.call_id,
            name=tool.name,
            kind=tool.kind,
            input=event.input,
            locations=locations,
            server=None if tool.mcp is None else tool.mcp.server,
            # A client must not run a call that is already refused.
            custom=tool.is_custom and mistake is None,
            extra=extra,
            **permission,
        )
        return PreparedCall(event, tool, arguments, mistake, override)

    def _runs_remotely(self, tool: OfferedTool) -> bool:
        """Return True if a remote worker runs this built-in tool."""
        built_in = tool.built_in
        return self._context.remote and built_in is not None and built_in.name not in _NEVER_REMOTE

    def _resolve(self, path: str) -> str:
        try:
            return self._context.paths.resolve(path).path
        except ToolError:
            return path

    # Running calls.

    async def run(
        self, calls: Sequence[PreparedCall], answers: Mapping[str, Answer | None] | None = None
    ) -> ToolProgress:
        """Ask for permissions, run the calls that need no answer, and return the stored results.

        All permission requests are made at once. Calls on this machine run in order, calls to MCP
        servers at the same time. `answers` has the permission requests of earlier, by call: None
        if one is still open.
        """
        decisions: dict[str, Answer | None] = dict(answers or {})
        for call in calls:
            if call.event.call_id not in decisions and (decided := self._decide(call)) is not None:
                decisions[call.event.call_id] = decided
        undecided = [call for call in calls if call.event.call_id not in decisions]
        new_answers = (
            await self._turn.ask([self._request(call) for call in undecided]) if undecided else []
        )
        decisions.update(
            {
                call.event.call_id: answer
                for call, answer in zip(undecided, new_answers, strict=True)
            }
        )
        local_lock = asyncio.Lock()
        runnable = [
            await self._apply(call, answer)
            for call in calls
            if (answer := decisions[call.event.call_id]) is not None
        ]
        results = await _gather([self._run_call(call, local_lock) for call in runnable])
        waits = len(runnable) < len(calls) or bool(self._turn.waiting_calls) or self._threads_wait
        return ToolProgress([event for events in results for event in events], waits)

    async def resume(self, events: Sequence[Event]) -> ToolProgress:
        """Continue the calls of a turn that waited for clients; `events` are those of the turn."""
        bodies = [event.body for event in events if event.body.thread == self._turn.thread]
        ended = {body.call_id for body in bodies if isinstance(body, ToolResult)}
        calls = {body.call_id: body for body in bodies if isinstance(body, ToolCall)}
        answers = read_answers(bodies)
        stored: list[Event] = []
        for body in _since_last_run(bodies):
            if isinstance(body, ToolResult) and body.call_id in calls:
                call = self._restore(calls[body.call_id])
                if self._is_run_by_client(call):
                    stored += await self._after_client_result(call, body)
        waiting = [self._restore(call) for id, call in calls.items() if id not in ended]
        progress = await self.run(
            waiting, {id: answer for id, answer in answers.items() if id not in ended}
        )
        return ToolProgress([*stored, *progress.events], progress.waits)

    def _restore(self, event: ToolCall) -> PreparedCall:
        """Return a stored call as it was prepared."""
        tool = self._tools.get(tool_name(event.name, event.server))
        if tool is None:
            return PreparedCall(event, None, refusal=f"there is no tool {event.name!r} any more")
        override = event.verdict if self._hooks is not None and event.verdict != "deny" else None
        denial = DENIED_CALL if event.verdict == "deny" else None
        call = self._prepare_offered(event, tool, denial, override)
        return call._replace(context=event.extra.get(HOOKED, {}).get("context"))

    def _decide(self, call: PreparedCall) -> Answer | None:
        """Return whether a call may run, None if the user must be asked."""
        tool = call.tool
        # The client that runs a custom tool decides.
        if tool is None or call.refusal is not None or call.event.custom:
            return Answer(option=ALLOW)
        return decide_permission(
            self._turn, tool.permission_name, tool.kind, tool.policy, call.override
        )

    def _request(self, call: PreparedCall) -> PermissionRequest:
        assert call.tool is not None  # other calls need no permission
        title = request_title_of(call.event)
        return permission_request(call.event.call_id, title, call.tool.permission_name)

    async def _apply(self, call: PreparedCall, answer: Answer) -> PreparedCall:
        """Return the call with the user's changes, or with a refusal."""
        tool = call.tool
        if tool is None or call.refusal is not None or call.event.custom:
            return call
        await remember_permission(self._turn, tool.permission_name, answer)
        if not answer.allowed:
            return call._replace(refusal=refusal(answer))
        if answer.input is None:
            return call
        if self._runs_remotely(tool):
            return call._replace(refusal=INPUT_CHANGED)
        event = msgspec.structs.replace(call.event, input=answer.input)
        return self._prepare_offered(event, tool, None)._replace(context=call.context)

    async def _run_call(self, call: PreparedCall, local_lock: asyncio.Lock) -> list[Event]:
        tool = call.tool
        if call.refusal is not None:
            return await self._store(call, failed_result(call.refusal))
        if self._is_run_by_client(call):
            self._turn.waiting_calls.add(call.event.call_id)
            return []
        if tool is not None and tool.delegates and self._delegations is not None:
            result = await self._delegations.run(call.event)
            self._threads_wait = self._threads_wait or result is None
            return [] if result is None else await self._store(call, result)
        if tool is not None and tool.mcp is not None:
            return await self._store(call, await self._call_mcp(tool.mcp, call.arguments))
        async with local_lock:
            return await self._store(call, await self._run_built_in(call))

    async def _store(self, call: PreparedCall, result: ToolResult) -> list[Event]:
        """Run the hooks for a result, and store it."""
        decision = await self._after_tool(call, result)
        if decision.output is not None:
            result = msgspec.structs.replace(
                result, content=as_content(decision.output), output=None
            )
        return await self._turn.emit(
            msgspec.structs.replace(result, call_id=call.event.call_id),
            *_context_messages(call.context, decision.context),
        )

    def _is_run_by_client(self, call: PreparedCall) -> bool:
        """Return whether a client or a remote worker runs a call."""
        return call.event.custom or (call.tool is not None and self._runs_remotely(call.tool))

    async def _after_client_result(self, call: PreparedCall, result: ToolResult) -> list[Event]:
        """Run the hooks for a result that a client or a remote worker has sent."""
        decision = await self._after_tool(call, result)
        if decision.output is not None:
            raise ValueError("a hook cannot change the result of a tool that a client runs")
        return await self._turn.emit(*_context_messages(call.context, decision.context))

    async def _after_tool(self, call: PreparedCall, result: ToolResult) -> PostToolDecision:
        if self._hooks is None or call.refusal is not None:
            return PostToolDecision()
        decision = await self._hooks.after_tool(self._turn, call.for_hooks, result)
        self.stopped = self.stopped or decision.stop
        return decision

    async def _run_built_in(self, call: PreparedCall) -> ToolResult:
        assert call.tool is not None and call.tool.built_in is not None
        try:
            context = self._context
            if context.local and not self._turn.local:  # another caller has joined the turn
                context = context.for_other_caller()
            result = await call.tool.built_in.run(context, call.arguments)
        except ToolError as error:
            result = failed_result(str(error))
        return await self._with_refusals(result)

    async def _with_refusals(self, result: ToolResult) -> ToolResult:
        """Store refused connections as events, and add them to the result of a call."""
        egress = self._context.egress
        refusals = () if egress is None else egress.take_refusals()
        if not refusals:
            return result
        await self._turn.emit(
            *(Failed(message=f"refused connection: {refusal}") for refusal in refusals)
        )
        notes = as_content("\n".join(f"[refused connection: {refusal}]" for refusal in refusals))
        return msgspec.structs.replace(result, content=(*result.content, *notes))

    async def _call_mcp(self, tool: McpTool, arguments: dict[str, Any]) -> ToolResult:
        if self._context.local and not self._turn.local:
            # The servers were connected with the local user's credentials and addresses.
            return failed_result(
                f"the MCP server {tool.server!r} was connected for the local user, and another"
                " caller has joined this turn; try again in the next turn"
            )
        for servers in (self._turn.tools, self._agent_servers):
            if tool.server in servers.servers():
                result = await servers.call(tool.server, tool.name, arguments)
                return await self._with_refusals(result)
        return failed_result(f"the MCP server {tool.server!r} is no longer connected")


async def _gather(coroutines: Sequence[Any]) -> list[Any]:
    """Run coroutines at the same time; the first error cancels the others."""
    if len(coroutines) == 1:
        return [await coroutines[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None  # the caller expects the error itself, not a group
    return [task.result() for task in tasks]


def _since_last_run(bodies: Sequence[AnyBody]) -> Sequence[AnyBody]:
    """Return the events since the agent began to run the last time before this one."""
    starts = [
        index
        for index, body in enumerate(bodies)
        if isinstance(body, StatusChanged | ThreadChanged) and body.status == "running"
    ]
    return bodies[starts[-2] :] if len(starts) > 1 else bodies


def _context_messages(*texts: str | None) -> list[SystemMessage]:
    """Return the messages of hooks for the model."""
    return [SystemMessage(content=as_content(text)) for text in texts if text]


def _custom_tool(tool: CustomTool) -> OfferedTool:
    schema = tool.input_schema or {"type": "object"}
    definition = ToolDefinition(
        name=tool.name, description=tool.description, parameters_json_schema=schema
    )
    return OfferedTool(tool.name, "other", "always_allow", definition)


def _delegation_tool(definition: ToolDefinition) -> OfferedTool:
    # The calls of the thread are checked one by one; a delegation itself changes nothing.
    return OfferedTool(definition.name, "think", "always_allow", definition, delegates=True)


def _mcp_tool(tool: McpTool, policy: Policy) -> OfferedTool:
    definition = ToolDefinition(
        name=tool_name(tool.name, tool.server),
        description=tool.description,
        parameters_json_schema=tool.input_schema or {"type": "object"},
    )
    return OfferedTool(tool.name, "other", policy, definition, mcp=tool)


def _parse_arguments(part: ToolCallPart) -> tuple[Any, str | None]:
    """Return a call's arguments, and the mistake if they are not a JSON object."""
    if part.args is None or part.args == "":
        return {}, None
    if not isinstance(part.args, str):
        return dict(part.args), None
    try:
        arguments = json.loads(part.args)
    except ValueError:
        return {"raw": part.args}, "the arguments are not valid JSON"
    if not isinstance(arguments, dict):
        return {"raw": arguments}, "the arguments are not a JSON object"
    return arguments, None
