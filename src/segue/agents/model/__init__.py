"""The model agent: any provider's model through pydantic-ai, with tools.

An agent is made for each turn; what lasts longer than a turn (shells, connections to MCP servers
and to providers) is kept by ModelAgents, one for each hub.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from segue.agents.base import NoTools, Tools, Turn
from segue.agents.tools import PathGuard, ShellPool, ToolContext
from segue.agents.turn_hooks import HookRegistry, TurnHooks
from segue.model.errors import NoAgent
from segue.model.event import Failed
from segue.model.lifecycle import StopReason

from .settings import Settings, read

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from segue.agents.mcp import McpServers

__all__ = ["ModelAgent", "ModelAgents", "Settings"]


class ModelAgents:
    """Makes model agents, and keeps what outlives their turns."""

    def __init__(self, hook_registry: HookRegistry) -> None:
        self.shells = ShellPool()
        self._hook_registry = hook_registry
        self._models: dict[tuple[str, str | None], Model] = {}
        self._servers: dict[str, tuple[Settings, bool, McpServers]] = {}

    def build(self, spec: Mapping[str, Any]) -> ModelAgent:
        return ModelAgent(read(spec), self, self._hook_registry.for_spec(spec))

    async def model(self, settings: Settings) -> Model:
        """The model, its client opened once for all turns."""
        from .models import make_model, preload

        key = (settings.model, settings.base_url)
        if key not in self._models:
            # Seconds of imports, during which leases must be renewed and others answered.
            await asyncio.to_thread(preload, settings.model)
        if key not in self._models:  # nobody else was quicker
            model = make_model(*key)
            self._models[key] = model
            await model.__aenter__()
        return self._models[key]

    async def servers(self, turn: Turn, settings: Settings) -> Tools:
        """The MCP servers that the session's agent names, connected while this process lasts."""
        session = turn.session.id
        known = self._servers.get(session)
        if known is not None and known[:2] != (settings, turn.local):
            del self._servers[session]
            await known[2].close()
            known = None
        if known is not None:
            return known[2]
        if not settings.servers:
            return NoTools()
        from segue.agents.mcp import McpServers, TokenRequired

        private = bool(settings.config.get("web.private"))
        connected, failures = await McpServers.connect(
            settings.servers,
            turn.cwd,
            local=turn.local,
            private=private,
            keyring=turn.keyring(private=private),
        )
        for name, why in failures.items():
            kind = "authentication" if isinstance(why, TokenRequired) else "connection"
            await turn.emit(
                Failed(
                    message=f"the MCP server {name!r} could not be connected: {why}",
                    code=f"mcp_{kind}_failed_error",
                    retry="exhausted",
                    server=name,
                )
            )
        if not failures:
            self._servers[session] = (settings, turn.local, connected)
        return connected

    async def close(self) -> None:
        await self.shells.close()
        servers, self._servers = self._servers, {}
        for _, _, connected in servers.values():
            await connected.close()
        models, self._models = self._models, {}
        for model in models.values():
            await model.__aexit__(None, None, None)


class ModelAgent:
    """Answers with a model and tools."""

    def __init__(self, settings: Settings, kept: ModelAgents, lent: TurnHooks) -> None:
        self._settings = settings
        self._kept = kept
        self._lent = lent

    async def check(self) -> None:
        from .models import ModelUnavailable

        try:
            await self._kept.model(self._settings)
        except ModelUnavailable as error:
            raise NoAgent(str(error)) from None

    async def run(self, turn: Turn) -> StopReason:
        from .models import ModelUnavailable

        settings = self._settings
        try:
            model = await self._kept.model(settings)
        except ModelUnavailable as error:
            await turn.emit(
                Failed(message=str(error), code="model_request_failed_error", retry="terminal")
            )
            return "error"
        from .loop import Loop

        session = turn.session
        context = ToolContext(
            session=session.id,
            roots=PathGuard(
                (session.directory, *session.roots), strict=not turn.local, mounts=turn.mounts
            ),
            local=turn.local,
            config=settings.config,
            variables=await self._variables(turn),
            elsewhere=settings.elsewhere,
            shells=self._kept.shells,
            env=self._lent.env if turn.local else {},
        )
        servers = await self._kept.servers(turn, settings)
        return await Loop(turn, model, settings, context, servers, self._lent.hooks).run()

    async def _variables(self, turn: Turn) -> dict[str, str]:
        """What is secret in the environment of programs that run here."""
        if self._settings.elsewhere or not turn.session.vault_ids:
            return {}
        return await turn.keyring().variables()
