"""Follow the sessions of a program that is running."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Container, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from segue.hub import Hub
from segue.model import codec
from segue.model.errors import NotFound
from segue.model.event import Event
from segue.model.principal import LOCAL
from segue.sources.kit.reader import Reader
from segue.sources.kit.source import KitSource
from segue.store.memory import MemoryStore

MESSAGES = frozenset({"user_message", "agent_message", "tool_call", "tool_result"})
PROMPT = "A long turn"
# A turn whose messages are recognised by texts that are nowhere else.
LONG_TURN: list[dict[str, Any]] = [
    {"say": "I look.", "calls": [["shell", {"command": "expr 77000000 + 1"}]], "sleep": 0.3},
    {
        "calls": [
            ["shell", {"command": "expr 77000000 + 2"}],
            ["shell", {"command": "expr 77000000 + 3; exit 3"}],
        ]
    },
    {"say": "Nearly.", "calls": [["shell", {"command": "sleep 1; expr 77000000 + 4"}]]},
    {"say": "It is done.", "sleep": 0.3},
]
CALLS = 4
ANSWERS = ["I look.", "Nearly.", "It is done."]
TEXTS = [PROMPT, *ANSWERS, *(f"77000000 + {n}" for n in range(1, 5))]
TEXTS += [f"7700000{n}" for n in range(1, 5)]


class Received(NamedTuple):
    """An event and when a client received it."""

    event: Event
    at: float


@asynccontextmanager
async def open_hub(reader: Reader, directory: Path) -> AsyncIterator[tuple[Hub, KitSource]]:
    """Open a hub over the sessions of a program for a `with` block."""
    source = KitSource(reader, directory / f"{reader.name}.index", reader.name)
    async with Hub(MemoryStore(), directory / "data", sources=[source]) as hub:
        yield hub, source


class Follower:
    """Follows the first new session, as a client does; `known` are the ids of older ones."""

    def __init__(self, hub: Hub, known: Container[str]) -> None:
        self._hub = hub
        self._known = known
        self.received: list[Received] = []
        self.session: str | None = None
        self._is_watching = asyncio.Event()
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        self.session = await self._new_session()
        async for event in self._hub.history.follow(LOCAL, self.session):
            assert isinstance(event, Event)
            self.received.append(Received(event, time.monotonic()))

    async def _new_session(self) -> str:
        changes = self._hub.history.changes(LOCAL)
        next_change = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(1)  # until the watch of the files has begun
        self._is_watching.set()
        while (id := (await next_change).session) in self._known or not await self._is_listed(id):
            next_change = asyncio.ensure_future(anext(changes))
        return id

    async def _is_listed(self, id: str) -> bool:
        """Return whether a session has a message: some tools begin it without one."""
        try:
            await self._hub.sessions.get(LOCAL, id)
        except NotFound:
            return False
        return True

    async def wait_until_watching(self) -> None:
        """Wait until changes are noticed."""
        await self._is_watching.wait()

    async def stop(self) -> list[Received]:
        """Return what was received, a second after the program has ended."""
        await asyncio.sleep(1)
        self._task.cancel()
        (result,) = await asyncio.gather(self._task, return_exceptions=True)
        assert isinstance(result, asyncio.CancelledError), result
        return self.received


class Witness:
    """Looks at the bytes of a tool's files, and knows when each text was first in them."""

    def __init__(self, paths: Sequence[str], texts: Sequence[str]) -> None:
        self._paths = paths
        self._missing = {text: text.encode() for text in texts}
        self.seen: dict[str, float] = {}

    def look(self) -> None:
        """Read the files that changed, and note the texts in them."""
        for path in self._files():
            try:
                with open(path, "rb") as file:
                    data = file.read()
            except OSError:
                continue  # it was replaced
            for text in [text for text, needle in self._missing.items() if needle in data]:
                self.seen[text] = time.monotonic()
                del self._missing[text]

    def _files(self) -> Iterator[str]:
        for path in self._paths:
            for suffix in ("", "-wal"):
                if os.path.isfile(path + suffix):
                    yield path + suffix
            for directory, _, names in os.walk(path):
                yield from (os.path.join(directory, name) for name in names)


@contextmanager
def witness(paths: Sequence[str]) -> Iterator[Witness]:
    """Look at the files of a tool all the time during a `with` block."""
    observer = Witness(paths, TEXTS)
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.02):
            observer.look()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield observer
    finally:
        stop.set()
        thread.join()
        observer.look()  # what was written just before the program ended


def check_followed(
    received: list[Received], conversation: list[Event], seen: dict[str, float]
) -> None:
    """Check that each message of a conversation was received once, in order, within a second."""
    expected = [event for event in conversation if event.type in MESSAGES]
    messages = [item for item in received if item.event.type in MESSAGES]
    assert [item.event.id for item in messages] == [event.id for event in expected]
    assert [item.event.body for item in messages] == [event.body for event in expected]
    delays = {}
    for item in messages:
        body = codec.encode(item.event.body).decode()
        texts = [text for text in TEXTS if text in body]
        # A result may repeat its call; the last text is the one that is new.
        delays[f"{item.event.type} {texts[-1]}"] = item.at - seen[texts[-1]]
    assert len(delays) == len(TEXTS)
    assert max(delays.values()) < 1, delays
