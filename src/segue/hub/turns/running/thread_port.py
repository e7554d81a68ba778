"""What a thread does for one tool call: it writes its own history in that of the session."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from segue.agents.base import (
    Answer,
    Keyring,
    PermissionRequest,
    SessionPort,
    StreamKind,
    ThreadsPort,
    TurnPort,
)
from segue.agents.base.client import ClientPort
from segue.hub.turns.attribution import TurnRequests
from segue.hub.turns.end_turn import thread_changed
from segue.hub.turns.running.turn_reader import TurnReader
from segue.model import ids
from segue.model.content import Content
from segue.model.event import (
    AnyBody,
    Compacted,
    ConfigChanged,
    DeltaKind,
    Draft,
    Drafts,
    Event,
    InfoChanged,
    Option,
    StatusChanged,
)
from segue.model.requests.spans import encode_request
from segue.model.session import Session

# Events of these types change the session, whichever thread they come from.
_OF_SESSION = (ConfigChanged, InfoChanged)


class ThreadHost(TurnPort, Protocol):
    """The runner of the turn that threads are a part of."""

    async def append_decided(self, decide: Callable[[Session], Drafts]) -> list[Event]: ...
    async def allowed_by_mode(self, options: Sequence[Option]) -> Answer | None: ...
    def asked(self, request: PermissionRequest, id: str) -> Draft: ...
    def publish_thread_delta(
        self, thread: str, message: str, kind: DeltaKind, offset: int, text: str
    ) -> None: ...
    def next_answer(self) -> Coroutine[Any, Any, object]: ...
    @property
    def reader(self) -> TurnReader: ...
    @property
    def turn_id(self) -> str: ...


class ThreadTurnPort:
    """The services for one thread, while it works on one tool call."""

    def __init__(
        self, host: ThreadHost, thread: str, call_id: str, prompt: Event, first_seq: int
    ) -> None:
        """Create the port; the thread's history begins with the event `first_seq`."""
        self._host = host
        self._first_seq = first_seq
        self._requests = TurnRequests()
        self._prompt = prompt
        self._interrupt: Callable[[], object] = lambda: None
        self._thread = thread
        self.call_id = call_id
        self.cancel_id: str | None = None  # of the event that says that the thread was interrupted

    # What it does in its history.

    @property
    def thread(self) -> str:
        return self._thread

    @property
    def prompt(self) -> Content:
        content: Content = getattr(self._prompt.body, "content", ())
        return content

    @property
    def message_id(self) -> str:
        return self._prompt.id

    @property
    def is_interrupted(self) -> bool:
        return self.cancel_id is not None

    def on_interrupt(self, action: Callable[[], object]) -> None:
        self._interrupt = action

    def interrupt(self, cancel_id: str) -> None:
        """Interrupt this thread alone."""
        self.cancel_id = cancel_id
        self._interrupt()

    def attribute(self, drafts: Sequence[AnyBody | Draft], session: Session) -> list[Draft]:
        """Return events as events of this thread, with its open model request."""
        attributed = self._requests.attribute(drafts, self._host.turn_id)
        return [replace(draft, body=self._in_thread(draft.body, session)) for draft in attributed]

    def failed_request(self, unstored: Sequence[Draft]) -> list[AnyBody]:
        """Return the event that ends the open model request without a response, if there is one."""
        return self._requests.failed(unstored)

    def _in_thread(self, body: AnyBody, session: Session) -> AnyBody:
        if isinstance(body, _OF_SESSION):
            return body
        if isinstance(body, StatusChanged):
            return thread_changed(session, self._thread, body.status, message=body.message)
        return replace(body, thread=self._thread)

    async def append(self, drafts: Sequence[AnyBody | Draft]) -> list[Event]:
        if not drafts:
            return []
        events = await self._host.append_decided(lambda session: self.attribute(drafts, session))
        self._requests.add(events)
        return events

    async def begin_request(self, model: str | None) -> str:
        await self.append(self._requests.failed())
        request = self._requests.begin(model)
        self._host.publish_thread_delta(
            self._thread, request.id, "request", 0, encode_request(request)
        )
        return request.id

    async def history(self, *, since_compaction: bool) -> list[Event]:
        before = await self._host.reader.events_from(self._first_seq, self._prompt.seq)
        events = [event for event in before if event.body.thread == self._thread]
        if since_compaction:
            starts = [i for i, event in enumerate(events) if isinstance(event.body, Compacted)]
            events = events[starts[-1] :] if starts else events
        return events

    async def events(self) -> list[Event]:
        events = await self._host.reader.events_from(self._prompt.seq)
        return [event for event in events if event.body.thread == self._thread]

    async def ask(self, requests: Sequence[PermissionRequest]) -> list[Answer | None]:
        answers = [await self._host.allowed_by_mode(request.options) for request in requests]
        pairs = zip(requests, answers, strict=True)
        await self.append(
            [self._host.asked(asked, ids.new_id()) for asked, a in pairs if a is None]
        )
        return answers

    async def take_new_prompts(self) -> list[Event]:
        return []  # clients send messages to the session's own agent

    def publish_delta(self, message: str, kind: StreamKind, offset: int, text: str) -> None:
        self._host.publish_thread_delta(self._thread, message, kind, offset, text)

    # What it shares with the turn.

    @property
    def session(self) -> Session:
        return self._host.session

    @property
    def local(self) -> bool:
        return self._host.local

    @property
    def threads(self) -> ThreadsPort:
        return self._host.threads

    @property
    def client(self) -> ClientPort | None:
        return self._host.client

    @property
    def session_port(self) -> SessionPort:
        return self._host.session_port

    def keyring(self, *, private: bool) -> Keyring:
        return self._host.keyring(private=private)

    async def outputs(self) -> str | None:
        return await self._host.outputs()

    async def read_only_directories(self) -> tuple[str, ...]:
        return await self._host.read_only_directories()

    def mounts(self) -> tuple[str, ...]:
        return self._host.mounts()

    def private_directories(self) -> tuple[str, ...]:
        return self._host.private_directories()

    async def request_permission(self, request: PermissionRequest) -> Answer:
        return await self._host.request_permission(request)

    async def result(self, call_id: str) -> list[Event]:
        return await self._host.result(call_id)

    def publish(self, payload: Any) -> None:
        self._host.publish(payload)
