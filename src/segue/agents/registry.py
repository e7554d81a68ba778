"""The registry of agent kinds: it builds an agent from a session's agent specification.

A specification is a dict. Its `kind` names the factory; the other keys are the agent's settings
(model, system prompt, tools, with the session's overrides) and the workspace's `config`. Agents
with large dependencies import them when the first agent of their kind is built.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from segue.model.errors import NoAgent

if TYPE_CHECKING:
    from .acp import AcpAgents
    from .acp.client_requests import ClientProxy
    from .base import Agent
    from .base.turn_hooks import HookRegistry
    from .model import ModelAgents

CLAUDE_CODE = "claude_code"
_RUN_THEIR_TOOLS = ("acp", CLAUDE_CODE)  # kinds of agents that no worker can run tools for
DEFAULT = "default"
# In a specification of the kind `default`: why the demo agent may not answer without a model.
NEEDS_MODEL = "needs_model"
AgentSpec = Mapping[str, Any]
AgentFactory = Callable[[AgentSpec], "Agent"]


def runs_its_tools(spec: AgentSpec) -> bool:
    """Return whether the agent of a specification runs its tools itself, and no worker can."""
    return spec.get("kind") in _RUN_THEIR_TOOLS


class AgentRegistry:
    """The agent kinds that this process can build, and the resources that its agents share."""

    def __init__(self, factories: Mapping[str, AgentFactory] | None = None) -> None:
        """Register the built-in kinds, then `factories`, which may replace them."""
        self._model_agents: ModelAgents | None = None
        self._acp_agents: AcpAgents | None = None
        # The connected ACP client, which handles file and terminal requests of other ACP agents.
        self.client_proxy: ClientProxy | None = None
        self._factories: dict[str, AgentFactory] = {
            "acp": self._build_acp,
            "demo": _build_demo,
            "model": self._build_model,
            CLAUDE_CODE: _build_claude_code,
            DEFAULT: self._build_default,
            **(factories or {}),
        }

    @cached_property
    def hooks(self) -> HookRegistry:
        """The hooks that programs in this process have registered for their turns."""
        from .base.turn_hooks import HookRegistry

        return HookRegistry()

    async def close(self) -> None:
        """Close the shells, connections and child processes that agents keep between turns."""
        if self._model_agents is not None:
            await self._model_agents.close()
        if self._acp_agents is not None:
            await self._acp_agents.close()

    async def release(self, session: str) -> None:
        """Close the shells and connections of a session that was closed or purged."""
        if self._model_agents is not None:
            await self._model_agents.release(session)

    def register(self, kind: str, factory: AgentFactory) -> None:
        """Register a factory for a kind, replacing the previous one."""
        self._factories[kind] = factory

    def kinds(self) -> list[str]:
        """Return the kinds that need no settings besides their name."""
        return sorted(set(self._factories) - {DEFAULT, "acp"})

    def can_build(self, spec: AgentSpec) -> bool:
        """Return True if the specification's kind is registered, and has the model it needs."""
        return spec.get("kind") in self._factories and not self._lacks_model(spec)

    def build(self, spec: AgentSpec) -> Agent:
        """Build the agent. Raises NoAgent if its kind is not registered in this process."""
        factory = self._factories.get(spec.get("kind", ""))
        if factory is None:
            raise NoAgent(
                f"this process has no agent of kind {spec.get('kind')!r}; continue the session"
                " in the program of this agent, for example with"
                ' `segue acp --agent "acp:python AGENT.py"` in an editor'
            )
        return factory(spec)

    def _build_default(self, spec: AgentSpec) -> Agent:
        """Build the model agent, or the demo agent if neither agent nor workspace has a model.

        Raises NoAgent if there is no model and the specification says that it needs one.
        """
        from .model.settings import resolve_model

        if self._lacks_model(spec):
            from .model.setup import next_step

            missing = spec[NEEDS_MODEL]
            remote_message = f"{missing}; this server's user can configure one"
            message = f"{missing}; to use one, {next_step(os.environ)}"
            raise NoAgent(message, remote_message=remote_message)
        return _build_demo(spec) if resolve_model(spec) is None else self._build_model(spec)

    def _lacks_model(self, spec: AgentSpec) -> bool:
        """Return whether the demo agent would answer where a specification forbids it.

        A caller that chooses the demo agent by name gets it.
        """
        if spec.get("kind") != DEFAULT or NEEDS_MODEL not in spec:
            return False
        from .base.spec import DEMO
        from .model.settings import resolve_model

        if DEMO in (spec.get("model"), spec.get("config", {}).get("model")):
            return False

        return resolve_model(spec) is None

    def _build_model(self, spec: AgentSpec) -> Agent:
        if self._model_agents is None:
            from .model import ModelAgents

            self._model_agents = ModelAgents(self.hooks)
        return self._model_agents.build(spec)

    def _build_acp(self, spec: AgentSpec) -> Agent:
        if self._acp_agents is None:
            from .acp import AcpAgents

            self._acp_agents = AcpAgents(self.client_proxy)
        return self._acp_agents.build(spec)


def _build_demo(spec: AgentSpec) -> Agent:
    from .demo import DemoAgent

    return DemoAgent()


def _build_claude_code(spec: AgentSpec) -> Agent:
    from .claude_code import ClaudeCodeAgent

    return ClaudeCodeAgent(spec)
