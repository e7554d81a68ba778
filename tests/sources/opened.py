"""Open sources, for tests of single sessions that are coroutines."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from segue.model.event import Event
from segue.model.query import Query
from segue.model.session import Session
from segue.sources.kit.source import KitSource
from segue.testing.helpers import message_texts
from segue.testing.source_contract import ToolSessions

CWD = "/work/project"
NOON = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)
ID = "11111111-2222-4333-8444-555555555555"
OTHER = "99999999-2222-4333-8444-555555555555"


def minute(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


class Opened:
    """A source whose sessions are read by segue's ids, by default the session ID."""

    def __init__(self, tool: ToolSessions) -> None:
        source = tool.open_source()
        assert isinstance(source, KitSource)
        self.source = source

    async def row(self, id: str = ID) -> Session:
        session = await self.source.get(id)
        assert session is not None
        return session

    async def rows(self, **query: Any) -> list[Session]:
        await self.source.refresh()
        return await self.source.page(Query(**query))

    async def conversation(self, id: str = ID) -> list[Event]:
        await self.source.get(id)
        return [item async for item in self.source.conversation(id)]

    async def bodies(self, kind: type, id: str = ID) -> list[Any]:
        return [item.body for item in await self.conversation(id) if isinstance(item.body, kind)]

    def record_reads(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Return a list that gets the offset from which the reader begins each further read."""
        offsets: list[int] = []
        reader = type(self.source.reader)
        read = reader.read

        def recording_read(self: Any, ref: Any, resume: Any = None) -> Any:
            offsets.append(0 if resume is None else resume.offset)
            return read(self, ref, resume)

        monkeypatch.setattr(reader, "read", recording_read)
        return offsets


class OpenedByNativeId:
    """A source whose sessions are read by the ids of their tool."""

    def __init__(self, tool: ToolSessions) -> None:
        source = tool.open_source()
        assert isinstance(source, KitSource)
        self.source = source

    async def rows(self) -> dict[str, Session]:
        await self.source.refresh()
        rows = await self.source.page(Query(archived="include", limit=1000))
        return {row.native_id or row.id: row for row in rows}

    async def row(self, native_id: str) -> Session:
        return (await self.rows())[native_id]

    async def conversation(self, native_id: str) -> list[Event]:
        id = (await self.row(native_id)).id
        return [event async for event in self.source.conversation(id)]

    async def texts(self, native_id: str) -> list[str]:
        return message_texts(await self.conversation(native_id))

    async def bodies(self, native_id: str, kind: type) -> list[Any]:
        events = await self.conversation(native_id)
        return [event.body for event in events if isinstance(event.body, kind)]

    async def problems(self) -> list[tuple[str, str]]:
        return [(path, reason) for path, reason in (await self.source.examine()).problems]
