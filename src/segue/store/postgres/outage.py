"""Log an outage of the database once, and not each operation that fails because of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from segue.model.errors import StoreUnreachable

log = logging.getLogger("segue.store")

REMINDER_SECONDS = 900.0


class OutageLog:
    """Logs when the database cannot be reached any more, rarely that it still cannot, and its end.

    `address` describes the database.
    """

    def __init__(self, address: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._clock = clock
        self._began: float | None = None
        self._logged_at = 0.0

    def failed(self, error: StoreUnreachable) -> None:
        """Record an operation that failed."""
        now = self._clock()
        if self._began is None:
            self._began = now
            log.error("%s; operations fail until it answers again", error.message)
        elif now - self._logged_at >= REMINDER_SECONDS:
            log.error("%s, for %d minutes now", error.message, (now - self._began) / 60)
        else:
            return
        self._logged_at = now

    def worked(self) -> None:
        """Record an operation that worked."""
        if self._began is None:
            return
        log.warning("%s answers again, after %d s", self._address, self._clock() - self._began)
        self._began = None


def quiet_pool() -> None:
    """Keep asyncpg from logging a traceback each time that its pool cannot connect."""
    logging.getLogger("asyncpg.pool").addFilter(_has_no_traceback)


def _has_no_traceback(record: logging.LogRecord) -> bool:
    return record.exc_info is None
