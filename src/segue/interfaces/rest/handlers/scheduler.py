"""Deployments that run by themselves: each server looks every minute which are due.

Of several servers one runs each: who first writes down that it was fired. What was due while no
server ran is not made up for.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from segue.hub import Hub
from segue.hub.resources import cron
from segue.hub.resources.records import new
from segue.model import clock
from segue.model.errors import Conflict, SegueError
from segue.model.principal import Principal
from segue.model.query import Position
from segue.model.record import Record

if TYPE_CHECKING:
    from segue.interfaces.rest.app import RestApp

log = logging.getLogger("segue.rest")

MINUTE = 60 * clock.SECOND
# Which deployments have a schedule, of all workspaces; no key is of this one.
_ALL, _KIND = "", "scheduled"
_BATCH = 200


def mark(deployment: Record) -> Record:
    """What has a deployment looked at, once it is kept."""
    return new(_ALL, _KIND, {"workspace": deployment.workspace}, deployment.id)


async def note(hub: Hub, deployment: Record) -> None:
    """Have a deployment looked at from now on."""
    try:
        await hub.store.put_record(mark(deployment))
    except Conflict:  # it is known
        return


def timetable(deployment: Record) -> cron.Cron | None:
    given = deployment.body.get("schedule")
    return None if given is None else cron.parse(given["expression"], given["timezone"])


def _runs(deployment: Record) -> bool:
    return deployment.archived_at is None and timetable(deployment) is not None


class Scheduler:
    """One server's part in running what is due."""

    def __init__(self, app: RestApp) -> None:
        self._app = app
        self._looked = clock.now()

    async def run(self) -> None:
        while not self._app.closing.is_set():
            minute = (clock.now() // MINUTE + 1) * MINUTE
            while (left := minute - clock.now()) > 0:  # a sleep may end a little early
                await asyncio.sleep(left / clock.SECOND)
            try:
                await self.look()
            except Exception:  # the next minute is another one
                log.exception("what is due could not be looked up")

    async def look(self) -> None:
        """Run what has come due since the last look."""
        since, self._looked = self._looked, clock.now()
        after: Position | None = None
        store = self._app.hub.store
        while rows := await store.records(_ALL, _KIND, after=after, limit=_BATCH):
            for each in rows:
                try:
                    await self._consider(each, since)
                except SegueError as error:  # others are to run all the same
                    log.warning("a deployment could not be run: %s", error.message)
                except Exception:
                    log.exception("a deployment could not be run")
            after = Position(rows[-1].created_at, rows[-1].id)

    async def _consider(self, noted: Record, since: int) -> None:
        from . import deployments

        records = self._app.hub.records
        where = noted.body["workspace"], "deployment", noted.id
        while True:
            found = await records.find(*where)
            if found is None or not _runs(found):
                await records.delete(noted)
                found = await records.find(*where)
                if found is not None and _runs(found):  # as of this moment
                    await note(self._app.hub, found)
                return
            due = self._due(found, since)
            if due is None:
                return
            try:
                claimed = await self._claim(found, due)
                break
            except Conflict:  # another server has run it, or somebody has changed it
                continue
        request = self._app.background_request(Principal(workspace=found.workspace))
        await deployments.fire(request, claimed, due)

    def _due(self, deployment: Record, since: int) -> int | None:
        """The last time at which it should have run, if that has not been yet."""
        times = timetable(deployment)
        if times is None or deployment.body.get("paused"):
            return None
        begin = max(since, deployment.body["scheduled_from"], deployment.body.get("fired_at", 0))
        due = None
        for at in times.after(begin):
            if at > self._looked:
                break
            due = at
        return due

    async def _claim(self, deployment: Record, due: int) -> Record:
        """The deployment, marked as fired by us; Conflict if it was changed meanwhile."""
        body = {**deployment.body, "fired_at": due, "last_run_at": clock.now()}
        return await self._app.hub.records.supersede(replace(deployment, body=body))
