"""Check whether the store accepts writes, at most every few seconds."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic

from segue.hub import Store
from segue.model.errors import StoreError

log = logging.getLogger("segue.rest")

PROBE_INTERVAL_SECONDS = 5.0
MAX_WAIT_SECONDS = 5.0


class WriteProbe:
    """The outcome of the last test write, which all requests share."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._task: asyncio.Task[StoreError | None] | None = None
        self._started_at = 0.0

    async def problem(self) -> str | None:
        """Return why the store accepts no writes, in words for every caller, or None."""
        now = monotonic()
        is_due = now - self._started_at >= PROBE_INTERVAL_SECONDS
        if self._task is None or (self._task.done() and is_due):
            self._started_at = now
            self._task = asyncio.create_task(self._probe())
        done, _ = await asyncio.wait([self._task], timeout=MAX_WAIT_SECONDS)
        if not done:
            return "the store does not answer"
        error = self._task.result()
        return None if error is None else error.remote_message

    async def _probe(self) -> StoreError | None:
        try:
            await self._store.probe_write()
        except StoreError as error:
            log.warning("a test write failed: %s", error.message)
            return error
        return None
