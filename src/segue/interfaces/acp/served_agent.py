"""The agent that answers every session opened on a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from segue.agents.base import Agent


class ServedAgent(NamedTuple):
    """An agent, and the name and specification that new sessions record.

    If `agent` is None, the server builds it from the specification.
    """

    name: str
    spec: dict[str, Any]
    agent: Agent | None = None
