"""Wake the subscribers of sessions, whichever process writes to them.

A subscriber reads from the store, then sleeps until a signal for its session wakes it, and reads
again from its own position: no gap and no duplicate. Deltas of a message that is being written
come from a buffer: a slow subscriber gets fewer and longer ones, never a queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from segue.model.errors import NotFound
from segue.model.event import Delta, DeltaKind, Event
from segue.model.requests.spans import OpenRequest, decode_request
from segue.sources.base import Source
from segue.store.base import Signal, Store, finished_messages

Name = tuple[str, str]  # workspace, session
MAX_QUEUED_UPDATES = 1000  # of an agent, for one subscriber


class LiveUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """A message of an agent as it is, for clients that use the agent's protocol; it is not stored.

    `number` counts the updates of a turn from 0. `after` is the seq of the last event before it.
    """

    session: str
    payload: Any
    turn: str | None = None
    number: int = 0
    after: int = 0


class SessionChange(NamedTuple):
    """A session that changed or, if `gone`, was purged."""

    session: str
    gone: bool


class Subscription(asyncio.Event):
    """Set when something happens to a session; `has_events` unless it was only a delta.

    Deltas wake only subscribers that asked for deltas, or for requests if they announce one.
    `updates` are the live updates of agents that the subscriber has not received.
    """

    def __init__(self, *, deltas: bool, requests: bool, updates: bool = False) -> None:
        super().__init__()
        self._deltas = deltas
        self._requests = requests
        self.wants_updates = updates
        self.has_events = True
        self.updates: deque[LiveUpdate] = deque()

    def add_update(self, update: LiveUpdate) -> None:
        """Add a live update. A subscriber that is too slow gets one without a payload instead."""
        if len(self.updates) >= MAX_QUEUED_UPDATES:
            self.updates.clear()
            update = replace(update, payload=None)
        self.updates.append(update)
        self.set()

    def updates_before(self, seq: int) -> Iterator[LiveUpdate]:
        """Yield and remove the live updates that came before the event with this seq."""
        while self.updates and self.updates[0].after < seq:
            yield self.updates.popleft()

    def wants(self, kind: str) -> bool:
        """Return whether the subscriber asked for deltas of a kind."""
        return self._requests if kind == "request" else self._deltas

    def wake(self) -> None:
        """Wake the subscriber for new events."""
        self.has_events = True
        self.set()


class UnfinishedMessage:
    """The text of a message that is being written, as the pieces in which it arrived."""

    def __init__(self, kind: DeltaKind, thread: str | None = None) -> None:
        self.kind = kind
        self.thread = thread
        self.size = 0  # in characters
        self._pieces: list[str] = []

    def add(self, offset: int, text: str) -> None:
        """Add text at an offset; text that does not follow what is known is left out."""
        if offset == self.size:
            self._pieces.append(text)
            self.size += len(text)

    @property
    def pieces(self) -> int:
        """The number of pieces so far."""
        return len(self._pieces)

    def text(self, first: int = 0, end: int | None = None) -> str:
        """Return the text from one piece up to another."""
        return "".join(self._pieces[first:end])


class _StoredDeltas:
    """The messages that a turn in another process is writing, read as they grow."""

    def __init__(self, store: Store, name: Name) -> None:
        self._store = store
        self._name = name
        self._last_number = 0
        self.messages: dict[str, UnfinishedMessage] = {}

    async def read(self) -> None:
        """Read what was added since the last call."""
        deltas, self._last_number = await self._store.new_deltas(*self._name, self._last_number)
        for delta in deltas:
            message = self.messages.setdefault(delta.message, UnfinishedMessage(delta.kind))
            message.add(delta.offset, delta.text)


class _DeltaProgress:
    """How much of each message that is being written one subscriber has received."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._sent: dict[str, tuple[int, int]] = {}  # of each message: pieces and characters
        self._stored: set[str] = set()
        self._unfinished: dict[str, tuple[UnfinishedMessage, int]] = {}  # with their pieces

    def set_unfinished(
        self, messages: dict[str, UnfinishedMessage], subscription: Subscription
    ) -> None:
        """Remember the messages that the subscriber asked for, as they are now."""
        self._unfinished = {
            id: (message, message.pieces)
            for id, message in messages.items()
            if subscription.wants(message.kind)
        }
        self._stored &= self._unfinished.keys()

    def finish(self, message: str) -> None:
        """Send no more deltas of a message, which the subscriber receives as an event."""
        self._stored.add(message)
        self._sent.pop(message, None)

    def take_deltas(self) -> Iterator[Delta]:
        """Yield what the subscriber has not received of the unfinished messages."""
        for id, (message, pieces) in self._unfinished.items():
            first, offset = self._sent.get(id, (0, 0))
            if id in self._stored or pieces <= first:
                continue
            text = message.text(first, pieces)
            self._sent[id] = (pieces, offset + len(text))
            yield Delta(
                session=self._session,
                message=id,
                kind=message.kind if message.kind != "output" else "message",
                offset=offset,
                text=text,
                thread=message.thread,
            )


