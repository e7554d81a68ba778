"""Turns: one at a time in each session, wherever it runs.

A prompt is a row in the session's inbox. Whoever holds the session's lease takes prompts from it,
in order; beginning a turn consumes the row in the transaction that stores the message, so a prompt
is begun once or not at all. Cancels and answers reach the holder the same way, from any process.
A holder that dies lets its lease expire; whoever notices closes the turn it had open (a begun turn
is never run again) and goes on with the prompts it had not begun.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Coroutine, Mapping
from typing import Any

from segue.agents.base import Agent, NoTools, SupportsRelease, Tools, Turn
from segue.agents.turn_hooks import HOOKS_KEY
from segue.hub.history.follow import Name
from segue.hub.turns.end_turn import end_turn_events
from segue.model import clock, ids
from segue.model.errors import Conflict, LeaseLost, NoAgent, NotFound, SegueError, StoreError
from segue.model.event import AnyBody, Draft, Interrupted, ModelAsked
from segue.model.lifecycle import StopReason
from segue.model.session import Session
from segue.store.base import InboxItem, Lease, Signal

from .runner import Running, TurnDeps, partials, unanswered

log = logging.getLogger("segue.turns")

LEASE = 15 * clock.SECOND
RENEW_SECONDS = 4.0
RECOVER_SECONDS = 5.0
# A prompt that nobody has taken for so long was left by a process that died.
ABANDONED = 3 * clock.SECOND
# One that needs what a program lent it, and waits for so long, has outlived that program.
ORPHANED = 30 * clock.SECOND


class SessionLease:
    """A session held open by this process: prompts to it run here until it is closed."""

    def __init__(self, engine: TurnEngine, name: Name) -> None:
        self._engine = engine
        self.name = name

    async def close(self) -> None:
        """Cancel the turn, if one runs, and let the session go."""
        await self._engine.release(self.name)


class TurnEngine:
    """The turn engine of one process."""

    def __init__(self, deps: TurnDeps, lease: int = LEASE) -> None:
        self._deps = deps
        self._store = deps.store
        self._ttl = lease
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{ids.new_id()}"
        self._drivers: dict[Name, _Driver] = {}
        self._holds: dict[Name, tuple[Agent | None, Tools]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = False
        self._closed = False

    @property
    def running(self) -> int:
        """How many turns run in this process."""
        return sum(driver.busy for driver in self._drivers.values())

    def start(self) -> None:
        """Begin to renew leases and to notice what dead processes left."""
        if self._started:
            return
        self._started = True
        self._deps.live.listen(self._signal)
        self._spawn(self._renew())
        self._spawn(self._watch_over())

    async def rest(self) -> None:
        """Wait until there is nothing left to do for the sessions that are at work here."""
        while tasks := [each.task for each in self._drivers.values() if each.task is not None]:
            await asyncio.wait(tasks)

    async def drain(self, seconds: float, why: str) -> None:
        """Begin nothing more, and let the turns that run end; those that take longer are cut.

        Prompts that have not begun stay in their inboxes, for another process to take up. `why`
        is told of the turns that were cut.
        """
        self._closed = True
        drivers = list(self._drivers.values())
        tasks = [driver.retire() for driver in drivers]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        await asyncio.gather(*(driver.stop(why) for driver in drivers))

    async def close(self) -> None:
        """Cancel this process's turns and give back its leases."""
        self._closed = True
        await asyncio.gather(*(driver.stop() for driver in list(self._drivers.values())))
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def kick(self, name: Name) -> None:
        """Run what is in a session's inbox, unless another process holds the session."""
        self.start()
        if driver := self._drivers.get(name):
            driver.wake.set()
            return
        lease = await self._store.acquire(*name, self.holder, self._ttl)
        if lease is None:
            return
        if self._closed:
            await self._store.release(lease)
        else:
            self._drive(name, lease)

    async def lease(
        self,
        name: Name,
        agent: Agent | None = None,
        tools: Tools | None = None,
        *,
        stored: bool = True,
    ) -> SessionLease:
        """Hold a session open, with an agent and MCP servers of this process's own.

        Where another process holds it, prompts go on running there. One that is not in the store
        is held as soon as it is.
        """
        self._holds[name] = (agent, tools or NoTools())
        try:
            if stored:
                await self.kick(name)
        except BaseException:
            self._holds.pop(name, None)
            raise
        return SessionLease(self, name)

    def has_own_agent(self, name: Name) -> bool:
        """Whether this process holds a session open with an agent of its own."""
        agent, _ = self._holds.get(name, (None, None))
        return agent is not None

    async def release(self, name: Name) -> None:
        agent, _ = self._holds.pop(name, (None, None))
        if driver := self._drivers.get(name):
            await driver.stop()
        if isinstance(agent, SupportsRelease):
            await agent.release(name[1])

    def _drive(self, name: Name, lease: Lease) -> None:
        if name not in self._drivers:
            driver = self._drivers[name] = _Driver(self._deps, lease, self._holds)
            driver.task = self._spawn(self._driven(name, driver))

    async def _driven(self, name: Name, driver: _Driver) -> None:
        try:
            able = await driver.run()
        except StoreError as error:
            log.warning("session %s was left as it is: %s", name[1], error)
            return
        finally:
            self._drivers.pop(name, None)
        # A prompt may have come between the last look and the release.
        if able and not self._closed:
            try:
                items = await self._store.inbox(*name)
            except NotFound:
                return
            if any(item.kind == "prompt" for item in items):
                await self.kick(name)

    def _signal(self, signal: Signal) -> None:
        driver = self._drivers.get((signal.workspace, signal.session))
        if driver is not None and signal.kind in ("inbox", "purged"):
            driver.wake.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("a turn's task failed", exc_info=error)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(min(RENEW_SECONDS, self._ttl / clock.SECOND / 3))
            if not self._drivers:
                continue
            drivers = dict(self._drivers)
            try:
                held = await self._store.renew(self.holder, self._ttl)
                for name, driver in drivers.items():
                    if name not in held:
                        driver.lost()
                for name in held - self._drivers.keys():
                    await self._take_over(name)  # what an error left of a turn of our own
            except SegueError as error:
                log.warning("could not renew leases: %s", error)

    async def _watch_over(self) -> None:
        while True:
            try:
                await self.recover()
            except SegueError as error:
                log.warning("could not look for abandoned turns: %s", error)
            await asyncio.sleep(RECOVER_SECONDS)

    async def recover(self) -> None:
        """Close the turns of dead processes, and run the prompts they had not begun."""
        for lease in await self._store.expired_leases():
            await self._take_over((lease.workspace, lease.session))
        for name in await self._store.waiting_prompts(clock.now() - ABANDONED):
            await self._take_over(name)

    async def _take_over(self, name: Name) -> None:
        try:
            await self.kick(name)
        except NotFound:
            return


