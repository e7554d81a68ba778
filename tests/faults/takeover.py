"""Waiting until a dead or sleeping process's session is free, and taking it over."""

import asyncio
from contextlib import suppress
from typing import Any

from segue.hub import Hub
from segue.model import clock
from segue.model.event import Event
from segue.model.principal import LOCAL
from tests.faults.processes import PATIENCE

WORKSPACE = "local"


async def expired(hub: Hub, *sessions: str) -> None:
    """Nobody has these sessions any more; as long as a process lives, this may take for ever."""
    while True:
        held = [await hub.store.lease_of(WORKSPACE, session) for session in sessions]
        last = max((lease.expires_at for lease in held if lease), default=0)
        left = last - clock.now()
        if left < 0:
            return
        await asyncio.sleep(left / clock.SECOND)


async def recovered(hub: Hub, *sessions: str) -> None:
    """Once the dead processes' leases have run out, take over what they left."""
    async with asyncio.timeout(PATIENCE):
        await expired(hub, *sessions)
        await hub.turns.engine.recover()
        for session in sessions:
            await rested(hub, session)


async def rested(hub: Hub, session: str) -> None:
    """The session has no turn, no prompt that waits, and no holder."""
    with hub.history.live.subscribe((WORKSPACE, session)) as awake:
        while True:
            awake.clear()
            row = await hub.sessions.get(LOCAL, session)
            inbox = await hub.store.inbox(WORKSPACE, session)
            # An answer that came too late stays until the next turn, and means nothing.
            waiting = [item for item in inbox if item.kind == "prompt"]
            lease = await hub.store.lease_of(WORKSPACE, session)
            if row.turn is None and not waiting and lease is None:
                return
            # Letting a lease go makes no event, so another process's is only seen by looking.
            with suppress(TimeoutError):
                await asyncio.wait_for(awake.wait(), 0.1)


def bodies(events: list[Event], kind: type) -> list[Any]:
    return [event.body for event in events if isinstance(event.body, kind)]


async def story(hub: Hub, session: str) -> list[Event]:
    return list(await hub.history.events(LOCAL, session))
