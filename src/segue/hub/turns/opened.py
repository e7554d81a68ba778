"""Sessions that clients have open in this process, with agents and MCP servers of their own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from segue.agents.base import Agent, NoTools, Tools
from segue.agents.base.client import ClientPort
from segue.hub.history.follow import LiveUpdate, LiveUpdates, Name
from segue.model import ids
from segue.model.errors import SegueError
from segue.model.event import AnyBody, Draft
from segue.store.base import Store

log = logging.getLogger("segue.turns")


class Closer(Protocol):
    """The part of the turn engine that closes sessions."""

    async def close_session(self, opened: OpenSession, *, cancel: bool) -> None: ...
    async def finish_turns(self, opened: OpenSession) -> None: ...


class OpenSession:
    """A session that one client has open, with an agent, MCP servers and roots of its own.

    Its prompts run in this process, with them.
    An open session has no lease while no turn runs, so it blocks no other process.
    """

    def __init__(
        self,
        engine: Closer,
        name: Name,
        agent: Agent | None,
        tools: Tools | None,
        roots: Sequence[str] | None,
        client: ClientPort | None = None,
    ) -> None:
        self._engine = engine
        self.id = ids.new_id()
        self.name = name
        self.agent = agent
        self.tools = tools or NoTools()
        self.roots = None if roots is None else tuple(roots)
        self.client = client

    async def close(self, *, cancel: bool = True) -> None:
        """Close the session; with `cancel`, cancel the turns that were started through it."""
        await self._engine.close_session(self, cancel=cancel)

    async def finish_turns(self) -> None:
        """Wait until the turns that were started through it have ended or wait for an answer."""
        await self._engine.finish_turns(self)


class StoreSessionPort:
    """Lets the agent of a session add to it between turns."""

    def __init__(self, store: Store, live: LiveUpdates, name: Name) -> None:
        self._store = store
        self._live = live
        self._name = name

    async def append(self, *bodies: AnyBody | Draft) -> None:
        """Store events; they are lost, with a warning, if the store refuses them."""
        try:
            await self._store.change(*self._name, lambda session: bodies)
        except SegueError as error:
            log.warning("session %s: an update of its agent is lost: %s", self._name[1], error)

    def publish(self, payload: Any) -> None:
        """Send a message of the agent to the clients of this process that follow the session."""
        self._live.publish(self._name, LiveUpdate(session=self._name[1], payload=payload))
