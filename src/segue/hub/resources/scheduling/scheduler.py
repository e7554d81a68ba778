"""Run deployments on their schedules.

Each server checks every minute which deployments are due. Of several servers one runs each
deployment: the first that stores the time of the run. Runs that were due while no server was
running are skipped.
"""

from __future__ import annotations

import asyncio
import logging

from msgspec.structs import replace

from segue.hub.resources.records import Records
from segue.model import clock
from segue.model.errors import Conflict, SegueError, StoreUnreachable
from segue.model.query import Position
from segue.model.record import Record
from segue.store.base import Store

from .deployments import ALL_WORKSPACES, KIND, SCHEDULED, DeploymentBody, Deployments, ScheduleEntry

log = logging.getLogger("segue.hub")

MINUTE = 60 * clock.SECOND
BATCH_SIZE = 200


class Scheduler:
    """Run the deployments that are due, in one server."""

    def __init__(self, store: Store, records: Records, deployments: Deployments) -> None:
        self._store = store
        self._records = records
        self._deployments = deployments
        self._checked_at = clock.now()

    async def run(self, stop: asyncio.Event) -> None:
        """Run due deployments at the start of every minute until `stop` is set."""
        while not stop.is_set():
            minute = (clock.now() // MINUTE + 1) * MINUTE
            while (remaining := minute - clock.now()) > 0:  # a sleep may end a little early
                await asyncio.sleep(remaining / clock.SECOND)
            try:
                await self.run_due()
            except StoreUnreachable:  # the store logs the outage
                pass
            except Exception:  # the next minute is a new attempt
                log.exception("the due deployments could not be read")

    async def run_due(self) -> None:
        """Run the deployments that have become due since the last call."""
        since, self._checked_at = self._checked_at, clock.now()
        after: Position | None = None
        while entries := await self._store.records(
            ALL_WORKSPACES, SCHEDULED, after=after, limit=BATCH_SIZE
        ):
            for entry in entries:
                # A failure of one deployment does not stop the others.
                try:
                    await self._run_if_due(entry, since)
                except SegueError as error:
                    log.warning("a deployment could not be run: %s", error.message)
                except Exception:
                    log.exception("a deployment could not be run")
            after = Position(entries[-1].created_at, entries[-1].id)

    async def _run_if_due(self, entry: Record, since: int) -> None:
        while True:
            deployment = await self._find_scheduled(entry)
            if deployment is None:
                await self._remove(entry)
                return
            due = self._due(deployment, since)
            if due is None:
                return
            try:
                claimed = await self._claim(deployment, due)
                break
            except Conflict:  # another server has run it, or it was changed
                continue
        await self._deployments.run_scheduled(claimed, due)

    async def _find_scheduled(self, entry: Record) -> Record | None:
        """Return the deployment of an entry if it is active and has a schedule."""
        record = await self._records.find(ScheduleEntry.of(entry).workspace, KIND, entry.id)
        if record is None or record.archived_at is not None:
            return None
        return None if DeploymentBody.of(record).schedule is None else record

    async def _remove(self, entry: Record) -> None:
        await self._records.delete(entry)
        await self._deployments.forget_schedule(
            replace(entry, workspace=ScheduleEntry.of(entry).workspace)
        )
        # It may have got a schedule just before the entry was deleted.
        deployment = await self._find_scheduled(entry)
        if deployment is not None:
            await self._deployments.watch_schedule(deployment)

    def _due(self, deployment: Record, since: int) -> int | None:
        """Return the last time at which a deployment should have run and has not."""
        body = DeploymentBody.of(deployment)
        if body.schedule is None or body.paused:
            return None
        due = None
        for at in body.schedule.timetable().after(max(since, body.scheduled_from, body.fired_at)):
            if at > self._checked_at:
                break
            due = at
        return due

    async def _claim(self, deployment: Record, due: int) -> Record:
        """Store that this server runs a deployment. Raises Conflict if it was changed."""
        body = {**deployment.body, "fired_at": due, "last_run_at": clock.now()}
        return await self._records.supersede(replace(deployment, body=body))
