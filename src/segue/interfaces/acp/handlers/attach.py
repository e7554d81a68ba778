"""Attach a session to the client's connection."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from segue.acp.rpc import Connection
from segue.agents.base import Agent, Client, ConnectedTools, HandlesClosed, HandlesOpened
from segue.hub import Hub
from segue.hub.turns.opened import OpenSession
from segue.interfaces.acp.attached_session import AttachedSession
from segue.interfaces.acp.attached_sessions import AttachedSessions
from segue.interfaces.acp.client_proxy import ClientProxy, SessionClient
from segue.interfaces.acp.versions.policy import VersionPolicy
from segue.model.errors import ReadOnly, StoreReadOnly
from segue.model.principal import Principal
from segue.model.session import Session

log = logging.getLogger("segue.acp")


class SessionAttacher:
    """Attaches sessions to one client's connection."""

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        connection: Connection,
        attached: AttachedSessions,
        policy: VersionPolicy,
        agent: Agent | None,
        client_proxy: ClientProxy | None,
    ) -> None:
        """Create an attacher. `agent` answers all sessions; None means each session's own.

        Agents send their requests to `client_proxy`.
        """
        self._hub = hub
        self._principal = principal
        self._connection = connection
        self._attached = attached
        self._policy = policy
        self._agent = agent
        self._client_proxy = client_proxy

    def prepare(self, session: Session, client_session_id: str | None = None) -> AttachedSession:
        """Return a session that can send its history, but is not attached yet."""
        attached_session = AttachedSession(
            self._hub,
            self._principal,
            self._connection,
            self._policy,
            session,
            client_session_id,
        )
        if isinstance(agent := self._agent, HandlesClosed):
            attached_session.on_closed = lambda: agent.session_closed(session)
        return attached_session

    async def attach(
        self,
        attached_session: AttachedSession,
        session: Session,
        mcp_servers: ConnectedTools | None,
        *,
        created: bool = False,
    ) -> None:
        """Open the session for the client's prompts, and send its new events.

        A session that cannot be prompted is attached all the same.
        """
        await self._send_warnings(attached_session, session, mcp_servers)
        attached_session.opened = await self._open(session, mcp_servers)
        attached_session.mcp_servers = mcp_servers
        attached_session.start(created=created)
        self._attached.add(attached_session)
        _report_later(attached_session, mcp_servers)
        await attached_session.close_earlier()

    async def reopen(
        self,
        attached_session: AttachedSession,
        session: Session,
        mcp_servers: ConnectedTools | None,
    ) -> None:
        """Open an attached session again. A turn that runs is not disturbed."""
        await self._send_warnings(attached_session, session, mcp_servers)
        await attached_session.reopen(await self._open(session, mcp_servers), mcp_servers)
        _report_later(attached_session, mcp_servers)

    async def _open(
        self, session: Session, mcp_servers: ConnectedTools | None
    ) -> OpenSession | None:
        """Open a session for the client's prompts; return None if it cannot be prompted."""
        try:
            return await self._hub.turns.open(
                self._principal,
                session.id,
                agent=self._agent,
                tools=mcp_servers,
                roots=session.roots,
                client=self._client_of(session),
            )
        except (ReadOnly, StoreReadOnly):
            log.info("session %s is read-only and cannot be prompted", session.id)
            return None

    async def note_opened(self, session: Session) -> None:
        """Tell the agent about a session that the client opens; an error of it is the answer."""
        if isinstance(self._agent, HandlesOpened):
            await self._agent.session_opened(session, Client(self._client_of(session)))

    def _client_of(self, session: Session) -> SessionClient | None:
        return None if self._client_proxy is None else SessionClient(self._client_proxy, session.id)

    async def _send_warnings(
        self,
        attached_session: AttachedSession,
        session: Session,
        mcp_servers: ConnectedTools | None,
    ) -> None:
        """Report problems that do not prevent the session from being opened."""
        failures = {} if mcp_servers is None else mcp_servers.failures
        await _send_failures(attached_session, failures)
        if not os.path.isdir(session.cwd):  # it may be on another machine: this is not logged
            await attached_session.send_warning("The working directory is not there", session.cwd)
        for root in session.roots:
            if not os.path.isdir(root):
                log.warning("session %s: the directory %s does not exist", session.id, root)
                await attached_session.send_warning("An additional directory is not there", root)


async def _send_failures(attached_session: AttachedSession, failures: Mapping[str, str]) -> None:
    """Report the MCP servers that could not be connected."""
    for name, error in failures.items():
        log.warning("MCP server %s: %s", name, error)
        title = f"The MCP server {name} could not be connected"
        await attached_session.send_warning(title, error)


def _report_later(attached_session: AttachedSession, mcp_servers: ConnectedTools | None) -> None:
    """Report the MCP servers that fail after the session was opened."""
    if mcp_servers is None or not mcp_servers.is_connecting:
        return
    reported = dict(mcp_servers.failures)

    async def report() -> None:
        await mcp_servers.wait_connected()
        failures = mcp_servers.failures.items()
        await _send_failures(
            attached_session, {name: error for name, error in failures if name not in reported}
        )

    attached_session.run_while_attached(report())
