"""The tools that the model is offered in one turn, and what becomes of its calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import ToolDefinition

from segue.agents.base import McpTool, Tools, Turn
from segue.agents.permission import (
    DENIED_EXTRA,
    PermissionOverride,
    Policy,
    check_permission,
    permission_extra,
    refusal,
)
from segue.agents.tools import BUILT_IN, Tool, ToolContext, ToolError, failed
from segue.agents.turn_hooks import HookedCall, Hooks, PostToolDecision
from segue.model import ids
from segue.model.content import as_content
from segue.model.event import (
    RUN_BY_OTHERS,
    Event,
    Location,
    SystemMessage,
    ToolCall,
    ToolKind,
    ToolResult,
)

from .conversation import DIALECT, tool_name
from .settings import CustomTool, Settings, Toolset

# Where a call keeps what the model gave it, if hooks gave it something else.
HOOKED = "hooked"
# What fetches from the web is not left to others.
_OURS = ("web_fetch", "web_search")
# MCP servers that a client brings along were chosen by whoever asks.
_BROUGHT = Toolset(policy="always_ask")


class Offer(NamedTuple):
    """One tool, whoever runs it."""

    name: str
    kind: ToolKind
    policy: Policy
    definition: ToolDefinition
    built_in: Tool | None = None
    mcp: McpTool | None = None


class Call(NamedTuple):
    """A call of the model's, as far as it is understood."""

    event: ToolCall
    offer: Offer | None
    given: Any = None
    refused: str | None = None
    override: PermissionOverride = None
    context: str | None = None  # what hooks want the model to know of it

    @property
    def told(self) -> HookedCall:
        """The call as hooks are told of it."""
        return HookedCall(self.event.call_id, self.event.name, self.event.server, self.event.input)


