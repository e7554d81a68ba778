"""Break a store in ways that the checks of tests/faults/history.py must notice."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from segue.model.event import Event
from segue.model.session import Session
from segue.store.base import Lease, Store

Happens = Callable[[], bool]  # whether this call shows the defect


def drop(store: Any, happens: Happens) -> None:
    """Acknowledge an event without storing it."""
    change = store.change

    async def change_or_drop(workspace: str, id: str, decide: Any, **options: Any) -> Any:
        if options or not happens():
            return await change(workspace, id, decide, **options)
        return await _unstored(store, workspace, id, decide)

    store.change = change_or_drop


def delay(store: Any, happens: Happens) -> None:
    """Acknowledge an event before it is stored, so that later events come before it."""
    change, tasks = store.change, []

    async def change_or_delay(workspace: str, id: str, decide: Any, **options: Any) -> Any:
        if options or not happens():
            return await change(workspace, id, decide, **options)

        async def change_later() -> None:
            await asyncio.sleep(0.1)
            await change(workspace, id, decide)

        tasks.append(asyncio.create_task(change_later()))
        return await _unstored(store, workspace, id, decide)

    store.change = change_or_delay


async def _unstored(
    store: Store, workspace: str, id: str, decide: Any
) -> tuple[Session, list[Event]]:
    """Return what `change` would return, without storing it."""
    session = await store.get(workspace, id)
    assert session is not None
    drafts = enumerate(decide(session), session.last_seq + 1)
    return session, [Event(seq=seq, id=draft.id, at=0, body=draft.body) for seq, draft in drafts]


def duplicate(store: Any, happens: Happens) -> None:
    """Store an event in another session as well."""
    change = store.change

    async def change_twice(workspace: str, id: str, decide: Any, **options: Any) -> Any:
        result = await change(workspace, id, decide, **options)
        if not options and happens():
            first_two = await store.in_id_range(workspace, "", "~", 2)
            for other in {session.id for session in first_two} - {id}:
                await change(workspace, other, decide)
        return result

    store.change = change_twice


def overlap(store: Any, happens: Happens) -> None:
    """Give a session's lease to every process, and check nothing at a change."""
    acquire, change = store.acquire, store.change

    async def acquire_always(workspace: str, id: str, holder: str, **options: Any) -> Lease:
        lease = await acquire(workspace, id, holder, **options)
        return lease or Lease(workspace=workspace, session=id, holder=holder, epoch=1)

    async def change_always(workspace: str, id: str, decide: Any, **_: Any) -> Any:
        return await change(workspace, id, decide)

    async def no_lease(workspace: str, id: str) -> None:
        return None

    store.acquire, store.change, store.lease_of = acquire_always, change_always, no_lease


def skip(store: Any, happens: Happens) -> None:
    """Leave a session out of a page."""
    page = store.page

    async def shorter_page(*args: Any, **options: Any) -> list[Session]:
        sessions = await page(*args, **options)
        if sessions and happens():
            del sessions[len(sessions) // 2]
        return sessions

    store.page = shorter_page


def stale(store: Any, happens: Happens) -> None:
    """Return an earlier row of a session."""
    get, rows = store.get, {}

    async def earlier(workspace: str, id: str) -> Session | None:
        session = await get(workspace, id)
        first = rows.setdefault(id, session)
        return first if happens() else session

    store.get = earlier


def mix(store: Any, happens: Happens) -> None:
    """Return two events of a session in each other's place."""
    events = store.events

    async def mixed(*args: Any, **options: Any) -> list[Event]:
        read = await events(*args, **options)
        if len(read) > 1 and happens():
            last, before = read[-1], read[-2]
            read[-2:] = [replace(last, seq=before.seq), replace(before, seq=last.seq)]
        return read

    store.events = mixed


DEFECTS = {
    defect.__name__: defect for defect in (drop, delay, duplicate, overlap, skip, stale, mix)
}


def break_store(store: Store, defect: str, chance: random.Random) -> None:
    """Give a store a defect, which every fifth call shows."""
    DEFECTS[defect](store, lambda: chance.random() < 0.2)
