"""The instructions that a client gives a session; unstable in both protocol versions."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from segue.acp import wire
from segue.acp.methods import SYSTEM_PROMPT
from segue.acp.rpc import INVALID_PARAMS, RpcError
from segue.hub import Hub
from segue.interfaces.acp.capabilities import AgentProfile
from segue.model.event import ConfigChanged
from segue.model.principal import Principal
from segue.model.session import Session

# The setting of a model agent for each mode.
_SETTINGS = {"append": "append_system", "override": "system"}


class SystemPrompts:
    """Checks the instructions of requests, and stores those for segue's own agent."""

    def __init__(self, hub: Hub, principal: Principal, profile: AgentProfile) -> None:
        self._hub = hub
        self._principal = principal
        self._profile = profile

    async def check(self, request: wire.SetupRequest) -> None:
        """Raise an error if the agent cannot follow the instructions of a request."""
        prompt = request.system_prompt
        if prompt is None:
            return
        supported = self._profile.optional(SYSTEM_PROMPT)
        if supported is None:
            raise RpcError(INVALID_PARAMS, "systemPrompt is not supported")
        modes = supported.get("mode") if isinstance(supported, dict) else None
        has_override = isinstance(modes, dict) and modes.get("override") is not None
        if prompt.mode != "append" and not (prompt.mode == "override" and has_override):
            raise RpcError(INVALID_PARAMS, f"systemPrompt.mode: {prompt.mode!r} is not supported")
        if not prompt.content:
            raise RpcError(INVALID_PARAMS, "systemPrompt.content must not be empty")
        for index, block in enumerate(prompt.content):
            if block.get("type") != "text" or not isinstance(block.get("text"), str):
                message = f"systemPrompt.content[{index}] must be a block of the type text"
                raise RpcError(INVALID_PARAMS, message)
        if self._profile.agent is None:
            await self._hub.agents.require_model(self._principal, None)

    async def store(self, request: wire.SetupRequest, session: Session) -> Session:
        """Store the instructions for the model of a session, and return the session.

        An external agent gets them in the request that opens its own session.
        """
        prompt = request.system_prompt
        if prompt is None or self._profile.agent is not None:
            return session
        agent = session.agent or await self._hub.records.built_in_agent(session.workspace)
        own = {name: v for name, v in agent.overrides.items() if name not in _SETTINGS.values()}
        text = "\n\n".join(block["text"] for block in prompt.content)
        overrides: dict[str, Any] = {**own, _SETTINGS[prompt.mode]: text}
        change = ConfigChanged(agent=replace(agent, overrides=overrides))
        return await self._hub.editor.configure(self._principal, session.id, change)