class Toolbox:
    """Everything on offer, by the name that the model knows it by."""

    def __init__(
        self,
        turn: Turn,
        context: ToolContext,
        settings: Settings,
        servers: Tools,
        hooks: Hooks | None = None,
    ) -> None:
        self._turn = turn
        self._hooks = hooks
        self.stopped = False  # by a hook: the turn is to end
        self._context = context
        self._own = servers
        self._offers: dict[str, Offer] = {}
        self._settings = settings

    async def open(self) -> list[ToolDefinition]:
        """Look what there is."""
        settings = self._settings
        offers: list[Offer] = []
        if settings.built_in is not None:
            offers += self._built_in(settings.built_in)
        offers += [_custom(tool) for tool in settings.custom]
        for servers in (self._turn.tools, self._own):
            for tool in await servers.offered():
                enabled, policy = settings.mcp.get(tool.server, _BROUGHT).of(tool.name)
                if enabled:
                    offers.append(_mcp(tool, policy))
        for offer in offers:
            self._offers.setdefault(offer.definition.name, offer)
        return [offer.definition for offer in self._offers.values()]

    def _built_in(self, toolset: Toolset) -> list[Offer]:
        found = []
        for tool in BUILT_IN.values():
            enabled, policy = toolset.of(tool.name)
            if tool.name == "web_search" and not self._context.config.get("web.search"):
                continue
            if enabled:
                definition = ToolDefinition(
                    name=tool.name, description=tool.about, parameters_json_schema=tool.schema()
                )
                found.append(Offer(tool.name, tool.kind, policy, definition, built_in=tool))
        return found

    # Calls.

    async def understand(self, part: ToolCallPart) -> Call:
        """A call as an event, after what hooks make of it, and why it cannot be done if not."""
        offer = self._offers.get(part.tool_name)
        arguments, wrong = _arguments(part)
        event = ToolCall(
            call_id=ids.new_id(),
            name=part.tool_name,
            input=arguments,
            extra=_kept(part),
        )
        if offer is None:
            # Whoever runs tools elsewhere may have one of that name.
            event = msgspec.structs.replace(event, extra={**event.extra, **DENIED_EXTRA})
            return Call(event, None, refused=f"there is no tool {part.tool_name!r}")
        call = self._understood(event, offer, wrong)
        if self._hooks is None or wrong is not None:
            return call
        said = await self._hooks.before_tool(self._turn, call.told)
        self.stopped = self.stopped or said.stop
        if said.input is not None:
            extra = {**event.extra, HOOKED: {"input": event.input}}
            event = msgspec.structs.replace(event, input=said.input, extra=extra)
        call = self._understood(event, offer, said.refusal, said.override)
        return call._replace(context=said.context)

    def _understood(
        self, event: ToolCall, offer: Offer, wrong: str | None, override: PermissionOverride = None
    ) -> Call:
        arguments = event.input
        title: str | None = None
        locations: tuple[Location, ...] = ()
        given = arguments
        if offer.built_in is not None and wrong is None:
            try:
                given = offer.built_in.read(arguments)
                title = offer.built_in.title(given)
                target = None if self._given_away(offer) else offer.built_in.target(given)
                locations = () if target is None else (Location(path=self._path(target)),)
            except ToolError as error:
                # Others see the call and may do it all the same: whether it fits is theirs to say.
                wrong = None if self._given_away(offer) else str(error)
        event = ToolCall(
            call_id=event.call_id,
            name=offer.name,
            title=title,
            kind=offer.kind,
            input=arguments,
            locations=locations,
            server=None if offer.mcp is None else offer.mcp.server,
            # What is refused already is nobody's to run.
            custom=offer.built_in is None and offer.mcp is None and wrong is None,
            extra={
                **event.extra,
                **(DENIED_EXTRA if wrong is not None else self._marks(offer, override)),
            },
        )
        return Call(event, offer, given, wrong, override)

    def _marks(self, offer: Offer, override: PermissionOverride) -> dict[str, Any]:
        """What doors show and take into account of a call that may be done."""
        given_away = {RUN_BY_OTHERS: True} if self._given_away(offer) else {}
        decided = permission_extra(
            self._turn.session, _key(offer), offer.kind, offer.policy, override
        )
        return given_away | decided

    def _given_away(self, offer: Offer) -> bool:
        """Whether a built-in tool is one that others run; what fetches from the web is ours."""
        built_in = offer.built_in
        return self._context.elsewhere and built_in is not None and built_in.name not in _OURS

    def _path(self, target: str) -> str:
        try:
            return self._context.roots.resolve(target).path
        except ToolError:
            return target

    async def perform(self, calls: Sequence[Call]) -> list[Event]:
        """Do what was called for and may be done; the results, stored.

        Questions are asked together. What runs here then runs in its order; what runs elsewhere
        does not wait for that.
        """
        allowed = await _gathered([self._may(call) for call in calls])
        here = asyncio.Lock()
        results = await _gathered([self._do(call, here) for call in allowed])
        return [event for events in results for event in events]

    async def _may(self, call: Call) -> Call:
        """The call as it may be done, or refused."""
        offer = call.offer
        if offer is None or call.refused is not None:
            return call
        if call.event.custom:
            return call  # whoever runs it decides
        title = call.event.title or f"{offer.name} {json.dumps(call.event.input)[:200]}"
        answer = await check_permission(
            self._turn,
            call.event.call_id,
            title,
            _key(offer),
            offer.kind,
            offer.policy,
            call.override,
        )
        if not answer.allowed:
            return call._replace(refused=refusal(answer))
        if answer.input is None:
            return call
        if self._given_away(offer):
            return call._replace(refused="it runs elsewhere, where its input cannot be changed")
        event = msgspec.structs.replace(call.event, input=answer.input)
        return self._understood(event, offer, None)._replace(context=call.context)

    async def _do(self, call: Call, here: asyncio.Lock) -> list[Event]:
        if call.refused is not None:
            result = failed(call.refused)
        elif call.event.custom or (call.offer is not None and self._given_away(call.offer)):
            return await self._ran_elsewhere(call)
        elif call.offer is not None and call.offer.mcp is not None:
            result = await self._elsewhere(call.offer.mcp, call.given)
        else:
            async with here:
                result = await self._here(call)
                return await self._store(call, result)
        return await self._store(call, result)

    async def _store(self, call: Call, result: ToolResult) -> list[Event]:
        said = await self._after(call, result)
        if said.output is not None:
            result = msgspec.structs.replace(result, content=as_content(said.output), output=None)
        return await self._turn.emit(
            ToolResult(
                call_id=call.event.call_id,
                status=result.status,
                content=result.content,
                output=result.output,
            ),
            *_known(call.context, said.context),
        )

    async def _ran_elsewhere(self, call: Call) -> list[Event]:
        """The result of a tool that the client runs, which is stored when it is here."""
        events = await self._turn.result(call.event.call_id)
        said = PostToolDecision()
        if isinstance(events[0].body, ToolResult):
            said = await self._after(call, events[0].body)
        if said.output is not None:
            raise ValueError("the result of a tool that a client runs is not a hook's to change")
        return [*events, *await self._turn.emit(*_known(call.context, said.context))]

    async def _after(self, call: Call, result: ToolResult) -> PostToolDecision:
        """What hooks say to the result of a call that was made."""
        if self._hooks is None or call.refused is not None:
            return PostToolDecision()
        said = await self._hooks.after_tool(self._turn, call.told, result)
        self.stopped = self.stopped or said.stop
        return said

    async def _here(self, call: Call) -> ToolResult:
        assert call.offer is not None and call.offer.built_in is not None
        try:
            context = self._context
            if context.local and not self._turn.local:  # somebody else has joined
                context = context.for_others()
            return await call.offer.built_in.use(context, call.given)
        except ToolError as error:
            return failed(str(error))

    async def _elsewhere(self, tool: McpTool, arguments: dict[str, Any]) -> ToolResult:
        for servers in (self._turn.tools, self._own):
            if tool.server in servers.servers():
                return await servers.call(tool.server, tool.name, arguments)
        return failed(f"the MCP server {tool.server!r} is no longer connected")


