"""Cache the agents of sessions in the form in which sessions show them."""

from __future__ import annotations

import msgspec

from segue.hub import Hub
from segue.model import codec
from segue.model.event import AgentRef

MAX_CACHED_AGENTS = 2000


class AgentCache:
    """The agents of sessions, encoded as JSON.

    A stored version of an agent never changes, so it is encoded once.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._encoded: dict[tuple[str, str, int, bytes], msgspec.Raw] = {}

    def find(self, workspace: str, ref: AgentRef | None) -> msgspec.Raw | None:
        """Return the agent of a session if it is in the cache."""
        return None if ref is None else self._encoded.get(_cache_key(workspace, ref))

    async def get(self, workspace: str, ref: AgentRef | None) -> msgspec.Raw:
        """Return the agent of a session, by default the built-in agent."""
        encoded = self.find(workspace, ref)
        if encoded is None:
            agent = await self._hub.agent_resolver.snapshot(workspace, ref)
            encoded = msgspec.Raw(codec.encode(agent))
            # The built-in agent's version may not be stored yet and can still change.
            if ref is not None:
                if len(self._encoded) >= MAX_CACHED_AGENTS:
                    self._encoded.clear()  # so rare that counting uses would cost more
                self._encoded[_cache_key(workspace, ref)] = encoded
        return encoded


def _cache_key(workspace: str, ref: AgentRef) -> tuple[str, str, int, bytes]:
    return workspace, ref.id, ref.version, codec.encode(ref.overrides) if ref.overrides else b""
