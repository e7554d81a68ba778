"""Run turns: one at a time in each session, in one of the processes that share a store.

A prompt is an item in the session's inbox, with the process that received it. That process acquires
the session's lease when the prompt is the next one, runs its turn, and releases the lease. The
transaction that stores the message also turns the item into one of the kind `turn`, so a prompt is
begun once or not at all. Cancels and answers reach the process that has the lease the same way.
If that process dies, another one takes its lease over, closes the turn that was open (a begun turn
is never run again) and runs the prompts that had not begun.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from segue.agents.base import Agent, SupportsRelease, Tools
from segue.agents.base.client import ClientPort
from segue.hub.history.follow import Name
from segue.hub.workdir.isolation import remove_temporary_files
from segue.model import clock, ids
from segue.model.errors import NoAgent, NotFound, SegueError, StoreError, StoreUnreachable
from segue.store.base import InboxItem, Signal

from .claims import ItemClaims
from .deps import TurnDeps
from .driver import SessionDriver
from .holder import close_holder, new_holder
from .opened import OpenSession, StoreSessionPort

log = logging.getLogger("segue.turns")

# A lease that is not renewed for so long is taken over, unless its process is known to be dead.
LEASE_MICROSECONDS = 15 * clock.SECOND
RENEW_SECONDS = 4.0
RECOVER_SECONDS = 1.0
# Between tries to get a lease that another process has; a release wakes this process at once.
RETRY_SECONDS = 0.1
# How long a session that is closed waits for its cancelled turn to end.
TURN_END_SECONDS = 5.0
# A cancelled agent has so long to end its programs before this process ends.
AGENT_END_SECONDS = 25.0


class TurnEngine:
    """The turn engine of one process."""

    def __init__(self, deps: TurnDeps, lease: int = LEASE_MICROSECONDS) -> None:
        self._deps = deps
        self._store = deps.store
        self._lease_seconds = lease / clock.SECOND
        self.holder = new_holder()
        self._claims = ItemClaims(self.holder, self._lease_seconds)
        self._drivers: dict[Name, SessionDriver] = {}
        self._opened: dict[str, OpenSession] = {}
        # Sessions with items of this process, and those of them whose lease must become free.
        self._interesting: set[Name] = set()
        self._waiting: set[Name] = set()
        self._kicked: set[Name] = set()
        self._has_waiting = asyncio.Event()
        self._locks: WeakValueDictionary[Name, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._discards: set[asyncio.Task[None]] = set()  # tasks that end purged sessions
        self._ending_agents: set[asyncio.Task[Any]] = set()  # agents that outlive their turns
        self._started = False
        self._closed = False

    @property
    def running(self) -> int:
        """The number of turns that run in this process."""
        return sum(driver.busy for driver in self._drivers.values())

    def has_lease(self, name: Name) -> bool:
        """Return whether this process has the lease of a session."""
        return name in self._drivers

    def start(self) -> None:
        """Begin to renew leases and to recover the turns of dead processes."""
        if self._started:
            return
        self._started = True
        self._deps.live.listen(self._signal)
        self._spawn(self._renew())
        self._spawn(self._retry_waiting())
        self._spawn(self._recover_regularly())

    async def wait_idle(self) -> None:
        """Wait until no turn runs in this process and no prompt is queued for it."""
        while self._drivers or self._waiting:
            tasks = [driver.task for driver in self._drivers.values() if driver.task is not None]
            if tasks:
                await asyncio.wait(tasks)
            else:
                await asyncio.sleep(RETRY_SECONDS)

    async def drain(self, seconds: float, why: str) -> None:
        """Begin no further turn, and interrupt the turns that run longer than `seconds`.

        Prompts that have not begun stay in their inboxes for another process. `why` becomes the
        reason of the interrupted turns.
        """
        self._closed = True
        drivers = list(self._drivers.values())
        # A turn that waits for a person would wait longer than this.
        await asyncio.gather(*(driver.stop(why) for driver in drivers if driver.is_waiting))
        tasks = [driver.retire() for driver in drivers]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        await asyncio.gather(*(driver.stop(why) for driver in drivers))
        await self._store.disown_inbox(self.holder)

    async def close(self) -> None:
        """Cancel this process's turns, release its leases and wait for the end of the agents."""
        self._closed = True
        await asyncio.gather(*(driver.stop() for driver in list(self._drivers.values())))
        await asyncio.gather(*self._discards, return_exceptions=True)
        if self._ending_agents:
            await asyncio.wait(self._ending_agents, timeout=AGENT_END_SECONDS)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        close_holder(self.holder)
        if self._started:
            try:
                await self._store.disown_inbox(self.holder)
            except StoreError as error:  # other processes notice that this one has ended
                log.warning("prompts were not left to other processes: %s", error)

    async def kick(self, name: Name) -> None:
        """Act on a session's inbox, as far as this process is to do that."""
        self.start()
        if driver := self._drivers.get(name):
            driver.wake.set()
            return
        async with self._locks.setdefault(name, asyncio.Lock()):
            if name not in self._drivers and not self._closed:
                await self._acquire_and_drive(name)

    async def _acquire_and_drive(self, name: Name) -> None:
        try:
            items = await self._store.inbox(*name)
        except NotFound:
            self._note_waiting(name, interested=False)
            raise
        lease = await self._store.lease_of(*name)
        interested = any(item.holder == self.holder for item in items)
        leased_elsewhere = lease is not None and lease.holder != self.holder
        if leased_elsewhere and lease is not None and not self._claims.is_abandoned(lease):
            # Only the timer notices that a process was killed.
            self._note_waiting(name, interested=interested, by_timer=interested)
            return
        if lease is None and not self._claims.has_work(items):
            is_queued = interested and not any(item.kind == "turn" for item in items)
            self._note_waiting(name, interested=interested, by_timer=is_queued)
            return
        acquired = await self._store.acquire(*name, self.holder, over=lease)
        if acquired is None:  # another process was faster
            self._note_waiting(name, interested=True, by_timer=True)
            return
        self._note_waiting(name, interested=interested)
        if self._closed:
            await self._store.release(acquired)
            return
        driver = self._drivers[name] = SessionDriver(self._deps, acquired, self._claims, self)
        driver.task = self._spawn(self._driven(name, driver))

    def _note_waiting(self, name: Name, *, interested: bool, by_timer: bool = False) -> None:
        """Note whether signals of a session, or also the timer, let this process try again."""
        (self._interesting.add if interested else self._interesting.discard)(name)
        (self._waiting.add if by_timer else self._waiting.discard)(name)
        if by_timer:
            self._has_waiting.set()

    async def why_left(self, name: Name) -> NoAgent | None:
        """Return why this process left a prompt or answer to others; None if none is left."""
        return self._claims.why_left(await self._store.inbox(*name))

    # Sessions that clients have open.

    def open(
        self,
        name: Name,
        agent: Agent | None = None,
        tools: Tools | None = None,
        roots: Sequence[str] | None = None,
        client: ClientPort | None = None,
    ) -> OpenSession:
        """Open a session in this process, with an agent, MCP servers and roots of its client."""
        self.start()
        opened = OpenSession(self, name, agent, tools, roots, client)
        self._opened[opened.id] = opened
        return opened

    def session_port(self, name: Name) -> StoreSessionPort:
        """Return the port through which an agent adds to a session between its turns."""
        return StoreSessionPort(self._store, self._deps.live, name)

    def opened(self, id: str | None) -> OpenSession | None:
        """Return a session that a client of this process has open."""
        return None if id is None else self._opened.get(id)

    async def close_session(self, opened: OpenSession, *, cancel: bool) -> None:
        """Close an open session; with `cancel`, first cancel the turns started through it."""
        if self._opened.get(opened.id) is not opened:
            return
        if cancel:
            try:
                await self._cancel_turns(opened)
            except NotFound:
                log.info("session %s was purged", opened.name[1])
        if self._opened.pop(opened.id, None) is None:
            return  # the end of its turn has closed it
        while (driver := self._drivers.get(opened.name)) and not driver.busy:
            await asyncio.sleep(0.005)  # it releases the lease
        if any(other.name == opened.name for other in self._opened.values()):
            return
        if opened.name not in self._drivers:
            if isinstance(opened.agent, SupportsRelease):
                await opened.agent.release(opened.name[1])
            await self._deps.services.agent_registry.release(opened.name[1])

    async def finish_turns(self, opened: OpenSession) -> None:
        """Wait until the turns that were started through a session have ended or are stored."""

        def is_running(item: InboxItem) -> bool:
            driver = self._drivers.get(opened.name)
            return item.kind == "prompt" or (driver is not None and driver.busy)

        await self._wait_for_items(opened, is_running)

    async def _cancel_turns(self, opened: OpenSession) -> None:
        items = [item for item in await self._store.inbox(*opened.name) if _is_of(item, opened)]
        await self._store.drop_inbox(*opened.name, [item.number for item in items])
        for item in await self._store.inbox(*opened.name):
            if _is_of(item, opened) and item.kind == "turn":
                await self._store.put_inbox(
                    *opened.name, "cancel", ids.new_id(), {"turn": item.id}, self.holder
                )
                await self.kick(opened.name)
                break
        try:
            async with asyncio.timeout(TURN_END_SECONDS):
                await self._wait_for_items(opened, lambda _: True)
        except TimeoutError:
            log.warning("session %s: the cancelled turn does not end", opened.name[1])

    async def _wait_for_items(
        self, opened: OpenSession, counts: Callable[[InboxItem], bool]
    ) -> None:
        """Wait until the inbox has no prompt or turn of an open session that counts."""
        with self._deps.live.subscribe(opened.name) as subscription:
            while True:
                subscription.clear()
                items = await self._store.inbox(*opened.name)
                if not any(_is_of(item, opened) and counts(item) for item in items):
                    break
                with suppress(TimeoutError):
                    await asyncio.wait_for(subscription.wait(), RETRY_SECONDS)
        if (driver := self._drivers.get(opened.name)) and driver.opened == opened.id:
            await driver.turn_ended.wait()

    # Tasks.

    async def _driven(self, name: Name, driver: SessionDriver) -> None:
        try:
            await driver.run()
        except StoreError as error:
            log.warning("session %s: the turn was not finished: %s", name[1], error)
            return
        finally:
            self._drivers.pop(name, None)
        # An item may have arrived between the last read of the inbox and the release.
        if not self._closed:
            await self._kick_existing(name)

    def await_agent(self, task: asyncio.Task[Any]) -> None:
        """Remember an agent that still runs after its turn, until it ends."""
        self._ending_agents.add(task)
        task.add_done_callback(self._on_agent_end)

    def _on_agent_end(self, task: asyncio.Task[Any]) -> None:
        self._ending_agents.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.warning("an agent failed after its turn was cancelled", exc_info=error)

    def _signal(self, signal: Signal) -> None:
        name = (signal.workspace, signal.session)
        driver = self._drivers.get(name)
        if driver is not None and signal.kind in ("inbox", "purged"):
            driver.wake.set()
        elif signal.kind == "inbox" and name in self._interesting and name not in self._kicked:
            self._kicked.add(name)
            self._spawn(self._kick_signalled(name))
        if signal.kind == "purged" and not self._closed:
            task = self._spawn(self._discard(signal.session))
            self._discards.add(task)
            task.add_done_callback(self._discards.discard)

    async def _kick_signalled(self, name: Name) -> None:
        self._kicked.discard(name)
        try:
            await self._kick_existing(name)
        except SegueError as error:
            log.warning("session %s: %s", name[1], error)

    async def _discard(self, session: str) -> None:
        """End the programs of a purged session and delete their temporary files."""
        await self._deps.services.agent_registry.release(session)
        await remove_temporary_files(session)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)
        return task

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("a turn's task failed", exc_info=error)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(min(RENEW_SECONDS, self._lease_seconds / 3))
            if not self._drivers:
                continue
            drivers = dict(self._drivers)
            try:
                leased = await self._store.renew(self.holder)
                for name, driver in drivers.items():
                    if name not in leased:
                        driver.lose_lease()
                for name in leased - self._drivers.keys():
                    await self._kick_existing(name)  # an error ended its driver
            except SegueError as error:
                log.warning("could not renew leases: %s", error)

    async def _retry_waiting(self) -> None:
        """Try to get the leases that other processes have, in case one of them dies."""
        while True:
            await self._has_waiting.wait()
            await asyncio.sleep(RETRY_SECONDS)
            for name in list(self._waiting):
                await self._kick_signalled(name)
            if not self._waiting:
                self._has_waiting.clear()

    async def _recover_regularly(self) -> None:
        while True:
            try:
                await self.recover()
            except StoreUnreachable:  # the store logs the outage
                pass
            except SegueError as error:
                log.warning("could not recover abandoned turns: %s", error)
            self._claims.forget_old()
            await asyncio.sleep(RECOVER_SECONDS)

    async def recover(self) -> None:
        """Close the turns of dead processes and run the prompts that they had not begun."""
        for lease in await self._store.leases():
            # A lease of this process without a driver: an error ended the driver.
            name = (lease.workspace, lease.session)
            if lease.holder == self.holder or self._claims.is_abandoned(lease):
                await self._kick_existing(name)
        for name in await self._store.waiting():
            await self._kick_existing(name)

    async def _kick_existing(self, name: Name) -> None:
        try:
            await self.kick(name)
        except NotFound:
            return


def _is_of(item: InboxItem, opened: OpenSession) -> bool:
    """Return whether an item is a prompt or turn of a client's open session."""
    return item.kind in ("prompt", "turn") and item.body.get("opened") == opened.id
