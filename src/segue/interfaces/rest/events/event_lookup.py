"""Find the events that other events of a session refer to."""

from __future__ import annotations

from collections.abc import Sequence

from segue.hub import Hub
from segue.model import ids
from segue.model.errors import NotFound
from segue.model.event import PermissionAsked, ToolCall, ToolResult
from segue.model.principal import Principal

# How many tool calls back a call is searched for. More never run at the same time.
_MAX_CALLS_BACK = 200


def event_id(id: str) -> str:
    """Return the UUID that an event is shown with. An imported event may have any id."""
    return ids.parse(id) or ids.derived_id("event", id)


def tool_use_id(call_id: str) -> str:
    """Return the id of the event that shows a tool call, without reading the call."""
    return ids.parse(call_id) or ids.derived_id("call", call_id)


def subject_id(request: PermissionAsked) -> str:
    """Return the id of the event that a permission request is about: its tool call, or itself."""
    return event_id(request.ask_id) if request.call_id is None else tool_use_id(request.call_id)


class EventLookup:
    """The tool calls and permission requests of one session.

    Events that were encoded are remembered; others are read from the history.
    """

    def __init__(self, hub: Hub, principal: Principal, session_id: str) -> None:
        self._hub = hub
        self._principal = principal
        self._session_id = session_id
        self._permission_requests: dict[str, PermissionAsked] = {}
        self._calls: dict[str, ToolCall] = {}

    def remember(self, body: object) -> None:
        """Remember a tool call or permission request; ignore other events."""
        if isinstance(body, ToolCall):
            self._calls[body.call_id] = body
        elif isinstance(body, PermissionAsked):
            self._permission_requests[body.ask_id] = body

    async def permission_request(self, ask_id: str) -> PermissionAsked | None:
        """Return a permission request, whose id is also the id of its event."""
        if ask_id not in self._permission_requests:
            try:
                seq = await self._hub.history.locate(self._principal, self._session_id, ask_id)
            except NotFound:
                return None
            for event in await self._hub.history.events(
                self._principal, self._session_id, after=seq - 1, limit=1
            ):
                self.remember(event.body)
        return self._permission_requests.get(ask_id)

    async def recent_requests(self, open_asks: Sequence[str]) -> list[PermissionAsked]:
        """Return the open permission requests, then recent ones that were answered."""
        requests = [await self.permission_request(ask_id) for ask_id in open_asks]
        recent = await self._hub.history.events(
            self._principal,
            self._session_id,
            types=("permission_asked",),
            limit=_MAX_CALLS_BACK,
            backward=True,
        )
        requests += [e.body for e in reversed(recent) if isinstance(e.body, PermissionAsked)]
        return [request for request in requests if request is not None]

    async def call_shown_as(self, event_id: str) -> ToolCall | None:
        """Return the tool call that the event of this id shows, if it is a recent one."""
        parsed_id = ids.parse(event_id, "sevt")
        for event in await self._hub.history.events(
            self._principal,
            self._session_id,
            types=("tool_call",),
            limit=_MAX_CALLS_BACK,
            backward=True,
        ):
            if isinstance(event.body, ToolCall) and tool_use_id(event.body.call_id) == parsed_id:
                return event.body
        return None

    async def has_client_result(self, call_id: str) -> bool:
        """Return whether a client has sent the result of a recent tool call."""
        results = await self._hub.history.events(
            self._principal,
            self._session_id,
            types=("tool_result",),
            limit=_MAX_CALLS_BACK,
            backward=True,
        )
        bodies = [event.body for event in results if isinstance(event.body, ToolResult)]
        return any(body.call_id == call_id and "rest" in body.extra for body in bodies)

    async def call_of_result(self, call_id: str, seq: int) -> ToolCall | None:
        """Return the tool call whose result, or whose permission, is the event `seq`."""
        if call_id not in self._calls:
            for event in await self._hub.history.events(
                self._principal,
                self._session_id,
                before=seq,
                types=("tool_call",),
                limit=_MAX_CALLS_BACK,
                backward=True,
            ):
                self.remember(event.body)
        return self._calls.get(call_id)
