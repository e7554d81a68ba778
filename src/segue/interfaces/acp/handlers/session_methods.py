"""The table of the session methods and their handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from segue.acp import wire
from segue.acp.rpc import Connection
from segue.hub import Hub
from segue.interfaces.acp.attached_sessions import AttachedSessions
from segue.interfaces.acp.capabilities import AgentProfile
from segue.interfaces.acp.client_proxy import ClientProxy
from segue.interfaces.acp.served_agent import ServedAgent
from segue.interfaces.acp.versions.policy import VersionPolicy
from segue.model.principal import Principal

from .attach import SessionAttacher
from .manage import ManageHandlers
from .open import OpenHandlers
from .prompt import PromptHandlers
from .session_access import SessionAccess

Handler = Callable[[Any], Awaitable[Any]]


class SessionMethods:
    """Dispatches the session methods of one client to their handlers."""

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        connection: Connection,
        attached: AttachedSessions,
        policy: VersionPolicy,
        profile: AgentProfile,
        served_agent: ServedAgent | None,
        client_proxy: ClientProxy | None,
        accepted_content: frozenset[str] | None = None,
    ) -> None:
        """Create the handlers. `served_agent` answers all sessions; None: each session's own.

        Agents send their requests to `client_proxy`. `accepted_content` are the prompt capabilities
        of an external agent, if other content must be refused.
        """
        agent = None if served_agent is None else served_agent.agent
        access = SessionAccess(hub, principal, profile, served_agent)
        declaration = None if served_agent is None else served_agent.declaration
        attacher = SessionAttacher(
            hub, principal, connection, attached, policy, agent, client_proxy
        )
        opening = OpenHandlers(
            hub, principal, attached, attacher, access, policy, profile, served_agent
        )
        managing = ManageHandlers(hub, principal, attached, access, policy, profile)
        self._prompting = PromptHandlers(
            hub, principal, attached, policy, agent, declaration, accepted_content
        )
        self._handlers: dict[str, Handler] = {
            "session/new": opening.new,
            "session/fork": opening.fork,
            "session/load": opening.load,
            "session/resume": opening.resume,
            "session/close": opening.close,
            "session/prompt": self._prompting.prompt,
            "tool_call/cancel": self._prompting.cancel_tool_call,
            "terminal/cancel": self._prompting.cancel_terminal,
            "session/set_mode": self._prompting.set_mode,
            "session/set_config_option": self._prompting.set_config_option,
            "session/list": managing.list,
            "session/delete": managing.delete,
            "session/set_title": managing.set_title,
            "session/archive": managing.archive,
            "session/unarchive": managing.unarchive,
            "session/status": managing.status,
        }

    async def call(self, method: str, request: Any) -> Any:
        """Answer a request."""
        return await self._handlers[method](request)

    async def cancel(self, request: wire.SessionRequest) -> None:
        """Handle the notification `session/cancel`."""
        await self._prompting.cancel(request)
