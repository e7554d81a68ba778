"""A session that is open on a connection: its updates, its prompts, its questions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from msgspec import UNSET

from ...acp import v1, v2, wire
from ...acp.rpc import (
    INTERNAL_ERROR,
    REQUEST_CANCELLED,
    Connection,
    Disconnected,
    RpcError,
)
from ...hub import Hub
from ...model.errors import NotFound, SegueError
from ...model.event import (
    Event,
    Failed,
    PermissionAnswered,
    PermissionAsked,
    StatusChanged,
    ToolCall,
    UserMessage,
)
from ...model.fold import apply
from ...model.lifecycle import StopReason
from ...model.principal import Principal
from ...model.session import Session
from ...store.base import Delta
from . import view1, view2

log = logging.getLogger("segue.acp")

Ask = Callable[[str, PermissionAsked, ToolCall | None], Any]


class View(Protocol):
    """How a protocol version shows a session."""

    def replay(self, event: Event) -> Iterator[Any]: ...
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
    ) -> None:
        self._hub = hub
        self._principal = principal
        self._connection = connection
        self._view = view
        self._version = version
        self._session = session
        self._task: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()
        self._prompts: dict[str, asyncio.Future[Any]] = {}
        self._own: set[str] = set()
        self._failure: str | None = None
        self._calls: dict[str, ToolCall] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self.id = session.id
        self.cwd = session.cwd

    # Opening.

    async def replay(self) -> None:
        """Send the whole history; nothing of it comes later."""
        async for event in self._hub.history(self._principal, self.id):
            if event.seq > self._session.last_seq:
                break
            for update in self._view.replay(event):
                await self._send(update)

    async def ready(self) -> None:
        """Send what opening ends with."""
        for update in self._view.ready(self._session):
            await self._send(update)

    async def notice(self, severity: str, title: str, description: str) -> None:
        """Tell the client something about the session, where it wants to be told."""
        for update in self._view.notice(severity, title, description):
            await self._send(update)

    def start(self) -> None:
        """Go on with what happens from now on."""
        self._task = asyncio.get_running_loop().create_task(self._pump())

    # What the client does.

    async def prompt(self, turn_id: str) -> asyncio.Future[Any]:
        """A future for what the client waits for: the end of the turn, or its beginning in v2."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._prompts[turn_id] = future
        self._own.add(turn_id)
        return future

    def forget(self, turn_id: str) -> None:
        self._prompts.pop(turn_id, None)

    @property
    def busy(self) -> bool:
        """Whether this client has begun something that has not ended."""
        return bool(self._prompts) or (self._session.turn or "") in self._own

    async def caught_up(self) -> None:
        """Until everything that is stored by now has been sent."""
        try:
            last = (await self._hub.get(self._principal, self.id)).last_seq
        except NotFound:
            return
        while self._session.last_seq < last and self._task is not None and not self._task.done():
            self._moved.clear()
            await self._moved.wait()

    async def check_waiting(self) -> None:
        """Settle prompts that were taken back before they began."""
        for turn_id, future in list(self._prompts.items()):
            if not future.done() and await self._hub.vanished(self._principal, self.id, turn_id):
                self._settle(turn_id, "cancelled")

    async def stop(self) -> None:
        """Send nothing more."""
        tasks = [*self._asking.values(), *([self._task] if self._task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for turn_id in list(self._prompts):
            self._settle(turn_id, "cancelled")

    # What happens to the session.

    async def _pump(self) -> None:
        try:
            for ask in self._session.open_asks:
                await self._ask_again(ask)
            async for item in self._hub.follow(
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
        finally:
            self._moved.set()
            for turn_id in list(self._prompts):
                self._settle(turn_id, "cancelled")

    async def _event(self, event: Event) -> None:
        self._session = session = apply(self._session, event)
        body = event.body
        own = isinstance(body, UserMessage) and event.id in self._own
        # In version 1 a client shows its own prompt by itself; the others hear of it.
        if not (own and self._version == 1):
            for update in self._view.show(event, session):
                await self._send(update)
        match body:
            case UserMessage() if self._version == 2:
                self._settle(event.id, event.id)
            case ToolCall():
                self._calls[body.call_id] = body
            case Failed():
                self._failure = body.message
            case PermissionAsked():
                self._ask(body)
            case PermissionAnswered():
                if task := self._asking.pop(body.ask_id, None):
                    task.cancel()
            case StatusChanged(turn=turn, stop_reason=reason) if (
                turn is not None and reason is not None and reason != "requires_action"
            ):
                self._calls.clear()
                self._settle(turn, reason)
                self._own.discard(turn)
                await self.check_waiting()
        self._moved.set()

    def _settle(self, turn_id: str, outcome: str) -> None:
        future = self._prompts.pop(turn_id, None)
        failure, self._failure = self._failure, None
        if future is None or future.done():
            return
        if self._version == 2 and outcome == "cancelled":
            future.set_exception(RpcError(REQUEST_CANCELLED, "the prompt was withdrawn"))
        elif self._version == 1 and outcome == "error":
            future.set_exception(RpcError(INTERNAL_ERROR, failure or "the turn failed"))
        else:
            future.set_result(outcome)

    # Questions.

    async def _ask_again(self, ask_id: str) -> None:
        """Put a question that was asked before this client came."""
        seq = await self._hub.locate(self._principal, self.id, ask_id)
        for event in await self._hub.events(self._principal, self.id, after=seq - 1, limit=1):
            if isinstance(event.body, PermissionAsked):
                self._ask(event.body)

    def _ask(self, body: PermissionAsked) -> None:
        work = self._question(body)
        self._asking[body.ask_id] = asyncio.get_running_loop().create_task(work)

    async def _question(self, body: PermissionAsked) -> None:
        call = self._calls.get(body.call_id or "")
        chosen: str | None = None
        try:
            answer = await self._connection.request(
                "session/request_permission", self._permission(body, call)
            )
            outcome = answer.get("outcome") if isinstance(answer, dict) else None
            if isinstance(outcome, dict) and outcome.get("outcome") == "selected":
                option = outcome.get("optionId")
                # Whatever is not one of the options is no approval.
                if any(option == known.id for known in body.options):
                    chosen = option
        except RpcError as error:
            log.info("session %s: the client could not be asked: %s", self.id, error.message)
        except Disconnected:
            return
        self._asking.pop(body.ask_id, None)
        try:
            await self._hub.answer(self._principal, self.id, body.ask_id, chosen)
        except NotFound:
            return  # answered elsewhere, or over

    def _permission(self, body: PermissionAsked, call: ToolCall | None) -> Any:
        choices = [
            wire.PermissionOption(option_id=option.id, name=option.name, kind=option.kind)
            for option in body.options
        ]
        call_id = body.call_id or body.ask_id
        if self._version == 1:
            fields = v1.ToolCallFields(tool_call_id=call_id, title=body.title)
            if call is not None:
                fields = v1.ToolCallFields(
                    tool_call_id=call_id,
                    title=body.title,
                    kind=call.kind,
                    status="pending",
                    content=view1.tool_content(call.content) or UNSET,
                    raw_input=UNSET if call.input is None else call.input,
                )
            return v1.PermissionRequest(session_id=self.id, tool_call=fields, options=choices)
        if call is None:
            return v2.PermissionRequest(session_id=self.id, title=body.title, options=choices)
        subject = v2.ToolCallSubject(
            tool_call=v2.ToolCallFields(
                tool_call_id=call_id,
                title=call.title or call.name,
                kind=call.kind,
                content=view2.tool_content(call.content) or UNSET,
                raw_input=UNSET if call.input is None else call.input,
            )
        )
        return v2.PermissionRequest(
            session_id=self.id, title=body.title, options=choices, subject=subject
        )

    async def _send(self, update: Any) -> None:
        await self._connection.notify("session/update", {"sessionId": self.id, "update": update})


def stop_reason(reason: StopReason | str) -> wire.StopReason:
    """A turn's end as version 1 can say it."""
    known: tuple[wire.StopReason, ...] = (
        "end_turn",
        "max_tokens",
        "max_turn_requests",
        "refusal",
        "cancelled",
    )
    return next((each for each in known if each == reason), "end_turn")