async def _gathered(work: Sequence[Any]) -> list[Any]:
    """All of it at once; the first error ends the rest."""
    if len(work) == 1:
        return [await work[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None  # which says what went wrong
    return [task.result() for task in tasks]


def _known(*said: str | None) -> list[SystemMessage]:
    """What hooks want the model to know."""
    return [SystemMessage(content=as_content(text)) for text in said if text]


def _custom(tool: CustomTool) -> Offer:
    schema = tool.input_schema or {"type": "object"}
    definition = ToolDefinition(
        name=tool.name, description=tool.description, parameters_json_schema=schema
    )
    return Offer(tool.name, "other", "always_allow", definition)


def _mcp(tool: McpTool, policy: Policy) -> Offer:
    definition = ToolDefinition(
        name=tool_name(tool.name, tool.server),
        description=tool.description,
        parameters_json_schema=tool.input_schema or {"type": "object"},
    )
    return Offer(tool.name, "other", policy, definition, mcp=tool)


def _key(offer: Offer) -> str:
    """The name under which somebody always allows a tool."""
    return offer.definition.name


def _arguments(part: ToolCallPart) -> tuple[Any, str | None]:
    if part.args is None or part.args == "":
        return {}, None
    if not isinstance(part.args, str):
        return dict(part.args), None
    try:
        found = json.loads(part.args)
    except ValueError:
        return {"raw": part.args}, "the arguments are no JSON"
    return (found, None) if isinstance(found, dict) else ({"raw": found}, "they are no object")


def _kept(part: ToolCallPart) -> dict[str, Any]:
    names = ("id", "provider_name", "provider_details")
    kept = {name: value for name in names if (value := getattr(part, name)) is not None}
    return {DIALECT: kept} if kept else {}
