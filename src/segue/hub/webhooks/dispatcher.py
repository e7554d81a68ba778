"""Deliver queued notices, in every server of a store at once.

A server claims deliveries that are due for CLAIM_SECONDS. If it dies, they are due again then, so
each notice is delivered at least once; receivers recognise a repeated one by its id. A webhook
that is slow or fails delays no other: it has a limit of concurrent requests, and after a failure
its deliveries wait.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from msgspec.structs import replace

from segue.hub.resources.record_ids import format_record_id
from segue.hub.resources.records import Records
from segue.model import clock
from segue.model.errors import NotFound, SegueError, StoreUnreachable
from segue.model.record import Record
from segue.model.webhooks.delivery import Attempt, Delivery
from segue.secrets import mask_text
from segue.store.base import Signal, Store

from . import signing
from .payload import encode_payload, event_id
from .post import PostClient, PostFailed
from .service import KIND, WebhookBody, Webhooks

log = logging.getLogger("segue.webhooks")

# How long after a failed attempt the next one follows. After the last one the delivery has failed.
RETRY_SECONDS = (5, 30, 120, 600, 1800, 7200, 18_000, 36_000, 36_000)
MAX_JITTER = 0.2  # of the time until a retry, so that those of many deliveries spread
CLAIM_SECONDS = 60  # longer than an attempt can take
MAX_IN_FLIGHT = 512
MAX_IN_FLIGHT_PER_WEBHOOK = 128
DEFER_SECONDS = 0.2  # for deliveries to a webhook that is at its limit
MAX_PAUSE_SECONDS = 60.0  # of a webhook that fails
GATHER_SECONDS = 0.02  # so that one transaction claims and stores many deliveries
POLL_SECONDS = 1.0
DELIVERIES_PER_TRIM = 1000  # deliveries of a webhook
MAX_FINISHED, MAX_PENDING = 1000, 100_000  # deliveries of a webhook that are stored
MAX_FAILURES = 100  # deliveries that failed in a row
USER_AGENT = "segue-webhooks"
_GONE_STATUS = 410


class _Target(NamedTuple):
    """A webhook that deliveries are sent to."""

    record: Record
    url: str
    secrets: list[str]


class _Health(NamedTuple):
    """How many attempts failed in a row, and until when the webhook is left alone."""

    failures: int = 0
    paused_until: float = 0.0


class Dispatcher:
    """Deliver what is due. `webhooks` returns the service, which has the secrets."""

    def __init__(
        self,
        store: Store,
        records: Records,
        webhooks: Callable[[], Webhooks],
        *,
        private: bool,
    ) -> None:
        self._store = store
        self._records = records
        self._webhooks = webhooks
        self._client = PostClient(private=private)
        self._wake = asyncio.Event()
        self._logged_failure = ""
        self._tasks: dict[asyncio.Task[None], Delivery] = {}
        self._in_flight: Counter[str] = Counter()
        self._finished: list[Delivery] = []
        self._health: dict[str, _Health] = {}
        self._sent_since_trim: Counter[tuple[str, str]] = Counter()

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until `stop` is set."""
        unwatch = self._store.watch(self._on_signal)
        try:
            while not stop.is_set():
                try:
                    await self._deliver_due()
                except SegueError as error:  # the next round tries again
                    if not isinstance(error, StoreUnreachable):  # the store logs the outage
                        self._log_failure(error)
                    await asyncio.sleep(POLL_SECONDS)
        finally:
            unwatch()

    async def close(self) -> None:
        """Cancel the attempts that run, and release their deliveries to other processes."""
        for task in self._tasks:
            task.cancel()
        unfinished = [replace(delivery, due_at=clock.now()) for delivery in self._tasks.values()]
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if saved := [*self._finished, *unfinished]:
            with suppress(SegueError):
                await self._store.save_deliveries(saved)
        await self._client.close()

    async def attempt_now(self, delivery: Delivery) -> Delivery:
        """Store a delivery, attempt it once at once, and return it with the outcome."""
        until = clock.now() + CLAIM_SECONDS * clock.SECOND
        delivery = await self._store.put_delivery(replace(delivery, due_at=until))
        target = await self._target(delivery)
        if target is None:
            raise NotFound("the webhook was deleted or disabled")
        delivery = await self._attempt(delivery, target)
        if delivery.test:  # it is not repeated
            status = "delivered" if delivery.status == "delivered" else "failed"
            delivery = replace(delivery, due_at=None, status=status)
        await self._store.save_deliveries([delivery])
        return delivery

    def _on_signal(self, signal: Signal) -> None:
        if signal.kind in ("events", "purged"):
            self._wake.set()

    async def _deliver_due(self) -> None:
        """Store finished attempts, begin those that are due, and wait for something to do."""
        if finished := self._finished:
            self._finished = []
            await self._store.save_deliveries(finished)
            await self._trim(finished)
        due_at = await self._store.next_delivery()
        free = MAX_IN_FLIGHT - len(self._tasks)
        if due_at is not None and due_at <= clock.now() and free > 0:
            await self._begin(free)
        remaining = POLL_SECONDS
        if due_at is not None:
            remaining = min(remaining, max(0.0, (due_at - clock.now()) / clock.SECOND))
        if not self._finished:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(remaining, GATHER_SECONDS))
        self._wake.clear()
        await asyncio.sleep(GATHER_SECONDS)

    async def _begin(self, limit: int) -> None:
        now = clock.now()
        until = now + CLAIM_SECONDS * clock.SECOND
        targets: dict[tuple[str, str], _Target | None] = {}
        for delivery in await self._store.claim_deliveries(now=now, until=until, limit=limit):
            name = delivery.workspace, delivery.webhook
            if name not in targets:
                targets[name] = await self._target(delivery)
            target = targets[name]
            if target is None:
                attempts = (*delivery.attempts, Attempt(at=now, error="the webhook is disabled"))
                self._finish(replace(delivery, due_at=None, status="failed", attempts=attempts))
                continue
            pause = self._health.get(delivery.webhook, _Health()).paused_until - monotonic()
            if self._in_flight[delivery.webhook] >= MAX_IN_FLIGHT_PER_WEBHOOK:
                pause = max(pause, DEFER_SECONDS)
            if pause > 0:
                due_at = now + int((pause + random.random() * DEFER_SECONDS) * clock.SECOND)
                self._finish(replace(delivery, due_at=due_at))
                continue
            self._in_flight[delivery.webhook] += 1
            task = asyncio.create_task(self._send(delivery, target))
            self._tasks[task] = delivery

    async def _send(self, delivery: Delivery, target: _Target) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            self._finish(await self._attempt(delivery, target))
            self._logged_failure = ""
        except SegueError as error:  # it is due again when the claim ends
            self._log_failure(error)
        finally:
            self._in_flight[delivery.webhook] -= 1
            self._tasks.pop(task, None)

    def _log_failure(self, error: SegueError) -> None:
        """Log why deliveries fail: once, until one is attempted or the reason changes."""
        if error.message != self._logged_failure:
            self._logged_failure = error.message
            log.warning("webhooks could not be delivered: %s", error.message)

    def _finish(self, delivery: Delivery) -> None:
        self._finished.append(delivery)
        self._wake.set()

    async def _target(self, delivery: Delivery) -> _Target | None:
        """Return where to send a delivery; None if its webhook is deleted or disabled."""
        record = await self._records.find(delivery.workspace, KIND, delivery.webhook)
        if record is None or not (body := WebhookBody.of(record)).enabled:
            return None
        return _Target(record, body.url, self._webhooks().signing_secrets(record))

    async def _attempt(self, delivery: Delivery, target: _Target) -> Delivery:
        """Return a delivery after one more attempt."""
        began_at, began = clock.now(), monotonic()
        body = encode_payload(delivery)
        # A new time for each attempt: receivers refuse signatures that are too old.
        seconds = began_at // clock.SECOND
        headers = {
            "Content-Type": "application/json",
            "User-Agent": USER_AGENT,
            **signing.signed_headers(target.secrets, event_id(delivery), seconds, body),
        }
        status = error = None
        try:
            status = await self._client.post(target.url, headers, body)
        except PostFailed as failure:
            error = mask_text(str(failure))
        ms = round((monotonic() - began) * 1000)
        attempt = Attempt(at=began_at, ms=ms, status=status, error=error)
        if status is not None and 200 <= status < 300:
            self._health.pop(delivery.webhook, None)
            attempts = (*delivery.attempts, attempt)
            return replace(delivery, due_at=None, status="delivered", attempts=attempts)
        self._pause(delivery.webhook)
        failed = _failed(delivery, attempt)
        if status == _GONE_STATUS:
            await self._disable(target.record, "its server answered 410 Gone")
            return replace(failed, due_at=None, status="failed")
        if failed.status == "failed":
            await self._disable_if_dead(target.record, failed)
        return failed

    def _pause(self, webhook: str) -> None:
        failures = self._health.get(webhook, _Health()).failures + 1
        seconds = min(MAX_PAUSE_SECONDS, 0.25 * 2 ** min(failures, 10))
        self._health[webhook] = _Health(failures, monotonic() + seconds)

    async def _disable_if_dead(self, record: Record, failed: Delivery) -> None:
        """Disable a webhook if its last deliveries all failed."""
        rows = await self._store.deliveries(record.workspace, record.id, limit=MAX_FAILURES)
        if all(row.status != "delivered" for row in rows if row.number != failed.number):
            await self._disable(record, "no delivery succeeded for more than a day")

    async def _disable(self, record: Record, reason: str) -> None:
        log.warning("webhook %s is disabled: %s", format_record_id(record), reason)
        await self._webhooks().disable(record, reason)

    async def _trim(self, deliveries: Sequence[Delivery]) -> None:
        """Delete old deliveries of webhooks that got many new ones."""
        self._sent_since_trim.update((row.workspace, row.webhook) for row in deliveries)
        for name, sent in list(self._sent_since_trim.items()):
            if sent >= DELIVERIES_PER_TRIM:
                del self._sent_since_trim[name]
                await self._store.trim_deliveries(*name, finished=MAX_FINISHED, pending=MAX_PENDING)


def _failed(delivery: Delivery, attempt: Attempt) -> Delivery:
    """Return a delivery after a failed attempt, with the time of the next one if there is one."""
    attempts = (*delivery.attempts, attempt)
    delivery = replace(delivery, attempts=attempts)
    if len(attempts) > len(RETRY_SECONDS):
        return replace(delivery, due_at=None, status="failed")
    seconds = RETRY_SECONDS[len(attempts) - 1] * (1 + random.random() * MAX_JITTER)
    return replace(delivery, due_at=clock.now() + int(seconds * clock.SECOND))
