"""Events that other events refer to."""

from __future__ import annotations

from segue.hub import Hub
from segue.model import ids
from segue.model.errors import NotFound
from segue.model.event import PermissionAsked, ToolCall
from segue.model.principal import Principal

# How far back a tool call is looked for: those that ran at once with it, and then some.
_NEAR = 200


def call_id_of(call_id: str) -> str:
    """The id under which a tool call is shown, without looking it up."""
    return ids.parse(call_id) or ids.derived_id("call", call_id)


def tool_id(asked: PermissionAsked) -> str:
    """The id of what a question is about: its tool call, or the question itself."""
    return asked.ask_id if asked.call_id is None else call_id_of(asked.call_id)


class Lookups:
    """Remembers what has been shown of one session, and asks the hub for the rest."""

    def __init__(self, hub: Hub, principal: Principal, session: str) -> None:
        self._hub = hub
        self._principal = principal
        self._session = session
        self._asks: dict[str, PermissionAsked] = {}
        self._calls: dict[str, ToolCall] = {}

    def add(self, body: object) -> None:
        if isinstance(body, ToolCall):
            self._calls[body.call_id] = body
        elif isinstance(body, PermissionAsked):
            self._asks[body.ask_id] = body

    async def asked(self, ask_id: str) -> PermissionAsked | None:
        """A question; its event has its own id."""
        if ask_id not in self._asks:
            try:
                seq = await self._hub.history.locate(self._principal, self._session, ask_id)
            except NotFound:
                return None
            for event in await self._hub.history.events(
                self._principal, self._session, after=seq - 1, limit=1
            ):
                self.add(event.body)
        return self._asks.get(ask_id)

    async def shown_as(self, id: str) -> ToolCall | None:
        """The tool call that is shown under an id, if it is a recent one."""
        wanted = ids.parse(id, "sevt")
        for event in await self._hub.history.events(
            self._principal, self._session, types=("tool_call",), limit=_NEAR, backward=True
        ):
            if isinstance(event.body, ToolCall) and call_id_of(event.body.call_id) == wanted:
                return event.body
        return None

    async def called(self, call_id: str, before: int) -> ToolCall | None:
        """The tool call that a result closes."""
        if call_id not in self._calls:
            for event in await self._hub.history.events(
                self._principal,
                self._session,
                before=before,
                types=("tool_call",),
                limit=_NEAR,
                backward=True,
            ):
                self.add(event.body)
        return self._calls.get(call_id)
