"""Serving one client over standard input and output."""

from __future__ import annotations

from ...acp.rpc import Connection, Reader, Writer
from ...acp.stdio import own_stdio
from ...agents.base import Agent
from ...hub import Hub
from ...model.principal import Principal
from .capabilities import Offers
from .door import Door


async def serve(
    hub: Hub,
    principal: Principal,
    reader: Reader,
    writer: Writer,
    *,
    agent: Agent | None = None,
    offers: Offers | None = None,
) -> None:
    """Answer one client until it goes away; then its turns are cancelled and its sessions free."""
    door = Door(hub, principal, agent=agent, offers=offers)
    door.connection = Connection(reader, writer, door)
    try:
        await door.connection.serve()
    finally:
        await door.close()


async def serve_stdio(
    hub: Hub,
    principal: Principal,
    *,
    agent: Agent | None = None,
    offers: Offers | None = None,
) -> None:
    """The same over this process's own standard streams."""
    lines = await own_stdio()
    await serve(hub, principal, lines, lines, agent=agent, offers=offers)
