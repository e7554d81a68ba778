"""Find the sessions that a client may use."""

from __future__ import annotations

from segue.hub import Hub
from segue.interfaces.acp.capabilities import AgentProfile
from segue.interfaces.acp.errors import session_not_found
from segue.model import ids
from segue.model.principal import Principal
from segue.model.session import Session


class SessionAccess:
    """The sessions of one client, within the limits of the agent's profile."""

    def __init__(self, hub: Hub, principal: Principal, profile: AgentProfile) -> None:
        self._hub = hub
        self._principal = principal
        self._profile = profile

    async def sync_and_get(self, client_session_id: str) -> Session:
        """Pull new messages of a session from its source, and return the session.

        Raises an error if it does not exist or is in the trash, or if the agent keeps no sessions.
        """
        session_id = ids.parse(client_session_id, "sesn")
        if session_id is None or not self._profile.persistent:
            raise session_not_found(client_session_id)
        await self._hub.sync.ensure_current(self._principal, session_id)
        session = await self._hub.sessions.get(self._principal, session_id)
        if session.state == "trashed":
            raise session_not_found(client_session_id)
        return session

    async def purge_expired(self) -> None:
        """Delete sessions that have been idle for longer than the agent keeps them."""
        if self._profile.keep_days is not None:
            await self._hub.retention.purge_idle(self._principal, self._profile.keep_days)


def canonical_id(client_session_id: str) -> str:
    """Return the canonical form of a session id, or the string itself if it is not an id."""
    return ids.parse(client_session_id, "sesn") or client_session_id
