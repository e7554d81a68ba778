"""Attach a session to the client's connection."""

from __future__ import annotations

import logging
import os

from segue.acp.rpc import Connection
from segue.agents.base import Agent, ConnectedTools
from segue.hub import Hub
from segue.interfaces.acp.attached_session import AttachedSession
from segue.interfaces.acp.attached_sessions import AttachedSessions
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
    ) -> None:
        """Create an attacher. `agent` answers all sessions; None means each session's own."""
        self._hub = hub
        self._principal = principal
        self._connection = connection
        self._attached = attached
        self._policy = policy
        self._agent = agent

    def prepare(self, session: Session, client_session_id: str | None = None) -> AttachedSession:
        """Return a session that can send its history, but is not attached yet."""
        return AttachedSession(
            self._hub,
            self._principal,
            self._connection,
            self._policy,
            session,
            client_session_id,
        )

    async def attach(
        self,
        attached_session: AttachedSession,
        session: Session,
        mcp_servers: ConnectedTools | None,
        *,
        created: bool = False,
    ) -> None:
        """Lease the session, so that its prompts run in this process, and send its new events.

        A session that cannot be prompted is attached without a lease.
        """
        await self._send_warnings(attached_session, session, mcp_servers)
        try:
            attached_session.lease = await self._hub.turns.lease(
                self._principal, session.id, agent=self._agent, tools=mcp_servers
            )
        except (ReadOnly, StoreReadOnly):
            log.info("session %s is read-only and cannot be prompted", session.id)
        attached_session.mcp_servers = mcp_servers
        attached_session.start(created=created)
        self._attached.add(attached_session)

    async def _send_warnings(
        self,
        attached_session: AttachedSession,
        session: Session,
        mcp_servers: ConnectedTools | None,
    ) -> None:
        """Report problems that do not prevent the session from being opened."""
        failures = {} if mcp_servers is None else mcp_servers.failures
        for name, error in failures.items():
            log.warning("MCP server %s: %s", name, error)
            title = f"The MCP server {name} could not be connected"
            await attached_session.send_warning(title, error)
        for root in session.roots:
            if not os.path.isdir(root):
                log.warning("session %s: the directory %s does not exist", session.id, root)
                await attached_session.send_warning("An additional directory is not there", root)
