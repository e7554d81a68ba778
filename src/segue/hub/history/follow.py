"""Following sessions as they grow, whichever process writes them.

A follower reads from the store, then sleeps until a signal for its session wakes it and reads on:
no gap and no duplicate, because the position is its own. Pieces of a message that is still being
written come as deltas from a buffer: a slow follower gets fewer and longer ones, never a queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from segue.model.errors import NotFound
from segue.model.event import Delta, Event
from segue.sources.base import Source
from segue.store.base import Signal, Store

CHUNK = 500

Name = tuple[str, str]  # workspace, session


class Change(NamedTuple):
    """A session of one's workspace changed, or is gone."""

    session: str
    gone: bool


class Sleeper(asyncio.Event):
    """Set whenever something happens to a session; `moved` unless it was only a piece of a message.

    Pieces wake those alone who want them.
    """

    def __init__(self, pieces: bool) -> None:
        super().__init__()
        self.pieces = pieces
        self.moved = True

    def wake(self) -> None:
        self.moved = True
        self.set()


class Live:
    """Wakes whoever waits for a session or for a workspace."""

    def __init__(self, store: Store, sources: Sequence[Source]) -> None:
        self._store = store
        self._sources = sources
        self._sleepers: dict[Name, set[Sleeper]] = {}
        self._watchers: dict[str, set[asyncio.Queue[Change]]] = {}
        self._listeners: list[Callable[[Signal], None]] = []
        self._stops: list[Callable[[], None]] = []
        # The messages that turns of this process are writing: session → message id → text.
        self._writing: dict[Name, dict[str, tuple[str, str]]] = {}

    def start(self) -> None:
        """Begin to listen; done by the first who needs it."""
        if self._stops:
            return
        self._stops.append(self._store.watch(self._signal))
        for source in self._sources:
            self._stops.append(source.watch(self._source_signal(source.workspace)))

    def close(self) -> None:
        for stop in self._stops:
            stop()
        self._stops.clear()

    def listen(self, listener: Callable[[Signal], None]) -> None:
        """Hear every signal, for as long as the hub lives."""
        self._listeners.append(listener)
        self.start()

    def _source_signal(self, workspace: str) -> Callable[[str], None]:
        return lambda id: self._signal(Signal("events", workspace, id))

    def _signal(self, signal: Signal) -> None:
        for sleeper in self._sleepers.get((signal.workspace, signal.session), ()):
            sleeper.wake()
        if signal.kind in ("events", "purged"):
            for queue in self._watchers.get(signal.workspace, ()):
                queue.put_nowait(Change(signal.session, signal.kind == "purged"))
        for listener in self._listeners:
            listener(signal)

    @contextmanager
    def sleeper(self, name: Name, pieces: bool = False) -> Iterator[Sleeper]:
        """An event that is set whenever something happens to a session."""
        self.start()
        event = Sleeper(pieces)
        self._sleepers.setdefault(name, set()).add(event)
        try:
            yield event
        finally:
            waiting = self._sleepers[name]
            waiting.discard(event)
            if not waiting:
                del self._sleepers[name]

    # Messages being written by turns of this process.

    def write(self, name: Name, message: str, kind: str, text: str) -> None:
        messages = self._writing.setdefault(name, {})
        messages[message] = (kind, messages.get(message, (kind, ""))[1] + text)
        for sleeper in self._sleepers.get(name, ()):
            if sleeper.pieces:
                sleeper.set()

    def written(self, name: Name, messages: Sequence[str] | None = None) -> None:
        """These messages are stored (or all of a session's are over): forget their pieces."""
        if messages is None:
            self._writing.pop(name, None)
        elif held := self._writing.get(name):
            for message in messages:
                held.pop(message, None)
        # Before any piece of the next message can be shown.
        for sleeper in self._sleepers.get(name, ()):
            sleeper.wake()

    async def _unfinished(self, name: Name) -> dict[str, tuple[str, str]]:
        if name in self._writing:
            return self._writing[name]
        found: dict[str, tuple[str, str]] = {}
        for delta in await self._store.deltas(*name):
            kind, text = found.get(delta.message, (delta.kind, ""))
            if delta.offset == len(text):
                found[delta.message] = (kind, text + delta.text)
        return found

    # Following.

    async def follow(
        self,
        read: Callable[[int], AsyncIterator[Event]],
        name: Name,
        after: int,
        deltas: bool,
        stored: bool,
    ) -> AsyncIterator[Event | Delta]:
        """Events after a seq for ever; with `deltas`, also the pieces of messages to come.

        `read` gives what there is after a seq. Ends when the session is gone.
        """
        with self.sleeper(name, deltas and stored) as awake:
            sent: dict[str, int] = {}
            done: set[str] = set()
            while True:
                awake.clear()
                moved, awake.moved = awake.moved, False
                try:
                    # Before the events: a message that began after another was stored must not
                    # be shown before it.
                    unfinished = dict(await self._unfinished(name)) if deltas and stored else {}
                    done &= unfinished.keys()
                    async for event in read(after) if moved else _nothing():
                        after = event.seq
                        if deltas and event.type in ("agent_message", "agent_thought"):
                            done.add(event.id)
                            sent.pop(event.id, None)
                        yield event
                except NotFound:
                    return
                for message, (kind, text) in unfinished.items():
                    offset = sent.get(message, 0)
                    if message not in done and len(text) > offset:
                        sent[message] = len(text)
                        yield Delta(
                            session=name[1],
                            message=message,
                            kind="thought" if kind == "thought" else "message",
                            offset=offset,
                            text=text[offset:],
                        )
                await awake.wait()

    async def changes(self, workspace: str) -> AsyncIterator[Change]:
        """The sessions of a workspace that change, as they do."""
        self.start()
        queue: asyncio.Queue[Change] = asyncio.Queue()
        self._watchers.setdefault(workspace, set()).add(queue)
        try:
            while True:
                batch = [await queue.get()]
                while not queue.empty():
                    batch.append(queue.get_nowait())
                # A burst of changes to one session is one change.
                for change in {change.session: change for change in batch}.values():
                    yield change
        finally:
            self._watchers[workspace].discard(queue)


async def _nothing() -> AsyncIterator[Event]:
    return
    yield
