"""Agents that are programs with a protocol of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import msgspec


class AgentDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The name and the capabilities of an agent that is a program with a protocol of its own.

    `prompt_content` are the kinds of content that prompts may have. `meta` and `capability_meta`
    are for clients that use its protocol, and so are `optional`, the values of further capabilities
    by name.
    """

    info: Mapping[str, Any]
    prompt_content: frozenset[str]
    additional_directories: bool
    http_mcp_servers: bool
    meta: Mapping[str, Any] = {}
    capability_meta: Mapping[str, Any] = {}
    optional: Mapping[str, Any] = {}


@runtime_checkable
class HasExtensions(Protocol):
    """An agent whose protocol has methods that only the agent and its clients know."""

    async def describe(self) -> AgentDescription:
        """Return the name and the capabilities of the agent."""
        ...

    async def extension(self, method: str, params: Any) -> Any:
        """Send a request that is not part of the protocol, and return the agent's result."""
        ...

    def note_meta(self, session: str, method: str, meta: Any) -> None:
        """Remember the `_meta` of a client's request that segue is about to carry out itself.

        The method is `session/cancel` or `session/close`.
        """
        ...

    async def notify(self, method: str, params: Any) -> None:
        """Send a notification that is not part of the protocol."""
        ...
