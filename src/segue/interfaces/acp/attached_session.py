"""A session that is open on a connection: its updates, its prompts, its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from segue.acp import wire
from segue.acp.rpc import (
    INTERNAL_ERROR,
    NOT_FOUND,
    REQUEST_CANCELLED,
    Connection,
    Disconnected,
    RpcError,
)
from segue.hub import Hub
from segue.model import ids
from segue.model.content import Content
from segue.model.errors import NotFound, SegueError
from segue.model.event import (
    Delta,
    Event,
    Failed,
    PermissionAnswered,
    PermissionAsked,
    StatusChanged,
    ToolCall,
    UserMessage,
)
from segue.model.lifecycle import StopReason
from segue.model.principal import Principal
from segue.model.projection import apply
from segue.model.session import Session

from .permissions import Questions

if TYPE_CHECKING:
    from segue.agents.mcp import McpServers
    from segue.hub.turns.engine import SessionLease

log = logging.getLogger("segue.acp")

# How long closing waits for a cancelled turn that another process runs.
REST_SECONDS = 5.0


class View(Protocol):
    """How a protocol version shows a session."""

    def replay(self, event: Event) -> Iterator[Any]: ...
    def made(self, session: Session) -> Iterator[Any]: ...
    def ready(self, session: Session) -> Iterator[Any]: ...
    def notice(self, severity: str, title: str, description: str) -> Iterator[Any]: ...
    def delta(self, delta: Delta) -> Iterator[Any]: ...
    def show(self, event: Event, session: Session | None) -> Iterator[Any]: ...


class Opened:
    """Follows a session for one client, and settles what the client waits for.

    Everything the client hears of a session comes from one task, in the order of the events; so
    an answer that must not overtake updates is given by that task.
    """

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        connection: Connection,
        session: Session,
        view: View,
        version: int,
        name: str | None = None,
    ) -> None:
        """`name` is the session's id as the client spells it, and so is told it."""
        self._hub = hub
        self._principal = principal
        self._connection = connection
        self._view = view
        self._version = version
        self._session = session
        self._name = name or session.id
        self._questions = Questions(hub, principal, connection, session.id, version, self._name)
        self._task: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()
        # Prompts and cancels reach the hub in the order in which they came.
        self._order = asyncio.Lock()
        self._closed = False
        # The client's prompts: what it waits for, which the hub has, which are in a turn.
        self._prompts: dict[str, asyncio.Future[str]] = {}
        self._submitted: set[str] = set()
        self._begun: set[str] = set()
        self._failure: str | None = None
        self._calls: dict[str, ToolCall] = {}
        self._passed_on: set[asyncio.Task[Any]] = set()
        self.hold: SessionLease | None = None
        self.tools: McpServers | None = None
        self.id = session.id

    # Opening.

    async def replay(self) -> None:
        """Send the whole conversation; nothing of it comes later."""
        async for event in self._hub.history.conversation(self._principal, self.id):
            if event.seq > self._session.last_seq:
                break
            for update in self._view.replay(event):
                await self._send(update)

    async def ready(self) -> None:
        """Send what opening ends with."""
        for update in self._view.ready(self._session):
            await self._send(update)

    async def notice(self, title: str, description: str) -> None:
        """Warn the client of something about the session, where it wants to be told."""
        for update in self._view.notice("warning", title, description):
            await self._send(update)

    def start(self, *, new: bool = False) -> None:
        """Go on with what happens from now on."""
        self._task = asyncio.get_running_loop().create_task(self._pump(new))

    # What the client does.

    async def prompt(self, content: Content) -> str:
        """Ask, and wait for what the client waits for.

        In version 1 that is the end of the turn, and the result its stop reason; in version 2 it
        is the beginning, and the result the message's id. A client that takes its request back
        gets an answer nevertheless, once it is clear which.
        """
        turn_id = ids.new_id()
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        submitting = asyncio.get_running_loop().create_task(self._submit(turn_id, content, future))
        while True:
            try:
                await asyncio.shield(submitting)
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                if self._connection.closed:
                    raise
                if task := asyncio.current_task():
                    task.uncancel()
                await asyncio.wait([submitting])
                await self._take_back(turn_id)

    async def _submit(self, turn_id: str, content: Content, future: asyncio.Future[str]) -> None:
        async with self._order:
            session = await self._hub.sessions.get(self._principal, self.id)
            if self._closed or session.state == "trashed":
                raise unknown(self._name)
            self._prompts[turn_id] = future
            try:
                await self._hub.turns.submit(self._principal, self.id, content, turn_id=turn_id)
            except BaseException:
                self._prompts.pop(turn_id, None)
                raise
            if turn_id in self._prompts:  # and not over already
                self._submitted.add(turn_id)

    async def _take_back(self, turn_id: str) -> None:
        """One that has begun is cancelled in version 1, where its request is the turn."""
        async with self._order:
            if turn_id not in self._prompts:
                return
            if await self._hub.turns.withdraw(self._principal, self.id, turn_id):
                self._settle(turn_id, "cancelled")
            elif self._version == 1:
                await self._hub.turns.cancel(self._principal, self.id)

    async def cancel(self) -> None:
        """Cancel what runs, and what was sent before this."""
        async with self._order:
            await self._hub.turns.cancel(self._principal, self.id)
        await self._check_waiting()

    async def pass_on(self, method: str, params: Mapping[str, Any]) -> Any:
        """Ask the client what the session's agent asks of it, while the session is open here."""
        if self._closed:
            raise unknown(self._name)
        asking = self._connection.request(method, {"sessionId": self._name, **params})
        task = asyncio.get_running_loop().create_task(asking)
        self._passed_on.add(task)
        task.add_done_callback(self._passed_on.discard)
        try:
            return await task
        except Disconnected:
            raise RpcError(INTERNAL_ERROR, "the client is gone") from None

    async def caught_up(self) -> None:
        """Until everything that is stored by now has been sent."""
        try:
            last = (await self._hub.sessions.get(self._principal, self.id)).last_seq
        except NotFound:
            return
        await self._until(lambda: self._session.last_seq >= last)

    async def close(self, last: Callable[[], Awaitable[object]] | None = None) -> None:
        """Cancel what this client began, tell it so, let the session go, and be silent.

        `last` is done to the session at rest; what comes of it, the client is told before that.
        """
        async with self._order:
            self._closed = True
            for task in self._passed_on:
                task.cancel()
            await self._give_up()
        if self.hold is not None:
            await self.hold.close()
        if not self._connection.closed:
            try:
                async with asyncio.timeout(REST_SECONDS):
                    await self._until(lambda: not self._busy)
            except TimeoutError:
                log.info("session %s: its turn runs elsewhere, and does not end", self.id)
        try:
            if last is not None:
                await last()
            if not self._connection.closed:
                await self.caught_up()
        finally:
            await self._stop()
            if self.tools is not None:
                await self.tools.close()

    @property
    def _busy(self) -> bool:
        """Whether this client has begun something that has not ended."""
        return bool(self._prompts) or bool(self._begun)

    async def _give_up(self) -> None:
        try:
            for turn_id in list(self._prompts):
                if await self._hub.turns.withdraw(self._principal, self.id, turn_id):
                    self._settle(turn_id, "cancelled")
            if self._busy:
                await self._hub.turns.cancel(self._principal, self.id)
        except SegueError as error:
            log.warning("session %s: its turn was not cancelled: %s", self.id, error.message)

    async def _stop(self) -> None:
        await self._questions.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _until(self, done: Any) -> None:
        """Until something is true of what was sent, or nothing more will be."""
        while not done() and self._task is not None and not self._task.done():
            self._moved.clear()
            await self._moved.wait()

    # What happens to the session.

    async def _pump(self, new: bool) -> None:
        try:
            if new:
                for update in self._view.made(self._session):
                    await self._send(update)
            for ask in self._session.open_asks:
                await self._questions.ask_again(ask)
            async for item in self._hub.history.follow(
                self._principal, self.id, self._session.last_seq, deltas=True
            ):
                if isinstance(item, Delta):
                    for update in self._view.delta(item):
                        await self._send(update)
                else:
                    await self._event(item)
        except Disconnected:
            return
        except SegueError as error:
            log.warning("session %s: %s", self.id, error)
            self._fail(error.rpc_code, error.message)
        except Exception:
            log.exception("session %s cannot be followed any more", self.id)
            self._fail(INTERNAL_ERROR, "internal error")
        finally:
            for turn_id in list(self._prompts):
                self._settle(turn_id, "cancelled")
            self._begun.clear()
            self._moved.set()

    async def _event(self, event: Event) -> None:
        self._session = session = apply(self._session, event)
        body = event.body
        own = isinstance(body, UserMessage) and event.id in self._prompts
        # In version 1 a client shows its own prompt by itself; the others hear of it.
        if not (own and self._version == 1):
            for update in self._view.show(event, session):
                await self._send(update)
        match body:
            case UserMessage() if own:
                self._begun.add(event.id)
                if self._version == 2:
                    self._settle(event.id, event.id)
            case ToolCall():
                self._calls[body.call_id] = body
            case Failed():
                self._failure = body.message
            case PermissionAsked():
                self._questions.ask(body, self._calls.get(body.call_id or ""))
            case PermissionAnswered():
                self._questions.take_back(body.ask_id)
            case StatusChanged(stop_reason=reason) if session.turn is None:
                await self._ended(reason or "end_turn")
        self._moved.set()

    async def _ended(self, reason: StopReason) -> None:
        """A turn is over: so are the prompts that were in it, and maybe some that waited."""
        self._calls.clear()
        for turn_id in self._begun:
            self._settle(turn_id, reason)
        self._begun.clear()
        self._failure = None
        await self._check_waiting()

    async def _check_waiting(self) -> None:
        """Settle prompts that were taken back before they began."""
        for turn_id in self._submitted - self._begun:
            if await self._hub.turns.was_withdrawn(self._principal, self.id, turn_id):
                self._settle(turn_id, "cancelled")

    def _settle(self, turn_id: str, outcome: str) -> None:
        future = self._prompts.pop(turn_id, None)
        self._submitted.discard(turn_id)
        if future is None:
            return
        if self._version == 2 and outcome == "cancelled":
            future.set_exception(RpcError(REQUEST_CANCELLED, "the prompt was withdrawn"))
        elif self._version == 1 and outcome == "error":
            why = self._failure or "the turn failed"
            future.set_exception(RpcError(INTERNAL_ERROR, why))
        else:
            future.set_result(outcome)
        future.exception()  # heard here, as the client may be gone
        self._moved.set()

    def _fail(self, code: int, why: str) -> None:
        """Nothing more can be told; whoever waits for the end of a turn must not wait for ever."""
        for future in self._prompts.values():
            future.set_exception(RpcError(code, why))
            future.exception()
        self._prompts.clear()

    async def _send(self, update: Any) -> None:
        await self._connection.notify("session/update", {"sessionId": self._name, "update": update})


def unknown(spelt: str) -> RpcError:
    return RpcError(NOT_FOUND, f"session not found: {spelt}", {"sessionId": spelt})


def stop_reason(reason: str) -> wire.StopReason:
    """A turn's end as version 1 can say it."""
    if reason == "budget_reached":
        return "max_turn_requests"
    known: tuple[wire.StopReason, ...] = (
        "end_turn",
        "max_tokens",
        "max_turn_requests",
        "refusal",
        "cancelled",
    )
    return next((each for each in known if each == reason), "end_turn")
