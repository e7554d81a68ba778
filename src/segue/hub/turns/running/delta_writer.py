"""Publish the deltas of a turn: to this process at once, to others a few times a second."""

from __future__ import annotations

import asyncio
from typing import Any

from segue.hub.history.follow import LiveUpdate, LiveUpdates
from segue.hub.turns.turn_events import join_deltas
from segue.model.errors import SegueError
from segue.model.event import Delta, DeltaKind
from segue.model.requests.spans import OpenRequest, encode_request
from segue.store.base import Lease, Store

FLUSH_SECONDS = 0.05


class DeltaWriter:
    """The deltas of one turn."""

    def __init__(self, store: Store, live: LiveUpdates, lease: Lease) -> None:
        self._store = store
        self._live = live
        self._lease = lease
        self._unflushed: list[Delta] = []
        self._flushing = asyncio.Lock()
        self._flusher: asyncio.Task[None] | None = None
        self._update_count = 0

    async def publish_request(self, request: OpenRequest) -> None:
        """Announce a model request. It is stored first, because lists of events show it."""
        delta = self._delta(request.id, "request", 0, encode_request(request))
        await self._store_deltas([delta])
        self._show(delta)

    def publish(self, message: str, kind: DeltaKind, offset: int, text: str) -> None:
        """Add text to a message that is being written."""
        delta = self._delta(message, kind, offset, text)
        self._show(delta)
        self._unflushed.append(delta)
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.get_running_loop().create_task(self._flush())

    def publish_update(self, payload: Any, turn: str, after: int) -> None:
        """Send a message of the agent, which came after the event with the seq `after`."""
        update = LiveUpdate(
            session=self._lease.session,
            payload=payload,
            turn=turn,
            number=self._update_count,
            after=after,
        )
        self._update_count += 1
        self._live.publish((self._lease.workspace, self._lease.session), update)

    def close(self) -> None:
        """Store no more deltas."""
        if self._flusher is not None:
            self._flusher.cancel()

    async def drop(self, messages: set[str | None]) -> None:
        """Drop the deltas of messages that are about to be stored, so that none is shown later."""
        self._unflushed = [delta for delta in self._unflushed if delta.message not in messages]
        async with self._flushing:
            return

    def _delta(self, message: str, kind: DeltaKind, offset: int, text: str) -> Delta:
        return Delta(
            session=self._lease.session, message=message, kind=kind, offset=offset, text=text
        )

    def _show(self, delta: Delta) -> None:
        name = (self._lease.workspace, self._lease.session)
        self._live.add_delta(name, delta.message, delta.kind, delta.offset, delta.text)

    async def _flush(self) -> None:
        """Store the deltas for other processes, a few times a second."""
        await asyncio.sleep(FLUSH_SECONDS)
        while self._unflushed:
            deltas, self._unflushed = self._unflushed, []
            if not await self._store_deltas(join_deltas(deltas)):
                return
            await asyncio.sleep(FLUSH_SECONDS)

    async def _store_deltas(self, deltas: list[Delta]) -> bool:
        """Store deltas; return False if the store refuses them.

        A lost delta does no harm: the message itself will be stored.
        """
        try:
            async with self._flushing:
                await self._store.put_deltas(self._lease, deltas)
        except SegueError:
            return False
        return True