class LiveUpdates:
    """Wake the subscribers of sessions and workspaces in this process."""

    def __init__(self, store: Store, sources: Iterable[Source]) -> None:
        self._store = store
        self._sources = sources
        self._subscriptions: dict[Name, set[Subscription]] = {}
        self._workspace_queues: dict[str, set[asyncio.Queue[SessionChange]]] = {}
        self._listeners: list[Callable[[Signal], None]] = []
        self._unsubscribers: list[Callable[[], None]] = []
        # The messages that turns of this process are writing, by session and message id.
        self._unfinished: dict[Name, dict[str, UnfinishedMessage]] = {}

    def start(self) -> None:
        """Begin to listen to the store and the sources, once."""
        if self._unsubscribers:
            return
        self._unsubscribers.append(self._store.watch(self._on_signal))
        for source in self._sources:
            self._unsubscribers.append(source.watch(self._source_listener(source.workspace)))

    def close(self) -> None:
        """Stop to listen."""
        for unsubscribe in self._unsubscribers:
            unsubscribe()
        self._unsubscribers.clear()

    def listen(self, listener: Callable[[Signal], None]) -> None:
        """Call `listener` with every signal until the hub closes."""
        self._listeners.append(listener)
        self.start()

    def _source_listener(self, workspace: str) -> Callable[[str], None]:
        def on_change(id: str) -> None:
            self._on_signal(Signal("events", workspace, id))

        return on_change

    def _on_signal(self, signal: Signal) -> None:
        for subscription in self._subscriptions.get((signal.workspace, signal.session), ()):
            subscription.wake()
        if signal.kind in ("events", "purged"):
            for queue in self._workspace_queues.get(signal.workspace, ()):
                queue.put_nowait(SessionChange(signal.session, signal.kind == "purged"))
        for listener in self._listeners:
            listener(signal)

    @contextmanager
    def subscribe(
        self, name: Name, *, deltas: bool = False, requests: bool = False, updates: bool = False
    ) -> Iterator[Subscription]:
        """Yield a subscription to a session."""
        self.start()
        subscription = Subscription(deltas=deltas, requests=requests, updates=updates)
        self._subscriptions.setdefault(name, set()).add(subscription)
        try:
            yield subscription
        finally:
            subscriptions = self._subscriptions[name]
            subscriptions.discard(subscription)
            if not subscriptions:
                del self._subscriptions[name]

    # Messages that turns of this process are writing.

    def add_delta(
        self,
        name: Name,
        message: str,
        kind: DeltaKind,
        offset: int,
        text: str,
        thread: str | None = None,
    ) -> None:
        """Add text to a message that is being written, in a thread or by the session's agent."""
        messages = self._unfinished.setdefault(name, {})
        if message not in messages:
            messages[message] = UnfinishedMessage(kind, thread)
        messages[message].add(offset, text)
        for subscription in self._subscriptions.get(name, ()):
            if subscription.wants(kind):
                subscription.set()

    def publish(self, name: Name, update: LiveUpdate) -> None:
        """Send a message of an agent to the subscribers of this process that asked for it."""
        for subscription in self._subscriptions.get(name, ()):
            if subscription.wants_updates:
                subscription.add_update(update)

    def finish_messages(self, name: Name, messages: Sequence[str] | None = None) -> None:
        """Drop the deltas of messages that are stored now; None drops all of the session's."""
        if messages is None:
            self._unfinished.pop(name, None)
        elif unfinished := self._unfinished.get(name):
            for message in messages:
                unfinished.pop(message, None)
        # Subscribers get the stored message before any delta of the next one.
        for subscription in self._subscriptions.get(name, ()):
            subscription.wake()

    async def _unfinished_messages(
        self, name: Name, stored_deltas: _StoredDeltas
    ) -> dict[str, UnfinishedMessage]:
        """Return the messages that a turn in any process is writing."""
        if name in self._unfinished:
            return self._unfinished[name]
        await stored_deltas.read()
        return stored_deltas.messages

    async def open_request(self, name: Name) -> OpenRequest | None:
        """Return the model request of a turn in any process that has no response so far."""
        if name in self._unfinished:
            requests = [m for m in self._unfinished[name].values() if m.kind == "request"]
            texts = [request.text() for request in requests if request.thread is None]
        else:
            deltas = await self._store.deltas(*name)
            texts = [delta.text for delta in deltas if delta.kind == "request"]
        return decode_request(texts[-1]) if texts else None

    async def follow(
        self,
        read: Callable[[int], AsyncIterator[Event]],
        name: Name,
        after: int,
        *,
        deltas: bool,
        requests: bool = False,
        updates: bool = False,
    ) -> AsyncIterator[Event | Delta | LiveUpdate]:
        """Yield events after a seq without end and, with `deltas`, the deltas of new messages.

        With `requests`, model requests without a response so far are yielded as deltas too. With
        `updates`, also yield the live updates of agents in this process, in their order among the
        events. `read` yields the events after a seq. Ends when it raises NotFound.
        """
        with self.subscribe(
            name, deltas=deltas, requests=requests, updates=updates
        ) as subscription:
            stored_deltas = _StoredDeltas(self._store, name)
            progress = _DeltaProgress(name[1])
            while True:
                subscription.clear()
                queued = subscription.updates
                has_events = subscription.has_events or any(item.after > after for item in queued)
                subscription.has_events = False
                try:
                    # Read before the events: a message that began after another was stored must
                    # not be shown before it.
                    if deltas or requests:
                        unfinished = await self._unfinished_messages(name, stored_deltas)
                        progress.set_unfinished(unfinished, subscription)
                    async for event in read(after) if has_events else _no_events():
                        for update in subscription.updates_before(event.seq):
                            yield update
                        after = event.seq
                        for id in finished_messages([event]) if deltas or requests else ():
                            progress.finish(id)
                            stored_deltas.messages.pop(id, None)
                        yield event
                except NotFound:
                    return
                for update in subscription.updates_before(after + 1):
                    yield update
                for delta in progress.take_deltas():
                    yield delta
                await subscription.wait()

    async def changes(self, workspace: str) -> AsyncIterator[SessionChange]:
        """Yield the sessions of a workspace as they change."""
        self.start()
        queue: asyncio.Queue[SessionChange] = asyncio.Queue()
        self._workspace_queues.setdefault(workspace, set()).add(queue)
        try:
            while True:
                batch = [await queue.get()]
                while not queue.empty():
                    batch.append(queue.get_nowait())
                # Several changes of one session in a burst count as one.
                for change in {change.session: change for change in batch}.values():
                    yield change
        finally:
            self._workspace_queues[workspace].discard(queue)


async def _no_events() -> AsyncIterator[Event]:
    return
    yield
