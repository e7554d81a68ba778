"""A source over a Copilot home, for tests of single sessions."""

from datetime import UTC, datetime, timedelta
from typing import Any

from segue.model.event import Event
from segue.model.query import Query
from segue.model.session import Session
from segue.sources.kit.source import KitSource
from tests.sources.copilot.session_files import CopilotSessions, event, start

CWD = "/work/project"
NOON = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)
ID = "11111111-2222-4333-8444-555555555555"
OTHER = "99999999-2222-4333-8444-555555555555"


def minute(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


class Opened:
    """A source over a Copilot home."""

    def __init__(self, tool: CopilotSessions) -> None:
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


def write(tool: CopilotSessions, *lines: bytes, id: str = ID, **workspace: str) -> None:
    """Write a session with these lines after its start."""
    data = start(id, NOON, CWD) + b"".join(lines)
    tool.write(id, data, cwd=CWD, at=NOON, **workspace)


def usage_record(source: str, input: int, output: int, agent: str | None = None) -> bytes:
    usage = {"model": "gpt-5.4", "inputTokens": input, "outputTokens": output}
    accounting = {"sourceSessionId": source, "sequence": 1}
    usage |= {"cacheReadTokens": 100, "cacheWriteTokens": 0, "accounting": accounting}
    return event(NOON, "session.usage_record", agent=agent, usage=usage)
