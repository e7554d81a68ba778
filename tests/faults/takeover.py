"""Wait until a dead or suspended process's session is free, and take it over."""

import asyncio
from contextlib import suppress
from typing import Any

from segue.hub import Hub
from segue.model.event import Event
from segue.model.principal import LOCAL
from tests.faults.processes import TIMEOUT_SECONDS

WORKSPACE = "local"


async def recover_sessions(hub: Hub, *sessions: str) -> None:
    """Recover the turns of dead or suspended processes."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        hub.turns.engine.start()
        for session in sessions:
            await wait_until_idle(hub, session)


async def wait_until_idle(hub: Hub, session: str) -> None:
    """Wait until the session has no turn, no waiting prompt and no lease."""
    with hub.history.live.subscribe((WORKSPACE, session)) as awake:
        while True:
            awake.clear()
            row = await hub.sessions.get(LOCAL, session)
            inbox = await hub.store.inbox(WORKSPACE, session)
            # An answer that came too late stays until the next turn without effect.
            waiting = [item for item in inbox if item.kind == "prompt"]
            lease = await hub.store.lease_of(WORKSPACE, session)
            if row.turn is None and not waiting and lease is None:
                return
            # Releasing a lease makes no event, so poll for another process's release.
            with suppress(TimeoutError):
                await asyncio.wait_for(awake.wait(), 0.1)


def bodies(events: list[Event], kind: type) -> list[Any]:
    return [event.body for event in events if isinstance(event.body, kind)]


async def read_events(hub: Hub, session: str) -> list[Event]:
    return list(await hub.history.events(LOCAL, session, limit=1_000_000))
