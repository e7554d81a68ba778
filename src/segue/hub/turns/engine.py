"""Run turns: one at a time in each session, in one of the processes that share a store.

A prompt is an item in the session's inbox. The process that has the session's lease takes prompts
from it, in order. The transaction that stores the message also removes the item, so a prompt is
begun once or not at all. Cancels and answers reach that process the same way, from any other.
If the process dies, its lease expires. The process that notices closes the turn that was open (a
begun turn is never run again) and runs the prompts that had not begun.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from segue.agents.base import Agent, NoTools, SupportsRelease, Tools, Turn
from segue.agents.base.turn_hooks import HOOKS_KEY
from segue.hub.history.follow import Name
from segue.hub.turns.end_turn import end_turn_events, failed_request, partial_messages
from segue.hub.workdir.isolation import remove_temporary_files
from segue.model import clock, ids
from segue.model.errors import Conflict, LeaseLost, NoAgent, NotFound, SegueError, StoreError
from segue.model.event import AnyBody, Draft, Interrupted
from segue.model.lifecycle import StopReason
from segue.model.session import Session
from segue.store.base import InboxItem, Lease, Signal

from .attribution import attribute, open_request
from .runner import TurnDeps, TurnRunner

log = logging.getLogger("segue.turns")

LEASE_MICROSECONDS = 15 * clock.SECOND
RENEW_SECONDS = 4.0
RECOVER_SECONDS = 5.0
# A prompt that no process has begun for so long was left by a process that died.
ABANDONED_MICROSECONDS = 3 * clock.SECOND
# A prompt that needs hooks of a program and waits for so long has outlived that program.
ORPHANED_MICROSECONDS = 30 * clock.SECOND
# A cancelled agent has so long to end its programs before this process ends.
AGENT_END_SECONDS = 25.0


class SessionLease:
    """A session that is open in this process: its prompts run here until the lease is closed."""

    def __init__(self, engine: TurnEngine, name: Name) -> None:
        self._engine = engine
        self.name = name

    async def close(self) -> None:
        """Cancel the running turn and release the session."""
        await self._engine.release(self.name)


class TurnEngine:
    """The turn engine of one process."""

    def __init__(self, deps: TurnDeps, lease: int = LEASE_MICROSECONDS) -> None:
        self._deps = deps
        self._store = deps.store
        self._ttl = lease
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{ids.new_id()}"
        self._drivers: dict[Name, _SessionDriver] = {}
        self._open_sessions: dict[Name, tuple[Agent | None, Tools]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._discards: set[asyncio.Task[None]] = set()  # those that end purged sessions
        self._ending_agents: set[asyncio.Task[Any]] = set()  # whose turns have ended
        self._started = False
        self._closed = False

    @property
    def running(self) -> int:
        """The number of turns that run in this process."""
        return sum(driver.busy for driver in self._drivers.values())

    def start(self) -> None:
        """Begin to renew leases and to recover the turns of dead processes."""
        if self._started:
            return
        self._started = True
        self._deps.live.listen(self._signal)
        self._spawn(self._renew())
        self._spawn(self._recover_regularly())

    async def wait_idle(self) -> None:
        """Wait until no turn runs in this process and no prompt is queued for it."""
        while tasks := [
            driver.task for driver in self._drivers.values() if driver.task is not None
        ]:
            await asyncio.wait(tasks)

    async def drain(self, seconds: float, why: str) -> None:
        """Begin no further turn, and interrupt the turns that run longer than `seconds`.

        Prompts that have not begun stay in their inboxes for another process. `why` becomes the
        reason of the interrupted turns.
        """
        self._closed = True
        drivers = list(self._drivers.values())
        tasks = [driver.retire() for driver in drivers]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        await asyncio.gather(*(driver.stop(why) for driver in drivers))

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

    async def kick(self, name: Name) -> None:
        """Run the prompts in a session's inbox, unless another process has its lease."""
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
        """Open a session in this process, with an agent and MCP servers of this process's own.

        If another process has its lease, prompts run there. A session that is not `stored` yet is
        leased with its first prompt.
        """
        self._open_sessions[name] = (agent, tools or NoTools())
        try:
            if stored:
                await self.kick(name)
        except BaseException:
            self._open_sessions.pop(name, None)
            raise
        return SessionLease(self, name)

    def has_own_agent(self, name: Name) -> bool:
        """Return whether a session is open in this process with an agent of its own."""
        agent, _ = self._open_sessions.get(name, (None, None))
        return agent is not None

    async def release(self, name: Name) -> None:
        agent, _ = self._open_sessions.pop(name, (None, None))
        if driver := self._drivers.get(name):
            await driver.stop()
        if isinstance(agent, SupportsRelease):
            await agent.release(name[1])
        await self._deps.services.agent_registry.release(name[1])

    def _drive(self, name: Name, lease: Lease) -> None:
        if name not in self._drivers:
            driver = self._drivers[name] = _SessionDriver(
                self._deps, lease, self._open_sessions, self._await_agent
            )
            driver.task = self._spawn(self._driven(name, driver))

    async def _driven(self, name: Name, driver: _SessionDriver) -> None:
        try:
            can_run = await driver.run()
        except StoreError as error:
            log.warning("session %s: the turn was not finished: %s", name[1], error)
            return
        finally:
            self._drivers.pop(name, None)
        # A prompt may have arrived between the last read of the inbox and the release.
        if can_run and not self._closed:
            try:
                items = await self._store.inbox(*name)
            except NotFound:
                return
            if any(item.kind == "prompt" for item in items):
                await self.kick(name)

    def _await_agent(self, task: asyncio.Task[Any]) -> None:
        """Remember an agent that still runs after its turn, until it ends."""
        self._ending_agents.add(task)
        task.add_done_callback(self._on_agent_end)

    def _on_agent_end(self, task: asyncio.Task[Any]) -> None:
        self._ending_agents.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.warning("an agent failed after its turn was cancelled", exc_info=error)

    def _signal(self, signal: Signal) -> None:
        driver = self._drivers.get((signal.workspace, signal.session))
        if driver is not None and signal.kind in ("inbox", "purged"):
            driver.wake.set()
        if signal.kind == "purged" and not self._closed:
            task = self._spawn(self._discard(signal.session))
            self._discards.add(task)
            task.add_done_callback(self._discards.discard)

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
            await asyncio.sleep(min(RENEW_SECONDS, self._ttl / clock.SECOND / 3))
            if not self._drivers:
                continue
            drivers = dict(self._drivers)
            try:
                leased = await self._store.renew(self.holder, self._ttl)
                for name, driver in drivers.items():
                    if name not in leased:
                        driver.lose_lease()
                for name in leased - self._drivers.keys():
                    await self._take_over(name)  # an error ended its driver and left the turn open
            except SegueError as error:
                log.warning("could not renew leases: %s", error)

    async def _recover_regularly(self) -> None:
        while True:
            try:
                await self.recover()
            except SegueError as error:
                log.warning("could not recover abandoned turns: %s", error)
            await asyncio.sleep(RECOVER_SECONDS)

    async def recover(self) -> None:
        """Close the turns of dead processes and run the prompts that they had not begun."""
        for lease in await self._store.expired_leases():
            await self._take_over((lease.workspace, lease.session))
        for name in await self._store.waiting_prompts(clock.now() - ABANDONED_MICROSECONDS):
            await self._take_over(name)

    async def _take_over(self, name: Name) -> None:
        try:
            await self.kick(name)
        except NotFound:
            return


