"""What a turn does for its agent: it stores events, asks the user and takes up new prompts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from itertools import takewhile
from typing import Any

from msgspec.structs import replace

from segue.agents.base import (
    Answer,
    Keyring,
    PermissionRequest,
    SessionPort,
    StreamKind,
)
from segue.agents.base.client import ClientPort
from segue.hub.turns.deps import TurnDeps
from segue.hub.turns.inbox import Prompt, begun_turn
from segue.hub.turns.opened import StoreSessionPort
from segue.hub.turns.turn_events import (
    check_values,
    marked_by_key,
    marked_local,
    permission_asked,
    status_with_pending,
    with_body,
)
from segue.model import codec, ids
from segue.model.event import AnyBody, DeltaKind, Draft, Drafts, Event, Option, ToolCall
from segue.model.session import Session
from segue.store.base import InboxItem, Lease

from .delta_writer import DeltaWriter
from .session_threads import SessionThreads
from .turn_inbox import TurnInbox
from .turn_reader import TurnReader
from .turn_writer import TurnWriter

# The permission mode in which every request is allowed.
ALLOW_ALL_MODE = "bypassPermissions"


class SessionTurnPort:
    """The services for the session's own agent, while it answers a prompt."""

    def __init__(
        self,
        deps: TurnDeps,
        lease: Lease,
        wake: asyncio.Event,
        client: ClientPort | None,
        *,
        resumes: bool,
    ) -> None:
        """Create the port of a turn that a client starts.

        `wake` makes the runner read the inbox. `resumes` says whether the agent can be resumed.
        """
        self._store = deps.store
        self._services = deps.services
        self._live = deps.live
        self._wake = wake
        self._resumes = resumes
        self._local = False
        self._mode: str | None = None  # the permission mode of this turn only
        self._roots: tuple[str, ...] | None = None  # the roots of the client that started this turn
        self._first_seq = 0
        self._calls: dict[str, ToolCall] = {}
        self.client = client
        self.writer = TurnWriter(deps.store, deps.live, lease)
        self.deltas = DeltaWriter(deps.store, deps.live, lease)
        self.reader = TurnReader(deps.store, self.writer.name)
        self.threads = SessionThreads(self, deps.store)
        self.inbox = TurnInbox(deps.store, self.writer.name, self, resumes=resumes)

    # Called by the runner.

    def begin(self, items: Sequence[InboxItem], row: Session, first_seq: int) -> None:
        """Begin or resume the turn of these prompts, whose first event is `first_seq`."""
        prompts = [codec.convert(item.body, Prompt) for item in items]
        self.writer.begin(items, row)
        self._first_seq = first_seq
        self._local = all(prompt.local for prompt in prompts)
        self._mode, self._roots = prompts[0].mode, prompts[0].roots

    async def load_calls(self) -> None:
        """Note the tool calls of a turn that is resumed."""
        for call in await self.reader.calls(self._first_seq):
            self._note_call(call)

    def close(self) -> None:
        """Let the agent store nothing more, and withdraw its permission requests."""
        self.writer.close()
        self.inbox.withdraw_requests()
        self.deltas.close()

    # Called by the Turn.

    @property
    def session(self) -> Session:
        session = self._with_own_settings(self.writer.row)
        if self._roots is not None and self._roots != session.roots:
            session = replace(session, roots=self._roots)
        return session if self._mode is None else replace(session, mode=self._mode)

    def _with_own_settings(self, session: Session) -> Session:
        """Return the session without what API keys have set, if the turn is the local user's."""
        return session.for_local_turn() if self._local else session

    @property
    def local(self) -> bool:
        return self._local

    @property
    def thread(self) -> str | None:
        return None

    @property
    def session_port(self) -> SessionPort:
        return StoreSessionPort(self._store, self._live, self.writer.name)

    def keyring(self, *, private: bool) -> Keyring:
        credentials = self._services.credentials
        return credentials.keyring(self.session, private=private, local=self._local)

    async def outputs(self) -> str | None:
        return await self._services.workdirs.outputs_directory(self.session)

    def mounts(self) -> tuple[str, ...]:
        return self._services.workdirs.mount_paths(self.session)

    def private_directories(self) -> tuple[str, ...]:
        return self._services.workdirs.private_directories

    async def read_only_directories(self) -> tuple[str, ...]:
        return await self._services.workdirs.read_only_directories(self.session)

    async def append(self, drafts: Sequence[AnyBody | Draft]) -> list[Event]:
        if not drafts:
            return []
        check_values(drafts)
        if messages := self.writer.requests.message_ids(drafts):
            self.writer.check_open()
            await self.deltas.drop(messages)
        return await self.append_decided(lambda _: drafts)

    async def begin_request(self, model: str | None) -> str:
        self.writer.check_open()
        await self.append(self.writer.requests.failed())
        request = self.writer.requests.begin(model)
        await self.deltas.publish_request(request)
        return request.id

    def _note_call(self, call: ToolCall) -> None:
        self._calls[call.call_id] = call
        self.inbox.note_call(call)

    async def history(self, *, since_compaction: bool) -> list[Event]:
        return await self.reader.history(self._first_seq, since_compaction=since_compaction)

    async def events(self) -> list[Event]:
        return await self.reader.events_from(self._first_seq)

    async def request_permission(self, request: PermissionRequest) -> Answer:
        self.writer.check_open()
        if (allow := await self.allowed_by_mode(request.options)) is not None:
            return allow
        ask_id = ids.new_id()
        future = self.inbox.expect_answer(ask_id, request.options)
        asked = self.asked(request, ask_id)

        def decide(session: Session) -> list[AnyBody | Draft]:
            return [asked, status_with_pending(session, (*session.pending, ask_id))]

        await self.writer.change_open_turn(decide)
        return await future

    async def ask(self, requests: Sequence[PermissionRequest]) -> list[Answer | None]:
        self.writer.check_open()
        answers = [await self.allowed_by_mode(request.options) for request in requests]
        pairs = zip(requests, answers, strict=True)
        await self.append([self.asked(asked, ids.new_id()) for asked, a in pairs if a is None])
        return answers

    async def result(self, call_id: str) -> list[Event]:
        self.writer.check_open()
        future = self.inbox.expect_result(call_id)

        def decide(session: Session) -> list[AnyBody | Draft]:
            return [status_with_pending(session, (*session.pending, call_id))]

        await self.writer.change_open_turn(decide)
        self._wake.set()  # the result may be in the inbox already
        return await future

    async def take_new_prompts(self) -> list[Event]:
        self.writer.check_open()
        inbox = await self._store.inbox(*self.writer.name)
        items = list(takewhile(self._joins, (item for item in inbox if item.kind == "prompt")))
        if not items:
            return []
        prompts = [codec.convert(item.body, Prompt) for item in items]
        pairs = zip(items, prompts, strict=True)
        drafts = [draft for item, prompt in pairs for draft in prompt.drafts(item.id)]
        _, events = await self.change(
            lambda _: drafts,
            begin=[begun_turn(item, resumable=self._resumes) for item in items],
        )
        self.writer.items += items
        if self._local and not all(prompt.local for prompt in prompts):
            self._local = False
            await self._services.workdirs.allow_key(self.session)
        return events

    def _joins(self, item: InboxItem) -> bool:
        """Return whether a prompt can join this turn: if the same client sent it here.

        An outcome is a turn of its own, and the prompts after it wait for it.
        """
        first = self.writer.items[0]
        same_client = item.body.get("opened") == first.body.get("opened")
        return item.holder == first.holder and same_client and not item.body.get("outcome")

    def publish_delta(self, message: str, kind: StreamKind, offset: int, text: str) -> None:
        self.writer.check_open()
        self.deltas.publish(message, kind, offset, text)

    def publish(self, payload: Any) -> None:
        self.writer.check_open()
        self.deltas.publish_update(payload, self.turn_id, self.session.last_seq)

    # Called by threads and the inbox.

    @property
    def turn_id(self) -> str:
        return self.writer.turn_id

    async def change(
        self,
        decide: Callable[[Session], Drafts],
        consume: Sequence[int] = (),
        begin: Sequence[InboxItem] = (),
    ) -> tuple[Session, list[Event]]:
        return await self.writer.change(decide, consume, begin)

    async def append_decided(self, decide: Callable[[Session], Drafts]) -> list[Event]:
        """Store the events that are decided on the current row."""
        self.writer.check_open()
        mark = marked_local if self._local else marked_by_key
        events = await self.writer.change_open_turn(
            lambda session: [with_body(draft, mark) for draft in decide(session)]
        )
        for event in events:
            if isinstance(event.body, ToolCall):
                self._note_call(event.body)
        self.writer.finish_messages(events)
        return events

    async def allowed_by_mode(self, options: Sequence[Option]) -> Answer | None:
        """Return the answer that the session's mode gives; it may have changed since the start."""
        current = await self._store.get(*self.writer.name)
        mode = None if current is None else self._with_own_settings(current).mode
        if (self._mode or mode) != ALLOW_ALL_MODE:
            return None
        # Nothing is stored: the tool call shows what was done.
        allow = next((option for option in options if option.kind.startswith("allow")), None)
        return None if allow is None else Answer(option=allow)

    def asked(self, request: PermissionRequest, id: str) -> Draft:
        """Return the event of a permission request."""
        call = self._calls.get(request.call_id or "")
        return Draft(id=id, body=permission_asked(request, id, call, local=self._local))

    def next_answer(self) -> Coroutine[Any, Any, object]:
        return self.inbox.next_answer()

    def publish_thread_delta(
        self, thread: str, message: str, kind: DeltaKind, offset: int, text: str
    ) -> None:
        """Show a delta of a thread in this process; other processes get the stored message."""
        self.writer.check_open()
        self._live.add_delta(self.writer.name, message, kind, offset, text, thread)
