"""What all of the session methods share: who asks, which version is spoken, what is open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from segue.acp import v1
from segue.acp.rpc import Connection
from segue.hub import Hub
from segue.model import ids
from segue.model.event import AgentRef
from segue.model.principal import Principal
from segue.model.session import Session

from .attached_session import Opened, unknown
from .capabilities import Offers
from .server import Program
from .versions import options


class Client(NamedTuple):
    """Who is at the other end: who it acts for, and what it said when it was greeted."""

    connection: Connection
    principal: Principal
    version: int
    capabilities: v1.ClientCapabilities


class Base:
    """One client's sessions. Those that are open for it are the one thing kept."""

    def __init__(self, hub: Hub, client: Client, offers: Offers, program: Program | None) -> None:
        """`program` answers all sessions that are opened here; without, each one's own agent."""
        self._hub = hub
        self._connection = client.connection
        self._principal = client.principal
        self._version = client.version
        self._client = client.capabilities
        self._offers = offers
        self._program = program
        self._opened: dict[str, Opened] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def _agent_ref(self) -> AgentRef | None:
        if self._program is None:
            return None
        name, spec, _ = self._program
        return await self._hub.records.program(self._principal.workspace, name, spec)

    async def _tidy(self) -> None:
        """Forget what is too old to be kept."""
        if self._offers.keep_days is not None:
            await self._hub.retention.purge_idle(self._principal, self._offers.keep_days)

    def _alone(self, id: str) -> asyncio.Lock:
        """Opening and closing a session happen one after the other."""
        return self._locks.setdefault(id, asyncio.Lock())

    async def _shut(self, id: str, last: Callable[[], Awaitable[object]] | None = None) -> None:
        """Close a session, if it is open, and do a last thing to it; with its lock held."""
        if opened := self._opened.get(id):
            try:
                await opened.close(last)
            finally:
                self._opened.pop(id, None)
        elif last is not None:
            await last()

    def opened(self, id: str) -> Opened | None:
        """One of the sessions that are open."""
        return self._opened.get(id)

    def _open_one(self, spelt: str) -> Opened:
        opened = self._opened.get(any_id(spelt))
        if opened is None:
            raise unknown(spelt)
        return opened

    async def _listed(self, spelt: str) -> Session:
        """A session that a list could show, open here or not."""
        id = ids.parse(spelt, "sesn")
        if id is None or not self._offers.remembers:
            raise unknown(spelt)
        await self._hub.sync.ensure_current(self._principal, id)
        session = await self._hub.sessions.get(self._principal, id)
        if session.state == "trashed":
            raise unknown(spelt)
        return session

    def _configured(self, session: Session) -> Any:
        if self._version == 1:
            return options.config_v1(session, self._client.session)
        return options.config_v2(session)


def any_id(spelt: str) -> str:
    """A session's id in any spelling; what is none names nothing, and stays as it is."""
    return ids.parse(spelt, "sesn") or spelt
