"""A hub over a home of Claude Code's, and what tests do with both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.sources.claude.layout import Home as ClaudeHome
from segue.sources.claude.source import ClaudeSource
from segue.store.memory import MemoryStore
from tests.claude.entries import Home, as_line, user

S3 = "33333333-3333-4333-8333-333333333333"


@asynccontextmanager
async def opened(home: Home, **options: Any) -> AsyncIterator[tuple[Hub, ClaudeSource]]:
    index = home.root.parent / "data" / "index.db"
    source = ClaudeSource(index, ClaudeHome(str(home.root)), **options)
    async with Hub(MemoryStore(), home.root.parent, sources=[source]) as hub:
        yield hub, source


async def listed(hub: Hub, **query: Any) -> list[str]:
    return [session.id for session in (await hub.list(LOCAL, Query(**query))).sessions]


def append(path: Path, *lines: dict[str, Any]) -> None:
    with path.open("ab") as file:
        file.write(b"".join(map(as_line, lines)))


def said(uuid: str, parent: str | None, text: str, at: str, **more: Any) -> dict[str, Any]:
    return user(uuid, parent, text, timestamp=at, **more)