class _Driver:
    """Runs the turns of one session, while this process holds its lease."""

    def __init__(
        self, deps: TurnDeps, lease: Lease, holds: Mapping[Name, tuple[Agent | None, Tools]]
    ) -> None:
        self._deps = deps
        self._store = deps.store
        self._lease = lease
        self._name: Name = (lease.workspace, lease.session)
        self._running: Running | None = None
        self._stopping = False
        self._lost = False
        self._holds = holds
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self._running is not None

    def retire(self) -> asyncio.Task[None]:
        """Begin no further turn; what is done when the one that runs has ended."""
        assert self.task is not None  # set as soon as it was made
        self._stopping = True
        self.wake.set()
        return self.task

    async def stop(self, why: str | None = None) -> None:
        """Cancel the running turn, and end. With `why` it was nobody's override, but cut off."""
        task = self.retire()
        if self._running is not None:
            self._running.cancel(why)
        await asyncio.wait([task])

    def lost(self) -> None:
        """The lease is gone: nothing may be written any more."""
        if not self._lost:
            log.info("session %s was taken over or removed", self._lease.session)
        self._lost = self._stopping = True
        self.wake.set()
        if self._running is not None:
            self._running.abandon()

    async def run(self) -> bool:
        """Until there is nothing left to do; False if there is, but not for this process."""
        try:
            able = await self._work()
        except (LeaseLost, NotFound):
            self.lost()
        finally:
            self._deps.live.finish_messages(self._name)
        if self._lost:
            return False
        # Neither after an error nor when lost: an open turn is found by a lease that ran out.
        await self._store.release(self._lease)
        return able

    async def _work(self) -> bool:
        await self._settle()
        while not self._stopping:
            self.wake.clear()
            prompt = await self._next_prompt()
            if prompt is not None:
                if not await self._turn(prompt):
                    return False
            elif self._name in self._holds:
                await self.wake.wait()
            else:
                break
        return not self._stopping

    async def _settle(self) -> None:
        """Close the turn that a former holder left open."""
        session = await self._store.get(*self._name)
        if session is None or session.turn is None:
            return
        cut: list[AnyBody | Draft] = [*partials(await self._store.deltas(*self._name))]
        spans = ("model_asked", "model_called")
        last = await self._store.events(*self._name, types=spans, limit=1, backward=True)
        cut += unanswered(next((e.id for e in last if isinstance(e.body, ModelAsked)), None))

        def decide(current: Session) -> list[AnyBody | Draft]:
            if current.turn is None:
                return []
            why = "the process that ran this turn ended before it did"
            return [*cut, Interrupted(reason=why), *end_turn_events(current, why, "error")]

        await self._store.change(*self._name, decide, lease=self._lease)

    async def _next_prompt(self) -> InboxItem | None:
        """The oldest prompt. With no turn running, cancels and answers have nothing to act on."""
        stale = []
        found = None
        for item in await self._store.inbox(*self._name):
            if item.kind == "prompt":
                found = found or item
            elif found is None:
                stale.append(item.number)
        if stale:
            await self._store.drop_inbox(*self._name, stale)
        return found

    async def _turn(self, prompt: InboxItem) -> bool:
        """Run one turn. False when this process cannot answer for the session's agent."""
        session = await self._store.get(*self._name)
        if session is None:
            raise NotFound(f"no session {self._lease.session}", session=self._lease.session)
        agent, tools = self._holds.get(self._name, (None, NoTools()))
        try:
            overrides = prompt.body.get("overrides", {})
            agent = agent or await self._deps.build_agent(session, overrides, self._lease)
        except NoAgent as error:
            log.warning("session %s: %s", session.id, error)
            if HOOKS_KEY not in overrides or prompt.at > clock.now() - ORPHANED:
                return await self._taken_back()
            agent = _Refusing(error)
        self._running = Running(self._deps, self._lease, self.wake, agent, tools)
        try:
            if not self._stopping:  # asked while the agent was being built
                await self._running.run(prompt.number, prompt.id, prompt.body)
        except LeaseLost:
            raise
        except Conflict as error:
            # Withdrawn meanwhile, or the session has terminated: nothing to run.
            log.info("session %s: %s", session.id, error)
            await self._store.drop_inbox(*self._name, [prompt.number])
        finally:
            self._running = None
        return True

    async def _taken_back(self) -> bool:
        """Whether a cancel takes back what nobody here can answer: all that came before it."""
        items = await self._store.inbox(*self._name)
        cancel = max((item.number for item in items if item.kind == "cancel"), default=0)
        numbers = [item.number for item in items if item.number <= cancel]
        return bool(await self._store.drop_inbox(*self._name, numbers))


class _Refusing:
    """Answers what nobody can answer any more, with why."""

    def __init__(self, error: NoAgent) -> None:
        self._error = error

    async def run(self, turn: Turn) -> StopReason:
        raise self._error
