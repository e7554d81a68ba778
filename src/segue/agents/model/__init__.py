"""The model agent: answers with any provider's model, through pydantic-ai, and with tools.

Each turn has its own ModelAgent. ModelAgents, one for each hub, owns the resources that last longer
than a turn: shells, and connections to MCP servers and providers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from segue.agents.base import NoTools, Tools, Turn
from segue.agents.base.turn_hooks import HookRegistry, TurnHooks
from segue.agents.egress.rules import rules_of
from segue.agents.tools import PathGuard, ShellPool, ToolContext
from segue.model.errors import NoAgent, without_locations
from segue.model.event import Failed
from segue.model.lifecycle import StopReason

from .settings import Settings, parse_settings

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from segue.agents.egress.proxy import EgressProxy
    from segue.agents.mcp import McpServers

    from .loop import ModelLoop

__all__ = ["ModelAgent", "ModelAgents", "Settings"]


class ModelAgents:
    """Builds model agents, and owns the resources that they share between turns."""

    def __init__(self, hook_registry: HookRegistry) -> None:
        self.shells = ShellPool()
        self._hook_registry = hook_registry
        self._models: dict[tuple[str, str | None], Model] = {}
        # By session id and thread. The connections are valid for these settings and these rights.
        self._servers: dict[tuple[str, str | None], tuple[Settings, bool, McpServers]] = {}
        self._proxies: dict[str, EgressProxy] = {}  # by session id

    def build(self, spec: Mapping[str, Any]) -> ModelAgent:
        """Build the agent of a specification, which must name a model."""
        return ModelAgent(parse_settings(spec), self, self._hook_registry.for_spec(spec))

    async def model(self, settings: Settings) -> Model:
        """Return the model. All turns share its HTTP client.

        Raises ModelUnavailable if the model cannot be used.
        """
        from .models import make_model, preload

        key = (settings.model, settings.base_url)
        if key not in self._models:
            # The import takes seconds; in a thread it does not block leases and other turns.
            await asyncio.to_thread(preload, settings.model)
        if key not in self._models:  # another turn may have made it during the import
            model = make_model(*key)
            self._models[key] = model
            await model.__aenter__()
        return self._models[key]

    async def egress(self, turn: Turn, settings: Settings) -> EgressProxy | None:
        """Return the egress proxy of a session, which listens until this process ends.

        None if nothing restricts the session: the local user's own, in an environment without
        limits and packages. A remote worker uses its own network.
        """
        rules = rules_of(settings.networking, private=bool(settings.config.get("web.private")))
        if settings.remote or (turn.local and not rules.limited and not settings.packages):
            return None
        proxy = self._proxies.get(turn.session.id)
        if proxy is None:
            from segue.agents.egress.proxy import EgressProxy

            proxy = EgressProxy(turn.session.id, rules)
            await proxy.start()
            self._proxies[turn.session.id] = proxy
        proxy.rules = rules
        return proxy

    async def servers(self, turn: Turn, settings: Settings, context: ToolContext) -> Tools:
        """Return the MCP servers of the session's agent, connected until this process ends.

        Servers that an API key or an imported file chose are connected with a key's rights, also
        for the local user.
        A server that cannot be connected becomes a Failed event.
        """
        key = (turn.session.id, turn.thread)
        by_stranger = turn.session.agent_by_key or settings.untrusted_servers
        trusted = turn.local and not by_stranger and context.egress is None
        if key in self._servers:
            connected_settings, was_trusted, servers = self._servers[key]
            if (connected_settings, was_trusted) == (settings, trusted):
                return servers
            del self._servers[key]
            await servers.close()
        if not settings.servers:
            return NoTools()
        from segue.agents.mcp import McpServers, TokenRequired

        allow_private = bool(settings.config.get("web.private"))
        servers = await McpServers.connect(
            settings.servers,
            turn.cwd,
            sandbox=None if trusted else context,
            private=allow_private,
            keyring=turn.keyring(private=allow_private),
        )
        for name, reason in servers.failures.items():
            kind = "authentication" if isinstance(reason, TokenRequired) else "connection"
            message = f"the MCP server {name!r} could not be connected: {reason}"
            await turn.emit(
                Failed(
                    message=message,
                    remote_message=without_locations(message),
                    code=f"mcp_{kind}_failed_error",
                    retry="exhausted",
                    server=name,
                )
            )
        if not servers.failures:
            self._servers[key] = (settings, trusted, servers)
        return servers

    async def release(self, session: str) -> None:
        """Close the shells and connections of a session."""
        await self.shells.drop_session(session)
        for key in [key for key in self._servers if key[0] == session]:
            _, _, servers = self._servers.pop(key)
            await servers.close()
        if session in self._proxies:
            await self._proxies.pop(session).close()

    async def close(self) -> None:
        """Close all shells and connections."""
        await self.shells.close()
        connections, self._servers = self._servers, {}
        for _, _, servers in connections.values():
            await servers.close()
        proxies, self._proxies = self._proxies, {}
        for proxy in proxies.values():
            await proxy.close()
        models, self._models = self._models, {}
        for model in models.values():
            await model.__aexit__(None, None, None)


class ModelAgent:
    """Answers one turn with a model and tools."""

    def __init__(self, settings: Settings, shared: ModelAgents, hooks: TurnHooks) -> None:
        self._settings = settings
        self._shared = shared
        self._hooks = hooks

    async def check(self) -> None:
        """Raise NoAgent if the model cannot be used."""
        from .models import ModelUnavailable

        try:
            await self._shared.model(self._settings)
        except ModelUnavailable as error:
            message = str(error)
            raise NoAgent(message, remote_message=without_locations(message)) from None

    async def summarize(self, text: str) -> str:
        """Return a summary of a conversation; raises NoAgent or AgentFailed."""
        from .summary import summarize

        await self.check()
        return await summarize(await self._shared.model(self._settings), self._settings, text)

    async def run(self, turn: Turn) -> StopReason:
        loop = await self._loop(turn)
        return "error" if loop is None else await loop.run()

    async def resume(self, turn: Turn) -> StopReason:
        """Continue a turn that waited for clients, from its stored events."""
        loop = await self._loop(turn)
        return "error" if loop is None else await loop.resume()

    async def answer(self, turn: Turn, *, resumed: bool) -> tuple[StopReason, str]:
        """Run or resume a turn; return why it ended and the last text."""
        loop = await self._loop(turn)
        if loop is None:
            return "error", ""
        stop = await (loop.resume() if resumed else loop.run())
        return stop, loop.last_text

    async def _loop(self, turn: Turn) -> ModelLoop | None:
        """Return the loop of a turn; without its model, store the failure and return None."""
        from .models import ModelUnavailable

        settings = self._settings
        try:
            model = await self._shared.model(settings)
            from .delegation import Delegations
            from .loop import ModelLoop
            from .request import unsupported_option

            if unsupported := unsupported_option(model, settings):
                raise ModelUnavailable(unsupported)
        except ModelUnavailable as error:
            await turn.emit(
                Failed(
                    message=str(error),
                    remote_message=without_locations(str(error)),
                    code="model_request_failed_error",
                    retry="terminal",
                )
            )
            return None
        context = await self._tool_context(turn)
        if settings.packages:
            from .packages import install_packages

            await install_packages(turn, settings.packages, settings.package_cache, context)
        servers = await self._shared.servers(turn, settings, context)
        delegations = Delegations(turn, settings, self._shared.build)
        hooks = self._hooks.hooks
        return ModelLoop(turn, model, settings, context, servers, hooks, delegations)

    async def _tool_context(self, turn: Turn) -> ToolContext:
        """Return what the tools of a turn may use."""
        settings, session = self._settings, turn.session
        return ToolContext(
            session=session.id,
            paths=PathGuard(
                (session.directory, *session.roots),
                strict=not turn.local,
                mounts=turn.mounts,
                private=turn.private_directories,
                read_only=await turn.read_only_directories(),
            ),
            local=turn.local,
            config=settings.config,
            variables=await self._variables(turn),
            remote=settings.remote,
            shells=self._shared.shells,
            thread=turn.thread,
            env=self._hooks.env if turn.local else {},
            private=turn.private_directories,
            egress=await self._shared.egress(turn, settings),
            packages=bool(settings.packages),
        )

    async def _variables(self, turn: Turn) -> dict[str, str]:
        """Return the secret environment variables for programs that run on this machine."""
        if self._settings.remote or not turn.session.vault_ids:
            return {}
        return await turn.keyring().variables()
