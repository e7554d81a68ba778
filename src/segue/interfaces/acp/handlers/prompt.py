"""Handle the methods that need an attached session: prompt, cancel, modes and options."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from segue.acp import wire
from segue.acp.rpc import INVALID_PARAMS, RpcError
from segue.agents.base import Agent, HandlesConfigured
from segue.agents.base.declaration import OFFERED, AgentDeclaration, with_value
from segue.agents.base.external import HasExtensions
from segue.hub import Hub
from segue.interfaces.acp.attached_session import AttachedSession
from segue.interfaces.acp.attached_sessions import AttachedSessions
from segue.interfaces.acp.errors import session_not_found
from segue.interfaces.acp.versions import options
from segue.interfaces.acp.versions.content import read_prompt
from segue.interfaces.acp.versions.policy import VersionPolicy
from segue.model.event import ConfigChanged
from segue.model.principal import Principal
from segue.model.session import Session

from .session_access import canonical_id


class PromptHandlers:
    """Prompts and configures sessions that are attached to the client's connection."""

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        attached: AttachedSessions,
        policy: VersionPolicy,
        agent: Agent | None,
        declaration: AgentDeclaration | None,
        accepted_content: frozenset[str] | None,
    ) -> None:
        """Create the handlers. `agent` answers all sessions; None means each session's own.

        `declaration` is what the agent offers, if it declares that. `accepted_content` are the
        prompt capabilities of an external agent, if other content must be refused.
        """
        self._hub = hub
        self._principal = principal
        self._attached = attached
        self._policy = policy
        self._agent = agent
        self._declaration = declaration
        self._accepted_content = accepted_content
        if declaration is not None:
            self._accepted_content = declaration.prompt_content

    async def prompt(self, request: wire.PromptRequest) -> Any:
        """Answer `session/prompt`."""
        attached_session = self._get_attached(request.session_id)
        content = read_prompt(request.prompt, self._accepted_content)
        return await attached_session.prompt(content, request.meta)

    async def cancel(self, request: wire.SessionRequest) -> None:
        """Handle the notification `session/cancel`."""
        if attached_session := self._attached.get(canonical_id(request.session_id)):
            if request.meta is not None and isinstance(self._agent, HasExtensions):
                self._agent.note_meta(attached_session.id, "session/cancel", request.meta)
            await attached_session.cancel()

    async def cancel_tool_call(self, request: wire.CancelToolCallRequest) -> Any:
        """Answer `tool_call/cancel`."""
        return await self._cancel_entity(
            request.session_id, "tool_call/cancel", "toolCallId", request.tool_call_id, request.meta
        )

    async def cancel_terminal(self, request: wire.CancelTerminalRequest) -> Any:
        """Answer `terminal/cancel`."""
        return await self._cancel_entity(
            request.session_id, "terminal/cancel", "terminalId", request.terminal_id, request.meta
        )

    async def _cancel_entity(
        self, client_session_id: str, method: str, field: str, id: str, meta: Any
    ) -> Any:
        """Forward a cancel to the agent of a session.

        Raises RpcError if the agent does not advertise that the entity can be cancelled now.
        """
        attached_session = self._get_attached(client_session_id)
        native_id = attached_session.cancellable.find(field, id)
        session = await self._hub.sessions.get(self._principal, attached_session.id)
        agent = self._agent or await self._hub.agents.for_session(session)
        if native_id is None or not isinstance(agent, HasExtensions):
            raise RpcError(INVALID_PARAMS, f"{field}: {id!r} cannot be cancelled", {field: id})
        params = {"sessionId": session.id, field: native_id}
        return await agent.extension(method, params if meta is None else {**params, "_meta": meta})

    async def set_mode(self, request: wire.SetModeRequest) -> wire.Empty:
        """Answer `session/set_mode`."""
        attached_session = self._get_attached(request.session_id)
        session = await self._hub.sessions.get(self._principal, attached_session.id)
        mode = options.mode_option(session)
        if mode is None:
            raise RpcError(INVALID_PARAMS, "modeId: this session has no modes")
        _, meta = await self._set_option(
            attached_session, session, mode, request.mode_id, "modeId", request.meta
        )
        return wire.Empty() if meta is None else wire.Empty(meta=meta)

    async def set_config_option(self, request: wire.SetConfigRequest) -> Any:
        """Answer `session/set_config_option`."""
        attached_session = self._get_attached(request.session_id)
        session = await self._hub.sessions.get(self._principal, attached_session.id)
        option = options.find_option(session, request.config_id)
        if option is None:
            message = f"configId: no configuration option {request.config_id!r}"
            raise RpcError(INVALID_PARAMS, message)
        value_type = "boolean" if options.is_switch(option) else "id"
        if isinstance(request.value, bool) != (value_type == "boolean"):
            expected = "true or false" if value_type == "boolean" else "one of its ids"
            raise RpcError(INVALID_PARAMS, f"value: this option needs {expected}")
        if request.type not in (None, value_type):
            raise RpcError(INVALID_PARAMS, f"type: this option is of type {value_type!r}")
        session, meta = await self._set_option(
            attached_session, session, option, request.value, "value", request.meta
        )
        response = self._policy.set_config_response(session)
        return response if meta is None else replace(response, meta=meta)

    def _get_attached(self, client_session_id: str) -> AttachedSession:
        attached_session = self._attached.get(canonical_id(client_session_id))
        if attached_session is None:
            raise session_not_found(client_session_id)
        return attached_session

    async def _set_option(
        self,
        attached_session: AttachedSession,
        session: Session,
        option: dict[str, Any],
        value: str | bool,
        field: str,
        meta: Any,
    ) -> tuple[Session, Any]:
        """Set an option after the request's `field` and `_meta`.

        Returns the session after the client has received the update, and the `_meta` of the
        agent's response.
        """
        result_meta = None
        values = [choice["value"] for choice in option["choices"]]
        if isinstance(value, str) and value not in values:
            message = (
                f"{field}: no {option['name'].lower()} {value!r}; there are {', '.join(values)}"
            )
            raise RpcError(INVALID_PARAMS, message)
        if self._declaration is not None:
            if isinstance(self._agent, HandlesConfigured):
                await self._agent.session_configured(session, option["id"], value)
            offered = with_value(session.options[OFFERED], option["id"], value)
            change = ConfigChanged(options={OFFERED: offered})
        elif options.is_agent_option(session, option["id"]):
            changed = await self._hub.agents.set_option(
                session, option["id"], value, self._agent, attached_session.mcp_servers, meta
            )
            change = ConfigChanged(options={OFFERED: changed.offered})
            result_meta = changed.meta
        else:
            change = ConfigChanged(mode=str(value))  # segue's only option of its own
        session = await self._hub.editor.configure(self._principal, attached_session.id, change)
        await attached_session.wait_sent()
        return session, result_meta