class _SessionDriver:
    """Run the turns of one session while this process has its lease."""

    def __init__(
        self,
        deps: TurnDeps,
        lease: Lease,
        open_sessions: Mapping[Name, tuple[Agent | None, Tools]],
        await_agent: Callable[[asyncio.Task[Any]], None],
    ) -> None:
        self._deps = deps
        self._store = deps.store
        self._lease = lease
        self._name: Name = (lease.workspace, lease.session)
        self._runner: TurnRunner | None = None
        self._stopping = False
        self._lost = False
        self._open_sessions = open_sessions
        self._await_agent = await_agent
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self._runner is not None

    def retire(self) -> asyncio.Task[None]:
        """Begin no further turn; return the task, which ends with the running turn."""
        assert self.task is not None  # set right after the driver is created
        self._stopping = True
        self.wake.set()
        return self.task

    async def stop(self, why: str | None = None) -> None:
        """Cancel the running turn and end; with `why`, the turn counts as interrupted."""
        task = self.retire()
        if self._runner is not None:
            self._runner.cancel(why)
        await asyncio.wait([task])

    def lose_lease(self) -> None:
        """Stop at once and write nothing, because the lease is lost."""
        if not self._lost:
            log.info("session %s: the lease was lost", self._lease.session)
        self._lost = self._stopping = True
        self.wake.set()
        if self._runner is not None:
            self._runner.abandon()

    async def run(self) -> bool:
        """Run until no prompt is left; return False if this process cannot run those that are."""
        try:
            can_run = await self._run_prompts()
        except (LeaseLost, NotFound):
            self.lose_lease()
        finally:
            self._deps.live.finish_messages(self._name)
        if self._lost:
            return False
        # Not after an error: recovery finds an open turn by its expired lease.
        await self._store.release(self._lease)
        return can_run

    async def _run_prompts(self) -> bool:
        await self._close_left_turn()
        while not self._stopping:
            self.wake.clear()
            prompt = await self._next_prompt()
            if prompt is not None:
                if not await self._turn(prompt):
                    return False
            elif self._name in self._open_sessions:
                await self.wake.wait()
            else:
                break
        return not self._stopping

    async def _close_left_turn(self) -> None:
        """Close the turn that a process which died left open."""
        session = await self._store.get(*self._name)
        if session is None or session.turn is None:
            return
        partial = partial_messages(await self._store.deltas(*self._name))
        spans = ("model_asked", "model_called")
        last = await self._store.events(*self._name, types=spans, limit=1, backward=True)
        request = open_request(last[0]) if last else None
        unstored = [
            *(attribute(draft, session.turn, request) for draft in partial),
            *failed_request(request),
        ]

        def decide(current: Session) -> list[AnyBody | Draft]:
            if current.turn is None:
                return []
            why = "the process that ran this turn ended before it did"
            return [*unstored, Interrupted(reason=why), *end_turn_events(current, why, "error")]

        await self._store.change(*self._name, decide, lease=self._lease)

    async def _next_prompt(self) -> InboxItem | None:
        """Return the oldest prompt; drop the cancels and answers before it, which have no turn."""
        stale = []
        prompt = None
        for item in await self._store.inbox(*self._name):
            if item.kind == "prompt":
                prompt = prompt or item
            elif prompt is None:
                stale.append(item.number)
        if stale:
            await self._store.drop_inbox(*self._name, stale)
        return prompt

    async def _turn(self, prompt: InboxItem) -> bool:
        """Run one turn; return False if this process cannot build the session's agent."""
        session = await self._store.get(*self._name)
        if session is None:
            raise NotFound(f"no session {self._lease.session}", session=self._lease.session)
        agent, tools = self._open_sessions.get(self._name, (None, NoTools()))
        try:
            overrides = prompt.body.get("overrides", {})
            local = bool(prompt.body.get("local"))
            agent = agent or await self._deps.build_agent(
                session, overrides, self._lease, local=local
            )
        except NoAgent as error:
            log.warning("session %s: %s", session.id, error)
            if HOOKS_KEY not in overrides or prompt.at > clock.now() - ORPHANED_MICROSECONDS:
                return await self._drop_cancelled()
            agent = _FailingAgent(error)
        self._runner = TurnRunner(self._deps, self._lease, self.wake, agent, tools)
        try:
            if not self._stopping:  # stop() may be called while the agent is built
                await self._runner.run(prompt.number, prompt.id, prompt.body)
        except LeaseLost:
            raise
        except Conflict as error:
            # The prompt was withdrawn, or the session has terminated.
            log.info("session %s: %s", session.id, error)
            await self._store.drop_inbox(*self._name, [prompt.number])
        finally:
            task, self._runner = self._runner.agent_task, None
            if task is not None and not task.done():
                self._await_agent(task)
        return True

    async def _drop_cancelled(self) -> bool:
        """Drop the prompts that a later cancel withdraws; return whether there were any."""
        items = await self._store.inbox(*self._name)
        cancel = max((item.number for item in items if item.kind == "cancel"), default=0)
        numbers = [item.number for item in items if item.number <= cancel]
        return bool(await self._store.drop_inbox(*self._name, numbers))


class _FailingAgent:
    """End a turn that no agent can answer with the reason."""

    def __init__(self, error: NoAgent) -> None:
        self._error = error

    async def run(self, turn: Turn) -> StopReason:
        raise self._error
