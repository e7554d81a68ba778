"""Which agents this process can build, from the specification that a session's agent has.

A specification is a dict: its `kind` chooses the factory; beside it stand the agent's own settings
(model, system prompt, tools …, with what the session overrides) and the workspace's `config`. Heavy
kinds import what they need when they are first built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from segue.model.errors import NoAgent

if TYPE_CHECKING:
    from segue.agents.acp import AcpAgents
    from segue.agents.acp.client_requests import ClientProxy
    from segue.agents.base import Agent
    from segue.agents.model import ModelAgents
    from segue.agents.turn_hooks import HookRegistry

CLAUDE_CODE = "claude_code"
Spec = Mapping[str, Any]
Factory = Callable[[Spec], "Agent"]


def _demo(spec: Spec) -> Agent:
    from segue.agents.demo import DemoAgent

    return DemoAgent()


def _claude_code(spec: Spec) -> Agent:
    from segue.agents.claude_code import ClaudeCodeAgent

    return ClaudeCodeAgent(spec)


class AgentRegistry:
    """A registry of agent kinds."""

    def __init__(self, factories: Mapping[str, Factory] | None = None) -> None:
        self._models: ModelAgents | None = None
        self._others: AcpAgents | None = None
        self.client_proxy: ClientProxy | None = None  # who does for other agents what clients do
        self._factories: dict[str, Factory] = {
            "acp": self._acp,
            "demo": _demo,
            "model": self._model,
            CLAUDE_CODE: _claude_code,
            "default": self._default,
            **(factories or {}),
        }

    @cached_property
    def hooks(self) -> HookRegistry:
        """What programs lend the turns that they ask for."""
        from segue.agents.turn_hooks import HookRegistry

        return HookRegistry()

    async def close(self) -> None:
        """End what agents keep between turns: shells, connections, children."""
        if self._models is not None:
            await self._models.close()
        if self._others is not None:
            await self._others.close()

    def register(self, kind: str, factory: Factory) -> None:
        self._factories[kind] = factory

    def kinds(self) -> list[str]:
        """The kinds that can be asked for by name alone."""
        return sorted(set(self._factories) - {"default", "acp"})

    def can_build(self, spec: Spec) -> bool:
        return spec.get("kind") in self._factories

    def build(self, spec: Spec) -> Agent:
        """The agent; NoAgent where its kind is not known here."""
        factory = self._factories.get(spec.get("kind", ""))
        if factory is None:
            raise NoAgent(
                f"this process has no agent of kind {spec.get('kind')!r};"
                " prompt the session from the program that has it open"
            )
        return factory(spec)

    def _default(self, spec: Spec) -> Agent:
        """The model that the agent names or the workspace has configured; else the demo agent."""
        from segue.agents.model.settings import resolve_model

        return _demo(spec) if resolve_model(spec) is None else self._model(spec)

    def _model(self, spec: Spec) -> Agent:
        if self._models is None:
            from segue.agents.model import ModelAgents

            self._models = ModelAgents(self.hooks)
        return self._models.build(spec)

    def _acp(self, spec: Spec) -> Agent:
        if self._others is None:
            from segue.agents.acp import AcpAgents

            self._others = AcpAgents(self.client_proxy)
        return self._others.build(spec)
