"""The agent that answers every session opened on a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from segue.agents.base import Agent
    from segue.agents.base.declaration import AgentDeclaration


class ServedAgent(NamedTuple):
    """An agent, and the name and specification that new sessions record.

    If `agent` is None, the server builds it from the specification. `declaration` is what an agent
    of this program offers; None for agents that segue describes to clients itself. With
    `only_own_sessions`, clients get no session of another agent.
    """

    name: str
    spec: dict[str, Any]
    agent: Agent | None = None
    declaration: AgentDeclaration | None = None
    only_own_sessions: bool = False
