"""Find the sessions that a client may use."""

from __future__ import annotations

from segue.acp.rpc import INVALID_PARAMS, RpcError
from segue.hub import Hub
from segue.hub.resources.records import program_id
from segue.interfaces.acp.capabilities import AgentProfile
from segue.interfaces.acp.errors import session_not_found
from segue.interfaces.acp.served_agent import ServedAgent
from segue.model import ids
from segue.model.errors import NotFound
from segue.model.principal import Principal
from segue.model.session import Session


class SessionAccess:
    """The sessions of one client, within the limits of the agent and its profile."""

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        profile: AgentProfile,
        served_agent: ServedAgent | None,
    ) -> None:
        self._hub = hub
        self._principal = principal
        self._profile = profile
        self._agent_name = None
        self._is_elsewhere = served_agent is not None and served_agent.declaration is None
        if served_agent is not None and served_agent.only_own_sessions:
            self._agent_name = served_agent.name

    @property
    def agent_id(self) -> str | None:
        """The agent whose sessions alone the client may use; None if it may use all."""
        if self._agent_name is None:
            return None
        return program_id(self._principal.workspace, self._agent_name)

    async def sync_and_get(self, client_session_id: str) -> Session:
        """Pull new messages of a session from its source, and return the session.

        Raises an error if it does not exist or is in the trash, if the agent keeps no sessions, or
        if the session is one that the agent must not get.
        """
        session_id = ids.parse(client_session_id, "sesn")
        if session_id is None or not self._profile.persistent:
            raise session_not_found(client_session_id)
        await self._hub.sync.ensure_current(self._principal, session_id)
        session = await self._hub.sessions.get(self._principal, session_id)
        if session.state == "trashed":
            raise session_not_found(client_session_id)
        self.check_agent(session)
        return session

    def check_agent(self, session: Session) -> None:
        """Raise an error if a session is another agent's and the client may not use those."""
        if self._agent_name is None or (session.agent and session.agent.id == self.agent_id):
            return
        if not self._is_elsewhere:
            raise NotFound(f"no session {session.id}", session=session.id)
        message = (
            f"this session is not one of {self._agent_name}, or was begun with another key; a"
            f" prompt would send its conversation there ({session.messages} messages). To allow"
            " that, start `segue acp` with --sources and the tools whose sessions may be sent. If"
            " the key was replaced, set SEGUE_ACP_ACCOUNT"
        )
        raise RpcError(INVALID_PARAMS, message, {"sessionId": session.id})

    async def purge_expired(self) -> None:
        """Delete sessions that have been idle for longer than the agent keeps them."""
        if self._profile.keep_days is not None:
            await self._hub.retention.purge_idle(self._principal, self._profile.keep_days)


def canonical_id(client_session_id: str) -> str:
    """Return the canonical form of a session id, or the string itself if it is not an id."""
    return ids.parse(client_session_id, "sesn") or client_session_id
