"""A session that is attached to a connection: its updates, its prompts and its end."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from segue.acp.rpc import INTERNAL_ERROR, INVALID_PARAMS, Connection, Disconnected, RpcError
from segue.hub import Hub
from segue.hub.history.follow import LiveUpdate
from segue.model import ids
from segue.model.content import Content
from segue.model.errors import NotFound, SegueError
from segue.model.event import (
    AgentMessage,
    Delta,
    Event,
    Failed,
    PermissionAnswered,
    PermissionAsked,
    StatusChanged,
    ToolCall,
    ToolCallChanged,
    UserMessage,
)
from segue.model.lifecycle import StopReason
from segue.model.principal import Principal
from segue.model.projection import apply, start
from segue.model.session import Session
from segue.model.tools.changes import apply_change

from .errors import DIALECT, session_not_found
from .permissions import PermissionRequests
from .position import ALL_UPDATES, Position
from .update_sender import UpdateSender
from .versions.forwarding import Cancellable, comes_from_agent
from .versions.policy import VersionPolicy

if TYPE_CHECKING:
    from segue.agents.base import ConnectedTools
    from segue.hub.turns.opened import OpenSession

log = logging.getLogger("segue.acp")

# How long an edit of a session, and a cancelled prompt, wait for a turn in another process.
TURN_END_SECONDS, CANCEL_ANSWER_SECONDS = 5.0, 0.8


class AttachedSession:
    """Follows a session for one client, and answers the client's prompts.

    One task sends all updates of a session, in the order of the events. That task also answers
    prompts, so an answer never arrives before the updates that precede it.
    """

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        connection: Connection,
        policy: VersionPolicy,
        session: Session,
        client_session_id: str | None = None,
    ) -> None:
        """Create an attached session, which sends nothing until `start`.

        `client_session_id` is the session id that the client uses, by default the canonical one.
        """
        self._hub = hub
        self._principal = principal
        self._connection = connection
        self._policy = policy
        self._session = session  # as of the last event that was sent
        self.client_session_id = client_session_id or session.id
        self._updates = UpdateSender(connection, policy, session, self.client_session_id)
        self._permission_requests = PermissionRequests(
            hub, principal, connection, policy, session.id, self.client_session_id
        )
        self._follower: asyncio.Task[None] | None = None
        self._progress = asyncio.Event()  # set when an event was sent or a prompt answered
        self._submit_lock = asyncio.Lock()  # prompts and cancels reach the hub in order of arrival
        self._closed = False
        # The client's prompts, by turn id: unanswered, accepted by the hub, started.
        self._answers: dict[str, asyncio.Future[Any]] = {}
        self._submitted: set[str] = set()
        self._started: set[str] = set()
        self._paused = False
        # The last event whose prompts were answered, and the first of a replay that needs that.
        self._tracked_seq = session.last_seq
        self._first_untracked = sys.maxsize
        self._failure: Failed | None = None  # the last error of the current turn
        self._withheld: Event | None = None  # an error that a prompt's response may report
        # True while the client receives the agent's own messages, in a turn or between turns.
        self._forwards_turn = False
        self._forwards_between_turns = False
        self._result: dict[str, Any] = {}  # of the current turn, from its agent
        self.cancellable = Cancellable()
        self._calls: dict[str, ToolCall] = {}  # of the current turn
        self._client_requests: set[asyncio.Task[Any]] = set()  # sent to the client by agents
        self._background: set[asyncio.Task[None]] = set()
        self.opened: OpenSession | None = None
        self.mcp_servers: ConnectedTools | None = None
        self.on_closed: Callable[[], Awaitable[None]] | None = None  # the agent's hook
        # What the client opened the session with before it opened it again during a turn.
        self._earlier: list[tuple[OpenSession | None, ConnectedTools | None]] = []
        self.id = session.id

    # Opening.

    async def replay(self, after: Position | None = None) -> None:
        """Send the history up to the time when the session was attached.

        `after` is the position up to which the client has received it.
        """
        async for event in self._hub.history.conversation(self._principal, self.id):
            if event.seq > self._session.last_seq:
                break
            updates = self._updates.encoder.encode_replayed(event)
            await self._updates.send_event(event, updates, after, replayed=True)
            if event.seq >= self._first_untracked:
                await self._track_prompts(event)
        self._updates.position = Position(self._session.last_seq, ALL_UPDATES)

    async def resume(self, after: Position) -> None:
        """Send everything after a position, up to the time when the session was attached.

        The encoder must know what preceded the position, so the history is read from its start.
        Raises RpcError if the session has no such position.
        """
        if after.seq > self._session.last_seq:
            raise RpcError(INVALID_PARAMS, "the cursor is not one of this session")
        if after.replayed:
            await self.replay(after)
            return
        session: Session | None = None
        self._updates.position = after
        async for event in self._hub.history.read(self._principal, self.id):
            if event.seq > self._session.last_seq:
                break
            if session is None:
                session = start(self._session.workspace, self.id, event)
            else:
                session = apply(session, event)
            if event.seq > after.seq:
                self._updates.restore_streamed(after)
            await self._updates.send_event(event, self._updates.encode(event, session), after)
            if event.seq >= self._first_untracked:
                await self._track_prompts(event)
        self._updates.restore_streamed(after)

    async def send_opened(self) -> None:
        """Send the updates that end the opening of an existing session."""
        await self._updates.send_all(self._updates.encoder.encode_opened(self._session))

    async def send_state(self) -> None:
        """Send the session's state, if the protocol version has an update for it."""
        await self._updates.send_all(self._updates.encoder.encode_state(self._session))

    async def send_warning(self, title: str, description: str) -> None:
        """Send a warning about the session, if the client supports notices."""
        await self._updates.send_all(
            self._updates.encoder.encode_notice("warning", title, description)
        )

    def start(self, *, created: bool = False) -> None:
        """Start to send new events. `created` says that the client has just created the session."""
        self._follower = asyncio.get_running_loop().create_task(self._follow(created=created))

    def run_while_attached(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in the background until it ends or the session is detached."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # Requests of the client.

    async def prompt(self, content: Content, meta: Any = None) -> Any:
        """Submit a prompt, and return the response when the protocol version answers it.

        `meta` is the `_meta` of the request. A client that cancels the request still gets an
        answer, once the outcome is known.
        """
        turn_id = ids.new_id()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        submission = asyncio.get_running_loop().create_task(
            self._submit(turn_id, content, meta, answer)
        )
        while True:
            try:
                await asyncio.shield(submission)
                return await asyncio.shield(answer)
            except asyncio.CancelledError:
                if self._connection.closed:
                    raise
                if task := asyncio.current_task():
                    task.uncancel()
                await asyncio.wait([submission])
                await self._cancel_prompt(turn_id)

    async def _submit(
        self, turn_id: str, content: Content, meta: Any, answer: asyncio.Future[Any]
    ) -> None:
        async with self._submit_lock:
            session = await self._hub.sessions.get(self._principal, self.id)
            if self._closed or session.state == "trashed":
                raise session_not_found(self.client_session_id)
            self._answers[turn_id] = answer
            try:
                await self._hub.turns.submit(
                    self._principal,
                    self.id,
                    content,
                    turn_id=turn_id,
                    opened=self.opened,
                    extra=None if meta is None else {DIALECT: {"_meta": meta}},
                )
            except BaseException:
                self._answers.pop(turn_id, None)
                raise
            if turn_id in self._answers:  # not answered in the meantime
                self._submitted.add(turn_id)

    async def _cancel_prompt(self, turn_id: str) -> None:
        """Withdraw a prompt.

        If it has started, and its answer is the end of its turn, cancel the turn.
        """
        async with self._submit_lock:
            if turn_id not in self._answers:
                return
            if await self._hub.turns.withdraw(self._principal, self.id, turn_id):
                self._answer(turn_id, "cancelled")
            elif not self._policy.answers_prompt_at_start:
                await self._hub.turns.cancel(self._principal, self.id, turn_id)

    async def cancel(self) -> None:
        """Cancel the running turn and the prompts that were submitted before this call."""
        async with self._submit_lock:
            await self._hub.turns.cancel(self._principal, self.id)
        await self._answer_withdrawn()
        cancelled = {id: self._answers[id] for id in self._started if id in self._answers}
        if cancelled and not self._hub.turns.runs_here(self._principal, self.id):
            self.run_while_attached(self._answer_cancelled(cancelled))

    async def _answer_cancelled(self, prompts: dict[str, asyncio.Future[Any]]) -> None:
        """Answer prompts of a cancelled turn, if its process is suspended or unreachable."""
        await asyncio.wait(prompts.values(), timeout=CANCEL_ANSWER_SECONDS)
        for turn_id in prompts:
            self._answer(turn_id, "cancelled")

    async def wait_sent(self) -> None:
        """Wait until the client has received every event that is stored now."""
        try:
            last_seq = (await self._hub.sessions.get(self._principal, self.id)).last_seq
        except NotFound:
            return
        await self._wait_until(lambda: self._session.last_seq >= last_seq)

    # Requests of the session's agent.

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """Send a request of the session's agent to the client, and return the answer.

        Raises RpcError if the session is closed, the client disconnects or answers with an error.
        """
        if self._closed:
            raise session_not_found(self.client_session_id)
        request = self._connection.request(method, {"sessionId": self.client_session_id, **params})
        task = asyncio.get_running_loop().create_task(request)
        self._client_requests.add(task)
        task.add_done_callback(self._client_requests.discard)
        try:
            return await task
        except Disconnected:
            raise RpcError(INTERNAL_ERROR, "the client has disconnected") from None

    # Closing.

    async def close(self, before_silence: Callable[[], Awaitable[object]] | None = None) -> None:
        """Cancel the client's turns, and stop sending updates.

        `before_silence` runs when no turn of the client is left, and the client receives the
        events that it stores.
        """
        async with self._submit_lock:
            self._closed = True
            for task in self._client_requests:
                task.cancel()
            await self._withdraw_prompts()
        await self._close_opened()
        if not self._connection.closed:
            try:
                async with asyncio.timeout(TURN_END_SECONDS):
                    await self._wait_until(lambda: not self._busy)
            except TimeoutError:
                log.info("session %s: the cancelled turn has not ended", self.id)
        try:
            if before_silence is not None:
                await before_silence()
            if not self._connection.closed:
                await self.wait_sent()
        finally:
            await self._stop()
            await self._close_servers()

    async def leave(self) -> None:
        """Stop sending updates to a client that is gone. Its turns and prompts are not disturbed.

        MCP servers of the client are closed when the turns that use them have ended.
        """
        self._closed = True
        await self._stop()
        if self.mcp_servers is not None or self._earlier:
            await self.finish_turns()
        elif self.opened is not None:
            await self.opened.close(cancel=False)
        await self._close_servers()

    async def _close_servers(self) -> None:
        """Close the MCP servers of the client, and tell the agent that the session is closed."""
        for _, mcp_servers in (*self._earlier, (None, self.mcp_servers)):
            if mcp_servers is not None:
                await mcp_servers.close()
        if self.on_closed is not None:
            try:
                await self.on_closed()
            except Exception:  # of the agent's author
                log.exception("session %s: the agent's session_closed failed", self.id)

    @property
    def _busy(self) -> bool:
        """True while a prompt of this client is unanswered or its turn has not ended."""
        return bool(self._answers) or bool(self._started)

    async def _withdraw_prompts(self) -> None:
        try:
            for turn_id in list(self._answers):
                if await self._hub.turns.withdraw(self._principal, self.id, turn_id):
                    self._answer(turn_id, "cancelled")
        except SegueError as error:
            log.warning("session %s: cannot withdraw the prompts: %s", self.id, error.message)

    async def _close_opened(self) -> None:
        """Cancel the turns that the client started, and no others."""
        for opened, _ in (*self._earlier, (self.opened, None)):
            try:
                if opened is not None:
                    await opened.close()
            except SegueError as error:
                log.warning("session %s: cannot cancel the turn: %s", self.id, error.message)

    async def finish_turns(self) -> None:
        """Wait until the client's turns have ended or are stored, and leave those as they are."""
        for opened, _ in (*self._earlier, (self.opened, None)):
            if opened is not None:
                await opened.finish_turns()
                await opened.close(cancel=False)

    async def reopen(self, opened: OpenSession | None, mcp_servers: ConnectedTools | None) -> None:
        """Use what the client passed when it reopened the session, from the next prompt on."""
        self._earlier.append((self.opened, self.mcp_servers))
        self.opened, self.mcp_servers = opened, mcp_servers
        await self.close_earlier()

    async def pause(self) -> None:
        """Stop sending updates and answering prompts; a successor continues with both."""
        self._paused = True
        await self._stop()

    def continue_from(self, earlier: AttachedSession) -> None:
        """Answer the prompts of a paused attachment, while its turn runs on."""
        self._answers, self._submitted = earlier._answers, earlier._submitted
        self._started, self._submit_lock = earlier._started, earlier._submit_lock
        self._failure, self._calls = earlier._failure, earlier._calls
        self._client_requests = earlier._client_requests
        self._first_untracked = earlier._tracked_seq + 1
        self._earlier = [*earlier._earlier, (earlier.opened, earlier.mcp_servers)]

    async def close_earlier(self) -> None:
        """Close what the session was opened with before, unless a turn may still use it."""
        while self._earlier and not self._busy:
            opened, mcp_servers = self._earlier.pop(0)
            if opened is not None:
                await opened.close(cancel=False)
            if mcp_servers is not None:
                await mcp_servers.close()

    async def _stop(self) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._permission_requests.stop()
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds, or until no more updates will be sent."""
        while not condition() and self._follower is not None and not self._follower.done():
            self._progress.clear()
            await self._progress.wait()

    # Events of the session.

    async def _follow(self, *, created: bool) -> None:
        try:
            if created:
                await self._updates.send_all(self._updates.encoder.encode_created(self._session))
            await self._permission_requests.send_stored(self._session)
            async for item in self._hub.history.follow_with_updates(
                self._principal, self.id, self._session.last_seq
            ):
                if isinstance(item, LiveUpdate):
                    await self._forward(item)
                elif isinstance(item, Delta):
                    if not self._forwards_turn and item.thread is None:
                        await self._updates.send_delta(item)
                else:
                    await self._handle_event(item)
        except Disconnected:
            return
        except SegueError as error:
            log.warning("session %s: %s", self.id, error)
            self._fail_prompts(error.rpc_code, error.message)
        except Exception:
            log.exception("session %s: following its events failed", self.id)
            self._fail_prompts(INTERNAL_ERROR, "internal error")
        finally:
            if not self._paused:
                for turn_id in list(self._answers):
                    self._answer(turn_id, "cancelled")
                self._started.clear()
            self._progress.set()

    async def _forward(self, item: LiveUpdate) -> None:
        """Send a message of the session's agent, if the agent uses the client's version.

        The messages of a turn are sent from the turn's beginning on, or not at all.
        """
        payload = item.payload
        if payload is None or payload["version"] != self._policy.version:
            self._forwards_turn = False  # it has missed messages, so it sends the stored events
        elif item.turn is None:
            self._forwards_between_turns = True
        elif item.number == 0:
            self._forwards_turn = True
        if not (self._forwards_between_turns if item.turn is None else self._forwards_turn):
            return
        if payload.get("for_prompter") and item.turn is not None and not self._started:
            return
        if "result" in payload:
            self._result = payload["result"]
            self._updates.encoder.note_result(self._result)
        if "update" in payload:
            self.cancellable.note(payload)
            await self._updates.forward(payload, self._session)

    def _was_forwarded(self, event: Event) -> bool:
        """Return whether the client has received an event as messages of the agent."""
        if not comes_from_agent(event):
            return False
        return self._forwards_turn if self._session.turn else self._forwards_between_turns

    async def _handle_event(self, event: Event) -> None:
        self._session = session = apply(self._session, event)
        body = event.body
        is_own_prompt = isinstance(body, UserMessage) and event.id in self._answers
        if isinstance(body, UserMessage):
            self._forwards_between_turns = False
        is_shown = is_own_prompt and not self._policy.echoes_own_prompts
        is_withheld = await self._withhold_failure(event)
        is_sent = not (is_shown or is_withheld or self._was_forwarded(event))
        await self._updates.send_event(event, self._updates.encode(event, session, is_sent=is_sent))
        await self._track_prompts(event)
        match body:
            case ToolCall():
                self._calls[body.call_id] = body
            case ToolCallChanged(call_id=call_id) if call_id in self._calls:
                self._calls[call_id] = apply_change(self._calls[call_id], body)
            case PermissionAsked():
                call = self._calls.get(body.call_id or "")
                self._permission_requests.send(body, call, own_turn=bool(self._started))
            case PermissionAnswered():
                self._permission_requests.withdraw(body.ask_id)
        self._progress.set()

    async def _withhold_failure(self, event: Event) -> bool:
        """Return whether no notice is sent of an event, because a response reports the error.

        That is only known at the end of the turn, so the notice is sent later if it does not.
        """
        body, withheld = event.body, self._withheld
        match body:
            case Failed(retry="exhausted" | "terminal", thread=None) if self._started:
                self._withheld = None if self._policy.answers_prompt_at_start else event
            case AgentMessage() | ToolCall() | StatusChanged():
                self._withheld = None
            case _:
                return False
        is_reported = isinstance(body, StatusChanged) and body.stop_reason == "error"
        if withheld is not None and not is_reported:
            await self._updates.send_all(self._updates.encode(withheld, self._session))
        return self._withheld is event

    async def _track_prompts(self, event: Event) -> None:
        """Answer the prompts whose turns start or end with an event."""
        match event.body:
            case UserMessage() if event.id in self._answers:
                self._started.add(event.id)
                if self._policy.answers_prompt_at_start:
                    self._answer(event.id, event.id)
            case Failed(thread=None) as failure:
                self._failure = failure
            case StatusChanged(status="idle" | "terminated", stop_reason=reason):
                if reason != "requires_action":
                    await self._end_turn(reason or "end_turn")
        self._tracked_seq = event.seq

    async def _end_turn(self, reason: StopReason) -> None:
        """Answer the prompts of a turn that has ended, and those that were withdrawn with it."""
        self._calls.clear()
        for turn_id in self._started:
            self._answer(turn_id, reason)
        self._started.clear()
        self._failure, self._forwards_turn, self._result = None, False, {}
        await self._answer_withdrawn()
        await self.close_earlier()

    async def _answer_withdrawn(self) -> None:
        """Answer prompts that were withdrawn before they started."""
        for turn_id in self._submitted - self._started:
            if await self._hub.turns.was_withdrawn(self._principal, self.id, turn_id):
                self._answer(turn_id, "cancelled")

    def _answer(self, turn_id: str, outcome: str) -> None:
        """Answer a prompt, unless it was answered before."""
        answer = self._answers.pop(turn_id, None)
        self._submitted.discard(turn_id)
        if answer is None:
            return
        error = self._policy.prompt_error(outcome, self._failure)
        if error is None:
            answer.set_result(self._policy.prompt_response(outcome, self._result, self._session))
        else:
            answer.set_exception(error)
        answer.exception()  # marks it as retrieved: a client that disconnected does not await it
        self._progress.set()

    def _fail_prompts(self, code: int, message: str) -> None:
        """Answer all prompts with an error, because their turns cannot be followed any more."""
        for answer in self._answers.values():
            answer.set_exception(RpcError(code, message))
            answer.exception()
        self._answers.clear()
