"""Call a source from tests that are not coroutines."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from segue.model.event import AnyBody, Event
from segue.model.query import Query
from segue.model.session import Session, Thread
from segue.sources.kit.reader import Reader
from segue.sources.kit.source import KitSource
from segue.testing.helpers import message_texts

T = TypeVar("T")


class OpenedSource:
    """A source over a reader: each call opens it, with the same index, and closes it."""

    def __init__(self, reader: Reader, index: Path) -> None:
        self.reader = reader
        self._index = index

    def _open(self) -> KitSource:
        return KitSource(self.reader, self._index, self.reader.name)

    def _run(self, ask: Any) -> Any:
        async def run() -> Any:
            source = self._open()
            try:
                await source.refresh()
                return await ask(source)
            finally:
                await source.close()

        return asyncio.run(run())

    def rows(self, **query: Any) -> list[Session]:
        """Return the listed sessions, archived ones included."""
        rows: list[Session] = self._run(
            lambda source: source.page(Query(archived="include", **query))
        )
        return rows

    def row(self, id: str) -> Session:
        """Return a session's row."""
        row: Session | None = self._run(lambda source: source.get(id))
        assert row is not None
        return row

    def events(self, id: str) -> list[Event]:
        """Return all events of a session."""
        events: list[Event] = self._run(lambda source: source.events(id))
        return events

    def bodies(self, id: str, type: type[T]) -> list[T]:
        """Return the bodies of a type."""
        bodies: list[AnyBody] = [event.body for event in self.events(id)]
        return [body for body in bodies if isinstance(body, type)]

    def conversation(self, id: str) -> list[str]:
        """Return the texts of the messages on the active branch."""

        async def read(source: KitSource) -> list[Event]:
            return [event async for event in source.conversation(id)]

        return message_texts(self._run(read))

    def threads(self, id: str) -> list[Thread]:
        """Return the subagents of a session."""
        threads: list[Thread] = self._run(lambda source: source.threads(id))
        return threads

    def thread(self, id: str, thread: str) -> list[str]:
        """Return the texts of the messages of a subagent."""

        async def read(source: KitSource) -> list[Event]:
            return [event async for event in source.thread(id, thread)]

        return message_texts(self._run(read))

    def problems(self) -> list[str]:
        """Return the reasons why something cannot be read."""

        async def examine(source: KitSource) -> list[str]:
            return [problem.reason for problem in (await source.examine()).problems]

        reasons: list[str] = self._run(examine)
        return reasons

    def statuses(self) -> dict[str, str]:
        """Return the status of each session."""
        return {row.id: row.status for row in self.rows()}


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of a ToolSessions."""
    return asyncio.run(coroutine)
